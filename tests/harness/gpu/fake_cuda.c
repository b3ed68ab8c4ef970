/*
 * The calls of the driver that device/cuda makes, over memory of the host. Handles are pointers to our structs. What a call is not asked to
 * check (wrong handles, a context of another device) it does not check.
 */
#include "tests/harness/gpu/fake_cuda.h"

#include <assert.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "device/cuda/driver.h"
#include "tests/harness/gpu/fake_int.h"

#define EXPORT       __attribute__((visibility("default")))
#define DEVICE_BYTES (UINT64_C(1) << 30)
#define GRANULARITY  (UINT64_C(2) << 20)
#define DEVICES_MAX  8

/* Names in the list of device/cuda/driver.h are not those of cuda.h's macros: ## and # do not expand. */
#define XX(name) static __typeof__(name) fake_##name;
DEVICE_CUDA_FUNCTIONS(XX)
#undef XX
static __typeof__(*(device_cuda_capture_info_fn)NULL) fake_cuStreamGetCaptureInfo;

/* ------------------------------------------------------------------------------------------------ counting */

enum call {
#define XX(name) CALL_##name,
    DEVICE_CUDA_FUNCTIONS(XX)
#undef XX
        CALL_cuStreamGetCaptureInfo,
    CALLS
};

static_assert(CALLS <= FAKE_CUDA_CALLS_MAX, "room in the file");

static const char *const names[CALLS] = {
#define XX(name) #name,
    DEVICE_CUDA_FUNCTIONS(XX)
#undef XX
        "cuStreamGetCaptureInfo",
};

static struct fake_cuda_calls *calls;

