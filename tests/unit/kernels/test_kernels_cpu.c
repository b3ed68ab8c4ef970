/*
 * The CPU variants against naive references, and what must hold to the bit.
 */
#include "cases.h"
#include "kernels/cpu.h"
#include "kernels/element.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/harness/test.h"

TEST(every_function_of_the_catalogue_has_a_case)
{
    for (uint32_t i = 0; i < kernel_count(); i++) {
        bool found = false;

        for (uint32_t j = 0; j < kernel_case_count(); j++) {
            found = found || strcmp(kernel_at(i)->name, kernel_case_at(j)->name) == 0;
        }
        if (!found) {
            test_fail(__FILE__, __LINE__, "%s has no case in cases.c", kernel_at(i)->name);
        }
    }
    ASSERT_EQ(kernel_case_count(), kernel_count());
}

TEST(every_function_has_a_cpu_variant)
{
    for (uint32_t i = 0; i < kernel_count(); i++) {
        bool nothing = i == KERNEL_ID_noop || i == KERNEL_ID_touch;

        if ((kernel_cpu_table[i].run == NULL) != nothing) {
            test_fail(__FILE__, __LINE__, "%s has no row in cpu_table.c",
                      kernel_at(i)->name);
        }
    }
}

static void run_and_verify(const struct kernel_case *kase, struct trial *trial, void *user)
{
    struct pl_err err = {0};

    (void)user;
    if ((kase->flags & CASE_FAILS) != 0) {
        ASSERT_STATUS(trial_run_cpu(trial, &err), PLASMON_EFUNCTION);
        ASSERT_CONTAINS(err.text, kase->name);
        return;
    }
    if (trial_run_cpu(trial, &err) != PLASMON_OK) {
        test_fail(__FILE__, __LINE__, "%s", err.text);
    }
    trial_verify(trial, "the cpu");
}

TEST(results_agree_with_references_on_random_views)
{
    test_set_timeout(120);
    kernel_cases_each(20, test_seed(), run_and_verify, NULL);
}

static void run_twice(const struct kernel_case *kase, struct trial *trial, void *user)
{
    struct pl_err err = {0};

    (void)user;
    if ((kase->flags & CASE_FAILS) != 0) {
        return;
    }
    ASSERT_OK(trial_run_cpu(trial, &err));
    for (uint32_t i = 0; i < trial->count; i++) {
        struct trial_array *array = &trial->array[i];
        char *first               = array->root;

        if (!array->is_output) {
            continue;
        }
        array->root     = malloc(array->root_bytes);
        array->arg.data = device_ptr_add(array->arg.data, (uint64_t)(uintptr_t)array->root -
                                                              (uint64_t)(uintptr_t)first);
        ASSERT_NOT_NULL(array->root);
        memcpy(array->root, array->before, array->root_bytes);
        free(array->before);
        array->before = first; /* now: the first result */
    }
    ASSERT_OK(trial_run_cpu(trial, &err));
    for (uint32_t i = 0; i < trial->count; i++) {
        const struct trial_array *array = &trial->array[i];

        if (memcmp(array->root, array->before, array->root_bytes) != 0) {
            test_fail(__FILE__, __LINE__, "%s gave other bits the second time", kase->name);
        }
    }
}

TEST(the_same_call_gives_the_same_bits)
{
    test_set_timeout(60);
    kernel_cases_each(4, test_seed() + 77, run_twice, NULL);
}

/* ----------------------------------------------------------------------- random numbers */

TEST(philox_gives_the_published_answers)
{
    /* kat_vectors of Random123, philox4x32 10. */
    static const uint32_t known[3][10] = {
        {0, 0, 0, 0, 0, 0, 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8},
        {0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0x408f276d,
         0x41c83b0e, 0xa20bc7c6, 0x6d5451fd},
        {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344, 0xa4093822, 0x299f31d0, 0xd16cfe09,
         0x94fdcceb, 0x5001e420, 0x24126ea1},
    };

    for (int i = 0; i < 3; i++) {
        const uint32_t *k          = known[i];
        struct kernel_words result = kernel_philox4(k[0], k[1], k[2], k[3], k[4], k[5]);

        ASSERT_EQ(memcmp(result.word, k + 6, sizeof(result.word)), 0);
    }
}

