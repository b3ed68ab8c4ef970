/*
 * Spans of whole numbers, and which of them meet another one: without a look at all of them.
 *
 * Where many parts of one array are kept, each has a span: from the number of its first element in the array to that of its last, in C order. Parts that
 * share an element have spans that share its number. So who looks for the parts that meet a box looks at those whose
 * spans meet the box's: of tiles in rows, those of a row of tiles; of rows and of pieces of a vector, one or two.
 *
 * A span of 2^(l-1) + 1 to 2^l numbers is of level l, and lies in the bucket of (l, first >> l). One that meets [a, b] begins at a - 2^l + 1 at the
 * earliest and at b at the latest, so for each level that has any, a few buckets are looked at, and never more than there are.
 *
 * Threads: none of its own; who changes it excludes others.
 */
#ifndef BASE_SPANS_H
#define BASE_SPANS_H

#include <stdbool.h>

#include "base/box.h"
#include "base/list.h"

#define PL_SPAN_LEVELS 64u

struct pl_span {
    struct pl_list link; /* its bucket; in no spans: linked to itself */
    uint64_t first;
    uint64_t last;
    uint32_t level;
};

struct pl_spans {
    struct pl_list *buckets;
    uint32_t bucket_count; /* a power of 2; 0: nothing was added yet */
    uint32_t count;
    uint32_t visits; /* going on: buckets stay where they are */
    uint32_t of_level[PL_SPAN_LEVELS];
    uint64_t looked; /* at so many in all visits, for tests */
};

void pl_spans_init(struct pl_spans *spans);   /* allocates nothing */
void pl_spans_finish(struct pl_spans *spans); /* what is in it is forgotten */
/* `span` is in no spans, and stays where it is until it is removed. false: out of memory, and nothing was added. */
bool pl_spans_add(struct pl_spans *spans, struct pl_span *span, uint64_t first,
                  uint64_t last) PL_MUST_CHECK;
void pl_spans_remove(struct pl_spans *spans,
                     struct pl_span *span); /* fine if it is in none */
/* Each that meets [first, last], once, in no order, until fn answers true; then so does this. fn may remove the one it is given, and add others. */
typedef bool (*pl_span_fn)(void *user, struct pl_span *span);
bool pl_spans_meet(struct pl_spans *spans, uint64_t first, uint64_t last, pl_span_fn fn,
                   void *user);
/* The span of a box in an array of this shape. */
void pl_span_of_box(const struct pl_shape *shape, const struct pl_box *box,
                    uint64_t *out_first, uint64_t *out_last);

#endif
