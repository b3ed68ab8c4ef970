/*
 * The plan of a recorded graph: where each task runs, and which tasks are launched together.
 *
 *   1. place each task by the policy, as if it were submitted now: arrays lie where they are,
 *      results of earlier tasks lie
 *               where those were placed, and devices are loaded with what was placed on them
 *   2. depend edges between tasks, by boxes of slots: the rules of hazard.c, applied once; and
 *      those of folds (below)
 *   3. cut      runs of tasks on one device become segments
 *   4. encode each segment as its worker is told it (graph_nodes.c), and its components
 *      (graph_components.c)
 *
 * WHERE A RUN IS CUT. A task joins the open segment of its device, unless
 *
 *   - it needs a step of which the segment does not wait already: the segment would have to stop in
 *     the middle, and with a wait captured in it could not be replayed;
 *   - the last task of the segment is needed by another step, and this one is not, or only by a
 *     later one: who waits for the segment should not wait for this one too;
 *   - it needs an earlier segment of its device that waits for steps of other devices of which the
 *     open one does not wait: what is in the open one should not wait for those too;
 *   - it has a REDUCE argument: then it is a step by itself.
 *
 * The "later" of the second rule and the third are about time alone, and a launch costs time, too:
 * so they cut only what takes CUT_NS or more.
 *
 * FOLDS. Any use of an array that is not a REDUCE with the same operation folds all its partial
 * results, also those that its box does not meet, and what is folded with what decides the bits
 * (reduce.c). So for a REDUCE the slot is what counts, not the box: whoever uses the slot otherwise
 * depends on the last REDUCE before. Then it cannot join a segment that was opened before that
 * REDUCE, and cannot fold sooner than it was recorded. Tasks with a REDUCE argument never move
 * among each other: each opens its step when it is met.
 *
 * WHY THE ORDER OF STEPS IS RIGHT. Steps are launched in the order in which they were opened. A
 * task in a step depends on tasks of the same step, on earlier steps of its device, and on steps
 * that its own step waited for when it was opened, which were opened before it. So every dependence
 * points back, and what docs/ordering.md asks of launches holds for segments.
 */
#include "head/graph.h"

#include <stdlib.h>
#include <string.h>

/* What a launch more costs: some 10 us of a GPU's time, its word and the wait for it. */
#define CUT_NS 20000u

/* -------------------------------------------------------------------------------- edges */

/* A use of a slot that later ones may depend on. */
struct graph_use {
    uint32_t task;
    struct pl_box box;
};
/*
 * Of one slot. A reader looks at the writers only, of which there are few: each takes over for
 * those before it.
 */
struct graph_uses {
    struct pl_vec writers; /* struct graph_use */
    struct pl_vec readers;
    uint32_t last_reduce; /* task + 1; 0: none */
};

static void number_add(struct pl_vec *numbers, uint32_t number)
{
    uint32_t *place;

    for (size_t i = numbers->count; i-- > 0;) {
        if (*(uint32_t *)pl_vec_at(numbers, i) == number) {
            return;
        }
    }
    place = pl_vec_push(numbers);
    PL_CHECK(place != NULL);
    *place = number;
}

/* reads: what that one made; else it only must not be too soon. */
static void dep_add(struct graph_task *task, uint32_t on, bool reads)
{
    number_add(&task->deps, on);
    if (reads) {
        number_add(&task->inputs, on);
    }
}

static int compare_numbers(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a;
    uint32_t y = *(const uint32_t *)b;

    return x < y ? -1 : x > y;
}

/*
 * A REDUCE is a write here: partial results of one array are folded in the order of submission, so
 * two tasks that add to it must stay in their order.
 */
static void meets_collect(const struct pl_vec *uses, const struct pl_box *box, bool reads,
                          struct graph_task *task)
{
    for (size_t i = 0; i < uses->count; i++) {
        const struct graph_use *use = pl_vec_at(uses, i);

        if (pl_box_intersects(&use->box, box)) {
            dep_add(task, use->task, reads);
        }
    }
}

static void use_collect(const struct graph_uses *uses, const struct graph_arg *arg,
                        struct graph_task *task)
{
    bool reads = arg->mode != PLASMON__V1__MODE__MODE_OUT || !pl_view_dense(&arg->view);

