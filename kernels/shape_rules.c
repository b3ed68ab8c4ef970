/*
 * Shape rules (see shape_rules.h) and their tools (shape_rules_int.h).
 */
#include "kernels/kernel_int.h"
#include "kernels/shape_rules_int.h"

#include <stdio.h>
#include <string.h>

/* ------------------------------------------------------------------------------ helpers */

/* Name of the i-th tensor argument: "a", or "x[2]" for the third of a variadic x. */
static void arg_name(const struct kernel_function *self, uint32_t index, char out[64])
{
    uint32_t seen = 0;

    out[0] = '\0';
    for (uint32_t i = 0; i < self->param_count; i++) {
        const struct kernel_param *param = &self->params[i];

        if (param->scalar) {
            continue;
        }
        if (param->variadic) {
            (void)snprintf(out, 64, "%s[%u]", param->name, index - seen);
            return;
        }
        if (seen == index) {
            (void)snprintf(out, 64, "%s", param->name);
            return;
        }
        seen++;
    }
}

struct rule_text rule_is(const struct kernel_function *self,
                         const struct kernel_arg_shape *args, uint32_t index)
{
    struct rule_text result;
    char name[64];
    char shape[128];

    arg_name(self, index, name);
    (void)snprintf(result.text, sizeof(result.text), "%s: %s is %s", self->name, name,
                   pl_shape_format(&args[index].shape, shape));
    return result;
}

plasmon_status_t rule_same_dtype(const struct kernel_function *self,
                                 const struct kernel_arg_shape *args, uint32_t a,
                                 uint32_t b, struct pl_err *err)
{
    char name[64];

    if (args[a].shape.dtype == args[b].shape.dtype) {
        return PLASMON_OK;
    }
    arg_name(self, a, name);
    return pl_err_set(err, PLASMON_EDTYPE, "%s, needs %s like %s",
                      rule_is(self, args, b).text, pl_dtype_name(args[a].shape.dtype),
                      name);
}

plasmon_status_t rule_needs_ndim(const struct kernel_function *self,
                                 const struct kernel_arg_shape *args, uint32_t index,
                                 uint32_t ndim, struct pl_err *err)
{
    if (args[index].shape.ndim == ndim) {
        return PLASMON_OK;
    }
    return pl_err_set(err, PLASMON_ESHAPE, "%s, needs %u dimension%s",
                      rule_is(self, args, index).text, ndim, ndim == 1 ? "" : "s");
}

/* Dimension `dim` of `index` must be `want`, as `to_match` says; `what` is "rows", "columns", "elements". */
plasmon_status_t rule_needs_length(const struct kernel_function *self,
                                   const struct kernel_arg_shape *args, uint32_t index,
                                   uint32_t dim, int64_t want, const char *what,
                                   uint32_t to_match, struct pl_err *err)
{
    char name[64];
    char shape[128];

    if (args[index].shape.dim[dim] == want) {
        return PLASMON_OK;
    }
    arg_name(self, to_match, name);
    return pl_err_set(err, PLASMON_ESHAPE, "%s, needs %lld %s to match %s %s",
                      rule_is(self, args, index).text, (long long)want, what, name,
                      pl_shape_format(&args[to_match].shape, shape));
}

/* The output is `want`: fill it in, or check what the caller stated. */
plasmon_status_t rule_output(const struct kernel_function *self,
                             struct kernel_arg_shape *args, uint32_t index,
                             const struct pl_shape *want, struct pl_err *err)
{
    char shape[128];

    if (!args[index].given) {
        args[index].shape = *want;
        return PLASMON_OK;
    }
    if (pl_shape_equal(&args[index].shape, want)) {
        return PLASMON_OK;
    }
    return pl_err_set(
        err, args[index].shape.dtype != want->dtype ? PLASMON_EDTYPE : PLASMON_ESHAPE,
        "%s, the result is %s", rule_is(self, args, index).text,
        pl_shape_format(want, shape));
}

/* a and b broadcast as in NumPy: aligned at the last dimension, 1 stretches. */
static bool broadcast(const struct pl_shape *a, const struct pl_shape *b,
                      struct pl_shape *out)
{
    struct pl_shape result = {.dtype = a->dtype};

