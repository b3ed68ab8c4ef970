/*
 * CPU variants of gemm, gemv and pairwise_distance. Floats go to OpenBLAS, integers through loops that wrap around.
 *
 * A BLAS takes a matrix whose rows or whose columns are dense. Anything else is made dense in scratch first (and c copied
 * back after), which is n^2 of work beside n^3. Distances of floats in many dimensions are |a|^2 + |b|^2 - 2 ab, cut off at
 * 0: the product is then a gemm, and the error is that of the norms, about k eps (|a|^2 + |b|^2).
 */
#include "kernels/cpu.h"

#include <cblas.h>
#include <limits.h>
#include <string.h>

#define COLUMNS 128

/* Up to here a distance is a loop over the dimensions, which is as fast and loses nothing between near points. */
#define DISTANCE_LOOP_MAX 16

struct matrix {
    char *data;
    int64_t rows;
    int64_t columns;
    int64_t row_stride; /* elements */
    int64_t column_stride;
};

#define T          float
#define A          double
#define NAME(name) name##_f32
#include "kernels/cpu_linalg_t.h"
#undef T
#undef A
#undef NAME
#define T          double
#define A          double
#define NAME(name) name##_f64
#include "kernels/cpu_linalg_t.h"
#undef T
#undef A
#undef NAME

/* The norms of integers are never asked for: their distances are exact. */
#define T          int32_t
#define A          uint32_t
#define NAME(name) __attribute__((unused)) name##_i32
#include "kernels/cpu_linalg_t.h"
#undef T
#undef A
#undef NAME
#define T          int64_t
#define A          uint64_t
#define NAME(name) __attribute__((unused)) name##_i64
#include "kernels/cpu_linalg_t.h"
#undef T
#undef A
#undef NAME

static bool is_float(uint32_t dtype)
{
    return dtype == PL_F32 || dtype == PL_F64;
}

static struct matrix matrix_of(const struct kernel_arg *arg, bool transposed)
{
    struct matrix m = {.data          = cpu_data(arg),
                       .rows          = arg->dim[0],
                       .columns       = 1,
                       .row_stride    = arg->stride[0],
                       .column_stride = 1};

    if (arg->ndim == 2) {
        m.columns       = arg->dim[1];
        m.column_stride = arg->stride[1];
    }
    if (transposed) {
        m = (struct matrix){m.data, m.columns, m.rows, m.column_stride, m.row_stride};
    }
    return m;
}

/* ------------------------------------------------------------------------------------------------ layouts */

/* How a BLAS sees a matrix in row-major order. */
struct layout {
    CBLAS_TRANSPOSE transpose;
    blasint leading;
};

static bool rows_dense(const struct matrix *m, int64_t *leading)
{
    *leading = m->rows == 1 ? m->columns : m->row_stride;
    return (m->column_stride == 1 || m->columns == 1) && *leading >= m->columns &&
           *leading <= INT_MAX;
}

static bool layout_of(const struct matrix *m, struct layout *out)
{
    struct matrix flipped = {m->data, m->columns, m->rows, m->column_stride, m->row_stride};
    int64_t leading;

    if (rows_dense(m, &leading)) {
        *out = (struct layout){CblasNoTrans, (blasint)leading};
        return true;
    }
    if (rows_dense(&flipped, &leading)) {
        *out = (struct layout){CblasTrans, (blasint)leading};
        return true;
    }
    return false;
}

/* Scratch for one operand; 0: a BLAS takes it as it is. c cannot be transposed by the BLAS. */
static uint64_t operand_bytes(const struct matrix *m, uint32_t dtype, bool is_result)
{
    struct layout layout;

    if (layout_of(m, &layout) && !(is_result && layout.transpose == CblasTrans)) {
        return 0;
    }
    return pl_round_up((uint64_t)(m->rows * m->columns) * pl_dtype_bytes(dtype), 64);
}

