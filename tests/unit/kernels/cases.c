/*
 * References are written one element at a time, without the tools of kernels/: what they share with what they test is
 * only the definition.
 *
 * Error bounds. eps is half the distance from 1 to the next number of the output's dtype. One correctly rounded operation
 * has eps |want|; functions of the math libraries get 8 eps |want|; sums, products and norms of n terms get n + 8 times
 * eps times the sum of the terms' magnitudes, which is the classical bound for any order of summation.
 */
#include "cases.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/harness/test.h"

#define NUMBERS  KERNEL_NUMBERS
#define FLOATS   KERNEL_FLOATS
#define D(d)     KERNEL_DTYPE(PL_##d)
#define LOGICALS (KERNEL_NUMBERS | D(BOOL))
#define CASTS    (LOGICALS | D(I8) | D(U8) | D(I16) | D(U16) | D(U32) | D(U64))
#define STORAGE  (D(BOOL) | D(F16) | D(F32) | D(F64) | D(I64) | D(C64) | D(C128))

#define MATH_ULPS 8

/* Wraps to the width of the dtype. */
static int64_t wrapped(uint32_t dtype, uint64_t value)
{
    switch (dtype) {
    case PL_BOOL:
        return value != 0;
    case PL_I8:
        return (int8_t)value;
    case PL_U8:
        return (uint8_t)value;
    case PL_I16:
        return (int16_t)value;
    case PL_U16:
        return (uint16_t)value;
    case PL_I32:
        return (int32_t)value;
    case PL_U32:
        return (uint32_t)value;
    default:
        return (int64_t)value;
    }
}

/* A value that is exact but for one rounding. */
static void want_rounded(struct trial *trial, uint32_t index, int64_t flat, double want,
                         double eps_count)
{
    double eps = trial_epsilon(trial->array[index].arg.dtype);

    trial_want(trial, index, flat, want, eps_count * eps * fabs(want) + 1e-300);
}

/* ------------------------------------------------------------------------------------------------ nothing */

static void build_noop(struct trial *trial)
{
    trial_prepare(trial);
}

static void expect_nothing(struct trial *trial)
{
    for (uint32_t i = 0; i < trial->count; i++) {
        if (!trial->array[i].is_output) {
            continue;
        }
        for (int64_t j = 0; j < trial_elements(trial, i); j++) {
            trial_want_int(trial, i, j, trial_get_int(trial, i, j));
            trial_want(trial, i, j, trial_get(trial, i, j), 0);
        }
    }
}

static void build_touch(struct trial *trial)
{
    int64_t dim[PL_DIM_MAX];

    for (int i = 0; i < 3; i++) {
        trial_dims(trial, 2, dim);
        (void)trial_array(trial, KERNEL_IN, trial->dtype, 2, dim, 0, 1);
    }
    trial_prepare(trial);
}

static void build_spin(struct trial *trial)
{
    int64_t dim[PL_DIM_MAX];

    trial_dims(trial, 2, dim);
    (void)trial_array(trial, KERNEL_INOUT, trial->dtype, 2, dim, 0, 1);
    trial_i64(trial, 100);
    trial_prepare(trial);
}

static void build_stated(struct trial *trial)
{
    int64_t dim[PL_DIM_MAX];
    uint32_t ndim = (uint32_t)trial_int(trial, 0, 4);

    trial_dims(trial, ndim, dim);
    (void)trial_array(trial, KERNEL_OUT, trial->dtype, ndim, dim, 0, 0);
}

static void build_fail(struct trial *trial)
{
    build_stated(trial);
    if (trial->function->param_count > 1) {
        trial_i64(trial, 42);
    }
    trial_prepare(trial);
}

/* ------------------------------------------------------------------------------------------------ from nothing */

static void build_fill(struct trial *trial)
{
    build_stated(trial);
    trial_f64(trial, (double)trial_int(trial, 0, 100) + 0.75);
    trial_prepare(trial);
}

static void expect_fill(struct trial *trial)
{
    for (int64_t i = 0; i < trial_elements(trial, 0); i++) {
        trial_want(trial, 0, i, trial->scalar[0].f, 0);
        trial_want_int(trial, 0, i,
                       trial->dtype == PL_BOOL ? 1 : (int64_t)trial->scalar[0].f);
    }
}

static void build_fill_int(struct trial *trial)
{
    build_stated(trial);
    trial_i64(trial, (int64_t)test_random(&trial->random) >> trial_int(trial, 0, 63));
    trial_prepare(trial);
}

static void expect_fill_int(struct trial *trial)
{
    for (int64_t i = 0; i < trial_elements(trial, 0); i++) {
        want_rounded(trial, 0, i, (double)trial->scalar[0].i, 1);
        trial_want_int(trial, 0, i, wrapped(trial->dtype, (uint64_t)trial->scalar[0].i));
    }
}

static void build_arange(struct trial *trial)
{
    build_stated(trial);
    trial_f64(trial, (double)trial_int(trial, -50, 50) / 7);
    trial_f64(trial, (double)trial_int(trial, -50, 50) / 7);
    trial_prepare(trial);
}

static void expect_arange(struct trial *trial)
{
    for (int64_t i = 0; i < trial_elements(trial, 0); i++) {
        double value = trial->scalar[0].f + (double)i * trial->scalar[1].f;

        trial_want(trial, 0, i, trial->dtype == PL_F32 ? (double)(float)value : value, 0);
        trial_want_int(trial, 0, i, (int64_t)value);
    }
}

/* Philox4x32-10 as in the paper, in its own words. */
static void philox(uint64_t counter, uint64_t seed, uint32_t x[4])
{
    uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};

    x[0] = (uint32_t)counter;
    x[1] = (uint32_t)(counter >> 32);
    x[2] = 0;
    x[3] = 0;
    for (int round = 0; round < 10; round++) {
        uint64_t a      = (uint64_t)x[0] * 0xD2511F53u;
        uint64_t b      = (uint64_t)x[2] * 0xCD9E8D57u;
        uint32_t out[4] = {(uint32_t)(b >> 32) ^ x[1] ^ key[0], (uint32_t)b,
                           (uint32_t)(a >> 32) ^ x[3] ^ key[1], (uint32_t)a};

        memcpy(x, out, sizeof(out));
        key[0] += 0x9E3779B9u;
        key[1] += 0xBB67AE85u;
    }
}

