/*
 * Recordings of a graph, and putting one into a stream.
 *
 * A LAUNCH COSTS what its operands cost, not its nodes: a look at whether its operands have the
 * frames and places, and its scalars the values, of something that was recorded before; then one
 * call of the device. Up to WORKER_GRAPH_EXECS recordings are kept, so that a program which takes
 * turns with its buffers records each turn once.
 *
 * WHAT DIFFERS IS CHANGED, NOT RECORDED. The calls that have other scalars or arrays than the
 * launch wants are put in the place of the recorded ones. A program that sets a scalar at each
 * launch costs what that scalar's calls cost. A recording costs about as much as changing each of
 * its nodes CHANGE_WORTH times, and whether a launch like this one comes again nobody knows; so
 * when more than a quarter of the nodes differ, that is changed until the changes have cost as much
 * as one more recording, which is made then, while there is room: at most twice the cost of the
 * better choice. When there is no room, the recording that was used longest ago is changed, or
 * recorded anew in place where the device cannot change it.
 *
 * MEMORY AGAIN. What is made for a graph (a replica that is brought to it, what it writes) is put
 * where it was when that was recorded, if the memory is free: then nothing differs. It is not kept
 * free for it.
 *
 * WHAT CANNOT BE RECORDED (the device or a library refuses) is enqueued node by node, in order:
 * slower, and the same. A SINGLE CALL of a client's function is never recorded: it is one call of
 * the driver either way, and this one takes other addresses as they come.
 */
#include "worker/graph_int.h"

#include "base/alloc.h"
#include "base/log.h"

#include <string.h>

/* of the nodes: so many times fewer are changed whenever they differ */
#define CHANGE_SHARE 4u
#define CHANGE_WORTH 8u

void worker_graph_execs_init(struct worker_graph *graph)
{
    for (size_t i = 0; i < WORKER_GRAPH_EXECS; i++) {
        graph->execs[i].places = PL_VEC_INIT(struct graph_place);
        graph->execs[i].set    = PL_VEC_INIT(struct worker_set);
    }
}

void worker_graph_execs_finish(struct worker_core *core, struct worker_graph *graph)
{
    for (size_t i = 0; i < WORKER_GRAPH_EXECS; i++) {
        struct graph_exec *exec = &graph->execs[i];

        if (exec->exec != NULL) {
            core->config.ops->record_drop(core->config.user, NULL, exec->exec);
        }
        pl_vec_finish(&exec->places);
        pl_vec_finish(&exec->set);
    }
    if (graph->recorder != NULL) {
        core->config.ops->record_drop(core->config.user, graph->recorder, NULL);
    }
}

/* ------------------------------------------------------------- what it was recorded for */

static bool place_equal(const struct graph_exec *exec, const struct worker_launch *launch,
                        uint32_t operand)
{
    const struct graph_place *place = pl_vec_at(&exec->places, operand);

    return place->offset == launch->operands[operand].offset &&
           pl_box_equal(&place->frame, &launch->operands[operand].frame);
}

static bool set_equal(const struct worker_set *a, const struct worker_set *b)
{
    return a->node == b->node && a->position == b->position &&
           a->value.bits == b->value.bits;
}

static const struct worker_set *exec_set(const struct graph_exec *exec, size_t i)
{
    return pl_vec_at(&exec->set, i);
}

/* It is right, and uses the graph's memory as it is now. */
static bool exec_usable(const struct worker_graph *graph, const struct graph_exec *exec)
{
    return exec->exec != NULL && exec->right &&
           exec->memory_offset == graph->memory_offset && exec->bytes == graph->bytes;
}

static bool exec_fits(const struct worker_graph *graph, const struct graph_exec *exec,
                      const struct worker_launch *launch)
{
    if (!exec_usable(graph, exec) || exec->set.count != launch->set_count) {
        return false;
    }
    for (uint32_t i = 0; i < launch->operand_count; i++) {
        if (!place_equal(exec, launch, i)) {
            return false;
        }
    }
    for (uint32_t i = 0; i < launch->set_count; i++) {
        if (!set_equal(exec_set(exec, i), &launch->set[i])) {
            return false;
        }
    }
    return true;
}

/* Not right until this is done. */
static plasmon_status_t exec_describe(const struct worker_graph *graph,
                                      struct graph_exec *exec,
                                      const struct worker_launch *launch)
{
    struct graph_place *places;
    struct worker_set *set;

    exec->right = false;
    pl_vec_clear(&exec->places);
    pl_vec_clear(&exec->set);
    places = launch->operand_count == 0
                 ? NULL
                 : pl_vec_push_n(&exec->places, launch->operand_count);
    set    = launch->set_count == 0 ? NULL : pl_vec_push_n(&exec->set, launch->set_count);
    if ((places == NULL && launch->operand_count != 0) ||
        (set == NULL && launch->set_count != 0)) {
        return PLASMON_ENOMEM;
    }
    for (uint32_t i = 0; i < launch->operand_count; i++) {
        places[i] = (struct graph_place){.offset = launch->operands[i].offset,
                                         .frame  = launch->operands[i].frame};
    }
    for (uint32_t i = 0; i < launch->set_count; i++) {
        set[i] = launch->set[i];
    }
    exec->memory_offset = graph->memory_offset;
    exec->bytes         = graph->bytes;
    exec->right         = true;
    return PLASMON_OK;
}

