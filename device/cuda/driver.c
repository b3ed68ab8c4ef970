/*
 * Loading the driver and naming its errors.
 *
 * Nothing is linked: libcuda.so.1 comes with the driver and is on no machine without a GPU, so it
 * is opened when the first CUDA device is asked for, once a process, and never closed (it has
 * threads of its own). The environment that decides how it behaves is set just before cuInit, over
 * whatever was there:
 *
 *   CUDA_DEVICE_MAX_CONNECTIONS=32  streams that wait for timelines share few hardware queues with
 *                                   others (with the default of 8, 8 waiting streams stop every
 *                                   kernel)
 *   CUDA_DEVICE_MAX_COPY_CONNECTIONS=8  of each engine that copies so many queues: no more of a
 *                                   worker's streams copy by one engine. There would be 32 of each,
 *                                   too, and a context would take twice as long (docs/transfers.md)
 *   CUDA_MODULE_LOADING=EAGER       a first launch under lazy loading blocks while any stream waits
 *   NCCL_NVLS_ENABLE=0              NVLink multicast is off
 *
 * After a fork() in a process that has loaded the driver, the child cannot use it; CUDA answers
 * each call with an error.
 */
#include "device/cuda/cuda_int.h"

#include "base/log.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* what we ask functions of; also the oldest driver that will do */
#define CUDA_ABI_VERSION 12000

struct device_cuda_driver device_cuda_driver;
_Thread_local uint64_t device_cuda_call_begin_ns;

static _Thread_local char last_error[300];

static pthread_once_t load_once = PTHREAD_ONCE_INIT;
static uint32_t load_count;      /* devices; written in load_once only, like the next */
static struct pl_err load_error; /* why there are none */

struct function {
    const char *name;
    size_t offset; /* in struct device_cuda_driver */
};

static const struct function functions[] = {
#define XX(name) {#name, offsetof(struct device_cuda_driver, name)},
    DEVICE_CUDA_FUNCTIONS(XX)
#undef XX
        {"cuStreamGetCaptureInfo", offsetof(struct device_cuda_driver, capture_info)},
};

/* The type of cuGetProcAddress since CUDA 12.0, under the name that the library exports it by. */
typedef CUresult (*get_address_fn)(const char *symbol, void **out_function, int version,
                                   cuuint64_t flags,
                                   CUdriverProcAddressQueryResult *out_status);

/* Which it is says the one function that every driver has. */
static plasmon_status_t too_old(void *library, const char *missing)
{
    CUresult (*get_version)(int *) = NULL;
    void *symbol                   = dlsym(library, "cuDriverGetVersion");
    int version                    = 0;
    char text[32]                  = "an older one";

    memcpy(&get_version, &symbol, sizeof(symbol));
    if (get_version != NULL && get_version(&version) == CUDA_SUCCESS && version > 0) {
        (void)snprintf(text, sizeof(text), "CUDA %d.%d", version / 1000,
                       version % 1000 / 10);
    }
    return pl_err_set(&load_error, PLASMON_EVERSION,
                      "the NVIDIA driver is for %s and has no %s: install one for CUDA "
                      "12.0 or newer (525 or newer)",
                      text, missing);
}

static plasmon_status_t functions_load(void *library)
{
    get_address_fn get_address;
    void *symbol = dlsym(library, "cuGetProcAddress_v2");

    if (symbol == NULL) {
        return too_old(library, "cuGetProcAddress_v2");
    }
    memcpy(&get_address, &symbol,
           sizeof(symbol)); /* ISO C has no cast from data to function */

    for (size_t i = 0; i < PL_COUNT(functions); i++) {
        void *function = NULL;
        CUdriverProcAddressQueryResult found;
        CUresult result = get_address(functions[i].name, &function, CUDA_ABI_VERSION,
                                      CU_GET_PROC_ADDRESS_DEFAULT, &found);

        if (result != CUDA_SUCCESS || function == NULL) {
            return too_old(library, functions[i].name);
        }
        memcpy((char *)&device_cuda_driver + functions[i].offset, &function,
               sizeof(function));
    }
    return PLASMON_OK;
}

static plasmon_status_t environment_set(void)
{
    static const char *const settings[][2] = {
        {"CUDA_DEVICE_MAX_CONNECTIONS", "32"},
        {"CUDA_DEVICE_MAX_COPY_CONNECTIONS", "8"},
        {"CUDA_MODULE_LOADING", "EAGER"},
        {"NCCL_NVLS_ENABLE", "0"},
    };

    for (size_t i = 0; i < PL_COUNT(settings); i++) {
        if (setenv(settings[i][0], settings[i][1], 1) != 0) {
            return pl_err_set(&load_error, PLASMON_ENOMEM, "cannot set %s", settings[i][0]);
        }
    }
    return PLASMON_OK;
}

static void words_of(CUresult result, const char **out_name, const char **out_text)
{
    /* An error that the driver does not know gives NULL. */
    if (device_cuda_driver.cuGetErrorName(result, out_name) != CUDA_SUCCESS ||
        *out_name == NULL) {
        *out_name = "unknown error";
    }
    if (device_cuda_driver.cuGetErrorString(result, out_text) != CUDA_SUCCESS ||
        *out_text == NULL) {
        *out_text = "the driver has no words for it";
    }
}

/* What a driver that does not start means for whoever runs us .. */
static plasmon_status_t load_status(CUresult result)
{
    switch (result) {
    case CUDA_ERROR_NO_DEVICE:
        return PLASMON_ENOENT;
    case CUDA_ERROR_SYSTEM_DRIVER_MISMATCH:
    case CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE:
        return PLASMON_EVERSION;
    case CUDA_ERROR_OPERATING_SYSTEM:
        return PLASMON_EPERM;
    default:
        return device_cuda_status(result);
    }
}

