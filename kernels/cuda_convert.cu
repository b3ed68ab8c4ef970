/*
 * CUDA variants of cast, and of the functions that make values from nothing (fill, arange, random numbers).
 */
#include "kernels/cuda_common.cuh"

/* ---------------------------------------------------------------------------- one value */

/* As in cpu_fill.c: a value on its way between dtypes, with all the bits that any dtype has. */
struct wide {
    bool is_float;
    bool is_unsigned;
    double f; /* of a complex number the real part */
    double im;
    int64_t i; /* or the bits of a u64 */
};

KERNEL_FN wide wide_float(double f)
{
    wide result = {true, false, f, 0, 0};

    return result;
}

KERNEL_FN wide wide_integer(int64_t i)
{
    wide result = {false, false, 0, 0, i};

    return result;
}

KERNEL_FN wide wide_load(uint32_t dtype, uint64_t base, int64_t at)
{
    wide result;

    switch (dtype) {
    case CUDA_F16:
        return wide_float((double)widen(*pointer<const half_f16>(base, at)));
    case CUDA_BF16:
        return wide_float((double)widen(*pointer<const half_bf16>(base, at)));
    case CUDA_C64:
        result    = wide_float((double)pointer<const kernel_c64>(base, at)->re);
        result.im = (double)pointer<const kernel_c64>(base, at)->im;
        return result;
    case CUDA_C128:
        result    = wide_float(pointer<const kernel_c128>(base, at)->re);
        result.im = pointer<const kernel_c128>(base, at)->im;
        return result;
    case CUDA_F32:
        return wide_float((double)*pointer<const float>(base, at));
    case CUDA_F64:
        return wide_float(*pointer<const double>(base, at));
    case CUDA_BOOL:
    case CUDA_U8:
        return wide_integer(*pointer<const uint8_t>(base, at));
    case CUDA_I8:
        return wide_integer(*pointer<const int8_t>(base, at));
    case CUDA_U16:
        return wide_integer(*pointer<const uint16_t>(base, at));
    case CUDA_I16:
        return wide_integer(*pointer<const int16_t>(base, at));
    case CUDA_U32:
        return wide_integer(*pointer<const uint32_t>(base, at));
    case CUDA_I32:
        return wide_integer(*pointer<const int32_t>(base, at));
    default:
        result             = wide_integer(*pointer<const int64_t>(base, at));
        result.is_unsigned = dtype == CUDA_U64;
        return result;
    }
}

KERNEL_FN int64_t wide_to_i64(const wide &value, int64_t low, int64_t high)
{
    return value.is_float ? kernel_f64_to_i64(value.f, low, high) : value.i;
}

/* From integers directly: by way of a double they would be rounded twice. */
KERNEL_FN float wide_to_f32(const wide &value)
{
    return value.is_float      ? (float)value.f
           : value.is_unsigned ? (float)(uint64_t)value.i
                               : (float)value.i;
}

KERNEL_FN double wide_to_f64(const wide &value)
{
    return value.is_float      ? value.f
           : value.is_unsigned ? (double)(uint64_t)value.i
                               : (double)value.i;
}

/* To be rounded to 16 bits: see element_half.h. */
KERNEL_FN float wide_to_odd(const wide &value)
{
    return value.is_float      ? kernel_f64_to_f32_odd(value.f)
           : value.is_unsigned ? kernel_u64_to_f32_odd((uint64_t)value.i)
                               : kernel_i64_to_f32_odd(value.i);
}

