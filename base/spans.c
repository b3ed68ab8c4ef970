/* Spans in buckets; see spans.h. */
#include "base/spans.h"

#include <assert.h>
#include <string.h>

#include "base/alloc.h"

#define BUCKETS_MIN 64u
#define LEVEL_MAX   63u

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
static uint8_t level_of(uint64_t first, uint64_t last)
{
    return (uint8_t)(last == first ? 0 : 64 - __builtin_clzll(last - first));
}

/* -------------------------------------------------------------------------------- kinds */

static bool kind_takes(const struct pl_span_kind *kind, const uint8_t *level, bool just)
{
    bool takes = true;

    for (int way = 0; way < PL_SPAN_WAYS; way++) {
        takes &= just ? kind->level[way] == level[way] : kind->level[way] >= level[way];
    }
    return takes;
}

static unsigned kind_size(const struct pl_span_kind *kind)
{
    return (unsigned)kind->level[PL_SPAN_ROWS] + kind->level[PL_SPAN_IN_ROW];
}

/*
 * Where there are as many kinds as can be, the smallest one whose cells are not smaller than it.
 * The last one's are larger than all.
 */
static uint32_t kind_larger(struct pl_spans *spans, const uint8_t *level)
{
    struct pl_span_kind *last = &spans->kind[PL_SPAN_KINDS - 1];
    uint32_t best             = PL_SPAN_KINDS - 1;

    for (int way = 0; way < PL_SPAN_WAYS; way++) {
        last->level[way] = LEVEL_MAX;
    }
    spans->kinds = PL_SPAN_KINDS;
    for (uint32_t i = 0; i < PL_SPAN_KINDS - 1; i++) {
        if (kind_takes(&spans->kind[i], level, false) &&
            kind_size(&spans->kind[i]) < kind_size(&spans->kind[best])) {
            best = i;
        }
    }
    return best;
}

static uint32_t kind_of(struct pl_spans *spans, const struct pl_span_at *at)
{
    uint32_t free                     = PL_SPAN_KINDS;
    const uint8_t level[PL_SPAN_WAYS] = {
        level_of(at->first[PL_SPAN_ROWS], at->last[PL_SPAN_ROWS]),
        level_of(at->first[PL_SPAN_IN_ROW], at->last[PL_SPAN_IN_ROW])};

    for (uint32_t i = 0; i < spans->kinds; i++) {
        if (spans->kind[i].count > 0 && kind_takes(&spans->kind[i], level, true)) {
            return i;
        }
        free = free == PL_SPAN_KINDS && spans->kind[i].count == 0 ? i : free;
    }
    if (free == PL_SPAN_KINDS && spans->kinds < PL_SPAN_KINDS - 1) {
        free = spans->kinds++;
    }
    if (free >= PL_SPAN_KINDS - 1) {
        return kind_larger(spans, level);
    }
    for (int way = 0; way < PL_SPAN_WAYS; way++) {
        spans->kind[free].level[way] = level[way];
    }
    return free;
}

/* Levels are below 64. */
static uint64_t cell_of(const struct pl_span_kind *kind, int way, uint64_t number)
{
    return number >> kind->level[way];
}

/* In which cell of its kind it begins. */
static void cell_begun(const struct pl_span_kind *kind, const struct pl_span *span,
                       uint64_t out_cell[PL_SPAN_WAYS])
{
    for (int way = 0; way < PL_SPAN_WAYS; way++) {
        out_cell[way] = cell_of(kind, way, span->at.first[way]);
    }
}

static bool begins_in(const struct pl_span_kind *kind, const struct pl_span *span,
                      const uint64_t cell[PL_SPAN_WAYS])
{
    uint64_t begun[PL_SPAN_WAYS];

    cell_begun(kind, span, begun);
    return memcmp(begun, cell, sizeof(begun)) == 0;
}

/* It goes in (1), or out (-1). */
static void kind_count(struct pl_spans *spans, const struct pl_span *span, int by)
{
    struct pl_span_kind *kind = &spans->kind[span->kind];

    kind->count += (uint32_t)by;
    for (int way = 0; way < PL_SPAN_WAYS; way++) {
        if (cell_of(kind, way, span->at.first[way]) !=
            cell_of(kind, way, span->at.last[way])) {
            kind->over[way] += (uint32_t)by;
        }
    }
    spans->count += (uint32_t)by;
}

/* ------------------------------------------------------------------------------ buckets */

