/*
 * One GPU as several, or a few as more: a libcuda.so.1 in front of the driver's own, so that what
 * runs on several devices can be run, with real kernels, words and copies, where there are fewer.
 * Each part has a share of its GPU's memory; the multiprocessors belong to all parts of a GPU at
 * once, and what is a copy between two of them stays within it. So it shows that something is
 * right, and what it costs besides; never how fast so many GPUs are.
 *
 *   SPLIT_CUDA_DEVICES=4              parts, dealt in turns to all GPUs that the driver shows: of
 *                                     three on two, 0 and 2 are of the first one
 *   SPLIT_CUDA_DRIVER=/..libcuda.so.1 the driver's own; needed
 *   SPLIT_CUDA_CONNECTIONS=8          hardware queues of each process; 32 as ever without. The
 *                                     processes of one GPU share what it has
 *
 * Processes take turns on a GPU by the millisecond, unless NVIDIA's multi-process service runs
 * beside them. CUDA_VISIBLE_DEVICES counts GPUs and not parts. Libraries that find the driver by
 * themselves (cuBLAS) get the driver's own functions: contexts are real ones.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>

#include "base/base.h"
#include "device/cuda/driver.h"

#define EXPORT    __attribute__((visibility("default")))
#define PARTS_MAX 8

typedef CUresult (*get_address_fn)(const char *symbol, void **out, int version,
                                   cuuint64_t flags,
                                   CUdriverProcAddressQueryResult *out_found);

static struct device_cuda_driver real;

static int part_count(void)
{
    const char *text = getenv("SPLIT_CUDA_DEVICES");
    int wanted       = text != NULL ? atoi(text) : 1;

    return wanted < 1 ? 1 : wanted > PARTS_MAX ? PARTS_MAX : wanted;
}

static int gpu_count(void)
{
    int count = 0;

    return real.cuDeviceGetCount(&count) == CUDA_SUCCESS && count > 0 ? count : 1;
}

/* The GPU that this is a part of. */
static CUdevice whole(CUdevice part)
{
    CUdevice device = 0;

    return real.cuDeviceGet(&device, part % gpu_count()) == CUDA_SUCCESS ? device : 0;
}

/* Of a GPU, at the most. */
static size_t parts_of_one(void)
{
    return (size_t)((part_count() + gpu_count() - 1) / gpu_count());
}

/* ------------------------------------------------------------------------------ devices */

/* The driver reads it in cuInit. */
static CUresult split_cuInit(unsigned flags)
{
    const char *connections = getenv("SPLIT_CUDA_CONNECTIONS");

    if (connections != NULL && setenv("CUDA_DEVICE_MAX_CONNECTIONS", connections, 1) != 0) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return real.cuInit(flags);
}

static CUresult split_cuDeviceGetCount(int *out)
{
    CUresult result = real.cuDeviceGetCount(out);

    *out = result == CUDA_SUCCESS && *out > 0 ? part_count() : 0;
    return result;
}

static CUresult split_cuDeviceGet(CUdevice *out, int ordinal)
{
    if (ordinal < 0 || ordinal >= part_count()) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    *out = ordinal;
    return CUDA_SUCCESS;
}

static CUresult split_cuDeviceGetName(char *out, int bytes, CUdevice part)
{
    char name[128]  = "";
    CUresult result = real.cuDeviceGetName(name, sizeof(name), whole(part));

    (void)snprintf(out, (size_t)bytes, "%s, part %d of %d", name, part, part_count());
    return result;
}

static CUresult split_cuDeviceGetUuid(CUuuid *out, CUdevice part)
{
    CUresult result = real.cuDeviceGetUuid(out, whole(part));

    out->bytes[15] = (char)(out->bytes[15] ^ part);
    return result;
}

static CUresult split_cuDeviceTotalMem(size_t *out, CUdevice part)
{
    CUresult result = real.cuDeviceTotalMem(out, whole(part));

    *out /= parts_of_one();
    return result;
}

static CUresult split_cuDeviceGetAttribute(int *out, CUdevice_attribute attribute,
                                           CUdevice part)
{
    return real.cuDeviceGetAttribute(out, attribute, whole(part));
}

static CUresult split_cuDeviceGetPCIBusId(char *out, int bytes, CUdevice part)
{
    return real.cuDeviceGetPCIBusId(out, bytes, whole(part));
}

static CUresult split_cuDeviceCanAccessPeer(int *out, CUdevice part, CUdevice peer)
{
    if (whole(part) != whole(peer)) {
        return real.cuDeviceCanAccessPeer(out, whole(part), whole(peer));
    }
    *out = part != peer;
    return CUDA_SUCCESS;
}

/* ------------------------------------------------------------------ contexts and memory */

static CUresult split_cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice part)
{
    return real.cuDevicePrimaryCtxRetain(out, whole(part));
}

static CUresult split_cuDevicePrimaryCtxRelease(CUdevice part)
{
    return real.cuDevicePrimaryCtxRelease(whole(part));
}

/* As it is: whoever asked for it has told us where the driver's own is. */
static CUresult split_cuCtxGetCurrent(CUcontext *out)
{
    return real.cuCtxGetCurrent(out);
}

/*
 * All parts of a GPU that a process opens are one context, which the driver would refuse as its own
 * peer, and refuses the second time.
 */
