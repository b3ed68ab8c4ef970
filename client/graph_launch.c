/*
 * Launching a recorded graph: which arrays take whose place, which scalars differ, and what the
 * launch will write.
 *
 * All of it is checked here against what was recorded, so that a wrong launch fails at the call.
 * For the client a launch is one task.
 */
#include "client/graph.h"

#include <string.h>

#include "base/alloc.h"

/* A launch while it is looked at. */
struct launch {
    struct plasmon_client *client;
    struct plasmon_graph *graph;
    struct root **bound; /* by index of graph->roots; NULL: no bindings */
    struct pl_vec wire;  /* struct frame_binding */
    struct pl_vec set;   /* struct frame_scalar */
};

static plasmon_status_t binding_root(struct launch *launch,
                                     const struct plasmon_graph_binding *binding,
                                     uint32_t number, struct graph_root **out_recorded,
                                     struct root **out_root)
{
    struct refs *refs = &launch->client->refs;
    struct pl_err err = {0};
    struct ref_slot *slot;
    plasmon_status_t status = refs_find(refs, binding->recorded, &slot, &err);

    if (status != PLASMON_OK) {
        return error_set(status, "bindings[%u].recorded: %s", number, err.text);
    }
    *out_recorded = graph_root_of(launch->graph, slot->root);
    if (*out_recorded == NULL) {
        return error_set(PLASMON_EGRAPH,
                         "bindings[%u].recorded: no recorded call uses this ref", number);
    }
    status = refs_find(refs, binding->ref, &slot, &err);
    if (status == PLASMON_OK && slot->root->is_task) {
        status = pl_err_set(&err, PLASMON_EINVAL, "the ref is a task's; it has no bytes");
    }
    if (status == PLASMON_OK) {
        status = graph_check_use(launch->client, slot->root, &err);
    }
    if (status == PLASMON_OK && slot->view != NULL) {
        status = pl_err_set(&err, PLASMON_EINVAL,
                            "the ref is a view: bind the array, or a snapshot of the view");
    }
    *out_root = slot->root;
    return status == PLASMON_OK
               ? PLASMON_OK
               : error_set(status, "bindings[%u].ref: %s", number, err.text);
}

static plasmon_status_t bind_one(struct launch *launch,
                                 const struct plasmon_graph_binding *binding,
                                 uint32_t number)
{
    struct graph_root *recorded = NULL;
    struct frame_binding *place;
    struct root *root = NULL;
    char have[128], want[128];
    plasmon_status_t status = binding_root(launch, binding, number, &recorded, &root);

    if (status != PLASMON_OK) {
        return status;
    }
    if (!pl_shape_equal(&root->shape, &recorded->root->shape)) {
        return error_set(root->shape.dtype != recorded->root->shape.dtype ? PLASMON_EDTYPE
                                                                          : PLASMON_ESHAPE,
                         "bindings[%u]: the ref is %s; %s was recorded, and a graph is "
                         "launched on what it was recorded for",
                         number, pl_shape_format(&root->shape, have),
                         pl_shape_format(&recorded->root->shape, want));
    }
    launch->bound[recorded - graph_root_at(launch->graph, 0)] = root;
    place                                                     = pl_vec_push(&launch->wire);
    if (place == NULL) {
        return error_set(PLASMON_ENOMEM, "out of host memory");
    }
    *place = (struct frame_binding){.recorded = recorded->root->id, .ref = root->id};
    return PLASMON_OK;
}

static struct root *root_now(const struct launch *launch, size_t i)
{
    struct root *bound = launch->bound != NULL ? launch->bound[i] : NULL;

    return bound != NULL ? bound : graph_root_at(launch->graph, i)->root;
}

/* Edges were recorded between arrays: two that become one, of which one is written, would lack some. */
static plasmon_status_t check_distinct(const struct launch *launch)
{
    plasmon_status_t status = PLASMON_OK;
    struct pl_map seen;

    pl_map_init(&seen);
    for (size_t i = 0; status == PLASMON_OK && i < launch->graph->roots.count; i++) {
        const struct root *root = root_now(launch, i);
        size_t other;

        if (root == NULL) {
            continue; /* a temporary */
        }
        other = (uintptr_t)pl_map_get(&seen, root->id);
        if (other == 0) {
            if (pl_map_set(&seen, root->id, (void *)(uintptr_t)(i + 1)) != PLASMON_OK) {
                status = error_set(PLASMON_ENOMEM, "out of host memory");
            }
            continue;
        }
        if (graph_root_at(launch->graph, i)->writes.count > 0 ||
            graph_root_at(launch->graph, other - 1)->writes.count > 0) {
            status = error_set(PLASMON_EGRAPH,
                               "two refs of the recording are bound to one array, and one "
                               "of them is written: record it so, or bind a snapshot");
        }
    }
    pl_map_finish(&seen);
    return status;
}

