#include "worker/uplink.h"

#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "worker/reports.h"
#include "worker/where.h"

#define TICK_MS            50u
#define CONNECT_TIMEOUT_MS 5000u
#define BACKOFF_MIN_NS     (UINT64_C(100) * 1000 * 1000)
#define BACKOFF_MAX_NS     (UINT64_C(2) * 1000 * 1000 * 1000)
/*
 * What the head has not acknowledged. Over the first figure reports wait for its acknowledgements;
 * the second is never reached then, and all of it fits into the queue of a new connection.
 */
#define KEPT_BYTES_FULL (UINT64_C(32) << 20)
#define KEPT_BYTES_MAX  (UINT64_C(60) << 20)
#define ROUTES_MAX      8u
#define NO_MEMORY       "no memory for a frame"

enum uplink_state {
    UPLINK_DOWN,     /* no stream; a new attempt at retry_ns, or when a descriptor comes */
    UPLINK_GREETING, /* hello sent */
    UPLINK_UP,
};

struct worker_uplink {
    /* Constant after create. */
    struct worker_uplink_config config;
    struct rpc_loop *loop;

    /* Guarded by config.lock. */
    enum uplink_state state;
    struct rpc_channel *channel;
    struct rpc_stream *stream;
    int fd; /* for the next channel; -1: none */
    uint64_t retry_ns;
    uint64_t backoff_ns;
    struct wire_link link;
    uint64_t epoch;
    uint64_t session;
    struct worker_report_batch batch;
    uint64_t trace_request; /* to be answered with the last span; 0: none */
    struct wire_arena out_arena;

    /* The loop's thread only. */
    struct wire_arena in_arena;
};

static const char work_path[] = "/plasmon.v1.Plasmon/Work";

/* ------------------------------------------------------------------------------ sending */

static void header_fill(const struct worker_uplink *uplink, uint64_t seq,
                        Plasmon__V1__Header *header)
{
    plasmon__v1__header__init(header);
    header->protocol = WIRE_PROTOCOL;
    header->epoch    = uplink->epoch;
    header->session  = uplink->session;
    header->seq      = seq;
    header->ack      = uplink->link.in_seq;
}

static void frame_send(struct worker_uplink *uplink, const Plasmon__V1__WorkerFrame *frame)
{
    size_t length           = plasmon__v1__worker_frame__get_packed_size(frame);
    uint8_t *buffer         = rpc_buffer_create(length);
    plasmon_status_t status = PLASMON_OK;

    if (buffer == NULL) {
        uplink->config.ops->lost(uplink->config.user, PLASMON_ENOMEM, NO_MEMORY);
        return;
    }
    (void)plasmon__v1__worker_frame__pack(frame, buffer); /* length is what it packs */
    if (frame->header->seq != 0) {
        status = wire_link_sent(&uplink->link, frame->header->seq, buffer, length);
    }
    if (status != PLASMON_OK) {
        rpc_buffer_destroy(buffer);
        uplink->config.ops->lost(uplink->config.user, status,
                                 status == PLASMON_ENOMEM
                                     ? NO_MEMORY
                                     : "the head acknowledges nothing any more");
        return;
    }
    uplink->link.in_acked = frame->header->ack;
    status                = rpc_stream_send(uplink->stream, buffer, length);
    if (status != PLASMON_OK) { /* kept: it goes out again after a reconnect */
        pl_debug("worker", "frame to the head: %s", pl_status_text(status));
    }
}

static void hello_send(struct worker_uplink *uplink)
{
    Plasmon__V1__WorkerHello hello = *uplink->config.hello;
    Plasmon__V1__WorkerFrame frame = PLASMON__V1__WORKER_FRAME__INIT;
    Plasmon__V1__Header header;

    header_fill(uplink, 0, &header);
    frame.header         = &header;
    frame.hello          = &hello;
    hello.resume_session = uplink->session;
    hello.bulk_clock_ms  = pl_now_ns() / 1000000;
    hello.resume_ack     = uplink->link.in_seq;
    hello.received       = uplink->config.ops->received(uplink->config.user);
    frame_send(uplink, &frame);
}

