/*
 * Launching sorts; see cuda_sort.cu. Positions have 32 bits, so a row has less than 2^32 elements.
 *
 * Scratch of long rows: keys twice, positions twice, counts.
 */
#include "kernels/cuda_int.h"

#include <string.h>

struct sort_plan {
    struct cuda_sort params;
    bool wide; /* keys of 64 bits */
    bool is_short;
    uint64_t key_bytes;
    uint64_t position_bytes;
    uint64_t count_bytes;
};

static struct sort_plan sort_plan(const struct kernel_function *function,
                                  const struct kernel_arg *args)
{
    bool in_place              = kernel_id_of(function) == KERNEL_ID_sort_into;
    const struct kernel_arg *y = &args[in_place ? 1 : 0];
    const struct kernel_arg *x = &args[in_place ? 0 : 1];
    uint32_t last              = x->ndim - 1;
    struct kernel_arg first_y  = *y;
    struct kernel_arg first_x  = *x;
    struct sort_plan plan      = {.wide = pl_dtype_bytes(x->dtype) == 8};
    struct cuda_sort *p        = &plan.params;
    struct kernel_walk walk;
    struct cuda_walk rows;

    first_y.dim[last] = 1;
    first_x.dim[last] = 1;
    kernel_walk_init(&walk, &first_y);
    kernel_walk_add(&walk, &first_x);
    rows         = cuda_walk_of(&walk, 0);
    p->rows      = rows.count;
    p->length    = x->dim[last];
    p->rows_ndim = rows.ndim;
    memcpy(p->rows_dim, rows.dim, sizeof(p->rows_dim));
    memcpy(p->rows_stride, rows.stride, sizeof(p->rows_stride));
    p->stride[0] = y->stride[last] * (int64_t)pl_dtype_bytes(y->dtype);
    p->stride[1] = x->stride[last] * (int64_t)pl_dtype_bytes(x->dtype);
    p->y         = y->data.addr;
    p->x         = x->data.addr;
    p->dtype     = x->dtype;
    p->bytes     = pl_dtype_bytes(x->dtype);
    p->positions = kernel_id_of(function) == KERNEL_ID_argsort;

    plan.is_short = p->length <= CUDA_SORT_TILE;
    if (!plan.is_short) {
        uint64_t elements = (uint64_t)(p->rows * p->length);

        p->tiles = (p->length + CUDA_SORT_TILE * CUDA_SORT_CHUNK - 1) /
                   (CUDA_SORT_TILE * CUDA_SORT_CHUNK);
        plan.key_bytes      = pl_round_up(elements * (plan.wide ? 8 : 4), 64);
        plan.position_bytes = pl_round_up(elements * 4, 64);
        plan.count_bytes    = pl_round_up((uint64_t)(p->rows * p->tiles) * 256 * 4, 64);
    }
    return plan;
}

static plasmon_status_t sort_long(const struct cuda_call *call, struct sort_plan *plan)
{
    struct cuda_sort *p = &plan->params;
    int64_t elements    = p->rows * p->length;
    int64_t tiles       = cuda_blocks(call, p->rows * p->tiles * 256);
    uint32_t wide       = plan->wide;
    int bits            = plan->wide ? 64 : 32;
    plasmon_status_t status;

    p->key[0]      = call->scratch.addr;
    p->key[1]      = p->key[0] + plan->key_bytes;
    p->position[0] = p->key[1] + plan->key_bytes;
    p->position[1] = p->position[0] + plan->position_bytes;
    p->counts      = p->position[1] + plan->position_bytes;

    status = cuda_launch(call, CUDA_sort_keys_u32 + wide, cuda_blocks(call, elements), 256,
                         1, p);
    for (p->shift = 0; p->shift < bits && status == PLASMON_OK; p->shift += 8) {
        uint64_t key      = p->key[0];
        uint64_t position = p->position[0];

        status = cuda_launch(call, CUDA_sort_count_u32 + wide, tiles, 256, 1, p);
        if (status == PLASMON_OK) {
            status = cuda_launch(call, CUDA_sort_offsets, cuda_blocks(call, p->rows * 256),
                                 256, 1, p);
        }
        if (status == PLASMON_OK) {
            status = cuda_launch(call, CUDA_sort_move_u32 + wide, tiles, 256, 1, p);
        }
        p->key[0]      = p->key[1];
        p->key[1]      = key;
        p->position[0] = p->position[1];
        p->position[1] = position;
    }
    if (status != PLASMON_OK) {
        return status;
    }
    return cuda_launch(call, CUDA_sort_fetch, cuda_blocks(call, elements), 256, 1, p);
}

plasmon_status_t cuda_sort(const struct cuda_call *call)
{
    struct sort_plan plan = sort_plan(call->function, call->args);
    plasmon_status_t status;

    if (plan.params.length > UINT32_MAX) {
        return pl_err_set(call->err, PLASMON_ENOTSUP,
                          "%s: rows of %lld elements; on a GPU a row has less than 2^32",
                          call->function->name, (long long)plan.params.length);
    }
    if (plan.is_short) {
        status =
            cuda_launch(call, CUDA_sort_short_u32 + (uint32_t)plan.wide,
                        cuda_blocks(call, plan.params.rows * 256), 256, 1, &plan.params);
    } else {
        status = sort_long(call, &plan);
    }
    if (status == PLASMON_OK && kernel_id_of(call->function) == KERNEL_ID_sort_into) {
        /* What was sorted into the caller's scratch goes back. */
        status = cuda_copy(call, &call->args[0], &call->args[1]);
    }
    return status;
}

uint64_t cuda_sort_scratch(const struct kernel_function *function,
                           const struct kernel_arg *args, uint32_t arg_count,
                           const union kernel_scalar *scalars)
{
    struct sort_plan plan = sort_plan(function, args);

    (void)arg_count;
    (void)scalars;
    return 2 * plan.key_bytes + 2 * plan.position_bytes + plan.count_bytes;
}
