/*
 * Shapes, boxes and views as sets of index vectors. Everything here is exact integer arithmetic on
 * checked numbers: a shape that passed pl_shape_check() has at most 2^48 elements, so sums of a
 * start and a count cannot overflow, and products of counts of boxes inside it cannot either. What
 * comes from outside goes through the _check functions first; they use overflow-checked arithmetic
 * themselves.
 */
#include "box.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#define SHAPE_BYTES_MAX (1ull << 48)

static const struct {
    const char *name;
    uint32_t bytes;
} dtypes[] = {
    [PL_BOOL] = {"bool", 1}, [PL_I8] = {"i8", 1},     [PL_U8] = {"u8", 1},
    [PL_I16] = {"i16", 2},   [PL_U16] = {"u16", 2},   [PL_I32] = {"i32", 4},
    [PL_U32] = {"u32", 4},   [PL_I64] = {"i64", 8},   [PL_U64] = {"u64", 8},
    [PL_F16] = {"f16", 2},   [PL_BF16] = {"bf16", 2}, [PL_F32] = {"f32", 4},
    [PL_F64] = {"f64", 8},   [PL_C64] = {"c64", 8},   [PL_C128] = {"c128", 16},
};

uint32_t pl_dtype_bytes(uint32_t dtype)
{
    return dtype < PL_COUNT(dtypes) ? dtypes[dtype].bytes : 0;
}

const char *pl_dtype_name(uint32_t dtype)
{
    return pl_dtype_bytes(dtype) > 0 ? dtypes[dtype].name : "?";
}

plasmon_status_t pl_shape_check(const struct pl_shape *shape, struct pl_err *err)
{
    uint64_t bytes = pl_dtype_bytes(shape->dtype);

    if (bytes == 0) {
        return pl_err_set(err, PLASMON_EDTYPE, "dtype %u does not exist", shape->dtype);
    }
    if (shape->ndim > PL_DIM_MAX) {
        return pl_err_set(err, PLASMON_ESHAPE, "%u dimensions; at most %d are possible",
                          shape->ndim, PL_DIM_MAX);
    }
    for (uint32_t d = 0; d < shape->ndim; d++) {
        if (shape->dim[d] < 1) {
            return pl_err_set(err, PLASMON_ESHAPE,
                              "dimension %u has size %lld; it must be at least 1", d,
                              (long long)shape->dim[d]);
        }
        if (__builtin_mul_overflow(bytes, (uint64_t)shape->dim[d], &bytes) ||
            bytes > SHAPE_BYTES_MAX) {
            char text[128];

            return pl_err_set(err, PLASMON_ESHAPE, "%s is larger than 2^48 bytes",
                              pl_shape_format(shape, text));
        }
    }
    return PLASMON_OK;
}

static int64_t product(const int64_t *factors, uint32_t count)
{
    int64_t result = 1;

    for (uint32_t d = 0; d < count; d++) {
        result *= factors[d];
    }
    return result;
}

int64_t pl_shape_elements(const struct pl_shape *shape)
{
    return product(shape->dim, shape->ndim);
}

uint64_t pl_shape_bytes(const struct pl_shape *shape)
{
    return (uint64_t)pl_shape_elements(shape) * pl_dtype_bytes(shape->dtype);
}

bool pl_shape_equal(const struct pl_shape *a, const struct pl_shape *b)
{
    return a->dtype == b->dtype && a->ndim == b->ndim &&
           memcmp(a->dim, b->dim, a->ndim * sizeof(a->dim[0])) == 0;
}

const char *pl_shape_format(const struct pl_shape *shape, char out[128])
{
    size_t used = (size_t)snprintf(out, 128, "%s[", pl_dtype_name(shape->dtype));

    /* Sizes of a shape that failed its check may be long: the end is then cut, and `used` stops growing. */
    for (uint32_t d = 0; d < shape->ndim && d < PL_DIM_MAX && used < 128; d++) {
        used += (size_t)snprintf(out + used, 128 - used, "%s%lld", d > 0 ? "," : "",
                                 (long long)shape->dim[d]);
    }
    if (used < 128) {
        (void)snprintf(out + used, 128 - used, "]");
    }
    return out;
}

struct pl_box pl_box_of_shape(const struct pl_shape *shape)
{
    struct pl_box box = {.ndim = shape->ndim};

    memcpy(box.count, shape->dim, sizeof(box.count));
    return box;
}

int64_t pl_box_elements(const struct pl_box *box)
{
    return product(box->count, box->ndim);
}

