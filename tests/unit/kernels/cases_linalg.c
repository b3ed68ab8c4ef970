/*
 * Cases of batched products, einsum and sparse products.
 */
#include "cases_int.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/harness/test.h"

/* ------------------------------------------------------------------------- gemm_batched */

void case_build_gemm_batched(struct trial *trial)
{
    int64_t most  = trial->large ? 40 : 12;
    int64_t m     = trial_int(trial, 1, most);
    int64_t n     = trial_int(trial, 1, most);
    int64_t k     = trial_int(trial, 1, most);
    int64_t batch = trial_int(trial, 1, 7);
    bool ta       = trial_int(trial, 0, 1);
    bool tb       = trial_int(trial, 0, 1);

    trial_out(trial);
    (void)trial_array(
        trial, KERNEL_IN, trial->dtype, 3,
        (int64_t[]){trial_int(trial, 0, 3) == 0 ? 1 : batch, ta ? k : m, ta ? m : k}, -5,
        5);
    (void)trial_array(
        trial, KERNEL_IN, trial->dtype, 3,
        (int64_t[]){trial_int(trial, 0, 3) == 0 ? 1 : batch, tb ? n : k, tb ? k : n}, -5,
        5);
    trial_f64(trial, (double)trial_int(trial, -4, 4));
    trial_i64(trial, ta);
    trial_i64(trial, tb);
    trial_prepare(trial);
}

/*
 * A sum of products of terms that the caller lists: what it is, and how far a product of matrices
 * may be off.
 */
static void want_sum(struct trial *trial, int64_t flat, long double complex sum,
                     double magnitude, int64_t terms, double alpha)
{
    double accumulated  = fmin(trial_epsilon(trial->dtype), 0x1p-24);
    double complex want = alpha * (double complex)sum;

    trial_want_z(trial, 0, flat, want,
                 (2 * (double)terms + 8) * accumulated * fabs(alpha) * magnitude +
                     2 * trial_epsilon(trial->dtype) * cabs(want) +
                     trial_tiny(trial->dtype));
}

void case_expect_gemm_batched(struct trial *trial)
{
    const struct kernel_arg *a = &trial->array[1].arg;
    const struct kernel_arg *b = &trial->array[2].arg;
    const struct kernel_arg *c = &trial->array[0].arg;
    bool ta                    = trial->scalar[1].i != 0;
    bool tb                    = trial->scalar[2].i != 0;
    int64_t k                  = a->dim[ta ? 1 : 2];

    for (int64_t flat = 0; flat < trial_elements(trial, 0); flat++) {
        int64_t column          = flat % c->dim[2];
        int64_t row             = flat / c->dim[2] % c->dim[1];
        int64_t g               = flat / c->dim[2] / c->dim[1];
        int64_t first_a         = a->dim[0] == 1 ? 0 : g * a->dim[1] * a->dim[2];
        int64_t first_b         = b->dim[0] == 1 ? 0 : g * b->dim[1] * b->dim[2];
        long double complex sum = 0;
        double magnitude        = 0;

        for (int64_t p = 0; p < k; p++) {
            double complex x = trial_get_z(
                trial, 1, first_a + (ta ? p * a->dim[2] + row : row * a->dim[2] + p));
            double complex y = trial_get_z(
                trial, 2, first_b + (tb ? column * b->dim[2] + p : p * b->dim[2] + column));

            sum += (long double complex)x * (long double complex)y;
            magnitude += cabs(x * y);
        }
        want_sum(trial, flat, sum, magnitude, k, trial->scalar[0].f);
    }
}

/* ------------------------------------------------------------------------------- einsum */

/* Operands and result of well known contractions, and of some that have to be rearranged first. */
static const char *const contractions[][3] = {
    {"ij", "jk", "ik"},     {"ij", "jk", "ki"},     {"ji", "kj", "ik"},
    {"bij", "bjk", "bik"},  {"ibj", "kjb", "bik"},  {"ijk", "kjl", "il"},
    {"ijk", "klm", "ijlm"}, {"i", "j", "ij"},       {"ij", "ij", ""},
    {"ii", "ij", "j"},      {"abcd", "cbe", "dea"}, {"ij", "j", "i"},
    {"i", "i", "i"},        {"", "ij", "ij"},       {"abij", "baj", "abi"}};

