/*
 * Cases of QR, singular values, eigenvalues, inverses and determinants.
 *
 * A factor is unique but for signs and for vectors of equal values, so what is checked is what
 * defines it: its product is the matrix, its vectors are orthonormal, its shape and order are as
 * promised. The bounds are those of LAPACK's own tests (Blackford and Dongarra, LAPACK Working Note
 * 41): a residual is at most THRESHOLD max(m, n) eps times the matrix's norm, Frobenius' here.
 */
#include "cases_int.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/harness/test.h"

#define THRESHOLD 30

struct dense {
    int64_t rows;
    int64_t columns;
    double *at; /* by rows */
};

static struct dense dense_make(int64_t rows, int64_t columns)
{
    struct dense m = {rows, columns, calloc((size_t)(rows * columns), sizeof(double))};

    ASSERT_NOT_NULL(m.at);
    return m;
}

/* An argument: as it was before the run, or what came out. A vector is one column. */
static struct dense dense_of(const struct trial *trial, uint32_t index)
{
    const struct trial_array *array = &trial->array[index];
    struct dense m = dense_make(array->arg.ndim == 0 ? 1 : array->arg.dim[0],
                                array->arg.ndim == 2 ? array->arg.dim[1] : 1);

    for (int64_t i = 0; i < m.rows * m.columns; i++) {
        m.at[i] =
            array->is_output ? trial_result(trial, index, i) : trial_get(trial, index, i);
    }
    return m;
}

static double norm(const struct dense *m)
{
    double sum = 0;

    for (int64_t i = 0; i < m->rows * m->columns; i++) {
        sum += m->at[i] * m->at[i];
    }
    return sqrt(sum);
}

/* sum over p of a[i,p] s[p] b[p,j]; s NULL: ones. trans: of the transpose of a. */
static double product(const struct dense *a, bool trans, const double *s,
                      const struct dense *b, int64_t i, int64_t j)
{
    long double sum = 0;

    for (int64_t p = 0; p < b->rows; p++) {
        double x = trans ? a->at[p * a->columns + i] : a->at[i * a->columns + p];

        sum += (long double)x * (s == NULL ? 1 : s[p]) * b->at[p * b->columns + j];
    }
    return (double)sum;
}

/* |got - want| is Frobenius' norm of a difference. NaN fails. */
static void check_residual(const struct trial *trial, const char *where, const char *what,
                           double squares, double bound)
{
    if (!(sqrt(squares) <= bound)) {
        test_fail(__FILE__, __LINE__,
                  "%s %s on %s, %lld by %lld: %s is off by %.3g, at most %.3g",
                  trial->function->name, pl_dtype_name(trial->dtype), where,
                  (long long)trial->array[trial->count - 1].arg.dim[0],
                  (long long)trial->array[trial->count - 1].arg.dim[1], what, sqrt(squares),
                  bound);
    }
}

static double limit(const struct trial *trial, const struct dense *a)
{
    return THRESHOLD * fmax((double)a->rows, (double)a->columns) * 2 *
           trial_epsilon(trial->dtype); /* LAPACK's eps is twice the unit roundoff */
}

/* a = x diag(s) y */
static void check_product(const struct trial *trial, const char *where, const char *what,
                          const struct dense *a, const struct dense *x, const double *s,
                          const struct dense *y)
{
    double squares = 0;

    for (int64_t i = 0; i < a->rows; i++) {
        for (int64_t j = 0; j < a->columns; j++) {
            double off = product(x, false, s, y, i, j) - a->at[i * a->columns + j];

            squares += off * off;
        }
    }
    check_residual(trial, where, what, squares, limit(trial, a) * norm(a));
}

/* The columns of q are orthonormal; trans: its rows. */
static void check_orthonormal(const struct trial *trial, const char *where,
                              const char *what, const struct dense *q, bool trans)
{
    struct dense columns = *q;
    double squares       = 0;

    if (trans) {
        columns = dense_make(q->columns, q->rows);
        for (int64_t i = 0; i < q->rows * q->columns; i++) {
            columns.at[i % q->columns * q->rows + i / q->columns] = q->at[i];
        }
    }
    for (int64_t i = 0; i < columns.columns; i++) {
        for (int64_t j = 0; j < columns.columns; j++) {
            double off = product(&columns, true, NULL, &columns, i, j) - (i == j);

            squares += off * off;
        }
    }
    check_residual(trial, where, what, squares, limit(trial, q));
    if (trans) {
        free(columns.at);
    }
}

