/*
 * A recording: tasks that a client sent with the number of a graph, until it said that this was all.
 *
 * What is recorded is checked like what is submitted: refs, views, arguments that overlap. A
 * recording in which something was wrong stays, with the first failure, and every launch of it
 * fails so.
 */
#include "head/graph.h"

#include <string.h>

/* --------------------------------------------------------------------------------- life */

struct head_graph *graph_create(struct head_client *client, uint64_t id)
{
    struct head_graph *graph = head_alloc(sizeof(*graph));

    graph->id    = id;
    graph->tasks = PL_VEC_INIT(struct graph_task);
    graph->slots = PL_VEC_INIT(struct graph_slot);
    graph->named = PL_VEC_INIT(uint32_t);
    pl_map_init(&graph->by_ref);
    PL_CHECK(pl_map_set(&client->graphs, id, graph) == PLASMON_OK);
    return graph;
}

static void graph_destroy(struct head_core *core, struct head_graph *graph)
{
    for (uint32_t i = 0; i < graph->tasks.count; i++) {
        struct graph_task *task = graph_task_at(graph, i);

        pl_vec_finish(&task->deps);
        pl_vec_finish(&task->inputs);
        pl_free(task->args);
        pl_free((char *)task->run.label);
        pl_free((uint64_t *)task->run.scalars);
    }
    graph_arrays_release(core, graph);
    if (graph->plan != NULL) {
        head_plan_release(core, graph->plan);
    }
    head_failure_release(graph->failure);
    pl_vec_finish(&graph->tasks);
    pl_vec_finish(&graph->slots);
    pl_vec_finish(&graph->named);
    pl_map_finish(&graph->by_ref);
    pl_free(graph);
}

void head_graph_release(struct head_core *core, struct head_client *client, uint64_t id)
{
    struct head_graph *graph = pl_map_remove(&client->graphs, id);

    if (graph != NULL) {
        graph_destroy(core, graph);
    }
}

void head_graphs_release(struct head_core *core, struct head_client *client)
{
    uint64_t key;
    size_t at = 0;

    while (pl_map_some(&client->graphs, &at, &key) != NULL) {
        head_graph_release(core, client, key);
    }
}

/* -------------------------------------------------------------------------------- slots */

uint32_t graph_slot_add(struct head_graph *graph, uint64_t ref, enum graph_slot_kind kind,
                        const struct pl_shape *shape)
{
    uint32_t index          = (uint32_t)graph->slots.count;
    struct graph_slot *slot = pl_vec_push(&graph->slots);

    PL_CHECK(slot != NULL);
    *slot = (struct graph_slot){.kind = kind, .ref = ref, .shape = *shape};
    if (ref != 0) {
        PL_CHECK(pl_map_set(&graph->by_ref, ref, (void *)(uintptr_t)(index + 1)) ==
                 PLASMON_OK);
    }
    return index;
}

static plasmon_status_t slot_of(struct head_client *client, struct head_graph *graph,
                                const Plasmon__V1__Arg *wire, uint32_t *out_slot,
                                struct pl_err *err)
{
    uintptr_t known = wire->ref == 0 ? 0 : (uintptr_t)pl_map_get(&graph->by_ref, wire->ref);
    struct pl_shape shape;
    struct head_ref *ref;
    plasmon_status_t status;

    if (known != 0) {
        *out_slot = (uint32_t)known - 1;
        return PLASMON_OK;
    }
    if (wire->shape != NULL && (wire->mode == PLASMON__V1__MODE__MODE_OUT ||
                                wire->mode == PLASMON__V1__MODE__MODE_SCRATCH)) {
        if (wire->ref != 0 && head_client_ref(client, wire->ref) != NULL) {
            return pl_err_set(err, PLASMON_EEXIST, "ref id %llu is in use",
                              (unsigned long long)wire->ref);
        }
        status = wire_shape_get(wire->shape, &shape, err);
        if (status == PLASMON_OK) {
            *out_slot = graph_slot_add(
                graph, wire->mode == PLASMON__V1__MODE__MODE_SCRATCH ? 0 : wire->ref,
                GRAPH_TEMPORARY, &shape);
        }
        return status;
    }
    status = head_client_ref_get(client, wire->ref, wire->client, &ref, err);
    if (status == PLASMON_OK) {
        shape     = ref->based ? pl_view_shape(&ref->base, ref->array->shape.dtype)
                               : ref->array->shape;
        *out_slot = graph_slot_add(graph, wire->ref, GRAPH_EXTERNAL, &shape);
    }
    return status;
}

