/*
 * Launching products and distances. Products of floats go to cuBLAS in their own precision (its
 * default math mode: no TF32), 16-bit floats with sums in f32; those of integers go to kernels of
 * ours (cuda_linalg.cu).
 *
 * cuBLAS counts in columns. A row-major matrix is its own transpose there, and c = a b is c' = b'
 * a': the operands change places, nothing is moved.
 */
#include "kernels/contraction.h"
#include "kernels/cuda_int.h"

#include <limits.h>

/* cublasOperation_t */
#define BLAS_N 0
#define BLAS_T 1

static plasmon_status_t blas_failed(const struct cuda_call *call, int result)
{
    return pl_err_set(call->err, PLASMON_EDEVICE, "%s: cuBLAS failed with status %d",
                      call->function->name, result);
}

/* The handle on the call's stream. Held until blas_unlock(), also on failure. */
static void *blas_lock(const struct cuda_call *call)
{
    pl_mutex_lock(&call->cuda->blas_lock);
    cuda_blas_need(call->cuda);
    return device_cublas_on(call->stream, call->err);
}

static void blas_unlock(const struct cuda_call *call)
{
    pl_mutex_unlock(&call->cuda->blas_lock);
}

/* ----------------------------------------------------------------------------- products */

/* cudaDataType_t, cublasComputeType_t */
static int blas_type(uint32_t dtype)
{
    switch (dtype) {
    case PL_F32:
        return 0;
    case PL_F64:
        return 1;
    case PL_F16:
        return 2;
    case PL_BF16:
        return 14;
    case PL_C64:
        return 4;
    default:
        return 5; /* c128 */
    }
}

#define BLAS_COMPUTE_F32       68
#define BLAS_COMPUTE_F64       70
#define BLAS_ALGORITHM_ITS_OWN (-1)

/* Factors come in the type that computes; those of complex numbers are real here. */
union blas_scale {
    float f32[2];
    double f64[2];
};

static union blas_scale blas_scale(bool wide, double value)
{
    union blas_scale scale = {.f64 = {0, 0}};

    if (wide) {
        scale.f64[0] = value;
    } else {
        scale.f32[0] = (float)value;
    }
    return scale;
}

static int batch_locked(const struct cuda_call *call, void *handle, uint32_t dtype,
                        double alpha, const struct kernel_batch *a,
                        const struct kernel_batch *b, double beta,
                        const struct kernel_batch *c)
{
    bool wide                = dtype == PL_F64 || dtype == PL_C128;
    union blas_scale scale_a = blas_scale(wide, alpha);
    union blas_scale scale_b = blas_scale(wide, beta);
    int type                 = blas_type(dtype);
    struct kernel_layout la;
    struct kernel_layout lb;
    struct kernel_layout lc;

    pl_mutex_assert_held(&call->cuda->blas_lock);
    PL_CHECK(kernel_matrix_layout(&a->matrix, &la) &&
             kernel_matrix_layout(&b->matrix, &lb));
    PL_CHECK(kernel_matrix_layout(&c->matrix, &lc) && !lc.transposed);
    return call->cuda->gemm_batched(
        handle, lb.transposed ? BLAS_T : BLAS_N, la.transposed ? BLAS_T : BLAS_N,
        (int)c->matrix.columns, (int)c->matrix.rows, (int)a->matrix.columns, &scale_a,
        (const void *)(uintptr_t)b->matrix.data, type, (int)lb.leading, b->stride,
        (const void *)(uintptr_t)a->matrix.data, type, (int)la.leading, a->stride, &scale_b,
        (void *)(uintptr_t)c->matrix.data, type, (int)lc.leading, c->stride, (int)c->count,
        wide ? BLAS_COMPUTE_F64 : BLAS_COMPUTE_F32, BLAS_ALGORITHM_ITS_OWN);
}

