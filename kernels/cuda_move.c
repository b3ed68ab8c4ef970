/*
 * Launching copies of every kind, fold, combine, checksum, and the functions for tests; see cuda_move.cu.
 */
#include "kernels/cuda_int.h"

#include <string.h>

/* --------------------------------------------------------------------------------- copy */

/* Below this a tile of the transposing kernel is mostly empty. */
#define TRANSPOSE_MIN 8

static uint32_t transpose_kernel(uint32_t bytes)
{
    switch (bytes) {
    case 1:
        return CUDA_transpose_1;
    case 2:
        return CUDA_transpose_2;
    case 4:
        return CUDA_transpose_4;
    case 8:
        return CUDA_transpose_8;
    default:
        return CUDA_transpose_16;
    }
}

/* The long dimension in which array i of the walk is dense; ndim: none. */
static uint32_t dense_dimension(const struct cuda_walk *walk, uint32_t i, uint32_t bytes)
{
    for (uint32_t d = walk->ndim; d-- > 0;) {
        if (walk->stride[i][d] == (int64_t)bytes && walk->dim[d] >= TRANSPOSE_MIN) {
            return d;
        }
    }
    return walk->ndim;
}

static plasmon_status_t copy_transposed(const struct cuda_call *call,
                                        const struct cuda_walk *walk, uint32_t row,
                                        uint32_t column, uint32_t bytes)
{
    struct cuda_transpose params = {.rows     = walk->dim[row],
                                    .columns  = walk->dim[column],
                                    .y_stride = walk->stride[0][row],
                                    .x_stride = walk->stride[1][column],
                                    .batch    = 1,
                                    .y        = walk->base[0],
                                    .x        = walk->base[1]};
    int64_t tiles;

    for (uint32_t d = 0; d < walk->ndim; d++) {
        if (d != row && d != column) {
            params.dim[params.ndim]       = walk->dim[d];
            params.stride[0][params.ndim] = walk->stride[0][d];
            params.stride[1][params.ndim] = walk->stride[1][d];
            params.batch *= walk->dim[d];
            params.ndim++;
        }
    }
    tiles = (params.rows + 31) / 32 * ((params.columns + 31) / 32) * params.batch;
    return cuda_launch(call, transpose_kernel(bytes), cuda_blocks(call, tiles * 256), 32, 8,
                       &params);
}

plasmon_status_t cuda_copy(const struct cuda_call *call, const struct kernel_arg *y,
                           const struct kernel_arg *x)
{
    uint32_t bytes                 = pl_dtype_bytes(y->dtype);
    struct cuda_elementwise params = {.bytes = bytes};
    const struct cuda_walk *walk   = &params.walk;
    struct kernel_walk merged;
    uint32_t column;
    uint32_t row;

    kernel_walk_init(&merged, y);
    kernel_walk_add(&merged, x);
    params.walk = cuda_walk_of(&merged, bytes);
    if (walk->ndim == 1 && (walk->count == 1 || (walk->stride[0][0] == (int64_t)bytes &&
                                                 walk->stride[1][0] == (int64_t)bytes))) {
        return device_copy(call->stream, DEVICE_COPY_DEVICE_TO_DEVICE, walk->base[0],
                           walk->base[1], (uint64_t)walk->count * bytes);
    }
    column = dense_dimension(walk, 0, bytes);
    row    = dense_dimension(walk, 1, bytes);
    if (column < walk->ndim && row < walk->ndim && column != row) {
        return copy_transposed(call, walk, row, column, bytes);
    }
    return cuda_launch(call, CUDA_copy, cuda_blocks(call, walk->count), 256, 1, &params);
}

plasmon_status_t cuda_move(const struct cuda_call *call)
{
    return cuda_copy(call, &call->args[0], &call->args[1]);
}

plasmon_status_t cuda_transpose(const struct cuda_call *call)
{
    struct kernel_arg x = kernel_arg_transposed(&call->args[1]);

    return cuda_copy(call, &call->args[0], &x);
}

plasmon_status_t cuda_permute(const struct cuda_call *call)
{
    struct kernel_arg x = kernel_arg_permuted(&call->args[1], call->scalars);

    return cuda_copy(call, &call->args[0], &x);
}

/* Of parts up to so much one launch is sooner done than a copy each. */
#define PARTS_BYTES_MAX UINT64_C(4194304)
/* Blocks for each multiprocessor: as for combine, the parts may be other devices'. */
#define PARTS_BLOCKS_SM 4