/* -------------------------------------------------------------------------------- tasks */

static plasmon_status_t arg_record(struct head_client *client, struct head_graph *graph,
                                   const Plasmon__V1__Arg *wire, struct graph_arg *arg,
                                   struct pl_err *err)
{
    plasmon_status_t status = slot_of(client, graph, wire, &arg->slot, err);

    if (status != PLASMON_OK) {
        return status;
    }
    arg->mode      = wire->mode;
    arg->reduce_op = wire->reduce_op;
    arg->dense     = wire->dense;
    status         = wire_view_get(wire->n_view, wire->view,
                                   &graph_slot_at(graph, arg->slot)->shape, &arg->view, err);
    if (status == PLASMON_OK && wire->dense) {
        struct pl_box whole = pl_box_of_shape(&graph_slot_at(graph, arg->slot)->shape);

        if (!head_view_without_gaps(&arg->view, &whole)) {
            status = pl_err_set(err, PLASMON_EINVAL,
                                "a part with gaps goes to a function that takes none; in a "
                                "recording it is not copied: write ~ in the signature, or "
                                "pass whole rows");
        }
    }
    if (status == PLASMON_OK) {
        arg->hull = pl_view_hull(&arg->view);
        graph_slot_at(graph, arg->slot)->written |= graph_writes(arg->mode);
    }
    return status;
}

/* As for a task that runs now: what is written meets no other argument. */
static plasmon_status_t check_overlap(const struct graph_task *task, struct pl_err *err)
{
    for (uint32_t i = 0; i < task->arg_count; i++) {
        const struct graph_arg *a = &task->args[i];

        if (!graph_writes(a->mode) || a->mode == PLASMON__V1__MODE__MODE_REDUCE) {
            continue; /* partial results are apart */
        }
        for (uint32_t j = 0; j < task->arg_count; j++) {
            const struct graph_arg *b = &task->args[j];

            if (j != i && a->slot == b->slot && pl_box_intersects(&a->hull, &b->hull) &&
                b->mode != PLASMON__V1__MODE__MODE_REDUCE) {
                return pl_err_set(err, PLASMON_EINVAL,
                                  "arguments %u and %u overlap and one of them is written",
                                  i, j);
            }
        }
    }
    return PLASMON_OK;
}

static plasmon_status_t task_record(struct head_core *core, struct head_client *client,
                                    struct head_graph *graph, const Plasmon__V1__Task *wire,
                                    struct pl_err *err)
{
    struct graph_task *task = pl_vec_push(&graph->tasks);
    plasmon_status_t status = PLASMON_OK;
    uint64_t *scalars;

    PL_CHECK(task != NULL);
    *task =
        (struct graph_task){.deps = PL_VEC_INIT(uint32_t), .inputs = PL_VEC_INIT(uint32_t)};
    task->run  = head_run_of_task(core, client, wire);
    scalars    = head_alloc((wire->n_scalars + 1) * sizeof(uint64_t));
    task->args = head_alloc((wire->n_args + 1) * sizeof(struct graph_arg));
    if (wire->n_scalars > 0) {
        memcpy(scalars, wire->scalars, wire->n_scalars * sizeof(uint64_t));
    }
    task->run.client  = NULL; /* of each launch */
    task->run.id      = 0;
    task->run.scalars = scalars;
    task->run.label   = head_strdup(wire->label);
    for (size_t i = 0; status == PLASMON_OK && i < wire->n_args; i++) {
        status = arg_record(client, graph, wire->args[i], &task->args[i], err);
        task->arg_count += status == PLASMON_OK;
    }
    return status == PLASMON_OK ? check_overlap(task, err) : status;
}

