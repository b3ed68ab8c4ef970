/*
 * CUDA kernels of singular values and eigenvalues, in the order in which cuda_jacobi.c launches
 * them; the method is in cuda_jacobi.cuh.
 */
#include "kernels/cuda_jacobi.cuh"

#define JACOBI_KERNELS(T, suffix)                 \
    KERNEL(jacobi_measure_##suffix, cuda_jacobi)  \
    {                                             \
        jacobi_measure<T>(p);                     \
    }                                             \
    KERNEL(jacobi_load_##suffix, cuda_jacobi)     \
    {                                             \
        jacobi_load<T>(p);                        \
    }                                             \
    KERNEL(jacobi_sweeps_##suffix, cuda_jacobi)   \
    {                                             \
        jacobi_sweeps<T>(p);                      \
    }                                             \
    KERNEL(jacobi_values_##suffix, cuda_jacobi)   \
    {                                             \
        jacobi_values<T>(p);                      \
    }                                             \
    KERNEL(jacobi_complete_##suffix, cuda_jacobi) \
    {                                             \
        __shared__ double score[256];             \
        __shared__ int64_t row[256];              \
                                                  \
        jacobi_complete<T>(p, score, row);        \
    }                                             \
    KERNEL(jacobi_store_##suffix, cuda_jacobi)    \
    {                                             \
        jacobi_store<T>(p);                       \
    }
JACOBI_KERNELS(float, f32)
JACOBI_KERNELS(double, f64)

KERNEL(jacobi_ranks, cuda_jacobi)
{
    jacobi_ranks(p);
}
