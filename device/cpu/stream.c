/*
 * Streams of a CPU device: a thread that takes operations out of its queue and does them one after another.
 *
 * Each kind of operation has a payload struct (ops.h), a function here that enqueues it and one in
 * run.c that does it.
 *
 * ORDER. An operation is done before the next one begins, and `completed` is stored after its
 * effects (sequentially consistent). So whoever sees `completed`, or a word written by a later
 * signal, sees everything before it, the record of a failed launch included.
 *
 * An operation that waits (wait, join) may wait for ever if nobody signals; destroying such a
 * stream does too. Joins alone cannot deadlock: a join waits for what was in the other stream at
 * the time of the call, which is a partial order.
 */
#include "device/cpu/ops.h"

#include "base/alloc.h"
#include "base/log.h"
#include "base/thread.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* arguments of a launch that lie in the queue; larger ones are allocated */
#define ARGS_INLINE_MAX 512u

/*
 * A third of a normal thread's share where both want one core: it goes on, so that nobody who waits
 * for it waits for ever.
 */
#define LOW_NICE 5

static void *stream_thread(void *user)
{
    struct device_cpu_stream *stream = user;
    uint64_t spin_ns                 = device_cpu_of(stream->base.device)->spin_ns;
    struct device_cpu_op *op;

    if (stream->low) { /* on Linux of this thread alone; refused: as the others */
        (void)setpriority(PRIO_PROCESS, 0, LOW_NICE);
    }
    while ((op = device_cpu_queue_pop(&stream->queue, spin_ns)) != NULL) {
        device_cpu_run(stream, op, spin_ns);
        device_cpu_progress_advance(stream->progress, stream->queue.popped);
    }
    return NULL;
}

/* ------------------------------------------------------------------------------ streams */

static plasmon_status_t stream_start(struct device_cpu_stream *stream, unsigned number)
{
    int error = pl_thread_start(&stream->thread, stream_thread, stream);
    char name[16];

    if (error != 0) {
        pl_error("device", "a stream: %s",
                 error == EAGAIN ? PL_THREAD_NONE_LEFT : strerror(error));
        return error == EAGAIN ? PLASMON_ELIMIT : pl_status_from_errno(error);
    }
    (void)snprintf(name, sizeof(name), "cpu%u-s%u", stream->base.device->info.ordinal,
                   number % 10000);
    (void)pthread_setname_np(stream->thread, name); /* for debuggers; it works without */
    return PLASMON_OK;
}

plasmon_status_t device_cpu_stream_create(struct device *device, unsigned flags,
                                          struct device_stream **out_stream)
{
    struct device_cpu *cpu           = device_cpu_of(device);
    struct device_cpu_stream *stream = PL_NEW(struct device_cpu_stream);
    plasmon_status_t status;
    unsigned number;

    if (stream == NULL) {
        return PLASMON_ENOMEM;
    }
    stream->base.device = device;
    /* high ones would need rights */
    stream->low = (flags & DEVICE_STREAM_LOW_PRIORITY) != 0;
    pl_list_init(&stream->link);

    stream->progress = device_cpu_progress_create();
    if (stream->progress == NULL) {
        status = PLASMON_ENOMEM;
        goto err_free;
    }
    status = device_cpu_queue_init(&stream->queue);
    if (status != PLASMON_OK) {
        goto err_release_progress;
    }

    pl_mutex_lock(&cpu->lock);
    number = cpu->stream_names++;
    pl_mutex_unlock(&cpu->lock);
    status = stream_start(stream, number);
    if (status != PLASMON_OK) {
        goto err_finish_queue;
    }

    pl_mutex_lock(&cpu->lock);
    pl_list_add_tail(&cpu->streams, &stream->link);
    pl_mutex_unlock(&cpu->lock);
    *out_stream = &stream->base;
    return PLASMON_OK;

err_finish_queue:
    device_cpu_queue_finish(&stream->queue);
err_release_progress:
    device_cpu_progress_release(stream->progress);
err_free:
    pl_free(stream);
    return status;
}

void device_cpu_stream_destroy(struct device_stream *base)
{
    struct device_cpu_stream *stream = device_cpu_stream_of(base);
    struct device_cpu *cpu           = device_cpu_of(base->device);

    device_cpu_queue_stop(&stream->queue);
    /* the thread uses what is freed below */
    PL_CHECK(pthread_join(stream->thread, NULL) == 0);

    pl_mutex_lock(&cpu->lock);
    pl_list_remove(&stream->link);
    pl_mutex_unlock(&cpu->lock);
    device_cpu_queue_finish(&stream->queue);
    device_cpu_progress_release(stream->progress);
    pl_free(stream);
}

