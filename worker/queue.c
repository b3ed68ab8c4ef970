/*
 * The front of the queue. Launches leave in order of seq, and each only when nothing it needs is
 * open any more:
 *
 *   1. every launch of another device that it waits for is published, so that a stream may wait for it
 *   2. its function exists and takes its arguments
 *   3. memory for all its fresh buffers and its scratch is in hand, all or nothing
 *   4. no reader holds a buffer that it overwrites
 *   5. a graph that must be recorded finds the words of all that is enqueued written, for
 *      instantiating one was seen to wait for what the device has under way, which may wait for
 *      another device, and that for one of these words; and with pairs (pairs.c) the device quiet,
 *      for what NCCL's kernels wait for is the other device's part, which may wait for us
 *   6. there is room on the device: WORKER_DEPTH launches; one, for what comes again after a
 *      restart; and WORKER_OPERATIONS operations in its stream, if that has anything in it
 *   7. the host memory that it copies from or to is page-locked: a worker that follows a dead one
 *      page-locks beside its first launches
 *   8. half of a transfer by a pair, or a part of what a team does: the pair or team is open, its
 *      input is complete, and there is room on its lane (pairs.c)
 *   9. few recordings of graphs that are gone wait to be destroyed, for which the device must be
 *      quiet (graph.c)
 *
 * A launch that failed (here, cancelled, or starved) skips 2 to 5 and 7 but not 1: "done" must
 * still mean that all it names is done. What it was to make is made, if there is room
 * (worker_buffers_make_anyway), so it too may wait for a chunk. Nothing behind the front is looked
 * at. docs/ordering.md shows why waiting here cannot hang.
 */
#include "worker/core_int.h"

/* What that device is to us: false when nobody told yet. */
static bool device_known(struct worker_core *core, uint32_t device)
{
    return worker_host_device_of(core, device) != WORKER_DEVICE_PENDING;
}

static bool point_known(struct worker_core *core, struct worker_launch *launch,
                        uint64_t point)
{
    uint32_t device              = wire_point_device(point);
    uint32_t host_device         = worker_host_device_of(core, device);
    struct store_timeline *other = NULL;

    if (host_device == WORKER_DEVICE_PENDING) {
        core->waits_for = UINT64_MAX; /* whoever comes up */
        return false;
    }
    if (host_device >= core->config.host_device_count) {
        worker_launch_fail(launch, PLASMON_ENOTSUP,
                           "it depends on device %u, which is on another host", device);
        return true;
    }
    if (host_device == core->config.host_device) {
        return true; /* lower seq: enqueued before */
    }
    other           = core->config.timelines[host_device];
    core->waits_for = UINT64_C(1) << host_device;
    return other != NULL && store_timeline_point(other, wire_point_seq(point), NULL,
                                                 NULL) != STORE_POINT_UNKNOWN;
}

static bool points_known(struct worker_core *core, struct worker_launch *launch)
{
    while (launch->after_known < launch->after_count) {
        if (!point_known(core, launch, launch->after[launch->after_known])) {
            return false;
        }
        launch->after_known++;
    }
    core->waits_for = UINT64_MAX;
    for (uint32_t i = 0; i < launch->piece_count; i++) {
        if (!device_known(core, wire_buffer_device(launch->pieces[i].src))) {
            return false;
        }
    }
    return (!worker_launch_is_half(launch) && !worker_launch_is_pairs(launch)) ||
           launch->team != 0 || device_known(core, launch->peer);
}

bool worker_front_quiet(struct worker_core *core)
{
    core->waits_quiet = !worker_streams_quiet(core);
    return !core->waits_quiet;
}

static bool host_locked(struct worker_core *core, const struct worker_launch *launch)
{
    const struct worker_ops *ops = core->config.ops;

    core->waits_host =
        (launch->kind == PLASMON__V1__LAUNCH_KIND__LAUNCH_PUT_HOST ||
         launch->kind == PLASMON__V1__LAUNCH_KIND__LAUNCH_GET_HOST) &&
        ops->host_ready != NULL &&
        !ops->host_ready(core->config.user, launch->host_buffer, launch->offset,
                         worker_operand_bytes_shown(&launch->operands[0]));
    return !core->waits_host;
}

/* The front waits until less is on the device. What is not seen to be over perhaps is. */
static void look_for_room(struct worker_core *core)
{
    worker_streams_flush(core);
    worker_core_complete(core);
}

/*
 * Is there room on the device for one more? What a restarted worker is sent again goes one at a
 * time, and the first new launch after it. Whatever is waited for here has a smaller number.
 */
static bool room(struct worker_core *core)
{
    uint32_t most = core->queue.first->seq <= core->recovered + 1 ? 1 : WORKER_DEPTH;

    if (core->running_count >= most) {
        look_for_room(core);
    }
    core->waits_running = core->running_count >= most;
    return !core->waits_running;
}