static void build_random(struct trial *trial)
{
    bool normal = strcmp(trial->function->name, "random_normal") == 0;

    build_stated(trial);
    trial_i64(trial, (int64_t)test_random(&trial->random));
    trial_i64(trial, trial_int(trial, 0, INT64_C(1) << 40));
    trial_i64(trial, trial_int(trial, 0, 1) * trial_int(trial, 1, 100000));
    trial_f64(trial, normal ? 3 : -5);
    trial_f64(trial, normal ? 2 : 11.5);
    trial_prepare(trial);
}

static void expect_random(struct trial *trial)
{
    const struct kernel_arg *x   = &trial->array[0].arg;
    const union kernel_scalar *s = trial->scalar;
    uint64_t width               = x->ndim == 0 ? 1 : (uint64_t)x->dim[x->ndim - 1];
    bool normal                  = strcmp(trial->function->name, "random_normal") == 0;

    for (int64_t i = 0; i < trial_elements(trial, 0); i++) {
        uint64_t row    = (uint64_t)i / width;
        uint64_t column = (uint64_t)i % width;
        uint64_t stride = s[2].i == 0 ? width : (uint64_t)s[2].i;
        uint32_t word[4];
        double u1;
        double u2;
        double value;

        philox((uint64_t)s[1].i + row * stride + column, (uint64_t)s[0].i, word);
        u1 = (double)((((uint64_t)word[0] << 32) | word[1]) >> 11) * 0x1p-53;
        u2 = (double)((((uint64_t)word[2] << 32) | word[3]) >> 11) * 0x1p-53;
        if (normal) {
            value = s[3].f + s[4].f * sqrt(-2 * log(1 - u1)) * cos(2 * M_PI * u2);
            trial_want(trial, 0, i, value,
                       16 * trial_epsilon(x->dtype) * (fabs(s[3].f) + fabs(value) + 8));
            continue;
        }
        value = s[3].f + u1 * (s[4].f - s[3].f);
        trial_want(trial, 0, i, x->dtype == PL_F32 ? (double)(float)value : value, 0);
        trial_want_int(trial, 0, i, (int64_t)floor(value));
    }
}

/* ------------------------------------------------------------------------------------------------ unary */

static void build_unary_of(struct trial *trial, uint32_t dtype, double low, double high)
{
    int64_t dim[PL_DIM_MAX];
    uint32_t ndim = (uint32_t)trial_int(trial, 0, 5);

    trial_out(trial);
    trial_dims(trial, ndim, dim);
    (void)trial_array(trial, KERNEL_IN, dtype, ndim, dim, low, high);
}

static void build_unary(struct trial *trial)
{
    build_unary_of(trial, trial->dtype, trial_is_float(trial->dtype) ? -8 : -50000, 50000);
    for (uint32_t i = 0; i < 20 && trial_is_float(trial->dtype); i++) {
        /* Wide ranges for some, and the edges. */
        trial_set(trial, 1, trial_int(trial, 0, trial_elements(trial, 1) - 1),
                  (double)trial_int(trial, -30, 30) / 4);
    }
    trial_prepare(trial);
}

static void build_unary_small(struct trial *trial)
{
    build_unary_of(trial, trial->dtype, -12, 12);
    trial_prepare(trial);
}

static void build_unary_positive(struct trial *trial)
{
    build_unary_of(trial, trial->dtype, 0.01, 1000);
    trial_prepare(trial);
}

static double unary_float(const char *name, double x)
{
    switch (name[0] * 256 + name[1]) {
    case 'n' * 256 + 'e':
        return -x;
    case 'a' * 256 + 'b':
        return fabs(x);
    case 's' * 256 + 'q':
        return strcmp(name, "sqrt") == 0 ? sqrt(x) : x * x;
    case 'r' * 256 + 'e':
        return 1 / x;
    case 'e' * 256 + 'x':
        return exp(x);
    case 'l' * 256 + 'o':
        return log(x);
    case 's' * 256 + 'i':
        return strcmp(name, "sin") == 0    ? sin(x)
               : strcmp(name, "sign") == 0 ? (double)((x > 0) - (x < 0))
                                           : 1 / (1 + exp(-x));
    case 'c' * 256 + 'o':
        return cos(x);
    case 't' * 256 + 'a':
        return tanh(x);
    case 'f' * 256 + 'l':
        return floor(x);
    case 'c' * 256 + 'e':
        return ceil(x);
    default:
        test_fail(__FILE__, __LINE__, "no reference for %s", name);
    }
}

static int64_t unary_int(const char *name, uint32_t dtype, int64_t x)
{
    if (strcmp(name, "negative") == 0) {
        return wrapped(dtype, 0 - (uint64_t)x);
    }
    if (strcmp(name, "abs") == 0) {
        return x < 0 ? wrapped(dtype, 0 - (uint64_t)x) : x;
    }
    if (strcmp(name, "sign") == 0) {
        return (x > 0) - (x < 0);
    }
    return wrapped(dtype, (uint64_t)x * (uint64_t)x);
}

static void expect_unary(struct trial *trial)
{
    const char *name = trial->function->name;

    for (int64_t i = 0; i < trial_elements(trial, 0); i++) {
        if (trial_is_float(trial->dtype)) {
            want_rounded(trial, 0, i, unary_float(name, trial_get(trial, 1, i)), MATH_ULPS);
        } else {
            trial_want_int(trial, 0, i,
                           unary_int(name, trial->dtype, trial_get_int(trial, 1, i)));
        }
    }
}

static void build_not(struct trial *trial)
{
    build_unary_of(trial, trial->dtype, trial->dtype == PL_BOOL ? 0 : -1, 1);
    trial_set(trial, 1, 0, 0);
    trial_prepare(trial);
}

