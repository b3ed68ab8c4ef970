/*
 * Geometry. A shape is a dtype and up to 8 dimensions; a box is a dense part of an array; a view
 * adds a step a dimension. All numbers are in elements of the root array, slowest dimension first
 * (C order).
 *
 * Dependencies are by boxes: a view is represented by its hull, the smallest box that holds it. So
 * two interleaved strided views of one array count as overlapping. That is safe, and keeps every
 * set operation exact and cheap.
 */
#ifndef BASE_BOX_H
#define BASE_BOX_H

#include <assert.h>
#include <stdbool.h>

#include "base.h"
#include "str.h"
#include "vec.h"

#define PL_DIM_MAX 8

/* Frozen: they cross the wire. Same numbers as enum plasmon_dtype. */
enum pl_dtype {
    PL_BOOL = 1,
    PL_I8   = 2,
    PL_U8   = 3,
    PL_I16  = 4,
    PL_U16  = 5,
    PL_I32  = 6,
    PL_U32  = 7,
    PL_I64  = 8,
    PL_U64  = 9,
    PL_F16  = 10,
    PL_BF16 = 11,
    PL_F32  = 12,
    PL_F64  = 13,
    PL_C64  = 14, /* two f32 */
    PL_C128 = 15, /* two f64 */
};

uint32_t pl_dtype_bytes(uint32_t dtype);   /* 0: no such dtype */
const char *pl_dtype_name(uint32_t dtype); /* "f32"; "?" */

struct pl_shape {
    uint32_t dtype;
    uint32_t ndim;
    int64_t dim[PL_DIM_MAX];
};
struct pl_box {
    uint32_t ndim;
    int64_t start[PL_DIM_MAX];
    int64_t count[PL_DIM_MAX]; /* each at least 1 */
};
struct pl_view {
    uint32_t ndim;
    int64_t start[PL_DIM_MAX];
    int64_t count[PL_DIM_MAX];
    int64_t step[PL_DIM_MAX]; /* each at least 1 */
};

/* dtype known, ndim <= 8, every dim >= 1, bytes fit into 2^48. err names what is wrong. */
plasmon_status_t pl_shape_check(const struct pl_shape *shape,
                                struct pl_err *err) PL_MUST_CHECK;
int64_t pl_shape_elements(const struct pl_shape *shape);
uint64_t pl_shape_bytes(const struct pl_shape *shape);
bool pl_shape_equal(const struct pl_shape *a, const struct pl_shape *b);
/* "f32[3,4]" into out[128]. */
const char *pl_shape_format(const struct pl_shape *shape, char out[128]);

struct pl_box pl_box_of_shape(const struct pl_shape *shape);
int64_t pl_box_elements(const struct pl_box *box);
bool pl_box_equal(const struct pl_box *a, const struct pl_box *b);
bool pl_box_contains(const struct pl_box *outer, const struct pl_box *inner);
/* Asked of every part of an array at each use of it, and nearly always answered in the first dimension. */
static inline bool pl_box_intersects(const struct pl_box *a, const struct pl_box *b)
{
    assert(a->ndim == b->ndim);
    for (uint32_t d = 0; d < a->ndim; d++) {
        if (a->start[d] >= b->start[d] + b->count[d] ||
            b->start[d] >= a->start[d] + a->count[d]) {
            return false;
        }
    }
    return true;
}
int64_t pl_box_common(const struct pl_box *a,
                      const struct pl_box *b); /* elements of both; 0: none */
/* false: empty, *out untouched. */
bool pl_box_intersection(const struct pl_box *a, const struct pl_box *b,
                         struct pl_box *out);
/* a minus b as at most 2 * ndim disjoint boxes, in a fixed order; returns how many. */
unsigned pl_box_subtract(const struct pl_box *a, const struct pl_box *b,
                         struct pl_box out[2 * PL_DIM_MAX]);
/* Out of each of the boxes (struct pl_box), which change their order; false: none of them met it. */
bool pl_boxes_take_out(struct pl_vec *boxes, const struct pl_box *box);
/* Row-major strides, in elements, of a buffer that holds exactly `frame`. */
void pl_box_strides(const struct pl_box *frame, int64_t out_stride[PL_DIM_MAX]);
/* Element offset of index `at` (root coordinates) in a buffer that holds `frame`. */
int64_t pl_box_offset(const struct pl_box *frame, const int64_t at[PL_DIM_MAX]);

/* Inside the shape, counts and steps >= 1. */
plasmon_status_t pl_view_check(const struct pl_view *view, const struct pl_shape *root,
                               struct pl_err *err) PL_MUST_CHECK;
struct pl_view pl_view_whole(const struct pl_shape *shape);
struct pl_view pl_view_of_box(const struct pl_box *box); /* every element of it */
struct pl_box pl_view_hull(const struct pl_view *view);
bool pl_view_dense(const struct pl_view *view); /* all steps 1 (or count 1) */
/* A view of a view: `inner` is in the coordinates of what `outer` shows. */
plasmon_status_t pl_view_compose(const struct pl_view *outer, const struct pl_view *inner,
                                 struct pl_view *out, struct pl_err *err) PL_MUST_CHECK;
struct pl_shape pl_view_shape(const struct pl_view *view, uint32_t dtype);

/*
 * Copy `box` between two host buffers that hold `dst_frame` and `src_frame` (box inside both).
 * Contiguous runs go by memcpy. The same walk is what device copies use: pl_box_runs calls `fn` for
 * each run of `bytes` contiguous in both.
 */
typedef void (*pl_run_fn)(void *user, uint64_t dst_offset, uint64_t src_offset,
                          uint64_t bytes);
void pl_box_runs(const struct pl_box *box, const struct pl_box *dst_frame,
                 const struct pl_box *src_frame, uint32_t element_bytes, pl_run_fn fn,
                 void *user);
void pl_box_copy_host(const struct pl_box *box, void *dst, const struct pl_box *dst_frame,
                      const void *src, const struct pl_box *src_frame,
                      uint32_t element_bytes);

#endif