    result.ndim = a->ndim > b->ndim ? a->ndim : b->ndim;
    for (uint32_t i = 0; i < result.ndim; i++) {
        int64_t da = i < a->ndim ? a->dim[a->ndim - 1 - i] : 1;
        int64_t db = i < b->ndim ? b->dim[b->ndim - 1 - i] : 1;

        if (da != db && da != 1 && db != 1) {
            return false;
        }
        result.dim[result.ndim - 1 - i] = da == 1 ? db : da;
    }
    *out = result;
    return true;
}

plasmon_status_t rule_needs_broadcast(const struct kernel_function *self,
                                      const struct kernel_arg_shape *args, uint32_t a,
                                      uint32_t b, struct pl_shape *out, struct pl_err *err)
{
    char name[64];
    char shape[128];

    if (broadcast(&args[a].shape, &args[b].shape, out)) {
        return PLASMON_OK;
    }
    arg_name(self, a, name);
    return pl_err_set(err, PLASMON_ESHAPE, "%s, needs a shape that broadcasts with %s %s",
                      rule_is(self, args, b).text, name,
                      pl_shape_format(&args[a].shape, shape));
}

struct pl_shape rule_shape_1d(uint32_t dtype, int64_t n)
{
    return (struct pl_shape){.dtype = dtype, .ndim = 1, .dim = {n}};
}

struct pl_shape rule_shape_2d(uint32_t dtype, int64_t m, int64_t n)
{
    return (struct pl_shape){.dtype = dtype, .ndim = 2, .dim = {m, n}};
}

/* -------------------------------------------------------------------------- elementwise */

RULE(none)
{
    RULE_UNUSED();
    return PLASMON_OK;
}

RULE(stated)
{
    RULE_UNUSED();
    if (!args[0].given) {
        return pl_err_set(
            err, PLASMON_ESHAPE,
            "%s: x is an output that nothing tells the shape of; state its dtype "
            "and shape",
            self->name);
    }
    return PLASMON_OK;
}

RULE(like)
{
    RULE_UNUSED();
    return rule_output(self, args, 0, &args[1].shape, err);
}

uint32_t rule_real_of(uint32_t dtype)
{
    return dtype == PL_C64 ? PL_F32 : dtype == PL_C128 ? PL_F64 : dtype;
}

RULE(part)
{
    struct pl_shape want = args[1].shape;

    RULE_UNUSED();
    want.dtype = rule_real_of(want.dtype);
    return rule_output(self, args, 0, &want, err);
}

RULE(cast)
{
    struct pl_shape want = args[1].shape;

    RULE_UNUSED();
    if (!args[0].given) {
        return pl_err_set(err, PLASMON_EDTYPE,
                          "%s: nothing tells the dtype of y; state its dtype and shape",
                          self->name);
    }
    want.dtype = args[0].shape.dtype;
    return rule_output(self, args, 0, &want, err);
}

RULE(logical)
{
    struct pl_shape want = args[1].shape;

    RULE_UNUSED();
    want.dtype = PL_BOOL;
    return rule_output(self, args, 0, &want, err);
}

RULE(binary)
{
    struct pl_shape want;
    plasmon_status_t status;

    RULE_UNUSED();
    status = rule_same_dtype(self, args, 1, 2, err);
    if (status == PLASMON_OK) {
        status = rule_needs_broadcast(self, args, 1, 2, &want, err);
    }
    if (status == PLASMON_OK) {
        status = rule_output(self, args, 0, &want, err);
    }
    return status;
}

RULE(compare)
{
    struct pl_shape want;
    plasmon_status_t status;

    RULE_UNUSED();
    status = rule_same_dtype(self, args, 1, 2, err);
    if (status == PLASMON_OK) {
        status = rule_needs_broadcast(self, args, 1, 2, &want, err);
    }
    if (status == PLASMON_OK) {
        want.dtype = PL_BOOL;
        status     = rule_output(self, args, 0, &want, err);
    }
    return status;
}

