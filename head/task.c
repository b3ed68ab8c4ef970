/*
 * The life of a task.
 *
 *   start -> [numbered, encoded] -> sent -> finished
 *                  \-> doomed: it will fail whatever its launch does; its launch still runs (or is made a SKIP), because
 *                      others wait for its number
 *
 * A task is resolved (its client is told) when it is doomed or finished, whichever comes first, and once. Failure flows along
 * `dependents`, the tasks that read what this one makes: they are doomed at once with the same cause, so a client learns of a
 * failure when it happens and not when the last launch behind it has drained. A task that only waits (write after read) is not
 * concerned.
 */
#include "head/graph.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------------------------------- encoding */

enum { GATE_POINTS = 32768 }; /* half of WIRE_RANGES_MAX */

/* Lists that a launch is built in; kept between calls so that no task pays for growing them. */
struct builder {
    struct pl_vec after;
    struct pl_vec producers;
};
static _Thread_local struct builder builder = {
    .after     = {.item_bytes = sizeof(uint64_t)},
    .producers = {.item_bytes = sizeof(struct head_task *)},
};

int64_t *head_wire_box(struct wire_arena *arena, const struct pl_box *box, size_t *out_n)
{
    int64_t *numbers = wire_arena_alloc(arena, 2 * PL_DIM_MAX * sizeof(int64_t));

    PL_CHECK(numbers != NULL);
    *out_n = wire_box_put(box, numbers);
    return numbers;
}

int64_t *head_wire_view(struct wire_arena *arena, const struct pl_view *view, size_t *out_n)
{
    int64_t *numbers = wire_arena_alloc(arena, 3 * PL_DIM_MAX * sizeof(int64_t));

    PL_CHECK(numbers != NULL);
    *out_n = wire_view_put(view, numbers);
    return numbers;
}

static Plasmon__V1__Operand *encode_operand(struct wire_arena *arena,
                                            const struct head_operand *operand)
{
    Plasmon__V1__Operand *out = wire_arena_alloc(arena, sizeof(*out));

    PL_CHECK(out != NULL);
    plasmon__v1__operand__init(out);
    out->mode               = operand->mode;
    out->buffer             = operand->buffer->id;
    out->fresh              = operand->fresh;
    out->consume            = operand->consume;
    out->dtype              = operand->buffer->dtype;
    out->frame              = head_wire_box(arena, &operand->buffer->frame, &out->n_frame);
    out->view               = head_wire_view(arena, &operand->view, &out->n_view);
    out->reduce_op          = operand->reduce_op;
    out->writable_by_client = operand->client_writes;
    out->replica            = operand->buffer->replica;
    return out;
}

static Plasmon__V1__Piece *encode_piece(struct wire_arena *arena,
                                        const struct head_piece *piece)
{
    Plasmon__V1__Piece *out = wire_arena_alloc(arena, sizeof(*out));

    PL_CHECK(out != NULL);
    plasmon__v1__piece__init(out);
    out->src       = piece->src->id;
    out->src_frame = head_wire_box(arena, &piece->src->frame, &out->n_src_frame);
    out->box       = head_wire_box(arena, &piece->box, &out->n_box);
    out->operand   = piece->operand;
    return out;
}

static void keep_encoded(struct head_task *task, const Plasmon__V1__Launch *launch)
{
    uint32_t length = (uint32_t)plasmon__v1__launch__get_packed_size(launch);
    uint8_t *bytes  = head_alloc(length);

    (void)plasmon__v1__launch__pack(launch, bytes); /* its size was just computed */
    pl_free(task->bytes);
    task->bytes        = bytes;
    task->bytes_length = length;
}