static void check_order(const struct trial *trial, const char *where, const struct dense *s,
                        int sign)
{
    for (int64_t i = 0; i + 1 < s->rows; i++) {
        if (!(sign * s->at[i] <= sign * s->at[i + 1])) {
            test_fail(__FILE__, __LINE__,
                      "%s %s on %s: value %lld is %.17g, the next %.17g",
                      trial->function->name, pl_dtype_name(trial->dtype), where,
                      (long long)i, s->at[i], s->at[i + 1]);
        }
    }
}

static void check_zero_below(const struct trial *trial, const char *where,
                             const struct dense *r)
{
    for (int64_t i = 0; i < r->rows; i++) {
        for (int64_t j = 0; j < i; j++) {
            if (r->at[i * r->columns + j] != 0) {
                test_fail(__FILE__, __LINE__, "%s on %s: r[%lld,%lld] is %.17g, not 0",
                          trial->function->name, where, (long long)i, (long long)j,
                          r->at[i * r->columns + j]);
            }
        }
    }
}

/* ------------------------------------------------------------------------ QR, SVD, eigh */

static void verify_qr(const struct trial *trial, const char *where)
{
    struct dense q = dense_of(trial, 0);
    struct dense r = dense_of(trial, 1);
    struct dense a = dense_of(trial, 2);

    check_zero_below(trial, where, &r);
    check_orthonormal(trial, where, "q' q - 1", &q, false);
    check_product(trial, where, "q r - a", &a, &q, NULL, &r);
    free(q.at);
    free(r.at);
    free(a.at);
}

void kernel_verify_svd(const struct trial *trial, const char *where)
{
    struct dense u  = dense_of(trial, 0);
    struct dense s  = dense_of(trial, 1);
    struct dense vh = dense_of(trial, 2);
    struct dense a  = dense_of(trial, 3);

    check_order(trial, where, &s, -1);
    ASSERT_TRUE(s.at[s.rows - 1] >= 0);
    check_orthonormal(trial, where, "u' u - 1", &u, false);
    check_orthonormal(trial, where, "vh vh' - 1", &vh, true);
    check_product(trial, where, "u s vh - a", &a, &u, s.at, &vh);
    free(u.at);
    free(s.at);
    free(vh.at);
    free(a.at);
}

static void verify_eigh(const struct trial *trial, const char *where)
{
    struct dense w = dense_of(trial, 0);
    struct dense v = dense_of(trial, 1);
    struct dense a = dense_of(trial, 2);
    struct dense t = dense_make(a.rows, a.rows);

    for (int64_t i = 0; i < a.rows; i++) {
        for (int64_t j = 0; j < a.rows; j++) { /* only the lower triangle is the matrix */
            a.at[i * a.rows + j] = j <= i ? a.at[i * a.rows + j] : a.at[j * a.rows + i];
            t.at[i * a.rows + j] = v.at[j * a.rows + i];
        }
    }
    check_order(trial, where, &w, 1);
    check_orthonormal(trial, where, "v' v - 1", &v, false);
    check_product(trial, where, "v w v' - a", &a, &v, w.at, &t);
    free(w.at);
    free(v.at);
    free(a.at);
    free(t.at);
}

/*
 * Dense; or of low rank, with columns that repeat; or zero: then vectors are not determined, and
 * must be orthonormal still.
 */
static void build_matrix(struct trial *trial, uint32_t outputs, bool square)
{
    int64_t most   = trial->large ? 70 : 9;
    int64_t m      = trial_int(trial, 1, most);
    int64_t n      = square ? m : trial_int(trial, 1, most);
    int64_t kind   = trial_int(trial, 0, 5);
    int64_t repeat = trial_int(trial, 1, n);

    for (uint32_t i = 0; i < outputs; i++) {
        trial_out(trial);
    }
    (void)trial_array(trial, KERNEL_IN, trial->dtype, 2, (int64_t[]){m, n}, -5, 5);
    for (int64_t i = 0; i < m * n && kind < 2; i++) {
        trial_set(trial, outputs, i,
                  kind == 0 ? trial_get(trial, outputs, i - i % n % repeat) : 0);
    }
    trial_prepare(trial);
}