static int64_t packed(const char *labels)
{
    int64_t value = 0;

    memcpy(&value, labels, strlen(labels));
    return value;
}

static void build_operand(struct trial *trial, const char *labels,
                          const int64_t length[256])
{
    int64_t dim[PL_DIM_MAX] = {0};

    for (uint32_t i = 0; labels[i] != '\0'; i++) {
        dim[i] = length[(unsigned char)labels[i]];
    }
    (void)trial_array(trial, KERNEL_IN, trial->dtype, (uint32_t)strlen(labels), dim, -5, 5);
}

void case_build_einsum(struct trial *trial)
{
    const char *const *labels =
        contractions[trial_int(trial, 0, (int64_t)PL_COUNT(contractions) - 1)];
    int64_t length[256];

    for (int i = 0; i < 256; i++) {
        length[i] = trial_int(trial, 1, trial->large ? 9 : 4);
    }
    trial_out(trial);
    build_operand(trial, labels[0], length);
    build_operand(trial, labels[1], length);
    for (int i = 0; i < 3; i++) {
        trial_i64(trial, packed(labels[i]));
    }
    trial_prepare(trial);
}

/* Index of the element of argument `index` at these values of the labels. */
static int64_t element_of(const struct trial *trial, uint32_t index, int64_t labels,
                          const int64_t at[256])
{
    const struct kernel_arg *x = &trial->array[index].arg;
    int64_t flat               = 0;

    for (uint32_t d = 0; d < x->ndim; d++) {
        flat = flat * x->dim[d] + at[(labels >> (8 * d)) & 255];
    }
    return flat;
}

/* Sums over every label that y lacks, one after another, like an odometer. */
static void expect_element(struct trial *trial, int64_t flat, int64_t at[256],
                           const char *summed, const int64_t length[256])
{
    long double complex sum = 0;
    double magnitude        = 0;
    int64_t terms           = 0;
    size_t count            = strlen(summed);

    for (;;) {
        double complex a =
            trial_get_z(trial, 1, element_of(trial, 1, trial->scalar[0].i, at));
        double complex b =
            trial_get_z(trial, 2, element_of(trial, 2, trial->scalar[1].i, at));
        size_t i = 0;

        sum += (long double complex)a * (long double complex)b;
        magnitude += cabs(a * b);
        terms++;
        while (i < count &&
               ++at[(unsigned char)summed[i]] == length[(unsigned char)summed[i]]) {
            at[(unsigned char)summed[i++]] = 0;
        }
        if (i == count) {
            break;
        }
    }
    want_sum(trial, flat, sum, magnitude, terms, 1);
}

void case_expect_einsum(struct trial *trial)
{
    const struct kernel_arg *y = &trial->array[0].arg;
    int64_t length[256]        = {0};
    char summed[2 * PL_DIM_MAX + 1];
    char y_labels[9] = {0};
    size_t count     = 0;

    memcpy(y_labels, &trial->scalar[2].i, 8);
    for (uint32_t index = 1; index < 3; index++) {
        for (uint32_t d = 0; d < trial->array[index].arg.ndim; d++) {
            int label = (int)((trial->scalar[index - 1].i >> (8 * d)) & 255);

            if (length[label] == 0 && strchr(y_labels, label) == NULL) {
                summed[count++] = (char)label;
            }
            length[label] = trial->array[index].arg.dim[d];
        }
    }
    summed[count] = '\0';
    for (int64_t flat = 0; flat < trial_elements(trial, 0); flat++) {
        int64_t at[256] = {0};
        int64_t rest    = flat;

        for (uint32_t d = y->ndim; d-- > 0;) {
            at[(unsigned char)y_labels[d]] = rest % y->dim[d];
            rest /= y->dim[d];
        }
        expect_element(trial, flat, at, summed, length);
    }
}

