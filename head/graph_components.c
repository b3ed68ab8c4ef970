/*
 * Components of a segment: what of it has nothing to do with the rest.
 *
 * A segment is one launch. It begins when the last of its inputs is there, and what it makes is
 * there when its last call is done. Ten calls that have nothing in common but that they were
 * recorded together then stand still while the first nine inputs are there and the tenth is still
 * being copied, and their results go back to the host together at the end: the copies in, the work
 * and the copies out, which could run at the same time, come one after the other.
 *
 * Two tasks of a segment belong together when one depends on the other, or when they name a slot
 * that one of them writes. Components are the groups that follow from that, in the order of their
 * first tasks. A plan tells its workers each component as a segment of its own besides the whole,
 * and each launch of the graph starts either the whole or all of the components.
 *
 * WHY BOTH MEAN THE SAME. No task of a component depends on one of another, and nothing that a
 * component writes is touched by another: so in whatever order they run, and whether or not at the
 * same time, each call finds what it found in the whole. Each component is a launch with a number
 * of its own, started in the place of the whole: what the segment depends on has smaller numbers,
 * what depends on it has larger ones. An array of the whole is an operand of the component that
 * writes it with the same box and mode, so what it overwrites in place is the same.
 *
 * WHEN EACH BY ITSELF. One launch is cheaper than ten, so the whole is launched, unless bytes are
 * on their way for some components and not for others: an input that is being copied to the device
 * or has to be, or an output that is still being copied out of the memory that is to be
 * overwritten; at least as many bytes as workers put a mark behind (worker/marks.c), since behind
 * fewer the first component would wait for the last one's copy all the same. What every component
 * reads, the same box, holds all of them up alike, and does not count.
 */
#include "head/graph.h"

/* ------------------------------------------------------------------------------ finding */

/*
 * By number of a task in the segment: another one that it belongs together with, an earlier one;
 * itself: the first.
 */
static uint32_t first_of(uint32_t *with, uint32_t task)
{
    while (with[task] != task) {
        with[task] = with[with[task]];
        task       = with[task];
    }
    return task;
}

static void unite(uint32_t *with, uint32_t a, uint32_t b)
{
    uint32_t first_a = first_of(with, a);
    uint32_t first_b = first_of(with, b);

    with[first_a > first_b ? first_a : first_b] = first_a < first_b ? first_a : first_b;
}

static struct graph_task *task_at(const struct head_graph *graph,
                                  const struct head_segment *step, uint32_t i)
{
    return graph_task_at(graph, *(uint32_t *)pl_vec_at(&step->tasks, i));
}

static void unite_by_edges(const struct head_graph *graph, const struct head_segment *step,
                           uint32_t *with)
{
    for (uint32_t i = 0; i < step->tasks.count; i++) {
        task_at(graph, step, i)->node = i;
    }
    for (uint32_t i = 0; i < step->tasks.count; i++) {
        const struct graph_task *task = task_at(graph, step, i);

        for (size_t k = 0; k < task->deps.count; k++) {
            const struct graph_task *on =
                graph_task_at(graph, *(uint32_t *)pl_vec_at(&task->deps, k));

            if (on->step == task->step) {
                unite(with, i, on->node);
            }
        }
    }
}

struct slot_users {
    uint32_t first; /* of the segment's tasks, + 1; 0: none */
    bool written;   /* in the segment */
};

static void unite_by_slots(const struct head_graph *graph, const struct head_segment *step,
                           uint32_t *with)
{
    struct slot_users *users = head_alloc((graph->slots.count + 1) * sizeof(*users));

    for (uint32_t i = 0; i < step->tasks.count; i++) {
        const struct graph_task *task = task_at(graph, step, i);

        for (uint32_t k = 0; k < task->arg_count; k++) {
            users[task->args[k].slot].written |= graph_writes(task->args[k].mode);
        }
    }
    for (uint32_t i = 0; i < step->tasks.count; i++) {
        const struct graph_task *task = task_at(graph, step, i);

        for (uint32_t k = 0; k < task->arg_count; k++) {
            struct slot_users *slot = &users[task->args[k].slot];

            if (slot->written && slot->first != 0) {
                unite(with, slot->first - 1, i);
            }
            slot->first = slot->first == 0 ? i + 1 : slot->first;
        }
    }
    pl_free(users);
}

/* ------------------------------------------------------------------------------- making */

static uint32_t count_of(uint32_t *with, size_t tasks)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < tasks; i++) {
        count += first_of(with, i) == i;
    }
    return count;
}

/*
 * Neighbours are put together where there are too many: they were recorded together, so their
 * inputs likely come together.
 */
static void deal(struct head_graph *graph, struct head_segment *step, uint32_t *with,
                 uint32_t groups)
{
    uint32_t each  = (groups + GRAPH_COMPONENTS_MAX - 1) / GRAPH_COMPONENTS_MAX;
    uint32_t count = 0;

    for (uint32_t i = 0; i < step->tasks.count; i++) {
        struct graph_task *task = task_at(graph, step, i);
        uint32_t first          = first_of(with, i);
        struct head_segment *component;

        task->component =
            first == i ? count++ / each : task_at(graph, step, first)->component;
        if (task->component == step->components.count) {
            struct head_segment **place = pl_vec_push(&step->components);

            PL_CHECK(place != NULL);
            *place = graph_segment_create(step->plan, step->device);
        }
        component            = graph_component_at(step, task->component);
        task->component_node = (uint32_t)component->tasks.count;
        graph_segment_add(graph, component, *(uint32_t *)pl_vec_at(&step->tasks, i));
    }
}

