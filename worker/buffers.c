/*
 * The buffers of a launch: memory from the arena, entries in the table, and when each may change.
 *
 *   fresh        ENTRY free -> WRITING when the launch reaches the front (all its memory or none), SEALED when it is done
 *   overwritten  SEALED -> CONSUMED when it reaches the front, before it is published, and not published before every reader has
 *                let go; SEALED again when it is done
 *   freed        DOOMED, and back to the arena when no reader holds it
 *
 * AN ENTRY'S SEQ is the launch that makes its bytes right: after a crash, an entry whose launch the
 * timeline shows done is sealed. So what no single launch makes right (memory that a client writes,
 * a put in parts, what a failed launch spoiled) bears WORKER_SEQ_NEVER until the launch that
 * completes it takes it over.
 *
 * SEVERAL WRITERS of one buffer may run at the same time (disjoint boxes) or one after the other.
 * It is sealed when the last of them has ended and at least one of them ended well; which boxes are
 * right the head knows.
 *
 * `writers` counts, a slot, the launches that have marked it and are not done.
 *
 * If a launch fails before it was published, all this is undone: what it allocated is free again,
 * what it consumed is sealed again, for nothing was enqueued that could have touched it.
 */
#include "worker/core_int.h"

#include "base/fault.h"
#include "base/log.h"

#include <assert.h>
#include <string.h>

#define WRITERS_ENDED_WELL 0x8000u
#define KIND_MAPPABLE      1u /* DEVICE_CPU */
#define REUSE_TRIES        16u /* retired buffers for one block before the arena grows instead */

const struct store_entry *worker_buffer_find(const struct worker_core *core,
                                             uint32_t host_device, uint32_t slot,
                                             uint32_t generation)
{
    const struct store_table *table = core->config.tables[host_device];
    const struct store_entry *entry;
    uint32_t state;

    if (table == NULL || slot >= STORE_TABLE_SLOTS) {
        return NULL;
    }
    entry = &table->entries[slot];
    state = worker_entry_state(entry);
    if (state == STORE_FREE || state == STORE_DOOMED || entry->generation != generation) {
        return NULL;
    }
    return entry;
}

/* A reader whose page we were not given yet may hold anything. */
bool worker_slot_pinned(const struct worker_core *core, uint32_t slot)
{
    if (core->config.reader_epoch != NULL &&
        __atomic_load_n(&core->timeline->reader_epoch, __ATOMIC_SEQ_CST) >
            *core->config.reader_epoch) {
        return true;
    }
    if (core->config.ops->written != NULL &&
        core->config.ops->written(core->config.user, slot)) {
        return true;
    }
    return store_table_pinned(core->table, slot, core->config.readers,
                              core->config.readers_end != NULL ? *core->config.readers_end
                                                               : STORE_READER_MAX);
}

void worker_arena_return(struct worker_core *core, uint64_t offset)
{
    core->freed_count++;
    if (!pl_bug("worker.early_free")) { /* then it was returned already */
        store_arena_free(core->arena, offset);
    }
}

/* Returns where its memory is, which is the caller's now. */
static uint64_t entry_clear(struct worker_core *core, uint32_t slot)
{
    const struct store_entry *entry = &core->table->entries[slot];
    uint64_t offset                 = entry->offset;

    if ((entry->flags & STORE_ENTRY_REPLICA) != 0) {
        core->bytes_replica -= pl_min_u64(entry->bytes, core->bytes_replica);
    }
    core->writers[slot] = 0;
    store_table_free(core->table, slot);
    return offset;
}

/* The slot is free, and its memory, unless that went before. */
static void slot_end(struct worker_core *core, uint32_t slot)
{
    uint64_t offset = entry_clear(core, slot);

    if (worker_reuse_given(core, slot)) {
        core->freed_count++;
    } else {
        worker_arena_return(core, offset);
    }
}

/* ------------------------------------------------------------------------------- memory */

static plasmon_status_t memory_grow(struct worker_core *core, uint32_t pool, uint64_t bytes,
                                    uint64_t *out_offset)
{
    plasmon_status_t status = PLASMON_EAGAIN;

    if (!core->growing) {
        status = core->config.ops->grow(core->config.user, pool,
                                        store_arena_missing(core->arena, pool, bytes));
    }
    if (status == PLASMON_EAGAIN) {
        core->growing = core->waits_chunk = true;
    }
    return status == PLASMON_OK ? store_arena_alloc(core->arena, pool, bytes, out_offset)
                                : status;
}

