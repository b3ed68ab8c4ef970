/*
 * Recorded work on a CPU device: the operations in the order in which they were recorded, which is
 * an order that all branches agree with. A launch of it is one operation of a stream, whose thread
 * runs the list.
 *
 * A branch is a stream without a thread and a queue: what is enqueued on it goes into the graph's
 * recording (stream.c). The exec and every launch under way hold the list, so that an exec can be
 * changed while an older list still runs.
 */
#include "device/cpu/cpu_int.h"

#include "base/alloc.h"

#include <assert.h>
#include <string.h>

struct device_cpu_recording {
    _Atomic uint32_t refs; /* the graph while it records; the exec; launches under way */
    uint8_t *ops;          /* struct device_cpu_op, one behind the other */
    size_t used;
    size_t capacity;
};

struct cpu_graph {
    struct device_graph base;
    struct device_cpu_stream branches[DEVICE_BRANCH_MAX];
    struct device_cpu_recording *recording; /* NULL: not recording */
};

struct cpu_exec {
    struct device_exec base;
    struct device_cpu_recording *recording;
};

static struct cpu_graph *graph_of(struct device_graph *graph)
{
    PL_CHECK(graph->device->ops == &device_cpu_ops);
    return (struct cpu_graph *)(void *)graph;
}

static struct cpu_exec *exec_of(struct device_exec *exec)
{
    PL_CHECK(exec->device->ops == &device_cpu_ops);
    return (struct cpu_exec *)(void *)exec;
}

/* ----------------------------------------------------------------------------- the list */

plasmon_status_t device_cpu_recording_reserve(struct device_cpu_recording *recording,
                                              uint32_t kind, size_t payload_bytes,
                                              void **out_payload)
{
    size_t bytes = sizeof(struct device_cpu_op) + pl_round_up(payload_bytes, 16);
    struct device_cpu_op *op;

    if (recording->used + bytes > recording->capacity) {
        size_t capacity =
            pl_max_u64(2 * recording->capacity, recording->used + bytes + 4096);
        uint8_t *grown = pl_realloc(recording->ops, recording->capacity, capacity);

        if (grown == NULL) {
            return PLASMON_ENOMEM;
        }
        recording->ops      = grown;
        recording->capacity = capacity;
    }
    op           = (struct device_cpu_op *)(void *)(recording->ops + recording->used);
    op->bytes    = (uint32_t)bytes;
    op->kind     = kind;
    *out_payload = op + 1;
    recording->used += bytes;
    return PLASMON_OK;
}

void device_cpu_recording_hold(struct device_cpu_recording *recording)
{
    atomic_fetch_add(&recording->refs, 1);
}

void device_cpu_recording_release(struct device_cpu_recording *recording)
{
    if (atomic_fetch_sub(&recording->refs, 1) != 1) {
        return;
    }
    for (size_t at = 0; at < recording->used;) {
        const struct device_cpu_op *op = (const void *)(recording->ops + at);

        device_cpu_op_drop(op);
        at += op->bytes;
    }
    pl_free(recording->ops);
    pl_free(recording);
}

void device_cpu_recording_run(struct device_cpu_stream *stream,
                              const struct device_cpu_recording *recording, uint64_t tag)
{
    for (size_t at = 0; at < recording->used;) {
        const struct device_cpu_op *op = (const void *)(recording->ops + at);

        if (!device_cpu_op_run(stream, op, tag)) {
            return; /* what follows may read what was not made */
        }
        at += op->bytes;
    }
}

/* ------------------------------------------------------------------------------- graphs */

plasmon_status_t device_cpu_graph_create(struct device *device, uint32_t branches,
                                         struct device_graph **out_graph,
                                         struct pl_err *err)
{
    struct cpu_graph *graph = PL_NEW(struct cpu_graph);

    if (graph == NULL) {
        return pl_err_set(err, PLASMON_ENOMEM, "no memory for a graph");
    }
    graph->base.device       = device;
    graph->base.branch_count = branches;
    for (uint32_t i = 0; i < branches; i++) {
        graph->branches[i].base.device  = device;
        graph->branches[i].base.records = true;
        graph->branches[i].recording    = &graph->recording;
        graph->base.branches[i]         = &graph->branches[i].base;
    }
    *out_graph = &graph->base;
    return PLASMON_OK;
}

void device_cpu_graph_destroy(struct device_graph *base)
{
    pl_free(graph_of(base));
}

plasmon_status_t device_cpu_graph_begin(struct device_graph *base, struct pl_err *err)
{
    struct cpu_graph *graph = graph_of(base);

    graph->recording = PL_NEW(struct device_cpu_recording);
    if (graph->recording == NULL) {
        return pl_err_set(err, PLASMON_ENOMEM, "no memory for a recording");
    }
    atomic_store(&graph->recording->refs, 1);
    return PLASMON_OK;
}

/* The order of recording is the order of running: nothing to do for marks. */
plasmon_status_t device_cpu_graph_mark(struct device_graph *base, uint32_t branch,
                                       uint32_t mark)
{
    (void)base;
    (void)branch;
    (void)mark;
    return PLASMON_OK;
}

plasmon_status_t device_cpu_graph_after(struct device_graph *base, uint32_t branch,
                                        uint32_t mark)
{
    return device_cpu_graph_mark(base, branch, mark);
}

plasmon_status_t device_cpu_graph_end(struct device_graph *base, bool keep,
                                      struct device_exec **io_exec, struct pl_err *err)
{
    struct cpu_graph *graph                = graph_of(base);
    struct device_cpu_recording *recording = graph->recording;
    struct cpu_exec *exec;

    graph->recording = NULL;
    if (!keep) {
        device_cpu_recording_release(recording);
        return PLASMON_OK;
    }
    if (*io_exec != NULL) {
        exec = exec_of(*io_exec);
        device_cpu_recording_release(exec->recording);
    } else {
        exec = PL_NEW(struct cpu_exec);
        if (exec == NULL) {
            device_cpu_recording_release(recording);
            return pl_err_set(err, PLASMON_ENOMEM, "no memory for what was recorded");
        }
        exec->base.device = base->device;
        *io_exec          = &exec->base;
    }
    exec->recording = recording;
    return PLASMON_OK;
}

plasmon_status_t device_cpu_exec_launch(struct device_stream *stream,
                                        struct device_exec *exec, uint64_t tag)
{
    return device_cpu_recording_enqueue(stream, exec_of(exec)->recording, tag);
}

void device_cpu_exec_destroy(struct device_exec *base)
{
    struct cpu_exec *exec = exec_of(base);

    device_cpu_recording_release(exec->recording);
    pl_free(exec);
}
