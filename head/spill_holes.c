#include "head/spill_holes.h"

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>

/* Two holes never have the same offset. */
static bool is_before(const struct head_hole *a, const struct head_hole *b)
{
    return a->bytes != b->bytes ? a->bytes < b->bytes : a->offset < b->offset;
}

static struct head_hole *join(struct head_hole *smaller, struct head_hole *larger)
{
    if (smaller == NULL || larger == NULL) {
        return smaller != NULL ? smaller : larger;
    }
    if (smaller->rank > larger->rank) {
        smaller->larger = join(smaller->larger, larger);
        return smaller;
    }
    larger->smaller = join(smaller, larger->smaller);
    return larger;
}

/* Those below `node` that come before the hole, and the others. */
static void split(struct head_hole *node, const struct head_hole *hole,
                  struct head_hole **out_smaller, struct head_hole **out_larger)
{
    if (node == NULL) {
        *out_smaller = *out_larger = NULL;
    } else if (is_before(node, hole)) {
        *out_smaller = node;
        split(node->larger, hole, &node->larger, out_larger);
    } else {
        *out_larger = node;
        split(node->smaller, hole, out_smaller, &node->smaller);
    }
}

static void take_out(struct head_holes *holes, struct head_hole *hole)
{
    struct head_hole **place = &holes->root;

    while (*place != hole) {
        assert(*place != NULL);
        place = is_before(hole, *place) ? &(*place)->smaller : &(*place)->larger;
    }
    *place = join(hole->smaller, hole->larger);
}

/* The same in every run: splitmix64 of a count. */
static uint64_t next_rank(struct head_holes *holes)
{
    uint64_t rank = holes->rank_last += UINT64_C(0x9e3779b97f4a7c15);

    rank = (rank ^ rank >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    rank = (rank ^ rank >> 27) * UINT64_C(0x94d049bb133111eb);
    return rank ^ rank >> 31;
}

void head_hole_set(struct head_holes *holes, struct head_hole *hole, uint64_t offset,
                   uint64_t bytes)
{
    struct head_hole **place = &holes->root;

    if (hole->bytes == bytes && (bytes == 0 || hole->offset == offset)) {
        return;
    }
    if (hole->bytes != 0) {
        take_out(holes, hole);
    }
    hole->offset = offset;
    hole->bytes  = bytes;
    if (bytes == 0) {
        return;
    }
    hole->rank = next_rank(holes);
    while (*place != NULL && (*place)->rank >= hole->rank) {
        place = is_before(hole, *place) ? &(*place)->smaller : &(*place)->larger;
    }
    split(*place, hole, &hole->smaller, &hole->larger);
    *place = hole;
}

struct head_hole *head_hole_find(const struct head_holes *holes, uint64_t bytes,
                                 uint64_t *io_steps)
{
    struct head_hole *best = NULL;

    for (struct head_hole *at = holes->root; at != NULL; (*io_steps)++) {
        if (at->bytes >= bytes) {
            best = at;
        }
        at = at->bytes >= bytes ? at->smaller : at->larger;
    }
    return best;
}
