/*
 * Launching reductions: the plan (cuda_plan.h), and the variants of sum, min, argmin, dot and their kin.
 */
#include "kernels/cuda_plan.h"

#include <string.h>

/* Enough work to fill the largest GPU of today (132 multiprocessors, 2048 threads each). */
#define BLOCKS_WANTED  1024
#define THREADS_WANTED (1 << 18)
/* Elements that make a segment worth its second kernel. */
#define ROW_SEGMENT_MIN    4096
#define COLUMN_SEGMENT_MIN 64
#define SEGMENTS_MAX       1024
/* From here on a whole block works on an output. */
#define BLOCK_LENGTH 1024

static int64_t divide_up(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* x2: the second factor of dot, or NULL. */
static void plan_dimensions(struct cuda_reduce *params, const struct kernel_arg *y,
                            const struct kernel_arg *x, const struct kernel_arg *x2,
                            int64_t axis)
{
    struct kernel_arg reduced = kernel_arg_reduced(x, axis);
    struct cuda_walk kept;
    struct cuda_walk gone;
    struct kernel_walk walk;

    kernel_walk_outputs(&walk, y, x, axis);
    kept = cuda_walk_of(&walk, 0);
    kernel_walk_init(&walk, &reduced);
    if (x2 != NULL) {
        kernel_walk_add(&walk, x2);
        params->x2 = x2->data.addr;
    }
    gone = cuda_walk_of(&walk, 0);

    params->y            = y->data.addr;
    params->x            = x->data.addr;
    params->to           = y->dtype;
    params->outputs      = kept.count;
    params->length       = gone.count;
    params->kept_ndim    = kept.ndim;
    params->reduced_ndim = gone.ndim;
    memcpy(params->kept_dim, kept.dim, sizeof(kept.dim));
    memcpy(params->kept_stride, kept.stride, sizeof(params->kept_stride));
    memcpy(params->reduced_dim, gone.dim, sizeof(gone.dim));
    memcpy(params->reduced_stride, gone.stride, sizeof(params->reduced_stride));
}

static void plan_segments(struct cuda_plan *plan)
{
    struct cuda_reduce *p = &plan->params;
    int64_t segments      = 1;

    if (plan->by_rows) {
        segments = smaller(divide_up(BLOCKS_WANTED, p->outputs),
                           divide_up(p->length, ROW_SEGMENT_MIN));
    } else {
        segments = smaller(divide_up(THREADS_WANTED, p->outputs),
                           divide_up(p->length, COLUMN_SEGMENT_MIN));
    }
    p->segment_length = divide_up(p->length, smaller(segments, SEGMENTS_MAX));
    p->segments       = divide_up(p->length, p->segment_length);
    p->group          = p->segment_length >= BLOCK_LENGTH ? 256 : 32;
}

/* With the dimensions known. */
static void plan_way(struct cuda_plan *plan)
{
    struct cuda_reduce *p = &plan->params;
    int64_t across        = p->reduced_stride[0][p->reduced_ndim - 1];
    int64_t beside        = p->kept_stride[1][p->kept_ndim - 1];

    plan->by_rows = p->outputs == 1 || (p->length >= 32 && across <= beside);
    plan_segments(plan);
}

struct cuda_plan cuda_plan_reduction(const struct kernel_arg *args, int op,
                                     uint32_t state_bytes, const struct kernel_arg *x2,
                                     int64_t axis)
{
    struct cuda_plan plan = {.state_bytes = state_bytes};

    plan.params.op = op;
    plan_dimensions(&plan.params, &args[0], &args[1], x2, axis);
    plan_way(&plan);
    return plan;
}

/* The first elements of the lanes. */
static struct kernel_arg without_axis(const struct kernel_arg *x, int64_t axis)
{
    struct kernel_arg view = *x;

    for (uint32_t d = 0; d < x->ndim; d++) {
        if (axis == -1 || axis == (int64_t)d) {
            view.dim[d] = 1;
        }
    }
    return view;
}

struct cuda_plan cuda_plan_lanes(const struct kernel_arg *y, const struct kernel_arg *x,
                                 int64_t axis, uint32_t state_bytes)
{
    struct cuda_plan plan     = {.state_bytes = state_bytes};
    struct cuda_reduce *p     = &plan.params;
    struct kernel_arg first_y = without_axis(y, axis);
    struct kernel_arg first_x = without_axis(x, axis);
    struct kernel_arg along_y = kernel_arg_reduced(y, axis);
    struct kernel_arg along_x = kernel_arg_reduced(x, axis);
    struct kernel_walk walk;
    struct cuda_walk kept;
    struct cuda_walk along;

    kernel_walk_init(&walk, &first_y);
    kernel_walk_add(&walk, &first_x);
    kept = cuda_walk_of(&walk, 0);
    kernel_walk_init(&walk, &along_x);
    kernel_walk_add(&walk, &along_y);
    along = cuda_walk_of(&walk, 0);

    p->y            = y->data.addr;
    p->x            = x->data.addr;
    p->to           = y->dtype;
    p->outputs      = kept.count;
    p->length       = along.count;
    p->kept_ndim    = kept.ndim;
    p->reduced_ndim = along.ndim;
    memcpy(p->kept_dim, kept.dim, sizeof(kept.dim));
    memcpy(p->kept_stride, kept.stride, sizeof(p->kept_stride));
    memcpy(p->reduced_dim, along.dim, sizeof(along.dim));
    memcpy(p->reduced_stride, along.stride, sizeof(p->reduced_stride));
    plan_way(&plan);
    return plan;
}

uint64_t cuda_plan_scratch(const struct cuda_plan *plan)
{
    uint64_t slots = (uint64_t)(plan->params.outputs * plan->params.segments);

    return plan->params.segments == 1 ? 0 : slots * plan->state_bytes;
}

plasmon_status_t cuda_plan_run(const struct cuda_call *call, struct cuda_plan *plan,
                               uint32_t rows_kernel, uint32_t columns_kernel,
                               uint32_t join_kernel)
{
    struct cuda_reduce *p = &plan->params;
    int64_t work          = p->outputs * p->segments * (plan->by_rows ? p->group : 1);
    plasmon_status_t status;

    p->partial = call->scratch.addr;
    status     = cuda_launch(call, plan->by_rows ? rows_kernel : columns_kernel,
                             cuda_blocks(call, work), 256, 1, p);
    if (status != PLASMON_OK || p->segments == 1) {
        return status;
    }
    return cuda_launch(call, join_kernel, cuda_blocks(call, p->outputs * 256), 256, 1, p);
}

/* ----------------------------------------------------------------------------- variants */

/* Sums, products and extremes keep an accumulator of a segment; arg reductions keep an index, too. */
static uint32_t state_bytes(const struct kernel_arg *x, bool is_arg)
{
    return is_arg || kernel_is_complex(x->dtype) ? 16 : 8;
}

static uint32_t join_kernel(uint32_t dtype, bool is_arg)
{
    uint32_t join = is_arg ? CUDA_arg_join_f64 : CUDA_join_f64;

    if (kernel_is_complex(dtype)) {
        return CUDA_join_c128;
    }
    return join + (uint32_t)kernel_is_integer(dtype);
}

static plasmon_status_t reduce(const struct cuda_call *call, const struct kernel_arg *x2,
                               int64_t axis)
{
    uint32_t dtype        = call->args[1].dtype;
    uint32_t type         = cuda_type_index(dtype);
    struct cuda_plan plan = cuda_plan_reduction(
        call->args, call->op, state_bytes(&call->args[1], false), x2, axis);

    return cuda_plan_run(call, &plan, CUDA_rows_f32 + type, CUDA_columns_f32 + type,
                         join_kernel(dtype, false));
}

static uint64_t reduce_scratch(const struct kernel_arg *args, const struct kernel_arg *x2,
                               int64_t axis, bool is_arg)
{
    struct cuda_plan plan =
        cuda_plan_reduction(args, 0, state_bytes(&args[1], is_arg), x2, axis);

    return cuda_plan_scratch(&plan);
}

plasmon_status_t cuda_reduce(const struct cuda_call *call)
{
    return reduce(call, NULL, call->scalars[0].i);
}

uint64_t cuda_reduce_scratch(const struct kernel_function *function,
                             const struct kernel_arg *args, uint32_t arg_count,
                             const union kernel_scalar *scalars)
{
    (void)function;
    (void)arg_count;
    return reduce_scratch(args, NULL, scalars[0].i, false);
}

plasmon_status_t cuda_arg_reduce(const struct cuda_call *call)
{
    uint32_t dtype        = call->args[1].dtype;
    uint32_t type         = cuda_type_index(dtype);
    struct cuda_plan plan = cuda_plan_reduction(
        call->args, call->op, state_bytes(&call->args[1], true), NULL, call->scalars[0].i);

    return cuda_plan_run(call, &plan, CUDA_arg_rows_f32 + type, CUDA_arg_columns_f32 + type,
                         join_kernel(dtype, true));
}

uint64_t cuda_arg_reduce_scratch(const struct kernel_function *function,
                                 const struct kernel_arg *args, uint32_t arg_count,
                                 const union kernel_scalar *scalars)
{
    (void)function;
    (void)arg_count;
    return reduce_scratch(args, NULL, scalars[0].i, true);
}

plasmon_status_t cuda_dot(const struct cuda_call *call)
{
    return reduce(call, &call->args[2], -1);
}

uint64_t cuda_dot_scratch(const struct kernel_function *function,
                          const struct kernel_arg *args, uint32_t arg_count,
                          const union kernel_scalar *scalars)
{
    (void)function;
    (void)arg_count;
    (void)scalars;
    return reduce_scratch(args, &args[2], -1, false);
}
