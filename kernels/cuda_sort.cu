/*
 * CUDA variants of sort, argsort and sort_into: by radix, 8 bits at a time, lowest digit first, so
 * equals keep their order.
 *
 * Rows of up to TILE elements are sorted by one block in shared memory, in one kernel. Longer ones
 * go through device memory, a digit in three kernels: how often each digit occurs in each tile;
 * where, then, each tile's elements with that digit go (a scan, digit after digit, tile after
 * tile); and moving them. A tile is put in order in shared memory first, so that runs of one digit
 * are written as runs.
 *
 * Ranking 32 elements: __match_any_sync() tells a thread who else has its digit; how many of them
 * come before it is its place among them, and a counter of the warp tells how many came in earlier
 * rounds. A warp's elements are neighbours, so the order is that of the input whatever the timing.
 *
 * Keys are those of sort_key.h; what moves with them is the position. Values are fetched by
 * position at the end.
 */
#include "kernels/cuda_common.cuh"
#include "kernels/sort_key.h"

#define THREADS 256
#define WARPS   8
#define ITEMS   8
#define TILE    CUDA_SORT_TILE
#define DIGITS  256

static_assert(TILE == THREADS * ITEMS, "a thread has ITEMS elements of a tile");

/* ----------------------------------------------------------------------------- elements */

KERNEL_FN void key_at(uint32_t dtype, uint64_t at, uint32_t *key)
{
    switch (dtype) {
    case CUDA_F16:
        *key = kernel_key_f32(widen(*pointer<const half_f16>(at, 0)));
        break;
    case CUDA_BF16:
        *key = kernel_key_f32(widen(*pointer<const half_bf16>(at, 0)));
        break;
    case CUDA_F32:
        *key = kernel_key_f32(*pointer<const float>(at, 0));
        break;
    default:
        *key = kernel_key_i32(*pointer<const int32_t>(at, 0));
        break;
    }
}
KERNEL_FN void key_at(uint32_t dtype, uint64_t at, uint64_t *key)
{
    *key = dtype == CUDA_F64 ? kernel_key_f64(*pointer<const double>(at, 0))
                             : kernel_key_i64(*pointer<const int64_t>(at, 0));
}

/* Offsets of the first elements of row `row` in y and x. */
KERNEL_FN void row_at(const cuda_sort &p, int64_t row, int64_t *at)
{
    offsets_of<2>(row, p.rows_ndim, p.rows_dim, p.rows_stride, at);
}

/* Element `to` of y's row: element `from` of x's row, or just where that is. */
KERNEL_FN void put(const cuda_sort &p, const int64_t *row, int64_t to, int64_t from)
{
    uint64_t y = p.y + (uint64_t)(row[0] + to * p.stride[0]);
    uint64_t x = p.x + (uint64_t)(row[1] + from * p.stride[1]);

    if (p.positions) {
        *pointer<int64_t>(y, 0) = from;
    } else if (p.bytes == 2) {
        *pointer<uint16_t>(y, 0) = *pointer<const uint16_t>(x, 0);
    } else if (p.bytes == 4) {
        *pointer<uint32_t>(y, 0) = *pointer<const uint32_t>(x, 0);
    } else {
        *pointer<uint64_t>(y, 0) = *pointer<const uint64_t>(x, 0);
    }
}

/* ------------------------------------------------------------------------------ ranking */

struct ranks {
    uint32_t count[WARPS]
                  [DIGITS]; /* of a warp; then, where its elements with that digit begin */
    uint32_t start[DIGITS + 1]; /* in the tile, of the elements with that digit */
    uint32_t warp_sum[WARPS];
};

template <typename Key> KERNEL_FN uint32_t digit_of(Key key, int shift)
{
    return (uint32_t)(key >> shift) & (DIGITS - 1);
}

/*
 * Places in the sorted tile of a thread's elements: element i is number warp * 32 * ITEMS + i * 32
 * + lane of the tile. All threads of the block come here.
 */
template <typename Key>
KERNEL_FN void rank_tile(const Key (&key)[ITEMS], int shift, ranks *shared,
                         uint32_t (&place)[ITEMS])
{
    int lane  = threadIdx.x % 32;
    int warp  = threadIdx.x / 32;
    int digit = threadIdx.x; /* of 256, for the scan */
    uint32_t sum;
    uint32_t inclusive;

    for (int i = threadIdx.x; i < WARPS * DIGITS; i += THREADS) {
        (&shared->count[0][0])[i] = 0;
    }
    __syncthreads();

#pragma unroll
    for (int i = 0; i < ITEMS; i++) {
        uint32_t mine  = digit_of(key[i], shift);
        uint32_t peers = __match_any_sync(0xffffffffu, mine);
        uint32_t below = __popc(peers & ((1u << lane) - 1));
        uint32_t old   = shared->count[warp][mine];

        place[i] = old + below;
        __syncwarp(); /* all have read it */
        if (below == 0) {
            shared->count[warp][mine] = old + __popc(peers);
        }
        __syncwarp();
    }
    __syncthreads();

    /* A thread a digit: over the warps, then over the digits. */
    sum = 0;
    for (int w = 0; w < WARPS; w++) {
        uint32_t count = shared->count[w][digit];

        shared->count[w][digit] = sum;
        sum += count;
    }
    inclusive = sum;
    for (int step = 1; step < 32; step *= 2) {
        uint32_t other = __shfl_up_sync(0xffffffffu, inclusive, step);

        inclusive += lane >= step ? other : 0;
    }
    if (lane == 31) {
        shared->warp_sum[warp] = inclusive;
    }
    __syncthreads();
    for (int w = 0; w < warp; w++) {
        inclusive += shared->warp_sum[w];
    }
    shared->start[digit] = inclusive - sum;
    if (digit == DIGITS - 1) {
        shared->start[DIGITS] = inclusive;
    }
    __syncthreads();

#pragma unroll
    for (int i = 0; i < ITEMS; i++) {
        uint32_t mine = digit_of(key[i], shift);

        place[i] += shared->start[mine] + shared->count[warp][mine];
    }
}

