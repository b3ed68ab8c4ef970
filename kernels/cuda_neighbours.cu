/*
 * CUDA variants of topk_min, topk_merge and vote.
 *
 * topk_min: a block a row. Up to CUDA_TOPK_ONE_PASS neighbours each thread keeps the best of what
 * it reads in registers, sorted, and the block then takes the smallest head of all threads k times.
 * For more, the block reads the row k times, looking each time for the smallest entry after the
 * last one found. (value, index) pairs are all different, so the order is total and the result is
 * that of the CPU.
 */
#include "kernels/cuda_common.cuh"

template <typename T> struct entry {
    T value;
    int64_t index;
};

/* NaN after numbers, equals by index. */
template <typename T> KERNEL_FN bool ordered(const entry<T> &a, const entry<T> &b)
{
    bool a_nan = a.value != a.value;
    bool b_nan = b.value != b.value;

    if (a_nan != b_nan) {
        return b_nan;
    }
    if (a.value < b.value || a.value > b.value) {
        return a.value < b.value;
    }
    return a.index < b.index;
}

/* The same while looking for them: columns, none (-1) after all others. */
template <typename T> KERNEL_FN bool before(const entry<T> &a, const entry<T> &b)
{
    return a.index >= 0 && (b.index < 0 || ordered(a, b));
}

template <typename T> KERNEL_FN T *at(const cuda_rows &rows, int64_t row, int64_t i)
{
    return pointer<T>(rows.base, row * rows.stride[0] + i * rows.stride[1]);
}

/* The smallest of the block's entries, in every thread. All threads come here. */
template <typename T> KERNEL_FN entry<T> block_first(entry<T> mine, entry<T> *shared)
{
    for (int step = 16; step > 0; step /= 2) {
        entry<T> other;

        other.value = __shfl_down_sync(0xffffffffu, mine.value, step);
        other.index = __shfl_down_sync(0xffffffffu, mine.index, step);
        mine        = before(other, mine) ? other : mine;
    }
    __syncthreads(); /* the last round's values have been read */
    if (threadIdx.x % 32 == 0) {
        shared[threadIdx.x / 32] = mine;
    }
    __syncthreads();
    mine = shared[0];
    for (int i = 1; i < blockDim.x / 32; i++) {
        mine = before(shared[i], mine) ? shared[i] : mine;
    }
    return mine;
}

template <typename T>
KERNEL_FN void topk_row_one_pass(const cuda_topk &p, int64_t row, entry<T> *shared)
{
    entry<T> best[CUDA_TOPK_ONE_PASS];

#pragma unroll
    for (int j = 0; j < CUDA_TOPK_ONE_PASS; j++) {
        best[j].value = 0;
        best[j].index = -1;
    }
    for (int64_t i = threadIdx.x; i < p.columns; i += blockDim.x) {
        entry<T> incoming;

        incoming.value = *at<const T>(p.x, row, i);
        incoming.index = i;
#pragma unroll
        for (int j = 0; j < CUDA_TOPK_ONE_PASS; j++) { /* constant indices: registers */
            bool swap      = before(incoming, best[j]);
            entry<T> loser = swap ? best[j] : incoming;

            best[j]  = swap ? incoming : best[j];
            incoming = loser;
        }
    }
    for (int64_t found = 0; found < p.k; found++) {
        entry<T> first = block_first(best[0], shared);

        if (threadIdx.x == 0) {
            *at<T>(p.values, row, found)        = first.value;
            *at<int64_t>(p.indices, row, found) = p.index_base + first.index;
        }
        if (best[0].index == first.index) { /* indices are all different */
#pragma unroll
            for (int j = 0; j + 1 < CUDA_TOPK_ONE_PASS; j++) {
                best[j] = best[j + 1];
            }
            best[CUDA_TOPK_ONE_PASS - 1].index = -1;
        }
    }
}