static struct kernel_arg array_2d(void *data, uint32_t dtype, int64_t rows, int64_t columns,
                                  int64_t row_stride)
{
    return (struct kernel_arg){.mode   = KERNEL_OUT,
                               .dtype  = dtype,
                               .ndim   = 2,
                               .dim    = {rows, columns},
                               .stride = {row_stride, 1},
                               .data   = {(uint64_t)(uintptr_t)data}};
}

TEST(tiles_of_random_arrays_have_the_numbers_of_the_whole)
{
    static const char *const names[]     = {"random_uniform", "random_normal"};
    const union kernel_scalar scalars[5] = {
        {.i = 7}, {.i = 1000}, {.i = 0}, {.f = -1}, {.f = 3}};

    for (int which = 0; which < 2; which++) {
        const struct kernel_function *function = kernel_by_name(names[which]);
        double whole[12][17];
        double tiled[12][17];
        struct kernel_arg all = array_2d(whole, PL_F64, 12, 17, 17);

        ASSERT_OK(kernel_run_cpu_now(function, &all, 1, scalars, 5, NULL));
        for (int64_t row = 0; row < 12; row += 5) {
            for (int64_t column = 0; column < 17; column += 6) {
                int64_t rows              = row + 5 > 12 ? 12 - row : 5;
                int64_t columns           = column + 6 > 17 ? 17 - column : 6;
                union kernel_scalar at[5] = {scalars[0],
                                             {.i = 1000 + row * 17 + column},
                                             {.i = 17},
                                             scalars[3],
                                             scalars[4]};
                struct kernel_arg tile =
                    array_2d(&tiled[row][column], PL_F64, rows, columns, 17);

                ASSERT_OK(kernel_run_cpu_now(function, &tile, 1, at, 5, NULL));
            }
        }
        ASSERT_EQ(memcmp(whole, tiled, sizeof(whole)), 0);
    }
}

TEST(random_numbers_have_the_right_moments)
{
    static double x[100][1000];
    const union kernel_scalar uniform[5] = {
        {.i = 1}, {.i = 0}, {.i = 0}, {.f = 2}, {.f = 4}};
    const union kernel_scalar normal[5] = {
        {.i = 1}, {.i = 0}, {.i = 0}, {.f = 5}, {.f = 3}};
    struct kernel_arg arg = array_2d(x, PL_F64, 100, 1000, 1000);
    const double n        = 100000;

    for (int which = 0; which < 2; which++) {
        double mean   = 0;
        double square = 0;

        ASSERT_OK(kernel_run_cpu_now(
            kernel_by_name(which == 0 ? "random_uniform" : "random_normal"), &arg, 1,
            which == 0 ? uniform : normal, 5, NULL));
        for (int i = 0; i < 100000; i++) {
            double value = (&x[0][0])[i];

            ASSERT_TRUE(which == 1 || (value >= 2 && value < 4));
            mean += value / n;
            square += value * value / n;
        }
        /* Five standard errors; the seed is fixed, so this either always passes or never. */
        ASSERT_TRUE(fabs(mean - (which == 0 ? 3 : 5)) <
                    5 * (which == 0 ? 0.5774 : 3) / sqrt(n));
        ASSERT_TRUE(fabs(square - mean * mean - (which == 0 ? 1.0 / 3 : 9)) <
                    5 * (which == 0 ? 0.3 : 12.8) / sqrt(n));
    }
}

/* -------------------------------------------------------------------------------- edges */

static struct kernel_arg array_1d(const void *data, uint32_t mode, uint32_t dtype,
                                  int64_t n)
{
    return (struct kernel_arg){.mode   = mode,
                               .dtype  = dtype,
                               .ndim   = 1,
                               .dim    = {n},
                               .stride = {1},
                               .data   = {(uint64_t)(uintptr_t)data}};
}

