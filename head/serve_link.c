/* Frames of the head's side of a session: a header of our own in front of a body that the core encoded. */
#include "head/serve.h"

#include <string.h>

#include "base/alloc.h"
#include "base/log.h"

/* A length-delimited field 1: every frame's header. Its length is below 128: one byte. */
static size_t header_pack(const Plasmon__V1__Header *header, uint8_t out[128])
{
    size_t length = plasmon__v1__header__get_packed_size(header);

    PL_CHECK(length < 120);
    out[0] = 1 << 3 | 2;
    out[1] = (uint8_t)length;
    return 2 + plasmon__v1__header__pack(header, out + 2);
}

void serve_hello_keep(struct serve_hello *hello, const uint8_t *bytes, size_t length)
{
    hello->bytes = pl_alloc(length);
    PL_CHECK(hello->bytes != NULL);
    memcpy(hello->bytes, bytes, length);
    hello->length   = length;
    hello->since_ms = serve_now_ms();
}

void serve_peer_close(struct serve_peer *peer, plasmon_status_t status, const char *why)
{
    if (peer->stream != NULL) {
        rpc_stream_close(peer->stream, status, why);
    }
}

/* Takes the buffer. Without a stream it goes: what was numbered is kept, and sent again when the peer comes back. */
static void put_on_wire(struct serve_peer *peer, uint8_t *buffer, size_t length)
{
    if (peer->stream == NULL) {
        rpc_buffer_destroy(buffer);
    } else if (rpc_stream_send(peer->stream, buffer, length) == PLASMON_EAGAIN) {
        rpc_stream_close(peer->stream, PLASMON_ELIMIT,
                         "the other side does not read: more is queued for it than fits; "
                         "it may reconnect and resume");
    }
}

void serve_peer_send(struct serve *serve, struct serve_peer *peer, uint64_t credit,
                     const uint8_t *body, size_t length, bool numbered)
{
    Plasmon__V1__Header header = PLASMON__V1__HEADER__INIT;
    uint8_t head[128];
    uint8_t *frame;
    size_t head_bytes;

    header.protocol   = WIRE_PROTOCOL;
    header.epoch      = serve->epoch;
    header.session    = peer->session;
    header.seq        = numbered ? wire_link_next_seq(&peer->link) : 0;
    header.ack        = peer->link.in_seq;
    header.credit     = credit;
    peer->credit_told = pl_max_u64(peer->credit_told, credit);
    head_bytes        = header_pack(&header, head);

    frame = rpc_buffer_create(head_bytes + length);
    PL_CHECK(frame != NULL);
    memcpy(frame, head, head_bytes);
    if (length > 0) {
        memcpy(frame + head_bytes, body, length);
    }
    if (numbered &&
        wire_link_sent(&peer->link, header.seq, frame, head_bytes + length) != PLASMON_OK) {
        pl_warn("head", "session %016llx has too much unacknowledged; it is ended",
                (unsigned long long)peer->session);
        serve_peer_close(peer, PLASMON_ELIMIT, "too much is unacknowledged");
    }
    peer->link.in_acked = peer->link.in_seq;
    put_on_wire(peer, frame, head_bytes + length);
}

static void resend_one(void *user, const uint8_t *bytes, size_t length)
{
    struct serve_peer *peer = user;
    uint8_t *buffer         = rpc_buffer_create(length);

    if (buffer == NULL) {
        serve_peer_close(peer, PLASMON_ENOMEM, "the head is out of memory");
        return;
    }
    memcpy(buffer, bytes, length);
    put_on_wire(peer, buffer, length);
}

void serve_peer_resend(struct serve_peer *peer, uint64_t from)
{
    wire_link_acked(&peer->link, from);
    wire_link_resend(&peer->link, from, resend_one, peer);
}

static void orphan_message(void *user, struct rpc_stream *stream, const uint8_t *bytes,
                           size_t length)
{
    (void)user;
    (void)stream;
    (void)bytes;
    (void)length;
}

static void orphan_closed(void *user, struct rpc_stream *stream, plasmon_status_t status,
                          const char *why)
{
    (void)user;
    (void)stream;
    (void)status;
    (void)why;
}

const struct rpc_stream_ops serve_orphan_ops = {.message = orphan_message,
                                                .closed  = orphan_closed};
