#include "trial.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/harness/test.h"

#define FAIL(...) test_fail(__FILE__, __LINE__, __VA_ARGS__)
/* Twelve of these, and what they make, fit into the arena of runner.c. */
#define STRIDED_BYTES_MAX (UINT64_C(8) << 20)

static void *allocate(uint64_t bytes)
{
    void *memory = calloc(1, bytes == 0 ? 1 : bytes);

    ASSERT_NOT_NULL(memory);
    return memory;
}

void trial_begin(struct trial *trial, const char *name, uint32_t dtype, uint64_t seed)
{
    memset(trial, 0, sizeof(*trial));
    trial->function = kernel_by_name(name);
    trial->dtype    = dtype;
    trial->random   = seed;
    ASSERT_NOT_NULL(trial->function);
    trial->strided = trial_int(trial, 0, 2) > 0;
    trial->large   = trial_int(trial, 0, 3) == 0;
}

void trial_end(struct trial *trial)
{
    for (uint32_t i = 0; i < trial->count; i++) {
        free(trial->array[i].root);
        free(trial->array[i].before);
        free(trial->array[i].want);
        free(trial->array[i].want_im);
        free(trial->array[i].bound);
        free(trial->array[i].want_int);
    }
}

/* ------------------------------------------------------------------------------- values */

bool trial_is_float(uint32_t dtype)
{
    return dtype == PL_F16 || dtype == PL_BF16 || dtype == PL_F32 || dtype == PL_F64;
}

bool trial_is_complex(uint32_t dtype)
{
    return dtype == PL_C64 || dtype == PL_C128;
}

/* Bits of the significand, and the exponent of the smallest normal number. */
struct precision {
    int bits;
    int exponent_min;
    double largest;
};

static struct precision precision_of(uint32_t dtype)
{
    switch (dtype) {
    case PL_F16:
        return (struct precision){11, -14, 65504};
    case PL_BF16:
        return (struct precision){8, -126, 0x1.fep127};
    case PL_F32:
    case PL_C64:
        return (struct precision){24, -126, 0x1.fffffep127};
    default:
        return (struct precision){53, -1022, 0x1.fffffffffffffp1023};
    }
}

double trial_epsilon(uint32_t dtype)
{
    return ldexp(1, -precision_of(dtype).bits);
}

double trial_tiny(uint32_t dtype)
{
    struct precision p = precision_of(dtype);

    return ldexp(1, p.exponent_min - p.bits + (p.bits < 53));
}

double trial_rounded(uint32_t dtype, double value)
{
    struct precision p = precision_of(dtype);
    double step;
    int exponent;

    if (p.bits == 53 || !isfinite(value) || value == 0) {
        return value;
    }
    (void)frexp(value, &exponent);
    exponent = exponent - 1 < p.exponent_min ? p.exponent_min : exponent - 1;
    step     = ldexp(1, exponent - p.bits + 1);
    value    = nearbyint(value / step) * step;
    return fabs(value) <= p.largest ? value : copysign((double)INFINITY, value);
}

/* The bits of a 16-bit float from its definition, for values that it has. */
static uint16_t half_encode(uint32_t dtype, double value)
{
    struct precision p = precision_of(dtype);
    int fraction_bits  = p.bits - 1;
    double magnitude   = fabs(trial_rounded(dtype, value));
    uint16_t sign      = signbit(value) ? 0x8000 : 0;
    int exponent;

    if (isnan(value)) {
        return 0x7fff;
    }
    if (isinf(magnitude)) {
        return (uint16_t)(sign | (dtype == PL_F16 ? 0x7c00 : 0x7f80));
    }
    (void)frexp(magnitude, &exponent);
    exponent--;
    if (magnitude == 0 || exponent < p.exponent_min) {
        return (uint16_t)(sign |
                          (uint16_t)ldexp(magnitude, fraction_bits - p.exponent_min));
    }
    return (
        uint16_t)(sign | ((exponent - p.exponent_min + 1) << fraction_bits) |
                  ((int)ldexp(magnitude, fraction_bits - exponent) - (1 << fraction_bits)));
}

