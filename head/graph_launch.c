/*
 * One launch of a recorded graph.
 *
 * Each slot gets an array: external ones and outputs by their refs, or by those that the launch
 * binds in their place; temporaries that several steps share have one of the graph's own. Then the
 * steps are started in the order of the plan, each as a task with several arguments, or as several
 * where components do not wait for each other (graph_components.c); the group (group.c) tells the
 * client when all are resolved.
 *
 * DEVICES BEGIN while the rest is being started: the first step of each that is idle goes out at
 * once, then twice as many at a time, up to GO_STEPS_MAX. Until all of a plan of hundreds of steps
 * had been started, the devices stood still for milliseconds.
 *
 * TASK BY TASK. When there is no plan that fits - a ref is a snapshot of a view, and has other
 * coordinates than its array; or no plan could be made - the recorded tasks are started one after
 * the other, as if they had been submitted so. Slower; the same bits.
 */
#include "head/graph.h"

#include <string.h>

#define GO_STEPS_MAX 32u

struct start_graph {
    struct head_core *core;
    struct head_client *client;
    struct head_graph *graph;
    const Plasmon__V1__Task *wire;
    struct head_group *group;
    struct head_array **arrays;   /* by slot; borrowed, but for .. */
    const struct head_ref **refs; /* by slot; NULL: coordinates are the array's */
    struct pl_vec own;            /* .. these, struct head_array *: of this launch alone */
    bool plain;
};

/* --------------------------------------------------------------------------------- refs */

static plasmon_status_t slot_take(struct start_graph *start, uint32_t index, uint64_t id,
                                  struct pl_err *err)
{
    const struct graph_slot *slot = graph_slot_at(start->graph, index);
    struct pl_shape shape;
    struct head_ref *ref;
    plasmon_status_t status = head_client_ref_get(start->client, id, 0, &ref, err);
    char have[128], want[128];

    if (status != PLASMON_OK) {
        return status;
    }
    shape =
        ref->based ? pl_view_shape(&ref->base, ref->array->shape.dtype) : ref->array->shape;
    if (!pl_shape_equal(&shape, &slot->shape)) {
        return pl_err_set(
            err, PLASMON_ESHAPE, "ref %llu is %s where %s was recorded (ref %llu)",
            (unsigned long long)id, pl_shape_format(&shape, have),
            pl_shape_format(&slot->shape, want), (unsigned long long)slot->ref);
    }
    if (ref->array->put_offset != UINT64_MAX) {
        return pl_err_set(err, PLASMON_EAGAIN,
                          "ref %llu is still being put; finish the put first",
                          (unsigned long long)id);
    }
    start->arrays[index] = ref->array;
    if (ref->based) {
        start->refs[index] = ref;
        start->plain       = true;
    }
    return PLASMON_OK;
}

/*
 * All of them, whatever is wrong with one: of a launch that is refused the others fail, too, where
 * it would have written.
 */
static plasmon_status_t bind(struct start_graph *start, const uint64_t *bound,
                             struct pl_err *err)
{
    plasmon_status_t status = PLASMON_OK;

    for (size_t i = 0; i < start->graph->named.count; i++) {
        uint32_t index       = *(uint32_t *)pl_vec_at(&start->graph->named, i);
        uint64_t other       = bound != NULL ? bound[index] : 0;
        plasmon_status_t one = slot_take(
            start, index, other != 0 ? other : graph_slot_at(start->graph, index)->ref,
            status == PLASMON_OK ? err : NULL);

        status = status == PLASMON_OK ? one : status;
    }
    return status;
}

/*
 * The edges of the recording are between slots: two slots that are one array, one of them written,
 * would have edges that nobody recorded.
 */
