/*
 * The arena: two-level segregated fit over blocks that are described in host memory.
 *
 *   order    all blocks, free or used, in one list by address. Neighbours in the list are neighbours in memory, unless one
 *            begins a chunk that must stay apart (`apart`) or there is a gap between chunks.
 *   bins     free blocks by size class: a power of two, cut into 32; a bit a class says whether it is empty.
 *   used     offset -> used block.
 *   granule  the first block that begins in each 256 KiB of address space, with a bit each: finds the block around any offset
 *            without a tree, for store_arena_take() and store_arena_add().
 *
 * FIT. A class above the one that the size falls into holds only blocks that are big enough: the first one is taken, in constant
 * time. Only when all those are empty the class itself is walked, and for large blocks (which are aligned to 2 MiB) every class
 * that could hold one. So an answer of EDEVMEM is exact: there is no hole that fits.
 *
 * INVARIANTS (checked by tests against a list of intervals)
 *
 *   (1) bytes_used + bytes_free is the sum of the chunks.
 *   (2) No two free neighbours could be one.
 *   (3) A free block is in the bin of its class and pool, a used one in the map.
 */
#include "store/arena.h"

#include <assert.h>
#include <string.h>

#include "base/alloc.h"
#include "base/list.h"
#include "base/map.h"
#include "base/vec.h"

#define UNIT            256u
#define PAGE_FROM       (64u << 10)
#define PAGE            4096u
#define LARGE_FROM      (16u << 20)
#define LARGE_ALIGNMENT (2u << 20)
#define POOL_COUNT      2u
#define SUB_BITS        5u
#define SUB_COUNT       (1u << SUB_BITS)
#define CLASS_ROWS      44u /* 2^51 bytes; more than any address space */
#define GRANULE_BITS    18u
#define OFFSET_MAX      (1ull << 47)
#define SLAB_BLOCKS     512u

struct block {
    uint64_t offset;
    uint64_t bytes;
    uint64_t asked; /* used blocks; 0: free */
    uint32_t pool;
    bool used;
    bool apart;           /* never merges with the block before it */
    struct pl_list order; /* by address */
    struct pl_list bin;   /* free blocks; also links unused descriptors */
};

struct pool {
    uint64_t rows; /* bit: some class of the row has blocks */
    uint32_t subs[CLASS_ROWS];
    struct pl_list bins[CLASS_ROWS][SUB_COUNT];
};

struct store_arena {
    struct pl_list order;
    struct pool pools[POOL_COUNT];
    struct pl_map used;   /* offset + 1 -> block */
    struct pl_list spare; /* descriptors without a block */
    struct pl_vec slabs;  /* of struct block *: what the descriptors are made of */
    struct block **granules;
    uint64_t *granule_bits;
    uint64_t granule_count; /* a multiple of 64 */
    uint64_t bytes_total;
    uint64_t bytes_used;
    uint64_t bytes_asked;
    uint64_t hole_count;
};

uint64_t store_arena_rounded(uint64_t bytes)
{
    return pl_round_up(pl_max_u64(bytes, 1), bytes >= PAGE_FROM ? PAGE : UNIT);
}

static uint64_t alignment_of(uint64_t rounded)
{
    return rounded >= LARGE_FROM ? LARGE_ALIGNMENT : UNIT;
}

/* ------------------------------------------------------------------------------------------------ bins */

struct class {
    uint32_t row;
    uint32_t sub;
};

/* The class that a block of this many bytes belongs to: row = power of two, sub = the next five bits. */
static struct class class_of(uint64_t bytes)
{
    uint64_t units = bytes / UNIT;
    uint32_t log   = 63u - (uint32_t)__builtin_clzll(units);

    if (log < SUB_BITS) {
        return (struct class){.row = 0, .sub = (uint32_t)units};
    }
    return (struct class){.row = log - SUB_BITS + 1,
                          .sub = (uint32_t)(units >> (log - SUB_BITS)) - SUB_COUNT};
}

/* The lowest class in which every block has at least this many bytes. */
static struct class class_above(uint64_t bytes)
{
    uint64_t units = bytes / UNIT;
    uint32_t log   = 63u - (uint32_t)__builtin_clzll(units);

    if (log >= SUB_BITS) {
        units += (1ull << (log - SUB_BITS)) - 1;
    }
    return class_of(units * UNIT);
}

/* The first class from `from` on that has blocks. */
static bool class_next(const struct pool *pool, struct class from, struct class *out_class)
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

static void bin_add(struct store_arena *arena, struct block *block)
{
    struct pool *pool  = &arena->pools[block->pool];
    struct class class = class_of(block->bytes);

    assert(!block->used);
    pl_list_add_head(&pool->bins[class.row][class.sub], &block->bin);
    pool->subs[class.row] |= 1u << class.sub;
    pool->rows |= 1ull << class.row;
    arena->hole_count++;
}

