/*
 * Cases of functions along an axis: norms, softmax, scans, sorting; and of where.
 */
#include "cases_int.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/harness/test.h"

/* ------------------------------------------------------------------------ norm, softmax */

/* Some numbers are so large and some so small that their squares are out of range. */
void case_build_norm(struct trial *trial)
{
    static const double orders[] = {1, 2, (double)INFINITY};
    bool wide                    = trial->dtype == PL_F64 || trial->dtype == PL_C128;
    uint32_t ndim                = (uint32_t)trial_int(trial, 1, 4);
    int64_t dim[PL_DIM_MAX];

    trial_out(trial);
    trial_dims(trial, ndim, dim);
    (void)trial_array(trial, KERNEL_IN, trial->dtype, ndim, dim, -9, 9);
    if (trial_int(trial, 0, 2) == 0) {
        double scale =
            trial_int(trial, 0, 1) ? (wide ? 1e300 : 30) : (wide ? 1e-300 : 1e-3);

        for (int64_t i = 0; i < trial_elements(trial, 1); i += trial_int(trial, 1, 3)) {
            trial_set(trial, 1, i, trial_get(trial, 1, i) * scale);
        }
    }
    trial_i64(trial, trial_int(trial, -1, (int64_t)ndim - 1));
    trial_i64(trial, trial_int(trial, 0, 1));
    trial_f64(trial, orders[trial_int(trial, 0, 2)]);
    trial_prepare(trial);
}

void case_expect_norm(struct trial *trial)
{
    double p = trial->scalar[2].f;

    for (int64_t i = 0; i < trial_elements(trial, 0); i++) {
        struct case_lane lane = case_lane_of(trial, i);
        long double sum       = 0;
        long double largest   = 0;

        for (int64_t j = 0; j < lane.length; j++) {
            long double complex z = trial_get_z(trial, 1, lane.first + j * lane.step);
            long double size      = cabsl(z);

            /* exponents of 15 bits: nothing overflows */
            sum += p == 1 ? size : size * size;
            largest = size > largest ? size : largest;
        }
        sum = p == 1 ? sum : p == 2 ? sqrtl(sum) : largest;
        trial_want(trial, 0, i, (double)sum,
                   (double)sum * (((double)lane.length + 8) * 0x1p-53 +
                                  2 * trial_epsilon(trial->dtype)) +
                       trial_tiny(trial->dtype));
    }
}

void case_build_softmax(struct trial *trial)
{
    uint32_t ndim = (uint32_t)trial_int(trial, 1, 4);
    int64_t dim[PL_DIM_MAX];

    trial_out(trial);
    trial_dims(trial, ndim, dim);
    /* Far beyond what exp can take. */
    (void)trial_array(trial, KERNEL_IN, trial->dtype, ndim, dim, 2000, 2030);
    trial_i64(trial, trial_int(trial, -1, (int64_t)ndim - 1));
    trial_prepare(trial);
}

/* The lane along the axis that element `flat` of argument 1 is in. */
static struct case_lane own_lane(const struct trial *trial, int64_t axis, int64_t flat)
{
    const struct kernel_arg *x = &trial->array[1].arg;
    int64_t step               = 1;

    if (axis == -1) {
        return (struct case_lane){0, 1, trial_elements(trial, 1)};
    }
    for (uint32_t d = (uint32_t)axis + 1; d < x->ndim; d++) {
        step *= x->dim[d];
    }
    return (struct case_lane){flat / (step * x->dim[axis]) * step * x->dim[axis] +
                                  flat % step,
                              step, x->dim[axis]};
}

/*
 * f32 and narrower are summed up in f32 where a device likes: n + 16 eps of f32, and the rounding
 * to the dtype.
 */
