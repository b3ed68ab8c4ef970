/*
 * CUDA variants of the reductions and of dot for the floats and integers of 32 and 64 bits; see
 * cuda_reduce.cuh.
 */
#include "kernels/cuda_sum.cuh"

REDUCE_KERNELS(, f32, reduction<float>)
REDUCE_KERNELS(, f64, reduction<double>)
REDUCE_KERNELS(, i32, reduction<int32_t>)
REDUCE_KERNELS(, i64, reduction<int64_t>)
REDUCE_KERNELS(arg_, f32, arg_reduction<float>)
REDUCE_KERNELS(arg_, f64, arg_reduction<double>)
REDUCE_KERNELS(arg_, i32, arg_reduction<int32_t>)
REDUCE_KERNELS(arg_, i64, arg_reduction<int64_t>)

/* Segments are joined in the type that accumulates. */
JOIN_KERNEL(, f64, reduction<double>)
JOIN_KERNEL(, i64, reduction<int64_t>)
JOIN_KERNEL(arg_, f64, arg_reduction<double>)
JOIN_KERNEL(arg_, i64, arg_reduction<int64_t>)
