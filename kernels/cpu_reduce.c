/*
 * CPU variants of the reductions and of dot.
 *
 * Floats are summed in double, integers in 64 bits that wrap around, then cast. A reduction over
 * one axis goes over the outputs a run at a time: where the axis is the dense one each output is a
 * run of its own, otherwise the rows are added up for COLUMNS outputs at once, so that memory is
 * read in its order. The result depends on the shape and the strides only.
 */
#include "kernels/cpu.h"
#include "kernels/element_half.h"

#include <assert.h>
#include <stdint.h>
#include <string.h>

#define LANES   8
#define COLUMNS 128 /* accumulators of 1 KiB stay in the first cache */

#define IS_FLOAT   1
#define A          double
#define T          uint16_t
#define LOAD(x)    kernel_f16_to_f32(x)
#define NAME(name) name##_f16
#include "kernels/cpu_reduce_t.h"
#undef LOAD
#undef NAME
#define LOAD(x)    kernel_bf16_to_f32(x)
#define NAME(name) name##_bf16
#include "kernels/cpu_reduce_t.h"
#undef LOAD
#undef T
#undef NAME
#define LOAD(x)    (x)
#define T          float
#define NAME(name) name##_f32
#include "kernels/cpu_reduce_t.h"
#undef T
#undef NAME
#define T          double
#define NAME(name) name##_f64
#include "kernels/cpu_reduce_t.h"
#undef T
#undef NAME
#undef A
#undef IS_FLOAT

#define IS_FLOAT   0
#define A          int64_t
#define T          int32_t
#define NAME(name) name##_i32
#include "kernels/cpu_reduce_t.h"
#undef T
#undef NAME
#define T          int64_t
#define NAME(name) name##_i64
#include "kernels/cpu_reduce_t.h"
#undef T
#undef NAME
#undef A
#undef IS_FLOAT
#undef LOAD

/* An accumulator of any of the types above. */
union total {
    double f;
    int64_t i;
};

struct reduction {
    int op;
    uint32_t from;  /* dtype of x */
    uint32_t to;    /* of y */
    int64_t length; /* elements that make one output */
    int64_t across; /* bytes between them (one axis) */
    bool empty;     /* over all axes: nothing seen yet */
    union total total;
};

/* --------------------------------------------------------------------- one type of many */

static union total reduce_run(const struct reduction *r, const char *x, int64_t step,
                              int64_t n)
{
    switch (r->from) {
    case PL_F16:
        return (union total){.f = reduce_run_f16(r->op, x, step, n)};
    case PL_BF16:
        return (union total){.f = reduce_run_bf16(r->op, x, step, n)};
    case PL_F32:
        return (union total){.f = reduce_run_f32(r->op, x, step, n)};
    case PL_F64:
        return (union total){.f = reduce_run_f64(r->op, x, step, n)};
    case PL_I32:
        return (union total){.i = reduce_run_i32(r->op, x, step, n)};
    default:
        return (union total){.i = reduce_run_i64(r->op, x, step, n)};
    }
}

static union total join(const struct reduction *r, union total a, union total b)
{
    if (kernel_is_real_float(r->from)) {
        return (union total){.f = join_f64(r->op, a.f, b.f)};
    }
    return (union total){.i = join_i64(r->op, a.i, b.i)};
}

static void reduce_columns(const struct reduction *r, const char *x, int64_t step,
                           int64_t n, union total *out)
{
    /* Both members of the union are 8 bytes, so an array of it is an array of either. */
    switch (r->from) {
    case PL_F16:
        reduce_columns_f16(r->op, x, step, r->across, r->length, n, &out->f);
        break;
    case PL_BF16:
        reduce_columns_bf16(r->op, x, step, r->across, r->length, n, &out->f);
        break;
    case PL_F32:
        reduce_columns_f32(r->op, x, step, r->across, r->length, n, &out->f);
        break;
    case PL_F64:
        reduce_columns_f64(r->op, x, step, r->across, r->length, n, &out->f);
        break;
    case PL_I32:
        reduce_columns_i32(r->op, x, step, r->across, r->length, n, &out->i);
        break;
    default:
        reduce_columns_i64(r->op, x, step, r->across, r->length, n, &out->i);
        break;
    }
}
static_assert(sizeof(union total) == 8, "reduce_columns() counts on it");