static void expect_softmax_lane(struct trial *trial, struct case_lane lane)
{
    bool logarithm  = strcmp(trial->function->name, "log_softmax") == 0;
    double eps      = trial_epsilon(trial->dtype);
    double working  = fmin(eps, 0x1p-24);
    double largest  = -(double)INFINITY;
    long double sum = 0;

    for (int64_t j = 0; j < lane.length; j++) {
        largest = fmax(largest, trial_get(trial, 1, lane.first + j * lane.step));
    }
    for (int64_t j = 0; j < lane.length; j++) {
        sum += expl((long double)trial_get(trial, 1, lane.first + j * lane.step) -
                    (long double)largest);
    }
    for (int64_t j = 0; j < lane.length; j++) {
        int64_t at      = lane.first + j * lane.step;
        long double low = (long double)(trial_get(trial, 1, at) - largest);
        double want     = (double)(logarithm ? low - logl(sum) : expl(low) / sum);

        trial_want(trial, 0, at, want,
                   ((double)lane.length + 16) * working * (logarithm ? 1 : fabs(want)) +
                       (2 * eps + 40 * working) * fabs(want) + trial_tiny(trial->dtype));
    }
}

void case_expect_softmax(struct trial *trial)
{
    for (int64_t i = 0; i < trial_elements(trial, 0); i++) {
        struct case_lane lane = own_lane(trial, trial->scalar[0].i, i);

        if (i == lane.first) {
            expect_softmax_lane(trial, lane);
        }
    }
}

/* -------------------------------------------------------------------------------- scans */

void case_build_scan(struct trial *trial)
{
    bool product  = strcmp(trial->function->name, "cumprod") == 0;
    bool integer  = trial->dtype == PL_I32 || trial->dtype == PL_I64;
    uint32_t ndim = (uint32_t)trial_int(trial, 1, 4);
    double high   = !product || integer ? 9 : trial_is_complex(trial->dtype) ? 0.7 : 1.1;
    double low    = !product || integer ? -9 : trial_is_complex(trial->dtype) ? -0.7 : 0.9;
    int64_t dim[PL_DIM_MAX];

    trial_out(trial);
    trial_dims(trial, ndim, dim);
    (void)trial_array(trial, KERNEL_IN, trial->dtype, ndim, dim, low, high);
    trial_i64(trial, trial_int(trial, 0, (int64_t)ndim - 1));
    trial_i64(trial, trial_int(trial, 0, 1));
    trial_prepare(trial);
}

void case_expect_scan(struct trial *trial)
{
    bool product   = strcmp(trial->function->name, "cumprod") == 0;
    bool exclusive = trial->scalar[1].i != 0;
    double eps     = trial_epsilon(trial->dtype);

    for (int64_t first = 0; first < trial_elements(trial, 1); first++) {
        struct case_lane lane     = own_lane(trial, trial->scalar[0].i, first);
        long double complex total = product;
        double magnitude          = 0;
        uint64_t wrapped          = product;

        if (first != lane.first) {
            continue;
        }
        for (int64_t j = 0; j < lane.length; j++) {
            int64_t at                 = lane.first + j * lane.step;
            double complex z           = trial_get_z(trial, 1, at);
            uint64_t v                 = (uint64_t)trial_get_int(trial, 1, at);
            long double complex before = total;
            uint64_t wrapped_before    = wrapped;
            double complex want;

            total =
                product ? total * (long double complex)z : total + (long double complex)z;
            wrapped = product ? wrapped * v : wrapped + v;
            magnitude += cabs(z);
            want = (double complex)(exclusive ? before : total);
            trial_want_z(trial, 0, at, want,
                         ((double)j + 8) * 8 * 0x1p-53 *
                                 (product ? cabs(want) : magnitude) +
                             2 * eps * cabs(want) + trial_tiny(trial->dtype) + 1e-300);
            trial_want_int(
                trial, 0, at,
                case_wrapped(trial->dtype, exclusive ? wrapped_before : wrapped));
        }
    }
}

/* ------------------------------------------------------------------------------ sorting */

