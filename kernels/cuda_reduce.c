/*
 * Launching reductions: which way, and into how many segments; see cuda_reduce.cuh.
 *
 * The plan depends on shapes and strides alone, never on the GPU, so that results do not either.
 */
#include "kernels/cuda_int.h"

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

struct plan {
    struct cuda_reduce params;
    bool by_rows;
    bool is_arg;
    uint32_t state_bytes; /* what the kernels keep of a segment */
};

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

static void plan_segments(struct plan *plan)
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

static struct plan plan_of(const struct kernel_arg *args, int op, bool is_arg,
                           const struct kernel_arg *x2, int64_t axis)
{
    struct plan plan      = {.is_arg      = is_arg,
                             .state_bytes = is_arg || kernel_is_complex(args[1].dtype) ? 16 : 8};
    struct cuda_reduce *p = &plan.params;
    int64_t across;
    int64_t beside;

    p->op = op;
    plan_dimensions(p, &args[0], &args[1], x2, axis);
    across       = p->reduced_stride[0][p->reduced_ndim - 1];
    beside       = p->kept_stride[1][p->kept_ndim - 1];
    plan.by_rows = p->outputs == 1 || (p->length >= 32 && across <= beside);
    plan_segments(&plan);
    return plan;
}

static uint64_t plan_scratch(const struct plan *plan)
{
    uint64_t slots = (uint64_t)(plan->params.outputs * plan->params.segments);

    return plan->params.segments == 1 ? 0 : slots * plan->state_bytes;
}

static plasmon_status_t plan_run(const struct cuda_call *call, struct plan *plan)
{
    struct cuda_reduce *p = &plan->params;
    uint32_t dtype        = call->args[1].dtype;
    uint32_t type         = cuda_type_index(dtype);
    uint32_t join         = plan->is_arg ? CUDA_arg_join_f64 : CUDA_join_f64;
    int64_t work          = p->outputs * p->segments;
    uint32_t kernel;
    plasmon_status_t status;

    p->partial = call->scratch.addr;
    if (plan->by_rows) {
        kernel = plan->is_arg ? CUDA_arg_rows_f32 : CUDA_rows_f32;
        work *= p->group; /* threads */
    } else {
        kernel = plan->is_arg ? CUDA_arg_columns_f32 : CUDA_columns_f32;
    }
    status = cuda_launch(call, kernel + type, cuda_blocks(call, work), 256, 1, p);
    if (status != PLASMON_OK || p->segments == 1) {
        return status;
    }
    if (kernel_is_complex(dtype)) {
        join = CUDA_join_c128;
    } else if (kernel_is_integer(dtype)) {
        join++;
    }
    return cuda_launch(call, join, cuda_blocks(call, p->outputs * 256), 256, 1, p);
}

plasmon_status_t cuda_reduce(const struct cuda_call *call)
{
    struct plan plan = plan_of(call->args, call->op, false, NULL, call->scalars[0].i);

    return plan_run(call, &plan);
}

uint64_t cuda_reduce_scratch(const struct kernel_function *function,
                             const struct kernel_arg *args, uint32_t arg_count,
                             const union kernel_scalar *scalars)
{
    struct plan plan = plan_of(args, 0, false, NULL, scalars[0].i);

    (void)function;
    (void)arg_count;
    return plan_scratch(&plan);
}

plasmon_status_t cuda_arg_reduce(const struct cuda_call *call)
{
    struct plan plan = plan_of(call->args, call->op, true, NULL, call->scalars[0].i);

    return plan_run(call, &plan);
}

uint64_t cuda_arg_reduce_scratch(const struct kernel_function *function,
                                 const struct kernel_arg *args, uint32_t arg_count,
                                 const union kernel_scalar *scalars)
{
    struct plan plan = plan_of(args, 0, true, NULL, scalars[0].i);

    (void)function;
    (void)arg_count;
    return plan_scratch(&plan);
}

plasmon_status_t cuda_dot(const struct cuda_call *call)
{
    struct plan plan = plan_of(call->args, call->op, false, &call->args[2], -1);

    return plan_run(call, &plan);
}

uint64_t cuda_dot_scratch(const struct kernel_function *function,
                          const struct kernel_arg *args, uint32_t arg_count,
                          const union kernel_scalar *scalars)
{
    struct plan plan = plan_of(args, 0, false, &args[2], -1);

    (void)function;
    (void)arg_count;
    (void)scalars;
    return plan_scratch(&plan);
}
