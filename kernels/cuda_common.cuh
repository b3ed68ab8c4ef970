/*
 * What the .cu files share: finding elements of strided arrays, and types.
 *
 * Kernels are named plasmon_<name>, extern "C", and take one struct of cuda_params.h as a
 * __grid_constant__, so that indexing its arrays reads constant memory rather than a copy on the
 * stack. Loops are grid-stride: any launch shape is right, the host picks a fast one.
 */
#ifndef KERNELS_CUDA_COMMON_CUH
#define KERNELS_CUDA_COMMON_CUH

#include "kernels/cuda_params.h"
#include "kernels/element.h"
#include "kernels/element_complex.h"
#include "kernels/element_half.h"
#include "kernels/element_ops.h"

#define M(name) name /* CUDA overloads the math functions by type */

#define KERNEL(name, params)                          \
    extern "C" __global__ void __launch_bounds__(256) \
        plasmon_##name(const __grid_constant__ struct params p)

/* dtypes, as in base/box.h (which nvcc need not see); cuda_run.c asserts that they are the same. */
enum {
    CUDA_BOOL = 1,
    CUDA_I8   = 2,
    CUDA_U8   = 3,
    CUDA_I16  = 4,
    CUDA_U16  = 5,
    CUDA_I32  = 6,
    CUDA_U32  = 7,
    CUDA_I64  = 8,
    CUDA_U64  = 9,
    CUDA_F16  = 10,
    CUDA_BF16 = 11,
    CUDA_F32  = 12,
    CUDA_F64  = 13,
    CUDA_C64  = 14,
    CUDA_C128 = 15,
};

/* 16-bit floats as they lie in memory. Arithmetic is done in float. */
struct half_f16 {
    uint16_t bits;
};
struct half_bf16 {
    uint16_t bits;
};

KERNEL_FN float widen(half_f16 x)
{
    return kernel_f16_to_f32(x.bits);
}
KERNEL_FN float widen(half_bf16 x)
{
    return kernel_bf16_to_f32(x.bits);
}

template <typename Half> KERNEL_FN Half narrow(float x);
template <> __device__ __forceinline__ half_f16 narrow<half_f16>(float x)
{
    return {kernel_f32_to_f16(x)};
}
template <> __device__ __forceinline__ half_bf16 narrow<half_bf16>(float x)
{
    return {kernel_f32_to_bf16(x)};
}

/* U: the type that arithmetic is done in (unsigned for integers); A: the type that accumulates. */
template <typename Element> struct traits;
template <> struct traits<float> {
    typedef float U;
    typedef double A;
    static const bool is_float = true;
};
template <> struct traits<double> {
    typedef double U;
    typedef double A;
    static const bool is_float = true;
};
template <> struct traits<int32_t> {
    typedef uint32_t U;
    typedef int64_t A;
    static const bool is_float = false;
};
template <> struct traits<int64_t> {
    typedef uint64_t U;
    typedef int64_t A;
    static const bool is_float = false;
};

template <> struct traits<half_f16> {
    typedef double A;
};
template <> struct traits<half_bf16> {
    typedef double A;
};
template <> struct traits<kernel_c64> {
    typedef kernel_c128 A;
};
template <> struct traits<kernel_c128> {
    typedef kernel_c128 A;
};

/* A value in the type that accumulates. */
template <typename T> KERNEL_FN typename traits<T>::A accumulated(T x)
{
    return (typename traits<T>::A)x;
}
KERNEL_FN double accumulated(half_f16 x)
{
    return (double)widen(x);
}
KERNEL_FN double accumulated(half_bf16 x)
{
    return (double)widen(x);
}
KERNEL_FN kernel_c128 accumulated(kernel_c64 x)
{
    return kernel_c64_widen(x);
}
KERNEL_FN kernel_c128 accumulated(kernel_c128 x)
{
    return x;
}

template <typename T> KERNEL_FN T bits_of(const uint64_t (&bits)[2])
{
    T value;

    memcpy(&value, bits, sizeof(value));
    return value;
}

template <typename T> KERNEL_FN T bits_as(uint64_t bits)
{
    T value;

    memcpy(&value, &bits, sizeof(value)); /* little-endian: the low bytes */
    return value;
}

KERNEL_FN int64_t thread_index()
{
    return (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
}

KERNEL_FN int64_t thread_count()
{
    return (int64_t)gridDim.x * blockDim.x;
}

template <typename T> KERNEL_FN T *pointer(uint64_t base, int64_t offset)
{
    return reinterpret_cast<T *>(base + (uint64_t)offset);
}

/*
 * Offsets of element `index` in COUNT arrays. Division by 32-bit numbers is several times cheaper
 * than by 64-bit ones.
 */
template <int COUNT>
KERNEL_FN void offsets_of(int64_t index, uint32_t ndim, const int64_t *dim,
                          const int64_t (*stride)[CUDA_DIM_MAX], int64_t *offset)
{
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        offset[i] = 0;
    }
    for (uint32_t d = ndim; d-- > 1;) {
        int64_t at;

        if (((index | dim[d]) >> 32) == 0) {
            uint32_t quotient = (uint32_t)index / (uint32_t)dim[d];

            at    = (int64_t)((uint32_t)index - quotient * (uint32_t)dim[d]);
            index = quotient;
        } else {
            int64_t quotient = index / dim[d];

            at    = index - quotient * dim[d];
            index = quotient;
        }
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            offset[i] += at * stride[i][d];
        }
    }
    if (ndim > 0) {
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            offset[i] += index * stride[i][0];
        }
    }
}

template <int COUNT>
KERNEL_FN void walk_at(const struct cuda_walk &walk, int64_t index, int64_t *offset)
{
    offsets_of<COUNT>(index, walk.ndim, walk.dim, walk.stride, offset);
}

/* 16 bytes that are loaded and stored at once. */
template <typename T> struct __align__(16) pack
{
    static const int count = 16 / sizeof(T);
    T value[16 / sizeof(T)];
};

#endif
