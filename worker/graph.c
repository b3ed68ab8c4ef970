/*
 * Recorded graphs: what this device does at one launch of a segment (head/graph.h), told once and kept.
 *
 *   GraphParts -> [nodes] -> first launch: bound to its operands, recorded, replayed -> next launch: replayed -> graph_free
 *
 * A LAUNCH COSTS what its operands cost, not its nodes: a look at whether its operands have the frames and places, and its scalars the
 * values, of something that was recorded before. Up to WORKER_GRAPH_EXECS recordings are kept, so that a program which takes
 * turns with its buffers records each turn once; otherwise the one that was used longest ago is recorded anew in place.
 *
 * MEMORY for what is made and used inside is one piece for each graph: temporaries as the head laid them out, then for each branch
 * what its functions want as scratch. It stays with the graph from launch to launch, so launches of one graph follow each other
 * (streams.c); it is given up when the device is full and the graph is not in use.
 *
 * WHAT CANNOT BE RECORDED (the device or a library refuses) is enqueued node by node, in order: slower, and the same.
 *
 * After a restart there are no graphs here; the head tells them again before the launches that need them.
 */
#include "worker/core_int.h"

#include "base/alloc.h"
#include "base/log.h"

#include <assert.h>
#include <string.h>

#define WORKER_GRAPH_EXECS 4u

struct node {
    struct worker_launch
        *launch; /* function, operands, scalars of the launch that was bound last */
    uint32_t *after;
    uint32_t after_count;
    uint32_t branch;
    uint32_t mark; /* number + 1; 0: nobody of another branch waits for it */
};

/* Something that was recorded, and what for. */
struct exec {
    void *exec;        /* NULL: free */
    struct pl_vec key; /* uint64_t */
    uint64_t used;
};

struct worker_graph {
    uint64_t id;
    bool complete;
    bool freed;          /* by the head: goes with its last launch */
    bool one_by_one;     /* it could not be recorded */
    struct pl_vec nodes; /* struct node */
    uint32_t operand_count;
    uint32_t branch_count;
    uint32_t mark_count;
    uint64_t temp_bytes;

    /* What the nodes were bound to last. */
    struct pl_vec frames; /* struct pl_box: of the operands; empty: nothing yet */
    struct pl_vec
        undo; /* struct worker_set: recorded values of scalars that are changed now */
    uint64_t branch_scratch[WORKER_BRANCH_MAX];
    uint64_t bytes; /* of all memory that it needs so */

    uint64_t memory_offset;
    uint64_t memory_bytes; /* in hand */
    uint32_t launches;     /* that name it and are not over */
    uint64_t last_seq;     /* enqueued last */

    void *recorder;
    struct exec execs[WORKER_GRAPH_EXECS];
    uint64_t uses;
    struct pl_vec key; /* uint64_t: of the launch at hand */
};

static struct node *node_at(const struct worker_graph *graph, size_t i)
{
    return pl_vec_at(&graph->nodes, i);
}

/* ------------------------------------------------------------------------------------------------ life */

static struct worker_graph *graph_create(struct worker_core *core,
                                         const Plasmon__V1__GraphPart *part)
{
    struct worker_graph *graph = PL_NEW(struct worker_graph);

    if (graph == NULL || pl_map_set(&core->graphs, part->id, graph) != PLASMON_OK) {
        pl_free(graph);
        return NULL;
    }
    graph->id            = part->id;
    graph->operand_count = part->operands;
    graph->branch_count  = part->branches;
    graph->temp_bytes    = part->bytes;
    graph->nodes         = PL_VEC_INIT(struct node);
    graph->frames        = PL_VEC_INIT(struct pl_box);
    graph->undo          = PL_VEC_INIT(struct worker_set);
    graph->key           = PL_VEC_INIT(uint64_t);
    for (size_t i = 0; i < WORKER_GRAPH_EXECS; i++) {
        graph->execs[i].key = PL_VEC_INIT(uint64_t);
    }
    return graph;
}

static void execs_drop(struct worker_core *core, struct worker_graph *graph)
{
    for (size_t i = 0; i < WORKER_GRAPH_EXECS; i++) {
        if (graph->execs[i].exec != NULL) {
            core->config.ops->record_drop(core->config.user, NULL, graph->execs[i].exec);
            graph->execs[i].exec = NULL;
        }
    }
}

