/*
 * CPU variants that make values from nothing (fill, arange, random numbers), and cast.
 */
#include "kernels/cpu.h"
#include "kernels/element_complex.h"
#include "kernels/element_half.h"

#include <assert.h>
#include <stdint.h>
#include <string.h>

/* ---------------------------------------------------------------------------- one value */

#define BLOCK CPU_BLOCK /* elements that a cast takes at once */

/* Values on their way from one dtype to another: all the bits that any dtype has. */
enum wide_kind {
    WIDE_FLOAT,
    WIDE_COMPLEX,
    WIDE_SIGNED,
    WIDE_UNSIGNED,
};
struct wide {
    enum wide_kind kind;
    union {
        double f[BLOCK];
        int64_t i[BLOCK];
        uint64_t u[BLOCK];
    } value;
    double imaginary[BLOCK]; /* WIDE_COMPLEX only; the real parts are in value.f */
};

#define LOAD_AS(type, field, expression)                       \
    do {                                                       \
        for (int64_t i = 0; i < n; i++) {                      \
            type element;                                      \
            memcpy(&element, x + i * stride, sizeof(element)); \
            wide->value.field[i] = (expression);               \
        }                                                      \
    } while (0)
#define LOAD(type, field) LOAD_AS(type, field, element)
#define LOAD_COMPLEX(type)                                     \
    do {                                                       \
        for (int64_t i = 0; i < n; i++) {                      \
            type element;                                      \
            memcpy(&element, x + i * stride, sizeof(element)); \
            wide->value.f[i]   = (double)element.re;           \
            wide->imaginary[i] = (double)element.im;           \
        }                                                      \
    } while (0)

static enum wide_kind wide_kind_of(uint32_t dtype)
{
    if (kernel_is_complex(dtype)) {
        return WIDE_COMPLEX;
    }
    if (kernel_is_real_float(dtype)) {
        return WIDE_FLOAT;
    }
    return dtype == PL_U64 ? WIDE_UNSIGNED : WIDE_SIGNED;
}

static void wide_load(struct wide *wide, uint32_t dtype, const char *x, int64_t stride,
                      int64_t n)
{
    wide->kind = wide_kind_of(dtype);
    switch (dtype) {
    case PL_F16:
        LOAD_AS(uint16_t, f, (double)kernel_f16_to_f32(element));
        break;
    case PL_BF16:
        LOAD_AS(uint16_t, f, (double)kernel_bf16_to_f32(element));
        break;
    case PL_C64:
        LOAD_COMPLEX(struct kernel_c64);
        break;
    case PL_C128:
        LOAD_COMPLEX(struct kernel_c128);
        break;
    case PL_F32:
        LOAD(float, f);
        break;
    case PL_F64:
        LOAD(double, f);
        break;
    case PL_BOOL:
    case PL_U8:
        LOAD(uint8_t, i);
        break;
    case PL_I8:
        LOAD(int8_t, i);
        break;
    case PL_U16:
        LOAD(uint16_t, i);
        break;
    case PL_I16:
        LOAD(int16_t, i);
        break;
    case PL_U32:
        LOAD(uint32_t, i);
        break;
    case PL_I32:
        LOAD(int32_t, i);
        break;
    case PL_I64:
        LOAD(int64_t, i);
        break;
    default:
        LOAD(uint64_t, u);
        break;
    }
}

/* A complex number becomes a real one by dropping its imaginary part. */
#define STORE(type, from_float, from_integer)                  \
    do {                                                       \
        for (int64_t i = 0; i < n; i++) {                      \
            type element;                                      \
            if (wide->kind <= WIDE_COMPLEX) {                  \
                double f = wide->value.f[i];                   \
                element  = (type)(from_float);                 \
            } else if (wide->kind == WIDE_SIGNED) {            \
                int64_t v = wide->value.i[i];                  \
                element   = (type)(from_integer);              \
            } else {                                           \
                uint64_t v = wide->value.u[i];                 \
                element    = (type)(from_integer);             \
            }                                                  \
            memcpy(y + i * stride, &element, sizeof(element)); \
        }                                                      \
    } while (0)

