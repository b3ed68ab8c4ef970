/*
 * Events of a CPU device: a time stamp that a stream's thread takes when it gets there. Event and
 * stream share a mark, which the stream may reach after the event was destroyed.
 */
#include "device/cpu/ops.h"

#include "base/alloc.h"

struct cpu_event {
    struct device_event base;
    uint64_t recorded; /* how many times; calls on one event do not overlap */
    /* of the stream it was last recorded in; NULL: never */
    struct device_cpu_progress *progress;
    uint64_t target; /* of that, when the event has been reached */
    struct device_cpu_mark *mark;
};

static struct cpu_event *event_of(struct device_event *event)
{
    PL_CHECK(event->device->ops == &device_cpu_ops);
    return (struct cpu_event *)(void *)event;
}

void device_cpu_mark_release(struct device_cpu_mark *mark)
{
    if (atomic_fetch_sub(&mark->refs, 1) == 1) {
        pl_free(mark);
    }
}

plasmon_status_t device_cpu_event_create(struct device *device, bool timed,
                                         struct device_event **out_event)
{
    struct cpu_event *event = PL_NEW(struct cpu_event);

    if (event == NULL) {
        return PLASMON_ENOMEM;
    }
    (void)timed; /* a thread's clock costs nothing */
    event->mark = PL_NEW(struct device_cpu_mark);
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

    device_cpu_mark_release(event->mark);
    if (event->progress != NULL) {
        device_cpu_progress_release(event->progress);
    }
    pl_free(event);
}

plasmon_status_t device_cpu_event_record(struct device_event *base,
                                         struct device_stream *stream_base)
{
    struct cpu_event *event          = event_of(base);
    struct device_cpu_stream *stream = device_cpu_stream_of(stream_base);
    struct device_cpu_op_record *op;
    plasmon_status_t status =
        device_cpu_enqueue_begin(stream, DEVICE_CPU_OP_RECORD, sizeof(*op), &op);

    if (status == PLASMON_OK) {
        atomic_fetch_add(&event->mark->refs, 1);
        event->recorded++;
        *op = (struct device_cpu_op_record){.mark = event->mark, .number = event->recorded};
        device_cpu_enqueue_end(stream);
        device_cpu_progress_hold(stream->progress);
        if (event->progress != NULL) {
            device_cpu_progress_release(event->progress);
        }
        event->progress = stream->progress;
        event->target   = atomic_load(&stream->queue.published);
    }
    return status;
}

plasmon_status_t device_cpu_event_behind(struct device_stream *stream,
                                         struct device_event *base)
{
    const struct cpu_event *event = event_of(base);

    return event->progress == NULL
               ? PLASMON_EINVAL
               : device_cpu_behind(stream, event->progress, event->target);
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
