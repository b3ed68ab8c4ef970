/*
 * Ranked mutexes. Deadlock needs a cycle of threads, each holding one lock and waiting for the
 * next. If every thread locks in increasing rank there is no cycle, so debug builds need not see a
 * deadlock happen: the first lock taken out of order aborts, in any interleaving. (The idea is
 * jemalloc's witness.)
 *
 * Each thread keeps the set of mutexes it holds, which nobody else reads, so the checks add no
 * synchronisation and hide no race from the thread sanitizer. `owner` and `held` in the mutex are
 * for debuggers; only the holder writes them.
 */
#include "lock.h"

#include "log.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <time.h>

#ifndef NDEBUG

#define HELD_MAX 16

static _Thread_local struct pl_mutex *held_set[HELD_MAX];
static _Thread_local unsigned held_count;

static void held_check_order(const struct pl_mutex *mutex)
{
    for (unsigned i = 0; i < held_count; i++) {
        if (held_set[i]->rank >= mutex->rank) {
            pl_error("base", "lock rank inversion: locking rank %d while holding rank %d",
                     (int)mutex->rank, (int)held_set[i]->rank);
            PL_CHECK(held_set[i]->rank < mutex->rank);
        }
    }
}

static void held_add(struct pl_mutex *mutex)
{
    PL_CHECK(held_count < HELD_MAX);
    held_set[held_count++] = mutex;
    mutex->owner           = pthread_self();
    mutex->held            = 1;
}

static void held_remove(struct pl_mutex *mutex)
{
    unsigned i = 0;

    while (i < held_count && held_set[i] != mutex) {
        i++;
    }
    PL_CHECK(i < held_count); /* else: unlocked by a thread that does not hold it */
    held_set[i] = held_set[--held_count];
    mutex->held = 0;
}

void pl_mutex_assert_held(struct pl_mutex *mutex)
{
    unsigned i = 0;

    while (i < held_count && held_set[i] != mutex) {
        i++;
    }
    PL_CHECK(i < held_count);
}

#else

static void held_check_order(const struct pl_mutex *mutex)
{
    (void)mutex;
}

static void held_add(struct pl_mutex *mutex)
{
    (void)mutex;
}

static void held_remove(struct pl_mutex *mutex)
{
    (void)mutex;
}

void pl_mutex_assert_held(struct pl_mutex *mutex)
{
    (void)mutex;
}

#endif

plasmon_status_t pl_mutex_init(struct pl_mutex *mutex, enum pl_rank rank)
{
    int error = pthread_mutex_init(&mutex->mutex, NULL);

    mutex->rank = rank;
    mutex->held = 0;
    return pl_status_from_errno(error);
}

void pl_mutex_finish(struct pl_mutex *mutex)
{
    assert(!mutex->held);
    /* Fails only for a held mutex, which is asserted. */
    (void)pthread_mutex_destroy(&mutex->mutex);
}

void pl_mutex_lock(struct pl_mutex *mutex)
{
    int error;

    held_check_order(mutex);
    error = pthread_mutex_lock(&mutex->mutex);
    PL_CHECK(error == 0);
    held_add(mutex);
}

void pl_mutex_unlock(struct pl_mutex *mutex)
{
    int error;

    held_remove(mutex);
    error = pthread_mutex_unlock(&mutex->mutex);
    PL_CHECK(error == 0);
}

plasmon_status_t pl_cond_init(struct pl_cond *cond)
{
    pthread_condattr_t attributes;
    int error;

    error = pthread_condattr_init(&attributes);
    if (error != 0) {
        return pl_status_from_errno(error);
    }
    error = pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    if (error == 0) {
        error = pthread_cond_init(&cond->cond, &attributes);
    }
    (void)pthread_condattr_destroy(&attributes); /* cannot fail */
    return pl_status_from_errno(error);
}

void pl_cond_finish(struct pl_cond *cond)
{
    (void)pthread_cond_destroy(&cond->cond); /* cannot fail in glibc */
}

void pl_cond_wait(struct pl_cond *cond, struct pl_mutex *mutex)
{
    int error;

    held_remove(mutex);
    error = pthread_cond_wait(&cond->cond, &mutex->mutex);
    PL_CHECK(error == 0);
    held_add(mutex);
}

int pl_cond_wait_until(struct pl_cond *cond, struct pl_mutex *mutex, uint64_t deadline_ns)
{
    struct timespec deadline = {
        .tv_sec  = (time_t)(deadline_ns / 1000000000u),
        .tv_nsec = (long)(deadline_ns % 1000000000u),
    };
    int error;

    held_remove(mutex);
    error = pthread_cond_timedwait(&cond->cond, &mutex->mutex, &deadline);
    PL_CHECK(error == 0 || error == ETIMEDOUT);
    held_add(mutex);
    return error == 0;
}

void pl_cond_signal(struct pl_cond *cond)
{
    (void)pthread_cond_signal(&cond->cond); /* cannot fail */
}

void pl_cond_broadcast(struct pl_cond *cond)
{
    (void)pthread_cond_broadcast(&cond->cond); /* cannot fail */
}
