/*
 * Shapes, views and boxes between their lists of numbers on the wire and base/box.h. Everything is
 * checked on the way in.
 */
#include "wire/wire_int.h"

#include <assert.h>

plasmon_status_t wire_shape_get(const Plasmon__V1__Shape *shape, struct pl_shape *out,
                                struct pl_err *err)
{
    struct pl_err why;

    if (shape == NULL) {
        return pl_err_set(err, PLASMON_EMALFORMED, "there is no shape");
    }
    if (shape->n_dim > PL_DIM_MAX) {
        return pl_err_set(err, PLASMON_EMALFORMED, "%zu dimensions; the limit is %d",
                          shape->n_dim, PL_DIM_MAX);
    }

    out->dtype = shape->dtype;
    out->ndim  = (uint32_t)shape->n_dim;
    for (size_t d = 0; d < shape->n_dim; d++) {
        if (shape->dim[d] > INT64_MAX) {
            return pl_err_set(err, PLASMON_EMALFORMED, "dimension %zu is %llu", d,
                              (unsigned long long)shape->dim[d]);
        }
        out->dim[d] = (int64_t)shape->dim[d];
    }
    if (pl_shape_check(out, &why) != PLASMON_OK) {
        return pl_err_set(err, PLASMON_EMALFORMED, "%s", why.text);
    }
    return PLASMON_OK;
}

void wire_shape_put(const struct pl_shape *shape, Plasmon__V1__Shape *out,
                    uint64_t dims[PL_DIM_MAX])
{
    assert(shape->ndim <= PL_DIM_MAX);

    *out = (Plasmon__V1__Shape)PLASMON__V1__SHAPE__INIT;
    for (uint32_t d = 0; d < shape->ndim; d++) {
        dims[d] = (uint64_t)shape->dim[d];
    }
    out->dtype = shape->dtype;
    out->n_dim = shape->ndim;
    out->dim   = dims;
}

plasmon_status_t wire_view_get(size_t n, const int64_t *numbers,
                               const struct pl_shape *root, struct pl_view *out,
                               struct pl_err *err)
{
    plasmon_status_t status;

    if (n == 0) {
        *out = pl_view_whole(root);
        return PLASMON_OK;
    }

    status = check_view_numbers(n, numbers, "view", err);
    if (status != PLASMON_OK) {
        return status;
    }

    *out = (struct pl_view){.ndim = (uint32_t)(n / 3)};
    for (uint32_t d = 0; d < out->ndim; d++) {
        out->start[d] = numbers[3 * d];
        out->count[d] = numbers[3 * d + 1];
        out->step[d]  = numbers[3 * d + 2];
    }
    return pl_view_check(out, root, err);
}

size_t wire_view_put(const struct pl_view *view, int64_t out[3 * PL_DIM_MAX])
{
    assert(view->ndim <= PL_DIM_MAX);

    for (uint32_t d = 0; d < view->ndim; d++) {
        out[3 * d]     = view->start[d];
        out[3 * d + 1] = view->count[d];
        out[3 * d + 2] = view->step[d];
    }
    return (size_t)3 * view->ndim;
}

plasmon_status_t wire_box_get(size_t n, const int64_t *numbers, struct pl_box *out,
                              struct pl_err *err)
{
    plasmon_status_t status = check_box_numbers(n, numbers, "box", err);

    if (status != PLASMON_OK) {
        return status;
    }

    *out = (struct pl_box){.ndim = (uint32_t)(n / 2)};
    for (uint32_t d = 0; d < out->ndim; d++) {
        out->start[d] = numbers[2 * d];
        out->count[d] = numbers[2 * d + 1];
    }
    return PLASMON_OK;
}

size_t wire_box_put(const struct pl_box *box, int64_t out[2 * PL_DIM_MAX])
{
    assert(box->ndim <= PL_DIM_MAX);

    for (uint32_t d = 0; d < box->ndim; d++) {
        out[2 * d]     = box->start[d];
        out[2 * d + 1] = box->count[d];
    }
    return (size_t)2 * box->ndim;
}
