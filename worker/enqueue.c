/*
 * Putting a launch into its stream: published first, then what it waits for, then its work.
 *
 * PUBLISHED FIRST, because a crash may come in between: what the table calls CONSUMED and the
 * timeline does not name was not touched; of what the timeline names, begun.c knows more. Nothing
 * between publishing and the last driver call waits for anything, so whoever sees the launch
 * published may count on its word.
 *
 * WITHOUT WORK. A launch that gives the device nothing to do (noop without arguments, ALLOC, SEAL,
 * SKIP, one that failed), on a stream whose word shows that all before it is done, and with nothing
 * else to wait for, is done: its word is stored from here. The device has no write to that word
 * outstanding, since it has made the last one.
 */
#include "worker/core_int.h"

#include "base/alloc.h"
#include "base/fault.h"

#include <assert.h>
#include <string.h>

/* Room for `count` items; NULL is out of memory, or count 0. */
static void *room(struct pl_vec *vec, size_t count)
{
    pl_vec_clear(vec);
    return count == 0 ? NULL : pl_vec_push_n(vec, count);
}

/* -------------------------------------------------------------------- work, a kind each */

/*
 * A private accumulator starts as the identity all over, also between the elements that a strided
 * view shows: the fold that comes later joins whole boxes.
 */
static struct kernel_arg accumulator(const struct worker_operand *operand)
{
    struct kernel_arg arg = operand->arg;

    arg.ndim = operand->frame.ndim;
    memcpy(arg.dim, operand->frame.count, sizeof(arg.dim));
    pl_box_strides(&operand->frame, arg.stride);
    arg.data.addr = operand->offset;
    return arg;
}

plasmon_status_t worker_run_enqueue(struct worker_core *core, struct worker_launch *launch,
                                    uint32_t stream, struct pl_err *err)
{
    const struct worker_ops *ops = core->config.ops;
    void *user                   = core->config.user;
    struct kernel_arg *args      = room(&core->args, launch->operand_count);
    plasmon_status_t status      = PLASMON_OK;

    if (args == NULL && launch->operand_count != 0) {
        return PLASMON_ENOMEM;
    }
    for (uint32_t i = 0; status == PLASMON_OK && i < launch->operand_count; i++) {
        args[i] = launch->operands[i].arg;
        args[i].data.addr += launch->operands[i].offset;
        if (args[i].mode == KERNEL_REDUCE && args[i].reduce_op != 0) {
            struct kernel_arg whole = accumulator(&launch->operands[i]);

            status = ops->fill_identity(user, stream, &whole, launch->seq);
        }
    }
    if (status != PLASMON_OK) {
        return status;
    }
    if (launch->function->defined) {
        return ops->run_defined(user, stream, launch->function, args, launch->operand_count,
                                launch->scalars, launch->scalar_count,
                                launch->scratch_offset, &launch->shape, launch->seq, err);
    }
    return ops->run(user, stream, launch->function, args, launch->operand_count,
                    launch->scalars, launch->scalar_count, launch->scratch_offset,
                    launch->scratch_bytes, launch->seq, err);
}

/*
 * ELOST: its device is gone, and the store may have told us before it told the head. EDEPENDENCY:
 * its device is well, so the launch that was to make it there has failed, and the head hears of
 * that from there.
 */
static plasmon_status_t source_missing(const struct worker_core *core, uint64_t buffer,
                                       uint32_t host_device, struct pl_err *err)
{
    const struct store_timeline *timeline = core->config.timelines[host_device];
    bool gone = timeline != NULL && store_timeline_is_released(timeline);

    return pl_err_set(err, gone ? PLASMON_ELOST : PLASMON_EDEPENDENCY,
                      gone ? "buffer %#llx was on device %u, which is gone"
                           : "buffer %#llx is not on device %u any more",
                      (unsigned long long)buffer, wire_buffer_device(buffer));
}

plasmon_status_t worker_piece_source(const struct worker_core *core,
                                     const struct worker_piece *piece, uint32_t dtype,
                                     struct worker_source *out, struct pl_err *err)
{
    uint32_t device      = wire_buffer_device(piece->src);
    uint32_t host_device = worker_host_device_of(core, device);
    uint64_t bytes = (uint64_t)pl_box_elements(&piece->src_frame) * pl_dtype_bytes(dtype);
    const struct store_entry *from;

