/*
 * What was lost is made again: the calls that made it are run again, on devices that are there.
 *
 * A LOSS is noted while an input is taken (a device is gone, a worker died while it wrote over what it had read), and looked at when all of it is
 * known, before the next input (head_rebuild):
 *
 *   tiles      of which bytes are gone (head_tile_lose)
 *   launches   that will not do what they were to do: those of a gone device, those that cannot be repeated, and whatever reads from these
 *              (task.c dooms along the same edges). Their calls are run again as new launches; the old ones go on with their numbers,
 *              because others wait for those, and what they do means nothing (head_rebuild_task)
 *
 * head_rebuild():
 *
 *   1. want     the calls that somebody waits for, and those that made what an array, a name or a partial result still shows
 *   2. close    a call needs what it read. What of it is nowhere needs its own call again, and so on back to what is there: puts,
 *               replicas, versions that were kept
 *   3. hold     each of these calls gets arrays of its own that show what it read: as in the first run, nothing is written in place that
 *               a call of this list still needs
 *   4. run      in the order of their serials, which is that of the program. They are submitted like any other call, so
 *               edges, placement, moves and memory are as always
 *
 * WHAT TAKES THE RESULT. A tile of which nothing is left, or nothing of what is shown, gets the new bytes itself: arrays, views, snapshots and
 * records that point to it find them there. A tile whose shown parts are all there - the missing one was overwritten in place - keeps its
 * instances, and a stand-in, seen by the calls of this list alone, takes the result. An output that nobody lacks (a sibling that
 * survived) goes into memory that is freed with the launch: a survivor is never written.
 *
 * ENDS. Serials fall along "read", so step 2 has no cycle. A record is run again at most HEAD_RUNS_AGAIN_MAX times; then it counts as cut off. What is
 * cut off fails, and what reads it fails after it (EDEPENDENCY), so every future is resolved.
 *
 * Everything here is in the order of serials and of lists: the same inputs give the same launches.
 *
 * Seeded bugs: head.rebuild_in_place (run.c: a version that somebody else has is written over), head.rebuild_retired (what was told to be memory for others
 * is read), head.lineage_free_early (lineage.c).
 */
#include "head/wait.h"

#include <stdlib.h>
#include <string.h>

/* Who waited for a launch that is to be made again. */
struct head_again {
    struct head_client *client; /* NULL: nobody is told */
    uint64_t id;
    struct head_group *group; /* as the old launch held it; NULL */
    struct head_failure
        *cause;          /* what happened to the old launch itself; NULL: to what it read */
    struct pl_vec waits; /* struct head_wait *: that its bytes are for */
    uint64_t submit_ns;
};

/* A tile that is to have a result. */
struct head_rebuilt {
    struct head_tile *tile;     /* kept */
    struct head_tile *stand_in; /* owned; NULL: the tile itself */
};

/* A record that is run again. */
struct rerun {
    struct head_record *record; /* held */
    struct head_arg *args;
};

struct rebuild {
    struct head_core *core;
    struct pl_vec reruns; /* struct rerun */
    struct pl_vec open;   /* struct head_record *: whose inputs were not looked at */
    struct pl_vec tiles;  /* struct head_rebuilt * */
    uint64_t never;
};

/* ------------------------------------------------------------------------------------------ what is lost */

static bool is_mover(const struct head_task *task)
{
    return task->kind == PLASMON__V1__LAUNCH_KIND__LAUNCH_COPY ||
           task->kind == PLASMON__V1__LAUNCH_KIND__LAUNCH_SEND ||
           task->kind == PLASMON__V1__LAUNCH_KIND__LAUNCH_RECV || task->spilled != NULL;
}

/* Its client's memory may be touched until it is over. */
static bool must_end_first(const struct head_task *task)
{
    return task->kind == PLASMON__V1__LAUNCH_KIND__LAUNCH_GET_HOST &&
           task->spilled == NULL && task->seq <= task->device->seq_sent;
}

static struct head_again *again_of(struct head_core *core, struct head_record *record)
{
    struct head_record **place;

