/*
 * Recorded graphs in a checkpoint (graph.h): slots and tasks as they were recorded, and of a plan
 * where each task runs and which numbers its steps have. All else of a plan follows from that
 * (graph_plan_restore), so it is made again and need not be believed.
 *
 * Slots name the arrays that they keep between launches, which come later.
 */
#include "head/checkpoint_int.h"

#include <string.h>

#include "head/graph.h"

/* ------------------------------------------------------------------------------- saving */

static void save_arg(struct head_bytes *out, const struct graph_arg *arg)
{
    head_bytes_varint(out, arg->mode);
    head_bytes_varint(out, arg->slot);
    head_bytes_varint(out, arg->reduce_op);
    head_bytes_varint(out, arg->dense);
    head_save_view(out, &arg->view);
}

static void save_task(struct head_bytes *out, const struct graph_task *task)
{
    const struct head_run *run = &task->run;
    const uint64_t numbers[]   = {run->function,
                                run->defined != NULL ? head_function_id(run->defined) : 0,
                                  run->place,
                                  run->retries,
                                  run->function_retries,
                                  run->time_limit_ms,
                                  run->submit_ns,
                                  (uint32_t)run->priority};

    for (size_t i = 0; i < PL_COUNT(numbers); i++) {
        head_bytes_varint(out, numbers[i]);
    }
    head_save_text(out, run->label);
    head_bytes_varint(out, run->shaped);
    for (size_t i = 0; run->shaped && i < WIRE_LAUNCH_SHAPE_COUNT; i++) {
        head_bytes_varint(out, run->launch_shape[i]);
    }
    head_bytes_varint(out, run->scalar_count);
    for (size_t i = 0; i < run->scalar_count; i++) {
        head_bytes_varint(out, run->scalars[i]);
    }
    head_bytes_varint(out, task->arg_count);
    for (uint32_t i = 0; i < task->arg_count; i++) {
        save_arg(out, &task->args[i]);
    }
}

static void save_slots(struct head_saving *saving, const struct head_graph *graph)
{
    struct head_bytes *out = saving->out;

    head_bytes_varint(out, graph->slots.count);
    for (uint32_t i = 0; i < graph->slots.count; i++) {
        const struct graph_slot *slot = graph_slot_at(graph, i);

        head_bytes_varint(out, slot->kind);
        head_bytes_varint(out, slot->ref);
        head_bytes_varint(out, slot->written);
        head_save_shape(out, &slot->shape);
    }
    for (uint32_t i = 0; i < graph->slots.count; i++) {
        struct head_array *array = graph_slot_at(graph, i)->array;

        head_bytes_varint(out,
                          array == NULL ? 0 : head_numbering_of(&saving->arrays, array));
    }
}

static void save_graph(struct head_saving *saving, const struct head_graph *graph)
{
    struct head_bytes *out = saving->out;

    head_bytes_varint(out, graph->id);
    head_bytes_varint(out, graph->ended);
    head_bytes_varint(out, graph->failure != NULL);
    if (graph->failure != NULL) {
        head_save_failure(out, graph->failure);
    }
    save_slots(saving, graph);
    head_bytes_varint(out, graph->tasks.count);
    for (uint32_t i = 0; i < graph->tasks.count; i++) {
        save_task(out, graph_task_at(graph, i));
    }
    head_bytes_varint(out, graph->plan != NULL);
    if (graph->plan != NULL) {
        head_bytes_varint(out, graph_plan_first_step(saving->core, graph->plan));
        for (uint32_t i = 0; i < graph->tasks.count; i++) {
            head_bytes_varint(out, graph_task_at(graph, i)->device->index);
        }
    }
}

void head_graphs_save(struct head_saving *saving, const struct head_client *client)
{
    uint64_t key;
    void *graph;

    head_bytes_varint(saving->out, client->graphs.count);
    for (size_t i = 0; pl_map_next(&client->graphs, &i, &key, &graph);) {
        save_graph(saving, graph);
    }
}

/* ------------------------------------------------------------------------------ loading */

static void load_slots(struct head_loading *loading, struct head_graph *graph)
{
    struct head_reader *in = loading->in;
    size_t count           = head_load_count(in);

    for (size_t i = 0; i < count && !in->bad; i++) {
        uint64_t kind = head_load_below(in, GRAPH_TEMPORARY);
        uint64_t ref  = head_load_number(in);
        bool written  = head_load_flag(in);
        struct pl_shape shape;
        uint32_t index;

        head_load_shape(in, &shape);
        if (in->bad || (ref != 0 && pl_map_get(&graph->by_ref, ref) != NULL) ||
            (ref == 0 && kind != GRAPH_TEMPORARY)) {
            in->bad = true;
            return;
        }
        index = graph_slot_add(graph, ref, (enum graph_slot_kind)kind, &shape);
        graph_slot_at(graph, index)->written = written;
    }
    for (uint32_t i = 0; i < graph->slots.count && !in->bad; i++) {
        head_loading_owe_slot(loading, &graph_slot_at(graph, i)->array,
                              head_load_number(in));
    }
}

