/*
 * CUDA kernels beside cuBLAS and cuSOLVER for triangular systems, Cholesky factors, QR and
 * determinants; what is launched when is in cuda_solve.c and cuda_solver.c.
 *
 * A pivot that will not do is kept by an atomic minimum, so what is reported does not depend on
 * timing. The factor goes on with NaN then; nobody will see it.
 */
#include "kernels/cuda_common.cuh"
#include "kernels/cuda_matrix_params.h"

#define PANEL CUDA_PANEL

KERNEL_FN void bad_pivot(const cuda_triangle &p, int64_t pivot)
{
    atomicMin(pointer<unsigned long long>(p.info, 0), (unsigned long long)pivot);
}

/* data = the lower triangle of `from`, above it 0. */
template <typename T> KERNEL_FN void lower(const cuda_triangle &p)
{
    for (int64_t i = thread_index(); i < p.n * p.n; i += thread_count()) {
        int64_t row    = i / p.n;
        int64_t column = i - row * p.n;

        *pointer<T>(p.data, row * p.stride[0] + column * p.stride[1]) =
            column > row ? (T)0
                         : *pointer<const T>(p.from, row * p.from_stride[0] +
                                                         column * p.from_stride[1]);
    }
}

/* One block: the Cholesky factor of up to PANEL columns, in shared memory. */
template <typename T>
KERNEL_FN void factor_diagonal(const cuda_triangle &p, T (*a)[PANEL + 1])
{
    int n = (int)p.n;

    for (int i = threadIdx.x; i < n * n; i += blockDim.x) {
        a[i / n][i % n] =
            *pointer<const T>(p.data, (i / n) * p.stride[0] + (i % n) * p.stride[1]);
    }
    __syncthreads();
    for (int k = 0; k < n; k++) {
        T pivot = a[k][k];

        __syncthreads(); /* all have read it */
        if (threadIdx.x == 0) {
            if (!(pivot > 0)) {
                bad_pivot(p, p.first + k + 1);
            }
            a[k][k] = sqrt(pivot);
        }
        __syncthreads();
        for (int i = k + 1 + (int)threadIdx.x; i < n; i += (int)blockDim.x) {
            a[i][k] /= a[k][k];
        }
        __syncthreads();
        for (int i = threadIdx.x; i < n * n; i += blockDim.x) {
            int row    = i / n;
            int column = i % n;

            if (column > k && row >= column) {
                a[row][column] -= a[row][k] * a[column][k];
            }
        }
        __syncthreads();
    }
    for (int i = threadIdx.x; i < n * n; i += blockDim.x) {
        if (i / n >= i % n) {
            *pointer<T>(p.data, (i / n) * p.stride[0] + (i % n) * p.stride[1]) =
                a[i / n][i % n];
        }
    }
}

/* No zero on the diagonal. */
template <typename T> KERNEL_FN void check_diagonal(const cuda_triangle &p)
{
    for (int64_t i = thread_index(); i < p.n; i += thread_count()) {
        if (*pointer<const T>(p.data, i * (p.stride[0] + p.stride[1])) == 0) {
            bad_pivot(p, i + 1);
        }
    }
}

template <typename T> KERNEL_FN void upper(const cuda_upper &p)
{
    for (int64_t i = thread_index(); i < p.rows * p.columns; i += thread_count()) {
        int64_t row    = i / p.columns;
        int64_t column = i - row * p.columns;

        *pointer<T>(p.data, row * p.stride[0] + column * p.stride[1]) =
            column < row ? (T)0
                         : *pointer<const T>(p.from, row * p.from_stride[0] +
                                                         column * p.from_stride[1]);
    }
}

/* A product whose exponent is kept apart, so that it overflows only where the result does. */
struct scaled {
    double value;
    long long exponent;
};

KERNEL_FN scaled scaled_product(scaled a, double b)
{
    int more;
    double value = frexp(a.value * b, &more);

    return {value, a.exponent + more};
}

/* One block: each thread takes every 256th pivot, and the first joins what they have, in order. */
template <typename T> KERNEL_FN void pivots_product(const cuda_pivots &p, scaled *part)
{
    scaled mine = {1, 0};

    for (int64_t i = threadIdx.x; i < p.n; i += blockDim.x) {
        double pivot = (double)*pointer<const T>(p.factor, i * (p.n + 1) * (int64_t)sizeof(T));

        if (*pointer<const int>(p.pivots, i * (int64_t)sizeof(int)) != i + 1) {
            pivot = -pivot;
        }
        mine = scaled_product(mine, pivot);
    }
    part[threadIdx.x] = mine;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (unsigned i = 1; i < blockDim.x; i++) {
            mine = scaled_product(mine, part[i].value);
            mine.exponent += part[i].exponent;
        }
        mine.exponent = max(min(mine.exponent, 10000ll), -10000ll);
        *pointer<T>(p.result, 0) =
            *pointer<const int>(p.info, 0) > 0
                ? (T)0
                : (T)ldexp(mine.value, (int)mine.exponent);
    }
}

#define MATRIX_KERNELS(T, suffix)                   \
    KERNEL(lower_##suffix, cuda_triangle)           \
    {                                               \
        lower<T>(p);                                \
    }                                               \
    KERNEL(factor_diagonal_##suffix, cuda_triangle) \
    {                                               \
        __shared__ T a[PANEL][PANEL + 1];           \
                                                    \
        factor_diagonal<T>(p, a);                   \
    }                                               \
    KERNEL(check_diagonal_##suffix, cuda_triangle)  \
    {                                               \
        check_diagonal<T>(p);                       \
    }                                               \
    KERNEL(upper_##suffix, cuda_upper)              \
    {                                               \
        upper<T>(p);                                \
    }                                               \
    KERNEL(pivots_product_##suffix, cuda_pivots)    \
    {                                               \
        __shared__ scaled part[256];                \
                                                    \
        pivots_product<T>(p, part);                 \
    }
MATRIX_KERNELS(float, f32)
MATRIX_KERNELS(double, f64)