plasmon_status_t device_cpu_stream_sync(struct device_stream *base, struct pl_err *err)
{
    struct device_cpu_stream *stream = device_cpu_stream_of(base);
    struct device_cpu *cpu           = device_cpu_of(base->device);
    struct pl_err failure;

    device_cpu_progress_wait(stream->progress, atomic_load(&stream->queue.published),
                             cpu->spin_ns);

    pl_mutex_lock(&cpu->lock);
    failure                = stream->failure;
    stream->failure.status = PLASMON_OK;
    pl_mutex_unlock(&cpu->lock);

    if (failure.status != PLASMON_OK) {
        return pl_err_set(err, failure.status, "%s", failure.text);
    }
    return PLASMON_OK;
}

/* ---------------------------------------------------------------------------- enqueuing */

plasmon_status_t device_cpu_enqueue_begin(struct device_cpu_stream *stream,
                                          enum device_cpu_op_kind kind,
                                          size_t payload_bytes, void *out_op)
{
    void *payload;
    plasmon_status_t status;

    if (stream->recording == NULL) {
        status = device_cpu_queue_reserve(&stream->queue, (uint32_t)kind, payload_bytes,
                                          &payload);
    } else if (kind == DEVICE_CPU_OP_COPY || kind == DEVICE_CPU_OP_COPY_PLANNED ||
               kind == DEVICE_CPU_OP_FILL || kind == DEVICE_CPU_OP_LAUNCH) {
        status = device_cpu_recording_reserve(*stream->recording, (uint32_t)kind,
                                              payload_bytes, &payload);
    } else {
        return PLASMON_ENOTSUP; /* it would mean another moment at each launch */
    }

    if (status == PLASMON_OK) {
        memcpy(out_op, &payload, sizeof(payload));
    }
    return status;
}

void device_cpu_enqueue_end(struct device_cpu_stream *stream)
{
    if (stream->recording == NULL) {
        device_cpu_queue_push(&stream->queue);
    }
}

plasmon_status_t device_cpu_copy(struct device_stream *base, enum device_copy_kind kind,
                                 uint64_t dst, uint64_t src, uint64_t bytes)
{
    struct device_cpu_stream *stream = device_cpu_stream_of(base);
    struct device_cpu_op_copy *op;
    plasmon_status_t status =
        device_cpu_enqueue_begin(stream, DEVICE_CPU_OP_COPY, sizeof(*op), &op);

    (void)kind; /* host and device are the same memory */
    if (status == PLASMON_OK) {
        *op = (struct device_cpu_op_copy){.dst = dst, .src = src, .bytes = bytes};
        device_cpu_enqueue_end(stream);
    }
    return status;
}

plasmon_status_t device_cpu_copy_planned(struct device_stream *base,
                                         const struct device_copy_plan *plan,
                                         struct device_ptr dst, struct device_ptr src)
{
    struct device_cpu_stream *stream = device_cpu_stream_of(base);
    struct device_cpu_op_copy_planned *op;
    plasmon_status_t status =
        device_cpu_enqueue_begin(stream, DEVICE_CPU_OP_COPY_PLANNED, sizeof(*op), &op);

    if (status == PLASMON_OK) {
        op->plan = *plan;
        op->dst  = dst.addr;
        op->src  = src.addr;
        device_cpu_enqueue_end(stream);
    }
    return status;
}

plasmon_status_t device_cpu_fill8(struct device_stream *base, struct device_ptr dst,
                                  uint8_t value, uint64_t bytes)
{
    struct device_cpu_stream *stream = device_cpu_stream_of(base);
    struct device_cpu_op_fill *op;
    plasmon_status_t status =
        device_cpu_enqueue_begin(stream, DEVICE_CPU_OP_FILL, sizeof(*op), &op);

    if (status == PLASMON_OK) {
        *op = (struct device_cpu_op_fill){.dst = dst.addr, .bytes = bytes, .value = value};
        device_cpu_enqueue_end(stream);
    }
    return status;
}

