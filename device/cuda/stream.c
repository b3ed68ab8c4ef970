/*
 * Streams of a CUDA device, and what is put into them. Every call enqueues and returns; only sync
 * and destroy wait.
 *
 * Streams are non-blocking ones: they have nothing to do with the default stream, which libraries may use.
 *
 * JOIN takes an event of the waiting stream, records it in the other one, and waits for it. A wait
 * refers to the record at the time of the call, so the same event serves the next join at once; and
 * as calls on one stream do not overlap, nobody else uses it in between. Of two that are in
 * different contexts at the moment: far.c.
 *
 * WAIT compares modulo 2^64, as a signed difference: *word may be at most 2^63 - 1 ahead or behind.
 * Timelines count launches, so they never come near.
 */
#include "device/cuda/cuda_int.h"

#include "base/alloc.h"
#include "base/log.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>

struct cuda_event {
    struct device_event base;
    CUevent event;
    bool recorded; /* calls on one event do not overlap */
    /*
     * The last record was in a stream that was away (far.c): this word says when it is reached, and
     * not the event. NULL: not so.
     */
    const uint64_t *way;
    CUdeviceptr way_at;
    uint64_t way_value;
};

static struct cuda_event *event_of(struct device_event *event)
{
    PL_CHECK(event->device->ops == &device_cuda_ops);
    return (struct cuda_event *)(void *)event;
}

static struct device_cuda *cuda_of(struct device_cuda_stream *stream)
{
    return device_cuda_of(stream->base.device);
}

/* --------------------------------------------------------------------------------- life */

plasmon_status_t device_cuda_stream_create(struct device *device, unsigned flags,
                                           struct device_stream **out_stream)
{
    struct device_cuda *cuda = device_cuda_of(device);
    int priority = (flags & DEVICE_STREAM_HIGH_PRIORITY) != 0  ? cuda->priority_high
                   : (flags & DEVICE_STREAM_LOW_PRIORITY) != 0 ? cuda->priority_low
                                                               : cuda->priority_normal;
    struct device_cuda_stream *stream = PL_NEW(struct device_cuda_stream);
    plasmon_status_t status;

    if (stream == NULL) {
        return PLASMON_ENOMEM;
    }
    stream->base.device = device;
    pl_list_init(&stream->link);

    stream->at = &stream->home;

    status = device_cuda_enter(cuda);
    if (status == PLASMON_OK) {
        status = device_cuda_lane_create(cuda, cuda->context, device->info.ordinal,
                                         priority, &stream->home);
    }
    if (status == PLASMON_OK && (flags & DEVICE_STREAM_COPIES) != 0) {
        status =
            DEVICE_CU(cuda, cuStreamCreateWithPriority(&stream->home.aside,
                                                       CU_STREAM_NON_BLOCKING, priority));
    }
    if (status != PLASMON_OK) {
        device_cuda_lane_destroy(cuda, &stream->home);
        pl_free(stream);
        return status;
    }

    if ((flags & DEVICE_STREAM_KEEPS) != 0 &&
        device_cuda_keep_create(stream) != PLASMON_OK) {
        pl_warn("device", "launches go in one by one: %s", device_cuda_last_error());
    }

    pl_mutex_lock(&cuda->lock);
    pl_list_add_tail(&cuda->streams, &stream->link);
    pl_mutex_unlock(&cuda->lock);
    *out_stream = &stream->base;
    return PLASMON_OK;
}

void device_cuda_stream_destroy(struct device_stream *base)
{
    struct device_cuda_stream *stream = device_cuda_stream_of(base);
    struct device_cuda *cuda          = cuda_of(stream);

    pl_mutex_lock(&cuda->lock);
    pl_list_remove(&stream->link);
    pl_mutex_unlock(&cuda->lock);

    /* Whatever fails is logged, and the rest is still tried. */
    (void)device_cuda_stream_sync(base, NULL);
    device_cuda_far_leave(stream);
    if (device_cuda_enter(cuda) == PLASMON_OK) {
        device_cuda_keep_destroy(stream);
        device_cuda_lane_destroy(cuda, &stream->home);
        if (stream->workspace != 0) {
            (void)DEVICE_CU(cuda, cuMemFree(stream->workspace));
        }
    }
    pl_free(stream);
}

