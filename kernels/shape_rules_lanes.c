/*
 * Shape rules of functions that work along an axis (see shape_rules.h), of where, and of Fourier transforms.
 */
#include "kernels/shape_rules_int.h"

RULE(norm)
{
    struct pl_shape want;
    plasmon_status_t status;
    double p = scalars[2].f;

    RULE_UNUSED();
    if (p != 1 && p != 2 && !(p > 0 && p - p != 0)) {
        return pl_err_set(err, PLASMON_EINVAL, "%s: p is %g, needs 1, 2 or infinity",
                          self->name, p);
    }
    status     = rule_reduced(self, args, scalars, &want, err);
    want.dtype = rule_real_of(want.dtype);
    return status == PLASMON_OK ? rule_output(self, args, 0, &want, err) : status;
}

static plasmon_status_t needs_axis(const struct kernel_function *self,
                                   const struct kernel_arg_shape *args, int64_t axis,
                                   int64_t lowest, struct pl_err *err)
{
    int64_t ndim = (int64_t)args[1].shape.ndim;

    if (axis >= lowest && axis < ndim) {
        return PLASMON_OK;
    }
    if (ndim == 0) {
        return pl_err_set(err, PLASMON_EINVAL, "%s, and a single element has no axis %lld",
                          rule_is(self, args, 1).text, (long long)axis);
    }
    return pl_err_set(err, PLASMON_EINVAL, "%s, axis is %lld, needs 0 to %lld%s",
                      rule_is(self, args, 1).text, (long long)axis, (long long)ndim - 1,
                      lowest < 0 ? ", or -1 for all axes" : "");
}

RULE(softmax)
{
    plasmon_status_t status;

    RULE_UNUSED();
    status = needs_axis(self, args, scalars[0].i, -1, err);
    return status == PLASMON_OK ? rule_output(self, args, 0, &args[1].shape, err) : status;
}

RULE(scan)
{
    plasmon_status_t status;

    RULE_UNUSED();
    status = needs_axis(self, args, scalars[0].i, 0, err);
    return status == PLASMON_OK ? rule_output(self, args, 0, &args[1].shape, err) : status;
}

static plasmon_status_t needs_rows(const struct kernel_function *self,
                                   const struct kernel_arg_shape *args, uint32_t index,
                                   struct pl_err *err)
{
    if (args[index].shape.ndim >= 1) {
        return PLASMON_OK;
    }
    return pl_err_set(err, PLASMON_ESHAPE, "%s, needs at least 1 dimension",
                      rule_is(self, args, index).text);
}

RULE(sort)
{
    plasmon_status_t status;

    RULE_UNUSED();
    status = needs_rows(self, args, 1, err);
    return status == PLASMON_OK ? rule_output(self, args, 0, &args[1].shape, err) : status;
}

RULE(argsort)
{
    struct pl_shape want = args[1].shape;
    plasmon_status_t status;

    RULE_UNUSED();
    want.dtype = PL_I64;
    status     = needs_rows(self, args, 1, err);
    return status == PLASMON_OK ? rule_output(self, args, 0, &want, err) : status;
}

RULE(sort_into)
{
    plasmon_status_t status;
    char shape[128];

    RULE_UNUSED();
    status = needs_rows(self, args, 0, err);
    if (status == PLASMON_OK && !pl_shape_equal(&args[0].shape, &args[1].shape)) {
        status = pl_err_set(err,
                            args[0].shape.dtype != args[1].shape.dtype ? PLASMON_EDTYPE
                                                                       : PLASMON_ESHAPE,
                            "%s, needs x's, %s", rule_is(self, args, 1).text,
                            pl_shape_format(&args[0].shape, shape));
    }
    return status;
}

RULE(where)
{
    struct kernel_arg_shape both[3] = {args[0], args[1], args[2]};
    struct pl_shape want;
    plasmon_status_t status;

    RULE_UNUSED();
    status = rule_same_dtype(self, args, 2, 3, err);
    if (status == PLASMON_OK) {
        status = rule_needs_broadcast(self, args, 2, 3, &want, err);
    }
    if (status == PLASMON_OK) {
        both[2].shape = want;
        status        = rule_needs_broadcast(self, both, 2, 1, &want, err);
    }
    return status == PLASMON_OK ? rule_output(self, args, 0, &want, err) : status;
}

/* --------------------------------------------------------------------------- transforms */

#define FFT_AXES_MAX 3

static plasmon_status_t needs_axes(const struct kernel_function *self,
                                   const struct kernel_arg_shape *args, int64_t axes,
                                   struct pl_err *err)
{
    if (axes < 1 || axes > FFT_AXES_MAX) {
        return pl_err_set(err, PLASMON_EINVAL, "%s: axes is %lld, needs 1 to %d",
                          self->name, (long long)axes, FFT_AXES_MAX);
    }
    if ((int64_t)args[1].shape.ndim < axes) {
        return pl_err_set(err, PLASMON_ESHAPE, "%s, needs at least %lld dimensions",
                          rule_is(self, args, 1).text, (long long)axes);
    }
    return PLASMON_OK;
}

RULE(fft)
{
    plasmon_status_t status;

    RULE_UNUSED();
    status = needs_axes(self, args, scalars[0].i, err);
    return status == PLASMON_OK ? rule_output(self, args, 0, &args[1].shape, err) : status;
}

RULE(rfft)
{
    struct pl_shape want = args[1].shape;
    plasmon_status_t status;

    RULE_UNUSED();
    status = needs_axes(self, args, scalars[0].i, err);
    if (status != PLASMON_OK) {
        return status;
    }
    want.dtype              = want.dtype == PL_F32 ? PL_C64 : PL_C128;
    want.dim[want.ndim - 1] = want.dim[want.ndim - 1] / 2 + 1;
    return rule_output(self, args, 0, &want, err);
}

RULE(irfft)
{
    struct pl_shape want = args[1].shape;
    int64_t n            = scalars[1].i;
    plasmon_status_t status;
    int64_t half;

    RULE_UNUSED();
    status = needs_axes(self, args, scalars[0].i, err);
    if (status != PLASMON_OK) {
        return status;
    }
    half = want.dim[want.ndim - 1];
    n    = n == 0 ? 2 * (half - 1) : n;
    if (n != 1 && half == 1) {
        return pl_err_set(err, PLASMON_EINVAL, "%s, n is %lld, needs 1: x has n / 2 + 1",
                          rule_is(self, args, 1).text, (long long)scalars[1].i);
    }
    if (n < 1 || n / 2 + 1 != half) {
        return pl_err_set(err, PLASMON_EINVAL,
                          "%s, n is %lld, needs %lld or %lld: x has n / 2 + 1 elements",
                          rule_is(self, args, 1).text, (long long)scalars[1].i,
                          (long long)(2 * half - 2), (long long)(2 * half - 1));
    }
    want.dtype              = rule_real_of(want.dtype);
    want.dim[want.ndim - 1] = n;
    return rule_output(self, args, 0, &want, err);
}