static void ack_send(struct worker_uplink *uplink)
{
    Plasmon__V1__WorkerFrame frame = PLASMON__V1__WORKER_FRAME__INIT;
    Plasmon__V1__Header header;

    header_fill(uplink, 0, &header);
    frame.header = &header;
    frame_send(uplink, &frame);
}

static void stats_fill(struct worker_uplink *uplink, Plasmon__V1__WorkerStats *stats,
                       Plasmon__V1__RouteStats *routes, Plasmon__V1__RouteStats **pointers)
{
    size_t count;

    plasmon__v1__worker_stats__init(stats);
    uplink->config.ops->stats(uplink->config.user, stats);
    stats->request = uplink->batch.stats_request;

    for (size_t i = 0; i < ROUTES_MAX; i++) {
        plasmon__v1__route_stats__init(&routes[i]);
        pointers[i] = &routes[i];
    }
    count           = uplink->config.ops->routes(uplink->config.user, routes, ROUTES_MAX);
    stats->routes   = pointers;
    stats->n_routes = count;
    uplink->config.ops->pairs(uplink->config.user, &uplink->out_arena, stats);
    uplink->config.ops->waits(uplink->config.user, &uplink->out_arena, stats);
}

/*
 * What was recorded; the answer to a request goes with the last of it. Spans that find no memory
 * are lost, and only they.
 */
static void spans_fill(struct worker_uplink *uplink, Plasmon__V1__WorkerFrame *frame,
                       Plasmon__V1__SpanBatch **place)
{
    const struct worker_uplink_ops *ops = uplink->config.ops;
    void *user                          = uplink->config.user;

    if (!ops->spans_pending(user) && uplink->trace_request == 0) {
        return;
    }
    *place = ops->spans(user, &uplink->out_arena);
    if (*place == NULL) {
        pl_warn("worker", "no memory for spans of a timeline");
        return;
    }
    if (!ops->spans_pending(user)) {
        (*place)->request     = uplink->trace_request;
        uplink->trace_request = 0;
    }
    frame->spans   = place;
    frame->n_spans = 1;
}

static bool anything_to_tell(const struct worker_uplink *uplink)
{
    return !worker_report_batch_empty(&uplink->batch) || uplink->trace_request != 0 ||
           uplink->config.ops->spans_pending(uplink->config.user);
}

static void batch_send(struct worker_uplink *uplink)
{
    Plasmon__V1__WorkerFrame frame = PLASMON__V1__WORKER_FRAME__INIT;
    Plasmon__V1__WorkerStats stats;
    Plasmon__V1__RouteStats routes[ROUTES_MAX];
    Plasmon__V1__RouteStats *route_pointers[ROUTES_MAX];
    Plasmon__V1__SpanBatch *spans;
    Plasmon__V1__Header header;

    wire_arena_reset(&uplink->out_arena);
    if (uplink->batch.incomplete ||
        worker_report_batch_fill(&uplink->batch, &uplink->out_arena, &frame) !=
            PLASMON_OK) {
        uplink->config.ops->lost(uplink->config.user, PLASMON_ENOMEM,
                                 "no memory for reports to the head");
        return;
    }
    if (uplink->batch.stats_request != 0) {
        stats_fill(uplink, &stats, routes, route_pointers);
        frame.stats = &stats;
    }
    spans_fill(uplink, &frame, &spans);
    header_fill(uplink, wire_link_next_seq(&uplink->link), &header);
    frame.header = &header;
    frame_send(uplink, &frame);
    worker_report_batch_sent(&uplink->batch, &frame);
}

void worker_uplink_flush(struct worker_uplink *uplink)
{
    while (uplink->state == UPLINK_UP && anything_to_tell(uplink) &&
           uplink->link.kept_bytes < KEPT_BYTES_FULL && rpc_stream_idle(uplink->stream)) {
        batch_send(uplink);
    }
}

