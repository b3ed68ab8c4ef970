/*
 * CUDA variants that move elements without looking at them, fold and combine, checksum, and the
 * functions for tests.
 */
#include "kernels/cuda_common.cuh"

/* 16-byte elements. */
struct __align__(16) word16
{
    uint64_t low;
    uint64_t high;
};

/* --------------------------------------------------------------------------------- copy */

/* Copies that are dense on both sides do not come here: the host gives them to the copy engine. */
template <typename Word> KERNEL_FN void copy_walk(const cuda_walk &walk)
{
    for (int64_t i = thread_index(); i < walk.count; i += thread_count()) {
        int64_t at[2];

        walk_at<2>(walk, i, at);
        *pointer<Word>(walk.base[0], at[0]) = *pointer<const Word>(walk.base[1], at[1]);
    }
}

KERNEL(copy, cuda_elementwise)
{
    switch (p.bytes) {
    case 1:
        copy_walk<uint8_t>(p.walk);
        break;
    case 2:
        copy_walk<uint16_t>(p.walk);
        break;
    case 4:
        copy_walk<uint32_t>(p.walk);
        break;
    case 8:
        copy_walk<uint64_t>(p.walk);
        break;
    default:
        copy_walk<word16>(p.walk);
        break;
    }
}

template <typename Word>
static __device__ void copy_part(const cuda_parts &p, uint32_t part)
{
    const uint64_t words = p.bytes[part] / sizeof(Word);
    const uint64_t first = (uint64_t)(blockIdx.x / p.count) * blockDim.x + threadIdx.x;
    const uint64_t step  = (uint64_t)(gridDim.x / p.count) * blockDim.x;
    const Word *from     = pointer<const Word>(p.from[part], 0);
    Word *to             = pointer<Word>(p.to[part], 0);
    uint64_t i           = first;

    for (; i + 3 * step < words; i += 4 * step) {
        const Word a = from[i], b = from[i + step], c = from[i + 2 * step],
                   d = from[i + 3 * step];

        to[i]            = a;
        to[i + step]     = b;
        to[i + 2 * step] = c;
        to[i + 3 * step] = d;
    }
    for (; i < words; i += step) {
        to[i] = from[i];
    }
    for (i = words * sizeof(Word) + first; i < p.bytes[part]; i += step) {
        *pointer<uint8_t>(p.to[part], (int64_t)i) =
            *pointer<const uint8_t>(p.from[part], (int64_t)i);
    }
}

/*
 * Parts side by side, each by the same number of blocks, so that all are on their way at once: they
 * may come from several devices. A thread has four loads on their way, of the widest word that all
 * addresses are multiples of.
 */
KERNEL(parts, cuda_parts)
{
    const uint32_t part = blockIdx.x % p.count;

    switch (p.word) {
    case 16:
        copy_part<word16>(p, part);
        break;
    case 8:
        copy_part<uint64_t>(p, part);
        break;
    default:
        copy_part<uint32_t>(p, part);
        break;
    }
}

/*
 * Copy between arrays that are dense in different dimensions. Tiles of 32 x 32 go through shared
 * memory, so that both the loads and the stores of a warp are 32 neighbours; the extra column keeps
 * a tile's columns in different banks. Blocks of 32 x 8 threads, a tile a block at a time.
 */
#define TILE      32
#define TILE_ROWS 8

template <typename Word>
KERNEL_FN void transpose_tiles(const cuda_transpose &p, Word (*tile)[TILE + 1])
{
    int64_t tiles_across = (p.columns + TILE - 1) / TILE;
    int64_t tiles_down   = (p.rows + TILE - 1) / TILE;
    int64_t tiles        = tiles_across * tiles_down * p.batch;

    for (int64_t t = blockIdx.x; t < tiles; t += gridDim.x) {
        int64_t first_column = t % tiles_across * TILE;
        int64_t first_row    = t / tiles_across % tiles_down * TILE;
        int64_t at[2];

        offsets_of<2>(t / tiles_across / tiles_down, p.ndim, p.dim, p.stride, at);
        for (int i = threadIdx.y; i < TILE;
             i += TILE_ROWS) { /* x is dense along the rows */
            int64_t row    = first_row + threadIdx.x;
            int64_t column = first_column + i;

            if (row < p.rows && column < p.columns) {
                tile[i][threadIdx.x] = *pointer<const Word>(
                    p.x, at[1] + column * p.x_stride + row * (int64_t)sizeof(Word));
            }
        }
        __syncthreads();
        for (int i = threadIdx.y; i < TILE; i += TILE_ROWS) {
            int64_t row    = first_row + i;
            int64_t column = first_column + threadIdx.x;

            if (row < p.rows && column < p.columns) {
                *pointer<Word>(p.y,
                               at[0] + row * p.y_stride + column * (int64_t)sizeof(Word)) =
                    tile[threadIdx.x][i];
            }
        }
        __syncthreads(); /* the tile is used again */
    }
}

