/*
 * CPU variants of QR, singular values, eigenvalues, inverses and determinants: LAPACK.
 *
 * LAPACK counts in columns, and a dense matrix by rows is its own transpose there. Where a factor
 * of the transpose is as good (an LU factor, singular vectors with the sides exchanged, a symmetric
 * matrix) a is copied by rows; QR takes it by columns. LAPACK overwrites what it is given, so a is
 * always copied, and results are copied out of scratch into whatever layout they have.
 *
 * Scratch is laid out by one function for each kind, which the run and the reservation share.
 */
#include "kernels/cpu.h"
#include "kernels/data_errors.h"
#include "kernels/lapack.h"

#include <limits.h>
#include <math.h>
#include <string.h>

/* Beyond this order the workspaces of gesdd and syevd do not fit their 32 bits. */
#define SPECTRUM_MAX 20000

#define F32(address) ((float *)(uintptr_t)(address))
#define F64(address) ((double *)(uintptr_t)(address))
#define INT(address) ((blasint *)(uintptr_t)(address))

/* ------------------------------------------------------------------------------ scratch */

/* Addresses; 0 based when only `bytes` is wanted. */
struct layout {
    uint64_t a;
    uint64_t first; /* tau; u; w; */
    uint64_t second;
    uint64_t third;
    uint64_t integers;
    uint64_t work;
    blasint work_count;
    uint64_t bytes;
};

static uint64_t take(struct layout *layout, uint64_t base, uint64_t count, uint64_t bytes)
{
    uint64_t at = base + layout->bytes;

    layout->bytes += pl_round_up(count * bytes, 64);
    return at;
}

/* A query answers in the dtype, which may have rounded it down. */
static blasint work_of(double answer)
{
    return (blasint)(answer * (1 + 0x1p-22)) + 1;
}

struct size {
    uint32_t dtype;
    uint64_t bytes; /* of an element */
    blasint m;
    blasint n;
    blasint k;
};

static struct size size_of(const struct kernel_arg *a)
{
    struct size size = {.dtype = a->dtype,
                        .bytes = pl_dtype_bytes(a->dtype),
                        .m     = (blasint)a->dim[0],
                        .n     = (blasint)a->dim[1]};

    size.k = size.m < size.n ? size.m : size.n;
    return size;
}

static bool fits(const struct kernel_arg *a, int64_t smaller_max)
{
    int64_t m = a->dim[0];
    int64_t n = a->dim[1];

    return m <= INT_MAX && n <= INT_MAX && (m < n ? m : n) <= smaller_max;
}

static plasmon_status_t too_large(const struct kernel_call *call, int64_t smaller_max,
                                  struct pl_err *err)
{
    return pl_err_set(err, PLASMON_ENOTSUP,
                      "%s: the matrix is too large for LAPACK's 32 bits: at most %lld rows "
                      "or columns",
                      call->function->name, (long long)smaller_max);
}

/* ------------------------------------------------------------------------------- copies */

static struct kernel_matrix by_rows(uint64_t data, int64_t rows, int64_t columns)
{
    return (struct kernel_matrix){data, rows, columns, columns, 1};
}

static struct kernel_matrix by_columns(uint64_t data, int64_t rows, int64_t columns)
{
    return (struct kernel_matrix){data, rows, columns, 1, rows};
}

static void copy_in(const struct kernel_matrix *to, const struct kernel_arg *from)
{
    struct kernel_arg y = kernel_matrix_arg(to, from->dtype);

    cpu_copy(&y, from);
}

static void copy_out(const struct kernel_arg *to, const struct kernel_matrix *from)
{
    struct kernel_arg x = kernel_matrix_arg(from, to->dtype);

    cpu_copy(to, &x);
}

static double element(uint32_t dtype, uint64_t data, int64_t index)
{
    return dtype == PL_F32 ? (double)F32(data)[index] : F64(data)[index];
}

