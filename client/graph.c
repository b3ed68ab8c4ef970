/*
 * Recorded graphs: recording, and the end. graph_launch.c has the launches; see graph.h, docs/graphs.md.
 *
 * A recorded call goes to the head at once, as a task with the graph's number. Refs that it makes
 * exist here from then on, and have failed with EGRAPH until a launch writes them. The graph holds
 * a handle of every array that the recording names, so those live as long as the graph; when the
 * recording ends, an array made inside whose only handle is the graph's is a temporary.
 *
 * What a recording writes is kept as a list of boxes for each array; boxes that make one together
 * are one. An array with more than WRITES_MAX of them counts as written in their hull, which may
 * say "pending" for longer and never for shorter; but a failure from before a launch is not
 * forgotten then.
 *
 * An OUT argument overwrites its box, also where a call before it reads what was there: if that
 * failed the launch fails as a whole, and with it what it writes.
 */
#include "client/graph.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fault.h"
#include "base/log.h"

#define NEVER_LAUNCHED                                                                  \
    "the ref is made by a recorded graph that was released before it was launched, so " \
    "it will never have a value: record it again"
#define WRITES_MAX 64u
#define NAMED_MAX  6u /* functions, in an error */

/* --------------------------------------------------------------------------------- life */

plasmon_status_t graph_find(struct plasmon_client *client,
                            const struct plasmon_graph *handle,
                            struct plasmon_graph **out_graph)
{
    struct pl_list *at;

    pl_list_for_each(at, &client->graphs) {
        struct plasmon_graph *graph = pl_container_of(at, struct plasmon_graph, link);

        if (graph == handle) {
            *out_graph = graph;
            return PLASMON_OK;
        }
    }
    return error_set(PLASMON_EINVAL,
                     "no such graph: it was released, or is of another client");
}

static void call_free(struct graph_call *call)
{
    pl_free(call->label);
    pl_free(call->shapes);
    pl_free(call->scalars);
}

/* Its handles are gone. */
static void graph_free(struct plasmon_graph *graph)
{
    for (size_t i = 0; i < graph->calls.count; i++) {
        call_free(graph_call_at(graph, i));
    }
    for (size_t i = 0; i < graph->roots.count; i++) {
        pl_vec_finish(&graph_root_at(graph, i)->writes);
    }
    pl_list_remove(&graph->link);
    pl_vec_finish(&graph->calls);
    pl_vec_finish(&graph->roots);
    pl_map_finish(&graph->by_root);
    failure_release(graph->empty);
    task_text_release(graph->what);
    pl_free(graph);
}

void graphs_finish(struct plasmon_client *client)
{
    while (!pl_list_empty(&client->graphs)) {
        graph_free(pl_list_first(&client->graphs, struct plasmon_graph, link));
    }
}

struct plasmon_graph *graph_recording_locked(const struct plasmon_client *client)
{
    const struct pl_list *at;

    pl_list_for_each(at, &client->graphs) {
        struct plasmon_graph *graph =
            pl_container_of((struct pl_list *)(uintptr_t)at, struct plasmon_graph, link);

        if (!graph->ended && pthread_equal(graph->thread, pthread_self())) {
            return graph;
        }
    }
    return NULL;
}

plasmon_status_t graph_check_use(const struct plasmon_client *client,
                                 const struct root *root, struct pl_err *err)
{
    const struct plasmon_graph *graph;

    if (root->recording == 0) {
        return PLASMON_OK;
    }
    if (root->recording == ROOT_NEVER_RECORDED) {
        return pl_err_set(err, PLASMON_EGRAPH, "%s", NEVER_LAUNCHED);
    }
    graph = graph_recording_locked(client);
    if (graph != NULL && graph->id == root->recording) {
        return PLASMON_OK;
    }
    return pl_err_set(err, PLASMON_EGRAPH,
                      "the ref is made by a graph that is being recorded, so only "
                      "recorded calls can use it");
}

plasmon_status_t graph_check_content(const struct root *root, struct pl_err *err)
{
    if (root->recording == 0) {
        return PLASMON_OK;
    }
    return pl_err_set(err, PLASMON_EGRAPH, "%s",
                      root->recording == ROOT_NEVER_RECORDED
                          ? NEVER_LAUNCHED
                          : "the ref is made by a graph that is being recorded, so it "
                            "names no value yet: end the recording and launch it first");
}

static struct plasmon_graph *graph_create(struct plasmon_client *client)
{
    struct plasmon_graph *graph = PL_NEW(struct plasmon_graph);

