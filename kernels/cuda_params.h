/*
 * What the host hands to CUDA kernels: one struct a kernel, passed by value. Seen by C and by nvcc,
 * so fixed-width integers and addresses as numbers only; both sides lay them out alike.
 *
 * Strides are in bytes. All counts are at least 1.
 */
#ifndef KERNELS_CUDA_PARAMS_H
#define KERNELS_CUDA_PARAMS_H

#include <stdint.h>

#define CUDA_DIM_MAX  8
#define CUDA_FOLD_MAX 64

/* Up to four arrays of one shape, merged (walk.h). */
struct cuda_walk {
    int64_t count; /* of elements */
    uint32_t ndim;
    uint32_t dense; /* one dimension, all arrays contiguous and on 16-byte addresses */
    int64_t dim[CUDA_DIM_MAX];
    int64_t stride[4][CUDA_DIM_MAX];
    uint64_t base[4];
};

struct cuda_elementwise {
    struct cuda_walk walk; /* y, a, b */
    int32_t op;            /* enum kernel_op */
    uint32_t dtype[2];     /* cast: to, from */
    uint32_t bytes;        /* copy, checksum: of an element */
    /* bits of the element type; fill: the value; checksum: address of the sum */
    uint64_t scalar[2];
};

/* Values by flat index. */
struct cuda_generate {
    struct cuda_walk walk;
    int32_t kind; /* enum cuda_generator */
    uint32_t dtype;
    uint64_t seed;
    uint64_t offset;
    uint64_t row_stride;
    uint64_t width;
    double a; /* start, low, mean */
    double b; /* step, high, stddev */
};
enum cuda_generator {
    CUDA_GENERATE_ARANGE,
    CUDA_GENERATE_UNIFORM,
    CUDA_GENERATE_NORMAL,
};

/* y and x step by one element in different dimensions: rows of y are columns of x. */
struct cuda_transpose {
    int64_t rows;     /* the dimension in which x is dense */
    int64_t columns;  /* the dimension in which y is dense */
    int64_t y_stride; /* of y from row to row */
    int64_t x_stride; /* of x from column to column */
    int64_t batch;
    uint32_t ndim; /* of the other dimensions */
    uint32_t unused;
    int64_t dim[CUDA_DIM_MAX];
    int64_t stride[2][CUDA_DIM_MAX]; /* y, x */
    uint64_t y;
    uint64_t x;
};

/* Contiguous parts that one launch copies; all addresses are multiples of `word`: 4, 8 or 16. */
struct cuda_parts {
    uint64_t to[CUDA_FOLD_MAX];
    uint64_t from[CUDA_FOLD_MAX];
    uint64_t bytes[CUDA_FOLD_MAX];
    uint32_t count;
    uint32_t word;
};

/* fold: y = y op tree; combine: y = *first op tree. walk.dense: and on 16-byte addresses, all of them. */
struct cuda_fold {
    struct cuda_walk walk; /* y, and the layout that all others have */
    uint64_t first;        /* 0: y itself */
    uint64_t partial[CUDA_FOLD_MAX];
    uint32_t partials;
    int32_t op;
};

/*
 * Reductions. Output o starts at kept(o) in x and is made of `length` elements at reduced(r), split
 * into `segments` of `segment_length` (the last may be shorter). With one segment results go to y,
 * otherwise to partial[segment * outputs + o].
 */
struct cuda_reduce {
    int64_t outputs;
    int64_t length;
    int64_t segments;
    int64_t segment_length;
    uint32_t kept_ndim;
    uint32_t reduced_ndim;
    int64_t kept_dim[CUDA_DIM_MAX];
    int64_t kept_stride[2][CUDA_DIM_MAX]; /* of y and of x */
    int64_t reduced_dim[CUDA_DIM_MAX];
    int64_t reduced_stride[2][CUDA_DIM_MAX]; /* of x and, for dot, of x2 */
    uint64_t y;
    uint64_t x;
    uint64_t x2; /* dot; otherwise 0 */
    /* what a segment comes to: a state of the kernel's (cuda_reduce.cuh) */
    uint64_t partial;
    int32_t op;         /* enum kernel_reduction */
    uint32_t to;        /* dtype of y */
    uint32_t group;     /* threads that work on one output: 32 or 256 */
    uint32_t exclusive; /* scans: without the element itself */
};