static void matrix_copy(const struct matrix *to, const struct matrix *from, uint32_t dtype)
{
    struct kernel_arg arg[2];
    const struct matrix *m[2] = {to, from};

    for (int i = 0; i < 2; i++) {
        arg[i] = (struct kernel_arg){
            .dtype  = dtype,
            .ndim   = 2,
            .dim    = {m[i]->rows, m[i]->columns},
            .stride = {m[i]->row_stride, m[i]->column_stride},
            .data   = {(uint64_t)(uintptr_t)m[i]->data},
        };
    }
    cpu_copy(&arg[0], &arg[1]);
}

/* The same matrix, dense at *io_scratch, which moves on; contents are not copied. */
static struct matrix matrix_dense(const struct matrix *m, uint32_t dtype, char **io_scratch)
{
    struct matrix dense = {*io_scratch, m->rows, m->columns, m->columns, 1};

    *io_scratch += operand_bytes(m, dtype, true);
    return dense;
}

static bool fits_blas(const struct matrix *m)
{
    return m->rows <= INT_MAX && m->columns <= INT_MAX;
}

/* ------------------------------------------------------------------------------------------------ products */

static void product_by_loops(uint32_t dtype, double alpha, const struct matrix *a,
                             const struct matrix *b, double beta, const struct matrix *c)
{
    union cpu_value s = cpu_value_of_f64(dtype, alpha);
    union cpu_value t = cpu_value_of_f64(dtype, beta);

    switch (dtype) {
    case PL_F32:
        product_f32(s.f32, a, b, t.f32, c);
        break;
    case PL_F64:
        product_f64(s.f64, a, b, t.f64, c);
        break;
    case PL_I32:
        product_i32(s.i32, a, b, t.i32, c);
        break;
    default:
        product_i64(s.i64, a, b, t.i64, c);
        break;
    }
}

/* All three have a layout; c's rows are dense. */
static void product_by_blas(uint32_t dtype, double alpha, const struct matrix *a,
                            const struct matrix *b, double beta, const struct matrix *c)
{
    struct layout la;
    struct layout lb;
    struct layout lc;
    blasint m = (blasint)c->rows;
    blasint n = (blasint)c->columns;
    blasint k = (blasint)a->columns;

    PL_CHECK(layout_of(a, &la) && layout_of(b, &lb) && layout_of(c, &lc));
    PL_CHECK(lc.transpose == CblasNoTrans);
    if (dtype == PL_F32) {
        cblas_sgemm(CblasRowMajor, la.transpose, lb.transpose, m, n, k, (float)alpha,
                    (const float *)(const void *)a->data, la.leading,
                    (const float *)(const void *)b->data, lb.leading, (float)beta,
                    (float *)(void *)c->data, lc.leading);
    } else {
        cblas_dgemm(CblasRowMajor, la.transpose, lb.transpose, m, n, k, alpha,
                    (const double *)(const void *)a->data, la.leading,
                    (const double *)(const void *)b->data, lb.leading, beta,
                    (double *)(void *)c->data, lc.leading);
    }
}

/* c = alpha a b + beta c in any layout. `scratch` has what product_bytes() says. */
static void product(uint32_t dtype, double alpha, struct matrix a, struct matrix b,
                    double beta, struct matrix c, char *scratch)
{
    struct matrix target = c;
    struct matrix dense;

    if (!is_float(dtype) || !fits_blas(&a) || !fits_blas(&b)) {
        product_by_loops(dtype, alpha, &a, &b, beta, &c);
        return;
    }
    if (operand_bytes(&a, dtype, false) > 0) {
        dense = matrix_dense(&a, dtype, &scratch);
        matrix_copy(&dense, &a, dtype);
        a = dense;
    }
    if (operand_bytes(&b, dtype, false) > 0) {
        dense = matrix_dense(&b, dtype, &scratch);
        matrix_copy(&dense, &b, dtype);
        b = dense;
    }
    if (operand_bytes(&c, dtype, true) > 0) {
        target = matrix_dense(&c, dtype, &scratch);
        if (beta != 0) {
            matrix_copy(&target, &c, dtype);
        }
    }
    product_by_blas(dtype, alpha, &a, &b, beta, &target);
    if (target.data != c.data) {
        matrix_copy(&c, &target, dtype);
    }
}

