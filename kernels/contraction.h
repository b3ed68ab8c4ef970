/*
 * Batched products, and einsum on two operands as one of them; the same on every device.
 *
 * EINSUM. Labels are letters, one a dimension. Every label is in one of four groups, and a sum over
 * products is a batched matrix product of the groups:
 *
 *   batch  in a, b and y          y[batch, rows, columns] = sum over inner of a[batch, rows, inner] b[batch, inner, columns]
 *   rows   in a and y
 *   columns  in b and y
 *   inner  in a and b
 *
 * A label that stands twice in one operand means its diagonal: the strides add up. An operand whose
 * groups merge into one stride each is multiplied where it lies; another one is first made dense in
 * scratch.
 */
#ifndef KERNELS_CONTRACTION_H
#define KERNELS_CONTRACTION_H

#include "kernels/contraction_labels.h"
#include "kernels/matrix.h"

/* Matrices `stride` elements apart; 0: the same one for all. */
struct kernel_batch {
    int64_t count;
    int64_t stride;
    struct kernel_matrix matrix; /* the first */
};

/* x is 3-d: [count, rows, columns]. */
struct kernel_batch kernel_batch_of(const struct kernel_arg *x, bool transposed);
struct kernel_matrix kernel_batch_at(const struct kernel_batch *batch, int64_t index,
                                     uint32_t dtype);
/* As a 3-d array. */
struct kernel_arg kernel_batch_arg(const struct kernel_batch *batch, uint32_t dtype);

/* One operand of an einsum on its way to a batched product. */
struct kernel_contracted {
    /* dimensions in the order batch, (rows, columns or inner), .. */
    struct kernel_arg view;
    struct kernel_batch batch; /* what is multiplied: in place, or dense in scratch */
    bool copied; /* in scratch: copied there first, or, of y, from there afterwards */
};
struct kernel_contraction {
    struct kernel_contracted y;
    struct kernel_contracted a;
    struct kernel_contracted b;
    uint64_t bytes; /* of scratch, a multiple of 64; what the product needs comes behind */
};
/* args: y, a, b; they were checked. Scratch begins at `scratch`. */
struct kernel_contraction kernel_contraction_of(const struct kernel_arg *args,
                                                const union kernel_scalar *scalars,
                                                uint64_t scratch);

#endif
