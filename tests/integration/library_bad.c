/*
 * Functions of a library that do what they should not. Built as bad.so, beside the library of the
 * examples.
 */
#include <plasmon/function.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT int says_latin1(const struct plasmon_function_call *call);

/* What strerror() says in some locales. */
int says_latin1(const struct plasmon_function_call *call)
{
    (void)strcpy(call->error, "caf\xe9 is closed");
    return 1;
}