    if (host_device >= core->config.host_device_count) {
        return pl_err_set(err, PLASMON_ENOTSUP,
                          "copy from device %u, which is on another host", device);
    }
    from = worker_buffer_find(core, host_device, wire_buffer_slot(piece->src),
                              wire_buffer_generation(piece->src));
    if (from == NULL || from->bytes < bytes) {
        return source_missing(core, piece->src, host_device, err);
    }
    *out = (struct worker_source){
        .host_device = host_device, .offset = from->offset, .bytes = bytes};
    return PLASMON_OK;
}

static plasmon_status_t piece_enqueue(struct worker_core *core,
                                      struct worker_launch *launch,
                                      const struct worker_piece *piece, uint32_t stream,
                                      struct pl_err *err)
{
    const struct worker_operand *to = &launch->operands[piece->operand];
    uint64_t piece_bytes            = worker_piece_bytes(launch, piece);
    struct worker_source from;
    plasmon_status_t status = worker_piece_source(core, piece, to->arg.dtype, &from, err);

    if (status == PLASMON_OK && launch->kind == PLASMON__V1__LAUNCH_KIND__LAUNCH_COPY) {
        status = worker_stream_source(core, launch, piece, piece_bytes, stream);
    }
    if (status != PLASMON_OK) {
        return status;
    }
    status = core->config.ops->copy(
        core->config.user, stream, &piece->box, pl_dtype_bytes(to->arg.dtype), to->offset,
        &to->frame, from.host_device, from.offset, &piece->src_frame, launch->seq);
    if (status == PLASMON_OK && from.host_device != core->config.host_device) {
        worker_traffic_count(core, launch, wire_buffer_device(piece->src),
                             WORKER_ROUTE_PEER, piece_bytes);
    }
    return status;
}

static plasmon_status_t pieces_enqueue(struct worker_core *core,
                                       struct worker_launch *launch, uint32_t stream,
                                       struct pl_err *err)
{
    plasmon_status_t status = PLASMON_OK;

    for (uint32_t i = 0; status == PLASMON_OK && i < launch->piece_count; i++) {
        status = piece_enqueue(core, launch, &launch->pieces[i], stream, err);
    }
    return status;
}

/*
 * A chunk of a staging ring is a wait, a copy and a write of a word; bytes of the head are a copy
 * and a write; what goes by a pair is waited for. A span is an event at each end.
 */
#define CHUNK_OPERATIONS  3u
#define PIECE_CALLS_MAX   64u /* device/cuda/copy.c: more are one kernel */
#define INLINE_OPERATIONS 2u
#define PAIR_OPERATIONS   6u /* a receive's; of a send it is two */
/* a stream that goes elsewhere does so by a word (device/cuda/far.c) */
#define SOURCE_OPERATIONS 2u
#define SPAN_OPERATIONS   2u

static uint64_t half_operations(const struct worker_launch *launch)
{
    return pl_round_up(worker_operand_bytes_shown(&launch->operands[0]),
                       STORE_STAGE_SLOT_BYTES) /
           STORE_STAGE_SLOT_BYTES * CHUNK_OPERATIONS;
}

/* Of a box that is not all of both buffers a call takes two dimensions, at the worst. */
static uint64_t pieces_count(const struct worker_launch *launch)
{
    uint64_t operations = 0;

    for (uint32_t i = 0; i < launch->piece_count; i++) {
        const struct worker_piece *piece = &launch->pieces[i];
        const struct pl_box *frame       = &launch->operands[piece->operand].frame;
        uint64_t calls                   = 1;

        if (!pl_box_equal(&piece->box, frame) ||
            !pl_box_equal(&piece->box, &piece->src_frame)) {
            for (uint32_t d = 0; d + 2 < piece->box.ndim && calls < PIECE_CALLS_MAX; d++) {
                calls *= (uint64_t)piece->box.count[d];
            }
        }
        operations += pl_min_u64(calls, PIECE_CALLS_MAX);
    }
    return operations;
}