static void bin_remove(struct store_arena *arena, struct block *block)
{
    struct pool *pool  = &arena->pools[block->pool];
    struct class class = class_of(block->bytes);

    pl_list_remove(&block->bin);
    if (pl_list_empty(&pool->bins[class.row][class.sub])) {
        pool->subs[class.row] &= ~(1u << class.sub);
        if (pool->subs[class.row] == 0) {
            pool->rows &= ~(1ull << class.row);
        }
    }
    arena->hole_count--;
}

/* ------------------------------------------------------------------------------------------------ order */

static struct block *block_before(struct store_arena *arena, struct block *block)
{
    return block->order.prev == &arena->order
               ? NULL
               : pl_container_of(block->order.prev, struct block, order);
}

static struct block *block_after(struct store_arena *arena, struct block *block)
{
    return block->order.next == &arena->order
               ? NULL
               : pl_container_of(block->order.next, struct block, order);
}

/* `block` was put into the order: it may be the first of its granule now. */
static void granule_enter(struct store_arena *arena, struct block *block)
{
    uint64_t granule     = block->offset >> GRANULE_BITS;
    struct block **first = &arena->granules[granule];

    if (*first == NULL || block->offset < (*first)->offset) {
        *first = block;
        arena->granule_bits[granule / 64] |= 1ull << granule % 64;
    }
}

/* `block` is about to leave the order. */
static void granule_leave(struct store_arena *arena, struct block *block)
{
    uint64_t granule     = block->offset >> GRANULE_BITS;
    struct block **first = &arena->granules[granule];
    struct block *after;

    if (*first != block) {
        return;
    }
    after = block_after(arena, block);
    if (after != NULL && after->offset >> GRANULE_BITS == granule) {
        *first = after;
    } else {
        *first = NULL;
        arena->granule_bits[granule / 64] &= ~(1ull << granule % 64);
    }
}

/* The last block that begins at or before `offset`; NULL: none. */
static struct block *block_at(struct store_arena *arena, uint64_t offset)
{
    uint64_t granule = offset >> GRANULE_BITS;
    struct block *block;
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
        struct block *after = block_after(arena, block);

        if (after == NULL || after->offset > offset) {
            return block;
        }
        block = after;
    }
}