    if (graph == NULL) {
        return NULL;
    }
    graph->id     = ++client->graph_last;
    graph->thread = pthread_self();
    graph->calls  = PL_VEC_INIT(struct graph_call);
    graph->roots  = PL_VEC_INIT(struct graph_root);
    graph->empty =
        failure_create(PLASMON_EGRAPH, 0,
                       "the ref is made by a recorded graph that was not launched yet: end "
                       "the recording and launch it first");
    pl_map_init(&graph->by_root);
    pl_list_init(&graph->link);
    pl_list_add_tail(&client->graphs, &graph->link);
    return graph;
}

plasmon_status_t plasmon_graph_begin(struct plasmon_client *client,
                                     struct plasmon_graph **out_graph)
{
    plasmon_status_t status = client_enter(client);

    if (status != PLASMON_OK) {
        return status;
    }
    if (out_graph == NULL) {
        return error_set(PLASMON_EINVAL, "out_graph is NULL");
    }
    pl_mutex_lock(&client->lock);
    if (client->session.state == SESSION_DEAD) {
        status = error_set(client->session.dead_status, "%s", client->session.dead_text);
    } else if (graph_recording_locked(client) != NULL) {
        status = error_set(PLASMON_EGRAPH,
                           "this thread records a graph already: end that one first");
    } else {
        *out_graph = graph_create(client);
        if (*out_graph == NULL) {
            status = error_set(PLASMON_ENOMEM, "out of host memory");
        }
    }
    pl_mutex_unlock(&client->lock);
    return status;
}

/* ---------------------------------------------------------------------------- recording */

/* Held from now on. */
static struct graph_root *root_add(struct plasmon_client *client,
                                   struct plasmon_graph *graph, struct root *root,
                                   bool inside)
{
    struct graph_root *place = pl_vec_push(&graph->roots);
    struct plasmon_ref *hold;

    if (place == NULL) {
        return NULL;
    }
    hold = refs_open(&client->refs, root, NULL);
    if (hold == NULL || pl_map_set(&graph->by_root, root->id,
                                   (void *)(uintptr_t)graph->roots.count) != PLASMON_OK) {
        pl_vec_pop(&graph->roots);
        return NULL; /* a handle that stays costs its root until the client ends */
    }
    *place = (struct graph_root){.root   = root,
                                 .hold   = hold,
                                 .inside = inside,
                                 .writes = PL_VEC_INIT(struct graph_write)};
    return place;
}

/*
 * Does what `a` says of its box say all of `b`, whichever came first? Only what overwrites forgets
 * what had failed.
 */
static bool write_covers(const struct graph_write *a, const struct graph_write *b)
{
    return (a->effect == WRITE_OVERWRITES || b->effect != WRITE_OVERWRITES) &&
           (a->whole || (!b->whole && pl_box_contains(&a->box, &b->box)));
}

static struct pl_box box_join(const struct pl_box *a, const struct pl_box *b)
{
    struct pl_box out = *a;

    for (uint32_t i = 0; i < a->ndim; i++) {
        int64_t end_a = a->start[i] + a->count[i], end_b = b->start[i] + b->count[i];

        out.start[i] = a->start[i] < b->start[i] ? a->start[i] : b->start[i];
        out.count[i] = (end_a > end_b ? end_a : end_b) - out.start[i];
    }
    return out;
}

/* Too many to tell apart: their hull, of which nothing is promised but that the launch adds to it. */
static void writes_join(struct pl_vec *writes)
{
    struct graph_write joined = *(struct graph_write *)pl_vec_at(writes, 0);

    for (size_t i = 1; i < writes->count; i++) {
        const struct graph_write *write = pl_vec_at(writes, i);

        joined.whole |= write->whole;
        if (!joined.whole) {
            joined.box = box_join(&joined.box, &write->box);
        }
    }
    joined.effect = WRITE_ADDS;
    pl_vec_clear(writes);
    *(struct graph_write *)pl_vec_push(writes) = joined; /* its memory is there */
}

/* Are all of the two together a box? Then that is *io_box. */
static bool box_unite(struct pl_box *io_box, const struct pl_box *other)
{
    struct pl_box joined = box_join(io_box, other);

    if (pl_box_elements(&joined) !=
        pl_box_elements(io_box) + pl_box_elements(other) - pl_box_common(io_box, other)) {
        return false;
    }
    *io_box = joined;
    return true;
}

