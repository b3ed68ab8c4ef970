/*
 * Cases of the functions that do nothing, make values from nothing, or move them.
 */
#include "cases_int.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/harness/test.h"

/* ------------------------------------------------------------------------------ nothing */

void case_build_noop(struct trial *trial)
{
    trial_prepare(trial);
}

void case_expect_nothing(struct trial *trial)
{
    for (uint32_t i = 0; i < trial->count; i++) {
        if (!trial->array[i].is_output) {
            continue;
        }
        for (int64_t j = 0; j < trial_elements(trial, i); j++) {
            trial_want_same(trial, i, j, i, j);
        }
    }
}

void case_build_touch(struct trial *trial)
{
    int64_t dim[PL_DIM_MAX];

    for (int i = 0; i < 3; i++) {
        trial_dims(trial, 2, dim);
        (void)trial_array(trial, KERNEL_IN, trial->dtype, 2, dim, 0, 1);
    }
    trial_prepare(trial);
}

void case_build_spin(struct trial *trial)
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

void case_build_fail(struct trial *trial)
{
    build_stated(trial);
    if (trial->function->param_count > 1) {
        trial_i64(trial, 42);
    }
    trial_prepare(trial);
}

/* ------------------------------------------------------------------------- from nothing */

void case_build_fill(struct trial *trial)
{
    build_stated(trial);
    trial_f64(trial, (double)trial_int(trial, 0, 100) + 0.75);
    trial_prepare(trial);
}

void case_expect_fill(struct trial *trial)
{
    for (int64_t i = 0; i < trial_elements(trial, 0); i++) {
        trial_want(trial, 0, i, trial_rounded(trial->dtype, trial->scalar[0].f), 0);
        trial_want_int(trial, 0, i,
                       trial->dtype == PL_BOOL ? 1 : (int64_t)trial->scalar[0].f);
    }
}

void case_build_fill_int(struct trial *trial)
{
    build_stated(trial);
    trial_i64(trial, (int64_t)test_random(&trial->random) >> trial_int(trial, 0, 63));
    trial_prepare(trial);
}

void case_expect_fill_int(struct trial *trial)
{
    for (int64_t i = 0; i < trial_elements(trial, 0); i++) {
        case_want_rounded(trial, 0, i, (double)trial->scalar[0].i, 1);
        trial_want_int(trial, 0, i,
                       case_wrapped(trial->dtype, (uint64_t)trial->scalar[0].i));
    }
}

void case_build_arange(struct trial *trial)
{
    build_stated(trial);
    trial_f64(trial, (double)trial_int(trial, -50, 50) / 7);
    trial_f64(trial, (double)trial_int(trial, -50, 50) / 7);
    trial_prepare(trial);
}

void case_expect_arange(struct trial *trial)
{
    for (int64_t i = 0; i < trial_elements(trial, 0); i++) {
        double value = trial->scalar[0].f + (double)i * trial->scalar[1].f;

        trial_want(trial, 0, i, trial_rounded(trial->dtype, value), 0);
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

void case_build_random(struct trial *trial)
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

void case_expect_random(struct trial *trial)
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
        trial_want(trial, 0, i, trial_rounded(x->dtype, value), 0);
        trial_want_int(trial, 0, i, (int64_t)floor(value));
    }
}

/* ------------------------------------------------------------------------------- moving */

void case_build_transpose(struct trial *trial)
{
    uint32_t ndim = (uint32_t)trial_int(trial, 2, 5);
    int64_t dim[PL_DIM_MAX];

    trial_out(trial);
    trial_dims(trial, ndim, dim);
    (void)trial_array(trial, KERNEL_IN, trial->dtype, ndim, dim, 0, 100);
    trial_prepare(trial);
}

void case_build_permute(struct trial *trial)
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

void case_expect_permuted(struct trial *trial)
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
        trial_want_same(trial, 0, i, 1, flat);
    }
}

void case_build_copy(struct trial *trial)
{
    case_build_input(trial, trial->dtype, 0, 100);
    trial_prepare(trial);
}

void case_expect_copy(struct trial *trial)
{
    for (int64_t i = 0; i < trial_elements(trial, 0); i++) {
        trial_want_same(trial, 0, i, 1, i);
    }
}

/* To the trial's dtype from a random one. */
void case_build_cast(struct trial *trial)
{
    uint32_t source = (uint32_t)trial_int(trial, PL_BOOL, PL_C128);
    int64_t dim[PL_DIM_MAX];
    double low = 0;

    if (trial_is_float(source) || trial_is_complex(source) || source == PL_I8 ||
        source == PL_I16 || source == PL_I32 || source == PL_I64) {
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
    if (isinf(value) && (dtype == PL_I64 || dtype == PL_U64)) { /* 16-bit floats overflow */
        return dtype == PL_I64 ? (value < 0 ? INT64_MIN : INT64_MAX) : (value < 0 ? 0 : -1);
    }
    if (value < (dtype < PL_COUNT(low) ? low[dtype] : 0)) {
        value = dtype < PL_COUNT(low) ? low[dtype] : 0;
    }
    return (int64_t)(value > high[dtype] ? high[dtype] : value);
}

void case_expect_cast(struct trial *trial)
{
    uint32_t from   = trial->array[1].arg.dtype;
    bool from_float = trial_is_float(from) || trial_is_complex(from);
    uint32_t to     = trial->dtype;

    for (int64_t i = 0; i < trial_elements(trial, 0); i++) {
        double complex z = trial_get_z(trial, 1, i);
        double value     = creal(z);

        if (trial_is_float(to)) {
            trial_want(trial, 0, i, trial_rounded(to, value), 0);
        } else if (trial_is_complex(to)) {
            trial_want_z(trial, 0, i,
                         trial_z(trial_rounded(to, value), trial_rounded(to, cimag(z))), 0);
        } else if (from_float) {
            trial_want_int(trial, 0, i, truncated(to, to == PL_BOOL ? cabs(z) : value));
        } else {
            trial_want_int(trial, 0, i,
                           case_wrapped(to, (uint64_t)trial_get_int(trial, 1, i)));
        }
    }
}

void case_build_concatenate(struct trial *trial)
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

void case_expect_concatenate(struct trial *trial)
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
        trial_want_same(trial, 0, i, index, flat);
    }
}
