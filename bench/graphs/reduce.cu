/*
 * Stands before the text of every graph: sums and extremes over a whole grid in one kernel.
 *
 * Blocks leave a partial result each, and the block that takes the last ticket puts them together,
 * in the order of the blocks, so that a sum has the same bits every time. atomicInc wraps: the
 * ticket is 0 again when the kernel ends, whatever the grid was.
 *
 * Blocks have a multiple of 32 threads in x, at most 1024, and one row of them.
 */
typedef long long i64;

struct add_op {
    static __device__ float identity(void) { return 0.0f; }
    static __device__ float of(float a, float b) { return a + b; }
};
struct max_op {
    static __device__ float identity(void) { return -3.4e38f; }
    static __device__ float of(float a, float b) { return fmaxf(a, b); }
};
struct min_op {
    static __device__ float identity(void) { return 3.4e38f; }
    static __device__ float of(float a, float b) { return fminf(a, b); }
};

/* Valid in thread 0. */
template <class op> static __device__ float block_reduce(float value)
{
    __shared__ float warps[32];

    for (int step = 16; step > 0; step /= 2) {
        value = op::of(value, __shfl_down_sync(0xffffffffu, value, step));
    }
    if (threadIdx.x % 32 == 0) {
        warps[threadIdx.x / 32] = value;
    }
    __syncthreads();
    value = threadIdx.x < blockDim.x / 32 ? warps[threadIdx.x] : op::identity();
    if (threadIdx.x < 32) {
        for (int step = 16; step > 0; step /= 2) {
            value = op::of(value, __shfl_down_sync(0xffffffffu, value, step));
        }
    }
    __syncthreads(); /* `warps` may be used again */
    return value;
}

/*
 * True in all threads of one block of the grid: the one that comes here last and sees what all
 * others wrote before.
 */
static __device__ bool is_last_block(unsigned *ticket)
{
    __shared__ bool last;

    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0 && threadIdx.y == 0) {
        last = atomicInc(ticket, gridDim.x - 1) == gridDim.x - 1;
    }
    __syncthreads();
    return last;
}

/* `mine`: this thread's part. partial has room for gridDim.x. */
template <class op>
static __device__ void grid_reduce(float mine, float *out, float *partial, unsigned *ticket)
{
    float value = block_reduce<op>(mine);

    if (threadIdx.x == 0) {
        partial[blockIdx.x] = value;
    }
    if (!is_last_block(ticket)) {
        return;
    }
    value = op::identity();
    for (unsigned i = threadIdx.x; i < gridDim.x; i += blockDim.x) {
        value = op::of(value, __ldcg(&partial[i]));
    }
    value = block_reduce<op>(value);
    if (threadIdx.x == 0) {
        *out = value;
    }
}