/*
 * A device that is full gives results what clients may write, too, if nothing is there: a client
 * that scribbles over memory that it was not given would find results as it finds other clients'
 * puts. And a put gets what results had: its client finds a chunk that it may not write, gives the
 * buffer back and sends the bytes (client/put.c). Otherwise a CPU device that results once filled
 * could never again take a put.
 */
static plasmon_status_t alloc_anywhere(struct worker_core *core, uint32_t pool,
                                       uint64_t bytes, uint64_t *out_offset)
{
    plasmon_status_t status = store_arena_alloc(core->arena, pool, bytes, out_offset);

    return status == PLASMON_EDEVMEM
               ? store_arena_alloc(core->arena, pool == 0 ? 1 : 0, bytes, out_offset)
               : status;
}

/*
 * What is free; what is retired and free for this launch's stream; more of the device's memory;
 * what is retired at all. Waiting on the device for another stream costs more than memory that
 * nobody wants. EAGAIN: a chunk is on its way (waits_chunk).
 */
static plasmon_status_t memory_find(struct worker_core *core, struct worker_launch *launch,
                                    uint32_t pool, uint64_t bytes, uint64_t *out_offset)
{
    plasmon_status_t status = store_arena_alloc(core->arena, pool, bytes, out_offset);

    if (status == PLASMON_EDEVMEM && core->retired.count != 0) {
        uint32_t stream = worker_stream_choose(core, launch);

        for (unsigned i = 0; i < REUSE_TRIES && status == PLASMON_EDEVMEM &&
                             worker_reuse_more(core, stream);
             i++) {
            status = store_arena_alloc(core->arena, pool, bytes, out_offset);
        }
    }
    if (status == PLASMON_EDEVMEM) {
        status = memory_grow(core, pool, bytes, out_offset);
    }
    if (status == PLASMON_EDEVMEM) {
        status = alloc_anywhere(core, pool, bytes, out_offset);
    }
    while (status == PLASMON_EDEVMEM && worker_reuse_more(core, WORKER_ANY_STREAM)) {
        status = alloc_anywhere(core, pool, bytes, out_offset);
    }
    return status;
}

/*
 * The front is going to write there: what still uses the memory comes before it. Each writer of a
 * buffer must see to that; two that write disjoint boxes know nothing of each other. EDEVMEM: it is
 * not over, and whoever writes (a client, the lane of a pair) does not wait for the launch's
 * stream. In a moment it will be (worker_reuse_done).
 */
static plasmon_status_t memory_enter(struct worker_core *core,
                                     const struct worker_launch *launch,
                                     const struct worker_operand *operand, uint64_t offset,
                                     uint64_t bytes)
{
    bool at_once = (operand != NULL && operand->client_writes) || launch->comm != 0;

    if (at_once && !worker_reuse_clear(core, offset, bytes)) {
        return PLASMON_EDEVMEM;
    }
    worker_reuse_behind(core, offset, bytes);
    return PLASMON_OK;
}

/* operand: NULL: scratch. */
static plasmon_status_t memory_take(struct worker_core *core, struct worker_launch *launch,
                                    const struct worker_operand *operand, uint32_t pool,
                                    uint64_t bytes, uint64_t *out_offset)
{
    bool again = operand != NULL && pool == 0 &&
                 worker_graph_memory_again(core, launch, operand, out_offset);
    plasmon_status_t status =
        again ? PLASMON_OK : memory_find(core, launch, pool, bytes, out_offset);

    if (status != PLASMON_OK) {
        return status;
    }
    status = memory_enter(core, launch, operand, *out_offset, store_arena_rounded(bytes));
    if (status != PLASMON_OK) {
        store_arena_free(core->arena, *out_offset);
    }
    return status;
}

static uint64_t writer_seq(const struct worker_launch *launch,
                           const struct worker_operand *operand)
{
    return operand->writes ? launch->seq : WORKER_SEQ_NEVER;
}