/* y = name(x...) on vectors of one dtype. */
static void run_1d(const char *name, void *y, uint32_t y_dtype, int64_t n, uint32_t dtype,
                   const void *a, const void *b)
{
    struct kernel_arg args[3] = {array_1d(y, KERNEL_OUT, y_dtype, n),
                                 array_1d(a, KERNEL_IN, dtype, n),
                                 array_1d(b, KERNEL_IN, dtype, n)};

    ASSERT_OK(
        kernel_run_cpu_now(kernel_by_name(name), args, b == NULL ? 2 : 3, NULL, 0, NULL));
}

TEST(integers_wrap_and_division_is_total)
{
    const int32_t a[6] = {INT32_MIN, INT32_MIN, 7, -7, INT32_MAX, 5};
    const int32_t b[6] = {-1, 0, 2, 2, 1, 0};
    const int64_t c[2] = {INT64_MIN, INT64_MAX};
    const int64_t d[2] = {-1, 1};
    int32_t y[6];
    int64_t z[2];

    run_1d("divide", y, PL_I32, 6, PL_I32, a, b);
    ASSERT_EQ(memcmp(y, (int32_t[]){INT32_MIN, 0, 3, -3, INT32_MAX, 0}, sizeof(y)), 0);
    run_1d("add", y, PL_I32, 6, PL_I32, a, b);
    ASSERT_EQ(y[0], INT32_MAX);
    ASSERT_EQ(y[4], INT32_MIN);
    run_1d("abs", y, PL_I32, 6, PL_I32, a, NULL);
    ASSERT_EQ(y[0], INT32_MIN);
    run_1d("divide", z, PL_I64, 2, PL_I64, c, d);
    ASSERT_EQ(z[0], INT64_MIN);
    run_1d("add", z, PL_I64, 2, PL_I64, c, d);
    ASSERT_EQ(z[0], INT64_MAX);
    ASSERT_EQ(z[1], INT64_MIN);
}

TEST(nan_wins_whichever_side_it_is_on)
{
    const double nan  = (double)NAN;
    const double a[4] = {nan, 1, 2, nan};
    const double b[4] = {1, nan, 3, nan};
    double y[4];

    run_1d("minimum", y, PL_F64, 4, PL_F64, a, b);
    ASSERT_TRUE(isnan(y[0]) && isnan(y[1]) && y[2] == 2 && isnan(y[3]));
    run_1d("maximum", y, PL_F64, 4, PL_F64, a, b);
    ASSERT_TRUE(isnan(y[0]) && isnan(y[1]) && y[2] == 3 && isnan(y[3]));
    run_1d("sign", y, PL_F64, 4, PL_F64, a, NULL);
    ASSERT_TRUE(isnan(y[0]) && y[1] == 1);
}

static double reduce_all(const char *name, const double *x, int64_t n)
{
    double y                            = 0;
    int64_t index                       = -1;
    bool is_index                       = strncmp(name, "arg", 3) == 0;
    const union kernel_scalar scalar[2] = {{.i = -1}, {.i = 0}};
    struct kernel_arg args[2]           = {
                  array_1d(is_index ? (void *)&index : &y, KERNEL_OUT, is_index ? PL_I64 : PL_F64, 1),
                  array_1d(x, KERNEL_IN, PL_F64, n)};

    args[0].ndim = 0;
    ASSERT_OK(kernel_run_cpu_now(kernel_by_name(name), args, 2, scalar, 2, NULL));
    return is_index ? (double)index : y;
}

TEST(reductions_see_nan_and_break_ties_low)
{
    const double nan      = (double)NAN;
    const double ties[20] = {5, 3, 9, 3, 9, 4, 5, 5, 5, 5, 5, 5, 5, 3, 9, 5, 5, 5, 5, 5};
    const double nans[20] = {5, 3, 9, nan, 1, nan, 5, 5, 5, 5,
                             5, 5, 5, 3,   9, 5,   5, 5, 5, 5};

    ASSERT_EQ(reduce_all("argmin", ties, 20), 1);
    ASSERT_EQ(reduce_all("argmax", ties, 20), 2);
    ASSERT_EQ(reduce_all("argmin", nans, 20), 3);
    ASSERT_EQ(reduce_all("argmax", nans, 20), 3);
    ASSERT_TRUE(isnan(reduce_all("min", nans, 20)));
    ASSERT_TRUE(isnan(reduce_all("max", nans, 20)));
    ASSERT_TRUE(isnan(reduce_all("sum", nans, 20)));
    ASSERT_TRUE(reduce_all("min", ties, 20) == 3 && reduce_all("max", ties, 20) == 9);
}