/* c[i,j] = alpha sum_p a[i,p] b[p,j] + beta c[i,j]; distances take b transposed. */
struct cuda_product {
    int64_t m;
    int64_t n;
    int64_t k;
    int64_t a_stride[2];
    int64_t b_stride[2];
    int64_t c_stride[2];
    uint64_t a;
    uint64_t b;
    uint64_t c;
    uint64_t alpha; /* bits of the element type */
    uint64_t beta;
    uint64_t a_norm; /* f64[m] and f64[n]; add_norms only */
    uint64_t b_norm;
};

/* out[i] = |x[i]|^2 */
struct cuda_norms {
    int64_t rows;
    int64_t columns;
    int64_t stride[2];
    uint64_t x;
    uint64_t out;
};

/* A matrix by its rows. */
struct cuda_rows {
    uint64_t base;
    int64_t stride[2];
};
struct cuda_topk {
    int64_t rows;
    int64_t columns;
    int64_t k;
    int64_t index_base;
    struct cuda_rows values;
    struct cuda_rows indices;
    struct cuda_rows x;
};
struct cuda_merge {
    int64_t rows;
    int64_t k;
    int64_t size[2];
    struct cuda_rows values;
    struct cuda_rows indices;
    struct cuda_rows from_values[2];
    struct cuda_rows from_indices[2];
};
struct cuda_vote {
    int64_t rows;
    int64_t k;
    int64_t labels_count;
    int64_t y_stride;
    int64_t labels_stride;
    struct cuda_rows indices;
    uint64_t y;
    uint64_t labels;
};

/* Rows of x sorted into rows of y. */
struct cuda_sort {
    int64_t rows;
    int64_t length;
    int64_t tiles; /* of a long row */
    uint32_t rows_ndim;
    int32_t shift; /* of the digit */
    int64_t rows_dim[CUDA_DIM_MAX];
    int64_t rows_stride[2][CUDA_DIM_MAX]; /* of y and of x */
    int64_t stride[2];                    /* along a row */
    uint64_t y;
    uint64_t x;
    uint64_t key[2]; /* long rows: from, to */
    uint64_t position[2];
    uint64_t counts;
    uint32_t dtype;     /* of x */
    uint32_t bytes;     /* of an element of x */
    uint32_t positions; /* y gets positions, not values */
    uint32_t unused;
};
#define CUDA_SORT_TILE  2048
#define CUDA_SORT_CHUNK 4 /* tiles that share counts */

struct cuda_spmv {
    int64_t rows;
    int64_t length; /* of x */
    int64_t stored; /* elements that columns and values have */
    int64_t y_stride;
    int64_t row_stride;
    int64_t column_stride;
    int64_t value_stride;
    int64_t x_stride;
    uint64_t y;
    uint64_t row_pointers;
    uint64_t columns;
    uint64_t values;
    uint64_t x;
    uint64_t bad_row; /* words for the smallest index that is wrong; all bits set: none */
    uint64_t bad_column;
    uint32_t group; /* threads a row */
    uint32_t unused;
};

/* What a kernel found wrong: see cuda_failures.h. */
struct cuda_failure {
    uint64_t number; /* from 1; written last */
    uint64_t tag;
    int64_t value;
    uint32_t function; /* enum kernel_id */
    uint32_t error;    /* enum kernel_data_error */
};
#define CUDA_FAILURES_MAX 32768

struct cuda_report {
    uint64_t records;
    uint64_t tag;
    uint64_t tag_at; /* where the tag is when it runs; 0: `tag` */
    uint64_t word[2];
    int64_t fine;
    uint32_t error[2];
    uint32_t count;
    uint32_t bytes; /* of a word: 4 or 8 */
    uint32_t function;
    uint32_t refused; /* the error of negative words of 4 bytes */
    uint32_t mark_shift;
    uint64_t marks; /* struct kernel_marks */
    uint64_t mark_count;
    uint64_t mark_bit;
};

struct cuda_spin {
    uint64_t nanoseconds;
};

/* Rows of a top-k that are found in one reading; more take one reading each. */
#define CUDA_TOPK_ONE_PASS 8

#endif
