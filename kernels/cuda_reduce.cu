/*
 * CUDA variants of the reductions and of dot.
 *
 * Two ways, and the host chooses (cuda_reduce.c): by rows, where a warp or a block works on one output and its threads
 * read neighbours along the reduced axis; by columns, where each thread has an output of its own and neighbours read
 * neighbouring outputs. Long reductions are cut into segments, whose partial results a second kernel joins. Who adds what
 * to what depends on the shape alone (not on the GPU, not on timing), so results are the same to the bit every time.
 *
 * Floats accumulate in double: on the GPUs this is for, that costs less than the reading.
 */
#include "kernels/cuda_common.cuh"

/* A running value; arg reductions know where it was. */
template <typename A> struct running {
    A value;
    int64_t index; /* -1: nothing yet */
};

KERNEL_FN double plus(double a, double b)
{
    return a + b;
}
KERNEL_FN int64_t plus(int64_t a, int64_t b)
{
    return (int64_t)((uint64_t)a + (uint64_t)b);
}
KERNEL_FN double times(double a, double b)
{
    return a * b;
}
KERNEL_FN int64_t times(int64_t a, int64_t b)
{
    return (int64_t)((uint64_t)a * (uint64_t)b);
}

/* NaN is smaller than the smallest and larger than the largest, so that it wins. Never true for two NaN. */
template <typename A> KERNEL_FN bool beats(int op, A a, A b)
{
    return (op == KERNEL_REDUCTION_MIN ? a < b : a > b) || (a != a && b == b);
}

template <bool ARG, typename A>
KERNEL_FN running<A> join(int op, const running<A> &a, const running<A> &b)
{
    running<A> result = a;

    if (ARG) {
        bool same = a.value == b.value || (a.value != a.value && b.value != b.value);

        if (b.index >= 0 && (a.index < 0 || beats(op, b.value, a.value) ||
                             (same && b.index < a.index))) {
            result = b;
        }
    } else if (op == KERNEL_REDUCTION_MIN || op == KERNEL_REDUCTION_MAX) {
        result.value = beats(op, b.value, a.value) ? b.value : a.value;
    } else {
        result.value = plus(a.value, b.value);
    }
    return result;
}

KERNEL_FN void set_largest(double *value)
{
    *value = INFINITY;
}
KERNEL_FN void set_largest(int64_t *value)
{
    *value = INT64_MAX;
}
KERNEL_FN void set_smallest(double *value)
{
    *value = -INFINITY;
}
KERNEL_FN void set_smallest(int64_t *value)
{
    *value = INT64_MIN;
}

template <typename A> KERNEL_FN running<A> nothing(int op)
{
    running<A> result = {0, -1};

    if (op == KERNEL_REDUCTION_MIN) {
        set_largest(&result.value);
    } else if (op == KERNEL_REDUCTION_MAX) {
        set_smallest(&result.value);
    }
    return result;
}

/* ------------------------------------------------------------------------------------------------ input and output */

struct offset_pair {
    int64_t first;
    int64_t second;
};

/* Several reduced dimensions are rare (a view of an array, reduced over all axes): one copy of the divisions will do. */
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

