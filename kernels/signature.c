/*
 * Signatures at work: what an expression is worth in one call, and the shape rule that follows. See
 * signature.h.
 */
#include "kernels/signature_int.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* --------------------------------------------------------------------------- evaluation */

#define BOUND_BY_SCALAR (KERNEL_SLOTS_MAX + 1)

void kernel_scope_init(const struct kernel_signature *signature,
                       const union kernel_scalar *scalars, struct kernel_scope *scope)
{
    for (uint32_t i = 0; i < signature->symbol_count; i++) {
        int32_t scalar = signature->symbols[i].scalar;

        scope->bound_by[i] = scalar >= 0 ? BOUND_BY_SCALAR : 0;
        scope->value[i]    = scalar >= 0 ? scalars[scalar].i : 0;
    }
}

void kernel_scope_bind(const struct kernel_signature *signature, struct kernel_scope *scope,
                       uint32_t arg, const int64_t *dim)
{
    const struct kernel_slot *slot = &signature->slots[signature->tensor_slot[arg]];

    for (uint32_t i = 0; i < slot->ndim; i++) {
        const struct kernel_node *node = &signature->nodes[slot->dim[i].first];

        if (slot->dim[i].count == 1 && node->op == KERNEL_NODE_SYMBOL &&
            scope->bound_by[node->symbol] == 0) {
            scope->bound_by[node->symbol] = (uint8_t)(arg + 1);
            scope->value[node->symbol]    = dim[i];
        }
    }
}

static bool operate(uint32_t op, int64_t a, int64_t b, int64_t *out)
{
    switch (op) {
    case KERNEL_NODE_ADD:
        return !__builtin_add_overflow(a, b, out);
    case KERNEL_NODE_SUBTRACT:
        return !__builtin_sub_overflow(a, b, out);
    case KERNEL_NODE_MULTIPLY:
        return !__builtin_mul_overflow(a, b, out);
    default:
        if (b == 0 || (a == INT64_MIN && b == -1)) {
            return false;
        }
        *out = a / b;
        return true;
    }
}

plasmon_status_t kernel_scope_value(const struct kernel_signature *signature,
                                    const struct kernel_scope *scope,
                                    struct kernel_expr expr, int64_t *out_value,
                                    struct pl_err *err)
{
    const struct kernel_node *nodes = &signature->nodes[expr.first];
    int64_t stack[KERNEL_DEPTH_MAX];
    uint32_t top = 0;

    for (uint32_t i = 0; i < expr.count; i++) {
        switch (nodes[i].op) {
        case KERNEL_NODE_NUMBER:
            stack[top++] = nodes[i].number;
            break;
        case KERNEL_NODE_SYMBOL:
            if (scope->bound_by[nodes[i].symbol] == 0) {
                return pl_err_set(err, PLASMON_ESHAPE,
                                  "nothing tells %s; state the shape of an output that "
                                  "shows it",
                                  signature->symbols[nodes[i].symbol].name);
            }
            stack[top++] = scope->value[nodes[i].symbol];
            break;
        default:
            top--;
            if (!operate(nodes[i].op, stack[top - 1], stack[top], &stack[top - 1])) {
                return pl_err_set(err, PLASMON_ESHAPE,
                                  "its dimension cannot be computed: a division by zero, "
                                  "or a number over 63 bits");
            }
        }
    }
    *out_value = stack[0];
    return PLASMON_OK;
}

/* ----------------------------------------------------------------------- the shape rule */

/* "n is 4 from y, m is 3" for the names in a tensor's dimensions. */
static const char *explain(const struct kernel_signature *signature,
                           const struct kernel_scope *scope, const struct kernel_slot *slot,
                           char out[200])
{
    bool told[KERNEL_SYMBOLS_MAX] = {false};
    size_t length                 = 0;

    out[0] = '\0';
    for (uint32_t d = 0; d < slot->ndim; d++) {
        for (uint32_t i = 0; i < slot->dim[d].count; i++) {
            const struct kernel_node *node = &signature->nodes[slot->dim[d].first + i];
            uint8_t by;

            if (node->op != KERNEL_NODE_SYMBOL || told[node->symbol] || length > 120) {
                continue;
            }
            told[node->symbol] = true;
            by                 = scope->bound_by[node->symbol];
            length += (size_t)snprintf(
                out + length, 200 - length, "%s%.24s is %lld%s%.24s",
                length == 0 ? "; " : ", ", signature->symbols[node->symbol].name,
                (long long)scope->value[node->symbol], by == BOUND_BY_SCALAR ? "" : " by ",
                by == BOUND_BY_SCALAR
                    ? ""
                    : signature->slots[signature->tensor_slot[by - 1]].name);
        }
    }
    return out;
}

/* A scalar that its dtype cannot hold would reach the kernel as another number. */
static plasmon_status_t check_scalar(const struct kernel_function *self,
                                     const struct kernel_slot *slot,
                                     union kernel_scalar scalar, struct pl_err *err)
{
    uint32_t bits;
    int64_t low, high;