    if (arg->mode != PLASMON__V1__MODE__MODE_REDUCE && uses->last_reduce != 0) {
        dep_add(task, uses->last_reduce - 1, true);
    }
    meets_collect(&uses->writers, &arg->hull, reads, task);
    if (graph_writes(arg->mode)) {
        meets_collect(&uses->readers, &arg->hull, false, task);
    }
}

/* Whoever meets one inside the box meets the new writer, too. */
static void supersede(struct pl_vec *uses, const struct pl_box *box)
{
    for (size_t i = uses->count; i-- > 0;) {
        const struct graph_use *use = pl_vec_at(uses, i);

        if (pl_box_contains(box, &use->box)) {
            pl_vec_remove_unordered(uses, i);
        }
    }
}

static void use_add(struct graph_uses *uses, const struct graph_arg *arg, uint32_t number)
{
    bool write = graph_writes(arg->mode);
    struct graph_use *place;

    if (arg->mode == PLASMON__V1__MODE__MODE_REDUCE) {
        uses->last_reduce = number + 1;
    }
    if (write) {
        supersede(&uses->writers, &arg->hull);
        supersede(&uses->readers, &arg->hull);
    }
    place = pl_vec_push(write ? &uses->writers : &uses->readers);
    PL_CHECK(place != NULL);
    *place = (struct graph_use){.task = number, .box = arg->hull};
}

static struct graph_uses *uses_create(const struct head_graph *graph)
{
    struct graph_uses *uses = head_alloc((graph->slots.count + 1) * sizeof(*uses));

    for (size_t i = 0; i < graph->slots.count; i++) {
        uses[i].writers     = PL_VEC_INIT(struct graph_use);
        uses[i].readers     = PL_VEC_INIT(struct graph_use);
        uses[i].last_reduce = 0;
    }
    return uses;
}

static void uses_destroy(const struct head_graph *graph, struct graph_uses *uses)
{
    for (size_t i = 0; i < graph->slots.count; i++) {
        pl_vec_finish(&uses[i].writers);
        pl_vec_finish(&uses[i].readers);
    }
    pl_free(uses);
}

static void depend(struct head_graph *graph, struct graph_uses *uses, uint32_t number)
{
    struct graph_task *task = graph_task_at(graph, number);

    pl_vec_clear(&task->deps);
    pl_vec_clear(&task->inputs);
    for (uint32_t i = 0; i < task->arg_count; i++) {
        use_collect(&uses[task->args[i].slot], &task->args[i], task);
    }
    for (uint32_t i = 0; i < task->arg_count; i++) {
        use_add(&uses[task->args[i].slot], &task->args[i], number);
    }
    if (task->deps.count > 1) {
        qsort(task->deps.items, task->deps.count, sizeof(uint32_t), compare_numbers);
    }
}

/* ---------------------------------------------------------------------------- placement */

/* Where what an argument shows will have been made; NULL: it was there before. */
static const struct head_device *maker(const struct head_graph *graph,
                                       const struct graph_uses *uses,
                                       const struct graph_arg *arg)
{
    for (size_t i = uses->writers.count; i-- > 0;) {
        const struct graph_use *use = pl_vec_at(&uses->writers, i);

        if (pl_box_intersects(&use->box, &arg->hull)) {
            return graph_task_at(graph, use->task)->device;
        }
    }
    return NULL;
}

/* Elements of a slot that tasks of the graph will have made on a device. */
static uint64_t elements_made(const struct head_graph *graph, const struct graph_uses *uses,
                              const struct head_device *device)
{
    uint64_t elements = 0;

    for (size_t i = 0; i < uses->writers.count; i++) {
        const struct graph_use *use = pl_vec_at(&uses->writers, i);

        if (graph_task_at(graph, use->task)->device == device) {
            elements += (uint64_t)pl_box_elements(&use->box);
        }
    }
    return elements;
}

