#include "worker/executor_int.h"

#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/fd.h"
#include "base/log.h"

/*
 * Streams are for overlap, not for safety (docs/ordering.md). Eight keep a GPU busy with the graphs
 * of bench/ (docs/measurements.md has fewer); a CPU device's streams are threads, and its kernels
 * compete for the same cores.
 */
#define RUN_STREAMS_CUDA 8u
#define RUN_STREAMS_CPU  2u

static uint32_t run_streams_of(enum device_kind kind)
{
    return kind == DEVICE_CUDA ? RUN_STREAMS_CUDA : RUN_STREAMS_CPU;
}

/* A call that may only fail when the device is lost: who runs us must know, whatever the core makes of it. */
plasmon_status_t worker_executor_must(struct worker_executor *executor,
                                      plasmon_status_t status)
{
    if (status != PLASMON_OK && executor->broken == PLASMON_OK) {
        executor->broken = status;
    }
    return status;
}

static struct store_timeline *own_timeline(const struct worker_executor *executor)
{
    return executor->shared->timelines[executor->shared->host_device];
}

/* -------------------------------------------------------------------------------- order */

static plasmon_status_t op_grow(void *user, uint32_t pool, uint64_t bytes)
{
    struct worker_executor *executor = user;

    for (uint32_t i = 0; i < executor->stream_count; i++) { /* it takes long */
        device_stream_flush(executor->streams[i]);
    }
    return worker_memory_grow(executor->memory, pool, bytes);
}

static plasmon_status_t op_wait(void *user, uint32_t stream, uint32_t host_device,
                                uint64_t *word, uint64_t value)
{
    struct worker_executor *executor = user;

    (void)host_device;
    return worker_executor_must(executor, device_wait(stream == WORKER_STREAM_ALONE
                                                          ? executor->alone
                                                          : executor->streams[stream],
                                                      word, value));
}

static plasmon_status_t op_join(void *user, uint32_t stream, uint32_t other)
{
    struct worker_executor *executor = user;

    return worker_executor_must(
        executor, device_stream_join(executor->streams[stream], executor->streams[other]));
}

static plasmon_status_t op_source(void *user, uint32_t stream, uint32_t host_device,
                                  uint64_t bytes, uint64_t seq)
{
    struct worker_executor *executor = user;

    return worker_executor_must(
        executor, device_stream_source(
                      executor->streams[stream],
                      worker_sources_engines(&executor->sources, host_device, bytes, seq)));
}

static bool op_words_late(void *user, uint32_t stream)
{
    const struct worker_executor *executor = user;

    return device_stream_words_late(executor->streams[stream]);
}

static plasmon_status_t op_settle(void *user, uint32_t stream)
{
    struct worker_executor *executor = user;

    return worker_executor_must(executor, device_stream_settle(executor->streams[stream]));
}

static plasmon_status_t op_mark(void *user, uint32_t stream, uint32_t slot)
{
    struct worker_executor *executor = user;
    struct device_event **event      = &executor->marks[stream][slot];
    plasmon_status_t status =
        *event != NULL ? PLASMON_OK : device_event_create(executor->device, false, event);

    return status == PLASMON_OK ? device_event_record(*event, executor->streams[stream])
                                : status; /* the core joins instead */
}

static plasmon_status_t op_join_mark(void *user, uint32_t stream, uint32_t other,
                                     uint32_t slot)
{
    struct worker_executor *executor = user;

    return worker_executor_must(
        executor,
        device_stream_behind(executor->streams[stream], executor->marks[other][slot]));
}

plasmon_status_t worker_executor_notify(struct worker_executor *executor, uint32_t stream)
{
    return device_get_info(executor->device)->notify_stalls
               ? PLASMON_OK
               : device_notify(executor->streams[stream], executor->notify_fd);
}

static plasmon_status_t op_signal(void *user, uint32_t stream, uint64_t seq)
{
    struct worker_executor *executor = user;
    plasmon_status_t status;

    status = pl_fault_point("worker.signal")
                 ? PLASMON_EDEVICE
                 : device_signal(executor->streams[stream],
                                 &own_timeline(executor)->stream[stream].value, seq);
    return worker_executor_must(
        executor, status == PLASMON_OK ? worker_executor_notify(executor, stream) : status);
}

static void op_flush(void *user, uint32_t stream)
{
    const struct worker_executor *executor = user;

    device_stream_flush(executor->streams[stream]);
}

static plasmon_status_t op_begin(void *user, uint32_t stream, uint64_t seq)
{
    struct worker_executor *executor = user;

    return worker_executor_must(
        executor, device_signal(executor->streams[stream],
                                &own_timeline(executor)->begun[stream].value, seq));
}