/* All of it by one launch, if it is little, contiguous and on addresses for words of 4 bytes at least. */
static bool parts_fit(const struct cuda_call *call, struct cuda_parts *out)
{
    const struct kernel_arg *y = &call->args[0];
    uint32_t axis              = (uint32_t)call->scalars[0].i;
    int64_t start              = 0;
    uint64_t addresses         = 16;

    if (call->arg_count < 3 || call->arg_count - 1 > CUDA_FOLD_MAX) {
        return false;
    }
    for (uint32_t i = 1; i < call->arg_count; i++) {
        const struct kernel_arg *x = &call->args[i];
        struct kernel_arg part     = kernel_arg_slab(y, axis, start, x);
        uint64_t bytes = (uint64_t)kernel_arg_elements(x) * pl_dtype_bytes(x->dtype);

        addresses |= x->data.addr | part.data.addr;
        if (bytes > PARTS_BYTES_MAX || !kernel_arg_dense(x) || !kernel_arg_dense(&part)) {
            return false;
        }
        out->to[i - 1]    = part.data.addr;
        out->from[i - 1]  = x->data.addr;
        out->bytes[i - 1] = bytes;
        start += x->dim[axis];
    }
    out->count = call->arg_count - 1;
    out->word  = (uint32_t)(addresses & -addresses); /* their lowest bit */
    return out->word >= 4;
}

static plasmon_status_t copy_parts(const struct cuda_call *call, struct cuda_parts *params)
{
    int64_t most  = call->cuda->multiprocessors * PARTS_BLOCKS_SM / (int64_t)params->count;
    uint64_t part = 0;
    int64_t each;

    for (uint32_t i = 0; i < params->count; i++) {
        part = params->bytes[i] > part ? params->bytes[i] : part;
    }
    each = (int64_t)(part / (256 * params->word)) + 1;
    each = each < most ? each : most;
    return cuda_launch(call, CUDA_parts, (each > 1 ? each : 1) * (int64_t)params->count,
                       256, 1, params);
}

plasmon_status_t cuda_concatenate(const struct cuda_call *call)
{
    uint32_t axis            = (uint32_t)call->scalars[0].i;
    int64_t start            = 0;
    struct cuda_parts params = {.count = 0};

    if (parts_fit(call, &params)) {
        return copy_parts(call, &params);
    }
    for (uint32_t i = 1; i < call->arg_count; i++) {
        const struct kernel_arg *x = &call->args[i];
        struct kernel_arg part     = kernel_arg_slab(&call->args[0], axis, start, x);
        plasmon_status_t status    = cuda_copy(call, &part, x);

        if (status != PLASMON_OK) {
            return status;
        }
        start += x->dim[axis];
    }
    return PLASMON_OK;
}

/* ------------------------------------------------------------------------ fold, combine */

/* The kernel takes one layout for all partials; accumulators that the runtime made have one. */
static bool same_layouts(const struct kernel_arg *args, uint32_t arg_count)
{
    for (uint32_t i = 2; i < arg_count; i++) {
        for (uint32_t d = 0; d < args[i].ndim; d++) {
            if (args[i].dim[d] != 1 && args[i].stride[d] != args[1].stride[d]) {
                return false;
            }
        }
    }
    return true;
}

static uint64_t partial_bytes(const struct kernel_arg *x)
{
    return pl_round_up((uint64_t)kernel_arg_elements(x) * pl_dtype_bytes(x->dtype), 64);
}

uint64_t cuda_fold_scratch(const struct kernel_function *function,
                           const struct kernel_arg *args, uint32_t arg_count,
                           const union kernel_scalar *scalars)
{
    (void)function;
    (void)scalars;
    return same_layouts(args, arg_count) ? 0 : (arg_count - 1) * partial_bytes(&args[1]);
}

uint64_t cuda_combine_scratch(const struct kernel_function *function,
                              const struct kernel_arg *args, uint32_t arg_count,
                              const union kernel_scalar *scalars)
{
    return cuda_fold_scratch(function, args, arg_count, scalars);
}

/* Where the x's are, all in the layout that *io_layout becomes: as they come, or packed in scratch. */
static plasmon_status_t fold_sources(const struct cuda_call *call,
                                     struct kernel_arg *io_layout, uint64_t *out_addr)
{
    bool pack              = !same_layouts(call->args, call->arg_count);
    struct device_ptr next = call->scratch;