static plasmon_status_t check_distinct(const struct start_graph *start, struct pl_err *err)
{
    plasmon_status_t status = PLASMON_OK;
    struct pl_map seen;

    pl_map_init(&seen);
    for (size_t i = 0; status == PLASMON_OK && i < start->graph->named.count; i++) {
        uint32_t index  = *(uint32_t *)pl_vec_at(&start->graph->named, i);
        uint64_t key    = (uint64_t)(uintptr_t)start->arrays[index];
        uintptr_t other = (uintptr_t)pl_map_get(&seen, key);

        if (other == 0) {
            PL_CHECK(pl_map_set(&seen, key, (void *)(uintptr_t)(index + 1)) == PLASMON_OK);
            continue;
        }
        if (graph_slot_at(start->graph, index)->written ||
            graph_slot_at(start->graph, (uint32_t)other - 1)->written) {
            status = pl_err_set(
                err, PLASMON_EGRAPH,
                "refs %llu and %llu of the recording are bound to one array, and one of "
                "them is written",
                (unsigned long long)graph_slot_at(start->graph, (uint32_t)other - 1)->ref,
                (unsigned long long)graph_slot_at(start->graph, index)->ref);
        }
    }
    pl_map_finish(&seen);
    return status;
}

static plasmon_status_t check_set(const struct start_graph *start, struct pl_err *err)
{
    for (size_t i = 0; i < start->wire->n_set; i++) {
        const Plasmon__V1__GraphScalar *set = start->wire->set[i];

        if (set->task >= start->graph->tasks.count ||
            set->position >= graph_task_at(start->graph, set->task)->run.scalar_count) {
            return pl_err_set(err, PLASMON_EINVAL,
                              "there is no scalar %u of recorded call %u", set->position,
                              set->task);
        }
    }
    return PLASMON_OK;
}

static plasmon_status_t take_refs(struct start_graph *start, struct pl_err *err)
{
    uint64_t *bound         = NULL;
    plasmon_status_t status = PLASMON_OK, one;

    if (start->wire->n_bind > 0) {
        bound = head_alloc((start->graph->slots.count + 1) * sizeof(uint64_t));
    }
    for (size_t i = 0; status == PLASMON_OK && i < start->wire->n_bind; i++) {
        const Plasmon__V1__GraphBinding *binding = start->wire->bind[i];
        uintptr_t slot = (uintptr_t)pl_map_get(&start->graph->by_ref, binding->recorded);

        if (slot == 0 ||
            graph_slot_at(start->graph, (uint32_t)slot - 1)->kind == GRAPH_TEMPORARY) {
            status =
                pl_err_set(err, PLASMON_EGRAPH, "ref %llu is not used in the recording",
                           (unsigned long long)binding->recorded);
        } else {
            bound[slot - 1] = binding->ref;
        }
    }
    one    = bind(start, bound, status == PLASMON_OK ? err : NULL);
    status = status == PLASMON_OK ? one : status;
    if (status == PLASMON_OK && bound != NULL) {
        status = check_distinct(start, err);
    }
    pl_free(bound);
    return status == PLASMON_OK ? check_set(start, err) : status;
}

/* ----------------------------------------------------------------------------- starting */

static void run_or_fail(struct start_graph *start, struct head_run *run)
{
    struct head_failure *failure = NULL;

    run->client = start->client;
    run->id     = start->wire->id;
    run->group  = start->group;
    if (head_run_start(start->core, run, &failure)) {
        return;
    }
    if (failure->first_task == 0) {
        failure->first_task   = start->wire->id;
        failure->first_client = start->client->id;
    }
    head_run_fail(start->core, run, failure);
    head_group_fail(start->group, failure);
    head_failure_release(failure);
}

static struct head_arg *args_room(size_t count)
{
    static _Thread_local struct pl_vec args = {.item_bytes = sizeof(struct head_arg)};
    struct head_arg *room;

    pl_vec_clear(&args);
    room = count == 0 ? NULL : pl_vec_push_n(&args, count); /* zeroed */
    PL_CHECK(room != NULL || count == 0);
    return room;
}

