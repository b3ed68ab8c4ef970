/*
 * 16-bit floats on a CPU: a block at a time to f32 and back. What computes is the code for f32.
 */
#include "kernels/cpu.h"
#include "kernels/element_half.h"

#include <string.h>

/* The conversion is called in the loop so that compilers see it and vectorise. */
#define CONVERT(from, to, xs, ys, f)                           \
    do {                                                       \
        for (int64_t i = 0; i < n; i++) {                      \
            from a;                                            \
            to b;                                              \
                                                               \
            memcpy(&a, (const char *)x + i * (xs), sizeof(a)); \
            b = f(a);                                          \
            memcpy((char *)y + i * (ys), &b, sizeof(b));       \
        }                                                      \
    } while (0)

void cpu_half_widen(uint32_t dtype, const char *x, int64_t stride, int64_t n, float *y)
{
    const int64_t ys = sizeof(float);

    if (dtype == PL_BF16) {
        CONVERT(uint16_t, float, stride, ys, kernel_bf16_to_f32);
    } else if (stride == (int64_t)sizeof(uint16_t)) {
        CONVERT(uint16_t, float, (int64_t)sizeof(uint16_t), ys, kernel_f16_to_f32);
    } else {
        CONVERT(uint16_t, float, stride, ys, kernel_f16_to_f32);
    }
}

void cpu_half_narrow(uint32_t dtype, const float *x, int64_t n, char *y, int64_t stride)
{
    const int64_t xs = sizeof(float);

    if (dtype == PL_BF16) {
        CONVERT(float, uint16_t, xs, stride, kernel_f32_to_bf16);
    } else if (stride == (int64_t)sizeof(uint16_t)) {
        CONVERT(float, uint16_t, xs, (int64_t)sizeof(uint16_t), kernel_f32_to_f16);
    } else {
        CONVERT(float, uint16_t, xs, stride, kernel_f32_to_f16);
    }
}
