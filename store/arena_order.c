/*
 * Blocks by address.
 *
 *   order     all blocks, free or used, in one list by address. Neighbours in the list are
 *             neighbours in memory, unless there is a gap between chunks.
 *   granules  the first block that begins in each 256 KiB of address space, with a bit each: finds
 *             the block around any offset without a tree.
 */
#include "store/arena_int.h"

#include "base/alloc.h"

#define GRANULE_BITS 18u

struct arena_block *arena_block_before(const struct store_arena *arena,
                                       const struct arena_block *block)
{
    return block->order.prev == &arena->order
               ? NULL
               : pl_container_of(block->order.prev, struct arena_block, order);
}

struct arena_block *arena_block_after(const struct store_arena *arena,
                                      const struct arena_block *block)
{
    return block->order.next == &arena->order
               ? NULL
               : pl_container_of(block->order.next, struct arena_block, order);
}

/* `block` was put into the order: it may be the first of its granule now. */
void arena_granule_enter(struct store_arena *arena, struct arena_block *block)
{
    uint64_t granule           = block->offset >> GRANULE_BITS;
    struct arena_block **first = &arena->granules[granule];

    if (*first == NULL || block->offset < (*first)->offset) {
        *first = block;
        arena->granule_bits[granule / 64] |= 1ull << granule % 64;
    }
}

/* `block` is about to leave the order. */
void arena_granule_leave(struct store_arena *arena, struct arena_block *block)
{
    uint64_t granule           = block->offset >> GRANULE_BITS;
    struct arena_block **first = &arena->granules[granule];
    struct arena_block *after;

    if (*first != block) {
        return;
    }
    after = arena_block_after(arena, block);
    if (after != NULL && after->offset >> GRANULE_BITS == granule) {
        *first = after;
    } else {
        *first = NULL;
        arena->granule_bits[granule / 64] &= ~(1ull << granule % 64);
    }
}

/* The last block that begins at or before `offset`; NULL: none. */
struct arena_block *arena_block_at(const struct store_arena *arena, uint64_t offset)
{
    uint64_t granule = offset >> GRANULE_BITS;
    struct arena_block *block;
    uint64_t bits;

    if (arena->granule_count == 0) {
        return NULL;
    }
    granule = pl_min_u64(granule, arena->granule_count - 1);
    if (arena->granules[granule] == NULL || arena->granules[granule]->offset > offset) {
        uint64_t word = granule / 64;

        bits = arena->granule_bits[word] & ((1ull << granule % 64) - 1);
        while (bits == 0 && word > 0) {
            bits = arena->granule_bits[--word];
        }
        if (bits == 0) {
            return NULL;
        }
        granule = word * 64 + 63u - (uint64_t)__builtin_clzll(bits);
    }

    block = arena->granules[granule];
    for (;;) {
        struct arena_block *after = arena_block_after(arena, block);

        if (after == NULL || after->offset > offset) {
            return block;
        }
        block = after;
    }
}

plasmon_status_t arena_granules_cover(struct store_arena *arena, uint64_t end)
{
    uint64_t old   = arena->granule_count;
    uint64_t count = pl_round_up((end >> GRANULE_BITS) + 1, 64);
    struct arena_block **granules;
    uint64_t *bits;

    if (count <= old) {
        return PLASMON_OK;
    }
    granules =
        pl_realloc(arena->granules, old * sizeof(*granules), count * sizeof(*granules));
    if (granules == NULL) {
        return PLASMON_ENOMEM;
    }
    arena->granules = granules;
    bits            = pl_realloc(arena->granule_bits, old / 64 * sizeof(*bits),
                                 count / 64 * sizeof(*bits));
    if (bits == NULL) {
        return PLASMON_ENOMEM;
    }
    arena->granule_bits  = bits;
    arena->granule_count = count;
    return PLASMON_OK;
}
