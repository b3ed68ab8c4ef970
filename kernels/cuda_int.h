/*
 * The host side of the CUDA variants: what their files share.
 *
 * A variant is a function that works out the parameters of one or a few kernels and launches them on the call's stream. It
 * allocates nothing and never waits. Scratch comes with the call.
 */
#ifndef KERNELS_CUDA_INT_H
#define KERNELS_CUDA_INT_H

#include "base/lock.h"
#include "kernels/cuda_params.h"
#include "kernels/kernel_int.h"
#include "kernels/cpu.h" /* the scratch of products is the same */
#include "kernels/walk.h"

#define CUDA_MODULES(XX) \
    XX(elementwise)      \
    XX(move)             \
    XX(reduce)           \
    XX(linalg)           \
    XX(neighbours)

/* The four element types in the order of cuda_type_index(), so that a kernel for a dtype is found by adding. */
#define CUDA_TYPED(XX, module, name) \
    XX(module, name##_f32)           \
    XX(module, name##_f64)           \
    XX(module, name##_i32)           \
    XX(module, name##_i64)
#define CUDA_FLOATS(XX, module, name) \
    XX(module, name##_f32)            \
    XX(module, name##_f64)
#define CUDA_KERNELS(XX)                 \
    CUDA_TYPED(XX, elementwise, unary)   \
    CUDA_TYPED(XX, elementwise, binary)  \
    CUDA_TYPED(XX, elementwise, power)   \
    CUDA_FLOATS(XX, elementwise, heavy)  \
    CUDA_TYPED(XX, elementwise, compare) \
    XX(elementwise, compare_bool)        \
    XX(elementwise, cast)                \
    XX(elementwise, fill)                \
    XX(elementwise, generate)            \
    XX(move, copy)                       \
    XX(move, transpose_1)                \
    XX(move, transpose_2)                \
    XX(move, transpose_4)                \
    XX(move, transpose_8)                \
    XX(move, transpose_16)               \
    CUDA_TYPED(XX, move, fold)           \
    XX(move, checksum)                   \
    XX(move, spin)                       \
    XX(move, trap)                       \
    XX(move, illegal)                    \
    CUDA_TYPED(XX, reduce, rows)         \
    CUDA_TYPED(XX, reduce, columns)      \
    CUDA_TYPED(XX, reduce, arg_rows)     \
    CUDA_TYPED(XX, reduce, arg_columns)  \
    XX(reduce, join_f64)                 \
    XX(reduce, join_i64)                 \
    XX(reduce, arg_join_f64)             \
    XX(reduce, arg_join_i64)             \
    XX(linalg, product_i32)              \
    XX(linalg, product_i64)              \
    CUDA_TYPED(XX, linalg, distance)     \
    CUDA_FLOATS(XX, linalg, norms)       \
    CUDA_FLOATS(XX, linalg, add_norms)   \
    CUDA_TYPED(XX, neighbours, topk)     \
    CUDA_TYPED(XX, neighbours, merge)    \
    XX(neighbours, vote)

enum cuda_module {
#define XX(name) CUDA_MODULE_##name,
    CUDA_MODULES(XX)
#undef XX
        CUDA_MODULE_COUNT
};
enum cuda_kernel {
#define XX(module, name) CUDA_##name,
    CUDA_KERNELS(XX)
#undef XX
        CUDA_KERNEL_COUNT
};

/*
 * The cuBLAS functions that are used, as the library declares them but for the names of types: its headers are not needed,
 * and its library is the one that device/ has loaded. The result is a cublasStatus_t, 0 for success.
 */
typedef int (*cuda_sgemm_fn)(void *handle, int trans_a, int trans_b, int m, int n, int k,
                             const float *alpha, const float *a, int lda, const float *b,
                             int ldb, const float *beta, float *c, int ldc);
typedef int (*cuda_dgemm_fn)(void *handle, int trans_a, int trans_b, int m, int n, int k,
                             const double *alpha, const double *a, int lda, const double *b,
                             int ldb, const double *beta, double *c, int ldc);
typedef int (*cuda_sgemv_fn)(void *handle, int trans, int m, int n, const float *alpha,
                             const float *a, int lda, const float *x, int incx,
                             const float *beta, float *y, int incy);
typedef int (*cuda_dgemv_fn)(void *handle, int trans, int m, int n, const double *alpha,
                             const double *a, int lda, const double *x, int incx,
                             const double *beta, double *y, int incy);

struct kernel_cuda {
    /* Constant after kernel_cuda_create(). */
    struct device *device;
    uint32_t multiprocessors;
    struct device_module *module[CUDA_MODULE_COUNT];
    void *kernel[CUDA_KERNEL_COUNT];
    cuda_sgemm_fn sgemm; /* all NULL when cuBLAS is missing */
    cuda_dgemm_fn dgemm;
    cuda_sgemv_fn sgemv;
    cuda_dgemv_fn dgemv;

    struct pl_mutex
        blas_lock; /* rank PL_RANK_KERNELS; one thread at a time uses the handle */
};

struct cuda_call {
    struct kernel_cuda *cuda;
    struct device_stream *stream;
    const struct kernel_function *function;
    const struct kernel_arg *args;
    uint32_t arg_count;
    const union kernel_scalar *scalars;
    struct device_ptr scratch;
    int op; /* as in kernel_cpu_table */
    struct pl_err *err;
};

/* ---- tools, in cuda_run.c */

/* f32 0, f64 1, i32 2, i64 3; only for those. */
uint32_t cuda_type_index(uint32_t dtype);
plasmon_status_t cuda_launch(const struct cuda_call *call, uint32_t kernel, int64_t blocks,
                             uint32_t threads_x, uint32_t threads_y,
                             void *params) PL_MUST_CHECK;
/* Blocks of 256 threads for `items` units of work, bounded: kernels loop. */
int64_t cuda_blocks(const struct cuda_call *call, int64_t items);
/* The merged walk as kernels take it. element_bytes: of all arrays alike, 0 when they differ. */
struct cuda_walk cuda_walk_of(struct kernel_walk *walk, uint32_t element_bytes);
uint64_t cuda_scalar_f64(uint32_t dtype, double value);
/* y = x, equal shapes, any strides; y's and x's memory do not overlap. */
plasmon_status_t cuda_copy(const struct cuda_call *call, const struct kernel_arg *y,
                           const struct kernel_arg *x) PL_MUST_CHECK;

/* ---- variants, a group a file */

#define CUDA_FUNCTIONS(XX) \
    XX(fill_f64)           \
    XX(fill_i64)           \
    XX(cast)               \
    XX(generate)           \
    XX(unary)              \
    XX(scalar)             \
    XX(logical)            \
    XX(binary)             \
    XX(compare)            \
    XX(into)               \
    XX(fold)               \
    XX(reduce)             \
    XX(arg_reduce)         \
    XX(dot)                \
    XX(gemv)               \
    XX(gemm)               \
    XX(pairwise)           \
    XX(move)               \
    XX(transpose)          \
    XX(permute)            \
    XX(concatenate)        \
    XX(topk_min)           \
    XX(topk_merge)         \
    XX(vote)               \
    XX(checksum)           \
    XX(spin)               \
    XX(fail)               \
    XX(illegal)
#define XX(name) plasmon_status_t cuda_##name(const struct cuda_call *call);
CUDA_FUNCTIONS(XX)
#undef XX

#define CUDA_SCRATCH_FUNCTIONS(XX) \
    XX(fold)                       \
    XX(reduce)                     \
    XX(arg_reduce)                 \
    XX(dot)                        \
    XX(gemv)                       \
    XX(gemm)                       \
    XX(pairwise)
#define XX(name)                                                                      \
    uint64_t cuda_##name##_scratch(const struct kernel_function *function,            \
                                   const struct kernel_arg *args, uint32_t arg_count, \
                                   const union kernel_scalar *scalars);
CUDA_SCRATCH_FUNCTIONS(XX)
#undef XX

#endif