static void op_stir(void *user)
{
    struct worker_executor *executor = user;

    if (executor->unwatched) {
        executor->unwatched = false;
        pl_fd_raise(executor->bell_fd);
    }
}

/* The main thread comes round at once, and looks at all else on its way. */
static void op_again(void *user)
{
    struct worker_executor *executor = user;

    pl_fd_raise(executor->notify_fd);
}

static void op_wake(void *user, uint64_t *word)
{
    (void)user;
    device_word_wake(word);
}

/*
 * Only those that wait for us. The fence pairs with the one in main.c (waits_publish): either we
 * see that they wait, or they see what we published.
 */
static bool op_written(void *user, uint32_t slot)
{
    struct worker_executor *executor = user;

    return worker_lanes_write(&executor->lanes, slot) ||
           worker_bulk_clients_hold(&executor->bulk.clients, slot);
}

static uint64_t op_now(void *user)
{
    (void)user;
    return pl_now_ns();
}

static void op_ring_doorbells(void *user)
{
    struct worker_executor *executor = user;
    struct worker_shared *shared     = executor->shared;
    uint64_t one                     = 1;

    worker_shared_fence();
    for (uint32_t i = 0; i < shared->host_device_count; i++) {
        uint64_t waits_for =
            __atomic_load_n(&shared->timelines[i]->waits_for, __ATOMIC_RELAXED);

        if (i != shared->host_device &&
            (waits_for & UINT64_C(1) << shared->host_device) != 0 &&
            write(shared->doorbells[i], &one, sizeof(one)) != (ssize_t)sizeof(one)) {
            pl_debug("worker", "doorbell of device %u of this host is full",
                     i); /* it rings */
        }
    }
}

/* ------------------------------------------------------------------------------ reports */

static void op_report_done(void *user, uint64_t first, uint64_t count)
{
    const struct worker_executor *executor = user;

    executor->reports->done(executor->reports->user, first, count);
}

static void op_report_failed(void *user, uint64_t seq, plasmon_status_t status,
                             const char *text)
{
    const struct worker_executor *executor = user;

    executor->reports->failed(executor->reports->user, seq, status, text);
}

static void op_report_function(void *user, uint32_t id, plasmon_status_t status,
                               const char *text)
{
    const struct worker_executor *executor = user;

    executor->reports->function(executor->reports->user, id, status, text);
}

static void op_report_starved(void *user, uint64_t seq, uint64_t bytes,
                              uint64_t largest_hole)
{
    const struct worker_executor *executor = user;

    executor->reports->starved(executor->reports->user, seq, bytes, largest_hole);
}

static void op_report_refused(void *user, uint64_t request, plasmon_status_t status,
                              const uint64_t *buffers, size_t count)
{
    const struct worker_executor *executor = user;

    executor->reports->refused(executor->reports->user, request, status, buffers, count);
}

static void op_report_condemned(void *user, const struct worker_condemned *condemned)
{
    const struct worker_executor *executor = user;

    executor->reports->condemned(executor->reports->user, condemned);
}

static void *op_span_begin(void *user, uint32_t stream)
{
    struct worker_executor *executor = user;

    return executor->trace.on
               ? worker_trace_begin(&executor->trace, executor->streams[stream])
               : NULL;
}

static void op_span_end(void *user, uint32_t stream, void *span)
{
    const struct worker_executor *executor = user;

    worker_trace_end(span, executor->streams[stream]);
}

static void op_span_done(void *user, void *span, const struct worker_span *facts)
{
    struct worker_executor *executor = user;

    worker_trace_done(&executor->trace, span, facts);
}

static void read_over(void *user, uint64_t request, const uint8_t *bytes, uint64_t length)
{
    const struct worker_executor *executor = user;

    plasmon_status_t status = worker_core_relieved(executor->core, request);

    if (status == PLASMON_OK) {
        executor->reports->data(executor->reports->user, request, bytes, length);
    } else {
        executor->reports->refused(executor->reports->user, request, status, NULL, 0);
    }
}

/* After the words were read: a launch that the words cover has left its failure and its bytes by now. */
static void op_collect(void *user)
{
    struct worker_executor *executor = user;
    struct pl_err err;
    uint64_t tag;

    while (kernel_failure(executor->kernels, &tag, &err)) {
        worker_core_failed(executor->core, tag, err.status, err.text);
    }
    worker_inline_collect(&executor->reads, read_over, executor);
    worker_check_collect(&executor->check);
    worker_functions_collect(&executor->functions);
    worker_pairs_collect(executor);
}

