/*
 * Cases of the elementwise functions, of fold and of combine.
 */
#include "cases_int.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/harness/test.h"

/* -------------------------------------------------------------------------------- unary */

void case_build_input(struct trial *trial, uint32_t dtype, double low, double high)
{
    int64_t dim[PL_DIM_MAX];
    uint32_t ndim = (uint32_t)trial_int(trial, 0, 5);

    trial_out(trial);
    trial_dims(trial, ndim, dim);
    (void)trial_array(trial, KERNEL_IN, dtype, ndim, dim, low, high);
}

void case_build_unary(struct trial *trial)
{
    case_build_input(trial, trial->dtype, trial_is_float(trial->dtype) ? -8 : -50000,
                     50000);
    for (uint32_t i = 0; i < 20 && trial_is_float(trial->dtype); i++) {
        /* Wide ranges for some, and the edges. */
        trial_set(trial, 1, trial_int(trial, 0, trial_elements(trial, 1) - 1),
                  (double)trial_int(trial, -30, 30) / 4);
    }
    trial_prepare(trial);
}

void case_build_unary_small(struct trial *trial)
{
    case_build_input(trial, trial->dtype, -12, 12);
    trial_prepare(trial);
}

void case_build_unary_positive(struct trial *trial)
{
    case_build_input(trial, trial->dtype, 0.01, 1000);
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

/* In the extended precision of the host. */
static double complex unary_complex(const char *name, double complex x)
{
    long double complex z = x;

    switch (name[0] * 256 + name[1]) {
    case 'n' * 256 + 'e':
        return -x;
    case 's' * 256 + 'q':
        return (double complex)(strcmp(name, "sqrt") == 0 ? csqrtl(z) : z * z);
    case 'r' * 256 + 'e':
        return (double complex)(1 / z);
    case 'e' * 256 + 'x':
        return (double complex)cexpl(z);
    case 'l' * 256 + 'o':
        return (double complex)clogl(z);
    case 'c' * 256 + 'o':
        return conj(x);
    default:
        test_fail(__FILE__, __LINE__, "no reference for %s", name);
    }
}

static int64_t unary_int(const char *name, uint32_t dtype, int64_t x)
{
    if (strcmp(name, "negative") == 0) {
        return case_wrapped(dtype, 0 - (uint64_t)x);
    }
    if (strcmp(name, "abs") == 0) {
        return x < 0 ? case_wrapped(dtype, 0 - (uint64_t)x) : x;
    }
    if (strcmp(name, "sign") == 0) {
        return (x > 0) - (x < 0);
    }
    return case_wrapped(dtype, (uint64_t)x * (uint64_t)x);
}

void case_expect_unary(struct trial *trial)
{
    const char *name = trial->function->name;

    for (int64_t i = 0; i < trial_elements(trial, 0); i++) {
        if (trial_is_float(trial->dtype)) {
            case_want_rounded(trial, 0, i, unary_float(name, trial_get(trial, 1, i)),
                              MATH_ULPS);
        } else if (trial_is_complex(trial->dtype)) {
            case_want_complex(trial, 0, i, unary_complex(name, trial_get_z(trial, 1, i)),
                              2 * MATH_ULPS);
        } else {
            trial_want_int(trial, 0, i,
                           unary_int(name, trial->dtype, trial_get_int(trial, 1, i)));
        }
    }
}

void case_expect_part(struct trial *trial)
{
    const char *name = trial->function->name;

    if (!trial_is_complex(trial->dtype)) {
        case_expect_unary(trial);
        return;
    }
    for (int64_t i = 0; i < trial_elements(trial, 0); i++) {
        double complex z = trial_get_z(trial, 1, i);

        case_want_rounded(trial, 0, i,
                          strcmp(name, "real") == 0   ? creal(z)
                          : strcmp(name, "imag") == 0 ? cimag(z)
                                                      : cabs(z),
                          strcmp(name, "abs") == 0 ? MATH_ULPS : 0);
    }
}

void case_build_not(struct trial *trial)
{
    case_build_input(trial, trial->dtype, trial->dtype == PL_BOOL ? 0 : -1, 1);
    trial_set(trial, 1, 0, 0);
    trial_prepare(trial);
}

void case_expect_not(struct trial *trial)
{
    for (int64_t i = 0; i < trial_elements(trial, 0); i++) {
        trial_want_int(trial, 0, i, trial_get_z(trial, 1, i) == 0);
    }
}

void case_build_scalar(struct trial *trial)
{
    case_build_input(trial, trial->dtype, -1000, 1000);
    trial_f64(trial, (double)trial_int(trial, -40, 40) / 4);
    trial_prepare(trial);
}

void case_expect_scalar(struct trial *trial)
{
    bool add     = strcmp(trial->function->name, "add_scalar") == 0;
    double value = trial->scalar[0].f;

    for (int64_t i = 0; i < trial_elements(trial, 0); i++) {
        if (trial_is_float(trial->dtype)) {
            double x = trial_get(trial, 1, i);

            case_want_rounded(trial, 0, i, add ? x + value : x * value, 1);
        } else if (trial_is_complex(trial->dtype)) {
            double complex z = trial_get_z(trial, 1, i);

            case_want_complex(trial, 0, i, add ? z + value : z * value, 8);
        } else {
            int64_t x = trial_get_int(trial, 1, i);

            trial_want_int(trial, 0, i, add ? x + (int64_t)value : x * (int64_t)value);
        }
    }
}

/* ------------------------------------------------------------------------------- binary */

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

void case_build_binary(struct trial *trial)
{
    build_broadcast(trial, trial->dtype == PL_BOOL ? 0 : -20,
                    trial->dtype == PL_BOOL ? 1 : 20);
    trial_prepare(trial);
}

void case_build_power(struct trial *trial)
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

static double complex binary_complex(const char *name, double complex a, double complex b)
{
    long double complex x = a;
    long double complex y = b;

    switch (name[0] * 256 + name[1]) {
    case 'a' * 256 + 'd':
        return a + b;
    case 's' * 256 + 'u':
        return a - b;
    case 'm' * 256 + 'u':
        return (double complex)(x * y);
    case 'd' * 256 + 'i':
        return (double complex)(x / y);
    default:
        test_fail(__FILE__, __LINE__, "no reference for %s", name);
    }
}

static int64_t binary_int(const char *name, uint32_t dtype, int64_t a, int64_t b)
{
    uint64_t result = 1;

    switch (name[0] * 256 + name[1]) {
    case 'a' * 256 + 'd':
        return case_wrapped(dtype, (uint64_t)a + (uint64_t)b);
    case 's' * 256 + 'u':
        return case_wrapped(dtype, (uint64_t)a - (uint64_t)b);
    case 'm' * 256 + 'u':
        return case_wrapped(dtype, (uint64_t)a * (uint64_t)b);
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
        return case_wrapped(dtype, result);
    }
}

void case_expect_binary(struct trial *trial)
{
    const char *name = trial->function->name;
    double ulps      = strcmp(name, "power") == 0 ? MATH_ULPS : 1;

    for (int64_t i = 0; i < trial_elements(trial, 0); i++) {
        int64_t a = trial_broadcast(trial, 1, 0, i);
        int64_t b = trial_broadcast(trial, 2, 0, i);

        if (trial_is_float(trial->dtype)) {
            case_want_rounded(
                trial, 0, i,
                binary_float(name, trial_get(trial, 1, a), trial_get(trial, 2, b)), ulps);
        } else if (trial_is_complex(trial->dtype)) {
            case_want_complex(
                trial, 0, i,
                binary_complex(name, trial_get_z(trial, 1, a), trial_get_z(trial, 2, b)),
                8);
        } else {
            trial_want_int(trial, 0, i,
                           binary_int(name, trial->dtype, trial_get_int(trial, 1, a),
                                      trial_get_int(trial, 2, b)));
        }
    }
}

void case_build_compare(struct trial *trial)
{
    build_broadcast(trial, trial->dtype == PL_BOOL ? 0 : -3,
                    trial->dtype == PL_BOOL ? 1 : 3);
    for (uint32_t index = 1; index < 3;
         index++) { /* so that floats are equal now and then */
        for (int64_t i = 0; i < trial_elements(trial, index); i++) {
            if (trial_int(trial, 0, 1) || !trial_is_complex(trial->dtype)) {
                trial_set(trial, index, i, floor(trial_get(trial, index, i)));
            }
        }
    }
    trial_prepare(trial);
}

void case_expect_compare(struct trial *trial)
{
    const char *name = trial->function->name;

    for (int64_t i = 0; i < trial_elements(trial, 0); i++) {
        double complex za = trial_get_z(trial, 1, trial_broadcast(trial, 1, 0, i));
        double complex zb = trial_get_z(trial, 2, trial_broadcast(trial, 2, 0, i));
        double a          = creal(za);
        double b          = creal(zb);
        bool want;

        if (strcmp(name, "equal") == 0) {
            want = za == zb;
        } else if (strcmp(name, "less") == 0) {
            want = a < b;
        } else if (strcmp(name, "less_equal") == 0) {
            want = a <= b;
        } else if (strcmp(name, "logical_and") == 0) {
            want = za != 0 && zb != 0;
        } else {
            want = za != 0 || zb != 0;
        }
        trial_want_int(trial, 0, i, want);
    }
}

/* --------------------------------------------------------------------------------- into */

void case_build_into(struct trial *trial)
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
        trial->array[0].arg.reduce_op = (uint32_t)trial_int(
            trial, KERNEL_SUM, trial_is_complex(trial->dtype) ? KERNEL_PROD : KERNEL_MAX);
    }
    if (strcmp(trial->function->name, "axpy") == 0) {
        trial_f64(trial, (double)trial_int(trial, -12, 12) / 2);
    }
    trial_prepare(trial);
}

