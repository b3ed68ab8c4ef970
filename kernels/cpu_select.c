/*
 * CPU variants of where and of spmv: functions whose reads depend on data. where moves elements as bytes.
 *
 * spmv trusts nothing: a row pointer or a column that is out of range fails the task before
 * anything is read through it. y may have been written in part by then; a failed task's results are
 * never seen.
 */
#include "kernels/cpu.h"
#include "kernels/data_errors.h"

#include <string.h>

/* -------------------------------------------------------------------------------- where */

#define WHERE_LOOP(bytes)                                                           \
    case bytes:                                                                     \
        for (int64_t i = 0; i < n; i++) {                                           \
            const char *from = ptr[1][i * stride[1]] != 0 ? ptr[2] + i * stride[2]  \
                                                          : ptr[3] + i * stride[3]; \
            memcpy(ptr[0] + i * stride[0], from, bytes);                            \
        }                                                                           \
        break;

static void where_run(void *user, char *const ptr[], const int64_t stride[], int64_t first,
                      int64_t n)
{
    (void)first;
    switch (*(const uint32_t *)user) { /* a constant size makes memcpy one move */
        WHERE_LOOP(1)
        WHERE_LOOP(2)
        WHERE_LOOP(4)
        WHERE_LOOP(8)
        WHERE_LOOP(16)
    default:
        PL_CHECK(0); /* there are no other dtypes */
    }
}

plasmon_status_t cpu_where(const struct kernel_call *call, int op, struct pl_err *err)
{
    uint32_t bytes = pl_dtype_bytes(kernel_call_arg(call, 0)->dtype);
    struct kernel_walk walk;

    (void)op;
    (void)err;
    kernel_walk_init(&walk, kernel_call_arg(call, 0));
    for (uint32_t i = 1; i < 4; i++) {
        kernel_walk_add(&walk, kernel_call_arg(call, i));
    }
    kernel_walk_run(&walk, where_run, &bytes);
    return PLASMON_OK;
}

/* ------------------------------------------------------------------------------- sparse */

static int64_t index_at(const struct kernel_arg *x, int64_t i)
{
    const char *at = cpu_data(x) + i * x->stride[0] * (int64_t)pl_dtype_bytes(x->dtype);

    return x->dtype == PL_I32 ? *(const int32_t *)(const void *)at
                              : *(const int64_t *)(const void *)at;
}

static double value_at(const struct kernel_arg *x, int64_t i)
{
    const char *at = cpu_data(x) + i * x->stride[0] * (int64_t)pl_dtype_bytes(x->dtype);

    return x->dtype == PL_F32 ? (double)*(const float *)(const void *)at
                              : *(const double *)(const void *)at;
}

plasmon_status_t cpu_spmv(const struct kernel_call *call, int op, struct pl_err *err)
{
    const struct kernel_arg *y       = kernel_call_arg(call, 0);
    const struct kernel_arg *rows    = kernel_call_arg(call, 1);
    const struct kernel_arg *columns = kernel_call_arg(call, 2);
    const struct kernel_arg *values  = kernel_call_arg(call, 3);
    const struct kernel_arg *x       = kernel_call_arg(call, 4);
    int64_t y_step                   = y->stride[0] * (int64_t)pl_dtype_bytes(y->dtype);

    (void)op;
    for (int64_t row = 0; row < y->dim[0]; row++) {
        int64_t first = index_at(rows, row);
        int64_t end   = index_at(rows, row + 1);
        double sum    = 0;

        if (first < 0 || end < first || end > columns->dim[0]) {
            return kernel_data_error(err, call->function, KERNEL_DATA_ROWS, row);
        }
        for (int64_t j = first; j < end; j++) {
            int64_t column = index_at(columns, j);

            if (column < 0 || column >= x->dim[0]) {
                return kernel_data_error(err, call->function, KERNEL_DATA_COLUMNS, j);
            }
            sum += value_at(values, j) * value_at(x, column);
        }
        cpu_store_f64(y->dtype, &sum, NULL, 1, cpu_data(y) + row * y_step, 0);
    }
    return PLASMON_OK;
}
