/*
 * A client's task becomes a call: each argument is resolved to a view of an array, new outputs get
 * one. Every output that the task names exists from here on, failed if the task is refused, so that
 * a client which goes on submitting learns of it where it reads.
 */
#include "head/graph.h"

#include <string.h>

/*
 * A new output: its array; the ref is added now, so that it exists (failed) even if the task is
 * refused below.
 */
static plasmon_status_t resolve_new(struct head_core *core, struct head_client *client,
                                    const Plasmon__V1__Arg *wire, struct head_arg *arg,
                                    struct pl_err *err)
{
    struct pl_shape shape;
    plasmon_status_t status = wire_shape_get(wire->shape, &shape, err);

    if (status != PLASMON_OK) {
        return status;
    }
    if (wire->n_view != 0) {
        return pl_err_set(err, PLASMON_EINVAL, "a new output cannot be given as a view");
    }
    arg->dtype = shape.dtype;
    arg->view  = pl_view_whole(&shape);
    arg->hull  = pl_box_of_shape(&shape);
    if (wire->mode == PLASMON__V1__MODE__MODE_SCRATCH) {
        return PLASMON_OK;
    }
    arg->array = head_array_create(core, client->space, &shape);
    return head_client_ref_add(core, client, wire->ref, arg->array, NULL, err);
}

plasmon_status_t head_arg_resolve(struct head_core *core, struct head_client *client,
                                  const Plasmon__V1__Arg *wire, struct head_arg *arg,
                                  struct pl_err *err)
{
    struct head_ref *ref;
    plasmon_status_t status;

    memset(arg, 0, sizeof(*arg));
    arg->mode      = wire->mode;
    arg->reduce_op = wire->reduce_op;
    arg->dense     = wire->dense;
    if ((wire->mode == PLASMON__V1__MODE__MODE_OUT ||
         wire->mode == PLASMON__V1__MODE__MODE_SCRATCH) &&
        wire->shape != NULL) {
        return resolve_new(core, client, wire, arg, err);
    }
    if (wire->mode == PLASMON__V1__MODE__MODE_SCRATCH) {
        return pl_err_set(err, PLASMON_EINVAL, "a SCRATCH argument needs a shape");
    }
    status = head_client_ref_get(client, wire->ref, wire->client, &ref, err);
    if (status != PLASMON_OK) {
        return status;
    }
    if (ref->array->put_offset != UINT64_MAX) {
        return pl_err_set(err, PLASMON_EAGAIN,
                          "ref %llu is still being put; finish the put first",
                          (unsigned long long)wire->ref);
    }
    arg->array = ref->array;
    arg->dtype = ref->array->shape.dtype;
    status     = head_ref_view(ref, wire->n_view, wire->view, &arg->view, err);
    if (status != PLASMON_OK) {
        return status;
    }
    arg->hull = pl_view_hull(&arg->view);
    return PLASMON_OK;
}

static plasmon_status_t submit_snapshot(struct head_core *core, struct head_client *client,
                                        const Plasmon__V1__Task *task, struct pl_err *err)
{
    struct head_arg from;
    struct head_array *copy;
    plasmon_status_t status;

    if (task->n_args != 2 || task->args[0]->mode != PLASMON__V1__MODE__MODE_IN ||
        task->args[1]->mode != PLASMON__V1__MODE__MODE_OUT) {
        return pl_err_set(
            err, PLASMON_EMALFORMED,
            "a snapshot has two arguments: IN, the source, and OUT, its name");
    }
    status = head_arg_resolve(core, client, task->args[0], &from, err);
    if (status != PLASMON_OK) {
        return status;
    }
    head_reduce_fold(core, from.array);
    copy   = head_array_snapshot(core, from.array->space, from.array, &from.hull);
    status = head_client_ref_add(core, client, task->args[1]->ref, copy, &from.view, err);
    if (status == PLASMON_OK) {
        head_client_done(core, client,
                         task->id); /* a name; its content may still be pending */
    }
    return status;
}

static bool overlap(const struct head_arg *a, const struct head_arg *b)
{
    return a->array != NULL && a->array == b->array &&
           a->mode != PLASMON__V1__MODE__MODE_REDUCE &&
           b->mode != PLASMON__V1__MODE__MODE_REDUCE &&
           pl_box_intersects(&a->hull, &b->hull);
}

/* Two arguments of one call must not meet when one of them is written: its result would depend on chance. */
static plasmon_status_t check_aliasing(const struct head_run *run, struct pl_err *err)
{
    for (size_t i = 0; i < run->arg_count; i++) {
        if (!head_mode_writes(run->args[i].mode)) {
            continue;
        }
        for (size_t j = 0; j < run->arg_count; j++) {
            if (j != i && overlap(&run->args[i], &run->args[j])) {
                return pl_err_set(err, PLASMON_EINVAL,
                                  "arguments %zu and %zu overlap and one of them is "
                                  "written; pass it once as INOUT, or a "
                                  "snapshot",
                                  i, j);
            }
        }
    }
    return PLASMON_OK;
}