static void want_fill(struct head_client *client, const struct head_graph *graph,
                      const struct graph_uses *uses, const struct graph_arg *arg,
                      struct head_want *want)
{
    const struct graph_slot *slot = graph_slot_at(graph, arg->slot);
    const uint64_t element        = pl_dtype_bytes(slot->shape.dtype);
    const struct head_ref *ref;
    bool writes = arg->mode == PLASMON__V1__MODE__MODE_OUT;
    bool reads  = arg->mode == PLASMON__V1__MODE__MODE_IN ||
                 arg->mode == PLASMON__V1__MODE__MODE_INOUT ||
                 (writes && !pl_view_dense(&arg->view));

    want->box   = arg->hull;
    want->bytes = (uint64_t)pl_box_elements(&arg->hull) * element;
    want->at    = maker(graph, &uses[arg->slot], arg);
    if (want->at != NULL) {
        want->at_bytes = elements_made(graph, &uses[arg->slot], want->at) * element;
        want->at_whole = (uint64_t)pl_shape_elements(&slot->shape) * element;
    }
    want->overwritten = !reads;
    want->part_of     = writes ? &slot->shape : NULL;
    if (want->at == NULL && slot->kind == GRAPH_EXTERNAL && (reads || writes)) {
        ref         = head_client_ref(client, slot->ref);
        want->array = ref != NULL && !ref->based ? ref->array : NULL;
    } else if (!reads && slot->kind == GRAPH_TEMPORARY) {
        want->at = NULL;
    }
}

static bool place(struct head_core *core, struct head_client *client,
                  struct head_graph *graph, const struct graph_uses *uses,
                  struct graph_task *task, struct head_failure **out_failure)
{
    static _Thread_local struct pl_vec wants = {.item_bytes = sizeof(struct head_want)};
    uint64_t bytes                           = 0;

    pl_vec_clear(&wants);
    for (uint32_t i = 0; i < task->arg_count; i++) {
        struct head_want *want = pl_vec_push(&wants);

        PL_CHECK(want != NULL);
        memset(want, 0, sizeof(*want));
        want_fill(client, graph, uses, &task->args[i], want);
        bytes += want->bytes;
    }
    *out_failure = head_run_unknown(&task->run);
    if (*out_failure != NULL) {
        return false;
    }
    task->device = head_place_function(core, task->run.defined, wants.items, wants.count,
                                       task->run.place, out_failure);
    if (task->device == NULL) {
        return false;
    }
    if (task->run.defined != NULL) {
        head_function_tell(core, task->device, task->run.defined);
    }
    /* What is placed here counts as load for those that follow; taken off again below. */
    task->device->load_ns += head_work_ns(task->device, bytes);
    return true;
}

static bool place_all(struct head_core *core, struct head_client *client,
                      struct head_graph *graph, struct head_failure **out_failure)
{
    struct graph_uses *uses = uses_create(graph);
    uint64_t *load          = head_alloc((core->devices.count + 1) * sizeof(uint64_t));
    bool ok                 = true;

    for (uint32_t i = 0; i < core->devices.count; i++) {
        load[i] = head_device_at(core, i)->load_ns;
    }
    for (uint32_t i = 0; ok && i < graph->tasks.count; i++) {
        ok = place(core, client, graph, uses, graph_task_at(graph, i), out_failure);
        if (ok) {
            depend(graph, uses, i);
        }
    }
    for (uint32_t i = 0; i < core->devices.count; i++) {
        head_device_at(core, i)->load_ns = load[i];
    }
    pl_free(load);
    uses_destroy(graph, uses);
    return ok;
}

/* ------------------------------------------------------------------------------ cutting */

static bool alone(const struct graph_task *task)
{
    for (uint32_t i = 0; i < task->arg_count; i++) {
        if (task->args[i].mode == PLASMON__V1__MODE__MODE_REDUCE) {
            return true;
        }
    }
    return false;
}

/*
 * Who only writes over what a task on another device has read or written does not wait for it: each
 * device has a copy of its own.
 */
static void wanted_mark(struct head_graph *graph)
{
    for (uint32_t i = 0; i < graph->tasks.count; i++) {
        graph_task_at(graph, i)->wanted_by = GRAPH_STEP_NONE;
    }
    for (uint32_t i = 0; i < graph->tasks.count; i++) {
        const struct graph_task *task = graph_task_at(graph, i);

        for (size_t k = 0; k < task->inputs.count; k++) {
            struct graph_task *on =
                graph_task_at(graph, *(uint32_t *)pl_vec_at(&task->inputs, k));

            if (on->wanted_by == GRAPH_STEP_NONE &&
                (on->device != task->device || alone(task))) {
                on->wanted_by = i;
            }
        }
    }
}

