/*
 * Matrices as a BLAS sees them: which strided arrays it takes as they are, and what has to be made
 * dense in scratch first. The same for OpenBLAS and cuBLAS (which is handed everything transposed).
 */
#ifndef KERNELS_MATRIX_H
#define KERNELS_MATRIX_H

#include "kernels/kernel_int.h"

struct kernel_matrix {
    uint64_t data; /* device address */
    int64_t rows;
    int64_t columns;
    int64_t row_stride; /* elements */
    int64_t column_stride;
};

/* Rows are dense (or, transposed, columns), `leading` elements apart. */
struct kernel_layout {
    bool transposed;
    int64_t leading;
};

/* A vector is a matrix of one column. */
struct kernel_matrix kernel_matrix_of(const struct kernel_arg *arg, bool transposed);
struct kernel_matrix kernel_matrix_transposed(const struct kernel_matrix *m);
/* For copies and elementwise walks. */
struct kernel_arg kernel_matrix_arg(const struct kernel_matrix *m, uint32_t dtype);
/* false: neither rows nor columns are dense, or a number is beyond the 32 bits of a BLAS. */
bool kernel_matrix_layout(const struct kernel_matrix *m, struct kernel_layout *out_layout);
/* All of a product fits the 32 bits of a BLAS. */
bool kernel_matrix_small(const struct kernel_matrix *m);
/* Scratch that one operand needs, a multiple of 64; 0: none. A result's rows must be dense. */
uint64_t kernel_matrix_scratch(const struct kernel_matrix *m, uint32_t dtype,
                               bool is_result);
/*
 * m itself if a BLAS takes it, otherwise a dense matrix at *io_scratch, which moves on. Contents
 * are not copied.
 */
struct kernel_matrix kernel_matrix_pack(const struct kernel_matrix *m, uint32_t dtype,
                                        bool is_result, uint64_t *io_scratch);

/* The same whatever m's layout: for a copy in another dtype. */
uint64_t kernel_matrix_dense_bytes(const struct kernel_matrix *m, uint32_t dtype);
struct kernel_matrix kernel_matrix_dense(const struct kernel_matrix *m,
                                         uint64_t *io_scratch, uint32_t dtype);

/* The scalars of gemm and of gemm_into. */
struct kernel_gemm {
    double alpha;
    double beta;
    bool trans_a;
    bool trans_b;
};
struct kernel_gemm kernel_gemm_of(const struct kernel_function *function,
                                  const union kernel_scalar *scalars);

/* op(a) x = b, and then once more with the transpose for cholesky_solve. */
struct kernel_solve {
    bool lower;
    bool trans;
    bool unit;
    bool twice;
};
struct kernel_solve kernel_solve_of(const struct kernel_function *function,
                                    const union kernel_scalar *scalars);

/*
 * Up to here a distance is a loop over the dimensions, which is as fast and loses nothing between
 * near points.
 */
#define KERNEL_DISTANCE_LOOP_MAX 16
/* Otherwise, for floats, |a|^2 + |b|^2 - 2 ab by a product; the norms are in f64, in scratch. */
bool kernel_distance_is_product(uint32_t dtype, const struct kernel_matrix *a);
uint64_t kernel_distance_norms(const struct kernel_matrix *a,
                               const struct kernel_matrix *b);

/* What a BLAS multiplies as it is. */
static inline bool kernel_is_blas(uint32_t dtype)
{
    return kernel_is_single(dtype) || kernel_is_complex(dtype);
}

#endif
