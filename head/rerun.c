/*
 * One call is run again. Its arguments are arrays that show what it read then; it is submitted like
 * any other call, so edges, placement, moves and memory are as always. What takes its results is
 * said in rebuild.c.
 *
 * BESIDE. When another launch of the call is unfinished and well, this one is right only if that
 * is: it finishes after it and fails with it, so what is made of a call that is cancelled or fails
 * is not shown. Nobody is told of this one.
 */
#include "head/rebuild_int.h"

#include <string.h>

/* In coordinates of the roots, and as large as that needs. */
static struct head_array *array_of(struct head_core *core, const struct pl_box *hull,
                                   uint32_t dtype)
{
    struct pl_shape shape = {.dtype = dtype, .ndim = hull->ndim};
    struct head_array *array;

    for (uint32_t d = 0; d < hull->ndim; d++) {
        shape.dim[d] = hull->start[d] + hull->count[d];
    }
    array         = head_array_create(core, NULL, &shape);
    array->extent = *hull;
    return array;
}

void head_rerun_hold(struct head_rebuild *rebuild, struct head_rerun *rerun)
{
    struct head_record *record = rerun->record;

    rerun->args = head_alloc((record->arg_count + 1) * sizeof(*rerun->args));
    for (uint32_t a = 0; a < record->arg_count; a++) {
        const struct head_record_arg *from = &record->args[a];
        struct head_arg *arg               = &rerun->args[a];

        arg->mode      = from->mode;
        arg->dtype     = from->dtype;
        arg->reduce_op = from->reduce_op;
        arg->dense     = from->dense;
        arg->view      = head_record_view(record, from);
        arg->hull      = pl_view_hull(&arg->view);
        if (from->output != NULL && from->output->rebuilt != NULL) {
            arg->again = from->output->rebuilt->stand_in != NULL
                             ? from->output->rebuilt->stand_in
                             : from->output;
        }
        if (from->mode == PLASMON__V1__MODE__MODE_SCRATCH) {
            continue;
        }
        arg->array = array_of(rebuild->core, &arg->hull, from->dtype);
        for (uint32_t i = 0; i < from->input_count; i++) {
            const struct head_record_input *input = &record->inputs[from->input_first + i];
            struct head_tile *tile                = input->tile;
            struct pl_box box                     = head_record_box(record, from, input);

            if (tile->rebuilt != NULL && tile->rebuilt->stand_in != NULL &&
                (tile->rebuilt->stand_in->failure == NULL ||
                 !head_rebuild_covers(tile, &box))) {
                tile = tile->rebuilt->stand_in; /* else another call wants another part */
            }
            head_array_set(rebuild->core, arg->array, &box, tile);
        }
    }
}

static void release_inputs(struct head_core *core, struct head_rerun *rerun)
{
    for (uint32_t a = 0; a < rerun->record->arg_count; a++) {
        if (rerun->args[a].array != NULL) {
            head_array_release(core, rerun->args[a].array);
        }
    }
    pl_free(rerun->args);
}

/* A hint does not bind: its device may be what was lost, or nothing gets there. */
static uint32_t place_of(struct head_core *core, const struct head_record *record)
{
    const struct head_device *device =
        record->place != 0 ? head_device_at(core, record->place - 1) : NULL;

    return device != NULL && device->joined && !device->gone && !device->draining &&
                   record->apart == 0
               ? record->place
               : 0;
}

static struct head_run run_of(struct head_core *core, const struct head_rerun *rerun)
{
    struct head_record *record     = rerun->record;
    const struct head_again *again = record->again;
    struct head_run run            = {
                   .function      = record->function,
                   .defined       = record->defined,
                   .shaped        = record->launch_shape != NULL,
                   .label         = record->label,
                   .args          = rerun->args,
                   .arg_count     = record->arg_count,
                   .scalars       = record->scalars,
                   .scalar_count  = record->scalar_count,
                   .place         = place_of(core, record),
                   .retries       = record->retries,
                   .time_limit_ms = record->time_limit_ms,
                   .priority      = record->priority,
                   .record        = record,
                   .beside        = head_record_launch(record),
    };

    if (run.shaped) {
        memcpy(run.launch_shape, record->launch_shape, sizeof(run.launch_shape));
    }
    if (again != NULL) {
        run.client = again->client;
        run.id     = again->id;
        run.group  = again->group;
    }
    return run;
}

