/*
 * A call becomes a launch.
 *
 *   1. resolve   each argument is a view of an array; new outputs have got one (submit.c)
 *   2. fold      pending REDUCE results of arrays that are about to be read or written
 *   3. refuse    an input that has failed fails the task here
 *   4. place     choose the device
 *   5. gather    for each argument a buffer on that device (below)
 *   6. start     number, edges, encode
 *   7. commit    new tiles for what it writes; the arrays point to them
 *
 * Step 5, by mode:
 *
 *   IN       a buffer that holds the box, else a replica is made
 *   OUT      all of an array, or a fresh one: a fresh buffer (older versions are not touched: no
 *            wait). A dense part: in the array's own buffer if it is here and nobody else needs
 *            that part, so that the array stays in one piece; else a fresh buffer of just that box.
 *            A strided part keeps what lies between: like INOUT.
 *   INOUT    in the array's own buffer (donation), under the same conditions and if no shadow is to
 *            stay there (shadow.c); else a fresh buffer of just the box, filled first by pieces
 *            that belong to the launch itself, so that running it again starts from the right bytes
 *   REDUCE   a private accumulator
 *   SCRATCH  a fresh buffer that nobody keeps
 */
#include "head/graph.h"

#include <stdio.h>

/* ------------------------------------------------------------------------------ buffers */

struct start {
    struct head_core *core;
    struct head_run *run;
    struct head_device *device;
    struct pl_vec pieces; /* struct head_piece */
    struct pl_vec held;   /* struct head_buffer * */
    bool excess;          /* there is no room for what it makes */
    struct head_failure *failure;
};

static struct head_buffer *fresh_buffer(struct start *start, const struct pl_box *frame,
                                        uint32_t dtype)
{
    struct head_buffer *buffer =
        head_buffer_create(start->core, start->device, frame, dtype);

    if (buffer == NULL) {
        start->failure = head_failure_create(
            PLASMON_ELIMIT, start->run->id, 0,
            "the object table of device %u is full (%d objects); release some refs",
            start->device->index, HEAD_SLOTS_MAX);
    } else {
        buffer->excess = start->excess;
    }
    return buffer;
}

struct head_failure *head_run_unknown(const struct head_run *run)
{
    if (!wire_function_defined(run->function) || run->defined != NULL) {
        return NULL;
    }
    return head_failure_create(PLASMON_ENOFUNCTION, run->id, 0,
                               "task %llu calls function %08x, which its session has not "
                               "defined",
                               (unsigned long long)run->id, run->function);
}

const struct pl_box *head_arg_kept(const struct head_arg *arg, size_t i)
{
    if (arg->kept == NULL) {
        return i == 0 ? &arg->hull : NULL;
    }
    return i < arg->kept_count ? &arg->kept[i] : NULL;
}

static bool covers_array(const struct head_arg *arg)
{
    return pl_box_equal(&arg->hull, &arg->array->extent) && pl_view_dense(&arg->view);
}

bool head_view_without_gaps(const struct pl_view *view, const struct pl_box *frame)
{
    int64_t stride[PL_DIM_MAX];
    int64_t want = 1;

    pl_box_strides(frame, stride);
    for (uint32_t i = view->ndim; i-- > 0;) {
        if (view->count[i] != 1 && stride[i] * view->step[i] != want) {
            return false;
        }
        want *= view->count[i];
    }
    return true;
}

static bool fits(const struct head_arg *arg, const struct head_buffer *buffer)
{
    return !arg->dense || head_view_without_gaps(&arg->view, &buffer->frame);
}

/*
 * What is kept of it comes into its fresh buffer; what it overwrites before it reads it does not:
 * it may have failed.
 */
static bool gather_kept(struct start *start, const struct head_arg *arg, uint32_t number)
{
    const struct pl_box *box;

    for (size_t i = 0; (box = head_arg_kept(arg, i)) != NULL; i++) {
        if (!head_move_pieces(start->core, arg->array, box, arg->buffer, number,
                              &start->pieces, &start->held, &start->failure)) {
            return false;
        }
    }
    return true;
}

