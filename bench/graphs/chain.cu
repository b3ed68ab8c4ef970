/*
 * CHAIN: kernels that each wait for the one before. `cycles` of waiting stand for work; every
 * element counts the kernels. CHAIN_BEGIN: what a person adds to a kernel that may begin early;
 * Plasmon adds it by itself.
 */
#ifndef CHAIN_BEGIN
#define CHAIN_BEGIN
#endif
extern "C" __global__ void chain_link(float *x, i64 n, i64 cycles)
{
    CHAIN_BEGIN
    const long long began = clock64();

    for (i64 i = threadIdx.x; i < n; i += blockDim.x) {
        x[i] += 1;
    }
    while (clock64() - began < cycles) {
    }
}

/* By hand, between two devices: what is little comes faster by a kernel than by a copy engine. */
extern "C" __global__ void chain_pull(float *to, const float *from, i64 n)
{
    for (i64 i = threadIdx.x; i < n; i += blockDim.x) {
        to[i] = from[i];
    }
}