/* No launch of it is enqueued and not done. */
static void graph_destroy(struct worker_core *core, struct worker_graph *graph)
{
    assert(graph->launches == 0);
    execs_drop(core, graph);
    if (graph->recorder != NULL) {
        core->config.ops->record_drop(core->config.user, graph->recorder, NULL);
    }
    if (graph->memory_bytes != 0) {
        store_arena_free(core->arena, graph->memory_offset);
        core->freed_count++;
    }
    for (size_t i = 0; i < graph->nodes.count; i++) {
        worker_launch_destroy(core, node_at(graph, i)->launch);
        pl_free(node_at(graph, i)->after);
    }
    for (size_t i = 0; i < WORKER_GRAPH_EXECS; i++) {
        pl_vec_finish(&graph->execs[i].key);
    }
    pl_vec_finish(&graph->nodes);
    pl_vec_finish(&graph->frames);
    pl_vec_finish(&graph->undo);
    pl_vec_finish(&graph->key);
    pl_free(graph);
}

void worker_graph_free(struct worker_core *core, uint64_t id)
{
    struct worker_graph *graph = pl_map_remove(&core->graphs, id);

    if (graph == NULL) {
        return; /* told before a restart */
    }
    if (graph->launches == 0) {
        graph_destroy(core, graph);
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
            set->position >= node_at(graph, set->node)->launch->scalar_count) {
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
    }
}

uint64_t worker_graph_last(const struct worker_graph *graph)
{
    return graph->last_seq;
}

/* ------------------------------------------------------------------------------------------------ definition */