/* Recordings, the one that was launched last first; NULL: no more. */
static const struct graph_exec *exec_before(const struct worker_graph *graph, uint64_t used)
{
    const struct graph_exec *found = NULL;

    for (size_t i = 0; i < WORKER_GRAPH_EXECS; i++) {
        const struct graph_exec *exec = &graph->execs[i];

        if (exec_usable(graph, exec) && exec->used < used &&
            (found == NULL || exec->used > found->used)) {
            found = exec;
        }
    }
    return found;
}

/* Launches behind one that makes a buffer, in which to look for the graph that it is made for. */
#define READER_TRIES 32u

/* The graph's launch that uses the operand: this one, or the first one behind it. */
static const struct worker_launch *reader_of(const struct worker_launch *launch,
                                             const struct worker_operand *operand,
                                             uint32_t *out_operand)
{
    for (uint32_t i = 0; launch != NULL && launch->graph == NULL && i < READER_TRIES; i++) {
        launch = launch->next;
    }
    for (uint32_t i = 0;
         launch != NULL && launch->graph != NULL && i < launch->operand_count; i++) {
        if (launch->operands[i].slot == operand->slot &&
            launch->operands[i].generation == operand->generation) {
            *out_operand = i;
            return launch;
        }
    }
    return NULL;
}

bool worker_graph_memory_again(struct worker_core *core, const struct worker_launch *launch,
                               const struct worker_operand *operand, uint64_t *out_offset)
{
    const struct worker_launch *reader;
    const struct graph_exec *exec;
    uint32_t number;

    if (core->graph_count == 0) {
        return false;
    }
    reader = reader_of(launch, operand, &number);
    if (reader == NULL) {
        return false;
    }
    exec = exec_before(reader->graph, UINT64_MAX);
    for (; exec != NULL; exec = exec_before(reader->graph, exec->used)) {
        const struct graph_place *place =
            number < exec->places.count ? pl_vec_at(&exec->places, number) : NULL;

        if (place != NULL && pl_box_equal(&place->frame, &operand->frame) &&
            store_arena_take(core->arena, place->offset, operand->bytes) == PLASMON_OK) {
            *out_offset = place->offset;
            return true;
        }
    }
    return false;
}

/* ------------------------------------------------------------------------- what differs */

static bool operands_differ(const struct worker_launch *node, const struct graph_exec *exec,
                            const struct worker_launch *launch)
{
    for (uint32_t k = 0; k < node->operand_count; k++) {
        uint32_t operand = node->node_operands[k].operand;

        if (operand != 0 && !place_equal(exec, launch, operand - 1)) {
            return true;
        }
    }
    return false;
}

/* Scalars that either sets: nearly always they set the same ones, in the same order. Too many do no harm. */
static void scalars_mark(struct worker_graph *graph, const struct graph_exec *exec,
                         const struct worker_launch *launch)
{
    size_t count = pl_max_u64(exec->set.count, launch->set_count);

    for (size_t i = 0; i < count; i++) {
        bool in_exec = i < exec->set.count, in_launch = i < launch->set_count;

        if (in_exec && in_launch && set_equal(exec_set(exec, i), &launch->set[i])) {
            continue;
        }
        if (in_exec) {
            graph_node_at(graph, exec_set(exec, i)->node)->differs = true;
        }
        if (in_launch) {
            graph_node_at(graph, launch->set[i].node)->differs = true;
        }
    }
}

/* Marks the nodes of which the exec has something else than the launch wants. */
static size_t differences_mark(struct worker_graph *graph, const struct graph_exec *exec,
                               const struct worker_launch *launch)
{
    size_t count = 0;

    for (size_t i = 0; i < graph->nodes.count; i++) {
        struct graph_node *node = graph_node_at(graph, i);

        node->differs = operands_differ(node->launch, exec, launch);
    }
    scalars_mark(graph, exec, launch);
    for (size_t i = 0; i < graph->nodes.count; i++) {
        count += graph_node_at(graph, i)->differs;
    }
    return count;
}

