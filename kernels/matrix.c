/*
 * Matrices as a BLAS sees them; see matrix.h.
 */
#include "kernels/matrix.h"

#include "base/base.h"

#include <limits.h>

struct kernel_matrix kernel_matrix_transposed(const struct kernel_matrix *m)
{
    return (struct kernel_matrix){m->data, m->columns, m->rows, m->column_stride,
                                  m->row_stride};
}

struct kernel_matrix kernel_matrix_of(const struct kernel_arg *arg, bool transposed)
{
    struct kernel_matrix m = {.data          = arg->data.addr,
                              .rows          = arg->dim[0],
                              .columns       = 1,
                              .row_stride    = arg->dim[0] == 1 ? 1 : arg->stride[0],
                              .column_stride = 1};

    if (arg->ndim == 2) {
        m.columns       = arg->dim[1];
        m.column_stride = arg->stride[1];
    }
    return transposed ? kernel_matrix_transposed(&m) : m;
}

struct kernel_arg kernel_matrix_arg(const struct kernel_matrix *m, uint32_t dtype)
{
    return (struct kernel_arg){
        .dtype  = dtype,
        .ndim   = 2,
        .dim    = {m->rows, m->columns},
        .stride = {m->row_stride, m->column_stride},
        .data   = {m->data},
    };
}

bool kernel_matrix_small(const struct kernel_matrix *m)
{
    return m->rows <= INT_MAX && m->columns <= INT_MAX;
}

static bool rows_dense(const struct kernel_matrix *m, int64_t *leading)
{
    /* The stride of a dimension of length 1 says nothing. */
    *leading = m->rows == 1 ? m->columns : m->row_stride;
    return (m->column_stride == 1 || m->columns == 1) && *leading >= m->columns &&
           *leading <= INT_MAX;
}

bool kernel_matrix_layout(const struct kernel_matrix *m, struct kernel_layout *out_layout)
{
    struct kernel_matrix flipped = kernel_matrix_transposed(m);

    out_layout->transposed = false;
    if (rows_dense(m, &out_layout->leading)) {
        return true;
    }
    out_layout->transposed = true;
    return rows_dense(&flipped, &out_layout->leading);
}

uint64_t kernel_matrix_scratch(const struct kernel_matrix *m, uint32_t dtype,
                               bool is_result)
{
    struct kernel_layout layout;

    if (kernel_matrix_layout(m, &layout) && !(is_result && layout.transposed)) {
        return 0;
    }
    return kernel_matrix_dense_bytes(m, dtype);
}

struct kernel_matrix kernel_matrix_pack(const struct kernel_matrix *m, uint32_t dtype,
                                        bool is_result, uint64_t *io_scratch)
{
    struct kernel_matrix dense = {*io_scratch, m->rows, m->columns, m->columns, 1};
    uint64_t bytes             = kernel_matrix_scratch(m, dtype, is_result);

    *io_scratch += bytes;
    return bytes == 0 ? *m : dense;
}

uint64_t kernel_matrix_dense_bytes(const struct kernel_matrix *m, uint32_t dtype)
{
    return pl_round_up((uint64_t)(m->rows * m->columns) * pl_dtype_bytes(dtype), 64);
}

struct kernel_matrix kernel_matrix_dense(const struct kernel_matrix *m,
                                         uint64_t *io_scratch, uint32_t dtype)
{
    struct kernel_matrix dense = {*io_scratch, m->rows, m->columns, m->columns, 1};

    *io_scratch += kernel_matrix_dense_bytes(m, dtype);
    return dense;
}

struct kernel_gemm kernel_gemm_of(const struct kernel_function *function,
                                  const union kernel_scalar *s)
{
    if (kernel_id_of(function) == KERNEL_ID_gemm) {
        return (struct kernel_gemm){s[0].f, 0, s[1].i != 0, s[2].i != 0};
    }
    return (struct kernel_gemm){s[0].f, s[1].f, s[2].i != 0, s[3].i != 0};
}

struct kernel_solve kernel_solve_of(const struct kernel_function *function,
                                    const union kernel_scalar *s)
{
    if (kernel_id_of(function) == KERNEL_ID_cholesky_solve) {
        return (struct kernel_solve){.lower = true, .twice = true};
    }
    return (struct kernel_solve){
        .lower = s[0].i != 0, .trans = s[1].i != 0, .unit = s[2].i != 0};
}

bool kernel_distance_is_product(uint32_t dtype, const struct kernel_matrix *a)
{
    return kernel_is_single(dtype) && a->columns > KERNEL_DISTANCE_LOOP_MAX;
}

uint64_t kernel_distance_norms(const struct kernel_matrix *a, const struct kernel_matrix *b)
{
    return pl_round_up((uint64_t)(a->rows + b->rows) * sizeof(double), 64);
}
