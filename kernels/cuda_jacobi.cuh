/*
 * Singular values and eigenvalues by Jacobi rotations of columns (Hestenes, J. SIAM 6, 1958; Demmel
 * and Veselic, SIAM J. Matrix Anal. Appl. 13, 1992): pairs of columns are rotated until all are
 * orthogonal to each other. Their lengths are the singular values, their directions the left
 * vectors, and the product of the rotations the right ones.
 *
 * A symmetric matrix is made positive semidefinite by a multiple of the unit matrix, the largest
 * sum of a row's magnitudes; its right vectors are the eigenvectors then, whatever the sign of the
 * eigenvalues and however many are equal.
 *
 * WHY NOT cuSOLVER: its routines look at their progress from the host, which blocks who enqueues
 * while a stream waits. Here a whole decomposition is a few launches that nobody waits for. The
 * sweeps are one kernel, whose blocks wait for each other between rounds: it must be launched so
 * that all of them run at once (cooperatively).
 *
 * A round takes n / 2 pairs that have no column in common, as a tournament does (the circle
 * method); a warp rotates a pair. Sums are in f64, in an order that depends on nothing but m, so
 * the result does not depend on the launch shape or on timing.
 */
#ifndef KERNELS_CUDA_JACOBI_CUH
#define KERNELS_CUDA_JACOBI_CUH

#include "kernels/cuda_common.cuh"
#include "kernels/cuda_jacobi_params.h"

#define JACOBI_LANES 32

KERNEL_FN double jacobi_sum(double x)
{
    for (int step = JACOBI_LANES / 2; step > 0; step /= 2) {
        x += __shfl_xor_sync(0xffffffffu, x, step);
    }
    return x;
}

KERNEL_FN int64_t jacobi_lane()
{
    return threadIdx.x % JACOBI_LANES;
}
KERNEL_FN int64_t jacobi_warp()
{
    return thread_index() / JACOBI_LANES;
}
KERNEL_FN int64_t jacobi_warps()
{
    return thread_count() / JACOBI_LANES;
}

KERNEL_FN cuda_jacobi_state *jacobi_state(const cuda_jacobi &p)
{
    return pointer<cuda_jacobi_state>(p.state, 0);
}

template <typename T> struct jacobi_traits;
template <> struct jacobi_traits<float> {
    static __device__ double epsilon()
    {
        return 0x1p-24;
    }
    /*
     * Of a matrix scaled to 1: columns shorter than that are zero. The squares of what is longer
     * are no denormal numbers.
     */
    static __device__ double zero()
    {
        return 1e-30;
    }
};
template <> struct jacobi_traits<double> {
    static __device__ double epsilon()
    {
        return 0x1p-53;
    }
    static __device__ double zero()
    {
        return 1e-140;
    }
};

template <typename T> KERNEL_FN T *jacobi_column(const cuda_jacobi &p, int64_t j)
{
    return pointer<T>(p.columns, j * p.m * (int64_t)sizeof(T));
}
template <typename T> KERNEL_FN T *jacobi_vector(const cuda_jacobi &p, int64_t j)
{
    return pointer<T>(p.vectors, j * p.n * (int64_t)sizeof(T));
}

template <typename T>
KERNEL_FN double jacobi_element(const cuda_jacobi &p, int64_t i, int64_t j)
{
    bool above  = p.symmetric != 0 && j > i;
    int64_t row = above ? j : i;

    return (double)*pointer<const T>(p.a,
                                     row * p.stride[0] + (above ? i : j) * p.stride[1]);
}

/* ------------------------------------------------------------------------------- before */