static inline uint64_t pieces_operations(const struct worker_launch *launch)
{
    return launch->piece_count == 0 ? 0 : pieces_count(launch);
}

uint64_t worker_launch_operations(struct worker_core *core,
                                  const struct worker_launch *launch)
{
    if (worker_launch_is_half(launch)) { /* also one that failed */
        return worker_pair_usable(core, launch) ? PAIR_OPERATIONS : half_operations(launch);
    }
    if (launch->failure != PLASMON_OK) {
        return 0;
    }
    switch (launch->kind) {
    case PLASMON__V1__LAUNCH_KIND__LAUNCH_RUN:
        return launch->without_work ? 0
                                    : pieces_operations(launch) + launch->run_operations;
    case PLASMON__V1__LAUNCH_KIND__LAUNCH_GRAPH:
        return pieces_operations(launch) + worker_graph_operations(core, launch->graph);
    case PLASMON__V1__LAUNCH_KIND__LAUNCH_COPY:
        return pieces_operations(launch) +
               (launch->by_sources ? SOURCE_OPERATIONS * launch->piece_count : 0) +
               (launch->team != 0 ? PAIR_OPERATIONS : 0);
    case PLASMON__V1__LAUNCH_KIND__LAUNCH_PUT:
    case PLASMON__V1__LAUNCH_KIND__LAUNCH_READ:
        return INLINE_OPERATIONS;
    case PLASMON__V1__LAUNCH_KIND__LAUNCH_PUT_HOST:
    case PLASMON__V1__LAUNCH_KIND__LAUNCH_GET_HOST: /* one for each piece that was registered by itself */
        return worker_operand_bytes_shown(&launch->operands[0]) / DEVICE_HOST_PIECE_BYTES +
               2;
    default:
        return 0;
    }
}

/* Also for a half that failed: the other one waits for the ring's words. */
static plasmon_status_t stage_enqueue(struct worker_core *core,
                                      struct worker_launch *launch, uint32_t stream,
                                      uint64_t offset, struct pl_err *err)
{
    const struct worker_ops *ops = core->config.ops;
    uint32_t peer                = worker_host_device_of(core, launch->peer);
    uint64_t bytes               = worker_operand_bytes_shown(&launch->operands[0]);

    bool remote             = peer >= core->config.host_device_count;
    plasmon_status_t status = PLASMON_OK;

    if (worker_pair_usable(core, launch)) {
        worker_stream_before_hazard(core, stream, launch->seq);
        status = worker_pair_enqueue(core, launch, stream, offset);
        if (launch->kind == PLASMON__V1__LAUNCH_KIND__LAUNCH_RECV && status == PLASMON_OK &&
            offset != WORKER_NOWHERE) {
            worker_traffic_count(core, launch, launch->peer, WORKER_ROUTE_NCCL, bytes);
        }
        return status;
    }
    if (remote && ops->bulk_send == NULL) {
        return pl_err_set(err, PLASMON_ENOTSUP,
                          "transfer with device %u, which is on another host",
                          launch->peer);
    }
    worker_stream_before_hazard(core, stream, launch->seq);
    if (launch->kind == PLASMON__V1__LAUNCH_KIND__LAUNCH_SEND && remote) {
        return ops->bulk_send(core->config.user, stream, launch->peer, launch->offset,
                              offset, bytes);
    }
    if (launch->kind == PLASMON__V1__LAUNCH_KIND__LAUNCH_SEND) {
        return ops->stage_send(core->config.user, stream, peer, launch->offset, offset,
                               bytes);
    }
    status = remote ? ops->bulk_recv(core->config.user, stream, launch->peer,
                                     launch->offset, offset, bytes)
                    : ops->stage_recv(core->config.user, stream, peer, launch->offset,
                                      offset, bytes);
    if (status == PLASMON_OK && offset != WORKER_NOWHERE) {
        worker_traffic_count(core, launch, launch->peer, WORKER_ROUTE_HOST, bytes);
    }
    return status;
}

