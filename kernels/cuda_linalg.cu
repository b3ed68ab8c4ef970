/*
 * CUDA variants of integer products and of distances. Products of floats go to cuBLAS (cuda_linalg.c).
 *
 * Tiles of 64 x 64 results, 16 x 16 threads with 4 x 4 results each: the operands of a step of 16
 * come through shared memory, so each value that is loaded from there is used four times. Operands
 * have any strides; what lies outside is 0, which adds nothing to a product nor to a distance.
 */
#include "kernels/cuda_common.cuh"

#define EDGE  64
#define STEP  16
#define SMALL 4

/*
 * c = alpha a b + beta c in unsigned arithmetic, or the distances of the rows of a and of the
 * columns of b.
 */
template <typename T, bool DISTANCE>
KERNEL_FN void tiles(const cuda_product &p, T (*a_tile)[EDGE + 1], T (*b_tile)[EDGE + 1])
{
    typedef typename traits<T>::U U;
    int64_t across = (p.n + EDGE - 1) / EDGE;
    int64_t count  = across * ((p.m + EDGE - 1) / EDGE);
    int tx         = threadIdx.x % 16;
    int ty         = threadIdx.x / 16;

    for (int64_t t = blockIdx.x; t < count; t += gridDim.x) {
        int64_t first_row      = t / across * EDGE;
        int64_t first_column   = t % across * EDGE;
        U sum[SMALL][SMALL] = {};

        for (int64_t first = 0; first < p.k; first += STEP) {
            for (int i = threadIdx.x; i < EDGE * STEP; i += 256) {
                int inner      = i % STEP; /* a's rows and b's columns are often the dense ones */
                int outer      = i / STEP;
                int64_t q      = first + inner;
                int64_t row    = first_row + outer;
                int64_t column = first_column + outer;

                a_tile[inner][outer] =
                    q < p.k && row < p.m
                        ? *pointer<const T>(p.a, row * p.a_stride[0] + q * p.a_stride[1])
                        : (T)0;
                b_tile[inner][outer] =
                    q < p.k && column < p.n
                        ? *pointer<const T>(p.b, q * p.b_stride[0] + column * p.b_stride[1])
                        : (T)0;
            }
            __syncthreads();
            for (int q = 0; q < STEP; q++) {
                U a[SMALL];
                U b[SMALL];

#pragma unroll
                for (int i = 0; i < SMALL; i++) {
                    a[i] = (U)a_tile[q][ty + 16 * i];
                    b[i] = (U)b_tile[q][tx + 16 * i];
                }
#pragma unroll
                for (int i = 0; i < SMALL; i++) {
#pragma unroll
                    for (int j = 0; j < SMALL; j++) {
                        U d = DISTANCE ? a[i] - b[j] : a[i];

                        sum[i][j] += d * (DISTANCE ? d : b[j]);
                    }
                }
            }
            __syncthreads(); /* the tiles are filled again */
        }
        for (int i = 0; i < SMALL; i++) {
            for (int j = 0; j < SMALL; j++) {
                int64_t row    = first_row + ty + 16 * i;
                int64_t column = first_column + tx + 16 * j;
                T *c = pointer<T>(p.c, row * p.c_stride[0] + column * p.c_stride[1]);

                if (row >= p.m || column >= p.n) {
                    continue;
                }
                if (DISTANCE) {
                    *c = (T)sum[i][j];
                } else { /* beta 0 does not read c */
                    U beta = bits_as<U>(p.beta);
                    U old  = beta == 0 ? (U)0 : beta * (U)*c;

                    *c = (T)(bits_as<U>(p.alpha) * sum[i][j] + old);
                }
            }
        }
    }
}

#define PRODUCT_KERNEL(T, suffix)                                                            \
    KERNEL(product_##suffix, cuda_product)                                                   \
    {                                                                                        \
        __shared__ T a_tile[STEP][EDGE + 1];                                                 \
        __shared__ T b_tile[STEP][EDGE + 1];                                                 \
                                                                                             \
        tiles<T, false>(p, a_tile, b_tile);                                                  \
    }
PRODUCT_KERNEL(int32_t, i32)
PRODUCT_KERNEL(int64_t, i64)

#define DISTANCE_KERNEL(T, suffix)                                                           \
    KERNEL(distance_##suffix, cuda_product)                                                  \
    {                                                                                        \
        __shared__ T a_tile[STEP][EDGE + 1];                                                 \
        __shared__ T b_tile[STEP][EDGE + 1];                                                 \
                                                                                             \
        tiles<T, true>(p, a_tile, b_tile);                                                   \
    }
DISTANCE_KERNEL(float, f32)
DISTANCE_KERNEL(double, f64)
DISTANCE_KERNEL(int32_t, i32)
DISTANCE_KERNEL(int64_t, i64)

/* -------------------------------------------------------------------------------- norms */

/* A warp a row. */
template <typename T> KERNEL_FN void norms(const cuda_norms &p)
{
    int lane = threadIdx.x % 32;

    for (int64_t row = thread_index() / 32; row < p.rows; row += thread_count() / 32) {
        double sum = 0;

        for (int64_t i = lane; i < p.columns; i += 32) {
            double value = (double)*pointer<const T>(p.x, row * p.stride[0] + i * p.stride[1]);

            sum += value * value;
        }
        for (int step = 16; step > 0; step /= 2) {
            sum += __shfl_down_sync(0xffffffffu, sum, step);
        }
        if (lane == 0) {
            pointer<double>(p.out, 0)[row] = sum;
        }
    }
}

/* c holds -2 a b; what is lost to rounding below 0 is cut off, NaN stays. */
template <typename T> KERNEL_FN void add_norms(const cuda_product &p)
{
    for (int64_t i = thread_index(); i < p.m * p.n; i += thread_count()) {
        int64_t row    = i / p.n;
        int64_t column = i % p.n;
        T *c           = pointer<T>(p.c, row * p.c_stride[0] + column * p.c_stride[1]);
        double value   = (double)*c + pointer<const double>(p.a_norm, 0)[row] +
                       pointer<const double>(p.b_norm, 0)[column];

        *c = (T)(value < 0 ? 0.0 : value);
    }
}

KERNEL(norms_f32, cuda_norms)
{
    norms<float>(p);
}
KERNEL(norms_f64, cuda_norms)
{
    norms<double>(p);
}
KERNEL(add_norms_f32, cuda_product)
{
    add_norms<float>(p);
}
KERNEL(add_norms_f64, cuda_product)
{
    add_norms<double>(p);
}