plasmon_status_t cuda_products(const struct cuda_call *call, uint32_t dtype, double alpha,
                               const struct kernel_batch *a, const struct kernel_batch *b,
                               double beta, const struct kernel_batch *c)
{
    plasmon_status_t status = PLASMON_ENOLIB; /* err says what is missing */
    int result              = 0;
    void *handle;

    if (!kernel_matrix_small(&a->matrix) || !kernel_matrix_small(&b->matrix) ||
        c->count > INT_MAX) {
        return pl_err_set(
            call->err, PLASMON_ENOTSUP,
            "%s: a dimension is beyond the 32 bits of cuBLAS; split the matrix",
            call->function->name);
    }
    handle = blas_lock(call);
    if (handle != NULL && call->cuda->gemm_batched != NULL) {
        result = batch_locked(call, handle, dtype, alpha, a, b, beta, c);
        status = result == 0 ? PLASMON_OK : blas_failed(call, result);
    }
    blas_unlock(call);
    return status;
}

/* All three have a layout; c's rows are dense. */
static int gemm_locked(const struct cuda_call *call, void *handle, uint32_t dtype,
                       double alpha, const struct kernel_matrix *a,
                       const struct kernel_matrix *b, double beta,
                       const struct kernel_matrix *c)
{
    struct kernel_layout la;
    struct kernel_layout lb;
    struct kernel_layout lc;
    float alpha_f32 = (float)alpha;
    float beta_f32  = (float)beta;
    int ta;
    int tb;

    pl_mutex_assert_held(&call->cuda->blas_lock);
    PL_CHECK(kernel_matrix_layout(a, &la) && kernel_matrix_layout(b, &lb));
    PL_CHECK(kernel_matrix_layout(c, &lc) && !lc.transposed);

    ta = la.transposed ? BLAS_T : BLAS_N;
    tb = lb.transposed ? BLAS_T : BLAS_N;
    if (dtype == PL_F32) {
        return call->cuda->sgemm(handle, tb, ta, (int)c->columns, (int)c->rows,
                                 (int)a->columns, &alpha_f32,
                                 (const float *)(uintptr_t)b->data, (int)lb.leading,
                                 (const float *)(uintptr_t)a->data, (int)la.leading,
                                 &beta_f32, (float *)(uintptr_t)c->data, (int)lc.leading);
    }
    return call->cuda->dgemm(handle, tb, ta, (int)c->columns, (int)c->rows, (int)a->columns,
                             &alpha, (const double *)(uintptr_t)b->data, (int)lb.leading,
                             (const double *)(uintptr_t)a->data, (int)la.leading, &beta,
                             (double *)(uintptr_t)c->data, (int)lc.leading);
}

static plasmon_status_t product_by_blas(const struct cuda_call *call, uint32_t dtype,
                                        double alpha, const struct kernel_matrix *a,
                                        const struct kernel_matrix *b, double beta,
                                        const struct kernel_matrix *c)
{
    plasmon_status_t status = PLASMON_ENOLIB; /* err says what is missing */
    int result              = 0;
    void *handle;

    if (!kernel_is_single(dtype)) {
        struct kernel_batch one_a = {.count = 1, .matrix = *a};
        struct kernel_batch one_b = {.count = 1, .matrix = *b};
        struct kernel_batch one_c = {.count = 1, .matrix = *c};

        return cuda_products(call, dtype, alpha, &one_a, &one_b, beta, &one_c);
    }
    if (!kernel_matrix_small(a) || !kernel_matrix_small(b)) {
        return pl_err_set(
            call->err, PLASMON_ENOTSUP,
            "%s: a dimension is beyond the 32 bits of cuBLAS; split the matrix",
            call->function->name);
    }
    handle = blas_lock(call);
    if (handle != NULL && call->cuda->sgemm != NULL && call->cuda->dgemm != NULL) {
        result = gemm_locked(call, handle, dtype, alpha, a, b, beta, c);
        status = result == 0 ? PLASMON_OK : blas_failed(call, result);
    }
    blas_unlock(call);
    return status;
}

