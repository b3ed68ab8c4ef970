/*
 * Inside of the arena: its data, and what its files offer each other.
 *
 *   arena.c         chunks come, blocks are handed out and come back
 *   arena_bins.c    holes by size: is there one that fits?
 *   arena_order.c   blocks by address: who are the neighbours, who lies at an offset?
 *   arena_window.c  which blocks have to go for a hole of some size?
 */
#ifndef STORE_ARENA_INT_H
#define STORE_ARENA_INT_H

#include "store/arena.h"

#include "base/list.h"
#include "base/map.h"
#include "base/vec.h"

#define ARENA_UNIT       256u
#define ARENA_SUB_BITS   5u
#define ARENA_SUB_COUNT  (1u << ARENA_SUB_BITS)
#define ARENA_CLASS_ROWS 44u /* 2^51 bytes; more than any address space */

struct arena_block {
    uint64_t offset;
    uint64_t bytes;
    uint64_t asked; /* used blocks; 0: free */
    uint32_t pool;
    bool used;
    struct pl_list order; /* by address */
    struct pl_list bin;   /* free blocks; also links unused descriptors */
};

struct arena_pool {
    uint64_t rows; /* bit: some class of the row has blocks */
    uint32_t subs[ARENA_CLASS_ROWS];
    struct pl_list bins[ARENA_CLASS_ROWS][ARENA_SUB_COUNT];
};

struct store_arena {
    struct pl_list order;
    struct arena_pool pools[STORE_ARENA_POOLS];
    struct pl_map used;   /* offset + 1 -> block */
    struct pl_list spare; /* descriptors without a block */
    struct pl_vec slabs;  /* of struct arena_block *: what the descriptors are made of */
    struct arena_block **granules;
    uint64_t *granule_bits;
    uint64_t granule_count; /* a multiple of 64 */
    /* where the pool grows: the end of pool 0, the start of pool 1 */
    uint64_t edges[STORE_ARENA_POOLS];
    uint32_t chunk_counts[STORE_ARENA_POOLS];
    uint64_t bytes_total;
    uint64_t bytes_used;
    uint64_t bytes_asked;
    uint64_t hole_count;
};

/* arena.c */
uint64_t arena_alignment_of(uint64_t rounded);

/* arena_bins.c */
void arena_bin_add(struct store_arena *arena, struct arena_block *block);
void arena_bin_remove(struct store_arena *arena, struct arena_block *block);
/* A hole that holds so many bytes, and where in it they would lie; NULL: there is none. */
struct arena_block *arena_pool_search(struct arena_pool *pool, uint64_t bytes,
                                      uint64_t *out_offset);
uint64_t arena_pool_largest(const struct arena_pool *pool); /* bytes of the largest hole */

/* arena_order.c */
struct arena_block *arena_block_before(const struct store_arena *arena,
                                       const struct arena_block *block); /* NULL: none */
struct arena_block *arena_block_after(const struct store_arena *arena,
                                      const struct arena_block *block);
/* The last block that begins at or before `offset`; NULL: none. */
struct arena_block *arena_block_at(const struct store_arena *arena, uint64_t offset);
/* `block` was put into the order; it is about to leave it. */
void arena_granule_enter(struct store_arena *arena, struct arena_block *block);
void arena_granule_leave(struct store_arena *arena, struct arena_block *block);
/* Blocks up to this address may come. */
plasmon_status_t arena_granules_cover(struct store_arena *arena,
                                      uint64_t end) PL_MUST_CHECK;

#endif