static void build_sorted(struct trial *trial, bool in_place)
{
    uint32_t ndim = (uint32_t)trial_int(trial, 1, 3);
    int64_t range = trial_int(trial, 0, 1) ? 4 : 60000; /* many equals, or few */
    uint32_t x    = in_place ? 0 : 1;
    int64_t dim[PL_DIM_MAX];

    if (!in_place) {
        trial_out(trial);
    }
    trial_dims(trial, ndim, dim);
    (void)trial_array(trial, in_place ? KERNEL_INOUT : KERNEL_IN, trial->dtype, ndim, dim,
                      (double)-range, (double)range);
    if (in_place) {
        (void)trial_array(trial, KERNEL_SCRATCH, trial->dtype, ndim, dim, 0, 0);
    }
    for (int64_t i = 0; trial_is_float(trial->dtype) && i < trial_elements(trial, x); i++) {
        int64_t roll = trial_int(trial, 0, 19);

        if (range == 4) {
            trial_set(trial, x, i, floor(trial_get(trial, x, i)));
        }
        if (roll < 4) {
            trial_set(trial, x, i,
                      roll == 0   ? (double)NAN
                      : roll == 1 ? -0.0
                      : roll == 2 ? (double)INFINITY
                                  : -(double)INFINITY);
        }
    }
    trial_prepare(trial);
}

void case_build_sort(struct trial *trial)
{
    build_sorted(trial, false);
}

void case_build_sort_into(struct trial *trial)
{
    build_sorted(trial, true);
}

struct sorted {
    double value;
    int64_t integer;
    int64_t at;
};

static int sorted_compare(const void *a, const void *b)
{
    const struct sorted *x = a;
    const struct sorted *y = b;

    if (isnan(x->value) != isnan(y->value)) {
        return isnan(x->value) ? 1 : -1;
    }
    if (x->value != y->value && !isnan(x->value)) {
        return x->value < y->value ? -1 : 1;
    }
    if (x->integer != y->integer) {
        return x->integer < y->integer ? -1 : 1;
    }
    return x->at < y->at ? -1 : 1; /* stable */
}

void case_expect_sort(struct trial *trial)
{
    uint32_t input             = trial->array[0].arg.mode == KERNEL_INOUT ? 0 : 1;
    const struct kernel_arg *x = &trial->array[input].arg;
    int64_t n                  = x->dim[x->ndim - 1];
    struct sorted *row         = calloc((size_t)n, sizeof(*row));

    ASSERT_NOT_NULL(row);
    for (int64_t first = 0; first < trial_elements(trial, input); first += n) {
        for (int64_t i = 0; i < n; i++) {
            row[i] = (struct sorted){
                trial_is_float(trial->dtype) ? trial_get(trial, input, first + i) : 0,
                trial_get_int(trial, input, first + i), i};
        }
        qsort(row, (size_t)n, sizeof(*row), sorted_compare);
        for (int64_t i = 0; i < n; i++) {
            if (strcmp(trial->function->name, "argsort") == 0) {
                trial_want_int(trial, 0, first + i, row[i].at);
            } else {
                trial_want_same(trial, 0, first + i, input, first + row[i].at);
            }
        }
    }
    free(row);
}

/* -------------------------------------------------------------------------------- where */

void case_build_where(struct trial *trial)
{
    int64_t dim[PL_DIM_MAX];
    uint32_t ndim = (uint32_t)trial_int(trial, 0, 4);

    trial_out(trial);
    trial_dims(trial, ndim, dim);
    for (uint32_t i = 0; i < 3; i++) {
        uint32_t skip =
            trial_int(trial, 0, 3) == 0 ? (uint32_t)trial_int(trial, 0, ndim) : 0;
        int64_t part[PL_DIM_MAX];

        for (uint32_t d = skip; d < ndim; d++) {
            part[d - skip] = trial_int(trial, 0, 4) == 0 ? 1 : dim[d];
        }
        (void)trial_array(trial, KERNEL_IN, i == 0 ? PL_BOOL : trial->dtype, ndim - skip,
                          part, 0, i == 0 || trial->dtype == PL_BOOL ? 1 : 100);
    }
    trial_prepare(trial);
}

void case_expect_where(struct trial *trial)
{
    for (int64_t i = 0; i < trial_elements(trial, 0); i++) {
        uint32_t from =
            trial_get_int(trial, 1, trial_broadcast(trial, 1, 0, i)) != 0 ? 2 : 3;

        trial_want_same(trial, 0, i, from, trial_broadcast(trial, from, 0, i));
    }
}
