/*
 * CUDA variants of where and of spmv, and the kernel that reports what they found wrong in the data.
 *
 * spmv: `group` threads a row, as many as an average row has elements, so that short rows do not
 * leave most of a warp idle and long ones are read side by side. Row pointers and columns are
 * checked before they are followed; the first that is wrong is kept by an atomic minimum, so what
 * is reported does not depend on timing.
 */
#include "kernels/cuda_common.cuh"

/* -------------------------------------------------------------------------------- where */

template <typename Word> KERNEL_FN void where_words(const cuda_elementwise &p)
{
    for (int64_t i = thread_index(); i < p.walk.count; i += thread_count()) {
        int64_t at[4];

        walk_at<4>(p.walk, i, at);
        *pointer<Word>(p.walk.base[0], at[0]) =
            *pointer<const uint8_t>(p.walk.base[1], at[1]) != 0
                ? *pointer<const Word>(p.walk.base[2], at[2])
                : *pointer<const Word>(p.walk.base[3], at[3]);
    }
}

KERNEL(where, cuda_elementwise)
{
    switch (p.bytes) {
    case 1:
        where_words<uint8_t>(p);
        break;
    case 2:
        where_words<uint16_t>(p);
        break;
    case 4:
        where_words<uint32_t>(p);
        break;
    case 8:
        where_words<uint64_t>(p);
        break;
    default:
        where_words<kernel_c128>(p);
        break;
    }
}

/* --------------------------------------------------------------------------------- spmv */

KERNEL_FN void found(uint64_t word, int64_t index)
{
    atomicMin(pointer<unsigned long long>(word, 0), (unsigned long long)index);
}

template <typename Index, typename T> KERNEL_FN void spmv(const cuda_spmv &p)
{
    int64_t group = p.group;
    int64_t lane  = threadIdx.x % group;
    /* All threads of a warp make the same number of rounds, as the shuffles need. */
    int64_t rounds = (p.rows + thread_count() / group - 1) / (thread_count() / group);

    for (int64_t round = 0; round < rounds; round++) {
        int64_t row   = thread_index() / group + round * (thread_count() / group);
        double sum    = 0;
        int64_t first = 0;
        int64_t end   = 0;

        if (row < p.rows) {
            first = (int64_t)*pointer<const Index>(p.row_pointers, row * p.row_stride);
            end = (int64_t)*pointer<const Index>(p.row_pointers, (row + 1) * p.row_stride);
            if (first < 0 || end < first || end > p.stored) {
                found(p.bad_row, row);
                end = first;
            }
        }
        for (int64_t j = first + lane; j < end; j += group) {
            int64_t column = (int64_t)*pointer<const Index>(p.columns, j * p.column_stride);

            if (column < 0 || column >= p.length) {
                found(p.bad_column, j);
                continue;
            }
            sum += (double)*pointer<const T>(p.values, j * p.value_stride) *
                   (double)*pointer<const T>(p.x, column * p.x_stride);
        }
        for (int step = (int)group / 2; step > 0; step /= 2) {
            sum += __shfl_down_sync(0xffffffffu, sum, step);
        }
        if (lane == 0 && row < p.rows) {
            *pointer<T>(p.y, row * p.y_stride) = (T)sum;
        }
    }
}

#define SPMV_KERNEL(Index, T, suffix) \
    KERNEL(spmv_##suffix, cuda_spmv)  \
    {                                 \
        spmv<Index, T>(p);            \
    }
SPMV_KERNEL(int32_t, float, i32_f32)
SPMV_KERNEL(int32_t, double, i32_f64)
SPMV_KERNEL(int64_t, float, i64_f32)
SPMV_KERNEL(int64_t, double, i64_f64)

/* ----------------------------------------------------------------------------- failures */

/* How many records there are; the host counts what it has read. */
__device__ unsigned long long failure_count;

/*
 * Nobody else writes the entry of a launch that is not over, but who marks it as failed too. false:
 * somebody has: one record a launch is enough, though it is a recorded graph of a thousand calls
 * that all fail. (Two at the same time may both find it unmarked.)
 */
__device__ static bool mark_failed(const cuda_report &p, uint64_t tag)
{
    volatile uint64_t *entry = pointer<volatile uint64_t>(p.marks, 0) + tag % p.mark_count;

    if (*entry >> p.mark_shift == tag) {
        if ((*entry & p.mark_bit) != 0) {
            return false;
        }
        *entry |= p.mark_bit;
    }
    __threadfence_system();
    return true;
}

/*
 * One thread. Of the words the first that is not `fine` is reported. The record's number is written
 * last: the host looks at it first. Launches of one device may end at the same time on several
 * streams, hence the atomic.
 */
KERNEL(report, cuda_report)
{
    uint64_t tag = p.tag;

    if (p.tag_at !=
        0) { /* no ?: of both: p.tag would be read as volatile too, at an address that no parameter has */
        tag = *pointer<const volatile uint64_t>(p.tag_at, 0);
    }
    for (uint32_t i = 0; i < p.count; i++) {
        int64_t value = p.bytes == 4 ? (int64_t)*pointer<const int32_t>(p.word[i], 0)
                                     : *pointer<const int64_t>(p.word[i], 0);
        volatile struct cuda_failure *record;
        unsigned long long number;

        if (value == p.fine) {
            continue;
        }
        if (p.mark_count != 0 && !mark_failed(p, tag)) {
            return;
        }
        number = atomicAdd(&failure_count, 1ull);
        record = pointer<volatile struct cuda_failure>(p.records, 0) +
                 number % CUDA_FAILURES_MAX;
        record->tag      = tag;
        record->function = p.function;
        record->error    = value < 0 && p.bytes == 4 ? p.refused : p.error[i];
        record->value    = value < 0 && p.bytes == 4 ? -value : value;
        __threadfence_system();
        record->number = number + 1;
        return;
    }
}
