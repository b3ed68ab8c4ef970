/*
 * ML: ridge regression and naive Bayes on the same rows of features. X is row-major; the number of
 * features is a multiple of 4.
 *
 * ml_sums, ml_standardise: a block has one thread in x for four neighbouring features and as many
 * rows of threads as fit, so loads are whole rows and a thread keeps its features' figures in
 * registers.
 */

/*
 * mean[f] and 1 / deviation[f] of every feature. Blocks add what they have to `sums` ([2][f], fp64:
 * counts above 2^24 are no trouble); the last one writes the figures and leaves zeros. Shared
 * memory: blockDim.y * 2 * f floats.
 */
extern "C" __global__ void ml_stats(float *stats, const float4 *x, double *sums, unsigned *ticket, i64 n, i64 f)
{
    extern __shared__ float4 shared[];
    const i64 quads = f / 4;
    float4 sum = make_float4(0, 0, 0, 0), squares = sum;

    for (i64 row = (i64)blockIdx.x * blockDim.y + threadIdx.y; row < n; row += (i64)gridDim.x * blockDim.y) {
        float4 v = x[row * quads + threadIdx.x];

        sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w;
        squares.x += v.x * v.x, squares.y += v.y * v.y, squares.z += v.z * v.z, squares.w += v.w * v.w;
    }
    shared[threadIdx.y * 2 * quads + threadIdx.x]         = sum;
    shared[threadIdx.y * 2 * quads + quads + threadIdx.x] = squares;
    __syncthreads();

    const float *parts = (const float *)shared;
    const int thread   = threadIdx.y * blockDim.x + threadIdx.x;
    const int threads  = blockDim.x * blockDim.y;

    for (int i = thread; i < 2 * f; i += threads) {
        double total = 0;

        for (unsigned y = 0; y < blockDim.y; y++) {
            total += parts[y * 2 * f + i];
        }
        atomicAdd(&sums[i], total);
    }
    if (!is_last_block(ticket)) {
        return;
    }
    for (int i = thread; i < f; i += threads) {
        double mean     = __ldcg(&sums[i]) / (double)n;
        double variance = __ldcg(&sums[f + i]) / (double)n - mean * mean;

        stats[i]     = (float)mean;
        stats[f + i] = variance > 0 ? (float)rsqrt(variance) : 0.0f;
        sums[i]      = 0;
        sums[f + i]  = 0;
    }
}

extern "C" __global__ void ml_standardise(float4 *z, const float4 *x, const float4 *stats, i64 n, i64 f)
{
    const i64 quads  = f / 4;
    const float4 mean = stats[threadIdx.x], by = stats[quads + threadIdx.x];

    for (i64 row = (i64)blockIdx.x * blockDim.y + threadIdx.y; row < n; row += (i64)gridDim.x * blockDim.y) {
        float4 v = x[row * quads + threadIdx.x];

        z[row * quads + threadIdx.x] = make_float4((v.x - mean.x) * by.x, (v.y - mean.y) * by.y,
                                                   (v.z - mean.z) * by.z, (v.w - mean.w) * by.w);
    }
}

/*
 * r[row][class] = bias[class] + x[row] . weights[class]: a tall matrix by a narrow one. A block has
 * 128 rows and a thread a row; tiles of 32 features go through shared memory, so that loads are
 * whole 128-byte lines and a value is loaded once for all classes.
 */
#define ML_ROWS 128
#define ML_TILE 32

template <int classes>
static __device__ void product(float *r, const float4 *x, const float *weights, const float *bias, i64 n, i64 f)
{
    __shared__ float tile[ML_ROWS][ML_TILE + 1];
    __shared__ float4 weight[classes][ML_TILE / 4];
    const i64 first = (i64)blockIdx.x * ML_ROWS, row = first + threadIdx.x;
    float sum[classes] = {0};

    for (i64 from = 0; from < f; from += ML_TILE) {
        const int quad = threadIdx.x % (ML_TILE / 4);
        float4 v[ML_TILE / 4];

#pragma unroll
        for (int k = 0; k < ML_TILE / 4; k++) {
            i64 r_in = first + threadIdx.x / (ML_TILE / 4) + k * (ML_ROWS / (ML_TILE / 4));

            v[k] = r_in < n && from + quad * 4 < f ? __ldg(&x[(r_in * f + from) / 4 + quad]) : make_float4(0, 0, 0, 0);
        }
        __syncthreads(); /* the last tile was read */
#pragma unroll
        for (int k = 0; k < ML_TILE / 4; k++) {
            float *to = &tile[threadIdx.x / (ML_TILE / 4) + k * (ML_ROWS / (ML_TILE / 4))][quad * 4];

            to[0] = v[k].x, to[1] = v[k].y, to[2] = v[k].z, to[3] = v[k].w;
        }
        for (int i = threadIdx.x; i < classes * ML_TILE; i += ML_ROWS) {
            i64 feature = from + i % ML_TILE;

            ((float *)weight[i / ML_TILE])[i % ML_TILE] = feature < f ? __ldg(&weights[i / ML_TILE * f + feature]) : 0.0f;
        }
        __syncthreads();
#pragma unroll
        for (int k = 0; k < ML_TILE / 4; k++) {
            const float *at = &tile[threadIdx.x][4 * k];
            float a = at[0], b = at[1], c = at[2], d = at[3];

#pragma unroll
            for (int j = 0; j < classes; j++) {
                float4 w = weight[j][k];

                sum[j] += a * w.x + b * w.y + (c * w.z + d * w.w);
            }
        }
    }
    if (row < n) {
#pragma unroll
        for (int j = 0; j < classes; j += 2) {
            *(float2 *)&r[row * classes + j] = make_float2(sum[j] + bias[j], sum[j + 1] + bias[j + 1]);
        }
    }
}

