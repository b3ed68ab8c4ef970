/*
 * The loops of the elementwise kernels, and the operations on floats and integers.
 *
 * These kernels wait for memory, so what matters is wide loads and many of them in flight: dense
 * arrays go 16 bytes at a time, others element by element. The operation is switched on inside the
 * loop: all threads take the same way, and one kernel a type instead of one an operation keeps the
 * fatbin and the load time small. What needs many registers (exp, sin, power) is in kernels of its
 * own so that add keeps its occupancy.
 *
 * Launch shape: blocks of 256 threads, at most 32 a multiprocessor; the rest is the grid-stride loop.
 */
#ifndef KERNELS_CUDA_ELEMENTWISE_CUH
#define KERNELS_CUDA_ELEMENTWISE_CUH

#include "kernels/cuda_common.cuh"

/* --------------------------------------------------------------------------- operations */

#define CASE(name, expression) \
    case KERNEL_OP_##name:     \
        return (T)(expression);

#define OPERATIONS(Element, Unsigned, UNARY, BINARY, POWER)           \
    KERNEL_FN Element unary(int op, Element a, Element s)             \
    {                                                                 \
        typedef Element T;                                            \
        typedef Unsigned U;                                           \
        (void)sizeof(U);                                              \
        switch (op) {                                                 \
            UNARY(CASE)                                               \
        default:                                                      \
            return a;                                                 \
        }                                                             \
    }                                                                 \
    KERNEL_FN Element binary(int op, Element a, Element b, Element s) \
    {                                                                 \
        typedef Element T;                                            \
        typedef Unsigned U;                                           \
        (void)sizeof(U);                                              \
        switch (op) {                                                 \
            BINARY(CASE)                                              \
        default:                                                      \
            return a;                                                 \
        }                                                             \
    }                                                                 \
    KERNEL_FN Element power(int op, Element a, Element b)             \
    {                                                                 \
        typedef Element T;                                            \
        switch (op) {                                                 \
            POWER(CASE)                                               \
        default:                                                      \
            return a;                                                 \
        }                                                             \
    }

OPERATIONS(float, float, KERNEL_UNARY_FLOAT, KERNEL_BINARY_FLOAT, KERNEL_POWER_FLOAT)

template <typename T> KERNEL_FN T heavy(int op, T a)
{
    switch (op) {
        KERNEL_UNARY_HEAVY(CASE)
    default:
        return a;
    }
}

template <typename E> KERNEL_FN bool compare(int op, E a, E b)
{
    typedef bool T;

    switch (op) {
        KERNEL_COMPARE(CASE)
    default:
        return false;
    }
}

/* -------------------------------------------------------------------------------- loops */

/* y = f(a) */
template <typename T, typename F> KERNEL_FN void each_unary(const cuda_walk &walk, F f)
{
    int64_t first = 0;

    if (walk.dense) {
        int64_t packs = walk.count / pack<T>::count;

        for (int64_t i = thread_index(); i < packs; i += thread_count()) {
            pack<T> a = pointer<const pack<T>>(walk.base[1], 0)[i];
            pack<T> y;

#pragma unroll
            for (int j = 0; j < pack<T>::count; j++) {
                y.value[j] = f(a.value[j]);
            }
            pointer<pack<T>>(walk.base[0], 0)[i] = y;
        }
        first = packs * pack<T>::count; /* a few are left */
    }
    for (int64_t i = first + thread_index(); i < walk.count; i += thread_count()) {
        int64_t at[2];

        walk_at<2>(walk, i, at);
        *pointer<T>(walk.base[0], at[0]) = f(*pointer<const T>(walk.base[1], at[1]));
    }
}

/* y = f(a, b); y may be a. */
template <typename T, typename F> KERNEL_FN void each_binary(const cuda_walk &walk, F f)
{
    int64_t first = 0;

    if (walk.dense) {
        int64_t packs = walk.count / pack<T>::count;

        for (int64_t i = thread_index(); i < packs; i += thread_count()) {
            pack<T> a = pointer<const pack<T>>(walk.base[1], 0)[i];
            pack<T> b = pointer<const pack<T>>(walk.base[2], 0)[i];
            pack<T> y;

#pragma unroll
            for (int j = 0; j < pack<T>::count; j++) {
                y.value[j] = f(a.value[j], b.value[j]);
            }
            pointer<pack<T>>(walk.base[0], 0)[i] = y;
        }
        first = packs * pack<T>::count;
    }
    for (int64_t i = first + thread_index(); i < walk.count; i += thread_count()) {
        int64_t at[3];

        walk_at<3>(walk, i, at);
        *pointer<T>(walk.base[0], at[0]) = f(*pointer<const T>(walk.base[1], at[1]),
                                             *pointer<const T>(walk.base[2], at[2]));
    }
}

/* y = f(a, b), y a bool: elements of different sizes, so no packs. */
template <typename T, typename F> KERNEL_FN void each_compare(const cuda_walk &walk, F f)
{
    for (int64_t i = thread_index(); i < walk.count; i += thread_count()) {
        int64_t at[3];

        walk_at<3>(walk, i, at);
        *pointer<uint8_t>(walk.base[0], at[0]) = f(*pointer<const T>(walk.base[1], at[1]),
                                                   *pointer<const T>(walk.base[2], at[2]));
    }
}

#endif