static void entry_fill(struct worker_core *core, const struct worker_launch *launch,
                       const struct worker_operand *operand)
{
    struct pl_shape frame = {.dtype = operand->arg.dtype, .ndim = operand->frame.ndim};
    uint32_t flags        = 0;

    memcpy(frame.dim, operand->frame.count, sizeof(frame.dim));
    if (operand->client_writes) {
        flags |= STORE_ENTRY_CLIENT_WRITES;
    }
    if (operand->replica) {
        flags |= STORE_ENTRY_REPLICA;
        core->bytes_replica += operand->bytes;
    }
    store_table_alloc(core->table, operand->slot, operand->generation, operand->offset,
                      &frame, flags, writer_seq(launch, operand));
}

/* A buffer that an earlier incarnation allocated for this same launch. */
static bool entry_survived(const struct store_entry *entry,
                           const struct worker_operand *operand)
{
    uint32_t state = worker_entry_state(entry);

    return state != STORE_FREE && state != STORE_DOOMED &&
           entry->generation == operand->generation && entry->bytes == operand->bytes;
}

/* Chunks that clients map writable are apart from others, where clients map anything at all. */
static uint32_t operand_pool(const struct worker_core *core,
                             const struct worker_operand *operand)
{
    return operand->client_writes && core->table->kind == KIND_MAPPABLE ? 1 : 0;
}

/* Its maker was not over: nothing says that there was ever anything right in it. */
static void interrupted_void(struct worker_core *core, uint32_t slot)
{
    core->writers[slot] &= (uint16_t)~WRITERS_ENDED_WELL;
    for (size_t i = 0; i < core->interrupted.count; i++) {
        struct worker_interrupted *was = pl_vec_at(&core->interrupted, i);

        was->right = was->right && was->slot != slot;
    }
}

/*
 * The launch that made the buffer comes again. One that does not write - an allocation, or a launch
 * that is skipped now - says nothing of what others have written there since, or are about to; only
 * what it was to write itself is never there.
 */
static void survivor_take(struct worker_core *core, const struct worker_launch *launch,
                          struct worker_operand *operand)
{
    const struct store_entry *entry = &core->table->entries[operand->slot];
    uint32_t state                  = worker_entry_state(entry);

    operand->was_sealed = state == STORE_SEALED;
    if (state == STORE_CONSUMED) {
        interrupted_void(core, operand->slot);
    }
    if (state == STORE_RETIRED) {
        return;
    }
    if (operand->writes || (state != STORE_SEALED && entry->seq == launch->seq)) {
        store_table_consume(core->table, operand->slot, writer_seq(launch, operand));
    }
}

static plasmon_status_t fresh_place(struct worker_core *core, struct worker_launch *launch,
                                    struct worker_operand *operand)
{
    const struct store_entry *entry = &core->table->entries[operand->slot];
    plasmon_status_t status;

    if (entry_survived(entry, operand)) {
        operand->offset = entry->offset;
        operand->placed = true;
        survivor_take(core, launch, operand);
        if (operand->writes) {
            core->writers[operand->slot]++;
        }
        operand->consumed = operand->writes;
        return PLASMON_OK;
    }
    if (worker_entry_state(entry) == STORE_DOOMED) {
        return PLASMON_EAGAIN; /* a reader of the slot's last buffer has not let go */
    }
    if (worker_entry_state(entry) != STORE_FREE) {
        worker_launch_fail(launch, PLASMON_EINTERNAL,
                           "slot %u for a new buffer is taken by generation %u",
                           operand->slot, entry->generation);
        return PLASMON_EINTERNAL;
    }

    status = memory_take(core, launch, operand, operand_pool(core, operand), operand->bytes,
                         &operand->offset);
    if (status == PLASMON_OK) {
        operand->placed    = true;
        operand->allocated = true;
        entry_fill(core, launch, operand);
        worker_reuse_new(core, operand->slot);
        core->writers[operand->slot] = operand->writes ? 1 : 0;
    }
    return status;
}

static plasmon_status_t existing_place(struct worker_core *core,
                                       struct worker_launch *launch,
                                       struct worker_operand *operand)
{
    const struct store_entry *entry = worker_buffer_find(
        core, core->config.host_device, operand->slot, operand->generation);

    if (entry == NULL || entry->bytes < operand->bytes) {
        worker_launch_fail(launch, PLASMON_EDEPENDENCY,
                           "buffer %u.%u is not on this device%s", operand->slot,
                           operand->generation, entry == NULL ? "" : " in that size");
        return PLASMON_EDEPENDENCY;
    }
    operand->offset = entry->offset;
    operand->placed = true;
    if (!operand->writes && launch->kind != PLASMON__V1__LAUNCH_KIND__LAUNCH_PUT) {
        return PLASMON_OK; /* who reads comes after who wrote */
    }
    return memory_enter(core, launch, operand, entry->offset,
                        store_arena_rounded(entry->bytes));
}

