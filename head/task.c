/*
 * The life of a task.
 *
 *   start -> [numbered, encoded] -> sent -> finished
 *                  \-> doomed: it will fail whatever its launch does; its launch still runs (or is made a SKIP), because
 *                      others wait for its number
 *
 * A task is resolved (its client is told) when it is doomed or finished, whichever comes first, and
 * once. Failure flows along `dependents`, the tasks that read what this one makes: they are doomed
 * at once with the same cause, so a client learns of a failure when it happens and not when the
 * last launch behind it has drained. A task that only waits (write after read) is not concerned.
 *
 * A failure that is a LOSS (a device is gone, an input was consumed when its worker died) is not
 * the task's: where its call is on record it is run again (rebuild.c), as a new task to which
 * everybody who waits for this one is moved. The launch that stays behind is doomed like any other,
 * and nobody hears of it.
 *
 * A copy between a device and memory of a client's host (host_copy.c) that was sent is resolved
 * when it is finished and no sooner, doomed or not: its client may do with that memory what it
 * likes from then on.
 */
#include "head/graph.h"

#include "base/expect.h"
#include "base/pool.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Lists that a launch is built in; kept between calls so that no task pays for growing them. */
struct builder {
    struct pl_vec after;
    struct pl_vec producers;
};
static _Thread_local struct builder builder = {
    .after     = {.item_bytes = sizeof(uint64_t)},
    .producers = {.item_bytes = sizeof(struct head_task *)},
};

/*
 * Tasks that are over, with their short lists, for those that come: most touch one or two buffers,
 * and one task reads what they make.
 */
enum { SPARE_MAX = 16384, SPARE_USES = 2, SPARE_LIST = 8 };
static _Thread_local struct pl_vec spares = {.item_bytes = sizeof(struct head_task *)};

/* -------------------------------------------------------------------------------- start */

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
    size_t capacity;

    if (producer->dependents.count > 0 &&
        *(struct head_task **)pl_vec_at(&producer->dependents,
                                        producer->dependents.count - 1) == task) {
        return; /* two arguments of one task */
    }
    capacity = producer->dependents.capacity;
    place    = pl_vec_push(&producer->dependents);
    PL_CHECK(place != NULL);
    *place = task;
    task->refs++;
    task->producers_open++;
    if (producer->dependents.capacity != capacity) {
        head_memory_count(core, producer);
    }
}

/* ------------------------------------------------------------------------------- memory */

void head_task_expect(const struct head_task *task)
{
    if (task != NULL) {
        pl_expect(task, offsetof(struct head_task, small));
        pl_expect(task->uses, sizeof(*task->uses));
    }
}

void head_task_expect_lists(const struct head_task *task)
{
    if (task == NULL) {
        return;
    }
    if (task->client != NULL) {
        pl_map_expect(&task->client->tasks, task->id);
    }
    pl_expect(task->outputs.items, sizeof(void *));
    pl_expect(task->dependents.items, sizeof(void *));
    if (task->use_count > 0) {
        pl_expect(task->uses[0].buffer, PL_LINE_BYTES);
    }
}

void head_task_expect_made(const struct head_task *task)
{
    if (task != NULL && task->outputs.count > 0) {
        const struct head_tile *tile =
            *(struct head_tile **)pl_vec_at(&task->outputs, task->outputs.count - 1);

        pl_expect(tile, sizeof(*tile));
    }
}

uint64_t head_task_bytes(uint32_t use_count)
{
    return sizeof(struct head_task) +
           pl_max_u64(use_count, SPARE_USES) * sizeof(struct head_use);
}

/* Zeroed but for its lists, which are empty, and `small`, of which nothing is read that was not written. */
static struct head_task *task_memory(uint32_t use_count)
{
    struct head_task *task, lists;

    if (use_count > SPARE_USES || spares.count == 0) {
        task             = head_alloc(head_task_bytes(use_count));
        task->dependents = PL_VEC_INIT(struct head_task *);
        task->outputs    = PL_VEC_INIT(struct head_tile *);
        task->waits      = PL_VEC_INIT(struct head_waiting);
        return task;
    }
    task             = *(struct head_task **)pl_vec_at(&spares, spares.count - 1);
    lists.dependents = task->dependents;
    lists.outputs    = task->outputs;
    lists.waits      = task->waits;
    pl_vec_pop(&spares);
    memset(task, 0, offsetof(struct head_task, small));
    memset(task->uses, 0, use_count * sizeof(struct head_use));
    task->dependents = lists.dependents;
    task->outputs    = lists.outputs;
    task->waits      = lists.waits;
    return task;
}

