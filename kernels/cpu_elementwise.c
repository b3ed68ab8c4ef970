/*
 * CPU variants of the elementwise functions: unary, binary with broadcasting, comparisons, and
 * those that update their first argument (axpy, add_into, accumulate), which are binary functions
 * with y as first operand. And fold and combine.
 *
 * 16-bit floats are widened to f32 a block at a time, and take the loops of f32; complex numbers
 * have loops of their own (cpu_complex.c).
 */
#include "kernels/cpu.h"
#include "kernels/element.h"
#include "kernels/element_half.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#define T          float
#define U          float
#define M(name)    name##f
#define NAME(name) name##_f32
#define IS_FLOAT   1
#include "kernels/cpu_elementwise_t.h"
#undef T
#undef U
#undef M
#undef NAME

#define T          double
#define U          double
#define M(name)    name
#define NAME(name) name##_f64
#include "kernels/cpu_elementwise_t.h"
#undef T
#undef U
#undef M
#undef NAME
#undef IS_FLOAT

#define T          int32_t
#define U          uint32_t
#define M(name)    name
#define NAME(name) name##_i32
#define IS_FLOAT   0
#include "kernels/cpu_elementwise_t.h"
#undef T
#undef U
#undef NAME

#define T          int64_t
#define U          uint64_t
#define NAME(name) name##_i64
#include "kernels/cpu_elementwise_t.h"
#undef T
#undef U
#undef NAME

struct elementwise {
    int op;
    uint32_t dtype; /* of the operands */
    union kernel_value s;
};

#define BLOCK 256 /* elements of a 16-bit float that are widened at once */

static struct elementwise elementwise_of(int op, uint32_t dtype, double scalar)
{
    return (struct elementwise){
        .op = op, .dtype = dtype, .s = kernel_value_of_f64(dtype, scalar)};
}

/* The scalar, rounded to the dtype and widened again. */
static float half_scalar(const struct elementwise *e)
{
    float value;

    cpu_half_widen(e->dtype, (const char *)e->s.bytes, 0, 1, &value);
    return value;
}

static int64_t block_of(int64_t done, int64_t n)
{
    return n - done < BLOCK ? n - done : BLOCK;
}

#define F32_STEP ((int64_t)sizeof(float))

/* -------------------------------------------------------------------------------- unary */

static void unary_half(const struct elementwise *e, char *y, int64_t ys, const char *x,
                       int64_t xs, int64_t n)
{
    float a[BLOCK];
    float out[BLOCK];

    for (int64_t done = 0; done < n; done += BLOCK) {
        int64_t count = block_of(done, n);

        cpu_half_widen(e->dtype, x + done * xs, xs, count, a);
        unary_f32(e->op, half_scalar(e), (char *)out, F32_STEP, (char *)a, F32_STEP, count);
        cpu_half_narrow(e->dtype, out, count, y + done * ys, ys);
    }
}

static void unary_run(void *user, char *const ptr[], const int64_t stride[], int64_t first,
                      int64_t n)
{
    const struct elementwise *e = user;

    (void)first;
    switch (e->dtype) {
    case PL_F32:
        unary_f32(e->op, e->s.f32, ptr[0], stride[0], ptr[1], stride[1], n);
        break;
    case PL_F64:
        unary_f64(e->op, e->s.f64, ptr[0], stride[0], ptr[1], stride[1], n);
        break;
    case PL_I32:
        unary_i32(e->op, e->s.i32, ptr[0], stride[0], ptr[1], stride[1], n);
        break;
    case PL_F16:
    case PL_BF16:
        unary_half(e, ptr[0], stride[0], ptr[1], stride[1], n);
        break;
    case PL_C64:
    case PL_C128:
        cpu_complex_unary(e->dtype, e->op, &e->s, ptr[0], stride[0], ptr[1], stride[1], n);
        break;
    default:
        unary_i64(e->op, e->s.i64, ptr[0], stride[0], ptr[1], stride[1], n);
        break;
    }
}