static plasmon_status_t scratch_place(struct worker_core *core,
                                      struct worker_launch *launch)
{
    plasmon_status_t status = PLASMON_OK;

    if (launch->scratch_wanted != 0 && launch->graph == NULL &&
        core->scratches.count != 0 &&
        worker_scratch_take(core, launch, worker_stream_choose(core, launch))) {
        return PLASMON_OK;
    }
    if (launch->scratch_wanted != 0) {
        status = memory_take(core, launch, NULL, 0, launch->scratch_wanted,
                             &launch->scratch_offset);
    }
    if (status != PLASMON_OK) {
        return status;
    }
    launch->scratch_bytes = launch->scratch_wanted;
    if (launch->graph != NULL && launch->scratch_bytes != 0) {
        worker_graph_memory_swap(launch);
    }
    return PLASMON_OK;
}

static plasmon_status_t all_place(struct worker_core *core, struct worker_launch *launch)
{
    plasmon_status_t status = PLASMON_OK;

    for (uint32_t i = 0; status == PLASMON_OK && i < launch->operand_count; i++) {
        struct worker_operand *operand = &launch->operands[i];

        status = operand->fresh ? fresh_place(core, launch, operand)
                                : existing_place(core, launch, operand);
    }
    return status == PLASMON_OK ? scratch_place(core, launch) : status;
}

/* The front found no memory before, and nothing came since. If not, it may try (again). */
static bool memory_awaited(struct worker_core *core)
{
    if ((core->waits_memory || core->waits_chunk) &&
        core->freed_count == core->starved_at) {
        return true;
    }
    core->waits_memory = core->waits_chunk = false;
    return false;
}

enum worker_buffers_result worker_buffers_place(struct worker_core *core,
                                                struct worker_launch *launch)
{
    plasmon_status_t status;

    if (memory_awaited(core)) {
        return WORKER_BUFFERS_WAIT;
    }
    status = all_place(core, launch);
    if (status == PLASMON_EDEVMEM && worker_graphs_trim(core)) {
        worker_buffers_undo(core, launch);
        status = all_place(core, launch);
    }
    if (status == PLASMON_OK) {
        launch->memory = true;
        return WORKER_BUFFERS_READY;
    }

    worker_buffers_undo(core, launch);
    switch (status) {
    case PLASMON_EDEVMEM:
        worker_front_starves(core, launch);
        return WORKER_BUFFERS_WAIT;
    case PLASMON_EAGAIN:
        core->starved_at  = core->freed_count;
        core->waits_unpin = !core->waits_chunk;
        return WORKER_BUFFERS_WAIT;
    default:
        worker_launch_fail(launch, status, "memory for it could not be had: %s",
                           pl_status_text(status));
        return WORKER_BUFFERS_READY;
    }
}

/* -------------------------------------------------------------------------- overwriting */

static uint16_t writers_of(const struct worker_core *core, uint32_t slot)
{
    return core->writers[slot] & (uint16_t)~WRITERS_ENDED_WELL;
}

static bool operand_mark(struct worker_core *core, struct worker_launch *launch,
                         struct worker_operand *operand)
{
    if (worker_buffer_find(core, core->config.host_device, operand->slot,
                           operand->generation) == NULL) {
        worker_launch_fail(launch, PLASMON_EDEPENDENCY, "buffer %u.%u was freed before it",
                           operand->slot, operand->generation);
        return false;
    }
    operand->was_sealed =
        worker_entry_state(&core->table->entries[operand->slot]) == STORE_SEALED;
    operand->consumed = true;
    if (worker_entry_state(&core->table->entries[operand->slot]) != STORE_RETIRED) {
        store_table_consume(core->table, operand->slot, launch->seq);
    } /* else it comes again after a restart, and nobody reads it afterwards but such */
    core->writers[operand->slot]++;
    return true;
}