/*
 * OUT and INOUT. A segment of a graph also writes all of an array where it is: then it finds the
 * same addresses the next time, at the price of waiting for those who still read the last launch's.
 */
static bool gather_written(struct start *start, struct head_operand *operand,
                           struct head_arg *arg, uint32_t number)
{
    bool keeps = arg->mode == PLASMON__V1__MODE__MODE_INOUT || !pl_view_dense(&arg->view);

    operand->writes     = true;
    operand->reads      = keeps;
    operand->kept       = arg->kept;
    operand->kept_count = arg->kept_count;
    if (keeps || !covers_array(arg) || start->run->segment != NULL) {
        arg->buffer = head_move_common(arg->array, &arg->hull, start->device,
                                       start->run->record == NULL ||
                                           !pl_bug("head.rebuild_in_place"));
        if (arg->buffer != NULL && !fits(arg, arg->buffer)) {
            arg->buffer = NULL;
        }
    }
    if (arg->buffer != NULL && keeps && start->run->record == NULL &&
        !head_shadow_keep(start->core, arg->array, &arg->hull, arg->buffer,
                          start->run->segment != NULL)) {
        arg->buffer = NULL;
    }
    if (arg->buffer != NULL) {
        head_buffer_hold(arg->buffer);
        head_write_back_overwritten(start->core, arg->buffer);
        arg->in_place    = true;
        operand->consume = true;
        return true;
    }

    arg->buffer = fresh_buffer(start, &arg->hull, arg->dtype);
    if (arg->buffer == NULL) {
        return false;
    }
    operand->fresh = true;
    if (keeps) {
        operand->reads = false; /* its pieces do */
        return gather_kept(start, arg, number);
    }
    return true;
}

static bool gather(struct start *start, struct head_operand *operand, struct head_arg *arg,
                   uint32_t number)
{
    bool ok = true;

    operand->mode = arg->mode;
    operand->box  = arg->hull;
    operand->view = arg->view;
    switch (arg->mode) {
    case PLASMON__V1__MODE__MODE_IN:
        operand->reads = true;
        arg->buffer    = head_move_read(start->core, arg->array, &arg->hull, start->device,
                                        false, &start->failure);
        if (arg->buffer != NULL && !fits(arg, arg->buffer)) {
            head_buffer_release(start->core, arg->buffer);
            arg->buffer = head_move_read(start->core, arg->array, &arg->hull, start->device,
                                         true, &start->failure);
        }
        break;
    case PLASMON__V1__MODE__MODE_OUT:
    case PLASMON__V1__MODE__MODE_INOUT:
        ok = gather_written(start, operand, arg, number);
        break;
    default: /* REDUCE, SCRATCH */
        operand->writes    = true;
        operand->fresh     = true;
        operand->reduce_op = arg->reduce_op;
        arg->buffer        = fresh_buffer(start, &arg->hull, arg->dtype);
        break;
    }
    operand->buffer = arg->buffer;
    return ok && arg->buffer != NULL;
}

/* ------------------------------------------------------------------------------- commit */

/*
 * Of a call that is run again: versions that came after are not touched. What nobody lacks goes
 * with the launch.
 */
static void commit_again(struct head_core *core, struct head_task *task,
                         const struct head_arg *arg)
{
    if (arg->in_place) {
        head_buffer_overwrite(core, arg->buffer, &arg->hull);
    }
    if (arg->again != NULL) {
        head_instance_add(core, arg->again, arg->buffer, &arg->hull);
        head_task_makes(core, task, arg->again);
    }
}

static const char *value_label(const struct head_run *run, const struct head_arg *arg)
{
    return run->labels_apart ? arg->label : run->label;
}