static struct pl_list *bucket_at(const struct pl_spans *spans, uint32_t kind,
                                 const uint64_t *cell)
{
    uint64_t mixed = cell[PL_SPAN_ROWS] * UINT64_C(0x9e3779b97f4a7c15) ^
                     cell[PL_SPAN_IN_ROW] ^ (uint64_t)kind << 57;

    /* Cells follow each other: buckets of neighbours should not. (The end of splitmix64.) */
    mixed = (mixed ^ mixed >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    mixed = (mixed ^ mixed >> 27) * UINT64_C(0x94d049bb133111eb);
    return &spans->buckets[(mixed ^ mixed >> 31) & (spans->bucket_count - 1)];
}

static void link_in(struct pl_spans *spans, struct pl_span *span)
{
    uint64_t cell[PL_SPAN_WAYS];

    cell_begun(&spans->kind[span->kind], span, cell);
    pl_list_add_head(bucket_at(spans, span->kind, cell), &span->link);
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

bool pl_spans_add(struct pl_spans *spans, struct pl_span *span, const struct pl_span_at *at)
{
    for (int way = 0; way < PL_SPAN_WAYS; way++) {
        assert(at->first[way] <= at->last[way] && at->last[way] >> LEVEL_MAX == 0);
    }
    if (spans->bucket_count == 0 && !grow(spans, BUCKETS_MIN)) {
        return false;
    }
    if (spans->count >= spans->bucket_count && spans->visits == 0 &&
        spans->bucket_count < UINT32_MAX / 2) {
        (void)grow(spans, 2 * spans->bucket_count); /* it goes on without */
    }
    span->at   = *at;
    span->kind = kind_of(spans, at);
    link_in(spans, span);
    kind_count(spans, span, 1);
    return true;
}

void pl_spans_remove(struct pl_spans *spans, struct pl_span *span)
{
    if (!pl_list_linked(&span->link)) {
        return;
    }
    pl_list_remove(&span->link);
    kind_count(spans, span, -1);
}

/* ------------------------------------------------------------------------------- visits */

/* What is visited: spans of one cell of a kind, or all that there are. */
struct visit {
    struct pl_spans *spans;
    const struct pl_span_at *at;
    pl_span_fn fn;
    void *user;
};

static bool meets(const struct pl_span_at *a, const struct pl_span_at *b)
{
    return a->first[PL_SPAN_ROWS] <= b->last[PL_SPAN_ROWS] &&
           a->last[PL_SPAN_ROWS] >= b->first[PL_SPAN_ROWS] &&
           a->first[PL_SPAN_IN_ROW] <= b->last[PL_SPAN_IN_ROW] &&
           a->last[PL_SPAN_IN_ROW] >= b->first[PL_SPAN_IN_ROW];
}

/* cell NULL: of any. */
static bool visit_bucket(struct visit *visit, struct pl_list *bucket, uint32_t kind,
                         const uint64_t *cell)
{
    const struct pl_span_kind *of = &visit->spans->kind[kind];
    struct pl_list *at, *next;

    pl_list_for_each_safe(at, next, bucket) {
        struct pl_span *span = pl_container_of(at, struct pl_span, link);

        visit->spans->looked++;
        if (!meets(&span->at, visit->at)) {
            continue;
        }
        if (cell != NULL && (span->kind != kind || !begins_in(of, span, cell))) {
            continue; /* of another cell that has the bucket, too */
        }
        if (visit->fn(visit->user, span)) {
            return true;
        }
    }
    return false;
}

static bool visit_all(struct visit *visit)
{
    bool stop = false;

    for (uint32_t i = 0; !stop && i < visit->spans->bucket_count; i++) {
        stop = visit_bucket(visit, &visit->spans->buckets[i], 0, NULL);
    }
    return stop;
}

/* The cells in which one of this kind may begin that meets it. */
struct cells {
    uint64_t from[PL_SPAN_WAYS];
    uint64_t to[PL_SPAN_WAYS];
};

static struct cells cells_of(const struct pl_span_kind *kind, const struct pl_span_at *at)
{
    struct cells cells;

    for (int way = 0; way < PL_SPAN_WAYS; way++) {
        cells.from[way] = cell_of(kind, way, at->first[way]);
        cells.to[way]   = cell_of(kind, way, at->last[way]);
        cells.from[way] -= cells.from[way] > 0 && kind->over[way] > 0;
    }
    return cells;
}

static bool visit_cells(struct visit *visit)
{
    const struct pl_spans *spans = visit->spans;
    uint32_t kinds               = spans->kinds; /* those that come are not looked for */
    bool stop                    = false;

    for (uint32_t i = 0; !stop && i < kinds; i++) {
        struct cells cells = cells_of(&spans->kind[i], visit->at);
        uint64_t cell[PL_SPAN_WAYS];

        if (spans->kind[i].count == 0) {
            continue;
        }
        for (cell[0] = cells.from[0]; !stop && cell[0] <= cells.to[0]; cell[0]++) {
            for (cell[1] = cells.from[1]; !stop && cell[1] <= cells.to[1]; cell[1]++) {
                stop = visit_bucket(visit, bucket_at(spans, i, cell), i, cell);
            }
        }
    }
    return stop;
}

/* As many looks as by cells, or more? */
static bool all_are_fewer(const struct pl_spans *spans, const struct pl_span_at *at)
{
    uint64_t looks = 0;

    for (uint32_t i = 0; i < spans->kinds && looks < spans->bucket_count; i++) {
        struct cells cells = cells_of(&spans->kind[i], at);
        uint64_t rows      = cells.to[PL_SPAN_ROWS] - cells.from[PL_SPAN_ROWS] + 1;
        uint64_t in_row    = cells.to[PL_SPAN_IN_ROW] - cells.from[PL_SPAN_IN_ROW] + 1;

        if (spans->kind[i].count > 0) {
            looks += rows < spans->bucket_count && in_row < spans->bucket_count
                         ? rows * in_row
                         : spans->bucket_count;
        }
    }
    return looks >= spans->bucket_count;
}

bool pl_spans_meet(struct pl_spans *spans, const struct pl_span_at *at, pl_span_fn fn,
                   void *user)
{
    struct visit visit = {.spans = spans, .at = at, .fn = fn, .user = user};
    bool stopped;

    if (spans->count == 0) {
        return false;
    }
    spans->visits++;
    stopped = all_are_fewer(spans, at) ? visit_all(&visit) : visit_cells(&visit);
    spans->visits--;
    return stopped;
}

struct pl_span_at pl_span_of_box(const struct pl_shape *shape, const struct pl_box *box)
{
    struct pl_span_at at = {.first = {0}};
    int way              = PL_SPAN_ROWS;

    for (uint32_t d = 0; d < shape->ndim; d++) {
        uint64_t count = (uint64_t)shape->dim[d], start = (uint64_t)box->start[d];

        at.first[way] = at.first[way] * count + start;
        at.last[way]  = at.last[way] * count + start + (uint64_t)box->count[d] - 1;
        way           = count > 1 ? PL_SPAN_IN_ROW : way;
    }
    return at;
}