    for (uint32_t i = 0; i + 1 < call->arg_count; i++) {
        const struct kernel_arg *x = &call->args[i + 1];

        if (pack) {
            plasmon_status_t status;

            *io_layout = kernel_arg_compact(x, next);
            next       = device_ptr_add(next, partial_bytes(x));
            status     = cuda_copy(call, io_layout, x);
            if (status != PLASMON_OK) {
                return status;
            }
            x = io_layout;
        }
        out_addr[i] = x->data.addr;
    }
    return PLASMON_OK;
}

/*
 * Blocks for a combine: it may read from other devices, which many threads do no faster than some,
 * and runs beside functions of other tasks. Four blocks a multiprocessor have several MiB on their
 * way.
 */
#define COMBINE_BLOCKS_SM 4

static int64_t fold_blocks(const struct cuda_call *call, const struct cuda_walk *walk,
                           uint32_t element_bytes, bool combines)
{
    int64_t most = (int64_t)call->cuda->multiprocessors * COMBINE_BLOCKS_SM;
    int64_t items =
        walk->dense != 0 ? walk->count / (16 / (int64_t)element_bytes) + 1 : walk->count;
    int64_t blocks = cuda_blocks(call, items);

    return combines && blocks > most ? most : blocks;
}

static plasmon_status_t fold_all(const struct cuda_call *call, bool combines)
{
    const struct kernel_arg *y   = &call->args[0];
    const uint32_t element_bytes = pl_dtype_bytes(y->dtype);
    struct cuda_fold params      = {.op = kernel_op_of_reduce(call->scalars[0].i)};
    struct kernel_arg layout     = call->args[1];
    uint32_t count               = call->arg_count - 1;
    uint64_t addr[CUDA_FOLD_MAX];
    plasmon_status_t status = fold_sources(call, &layout, addr);
    struct kernel_walk walk;

    if (status != PLASMON_OK) {
        return status;
    }
    params.first    = combines ? addr[0] : 0;
    params.partials = combines ? count - 1 : count;
    memcpy(params.partial, addr + (combines ? 1 : 0), params.partials * sizeof(addr[0]));
    kernel_walk_init(&walk, y);
    kernel_walk_add(&walk, &layout);
    params.walk = cuda_walk_of(&walk, element_bytes);
    for (uint32_t i = 0; i < count; i++) {
        params.walk.dense &= addr[i] % 16 == 0;
    }
    return cuda_launch(call, CUDA_fold_f32 + cuda_type_index(y->dtype),
                       fold_blocks(call, &params.walk, element_bytes, combines), 256, 1,
                       &params);
}

plasmon_status_t cuda_fold(const struct cuda_call *call)
{
    return fold_all(call, false);
}

plasmon_status_t cuda_combine(const struct cuda_call *call)
{
    return fold_all(call, true);
}

/* ---------------------------------------------------------------------- checksum, tests */

plasmon_status_t cuda_checksum(const struct cuda_call *call)
{
    const struct kernel_arg *x     = &call->args[1];
    struct cuda_elementwise params = {.bytes  = pl_dtype_bytes(x->dtype),
                                      .scalar = {call->args[0].data.addr}};
    struct kernel_walk walk;
    plasmon_status_t status;

    status = device_fill8(call->stream, call->args[0].data, 0, sizeof(uint64_t));
    if (status != PLASMON_OK) {
        return pl_err_set(call->err, status, "%s: cannot clear the sum",
                          call->function->name);
    }
    kernel_walk_init(&walk, x);
    params.walk = cuda_walk_of(&walk, 0);
    return cuda_launch(call, CUDA_checksum, cuda_blocks(call, params.walk.count), 256, 1,
                       &params);
}

plasmon_status_t cuda_spin(const struct cuda_call *call)
{
    int64_t microseconds    = call->scalars[0].i;
    struct cuda_spin params = {.nanoseconds =
                                   microseconds > 0 ? (uint64_t)microseconds * 1000 : 0};

    return cuda_launch(call, CUDA_spin, 1, 1, 1, &params);
}

plasmon_status_t cuda_fail(const struct cuda_call *call)
{
    struct cuda_spin params = {.nanoseconds = 0};

    return cuda_launch(call, CUDA_trap, 1, 1, 1, &params);
}

plasmon_status_t cuda_illegal(const struct cuda_call *call)
{
    struct cuda_spin params = {.nanoseconds = 0};

    return cuda_launch(call, CUDA_illegal, 1, 1, 1, &params);
}
