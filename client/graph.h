/*
 * Recorded graphs in the client: which thread records, what was recorded, and what a launch writes.
 *
 * The head keeps the graph; the client keeps what it needs to refuse a wrong launch at the call,
 * and to tell when what a launch writes is ready. Threads: everything under the client's lock.
 */
#ifndef CLIENT_GRAPH_H
#define CLIENT_GRAPH_H

#include <pthread.h>

#include "client/submit_int.h"

struct graph_write {
    struct pl_box box;
    bool whole;
    enum write_effect effect;
};

/* An array that the recording names. */
struct graph_root {
    struct root *root;
    struct plasmon_ref *hold; /* NULL: a temporary, let go */
    bool inside;              /* made in the recording */
    struct pl_vec writes;     /* struct graph_write */
};

/* A recorded call: enough to check other scalars. */
struct graph_call {
    const struct kernel_function *function;
    char *label; /* NULL: none */
    struct kernel_arg_shape *shapes;
    union kernel_scalar *scalars;
    uint32_t arg_count;
    uint32_t scalar_count;
};

struct plasmon_graph {
    struct pl_list link;
    uint64_t id;
    pthread_t thread; /* who records */
    bool ended;
    bool torn;             /* a call is noted in part, or not at all: it is only released */
    struct pl_vec calls;   /* struct graph_call */
    struct pl_vec roots;   /* struct graph_root */
    struct pl_map by_root; /* root's id -> index + 1, as a pointer */
    struct failure *empty; /* what refs made inside say before the first launch */
    /* "graph of 12 calls: axpy, dot", for errors; NULL: not ended */
    struct task_text *what;
};

static inline struct graph_root *graph_root_at(const struct plasmon_graph *graph, size_t i)
{
    return pl_vec_at(&graph->roots, i);
}
static inline struct graph_call *graph_call_at(const struct plasmon_graph *graph, size_t i)
{
    return pl_vec_at(&graph->calls, i);
}
/* NULL: no recorded call uses it. */
static inline struct graph_root *graph_root_of(const struct plasmon_graph *graph,
                                               const struct root *root)
{
    uintptr_t index = (uintptr_t)pl_map_get(&graph->by_root, root->id);

    return index == 0 ? NULL : graph_root_at(graph, index - 1);
}

/* EINVAL: no graph of this client has this handle. */
plasmon_status_t graph_find(struct plasmon_client *client,
                            const struct plasmon_graph *handle,
                            struct plasmon_graph **out_graph) PL_MUST_CHECK;
/* The graph that the calling thread records; NULL: none. */
struct plasmon_graph *graph_recording_locked(const struct plasmon_client *client);
/* The call that was looked at becomes a part of the recording; its new refs are made. */
plasmon_status_t graph_record_locked(struct plasmon_graph *graph, struct submit *submit,
                                     bool with_task_ref) PL_MUST_CHECK;
/*
 * May the calling thread use the root? Not what another thread's recording makes, nor outside of
 * the recording, nor when that was thrown away.
 */
plasmon_status_t graph_check_use(const struct plasmon_client *client,
                                 const struct root *root, struct pl_err *err) PL_MUST_CHECK;
/*
 * For what wants a value of it, and is never recorded. EGRAPH while a recording goes on that makes
 * it, or when that was thrown away.
 */
plasmon_status_t graph_check_content(const struct root *root,
                                     struct pl_err *err) PL_MUST_CHECK;
void graphs_finish(struct plasmon_client *client);

#endif
