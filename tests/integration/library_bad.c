/*
 * Functions of a library that do what they should not. Built as bad.so, beside the library of the
 * examples.
 */
#include <plasmon/function.h>
#include <stdio.h>
#include <stdlib.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT int says_latin1(const struct plasmon_function_call *call);
EXPORT int crashes_prepare(const struct plasmon_function_call *call);
EXPORT int multiply(const struct plasmon_function_call *call);
EXPORT int crashes(const struct plasmon_function_call *call);

/* What strerror() says in some locales. */
int says_latin1(const struct plasmon_function_call *call)
{
    (void)snprintf(call->error, call->error_bytes, "caf\xe9 is closed");
    return 1;
}

int crashes_prepare(const struct plasmon_function_call *call)
{
    (void)call;
    abort();
}

int crashes(const struct plasmon_function_call *call)
{
    (void)call;
    return 0;
}

/* And one that does. */
int multiply(const struct plasmon_function_call *call)
{
    float *at = call->args[0].data;

    for (int64_t i = 0; i < call->args[0].dim[0]; i++) {
        at[i] *= (float)call->scalars[0].f;
    }
    return 0;
}
