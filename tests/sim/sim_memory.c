/*
 * Arenas of simulated devices.
 *
 * The worker's core hands out memory through store_arena_*; those calls are watched at link time
 * (--wrap), so that here every block is known: fresh memory is filled with noise, freed memory with
 * poison, and an op that touches a block which was freed since it was enqueued is an error,
 * whatever bytes it finds.
 *
 * What the core gives back in stream order (the entry says RETIRED) keeps its bytes, although
 * another block is handed out there, until the first op of that one: from then on it is poison too,
 * and who still touches it comes too late.
 *
 * The book is the core's own and dies with it: after a crash the table says which blocks are taken
 * back, and everything else is poisoned.
 */
#include "tests/sim/sim.h"

#include <string.h>

#include "store/arena.h"

static struct sim_worker *watched;

void sim_memory_enter(struct sim_worker *worker)
{
    PL_CHECK(watched == NULL);
    watched = worker;
}

/* What the core says of its memory is what its arena gave out, and what its table says of replicas. */
static void account_check(const struct sim_worker *worker)
{
    Plasmon__V1__WorkerStats figures = PLASMON__V1__WORKER_STATS__INIT;
    struct worker_account account;

    worker_core_account(worker->core, &account);
    worker_core_stats(worker->core, &figures);
    if (account.used != account.objects + account.replicas + account.held + account.rests +
                            account.scratch + account.graphs ||
        figures.bytes_used != account.used ||
        figures.bytes_replica != account.replica_bytes ||
        figures.bytes_scratch != account.scratch + account.graphs) {
        sim_fail(worker->sim,
                 "device %u: %llu bytes are in use: objects %llu, replicas %llu (%llu of "
                 "%llu), held %llu, rests %llu, scratch %llu, graphs %llu",
                 worker->host_device, (unsigned long long)account.used,
                 (unsigned long long)account.objects, (unsigned long long)account.replicas,
                 (unsigned long long)account.replica_bytes,
                 (unsigned long long)figures.bytes_replica,
                 (unsigned long long)account.held, (unsigned long long)account.rests,
                 (unsigned long long)account.scratch, (unsigned long long)account.graphs);
    }
}

void sim_memory_leave(void)
{
    if (watched->core != NULL && watched->recovered_memory && !watched->sim->failed) {
        account_check(watched);
    }
    watched = NULL;
}

struct sim_worker *sim_memory_watched(void)
{
    return watched;
}

void sim_memory_noise(struct sim *sim, uint8_t *bytes, uint64_t length)
{
    uint64_t word = sim_random(sim);

    for (uint64_t i = 0; i < length; i++) {
        if ((i & 7) == 0) {
            word = word * 6364136223846793005u + 1442695040888963407u;
        }
        bytes[i] = (uint8_t)(word >> (8 * (i & 7)));
    }
}

const struct sim_block *sim_memory_find(const struct sim_worker *worker, uint64_t offset)
{
    const struct sim_block *blocks = worker->blocks.items;

    for (size_t i = 0; i < worker->blocks.count; i++) {
        if (offset >= blocks[i].offset &&
            offset - blocks[i].offset < store_arena_rounded(blocks[i].bytes)) {
            return &blocks[i];
        }
    }
    return NULL;
}

static bool blocks_meet(const struct sim_block *block, uint64_t offset, uint64_t bytes)
{
    return offset < block->offset + block->bytes && block->offset < offset + bytes;
}

/* serial 0: a new one. */
static struct sim_block *block_add(struct sim_worker *worker, uint64_t offset,
                                   uint64_t bytes, uint64_t serial)
{
    struct sim_block *block;

    if (offset > worker->arena_bytes || bytes > worker->arena_bytes - offset) {
        sim_fail(worker->sim, "device %u: a block at %llu of %llu bytes lies outside",
                 worker->host_device, (unsigned long long)offset,
                 (unsigned long long)bytes);
        return NULL;
    }
    for (size_t i = 0; i < worker->blocks.count; i++) {
        const struct sim_block *other = pl_vec_at(&worker->blocks, i);

        if (blocks_meet(other, offset, bytes)) {
            sim_fail(worker->sim, "device %u: a block at %llu was handed out twice",
                     worker->host_device, (unsigned long long)offset);
        }
    }
    block = pl_vec_push(&worker->blocks);
    PL_CHECK(block != NULL);
    *block = (struct sim_block){.offset = offset,
                                .bytes  = bytes,
                                .serial = serial != 0 ? serial : ++worker->block_serial};
    return block;
}