/* A row a warp: the largest magnitude, or sum of them; what is not finite. */
template <typename T> KERNEL_FN void jacobi_measure(const cuda_jacobi &p)
{
    cuda_jacobi_state *state = jacobi_state(p);

    for (int64_t i = jacobi_warp(); i < p.m; i += jacobi_warps()) {
        double sum  = 0;
        double most = 0;

        for (int64_t j = jacobi_lane(); j < p.n; j += JACOBI_LANES) {
            double x = fabs(jacobi_element<T>(p, i, j));

            if (!(x <= 1.7976931348623157e308) && (p.symmetric == 0 || j <= i)) {
                atomicMin(
                    (unsigned long long *)&state->not_finite,
                    (unsigned long long)(i * p.index_stride[0] + j * p.index_stride[1]));
            }
            sum += x;
            most = fmax(most, x);
        }
        if (p.symmetric != 0) {
            sum  = jacobi_sum(sum);
            most = sum;
        }
        if (most > 0 &&
            most <= 1.7976931348623157e308) { /* magnitudes are ordered as their bits */
            atomicMax((unsigned long long *)&state->largest,
                      (unsigned long long)__double_as_longlong(most));
        }
    }
}

/*
 * The exponent that brings the largest to [0.5, 1), and what is added to the diagonal of a
 * symmetric matrix after that.
 */
KERNEL_FN int jacobi_exponent(const cuda_jacobi &p, double *shift)
{
    double largest = __longlong_as_double((long long)jacobi_state(p)->largest);
    int exponent   = 0;
    double scaled  = frexp(largest, &exponent);

    *shift = p.symmetric != 0 ? scaled : 0;
    return exponent;
}

template <typename T> KERNEL_FN void jacobi_load(const cuda_jacobi &p)
{
    double shift;
    int exponent = jacobi_exponent(p, &shift);

    for (int64_t at = thread_index(); at < p.m * p.n; at += thread_count()) {
        int64_t j = at / p.m;
        int64_t i = at - j * p.m;
        double x  = ldexp(jacobi_element<T>(p, i, j), -exponent);

        jacobi_column<T>(p, j)[i] = (T)(i == j ? x + shift : x);
    }
    for (int64_t at = thread_index(); at < p.n * p.n; at += thread_count()) {
        pointer<T>(p.vectors, 0)[at] = (T)(at % (p.n + 1) == 0);
    }
}

/* ------------------------------------------------------------------------------- sweeps */

template <typename T>
KERNEL_FN void jacobi_turn(T *x, T *y, int64_t count, double c, double s)
{
    for (int64_t i = jacobi_lane(); i < count; i += JACOBI_LANES) {
        double a = (double)x[i];
        double b = (double)y[i];

        x[i] = (T)(c * a - s * b);
        y[i] = (T)(s * a + c * b);
    }
}

/* Columns i and j become orthogonal. false: they were, as far as numbers of this size can be. */
template <typename T>
KERNEL_FN bool jacobi_rotate(const cuda_jacobi &p, int64_t i, int64_t j)
{
    T *x         = jacobi_column<T>(p, i);
    T *y         = jacobi_column<T>(p, j);
    double zero  = jacobi_traits<T>::zero();
    double alpha = 0;
    double beta  = 0;
    double gamma = 0;
    double zeta, t, c;

    for (int64_t k = jacobi_lane(); k < p.m; k += JACOBI_LANES) {
        double a = (double)x[k];
        double b = (double)y[k];

        alpha += a * a;
        beta += b * b;
        gamma += a * b;
    }
    alpha = jacobi_sum(alpha);
    beta  = jacobi_sum(beta);
    gamma = jacobi_sum(gamma);
    if (!(alpha > zero * zero && beta > zero * zero) ||
        !(fabs(gamma) > jacobi_traits<T>::epsilon() * (4 + sqrt((double)p.m)) *
                            sqrt(alpha) * sqrt(beta))) {
        return false;
    }
    zeta = (beta - alpha) / (2 * gamma);
    t    = (zeta < 0 ? -1 : 1) / (fabs(zeta) + hypot(1.0, zeta));
    c    = 1 / sqrt(1 + t * t);
    jacobi_turn<T>(x, y, p.m, c, c * t);
    jacobi_turn<T>(jacobi_vector<T>(p, i), jacobi_vector<T>(p, j), p.n, c, c * t);
    return true;
}

/*
 * All blocks have come to the barrier number `number`, from 1, and see what the others wrote. They
 * all run: see the top.
 */
