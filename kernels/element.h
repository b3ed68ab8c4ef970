/*
 * What one element becomes: the arithmetic that the CPU and the CUDA variants share, so that they
 * cannot drift apart. Compiled as C for hosts and as C++ for devices; no state, no calls but the
 * math library's.
 *
 * TO THE BIT. Random uniforms, arange and casts are the same on every device. So nothing here may
 * be contracted into a fused multiply-add: KERNEL_MUL and KERNEL_ADD round each step (the CPU files
 * are built with -ffp-contract=off).
 */
#ifndef KERNELS_ELEMENT_H
#define KERNELS_ELEMENT_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#ifdef __CUDACC__
#define KERNEL_FN        static __device__ __forceinline__
#define KERNEL_MUL(a, b) __dmul_rn((a), (b))
#define KERNEL_ADD(a, b) __dadd_rn((a), (b))
#else
#define KERNEL_FN        static inline
#define KERNEL_MUL(a, b) ((a) * (b))
#define KERNEL_ADD(a, b) ((a) + (b))
#endif

/* ----------------------------------------------------------------------------- integers */

/* Towards zero; x / 0 is 0, and the one quotient that does not fit wraps around. */
KERNEL_FN int32_t kernel_divide_i32(int32_t a, int32_t b)
{
    if (b == 0) {
        return 0;
    }
    return b == -1 ? (int32_t)(0u - (uint32_t)a) : a / b;
}

KERNEL_FN int64_t kernel_divide_i64(int64_t a, int64_t b)
{
    if (b == 0) {
        return 0;
    }
    return b == -1 ? (int64_t)(0u - (uint64_t)a) : a / b;
}

/* By squaring, wrapping around; a negative power is the integer part of the fraction. */
KERNEL_FN int64_t kernel_power_i64(int64_t base, int64_t exponent)
{
    uint64_t result = 1;
    uint64_t square = (uint64_t)base;

    if (exponent < 0) {
        if (base == 1 || base == -1) {
            return (exponent & 1) != 0 ? base : 1;
        }
        return 0;
    }
    for (uint64_t rest = (uint64_t)exponent; rest != 0; rest >>= 1) {
        if ((rest & 1) != 0) {
            result *= square;
        }
        square *= square;
    }
    return (int64_t)result;
}

/*
 * Truncates, saturates to [low, high], NaN is 0. `high` + 1 must be exact as a double, and is for
 * all integer types.
 */
KERNEL_FN int64_t kernel_f64_to_i64(double value, int64_t low, int64_t high)
{
    if (!(value == value)) {
        return 0;
    }
    if (value <= (double)low) {
        return low;
    }
    return value >= (double)high ? high : (int64_t)value; /* (double)INT64_MAX is 2^63 */
}

KERNEL_FN uint64_t kernel_f64_to_u64(double value)
{
    if (!(value > 0.0)) {
        return 0;
    }
    return value >= 18446744073709551616.0 ? UINT64_MAX : (uint64_t)value;
}

/* ----------------------------------------------------------------------- random numbers */

struct kernel_words {
    uint32_t word[4];
};

/* Philox4x32-10 (Salmon et al., SC 2011): counter (low, high, 0, 0), key the seed. */
KERNEL_FN struct kernel_words kernel_philox4(uint32_t c0, uint32_t c1, uint32_t c2,
                                             uint32_t c3, uint32_t k0, uint32_t k1)
{
    struct kernel_words out;

    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0;
        uint64_t p1 = (uint64_t)0xCD9E8D57u * c2;

        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out.word[0] = c0;
    out.word[1] = c1;
    out.word[2] = c2;
    out.word[3] = c3;
    return out;
}

KERNEL_FN struct kernel_words kernel_philox(uint64_t counter, uint64_t seed)
{
    return kernel_philox4((uint32_t)counter, (uint32_t)(counter >> 32), 0, 0,
                          (uint32_t)seed, (uint32_t)(seed >> 32));
}

/* 53 random bits in [0, 1). */
KERNEL_FN double kernel_unit_f64(uint32_t high, uint32_t low)
{
    uint64_t bits = ((uint64_t)high << 32) | low;

    return (double)(bits >> 11) * (1.0 / 9007199254740992.0);
}

KERNEL_FN double kernel_uniform(uint64_t counter, uint64_t seed, double low, double high)
{
    struct kernel_words words = kernel_philox(counter, seed);
    double unit               = kernel_unit_f64(words.word[0], words.word[1]);

    return KERNEL_ADD(low, KERNEL_MUL(unit, KERNEL_ADD(high, -low)));
}

KERNEL_FN double kernel_normal(uint64_t counter, uint64_t seed, double mean, double stddev)
{
    struct kernel_words words = kernel_philox(counter, seed);
    double radius = 1.0 - kernel_unit_f64(words.word[0], words.word[1]); /* (0, 1] */
    double angle  = kernel_unit_f64(words.word[2], words.word[3]);

    return mean + stddev * sqrt(-2.0 * log(radius)) * cos(6.283185307179586 * angle);
}

/* Counter of the element with flat index `flat` in rows of `width`; see random_uniform in the catalogue. */
KERNEL_FN uint64_t kernel_counter(uint64_t flat, uint64_t width, uint64_t offset,
                                  uint64_t row_stride)
{
    if (row_stride == width) {
        return offset + flat;
    }
    return offset + flat / width * row_stride + flat % width;
}

/* ---------------------------------------------------------------------------- checksums */

KERNEL_FN uint64_t kernel_mix(uint64_t value) /* the finaliser of splitmix64 */
{
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9u;
    value = (value ^ (value >> 27)) * 0x94D049BB133111EBu;
    return value ^ (value >> 31);
}

/* One element's part of the checksum; `high` is 0 for elements of up to 8 bytes. */
KERNEL_FN uint64_t kernel_hash(uint64_t index, uint64_t low, uint64_t high)
{
    uint64_t hash = kernel_mix(index + 0x9E3779B97F4A7C15u);

    hash = kernel_mix(hash ^ low);
    return kernel_mix(hash + high);
}

#endif