KERNEL_FN void wide_store(const wide &value, uint32_t dtype, uint64_t base, int64_t at)
{
    switch (dtype) {
    case CUDA_F16:
        *pointer<half_f16>(base, at) = narrow<half_f16>(wide_to_odd(value));
        break;
    case CUDA_BF16:
        *pointer<half_bf16>(base, at) = narrow<half_bf16>(wide_to_odd(value));
        break;
    case CUDA_F32:
        *pointer<float>(base, at) = wide_to_f32(value);
        break;
    case CUDA_F64:
        *pointer<double>(base, at) = wide_to_f64(value);
        break;
    case CUDA_C64:
        *pointer<kernel_c64>(base, at) =
            kernel_c64_make(wide_to_f32(value), (float)value.im);
        break;
    case CUDA_C128:
        *pointer<kernel_c128>(base, at) = kernel_c128_make(wide_to_f64(value), value.im);
        break;
    case CUDA_BOOL:
        *pointer<uint8_t>(base, at) =
            value.is_float ? value.f != 0 || value.im != 0 : value.i != 0;
        break;
    case CUDA_U8:
        *pointer<uint8_t>(base, at) = (uint8_t)wide_to_i64(value, 0, UINT8_MAX);
        break;
    case CUDA_I8:
        *pointer<int8_t>(base, at) = (int8_t)wide_to_i64(value, INT8_MIN, INT8_MAX);
        break;
    case CUDA_U16:
        *pointer<uint16_t>(base, at) = (uint16_t)wide_to_i64(value, 0, UINT16_MAX);
        break;
    case CUDA_I16:
        *pointer<int16_t>(base, at) = (int16_t)wide_to_i64(value, INT16_MIN, INT16_MAX);
        break;
    case CUDA_U32:
        *pointer<uint32_t>(base, at) = (uint32_t)wide_to_i64(value, 0, UINT32_MAX);
        break;
    case CUDA_I32:
        *pointer<int32_t>(base, at) = (int32_t)wide_to_i64(value, INT32_MIN, INT32_MAX);
        break;
    case CUDA_I64:
        *pointer<int64_t>(base, at) = wide_to_i64(value, INT64_MIN, INT64_MAX);
        break;
    default:
        *pointer<uint64_t>(base, at) =
            value.is_float ? kernel_f64_to_u64(value.f) : (uint64_t)value.i;
        break;
    }
}

KERNEL(cast, cuda_elementwise)
{
    for (int64_t i = thread_index(); i < p.walk.count; i += thread_count()) {
        int64_t at[2];

        walk_at<2>(p.walk, i, at);
        wide_store(wide_load(p.dtype[1], p.walk.base[1], at[1]), p.dtype[0], p.walk.base[0],
                   at[0]);
    }
}

/* ------------------------------------------------------------------------- from nothing */

/* The value's bits come ready from the host. */
template <typename Word> KERNEL_FN void fill_walk(const cuda_elementwise &p)
{
    Word value    = bits_of<Word>(p.scalar);
    int64_t first = 0;

    if (p.walk.dense) {
        int64_t packs = p.walk.count / pack<Word>::count;
        pack<Word> y;

#pragma unroll
        for (int j = 0; j < pack<Word>::count; j++) {
            y.value[j] = value;
        }
        for (int64_t i = thread_index(); i < packs; i += thread_count()) {
            pointer<pack<Word>>(p.walk.base[0], 0)[i] = y;
        }
        first = packs * pack<Word>::count;
    }
    for (int64_t i = first + thread_index(); i < p.walk.count; i += thread_count()) {
        int64_t at[1];

        walk_at<1>(p.walk, i, at);
        *pointer<Word>(p.walk.base[0], at[0]) = value;
    }
}

KERNEL(fill, cuda_elementwise)
{
    switch (p.bytes) {
    case 1:
        fill_walk<uint8_t>(p);
        break;
    case 2:
        fill_walk<uint16_t>(p);
        break;
    case 4:
        fill_walk<uint32_t>(p);
        break;
    case 8:
        fill_walk<uint64_t>(p);
        break;
    default:
        fill_walk<kernel_c128>(p);
        break;
    }
}

KERNEL_FN double generated(const cuda_generate &p, int64_t flat)
{
    uint64_t counter;

    if (p.kind == CUDA_GENERATE_ARANGE) {
        return KERNEL_ADD(p.a, KERNEL_MUL((double)flat, p.b));
    }
    counter = kernel_counter((uint64_t)flat, p.width, p.offset, p.row_stride);
    if (p.kind == CUDA_GENERATE_NORMAL) {
        return kernel_normal(counter, p.seed, p.a, p.b);
    }
    return kernel_uniform(counter, p.seed, p.a, p.b);
}

KERNEL(generate, cuda_generate)
{
    bool whole = p.kind == CUDA_GENERATE_UNIFORM && p.dtype <= CUDA_U64;

    for (int64_t i = thread_index(); i < p.walk.count; i += thread_count()) {
        double value = generated(p, i);
        int64_t at[1];

        walk_at<1>(p.walk, i, at);
        wide_store(wide_float(whole ? floor(value) : value), p.dtype, p.walk.base[0],
                   at[0]);
    }
}