/* The same box of a slot in all of them. */
static void common_mark(const struct head_graph *graph, struct head_segment *step)
{
    size_t slots                       = graph->slots.count + 1;
    const struct graph_operand **first = head_alloc(slots * sizeof(*first));
    uint32_t *alike                    = head_alloc(slots * sizeof(*alike));

    for (uint32_t c = 0; c < step->components.count; c++) {
        const struct head_segment *component = graph_component_at(step, c);

        for (size_t i = 0; i < component->operands.count; i++) {
            const struct graph_operand *operand = pl_vec_at(&component->operands, i);

            if (first[operand->slot] == NULL) {
                first[operand->slot] = operand;
            }
            alike[operand->slot] +=
                pl_box_equal(&operand->hull, &first[operand->slot]->hull);
        }
    }
    for (uint32_t c = 0; c < step->components.count; c++) {
        struct head_segment *component = graph_component_at(step, c);

        for (size_t i = 0; i < component->operands.count; i++) {
            struct graph_operand *operand = pl_vec_at(&component->operands, i);

            operand->common = alike[operand->slot] == step->components.count &&
                              pl_box_equal(&operand->hull, &first[operand->slot]->hull);
        }
    }
    pl_free(first);
    pl_free(alike);
}

void graph_components_build(struct head_core *core, struct head_graph *graph,
                            struct head_segment *step)
{
    uint32_t *with = head_alloc((step->tasks.count + 1) * sizeof(*with));
    uint32_t groups;

    for (uint32_t i = 0; i < step->tasks.count; i++) {
        with[i] = i;
    }
    unite_by_edges(graph, step, with);
    unite_by_slots(graph, step, with);
    groups = count_of(with, step->tasks.count);
    if (groups > 1) {
        deal(graph, step, with, groups);
        for (uint32_t i = 0; i < step->components.count; i++) {
            struct head_segment *component = graph_component_at(step, i);

            component->id = ++core->step_last;
            graph_segment_build(core, graph, component);
        }
        common_mark(graph, step);
    }
    pl_free(with);
}

/* ---------------------------------------------------------------------------- launching */

static bool moves_bytes(const struct head_task *task)
{
    switch (task->kind) {
    case PLASMON__V1__LAUNCH_KIND__LAUNCH_COPY:
    case PLASMON__V1__LAUNCH_KIND__LAUNCH_SEND:
    case PLASMON__V1__LAUNCH_KIND__LAUNCH_RECV:
    case PLASMON__V1__LAUNCH_KIND__LAUNCH_PUT:
    case PLASMON__V1__LAUNCH_KIND__LAUNCH_READ:
    case PLASMON__V1__LAUNCH_KIND__LAUNCH_PUT_HOST:
    case PLASMON__V1__LAUNCH_KIND__LAUNCH_GET_HOST:
        return true;
    default:
        return false;
    }
}

static bool being_moved(const struct pl_list *uses, const struct pl_box *box)
{
    struct pl_list *pos;

    pl_list_for_each(pos, uses) {
        const struct head_use *use = pl_container_of(pos, struct head_use, link);

        if (moves_bytes(use->task) && pl_box_intersects(&use->box, box)) {
            return true;
        }
    }
    return false;
}

/* Does it wait for bytes to be copied: to where it runs, or away from what it overwrites? */
static bool on_its_way(const struct head_segment *component,
                       const struct graph_operand *operand, struct head_array *array)
{
    const struct pl_box *box = &operand->hull;
    const struct head_buffer *buffer;

    if (operand->mode != PLASMON__V1__MODE__MODE_OUT) {
        buffer = head_move_common(array, box, component->device, false);
        if (buffer == NULL || being_moved(&buffer->writers, box)) {
            return true;
        }
    }
    if (!graph_writes(operand->mode)) {
        return false;
    }
    buffer = head_move_common(array, box, component->device, true);
    return buffer != NULL &&
           (being_moved(&buffer->writers, box) || being_moved(&buffer->readers, box));
}

bool graph_components_pay(const struct head_core *core, const struct head_segment *segment,
                          struct head_array *const *arrays)
{
    uint64_t enough = core->config.chain_bytes / 256; /* 1 MiB */
    uint64_t bytes  = 0;

    for (uint32_t c = 0; c < segment->components.count; c++) {
        const struct head_segment *component = graph_component_at(segment, c);

        for (size_t i = 0; i < component->operands.count; i++) {
            const struct graph_operand *operand = pl_vec_at(&component->operands, i);
            struct head_array *array            = arrays[operand->slot];

            if (operand->common || !on_its_way(component, operand, array)) {
                continue;
            }
            bytes += (uint64_t)pl_box_elements(&operand->hull) *
                     pl_dtype_bytes(array->shape.dtype);
            if (bytes >= enough) {
                return true;
            }
        }
    }
    return false;
}
