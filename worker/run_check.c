/*
 * Is a launch what its function takes, and what does it want: scratch, operations of a stream?
 *
 * MOST LAUNCHES ARE LIKE AN EARLIER ONE of the same function, down to shapes and scalars: programs
 * run the same calls over and over on new buffers. The answer follows from function, arguments and
 * scalars alone, so the last few are kept (`core->checked`, by function) and a launch like that
 * costs a comparison. What is not in these three is asked each time: whether the function is
 * loaded, and whether what the catalogue prepares is at hand.
 */
#include "worker/core_int.h"

#include "base/alloc.h"

#include <string.h>

/* Room for `count` items; NULL is out of memory, or count 0. */
static void *room(struct pl_vec *vec, size_t count)
{
    pl_vec_clear(vec);
    return count == 0 ? NULL : pl_vec_push_n(vec, count);
}

static const struct kernel_function *function_find(struct worker_core *core, uint32_t id,
                                                   struct pl_err *err)
{
    const struct kernel_function *function;

    if (wire_function_defined(id) && core->config.ops->function != NULL) {
        return core->config.ops->function(core->config.user, id, worker_streams_quiet(core),
                                          err);
    }
    function = kernel_by_id(id);
    if (function == NULL) {
        (void)pl_err_set(err, PLASMON_ENOFUNCTION,
                         "this worker has no function with id %08x", id);
    }
    return function;
}

static plasmon_status_t prepare(struct worker_core *core,
                                const struct worker_launch *launch,
                                const struct kernel_arg *args, bool keep,
                                struct pl_err *err)
{
    const struct worker_ops *ops = core->config.ops;

    return launch->function->defined || ops->prepare == NULL
               ? PLASMON_OK
               : ops->prepare(core->config.user, launch->function, args,
                              launch->operand_count, launch->scalars, launch->scalar_count,
                              keep, worker_streams_quiet(core), err);
}

/* With the identities that accumulators begin with. */
static uint64_t run_operations(const struct worker_core *core,
                               const struct worker_launch *launch,
                               const struct kernel_arg *args)
{
    const struct worker_ops *ops = core->config.ops;
    uint64_t operations          = 1;

    if (ops->operations != NULL) {
        operations =
            ops->operations(core->config.user, launch->function, args,
                            launch->operand_count, launch->scalars, launch->scalar_count);
    }
    for (uint32_t i = 0; i < launch->operand_count; i++) {
        operations += args[i].mode == KERNEL_REDUCE && args[i].reduce_op != 0;
    }
    return operations;
}

/* -------------------------------------------------------------- what was checked before */

static struct worker_checked *checked_of(struct worker_core *core,
                                         const struct worker_launch *launch)
{
    return &core->checked[launch->function_id % WORKER_CHECKED];
}

static bool checked_before(const struct worker_checked *checked,
                           const struct worker_launch *launch)
{
    if (checked->function != launch->function ||
        checked->function_id != launch->function_id ||
        checked->arg_count != launch->operand_count ||
        checked->scalar_count != launch->scalar_count) {
        return false;
    }
    for (uint32_t i = 0; i < checked->arg_count; i++) {
        if (memcmp(&checked->args[i], &launch->operands[i].arg, sizeof(checked->args[i])) !=
            0) {
            return false;
        }
    }
    return checked->scalar_count == 0 ||
           memcmp(checked->scalars, launch->scalars,
                  checked->scalar_count * sizeof(checked->scalars[0])) == 0;
}

static void checked_keep(struct worker_checked *checked, const struct worker_launch *launch,
                         uint64_t scratch)
{
    if (launch->operand_count > WORKER_CHECKED_ARGS ||
        launch->scalar_count > WORKER_CHECKED_SCALARS) {
        return;
    }
    checked->function       = launch->function;
    checked->function_id    = launch->function_id;
    checked->arg_count      = launch->operand_count;
    checked->scalar_count   = launch->scalar_count;
    checked->scratch        = scratch;
    checked->run_operations = launch->run_operations;
    for (uint32_t i = 0; i < launch->operand_count; i++) {
        memcpy(&checked->args[i], &launch->operands[i].arg, sizeof(checked->args[i]));
    }
    if (launch->scalar_count != 0) {
        memcpy(checked->scalars, launch->scalars,
               launch->scalar_count * sizeof(checked->scalars[0]));
    }
}

