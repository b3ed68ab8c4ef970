/*
 * The shape of every reduction on a GPU.
 *
 * Two ways, and the host chooses (cuda_reduce.c): by rows, where a warp or a block works on one
 * output and its threads read neighbours along the reduced axis; by columns, where each thread has
 * an output of its own and neighbours read neighbouring outputs. Long reductions are cut into
 * segments, whose partial results a second kernel joins. Who adds what to what depends on the shape
 * alone (not on the GPU, not on timing), so results are the same to the bit every time.
 *
 * What is reduced is a class R:
 *
 *   State                        what a set of elements comes to: words of 4 bytes, shuffled and
 *                                stored as they are
 *   nothing(p)                   the state of no element
 *   add(p, state, kept, r)       with element r of the output whose first element is at `kept`
 *   join(p, a, b)                of two sets; a's elements come first
 *   finish(p, at, output, state) store the result in y at byte offset `at`
 *
 * Floats accumulate in double: on the GPUs this is for, that costs less than the reading.
 */
#ifndef KERNELS_CUDA_REDUCE_CUH
#define KERNELS_CUDA_REDUCE_CUH

#include "kernels/cuda_common.cuh"

/* --------------------------------------------------------------------- input and output */

struct offset_pair {
    int64_t first;
    int64_t second;
};

/*
 * Several reduced dimensions are rare (a view of an array, reduced over all axes): one copy of the
 * divisions will do.
 */
static __device__ __noinline__ offset_pair reduced_general(const cuda_reduce &p, int64_t r)
{
    offset_pair result;
    int64_t at[2];

    offsets_of<2>(r, p.reduced_ndim, p.reduced_dim, p.reduced_stride, at);
    result.first  = at[0];
    result.second = at[1];
    return result;
}

KERNEL_FN offset_pair reduced_at(const cuda_reduce &p, int64_t r)
{
    offset_pair result = {r * p.reduced_stride[0][0], r * p.reduced_stride[1][0]};

    return p.reduced_ndim == 1 ? result : reduced_general(p, r);
}

static __device__ __noinline__ offset_pair output_at(const cuda_reduce &p, int64_t output)
{
    offset_pair result;
    int64_t at[2];

    offsets_of<2>(output, p.kept_ndim, p.kept_dim, p.kept_stride, at);
    result.first  = at[0]; /* of y */
    result.second = at[1]; /* of x */
    return result;
}

template <class R>
KERNEL_FN void store_state(const cuda_reduce &p, int64_t output, int64_t segment,
                           const typename R::State &state)
{
    if (p.segments == 1) {
        R::finish(p, output_at(p, output).first, output, state);
        return;
    }
    pointer<typename R::State>(p.partial, 0)[segment * p.outputs + output] = state;
}

/* -------------------------------------------------------------------- groups of threads */

template <typename State> KERNEL_FN State shuffle_down(const State &mine, int step)
{
    union {
        State state;
        uint32_t word[sizeof(State) / 4];
    } value;

    value.state = mine;
#pragma unroll
    for (int i = 0; i < (int)(sizeof(State) / 4); i++) {
        value.word[i] = __shfl_down_sync(0xffffffffu, value.word[i], step);
    }
    return value.state;
}

template <class R>
KERNEL_FN typename R::State join_warp(const cuda_reduce &p, typename R::State mine)
{
    for (int step = 16; step > 0; step /= 2) {
        mine = R::join(p, mine, shuffle_down(mine, step));
    }
    return mine; /* of the whole warp in its first thread */
}

/* Of 256 threads, in thread 0. All threads of the block come here. */
template <class R>
KERNEL_FN typename R::State join_block(const cuda_reduce &p, typename R::State mine,
                                       typename R::State *shared)
{
    mine = join_warp<R>(p, mine);
    __syncthreads(); /* the last round's values have been read */
    if (threadIdx.x % 32 == 0) {
        shared[threadIdx.x / 32] = mine;
    }
    __syncthreads();
    if (threadIdx.x < 32) {
        mine = threadIdx.x < blockDim.x / 32 ? shared[threadIdx.x] : R::nothing(p);
        mine = join_warp<R>(p, mine);
    }
    return mine;
}

/* ------------------------------------------------------------------------------ kernels */

/*
 * `group` threads an output and segment: 32 (a warp, eight outputs a block) or 256 (the block). In
 * a block that works on one output all threads make the same number of rounds, as join_block()
 * needs.
 */
template <class R> KERNEL_FN void by_rows(const cuda_reduce &p, typename R::State *shared)
{
    int64_t groups = (int64_t)blockDim.x / p.group;
    int64_t lane   = threadIdx.x % p.group;
    int64_t work   = p.outputs * p.segments;

    for (int64_t w = blockIdx.x * groups + threadIdx.x / p.group; w < work;
         w += gridDim.x * groups) {
        int64_t output          = w % p.outputs;
        int64_t segment         = w / p.outputs;
        int64_t first           = segment * p.segment_length;
        int64_t end             = min(first + p.segment_length, p.length);
        typename R::State total = R::nothing(p);
        int64_t kept            = output_at(p, output).second;

#pragma unroll 4
        for (int64_t r = first + lane; r < end; r += p.group) {
            R::add(p, total, kept, r);
        }
        total = p.group == 32 ? join_warp<R>(p, total) : join_block<R>(p, total, shared);
        if (lane == 0) {
            store_state<R>(p, output, segment, total);
        }
    }
}

template <class R> KERNEL_FN void by_columns(const cuda_reduce &p)
{
    int64_t work = p.outputs * p.segments;

    for (int64_t w = thread_index(); w < work; w += thread_count()) {
        int64_t output          = w % p.outputs; /* neighbours have neighbouring outputs */
        int64_t segment         = w / p.outputs;
        int64_t first           = segment * p.segment_length;
        int64_t end             = min(first + p.segment_length, p.length);
        typename R::State total = R::nothing(p);
        int64_t kept            = output_at(p, output).second;

#pragma unroll 4
        for (int64_t r = first; r < end; r++) {
            R::add(p, total, kept, r);
        }
        store_state<R>(p, output, segment, total);
    }
}

/* The second kernel: a block an output joins its segments. */
template <class R>
KERNEL_FN void join_segments(const cuda_reduce &p, typename R::State *shared)
{
    typedef typename R::State State;

    for (int64_t output = blockIdx.x; output < p.outputs; output += gridDim.x) {
        State total = R::nothing(p);

        for (int64_t segment = threadIdx.x; segment < p.segments; segment += blockDim.x) {
            total = R::join(
                p, total, pointer<const State>(p.partial, 0)[segment * p.outputs + output]);
        }
        total = join_block<R>(p, total, shared);
        if (threadIdx.x == 0) {
            R::finish(p, output_at(p, output).first, output, total);
        }
    }
}

/* A class that has commas in it needs a name of its own here. */
#define REDUCE_KERNELS(prefix, suffix, R)         \
    KERNEL(prefix##rows_##suffix, cuda_reduce)    \
    {                                             \
        __shared__ R::State shared[8];            \
                                                  \
        by_rows<R>(p, shared);                    \
    }                                             \
    KERNEL(prefix##columns_##suffix, cuda_reduce) \
    {                                             \
        by_columns<R>(p);                         \
    }
#define JOIN_KERNEL(prefix, suffix, R)         \
    KERNEL(prefix##join_##suffix, cuda_reduce) \
    {                                          \
        __shared__ R::State shared[8];         \
                                               \
        join_segments<R>(p, shared);           \
    }

#endif