static void expect_not(struct trial *trial)
{
    for (int64_t i = 0; i < trial_elements(trial, 0); i++) {
        trial_want_int(trial, 0, i, trial_get(trial, 1, i) == 0);
    }
}

static void build_scalar(struct trial *trial)
{
    build_unary_of(trial, trial->dtype, -1000, 1000);
    trial_f64(trial, (double)trial_int(trial, -40, 40) / 4);
    trial_prepare(trial);
}

static void expect_scalar(struct trial *trial)
{
    bool add     = strcmp(trial->function->name, "add_scalar") == 0;
    double value = trial->scalar[0].f;

    for (int64_t i = 0; i < trial_elements(trial, 0); i++) {
        if (trial_is_float(trial->dtype)) {
            double x = trial_get(trial, 1, i);

            want_rounded(trial, 0, i, add ? x + value : x * value, 1);
        } else {
            int64_t x = trial_get_int(trial, 1, i);

            trial_want_int(trial, 0, i, add ? x + (int64_t)value : x * (int64_t)value);
        }
    }
}

/* ------------------------------------------------------------------------------------------------ binary */

/* Two arrays that broadcast to the same random shape. */
static void build_broadcast(struct trial *trial, double low, double high)
{
    int64_t dim[PL_DIM_MAX];
    uint32_t ndim = (uint32_t)trial_int(trial, 0, 5);

    trial_out(trial);
    trial_dims(trial, ndim, dim);
    for (int i = 0; i < 2; i++) {
        int64_t part[PL_DIM_MAX];
        uint32_t skip =
            trial_int(trial, 0, 3) == 0 ? (uint32_t)trial_int(trial, 0, ndim) : 0;

        for (uint32_t d = skip; d < ndim; d++) {
            part[d - skip] = trial_int(trial, 0, 4) == 0 ? 1 : dim[d];
        }
        (void)trial_array(trial, KERNEL_IN, trial->dtype, ndim - skip, part, low, high);
    }
}

static void build_binary(struct trial *trial)
{
    build_broadcast(trial, trial->dtype == PL_BOOL ? 0 : -20,
                    trial->dtype == PL_BOOL ? 1 : 20);
    trial_prepare(trial);
}

static void build_power(struct trial *trial)
{
    bool is_float = trial_is_float(trial->dtype);

    build_broadcast(trial, is_float ? 0.1 : -5, 5);
    trial_prepare(trial);
}

static double binary_float(const char *name, double a, double b)
{
    switch (name[0] * 256 + name[1]) {
    case 'a' * 256 + 'd':
        return a + b;
    case 's' * 256 + 'u':
        return a - b;
    case 'm' * 256 + 'u':
        return a * b;
    case 'd' * 256 + 'i':
        return a / b;
    case 'm' * 256 + 'i':
        return a < b ? a : b;
    case 'm' * 256 + 'a':
        return a > b ? a : b;
    case 'p' * 256 + 'o':
        return pow(a, b);
    default:
        test_fail(__FILE__, __LINE__, "no reference for %s", name);
    }
}

static int64_t binary_int(const char *name, uint32_t dtype, int64_t a, int64_t b)
{
    uint64_t result = 1;

    switch (name[0] * 256 + name[1]) {
    case 'a' * 256 + 'd':
        return wrapped(dtype, (uint64_t)a + (uint64_t)b);
    case 's' * 256 + 'u':
        return wrapped(dtype, (uint64_t)a - (uint64_t)b);
    case 'm' * 256 + 'u':
        return wrapped(dtype, (uint64_t)a * (uint64_t)b);
    case 'd' * 256 + 'i':
        return b == 0 ? 0 : a / b;
    case 'm' * 256 + 'i':
        return a < b ? a : b;
    case 'm' * 256 + 'a':
        return a > b ? a : b;
    default: /* power */
        if (b < 0) {
            return a == 1 ? 1 : a == -1 ? (b % 2 == 0 ? 1 : -1) : 0;
        }
        for (int64_t i = 0; i < b; i++) {
            result *= (uint64_t)a;
        }
        return wrapped(dtype, result);
    }
}

static void expect_binary(struct trial *trial)
{
    const char *name = trial->function->name;
    double ulps      = strcmp(name, "power") == 0 ? MATH_ULPS : 1;

    for (int64_t i = 0; i < trial_elements(trial, 0); i++) {
        int64_t a = trial_broadcast(trial, 1, 0, i);
        int64_t b = trial_broadcast(trial, 2, 0, i);

        if (trial_is_float(trial->dtype)) {
            want_rounded(trial, 0, i,
                         binary_float(name, trial_get(trial, 1, a), trial_get(trial, 2, b)),
                         ulps);
        } else {
            trial_want_int(trial, 0, i,
                           binary_int(name, trial->dtype, trial_get_int(trial, 1, a),
                                      trial_get_int(trial, 2, b)));
        }
    }
}

static void build_compare(struct trial *trial)
{
    build_broadcast(trial, trial->dtype == PL_BOOL ? 0 : -3,
                    trial->dtype == PL_BOOL ? 1 : 3);
    for (uint32_t index = 1; index < 3;
         index++) { /* so that floats are equal now and then */
        for (int64_t i = 0; i < trial_elements(trial, index); i++) {
            trial_set(trial, index, i, floor(trial_get(trial, index, i)));
        }
    }
    trial_prepare(trial);
}

static void expect_compare(struct trial *trial)
{
    const char *name = trial->function->name;

    for (int64_t i = 0; i < trial_elements(trial, 0); i++) {
        double a = trial_get(trial, 1, trial_broadcast(trial, 1, 0, i));
        double b = trial_get(trial, 2, trial_broadcast(trial, 2, 0, i));
        bool want;

        if (strcmp(name, "equal") == 0) {
            want = a == b;
        } else if (strcmp(name, "less") == 0) {
            want = a < b;
        } else if (strcmp(name, "less_equal") == 0) {
            want = a <= b;
        } else if (strcmp(name, "logical_and") == 0) {
            want = a != 0 && b != 0;
        } else {
            want = a != 0 || b != 0;
        }
        trial_want_int(trial, 0, i, want);
    }
}

