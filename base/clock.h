#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H
#include <stdint.h>
uint64_t pl_now_ns(void);        /* CLOCK_MONOTONIC */
uint64_t pl_realtime_ns(void);   /* CLOCK_REALTIME */
uint64_t pl_thread_cpu_ns(void); /* CPU time of the calling thread */
#endif
