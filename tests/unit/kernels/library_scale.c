/* A library as users write it, for the tests. */
#include <stdio.h>

#include "plasmon/function.h"

static int prepared;

int scale_entry_prepare(const struct plasmon_function_call *call);
int scale_entry(const struct plasmon_function_call *call);

__attribute__((visibility("default"))) int
scale_entry_prepare(const struct plasmon_function_call *call)
{
    prepared = call->abi == PLASMON_FUNCTION_ABI;
    return 0;
}

__attribute__((visibility("default"))) int
scale_entry(const struct plasmon_function_call *call)
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
