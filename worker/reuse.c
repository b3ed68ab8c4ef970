/*
 * Memory that is used again in stream order: before the host has seen that what was in it is over.
 *
 * RETIRED. The head says of a buffer that no launch will name it any more: its refs are gone, and
 * all that is left are launches of this device that it has sent. When the last of them is enqueued,
 * the buffer waits in `retired`, oldest first. As long as there is memory nothing else happens, and
 * the `free` that comes when they are done returns its bytes. When memory is short
 * (worker_memory_take), its bytes go back to the arena at once, and `reused` remembers which
 * launches they must come after. A block that is handed out there takes these on: its launch enters
 * its stream behind them (streams.c).
 *
 * WHO USES IT must be found before its memory goes. Where only memory that is free for the launch's
 * own stream is looked for, which may be for every block that a program makes, the streams that its
 * launches went to (`used_by`) and the last launch of all tell: a stream whose word has reached
 * that one, or its own last launch, uses it no more. When a device is full, who uses it is looked
 * up among all launches that run.
 *
 * WHY A CRASH LOSES NOTHING. After a crash, launches that no word shows as done run again, and need
 * their inputs again. So the launch that overwrites comes behind the others' WORD, not just behind
 * their work: while it has not begun, they find everything as it was; when it has begun, the word
 * covers them and they never run again. (So it does in a stream whose words are late: core.h,
 * settle().) The table still has the entry of the retired buffer (STORE_RETIRED) until the head
 * frees it, and two entries may share bytes. A new incarnation keeps both where they are
 * (recover.c): peers have copies of the new one in their streams, from where it lies. Everything
 * comes again one at a time and in order, so first the old content is read, then the new one
 * written.
 *
 * WHO MAY NOT READ IT ANY MORE. Other devices: the head retires nothing that a launch of another
 * device uses. Clients: the entry says RETIRED before the pins are scanned, as when it is doomed;
 * what is pinned keeps its bytes until it is freed. Memory that clients write, now and without a
 * stream, is never taken from here before the host has seen the word.
 *
 * SCRATCH has no content before its launch nor after it. The next launch of the same stream that
 * wants no more takes it over as it is, with nothing to wait for. After a crash a launch gets
 * scratch anew, and there is some: that of the dead incarnation went to nothing but scratch until
 * its last launch was done, so nothing in the table lies there.
 *
 * Seeded bugs: worker.reuse_at_once (not behind them at all), worker.reuse_unsaid (behind their
 * work, not their word).
 */
#include "worker/core_int.h"

#include "base/fault.h"
#include "base/log.h"

#include <string.h>

#define USE_RETIRED (UINT64_C(1) << 63) /* bits of core->last_use; the rest is a seq */
#define USE_GIVEN   (UINT64_C(1) << 62)
#define USE_SEQ     (USE_GIVEN - 1)

/* stale entries at the front of `retired` before they are moved out */
#define RESTING_MAX 4096u

struct retired {
    uint32_t slot;
    uint32_t generation;
};

/* Bytes of a retired buffer that the arena has again. */
struct reused {
    uint64_t offset;
    uint64_t bytes;
    /* last launch of each stream that uses what was there; 0: none */
    uint64_t behind[STORE_STREAM_MAX];
};

/* A part of a buffer that an earlier incarnation had retired, and that nothing else lies in. */
struct rest {
    uint32_t slot;
    uint64_t offset;
    uint64_t bytes;
};

/*
 * And where such a buffer lies. Two of them may share bytes, if the second had got its memory from
 * the first and was retired, too: what is left of the first is taken under its name, and must stay
 * until the second is over.
 */
struct recovered {
    uint32_t slot;
    uint64_t offset;
    uint64_t bytes;
};

struct scratch {
    uint64_t offset;
    uint64_t bytes;
    uint64_t last; /* launch that uses it; it goes with that one */
    uint32_t stream;
};

bool worker_reuse_create(struct worker_core *core)
{
    core->retired   = PL_VEC_INIT(struct retired);
    core->reused    = PL_VEC_INIT(struct reused);
    core->rests     = PL_VEC_INIT(struct rest);
    core->heirs     = PL_VEC_INIT(struct recovered);
    core->scratches = PL_VEC_INIT(struct scratch);
    core->last_use  = PL_NEW_N(uint64_t, STORE_TABLE_SLOTS);
    core->used_by   = PL_NEW_N(uint16_t, STORE_TABLE_SLOTS);
    return core->last_use != NULL && core->used_by != NULL;
}

