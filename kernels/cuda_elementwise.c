/*
 * Launching the elementwise functions, and those that make values from nothing; see cuda_elementwise.cu.
 */
#include "kernels/cuda_int.h"
#include "kernels/matrix.h"

#include <string.h>

/* ------------------------------------------------------------------------ unary, binary */

/* One thread an element, or a pack of 16 bytes. */
static plasmon_status_t launch(const struct cuda_call *call, uint32_t kernel,
                               struct cuda_elementwise *params, uint32_t element_bytes)
{
    int64_t items = params->walk.count;

    if (params->walk.dense) {
        items = items / (16 / element_bytes) + 1;
    }
    return cuda_launch(call, kernel, cuda_blocks(call, items), 256, 1, params);
}

static bool is_heavy(int op, uint32_t dtype)
{
    switch (op) {
    case KERNEL_OP_SQRT:
        return kernel_is_complex(dtype);
#define XX(name, expression) case KERNEL_OP_##name:
        KERNEL_UNARY_HEAVY(XX)
#undef XX
        return true;
    default:
        return false;
    }
}

static plasmon_status_t unary(const struct cuda_call *call, double scalar)
{
    const struct kernel_arg *x     = &call->args[1];
    uint32_t bytes                 = pl_dtype_bytes(x->dtype);
    struct cuda_elementwise params = {.op = call->op};
    struct kernel_walk walk;

    kernel_walk_init(&walk, &call->args[0]);
    kernel_walk_add(&walk, x);
    params.walk = cuda_walk_of(&walk, bytes);
    cuda_scalar_bits(x->dtype, scalar, params.scalar);
    if (is_heavy(call->op, x->dtype)) {
        return launch(call, CUDA_heavy_f32 + cuda_float_index(x->dtype), &params, bytes);
    }
    return launch(call, CUDA_unary_f32 + cuda_type_index(x->dtype), &params, bytes);
}

plasmon_status_t cuda_unary(const struct cuda_call *call)
{
    return unary(call, 0);
}

plasmon_status_t cuda_scalar(const struct cuda_call *call)
{
    return unary(call, call->scalars[0].f);
}

/* y is real. */
plasmon_status_t cuda_part(const struct cuda_call *call)
{
    uint32_t dtype                 = call->args[1].dtype;
    struct cuda_elementwise params = {.op = call->op};
    struct kernel_walk walk;

    if (!kernel_is_complex(dtype)) { /* abs of a real number */
        return unary(call, 0);
    }
    kernel_walk_init(&walk, &call->args[0]);
    kernel_walk_add(&walk, &call->args[1]);
    params.walk = cuda_walk_of(&walk, 0);
    return launch(call, dtype == PL_C64 ? CUDA_part_c64 : CUDA_part_c128, &params, 0);
}

/* y = a op b; a may be y. */
static plasmon_status_t binary(const struct cuda_call *call, int op, double scalar,
                               const struct kernel_arg *y, const struct kernel_arg *a,
                               const struct kernel_arg *b)
{
    uint32_t bytes  = pl_dtype_bytes(a->dtype);
    uint32_t kernel = op == KERNEL_OP_POWER ? CUDA_power_f32 : CUDA_binary_f32;
    struct cuda_elementwise params = {.op = op};
    struct kernel_walk walk;

    kernel_walk_init(&walk, y);
    kernel_walk_add(&walk, a);
    kernel_walk_add(&walk, b);
    params.walk = cuda_walk_of(&walk, bytes);
    cuda_scalar_bits(a->dtype, scalar, params.scalar);
    return launch(call, kernel + cuda_type_index(a->dtype), &params, bytes);
}

plasmon_status_t cuda_binary(const struct cuda_call *call)
{
    return binary(call, call->op, 0, &call->args[0], &call->args[1], &call->args[2]);
}

plasmon_status_t cuda_into(const struct cuda_call *call)
{
    const struct kernel_arg *y = &call->args[0];
    int op                     = call->op;
    double scalar              = op == KERNEL_OP_AXPY ? call->scalars[0].f : 0;

    if (kernel_id_of(call->function) == KERNEL_ID_accumulate) {
        op = kernel_op_of_reduce(y->reduce_op);
    }
    return binary(call, op, scalar, y, y, &call->args[1]);
}