/* LAPACK may run for ever, or refuse, where it meets NaN. a is dense by rows. */
static plasmon_status_t check_finite(const struct kernel_call *call,
                                     const struct size *size, uint64_t a, bool lower,
                                     struct pl_err *err)
{
    for (int64_t row = 0; row < size->m; row++) {
        int64_t end = lower ? row + 1 : size->n;

        for (int64_t column = 0; column < end; column++) {
            int64_t index = row * size->n + column;

            if (!isfinite(element(size->dtype, a, index))) {
                return kernel_data_error(err, call->function, KERNEL_DATA_NOT_FINITE,
                                         index);
            }
        }
    }
    return PLASMON_OK;
}

static plasmon_status_t outcome(const struct kernel_call *call, blasint info,
                                enum kernel_data_error positive, struct pl_err *err)
{
    if (info == 0) {
        return PLASMON_OK;
    }
    return kernel_data_error(err, call->function,
                             info > 0 ? positive : KERNEL_DATA_ARGUMENT,
                             info > 0 ? info : -info);
}

/* ----------------------------------------------------------------------------------- QR */

static void geqrf(const struct size *s, const struct layout *at, blasint lwork,
                  blasint *info)
{
    if (s->dtype == PL_F32) {
        sgeqrf_(&s->m, &s->n, F32(at->a), &s->m, F32(at->first), F32(at->work), &lwork,
                info);
    } else {
        dgeqrf_(&s->m, &s->n, F64(at->a), &s->m, F64(at->first), F64(at->work), &lwork,
                info);
    }
}

static void orgqr(const struct size *s, const struct layout *at, blasint lwork,
                  blasint *info)
{
    if (s->dtype == PL_F32) {
        sorgqr_(&s->m, &s->k, &s->k, F32(at->a), &s->m, F32(at->first), F32(at->work),
                &lwork, info);
    } else {
        dorgqr_(&s->m, &s->k, &s->k, F64(at->a), &s->m, F64(at->first), F64(at->work),
                &lwork, info);
    }
}

static struct layout qr_layout(const struct size *s, uint64_t base)
{
    double answer[2]    = {0, 0};
    struct layout query = {.a     = (uint64_t)(uintptr_t)answer,
                           .first = (uint64_t)(uintptr_t)answer};
    struct layout at    = {.bytes = 0};
    blasint info;

    query.work = (uint64_t)(uintptr_t)&answer[0];
    geqrf(s, &query, -1, &info);
    at.work_count = work_of(element(s->dtype, query.work, 0));
    orgqr(s, &query, -1, &info);
    if (work_of(element(s->dtype, query.work, 0)) > at.work_count) {
        at.work_count = work_of(element(s->dtype, query.work, 0));
    }
    at.a     = take(&at, base, (uint64_t)s->m * (uint64_t)s->n, s->bytes);
    at.first = take(&at, base, (uint64_t)s->k, s->bytes);
    at.work  = take(&at, base, (uint64_t)at.work_count, s->bytes);
    return at;
}

/* The triangle of R out of what geqrf left, by columns; zeros below. */
static void copy_triangle(const struct kernel_arg *r, const struct size *s, uint64_t a)
{
    struct kernel_matrix packed = by_columns(a, s->m, s->n);
    union kernel_value zero     = kernel_value_of_f64(s->dtype, 0);
    struct kernel_arg x;

    packed.rows = s->k;
    x           = kernel_matrix_arg(&packed, s->dtype);
    cpu_copy(r, &x);
    for (int64_t row = 1; row < s->k; row++) {
        struct kernel_arg left = *r; /* of the diagonal, in this row */

        left.dim[0] = 1;
        left.dim[1] = row;
        left.data.addr += (uint64_t)(row * r->stride[0]) * s->bytes;
        cpu_fill(&left, &zero);
    }
}

plasmon_status_t cpu_qr(const struct kernel_call *call, int op, struct pl_err *err)
{
    const struct kernel_arg *a = kernel_call_arg(call, 2);
    struct size s              = size_of(a);
    struct kernel_matrix q;
    plasmon_status_t status;
    struct layout at;
    blasint info = 0;

    (void)op;
    if (!fits(a, INT_MAX)) {
        return too_large(call, INT_MAX, err);
    }
    at = qr_layout(&s, call->scratch.addr);
    q  = by_columns(at.a, s.m, s.n);
    copy_in(&q, a);
    geqrf(&s, &at, at.work_count, &info);
    status = outcome(call, info, KERNEL_DATA_ARGUMENT, err);
    if (status != PLASMON_OK) {
        return status;
    }
    copy_triangle(kernel_call_arg(call, 1), &s, at.a);
    orgqr(&s, &at, at.work_count, &info);
    q.columns = s.k;
    copy_out(kernel_call_arg(call, 0), &q);
    return outcome(call, info, KERNEL_DATA_ARGUMENT, err);
}

