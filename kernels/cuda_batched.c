/*
 * Launching batched products and einsum: one call of cuBLAS for a whole batch. A batch whose
 * matrices cuBLAS cannot take, or a result whose rows are not dense, goes through dense copies in
 * scratch.
 */
#include "kernels/contraction.h"
#include "kernels/cuda_int.h"

static bool batch_fits(const struct kernel_batch *batch, bool is_result)
{
    struct kernel_layout layout;

    return kernel_matrix_layout(&batch->matrix, &layout) &&
           !(is_result && layout.transposed);
}

static uint64_t batch_bytes(const struct kernel_batch *batch, uint32_t dtype)
{
    return pl_round_up(
        (uint64_t)(batch->count * batch->matrix.rows * batch->matrix.columns) *
            pl_dtype_bytes(dtype),
        64);
}

static uint64_t batch_scratch(const struct kernel_batch *batch, uint32_t dtype,
                              bool is_result)
{
    return batch_fits(batch, is_result) ? 0 : batch_bytes(batch, dtype);
}

static struct kernel_batch batch_pack(const struct kernel_batch *batch, uint32_t dtype,
                                      bool is_result, uint64_t *io_scratch)
{
    struct kernel_batch dense = *batch;

    if (batch_fits(batch, is_result)) {
        return dense;
    }
    dense.matrix.data          = *io_scratch;
    dense.matrix.row_stride    = batch->matrix.columns;
    dense.matrix.column_stride = 1;
    dense.stride = batch->count == 1 ? 0 : batch->matrix.rows * batch->matrix.columns;
    *io_scratch += batch_bytes(batch, dtype);
    return dense;
}

static plasmon_status_t batch_copy(const struct cuda_call *call,
                                   const struct kernel_batch *to,
                                   const struct kernel_batch *from, uint32_t dtype)
{
    struct kernel_arg y = kernel_batch_arg(to, dtype);
    struct kernel_arg x = kernel_batch_arg(from, dtype);

    return to->matrix.data == from->matrix.data ? PLASMON_OK : cuda_copy(call, &y, &x);
}

static plasmon_status_t products(const struct cuda_call *call, uint32_t dtype, double alpha,
                                 const struct kernel_batch *c, const struct kernel_batch *a,
                                 const struct kernel_batch *b, uint64_t scratch)
{
    struct kernel_batch pa = batch_pack(a, dtype, false, &scratch);
    struct kernel_batch pb = batch_pack(b, dtype, false, &scratch);
    struct kernel_batch pc = batch_pack(c, dtype, true, &scratch);
    plasmon_status_t status;

    status = batch_copy(call, &pa, a, dtype);
    if (status == PLASMON_OK) {
        status = batch_copy(call, &pb, b, dtype);
    }
    if (status == PLASMON_OK) {
        status = cuda_products(call, dtype, alpha, &pa, &pb, 0, &pc);
    }
    return status == PLASMON_OK ? batch_copy(call, c, &pc, dtype) : status;
}

static uint64_t products_bytes(uint32_t dtype, const struct kernel_batch *c,
                               const struct kernel_batch *a, const struct kernel_batch *b)
{
    return batch_scratch(a, dtype, false) + batch_scratch(b, dtype, false) +
           batch_scratch(c, dtype, true);
}

plasmon_status_t cuda_gemm_batched(const struct cuda_call *call)
{
    const union kernel_scalar *s = call->scalars;
    struct kernel_batch c        = kernel_batch_of(&call->args[0], false);
    struct kernel_batch a        = kernel_batch_of(&call->args[1], s[1].i != 0);
    struct kernel_batch b        = kernel_batch_of(&call->args[2], s[2].i != 0);

    return products(call, call->args[0].dtype, s[0].f, &c, &a, &b, call->scratch.addr);
}

uint64_t cuda_gemm_batched_scratch(const struct kernel_function *function,
                                   const struct kernel_arg *args, uint32_t arg_count,
                                   const union kernel_scalar *s)
{
    struct kernel_batch c = kernel_batch_of(&args[0], false);
    struct kernel_batch a = kernel_batch_of(&args[1], s[1].i != 0);
    struct kernel_batch b = kernel_batch_of(&args[2], s[2].i != 0);

    (void)function;
    (void)arg_count;
    return products_bytes(args[0].dtype, &c, &a, &b);
}

/* The view's elements, in the view's order, are those of the dense batch. */
static plasmon_status_t copy_between(const struct cuda_call *call,
                                     const struct kernel_contracted *x, bool to_batch)
{
    struct kernel_arg dense =
        kernel_arg_compact(&x->view, (struct device_ptr){x->batch.matrix.data});

    if (!x->copied) {
        return PLASMON_OK;
    }
    return to_batch ? cuda_copy(call, &dense, &x->view) : cuda_copy(call, &x->view, &dense);
}

plasmon_status_t cuda_einsum(const struct cuda_call *call)
{
    struct kernel_contraction e =
        kernel_contraction_of(call->args, call->scalars, call->scratch.addr);
    plasmon_status_t status;

    status = copy_between(call, &e.a, true);
    if (status == PLASMON_OK) {
        status = copy_between(call, &e.b, true);
    }
    if (status == PLASMON_OK) {
        status = products(call, call->args[0].dtype, 1, &e.y.batch, &e.a.batch, &e.b.batch,
                          call->scratch.addr + e.bytes);
    }
    return status == PLASMON_OK ? copy_between(call, &e.y, false) : status;
}

uint64_t cuda_einsum_scratch(const struct kernel_function *function,
                             const struct kernel_arg *args, uint32_t arg_count,
                             const union kernel_scalar *scalars)
{
    struct kernel_contraction e = kernel_contraction_of(args, scalars, 0);

    (void)function;
    (void)arg_count;
    return e.bytes + products_bytes(args[0].dtype, &e.y.batch, &e.a.batch, &e.b.batch);
}
