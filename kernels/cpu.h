/*
 * What the files of the CPU variants share: tools, and the functions that the table names.
 */
#ifndef KERNELS_CPU_H
#define KERNELS_CPU_H

#include "kernels/kernel_int.h"
#include "kernels/matrix.h"
#include "kernels/walk.h"

/*
 * The loops below touch each element once and alias only element by element (y may be a), so they
 * may be vectorised.
 */
#if defined(__clang__)
#define CPU_VECTORISE _Pragma("clang loop vectorize(assume_safety)")
#else
#define CPU_VECTORISE _Pragma("GCC ivdep")
#endif

/* Host address of an argument; on CPU devices device addresses are host addresses. */
static inline char *cpu_data(const struct kernel_arg *arg)
{
    return (char *)(uintptr_t)arg->data.addr; // NOLINT: an address by contract
}

/* y = x element by element, any strides, elements of `bytes` bytes; the shapes are equal. */
void cpu_copy(const struct kernel_arg *y, const struct kernel_arg *x);

/* The same from any dtype to any other, as cast does. */
void cpu_convert(const struct kernel_arg *y, const struct kernel_arg *x);

/* elements that are converted at once: the buffers stay in the first cache */
#define CPU_BLOCK 256

/*
 * Up to CPU_BLOCK numbers of any dtype, `stride` bytes apart, as doubles and back. im may be NULL:
 * real numbers.
 */
void cpu_load_f64(uint32_t dtype, const char *x, int64_t stride, int64_t n, double *re,
                  double *im);
void cpu_store_f64(uint32_t dtype, const double *re, const double *im, int64_t n, char *y,
                   int64_t stride);

/* A lane is what lies along one axis: `length` elements, `step` bytes apart in each array. */
struct cpu_lane {
    char *y;
    char *x;
    int64_t y_step;
    int64_t x_step;
    int64_t length;
};
/* Calls fn for each lane of y and x, which have one shape. */
void cpu_each_lane(const struct kernel_arg *y, const struct kernel_arg *x, uint32_t axis,
                   void (*fn)(void *user, const struct cpu_lane *lane), void *user);

/* x = value everywhere. */
void cpu_fill(const struct kernel_arg *x, const union kernel_value *value);

/* ---- complex numbers, in cpu_complex.c; `s` holds one number of the dtype */

void cpu_complex_unary(uint32_t dtype, int op, const union kernel_value *s, char *y,
                       int64_t ys, char *x, int64_t as, int64_t n);
void cpu_complex_binary(uint32_t dtype, int op, const union kernel_value *s, char *y,
                        int64_t ys, char *a, int64_t as, char *b, int64_t bs, int64_t n);
void cpu_complex_compare(uint32_t dtype, int op, char *y, int64_t ys, char *a, int64_t as,
                         char *b, int64_t bs, int64_t n);
void cpu_complex_reduce(const struct kernel_arg *y, const struct kernel_arg *x,
                        int64_t axis, int op);
void cpu_complex_dot(const struct kernel_arg *c, const struct kernel_arg *x,
                     const struct kernel_arg *y);

/* ---- 16-bit floats, in cpu_half.c */

/* n numbers `stride` bytes apart to and from dense f32. */
void cpu_half_widen(uint32_t dtype, const char *x, int64_t stride, int64_t n, float *out);
void cpu_half_narrow(uint32_t dtype, const float *x, int64_t n, char *y, int64_t stride);

/* One group of functions a file. */
#define CPU_FUNCTIONS(XX) \
    XX(fill_f64)          \
    XX(fill_i64)          \
    XX(cast)              \
    XX(arange)            \
    XX(random)            \
    XX(unary)             \
    XX(part)              \
    XX(scalar)            \
    XX(logical)           \
    XX(binary)            \
    XX(compare)           \
    XX(into)              \
    XX(fold)              \
    XX(combine)           \
    XX(reduce)            \
    XX(norm)              \
    XX(softmax)           \
    XX(scan)              \
    XX(where)             \
    XX(sort)              \
    XX(solve)             \
    XX(cholesky)          \
    XX(qr)                \
    XX(svd)               \
    XX(eigh)              \
    XX(inverse)           \
    XX(determinant)       \
    XX(fft)               \
    XX(ifft)              \
    XX(spmv)              \
    XX(gemm_batched)      \
    XX(einsum)            \
    XX(arg_reduce)        \
    XX(dot)               \
    XX(gemv)              \
    XX(gemm)              \
    XX(pairwise)          \
    XX(move)              \
    XX(transpose)         \
    XX(permute)           \
    XX(concatenate)       \
    XX(topk_min)          \
    XX(topk_merge)        \
    XX(vote)              \
    XX(checksum)          \
    XX(spin)              \
    XX(fail)              \
    XX(illegal)
#define XX(name) \
    plasmon_status_t cpu_##name(const struct kernel_call *call, int op, struct pl_err *err);
CPU_FUNCTIONS(XX)
#undef XX

#define CPU_SCRATCH_FUNCTIONS(XX) \
    XX(gemv)                      \
    XX(gemm)                      \
    XX(pairwise)                  \
    XX(sort)                      \
    XX(solve)                     \
    XX(cholesky)                  \
    XX(qr)                        \
    XX(svd)                       \
    XX(eigh)                      \
    XX(lu)                        \
    XX(fft)                       \
    XX(ifft)                      \
    XX(gemm_batched)              \
    XX(einsum)
#define XX(name)                                                                     \
    uint64_t cpu_##name##_scratch(const struct kernel_function *function,            \
                                  const struct kernel_arg *args, uint32_t arg_count, \
                                  const union kernel_scalar *scalars);
CPU_SCRATCH_FUNCTIONS(XX)
#undef XX

/* ---- products, in cpu_linalg.c */

/* c = alpha a b + beta c in any layout and dtype. `scratch` has what cpu_product_bytes() says. */
plasmon_status_t cpu_product(const struct kernel_call *call, uint32_t dtype, double alpha,
                             const struct kernel_matrix *a, const struct kernel_matrix *b,
                             double beta, const struct kernel_matrix *c, uint64_t scratch,
                             struct pl_err *err) PL_MUST_CHECK;
uint64_t cpu_product_bytes(uint32_t dtype, const struct kernel_matrix *a,
                           const struct kernel_matrix *b, const struct kernel_matrix *c);

#endif