KERNEL_FN void jacobi_barrier(const cuda_jacobi &p, unsigned long long number)
{
    unsigned long long *arrived = (unsigned long long *)&jacobi_state(p)->arrived;

    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        atomicAdd(arrived, 1ull);
        while (*(volatile unsigned long long *)arrived < number * gridDim.x) {
        }
        __threadfence();
    }
    __syncthreads();
}

template <typename T> KERNEL_FN void jacobi_sweeps(const cuda_jacobi &p)
{
    cuda_jacobi_state *state  = jacobi_state(p);
    int64_t players           = p.n + p.n % 2; /* who meets the one too many has a rest */
    unsigned long long number = 0;
    unsigned long long last   = 1;

    for (int sweep = 0; sweep < CUDA_JACOBI_SWEEPS && last != 0; sweep++) {
        unsigned long long *rotated = (unsigned long long *)&state->rotated[sweep];

        for (int64_t round = 0; round < players - 1; round++) {
            for (int64_t q = jacobi_warp(); q < players / 2; q += jacobi_warps()) {
                int64_t i = q == 0 ? players - 1 : (round + q) % (players - 1);
                int64_t j = q == 0 ? round : (round + players - 1 - q) % (players - 1);

                if (i < p.n && j < p.n && jacobi_rotate<T>(p, i, j) && jacobi_lane() == 0) {
                    atomicAdd(rotated, 1ull);
                }
            }
            jacobi_barrier(p, ++number);
        }
        last = *(volatile unsigned long long *)rotated;
    }
    if (last != 0 && thread_index() == 0) {
        state->left = last;
    }
}

/* -------------------------------------------------------------------------------- after */

/* A column a warp: its length, which it is divided by; or the eigenvalue of its vector. */
template <typename T> KERNEL_FN void jacobi_values(const cuda_jacobi &p)
{
    double shift;
    int exponent = jacobi_exponent(p, &shift);

    for (int64_t j = jacobi_warp(); j < p.n; j += jacobi_warps()) {
        T *x       = jacobi_column<T>(p, j);
        const T *v = p.symmetric != 0 ? jacobi_vector<T>(p, j) : x;
        double sum = 0;
        double value;

        for (int64_t i = jacobi_lane(); i < p.m; i += JACOBI_LANES) {
            sum += (double)x[i] * (double)v[i];
        }
        sum   = jacobi_sum(sum);
        value = p.symmetric != 0 ? sum - shift : sqrt(sum);
        if (jacobi_lane() == 0) {
            pointer<double>(p.values, 0)[j] = ldexp(value, exponent);
            pointer<int>(p.missing, 0)[j] =
                p.symmetric == 0 && !(value > jacobi_traits<T>::zero());
        }
        for (int64_t i = jacobi_lane();
             p.symmetric == 0 && value > jacobi_traits<T>::zero() && i < p.m;
             i += JACOBI_LANES) {
            x[i] = (T)((double)x[i] / value);
        }
    }
}

/* The place of each value in the order that is wanted: singular values fall, eigenvalues rise. */
KERNEL_FN void jacobi_ranks(const cuda_jacobi &p)
{
    const double *value = pointer<const double>(p.values, 0);

    for (int64_t j = thread_index(); j < p.n; j += thread_count()) {
        int64_t rank = 0;

        for (int64_t i = 0; i < p.n; i++) {
            bool before = p.symmetric != 0 ? value[i] < value[j] : value[i] > value[j];

            rank += before || (value[i] == value[j] && i < j);
        }
        pointer<int64_t>(p.ranks, 0)[j] = rank;
    }
}

/*
 * One block. The row of which the vectors that there are hold least, so that its unit vector has
 * most outside of them.
 */