/* Parts that are written side by side become one, as they come. */
static void write_unite(struct pl_vec *writes, struct graph_write *io_write)
{
    bool again = !io_write->whole;

    while (again) {
        again = false;
        for (size_t i = writes->count; i-- > 0 && !again;) {
            const struct graph_write *old = pl_vec_at(writes, i);

            if (!old->whole && old->effect == io_write->effect &&
                box_unite(&io_write->box, &old->box)) {
                pl_vec_remove_unordered(writes, i);
                again = true;
            }
        }
    }
}

static plasmon_status_t root_writes(struct graph_root *root, const struct submit_arg *arg,
                                    enum write_effect effect)
{
    struct graph_write write = {.whole = arg->whole, .effect = effect};
    struct graph_write *place;

    if (!arg->whole) {
        write.box = arg->hull;
    }
    for (size_t i = 0; i < root->writes.count; i++) {
        if (write_covers(pl_vec_at(&root->writes, i), &write)) {
            return PLASMON_OK;
        }
    }
    for (size_t i = root->writes.count; i-- > 0;) {
        const struct graph_write *old = pl_vec_at(&root->writes, i);

        if (write_covers(&write, old)) {
            pl_vec_remove_unordered(&root->writes, i);
        }
    }
    write_unite(&root->writes, &write);
    place = pl_vec_push(&root->writes);
    if (place == NULL) {
        return PLASMON_ENOMEM;
    }
    *place = write;
    if (root->writes.count > WRITES_MAX) {
        writes_join(&root->writes);
    }
    return PLASMON_OK;
}

static plasmon_status_t arg_note(struct plasmon_graph *graph, struct submit *submit,
                                 uint32_t index)
{
    const struct plasmon_arg *arg = &submit->call->args[index];
    const struct submit_arg *at   = &submit->args[index];
    struct root *root             = at->made != NULL ? at->made : at->slot->root;
    struct graph_root *known      = graph_root_of(graph, root);
    plasmon_status_t status       = PLASMON_OK;
    enum write_effect effect      = submit_effect_of(arg, at);

    if (known == NULL) {
        known = root_add(submit->client, graph, root, at->made != NULL);
    }
    if (known == NULL) {
        return PLASMON_ENOMEM;
    }
    if (at->made != NULL) {
        root->recording = graph->id;
        status          = root_begin_failed(root, graph->empty);
    }
    if (status == PLASMON_OK && submit_writes(arg->mode)) {
        status = root_writes(known, at, effect);
    }
    return status;
}

static plasmon_status_t call_note(struct plasmon_graph *graph, const struct submit *submit)
{
    const struct plasmon_call *from = submit->call;
    struct graph_call call          = {.function     = submit->function,
                                       .arg_count    = from->arg_count,
                                       .scalar_count = from->scalar_count};
    struct graph_call *place        = pl_vec_push(&graph->calls);

    call.shapes  = PL_NEW_N(struct kernel_arg_shape, from->arg_count + 1);
    call.scalars = PL_NEW_N(union kernel_scalar, from->scalar_count + 1);
    if (from->label != NULL) {
        call.label = pl_strdup(from->label);
    }
    if (place == NULL || call.shapes == NULL || call.scalars == NULL ||
        pl_fault_point("client.graph_call") ||
        (from->label != NULL && call.label == NULL)) {
        call_free(&call);
        if (place != NULL) {
            pl_vec_pop(&graph->calls);
        }
        return PLASMON_ENOMEM;
    }
    if (from->arg_count > 0) {
        memcpy(call.shapes, submit->shapes, from->arg_count * sizeof(*call.shapes));
    }
    memcpy(call.scalars, submit->scalars, from->scalar_count * sizeof(*call.scalars));
    for (uint32_t i = 0; i < from->arg_count; i++) {
        call.shapes[i].given = true;
    }
    *place = call;
    return PLASMON_OK;
}

static plasmon_status_t record(struct plasmon_graph *graph, struct submit *submit)
{
    struct session *session = &submit->client->session;
    struct frame_task task;
    plasmon_status_t status = PLASMON_OK;

    pl_vec_clear(&submit->client->scratch->refs);
    for (uint32_t i = 0; status == PLASMON_OK && i < submit->call->arg_count; i++) {
        if (submit_writes(submit->call->args[i].mode) && submit->args[i].slot == NULL) {
            status = submit_make_ref(submit, &submit->args[i], &submit->shapes[i].shape);
        }
    }
    submit->id = refs_draw_task(&submit->client->refs);
    for (uint32_t i = 0; status == PLASMON_OK && i < submit->call->arg_count; i++) {
        if (submit->call->args[i].mode != PLASMON_SCRATCH) {
            status = arg_note(graph, submit, i);
        }
    }
    if (status == PLASMON_OK) {
        status = call_note(graph, submit);
    }
    if (status == PLASMON_OK) {
        status = submit_frame(submit, &task);
    }
    if (status == PLASMON_OK) {
        task.graph = graph->id;
        status     = frame_add_task(&session->frame, &task);
    }
    return status;
}