uint64_t cpu_qr_scratch(const struct kernel_function *function,
                        const struct kernel_arg *args, uint32_t arg_count,
                        const union kernel_scalar *scalars)
{
    struct size s = size_of(&args[2]);

    (void)function;
    (void)arg_count;
    (void)scalars;
    return fits(&args[2], INT_MAX) ? qr_layout(&s, 0).bytes : 0;
}

/* ---------------------------------------------------------------------- singular values */

/*
 * Of the transpose: what are its left vectors by columns are the rows of vh, and its right ones
 * those of u.
 */
static void gesdd(const struct size *s, const struct layout *at, blasint lwork,
                  blasint *info)
{
    if (s->dtype == PL_F32) {
        sgesdd_("S", &s->n, &s->m, F32(at->a), &s->n, F32(at->first), F32(at->second),
                &s->n, F32(at->third), &s->k, F32(at->work), &lwork, INT(at->integers),
                info);
    } else {
        dgesdd_("S", &s->n, &s->m, F64(at->a), &s->n, F64(at->first), F64(at->second),
                &s->n, F64(at->third), &s->k, F64(at->work), &lwork, INT(at->integers),
                info);
    }
}

static struct layout svd_layout(const struct size *s, uint64_t base)
{
    double answer[2]   = {0, 0};
    uint64_t dummy     = (uint64_t)(uintptr_t)answer;
    struct layout at   = {dummy, dummy, dummy, dummy, dummy, dummy, 0, 0};
    uint64_t m         = (uint64_t)s->m;
    uint64_t n         = (uint64_t)s->n;
    uint64_t k         = (uint64_t)s->k;
    blasint work_least = 4 * s->k * s->k + 7 * s->k;
    blasint info;

    gesdd(s, &at, -1, &info);
    at.work_count = work_of(element(s->dtype, dummy, 0));
    at.work_count = at.work_count > work_least ? at.work_count : work_least;
    at.a          = take(&at, base, m * n, s->bytes);
    at.first      = take(&at, base, k, s->bytes);
    at.second     = take(&at, base, k * n, s->bytes);
    at.third      = take(&at, base, m * k, s->bytes);
    at.integers   = take(&at, base, 8 * k, sizeof(blasint));
    at.work       = take(&at, base, (uint64_t)at.work_count, s->bytes);
    return at;
}

plasmon_status_t cpu_svd(const struct kernel_call *call, int op, struct pl_err *err)
{
    const struct kernel_arg *a = kernel_call_arg(call, 3);
    struct kernel_arg values   = *kernel_call_arg(call, 1);
    struct size s              = size_of(a);
    struct kernel_matrix copy, u, vh;
    plasmon_status_t status;
    struct layout at;
    blasint info = 0;

    (void)op;
    if (!fits(a, SPECTRUM_MAX)) {
        return too_large(call, SPECTRUM_MAX, err);
    }
    at   = svd_layout(&s, call->scratch.addr);
    copy = by_rows(at.a, s.m, s.n);
    copy_in(&copy, a);
    status = check_finite(call, &s, at.a, false, err);
    if (status != PLASMON_OK) {
        return status;
    }
    gesdd(&s, &at, at.work_count, &info);
    status = outcome(call, info, KERNEL_DATA_NO_CONVERGENCE, err);
    if (status != PLASMON_OK) {
        return status;
    }
    u  = by_rows(at.third, s.m, s.k);
    vh = by_rows(at.second, s.k, s.n);
    copy_out(kernel_call_arg(call, 0), &u);
    copy_out(kernel_call_arg(call, 2), &vh);
    values = kernel_arg_compact(&values, (struct device_ptr){at.first});
    cpu_copy(kernel_call_arg(call, 1), &values);
    return PLASMON_OK;
}