/* Table first, then the pins: a reader that pinned before it saw CONSUMED is seen here (store/table.h). */
enum worker_buffers_result worker_buffers_consume(struct worker_core *core,
                                                  struct worker_launch *launch)
{
    for (uint32_t i = 0; i < launch->operand_count; i++) {
        struct worker_operand *operand = &launch->operands[i];

        if (operand->fresh || !operand->writes) {
            continue;
        }
        if (!operand->consumed && !operand_mark(core, launch, operand)) {
            return WORKER_BUFFERS_READY; /* failed */
        }
        if (worker_slot_pinned(core, operand->slot)) {
            core->waits_unpin = true;
            return WORKER_BUFFERS_WAIT;
        }
    }
    return WORKER_BUFFERS_READY;
}

/*
 * One writer less. The last one decides: sealed if the bytes are right, otherwise never to be
 * sealed by a restart.
 */
static void writer_leaves(struct worker_core *core, const struct worker_operand *operand,
                          bool right)
{
    const struct store_entry *entry = &core->table->entries[operand->slot];
    uint16_t *writers               = &core->writers[operand->slot];

    if (entry->generation != operand->generation || writers_of(core, operand->slot) == 0 ||
        worker_entry_state(entry) == STORE_DOOMED ||
        worker_entry_state(entry) == STORE_RETIRED) {
        return; /* freed meanwhile, or about to be: nobody wants to know */
    }
    --*writers;
    *writers |= right ? WRITERS_ENDED_WELL : 0;
    if (writers_of(core, operand->slot) != 0) {
        return;
    }
    if (*writers != 0) {
        store_table_seal(core->table, operand->slot);
    } else {
        store_table_consume(core->table, operand->slot, WORKER_SEQ_NEVER);
    }
    *writers = 0;
}

void worker_buffers_undo(struct worker_core *core, struct worker_launch *launch)
{
    for (uint32_t i = 0; i < launch->operand_count; i++) {
        struct worker_operand *operand = &launch->operands[i];

        if (operand->consumed) {
            writer_leaves(core, operand, operand->was_sealed);
        }
        if (operand->allocated) {
            store_table_doom(core->table, operand->slot); /* nobody was told of it */
            store_arena_free(core->arena, entry_clear(core, operand->slot));
        }
        operand->consumed  = false;
        operand->allocated = false;
        operand->placed    = false;
    }
    if (launch->graph_memory) {
        worker_graph_memory_swap(launch);
    }
    if (launch->scratch_shared) {
        worker_scratch_undo(core, launch);
    }
    if (launch->scratch_bytes != 0) {
        store_arena_free(core->arena, launch->scratch_offset);
        launch->scratch_bytes = 0;
    }
    memset(core->behind, 0, sizeof(core->behind));
    launch->memory = false;
}

/*
 * For a launch that failed before it had memory. A later launch may write a part of such a buffer
 * in place without depending on what this one would have put there, so the buffer is made all the
 * same if there is room; what is in it is never sealed. That goes for a skipped one, too, which
 * writes nothing: it may have failed in an earlier life, which left the buffer half written.
 */
enum worker_buffers_result worker_buffers_make_anyway(struct worker_core *core,
                                                      struct worker_launch *launch)
{
    if (memory_awaited(core)) {
        return WORKER_BUFFERS_WAIT;
    }
    for (uint32_t i = 0; i < launch->operand_count && !core->waits_chunk; i++) {
        struct worker_operand *operand = &launch->operands[i];

        if (operand->fresh && (operand->writes || launch->without_work)) {
            (void)fresh_place(core, launch, operand); /* its failure is reported already */
        }
    }
    if (core->waits_chunk) {
        worker_buffers_undo(core, launch);
        core->starved_at = core->freed_count;
        return WORKER_BUFFERS_WAIT;
    }
    return WORKER_BUFFERS_READY;
}

/* -------------------------------------------------------------------------- going, done */

void worker_buffers_enqueued(struct worker_core *core, struct worker_launch *launch)
{
    if (!pl_bug("worker.early_free")) {
        return;
    }
    for (uint32_t i = 0; i < launch->operand_count; i++) {
        if (launch->operands[i].allocated) {
            store_arena_free(core->arena, launch->operands[i].offset);
        }
    }
    if (launch->scratch_bytes != 0 && !launch->scratch_shared) {
        store_arena_free(core->arena, launch->scratch_offset);
    }
}