static void cast_1d(void *y, uint32_t to, const void *x, uint32_t from, int64_t n)
{
    struct kernel_arg args[2] = {array_1d(y, KERNEL_OUT, to, n),
                                 array_1d(x, KERNEL_IN, from, n)};

    ASSERT_OK(kernel_run_cpu_now(kernel_by_name("cast"), args, 2, NULL, 0, NULL));
}

TEST(casts_saturate_floats_and_wrap_integers)
{
    const double x[6]     = {(double)NAN, (double)INFINITY, -(double)INFINITY, 1e30, -2.9,
                             300.5};
    const int64_t wide[3] = {INT64_MIN, 0x123456789, -1};
    const uint64_t top[1] = {UINT64_MAX};
    int64_t i64[6];
    uint64_t u64[6];
    int8_t i8[6];
    uint8_t bits[6];
    int32_t i32[3];
    float f32[1];

    cast_1d(i64, PL_I64, x, PL_F64, 6);
    ASSERT_EQ(
        memcmp(i64, (int64_t[]){0, INT64_MAX, INT64_MIN, INT64_MAX, -2, 300}, sizeof(i64)),
        0);
    cast_1d(u64, PL_U64, x, PL_F64, 6);
    ASSERT_EQ(memcmp(u64, (uint64_t[]){0, UINT64_MAX, 0, UINT64_MAX, 0, 300}, sizeof(u64)),
              0);
    cast_1d(i8, PL_I8, x, PL_F64, 6);
    ASSERT_EQ(memcmp(i8, (int8_t[]){0, 127, -128, 127, -2, 127}, sizeof(i8)), 0);
    cast_1d(bits, PL_BOOL, x, PL_F64, 6);
    ASSERT_EQ(memcmp(bits, (uint8_t[]){1, 1, 1, 1, 1, 1}, sizeof(bits)), 0);
    cast_1d(i32, PL_I32, wide, PL_I64, 3);
    ASSERT_EQ(memcmp(i32, (int32_t[]){0, 0x23456789, -1}, sizeof(i32)), 0);
    cast_1d(f32, PL_F32, top, PL_U64, 1);
    ASSERT_TRUE(f32[0] == 18446744073709551616.0f);
}

TEST(identities_leave_every_value_as_it_is)
{
    static const uint32_t dtypes[] = {PL_F32, PL_F64, PL_I32, PL_I64};
    union kernel_value value;

    ASSERT_TRUE(!kernel_identity(PL_U8, KERNEL_SUM, &value));
    ASSERT_TRUE(!kernel_identity(PL_F32, 0, &value));
    for (size_t d = 0; d < PL_COUNT(dtypes); d++) {
        for (uint32_t op = KERNEL_SUM; op <= KERNEL_MAX; op++) {
            union kernel_value x    = kernel_value_of_i64(dtypes[d], -12345);
            struct kernel_arg arg[] = {array_1d(&value, KERNEL_REDUCE, dtypes[d], 1),
                                       array_1d(&x, KERNEL_IN, dtypes[d], 1)};

            arg[0].reduce_op = op;
            ASSERT_TRUE(kernel_identity(dtypes[d], op, &value));
            ASSERT_OK(
                kernel_run_cpu_now(kernel_by_name("accumulate"), arg, 2, NULL, 0, NULL));
            ASSERT_EQ(memcmp(&value, &x, pl_dtype_bytes(dtypes[d])), 0);
        }
    }
}

TEST(a_sum_that_is_reduced_by_another_operation_is_refused)
{
    float y                 = 0;
    float x                 = 1;
    struct kernel_arg arg[] = {array_1d(&y, KERNEL_REDUCE, PL_F32, 1),
                               array_1d(&x, KERNEL_IN, PL_F32, 1)};
    struct pl_err err       = {0};

    arg[0].reduce_op = KERNEL_MAX;
    ASSERT_STATUS(kernel_run_cpu_now(kernel_by_name("add_into"), arg, 2, NULL, 0, &err),
                  PLASMON_EINVAL);
    ASSERT_CONTAINS(err.text,
                    "add_into: argument 0 is reduced by operation 4, needs 1 (sum)");
    arg[0].reduce_op = 9;
    ASSERT_STATUS(kernel_run_cpu_now(kernel_by_name("accumulate"), arg, 2, NULL, 0, &err),
                  PLASMON_EINVAL);
}