plasmon_status_t graph_record_locked(struct plasmon_graph *graph, struct submit *submit,
                                     bool with_task_ref)
{
    plasmon_status_t status;

    if (with_task_ref) {
        return error_set(PLASMON_EINVAL,
                         "%s: out_task: a recorded call does not run; "
                         "plasmon_graph_launch() gives a ref to each launch",
                         submit->call->function);
    }
    if (graph->calls.count >= WIRE_GRAPH_NODES_MAX) {
        return error_set(PLASMON_ELIMIT, "a graph has at most %u calls",
                         WIRE_GRAPH_NODES_MAX);
    }
    status = record(graph, submit);
    if (status != PLASMON_OK) {
        /* What is noted of it stays: the head heard nothing, so such a graph must not be launched. */
        graph->torn = true;
        return error_set(status, "%s: %s: release the graph and record anew",
                         submit->call->function, pl_status_text(status));
    }
    submit->client->session.tasks_sent++;
    session_kick_locked(submit->client);
    return PLASMON_OK;
}

/* ---------------------------------------------------------------------------------- end */

/* The graph's own handle, without a word to the head. */
static void hold_drop(struct plasmon_client *client, struct graph_root *root)
{
    struct pl_err unused = {0};
    struct ref_slot *slot;
    uint64_t id;
    bool at_once;

    if (refs_find(&client->refs, root->hold, &slot, &unused) == PLASMON_OK) {
        (void)refs_close(&client->refs, root->hold, slot, &id, &at_once);
    }
    root->hold = NULL;
    root->root = NULL;
}

/* Has one before it the same function? */
static bool is_named(const struct plasmon_graph *graph, size_t call)
{
    for (size_t i = 0; i < call; i++) {
        if (graph_call_at(graph, i)->function == graph_call_at(graph, call)->function) {
            return true;
        }
    }
    return false;
}

/*
 * A launch is one task, of which nobody can tell which call it was that failed: so it says which
 * there are. The first few functions, each once.
 */
static struct task_text *graph_describe(const struct plasmon_graph *graph)
{
    struct task_text *what = PL_NEW(struct task_text);
    size_t room = sizeof(what->text), named = 0;
    int length;

    if (what == NULL) {
        return NULL;
    }
    what->held_count = 1;
    length           = snprintf(what->text, room, "graph of %zu call%s", graph->calls.count,
                      graph->calls.count == 1 ? "" : "s");
    for (size_t i = 0; i < graph->calls.count && named <= NAMED_MAX; i++) {
        const char *name = graph_call_at(graph, i)->function->name;

        if (is_named(graph, i)) {
            continue;
        }
        if (named == NAMED_MAX || (size_t)length + strlen(name) + sizeof(": , ..") > room) {
            name  = "..";
            named = NAMED_MAX;
        }
        length += snprintf(what->text + length, room - (size_t)length, "%s%s",
                           named == 0 ? ": " : ", ", name);
        named++;
    }
    return what;
}

/* Temporaries go; what is left of what was made inside is sent as the graph's outputs. */
static plasmon_status_t end_locked(struct plasmon_client *client,
                                   struct plasmon_graph *graph)
{
    struct pl_vec outputs  = PL_VEC_INIT(struct frame_arg);
    struct frame_task task = {.kind  = PLASMON__V1__TASK_KIND__TASK_GRAPH_END,
                              .graph = graph->id};
    plasmon_status_t status;

