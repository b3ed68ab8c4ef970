/*
 * What goes out in a session: operations gathered into frames, frames numbered, sent, and sent again.
 *
 * A frame's bytes exist twice while it is on its way: with gRPC, and in wire_link until the head
 * acknowledged it. The order of frames is the order of their numbers because both are given out
 * under the client's lock.
 */
#include "client/session.h"

#include <string.h>

#include "base/fault.h"
#include "base/linger.h"
#include "base/log.h"
#include "client/client_int.h"

#define KEPT_WAIT (64u << 20) /* unacknowledged bytes: threads wait above this */
#define NO_MEMORY "out of host memory while a frame was sent"

static void hand_over_locked(struct session *session, uint64_t seq, uint8_t *buffer,
                             size_t length)
{
    if (session->state != SESSION_OPEN || session->stuck_from != SESSION_NOT_STUCK) {
        rpc_buffer_destroy(buffer); /* the link keeps it; it goes out with the resend */
        return;
    }
    if (rpc_stream_send(session->stream, buffer, length) == PLASMON_OK) {
        session->writing = !rpc_stream_idle(session->stream);
    } else {
        session->stuck_from = seq - 1;
    }
}

void session_header_locked(struct session *session, uint64_t seq,
                           Plasmon__V1__Header *header)
{
    plasmon__v1__header__init(header);
    header->protocol = WIRE_PROTOCOL;
    header->epoch    = session->epoch;
    header->session  = session->session;
    header->seq      = seq;
    header->ack      = wire_link_ack(&session->link);
    header->credit   = INT64_MAX; /* the client takes whatever the head has to say */
}

static void cut_locked(struct plasmon_client *client)
{
    struct session *session = &client->session;
    Plasmon__V1__Header header;
    uint8_t *buffer;
    size_t length;
    uint64_t seq;
    plasmon_status_t status;

    if (session->frame.empty || session->state == SESSION_DEAD) {
        return;
    }

    seq = wire_link_next_seq(&session->link);
    session_header_locked(session, seq, &header);
    status = frame_pack(&session->frame, &header, rpc_buffer_create, &buffer, &length);
    if (status != PLASMON_OK) {
        session_die_locked(client, status, NO_MEMORY);
        return;
    }
    frame_clear(&session->frame);

    status = wire_link_sent(&session->link, seq, buffer, length);
    if (status != PLASMON_OK) {
        rpc_buffer_destroy(buffer);
        session_die_locked(client, status,
                           status == PLASMON_ENOMEM
                               ? NO_MEMORY
                               : "too much is unacknowledged: the head does not keep up");
        return;
    }
    hand_over_locked(session, seq, buffer, length);
}

void session_flush_locked(struct plasmon_client *client)
{
    pl_mutex_assert_held(&client->lock);
    cut_locked(client);
}

/*
 * With few tasks under way each is sent as soon as the head has taken the one before; of many,
 * those that come until the loop's thread says so.
 */
static bool is_writing(struct plasmon_client *client)
{
    struct session *session = &client->session;

    if (session->writing && client->refs.tasks_live <= PL_LINGER_MANY) {
        session->writing = !rpc_stream_idle(session->stream);
    }
    return session->writing;
}

void session_kick_locked(struct plasmon_client *client)
{
    struct session *session = &client->session;

    if (frame_full(&session->frame) ||
        (session->state == SESSION_OPEN && session->stuck_from == SESSION_NOT_STUCK &&
         !is_writing(client))) {
        cut_locked(client);
    }
}

void session_ack_locked(struct session *session)
{
    struct frame none;
    Plasmon__V1__Header header;
    uint8_t *buffer;
    size_t length;

    if (session->state != SESSION_OPEN || session->stuck_from != SESSION_NOT_STUCK) {
        return;
    }
    frame_init(&none);
    session_header_locked(session, 0, &header);
    if (frame_pack(&none, &header, rpc_buffer_create, &buffer, &length) == PLASMON_OK &&
        rpc_stream_send(session->stream, buffer, length) == PLASMON_OK) {
        session->writing = !rpc_stream_idle(session->stream);
    }
}

void session_heard_locked(struct plasmon_client *client, uint64_t number)
{
    struct session *session         = &client->session;
    Plasmon__V1__ClientFrame fields = PLASMON__V1__CLIENT_FRAME__INIT;

    if (session->state == SESSION_DEAD) {
        return;
    }
    if (!frame_admits(&session->frame, FRAME_HOST_COPIES)) {
        cut_locked(client);
    }
    fields.host_copies_heard = number;
    if (frame_add_fields(&session->frame, FRAME_HOST_COPIES, &fields) != PLASMON_OK) {
        pl_warn("client", "out of host memory: the head is not answered, and goes on");
        return;
    }
    cut_locked(client);
}

struct resend {
    struct session *session;
    uint64_t seq;
    bool refused;
};

static void resend_one(void *user, const uint8_t *bytes, size_t length)
{
    struct resend *resend = user;
    uint8_t *buffer;

    if (resend->refused) {
        return;
    }
    buffer = rpc_buffer_create(length);
    if (buffer != NULL) {
        memcpy(buffer, bytes, length);
        if (rpc_stream_send(resend->session->stream, buffer, length) == PLASMON_OK) {
            resend->session->writing = !rpc_stream_idle(resend->session->stream);
            resend->seq++;
            return;
        }
    }
    resend->refused = true;
}

void session_resend_locked(struct session *session, uint64_t from)
{
    struct resend resend = {.session = session, .seq = from};

    wire_link_resend(&session->link, from + (uint64_t)pl_bug("client.resend_skips"),
                     resend_one, &resend);
    session->stuck_from = resend.refused ? resend.seq : SESSION_NOT_STUCK;
}

plasmon_status_t session_room_locked(struct plasmon_client *client, uint32_t tasks,
                                     enum frame_kind kind)
{
    struct session *session = &client->session;

    for (;;) {
        bool credit, kept;

        if (session->state == SESSION_DEAD) {
            return error_set(session->dead_status, "%s", session->dead_text);
        }
        if (!frame_admits(&session->frame, kind)) {
            cut_locked(client);
            continue;
        }
        credit = tasks == 0 || session->tasks_sent + tasks <= session->credit;
        kept   = session->link.kept_bytes + session->frame.length < KEPT_WAIT;
        if (credit && kept) {
            return PLASMON_OK;
        }
        if (client_on_loop_thread(client)) {
            return error_set(PLASMON_EAGAIN,
                             "%s, and a callback must not wait: submit from another thread",
                             credit ? "too much is on its way"
                                    : "as many tasks are in flight as the head allows");
        }
        cut_locked(client);
        pl_cond_wait(&session->changed, &client->lock);
    }
}

void session_release_locked(struct plasmon_client *client, uint64_t ref, uint64_t bytes,
                            enum release_when when)
{
    struct session *session = &client->session;

    if (session->state == SESSION_DEAD) {
        return;
    }
    if (!frame_admits(&session->frame, FRAME_RELEASE)) {
        cut_locked(client);
    }
    if (frame_add_release(&session->frame, ref, bytes) != PLASMON_OK) {
        pl_warn("client", "out of host memory: ref %llu stays until the session ends",
                (unsigned long long)ref);
        return;
    }
    if (when == RELEASE_AT_ONCE) {
        cut_locked(client);
    } else if (when == RELEASE_SOON) {
        session_kick_locked(client);
    }
}
