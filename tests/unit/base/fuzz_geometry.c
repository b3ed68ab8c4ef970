/*
 * Geometry that a peer sent: a shape, a view of it, a view of that view. Whatever passes the checks
 * must then go through every operation without overflow (the undefined-behaviour sanitizer watches)
 * and keep its promises.
 */
#include "base/box.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct sent {
    struct pl_shape shape;
    struct pl_view outer;
    struct pl_view inner;
};

/* As in a message: fixed-width numbers one after the other, missing ones 0. */
static void take(const uint8_t **data, size_t *size, void *out, size_t bytes)
{
    size_t part = pl_min_u64(bytes, *size);

    memset(out, 0, bytes);
    memcpy(out, *data, part);
    *data += part;
    *size -= part;
}

static void take_view(const uint8_t **data, size_t *size, struct pl_view *view)
{
    take(data, size, &view->ndim, sizeof(view->ndim));
    take(data, size, view->start, sizeof(view->start));
    take(data, size, view->count, sizeof(view->count));
    take(data, size, view->step, sizeof(view->step));
}

static struct sent decode(const uint8_t *data, size_t size)
{
    struct sent sent;

    take(&data, &size, &sent.shape.dtype, sizeof(sent.shape.dtype));
    take(&data, &size, &sent.shape.ndim, sizeof(sent.shape.ndim));
    take(&data, &size, sent.shape.dim, sizeof(sent.shape.dim));
    take_view(&data, &size, &sent.outer);
    take_view(&data, &size, &sent.inner);
    return sent;
}

/* a is the disjoint union of the parts and of what it has in common with b. */
static void check_subtraction(const struct pl_box *a, const struct pl_box *b)
{
    struct pl_box parts[2 * PL_DIM_MAX];
    struct pl_box both;
    unsigned count = pl_box_subtract(a, b, parts);
    int64_t left   = pl_box_elements(a);

    if (pl_box_intersection(a, b, &both)) {
        PL_CHECK(pl_box_contains(a, &both) && pl_box_contains(b, &both));
        left -= pl_box_elements(&both);
    }
    for (unsigned i = 0; i < count; i++) {
        PL_CHECK(pl_box_contains(a, &parts[i]) && !pl_box_intersects(&parts[i], b));
        left -= pl_box_elements(&parts[i]);
    }
    PL_CHECK(left == 0);
}

static void check_views(const struct sent *sent)
{
    struct pl_box whole = pl_box_of_shape(&sent->shape);
    struct pl_box hull  = pl_view_hull(&sent->outer);
    struct pl_box inner_hull;
    struct pl_view both;
    struct pl_err err;

    PL_CHECK(pl_box_contains(&whole, &hull));
    PL_CHECK(pl_box_offset(&whole, hull.start) < pl_shape_elements(&sent->shape));
    check_subtraction(&whole, &hull);

    if (pl_view_compose(&sent->outer, &sent->inner, &both, &err) == PLASMON_OK) {
        PL_CHECK(pl_view_check(&both, &sent->shape, &err) == PLASMON_OK);
        inner_hull = pl_view_hull(&both);
        PL_CHECK(pl_box_contains(&hull, &inner_hull));
        check_subtraction(&hull, &inner_hull);
        check_subtraction(&inner_hull, &hull);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sent sent = decode(data, size);
    struct pl_view both;
    struct pl_err err;
    char text[128];

    (void)pl_shape_format(&sent.shape, text);
    /* Unchecked numbers must not overflow either. */
    if (pl_view_compose(&sent.outer, &sent.inner, &both, &err) == PLASMON_OK) {
        PL_CHECK(both.ndim == sent.inner.ndim);
    }
    if (pl_shape_check(&sent.shape, &err) == PLASMON_OK &&
        pl_view_check(&sent.outer, &sent.shape, &err) == PLASMON_OK) {
        check_views(&sent);
    }
    return 0;
}