static void commit(struct head_core *core, struct head_task *task,
                   struct head_record *record, struct head_arg *arg, size_t number,
                   const char *label)
{
    struct head_tile *tile;

    if (arg->mode == PLASMON__V1__MODE__MODE_IN ||
        arg->mode == PLASMON__V1__MODE__MODE_SCRATCH) {
        return;
    }
    if (arg->mode == PLASMON__V1__MODE__MODE_OUT && pl_view_dense(&arg->view)) {
        head_shadow_begin(core, arg->array, &arg->hull);
    }
    if (arg->in_place) {
        head_buffer_overwrite(core, arg->buffer, &arg->hull);
    }
    tile = head_tile_create(core, &arg->hull);
    head_tile_label_set(core, tile, label);
    head_instance_add(core, tile, arg->buffer, &arg->hull);
    head_task_makes(core, task, tile);
    if (record != NULL) {
        head_record_made(record, number, tile);
    } else {
        tile->cut = task->plan != NULL ? HEAD_CUT_GRAPH : HEAD_CUT_OFF;
    }
    if (arg->mode == PLASMON__V1__MODE__MODE_REDUCE) {
        head_reduce_add(core, arg->array, &arg->hull, tile, arg->reduce_op);
    } else {
        head_array_set(core, arg->array, &arg->hull, tile);
    }
    head_tile_release(core, tile);
}

static uint64_t estimate_ns(const struct head_run *run, const struct head_device *device)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < run->arg_count; i++) {
        bytes += (uint64_t)pl_box_elements(&run->args[i].hull) *
                 pl_dtype_bytes(run->args[i].dtype);
    }
    return head_work_ns(device, bytes);
}

static struct head_device *choose_device(struct head_core *core, const struct head_run *run,
                                         struct head_failure **out_failure)
{
    static _Thread_local struct pl_vec wants = {.item_bytes = sizeof(struct head_want)};

    pl_vec_clear(&wants);
    for (size_t i = 0; i < run->arg_count; i++) {
        const struct head_arg *arg = &run->args[i];
        struct head_want *want     = pl_vec_push(&wants);

        PL_CHECK(want != NULL);
        want->box   = arg->hull;
        want->bytes = (uint64_t)pl_box_elements(&arg->hull) * pl_dtype_bytes(arg->dtype);
        want->drained_too = run->drained_too;
        if (arg->mode == PLASMON__V1__MODE__MODE_OUT && !covers_array(arg)) {
            want->part_of = &arg->array->shape;
        }
        if (arg->mode == PLASMON__V1__MODE__MODE_IN ||
            arg->mode == PLASMON__V1__MODE__MODE_INOUT ||
            (arg->mode == PLASMON__V1__MODE__MODE_OUT && !covers_array(arg))) {
            want->array = arg->array;
            want->overwritten =
                arg->mode == PLASMON__V1__MODE__MODE_OUT && pl_view_dense(&arg->view);
        }
    }
    return head_place_function(core, run->defined, wants.items, wants.count, run->place,
                               out_failure);
}

enum { RUN_NAME_BYTES = 256 }; /* with a label of 128 */

/* As its client knows it, "task 7 'step'"; of what the head does of its own accord, what that is. */
static void run_describe(const struct head_run *run, char out[RUN_NAME_BYTES])
{
    const char *label = run->labels_apart || run->label == NULL ? "" : run->label;
    const char *quote = label[0] != '\0' ? "'" : "", *space = label[0] != '\0' ? " " : "";

    if (run->id != 0) {
        (void)snprintf(out, RUN_NAME_BYTES, "task %llu%s%s%s%s",
                       (unsigned long long)run->id, space, quote, label, quote);
    } else if (run->record != NULL) {
        (void)snprintf(out, RUN_NAME_BYTES,
                       "the call%s%s%s%s that is run again to make what was lost", space,
                       quote, label, quote);
    } else {
        (void)snprintf(out, RUN_NAME_BYTES, "internal task '%s'",
                       run->label != NULL ? run->label : "copy");
    }
}