/* ------------------------------------------------------------------------------------------------ into */

static void build_into(struct trial *trial)
{
    bool accumulate = strcmp(trial->function->name, "accumulate") == 0;
    uint32_t ndim   = (uint32_t)trial_int(trial, 0, 4);
    uint32_t mode   = accumulate || trial_int(trial, 0, 1) ? KERNEL_REDUCE : KERNEL_INOUT;
    uint32_t skip   = (uint32_t)trial_int(trial, 0, ndim);
    int64_t dim[PL_DIM_MAX];
    int64_t part[PL_DIM_MAX];

    trial_dims(trial, ndim, dim);
    skip = trial_int(trial, 0, 2) == 0 ? skip : 0;
    for (uint32_t d = skip; d < ndim; d++) {
        part[d - skip] = trial_int(trial, 0, 3) == 0 ? 1 : dim[d];
    }
    (void)trial_array(trial, mode, trial->dtype, ndim, dim, -30, 30);
    (void)trial_array(trial, KERNEL_IN, trial->dtype, ndim - skip, part, -30, 30);
    if (accumulate) {
        trial->array[0].arg.reduce_op = (uint32_t)trial_int(trial, KERNEL_SUM, KERNEL_MAX);
    }
    if (strcmp(trial->function->name, "axpy") == 0) {
        trial_f64(trial, (double)trial_int(trial, -12, 12) / 2);
    }
    trial_prepare(trial);
}

static void expect_into(struct trial *trial)
{
    static const char *const names[] = {"", "add", "multiply", "minimum", "maximum"};
    const char *name                 = names[KERNEL_SUM];
    double scale                     = 1;

    if (strcmp(trial->function->name, "accumulate") == 0) {
        name = names[trial->array[0].arg.reduce_op];
    } else if (strcmp(trial->function->name, "axpy") == 0) {
        scale = trial->scalar[0].f;
    }
    for (int64_t i = 0; i < trial_elements(trial, 0); i++) {
        int64_t at = trial_broadcast(trial, 1, 0, i);

        if (trial_is_float(trial->dtype)) {
            double y = trial_get(trial, 0, i);
            double x = scale * trial_get(trial, 1, at);

            trial_want(trial, 0, i, binary_float(name, y, x),
                       2 * trial_epsilon(trial->dtype) *
                           (fabs(y) + fabs(x) + fabs(binary_float(name, y, x))));
        } else {
            trial_want_int(trial, 0, i,
                           binary_int(name, trial->dtype, trial_get_int(trial, 0, i),
                                      trial_get_int(trial, 1, at) * (int64_t)scale));
        }
    }
}

static void build_fold(struct trial *trial)
{
    int64_t partials = trial_int(trial, 1, trial->large ? KERNEL_FOLD_MAX : 9);
    uint32_t ndim    = (uint32_t)trial_int(trial, 0, 3);
    int64_t dim[PL_DIM_MAX];

    trial_dims(trial, ndim, dim);
    (void)trial_array(trial, KERNEL_INOUT, trial->dtype, ndim, dim, -3, 3);
    for (int64_t i = 0; i < partials; i++) {
        (void)trial_array(trial, KERNEL_IN, trial->dtype, ndim, dim, -3, 3);
    }
    trial_i64(trial, trial_int(trial, KERNEL_SUM, KERNEL_MAX));
    trial_prepare(trial);
}

/* In the dtype itself: the result must be this to the bit. */
static double fold_join(uint32_t dtype, const char *name, double a, double b)
{
    return dtype == PL_F32 ? (double)(float)binary_float(name, a, b)
                           : binary_float(name, a, b);
}

static void expect_fold(struct trial *trial)
{
    static const char *const names[] = {"", "add", "multiply", "minimum", "maximum"};
    const char *name                 = names[trial->scalar[0].i];
    uint32_t dtype                   = trial->dtype;

    for (int64_t i = 0; i < trial_elements(trial, 0); i++) {
        double f[KERNEL_FOLD_MAX];
        int64_t v[KERNEL_FOLD_MAX];
        uint32_t width = trial->count - 1;

        for (uint32_t j = 0; j < width; j++) {
            f[j] = trial_get(trial, j + 1, i);
            v[j] = trial_get_int(trial, j + 1, i);
        }
        while (width > 1) {
            uint32_t next = 0;

            for (uint32_t j = 0; j + 1 < width; j += 2) {
                f[next]   = fold_join(dtype, name, f[j], f[j + 1]);
                v[next++] = binary_int(name, dtype, v[j], v[j + 1]);
            }
            if (width % 2 != 0) {
                f[next]   = f[width - 1];
                v[next++] = v[width - 1];
            }
            width = next;
        }
        trial_want(trial, 0, i, fold_join(dtype, name, trial_get(trial, 0, i), f[0]), 0);
        trial_want_int(trial, 0, i,
                       binary_int(name, dtype, trial_get_int(trial, 0, i), v[0]));
    }
}

/* ------------------------------------------------------------------------------------------------ reductions */

static void build_reduce(struct trial *trial)
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

/* What one output is made from: `length` elements of x from flat index `first` on, `step` apart. */
struct lane {
    int64_t first;
    int64_t step;
    int64_t length;
};

static struct lane lane_of(const struct trial *trial, int64_t flat)
{
    const struct kernel_arg *x = &trial->array[1].arg;
    int64_t axis               = trial->scalar[0].i;
    int64_t step               = 1;

    if (axis == -1) {
        return (struct lane){0, 1, trial_elements(trial, 1)};
    }
    for (uint32_t d = (uint32_t)axis + 1; d < x->ndim; d++) {
        step *= x->dim[d];
    }
    return (struct lane){flat / step * step * x->dim[axis] + flat % step, step,
                         x->dim[axis]};
}