void head_launch_settings(const struct head_launch *launch, Plasmon__V1__Launch *out)
{
    out->function = launch->function;
    if (launch->launch_shape != NULL) {
        out->launch_shape   = (uint32_t *)(uintptr_t)launch->launch_shape;
        out->n_launch_shape = WIRE_LAUNCH_SHAPE_COUNT;
    }
    out->scalars   = (uint64_t *)launch->scalars;
    out->n_scalars = launch->scalar_count;
    if (launch->label != NULL) {
        out->label = (char *)launch->label;
    }
}

static void encode(struct head_core *core, struct head_task *task,
                   const struct head_launch *launch, const uint64_t *after,
                   size_t after_count)
{
    struct wire_arena *arena = &core->arena;
    Plasmon__V1__Launch out  = PLASMON__V1__LAUNCH__INIT;

    wire_arena_reset(arena);
    out.seq   = task->seq;
    out.order = task->order;
    out.kind  = (Plasmon__V1__LaunchKind)launch->kind;
    head_launch_settings(launch, &out);
    if (launch->operand_count > 0) {
        out.operands =
            wire_arena_alloc(arena, launch->operand_count * sizeof(*out.operands));
        PL_CHECK(out.operands != NULL);
        out.n_operands = launch->operand_count;
        for (size_t i = 0; i < launch->operand_count; i++) {
            out.operands[i] = encode_operand(arena, &launch->operands[i]);
        }
    }
    if (launch->piece_count > 0) {
        out.pieces = wire_arena_alloc(arena, launch->piece_count * sizeof(*out.pieces));
        PL_CHECK(out.pieces != NULL);
        out.n_pieces = launch->piece_count;
        for (size_t i = 0; i < launch->piece_count; i++) {
            out.pieces[i] = encode_piece(arena, &launch->pieces[i]);
        }
    }
    out.after         = (uint64_t *)after;
    out.n_after       = after_count;
    out.data.data     = (uint8_t *)launch->data;
    out.data.len      = launch->data_length;
    out.offset        = launch->offset;
    out.length        = launch->length;
    out.peer          = launch->peer;
    out.request       = launch->request;
    out.client        = launch->client != NULL ? launch->client->id : 0;
    out.task          = launch->id;
    out.graph         = launch->graph;
    out.set           = (Plasmon__V1__GraphScalar **)launch->set;
    out.n_set         = launch->set_count;
    out.time_limit_ms = launch->time_limit_ms;
    out.priority      = launch->priority;
    if (core->tracing != 0) {
        out.submit_ns = launch->submit_ns;
        out.placed_ns = core->trace_ns;
    }

    keep_encoded(task, &out);
}

/*
 * The launch keeps its number, what it waits for (so that "done" goes on meaning that all of that is done) and the memory that it would have
 * made, because later launches may write parts of it in place without depending on what was to be there.
 */
void head_task_skip(struct head_core *core, struct head_task *task)
{
    Plasmon__V1__Launch *out;
    size_t kept = 0;

    wire_arena_reset(&core->arena);
    out = plasmon__v1__launch__unpack(&core->arena.allocator, task->bytes_length,
                                      task->bytes);
    PL_CHECK(out != NULL);
    for (size_t i = 0; i < out->n_operands; i++) {
        if (out->operands[i]->fresh) {
            out->operands[i]->mode =
                PLASMON__V1__MODE__MODE_SCRATCH; /* made, and never sealed */
            out->operands[kept++] = out->operands[i];
        }
    }
    out->n_operands = kept;
    out->n_pieces   = 0;
    out->n_scalars  = 0;
    out->n_set      = 0;
    out->graph      = 0;
    out->data.len   = 0;
    out->kind       = PLASMON__V1__LAUNCH_KIND__LAUNCH_SKIP;
    task->kind      = PLASMON__V1__LAUNCH_KIND__LAUNCH_SKIP;
    keep_encoded(task, out);
    head_memory_count(core, task);
}

/* ---------------------------------------------------------------------------------------------- start */