template <typename T>
KERNEL_FN int64_t jacobi_free_row(const cuda_jacobi &p, double *score, int64_t *row)
{
    const int *missing = pointer<const int>(p.missing, 0);

    score[threadIdx.x] = 2;
    row[threadIdx.x]   = p.m;
    for (int64_t i = threadIdx.x; i < p.m; i += blockDim.x) {
        double sum = 0;

        for (int64_t k = 0; k < p.n; k++) {
            double x = missing[k] != 0 ? 0 : (double)jacobi_column<T>(p, k)[i];

            sum += x * x;
        }
        if (sum < score[threadIdx.x]) {
            score[threadIdx.x] = sum;
            row[threadIdx.x]   = i;
        }
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        for (unsigned t = 1; t < blockDim.x; t++) {
            if (score[t] < score[0] || (score[t] == score[0] && row[t] < row[0])) {
                score[0] = score[t];
                row[0]   = row[t];
            }
        }
    }
    __syncthreads();
    return row[0];
}

/* One block: x less what it has of the other vectors. */
template <typename T> KERNEL_FN void jacobi_project(const cuda_jacobi &p, T *x)
{
    const int *missing = pointer<const int>(p.missing, 0);
    double *factor     = pointer<double>(p.factors, 0);

    __syncthreads();
    for (int64_t k = jacobi_warp(); k < p.n; k += jacobi_warps()) {
        double sum = 0;

        for (int64_t i = jacobi_lane(); i < p.m && missing[k] == 0; i += JACOBI_LANES) {
            sum += (double)jacobi_column<T>(p, k)[i] * (double)x[i];
        }
        sum = jacobi_sum(sum);
        if (jacobi_lane() == 0) {
            factor[k] = sum;
        }
    }
    __syncthreads();
    for (int64_t i = threadIdx.x; i < p.m; i += blockDim.x) {
        double rest = (double)x[i];

        for (int64_t k = 0; k < p.n; k++) {
            rest -= missing[k] != 0 ? 0 : factor[k] * (double)jacobi_column<T>(p, k)[i];
        }
        x[i] = (T)rest;
    }
    __syncthreads();
}

/* One block: directions for the columns that are zero, orthogonal to all others (Gram and Schmidt, twice). */
template <typename T>
KERNEL_FN void jacobi_complete(const cuda_jacobi &p, double *score, int64_t *row)
{
    int *missing = pointer<int>(p.missing, 0);

    for (int64_t j = 0; j < p.n; j++) {
        T *x = jacobi_column<T>(p, j);
        int64_t best;

        if (missing[j] == 0) { /* the same for all threads: it changes between barriers */
            continue;
        }
        best = jacobi_free_row<T>(p, score, row);
        for (int64_t i = threadIdx.x; i < p.m; i += blockDim.x) {
            x[i] = (T)(i == best);
        }
        jacobi_project<T>(p, x);
        jacobi_project<T>(p, x);
        if (threadIdx.x == 0) {
            double sum = 0;

            for (int64_t i = 0; i < p.m; i++) {
                sum += (double)x[i] * (double)x[i];
            }
            score[0] = sqrt(sum);
        }
        __syncthreads();
        for (int64_t i = threadIdx.x; i < p.m; i += blockDim.x) {
            x[i] = (T)((double)x[i] / score[0]);
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            missing[j] = 0;
        }
        __syncthreads();
    }
}

template <typename T> KERNEL_FN void jacobi_store(const cuda_jacobi &p)
{
    const int64_t *rank = pointer<const int64_t>(p.ranks, 0);

    for (int64_t j = thread_index(); j < p.n; j += thread_count()) {
        *pointer<T>(p.result, rank[j] * p.result_stride) =
            (T)pointer<const double>(p.values, 0)[j];
    }
    for (int64_t at = thread_index(); at < p.m * p.n && p.left != 0; at += thread_count()) {
        int64_t j = at / p.m;
        int64_t i = at - j * p.m;

        *pointer<T>(p.left, i * p.left_stride[0] + rank[j] * p.left_stride[1]) =
            jacobi_column<T>(p, j)[i];
    }
    for (int64_t at = thread_index(); at < p.n * p.n; at += thread_count()) {
        int64_t j = at / p.n;
        int64_t i = at - j * p.n;

        *pointer<T>(p.right, i * p.right_stride[0] + rank[j] * p.right_stride[1]) =
            jacobi_vector<T>(p, j)[i];
    }
}

#endif