plasmon_status_t device_cuda_stream_sync(struct device_stream *base, struct pl_err *err)
{
    struct device_cuda_stream *stream = device_cuda_stream_of(base);
    struct device_cuda *cuda          = cuda_of(stream);
    CUstream on;
    plasmon_status_t status = PLASMON_OK;

    /* First where it is: home would wait for ever for a device that is lost. */
    if (device_cuda_is_away(stream)) {
        status = device_cuda_here(stream, &on);
        if (status == PLASMON_OK) {
            status = DEVICE_CU(cuda, cuStreamSynchronize(on));
        }
    }
    if (status == PLASMON_OK) {
        status = device_cuda_tail(stream, &on);
    }
    if (status == PLASMON_OK) {
        status = DEVICE_CU(cuda, cuStreamSynchronize(on));
    }
    return status == PLASMON_OK ? PLASMON_OK
                                : pl_err_set(err, status, "%s", device_cuda_last_error());
}

/* -------------------------------------------------------------------------------- bytes */

plasmon_status_t device_cuda_copy(struct device_stream *base, enum device_copy_kind kind,
                                  uint64_t dst, uint64_t src, uint64_t bytes)
{
    struct device_cuda_stream *stream = device_cuda_stream_of(base);
    struct device_cuda *cuda          = cuda_of(stream);
    plasmon_status_t status           = device_cuda_enter(cuda);

    if (status != PLASMON_OK) {
        return status;
    }
    switch (kind) {
    case DEVICE_COPY_DEVICE_TO_DEVICE:
        return device_cuda_copy_run(base, dst, src, bytes);
    case DEVICE_COPY_HOST_TO_DEVICE:
        return DEVICE_CU(cuda, cuMemcpyHtoDAsync(dst, (const void *)(uintptr_t)src, bytes,
                                                 device_cuda_stream_on(stream)));
    case DEVICE_COPY_DEVICE_TO_HOST:
        return DEVICE_CU(cuda, cuMemcpyDtoHAsync((void *)(uintptr_t)dst, src, bytes,
                                                 device_cuda_stream_on(stream)));
    }
    return PLASMON_EINVAL;
}

plasmon_status_t device_cuda_fill8(struct device_stream *base, struct device_ptr dst,
                                   uint8_t value, uint64_t bytes)
{
    struct device_cuda_stream *stream = device_cuda_stream_of(base);
    struct device_cuda *cuda          = cuda_of(stream);
    plasmon_status_t status           = device_cuda_enter(cuda);

    return status != PLASMON_OK
               ? status
               : DEVICE_CU(cuda, cuMemsetD8Async(dst.addr, value, bytes,
                                                 device_cuda_stream_on(stream)));
}

/* -------------------------------------------------------------------------------- order */

plasmon_status_t device_cuda_signal(struct device_stream *base, uint64_t *word,
                                    uint64_t value)
{
    struct device_cuda_stream *stream = device_cuda_stream_of(base);
    struct device_cuda *cuda          = cuda_of(stream);
    CUdeviceptr address;
    CUstream on;
    plasmon_status_t status = device_cuda_host_address(cuda, word, sizeof(*word), &address);

    if (base->records) {
        return PLASMON_ENOTSUP; /* a captured value is a constant */
    }
    if (status == PLASMON_OK) {
        status = device_cuda_tail(stream, &on);
    }
    if (status != PLASMON_OK) {
        return status;
    }
    /* The default write has a system-wide fence before it: what the stream did is visible first. */
    return DEVICE_CU(
        cuda, cuStreamWriteValue64(on, address, value, CU_STREAM_WRITE_VALUE_DEFAULT));
}

plasmon_status_t device_cuda_wait(struct device_stream *base, uint64_t *word,
                                  uint64_t value)
{
    struct device_cuda_stream *stream = device_cuda_stream_of(base);
    struct device_cuda *cuda          = cuda_of(stream);
    CUdeviceptr address;
    CUstream on;
    plasmon_status_t status = device_cuda_host_address(cuda, word, sizeof(*word), &address);

    if (base->records) {
        return PLASMON_ENOTSUP; /* a captured value is a constant */
    }
    if (status == PLASMON_OK) {
        status = device_cuda_here(stream, &on);
    }
    if (status != PLASMON_OK) {
        return status;
    }
    return DEVICE_CU(cuda,
                     cuStreamWaitValue64(on, address, value, CU_STREAM_WAIT_VALUE_GEQ));
}