static void calls_open(void)
{
    const char *path = getenv("FAKE_CUDA_CALLS");
    int fd           = path != NULL ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;
    void *at         = MAP_FAILED;

    if (fd >= 0 && ftruncate(fd, sizeof(*calls)) == 0) {
        at = mmap(NULL, sizeof(*calls), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    }
    if (fd >= 0) {
        (void)close(fd);
    }
    if (at == MAP_FAILED) {
        return;
    }
    calls = at;
    for (size_t i = 0; i < CALLS; i++) { /* the same in each process */
        (void)snprintf(calls->functions[i].name, sizeof(calls->functions[i].name), "%s",
                       names[i]);
    }
}

static void count(enum call call)
{
    if (calls != NULL) {
        (void)__atomic_fetch_add(&calls->functions[call].count, 1, __ATOMIC_RELAXED);
    }
}

#define COUNT(name) count(CALL_##name)

/* ------------------------------------------------------------------------------------------------ devices */

static int count_devices(void)
{
    const char *text = getenv("FAKE_CUDA_DEVICES");
    int wanted       = text != NULL ? atoi(text) : 1;

    return wanted < DEVICES_MAX ? wanted : DEVICES_MAX;
}

static CUresult fake_cuInit(unsigned flags)
{
    (void)flags;
    calls_open();
    COUNT(cuInit);
    return CUDA_SUCCESS;
}

static CUresult fake_cuDriverGetVersion(int *out)
{
    COUNT(cuDriverGetVersion);
    *out = 13000;
    return CUDA_SUCCESS;
}

static CUresult fake_cuGetErrorName(CUresult error, const char **out)
{
    COUNT(cuGetErrorName);
    (void)error;
    *out = "an error of the fake";
    return CUDA_SUCCESS;
}

static CUresult fake_cuGetErrorString(CUresult error, const char **out)
{
    COUNT(cuGetErrorString);
    (void)error;
    *out = "no GPU is behind this driver";
    return CUDA_SUCCESS;
}

static CUresult fake_cuDeviceGetCount(int *out)
{
    COUNT(cuDeviceGetCount);
    *out = count_devices();
    return CUDA_SUCCESS;
}

static CUresult fake_cuDeviceGet(CUdevice *out, int ordinal)
{
    COUNT(cuDeviceGet);
    *out = ordinal;
    return ordinal < count_devices() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

static CUresult fake_cuDeviceGetName(char *out, int bytes, CUdevice device)
{
    COUNT(cuDeviceGetName);
    (void)snprintf(out, (size_t)bytes, "fake %d", device);
    return CUDA_SUCCESS;
}

static CUresult fake_cuDeviceGetUuid(CUuuid *out, CUdevice device)
{
    COUNT(cuDeviceGetUuid);
    memset(out, 0x40 + device, sizeof(*out));
    return CUDA_SUCCESS;
}

static CUresult fake_cuDeviceTotalMem(size_t *out, CUdevice device)
{
    COUNT(cuDeviceTotalMem);
    (void)device;
    *out = DEVICE_BYTES;
    return CUDA_SUCCESS;
}

static CUresult fake_cuDeviceGetAttribute(int *out, CUdevice_attribute attribute,
                                          CUdevice device)
{
    COUNT(cuDeviceGetAttribute);
    (void)device;
    switch ((int)attribute) {
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
        *out = 132;
        break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
        *out = 9;
        break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
        *out = 0;
        break;
    case CU_DEVICE_ATTRIBUTE_MAX_PITCH:
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X:
        *out = INT32_MAX;
        break;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y:
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z:
        *out = UINT16_MAX;
        break;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X:
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y:
        *out = 1024;
        break;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z:
        *out = 64;
        break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
        *out = 232448;
        break;
    default:
        *out = 1; /* it can do that */
    }
    return CUDA_SUCCESS;
}

static CUresult fake_cuDeviceGetPCIBusId(char *out, int bytes, CUdevice device)
{
    COUNT(cuDeviceGetPCIBusId);
    (void)snprintf(out, (size_t)bytes, "ffff:%02x:00.0", device);
    return CUDA_SUCCESS;
}

static CUresult fake_cuDeviceCanAccessPeer(int *out, CUdevice device, CUdevice peer)
{
    COUNT(cuDeviceCanAccessPeer);
    *out = device != peer;
    return CUDA_SUCCESS;
}

/* ------------------------------------------------------------------------------------------------ contexts */

static _Thread_local CUcontext current;

static CUresult fake_cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice device)
{
    static char contexts[DEVICES_MAX];

    COUNT(cuDevicePrimaryCtxRetain);
    *out = (CUcontext)(void *)&contexts[device];
    return CUDA_SUCCESS;
}

static CUresult fake_cuDevicePrimaryCtxRelease(CUdevice device)
{
    COUNT(cuDevicePrimaryCtxRelease);
    (void)device;
    return CUDA_SUCCESS;
}

static CUresult fake_cuCtxGetCurrent(CUcontext *out)
{
    COUNT(cuCtxGetCurrent);
    *out = current;
    return CUDA_SUCCESS;
}

static CUresult fake_cuCtxSetCurrent(CUcontext context)
{
    COUNT(cuCtxSetCurrent);
    current = context;
    return CUDA_SUCCESS;
}

static CUresult fake_cuCtxGetStreamPriorityRange(int *out_low, int *out_high)
{
    COUNT(cuCtxGetStreamPriorityRange);
    *out_low  = 0;
    *out_high = -5;
    return CUDA_SUCCESS;
}

static CUresult fake_cuCtxEnablePeerAccess(CUcontext context, unsigned flags)
{
    COUNT(cuCtxEnablePeerAccess);
    (void)context;
    (void)flags;
    return CUDA_SUCCESS;
}

/* ------------------------------------------------------------------------------------------------ memory */

static void *pointer(CUdeviceptr address)
{
    return (void *)(uintptr_t)address;
}

static CUresult memory_result(const void *at)
{
    return at != MAP_FAILED ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult fake_cuMemGetAllocationGranularity(size_t *out,
                                                   const CUmemAllocationProp *properties,
                                                   CUmemAllocationGranularity_flags flags)
{
    COUNT(cuMemGetAllocationGranularity);
    (void)properties;
    (void)flags;
    *out = GRANULARITY;
    return CUDA_SUCCESS;
}

static CUresult fake_cuMemAddressReserve(CUdeviceptr *out, size_t bytes, size_t alignment,
                                         CUdeviceptr wish, unsigned long long flags)
{
    void *at =
        mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    COUNT(cuMemAddressReserve);
    (void)alignment;
    (void)wish;
    (void)flags;
    *out = (CUdeviceptr)(uintptr_t)at;
    return memory_result(at);
}

static CUresult fake_cuMemAddressFree(CUdeviceptr at, size_t bytes)
{
    COUNT(cuMemAddressFree);
    (void)munmap(pointer(at), bytes);
    return CUDA_SUCCESS;
}

/* A handle is a descriptor and 1: none is 0. */
static CUresult fake_cuMemCreate(CUmemGenericAllocationHandle *out, size_t bytes,
                                 const CUmemAllocationProp *properties,
                                 unsigned long long flags)
{
    int fd = memfd_create("fake-gpu", MFD_CLOEXEC);

    COUNT(cuMemCreate);
    (void)properties;
    (void)flags;
    if (fd < 0 || ftruncate(fd, (off_t)bytes) != 0) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *out = (unsigned)fd + 1ull;
    return CUDA_SUCCESS;
}

static CUresult fake_cuMemRelease(CUmemGenericAllocationHandle handle)
{
    COUNT(cuMemRelease);
    (void)close((int)(handle - 1));
    return CUDA_SUCCESS;
}

static CUresult fake_cuMemMap(CUdeviceptr where, size_t bytes, size_t offset,
                              CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    COUNT(cuMemMap);
    (void)flags;
    return memory_result(mmap(pointer(where), bytes, PROT_NONE, MAP_SHARED | MAP_FIXED,
                              (int)(handle - 1), (off_t)offset));
}

static CUresult fake_cuMemUnmap(CUdeviceptr where, size_t bytes)
{
    COUNT(cuMemUnmap);
    return memory_result(mmap(pointer(where), bytes, PROT_NONE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1,
                              0));
}

static CUresult fake_cuMemSetAccess(CUdeviceptr where, size_t bytes,
                                    const CUmemAccessDesc *access, size_t access_count)
{
    bool writable =
        access_count > 0 && access[0].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;

    COUNT(cuMemSetAccess);
    return mprotect(pointer(where), bytes, writable ? PROT_READ | PROT_WRITE : PROT_READ) ==
                   0
               ? CUDA_SUCCESS
               : CUDA_ERROR_INVALID_VALUE;
}

static CUresult fake_cuMemExportToShareableHandle(void *out,
                                                  CUmemGenericAllocationHandle handle,
                                                  CUmemAllocationHandleType type,
                                                  unsigned long long flags)
{
    int fd = fcntl((int)(handle - 1), F_DUPFD_CLOEXEC, 0);

    COUNT(cuMemExportToShareableHandle);
    (void)type;
    (void)flags;
    memcpy(out, &fd, sizeof(fd));
    return fd >= 0 ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
}

static CUresult fake_cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *out,
                                                    void *fd,
                                                    CUmemAllocationHandleType type)
{
    int own = fcntl((int)(uintptr_t)fd, F_DUPFD_CLOEXEC, 0);

    COUNT(cuMemImportFromShareableHandle);
    (void)type;
    *out = (unsigned)own + 1ull;
    return own >= 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

static CUresult fake_cuMemAlloc(CUdeviceptr *out, size_t bytes)
{
    void *at = malloc(bytes);

    COUNT(cuMemAlloc);
    *out = (CUdeviceptr)(uintptr_t)at;
    return at != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult fake_cuMemFree(CUdeviceptr at)
{
    COUNT(cuMemFree);
    free(pointer(at));
    return CUDA_SUCCESS;
}

static CUresult fake_cuMemHostAlloc(void **out, size_t bytes, unsigned flags)
{
    COUNT(cuMemHostAlloc);
    (void)flags;
    *out = malloc(bytes);
    return *out != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult fake_cuMemGetInfo(size_t *out_free, size_t *out_total)
{
    COUNT(cuMemGetInfo);
    *out_free  = DEVICE_BYTES / 2;
    *out_total = DEVICE_BYTES;
    return CUDA_SUCCESS;
}

static CUresult fake_cuMemHostRegister(void *at, size_t bytes, unsigned flags)
{
    COUNT(cuMemHostRegister);
    (void)at;
    (void)bytes;
    (void)flags;
    return CUDA_SUCCESS;
}

static CUresult fake_cuMemHostUnregister(void *at)
{
    COUNT(cuMemHostUnregister);
    (void)at;
    return CUDA_SUCCESS;
}

static CUresult fake_cuMemHostGetDevicePointer(CUdeviceptr *out, void *at, unsigned flags)
{
    COUNT(cuMemHostGetDevicePointer);
    (void)flags;
    *out = (CUdeviceptr)(uintptr_t)at;
    return CUDA_SUCCESS;
}

/* ------------------------------------------------------------------------------------------------ work */

static struct fake_stream *stream_of(CUstream stream)
{
    return (struct fake_stream *)(void *)stream;
}

static struct fake_event *event_of(CUevent event)
{
    return (struct fake_event *)(void *)event;
}

/* Nodes of a graph are called by their place in it, from 1 on. */
static CUgraphNode node_at(size_t place)
{
    return (CUgraphNode)(void *)(uintptr_t)(place + 1);
}

/* Into the stream, or into what it is captured into. */
static CUresult put(CUstream to, const struct fake_op *op)
{
    struct fake_stream *stream = stream_of(to);

    fake_lock();
    if (stream->capture != NULL) {
        fake_ops_push(&stream->capture->ops, op);
        stream->last = node_at(stream->capture->ops.count - 1);
    } else {
        fake_enqueue(stream, op);
    }
    fake_unlock();
    return CUDA_SUCCESS;
}

static CUresult put_bytes(CUstream to, uint64_t dst, uint64_t src, size_t bytes)
{
    struct fake_op op = {.kind = FAKE_COPY};

    op.copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
    op.copy.srcDevice     = src;
    op.copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    op.copy.dstDevice     = dst;
    op.copy.WidthInBytes  = bytes;
    op.copy.Height        = 1;
    op.copy.Depth         = 1;
    return put(to, &op);
}

static CUresult fake_cuMemcpyDtoDAsync(CUdeviceptr dst, CUdeviceptr src, size_t bytes,
                                       CUstream stream)
{
    COUNT(cuMemcpyDtoDAsync);
    return put_bytes(stream, dst, src, bytes);
}

static CUresult fake_cuMemcpyHtoDAsync(CUdeviceptr dst, const void *src, size_t bytes,
                                       CUstream stream)
{
    COUNT(cuMemcpyHtoDAsync);
    return put_bytes(stream, dst, (uintptr_t)src, bytes);
}

static CUresult fake_cuMemcpyDtoHAsync(void *dst, CUdeviceptr src, size_t bytes,
                                       CUstream stream)
{
    COUNT(cuMemcpyDtoHAsync);
    return put_bytes(stream, (uintptr_t)dst, src, bytes);
}

static CUresult fake_cuMemcpyPeerAsync(CUdeviceptr dst, CUcontext to, CUdeviceptr src,
                                       CUcontext from, size_t bytes, CUstream stream)
{
    COUNT(cuMemcpyPeerAsync);
    (void)to;
    (void)from;
    return put_bytes(stream, dst, src, bytes);
}

static CUresult fake_cuMemcpy2DAsync(const CUDA_MEMCPY2D *copy, CUstream stream)
{
    struct fake_op op = {.kind = FAKE_COPY};

    COUNT(cuMemcpy2DAsync);
    op.copy.srcMemoryType = copy->srcMemoryType;
    op.copy.srcHost       = copy->srcHost;
    op.copy.srcDevice     = copy->srcDevice;
    op.copy.srcPitch      = copy->srcPitch;
    op.copy.dstMemoryType = copy->dstMemoryType;
    op.copy.dstHost       = copy->dstHost;
    op.copy.dstDevice     = copy->dstDevice;
    op.copy.dstPitch      = copy->dstPitch;
    op.copy.WidthInBytes  = copy->WidthInBytes;
    op.copy.Height        = copy->Height;
    op.copy.Depth         = 1;
    return put(stream, &op);
}

static CUresult fake_cuMemcpy3DAsync(const CUDA_MEMCPY3D *copy, CUstream stream)
{
    const struct fake_op op = {.kind = FAKE_COPY, .copy = *copy};

    COUNT(cuMemcpy3DAsync);
    return put(stream, &op);
}

static CUresult fake_cuMemsetD8Async(CUdeviceptr dst, unsigned char value, size_t bytes,
                                     CUstream stream)
{
    const struct fake_op op = {.kind = FAKE_SET,
                               .word = {.at = dst, .value = value, .bytes = bytes}};

    COUNT(cuMemsetD8Async);
    return put(stream, &op);
}

static CUresult fake_cuStreamWriteValue64(CUstream stream, CUdeviceptr at, cuuint64_t value,
                                          unsigned flags)
{
    const struct fake_op op = {.kind = FAKE_WRITE, .word = {.at = at, .value = value}};

    COUNT(cuStreamWriteValue64);
    (void)flags;
    return put(stream, &op);
}

static CUresult fake_cuStreamWaitValue64(CUstream stream, CUdeviceptr at, cuuint64_t value,
                                         unsigned flags)
{
    const struct fake_op op = {.kind = FAKE_WAIT, .word = {.at = at, .value = value}};

    COUNT(cuStreamWaitValue64);
    (void)flags;
    return put(stream, &op);
}

static CUresult fake_cuLaunchHostFunc(CUstream stream, CUhostFn fn, void *user)
{
    const struct fake_op op = {.kind = FAKE_HOST, .host = {.fn = fn, .user = user}};

    COUNT(cuLaunchHostFunc);
    return put(stream, &op);
}

/* ------------------------------------------------------------------------------------------------ streams */

static CUresult fake_cuStreamCreateWithPriority(CUstream *out, unsigned flags, int priority)
{
    struct fake_stream *stream = calloc(1, sizeof(*stream));

    COUNT(cuStreamCreateWithPriority);
    (void)flags;
    (void)priority;
    if (stream == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    fake_lock();
    fake_stream_add(stream);
    fake_unlock();
    *out = (CUstream)(void *)stream;
    return CUDA_SUCCESS;
}

static CUresult fake_cuStreamDestroy(CUstream stream)
{
    COUNT(cuStreamDestroy);
    fake_sync(stream_of(stream));
    fake_lock();
    fake_stream_remove(stream_of(stream));
    fake_unlock();
    free(stream_of(stream)->ops.items);
    free(stream_of(stream));
    return CUDA_SUCCESS;
}

static CUresult fake_cuStreamQuery(CUstream stream)
{
    bool busy;

    COUNT(cuStreamQuery);
    fake_lock();
    busy = stream_of(stream)->ops.count > 0 || stream_of(stream)->busy_until_ns != 0;
    fake_unlock();
    return busy ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

static CUresult fake_cuStreamSynchronize(CUstream stream)
{
    COUNT(cuStreamSynchronize);
    fake_sync(stream_of(stream));
    return CUDA_SUCCESS;
}

/* ------------------------------------------------------------------------------------------------ events */

static CUresult fake_cuEventCreate(CUevent *out, unsigned flags)
{
    struct fake_event *event = calloc(1, sizeof(*event));

    COUNT(cuEventCreate);
    (void)flags;
    *out = (CUevent)(void *)event;
    return event != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult fake_cuEventDestroy(CUevent event)
{
    COUNT(cuEventDestroy);
    fake_lock();
    event_of(event)->destroyed = true;
    event_of(event)->pending++; /* of this call */
    fake_event_unref(event_of(event));
    fake_unlock();
    return CUDA_SUCCESS;
}

static CUresult fake_cuEventRecord(CUevent event, CUstream stream)
{
    struct fake_event *it    = event_of(event);
    struct fake_stream *mine = stream_of(stream);

    COUNT(cuEventRecord);
    fake_lock();
    it->capture = mine->capture != NULL ? mine->capture->capture : 0;
    if (it->capture == 0) {
        const struct fake_op op = {.kind = FAKE_RECORD,
                                   .mark = {.event = it, .ticket = ++it->recorded}};

        it->pending++;
        fake_enqueue(mine, &op);
    }
    fake_unlock();
    return CUDA_SUCCESS;
}

/* The graph that is captured under this number; NULL: that is over. */
static struct fake_graph *captured(uint64_t capture)
{
    for (struct fake_stream *stream = fake_streams(); stream != NULL;
         stream                     = stream->next) {
        if (stream->capture != NULL && stream->capture->capture == capture) {
            return stream->capture;
        }
    }
    return NULL;
}

static CUresult fake_cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags)
{
    struct fake_event *it    = event_of(event);
    struct fake_stream *mine = stream_of(stream);
    CUresult result          = CUDA_SUCCESS;

    COUNT(cuStreamWaitEvent);
    (void)flags;
    fake_lock();
    if (it->capture !=
        0) { /* the order of calls is one of the orders that the graph allows */
        mine->capture = captured(it->capture);
        result = mine->capture != NULL ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    } else if (it->done < it->recorded) {
        const struct fake_op op = {.kind = FAKE_AFTER,
                                   .mark = {.event = it, .ticket = it->recorded}};

        it->pending++;
        fake_enqueue(mine, &op);
    }
    fake_unlock();
    return result;
}

static CUresult fake_cuEventQuery(CUevent event)
{
    bool done;

    COUNT(cuEventQuery);
    fake_lock();
    done = event_of(event)->done == event_of(event)->recorded;
    fake_unlock();
    return done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

static CUresult fake_cuEventElapsedTime(float *out_ms, CUevent begin, CUevent end)
{
    COUNT(cuEventElapsedTime);
    fake_lock();
    *out_ms = (float)(event_of(end)->done_ns - event_of(begin)->done_ns) * 1e-6f;
    fake_unlock();
    return CUDA_SUCCESS;
}

static CUresult fake_cuIpcGetEventHandle(CUipcEventHandle *out, CUevent event)
{
    COUNT(cuIpcGetEventHandle);
    (void)out;
    (void)event;
    return CUDA_ERROR_NOT_SUPPORTED;
}

static CUresult fake_cuIpcOpenEventHandle(CUevent *out, CUipcEventHandle handle)
{
    COUNT(cuIpcOpenEventHandle);
    (void)out;
    (void)handle;
    return CUDA_ERROR_NOT_SUPPORTED;
}

/* ------------------------------------------------------------------------------------------------ code */

struct fake_module {
    struct fake_function *functions;
};

static CUresult fake_cuModuleLoadDataEx(CUmodule *out, const void *image, unsigned count_,
                                        CUjit_option *options, void **values)
{
    struct fake_module *module = calloc(1, sizeof(*module));

    COUNT(cuModuleLoadDataEx);
    (void)image;
    (void)count_;
    (void)options;
    (void)values;
    *out = (CUmodule)(void *)module;
    return module != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult fake_cuModuleUnload(CUmodule module)
{
    struct fake_function *function = ((struct fake_module *)(void *)module)->functions;

    COUNT(cuModuleUnload);
    while (function != NULL) {
        struct fake_function *next = function->next;

        free(function);
        function = next;
    }
    free(module);
    return CUDA_SUCCESS;
}

static CUresult fake_cuModuleGetFunction(CUfunction *out, CUmodule module, const char *name)
{
    struct fake_module *of         = (struct fake_module *)(void *)module;
    struct fake_function *function = calloc(1, sizeof(*function));

    COUNT(cuModuleGetFunction);
    if (function == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    function->counts = strcmp(name, "chain_link") == 0;
    function->next   = of->functions;
    of->functions    = function;
    *out             = (CUfunction)(void *)function;
    return CUDA_SUCCESS;
}

static CUresult fake_cuModuleGetLoadingMode(CUmoduleLoadingMode *out)
{
    COUNT(cuModuleGetLoadingMode);
    *out = CU_MODULE_EAGER_LOADING;
    return CUDA_SUCCESS;
}

static CUresult fake_cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute,
                                        int value)
{
    COUNT(cuFuncSetAttribute);
    (void)function;
    (void)attribute;
    (void)value;
    return CUDA_SUCCESS;
}

static CUresult fake_cuFuncGetAttribute(int *out, CUfunction_attribute attribute,
                                        CUfunction function)
{
    COUNT(cuFuncGetAttribute);
    (void)function;
    *out = attribute == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? 1024 : 0;
    return CUDA_SUCCESS;
}

static CUresult fake_cuOccupancyMaxPotentialBlockSize(int *out_grid, int *out_block,
                                                      CUfunction function,
                                                      CUoccupancyB2DSize shared_of,
                                                      size_t shared, int limit)
{
    COUNT(cuOccupancyMaxPotentialBlockSize);
    (void)function;
    (void)shared_of;
    (void)shared;
    (void)limit;
    *out_grid  = 132;
    *out_block = 256;
    return CUDA_SUCCESS;
}

static struct fake_op kernel_op(CUfunction f, void *const *params)
{
    struct fake_op op = {.kind = FAKE_KERNEL};

    op.kernel.function = (const struct fake_function *)(const void *)f;
    if (op.kernel.function->counts) { /* chain_link(float *x, i64 n, i64 cycles) */
        memcpy(&op.kernel.x, params[0], sizeof(op.kernel.x));
        memcpy(&op.kernel.n, params[1], sizeof(op.kernel.n));
    }
    return op;
}

static CUresult fake_cuLaunchKernel(CUfunction f, unsigned grid_x, unsigned grid_y,
                                    unsigned grid_z, unsigned block_x, unsigned block_y,
                                    unsigned block_z, unsigned shared, CUstream stream,
                                    void **params, void **extra)
{
    const struct fake_op op = kernel_op(f, params);

    COUNT(cuLaunchKernel);
    (void)grid_x;
    (void)grid_y;
    (void)grid_z;
    (void)block_x;
    (void)block_y;
    (void)block_z;
    (void)shared;
    (void)extra;
    return put(stream, &op);
}

static CUresult fake_cuLaunchCooperativeKernel(CUfunction f, unsigned grid_x,
                                               unsigned grid_y, unsigned grid_z,
                                               unsigned block_x, unsigned block_y,
                                               unsigned block_z, unsigned shared,
                                               CUstream stream, void **params)
{
    const struct fake_op op = kernel_op(f, params);

    COUNT(cuLaunchCooperativeKernel);
    (void)grid_x;
    (void)grid_y;
    (void)grid_z;
    (void)block_x;
    (void)block_y;
    (void)block_z;
    (void)shared;
    return put(stream, &op);
}

/* ------------------------------------------------------------------------------------------------ graphs */

static struct fake_graph *graph_of(CUgraph graph)
{
    return (struct fake_graph *)(void *)graph;
}

static struct fake_exec *exec_of(CUgraphExec exec)
{
    return (struct fake_exec *)(void *)exec;
}

static CUresult fake_cuStreamBeginCapture(CUstream stream, CUstreamCaptureMode mode)
{
    static uint64_t captures;
    struct fake_graph *graph = calloc(1, sizeof(*graph));

    COUNT(cuStreamBeginCapture);
    (void)mode;
    if (graph == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    fake_lock();
    graph->capture             = ++captures;
    stream_of(stream)->capture = graph;
    stream_of(stream)->last    = NULL;
    fake_unlock();
    return CUDA_SUCCESS;
}

static CUresult fake_cuStreamEndCapture(CUstream stream, CUgraph *out)
{
    struct fake_graph *graph;

    COUNT(cuStreamEndCapture);
    fake_lock();
    graph = stream_of(stream)->capture;
    for (struct fake_stream *other = fake_streams(); other != NULL; other = other->next) {
        if (graph != NULL && other->capture == graph) {
            other->capture = NULL;
            other->last    = NULL;
        }
    }
    fake_unlock();
    *out = (CUgraph)(void *)graph;
    return graph != NULL ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_STATE;
}

static CUresult fake_cuStreamGetCaptureInfo(CUstream stream,
                                            CUstreamCaptureStatus *out_status,
                                            cuuint64_t *out_id, CUgraph *out_graph,
                                            const CUgraphNode **out_last,
                                            size_t *out_last_count)
{
    struct fake_stream *mine = stream_of(stream);

    COUNT(cuStreamGetCaptureInfo);
    fake_lock();
    *out_status = mine->capture != NULL ? CU_STREAM_CAPTURE_STATUS_ACTIVE
                                        : CU_STREAM_CAPTURE_STATUS_NONE;
    if (out_id != NULL && mine->capture != NULL) {
        *out_id = mine->capture->capture;
    }
    *out_graph      = (CUgraph)(void *)mine->capture;
    *out_last       = &mine->last;
    *out_last_count = mine->last != NULL;
    fake_unlock();
    return CUDA_SUCCESS;
}

static CUresult fake_cuGraphGetNodes(CUgraph graph, CUgraphNode *out, size_t *io_count)
{
    COUNT(cuGraphGetNodes);
    (void)out; /* nobody asks for them */
    *io_count = graph_of(graph)->ops.count;
    return CUDA_SUCCESS;
}

static CUresult fake_cuGraphInstantiateWithFlags(CUgraphExec *out, CUgraph graph,
                                                 unsigned long long flags)
{
    struct fake_exec *exec = calloc(1, sizeof(*exec));

    COUNT(cuGraphInstantiateWithFlags);
    (void)flags;
    if (exec == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    fake_ops_copy(&exec->ops, &graph_of(graph)->ops);
    *out = (CUgraphExec)(void *)exec;
    return CUDA_SUCCESS;
}

static CUresult fake_cuGraphExecUpdate(CUgraphExec exec, CUgraph graph,
                                       CUgraphExecUpdateResultInfo *out_info)
{
    struct fake_ops *mine         = &exec_of(exec)->ops;
    const struct fake_ops *theirs = &graph_of(graph)->ops;
    bool same                     = mine->count == theirs->count;

    COUNT(cuGraphExecUpdate);
    (void)out_info;
    for (size_t i = 0; same && i < mine->count; i++) {
        same = mine->items[i].kind == theirs->items[i].kind;
    }
    if (!same) {
        return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
    }
    fake_lock();
    if (mine->count > 0) {
        memcpy(mine->items, theirs->items, mine->count * sizeof(*mine->items));
    }
    fake_unlock();
    return CUDA_SUCCESS;
}

static CUresult fake_cuGraphExecKernelNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                                    const CUDA_KERNEL_NODE_PARAMS *params)
{
    COUNT(cuGraphExecKernelNodeSetParams);
    fake_lock();
    exec_of(exec)->ops.items[(uintptr_t)node - 1] =
        kernel_op(params->func, params->kernelParams);
    fake_unlock();
    return CUDA_SUCCESS;
}

/* What is changed afterwards is for the next launch. */
static CUresult fake_cuGraphLaunch(CUgraphExec exec, CUstream stream)
{
    struct fake_exec *launched = calloc(1, sizeof(*launched));
    const struct fake_op op    = {.kind = FAKE_GRAPH, .exec = launched};

    COUNT(cuGraphLaunch);
    if (launched == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    fake_ops_copy(&launched->ops, &exec_of(exec)->ops);
    return put(stream, &op);
}

static CUresult fake_cuGraphExecDestroy(CUgraphExec exec)
{
    COUNT(cuGraphExecDestroy);
    fake_exec_destroy(exec_of(exec));
    return CUDA_SUCCESS;
}

static CUresult fake_cuGraphDestroy(CUgraph graph)
{
    COUNT(cuGraphDestroy);
    free(graph_of(graph)->ops.items);
    free(graph_of(graph));
    return CUDA_SUCCESS;
}

/* ------------------------------------------------------------------------------------------------ what is exported */

EXPORT CUresult cuGetProcAddress_v2(const char *symbol, void **out, int version,
                                    cuuint64_t flags,
                                    CUdriverProcAddressQueryResult *out_found);
EXPORT CUresult cuGetProcAddress_v2(const char *symbol, void **out, int version,
                                    cuuint64_t flags,
                                    CUdriverProcAddressQueryResult *out_found)
{
    static void (*const functions[CALLS])(void) = {
#define XX(name) (void (*)(void)) fake_##name,
        DEVICE_CUDA_FUNCTIONS(XX)
#undef XX
            (void (*)(void)) fake_cuStreamGetCaptureInfo,
    };

    (void)version;
    (void)flags;
    for (size_t i = 0; i < CALLS; i++) {
        if (strcmp(names[i], symbol) == 0) {
            memcpy(out, &functions[i],
                   sizeof(*out)); /* ISO C has no cast from function to data */
            *out_found = CU_GET_PROC_ADDRESS_SUCCESS;
            return CUDA_SUCCESS;
        }
    }
    *out       = NULL;
    *out_found = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    return CUDA_ERROR_NOT_FOUND;
}
