/*
 * What is done: the head of each stream's FIFO is compared with the stream's word. Completions of
 * all streams are taken in order of seq, so that neighbours become one range; a failure is reported
 * in place of "done".
 */
#include "worker/core_int.h"

#include <signal.h>

#include "base/fault.h"
#include "base/log.h"

static struct worker_stream *next_done(struct worker_core *core, const uint64_t *words)
{
    struct worker_stream *best = NULL;

    for (uint32_t i = 0; i < core->stream_count; i++) {
        struct worker_stream *stream = &core->streams[i];

        if (stream->running.first != NULL && stream->running.first->seq <= words[i] &&
            (best == NULL || stream->running.first->seq < best->running.first->seq)) {
            best = stream;
        }
    }
    return best;
}

static void range_report(struct worker_core *core, struct wire_range *range)
{
    if (range->count != 0) {
        core->config.ops->report_done(core->config.user, range->first, range->count);
    }
    range->count = 0;
}

static void span_done(struct worker_core *core, const struct worker_launch *launch,
                      uint32_t stream)
{
    struct worker_span facts;

    if (launch->span != NULL) {
        worker_launch_facts(core, launch, stream, &facts);
        core->config.ops->span_done(core->config.user, launch->span, &facts);
    }
}

static void launch_done(struct worker_core *core, struct worker_stream *stream,
                        struct wire_range *io_range)
{
    struct worker_launch *launch = worker_fifo_pop(&stream->running);

    worker_launch_expect(stream->running.first);
    stream->over = stream->running.first == NULL ? stream->put : launch->put;
    worker_condemn_done(core, launch, stream);
    worker_pair_received(core, launch);
    span_done(core, launch, (uint32_t)(stream - core->streams));
    worker_traffic_done(core, launch, stream);
    worker_buffers_done(core, launch);
    if (launch->failure != PLASMON_OK) {
        range_report(core, io_range);
        core->config.ops->report_failed(core->config.user, launch->seq, launch->failure,
                                        launch->failure_text != NULL
                                            ? launch->failure_text
                                            : pl_status_text(launch->failure));
    } else if (io_range->count != 0 && io_range->first + io_range->count == launch->seq) {
        io_range->count++;
    } else {
        range_report(core, io_range);
        *io_range = (struct wire_range){.first = launch->seq, .count = 1};
    }
    worker_launch_destroy(core, launch);
}

void worker_core_complete(struct worker_core *core)
{
    struct wire_range range = {.count = 0};
    struct worker_stream *stream;
    uint64_t words[STORE_STREAM_MAX];

    for (uint32_t i = 0; i < core->stream_count; i++) {
        words[i] = worker_stream_word(core, i);
    }
    if (core->config.ops->collect != NULL) {
        core->config.ops->collect(core->config.user);
    }
    worker_pace_done(core, words);
    while ((stream = next_done(core, words)) != NULL) {
        launch_done(core, stream, &range);
    }
    range_report(core, &range);

    worker_buffers_free_doomed(core);
    worker_reuse_done(core);
    if (core->waits_unpin || core->waits_running || core->waits_pair ||
        ((core->waits_memory || core->waits_chunk) &&
         core->freed_count != core->starved_at)) {
        worker_core_advance(core);
    } else if ((core->waits_quiet || core->graphs_gone != NULL) &&
               worker_streams_quiet(core)) {
        worker_core_advance(core); /* a function may be loaded now */
    } else if (!core->advancing) {
        worker_streams_flush(core); /* signals that waited for what was seen now */
    }
}

void worker_core_failed(struct worker_core *core, uint64_t seq, plasmon_status_t status,
                        const char *text)
{
    for (uint32_t i = 0; i < core->stream_count; i++) {
        for (struct worker_launch *launch = core->streams[i].running.first; launch != NULL;
             launch                       = launch->next) {
            if (launch->seq == seq) {
                if (store_timeline_done(core->timeline, seq) &&
                    pl_fault_point("worker.die_of_failure")) {
                    /* the word is out, and nobody heard of the failure */
                    (void)raise(SIGKILL);
                }
                worker_launch_fail(launch, status, "%s", text);
                if (!pl_bug("worker.forget_failures")) {
                    store_timeline_mark(core->timeline, seq, true);
                }
                return;
            }
        }
    }
    pl_warn("worker", "launch %llu failed after it was reported: %s",
            (unsigned long long)seq, text);
}

void worker_core_describe_running(const struct worker_core *core, struct pl_str *out)
{
    const char *separator = "";

    for (uint32_t i = 0; i < core->stream_count; i++) {
        const struct worker_launch *launch = core->streams[i].running.first;
        uint64_t word                      = worker_stream_word(core, i);

        while (launch != NULL && launch->seq <= word) {
            launch = launch->next;
        }
        if (launch != NULL) {
            pl_str_append(out, "%sstream %u: ", separator, i);
            worker_launch_describe(launch, out);
            separator = "; ";
        }
    }
}
