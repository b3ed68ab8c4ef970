/*
 * Launching triangular systems and Cholesky factors: panels of ours, the rest by cuBLAS (trsm, syrk).
 *
 * cuSOLVER is not used: a blocked factor needs from a library only what cuBLAS has, which is loaded
 * when the worker starts, so that nothing has to be prepared (cuda_plans.h).
 *
 * cuBLAS counts in columns: a row-major matrix is its own transpose there. A lower triangle is an
 * upper one, and what multiplies from the left multiplies from the right.
 *
 * Scratch: 64 bytes for the pivot that will not do, then dense copies of what cuBLAS cannot take.
 */
#include "kernels/cuda_int.h"
#include "kernels/cuda_matrix_params.h"
#include "kernels/matrix.h"

#define INFO_BYTES 64

/* cublasSideMode_t, cublasFillMode_t, cublasOperation_t, cublasDiagType_t */
#define BLAS_LEFT  0
#define BLAS_RIGHT 1
#define BLAS_LOWER 0
#define BLAS_UPPER 1
#define BLAS_N     0
#define BLAS_T     1

static plasmon_status_t failed(const struct cuda_call *call, int result)
{
    return pl_err_set(call->err, PLASMON_EDEVICE, "%s: cuBLAS failed with status %d",
                      call->function->name, result);
}

struct trsm {
    int side;
    int uplo;
    int trans;
    int unit;
    int m;
    int n;
    uint64_t a;
    int lda;
    uint64_t b;
    int ldb;
};

static plasmon_status_t run_trsm(const struct cuda_call *call, uint32_t dtype,
                                 const struct trsm *t)
{
    const struct kernel_cuda *cuda = call->cuda;
    const float one_f32            = 1;
    const double one_f64           = 1;
    plasmon_status_t status        = PLASMON_ENOLIB; /* err says what is missing */
    int result                     = 0;
    void *handle;

    pl_mutex_lock(&call->cuda->blas_lock);
    cuda_blas_need(call->cuda);
    handle = device_cublas_on(call->stream, call->err);
    if (handle != NULL && cuda->strsm != NULL && cuda->dtrsm != NULL) {
        result = dtype == PL_F32
                     ? cuda->strsm(handle, t->side, t->uplo, t->trans, t->unit, t->m, t->n,
                                   &one_f32, (const float *)(uintptr_t)t->a, t->lda,
                                   (float *)(uintptr_t)t->b, t->ldb)
                     : cuda->dtrsm(handle, t->side, t->uplo, t->trans, t->unit, t->m, t->n,
                                   &one_f64, (const double *)(uintptr_t)t->a, t->lda,
                                   (double *)(uintptr_t)t->b, t->ldb);
        status = result == 0 ? PLASMON_OK : failed(call, result);
    }
    pl_mutex_unlock(&call->cuda->blas_lock);
    return status;
}

/* c = c - p' p, the upper triangle, in columns. */
static plasmon_status_t run_syrk(const struct cuda_call *call, uint32_t dtype, int n, int k,
                                 uint64_t p, uint64_t c, int ld)
{
    const struct kernel_cuda *cuda = call->cuda;
    const float f32[2]             = {-1, 1};
    const double f64[2]            = {-1, 1};
    plasmon_status_t status        = PLASMON_ENOLIB;
    int result                     = 0;
    void *handle;

    pl_mutex_lock(&call->cuda->blas_lock);
    cuda_blas_need(call->cuda);
    handle = device_cublas_on(call->stream, call->err);
    if (handle != NULL && cuda->ssyrk != NULL && cuda->dsyrk != NULL) {
        result = dtype == PL_F32 ? cuda->ssyrk(handle, BLAS_UPPER, BLAS_T, n, k, &f32[0],
                                               (const float *)(uintptr_t)p, ld, &f32[1],
                                               (float *)(uintptr_t)c, ld)
                                 : cuda->dsyrk(handle, BLAS_UPPER, BLAS_T, n, k, &f64[0],
                                               (const double *)(uintptr_t)p, ld, &f64[1],
                                               (double *)(uintptr_t)c, ld);
        status = result == 0 ? PLASMON_OK : failed(call, result);
    }
    pl_mutex_unlock(&call->cuda->blas_lock);
    return status;
}

