#include "trial.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/harness/test.h"

#define FAIL(...) test_fail(__FILE__, __LINE__, __VA_ARGS__)

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
        free(trial->array[i].bound);
        free(trial->array[i].want_int);
    }
}

/* ------------------------------------------------------------------------------------------------ values */

bool trial_is_float(uint32_t dtype)
{
    return dtype == PL_F32 || dtype == PL_F64;
}

double trial_epsilon(uint32_t dtype)
{
    return dtype == PL_F32 ? 0x1p-24 : 0x1p-53;
}

static void element_set(char *at, uint32_t dtype, double value)
{
    int64_t i = trial_is_float(dtype) ? 0 : (int64_t)value;
    float f   = (float)value;

    if (dtype == PL_F32) {
        memcpy(at, &f, sizeof(f));
    } else if (dtype == PL_F64) {
        memcpy(at, &value, sizeof(value));
    } else if (dtype == PL_BOOL) {
        *at = (char)(i != 0);
    } else { /* little-endian: the low bytes are the narrower number */
        memcpy(at, &i, pl_dtype_bytes(dtype) < 8 ? pl_dtype_bytes(dtype) : 8);
    }
    if (pl_dtype_bytes(dtype) == 16) { /* moved as bytes: the other half is checked too */
        i = ~i;
        memcpy(at + 8, &i, 8);
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

static double element_float(const char *at, uint32_t dtype)
{
    double value;
    float f;

    if (dtype == PL_F32) {
        memcpy(&f, at, sizeof(f));
        return (double)f;
    }
    if (dtype == PL_F64) {
        memcpy(&value, at, sizeof(value));
        return value;
    }
    return (double)element_int(at, dtype);
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

    return element_float(trial_at(array, array->before, flat), array->arg.dtype);
}

int64_t trial_get_int(const struct trial *trial, uint32_t index, int64_t flat)
{
    const struct trial_array *array = &trial->array[index];

    return trial_is_float(array->arg.dtype)
               ? 0
               : element_int(trial_at(array, array->before, flat), array->arg.dtype);
}

void trial_set(struct trial *trial, uint32_t index, int64_t flat, double value)
{
    struct trial_array *array = &trial->array[index];

    element_set((char *)(uintptr_t)trial_at(array, array->root, flat), array->arg.dtype,
                value);
    element_set((char *)(uintptr_t)trial_at(array, array->before, flat), array->arg.dtype,
                value);
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

/* ------------------------------------------------------------------------------------------------ building */

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

/* A root large enough for a random layout of arg's shape, filled with a pattern. */
static void array_lay_out(struct trial *trial, struct trial_array *array)
{
    struct kernel_arg *arg = &array->arg;
    int64_t bytes          = pl_dtype_bytes(arg->dtype);
    int64_t margin         = trial->strided ? trial_int(trial, 0, 3) : 0;
    int64_t stride         = 1;

    for (uint32_t d = arg->ndim; d-- > 0;) {
        int64_t step  = trial->strided ? trial_int(trial, 1, 2) : 1;
        int64_t extra = trial->strided ? trial_int(trial, 0, 2) : 0;

        arg->stride[d] = stride * step;
        stride *= arg->dim[d] * step + extra;
    }
    array->root_bytes = (uint64_t)((stride + 2 * margin) * bytes);
    array->root       = allocate(array->root_bytes);
    array->before     = allocate(array->root_bytes);
    memset(array->root, 0xA5, array->root_bytes);
    memset(array->before, 0xA5, array->root_bytes);
    arg->data.addr = (uint64_t)(uintptr_t)(array->root + margin * bytes);
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
    if (mode == KERNEL_OUT) {
        return index;
    }
    for (int64_t i = 0; i < trial_elements(trial, index); i++) {
        double unit = (double)(test_random(&trial->random) >> 11) * 0x1p-53;

        trial_set(trial, index, i,
                  trial_is_float(dtype)
                      ? low + unit * (high - low)
                      : (double)trial_int(trial, (int64_t)low, (int64_t)high));
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

void trial_want_int(struct trial *trial, uint32_t index, int64_t flat, int64_t want)
{
    trial->array[index].want_int[flat] = want;
}

/* ------------------------------------------------------------------------------------------------ running */

plasmon_status_t trial_run_cpu(struct trial *trial, struct pl_err *err)
{
    struct kernel_arg args[TRIAL_ARRAYS_MAX];

    for (uint32_t i = 0; i < trial->count; i++) {
        args[i] = trial->array[i].arg;
    }
    return kernel_run_cpu_now(trial->function, args, trial->count, trial->scalar,
                              trial->scalar_count, err);
}

static void verify_values(const struct trial *trial, uint32_t index, const char *where)
{
    const struct trial_array *array = &trial->array[index];
    uint32_t dtype                  = array->arg.dtype;

    for (int64_t i = 0; i < trial_elements(trial, index); i++) {
        const char *at = trial_at(array, array->root, i);

        if (trial_is_float(dtype)) {
            double got  = element_float(at, dtype);
            double want = array->want[i];

            if (got != want && !(fabs(got - want) <= array->bound[i]) &&
                !(isnan(got) && isnan(want))) {
                FAIL("%s %s on %s: argument %u[%lld] is %.17g, wants %.17g within %.3g",
                     trial->function->name, pl_dtype_name(dtype), where, index,
                     (long long)i, got, want, array->bound[i]);
            }
        } else if (element_int(at, dtype) != array->want_int[i]) {
            FAIL("%s %s on %s: argument %u[%lld] is %lld, wants %lld",
                 trial->function->name, pl_dtype_name(dtype), where, index, (long long)i,
                 (long long)element_int(at, dtype), (long long)array->want_int[i]);
        }
        if (pl_dtype_bytes(dtype) == 16 &&
            element_int(at + 8, PL_I64) != ~array->want_int[i]) {
            FAIL("%s on %s: the second half of argument %u[%lld] is wrong",
                 trial->function->name, where, index, (long long)i);
        }
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
        if (trial->array[i].is_output) {
            verify_values(trial, i, where);
        }
        verify_outside(trial, i, where);
    }
}