static plasmon_status_t host_copy_enqueue(struct worker_core *core,
                                          const struct worker_launch *launch,
                                          uint32_t stream, struct pl_err *err)
{
    const struct worker_operand *operand = &launch->operands[0];
    bool put = launch->kind == PLASMON__V1__LAUNCH_KIND__LAUNCH_PUT_HOST;
    plasmon_status_t (*copy)(void *, uint32_t, uint64_t, uint64_t, uint64_t, uint64_t,
                             struct pl_err *) =
        put ? core->config.ops->put_host : core->config.ops->get_host;

    if (copy == NULL) {
        return pl_err_set(err, PLASMON_ENOTSUP,
                          "this worker has no host memory of clients");
    }
    return copy(core->config.user, stream, operand->offset + operand->arg.data.addr,
                launch->host_buffer, launch->offset, worker_operand_bytes_shown(operand),
                err);
}

/* Of the part that a half moves, in its buffer. */
static uint64_t part_at(const struct worker_launch *launch)
{
    return pl_bug("worker.part_at_start") ? 0 : launch->operands[0].arg.data.addr;
}

static plasmon_status_t work_enqueue(struct worker_core *core, struct worker_launch *launch,
                                     uint32_t stream, struct pl_err *err)
{
    const struct worker_ops *ops          = core->config.ops;
    void *user                            = core->config.user;
    const struct worker_operand *operands = launch->operands;
    plasmon_status_t status;

    switch (launch->kind) {
    case PLASMON__V1__LAUNCH_KIND__LAUNCH_RUN:
        if (launch->without_work) {
            return PLASMON_OK;
        }
        status = pieces_enqueue(core, launch, stream, err);
        return status == PLASMON_OK ? worker_run_enqueue(core, launch, stream, err)
                                    : status;
    case PLASMON__V1__LAUNCH_KIND__LAUNCH_GRAPH:
        status = pieces_enqueue(core, launch, stream, err);
        return status == PLASMON_OK ? worker_graph_enqueue(core, launch, stream, err)
                                    : status;
    case PLASMON__V1__LAUNCH_KIND__LAUNCH_COPY:
        if (worker_launch_is_joint(launch) && worker_pair_usable(core, launch)) {
            return worker_joint_enqueue(core, launch, stream, err);
        }
        return worker_launch_combines(launch)
                   ? worker_combine_enqueue(core, launch, stream, err)
                   : pieces_enqueue(core, launch, stream, err);
    case PLASMON__V1__LAUNCH_KIND__LAUNCH_SEND:
    case PLASMON__V1__LAUNCH_KIND__LAUNCH_RECV:
        return stage_enqueue(core, launch, stream, operands[0].offset + part_at(launch),
                             err);
    case PLASMON__V1__LAUNCH_KIND__LAUNCH_PUT:
        return ops->put(user, stream, operands[0].offset + launch->offset, launch->data,
                        launch->data_bytes);
    case PLASMON__V1__LAUNCH_KIND__LAUNCH_READ:
        return ops->read(user, stream, operands[0].offset + launch->offset, launch->length,
                         launch->request);
    case PLASMON__V1__LAUNCH_KIND__LAUNCH_PUT_HOST:
    case PLASMON__V1__LAUNCH_KIND__LAUNCH_GET_HOST:
        return host_copy_enqueue(core, launch, stream, err);
    default:
        return PLASMON_OK; /* ALLOC, SEAL, SKIP: the table and the word are all there is */
    }
}

static void span_begin(struct worker_core *core, struct worker_launch *launch,
                       uint32_t stream)
{
    if (core->config.ops->span_begin != NULL && !launch->without_work) {
        launch->span = core->config.ops->span_begin(core->config.user, stream);
        worker_stream_put(core, stream, launch->span != NULL ? SPAN_OPERATIONS : 0);
    }
}

static void span_end(struct worker_core *core, const struct worker_launch *launch,
                     uint32_t stream)
{
    if (launch->span != NULL) {
        core->config.ops->span_end(core->config.user, stream, launch->span);
    }
}

