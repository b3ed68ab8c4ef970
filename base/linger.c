/*
 * What took t comes to light 3 % of t later at most. 50 us are well below what a host waits before
 * it takes an idle processor away (200 us with KVM); more than 20 us without a pause was measured
 * to make frames small, and tasks in a row slow. Where many tasks are under way, any time without
 * one does: 20 us are some twenty tasks.
 */
#include "base/linger.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"

#define LINGER_MS      UINT64_C(16)
#define LINGER_MAX_MS  1000ul
#define PROCESSORS_MIN 8
#define SLACK_NS       1000ul
#define LONG_NS        UINT64_C(320000) /* before, pauses are as short as any */
#define NEAR           32u
#define NEAR_LOOKS     256u

static const struct pl_pauses pauses      = {.at_once_ns = 20000,
                                             .min_ns     = 5000,
                                             .max_ns     = 50000};
static const struct pl_pauses pauses_many = {.at_once_ns = 0,
                                             .min_ns     = 20000,
                                             .max_ns     = 50000};
static uint64_t linger_ns;

static uint64_t by_default(void)
{
    cpu_set_t set;

    return sched_getaffinity(0, sizeof(set), &set) == 0 && CPU_COUNT(&set) < PROCESSORS_MIN
               ? 0
               : LINGER_MS * 1000000;
}

static void linger_read(void)
{
    const char *text = getenv("PLASMON_LINGER_MS");
    char *end        = NULL;
    unsigned long ms = text != NULL ? strtoul(text, &end, 10) : 0;

    if (text == NULL || *text == '\0') {
        linger_ns = by_default();
    } else if (*end != '\0' || *text < '0' || *text > '9' || ms > LINGER_MAX_MS) {
        linger_ns = by_default();
        pl_warn("base",
                "PLASMON_LINGER_MS is '%s', not a number from 0 to %lu; it is not used",
                text, LINGER_MAX_MS);
    } else {
        linger_ns = ms * UINT64_C(1000000);
    }
}

uint64_t pl_linger_ns(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    (void)pthread_once(&once, linger_read);
    return linger_ns;
}

uint64_t pl_pause_ns(const struct pl_pauses *of, uint64_t waited_ns)
{
    return waited_ns < of->at_once_ns
               ? 0
               : pl_min_u64(pl_max_u64(waited_ns / 32, of->min_ns), of->max_ns);
}

uint64_t pl_recent_pause_ns(const struct pl_recent *recent, const struct pl_pauses *of,
                            uint64_t waited_ns)
{
    uint64_t pause_ns = pl_pause_ns(of, waited_ns);

    for (uint32_t i = 0; i < PL_RECENT_WAITS && waited_ns >= of->at_once_ns; i++) {
        uint64_t last_ns = recent->last_ns[i], early_ns = last_ns - last_ns / NEAR;
        uint64_t until_ns = last_ns / NEAR_LOOKS;

        if (last_ns == 0 || waited_ns > last_ns + last_ns / NEAR) {
            continue;
        }
        if (waited_ns < early_ns) {
            until_ns = early_ns - waited_ns;
        }
        pause_ns = pl_min_u64(pause_ns, pl_max_u64(until_ns, of->min_ns));
    }
    return pause_ns;
}

void pl_recent_learn(struct pl_recent *recent, uint64_t waited_ns)
{
    if (waited_ns < LONG_NS) {
        return;
    }
    for (uint32_t i = 0; i < PL_RECENT_WAITS; i++) {
        uint64_t near_ns = recent->last_ns[i] / NEAR;

        if (waited_ns + near_ns >= recent->last_ns[i] &&
            waited_ns <= recent->last_ns[i] + near_ns) {
            recent->last_ns[i] = waited_ns; /* the same work, as it seems */
            return;
        }
    }
    recent->last_ns[recent->last] = waited_ns;
    recent->last                  = (recent->last + 1) % PL_RECENT_WAITS;
}

void pl_pauses_exact(void)
{
    (void)prctl(PR_SET_TIMERSLACK, SLACK_NS); /* refused: pauses are longer */
}

uint64_t pl_linger_pause_ns(uint64_t waited_ns, bool many)
{
    return pl_pause_ns(many ? &pauses_many : &pauses, waited_ns);
}

uint64_t pl_linger_recent_ns(const struct pl_recent *recent, uint64_t waited_ns, bool many)
{
    return many ? pl_linger_pause_ns(waited_ns, many)
                : pl_recent_pause_ns(recent, &pauses, waited_ns);
}

void pl_linger_pause(const struct pl_recent *recent, uint64_t waited_ns, bool many)
{
    struct timespec pause = {.tv_nsec = (long)pl_linger_recent_ns(recent, waited_ns, many)};

    if (pause.tv_nsec > 0) {
        (void)nanosleep(&pause, NULL); /* a signal: it looks sooner */
    }
}

void pl_linger_thread(void)
{
    if (pl_linger_ns() > 0) {
        pl_pauses_exact();
    }
}

int pl_linger_cond_wait(struct pl_cond *cond, struct pl_mutex *mutex, uint64_t began_ns,
                        uint64_t deadline_ns)
{
    uint64_t now_ns = pl_now_ns();

    if (now_ns - began_ns < pl_linger_ns() && deadline_ns - now_ns > pauses.max_ns &&
        deadline_ns > now_ns) {
        (void)pl_cond_wait_until(cond, mutex, now_ns + pauses.max_ns);
        return 1;
    }
    if (deadline_ns == UINT64_MAX) {
        pl_cond_wait(cond, mutex);
        return 1;
    }
    return pl_cond_wait_until(cond, mutex, deadline_ns);
}
