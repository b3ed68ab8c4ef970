/*
 * The walk behind every copy of a box: it is cut into runs that are contiguous in both buffers,
 * each as long as possible.
 *
 * Dimensions of size 1 only shift the start, so they are dropped. Of the rest, innermost first, a
 * dimension joins the run if stepping it lands exactly at the run's end in both buffers. The first
 * that does not join ends the search: rows along it do not touch in one buffer, so rows of
 * dimensions outside it do not either. A whole array, or a slab of whole rows, is one run whatever
 * its rank.
 *
 * The remaining dimensions are walked like an odometer, in the order of the buffers.
 */
#include "box.h"

#include <assert.h>
#include <string.h>

/* What is left of the geometry: `ndim` loops, innermost first, around one run. Everything in bytes. */
struct walk {
    uint32_t ndim;
    uint64_t count[PL_DIM_MAX];
    uint64_t dst_stride[PL_DIM_MAX];
    uint64_t src_stride[PL_DIM_MAX];
    uint64_t dst_offset;
    uint64_t src_offset;
    uint64_t run_bytes;
};

static void walk_init(struct walk *walk, const struct pl_box *box,
                      const struct pl_box *dst_frame, const struct pl_box *src_frame,
                      uint32_t element_bytes)
{
    int64_t dst_stride[PL_DIM_MAX];
    int64_t src_stride[PL_DIM_MAX];

    pl_box_strides(dst_frame, dst_stride);
    pl_box_strides(src_frame, src_stride);
    walk->ndim       = 0;
    walk->run_bytes  = element_bytes;
    walk->dst_offset = (uint64_t)pl_box_offset(dst_frame, box->start) * element_bytes;
    walk->src_offset = (uint64_t)pl_box_offset(src_frame, box->start) * element_bytes;

    for (uint32_t d = box->ndim; d-- > 0;) {
        uint64_t count = (uint64_t)box->count[d];
        uint64_t dst   = (uint64_t)dst_stride[d] * element_bytes;
        uint64_t src   = (uint64_t)src_stride[d] * element_bytes;

        if (count == 1) {
            continue;
        }
        if (walk->ndim == 0 && dst == walk->run_bytes && src == walk->run_bytes) {
            walk->run_bytes *= count;
            continue;
        }
        walk->count[walk->ndim]      = count;
        walk->dst_stride[walk->ndim] = dst;
        walk->src_stride[walk->ndim] = src;
        walk->ndim++;
    }
}

/* Step the odometer, loop 0 fastest. 0: it has gone round. */
static int walk_step(struct walk *walk, uint64_t index[PL_DIM_MAX])
{
    for (uint32_t d = 0; d < walk->ndim; d++) {
        if (++index[d] < walk->count[d]) {
            walk->dst_offset += walk->dst_stride[d];
            walk->src_offset += walk->src_stride[d];
            return 1;
        }
        index[d] = 0;
        walk->dst_offset -= (walk->count[d] - 1) * walk->dst_stride[d];
        walk->src_offset -= (walk->count[d] - 1) * walk->src_stride[d];
    }
    return 0;
}

void pl_box_runs(const struct pl_box *box, const struct pl_box *dst_frame,
                 const struct pl_box *src_frame, uint32_t element_bytes, pl_run_fn fn,
                 void *user)
{
    uint64_t index[PL_DIM_MAX] = {0};
    struct walk walk;

    assert(pl_box_contains(dst_frame, box));
    assert(pl_box_contains(src_frame, box));
    assert(element_bytes > 0);

    walk_init(&walk, box, dst_frame, src_frame, element_bytes);
    do {
        fn(user, walk.dst_offset, walk.src_offset, walk.run_bytes);
    } while (walk_step(&walk, index));
}

struct host_copy {
    char *dst;
    const char *src;
};

static void host_copy_run(void *user, uint64_t dst_offset, uint64_t src_offset,
                          uint64_t bytes)
{
    const struct host_copy *copy = user;

    memcpy(copy->dst + dst_offset, copy->src + src_offset, bytes);
}

void pl_box_copy_host(const struct pl_box *box, void *dst, const struct pl_box *dst_frame,
                      const void *src, const struct pl_box *src_frame,
                      uint32_t element_bytes)
{
    struct host_copy copy = {.dst = dst, .src = src};

    pl_box_runs(box, dst_frame, src_frame, element_bytes, host_copy_run, &copy);
}
