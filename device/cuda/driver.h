/*
 * The CUDA driver, found at run time: one table of functions, and one way to call them.
 *
 * A call is written DEVICE_CU(cuda, device_cuda_driver.cuStreamQuery(stream)). It gives a
 * plasmon_status_t, logs what is worth a line, remembers the first error that loses the context,
 * and counts the time when asked to.
 *
 * cuda.h renames functions to their current version (cuMemAlloc is a macro for cuMemAlloc_v2).
 * Members of the table get renamed along with it, so calls and types always fit; the loader asks
 * for the plain name (an operand of # is not expanded) in the version of CUDA 12.0, which every
 * driver since then answers with the same ABI. A function that cuda.h renames to another name
 * altogether is listed under that name: cuGraphInstantiate is a macro for
 * cuGraphInstantiateWithFlags, and what a driver answers for the plain name takes other arguments.
 */
#ifndef DEVICE_CUDA_DRIVER_H
#define DEVICE_CUDA_DRIVER_H

#include <cuda.h>

#include "base/clock.h"
#include "device/device_int.h"

#define DEVICE_CUDA_FUNCTIONS(XX)        \
    XX(cuInit)                           \
    XX(cuDriverGetVersion)               \
    XX(cuGetErrorName)                   \
    XX(cuGetErrorString)                 \
    XX(cuDeviceGetCount)                 \
    XX(cuDeviceGet)                      \
    XX(cuDeviceGetName)                  \
    XX(cuDeviceGetUuid)                  \
    XX(cuDeviceTotalMem)                 \
    XX(cuDeviceGetAttribute)             \
    XX(cuDeviceGetPCIBusId)              \
    XX(cuDeviceCanAccessPeer)            \
    XX(cuDevicePrimaryCtxRetain)         \
    XX(cuDevicePrimaryCtxRelease)        \
    XX(cuCtxGetCurrent)                  \
    XX(cuCtxSetCurrent)                  \
    XX(cuCtxGetStreamPriorityRange)      \
    XX(cuMemGetAllocationGranularity)    \
    XX(cuMemAddressReserve)              \
    XX(cuMemAddressFree)                 \
    XX(cuMemCreate)                      \
    XX(cuMemRelease)                     \
    XX(cuMemMap)                         \
    XX(cuMemUnmap)                       \
    XX(cuMemSetAccess)                   \
    XX(cuMemExportToShareableHandle)     \
    XX(cuMemImportFromShareableHandle)   \
    XX(cuMemAlloc)                       \
    XX(cuMemFree)                        \
    XX(cuMemHostAlloc)                   \
    XX(cuMemGetInfo)                     \
    XX(cuMemHostRegister)                \
    XX(cuMemHostUnregister)              \
    XX(cuMemHostGetDevicePointer)        \
    XX(cuMemcpyDtoDAsync)                \
    XX(cuMemcpyHtoDAsync)                \
    XX(cuMemcpyDtoHAsync)                \
    XX(cuMemcpy2DAsync)                  \
    XX(cuMemcpy3DAsync)                  \
    XX(cuMemsetD8Async)                  \
    XX(cuStreamCreateWithPriority)       \
    XX(cuStreamDestroy)                  \
    XX(cuStreamQuery)                    \
    XX(cuStreamSynchronize)              \
    XX(cuStreamWaitEvent)                \
    XX(cuStreamWriteValue64)             \
    XX(cuStreamWaitValue64)              \
    XX(cuStreamBatchMemOp)               \
    XX(cuEventCreate)                    \
    XX(cuEventDestroy)                   \
    XX(cuEventRecord)                    \
    XX(cuEventQuery)                     \
    XX(cuEventElapsedTime)               \
    XX(cuIpcGetEventHandle)              \
    XX(cuIpcOpenEventHandle)             \
    XX(cuLaunchHostFunc)                 \
    XX(cuModuleLoadDataEx)               \
    XX(cuModuleUnload)                   \
    XX(cuModuleGetFunction)              \
    XX(cuModuleGetGlobal)                \
    XX(cuModuleGetLoadingMode)           \
    XX(cuFuncSetAttribute)               \
    XX(cuFuncGetAttribute)               \
    XX(cuOccupancyMaxPotentialBlockSize) \
    XX(cuLaunchKernel)                   \
    XX(cuLaunchKernelEx)                 \
    XX(cuLaunchCooperativeKernel)        \
    XX(cuCtxEnablePeerAccess)            \
    XX(cuMemcpyPeerAsync)                \
    XX(cuGraphCreate)                    \
    XX(cuGraphGetNodes)                  \
    XX(cuGraphExecKernelNodeSetParams)   \
    XX(cuStreamBeginCapture)             \
    XX(cuStreamEndCapture)               \
    XX(cuGraphInstantiateWithFlags)      \
    XX(cuGraphExecUpdate)                \
    XX(cuGraphLaunch)                    \
    XX(cuGraphExecDestroy)               \
    XX(cuGraphDestroy)

/*
 * cuStreamGetCaptureInfo as it was in CUDA 12.0, and as the loader asks for it; in newer headers
 * the name stands for one with an argument more.
 */
typedef CUresult (*device_cuda_capture_info_fn)(CUstream stream,
                                                CUstreamCaptureStatus *out_status,
                                                cuuint64_t *out_id, CUgraph *out_graph,
                                                const CUgraphNode **out_last,
                                                size_t *out_last_count);

struct device_cuda_driver {
#define XX(name) __typeof__(name) *name;
    DEVICE_CUDA_FUNCTIONS(XX)
#undef XX
    device_cuda_capture_info_fn capture_info;
};
/* constant once device_cuda_driver_load() gave a count */
extern struct device_cuda_driver device_cuda_driver;

/* Load and initialise, once a process; how many devices it sees. 0: err says what is missing. Any thread. */
uint32_t device_cuda_driver_load(struct pl_err *err);

struct device_cuda;

/* What a failed call means, in our words. */
plasmon_status_t device_cuda_status(CUresult result);
/* Is the context lost after this error, whatever is called next? */
bool device_cuda_error_is_sticky(CUresult result);
/*
 * Record a failed call: log it, remember a sticky error in the device (may be NULL), keep the text for
 * device_cuda_last_error(). Returns the status.
 */
plasmon_status_t device_cuda_fail(struct device_cuda *cuda, CUresult result,
                                  const char *call);
/* "cuMemCreate: CUDA_ERROR_OUT_OF_MEMORY (out of memory)": the calling thread's last failure. */
const char *device_cuda_last_error(void);

/* Start of the call under way when times are counted, else 0. */
extern _Thread_local uint64_t device_cuda_call_begin_ns;

static inline void device_cuda_call_begin(void)
{
    if (atomic_load_explicit(&device_driver_time_on, memory_order_relaxed)) {
        device_cuda_call_begin_ns = pl_now_ns();
    }
}

static inline void device_cuda_call_over(void)
{
    if (device_cuda_call_begin_ns != 0) {
        device_driver_time_total_ns +=
            pl_now_ns() - device_cuda_call_begin_ns + device_driver_time_clock_ns;
        device_cuda_call_begin_ns = 0;
    }
}

static inline plasmon_status_t device_cuda_call_end(struct device_cuda *cuda,
                                                    CUresult result, const char *call)
{
    device_cuda_call_over();
    return result == CUDA_SUCCESS ? PLASMON_OK : device_cuda_fail(cuda, result, call);
}

/* The comma orders begin before the call, and the argument is evaluated before end runs. */
#define DEVICE_CU(cuda, call) \
    (device_cuda_call_begin(), device_cuda_call_end((cuda), device_cuda_driver.call, #call))

#endif
