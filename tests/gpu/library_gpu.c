/*
 * A library function on a GPU: fills x with the bits of a, by the driver's own memset in the stream
 * that it is given. Fails with a text when it was not prepared, is not on a GPU, or a is negative.
 */
#include <dlfcn.h>
#include <plasmon/function.h>
#include <stdio.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

/* cuMemsetD32Async(address, value, count, stream) */
typedef int (*memset_fn)(unsigned long long address, unsigned value, size_t count,
                         void *stream);

static memset_fn memset_d32;

EXPORT int paint_entry_prepare(const struct plasmon_function_call *call);
EXPORT int paint_entry(const struct plasmon_function_call *call);

/* Once, before the first call. */
int paint_entry_prepare(const struct plasmon_function_call *call)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    void *symbol = driver != NULL ? dlsym(driver, "cuMemsetD32Async") : NULL;

    if (symbol == NULL) {
        (void)snprintf(call->error, call->error_bytes, "no driver: %s", dlerror());
        return 1;
    }
    memcpy(&memset_d32, &symbol, sizeof(symbol)); /* ISO C has no such cast */
    return 0;
}

int paint_entry(const struct plasmon_function_call *call)
{
    const struct plasmon_function_arg *x = &call->args[0];
    float value                          = (float)call->scalars[0].f;
    unsigned bits;
    int result;

    if (memset_d32 == NULL || call->kind != 2 || call->stream == NULL) {
        (void)snprintf(call->error, call->error_bytes, "kind %d, stream %p, %s", call->kind,
                       call->stream, memset_d32 == NULL ? "not prepared" : "prepared");
        return 1;
    }
    if (value < 0) {
        (void)snprintf(call->error, call->error_bytes, "%g is negative", (double)value);
        return 2;
    }
    memcpy(&bits, &value, sizeof(bits));
    result = memset_d32((unsigned long long)(uintptr_t)x->data, bits, (size_t)x->dim[0],
                        call->stream);
    if (result != 0) {
        (void)snprintf(call->error, call->error_bytes, "cuMemsetD32Async answered %d",
                       result);
    }
    return result;
}
