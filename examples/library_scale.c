/*
 * A library function: x = a x, on CPU devices. Built as a shared object and put into the folder
 * that the store was started with (--library-dir), it is defined by
 *
 *     plasmon_function_library(px, "scale", "scale.so", "scale_entry", "scale(inout f64[n] x, f64 a)");
 *
 * On a GPU it would put a kernel, or a call of cuBLAS, into call->stream.
 */
#include <plasmon/function.h>
#include <stdio.h>

#define EXPORT __attribute__((visibility("default")))

static int prepared;

EXPORT int scale_entry_prepare(const struct plasmon_function_call *call);
EXPORT int scale_entry(const struct plasmon_function_call *call);

/* Once, before the first call: what may wait for the device belongs here. */
int scale_entry_prepare(const struct plasmon_function_call *call)
{
    prepared = call->abi == PLASMON_FUNCTION_ABI;
    return 0;
}

int scale_entry(const struct plasmon_function_call *call)
{
    const struct plasmon_function_arg *x = &call->args[0];
    double *at                           = x->data;

    if (!prepared || call->kind != 1 || call->arg_count != 1 || call->scalar_count != 1) {
        (void)snprintf(call->error, call->error_bytes, "only on CPU devices, and prepared");
        return 1;
    }
    if (call->scalars[0].f < 0) {
        (void)snprintf(call->error, call->error_bytes, "%g is negative",
                       call->scalars[0].f);
        return 2;
    }
    for (int64_t i = 0; i < x->dim[0]; i++) {
        at[i * x->stride[0]] *= call->scalars[0].f;
    }
    return 0;
}