void case_expect_into(struct trial *trial)
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
        } else if (trial_is_complex(trial->dtype)) {
            double complex y = trial_get_z(trial, 0, i);
            double complex x = scale * trial_get_z(trial, 1, at);
            double complex z = binary_complex(name, y, x);

            trial_want_z(trial, 0, i, z,
                         8 * trial_epsilon(trial->dtype) * (cabs(y) + cabs(x) + cabs(z)));
        } else {
            trial_want_int(trial, 0, i,
                           binary_int(name, trial->dtype, trial_get_int(trial, 0, i),
                                      trial_get_int(trial, 1, at) * (int64_t)scale));
        }
    }
}

static void build_fold(struct trial *trial, uint32_t mode)
{
    int64_t partials = trial_int(trial, 1, trial->large ? KERNEL_FOLD_MAX : 9);
    uint32_t ndim    = (uint32_t)trial_int(trial, 0, 3);
    int64_t dim[PL_DIM_MAX];

    trial_dims(trial, ndim, dim);
    (void)trial_array(trial, mode, trial->dtype, ndim, dim, -3, 3);
    for (int64_t i = 0; i < partials; i++) {
        (void)trial_array(trial, KERNEL_IN, trial->dtype, ndim, dim, -3, 3);
    }
    trial_i64(trial, trial_int(trial, KERNEL_SUM,
                               trial_is_complex(trial->dtype) ? KERNEL_SUM : KERNEL_MAX));
    trial_prepare(trial);
}