static plasmon_status_t run_spmv(const int32_t *rows, const int32_t *columns,
                                 struct pl_err *err)
{
    const double values[4]    = {1, 2, 3, 4};
    const double x[3]         = {1, 10, 100};
    double y[2]               = {0, 0};
    struct kernel_arg args[5] = {
        array_1d(y, KERNEL_OUT, PL_F64, 2), array_1d(rows, KERNEL_IN, PL_I32, 3),
        array_1d(columns, KERNEL_IN, PL_I32, 4), array_1d(values, KERNEL_IN, PL_F64, 4),
        array_1d(x, KERNEL_IN, PL_F64, 3)};

    return kernel_run_cpu_now(kernel_by_name("spmv"), args, 5, NULL, 0, err);
}

TEST(a_sparse_matrix_that_points_outside_is_refused_and_not_followed)
{
    static const int32_t fine[4]       = {0, 1, 2, 0};
    static const int32_t wrong[4]      = {0, 1, 3, 0};
    static const int32_t negative[4]   = {0, -1, 2, 0};
    static const int32_t bad_rows[][3] = {
        {0, 2, 5}, {-1, 2, 4}, {0, 3, 2}, {0, INT32_MAX, INT32_MAX}, {INT32_MIN, 0, 1}};
    struct pl_err err = {0};

    ASSERT_OK(run_spmv((int32_t[]){0, 2, 4}, fine, &err));
    for (size_t i = 0; i < PL_COUNT(bad_rows); i++) {
        ASSERT_STATUS(run_spmv(bad_rows[i], fine, &err), PLASMON_EINVAL);
        ASSERT_CONTAINS(err.text, "is no range of stored elements");
    }
    ASSERT_STATUS(run_spmv((int32_t[]){0, 2, 4}, wrong, &err), PLASMON_EINVAL);
    ASSERT_CONTAINS(err.text, "spmv: columns[2] is no index into x");
    ASSERT_STATUS(run_spmv((int32_t[]){0, 2, 4}, negative, &err), PLASMON_EINVAL);
    /* what no row has is not read */
    ASSERT_OK(run_spmv((int32_t[]){0, 2, 2}, wrong, &err));
}

TEST(a_matrix_that_has_no_factor_is_named_with_its_pivot)
{
    const double indefinite[9] = {4, 0, 0, 2, 1, 0, 0, 0, 1}; /* the second minor is 0 */
    const double unknown[9]    = {4, 0, 0, 2, 3, 0, 0, (double)NAN, 1};
    const double triangle[4]   = {1, 0, 5, 0};
    const double b[2]          = {1, 1};
    double y[9];
    struct kernel_arg args[3] = {array_2d(y, PL_F64, 3, 3, 3),
                                 array_2d((void *)(uintptr_t)indefinite, PL_F64, 3, 3, 3),
                                 array_2d((void *)(uintptr_t)b, PL_F64, 2, 1, 1)};
    union kernel_scalar s[3]  = {{.i = 1}, {.i = 0}, {.i = 0}};
    struct pl_err err         = {0};

    ASSERT_STATUS(kernel_run_cpu_now(kernel_by_name("cholesky"), args, 2, NULL, 0, &err),
                  PLASMON_ESINGULAR);
    ASSERT_CONTAINS(err.text,
                    "cholesky: a is not positive definite: its leading minor of order 2");
    args[1] = array_2d((void *)(uintptr_t)unknown, PL_F64, 3, 3, 3);
    ASSERT_STATUS(kernel_run_cpu_now(kernel_by_name("cholesky"), args, 2, NULL, 0, &err),
                  PLASMON_ESINGULAR); /* as on a GPU */
    ASSERT_CONTAINS(err.text, "its leading minor of order 3");
    args[0] = array_2d(y, PL_F64, 2, 1, 1);
    args[1] = array_2d((void *)(uintptr_t)triangle, PL_F64, 2, 2, 2);
    ASSERT_STATUS(
        kernel_run_cpu_now(kernel_by_name("solve_triangular"), args, 3, s, 3, &err),
        PLASMON_ESINGULAR);
    ASSERT_CONTAINS(err.text, "solve_triangular: a is singular: pivot 2 is 0");
}

