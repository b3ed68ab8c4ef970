/*
 * Work streams. A worker is known by host and host device; its session lasts as long as its process (incarnation) and survives a broken
 * connection. A new incarnation starts a new session: what its predecessor had not taken over is owed again by the core, not by the
 * link.
 *
 * A device gets its number from its store's hello (serve_nodes.c). A worker that is faster than its store waits for it.
 */
#include "head/serve.h"

#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"

struct serve_worker *serve_worker_of(struct serve *serve, uint32_t device)
{
    struct pl_list *pos;

    pl_list_for_each(pos, &serve->workers) {
        struct serve_worker *worker = pl_container_of(pos, struct serve_worker, link);

        if (worker->device == device && device != UINT32_MAX) {
            return worker;
        }
    }
    return NULL;
}

void serve_worker_free(struct serve_worker *worker)
{
    pl_list_remove(&worker->link);
    wire_link_finish(&worker->peer.link);
    pl_free(worker->hello.bytes);
    pl_free(worker->host);
    pl_free(worker);
}

static void worker_drop(struct serve_worker *worker, const char *why)
{
    if (worker->peer.stream != NULL) {
        rpc_stream_set_user(worker->peer.stream, &serve_orphan_ops, NULL);
        rpc_stream_close(worker->peer.stream, PLASMON_EHEADLOST, why);
    }
    serve_worker_free(worker);
}

void serve_worker_drop(struct serve *serve, const char *host, uint32_t host_device,
                       const char *why)
{
    struct pl_list *pos, *tmp;

    pl_list_for_each_safe(pos, tmp, &serve->workers) {
        struct serve_worker *worker = pl_container_of(pos, struct serve_worker, link);

        if (worker->device != UINT32_MAX && strcmp(worker->host, host) == 0 &&
            worker->host_device == host_device) {
            worker_drop(worker, why);
        }
    }
}

void serve_workers_drop(struct serve *serve, const char *host, const char *why)
{
    struct pl_list *pos, *tmp;

    pl_list_for_each_safe(pos, tmp, &serve->workers) {
        struct serve_worker *worker = pl_container_of(pos, struct serve_worker, link);

        if (worker->device != UINT32_MAX && strcmp(worker->host, host) == 0) {
            worker_drop(worker, why);
        }
    }
}

static const struct rpc_stream_ops worker_ops;

static struct serve_worker *worker_known(struct serve *serve,
                                         const Plasmon__V1__WorkerHello *hello,
                                         const struct serve_worker *but)
{
    struct pl_list *pos;

    pl_list_for_each(pos, &serve->workers) {
        struct serve_worker *worker = pl_container_of(pos, struct serve_worker, link);

        if (worker != but && worker->device != UINT32_MAX &&
            worker->host_device == hello->host_device &&
            strcmp(worker->host, hello->host) == 0) {
            return worker;
        }
    }
    return NULL;
}

static void send_welcome(struct serve *serve, struct serve_worker *worker)
{
    Plasmon__V1__WorkerCommand command = PLASMON__V1__WORKER_COMMAND__INIT;
    Plasmon__V1__WorkerWelcome welcome = PLASMON__V1__WORKER_WELCOME__INIT;
    uint8_t body[256];

    welcome.epoch             = serve->epoch;
    welcome.session           = worker->peer.session;
    welcome.device            = worker->device;
    welcome.host_device_count = head_core_device_count(serve->core);
    welcome.resumed_seq       = worker->peer.link.in_seq;
    command.welcome           = &welcome;
    PL_CHECK(plasmon__v1__worker_command__get_packed_size(&command) <= sizeof(body));
    serve_peer_send(serve, &worker->peer, 0, body,
                    plasmon__v1__worker_command__pack(&command, body), false);
}

/* The stream of `fresh` becomes that of the worker that said hello. */
static plasmon_status_t take_hello(struct serve *serve, struct serve_worker *fresh,
                                   const Plasmon__V1__WorkerFrame *frame,
                                   struct pl_err *err)
{
    const Plasmon__V1__WorkerHello *hello = frame->hello;
    struct serve_worker *worker           = worker_known(serve, hello, fresh);
    struct rpc_stream *stream             = fresh->peer.stream;
    bool resumed                          = worker != NULL && hello->resume_session != 0 &&
                   hello->resume_session == worker->peer.session &&
                   hello->incarnation == worker->incarnation;
    plasmon_status_t status;
    uint32_t device;

    if (hello->resume_session != 0 && !resumed) {
        return serve_session_unknown(serve, frame->header->epoch, "this worker", err);
    }
    status = head_core_worker_up(serve->core, hello, &device, err);
    if (status != PLASMON_OK) {
        return status;
    }
    if (worker == NULL) {
        worker = fresh;
    } else {
        if (worker->peer.stream != NULL) {
            rpc_stream_set_user(worker->peer.stream, &serve_orphan_ops, NULL);
            rpc_stream_close(worker->peer.stream, PLASMON_ECLOSED,
                             "the worker came back over another connection");
        }
        worker->peer.stream = stream;
        fresh->peer.stream  = NULL;
        rpc_stream_set_user(stream, &worker_ops, worker);
    }
    if (!resumed) {
        wire_link_finish(&worker->peer.link);
        wire_link_init(&worker->peer.link, SERVE_KEPT_BYTES_MAX);
        worker->peer.session = serve_session_new(serve);
    }
    worker->device      = device;
    worker->host_device = hello->host_device;
    worker->incarnation = hello->incarnation;
    if (worker->host == NULL) {
        worker->host = pl_strdup(hello->host);
        PL_CHECK(worker->host != NULL);
    }
    send_welcome(serve, worker);
    if (resumed) {
        serve_peer_resend(&worker->peer, hello->resume_ack);
    }
    if (worker != fresh) {
        serve_worker_free(fresh);
    }
    serve_clients_tick(serve, serve_now_ms());
    return PLASMON_OK;
}