void worker_uplink_done(struct worker_uplink *uplink, uint64_t first, uint64_t count)
{
    worker_report_batch_done(&uplink->batch, first, count);
}

void worker_uplink_failed(struct worker_uplink *uplink, uint64_t seq,
                          plasmon_status_t status, const char *text)
{
    worker_report_batch_failed(&uplink->batch, seq, status, text);
}

void worker_uplink_starved(struct worker_uplink *uplink, uint64_t seq, uint64_t bytes,
                           uint64_t largest_hole)
{
    worker_report_batch_starved(&uplink->batch, seq, bytes, largest_hole);
}

void worker_uplink_condemned(struct worker_uplink *uplink,
                             const struct worker_condemned *condemned)
{
    worker_report_batch_condemned(&uplink->batch, condemned);
}

void worker_uplink_data(struct worker_uplink *uplink, uint64_t request,
                        const uint8_t *bytes, uint64_t length)
{
    worker_report_batch_data(&uplink->batch, request, bytes, length);
}

void worker_uplink_refused(struct worker_uplink *uplink, uint64_t request,
                           plasmon_status_t status, const uint64_t *buffers, size_t count)
{
    worker_report_batch_refused(&uplink->batch, request, status, buffers, count);
}

void worker_uplink_function(struct worker_uplink *uplink, uint32_t id,
                            plasmon_status_t status, const char *text)
{
    worker_report_batch_function(&uplink->batch, id, status, text);
}

void worker_uplink_pair(struct worker_uplink *uplink,
                        const struct worker_pair_report *report)
{
    worker_report_batch_pair(&uplink->batch, report);
}

/* ---------------------------------------------------------------------------- receiving */

static void lost(struct worker_uplink *uplink, plasmon_status_t status, const char *why)
{
    uplink->config.ops->lost(uplink->config.user, status, why);
}

static void resend(void *user, const uint8_t *bytes, size_t length)
{
    struct worker_uplink *uplink = user;
    uint8_t *buffer              = rpc_buffer_create(length);

    if (buffer == NULL) {
        lost(uplink, PLASMON_ENOMEM, "no memory for a frame");
        return;
    }
    memcpy(buffer, bytes, length);
    if (rpc_stream_send(uplink->stream, buffer, length) != PLASMON_OK) {
        pl_debug("worker", "the connection broke again"); /* the frame is still kept */
    }
}

static void welcome_take(struct worker_uplink *uplink,
                         const Plasmon__V1__WorkerWelcome *welcome)
{
    struct pl_err err;

    if (uplink->session == 0) {
        uplink->epoch   = welcome->epoch;
        uplink->session = welcome->session;
        if (uplink->config.ops->welcome(uplink->config.user, welcome, &err) != PLASMON_OK) {
            lost(uplink, err.status, err.text);
            return;
        }
    } else if (welcome->epoch != uplink->epoch || welcome->session != uplink->session) {
        lost(uplink, PLASMON_ECLOSED, "the head does not know us any more");
        return;
    } else {
        pl_info("worker", "connected to the head again");
        wire_link_acked(&uplink->link, welcome->resumed_seq);
        wire_link_resend(&uplink->link, welcome->resumed_seq, resend, uplink);
    }
    uplink->state      = UPLINK_UP;
    uplink->backoff_ns = BACKOFF_MIN_NS;
}

