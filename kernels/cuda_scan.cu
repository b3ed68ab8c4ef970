/*
 * CUDA variants of cumsum and cumprod.
 *
 * Long lanes are cut into segments as for a reduction: the kernels of cuda_reduce leave the total
 * of each segment, `carry` turns them into what comes before each, and then every segment is
 * scanned on its own, so a lane is read twice and written once. A lane of one segment is read once.
 * Where lanes are dense, a warp or a block takes four neighbours a thread, so that loads are wide;
 * elsewhere a thread walks its own lane, and neighbours read neighbouring lanes.
 *
 * Who adds what to what depends on the shape alone. Accumulators are those of sums: f64, 64-bit
 * integers, c128.
 */
#include "kernels/cuda_sum.cuh"

template <typename T>
KERNEL_FN void store_prefix(const cuda_reduce &p, int64_t at, typename traits<T>::A value)
{
    *pointer<T>(p.y, at) = (T)value;
}
template <>
__device__ __forceinline__ void store_prefix<half_f16>(const cuda_reduce &p, int64_t at,
                                                       double value)
{
    *pointer<half_f16>(p.y, at) = narrow<half_f16>(kernel_f64_to_f32_odd(value));
}
template <>
__device__ __forceinline__ void store_prefix<half_bf16>(const cuda_reduce &p, int64_t at,
                                                        double value)
{
    *pointer<half_bf16>(p.y, at) = narrow<half_bf16>(kernel_f64_to_f32_odd(value));
}
template <>
__device__ __forceinline__ void store_prefix<kernel_c64>(const cuda_reduce &p, int64_t at,
                                                         kernel_c128 value)
{
    *pointer<kernel_c64>(p.y, at) = kernel_c128_narrow(value);
}

template <typename State> KERNEL_FN State shuffle_up(const State &mine, int step)
{
    union {
        State state;
        uint32_t word[sizeof(State) / 4];
    } value;

    value.state = mine;
#pragma unroll
    for (int i = 0; i < (int)(sizeof(State) / 4); i++) {
        value.word[i] = __shfl_up_sync(0xffffffffu, value.word[i], step);
    }
    return value.state;
}

template <typename A> KERNEL_FN A scan_identity(int op)
{
    A result;

    set_identity(op, &result);
    return result;
}

/* What came before this segment. */
template <typename A>
KERNEL_FN A carried(const cuda_reduce &p, int64_t output, int64_t segment)
{
    return p.segments == 1 ? scan_identity<A>(p.op)
                           : pointer<const A>(p.partial, 0)[segment * p.outputs + output];
}

/* ------------------------------------------------------------------------------ by rows */

#define ITEMS 4 /* of a thread at a time */

/* Of the threads of a group, everything before each; *io_total becomes what the group comes to. */
template <typename A>
KERNEL_FN A before_threads(const cuda_reduce &p, A mine, A *io_total, A *shared)
{
    int lane    = threadIdx.x % 32;
    int warp    = threadIdx.x / 32;
    A inclusive = mine;
    A before;
    A base  = *io_total;
    A total = *io_total;

    for (int step = 1; step < 32; step *= 2) {
        A other = shuffle_up(inclusive, step);

        if (lane >= step) {
            inclusive = joined(p.op, other, inclusive);
        }
    }
    before = shuffle_up(inclusive, 1);
    if (lane == 0) {
        before = scan_identity<A>(p.op);
    }
    if (p.group == 32) {
        union {
            A state;
            uint32_t word[sizeof(A) / 4];
        } last;

        last.state = inclusive;
        for (int i = 0; i < (int)(sizeof(A) / 4); i++) {
            last.word[i] = __shfl_sync(0xffffffffu, last.word[i], 31);
        }
        *io_total = joined(p.op, total, last.state);
        return joined(p.op, base, before);
    }
    __syncthreads(); /* the last round's values have been read */
    if (lane == 31) {
        shared[warp] = inclusive;
    }
    __syncthreads();
    for (int i = 0; i < (int)blockDim.x / 32; i++) {
        if (i == warp) {
            base = total;
        }
        total = joined(p.op, total, shared[i]);
    }
    *io_total = total;
    return joined(p.op, base, before);
}

