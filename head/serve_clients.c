/*
 * Session streams. A client's first frame is its hello; it is answered by a welcome when the
 * devices that stores have announced are there (or were given up), so that a program's first task
 * finds a device. After that, its frames are inputs.
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

        if (client->session == session && session != 0) {
            return client;
        }
    }
    return NULL;
}

void serve_client_free(struct serve_client *client)
{
    pl_list_remove(&client->link);
    serve_late_drop(client);
    pl_free(client->hello.bytes);
    pl_free(client);
}

/* What is left is the stream's end. */
static void client_close(struct serve_client *client, plasmon_status_t status,
                         const char *why)
{
    serve_close(client->serve, client->stream, status, why);
    serve_client_free(client);
}

void serve_clients_end(struct serve *serve)
{
    struct pl_list *pos, *tmp;

    pl_list_for_each_safe(pos, tmp, &serve->clients) {
        struct serve_client *client = pl_container_of(pos, struct serve_client, link);

        if (client->ended) {
            client_close(client, PLASMON_OK, "bye");
        }
    }
}

void serve_clients_dismiss(struct serve *serve)
{
    while (!pl_list_empty(&serve->clients)) {
        client_close(pl_list_first(&serve->clients, struct serve_client, link),
                     PLASMON_EHEADLOST,
                     "the cluster was ended: its head was told to stop, and had no journal "
                     "that another one could go on from (--journal)");
    }
}

static void refuse(struct serve_client *client, plasmon_status_t status, const char *text)
{
    pl_info("head", "a client is refused: %s", text);
    client_close(client, status, text);
}

/* Why a session is not known here. EHEADLOST */
static void refuse_unknown(struct serve_client *client, uint64_t its_epoch)
{
    uint64_t epoch    = head_machine_epoch(client->serve->machine);
    struct pl_err err = {0};

    if (its_epoch != 0 && its_epoch != epoch) {
        (void)pl_err_set(&err, PLASMON_EHEADLOST,
                         "the head was started anew (epoch %016llx, before it was %016llx) "
                         "and does not know this session: what was in the cluster is lost; "
                         "begin again",
                         (unsigned long long)epoch, (unsigned long long)its_epoch);
    } else {
        (void)pl_err_set(&err, PLASMON_EHEADLOST,
                         "the head has given up this session, which was away for longer "
                         "than its lease: what it had is lost; begin again");
    }
    refuse(client, err.status, err.text);
}

/* The session goes on over this stream, if the head has it. */
static void resume(struct serve_client *client, const Plasmon__V1__Hello *hello,
                   uint64_t its_epoch)
{
    struct serve *serve        = client->serve;
    struct serve_client *older = serve_client_of(serve, hello->resume_session);
    struct head_input input    = {.type    = HEAD_INPUT_CLIENT_RESUME,
                                  .numbers = {hello->resume_session, hello->resume_ack}};
    struct pl_err err;

    if (!head_machine_client_known(serve->machine, hello->resume_session) ||
        serve_input(serve, &input, NULL, &err) != PLASMON_OK) {
        refuse_unknown(client, its_epoch);
        return;
    }
    if (older != NULL) { /* the old connection, not yet known to be broken */
        serve_replace(serve, older->stream, "the session goes on over another connection");
        serve_client_free(older);
    }
    client->session = hello->resume_session;
    head_machine_client_welcome(serve->machine, client->session, hello->host);
}

/* The namespace that the stream may be in becomes that of the hello. */
static plasmon_status_t confine(struct serve_client *client, Plasmon__V1__Hello *hello,
                                struct pl_err *err)
{
    struct serve *serve = client->serve;
    const char *only    = NULL;
    plasmon_status_t status =
        serve_confined(serve, rpc_stream_token_index(client->stream),
                       rpc_stream_identity(client->stream), &only, err);
    const char *wanted = hello->namespace_;

    if (status == PLASMON_OK && hello->resume_session != 0) {
        wanted = head_core_client_namespace(serve->core, hello->resume_session);
        wanted = wanted != NULL ? wanted : "";
    }
    if (status != PLASMON_OK || only == NULL) {
        return status;
    }
    if (wanted[0] != '\0' && strcmp(wanted, only) != 0) {
        return pl_err_set(err, PLASMON_EAUTH,
                          "the token or the certificate is of namespace '%s', and the "
                          "session wants to be in "
                          "'%.64s'",
                          only, wanted);
    }
    hello->namespace_ = (char *)(uintptr_t)only; /* lent: used before the stream ends */
    return PLASMON_OK;
}

/* What is recorded is the hello as it was taken: without the token, which has done its work. */
static void open_session(struct serve_client *client, Plasmon__V1__ClientFrame *frame)
{
    struct serve *serve     = client->serve;
    struct head_input input = {.type = HEAD_INPUT_CLIENT_OPEN};
    struct pl_err err       = {0};
    struct head_outcome outcome;
    plasmon_status_t status;
    uint8_t *bytes;
    size_t length;

    frame->hello->token = (ProtobufCBinaryData){.len = 0};
    length              = plasmon__v1__client_frame__get_packed_size(frame);
    bytes               = pl_alloc(length);
    PL_CHECK(bytes != NULL);
    (void)plasmon__v1__client_frame__pack(frame, bytes); /* its size was just computed */
    input.strings[0] = (struct head_string){.bytes = bytes, .length = length};
    status           = serve_input(serve, &input, &outcome, &err);
    pl_free(bytes);
    if (status != PLASMON_OK) {
        refuse(client, err.status, err.text);
        return;
    }
    client->session = outcome.session;
    head_machine_client_welcome(serve->machine, client->session, frame->hello->host);
}

