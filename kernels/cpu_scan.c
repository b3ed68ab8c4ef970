/*
 * CPU variants of cumsum and cumprod: a lane at a time. Floats accumulate in f64, integers in 64
 * bits that wrap around, complex numbers in c128; each prefix is rounded once.
 */
#include "kernels/cpu.h"
#include "kernels/element_complex.h"

#include <string.h>

struct scan {
    uint32_t dtype;
    bool product;
    bool exclusive;
};

#define SCAN_INTEGERS(T)                                                              \
    do {                                                                              \
        uint64_t total = scan->product;                                               \
                                                                                      \
        for (int64_t i = 0; i < lane->length; i++) {                                  \
            T x             = *(const T *)(const void *)(lane->x + i * lane->x_step); \
            T *y            = (T *)(void *)(lane->y + i * lane->y_step);              \
            uint64_t before = total;                                                  \
                                                                                      \
            total = scan->product ? total * (uint64_t)x : total + (uint64_t)x;        \
            *y    = (T)(scan->exclusive ? before : total);                            \
        }                                                                             \
    } while (0)

static struct kernel_c128 scan_next(const struct scan *scan, struct kernel_c128 total,
                                    struct kernel_c128 x)
{
    return scan->product ? kernel_c128_mul(total, x) : kernel_c128_add(total, x);
}

/*
 * Floats are complex numbers without an imaginary part here, but for the multiplication: infinity
 * times 0 is NaN.
 */
static double scan_next_real(const struct scan *scan, double total, double x)
{
    return scan->product ? total * x : total + x;
}

static void scan_floats(const struct scan *scan, const struct cpu_lane *lane)
{
    bool is_complex          = kernel_is_complex(scan->dtype);
    struct kernel_c128 total = {scan->product, 0};
    double re[CPU_BLOCK];
    double im[CPU_BLOCK];

    for (int64_t done = 0; done < lane->length; done += CPU_BLOCK) {
        int64_t n = lane->length - done < CPU_BLOCK ? lane->length - done : CPU_BLOCK;

        cpu_load_f64(scan->dtype, lane->x + done * lane->x_step, lane->x_step, n, re, im);
        for (int64_t i = 0; i < n; i++) {
            struct kernel_c128 before = total;

            if (is_complex) {
                total = scan_next(scan, total, kernel_c128_make(re[i], im[i]));
            } else {
                total.re = scan_next_real(scan, total.re, re[i]);
            }
            re[i] = scan->exclusive ? before.re : total.re;
            im[i] = scan->exclusive ? before.im : total.im;
        }
        cpu_store_f64(scan->dtype, re, is_complex ? im : NULL, n,
                      lane->y + done * lane->y_step, lane->y_step);
    }
}

static void scan_lane(void *user, const struct cpu_lane *lane)
{
    const struct scan *scan = user;

    switch (scan->dtype) {
    case PL_I32:
        SCAN_INTEGERS(int32_t);
        break;
    case PL_I64:
        SCAN_INTEGERS(int64_t);
        break;
    default:
        scan_floats(scan, lane);
        break;
    }
}

plasmon_status_t cpu_scan(const struct kernel_call *call, int op, struct pl_err *err)
{
    const struct kernel_arg *y = kernel_call_arg(call, 0);
    const struct kernel_arg *x = kernel_call_arg(call, 1);
    struct scan scan           = {.dtype     = x->dtype,
                                  .product   = op == KERNEL_REDUCTION_PROD,
                                  .exclusive = call->scalar[1].i != 0};

    (void)err;
    cpu_each_lane(y, x, (uint32_t)call->scalar[0].i, scan_lane, &scan);
    return PLASMON_OK;
}