/* ------------------------------------------------------------------------------ compare */

static plasmon_status_t compare(const struct cuda_call *call, const struct kernel_arg *a,
                                const struct kernel_arg *b)
{
    struct cuda_elementwise params = {.op = call->op};
    uint32_t kernel                = CUDA_compare_bool;
    struct kernel_walk walk;

    if (a->dtype != PL_BOOL) {
        kernel = CUDA_compare_f32 + cuda_type_index(a->dtype);
    }
    kernel_walk_init(&walk, &call->args[0]);
    kernel_walk_add(&walk, a);
    kernel_walk_add(&walk, b);
    params.walk = cuda_walk_of(&walk, 0);
    return launch(call, kernel, &params, 0);
}

plasmon_status_t cuda_compare(const struct cuda_call *call)
{
    return compare(call, &call->args[1], &call->args[2]);
}

plasmon_status_t cuda_logical(const struct cuda_call *call)
{
    return compare(call, &call->args[1], &call->args[1]);
}

/* --------------------------------------------------------------------------- fill, cast */

static plasmon_status_t fill(const struct cuda_call *call, union kernel_value value)
{
    const struct kernel_arg *x     = &call->args[0];
    uint32_t bytes                 = pl_dtype_bytes(x->dtype);
    struct cuda_elementwise params = {.bytes = bytes};
    struct kernel_walk walk;

    kernel_walk_init(&walk, x);
    params.walk = cuda_walk_of(&walk, bytes);
    memcpy(params.scalar, value.bytes, sizeof(params.scalar));
    return launch(call, CUDA_fill, &params, bytes);
}

plasmon_status_t cuda_fill_f64(const struct cuda_call *call)
{
    return fill(call, kernel_value_of_f64(call->args[0].dtype, call->scalars[0].f));
}

plasmon_status_t cuda_fill_i64(const struct cuda_call *call)
{
    return fill(call, kernel_value_of_i64(call->args[0].dtype, call->scalars[0].i));
}

plasmon_status_t cuda_convert(const struct cuda_call *call, const struct kernel_arg *y,
                              const struct kernel_arg *x)
{
    struct cuda_elementwise params = {.dtype = {y->dtype, x->dtype}};
    struct kernel_walk walk;

    kernel_walk_init(&walk, y);
    kernel_walk_add(&walk, x);
    params.walk = cuda_walk_of(&walk, 0);
    return launch(call, CUDA_cast, &params, 0);
}

plasmon_status_t cuda_cast(const struct cuda_call *call)
{
    return cuda_convert(call, &call->args[0], &call->args[1]);
}

/* ----------------------------------------------------------------------- arange, random */

plasmon_status_t cuda_generate(const struct cuda_call *call)
{
    const struct kernel_arg *x   = &call->args[0];
    const union kernel_scalar *s = call->scalars;
    struct cuda_generate params  = {.dtype = x->dtype, .kind = CUDA_GENERATE_ARANGE};
    enum kernel_id id            = kernel_id_of(call->function);
    struct kernel_walk walk;

    kernel_walk_init(&walk, x);
    params.walk = cuda_walk_of(&walk, 0);
    if (id == KERNEL_ID_arange) {
        params.a = s[0].f;
        params.b = s[1].f;
    } else {
        params.kind =
            id == KERNEL_ID_random_normal ? CUDA_GENERATE_NORMAL : CUDA_GENERATE_UNIFORM;
        params.width      = x->ndim == 0 ? 1 : (uint64_t)x->dim[x->ndim - 1];
        params.seed       = (uint64_t)s[0].i;
        params.offset     = (uint64_t)s[1].i;
        params.row_stride = s[2].i == 0 ? params.width : (uint64_t)s[2].i;
        params.a          = s[3].f;
        params.b          = s[4].f;
    }
    return cuda_launch(call, CUDA_generate, cuda_blocks(call, params.walk.count), 256, 1,
                       &params);
}