static CUstreamBatchMemOpParams step_of(const struct device_word_step *step,
                                        CUdeviceptr address)
{
    CUstreamBatchMemOpParams params = {.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64};

    if (step->waits) {
        params.waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_64;
        params.waitValue.address   = address;
        params.waitValue.value64   = step->value;
        params.waitValue.flags     = CU_STREAM_WAIT_VALUE_GEQ;
    } else {
        params.writeValue.address = address;
        params.writeValue.value64 = step->value;
        params.writeValue.flags   = CU_STREAM_WRITE_VALUE_DEFAULT;
    }
    return params;
}

/* How many of them go into one stream. */
static uint32_t steps_together(const struct device_cuda_stream *stream,
                               const struct device_word_step *steps, uint32_t count)
{
    uint32_t n = 1;

    while (n < count &&
           (!device_cuda_is_away(stream) || steps[n].waits == steps[0].waits)) {
        n++;
    }
    return n;
}

plasmon_status_t device_cuda_words(struct device_stream *base,
                                   const struct device_word_step *steps, uint32_t count)
{
    struct device_cuda_stream *stream = device_cuda_stream_of(base);
    struct device_cuda *cuda          = cuda_of(stream);
    CUstreamBatchMemOpParams params[DEVICE_WORDS_MAX];
    plasmon_status_t status = base->records ? PLASMON_ENOTSUP : PLASMON_OK;

    for (uint32_t i = 0; i < count && status == PLASMON_OK; i++) {
        CUdeviceptr address = 0;

        status =
            device_cuda_host_address(cuda, steps[i].word, sizeof(*steps[i].word), &address);
        params[i] = step_of(&steps[i], address);
    }
    for (uint32_t i = 0, n; i < count && status == PLASMON_OK; i += n) {
        CUstream on;

        n = steps_together(stream, &steps[i], count - i);
        status =
            steps[i].waits ? device_cuda_here(stream, &on) : device_cuda_tail(stream, &on);
        if (status == PLASMON_OK) {
            status = DEVICE_CU(cuda, cuStreamBatchMemOp(on, n, &params[i], 0));
        }
    }
    return status;
}

/* On a thread of the driver, which must not call CUDA. */
static void notify_host(void *user)
{
    int eventfd  = (int)(intptr_t)user;
    uint64_t one = 1;
    ssize_t written;

    do {
        written = write(eventfd, &one, sizeof(one));
    } while (written < 0 && errno == EINTR);

    /* EAGAIN: the counter is full, so the poller has been woken already. */
    if (written < 0 && errno != EAGAIN) {
        pl_error("device", "cannot notify descriptor %d: %s", eventfd, strerror(errno));
    }
}

plasmon_status_t device_cuda_notify(struct device_stream *base, int eventfd)
{
    struct device_cuda_stream *stream = device_cuda_stream_of(base);
    struct device_cuda *cuda          = cuda_of(stream);
    plasmon_status_t status           = device_cuda_enter(cuda);

    if (base->records) {
        return PLASMON_ENOTSUP;
    }
    return status != PLASMON_OK
               ? status
               : DEVICE_CU(cuda, cuLaunchHostFunc(device_cuda_stream_on(stream),
                                                  notify_host, (void *)(intptr_t)eventfd));
}

plasmon_status_t device_cuda_go_behind(struct device_cuda_stream *stream, CUstream on,
                                       CUstream other)
{
    struct device_cuda *cuda = cuda_of(stream);
    CUevent event            = stream->at->join_event;
    plasmon_status_t status  = DEVICE_CU(cuda, cuEventRecord(event, other));

    return status == PLASMON_OK
               ? DEVICE_CU(cuda, cuStreamWaitEvent(on, event, CU_EVENT_WAIT_DEFAULT))
               : status;
}

plasmon_status_t device_cuda_join(struct device_stream *base, struct device_stream *other)
{
    struct device_cuda_stream *stream = device_cuda_stream_of(base);
    struct device_cuda_stream *there  = device_cuda_stream_of(other);
    CUstream on, behind;
    plasmon_status_t status;

    if (base->records) {
        return PLASMON_ENOTSUP; /* marks are for that */
    }
    status = device_cuda_here(stream, &on); /* what it keeps goes in first */
    if (status == PLASMON_OK) {
        status = device_cuda_tail(there, &behind);
    }
    if (status == PLASMON_OK && device_cuda_is_away(stream)) {
        return device_cuda_far_join(stream, there);
    }
    return status == PLASMON_OK ? device_cuda_go_behind(stream, on, behind) : status;
}

/* ------------------------------------------------------------------------------- events */

plasmon_status_t device_cuda_event_create(struct device *device, bool timed,
                                          struct device_event **out_event)
{
    struct device_cuda *cuda = device_cuda_of(device);
    struct cuda_event *event = PL_NEW(struct cuda_event);
    plasmon_status_t status;

