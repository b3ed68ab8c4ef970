/*
 * Numbers as unsigned integers of the same order, for sorting by digits: -0 and 0 are equal, and
 * every NaN comes after everything else. Shared by the CPU and the CUDA variants.
 */
#ifndef KERNELS_SORT_KEY_H
#define KERNELS_SORT_KEY_H

#include "kernels/element_half.h"

KERNEL_FN uint64_t kernel_key_i64(int64_t value)
{
    return (uint64_t)value ^ ((uint64_t)1 << 63);
}

KERNEL_FN uint32_t kernel_key_i32(int32_t value)
{
    return (uint32_t)value ^ 0x80000000u;
}

KERNEL_FN uint64_t kernel_key_f64(double value)
{
    uint64_t bits;

    if (!(value == value)) {
        return UINT64_MAX;
    }
    value += 0.0; /* -0 becomes 0 */
    memcpy(&bits, &value, sizeof(bits));
    return (bits >> 63) != 0 ? ~bits : bits | ((uint64_t)1 << 63);
}

KERNEL_FN uint32_t kernel_key_f32(float value)
{
    uint32_t bits;

    if (!(value == value)) {
        return UINT32_MAX;
    }
    bits = kernel_f32_bits(value + 0.0f);
    return (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
}

#endif
