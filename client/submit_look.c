/*
 * Looking at a call: it is checked against everything that can be known without the head: refs,
 * arity, modes, dtypes, shapes, aliasing, size. Nothing is changed.
 */
#include "client/submit_int.h"

#include <string.h>

#include "client/graph.h"

bool submit_writes(plasmon_mode_t mode)
{
    return mode == PLASMON_OUT || mode == PLASMON_INOUT || mode == PLASMON_REDUCE;
}

/* What needs no lock. */
plasmon_status_t submit_check_call(const struct plasmon_call *call)
{
    if (call->function == NULL) {
        return error_set(PLASMON_EINVAL, "call.function is NULL");
    }
    if (call->arg_count > 0 && call->args == NULL) {
        return error_set(PLASMON_EINVAL, "%s: args is NULL, and arg_count %u",
                         call->function, call->arg_count);
    }
    if (call->scalar_count > 0 && call->scalars == NULL) {
        return error_set(PLASMON_EINVAL, "%s: scalars is NULL, and scalar_count %u",
                         call->function, call->scalar_count);
    }
    if (call->arg_count > WIRE_ARGS_MAX || call->scalar_count > KERNEL_SCALARS_MAX) {
        return error_set(PLASMON_EARITY, "%s: %u arguments and %u scalars are too many",
                         call->function, call->arg_count, call->scalar_count);
    }
    if (call->device < PLASMON_ANYWHERE || call->device >= (int)WIRE_DEVICES_MAX) {
        return error_set(PLASMON_EINVAL,
                         "%s: device is %d; it is PLASMON_ANYWHERE or a device's index",
                         call->function, call->device);
    }
    if (call->priority < -1 || call->priority > 1) {
        return error_set(PLASMON_EINVAL, "%s: priority is %d; it is -1, 0 or 1",
                         call->function, call->priority);
    }
    if (call->retries < -1) {
        return error_set(
            PLASMON_EINVAL,
            "%s: retries is %d; it is -1 for the cluster's default, or how often",
            call->function, call->retries);
    }
    return call->label == NULL
               ? PLASMON_OK
               : client_check_name(call->label, WIRE_LABEL_BYTES_MAX, "call.label");
}

/* A 0 behind a number counts as 1. */
static bool sizes_take(const uint32_t given[3], uint32_t *out)
{
    bool gap = given[0] == 0 && (given[1] != 0 || given[2] != 0);

    for (uint32_t i = 0; i < 3; i++) {
        out[i] = given[0] != 0 && given[i] == 0 ? 1 : given[i];
    }
    return !gap;
}

static plasmon_status_t take_launch_shape(struct submit *submit)
{
    const struct plasmon_call *call = submit->call;
    bool given = call->grid[0] != 0 || call->grid[1] != 0 || call->grid[2] != 0 ||
                 call->block[0] != 0 || call->block[1] != 0 || call->block[2] != 0 ||
                 call->shared_bytes != 0;

    submit->shaped = given;
    if (!given) {
        return PLASMON_OK;
    }
    if (!submit->function->defined) {
        return error_set(
            PLASMON_EINVAL,
            "%s is built in and chooses its own launch shape: leave grid, block "
            "and shared_bytes 0",
            call->function);
    }
    if (!sizes_take(call->grid, submit->launch_shape) ||
        !sizes_take(call->block, submit->launch_shape + 3) ||
        (call->grid[0] != 0 && call->block[0] == 0)) {
        return error_set(
            PLASMON_EINVAL,
            "%s: grid %ux%ux%u, block %ux%ux%u: give both from their first number "
            "on, block alone, or neither",
            call->function, call->grid[0], call->grid[1], call->grid[2], call->block[0],
            call->block[1], call->block[2]);
    }
    if (call->shared_bytes > WIRE_SHARED_BYTES_MAX) {
        return error_set(PLASMON_EINVAL,
                         "%s: %u bytes of shared memory for a block; no device has more "
                         "than %u",
                         call->function, call->shared_bytes, WIRE_SHARED_BYTES_MAX);
    }
    submit->launch_shape[6] = call->shared_bytes;
    return PLASMON_OK;
}

/* Built in, or defined by this session. */
plasmon_status_t submit_find_function(struct submit *submit)
{
    const char *name = submit->call->function;
    const struct client_function *own;
    const char *suggestion;

    submit->function = kernel_by_name(name);
    if (submit->function != NULL) {
        submit->function_id = pl_hash_name(name);
        return take_launch_shape(submit);
    }
    own = functions_find(&submit->client->functions, name);
    if (own != NULL) {
        submit->function    = &own->signature->function;
        submit->function_id = own->id;
        return take_launch_shape(submit);
    }
    suggestion = functions_meant(&submit->client->functions, name);
    return error_set(PLASMON_ENOFUNCTION,
                     suggestion != NULL
                         ? "there is no function \"%.64s\"; did you mean \"%s\"?"
                         : "there is no function \"%.64s\": `plasmon functions` lists the "
                           "built-in ones, and others are of the client that made them",
                     name, suggestion);
}