struct head_segment *graph_segment_create(struct head_plan *plan,
                                          struct head_device *device)
{
    struct head_segment *segment = head_alloc(sizeof(*segment));

    segment->plan       = plan;
    segment->device     = device;
    segment->wanted_by  = GRAPH_STEP_NONE;
    segment->tasks      = PL_VEC_INIT(uint32_t);
    segment->waits      = PL_VEC_INIT(uint32_t);
    segment->operands   = PL_VEC_INIT(struct graph_operand);
    segment->parts      = PL_VEC_INIT(struct head_bytes);
    segment->components = PL_VEC_INIT(struct head_segment *);
    return segment;
}

static uint64_t task_cost_ns(const struct head_graph *graph, const struct graph_task *task,
                             const struct head_device *device)
{
    uint64_t cost_ns = 2000;

    for (uint32_t i = 0; i < task->arg_count; i++) {
        const struct graph_slot *slot = graph_slot_at(graph, task->args[i].slot);

        cost_ns += (uint64_t)pl_box_elements(&task->args[i].hull) *
                   pl_dtype_bytes(slot->shape.dtype) / (device->kind == 1 ? 4 : 2000);
    }
    return cost_ns;
}

void graph_segment_add(const struct head_graph *graph, struct head_segment *segment,
                       uint32_t number)
{
    const struct graph_task *task = graph_task_at(graph, number);
    bool first                    = segment->tasks.count == 0;
    bool limited                  = first || segment->time_limit_ms != 0;
    uint32_t *place               = pl_vec_push(&segment->tasks);

    PL_CHECK(place != NULL);
    *place            = number;
    segment->priority = first || task->run.priority > segment->priority ? task->run.priority
                                                                        : segment->priority;
    segment->wanted_by = (uint32_t)pl_min_u64(segment->wanted_by, task->wanted_by);
    segment->retries   = (uint32_t)pl_max_u64(segment->retries, task->run.retries);
    segment->time_limit_ms =
        task->run.time_limit_ms == 0 || !limited
            ? 0
            : (uint32_t)pl_min_u64(
                  (uint64_t)segment->time_limit_ms + task->run.time_limit_ms, UINT32_MAX);
    segment->cost_ns += task_cost_ns(graph, task, segment->device);
}

static struct head_segment *step_open(struct head_core *core, struct head_plan *plan,
                                      const struct graph_task *task)
{
    struct head_segment *step   = graph_segment_create(plan, task->device);
    struct head_segment **place = pl_vec_push(&plan->steps);

    PL_CHECK(place != NULL);
    *place   = step;
    step->id = alone(task) ? 0 : ++core->step_last;
    return step;
}

static bool waits_for(const struct head_segment *step, uint32_t other)
{
    for (size_t i = 0; i < step->waits.count; i++) {
        if (*(uint32_t *)pl_vec_at(&step->waits, i) == other) {
            return true;
        }
    }
    return false;
}

/* Steps are being cut out of the recording. */
struct cutting {
    const struct head_graph *graph;
    struct head_plan *plan;
    uint32_t devices;
    uint32_t *open;    /* by device: its step that may grow; GRAPH_STEP_NONE */
    uint32_t *touched; /* by device: arguments in there */
    /*
     * [step][device]: the last step of that device that must be over before this one can begin, +
     * 1; 0: none. Its own device: 0.
     */
    struct pl_vec behind;
};

static uint32_t *behind_of(const struct cutting *cutting, uint32_t step)
{
    return pl_vec_at(&cutting->behind, (size_t)step * cutting->devices);
}

