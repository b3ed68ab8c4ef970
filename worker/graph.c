/*
 * Recorded graphs: what this device does at one launch of a segment (head/graph.h), told once and kept.
 *
 *   GraphParts -> [nodes] -> first launch: bound to its operands, recorded, replayed -> next launch: replayed -> graph_free
 *
 * MEMORY for what is made and used inside is one piece for each graph: temporaries as the head laid
 * them out, then for each branch what its functions want as scratch. It stays with the graph from
 * launch to launch, so launches of one graph follow each other (streams.c); it is given up when the
 * device is full and the graph is not in use.
 *
 * WHAT WAS RECORDED goes when nothing is on the device. Destroying an executable graph was seen to
 * wait for what was there, which waited for a word that the thread in that call was to bring:
 * docs/ordering.md.
 *
 * After a restart there are no graphs here; the head tells them again before the launches that need them.
 */
#include "worker/graph_int.h"

#include "base/alloc.h"

#include <assert.h>

/* --------------------------------------------------------------------------------- life */

static struct worker_graph *graph_create(struct worker_core *core,
                                         const Plasmon__V1__GraphPart *part)
{
    struct worker_graph *graph = PL_NEW(struct worker_graph);

    if (graph == NULL || pl_map_set(&core->graphs, part->id, graph) != PLASMON_OK) {
        pl_free(graph);
        return NULL;
    }
    core->graph_count++;
    graph->id            = part->id;
    graph->operand_count = part->operands;
    graph->branch_count  = part->branches;
    graph->temp_bytes    = part->bytes;
    graph->nodes         = PL_VEC_INIT(struct graph_node);
    graph->frames        = PL_VEC_INIT(struct pl_box);
    graph->undo          = PL_VEC_INIT(struct worker_set);
    worker_graph_execs_init(graph);
    return graph;
}

/* No launch of it is enqueued and not done. */
static void graph_destroy(struct worker_core *core, struct worker_graph *graph)
{
    assert(graph->launches == 0);
    if (graph->memory_bytes != 0) {
        store_arena_free(core->arena, graph->memory_offset);
        core->freed_count++;
    }
    for (size_t i = 0; i < graph->nodes.count; i++) {
        worker_launch_destroy(core, graph_node_at(graph, i)->launch);
        pl_free(graph_node_at(graph, i)->after);
    }
    pl_vec_finish(&graph->nodes);
    pl_vec_finish(&graph->frames);
    pl_vec_finish(&graph->undo);
    graph->next_gone  = core->graphs_gone;
    core->graphs_gone = graph;
    core->graphs_gone_count++;
}

static void gone_destroy(struct worker_core *core)
{
    while (core->graphs_gone != NULL) {
        struct worker_graph *graph = core->graphs_gone;

        core->graphs_gone = graph->next_gone;
        worker_graph_execs_finish(core, graph);
        pl_free(graph);
        core->graph_count--;
    }
    core->graphs_gone_count = 0;
    if (core->graph_count == 0 && core->config.ops->prepared_release != NULL) {
        core->config.ops->prepared_release(core->config.user);
    }
}

bool worker_graphs_gone(struct worker_core *core)
{
    if (core->graphs_gone == NULL || !worker_pairs_still(core)) {
        return true;
    }
    if (worker_streams_quiet(core)) {
        gone_destroy(core);
    }
    return core->graphs_gone_count <= WORKER_GRAPHS_GONE;
}

void worker_graph_free(struct worker_core *core, uint64_t id)
{
    struct worker_graph *graph = pl_map_remove(&core->graphs, id);

    if (graph == NULL) {
        return; /* told before a restart */
    }
    if (graph->launches == 0) {
        graph_destroy(core, graph);
        (void)worker_graphs_gone(core);
    } else {
        graph->freed = true;
    }
}

void worker_graphs_finish(struct worker_core *core)
{
    uint64_t key;
    void *value;

    for (size_t i = 0; pl_map_next(&core->graphs, &i, &key, &value); i = 0) {
        worker_graph_free(core, key);
    }
    pl_map_finish(&core->graphs);
    pl_map_init(&core->graphs);
}