#define TRANSPOSE_KERNEL(Word, bytes)         \
    KERNEL(transpose_##bytes, cuda_transpose) \
    {                                         \
        __shared__ Word tile[TILE][TILE + 1]; \
                                              \
        transpose_tiles<Word>(p, tile);       \
    }
TRANSPOSE_KERNEL(uint8_t, 1)
TRANSPOSE_KERNEL(uint16_t, 2)
TRANSPOSE_KERNEL(uint32_t, 4)
TRANSPOSE_KERNEL(uint64_t, 8)
TRANSPOSE_KERNEL(word16, 16)

/* ------------------------------------------------------------------------ fold, combine */

template <typename T> KERNEL_FN T fold_join(int op, T a, T b)
{
    typedef typename traits<T>::U U;

    switch (op) {
    case KERNEL_OP_ADD:
        return (T)((U)a + (U)b);
    case KERNEL_OP_MULTIPLY:
        return (T)((U)a * (U)b);
    case KERNEL_OP_MINIMUM:
        return (a < b || a != a) ? a : b;
    default:
        return (a > b || a != a) ? a : b;
    }
}

/* Each step rounds to the element type, as separate folds would. */
template <typename Half> KERNEL_FN Half fold_halves(int op, Half a, Half b)
{
    return narrow<Half>(fold_join<float>(op, widen(a), widen(b)));
}
template <>
__device__ __forceinline__ half_f16 fold_join<half_f16>(int op, half_f16 a, half_f16 b)
{
    return fold_halves(op, a, b);
}
template <>
__device__ __forceinline__ half_bf16 fold_join<half_bf16>(int op, half_bf16 a, half_bf16 b)
{
    return fold_halves(op, a, b);
}
template <>
__device__ __forceinline__ kernel_c64 fold_join<kernel_c64>(int op, kernel_c64 a,
                                                            kernel_c64 b)
{
    return op == KERNEL_OP_ADD ? kernel_c64_add(a, b) : kernel_c64_mul(a, b);
}
template <>
__device__ __forceinline__ kernel_c128 fold_join<kernel_c128>(int op, kernel_c128 a,
                                                              kernel_c128 b)
{
    return op == KERNEL_OP_ADD ? kernel_c128_add(a, b) : kernel_c128_mul(a, b);
}

/*
 * The tree of cpu_elementwise.c with a stack: when partial i has come, subtrees of equal size are
 * joined, as many as i + 1 has trailing zero bits; at the end what is left is joined from the small
 * end. The same pairs meet: a subtree of 2^k neighbours is complete when its last partial has come,
 * and an odd tail goes up alone.
 */
template <typename T> KERNEL_FN T fold_tree(const cuda_fold &p, int64_t at)
{
    T stack[7]; /* 64 partials have subtrees of 1, 2, .. 64 */
    int depth = 0;

    for (uint32_t i = 0; i < p.partials; i++) {
        T value = *pointer<const T>(p.partial[i], at);

        for (uint32_t done = i + 1; (done & 1) == 0; done >>= 1) {
            value = fold_join(p.op, stack[--depth], value);
        }
        stack[depth++] = value;
    }
    while (depth > 1) {
        depth--;
        stack[depth - 1] = fold_join(p.op, stack[depth - 1], stack[depth]);
    }
    return stack[0];
}

/*
 * Of few partials the tree is joined in registers: x[i] with x[i + step], which are the pairs of
 * fold_tree.
 */
#define FOLD_FEW 7

template <typename T, int step>
KERNEL_FN void fold_level(const cuda_fold &p, pack<T> (&x)[FOLD_FEW])
{
#pragma unroll
    for (int i = 0; i + step < FOLD_FEW; i += 2 * step) {
        if ((uint32_t)(i + step) < p.partials) {
#pragma unroll
            for (int k = 0; k < pack<T>::count; k++) {
                x[i].value[k] = fold_join(p.op, x[i].value[k], x[i + step].value[k]);
            }
        }
    }
}

/*
 * Contiguous arrays, 16 bytes a thread at once. All loads are on their way before the first is
 * used: where an array is another device's memory they take a microsecond or two, one like many.
 */
template <typename T> KERNEL_FN void fold_packs(const cuda_fold &p)
{
    const int64_t packs  = p.walk.count / pack<T>::count;
    const uint64_t first = p.first != 0 ? p.first : p.walk.base[0];

    for (int64_t i = thread_index(); i < packs; i += thread_count()) {
        pack<T> y = *pointer<const pack<T>>(first, i * (int64_t)sizeof(pack<T>));
        pack<T> x[FOLD_FEW];

#pragma unroll
        for (uint32_t j = 0; j < FOLD_FEW; j++) {
            if (j < p.partials) {
                x[j] = *pointer<const pack<T>>(p.partial[j], i * (int64_t)sizeof(pack<T>));
            }
        }
        fold_level<T, 1>(p, x);
        fold_level<T, 2>(p, x);
        fold_level<T, 4>(p, x);
#pragma unroll
        for (int k = 0; k < pack<T>::count; k++) {
            if (p.partials > 0) {
                y.value[k] = fold_join(p.op, y.value[k], x[0].value[k]);
            }
        }
        *pointer<pack<T>>(p.walk.base[0], i * (int64_t)sizeof(pack<T>)) = y;
    }
}

template <typename T>
KERNEL_FN void fold_one(const cuda_fold &p, int64_t y_at, int64_t x_at)
{
    T *y    = pointer<T>(p.walk.base[0], y_at);
    T value = p.first != 0 ? *pointer<const T>(p.first, x_at) : *y;

    *y = p.partials > 0 ? fold_join<T>(p.op, value, fold_tree<T>(p, x_at)) : value;
}

template <typename T> KERNEL_FN void fold_all(const cuda_fold &p)
{
    const bool packs    = p.walk.dense != 0 && p.partials <= FOLD_FEW;
    const int64_t first = packs ? p.walk.count / pack<T>::count * pack<T>::count : 0;

    if (packs) {
        fold_packs<T>(p);
    }
    for (int64_t i = first + thread_index(); i < p.walk.count; i += thread_count()) {
        int64_t at[2];

        walk_at<2>(p.walk, i, at);
        fold_one<T>(p, at[0], at[1]);
    }
}

#define FOLD_KERNEL(T, suffix)       \
    KERNEL(fold_##suffix, cuda_fold) \
    {                                \
        fold_all<T>(p);              \
    }
FOLD_KERNEL(float, f32)
FOLD_KERNEL(double, f64)
FOLD_KERNEL(int32_t, i32)
FOLD_KERNEL(int64_t, i64)
FOLD_KERNEL(half_f16, f16)
FOLD_KERNEL(half_bf16, bf16)
FOLD_KERNEL(kernel_c64, c64)
FOLD_KERNEL(kernel_c128, c128)

/* ----------------------------------------------------------------------------- checksum */

/* `scalar` is the address of the sum, zeroed before. Integer additions may come in any order. */
KERNEL(checksum, cuda_elementwise)
{
    unsigned long long sum = 0;

    for (int64_t i = thread_index(); i < p.walk.count; i += thread_count()) {
        uint64_t low  = 0;
        uint64_t high = 0;
        int64_t at[1];

        walk_at<1>(p.walk, i, at);
        switch (p.bytes) {
        case 1:
            low = *pointer<const uint8_t>(p.walk.base[0], at[0]);
            break;
        case 2:
            low = *pointer<const uint16_t>(p.walk.base[0], at[0]);
            break;
        case 4:
            low = *pointer<const uint32_t>(p.walk.base[0], at[0]);
            break;
        case 8:
            low = *pointer<const uint64_t>(p.walk.base[0], at[0]);
            break;
        default:
            low  = pointer<const word16>(p.walk.base[0], at[0])->low;
            high = pointer<const word16>(p.walk.base[0], at[0])->high;
            break;
        }
        sum += kernel_hash((uint64_t)i, low, high);
    }
    for (int step = 16; step > 0; step /= 2) {
        sum += __shfl_down_sync(0xffffffffu, sum, step);
    }
    if (threadIdx.x % 32 == 0) {
        atomicAdd(pointer<unsigned long long>(p.scalar[0], 0), sum);
    }
}

/* -------------------------------------------------------------------------------- tests */

/* One thread that looks at the clock. */
KERNEL(spin, cuda_spin)
{
    unsigned long long start;
    unsigned long long now;

    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
    do {
        __nanosleep(500);
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    } while (now - start < p.nanoseconds);
}

KERNEL(trap, cuda_spin)
{
    if (p.nanoseconds != UINT64_MAX) { /* always, but the compiler cannot tell */
        __trap();
    }
}

KERNEL(illegal, cuda_spin)
{
    *pointer<volatile uint32_t>(p.nanoseconds, 16) =
        1; /* nothing is mapped there: nanoseconds is 0 */
}
