#include "clock.h"

#include <time.h>

static uint64_t clock_read_ns(clockid_t id)
{
    struct timespec now;

    (void)clock_gettime(id, &now); /* cannot fail: the ids are constants that Linux has */
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint64_t pl_now_ns(void)
{
    return clock_read_ns(CLOCK_MONOTONIC);
}

uint64_t pl_realtime_ns(void)
{
    return clock_read_ns(CLOCK_REALTIME);
}

uint64_t pl_thread_cpu_ns(void)
{
    return clock_read_ns(CLOCK_THREAD_CPUTIME_ID);
}
