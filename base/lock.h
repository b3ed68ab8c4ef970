/*
 * Mutexes with ranks. A thread may only lock a higher rank than any it holds; debug builds keep
 * each thread's held set and abort at the first inversion.
 */
#ifndef BASE_LOCK_H
#define BASE_LOCK_H

#include <pthread.h>

#include "base.h"

enum pl_rank {
    PL_RANK_CLIENT  = 10,
    PL_RANK_WORKER  = 20,
    PL_RANK_STORE   = 30,
    PL_RANK_KERNELS = 40,
    PL_RANK_CHAINS  = 45, /* of kernels: held over calls of the driver */
    PL_RANK_DEVICE  = 50,
    PL_RANK_RPC     = 60,
    PL_RANK_LEAF    = 100, /* takes nothing else of ours: log, stats */
};

struct pl_mutex {
    pthread_mutex_t mutex;
    enum pl_rank rank;
    pthread_t owner; /* debug builds only */
    int held;
};

plasmon_status_t pl_mutex_init(struct pl_mutex *mutex, enum pl_rank rank) PL_MUST_CHECK;
void pl_mutex_finish(struct pl_mutex *mutex);
void pl_mutex_lock(struct pl_mutex *mutex);
void pl_mutex_unlock(struct pl_mutex *mutex);
void pl_mutex_assert_held(struct pl_mutex *mutex);

struct pl_cond {
    pthread_cond_t cond; /* on CLOCK_MONOTONIC */
};
plasmon_status_t pl_cond_init(struct pl_cond *cond) PL_MUST_CHECK;
void pl_cond_finish(struct pl_cond *cond);
void pl_cond_wait(struct pl_cond *cond, struct pl_mutex *mutex);
/* deadline_ns: pl_now_ns() based; 0 if it passed, 1 if signalled (or spuriously woken). */
int pl_cond_wait_until(struct pl_cond *cond, struct pl_mutex *mutex, uint64_t deadline_ns);
void pl_cond_signal(struct pl_cond *cond);
void pl_cond_broadcast(struct pl_cond *cond);

#endif
