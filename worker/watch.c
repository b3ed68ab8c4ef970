/*
 * The pause grows as a 32nd of the time without a change, between 10 us and 100 us: so work of
 * milliseconds is noticed a few percent of its own time late, and a GPU that computes for seconds
 * costs ten thousand looks a second, a few hundredths of a core. Shorter pauses where a long wait
 * ended lately: base/linger.h.
 */
#include "worker/watch.h"

#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/linger.h"

#define MANY_NS       INT64_C(20000)  /* before the first look, with many in flight */
#define GLANCE_NS     UINT64_C(50000) /* between looks at descriptors while words change */
#define BELL_NS       INT64_C(2000000) /* then whoever rang has put in what he was about to */
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

uint64_t worker_watch_pause_ns(const struct worker_watch *watch, uint64_t unchanged_ns)
{
    return pl_recent_pause_ns(&watch->waits, &pauses, unchanged_ns);
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

void worker_watch_rest(struct worker_watch *watch)
{
    (void)words_changed(watch);
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

/*
 * While there is nothing to look at. Who looked a moment ago will be wanted again soon, and does
 * not fall asleep where threads linger.
 */
static bool rest(struct worker_watch *watch, uint64_t began_ns, int64_t wait_ns)
{
    uint64_t linger_ns = watch->by_words ? pl_linger_ns() : 0;

    for (;;) {
        uint64_t now_ns    = pl_now_ns();
        uint64_t unused_ns = now_ns - watch->changed_ns;
        int64_t left_ns    = wait_ns;

        if (wait_ns >= 0) {
            left_ns = wait_ns - (int64_t)pl_min_u64(now_ns - began_ns, (uint64_t)wait_ns);
        }
        if (unused_ns >= linger_ns) {
            return descriptors_ready(watch, left_ns);
        }
        if (descriptors_ready(
                watch, (int64_t)pl_linger_recent_ns(&watch->rests, unused_ns, false))) {
            pl_recent_learn(&watch->rests, pl_now_ns() - watch->changed_ns);
            return true;
        }
        if (left_ns == 0) {
            return true;
        }
    }
}

/* Only the bell: there is something to look at now. */
static bool bell_rang(struct worker_watch *watch)
{
    struct pollfd *bell = &watch->fds[WORKER_WATCH_BELL];
    bool alone          = (bell->revents & POLLIN) != 0;

    for (uint32_t i = 0; i < WORKER_WATCH_FDS; i++) {
        alone &= i == WORKER_WATCH_BELL || watch->fds[i].revents == 0;
    }
    if ((bell->revents & POLLIN) != 0 && !pl_fd_lower(bell->fd)) {
        alone = false; /* whoever reads it besides us has to look as well */
    }
    bell->revents = 0;
    return alone;
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

/*
 * Words that change all the time must not keep descriptors from being looked at, nor cost a system
 * call for each change.
 */
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
        bool ready = rest(watch, began, wait_ns);

        watch->changed_ns = pl_now_ns(); /* new work: look without a pause again */
        if (!ready || !bell_rang(watch)) {
            return;
        }
        began   = watch->changed_ns;
        wait_ns = BELL_NS;
    }
    if (what == WORKER_WATCHED_MANY && descriptors_ready(watch, MANY_NS)) {
        return;
    }
    for (;;) {
        uint64_t now_ns;

        if (spin(watch)) {
            now_ns = pl_now_ns();
            pl_recent_learn(&watch->waits, now_ns - watch->changed_ns);
            watch->changed_ns = now_ns;
            descriptors_glance(watch);
            return;
        }
        now_ns = pl_now_ns();
        if (descriptors_ready(
                watch, (int64_t)worker_watch_pause_ns(watch, now_ns - watch->changed_ns)) ||
            (wait_ns >= 0 && now_ns - began >= (uint64_t)wait_ns)) {
            return;
        }
    }
}

uint32_t worker_watch_take(const struct worker_watch *watch)
{
    uint32_t ready = 0;

    for (uint32_t i = 0; i < WORKER_WATCH_FDS; i++) {
        if ((watch->fds[i].revents & (POLLIN | POLLHUP | POLLERR)) != 0) {
            ready |= 1u << i;
            if (i != WORKER_WATCH_CONTROL) {
                (void)pl_fd_lower(watch->fds[i].fd);
            }
        }
    }
    return ready;
}
