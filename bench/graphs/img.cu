/*
 * IMG: a picture whose edges stay sharp while the rest is blurred. Pixels outside the picture are 0.
 *
 * Filters: a thread makes IMG_ROWS pixels of one column, top to bottom; a row of the input is
 * loaded once a thread and used for all output rows that it reaches. Neighbouring threads share
 * their loads through the first-level cache.
 */
#define IMG_ROWS 8

static __device__ float pixel(const float *in, i64 n, i64 row, i64 column)
{
    return row >= 0 && row < n && column >= 0 && column < n ? __ldg(&in[row * n + column]) : 0.0f;
}

template <int width>
static __device__ void blur(float *out, const float *in, const float *weights, i64 n)
{
    i64 column = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    i64 first  = ((i64)blockIdx.y * blockDim.y + threadIdx.y) * IMG_ROWS;
    float weight[width * width], sum[IMG_ROWS] = {0};

    if (column >= n || first >= n) {
        return;
    }
#pragma unroll
    for (int i = 0; i < width * width; i++) {
        weight[i] = __ldg(&weights[i]);
    }
#pragma unroll
    for (int row = 0; row < IMG_ROWS + width - 1; row++) {
#pragma unroll
        for (int dx = 0; dx < width; dx++) {
            float value = pixel(in, n, first + row - width / 2, column + dx - width / 2);

#pragma unroll
            for (int dy = 0; dy < width; dy++) {
                if (row - dy >= 0 && row - dy < IMG_ROWS) {
                    sum[row - dy] += weight[dy * width + dx] * value;
                }
            }
        }
    }
#pragma unroll
    for (int row = 0; row < IMG_ROWS; row++) {
        if (first + row < n) {
            out[(first + row) * n + column] = sum[row];
        }
    }
}

extern "C" __global__ void img_blur3(float *out, const float *in, const float *weights, i64 n)
{
    blur<3>(out, in, weights, n);
}

extern "C" __global__ void img_blur5(float *out, const float *in, const float *weights, i64 n)
{
    blur<5>(out, in, weights, n);
}

/* Magnitude of the gradient. A row gives its difference and its sum; three rows of them give a pixel. */
extern "C" __global__ void img_sobel(float *out, const float *in, i64 n)
{
    i64 column = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    i64 first  = ((i64)blockIdx.y * blockDim.y + threadIdx.y) * IMG_ROWS;
    float across[IMG_ROWS + 2], down[IMG_ROWS + 2];

    if (column >= n || first >= n) {
        return;
    }
#pragma unroll
    for (int row = 0; row < IMG_ROWS + 2; row++) {
        float left   = pixel(in, n, first + row - 1, column - 1);
        float middle = pixel(in, n, first + row - 1, column);
        float right  = pixel(in, n, first + row - 1, column + 1);

        across[row] = right - left;
        down[row]   = left + 2 * middle + right;
    }
#pragma unroll
    for (int row = 0; row < IMG_ROWS; row++) {
        float gx = across[row] + 2 * across[row + 1] + across[row + 2];
        float gy = down[row + 2] - down[row];

        if (first + row < n) {
            out[(first + row) * n + column] = sqrtf(gx * gx + gy * gy);
        }
    }
}

template <class op>
static __device__ void extreme(float *out, const float4 *in, float *partial, unsigned *ticket, i64 quads)
{
    i64 threads = (i64)gridDim.x * blockDim.x;
    float value = op::identity();

    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < quads; i += 4 * threads) {
        float4 v[4];

#pragma unroll
        for (int k = 0; k < 4; k++) { /* past the end: the first again, which changes nothing */
            v[k] = in[i + k * threads < quads ? i + k * threads : i];
        }
#pragma unroll
        for (int k = 0; k < 4; k++) {
            value = op::of(value, op::of(op::of(v[k].x, v[k].y), op::of(v[k].z, v[k].w)));
        }
    }
    grid_reduce<op>(value, out, partial, ticket);
}

extern "C" __global__ void img_max(float *out, const float4 *in, float *partial, unsigned *ticket, i64 n)
{
    extreme<max_op>(out, in, partial, ticket, n * n / 4);
}

extern "C" __global__ void img_min(float *out, const float4 *in, float *partial, unsigned *ticket, i64 n)
{
    extreme<min_op>(out, in, partial, ticket, n * n / 4);
}

/*
 * Point by point, four at a time; one block has 256 for 1024 pixels. n is even, so n * n is a
 * multiple of 4.
 */
static __device__ i64 quad(void)
{
    return (i64)blockIdx.x * blockDim.x + threadIdx.x;
}

static __device__ float extended(float mask, float low, float scale)
{
    return fminf(1.0f, (mask - low) * scale);
}

extern "C" __global__ void img_extend(float4 *mask, const float *low, const float *high, i64 n)
{
    i64 i = quad();

    if (i < n * n / 4) {
        float from = *low, scale = *high > from ? 5.0f / (*high - from) : 0.0f;
        float4 m = mask[i];

        mask[i] = make_float4(extended(m.x, from, scale), extended(m.y, from, scale),
                              extended(m.z, from, scale), extended(m.w, from, scale));
    }
}

static __device__ float sharpened(float pixel_value, float blurred, float amount)
{
    return fminf(1.0f, fmaxf(0.0f, (1 + amount) * pixel_value - amount * blurred));
}

extern "C" __global__ void img_unsharpen(float4 *out, const float4 *in, const float4 *blurred, i64 n,
                                         float amount)
{
    i64 i = quad();

    if (i < n * n / 4) {
        float4 p = in[i], b = blurred[i];

        out[i] = make_float4(sharpened(p.x, b.x, amount), sharpened(p.y, b.y, amount),
                             sharpened(p.z, b.z, amount), sharpened(p.w, b.w, amount));
    }
}

static __device__ float mixed(float a, float b, float mask)
{
    return a * mask + b * (1 - mask);
}

extern "C" __global__ void img_combine(float4 *out, const float4 *a, const float4 *b, const float4 *mask, i64 n)
{
    i64 i = quad();

    if (i < n * n / 4) {
        float4 p = a[i], q = b[i], m = mask[i];

        out[i] = make_float4(mixed(p.x, q.x, m.x), mixed(p.y, q.y, m.y), mixed(p.z, q.z, m.z),
                             mixed(p.w, q.w, m.w));
    }
}