static double half_decode(uint32_t dtype, uint16_t bits)
{
    struct precision p = precision_of(dtype);
    int fraction_bits  = p.bits - 1;
    int field          = (bits & 0x7fff) >> fraction_bits;
    int fraction       = bits & ((1 << fraction_bits) - 1);
    int top            = (1 << (15 - fraction_bits)) - 1;
    double value       = ldexp(fraction, p.exponent_min - fraction_bits);

    if (field == top) {
        value = fraction != 0 ? (double)NAN : (double)INFINITY;
    } else if (field > 0) {
        value = ldexp((1 << fraction_bits) + fraction,
                      field - 1 + p.exponent_min - fraction_bits);
    }
    return (bits & 0x8000) != 0 ? -value : value;
}

static void element_set(char *at, uint32_t dtype, double complex z)
{
    double value = creal(z);
    int64_t i    = 0;
    float f[2]   = {(float)value, (float)cimag(z)};
    double d[2]  = {value, cimag(z)};
    uint16_t half;

    switch (dtype) {
    case PL_F16:
    case PL_BF16:
        half = half_encode(dtype, value);
        memcpy(at, &half, sizeof(half));
        break;
    case PL_F32:
    case PL_C64:
        memcpy(at, f, pl_dtype_bytes(dtype));
        break;
    case PL_F64:
    case PL_C128:
        memcpy(at, d, pl_dtype_bytes(dtype));
        break;
    case PL_BOOL:
        *at = (char)(value != 0);
        break;
    default: /* little-endian: the low bytes are the narrower number */
        i = (int64_t)value;
        memcpy(at, &i, pl_dtype_bytes(dtype));
        break;
    }
}

static int64_t element_int(const char *at, uint32_t dtype)
{
    int64_t value = 0;

    memcpy(&value, at, pl_dtype_bytes(dtype) < 8 ? pl_dtype_bytes(dtype) : 8);
    switch (dtype) {
    case PL_I8:
        return (int8_t)value;
    case PL_I16:
        return (int16_t)value;
    case PL_I32:
        return (int32_t)value;
    default:
        return value;
    }
}

static double complex element_z(const char *at, uint32_t dtype)
{
    double d[2] = {0, 0};
    float f[2]  = {0, 0};
    uint16_t half;

    switch (dtype) {
    case PL_F16:
    case PL_BF16:
        memcpy(&half, at, sizeof(half));
        return half_decode(dtype, half);
    case PL_F32:
    case PL_C64:
        memcpy(f, at, pl_dtype_bytes(dtype));
        return trial_z((double)f[0], (double)f[1]);
    case PL_F64:
    case PL_C128:
        memcpy(d, at, pl_dtype_bytes(dtype));
        return trial_z(d[0], d[1]);
    default:
        return (double)element_int(at, dtype);
    }
}

const char *trial_at(const struct trial_array *array, const char *root, int64_t flat)
{
    const struct kernel_arg *arg = &array->arg;
    int64_t offset               = 0;

    for (uint32_t d = arg->ndim; d-- > 0;) {
        offset += flat % arg->dim[d] * arg->stride[d];
        flat /= arg->dim[d];
    }
    return root + ((char *)(uintptr_t)arg->data.addr - array->root) +
           offset * (int64_t)pl_dtype_bytes(arg->dtype);
}

int64_t trial_elements(const struct trial *trial, uint32_t index)
{
    return kernel_arg_elements(&trial->array[index].arg);
}

double trial_get(const struct trial *trial, uint32_t index, int64_t flat)
{
    const struct trial_array *array = &trial->array[index];

    return creal(element_z(trial_at(array, array->before, flat), array->arg.dtype));
}

double complex trial_get_z(const struct trial *trial, uint32_t index, int64_t flat)
{
    const struct trial_array *array = &trial->array[index];

    return element_z(trial_at(array, array->before, flat), array->arg.dtype);
}