template <typename T>
KERNEL_FN void scan_rows(const cuda_reduce &p, typename traits<T>::A *shared)
{
    typedef typename traits<T>::A A;
    int64_t groups = (int64_t)blockDim.x / p.group;
    int64_t thread = threadIdx.x % p.group;
    int64_t work   = p.outputs * p.segments;

    for (int64_t w = blockIdx.x * groups + threadIdx.x / p.group; w < work;
         w += gridDim.x * groups) {
        int64_t output   = w % p.outputs;
        int64_t segment  = w / p.outputs;
        int64_t first    = segment * p.segment_length;
        int64_t end      = min(first + p.segment_length, p.length);
        offset_pair kept = output_at(p, output);
        A total          = carried<A>(p, output, segment);

        for (int64_t chunk = first; chunk < end; chunk += p.group * ITEMS) {
            int64_t mine = chunk + thread * ITEMS;
            A item[ITEMS];
            A sum = scan_identity<A>(p.op);

#pragma unroll
            for (int i = 0; i < ITEMS; i++) {
                item[i] = mine + i < end
                              ? accumulated(*pointer<const T>(
                                    p.x, kept.second + (mine + i) * p.reduced_stride[0][0]))
                              : scan_identity<A>(p.op);
                sum     = joined(p.op, sum, item[i]);
            }
            sum = before_threads(p, sum, &total, shared);
#pragma unroll
            for (int i = 0; i < ITEMS; i++) {
                A before = sum;

                sum = joined(p.op, sum, item[i]);
                if (mine + i < end) {
                    store_prefix<T>(p, kept.first + (mine + i) * p.reduced_stride[1][0],
                                    p.exclusive ? before : sum);
                }
            }
        }
    }
}

/* --------------------------------------------------------------------------- by columns */

template <typename T> KERNEL_FN void scan_columns(const cuda_reduce &p)
{
    typedef typename traits<T>::A A;
    int64_t work = p.outputs * p.segments;

    for (int64_t w = thread_index(); w < work; w += thread_count()) {
        int64_t output   = w % p.outputs;
        int64_t segment  = w / p.outputs;
        int64_t first    = segment * p.segment_length;
        int64_t end      = min(first + p.segment_length, p.length);
        offset_pair kept = output_at(p, output);
        A total          = carried<A>(p, output, segment);

        for (int64_t r = first; r < end; r++) {
            A before = total;

            total = joined(p.op, total,
                           accumulated(*pointer<const T>(
                               p.x, kept.second + r * p.reduced_stride[0][0])));
            store_prefix<T>(p, kept.first + r * p.reduced_stride[1][0],
                            p.exclusive ? before : total);
        }
    }
}

/* The totals of the segments of each lane become what comes before each segment. */
template <typename A> KERNEL_FN void carry(const cuda_reduce &p)
{
    for (int64_t output = thread_index(); output < p.outputs; output += thread_count()) {
        A total = scan_identity<A>(p.op);

        for (int64_t segment = 0; segment < p.segments; segment++) {
            A *slot = &pointer<A>(p.partial, 0)[segment * p.outputs + output];
            A mine  = *slot;

            *slot = total;
            total = joined(p.op, total, mine);
        }
    }
}

#define SCAN_KERNELS(T, suffix)                \
    KERNEL(scan_rows_##suffix, cuda_reduce)    \
    {                                          \
        __shared__ traits<T>::A shared[8];     \
                                               \
        scan_rows<T>(p, shared);               \
    }                                          \
    KERNEL(scan_columns_##suffix, cuda_reduce) \
    {                                          \
        scan_columns<T>(p);                    \
    }
SCAN_KERNELS(float, f32)
SCAN_KERNELS(double, f64)
SCAN_KERNELS(int32_t, i32)
SCAN_KERNELS(int64_t, i64)
SCAN_KERNELS(half_f16, f16)
SCAN_KERNELS(half_bf16, bf16)
SCAN_KERNELS(kernel_c64, c64)
SCAN_KERNELS(kernel_c128, c128)

#define CARRY_KERNEL(A, suffix)         \
    KERNEL(carry_##suffix, cuda_reduce) \
    {                                   \
        carry<A>(p);                    \
    }
CARRY_KERNEL(double, f64)
CARRY_KERNEL(int64_t, i64)
CARRY_KERNEL(kernel_c128, c128)
