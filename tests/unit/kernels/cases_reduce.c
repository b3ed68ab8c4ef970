/*
 * Cases of reductions, checksums, products and distances.
 */
#include "cases_int.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/harness/test.h"

/* --------------------------------------------------------------------------- reductions */

void case_build_reduce(struct trial *trial)
{
    uint32_t ndim = (uint32_t)trial_int(trial, 0, 4);
    int64_t axis  = trial_int(trial, -1, (int64_t)ndim - 1);
    int64_t dim[PL_DIM_MAX];

    trial_out(trial);
    trial_dims(trial, ndim, dim);
    (void)trial_array(trial, KERNEL_IN, trial->dtype, ndim, dim, -9, 9);
    trial_i64(trial, axis);
    trial_i64(trial, trial_int(trial, 0, 1));
    trial_prepare(trial);
}

struct case_lane case_lane_of(const struct trial *trial, int64_t flat)
{
    const struct kernel_arg *x = &trial->array[1].arg;
    int64_t axis               = trial->scalar[0].i;
    int64_t step               = 1;

    if (axis == -1) {
        return (struct case_lane){0, 1, trial_elements(trial, 1)};
    }
    for (uint32_t d = (uint32_t)axis + 1; d < x->ndim; d++) {
        step *= x->dim[d];
    }
    return (struct case_lane){flat / step * step * x->dim[axis] + flat % step, step,
                              x->dim[axis]};
}

void case_expect_sum(struct trial *trial)
{
    bool mean    = strcmp(trial->function->name, "mean") == 0;
    uint32_t out = trial->array[0].arg.dtype;

    for (int64_t i = 0; i < trial_elements(trial, 0); i++) {
        struct case_lane lane   = case_lane_of(trial, i);
        long double complex sum = 0;
        double magnitude        = 0;
        int64_t total           = 0;
        double n                = mean ? (double)lane.length : 1;

        for (int64_t j = 0; j < lane.length; j++) {
            double complex z = trial_get_z(trial, 1, lane.first + j * lane.step);

            sum += (long double complex)z;
            magnitude += cabs(z);
            total += trial_get_int(trial, 1, lane.first + j * lane.step);
        }
        if (!trial_is_float(trial->dtype) && !trial_is_complex(trial->dtype)) {
            sum = (long double)total;
        }
        /* Sums are taken in double whatever the dtype, and rounded once. */
        trial_want_z(trial, 0, i, (double complex)(sum / (long double)n),
                     (((double)lane.length + 8) * 0x1p-53 * magnitude +
                      2 * trial_epsilon(out) * cabs((double complex)sum)) /
                             n +
                         trial_tiny(out));
        trial_want_int(trial, 0, i, case_wrapped(out, (uint64_t)total));
    }
}

/* Factors around 1, so that products stay in range; those of complex numbers shrink. */
void case_build_prod(struct trial *trial)
{
    uint32_t ndim = (uint32_t)trial_int(trial, 0, 4);
    int64_t axis  = trial_int(trial, -1, (int64_t)ndim - 1);
    double low    = trial_is_float(trial->dtype) ? 0.9 : -0.7;
    double high   = trial_is_float(trial->dtype) ? 1.1 : 0.7;
    int64_t dim[PL_DIM_MAX];

    if (trial->dtype == PL_I32 || trial->dtype == PL_I64) {
        low  = -9;
        high = 9;
    }
    trial_out(trial);
    trial_dims(trial, ndim, dim);
    (void)trial_array(trial, KERNEL_IN, trial->dtype, ndim, dim, low, high);
    trial_i64(trial, axis);
    trial_i64(trial, trial_int(trial, 0, 1));
    trial_prepare(trial);
}

void case_expect_prod(struct trial *trial)
{
    for (int64_t i = 0; i < trial_elements(trial, 0); i++) {
        struct case_lane lane       = case_lane_of(trial, i);
        long double complex product = 1;
        uint64_t total              = 1;

        for (int64_t j = 0; j < lane.length; j++) {
            product *=
                (long double complex)trial_get_z(trial, 1, lane.first + j * lane.step);
            total *= (uint64_t)trial_get_int(trial, 1, lane.first + j * lane.step);
        }
        trial_want_z(
            trial, 0, i, (double complex)product,
            (((double)lane.length + 8) * 8 * 0x1p-53 + 2 * trial_epsilon(trial->dtype)) *
                    cabs((double complex)product) +
                trial_tiny(trial->dtype) + 1e-300);
        trial_want_int(trial, 0, i, case_wrapped(trial->dtype, total));
    }
}