    for (size_t i = 0; i < graph->roots.count; i++) {
        struct graph_root *root = graph_root_at(graph, i);
        struct frame_arg *place;

        if (!root->inside || root->root == NULL) { /* let go by an end that failed */
            continue;
        }
        if (root->root->handle_count == 1) {
            (void)pl_map_remove(&graph->by_root, root->root->id);
            hold_drop(client, root);
            continue;
        }
        place = pl_fault_point("client.graph_end") ? NULL : pl_vec_push(&outputs);
        if (place == NULL) {
            pl_vec_finish(&outputs);
            return PLASMON_ENOMEM;
        }
        *place = (struct frame_arg){
            .mode = PLASMON_OUT, .ref = root->root->id, .shape = &root->root->shape};
    }
    if (graph->what == NULL) {
        graph->what = graph_describe(graph);
    }
    if (graph->what == NULL) {
        pl_vec_finish(&outputs);
        return PLASMON_ENOMEM;
    }
    task.id        = refs_draw_task(&client->refs);
    task.args      = outputs.items;
    task.arg_count = (uint32_t)outputs.count;
    status         = frame_add_task(&client->session.frame, &task);
    pl_vec_finish(&outputs);
    if (status != PLASMON_OK) {
        return status;
    }
    for (size_t i = 0; i < graph->roots.count; i++) {
        if (graph_root_at(graph, i)->root != NULL) {
            graph_root_at(graph, i)->root->recording = 0;
        }
    }
    graph->ended = true;
    client->session.tasks_sent++;
    session_kick_locked(client);
    return PLASMON_OK;
}

plasmon_status_t plasmon_graph_end(struct plasmon_client *client,
                                   struct plasmon_graph *handle)
{
    struct plasmon_graph *graph = NULL;
    plasmon_status_t status     = client_enter(client);

    if (status != PLASMON_OK) {
        return status;
    }
    pl_mutex_lock(&client->lock);
    status = session_room_locked(client, 1, FRAME_TASK);
    if (status == PLASMON_OK) {
        status = graph_find(client, handle, &graph);
    }
    if (status == PLASMON_OK &&
        (graph->ended || !pthread_equal(graph->thread, pthread_self()))) {
        status = error_set(PLASMON_EGRAPH, "the graph %s",
                           graph->ended ? "is not being recorded"
                                        : "is being recorded by another thread");
    } else if (status == PLASMON_OK && graph->torn) {
        status =
            error_set(PLASMON_EGRAPH,
                      "a call could not be recorded: release the graph and record anew");
    } else if (status == PLASMON_OK && graph->calls.count == 0) {
        status = error_set(
            PLASMON_EGRAPH,
            "nothing was recorded: submit calls first, or throw the recording away with "
            "plasmon_graph_release()");
    }
    if (status == PLASMON_OK) {
        status = end_locked(client, graph);
        if (status != PLASMON_OK) {
            status = error_set(status, "%s", pl_status_text(status));
        }
    }
    pl_mutex_unlock(&client->lock);
    return status;
}

/* ------------------------------------------------------------------------------ release */

static void release_locked(struct plasmon_client *client, struct plasmon_graph *graph)
{
    Plasmon__V1__ClientFrame fields = PLASMON__V1__CLIENT_FRAME__INIT;
    struct failure *never           = failure_create(PLASMON_EGRAPH, 0, NEVER_LAUNCHED);

    fields.n_graph_release = 1;
    fields.graph_release   = &graph->id;
    pl_list_remove(&graph->link); /* nobody finds it while this waits for room */
    for (size_t i = 0; i < graph->roots.count; i++) {
        struct graph_root *root = graph_root_at(graph, i);
        struct pl_err unused    = {0};
        struct ref_slot *slot;

        if (root->hold == NULL) {
            continue;
        }
        if (root->inside) {
            root->root->recording = graph->ended ? 0 : ROOT_NEVER_RECORDED;
            /* no launch will write it, where none has */
            root_failures_replace(root->root, graph->empty, never);
        }
        if (refs_find(&client->refs, root->hold, &slot, &unused) == PLASMON_OK) {
            client_close_ref_locked(client, root->hold, slot);
        }
    }
    failure_release(never);
    if (request_send_locked(client, NULL, FRAME_GRAPH_RELEASE, &fields) != PLASMON_OK) {
        pl_debug("client", "graph %llu goes with the session",
                 (unsigned long long)graph->id);
    }
    graph_free(graph);
}

plasmon_status_t plasmon_graph_release(struct plasmon_client *client,
                                       struct plasmon_graph *handle)
{
    struct plasmon_graph *graph = NULL;
    plasmon_status_t status     = client_enter(client);

    if (status != PLASMON_OK || handle == NULL) {
        return status;
    }
    pl_mutex_lock(&client->lock);
    status = graph_find(client, handle, &graph);
    if (status == PLASMON_OK) {
        release_locked(client, graph);
    }
    client_run_callbacks_unlock(client); /* who waited for what it made hears ERELEASED */
    return status;
}
