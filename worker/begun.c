/*
 * What has begun: so that a death costs only launches that were running.
 *
 * A launch that overwrites something in place cannot be done twice, so after a death it matters
 * whether it had begun. Two facts that the device leaves in the timeline say that one had not, and
 * one that the host does:
 *
 *   the word     The word of a stream is written after a launch E (STORE_KNOWN_SIGNALS) and before
 *                anything behind it. As long as it does not show E done, nothing behind E in that
 *                stream has begun. It is written anyway, so this costs nothing.
 *   the begin    `begun` of a stream is written behind all that a launch L waits for, and right
 *                before its work (STORE_KNOWN_TELLS). As long as it is below L, neither L nor
 *                anything behind it has begun.
 *   the hold     L comes behind the write of another stream's word, which its own stream joined
 *                (store_timeline_hold). As long as that word does not show the launch that it was
 *                written after, neither L nor anything behind it has begun. Nothing is added to
 *                what the device does.
 *
 * Where words are late (core.h: words_late()) what is behind one may have begun before it is there.
 * So neither SIGNALS nor TELLS is said of those.
 *
 * WHO TELLS ITS BEGIN. On a CPU device (words_cheap) each launch that overwrites: the stream's
 * thread stores a word. On a GPU such a write takes as long as a small kernel, so only the first
 * overwriting launch behind a wait for another device, which can hold the stream up for long. What
 * its own device holds up the words have to tell, of its stream and of those that this one joined:
 * what is lost is at most the batch that was running in each, WORKER_SIGNAL_EVERY launches or
 * signal_bytes of work. So may be a batch that has run, while its word is behind a join with a
 * stream of the same device that takes long: a word before each join would tell, but every graph
 * with branches would pay the 2.6 us for each of its joins, for a death in just that moment.
 * (Before what waits for another device words are written anyway.) A recorded graph is one launch
 * here: its begin is told before it is replayed, and when it has begun all of it has.
 *
 * WHICH WORD HOLDS. A launch may come behind several streams' words. One is written down, the one
 * for the latest launch, if it was not there yet when this one was enqueued: the earlier ones are
 * likely to be passed before it.
 *
 * THE ORDER OF OUR OWN STORES. A worker dies between any two of them. ENQUEUED is there before the
 * first call that gives the device work, the hold, or that there is none, before that and after the
 * join is in the stream, TELLS after the write of `begun` is in the stream and before the work is,
 * SIGNALS after the write of the word is. Each fact that is missing makes a launch that has not
 * begun look as if it might have, and never the other way round.
 *
 * THE NEXT DEATH. The facts are about what one incarnation enqueued. The next one writes down what
 * may have begun (STORE_KNOWN_BEGUN, which stays), then takes the facts back, last launch first,
 * and then clears the words `begun`. If it dies on the way, the one after it finds that a launch is
 * BEGUN, or has all facts that spoke for it, or was not enqueued since.
 */
#include "worker/core_int.h"

#include "base/fault.h"
#include "base/log.h"

/* ------------------------------------------------------------------------------ telling */

void worker_begun_held_up(struct worker_core *core, uint32_t stream)
{
    core->streams[stream].held_up = true;
}

static bool must_not_come_twice(const struct worker_launch *launch)
{
    return worker_launch_is_function(launch) && launch->overwrites;
}

bool worker_begun_tells(const struct worker_core *core, const struct worker_launch *launch,
                        uint32_t stream)
{
    if (launch->time_limit_ms != 0) {
        return true;
    }
    return must_not_come_twice(launch) &&
           (core->config.words_cheap || core->streams[stream].held_up);
}

void worker_begun_joined(struct worker_stream *mine, uint32_t other)
{
    uint64_t by =
        pl_bug("worker.held_by_work") ? mine->joined[other] : mine->joined_word[other];

    if (by > mine->held_by) {
        mine->held_by   = by;
        mine->held_from = other;
    }
}

