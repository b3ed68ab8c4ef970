/*
 * Session streams. A client's first frame is its hello; it is answered by a welcome when the devices that stores have announced are
 * there (or were given up), so that a program's first task finds a device. After that, frames in sequence go to the core.
 */
#include "head/serve.h"

#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"

struct serve_client *serve_client_of(struct serve *serve, uint64_t session)
{
    struct pl_list *pos;

    pl_list_for_each(pos, &serve->clients) {
        struct serve_client *client = pl_container_of(pos, struct serve_client, link);

        if (client->peer.session == session) {
            return client;
        }
    }
    return NULL;
}

void serve_client_free(struct serve_client *client)
{
    pl_list_remove(&client->link);
    wire_link_finish(&client->peer.link);
    pl_free(client->hello.bytes);
    pl_free(client);
}

static uint64_t credit_of(struct serve *serve, const struct serve_client *client)
{
    return head_core_client_credit(serve->core, client->peer.session);
}

static void send_welcome(struct serve *serve, struct serve_client *client, const char *host)
{
    Plasmon__V1__HeadFrame frame = PLASMON__V1__HEAD_FRAME__INIT;
    Plasmon__V1__Welcome welcome = PLASMON__V1__WELCOME__INIT;
    uint8_t *body;
    size_t length;

    if (head_core_client_welcome(serve->core, client->peer.session, &serve->arena,
                                 &welcome) != PLASMON_OK) {
        serve_peer_close(&client->peer, PLASMON_ENOMEM, "the head is out of memory");
        return;
    }
    welcome.store_socket = (char *)serve_store_socket(serve, host);
    welcome.resumed_seq  = client->peer.link.in_seq;
    frame.welcome        = &welcome;
    length               = plasmon__v1__head_frame__get_packed_size(&frame);
    body                 = pl_alloc(length);
    PL_CHECK(body != NULL);
    (void)plasmon__v1__head_frame__pack(&frame, body); /* its size was just computed */
    serve_peer_send(serve, &client->peer, credit_of(serve, client), body, length, false);
    pl_free(body);
}

static void fatal(struct serve_client *client, plasmon_status_t status, const char *text)
{
    pl_info("head", "a client is refused: %s", text);
    serve_peer_close(&client->peer, status, text);
}

/* A client that has its session moves to this stream; `fresh` was made for the stream and goes. */
static void resume(struct serve *serve, struct serve_client *fresh,
                   const Plasmon__V1__Hello *hello, uint64_t its_epoch)
{
    struct serve_client *client = serve_client_of(serve, hello->resume_session);

    if (client == NULL || !head_core_client_known(serve->core, hello->resume_session)) {
        struct pl_err err = {0};

        fatal(fresh, serve_session_unknown(serve, its_epoch, "this session", &err),
              err.text);
        return;
    }
    if (client->peer.stream != NULL) {
        rpc_stream_set_user(client->peer.stream, &serve_orphan_ops,
                            NULL); /* the old connection, not yet known to be broken */
        rpc_stream_close(client->peer.stream, PLASMON_ECLOSED,
                         "the session goes on over another connection");
    }
    client->peer.stream = fresh->peer.stream;
    fresh->peer.stream  = NULL;
    head_core_client_resumed(serve->core, client->peer.session);
    send_welcome(serve, client, hello->host);
    serve_peer_resend(&client->peer, hello->resume_ack);
}

static const struct rpc_stream_ops client_ops;

static void take_hello(struct serve *serve, struct serve_client *client,
                       const Plasmon__V1__ClientFrame *frame)
{
    const Plasmon__V1__Hello *hello = frame->hello;
    struct pl_err err               = {0};
    plasmon_status_t status;

    if (hello->resume_session != 0) {
        struct rpc_stream *stream = client->peer.stream;

        resume(serve, client, hello, frame->header->epoch);
        if (client->peer.stream == NULL) { /* it moved */
            rpc_stream_set_user(stream, &client_ops,
                                serve_client_of(serve, hello->resume_session));
            serve_client_free(client);
        }
        return;
    }
    status = head_core_client_open(serve->core, hello, &client->peer.session, &err);
    if (status != PLASMON_OK) {
        fatal(client, status, err.text);
        return;
    }
    send_welcome(serve, client, hello->host);
}

static plasmon_status_t decode_hello(struct serve *serve, const uint8_t *bytes,
                                     size_t length, Plasmon__V1__ClientFrame **out_frame,
                                     struct pl_err *err)
{
    plasmon_status_t status;

    wire_arena_reset(&serve->arena);
    status = wire_decode_client_frame(&serve->arena, bytes, length, out_frame, err);
    if (status == PLASMON_OK && (*out_frame)->hello == NULL) {
        status = pl_err_set(err, PLASMON_EMALFORMED,
                            "the first frame of a session must carry a hello");
    }
    return status;
}

