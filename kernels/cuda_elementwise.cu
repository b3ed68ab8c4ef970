/*
 * CUDA variants of the elementwise functions, and of those that make values from nothing.
 *
 * These kernels wait for memory, so what matters is wide loads and many of them in flight: dense arrays go 16 bytes at a
 * time, others element by element. The operation is switched on inside the loop: all threads take the same way, and one
 * kernel a type instead of one an operation keeps the fatbin and the load time small. What needs many registers (exp,
 * sin, power) is in kernels of its own so that add keeps its occupancy.
 *
 * Launch shape: blocks of 256 threads, at most 32 a multiprocessor; the rest is the grid-stride loop.
 */
#include "kernels/cuda_common.cuh"

/* ------------------------------------------------------------------------------------------------ operations */

#define CASE(name, expression)                                                               \
    case KERNEL_OP_##name:                                                                   \
        return (T)(expression);

#define OPERATIONS(Element, Unsigned, UNARY, BINARY, POWER)                                  \
    KERNEL_FN Element unary(int op, Element a, Element s)                                    \
    {                                                                                        \
        typedef Element T;                                                                   \
        typedef Unsigned U;                                                                  \
        (void)sizeof(U);                                                                     \
        switch (op) {                                                                        \
            UNARY(CASE)                                                                      \
        default:                                                                             \
            return a;                                                                        \
        }                                                                                    \
    }                                                                                        \
    KERNEL_FN Element binary(int op, Element a, Element b, Element s)                        \
    {                                                                                        \
        typedef Element T;                                                                   \
        typedef Unsigned U;                                                                  \
        (void)sizeof(U);                                                                     \
        switch (op) {                                                                        \
            BINARY(CASE)                                                                     \
        default:                                                                             \
            return a;                                                                        \
        }                                                                                    \
    }                                                                                        \
    KERNEL_FN Element power(int op, Element a, Element b)                                    \
    {                                                                                        \
        typedef Element T;                                                                   \
        switch (op) {                                                                        \
            POWER(CASE)                                                                      \
        default:                                                                             \
            return a;                                                                        \
        }                                                                                    \
    }

OPERATIONS(float, float, KERNEL_UNARY_FLOAT, KERNEL_BINARY_FLOAT, KERNEL_POWER_FLOAT)
OPERATIONS(double, double, KERNEL_UNARY_FLOAT, KERNEL_BINARY_FLOAT, KERNEL_POWER_FLOAT)
OPERATIONS(int32_t, uint32_t, KERNEL_UNARY_INT, KERNEL_BINARY_INT, KERNEL_POWER_INT)
OPERATIONS(int64_t, uint64_t, KERNEL_UNARY_INT, KERNEL_BINARY_INT, KERNEL_POWER_INT)

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

/* ------------------------------------------------------------------------------------------------ loops */

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
        *pointer<T>(walk.base[0], at[0]) =
            f(*pointer<const T>(walk.base[1], at[1]), *pointer<const T>(walk.base[2], at[2]));
    }
}