template <typename T>
KERNEL_FN running<typename traits<T>::A> element(const cuda_reduce &p, int64_t kept, int64_t r)
{
    typedef typename traits<T>::A A;
    offset_pair at = reduced_at(p, r);
    running<A> result;

    result.value = (A)*pointer<const T>(p.x, kept + at.first);
    if (p.x2 != 0) {
        result.value = times(result.value, (A)*pointer<const T>(p.x2, at.second));
    }
    result.index = r;
    return result;
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

template <bool ARG, typename A>
KERNEL_FN void store_output(const cuda_reduce &p, int64_t output, const running<A> &total)
{
    double mean = (double)total.value / (double)p.length;
    int64_t at  = output_at(p, output).first;

    if (ARG) {
        *pointer<int64_t>(p.y, at) = total.index;
        return;
    }
    switch (p.to) {
    case CUDA_F32:
        *pointer<float>(p.y, at) =
            (float)(p.op == KERNEL_REDUCTION_MEAN ? mean : (double)total.value);
        break;
    case CUDA_F64:
        *pointer<double>(p.y, at) =
            p.op == KERNEL_REDUCTION_MEAN ? mean : (double)total.value;
        break;
    case CUDA_I32:
        *pointer<int32_t>(p.y, at) = (int32_t)(int64_t)total.value;
        break;
    default:
        *pointer<int64_t>(p.y, at) = (int64_t)total.value;
        break;
    }
}

template <bool ARG, typename A>
KERNEL_FN void store(const cuda_reduce &p, int64_t output, int64_t segment,
                     const running<A> &total)
{
    int64_t slot = segment * p.outputs + output;

    if (p.segments == 1) {
        store_output<ARG>(p, output, total);
        return;
    }
    pointer<A>(p.partial, 0)[slot] = total.value;
    if (ARG) {
        pointer<int64_t>(p.partial, 0)[p.segments * p.outputs + slot] = total.index;
    }
}

/* ------------------------------------------------------------------------------------------------ groups of threads */

template <bool ARG, typename A> KERNEL_FN running<A> join_warp(int op, running<A> mine)
{
    for (int step = 16; step > 0; step /= 2) {
        running<A> other;

        other.value = __shfl_down_sync(0xffffffffu, mine.value, step);
        other.index = ARG ? __shfl_down_sync(0xffffffffu, mine.index, step) : -1;
        mine        = join<ARG>(op, mine, other);
    }
    return mine; /* of the whole warp in its first thread */
}

/* Of 256 threads, in thread 0. All threads of the block come here. */
template <bool ARG, typename A>
KERNEL_FN running<A> join_block(int op, running<A> mine, running<A> *shared)
{
    mine = join_warp<ARG>(op, mine);
    __syncthreads(); /* the last round's values have been read */
    if (threadIdx.x % 32 == 0) {
        shared[threadIdx.x / 32] = mine;
    }
    __syncthreads();
    if (threadIdx.x < 32) {
        mine = threadIdx.x < blockDim.x / 32 ? shared[threadIdx.x] : nothing<A>(op);
        mine = join_warp<ARG>(op, mine);
    }
    return mine;
}

/* ------------------------------------------------------------------------------------------------ kernels */

/*
 * `group` threads an output and segment: 32 (a warp, eight outputs a block) or 256 (the block). In a block that works on
 * one output all threads make the same number of rounds, as join_block() needs.
 */
template <typename T, bool ARG>
KERNEL_FN void by_rows(const cuda_reduce &p, running<typename traits<T>::A> *shared)
{
    typedef typename traits<T>::A A;
    int64_t groups = (int64_t)blockDim.x / p.group;
    int64_t lane   = threadIdx.x % p.group;
    int64_t work   = p.outputs * p.segments;

    for (int64_t w = blockIdx.x * groups + threadIdx.x / p.group; w < work;
         w += gridDim.x * groups) {
        int64_t output   = w % p.outputs;
        int64_t segment  = w / p.outputs;
        int64_t first    = segment * p.segment_length;
        int64_t end      = min(first + p.segment_length, p.length);
        running<A> total = nothing<A>(p.op);
        int64_t kept     = output_at(p, output).second;

#pragma unroll 4
        for (int64_t r = first + lane; r < end; r += p.group) {
            total = join<ARG>(p.op, total, element<T>(p, kept, r));
        }
        total = p.group == 32 ? join_warp<ARG>(p.op, total)
                              : join_block<ARG>(p.op, total, shared);
        if (lane == 0) {
            store<ARG>(p, output, segment, total);
        }
    }
}

template <typename T, bool ARG> KERNEL_FN void by_columns(const cuda_reduce &p)
{
    typedef typename traits<T>::A A;
    int64_t work = p.outputs * p.segments;

    for (int64_t w = thread_index(); w < work; w += thread_count()) {
        int64_t output   = w % p.outputs; /* neighbours have neighbouring outputs */
        int64_t segment  = w / p.outputs;
        int64_t first    = segment * p.segment_length;
        int64_t end      = min(first + p.segment_length, p.length);
        running<A> total = nothing<A>(p.op);
        int64_t kept     = output_at(p, output).second;

#pragma unroll 4
        for (int64_t r = first; r < end; r++) {
            total = join<ARG>(p.op, total, element<T>(p, kept, r));
        }
        store<ARG>(p, output, segment, total);
    }
}

/* The second kernel: a block an output joins its segments. */
template <typename A, bool ARG>
KERNEL_FN void join_segments(const cuda_reduce &p, running<A> *shared)
{
    for (int64_t output = blockIdx.x; output < p.outputs; output += gridDim.x) {
        running<A> total = nothing<A>(p.op);

        for (int64_t segment = threadIdx.x; segment < p.segments; segment += blockDim.x) {
            int64_t slot = segment * p.outputs + output;
            running<A> part;

            part.value = pointer<const A>(p.partial, 0)[slot];
            part.index = ARG ? pointer<const int64_t>(p.partial, 0)[p.segments * p.outputs + slot]
                             : -1;
            total = join<ARG>(p.op, total, part);
        }
        total = join_block<ARG>(p.op, total, shared);
        if (threadIdx.x == 0) {
            store_output<ARG>(p, output, total);
        }
    }
}

#define REDUCE_KERNELS(T, suffix)                                                            \
    KERNEL(rows_##suffix, cuda_reduce)                                                       \
    {                                                                                        \
        __shared__ running<traits<T>::A> shared[8];                                          \
                                                                                             \
        by_rows<T, false>(p, shared);                                                        \
    }                                                                                        \
    KERNEL(columns_##suffix, cuda_reduce)                                                    \
    {                                                                                        \
        by_columns<T, false>(p);                                                             \
    }                                                                                        \
    KERNEL(arg_rows_##suffix, cuda_reduce)                                                   \
    {                                                                                        \
        __shared__ running<traits<T>::A> shared[8];                                          \
                                                                                             \
        by_rows<T, true>(p, shared);                                                         \
    }                                                                                        \
    KERNEL(arg_columns_##suffix, cuda_reduce)                                                \
    {                                                                                        \
        by_columns<T, true>(p);                                                              \
    }
REDUCE_KERNELS(float, f32)
REDUCE_KERNELS(double, f64)
REDUCE_KERNELS(int32_t, i32)
REDUCE_KERNELS(int64_t, i64)

#define JOIN_KERNELS(A, suffix)                                                              \
    KERNEL(join_##suffix, cuda_reduce)                                                       \
    {                                                                                        \
        __shared__ running<A> shared[8];                                                     \
                                                                                             \
        join_segments<A, false>(p, shared);                                                  \
    }                                                                                        \
    KERNEL(arg_join_##suffix, cuda_reduce)                                                   \
    {                                                                                        \
        __shared__ running<A> shared[8];                                                     \
                                                                                             \
        join_segments<A, true>(p, shared);                                                   \
    }
JOIN_KERNELS(double, f64)
JOIN_KERNELS(int64_t, i64)
