/*
 * The session with the head: what comes in, and how it begins, breaks, comes back and ends. See
 * session.h for the states and the rules.
 */
#include "client/session.h"

#include <stdio.h>
#include <string.h>

#include "base/fault.h"
#include "base/linger.h"
#include "base/log.h"
#include "client/client_int.h"

#define SESSION_PATH "/plasmon.v1.Plasmon/Session"

/* Unacknowledged bytes: the link refuses above this. */
#define KEPT_MAX (256u << 20)
/* Frames taken over without a word; the tick says it sooner or later anyway. */
#define ACK_OWED_MAX   16u
#define RETRY_FIRST_NS 20000000ull
#define RETRY_MAX_NS   1000000000ull
/* rpc ends its attempt to connect at the time-out, and knows the cause: give it time to say so. */
#define CAUSE_NS 1000000000ull
#define BYE_MS   1000u
#define CLOSE_MS 5000u /* rpc gives up what is queued after 2 s */

/* --------------------------------------------------------------------------------- life */

plasmon_status_t session_init(struct plasmon_client *client)
{
    struct session *session = &client->session;
    plasmon_status_t status;

    session->state      = SESSION_CONNECTING;
    session->stuck_from = SESSION_NOT_STUCK;
    wire_link_init(&session->link, KEPT_MAX);
    frame_init(&session->frame);
    pl_map_init(&session->requests);

    status = pl_cond_init(&session->changed);
    if (status != PLASMON_OK) {
        return status;
    }
    status = wire_arena_init(&session->arena, WIRE_ARENA_BYTES_MAX);
    if (status != PLASMON_OK) {
        pl_cond_finish(&session->changed);
    }
    return status;
}

void session_finish(struct plasmon_client *client)
{
    struct session *session = &client->session;

    wire_arena_finish(&session->arena);
    pl_cond_finish(&session->changed);
    pl_map_finish(&session->requests);
    frame_finish(&session->frame);
    wire_link_finish(&session->link);
}

void session_die_locked(struct plasmon_client *client, plasmon_status_t status,
                        const char *text)
{
    struct session *session = &client->session;

    pl_mutex_assert_held(&client->lock);
    if (session->state == SESSION_DEAD) {
        return;
    }
    session->state       = SESSION_DEAD;
    session->dead_status = status == PLASMON_OK ? PLASMON_ECLOSED : status;
    (void)snprintf(session->dead_text, sizeof(session->dead_text), "%.*s",
                   (int)sizeof(session->dead_text) - 1, text);
    if (!session->ending) {
        pl_info("client", "session has ended: %s", session->dead_text);
    }
    refs_fail_all(&client->refs, session->dead_status, session->dead_text);
    requests_fail_locked(session, session->dead_status, session->dead_text);
    client_tell_ready_fd(client);
    pl_cond_broadcast(&session->changed);
}

/* ----------------------------------------------------------------------------------- in */

static plasmon_status_t welcome_locked(struct plasmon_client *client,
                                       const Plasmon__V1__Welcome *welcome)
{
    struct session *session = &client->session;

    if (session->session != 0 && welcome->session != session->session) {
        session_die_locked(client, PLASMON_EHEADLOST,
                           "the head no longer knows this session: it was restarted, or "
                           "the connection was "
                           "away for longer than its lease");
        return PLASMON_EHEADLOST;
    }
    if (client_set_devices_locked(client, welcome->n_devices, welcome->devices) !=
        PLASMON_OK) {
        session_die_locked(client, PLASMON_ENOMEM, "out of host memory");
        return PLASMON_ENOMEM;
    }

    session->epoch   = welcome->epoch;
    session->session = welcome->session;
    session->client  = welcome->client;
    client_set_store_locked(client, welcome->store_socket);
    client->memory.told     = welcome->host_copies;
    session->state          = SESSION_OPEN;
    session->broken_at_ns   = 0;
    session->retry_delay_ns = 0;
    wire_link_acked(&session->link, welcome->resumed_seq);
    session_resend_locked(session, welcome->resumed_seq);
    session_kick_locked(client);
    pl_cond_broadcast(&session->changed);
    pl_info("client", "session %016llx with the head, epoch %016llx, %zu devices",
            (unsigned long long)session->session, (unsigned long long)session->epoch,
            welcome->n_devices);
    return PLASMON_OK;
}