const struct worker_ops worker_executor_ops = {
    .grow             = op_grow,
    .wait             = op_wait,
    .join             = op_join,
    .mark             = op_mark,
    .join_mark        = op_join_mark,
    .source           = op_source,
    .words_late       = op_words_late,
    .settle           = op_settle,
    .copy             = worker_op_copy,
    .stage_send       = worker_op_stage_send,
    .stage_recv       = worker_op_stage_recv,
    .bulk_peer        = worker_op_bulk_peer,
    .bulk_gone        = worker_op_bulk_gone,
    .bulk_give_up     = worker_op_bulk_give_up,
    .bulk_send        = worker_op_bulk_send,
    .bulk_recv        = worker_op_bulk_recv,
    .bulk_expect      = worker_op_bulk_expect,
    .pair_open        = worker_pair_op_open,
    .pair_close       = worker_pair_op_close,
    .pair_break       = worker_pair_op_break,
    .pair_abort       = worker_pair_op_abort,
    .pair_free        = worker_pair_op_free,
    .pair_settled     = worker_pair_op_settled,
    .pair_room        = worker_pair_op_room,
    .pair_move        = worker_pair_op_move,
    .pair_stage       = worker_pair_op_stage,
    .pair_sent        = worker_pair_op_sent,
    .report_pair      = worker_pair_op_report,
    .put              = worker_op_put,
    .read             = worker_op_read,
    .put_host         = worker_op_put_host,
    .get_host         = worker_op_get_host,
    .host_ready       = worker_op_host_ready,
    .scratch_bytes    = worker_op_scratch_bytes,
    .own_scratch      = worker_op_own_scratch_bytes,
    .operations       = worker_op_operations,
    .prepare          = worker_op_prepare,
    .prepared_release = worker_op_prepared_release,
    .run              = worker_op_run,
    .combine          = worker_op_combine,
    .function         = worker_op_function,
    .function_text    = worker_op_function_text,
    .run_defined      = worker_op_run_defined,
    .fill_identity    = worker_op_fill_identity,
    .begin            = op_begin,
    .span_begin       = op_span_begin,
    .span_end         = op_span_end,
    .span_done        = op_span_done,
    .signal           = op_signal,
    .flush            = op_flush,
    .collect          = op_collect,
    .wake             = op_wake,
    .stir             = op_stir,
    .again            = op_again,
    .written          = op_written,
    .now              = op_now,
    .ring_doorbells   = op_ring_doorbells,
    .report_done      = op_report_done,
    .report_failed    = op_report_failed,
    .report_starved   = op_report_starved,
    .report_refused   = op_report_refused,
    .report_condemned = op_report_condemned,
    .record_begin     = worker_op_record_begin,
    .record_mark      = worker_op_record_mark,
    .record_after     = worker_op_record_after,
    .record_end       = worker_op_record_end,
    .record_item      = worker_op_record_item,
    .change_begin     = worker_op_change_begin,
    .change_end       = worker_op_change_end,
    .replay           = worker_op_replay,
    .record_drop      = worker_op_record_drop,
};

/* --------------------------------------------------------------------------------- life */

/* PLASMON_COALESCE=0: each launch goes to the driver by itself, at once. */
static bool launches_coalesce(void)
{
    const char *text = getenv("PLASMON_COALESCE");

    return text == NULL || strcmp(text, "0") != 0;
}

static plasmon_status_t streams_create(struct worker_executor *executor)
{
    unsigned keeps = launches_coalesce() ? DEVICE_STREAM_KEEPS : 0;

    if (executor->run_streams == 0) {
        executor->run_streams = run_streams_of(device_get_info(executor->device)->kind);
    }
    for (uint32_t i = 0; i < executor->run_streams + WORKER_ROLE_STREAMS +
                                 WORKER_URGENT_STREAMS + WORKER_LOW_STREAMS;
         i++) {
        uint32_t low = executor->run_streams + WORKER_ROLE_STREAMS + WORKER_URGENT_STREAMS;
        unsigned flags = i < executor->run_streams ? 0
                         : i < low                 ? DEVICE_STREAM_HIGH_PRIORITY
                                                   : DEVICE_STREAM_LOW_PRIORITY;
        bool runs =
            i < executor->run_streams || i >= executor->run_streams + WORKER_ROLE_STREAMS;
        plasmon_status_t status;

        flags |= runs ? keeps : 0;
        flags |= worker_stream_copies(executor->run_streams, i) ? DEVICE_STREAM_COPIES : 0;
        status = device_stream_create(executor->device, flags, &executor->streams[i]);

        if (status != PLASMON_OK) {
            return status;
        }
        executor->stream_count++;
    }
    return PLASMON_OK;
}

static plasmon_status_t timelines_register(struct worker_executor *executor)
{
    struct worker_shared *shared = executor->shared;
    plasmon_status_t status      = PLASMON_OK;

    for (uint32_t i = 0; status == PLASMON_OK && i < shared->host_device_count; i++) {
        status = device_host_register(executor->device, shared->timelines[i],
                                      shared->timeline_bytes);
    }
    return status;
}