KERNEL_FN int tile_index(int i)
{
    return (int)(threadIdx.x / 32) * 32 * ITEMS + i * 32 + (int)(threadIdx.x % 32);
}

/* --------------------------------------------------------------------------- short rows */

template <typename Key> struct tile {
    Key key[TILE];
    uint16_t position[TILE];
    ranks rank;
};

/* What is behind a row's end has the largest key, and stays behind everything that has it, too. */
template <typename Key> KERNEL_FN void sort_short(const cuda_sort &p, tile<Key> *shared)
{
    for (int64_t row = blockIdx.x; row < p.rows; row += gridDim.x) {
        Key key[ITEMS];
        uint32_t position[ITEMS];
        uint32_t place[ITEMS];
        int64_t at[2];

        row_at(p, row, at);
#pragma unroll
        for (int i = 0; i < ITEMS; i++) {
            position[i] = (uint32_t)tile_index(i);
            key[i]      = ~(Key)0;
            if (position[i] < p.length) {
                key_at(p.dtype, p.x + (uint64_t)(at[1] + position[i] * p.stride[1]),
                       &key[i]);
            }
        }
        for (int shift = 0; shift < (int)sizeof(Key) * 8; shift += 8) {
            rank_tile(key, shift, &shared->rank, place);
#pragma unroll
            for (int i = 0; i < ITEMS; i++) {
                shared->key[place[i]]      = key[i];
                shared->position[place[i]] = (uint16_t)position[i];
            }
            __syncthreads();
#pragma unroll
            for (int i = 0; i < ITEMS; i++) {
                key[i]      = shared->key[tile_index(i)];
                position[i] = shared->position[tile_index(i)];
            }
            __syncthreads();
        }
#pragma unroll
        for (int i = 0; i < ITEMS; i++) {
            if (tile_index(i) < p.length) {
                put(p, at, tile_index(i), position[i]);
            }
        }
    }
}

/* ---------------------------------------------------------------------------- long rows */

template <typename Key> KERNEL_FN void sort_keys(const cuda_sort &p)
{
    for (int64_t i = thread_index(); i < p.rows * p.length; i += thread_count()) {
        int64_t row    = i / p.length;
        int64_t column = i - row * p.length;
        int64_t at[2];
        Key key;

        row_at(p, row, at);
        key_at(p.dtype, p.x + (uint64_t)(at[1] + column * p.stride[1]), &key);
        pointer<Key>(p.key[0], 0)[i]           = key;
        pointer<uint32_t>(p.position[0], 0)[i] = (uint32_t)column;
    }
}

/* Tiles of a row are CHUNK subtiles long. */
#define CHUNK CUDA_SORT_CHUNK

/* A block a tile: counts[row][digit][tile]. */
template <typename Key> KERNEL_FN void sort_count(const cuda_sort &p, uint32_t *shared)
{
    for (int64_t t = blockIdx.x; t < p.rows * p.tiles; t += gridDim.x) {
        int64_t row    = t / p.tiles;
        int64_t tile   = t - row * p.tiles;
        int64_t first  = tile * CHUNK * TILE;
        int64_t end    = min(first + CHUNK * TILE, p.length);
        const Key *key = pointer<const Key>(p.key[0], 0) + row * p.length;

        __syncthreads(); /* the last tile's counts were stored */
        shared[threadIdx.x] = 0;
        __syncthreads();
        for (int64_t i = first + threadIdx.x; i < end; i += THREADS) {
            atomicAdd(&shared[digit_of(key[i], p.shift)], 1u);
        }
        __syncthreads();
        pointer<uint32_t>(p.counts, 0)[(row * DIGITS + threadIdx.x) * p.tiles + tile] =
            shared[threadIdx.x];
    }
}