/* A frame with its header checked by wire. false: the stream is of no more use. */
static bool take_frame_locked(struct plasmon_client *client,
                              const Plasmon__V1__HeadFrame *frame)
{
    struct session *session = &client->session;
    int fresh;

    if (session->state == SESSION_DEAD) {
        return true;
    }
    if (frame->welcome != NULL && welcome_locked(client, frame->welcome) != PLASMON_OK) {
        return false;
    }
    if (frame->header->credit > session->credit) {
        session->credit = frame->header->credit;
    }
    wire_link_acked(&session->link, frame->header->ack);
    fresh = wire_link_receive(&session->link, frame->header->seq);
    if (fresh < 0) {
        pl_warn("client", "frame %llu came after %llu: connecting again",
                (unsigned long long)frame->header->seq,
                (unsigned long long)session->link.in_seq);
        return false;
    }
    if (fresh > 0) {
        dispatch_head_frame_locked(client, frame);
    }
    if (session->link.in_seq - session->link.in_acked >= ACK_OWED_MAX) {
        session_ack_locked(session);
    }
    pl_cond_broadcast(&session->changed);
    return true;
}

static void on_message(void *user, struct rpc_stream *stream, const uint8_t *bytes,
                       size_t length)
{
    struct plasmon_client *client = user;
    Plasmon__V1__HeadFrame *frame;
    struct pl_err err = {0};
    plasmon_status_t status;
    bool good;

    wire_arena_reset(&client->session.arena);
    status = wire_decode_head_frame(&client->session.arena, bytes, length, &frame, &err);

    pl_mutex_lock(&client->lock);
    if (status != PLASMON_OK) {
        session_die_locked(client, status, err.text);
        good = false;
    } else {
        good = take_frame_locked(client, frame);
    }
    client->session.many = client->refs.tasks_live > PL_LINGER_MANY;
    client_run_callbacks_unlock(client);

    if (!good) {
        rpc_stream_close(stream, PLASMON_OK, "the client gave up this stream");
    }
}

static void on_writable(void *user, struct rpc_stream *stream)
{
    struct plasmon_client *client = user;
    struct session *session       = &client->session;

    pl_mutex_lock(&client->lock);
    if (session->stream == stream) {
        session->writing = false;
        session->many    = client->refs.tasks_live > PL_LINGER_MANY;
        if (session->state == SESSION_OPEN && session->stuck_from != SESSION_NOT_STUCK &&
            !pl_bug("client.stuck_forgotten")) {
            session_resend_locked(session, session->stuck_from);
        }
        session_kick_locked(client);
    }
    pl_mutex_unlock(&client->lock);
}

/*
 * Somebody was there and went before saying more: another head may take its place (a private
 * cluster has but one).
 */
static bool may_come_back(const struct plasmon_client *client, plasmon_status_t status)
{
    switch (status) {
    case PLASMON_EAUTH:
    case PLASMON_EVERSION:
    case PLASMON_EHEADLOST:
        return false;
    default:
        return client->session.state != SESSION_CONNECTING ||
               (status == PLASMON_ECLOSED && !client->embedded.active);
    }
}

static void on_closed(void *user, struct rpc_stream *stream, plasmon_status_t status,
                      const char *why)
{
    struct plasmon_client *client = user;
    struct session *session       = &client->session;

    pl_mutex_lock(&client->lock);
    if (session->stream == stream) {
        session->stream     = NULL;
        session->writing    = false;
        session->stuck_from = SESSION_NOT_STUCK;
    }
    if (session->ending) {
        session_die_locked(client, PLASMON_ECLOSED, "the client has ended");
    } else if (!may_come_back(client, status)) {
        session_die_locked(client, status == PLASMON_OK ? PLASMON_ECONNECT : status, why);
    } else if (session->state != SESSION_DEAD) {
        if (session->broken_at_ns == 0) {
            session->broken_at_ns = pl_now_ns();
        }
        session->state          = SESSION_BROKEN;
        session->retry_delay_ns = pl_min_u64(
            pl_max_u64(session->retry_delay_ns * 2, RETRY_FIRST_NS), RETRY_MAX_NS);
        session->retry_at_ns = pl_now_ns() + session->retry_delay_ns;
        (void)snprintf(session->dead_text, sizeof(session->dead_text), "%s",
                       why != NULL ? why : "");
        pl_info("client", "lost the head (%s): connecting again", session->dead_text);
    }
    pl_cond_broadcast(&session->changed);
    client_run_callbacks_unlock(client);
}

static const struct rpc_stream_ops stream_ops = {
    .message  = on_message,
    .writable = on_writable,
    .closed   = on_closed,
};

/* --------------------------------------------------------------------------- connecting */