static double wide_real(const struct wide *wide, int64_t i)
{
    switch (wide->kind) {
    case WIDE_SIGNED:
        return (double)wide->value.i[i];
    case WIDE_UNSIGNED:
        return (double)wide->value.u[i];
    default:
        return wide->value.f[i];
    }
}

/* To the nearest 16-bit float: see element_half.h. */
static float wide_odd(const struct wide *wide, int64_t i)
{
    switch (wide->kind) {
    case WIDE_SIGNED:
        return kernel_i64_to_f32_odd(wide->value.i[i]);
    case WIDE_UNSIGNED:
        return kernel_u64_to_f32_odd(wide->value.u[i]);
    default:
        return kernel_f64_to_f32_odd(wide->value.f[i]);
    }
}

static void wide_store_half(const struct wide *wide, uint32_t dtype, char *y,
                            int64_t stride, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        float value = wide_odd(wide, i);
        uint16_t bits =
            dtype == PL_F16 ? kernel_f32_to_f16(value) : kernel_f32_to_bf16(value);

        memcpy(y + i * stride, &bits, sizeof(bits));
    }
}

static void wide_store_complex(const struct wide *wide, uint32_t dtype, char *y,
                               int64_t stride, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        struct kernel_c128 z     = {wide_real(wide, i),
                                wide->kind == WIDE_COMPLEX ? wide->imaginary[i] : 0};
        struct kernel_c64 narrow = kernel_c128_narrow(z);

        if (dtype == PL_C128) {
            memcpy(y + i * stride, &z, sizeof(z));
            continue;
        }
        if (wide->kind == WIDE_SIGNED) { /* once, not by way of a double */
            narrow.re = (float)wide->value.i[i];
        } else if (wide->kind == WIDE_UNSIGNED) {
            narrow.re = (float)wide->value.u[i];
        }
        memcpy(y + i * stride, &narrow, sizeof(narrow));
    }
}

/* A complex number is true when either part is. */
static void wide_store_bool(const struct wide *wide, char *y, int64_t stride, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        bool value = wide_real(wide, i) != 0 ||
                     (wide->kind == WIDE_COMPLEX && wide->imaginary[i] != 0);

        y[i * stride] = (char)value;
    }
}

static void wide_store(const struct wide *wide, uint32_t dtype, char *y, int64_t stride,
                       int64_t n)
{
    switch (dtype) {
    case PL_F16:
    case PL_BF16:
        wide_store_half(wide, dtype, y, stride, n);
        break;
    case PL_C64:
    case PL_C128:
        wide_store_complex(wide, dtype, y, stride, n);
        break;
    case PL_F32:
        STORE(float, f, v);
        break;
    case PL_F64:
        STORE(double, f, v);
        break;
    case PL_BOOL:
        wide_store_bool(wide, y, stride, n);
        break;
    case PL_U8:
        STORE(uint8_t, kernel_f64_to_i64(f, 0, UINT8_MAX), v);
        break;
    case PL_I8:
        STORE(int8_t, kernel_f64_to_i64(f, INT8_MIN, INT8_MAX), v);
        break;
    case PL_U16:
        STORE(uint16_t, kernel_f64_to_i64(f, 0, UINT16_MAX), v);
        break;
    case PL_I16:
        STORE(int16_t, kernel_f64_to_i64(f, INT16_MIN, INT16_MAX), v);
        break;
    case PL_U32:
        STORE(uint32_t, kernel_f64_to_i64(f, 0, UINT32_MAX), v);
        break;
    case PL_I32:
        STORE(int32_t, kernel_f64_to_i64(f, INT32_MIN, INT32_MAX), v);
        break;
    case PL_I64:
        STORE(int64_t, kernel_f64_to_i64(f, INT64_MIN, INT64_MAX), v);
        break;
    default:
        STORE(uint64_t, kernel_f64_to_u64(f), v);
        break;
    }
}

void cpu_load_f64(uint32_t dtype, const char *x, int64_t stride, int64_t n, double *re,
                  double *im)
{
    struct wide wide;

    assert(n <= BLOCK);
    wide_load(&wide, dtype, x, stride, n);
    for (int64_t i = 0; i < n; i++) {
        re[i] = wide_real(&wide, i);
    }
    if (im != NULL) {
        for (int64_t i = 0; i < n; i++) {
            im[i] = wide.kind == WIDE_COMPLEX ? wide.imaginary[i] : 0;
        }
    }
}