/* One call. false: *out_failure (owned) says why not. */
static bool run_again(struct head_core *core, struct head_rerun *rerun,
                      struct head_failure **out_failure)
{
    struct head_record *record = rerun->record;
    struct head_run run;

    head_spill_plan_begin(core);
    if (record->kind == PLASMON__V1__LAUNCH_KIND__LAUNCH_READ) {
        return head_read_again(core, record, rerun->args[0].array,
                               *(struct head_wait **)pl_vec_at(&record->again->waits, 0),
                               out_failure);
    }
    run = run_of(core, rerun);
    if (record->kind == PLASMON__V1__LAUNCH_KIND__LAUNCH_GET_HOST) {
        return head_host_get_again(core, &run, out_failure);
    }
    if (head_run_start(core, &run, out_failure)) {
        return true;
    }
    if (run.place == 0) {
        return false;
    }
    head_failure_release(*out_failure);
    run.place = 0;
    return head_run_start(core, &run, out_failure);
}

/* It cannot be: what it would have made has failed, and so has who waits for it. */
static void fail_again(struct head_core *core, const struct head_rerun *rerun,
                       struct head_failure *why)
{
    const struct head_again *again = rerun->record->again;
    struct head_failure *failure   = head_failure_hold(why);

    if (again != NULL && again->cause != NULL) {
        head_failure_release(failure);
        failure = head_failure_create(
            again->cause->status, again->cause->first_task, again->cause->first_client,
            "%s; it cannot be run again: %s", again->cause->text, why->text);
    }
    if (again != NULL && failure->first_task == 0) {
        failure->first_task   = again->id;
        failure->first_client = again->client != NULL ? again->client->id : 0;
    }
    for (uint32_t a = 0; a < rerun->record->arg_count; a++) {
        struct head_tile *tile = rerun->args[a].again;

        if (tile != NULL && tile->failure == NULL) {
            head_tile_fail(core, tile, failure);
            core->lineage.rebuilt_never += head_tile_shown(tile);
        }
    }
    if (again != NULL && again->group != NULL) {
        head_group_fail(again->group, failure);
    } else if (again != NULL && again->client != NULL) {
        core->tasks_failed++;
        head_client_failed(core, again->client, again->id, failure);
    }
    for (size_t i = 0; again != NULL && i < again->waits.count; i++) {
        head_wait_ended(core, *(struct head_wait **)pl_vec_at(&again->waits, i), failure);
    }
    head_failure_release(failure);
}

static void again_free(struct head_core *core, struct head_record *record)
{
    struct head_again *again = record->again;

    record->again = NULL;
    if (again->group != NULL) {
        head_group_resolved(core, again->group, NULL); /* the old launch's share */
        head_group_release(again->group);
    }
    head_failure_release(again->cause);
    pl_vec_finish(&again->waits);
    pl_free(again);
    head_record_release(core, record);
}

void head_rerun_start(struct head_rebuild *rebuild, struct head_rerun *rerun)
{
    struct head_lineage *lineage = &rebuild->core->lineage;
    struct head_record *record   = rerun->record;
    struct head_failure *failure = NULL;

    if (run_again(rebuild->core, rerun, &failure)) {
        record->runs++;
        lineage->rebuilt_tasks++;
        for (uint32_t a = 0; a < record->arg_count; a++) {
            const struct head_arg *arg = &rerun->args[a];

            if (arg->again != NULL) {
                lineage->rebuilt_bytes +=
                    (uint64_t)pl_box_elements(&arg->hull) * pl_dtype_bytes(arg->dtype);
            }
        }
        for (size_t i = 0; record->again != NULL && i < record->again->waits.count; i++) {
            head_wait_ended(rebuild->core,
                            *(struct head_wait **)pl_vec_at(&record->again->waits, i),
                            NULL); /* it waits for the new launch */
        }
    } else {
        fail_again(rebuild->core, rerun, failure);
        head_failure_release(failure);
    }
    release_inputs(rebuild->core, rerun);
    if (record->again != NULL) {
        again_free(rebuild->core, record);
    }
    record->planned = false;
    head_record_release(rebuild->core, record);
}