void worker_reuse_destroy(struct worker_core *core)
{
    pl_vec_finish(&core->retired);
    pl_vec_finish(&core->reused);
    pl_vec_finish(&core->heirs);
    pl_vec_finish(&core->rests);
    pl_vec_finish(&core->scratches);
    pl_free(core->last_use);
    pl_free(core->used_by);
}

/* ------------------------------------------------------------------------ who uses what */

/*
 * As long as nobody said which device that is, it may be we: then too much counts as used, never
 * too little.
 */
static bool piece_local(const struct worker_core *core, const struct worker_piece *piece)
{
    uint32_t host_device = worker_host_device_of(core, wire_buffer_device(piece->src));

    return host_device == core->config.host_device || host_device == WORKER_DEVICE_PENDING;
}

static void use_note(struct worker_core *core, uint32_t slot, uint64_t seq)
{
    core->last_use[slot] = (core->last_use[slot] & USE_GIVEN) | seq;
}

void worker_reuse_note(struct worker_core *core, const struct worker_launch *launch)
{
    for (uint32_t i = 0; i < launch->operand_count; i++) {
        use_note(core, launch->operands[i].slot, launch->seq);
    }
    for (uint32_t i = 0; i < launch->piece_count; i++) {
        if (piece_local(core, &launch->pieces[i])) {
            use_note(core, wire_buffer_slot(launch->pieces[i].src), launch->seq);
        }
    }
}

bool worker_launch_uses(const struct worker_core *core, const struct worker_launch *launch,
                        uint32_t slot, uint32_t generation)
{
    for (uint32_t i = 0; i < launch->operand_count; i++) {
        if (launch->operands[i].slot == slot &&
            launch->operands[i].generation == generation) {
            return true;
        }
    }
    for (uint32_t i = 0; i < launch->piece_count; i++) {
        uint64_t src = launch->pieces[i].src;

        if (wire_buffer_slot(src) == slot && wire_buffer_generation(src) == generation &&
            piece_local(core, &launch->pieces[i])) {
            return true;
        }
    }
    return false;
}

void worker_reuse_new(struct worker_core *core, uint32_t slot)
{
    core->used_by[slot] = 0;
}

static_assert(STORE_STREAM_MAX <= 8 * sizeof(uint16_t), "a bit for each stream");

/* The last launch of the stream up to that one; one that is over, or 0: none of those is left. */
static uint64_t last_until(const struct worker_stream *stream, uint64_t seq)
{
    uint64_t last = 0;

    if (stream->last <= seq) {
        return stream->last;
    }
    for (const struct worker_launch *launch           = stream->running.first;
         launch != NULL && launch->seq <= seq; launch = launch->next) {
        last = launch->seq;
    }
    return last;
}

/* No stream but this one uses it any more; what this one must be through with first. */
static bool only_used_in(const struct worker_core *core, uint32_t slot, uint32_t stream,
                         uint64_t out_behind[STORE_STREAM_MAX])
{
    uint64_t last = core->last_use[slot] & USE_SEQ;

    memset(out_behind, 0, STORE_STREAM_MAX * sizeof(*out_behind));
    for (uint32_t i = 0; i < core->stream_count; i++) {
        uint64_t until =
            (core->used_by[slot] & 1u << i) != 0 ? last_until(&core->streams[i], last) : 0;

        if (worker_stream_word(core, i) >= until) {
            continue;
        }
        if (i != stream) {
            return false;
        }
        out_behind[i] = until;
    }
    return true;
}

/* The last launch of each stream that uses it and is not done. */
static void users_find(const struct worker_core *core, const struct retired *retired,
                       uint64_t out_behind[STORE_STREAM_MAX])
{
    memset(out_behind, 0, STORE_STREAM_MAX * sizeof(*out_behind));
    for (uint32_t i = 0; i < core->stream_count; i++) {
        uint64_t word = worker_stream_word(core, i);

        for (const struct worker_launch *launch = core->streams[i].running.first;
             launch != NULL; launch             = launch->next) {
            if (launch->seq > word &&
                worker_launch_uses(core, launch, retired->slot, retired->generation)) {
                out_behind[i] = launch->seq;
            }
        }
    }
}