/* -------------------------------------------------------------------------------- nodes */

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
        const struct graph_node *node = graph_node_at(graph, i);
        struct worker_launch *to      = node->launch;

        to->seq            = launch->seq;
        to->scratch_offset = scratch[node->branch];
        to->scratch_bytes  = graph->branch_scratch[node->branch];
        for (uint32_t k = 0; k < to->operand_count; k++) {
            const struct worker_node_operand *shows = &to->node_operands[k];

            to->operands[k].offset = shows->operand != 0
                                         ? launch->operands[shows->operand - 1].offset
                                         : graph->memory_offset + shows->offset;
        }
    }
}

static plasmon_status_t node_enqueue(struct worker_core *core, struct worker_graph *graph,
                                     size_t number, uint32_t stream, struct pl_err *err)
{
    struct worker_launch *node = graph_node_at(graph, number)->launch;
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

/* As a part of what is being recorded, or changed. */
static plasmon_status_t node_record(struct worker_core *core, struct worker_graph *graph,
                                    size_t number, struct pl_err *err)
{
    uint32_t branch = graph_node_at(graph, number)->branch;
    plasmon_status_t status =
        core->config.ops->record_item(core->config.user, (uint32_t)number);

    return status == PLASMON_OK
               ? node_enqueue(core, graph, number, WORKER_BRANCH + branch, err)
               : status;
}

/* ---------------------------------------------------------------------------- recording */

static plasmon_status_t nodes_record(struct worker_core *core, struct worker_graph *graph,
                                     struct pl_err *err)
{
    const struct worker_ops *ops = core->config.ops;
    void *user                   = core->config.user;
    plasmon_status_t status      = PLASMON_OK;

    for (size_t i = 0; status == PLASMON_OK && i < graph->nodes.count; i++) {
        const struct graph_node *node = graph_node_at(graph, i);

        for (uint32_t k = 0; status == PLASMON_OK && k < node->after_count; k++) {
            status = ops->record_after(user, node->branch,
                                       graph_node_at(graph, node->after[k])->mark - 1);
        }
        if (status == PLASMON_OK) {
            status = node_record(core, graph, i, err);
        }
        if (status == PLASMON_OK && node->mark != 0) {
            status = ops->record_mark(user, node->branch, node->mark - 1);
        }
    }
    return status;
}

static plasmon_status_t record(struct worker_core *core, struct worker_graph *graph,
                               const struct worker_launch *launch, struct graph_exec *exec,
                               struct pl_err *err)
{
    const struct worker_ops *ops = core->config.ops;
    plasmon_status_t status, ended;

    status = ops->record_begin(core->config.user, &graph->recorder, graph->branch_count,
                               graph->memory_offset + graph->bytes - WORKER_GRAPH_TAG_BYTES,
                               err);
    if (status != PLASMON_OK) {
        return status;
    }
    exec->right   = false;
    exec->changed = 0;
    status        = nodes_record(core, graph, err);
    ended         = ops->record_end(core->config.user, status == PLASMON_OK, &exec->exec,
                            status == PLASMON_OK ? err : NULL);
    status        = status == PLASMON_OK ? ended : status;
    return status == PLASMON_OK ? exec_describe(graph, exec, launch) : status;
}

/* The marked nodes alone. Not OK: the exec is to be recorded anew; it is no failure of the launch. */
static plasmon_status_t change(struct worker_core *core, struct worker_graph *graph,
                               const struct worker_launch *launch, struct graph_exec *exec)
{
    const struct worker_ops *ops = core->config.ops;
    struct pl_err why            = {.status = PLASMON_OK};
    plasmon_status_t status =
        ops->change_begin(core->config.user, graph->recorder, exec->exec, &why);
    plasmon_status_t ended;

    if (status != PLASMON_OK) {
        exec->whole = true;
        return status;
    }
    exec->right = false;
    for (size_t i = 0; status == PLASMON_OK && i < graph->nodes.count; i++) {
        if (graph_node_at(graph, i)->differs) {
            exec->changed++;
            status = node_record(core, graph, i, &why);
        }
    }
    ended  = ops->change_end(core->config.user);
    status = status == PLASMON_OK ? ended : status;
    if (status == PLASMON_OK) {
        return exec_describe(graph, exec, launch);
    }
    exec->whole = true;
    pl_debug("worker", "graph %llu is recorded anew: %s", (unsigned long long)graph->id,
             why.text[0] != '\0' ? why.text : pl_status_text(status));
    return status;
}

/* -------------------------------------------------------------------------------- which */

static struct graph_exec *exec_find(struct worker_graph *graph,
                                    const struct worker_launch *launch)
{
    for (size_t i = 0; i < WORKER_GRAPH_EXECS; i++) {
        if (exec_fits(graph, &graph->execs[i], launch)) {
            return &graph->execs[i];
        }
    }
    return NULL;
}

/* A free place, or what was used longest ago. */
static struct graph_exec *exec_oldest(struct worker_graph *graph)
{
    struct graph_exec *oldest = &graph->execs[0];

    for (size_t i = 1; i < WORKER_GRAPH_EXECS; i++) {
        if (oldest->exec == NULL) {
            return oldest;
        }
        if (graph->execs[i].exec == NULL || graph->execs[i].used < oldest->used) {
            oldest = &graph->execs[i];
        }
    }
    return oldest;
}

/* The one with the fewest differences; NULL: none can be changed. */
static struct graph_exec *exec_nearest(struct worker_graph *graph,
                                       const struct worker_launch *launch,
                                       size_t *out_differences)
{
    struct graph_exec *nearest = NULL;

    for (size_t i = 0; i < WORKER_GRAPH_EXECS; i++) {
        struct graph_exec *exec = &graph->execs[i];
        size_t count;

        if (exec->whole || !exec_usable(graph, exec)) {
            continue;
        }
        count = differences_mark(graph, exec, launch);
        if (nearest == NULL || count < *out_differences) {
            nearest          = exec;
            *out_differences = count;
        }
    }
    return nearest;
}

/* Is it worth while to change this one, rather than to record into `oldest`? */
static bool change_pays(const struct worker_graph *graph, struct graph_exec *exec,
                        const struct graph_exec *oldest, size_t differences)
{
    if (differences * CHANGE_SHARE <= graph->nodes.count || exec == oldest) {
        return true;
    }
    if (oldest->exec == NULL &&
        exec->changed + differences > CHANGE_WORTH * graph->nodes.count) {
        exec->changed = 0; /* that is paid for; from here on as after a recording */
        return false;
    }
    return oldest->exec == NULL;
}

static plasmon_status_t exec_make(struct worker_core *core, struct worker_graph *graph,
                                  const struct worker_launch *launch,
                                  struct graph_exec **out_exec, struct pl_err *err)
{
    struct graph_exec *oldest  = exec_oldest(graph);
    size_t differences         = 0;
    struct graph_exec *nearest = exec_nearest(graph, launch, &differences);

    places_set(graph, launch);
    if (nearest != NULL && !change_pays(graph, nearest, oldest, differences)) {
        nearest = oldest->whole || !exec_usable(graph, oldest) ? NULL : oldest;
    }
    if (nearest != NULL) {
        (void)differences_mark(graph, nearest, launch);
        if (change(core, graph, launch, nearest) == PLASMON_OK) {
            *out_exec = nearest;
            return PLASMON_OK;
        }
        oldest = nearest->right ? oldest : nearest; /* what is spoiled is recorded anew */
    }
    *out_exec = oldest;
    return record(core, graph, launch, oldest, err);
}

/* -------------------------------------------------------------------------------- going */

static plasmon_status_t enqueue_one_by_one(struct worker_core *core,
                                           struct worker_graph *graph, uint32_t stream,
                                           const struct pl_err *why, struct pl_err *err)
{
    plasmon_status_t status = nodes_enqueue(core, graph, stream, err);

    if (status == PLASMON_OK) {
        graph->one_by_one = true;
        pl_info("worker",
                "graph %llu is launched node by node, for it cannot be recorded: %s",
                (unsigned long long)graph->id, why->text);
    }
    return status;
}

static bool is_recorded(const struct worker_core *core, const struct worker_graph *graph)
{
    bool single =
        graph->nodes.count == 1 && graph_node_at(graph, 0)->launch->function->defined;

    return !graph->one_by_one && !single && core->config.ops->record_begin != NULL;
}

bool worker_graph_records(const struct worker_core *core,
                          const struct worker_launch *launch)
{
    return launch->graph != NULL && is_recorded(core, launch->graph) &&
           exec_find(launch->graph, launch) == NULL;
}

uint64_t worker_graph_operations(const struct worker_core *core,
                                 const struct worker_graph *graph)
{
    uint64_t operations = 0;

    if (is_recorded(core, graph)) {
        return 1;
    }
    for (size_t i = 0; i < graph->nodes.count; i++) {
        operations += graph_node_at(graph, i)->launch->run_operations;
    }
    return operations;
}

plasmon_status_t worker_graph_enqueue(struct worker_core *core,
                                      struct worker_launch *launch, uint32_t stream,
                                      struct pl_err *err)
{
    const struct worker_ops *ops = core->config.ops;
    struct worker_graph *graph   = launch->graph;
    struct pl_err why            = {.status = PLASMON_OK};
    struct graph_exec *exec;

    graph->last_seq = launch->seq;
    if (!is_recorded(core, graph)) {
        places_set(graph, launch);
        return nodes_enqueue(core, graph, stream, err);
    }
    exec = exec_find(graph, launch);
    if (exec == NULL && exec_make(core, graph, launch, &exec, &why) != PLASMON_OK) {
        return enqueue_one_by_one(core, graph, stream, &why, err);
    }
    exec->used = ++graph->uses;
    return ops->replay(core->config.user, stream, exec->exec, launch->seq);
}
