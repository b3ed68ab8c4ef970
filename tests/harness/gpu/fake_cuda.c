/*
 * A driver without a GPU, over memory of the host: devices, contexts, how often each call was made, and what is exported. What a call is not asked to
 * check (wrong handles, a context of another device) it does not check.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/harness/gpu/fake_calls.h"

#define EXPORT __attribute__((visibility("default")))

/* ------------------------------------------------------------------------------------------------ counting */

static const char *const names[FAKE_CALLS] = {
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
    for (size_t i = 0; i < FAKE_CALLS; i++) { /* the same in each process */
        (void)snprintf(calls->functions[i].name, sizeof(calls->functions[i].name), "%s",
                       names[i]);
    }
}

void fake_count(enum fake_call call)
{
    if (calls != NULL) {
        (void)__atomic_fetch_add(&calls->functions[call].count, 1, __ATOMIC_RELAXED);
    }
}

/* ------------------------------------------------------------------------------------------------ devices */

static int count_devices(void)
{
    const char *text = getenv("FAKE_CUDA_DEVICES");
    int wanted       = text != NULL ? atoi(text) : 1;

    return wanted < FAKE_DEVICES_MAX ? wanted : FAKE_DEVICES_MAX;
}

CUresult fake_cuInit(unsigned flags)
{
    (void)flags;
    calls_open();
    COUNT(cuInit);
    return CUDA_SUCCESS;
}

CUresult fake_cuDriverGetVersion(int *out)
{
    COUNT(cuDriverGetVersion);
    *out = 13000;
    return CUDA_SUCCESS;
}

CUresult fake_cuGetErrorName(CUresult error, const char **out)
{
    COUNT(cuGetErrorName);
    (void)error;
    *out = "an error of the fake";
    return CUDA_SUCCESS;
}

CUresult fake_cuGetErrorString(CUresult error, const char **out)
{
    COUNT(cuGetErrorString);
    (void)error;
    *out = "no GPU is behind this driver";
    return CUDA_SUCCESS;
}

CUresult fake_cuDeviceGetCount(int *out)
{
    COUNT(cuDeviceGetCount);
    *out = count_devices();
    return CUDA_SUCCESS;
}

CUresult fake_cuDeviceGet(CUdevice *out, int ordinal)
{
    COUNT(cuDeviceGet);
    *out = ordinal;
    return ordinal < count_devices() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult fake_cuDeviceGetName(char *out, int bytes, CUdevice device)
{
    COUNT(cuDeviceGetName);
    (void)snprintf(out, (size_t)bytes, "fake %d", device);
    return CUDA_SUCCESS;
}

CUresult fake_cuDeviceGetUuid(CUuuid *out, CUdevice device)
{
    COUNT(cuDeviceGetUuid);
    memset(out, 0x40 + device, sizeof(*out));
    return CUDA_SUCCESS;
}

CUresult fake_cuDeviceTotalMem(size_t *out, CUdevice device)
{
    COUNT(cuDeviceTotalMem);
    (void)device;
    *out = FAKE_DEVICE_BYTES;
    return CUDA_SUCCESS;
}

CUresult fake_cuDeviceGetAttribute(int *out, CUdevice_attribute attribute, CUdevice device)
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

CUresult fake_cuDeviceGetPCIBusId(char *out, int bytes, CUdevice device)
{
    COUNT(cuDeviceGetPCIBusId);
    (void)snprintf(out, (size_t)bytes, "ffff:%02x:00.0", device);
    return CUDA_SUCCESS;
}

CUresult fake_cuDeviceCanAccessPeer(int *out, CUdevice device, CUdevice peer)
{
    COUNT(cuDeviceCanAccessPeer);
    *out = device != peer;
    return CUDA_SUCCESS;
}

/* ------------------------------------------------------------------------------------------------ contexts */

static _Thread_local CUcontext current;

CUresult fake_cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice device)
{
    static char contexts[FAKE_DEVICES_MAX];

    COUNT(cuDevicePrimaryCtxRetain);
    *out = (CUcontext)(void *)&contexts[device];
    return CUDA_SUCCESS;
}

CUresult fake_cuDevicePrimaryCtxRelease(CUdevice device)
{
    COUNT(cuDevicePrimaryCtxRelease);
    (void)device;
    return CUDA_SUCCESS;
}

CUresult fake_cuCtxGetCurrent(CUcontext *out)
{
    COUNT(cuCtxGetCurrent);
    *out = current;
    return CUDA_SUCCESS;
}

CUresult fake_cuCtxSetCurrent(CUcontext context)
{
    COUNT(cuCtxSetCurrent);
    current = context;
    return CUDA_SUCCESS;
}

CUresult fake_cuCtxGetStreamPriorityRange(int *out_low, int *out_high)
{
    COUNT(cuCtxGetStreamPriorityRange);
    *out_low  = 0;
    *out_high = -5;
    return CUDA_SUCCESS;
}

CUresult fake_cuCtxEnablePeerAccess(CUcontext context, unsigned flags)
{
    COUNT(cuCtxEnablePeerAccess);
    (void)context;
    (void)flags;
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
    static void (*const functions[FAKE_CALLS])(void) = {
#define XX(name) (void (*)(void)) fake_##name,
        DEVICE_CUDA_FUNCTIONS(XX)
#undef XX
            (void (*)(void)) fake_cuStreamGetCaptureInfo,
    };

    (void)version;
    (void)flags;
    for (size_t i = 0; i < FAKE_CALLS; i++) {
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