static bool list_small(struct pl_vec *list)
{
    pl_vec_clear(list);
    return list->capacity <= SPARE_LIST;
}

static void task_memory_free(struct head_task *task)
{
    struct head_task **place = NULL;

    if (PL_POOL_KEEPS && task->use_count <= SPARE_USES && spares.count < SPARE_MAX &&
        list_small(&task->dependents) && list_small(&task->outputs) &&
        list_small(&task->waits)) {
        place = pl_vec_push(&spares);
    }
    if (place != NULL) {
        *place = task;
        return;
    }
    pl_vec_finish(&task->dependents);
    pl_vec_finish(&task->outputs);
    pl_vec_finish(&task->waits);
    pl_free(task);
}

/* A task without a number: nothing can refer to it yet. */
static struct head_task *task_create(const struct head_launch *launch, uint32_t use_count)
{
    struct head_task *task = task_memory(use_count);

    task->refs         = 1;
    task->kind         = launch->kind;
    task->client       = launch->client;
    task->id           = launch->id;
    task->device       = launch->device;
    task->function     = launch->function;
    task->request      = launch->request;
    task->pair         = launch->pair;
    task->team         = launch->team;
    task->length       = launch->length;
    task->peer         = launch->peer;
    task->chunk        = launch->offset;
    task->twin_seq     = launch->twin != NULL ? launch->twin->seq : 0;
    task->attempts_max = (uint8_t)pl_min_u64(launch->retries_max, 250);
    if (launch->label != NULL && launch->label[0] != '\0') {
        task->label = head_strdup(launch->label);
    }
    if (launch->plan != NULL) {
        task->plan = launch->plan;
        task->plan->refs++;
    }
    pl_list_init(&task->order_link);
    pl_list_init(&task->client_link);
    pl_list_init(&task->group_link);
    pl_list_init(&task->spill_link);
    return task;
}

/* order 0: the next one. From here on the task is unfinished. */
static void task_number(struct head_core *core, struct head_task *task, uint64_t order)
{
    task->order    = order != 0 ? order : ++core->order_last;
    task->since_ms = core->now_ms;
    task->begun_ns = task->id != 0 ? head_times_now(core->config.times) : 0;
    pl_list_add_tail(&core->unfinished, &task->order_link);
    if (task->client != NULL) {
        pl_list_add_tail(&task->client->unfinished, &task->client_link);
    }
    head_device_number(core, task->device, task);
    if (task->team != 0) {
        head_team_task_new(core, task);
    }
    core->counts.tasks++;
    core->tasks_queued++;
}

/*
 * A launch may name at most config.gate_points others to wait for. A task that must wait for more
 * (a writer behind a hundred thousand readers) waits for gates instead: launches that do nothing
 * but wait, each for some of them.
 */
static size_t wait_behind_gates(struct head_core *core, struct head_device *device,
                                struct pl_vec *after, size_t count)
{
    const struct head_launch gate = {.kind        = PLASMON__V1__LAUNCH_KIND__LAUNCH_SKIP,
                                     .device      = device,
                                     .retries_max = 250};
    const uint32_t most           = core->config.gate_points;
    uint64_t *points              = after->items;
    size_t kept                   = 0;

    for (size_t first = 0; first < count; first += most) {
        struct head_task *task = task_create(&gate, 0);

        task_number(core, task, 0);
        head_launch_encode(core, task, &gate, points + first,
                           pl_min_u64(most, count - first));
        head_memory_count(core, task);
        points[kept++] = wire_point(device->index, task->seq); /* behind what is read */
    }
    return kept;
}

static bool is_copy(const struct head_task *task)
{
    return task->kind == PLASMON__V1__LAUNCH_KIND__LAUNCH_COPY ||
           task->kind == PLASMON__V1__LAUNCH_KIND__LAUNCH_RECV || task->spilled != NULL;
}

