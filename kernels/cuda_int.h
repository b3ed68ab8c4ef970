/*
 * The host side of the CUDA variants: what their files share.
 *
 * A variant is a function that works out the parameters of one or a few kernels and launches them
 * on the call's stream. It allocates nothing and never waits. Scratch comes with the call.
 */
#ifndef KERNELS_CUDA_INT_H
#define KERNELS_CUDA_INT_H

#include "base/lock.h"
#include "kernels/cuda_failures.h"
#include "kernels/cuda_params.h"
#include "kernels/cuda_plans.h"
#include "kernels/kernel_int.h"
#include "kernels/cpu.h" /* the scratch of products is the same */
#include "kernels/walk.h"

#define CUDA_MODULES(XX)    \
    XX(elementwise)         \
    XX(elementwise_half)    \
    XX(elementwise_complex) \
    XX(convert)             \
    XX(move)                \
    XX(reduce)              \
    XX(reduce_more)         \
    XX(scan)                \
    XX(norm)                \
    XX(sort)                \
    XX(select)              \
    XX(matrix)              \
    XX(jacobi)              \
    XX(linalg)              \
    XX(neighbours)

/*
 * The element types of the kernels that are made for several, so that a kernel for a dtype is found
 * by adding: the order is that of cuda_type_index(), of cuda_float_index() for FLOATS and INEXACT.
 */