static plasmon_status_t too_large(const struct cuda_call *call,
                                  const struct kernel_matrix *m)
{
    if (kernel_matrix_small(m)) {
        return PLASMON_OK;
    }
    return pl_err_set(call->err, PLASMON_ENOTSUP,
                      "%s: a dimension is beyond the 32 bits of cuBLAS",
                      call->function->name);
}

static plasmon_status_t matrix_copy(const struct cuda_call *call,
                                    const struct kernel_matrix *to,
                                    const struct kernel_matrix *from, uint32_t dtype)
{
    struct kernel_arg y = kernel_matrix_arg(to, dtype);
    struct kernel_arg x = kernel_matrix_arg(from, dtype);

    return to->data == from->data ? PLASMON_OK : cuda_copy(call, &y, &x);
}

static plasmon_status_t info_clear(const struct cuda_call *call)
{
    plasmon_status_t status = device_fill8(call->stream, call->scratch, 0xff, 8);

    return status == PLASMON_OK
               ? status
               : pl_err_set(call->err, status, "%s: cannot clear its scratch",
                            call->function->name);
}

static plasmon_status_t info_report(const struct cuda_call *call,
                                    enum kernel_data_error error)
{
    return cuda_report(call, &call->scratch.addr, &error, 1, 8, -1);
}

/* --------------------------------------------------------------------------- triangular */

/* op(a) x = b for x in place of b; a has a layout, x's rows are dense. */
static plasmon_status_t solve(const struct cuda_call *call, uint32_t dtype,
                              const struct kernel_matrix *a, bool lower, bool trans,
                              bool unit, const struct kernel_matrix *x)
{
    struct kernel_layout la;
    struct kernel_layout lx;
    struct trsm t;

    PL_CHECK(kernel_matrix_layout(a, &la) && kernel_matrix_layout(x, &lx) &&
             !lx.transposed);
    t = (struct trsm){.side  = BLAS_RIGHT,
                      .uplo  = lower == la.transposed ? BLAS_LOWER : BLAS_UPPER,
                      .trans = trans == la.transposed ? BLAS_N : BLAS_T,
                      .unit  = unit,
                      .m     = (int)x->columns,
                      .n     = (int)x->rows,
                      .a     = a->data,
                      .lda   = (int)la.leading,
                      .b     = x->data,
                      .ldb   = (int)lx.leading};
    return run_trsm(call, dtype, &t);
}

static plasmon_status_t check_diagonal(const struct cuda_call *call, uint32_t dtype,
                                       const struct kernel_matrix *a)
{
    int64_t bytes               = pl_dtype_bytes(dtype);
    struct cuda_triangle params = {
        .n      = a->rows,
        .stride = {a->row_stride * bytes, a->column_stride * bytes},
        .data   = a->data,
        .info   = call->scratch.addr};
    plasmon_status_t status = info_clear(call);

    if (status == PLASMON_OK) {
        status = cuda_launch(call, CUDA_check_diagonal_f32 + (uint32_t)(dtype == PL_F64),
                             cuda_blocks(call, a->rows), 256, 1, &params);
    }
    return status == PLASMON_OK ? info_report(call, KERNEL_DATA_SINGULAR) : status;
}

plasmon_status_t cuda_solve(const struct cuda_call *call)
{
    struct kernel_solve s   = kernel_solve_of(call->function, call->scalars);
    uint32_t dtype          = call->args[0].dtype;
    struct kernel_matrix x  = kernel_matrix_of(&call->args[0], false);
    struct kernel_matrix a  = kernel_matrix_of(&call->args[1], false);
    struct kernel_matrix b  = kernel_matrix_of(&call->args[2], false);
    uint64_t scratch        = call->scratch.addr + INFO_BYTES;
    struct kernel_matrix pa = kernel_matrix_pack(&a, dtype, false, &scratch);
    struct kernel_matrix px = kernel_matrix_pack(&x, dtype, true, &scratch);
    plasmon_status_t status = too_large(call, &x);

    if (status == PLASMON_OK) {
        status = too_large(call, &a);
    }
    if (status == PLASMON_OK && !s.unit) {
        status = check_diagonal(call, dtype, &a);
    }
    if (status == PLASMON_OK) {
        status = matrix_copy(call, &pa, &a, dtype);
    }
    if (status == PLASMON_OK) {
        status = matrix_copy(call, &px, &b, dtype);
    }
    if (status == PLASMON_OK) {
        status = solve(call, dtype, &pa, s.lower, s.trans, s.unit, &px);
    }
    if (status == PLASMON_OK && s.twice) {
        status = solve(call, dtype, &pa, s.lower, !s.trans, s.unit, &px);
    }
    return status == PLASMON_OK ? matrix_copy(call, &x, &px, dtype) : status;
}

