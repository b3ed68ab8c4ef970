/*
 * Views of arguments: the same memory seen with other dimensions and strides. A transpose, a
 * permutation and a part of a concatenation are all copies between such views, on every device.
 */
#include "kernels/kernel_int.h"

#include <assert.h>

int64_t kernel_arg_elements(const struct kernel_arg *arg)
{
    int64_t elements = 1;

    for (uint32_t i = 0; i < arg->ndim; i++) {
        elements *= arg->dim[i];
    }
    return elements;
}

bool kernel_arg_dense(const struct kernel_arg *arg)
{
    int64_t want = 1;

    for (uint32_t i = arg->ndim; i-- > 0;) {
        if (arg->dim[i] != 1 && arg->stride[i] != want) {
            return false;
        }
        want *= arg->dim[i];
    }
    return true;
}

struct kernel_arg kernel_arg_transposed(const struct kernel_arg *x)
{
    struct kernel_arg view = *x;
    uint32_t row           = x->ndim - 2;
    uint32_t column        = x->ndim - 1;

    assert(x->ndim >= 2);
    view.dim[row]       = x->dim[column];
    view.dim[column]    = x->dim[row];
    view.stride[row]    = x->stride[column];
    view.stride[column] = x->stride[row];
    return view;
}

struct kernel_arg kernel_arg_permuted(const struct kernel_arg *x,
                                      const union kernel_scalar *scalars)
{
    struct kernel_arg view = *x;

    for (uint32_t i = 0; i < x->ndim; i++) {
        view.dim[i]    = x->dim[scalars[i].i];
        view.stride[i] = x->stride[scalars[i].i];
    }
    return view;
}

struct kernel_arg kernel_arg_slab(const struct kernel_arg *y, uint32_t axis, int64_t start,
                                  const struct kernel_arg *x)
{
    struct kernel_arg view = *y;

    assert(start + x->dim[axis] <= y->dim[axis]);
    view.dim[axis] = x->dim[axis];
    view.data      = device_ptr_add(y->data, (uint64_t)(start * y->stride[axis]) *
                                                 pl_dtype_bytes(y->dtype));
    return view;
}

struct kernel_arg kernel_arg_compact(const struct kernel_arg *x, struct device_ptr data)
{
    struct kernel_arg view = *x;
    int64_t stride         = 1;

    for (uint32_t i = x->ndim; i-- > 0;) {
        view.stride[i] = stride;
        stride *= x->dim[i];
    }
    view.data = data;
    return view;
}

struct kernel_arg kernel_arg_reduced(const struct kernel_arg *x, int64_t axis)
{
    struct kernel_arg view = *x;

    view.ndim = 0;
    for (uint32_t i = 0; i < x->ndim; i++) {
        if (axis == -1 || axis == (int64_t)i) {
            view.dim[view.ndim]    = x->dim[i];
            view.stride[view.ndim] = x->stride[i];
            view.ndim++;
        }
    }
    return view;
}
