/*
 * The arena: chunks come and are never taken away, blocks are handed out and come back. Everything
 * is described in host memory.
 *
 *   holes by size      arena_bins.c
 *   blocks by address  arena_order.c
 *   used               offset -> used block
 *
 * INVARIANTS (checked by tests against a list of intervals)
 *
 *   (1) bytes_used + bytes_free is the sum of the chunks.
 *   (2) No two free neighbours of one pool could be one.
 *   (3) A free block is in the bin of its class and pool, a used one in the map.
 */
#include "store/arena_int.h"

#include <assert.h>
#include <string.h>

#include "base/alloc.h"

#define PAGE_FROM   (64u << 10)
#define PAGE        4096u
#define LARGE_FROM  (16u << 20)
#define OFFSET_MAX  (1ull << 47)
#define SLAB_BLOCKS 512u

uint64_t store_arena_rounded(uint64_t bytes)
{
    return pl_round_up(pl_max_u64(bytes, 1), bytes >= PAGE_FROM ? PAGE : ARENA_UNIT);
}

uint64_t arena_alignment_of(uint64_t rounded)
{
    return rounded >= LARGE_FROM ? STORE_ARENA_ALIGNMENT : ARENA_UNIT;
}

/* ------------------------------------------------------------------------------- blocks */

