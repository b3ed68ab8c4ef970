/*
 * What the host hands to the kernels of singular values and eigenvalues (cuda_jacobi.cu): see cuda_params.h.
 */
#ifndef KERNELS_CUDA_JACOBI_PARAMS_H
#define KERNELS_CUDA_JACOBI_PARAMS_H

#include "kernels/cuda_params.h"

#define CUDA_JACOBI_SWEEPS 30 /* at most, as in LAPACK's gesvj; 6 to 10 are usual */

/* Zeros at first, but for the two that are all bits set. */
struct cuda_jacobi_state {
    /* the first element, by rows, that is NaN or infinite; all bits set: none */
    uint64_t not_finite;
    uint64_t left;    /* pairs that the last sweep still rotated; all bits set: none */
    uint64_t largest; /* bits of the largest magnitude, or sum of a row's, as a double */
    uint64_t arrived; /* blocks, at barriers */
    uint64_t rotated[CUDA_JACOBI_SWEEPS]; /* pairs, by sweep */
};

/*
 * A matrix of m rows and n <= m columns whose columns are rotated. Strides in bytes, of rows and of
 * columns.
 */
struct cuda_jacobi {
    int64_t m;
    int64_t n;
    uint32_t symmetric; /* its lower triangle is read; eigenvalues are wanted */
    uint64_t a;
    int64_t stride[2];
    int64_t index_stride[2]; /* of the place that an error names */
    uint64_t state;
    uint64_t columns; /* m by n, by columns: what is rotated */
    uint64_t vectors; /* n by n, by columns: the rotations' product */
    uint64_t values;  /* n doubles */
    uint64_t ranks;   /* n int64 */
    uint64_t missing; /* n int32: the column is zero, so its direction is to be made up */
    uint64_t factors; /* n doubles */

    /* Results: element i of vector r at i * stride[0] + r * stride[1]; left 0: not wanted. */
    uint64_t left; /* of length m */
    int64_t left_stride[2];
    uint64_t right; /* of length n */
    int64_t right_stride[2];
    uint64_t result; /* values in order */
    int64_t result_stride;
};

#endif
