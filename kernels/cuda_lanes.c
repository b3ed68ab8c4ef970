/*
 * Launching norms, softmax, scans and sorts. How a lane is cut depends on shapes and strides alone,
 * as in cuda_reduce.c, so that results do not depend on the GPU.
 */
#include "kernels/cuda_int.h"
#include "kernels/cuda_plan.h"

#include <string.h>

/* --------------------------------------------------------------------------------- norm */

#define NORM_STATE_BYTES 24 /* struct kernel_squares */

static struct cuda_plan norm_plan(const struct kernel_arg *args,
                                  const union kernel_scalar *scalars)
{
    return cuda_plan_reduction(args, kernel_norm_op(scalars[2].f), NORM_STATE_BYTES, NULL,
                               scalars[0].i);
}

plasmon_status_t cuda_norm(const struct cuda_call *call)
{
    struct cuda_plan plan = norm_plan(call->args, call->scalars);
    uint32_t type         = cuda_float_index(call->args[1].dtype);

    return cuda_plan_run(call, &plan, CUDA_norm_rows_f32 + type,
                         CUDA_norm_columns_f32 + type, CUDA_norm_join_f64);
}

uint64_t cuda_norm_scratch(const struct kernel_function *function,
                           const struct kernel_arg *args, uint32_t arg_count,
                           const union kernel_scalar *scalars)
{
    struct cuda_plan plan = norm_plan(args, scalars);

    (void)function;
    (void)arg_count;
    return cuda_plan_scratch(&plan);
}

/* ------------------------------------------------------------------------------ softmax */

#define EXPS_STATE_BYTES 16 /* struct exponentials */

static struct cuda_plan softmax_plan(const struct kernel_arg *args,
                                     const union kernel_scalar *scalars)
{
    return cuda_plan_lanes(&args[0], &args[1], scalars[0].i, EXPS_STATE_BYTES);
}

/* Enough lanes to fill a GPU, each read by the threads that then write it. */
static bool softmax_in_one(const struct cuda_plan *plan)
{
    return plan->by_rows && plan->params.segments == 1;
}

static uint64_t softmax_states(const struct cuda_plan *plan)
{
    return pl_round_up((uint64_t)plan->params.outputs * EXPS_STATE_BYTES, 64);
}

plasmon_status_t cuda_softmax(const struct cuda_call *call)
{
    struct cuda_plan plan         = softmax_plan(call->args, call->scalars);
    struct cuda_reduce *p         = &plan.params;
    uint32_t type                 = cuda_float_index(call->args[1].dtype);
    struct cuda_call with_partial = *call;
    plasmon_status_t status;

    p->op = call->op;
    p->x2 = p->y;
    if (softmax_in_one(&plan)) {
        return cuda_launch(call, CUDA_softmax_rows_f32 + type,
                           cuda_blocks(call, p->outputs * p->group), 256, 1, p);
    }
    /* States of the lanes first in scratch, then what the segments come to. */
    p->y                 = call->scratch.addr;
    with_partial.scratch = device_ptr_add(call->scratch, softmax_states(&plan));
    status               = cuda_plan_run(&with_partial, &plan, CUDA_exps_rows_f32 + type,
                                         CUDA_exps_columns_f32 + type, CUDA_exps_join_f64);
    if (status != PLASMON_OK) {
        return status;
    }
    p->group = plan.by_rows ? 0 : 1;
    return cuda_launch(call, CUDA_softmax_apply_f32 + type,
                       cuda_blocks(call, p->outputs * p->length), 256, 1, p);
}

uint64_t cuda_softmax_scratch(const struct kernel_function *function,
                              const struct kernel_arg *args, uint32_t arg_count,
                              const union kernel_scalar *scalars)
{
    struct cuda_plan plan = softmax_plan(args, scalars);

    (void)function;
    (void)arg_count;
    return softmax_in_one(&plan) ? 0 : softmax_states(&plan) + cuda_plan_scratch(&plan);
}

/* --------------------------------------------------------------------------------- scan */

static uint32_t accumulator_bytes(uint32_t dtype)
{
    return kernel_is_complex(dtype) ? 16 : 8;
}

static struct cuda_plan scan_plan(const struct kernel_arg *args,
                                  const union kernel_scalar *scalars)
{
    return cuda_plan_lanes(&args[0], &args[1], scalars[0].i,
                           accumulator_bytes(args[1].dtype));
}

static uint32_t carry_kernel(uint32_t dtype)
{
    return kernel_is_complex(dtype)   ? CUDA_carry_c128
           : kernel_is_integer(dtype) ? CUDA_carry_i64
                                      : CUDA_carry_f64;
}

plasmon_status_t cuda_scan(const struct cuda_call *call)
{
    struct cuda_plan plan   = scan_plan(call->args, call->scalars);
    struct cuda_reduce *p   = &plan.params;
    uint32_t dtype          = call->args[1].dtype;
    uint32_t type           = cuda_type_index(dtype);
    int64_t work            = p->outputs * p->segments * (plan.by_rows ? p->group : 1);
    plasmon_status_t status = PLASMON_OK;

    p->op        = call->op;
    p->partial   = call->scratch.addr;
    p->exclusive = call->scalars[1].i != 0;
    if (p->segments > 1) {
        status = cuda_launch(call, (plan.by_rows ? CUDA_rows_f32 : CUDA_columns_f32) + type,
                             cuda_blocks(call, work), 256, 1, p);
        if (status == PLASMON_OK) {
            status = cuda_launch(call, carry_kernel(dtype), cuda_blocks(call, p->outputs),
                                 256, 1, p);
        }
    }
    if (status != PLASMON_OK) {
        return status;
    }
    return cuda_launch(call,
                       (plan.by_rows ? CUDA_scan_rows_f32 : CUDA_scan_columns_f32) + type,
                       cuda_blocks(call, work), 256, 1, p);
}

uint64_t cuda_scan_scratch(const struct kernel_function *function,
                           const struct kernel_arg *args, uint32_t arg_count,
                           const union kernel_scalar *scalars)
{
    struct cuda_plan plan = scan_plan(args, scalars);

    (void)function;
    (void)arg_count;
    return cuda_plan_scratch(&plan);
}