static void first_frame(struct serve *serve, struct serve_worker *worker,
                        const uint8_t *bytes, size_t length,
                        const Plasmon__V1__WorkerFrame *frame)
{
    struct rpc_stream *stream = worker->peer.stream;
    struct pl_err err         = {0};
    plasmon_status_t status   = PLASMON_OK;

    if (worker->device != UINT32_MAX || worker->hello.bytes != NULL) {
        status = pl_err_set(&err, PLASMON_EMALFORMED, "a second hello on one stream");
    } else if (frame->hello->resume_session != 0 ||
               serve_host_known(serve, frame->hello->host)) {
        status = take_hello(serve, worker, frame, &err);
    } else {
        serve_hello_keep(&worker->hello, bytes, length);
    }
    if (status != PLASMON_OK) {
        pl_warn("head", "a worker is refused: %s", err.text);
        rpc_stream_close(stream, status, err.text);
    }
}

/* What the kept hello says. It was checked when it came. */
static Plasmon__V1__WorkerFrame *decode_kept(struct serve *serve,
                                             const struct serve_hello *hello)
{
    Plasmon__V1__WorkerFrame *frame;
    struct pl_err err;

    wire_arena_reset(&serve->arena);
    return wire_decode_worker_frame(&serve->arena, hello->bytes, hello->length, &frame,
                                    &err) == PLASMON_OK
               ? frame
               : NULL;
}

void serve_workers_tick(struct serve *serve, uint64_t now_ms)
{
    struct pl_list *pos, *tmp;

    pl_list_for_each_safe(pos, tmp, &serve->workers) {
        struct serve_worker *worker = pl_container_of(pos, struct serve_worker, link);
        struct serve_hello hello    = worker->hello;
        const Plasmon__V1__WorkerFrame *frame =
            hello.bytes != NULL ? decode_kept(serve, &hello) : NULL;

        if (frame == NULL) {
            continue;
        }
        if (serve_host_known(serve, frame->hello->host)) {
            worker->hello = (struct serve_hello){.bytes = NULL};
            first_frame(serve, worker, hello.bytes, hello.length, frame);
            pl_free(hello.bytes);
        } else if (now_ms - hello.since_ms >= SERVE_STORE_WAIT_MS) {
            rpc_stream_close(worker->peer.stream, PLASMON_EAGAIN,
                             "the store of this worker's host has not joined this head");
        }
    }
}

static void worker_message(void *user, struct rpc_stream *stream, const uint8_t *bytes,
                           size_t length)
{
    struct serve_worker *worker = user;
    struct serve *serve         = worker->serve;
    Plasmon__V1__WorkerFrame *frame;
    struct pl_err err = {0};
    plasmon_status_t status;
    int take = 0;

    wire_arena_reset(&serve->arena);
    status = wire_decode_worker_frame(&serve->arena, bytes, length, &frame, &err);
    if (status == PLASMON_OK && frame->hello != NULL) {
        first_frame(serve, worker, bytes, length, frame);
        return;
    }
    if (status == PLASMON_OK && worker->device == UINT32_MAX) {
        status = pl_err_set(&err, PLASMON_EMALFORMED,
                            "the first frame of a worker must carry a hello");
    }
    if (status == PLASMON_OK) {
        take = wire_link_receive(&worker->peer.link, frame->header->seq);
        if (take < 0) {
            status = pl_err_set(&err, PLASMON_EMALFORMED,
                                "a frame is missing before number %llu",
                                (unsigned long long)frame->header->seq);
        }
    }
    if (status == PLASMON_OK) {
        wire_link_acked(&worker->peer.link, frame->header->ack);
        if (take == 0) {
            return;
        }
        uint64_t began = pl_thread_cpu_ns();

        status = head_core_worker_frame(serve->core, worker->device, frame, &err);
        serve->core_ns += pl_thread_cpu_ns() - began;
        if (status == PLASMON_OK && frame->stats != NULL) {
            serve_status_stats(serve, frame->stats->request);
        }
    }
    if (status != PLASMON_OK) {
        pl_error("head", "the connection of device %u is closed: %s", worker->device,
                 err.text);
        rpc_stream_close(stream, status, err.text);
    }
}

static void worker_closed(void *user, struct rpc_stream *stream, plasmon_status_t status,
                          const char *why)
{
    struct serve_worker *worker = user;

    (void)stream;
    (void)status;
    worker->peer.stream = NULL;
    if (worker->device == UINT32_MAX) {
        serve_worker_free(worker);
        return;
    }
    pl_debug("head", "device %u lost its connection: %s", worker->device, why);
    head_core_worker_lost(worker->serve->core, worker->device);
}

static const struct rpc_stream_ops worker_ops = {
    .message = worker_message,
    .closed  = worker_closed,
};

plasmon_status_t serve_worker_accept(void *user, struct rpc_stream *stream,
                                     struct pl_err *err)
{
    struct serve *serve         = user;
    struct serve_worker *worker = PL_NEW(struct serve_worker);

    if (worker == NULL) {
        return pl_err_set(err, PLASMON_ENOMEM, "the head is out of memory");
    }
    worker->serve       = serve;
    worker->device      = UINT32_MAX;
    worker->peer.stream = stream;
    wire_link_init(&worker->peer.link, SERVE_KEPT_BYTES_MAX);
    pl_list_init(&worker->link);
    pl_list_add_tail(&serve->workers, &worker->link);
    rpc_stream_set_user(stream, &worker_ops, worker);
    return PLASMON_OK;
}
