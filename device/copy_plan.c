/*
 * From boxes to runs and loops.
 *
 * Dimensions of size 1 only shift the start, so they are dropped. Then, innermost first, a
 * dimension is merged into what is already there if one step of it lands exactly where that ends,
 * in both buffers: into the run while there is no loop yet, else into the outermost loop so far. So
 * a slab of whole rows is one run whatever its rank, and a stack of tiles cut along one dimension
 * is one loop (one 2D copy) rather than three.
 */
#include "device/copy_plan.h"

#include "base/box.h"

#include <assert.h>

static_assert(DEVICE_COPY_LOOPS_MAX == PL_DIM_MAX, "a loop a dimension");

static void plan_add_loop(struct device_copy_plan *plan, uint64_t count,
                          uint64_t dst_stride, uint64_t src_stride)
{
    uint32_t n = plan->loop_count;

    if (n == 0 && dst_stride == plan->run_bytes && src_stride == plan->run_bytes) {
        plan->run_bytes *= count;
        return;
    }
    if (n > 0 && dst_stride == plan->dst_stride[n - 1] * plan->count[n - 1] &&
        src_stride == plan->src_stride[n - 1] * plan->count[n - 1]) {
        plan->count[n - 1] *= count;
        return;
    }
    plan->count[n]      = count;
    plan->dst_stride[n] = dst_stride;
    plan->src_stride[n] = src_stride;
    plan->loop_count++;
}

void device_copy_plan_init(struct device_copy_plan *plan, const struct pl_box *box,
                           uint32_t element_bytes, const struct pl_box *dst_frame,
                           const struct pl_box *src_frame)
{
    int64_t dst_stride[PL_DIM_MAX];
    int64_t src_stride[PL_DIM_MAX];

    assert(element_bytes > 0);
    assert(pl_box_contains(dst_frame, box));
    assert(pl_box_contains(src_frame, box));

    pl_box_strides(dst_frame, dst_stride);
    pl_box_strides(src_frame, src_stride);

    *plan = (struct device_copy_plan){
        .run_bytes  = element_bytes,
        .dst_offset = (uint64_t)pl_box_offset(dst_frame, box->start) * element_bytes,
        .src_offset = (uint64_t)pl_box_offset(src_frame, box->start) * element_bytes,
    };
    for (uint32_t d = box->ndim; d-- > 0;) {
        if (box->count[d] > 1) {
            plan_add_loop(plan, (uint64_t)box->count[d],
                          (uint64_t)dst_stride[d] * element_bytes,
                          (uint64_t)src_stride[d] * element_bytes);
        }
    }
}

uint64_t device_copy_plan_runs(const struct device_copy_plan *plan, uint32_t first)
{
    uint64_t runs = 1;

    for (uint32_t i = first; i < plan->loop_count; i++) {
        runs *= plan->count[i];
    }
    return runs;
}

uint32_t device_copy_plan_width(const struct device_copy_plan *plan, uint64_t dst,
                                uint64_t src)
{
    /* A power of two divides all of them if and only if its bit is not above their lowest set bit. */
    uint64_t all =
        16 | plan->run_bytes | (dst + plan->dst_offset) | (src + plan->src_offset);

    for (uint32_t i = 0; i < plan->loop_count; i++) {
        all |= plan->dst_stride[i] | plan->src_stride[i];
    }
    return (uint32_t)(all & (~all + 1));
}

bool device_copy_plan_step(struct device_copy_plan *plan, uint32_t first,
                           uint64_t index[DEVICE_COPY_LOOPS_MAX])
{
    for (uint32_t i = first; i < plan->loop_count; i++) {
        if (++index[i] < plan->count[i]) {
            plan->dst_offset += plan->dst_stride[i];
            plan->src_offset += plan->src_stride[i];
            return true;
        }
        index[i] = 0;
        plan->dst_offset -= (plan->count[i] - 1) * plan->dst_stride[i];
        plan->src_offset -= (plan->count[i] - 1) * plan->src_stride[i];
    }
    return false;
}