static bool operations_fit(struct worker_core *core, const struct worker_stream *stream,
                           const struct worker_launch *launch)
{
    return stream->running.first == NULL ||
           stream->put - stream->over + launch->after_count +
                   worker_launch_operations(core, launch) <=
               WORKER_OPERATIONS;
}

/* And for so many operations as this one has? */
static bool room_for(struct worker_core *core, struct worker_launch *launch)
{
    const struct worker_stream *stream = &core->streams[worker_stream_choose(core, launch)];

    if (!operations_fit(core, stream, launch)) {
        look_for_room(core);
        core->waits_running = !operations_fit(core, stream, launch);
    }
    return !core->waits_running;
}

static bool front_ready(struct worker_core *core, struct worker_launch *launch)
{
    core->waits_pair  = false;
    core->waits_unpin = false;
    core->waits_quiet = false;
    core->waits_host  = false;
    core->waits_for   = 0;
    if (!worker_pairs_freed(core)) {
        return false;
    }
    if (!worker_graphs_gone(core)) {
        core->waits_quiet = true;
        return false;
    }
    if (!points_known(core, launch)) {
        return false;
    }
    core->waits_for = 0;
    if (launch->failure == PLASMON_OK && !launch->checked) {
        launch->checked = worker_launch_check(core, launch);
        if (!launch->checked) {
            core->waits_quiet = true;
            return false;
        }
    }
    if (launch->failure == PLASMON_OK && !host_locked(core, launch)) {
        return false; /* before it has memory: it may wait for long */
    }
    if (launch->failure == PLASMON_OK && !launch->memory &&
        worker_buffers_place(core, launch) == WORKER_BUFFERS_WAIT) {
        return false;
    }
    if (launch->failure == PLASMON_OK &&
        worker_buffers_consume(core, launch) == WORKER_BUFFERS_WAIT) {
        return false;
    }
    if (launch->failure == PLASMON_OK && worker_graph_records(core, launch)) {
        if (worker_pairs_used(core) && !worker_front_quiet(core)) {
            return false;
        }
        /* else words are behind a call that may take until others go on */
        worker_streams_flush(core);
    }
    if (!room_for(core, launch)) {
        return false;
    }
    if ((worker_launch_is_half(launch) || worker_launch_is_pairs(launch) ||
         worker_launch_is_joint(launch)) &&
        !worker_pair_front(core, launch)) {
        return false;
    }
    if (worker_pair_usable(core, launch)) {
        /*
         * Its operation waits for the other side. Where streams share a hardware queue, what is
         * kept or has no word yet would come behind it.
         */
        worker_streams_flush(core);
    }
    if (launch->failure != PLASMON_OK) {
        worker_buffers_undo(core, launch);
        core->waits_memory = false;
        return worker_buffers_make_anyway(core, launch) == WORKER_BUFFERS_READY;
    }
    return true;
}

/*
 * Calls of many kernels are over while others go in, so there is room for the next one again and
 * again: 300 factors of 1024 by 1024 kept the thread for half a second, and a longer queue would
 * until the worker is thought to stand still.
 */
static bool others_turn(struct worker_core *core)
{
    if (core->put_in_a_row < WORKER_OPERATIONS || core->config.ops->again == NULL) {
        return false;
    }
    core->config.ops->again(core->config.user);
    return true;
}

/*
 * Of a long batch others hear before all of it is in: of the first launch, then of twice as many
 * each time. Who waits for the first part of an object can put in its own copies while we put in
 * those of the last one.
 */
#define TELL_MOST 16u

static void tell_early(struct worker_core *core, uint32_t put, uint32_t *io_tell_at)
{
    if (put < *io_tell_at) {
        return;
    }
    *io_tell_at += *io_tell_at < TELL_MOST ? *io_tell_at : TELL_MOST;
    if (!core->config.lone && core->queue.first != NULL) {
        worker_doorbells_ring(core);
    }
}

void worker_core_advance(struct worker_core *core)
{
    struct worker_launch *launch;
    uint32_t put = 0, tell_at = 1;

    if (core->advancing) {
        return; /* ops->grow added a chunk, or room() looks: the loop below is at it */
    }
    core->advancing    = true;
    core->put_in_a_row = 0;
    core->looked_ns    = 0;
    while (core->holds == 0 && core->queue.first != NULL && !worker_condemn_frozen(core) &&
           !others_turn(core) && room(core) && front_ready(core, core->queue.first)) {
        launch = worker_fifo_pop(&core->queue);
        worker_launch_expect(core->queue.first);
        core->put_in_a_row += worker_launch_operations(core, launch);
        worker_queue_times_goes(core, launch);
        worker_launch_enqueue(core, launch);
        tell_early(core, ++put, &tell_at);
    }
    worker_queue_times_stands(core);
    if (core->queue.first == NULL) {
        core->waits_pair = core->waits_quiet = false;
        (void)worker_pairs_freed(core); /* or it waits, and this comes again */
        (void)worker_graphs_gone(core);
    }
    worker_streams_flush(core);
    core->advancing = false;
}
