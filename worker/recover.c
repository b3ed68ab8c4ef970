/*
 * After a restart: what the table and the timeline say is all there is, and it is enough.
 *
 *   timeline   which launches were published, on which stream, and which of them are done
 *   table      which buffers there are, where, and which launch makes each right
 *
 * A buffer whose launch is done is sealed. One whose launch was published and is not done is kept
 * as it is: the launch comes again, finds the buffer it made and writes it once more (or, a
 * host-route receive, the rest of it). One that was marked as CONSUMED for a launch that was never
 * published was not touched, and is sealed as it was; if an unfinished launch was to write it
 * before, it comes again, and until then the seal may stand over bytes that it half wrote (below).
 * One that was CONSUMED for a launch that is not done is sealed when that launch has come again,
 * however it ends: it wrote a part, of which the head knows what became, and the others are as
 * right as they were.
 *
 * HALF WRITTEN, AND SEALED. Launch n writes a box of the buffer when the worker dies, and a later one
 * had marked it as CONSUMED and was not published. It is sealed at once, for those who read other
 * boxes of it; n's may hold anything until n has come again, or for good if that fails then. Nobody
 * sees that, because nobody reads by the seal alone:
 *
 *   clients    are told of a box when all that write there are over, and what they were told of
 *              nobody overwrites as long as they hold it. So theirs are the other boxes
 *   launches   here and on other devices wait for the word of who writes what they read
 *   relief     (starve.c) copies what no unfinished launch uses
 *   the head   knows by boxes what failed, also where the table says sealed
 *   recovery   after another death finds n unfinished again, whatever the state
 *
 * A buffer that was RETIRED, or DOOMED, may share bytes with another one that was put there behind
 * its last use (reuse.c). Both stay where they are: those of the others are taken first, and of
 * these what is left.
 *
 * A launch that is over and failed is marked in the ring. Its report may have died with the worker,
 * so it counts as unfinished; when it comes again it fails again, and nothing else happens.
 *
 * The head sends every unfinished launch again, in order, under its old number (as SKIP when it
 * cannot be repeated), then goes on after the last published one. One that it leaves out is over
 * for it (its failure was reported); others may wait for its word all the same, so it is passed as
 * SKIP here. What had been done already is dropped.
 */
#include "worker/core_int.h"

#include "base/fault.h"
#include "base/log.h"

/* ------------------------------------------------------------------------------ buffers */

static bool entry_right(const struct worker_core *core, const struct store_entry *entry,
                        uint32_t state, uint64_t enqueued)
{
    if (entry->seq == WORKER_SEQ_NEVER) {
        return false;
    }
    if (entry->seq > enqueued) {
        return state == STORE_CONSUMED;
    }
    if (pl_bug("worker.seal_early")) {
        return true;
    }
    return store_timeline_done(core->timeline, entry->seq) &&
           !store_timeline_failed(core->timeline, entry->seq);
}

static plasmon_status_t entry_recover(struct worker_core *core, uint32_t slot,
                                      uint32_t state, uint64_t enqueued)
{
    const struct store_entry *entry = &core->table->entries[slot];
    plasmon_status_t status;
    uint32_t *doomed;

    /* A death inside store_table_consume() leaves an old checksum, and everything right but perhaps seq. */
    if (state > STORE_RETIRED ||
        (state == STORE_SEALED && slot % 4 == 0 && pl_bug("worker.sealed_given_up")) ||
        (state != STORE_CONSUMED && entry->checksum != store_entry_checksum(entry))) {
        status = PLASMON_EMALFORMED;
    } else if (state == STORE_RETIRED || state == STORE_DOOMED) {
        status = worker_reuse_recover(core, slot);
    } else {
        status = store_arena_take(core->arena, entry->offset, entry->bytes);
    }
    if (status == PLASMON_ENOMEM) {
        return status;
    }
    if (status != PLASMON_OK) { /* half written when the worker died */
        pl_warn("worker", "slot %u generation %u does not make sense (%s) and is given up",
                slot, entry->generation, pl_status_name(status));
        store_table_doom(core->table, slot);
        store_table_free(core->table, slot);
        return PLASMON_OK;
    }

    if ((entry->flags & STORE_ENTRY_REPLICA) != 0) {
        core->bytes_replica += entry->bytes;
    }
    if (state == STORE_DOOMED) {
        doomed = pl_vec_push(&core->doomed);
        if (doomed == NULL) {
            return PLASMON_ENOMEM;
        }
        *doomed = slot;
    } else if (state != STORE_SEALED && state != STORE_RETIRED &&
               entry_right(core, entry, state, enqueued) && !pl_bug("worker.seal_lost")) {
        store_table_seal(core->table, slot);
    } else if (state == STORE_CONSUMED && entry->seq != WORKER_SEQ_NEVER) {
        return worker_buffers_interrupted(core, slot);
    }
    return PLASMON_OK;
}

static plasmon_status_t entries_recover(struct worker_core *core, uint64_t enqueued,
                                        bool ending)
{
    uint32_t end            = worker_slot_end(core);
    plasmon_status_t status = PLASMON_OK;

    for (uint32_t slot = 0; status == PLASMON_OK && slot < end; slot++) {
        uint32_t state = worker_entry_state(&core->table->entries[slot]);

        if (state != STORE_FREE &&
            (state == STORE_RETIRED || state == STORE_DOOMED) == ending) {
            status = entry_recover(core, slot, state, enqueued);
        }
    }
    return status;
}

static plasmon_status_t table_recover(struct worker_core *core, uint64_t enqueued)
{
    plasmon_status_t status = entries_recover(core, enqueued, false);

    return status == PLASMON_OK ? entries_recover(core, enqueued, true) : status;
}