#define ELEMENTWISE_KERNELS(T, suffix)                                                       \
    KERNEL(unary_##suffix, cuda_elementwise)                                                 \
    {                                                                                        \
        int op = p.op;                                                                       \
        T s    = bits_as<T>(p.scalar);                                                       \
                                                                                             \
        each_unary<T>(p.walk, [op, s](T a) { return unary(op, a, s); });                     \
    }                                                                                        \
    KERNEL(binary_##suffix, cuda_elementwise)                                                \
    {                                                                                        \
        int op = p.op;                                                                       \
        T s    = bits_as<T>(p.scalar);                                                       \
                                                                                             \
        each_binary<T>(p.walk, [op, s](T a, T b) { return binary(op, a, b, s); });           \
    }                                                                                        \
    KERNEL(power_##suffix, cuda_elementwise)                                                 \
    {                                                                                        \
        int op = p.op;                                                                       \
                                                                                             \
        each_binary<T>(p.walk, [op](T a, T b) { return power(op, a, b); });                  \
    }
ELEMENTWISE_KERNELS(float, f32)
ELEMENTWISE_KERNELS(double, f64)
ELEMENTWISE_KERNELS(int32_t, i32)
ELEMENTWISE_KERNELS(int64_t, i64)

#define HEAVY_KERNEL(T, suffix)                                                              \
    KERNEL(heavy_##suffix, cuda_elementwise)                                                 \
    {                                                                                        \
        int op = p.op;                                                                       \
                                                                                             \
        each_unary<T>(p.walk, [op](T a) { return heavy(op, a); });                           \
    }
HEAVY_KERNEL(float, f32)
HEAVY_KERNEL(double, f64)

/* y is bool, so y and a have elements of different sizes: no packs. */
#define COMPARE_KERNEL(T, suffix)                                                            \
    KERNEL(compare_##suffix, cuda_elementwise)                                               \
    {                                                                                        \
        for (int64_t i = thread_index(); i < p.walk.count; i += thread_count()) {            \
            int64_t at[3];                                                                   \
                                                                                             \
            walk_at<3>(p.walk, i, at);                                                       \
            *pointer<uint8_t>(p.walk.base[0], at[0]) =                                       \
                compare(p.op, *pointer<const T>(p.walk.base[1], at[1]),                      \
                        *pointer<const T>(p.walk.base[2], at[2]));                           \
        }                                                                                    \
    }
COMPARE_KERNEL(float, f32)
COMPARE_KERNEL(double, f64)
COMPARE_KERNEL(int32_t, i32)
COMPARE_KERNEL(int64_t, i64)
COMPARE_KERNEL(uint8_t, bool)

/* ------------------------------------------------------------------------------------------------ one value */

/* As in cpu_fill.c: a value on its way between dtypes, with all the bits that any dtype has. */
struct wide {
    bool is_float;
    bool is_unsigned;
    double f;
    int64_t i; /* or the bits of a u64 */
};

KERNEL_FN wide wide_float(double f)
{
    wide result = {true, false, f, 0};

    return result;
}

KERNEL_FN wide wide_integer(int64_t i)
{
    wide result = {false, false, 0, i};

    return result;
}

KERNEL_FN wide wide_load(uint32_t dtype, uint64_t base, int64_t at)
{
    wide result;

    switch (dtype) {
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

KERNEL_FN void wide_store(const wide &value, uint32_t dtype, uint64_t base, int64_t at)
{
    switch (dtype) {
    case CUDA_F32: /* from integers directly: by way of a double they would be rounded twice */
        *pointer<float>(base, at) = value.is_float      ? (float)value.f
                                    : value.is_unsigned ? (float)(uint64_t)value.i
                                                        : (float)value.i;
        break;
    case CUDA_F64:
        *pointer<double>(base, at) = value.is_float      ? value.f
                                     : value.is_unsigned ? (double)(uint64_t)value.i
                                                         : (double)value.i;
        break;
    case CUDA_BOOL:
        *pointer<uint8_t>(base, at) = value.is_float ? value.f != 0 : value.i != 0;
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

/* ------------------------------------------------------------------------------------------------ from nothing */

/* The value's bits come ready from the host. */
template <typename Word> KERNEL_FN void fill_walk(const cuda_elementwise &p)
{
    Word value    = bits_as<Word>(p.scalar);
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
    default:
        fill_walk<uint64_t>(p);
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
    bool whole = p.kind == CUDA_GENERATE_UNIFORM && p.dtype != CUDA_F32 && p.dtype != CUDA_F64;

    for (int64_t i = thread_index(); i < p.walk.count; i += thread_count()) {
        double value = generated(p, i);
        int64_t at[1];

        walk_at<1>(p.walk, i, at);
        wide_store(wide_float(whole ? floor(value) : value), p.dtype, p.walk.base[0], at[0]);
    }
}
