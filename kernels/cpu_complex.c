/*
 * CPU variants for complex numbers: the loops of the elementwise functions, the parts (real, imag,
 * abs), sums and products. cpu_elementwise.c and cpu_reduce.c come here when the dtype is complex.
 * Sums and products are taken in c128, and rounded once.
 */
#include "kernels/cpu.h"
#include "kernels/element_complex.h"

#include <string.h>

#define T          struct kernel_c64
#define R          float
#define Z(name)    kernel_c64_##name
#define NAME(name) name##_c64
#include "kernels/cpu_complex_t.h"
#undef T
#undef R
#undef Z
#undef NAME

#define T          struct kernel_c128
#define R          double
#define Z(name)    kernel_c128_##name
#define NAME(name) name##_c128
#include "kernels/cpu_complex_t.h"
#undef T
#undef R
#undef Z
#undef NAME

/* -------------------------------------------------------------------------- elementwise */

void cpu_complex_unary(uint32_t dtype, int op, const union kernel_value *s, char *y,
                       int64_t ys, char *x, int64_t as, int64_t n)
{
    struct kernel_c64 narrow;
    struct kernel_c128 wide;

    if (dtype == PL_C64) {
        memcpy(&narrow, s->bytes, sizeof(narrow));
        unary_c64(op, narrow, y, ys, x, as, n);
    } else {
        memcpy(&wide, s->bytes, sizeof(wide));
        unary_c128(op, wide, y, ys, x, as, n);
    }
}

void cpu_complex_binary(uint32_t dtype, int op, const union kernel_value *s, char *y,
                        int64_t ys, char *a, int64_t as, char *b, int64_t bs, int64_t n)
{
    struct kernel_c64 narrow;
    struct kernel_c128 wide;

    if (dtype == PL_C64) {
        memcpy(&narrow, s->bytes, sizeof(narrow));
        binary_c64(op, narrow, y, ys, a, as, b, bs, n);
    } else {
        memcpy(&wide, s->bytes, sizeof(wide));
        binary_c128(op, wide, y, ys, a, as, b, bs, n);
    }
}

void cpu_complex_compare(uint32_t dtype, int op, char *y, int64_t ys, char *a, int64_t as,
                         char *b, int64_t bs, int64_t n)
{
    if (dtype == PL_C64) {
        compare_c64(op, y, ys, a, as, b, bs, n);
    } else {
        compare_c128(op, y, ys, a, as, b, bs, n);
    }
}

struct part {
    uint32_t dtype; /* of x */
    int op;
};

static void part_run(void *user, char *const ptr[], const int64_t stride[], int64_t first,
                     int64_t n)
{
    const struct part *part = user;

    (void)first;
    if (part->dtype == PL_C64) {
        part_c64(part->op, ptr[0], stride[0], ptr[1], stride[1], n);
    } else {
        part_c128(part->op, ptr[0], stride[0], ptr[1], stride[1], n);
    }
}

plasmon_status_t cpu_part(const struct kernel_call *call, int op, struct pl_err *err)
{
    const struct kernel_arg *x = kernel_call_arg(call, 1);
    struct part part           = {.dtype = x->dtype, .op = op};
    struct kernel_walk walk;

    if (!kernel_is_complex(x->dtype)) { /* abs of a real number */
        return cpu_unary(call, op, err);
    }
    kernel_walk_init(&walk, kernel_call_arg(call, 0));
    kernel_walk_add(&walk, x);
    kernel_walk_run(&walk, part_run, &part);
    return PLASMON_OK;
}

/* --------------------------------------------------------------------------- reductions */

static struct kernel_c128 load(uint32_t dtype, const char *at)
{
    if (dtype == PL_C64) {
        return kernel_c64_widen(*(const struct kernel_c64 *)(const void *)at);
    }
    return *(const struct kernel_c128 *)(const void *)at;
}

static void store(uint32_t dtype, char *at, struct kernel_c128 value)
{
    if (dtype == PL_C64) {
        *(struct kernel_c64 *)(void *)at = kernel_c128_narrow(value);
    } else {
        *(struct kernel_c128 *)(void *)at = value;
    }
}

struct total {
    int op;
    uint32_t dtype;
    int64_t length;
    int64_t across; /* bytes */
    struct kernel_c128 value;
};

static struct kernel_c128 identity(int op)
{
    return kernel_c128_make(op == KERNEL_REDUCTION_PROD, 0);
}

static struct kernel_c128 reduce_run(int op, uint32_t dtype, struct kernel_c128 total,
                                     const char *x, int64_t step, int64_t n)
{
    if (op == KERNEL_REDUCTION_PROD) {
        for (int64_t i = 0; i < n; i++) {
            total = kernel_c128_mul(total, load(dtype, x + i * step));
        }
        return total;
    }
    for (int64_t i = 0; i < n; i++) {
        total = kernel_c128_add(total, load(dtype, x + i * step));
    }
    return total;
}

static void total_store(const struct total *total, struct kernel_c128 value, char *y)
{
    if (total->op == KERNEL_REDUCTION_MEAN) {
        value.re /= (double)total->length;
        value.im /= (double)total->length;
    }
    store(total->dtype, y, value);
}

/* A run of x, when all of it makes one output. */
static void all_run(void *user, char *const ptr[], const int64_t stride[], int64_t first,
                    int64_t n)
{
    struct total *total = user;

    (void)first;
    total->value = reduce_run(total->op, total->dtype, total->value, ptr[0], stride[0], n);
}

static void axis_run(void *user, char *const ptr[], const int64_t stride[], int64_t first,
                     int64_t n)
{
    const struct total *total = user;

    (void)first;
    for (int64_t i = 0; i < n; i++) {
        total_store(total,
                    reduce_run(total->op, total->dtype, identity(total->op),
                               ptr[1] + i * stride[1], total->across, total->length),
                    ptr[0] + i * stride[0]);
    }
}

void cpu_complex_reduce(const struct kernel_arg *y, const struct kernel_arg *x,
                        int64_t axis, int op)
{
    struct total total = {.op = op, .dtype = x->dtype, .value = identity(op)};
    struct kernel_walk walk;

    if (axis == -1) {
        total.length = kernel_arg_elements(x);
        kernel_walk_init(&walk, x);
        kernel_walk_run(&walk, all_run, &total);
        total_store(&total, total.value, cpu_data(y));
        return;
    }
    total.length = x->dim[axis];
    total.across = x->stride[axis] * (int64_t)pl_dtype_bytes(x->dtype);
    kernel_walk_outputs(&walk, y, x, axis);
    kernel_walk_run(&walk, axis_run, &total);
}

void cpu_complex_dot(const struct kernel_arg *c, const struct kernel_arg *x,
                     const struct kernel_arg *y)
{
    int64_t bytes            = pl_dtype_bytes(x->dtype);
    struct kernel_c128 total = {0, 0};

    for (int64_t i = 0; i < x->dim[0]; i++) {
        total = kernel_c128_add(
            total, kernel_c128_mul(load(x->dtype, cpu_data(x) + i * x->stride[0] * bytes),
                                   load(y->dtype, cpu_data(y) + i * y->stride[0] * bytes)));
    }
    store(c->dtype, cpu_data(c), total);
}