static bool takes_from_host(const struct head_launch *launch)
{
    return launch->kind == PLASMON__V1__LAUNCH_KIND__LAUNCH_GET_HOST;
}

/* What it waits for, into the builder: before its own uses are there, for a task does not wait for itself. */
static void collect_edges(struct head_task *task, const struct head_launch *launch)
{
    bool spills = takes_from_host(launch);

    pl_vec_clear(&builder.after);
    pl_vec_clear(&builder.producers);
    for (size_t i = 0; i < launch->operand_count; i++) {
        const struct head_operand *operand = &launch->operands[i];

        if (!operand->fresh) {
            head_hazard_collect(operand->buffer, &operand->box,
                                operand->reads && operand->kept == NULL, operand->writes,
                                &builder.after, &builder.producers);
        }
        for (size_t k = 0; !operand->fresh && operand->reads && k < operand->kept_count;
             k++) {
            head_hazard_collect(operand->buffer, &operand->kept[k], true, false,
                                &builder.after, &builder.producers);
        }
        task->consumes |= operand->consume && operand->reads;
    }
    for (size_t i = 0; i < launch->piece_count; i++) {
        head_hazard_collect(launch->pieces[i].src, &launch->pieces[i].box, true, false,
                            &builder.after, &builder.producers);
    }
    if (launch->spilled != NULL && (spills || !pl_bug("spill.stale"))) {
        head_hazard_collect(launch->spilled, &launch->spilled->frame, !spills, spills,
                            &builder.after, &builder.producers);
    }
}

/* What later launches wait for. */
static void add_uses(struct head_task *task, const struct head_launch *launch)
{
    for (size_t i = 0; i < launch->operand_count; i++) {
        const struct head_operand *operand = &launch->operands[i];

        task->uses[task->use_count].in_place = operand->writes && !operand->fresh;
        head_use_add(&task->uses[task->use_count++], task, operand->buffer, &operand->box,
                     operand->writes);
    }
    for (size_t i = 0; i < launch->piece_count; i++) {
        head_use_add(&task->uses[task->use_count++], task, launch->pieces[i].src,
                     &launch->pieces[i].box, false);
    }
    if (launch->spilled != NULL) {
        head_use_add(&task->uses[task->use_count++], task, launch->spilled,
                     &launch->spilled->frame, takes_from_host(launch));
    }
}

static struct head_task *producer_at(size_t i)
{
    return *(struct head_task **)pl_vec_at(&builder.producers, i);
}

static void add_to_producers(struct head_core *core, struct head_task *task,
                             const struct head_launch *launch)
{
    for (size_t i = 0; i < builder.producers.count; i++) {
        add_dependent(core, producer_at(i), task);
    }
    if (launch->twin != NULL) {
        add_dependent(core, launch->twin, task);
    }
    if (launch->beside != NULL) {
        add_dependent(core, launch->beside, task);
    }
}

/* A producer that is doomed already (and still drains) dooms this one too. */
static void doom_by_producers(struct head_core *core, struct head_task *task)
{
    for (size_t i = 0; i < builder.producers.count; i++) {
        if (producer_at(i)->failure != NULL) {
            head_task_doom(core, task, producer_at(i)->failure);
            return;
        }
    }
}

/* The first launch that is to make it; no other asks. */
static bool makes_excess(const struct head_launch *launch)
{
    bool excess = false;

    for (size_t i = 0; i < launch->operand_count; i++) {
        const struct head_operand *operand = &launch->operands[i];

        if (operand->fresh && operand->buffer->excess) {
            operand->buffer->excess = false;
            excess                  = true;
        }
    }
    return excess;
}

struct head_task *head_task_start(struct head_core *core, const struct head_launch *launch)
{
    uint32_t use_count =
        (uint32_t)(launch->operand_count + launch->piece_count + (launch->spilled != NULL));
    struct head_task *task = task_create(launch, use_count);
    size_t after_count;

    task->ahead = launch->spilled != NULL && launch->ahead;
    collect_edges(task, launch);
    add_uses(task, launch);
    after_count = unique_points(&builder.after);
    if (after_count > core->config.gate_points && launch->order == 0) {
        after_count = wait_behind_gates(core, launch->device, &builder.after, after_count);
    }
    task_number(core, task, launch->order);
    for (uint32_t i = 0; i < task->use_count; i++) {
        if (task->uses[i].buffer->device == task->device) {
            task->uses[i].buffer->seq_last = task->seq;
        }
    }
    add_to_producers(core, task, launch);

