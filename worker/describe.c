/*
 * Who waits for what, in words: for people who look at a cluster that does not move (SIGUSR1,
 * worker/daemon.c). Reads only.
 *
 * A line each. The first one is the front of the queue and what it waits for on the host. Then each
 * stream with work in it: the oldest launch that is not done, its word, and the points of other
 * devices that the launch waits for and that are not reached. Following these from worker to worker
 * ends at whoever holds up the others.
 */
#include "worker/core_int.h"

#include "store/timeline.h"

static const char *host_wait(const struct worker_core *core)
{
    if (core->waits_running) {
        return "for room: as many launches, or operations in its stream, are enqueued as "
               "may be";
    }
    if (core->waits_memory) {
        return "for memory";
    }
    if (core->waits_chunk) {
        return "for the store to keep new memory";
    }
    if (core->waits_host) {
        return "for host memory to be page-locked";
    }
    if (core->waits_unpin) {
        return "for readers of what it overwrites";
    }
    if (core->waits_for != 0) {
        return "for a launch of another device to be published";
    }
    if (core->waits_quiet) {
        return "until nothing is on the device";
    }
    if (core->waits_pair) {
        return "for a pair";
    }
    return worker_condemn_frozen(core) ? "for a launch that is being ended" : "for nothing";
}

/* The points of other devices that are open, of one launch. */
static void describe_points(const struct worker_core *core,
                            const struct worker_launch *launch, struct pl_str *out)
{
    for (uint32_t i = 0; i < launch->after_count; i++) {
        uint64_t seq = wire_point_seq(launch->after[i]);
        uint32_t host_device =
            worker_host_device_of(core, wire_point_device(launch->after[i]));
        struct store_timeline *other;
        enum store_point_state state;

        if (host_device == core->config.host_device) {
            continue; /* of ours, and before it */
        }
        if (host_device >= core->config.host_device_count) {
            pl_str_append(out, ", after launch %llu of device %u (not on this host)",
                          (unsigned long long)seq, wire_point_device(launch->after[i]));
            continue;
        }
        other = core->config.timelines[host_device];
        state = other == NULL ? STORE_POINT_UNKNOWN
                              : store_timeline_point(other, seq, NULL, NULL);
        if (state != STORE_POINT_DONE) {
            pl_str_append(out, ", after launch %llu of host device %u (%s)",
                          (unsigned long long)seq, host_device,
                          state == STORE_POINT_ENQUEUED ? "enqueued" : "not enqueued");
        }
    }
}

static void describe_stream(const struct worker_core *core, uint32_t index,
                            struct pl_str *out)
{
    const struct worker_stream *stream = &core->streams[index];

    if (stream->running.first == NULL) {
        return;
    }
    pl_str_append(out, "\nstream %u: word %llu, last %llu, signalled %llu, ", index,
                  (unsigned long long)worker_stream_word(core, index),
                  (unsigned long long)stream->last, (unsigned long long)stream->signalled);
    worker_launch_describe(stream->running.first, out);
    worker_pair_describe(core, stream->running.first, out);
    describe_points(core, stream->running.first, out);
}

void worker_core_describe(const struct worker_core *core, struct pl_str *out)
{
    if (core->queue.first == NULL) {
        pl_str_append(out, "nothing is queued");
    } else {
        pl_str_append(out, "%u queued, the first, ", core->queue.count);
        worker_launch_describe(core->queue.first, out);
        pl_str_append(out, ", waits %s", host_wait(core));
        worker_pair_describe(core, core->queue.first, out);
        describe_points(core, core->queue.first, out);
    }
    for (uint32_t i = 0; i < core->stream_count; i++) {
        describe_stream(core, i, out);
    }
}