static void first_frame(struct serve *serve, struct serve_client *client,
                        const uint8_t *bytes, size_t length)
{
    Plasmon__V1__ClientFrame *frame;
    struct pl_err err       = {0};
    plasmon_status_t status = decode_hello(serve, bytes, length, &frame, &err);

    if (status != PLASMON_OK) {
        fatal(client, status, err.text);
        return;
    }
    if (client->hello.bytes != NULL) {
        fatal(client, PLASMON_EMALFORMED, "a frame came before the welcome");
        return;
    }
    if (frame->hello->resume_session != 0 || serve_devices_ready(serve)) {
        take_hello(serve, client, frame);
        return;
    }
    serve_hello_keep(&client->hello, bytes, length);
}

void serve_clients_tick(struct serve *serve, uint64_t now_ms)
{
    struct pl_list *pos, *tmp;
    bool ready = serve_devices_ready(serve);

    pl_list_for_each_safe(pos, tmp, &serve->clients) {
        struct serve_client *client = pl_container_of(pos, struct serve_client, link);
        Plasmon__V1__ClientFrame *frame;
        struct pl_err err        = {0};
        struct serve_hello hello = client->hello;

        if (hello.bytes == NULL ||
            (!ready && now_ms - hello.since_ms < SERVE_DEVICES_WAIT_MS)) {
            continue;
        }
        client->hello = (struct serve_hello){.bytes = NULL};
        if (client->peer.stream != NULL &&
            decode_hello(serve, hello.bytes, hello.length, &frame, &err) == PLASMON_OK) {
            take_hello(serve, client, frame);
        }
        pl_free(hello.bytes);
    }
}

static void client_message(void *user, struct rpc_stream *stream, const uint8_t *bytes,
                           size_t length)
{
    struct serve_client *client = user;
    struct serve *serve         = client->serve;
    Plasmon__V1__ClientFrame *frame;
    struct pl_err err = {0};
    plasmon_status_t status;
    uint64_t began;
    int take;

    (void)stream;
    if (client->peer.session == 0) {
        first_frame(serve, client, bytes, length);
        return;
    }
    wire_arena_reset(&serve->arena);
    status = wire_decode_client_frame(&serve->arena, bytes, length, &frame, &err);
    if (status == PLASMON_OK && frame->hello != NULL) {
        status = pl_err_set(&err, PLASMON_EMALFORMED, "a second hello on one stream");
    }
    if (status == PLASMON_OK && frame->header->session != client->peer.session &&
        frame->header->session != 0) {
        status = pl_err_set(&err, PLASMON_EMALFORMED, "the frame is of another session");
    }
    if (status == PLASMON_OK) {
        take = wire_link_receive(&client->peer.link, frame->header->seq);
        if (take < 0) {
            status = pl_err_set(&err, PLASMON_EMALFORMED,
                                "frame %llu came after frame %llu: one is missing",
                                (unsigned long long)frame->header->seq,
                                (unsigned long long)client->peer.link.in_seq);
        } else if (frame->header->ack > client->peer.link.out_seq) {
            status = pl_err_set(&err, PLASMON_EMALFORMED,
                                "frame %llu is acknowledged, but only %llu were sent",
                                (unsigned long long)frame->header->ack,
                                (unsigned long long)client->peer.link.out_seq);
        } else {
            wire_link_acked(&client->peer.link, frame->header->ack);
            if (take == 0) {
                return;
            }
            if (head_core_tracing(serve->core)) {
                head_core_time(serve->core, pl_realtime_ns());
            }
            began  = pl_thread_cpu_ns();
            status = head_core_client_frame(serve->core, client->peer.session, frame, &err);
            serve->core_ns += pl_thread_cpu_ns() - began;
        }
    }
    if (status != PLASMON_OK) {
        /* Rubbish: this session ends, and nobody else notices. */
        pl_info("head", "session %016llx is ended: %s",
                (unsigned long long)client->peer.session, err.text);
        head_core_client_close(serve->core, client->peer.session);
        serve_peer_close(&client->peer, status, err.text);
    }
}

static void client_closed(void *user, struct rpc_stream *stream, plasmon_status_t status,
                          const char *why)
{
    struct serve_client *client = user;
    struct serve *serve         = client->serve;

    (void)stream;
    (void)status;
    (void)why;
    client->peer.stream = NULL;
    if (client->peer.session == 0 ||
        !head_core_client_known(serve->core, client->peer.session)) {
        serve_client_free(client);
        return;
    }
    head_core_client_lost(serve->core, client->peer.session, serve_now_ms());
}

static const struct rpc_stream_ops client_ops = {
    .message = client_message,
    .closed  = client_closed,
};

plasmon_status_t serve_client_accept(void *user, struct rpc_stream *stream,
                                     struct pl_err *err)
{
    struct serve *serve         = user;
    struct serve_client *client = PL_NEW(struct serve_client);

    if (client == NULL) {
        return pl_err_set(err, PLASMON_ENOMEM, "the head is out of memory");
    }
    client->serve       = serve;
    client->peer.stream = stream;
    wire_link_init(&client->peer.link, SERVE_KEPT_BYTES_MAX);
    pl_list_init(&client->link);
    pl_list_add_tail(&serve->clients, &client->link);
    rpc_stream_set_user(stream, &client_ops, client);
    return PLASMON_OK;
}