template <typename Key>
KERNEL_FN void sort_move(const cuda_sort &p, tile<Key> *shared, uint32_t *next)
{
    for (int64_t t = blockIdx.x; t < p.rows * p.tiles; t += gridDim.x) {
        int64_t row     = t / p.tiles;
        int64_t number  = t - row * p.tiles;
        const Key *from = pointer<const Key>(p.key[0], 0) + row * p.length;
        const uint32_t *from_at =
            pointer<const uint32_t>(p.position[0], 0) + row * p.length;
        Key *to         = pointer<Key>(p.key[1], 0) + row * p.length;
        uint32_t *to_at = pointer<uint32_t>(p.position[1], 0) + row * p.length;

        __syncthreads();
        next[threadIdx.x] = pointer<const uint32_t>(
            p.counts, 0)[(row * DIGITS + threadIdx.x) * p.tiles + number];
        for (int64_t first = number * CHUNK * TILE;
             first < min((number + 1) * CHUNK * TILE, p.length); first += TILE) {
            int valid = (int)min((int64_t)TILE, p.length - first);
            Key key[ITEMS];
            uint32_t position[ITEMS];
            uint32_t place[ITEMS];

#pragma unroll
            for (int i = 0; i < ITEMS; i++) {
                int index = tile_index(i);

                key[i]      = index < valid ? from[first + index] : ~(Key)0;
                position[i] = index < valid ? from_at[first + index] : 0;
            }
            rank_tile(key, p.shift, &shared->rank, place);
            /* What is behind the end has the last digit and the last places, so it is cut off. */
#pragma unroll
            for (int i = 0; i < ITEMS; i++) {
                shared->key[place[i]] = key[i];
            }
            __syncthreads();
#pragma unroll
            for (int i = 0; i < ITEMS; i++) {
                int index = (int)threadIdx.x + i * THREADS;

                if (index < valid) {
                    Key moved      = shared->key[index];
                    uint32_t digit = digit_of(moved, p.shift);

                    to[next[digit] + (uint32_t)index - shared->rank.start[digit]] = moved;
                }
            }
#pragma unroll
            for (int i = 0; i < ITEMS; i++) {
                if (tile_index(i) < valid) {
                    uint32_t digit = digit_of(key[i], p.shift);

                    to_at[next[digit] + place[i] - shared->rank.start[digit]] = position[i];
                }
            }
            __syncthreads();
            next[threadIdx.x] +=
                shared->rank.start[threadIdx.x + 1] - shared->rank.start[threadIdx.x];
            __syncthreads();
        }
    }
}

/* A block a row: what comes before each count, over all digits and tiles. */
KERNEL(sort_offsets, cuda_sort)
{
    __shared__ uint32_t warp_sum[WARPS];
    int lane = threadIdx.x % 32;
    int warp = threadIdx.x / 32;

    for (int64_t row = blockIdx.x; row < p.rows; row += gridDim.x) {
        uint32_t *count = pointer<uint32_t>(p.counts, 0) + row * DIGITS * p.tiles;
        uint32_t total  = 0;

        for (int64_t first = 0; first < DIGITS * p.tiles; first += THREADS * 4) {
            int64_t at = first + threadIdx.x * 4;
            uint32_t item[4];
            uint32_t sum = 0;
            uint32_t before;

#pragma unroll
            for (int i = 0; i < 4; i++) {
                item[i] = at + i < DIGITS * p.tiles ? count[at + i] : 0;
                sum += item[i];
            }
            before = sum;
            for (int step = 1; step < 32; step *= 2) {
                uint32_t other = __shfl_up_sync(0xffffffffu, before, step);

                before += lane >= step ? other : 0;
            }
            __syncthreads();
            if (lane == 31) {
                warp_sum[warp] = before;
            }
            __syncthreads();
            before += total - sum;
            for (int w = 0; w < WARPS; w++) {
                before += w < warp ? warp_sum[w] : 0;
                total += warp_sum[w];
            }
#pragma unroll
            for (int i = 0; i < 4; i++) {
                if (at + i < DIGITS * p.tiles) {
                    count[at + i] = before;
                }
                before += item[i];
            }
        }
    }
}

/* The values, or the positions, in the order found. */
KERNEL(sort_fetch, cuda_sort)
{
    for (int64_t i = thread_index(); i < p.rows * p.length; i += thread_count()) {
        int64_t row = i / p.length;
        int64_t at[2];

        row_at(p, row, at);
        put(p, at, i - row * p.length, pointer<const uint32_t>(p.position[0], 0)[i]);
    }
}

#define SORT_KERNELS(Key, suffix)           \
    KERNEL(sort_short_##suffix, cuda_sort)  \
    {                                       \
        __shared__ tile<Key> shared;        \
                                            \
        sort_short<Key>(p, &shared);        \
    }                                       \
    KERNEL(sort_keys_##suffix, cuda_sort)   \
    {                                       \
        sort_keys<Key>(p);                  \
    }                                       \
    KERNEL(sort_count_##suffix, cuda_sort)  \
    {                                       \
        __shared__ uint32_t shared[DIGITS]; \
                                            \
        sort_count<Key>(p, shared);         \
    }                                       \
    KERNEL(sort_move_##suffix, cuda_sort)   \
    {                                       \
        __shared__ tile<Key> shared;        \
        __shared__ uint32_t next[DIGITS];   \
                                            \
        sort_move<Key>(p, &shared, next);   \
    }
SORT_KERNELS(uint32_t, u32)
SORT_KERNELS(uint64_t, u64)