/* ------------------------------------------------------------------------------ retired */

static void retired_push(struct worker_core *core, uint32_t slot, uint32_t generation)
{
    struct retired *retired = pl_vec_push(&core->retired);

    if (retired != NULL) { /* else it goes when it is freed */
        *retired = (struct retired){.slot = slot, .generation = generation};
    }
}

void worker_reuse_retire(struct worker_core *core, uint64_t buffer)
{
    uint32_t slot = wire_buffer_slot(buffer);
    uint64_t seq;

    if (slot >= STORE_TABLE_SLOTS) {
        return;
    }
    seq = core->last_use[slot] & USE_SEQ;
    if (seq <= core->recovered) {
        return; /* what is done over goes when it is freed */
    }
    core->last_use[slot] |= USE_RETIRED;
    if (core->queue.first == NULL || core->queue.first->seq > seq) {
        retired_push(core, slot, wire_buffer_generation(buffer));
    }
}

static void used(struct worker_core *core, const struct worker_launch *launch,
                 uint32_t slot, uint32_t generation)
{
    core->used_by[slot] |= (uint16_t)(1u << launch->stream);
    if (core->last_use[slot] == (launch->seq | USE_RETIRED)) {
        retired_push(core, slot, generation);
    }
}

void worker_reuse_enqueued(struct worker_core *core, const struct worker_launch *launch)
{
    for (uint32_t i = 0; i < launch->operand_count; i++) {
        used(core, launch, launch->operands[i].slot, launch->operands[i].generation);
    }
    for (uint32_t i = 0; i < launch->piece_count; i++) {
        uint64_t src = launch->pieces[i].src;

        if (piece_local(core, &launch->pieces[i])) {
            used(core, launch, wire_buffer_slot(src), wire_buffer_generation(src));
        }
    }
}

/* It is still there, and nobody has given its memory away. */
static const struct store_entry *retired_entry(const struct worker_core *core,
                                               const struct retired *retired)
{
    const struct store_entry *entry = worker_buffer_find(
        core, core->config.host_device, retired->slot, retired->generation);

    return entry != NULL && (core->last_use[retired->slot] & USE_GIVEN) == 0 &&
                   worker_entry_state(entry) != STORE_RETIRED
               ? entry
               : NULL;
}

/* Without those at the front that were freed meanwhile; NULL: there is none. */
static const struct retired *retired_first(struct worker_core *core)
{
    while (core->retired_first < core->retired.count) {
        const struct retired *retired = pl_vec_at(&core->retired, core->retired_first);

        if (retired_entry(core, retired) != NULL) {
            return retired;
        }
        core->retired_first++;
    }
    pl_vec_clear(&core->retired);
    core->retired_first = 0;
    return NULL;
}

void worker_reuse_tidy(struct worker_core *core)
{
    size_t left;

    if (core->retired.count == 0 || retired_first(core) == NULL ||
        core->retired_first < RESTING_MAX) {
        return;
    }
    left = core->retired.count - core->retired_first;
    memmove(core->retired.items, pl_vec_at(&core->retired, core->retired_first),
            left * sizeof(struct retired));
    core->retired.count = left;
    core->retired_first = 0;
}

bool worker_reuse_more(struct worker_core *core, uint32_t stream)
{
    const struct retired *first = retired_first(core);
    const struct store_entry *entry;
    struct reused *reused;
    struct reused next;
    uint32_t slot;

    if (first == NULL) {
        return false;
    }
    slot  = first->slot;
    entry = retired_entry(core, first);
    next  = (struct reused){.offset = entry->offset,
                            .bytes  = store_arena_rounded(entry->bytes)};
    if (stream == WORKER_ANY_STREAM) {
        users_find(core, first, next.behind);
    } else if (!only_used_in(core, slot, stream, next.behind)) {
        return false;
    }
    reused = pl_vec_push(&core->reused);
    if (reused == NULL) {
        return false;
    }
    *reused = next;
    core->retired_first++;

    store_table_retire(core->table, slot);
    if (worker_slot_pinned(core, slot)) { /* it goes when it is freed */
        pl_vec_pop(&core->reused);
        return true;
    }
    core->last_use[slot] |= USE_GIVEN;
    store_arena_free(core->arena, next.offset);
    return true;
}

