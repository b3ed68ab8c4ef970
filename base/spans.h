/*
 * Parts of an array, and which of them meet another one: without a look at all of them.
 *
 * Where many parts of one array are kept, each has a span in two directions: the rows that it has
 * something of, and from which element of a row to which, in C order. Rows are the first dimension
 * that is longer than 1, and all others lie in the row. Parts that share an element meet in both
 * directions, so who looks for the parts that meet a box looks at those whose spans meet the box's:
 * of tiles of a matrix, of rows and of pieces of a vector, one to nine.
 *
 * A span of 2^(l-1) + 1 to 2^l numbers is of level l. Those of one level in each direction are of a
 * kind, and lie in the bucket of (kind, first >> l in each direction). One that meets [a, b] begins
 * at a - 2^l + 1 at the earliest, so for each kind a few buckets are looked at, and never more than
 * there are; where none goes over the end of its cell, as tiles whose sides are powers of 2 do not,
 * only those that [a, b] is in itself.
 *
 * Threads: none of its own; who changes it excludes others.
 */
#ifndef BASE_SPANS_H
#define BASE_SPANS_H

#include <stdbool.h>

#include "base/box.h"
#include "base/list.h"

/* Of so many kinds, the last of which takes any. */
#define PL_SPAN_KINDS 64u
/* Which direction. */
enum { PL_SPAN_ROWS, PL_SPAN_IN_ROW, PL_SPAN_WAYS };

/* Both ends belong to it. */
struct pl_span_at {
    uint64_t first[PL_SPAN_WAYS];
    uint64_t last[PL_SPAN_WAYS];
};

struct pl_span {
    struct pl_list link; /* its bucket; in no spans: linked to itself */
    struct pl_span_at at;
    uint32_t kind;
};

struct pl_span_kind {
    uint32_t count;              /* 0: it may become another one */
    uint32_t over[PL_SPAN_WAYS]; /* so many go over the end of their cell */
    uint8_t level[PL_SPAN_WAYS];
};

struct pl_spans {
    struct pl_list *buckets;
    uint32_t bucket_count; /* a power of 2; 0: nothing was added yet */
    uint32_t count;
    uint32_t visits; /* going on: buckets stay where they are */
    uint32_t kinds;  /* that were ever used, from the first on */
    struct pl_span_kind kind[PL_SPAN_KINDS];
    uint64_t looked; /* at so many in all visits, for tests */
};

void pl_spans_init(struct pl_spans *spans);   /* allocates nothing */
void pl_spans_finish(struct pl_spans *spans); /* what is in it is forgotten */
/*
 * `span` is in no spans, and stays where it is until it is removed. false: out of memory, and
 * nothing was added.
 */
bool pl_spans_add(struct pl_spans *spans, struct pl_span *span,
                  const struct pl_span_at *at) PL_MUST_CHECK;
void pl_spans_remove(struct pl_spans *spans,
                     struct pl_span *span); /* fine if it is in none */
/*
 * Each that meets it, once, in no order, until fn answers true; then so does this. fn may remove
 * the one it is given, and add others.
 */
typedef bool (*pl_span_fn)(void *user, struct pl_span *span);
bool pl_spans_meet(struct pl_spans *spans, const struct pl_span_at *at, pl_span_fn fn,
                   void *user);
/* Of a box in an array of this shape. */
struct pl_span_at pl_span_of_box(const struct pl_shape *shape, const struct pl_box *box);

#endif
