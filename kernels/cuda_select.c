/*
 * Launching where and spmv; see cuda_select.cu.
 */
#include "kernels/cuda_failures.h"
#include "kernels/cuda_int.h"

plasmon_status_t cuda_where(const struct cuda_call *call)
{
    struct cuda_elementwise params = {.bytes = pl_dtype_bytes(call->args[0].dtype)};
    struct kernel_walk walk;

    kernel_walk_init(&walk, &call->args[0]);
    for (uint32_t i = 1; i < 4; i++) {
        kernel_walk_add(&walk, &call->args[i]);
    }
    params.walk = cuda_walk_of(&walk, 0);
    return cuda_launch(call, CUDA_where, cuda_blocks(call, params.walk.count), 256, 1,
                       &params);
}

static int64_t step_of(const struct kernel_arg *x)
{
    return x->stride[0] * (int64_t)pl_dtype_bytes(x->dtype);
}

/* Threads a row: a power of two, about the average length of a row. */
static uint32_t spmv_group(int64_t stored, int64_t rows)
{
    uint32_t group = 1;

    while (group < 32 && (int64_t)group * rows < stored) {
        group *= 2;
    }
    return group;
}

#define SPMV_WORDS 2 /* of scratch: the first bad row, the first bad column */

plasmon_status_t cuda_spmv(const struct cuda_call *call)
{
    const struct kernel_arg *args = call->args;
    uint64_t words[SPMV_WORDS]    = {call->scratch.addr, call->scratch.addr + 8};
    static const enum kernel_data_error errors[SPMV_WORDS] = {KERNEL_DATA_ROWS,
                                                              KERNEL_DATA_COLUMNS};
    struct cuda_spmv params                                = {.rows          = args[0].dim[0],
                                                              .length        = args[4].dim[0],
                                                              .stored        = args[2].dim[0],
                                                              .y_stride      = step_of(&args[0]),
                                                              .row_stride    = step_of(&args[1]),
                                                              .column_stride = step_of(&args[2]),
                                                              .value_stride  = step_of(&args[3]),
                                                              .x_stride      = step_of(&args[4]),
                                                              .y             = args[0].data.addr,
                                                              .row_pointers  = args[1].data.addr,
                                                              .columns       = args[2].data.addr,
                                                              .values        = args[3].data.addr,
                                                              .x             = args[4].data.addr,
                                                              .bad_row       = words[0],
                                                              .bad_column    = words[1],
                                                              .group         = spmv_group(args[2].dim[0], args[0].dim[0])};
    uint32_t kernel = CUDA_spmv_i32_f32 + 2 * (uint32_t)(args[1].dtype == PL_I64) +
                      (uint32_t)(args[3].dtype == PL_F64);
    plasmon_status_t status;

    /* All bits set: no index, and the largest as atomicMin() sees it. */
    status = device_fill8(call->stream, call->scratch, 0xff, SPMV_WORDS * 8);
    if (status != PLASMON_OK) {
        return pl_err_set(call->err, status, "%s: cannot clear its scratch",
                          call->function->name);
    }
    status =
        cuda_launch(call, kernel, cuda_blocks(call, params.rows * (int64_t)params.group),
                    256, 1, &params);
    if (status != PLASMON_OK) {
        return status;
    }
    return cuda_report(call, words, errors, SPMV_WORDS, 8, -1);
}

uint64_t cuda_spmv_scratch(const struct kernel_function *function,
                           const struct kernel_arg *args, uint32_t arg_count,
                           const union kernel_scalar *scalars)
{
    (void)function;
    (void)args;
    (void)arg_count;
    (void)scalars;
    return 64;
}