plasmon_status_t worker_graph_hold(struct worker_core *core, struct worker_launch *launch,
                                   uint64_t id, struct pl_err *err)
{
    struct worker_graph *graph = pl_map_get(&core->graphs, id);

    if (graph == NULL || !graph->complete ||
        launch->operand_count != graph->operand_count) {
        return pl_err_set(err, PLASMON_EMALFORMED, "it has %u operands for graph %llu, %s",
                          launch->operand_count, (unsigned long long)id,
                          graph == NULL      ? "which this worker was not told"
                          : !graph->complete ? "which is not complete"
                                             : "which has others");
    }
    for (uint32_t i = 0; i < launch->set_count; i++) {
        const struct worker_set *set = &launch->set[i];

        if (set->node >= graph->nodes.count ||
            set->position >= graph_node_at(graph, set->node)->launch->scalar_count) {
            return pl_err_set(err, PLASMON_EMALFORMED, "it sets scalar %u of node %u",
                              set->position, set->node);
        }
    }
    launch->graph = graph;
    graph->launches++;
    return PLASMON_OK;
}

void worker_graph_drop(struct worker_core *core, struct worker_launch *launch)
{
    struct worker_graph *graph = launch->graph;

    launch->graph = NULL;
    assert(graph->launches > 0);
    graph->launches--;
    if (graph->launches == 0 && graph->freed) {
        graph_destroy(core, graph);
    } else if (graph->launches == 0 && graph->memory_bytes != 0) {
        core->freed_count++; /* a front that finds no memory may have it: worker_graphs_trim() */
    }
}

uint64_t worker_graph_last(const struct worker_graph *graph)
{
    return graph->last_seq;
}

/* --------------------------------------------------------------------------- definition */

static plasmon_status_t node_take(struct worker_core *core, struct worker_graph *graph,
                                  const Plasmon__V1__GraphNode *message, struct pl_err *err)
{
    struct graph_node node   = {.branch = message->branch};
    struct graph_node *place = pl_vec_push(&graph->nodes);
    plasmon_status_t status  = PLASMON_ENOMEM;

    if (place == NULL) {
        return pl_err_set(err, PLASMON_ENOMEM, "no memory for a graph's node");
    }
    node.after_count = (uint32_t)message->n_after;
    if (message->n_after != 0) {
        node.after = PL_NEW_N(uint32_t, message->n_after);
    }
    if (message->n_after == 0 || node.after != NULL) {
        status = worker_node_create(core, message->launch, &node.launch, err);
    }
    if (status != PLASMON_OK) {
        pl_free(node.after);
        pl_vec_pop(&graph->nodes);
        return status;
    }
    for (uint32_t i = 0; i < node.after_count; i++) {
        struct graph_node *before = graph_node_at(graph, message->after[i]);

        node.after[i] = message->after[i];
        if (before->mark == 0) {
            before->mark = ++graph->mark_count;
        }
    }
    *place = node;
    return PLASMON_OK;
}

plasmon_status_t worker_graph_take(struct worker_core *core,
                                   const Plasmon__V1__GraphPart *part, struct pl_err *err)
{
    struct worker_graph *graph = pl_map_get(&core->graphs, part->id);
    plasmon_status_t status    = PLASMON_OK;

    if (graph == NULL && part->first == 0) {
        graph = graph_create(core, part);
        if (graph == NULL) {
            return pl_err_set(err, PLASMON_ENOMEM, "no memory for graph %llu",
                              (unsigned long long)part->id);
        }
    }
    if (graph == NULL || graph->complete || part->first != graph->nodes.count) {
        return pl_err_set(err, PLASMON_EMALFORMED,
                          "graph %llu: nodes from %u on, where %zu are known",
                          (unsigned long long)part->id, part->first,
                          graph == NULL ? 0 : graph->nodes.count);
    }
    for (size_t i = 0; status == PLASMON_OK && i < part->n_nodes; i++) {
        status = node_take(core, graph, part->nodes[i], err);
    }
    graph->complete = status == PLASMON_OK && part->last;
    return status;
}

/* ------------------------------------------------------------------------------- memory */

void worker_graph_memory_swap(struct worker_launch *launch)
{
    struct worker_graph *graph = launch->graph;
    uint64_t offset            = graph->memory_offset;
    uint64_t bytes             = graph->memory_bytes;

    graph->memory_offset   = launch->scratch_offset;
    graph->memory_bytes    = launch->scratch_bytes;
    launch->scratch_offset = offset;
    launch->scratch_bytes  = bytes;
    launch->graph_memory   = !launch->graph_memory;
}

bool worker_graphs_trim(struct worker_core *core)
{
    bool freed = false;
    uint64_t key;
    void *value;

    for (size_t i = 0; pl_map_next(&core->graphs, &i, &key, &value);) {
        struct worker_graph *graph = value;

        if (graph->launches == 0 && graph->memory_bytes != 0) {
            store_arena_free(core->arena, graph->memory_offset);
            graph->memory_bytes = 0;
            freed               = true;
        }
    }
    return freed;
}