static plasmon_status_t node_take(struct worker_core *core, struct worker_graph *graph,
                                  const Plasmon__V1__GraphNode *message, struct pl_err *err)
{
    struct node node        = {.branch = message->branch};
    struct node *place      = pl_vec_push(&graph->nodes);
    plasmon_status_t status = PLASMON_ENOMEM;

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
        struct node *before = node_at(graph, message->after[i]);

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

/* ------------------------------------------------------------------------------------------------ binding */

/* Node operands to the frames of the launch's operands. Their places come later. */
static plasmon_status_t node_bind(struct node *node, const struct worker_launch *launch,
                                  struct pl_err *err)
{
    for (uint32_t i = 0; i < node->launch->operand_count; i++) {
        struct worker_operand *operand = &node->launch->operands[i];
        const struct worker_operand *from;
        struct pl_box hull;

        if (operand->graph_operand == 0) {
            continue;
        }
        from = &launch->operands[operand->graph_operand - 1];
        hull = pl_view_hull(&operand->view);
        if (operand->arg.dtype != from->arg.dtype ||
            operand->view.ndim != from->frame.ndim ||
            !pl_box_contains(&from->frame, &hull)) {
            return pl_err_set(err, PLASMON_EINTERNAL,
                              "argument %u does not lie in operand %u of the launch", i,
                              operand->graph_operand - 1);
        }
        operand->frame = from->frame;
        {
            int64_t view[3 * PL_DIM_MAX];
            size_t n = wire_view_put(&operand->view, view);

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
    graph->bytes = pl_round_up(graph->temp_bytes, 256) + 256; /* never 0: bound */
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
        struct node *node       = node_at(graph, i);
        struct pl_err cause     = {.status = PLASMON_OK};
        uint64_t scratch        = 0;
        plasmon_status_t status = node_bind(node, launch, &cause);

        if (status == PLASMON_OK) {
            status = worker_run_check(core, node->launch, &scratch, &cause);
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

        node_at(graph, old->node)->launch->scalars[old->position] = old->value;
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
        struct worker_launch *node   = node_at(graph, set->node)->launch;
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
        struct node *node   = node_at(graph, launch->set[i].node);
        struct pl_err cause = {.status = PLASMON_OK};
        uint64_t scratch    = 0;

        status = worker_run_check(core, node->launch, &scratch, &cause);
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

/* ------------------------------------------------------------------------------------------------ going */

static bool key_push(struct pl_vec *key, uint64_t number)
{
    uint64_t *place = pl_vec_push(key);

    if (place != NULL) {
        *place = number;
    }
    return place != NULL;
}

/* All that a recording has in it: where operands lie and how, the graph's memory, changed scalars. */
static plasmon_status_t key_make(struct worker_graph *graph,
                                 const struct worker_launch *launch)
{
    struct pl_vec *key = &graph->key;
    bool ok;

    pl_vec_clear(key);
    ok = key_push(key, graph->memory_offset) && key_push(key, graph->bytes);
    for (uint32_t i = 0; ok && i < launch->operand_count; i++) {
        const struct worker_operand *operand = &launch->operands[i];

        ok = key_push(key, operand->offset);
        for (uint32_t d = 0; ok && d < operand->frame.ndim; d++) {
            ok = key_push(key, (uint64_t)operand->frame.start[d]) &&
                 key_push(key, (uint64_t)operand->frame.count[d]);
        }
    }
    for (uint32_t i = 0; ok && i < launch->set_count; i++) {
        ok = key_push(key, (uint64_t)launch->set[i].node << 32 | launch->set[i].position) &&
             key_push(key, launch->set[i].value.bits);
    }
    return ok ? PLASMON_OK : PLASMON_ENOMEM;
}

static bool keys_equal(const struct pl_vec *a, const struct pl_vec *b)
{
    return a->count == b->count &&
           (a->count == 0 || memcmp(a->items, b->items, a->count * sizeof(uint64_t)) == 0);
}

static struct exec *exec_find(struct worker_graph *graph)
{
    for (size_t i = 0; i < WORKER_GRAPH_EXECS; i++) {
        if (graph->execs[i].exec != NULL && keys_equal(&graph->execs[i].key, &graph->key)) {
            return &graph->execs[i];
        }
    }
    return NULL;
}

/* A free place, or what was used longest ago. */
static struct exec *exec_victim(struct worker_graph *graph)
{
    struct exec *victim = &graph->execs[0];

    for (size_t i = 1; i < WORKER_GRAPH_EXECS; i++) {
        if (victim->exec == NULL) {
            return victim;
        }
        if (graph->execs[i].exec == NULL || graph->execs[i].used < victim->used) {
            victim = &graph->execs[i];
        }
    }
    return victim;
}

/* Each node's operands, scratch and tag as this launch has them. */
static void places_set(struct worker_graph *graph, const struct worker_launch *launch)
{
    uint64_t scratch[WORKER_BRANCH_MAX];
    uint64_t at = graph->memory_offset + pl_round_up(graph->temp_bytes, 256);

    for (uint32_t b = 0; b < graph->branch_count; b++) {
        scratch[b] = at;
        at += graph->branch_scratch[b];
    }
    for (size_t i = 0; i < graph->nodes.count; i++) {
        const struct node *node  = node_at(graph, i);
        struct worker_launch *to = node->launch;

        to->seq            = launch->seq;
        to->scratch_offset = scratch[node->branch];
        to->scratch_bytes  = graph->branch_scratch[node->branch];
        for (uint32_t k = 0; k < to->operand_count; k++) {
            struct worker_operand *operand = &to->operands[k];

            operand->offset = operand->graph_operand != 0
                                  ? launch->operands[operand->graph_operand - 1].offset
                                  : graph->memory_offset + operand->graph_offset;
        }
    }
}

static plasmon_status_t node_enqueue(struct worker_core *core, struct worker_graph *graph,
                                     size_t number, uint32_t stream, struct pl_err *err)
{
    struct worker_launch *node = node_at(graph, number)->launch;
    struct pl_err cause        = {.status = PLASMON_OK};
    plasmon_status_t status;

    if (node->function_id == core->noop_id && node->operand_count == 0) {
        return PLASMON_OK;
    }
    status = worker_run_enqueue(core, node, stream, &cause);
    return status == PLASMON_OK
               ? PLASMON_OK
               : pl_err_set(err, status, "recorded call %zu (%s): %s", number,
                            node->function->name,
                            cause.text[0] != '\0' ? cause.text : pl_status_text(status));
}

static plasmon_status_t nodes_enqueue(struct worker_core *core, struct worker_graph *graph,
                                      uint32_t stream, struct pl_err *err)
{
    plasmon_status_t status = PLASMON_OK;

    for (size_t i = 0; status == PLASMON_OK && i < graph->nodes.count; i++) {
        status = node_enqueue(core, graph, i, stream, err);
    }
    return status;
}

static plasmon_status_t nodes_record(struct worker_core *core, struct worker_graph *graph,
                                     struct pl_err *err)
{
    const struct worker_ops *ops = core->config.ops;
    void *user                   = core->config.user;
    plasmon_status_t status      = PLASMON_OK;

    for (size_t i = 0; status == PLASMON_OK && i < graph->nodes.count; i++) {
        const struct node *node = node_at(graph, i);

        for (uint32_t k = 0; status == PLASMON_OK && k < node->after_count; k++) {
            status = ops->record_after(user, node->branch,
                                       node_at(graph, node->after[k])->mark - 1);
        }
        if (status == PLASMON_OK) {
            status = node_enqueue(core, graph, i, WORKER_BRANCH + node->branch, err);
        }
        if (status == PLASMON_OK && node->mark != 0) {
            status = ops->record_mark(user, node->branch, node->mark - 1);
        }
    }
    return status;
}

/* Into the exec that was used longest ago, which becomes the one of this key. */
static plasmon_status_t record(struct worker_core *core, struct worker_graph *graph,
                               struct exec **out_exec, struct pl_err *err)
{
    const struct worker_ops *ops = core->config.ops;
    struct exec *exec            = exec_victim(graph);
    plasmon_status_t status, ended;
    uint64_t *key;

    status =
        ops->record_begin(core->config.user, &graph->recorder, graph->branch_count, err);
    if (status != PLASMON_OK) {
        return status;
    }
    status = nodes_record(core, graph, err);
    ended  = ops->record_end(core->config.user, status == PLASMON_OK, &exec->exec,
                            status == PLASMON_OK ? err : NULL);
    status = status == PLASMON_OK ? ended : status;
    pl_vec_clear(&exec->key);
    if (status != PLASMON_OK) {
        return status;
    }
    key = pl_vec_push_n(&exec->key, graph->key.count);
    if (key == NULL) {
        return PLASMON_ENOMEM;
    }
    memcpy(key, graph->key.items, graph->key.count * sizeof(uint64_t));
    *out_exec = exec;
    return PLASMON_OK;
}

static plasmon_status_t enqueue_one_by_one(struct worker_core *core,
                                           struct worker_graph *graph, uint32_t stream,
                                           const struct pl_err *why, struct pl_err *err)
{
    plasmon_status_t status = nodes_enqueue(core, graph, stream, err);

    if (status == PLASMON_OK && !graph->one_by_one) {
        graph->one_by_one = true;
        if (why != NULL) {
            pl_info("worker",
                    "graph %llu is launched node by node, for it cannot be recorded: %s",
                    (unsigned long long)graph->id, why->text);
        }
    }
    return status;
}

plasmon_status_t worker_graph_enqueue(struct worker_core *core,
                                      struct worker_launch *launch, uint32_t stream,
                                      struct pl_err *err)
{
    const struct worker_ops *ops = core->config.ops;
    struct worker_graph *graph   = launch->graph;
    struct pl_err why            = {.status = PLASMON_OK};
    struct exec *exec            = NULL;

    graph->last_seq = launch->seq;
    if (key_make(graph, launch) != PLASMON_OK) {
        return pl_err_set(err, PLASMON_ENOMEM, "no memory for the key of a graph");
    }
    if (!graph->one_by_one && ops->record_begin != NULL) {
        exec = exec_find(graph);
        if (exec == NULL) {
            places_set(graph, launch);
            if (record(core, graph, &exec, &why) != PLASMON_OK) {
                return enqueue_one_by_one(core, graph, stream, &why, err);
            }
        }
        exec->used = ++graph->uses;
        return ops->replay(core->config.user, stream, exec->exec, launch->seq);
    }
    places_set(graph, launch);
    return enqueue_one_by_one(core, graph, stream, NULL, err);
}