/* Who used what is overwritten now has said that it is over: else it would be done again after a crash. */
static void users_check(const struct sim_worker *worker, const struct sim_block *left)
{
    for (uint32_t i = 0; i < STORE_STREAM_MAX; i++) {
        if (worker->timeline->stream[i].value < left->used[i]) {
            sim_fail(worker->sim,
                     "device %u: what is at %llu is overwritten before a word shows launch "
                     "%llu of stream %u, which uses it",
                     worker->host_device, (unsigned long long)left->offset,
                     (unsigned long long)left->used[i], i);
        }
    }
}

void sim_memory_use(struct sim_worker *owner, const struct sim_op *op, uint64_t offset)
{
    struct sim_block *block = (struct sim_block *)(uintptr_t)sim_memory_find(owner, offset);

    if (block != NULL && op->by == owner && op->stream < STORE_STREAM_MAX) {
        block->used[op->stream] = pl_max_u64(block->used[op->stream], op->tag);
    }
}

/* The first op that touches the block: whatever left there is gone now. */
static void block_begin(struct sim_worker *worker, struct sim_block *block)
{
    struct sim_block begun = *block;

    if (!begun.untouched) {
        return;
    }
    block->untouched = false;
    for (size_t i = worker->leaving.count; i-- > 0;) {
        const struct sim_block *other = pl_vec_at(&worker->leaving, i);

        if (other->serial < begun.serial && blocks_meet(other, begun.offset, begun.bytes)) {
            users_check(worker, other);
            pl_vec_remove_unordered(&worker->leaving, i);
        }
    }
    sim_memory_noise(worker->sim, worker->arena + begun.offset, begun.bytes);
}

static bool leaving_meets(const struct sim_worker *worker, uint64_t offset, uint64_t bytes)
{
    for (size_t i = 0; i < worker->leaving.count; i++) {
        if (blocks_meet(pl_vec_at(&worker->leaving, i), offset, bytes)) {
            return true;
        }
    }
    return false;
}

bool sim_memory_touch(struct sim_worker *worker, uint64_t offset, uint64_t serial)
{
    struct sim_block *block =
        (struct sim_block *)(uintptr_t)sim_memory_find(worker, offset);

    if (block != NULL && (block->serial == serial || serial == 0)) {
        block_begin(worker, block);
        return true;
    }
    for (size_t i = 0; i < worker->leaving.count; i++) {
        block = pl_vec_at(&worker->leaving, i);
        if (block->serial == serial) {
            block_begin(worker, block);
            return true;
        }
    }
    return false;
}

/* A block that is taken back after a crash is the one that peers may still be reading. */
static uint64_t serial_before(const struct sim_worker *worker, uint64_t offset)
{
    for (size_t i = 0; i < worker->blocks_before.count; i++) {
        const struct sim_block *block = pl_vec_at(&worker->blocks_before, i);

        if (block->offset == offset) {
            return block->serial;
        }
    }
    return 0;
}

void sim_memory_forget(struct sim_worker *worker)
{
    pl_vec_clear(&worker->blocks_before);
    for (size_t i = 0; i < worker->blocks.count; i++) {
        struct sim_block *kept = pl_vec_push(&worker->blocks_before);

        PL_CHECK(kept != NULL);
        *kept = *(struct sim_block *)pl_vec_at(&worker->blocks, i);
    }
    pl_vec_clear(&worker->blocks);
    pl_vec_clear(&worker->leaving);
    worker->book = NULL;
}

void sim_memory_recovered(struct sim_worker *worker)
{
    for (size_t i = 0; i < worker->chunks.count; i++) {
        const struct sim_chunk *chunk = pl_vec_at(&worker->chunks, i);
        uint64_t at                   = chunk->offset;

        while (at < chunk->offset + chunk->bytes) {
            const struct sim_block *block = sim_memory_find(worker, at);

            if (block != NULL) {
                /* To its end in the book: what is retired may lie below what is not, and be longer. */
                at = block->offset + store_arena_rounded(block->bytes);
                continue;
            }
            worker->arena[at++] = 0xdd;
        }
    }
}

/* --------------------------------------------------------------- the allocator, watched */

