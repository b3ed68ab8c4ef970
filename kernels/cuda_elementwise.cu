/*
 * CUDA variants of the elementwise functions for the floats and integers of 32 and 64 bits; see
 * cuda_elementwise.cuh.
 */
#include "kernels/cuda_elementwise.cuh"

OPERATIONS(double, double, KERNEL_UNARY_FLOAT, KERNEL_BINARY_FLOAT, KERNEL_POWER_FLOAT)
OPERATIONS(int32_t, uint32_t, KERNEL_UNARY_INT, KERNEL_BINARY_INT, KERNEL_POWER_INT)
OPERATIONS(int64_t, uint64_t, KERNEL_UNARY_INT, KERNEL_BINARY_INT, KERNEL_POWER_INT)

#define ELEMENTWISE_KERNELS(T, suffix)                                             \
    KERNEL(unary_##suffix, cuda_elementwise)                                       \
    {                                                                              \
        int op = p.op;                                                             \
        T s    = bits_of<T>(p.scalar);                                             \
                                                                                   \
        each_unary<T>(p.walk, [op, s](T a) { return unary(op, a, s); });           \
    }                                                                              \
    KERNEL(binary_##suffix, cuda_elementwise)                                      \
    {                                                                              \
        int op = p.op;                                                             \
        T s    = bits_of<T>(p.scalar);                                             \
                                                                                   \
        each_binary<T>(p.walk, [op, s](T a, T b) { return binary(op, a, b, s); }); \
    }                                                                              \
    KERNEL(power_##suffix, cuda_elementwise)                                       \
    {                                                                              \
        int op = p.op;                                                             \
                                                                                   \
        each_binary<T>(p.walk, [op](T a, T b) { return power(op, a, b); });        \
    }
ELEMENTWISE_KERNELS(float, f32)
ELEMENTWISE_KERNELS(double, f64)
ELEMENTWISE_KERNELS(int32_t, i32)
ELEMENTWISE_KERNELS(int64_t, i64)

#define HEAVY_KERNEL(T, suffix)                                    \
    KERNEL(heavy_##suffix, cuda_elementwise)                       \
    {                                                              \
        int op = p.op;                                             \
                                                                   \
        each_unary<T>(p.walk, [op](T a) { return heavy(op, a); }); \
    }
HEAVY_KERNEL(float, f32)
HEAVY_KERNEL(double, f64)

#define COMPARE_KERNEL(T, suffix)                                              \
    KERNEL(compare_##suffix, cuda_elementwise)                                 \
    {                                                                          \
        int op = p.op;                                                         \
                                                                               \
        each_compare<T>(p.walk, [op](T a, T b) { return compare(op, a, b); }); \
    }
COMPARE_KERNEL(float, f32)
COMPARE_KERNEL(double, f64)
COMPARE_KERNEL(int32_t, i32)
COMPARE_KERNEL(int64_t, i64)
COMPARE_KERNEL(uint8_t, bool)
