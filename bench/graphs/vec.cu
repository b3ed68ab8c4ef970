/*
 * VEC: squares of two vectors, and the sum of their difference. All of it is memory traffic, so a
 * thread moves 16 bytes at a time and keeps four loads in flight. n is a multiple of 4.
 */
#define VEC_EACH 4 /* float4 a thread; the launch has a block of 256 for 256 * VEC_EACH of them */

static __device__ float4 square4(float4 v)
{
    return make_float4(v.x * v.x, v.y * v.y, v.z * v.z, v.w * v.w);
}

extern "C" __global__ void vec_square(float4 *out, const float4 *in, i64 n)
{
    i64 first = (i64)blockIdx.x * blockDim.x * VEC_EACH + threadIdx.x;
    float4 v[VEC_EACH];

#pragma unroll
    for (int k = 0; k < VEC_EACH; k++) {
        i64 i = first + k * (i64)blockDim.x;

        v[k] = i < n / 4 ? __ldcs(&in[i]) : make_float4(0, 0, 0, 0);
    }
#pragma unroll
    for (int k = 0; k < VEC_EACH; k++) {
        i64 i = first + k * (i64)blockDim.x;

        if (i < n / 4) {
            out[i] = square4(v[k]);
        }
    }
}

static __device__ float difference(float4 a, float4 b)
{
    return (a.x - b.x) + (a.y - b.y) + ((a.z - b.z) + (a.w - b.w));
}

extern "C" __global__ void vec_diff_sum(float *res, const float4 *a, const float4 *b,
                                        float *partial, unsigned *ticket, i64 n)
{
    i64 threads = (i64)gridDim.x * blockDim.x, quads = n / 4;
    i64 i     = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0;

    for (; i + 3 * threads < quads; i += 4 * threads) {
        float4 u[4], v[4];

#pragma unroll
        for (int k = 0; k < 4; k++) {
            u[k] = a[i + k * threads];
            v[k] = b[i + k * threads];
        }
        sum += (difference(u[0], v[0]) + difference(u[1], v[1])) +
               (difference(u[2], v[2]) + difference(u[3], v[3]));
    }
    for (; i < quads; i += threads) {
        sum += difference(a[i], b[i]);
    }
    grid_reduce<add_op>(sum, res, partial, ticket);
}