static plasmon_status_t matrix_copy(const struct cuda_call *call,
                                    const struct kernel_matrix *to,
                                    const struct kernel_matrix *from, uint32_t dtype)
{
    struct kernel_arg y = kernel_matrix_arg(to, dtype);
    struct kernel_arg x = kernel_matrix_arg(from, dtype);

    return to->data == from->data ? PLASMON_OK : cuda_copy(call, &y, &x);
}

/* As in cpu_linalg.c: what a BLAS cannot take goes through scratch. */
static plasmon_status_t product_of_floats(const struct cuda_call *call, uint32_t dtype,
                                          double alpha, const struct kernel_matrix *a,
                                          const struct kernel_matrix *b, double beta,
                                          const struct kernel_matrix *c, uint64_t scratch)
{
    struct kernel_matrix pa = kernel_matrix_pack(a, dtype, false, &scratch);
    struct kernel_matrix pb = kernel_matrix_pack(b, dtype, false, &scratch);
    struct kernel_matrix pc = kernel_matrix_pack(c, dtype, true, &scratch);
    plasmon_status_t status;

    status = matrix_copy(call, &pa, a, dtype);
    if (status == PLASMON_OK) {
        status = matrix_copy(call, &pb, b, dtype);
    }
    if (status == PLASMON_OK && beta != 0) {
        status = matrix_copy(call, &pc, c, dtype);
    }
    if (status == PLASMON_OK) {
        status = product_by_blas(call, dtype, alpha, &pa, &pb, beta, &pc);
    }
    if (status == PLASMON_OK) {
        status = matrix_copy(call, c, &pc, dtype);
    }
    return status;
}

/* Blocks of 256 threads, a tile of 64 x 64 results each. */
static plasmon_status_t launch_tiles(const struct cuda_call *call, uint32_t kernel,
                                     uint32_t dtype, double alpha,
                                     const struct kernel_matrix *a,
                                     const struct kernel_matrix *b, double beta,
                                     const struct kernel_matrix *c)
{
    int64_t bytes              = pl_dtype_bytes(dtype);
    struct cuda_product params = {
        .m        = c->rows,
        .n        = c->columns,
        .k        = a->columns,
        .a_stride = {a->row_stride * bytes, a->column_stride * bytes},
        .b_stride = {b->row_stride * bytes, b->column_stride * bytes},
        .c_stride = {c->row_stride * bytes, c->column_stride * bytes},
        .a        = a->data,
        .b        = b->data,
        .c        = c->data,
        .alpha    = cuda_scalar_f64(dtype, alpha),
        .beta     = cuda_scalar_f64(dtype, beta),
    };
    int64_t tiles = (c->rows + 63) / 64 * ((c->columns + 63) / 64);

    return cuda_launch(call, kernel, cuda_blocks(call, tiles * 256), 256, 1, &params);
}

static plasmon_status_t product(const struct cuda_call *call, uint32_t dtype, double alpha,
                                const struct kernel_matrix *a,
                                const struct kernel_matrix *b, double beta,
                                const struct kernel_matrix *c)
{
    if (!kernel_is_integer(dtype)) {
        return product_of_floats(call, dtype, alpha, a, b, beta, c, call->scratch.addr);
    }
    return launch_tiles(call, dtype == PL_I32 ? CUDA_product_i32 : CUDA_product_i64, dtype,
                        alpha, a, b, beta, c);
}

plasmon_status_t cuda_gemm(const struct cuda_call *call)
{
    struct kernel_gemm s   = kernel_gemm_of(call->function, call->scalars);
    struct kernel_matrix c = kernel_matrix_of(&call->args[0], false);
    struct kernel_matrix a = kernel_matrix_of(&call->args[1], s.trans_a);
    struct kernel_matrix b = kernel_matrix_of(&call->args[2], s.trans_b);

    return product(call, call->args[0].dtype, s.alpha, &a, &b, s.beta, &c);
}

