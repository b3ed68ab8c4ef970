/*
 * A libcuda.so.1 that answers as the test wants: no GPU is needed to see what becomes of a driver
 * that is too old, or fails.
 *
 *   STUB_CUDA="cuInit=100 cuDevicePrimaryCtxRetain=2"   these calls answer so; the others with
 *                                                       success .. and "attribute20=3": that
 *                                                       attribute is 3, others are 1
 *   STUB_CUDA_WITHOUT="cuGraphInstantiateWithFlags"     the driver has no such function
 *   STUB_CUDA_VERSION="11040"                           and it is for this version of CUDA
 *   STUB_CUDA_DEVICES="0"                               so many devices; 1 without
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cuda.h>

#define EXPORT __attribute__((visibility("default")))

static int number(const char *variable, int otherwise)
{
    const char *text = getenv(variable);

    return text != NULL ? atoi(text) : otherwise;
}

/* As a word of the list, or the number behind it. */
static const char *listed(const char *variable, const char *name)
{
    const char *text = getenv(variable);
    const char *at   = text != NULL ? strstr(text, name) : NULL;

    if (at == NULL || (at != text && at[-1] != ' ')) {
        return NULL;
    }
    return at + strlen(name);
}

static CUresult answer(const char *name)
{
    const char *value = listed("STUB_CUDA", name);

    return value != NULL && *value == '=' ? (CUresult)atoi(value + 1) : CUDA_SUCCESS;
}

static CUresult init(unsigned flags)
{
    (void)flags;
    return answer("cuInit");
}

static CUresult get_error_name(CUresult error, const char **out)
{
    switch (error) {
    case CUDA_ERROR_NO_DEVICE:
        *out = "CUDA_ERROR_NO_DEVICE";
        return CUDA_SUCCESS;
    case CUDA_ERROR_OUT_OF_MEMORY:
        *out = "CUDA_ERROR_OUT_OF_MEMORY";
        return CUDA_SUCCESS;
    case CUDA_ERROR_SYSTEM_DRIVER_MISMATCH:
        *out = "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH";
        return CUDA_SUCCESS;
    default:
        *out = NULL;
        return CUDA_ERROR_INVALID_VALUE;
    }
}

static CUresult get_error_string(CUresult error, const char **out)
{
    (void)error;
    *out = "the stub was told to answer so";
    return CUDA_SUCCESS;
}

static CUresult get_count(int *out)
{
    *out = number("STUB_CUDA_DEVICES", 1);
    return answer("cuDeviceGetCount");
}

static CUresult get_device(CUdevice *out, int ordinal)
{
    *out = ordinal;
    return answer("cuDeviceGet");
}

static CUresult get_name(char *out, int bytes, CUdevice device)
{
    (void)device;
    (void)snprintf(out, (size_t)bytes, "stub");
    return answer("cuDeviceGetName");
}

static CUresult get_uuid(CUuuid *out, CUdevice device)
{
    (void)device;
    memset(out, 7, sizeof(*out));
    return answer("cuDeviceGetUuid");
}

static CUresult get_bus(char *out, int bytes, CUdevice device)
{
    (void)device;
    (void)snprintf(out, (size_t)bytes, "0000:00:00.0");
    return answer("cuDeviceGetPCIBusId");
}

static CUresult get_memory(size_t *out, CUdevice device)
{
    (void)device;
    *out = 1u << 30;
    return answer("cuDeviceTotalMem");
}

static CUresult get_attribute(int *out, CUdevice_attribute attribute, CUdevice device)
{
    const char *value;
    char name[32];

    (void)device;
    (void)snprintf(name, sizeof(name), "attribute%d", (int)attribute);
    value = listed("STUB_CUDA", name);
    *out  = value != NULL && *value == '=' ? atoi(value + 1)
                                           : listed("STUB_CUDA_WITHOUT", name) == NULL;
    return answer("cuDeviceGetAttribute");
}

static CUresult get_granularity(size_t *out, const CUmemAllocationProp *properties,
                                CUmemAllocationGranularity_flags flags)
{
    (void)properties;
    (void)flags;
    *out = 2u << 20;
    return answer("cuMemGetAllocationGranularity");
}

static CUresult retain(CUcontext *out, CUdevice device)
{
    (void)device;
    *out = NULL;
    return answer("cuDevicePrimaryCtxRetain");
}

/* Whatever else is asked for: it is there, and a test that comes that far calls none of it. */
static CUresult unexpected(void)
{
    fprintf(stderr, "stub: a function was called that the test does not expect\n");
    return CUDA_ERROR_UNKNOWN;
}

EXPORT CUresult cuDriverGetVersion(int *out);
EXPORT CUresult cuDriverGetVersion(int *out)
{
    *out = number("STUB_CUDA_VERSION", 12080);
    return CUDA_SUCCESS;
}

/*
 * In the header cuGetProcAddress is a macro for another name in some versions; this one is what
 * Plasmon asks for.
 */
EXPORT CUresult cuGetProcAddress_v2(const char *symbol, void **out, int version,
                                    cuuint64_t flags,
                                    CUdriverProcAddressQueryResult *out_found);
EXPORT CUresult cuGetProcAddress_v2(const char *symbol, void **out, int version,
                                    cuuint64_t flags,
                                    CUdriverProcAddressQueryResult *out_found)
{
    static const struct {
        const char *name;
        void (*function)(void);
    } functions[] = {
        {"cuInit", (void (*)(void))init},
        {"cuGetErrorName", (void (*)(void))get_error_name},
        {"cuGetErrorString", (void (*)(void))get_error_string},
        {"cuDeviceGetCount", (void (*)(void))get_count},
        {"cuDeviceGet", (void (*)(void))get_device},
        {"cuDeviceGetName", (void (*)(void))get_name},
        {"cuDeviceGetUuid", (void (*)(void))get_uuid},
        {"cuDeviceGetPCIBusId", (void (*)(void))get_bus},
        {"cuDeviceTotalMem", (void (*)(void))get_memory},
        {"cuDeviceGetAttribute", (void (*)(void))get_attribute},
        {"cuMemGetAllocationGranularity", (void (*)(void))get_granularity},
        {"cuDevicePrimaryCtxRetain", (void (*)(void))retain},
    };
    void (*found)(void) = (void (*)(void))unexpected;

    (void)version;
    (void)flags;
    *out = NULL;
    if (listed("STUB_CUDA_WITHOUT", symbol) != NULL) {
        *out_found = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
        return CUDA_SUCCESS;
    }
    for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
        if (strcmp(functions[i].name, symbol) == 0) {
            found = functions[i].function;
        }
    }
    memcpy(out, &found, sizeof(found)); /* ISO C has no cast from function to data */
    *out_found = CU_GET_PROC_ADDRESS_SUCCESS;
    return CUDA_SUCCESS;
}