#define CUDA_TYPED(XX, module, name) \
    XX(module, name##_f32)           \
    XX(module, name##_f64)           \
    XX(module, name##_i32)           \
    XX(module, name##_i64)
#define CUDA_HALVES(XX, module, name) \
    XX(module, name##_f16)            \
    XX(module, name##_bf16)
#define CUDA_COMPLEX(XX, module, name) \
    XX(module, name##_c64)             \
    XX(module, name##_c128)
#define CUDA_SINGLES(XX, module, name) \
    XX(module, name##_f32)             \
    XX(module, name##_f64)
/* i32 i64 and all floats, in their modules; then complex numbers, too. */
#define CUDA_REALS(XX, module, half, name) \
    CUDA_TYPED(XX, module, name)           \
    CUDA_HALVES(XX, half, name)
#define CUDA_NUMBERS(XX, module, half, complex, name) \
    CUDA_REALS(XX, module, half, name)                \
    CUDA_COMPLEX(XX, complex, name)
#define CUDA_FLOATS(XX, module, half, name) \
    CUDA_SINGLES(XX, module, name)          \
    CUDA_HALVES(XX, half, name)
#define CUDA_INEXACT(XX, module, half, complex, name) \
    CUDA_FLOATS(XX, module, half, name)               \
    CUDA_COMPLEX(XX, complex, name)

#define CUDA_KERNELS(XX)                                                          \
    CUDA_NUMBERS(XX, elementwise, elementwise_half, elementwise_complex, unary)   \
    CUDA_NUMBERS(XX, elementwise, elementwise_half, elementwise_complex, binary)  \
    CUDA_REALS(XX, elementwise, elementwise_half, power)                          \
    CUDA_INEXACT(XX, elementwise, elementwise_half, elementwise_complex, heavy)   \
    CUDA_NUMBERS(XX, elementwise, elementwise_half, elementwise_complex, compare) \
    XX(elementwise, compare_bool)                                                 \
    CUDA_COMPLEX(XX, elementwise_complex, part)                                   \
    XX(convert, cast)                                                             \
    XX(convert, fill)                                                             \
    XX(convert, generate)                                                         \
    XX(move, copy)                                                                \
    XX(move, parts)                                                               \
    XX(move, transpose_1)                                                         \
    XX(move, transpose_2)                                                         \
    XX(move, transpose_4)                                                         \
    XX(move, transpose_8)                                                         \
    XX(move, transpose_16)                                                        \
    CUDA_NUMBERS(XX, move, move, move, fold)                                      \
    XX(move, checksum)                                                            \
    XX(move, spin)                                                                \
    XX(move, trap)                                                                \
    XX(move, illegal)                                                             \
    CUDA_NUMBERS(XX, reduce, reduce_more, reduce_more, rows)                      \
    CUDA_NUMBERS(XX, reduce, reduce_more, reduce_more, columns)                   \
    CUDA_REALS(XX, reduce, reduce_more, arg_rows)                                 \
    CUDA_REALS(XX, reduce, reduce_more, arg_columns)                              \
    XX(reduce, join_f64)                                                          \
    XX(reduce, join_i64)                                                          \
    XX(reduce_more, join_c128)                                                    \
    XX(reduce, arg_join_f64)                                                      \
    XX(reduce, arg_join_i64)                                                      \
    CUDA_NUMBERS(XX, scan, scan, scan, scan_rows)                                 \
    CUDA_NUMBERS(XX, scan, scan, scan, scan_columns)                              \
    XX(scan, carry_f64)                                                           \
    XX(scan, carry_i64)                                                           \
    XX(scan, carry_c128)                                                          \
    CUDA_INEXACT(XX, norm, norm, norm, norm_rows)                                 \
    CUDA_INEXACT(XX, norm, norm, norm, norm_columns)                              \
    XX(norm, norm_join_f64)                                                       \
    CUDA_FLOATS(XX, norm, norm, exps_rows)                                        \
    CUDA_FLOATS(XX, norm, norm, exps_columns)                                     \
    XX(norm, exps_join_f64)                                                       \
    CUDA_FLOATS(XX, norm, norm, softmax_rows)                                     \
    CUDA_FLOATS(XX, norm, norm, softmax_apply)                                    \
    XX(sort, sort_short_u32)                                                      \
    XX(sort, sort_short_u64)                                                      \
    XX(sort, sort_keys_u32)                                                       \
    XX(sort, sort_keys_u64)                                                       \
    XX(sort, sort_count_u32)                                                      \
    XX(sort, sort_count_u64)                                                      \
    XX(sort, sort_move_u32)                                                       \
    XX(sort, sort_move_u64)                                                       \
    XX(sort, sort_offsets)                                                        \
    XX(sort, sort_fetch)                                                          \
    XX(select, where)                                                             \
    XX(select, spmv_i32_f32)                                                      \
    XX(select, spmv_i32_f64)                                                      \
    XX(select, spmv_i64_f32)                                                      \
    XX(select, spmv_i64_f64)                                                      \
    CUDA_SINGLES(XX, matrix, lower)                                               \
    CUDA_SINGLES(XX, matrix, factor_diagonal)                                     \
    CUDA_SINGLES(XX, matrix, check_diagonal)                                      \
    CUDA_SINGLES(XX, matrix, upper)                                               \
    CUDA_SINGLES(XX, matrix, pivots_product)                                      \
    CUDA_SINGLES(XX, jacobi, jacobi_measure)                                      \
    CUDA_SINGLES(XX, jacobi, jacobi_load)                                         \
    CUDA_SINGLES(XX, jacobi, jacobi_sweeps)                                       \
    CUDA_SINGLES(XX, jacobi, jacobi_values)                                       \
    CUDA_SINGLES(XX, jacobi, jacobi_complete)                                     \
    CUDA_SINGLES(XX, jacobi, jacobi_store)                                        \
    XX(jacobi, jacobi_ranks)                                                      \
    XX(select, report)                                                            \
    XX(linalg, product_i32)                                                       \
    XX(linalg, product_i64)                                                       \
    CUDA_TYPED(XX, linalg, distance)                                              \
    CUDA_SINGLES(XX, linalg, norms)                                               \
    CUDA_SINGLES(XX, linalg, add_norms)                                           \
    CUDA_TYPED(XX, neighbours, topk)                                              \
    CUDA_TYPED(XX, neighbours, merge)                                             \
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
 * The cuBLAS functions that are used, as the library declares them but for the names of types: its
 * headers are not needed, and its library is the one that device/ has loaded. The result is a
 * cublasStatus_t, 0 for success.
 */
typedef int (*cuda_sgemm_fn)(void *handle, int trans_a, int trans_b, int m, int n, int k,
                             const float *alpha, const float *a, int lda, const float *b,
                             int ldb, const float *beta, float *c, int ldc);
typedef int (*cuda_dgemm_fn)(void *handle, int trans_a, int trans_b, int m, int n, int k,
                             const double *alpha, const double *a, int lda, const double *b,
                             int ldb, const double *beta, double *c, int ldc);
/* Any of the inexact types; types are of cudaDataType_t, `compute` of cublasComputeType_t. */
typedef int (*cuda_gemm_batched_fn)(void *handle, int trans_a, int trans_b, int m, int n,
                                    int k, const void *alpha, const void *a, int type_a,
                                    int lda, long long stride_a, const void *b, int type_b,
                                    int ldb, long long stride_b, const void *beta, void *c,
                                    int type_c, int ldc, long long stride_c, int batch,
                                    int compute, int algorithm);
typedef int (*cuda_sgemv_fn)(void *handle, int trans, int m, int n, const float *alpha,
                             const float *a, int lda, const float *x, int incx,
                             const float *beta, float *y, int incy);
typedef int (*cuda_dgemv_fn)(void *handle, int trans, int m, int n, const double *alpha,
                             const double *a, int lda, const double *x, int incx,
                             const double *beta, double *y, int incy);

typedef int (*cuda_strsm_fn)(void *handle, int side, int uplo, int trans, int unit, int m,
                             int n, const float *alpha, const float *a, int lda, float *b,
                             int ldb);
typedef int (*cuda_dtrsm_fn)(void *handle, int side, int uplo, int trans, int unit, int m,
                             int n, const double *alpha, const double *a, int lda,
                             double *b, int ldb);
typedef int (*cuda_ssyrk_fn)(void *handle, int uplo, int trans, int n, int k,
                             const float *alpha, const float *a, int lda, const float *beta,
                             float *c, int ldc);
typedef int (*cuda_dsyrk_fn)(void *handle, int uplo, int trans, int n, int k,
                             const double *alpha, const double *a, int lda,
                             const double *beta, double *c, int ldc);

struct kernel_cuda {
    /* Constant after kernel_cuda_create(). */
    struct device *device;
    uint32_t multiprocessors;
    struct device_module *module[CUDA_MODULE_COUNT];
    void *kernel[CUDA_KERNEL_COUNT];
    bool soon[CUDA_KERNEL_COUNT]; /* device_launch_soon() takes it */
    cuda_sgemm_fn sgemm;          /* all NULL when cuBLAS is missing */
    cuda_dgemm_fn dgemm;
    cuda_gemm_batched_fn gemm_batched;
    cuda_strsm_fn strsm;
    cuda_dtrsm_fn dtrsm;
    cuda_ssyrk_fn ssyrk;
    cuda_dsyrk_fn dsyrk;
    cuda_sgemv_fn sgemv;
    cuda_dgemv_fn dgemv;

    struct cuda_failures failures; /* read by one thread at a time: see there */
    struct cuda_plans plans;       /* likewise */

    /* rank PL_RANK_KERNELS; one thread at a time uses a library's handle */
    struct pl_mutex blas_lock;
};

struct cuda_call {
    struct kernel_cuda *cuda;
    struct device_stream *stream;
    const struct kernel_function *function;
    const struct kernel_arg *args;
    uint32_t arg_count;
    const union kernel_scalar *scalars;
    struct device_ptr scratch;
    uint64_t tag; /* names the launch in failures */
    bool kept;    /* its kernels may go in together with others' (device_launch_soon()) */
    int op;       /* as in kernel_cpu_table */
    struct pl_err *err;
};

/* ---- tools, in cuda_run.c */
/*
 * Before cuBLAS is called. Starts one that is pending, which kernel_cuda_prepare() has done where
 * it can do so without blocking.
 */
void cuda_blas_need(struct kernel_cuda *cuda);

/* f32 0, f64 1, i32 2, i64 3, f16 4, bf16 5, c64 6, c128 7; only for those. */
uint32_t cuda_type_index(uint32_t dtype);
/* f32 0, f64 1, f16 2, bf16 3, c64 4, c128 5; only for those. */
uint32_t cuda_float_index(uint32_t dtype);
/* params: the kernel's one argument; bytes: of it. */
plasmon_status_t cuda_launch_sized(const struct cuda_call *call, uint32_t kernel,
                                   int64_t blocks, uint32_t threads_x, uint32_t threads_y,
                                   void *params, size_t bytes) PL_MUST_CHECK;
#define cuda_launch(call, kernel, blocks, threads_x, threads_y, params) \
    cuda_launch_sized(call, kernel, blocks, threads_x, threads_y, params, sizeof(*(params)))
/* Blocks of 256 threads for `items` units of work, bounded: kernels loop. */
int64_t cuda_blocks(const struct cuda_call *call, int64_t items);
/* The merged walk as kernels take it. element_bytes: of all arrays alike, 0 when they differ. */
struct cuda_walk cuda_walk_of(struct kernel_walk *walk, uint32_t element_bytes);
/* The bits of one number of that dtype. */
void cuda_scalar_bits(uint32_t dtype, double value, uint64_t out[2]);
uint64_t cuda_scalar_f64(uint32_t dtype, double value); /* of up to 8 bytes */
/* y = x, equal shapes, any strides, any dtypes. */
plasmon_status_t cuda_convert(const struct cuda_call *call, const struct kernel_arg *y,
                              const struct kernel_arg *x) PL_MUST_CHECK;
/* y = x, equal shapes, any strides; y's and x's memory do not overlap. */
plasmon_status_t cuda_copy(const struct cuda_call *call, const struct kernel_arg *y,
                           const struct kernel_arg *x) PL_MUST_CHECK;

struct kernel_batch;
/*
 * c[i] = alpha a[i] b[i] + beta c[i] by cuBLAS; all matrices have a layout, c's rows are dense. In
 * cuda_linalg.c.
 */
plasmon_status_t cuda_products(const struct cuda_call *call, uint32_t dtype, double alpha,
                               const struct kernel_batch *a, const struct kernel_batch *b,
                               double beta, const struct kernel_batch *c) PL_MUST_CHECK;

/* ---- variants, a group a file */

#define CUDA_FUNCTIONS(XX) \
    XX(fill_f64)           \
    XX(fill_i64)           \
    XX(cast)               \
    XX(generate)           \
    XX(unary)              \
    XX(part)               \
    XX(scalar)             \
    XX(logical)            \
    XX(binary)             \
    XX(compare)            \
    XX(into)               \
    XX(fold)               \
    XX(combine)            \
    XX(reduce)             \
    XX(norm)               \
    XX(softmax)            \
    XX(scan)               \
    XX(where)              \
    XX(sort)               \
    XX(spmv)               \
    XX(solve)              \
    XX(cholesky)           \
    XX(qr)                 \
    XX(svd)                \
    XX(eigh)               \
    XX(inverse)            \
    XX(determinant)        \
    XX(fft)                \
    XX(ifft)               \
    XX(gemm_batched)       \
    XX(einsum)             \
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
    XX(combine)                    \
    XX(reduce)                     \
    XX(arg_reduce)                 \
    XX(norm)                       \
    XX(softmax)                    \
    XX(scan)                       \
    XX(sort)                       \
    XX(spmv)                       \
    XX(solve)                      \
    XX(cholesky)                   \
    XX(svd)                        \
    XX(eigh)                       \
    XX(gemm_batched)               \
    XX(einsum)                     \
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

/*
 * Of functions that want a plan (cuda_plans.h): is it at hand; make it; all the scratch of the
 * call, which depends on it.
 */
#define CUDA_PLANNED_FUNCTIONS(XX) \
    XX(fft)                        \
    XX(solver)
#define XX(name)                                                                  \
    plasmon_status_t cuda_##name##_look(const struct cuda_call *call, bool keep); \
    plasmon_status_t cuda_##name##_make(const struct cuda_call *call);            \
    uint64_t cuda_##name##_work(const struct cuda_call *call);
CUDA_PLANNED_FUNCTIONS(XX)
#undef XX

#endif