static void store(const struct reduction *r, union total total, char *y)
{
    if (r->op == KERNEL_REDUCTION_MEAN) {
        double sum = kernel_is_real_float(r->from) ? total.f : (double)total.i;

        total.f = sum / (double)r->length;
    }
    switch (r->to) {
    case PL_F16:
        *(uint16_t *)(void *)y = kernel_f32_to_f16(kernel_f64_to_f32_odd(total.f));
        break;
    case PL_BF16:
        *(uint16_t *)(void *)y = kernel_f32_to_bf16(kernel_f64_to_f32_odd(total.f));
        break;
    case PL_F32:
        *(float *)(void *)y = (float)total.f;
        break;
    case PL_F64:
        *(double *)(void *)y = total.f;
        break;
    case PL_I32:
        *(int32_t *)(void *)y = (int32_t)total.i;
        break;
    default:
        *(int64_t *)(void *)y = total.i;
        break;
    }
}

/* ------------------------------------------------------------ sum, prod, min, max, mean */

/* A run of outputs; ptr[0] is in y, ptr[1] is the first element of x for it. */
static void axis_run(void *user, char *const ptr[], const int64_t stride[], int64_t first,
                     int64_t n)
{
    const struct reduction *r = user;
    union total total[COLUMNS];

    (void)first;
    if (r->across < stride[1] || n == 1) {
        for (int64_t i = 0; i < n; i++) {
            total[0] = reduce_run(r, ptr[1] + i * stride[1], r->across, r->length);
            store(r, total[0], ptr[0] + i * stride[0]);
        }
        return;
    }
    for (int64_t done = 0; done < n; done += COLUMNS) {
        int64_t count = n - done < COLUMNS ? n - done : COLUMNS;

        reduce_columns(r, ptr[1] + done * stride[1], stride[1], count, total);
        for (int64_t i = 0; i < count; i++) {
            store(r, total[i], ptr[0] + (done + i) * stride[0]);
        }
    }
}

/* A run of x, when all of it makes one output. */
static void all_run(void *user, char *const ptr[], const int64_t stride[], int64_t first,
                    int64_t n)
{
    struct reduction *r = user;
    union total part    = reduce_run(r, ptr[0], stride[0], n);

    (void)first;
    r->total = r->empty ? part : join(r, r->total, part);
    r->empty = false;
}

plasmon_status_t cpu_reduce(const struct kernel_call *call, int op, struct pl_err *err)
{
    const struct kernel_arg *y = kernel_call_arg(call, 0);
    const struct kernel_arg *x = kernel_call_arg(call, 1);
    int64_t axis               = call->scalar[0].i;
    struct reduction r = {.op = op, .from = x->dtype, .to = y->dtype, .empty = true};
    struct kernel_walk walk;

    (void)err;
    if (kernel_is_complex(x->dtype)) {
        cpu_complex_reduce(y, x, axis, op);
        return PLASMON_OK;
    }
    if (axis == -1) {
        r.length = kernel_arg_elements(x);
        kernel_walk_init(&walk, x);
        kernel_walk_run(&walk, all_run, &r);
        store(&r, r.total, cpu_data(y));
        return PLASMON_OK;
    }
    r.length = x->dim[axis];
    r.across = x->stride[axis] * (int64_t)pl_dtype_bytes(x->dtype);
    kernel_walk_outputs(&walk, y, x, axis);
    kernel_walk_run(&walk, axis_run, &r);
    return PLASMON_OK;
}

/* ----------------------------------------------------------------------- argmin, argmax */

struct arg_reduction {
    int op;
    uint32_t from;
    int64_t length;
    int64_t across;
    union total best;
    int64_t index; /* of the best so far; -1: none yet */
};