    if (slot->dtype == PL_BOOL) {
        low  = 0;
        high = 1;
    } else if (slot->dtype >= PL_I8 && slot->dtype <= PL_U32) {
        bits = pl_dtype_bytes(slot->dtype) * 8;
        /* I8 is 2, U8 3, .. */
        low  = slot->dtype % 2 == 0 ? -(INT64_C(1) << (bits - 1)) : 0;
        high = slot->dtype % 2 == 0 ? (INT64_C(1) << (bits - 1)) - 1
                                    : (INT64_C(1) << bits) - 1;
    } else if (slot->dtype == PL_F32 && isfinite(scalar.f) &&
               fabs(scalar.f) > (double)FLT_MAX) {
        return pl_err_set(err, PLASMON_EINVAL, "%s: %s is %g, needs %g to %g, or inf (f32)",
                          self->name, slot->name, scalar.f, -(double)FLT_MAX,
                          (double)FLT_MAX);
    } else {
        return PLASMON_OK;
    }
    if (scalar.i >= low && scalar.i <= high) {
        return PLASMON_OK;
    }
    return pl_err_set(err, PLASMON_EINVAL, "%s: %s is %lld, needs %lld to %lld (%s)",
                      self->name, slot->name, (long long)scalar.i, (long long)low,
                      (long long)high, pl_dtype_name(slot->dtype));
}

static plasmon_status_t check_known(const struct kernel_signature *signature,
                                    const struct kernel_slot *slot,
                                    const struct kernel_arg_shape *arg, struct pl_err *err)
{
    char shape[128];

    if (slot->mode == KERNEL_REDUCE && arg->reduce_op != slot->reduce_op) {
        static const char *const names[] = {"none", "sum", "prod", "min", "max"};

        return pl_err_set(err, PLASMON_EINVAL, "%s: %s is reduced by %s, needs %s",
                          signature->function.name, slot->name,
                          arg->reduce_op < PL_COUNT(names) ? names[arg->reduce_op] : "?",
                          names[slot->reduce_op]);
    }
    if (arg->shape.ndim == slot->ndim) {
        return PLASMON_OK;
    }
    return pl_err_set(err, PLASMON_ESHAPE, "%s: %s is %s, needs %u dimension%s",
                      signature->function.name, slot->name,
                      pl_shape_format(&arg->shape, shape), slot->ndim,
                      slot->ndim == 1 ? "" : "s");
}

static plasmon_status_t check_dims(const struct kernel_signature *signature,
                                   const struct kernel_scope *scope,
                                   const struct kernel_slot *slot,
                                   struct kernel_arg_shape *arg, bool known,
                                   struct pl_err *err)
{
    struct pl_shape want = {.dtype = slot->dtype, .ndim = slot->ndim};
    struct pl_err inner;
    plasmon_status_t status;
    char is_text[128], want_text[128], why[200];

    pl_err_init(&inner);
    for (uint32_t i = 0; i < slot->ndim; i++) {
        status = kernel_scope_value(signature, scope, slot->dim[i], &want.dim[i], &inner);
        if (status != PLASMON_OK) {
            return pl_err_set(err, status, "%s: %s: %s", signature->function.name,
                              slot->name, inner.text);
        }
    }
    if (!known) {
        arg->shape = want;
        status     = pl_shape_check(&want, &inner);
        return status == PLASMON_OK
                   ? PLASMON_OK
                   : pl_err_set(err, status, "%s: %s cannot be made: %s%s",
                                signature->function.name, slot->name, inner.text,
                                explain(signature, scope, slot, why));
    }
    if (pl_shape_equal(&arg->shape, &want)) {
        return PLASMON_OK;
    }
    return pl_err_set(
        err, PLASMON_ESHAPE, "%s: %s is %s, needs %s%s", signature->function.name,
        slot->name, pl_shape_format(&arg->shape, is_text),
        pl_shape_format(&want, want_text), explain(signature, scope, slot, why));
}

static bool is_known(const struct kernel_arg_shape *arg)
{
    return arg->given || (arg->mode != KERNEL_OUT && arg->mode != KERNEL_SCRATCH);
}

/* kernel_check() has seen to arity, modes and dtypes. */
plasmon_status_t kernel_signature_infer(const struct kernel_function *self,
                                        struct kernel_arg_shape *args, uint32_t arg_count,
                                        const union kernel_scalar *scalars,
                                        uint32_t scalar_count, struct pl_err *err)
{
    const struct kernel_signature *signature = kernel_signature_of(self);
    struct kernel_scope scope;
    plasmon_status_t status = PLASMON_OK;

    PL_CHECK(arg_count == signature->tensor_count &&
             scalar_count == signature->scalar_count);
    for (uint32_t i = 0; status == PLASMON_OK && i < signature->slot_count; i++) {
        const struct kernel_slot *slot = &signature->slots[i];

        if (slot->kind == KERNEL_SLOT_SCALAR) {
            status = check_scalar(self, slot, scalars[slot->index], err);
        } else if (slot->kind == KERNEL_SLOT_TENSOR && is_known(&args[slot->index])) {
            status = check_known(signature, slot, &args[slot->index], err);
        }
    }
    if (status != PLASMON_OK) {
        return status;
    }

    kernel_scope_init(signature, scalars, &scope);
    for (uint32_t i = 0; i < arg_count; i++) {
        if (is_known(&args[i])) {
            kernel_scope_bind(signature, &scope, i, args[i].shape.dim);
        }
    }
    for (uint32_t i = 0; status == PLASMON_OK && i < arg_count; i++) {
        status = check_dims(signature, &scope, &signature->slots[signature->tensor_slot[i]],
                            &args[i], is_known(&args[i]), err);
    }
    for (uint32_t i = 0; status == PLASMON_OK && i < signature->slot_count; i++) {
        const struct kernel_slot *slot = &signature->slots[i];
        union kernel_scalar value;
        struct pl_err inner;

        if (slot->kind == KERNEL_SLOT_COMPUTED) {
            pl_err_init(&inner);
            status = kernel_scope_value(signature, &scope, slot->dim[0], &value.i, &inner);
            status = status == PLASMON_OK ? check_scalar(self, slot, value, err)
                                          : pl_err_set(err, status, "%s: %s: %s",
                                                       self->name, slot->name, inner.text);
        }
    }
    return status;
}