static void work_or_failure(struct worker_core *core, struct worker_launch *launch,
                            uint32_t stream)
{
    bool tells = worker_begun_tells(core, launch, stream);
    bool late  = tells && pl_bug("worker.begin_late");
    struct pl_err err;
    plasmon_status_t status = launch->failure;

    pl_err_init(&err);
    if (status == PLASMON_OK) {
        worker_begun_hold(core, launch, stream);
        store_timeline_know(core->timeline, launch->seq, STORE_KNOWN_ENQUEUED);
        if (tells && !late) {
            status = worker_begun_tell(core, launch, stream);
        }
        span_begin(core, launch, stream);
        worker_stream_put(core, stream, worker_launch_operations(core, launch));
        status = status == PLASMON_OK ? work_enqueue(core, launch, stream, &err) : status;
        span_end(core, launch, stream);
        if (late && status == PLASMON_OK) {
            status = worker_begun_tell(core, launch, stream);
        }
    } else if (worker_launch_is_half(launch)) {
        worker_stream_put(core, stream, worker_launch_operations(core, launch));
        (void)stage_enqueue(core, launch, stream, WORKER_NOWHERE, &err); /* failed anyway */
    }
    if (status != PLASMON_OK) {
        worker_launch_fail(launch, status, "%s",
                           err.text[0] != '\0' ? err.text : pl_status_text(status));
        worker_joint_failed(core, launch);
    }
}

/* -------------------------------------------------------------------------------- going */

static void word_store(struct worker_core *core, struct worker_launch *launch,
                       uint32_t stream)
{
    /* Release: what this launch stands for (entries, above all) is visible to who sees the word. */
    __atomic_store_n(&core->timeline->stream[stream].value, launch->seq, __ATOMIC_RELEASE);
    core->streams[stream].woken = true;
    worker_stream_signalled(&core->streams[stream]);
}

static void launch_running(struct worker_core *core, struct worker_stream *stream,
                           struct worker_launch *launch)
{
    launch->put = stream->put;
    worker_fifo_push(&stream->running, launch);
    core->launch_count++;
    core->running_count++;
    stream->limited += launch->time_limit_ms != 0;
}

static uint64_t bytes_of(const struct worker_launch *launch)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < launch->operand_count; i++) {
        bytes += launch->operands[i].bytes;
    }
    return bytes;
}

/* Its bytes come over a link, or it waits for some that do. */
static bool goes_by_link(const struct worker_core *core, const struct worker_launch *launch)
{
    switch (launch->kind) {
    case PLASMON__V1__LAUNCH_KIND__LAUNCH_PUT:
    case PLASMON__V1__LAUNCH_KIND__LAUNCH_PUT_HOST:
    case PLASMON__V1__LAUNCH_KIND__LAUNCH_GET_HOST:
        return true;
    default:
        break;
    }
    for (uint32_t i = 0; i < launch->piece_count; i++) {
        if (worker_host_device_of(core, wire_buffer_device(launch->pieces[i].src)) !=
            core->config.host_device) {
            return true;
        }
    }
    return launch->behind_mark;
}

/*
 * What signal_bytes is about, which is time: bytes take so much longer over a link than in a
 * device's memory. Else eight objects of 16 MiB that came in one batch would all be over, for who
 * waits for the first, when the last is.
 */
#define LINK_SLOWER 8u

static uint64_t work_of(const struct worker_core *core, const struct worker_launch *launch)
{
    uint64_t bytes = bytes_of(launch) * (goes_by_link(core, launch) ? LINK_SLOWER : 1);

    return worker_pace_is_long(core, launch) ? pl_max_u64(bytes, core->config.signal_bytes)
                                             : bytes;
}

/*
 * A user's function may take for ever (streams.c: A SIGNAL BEFORE WHAT MAY BE ENDED): it has a word
 * before itself and one behind.
 */
static bool is_bounded_by_words(const struct worker_core *core,
                                const struct worker_launch *launch)
{
    return core->config.words_cheap && launch->function != NULL &&
           launch->function->defined;
}

/* In the middle of a batch, so that what is done is seen to be: behind this launch. */
static bool signal_due(const struct worker_core *core, const struct worker_stream *stream,
                       const struct worker_launch *launch)
{
    return stream->unsignalled >= WORKER_SIGNAL_EVERY ||
           is_bounded_by_words(core, launch) ||
           (core->config.signal_bytes != 0 &&
            stream->unsignalled_bytes >= core->config.signal_bytes);
}