    head_launch_encode(core, task, launch, builder.after.items, after_count);
    if (launch->spilled != NULL) {
        task->spilled = launch->spilled;
        head_spill_queue(task);
    } else if (makes_excess(launch)) {
        head_excess_queue(core, task);
    }
    if (launch->group != NULL) {
        head_group_add(launch->group, task);
    } else if (task->client != NULL && task->id != 0) {
        PL_CHECK(pl_map_set(&task->client->tasks, task->id, task) == PLASMON_OK);
        head_client_task_begun(task->client);
    }
    doom_by_producers(core, task);
    head_memory_count(core, task);
    head_device_pump(core, task->device);
    return task;
}

void head_task_makes(struct head_core *core, struct head_task *task, struct head_tile *tile)
{
    size_t capacity          = task->outputs.capacity;
    struct head_tile **place = pl_vec_push(&task->outputs);

    PL_CHECK(place != NULL);
    *place = tile;
    head_tile_hold(core, tile);
    tile->makers++;
    tile->order = task->order;
    if (task->failure != NULL) {
        head_tile_fail(core, tile, task->failure);
    }
    if (task->outputs.capacity != capacity) {
        head_memory_count(core, task);
    } else {
        head_memory_output(core, task);
    }
}

void head_task_release(struct head_task *task)
{
    PL_CHECK(task->refs > 0);
    if (--task->refs > 0) {
        return;
    }
    PL_CHECK(task->finished);
    head_failure_release(task->failure);
    head_failure_release(task->unmade);
    pl_free(task->label);
    head_launch_forget(task);
    task_memory_free(task);
}

/* ------------------------------------------------------------------------------ the end */

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
    if (task->begun_ns != 0) {
        head_times_add(&core->config.times->tasks, core->config.times, task->begun_ns);
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
    if (!is_copy(task)) {
        return;
    }
    for (uint32_t i = 0; i < task->use_count; i++) {
        if (task->uses[i].write) {
            struct pl_box box = task->uses[i].box;

            head_spill_forget(core, task->uses[i].buffer, &box, task->order,
                              task->failure); /* not what was written over it since */
        }
    }
}

/* And is not worth running once it has failed. */
bool head_task_is_function(const struct head_task *task)
{
    return task->kind == PLASMON__V1__LAUNCH_KIND__LAUNCH_RUN ||
           task->kind == PLASMON__V1__LAUNCH_KIND__LAUNCH_GRAPH;
}

static bool is_host_copy(const struct head_task *task)
{
    return task->kind == PLASMON__V1__LAUNCH_KIND__LAUNCH_PUT_HOST ||
           task->kind == PLASMON__V1__LAUNCH_KIND__LAUNCH_GET_HOST;
}

/* To be finished when what is being done is done. */
static void make_ready(struct head_core *core, struct head_task *task)
{
    struct head_task **ready = pl_vec_push(&core->ready);

    PL_CHECK(ready != NULL);
    *ready = task;
    task->refs++;
}

/* Its worker has not seen it, and it is not worth running. */
static void skip_failed(struct head_core *core, struct head_task *task)
{
    if ((head_task_is_function(task) || is_host_copy(task)) && task->bytes != NULL) {
        head_launch_skip(core, task);
    }
}

static void doom_one(struct head_core *core, struct head_task *task,
                     struct head_failure *failure)
{
    bool again = failure->loss && head_loss_task(core, task, failure);

    if (again) {
        head_spared_note(core, task);
    }
    if (!task->spared) {
        head_spared_spoil(core, task);
    }
    task->failure = head_failure_hold(failure);
    if (task->stranded) {
        make_ready(core,
                   task); /* its worker is through with it: this is what was waited for */
    }
    forget_replica(core, task);
    if (task->spared || task->seq > task->device->seq_sent) {
        skip_failed(core, task);
    }
    for (size_t i = 0; i < task->outputs.count; i++) {
        struct head_tile *tile = *(struct head_tile **)pl_vec_at(&task->outputs, i);

        head_tile_fail(core, tile, failure);
    }
    if (again) {
        return; /* who waits for it goes on waiting, for the next launch */
    }
    if (failure->loss) {
        head_loss_final(core, task, failure);
    }
    if (!is_host_copy(task) || pl_bug("head.tell_copies_early")) {
        /* skipped, it is none any more */
        resolve(core, task);
    }
}