uint64_t cuda_solve_scratch(const struct kernel_function *function,
                            const struct kernel_arg *args, uint32_t arg_count,
                            const union kernel_scalar *scalars)
{
    return INFO_BYTES + cpu_solve_scratch(function, args, arg_count, scalars);
}

/* ----------------------------------------------------------------------------- Cholesky */

/*
 * Columns `first` to `first` + `width` of the factor, and what they take from the rest. y's rows
 * are dense.
 */
static plasmon_status_t factor_panel(const struct cuda_call *call, uint32_t dtype,
                                     const struct kernel_matrix *y, int64_t first,
                                     int64_t width)
{
    int64_t bytes               = pl_dtype_bytes(dtype);
    int64_t leading             = y->row_stride;
    int64_t below               = y->rows - first - width;
    uint64_t corner             = y->data + (uint64_t)(first * (leading + 1) * bytes);
    uint64_t panel              = corner + (uint64_t)(width * leading * bytes);
    struct cuda_triangle params = {.n      = width,
                                   .first  = first,
                                   .stride = {leading * bytes, bytes},
                                   .data   = corner,
                                   .info   = call->scratch.addr};
    struct trsm t               = {.side  = BLAS_LEFT,
                                   .uplo  = BLAS_UPPER,
                                   .trans = BLAS_T,
                                   .m     = (int)width,
                                   .n     = (int)below,
                                   .a     = corner,
                                   .lda   = (int)leading,
                                   .b     = panel,
                                   .ldb   = (int)leading};
    plasmon_status_t status;

    status = cuda_launch(call, CUDA_factor_diagonal_f32 + (uint32_t)(dtype == PL_F64), 1,
                         256, 1, &params);
    if (status != PLASMON_OK || below == 0) {
        return status;
    }
    status = run_trsm(call, dtype, &t);
    if (status != PLASMON_OK) {
        return status;
    }
    return run_syrk(call, dtype, (int)below, (int)width, panel,
                    panel + (uint64_t)(width * bytes), (int)leading);
}

plasmon_status_t cuda_cholesky(const struct cuda_call *call)
{
    uint32_t dtype              = call->args[0].dtype;
    int64_t bytes               = pl_dtype_bytes(dtype);
    struct kernel_matrix y      = kernel_matrix_of(&call->args[0], false);
    struct kernel_matrix a      = kernel_matrix_of(&call->args[1], false);
    uint64_t scratch            = call->scratch.addr + INFO_BYTES;
    struct kernel_matrix factor = kernel_matrix_pack(&y, dtype, true, &scratch);
    struct cuda_triangle params = {
        .n           = y.rows,
        .stride      = {factor.row_stride * bytes, factor.column_stride * bytes},
        .from_stride = {a.row_stride * bytes, a.column_stride * bytes},
        .data        = factor.data,
        .from        = a.data};
    plasmon_status_t status = too_large(call, &a);

    if (status == PLASMON_OK) {
        status = info_clear(call);
    }
    if (status == PLASMON_OK) {
        status = cuda_launch(call, CUDA_lower_f32 + (uint32_t)(dtype == PL_F64),
                             cuda_blocks(call, y.rows * y.rows), 256, 1, &params);
    }
    for (int64_t first = 0; first < y.rows && status == PLASMON_OK; first += CUDA_PANEL) {
        int64_t width = y.rows - first < CUDA_PANEL ? y.rows - first : CUDA_PANEL;

        status = factor_panel(call, dtype, &factor, first, width);
    }
    if (status == PLASMON_OK) {
        status = matrix_copy(call, &y, &factor, dtype);
    }
    return status == PLASMON_OK ? info_report(call, KERNEL_DATA_NOT_POSITIVE) : status;
}

uint64_t cuda_cholesky_scratch(const struct kernel_function *function,
                               const struct kernel_arg *args, uint32_t arg_count,
                               const union kernel_scalar *scalars)
{
    return INFO_BYTES + cpu_cholesky_scratch(function, args, arg_count, scalars);
}