/* `step` begins when `from` is over, too. */
static void behind_take(const struct cutting *cutting, uint32_t step, uint32_t from)
{
    uint32_t *mine       = behind_of(cutting, step);
    const uint32_t *more = behind_of(cutting, from);
    uint32_t own         = graph_step_at(cutting->plan, step)->device->index;
    uint32_t other       = graph_step_at(cutting->plan, from)->device->index;

    for (uint32_t i = 0; i < cutting->devices; i++) {
        mine[i] = i == own ? 0 : mine[i] > more[i] ? mine[i] : more[i];
    }
    if (other != own && mine[other] < from + 1) {
        mine[other] = from + 1;
    }
}

/* Step `from`, of the same device, waits for others of which `open` does not wait. */
static bool waits_more(const struct cutting *cutting, uint32_t open, uint32_t from)
{
    const uint32_t *mine = behind_of(cutting, open);
    const uint32_t *more = behind_of(cutting, from);

    for (uint32_t i = 0; i < cutting->devices; i++) {
        if (more[i] > mine[i]) {
            return true;
        }
    }
    return false;
}

/* Would who waits for the open segment wait for this one for nothing? */
static bool holds_up(const struct cutting *cutting, const struct head_segment *open,
                     const struct graph_task *task)
{
    uint32_t number = *(uint32_t *)pl_vec_at(&open->tasks, open->tasks.count - 1);
    const struct graph_task *last = graph_task_at(cutting->graph, number);

    if (task->wanted_by == GRAPH_STEP_NONE) {
        return last->wanted_by != GRAPH_STEP_NONE;
    }
    return task->wanted_by > open->wanted_by &&
           open->cost_ns + task_cost_ns(cutting->graph, task, open->device) >= CUT_NS;
}

/* May it join the open segment of its device, which is step `open`? */
static bool joins(const struct cutting *cutting, uint32_t open,
                  const struct graph_task *task)
{
    const struct head_graph *graph  = cutting->graph;
    const struct head_plan *plan    = cutting->plan;
    const struct head_segment *step = graph_step_at(plan, open);
    uint32_t touched                = cutting->touched[step->device->index];

    if (alone(task) || holds_up(cutting, step, task) ||
        touched + task->arg_count > GRAPH_SEGMENT_OPERANDS_MAX) {
        return false;
    }
    for (size_t i = 0; i < task->deps.count; i++) {
        const struct graph_task *on =
            graph_task_at(graph, *(uint32_t *)pl_vec_at(&task->deps, i));
        const struct head_segment *from = graph_step_at(plan, on->step);

        if (on->step != open && (from->device != step->device || from->id == 0) &&
            !waits_for(step, on->step)) {
            return false;
        }
        if (on->step != open && from->device == step->device && step->cost_ns >= CUT_NS &&
            waits_more(cutting, open, on->step)) {
            return false;
        }
    }
    return true;
}

static void step_join(struct head_graph *graph, struct head_plan *plan, uint32_t number,
                      uint32_t step_number)
{
    struct graph_task *task = graph_task_at(graph, number);

    task->step = step_number;
    graph_segment_add(graph, graph_step_at(plan, step_number), number);
    for (uint32_t i = 0; i < task->arg_count; i++) {
        struct graph_slot *slot = graph_slot_at(graph, task->args[i].slot);

        slot->step = slot->step == GRAPH_STEP_NONE || slot->step == step_number
                         ? step_number
                         : GRAPH_STEPS;
    }
}

static void waits_note(const struct head_graph *graph, struct head_plan *plan,
                       const struct graph_task *task, struct head_segment *step)
{
    for (size_t i = 0; i < task->deps.count; i++) {
        uint32_t from = graph_task_at(graph, *(uint32_t *)pl_vec_at(&task->deps, i))->step;
        uint32_t *place;

        if (graph_step_at(plan, from) == step || waits_for(step, from)) {
            continue;
        }
        place = pl_vec_push(&step->waits);
        PL_CHECK(place != NULL);
        *place = from;
    }
}

static void open_step(struct head_core *core, struct cutting *cutting,
                      const struct graph_task *task)
{
    struct head_plan *plan = cutting->plan;
    uint32_t device        = task->device->index;
    uint32_t step          = (uint32_t)plan->steps.count;
    uint32_t *behind       = pl_vec_push_n(&cutting->behind, cutting->devices);

    PL_CHECK(behind != NULL);
    memset(behind, 0, cutting->devices * sizeof(*behind));
    waits_note(cutting->graph, plan, task, step_open(core, plan, task));
    cutting->open[device]    = step;
    cutting->touched[device] = 0;
}