/* cuBLAS takes all of the inexact types as they are. */
static uint64_t product_bytes(uint32_t dtype, const struct kernel_matrix *a,
                              const struct kernel_matrix *b, const struct kernel_matrix *c)
{
    if (kernel_is_integer(dtype)) {
        return 0;
    }
    return kernel_matrix_scratch(a, dtype, false) + kernel_matrix_scratch(b, dtype, false) +
           kernel_matrix_scratch(c, dtype, true);
}

uint64_t cuda_gemm_scratch(const struct kernel_function *function,
                           const struct kernel_arg *args, uint32_t arg_count,
                           const union kernel_scalar *scalars)
{
    struct kernel_gemm s   = kernel_gemm_of(function, scalars);
    struct kernel_matrix c = kernel_matrix_of(&args[0], false);
    struct kernel_matrix a = kernel_matrix_of(&args[1], s.trans_a);
    struct kernel_matrix b = kernel_matrix_of(&args[2], s.trans_b);

    (void)arg_count;
    return product_bytes(args[0].dtype, &a, &b, &c);
}

/* --------------------------------------------------------------------------------- gemv */

static bool vector_fits_blas(const struct kernel_matrix *v)
{
    return v->rows <= INT_MAX && v->row_stride <= INT_MAX;
}

/* a, as stored in rows, is its own transpose for cuBLAS; a has a layout. */
static int gemv_locked(const struct cuda_call *call, void *handle, uint32_t dtype,
                       const struct kernel_layout *layout, const struct kernel_matrix *a,
                       const struct kernel_matrix *x, const struct kernel_matrix *y)
{
    const float one_f32   = 1;
    const float zero_f32  = 0;
    const double one_f64  = 1;
    const double zero_f64 = 0;
    int trans             = layout->transposed ? BLAS_N : BLAS_T;
    int m                 = (int)(layout->transposed ? a->rows : a->columns);
    int n                 = (int)(layout->transposed ? a->columns : a->rows);

    pl_mutex_assert_held(&call->cuda->blas_lock);
    if (dtype == PL_F32) {
        return call->cuda->sgemv(
            handle, trans, m, n, &one_f32, (const float *)(uintptr_t)a->data,
            (int)layout->leading, (const float *)(uintptr_t)x->data, (int)x->row_stride,
            &zero_f32, (float *)(uintptr_t)y->data, (int)y->row_stride);
    }
    return call->cuda->dgemv(handle, trans, m, n, &one_f64,
                             (const double *)(uintptr_t)a->data, (int)layout->leading,
                             (const double *)(uintptr_t)x->data, (int)x->row_stride,
                             &zero_f64, (double *)(uintptr_t)y->data, (int)y->row_stride);
}

plasmon_status_t cuda_gemv(const struct cuda_call *call)
{
    uint32_t dtype          = call->args[0].dtype;
    struct kernel_matrix y  = kernel_matrix_of(&call->args[0], false);
    struct kernel_matrix a  = kernel_matrix_of(&call->args[1], false);
    struct kernel_matrix x  = kernel_matrix_of(&call->args[2], false);
    plasmon_status_t status = PLASMON_ENOLIB;
    struct kernel_layout layout;
    void *handle;
    int result;

    if (!kernel_is_single(dtype) || !kernel_matrix_small(&a) ||
        !kernel_matrix_layout(&a, &layout) || !vector_fits_blas(&x) ||
        !vector_fits_blas(&y)) {
        return product(call, dtype, 1, &a, &x, 0, &y);
    }
    handle = blas_lock(call);
    if (handle != NULL && call->cuda->sgemv != NULL && call->cuda->dgemv != NULL) {
        result = gemv_locked(call, handle, dtype, &layout, &a, &x, &y);
        status = result == 0 ? PLASMON_OK : blas_failed(call, result);
    }
    blas_unlock(call);
    return status;
}