static CUresult split_cuCtxEnablePeerAccess(CUcontext context, unsigned flags)
{
    CUcontext current = NULL;
    CUresult result   = real.cuCtxGetCurrent(&current);

    if (result == CUDA_SUCCESS && current != context) {
        result = real.cuCtxEnablePeerAccess(context, flags);
    }
    return result == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED ? CUDA_SUCCESS : result;
}

static CUmemAllocationProp on_whole(const CUmemAllocationProp *properties)
{
    CUmemAllocationProp changed = *properties;

    if (changed.location.type == CU_MEM_LOCATION_TYPE_DEVICE) {
        changed.location.id = whole(changed.location.id);
    }
    return changed;
}

static CUresult split_cuMemGetAllocationGranularity(size_t *out,
                                                    const CUmemAllocationProp *properties,
                                                    CUmemAllocationGranularity_flags flags)
{
    const CUmemAllocationProp changed = on_whole(properties);

    return real.cuMemGetAllocationGranularity(out, &changed, flags);
}

static CUresult split_cuMemCreate(CUmemGenericAllocationHandle *out, size_t bytes,
                                  const CUmemAllocationProp *properties,
                                  unsigned long long flags)
{
    const CUmemAllocationProp changed = on_whole(properties);

    return real.cuMemCreate(out, bytes, &changed, flags);
}

static CUresult split_cuMemSetAccess(CUdeviceptr at, size_t bytes,
                                     const CUmemAccessDesc *access, size_t count)
{
    CUresult result = CUDA_SUCCESS;

    for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++) {
        CUmemAccessDesc changed = access[i];

        if (changed.location.type == CU_MEM_LOCATION_TYPE_DEVICE) {
            changed.location.id = whole(changed.location.id);
        }
        result = real.cuMemSetAccess(at, bytes, &changed, 1);
    }
    return result;
}

static CUresult split_cuMemGetInfo(size_t *out_free, size_t *out_total)
{
    CUresult result = real.cuMemGetInfo(out_free, out_total);

    *out_free /= parts_of_one();
    *out_total /= parts_of_one();
    return result;
}

/* --------------------------------------------------------------------- what is exported */

#define SPLIT_FUNCTIONS(XX)           \
    XX(cuInit)                        \
    XX(cuDeviceGetCount)              \
    XX(cuDeviceGet)                   \
    XX(cuDeviceGetName)               \
    XX(cuDeviceGetUuid)               \
    XX(cuDeviceTotalMem)              \
    XX(cuDeviceGetAttribute)          \
    XX(cuDeviceGetPCIBusId)           \
    XX(cuDeviceCanAccessPeer)         \
    XX(cuDevicePrimaryCtxRetain)      \
    XX(cuDevicePrimaryCtxRelease)     \
    XX(cuCtxEnablePeerAccess)         \
    XX(cuCtxGetCurrent)               \
    XX(cuMemGetAllocationGranularity) \
    XX(cuMemCreate)                   \
    XX(cuMemSetAccess)                \
    XX(cuMemGetInfo)

static const struct {
    const char *name;
    void (*function)(void);
    size_t offset; /* of the driver's own in `real` */
} functions[] = {
#define XX(name) \
    {#name, (void (*)(void))split_##name, offsetof(struct device_cuda_driver, name)},
    SPLIT_FUNCTIONS(XX)
#undef XX
};

static get_address_fn driver_open(void)
{
    static get_address_fn opened;
    const char *path = getenv("SPLIT_CUDA_DRIVER");
    void *library    = NULL;

    if (opened != NULL) {
        return opened;
    }
    if (path != NULL) {
        library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    }
    if (library == NULL) {
        fprintf(stderr,
                "split cuda: SPLIT_CUDA_DRIVER must name the driver's libcuda.so.1: %s\n",
                path != NULL ? dlerror() : "it is not set");
        return NULL;
    }
    /* ISO C has no cast from data to function */
    *(void **)&opened = dlsym(library, "cuGetProcAddress_v2");
    return opened;
}

/*
 * Of libraries that are not ours the caller's address is in a shared object: all of Plasmon's is in
 * the program.
 */
static bool asked_by_a_library(const void *caller)
{
    Dl_info of, program;

    return dladdr(caller, &of) != 0 && dladdr((void *)getauxval(AT_ENTRY), &program) != 0 &&
           of.dli_fbase != program.dli_fbase;
}

EXPORT CUresult cuGetProcAddress_v2(const char *symbol, void **out, int version,
                                    cuuint64_t flags,
                                    CUdriverProcAddressQueryResult *out_found);
EXPORT CUresult cuGetProcAddress_v2(const char *symbol, void **out, int version,
                                    cuuint64_t flags,
                                    CUdriverProcAddressQueryResult *out_found)
{
    get_address_fn driver = driver_open();
    CUresult result;

    if (driver == NULL) {
        return CUDA_ERROR_SHARED_OBJECT_INIT_FAILED;
    }
    result = driver(symbol, out, version, flags, out_found);
    if (result != CUDA_SUCCESS || asked_by_a_library(__builtin_return_address(0))) {
        return result;
    }
    for (size_t i = 0; i < PL_COUNT(functions); i++) {
        if (strcmp(functions[i].name, symbol) == 0) {
            memcpy((char *)&real + functions[i].offset, out, sizeof(*out));
            memcpy(out, &functions[i].function, sizeof(*out));
        }
    }
    return result;
}