/* Those of a segment, and of what the head does, are numbered by nobody but us. */
static struct head_failure *argument_failed(const struct head_core *core,
                                            const struct head_run *run, size_t number,
                                            const struct head_failure *failure)
{
    const struct head_arg *arg = &run->args[number];
    const char *label          = head_array_label(core, arg->array, &arg->hull);
    char what[RUN_NAME_BYTES], which[160] = "";

    run_describe(run, what);
    if (label != NULL) {
        (void)snprintf(which, sizeof(which), " (\"%s\")", label);
    }
    if (run->segment != NULL || run->id == 0) {
        return head_failure_create(
            PLASMON_EDEPENDENCY, failure->first_task, failure->first_client,
            "%s needs an array%s that failed before; the first failure: %s", what, which,
            head_failure_cause(failure));
    }
    return head_failure_create(
        PLASMON_EDEPENDENCY, failure->first_task, failure->first_client,
        "%s needs argument %zu%s, which failed before; the first failure: %s", what, number,
        which, head_failure_cause(failure));
}

static struct head_failure *failed_input(const struct head_core *core,
                                         const struct head_run *run)
{
    for (size_t i = 0; i < run->arg_count; i++) {
        const struct head_arg *arg   = &run->args[i];
        struct head_failure *failure = NULL;
        const struct pl_box *box;

        if (arg->mode != PLASMON__V1__MODE__MODE_IN &&
            arg->mode != PLASMON__V1__MODE__MODE_INOUT &&
            !(arg->mode == PLASMON__V1__MODE__MODE_OUT && !pl_view_dense(&arg->view))) {
            continue;
        }
        for (size_t k = 0; failure == NULL && (box = head_arg_kept(arg, k)) != NULL; k++) {
            failure = head_array_failure(arg->array, box);
        }
        if (failure != NULL) {
            return argument_failed(core, run, i, failure);
        }
    }
    return NULL;
}

static void release_held(struct start *start)
{
    for (size_t i = 0; i < start->run->arg_count; i++) {
        struct head_arg *arg = &start->run->args[i];

        if (arg->buffer != NULL) {
            head_buffer_release(start->core, arg->buffer);
            arg->buffer = NULL;
        }
    }
    for (size_t i = 0; i < start->held.count; i++) {
        head_buffer_release(start->core,
                            *(struct head_buffer **)pl_vec_at(&start->held, i));
    }
}

struct head_launch head_launch_of_run(const struct head_run *run)
{
    return (struct head_launch){
        .kind          = PLASMON__V1__LAUNCH_KIND__LAUNCH_RUN,
        .client        = run->client,
        .id            = run->id,
        .function      = run->function,
        .launch_shape  = run->shaped ? run->launch_shape : NULL,
        .label         = run->label,
        .scalars       = run->scalars,
        .scalar_count  = run->scalar_count,
        .retries_max   = run->retries,
        .time_limit_ms = run->time_limit_ms,
        .submit_ns     = run->submit_ns,
        .priority      = run->priority,
        .group         = run->group,
        .beside        = run->beside,
    };
}

static struct head_task *start_task(struct start *start,
                                    const struct head_operand *operands)
{
    const struct head_run *run = start->run;
    struct head_launch launch  = head_launch_of_run(run);
    struct head_task *task;

    launch.device        = start->device;
    launch.operands      = operands;
    launch.operand_count = run->arg_count;
    launch.pieces        = start->pieces.items;
    launch.piece_count   = start->pieces.count;
    if (run->segment != NULL) {
        launch.kind      = PLASMON__V1__LAUNCH_KIND__LAUNCH_GRAPH;
        launch.plan      = run->segment->plan;
        launch.graph     = run->segment->id;
        launch.set       = run->set;
        launch.set_count = run->set_count;
    }
    task = head_task_start(start->core, &launch);
    task->cost_ns =
        run->segment != NULL ? run->segment->cost_ns : estimate_ns(run, start->device);
    start->device->load_ns += task->cost_ns;
    return task;
}

bool head_run_start(struct head_core *core, struct head_run *run,
                    struct head_failure **out_failure)
{
    static _Thread_local struct start start = {
        .pieces = {.item_bytes = sizeof(struct head_piece)},
        .held   = {.item_bytes = sizeof(struct head_buffer *)},
    };
    static _Thread_local struct pl_vec operands = {.item_bytes =
                                                       sizeof(struct head_operand)};
    struct head_record *record                  = run->record;
    struct pl_err err;
    struct head_task *task;
    bool ok = true;

