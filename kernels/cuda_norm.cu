/*
 * CUDA variants of norm, softmax and log_softmax, on the kernels of cuda_reduce.cuh.
 *
 * Norms sum squares in three ranges (norm.h), so one reading is enough. A softmax needs the largest
 * element and the sum of exponentials less it: both in one reading too, the sum scaled down
 * whenever a larger element comes. Lanes that are dense and many are normalised by the warp or
 * block that has just read them, out of the cache; otherwise a second kernel reads again.
 * Exponentials of f32 and narrower are taken in f32 and summed in f64.
 */
#include "kernels/cuda_sum.cuh"
#include "kernels/norm.h"

/* -------------------------------------------------------------------------------- norms */

KERNEL_FN void norm_add_value(int op, kernel_squares &total, double size)
{
    if (op == KERNEL_REDUCTION_NORM_2) {
        kernel_squares_add(&total, size);
    } else if (op == KERNEL_REDUCTION_NORM_1) {
        total.middle += size;
    } else {
        total.middle =
            beats(KERNEL_REDUCTION_MAX, size, total.middle) ? size : total.middle;
    }
}

KERNEL_FN void norm_add(int op, kernel_squares &total, double x)
{
    norm_add_value(op, total, fabs(x));
}
KERNEL_FN void norm_add(int op, kernel_squares &total, kernel_c128 x)
{
    if (op == KERNEL_REDUCTION_NORM_2) {
        norm_add_value(op, total, x.re);
        norm_add_value(op, total, x.im);
    } else {
        norm_add_value(op, total, kernel_c128_abs(x));
    }
}

template <typename T> struct norm_of {
    typedef kernel_squares State;

    KERNEL_FN State nothing(const cuda_reduce &p)
    {
        return {0, 0, 0};
    }
    KERNEL_FN void add(const cuda_reduce &p, State &total, int64_t kept, int64_t r)
    {
        norm_add(p.op, total,
                 accumulated(*pointer<const T>(p.x, kept + reduced_at(p, r).first)));
    }
    KERNEL_FN State join(const cuda_reduce &p, const State &a, const State &b)
    {
        State result = {a.large + b.large, a.middle + b.middle, a.small + b.small};

        if (p.op == KERNEL_REDUCTION_NORM_INF) {
            result.middle =
                beats(KERNEL_REDUCTION_MAX, b.middle, a.middle) ? b.middle : a.middle;
        }
        return result;
    }
    KERNEL_FN void finish(const cuda_reduce &p, int64_t at, int64_t output,
                          const State &total)
    {
        store_total(p, at,
                    p.op == KERNEL_REDUCTION_NORM_2 ? kernel_squares_root(&total)
                                                    : total.middle);
    }
};

REDUCE_KERNELS(norm_, f32, norm_of<float>)
REDUCE_KERNELS(norm_, f64, norm_of<double>)
REDUCE_KERNELS(norm_, f16, norm_of<half_f16>)
REDUCE_KERNELS(norm_, bf16, norm_of<half_bf16>)
REDUCE_KERNELS(norm_, c64, norm_of<kernel_c64>)
REDUCE_KERNELS(norm_, c128, norm_of<kernel_c128>)
JOIN_KERNEL(norm_, f64, norm_of<double>)

/* ------------------------------------------------------------------------------ softmax */

struct exponentials {
    double largest;
    double sum; /* of exp(x - largest) */
};

template <typename T> struct working {
    typedef float E;
};
template <> struct working<double> {
    typedef double E;
};

KERNEL_FN float exponential(float x)
{
    return expf(x);
}
KERNEL_FN double exponential(double x)
{
    return exp(x);
}

template <typename T> struct exps {
    typedef exponentials State;
    typedef typename working<T>::E E;

    KERNEL_FN State nothing(const cuda_reduce &p)
    {
        return {-INFINITY, 0};
    }
    KERNEL_FN E value(const cuda_reduce &p, int64_t kept, int64_t r)
    {
        return (E)accumulated(*pointer<const T>(p.x, kept + reduced_at(p, r).first));
    }
    KERNEL_FN void add(const cuda_reduce &p, State &total, int64_t kept, int64_t r)
    {
        E x = value(p, kept, r);

        if ((double)x > total.largest) {
            total.sum =
                total.sum == 0 ? 1.0 : total.sum * exp(total.largest - (double)x) + 1.0;
            total.largest = (double)x;
        } else if ((double)x != total.largest) { /* NaN, too */
            total.sum += (double)exponential(x - (E)total.largest);
        } else {
            total.sum += x - x == 0 ? 1.0 : 0.0; /* -infinity before anything else */
        }
    }
    KERNEL_FN State join(const cuda_reduce &p, const State &a, const State &b)
    {
        State result;

        if (a.sum == 0) {
            return b;
        }
        if (b.sum == 0) {
            return a;
        }
        result.largest = a.largest > b.largest ? a.largest : b.largest;
        result.sum     = a.sum * exp(a.largest - result.largest) +
                     b.sum * exp(b.largest - result.largest);
        return result;
    }
    /* For the second kernel. */
    KERNEL_FN void finish(const cuda_reduce &p, int64_t at, int64_t output,
                          const State &total)
    {
        pointer<State>(p.y, 0)[output] = total;
    }
};

