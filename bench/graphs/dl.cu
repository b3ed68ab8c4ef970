/*
 * DL: two small convolutional branches and a dense layer. Images are planes [channel][row][column];
 * 3 x 3 filters with stride 2 are centred on pixel (2 row, 2 column), and pixels outside are 0.
 */
static __device__ float at(const float *in, i64 n, i64 row, i64 column)
{
    return row >= 0 && row < n && column >= 0 && column < n ? __ldg(&in[row * n + column]) : 0.0f;
}

/*
 * One plane of n x n becomes eight of m x m, n = 2 m, with ReLU. A thread makes two neighbours of
 * all eight planes from the 3 x 5 pixels that it loads once. m is even.
 */
extern "C" __global__ void dl_conv1(float *out, const float *in, const float *weights, i64 m)
{
    __shared__ float4 weight[8][3]; /* nine, padded to twelve */
    const i64 n = 2 * m, column = 2 * ((i64)blockIdx.x * blockDim.x + threadIdx.x);
    const i64 row    = (i64)blockIdx.y * blockDim.y + threadIdx.y;
    const int thread = threadIdx.y * blockDim.x + threadIdx.x;
    float v[3][5];

    if (thread < 8 * 9) {
        ((float *)weight[thread / 9])[thread % 9] = weights[thread];
    }
    __syncthreads();
    if (row >= m || column >= m) {
        return;
    }
#pragma unroll
    for (int dy = 0; dy < 3; dy++) {
        const i64 y = 2 * row + dy - 1;

        v[dy][0] = at(in, n, y, 2 * column - 1);
        if (y >= 0) { /* below n, as row < m */
            float4 four = __ldg((const float4 *)&in[y * n + 2 * column]);

            v[dy][1] = four.x, v[dy][2] = four.y, v[dy][3] = four.z, v[dy][4] = four.w;
        } else {
            v[dy][1] = v[dy][2] = v[dy][3] = v[dy][4] = 0;
        }
    }
#pragma unroll
    for (int plane = 0; plane < 8; plane++) {
        const float4 p = weight[plane][0], q = weight[plane][1];
        const float last = weight[plane][2].x;
        const float w[9] = {p.x, p.y, p.z, p.w, q.x, q.y, q.z, q.w, last};
        float one = 0, two = 0;

#pragma unroll
        for (int k = 0; k < 9; k++) {
            one += w[k] * v[k / 3][k % 3];
            two += w[k] * v[k / 3][k % 3 + 2];
        }
        *(float2 *)&out[(plane * m + row) * m + column] = make_float2(fmaxf(one, 0.0f), fmaxf(two, 0.0f));
    }
}

/* Means of 5 x 5: [8][5 m][5 m] becomes [8][m][m]. A thread has one; a warp's rows are whole lines. */
extern "C" __global__ void dl_pool(float *out, const float *in, i64 m)
{
    const i64 column = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    const i64 row    = (i64)blockIdx.y * blockDim.y + threadIdx.y, plane = blockIdx.z, n = 5 * m;
    float sum = 0;

    if (row >= m || column >= m) {
        return;
    }
#pragma unroll
    for (int dy = 0; dy < 5; dy++) {
#pragma unroll
        for (int dx = 0; dx < 5; dx++) {
            sum += __ldg(&in[(plane * n + 5 * row + dy) * n + 5 * column + dx]);
        }
    }
    out[(plane * m + row) * m + column] = sum / 25;
}

/* Eight planes of 2 m x 2 m become sixteen of m x m, with ReLU. A thread has one pixel of all sixteen. */
extern "C" __global__ void dl_conv2(float *out, const float *in, const float *weights, i64 m)
{
    __shared__ float weight[8 * 9][16];
    const i64 n = 2 * m, column = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    const i64 row    = (i64)blockIdx.y * blockDim.y + threadIdx.y;
    const int thread = threadIdx.y * blockDim.x + threadIdx.x, threads = blockDim.x * blockDim.y;
    float sum[16] = {0};

    for (int i = thread; i < 16 * 8 * 9; i += threads) {
        weight[i % 72][i / 72] = weights[i]; /* from [16][8][9] */
    }
    __syncthreads();
    if (row >= m || column >= m) {
        return;
    }
    for (int plane = 0; plane < 8; plane++) {
        for (int k = 0; k < 9; k++) {
            const float value = at(&in[plane * n * n], n, 2 * row + k / 3 - 1, 2 * column + k % 3 - 1);
            const float4 *w   = (const float4 *)weight[plane * 9 + k];

#pragma unroll
            for (int j = 0; j < 4; j++) {
                float4 four = w[j];

                sum[4 * j] += four.x * value;
                sum[4 * j + 1] += four.y * value;
                sum[4 * j + 2] += four.z * value;
                sum[4 * j + 3] += four.w * value;
            }
        }
    }
#pragma unroll
    for (int j = 0; j < 16; j++) {
        out[(j * m + row) * m + column] = fmaxf(sum[j], 0.0f);
    }
}

/* [16][m][m] twice becomes [32][m][m] */
extern "C" __global__ void dl_concat(float4 *out, const float4 *a, const float4 *b, i64 m)
{
    const i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x, half = 16 * m * m / 4;

    if (i < 2 * half) {
        out[i] = i < half ? a[i] : b[i - half];
    }
}

extern "C" __global__ void dl_dense(float *out, const float4 *x, const float4 *weights, float *partial,
                                    unsigned *ticket, i64 m)
{
    const i64 quads = 32 * m * m / 4, threads = (i64)gridDim.x * blockDim.x;
    float sum = 0;

    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < quads; i += threads) {
        float4 v = x[i], w = weights[i];

        sum += (v.x * w.x + v.y * w.y) + (v.z * w.z + v.w * w.w);
    }
    grid_reduce<add_op>(sum, out, partial, ticket);
}
