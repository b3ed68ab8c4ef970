/*
 * The sub-allocator of a device arena: offsets in [0, arena_bytes), of which the parts backed by
 * chunks can be handed out. Host-side metadata only; it never touches the memory. Two-level
 * segregated fit; sizes are rounded up to 256 bytes (64 KiB and more: to 4 KiB; 16 MiB and more:
 * aligned to 2 MiB); neighbours merge on free, also where two chunks of a pool meet: a block may
 * span chunks. Accounting is exact: used + free == sum of chunks, always.
 *
 * Pool 0 grows upwards from the start of the arena, pool 1 downwards from its end. So the chunks of
 * a pool lie side by side, and what becomes free at the growing end is used together with the chunk
 * that comes.
 *
 * Threads: owner only.
 */
#ifndef STORE_ARENA_H
#define STORE_ARENA_H

#include <stdbool.h>
#include <stdint.h>

#include "base/base.h"
#include "base/vec.h"

#define STORE_ARENA_POOLS     2u
#define STORE_ARENA_ALIGNMENT (2u << 20) /* of large blocks */

struct store_arena;
struct store_arena_stats {
    uint64_t bytes_total; /* backed by chunks */
    uint64_t bytes_used;  /* handed out, after rounding */
    uint64_t bytes_asked; /* handed out, as asked for */
    uint64_t bytes_free;
    uint64_t largest_hole;
    uint64_t hole_count;
    double fragmentation; /* 1 - largest_hole / bytes_free; 0 when nothing is free */
};
plasmon_status_t store_arena_create(struct store_arena **out_arena) PL_MUST_CHECK;
void store_arena_destroy(struct store_arena *arena);
/* pool 0: results; pool 1: client-writable chunks. Blocks never mix pools. */
plasmon_status_t store_arena_add(struct store_arena *arena, uint32_t pool, uint64_t offset,
                                 uint64_t bytes) PL_MUST_CHECK;
/*
 * After EDEVMEM: with a chunk of so many bytes at the pool's growing end there would be room,
 * together with the hole that is there.
 */
uint64_t store_arena_missing(const struct store_arena *arena, uint32_t pool,
                             uint64_t bytes);
/* The most bytes that would find a hole, if they are as large as `bytes`: large ones are aligned. */
uint64_t store_arena_fits(const struct store_arena *arena, uint64_t bytes);
plasmon_status_t
store_arena_alloc(struct store_arena *arena, uint32_t pool, uint64_t bytes,
                  uint64_t *out_offset) PL_MUST_CHECK; /* EDEVMEM: no hole */
/* Take this very block (rebuilding after a restart). EEXIST: overlaps something. */
plasmon_status_t store_arena_take(struct store_arena *arena, uint64_t offset,
                                  uint64_t bytes) PL_MUST_CHECK;
/*
 * Likewise, but only those parts of it that are free; each becomes a block and is added to the list
 * of struct store_arena_part.
 */
struct store_arena_part {
    uint64_t offset;
    uint64_t bytes;
};
plasmon_status_t store_arena_take_rest(struct store_arena *arena, uint64_t offset,
                                       uint64_t bytes,
                                       struct pl_vec *out_parts) PL_MUST_CHECK;
void store_arena_free(struct store_arena *arena, uint64_t offset);
void store_arena_get_stats(const struct store_arena *arena,
                           struct store_arena_stats *out_stats);
uint64_t store_arena_rounded(uint64_t bytes);
/*
 * Used blocks, at most so many, by address: when they have gone there is a hole for so many bytes,
 * and of all such they are the fewest bytes. may_go: may this one be among them? EDEVMEM: there are
 * none. Looks at all blocks.
 */
typedef bool (*store_arena_may_go_fn)(void *user, uint64_t offset);
plasmon_status_t
store_arena_window(const struct store_arena *arena, uint64_t bytes, uint32_t count_max,
                   store_arena_may_go_fn may_go, void *user,
                   struct pl_vec *out_offsets) PL_MUST_CHECK; /* uint64_t */

#endif