template <typename T> KERNEL_FN T softmax_rounded(typename working<T>::E x)
{
    return (T)x;
}
template <> __device__ __forceinline__ half_f16 softmax_rounded<half_f16>(float x)
{
    return narrow<half_f16>(x);
}
template <> __device__ __forceinline__ half_bf16 softmax_rounded<half_bf16>(float x)
{
    return narrow<half_bf16>(x);
}

/* p.x2 is y; p.op says whether the logarithm is wanted. */
template <typename T>
KERNEL_FN void softmax_write(const cuda_reduce &p, const offset_pair &kept, int64_t r,
                             typename working<T>::E largest, typename working<T>::E scale)
{
    typedef typename working<T>::E E;
    offset_pair at = reduced_at(p, r);
    E x = (E)accumulated(*pointer<const T>(p.x, kept.second + at.first)) - largest;

    *pointer<T>(p.x2, kept.first + at.second) =
        softmax_rounded<T>(p.op != 0 ? x - scale : exponential(x) * scale);
}

/* What exponentials are multiplied with, or what is taken from logarithms. */
KERNEL_FN double softmax_scale(const cuda_reduce &p, const exponentials &total)
{
    return p.op != 0 ? log(total.sum) : 1.0 / total.sum;
}

/* Lanes of one segment: both readings in one kernel. shared has 8 states, and one for what was found. */
template <typename T>
KERNEL_FN void softmax_rows(const cuda_reduce &p, exponentials *shared)
{
    typedef typename working<T>::E E;
    int64_t groups = (int64_t)blockDim.x / p.group;
    int64_t lane   = threadIdx.x % p.group;

    for (int64_t output = blockIdx.x * groups + threadIdx.x / p.group; output < p.outputs;
         output += gridDim.x * groups) {
        offset_pair kept   = output_at(p, output);
        exponentials total = exps<T>::nothing(p);

#pragma unroll 4
        for (int64_t r = lane; r < p.length; r += p.group) {
            exps<T>::add(p, total, kept.second, r);
        }
        if (p.group == 32) {
            total         = join_warp<exps<T>>(p, total);
            total.largest = __shfl_sync(0xffffffffu, total.largest, 0);
            total.sum     = __shfl_sync(0xffffffffu, total.sum, 0);
        } else {
            total = join_block<exps<T>>(p, total, shared);
            if (threadIdx.x == 0) {
                shared[8] = total;
            }
            __syncthreads();
            total = shared[8];
        }
        E largest = (E)total.largest;
        E scale   = (E)softmax_scale(p, total);

#pragma unroll 4
        for (int64_t r = lane; r < p.length; r += p.group) {
            softmax_write<T>(p, kept, r, largest, scale);
        }
    }
}

/* With the states in y. Neighbouring threads take neighbours of a lane (p.group 0) or of several. */
template <typename T> KERNEL_FN void softmax_apply(const cuda_reduce &p)
{
    typedef typename working<T>::E E;
    int64_t count = p.outputs * p.length;
    int64_t inner = p.group == 0 ? p.length : p.outputs;

    for (int64_t i = thread_index(); i < count; i += thread_count()) {
        int64_t quotient =
            ((i | inner) >> 32) == 0 ? (int64_t)((uint32_t)i / (uint32_t)inner) : i / inner;
        int64_t rest       = i - quotient * inner;
        int64_t output     = p.group == 0 ? quotient : rest;
        exponentials total = pointer<const exponentials>(p.y, 0)[output];

        softmax_write<T>(p, output_at(p, output), p.group == 0 ? rest : quotient,
                         (E)total.largest, (E)softmax_scale(p, total));
    }
}

#define SOFTMAX_KERNELS(T, suffix)              \
    REDUCE_KERNELS(exps_, suffix, exps<T>)      \
    KERNEL(softmax_rows_##suffix, cuda_reduce)  \
    {                                           \
        __shared__ exponentials shared[9];      \
                                                \
        softmax_rows<T>(p, shared);             \
    }                                           \
    KERNEL(softmax_apply_##suffix, cuda_reduce) \
    {                                           \
        softmax_apply<T>(p);                    \
    }
SOFTMAX_KERNELS(float, f32)
SOFTMAX_KERNELS(double, f64)
SOFTMAX_KERNELS(half_f16, f16)
SOFTMAX_KERNELS(half_bf16, bf16)
JOIN_KERNEL(exps_, f64, exps<double>)
