/*
 * Shape rules of linear algebra: see shape_rules.h.
 */
#include "kernels/contraction_labels.h"
#include "kernels/shape_rules_int.h"

#include <string.h>

/* ----------------------------------------------------------------------------- products */

RULE(dot)
{
    struct pl_shape want = {.dtype = args[1].shape.dtype};
    plasmon_status_t status;

    RULE_UNUSED();
    status = rule_same_dtype(self, args, 1, 2, err);
    if (status == PLASMON_OK) {
        status = rule_needs_ndim(self, args, 1, 1, err);
    }
    if (status == PLASMON_OK) {
        status = rule_needs_ndim(self, args, 2, 1, err);
    }
    if (status == PLASMON_OK) {
        status =
            rule_needs_length(self, args, 2, 0, args[1].shape.dim[0], "elements", 1, err);
    }
    return status == PLASMON_OK ? rule_output(self, args, 0, &want, err) : status;
}

RULE(gemv)
{
    struct pl_shape want = rule_shape_1d(args[1].shape.dtype, args[1].shape.dim[0]);
    plasmon_status_t status;

    RULE_UNUSED();
    status = rule_same_dtype(self, args, 1, 2, err);
    if (status == PLASMON_OK) {
        status = rule_needs_ndim(self, args, 1, 2, err);
    }
    if (status == PLASMON_OK) {
        status = rule_needs_ndim(self, args, 2, 1, err);
    }
    if (status == PLASMON_OK) {
        status =
            rule_needs_length(self, args, 2, 0, args[1].shape.dim[1], "elements", 1, err);
    }
    return status == PLASMON_OK ? rule_output(self, args, 0, &want, err) : status;
}

/* Shape of a product of args[1] and args[2]. */
static plasmon_status_t product(const struct kernel_function *self,
                                const struct kernel_arg_shape *args, bool trans_a,
                                bool trans_b, struct pl_shape *out, struct pl_err *err)
{
    const struct pl_shape *a = &args[1].shape;
    const struct pl_shape *b = &args[2].shape;
    plasmon_status_t status;

    status = rule_same_dtype(self, args, 1, 2, err);
    if (status == PLASMON_OK) {
        status = rule_needs_ndim(self, args, 1, 2, err);
    }
    if (status == PLASMON_OK) {
        status = rule_needs_ndim(self, args, 2, 2, err);
    }
    if (status == PLASMON_OK) {
        status = rule_needs_length(self, args, 2, trans_b ? 1 : 0, a->dim[trans_a ? 0 : 1],
                                   trans_b ? "columns" : "rows", 1, err);
    }
    *out = rule_shape_2d(a->dtype, a->dim[trans_a ? 1 : 0], b->dim[trans_b ? 0 : 1]);
    return status;
}

RULE(gemm)
{
    struct pl_shape want;
    plasmon_status_t status;

    RULE_UNUSED();
    status = product(self, args, scalars[1].i != 0, scalars[2].i != 0, &want, err);
    return status == PLASMON_OK ? rule_output(self, args, 0, &want, err) : status;
}

RULE(gemm_into)
{
    struct pl_shape want;
    plasmon_status_t status;
    char shape[128];

    RULE_UNUSED();
    status = product(self, args, scalars[2].i != 0, scalars[3].i != 0, &want, err);
    if (status == PLASMON_OK) {
        status = rule_same_dtype(self, args, 1, 0, err);
    }
    if (status == PLASMON_OK) {
        status = rule_needs_sum(self, args, 0, err);
    }
    if (status != PLASMON_OK) {
        return status;
    }
    if (args[0].mode == KERNEL_REDUCE && scalars[1].f != 1.0) {
        return pl_err_set(err, PLASMON_EINVAL,
                          "%s: c is a REDUCE argument and beta is %g, needs 1", self->name,
                          scalars[1].f);
    }
    if (!pl_shape_equal(&args[0].shape, &want)) {
        return pl_err_set(err, PLASMON_ESHAPE, "%s, the product is %s",
                          rule_is(self, args, 0).text, pl_shape_format(&want, shape));
    }
    return PLASMON_OK;
}

RULE(pairwise)
{
    struct pl_shape want;
    plasmon_status_t status;

    RULE_UNUSED();
    /* The columns of a and b run together, as those of a and the transpose of b do. */
    status = product(self, args, false, true, &want, err);
    return status == PLASMON_OK ? rule_output(self, args, 0, &want, err) : status;
}