void worker_begun_hold(struct worker_core *core, const struct worker_launch *launch,
                       uint32_t stream)
{
    struct worker_stream *mine = &core->streams[stream];

    if (mine->held_by != 0 && worker_stream_word(core, mine->held_from) >= mine->held_by) {
        mine->held_by = 0;
    }
    store_timeline_hold(core->timeline, launch->seq, mine->held_by);
}

plasmon_status_t worker_begun_tell(struct worker_core *core,
                                   const struct worker_launch *launch, uint32_t stream)
{
    plasmon_status_t status =
        core->config.ops->begin(core->config.user, stream, launch->seq);

    worker_stream_put(core, stream, 1);
    if (status == PLASMON_OK && !worker_stream_words_late(core, stream)) {
        core->streams[stream].held_up = false;
        store_timeline_know(core->timeline, launch->seq, STORE_KNOWN_TELLS);
    }
    return status;
}

/* ------------------------------------------------------------------------ after a death */

static uint64_t begun_of(const struct worker_core *core, uint32_t stream)
{
    /* Acquire: pairs with the device's write. It was fenced: nobody writes any more. */
    return __atomic_load_n(&core->timeline->begun[stream].value, __ATOMIC_ACQUIRE);
}

/* Unfinished, in increasing seq. *io_held: nothing of its stream from here on has begun. */
static bool launch_begun(const struct worker_core *core, uint64_t seq, uint32_t stream,
                         bool *io_held)
{
    uint8_t known = store_timeline_known(core->timeline, seq);
    bool begun;

    if (store_timeline_failed(core->timeline, seq)) {
        return true; /* it is over, and only its report is owed */
    }
    if ((known & STORE_KNOWN_ENQUEUED) != 0 && (known & STORE_KNOWN_TELLS) != 0 &&
        begun_of(core, stream) < seq) {
        *io_held = true;
    }
    if ((known & STORE_KNOWN_ENQUEUED) != 0 && store_timeline_held(core->timeline, seq)) {
        *io_held = true;
    }
    begun = (known & STORE_KNOWN_BEGUN) != 0 ||
            ((known & STORE_KNOWN_ENQUEUED) != 0 && !*io_held);
    if ((known & STORE_KNOWN_SIGNALS) != 0) {
        *io_held = true;
    }
    return begun;
}

static plasmon_status_t begun_write_down(struct worker_core *core,
                                         struct wire_ranges *out_untouched)
{
    bool held[STORE_STREAM_MAX] = {false};
    plasmon_status_t status     = PLASMON_OK;

    for (size_t i = 0; i < core->unfinished.items.count; i++) {
        const struct wire_range *range = pl_vec_at(&core->unfinished.items, i);

        for (uint64_t k = 0; k < range->count && status == PLASMON_OK; k++) {
            uint64_t seq    = range->first + k;
            uint32_t stream = store_ring_stream(core->timeline->ring[seq % STORE_RING]);

            if (!launch_begun(core, seq, stream, &held[stream])) {
                status = wire_ranges_add(out_untouched, seq);
            } else if (!pl_bug("worker.begun_forgotten")) {
                store_timeline_know(core->timeline, seq, STORE_KNOWN_BEGUN);
            }
        }
    }
    return status;
}

static void facts_take_back(struct worker_core *core)
{
    for (size_t i = core->unfinished.items.count; i-- > 0;) {
        const struct wire_range *range = pl_vec_at(&core->unfinished.items, i);

        for (uint64_t k = range->count; k-- > 0;) {
            store_timeline_unknow(core->timeline, range->first + k, STORE_KNOWN_BEGUN);
        }
    }
    for (uint32_t i = 0; i < STORE_STREAM_MAX; i++) {
        __atomic_store_n(&core->timeline->begun[i].value, 0, __ATOMIC_RELEASE);
    }
}

plasmon_status_t worker_begun_recover(struct worker_core *core,
                                      struct wire_ranges *out_untouched)
{
    plasmon_status_t status = begun_write_down(core, out_untouched);

    if (status == PLASMON_OK) {
        facts_take_back(core);
    }
    return status;
}
