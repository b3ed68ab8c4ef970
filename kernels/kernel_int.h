/*
 * Inside kernels: a call as the variants see it, and the two tables of variants.
 */
#ifndef KERNELS_KERNEL_INT_H
#define KERNELS_KERNEL_INT_H

#include "kernels/element_ops.h"
#include "kernels/kernel_list.h"
#include "kernels/kernels.h"

static inline enum kernel_id kernel_id_of(const struct kernel_function *function)
{
    return (enum kernel_id)(function - kernel_at(0));
}

/*
 * One call, complete in itself: it is copied to the stream's thread of a CPU device. `arg` follows the struct
 * (kernel_call_arg), so that a call with few arguments is small.
 */
struct kernel_call {
    const struct kernel_function *function;
    uint32_t arg_count;
    uint32_t scalar_count;
    union kernel_scalar scalar[KERNEL_SCALARS_MAX];
    struct device_ptr scratch;
    uint64_t scratch_bytes;
};

static inline const struct kernel_arg *kernel_call_arg(const struct kernel_call *call,
                                                       uint32_t index)
{
    return (const struct kernel_arg *)(const void *)(call + 1) + index;
}

int64_t kernel_arg_elements(const struct kernel_arg *arg);
/* Row-major without gaps. */
bool kernel_arg_dense(const struct kernel_arg *arg);
/* Of a dense copy of an input of a Fourier transform. */
uint64_t kernel_fft_copy_bytes(const struct kernel_arg *x);
/* The last two dimensions swapped. */
struct kernel_arg kernel_arg_transposed(const struct kernel_arg *x);
/* Dimension i is x's dimension scalars[i]. */
struct kernel_arg kernel_arg_permuted(const struct kernel_arg *x,
                                      const union kernel_scalar *scalars);
/* The part of y that x fills when it is put at `start` along the axis. */
struct kernel_arg kernel_arg_slab(const struct kernel_arg *y, uint32_t axis, int64_t start,
                                  const struct kernel_arg *x);
/* A dense array of x's shape at `data`. */
struct kernel_arg kernel_arg_compact(const struct kernel_arg *x, struct device_ptr data);
/* Of x, only the dimensions that a reduction takes away (axis -1: all). */
struct kernel_arg kernel_arg_reduced(const struct kernel_arg *x, int64_t axis);

/* 16 bits. */
static inline bool kernel_is_half(uint32_t dtype)
{
    return dtype == PL_F16 || dtype == PL_BF16;
}
/* 32 and 64 bits. */
static inline bool kernel_is_single(uint32_t dtype)
{
    return dtype == PL_F32 || dtype == PL_F64;
}
static inline bool kernel_is_real_float(uint32_t dtype)
{
    return kernel_is_half(dtype) || kernel_is_single(dtype);
}
static inline bool kernel_is_complex(uint32_t dtype)
{
    return dtype == PL_C64 || dtype == PL_C128;
}
static inline bool kernel_is_integer(uint32_t dtype)
{
    return !kernel_is_real_float(dtype) && !kernel_is_complex(dtype);
}

/* The elementwise operation that joins two values under a reduction; -1: no such reduction. */
static inline int kernel_op_of_reduce(int64_t reduce_op)
{
    switch (reduce_op) {
    case KERNEL_SUM:
        return KERNEL_OP_ADD;
    case KERNEL_PROD:
        return KERNEL_OP_MULTIPLY;
    case KERNEL_MIN:
        return KERNEL_OP_MINIMUM;
    case KERNEL_MAX:
        return KERNEL_OP_MAXIMUM;
    default:
        return -1;
    }
}

/* The reduction that makes the norm of order p (1, 2 or infinity); -1: there is none. */
static inline int kernel_norm_op(double p)
{
    return p == 1                ? KERNEL_REDUCTION_NORM_1
           : p == 2              ? KERNEL_REDUCTION_NORM_2
           : p > 0 && p - p != 0 ? KERNEL_REDUCTION_NORM_INF
                                 : -1;
}

/* A scalar in the bits of a dtype: how fill, add_scalar and the like see a double. */
union kernel_value {
    float f32;
    double f64;
    int32_t i32;
    int64_t i64;
    double pair[2]; /* c128; c64 is two floats in the first eight bytes */
    uint8_t bytes[16];
};
union kernel_value kernel_value_of_f64(uint32_t dtype, double value);
union kernel_value kernel_value_of_i64(uint32_t dtype, int64_t value);
/* 0, 1 or the far end of the dtype; false for dtypes that have no reductions. */
bool kernel_identity(uint32_t dtype, uint32_t reduce_op, union kernel_value *out_value);

/* ---------------------------------------------------------------------------------- CPU */

typedef plasmon_status_t (*kernel_cpu_fn)(const struct kernel_call *call, int op,
                                          struct pl_err *err);
/* Bytes of scratch; NULL: none. */
typedef uint64_t (*kernel_cpu_scratch_fn)(const struct kernel_function *function,
                                          const struct kernel_arg *args, uint32_t arg_count,
                                          const union kernel_scalar *scalars);

struct kernel_cpu_variant {
    kernel_cpu_fn run; /* NULL: nothing to do, no launch */
    int op; /* of enum kernel_op or kernel_reduction: what tells variants of one function apart */
    kernel_cpu_scratch_fn scratch;
};
extern const struct kernel_cpu_variant kernel_cpu_table[KERNEL_ID_COUNT];

/* --------------------------------------------------------------------------------- CUDA */

struct kernel_cuda;
plasmon_status_t kernel_cuda_create(struct device *device, struct kernel_cuda **out_cuda,
                                    struct pl_err *err) PL_MUST_CHECK;
void kernel_cuda_destroy(struct kernel_cuda *cuda);
uint64_t kernel_cuda_scratch(struct kernel_cuda *cuda,
                             const struct kernel_function *function,
                             const struct kernel_arg *args, uint32_t arg_count,
                             const union kernel_scalar *scalars);
uint64_t kernel_cuda_operations(const struct kernel_function *function,
                                const struct kernel_arg *args, uint32_t arg_count,
                                const union kernel_scalar *scalars);
plasmon_status_t kernel_cuda_run(struct kernel_cuda *cuda, struct device_stream *stream,
                                 const struct kernel_function *function,
                                 const struct kernel_arg *args, uint32_t arg_count,
                                 const union kernel_scalar *scalars,
                                 struct device_ptr scratch, uint64_t scratch_bytes,
                                 uint64_t tag, struct pl_err *err) PL_MUST_CHECK;
plasmon_status_t kernel_cuda_prepared(struct kernel_cuda *cuda,
                                      const struct kernel_function *function,
                                      const struct kernel_arg *args, uint32_t arg_count,
                                      const union kernel_scalar *scalars, bool keep,
                                      struct pl_err *err) PL_MUST_CHECK;
plasmon_status_t kernel_cuda_prepare(struct kernel_cuda *cuda,
                                     const struct kernel_function *function,
                                     const struct kernel_arg *args, uint32_t arg_count,
                                     const union kernel_scalar *scalars,
                                     struct pl_err *err) PL_MUST_CHECK;
void kernel_cuda_release(struct kernel_cuda *cuda);
void kernel_cuda_set_marks(struct kernel_cuda *cuda, const struct kernel_marks *marks);
bool kernel_cuda_failure(struct kernel_cuda *cuda, uint64_t *out_tag,
                         struct pl_err *out_err);

#endif
