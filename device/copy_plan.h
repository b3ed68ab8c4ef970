/*
 * A copy of a box, reduced to what hardware and loops want: one run of contiguous bytes and up to 8
 * loops around it, with as few loops as the geometry allows. Pure arithmetic; plain C for .cu
 * files, which get a plan as a kernel argument.
 */
#ifndef DEVICE_COPY_PLAN_H
#define DEVICE_COPY_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#define DEVICE_COPY_LOOPS_MAX 8 /* PL_DIM_MAX */

struct device_copy_plan {
    uint64_t run_bytes; /* contiguous in both buffers */
    uint64_t dst_offset;
    uint64_t src_offset;
    uint32_t loop_count;
    uint32_t reserved;
    /* Innermost loop first; each count is at least 2; strides in bytes. */
    uint64_t count[DEVICE_COPY_LOOPS_MAX];
    uint64_t dst_stride[DEVICE_COPY_LOOPS_MAX];
    uint64_t src_stride[DEVICE_COPY_LOOPS_MAX];
};

struct pl_box;

/* `box` lies inside both frames. Neighbouring dimensions that step alike in both buffers become one loop. */
void device_copy_plan_init(struct device_copy_plan *plan, const struct pl_box *box,
                           uint32_t element_bytes, const struct pl_box *dst_frame,
                           const struct pl_box *src_frame);
/* How many runs there are: the product of the counts from loop `first` on. */
uint64_t device_copy_plan_runs(const struct device_copy_plan *plan, uint32_t first);
/* The widest power of two, up to 16, that divides the run, all strides and both addresses. */
uint32_t device_copy_plan_width(const struct device_copy_plan *plan, uint64_t dst,
                                uint64_t src);
/*
 * Step the loops from `first` on by one, moving the offsets. false: they have gone round, offsets
 * are as at the start.
 */
bool device_copy_plan_step(struct device_copy_plan *plan, uint32_t first,
                           uint64_t index[DEVICE_COPY_LOOPS_MAX]);

#endif
