/*
 * How a reduction is cut into work for a GPU: which way (cuda_reduce.cuh), and into how many
 * segments. It depends on shapes and strides alone, never on the GPU, so that results do not
 * either.
 */
#ifndef KERNELS_CUDA_PLAN_H
#define KERNELS_CUDA_PLAN_H

#include "kernels/cuda_int.h"

struct cuda_plan {
    struct cuda_reduce params;
    bool by_rows;
    uint32_t state_bytes; /* what the kernels keep of a segment */
};

/* args: y, x. x2: the second factor of dot, or NULL. */
struct cuda_plan cuda_plan_reduction(const struct kernel_arg *args, int op,
                                     uint32_t state_bytes, const struct kernel_arg *x2,
                                     int64_t axis);
/*
 * y has x's shape: kept_stride and reduced_stride hold both arrays' strides, y first in the one and
 * x first in the other.
 */
struct cuda_plan cuda_plan_lanes(const struct kernel_arg *y, const struct kernel_arg *x,
                                 int64_t axis, uint32_t state_bytes);
uint64_t cuda_plan_scratch(const struct cuda_plan *plan);
/* Partial results go to the call's scratch. */
plasmon_status_t cuda_plan_run(const struct cuda_call *call, struct cuda_plan *plan,
                               uint32_t rows_kernel, uint32_t columns_kernel,
                               uint32_t join_kernel) PL_MUST_CHECK;

#endif
