/*
 * Threads are started for the work and joined after it: 30 us each, against 700 us that one thread
 * needs for the smallest copy that gets any. So there is nothing to keep, to stop, or to be missing
 * in a forked child.
 */
#include "client/parallel.h"

#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <string.h>

#include "base/base.h"
#include "base/copy.h"
#include "base/thread.h"

struct part {
    void (*fn)(void *user, uint32_t index);
    void *user;
    uint32_t index;
    pthread_t thread;
    bool started;
};

static uint32_t cpus(void)
{
    cpu_set_t set;

    return sched_getaffinity(0, sizeof(set), &set) == 0 ? (uint32_t)CPU_COUNT(&set) : 1;
}

uint32_t parallel_threads(uint64_t bytes)
{
    uint64_t worth = bytes / (PARALLEL_BYTES_MIN / 2);
    uint32_t half  = cpus() / 2; /* the other half is for whoever works meanwhile */

    if (bytes < PARALLEL_BYTES_MIN) {
        return 1;
    }
    return (uint32_t)pl_max_u64(pl_min_u64(worth, pl_min_u64(half, PARALLEL_THREADS_MAX)),
                                1);
}

static void *part_run(void *user)
{
    struct part *part = user;

    part->fn(part->user, part->index);
    return NULL;
}

void parallel_run(uint32_t threads, void (*fn)(void *user, uint32_t index), void *user)
{
    struct part parts[PARALLEL_THREADS_MAX];

    PL_CHECK(threads >= 1 && threads <= PARALLEL_THREADS_MAX);
    for (uint32_t i = 1; i < threads; i++) {
        parts[i]         = (struct part){.fn = fn, .user = user, .index = i};
        parts[i].started = pl_thread_start(&parts[i].thread, part_run, &parts[i]) == 0;
    }

    fn(user, 0);
    for (uint32_t i = 1; i < threads; i++) {
        if (parts[i].started) {
            (void)pthread_join(parts[i].thread, NULL);
        } else {
            fn(user, i);
        }
    }
}

/* ------------------------------------------------------------------------------- copies */

struct copy {
    uint8_t *dst;
    const uint8_t *src;
    uint64_t bytes;
    uint64_t part_bytes;
};

static void copy_part(void *user, uint32_t index)
{
    const struct copy *copy = user;
    uint64_t from           = index * copy->part_bytes;

    if (from < copy->bytes) {
        pl_copy(copy->dst + from, copy->src + from,
                pl_min_u64(copy->part_bytes, copy->bytes - from));
    }
}

void parallel_copy(void *dst, const void *src, uint64_t bytes)
{
    uint32_t threads = parallel_threads(bytes);
    struct copy copy = {.dst        = dst,
                        .src        = src,
                        .bytes      = bytes,
                        .part_bytes = pl_round_up(bytes / threads + 1, 4096)};

    parallel_run(threads, copy_part, &copy);
}