static plasmon_status_t unary(const struct kernel_call *call, int op, double scalar)
{
    const struct kernel_arg *y = kernel_call_arg(call, 0);
    const struct kernel_arg *x = kernel_call_arg(call, 1);
    struct elementwise e       = elementwise_of(op, x->dtype, scalar);
    struct kernel_walk walk;

    kernel_walk_init(&walk, y);
    kernel_walk_add(&walk, x);
    kernel_walk_run(&walk, unary_run, &e);
    return PLASMON_OK;
}

plasmon_status_t cpu_unary(const struct kernel_call *call, int op, struct pl_err *err)
{
    (void)err;
    return unary(call, op, 0);
}

plasmon_status_t cpu_scalar(const struct kernel_call *call, int op, struct pl_err *err)
{
    (void)err;
    return unary(call, op, call->scalar[0].f);
}

/* ------------------------------------------------------------------------------- binary */

static void binary_half(const struct elementwise *e, char *y, int64_t ys, const char *pa,
                        int64_t as, const char *pb, int64_t bs, int64_t n)
{
    float a[BLOCK];
    float b[BLOCK];

    for (int64_t done = 0; done < n; done += BLOCK) {
        int64_t count = block_of(done, n);

        cpu_half_widen(e->dtype, pa + done * as, as, count, a);
        cpu_half_widen(e->dtype, pb + done * bs, bs, count, b);
        binary_f32(e->op, half_scalar(e), (char *)a, F32_STEP, (char *)a, F32_STEP,
                   (char *)b, F32_STEP, count);
        cpu_half_narrow(e->dtype, a, count, y + done * ys, ys);
    }
}

static void binary_inner(const struct elementwise *e, char *y, int64_t ys, char *a,
                         int64_t as, char *b, int64_t bs, int64_t n)
{
    switch (e->dtype) {
    case PL_F32:
        binary_f32(e->op, e->s.f32, y, ys, a, as, b, bs, n);
        break;
    case PL_F64:
        binary_f64(e->op, e->s.f64, y, ys, a, as, b, bs, n);
        break;
    case PL_I32:
        binary_i32(e->op, e->s.i32, y, ys, a, as, b, bs, n);
        break;
    case PL_F16:
    case PL_BF16:
        binary_half(e, y, ys, a, as, b, bs, n);
        break;
    case PL_C64:
    case PL_C128:
        cpu_complex_binary(e->dtype, e->op, &e->s, y, ys, a, as, b, bs, n);
        break;
    default:
        binary_i64(e->op, e->s.i64, y, ys, a, as, b, bs, n);
        break;
    }
}

static void binary_run(void *user, char *const ptr[], const int64_t stride[], int64_t first,
                       int64_t n)
{
    (void)first;
    binary_inner(user, ptr[0], stride[0], ptr[1], stride[1], ptr[2], stride[2], n);
}

/* y = a op b; a may be y. */
static void binary(int op, double scalar, const struct kernel_arg *y,
                   const struct kernel_arg *a, const struct kernel_arg *b)
{
    struct elementwise e = elementwise_of(op, a->dtype, scalar);
    struct kernel_walk walk;

    kernel_walk_init(&walk, y);
    kernel_walk_add(&walk, a);
    kernel_walk_add(&walk, b);
    kernel_walk_run(&walk, binary_run, &e);
}

plasmon_status_t cpu_binary(const struct kernel_call *call, int op, struct pl_err *err)
{
    (void)err;
    binary(op, 0, kernel_call_arg(call, 0), kernel_call_arg(call, 1),
           kernel_call_arg(call, 2));
    return PLASMON_OK;
}

plasmon_status_t cpu_into(const struct kernel_call *call, int op, struct pl_err *err)
{
    const struct kernel_arg *y = kernel_call_arg(call, 0);
    double scalar              = call->scalar_count > 0 ? call->scalar[0].f : 0;

    (void)err;
    if (kernel_id_of(call->function) == KERNEL_ID_accumulate) {
        op = kernel_op_of_reduce(y->reduce_op);
    }
    binary(op, scalar, y, y, kernel_call_arg(call, 1));
    return PLASMON_OK;
}

/* ------------------------------------------------------------------------------ compare */

static void compare_bool(int op, char *y, int64_t ys, const char *pa, int64_t as,
                         const char *pb, int64_t bs, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        bool a = pa[i * as] != 0;
        bool b = pb[i * bs] != 0;

        y[i * ys] = (char)(op == KERNEL_OP_NOT           ? !a
                           : op == KERNEL_OP_LOGICAL_AND ? a && b
                                                         : a || b);
    }
}