/* --------------------------------------------------------------------------------- spmv */

/* Rows of very different lengths, some empty; more stored elements than the rows use. */
void case_build_spmv(struct trial *trial)
{
    uint32_t index = trial_int(trial, 0, 1) ? PL_I32 : PL_I64;
    int64_t m      = trial_int(trial, 1, trial->large ? 900 : 12);
    int64_t n      = trial_int(trial, 1, trial->large ? 900 : 12);
    int64_t most   = trial_int(trial, 0, 12);
    int64_t *start = calloc((size_t)m + 1, sizeof(*start));
    int64_t nnz;

    ASSERT_NOT_NULL(start);
    for (int64_t i = 0; i < m; i++) {
        int64_t length = trial_int(trial, 0, 20) == 0 ? trial_int(trial, 0, 400) : most;

        start[i + 1] = start[i] + trial_int(trial, 0, length);
    }
    nnz = start[m] + trial_int(trial, 1, 5);
    trial_out(trial);
    (void)trial_array(trial, KERNEL_IN, index, 1, (int64_t[]){m + 1}, 0, 0);
    (void)trial_array(trial, KERNEL_IN, index, 1, &nnz, 0, (double)(n - 1));
    (void)trial_array(trial, KERNEL_IN, trial->dtype, 1, &nnz, -5, 5);
    (void)trial_array(trial, KERNEL_IN, trial->dtype, 1, &n, -5, 5);
    for (int64_t i = 0; i <= m; i++) {
        trial_set(trial, 1, i, (double)start[i]);
    }
    free(start);
    trial_prepare(trial);
}

void case_expect_spmv(struct trial *trial)
{
    for (int64_t row = 0; row < trial_elements(trial, 0); row++) {
        int64_t first           = trial_get_int(trial, 1, row);
        int64_t end             = trial_get_int(trial, 1, row + 1);
        long double complex sum = 0;
        double magnitude        = 0;

        for (int64_t j = first; j < end; j++) {
            double term =
                trial_get(trial, 3, j) * trial_get(trial, 4, trial_get_int(trial, 2, j));

            sum += (long double)trial_get(trial, 3, j) *
                   (long double)trial_get(trial, 4, trial_get_int(trial, 2, j));
            magnitude += fabs(term);
        }
        want_sum(trial, row, sum, magnitude, end - first, 1);
    }
}

/* ------------------------------------------------------------------------------ systems */

/*
 * A diagonal that outweighs its row keeps triangles well conditioned: the condition is at most 3,
 * so that errors of the solution are some n eps of its size, and of a factor some n eps of the
 * matrix.
 */
static void build_triangle(struct trial *trial, uint32_t index, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        for (int64_t j = 0; j < n; j++) {
            int64_t at = i * n + j;

            trial_set(trial, index, at,
                      i == j ? 1 + fabs(trial_get(trial, index, at))
                             : trial_get(trial, index, at) / (2 * (double)n));
        }
    }
}

void case_build_solve(struct trial *trial)
{
    int64_t n = trial_int(trial, 1, trial->large ? 90 : 12);
    int64_t k = trial_int(trial, 1, trial->large ? 30 : 5);

    trial_out(trial);
    (void)trial_array(trial, KERNEL_IN, trial->dtype, 2, (int64_t[]){n, n}, -1, 1);
    (void)trial_array(trial, KERNEL_IN, trial->dtype, 2, (int64_t[]){n, k}, -5, 5);
    build_triangle(trial, 1, n);
    if (strcmp(trial->function->name, "solve_triangular") == 0) {
        for (int i = 0; i < 3; i++) {
            trial_i64(trial, trial_int(trial, 0, 1));
        }
    }
    trial_prepare(trial);
}

/* Element (i, j) of the triangle that is read, transposed or not. */
static long double triangle_at(const struct trial *trial, bool lower, bool trans, bool unit,
                               int64_t i, int64_t j)
{
    int64_t n      = trial->array[1].arg.dim[0];
    int64_t row    = trans ? j : i;
    int64_t column = trans ? i : j;

    if (unit && row == column) {
        return 1;
    }
    if (row != column && (row > column) != lower) {
        return 0;
    }
    return (long double)trial_get(trial, 1, row * n + column);
}

