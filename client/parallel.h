/* The same work on several threads, for copies that one thread cannot do at the memory's speed. */
#ifndef CLIENT_PARALLEL_H
#define CLIENT_PARALLEL_H

#include <stddef.h>
#include <stdint.h>

#define PARALLEL_THREADS_MAX 6u
/* Below this many bytes one thread is done before others have started. */
#define PARALLEL_BYTES_MIN (8u << 20)

/* How many threads a copy of so many bytes is worth on this machine: 1 .. PARALLEL_THREADS_MAX. */
uint32_t parallel_threads(uint64_t bytes);
/*
 * fn(user, 0) .. fn(user, threads - 1) at the same time, 0 by the caller; returns when all have
 * returned. Where the system gives no more threads, the caller does their part afterwards. The
 * threads take no signals of the program.
 */
void parallel_run(uint32_t threads, void (*fn)(void *user, uint32_t index), void *user);
/* pl_copy(), on as many threads as it is worth. */
void parallel_copy(void *dst, const void *src, uint64_t bytes);

#endif