static plasmon_status_t send_hello_locked(struct plasmon_client *client)
{
    struct session *session        = &client->session;
    Plasmon__V1__ClientFrame frame = PLASMON__V1__CLIENT_FRAME__INIT;
    Plasmon__V1__Hello hello       = PLASMON__V1__HELLO__INIT;
    Plasmon__V1__Header header;
    plasmon_status_t status;
    uint8_t *buffer;
    size_t length;

    session_header_locked(session, 0, &header);
    hello.protocol_min   = WIRE_PROTOCOL;
    hello.protocol_max   = WIRE_PROTOCOL;
    hello.namespace_     = client->name_space;
    hello.resume_session = session->session;
    hello.resume_ack     = session->link.in_seq;
    hello.host           = client->host;
    hello.label          = client->label;
    frame.header         = &header;
    frame.hello          = &hello;
    if (wire_encode(&frame.base, rpc_buffer_create, &buffer, &length) != PLASMON_OK) {
        return PLASMON_ENOMEM;
    }
    session->writing = true;
    status           = rpc_stream_send(session->stream, buffer, length);
    /* A refusal may be here before the hello is out: `closed` follows, and knows why. */
    return status == PLASMON_ECLOSED ? PLASMON_OK : status;
}

static plasmon_status_t connect_locked(struct plasmon_client *client, uint32_t timeout_ms)
{
    struct session *session = &client->session;
    plasmon_status_t status;

    status = rpc_stream_open(client->channel, SESSION_PATH, timeout_ms, &stream_ops, client,
                             &session->stream);
    if (status != PLASMON_OK) {
        session->stream = NULL;
        return status;
    }
    return send_hello_locked(client);
}

/* A connection that broke before the first answer is made anew (session_tick). */
static bool is_opening(const struct session *session)
{
    return session->session == 0 &&
           (session->state == SESSION_CONNECTING || session->state == SESSION_BROKEN);
}

plasmon_status_t session_open(struct plasmon_client *client, uint32_t timeout_ms)
{
    struct session *session = &client->session;
    uint64_t deadline_ns    = client_deadline(timeout_ms) + CAUSE_NS;
    plasmon_status_t status;

    pl_mutex_lock(&client->lock);
    status = connect_locked(client, timeout_ms);
    if (status != PLASMON_OK) {
        (void)error_set(status, "cannot connect to the head: %s", pl_status_text(status));
    }
    while (status == PLASMON_OK && is_opening(session)) {
        if (!pl_cond_wait_until(&session->changed, &client->lock, deadline_ns) &&
            is_opening(session)) {
            bool lost = session->state == SESSION_BROKEN;

            status =
                error_set(PLASMON_ETIMEDOUT, "the head did not answer within %u ms%s%s",
                          timeout_ms, lost ? ": " : "", lost ? session->dead_text : "");
        }
    }
    if (status == PLASMON_OK && session->state == SESSION_DEAD) {
        status = error_set(session->dead_status, "%s", session->dead_text);
    }
    pl_mutex_unlock(&client->lock);
    if (status != PLASMON_OK && client->address != NULL &&
        strstr(plasmon_error(client), client->address) == NULL) {
        (void)error_prefix(status, "no session with the head at %s", client->address);
    }
    return status;
}

plasmon_status_t session_ask_locked(struct plasmon_client *client, uint64_t deadline_ns)
{
    struct session *session         = &client->session;
    Plasmon__V1__ClientFrame fields = PLASMON__V1__CLIENT_FRAME__INIT;
    uint64_t number                 = ++session->ping_last;
    plasmon_status_t status;

    fields.ping = number;
    status      = request_send_locked(client, NULL, FRAME_PING, &fields);
    while (status == PLASMON_OK && session->pong_last < number) {
        if (session->state == SESSION_DEAD) {
            status = error_set(session->dead_status, "%s", session->dead_text);
        } else if (!pl_cond_wait_until(&session->changed, &client->lock, deadline_ns) &&
                   session->pong_last < number && session->state != SESSION_DEAD) {
            status = error_set(PLASMON_ETIMEDOUT, "the head has not answered in time");
        }
    }
    return status;
}

static void wait_stream_end_locked(struct plasmon_client *client, uint32_t timeout_ms)
{
    uint64_t deadline_ns = client_deadline(timeout_ms);

    while (client->session.stream != NULL &&
           pl_cond_wait_until(&client->session.changed, &client->lock, deadline_ns)) {
    }
}