uint64_t cpu_svd_scratch(const struct kernel_function *function,
                         const struct kernel_arg *args, uint32_t arg_count,
                         const union kernel_scalar *scalars)
{
    struct size s = size_of(&args[3]);

    (void)function;
    (void)arg_count;
    (void)scalars;
    return fits(&args[3], SPECTRUM_MAX) ? svd_layout(&s, 0).bytes : 0;
}

/* -------------------------------------------------------------------------- eigenvalues */

/* The lower triangle by rows is the upper one by columns. */
static void syevd(const struct size *s, const struct layout *at, blasint lwork,
                  blasint liwork, blasint *info)
{
    if (s->dtype == PL_F32) {
        ssyevd_("V", "U", &s->n, F32(at->a), &s->n, F32(at->first), F32(at->work), &lwork,
                INT(at->integers), &liwork, info);
    } else {
        dsyevd_("V", "U", &s->n, F64(at->a), &s->n, F64(at->first), F64(at->work), &lwork,
                INT(at->integers), &liwork, info);
    }
}

static blasint eigh_integers(const struct size *s)
{
    return 3 + 5 * s->n;
}

static struct layout eigh_layout(const struct size *s, uint64_t base)
{
    double answer[2]   = {0, 0};
    blasint integers   = 0;
    uint64_t dummy     = (uint64_t)(uintptr_t)answer;
    struct layout at   = {.a        = dummy,
                          .first    = dummy,
                          .integers = (uint64_t)(uintptr_t)&integers,
                          .work     = dummy};
    uint64_t n         = (uint64_t)s->n;
    blasint work_least = 1 + 6 * s->n + 2 * s->n * s->n;
    blasint info;

    syevd(s, &at, -1, -1, &info);
    at.work_count = work_of(element(s->dtype, dummy, 0));
    at.work_count = at.work_count > work_least ? at.work_count : work_least;
    at.a          = take(&at, base, n * n, s->bytes);
    at.first      = take(&at, base, n, s->bytes);
    at.integers   = take(&at, base, (uint64_t)eigh_integers(s), sizeof(blasint));
    at.work       = take(&at, base, (uint64_t)at.work_count, s->bytes);
    return at;
}

plasmon_status_t cpu_eigh(const struct kernel_call *call, int op, struct pl_err *err)
{
    const struct kernel_arg *a = kernel_call_arg(call, 2);
    struct kernel_arg values   = *kernel_call_arg(call, 0);
    struct size s              = size_of(a);
    struct kernel_matrix copy, vectors;
    plasmon_status_t status;
    struct layout at;
    blasint info = 0;

    (void)op;
    if (!fits(a, SPECTRUM_MAX)) {
        return too_large(call, SPECTRUM_MAX, err);
    }
    at   = eigh_layout(&s, call->scratch.addr);
    copy = by_rows(at.a, s.n, s.n);
    copy_in(&copy, a);
    status = check_finite(call, &s, at.a, true, err);
    if (status != PLASMON_OK) {
        return status;
    }
    syevd(&s, &at, at.work_count, eigh_integers(&s), &info);
    status = outcome(call, info, KERNEL_DATA_NO_CONVERGENCE, err);
    if (status != PLASMON_OK) {
        return status;
    }
    vectors = by_columns(at.a, s.n, s.n);
    copy_out(kernel_call_arg(call, 1), &vectors);
    values = kernel_arg_compact(&values, (struct device_ptr){at.first});
    cpu_copy(kernel_call_arg(call, 0), &values);
    return PLASMON_OK;
}

uint64_t cpu_eigh_scratch(const struct kernel_function *function,
                          const struct kernel_arg *args, uint32_t arg_count,
                          const union kernel_scalar *scalars)
{
    struct size s = size_of(&args[2]);

    (void)function;
    (void)arg_count;
    (void)scalars;
    return fits(&args[2], SPECTRUM_MAX) ? eigh_layout(&s, 0).bytes : 0;
}

/* ----------------------------------------------------------------------------------- LU */

static void getrf(const struct size *s, const struct layout *at, blasint *info)
{
    if (s->dtype == PL_F32) {
        sgetrf_(&s->n, &s->n, F32(at->a), &s->n, INT(at->integers), info);
    } else {
        dgetrf_(&s->n, &s->n, F64(at->a), &s->n, INT(at->integers), info);
    }
}