extern "C" __global__ void __launch_bounds__(ML_ROWS) ml_product10(float *r, const float4 *x, const float *weights,
                                                                   const float *bias, i64 n, i64 f)
{
    product<10>(r, x, weights, bias, n, f);
}

extern "C" __global__ void __launch_bounds__(ML_ROWS) ml_product16(float *r, const float4 *x, const float *weights,
                                                                   const float *bias, i64 n, i64 f)
{
    product<16>(r, x, weights, bias, n, f);
}

/* What follows has few bytes: a row a thread. */
static __device__ i64 row_of_thread(void)
{
    return (i64)blockIdx.x * blockDim.x + threadIdx.x;
}

static __device__ float row_max(const float *r, i64 classes)
{
    float most = r[0];

    for (i64 j = 1; j < classes; j++) {
        most = fmaxf(most, r[j]);
    }
    return most;
}

extern "C" __global__ void ml_softmax(float *r, i64 n, i64 classes)
{
    i64 row = row_of_thread();

    if (row < n) {
        float *at = &r[row * classes], most = row_max(at, classes), sum = 0;

        for (i64 j = 0; j < classes; j++) {
            sum += expf(at[j] - most);
        }
        for (i64 j = 0; j < classes; j++) {
            at[j] = expf(at[j] - most) / sum;
        }
    }
}

extern "C" __global__ void ml_row_max(float *most, const float *r, i64 n, i64 classes)
{
    i64 row = row_of_thread();

    if (row < n) {
        most[row] = row_max(&r[row * classes], classes);
    }
}

/* log of the row's sum of exponentials, from its maximum so that nothing overflows */
extern "C" __global__ void ml_row_lse(float *lse, const float *r, const float *most, i64 n, i64 classes)
{
    i64 row = row_of_thread();

    if (row < n) {
        float sum = 0;

        for (i64 j = 0; j < classes; j++) {
            sum += expf(r[row * classes + j] - most[row]);
        }
        lse[row] = most[row] + logf(sum);
    }
}

extern "C" __global__ void ml_exp(float *r, const float *lse, i64 n, i64 classes)
{
    i64 row = row_of_thread();

    if (row < n) {
        for (i64 j = 0; j < classes; j++) {
            r[row * classes + j] = expf(r[row * classes + j] - lse[row]);
        }
    }
}

extern "C" __global__ void ml_argmax(int *best, const float *r1, const float *r2, i64 n, i64 classes)
{
    i64 row = row_of_thread();

    if (row < n) {
        float most = r1[row * classes] + r2[row * classes];
        int at     = 0;

        for (i64 j = 1; j < classes; j++) {
            float value = r1[row * classes + j] + r2[row * classes + j];

            if (value > most) {
                most = value;
                at   = (int)j;
            }
        }
        best[row] = at;
    }
}

/* Several devices: figures of equal parts, [2 parts][f], become those of the whole. */
extern "C" __global__ void ml_combine(float *stats, const float *all, i64 parts, i64 f)
{
    i64 j = row_of_thread();

    if (j < f) {
        double mean = 0, square = 0;

        for (i64 i = 0; i < parts; i++) {
            double m = all[2 * i * f + j], by = all[(2 * i + 1) * f + j];

            mean += m;
            square += m * m + (by > 0 ? 1 / (by * by) : 0);
        }
        mean /= (double)parts;
        double variance = square / (double)parts - mean * mean;

        stats[j]     = (float)mean;
        stats[f + j] = variance > 0 ? (float)rsqrt(variance) : 0.0f;
    }
}
