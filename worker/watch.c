/*
 * The pause grows as a 32nd of the time without a change, between 10 us and 100 us: so work of milliseconds is noticed a few percent of its
 * own time late, and a GPU that computes for seconds costs ten thousand looks a second, a few hundredths of a core.
 */
#include "worker/watch.h"

#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/linger.h"

#define MANY_NS       INT64_C(20000)  /* before the first look, with many in flight */
#define GLANCE_NS     UINT64_C(50000) /* between looks at descriptors while words change */
#define LOOKS_A_CLOCK 64

static const struct pl_pauses pauses = {.at_once_ns = 100000,
                                        .min_ns     = 10000,
                                        .max_ns     = 100000};

void worker_watch_init(struct worker_watch *watch, const struct store_timeline *timeline,
                       uint32_t stream_count, bool by_words,
                       const int fds[WORKER_WATCH_FDS])
{
    memset(watch, 0, sizeof(*watch));
    watch->timeline     = timeline;
    watch->stream_count = stream_count;
    watch->by_words     = by_words;
    watch->changed_ns   = pl_now_ns();
    for (uint32_t i = 0; i < WORKER_WATCH_FDS; i++) {
        watch->fds[i] = (struct pollfd){.fd = fds[i], .events = POLLIN};
    }
    if (by_words) {
        pl_pauses_exact();
    }
}

uint64_t worker_watch_pause_ns(uint64_t unchanged_ns)
{
    return pl_pause_ns(&pauses, unchanged_ns);
}

static bool words_changed(struct worker_watch *watch)
{
    bool changed = false;

    for (uint32_t i = 0; i < watch->stream_count; i++) {
        /* Relaxed: who takes completions loads the word again, with acquire. */
        uint64_t word =
            __atomic_load_n(&watch->timeline->stream[i].value, __ATOMIC_RELAXED);

        changed |= word != watch->seen[i];
        watch->seen[i] = word;
    }
    return changed;
}

static bool descriptors_ready(struct worker_watch *watch, int64_t timeout_ns)
{
    struct timespec timeout = {.tv_sec  = timeout_ns / 1000000000,
                               .tv_nsec = timeout_ns % 1000000000};
    int count = ppoll(watch->fds, WORKER_WATCH_FDS, timeout_ns < 0 ? NULL : &timeout, NULL);

    if (count < 0) { /* EINTR: nothing was filled in */
        for (uint32_t i = 0; i < WORKER_WATCH_FDS; i++) {
            watch->fds[i].revents = 0;
        }
    }
    return count > 0;
}

static bool spin(struct worker_watch *watch)
{
    for (int i = 0; i < LOOKS_A_CLOCK; i++) {
        if (words_changed(watch)) {
            return true;
        }
        pl_cpu_relax();
    }
    return false;
}

/* Words that change all the time must not keep descriptors from being looked at, nor cost a system call for each change. */
static void descriptors_glance(struct worker_watch *watch)
{
    for (uint32_t i = 0; i < WORKER_WATCH_FDS; i++) {
        watch->fds[i].revents = 0;
    }
    if (watch->changed_ns - watch->polled_ns >= GLANCE_NS) {
        watch->polled_ns = watch->changed_ns;
        (void)descriptors_ready(watch, 0);
    }
}

void worker_watch_wait(struct worker_watch *watch, enum worker_watched what, int timeout_ms)
{
    uint64_t began  = pl_now_ns();
    int64_t wait_ns = timeout_ms < 0 ? -1 : (int64_t)timeout_ms * 1000000;

    if (!watch->by_words || what == WORKER_WATCHED_NOTHING) {
        (void)descriptors_ready(watch, wait_ns);
        watch->changed_ns = pl_now_ns(); /* new work: look without a pause again */
        return;
    }
    if (what == WORKER_WATCHED_MANY && descriptors_ready(watch, MANY_NS)) {
        return;
    }
    for (;;) {
        uint64_t now_ns;

        if (spin(watch)) {
            watch->changed_ns = pl_now_ns();
            descriptors_glance(watch);
            return;
        }
        now_ns = pl_now_ns();
        if (descriptors_ready(watch,
                              (int64_t)worker_watch_pause_ns(now_ns - watch->changed_ns)) ||
            (wait_ns >= 0 && now_ns - began >= (uint64_t)wait_ns)) {
            return;
        }
    }
}