plasmon_status_t head_graph_record(struct head_core *core, struct head_client *client,
                                   const Plasmon__V1__Task *wire, struct pl_err *err)
{
    struct head_graph *graph = pl_map_get(&client->graphs, wire->graph);
    plasmon_status_t status;

    if (graph == NULL) {
        graph = graph_create(client, wire->graph);
    }
    if (graph->ended || graph->tasks.count >= WIRE_GRAPH_NODES_MAX) {
        return pl_err_set(err, PLASMON_EMALFORMED,
                          "task %llu is recorded in graph %llu, which %s",
                          (unsigned long long)wire->id, (unsigned long long)wire->graph,
                          graph->ended ? "is complete" : "is full");
    }
    if (graph->failure != NULL) {
        return PLASMON_OK;
    }
    status = task_record(core, client, graph, wire, err);
    if (status != PLASMON_OK) {
        graph->failure = head_failure_create(
            status, wire->id, client->id, "recorded task %zu of graph %llu: %s",
            graph->tasks.count - 1, (unsigned long long)graph->id, err->text);
    }
    return PLASMON_OK;
}

/* ---------------------------------------------------------------------------------- end */

/* A ref that is made inside and kept: it exists from now on, and has no content before the first launch. */
static plasmon_status_t output_keep(struct head_core *core, struct head_client *client,
                                    struct head_graph *graph, const Plasmon__V1__Arg *wire,
                                    struct pl_err *err)
{
    uintptr_t known = (uintptr_t)pl_map_get(&graph->by_ref, wire->ref);
    struct graph_slot *slot;
    struct head_array *array;
    struct head_tile *tile;

    if (known == 0) {
        return pl_err_set(err, PLASMON_EINVAL, "output %llu is not made in the recording",
                          (unsigned long long)wire->ref);
    }
    slot = graph_slot_at(graph, (uint32_t)known - 1);
    if (slot->kind != GRAPH_TEMPORARY) {
        return pl_err_set(err, PLASMON_EINVAL,
                          "output %llu is given twice, or was there before",
                          (unsigned long long)wire->ref);
    }
    slot->kind    = GRAPH_OUTPUT;
    array         = head_array_create(core, client->space, &slot->shape);
    tile          = head_tile_create(core, &array->extent);
    tile->failure = head_failure_create(PLASMON_EGRAPH, 0, client->id,
                                        "the ref is made by a recorded graph that was not "
                                        "launched before the ref was used");
    head_array_set(core, array, &array->extent, tile);
    head_tile_release(core, tile);
    return head_client_ref_add(core, client, wire->ref, array, NULL, err);
}

void graph_named_collect(struct head_graph *graph)
{
    for (uint32_t i = 0; i < graph->slots.count; i++) {
        if (graph_slot_at(graph, i)->kind != GRAPH_TEMPORARY) {
            uint32_t *place = pl_vec_push(&graph->named);

            PL_CHECK(place != NULL);
            *place = i;
        }
    }
}

plasmon_status_t head_graph_end(struct head_core *core, struct head_client *client,
                                const Plasmon__V1__Task *wire, struct pl_err *err)
{
    struct head_graph *graph = pl_map_get(&client->graphs, wire->graph);
    plasmon_status_t status  = PLASMON_OK;

    if (graph == NULL || graph->ended) {
        return pl_err_set(err, PLASMON_EMALFORMED, "the end of graph %llu, which %s",
                          (unsigned long long)wire->graph,
                          graph == NULL ? "was not begun" : "has ended");
    }
    for (size_t i = 0; i < wire->n_args; i++) {
        plasmon_status_t one = output_keep(core, client, graph, wire->args[i],
                                           status == PLASMON_OK ? err : NULL);

        status = status == PLASMON_OK ? one : status;
    }
    if (status != PLASMON_OK && graph->failure == NULL) {
        graph->failure =
            head_failure_create(status, wire->id, client->id, "the end of graph %llu: %s",
                                (unsigned long long)graph->id, err->text);
    }
    graph->ended = true;
    graph_named_collect(graph);
    if (graph->failure == NULL) {
        struct head_failure *failure = NULL;

        graph->plan = graph_plan_create(core, client, graph, &failure);
        head_failure_release(failure); /* a launch tries again, and says why not */
    }
    return PLASMON_OK;
}
