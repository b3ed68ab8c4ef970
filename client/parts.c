#include "client/parts.h"

#include "base/alloc.h"
#include "base/base.h"

/* As many are looked at one after the other. */
#define FEW 64u

void part_init(struct part *part, const struct pl_box *box)
{
    pl_list_init(&part->link);
    pl_list_init(&part->span.link);
    part->whole = box == NULL;
    if (box != NULL) {
        part->box = *box;
    }
}

bool part_touches(const struct part *part, const struct pl_box *box)
{
    return part->whole || box == NULL || pl_box_intersects(&part->box, box);
}

struct pl_box part_box(const struct part *part, const struct pl_shape *shape)
{
    return part->whole ? pl_box_of_shape(shape) : part->box;
}

void parts_init(struct parts *parts)
{
    pl_list_init(&parts->list);
    parts->count = 0;
    parts->spans = NULL;
}

static void spans_drop(struct parts *parts)
{
    struct pl_list *at;

    if (parts->spans == NULL) {
        return;
    }
    pl_list_for_each(at, &parts->list) {
        pl_list_init(&pl_container_of(at, struct part, link)->span.link);
    }
    pl_spans_finish(parts->spans);
    pl_free(parts->spans);
    parts->spans = NULL;
}

static bool span_add(struct parts *parts, const struct pl_shape *shape, struct part *part)
{
    struct pl_box box    = part_box(part, shape);
    struct pl_span_at at = pl_span_of_box(shape, &box);

    return pl_spans_add(parts->spans, &part->span, &at);
}

/* Without memory they are looked at one after the other, as few are. */
static void spans_make(struct parts *parts, const struct pl_shape *shape)
{
    struct pl_list *at;
    bool all = true;

    parts->spans = PL_NEW(struct pl_spans);
    if (parts->spans == NULL) {
        return;
    }
    pl_spans_init(parts->spans);
    pl_list_for_each(at, &parts->list) {
        all = all && span_add(parts, shape, pl_container_of(at, struct part, link));
    }
    if (!all) {
        spans_drop(parts);
    }
}

void parts_add(struct parts *parts, const struct pl_shape *shape, struct part *part,
               struct pl_list *where)
{
    pl_list_add_after(where, &part->link);
    parts->count++;
    if (parts->spans != NULL) {
        PL_CHECK(span_add(parts, shape, part)); /* it has a table, so it needs no memory */
    } else if (parts->count > FEW) {
        spans_make(parts, shape);
    }
}

static void drop_if_empty(struct parts *parts)
{
    if (parts->count == 0 && parts->spans != NULL && parts->spans->visits == 0) {
        spans_drop(parts);
    }
}

void parts_remove(struct parts *parts, struct part *part)
{
    if (parts->spans != NULL) {
        pl_spans_remove(parts->spans, &part->span);
    }
    pl_list_remove(&part->link);
    parts->count--;
    drop_if_empty(parts);
}

void parts_move(struct parts *parts, const struct pl_shape *shape, struct part *part,
                const struct pl_box *box)
{
    part->whole = false;
    part->box   = *box;
    if (parts->spans != NULL) {
        pl_spans_remove(parts->spans, &part->span);
        PL_CHECK(span_add(parts, shape, part)); /* as above */
    }
}

struct finding {
    const struct pl_box *box;
    struct part *found;
};

static bool find_span(void *user, struct pl_span *span)
{
    struct part *part       = pl_container_of(span, struct part, span);
    struct finding *finding = user;

    if (part_touches(part, finding->box)) {
        finding->found = part;
    }
    return finding->found != NULL;
}

struct part *parts_find(const struct parts *parts, const struct pl_shape *shape,
                        const struct pl_box *box)
{
    struct finding finding = {.box = box};

    if (parts->spans != NULL && box != NULL) {
        struct pl_span_at span = pl_span_of_box(shape, box);

        (void)pl_spans_meet(parts->spans, &span, find_span, &finding);
        return finding.found;
    }
    for (struct pl_list *at = parts->list.next; at != &parts->list; at = at->next) {
        struct part *part = pl_container_of(at, struct part, link);

        if (part_touches(part, box)) {
            return part;
        }
    }
    return NULL;
}

struct visit {
    part_fn fn;
    void *user;
};

static bool visit_span(void *user, struct pl_span *span)
{
    const struct visit *visit = user;

    visit->fn(visit->user, pl_container_of(span, struct part, span));
    return false;
}

void parts_each(struct parts *parts, const struct pl_shape *shape, const struct pl_box *box,
                part_fn fn, void *user)
{
    struct visit visit = {.fn = fn, .user = user};
    struct pl_list *at, *next;

    if (parts->spans != NULL && box != NULL) {
        struct pl_span_at span = pl_span_of_box(shape, box);

        (void)pl_spans_meet(parts->spans, &span, visit_span, &visit);
        drop_if_empty(parts);
        return;
    }
    pl_list_for_each_safe(at, next, &parts->list) {
        fn(user, pl_container_of(at, struct part, link));
    }
}