void worker_checked_forget(struct worker_core *core)
{
    memset(core->checked, 0, sizeof(core->checked));
}

/* ----------------------------------------------------------------------------- checking */

/* NULL: there are none. */
static const struct kernel_arg *args_of(struct worker_core *core,
                                        const struct worker_launch *launch)
{
    struct kernel_arg *args = room(&core->args, launch->operand_count);

    for (uint32_t i = 0; args != NULL && i < launch->operand_count; i++) {
        args[i] = launch->operands[i].arg;
    }
    return args;
}

static plasmon_status_t run_check(struct worker_core *core, struct worker_launch *launch,
                                  const struct kernel_arg *args, struct pl_err *err)
{
    struct kernel_arg_shape *shapes = room(&core->shapes, launch->operand_count);

    if (launch->operand_count != 0 && shapes == NULL) {
        return pl_err_set(err, PLASMON_ENOMEM, "no memory to check %u arguments",
                          launch->operand_count);
    }
    for (uint32_t i = 0; i < launch->operand_count; i++) {
        shapes[i].mode  = args[i].mode;
        shapes[i].shape = (struct pl_shape){.dtype = args[i].dtype, .ndim = args[i].ndim};
        shapes[i].given = true;
        shapes[i].reduce_op = args[i].reduce_op;
        memcpy(shapes[i].shape.dim, args[i].dim, sizeof(args[i].dim));
    }
    return kernel_check(launch->function, shapes, launch->operand_count, launch->scalars,
                        launch->scalar_count, err);
}

plasmon_status_t worker_run_check(struct worker_core *core, struct worker_launch *launch,
                                  bool keep, uint64_t *out_scratch, struct pl_err *err)
{
    struct worker_checked *checked = checked_of(core, launch);
    const struct kernel_arg *args;
    plasmon_status_t status = PLASMON_OK;
    bool before;

    *out_scratch     = 0;
    launch->function = function_find(core, launch->function_id, err);
    if (launch->function == NULL) {
        return err->status;
    }
    before = checked_before(checked, launch);
    if (before && launch->function->defined) { /* nothing is prepared for those */
        *out_scratch           = checked->scratch;
        launch->run_operations = checked->run_operations;
        return PLASMON_OK;
    }

    args = args_of(core, launch);
    if (launch->operand_count != 0 && args == NULL) {
        return pl_err_set(err, PLASMON_ENOMEM, "no memory to check %u arguments",
                          launch->operand_count);
    }
    if (!before) {
        status = run_check(core, launch, args, err);
    }
    if (status == PLASMON_OK) {
        status = prepare(core, launch, args, keep, err);
    }
    if (status != PLASMON_OK) {
        return status;
    }
    *out_scratch = core->config.ops->scratch_bytes(core->config.user, launch->function,
                                                   args, launch->operand_count,
                                                   launch->scalars, launch->scalar_count);
    launch->run_operations = run_operations(core, launch, args);
    checked_keep(checked, launch, *out_scratch);
    return PLASMON_OK;
}

/* The compiler's words are longer than a struct pl_err. */
static void fail_with_text(struct worker_core *core, struct worker_launch *launch,
                           const struct pl_err *err)
{
    const char *text =
        wire_function_defined(launch->function_id) && launch->function == NULL &&
                core->config.ops->function_text != NULL
            ? core->config.ops->function_text(core->config.user, launch->function_id)
            : NULL;

    worker_launch_fail(launch, err->status, "%s", err->text);
    if (text != NULL) {
        pl_free(launch->failure_text);
        launch->failure_text = pl_strdup(text); /* NULL: the status has to do */
    }
}

bool worker_launch_check(struct worker_core *core, struct worker_launch *launch)
{
    struct pl_err err;
    plasmon_status_t status;

    pl_err_init(&err);
    if (launch->kind == PLASMON__V1__LAUNCH_KIND__LAUNCH_GRAPH) {
        return worker_graph_check(core, launch);
    }
    if (worker_launch_combines(launch)) {
        status = worker_combine_check(core, launch, &err);
    } else if (launch->kind != PLASMON__V1__LAUNCH_KIND__LAUNCH_RUN ||
               launch->without_work) {
        return true;
    } else {
        status = worker_run_check(core, launch, false, &launch->scratch_wanted, &err);
    }
    if (status == PLASMON_EAGAIN) {
        return false;
    }
    if (status != PLASMON_OK) {
        fail_with_text(core, launch, &err);
    }
    return true;
}
