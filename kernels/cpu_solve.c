/*
 * CPU variants of triangular systems and Cholesky factors: OpenBLAS. A matrix with neither rows nor
 * columns dense goes through scratch, and so does a result without dense rows.
 */
#include "kernels/cpu.h"
#include "kernels/data_errors.h"
#include "kernels/lapack.h"

static plasmon_status_t too_large(const struct kernel_call *call,
                                  const struct kernel_matrix *m, struct pl_err *err)
{
    if (kernel_matrix_small(m)) {
        return PLASMON_OK;
    }
    return pl_err_set(err, PLASMON_ENOTSUP, "%s: a dimension is beyond the 32 bits of BLAS",
                      call->function->name);
}

static void matrix_copy(const struct kernel_matrix *to, const struct kernel_matrix *from,
                        uint32_t dtype)
{
    struct kernel_arg y = kernel_matrix_arg(to, dtype);
    struct kernel_arg x = kernel_matrix_arg(from, dtype);

    if (to->data != from->data) {
        cpu_copy(&y, &x);
    }
}

static double element(const struct kernel_matrix *m, uint32_t dtype, int64_t row,
                      int64_t column)
{
    const char *at =
        (const char *)(uintptr_t)m->data +
        (row * m->row_stride + column * m->column_stride) * (int64_t)pl_dtype_bytes(dtype);

    return dtype == PL_F32 ? (double)*(const float *)(const void *)at
                           : *(const double *)(const void *)at;
}

/* --------------------------------------------------------------------------- triangular */

/*
 * op(a) x = b for x in place of b; a has a layout, x's rows are dense. A matrix by columns is the
 * other triangle of its transpose.
 */
static void solve(uint32_t dtype, const struct kernel_matrix *a, bool lower, bool trans,
                  bool unit, const struct kernel_matrix *x)
{
    struct kernel_layout la;
    struct kernel_layout lx;
    CBLAS_UPLO uplo;
    CBLAS_TRANSPOSE op;
    CBLAS_DIAG diagonal = unit ? CblasUnit : CblasNonUnit;

    PL_CHECK(kernel_matrix_layout(a, &la) && kernel_matrix_layout(x, &lx) &&
             !lx.transposed);
    uplo = lower != la.transposed ? CblasLower : CblasUpper;
    op   = trans != la.transposed ? CblasTrans : CblasNoTrans;
    if (dtype == PL_F32) {
        cblas_strsm(CblasRowMajor, CblasLeft, uplo, op, diagonal, (blasint)x->rows,
                    (blasint)x->columns, 1, (const float *)(uintptr_t)a->data,
                    (blasint)la.leading, (float *)(uintptr_t)x->data, (blasint)lx.leading);
    } else {
        cblas_dtrsm(CblasRowMajor, CblasLeft, uplo, op, diagonal, (blasint)x->rows,
                    (blasint)x->columns, 1, (const double *)(uintptr_t)a->data,
                    (blasint)la.leading, (double *)(uintptr_t)x->data, (blasint)lx.leading);
    }
}

plasmon_status_t cpu_solve(const struct kernel_call *call, int op, struct pl_err *err)
{
    struct kernel_solve s   = kernel_solve_of(call->function, call->scalar);
    uint32_t dtype          = kernel_call_arg(call, 0)->dtype;
    struct kernel_matrix x  = kernel_matrix_of(kernel_call_arg(call, 0), false);
    struct kernel_matrix a  = kernel_matrix_of(kernel_call_arg(call, 1), false);
    struct kernel_matrix b  = kernel_matrix_of(kernel_call_arg(call, 2), false);
    uint64_t scratch        = call->scratch.addr;
    struct kernel_matrix pa = kernel_matrix_pack(&a, dtype, false, &scratch);
    struct kernel_matrix px = kernel_matrix_pack(&x, dtype, true, &scratch);

    (void)op;
    if (too_large(call, &x, err) != PLASMON_OK || too_large(call, &a, err) != PLASMON_OK) {
        return PLASMON_ENOTSUP;
    }
    for (int64_t i = 0; i < a.rows && !s.unit; i++) {
        if (element(&a, dtype, i, i) == 0) {
            return kernel_data_error(err, call->function, KERNEL_DATA_SINGULAR, i + 1);
        }
    }
    matrix_copy(&pa, &a, dtype);
    matrix_copy(&px, &b, dtype);
    solve(dtype, &pa, s.lower, s.trans, s.unit, &px);
    if (s.twice) {
        solve(dtype, &pa, s.lower, !s.trans, s.unit, &px);
    }
    matrix_copy(&x, &px, dtype);
    return PLASMON_OK;
}

