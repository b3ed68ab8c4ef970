/*
 * What is free between the places of a slab: found by size in a few steps however many there are. A
 * treap, of which each node lies in what the hole begins behind (spill_places.c).
 */
#ifndef HEAD_SPILL_HOLES_H
#define HEAD_SPILL_HOLES_H

#include <stdint.h>

#include "base/list.h"

struct head_hole {
    struct pl_list *after; /* what it begins behind: a place, or the list of them */
    uint64_t offset;
    uint64_t bytes; /* 0: it is none, and in no tree */
    uint64_t rank;  /* no child's is higher */
    struct head_hole *smaller;
    struct head_hole *larger;
};
struct head_holes {
    struct head_hole *root;
    uint64_t rank_last;
};

/* It is that, from now on; it may have been another one, or none. */
void head_hole_set(struct head_holes *holes, struct head_hole *hole, uint64_t offset,
                   uint64_t bytes);
/* The smallest that has so much, and of those the first one; NULL: none has. Steps are counted there. */
struct head_hole *head_hole_find(const struct head_holes *holes, uint64_t bytes,
                                 uint64_t *io_steps);

#endif
