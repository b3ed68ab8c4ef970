/*
 * A driver without a GPU, over memory of the host: devices, contexts, how often each call was made,
 * and what is exported. What a call is not asked to check (wrong handles, a context of another
 * device) it does not check.
 */
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "tests/harness/gpu/fake_calls.h"

#define EXPORT __attribute__((visibility("default")))

/* ----------------------------------------------------------------------------- counting */

static const char *const names[FAKE_CALLS] = {
#define XX(name) #name,
    DEVICE_CUDA_FUNCTIONS(XX)
#undef XX
        "cuStreamGetCaptureInfo",
    "blocked",
    "early",
    "refused",
    "far",
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

/* ------------------------------------------------------------------------------ devices */

/*
 * GPUs 0 .. FAKE_CUDA_DEVICES - 1, or with FAKE_CUDA_MIG=1 as many MIG devices.
 * CUDA_VISIBLE_DEVICES as the driver takes it: numbers and names (a name may be cut short), up to
 * the first that is not there or was named before; and of MIG devices the first alone. A handle is
 * the number of its GPU.
 */
static int shown[FAKE_DEVICES_MAX];
static int shown_count;

#define MPS_ENABLED 133 /* CUDA 12.0 has no name for it */

static int number_from(const char *variable, int otherwise)
{
    const char *text = getenv(variable);

    return text != NULL ? atoi(text) : otherwise;
}

static int gpu_count(void)
{
    int wanted = number_from("FAKE_CUDA_DEVICES", 1);

    return wanted < FAKE_DEVICES_MAX ? wanted : FAKE_DEVICES_MAX;
}

static bool is_mig(void)
{
    return number_from("FAKE_CUDA_MIG", 0) != 0;
}

/* "GPU-40404040-4040-4040-4040-404040404040", by cuDeviceGetUuid(). */
static void name_of(int gpu, char name[48])
{
    unsigned byte = 0x40u + (unsigned)gpu;
    char *at      = name + snprintf(name, 48, is_mig() ? "MIG-" : "GPU-");

    for (int i = 0; i < 16; i++) {
        at +=
            snprintf(at, 4, i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x", byte);
    }
}

/* -1: there is none. */
static int gpu_named(const char *entry, size_t length)
{
    char name[48], *end;
    long number = strtol(entry, &end, 10);

    if (end != entry) {
        return number >= 0 && number < gpu_count() && !is_mig() ? (int)number : -1;
    }
    for (int gpu = 0; gpu < gpu_count(); gpu++) {
        name_of(gpu, name);
        if (length > 4 && strncmp(entry, name, length) == 0) {
            return gpu;
        }
    }
    return -1;
}

static void look_at_visible(void)
{
    const char *list = getenv("CUDA_VISIBLE_DEVICES");
    int most         = is_mig() ? 1 : FAKE_DEVICES_MAX;

    if (list == NULL) {
        while (shown_count < gpu_count() && shown_count < most) {
            shown[shown_count] = shown_count;
            shown_count++;
        }
        return;
    }
    while (shown_count < most) {
        size_t length = strcspn(list, ",");
        int gpu       = length > 0 ? gpu_named(list, length) : -1;

        for (int i = 0; i < shown_count; i++) {
            gpu = shown[i] == gpu ? -1 : gpu;
        }
        if (gpu < 0) {
            return;
        }
        shown[shown_count++] = gpu;
        if (list[length] == '\0') {
            return;
        }
        list += length + 1;
    }
}

CUresult fake_cuInit(unsigned flags)
{
    static bool begun;

    (void)flags;
    calls_open();
    COUNT(cuInit);
    if (!begun) {
        look_at_visible();
    }
    begun = true;
    return shown_count > 0 ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
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
    *out = shown_count;
    return CUDA_SUCCESS;
}

CUresult fake_cuDeviceGet(CUdevice *out, int ordinal)
{
    COUNT(cuDeviceGet);
    if (ordinal < 0 || ordinal >= shown_count) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    *out = shown[ordinal];
    return CUDA_SUCCESS;
}

CUresult fake_cuDeviceGetName(char *out, int bytes, CUdevice device)
{
    COUNT(cuDeviceGetName);
    (void)snprintf(out, (size_t)bytes, is_mig() ? "fake %d MIG 1g.10gb" : "fake %d",
                   device);
    return CUDA_SUCCESS;
}

CUresult fake_cuDeviceGetUuid(CUuuid *out, CUdevice device)
{
    COUNT(cuDeviceGetUuid);
    memset(out, 0x40 + device, sizeof(*out));
    return CUDA_SUCCESS;
}

/* FAKE_CUDA_LARGE: they say that they have 128 GiB. */
CUresult fake_cuDeviceTotalMem(size_t *out, CUdevice device)
{
    COUNT(cuDeviceTotalMem);
    (void)device;
    *out = getenv("FAKE_CUDA_LARGE") != NULL ? (size_t)128 << 30 : FAKE_DEVICE_BYTES;
    return CUDA_SUCCESS;
}

/* FAKE_CUDA_MODES: a digit a GPU, as nvidia-smi counts them; DEFAULT otherwise. */
static int mode_of(CUdevice device)
{
    const char *modes = getenv("FAKE_CUDA_MODES");

    return modes != NULL && strlen(modes) > (size_t)device ? modes[device] - '0'
                                                           : CU_COMPUTEMODE_DEFAULT;
}

CUresult fake_cuDeviceGetAttribute(int *out, CUdevice_attribute attribute, CUdevice device)
{
    COUNT(cuDeviceGetAttribute);
    switch ((int)attribute) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_MODE:
        *out = mode_of(device);
        break;
    case MPS_ENABLED:
        *out = number_from("FAKE_CUDA_MPS", 0);
        break;
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
    *out = device != peer && !is_mig();
    return CUDA_SUCCESS;
}

/* ----------------------------------------------------------------------------- contexts */

static _Thread_local CUcontext current;

/*
 * As long as this process lives, and whoever in FAKE_CUDA_FOLDER had a file of that name locked
 * does not any more.
 */
static bool alone_on(CUdevice device)
{
    static int held[FAKE_DEVICES_MAX];
    const char *folder = getenv("FAKE_CUDA_FOLDER");
    char path[512];
    int fd;

    if (folder == NULL || held[device] != 0) {
        return true;
    }
    (void)snprintf(path, sizeof(path), "%s/gpu%d", folder, device);
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) != 0) {
        if (fd >= 0) {
            (void)close(fd);
        }
        return false;
    }
    held[device] = 1; /* the file stays open */
    return true;
}

static char contexts[FAKE_DEVICES_MAX];
static _Atomic int first_device = -1;

bool fake_device_is_far(int device)
{
    return first_device >= 0 && device != first_device;
}

void fake_far_wait(int device)
{
    const struct timespec slow = {.tv_nsec = 10000000};

    if (fake_device_is_far(device) && getenv("FAKE_CUDA_SLOW") != NULL) {
        (void)nanosleep(&slow, NULL);
    }
}

int fake_device_current(void)
{
    return current != NULL ? (int)((const char *)(const void *)current - contexts) : 0;
}

CUresult fake_cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice device)
{
    COUNT(cuDevicePrimaryCtxRetain);
    if (mode_of(device) == CU_COMPUTEMODE_EXCLUSIVE_PROCESS && !alone_on(device)) {
        COUNT(refused);
        return CUDA_ERROR_DEVICE_UNAVAILABLE;
    }
    if (first_device < 0) {
        first_device = device;
    }
    fake_far_wait(device);
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

/* --------------------------------------------------------------------- what is exported */

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