TEST(a_matrix_without_an_inverse_is_named_with_its_pivot)
{
    const double a[9]         = {1, 2, 3, 2, 4, 6, 1, 1, 1}; /* rows 1 and 2 are parallel */
    double y[9]               = {0};
    struct kernel_arg args[2] = {array_2d(y, PL_F64, 3, 3, 3),
                                 array_2d((void *)(uintptr_t)a, PL_F64, 3, 3, 3)};
    struct kernel_arg value   = array_1d(y, KERNEL_OUT, PL_F64, 1);
    struct pl_err err         = {0};

    ASSERT_STATUS(kernel_run_cpu_now(kernel_by_name("inverse"), args, 2, NULL, 0, &err),
                  PLASMON_ESINGULAR);
    ASSERT_CONTAINS(err.text, "inverse: a is singular: pivot 2 is 0");
    value.ndim = 0;
    args[0]    = value;
    y[0]       = 1;
    ASSERT_OK(kernel_run_cpu_now(kernel_by_name("determinant"), args, 2, NULL, 0, &err));
    ASSERT_TRUE(y[0] == 0);
}

TEST(a_determinant_overflows_only_where_the_result_does)
{
    double a[16] = {0};
    double y     = 0;
    struct kernel_arg args[2];
    struct pl_err err = {0};

    a[0]         = 1e200;
    a[5]         = 1e200;
    a[10]        = -1e-200;
    a[15]        = 1e-200;
    args[0]      = array_1d(&y, KERNEL_OUT, PL_F64, 1);
    args[0].ndim = 0;
    args[1]      = array_2d(a, PL_F64, 4, 4, 4);
    ASSERT_OK(kernel_run_cpu_now(kernel_by_name("determinant"), args, 2, NULL, 0, &err));
    ASSERT_TRUE(fabs(y + 1) < 1e-14);
}

TEST(what_is_not_finite_has_no_singular_values_and_no_eigenvalues)
{
    double a[4] = {1, 2, (double)NAN, 4};
    double u[4], s[2], vh[4];
    struct kernel_arg args[4] = {
        array_2d(u, PL_F64, 2, 2, 2), array_1d(s, KERNEL_OUT, PL_F64, 2),
        array_2d(vh, PL_F64, 2, 2, 2), array_2d(a, PL_F64, 2, 2, 2)};
    struct kernel_arg eigh[3] = {args[1], args[0], args[3]};
    struct pl_err err         = {0};

    ASSERT_STATUS(kernel_run_cpu_now(kernel_by_name("svd"), args, 4, NULL, 0, &err),
                  PLASMON_EINVAL);
    ASSERT_CONTAINS(err.text, "svd: element 2 of a, counted by rows, is NaN or infinite");
    ASSERT_STATUS(kernel_run_cpu_now(kernel_by_name("eigh"), eigh, 3, NULL, 0, &err),
                  PLASMON_EINVAL);
    a[2] = 0;
    a[1] = (double)INFINITY; /* above the diagonal: not read */
    ASSERT_OK(kernel_run_cpu_now(kernel_by_name("eigh"), eigh, 3, NULL, 0, &err));
    ASSERT_TRUE(s[0] == 1 && s[1] == 4);
}

