/* Spans in buckets; see spans.h. */
#include "base/spans.h"

#include <assert.h>

#include "base/alloc.h"

#define BUCKETS_MIN 64u

void pl_spans_init(struct pl_spans *spans)
{
    *spans = (struct pl_spans){.buckets = NULL};
}

void pl_spans_finish(struct pl_spans *spans)
{
    assert(spans->visits == 0);
    pl_free(spans->buckets);
    pl_spans_init(spans);
}

/* Smallest l with last - first < 2^l. */
static uint32_t level_of(uint64_t first, uint64_t last)
{
    return last == first ? 0 : 64u - (uint32_t)__builtin_clzll(last - first);
}

static struct pl_list *bucket_at(const struct pl_spans *spans, uint32_t level,
                                 uint64_t cell)
{
    uint64_t mixed = cell ^ (uint64_t)level << 57;

    /* Cells follow each other: buckets of neighbours should not. (The end of splitmix64.) */
    mixed = (mixed ^ mixed >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    mixed = (mixed ^ mixed >> 27) * UINT64_C(0x94d049bb133111eb);
    return &spans->buckets[(mixed ^ mixed >> 31) & (spans->bucket_count - 1)];
}

static void link_in(struct pl_spans *spans, struct pl_span *span)
{
    pl_list_add_head(bucket_at(spans, span->level, span->first >> span->level),
                     &span->link);
}

/* false: no memory; what there is goes on, with longer buckets. */
static bool grow(struct pl_spans *spans, uint32_t bucket_count)
{
    struct pl_list *old = spans->buckets, *buckets;
    uint32_t old_count  = spans->bucket_count;

    buckets = PL_NEW_N(struct pl_list, bucket_count);
    if (buckets == NULL) {
        return false;
    }
    for (uint32_t i = 0; i < bucket_count; i++) {
        pl_list_init(&buckets[i]);
    }
    spans->buckets      = buckets;
    spans->bucket_count = bucket_count;
    for (uint32_t i = 0; i < old_count; i++) {
        struct pl_list *at, *next;

        pl_list_for_each_safe(at, next, &old[i]) {
            pl_list_remove(at);
            link_in(spans, pl_container_of(at, struct pl_span, link));
        }
    }
    pl_free(old);
    return true;
}

bool pl_spans_add(struct pl_spans *spans, struct pl_span *span, uint64_t first,
                  uint64_t last)
{
    assert(first <= last);
    if (spans->bucket_count == 0 && !grow(spans, BUCKETS_MIN)) {
        return false;
    }
    if (spans->count >= spans->bucket_count && spans->visits == 0 &&
        spans->bucket_count < UINT32_MAX / 2) {
        (void)grow(spans, 2 * spans->bucket_count); /* it goes on without */
    }
    span->first = first;
    span->last  = last;
    span->level = level_of(first, last);
    PL_CHECK(span->level < PL_SPAN_LEVELS);
    link_in(spans, span);
    spans->of_level[span->level]++;
    spans->count++;
    return true;
}

void pl_spans_remove(struct pl_spans *spans, struct pl_span *span)
{
    if (!pl_list_linked(&span->link)) {
        return;
    }
    pl_list_remove(&span->link);
    spans->of_level[span->level]--;
    spans->count--;
}

/* What is visited: spans of one cell of a level, or all that there are. */
struct visit {
    struct pl_spans *spans;
    uint64_t first;
    uint64_t last;
    pl_span_fn fn;
    void *user;
};

static bool visit_bucket(struct visit *visit, struct pl_list *bucket, bool all,
                         uint32_t level, uint64_t cell)
{
    struct pl_list *at, *next;

    pl_list_for_each_safe(at, next, bucket) {
        struct pl_span *span = pl_container_of(at, struct pl_span, link);

        visit->spans->looked++;
        if (!all && (span->level != level || span->first >> level != cell)) {
            continue; /* of another cell that has the bucket, too */
        }
        if (span->first <= visit->last && span->last >= visit->first &&
            visit->fn(visit->user, span)) {
            return true;
        }
    }
    return false;
}

static bool visit_all(struct visit *visit)
{
    bool stop = false;

    for (uint32_t i = 0; !stop && i < visit->spans->bucket_count; i++) {
        stop = visit_bucket(visit, &visit->spans->buckets[i], true, 0, 0);
    }
    return stop;
}

static bool visit_cells(struct visit *visit)
{
    const struct pl_spans *spans = visit->spans;
    bool stop                    = false;

    for (uint32_t level = 0; !stop && level < PL_SPAN_LEVELS; level++) {
        uint64_t from = visit->first >> level, to = visit->last >> level;

        from -= from > 0;
        for (uint64_t cell = from; !stop && spans->of_level[level] > 0 && cell <= to;
             cell++) {
            stop = visit_bucket(visit, bucket_at(spans, level, cell), false, level, cell);
        }
    }
    return stop;
}

/* As many looks as by cells, or more? */
static bool all_are_fewer(const struct pl_spans *spans, uint64_t first, uint64_t last)
{
    uint64_t cells = 0;

    for (uint32_t level = 0; level < PL_SPAN_LEVELS && cells < spans->bucket_count;
         level++) {
        if (spans->of_level[level] > 0) {
            cells += (last >> level) - (first >> level) + 2;
        }
    }
    return cells >= spans->bucket_count;
}

bool pl_spans_meet(struct pl_spans *spans, uint64_t first, uint64_t last, pl_span_fn fn,
                   void *user)
{
    struct visit visit = {
        .spans = spans, .first = first, .last = last, .fn = fn, .user = user};
    bool stopped;

    assert(first <= last);
    if (spans->count == 0) {
        return false;
    }
    spans->visits++;
    stopped = all_are_fewer(spans, first, last) ? visit_all(&visit) : visit_cells(&visit);
    spans->visits--;
    return stopped;
}

void pl_span_of_box(const struct pl_shape *shape, const struct pl_box *box,
                    uint64_t *out_first, uint64_t *out_last)
{
    uint64_t first = 0, last = 0;

    for (uint32_t d = 0; d < shape->ndim; d++) {
        first = first * (uint64_t)shape->dim[d] + (uint64_t)box->start[d];
        last =
            last * (uint64_t)shape->dim[d] + (uint64_t)(box->start[d] + box->count[d] - 1);
    }
    *out_first = first;
    *out_last  = last;
}
