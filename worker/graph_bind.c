/*
 * The nodes of a recorded graph, fitted to a launch: views into the frames of its operands, scalars
 * as it sets them, all of it checked as a task would be, and how much memory that takes. Done again
 * only when the frames of the operands or the scalars are others.
 */
#include "worker/graph_int.h"

#include "base/alloc.h"

#include <string.h>

/* Node operands to the frames of the launch's operands. Their places come later. */
static plasmon_status_t node_bind(struct graph_node *node,
                                  const struct worker_launch *launch, struct pl_err *err)
{
    for (uint32_t i = 0; i < node->launch->operand_count; i++) {
        struct worker_operand *operand          = &node->launch->operands[i];
        const struct worker_node_operand *shows = &node->launch->node_operands[i];
        const struct worker_operand *from;
        struct pl_box hull;

        if (shows->operand == 0) {
            continue;
        }
        from = &launch->operands[shows->operand - 1];
        hull = pl_view_hull(&shows->view);
        if (operand->arg.dtype != from->arg.dtype || shows->view.ndim != from->frame.ndim ||
            !pl_box_contains(&from->frame, &hull)) {
            return pl_err_set(err, PLASMON_EINTERNAL,
                              "argument %u does not lie in operand %u of the launch", i,
                              shows->operand - 1);
        }
        operand->frame = from->frame;
        {
            int64_t view[3 * PL_DIM_MAX];
            size_t n = wire_view_put(&shows->view, view);

            worker_operand_aim(operand, n, view);
        }
    }
    return PLASMON_OK;
}

static bool frames_bound(const struct worker_graph *graph,
                         const struct worker_launch *launch)
{
    if (graph->frames.count != launch->operand_count) {
        return false;
    }
    for (uint32_t i = 0; i < launch->operand_count; i++) {
        if (!pl_box_equal(pl_vec_at(&graph->frames, i), &launch->operands[i].frame)) {
            return false;
        }
    }
    return graph->bytes != 0 || graph->nodes.count == 0;
}

static void branch_scratch_take(struct worker_graph *graph, uint32_t branch, uint64_t bytes)
{
    graph->branch_scratch[branch] =
        pl_max_u64(graph->branch_scratch[branch], pl_round_up(bytes, 256));
}

static void bytes_sum(struct worker_graph *graph)
{
    /* never 0: bound */
    graph->bytes = pl_round_up(graph->temp_bytes, 256) + WORKER_GRAPH_TAG_BYTES;
    for (uint32_t b = 0; b < graph->branch_count; b++) {
        graph->bytes += graph->branch_scratch[b];
    }
}

static plasmon_status_t frames_bind(struct worker_core *core, struct worker_graph *graph,
                                    const struct worker_launch *launch, struct pl_err *err)
{
    struct pl_box *frames;

    pl_vec_clear(&graph->frames);
    graph->bytes = 0;
    memset(graph->branch_scratch, 0, sizeof(graph->branch_scratch));
    for (size_t i = 0; i < graph->nodes.count; i++) {
        struct graph_node *node = graph_node_at(graph, i);
        struct pl_err cause     = {.status = PLASMON_OK};
        uint64_t scratch        = 0;
        plasmon_status_t status = node_bind(node, launch, &cause);

        if (status == PLASMON_OK) {
            status = worker_run_check(core, node->launch, true, &scratch, &cause);
        }
        if (status != PLASMON_OK) {
            return pl_err_set(err, status, "recorded call %zu%s%s: %s", i,
                              node->launch->label[0] != '\0' ? " " : "",
                              node->launch->label, cause.text);
        }
        branch_scratch_take(graph, node->branch, scratch);
    }
    frames = launch->operand_count == 0
                 ? NULL
                 : pl_vec_push_n(&graph->frames, launch->operand_count);
    if (frames == NULL && launch->operand_count != 0) {
        return pl_err_set(err, PLASMON_ENOMEM, "no memory for the frames of a graph");
    }
    for (uint32_t i = 0; i < launch->operand_count; i++) {
        frames[i] = launch->operands[i].frame;
    }
    bytes_sum(graph);
    return PLASMON_OK;
}

/* Back to what was recorded. */
static void scalars_reset(struct worker_graph *graph)
{
    while (graph->undo.count > 0) {
        const struct worker_set *old = pl_vec_at(&graph->undo, graph->undo.count - 1);

        graph_node_at(graph, old->node)->launch->scalars[old->position] = old->value;
        pl_vec_pop(&graph->undo);
    }
}

/* As this launch has them. */
static plasmon_status_t scalars_set(struct worker_core *core, struct worker_graph *graph,
                                    const struct worker_launch *launch, struct pl_err *err)
{
    plasmon_status_t status = PLASMON_OK;

    for (uint32_t i = 0; i < launch->set_count; i++) {
        const struct worker_set *set = &launch->set[i];
        struct worker_launch *node   = graph_node_at(graph, set->node)->launch;
        struct worker_set *old       = pl_vec_push(&graph->undo);

        if (old == NULL) {
            return pl_err_set(err, PLASMON_ENOMEM, "no memory for the scalars of a graph");
        }
        *old                         = (struct worker_set){.node     = set->node,
                                                           .position = set->position,
                                                           .value    = node->scalars[set->position]};
        node->scalars[set->position] = set->value;
    }
    for (uint32_t i = 0; status == PLASMON_OK && i < launch->set_count; i++) {
        struct graph_node *node = graph_node_at(graph, launch->set[i].node);
        struct pl_err cause     = {.status = PLASMON_OK};
        uint64_t scratch        = 0;

        status = worker_run_check(core, node->launch, true, &scratch, &cause);
        if (status != PLASMON_OK) {
            (void)pl_err_set(err, status, "recorded call %u: %s", launch->set[i].node,
                             cause.text);
        }
        branch_scratch_take(graph, node->branch, scratch);
    }
    bytes_sum(graph);
    return status;
}

bool worker_graph_check(struct worker_core *core, struct worker_launch *launch)
{
    struct worker_graph *graph = launch->graph;
    struct pl_err err          = {.status = PLASMON_OK};
    plasmon_status_t status    = PLASMON_OK;

    scalars_reset(graph);
    if (!frames_bound(graph, launch)) {
        status = frames_bind(core, graph, launch, &err);
    }
    if (status == PLASMON_OK && launch->set_count != 0) {
        status = scalars_set(core, graph, launch, &err);
    }
    if (status == PLASMON_EAGAIN) {
        return false;
    }
    if (status != PLASMON_OK) {
        worker_launch_fail(launch, status, "%s", err.text);
        return true;
    }
    launch->scratch_wanted = graph->memory_bytes < graph->bytes ? graph->bytes : 0;
    return true;
}