    if (record->again == NULL) {
        record->again        = head_alloc(sizeof(*record->again));
        record->again->waits = PL_VEC_INIT(struct head_wait *);
        head_record_hold(record);
        place = pl_vec_push(&core->lineage.again);
        PL_CHECK(place != NULL);
        *place = record;
    }
    return record->again;
}

static void wait_later(struct pl_vec *waits, struct head_wait *wait)
{
    struct head_wait **place = pl_vec_push(waits);

    PL_CHECK(place != NULL);
    *place = wait;
}

/* If it was this launch itself that something happened to. */
static void take_cause(struct head_again *again, struct head_failure *failure)
{
    if (again->cause == NULL && failure->status != PLASMON_EDEPENDENCY) {
        again->cause = head_failure_hold(failure);
    }
}

/* Answers that the launch was to bring: of a READ with the next one; where things are is looked up anew when all is under way. */
static void take_waits(struct head_core *core, struct head_task *task,
                       struct head_failure *failure)
{
    for (size_t i = 0; i < task->waits.count; i++) {
        struct head_wait *wait = ((struct head_waiting *)pl_vec_at(&task->waits, i))->wait;

        if (wait->kind == HEAD_WAIT_DATA && task->record != NULL) {
            wait_later(&again_of(core, task->record)->waits, wait);
            take_cause(task->record->again, failure);
        } else {
            wait->moved = true;
            wait_later(&core->lineage.waits, wait);
        }
    }
    pl_vec_clear(&task->waits);
}

/* From here on nobody is told of this launch. */
static void take_client(struct head_core *core, struct head_task *task,
                        struct head_failure *failure)
{
    struct head_again *again;
    bool asked = !task->resolved && task->record != NULL &&
                 (task->group != NULL || (task->client != NULL && task->id != 0));

    task->resolved = true;
    if (!asked) {
        return;
    }
    again        = again_of(core, task->record);
    again->group = task->group;
    if (task->group != NULL) {
        pl_list_remove(&task->group_link);
    } else {
        again->client = task->client;
        (void)pl_map_remove(&task->client->tasks, task->id); /* put in by its start */
        head_client_task_over(task->client);
    }
    again->id   = task->id;
    task->group = NULL;
    take_cause(again, failure);
}

static void take_outputs(struct head_core *core, struct head_task *task,
                         struct head_failure *failure)
{
    for (size_t i = 0; i < task->outputs.count; i++) {
        struct head_tile *tile = *(struct head_tile **)pl_vec_at(&task->outputs, i);

        head_tile_lose(core, tile, failure);
        head_tile_empty(core, tile);
        tile->makers--;
        head_tile_release(core, tile);
    }
    pl_vec_clear(&task->outputs);
}

/* Part of a collective, which has no record and fails as a whole: its client is to hear that. */
static bool fails_as_part(const struct head_task *task)
{
    return task->group != NULL && task->group->whole;
}

bool head_rebuild_task(struct head_core *core, struct head_task *task,
                       struct head_failure *failure)
{
    if (core->config.lineage_bytes == 0 || task->cancelled || fails_as_part(task) ||
        (!is_mover(task) &&
         (task->record == NULL || task->record->runs >= HEAD_RUNS_AGAIN_MAX))) {
        return false;
    }
    take_outputs(core, task, failure);
    if (!must_end_first(task)) {
        take_waits(core, task, failure);
        take_client(core, task, failure);
    }
    return true;
}

void head_rebuild_task_over(struct head_core *core, struct head_task *task)
{
    take_waits(core, task, task->failure);
    take_client(core, task, task->failure);
}

/* Not its own memory, that is. */
static bool reads_from(const struct head_task *task, const struct head_device *device)
{
    for (uint32_t i = 0; i < task->use_count; i++) {
        const struct head_use *use = &task->uses[i];

        if (use->buffer != NULL && !use->write && use->buffer->device != task->device &&
            (device == NULL ? !use->buffer->device->gone : use->buffer->device == device)) {
            return true;
        }
    }
    return false;
}

