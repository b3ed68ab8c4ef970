/*
 * Tools of the CPU variants: walking strided arrays together.
 *
 * A walk holds up to CPU_WALK_MAX arrays of one (broadcast) shape. It drops dimensions of length 1 and merges neighbours
 * that are contiguous in every array, so a dense array becomes one long run whatever its shape, and calls an inner
 * function for each run of the last dimension. The order is C order, so `first`, the flat index of a run's first
 * element, grows by n from call to call.
 */
#ifndef KERNELS_CPU_H
#define KERNELS_CPU_H

#include "kernels/kernel_int.h"

#define CPU_WALK_MAX 3

/* The loops below touch each element once and alias only element by element (y may be a), so they may be vectorised. */
#if defined(__clang__)
#define CPU_VECTORISE _Pragma("clang loop vectorize(assume_safety)")
#else
#define CPU_VECTORISE _Pragma("GCC ivdep")
#endif

struct cpu_walk {
    uint32_t ndim;
    uint32_t count; /* of arrays */
    int64_t dim[PL_DIM_MAX];
    int64_t stride[CPU_WALK_MAX][PL_DIM_MAX]; /* bytes */
    char *base[CPU_WALK_MAX];
};

/* Element `first` in C order is at ptr[i] for array i, the next ones `stride[i]` bytes on. */
typedef void (*cpu_run_fn)(void *user, char *const ptr[], const int64_t stride[],
                           int64_t first, int64_t n);

/* Host address of an argument; on CPU devices device addresses are host addresses. */
static inline char *cpu_data(const struct kernel_arg *arg)
{
    return (char *)(uintptr_t)arg->data.addr; // NOLINT: an address by contract
}

/* The walk has the shape of `arg`, which is its first array. */
void cpu_walk_init(struct cpu_walk *walk, const struct kernel_arg *arg);
/* Another array, broadcast to the walk's shape. */
void cpu_walk_add(struct cpu_walk *walk, const struct kernel_arg *arg);
/* An array whose strides (bytes, per dimension of the walk) the caller works out. */
void cpu_walk_add_strides(struct cpu_walk *walk, char *base,
                          const int64_t stride[PL_DIM_MAX]);
/* Merges dimensions, then runs; a walk runs once. */
void cpu_walk_run(struct cpu_walk *walk, cpu_run_fn run, void *user);

/* y = x element by element, any strides, elements of `bytes` bytes; the shapes are equal. */
void cpu_copy(const struct kernel_arg *y, const struct kernel_arg *x);

/* A scalar in the bits of a dtype: how fill, add_scalar and the like see a double. */
union cpu_value {
    float f32;
    double f64;
    int32_t i32;
    int64_t i64;
    uint8_t bytes[8];
};
union cpu_value cpu_value_of_f64(uint32_t dtype, double value);
union cpu_value cpu_value_of_i64(uint32_t dtype, int64_t value);
/* 0, 1 or the far end of the dtype; false for dtypes that have no reductions. */
bool cpu_identity(uint32_t dtype, uint32_t reduce_op, union cpu_value *out_value);
/* x = value everywhere. */
void cpu_fill(const struct kernel_arg *x, const union cpu_value *value);

/* One group of functions a file. */
#define CPU_FUNCTIONS(XX) \
    XX(fill_f64)          \
    XX(fill_i64)          \
    XX(cast)              \
    XX(arange)            \
    XX(random)            \
    XX(unary)             \
    XX(scalar)            \
    XX(logical)           \
    XX(binary)            \
    XX(compare)           \
    XX(into)              \
    XX(fold)              \
    XX(reduce)            \
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

uint64_t cpu_gemv_scratch(const struct kernel_function *function,
                          const struct kernel_arg *args, uint32_t arg_count,
                          const union kernel_scalar *scalars);
uint64_t cpu_gemm_scratch(const struct kernel_function *function,
                          const struct kernel_arg *args, uint32_t arg_count,
                          const union kernel_scalar *scalars);
uint64_t cpu_pairwise_scratch(const struct kernel_function *function,
                              const struct kernel_arg *args, uint32_t arg_count,
                              const union kernel_scalar *scalars);

#endif