uint64_t cpu_solve_scratch(const struct kernel_function *function,
                           const struct kernel_arg *args, uint32_t arg_count,
                           const union kernel_scalar *scalars)
{
    struct kernel_matrix x = kernel_matrix_of(&args[0], false);
    struct kernel_matrix a = kernel_matrix_of(&args[1], false);

    (void)function;
    (void)arg_count;
    (void)scalars;
    return kernel_matrix_scratch(&a, args[0].dtype, false) +
           kernel_matrix_scratch(&x, args[0].dtype, true);
}

/* ----------------------------------------------------------------------------- Cholesky */

static void set_element(const struct kernel_matrix *m, uint32_t dtype, int64_t row,
                        int64_t column, double value)
{
    char *at =
        (char *)(uintptr_t)m->data +
        (row * m->row_stride + column * m->column_stride) * (int64_t)pl_dtype_bytes(dtype);

    if (dtype == PL_F32) {
        *(float *)(void *)at = (float)value;
    } else {
        *(double *)(void *)at = value;
    }
}

plasmon_status_t cpu_cholesky(const struct kernel_call *call, int op, struct pl_err *err)
{
    uint32_t dtype              = kernel_call_arg(call, 0)->dtype;
    struct kernel_matrix y      = kernel_matrix_of(kernel_call_arg(call, 0), false);
    struct kernel_matrix a      = kernel_matrix_of(kernel_call_arg(call, 1), false);
    uint64_t scratch            = call->scratch.addr;
    struct kernel_matrix factor = kernel_matrix_pack(&y, dtype, true, &scratch);
    struct kernel_layout layout;
    blasint n    = (blasint)y.rows;
    blasint info = 0;
    blasint leading;

    (void)op;
    if (too_large(call, &a, err) != PLASMON_OK) {
        return PLASMON_ENOTSUP;
    }
    PL_CHECK(kernel_matrix_layout(&factor, &layout) && !layout.transposed);
    leading = (blasint)layout.leading;
    for (int64_t row = 0; row < y.rows; row++) {
        for (int64_t column = 0; column < y.rows; column++) {
            set_element(&factor, dtype, row, column,
                        column <= row ? element(&a, dtype, row, column) : 0);
        }
    }
    /* The lower triangle by rows is the upper one by columns. */
    if (dtype == PL_F32) {
        spotrf_("U", &n, (float *)(uintptr_t)factor.data, &leading, &info);
    } else {
        dpotrf_("U", &n, (double *)(uintptr_t)factor.data, &leading, &info);
    }
    /* Its blocked way looks for a pivot that is not positive, and NaN is neither. */
    for (int64_t k = 0; info == 0 && k < y.rows; k++) {
        info = element(&factor, dtype, k, k) > 0 ? 0 : (blasint)(k + 1);
    }
    if (info != 0) {
        return kernel_data_error(err, call->function,
                                 info > 0 ? KERNEL_DATA_NOT_POSITIVE : KERNEL_DATA_ARGUMENT,
                                 info > 0 ? info : -info);
    }
    matrix_copy(&y, &factor, dtype);
    return PLASMON_OK;
}

uint64_t cpu_cholesky_scratch(const struct kernel_function *function,
                              const struct kernel_arg *args, uint32_t arg_count,
                              const union kernel_scalar *scalars)
{
    struct kernel_matrix y = kernel_matrix_of(&args[0], false);

    (void)function;
    (void)arg_count;
    (void)scalars;
    return kernel_matrix_scratch(&y, args[0].dtype, true);
}
