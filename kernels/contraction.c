/*
 * Batched products and einsum: see contraction.h.
 */
#include "kernels/contraction.h"

#include <assert.h>
#include <string.h>

/* ------------------------------------------------------------------------------ batches */

struct kernel_batch kernel_batch_of(const struct kernel_arg *x, bool transposed)
{
    struct kernel_arg first = *x;
    struct kernel_batch batch;

    assert(x->ndim == 3);
    first.ndim = 2;
    memmove(first.dim, first.dim + 1, 2 * sizeof(first.dim[0]));
    memmove(first.stride, first.stride + 1, 2 * sizeof(first.stride[0]));
    batch.count  = x->dim[0];
    batch.stride = x->dim[0] == 1 ? 0 : x->stride[0];
    batch.matrix = kernel_matrix_of(&first, transposed);
    return batch;
}

struct kernel_matrix kernel_batch_at(const struct kernel_batch *batch, int64_t index,
                                     uint32_t dtype)
{
    struct kernel_matrix matrix = batch->matrix;

    matrix.data += (uint64_t)(index * batch->stride) * pl_dtype_bytes(dtype);
    return matrix;
}

struct kernel_arg kernel_batch_arg(const struct kernel_batch *batch, uint32_t dtype)
{
    return (struct kernel_arg){
        .dtype  = dtype,
        .ndim   = 3,
        .dim    = {batch->count, batch->matrix.rows, batch->matrix.columns},
        .stride = {batch->stride, batch->matrix.row_stride, batch->matrix.column_stride},
        .data   = {batch->matrix.data},
    };
}

/* ------------------------------------------------------------------------------- labels */

static bool has(const struct kernel_labels *labels, char label)
{
    return memchr(labels->label, label, labels->count) != NULL;
}

/* One of the three dimensions of a batched matrix, as a group of labels in y's order (inner: in a's). */
static struct kernel_labels group_of(const struct kernel_labels *in,
                                     const struct kernel_labels *and_in,
                                     const struct kernel_labels *not_in)
{
    struct kernel_labels group = {0};

    for (uint32_t i = 0; i < in->count; i++) {
        char label = in->label[i];

        if (has(and_in, label) && (not_in == NULL || !has(not_in, label)) &&
            !has(&group, label)) {
            group.label[group.count++] = label;
        }
    }
    return group;
}

/* ----------------------------------------------------------------------------- operands */

/* The dimension of x that has this label; several: their diagonal. */
static void view_add(struct kernel_arg *view, const struct kernel_arg *x,
                     const struct kernel_labels *labels, char label)
{
    int64_t stride = 0;
    int64_t dim    = 1;

    for (uint32_t i = 0; i < labels->count; i++) {
        if (labels->label[i] == label) {
            dim = x->dim[i];
            stride += x->dim[i] == 1 ? 0 : x->stride[i];
        }
    }
    view->dim[view->ndim]    = dim;
    view->stride[view->ndim] = stride;
    view->ndim++;
}

/* Do the dimensions first .. end of the view merge into one? */
static bool merge(const struct kernel_arg *view, uint32_t first, uint32_t end,
                  int64_t *out_dim, int64_t *out_stride)
{
    int64_t dim    = 1;
    int64_t stride = 0;

    for (uint32_t d = end; d-- > first;) {
        if (view->dim[d] == 1) {
            continue;
        }
        if (dim > 1 && view->stride[d] != stride * dim) {
            return false;
        }
        stride = dim == 1 ? view->stride[d] : stride;
        dim *= view->dim[d];
    }
    *out_dim    = dim;
    *out_stride = dim == 1 ? 1 : stride;
    return true;
}

static int64_t product_of(const struct kernel_arg *view, uint32_t first, uint32_t end)
{
    int64_t product = 1;

    for (uint32_t d = first; d < end; d++) {
        product *= view->dim[d];
    }
    return product;
}

static struct kernel_contracted contracted_of(const struct kernel_arg *x,
                                              const struct kernel_labels *labels,
                                              const struct kernel_labels *const group[3],
                                              uint64_t *io_scratch)
{
    struct kernel_contracted result = {.view = {.dtype = x->dtype, .data = x->data}};
    struct kernel_batch *batch      = &result.batch;
    uint32_t end[4]                 = {0};

    for (int g = 0; g < 3; g++) {
        for (uint32_t i = 0; i < group[g]->count; i++) {
            view_add(&result.view, x, labels, group[g]->label[i]);
        }
        end[g + 1] = result.view.ndim;
    }
    batch->matrix.data = x->data.addr;
    if (merge(&result.view, end[0], end[1], &batch->count, &batch->stride) &&
        merge(&result.view, end[1], end[2], &batch->matrix.rows,
              &batch->matrix.row_stride) &&
        merge(&result.view, end[2], end[3], &batch->matrix.columns,
              &batch->matrix.column_stride)) {
        batch->stride = batch->count == 1 ? 0 : batch->stride;
        return result;
    }
    result.copied               = true;
    batch->count                = product_of(&result.view, end[0], end[1]);
    batch->matrix.rows          = product_of(&result.view, end[1], end[2]);
    batch->matrix.columns       = product_of(&result.view, end[2], end[3]);
    batch->matrix.column_stride = 1;
    batch->matrix.row_stride    = batch->matrix.columns;
    batch->stride               = batch->matrix.rows * batch->matrix.columns;
    batch->matrix.data          = *io_scratch;
    *io_scratch += pl_round_up(
        (uint64_t)(batch->count * batch->stride) * pl_dtype_bytes(x->dtype), 64);
    return result;
}

struct kernel_contraction kernel_contraction_of(const struct kernel_arg *args,
                                                const union kernel_scalar *scalars,
                                                uint64_t scratch)
{
    struct kernel_contraction result;
    struct kernel_labels y = {0};
    struct kernel_labels a = {0};
    struct kernel_labels b = {0};
    struct kernel_labels batch;
    struct kernel_labels rows;
    struct kernel_labels columns;
    struct kernel_labels inner;
    uint64_t next = scratch;

    PL_CHECK(kernel_labels_of(scalars[0].i, &a) && kernel_labels_of(scalars[1].i, &b) &&
             kernel_labels_of(scalars[2].i, &y));
    batch   = group_of(&y, &a, NULL);
    batch   = group_of(&batch, &b, NULL);
    rows    = group_of(&y, &a, &b);
    columns = group_of(&y, &b, &a);
    inner   = group_of(&a, &b, &y);

    result.a = contracted_of(
        &args[1], &a, (const struct kernel_labels *[]){&batch, &rows, &inner}, &next);
    result.b = contracted_of(
        &args[2], &b, (const struct kernel_labels *[]){&batch, &inner, &columns}, &next);
    result.y = contracted_of(
        &args[0], &y, (const struct kernel_labels *[]){&batch, &rows, &columns}, &next);
    result.bytes = next - scratch;
    return result;
}