    if (event == NULL) {
        return PLASMON_ENOMEM;
    }
    event->base.device = device;
    status             = device_cuda_enter(cuda);
    if (status == PLASMON_OK) {
        status =
            DEVICE_CU(cuda, cuEventCreate(&event->event, timed ? CU_EVENT_DEFAULT
                                                               : CU_EVENT_DISABLE_TIMING));
    }
    if (status != PLASMON_OK) {
        pl_free(event);
        return status;
    }
    *out_event = &event->base;
    return PLASMON_OK;
}

void device_cuda_event_destroy(struct device_event *base)
{
    struct cuda_event *event = event_of(base);
    struct device_cuda *cuda = device_cuda_of(base->device);

    if (device_cuda_enter(cuda) == PLASMON_OK) {
        (void)DEVICE_CU(cuda,
                        cuEventDestroy(event->event)); /* logged; nothing else to do */
    }
    pl_free(event);
}

plasmon_status_t device_cuda_event_record(struct device_event *base,
                                          struct device_stream *of)
{
    struct cuda_event *event          = event_of(base);
    struct device_cuda_stream *stream = device_cuda_stream_of(of);
    struct device_cuda *cuda          = cuda_of(stream);
    bool away                         = !base->timed && device_cuda_is_away(stream);
    plasmon_status_t status           = PLASMON_ENOTSUP;

    if (of->records) {
        return status;
    }
    if (away) {
        status = device_cuda_far_mark(stream, &event->way_value);
    } else {
        CUstream on = device_cuda_stream_on(stream);

        status = device_cuda_enter(cuda);
        status = status == PLASMON_OK ? DEVICE_CU(cuda, cuEventRecord(event->event, on))
                                      : status;
    }
    if (status == PLASMON_OK) {
        event->recorded = true;
        event->way      = away ? stream->way : NULL;
        event->way_at   = stream->way_at;
    }
    return status;
}

plasmon_status_t device_cuda_event_behind(struct device_stream *base,
                                          struct device_event *event)
{
    struct device_cuda_stream *stream = device_cuda_stream_of(base);
    CUstream on;
    plasmon_status_t status;

    if (base->records) {
        return PLASMON_ENOTSUP;
    }
    if (!event_of(event)->recorded) {
        return PLASMON_EINVAL;
    }
    status = device_cuda_here(stream, &on);
    if (status != PLASMON_OK) {
        return status;
    }
    return event_of(event)->way != NULL
               ? DEVICE_CU(cuda_of(stream), cuStreamWaitValue64(on, event_of(event)->way_at,
                                                                event_of(event)->way_value,
                                                                CU_STREAM_WAIT_VALUE_GEQ))
               : DEVICE_CU(cuda_of(stream), cuStreamWaitEvent(on, event_of(event)->event,
                                                              CU_EVENT_WAIT_DEFAULT));
}

bool device_cuda_event_done(struct device_event *base)
{
    struct device_cuda *cuda       = device_cuda_of(base->device);
    const struct cuda_event *event = event_of(base);
    CUresult result;

    if (event->way != NULL) { /* acquire: what comes before it is seen, too */
        return __atomic_load_n(event->way, __ATOMIC_ACQUIRE) >= event->way_value;
    }
    if (device_cuda_enter(cuda) != PLASMON_OK) {
        return false;
    }
    result = device_cuda_driver.cuEventQuery(event->event);
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY) {
        (void)device_cuda_fail(cuda, result, "cuEventQuery"); /* it has not come */
    }
    return result == CUDA_SUCCESS;
}

plasmon_status_t device_cuda_event_elapsed_ns(struct device_event *begin,
                                              struct device_event *end, uint64_t *out_ns)
{
    struct device_cuda *cuda = device_cuda_of(begin->device);
    float elapsed_ms         = 0;
    plasmon_status_t status;

    if (!event_of(begin)->recorded || !event_of(end)->recorded) {
        return PLASMON_EINVAL;
    }
    status = device_cuda_enter(cuda);
    if (status == PLASMON_OK) {
        status = DEVICE_CU(cuda, cuEventElapsedTime(&elapsed_ms, event_of(begin)->event,
                                                    event_of(end)->event));
    }
    if (status == PLASMON_OK) {
        *out_ns = elapsed_ms > 0 ? (uint64_t)((double)elapsed_ms * 1e6) : 0;
    }
    return status;
}