static void arg_run(struct arg_reduction *r, const char *x, int64_t step, int64_t n,
                    int64_t first)
{
    switch (r->from) {
    case PL_F16:
        arg_run_f16(r->op, x, step, n, first, &r->best.f, &r->index);
        break;
    case PL_BF16:
        arg_run_bf16(r->op, x, step, n, first, &r->best.f, &r->index);
        break;
    case PL_F32:
        arg_run_f32(r->op, x, step, n, first, &r->best.f, &r->index);
        break;
    case PL_F64:
        arg_run_f64(r->op, x, step, n, first, &r->best.f, &r->index);
        break;
    case PL_I32:
        arg_run_i32(r->op, x, step, n, first, &r->best.i, &r->index);
        break;
    default:
        arg_run_i64(r->op, x, step, n, first, &r->best.i, &r->index);
        break;
    }
}

static void arg_all_run(void *user, char *const ptr[], const int64_t stride[],
                        int64_t first, int64_t n)
{
    arg_run(user, ptr[0], stride[0], n, first);
}

static void arg_axis_run(void *user, char *const ptr[], const int64_t stride[],
                         int64_t first, int64_t n)
{
    struct arg_reduction *r = user;

    (void)first;
    for (int64_t i = 0; i < n; i++) {
        r->index = -1;
        arg_run(r, ptr[1] + i * stride[1], r->across, r->length, 0);
        *(int64_t *)(void *)(ptr[0] + i * stride[0]) = r->index;
    }
}

plasmon_status_t cpu_arg_reduce(const struct kernel_call *call, int op, struct pl_err *err)
{
    const struct kernel_arg *y = kernel_call_arg(call, 0);
    const struct kernel_arg *x = kernel_call_arg(call, 1);
    int64_t axis               = call->scalar[0].i;
    struct arg_reduction r     = {.op = op, .from = x->dtype, .index = -1};
    struct kernel_walk walk;

    (void)err;
    if (axis == -1) {
        kernel_walk_init(&walk, x);
        kernel_walk_run(&walk, arg_all_run, &r);
        *(int64_t *)(void *)cpu_data(y) = r.index;
        return PLASMON_OK;
    }
    r.length = x->dim[axis];
    r.across = x->stride[axis] * (int64_t)pl_dtype_bytes(x->dtype);
    kernel_walk_outputs(&walk, y, x, axis);
    kernel_walk_run(&walk, arg_axis_run, &r);
    return PLASMON_OK;
}

/* ---------------------------------------------------------------------------------- dot */

plasmon_status_t cpu_dot(const struct kernel_call *call, int op, struct pl_err *err)
{
    const struct kernel_arg *c = kernel_call_arg(call, 0);
    const struct kernel_arg *x = kernel_call_arg(call, 1);
    const struct kernel_arg *y = kernel_call_arg(call, 2);
    struct reduction r         = {.op = op, .from = x->dtype, .to = c->dtype};
    int64_t bytes              = pl_dtype_bytes(x->dtype);
    int64_t xs                 = x->stride[0] * bytes;
    int64_t ys                 = y->stride[0] * bytes;
    int64_t n                  = x->dim[0];

    (void)err;
    switch (x->dtype) {
    case PL_C64:
    case PL_C128:
        cpu_complex_dot(c, x, y);
        return PLASMON_OK;
    case PL_F16:
        r.total.f = dot_run_f16(cpu_data(x), xs, cpu_data(y), ys, n);
        break;
    case PL_BF16:
        r.total.f = dot_run_bf16(cpu_data(x), xs, cpu_data(y), ys, n);
        break;
    case PL_F32:
        r.total.f = dot_run_f32(cpu_data(x), xs, cpu_data(y), ys, n);
        break;
    case PL_F64:
        r.total.f = dot_run_f64(cpu_data(x), xs, cpu_data(y), ys, n);
        break;
    case PL_I32:
        r.total.i = dot_run_i32(cpu_data(x), xs, cpu_data(y), ys, n);
        break;
    default:
        r.total.i = dot_run_i64(cpu_data(x), xs, cpu_data(y), ys, n);
        break;
    }
    store(&r, r.total, cpu_data(c));
    return PLASMON_OK;
}