/* What fails on a GPU is marked in our timeline by the device itself, before its word. */
static plasmon_status_t failures_mark(struct worker_executor *executor, struct pl_err *err)
{
    struct kernel_marks marks = {
        .count = STORE_RING, .bit = STORE_RING_FAILED, .shift = STORE_RING_SEQ_SHIFT};
    plasmon_status_t status = PLASMON_OK;

    if (device_get_info(executor->device)->kind == DEVICE_CUDA) {
        status = device_host_address(executor->device, own_timeline(executor)->ring,
                                     sizeof(own_timeline(executor)->ring), &marks.entries);
        if (status != PLASMON_OK) {
            return pl_err_set(err, status, "the device does not reach its own timeline");
        }
        kernel_context_set_marks(executor->kernels, &marks);
    }
    return PLASMON_OK;
}

plasmon_status_t worker_executor_init(struct worker_executor *executor,
                                      struct device *device, struct kernel_context *kernels,
                                      struct worker_shared *shared,
                                      struct worker_memory *memory, uint32_t run_streams,
                                      const struct worker_reports *reports,
                                      struct pl_err *err)
{
    plasmon_status_t status;

    memset(executor, 0, sizeof(*executor));
    executor->device      = device;
    executor->kernels     = kernels;
    executor->shared      = shared;
    executor->memory      = memory;
    executor->reports     = reports;
    executor->run_streams = run_streams;
    executor->check       = (struct worker_check){
              .device = device, .kernels = &executor->kernels, .core = &executor->core};
    worker_bulk_init(&executor->bulk);
    worker_sources_init(&executor->sources, device, shared);

    executor->notify_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    executor->bell_fd   = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (executor->notify_fd < 0 || executor->bell_fd < 0) {
        return pl_err_set(err, PLASMON_ELIMIT, "no eventfd for completions");
    }
    status =
        worker_lanes_init(&executor->lanes, device, shared, memory, &executor->counters);
    if (status == PLASMON_OK) {
        status = worker_host_buffers_init(&executor->host_buffers, device, shared,
                                          executor->notify_fd);
    }
    if (status == PLASMON_OK) {
        status = timelines_register(executor);
    }
    if (status == PLASMON_OK) {
        status = streams_create(executor);
    }
    if (status == PLASMON_OK && device_get_info(device)->kind == DEVICE_CUDA) {
        status = worker_lanes_open(&executor->lanes);
    }
    if (status == PLASMON_OK) {
        status = worker_trace_init(&executor->trace, device, executor->run_streams);
    }
    if (status == PLASMON_OK) {
        status = worker_inline_init(&executor->puts, device);
    }
    if (status == PLASMON_OK) {
        status = worker_inline_init(&executor->reads, device);
    }
    if (status != PLASMON_OK) {
        return pl_err_set(err, status, "streams and timelines of the device: %s",
                          pl_status_text(status));
    }
    status =
        worker_functions_init(&executor->functions, device, &executor->core,
                              &executor->kernels, executor->notify_fd, op_report_function,
                              executor, &own_timeline(executor)->suspects, err);
    return status == PLASMON_OK ? failures_mark(executor, err) : status;
}

void worker_executor_finish(struct worker_executor *executor)
{
    for (uint32_t i = 0; i < executor->stream_count; i++) {
        device_stream_destroy(executor->streams[i]);
        for (uint32_t slot = 0; slot < WORKER_MARKS; slot++) {
            device_event_destroy(executor->marks[i][slot]);
        }
    }
    transfer_pairs_destroy(executor->pairs);
    worker_bulk_finish(&executor->bulk);
    worker_lanes_finish(&executor->lanes);
    worker_host_buffers_finish(&executor->host_buffers);
    worker_trace_finish(&executor->trace);
    worker_check_finish(&executor->check);
    worker_functions_finish(&executor->functions);
    worker_inline_finish(&executor->puts);
    worker_inline_finish(&executor->reads);
    if (executor->kernels != NULL) {
        kernel_context_destroy(executor->kernels);
    }
    pl_fd_close(&executor->notify_fd);
    pl_fd_close(&executor->bell_fd);
}

plasmon_status_t worker_executor_health(struct worker_executor *executor,
                                        struct pl_err *err)
{
    plasmon_status_t status = device_health(executor->device, err);

    if (status == PLASMON_OK) {
        (void)worker_executor_must(executor, worker_lanes_health(&executor->lanes));
    }
    if (status == PLASMON_OK && executor->broken != PLASMON_OK) {
        status = pl_err_set(err, executor->broken, "the device refused a call: %s",
                            pl_status_text(executor->broken));
    }
    return status;
}