/*
 * What `next` failed with, for who reads from it. A transfer that finds no way, or no memory, is
 * nobody's task, nor is a copy or a fold for which it was made: so that is their reader's own
 * failure, and the first.
 */
static struct head_failure *inherit(const struct head_task *next,
                                    const struct head_task *dependent,
                                    const struct head_failure *failure)
{
    plasmon_status_t status = next->failure->status;
    bool nobodys            = next->id == 0 && next->group == NULL;
    bool no_way             = nobodys && status == PLASMON_EUNREACHABLE;
    bool no_memory          = nobodys && status == PLASMON_EDEVMEM;
    struct head_failure *inherited;
    char what[160];

    if (dependent->kind == PLASMON__V1__LAUNCH_KIND__LAUNCH_PUT) {
        return head_failure_hold(next->failure); /* the rest of a put fails as it did */
    }
    head_task_describe(dependent, what);
    inherited = head_failure_create(
        no_way || no_memory ? status : PLASMON_EDEPENDENCY, failure->first_task,
        failure->first_client, "%s %s%s", what,
        no_way      ? "cannot get what it reads: "
        : no_memory ? "has no memory for what it reads: "
                    : "needs the result of a task that failed; the first failure: ",
        head_failure_cause(failure));
    inherited->loss = failure->loss;
    return inherited;
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

            if (dependent->finished || dependent->failure != NULL) {
                continue;
            }
            inherited = inherit(next, dependent, failure);
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
    if (task->team != 0) {
        head_team_task_over(core, task);
    } else if (task->pair != 0) {
        head_pair_task_over(core, task);
    }
    if (task->spilled != NULL) {
        head_spill_task_over(core, task);
    }
    head_excess_over(task);
    if (!task->resolved && task->failure != NULL && task->failure->loss &&
        task->record != NULL) {
        head_loss_task_over(core, task);
    }
    resolve(core, task);
    core->tasks_queued--;
    core->counts.tasks--;
    head_memory_forget(core, task);

    /*
     * Unless it is made again under this id: then it is no longer this launch that its client waits
     * for (rebuild.c).
     */
    if (task->group == NULL && task->client != NULL && task->id != 0 &&
        pl_map_get(&task->client->tasks, task->id) == task) {
        (void)pl_map_remove(&task->client->tasks, task->id);
        head_client_task_over(task->client);
    }
    pl_list_remove(&task->order_link);
    pl_list_remove(&task->client_link);
    task->device->load_ns -= task->cost_ns;
    head_device_forget(task->device, task);
    head_record_finished(core, task);

    for (size_t i = 0; i < task->waits.count; i++) {
        const struct head_waiting *waiting = pl_vec_at(&task->waits, i);

        head_wait_ended(core, waiting->wait, waiting->indifferent ? NULL : task->failure);
    }
    for (uint32_t i = 0; i < task->use_count; i++) {
        if (task->failure == NULL) {
            head_use_wrote(&task->uses[i]);
        }
        head_use_remove(core, &task->uses[i]);
    }
    for (size_t i = 0; i < task->outputs.count; i++) {
        struct head_tile *tile = *(struct head_tile **)pl_vec_at(&task->outputs, i);

        tile->makers--;
        head_found_settle(core, tile);
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
    head_roots_over(core, task);
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
 * Reports of different workers come in any order: a reader's "done" may be faster than the failure
 * of what it read. So a task finishes well only when all that it read from have. What becomes ready
 * by that goes through a list, because such chains are long.
 */
void head_task_finish(struct head_core *core, struct head_task *task,
                      struct head_failure *failure)
{
    finish_one(core, task, failure);
    head_tasks_ready_finish(core);
}

void head_tasks_ready_finish(struct head_core *core)
{
    if (core->finishing) {
        return;
    }
    core->finishing = true;
    while (core->ready.count > 0) {
        struct head_task *ready =
            *(struct head_task **)pl_vec_at(&core->ready, core->ready.count - 1);

        pl_vec_pop(&core->ready);
        if (!ready->finished) {
            finish_one(core, ready, ready->unmade);
        }
        head_task_release(ready);
    }
    core->finishing = false;
}

/* Its worker is through with it; it finishes when all that it read from have. */
static void end_behind_producers(struct head_core *core, struct head_task *task)
{
    task->ended = true;
    if (task->pair != 0 && task->team == 0) {
        head_pair_task_over(core, task); /* what it read from waits for this */
    }
}

void head_task_unmade(struct head_core *core, struct head_task *task,
                      struct head_failure *failure)
{
    if (task->producers_open > 0 && task->failure == NULL) {
        task->unmade = head_failure_hold(failure);
        end_behind_producers(core, task);
    } else {
        head_task_finish(core, task, failure);
    }
}

void head_task_ended(struct head_core *core, struct head_task *task)
{
    if (task->stranded) {
        return; /* a worker that began anew counts it as over; what it was to do, it has not done */
    }
    if (task->producers_open > 0 && task->failure == NULL && !pl_bug("head.done_early")) {
        end_behind_producers(core, task);
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

static void doom_cancelled(struct head_core *core, struct head_task *task, bool sent)
{
    struct head_failure *failure;
    char what[160];

    head_task_describe(task, what);
    failure = head_failure_create(
        PLASMON_ECANCELLED, task->id, task->client != NULL ? task->client->id : 0,
        sent ? "%s was cancelled by force" : "%s was cancelled before it ran", what);
    head_task_doom(core, task, failure); /* and what is not sent, is skipped */
    head_failure_release(failure);
}

void head_task_cancel(struct head_core *core, struct head_task *task, bool force)
{
    bool sent = task->seq <= task->device->seq_sent;

    if (task->finished || task->failure != NULL || task->forced ||
        (task->cancelled && !force)) {
        return;
    }
    task->cancelled = true;
    task->forced    = force;
    force           = force && head_task_is_function(task);
    if (sent) {
        cancel_sent(task, force);
    }
    if (!sent || force) {
        doom_cancelled(core, task, sent);
    }
}

void head_task_unsent(struct head_core *core, struct head_task *task)
{
    if (task->cancelled && task->failure == NULL) {
        doom_cancelled(core, task, false);
    }
    if (task->failure != NULL) {
        skip_failed(core, task);
    }
}

/* Nobody asked for it. (A put by shared memory has no number either.) */
static bool is_own(const struct head_task *task)
{
    return task->id == 0 && task->kind != PLASMON__V1__LAUNCH_KIND__LAUNCH_ALLOC &&
           task->kind != PLASMON__V1__LAUNCH_KIND__LAUNCH_SEAL;
}

void head_task_describe(const struct head_task *task, char out[160])
{
    char number[32] = "";

    if (task->spilled != NULL) {
        (void)snprintf(out, 160, "%s on device %u",
                       task->kind == PLASMON__V1__LAUNCH_KIND__LAUNCH_GET_HOST ? "spill"
                                                                               : "restore",
                       task->device->index);
        return;
    }
    static const char *const kinds[] = {"task", "copy", "send", "receive", "put",
                                        "read", "put",  "put",  "task",    "task",
                                        "put",  "get",  "open", "close"};
    const char *kind = task->kind < PL_COUNT(kinds) ? kinds[task->kind] : "task";

    if (task->id != 0) {
        (void)snprintf(number, sizeof(number), " %llu", (unsigned long long)task->id);
    }
    if (task->kind == PLASMON__V1__LAUNCH_KIND__LAUNCH_GRAPH && task->label != NULL) {
        (void)snprintf(out, 160, "%s%s on device %u (graph, %s)", kind, number,
                       task->device->index, task->label);
    } else if (task->label != NULL && !is_own(task)) {
        (void)snprintf(out, 160, "%s%s '%.60s' on device %u", kind, number, task->label,
                       task->device->index);
    } else {
        (void)snprintf(out, 160, "%s%s%s on device %u", is_own(task) ? "internal " : "",
                       kind, number, task->device->index);
    }
}