bool session_many(void *user)
{
    const struct plasmon_client *client = user;

    return client->session.many;
}

void session_end(struct plasmon_client *client, uint32_t grace_ms)
{
    struct session *session      = &client->session;
    Plasmon__V1__ClientFrame bye = PLASMON__V1__CLIENT_FRAME__INIT;
    uint64_t deadline_ns         = client_deadline(grace_ms);

    pl_mutex_lock(&client->lock);
    session_flush_locked(client);
    while (session->state == SESSION_OPEN && client->refs.tasks_live > 0 &&
           pl_cond_wait_until(&session->changed, &client->lock, deadline_ns)) {
    }

    session->ending = true;
    if (session->state == SESSION_OPEN) {
        bye.bye = true;
        if (!frame_admits(&session->frame, FRAME_BYE)) {
            session_flush_locked(client);
        }
        if (frame_add_fields(&session->frame, FRAME_BYE, &bye) == PLASMON_OK) {
            session_flush_locked(client);
            /* the head ends it when it has taken the bye over */
            wait_stream_end_locked(client, BYE_MS);
        }
    }
    if (session->stream != NULL) {
        rpc_stream_close(session->stream, PLASMON_OK, "the client has ended");
        wait_stream_end_locked(client, CLOSE_MS);
    }
    session_die_locked(client, PLASMON_ECLOSED, "the client has ended");
    pl_mutex_unlock(&client->lock);
}

/*
 * The private head is behind a socket that the store gave us; a new one needs a new socket. Loop's
 * thread, without the lock.
 */
static plasmon_status_t replace_channel(struct plasmon_client *client)
{
    struct rpc_channel_config config = {.token = client->token};
    struct rpc_channel *channel, *old;
    struct pl_err err = {0};
    plasmon_status_t status;

    status =
        embedded_head_fd(&client->embedded, &client->shared, true, 1000, &config.fd, &err);
    if (status != PLASMON_OK) {
        return status;
    }
    status = rpc_channel_create(client->loop, &config, &channel);
    if (status != PLASMON_OK) {
        return status;
    }
    pl_mutex_lock(&client->lock);
    old             = client->channel;
    client->channel = channel;
    pl_mutex_unlock(&client->lock);
    rpc_channel_destroy(old);
    return PLASMON_OK;
}

static void reconnect(struct plasmon_client *client, uint64_t now_ns)
{
    struct session *session = &client->session;
    plasmon_status_t status = PLASMON_OK;
    bool due, late, unused;
    struct pl_err end = {0};
    char text[sizeof(session->dead_text) + 96];

    pl_mutex_lock(&client->lock);
    due = session->state == SESSION_BROKEN && session->stream == NULL && !session->ending &&
          now_ns >= session->retry_at_ns;
    late   = due && now_ns - session->broken_at_ns > RECONNECT_MS * 1000000ull;
    unused = client->channel_users == 0;
    if (late) {
        (void)snprintf(text, sizeof(text), "no connection to the head for %u s: %s",
                       RECONNECT_MS / 1000u, session->dead_text);
        session_die_locked(client, PLASMON_ECLOSED, text);
    }
    client_run_callbacks_unlock(client);
    if (!due || late || (client->embedded.active && !unused)) {
        return;
    }

    if (client->embedded.active) {
        status = replace_channel(client);
    }
    pl_mutex_lock(&client->lock);
    if (status == PLASMON_OK) {
        status = connect_locked(client, RECONNECT_MS);
    }
    if (status == PLASMON_ECLOSED && client->embedded.active) {
        (void)pl_err_set(&end, PLASMON_ECLOSED, "the private cluster has ended");
        embedded_add_log(&client->embedded, &end);
        session_die_locked(client, PLASMON_ECLOSED, end.text);
    } else if (status != PLASMON_OK) {
        session->retry_delay_ns = pl_min_u64(session->retry_delay_ns * 2, RETRY_MAX_NS);
        session->retry_at_ns    = now_ns + session->retry_delay_ns;
    }
    client_run_callbacks_unlock(client);
}

void session_tick(void *user)
{
    struct plasmon_client *client = user;
    struct session *session       = &client->session;
    bool broken;

    pl_mutex_lock(&client->lock);
    if (session->state == SESSION_OPEN && wire_link_owes_ack(&session->link)) {
        session_ack_locked(session);
    }
    session_kick_locked(client);
    broken = session->state == SESSION_BROKEN;
    pl_mutex_unlock(&client->lock);

    if (broken) {
        reconnect(client, pl_now_ns());
    }
}