static void start_segment(struct start_graph *start, const struct head_segment *segment,
                          Plasmon__V1__GraphScalar *const *set, size_t set_count)
{
    size_t count          = segment->operands.count;
    struct head_arg *args = args_room(count);
    struct head_run run   = {
          .label         = segment->label,
          .labels_apart  = true,
          .args          = args,
          .arg_count     = count,
          .place         = segment->device->index + 1,
          .retries       = segment->retries,
          .time_limit_ms = segment->time_limit_ms,
          .priority      = segment->priority,
          .segment       = segment,
          .set           = set,
          .set_count     = set_count,
          .submit_ns     = start->wire->submit_ns,
    };

    for (size_t i = 0; i < count; i++) {
        const struct graph_operand *operand = pl_vec_at(&segment->operands, i);

        args[i].mode       = operand->mode;
        args[i].array      = start->arrays[operand->slot];
        args[i].view       = pl_view_of_box(&operand->hull);
        args[i].hull       = operand->hull;
        args[i].dtype      = graph_slot_at(start->graph, operand->slot)->shape.dtype;
        args[i].kept       = operand->kept;
        args[i].kept_count = operand->kept_count;
        if (operand->writer != GRAPH_TASK_NONE) {
            args[i].label = graph_task_at(start->graph, operand->writer)->run.label;
        }
    }
    run_or_fail(start, &run);
}

static void arg_fill(struct start_graph *start, const struct graph_arg *from,
                     struct head_arg *arg)
{
    const struct head_ref *ref = start->refs[from->slot];
    struct pl_err unused       = {0};

    arg->mode = from->mode;
    arg->array =
        from->mode == PLASMON__V1__MODE__MODE_SCRATCH ? NULL : start->arrays[from->slot];
    arg->view      = from->view;
    arg->dtype     = graph_slot_at(start->graph, from->slot)->shape.dtype;
    arg->reduce_op = from->reduce_op;
    arg->dense     = from->dense;
    if (ref != NULL) {
        PL_CHECK(pl_view_compose(&ref->base, &from->view, &arg->view, &unused) ==
                 PLASMON_OK); /* the shapes are equal */
    }
    arg->hull = pl_view_hull(&arg->view);
}

static void start_task(struct start_graph *start, uint32_t number)
{
    const struct graph_task *task = graph_task_at(start->graph, number);
    struct head_run run           = task->run;
    uint64_t scalars[WIRE_SCALARS_MAX];

    run.args      = args_room(task->arg_count);
    run.arg_count = task->arg_count;
    for (uint32_t i = 0; i < task->arg_count; i++) {
        arg_fill(start, &task->args[i], &run.args[i]);
    }
    if (run.scalar_count > 0) {
        memcpy(scalars, run.scalars, run.scalar_count * sizeof(uint64_t));
    }
    for (size_t i = 0; i < start->wire->n_set; i++) {
        if (start->wire->set[i]->task == number) {
            scalars[start->wire->set[i]->position] = start->wire->set[i]->value;
        }
    }
    run.scalars = scalars;
    if (!start->plain) {
        run.place = task->device->index + 1;
    }
    run_or_fail(start, &run);
}

/* The scalars of one segment, by node. They were sorted apart once for all segments. */
struct set_list {
    Plasmon__V1__GraphScalar *items;
    Plasmon__V1__GraphScalar **lists; /* all, step after step */
    uint32_t *first;                  /* by step; one more at the end */
};

static struct set_list set_split(const struct start_graph *start,
                                 const struct head_plan *plan)
{
    size_t count        = start->wire->n_set;
    struct set_list set = {0};

    if (count == 0) {
        return set;
    }
    set.items = head_alloc(count * sizeof(*set.items));
    set.lists = head_alloc(count * sizeof(void *));
    set.first = head_alloc((plan->steps.count + 2) * sizeof(uint32_t));
    for (size_t i = 0; i < count; i++) {
        set.first[graph_task_at(start->graph, start->wire->set[i]->task)->step + 2]++;
    }
    for (size_t s = 1; s < plan->steps.count + 2; s++) {
        set.first[s] += set.first[s - 1];
    }
    /* first[s + 1] is where step s begins; moved up as it fills, it is where step s + 1 begins. */
    for (size_t i = 0; i < count; i++) {
        const struct graph_task *task =
            graph_task_at(start->graph, start->wire->set[i]->task);

        set.items[i]                           = *start->wire->set[i];
        set.items[i].task                      = task->node;
        set.lists[set.first[task->step + 1]++] = &set.items[i];
    }
    return set;
}