/* Its waits come where its first bytes do. */
static void go_first(struct worker_core *core, struct worker_launch *launch,
                     uint32_t stream)
{
    plasmon_status_t status = PLASMON_OK;

    if (launch->kind == PLASMON__V1__LAUNCH_KIND__LAUNCH_COPY &&
        launch->failure == PLASMON_OK) {
        status = worker_stream_source(
            core, launch, launch->piece_count > 0 ? &launch->pieces[0] : NULL, 0, stream);
    }
    if (status != PLASMON_OK) {
        worker_launch_fail(launch, status, "stream %u could not go on where the bytes are",
                           stream);
    }
}

void worker_launch_enqueue(struct worker_core *core, struct worker_launch *launch)
{
    uint32_t stream            = worker_stream_choose(core, launch);
    struct worker_stream *mine = &core->streams[stream];
    bool idle                  = worker_stream_idle(core, stream);
    bool clear, without_work, stores;

    if (stream != core->last_stream) { /* launches enter the device in their order */
        worker_stream_flush(core, core->last_stream);
        core->last_stream = stream;
    }
    if (idle) {
        worker_pace_begins(core, stream);
    }
    core->followed[launch->seq % STORE_RING] = 0;
    if (launch->seq <= worker_stream_word(core, stream)) {
        /* Over before a restart, and failed: only the report is owed. */
        launch_running(core, mine, launch);
        worker_reuse_enqueued(core, launch);
        return;
    }
    worker_buffers_enqueued(core, launch);
    if (launch->seq > core->timeline->enqueued) {
        /* not one that comes again after a restart */
        store_timeline_publish(core->timeline, launch->seq, stream);
        core->published = true;
    }

    without_work = launch->without_work ||
                   (launch->failure != PLASMON_OK && !worker_launch_is_half(launch));
    if (mine->unsignalled != 0 && is_bounded_by_words(core, launch)) {
        worker_stream_signal(core, stream);
    }
    if (!without_work) {
        if (core->config.ops->stir != NULL) {
            core->config.ops->stir(core->config.user);
        }
        worker_stream_before_work(core, launch, stream, work_of(core, launch));
    }
    go_first(core, launch, stream);
    clear         = worker_stream_order(core, launch, stream);
    launch->waits = !clear;
    worker_before_say(core, launch, stream);
    if (pl_bug("worker.signal_before_kernel")) {
        (void)core->config.ops->signal(core->config.user, stream, launch->seq);
    }
    work_or_failure(core, launch, stream);
    if (launch->failure != PLASMON_OK && !pl_bug("worker.forget_failures")) {
        store_timeline_mark(core->timeline, launch->seq, true);
    }

    mine->last    = launch->seq;
    mine->heavy   = launch->heavy ? launch->seq : mine->heavy;
    mine->bounded = launch->time_limit_ms != 0 ? launch->seq : mine->bounded;
    mine->unsignalled += launch->graph != NULL ? WORKER_SIGNAL_GRAPH : 1;
    mine->unsignalled_bytes += work_of(core, launch);
    launch_running(core, mine, launch);
    if (launch->signals) {
        worker_stream_written(core, stream);
    }
    worker_scratch_lend(core, launch, stream);
    worker_reuse_enqueued(core, launch);
    /*
     * Who comes behind one that failed finds nothing of what it was to make. If we die when that one
     * is done and nobody has heard of the failure, this one must not get another chance.
     */
    stores = without_work && idle && clear;
    if (worker_mark_wants_word(core, launch) ||
        (launch->failure != PLASMON_OK && !stores && mine->unsignalled != 0)) {
        worker_stream_signal(core, stream);
    }
    worker_mark_enqueued(core, launch, stream);
    if (stores) {
        word_store(core, launch, stream);
    } else if (mine->unsignalled != 0 &&
               (launch->time_limit_ms != 0 || signal_due(core, mine, launch))) {
        worker_stream_signal(core, stream);
    } else if (idle) { /* it need not wait for others of its batch */
        worker_stream_flush(core, stream);
    }
}