/* Long ones, which no sum over all pairs reaches: there and back, and the sum of squares (Parseval). */
static void transform_and_back(int64_t n, uint32_t dtype)
{
    double eps                = dtype == PL_C64 ? 0x1p-24 : 0x1p-53;
    size_t bytes              = (size_t)n * pl_dtype_bytes(dtype);
    char *x                   = malloc(bytes);
    char *y                   = malloc(bytes);
    char *z                   = malloc(bytes);
    uint64_t random           = test_seed() + (uint64_t)n;
    double before             = 0;
    double after              = 0;
    double off                = 0;
    struct kernel_arg there[] = {array_1d(y, KERNEL_OUT, dtype, n),
                                 array_1d(x, KERNEL_IN, dtype, n)};
    struct kernel_arg back[]  = {array_1d(z, KERNEL_OUT, dtype, n),
                                 array_1d(y, KERNEL_IN, dtype, n)};
    union kernel_scalar axes  = {.i = 1};

    ASSERT_TRUE(x != NULL && y != NULL && z != NULL);
    for (int64_t i = 0; i < 2 * n; i++) {
        double value = (double)(test_random(&random) >> 11) * 0x1p-53 - 0.5;

        if (dtype == PL_C64) {
            ((float *)(void *)x)[i] = (float)value;
        } else {
            ((double *)(void *)x)[i] = value;
        }
    }
    ASSERT_OK(kernel_run_cpu_now(kernel_by_name("fft"), there, 2, &axes, 1, NULL));
    ASSERT_OK(kernel_run_cpu_now(kernel_by_name("ifft"), back, 2, &axes, 1, NULL));
    for (int64_t i = 0; i < 2 * n; i++) {
        bool single = dtype == PL_C64;
        double a    = single ? (double)((float *)(void *)x)[i] : ((double *)(void *)x)[i];
        double b    = single ? (double)((float *)(void *)y)[i] : ((double *)(void *)y)[i];
        double c    = single ? (double)((float *)(void *)z)[i] : ((double *)(void *)z)[i];

        before += a * a;
        after += b * b / (double)n;
        off += (c - a) * (c - a);
    }
    ASSERT_TRUE(sqrt(off) <= 32 * (log2((double)n) + 3) * eps * sqrt(before));
    ASSERT_TRUE(fabs(after / before - 1) <= 64 * (log2((double)n) + 3) * eps);
    free(x);
    free(y);
    free(z);
}

TEST(long_transforms_come_back)
{
    static const int64_t lengths[] = {1 << 17, 100003, 3 * 5 * 7 * 11 * 13 * 17, 2 * 65537};

    for (size_t i = 0; i < PL_COUNT(lengths); i++) {
        transform_and_back(lengths[i], PL_C64);
        transform_and_back(lengths[i], PL_C128);
    }
}

TEST(halves_round_once_and_to_even)
{
    /* 1 + 2^-11 + 2^-40 rounds up; by way of f32 it would be a tie, and round to even: down. */
    const double x[6] = {
        1 + 0x1p-11 + 0x1p-40, 1 + 0x1p-11, 65519.999, 65520, 0x1p-25, 0x1p-24};
    const int64_t i[3] = {(INT64_C(1) << 40) + (INT64_C(1) << 32) + 1, -2049, 2051};
    uint16_t y[6];

    cast_1d(y, PL_F16, x, PL_F64, 6);
    ASSERT_EQ(memcmp(y, (uint16_t[]){0x3c01, 0x3c00, 0x7bff, 0x7c00, 0, 1}, sizeof(y)), 0);
    cast_1d(y, PL_F16, i, PL_I64, 3);
    ASSERT_EQ(memcmp(y, (uint16_t[]){0x7c00, 0xe800, 0x6802}, 6), 0);
    cast_1d(y, PL_BF16, i, PL_I64, 3); /* 2^40 + 2^32 + 1: a bit above a tie */
    ASSERT_EQ(y[0], 0x5381);
}