/* Complex numbers have no order. */
static plasmon_status_t needs_order(const struct kernel_function *self,
                                    const struct kernel_arg_shape *args, uint32_t index,
                                    int64_t reduce_op, struct pl_err *err)
{
    uint32_t dtype = args[index].shape.dtype;

    if ((reduce_op != KERNEL_MIN && reduce_op != KERNEL_MAX) ||
        (dtype != PL_C64 && dtype != PL_C128)) {
        return PLASMON_OK;
    }
    return pl_err_set(
        err, PLASMON_EDTYPE,
        "%s, which has no smallest and no largest; reduce it by sum or product",
        rule_is(self, args, index).text);
}

plasmon_status_t rule_needs_sum(const struct kernel_function *self,
                                const struct kernel_arg_shape *args, uint32_t index,
                                struct pl_err *err)
{
    static const char *const names[] = {"none", "sum", "product", "min", "max"};
    uint32_t op                      = args[index].reduce_op;

    if (args[index].mode != KERNEL_REDUCE || op == 0 || op == KERNEL_SUM) {
        return PLASMON_OK;
    }
    return pl_err_set(err, PLASMON_EINVAL,
                      "%s: %s is reduced by %s, needs sum; accumulate takes all operations",
                      self->name, self->params[index].name,
                      op < PL_COUNT(names) ? names[op] : "?");
}

RULE(into)
{
    struct pl_shape both;
    plasmon_status_t status;
    char shape[128];

    RULE_UNUSED();
    status = rule_same_dtype(self, args, 0, 1, err);
    if (status == PLASMON_OK) {
        status = rule_needs_broadcast(self, args, 0, 1, &both, err);
    }
    if (status == PLASMON_OK && !pl_shape_equal(&both, &args[0].shape)) {
        status =
            pl_err_set(err, PLASMON_ESHAPE, "%s, needs a shape that broadcasts to y %s",
                       rule_is(self, args, 1).text, pl_shape_format(&args[0].shape, shape));
    }
    if (status == PLASMON_OK && kernel_id_of(self) != KERNEL_ID_accumulate) {
        status = rule_needs_sum(self, args, 0, err);
    }
    if (status == PLASMON_OK && args[0].mode == KERNEL_REDUCE) {
        status = needs_order(self, args, 0, args[0].reduce_op, err);
    }
    return status;
}

/* The arrays from `like` + 1 on are as that one is, and the operation is one for them. */
static plasmon_status_t folds(const struct kernel_function *self,
                              const struct kernel_arg_shape *args, uint32_t arg_count,
                              const union kernel_scalar *scalars, uint32_t like,
                              struct pl_err *err)
{
    plasmon_status_t status;
    char shape[128];

    if (scalars[0].i < KERNEL_SUM || scalars[0].i > KERNEL_MAX) {
        return pl_err_set(err, PLASMON_EINVAL,
                          "%s: op is %lld, needs 1 (sum), 2 (product), 3 (min) or 4 (max)",
                          self->name, (long long)scalars[0].i);
    }
    if (arg_count - 1 > KERNEL_FOLD_MAX) {
        return pl_err_set(err, PLASMON_EARITY, "%s: got %u partials, takes at most %u",
                          self->name, arg_count - 1, KERNEL_FOLD_MAX);
    }
    status = needs_order(self, args, like, scalars[0].i, err);
    if (status != PLASMON_OK) {
        return status;
    }
    for (uint32_t i = like + 1; i < arg_count; i++) {
        status = rule_same_dtype(self, args, like, i, err);
        if (status != PLASMON_OK) {
            return status;
        }
        if (!pl_shape_equal(&args[like].shape, &args[i].shape)) {
            return pl_err_set(err, PLASMON_ESHAPE, "%s, needs the shape of %s, %s",
                              rule_is(self, args, i).text, like == 0 ? "y" : "x[0]",
                              pl_shape_format(&args[like].shape, shape));
        }
    }
    return PLASMON_OK;
}

RULE(fold)
{
    RULE_UNUSED();
    return folds(self, args, arg_count, scalars, 0, err);
}

