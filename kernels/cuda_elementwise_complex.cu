/*
 * CUDA variants of the elementwise functions for complex numbers; the operations are those of
 * element_complex.h.
 */
#include "kernels/cuda_elementwise.cuh"

#define CASE_COMPLEX(name, expression) \
    case KERNEL_OP_##name:             \
        return expression;

#define COMPLEX_OPERATIONS(T, R)                 \
    KERNEL_FN T unary(int op, T a, T s)          \
    {                                            \
        switch (op) {                            \
            KERNEL_UNARY_COMPLEX(CASE_COMPLEX)   \
        default:                                 \
            return a;                            \
        }                                        \
    }                                            \
    KERNEL_FN T heavy(int op, T a)               \
    {                                            \
        switch (op) {                            \
            KERNEL_HEAVY_COMPLEX(CASE_COMPLEX)   \
        default:                                 \
            return a;                            \
        }                                        \
    }                                            \
    KERNEL_FN T binary(int op, T a, T b, T s)    \
    {                                            \
        switch (op) {                            \
            KERNEL_BINARY_COMPLEX(CASE_COMPLEX)  \
        default:                                 \
            return a;                            \
        }                                        \
    }                                            \
    KERNEL_FN bool compare(int op, T a, T b)     \
    {                                            \
        switch (op) {                            \
            KERNEL_COMPARE_COMPLEX(CASE_COMPLEX) \
        default:                                 \
            return false;                        \
        }                                        \
    }                                            \
    KERNEL_FN R part(int op, T a)                \
    {                                            \
        switch (op) {                            \
            KERNEL_PART_COMPLEX(CASE_COMPLEX)    \
        default:                                 \
            return 0;                            \
        }                                        \
    }

#define Z(name) kernel_c64_##name
COMPLEX_OPERATIONS(kernel_c64, float)
#undef Z
#define Z(name) kernel_c128_##name
COMPLEX_OPERATIONS(kernel_c128, double)
#undef Z

#define COMPLEX_KERNELS(T, R, suffix)                                              \
    KERNEL(unary_##suffix, cuda_elementwise)                                       \
    {                                                                              \
        int op = p.op;                                                             \
        T s    = bits_of<T>(p.scalar);                                             \
                                                                                   \
        each_unary<T>(p.walk, [op, s](T a) { return unary(op, a, s); });           \
    }                                                                              \
    KERNEL(heavy_##suffix, cuda_elementwise)                                       \
    {                                                                              \
        int op = p.op;                                                             \
                                                                                   \
        each_unary<T>(p.walk, [op](T a) { return heavy(op, a); });                 \
    }                                                                              \
    KERNEL(binary_##suffix, cuda_elementwise)                                      \
    {                                                                              \
        int op = p.op;                                                             \
        T s    = bits_of<T>(p.scalar);                                             \
                                                                                   \
        each_binary<T>(p.walk, [op, s](T a, T b) { return binary(op, a, b, s); }); \
    }                                                                              \
    KERNEL(compare_##suffix, cuda_elementwise)                                     \
    {                                                                              \
        int op = p.op;                                                             \
                                                                                   \
        each_compare<T>(p.walk, [op](T a, T b) { return compare(op, a, b); });     \
    }                                                                              \
    /* y is real. */                                                               \
    KERNEL(part_##suffix, cuda_elementwise)                                        \
    {                                                                              \
        for (int64_t i = thread_index(); i < p.walk.count; i += thread_count()) {  \
            int64_t at[2];                                                         \
                                                                                   \
            walk_at<2>(p.walk, i, at);                                             \
            *pointer<R>(p.walk.base[0], at[0]) =                                   \
                part(p.op, *pointer<const T>(p.walk.base[1], at[1]));              \
        }                                                                          \
    }
COMPLEX_KERNELS(kernel_c64, float, c64)
COMPLEX_KERNELS(kernel_c128, double, c128)