bool head_rebuild_strand(struct head_core *core, struct head_task *task)
{
    if (core->config.lineage_bytes == 0 || task->failure != NULL ||
        !reads_from(task, NULL)) {
        return false;
    }
    task->stranded = true;
    return true;
}

void head_rebuild_readers(struct head_core *core, struct head_device *device,
                          struct head_failure *failure)
{
    struct pl_vec stranded = PL_VEC_INIT(struct head_task *);
    struct pl_list *pos, *tmp;

    if (core->config.lineage_bytes == 0) {
        return;
    }
    pl_list_for_each_safe(pos, tmp, &core->unfinished) {
        struct head_task *task = pl_container_of(pos, struct head_task, order_link);
        struct head_task **place;

        if (task->device == device || !reads_from(task, device)) {
            continue;
        }
        head_task_doom(core, task, failure);
        if (task->stranded) {
            place = pl_vec_push(&stranded);
            PL_CHECK(place != NULL);
            *place = task;
            task->refs++;
        }
    }
    for (size_t i = 0; i < stranded.count; i++) {
        struct head_task *task = *(struct head_task **)pl_vec_at(&stranded, i);

        if (!task->finished) {
            head_task_finish(core, task, failure);
        }
        head_task_release(task);
    }
    pl_vec_finish(&stranded);
}

void head_tile_lose(struct head_core *core, struct head_tile *tile,
                    struct head_failure *failure)
{
    struct head_loss *loss;

    if (core->config.lineage_bytes == 0 || !failure->loss) {
        if (tile->failure == NULL) {
            tile->failure = head_failure_hold(failure);
        }
        return;
    }
    loss = pl_vec_push(&core->lineage.lost);
    PL_CHECK(loss != NULL);
    loss->tile    = tile;
    loss->failure = head_failure_hold(failure);
    head_tile_keep(core, tile);
}

/* --------------------------------------------------------------------------------- what must be run again */

/* Somebody but an unfinished task that makes it has it. */
static bool is_shown(const struct head_tile *tile)
{
    return tile->refs > tile->makers;
}

/* Is any part of what somebody has of it nowhere? */
static bool shown_part_missing(const struct head_tile *tile)
{
    uint32_t fragments = 0;
    struct pl_list *pos;

    pl_list_for_each(pos, &tile->fragments) {
        const struct head_fragment *fragment =
            pl_container_of(pos, struct head_fragment, tile_link);

        fragments++;
        if (!head_tile_covered(tile, NULL, &fragment->box)) {
            return true;
        }
    }
    return tile->refs > tile->makers + fragments /* a partial result */
           && !head_tile_covered(tile, NULL, &tile->box);
}

/*
 * Memory that was given up because nobody was going to look there again: its worker may use it for something else already, and the plan counts on
 * that. (Not only what is retired: what leaves is retired once its last launch is sent, whatever we find here.)
 */
static void drop_leaving(struct head_core *core, struct head_tile *tile)
{
    struct pl_list *pos, *tmp;

    if (is_shown(tile) || pl_bug("head.rebuild_retired")) {
        return;
    }
    pl_list_for_each_safe(pos, tmp, &tile->instances) {
        struct head_instance *instance =
            pl_container_of(pos, struct head_instance, tile_link);

        if (instance->buffer->leaving) {
            head_instance_remove(core, instance);
        }
    }
}

/* Why it cannot be made again. loss: what happened to it, if that is known. */
static struct head_failure *never(const struct head_tile *tile,
                                  const struct head_failure *loss)
{
    const char *text =
        loss != NULL ? loss->text : "a version that was overwritten in place";
    uint64_t task   = loss != NULL ? loss->first_task : 0;
    uint64_t client = loss != NULL ? loss->first_client : 0;

    if (tile->record != NULL) {
        return head_failure_create(PLASMON_ENOTREBUILDABLE, task, client,
                                   "%s; it was made again %u times, which is the limit",
                                   text, tile->record->runs);
    }
    switch (tile->cut) {
    case HEAD_CUT_OLD:
        return head_failure_create(
            PLASMON_ENOTREBUILDABLE, task, client,
            "%s; how it was made is not known any more: give the head more --lineage-bytes",
            text);
    case HEAD_CUT_GRAPH:
        return head_failure_create(PLASMON_ENOTREBUILDABLE, task, client,
                                   "%s; it was made inside of a recorded graph, which is "
                                   "not run again in parts",
                                   text);
    case HEAD_CUT_COLLECTIVE:
        return head_failure_create(PLASMON_ENOTREBUILDABLE, task, client,
                                   "%s; it was made by a collective, which is not run "
                                   "again",
                                   text);
    default:
        return head_failure_create(
            loss != NULL ? loss->status : PLASMON_ECONSUMED, task, client,
            "%s; it was put, and only its client can put it again", text);
    }
}