template <typename T>
KERNEL_FN void topk_row_many_passes(const cuda_topk &p, int64_t row, entry<T> *shared)
{
    entry<T> last;

    last.value = 0;
    last.index = -1;
    for (int64_t found = 0; found < p.k; found++) {
        entry<T> best;

        best.value = 0;
        best.index = -1;
        for (int64_t i = threadIdx.x; i < p.columns; i += blockDim.x) {
            entry<T> candidate;

            candidate.value = *at<const T>(p.x, row, i);
            candidate.index = i;
            if ((found == 0 || before(last, candidate)) && before(candidate, best)) {
                best = candidate;
            }
        }
        last = block_first(best, shared);
        if (threadIdx.x == 0) {
            *at<T>(p.values, row, found)        = last.value;
            *at<int64_t>(p.indices, row, found) = p.index_base + last.index;
        }
    }
}

template <typename T> KERNEL_FN void topk(const cuda_topk &p, entry<T> *shared)
{
    for (int64_t row = blockIdx.x; row < p.rows; row += gridDim.x) {
        if (p.k <= CUDA_TOPK_ONE_PASS) {
            topk_row_one_pass<T>(p, row, shared);
        } else {
            topk_row_many_passes<T>(p, row, shared);
        }
    }
}

/* A thread a row: the first k of two ascending rows. */
template <typename T> KERNEL_FN void merge(const cuda_merge &p)
{
    for (int64_t row = thread_index(); row < p.rows; row += thread_count()) {
        int64_t taken[2] = {0, 0};

        for (int64_t found = 0; found < p.k; found++) {
            entry<T> head[2];
            int from;

            for (int i = 0; i < 2; i++) {
                head[i].value = 0;
                head[i].index = 0;
                if (taken[i] < p.size[i]) {
                    head[i].value = *at<const T>(p.from_values[i], row, taken[i]);
                    head[i].index = *at<const int64_t>(p.from_indices[i], row, taken[i]);
                }
            }
            from = taken[0] < p.size[0] &&
                   (taken[1] >= p.size[1] || !ordered(head[1], head[0])) ? 0 : 1;
            *at<T>(p.values, row, found)        = head[from].value;
            *at<int64_t>(p.indices, row, found) = head[from].index;
            taken[from]++;
        }
    }
}

#define NEIGHBOUR_KERNELS(T, suffix)                                                         \
    KERNEL(topk_##suffix, cuda_topk)                                                         \
    {                                                                                        \
        __shared__ entry<T> shared[8];                                                       \
                                                                                             \
        topk<T>(p, shared);                                                                  \
    }                                                                                        \
    KERNEL(merge_##suffix, cuda_merge)                                                       \
    {                                                                                        \
        merge<T>(p);                                                                         \
    }
NEIGHBOUR_KERNELS(float, f32)
NEIGHBOUR_KERNELS(double, f64)
NEIGHBOUR_KERNELS(int32_t, i32)
NEIGHBOUR_KERNELS(int64_t, i64)

KERNEL_FN int32_t label_of(const cuda_vote &p, int64_t index)
{
    return *pointer<const int32_t>(p.labels, index * p.labels_stride);
}

/* A thread a row; k is small, so each label counts its own. */
KERNEL(vote, cuda_vote)
{
    for (int64_t row = thread_index(); row < p.rows; row += thread_count()) {
        int64_t best      = 0;
        int32_t best_name = -1;

        for (int64_t i = 0; i < p.k; i++) {
            int64_t mine  = *at<const int64_t>(p.indices, row, i);
            int64_t votes = 0;

            if (mine < 0 || mine >= p.labels_count) {
                continue;
            }
            for (int64_t j = 0; j < p.k; j++) {
                int64_t other = *at<const int64_t>(p.indices, row, j);

                votes += other >= 0 && other < p.labels_count &&
                         label_of(p, other) == label_of(p, mine);
            }
            if (votes > best) {
                best      = votes;
                best_name = label_of(p, mine);
            }
        }
        *pointer<int32_t>(p.y, row * p.y_stride) = best_name;
    }
}