static void set_finish(struct set_list *set)
{
    pl_free(set->items);
    pl_free(set->lists);
    pl_free(set->first);
}

static void shared_take(struct start_graph *start, const struct head_plan *plan)
{
    for (size_t i = 0; i < plan->shared.count; i++) {
        uint32_t index          = *(uint32_t *)pl_vec_at(&plan->shared, i);
        struct graph_slot *slot = graph_slot_at(start->graph, index);

        if (slot->array == NULL) {
            slot->array =
                head_array_create(start->core, start->client->space, &slot->shape);
        }
        start->arrays[index] = slot->array;
    }
}

/* Partial results that nobody read in this launch must not meet those of the next. */
static void shared_clean(struct start_graph *start, const struct head_plan *plan)
{
    for (size_t i = 0; i < plan->shared.count; i++) {
        struct graph_slot *slot =
            graph_slot_at(start->graph, *(uint32_t *)pl_vec_at(&plan->shared, i));

        if (slot->array->partials.count > 0) {
            head_array_release(start->core, slot->array);
            slot->array = NULL;
        }
    }
}

/* The scalars of one component, of those of its segment. */
static void start_component(struct start_graph *start, const struct head_segment *segment,
                            uint32_t number, Plasmon__V1__GraphScalar *const *set,
                            size_t set_count)
{
    Plasmon__V1__GraphScalar *items  = head_alloc((set_count + 1) * sizeof(*items));
    Plasmon__V1__GraphScalar **lists = head_alloc((set_count + 1) * sizeof(*lists));
    size_t count                     = 0;

    for (size_t i = 0; i < set_count; i++) {
        const struct graph_task *task = graph_task_at(
            start->graph, *(uint32_t *)pl_vec_at(&segment->tasks, set[i]->task));

        if (task->component == number) {
            items[count]      = *set[i];
            items[count].task = task->component_node;
            lists[count]      = &items[count];
            count++;
        }
    }
    start_segment(start, graph_component_at(segment, number), lists, count);
    pl_free(items);
    pl_free(lists);
}

static void start_step(struct start_graph *start, const struct head_segment *step,
                       Plasmon__V1__GraphScalar *const *set, size_t set_count)
{
    if (step->id == 0) {
        start_task(start, *(uint32_t *)pl_vec_at(&step->tasks, 0));
    } else if (graph_components_pay(start->core, step, start->arrays)) {
        for (uint32_t i = 0; i < step->components.count; i++) {
            start_component(start, step, i, set, set_count);
        }
        start->core->components_started += step->components.count;
    } else {
        start_segment(start, step, set, set_count);
    }
}

static void start_plan(struct start_graph *start, const struct head_plan *plan)
{
    struct set_list set = set_split(start, plan);
    uint32_t go = 1, gone = 0;

    shared_take(start, plan);
    for (uint32_t i = 0; i < plan->steps.count; i++) {
        const struct head_segment *step = graph_step_at(plan, i);

        if (set.lists == NULL) {
            start_step(start, step, NULL, 0);
        } else {
            start_step(start, step, set.lists + set.first[i],
                       set.first[i + 1] - set.first[i]);
        }
        if (i + 1 < plan->steps.count) {
            head_devices_begin(start->core);
        }
        if (i + 1 - gone >= go && i + 1 < plan->steps.count) {
            head_devices_go(start->core);
            gone = i + 1;
            go   = (uint32_t)pl_min_u64(2 * go, GO_STEPS_MAX);
        }
    }
    shared_clean(start, plan);
    set_finish(&set);
}

