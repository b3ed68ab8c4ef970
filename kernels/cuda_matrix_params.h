/*
 * What the host hands to the kernels of triangular systems and factorisations: see cuda_params.h.
 */
#ifndef KERNELS_CUDA_MATRIX_PARAMS_H
#define KERNELS_CUDA_MATRIX_PARAMS_H

#include "kernels/cuda_params.h"

#define CUDA_PANEL 32 /* columns that are factored at once */

/* A square block of a matrix; strides in bytes. */
struct cuda_triangle {
    int64_t n;
    int64_t first; /* its place on the diagonal of the whole */
    int64_t stride[2];
    int64_t from_stride[2]; /* of what is copied */
    uint64_t data;
    uint64_t from;
    uint64_t info; /* the smallest pivot, from 1, that will not do; all bits set: none */
};

/* data = the upper triangle of `from`, below it 0; strides in bytes. */
struct cuda_upper {
    int64_t rows;
    int64_t columns;
    int64_t stride[2];
    int64_t from_stride[2];
    uint64_t data;
    uint64_t from;
};

/* The determinant from an LU factor: dense; int pivots from 1; int info, not 0: a pivot is 0. */
struct cuda_pivots {
    int64_t n;
    uint64_t factor;
    uint64_t pivots;
    uint64_t info;
    uint64_t result;
};

#endif
