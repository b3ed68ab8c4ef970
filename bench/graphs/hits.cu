/*
 * HITS: hubs and authorities of a graph. Matrices are CSR with 32-bit indices; rows are short
 * (three entries on average), so a row is a thread's: neighbouring threads read neighbouring pieces
 * of `column` and `value`, and the gathers from x are what it costs.
 */
extern "C" __global__ void hits_spmv(float *y, const int *row, const int *column, const float *value,
                                     const float *x, i64 n)
{
    i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;

    if (i < n) {
        int end   = row[i + 1];
        float sum = 0;

        for (int k = row[i]; k < end; k++) {
            sum += __ldcs(&value[k]) * __ldg(&x[__ldcs(&column[k])]);
        }
        y[i] = sum;
    }
}

extern "C" __global__ void hits_sum(float *out, const float4 *x, float *partial, unsigned *ticket, i64 n)
{
    i64 threads = (i64)gridDim.x * blockDim.x;
    float sum   = 0;

    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < n / 4; i += threads) {
        float4 v = x[i];

        sum += (v.x + v.y) + (v.z + v.w);
    }
    grid_reduce<add_op>(sum, out, partial, ticket);
}

extern "C" __global__ void hits_divide(float4 *y, const float4 *x, const float *sum, i64 n)
{
    i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;

    if (i < n / 4) {
        float by = 1.0f / *sum;
        float4 v = x[i];

        y[i] = make_float4(v.x * by, v.y * by, v.z * by, v.w * by);
    }
}