static void expect_sum(struct trial *trial)
{
    bool mean    = strcmp(trial->function->name, "mean") == 0;
    uint32_t out = trial->array[0].arg.dtype;

    for (int64_t i = 0; i < trial_elements(trial, 0); i++) {
        struct lane lane = lane_of(trial, i);
        long double sum  = 0;
        double magnitude = 0;
        int64_t total    = 0;
        double n         = mean ? (double)lane.length : 1;

        for (int64_t j = 0; j < lane.length; j++) {
            sum += (long double)trial_get(trial, 1, lane.first + j * lane.step);
            magnitude += fabs(trial_get(trial, 1, lane.first + j * lane.step));
            total += trial_get_int(trial, 1, lane.first + j * lane.step);
        }
        if (!trial_is_float(trial->dtype)) {
            sum = (long double)total;
        }
        /* Sums are taken in double also for f32, and rounded once. */
        trial_want(trial, 0, i, (double)(sum / (long double)n),
                   (((double)lane.length + 8) * 0x1p-53 * magnitude +
                    2 * trial_epsilon(out) * fabs((double)sum)) /
                       n);
        trial_want_int(trial, 0, i, wrapped(out, (uint64_t)total));
    }
}

static void expect_extreme(struct trial *trial)
{
    const char *name = trial->function->name;
    bool smallest    = strcmp(name, "min") == 0 || strcmp(name, "argmin") == 0;
    bool index       = strncmp(name, "arg", 3) == 0;

    for (int64_t i = 0; i < trial_elements(trial, 0); i++) {
        struct lane lane = lane_of(trial, i);
        double best      = 0;
        int64_t at       = -1;

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

/* The definition, written again: a shared mistake in the constants would show in the known answers of test_kernels. */
static uint64_t mixed(uint64_t z)
{
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

static void build_checksum(struct trial *trial)
{
    build_unary_of(trial, trial->dtype, 0, trial->dtype == PL_BOOL ? 1 : 100);
    trial_prepare(trial);
}

static void expect_checksum(struct trial *trial)
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

/* ------------------------------------------------------------------------------------------------ products */

static void build_dot(struct trial *trial)
{
    int64_t dim[PL_DIM_MAX];

    trial_out(trial);
    trial_dims(trial, 1, dim);
    (void)trial_array(trial, KERNEL_IN, trial->dtype, 1, dim, -5, 5);
    (void)trial_array(trial, KERNEL_IN, trial->dtype, 1, dim, -5, 5);
    trial_prepare(trial);
}

static void expect_dot(struct trial *trial)
{
    int64_t n        = trial_elements(trial, 1);
    long double sum  = 0;
    double magnitude = 0;
    uint64_t total   = 0;

    for (int64_t i = 0; i < n; i++) {
        double term = trial_get(trial, 1, i) * trial_get(trial, 2, i);

        sum += (long double)trial_get(trial, 1, i) * (long double)trial_get(trial, 2, i);
        magnitude += fabs(term);
        total += (uint64_t)(trial_get_int(trial, 1, i) * trial_get_int(trial, 2, i));
    }
    trial_want(trial, 0, 0, (double)sum,
               ((double)n + 8) * 0x1p-53 * magnitude +
                   2 * trial_epsilon(trial->dtype) * fabs((double)sum));
    trial_want_int(trial, 0, 0, wrapped(trial->dtype, total));
}

static void build_gemv(struct trial *trial)
{
    int64_t dim[PL_DIM_MAX];

    trial_out(trial);
    trial_dims(trial, 2, dim);
    (void)trial_array(trial, KERNEL_IN, trial->dtype, 2, dim, -5, 5);
    (void)trial_array(trial, KERNEL_IN, trial->dtype, 1, &dim[1], -5, 5);
    trial_prepare(trial);
}

/* Two factors that may be transposed, of sizes around the tiles of the kernels. */
static void build_gemm(struct trial *trial)
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

static void expect_product(struct trial *trial)
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

    for (int64_t i = 0; i < trial_elements(trial, 0); i++) {
        long double sum  = 0;
        double magnitude = 0;
        uint64_t total   = 0;
        double old       = into ? beta * trial_get(trial, 0, i) : 0;
        double want;

        for (int64_t p = 0; p < k; p++) {
            int64_t a = factor_at(trial, 1, i / n, p, ta);
            int64_t b = factor_at(trial, 2, p, i % n, tb);

            sum +=
                (long double)trial_get(trial, 1, a) * (long double)trial_get(trial, 2, b);
            magnitude += fabs(trial_get(trial, 1, a) * trial_get(trial, 2, b));
            total += (uint64_t)(trial_get_int(trial, 1, a) * trial_get_int(trial, 2, b));
        }
        want = alpha * (double)sum + old;
        trial_want(trial, 0, i, want,
                   ((double)k + 8) * trial_epsilon(trial->dtype) *
                       (fabs(alpha) * magnitude + fabs(old)));
        total = (uint64_t)(int64_t)alpha * total;
        if (into) {
            total += (uint64_t)((int64_t)beta * trial_get_int(trial, 0, i));
        }
        trial_want_int(trial, 0, i, wrapped(trial->dtype, total));
    }
}

static void build_pairwise(struct trial *trial)
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

static void expect_pairwise(struct trial *trial)
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

/* ------------------------------------------------------------------------------------------------ moving */

static void build_transpose(struct trial *trial)
{
    uint32_t ndim = (uint32_t)trial_int(trial, 2, 5);
    int64_t dim[PL_DIM_MAX];

    trial_out(trial);
    trial_dims(trial, ndim, dim);
    (void)trial_array(trial, KERNEL_IN, trial->dtype, ndim, dim, 0, 100);
    trial_prepare(trial);
}

static void build_permute(struct trial *trial)
{
    uint32_t ndim = (uint32_t)trial_int(trial, 0, 6);
    int64_t order[PL_DIM_MAX];
    int64_t dim[PL_DIM_MAX];

    trial_out(trial);
    trial_dims(trial, ndim, dim);
    (void)trial_array(trial, KERNEL_IN, trial->dtype, ndim, dim, 0, 100);
    for (int64_t i = 0; i < PL_DIM_MAX; i++) {
        order[i] = i;
    }
    for (int64_t i = (int64_t)ndim - 1; i > 0; i--) {
        int64_t j    = trial_int(trial, 0, i);
        int64_t swap = order[i];

        order[i] = order[j];
        order[j] = swap;
    }
    for (int i = 0; i < PL_DIM_MAX; i++) {
        trial_i64(trial, order[i]);
    }
    trial_prepare(trial);
}

static void expect_permuted(struct trial *trial)
{
    const struct kernel_arg *x = &trial->array[1].arg;
    int64_t order[PL_DIM_MAX]  = {0};

    for (uint32_t d = 0; d < x->ndim; d++) {
        order[d] = trial->scalar_count > 0 ? trial->scalar[d].i : d;
    }
    if (trial->scalar_count == 0) { /* transpose */
        order[x->ndim - 1] = x->ndim - 2;
        order[x->ndim - 2] = x->ndim - 1;
    }
    for (int64_t i = 0; i < trial_elements(trial, 0); i++) {
        int64_t at[PL_DIM_MAX] = {0};
        int64_t rest           = i;
        int64_t flat           = 0;

        for (uint32_t d = x->ndim; d-- > 0;) {
            at[order[d]] = rest % trial->array[0].arg.dim[d];
            rest /= trial->array[0].arg.dim[d];
        }
        for (uint32_t d = 0; d < x->ndim; d++) {
            flat = flat * x->dim[d] + at[d];
        }
        trial_want(trial, 0, i, trial_get(trial, 1, flat), 0);
        trial_want_int(trial, 0, i, trial_get_int(trial, 1, flat));
    }
}

static void build_copy(struct trial *trial)
{
    build_unary_of(trial, trial->dtype, 0, 100);
    trial_prepare(trial);
}

static void expect_copy(struct trial *trial)
{
    for (int64_t i = 0; i < trial_elements(trial, 0); i++) {
        trial_want(trial, 0, i, trial_get(trial, 1, i), 0);
        trial_want_int(trial, 0, i, trial_get_int(trial, 1, i));
    }
}

/* To the trial's dtype from a random one. */
static void build_cast(struct trial *trial)
{
    static const uint32_t from[] = {PL_BOOL, PL_I8,  PL_U8,  PL_I16, PL_U16, PL_I32,
                                    PL_U32,  PL_I64, PL_U64, PL_F32, PL_F64};
    uint32_t source              = from[trial_int(trial, 0, (int64_t)PL_COUNT(from) - 1)];
    int64_t dim[PL_DIM_MAX];
    double low = 0;

    if (trial_is_float(source) || source == PL_I8 || source == PL_I16 || source == PL_I32 ||
        source == PL_I64) {
        low = source == PL_I8 ? -128 : -70000;
    }
    trial_dims(trial, 3, dim);
    (void)trial_array(trial, KERNEL_OUT, trial->dtype, 3, dim, 0, 0);
    (void)trial_array(trial, KERNEL_IN, source, 3, dim, low, source == PL_BOOL ? 1 : 70000);
    trial_prepare(trial);
}

/* Saturated to the range of the dtype. */
static int64_t truncated(uint32_t dtype, double value)
{
    static const double low[]  = {[PL_BOOL] = 0,
                                  [PL_I8]   = -128,
                                  [PL_I16]  = -32768,
                                  [PL_I32]  = -2147483648.0,
                                  [PL_I64]  = -1e18};
    static const double high[] = {
        [PL_I8] = 127,    [PL_U8] = 255,           [PL_I16] = 32767,
        [PL_U16] = 65535, [PL_I32] = 2147483647.0, [PL_U32] = 4294967295.0,
        [PL_I64] = 1e18,  [PL_U64] = 1e18};

    if (dtype == PL_BOOL) {
        return value != 0;
    }
    if (value < (dtype < PL_COUNT(low) ? low[dtype] : 0)) {
        value = dtype < PL_COUNT(low) ? low[dtype] : 0;
    }
    return (int64_t)(value > high[dtype] ? high[dtype] : value);
}

static void expect_cast(struct trial *trial)
{
    bool from_float = trial_is_float(trial->array[1].arg.dtype);
    uint32_t to     = trial->dtype;

    for (int64_t i = 0; i < trial_elements(trial, 0); i++) {
        double value = trial_get(trial, 1, i);

        if (trial_is_float(to)) {
            trial_want(trial, 0, i, to == PL_F32 ? (double)(float)value : value, 0);
        } else if (from_float) {
            trial_want_int(trial, 0, i, truncated(to, value));
        } else {
            trial_want_int(trial, 0, i, wrapped(to, (uint64_t)trial_get_int(trial, 1, i)));
        }
    }
}

static void build_concatenate(struct trial *trial)
{
    uint32_t ndim = (uint32_t)trial_int(trial, 1, 4);
    int64_t axis  = trial_int(trial, 0, (int64_t)ndim - 1);
    int64_t parts = trial_int(trial, 1, 12); /* more than fit a call on the stack */
    int64_t dim[PL_DIM_MAX];

    trial_out(trial);
    trial_dims(trial, ndim, dim);
    for (int64_t i = 0; i < parts; i++) {
        dim[axis] = trial_int(trial, 1, 9);
        (void)trial_array(trial, KERNEL_IN, trial->dtype, ndim, dim, 0, 100);
    }
    trial_i64(trial, axis);
    trial_prepare(trial);
}

static void expect_concatenate(struct trial *trial)
{
    const struct kernel_arg *y = &trial->array[0].arg;
    int64_t axis               = trial->scalar[0].i;
    int64_t inner              = 1;

    for (uint32_t d = (uint32_t)axis + 1; d < y->ndim; d++) {
        inner *= y->dim[d];
    }
    for (int64_t i = 0; i < trial_elements(trial, 0); i++) {
        int64_t along  = i / inner % y->dim[axis];
        int64_t outer  = i / inner / y->dim[axis];
        uint32_t index = 1;
        int64_t flat;

        while (along >= trial->array[index].arg.dim[axis]) {
            along -= trial->array[index].arg.dim[axis];
            index++;
        }
        flat = (outer * trial->array[index].arg.dim[axis] + along) * inner + i % inner;
        trial_want(trial, 0, i, trial_get(trial, index, flat), 0);
        trial_want_int(trial, 0, i, trial_get_int(trial, index, flat));
    }
}

/* ------------------------------------------------------------------------------------------------ neighbours */

struct neighbour {
    double value;
    int64_t index;
};

static int neighbour_compare(const void *a, const void *b)
{
    const struct neighbour *x = a;
    const struct neighbour *y = b;

    if (x->value != y->value) {
        return x->value < y->value ? -1 : 1;
    }
    return x->index < y->index ? -1 : x->index > y->index;
}

/* The first k of n, sorted, into row `row` of arguments 0 and 1. */
static void want_neighbours(struct trial *trial, struct neighbour *all, int64_t n,
                            int64_t row)
{
    int64_t k = trial->array[0].arg.dim[1];

    qsort(all, (size_t)n, sizeof(*all), neighbour_compare);
    for (int64_t i = 0; i < k; i++) {
        trial_want(trial, 0, row * k + i, all[i].value, 0);
        trial_want_int(trial, 0, row * k + i, (int64_t)all[i].value);
        trial_want_int(trial, 1, row * k + i, all[i].index);
    }
}

static void build_topk_min(struct trial *trial)
{
    int64_t rows    = trial_int(trial, 1, 9);
    int64_t columns = trial_int(trial, 1, trial->large ? 3000 : 40);

    trial_out(trial);
    trial_out(trial);
    (void)trial_array(trial, KERNEL_IN, trial->dtype, 2, (int64_t[]){rows, columns}, -300,
                      300);
    trial_i64(trial,
              trial_int(trial, 0, 1) ? trial_int(trial, 1, 8) : trial_int(trial, 1, 50));
    trial_i64(trial, trial_int(trial, 0, 1000));
    trial_prepare(trial);
}

static void expect_topk_min(struct trial *trial)
{
    int64_t n             = trial->array[2].arg.dim[1];
    struct neighbour *all = calloc((size_t)n, sizeof(*all));

    ASSERT_NOT_NULL(all);
    for (int64_t row = 0; row < trial->array[2].arg.dim[0]; row++) {
        for (int64_t i = 0; i < n; i++) {
            all[i] = (struct neighbour){trial_get(trial, 2, row * n + i),
                                        trial->scalar[1].i + i};
        }
        want_neighbours(trial, all, n, row);
    }
    free(all);
}

static void build_topk_merge(struct trial *trial)
{
    int64_t rows = trial_int(trial, 1, 9);
    int64_t size[2];

    size[0] = trial_int(trial, 1, 20);
    size[1] = trial_int(trial, 1, 20);
    trial_out(trial);
    trial_out(trial);
    for (uint32_t i = 0; i < 2; i++) {
        uint32_t values = trial->count;
        int64_t dim[2]  = {rows, size[i]};

        (void)trial_array(trial, KERNEL_IN, trial->dtype, 2, dim, 0, 1);
        (void)trial_array(trial, KERNEL_IN, PL_I64, 2, dim, 0, 0);
        for (int64_t j = 0; j < rows * size[i]; j++) { /* ascending, some equal */
            int64_t column = j % size[i];
            double before  = column == 0 ? 0 : trial_get(trial, values, j - 1);

            trial_set(trial, values, j, before + (double)trial_int(trial, 0, 2));
            trial_set(trial, values + 1, j, (double)(i * 1000 + column));
        }
    }
    trial_i64(trial, trial_int(trial, 1, 45));
    trial_prepare(trial);
}

static void expect_topk_merge(struct trial *trial)
{
    struct neighbour all[40];

    for (int64_t row = 0; row < trial->array[2].arg.dim[0]; row++) {
        int64_t n = 0;

        for (uint32_t index = 2; index < 6; index += 2) {
            int64_t size = trial->array[index].arg.dim[1];

            for (int64_t i = 0; i < size; i++) {
                all[n++] =
                    (struct neighbour){trial_get(trial, index, row * size + i),
                                       trial_get_int(trial, index + 1, row * size + i)};
            }
        }
        want_neighbours(trial, all, n, row);
    }
}

static void build_vote(struct trial *trial)
{
    int64_t rows   = trial_int(trial, 1, trial->large ? 1000 : 20);
    int64_t k      = trial_int(trial, 1, 7);
    int64_t labels = trial_int(trial, 1, 50);

    trial_out(trial);
    /* Some indices are outside on both sides. */
    (void)trial_array(trial, KERNEL_IN, PL_I64, 2, (int64_t[]){rows, k}, -1,
                      (double)labels);
    (void)trial_array(trial, KERNEL_IN, PL_I32, 1, &labels, 0, 4);
    trial_prepare(trial);
}

static void expect_vote(struct trial *trial)
{
    int64_t k = trial->array[1].arg.dim[1];
    int64_t n = trial->array[2].arg.dim[0];

    for (int64_t row = 0; row < trial->array[1].arg.dim[0]; row++) {
        int64_t votes[5] = {0};
        int64_t met[5]   = {0};
        int64_t best     = -1;

        for (int64_t i = k; i-- > 0;) {
            int64_t index = trial_get_int(trial, 1, row * k + i);

            if (index >= 0 && index < n) {
                votes[trial_get_int(trial, 2, index)]++;
                met[trial_get_int(trial, 2, index)] = i;
            }
        }
        for (int64_t label = 0; label < 5; label++) {
            if (votes[label] > 0 &&
                (best < 0 || votes[label] > votes[best] ||
                 (votes[label] == votes[best] && met[label] < met[best]))) {
                best = label;
            }
        }
        trial_want_int(trial, 0, row, best);
    }
}

/* ------------------------------------------------------------------------------------------------ the list */

static const struct kernel_case cases[] = {
    {"noop", D(F32), 0, build_noop, expect_nothing},
    {"touch", STORAGE, 0, build_touch, expect_nothing},
    {"fill", CASTS, CASE_SAME_BITS, build_fill, expect_fill},
    {"fill_int", CASTS, CASE_SAME_BITS, build_fill_int, expect_fill_int},
    {"copy", STORAGE, CASE_SAME_BITS, build_copy, expect_copy},
    {"cast", CASTS, CASE_SAME_BITS, build_cast, expect_cast},
    {"arange", NUMBERS, CASE_SAME_BITS, build_arange, expect_arange},
    {"random_uniform", NUMBERS, CASE_SAME_BITS, build_random, expect_random},
    {"random_normal", FLOATS, 0, build_random, expect_random},
    {"negative", NUMBERS, CASE_SAME_BITS, build_unary, expect_unary},
    {"abs", NUMBERS, CASE_SAME_BITS, build_unary, expect_unary},
    {"sign", NUMBERS, CASE_SAME_BITS, build_unary, expect_unary},
    {"square", NUMBERS, CASE_SAME_BITS, build_unary, expect_unary},
    {"sqrt", FLOATS, CASE_SAME_BITS, build_unary_positive, expect_unary},
    {"reciprocal", FLOATS, CASE_SAME_BITS, build_unary_positive, expect_unary},
    {"exp", FLOATS, 0, build_unary_small, expect_unary},
    {"log", FLOATS, 0, build_unary_positive, expect_unary},
    {"sin", FLOATS, 0, build_unary_small, expect_unary},
    {"cos", FLOATS, 0, build_unary_small, expect_unary},
    {"tanh", FLOATS, 0, build_unary_small, expect_unary},
    {"sigmoid", FLOATS, 0, build_unary_small, expect_unary},
    {"floor", FLOATS, CASE_SAME_BITS, build_unary, expect_unary},
    {"ceil", FLOATS, CASE_SAME_BITS, build_unary, expect_unary},
    {"not", LOGICALS, 0, build_not, expect_not},
    {"add", NUMBERS, CASE_SAME_BITS, build_binary, expect_binary},
    {"subtract", NUMBERS, CASE_SAME_BITS, build_binary, expect_binary},
    {"multiply", NUMBERS, CASE_SAME_BITS, build_binary, expect_binary},
    {"divide", NUMBERS, CASE_SAME_BITS, build_binary, expect_binary},
    {"minimum", NUMBERS, CASE_SAME_BITS, build_binary, expect_binary},
    {"maximum", NUMBERS, CASE_SAME_BITS, build_binary, expect_binary},
    {"power", NUMBERS, 0, build_power, expect_binary},
    {"equal", NUMBERS, 0, build_compare, expect_compare},
    {"less", NUMBERS, 0, build_compare, expect_compare},
    {"less_equal", NUMBERS, 0, build_compare, expect_compare},
    {"logical_and", LOGICALS, 0, build_compare, expect_compare},
    {"logical_or", LOGICALS, 0, build_compare, expect_compare},
    {"add_scalar", NUMBERS, CASE_SAME_BITS, build_scalar, expect_scalar},
    {"multiply_scalar", NUMBERS, CASE_SAME_BITS, build_scalar, expect_scalar},
    {"axpy", NUMBERS, 0, build_into, expect_into},
    {"add_into", NUMBERS, CASE_SAME_BITS, build_into, expect_into},
    {"accumulate", NUMBERS, CASE_SAME_BITS, build_into, expect_into},
    {"fold", NUMBERS, CASE_SAME_BITS, build_fold, expect_fold},
    {"sum", NUMBERS, 0, build_reduce, expect_sum},
    {"min", NUMBERS, CASE_SAME_BITS, build_reduce, expect_extreme},
    {"max", NUMBERS, CASE_SAME_BITS, build_reduce, expect_extreme},
    {"mean", NUMBERS, 0, build_reduce, expect_sum},
    {"argmin", NUMBERS, 0, build_reduce, expect_extreme},
    {"argmax", NUMBERS, 0, build_reduce, expect_extreme},
    {"dot", NUMBERS, 0, build_dot, expect_dot},
    {"gemv", NUMBERS, 0, build_gemv, expect_product},
    {"gemm", NUMBERS, 0, build_gemm, expect_product},
    {"gemm_into", NUMBERS, 0, build_gemm, expect_product},
    {"transpose", STORAGE, CASE_SAME_BITS, build_transpose, expect_permuted},
    {"permute", STORAGE, CASE_SAME_BITS, build_permute, expect_permuted},
    {"concatenate", STORAGE, CASE_SAME_BITS, build_concatenate, expect_concatenate},
    {"pairwise_distance", NUMBERS, 0, build_pairwise, expect_pairwise},
    {"topk_min", NUMBERS, CASE_SAME_BITS, build_topk_min, expect_topk_min},
    {"topk_merge", NUMBERS, CASE_SAME_BITS, build_topk_merge, expect_topk_merge},
    {"vote", D(I32), 0, build_vote, expect_vote},
    {"checksum", STORAGE, 0, build_checksum, expect_checksum},
    {"spin", STORAGE, 0, build_spin, expect_nothing},
    {"test_fail", D(F32) | D(U8), CASE_FAILS, build_fail, expect_nothing},
    {"test_illegal", D(F32) | D(U8), CASE_FAILS, build_fail, expect_nothing},
};

uint32_t kernel_case_count(void)
{
    return (uint32_t)PL_COUNT(cases);
}

const struct kernel_case *kernel_case_at(uint32_t index)
{
    return &cases[index];
}

void kernel_cases_each(uint32_t rounds, uint64_t seed,
                       void (*fn)(const struct kernel_case *kase, struct trial *trial,
                                  void *user),
                       void *user)
{
    for (uint32_t i = 0; i < kernel_case_count(); i++) {
        for (uint32_t dtype = PL_BOOL; dtype <= PL_C128; dtype++) {
            for (uint32_t round = 0; round < rounds; round++) {
                struct trial trial;

                if ((cases[i].dtypes & KERNEL_DTYPE(dtype)) == 0) {
                    continue;
                }
                trial_begin(&trial, cases[i].name, dtype,
                            seed + i * 1000003u + dtype * 1009u + round);
                cases[i].build(&trial);
                cases[i].expect(&trial);
                fn(&cases[i], &trial, user);
                trial_end(&trial);
            }
        }
    }
}