static plasmon_status_t enqueue_word(struct device_stream *base,
                                     enum device_cpu_op_kind kind, uint64_t *word,
                                     uint64_t value)
{
    struct device_cpu_stream *stream = device_cpu_stream_of(base);
    struct device_cpu_op_word *op;
    plasmon_status_t status = device_cpu_enqueue_begin(stream, kind, sizeof(*op), &op);

    if (status == PLASMON_OK) {
        *op = (struct device_cpu_op_word){.word = word, .value = value};
        device_cpu_enqueue_end(stream);
    }
    return status;
}

plasmon_status_t device_cpu_signal(struct device_stream *base, uint64_t *word,
                                   uint64_t value)
{
    return enqueue_word(base, DEVICE_CPU_OP_SIGNAL, word, value);
}

plasmon_status_t device_cpu_wait(struct device_stream *base, uint64_t *word, uint64_t value)
{
    return enqueue_word(base, DEVICE_CPU_OP_WAIT, word, value);
}

plasmon_status_t device_cpu_notify(struct device_stream *base, int eventfd)
{
    struct device_cpu_stream *stream = device_cpu_stream_of(base);
    struct device_cpu_op_notify *op;
    plasmon_status_t status =
        device_cpu_enqueue_begin(stream, DEVICE_CPU_OP_NOTIFY, sizeof(*op), &op);

    if (status == PLASMON_OK) {
        op->eventfd = eventfd;
        device_cpu_enqueue_end(stream);
    }
    return status;
}

plasmon_status_t device_cpu_join(struct device_stream *base, struct device_stream *other)
{
    return device_cpu_behind(base, device_cpu_stream_of(other)->progress,
                             atomic_load(&device_cpu_stream_of(other)->queue.published));
}

plasmon_status_t device_cpu_behind(struct device_stream *base,
                                   struct device_cpu_progress *progress, uint64_t target)
{
    struct device_cpu_stream *stream = device_cpu_stream_of(base);
    struct device_cpu_op_join *op;
    plasmon_status_t status;

    if (stream->recording != NULL) {
        return PLASMON_ENOTSUP;
    }
    if (atomic_load(&progress->completed) >= target) {
        return PLASMON_OK; /* nothing to wait for */
    }
    status = device_cpu_enqueue_begin(stream, DEVICE_CPU_OP_JOIN, sizeof(*op), &op);
    if (status == PLASMON_OK) {
        device_cpu_progress_hold(progress);
        *op = (struct device_cpu_op_join){.progress = progress, .target = target};
        device_cpu_enqueue_end(stream);
    }
    return status;
}

plasmon_status_t device_cpu_launch_enqueue(struct device_stream *base, device_cpu_fn fn,
                                           const void *args, size_t args_bytes,
                                           uint64_t tag)
{
    struct device_cpu_stream *stream = device_cpu_stream_of(base);
    size_t inline_bytes              = args_bytes <= ARGS_INLINE_MAX ? args_bytes : 0;
    void *large_args                 = NULL;
    struct device_cpu_op_launch *op;
    plasmon_status_t status;

    if (args_bytes > ARGS_INLINE_MAX) {
        large_args = pl_alloc(args_bytes);
        if (large_args == NULL) {
            return PLASMON_ENOMEM;
        }
        memcpy(large_args, args, args_bytes);
    }
    status = device_cpu_enqueue_begin(stream, DEVICE_CPU_OP_LAUNCH,
                                      sizeof(*op) + inline_bytes, &op);
    if (status != PLASMON_OK) {
        pl_free(large_args);
        return status;
    }
    *op = (struct device_cpu_op_launch){.fn = fn, .tag = tag, .large_args = large_args};
    if (inline_bytes > 0) {
        memcpy(op + 1, args, inline_bytes);
    }
    device_cpu_enqueue_end(stream);
    return PLASMON_OK;
}

plasmon_status_t device_cpu_recording_enqueue(struct device_stream *base,
                                              struct device_cpu_recording *recording,
                                              uint64_t tag)
{
    struct device_cpu_stream *stream = device_cpu_stream_of(base);
    struct device_cpu_op_graph *op;
    plasmon_status_t status =
        device_cpu_enqueue_begin(stream, DEVICE_CPU_OP_GRAPH, sizeof(*op), &op);

    if (status == PLASMON_OK) {
        device_cpu_recording_hold(recording);
        *op = (struct device_cpu_op_graph){.recording = recording, .tag = tag};
        device_cpu_enqueue_end(stream);
    }
    return status;
}
