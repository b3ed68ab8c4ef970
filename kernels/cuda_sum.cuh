/*
 * Sums, products, extremes and their indices as reductions (cuda_reduce.cuh), for any element type.
 */
#ifndef KERNELS_CUDA_SUM_CUH
#define KERNELS_CUDA_SUM_CUH

#include "kernels/cuda_reduce.cuh"

KERNEL_FN double plus(double a, double b)
{
    return a + b;
}
KERNEL_FN int64_t plus(int64_t a, int64_t b)
{
    return (int64_t)((uint64_t)a + (uint64_t)b);
}
KERNEL_FN kernel_c128 plus(kernel_c128 a, kernel_c128 b)
{
    return kernel_c128_add(a, b);
}
KERNEL_FN double times(double a, double b)
{
    return a * b;
}
KERNEL_FN int64_t times(int64_t a, int64_t b)
{
    return (int64_t)((uint64_t)a * (uint64_t)b);
}
KERNEL_FN kernel_c128 times(kernel_c128 a, kernel_c128 b)
{
    return kernel_c128_mul(a, b);
}

/* NaN is smaller than the smallest and larger than the largest, so that it wins. Never true for two NaN. */
template <typename A> KERNEL_FN bool beats(int op, A a, A b)
{
    return (op == KERNEL_REDUCTION_MIN ? a < b : a > b) || (a != a && b == b);
}

template <typename A> KERNEL_FN A joined(int op, A a, A b)
{
    if (op == KERNEL_REDUCTION_MIN || op == KERNEL_REDUCTION_MAX) {
        return beats(op, b, a) ? b : a;
    }
    return op == KERNEL_REDUCTION_PROD ? times(a, b) : plus(a, b);
}
/* Complex numbers have no order. */
KERNEL_FN kernel_c128 joined(int op, kernel_c128 a, kernel_c128 b)
{
    return op == KERNEL_REDUCTION_PROD ? times(a, b) : plus(a, b);
}

KERNEL_FN void set_identity(int op, double *value)
{
    *value = op == KERNEL_REDUCTION_MIN    ? INFINITY
             : op == KERNEL_REDUCTION_MAX  ? -INFINITY
             : op == KERNEL_REDUCTION_PROD ? 1.0
                                           : 0.0;
}
KERNEL_FN void set_identity(int op, int64_t *value)
{
    *value = op == KERNEL_REDUCTION_MIN    ? INT64_MAX
             : op == KERNEL_REDUCTION_MAX  ? INT64_MIN
             : op == KERNEL_REDUCTION_PROD ? 1
                                           : 0;
}
KERNEL_FN void set_identity(int op, kernel_c128 *value)
{
    *value = kernel_c128_make(op == KERNEL_REDUCTION_PROD ? 1.0 : 0.0, 0);
}

KERNEL_FN void store_total(const cuda_reduce &p, int64_t at, double total)
{
    if (p.op == KERNEL_REDUCTION_MEAN) {
        total /= (double)p.length;
    }
    switch (p.to) {
    case CUDA_F16:
        *pointer<half_f16>(p.y, at) = narrow<half_f16>(kernel_f64_to_f32_odd(total));
        break;
    case CUDA_BF16:
        *pointer<half_bf16>(p.y, at) = narrow<half_bf16>(kernel_f64_to_f32_odd(total));
        break;
    case CUDA_F32:
        *pointer<float>(p.y, at) = (float)total;
        break;
    default:
        *pointer<double>(p.y, at) = total;
        break;
    }
}
KERNEL_FN void store_total(const cuda_reduce &p, int64_t at, int64_t total)
{
    if (p.op == KERNEL_REDUCTION_MEAN) {
        *pointer<double>(p.y, at) = (double)total / (double)p.length;
    } else if (p.to == CUDA_I32) {
        *pointer<int32_t>(p.y, at) = (int32_t)total;
    } else {
        *pointer<int64_t>(p.y, at) = total;
    }
}
KERNEL_FN void store_total(const cuda_reduce &p, int64_t at, kernel_c128 total)
{
    if (p.op == KERNEL_REDUCTION_MEAN) {
        total.re /= (double)p.length;
        total.im /= (double)p.length;
    }
    if (p.to == CUDA_C64) {
        *pointer<kernel_c64>(p.y, at) = kernel_c128_narrow(total);
    } else {
        *pointer<kernel_c128>(p.y, at) = total;
    }
}

/* sum, prod, min, max, mean, dot */
template <typename T> struct reduction {
    typedef typename traits<T>::A State;

    KERNEL_FN State nothing(const cuda_reduce &p)
    {
        State result;

        set_identity(p.op, &result);
        return result;
    }
    KERNEL_FN void add(const cuda_reduce &p, State &total, int64_t kept, int64_t r)
    {
        offset_pair at = reduced_at(p, r);
        State value    = accumulated(*pointer<const T>(p.x, kept + at.first));

        if (p.x2 != 0) {
            value = times(value, accumulated(*pointer<const T>(p.x2, at.second)));
        }
        total = joined(p.op, total, value);
    }
    KERNEL_FN State join(const cuda_reduce &p, const State &a, const State &b)
    {
        return joined(p.op, a, b);
    }
    KERNEL_FN void finish(const cuda_reduce &p, int64_t at, int64_t output,
                          const State &total)
    {
        store_total(p, at, total);
    }
};

/* argmin, argmax: the lowest index of equals, the first NaN. */
template <typename A> struct located {
    A value;
    int64_t index; /* -1: nothing yet */
};

template <typename T> struct arg_reduction {
    typedef located<typename traits<T>::A> State;

    KERNEL_FN State nothing(const cuda_reduce &p)
    {
        State result;

        set_identity(p.op, &result.value);
        result.index = -1;
        return result;
    }
    KERNEL_FN void add(const cuda_reduce &p, State &total, int64_t kept, int64_t r)
    {
        State element;

        element.value = accumulated(*pointer<const T>(p.x, kept + reduced_at(p, r).first));
        element.index = r;
        total         = join(p, total, element);
    }
    KERNEL_FN State join(const cuda_reduce &p, const State &a, const State &b)
    {
        bool same = a.value == b.value || (a.value != a.value && b.value != b.value);

        if (b.index >= 0 &&
            (a.index < 0 || beats(p.op, b.value, a.value) || (same && b.index < a.index))) {
            return b;
        }
        return a;
    }
    KERNEL_FN void finish(const cuda_reduce &p, int64_t at, int64_t output,
                          const State &total)
    {
        *pointer<int64_t>(p.y, at) = total.index;
    }
};

#endif