RULE(combine)
{
    plasmon_status_t status;

    RULE_UNUSED();
    status = folds(self, args, arg_count, scalars, 1, err);
    return status == PLASMON_OK ? rule_output(self, args, 0, &args[1].shape, err) : status;
}

/* --------------------------------------------------------------------------- reductions */

/* Shape of a reduction of args[1]; dtype as x. */
plasmon_status_t rule_reduced(const struct kernel_function *self,
                              const struct kernel_arg_shape *args,
                              const union kernel_scalar *scalars, struct pl_shape *out,
                              struct pl_err *err)
{
    const struct pl_shape *x = &args[1].shape;
    int64_t axis             = scalars[0].i;
    bool keep                = scalars[1].i != 0;

    if (x->ndim == 0 && axis != -1) {
        return pl_err_set(err, PLASMON_EINVAL,
                          "%s, and a single element has no axis %lld; -1 is all of it",
                          rule_is(self, args, 1).text, (long long)axis);
    }
    if (axis < -1 || axis >= (int64_t)x->ndim) {
        return pl_err_set(err, PLASMON_EINVAL,
                          "%s, axis is %lld, needs 0 to %d, or -1 for all axes",
                          rule_is(self, args, 1).text, (long long)axis, (int)x->ndim - 1);
    }
    *out = (struct pl_shape){.dtype = x->dtype};
    for (uint32_t i = 0; i < x->ndim; i++) {
        bool gone = axis == -1 || axis == (int64_t)i;

        if (!gone || keep) {
            out->dim[out->ndim++] = gone ? 1 : x->dim[i];
        }
    }
    return PLASMON_OK;
}

RULE(reduce)
{
    struct pl_shape want;
    plasmon_status_t status;

    RULE_UNUSED();
    status = rule_reduced(self, args, scalars, &want, err);
    return status == PLASMON_OK ? rule_output(self, args, 0, &want, err) : status;
}

RULE(mean)
{
    struct pl_shape want;
    plasmon_status_t status;

    RULE_UNUSED();
    status = rule_reduced(self, args, scalars, &want, err);
    if (status != PLASMON_OK) {
        return status;
    }
    if (want.dtype == PL_I32 || want.dtype == PL_I64) {
        want.dtype = PL_F64;
    }
    return rule_output(self, args, 0, &want, err);
}

RULE(arg_reduce)
{
    struct pl_shape want;
    plasmon_status_t status;

    RULE_UNUSED();
    status = rule_reduced(self, args, scalars, &want, err);
    if (status != PLASMON_OK) {
        return status;
    }
    want.dtype = PL_I64;
    return rule_output(self, args, 0, &want, err);
}

RULE(checksum)
{
    struct pl_shape want = {.dtype = PL_U64};

    RULE_UNUSED();
    return rule_output(self, args, 0, &want, err);
}

/* ------------------------------------------------------------------------------- moving */

RULE(transpose)
{
    struct pl_shape want = args[1].shape;

    RULE_UNUSED();
    if (want.ndim < 2) {
        return pl_err_set(err, PLASMON_ESHAPE, "%s, needs at least 2 dimensions",
                          rule_is(self, args, 1).text);
    }
    want.dim[want.ndim - 1] = args[1].shape.dim[want.ndim - 2];
    want.dim[want.ndim - 2] = args[1].shape.dim[want.ndim - 1];
    return rule_output(self, args, 0, &want, err);
}

RULE(permute)
{
    const struct pl_shape *x = &args[1].shape;
    struct pl_shape want     = {.dtype = x->dtype, .ndim = x->ndim};
    uint32_t seen            = 0;

    RULE_UNUSED();
    for (uint32_t i = 0; i < x->ndim; i++) {
        int64_t from = scalars[i].i;

        if (from < 0 || from >= (int64_t)x->ndim || (seen & (1u << from)) != 0) {
            return pl_err_set(
                err, PLASMON_EINVAL, "%s, p%u is %lld, needs each of 0 to %d once",
                rule_is(self, args, 1).text, i, (long long)from, (int)x->ndim - 1);
        }
        seen |= 1u << from;
        want.dim[i] = x->dim[from];
    }
    return rule_output(self, args, 0, &want, err);
}

