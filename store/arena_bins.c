/*
 * Holes by size: two-level segregated fit.
 *
 *   bins   free blocks by size class: a power of two, cut into 32; a bit a class says whether it is empty.
 *
 * FIT. The smallest hole that does, but for a bound on the looks (best fit). First in the class that
 * the size falls into: what a block of like size left is there and nowhere else, and if it is passed
 * over, a larger hole is cut and the next larger block has none. Then in the first class above that
 * has blocks, which are all big enough. Only when all those are empty the class itself is walked to
 * its end, and for large blocks (which are aligned to 2 MiB) every class that could hold one. So
 * "there is none" is exact.
 */
#include "store/arena_int.h"

#include <assert.h>

#define FIT_LOOKS 4u /* holes of a class; each may be a cache miss */

struct class {
    uint32_t row;
    uint32_t sub;
};

/* The class that a block of this many bytes belongs to: row = power of two, sub = the next five bits. */
static struct class class_of(uint64_t bytes)
{
    uint64_t units = bytes / ARENA_UNIT;
    uint32_t log   = 63u - (uint32_t)__builtin_clzll(units);

    if (log < ARENA_SUB_BITS) {
        return (struct class){.row = 0, .sub = (uint32_t)units};
    }
    return (struct class){.row = log - ARENA_SUB_BITS + 1,
                          .sub = (uint32_t)(units >> (log - ARENA_SUB_BITS)) -
                                 ARENA_SUB_COUNT};
}

/* The lowest class in which every block has at least this many bytes. */
static struct class class_above(uint64_t bytes)
{
    uint64_t units = bytes / ARENA_UNIT;
    uint32_t log   = 63u - (uint32_t)__builtin_clzll(units);

    if (log >= ARENA_SUB_BITS) {
        units += (1ull << (log - ARENA_SUB_BITS)) - 1;
    }
    return class_of(units * ARENA_UNIT);
}

/* The first class from `from` on that has blocks. */
static bool class_next(const struct arena_pool *pool, struct class from,
                       struct class *out_class)
{
    uint32_t subs = pool->subs[from.row] & (~0u << from.sub);
    uint64_t rows;

    if (subs != 0) {
        *out_class = (struct class){from.row, (uint32_t)__builtin_ctz(subs)};
        return true;
    }
    rows = pool->rows & (~0ull << from.row << 1);
    if (rows == 0) {
        return false;
    }
    out_class->row = (uint32_t)__builtin_ctzll(rows);
    out_class->sub = (uint32_t)__builtin_ctz(pool->subs[out_class->row]);
    return true;
}

void arena_bin_add(struct store_arena *arena, struct arena_block *block)
{
    struct arena_pool *pool = &arena->pools[block->pool];
    struct class class      = class_of(block->bytes);

    assert(!block->used);
    pl_list_add_head(&pool->bins[class.row][class.sub], &block->bin);
    pool->subs[class.row] |= 1u << class.sub;
    pool->rows |= 1ull << class.row;
    arena->hole_count++;
}

void arena_bin_remove(struct store_arena *arena, struct arena_block *block)
{
    struct arena_pool *pool = &arena->pools[block->pool];
    struct class class      = class_of(block->bytes);

    pl_list_remove(&block->bin);
    if (pl_list_empty(&pool->bins[class.row][class.sub])) {
        pool->subs[class.row] &= ~(1u << class.sub);
        if (pool->subs[class.row] == 0) {
            pool->rows &= ~(1ull << class.row);
        }
    }
    arena->hole_count--;
}

/* ------------------------------------------------------------------------------- search */

/*
 * Where an allocation would lie in this free block; false: it does not fit. At the end from which its
 * pool does not grow: what is left at the growing end becomes one hole with the next chunk.
 */
static bool block_fits(const struct arena_block *block, uint64_t bytes,
                       uint64_t *out_offset)
{
    uint64_t alignment = arena_alignment_of(bytes);
    uint64_t end       = block->offset + block->bytes;

    if (block->bytes < bytes) {
        return false;
    }
    *out_offset = block->pool == 0 ? pl_round_up(block->offset, alignment)
                                   : (end - bytes) / alignment * alignment;
    return block->pool == 0 ? *out_offset + bytes <= end : *out_offset >= block->offset;
}

/* The smallest one that fits of the first FIT_LOOKS; if none of them does and `all`, the first of the rest. */
static struct arena_block *bin_search(struct pl_list *bin, uint64_t bytes, bool all,
                                      uint64_t *out_offset)
{
    struct arena_block *best = NULL;
    uint32_t looks           = 0;
    struct pl_list *link;

    pl_list_for_each(link, bin) {
        struct arena_block *block = pl_container_of(link, struct arena_block, bin);
        uint64_t offset;

        if (looks++ >= FIT_LOOKS && (best != NULL || !all)) {
            break;
        }
        if (block_fits(block, bytes, &offset) &&
            (best == NULL || block->bytes < best->bytes)) {
            best        = block;
            *out_offset = offset;
            if (block->bytes == bytes) {
                break;
            }
        }
    }
    return best;
}

struct arena_block *arena_pool_search(struct arena_pool *pool, uint64_t bytes,
                                      uint64_t *out_offset)
{
    struct class own   = class_of(bytes);
    struct class class = class_above(bytes);
    bool same          = own.row == class.row && own.sub == class.sub;
    bool large         = arena_alignment_of(bytes) > ARENA_UNIT;
    struct arena_block *found;

    if (!same) {
        found = bin_search(&pool->bins[own.row][own.sub], bytes, false, out_offset);
        if (found != NULL) {
            return found;
        }
    }

    /*
     * Small: all blocks of the first class fit. Large: alignment may cost, so look through the
     * classes.
     */
    while (class.row < ARENA_CLASS_ROWS && class_next(pool, class, &class)) {
        found = bin_search(&pool->bins[class.row][class.sub], bytes, true, out_offset);
        if (found != NULL) {
            return found;
        }
        assert(large);
        class.sub++;
        if (class.sub == ARENA_SUB_COUNT) {
            class.sub = 0;
            class.row++;
        }
    }
    (void)large;

    return same ? NULL : bin_search(&pool->bins[own.row][own.sub], bytes, true, out_offset);
}

uint64_t arena_pool_largest(const struct arena_pool *pool)
{
    uint64_t largest = 0;
    struct pl_list *link;
    uint32_t row;
    uint32_t sub;

    if (pool->rows == 0) {
        return 0;
    }
    row = 63u - (uint32_t)__builtin_clzll(pool->rows);
    sub = 31u - (uint32_t)__builtin_clz(pool->subs[row]);
    pl_list_for_each(link, (struct pl_list *)(uintptr_t)&pool->bins[row][sub]) {
        largest =
            pl_max_u64(largest, pl_container_of(link, struct arena_block, bin)->bytes);
    }
    return largest;
}