/* Make sure that `count` descriptors are spare, so that what follows cannot fail half-way. */
static plasmon_status_t spare_ensure(struct store_arena *arena, uint32_t count)
{
    struct pl_list *link = arena->spare.next;
    struct arena_block **slab;

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
    *slab = PL_NEW_N(struct arena_block, SLAB_BLOCKS);
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
static struct arena_block *block_insert(struct store_arena *arena,
                                        struct arena_block *before, uint64_t offset,
                                        uint64_t bytes, uint32_t pool)
{
    struct arena_block *block = pl_list_first(&arena->spare, struct arena_block, bin);

    assert(block != NULL);
    pl_list_remove(&block->bin);
    *block = (struct arena_block){.offset = offset, .bytes = bytes, .pool = pool};
    pl_list_init(&block->bin);
    pl_list_add_after(before != NULL ? &before->order : &arena->order, &block->order);
    arena_granule_enter(arena, block);
    return block;
}

static void block_remove(struct store_arena *arena, struct arena_block *block)
{
    arena_granule_leave(arena, block);
    pl_list_remove(&block->order);
    pl_list_add_head(&arena->spare, &block->bin);
}

static bool blocks_mergeable(const struct arena_block *low, const struct arena_block *high)
{
    return low != NULL && high != NULL && !low->used && !high->used &&
           low->pool == high->pool && low->offset + low->bytes == high->offset;
}

/* Put a free block that is in no bin into one, together with its free neighbours. */
static void block_settle(struct store_arena *arena, struct arena_block *block)
{
    struct arena_block *before = arena_block_before(arena, block);
    struct arena_block *after  = arena_block_after(arena, block);

    if (blocks_mergeable(block, after)) {
        arena_bin_remove(arena, after);
        block->bytes += after->bytes;
        block_remove(arena, after);
    }
    if (blocks_mergeable(before, block)) {
        arena_bin_remove(arena, before);
        before->bytes += block->bytes;
        block_remove(arena, block);
        block = before;
    }
    arena_bin_add(arena, block);
}

/*
 * Use [offset, offset + bytes) of a free block; what is left on both sides becomes holes. Two spare
 * descriptors and room in the map must be there.
 */
static void block_use(struct store_arena *arena, struct arena_block *block, uint64_t offset,
                      uint64_t bytes, uint64_t asked)
{
    uint64_t end = block->offset + block->bytes;

    assert(block->offset <= offset && offset + bytes <= end);
    arena_bin_remove(arena, block);
    if (offset > block->offset) {
        struct arena_block *low = block;

        low->bytes = offset - low->offset;
        block      = block_insert(arena, low, offset, end - offset, low->pool);
        arena_bin_add(arena, low);
    }
    if (block->bytes > bytes) {
        struct arena_block *rest =
            block_insert(arena, block, offset + bytes, block->bytes - bytes, block->pool);

        arena_bin_add(arena, rest);
        block->bytes = bytes;
    }
    block->used  = true;
    block->asked = asked;
    arena->bytes_used += bytes;
    arena->bytes_asked += asked;
}

/* ------------------------------------------------------------------------------- public */

plasmon_status_t store_arena_create(struct store_arena **out_arena)
{
    struct store_arena *arena = PL_NEW(struct store_arena);

    if (arena == NULL) {
        return PLASMON_ENOMEM;
    }
    pl_list_init(&arena->order);
    pl_list_init(&arena->spare);
    pl_map_init(&arena->used);
    arena->slabs = PL_VEC_INIT(struct arena_block *);
    for (uint32_t i = 0; i < STORE_ARENA_POOLS; i++) {
        for (uint32_t row = 0; row < ARENA_CLASS_ROWS; row++) {
            for (uint32_t sub = 0; sub < ARENA_SUB_COUNT; sub++) {
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
        pl_free(*(struct arena_block **)pl_vec_at(&arena->slabs, i));
    }
    pl_vec_finish(&arena->slabs);
    pl_map_finish(&arena->used);
    pl_free(arena->granules);
    pl_free(arena->granule_bits);
    pl_free(arena);
}

static void edge_move(struct store_arena *arena, uint32_t pool, uint64_t offset,
                      uint64_t bytes)
{
    bool first = arena->chunk_counts[pool]++ == 0;

    if (pool == 0) {
        arena->edges[0] = pl_max_u64(arena->edges[0], offset + bytes);
    } else if (first || offset < arena->edges[1]) {
        arena->edges[1] = offset;
    }
}

plasmon_status_t store_arena_add(struct store_arena *arena, uint32_t pool, uint64_t offset,
                                 uint64_t bytes)
{
    struct arena_block *before;
    struct arena_block *after;
    struct arena_block *block;
    plasmon_status_t status;

    if (pool >= STORE_ARENA_POOLS || bytes == 0 || offset % ARENA_UNIT != 0 ||
        bytes % ARENA_UNIT != 0 || offset > OFFSET_MAX || bytes > OFFSET_MAX) {
        return PLASMON_EINVAL;
    }
    status = arena_granules_cover(arena, offset + bytes);
    if (status == PLASMON_OK) {
        status = spare_ensure(arena, 1);
    }
    if (status != PLASMON_OK) {
        return status;
    }

    before = arena_block_at(arena, offset);
    after  = before != NULL ? arena_block_after(arena, before)
                            : pl_list_first(&arena->order, struct arena_block, order);
    if ((before != NULL && before->offset + before->bytes > offset) ||
        (after != NULL && after->offset < offset + bytes)) {
        return PLASMON_EEXIST;
    }

    block = block_insert(arena, before, offset, bytes, pool);
    arena->bytes_total += bytes;
    edge_move(arena, pool, offset, bytes);
    block_settle(arena, block);
    return PLASMON_OK;
}

uint64_t store_arena_missing(const struct store_arena *arena, uint32_t pool, uint64_t bytes)
{
    uint64_t rounded   = store_arena_rounded(bytes);
    uint64_t alignment = arena_alignment_of(rounded);
    uint64_t edge      = arena->edges[pool];
    const struct arena_block *last;
    uint64_t from, to;

    if (arena->chunk_counts[pool] == 0) {
        /*
         * The first chunk of pool 0 begins at 0; that of pool 1 ends at the top, so nobody knows
         * where it begins.
         */
        return pool == 0 ? rounded : rounded + alignment - ARENA_UNIT;
    }
    last = arena_block_at(arena, pool == 0 ? edge - ARENA_UNIT : edge);
    PL_CHECK(last != NULL && last->pool == pool);
    if (pool == 0) {
        from = pl_round_up(last->used ? edge : last->offset, alignment);
        return from + rounded > edge ? from + rounded - edge : ARENA_UNIT;
    }
    to   = last->used ? edge : last->offset + last->bytes;
    from = (to - pl_min_u64(to, rounded)) / alignment * alignment;
    return from < edge ? edge - from : ARENA_UNIT;
}

uint64_t store_arena_fits(const struct store_arena *arena, uint64_t bytes)
{
    uint64_t alignment = arena_alignment_of(store_arena_rounded(bytes));
    uint64_t most      = 0;
    struct pl_list *pos;

    pl_list_for_each(pos, &arena->order) {
        const struct arena_block *block = pl_container_of(pos, struct arena_block, order);
        uint64_t from                   = pl_round_up(block->offset, alignment);
        uint64_t end                    = block->offset + block->bytes;

        if (!block->used && from < end) {
            most = pl_max_u64(most, end - from);
        }
    }
    return most;
}

/* Both ways of getting a block end here. */
static plasmon_status_t arena_use(struct store_arena *arena, struct arena_block *block,
                                  uint64_t offset, uint64_t bytes, uint64_t asked)
{
    plasmon_status_t status;

    /*
     * The map's entry comes first, because it may fail; the block at `offset` is known only after
     * the split.
     */
    status = pl_map_set(&arena->used, offset + 1, block);
    if (status != PLASMON_OK) {
        return status;
    }
    block_use(arena, block, offset, bytes, asked);
    if (block->offset != offset) {
        status = pl_map_set(&arena->used, offset + 1, arena_block_after(arena, block));
        PL_CHECK(status == PLASMON_OK); /* the key is there: nothing grows */
    }
    return PLASMON_OK;
}

plasmon_status_t store_arena_alloc(struct store_arena *arena, uint32_t pool, uint64_t bytes,
                                   uint64_t *out_offset)
{
    uint64_t rounded;
    uint64_t offset;
    struct arena_block *block;
    plasmon_status_t status;

    if (pool >= STORE_ARENA_POOLS) {
        return PLASMON_EINVAL;
    }
    if (bytes > OFFSET_MAX) {
        return PLASMON_EDEVMEM;
    }
    rounded = store_arena_rounded(bytes);
    block   = arena_pool_search(&arena->pools[pool], rounded, &offset);
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
    struct arena_block *block;
    plasmon_status_t status;

    if (offset % ARENA_UNIT != 0 || offset > OFFSET_MAX || bytes > OFFSET_MAX) {
        return PLASMON_EINVAL;
    }
    rounded = store_arena_rounded(bytes);
    block   = arena_block_at(arena, offset);
    if (block == NULL || block->used || block->offset + block->bytes < offset + rounded) {
        return PLASMON_EEXIST;
    }
    status = spare_ensure(arena, 2);
    if (status != PLASMON_OK) {
        return status;
    }
    return arena_use(arena, block, offset, rounded, bytes);
}

plasmon_status_t store_arena_take_rest(struct store_arena *arena, uint64_t offset,
                                       uint64_t bytes, struct pl_vec *out_parts)
{
    uint64_t end = offset + store_arena_rounded(bytes);
    uint64_t at  = offset;

    if (offset % ARENA_UNIT != 0 || offset > OFFSET_MAX || bytes > OFFSET_MAX) {
        return PLASMON_EINVAL;
    }
    while (at < end) {
        struct arena_block *block = arena_block_at(arena, at);
        uint64_t block_end        = block == NULL ? 0 : block->offset + block->bytes;
        uint64_t part             = pl_min_u64(block_end, end) - at;
        struct store_arena_part *place;
        plasmon_status_t status;

        if (block_end <= at) {
            return PLASMON_EEXIST; /* there is no chunk */
        }
        if (!block->used) {
            status = spare_ensure(arena, 2);
            place  = status == PLASMON_OK ? pl_vec_push(out_parts) : NULL;
            if (place == NULL) {
                return PLASMON_ENOMEM;
            }
            *place = (struct store_arena_part){.offset = at, .bytes = part};
            status = arena_use(arena, block, at, part, part);
            if (status != PLASMON_OK) {
                pl_vec_pop(out_parts);
                return status;
            }
        }
        at += part;
    }
    return PLASMON_OK;
}

void store_arena_free(struct store_arena *arena, uint64_t offset)
{
    struct arena_block *block = pl_map_remove(&arena->used, offset + 1);

    PL_CHECK(block != NULL); /* freeing twice would give one buffer to two owners */
    assert(block->used && block->offset == offset);
    arena->bytes_used -= block->bytes;
    arena->bytes_asked -= block->asked;
    block->used  = false;
    block->asked = 0;
    block_settle(arena, block);
}

void store_arena_get_stats(const struct store_arena *arena,
                           struct store_arena_stats *out_stats)
{
    uint64_t bytes_free = arena->bytes_total - arena->bytes_used;
    uint64_t largest    = 0;

    for (uint32_t i = 0; i < STORE_ARENA_POOLS; i++) {
        largest = pl_max_u64(largest, arena_pool_largest(&arena->pools[i]));
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