static void command_take(struct worker_uplink *uplink,
                         const Plasmon__V1__WorkerCommand *command)
{
    const Plasmon__V1__Header *header = command->header;
    struct pl_err err;

    if (command->welcome != NULL) {
        welcome_take(uplink, command->welcome);
    }
    if (uplink->state != UPLINK_UP || header->session != uplink->session) {
        pl_warn("worker", "a message of another session is dropped");
        return;
    }
    wire_link_acked(&uplink->link, header->ack);
    if (command->stats_request != 0) { /* in the sequence or not */
        uplink->batch.stats_request = command->stats_request;
    }
    if (header->seq == 0) {
        return; /* an acknowledgement, a question for figures */
    }
    switch (wire_link_receive(&uplink->link, header->seq)) {
    case 0:
        return; /* a repeat */
    case 1:
        break;
    default:
        pl_warn("worker", "message %llu of the head came out of turn; connecting again",
                (unsigned long long)header->seq);
        rpc_stream_close(uplink->stream, PLASMON_EMALFORMED, "a message is missing");
        return;
    }

    if (command->trace != NULL) { /* before the launches of the same command */
        uplink->config.ops->trace(uplink->config.user, command->trace->on);
        uplink->trace_request = command->trace->request;
    }
    if (uplink->config.ops->command(uplink->config.user, command, &err) != PLASMON_OK) {
        lost(uplink, err.status, err.text);
        return;
    }
}

static void on_message(void *user, struct rpc_stream *stream, const uint8_t *bytes,
                       size_t length)
{
    struct worker_uplink *uplink = user;
    Plasmon__V1__WorkerCommand *command;
    struct pl_err err;

    wire_arena_reset(&uplink->in_arena);
    if (wire_decode_worker_command(&uplink->in_arena, bytes, length, &command, &err) !=
        PLASMON_OK) {
        pl_mutex_lock(uplink->config.lock);
        lost(uplink, err.status, err.text);
        pl_mutex_unlock(uplink->config.lock);
        return;
    }
    pl_mutex_lock(uplink->config.lock);
    if (stream == uplink->stream) {
        command_take(uplink, command);
    }
    pl_mutex_unlock(uplink->config.lock);
}

static void on_writable(void *user, struct rpc_stream *stream)
{
    struct worker_uplink *uplink = user;

    pl_mutex_lock(uplink->config.lock);
    if (stream == uplink->stream) {
        worker_uplink_flush(uplink);
    }
    pl_mutex_unlock(uplink->config.lock);
}

static void on_closed(void *user, struct rpc_stream *stream, plasmon_status_t status,
                      const char *why)
{
    struct worker_uplink *uplink = user;

    pl_mutex_lock(uplink->config.lock);
    if (stream == uplink->stream) {
        pl_info("worker", "connection to the head ended: %s (%s)", why,
                pl_status_name(status));
        uplink->stream     = NULL;
        uplink->state      = UPLINK_DOWN;
        uplink->retry_ns   = pl_now_ns() + uplink->backoff_ns;
        uplink->backoff_ns = pl_min_u64(uplink->backoff_ns * 2, BACKOFF_MAX_NS);
        if (uplink->config.target == NULL) {
            uplink->config.ops->want_fd(uplink->config.user);
        }
        if ((status == PLASMON_EAUTH && uplink->session == 0) || status == PLASMON_EEXIST ||
            status == PLASMON_EVERSION || status == PLASMON_EHEADLOST) {
            lost(uplink, status, why); /* asking again would not help */
        }
    }
    pl_mutex_unlock(uplink->config.lock);
}

static const struct rpc_stream_ops uplink_stream_ops = {
    .message  = on_message,
    .writable = on_writable,
    .closed   = on_closed,
};

/* --------------------------------------------------------------------------- connecting */

static plasmon_status_t channel_open(struct worker_uplink *uplink)
{
    struct rpc_channel_config config = {.target = uplink->config.target,
                                        .fd     = uplink->fd,
                                        .token  = uplink->config.token,
                                        .tls    = uplink->config.trust};

    if (uplink->config.target == NULL) {
        if (uplink->fd < 0) {
            return PLASMON_EAGAIN; /* the store is asked for one */
        }
        if (uplink->channel != NULL) { /* its socket is dead */
            rpc_channel_destroy(uplink->channel);
            uplink->channel = NULL;
        }
        uplink->fd = -1;
    }
    return uplink->channel != NULL
               ? PLASMON_OK
               : rpc_channel_create(uplink->loop, &config, &uplink->channel);
}