static int compare_points(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a;
    uint64_t y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

static size_t unique_points(struct pl_vec *after)
{
    uint64_t *points = after->items;
    size_t kept      = 0;

    if (after->count > 1) {
        qsort(points, after->count, sizeof(uint64_t), compare_points);
    }
    for (size_t i = 0; i < after->count; i++) {
        if (kept == 0 || points[i] != points[kept - 1]) {
            points[kept++] = points[i];
        }
    }
    return kept;
}

static void add_dependent(struct head_core *core, struct head_task *producer,
                          struct head_task *task)
{
    struct head_task **place;

    if (producer->dependents.count > 0 &&
        *(struct head_task **)pl_vec_at(&producer->dependents,
                                        producer->dependents.count - 1) == task) {
        return; /* two arguments of one task */
    }
    place = pl_vec_push(&producer->dependents);
    PL_CHECK(place != NULL);
    *place = task;
    task->refs++;
    task->producers_open++;
    head_memory_count(core, producer);
}

struct head_operand head_operand_whole(struct head_buffer *buffer, bool fresh, bool writes)
{
    return (struct head_operand){
        .mode   = writes ? PLASMON__V1__MODE__MODE_OUT : PLASMON__V1__MODE__MODE_IN,
        .buffer = buffer,
        .fresh  = fresh,
        .reads  = !writes,
        .writes = writes,
        .box    = buffer->frame,
        .view   = pl_view_of_box(&buffer->frame),
    };
}

/* A task without a number: nothing can refer to it yet. */
static struct head_task *task_create(const struct head_launch *launch, uint32_t use_count)
{
    struct head_task *task =
        head_alloc(sizeof(*task) + use_count * sizeof(struct head_use));

    task->refs         = 1;
    task->kind         = launch->kind;
    task->client       = launch->client;
    task->id           = launch->id;
    task->device       = launch->device;
    task->function     = launch->function;
    task->request      = launch->request;
    task->attempts_max = (uint8_t)pl_min_u64(launch->retries_max, 250);
    task->dependents   = PL_VEC_INIT(struct head_task *);
    task->outputs      = PL_VEC_INIT(struct head_tile *);
    task->waits        = PL_VEC_INIT(struct head_waiting);
    if (launch->label != NULL && launch->label[0] != '\0') {
        task->label = head_strdup(launch->label);
    }
    if (launch->plan != NULL) {
        task->plan = launch->plan;
        task->plan->refs++;
    }
    pl_list_init(&task->order_link);
    pl_list_init(&task->group_link);
    return task;
}

/* order 0: the next one. From here on the task is unfinished. */
static void task_number(struct head_core *core, struct head_task *task, uint64_t order)
{
    task->order = order != 0 ? order : ++core->order_last;
    pl_list_add_tail(&core->unfinished, &task->order_link);
    head_device_number(core, task->device, task);
    core->counts.tasks++;
    core->tasks_queued++;
}

/*
 * A launch may name at most GATE_POINTS others to wait for. A task that must wait for more (a writer behind a hundred thousand readers)
 * waits for gates instead: launches that do nothing but wait, each for some of them.
 */
static size_t wait_behind_gates(struct head_core *core, struct head_device *device,
                                struct pl_vec *after, size_t count)
{
    const struct head_launch gate = {.kind        = PLASMON__V1__LAUNCH_KIND__LAUNCH_SKIP,
                                     .device      = device,
                                     .retries_max = 250};
    uint64_t *points              = after->items;
    size_t kept                   = 0;

    for (size_t first = 0; first < count; first += GATE_POINTS) {
        struct head_task *task = task_create(&gate, 0);

        task_number(core, task, 0);
        encode(core, task, &gate, points + first, pl_min_u64(GATE_POINTS, count - first));
        head_memory_count(core, task);
        points[kept++] = wire_point(device->index, task->seq); /* behind what is read */
    }
    return kept;
}

struct head_task *head_task_start(struct head_core *core, const struct head_launch *launch)
{
    uint32_t use_count     = (uint32_t)(launch->operand_count + launch->piece_count);
    struct head_task *task = task_create(launch, use_count);
    size_t after_count;

    /* Edges first, uses after: a task does not wait for itself. */
    pl_vec_clear(&builder.after);
    pl_vec_clear(&builder.producers);
    for (size_t i = 0; i < launch->operand_count; i++) {
        const struct head_operand *operand = &launch->operands[i];

        if (!operand->fresh) {
            head_hazard_collect(operand->buffer, &operand->box, operand->reads,
                                operand->writes, &builder.after, &builder.producers);
        }
        task->consumes |= operand->consume && operand->reads;
    }
    for (size_t i = 0; i < launch->piece_count; i++) {
        head_hazard_collect(launch->pieces[i].src, &launch->pieces[i].box, true, false,
                            &builder.after, &builder.producers);
    }
    for (size_t i = 0; i < launch->operand_count; i++) {
        const struct head_operand *operand = &launch->operands[i];

        head_use_add(&task->uses[task->use_count++], task, operand->buffer, &operand->box,
                     operand->writes);
    }
    for (size_t i = 0; i < launch->piece_count; i++) {
        head_use_add(&task->uses[task->use_count++], task, launch->pieces[i].src,
                     &launch->pieces[i].box, false);
    }
    after_count = unique_points(&builder.after);
    if (after_count > GATE_POINTS && launch->order == 0) {
        after_count = wait_behind_gates(core, launch->device, &builder.after, after_count);
    }
    task_number(core, task, launch->order);
    for (size_t i = 0; i < builder.producers.count; i++) {
        struct head_task *producer = *(struct head_task **)pl_vec_at(&builder.producers, i);

        add_dependent(core, producer, task);
    }
    if (launch->twin != NULL) {
        add_dependent(core, launch->twin, task);
    }

    encode(core, task, launch, builder.after.items, after_count);
    if (launch->group != NULL) {
        head_group_add(launch->group, task);
    } else if (task->client != NULL && task->id != 0) {
        PL_CHECK(pl_map_set(&task->client->tasks, task->id, task) == PLASMON_OK);
        task->client->tasks_open++;
    }

    /* A producer that is doomed already (and still drains) dooms this one too. */
    for (size_t i = 0; i < builder.producers.count; i++) {
        struct head_task *producer = *(struct head_task **)pl_vec_at(&builder.producers, i);

        if (producer->failure != NULL) {
            head_task_doom(core, task, producer->failure);
            break;
        }
    }
    head_memory_count(core, task);
    head_device_pump(core, task->device);
    return task;
}

void head_task_makes(struct head_core *core, struct head_task *task, struct head_tile *tile)
{
    struct head_tile **place = pl_vec_push(&task->outputs);

    PL_CHECK(place != NULL);
    *place = tile;
    tile->refs++;
    tile->order = task->order;
    if (task->failure != NULL && tile->failure == NULL) {
        tile->failure = head_failure_hold(task->failure);
    }
    head_memory_count(core, task);
}

void head_task_release(struct head_task *task)
{
    PL_CHECK(task->refs > 0);
    if (--task->refs > 0) {
        return;
    }
    PL_CHECK(task->finished);
    head_failure_release(task->failure);
    pl_vec_finish(&task->dependents);
    pl_vec_finish(&task->outputs);
    pl_vec_finish(&task->waits);
    pl_free(task->label);
    pl_free(task->bytes);
    pl_free(task);
}

/* -------------------------------------------------------------------------------------------- the end */

/* Tell the client, once. */
static void resolve(struct head_core *core, struct head_task *task)
{
    if (task->resolved) {
        return;
    }
    task->resolved = true;
    if (task->group != NULL) {
        pl_list_remove(&task->group_link);
        head_group_resolved(core, task->group, task->failure);
        return;
    }
    if (task->id == 0) {
        return;
    }
    if (task->failure != NULL) {
        core->tasks_failed++;
    } else {
        core->tasks_done++;
    }
    if (task->client == NULL) {
        return;
    }
    if (task->failure != NULL) {
        head_client_failed(core, task->client, task->id, task->failure);
    } else {
        head_client_done(core, task->client, task->id);
    }
}

/* A replica that is not made: what is registered in it was never there. */
static void forget_replica(struct head_core *core, struct head_task *task)
{
    if (task->kind != PLASMON__V1__LAUNCH_KIND__LAUNCH_COPY &&
        task->kind != PLASMON__V1__LAUNCH_KIND__LAUNCH_RECV) {
        return;
    }
    for (uint32_t i = 0; i < task->use_count; i++) {
        if (task->uses[i].write) {
            struct pl_box box = task->uses[i].box;

            head_buffer_forget(core, task->uses[i].buffer, &box,
                               task->order); /* not what was written over it since */
        }
    }
}

/* Functions, recorded graphs of them included: what may run for ever, and is not worth running once it has failed. */
static bool is_function(const struct head_task *task)
{
    return task->kind == PLASMON__V1__LAUNCH_KIND__LAUNCH_RUN ||
           task->kind == PLASMON__V1__LAUNCH_KIND__LAUNCH_GRAPH;
}

static void doom_one(struct head_core *core, struct head_task *task,
                     struct head_failure *failure)
{
    task->failure = head_failure_hold(failure);
    forget_replica(core, task);
    if (is_function(task) && task->seq > task->device->seq_sent && task->bytes != NULL) {
        head_task_skip(core, task); /* not worth running */
    }
    for (size_t i = 0; i < task->outputs.count; i++) {
        struct head_tile *tile = *(struct head_tile **)pl_vec_at(&task->outputs, i);

        if (tile->failure == NULL) {
            tile->failure = head_failure_hold(failure);
        }
    }
    resolve(core, task);
}

void head_task_doom(struct head_core *core, struct head_task *task,
                    struct head_failure *failure)
{
    struct pl_vec stack = PL_VEC_INIT(struct head_task *);
    struct head_task **top;

    if (task->finished || task->failure != NULL) {
        return;
    }
    doom_one(core, task, failure);
    top = pl_vec_push(&stack);
    PL_CHECK(top != NULL);
    *top = task;

    while (stack.count > 0) {
        const struct head_task *next =
            *(struct head_task **)pl_vec_at(&stack, stack.count - 1);

        pl_vec_pop(&stack);
        for (size_t i = 0; i < next->dependents.count; i++) {
            struct head_task *dependent =
                *(struct head_task **)pl_vec_at(&next->dependents, i);
            struct head_failure *inherited;
            char what[160];

            if (dependent->finished || dependent->failure != NULL) {
                continue;
            }
            head_task_describe(dependent, what);
            inherited = head_failure_create(
                PLASMON_EDEPENDENCY, failure->first_task, failure->first_client,
                "%s needs the result of a task that failed; the first failure: %s", what,
                failure->text);
            doom_one(core, dependent, inherited);
            head_failure_release(inherited);
            top = pl_vec_push(&stack);
            PL_CHECK(top != NULL);
            *top = dependent;
        }
    }
    pl_vec_finish(&stack);
}

static void finish_one(struct head_core *core, struct head_task *task,
                       struct head_failure *failure)
{
    PL_CHECK(!task->finished);
    if (failure != NULL) {
        head_task_doom(core, task, failure);
    }
    task->finished = true;
    resolve(core, task);
    core->tasks_queued--;
    core->counts.tasks--;
    head_memory_forget(core, task);

    if (task->group == NULL && task->client != NULL && task->id != 0) {
        (void)pl_map_remove(&task->client->tasks,
                            task->id); /* was put in by head_task_start */
        task->client->tasks_open--;
    }
    pl_list_remove(&task->order_link);
    task->device->load_ns -= task->cost_ns;
    head_device_forget(task->device, task);

    for (size_t i = 0; i < task->waits.count; i++) {
        const struct head_waiting *waiting = pl_vec_at(&task->waits, i);

        head_wait_ended(core, waiting->wait, waiting->indifferent ? NULL : task->failure);
    }
    for (uint32_t i = 0; i < task->use_count; i++) {
        head_use_remove(core, &task->uses[i]);
    }
    for (size_t i = 0; i < task->outputs.count; i++) {
        struct head_tile *tile = *(struct head_tile **)pl_vec_at(&task->outputs, i);

        head_tile_release(core, tile);
    }
    for (size_t i = 0; i < task->dependents.count; i++) {
        struct head_task *dependent = *(struct head_task **)pl_vec_at(&task->dependents, i);

        dependent->producers_open--;
        if (dependent->producers_open == 0 && dependent->ended && !dependent->finished) {
            struct head_task **ready = pl_vec_push(&core->ready);

            PL_CHECK(ready != NULL);
            *ready = dependent; /* with the reference of the list */
        } else {
            head_task_release(dependent);
        }
    }
    pl_vec_clear(&task->dependents);
    pl_vec_clear(&task->outputs);
    pl_vec_clear(&task->waits);
    if (task->plan != NULL) {
        head_plan_release(core, task->plan);
    }
    if (task->group != NULL) {
        head_group_release(task->group);
    }
    task->plan  = NULL;
    task->group = NULL;
    head_task_release(task);
}

/*
 * Reports of different workers come in any order: a reader's "done" may be faster than the failure of what it read. So a task finishes
 * well only when all that it read from have. What becomes ready by that goes through a list, because such chains are long.
 */
void head_task_finish(struct head_core *core, struct head_task *task,
                      struct head_failure *failure)
{
    finish_one(core, task, failure);
    if (core->finishing) {
        return;
    }
    core->finishing = true;
    while (core->ready.count > 0) {
        struct head_task *ready =
            *(struct head_task **)pl_vec_at(&core->ready, core->ready.count - 1);

        pl_vec_pop(&core->ready);
        if (!ready->finished) {
            finish_one(core, ready, NULL);
        }
        head_task_release(ready);
    }
    core->finishing = false;
}

void head_task_ended(struct head_core *core, struct head_task *task)
{
    if (task->producers_open > 0 && task->failure == NULL && !pl_bug("head.done_early")) {
        task->ended = true;
        return;
    }
    head_task_finish(core, task, NULL);
}

/* What was sent: the worker drops it if it has not been enqueued; by force, it ends it even then. */
static void cancel_sent(struct head_task *task, bool force)
{
    uint64_t *seq =
        pl_vec_push(force ? &task->device->out_force : &task->device->out_cancel);

    PL_CHECK(seq != NULL);
    *seq = task->seq;
}

void head_task_cancel(struct head_core *core, struct head_task *task, bool force)
{
    bool sent = task->seq <= task->device->seq_sent;
    struct head_failure *failure;
    char what[160];

    if (task->finished || task->failure != NULL || task->forced ||
        (task->cancelled && !force)) {
        return;
    }
    task->cancelled = true;
    task->forced    = force;
    force           = force && is_function(task);
    if (sent) {
        cancel_sent(task, force);
    }
    if (sent && !force) {
        return;
    }
    head_task_describe(task, what);
    failure = head_failure_create(
        PLASMON_ECANCELLED, task->id, task->client != NULL ? task->client->id : 0,
        sent ? "%s was cancelled by force" : "%s was cancelled before it ran", what);
    head_task_doom(core, task, failure); /* and what is not sent, is skipped */
    head_failure_release(failure);
}

void head_task_describe(const struct head_task *task, char out[160])
{
    static const char *const kinds[] = {"task", "copy", "send", "receive", "put",
                                        "read", "put",  "put",  "task",    "graph"};
    const char *kind = task->kind < PL_COUNT(kinds) ? kinds[task->kind] : "task";

    if (task->id == 0) {
        (void)snprintf(out, 160, "internal %s on device %u", kind, task->device->index);
    } else if (task->label != NULL) {
        (void)snprintf(out, 160, "%s %llu '%.60s' on device %u", kind,
                       (unsigned long long)task->id, task->label, task->device->index);
    } else {
        (void)snprintf(out, 160, "%s %llu on device %u", kind, (unsigned long long)task->id,
                       task->device->index);
    }
}

/* ---------------------------------------------------------------------------------- what workers report */

static void worker_failed(struct head_core *core, struct head_device *device,
                          const Plasmon__V1__LaunchFailure *report)
{
    struct head_task *task = head_device_task(device, report->seq);
    struct head_failure *failure;
    char what[160];

    if (task == NULL) {
        return; /* a repeat after a reconnect */
    }
    head_task_describe(task, what);
    failure = head_failure_create((plasmon_status_t)report->status, task->id,
                                  task->client != NULL ? task->client->id : 0,
                                  "%s failed: %s", what, report->text);
    head_task_finish(core, task, failure);
    head_failure_release(failure);
}

static void worker_stats(struct head_device *device, const Plasmon__V1__WorkerStats *stats)
{
    memset(device->routes, 0, sizeof(device->routes));
    for (size_t i = 0; i < stats->n_routes && i < PL_COUNT(device->routes); i++) {
        device->routes[i] = *stats->routes[i];
    }
    device->stats          = *stats;
    device->stats.n_routes = pl_min_u64(stats->n_routes, PL_COUNT(device->routes));
    device->stats.routes   = NULL;
}

plasmon_status_t head_core_worker_frame(struct head_core *core, uint32_t index,
                                        const Plasmon__V1__WorkerFrame *frame,
                                        struct pl_err *err)
{
    struct head_device *device = head_device_at(core, index);

    if (device == NULL) {
        return pl_err_set(err, PLASMON_EINTERNAL,
                          "frame of a worker that never said hello");
    }
    /* Failures first: a later completion of the same batch must find its input failed. */
    for (size_t i = 0; i < frame->n_failed; i++) {
        worker_failed(core, device, frame->failed[i]);
    }
    for (size_t i = 0; i < frame->n_functions; i++) {
        head_function_report(core, device, frame->functions[i]);
    }
    for (size_t i = 0; i < frame->n_data; i++) {
        head_data_arrived(core, frame->data[i]);
    }
    for (size_t i = 0; i < frame->n_done; i++) {
        uint64_t first = frame->done[i]->first;
        uint64_t count = frame->done[i]->count;

        if (first == 0 || count > device->seq_last ||
            first > device->seq_last - count + 1) {
            return pl_err_set(
                err, PLASMON_EMALFORMED,
                "worker of device %u: launches %llu + %llu done, but only %llu were sent",
                index, (unsigned long long)first, (unsigned long long)count,
                (unsigned long long)device->seq_last);
        }
        for (uint64_t seq = first; seq < first + count; seq++) {
            struct head_task *task = head_device_task(device, seq);

            if (task != NULL && !task->ended) {
                head_task_ended(core, task);
            }
        }
    }
    for (size_t i = 0; i < frame->n_condemned; i++) {
        head_device_condemned(core, device, frame->condemned[i]);
    }
    for (size_t i = 0; i < frame->n_spans; i++) {
        head_trace_spans(core, device, frame->spans[i]);
    }
    for (size_t i = 0; i < frame->n_starved; i++) {
        head_device_starved(core, device, frame->starved[i]->seq, frame->starved[i]->bytes,
                            frame->starved[i]->largest_hole);
    }
    if (frame->stats != NULL) {
        worker_stats(device, frame->stats);
    }
    head_device_pump(core, device);
    return PLASMON_OK;
}
