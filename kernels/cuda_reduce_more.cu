/*
 * CUDA variants of the reductions and of dot for 16-bit floats and complex numbers; see
 * cuda_reduce.cuh. The segments of 16-bit floats are joined by the kernels of f64.
 */
#include "kernels/cuda_sum.cuh"

REDUCE_KERNELS(, f16, reduction<half_f16>)
REDUCE_KERNELS(, bf16, reduction<half_bf16>)
REDUCE_KERNELS(, c64, reduction<kernel_c64>)
REDUCE_KERNELS(, c128, reduction<kernel_c128>)
REDUCE_KERNELS(arg_, f16, arg_reduction<half_f16>)
REDUCE_KERNELS(arg_, bf16, arg_reduction<half_bf16>)
JOIN_KERNEL(, c128, reduction<kernel_c128>)