static struct pl_shape shape_in(const struct plasmon_shape *shape)
{
    struct pl_shape out = {.dtype = (uint32_t)shape->dtype, .ndim = shape->ndim};

    for (uint32_t i = 0; i < shape->ndim && i < PL_DIM_MAX; i++) {
        out.dim[i] = shape->dim[i];
    }
    return out;
}

static plasmon_status_t look_at_ref(struct submit *submit, uint32_t index)
{
    const struct plasmon_arg *arg = &submit->call->args[index];
    struct submit_arg *out        = &submit->args[index];
    struct pl_err err             = {0};
    plasmon_status_t status = refs_find(&submit->client->refs, arg->ref, &out->slot, &err);

    if (status == PLASMON_OK && out->slot->root->is_task) {
        status = pl_err_set(&err, PLASMON_EINVAL, "the ref is a task's; it has no bytes");
    }
    if (status == PLASMON_OK) {
        status = graph_check_use(submit->client, out->slot->root, &err);
    }
    if (status != PLASMON_OK) {
        return error_set(status, "%s: args[%u]: %s", submit->call->function, index,
                         err.text);
    }
    out->whole = out->slot->view == NULL;
    if (!out->whole) {
        out->view = *out->slot->view;
        out->hull = pl_view_hull(&out->view);
    }
    submit->shapes[index].shape = slot_shape(out->slot);
    submit->shapes[index].given = true;
    return PLASMON_OK;
}

static plasmon_status_t look_at_stated(struct submit *submit, uint32_t index)
{
    const struct plasmon_arg *arg = &submit->call->args[index];
    struct pl_err err             = {0};
    plasmon_status_t status;

    if (arg->shape == NULL) {
        return PLASMON_OK; /* the shape rule says */
    }
    if (arg->shape->ndim > PL_DIM_MAX) {
        return error_set(PLASMON_ESHAPE, "%s: args[%u]: %u dimensions; the limit is %d",
                         submit->call->function, index, arg->shape->ndim, PL_DIM_MAX);
    }
    submit->shapes[index].shape = shape_in(arg->shape);
    submit->shapes[index].given = true;
    status                      = pl_shape_check(&submit->shapes[index].shape, &err);
    if (status != PLASMON_OK) {
        return error_set(status, "%s: args[%u]: %s", submit->call->function, index,
                         err.text);
    }
    return PLASMON_OK;
}

plasmon_status_t submit_look_at_arg(struct submit *submit, uint32_t index)
{
    const struct plasmon_arg *arg = &submit->call->args[index];

    memset(&submit->shapes[index], 0, sizeof(submit->shapes[index]));
    submit->shapes[index].mode = (uint32_t)arg->mode;
    submit->args[index].slot   = NULL;
    submit->args[index].made   = NULL;
    submit->args[index].whole  = true;

    switch (arg->mode) {
    case PLASMON_REDUCE:
        if (arg->reduce_op < PLASMON_REDUCE_SUM || arg->reduce_op > PLASMON_REDUCE_MAX) {
            return error_set(PLASMON_EINVAL,
                             "%s: args[%u]: reduce_op %d is none of SUM, PROD, MIN, MAX",
                             submit->call->function, index, (int)arg->reduce_op);
        }
        submit->shapes[index].reduce_op = (uint32_t)arg->reduce_op;
        return look_at_ref(submit, index);
    case PLASMON_IN:
    case PLASMON_INOUT:
        return look_at_ref(submit, index);
    case PLASMON_OUT:
        if (arg->ref != NULL) {
            return look_at_ref(submit, index);
        }
        submit->new_count++;
        return look_at_stated(submit, index);
    case PLASMON_SCRATCH:
        if (arg->ref != NULL || (arg->shape == NULL && !submit->function->defined)) {
            return error_set(PLASMON_EINVAL,
                             "%s: args[%u]: a SCRATCH has a shape and no ref",
                             submit->call->function, index);
        }
        return look_at_stated(submit, index);
    }
    return error_set(PLASMON_EINVAL,
                     "%s: args[%u]: mode %d is none of IN, OUT, INOUT, REDUCE, SCRATCH",
                     submit->call->function, index, (int)arg->mode);
}

static bool overlap(const struct submit_arg *a, const struct submit_arg *b)
{
    if (a->slot == NULL || b->slot == NULL || a->slot->root != b->slot->root) {
        return false;
    }
    return a->whole || b->whole || pl_box_intersects(&a->hull, &b->hull);
}