static plasmon_status_t bind_all(struct launch *launch,
                                 const struct plasmon_graph_binding *bindings,
                                 uint32_t count)
{
    plasmon_status_t status = PLASMON_OK;

    if (count == 0) {
        return PLASMON_OK;
    }
    if (bindings == NULL || count > WIRE_RANGES_MAX) {
        return error_set(PLASMON_EINVAL, "bindings is NULL, or has more than %u",
                         WIRE_RANGES_MAX);
    }
    launch->bound = PL_NEW_N(struct root *, launch->graph->roots.count + 1);
    if (launch->bound == NULL) {
        return error_set(PLASMON_ENOMEM, "out of host memory");
    }
    for (uint32_t i = 0; status == PLASMON_OK && i < count; i++) {
        status = bind_one(launch, &bindings[i], i);
    }
    return status == PLASMON_OK ? check_distinct(launch) : status;
}

static plasmon_status_t set_one(struct launch *launch, uint32_t number, uint32_t call,
                                const struct plasmon_graph_scalar *scalar)
{
    struct frame_scalar *place;

    const struct graph_call *recorded;

    if (call >= launch->graph->calls.count) {
        return error_set(PLASMON_EINVAL,
                         "scalars[%u]: there is no recorded call %u; the graph has %zu, "
                         "counted from 0",
                         number, call, launch->graph->calls.count);
    }
    recorded = graph_call_at(launch->graph, call);
    if (scalar->position >= recorded->scalar_count) {
        return error_set(
            PLASMON_EINVAL,
            "scalars[%u]: there is no scalar %u of recorded call %u (%s), which "
            "has %u, counted from 0",
            number, scalar->position, call, recorded->function->name,
            recorded->scalar_count);
    }
    place = launch->set.count < WIRE_RANGES_MAX ? pl_vec_push(&launch->set) : NULL;
    if (place == NULL) {
        return error_set(PLASMON_ELIMIT, "more than %u scalars, or no memory for them",
                         WIRE_RANGES_MAX);
    }
    *place = (struct frame_scalar){.task = call, .position = scalar->position};
    memcpy(&place->bits, &scalar->value, sizeof(place->bits));
    return PLASMON_OK;
}

static plasmon_status_t set_labelled(struct launch *launch, uint32_t number,
                                     const struct plasmon_graph_scalar *scalar)
{
    plasmon_status_t status = PLASMON_OK;
    bool found              = false;

    for (uint32_t i = 0; status == PLASMON_OK && i < launch->graph->calls.count; i++) {
        const char *label = graph_call_at(launch->graph, i)->label;

        if (label != NULL && strcmp(label, scalar->label) == 0) {
            found  = true;
            status = set_one(launch, number, i, scalar);
        }
    }
    return status == PLASMON_OK && !found
               ? error_set(
                     PLASMON_EINVAL,
                     "scalars[%u]: no recorded call has the label \"%.64s\": give it to "
                     "the call when it is recorded, or its number here",
                     number, scalar->label)
               : status;
}

/* Would the calls still be right? Checked with all changes of a call in place, then undone. */
static plasmon_status_t set_check(struct launch *launch)
{
    plasmon_status_t status = PLASMON_OK;
    struct pl_err err       = {0};
    uint64_t old;

    for (size_t i = 0; i < launch->set.count; i++) {
        struct frame_scalar *set = pl_vec_at(&launch->set, i);
        union kernel_scalar *scalar =
            &graph_call_at(launch->graph, set->task)->scalars[set->position];

        old          = scalar->bits;
        scalar->bits = set->bits;
        set->bits    = old; /* swapped, until below */
    }
    for (size_t i = 0; status == PLASMON_OK && i < launch->set.count; i++) {
        const struct frame_scalar *set = pl_vec_at(&launch->set, i);
        struct graph_call *call        = graph_call_at(launch->graph, set->task);

        status = kernel_check(call->function, call->shapes, call->arg_count, call->scalars,
                              call->scalar_count, &err);
        if (status != PLASMON_OK) {
            (void)error_set(status, "recorded call %u with other scalars: %s", set->task,
                            err.text);
        }
    }
    for (size_t i = launch->set.count; i-- > 0;) {
        struct frame_scalar *set = pl_vec_at(&launch->set, i);
        union kernel_scalar *scalar =
            &graph_call_at(launch->graph, set->task)->scalars[set->position];

        old          = scalar->bits;
        scalar->bits = set->bits;
        set->bits    = old;
    }
    return status;
}