static void task_cut(struct head_core *core, struct cutting *cutting,
                     struct head_graph *graph, uint32_t number)
{
    struct graph_task *task = graph_task_at(graph, number);
    uint32_t device         = task->device->index;
    uint32_t step           = cutting->open[device];

    if (step == GRAPH_STEP_NONE || !joins(cutting, step, task)) {
        step       = (uint32_t)cutting->plan->steps.count;
        task->step = step;
        open_step(core, cutting, task);
    }
    for (size_t i = 0; i < task->deps.count; i++) {
        uint32_t from = graph_task_at(graph, *(uint32_t *)pl_vec_at(&task->deps, i))->step;

        if (from != step) {
            behind_take(cutting, step, from);
        }
    }
    cutting->touched[device] += task->arg_count;
    step_join(graph, cutting->plan, number, step);
    if (alone(task)) {
        cutting->open[device] = GRAPH_STEP_NONE;
    }
}

static void cut(struct head_core *core, struct head_graph *graph, struct head_plan *plan)
{
    uint32_t devices       = (uint32_t)core->devices.count;
    struct cutting cutting = {.graph   = graph,
                              .plan    = plan,
                              .devices = devices,
                              .open    = head_alloc((devices + 1) * sizeof(uint32_t)),
                              .touched = head_alloc((devices + 1) * sizeof(uint32_t)),
                              .behind  = PL_VEC_INIT(uint32_t)};

    for (uint32_t i = 0; i < devices; i++) {
        cutting.open[i] = GRAPH_STEP_NONE;
    }
    for (uint32_t i = 0; i < graph->slots.count; i++) {
        graph_slot_at(graph, i)->step = GRAPH_STEP_NONE;
    }
    wanted_mark(graph);
    for (uint32_t i = 0; i < graph->tasks.count; i++) {
        task_cut(core, &cutting, graph, i);
    }
    pl_vec_finish(&cutting.behind);
    pl_free(cutting.open);
    pl_free(cutting.touched);
}

static void shared_collect(struct head_graph *graph, struct head_plan *plan)
{
    for (uint32_t i = 0; i < graph->slots.count; i++) {
        struct graph_slot *slot = graph_slot_at(graph, i);
        uint32_t *place;

        if (slot->kind != GRAPH_TEMPORARY || slot->ref == 0 ||
            slot->step == GRAPH_STEP_NONE) {
            continue; /* SCRATCH is memory of its launch */
        }
        if (slot->step != GRAPH_STEPS && graph_step_at(plan, slot->step)->id != 0) {
            continue; /* memory of one segment */
        }
        slot->step = GRAPH_STEPS;
        place      = pl_vec_push(&plan->shared);
        PL_CHECK(place != NULL);
        *place = i;
    }
}

/* --------------------------------------------------------------------------------- life */

/*
 * Every task has its device and its edges. What follows from them is always the same:
 * graph_plan_restore() relies on that.
 */
static struct head_plan *plan_build(struct head_core *core, struct head_graph *graph)
{
    struct head_plan *plan = head_alloc(sizeof(*plan));

    plan->refs   = 1;
    plan->steps  = PL_VEC_INIT(struct head_segment *);
    plan->shared = PL_VEC_INIT(uint32_t);
    pl_list_init(&plan->link);
    pl_list_add_tail(&core->plans, &plan->link);
    cut(core, graph, plan);
    shared_collect(graph, plan);
    for (uint32_t i = 0; i < plan->steps.count; i++) {
        struct head_segment *step = graph_step_at(plan, i);

        if (step->id != 0) {
            graph_components_build(core, graph, step);
            graph_segment_build(core, graph,
                                step); /* after them: tasks know their node of this */
        }
    }
    return plan;
}

static void segment_tell(struct head_core *core, const struct head_device *device,
                         const struct head_segment *segment)
{
    for (size_t i = 0; segment->device == device && i < segment->parts.count; i++) {
        head_device_tell(core, segment->device, pl_vec_at(&segment->parts, i));
    }
}