/* .. and what to do about it. */
static const char *load_remedy(CUresult result)
{
    switch (result) {
    case CUDA_ERROR_NO_DEVICE:
        return ": CUDA_VISIBLE_DEVICES may hide them, or this container was given none";
    case CUDA_ERROR_SYSTEM_DRIVER_MISMATCH:
        return ": the driver was updated while its kernel module was loaded; restart the "
               "machine";
    case CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE:
        return ": a compat package of CUDA that this GPU does not allow; remove it from "
               "the library path";
    case CUDA_ERROR_OPERATING_SYSTEM:
        return ": this user may not open /dev/nvidia*, or is in a container without them";
    case CUDA_ERROR_SYSTEM_NOT_READY:
        return ": the fabric manager of this machine does not run";
    default:
        return "; `nvidia-smi` may say more";
    }
}

/* An error from the driver, in words, before there is a device. */
static plasmon_status_t load_failed(CUresult result, const char *call)
{
    const char *name, *text;

    words_of(result, &name, &text);
    return pl_err_set(&load_error, load_status(result), "%s: %s (%s)%s", call, name, text,
                      load_remedy(result));
}

static void load(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    CUresult result;
    int count = 0;

    if (library == NULL) {
        (void)pl_err_set(&load_error, PLASMON_ENOLIB,
                         "no NVIDIA driver can be loaded: %.300s; install it, or add its "
                         "folder to LD_LIBRARY_PATH",
                         dlerror());
        return;
    }
    if (functions_load(library) != PLASMON_OK || environment_set() != PLASMON_OK) {
        return;
    }
    result = device_cuda_driver.cuInit(0);
    if (result != CUDA_SUCCESS) {
        (void)load_failed(result, "cuInit");
        return;
    }
    result = device_cuda_driver.cuDeviceGetCount(&count);
    if (result != CUDA_SUCCESS) {
        (void)load_failed(result, "cuDeviceGetCount");
        return;
    }
    if (count <= 0) {
        (void)pl_err_set(&load_error, PLASMON_ENOENT, "the NVIDIA driver sees no device%s",
                         load_remedy(CUDA_ERROR_NO_DEVICE));
        return;
    }
    load_count = (uint32_t)count;
}

uint32_t device_cuda_driver_load(struct pl_err *err)
{
    (void)pthread_once(&load_once, load); /* fails only on an invalid control */
    if (load_count == 0) {
        (void)pl_err_set(err, load_error.status, "%s", load_error.text);
    }
    return load_count;
}

/* ------------------------------------------------------------------------------- errors */

plasmon_status_t device_cuda_status(CUresult result)
{
    switch (result) {
    case CUDA_SUCCESS:
        return PLASMON_OK;
    case CUDA_ERROR_NOT_READY:
        return PLASMON_INPROGRESS;
    case CUDA_ERROR_OUT_OF_MEMORY:
        return PLASMON_EDEVMEM;
    case CUDA_ERROR_INVALID_VALUE:
        return PLASMON_EINVAL;
    case CUDA_ERROR_PEER_ACCESS_UNSUPPORTED:
        return PLASMON_EUNREACHABLE;
    case CUDA_ERROR_NOT_SUPPORTED:
    case CUDA_ERROR_NO_BINARY_FOR_GPU:
    case CUDA_ERROR_UNSUPPORTED_PTX_VERSION:
        return PLASMON_ENOTSUP;
    case CUDA_ERROR_NOT_FOUND:
        return PLASMON_ENOENT;
    case CUDA_ERROR_INVALID_PTX:
    case CUDA_ERROR_INVALID_IMAGE:
    case CUDA_ERROR_INVALID_SOURCE:
        return PLASMON_EMALFORMED;
    case CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED:
        return PLASMON_EEXIST;
    case CUDA_ERROR_NOT_PERMITTED:
        return PLASMON_EPERM;
    default:
        return PLASMON_EDEVICE;
    }
}

/* What cuda.h of CUDA 12.0 does not name. */
enum later_error {
    CONTAINED          = 226, /* of NVLink or the memory, say, and ended by the GPU */
    TENSOR_MEMORY_LEAK = 721,
    EXTERNAL_DEVICE    = 911,
};

bool device_cuda_error_is_sticky(CUresult result)
{
    switch ((int)result) {
    case CONTAINED:
    case TENSOR_MEMORY_LEAK:
    case EXTERNAL_DEVICE:
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_LAUNCH_FAILED:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_NVLINK_UNCORRECTABLE:
    case CUDA_ERROR_CONTEXT_IS_DESTROYED:
    case CUDA_ERROR_DEINITIALIZED:
    case CUDA_ERROR_UNKNOWN:
        return true;
    default:
        return false;
    }
}

/* Answers that a caller asks for: they are no event. */
static bool is_ordinary(CUresult result)
{
    return result == CUDA_ERROR_NOT_READY || result == CUDA_ERROR_OUT_OF_MEMORY;
}

plasmon_status_t device_cuda_fail(struct device_cuda *cuda, CUresult result,
                                  const char *call)
{
    plasmon_status_t status = device_cuda_status(result);
    const char *name, *text;

    words_of(result, &name, &text);
    /* The call as written in the source, up to its arguments. */
    (void)snprintf(last_error, sizeof(last_error), "%.*s: %s (%s)", (int)strcspn(call, "("),
                   call, name, text);

    if (device_cuda_error_is_sticky(result) && cuda != NULL) {
        device_cuda_lost(cuda, last_error);
    } else if (!is_ordinary(result)) {
        pl_error("device", "%s", last_error);
    }
    return status;
}

const char *device_cuda_last_error(void)
{
    return last_error;
}
