/*
 * CPU variants of gemm_batched and einsum: one product after another, all through the same scratch.
 */
#include "kernels/contraction.h"
#include "kernels/cpu.h"

static plasmon_status_t products(const struct kernel_call *call, uint32_t dtype,
                                 double alpha, const struct kernel_batch *c,
                                 const struct kernel_batch *a, const struct kernel_batch *b,
                                 uint64_t scratch, struct pl_err *err)
{
    for (int64_t i = 0; i < c->count; i++) {
        struct kernel_matrix mc = kernel_batch_at(c, i, dtype);
        struct kernel_matrix ma = kernel_batch_at(a, i, dtype);
        struct kernel_matrix mb = kernel_batch_at(b, i, dtype);
        plasmon_status_t status =
            cpu_product(call, dtype, alpha, &ma, &mb, 0, &mc, scratch, err);

        if (status != PLASMON_OK) {
            return status;
        }
    }
    return PLASMON_OK;
}

plasmon_status_t cpu_gemm_batched(const struct kernel_call *call, int op,
                                  struct pl_err *err)
{
    const union kernel_scalar *s = call->scalar;
    struct kernel_batch c        = kernel_batch_of(kernel_call_arg(call, 0), false);
    struct kernel_batch a        = kernel_batch_of(kernel_call_arg(call, 1), s[1].i != 0);
    struct kernel_batch b        = kernel_batch_of(kernel_call_arg(call, 2), s[2].i != 0);

    (void)op;
    return products(call, kernel_call_arg(call, 0)->dtype, s[0].f, &c, &a, &b,
                    call->scratch.addr, err);
}

uint64_t cpu_gemm_batched_scratch(const struct kernel_function *function,
                                  const struct kernel_arg *args, uint32_t arg_count,
                                  const union kernel_scalar *s)
{
    struct kernel_batch c = kernel_batch_of(&args[0], false);
    struct kernel_batch a = kernel_batch_of(&args[1], s[1].i != 0);
    struct kernel_batch b = kernel_batch_of(&args[2], s[2].i != 0);

    (void)function;
    (void)arg_count;
    return cpu_product_bytes(args[0].dtype, &a.matrix, &b.matrix, &c.matrix);
}

/* The view's elements, in the view's order, are those of the dense batch. */
static void copy_between(const struct kernel_contracted *x, bool to_batch)
{
    struct kernel_arg dense =
        kernel_arg_compact(&x->view, (struct device_ptr){x->batch.matrix.data});

    if (to_batch) {
        cpu_copy(&dense, &x->view);
    } else {
        cpu_copy(&x->view, &dense);
    }
}

plasmon_status_t cpu_einsum(const struct kernel_call *call, int op, struct pl_err *err)
{
    struct kernel_contraction e =
        kernel_contraction_of(kernel_call_arg(call, 0), call->scalar, call->scratch.addr);
    plasmon_status_t status;

    (void)op;
    if (e.a.copied) {
        copy_between(&e.a, true);
    }
    if (e.b.copied) {
        copy_between(&e.b, true);
    }
    status = products(call, kernel_call_arg(call, 0)->dtype, 1, &e.y.batch, &e.a.batch,
                      &e.b.batch, call->scratch.addr + e.bytes, err);
    if (status == PLASMON_OK && e.y.copied) {
        copy_between(&e.y, false);
    }
    return status;
}

uint64_t cpu_einsum_scratch(const struct kernel_function *function,
                            const struct kernel_arg *args, uint32_t arg_count,
                            const union kernel_scalar *scalars)
{
    struct kernel_contraction e = kernel_contraction_of(args, scalars, 0);

    (void)function;
    (void)arg_count;
    return e.bytes + cpu_product_bytes(args[0].dtype, &e.a.batch.matrix, &e.b.batch.matrix,
                                       &e.y.batch.matrix);
}