void case_build_qr(struct trial *trial)
{
    build_matrix(trial, 2, false);
    trial->verify = verify_qr;
}

void case_build_svd(struct trial *trial)
{
    build_matrix(trial, 3, false);
    trial->verify = kernel_verify_svd;
}

void case_build_eigh(struct trial *trial)
{
    build_matrix(trial, 2, true);
    trial->verify = verify_eigh;
}

/* ------------------------------------------------------------------------------ inverse */

/* Gauss and Jordan with pivots, in extended precision. The determinant, and *out_inverse if it has one. */
static long double invert(const struct dense *a, struct dense *out_inverse)
{
    int64_t n       = a->rows;
    long double det = 1;
    long double *w  = calloc((size_t)(2 * n * n), sizeof(*w));

    ASSERT_NOT_NULL(w);
    for (int64_t i = 0; i < n; i++) {
        for (int64_t j = 0; j < n; j++) {
            w[i * 2 * n + j] = a->at[i * n + j];
        }
        w[i * 2 * n + n + i] = 1;
    }
    for (int64_t p = 0; p < n && det != 0; p++) {
        int64_t best = p;

        for (int64_t i = p + 1; i < n; i++) {
            best = fabsl(w[i * 2 * n + p]) > fabsl(w[best * 2 * n + p]) ? i : best;
        }
        for (int64_t j = 0; j < 2 * n; j++) {
            long double kept    = w[p * 2 * n + j];
            w[p * 2 * n + j]    = w[best * 2 * n + j];
            w[best * 2 * n + j] = kept;
        }
        det *= best == p ? w[p * 2 * n + p] : -w[p * 2 * n + p];
        for (int64_t i = 0; i < n; i++) {
            long double by = w[i * 2 * n + p] / w[p * 2 * n + p];

            for (int64_t j = 0; j < 2 * n && i != p; j++) {
                w[i * 2 * n + j] -= by * w[p * 2 * n + j];
            }
        }
    }
    for (int64_t i = 0; i < n * n; i++) {
        int64_t row = i / n;

        out_inverse->at[i] = (double)(w[row * 2 * n + n + i % n] / w[row * 2 * n + row]);
    }
    free(w);
    return det;
}

static void verify_inverse(const struct trial *trial, const char *where)
{
    struct dense y = dense_of(trial, 0);
    struct dense a = dense_of(trial, 1);
    double squares = 0;

    for (int64_t i = 0; i < a.rows; i++) {
        for (int64_t j = 0; j < a.rows; j++) {
            double off = product(&a, false, NULL, &y, i, j) - (i == j);

            squares += off * off;
        }
    }
    check_residual(trial, where, "a y - 1", squares,
                   limit(trial, &a) * norm(&a) * norm(&y));
    free(y.at);
    free(a.at);
}

void case_build_inverse(struct trial *trial)
{
    int64_t n = trial_int(trial, 1, trial->large ? 70 : 9);

    trial_out(trial);
    (void)trial_array(trial, KERNEL_IN, trial->dtype, 2, (int64_t[]){n, n}, -5, 5);
    trial_prepare(trial);
    trial->verify = verify_inverse;
}

/* What verify says is all there is. */
void case_expect_relations(struct trial *trial)
{
    ASSERT_TRUE(trial->verify != NULL);
}

void case_build_determinant(struct trial *trial)
{
    int64_t n = trial_int(trial, 1, trial->large ? 25 : 6);

    trial_out(trial);
    (void)trial_array(trial, KERNEL_IN, trial->dtype, 2, (int64_t[]){n, n}, -1, 1);
    trial_prepare(trial);
}

/*
 * An LU factor is that of a matrix n eps |a| away, and the relative change of a determinant is the
 * trace of a^-1 times it.
 */
void case_expect_determinant(struct trial *trial)
{
    struct dense a       = dense_of(trial, 1);
    struct dense inverse = dense_make(a.rows, a.rows);
    double want          = (double)invert(&a, &inverse);

    trial_want(trial, 0, 0, want,
               limit(trial, &a) * norm(&a) * norm(&inverse) * fabs(want) +
                   trial_tiny(trial->dtype));
    free(a.at);
    free(inverse.at);
}