void case_build_fold(struct trial *trial)
{
    build_fold(trial, KERNEL_INOUT);
}

void case_build_combine(struct trial *trial)
{
    build_fold(trial, KERNEL_OUT);
}

/* In the dtype itself: the result must be this to the bit. */
static double fold_join(uint32_t dtype, const char *name, double a, double b)
{
    return trial_rounded(dtype, binary_float(name, a, b));
}

/* Array `first` joined with the tree of those behind it. */
static void expect_fold(struct trial *trial, uint32_t first)
{
    static const char *const names[] = {"", "add", "multiply", "minimum", "maximum"};
    const char *name                 = names[trial->scalar[0].i];
    uint32_t dtype                   = trial->dtype;

    for (int64_t i = 0; i < trial_elements(trial, 0); i++) {
        double f[KERNEL_FOLD_MAX];
        double im[KERNEL_FOLD_MAX];
        int64_t v[KERNEL_FOLD_MAX];
        uint32_t width = trial->count - 1 - first;

        for (uint32_t j = 0; j < width; j++) {
            f[j]  = trial_get(trial, first + j + 1, i);
            im[j] = cimag(trial_get_z(trial, first + j + 1,
                                      i)); /* of complex numbers only sums: by parts */
            v[j]  = trial_get_int(trial, first + j + 1, i);
        }
        if (width == 0) {
            trial_want_z(trial, 0, i, trial_get_z(trial, first, i), 0);
            trial_want_int(trial, 0, i, trial_get_int(trial, first, i));
            continue;
        }
        while (width > 1) {
            uint32_t next = 0;

            for (uint32_t j = 0; j + 1 < width; j += 2) {
                f[next]   = fold_join(dtype, name, f[j], f[j + 1]);
                im[next]  = fold_join(dtype, name, im[j], im[j + 1]);
                v[next++] = binary_int(name, dtype, v[j], v[j + 1]);
            }
            if (width % 2 != 0) {
                f[next]   = f[width - 1];
                im[next]  = im[width - 1];
                v[next++] = v[width - 1];
            }
            width = next;
        }
        trial_want_z(
            trial, 0, i,
            trial_z(fold_join(dtype, name, trial_get(trial, first, i), f[0]),
                    fold_join(dtype, name, cimag(trial_get_z(trial, first, i)), im[0])),
            0);
        trial_want_int(trial, 0, i,
                       binary_int(name, dtype, trial_get_int(trial, first, i), v[0]));
    }
}

void case_expect_fold(struct trial *trial)
{
    expect_fold(trial, 0);
}

void case_expect_combine(struct trial *trial)
{
    expect_fold(trial, 1);
}
