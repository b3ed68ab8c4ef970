/* Counts the calls of plasmon_on_ready(). */
#ifndef TESTS_HARNESS_READY_CALLS_H
#define TESTS_HARNESS_READY_CALLS_H

#include <stdatomic.h>

#include "plasmon/plasmon.h"

struct ready_calls {
    _Atomic int count;
    _Atomic int status; /* of the last one */
};

/* user: struct ready_calls */
static inline void ready_call(void *user, plasmon_status_t status)
{
    struct ready_calls *calls = user;

    atomic_store(&calls->status, (int)status);
    atomic_fetch_add(&calls->count, 1);
}

#endif