static void plan(struct rebuild *rebuild, struct head_record *record)
{
    struct head_record **open;
    struct rerun *rerun;

    if (record->planned) {
        return;
    }
    record->planned = true;
    head_record_hold(record);
    rerun = pl_vec_push(&rebuild->reruns);
    open  = pl_vec_push(&rebuild->open);
    PL_CHECK(rerun != NULL && open != NULL);
    rerun->record = record;
    *open         = record;
}

/* Bytes of it are wanted that are nowhere. */
static void need(struct rebuild *rebuild, struct head_tile *tile,
                 const struct head_failure *loss)
{
    struct head_core *core = rebuild->core;
    struct head_rebuilt *rebuilt;
    struct head_rebuilt **place;
    bool own;

    if (tile->rebuilt != NULL || tile->failure != NULL) {
        return;
    }
    own     = shown_part_missing(tile) || (!is_shown(tile) && tile->makers == 0);
    rebuilt = head_alloc(sizeof(*rebuilt));
    place   = pl_vec_push(&rebuild->tiles);
    PL_CHECK(place != NULL);
    *place        = rebuilt;
    rebuilt->tile = tile;
    tile->rebuilt = rebuilt;
    head_tile_keep(core, tile);
    if (!own) {
        rebuilt->stand_in = head_tile_create(core, &tile->box);
    }
    if (tile->record == NULL || tile->record->runs >= HEAD_RUNS_AGAIN_MAX) {
        (own ? tile : rebuilt->stand_in)->failure = never(tile, loss);
        rebuild->never += is_shown(tile) && own;
        return;
    }
    if (own) {
        head_tile_empty(core, tile);
    }
    plan(rebuild, tile->record);
}

static void close_over(struct rebuild *rebuild)
{
    while (rebuild->open.count > 0) {
        const struct head_record *record =
            *(struct head_record **)pl_vec_at(&rebuild->open, rebuild->open.count - 1);

        pl_vec_pop(&rebuild->open);
        for (uint32_t a = 0; a < record->arg_count; a++) {
            const struct head_record_arg *arg = &record->args[a];

            for (uint32_t i = 0; i < arg->input_count; i++) {
                const struct head_record_input *input =
                    &record->inputs[arg->input_first + i];
                struct pl_box box = head_record_box(record, arg, input);

                drop_leaving(rebuild->core, input->tile);
                if (!head_tile_covered(input->tile, NULL, &box)) {
                    need(rebuild, input->tile, NULL);
                }
            }
        }
    }
}

static void collect(struct rebuild *rebuild)
{
    struct head_lineage *lineage = &rebuild->core->lineage;

    for (size_t i = 0; i < lineage->again.count; i++) {
        plan(rebuild, *(struct head_record **)pl_vec_at(&lineage->again, i));
    }
    for (size_t i = 0; i < lineage->lost.count; i++) {
        const struct head_loss *loss = pl_vec_at(&lineage->lost, i);

        if (is_shown(loss->tile) && shown_part_missing(loss->tile)) {
            need(rebuild, loss->tile, loss->failure);
        }
    }
    close_over(rebuild);
}

/* -------------------------------------------------------------------------------------------- run again */

static int compare_reruns(const void *a, const void *b)
{
    uint64_t x = ((const struct rerun *)a)->record->serial;
    uint64_t y = ((const struct rerun *)b)->record->serial;

    return x < y ? -1 : x > y;
}

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

