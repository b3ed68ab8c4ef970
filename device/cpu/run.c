/*
 * Operations of CPU streams, done: one after another by the stream's thread, or in place when a
 * recorded graph runs. `completed` is stored after an operation's effects (stream.c says what
 * follows from that).
 */
#include "device/cpu/ops.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/copy.h"
#include "base/fault.h"
#include "base/log.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

static void *host(uint64_t address)
{
    return (void *)(uintptr_t)address;
}

static void run_copy(const struct device_cpu_op_copy *op)
{
    (void)pl_fault_point("device.copy"); /* cannot fail; the process can end */
    pl_copy(host(op->dst), host(op->src), op->bytes);
}

static void run_copy_planned(const struct device_cpu_op_copy_planned *op)
{
    struct device_copy_plan plan          = op->plan;
    uint64_t index[DEVICE_COPY_LOOPS_MAX] = {0};

    (void)pl_fault_point("device.copy");
    do {
        memcpy(host(op->dst + plan.dst_offset), host(op->src + plan.src_offset),
               plan.run_bytes);
    } while (device_copy_plan_step(&plan, 0, index));
}

static void run_notify(const struct device_cpu_op_notify *op)
{
    uint64_t one = 1;
    ssize_t written;

    do {
        written = write(op->eventfd, &one, sizeof(one));
    } while (written < 0 && errno == EINTR);

    /* EAGAIN: the counter is full, so the poller has been woken already. */
    if (written < 0 && errno != EAGAIN) {
        pl_error("device", "cannot notify descriptor %d: %s", op->eventfd, strerror(errno));
    }
}

static void run_record(const struct device_cpu_op_record *op)
{
    atomic_store(&op->mark->time_ns, pl_now_ns());
    atomic_store(&op->mark->reached, op->number);
    device_cpu_mark_release(op->mark);
}

/* false: it failed. */
static bool call_launch(struct device_cpu_stream *stream,
                        const struct device_cpu_op_launch *op, uint64_t tag)
{
    struct pl_err err;
    plasmon_status_t status;

    /* Not zeroed as a whole: half a KiB for each launch would show. */
    err.status  = PLASMON_OK;
    err.text[0] = '\0';
    status =
        op->fn(op->large_args != NULL ? op->large_args : (void *)(uintptr_t)(op + 1), &err);
    if (status == PLASMON_OK) {
        return true;
    }
    if (err.text[0] == '\0') {
        (void)pl_err_set(&err, status, "%s", pl_status_text(status));
    }
    err.status = status;
    device_cpu_failure_add(stream, tag, &err);
    return false;
}

static void run_launch(struct device_cpu_stream *stream, struct device_cpu_op_launch *op)
{
    (void)call_launch(stream, op, op->tag); /* its failure is recorded */
    pl_free(op->large_args);
}

static void run_fill(const struct device_cpu_op_fill *op)
{
    memset(host(op->dst), op->value, op->bytes);
}

bool device_cpu_op_run(struct device_cpu_stream *stream, const struct device_cpu_op *op,
                       uint64_t tag)
{
    const void *payload = op + 1;

    switch ((enum device_cpu_op_kind)op->kind) {
    case DEVICE_CPU_OP_COPY:
        run_copy(payload);
        return true;
    case DEVICE_CPU_OP_COPY_PLANNED:
        run_copy_planned(payload);
        return true;
    case DEVICE_CPU_OP_FILL:
        run_fill(payload);
        return true;
    case DEVICE_CPU_OP_LAUNCH:
        return call_launch(stream, payload, tag);
    default:
        PL_CHECK(false); /* device_cpu_enqueue_begin() lets nothing else be recorded */
        return false;
    }
}

void device_cpu_op_drop(const struct device_cpu_op *op)
{
    if (op->kind == DEVICE_CPU_OP_LAUNCH) {
        pl_free(((const struct device_cpu_op_launch *)(const void *)(op + 1))->large_args);
    }
}

void device_cpu_run(struct device_cpu_stream *stream, struct device_cpu_op *op,
                    uint64_t spin_ns)
{
    void *payload = op + 1;

    switch ((enum device_cpu_op_kind)op->kind) {
    case DEVICE_CPU_OP_COPY:
        run_copy(payload);
        break;
    case DEVICE_CPU_OP_COPY_PLANNED:
        run_copy_planned(payload);
        break;
    case DEVICE_CPU_OP_FILL:
        run_fill(payload);
        break;
    case DEVICE_CPU_OP_SIGNAL: {
        const struct device_cpu_op_word *word = payload;

        device_cpu_word_signal(word->word, word->value);
        break;
    }
    case DEVICE_CPU_OP_WAIT: {
        const struct device_cpu_op_word *word = payload;

        device_cpu_word_wait(word->word, word->value, spin_ns);
        break;
    }
    case DEVICE_CPU_OP_NOTIFY:
        run_notify(payload);
        break;
    case DEVICE_CPU_OP_JOIN: {
        const struct device_cpu_op_join *join = payload;

        device_cpu_progress_wait(join->progress, join->target, spin_ns);
        device_cpu_progress_release(join->progress);
        break;
    }
    case DEVICE_CPU_OP_RECORD:
        run_record(payload);
        break;
    case DEVICE_CPU_OP_LAUNCH:
        run_launch(stream, payload);
        break;
    case DEVICE_CPU_OP_GRAPH: {
        const struct device_cpu_op_graph *graph = payload;

        device_cpu_recording_run(stream, graph->recording, graph->tag);
        device_cpu_recording_release(graph->recording);
        break;
    }
    }
}
