/*
 * CPU variants of the Fourier transforms: lane by lane, axis by axis, in f64; each axis rounds once
 * to the dtype.
 *
 * Scratch: what a lane needs (fft_lane.h), the longest of them; for irfft over several axes also a
 * dense copy of x, because x must stay as it is while its leading axes are transformed.
 */
#include "kernels/cpu.h"
#include "kernels/fft_lane.h"

#include <string.h>

struct transform {
    struct fft_lane lane;
    uint32_t x_dtype;
    uint32_t y_dtype;
    int64_t x_length; /* numbers that are read of a lane */
    int64_t y_length; /* and written */
    bool inverse;
};

/* -------------------------------------------------------------------------------- lanes */

static void lane_load(struct transform *t, const struct cpu_lane *at)
{
    struct fft_parts *data = &t->lane.data;
    bool is_complex        = kernel_is_complex(t->x_dtype);

    for (int64_t done = 0; done < t->x_length; done += CPU_BLOCK) {
        int64_t n = t->x_length - done < CPU_BLOCK ? t->x_length - done : CPU_BLOCK;

        cpu_load_f64(t->x_dtype, at->x + done * at->x_step, at->x_step, n, data->re + done,
                     is_complex ? data->im + done : NULL);
    }
    if (!is_complex) {
        memset(data->im, 0, (size_t)t->x_length * sizeof(double));
    }
}

/* The other half of what has a real transform; what must be real by symmetry is taken as real. */
static void lane_mirror(struct transform *t)
{
    struct fft_parts *data = &t->lane.data;
    int64_t n              = t->y_length;

    data->im[0] = 0;
    if (n % 2 == 0) {
        data->im[n / 2] = 0;
    }
    for (int64_t j = n / 2 + 1; j < n; j++) {
        data->re[j] = data->re[n - j];
        data->im[j] = -data->im[n - j];
    }
}

static void lane_store(struct transform *t, const struct cpu_lane *at)
{
    struct fft_parts *data = &t->lane.data;
    bool is_complex        = kernel_is_complex(t->y_dtype);
    double count           = (double)t->lane.n;

    for (int64_t i = 0; t->inverse && i < t->y_length; i++) {
        data->re[i] /= count;
        data->im[i] /= count;
    }
    for (int64_t done = 0; done < t->y_length; done += CPU_BLOCK) {
        int64_t n = t->y_length - done < CPU_BLOCK ? t->y_length - done : CPU_BLOCK;

        cpu_store_f64(t->y_dtype, data->re + done, is_complex ? data->im + done : NULL, n,
                      at->y + done * at->y_step, at->y_step);
    }
}

static void lane_transform(void *user, const struct cpu_lane *at)
{
    struct transform *t = user;

    lane_load(t, at);
    if (kernel_is_complex(t->x_dtype) && !kernel_is_complex(t->y_dtype)) {
        lane_mirror(t);
    }
    fft_lane_run(&t->lane, t->inverse);
    lane_store(t, at);
}

/* Of an axis of which one array may have the half that is not symmetric: the transform's length. */
static int64_t longer(const struct kernel_arg *y, const struct kernel_arg *x, uint32_t axis)
{
    return x->dim[axis] > y->dim[axis] ? x->dim[axis] : y->dim[axis];
}

/* Along one axis of x into y, which may be x. */
static void axis_transform(const struct kernel_arg *y, const struct kernel_arg *x,
                           uint32_t axis, bool inverse, void *memory)
{
    struct transform t = {.x_dtype  = x->dtype,
                          .y_dtype  = y->dtype,
                          .x_length = x->dim[axis],
                          .y_length = y->dim[axis],
                          .inverse  = inverse};

    fft_lane_init(&t.lane, longer(y, x, axis), memory);
    cpu_each_lane(y, x, axis, lane_transform, &t);
}

/* -------------------------------------------------------------------------------- calls */

plasmon_status_t cpu_fft(const struct kernel_call *call, int op, struct pl_err *err)
{
    const struct kernel_arg *y = kernel_call_arg(call, 0);
    const struct kernel_arg *x = kernel_call_arg(call, 1);
    uint32_t last              = x->ndim - 1;
    uint32_t first             = x->ndim - (uint32_t)call->scalar[0].i;
    void *memory = (void *)(uintptr_t)call->scratch.addr; // NOLINT: an address by contract

    (void)op;
    (void)err;
    axis_transform(y, x, last, false, memory);
    for (uint32_t axis = first; axis < last; axis++) {
        axis_transform(y, y, axis, false, memory);
    }
    return PLASMON_OK;
}

/* The leading axes first: the last one may make real numbers of complex ones. */
plasmon_status_t cpu_ifft(const struct kernel_call *call, int op, struct pl_err *err)
{
    const struct kernel_arg *y = kernel_call_arg(call, 0);
    const struct kernel_arg *x = kernel_call_arg(call, 1);
    uint32_t last              = x->ndim - 1;
    uint32_t first             = x->ndim - (uint32_t)call->scalar[0].i;
    char *memory = (char *)(uintptr_t)call->scratch.addr; // NOLINT: an address by contract
    struct kernel_arg between = *x;

    (void)op;
    (void)err;
    if (first < last) {
        between = y->dtype == x->dtype
                      ? *y
                      : kernel_arg_compact(x, (struct device_ptr){call->scratch.addr});
        memory += y->dtype == x->dtype ? 0 : kernel_fft_copy_bytes(x);
    }
    for (uint32_t axis = first; axis < last; axis++) {
        axis_transform(&between, axis == first ? x : &between, axis, true, memory);
    }
    axis_transform(y, &between, last, true, memory);
    return PLASMON_OK;
}

/* ------------------------------------------------------------------------------ scratch */

uint64_t kernel_fft_copy_bytes(const struct kernel_arg *x)
{
    return pl_round_up((uint64_t)kernel_arg_elements(x) * pl_dtype_bytes(x->dtype), 256);
}

uint64_t cpu_fft_scratch(const struct kernel_function *function,
                         const struct kernel_arg *args, uint32_t arg_count,
                         const union kernel_scalar *scalars)
{
    uint64_t most = 0;

    (void)function;
    (void)arg_count;
    for (uint32_t axis = args[1].ndim - (uint32_t)scalars[0].i; axis < args[1].ndim;
         axis++) {
        uint64_t bytes = fft_lane_bytes(longer(&args[0], &args[1], axis));

        most = bytes > most ? bytes : most;
    }
    return most;
}

uint64_t cpu_ifft_scratch(const struct kernel_function *function,
                          const struct kernel_arg *args, uint32_t arg_count,
                          const union kernel_scalar *scalars)
{
    bool copies = scalars[0].i > 1 && args[0].dtype != args[1].dtype;

    return cpu_fft_scratch(function, args, arg_count, scalars) +
           (copies ? kernel_fft_copy_bytes(&args[1]) : 0);
}
