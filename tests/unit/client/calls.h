/* Short calls for tests against the fake head. */
#ifndef TESTS_UNIT_CLIENT_CALLS_H
#define TESTS_UNIT_CLIENT_CALLS_H

#include "plasmon/plasmon.h"
#include "tests/harness/test.h"

static const struct plasmon_shape call_vector = {.dtype = PLASMON_F32,
                                                 .ndim  = 1,
                                                 .dim   = {100}};

static inline void call_ok(plasmon_status_t status, const char *what, int line)
{
    if (status != PLASMON_OK) {
        test_fail(__FILE__, line, "%s: %s", what, plasmon_error(NULL));
    }
}
#define CALL_OK(x) call_ok(x, #x, __LINE__)

/* A new vector of a hundred, by `fill`. task may be NULL. */
static inline struct plasmon_ref *
call_fill(struct plasmon_client *client, const char *label, struct plasmon_ref **out_task)
{
    struct plasmon_arg arg   = {.mode = PLASMON_OUT, .shape = &call_vector};
    plasmon_scalar_t value   = {.f = 1};
    struct plasmon_call call = PLASMON_CALL_INIT;
    struct plasmon_ref *made = NULL;

    call.function     = "fill";
    call.args         = &arg;
    call.arg_count    = 1;
    call.scalars      = &value;
    call.scalar_count = 1;
    call.label        = label;
    CALL_OK(plasmon_submit(client, &call, &made, out_task));
    return made;
}

static inline plasmon_status_t call_axpy(struct plasmon_client *client,
                                         struct plasmon_ref *y, struct plasmon_ref *x,
                                         struct plasmon_ref **out_task)
{
    struct plasmon_arg args[] = {{.mode = PLASMON_INOUT, .ref = y},
                                 {.mode = PLASMON_IN, .ref = x}};
    plasmon_scalar_t a        = {.f = 2};
    struct plasmon_call call  = PLASMON_CALL_INIT;

    call.function     = "axpy";
    call.args         = args;
    call.arg_count    = 2;
    call.scalars      = &a;
    call.scalar_count = 1;
    return plasmon_submit(client, &call, NULL, out_task);
}

static inline struct plasmon_ref *call_part(struct plasmon_client *client,
                                            struct plasmon_ref *ref, int64_t start,
                                            int64_t count)
{
    struct plasmon_ref *view;

    CALL_OK(plasmon_view(client, ref, &start, &count, NULL, &view));
    return view;
}

#endif