static void compare_half(const struct elementwise *e, char *y, int64_t ys, const char *pa,
                         int64_t as, const char *pb, int64_t bs, int64_t n)
{
    float a[BLOCK];
    float b[BLOCK];

    for (int64_t done = 0; done < n; done += BLOCK) {
        int64_t count = block_of(done, n);

        cpu_half_widen(e->dtype, pa + done * as, as, count, a);
        cpu_half_widen(e->dtype, pb + done * bs, bs, count, b);
        compare_f32(e->op, y + done * ys, ys, (char *)a, F32_STEP, (char *)b, F32_STEP,
                    count);
    }
}

static void compare_run(void *user, char *const ptr[], const int64_t stride[],
                        int64_t first, int64_t n)
{
    const struct elementwise *e = user;

    (void)first;
    switch (e->dtype) {
    case PL_F32:
        compare_f32(e->op, ptr[0], stride[0], ptr[1], stride[1], ptr[2], stride[2], n);
        break;
    case PL_F64:
        compare_f64(e->op, ptr[0], stride[0], ptr[1], stride[1], ptr[2], stride[2], n);
        break;
    case PL_I32:
        compare_i32(e->op, ptr[0], stride[0], ptr[1], stride[1], ptr[2], stride[2], n);
        break;
    case PL_I64:
        compare_i64(e->op, ptr[0], stride[0], ptr[1], stride[1], ptr[2], stride[2], n);
        break;
    case PL_F16:
    case PL_BF16:
        compare_half(e, ptr[0], stride[0], ptr[1], stride[1], ptr[2], stride[2], n);
        break;
    case PL_C64:
    case PL_C128:
        cpu_complex_compare(e->dtype, e->op, ptr[0], stride[0], ptr[1], stride[1], ptr[2],
                            stride[2], n);
        break;
    default:
        compare_bool(e->op, ptr[0], stride[0], ptr[1], stride[1], ptr[2], stride[2], n);
        break;
    }
}

static void compare(int op, const struct kernel_arg *y, const struct kernel_arg *a,
                    const struct kernel_arg *b)
{
    struct elementwise e = {.op = op, .dtype = a->dtype};
    struct kernel_walk walk;

    kernel_walk_init(&walk, y);
    kernel_walk_add(&walk, a);
    kernel_walk_add(&walk, b);
    kernel_walk_run(&walk, compare_run, &e);
}

plasmon_status_t cpu_compare(const struct kernel_call *call, int op, struct pl_err *err)
{
    (void)err;
    compare(op, kernel_call_arg(call, 0), kernel_call_arg(call, 1),
            kernel_call_arg(call, 2));
    return PLASMON_OK;
}

plasmon_status_t cpu_logical(const struct kernel_call *call, int op, struct pl_err *err)
{
    (void)err;
    compare(op, kernel_call_arg(call, 0), kernel_call_arg(call, 1),
            kernel_call_arg(call, 1));
    return PLASMON_OK;
}

/* ------------------------------------------------------------------------ fold, combine */

/*
 * The tree joins neighbours level by level; the last of an odd level goes up alone:
 *
 *   x0 x1 x2 x3 x4  ->  (x0 x1) (x2 x3) x4  ->  ((x0 x1)(x2 x3)) x4  ->  (((x0 x1)(x2 x3)) x4)
 *
 * Which values meet depends only on how many there are, so the result is the same to the bit
 * wherever it is computed. It is done for as many elements at a time as 32 KiB of stack hold of all
 * arrays; an array whose elements lie side by side is read where it is. Each step rounds to the
 * dtype, also for 16-bit floats: that is what separate folds would do.
 */
#define FOLD_ROOM 32768

struct fold {
    struct elementwise e;
    const struct kernel_call *call;
    uint32_t bytes; /* of an element */
    bool combines;  /* the first x stands for what y held */
    bool dense[KERNEL_FOLD_MAX];
};

