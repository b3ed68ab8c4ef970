/*
 * Streams of a CPU device: a thread that takes operations out of its queue and does them one after another.
 *
 * Each kind of operation has a payload struct, a function that enqueues it and one that runs it. What an operation needs
 * is copied into the queue, or held by a reference (the progress of another stream, the mark of an event), so callers may
 * free their own things at once.
 *
 * ORDER. An operation is done before the next one begins, and `completed` is stored after its effects (sequentially
 * consistent). So whoever sees `completed`, or a word written by a later signal, sees everything before it, the record of
 * a failed launch included.
 *
 * An operation that waits (wait, join) may wait for ever if nobody signals; destroying such a stream does too. Joins alone
 * cannot deadlock: a join waits for what was in the other stream at the time of the call, which is a partial order.
 */
#include "device/cpu/cpu_int.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"

#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define ARGS_INLINE_MAX \
    512u /* arguments of a launch that lie in the queue; larger ones are allocated */

enum op_kind {
    OP_COPY,
    OP_COPY_PLANNED,
    OP_FILL,
    OP_SIGNAL,
    OP_WAIT,
    OP_NOTIFY,
    OP_JOIN,
    OP_RECORD,
    OP_LAUNCH,
    OP_GRAPH,
};

struct op_copy {
    uint64_t dst;
    uint64_t src;
    uint64_t bytes;
};
struct op_copy_planned {
    struct device_copy_plan plan;
    uint64_t dst;
    uint64_t src;
};
struct op_fill {
    uint64_t dst;
    uint64_t bytes;
    uint8_t value;
};
struct op_word {
    uint64_t *word;
    uint64_t value;
};
struct op_notify {
    int eventfd;
};
struct op_join {
    struct device_cpu_progress *progress; /* owned reference */
    uint64_t target;
};
struct op_record {
    struct mark *mark; /* owned reference */
    uint64_t number;
};
struct op_launch {
    device_cpu_fn fn;
    uint64_t tag;
    void *large_args; /* owned; NULL: they lie behind this struct */
    uint64_t reserved;
};
static_assert(sizeof(struct op_launch) % 16 == 0, "arguments behind it are aligned to 16");

struct op_graph {
    struct device_cpu_recording *recording; /* owned reference */
    uint64_t tag;
};

/* What an event and the stream that reaches it share. The stream may reach it after the event was destroyed. */
struct mark {
    _Atomic uint32_t refs;
    _Atomic uint64_t reached; /* number of the last record() that was reached */
    _Atomic uint64_t time_ns; /* stored before `reached` */
};
struct cpu_event {
    struct device_event base;
    uint64_t recorded; /* how many times; calls on one event do not overlap */
    struct mark *mark;
};

static struct device_cpu_stream *stream_of(struct device_stream *stream)
{
    PL_CHECK(stream->device->ops == &device_cpu_ops);
    return (struct device_cpu_stream *)(void *)stream;
}

static struct cpu_event *event_of(struct device_event *event)
{
    PL_CHECK(event->device->ops == &device_cpu_ops);
    return (struct cpu_event *)(void *)event;
}

static void *host(uint64_t address)
{
    return (void *)(uintptr_t)address;
}

static void mark_release(struct mark *mark)
{
    if (atomic_fetch_sub(&mark->refs, 1) == 1) {
        pl_free(mark);
    }
}

/* ------------------------------------------------------------------------------------------------ running */

static void run_copy(const struct op_copy *op)
{
    memcpy(host(op->dst), host(op->src), op->bytes);
}

static void run_copy_planned(const struct op_copy_planned *op)
{
    struct device_copy_plan plan          = op->plan;
    uint64_t index[DEVICE_COPY_LOOPS_MAX] = {0};

    do {
        memcpy(host(op->dst + plan.dst_offset), host(op->src + plan.src_offset),
               plan.run_bytes);
    } while (device_copy_plan_step(&plan, 0, index));
}

static void run_notify(const struct op_notify *op)
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

static void run_record(const struct op_record *op)
{
    atomic_store(&op->mark->time_ns, pl_now_ns());
    atomic_store(&op->mark->reached, op->number);
    mark_release(op->mark);
}

/* false: it failed. */
static bool call_launch(struct device_cpu_stream *stream, const struct op_launch *op,
                        uint64_t tag)
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

static void run_launch(struct device_cpu_stream *stream, struct op_launch *op)
{
    (void)call_launch(stream, op, op->tag); /* its failure is recorded */
    pl_free(op->large_args);
}