static plasmon_status_t granules_cover(struct store_arena *arena, uint64_t end)
{
    uint64_t old   = arena->granule_count;
    uint64_t count = pl_round_up((end >> GRANULE_BITS) + 1, 64);
    struct block **granules;
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

/* ------------------------------------------------------------------------------------------------ blocks */

/* Make sure that `count` descriptors are spare, so that what follows cannot fail half-way. */
static plasmon_status_t spare_ensure(struct store_arena *arena, uint32_t count)
{
    struct pl_list *link = arena->spare.next;
    struct block **slab;

    while (count > 0 && link != &arena->spare) {
        link = link->next;
        count--;
    }
    if (count == 0) {
        return PLASMON_OK;
    }

    slab = pl_vec_push(&arena->slabs);
    if (slab == NULL) {
        return PLASMON_ENOMEM;
    }
    *slab = PL_NEW_N(struct block, SLAB_BLOCKS);
    if (*slab == NULL) {
        pl_vec_pop(&arena->slabs);
        return PLASMON_ENOMEM;
    }
    for (uint32_t i = 0; i < SLAB_BLOCKS; i++) {
        pl_list_add_tail(&arena->spare, &(*slab)[i].bin);
    }
    return PLASMON_OK;
}

/* A new block after `before` (NULL: first of all). There must be a spare descriptor. */
static struct block *block_insert(struct store_arena *arena, struct block *before,
                                  uint64_t offset, uint64_t bytes, uint32_t pool)
{
    struct block *block = pl_list_first(&arena->spare, struct block, bin);

    assert(block != NULL);
    pl_list_remove(&block->bin);
    *block = (struct block){.offset = offset, .bytes = bytes, .pool = pool};
    pl_list_init(&block->bin);
    pl_list_add_after(before != NULL ? &before->order : &arena->order, &block->order);
    granule_enter(arena, block);
    return block;
}

static void block_remove(struct store_arena *arena, struct block *block)
{
    granule_leave(arena, block);
    pl_list_remove(&block->order);
    pl_list_add_head(&arena->spare, &block->bin);
}

static bool blocks_mergeable(const struct block *low, const struct block *high)
{
    return low != NULL && high != NULL && !low->used && !high->used && !high->apart &&
           low->pool == high->pool && low->offset + low->bytes == high->offset;
}

/* Put a free block that is in no bin into one, together with its free neighbours. */
static void block_settle(struct store_arena *arena, struct block *block)
{
    struct block *before = block_before(arena, block);
    struct block *after  = block_after(arena, block);

    if (blocks_mergeable(block, after)) {
        bin_remove(arena, after);
        block->bytes += after->bytes;
        block_remove(arena, after);
    }
    if (blocks_mergeable(before, block)) {
        bin_remove(arena, before);
        before->bytes += block->bytes;
        block_remove(arena, block);
        block = before;
    }
    bin_add(arena, block);
}

/* Use [offset, offset + bytes) of a free block; what is left on both sides becomes holes. Two spare descriptors and room in the
 * map must be there. */
static void block_use(struct store_arena *arena, struct block *block, uint64_t offset,
                      uint64_t bytes, uint64_t asked)
{
    uint64_t end = block->offset + block->bytes;

    assert(block->offset <= offset && offset + bytes <= end);
    bin_remove(arena, block);
    if (offset > block->offset) {
        struct block *low = block;

        low->bytes = offset - low->offset;
        block      = block_insert(arena, low, offset, end - offset, low->pool);
        bin_add(arena, low);
    }
    if (block->bytes > bytes) {
        struct block *rest =
            block_insert(arena, block, offset + bytes, block->bytes - bytes, block->pool);

        bin_add(arena, rest);
        block->bytes = bytes;
    }
    block->used  = true;
    block->asked = asked;
    arena->bytes_used += bytes;
    arena->bytes_asked += asked;
}

/* Where an allocation would lie in this free block; false: it does not fit. */
static bool block_fits(const struct block *block, uint64_t bytes, uint64_t *out_offset)
{
    uint64_t at = pl_round_up(block->offset, alignment_of(bytes));

    *out_offset = at;
    return at + bytes <= block->offset + block->bytes;
}

static struct block *bin_search(struct pl_list *bin, uint64_t bytes, uint64_t *out_offset)
{
    struct pl_list *link;

    pl_list_for_each(link, bin) {
        struct block *block = pl_container_of(link, struct block, bin);

        if (block_fits(block, bytes, out_offset)) {
            return block;
        }
    }
    return NULL;
}

static struct block *pool_search(struct pool *pool, uint64_t bytes, uint64_t *out_offset)
{
    struct class class = class_above(bytes);
    bool large         = alignment_of(bytes) > UNIT;
    struct block *found;

    /* Small: the first block of the first class fits. Large: alignment may cost, so look through the classes. */
    while (class.row < CLASS_ROWS && class_next(pool, class, &class)) {
        found = bin_search(&pool->bins[class.row][class.sub], bytes, out_offset);
        if (found != NULL) {
            return found;
        }
        assert(large);
        class.sub++;
        if (class.sub == SUB_COUNT) {
            class.sub = 0;
            class.row++;
        }
    }
    (void)large;

    class = class_of(bytes);
    return bin_search(&pool->bins[class.row][class.sub], bytes, out_offset);
}

/* ------------------------------------------------------------------------------------------------ public */

plasmon_status_t store_arena_create(struct store_arena **out_arena)
{
    struct store_arena *arena = PL_NEW(struct store_arena);

    if (arena == NULL) {
        return PLASMON_ENOMEM;
    }
    pl_list_init(&arena->order);
    pl_list_init(&arena->spare);
    pl_map_init(&arena->used);
    arena->slabs = PL_VEC_INIT(struct block *);
    for (uint32_t i = 0; i < POOL_COUNT; i++) {
        for (uint32_t row = 0; row < CLASS_ROWS; row++) {
            for (uint32_t sub = 0; sub < SUB_COUNT; sub++) {
                pl_list_init(&arena->pools[i].bins[row][sub]);
            }
        }
    }
    *out_arena = arena;
    return PLASMON_OK;
}

void store_arena_destroy(struct store_arena *arena)
{
    if (arena == NULL) {
        return;
    }
    for (size_t i = 0; i < arena->slabs.count; i++) {
        pl_free(*(struct block **)pl_vec_at(&arena->slabs, i));
    }
    pl_vec_finish(&arena->slabs);
    pl_map_finish(&arena->used);
    pl_free(arena->granules);
    pl_free(arena->granule_bits);
    pl_free(arena);
}

plasmon_status_t store_arena_add(struct store_arena *arena, uint32_t pool, uint64_t offset,
                                 uint64_t bytes, bool merge)
{
    struct block *before;
    struct block *after;
    struct block *block;
    plasmon_status_t status;

    if (pool >= POOL_COUNT || bytes == 0 || offset % UNIT != 0 || bytes % UNIT != 0 ||
        offset > OFFSET_MAX || bytes > OFFSET_MAX) {
        return PLASMON_EINVAL;
    }
    status = granules_cover(arena, offset + bytes);
    if (status == PLASMON_OK) {
        status = spare_ensure(arena, 1);
    }
    if (status != PLASMON_OK) {
        return status;
    }

    before = block_at(arena, offset);
    after  = before != NULL ? block_after(arena, before)
                            : pl_list_first(&arena->order, struct block, order);
    if ((before != NULL && before->offset + before->bytes > offset) ||
        (after != NULL && after->offset < offset + bytes)) {
        return PLASMON_EEXIST;
    }

    block        = block_insert(arena, before, offset, bytes, pool);
    block->apart = !merge;
    if (!merge && after != NULL && after->offset == offset + bytes) {
        after->apart = true; /* apart on both sides */
    }
    arena->bytes_total += bytes;
    block_settle(arena, block);
    return PLASMON_OK;
}

/* Both ways of getting a block end here. */
static plasmon_status_t arena_use(struct store_arena *arena, struct block *block,
                                  uint64_t offset, uint64_t bytes, uint64_t asked)
{
    plasmon_status_t status;

    /* The map's entry comes first, because it may fail; the block at `offset` is known only after the split. */
    status = pl_map_set(&arena->used, offset + 1, block);
    if (status != PLASMON_OK) {
        return status;
    }
    block_use(arena, block, offset, bytes, asked);
    if (block->offset != offset) {
        status = pl_map_set(&arena->used, offset + 1, block_after(arena, block));
        PL_CHECK(status == PLASMON_OK); /* the key is there: nothing grows */
    }
    return PLASMON_OK;
}

plasmon_status_t store_arena_alloc(struct store_arena *arena, uint32_t pool, uint64_t bytes,
                                   uint64_t *out_offset)
{
    uint64_t rounded;
    uint64_t offset;
    struct block *block;
    plasmon_status_t status;

    if (pool >= POOL_COUNT) {
        return PLASMON_EINVAL;
    }
    if (bytes > OFFSET_MAX) {
        return PLASMON_EDEVMEM;
    }
    rounded = store_arena_rounded(bytes);
    block   = pool_search(&arena->pools[pool], rounded, &offset);
    if (block == NULL) {
        return PLASMON_EDEVMEM;
    }
    status = spare_ensure(arena, 2);
    if (status == PLASMON_OK) {
        status = arena_use(arena, block, offset, rounded, bytes);
    }
    if (status == PLASMON_OK) {
        *out_offset = offset;
    }
    return status;
}

plasmon_status_t store_arena_take(struct store_arena *arena, uint64_t offset,
                                  uint64_t bytes)
{
    uint64_t rounded;
    struct block *block;
    plasmon_status_t status;

    if (offset % UNIT != 0 || offset > OFFSET_MAX || bytes > OFFSET_MAX) {
        return PLASMON_EINVAL;
    }
    rounded = store_arena_rounded(bytes);
    block   = block_at(arena, offset);
    if (block == NULL || block->used || block->offset + block->bytes < offset + rounded) {
        return PLASMON_EEXIST;
    }
    status = spare_ensure(arena, 2);
    if (status != PLASMON_OK) {
        return status;
    }
    return arena_use(arena, block, offset, rounded, bytes);
}

void store_arena_free(struct store_arena *arena, uint64_t offset)
{
    struct block *block = pl_map_remove(&arena->used, offset + 1);

    PL_CHECK(block != NULL); /* freeing twice would give one buffer to two owners */
    assert(block->used && block->offset == offset);
    arena->bytes_used -= block->bytes;
    arena->bytes_asked -= block->asked;
    block->used  = false;
    block->asked = 0;
    block_settle(arena, block);
}

static uint64_t pool_largest(const struct pool *pool)
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
        largest = pl_max_u64(largest, pl_container_of(link, struct block, bin)->bytes);
    }
    return largest;
}

void store_arena_get_stats(const struct store_arena *arena,
                           struct store_arena_stats *out_stats)
{
    uint64_t bytes_free = arena->bytes_total - arena->bytes_used;
    uint64_t largest    = 0;

    for (uint32_t i = 0; i < POOL_COUNT; i++) {
        largest = pl_max_u64(largest, pool_largest(&arena->pools[i]));
    }
    *out_stats = (struct store_arena_stats){
        .bytes_total   = arena->bytes_total,
        .bytes_used    = arena->bytes_used,
        .bytes_asked   = arena->bytes_asked,
        .bytes_free    = bytes_free,
        .largest_hole  = largest,
        .hole_count    = arena->hole_count,
        .fragmentation = bytes_free == 0 ? 0.0 : 1.0 - (double)largest / (double)bytes_free,
    };
}