/* Elements first .. first + n of x, in C order, into `out`. */
static void gather(const struct kernel_arg *x, uint32_t bytes, int64_t first, int64_t n,
                   char *out)
{
    int64_t at[PL_DIM_MAX] = {0};
    int64_t rest           = first;
    int64_t offset         = 0;

    for (uint32_t d = x->ndim; d-- > 0;) {
        at[d] = rest % x->dim[d];
        rest /= x->dim[d];
        offset += at[d] * x->stride[d];
    }
    for (int64_t i = 0; i < n; i++) {
        memcpy(out + i * bytes, cpu_data(x) + offset * bytes, bytes);
        for (uint32_t d = x->ndim; d-- > 0;) {
            at[d]++;
            offset += x->stride[d];
            if (at[d] < x->dim[d]) {
                break;
            }
            offset -= x->stride[d] * x->dim[d];
            at[d] = 0;
        }
    }
}

/* The same elements where they are, or in `own`. */
static char *fold_values(const struct fold *fold, uint32_t i, int64_t first, int64_t n,
                         char *own)
{
    const struct kernel_arg *x = kernel_call_arg(fold->call, i + 1);

    if (fold->dense[i]) {
        return cpu_data(x) + first * fold->bytes;
    }
    gather(x, fold->bytes, first, n, own);
    return own;
}

static void fold_block(const struct fold *fold, char *y, int64_t y_stride, int64_t first,
                       int64_t n, char *room)
{
    uint32_t count               = fold->call->arg_count - 1;
    int64_t bytes                = fold->bytes;
    char *value[KERNEL_FOLD_MAX] = {NULL};
    uint32_t tree                = fold->combines ? 1 : 0; /* the first that is in it */
    char *y0                     = y;
    int64_t y0_stride            = y_stride;

    for (uint32_t i = 0; i < count; i++) {
        value[i] = fold_values(fold, i, first, n, room + i * n * bytes);
    }
    if (fold->combines) {
        y0        = value[0];
        y0_stride = bytes;
    }
    if (tree == count) {
        for (int64_t i = 0; i < n; i++) {
            memcpy(y + i * y_stride, y0 + i * bytes, (size_t)bytes);
        }
        return;
    }
    for (uint32_t width = count - tree; width > 1; width = (width + 1) / 2) {
        for (uint32_t i = 0; i < width / 2; i++) {
            char *out = room + (tree + i) * n * bytes;

            binary_inner(&fold->e, out, bytes, value[tree + 2 * i], bytes,
                         value[tree + 2 * i + 1], bytes, n);
            value[tree + i] = out;
        }
        if (width % 2 != 0) {
            value[tree + width / 2] = value[tree + width - 1];
        }
    }
    binary_inner(&fold->e, y, y_stride, y0, y0_stride, value[tree], bytes, n);
}

static void fold_run(void *user, char *const ptr[], const int64_t stride[], int64_t first,
                     int64_t n)
{
    const struct fold *fold = user;
    int64_t most = FOLD_ROOM / ((int64_t)fold->bytes * (fold->call->arg_count - 1));
    _Alignas(64) char room[FOLD_ROOM];

    for (int64_t done = 0; done < n; done += most) {
        fold_block(fold, ptr[0] + done * stride[0], stride[0], first + done,
                   n - done < most ? n - done : most, room);
    }
}

static plasmon_status_t fold_all(const struct kernel_call *call, bool combines)
{
    const struct kernel_arg *y = kernel_call_arg(call, 0);
    struct fold fold           = {
                  .e        = {.op = kernel_op_of_reduce(call->scalar[0].i), .dtype = y->dtype},
                  .call     = call,
                  .bytes    = pl_dtype_bytes(y->dtype),
                  .combines = combines,
    };
    struct kernel_walk walk;

    for (uint32_t i = 0; i + 1 < call->arg_count; i++) {
        fold.dense[i] = kernel_arg_dense(kernel_call_arg(call, i + 1));
    }
    kernel_walk_init(&walk, y);
    kernel_walk_run(&walk, fold_run, &fold);
    return PLASMON_OK;
}

plasmon_status_t cpu_fold(const struct kernel_call *call, int op, struct pl_err *err)
{
    (void)op;
    (void)err;
    return fold_all(call, false);
}

plasmon_status_t cpu_combine(const struct kernel_call *call, int op, struct pl_err *err)
{
    (void)op;
    (void)err;
    return fold_all(call, true);
}
