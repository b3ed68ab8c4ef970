/* CHAIN: kernels that each wait for the one before. `cycles` of waiting stand for work; every element counts the kernels. */
extern "C" __global__ void chain_link(float *x, i64 n, i64 cycles)
{
    const long long began = clock64();

    for (i64 i = threadIdx.x; i < n; i += blockDim.x) {
        x[i] += 1;
    }
    while (clock64() - began < cycles) {
    }
}