/* ------------------------------------------------------------------------------- reused */

static bool reused_over(const struct worker_core *core, const struct reused *reused)
{
    for (uint32_t i = 0; i < core->stream_count; i++) {
        if (reused->behind[i] > worker_stream_word(core, i)) {
            return false;
        }
    }
    return true;
}

static bool reused_meets(const struct reused *reused, uint64_t offset, uint64_t bytes)
{
    return reused->offset < offset + bytes && offset < reused->offset + reused->bytes;
}

bool worker_reuse_clear(const struct worker_core *core, uint64_t offset, uint64_t bytes)
{
    for (size_t i = 0; i < core->reused.count; i++) {
        const struct reused *reused = pl_vec_at(&core->reused, i);

        if (reused_meets(reused, offset, bytes) && !reused_over(core, reused)) {
            return false;
        }
    }
    return true;
}

void worker_reuse_behind(struct worker_core *core, uint64_t offset, uint64_t bytes)
{
    for (size_t i = 0; i < core->reused.count; i++) {
        const struct reused *reused = pl_vec_at(&core->reused, i);

        if (!reused_meets(reused, offset, bytes)) {
            continue;
        }
        for (uint32_t s = 0; s < core->stream_count; s++) {
            core->behind[s] = pl_max_u64(core->behind[s], reused->behind[s]);
        }
    }
}

void worker_reuse_done(struct worker_core *core)
{
    for (size_t i = core->reused.count; i-- > 0;) {
        if (reused_over(core, pl_vec_at(&core->reused, i))) {
            pl_vec_remove_unordered(&core->reused, i);
            core->freed_count++; /* what a client writes may lie there now */
        }
    }
}

/* -------------------------------------------------------------------------------- freed */

static void recovered_forget(struct worker_core *core, uint32_t slot)
{
    for (size_t i = core->heirs.count; i-- > 0;) {
        if (((const struct recovered *)pl_vec_at(&core->heirs, i))->slot == slot) {
            pl_vec_remove_unordered(&core->heirs, i);
        }
    }
}

/* Another one that lies there, too. NULL: none. */
static const struct recovered *recovered_meets(const struct worker_core *core,
                                               const struct rest *rest)
{
    for (size_t i = 0; i < core->heirs.count; i++) {
        const struct recovered *other = pl_vec_at(&core->heirs, i);

        if (other->offset < rest->offset + rest->bytes &&
            rest->offset < other->offset + other->bytes) {
            return other;
        }
    }
    return NULL;
}

bool worker_reuse_given(struct worker_core *core, uint32_t slot)
{
    if ((core->last_use[slot] & USE_GIVEN) == 0) {
        return false;
    }
    core->last_use[slot] &= ~USE_GIVEN;
    recovered_forget(core, slot);
    for (size_t i = core->rests.count; i-- > 0;) {
        struct rest *rest = pl_vec_at(&core->rests, i);
        const struct recovered *other =
            rest->slot == slot ? recovered_meets(core, rest) : NULL;

        if (other != NULL) {
            rest->slot = other->slot;
        } else if (rest->slot == slot) {
            store_arena_free(core->arena, rest->offset);
            pl_vec_remove_unordered(&core->rests, i);
        }
    }
    return true;
}

bool worker_reuse_is_given(const struct worker_core *core, uint32_t slot)
{
    return (core->last_use[slot] & USE_GIVEN) != 0;
}

void worker_reuse_account(const struct worker_core *core, struct worker_account *io_account)
{
    for (size_t i = 0; i < core->rests.count; i++) {
        io_account->rests += ((const struct rest *)pl_vec_at(&core->rests, i))->bytes;
    }
    for (size_t i = 0; i < core->scratches.count; i++) {
        io_account->scratch +=
            ((const struct scratch *)pl_vec_at(&core->scratches, i))->bytes;
    }
}

