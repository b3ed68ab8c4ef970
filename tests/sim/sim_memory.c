/*
 * Arenas of simulated devices.
 *
 * The worker's core hands out memory through store_arena_*; those calls are watched at link time (--wrap), so that here every
 * block is known: fresh memory is filled with noise, freed memory with poison, and an op that touches a block which
 * was freed since it was enqueued is an error, whatever bytes it finds.
 *
 * The book is the core's own and dies with it: after a crash the table says which blocks are taken back, and everything else is
 * poisoned.
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

void sim_memory_leave(void)
{
    watched = NULL;
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
        if (offset >= blocks[i].offset && offset - blocks[i].offset < blocks[i].bytes) {
            return &blocks[i];
        }
    }
    return NULL;
}

/* serial 0: a new one. */
static void block_add(struct sim_worker *worker, uint64_t offset, uint64_t bytes,
                      uint64_t serial)
{
    struct sim_block *block;

    if (offset > worker->arena_bytes || bytes > worker->arena_bytes - offset) {
        sim_fail(worker->sim, "device %u: a block at %llu of %llu bytes lies outside",
                 worker->host_device, (unsigned long long)offset,
                 (unsigned long long)bytes);
        return;
    }
    for (size_t i = 0; i < worker->blocks.count; i++) {
        const struct sim_block *other = pl_vec_at(&worker->blocks, i);

        if (offset < other->offset + other->bytes && other->offset < offset + bytes) {
            sim_fail(worker->sim, "device %u: a block at %llu was handed out twice",
                     worker->host_device, (unsigned long long)offset);
        }
    }
    block = pl_vec_push(&worker->blocks);
    PL_CHECK(block != NULL);
    *block = (struct sim_block){.offset = offset,
                                .bytes  = bytes,
                                .serial = serial != 0 ? serial : ++worker->block_serial};
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
                at = block->offset + block->bytes;
                continue;
            }
            worker->arena[at++] = 0xdd;
        }
    }
}

/* ------------------------------------------------------------------------------------------ the allocator, watched */

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
        block_add(watched, *out_offset, bytes, 0);
        sim_memory_noise(watched->sim, watched->arena + *out_offset, bytes);
    }
    return status;
}

plasmon_status_t __wrap_store_arena_take(struct store_arena *arena, uint64_t offset,
                                         uint64_t bytes)
{
    plasmon_status_t status = __real_store_arena_take(arena, offset, bytes);

    if (status == PLASMON_OK && watched != NULL && arena == watched->book) {
        block_add(watched, offset, bytes, serial_before(watched, offset));
    }
    return status;
}

void __wrap_store_arena_free(struct store_arena *arena, uint64_t offset)
{
    if (watched != NULL && arena == watched->book) {
        for (size_t i = 0; i < watched->blocks.count; i++) {
            const struct sim_block *block = pl_vec_at(&watched->blocks, i);

            if (block->offset == offset) {
                memset(watched->arena + offset, 0xdd, block->bytes);
                pl_vec_remove_unordered(&watched->blocks, i);
                break;
            }
        }
    }
    __real_store_arena_free(arena, offset);
}

/* ------------------------------------------------------------------------------------------ sealed means sealed */

static uint64_t hash_bytes(const uint8_t *bytes, uint64_t length)
{
    uint64_t hash = length;
    uint64_t i    = 0;

    for (; i + 8 <= length; i += 8) {
        uint64_t word;

        memcpy(&word, bytes + i, sizeof(word));
        hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
        hash ^= hash >> 29;
    }
    for (; i < length; i++) {
        hash = (hash ^ bytes[i]) * 0x9e3779b97f4a7c15u;
    }
    return hash;
}

void sim_memory_check_sealed(struct sim_worker *worker)
{
    while (worker->sealed.count < worker->slots_used) {
        PL_CHECK(pl_vec_push(&worker->sealed) != NULL);
    }
    for (uint32_t slot = 0; slot < worker->slots_used; slot++) {
        const struct store_entry *entry = &worker->table->entries[slot];
        struct sim_sealed *seen         = pl_vec_at(&worker->sealed, slot);
        uint64_t hash;

        if (entry->state != STORE_SEALED || entry->offset > worker->arena_bytes ||
            entry->bytes > worker->arena_bytes - entry->offset) {
            seen->sealed = false;
            continue;
        }
        hash = hash_bytes(worker->arena + entry->offset, entry->bytes);
        if (seen->sealed && seen->generation == entry->generation &&
            seen->seq == entry->seq && seen->hash != hash) {
            sim_fail(
                worker->sim,
                "device %u: slot %u generation %u is sealed by launch %llu, and its bytes "
                "changed",
                worker->host_device, slot, entry->generation,
                (unsigned long long)entry->seq);
        }
        *seen = (struct sim_sealed){.generation = entry->generation,
                                    .seq        = entry->seq,
                                    .hash       = hash,
                                    .sealed     = true};
    }
}