bool pl_box_equal(const struct pl_box *a, const struct pl_box *b)
{
    return a->ndim == b->ndim &&
           memcmp(a->start, b->start, a->ndim * sizeof(a->start[0])) == 0 &&
           memcmp(a->count, b->count, a->ndim * sizeof(a->count[0])) == 0;
}

static int64_t box_end(const struct pl_box *box, uint32_t d)
{
    return box->start[d] + box->count[d];
}

bool pl_box_contains(const struct pl_box *outer, const struct pl_box *inner)
{
    assert(outer->ndim == inner->ndim);
    for (uint32_t d = 0; d < outer->ndim; d++) {
        if (inner->start[d] < outer->start[d] || box_end(inner, d) > box_end(outer, d)) {
            return false;
        }
    }
    return true;
}

int64_t pl_box_common(const struct pl_box *a, const struct pl_box *b)
{
    int64_t elements = 1;

    assert(a->ndim == b->ndim);
    for (uint32_t d = 0; d < a->ndim; d++) {
        int64_t start = a->start[d] > b->start[d] ? a->start[d] : b->start[d];
        int64_t end   = box_end(a, d) < box_end(b, d) ? box_end(a, d) : box_end(b, d);

        if (start >= end) {
            return 0;
        }
        elements *= end - start;
    }
    return elements;
}

bool pl_box_intersection(const struct pl_box *a, const struct pl_box *b, struct pl_box *out)
{
    struct pl_box both;

    if (!pl_box_intersects(a, b)) {
        return false; /* nearly always, so nothing was done for the rest yet */
    }
    both = (struct pl_box){.ndim = a->ndim};
    for (uint32_t d = 0; d < a->ndim; d++) {
        int64_t start = a->start[d] > b->start[d] ? a->start[d] : b->start[d];
        int64_t end   = box_end(a, d) < box_end(b, d) ? box_end(a, d) : box_end(b, d);

        both.start[d] = start;
        both.count[d] = end - start;
    }
    *out = both;
    return true;
}

/*
 * Dimension by dimension, cut off the slab before b and the slab after b, and go on with what lies
 * between. What is left at the end is the intersection.
 */
unsigned pl_box_subtract(const struct pl_box *a, const struct pl_box *b,
                         struct pl_box out[2 * PL_DIM_MAX])
{
    struct pl_box rest = *a;
    unsigned count     = 0;

    if (!pl_box_intersects(a, b)) {
        out[0] = *a;
        return 1;
    }
    for (uint32_t d = 0; d < a->ndim; d++) {
        int64_t before = b->start[d] - rest.start[d];
        int64_t after  = box_end(&rest, d) - box_end(b, d);

        if (before > 0) {
            out[count]          = rest;
            out[count].count[d] = before;
            count++;
            rest.start[d] += before;
            rest.count[d] -= before;
        }
        if (after > 0) {
            out[count]          = rest;
            out[count].start[d] = box_end(b, d);
            out[count].count[d] = after;
            count++;
            rest.count[d] -= after;
        }
    }
    return count;
}

bool pl_boxes_take_out(struct pl_vec *boxes, const struct pl_box *box)
{
    bool met = false;

    for (size_t i = boxes->count; i-- > 0;) {
        const struct pl_box old = *(struct pl_box *)pl_vec_at(boxes, i);
        struct pl_box rest[2 * PL_DIM_MAX];
        unsigned count;

        if (!pl_box_intersects(&old, box)) {
            continue;
        }
        met = true;
        pl_vec_remove_unordered(boxes, i);
        count = pl_box_subtract(&old, box, rest);
        for (unsigned k = 0; k < count; k++) {
            struct pl_box *place = pl_vec_push(boxes);

            PL_CHECK(place != NULL);
            *place = rest[k];
        }
    }
    return met;
}

void pl_box_strides(const struct pl_box *frame, int64_t out_stride[PL_DIM_MAX])
{
    int64_t stride = 1;

    for (uint32_t d = frame->ndim; d-- > 0;) {
        out_stride[d] = stride;
        stride *= frame->count[d];
    }
}

int64_t pl_box_offset(const struct pl_box *frame, const int64_t at[PL_DIM_MAX])
{
    int64_t offset = 0;

    for (uint32_t d = 0; d < frame->ndim; d++) {
        assert(at[d] >= frame->start[d] && at[d] < box_end(frame, d));
        offset = offset * frame->count[d] + (at[d] - frame->start[d]);
    }
    return offset;
}

