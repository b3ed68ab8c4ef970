/*
 * CPU variants of norm, softmax and log_softmax, computed in f64 and rounded once.
 *
 * Softmax subtracts the largest element before it takes exponentials, so nothing overflows; what is
 * -infinity gets 0. A lane is read three times.
 */
#include "kernels/cpu.h"
#include "kernels/norm.h"

#include <math.h>

/* --------------------------------------------------------------------------------- norm */

struct norm {
    int op; /* of enum kernel_reduction */
    uint32_t from;
    uint32_t to;
    int64_t length;
    int64_t across; /* bytes */
    struct kernel_squares squares;
    double sum;
    double largest;
};

static void norm_clear(struct norm *norm)
{
    norm->squares = (struct kernel_squares){0, 0, 0};
    norm->sum     = 0;
    norm->largest = 0;
}

static void norm_add(struct norm *norm, double re, double im)
{
    double size;

    if (norm->op == KERNEL_REDUCTION_NORM_2) {
        kernel_squares_add(&norm->squares, re);
        kernel_squares_add(&norm->squares, im);
        return;
    }
    size = im == 0 ? fabs(re) : hypot(re, im);
    norm->sum += size;
    if (size > norm->largest || isnan(size)) {
        norm->largest = isnan(norm->largest) ? norm->largest : size;
    }
}

static double norm_value(const struct norm *norm)
{
    switch (norm->op) {
    case KERNEL_REDUCTION_NORM_1:
        return norm->sum;
    case KERNEL_REDUCTION_NORM_2:
        return kernel_squares_root(&norm->squares);
    default:
        return norm->largest;
    }
}

static void norm_run(struct norm *norm, const char *x, int64_t step, int64_t n)
{
    double re[CPU_BLOCK];
    double im[CPU_BLOCK];

    for (int64_t done = 0; done < n; done += CPU_BLOCK) {
        int64_t count = n - done < CPU_BLOCK ? n - done : CPU_BLOCK;

        cpu_load_f64(norm->from, x + done * step, step, count, re, im);
        for (int64_t i = 0; i < count; i++) {
            norm_add(norm, re[i], im[i]);
        }
    }
}

static void norm_all_run(void *user, char *const ptr[], const int64_t stride[],
                         int64_t first, int64_t n)
{
    (void)first;
    norm_run(user, ptr[0], stride[0], n);
}

static void norm_axis_run(void *user, char *const ptr[], const int64_t stride[],
                          int64_t first, int64_t n)
{
    struct norm *norm = user;

    (void)first;
    for (int64_t i = 0; i < n; i++) {
        double value;

        norm_clear(norm);
        norm_run(norm, ptr[1] + i * stride[1], norm->across, norm->length);
        value = norm_value(norm);
        cpu_store_f64(norm->to, &value, NULL, 1, ptr[0] + i * stride[0], 0);
    }
}

plasmon_status_t cpu_norm(const struct kernel_call *call, int op, struct pl_err *err)
{
    const struct kernel_arg *y = kernel_call_arg(call, 0);
    const struct kernel_arg *x = kernel_call_arg(call, 1);
    int64_t axis               = call->scalar[0].i;
    struct norm norm           = {
                  .op = kernel_norm_op(call->scalar[2].f), .from = x->dtype, .to = y->dtype};
    struct kernel_walk walk;
    double value;

    (void)op;
    (void)err;
    if (axis == -1) {
        kernel_walk_init(&walk, x);
        kernel_walk_run(&walk, norm_all_run, &norm);
        value = norm_value(&norm);
        cpu_store_f64(y->dtype, &value, NULL, 1, cpu_data(y), 0);
        return PLASMON_OK;
    }
    norm.length = x->dim[axis];
    norm.across = x->stride[axis] * (int64_t)pl_dtype_bytes(x->dtype);
    kernel_walk_outputs(&walk, y, x, axis);
    kernel_walk_run(&walk, norm_axis_run, &norm);
    return PLASMON_OK;
}

/* ------------------------------------------------------------------------------ softmax */

enum softmax_pass { PASS_LARGEST, PASS_SUM, PASS_WRITE };

struct softmax {
    uint32_t dtype;
    bool logarithm;
    enum softmax_pass pass;
    double largest;
    double sum;
};

static void softmax_begin(struct softmax *softmax)
{
    softmax->largest = -(double)INFINITY;
    softmax->sum     = 0;
}

static void softmax_run(struct softmax *softmax, const struct cpu_lane *lane)
{
    double value[CPU_BLOCK];
    double shift = isinf(softmax->largest) ? 0 : softmax->largest;

    for (int64_t done = 0; done < lane->length; done += CPU_BLOCK) {
        int64_t n = lane->length - done < CPU_BLOCK ? lane->length - done : CPU_BLOCK;

        cpu_load_f64(softmax->dtype, lane->x + done * lane->x_step, lane->x_step, n, value,
                     NULL);
        for (int64_t i = 0; i < n; i++) {
            switch (softmax->pass) {
            case PASS_LARGEST:
                softmax->largest = fmax(softmax->largest, value[i]);
                break;
            case PASS_SUM:
                softmax->sum += exp(value[i] - shift);
                break;
            case PASS_WRITE:
                value[i] = softmax->logarithm ? value[i] - shift - log(softmax->sum)
                                              : exp(value[i] - shift) / softmax->sum;
                break;
            }
        }
        if (softmax->pass == PASS_WRITE) {
            cpu_store_f64(softmax->dtype, value, NULL, n, lane->y + done * lane->y_step,
                          lane->y_step);
        }
    }
}

static void softmax_lane(void *user, const struct cpu_lane *lane)
{
    struct softmax *softmax = user;

    softmax_begin(softmax);
    for (softmax->pass = PASS_LARGEST; softmax->pass <= PASS_WRITE; softmax->pass++) {
        softmax_run(softmax, lane);
    }
}

/* A run of a softmax over all elements. */
static void softmax_all_run(void *user, char *const ptr[], const int64_t stride[],
                            int64_t first, int64_t n)
{
    struct cpu_lane lane = {
        .y = ptr[0], .x = ptr[1], .y_step = stride[0], .x_step = stride[1], .length = n};

    (void)first;
    softmax_run(user, &lane);
}

plasmon_status_t cpu_softmax(const struct kernel_call *call, int op, struct pl_err *err)
{
    const struct kernel_arg *y = kernel_call_arg(call, 0);
    const struct kernel_arg *x = kernel_call_arg(call, 1);
    int64_t axis               = call->scalar[0].i;
    struct softmax softmax     = {.dtype = x->dtype, .logarithm = op != 0};
    struct kernel_walk walk;

    (void)err;
    if (axis != -1) {
        cpu_each_lane(y, x, (uint32_t)axis, softmax_lane, &softmax);
        return PLASMON_OK;
    }
    softmax_begin(&softmax);
    for (softmax.pass = PASS_LARGEST; softmax.pass <= PASS_WRITE; softmax.pass++) {
        kernel_walk_init(&walk, y);
        kernel_walk_add(&walk, x);
        kernel_walk_run(&walk, softmax_all_run, &softmax);
    }
    return PLASMON_OK;
}
