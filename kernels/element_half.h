/*
 * The 16-bit floats: bits to f32 and back, rounded to nearest even, on hosts and on devices alike.
 * There is no arithmetic in 16 bits anywhere: functions widen to f32, work there, and round once
 * when they store.
 *
 * ONE ROUNDING. A double or an integer must not be rounded to f32 first and to 16 bits then: the
 * two together can differ from the nearest number. So the first step rounds to odd, which keeps
 * what the second one needs to know.
 *
 * Every NaN becomes the one that GPUs make, 0x7fff, so that casts have the same bits on every device.
 */
#ifndef KERNELS_ELEMENT_HALF_H
#define KERNELS_ELEMENT_HALF_H

#include "kernels/element.h"

KERNEL_FN uint32_t kernel_f32_bits(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

KERNEL_FN float kernel_f32_of_bits(uint32_t bits)
{
    float value;

    memcpy(&value, &bits, sizeof(value));
    return value;
}

KERNEL_FN float kernel_bf16_to_f32(uint16_t bits)
{
    return kernel_f32_of_bits((uint32_t)bits << 16);
}

KERNEL_FN uint16_t kernel_f32_to_bf16(float value)
{
    uint32_t bits = kernel_f32_bits(value);

    if (!(value == value)) {
        return 0x7fff;
    }
    return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

#ifdef __CUDACC__

KERNEL_FN float kernel_f16_to_f32(uint16_t bits)
{
    float value;

    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
}

KERNEL_FN uint16_t kernel_f32_to_f16(float value)
{
    uint16_t bits;

    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}

#else

/*
 * Without branches, so that loops are vectorised. 2^112 moves the exponent of f16 to that of f32,
 * subnormals included.
 */
KERNEL_FN float kernel_f16_to_f32(uint16_t bits)
{
    uint32_t magnitude = (uint32_t)(bits & 0x7fffu) << 13;
    float value        = kernel_f32_of_bits(magnitude) * 0x1p112f;
    uint32_t special   = magnitude >= 0x7c00u << 13 ? 0x7f800000u : 0;

    return kernel_f32_of_bits(kernel_f32_bits(value) | special |
                              (uint32_t)(bits & 0x8000u) << 16);
}

KERNEL_FN uint16_t kernel_f32_to_f16(float value)
{
    uint32_t bits      = kernel_f32_bits(value);
    uint32_t sign      = (bits >> 16) & 0x8000u;
    uint32_t magnitude = bits & 0x7fffffffu;
    /*
     * Subnormals of f16 are multiples of 2^-24: adding 0.5 rounds to them, and they are the low
     * bits of the sum.
     */
    uint32_t small =
        kernel_f32_bits(kernel_f32_of_bits(magnitude) + 0.5f) - kernel_f32_bits(0.5f);
    uint32_t normal = (magnitude - (112u << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;

    if (magnitude > 0x7f800000u) {
        return 0x7fff;
    }
    if (magnitude >= 0x477ff000u) { /* 65520 and more */
        return (uint16_t)(sign | 0x7c00u);
    }
    return (uint16_t)(sign | (magnitude < 113u << 23 ? small : normal));
}

#endif

/* To the f32 next to `value` whose last bit is set, unless a f32 is equal to it. */
KERNEL_FN float kernel_f64_to_f32_odd(double value)
{
    float nearest = (float)value;
    uint32_t bits = kernel_f32_bits(nearest);
    double back   = (double)nearest;

    if (!(value == value) || back == value) {
        return nearest;
    }
    /* Truncate, then set the last bit. Infinity steps back to the largest number, which rounds up again. */
    if (fabs(back) > fabs(value)) {
        bits--;
    }
    return kernel_f32_of_bits(bits | 1u);
}

KERNEL_FN float kernel_u64_to_f32_odd(uint64_t value)
{
    int shift       = 0;
    uint64_t sticky = 0;

    while ((value >> shift) >= (1u << 24)) {
        shift += 8;
    }
    if (shift > 0) {
        sticky = (value & (((uint64_t)1 << shift) - 1)) != 0;
    }
    /* Up to 24 bits are exact. */
    return ldexpf((float)((value >> shift) | sticky), shift);
}

KERNEL_FN float kernel_i64_to_f32_odd(int64_t value)
{
    return value < 0 ? -kernel_u64_to_f32_odd(0 - (uint64_t)value)
                     : kernel_u64_to_f32_odd((uint64_t)value);
}

#endif