/* One column by substitution. */
static void substitute(const struct trial *trial, bool lower, bool trans, bool unit,
                       long double *x)
{
    int64_t n     = trial->array[1].arg.dim[0];
    bool forwards = lower != trans;

    for (int64_t step = 0; step < n; step++) {
        int64_t i = forwards ? step : n - 1 - step;

        for (int64_t j = forwards ? 0 : i + 1; j < (forwards ? i : n); j++) {
            x[i] -= triangle_at(trial, lower, trans, unit, i, j) * x[j];
        }
        x[i] /= triangle_at(trial, lower, trans, unit, i, i);
    }
}

void case_expect_solve(struct trial *trial)
{
    bool twice     = strcmp(trial->function->name, "cholesky_solve") == 0;
    bool lower     = twice || trial->scalar[0].i != 0;
    bool trans     = !twice && trial->scalar[1].i != 0;
    bool unit      = !twice && trial->scalar[2].i != 0;
    int64_t n      = trial->array[2].arg.dim[0];
    int64_t k      = trial->array[2].arg.dim[1];
    long double *x = calloc((size_t)n, sizeof(*x));

    ASSERT_NOT_NULL(x);
    for (int64_t column = 0; column < k; column++) {
        double largest = 0;

        for (int64_t i = 0; i < n; i++) {
            x[i]    = (long double)trial_get(trial, 2, i * k + column);
            largest = fmax(largest, fabs((double)x[i]));
        }
        substitute(trial, lower, trans, unit, x);
        if (twice) {
            substitute(trial, lower, true, unit, x);
        }
        for (int64_t i = 0; i < n; i++) {
            trial_want(trial, 0, i * k + column, (double)x[i],
                       20 * ((double)n + 8) * trial_epsilon(trial->dtype) * largest);
        }
    }
    free(x);
}

/* a = l l' of a random triangle, rounded; above the diagonal is what must not be read. */
void case_build_cholesky(struct trial *trial)
{
    int64_t n     = trial_int(trial, 1, trial->large ? 110 : 12);
    double *lower = calloc((size_t)(n * n), sizeof(*lower));

    ASSERT_NOT_NULL(lower);
    trial_out(trial);
    (void)trial_array(trial, KERNEL_IN, trial->dtype, 2, (int64_t[]){n, n}, -1, 1);
    build_triangle(trial, 1, n);
    for (int64_t i = 0; i < n * n; i++) {
        lower[i] = i % n <= i / n ? trial_get(trial, 1, i) : 0;
    }
    for (int64_t i = 0; i < n; i++) {
        for (int64_t j = 0; j < n; j++) {
            double sum = 0;

            for (int64_t p = 0; p < n; p++) {
                sum += lower[i * n + p] * lower[j * n + p];
            }
            trial_set(trial, 1, i * n + j, j <= i ? sum : 1e6);
        }
    }
    free(lower);
    trial_prepare(trial);
}

void case_expect_cholesky(struct trial *trial)
{
    int64_t n      = trial->array[1].arg.dim[0];
    long double *l = calloc((size_t)(n * n), sizeof(*l));

    ASSERT_NOT_NULL(l);
    for (int64_t i = 0; i < n; i++) {
        for (int64_t j = 0; j <= i; j++) {
            long double sum = (long double)trial_get(trial, 1, i * n + j);

            for (int64_t p = 0; p < j; p++) {
                sum -= l[i * n + p] * l[j * n + p];
            }
            l[i * n + j] = i == j ? sqrtl(sum) : sum / l[j * n + j];
        }
    }
    for (int64_t i = 0; i < n * n; i++) {
        trial_want(trial, 0, i, (double)l[i],
                   i % n <= i / n ? 40 * ((double)n + 8) * trial_epsilon(trial->dtype) : 0);
    }
    free(l);
}