RULE(gemm_batched)
{
    struct kernel_arg_shape matrix[3] = {args[0], args[1], args[2]};
    int64_t batch                     = args[1].shape.dim[0];
    struct pl_shape want;
    plasmon_status_t status = PLASMON_OK;

    RULE_UNUSED();
    for (uint32_t i = 1; i < 3 && status == PLASMON_OK; i++) {
        status = rule_needs_ndim(self, args, i, 3, err);
        memmove(matrix[i].shape.dim, args[i].shape.dim + 1, 2 * sizeof(int64_t));
        matrix[i].shape.ndim = 2;
    }
    if (status == PLASMON_OK && args[2].shape.dim[0] != 1) {
        if (batch != 1) {
            status = rule_needs_length(self, args, 2, 0, batch, "matrices", 1, err);
        }
        batch = args[2].shape.dim[0];
    }
    if (status == PLASMON_OK) {
        status = product(self, matrix, scalars[1].i != 0, scalars[2].i != 0, &want, err);
    }
    if (status != PLASMON_OK) {
        return status;
    }
    want.ndim   = 3;
    want.dim[2] = want.dim[1];
    want.dim[1] = want.dim[0];
    want.dim[0] = batch;
    return rule_output(self, args, 0, &want, err);
}

/* ------------------------------------------------------------------------------- einsum */

/*
 * The labels of operand `index`, one for each of its dimensions; the length of each label goes into
 * `length`.
 */
static plasmon_status_t labels_read(const struct kernel_function *self,
                                    const struct kernel_arg_shape *args, uint32_t index,
                                    const union kernel_scalar *scalars,
                                    struct kernel_labels *out, int64_t length[256],
                                    struct pl_err *err)
{
    if (!kernel_labels_of(scalars[index - 1].i, out) ||
        out->count != args[index].shape.ndim) {
        return pl_err_set(err, PLASMON_EINVAL, "%s, needs a letter for each dimension",
                          rule_is(self, args, index).text);
    }
    for (uint32_t i = 0; i < out->count; i++) {
        int64_t *known = &length[(unsigned char)out->label[i]];

        if (*known != 0 && *known != args[index].shape.dim[i]) {
            return pl_err_set(
                err, PLASMON_ESHAPE, "%s, needs %lld in dimension %u: label %c",
                rule_is(self, args, index).text, (long long)*known, i, out->label[i]);
        }
        *known = args[index].shape.dim[i];
    }
    return PLASMON_OK;
}

/* A label that only one operand has, and y not, would be a sum of that operand alone. */
static plasmon_status_t labels_paired(const struct kernel_function *self, const char *name,
                                      const struct kernel_labels *of,
                                      const struct kernel_labels *other,
                                      const struct kernel_labels *y, struct pl_err *err)
{
    for (uint32_t i = 0; i < of->count; i++) {
        char label = of->label[i];

        if (memchr(other->label, label, other->count) == NULL &&
            memchr(y->label, label, y->count) == NULL) {
            return pl_err_set(err, PLASMON_EINVAL,
                              "%s: label %c is in %s alone; sum %s over that axis first",
                              self->name, label, name, name);
        }
    }
    return PLASMON_OK;
}

static plasmon_status_t labels_of_output(const struct kernel_function *self,
                                         const union kernel_scalar *scalars,
                                         const int64_t length[256],
                                         struct kernel_labels *out, struct pl_shape *want,
                                         struct pl_err *err)
{
    if (!kernel_labels_of(scalars[2].i, out)) {
        return pl_err_set(err, PLASMON_EINVAL, "%s: ly holds something that is no letter",
                          self->name);
    }
    want->ndim = out->count;
    for (uint32_t i = 0; i < out->count; i++) {
        char label   = out->label[i];
        want->dim[i] = length[(unsigned char)label];
        if (want->dim[i] == 0 || memchr(out->label, label, i) != NULL) {
            return pl_err_set(err, PLASMON_EINVAL,
                              "%s: label %c of y must be in a or b, and once in y",
                              self->name, label);
        }
    }
    return PLASMON_OK;
}

RULE(einsum)
{
    struct pl_shape want = {.dtype = args[1].shape.dtype};
    int64_t length[256]  = {0};
    struct kernel_labels a;
    struct kernel_labels b;
    struct kernel_labels y;
    plasmon_status_t status;

    RULE_UNUSED();
    status = rule_same_dtype(self, args, 1, 2, err);
    if (status == PLASMON_OK) {
        status = labels_read(self, args, 1, scalars, &a, length, err);
    }
    if (status == PLASMON_OK) {
        status = labels_read(self, args, 2, scalars, &b, length, err);
    }
    if (status == PLASMON_OK) {
        status = labels_of_output(self, scalars, length, &y, &want, err);
    }
    if (status == PLASMON_OK) {
        status = labels_paired(self, "a", &a, &b, &y, err);
    }
    if (status == PLASMON_OK) {
        status = labels_paired(self, "b", &b, &a, &y, err);
    }
    return status == PLASMON_OK ? rule_output(self, args, 0, &want, err) : status;
}

/* ------------------------------------------------------------------------------- sparse */