static bool has_gaps(const struct submit_arg *arg)
{
    return !arg->whole && !pl_view_dense(&arg->view);
}

/*
 * What a task writes may be seen by none of its other arguments: a function is free to write before
 * it has read. (In place is one INOUT argument.)
 */
plasmon_status_t submit_check_aliasing(const struct submit *submit)
{
    const struct plasmon_arg *args = submit->call->args;

    for (uint32_t i = 0; i < submit->call->arg_count; i++) {
        if (!submit_writes(args[i].mode) || submit->args[i].slot == NULL) {
            continue;
        }
        for (uint32_t j = 0; j < submit->call->arg_count; j++) {
            if (j != i && overlap(&submit->args[i], &submit->args[j])) {
                return error_set(PLASMON_EINVAL,
                                 "%s: args[%u], which is written, overlaps args[%u]: use "
                                 "one INOUT argument, a "
                                 "snapshot of what is read, or views that do not meet%s",
                                 submit->call->function, i, j,
                                 has_gaps(&submit->args[i]) || has_gaps(&submit->args[j])
                                     ? " (one with steps counts as the box that it spans)"
                                     : "");
            }
        }
    }
    return PLASMON_OK;
}

/*
 * What a defined function takes without its strides cannot step over elements: no copy of a part
 * has other steps than the part.
 */
plasmon_status_t submit_check_gaps(const struct submit *submit)
{
    const struct kernel_signature *signature = kernel_signature_of(submit->function);

    for (uint32_t i = 0; signature != NULL && i < submit->call->arg_count; i++) {
        const struct kernel_slot *slot = &signature->slots[signature->tensor_slot[i]];

        if (!slot->strided && !submit->args[i].whole &&
            !pl_view_dense(&submit->args[i].view)) {
            return error_set(
                PLASMON_ESHAPE,
                "%s: %s is a view with steps, and the function takes it without "
                "gaps: write %s[..]~ %s in the signature to get strides, or copy "
                "it first",
                submit->call->function, slot->name, pl_dtype_name(slot->dtype), slot->name);
        }
    }
    return PLASMON_OK;
}

/* Could any device that we know of hold what the call makes? */
plasmon_status_t submit_check_sizes(const struct submit *submit)
{
    uint64_t largest = client_largest_device_locked(submit->client);
    char asked[32], there[32];

    for (uint32_t i = 0; i < submit->call->arg_count && largest > 0; i++) {
        uint64_t bytes = pl_shape_bytes(&submit->shapes[i].shape);

        if (submit->args[i].slot == NULL && bytes > largest) {
            return error_set(PLASMON_ETOOBIG,
                             "%s: args[%u] would be %s; the largest device has %s",
                             submit->call->function, i, pl_format_bytes(bytes, asked),
                             pl_format_bytes(largest, there));
        }
    }
    return PLASMON_OK;
}

plasmon_status_t submit_room(struct submit *submit)
{
    struct submit_scratch *scratch = submit->client->scratch;

    pl_vec_clear(&scratch->args);
    pl_vec_clear(&scratch->shapes);
    if (submit->call->arg_count > 0) {
        submit->args   = pl_vec_push_n(&scratch->args, submit->call->arg_count);
        submit->shapes = pl_vec_push_n(&scratch->shapes, submit->call->arg_count);
        if (submit->args == NULL || submit->shapes == NULL) {
            return error_set(PLASMON_ENOMEM, "out of host memory");
        }
    }
    return PLASMON_OK;
}

plasmon_status_t submit_look(struct submit *submit)
{
    const struct plasmon_call *call = submit->call;
    struct pl_err err               = {0};
    plasmon_status_t status         = submit_find_function(submit);

    if (status == PLASMON_OK) {
        status = submit_room(submit);
    }
    if (status != PLASMON_OK) {
        return status;
    }
    submit->new_count = 0;
    for (uint32_t i = 0; i < call->arg_count; i++) {
        status = submit_look_at_arg(submit, i);
        if (status != PLASMON_OK) {
            return status;
        }
    }
    for (uint32_t i = 0; i < call->scalar_count; i++) {
        memcpy(&submit->scalars[i], &call->scalars[i], sizeof(submit->scalars[i]));
    }
    status = kernel_check(submit->function, submit->shapes, call->arg_count,
                          submit->scalars, call->scalar_count, &err);
    if (status != PLASMON_OK) {
        return error_from(&err, status);
    }
    status = submit_check_gaps(submit);
    if (status == PLASMON_OK) {
        status = submit_check_aliasing(submit);
    }
    return status == PLASMON_OK ? submit_check_sizes(submit) : status;
}
