/*
 * Copying what a view shows out of a buffer.
 *
 * The destination is the view's elements in C order; the source holds `frame` of the root. `box`
 * says what part of the root the source is right for: a value may lie in several buffers, and each
 * gives its part.
 */
#include <string.h>

#include "base/copy.h"
#include "client/client_int.h"
#include "client/parallel.h"

struct walk {
    uint8_t *dst;
    const uint8_t *src;
    uint32_t ndim;
    uint32_t element_bytes;
    bool run;                       /* the last dimension is contiguous in the source */
    int64_t count[PL_DIM_MAX];      /* elements to copy a dimension */
    int64_t dst_stride[PL_DIM_MAX]; /* bytes */
    int64_t src_stride[PL_DIM_MAX];
};

static void copy_dimension(const struct walk *walk, uint32_t dim, uint8_t *dst,
                           const uint8_t *src)
{
    if (dim == walk->ndim) {
        memcpy(dst, src, walk->element_bytes);
        return;
    }
    if (dim == walk->ndim - 1 && walk->run) {
        memcpy(dst, src, (size_t)walk->count[dim] * walk->element_bytes);
        return;
    }
    for (int64_t i = 0; i < walk->count[dim]; i++) {
        copy_dimension(walk, dim + 1, dst + i * walk->dst_stride[dim],
                       src + i * walk->src_stride[dim]);
    }
}

/* First and last index of the view's dimension whose element lies in [start, start + count). false: none. */
static bool indices_inside(int64_t view_start, int64_t view_count, int64_t step,
                           int64_t start, int64_t count, int64_t *out_first,
                           int64_t *out_last)
{
    int64_t first = start <= view_start ? 0 : (start - view_start + step - 1) / step;
    int64_t end   = start + count - 1; /* last root index that is inside */
    int64_t last  = end < view_start ? -1 : (end - view_start) / step;

    *out_first = first;
    *out_last  = last < view_count - 1 ? last : view_count - 1;
    return *out_first <= *out_last;
}

struct runs {
    uint8_t *dst;
    const uint8_t *src;
};

static void copy_run(void *user, uint64_t dst_offset, uint64_t src_offset, uint64_t bytes)
{
    const struct runs *runs = user;

    if (bytes < PARALLEL_BYTES_MIN) {
        pl_copy(runs->dst + dst_offset, runs->src + src_offset, bytes);
    } else {
        parallel_copy(runs->dst + dst_offset, runs->src + src_offset, bytes);
    }
}

void copy_view_out(void *dst, const struct pl_view *view, const struct pl_box *box,
                   const void *src, const struct pl_box *frame, uint32_t element_bytes)
{
    struct walk walk = {
        .dst = dst, .src = src, .ndim = view->ndim, .element_bytes = element_bytes};
    int64_t frame_stride[PL_DIM_MAX], view_stride = element_bytes;
    struct pl_box hull = pl_view_hull(view);

    if (pl_view_dense(view)) {
        struct pl_box part;

        struct runs runs = {.dst = dst, .src = src};

        if (pl_box_intersection(&hull, box, &part)) {
            pl_box_runs(&part, &hull, frame, element_bytes, copy_run, &runs);
        }
        return;
    }

    pl_box_strides(frame, frame_stride);
    for (uint32_t i = view->ndim; i > 0; i--) {
        uint32_t d = i - 1;
        int64_t first, last;

        if (!indices_inside(view->start[d], view->count[d], view->step[d], box->start[d],
                            box->count[d], &first, &last)) {
            return;
        }
        walk.count[d]      = last - first + 1;
        walk.dst_stride[d] = view_stride;
        walk.src_stride[d] = view->step[d] * frame_stride[d] * (int64_t)element_bytes;
        walk.dst += first * view_stride;
        walk.src += (view->start[d] + first * view->step[d] - frame->start[d]) *
                    frame_stride[d] * (int64_t)element_bytes;
        view_stride *= view->count[d];
    }
    walk.run = view->step[view->ndim - 1] == 1;
    copy_dimension(&walk, 0, walk.dst, walk.src);
}