RULE(spmv)
{
    struct pl_shape want;
    plasmon_status_t status = PLASMON_OK;

    RULE_UNUSED();
    for (uint32_t i = 1; i < 5 && status == PLASMON_OK; i++) {
        status = rule_needs_ndim(self, args, i, 1, err);
    }
    if (status == PLASMON_OK && args[1].shape.dim[0] < 2) {
        status = pl_err_set(err, PLASMON_ESHAPE,
                            "%s, needs a pointer for each row and one for the end",
                            rule_is(self, args, 1).text);
    }
    if (status == PLASMON_OK) {
        status = rule_same_dtype(self, args, 1, 2, err);
    }
    if (status == PLASMON_OK) {
        status = rule_same_dtype(self, args, 3, 4, err);
    }
    if (status == PLASMON_OK) {
        status =
            rule_needs_length(self, args, 3, 0, args[2].shape.dim[0], "elements", 2, err);
    }
    want = rule_shape_1d(args[3].shape.dtype, args[1].shape.dim[0] - 1);
    return status == PLASMON_OK ? rule_output(self, args, 0, &want, err) : status;
}

/* ------------------------------------------------------------------------------ systems */

static plasmon_status_t needs_square(const struct kernel_function *self,
                                     const struct kernel_arg_shape *args, uint32_t index,
                                     struct pl_err *err)
{
    plasmon_status_t status = rule_needs_ndim(self, args, index, 2, err);

    if (status == PLASMON_OK && args[index].shape.dim[0] != args[index].shape.dim[1]) {
        status = pl_err_set(err, PLASMON_ESHAPE, "%s, needs as many rows as columns",
                            rule_is(self, args, index).text);
    }
    return status;
}

RULE(solve)
{
    plasmon_status_t status;

    RULE_UNUSED();
    status = needs_square(self, args, 1, err);
    if (status == PLASMON_OK) {
        status = rule_needs_ndim(self, args, 2, 2, err);
    }
    if (status == PLASMON_OK) {
        status = rule_same_dtype(self, args, 1, 2, err);
    }
    if (status == PLASMON_OK) {
        status = rule_needs_length(self, args, 2, 0, args[1].shape.dim[0], "rows", 1, err);
    }
    return status == PLASMON_OK ? rule_output(self, args, 0, &args[2].shape, err) : status;
}

RULE(square)
{
    plasmon_status_t status;

    RULE_UNUSED();
    status = needs_square(self, args, 1, err);
    return status == PLASMON_OK ? rule_output(self, args, 0, &args[1].shape, err) : status;
}

RULE(determinant)
{
    struct pl_shape want = {.dtype = args[1].shape.dtype};
    plasmon_status_t status;

    RULE_UNUSED();
    status = needs_square(self, args, 1, err);
    return status == PLASMON_OK ? rule_output(self, args, 0, &want, err) : status;
}

RULE(qr)
{
    const struct pl_shape *a = &args[2].shape;
    int64_t k                = a->dim[0] < a->dim[1] ? a->dim[0] : a->dim[1];
    struct pl_shape q        = rule_shape_2d(a->dtype, a->dim[0], k);
    struct pl_shape r        = rule_shape_2d(a->dtype, k, a->dim[1]);
    plasmon_status_t status;

    RULE_UNUSED();
    status = rule_needs_ndim(self, args, 2, 2, err);
    if (status == PLASMON_OK) {
        status = rule_output(self, args, 0, &q, err);
    }
    return status == PLASMON_OK ? rule_output(self, args, 1, &r, err) : status;
}

RULE(svd)
{
    const struct pl_shape *a = &args[3].shape;
    int64_t k                = a->dim[0] < a->dim[1] ? a->dim[0] : a->dim[1];
    struct pl_shape u        = rule_shape_2d(a->dtype, a->dim[0], k);
    struct pl_shape s        = rule_shape_1d(a->dtype, k);
    struct pl_shape vh       = rule_shape_2d(a->dtype, k, a->dim[1]);
    plasmon_status_t status;

    RULE_UNUSED();
    status = rule_needs_ndim(self, args, 3, 2, err);
    if (status == PLASMON_OK) {
        status = rule_output(self, args, 0, &u, err);
    }
    if (status == PLASMON_OK) {
        status = rule_output(self, args, 1, &s, err);
    }
    return status == PLASMON_OK ? rule_output(self, args, 2, &vh, err) : status;
}

RULE(eigh)
{
    struct pl_shape w = rule_shape_1d(args[2].shape.dtype, args[2].shape.dim[0]);
    plasmon_status_t status;

    RULE_UNUSED();
    status = needs_square(self, args, 2, err);
    if (status == PLASMON_OK) {
        status = rule_output(self, args, 0, &w, err);
    }
    return status == PLASMON_OK ? rule_output(self, args, 1, &args[2].shape, err) : status;
}