static void connect_try(struct worker_uplink *uplink)
{
    plasmon_status_t status = channel_open(uplink);

    if (status == PLASMON_OK) {
        status = rpc_stream_open(uplink->channel, work_path, CONNECT_TIMEOUT_MS,
                                 &uplink_stream_ops, uplink, &uplink->stream);
    }
    if (status == PLASMON_OK) {
        uplink->state = UPLINK_GREETING;
        hello_send(uplink);
        return;
    }
    uplink->stream   = NULL;
    uplink->retry_ns = pl_now_ns() + uplink->backoff_ns;
    if (status != PLASMON_EAGAIN) {
        pl_warn("worker", "cannot connect to the head: %s", pl_status_text(status));
    }
}

void worker_uplink_new_fd(struct worker_uplink *uplink, int fd)
{
    pl_fd_close(&uplink->fd);
    uplink->fd       = fd;
    uplink->retry_ns = 0; /* at the next tick, on the loop's thread */
}

static void on_tick(void *user)
{
    struct worker_uplink *uplink = user;

    pl_mutex_lock(uplink->config.lock);
    uplink->config.ops->tick(uplink->config.user);
    if (uplink->state == UPLINK_DOWN && pl_now_ns() >= uplink->retry_ns) {
        connect_try(uplink);
    }
    worker_uplink_flush(uplink);
    if (uplink->state == UPLINK_UP && wire_link_owes_ack(&uplink->link) &&
        rpc_stream_idle(uplink->stream)) {
        ack_send(uplink);
    }
    pl_mutex_unlock(uplink->config.lock);
}

/* It enqueues what comes, so it may be the one that stands still. */
static void on_start(void *user)
{
    (void)user;
    worker_where_join();
}

static void on_idle(void *user)
{
    struct worker_uplink *uplink = user;

    pl_mutex_lock(uplink->config.lock);
    worker_uplink_flush(uplink);
    pl_mutex_unlock(uplink->config.lock);
}

/* --------------------------------------------------------------------------------- life */

plasmon_status_t worker_uplink_create(const struct worker_uplink_config *config,
                                      struct worker_uplink **out_uplink)
{
    struct worker_uplink *uplink = PL_NEW(struct worker_uplink);
    plasmon_status_t status;

    if (uplink == NULL) {
        return PLASMON_ENOMEM;
    }
    uplink->config     = *config;
    uplink->fd         = config->fd;
    uplink->backoff_ns = BACKOFF_MIN_NS;
    wire_link_init(&uplink->link, KEPT_BYTES_MAX);
    worker_report_batch_init(&uplink->batch);

    status = wire_arena_init(&uplink->in_arena, WIRE_ARENA_BYTES_MAX);
    if (status != PLASMON_OK) {
        goto err_free;
    }
    status = wire_arena_init(&uplink->out_arena, WIRE_ARENA_BYTES_MAX);
    if (status != PLASMON_OK) {
        goto err_finish_in;
    }
    status = rpc_loop_create(&uplink->loop);
    if (status != PLASMON_OK) {
        goto err_finish_out;
    }
    rpc_loop_set_tick(uplink->loop, TICK_MS, on_tick, uplink);
    rpc_loop_set_idle(uplink->loop, on_idle, uplink);
    rpc_loop_set_many(uplink->loop, config->ops->many, config->user);
    rpc_loop_post(uplink->loop, on_start, uplink);
    rpc_loop_post(uplink->loop, on_tick, uplink); /* connects now, not an interval later */
    *out_uplink = uplink; /* callbacks may come before this returns */
    status      = rpc_loop_start(uplink->loop, "plasmon-rpc");
    if (status != PLASMON_OK) {
        goto err_destroy_loop;
    }
    return PLASMON_OK;

err_destroy_loop:
    rpc_loop_destroy(uplink->loop);
    *out_uplink = NULL;
err_finish_out:
    wire_arena_finish(&uplink->out_arena);
err_finish_in:
    wire_arena_finish(&uplink->in_arena);
err_free:
    pl_fd_close(&uplink->fd);
    wire_link_finish(&uplink->link);
    worker_report_batch_finish(&uplink->batch);
    pl_free(uplink);
    return status;
}