static void run_fill(const struct op_fill *op)
{
    memset(host(op->dst), op->value, op->bytes);
}

bool device_cpu_op_run(struct device_cpu_stream *stream, const struct device_cpu_op *op,
                       uint64_t tag)
{
    const void *payload = op + 1;

    switch ((enum op_kind)op->kind) {
    case OP_COPY:
        run_copy(payload);
        return true;
    case OP_COPY_PLANNED:
        run_copy_planned(payload);
        return true;
    case OP_FILL:
        run_fill(payload);
        return true;
    case OP_LAUNCH:
        return call_launch(stream, payload, tag);
    default:
        PL_CHECK(false); /* enqueue_begin() lets nothing else be recorded */
        return false;
    }
}

void device_cpu_op_drop(const struct device_cpu_op *op)
{
    if (op->kind == OP_LAUNCH) {
        pl_free(((const struct op_launch *)(const void *)(op + 1))->large_args);
    }
}

static void run(struct device_cpu_stream *stream, struct device_cpu_op *op,
                uint64_t spin_ns)
{
    void *payload = op + 1;

    switch ((enum op_kind)op->kind) {
    case OP_COPY:
        run_copy(payload);
        break;
    case OP_COPY_PLANNED:
        run_copy_planned(payload);
        break;
    case OP_FILL:
        run_fill(payload);
        break;
    case OP_SIGNAL: {
        const struct op_word *word = payload;

        device_cpu_word_signal(word->word, word->value);
        break;
    }
    case OP_WAIT: {
        const struct op_word *word = payload;

        device_cpu_word_wait(word->word, word->value, spin_ns);
        break;
    }
    case OP_NOTIFY:
        run_notify(payload);
        break;
    case OP_JOIN: {
        const struct op_join *join = payload;

        device_cpu_progress_wait(join->progress, join->target, spin_ns);
        device_cpu_progress_release(join->progress);
        break;
    }
    case OP_RECORD:
        run_record(payload);
        break;
    case OP_LAUNCH:
        run_launch(stream, payload);
        break;
    case OP_GRAPH: {
        const struct op_graph *graph = payload;

        device_cpu_recording_run(stream, graph->recording, graph->tag);
        device_cpu_recording_release(graph->recording);
        break;
    }
    }
}

static void *stream_thread(void *user)
{
    struct device_cpu_stream *stream = user;
    uint64_t spin_ns                 = device_cpu_of(stream->base.device)->spin_ns;
    struct device_cpu_op *op;

    while ((op = device_cpu_queue_pop(&stream->queue, spin_ns)) != NULL) {
        run(stream, op, spin_ns);
        device_cpu_progress_advance(stream->progress, stream->queue.popped);
    }
    return NULL;
}

/* ------------------------------------------------------------------------------------------------ streams */

/* The thread takes no signals: they are for the threads of whoever uses the device. */
static plasmon_status_t stream_start(struct device_cpu_stream *stream, unsigned number)
{
    char name[16];
    sigset_t all;
    sigset_t before;
    int error;

    (void)sigfillset(&all); /* cannot fail on a valid pointer, like the next two */
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    error = pthread_create(&stream->thread, NULL, stream_thread, stream);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error != 0) {
        return error == EAGAIN ? PLASMON_ENOMEM : pl_status_from_errno(error);
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

    (void)flags; /* priorities need rights that a worker does not have */
    if (stream == NULL) {
        return PLASMON_ENOMEM;
    }
    stream->base.device = device;
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
    struct device_cpu_stream *stream = stream_of(base);
    struct device_cpu *cpu           = device_cpu_of(base->device);

    device_cpu_queue_stop(&stream->queue);
    PL_CHECK(pthread_join(stream->thread, NULL) ==
             0); /* the thread uses what is freed below */

    pl_mutex_lock(&cpu->lock);
    pl_list_remove(&stream->link);
    pl_mutex_unlock(&cpu->lock);
    device_cpu_queue_finish(&stream->queue);
    device_cpu_progress_release(stream->progress);
    pl_free(stream);
}