static uint64_t product_bytes(uint32_t dtype, const struct matrix *a,
                              const struct matrix *b, const struct matrix *c)
{
    if (!is_float(dtype)) {
        return 0;
    }
    return operand_bytes(a, dtype, false) + operand_bytes(b, dtype, false) +
           operand_bytes(c, dtype, true);
}

/* The scalars of gemm and of gemm_into. */
struct gemm_scalars {
    double alpha;
    double beta;
    bool trans_a;
    bool trans_b;
};

static struct gemm_scalars gemm_scalars(const struct kernel_function *function,
                                        const union kernel_scalar *s)
{
    if (kernel_id_of(function) == KERNEL_ID_gemm) {
        return (struct gemm_scalars){s[0].f, 0, s[1].i != 0, s[2].i != 0};
    }
    return (struct gemm_scalars){s[0].f, s[1].f, s[2].i != 0, s[3].i != 0};
}

static char *scratch_of(const struct kernel_call *call)
{
    return (char *)(uintptr_t)call->scratch.addr;
}

plasmon_status_t cpu_gemm(const struct kernel_call *call, int op, struct pl_err *err)
{
    struct gemm_scalars s = gemm_scalars(call->function, call->scalar);
    struct matrix c       = matrix_of(kernel_call_arg(call, 0), false);
    struct matrix a       = matrix_of(kernel_call_arg(call, 1), s.trans_a);
    struct matrix b       = matrix_of(kernel_call_arg(call, 2), s.trans_b);

    (void)op;
    (void)err;
    product(kernel_call_arg(call, 0)->dtype, s.alpha, a, b, s.beta, c, scratch_of(call));
    return PLASMON_OK;
}

uint64_t cpu_gemm_scratch(const struct kernel_function *function,
                          const struct kernel_arg *args, uint32_t arg_count,
                          const union kernel_scalar *scalars)
{
    struct gemm_scalars s = gemm_scalars(function, scalars);
    struct matrix c       = matrix_of(&args[0], false);
    struct matrix a       = matrix_of(&args[1], s.trans_a);
    struct matrix b       = matrix_of(&args[2], s.trans_b);

    (void)arg_count;
    return product_bytes(args[0].dtype, &a, &b, &c);
}

/* y = a x is a product with one column; a BLAS has a faster way to it when a's layout allows. */
plasmon_status_t cpu_gemv(const struct kernel_call *call, int op, struct pl_err *err)
{
    uint32_t dtype  = kernel_call_arg(call, 0)->dtype;
    struct matrix y = matrix_of(kernel_call_arg(call, 0), false);
    struct matrix a = matrix_of(kernel_call_arg(call, 1), false);
    struct matrix x = matrix_of(kernel_call_arg(call, 2), false);
    blasint rows    = (blasint)a.rows;
    blasint columns = (blasint)a.columns;
    struct layout layout;

    (void)op;
    (void)err;
    if (!is_float(dtype) || !fits_blas(&a) || !layout_of(&a, &layout) ||
        x.row_stride > INT_MAX || y.row_stride > INT_MAX) {
        product(dtype, 1, a, x, 0, y, scratch_of(call));
        return PLASMON_OK;
    }
    if (layout.transpose == CblasTrans) {
        rows    = (blasint)a.columns;
        columns = (blasint)a.rows;
    }
    if (dtype == PL_F32) {
        cblas_sgemv(CblasRowMajor, layout.transpose, rows, columns, 1.0f,
                    (const float *)(const void *)a.data, layout.leading,
                    (const float *)(const void *)x.data, (blasint)x.row_stride, 0.0f,
                    (float *)(void *)y.data, (blasint)y.row_stride);
    } else {
        cblas_dgemv(CblasRowMajor, layout.transpose, rows, columns, 1.0,
                    (const double *)(const void *)a.data, layout.leading,
                    (const double *)(const void *)x.data, (blasint)x.row_stride, 0.0,
                    (double *)(void *)y.data, (blasint)y.row_stride);
    }
    return PLASMON_OK;
}