struct head_run head_run_of_task(struct head_core *core, struct head_client *client,
                                 const Plasmon__V1__Task *task)
{
    struct head_run run = {
        .client           = client,
        .id               = task->id,
        .function         = task->function,
        .label            = task->label,
        .scalars          = task->scalars,
        .scalar_count     = task->n_scalars,
        .place            = task->place,
        .retries          = task->retries == 0 ? core->config.retries : task->retries - 1,
        .time_limit_ms    = task->time_limit_ms,
        .function_retries = task->function_retries,
        .priority         = task->priority,
        .submit_ns        = task->submit_ns != 0 ? task->submit_ns
                            : core->tracing != 0 ? core->trace_ns
                                                 : 0,
    };

    if (wire_function_defined(task->function)) {
        run.defined = head_function_of(client, task->function);
        if (run.defined != NULL) {
            run.function = head_function_id(run.defined);
        }
        run.shaped = task->n_launch_shape == WIRE_LAUNCH_SHAPE_COUNT;
        if (run.shaped) {
            memcpy(run.launch_shape, task->launch_shape, sizeof(run.launch_shape));
        }
    }
    return run;
}

static plasmon_status_t submit_run(struct head_core *core, struct head_client *client,
                                   const Plasmon__V1__Task *task, struct pl_err *err)
{
    static _Thread_local struct pl_vec args = {.item_bytes = sizeof(struct head_arg)};
    struct head_run run                     = head_run_of_task(core, client, task);
    struct head_failure *failure            = NULL;
    plasmon_status_t status                 = PLASMON_OK;

    pl_vec_clear(&args);
    for (size_t i = 0; i < task->n_args; i++) {
        struct head_arg *arg = pl_vec_push(&args);
        plasmon_status_t one;

        PL_CHECK(arg != NULL);
        one = head_arg_resolve(core, client, task->args[i], arg,
                               status == PLASMON_OK ? err : NULL);
        if (one != PLASMON_OK) {
            /* the others are still resolved: their refs must exist, failed */
            pl_vec_pop(&args);
            status = status == PLASMON_OK ? one : status;
        }
    }
    run.args      = args.items;
    run.arg_count = args.count;
    if (status == PLASMON_OK) {
        status = check_aliasing(&run, err);
    }
    if (status == PLASMON_OK) {
        status = head_space_admit_task(client->space, err);
    }
    if (status != PLASMON_OK) {
        failure = head_failure_create(status, task->id, client->id, "task %llu refused: %s",
                                      (unsigned long long)task->id, err->text);
    } else if (head_run_start(core, &run, &failure)) {
        return PLASMON_OK;
    }

    if (failure->first_task == 0) {
        failure->first_task   = task->id;
        failure->first_client = client->id;
    }
    head_run_fail(core, &run, failure);
    head_client_failed(core, client, task->id, failure);
    core->tasks_failed++;
    head_failure_release(failure);
    return PLASMON_OK;
}

plasmon_status_t head_submit(struct head_core *core, struct head_client *client,
                             const Plasmon__V1__Task *task, struct pl_err *err)
{
    plasmon_status_t status;

    if (task->id == 0 || pl_map_get(&client->tasks, task->id) != NULL ||
        pl_map_get(&client->groups, task->id) != NULL) {
        return pl_err_set(err, PLASMON_EMALFORMED, "task id %llu is 0 or in use",
                          (unsigned long long)task->id);
    }
    switch (task->kind) {
    case PLASMON__V1__TASK_KIND__TASK_RUN:
        return task->graph != 0      ? head_graph_record(core, client, task, err)
               : task->index != NULL ? head_index_submit(core, client, task, err)
                                     : submit_run(core, client, task, err);
    case PLASMON__V1__TASK_KIND__TASK_GRAPH_END:
        return head_graph_end(core, client, task, err);
    case PLASMON__V1__TASK_KIND__TASK_GRAPH_LAUNCH:
        status = head_graph_launch(core, client, task, err);
        break;
    case PLASMON__V1__TASK_KIND__TASK_PUT:
        status = head_put(core, client, task, err);
        break;
    case PLASMON__V1__TASK_KIND__TASK_PUT_HOST:
        status = head_host_put(core, client, task, err);
        break;
    case PLASMON__V1__TASK_KIND__TASK_GET_HOST:
        status = head_space_admit_task(client->space, err);
        if (status == PLASMON_OK) {
            status = head_host_get(core, client, task, err);
        }
        break;
    case PLASMON__V1__TASK_KIND__TASK_COLLECTIVE:
        return head_collective(core, client, task, err);
    case PLASMON__V1__TASK_KIND__TASK_SNAPSHOT:
        status = submit_snapshot(core, client, task, err);
        break;
    default:
        return pl_err_set(err, PLASMON_EMALFORMED, "task %llu: no such kind %d",
                          (unsigned long long)task->id, (int)task->kind);
    }
    if (status != PLASMON_OK) {
        struct head_failure *failure =
            head_failure_create(status, task->id, client->id, "task %llu refused: %s",
                                (unsigned long long)task->id, err->text);

        head_client_failed(core, client, task->id, failure);
        head_failure_release(failure);
    }
    return PLASMON_OK;
}
