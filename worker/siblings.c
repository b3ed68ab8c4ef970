/*
 * LIVES. A head that has given a host up, or another head, gives its devices other numbers, knows
 * nothing of their launches and numbers the chunks of their staging rings from 0 again. Each worker
 * of the host hears of that by itself: its process ends, and the next one is welcomed to another
 * life, which epoch and session of the node tell apart.
 *
 * A LATE WRITE. A worker that has not heard yet may hold sends of the life before: enqueued, and
 * behind a kernel of any length. When they run, they copy into a slot of the receiver's ring and
 * say that a chunk is ready, by a number which means another one there by now; and the sender of
 * that other chunk would take it for delivered. Neither comparing numbers nor larger ones help, for
 * the slot itself is overwritten.
 *
 *   1  who is welcomed to another life forgets, and says so: its process has enqueued nothing of
 *      the one before
 *   2  when all of the host have (or were never welcomed, or are gone for good: their processes are
 *      dead), nobody is left who could write. Then the words of the ring are cleared, and it has
 *      begun
 *   3  nobody sends into a ring that has not begun: neither a device of the host, for which its
 *      number is not known before, nor those of other hosts (transfer/bulk.c accepts no connection
 *      before); and its own device waits for nothing there
 *
 * No worker waits for what another one does at 2 or 3 before it does 1, and the store ends whoever
 * does not get there, so all rings begin.
 *
 * A worker that is restarted in the same life finds its ring begun, and as it was (transfer/host.c).
 *
 * Seeded bug: worker.ring_at_once (2 does not wait).
 */
#include "worker/siblings.h"

#include "base/fault.h"

struct shown {
    uint64_t epoch;
    uint64_t session;
    uint64_t device;
};

/* Acquire: pairs with the releases in worker_siblings_announce(). */
static struct shown shown_by(const struct worker_siblings *siblings, uint32_t host_device)
{
    const struct store_table *said = siblings->tables[host_device];
    struct shown shown;

    shown.session = __atomic_load_n(&said->node_session, __ATOMIC_ACQUIRE);
    shown.epoch   = __atomic_load_n(&said->epoch, __ATOMIC_ACQUIRE);
    shown.device  = __atomic_load_n(&said->device, __ATOMIC_ACQUIRE);
    return shown;
}

static bool as_we_were(const struct worker_siblings *siblings, const struct shown *shown)
{
    return shown->epoch == siblings->epoch && shown->session == siblings->node_session;
}

bool worker_siblings_released(const struct worker_siblings *siblings, uint32_t host_device)
{
    const struct store_timeline *timeline = siblings->timelines[host_device];

    return timeline != NULL && store_timeline_is_released(timeline);
}

void worker_siblings_forget(const struct worker_siblings *siblings)
{
    /* Whoever sees the number that comes next sees this (release, there). */
    __atomic_store_n(&siblings->tables[siblings->own]->ring_begun, 0, __ATOMIC_RELAXED);
}

void worker_siblings_announce(const struct worker_siblings *siblings, uint32_t device)
{
    struct store_table *table = siblings->tables[siblings->own];

    __atomic_store_n(&table->device, device + 1ull, __ATOMIC_RELEASE);
    __atomic_store_n(&table->epoch, siblings->epoch, __ATOMIC_RELEASE);
    __atomic_store_n(&table->node_session, siblings->node_session, __ATOMIC_RELEASE);
}

/* Its process may hold sends of another life. */
static bool may_write(const struct worker_siblings *siblings, uint32_t host_device)
{
    struct shown shown = shown_by(siblings, host_device);

    return shown.epoch != 0 && !as_we_were(siblings, &shown) &&
           !worker_siblings_released(siblings, host_device);
}

bool worker_siblings_ring_begin(const struct worker_siblings *siblings)
{
    struct store_table *table       = siblings->tables[siblings->own];
    struct store_timeline *timeline = siblings->timelines[siblings->own];

    if (table->ring_begun != 0) {
        return true;
    }
    for (uint32_t i = 0; i < siblings->count && !pl_bug("worker.ring_at_once"); i++) {
        if (may_write(siblings, i)) {
            return false;
        }
    }
    for (uint32_t i = 0; i < STORE_STAGE_SLOTS; i++) {
        __atomic_store_n(&timeline->stage_ready[i].value, 0, __ATOMIC_RELAXED);
    }
    __atomic_store_n(&timeline->stage_taken.value, 0, __ATOMIC_RELAXED);
    /* Release: who sees it sees the words cleared. */
    __atomic_store_n(&table->ring_begun, 1, __ATOMIC_RELEASE);
    return true;
}

uint64_t worker_siblings_number(const struct worker_siblings *siblings,
                                uint32_t host_device)
{
    struct shown shown = shown_by(siblings, host_device);

    if (!as_we_were(siblings, &shown) ||
        __atomic_load_n(&siblings->tables[host_device]->ring_begun, __ATOMIC_ACQUIRE) ==
            0) {
        return 0;
    }
    return shown.device;
}