void cpu_store_f64(uint32_t dtype, const double *re, const double *im, int64_t n, char *y,
                   int64_t stride)
{
    struct wide wide = {.kind = im == NULL ? WIDE_FLOAT : WIDE_COMPLEX};

    assert(n <= BLOCK);
    memcpy(wide.value.f, re, (size_t)n * sizeof(*re));
    if (im != NULL) {
        memcpy(wide.imaginary, im, (size_t)n * sizeof(*im));
    }
    wide_store(&wide, dtype, y, stride, n);
}

union kernel_value kernel_value_of_f64(uint32_t dtype, double value)
{
    union kernel_value result = {.bytes = {0}};
    struct wide wide          = {.kind = WIDE_FLOAT};

    wide.value.f[0] = value;
    wide_store(&wide, dtype, (char *)result.bytes, 0, 1);
    return result;
}

union kernel_value kernel_value_of_i64(uint32_t dtype, int64_t value)
{
    union kernel_value result = {.bytes = {0}};
    struct wide wide          = {.kind = WIDE_SIGNED};

    wide.value.i[0] = value;
    wide_store(&wide, dtype, (char *)result.bytes, 0, 1);
    return result;
}

bool kernel_identity(uint32_t dtype, uint32_t reduce_op, union kernel_value *out_value)
{
    bool extremes = reduce_op == KERNEL_MIN || reduce_op == KERNEL_MAX;

    if ((KERNEL_NUMBERS & KERNEL_DTYPE(dtype)) == 0 ||
        (extremes && kernel_is_complex(dtype))) {
        return false;
    }
    switch (reduce_op) {
    case KERNEL_SUM:
    case KERNEL_PROD:
        *out_value = kernel_value_of_i64(dtype, reduce_op == KERNEL_PROD);
        return true;
    case KERNEL_MIN: /* saturates to the far end of an integer */
        *out_value = kernel_value_of_f64(dtype, (double)INFINITY);
        return true;
    case KERNEL_MAX:
        *out_value = kernel_value_of_f64(dtype, -(double)INFINITY);
        return true;
    default:
        return false;
    }
}

/* --------------------------------------------------------------------------------- fill */

struct fill {
    union kernel_value value;
    uint32_t bytes;
};

static void fill_run(void *user, char *const ptr[], const int64_t stride[], int64_t first,
                     int64_t n)
{
    const struct fill *fill = user;
    char *x                 = ptr[0];

    (void)first;
    switch (fill->bytes) {
    case 1:
        for (int64_t i = 0; i < n; i++) {
            x[i * stride[0]] = (char)fill->value.bytes[0];
        }
        break;
    case 2:
        for (int64_t i = 0; i < n; i++) {
            memcpy(x + i * stride[0], fill->value.bytes, 2);
        }
        break;
    case 4:
        for (int64_t i = 0; i < n; i++) {
            memcpy(x + i * stride[0], fill->value.bytes, 4);
        }
        break;
    case 8:
        for (int64_t i = 0; i < n; i++) {
            memcpy(x + i * stride[0], fill->value.bytes, 8);
        }
        break;
    default:
        for (int64_t i = 0; i < n; i++) {
            memcpy(x + i * stride[0], fill->value.bytes, 16);
        }
        break;
    }
}

void cpu_fill(const struct kernel_arg *x, const union kernel_value *value)
{
    struct fill fill = {.value = *value, .bytes = pl_dtype_bytes(x->dtype)};
    struct kernel_walk walk;

    kernel_walk_init(&walk, x);
    kernel_walk_run(&walk, fill_run, &fill);
}

plasmon_status_t cpu_fill_f64(const struct kernel_call *call, int op, struct pl_err *err)
{
    const struct kernel_arg *x = kernel_call_arg(call, 0);
    union kernel_value value   = kernel_value_of_f64(x->dtype, call->scalar[0].f);

    (void)op;
    (void)err;
    cpu_fill(x, &value);
    return PLASMON_OK;
}

plasmon_status_t cpu_fill_i64(const struct kernel_call *call, int op, struct pl_err *err)
{
    const struct kernel_arg *x = kernel_call_arg(call, 0);
    union kernel_value value   = kernel_value_of_i64(x->dtype, call->scalar[0].i);

    (void)op;
    (void)err;
    cpu_fill(x, &value);
    return PLASMON_OK;
}