    pl_err_init(&err);
    /* A fold starts runs of its own, so it comes before anything here is in use. */
    for (size_t i = 0; i < run->arg_count; i++) {
        struct head_arg *arg = &run->args[i];

        if (arg->array != NULL && arg->array->partials.count > 0 &&
            (arg->mode != PLASMON__V1__MODE__MODE_REDUCE ||
             arg->array->partial_op != arg->reduce_op)) {
            head_reduce_fold(core, arg->array);
        }
    }
    *out_failure = head_run_unknown(run);
    if (*out_failure == NULL) {
        *out_failure = failed_input(core, run);
    }
    if (*out_failure == NULL && head_space_admit_run(run, &err) != PLASMON_OK) {
        char what[RUN_NAME_BYTES];

        run_describe(run, what);
        *out_failure =
            head_failure_create(err.status, run->id, 0, "%s refused: %s", what, err.text);
    }
    if (*out_failure != NULL) {
        return false;
    }

    start.core    = core;
    start.run     = run;
    start.failure = NULL;
    start.device  = choose_device(core, run, out_failure);
    if (start.device == NULL ||
        !head_spill_for_run(core, run, start.device, &start.excess, out_failure)) {
        return false;
    }
    start.excess =
        start.excess && run->client != NULL; /* ours are for what is there, and end */
    pl_vec_clear(&start.pieces);
    pl_vec_clear(&start.held);
    pl_vec_clear(&operands);
    if (run->arg_count > 0) {
        PL_CHECK(pl_vec_push_n(&operands, run->arg_count) != NULL);
    }
    for (size_t i = 0; ok && i < run->arg_count; i++) {
        ok = gather(&start, pl_vec_at(&operands, i), &run->args[i], (uint32_t)i);
    }
    if (!ok) {
        release_held(&start);
        *out_failure = start.failure;
        return false;
    }

    if (record == NULL && run->segment == NULL) {
        record = head_record_create(core, run, PLASMON__V1__LAUNCH_KIND__LAUNCH_RUN);
    }
    task = start_task(&start, operands.items);
    if (record != NULL) {
        head_record_started(record, task);
        head_roots_hold(core, task, run);
    }
    for (size_t i = 0; i < run->arg_count; i++) {
        if (run->record != NULL) {
            commit_again(core, task, &run->args[i]);
        } else {
            commit(core, task, record, &run->args[i], i, value_label(run, &run->args[i]));
        }
    }
    release_held(&start);
    if (record != NULL && run->record == NULL) {
        head_record_release(core, record); /* its launch has it */
        head_lineage_bound(core);
    }
    return true;
}

void head_run_fail(struct head_core *core, const struct head_run *run,
                   struct head_failure *failure)
{
    for (size_t i = 0; i < run->arg_count; i++) {
        const struct head_arg *arg = &run->args[i];
        struct head_tile *tile;

        if (arg->array == NULL ||
            !(head_mode_writes(arg->mode) || arg->mode == PLASMON__V1__MODE__MODE_REDUCE)) {
            continue;
        }
        if (arg->array->partials.count > 0 &&
            (arg->mode != PLASMON__V1__MODE__MODE_REDUCE ||
             arg->array->partial_op != arg->reduce_op)) {
            head_reduce_fold(core, arg->array);
        }
        tile          = head_tile_create(core, &arg->hull);
        tile->failure = head_failure_hold(failure);
        head_tile_label_set(core, tile, value_label(run, arg));
        if (arg->mode == PLASMON__V1__MODE__MODE_REDUCE) {
            /*
             * As if it had failed later: what is folded with what must not depend on when a failure
             * is known.
             */
            head_reduce_add(core, arg->array, &arg->hull, tile, arg->reduce_op);
        } else {
            head_array_set(core, arg->array, &arg->hull, tile);
        }
        head_tile_release(core, tile);
    }
}