TEST(norms_and_softmax_stay_in_range_where_the_result_does)
{
    const double large[3]     = {3e300, -4e300, 0};
    const double small[3]     = {3e-300, 4e-300, 0};
    const double high[2]      = {1e308, 1e308};
    struct kernel_arg args[2] = {{0}, array_1d(large, KERNEL_IN, PL_F64, 3)};
    union kernel_scalar s[3]  = {{.i = -1}, {.i = 0}, {.f = 2}};
    double y[2];

    args[0]      = array_1d(y, KERNEL_OUT, PL_F64, 1);
    args[0].ndim = 0;
    ASSERT_OK(kernel_run_cpu_now(kernel_by_name("norm"), args, 2, s, 3, NULL));
    ASSERT_TRUE(fabs(y[0] - 5e300) < 1e286);
    args[1] = array_1d(small, KERNEL_IN, PL_F64, 3);
    ASSERT_OK(kernel_run_cpu_now(kernel_by_name("norm"), args, 2, s, 3, NULL));
    ASSERT_TRUE(fabs(y[0] - 5e-300) < 1e-314);
    args[0] = array_1d(y, KERNEL_OUT, PL_F64, 2);
    args[1] = array_1d(high, KERNEL_IN, PL_F64, 2);
    ASSERT_OK(kernel_run_cpu_now(kernel_by_name("softmax"), args, 2, s, 1, NULL));
    ASSERT_TRUE(y[0] == 0.5 && y[1] == 0.5);
}

TEST(merged_parts_are_the_topk_of_the_whole)
{
    enum { ROWS = 5, COLUMNS = 61, SPLIT = 23, K = 7 };
    static float x[ROWS][COLUMNS];
    float v[4][ROWS][K];
    int64_t index[4][ROWS][K];
    uint64_t random = test_seed();

    for (int i = 0; i < ROWS * COLUMNS; i++) { /* few values, many ties; some NaN */
        (&x[0][0])[i] =
            test_random(&random) % 20 == 0 ? NAN : (float)(test_random(&random) % 6);
    }
    for (int part = 0; part < 3; part++) {
        int64_t first = part == 2 ? SPLIT : 0;
        int64_t n     = part == 0 ? COLUMNS : part == 1 ? SPLIT : COLUMNS - SPLIT;
        const union kernel_scalar s[2] = {{.i = K}, {.i = first}};
        struct kernel_arg args[3]      = {array_2d(v[part], PL_F32, ROWS, K, K),
                                          array_2d(index[part], PL_I64, ROWS, K, K),
                                          array_2d(&x[0][first], PL_F32, ROWS, n, COLUMNS)};

        args[2].mode = KERNEL_IN;
        ASSERT_OK(kernel_run_cpu_now(kernel_by_name("topk_min"), args, 3, s, 2, NULL));
    }
    struct kernel_arg args[6] = {
        array_2d(v[3], PL_F32, ROWS, K, K), array_2d(index[3], PL_I64, ROWS, K, K),
        array_2d(v[1], PL_F32, ROWS, K, K), array_2d(index[1], PL_I64, ROWS, K, K),
        array_2d(v[2], PL_F32, ROWS, K, K), array_2d(index[2], PL_I64, ROWS, K, K)};
    const union kernel_scalar k = {.i = K};

    ASSERT_OK(kernel_run_cpu_now(kernel_by_name("topk_merge"), args, 6, &k, 1, NULL));
    ASSERT_EQ(memcmp(v[0], v[3], sizeof(v[0])), 0);
    ASSERT_EQ(memcmp(index[0], index[3], sizeof(index[0])), 0);
}

TEST(checksums_have_known_values_and_depend_on_order)
{
    const uint8_t a[3]        = {1, 2, 3};
    const uint8_t b[3]        = {3, 2, 1};
    uint64_t sum              = 0;
    uint64_t other            = 0;
    struct kernel_arg args[2] = {array_1d(&sum, KERNEL_OUT, PL_U64, 1),
                                 array_1d(a, KERNEL_IN, PL_U8, 3)};

    args[0].ndim = 0;
    ASSERT_OK(kernel_run_cpu_now(kernel_by_name("checksum"), args, 2, NULL, 0, NULL));
    /* splitmix64 with seed 0 begins with this number: the constants of the mixer are the published ones. */
    ASSERT_TRUE(kernel_mix(0x9E3779B97F4A7C15u) == 0xE220A8397B1DCDAFu);
    args[0].data.addr = (uint64_t)(uintptr_t)&other;
    args[1].data.addr = (uint64_t)(uintptr_t)b;
    ASSERT_OK(kernel_run_cpu_now(kernel_by_name("checksum"), args, 2, NULL, 0, NULL));
    ASSERT_TRUE(sum != other);
}

TEST_MAIN()