int64_t trial_get_int(const struct trial *trial, uint32_t index, int64_t flat)
{
    const struct trial_array *array = &trial->array[index];

    return trial_is_float(array->arg.dtype) || trial_is_complex(array->arg.dtype)
               ? 0
               : element_int(trial_at(array, array->before, flat), array->arg.dtype);
}

void trial_set_z(struct trial *trial, uint32_t index, int64_t flat, double complex value)
{
    struct trial_array *array = &trial->array[index];

    element_set((char *)(uintptr_t)trial_at(array, array->root, flat), array->arg.dtype,
                value);
    element_set((char *)(uintptr_t)trial_at(array, array->before, flat), array->arg.dtype,
                value);
}

void trial_set(struct trial *trial, uint32_t index, int64_t flat, double value)
{
    trial_set_z(trial, index, flat, value);
}

int64_t trial_broadcast(const struct trial *trial, uint32_t index, uint32_t shape_of,
                        int64_t flat)
{
    const struct kernel_arg *to   = &trial->array[shape_of].arg;
    const struct kernel_arg *from = &trial->array[index].arg;
    int64_t result                = 0;
    int64_t scale                 = 1;

    for (uint32_t i = 0; i < from->ndim; i++) {
        int64_t dim = from->dim[from->ndim - 1 - i];
        int64_t at  = flat % to->dim[to->ndim - 1 - i];

        result += (dim == 1 ? 0 : at) * scale;
        scale *= dim;
        flat /= to->dim[to->ndim - 1 - i];
    }
    return result;
}

/* ----------------------------------------------------------------------------- building */

int64_t trial_int(struct trial *trial, int64_t low, int64_t high)
{
    return low + (int64_t)(test_random(&trial->random) % (uint64_t)(high - low + 1));
}

void trial_dims(struct trial *trial, uint32_t ndim, int64_t out[PL_DIM_MAX])
{
    int64_t budget = trial->large ? 30000 : 300;

    for (uint32_t i = 0; i < ndim; i++) {
        int64_t most = ndim - i == 1 ? budget : (int64_t)sqrt((double)budget);

        out[i] = trial_int(trial, 1, most < 1 ? 1 : most);
        budget /= out[i];
    }
}

/* The root's bytes. */
static uint64_t array_stride(struct trial *trial, struct kernel_arg *arg, bool strided,
                             int64_t margin)
{
    int64_t stride = 1;

    for (uint32_t d = arg->ndim; d-- > 0;) {
        int64_t step  = strided ? trial_int(trial, 1, 2) : 1;
        int64_t extra = strided ? trial_int(trial, 0, 2) : 0;

        arg->stride[d] = stride * step;
        stride *= arg->dim[d] * step + extra;
    }
    return (uint64_t)((stride + 2 * margin) * pl_dtype_bytes(arg->dtype));
}

/* A root large enough for a random layout of arg's shape, filled with a pattern. */
static void array_lay_out(struct trial *trial, struct trial_array *array)
{
    struct kernel_arg *arg = &array->arg;
    int64_t bytes          = pl_dtype_bytes(arg->dtype);
    int64_t margin         = trial->strided ? trial_int(trial, 0, 3) : 0;

    array->root_bytes = array_stride(trial, arg, trial->strided, margin);
    if (array->root_bytes > STRIDED_BYTES_MAX) {
        array->root_bytes = array_stride(trial, arg, false, margin);
    }
    array->root   = allocate(array->root_bytes);
    array->before = allocate(array->root_bytes);
    memset(array->root, 0xA5, array->root_bytes);
    memset(array->before, 0xA5, array->root_bytes);
    arg->data.addr = (uint64_t)(uintptr_t)(array->root + margin * bytes);
}

static double random_value(struct trial *trial, uint32_t dtype, double low, double high)
{
    double unit = (double)(test_random(&trial->random) >> 11) * 0x1p-53;

    return trial_is_float(dtype) || trial_is_complex(dtype)
               ? low + unit * (high - low)
               : (double)trial_int(trial, (int64_t)low, (int64_t)high);
}