/* What of it is on the device. */
static void plan_tell(struct head_core *core, const struct head_plan *plan,
                      const struct head_device *device)
{
    for (uint32_t i = 0; i < plan->steps.count; i++) {
        segment_tell(core, device, graph_step_at(plan, i));
    }
    for (uint32_t i = 0; i < plan->steps.count; i++) {
        const struct head_segment *step = graph_step_at(plan, i);

        for (uint32_t k = 0; k < step->components.count; k++) {
            segment_tell(core, device, graph_component_at(step, k));
        }
    }
}

struct head_plan *graph_plan_create(struct head_core *core, struct head_client *client,
                                    struct head_graph *graph,
                                    struct head_failure **out_failure)
{
    struct head_plan *plan;

    if (!place_all(core, client, graph, out_failure)) {
        return NULL;
    }
    plan = plan_build(core, graph);
    for (uint32_t i = 0; i < core->devices.count; i++) {
        plan_tell(core, plan, head_device_at(core, i));
    }
    return plan;
}

struct head_plan *graph_plan_restore(struct head_core *core, struct head_graph *graph,
                                     uint64_t first_step)
{
    struct graph_uses *uses = uses_create(graph);
    uint64_t last           = core->step_last;
    struct head_plan *plan;

    for (uint32_t i = 0; i < graph->tasks.count; i++) {
        depend(graph, uses, i);
    }
    uses_destroy(graph, uses);
    core->step_last = first_step - 1;
    plan            = plan_build(core, graph);
    core->step_last = pl_max_u64(last, core->step_last);
    return plan;
}

uint64_t graph_plan_first_step(const struct head_core *core, const struct head_plan *plan)
{
    for (uint32_t i = 0; i < plan->steps.count; i++) {
        if (graph_step_at(plan, i)->id != 0) {
            return graph_step_at(plan, i)->id;
        }
    }
    return core->step_last + 1;
}

bool graph_plan_holds(const struct head_plan *plan)
{
    for (uint32_t i = 0; i < plan->steps.count; i++) {
        const struct head_device *device = graph_step_at(plan, i)->device;

        if (device->gone || device->draining) {
            return false;
        }
    }
    return true;
}

static void segment_destroy(struct head_segment *step)
{
    if (step->id != 0 && !step->device->gone) {
        uint64_t *freed = pl_vec_push(&step->device->out_graph_free);

        PL_CHECK(freed != NULL);
        *freed = step->id;
    }
    for (uint32_t i = 0; i < step->components.count; i++) {
        /* which have none: once, not deeper */
        segment_destroy(graph_component_at(step, i));
    }
    for (size_t i = 0; i < step->operands.count; i++) {
        pl_free(((struct graph_operand *)pl_vec_at(&step->operands, i))->kept);
    }
    for (size_t i = 0; i < step->parts.count; i++) {
        pl_free(((struct head_bytes *)pl_vec_at(&step->parts, i))->data);
    }
    pl_vec_finish(&step->tasks);
    pl_vec_finish(&step->waits);
    pl_vec_finish(&step->operands);
    pl_vec_finish(&step->parts);
    pl_vec_finish(&step->components);
    pl_free(step);
}

void head_plan_release(struct head_core *core, struct head_plan *plan)
{
    (void)core;
    PL_CHECK(plan->refs > 0);
    if (--plan->refs > 0) {
        return;
    }
    for (uint32_t i = 0; i < plan->steps.count; i++) {
        segment_destroy(graph_step_at(plan, i));
    }
    pl_list_remove(&plan->link);
    pl_vec_finish(&plan->steps);
    pl_vec_finish(&plan->shared);
    pl_free(plan);
}

void head_plans_tell(struct head_core *core, struct head_device *device)
{
    struct pl_list *pos;

    pl_list_for_each(pos, &core->plans) {
        plan_tell(core, pl_container_of(pos, struct head_plan, link), device);
    }
}

void graph_arrays_release(struct head_core *core, struct head_graph *graph)
{
    for (uint32_t i = 0; i < graph->slots.count; i++) {
        struct graph_slot *slot = graph_slot_at(graph, i);

        if (slot->array != NULL) {
            head_array_release(core, slot->array);
            slot->array = NULL;
        }
    }
}