uint64_t cuda_gemv_scratch(const struct kernel_function *function,
                           const struct kernel_arg *args, uint32_t arg_count,
                           const union kernel_scalar *scalars)
{
    struct kernel_matrix y = kernel_matrix_of(&args[0], false);
    struct kernel_matrix a = kernel_matrix_of(&args[1], false);
    struct kernel_matrix x = kernel_matrix_of(&args[2], false);

    (void)function;
    (void)arg_count;
    (void)scalars;
    return product_bytes(args[0].dtype, &a, &x, &y);
}

/* ---------------------------------------------------------------------------- distances */

/* Of the rows of m, a warp each, into f64 at `out`. */
static plasmon_status_t launch_norms(const struct cuda_call *call, uint32_t dtype,
                                     const struct kernel_matrix *m, uint64_t out)
{
    int64_t bytes            = pl_dtype_bytes(dtype);
    struct cuda_norms params = {.rows    = m->rows,
                                .columns = m->columns,
                                .stride = {m->row_stride * bytes, m->column_stride * bytes},
                                .x      = m->data,
                                .out    = out};

    return cuda_launch(call, CUDA_norms_f32 + cuda_type_index(dtype),
                       cuda_blocks(call, m->rows * 32), 256, 1, &params);
}

/*
 * d = -2 a b' by cuBLAS, then the norms are added. Scratch as on the CPU: norms of a, of b, then
 * the product's.
 */
static plasmon_status_t distance_by_product(const struct cuda_call *call, uint32_t dtype,
                                            const struct kernel_matrix *a,
                                            const struct kernel_matrix *b,
                                            const struct kernel_matrix *d)
{
    struct kernel_matrix b_transposed = kernel_matrix_transposed(b);
    int64_t bytes                     = pl_dtype_bytes(dtype);
    uint64_t a_norm                   = call->scratch.addr;
    uint64_t b_norm                   = a_norm + (uint64_t)a->rows * sizeof(double);
    struct cuda_product params        = {
               .m        = d->rows,
               .n        = d->columns,
               .c_stride = {d->row_stride * bytes, d->column_stride * bytes},
               .c        = d->data,
               .a_norm   = a_norm,
               .b_norm   = b_norm};
    plasmon_status_t status;

    status = launch_norms(call, dtype, a, a_norm);
    if (status == PLASMON_OK) {
        status = launch_norms(call, dtype, b, b_norm);
    }
    if (status == PLASMON_OK) {
        status = product_of_floats(call, dtype, -2, a, &b_transposed, 0, d,
                                   a_norm + kernel_distance_norms(a, b));
    }
    if (status == PLASMON_OK) {
        status = cuda_launch(call, CUDA_add_norms_f32 + cuda_type_index(dtype),
                             cuda_blocks(call, d->rows * d->columns), 256, 1, &params);
    }
    return status;
}

plasmon_status_t cuda_pairwise(const struct cuda_call *call)
{
    uint32_t dtype                    = call->args[0].dtype;
    struct kernel_matrix d            = kernel_matrix_of(&call->args[0], false);
    struct kernel_matrix a            = kernel_matrix_of(&call->args[1], false);
    struct kernel_matrix b            = kernel_matrix_of(&call->args[2], false);
    struct kernel_matrix b_transposed = kernel_matrix_transposed(&b);

    if (kernel_distance_is_product(dtype, &a)) {
        return distance_by_product(call, dtype, &a, &b, &d);
    }
    return launch_tiles(call, CUDA_distance_f32 + cuda_type_index(dtype), dtype, 0, &a,
                        &b_transposed, 0, &d);
}

uint64_t cuda_pairwise_scratch(const struct kernel_function *function,
                               const struct kernel_arg *args, uint32_t arg_count,
                               const union kernel_scalar *scalars)
{
    return cpu_pairwise_scratch(function, args, arg_count, scalars);
}