uint64_t cpu_gemv_scratch(const struct kernel_function *function,
                          const struct kernel_arg *args, uint32_t arg_count,
                          const union kernel_scalar *scalars)
{
    struct matrix y = matrix_of(&args[0], false);
    struct matrix a = matrix_of(&args[1], false);
    struct matrix x = matrix_of(&args[2], false);

    (void)function;
    (void)arg_count;
    (void)scalars;
    return product_bytes(args[0].dtype, &a, &x, &y);
}

/* ------------------------------------------------------------------------------------------------ distances */

static uint64_t norms_bytes(const struct matrix *a, const struct matrix *b)
{
    return pl_round_up((uint64_t)(a->rows + b->rows) * sizeof(double), 64);
}

static bool distance_is_product(uint32_t dtype, const struct matrix *a)
{
    return is_float(dtype) && a->columns > DISTANCE_LOOP_MAX;
}

static void distance_by_loops(uint32_t dtype, const struct matrix *a,
                              const struct matrix *b, const struct matrix *d)
{
    switch (dtype) {
    case PL_F32:
        distance_f32(a, b, d);
        break;
    case PL_F64:
        distance_f64(a, b, d);
        break;
    case PL_I32:
        distance_i32(a, b, d);
        break;
    default:
        distance_i64(a, b, d);
        break;
    }
}

/* Scratch: the norms of a's rows, of b's, then what the product needs. */
static void distance_by_product(uint32_t dtype, const struct matrix *a,
                                const struct matrix *b, const struct matrix *d,
                                char *scratch)
{
    struct matrix b_transposed = {b->data, b->columns, b->rows, b->column_stride,
                                  b->row_stride};
    double *a_norm             = (double *)(void *)scratch;
    double *b_norm             = a_norm + a->rows;

    product(dtype, -2, *a, b_transposed, 0, *d, scratch + norms_bytes(a, b));
    if (dtype == PL_F32) {
        norms_f32(a, a_norm);
        norms_f32(b, b_norm);
        add_norms_f32(d, a_norm, b_norm);
    } else {
        norms_f64(a, a_norm);
        norms_f64(b, b_norm);
        add_norms_f64(d, a_norm, b_norm);
    }
}

plasmon_status_t cpu_pairwise(const struct kernel_call *call, int op, struct pl_err *err)
{
    uint32_t dtype  = kernel_call_arg(call, 0)->dtype;
    struct matrix d = matrix_of(kernel_call_arg(call, 0), false);
    struct matrix a = matrix_of(kernel_call_arg(call, 1), false);
    struct matrix b = matrix_of(kernel_call_arg(call, 2), false);

    (void)op;
    (void)err;
    if (distance_is_product(dtype, &a)) {
        distance_by_product(dtype, &a, &b, &d, scratch_of(call));
    } else {
        distance_by_loops(dtype, &a, &b, &d);
    }
    return PLASMON_OK;
}

uint64_t cpu_pairwise_scratch(const struct kernel_function *function,
                              const struct kernel_arg *args, uint32_t arg_count,
                              const union kernel_scalar *scalars)
{
    struct matrix d = matrix_of(&args[0], false);
    struct matrix a = matrix_of(&args[1], false);
    struct matrix b = matrix_of(&args[2], true);
    struct matrix c = matrix_of(&args[2], false);

    (void)function;
    (void)arg_count;
    (void)scalars;
    return distance_is_product(args[0].dtype, &a)
               ? norms_bytes(&a, &c) + product_bytes(args[0].dtype, &a, &b, &d)
               : 0;
}