static void getri(const struct size *s, const struct layout *at, blasint lwork,
                  blasint *info)
{
    if (s->dtype == PL_F32) {
        sgetri_(&s->n, F32(at->a), &s->n, INT(at->integers), F32(at->work), &lwork, info);
    } else {
        dgetri_(&s->n, F64(at->a), &s->n, INT(at->integers), F64(at->work), &lwork, info);
    }
}

/* Of the transpose, which has the inverse's transpose for its inverse, and the same determinant. */
static struct layout lu_layout(const struct size *s, uint64_t base)
{
    double answer[2] = {0, 0};
    uint64_t dummy   = (uint64_t)(uintptr_t)answer;
    struct layout at = {.a = dummy, .integers = dummy, .work = dummy};
    uint64_t n       = (uint64_t)s->n;
    blasint info;

    getri(s, &at, -1, &info);
    at.work_count = work_of(element(s->dtype, dummy, 0));
    at.a          = take(&at, base, n * n, s->bytes);
    at.integers   = take(&at, base, n, sizeof(blasint));
    at.work       = take(&at, base, (uint64_t)at.work_count, s->bytes);
    return at;
}

plasmon_status_t cpu_inverse(const struct kernel_call *call, int op, struct pl_err *err)
{
    const struct kernel_arg *a = kernel_call_arg(call, 1);
    struct size s              = size_of(a);
    struct kernel_matrix copy;
    plasmon_status_t status;
    struct layout at;
    blasint info = 0;

    (void)op;
    if (!fits(a, INT_MAX)) {
        return too_large(call, INT_MAX, err);
    }
    at   = lu_layout(&s, call->scratch.addr);
    copy = by_rows(at.a, s.n, s.n);
    copy_in(&copy, a);
    getrf(&s, &at, &info);
    status = outcome(call, info, KERNEL_DATA_SINGULAR, err);
    if (status != PLASMON_OK) {
        return status;
    }
    getri(&s, &at, at.work_count, &info);
    copy_out(kernel_call_arg(call, 0), &copy);
    return outcome(call, info, KERNEL_DATA_SINGULAR, err);
}

/*
 * The product of the pivots, its exponent apart: it may leave the range of a double on the way to a
 * result within it.
 */
static double pivots_product(const struct size *s, const struct layout *at)
{
    double product   = 1;
    int64_t exponent = 0;

    for (int64_t i = 0; i < s->n; i++) {
        int more;

        product = frexp(product * element(s->dtype, at->a, i * (s->n + 1)), &more);
        exponent += more;
        if (INT(at->integers)[i] != i + 1) {
            product = -product;
        }
        if (product == 0 || !isfinite(product)) {
            return product;
        }
    }
    exponent = exponent > 10000 ? 10000 : exponent < -10000 ? -10000 : exponent;
    return ldexp(product, (int)exponent);
}

plasmon_status_t cpu_determinant(const struct kernel_call *call, int op, struct pl_err *err)
{
    const struct kernel_arg *a = kernel_call_arg(call, 1);
    struct size s              = size_of(a);
    struct kernel_matrix copy;
    struct layout at;
    blasint info = 0;
    double value;

    (void)op;
    if (!fits(a, INT_MAX)) {
        return too_large(call, INT_MAX, err);
    }
    at   = lu_layout(&s, call->scratch.addr);
    copy = by_rows(at.a, s.n, s.n);
    copy_in(&copy, a);
    getrf(&s, &at, &info); /* a pivot of 0 is an answer */
    value = info > 0 ? 0 : pivots_product(&s, &at);
    cpu_store_f64(s.dtype, &value, NULL, 1, cpu_data(kernel_call_arg(call, 0)), 0);
    return outcome(call, info < 0 ? info : 0, KERNEL_DATA_ARGUMENT, err);
}

uint64_t cpu_lu_scratch(const struct kernel_function *function,
                        const struct kernel_arg *args, uint32_t arg_count,
                        const union kernel_scalar *scalars)
{
    struct size s = size_of(&args[1]);

    (void)function;
    (void)arg_count;
    (void)scalars;
    return fits(&args[1], INT_MAX) ? lu_layout(&s, 0).bytes : 0;
}