static void hold_inputs(struct rebuild *rebuild, struct rerun *rerun)
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

            if (tile->rebuilt != NULL && tile->rebuilt->stand_in != NULL) {
                tile = tile->rebuilt->stand_in;
            }
            head_array_set(rebuild->core, arg->array, &box, tile);
        }
    }
}

static void release_inputs(struct head_core *core, struct rerun *rerun)
{
    for (uint32_t a = 0; a < rerun->record->arg_count; a++) {
        if (rerun->args[a].array != NULL) {
            head_array_release(core, rerun->args[a].array);
        }
    }
    pl_free(rerun->args);
}

/* A hint does not bind: its device may be what was lost. */
static uint32_t place_of(struct head_core *core, const struct head_record *record)
{
    const struct head_device *device =
        record->place != 0 ? head_device_at(core, record->place - 1) : NULL;

    return device != NULL && device->joined && !device->gone && !device->draining
               ? record->place
               : 0;
}

static struct head_run run_of(struct head_core *core, const struct rerun *rerun)
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
static bool run_again(struct head_core *core, struct rerun *rerun,
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
static void fail_again(struct head_core *core, const struct rerun *rerun,
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
            tile->failure = head_failure_hold(failure);
            core->lineage.rebuilt_never += is_shown(tile);
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

static void run_one(struct rebuild *rebuild, struct rerun *rerun)
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

static void forget_tiles(struct rebuild *rebuild)
{
    struct head_core *core = rebuild->core;

    for (size_t i = 0; i < rebuild->tiles.count; i++) {
        struct head_rebuilt *rebuilt =
            *(struct head_rebuilt **)pl_vec_at(&rebuild->tiles, i);

        if (rebuilt->stand_in != NULL) {
            head_tile_release(core, rebuilt->stand_in);
        }
        rebuilt->tile->rebuilt = NULL;
        head_tile_unkeep(core, rebuilt->tile);
        pl_free(rebuilt);
    }
    pl_vec_finish(&rebuild->tiles);
    for (size_t i = 0; i < core->lineage.lost.count; i++) {
        struct head_loss *loss = pl_vec_at(&core->lineage.lost, i);

        head_failure_release(loss->failure);
        head_tile_unkeep(core, loss->tile);
    }
    pl_vec_clear(&core->lineage.lost);
}

void head_rebuild(struct head_core *core)
{
    struct head_lineage *lineage = &core->lineage;
    struct rebuild rebuild       = {
              .core   = core,
              .reruns = PL_VEC_INIT(struct rerun),
              .open   = PL_VEC_INIT(struct head_record *),
              .tiles  = PL_VEC_INIT(struct head_rebuilt *),
    };

    if (lineage->lost.count + lineage->again.count + lineage->waits.count == 0) {
        return;
    }
    lineage->rebuilding = true;
    head_shadow_lost(core);
    collect(&rebuild);
    pl_vec_clear(&lineage->again);
    if (rebuild.reruns.count > 1) {
        qsort(rebuild.reruns.items, rebuild.reruns.count, sizeof(struct rerun),
              compare_reruns);
    }
    for (size_t i = 0; i < rebuild.reruns.count; i++) {
        hold_inputs(&rebuild, pl_vec_at(&rebuild.reruns, i));
    }
    lineage->rebuilt_never += rebuild.never;
    pl_info("head",
            "%zu tiles lost bytes: %zu tasks run again, %llu tiles cannot be made again",
            lineage->lost.count, rebuild.reruns.count, (unsigned long long)rebuild.never);
    for (size_t i = 0; i < rebuild.reruns.count; i++) {
        run_one(&rebuild, pl_vec_at(&rebuild.reruns, i));
    }
    forget_tiles(&rebuild);
    pl_vec_finish(&rebuild.reruns);
    pl_vec_finish(&rebuild.open);
    while (lineage->waits.count > 0) {
        struct head_wait *wait =
            *(struct head_wait **)pl_vec_at(&lineage->waits, lineage->waits.count - 1);

        pl_vec_pop(&lineage->waits);
        head_wait_ended(core, wait, NULL);
    }
    lineage->rebuilding = false;
    head_lineage_bound(core);
}
