/*
 * CPU variants that move elements without looking at them (copy, transpose, permute, concatenate),
 * and checksum, which looks at their bits. Any dtype: elements have 1, 2, 4, 8 or 16 bytes.
 */
#include "kernels/cpu.h"
#include "kernels/element.h"

#include <string.h>

/* --------------------------------------------------------------------------------- copy */

#define COPY_LOOP(bytes)                                                   \
    case bytes:                                                            \
        for (int64_t i = 0; i < n; i++) {                                  \
            memcpy(ptr[0] + i * stride[0], ptr[1] + i * stride[1], bytes); \
        }                                                                  \
        break;

static void copy_run(void *user, char *const ptr[], const int64_t stride[], int64_t first,
                     int64_t n)
{
    int64_t bytes = *(const int64_t *)user;

    (void)first;
    if (stride[0] == bytes && stride[1] == bytes) {
        memmove(ptr[0], ptr[1], (size_t)(n * bytes));
        return;
    }
    switch (bytes) { /* a constant size makes memcpy one move */
        COPY_LOOP(1)
        COPY_LOOP(2)
        COPY_LOOP(4)
        COPY_LOOP(8)
        COPY_LOOP(16)
    default:
        PL_CHECK(0); /* no such dtype */
    }
}

void cpu_copy(const struct kernel_arg *y, const struct kernel_arg *x)
{
    int64_t bytes = pl_dtype_bytes(y->dtype);
    struct kernel_walk walk;

    kernel_walk_init(&walk, y);
    kernel_walk_add(&walk, x);
    kernel_walk_run(&walk, copy_run, &bytes);
}

plasmon_status_t cpu_move(const struct kernel_call *call, int op, struct pl_err *err)
{
    (void)op;
    (void)err;
    cpu_copy(kernel_call_arg(call, 0), kernel_call_arg(call, 1));
    return PLASMON_OK;
}

plasmon_status_t cpu_transpose(const struct kernel_call *call, int op, struct pl_err *err)
{
    struct kernel_arg x = kernel_arg_transposed(kernel_call_arg(call, 1));

    (void)op;
    (void)err;
    cpu_copy(kernel_call_arg(call, 0), &x);
    return PLASMON_OK;
}

plasmon_status_t cpu_permute(const struct kernel_call *call, int op, struct pl_err *err)
{
    struct kernel_arg x = kernel_arg_permuted(kernel_call_arg(call, 1), call->scalar);

    (void)op;
    (void)err;
    cpu_copy(kernel_call_arg(call, 0), &x);
    return PLASMON_OK;
}

plasmon_status_t cpu_concatenate(const struct kernel_call *call, int op, struct pl_err *err)
{
    int64_t start = 0;

    (void)op;
    (void)err;
    for (uint32_t i = 1; i < call->arg_count; i++) {
        const struct kernel_arg *x = kernel_call_arg(call, i);
        struct kernel_arg part     = kernel_arg_slab(kernel_call_arg(call, 0),
                                                     (uint32_t)call->scalar[0].i, start, x);

        cpu_copy(&part, x);
        start += x->dim[call->scalar[0].i];
    }
    return PLASMON_OK;
}

/* ----------------------------------------------------------------------------- checksum */

struct checksum {
    uint64_t sum;
    int64_t bytes;
};

static void checksum_run(void *user, char *const ptr[], const int64_t stride[],
                         int64_t first, int64_t n)
{
    struct checksum *checksum = user;

    for (int64_t i = 0; i < n; i++) {
        uint64_t bits[2] = {0, 0};

        memcpy(bits, ptr[0] + i * stride[0], (size_t)checksum->bytes); /* little-endian */
        checksum->sum += kernel_hash((uint64_t)(first + i), bits[0], bits[1]);
    }
}

plasmon_status_t cpu_checksum(const struct kernel_call *call, int op, struct pl_err *err)
{
    const struct kernel_arg *x = kernel_call_arg(call, 1);
    struct checksum checksum   = {.bytes = pl_dtype_bytes(x->dtype)};
    struct kernel_walk walk;

    (void)op;
    (void)err;
    kernel_walk_init(&walk, x);
    kernel_walk_run(&walk, checksum_run, &checksum);
    memcpy(cpu_data(kernel_call_arg(call, 0)), &checksum.sum, sizeof(checksum.sum));
    return PLASMON_OK;
}