/* Names that the linker's --wrap makes. */
plasmon_status_t __real_store_arena_create(struct store_arena **out_arena);
plasmon_status_t __wrap_store_arena_create(struct store_arena **out_arena);
plasmon_status_t __real_store_arena_alloc(struct store_arena *arena, uint32_t pool,
                                          uint64_t bytes, uint64_t *out_offset);
plasmon_status_t __wrap_store_arena_alloc(struct store_arena *arena, uint32_t pool,
                                          uint64_t bytes, uint64_t *out_offset);
plasmon_status_t __real_store_arena_take(struct store_arena *arena, uint64_t offset,
                                         uint64_t bytes);
plasmon_status_t __wrap_store_arena_take(struct store_arena *arena, uint64_t offset,
                                         uint64_t bytes);
plasmon_status_t __real_store_arena_take_rest(struct store_arena *arena, uint64_t offset,
                                              uint64_t bytes, struct pl_vec *out_parts);
plasmon_status_t __wrap_store_arena_take_rest(struct store_arena *arena, uint64_t offset,
                                              uint64_t bytes, struct pl_vec *out_parts);
void __real_store_arena_free(struct store_arena *arena, uint64_t offset);
void __wrap_store_arena_free(struct store_arena *arena, uint64_t offset);

plasmon_status_t __wrap_store_arena_create(struct store_arena **out_arena)
{
    plasmon_status_t status = __real_store_arena_create(out_arena);

    if (status == PLASMON_OK && watched != NULL) {
        watched->book = *out_arena;
    }
    return status;
}

plasmon_status_t __wrap_store_arena_alloc(struct store_arena *arena, uint32_t pool,
                                          uint64_t bytes, uint64_t *out_offset)
{
    plasmon_status_t status = __real_store_arena_alloc(arena, pool, bytes, out_offset);

    if (status == PLASMON_OK && watched != NULL && arena == watched->book) {
        struct sim_block *block = block_add(watched, *out_offset, bytes, 0);

        if (block != NULL && leaving_meets(watched, *out_offset, bytes)) {
            block->untouched = true;
        } else if (block != NULL) {
            sim_memory_noise(watched->sim, watched->arena + *out_offset, bytes);
        }
    }
    return status;
}

plasmon_status_t __wrap_store_arena_take_rest(struct store_arena *arena, uint64_t offset,
                                              uint64_t bytes, struct pl_vec *out_parts)
{
    size_t first            = out_parts->count;
    plasmon_status_t status = __real_store_arena_take_rest(arena, offset, bytes, out_parts);

    for (size_t i = first;
         watched != NULL && arena == watched->book && i < out_parts->count; i++) {
        const struct store_arena_part *part = pl_vec_at(out_parts, i);

        (void)block_add(watched, part->offset, part->bytes, 0);
    }
    return status;
}

plasmon_status_t __wrap_store_arena_take(struct store_arena *arena, uint64_t offset,
                                         uint64_t bytes)
{
    plasmon_status_t status = __real_store_arena_take(arena, offset, bytes);

    if (status == PLASMON_OK && watched != NULL && arena == watched->book) {
        (void)block_add(watched, offset, bytes, serial_before(watched, offset));
    }
    return status;
}

/* Its launches are not over: what is there must stay for them. */
static bool block_retired(const struct sim_worker *worker, uint64_t offset)
{
    for (uint32_t slot = 0; slot < worker->slots_used; slot++) {
        const struct store_entry *entry = &worker->table->entries[slot];

        if (entry->state == STORE_RETIRED && entry->offset == offset) {
            return true;
        }
    }
    return false;
}

static void block_leave(struct sim_worker *worker, const struct sim_block *block)
{
    struct sim_block *place;

    if (!block_retired(worker, block->offset)) {
        if (block->untouched) {
            return; /* given back before anything was put there */
        }
        memset(worker->arena + block->offset, 0xdd, block->bytes);
        return;
    }
    place = pl_vec_push(&worker->leaving);
    PL_CHECK(place != NULL);
    *place = *block;
}

void __wrap_store_arena_free(struct store_arena *arena, uint64_t offset)
{
    if (watched != NULL && arena == watched->book) {
        for (size_t i = 0; i < watched->blocks.count; i++) {
            const struct sim_block *block = pl_vec_at(&watched->blocks, i);

            if (block->offset == offset) {
                block_leave(watched, block);
                pl_vec_remove_unordered(&watched->blocks, i);
                break;
            }
        }
    }
    __real_store_arena_free(arena, offset);
}
