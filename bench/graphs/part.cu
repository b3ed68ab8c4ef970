/*
 * Stands before the texts for several devices: inputs that are made where they are used. The
 * index-th number of a series is a hash of seed and index (splitmix64), so the reference, on the
 * host, has the very same without a copy.
 */
static __device__ unsigned long long random_at(i64 seed, i64 index)
{
    unsigned long long z = (unsigned long long)seed + (unsigned long long)(index + 1) * 0x9e3779b97f4a7c15ull;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

/* -1 <= x < 1, exact in fp32 */
static __device__ float centred_at(i64 seed, i64 index)
{
    return 2 * ((float)(random_at(seed, index) >> 40) * 0x1p-24f) - 1;
}

/* y[i] = number first + i of the series */
extern "C" __global__ void part_centred(float *y, i64 n, i64 first, i64 seed)
{
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (i64)gridDim.x * blockDim.x) {
        y[i] = centred_at(seed, first + i);
    }
}

/* Prices about 60 in fp64. */
extern "C" __global__ void part_prices(double *y, i64 n, i64 first, i64 seed)
{
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (i64)gridDim.x * blockDim.x) {
        y[i] = 59.5 + (double)(random_at(seed, first + i) >> 40) * 0x1p-24;
    }
}

/* Integers below 10, in rows of f. */
extern "C" __global__ void part_levels(float *y, i64 n, i64 f, i64 first, i64 seed)
{
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < n * f; i += (i64)gridDim.x * blockDim.x) {
        y[i] = (float)(random_at(seed, first + i) % 10);
    }
}

