/*
 * Waiting, in three forms: for a timeline word, for a stream's progress, and for the queue to fill.
 *
 * TIMELINE WORDS lie in memory shared between processes, and a word is a plain integer that a GPU
 * can write too. So there is no room for a count of waiters beside it: whoever writes it on the CPU
 * makes one FUTEX_WAKE afterwards (0.2 us when nobody waits), a GPU makes none. A futex compares 32
 * bits; the low half of the word is used. Two things can then go unseen: a write by a GPU, and a
 * step by an exact multiple of 2^32. Both are caught by a bounded sleep that starts at 100 us and
 * doubles up to 50 ms, so a missed wake costs at most as long again as the wait had already taken.
 *
 * PROGRESS of a stream is private to the process. The stream stores `completed`, then reads
 * `waiters`; a waiter raises `waiters`, then reads `completed`. Both are sequentially consistent,
 * so at least one sees the other: no wake is lost, and a stream that nobody waits for makes no
 * system call.
 */
#include "device/cpu/cpu_int.h"

#include "base/alloc.h"
#include "base/clock.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the low half of a 64-bit word is taken to be at its address"
#endif

#define WORD_SLEEP_MIN_NS 100000u
#define WORD_SLEEP_MAX_NS 50000000u

static void futex_wait(void *address, int op, uint32_t expected, uint64_t timeout_ns)
{
    struct timespec timeout = {.tv_sec  = (time_t)(timeout_ns / 1000000000u),
                               .tv_nsec = (long)(timeout_ns % 1000000000u)};

    /* EAGAIN (it changed), EINTR and ETIMEDOUT all mean: look again. */
    (void)syscall(SYS_futex, address, op, expected, timeout_ns > 0 ? &timeout : NULL, NULL,
                  0);
}

static void futex_wake_all(void *address, int op)
{
    (void)syscall(SYS_futex, address, op, INT_MAX, NULL, NULL,
                  0); /* nobody there is fine */
}

void device_cpu_sleep(_Atomic uint32_t *futex, uint32_t expected)
{
    futex_wait(futex, FUTEX_WAIT_PRIVATE, expected, 0);
}

void device_cpu_wake(_Atomic uint32_t *futex)
{
    futex_wake_all(futex, FUTEX_WAKE_PRIVATE);
}

/* -------------------------------------------------------------------------------- words */

static uint64_t word_load(const uint64_t *word)
{
    return __atomic_load_n(word, __ATOMIC_SEQ_CST);
}

/* true: reached while polling. */
static bool word_poll(const uint64_t *word, uint64_t value, uint64_t spin_ns)
{
    uint64_t deadline_ns = pl_now_ns() + spin_ns;

    do {
        for (unsigned i = 0; i < 32; i++) {
            if (word_load(word) >= value) {
                return true;
            }
            pl_cpu_relax();
        }
    } while (pl_now_ns() < deadline_ns);
    return false;
}

void device_cpu_word_wait(uint64_t *word, uint64_t value, uint64_t spin_ns)
{
    uint64_t sleep_ns = WORD_SLEEP_MIN_NS;
    uint64_t seen;

    if (word_load(word) >= value || (spin_ns > 0 && word_poll(word, value, spin_ns))) {
        return;
    }
    for (seen = word_load(word); seen < value; seen = word_load(word)) {
        futex_wait(word, FUTEX_WAIT, (uint32_t)seen, sleep_ns);
        sleep_ns = pl_min_u64(2 * sleep_ns, WORD_SLEEP_MAX_NS);
    }
}

void device_cpu_word_signal(uint64_t *word, uint64_t value)
{
    __atomic_store_n(word, value, __ATOMIC_SEQ_CST);
    device_word_wake(word);
}

void device_word_wake(uint64_t *word)
{
    futex_wake_all(word,
                   FUTEX_WAKE); /* shared: the word is in memory of several processes */
}

/* ----------------------------------------------------------------------------- progress */

struct device_cpu_progress *device_cpu_progress_create(void)
{
    struct device_cpu_progress *progress = PL_NEW(struct device_cpu_progress);

    if (progress != NULL) {
        atomic_store(&progress->refs, 1);
    }
    return progress;
}

void device_cpu_progress_hold(struct device_cpu_progress *progress)
{
    atomic_fetch_add(&progress->refs, 1);
}

void device_cpu_progress_release(struct device_cpu_progress *progress)
{
    if (atomic_fetch_sub(&progress->refs, 1) == 1) {
        pl_free(progress);
    }
}

void device_cpu_progress_advance(struct device_cpu_progress *progress, uint64_t completed)
{
    atomic_store(&progress->completed, completed);
    if (atomic_load(&progress->waiters) > 0) {
        futex_wake_all(&progress->completed, FUTEX_WAKE_PRIVATE);
    }
}

void device_cpu_progress_wait(struct device_cpu_progress *progress, uint64_t target,
                              uint64_t spin_ns)
{
    uint64_t deadline_ns;
    uint64_t seen;

    if (atomic_load(&progress->completed) >= target) {
        return;
    }
    if (spin_ns > 0) {
        deadline_ns = pl_now_ns() + spin_ns;
        do {
            pl_cpu_relax();
            if (atomic_load(&progress->completed) >= target) {
                return;
            }
        } while (pl_now_ns() < deadline_ns);
    }

    atomic_fetch_add(&progress->waiters, 1);
    for (seen = atomic_load(&progress->completed); seen < target;
         seen = atomic_load(&progress->completed)) {
        futex_wait(&progress->completed, FUTEX_WAIT_PRIVATE, (uint32_t)seen, 0);
    }
    atomic_fetch_sub(&progress->waiters, 1);
}
