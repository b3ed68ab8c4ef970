/*
 * Launching topk_min, topk_merge and vote; see cuda_neighbours.cu.
 */
#include "kernels/cuda_int.h"

static struct cuda_rows rows_of(const struct kernel_arg *arg)
{
    int64_t bytes = pl_dtype_bytes(arg->dtype);

    return (struct cuda_rows){.base   = arg->data.addr,
                              .stride = {arg->stride[0] * bytes, arg->stride[1] * bytes}};
}

/* A block a row. */
plasmon_status_t cuda_topk_min(const struct cuda_call *call)
{
    const struct kernel_arg *x = &call->args[2];
    struct cuda_topk params    = {.rows       = x->dim[0],
                                  .columns    = x->dim[1],
                                  .k          = call->args[0].dim[1],
                                  .index_base = call->scalars[1].i,
                                  .values     = rows_of(&call->args[0]),
                                  .indices    = rows_of(&call->args[1]),
                                  .x          = rows_of(x)};

    return cuda_launch(call, CUDA_topk_f32 + cuda_type_index(x->dtype),
                       cuda_blocks(call, params.rows * 256), 256, 1, &params);
}

/* A thread a row. */
plasmon_status_t cuda_topk_merge(const struct cuda_call *call)
{
    const struct kernel_arg *args = call->args;
    struct cuda_merge params      = {.rows         = args[0].dim[0],
                                     .k            = args[0].dim[1],
                                     .size         = {args[2].dim[1], args[4].dim[1]},
                                     .values       = rows_of(&args[0]),
                                     .indices      = rows_of(&args[1]),
                                     .from_values  = {rows_of(&args[2]), rows_of(&args[4])},
                                     .from_indices = {rows_of(&args[3]), rows_of(&args[5])}};

    return cuda_launch(call, CUDA_merge_f32 + cuda_type_index(args[0].dtype),
                       cuda_blocks(call, params.rows), 256, 1, &params);
}

plasmon_status_t cuda_vote(const struct cuda_call *call)
{
    const struct kernel_arg *y      = &call->args[0];
    const struct kernel_arg *labels = &call->args[2];
    struct cuda_vote params         = {.rows         = y->dim[0],
                                       .k            = call->args[1].dim[1],
                                       .labels_count = labels->dim[0],
                                       .y_stride     = y->stride[0] * (int64_t)sizeof(int32_t),
                                       .labels_stride =
                                           labels->stride[0] * (int64_t)sizeof(int32_t),
                                       .indices = rows_of(&call->args[1]),
                                       .y       = y->data.addr,
                                       .labels  = labels->data.addr};

    return cuda_launch(call, CUDA_vote, cuda_blocks(call, params.rows), 256, 1, &params);
}