plasmon_status_t device_cpu_stream_sync(struct device_stream *base, struct pl_err *err)
{
    struct device_cpu_stream *stream = stream_of(base);
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

/* ------------------------------------------------------------------------------------------------ enqueuing */

/* The queue's reserve, with room for a payload of a type. The address is written to *out_op. */
static plasmon_status_t enqueue_begin(struct device_cpu_stream *stream, enum op_kind kind,
                                      size_t payload_bytes, void *out_op)
{
    void *payload;
    plasmon_status_t status;

    if (stream->recording == NULL) {
        status = device_cpu_queue_reserve(&stream->queue, (uint32_t)kind, payload_bytes,
                                          &payload);
    } else if (kind == OP_COPY || kind == OP_COPY_PLANNED || kind == OP_FILL ||
               kind == OP_LAUNCH) {
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

static void enqueue_end(struct device_cpu_stream *stream)
{
    if (stream->recording == NULL) {
        device_cpu_queue_push(&stream->queue);
    }
}

plasmon_status_t device_cpu_copy(struct device_stream *base, enum device_copy_kind kind,
                                 uint64_t dst, uint64_t src, uint64_t bytes)
{
    struct device_cpu_stream *stream = stream_of(base);
    struct op_copy *op;
    plasmon_status_t status = enqueue_begin(stream, OP_COPY, sizeof(*op), &op);

    (void)kind; /* host and device are the same memory */
    if (status == PLASMON_OK) {
        *op = (struct op_copy){.dst = dst, .src = src, .bytes = bytes};
        enqueue_end(stream);
    }
    return status;
}

plasmon_status_t device_cpu_copy_planned(struct device_stream *base,
                                         const struct device_copy_plan *plan,
                                         struct device_ptr dst, struct device_ptr src)
{
    struct device_cpu_stream *stream = stream_of(base);
    struct op_copy_planned *op;
    plasmon_status_t status = enqueue_begin(stream, OP_COPY_PLANNED, sizeof(*op), &op);

    if (status == PLASMON_OK) {
        op->plan = *plan;
        op->dst  = dst.addr;
        op->src  = src.addr;
        enqueue_end(stream);
    }
    return status;
}

plasmon_status_t device_cpu_fill8(struct device_stream *base, struct device_ptr dst,
                                  uint8_t value, uint64_t bytes)
{
    struct device_cpu_stream *stream = stream_of(base);
    struct op_fill *op;
    plasmon_status_t status = enqueue_begin(stream, OP_FILL, sizeof(*op), &op);

    if (status == PLASMON_OK) {
        *op = (struct op_fill){.dst = dst.addr, .bytes = bytes, .value = value};
        enqueue_end(stream);
    }
    return status;
}

static plasmon_status_t enqueue_word(struct device_stream *base, enum op_kind kind,
                                     uint64_t *word, uint64_t value)
{
    struct device_cpu_stream *stream = stream_of(base);
    struct op_word *op;
    plasmon_status_t status = enqueue_begin(stream, kind, sizeof(*op), &op);

    if (status == PLASMON_OK) {
        *op = (struct op_word){.word = word, .value = value};
        enqueue_end(stream);
    }
    return status;
}

plasmon_status_t device_cpu_signal(struct device_stream *base, uint64_t *word,
                                   uint64_t value)
{
    return enqueue_word(base, OP_SIGNAL, word, value);
}

plasmon_status_t device_cpu_wait(struct device_stream *base, uint64_t *word, uint64_t value)
{
    return enqueue_word(base, OP_WAIT, word, value);
}

plasmon_status_t device_cpu_notify(struct device_stream *base, int eventfd)
{
    struct device_cpu_stream *stream = stream_of(base);
    struct op_notify *op;
    plasmon_status_t status = enqueue_begin(stream, OP_NOTIFY, sizeof(*op), &op);

    if (status == PLASMON_OK) {
        op->eventfd = eventfd;
        enqueue_end(stream);
    }
    return status;
}

plasmon_status_t device_cpu_join(struct device_stream *base, struct device_stream *other)
{
    struct device_cpu_stream *stream     = stream_of(base);
    struct device_cpu_progress *progress = stream_of(other)->progress;
    uint64_t target                      = atomic_load(&stream_of(other)->queue.published);
    struct op_join *op;
    plasmon_status_t status;

    if (stream->recording != NULL) {
        return PLASMON_ENOTSUP;
    }
    if (atomic_load(&progress->completed) >= target) {
        return PLASMON_OK; /* nothing to wait for */
    }
    status = enqueue_begin(stream, OP_JOIN, sizeof(*op), &op);
    if (status == PLASMON_OK) {
        device_cpu_progress_hold(progress);
        *op = (struct op_join){.progress = progress, .target = target};
        enqueue_end(stream);
    }
    return status;
}

plasmon_status_t device_cpu_launch_enqueue(struct device_stream *base, device_cpu_fn fn,
                                           const void *args, size_t args_bytes,
                                           uint64_t tag)
{
    struct device_cpu_stream *stream = stream_of(base);
    size_t inline_bytes              = args_bytes <= ARGS_INLINE_MAX ? args_bytes : 0;
    void *large_args                 = NULL;
    struct op_launch *op;
    plasmon_status_t status;

    if (args_bytes > ARGS_INLINE_MAX) {
        large_args = pl_alloc(args_bytes);
        if (large_args == NULL) {
            return PLASMON_ENOMEM;
        }
        memcpy(large_args, args, args_bytes);
    }
    status = enqueue_begin(stream, OP_LAUNCH, sizeof(*op) + inline_bytes, &op);
    if (status != PLASMON_OK) {
        pl_free(large_args);
        return status;
    }
    *op = (struct op_launch){.fn = fn, .tag = tag, .large_args = large_args};
    if (inline_bytes > 0) {
        memcpy(op + 1, args, inline_bytes);
    }
    enqueue_end(stream);
    return PLASMON_OK;
}

plasmon_status_t device_cpu_recording_enqueue(struct device_stream *base,
                                              struct device_cpu_recording *recording,
                                              uint64_t tag)
{
    struct device_cpu_stream *stream = stream_of(base);
    struct op_graph *op;
    plasmon_status_t status = enqueue_begin(stream, OP_GRAPH, sizeof(*op), &op);

    if (status == PLASMON_OK) {
        device_cpu_recording_hold(recording);
        *op = (struct op_graph){.recording = recording, .tag = tag};
        enqueue_end(stream);
    }
    return status;
}

/* ------------------------------------------------------------------------------------------------ events */

plasmon_status_t device_cpu_event_create(struct device *device,
                                         struct device_event **out_event)
{
    struct cpu_event *event = PL_NEW(struct cpu_event);

    if (event == NULL) {
        return PLASMON_ENOMEM;
    }
    event->mark = PL_NEW(struct mark);
    if (event->mark == NULL) {
        pl_free(event);
        return PLASMON_ENOMEM;
    }
    atomic_store(&event->mark->refs, 1);
    event->base.device = device;
    *out_event         = &event->base;
    return PLASMON_OK;
}

void device_cpu_event_destroy(struct device_event *base)
{
    struct cpu_event *event = event_of(base);

    mark_release(event->mark);
    pl_free(event);
}

plasmon_status_t device_cpu_event_record(struct device_event *base,
                                         struct device_stream *stream_base)
{
    struct cpu_event *event          = event_of(base);
    struct device_cpu_stream *stream = stream_of(stream_base);
    struct op_record *op;
    plasmon_status_t status = enqueue_begin(stream, OP_RECORD, sizeof(*op), &op);

    if (status == PLASMON_OK) {
        atomic_fetch_add(&event->mark->refs, 1);
        event->recorded++;
        *op = (struct op_record){.mark = event->mark, .number = event->recorded};
        enqueue_end(stream);
    }
    return status;
}

bool device_cpu_event_done(struct device_event *base)
{
    const struct cpu_event *event = event_of(base);

    return atomic_load(&event->mark->reached) >= event->recorded;
}

bool device_cpu_event_host_ns(struct device_event *base, uint64_t *out_ns)
{
    if (event_of(base)->recorded == 0 || !device_cpu_event_done(base)) {
        return false;
    }
    *out_ns = atomic_load(&event_of(base)->mark->time_ns);
    return true;
}

plasmon_status_t device_cpu_event_elapsed_ns(struct device_event *begin,
                                             struct device_event *end, uint64_t *out_ns)
{
    uint64_t begin_ns;
    uint64_t end_ns;

    if (event_of(begin)->recorded == 0 || event_of(end)->recorded == 0) {
        return PLASMON_EINVAL;
    }
    if (!device_cpu_event_done(begin) || !device_cpu_event_done(end)) {
        return PLASMON_INPROGRESS;
    }
    begin_ns = atomic_load(&event_of(begin)->mark->time_ns);
    end_ns   = atomic_load(&event_of(end)->mark->time_ns);
    *out_ns  = end_ns > begin_ns ? end_ns - begin_ns : 0;
    return PLASMON_OK;
}
