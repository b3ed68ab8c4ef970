/*
 * Shape rules: for each function, which shapes fit together and what the outputs look like. Pure
 * functions of shapes and scalars, so client and worker agree. kernel_check() has already checked
 * arity, modes and the dtype set of each argument when a rule runs; a rule checks what arguments
 * say about each other.
 *
 * Every message names the function, the argument, what was given and what would fit.
 */
#ifndef KERNELS_SHAPE_RULES_H
#define KERNELS_SHAPE_RULES_H

#include "kernels/kernels.h"

typedef plasmon_status_t (*kernel_rule_fn)(const struct kernel_function *self,
                                           struct kernel_arg_shape *args,
                                           uint32_t arg_count,
                                           const union kernel_scalar *scalars,
                                           uint32_t scalar_count, struct pl_err *err);

#define KERNEL_RULES(XX)                                              \
    XX(none)       /* nothing to check: no outputs */                 \
    XX(stated)     /* the caller states the output */                 \
    XX(like)       /* y as x */                                       \
    XX(part)       /* y is real, of x's shape */                      \
    XX(cast)       /* y has x's shape, the caller states the dtype */ \
    XX(logical)    /* y is bool of x's shape */                       \
    XX(binary)     /* y is a and b broadcast */                       \
    XX(compare)    /* the same, bool */                               \
    XX(into)       /* x broadcasts to y */                            \
    XX(fold)       /* every x is like y; op is a kernel_reduce_op */  \
    XX(combine)    /* the same; y is like x[0] */                     \
    XX(reduce)     /* x without the axis */                           \
    XX(mean)       /* the same, f64 for integers */                   \
    XX(arg_reduce) /* the same, i64 */                                \
    XX(norm)       /* the same, real */                               \
    XX(softmax)    /* like x; an axis, or all */                      \
    XX(scan)       /* like x; an axis */                              \
    XX(sort)                                                          \
    XX(argsort)                                                       \
    XX(sort_into)                                                     \
    XX(where)                                                         \
    XX(dot)                                                           \
    XX(gemv)                                                          \
    XX(gemm)                                                          \
    XX(gemm_batched)                                                  \
    XX(einsum)                                                        \
    XX(solve)                                                         \
    XX(square)                                                        \
    XX(determinant)                                                   \
    XX(qr)                                                            \
    XX(svd)                                                           \
    XX(eigh)                                                          \
    XX(fft)                                                           \
    XX(rfft)                                                          \
    XX(irfft)                                                         \
    XX(spmv)                                                          \
    XX(gemm_into)                                                     \
    XX(transpose)                                                     \
    XX(permute)                                                       \
    XX(concatenate)                                                   \
    XX(pairwise)                                                      \
    XX(topk_min)                                                      \
    XX(topk_merge)                                                    \
    XX(vote)                                                          \
    XX(checksum) /* u64[] */

#define XX(name)                                                                           \
    plasmon_status_t kernel_rule_##name(const struct kernel_function *self,                \
                                        struct kernel_arg_shape *args, uint32_t arg_count, \
                                        const union kernel_scalar *scalars,                \
                                        uint32_t scalar_count, struct pl_err *err);
KERNEL_RULES(XX)
#undef XX

#endif