/* One dimension of a view against the size it looks at. */
static plasmon_status_t view_check_dim(const struct pl_view *view, uint32_t d, int64_t size,
                                       struct pl_err *err)
{
    int64_t span = 0;
    int64_t last = 0;

    if (view->count[d] < 1 || view->step[d] < 1) {
        return pl_err_set(
            err, PLASMON_ERANGE,
            "dimension %u of the view: count %lld, step %lld; both must be at least 1", d,
            (long long)view->count[d], (long long)view->step[d]);
    }
    if (view->start[d] < 0 ||
        __builtin_mul_overflow(view->count[d] - 1, view->step[d], &span) ||
        __builtin_add_overflow(view->start[d], span, &last) || last >= size) {
        return pl_err_set(err, PLASMON_ERANGE,
                          "dimension %u of the view: start %lld, count %lld, step %lld "
                          "leaves the size %lld",
                          d, (long long)view->start[d], (long long)view->count[d],
                          (long long)view->step[d], (long long)size);
    }
    return PLASMON_OK;
}

static plasmon_status_t view_check(const struct pl_view *view, uint32_t ndim,
                                   const int64_t *size, struct pl_err *err)
{
    if (view->ndim != ndim) {
        return pl_err_set(err, PLASMON_ERANGE,
                          "the view has %u dimensions, what it looks at has %u", view->ndim,
                          ndim);
    }
    if (ndim > PL_DIM_MAX) {
        return pl_err_set(err, PLASMON_ERANGE,
                          "the view has %u dimensions; the limit is %u", ndim,
                          (unsigned)PL_DIM_MAX);
    }
    for (uint32_t d = 0; d < ndim; d++) {
        plasmon_status_t status = view_check_dim(view, d, size[d], err);

        if (status != PLASMON_OK) {
            return status;
        }
    }
    return PLASMON_OK;
}

plasmon_status_t pl_view_check(const struct pl_view *view, const struct pl_shape *root,
                               struct pl_err *err)
{
    return view_check(view, root->ndim, root->dim, err);
}

struct pl_view pl_view_whole(const struct pl_shape *shape)
{
    struct pl_view view = {.ndim = shape->ndim};

    for (uint32_t d = 0; d < shape->ndim; d++) {
        view.count[d] = shape->dim[d];
        view.step[d]  = 1;
    }
    return view;
}

struct pl_box pl_view_hull(const struct pl_view *view)
{
    struct pl_box hull = {.ndim = view->ndim};

    for (uint32_t d = 0; d < view->ndim; d++) {
        hull.start[d] = view->start[d];
        hull.count[d] = (view->count[d] - 1) * view->step[d] + 1;
    }
    return hull;
}

bool pl_view_dense(const struct pl_view *view)
{
    for (uint32_t d = 0; d < view->ndim; d++) {
        if (view->step[d] != 1 && view->count[d] != 1) {
            return false;
        }
    }
    return true;
}

plasmon_status_t pl_view_compose(const struct pl_view *outer, const struct pl_view *inner,
                                 struct pl_view *out, struct pl_err *err)
{
    struct pl_view both     = {.ndim = outer->ndim};
    plasmon_status_t status = view_check(inner, outer->ndim, outer->count, err);

    if (status != PLASMON_OK) {
        return status;
    }
    for (uint32_t d = 0; d < outer->ndim; d++) {
        int64_t skip = 0;
        /* of a single element the step says nothing, and may be any number: it becomes 1 */
        int64_t step = 1;

        if (__builtin_mul_overflow(inner->start[d], outer->step[d], &skip) ||
            __builtin_add_overflow(outer->start[d], skip, &both.start[d]) ||
            (inner->count[d] > 1 &&
             __builtin_mul_overflow(inner->step[d], outer->step[d], &step))) {
            return pl_err_set(err, PLASMON_ERANGE,
                              "dimension %u of the view of a view is out of range", d);
        }
        both.count[d] = inner->count[d];
        both.step[d]  = step;
    }
    *out = both;
    return PLASMON_OK;
}

struct pl_shape pl_view_shape(const struct pl_view *view, uint32_t dtype)
{
    struct pl_shape shape = {.dtype = dtype, .ndim = view->ndim};

    memcpy(shape.dim, view->count, view->ndim * sizeof(shape.dim[0]));
    return shape;
}

struct pl_view pl_view_of_box(const struct pl_box *box)
{
    struct pl_view view = {.ndim = box->ndim};

    for (uint32_t d = 0; d < box->ndim; d++) {
        view.start[d] = box->start[d];
        view.count[d] = box->count[d];
        view.step[d]  = 1;
    }
    return view;
}
