/*
 * What the shape rules share. kernel_rule_same_dtype() and kernel_rule_needs_..() refuse;
 * kernel_rule_output() fills in an output's shape, or compares it with the one the caller stated.
 * Output sizes cannot overflow here: every dimension is at most 2^48 (pl_shape_check), sums of them
 * fit, and products are checked by kernel_check() afterwards.
 */
#ifndef KERNELS_SHAPE_RULES_INT_H
#define KERNELS_SHAPE_RULES_INT_H

#include "kernels/kernel_list.h"
#include "kernels/shape_rules.h"

#define RULE(name)                                                                         \
    plasmon_status_t kernel_rule_##name(const struct kernel_function *self,                \
                                        struct kernel_arg_shape *args, uint32_t arg_count, \
                                        const union kernel_scalar *scalars,                \
                                        uint32_t scalar_count, struct pl_err *err)

/* Most rules look at some of what they get. */
#define RULE_UNUSED()       \
    do {                    \
        (void)self;         \
        (void)args;         \
        (void)arg_count;    \
        (void)scalars;      \
        (void)scalar_count; \
        (void)err;          \
    } while (0)

/* "gemm: b is f32[5,4]", for the start of a message. */
struct rule_text {
    char text[256];
};
/*
 * What adds into an array adds: another operation of its REDUCE argument has no meaning,
 * accumulate's alone.
 */
plasmon_status_t rule_needs_sum(const struct kernel_function *self,
                                const struct kernel_arg_shape *args, uint32_t index,
                                struct pl_err *err);
struct rule_text rule_is(const struct kernel_function *self,
                         const struct kernel_arg_shape *args, uint32_t index);
plasmon_status_t rule_same_dtype(const struct kernel_function *self,
                                 const struct kernel_arg_shape *args, uint32_t a,
                                 uint32_t b, struct pl_err *err);
plasmon_status_t rule_needs_ndim(const struct kernel_function *self,
                                 const struct kernel_arg_shape *args, uint32_t index,
                                 uint32_t ndim, struct pl_err *err);
/* Dimension `dim` of `index` must be `want`, as `to_match` says; `what` is "rows", "columns", "elements". */
plasmon_status_t rule_needs_length(const struct kernel_function *self,
                                   const struct kernel_arg_shape *args, uint32_t index,
                                   uint32_t dim, int64_t want, const char *what,
                                   uint32_t to_match, struct pl_err *err);
/* The output is `want`: fill it in, or check what the caller stated. */
plasmon_status_t rule_output(const struct kernel_function *self,
                             struct kernel_arg_shape *args, uint32_t index,
                             const struct pl_shape *want, struct pl_err *err);
plasmon_status_t rule_needs_broadcast(const struct kernel_function *self,
                                      const struct kernel_arg_shape *args, uint32_t a,
                                      uint32_t b, struct pl_shape *out, struct pl_err *err);
/* Shape of a reduction of args[1] by the scalars axis and keepdims; dtype as x. */
plasmon_status_t rule_reduced(const struct kernel_function *self,
                              const struct kernel_arg_shape *args,
                              const union kernel_scalar *scalars, struct pl_shape *out,
                              struct pl_err *err);
uint32_t rule_real_of(uint32_t dtype); /* of the parts of a complex number */
struct pl_shape rule_shape_1d(uint32_t dtype, int64_t n);
struct pl_shape rule_shape_2d(uint32_t dtype, int64_t m, int64_t n);

#endif