void case_expect_extreme(struct trial *trial)
{
    const char *name = trial->function->name;
    bool smallest    = strcmp(name, "min") == 0 || strcmp(name, "argmin") == 0;
    bool index       = strncmp(name, "arg", 3) == 0;

    for (int64_t i = 0; i < trial_elements(trial, 0); i++) {
        struct case_lane lane = case_lane_of(trial, i);
        double best           = 0;
        int64_t at            = -1;

        for (int64_t j = 0; j < lane.length; j++) {
            double value = trial_get(trial, 1, lane.first + j * lane.step);

            if (at < 0 || (smallest ? value < best : value > best)) {
                best = value;
                at   = j;
            }
        }
        trial_want(trial, 0, i, best, 0);
        trial_want_int(trial, 0, i, index ? at : (int64_t)best);
    }
}

/*
 * The definition, written again: a shared mistake in the constants would show in the known answers
 * of test_kernels.
 */
static uint64_t mixed(uint64_t z)
{
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

void case_build_checksum(struct trial *trial)
{
    case_build_input(trial, trial->dtype, 0, trial->dtype == PL_BOOL ? 1 : 100);
    trial_prepare(trial);
}

void case_expect_checksum(struct trial *trial)
{
    const struct trial_array *x = &trial->array[1];
    uint32_t bytes              = pl_dtype_bytes(x->arg.dtype);
    uint64_t sum                = 0;

    for (int64_t i = 0; i < trial_elements(trial, 1); i++) {
        uint64_t bits[2] = {0, 0};

        memcpy(bits, trial_at(x, x->before, i), bytes);
        sum += mixed(mixed(mixed((uint64_t)i + 0x9E3779B97F4A7C15u) ^ bits[0]) + bits[1]);
    }
    trial_want_int(trial, 0, 0, (int64_t)sum);
}

/* ----------------------------------------------------------------------------- products */

void case_build_dot(struct trial *trial)
{
    int64_t dim[PL_DIM_MAX];

    trial_out(trial);
    trial_dims(trial, 1, dim);
    (void)trial_array(trial, KERNEL_IN, trial->dtype, 1, dim, -5, 5);
    (void)trial_array(trial, KERNEL_IN, trial->dtype, 1, dim, -5, 5);
    trial_prepare(trial);
}

void case_expect_dot(struct trial *trial)
{
    int64_t n               = trial_elements(trial, 1);
    long double complex sum = 0;
    double magnitude        = 0;
    uint64_t total          = 0;

    for (int64_t i = 0; i < n; i++) {
        double complex term = trial_get_z(trial, 1, i) * trial_get_z(trial, 2, i);

        sum += (long double complex)trial_get_z(trial, 1, i) *
               (long double complex)trial_get_z(trial, 2, i);
        magnitude += cabs(term);
        total += (uint64_t)(trial_get_int(trial, 1, i) * trial_get_int(trial, 2, i));
    }
    trial_want_z(trial, 0, 0, (double complex)sum,
                 (4 * (double)n + 8) * 0x1p-53 * magnitude +
                     2 * trial_epsilon(trial->dtype) * cabs((double complex)sum));
    trial_want_int(trial, 0, 0, case_wrapped(trial->dtype, total));
}

void case_build_gemv(struct trial *trial)
{
    int64_t dim[PL_DIM_MAX];

    trial_out(trial);
    trial_dims(trial, 2, dim);
    (void)trial_array(trial, KERNEL_IN, trial->dtype, 2, dim, -5, 5);
    (void)trial_array(trial, KERNEL_IN, trial->dtype, 1, &dim[1], -5, 5);
    trial_prepare(trial);
}

/* Two factors that may be transposed, of sizes around the tiles of the kernels. */
void case_build_gemm(struct trial *trial)
{
    bool into    = strcmp(trial->function->name, "gemm_into") == 0;
    int64_t most = trial->large ? 90 : 20;
    int64_t m    = trial_int(trial, 1, most);
    int64_t n    = trial_int(trial, 1, most);
    int64_t k    = trial_int(trial, 1, most);
    bool ta      = trial_int(trial, 0, 1);
    bool tb      = trial_int(trial, 0, 1);
    bool reduce  = into && trial_int(trial, 0, 1);

    if (into) {
        (void)trial_array(trial, reduce ? KERNEL_REDUCE : KERNEL_INOUT, trial->dtype, 2,
                          (int64_t[]){m, n}, -5, 5);
    } else {
        trial_out(trial);
    }
    (void)trial_array(trial, KERNEL_IN, trial->dtype, 2,
                      ta ? (int64_t[]){k, m} : (int64_t[]){m, k}, -5, 5);
    (void)trial_array(trial, KERNEL_IN, trial->dtype, 2,
                      tb ? (int64_t[]){n, k} : (int64_t[]){k, n}, -5, 5);
    trial_f64(trial, (double)trial_int(trial, -4, 4));
    if (into) {
        trial_f64(trial, reduce ? 1 : (double)trial_int(trial, -2, 2));
    }
    trial_i64(trial, ta);
    trial_i64(trial, tb);
    trial_prepare(trial);
}

/* Element (row, column) of factor `index`, which is stored the other way round when `transposed`. */
static int64_t factor_at(const struct trial *trial, uint32_t index, int64_t row,
                         int64_t column, bool transposed)
{
    const struct kernel_arg *arg = &trial->array[index].arg;
    int64_t width                = arg->ndim == 2 ? arg->dim[1] : 1;

    return transposed ? column * width + row : row * width + column;
}

void case_expect_product(struct trial *trial)
{
    const struct kernel_arg *c = &trial->array[0].arg;
    bool vector                = c->ndim == 1;
    bool into                  = strcmp(trial->function->name, "gemm_into") == 0;
    bool ta                    = !vector && trial->scalar[into ? 2 : 1].i != 0;
    bool tb                    = !vector && trial->scalar[into ? 3 : 2].i != 0;
    double alpha               = vector ? 1 : trial->scalar[0].f;
    double beta                = into ? trial->scalar[1].f : 0;
    int64_t n                  = vector ? 1 : c->dim[1];
    int64_t k                  = trial->array[1].arg.dim[ta ? 0 : 1];
    double accumulated = fmin(trial_epsilon(trial->dtype), 0x1p-24); /* 16 bits: in f32 */

    for (int64_t i = 0; i < trial_elements(trial, 0); i++) {
        long double complex sum = 0;
        double magnitude        = 0;
        uint64_t total          = 0;
        double complex old      = into ? beta * trial_get_z(trial, 0, i) : 0;
        double complex want;

        for (int64_t p = 0; p < k; p++) {
            int64_t a = factor_at(trial, 1, i / n, p, ta);
            int64_t b = factor_at(trial, 2, p, i % n, tb);

            sum += (long double complex)trial_get_z(trial, 1, a) *
                   (long double complex)trial_get_z(trial, 2, b);
            magnitude += cabs(trial_get_z(trial, 1, a) * trial_get_z(trial, 2, b));
            total += (uint64_t)(trial_get_int(trial, 1, a) * trial_get_int(trial, 2, b));
        }
        want = alpha * (double complex)sum + old;
        trial_want_z(trial, 0, i, want,
                     (2 * (double)k + 8) * accumulated *
                             (fabs(alpha) * magnitude + cabs(old)) +
                         trial_epsilon(trial->dtype) * cabs(want));
        total = (uint64_t)(int64_t)alpha * total;
        if (into) {
            total += (uint64_t)((int64_t)beta * trial_get_int(trial, 0, i));
        }
        trial_want_int(trial, 0, i, case_wrapped(trial->dtype, total));
    }
}

void case_build_pairwise(struct trial *trial)
{
    int64_t most = trial->large ? 90 : 20;
    int64_t m    = trial_int(trial, 1, most);
    int64_t n    = trial_int(trial, 1, most);
    int64_t k    = trial_int(trial, 1, most);

    trial_out(trial);
    (void)trial_array(trial, KERNEL_IN, trial->dtype, 2, (int64_t[]){m, k}, -9, 9);
    (void)trial_array(trial, KERNEL_IN, trial->dtype, 2, (int64_t[]){n, k}, -9, 9);
    trial_prepare(trial);
}

void case_expect_pairwise(struct trial *trial)
{
    int64_t n = trial->array[0].arg.dim[1];
    int64_t k = trial->array[1].arg.dim[1];

    for (int64_t i = 0; i < trial_elements(trial, 0); i++) {
        double sum       = 0;
        double magnitude = 0;
        int64_t total    = 0;

        for (int64_t p = 0; p < k; p++) {
            double a = trial_get(trial, 1, i / n * k + p);
            double b = trial_get(trial, 2, i % n * k + p);

            sum += (a - b) * (a - b);
            magnitude += 2 * (a * a + b * b);
            total += (int64_t)(a - b) * (int64_t)(a - b);
        }
        trial_want(trial, 0, i, sum,
                   ((double)k + 8) * trial_epsilon(trial->dtype) * magnitude);
        trial_want_int(trial, 0, i, total);
    }
}