/* The frame is in the arena. The client may be freed. */
static void take_hello(struct serve_client *client, Plasmon__V1__ClientFrame *frame)
{
    struct pl_err err = {0};

    if (confine(client, frame->hello, &err) != PLASMON_OK) {
        refuse(client, err.status, err.text);
    } else if (frame->hello->resume_session != 0) {
        resume(client, frame->hello, frame->header->epoch);
    } else {
        open_session(client, frame);
    }
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

static void first_frame(struct serve_client *client, const uint8_t *bytes, size_t length)
{
    struct serve *serve = client->serve;
    Plasmon__V1__ClientFrame *frame;
    struct pl_err err       = {0};
    plasmon_status_t status = decode_hello(serve, bytes, length, &frame, &err);

    if (status != PLASMON_OK) {
        refuse(client, status, err.text);
    } else if (client->hello.bytes != NULL) {
        refuse(client, PLASMON_EMALFORMED, "a frame came before the welcome");
    } else if (frame->hello->resume_session != 0 || serve_devices_ready(serve)) {
        take_hello(client, frame);
    } else {
        serve_hello_keep(serve, &client->hello, bytes, length);
    }
}

void serve_clients_tick(struct serve *serve, uint64_t now_ms)
{
    struct pl_list *pos, *tmp;
    bool ready       = serve_devices_ready(serve);
    uint32_t most_ms = head_core_any_joined(serve->core) ? SERVE_MORE_DEVICES_WAIT_MS
                                                         : SERVE_DEVICES_WAIT_MS;

    pl_list_for_each_safe(pos, tmp, &serve->clients) {
        struct serve_client *client = pl_container_of(pos, struct serve_client, link);
        Plasmon__V1__ClientFrame *frame;
        struct pl_err err        = {0};
        struct serve_hello hello = client->hello;

        if (client->session == 0 && hello.bytes == NULL &&
            serve_hello_late(serve, client->since_ms, now_ms, &err)) {
            refuse(client, err.status, err.text);
            continue;
        }
        if (hello.bytes == NULL || (!ready && now_ms - hello.since_ms < most_ms)) {
            continue;
        }
        client->hello = (struct serve_hello){.bytes = NULL};
        if (decode_hello(serve, hello.bytes, hello.length, &frame, &err) == PLASMON_OK) {
            take_hello(client, frame);
        }
        pl_free(hello.bytes);
    }
}

void serve_client_take(struct serve_client *client, const uint8_t *bytes, size_t length)
{
    struct serve *serve     = client->serve;
    struct head_input input = {.type    = HEAD_INPUT_CLIENT_FRAME,
                               .numbers = {client->session},
                               .strings = {{bytes, length}}};
    struct pl_err err       = {0};
    plasmon_status_t status;

    if (head_core_tracing(serve->core)) {
        struct head_input now = {.type = HEAD_INPUT_TIME, .numbers = {pl_realtime_ns()}};

        PL_CHECK(serve_input(serve, &now, NULL, &err) == PLASMON_OK);
    }
    status = serve_input(serve, &input, NULL, &err);
    if (status != PLASMON_OK) {
        pl_info("head", "session %016llx is ended: %s", (unsigned long long)client->session,
                err.text);
        client_close(client, status, err.text);
    }
}

static void client_message(void *user, struct rpc_stream *stream, const uint8_t *bytes,
                           size_t length)
{
    struct serve_client *client = user;

    (void)stream;
    if (client->session == 0) {
        first_frame(client, bytes, length);
    } else if (!serve_late_keep(client, bytes, length)) {
        serve_client_take(client, bytes, length);
    }
}

static void client_closed(void *user, struct rpc_stream *stream, plasmon_status_t status,
                          const char *why)
{
    struct serve_client *client = user;
    struct serve *serve         = client->serve;
    struct head_input input     = {.type    = HEAD_INPUT_CLIENT_LOST,
                                   .numbers = {client->session, serve_now_ms(serve)}};
    struct pl_err err;

    (void)status;
    (void)why;
    serve_gate_forget(serve, stream);
    if (head_machine_client_known(serve->machine, client->session)) {
        PL_CHECK(serve_input(serve, &input, NULL, &err) == PLASMON_OK);
    }
    serve_client_free(client);
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
    client->serve    = serve;
    client->stream   = stream;
    client->since_ms = serve_now_ms(serve);
    pl_list_init(&client->link);
    pl_list_init(&client->late);
    pl_list_add_tail(&serve->clients, &client->link);
    rpc_stream_set_user(stream, &client_ops, client);
    return PLASMON_OK;
}
