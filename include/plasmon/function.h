/*
 * Plasmon functions in a shared object: what plasmon_function_library() calls.
 *
 * The library lies in the workers' library folder (plasmon-store --library-dir) and exports, for
 * each function, an entry point
 *
 *     int SYMBOL(const struct plasmon_function_call *call);
 *
 * and, if it has something to set up, SYMBOL_prepare with the same type. Both answer 0, or a number
 * of their own and a text in call->error, which fails the task.
 *
 * PREPARE is called once, when the library is loaded and before the first call, with no arguments;
 * nothing runs on the device then. Whatever may wait for the device belongs there: making a cuBLAS
 * or cuSOLVER handle, the first call of such a library, cudaMalloc, loading modules.
 *
 * THE ENTRY POINT on a GPU runs on the thread that enqueues: it puts work into call->stream and
 * returns, without waiting for it, and without calling anything that waits for streams (cudaFree,
 * cudaStreamSynchronize, a first launch of a kernel of the runtime: launch it in PREPARE). The
 * device's primary context is current. On a CPU device it runs on a stream's thread and does all of
 * its work before it returns.
 *
 * It is stateless, writes only what its signature calls out, inout, reduce or scratch, and may be
 * called from several threads.
 */
#ifndef PLASMON_FUNCTION_H
#define PLASMON_FUNCTION_H

#include "plasmon/plasmon.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PLASMON_FUNCTION_ABI 1

/**
 * The launch shape of the call; all 0: the caller left it open. Source functions in C see it as
 * *plasmon_shape.
 */
struct plasmon_launch_shape {
    uint32_t grid[3];
    uint32_t block[3];
    uint32_t shared_bytes;
};

/**
 * One tensor: element (i0, i1, ..) is at data + sum(i * stride) * bytes of dtype. data is an
 * address on the device.
 */
struct plasmon_function_arg {
    plasmon_mode_t mode;
    plasmon_dtype_t dtype;
    plasmon_reduce_t reduce_op; /* REDUCE: data holds the identity, or a partial result */
    uint32_t ndim;
    int64_t dim[PLASMON_DIM_MAX];
    int64_t stride[PLASMON_DIM_MAX];
    void *data;
};

struct plasmon_function_call {
    size_t size;      /* sizeof(struct plasmon_function_call) of the worker */
    uint32_t abi;     /* PLASMON_FUNCTION_ABI */
    int kind;         /* 1 CPU, 2 CUDA */
    uint32_t ordinal; /* of the device among its kind */
    uint32_t arg_count;
    /* the tensors, in the order of the signature */
    const struct plasmon_function_arg *args;
    const plasmon_scalar_t *scalars; /* the caller's scalars, likewise */
    uint32_t scalar_count;
    uint32_t error_bytes;
    char *error;  /* room for a text that says what went wrong */
    void *stream; /* CUstream; NULL on CPU devices */
    struct plasmon_launch_shape shape;
};

typedef int (*plasmon_function_fn)(const struct plasmon_function_call *call);

#ifdef __cplusplus
}
#endif

#endif