static plasmon_status_t set_all(struct launch *launch,
                                const struct plasmon_graph_scalar *scalars, uint32_t count)
{
    plasmon_status_t status = PLASMON_OK;

    if (count > 0 && scalars == NULL) {
        return error_set(PLASMON_EINVAL, "scalars is NULL");
    }
    for (uint32_t i = 0; status == PLASMON_OK && i < count; i++) {
        status = scalars[i].label != NULL
                     ? set_labelled(launch, i, &scalars[i])
                     : set_one(launch, i, scalars[i].call, &scalars[i]);
    }
    return status == PLASMON_OK && count > 0 ? set_check(launch) : status;
}

/* The task, and what it writes. */
static plasmon_status_t launch_make(struct launch *launch, uint64_t id,
                                    struct task **out_task)
{
    struct task_text *what  = launch->graph->what;
    struct task *task       = task_create(&launch->client->refs, id, what->text, NULL);
    plasmon_status_t status = task == NULL ? PLASMON_ENOMEM : PLASMON_OK;

    if (task != NULL) {
        task->text = task_text_hold(what);
    }
    for (size_t i = 0; status == PLASMON_OK && i < launch->graph->roots.count; i++) {
        const struct graph_root *root = graph_root_at(launch->graph, i);

        for (size_t k = 0; status == PLASMON_OK && k < root->writes.count; k++) {
            const struct graph_write *write = pl_vec_at(&root->writes, k);

            if (root_now(launch, i) != NULL) {
                status = task_writes(task, root_now(launch, i),
                                     write->whole ? NULL : &write->box, write->effect);
            }
        }
    }
    if (status != PLASMON_OK && task != NULL) {
        task_abandon(&launch->client->refs, task);
        task = NULL;
    }
    *out_task = task;
    return status;
}

static plasmon_status_t launch_send(struct launch *launch, struct plasmon_ref **out_task)
{
    struct plasmon_client *client = launch->client;
    struct frame_task wire        = {.id            = refs_draw_task(&client->refs),
                                     .kind          = PLASMON__V1__TASK_KIND__TASK_GRAPH_LAUNCH,
                                     .graph         = launch->graph->id,
                                     .bindings      = launch->wire.items,
                                     .binding_count = (uint32_t)launch->wire.count,
                                     .set           = launch->set.items,
                                     .set_count     = (uint32_t)launch->set.count,
                                     .submit_ns     = client->trace.on ? pl_realtime_ns() : 0};
    struct submit submit          = {.client = client};
    struct submit_arg future      = {0};
    plasmon_status_t status;

    pl_vec_clear(&client->scratch->refs);
    status = launch_make(launch, wire.id, &submit.task);
    if (status == PLASMON_OK && out_task != NULL) {
        status = submit_make_ref(&submit, &future, NULL);
        if (status == PLASMON_OK) {
            future.made->id = wire.id;
            status          = task_writes(submit.task, future.made, NULL, WRITE_ADDS);
        }
    }
    if (status == PLASMON_OK) {
        status = frame_add_task(&client->session.frame, &wire);
    }
    if (status != PLASMON_OK) {
        submit_undo_make(&submit);
        return error_set(status, "%s", pl_status_text(status));
    }
    task_commit(&client->refs, submit.task);
    client->session.tasks_sent++;
    session_kick_locked(client);
    if (out_task != NULL) {
        submit_hand_out(&submit, NULL, out_task);
    }
    return PLASMON_OK;
}

plasmon_status_t plasmon_graph_launch(struct plasmon_client *client,
                                      struct plasmon_graph *handle,
                                      const struct plasmon_graph_binding *bindings,
                                      uint32_t binding_count,
                                      const struct plasmon_graph_scalar *scalars,
                                      uint32_t scalar_count, struct plasmon_ref **out_task)
{
    struct launch launch    = {.client = client,
                               .wire   = PL_VEC_INIT(struct frame_binding),
                               .set    = PL_VEC_INIT(struct frame_scalar)};
    plasmon_status_t status = client_enter(client);

    if (status != PLASMON_OK) {
        return status;
    }
    pl_mutex_lock(&client->lock);
    status = session_room_locked(client, 1, FRAME_TASK);
    if (status == PLASMON_OK) {
        status = graph_find(client, handle, &launch.graph);
    }
    if (status == PLASMON_OK && !launch.graph->ended) {
        status =
            error_set(PLASMON_EGRAPH, "the graph is still being recorded: end it first");
    } else if (status == PLASMON_OK && graph_recording_locked(client) != NULL) {
        status = error_set(PLASMON_EGRAPH,
                           "this thread records: a launch cannot be a part of a graph");
    }
    if (status == PLASMON_OK) {
        status = bind_all(&launch, bindings, binding_count);
    }
    if (status == PLASMON_OK) {
        status = set_all(&launch, scalars, scalar_count);
    }
    if (status == PLASMON_OK) {
        status = launch_send(&launch, out_task);
    }
    pl_mutex_unlock(&client->lock);
    pl_vec_finish(&launch.wire);
    pl_vec_finish(&launch.set);
    pl_free(launch.bound);
    return status;
}