plasmon_status_t worker_reuse_recover(struct worker_core *core, uint32_t slot)
{
    const struct store_entry *entry = &core->table->entries[slot];
    struct pl_vec parts             = PL_VEC_INIT(struct store_arena_part);
    plasmon_status_t status =
        store_arena_take_rest(core->arena, entry->offset, entry->bytes, &parts);
    struct recovered *recovered = pl_vec_push(&core->heirs);

    if (recovered == NULL) {
        status = status == PLASMON_OK ? PLASMON_ENOMEM : status;
    } else {
        *recovered = (struct recovered){.slot   = slot,
                                        .offset = entry->offset,
                                        .bytes  = store_arena_rounded(entry->bytes)};
    }
    core->last_use[slot] |= USE_GIVEN;
    for (size_t i = 0; i < parts.count; i++) {
        const struct store_arena_part *part = pl_vec_at(&parts, i);
        uint64_t offset                     = part->offset;
        struct rest *rest = status == PLASMON_OK ? pl_vec_push(&core->rests) : NULL;

        if (rest == NULL) {
            status = status == PLASMON_OK ? PLASMON_ENOMEM : status;
            store_arena_free(core->arena, offset);
        } else {
            *rest = (struct rest){.slot = slot, .offset = offset, .bytes = part->bytes};
        }
    }
    pl_vec_finish(&parts);
    if (status != PLASMON_OK) { /* it is given up, and nobody will free it */
        (void)worker_reuse_given(core, slot);
    }
    return status;
}

/* ------------------------------------------------------------------------------ scratch */

bool worker_scratch_take(struct worker_core *core, struct worker_launch *launch,
                         uint32_t stream)
{
    struct scratch *best = NULL;

    for (size_t i = 0; i < core->scratches.count; i++) {
        struct scratch *scratch = pl_vec_at(&core->scratches, i);

        if (scratch->stream == stream && scratch->bytes >= launch->scratch_wanted &&
            (best == NULL || scratch->bytes < best->bytes)) {
            best = scratch;
        }
    }
    if (best == NULL) {
        return false;
    }
    launch->scratch_offset = best->offset;
    launch->scratch_bytes  = launch->scratch_wanted;
    launch->scratch_shared = true;
    launch->scratch_before = best->last;
    best->last             = launch->seq;
    return true;
}

void worker_scratch_lend(struct worker_core *core, struct worker_launch *launch,
                         uint32_t stream)
{
    struct scratch *scratch;

    if (launch->scratch_bytes == 0 || launch->scratch_shared || launch->graph != NULL) {
        return;
    }
    scratch = pl_vec_push(&core->scratches);
    if (scratch == NULL) {
        return; /* returned when the launch is done */
    }
    *scratch               = (struct scratch){.offset = launch->scratch_offset,
                                              .bytes  = store_arena_rounded(launch->scratch_bytes),
                                              .last   = launch->seq,
                                              .stream = stream};
    launch->scratch_shared = true;
}

static struct scratch *scratch_find(struct worker_core *core, uint64_t last,
                                    size_t *out_index)
{
    for (size_t i = 0; i < core->scratches.count; i++) {
        struct scratch *scratch = pl_vec_at(&core->scratches, i);

        if (scratch->last == last) {
            *out_index = i;
            return scratch;
        }
    }
    return NULL;
}

static void scratch_return(struct worker_core *core, size_t index)
{
    const struct scratch *scratch = pl_vec_at(&core->scratches, index);
    uint64_t offset               = scratch->offset;

    pl_vec_remove_unordered(&core->scratches, index);
    worker_arena_return(core, offset);
}

/* The launch before it may have ended meanwhile, and then nobody else returns it. */
void worker_scratch_undo(struct worker_core *core, struct worker_launch *launch)
{
    size_t index;
    struct scratch *scratch = scratch_find(core, launch->seq, &index);
    const struct worker_launch *running;

    launch->scratch_shared = false;
    launch->scratch_bytes  = 0;
    if (scratch == NULL) {
        return;
    }
    running       = core->streams[scratch->stream].running.first;
    scratch->last = launch->scratch_before;
    if (running == NULL || running->seq > scratch->last) {
        scratch_return(core, index);
    }
}

void worker_scratch_done(struct worker_core *core, const struct worker_launch *launch)
{
    size_t index;

    if (scratch_find(core, launch->seq, &index) != NULL) {
        scratch_return(core, index);
    }
}
