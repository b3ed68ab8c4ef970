/*
 * CUDA variants of the elementwise functions for 16-bit floats: the operations of f32 between a
 * widening and a rounding.
 */
#include "kernels/cuda_elementwise.cuh"

#define HALF_KERNELS(T, suffix)                                                            \
    KERNEL(unary_##suffix, cuda_elementwise)                                               \
    {                                                                                      \
        int op  = p.op;                                                                    \
        float s = widen(bits_of<T>(p.scalar));                                             \
                                                                                           \
        each_unary<T>(p.walk, [op, s](T a) { return narrow<T>(unary(op, widen(a), s)); }); \
    }                                                                                      \
    KERNEL(heavy_##suffix, cuda_elementwise)                                               \
    {                                                                                      \
        int op = p.op;                                                                     \
                                                                                           \
        each_unary<T>(p.walk, [op](T a) { return narrow<T>(heavy(op, widen(a))); });       \
    }                                                                                      \
    KERNEL(binary_##suffix, cuda_elementwise)                                              \
    {                                                                                      \
        int op  = p.op;                                                                    \
        float s = widen(bits_of<T>(p.scalar));                                             \
                                                                                           \
        each_binary<T>(p.walk, [op, s](T a, T b) {                                         \
            return narrow<T>(binary(op, widen(a), widen(b), s));                           \
        });                                                                                \
    }                                                                                      \
    KERNEL(power_##suffix, cuda_elementwise)                                               \
    {                                                                                      \
        int op = p.op;                                                                     \
                                                                                           \
        each_binary<T>(                                                                    \
            p.walk, [op](T a, T b) { return narrow<T>(power(op, widen(a), widen(b))); });  \
    }                                                                                      \
    KERNEL(compare_##suffix, cuda_elementwise)                                             \
    {                                                                                      \
        int op = p.op;                                                                     \
                                                                                           \
        each_compare<T>(p.walk,                                                            \
                        [op](T a, T b) { return compare(op, widen(a), widen(b)); });       \
    }
HALF_KERNELS(half_f16, f16)
HALF_KERNELS(half_bf16, bf16)