/* The parts that it does not write are right, whether it comes again, fails then, or is skipped. */
plasmon_status_t worker_buffers_interrupted(struct worker_core *core, uint32_t slot)
{
    struct worker_interrupted *interrupted = pl_vec_push(&core->interrupted);

    if (interrupted == NULL) {
        return PLASMON_ENOMEM;
    }
    *interrupted = (struct worker_interrupted){
        .slot = slot, .seq = core->table->entries[slot].seq, .right = true};
    core->writers[slot] = WRITERS_ENDED_WELL;
    return PLASMON_OK;
}

/* If nobody took it over in this life, nobody has said yet what is in it. */
static void interrupted_over(struct worker_core *core, uint64_t seq)
{
    for (size_t i = core->interrupted.count; i-- > 0;) {
        struct worker_interrupted was =
            *(struct worker_interrupted *)pl_vec_at(&core->interrupted, i);
        const struct store_entry *entry = &core->table->entries[was.slot];

        if (was.seq != seq) {
            continue;
        }
        pl_vec_remove_unordered(&core->interrupted, i);
        if (worker_entry_state(entry) == STORE_CONSUMED && entry->seq == seq &&
            writers_of(core, was.slot) == 0) {
            if (was.right) {
                store_table_seal(core->table, was.slot);
            } else {
                store_table_consume(core->table, was.slot, WORKER_SEQ_NEVER);
            }
            core->writers[was.slot] = 0;
        }
    }
}

void worker_buffers_done(struct worker_core *core, struct worker_launch *launch)
{
    bool right = launch->failure == PLASMON_OK || pl_bug("worker.seal_failed");

    for (uint32_t i = 0; i < launch->operand_count; i++) {
        const struct worker_operand *operand = &launch->operands[i];

        /* In place: other parts of it are as right as before, and the head knows which part failed. */
        if (operand->placed && operand->writes) {
            writer_leaves(core, operand, right || operand->was_sealed);
        }
    }
    interrupted_over(core, launch->seq);
    if (launch->scratch_shared) {
        worker_scratch_done(core, launch);
    } else if (launch->scratch_bytes != 0) {
        worker_arena_return(core, launch->scratch_offset);
    }
    launch->scratch_bytes = 0;
}

/* ------------------------------------------------------------------------------ freeing */

/*
 * Is what lies in its slot this buffer, or one before it? A slot is given out again when its last
 * buffer is to be freed, so all before are gone, too; a worker that has died may have been told so,
 * and not us.
 */
static bool ends_with(const struct worker_core *core, uint64_t buffer)
{
    const struct store_entry *entry = &core->table->entries[wire_buffer_slot(buffer)];
    uint32_t ahead = (wire_buffer_generation(buffer) - entry->generation) & 0xffffffu;
    uint32_t state = worker_entry_state(entry);

    return state != STORE_FREE && state != STORE_DOOMED && ahead <= 0x7fffffu;
}

void worker_buffers_free(struct worker_core *core, uint64_t buffer)
{
    uint32_t slot = wire_buffer_slot(buffer);
    uint32_t *doomed;

    if (slot >= STORE_TABLE_SLOTS || !ends_with(core, buffer)) {
        pl_debug("worker", "buffer %#llx to be freed was never made here",
                 (unsigned long long)buffer); /* its launch failed before it had memory */
        return;
    }

    store_table_doom(core->table, slot);
    if (!worker_slot_pinned(core, slot)) {
        slot_end(core, slot);
        worker_reuse_tidy(core);
        return;
    }

    doomed = pl_vec_push(&core->doomed);
    if (doomed == NULL) {
        pl_warn("worker",
                "no memory to remember slot %u, which a reader holds; lost until restart",
                slot);
        return;
    }
    *doomed = slot;
}

void worker_buffers_free_all(struct worker_core *core)
{
    uint32_t end = worker_slot_end(core);

    for (uint32_t slot = 0; slot < end; slot++) {
        const struct store_entry *entry = &core->table->entries[slot];

        if (worker_entry_state(entry) != STORE_FREE) {
            worker_buffers_free(core, wire_buffer(0, slot, entry->generation));
        }
    }
}

void worker_buffers_free_doomed(struct worker_core *core)
{
    for (size_t i = core->doomed.count; i-- > 0;) {
        uint32_t slot = *(uint32_t *)pl_vec_at(&core->doomed, i);

        if (!worker_slot_pinned(core, slot)) {
            slot_end(core, slot);
            pl_vec_remove_unordered(&core->doomed, i);
        }
    }
}
