/*
 * CPU variants of topk_min, topk_merge and vote: the steps of k nearest neighbours. Equal values
 * are ordered by index, so however the columns are split over tasks, the merged result is that of
 * one topk_min over all.
 */
#include "kernels/cpu.h"

/* A row of an array: element i is `step` bytes after element i - 1. */
struct row {
    char *data;
    int64_t step;
};

#define ROW(type, row, i) ((type *)(void *)((row)->data + (i) * (row)->step))

#define IS_FLOAT   1
#define T          float
#define NAME(name) name##_f32
#include "kernels/cpu_neighbours_t.h"
#undef T
#undef NAME
#define T          double
#define NAME(name) name##_f64
#include "kernels/cpu_neighbours_t.h"
#undef T
#undef NAME
#undef IS_FLOAT
#define IS_FLOAT   0
#define T          int32_t
#define NAME(name) name##_i32
#include "kernels/cpu_neighbours_t.h"
#undef T
#undef NAME
#define T          int64_t
#define NAME(name) name##_i64
#include "kernels/cpu_neighbours_t.h"
#undef T
#undef NAME
#undef IS_FLOAT

static struct row row_of(const struct kernel_arg *arg, int64_t index)
{
    int64_t bytes = pl_dtype_bytes(arg->dtype);

    return (struct row){cpu_data(arg) + index * arg->stride[0] * bytes,
                        arg->stride[1] * bytes};
}

plasmon_status_t cpu_topk_min(const struct kernel_call *call, int op, struct pl_err *err)
{
    const struct kernel_arg *values  = kernel_call_arg(call, 0);
    const struct kernel_arg *indices = kernel_call_arg(call, 1);
    const struct kernel_arg *x       = kernel_call_arg(call, 2);
    int64_t base                     = call->scalar[1].i;
    int64_t n                        = x->dim[1];
    int64_t k                        = values->dim[1];

    (void)op;
    (void)err;
    for (int64_t i = 0; i < x->dim[0]; i++) {
        struct row v   = row_of(values, i);
        struct row at  = row_of(indices, i);
        struct row row = row_of(x, i);

        switch (x->dtype) {
        case PL_F32:
            topk_row_f32(&row, n, base, &v, &at, k);
            break;
        case PL_F64:
            topk_row_f64(&row, n, base, &v, &at, k);
            break;
        case PL_I32:
            topk_row_i32(&row, n, base, &v, &at, k);
            break;
        default:
            topk_row_i64(&row, n, base, &v, &at, k);
            break;
        }
    }
    return PLASMON_OK;
}

plasmon_status_t cpu_topk_merge(const struct kernel_call *call, int op, struct pl_err *err)
{
    const struct kernel_arg *values = kernel_call_arg(call, 0);
    int64_t k                       = values->dim[1];
    int64_t ka                      = kernel_call_arg(call, 2)->dim[1];
    int64_t kb                      = kernel_call_arg(call, 4)->dim[1];

    (void)op;
    (void)err;
    for (int64_t i = 0; i < values->dim[0]; i++) {
        struct row r[6];

        for (uint32_t j = 0; j < 6; j++) {
            r[j] = row_of(kernel_call_arg(call, j), i);
        }
        switch (values->dtype) {
        case PL_F32:
            merge_row_f32(&r[2], &r[3], ka, &r[4], &r[5], kb, &r[0], &r[1], k);
            break;
        case PL_F64:
            merge_row_f64(&r[2], &r[3], ka, &r[4], &r[5], kb, &r[0], &r[1], k);
            break;
        case PL_I32:
            merge_row_i32(&r[2], &r[3], ka, &r[4], &r[5], kb, &r[0], &r[1], k);
            break;
        default:
            merge_row_i64(&r[2], &r[3], ka, &r[4], &r[5], kb, &r[0], &r[1], k);
            break;
        }
    }
    return PLASMON_OK;
}

/*
 * Of one row: the label with most votes, the first met of equals. k is small, so every label counts
 * its own.
 */
static int32_t vote_row(const struct row *indices, int64_t k,
                        const struct kernel_arg *labels)
{
    struct row label  = {cpu_data(labels), labels->stride[0] * (int64_t)sizeof(int32_t)};
    int64_t best      = 0;
    int32_t best_name = -1;

    for (int64_t i = 0; i < k; i++) {
        int64_t at    = *ROW(int64_t, indices, i);
        int64_t votes = 0;

        if (at < 0 || at >= labels->dim[0]) {
            continue;
        }
        for (int64_t j = 0; j < k; j++) {
            int64_t other = *ROW(int64_t, indices, j);

            votes += other >= 0 && other < labels->dim[0] &&
                     *ROW(int32_t, &label, other) == *ROW(int32_t, &label, at);
        }
        if (votes > best) {
            best      = votes;
            best_name = *ROW(int32_t, &label, at);
        }
    }
    return best_name;
}

plasmon_status_t cpu_vote(const struct kernel_call *call, int op, struct pl_err *err)
{
    const struct kernel_arg *y       = kernel_call_arg(call, 0);
    const struct kernel_arg *indices = kernel_call_arg(call, 1);
    const struct kernel_arg *labels  = kernel_call_arg(call, 2);
    struct row out = {cpu_data(y), y->stride[0] * (int64_t)sizeof(int32_t)};

    (void)op;
    (void)err;
    for (int64_t i = 0; i < y->dim[0]; i++) {
        struct row row = row_of(indices, i);

        *ROW(int32_t, &out, i) = vote_row(&row, indices->dim[1], labels);
    }
    return PLASMON_OK;
}
