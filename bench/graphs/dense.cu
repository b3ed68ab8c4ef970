/*
 * MUL and CG: a dense symmetric matrix by a vector, rows in parts. A is 2 I plus a random symmetric
 * matrix of small norm, so that CG converges; its elements are a function of row and column, made
 * part by part.
 */
extern "C" __global__ void dense_matrix(float *a, i64 rows, i64 n, i64 first, i64 seed)
{
    for (i64 row = blockIdx.y; row < rows; row += gridDim.y) {
        for (i64 column = (i64)blockIdx.x * blockDim.x + threadIdx.x; column < n; column += (i64)gridDim.x * blockDim.x) {
            i64 i = first + row, low = i < column ? i : column, high = i < column ? column : i;

            a[row * n + column] = centred_at(seed, low * n + high) / 512 + (i == column ? 2 : 0);
        }
    }
}

/*
 * y = A x for `rows` rows of n elements. A block has four rows at a time, so that what it loads of
 * x serves four; x comes from the second-level cache, A from memory, once. n is a multiple of 4.
 */
#define DENSE_ROWS 4

extern "C" __global__ void dense_matvec(float *y, const float4 *a, const float4 *x, i64 rows, i64 n)
{
    const i64 quads = n / 4, first = (i64)blockIdx.x * DENSE_ROWS;
    float sum[DENSE_ROWS] = {0};

    for (i64 i = threadIdx.x; i < quads; i += blockDim.x) {
        const float4 v = __ldg(&x[i]);

#pragma unroll
        for (int k = 0; k < DENSE_ROWS; k++) {
            i64 row  = first + k < rows ? first + k : rows - 1; /* the last once more: not stored */
            float4 w = __ldcs(&a[row * quads + i]);

            sum[k] += (w.x * v.x + w.y * v.y) + (w.z * v.z + w.w * v.w);
        }
    }
#pragma unroll
    for (int k = 0; k < DENSE_ROWS; k++) {
        float total = block_reduce<add_op>(sum[k]);

        if (threadIdx.x == 0 && first + k < rows) {
            y[first + k] = total;
        }
    }
}

/* MUL: part of the vector, before all of it is wanted everywhere. */
extern "C" __global__ void dense_double(float *y, const float *x, i64 n)
{
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (i64)gridDim.x * blockDim.x) {
        y[i] = 2 * x[i];
    }
}

/* CG's vector work: a few hundred KB, one device. */
extern "C" __global__ void cg_start(float *x, float *r, float *p, const float *b, const float *ax, i64 n)
{
    i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;

    if (i < n) {
        x[i] = 0;
        r[i] = b[i] - ax[i];
        p[i] = r[i];
    }
}

extern "C" __global__ void cg_zero(float *x, i64 n)
{
    i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;

    if (i < n) {
        x[i] = 0;
    }
}

extern "C" __global__ void cg_dot(float *out, const float *a, const float *b, float *partial, unsigned *ticket, i64 n)
{
    float sum = 0;

    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (i64)gridDim.x * blockDim.x) {
        sum += a[i] * b[i];
    }
    grid_reduce<add_op>(sum, out, partial, ticket);
}

/* A quotient of what has become too small to count is 0: the iteration stands still when it has converged. */
static __device__ float quotient(float a, float b)
{
    return b > 1e-30f ? a / b : 0.0f;
}

/* x += (rr / pap) p; the next r -= (rr / pap) A p */
extern "C" __global__ void cg_advance(float *x, const float *p, const float *rr, const float *pap, i64 n, float sign)
{
    i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;

    if (i < n) {
        x[i] += sign * quotient(*rr, *pap) * p[i];
    }
}

/* p = r + (rr_next / rr) p */
extern "C" __global__ void cg_direction(float *p, const float *r, const float *next, const float *rr, i64 n)
{
    i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;

    if (i < n) {
        p[i] = r[i] + quotient(*next, *rr) * p[i];
    }
}