uint32_t trial_array(struct trial *trial, uint32_t mode, uint32_t dtype, uint32_t ndim,
                     const int64_t *dim, double low, double high)
{
    uint32_t index            = trial->count++;
    struct trial_array *array = &trial->array[index];

    ASSERT_TRUE(index < TRIAL_ARRAYS_MAX);
    array->is_output     = mode != KERNEL_IN;
    array->arg.mode      = mode;
    array->arg.reduce_op = mode == KERNEL_REDUCE ? KERNEL_SUM : 0;
    array->arg.dtype     = dtype;
    array->arg.ndim      = ndim;
    for (uint32_t d = 0; d < ndim; d++) {
        array->arg.dim[d] = dim[d];
    }
    array_lay_out(trial, array);
    if (mode == KERNEL_OUT || mode == KERNEL_SCRATCH) {
        return index;
    }
    for (int64_t i = 0; i < trial_elements(trial, index); i++) {
        double re = random_value(trial, dtype, low, high);
        double im = trial_is_complex(dtype) ? random_value(trial, dtype, low, high) : 0;

        trial_set_z(trial, index, i, trial_z(re, im));
    }
    return index;
}

void trial_out(struct trial *trial)
{
    struct trial_array *array = &trial->array[trial->count++];

    array->is_output = true;
    array->arg.mode  = KERNEL_OUT;
}

void trial_f64(struct trial *trial, double value)
{
    trial->scalar[trial->scalar_count++].f = value;
}

void trial_i64(struct trial *trial, int64_t value)
{
    trial->scalar[trial->scalar_count++].i = value;
}

void trial_prepare(struct trial *trial)
{
    struct kernel_arg_shape shape[TRIAL_ARRAYS_MAX] = {0};
    struct pl_err err                               = {0};

    for (uint32_t i = 0; i < trial->count; i++) {
        const struct kernel_arg *arg = &trial->array[i].arg;

        shape[i].mode        = arg->mode;
        shape[i].given       = trial->array[i].root != NULL;
        shape[i].shape.dtype = arg->dtype;
        shape[i].shape.ndim  = arg->ndim;
        shape[i].reduce_op   = arg->reduce_op;
        memcpy(shape[i].shape.dim, arg->dim, sizeof(arg->dim));
    }
    if (kernel_check(trial->function, shape, trial->count, trial->scalar,
                     trial->scalar_count, &err) != PLASMON_OK) {
        FAIL("%s", err.text);
    }
    for (uint32_t i = 0; i < trial->count; i++) {
        struct trial_array *array = &trial->array[i];
        uint64_t elements;

        if (array->root == NULL) {
            array->arg.dtype = shape[i].shape.dtype;
            array->arg.ndim  = shape[i].shape.ndim;
            memcpy(array->arg.dim, shape[i].shape.dim, sizeof(array->arg.dim));
            array_lay_out(trial, array);
        }
        if (array->is_output) {
            elements        = (uint64_t)trial_elements(trial, i);
            array->want     = allocate(elements * sizeof(double));
            array->want_im  = allocate(elements * sizeof(double));
            array->bound    = allocate(elements * sizeof(double));
            array->want_int = allocate(elements * sizeof(int64_t));
        }
    }
}

void trial_want(struct trial *trial, uint32_t index, int64_t flat, double want,
                double bound)
{
    trial->array[index].want[flat]  = want;
    trial->array[index].bound[flat] = bound;
}

void trial_want_z(struct trial *trial, uint32_t index, int64_t flat, double complex want,
                  double bound)
{
    trial_want(trial, index, flat, creal(want), bound);
    trial->array[index].want_im[flat] = cimag(want);
}

void trial_want_same(struct trial *trial, uint32_t index, int64_t flat, uint32_t from,
                     int64_t from_flat)
{
    trial_want_z(trial, index, flat, trial_get_z(trial, from, from_flat), 0);
    trial_want_int(trial, index, flat, trial_get_int(trial, from, from_flat));
}