/* ----------------------------------------------------------------------- arange, random */

/* Values by flat index, computed in f64 a block at a time. */
struct generator {
    uint32_t dtype;
    uint32_t id; /* of enum kernel_id */
    const union kernel_scalar *scalar;
    uint64_t width; /* of a row; random numbers only */
};

static void generate_block(const struct generator *generator, int64_t first, int64_t n,
                           double *out)
{
    const union kernel_scalar *s = generator->scalar;

    if (generator->id == KERNEL_ID_arange) {
        for (int64_t i = 0; i < n; i++) {
            out[i] = s[0].f + (double)(first + i) * s[1].f;
        }
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        uint64_t row_stride = s[2].i == 0 ? generator->width : (uint64_t)s[2].i;
        uint64_t counter    = kernel_counter((uint64_t)(first + i), generator->width,
                                             (uint64_t)s[1].i, row_stride);

        if (generator->id == KERNEL_ID_random_normal) {
            out[i] = kernel_normal(counter, (uint64_t)s[0].i, s[3].f, s[4].f);
        } else {
            out[i] = kernel_uniform(counter, (uint64_t)s[0].i, s[3].f, s[4].f);
        }
    }
    if (generator->id == KERNEL_ID_random_uniform && kernel_is_integer(generator->dtype)) {
        for (int64_t i = 0; i < n; i++) {
            out[i] = floor(out[i]); /* or values between -1 and 1 would all become 0 */
        }
    }
}

static void generate_run(void *user, char *const ptr[], const int64_t stride[],
                         int64_t first, int64_t n)
{
    const struct generator *generator = user;
    struct wide wide                  = {.kind = WIDE_FLOAT};

    for (int64_t done = 0; done < n; done += BLOCK) {
        int64_t count = n - done < BLOCK ? n - done : BLOCK;

        generate_block(generator, first + done, count, wide.value.f);
        wide_store(&wide, generator->dtype, ptr[0] + done * stride[0], stride[0], count);
    }
}

static plasmon_status_t generate(const struct kernel_call *call)
{
    const struct kernel_arg *x = kernel_call_arg(call, 0);
    struct generator generator = {.dtype  = x->dtype,
                                  .id     = kernel_id_of(call->function),
                                  .scalar = call->scalar,
                                  .width =
                                      x->ndim == 0 ? 1 : (uint64_t)x->dim[x->ndim - 1]};
    struct kernel_walk walk;

    kernel_walk_init(&walk, x);
    kernel_walk_run(&walk, generate_run, &generator);
    return PLASMON_OK;
}

plasmon_status_t cpu_arange(const struct kernel_call *call, int op, struct pl_err *err)
{
    (void)op;
    (void)err;
    return generate(call);
}

plasmon_status_t cpu_random(const struct kernel_call *call, int op, struct pl_err *err)
{
    (void)op;
    (void)err;
    return generate(call);
}

/* --------------------------------------------------------------------------------- cast */

struct cast {
    uint32_t from;
    uint32_t to;
};

static void cast_run(void *user, char *const ptr[], const int64_t stride[], int64_t first,
                     int64_t n)
{
    const struct cast *cast = user;
    struct wide wide;

    (void)first;
    for (int64_t done = 0; done < n; done += BLOCK) {
        int64_t count = n - done < BLOCK ? n - done : BLOCK;

        wide_load(&wide, cast->from, ptr[1] + done * stride[1], stride[1], count);
        wide_store(&wide, cast->to, ptr[0] + done * stride[0], stride[0], count);
    }
}

void cpu_convert(const struct kernel_arg *y, const struct kernel_arg *x)
{
    struct cast cast = {.from = x->dtype, .to = y->dtype};
    struct kernel_walk walk;

    kernel_walk_init(&walk, y);
    kernel_walk_add(&walk, x);
    kernel_walk_run(&walk, cast_run, &cast);
}

plasmon_status_t cpu_cast(const struct kernel_call *call, int op, struct pl_err *err)
{
    (void)op;
    (void)err;
    cpu_convert(kernel_call_arg(call, 0), kernel_call_arg(call, 1));
    return PLASMON_OK;
}
