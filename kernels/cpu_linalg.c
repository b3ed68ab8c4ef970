/*
 * CPU variants of gemm, gemv and pairwise_distance. Floats go to OpenBLAS, integers through loops
 * that wrap around. 16-bit floats are widened to f32 in scratch, multiplied there, and rounded
 * once.
 *
 * A BLAS takes a matrix whose rows or whose columns are dense. Anything else is made dense in
 * scratch first (and c copied back after), which is n^2 of work beside n^3. Distances of floats in
 * many dimensions are |a|^2 + |b|^2 - 2 ab, cut off at 0: the product is then a gemm, and the error
 * is that of the norms, about k eps (|a|^2 + |b|^2).
 */
#include "kernels/cpu.h"
#include "kernels/matrix.h"

#include <cblas.h>
#include <limits.h>
#include <stdint.h>
#include <string.h>

#define COLUMNS 128

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

/* ----------------------------------------------------------------------------- products */

static void product_by_loops(uint32_t dtype, double alpha, const struct kernel_matrix *a,
                             const struct kernel_matrix *b, double beta,
                             const struct kernel_matrix *c)
{
    union kernel_value s = kernel_value_of_f64(dtype, alpha);
    union kernel_value t = kernel_value_of_f64(dtype, beta);

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

static const float *f32_of(const struct kernel_matrix *m)
{
    return (const float *)(uintptr_t)m->data;
}

static const double *f64_of(const struct kernel_matrix *m)
{
    return (const double *)(uintptr_t)m->data;
}

static CBLAS_TRANSPOSE blas_transpose(const struct kernel_layout *layout)
{
    return layout->transposed ? CblasTrans : CblasNoTrans;
}

static const void *bytes_of(const struct kernel_matrix *m)
{
    return (const void *)(uintptr_t)m->data;
}

static void *result_of(const struct kernel_matrix *m)
{
    return (void *)(uintptr_t)m->data;
}

/* All three have a layout; c's rows are dense. */
static void product_by_blas(uint32_t dtype, double alpha, const struct kernel_matrix *a,
                            const struct kernel_matrix *b, double beta,
                            const struct kernel_matrix *c)
{
    struct kernel_layout la;
    struct kernel_layout lb;
    struct kernel_layout lc;
    blasint m = (blasint)c->rows;
    blasint n = (blasint)c->columns;
    blasint k = (blasint)a->columns;

    PL_CHECK(kernel_matrix_layout(a, &la) && kernel_matrix_layout(b, &lb));
    PL_CHECK(kernel_matrix_layout(c, &lc) && !lc.transposed);
    if (dtype == PL_C64) {
        const float scale[4] = {(float)alpha, 0, (float)beta, 0};

        cblas_cgemm(CblasRowMajor, blas_transpose(&la), blas_transpose(&lb), m, n, k, scale,
                    bytes_of(a), (blasint)la.leading, bytes_of(b), (blasint)lb.leading,
                    scale + 2, result_of(c), (blasint)lc.leading);
    } else if (dtype == PL_C128) {
        const double scale[4] = {alpha, 0, beta, 0};

        cblas_zgemm(CblasRowMajor, blas_transpose(&la), blas_transpose(&lb), m, n, k, scale,
                    bytes_of(a), (blasint)la.leading, bytes_of(b), (blasint)lb.leading,
                    scale + 2, result_of(c), (blasint)lc.leading);
    } else if (dtype == PL_F32) {
        cblas_sgemm(CblasRowMajor, blas_transpose(&la), blas_transpose(&lb), m, n, k,
                    (float)alpha, f32_of(a), (blasint)la.leading, f32_of(b),
                    (blasint)lb.leading, (float)beta, (float *)(uintptr_t)c->data,
                    (blasint)lc.leading);
    } else {
        cblas_dgemm(CblasRowMajor, blas_transpose(&la), blas_transpose(&lb), m, n, k, alpha,
                    f64_of(a), (blasint)la.leading, f64_of(b), (blasint)lb.leading, beta,
                    (double *)(uintptr_t)c->data, (blasint)lc.leading);
    }
}

static void matrix_copy(const struct kernel_matrix *to, const struct kernel_matrix *from,
                        uint32_t dtype)
{
    struct kernel_arg y = kernel_matrix_arg(to, dtype);
    struct kernel_arg x = kernel_matrix_arg(from, dtype);

    cpu_copy(&y, &x);
}

static void product_of_floats(uint32_t dtype, double alpha, const struct kernel_matrix *a,
                              const struct kernel_matrix *b, double beta,
                              const struct kernel_matrix *c, uint64_t scratch)
{
    struct kernel_matrix pa = kernel_matrix_pack(a, dtype, false, &scratch);
    struct kernel_matrix pb = kernel_matrix_pack(b, dtype, false, &scratch);
    struct kernel_matrix pc = kernel_matrix_pack(c, dtype, true, &scratch);

    if (pa.data != a->data) {
        matrix_copy(&pa, a, dtype);
    }
    if (pb.data != b->data) {
        matrix_copy(&pb, b, dtype);
    }
    if (pc.data != c->data && beta != 0) {
        matrix_copy(&pc, c, dtype);
    }
    product_by_blas(dtype, alpha, &pa, &pb, beta, &pc);
    if (pc.data != c->data) {
        matrix_copy(c, &pc, dtype);
    }
}

static struct kernel_matrix widened(const struct kernel_matrix *m, uint32_t dtype,
                                    bool contents, uint64_t *io_scratch)
{
    struct kernel_matrix dense = kernel_matrix_dense(m, io_scratch, PL_F32);
    struct kernel_arg y        = kernel_matrix_arg(&dense, PL_F32);
    struct kernel_arg x        = kernel_matrix_arg(m, dtype);

    if (contents) {
        cpu_convert(&y, &x);
    }
    return dense;
}

plasmon_status_t cpu_product(const struct kernel_call *call, uint32_t dtype, double alpha,
                             const struct kernel_matrix *a, const struct kernel_matrix *b,
                             double beta, const struct kernel_matrix *c, uint64_t scratch,
                             struct pl_err *err)
{
    bool small = kernel_matrix_small(a) && kernel_matrix_small(b);

    if (kernel_is_half(dtype)) {
        struct kernel_matrix wa = widened(a, dtype, true, &scratch);
        struct kernel_matrix wb = widened(b, dtype, true, &scratch);
        struct kernel_matrix wc = widened(c, dtype, beta != 0, &scratch);
        struct kernel_arg x     = kernel_matrix_arg(&wc, PL_F32);
        struct kernel_arg y     = kernel_matrix_arg(c, dtype);
        plasmon_status_t status =
            cpu_product(call, PL_F32, alpha, &wa, &wb, beta, &wc, scratch, err);

        if (status == PLASMON_OK) {
            cpu_convert(&y, &x);
        }
        return status;
    }
    if (kernel_is_complex(dtype) && !small) {
        return pl_err_set(err, PLASMON_ENOTSUP,
                          "%s: a dimension is beyond the 32 bits of BLAS; split the matrix",
                          call->function->name);
    }
    if (kernel_is_integer(dtype) || !small) {
        product_by_loops(dtype, alpha, a, b, beta, c);
    } else {
        product_of_floats(dtype, alpha, a, b, beta, c, scratch);
    }
    return PLASMON_OK;
}

uint64_t cpu_product_bytes(uint32_t dtype, const struct kernel_matrix *a,
                           const struct kernel_matrix *b, const struct kernel_matrix *c)
{
    if (kernel_is_half(dtype)) {
        return kernel_matrix_dense_bytes(a, PL_F32) + kernel_matrix_dense_bytes(b, PL_F32) +
               kernel_matrix_dense_bytes(c, PL_F32);
    }
    if (kernel_is_integer(dtype)) {
        return 0;
    }
    return kernel_matrix_scratch(a, dtype, false) + kernel_matrix_scratch(b, dtype, false) +
           kernel_matrix_scratch(c, dtype, true);
}

plasmon_status_t cpu_gemm(const struct kernel_call *call, int op, struct pl_err *err)
{
    struct kernel_gemm s   = kernel_gemm_of(call->function, call->scalar);
    struct kernel_matrix c = kernel_matrix_of(kernel_call_arg(call, 0), false);
    struct kernel_matrix a = kernel_matrix_of(kernel_call_arg(call, 1), s.trans_a);
    struct kernel_matrix b = kernel_matrix_of(kernel_call_arg(call, 2), s.trans_b);

    (void)op;
    return cpu_product(call, kernel_call_arg(call, 0)->dtype, s.alpha, &a, &b, s.beta, &c,
                       call->scratch.addr, err);
}

uint64_t cpu_gemm_scratch(const struct kernel_function *function,
                          const struct kernel_arg *args, uint32_t arg_count,
                          const union kernel_scalar *scalars)
{
    struct kernel_gemm s   = kernel_gemm_of(function, scalars);
    struct kernel_matrix c = kernel_matrix_of(&args[0], false);
    struct kernel_matrix a = kernel_matrix_of(&args[1], s.trans_a);
    struct kernel_matrix b = kernel_matrix_of(&args[2], s.trans_b);

    (void)arg_count;
    return cpu_product_bytes(args[0].dtype, &a, &b, &c);
}

/* a has a layout; x and y have 32-bit strides. */
static void vector_by_blas(uint32_t dtype, const struct kernel_layout *layout,
                           const struct kernel_matrix *a, const struct kernel_matrix *x,
                           const struct kernel_matrix *y)
{
    blasint rows    = (blasint)(layout->transposed ? a->columns : a->rows); /* as stored */
    blasint columns = (blasint)(layout->transposed ? a->rows : a->columns);

    if (dtype == PL_F32) {
        cblas_sgemv(CblasRowMajor, blas_transpose(layout), rows, columns, 1.0f, f32_of(a),
                    (blasint)layout->leading, f32_of(x), (blasint)x->row_stride, 0.0f,
                    (float *)(uintptr_t)y->data, (blasint)y->row_stride);
    } else {
        cblas_dgemv(CblasRowMajor, blas_transpose(layout), rows, columns, 1.0, f64_of(a),
                    (blasint)layout->leading, f64_of(x), (blasint)x->row_stride, 0.0,
                    (double *)(uintptr_t)y->data, (blasint)y->row_stride);
    }
}

/* y = a x is a product with one column; a BLAS has a faster way to it when a's layout allows. */
plasmon_status_t cpu_gemv(const struct kernel_call *call, int op, struct pl_err *err)
{
    uint32_t dtype         = kernel_call_arg(call, 0)->dtype;
    struct kernel_matrix y = kernel_matrix_of(kernel_call_arg(call, 0), false);
    struct kernel_matrix a = kernel_matrix_of(kernel_call_arg(call, 1), false);
    struct kernel_matrix x = kernel_matrix_of(kernel_call_arg(call, 2), false);
    struct kernel_layout layout;

    (void)op;
    if (kernel_is_single(dtype) && kernel_matrix_small(&a) &&
        kernel_matrix_layout(&a, &layout) && x.row_stride <= INT_MAX &&
        y.row_stride <= INT_MAX) {
        vector_by_blas(dtype, &layout, &a, &x, &y);
        return PLASMON_OK;
    }
    return cpu_product(call, dtype, 1, &a, &x, 0, &y, call->scratch.addr, err);
}

uint64_t cpu_gemv_scratch(const struct kernel_function *function,
                          const struct kernel_arg *args, uint32_t arg_count,
                          const union kernel_scalar *scalars)
{
    struct kernel_matrix y = kernel_matrix_of(&args[0], false);
    struct kernel_matrix a = kernel_matrix_of(&args[1], false);
    struct kernel_matrix x = kernel_matrix_of(&args[2], false);

    (void)function;
    (void)arg_count;
    (void)scalars;
    return cpu_product_bytes(args[0].dtype, &a, &x, &y);
}

/* ---------------------------------------------------------------------------- distances */

static void distance_by_loops(uint32_t dtype, const struct kernel_matrix *a,
                              const struct kernel_matrix *b, const struct kernel_matrix *d)
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
static void distance_by_product(const struct kernel_call *call, uint32_t dtype,
                                const struct kernel_matrix *a,
                                const struct kernel_matrix *b,
                                const struct kernel_matrix *d)
{
    uint64_t scratch                  = call->scratch.addr;
    struct kernel_matrix b_transposed = kernel_matrix_transposed(b);
    double *a_norm                    = (double *)(uintptr_t)scratch;
    double *b_norm                    = a_norm + a->rows;

    if (kernel_matrix_small(a) && kernel_matrix_small(b)) {
        product_of_floats(dtype, -2, a, &b_transposed, 0, d,
                          scratch + kernel_distance_norms(a, b));
    } else {
        product_by_loops(dtype, -2, a, &b_transposed, 0, d);
    }
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
    uint32_t dtype         = kernel_call_arg(call, 0)->dtype;
    struct kernel_matrix d = kernel_matrix_of(kernel_call_arg(call, 0), false);
    struct kernel_matrix a = kernel_matrix_of(kernel_call_arg(call, 1), false);
    struct kernel_matrix b = kernel_matrix_of(kernel_call_arg(call, 2), false);

    (void)op;
    (void)err;
    if (kernel_distance_is_product(dtype, &a)) {
        distance_by_product(call, dtype, &a, &b, &d);
    } else {
        distance_by_loops(dtype, &a, &b, &d);
    }
    return PLASMON_OK;
}

uint64_t cpu_pairwise_scratch(const struct kernel_function *function,
                              const struct kernel_arg *args, uint32_t arg_count,
                              const union kernel_scalar *scalars)
{
    struct kernel_matrix d            = kernel_matrix_of(&args[0], false);
    struct kernel_matrix a            = kernel_matrix_of(&args[1], false);
    struct kernel_matrix b            = kernel_matrix_of(&args[2], false);
    struct kernel_matrix b_transposed = kernel_matrix_transposed(&b);

    (void)function;
    (void)arg_count;
    (void)scalars;
    if (!kernel_distance_is_product(args[0].dtype, &a)) {
        return 0;
    }
    return kernel_distance_norms(&a, &b) +
           cpu_product_bytes(args[0].dtype, &a, &b_transposed, &d);
}