void trial_want_int(struct trial *trial, uint32_t index, int64_t flat, int64_t want)
{
    trial->array[index].want_int[flat] = want;
}

/* ------------------------------------------------------------------------------ running */

plasmon_status_t trial_run_cpu(struct trial *trial, struct pl_err *err)
{
    struct kernel_arg args[TRIAL_ARRAYS_MAX];

    for (uint32_t i = 0; i < trial->count; i++) {
        args[i] = trial->array[i].arg;
    }
    return kernel_run_cpu_now(trial->function, args, trial->count, trial->scalar,
                              trial->scalar_count, err);
}

double trial_result(const struct trial *trial, uint32_t index, int64_t flat)
{
    const struct trial_array *array = &trial->array[index];

    return creal(element_z(trial_at(array, array->root, flat), array->arg.dtype));
}

/* Within the bound, or what the wanted number becomes in the dtype: an infinity where it is too large. */
static bool close_enough(uint32_t dtype, double got, double want, double bound)
{
    return got == want || fabs(got - want) <= bound || got == trial_rounded(dtype, want) ||
           (isnan(got) && isnan(want));
}

static void verify_element(const struct trial *trial, uint32_t index, int64_t i,
                           const char *where)
{
    const struct trial_array *array = &trial->array[index];
    const char *at                  = trial_at(array, array->root, i);
    uint32_t dtype                  = array->arg.dtype;
    double complex got              = element_z(at, dtype);

    if (trial_is_float(dtype) || trial_is_complex(dtype)) {
        /* A complex number is as good as the pair of its parts: each within the bound on the whole. */
        if (!close_enough(dtype, creal(got), array->want[i], array->bound[i]) ||
            !close_enough(dtype, cimag(got), array->want_im[i], array->bound[i])) {
            FAIL(
                "%s %s on %s: argument %u[%lld] is %.17g%+.17gi, wants %.17g%+.17gi within "
                "%.3g",
                trial->function->name, pl_dtype_name(dtype), where, index, (long long)i,
                creal(got), cimag(got), array->want[i], array->want_im[i], array->bound[i]);
        }
    } else if (element_int(at, dtype) != array->want_int[i]) {
        FAIL("%s %s on %s: argument %u[%lld] is %lld, wants %lld", trial->function->name,
             pl_dtype_name(dtype), where, index, (long long)i,
             (long long)element_int(at, dtype), (long long)array->want_int[i]);
    }
}

static void verify_values(const struct trial *trial, uint32_t index, const char *where)
{
    for (int64_t i = 0; i < trial_elements(trial, index); i++) {
        verify_element(trial, index, i, where);
    }
}

/* Puts the old bytes over the view: what still differs was written outside it. */
static void verify_outside(const struct trial *trial, uint32_t index, const char *where)
{
    const struct trial_array *array = &trial->array[index];
    uint32_t bytes                  = pl_dtype_bytes(array->arg.dtype);
    char *root                      = allocate(array->root_bytes);

    memcpy(root, array->root, array->root_bytes);
    for (int64_t i = 0; array->is_output && i < trial_elements(trial, index); i++) {
        memcpy((char *)(uintptr_t)trial_at(array, root, i),
               trial_at(array, array->before, i), bytes);
    }
    if (memcmp(root, array->before, array->root_bytes) != 0) {
        FAIL("%s on %s: wrote %s argument %u", trial->function->name, where,
             array->is_output ? "outside the view of" : "its input", index);
    }
    free(root);
}

void trial_verify(const struct trial *trial, const char *where)
{
    for (uint32_t i = 0; i < trial->count; i++) {
        if (trial->verify == NULL && trial->array[i].is_output &&
            trial->array[i].arg.mode != KERNEL_SCRATCH) {
            verify_values(trial, i, where);
        }
        verify_outside(trial, i, where);
    }
    if (trial->verify != NULL) {
        trial->verify(trial, where);
    }
}