/* ----------------------------------------------------------------------------- launches */

static plasmon_status_t unfinished_find(struct worker_core *core, uint64_t enqueued)
{
    uint64_t first          = enqueued < STORE_RING ? 1 : enqueued - STORE_RING + 1;
    plasmon_status_t status = PLASMON_OK;

    for (uint64_t seq = first; status == PLASMON_OK && seq <= enqueued; seq++) {
        uint32_t stream = store_ring_stream(core->timeline->ring[seq % STORE_RING]);

        if (!store_timeline_done(core->timeline, seq)) {
            store_timeline_mark(core->timeline, seq, false); /* it gets another chance */
        } else if (!store_timeline_failed(core->timeline, seq) &&
                   !pl_bug("worker.done_again")) {
            continue;
        }
        if (stream >= core->stream_count) {
            pl_error("worker", "launch %llu was on stream %u, but there are only %u now",
                     (unsigned long long)seq, stream, core->stream_count);
            return PLASMON_EINTERNAL;
        }
        status = wire_ranges_add(&core->unfinished, seq);
    }
    return status;
}

plasmon_status_t worker_core_recover(struct worker_core *core, uint64_t *out_enqueued,
                                     struct wire_ranges *out_unfinished,
                                     struct wire_ranges *out_untouched)
{
    uint64_t enqueued = __atomic_load_n(&core->timeline->enqueued, __ATOMIC_ACQUIRE);
    plasmon_status_t status;

    for (uint32_t i = 0; i < core->stream_count; i++) {
        core->streams[i].last = worker_stream_word(core, i);
    }
    core->recovered = enqueued;
    if (enqueued >= WORKER_SEQ_NEVER) {
        pl_error("worker",
                 "the timeline says that %llu launches were enqueued: it was "
                 "overwritten",
                 (unsigned long long)enqueued);
        return PLASMON_EINTERNAL;
    }

    status = table_recover(core, enqueued);
    if (status == PLASMON_OK) {
        status = unfinished_find(core, enqueued);
    }
    if (status == PLASMON_OK) {
        status = worker_begun_recover(core, out_untouched);
    }
    for (size_t i = 0; status == PLASMON_OK && i < core->unfinished.items.count; i++) {
        const struct wire_range *from = pl_vec_at(&core->unfinished.items, i);
        struct wire_range *to         = pl_vec_push(&out_unfinished->items);

        if (to == NULL) {
            return PLASMON_ENOMEM;
        }
        *to = *from;
    }
    if (status == PLASMON_OK) {
        *out_enqueued = enqueued;
    }
    return status;
}

/* ------------------------------------------------------------------------------ numbers */

/* The next launch that must come again; 0: none. */
static uint64_t unfinished_next(const struct worker_core *core)
{
    const struct wire_range *range;

    if (core->unfinished_next >= core->unfinished.items.count) {
        return 0;
    }
    range = pl_vec_at(&core->unfinished.items, core->unfinished_next);
    return range->first + core->unfinished_offset;
}

static void unfinished_pop(struct worker_core *core)
{
    const struct wire_range *range =
        pl_vec_at(&core->unfinished.items, core->unfinished_next);

    core->unfinished_offset++;
    if (core->unfinished_offset == range->count) {
        core->unfinished_offset = 0;
        core->unfinished_next++;
    }
}

static plasmon_status_t skip_queue(struct worker_core *core, uint64_t seq,
                                   struct pl_err *err)
{
    Plasmon__V1__Launch message = PLASMON__V1__LAUNCH__INIT;
    struct worker_launch *launch;
    plasmon_status_t status;

    message.seq  = seq;
    message.kind = PLASMON__V1__LAUNCH_KIND__LAUNCH_SKIP;
    status       = worker_launch_create(core, &message, &launch, err);
    if (status == PLASMON_OK) {
        launch->queued_ns = core->command_ns;
        worker_fifo_push(&core->queue, launch);
    }
    return status;
}

static plasmon_status_t skip_until(struct worker_core *core, uint64_t seq,
                                   struct pl_err *err)
{
    plasmon_status_t status = PLASMON_OK;

    for (uint64_t again                                           = unfinished_next(core);
         again != 0 && again < seq && status == PLASMON_OK; again = unfinished_next(core)) {
        status         = skip_queue(core, again, err);
        core->received = again;
        unfinished_pop(core);
    }
    return status;
}

plasmon_status_t worker_recover_accept(struct worker_core *core, uint64_t seq,
                                       bool *out_take, struct pl_err *err)
{
    uint64_t dense = pl_max_u64(core->received, core->recovered) + 1;
    plasmon_status_t status;

    *out_take = false;
    if (seq <= core->received) {
        return PLASMON_OK; /* taken over before */
    }
    if (seq > dense) {
        return pl_err_set(err, PLASMON_EMALFORMED, "launch %llu came when %llu was due",
                          (unsigned long long)seq, (unsigned long long)dense);
    }

    status = skip_until(core, seq, err);
    if (status != PLASMON_OK) {
        return status;
    }
    if (seq == unfinished_next(core)) {
        unfinished_pop(core);
        *out_take = true;
    } else {
        *out_take = seq == dense; /* otherwise it was done before the restart */
    }
    return PLASMON_OK;
}

void worker_core_forget(struct worker_core *core)
{
    struct pl_err err;

    if (skip_until(core, UINT64_MAX, &err) != PLASMON_OK) {
        pl_error("worker", "%s", err.text);
    }
    worker_buffers_free_all(core);
    worker_core_advance(core);
    worker_checked_forget(core); /* the next head gives the same ids to other functions */
    worker_graphs_finish(core); /* of the head that is gone; launches of them keep theirs */
}