RULE(concatenate)
{
    const struct pl_shape *first = &args[1].shape;
    struct pl_shape want         = *first;
    int64_t axis                 = scalars[0].i;
    plasmon_status_t status;
    char shape[128];

    RULE_UNUSED();
    if (axis < 0 || axis >= (int64_t)first->ndim) {
        return pl_err_set(err, PLASMON_EINVAL, "%s, axis is %lld, needs 0 to %d",
                          rule_is(self, args, 1).text, (long long)axis,
                          (int)first->ndim - 1);
    }
    for (uint32_t i = 2; i < arg_count; i++) {
        struct pl_shape same = args[i].shape;

        status = rule_same_dtype(self, args, 1, i, err);
        if (status != PLASMON_OK) {
            return status;
        }
        if (same.ndim == first->ndim) {
            want.dim[axis] += same.dim[axis];
            same.dim[axis] = first->dim[axis];
        }
        if (!pl_shape_equal(&same, first)) {
            return pl_err_set(err, PLASMON_ESHAPE,
                              "%s, needs the shape of x[0], %s, but for axis %lld",
                              rule_is(self, args, i).text, pl_shape_format(first, shape),
                              (long long)axis);
        }
    }
    return rule_output(self, args, 0, &want, err);
}

/* --------------------------------------------------------------------------- neighbours */

static plasmon_status_t needs_k(const struct kernel_function *self, int64_t k,
                                struct pl_err *err)
{
    if (k >= 1) {
        return PLASMON_OK;
    }
    return pl_err_set(err, PLASMON_EINVAL, "%s: k is %lld, needs at least 1", self->name,
                      (long long)k);
}

RULE(topk_min)
{
    struct pl_shape want;
    plasmon_status_t status;

    RULE_UNUSED();
    status = needs_k(self, scalars[0].i, err);
    if (status == PLASMON_OK) {
        status = rule_needs_ndim(self, args, 2, 2, err);
    }
    if (status != PLASMON_OK) {
        return status;
    }
    want        = args[2].shape;
    want.dim[1] = want.dim[1] < scalars[0].i ? want.dim[1] : scalars[0].i;
    status      = rule_output(self, args, 0, &want, err);
    if (status != PLASMON_OK) {
        return status;
    }
    want.dtype = PL_I64;
    return rule_output(self, args, 1, &want, err);
}

RULE(topk_merge)
{
    struct pl_shape want;
    plasmon_status_t status;
    int64_t columns;

    RULE_UNUSED();
    status = needs_k(self, scalars[0].i, err);
    for (uint32_t i = 2; i < 6 && status == PLASMON_OK; i++) {
        status = rule_needs_ndim(self, args, i, 2, err);
    }
    for (uint32_t i = 3; i < 6 && status == PLASMON_OK; i++) {
        status = rule_needs_length(self, args, i, 0, args[2].shape.dim[0], "rows", 2, err);
    }
    for (uint32_t i = 2; i < 6 && status == PLASMON_OK; i += 2) {
        status = rule_needs_length(self, args, i + 1, 1, args[i].shape.dim[1], "columns", i,
                                   err);
    }
    if (status == PLASMON_OK) {
        status = rule_same_dtype(self, args, 2, 4, err);
    }
    if (status != PLASMON_OK) {
        return status;
    }
    want        = args[2].shape;
    columns     = args[2].shape.dim[1] + args[4].shape.dim[1];
    want.dim[1] = columns < scalars[0].i ? columns : scalars[0].i;
    status      = rule_output(self, args, 0, &want, err);
    if (status != PLASMON_OK) {
        return status;
    }
    want.dtype = PL_I64;
    return rule_output(self, args, 1, &want, err);
}

RULE(vote)
{
    struct pl_shape want = rule_shape_1d(PL_I32, args[1].shape.dim[0]);
    plasmon_status_t status;

    RULE_UNUSED();
    status = rule_needs_ndim(self, args, 1, 2, err);
    if (status == PLASMON_OK) {
        status = rule_needs_ndim(self, args, 2, 1, err);
    }
    return status == PLASMON_OK ? rule_output(self, args, 0, &want, err) : status;
}