static void start_plain(struct start_graph *start)
{
    for (uint32_t i = 0; i < start->graph->slots.count; i++) {
        const struct graph_slot *slot = graph_slot_at(start->graph, i);
        struct head_array **place;

        if (slot->kind == GRAPH_TEMPORARY && slot->ref != 0) {
            place = pl_vec_push(&start->own);
            PL_CHECK(place != NULL);
            *place = start->arrays[i] =
                head_array_create(start->core, start->client->space, &slot->shape);
        }
    }
    for (uint32_t i = 0; i < start->graph->tasks.count; i++) {
        start_task(start, i);
    }
    for (size_t i = 0; i < start->own.count; i++) {
        head_array_release(start->core, *(struct head_array **)pl_vec_at(&start->own, i));
    }
}

static void start_all(struct start_graph *start)
{
    struct head_graph *graph     = start->graph;
    struct head_failure *failure = NULL;

    if (graph->plan != NULL && !graph_plan_holds(graph->plan)) {
        head_plan_release(start->core, graph->plan);
        graph->plan = NULL;
        graph_arrays_release(start->core, graph);
    }
    if (graph->plan == NULL && !start->plain) {
        graph->plan  = graph_plan_create(start->core, start->client, graph, &failure);
        start->plain = graph->plan == NULL; /* the tasks themselves will say why */
        head_failure_release(failure);
    }
    start->group = head_group_create(start->core, start->client, start->wire->id);
    if (start->plain) {
        start_plain(start);
    } else {
        start_plan(start, graph->plan);
    }
    head_group_close(start->core, start->group);
}

/* As refused tasks: what they would have written is failed, so that nobody reads the version before. */
static void fail_written(struct start_graph *start, plasmon_status_t status,
                         const struct pl_err *err)
{
    struct head_failure *failure = head_failure_create(
        status, start->wire->id, start->client->id, "task %llu refused: %s",
        (unsigned long long)start->wire->id, err->text);

    for (uint32_t i = 0; i < start->graph->tasks.count; i++) {
        const struct graph_task *task = graph_task_at(start->graph, i);

        for (uint32_t k = 0; k < task->arg_count; k++) {
            const struct head_array *array = start->arrays[task->args[k].slot];
            struct head_arg arg            = {0};
            struct head_run run            = {.args = &arg, .arg_count = 1};

            if (array != NULL && array->put_offset == UINT64_MAX) {
                arg_fill(start, &task->args[k], &arg);
                head_run_fail(start->core, &run, failure);
            }
        }
    }
    head_failure_release(failure);
}

plasmon_status_t head_graph_launch(struct head_core *core, struct head_client *client,
                                   const Plasmon__V1__Task *wire, struct pl_err *err)
{
    struct start_graph start = {
        .core   = core,
        .client = client,
        .graph  = pl_map_get(&client->graphs, wire->graph),
        .wire   = wire,
        .own    = PL_VEC_INIT(struct head_array *),
    };
    plasmon_status_t status;

    if (start.graph == NULL || !start.graph->ended) {
        return pl_err_set(err, PLASMON_EGRAPH, "graph %llu %s",
                          (unsigned long long)wire->graph,
                          start.graph == NULL ? "was released or never existed"
                                              : "is still being recorded");
    }
    if (start.graph->failure != NULL) {
        return pl_err_set(err, start.graph->failure->status, "%s",
                          start.graph->failure->text);
    }
    start.arrays = head_alloc((start.graph->slots.count + 1) * sizeof(void *));
    start.refs   = head_alloc((start.graph->slots.count + 1) * sizeof(void *));
    status       = take_refs(&start, err);
    if (status == PLASMON_OK) {
        status = head_space_admit_task(client->space, err);
    }
    if (status == PLASMON_OK) {
        start_all(&start);
    } else {
        fail_written(&start, status, err);
    }
    pl_vec_finish(&start.own);
    pl_free(start.arrays);
    pl_free(start.refs);
    return status;
}