static void load_arg(struct head_reader *in, const struct head_graph *graph,
                     struct graph_arg *arg)
{
    struct pl_err err;

    arg->mode      = (uint32_t)head_load_below(in, PLASMON__V1__MODE__MODE_SCRATCH);
    arg->slot      = (uint32_t)head_load_below(in, UINT32_MAX);
    arg->reduce_op = (uint32_t)head_load_below(in, UINT32_MAX);
    arg->dense     = head_load_flag(in);
    head_load_view(in, &arg->view);
    if (in->bad || arg->slot >= graph->slots.count ||
        pl_view_check(&arg->view, &graph_slot_at(graph, arg->slot)->shape, &err) !=
            PLASMON_OK) {
        in->bad   = true;
        arg->slot = 0;
        return;
    }
    arg->hull = pl_view_hull(&arg->view);
}

static void load_scalars(struct head_reader *in, struct head_run *run)
{
    size_t count      = (size_t)head_load_below(in, WIRE_SCALARS_MAX);
    uint64_t *scalars = head_alloc((count + 1) * sizeof(uint64_t));

    for (size_t i = 0; i < count; i++) {
        scalars[i] = head_load_number(in);
    }
    run->scalars      = scalars;
    run->scalar_count = count;
}

static void load_task(struct head_loading *loading, struct head_graph *graph)
{
    struct head_reader *in  = loading->in;
    struct graph_task *task = pl_vec_push(&graph->tasks);
    struct head_run *run;
    uint64_t numbers[8];
    size_t count;

    PL_CHECK(task != NULL);
    *task =
        (struct graph_task){.deps = PL_VEC_INIT(uint32_t), .inputs = PL_VEC_INIT(uint32_t)};
    run = &task->run;
    for (size_t i = 0; i < PL_COUNT(numbers); i++) {
        numbers[i] = head_load_number(in);
    }
    run->function         = (uint32_t)numbers[0];
    run->place            = (uint32_t)numbers[2];
    run->retries          = (uint32_t)numbers[3];
    run->function_retries = (uint32_t)numbers[4];
    run->time_limit_ms    = (uint32_t)numbers[5];
    run->submit_ns        = numbers[6];
    run->priority         = (int32_t)(uint32_t)numbers[7];
    if (numbers[1] != 0 && numbers[1] <= UINT32_MAX) {
        run->defined = head_function_by_id(loading->core, (uint32_t)numbers[1]);
    }
    in->bad |= (numbers[1] != 0 && run->defined == NULL) ||
               numbers[2] > loading->core->devices.count;
    run->label  = head_load_text(in);
    run->shaped = head_load_flag(in);
    for (size_t i = 0; run->shaped && i < WIRE_LAUNCH_SHAPE_COUNT; i++) {
        run->launch_shape[i] = (uint32_t)head_load_below(in, UINT32_MAX);
    }
    load_scalars(in, run);
    count      = head_load_count(in);
    task->args = head_alloc((count + 1) * sizeof(struct graph_arg));
    for (size_t i = 0; i < count && !in->bad; i++) {
        load_arg(in, graph, &task->args[i]);
        task->arg_count++;
    }
}

static void load_plan(struct head_loading *loading, struct head_graph *graph)
{
    struct head_reader *in = loading->in;
    uint64_t last          = loading->core->step_last;
    uint64_t first         = head_load_below(in, last + 1);

    for (uint32_t i = 0; i < graph->tasks.count && !in->bad; i++) {
        struct graph_task *task = graph_task_at(graph, i);

        task->device =
            head_device_at(loading->core, (uint32_t)head_load_below(in, UINT32_MAX));
        in->bad |= task->device == NULL;
    }
    if (in->bad || first == 0) {
        in->bad = true;
        return;
    }
    graph->plan = graph_plan_restore(loading->core, graph, first);
    in->bad |= loading->core->step_last > last;
}

static void load_graph(struct head_loading *loading, struct head_client *client)
{
    struct head_reader *in = loading->in;
    uint64_t id            = head_load_number(in);
    struct head_graph *graph;
    size_t count;

    if (in->bad || id == 0 || pl_map_get(&client->graphs, id) != NULL) {
        in->bad = true;
        return;
    }
    graph        = graph_create(client, id);
    graph->ended = head_load_flag(in);
    if (head_load_flag(in)) {
        graph->failure = head_load_failure(in);
    }
    load_slots(loading, graph);
    count = head_load_count(in);
    in->bad |= count > WIRE_GRAPH_NODES_MAX;
    for (size_t i = 0; i < count && !in->bad; i++) {
        load_task(loading, graph);
    }
    if (graph->ended) {
        graph_named_collect(graph);
    }
    if (head_load_flag(in)) {
        load_plan(loading, graph);
    }
}

void head_graphs_load(struct head_loading *loading, struct head_client *client)
{
    size_t count = head_load_count(loading->in);

    for (size_t i = 0; i < count && !loading->in->bad; i++) {
        load_graph(loading, client);
    }
}
