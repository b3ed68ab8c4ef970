/*
 * What is put out to clients and workers: numbered frames, which are kept until they are
 * acknowledged; welcomes, acknowledgements and questions, which are not.
 *
 * A frame is a header in front of a body that the core encoded. Its bytes are a function of the
 * inputs: number, acknowledgement (of what was taken over before), credit. They are built where
 * they are kept. The digest of all of it is what tests compare.
 */
#include <string.h>

#include "head/machine_int.h"

enum { HEADER_BYTES_MAX = 128 };

/* ---------------------------------------------------------------------- numbered frames */

/* A length-delimited field 1: every frame's header. Its length is below 128: one byte. */
static size_t header_pack(const struct head_machine *machine, const struct head_peer *peer,
                          uint64_t seq, uint64_t credit, uint8_t out[HEADER_BYTES_MAX])
{
    Plasmon__V1__Header header = PLASMON__V1__HEADER__INIT;
    size_t length;

    header.protocol = WIRE_PROTOCOL;
    header.epoch    = machine->settings.epoch;
    header.session  = peer->session;
    header.seq      = seq;
    header.ack      = peer->link.in_seq;
    header.credit   = credit;
    length          = plasmon__v1__header__get_packed_size(&header);
    PL_CHECK(length < HEADER_BYTES_MAX - 8);
    out[0] = 1 << 3 | 2;
    out[1] = (uint8_t)length;
    return 2 + plasmon__v1__header__pack(&header, out + 2);
}

static uint64_t digest_mix(uint64_t digest, uint64_t value)
{
    digest = (digest ^ value) * UINT64_C(0x9e3779b97f4a7c15);
    return digest ^ digest >> 32;
}

/*
 * Numbered and kept. NULL: it acknowledges too little for that, and not that there is no memory: a
 * head that replays the journal would decide otherwise.
 */
static const uint8_t *frame_keep(struct head_machine *machine, struct head_peer *peer,
                                 uint64_t credit, const uint8_t *body, size_t length,
                                 size_t *out_length)
{
    uint64_t seq = wire_link_next_seq(&peer->link);
    uint8_t header[HEADER_BYTES_MAX];
    size_t header_bytes = header_pack(machine, peer, seq, credit, header);
    uint8_t *frame;

    if (peer->overflown || !wire_link_fits(&peer->link, header_bytes + length)) {
        peer->overflown = true;
        return NULL;
    }
    frame = wire_link_keep(&peer->link, seq, header_bytes + length);
    PL_CHECK(frame != NULL);
    memcpy(frame, header, header_bytes);
    if (length > 0) {
        memcpy(frame + header_bytes, body, length);
    }
    if (machine->config.digest) {
        machine->digest =
            digest_mix(machine->digest, head_crc32c(0, frame, header_bytes + length));
    }
    *out_length         = header_bytes + length;
    peer->link.in_acked = peer->link.in_seq;
    peer->credit_told   = pl_max_u64(peer->credit_told, credit);
    return frame;
}

/* Outside of the sequence; lent until the next one. */
static const uint8_t *frame_plain(struct head_machine *machine, struct head_peer *peer,
                                  uint64_t credit, const uint8_t *body, size_t length,
                                  size_t *out_length)
{
    uint8_t header[HEADER_BYTES_MAX];
    size_t header_bytes = header_pack(machine, peer, 0, credit, header);

    machine->scratch.length = 0;
    head_bytes_append(&machine->scratch, header, header_bytes);
    head_bytes_append(&machine->scratch, body, length);
    *out_length         = machine->scratch.length;
    peer->link.in_acked = peer->link.in_seq;
    peer->credit_told   = pl_max_u64(peer->credit_told, credit);
    return machine->scratch.data;
}

void head_machine_to_client(struct head_machine *machine, uint64_t session,
                            const uint8_t *body, size_t length)
{
    struct head_machine_client *client = head_machine_client_of(machine, session);
    const uint8_t *frame;
    size_t frame_bytes;

    if (client == NULL || machine->replacing) {
        return;
    }
    frame =
        frame_keep(machine, &client->peer, head_core_client_credit(machine->core, session),
                   body, length, &frame_bytes);
    if (frame == NULL) {
        pl_warn("head", "session %016llx has too much unacknowledged; it is ended",
                (unsigned long long)session);
        client->ended       = true;
        machine->some_ended = true;
    } else if (client->peer.connected) {
        machine->config.ops->client_send(machine->config.user, session, frame, frame_bytes);
    }
}

void head_machine_to_worker(struct head_machine *machine, uint32_t device,
                            const uint8_t *body, size_t length)
{
    struct head_machine_worker *worker = head_machine_worker_of(machine, device);
    const uint8_t *frame;
    size_t frame_bytes;

    if (worker == NULL || machine->replacing) {
        return;
    }
    frame = frame_keep(machine, &worker->peer, 0, body, length, &frame_bytes);
    if (frame == NULL) {
        /* Its next incarnation begins a session of its own. */
        pl_error("head", "device %u acknowledges nothing any more; its worker is ended",
                 device);
        machine->config.ops->fence(machine->config.user, worker->host, worker->host_device,
                                   worker->incarnation);
    } else if (worker->peer.connected) {
        machine->config.ops->worker_send(machine->config.user, device, frame, frame_bytes);
    }
}

/* ----------------------------------------------------------------- what is not numbered */

struct resend {
    struct head_machine *machine;
    uint64_t session;
    uint32_t device; /* UINT32_MAX: to the client of the session */
};

static void resend_one(void *user, const uint8_t *bytes, size_t length)
{
    const struct resend *resend        = user;
    const struct head_machine_ops *ops = resend->machine->config.ops;

    if (resend->device == UINT32_MAX) {
        ops->client_send(resend->machine->config.user, resend->session, bytes, length);
    } else {
        ops->worker_send(resend->machine->config.user, resend->device, bytes, length);
    }
}

void head_machine_client_welcome(struct head_machine *machine, uint64_t session,
                                 const char *host)
{
    struct head_machine_client *client = head_machine_client_of(machine, session);
    struct resend resend               = {machine, session, UINT32_MAX};
    Plasmon__V1__HeadFrame frame       = PLASMON__V1__HEAD_FRAME__INIT;
    Plasmon__V1__Welcome welcome       = PLASMON__V1__WELCOME__INIT;
    uint64_t credit                    = head_core_client_credit(machine->core, session);
    const uint8_t *bytes;
    uint8_t *body;
    size_t length;

    PL_CHECK(client != NULL);
    wire_arena_reset(&machine->arena);
    PL_CHECK(head_core_client_welcome(machine->core, session, &machine->arena, &welcome) ==
             PLASMON_OK);
    welcome.store_socket = (char *)(uintptr_t)head_machine_store_socket(machine, host);
    welcome.resumed_seq  = client->peer.link.in_seq;
    frame.welcome        = &welcome;
    length               = plasmon__v1__head_frame__get_packed_size(&frame);
    body                 = head_alloc(length + 1);
    (void)plasmon__v1__head_frame__pack(&frame, body); /* its size was just computed */
    bytes = frame_plain(machine, &client->peer, credit, body, length, &length);
    machine->config.ops->client_send(machine->config.user, session, bytes, length);
    pl_free(body);
    wire_link_resend(&client->peer.link, client->peer.link.out_acked, resend_one, &resend);
}

void head_machine_worker_welcome(struct head_machine *machine, uint32_t device)
{
    struct head_machine_worker *worker = head_machine_worker_of(machine, device);
    struct resend resend               = {machine, 0, device};
    Plasmon__V1__WorkerCommand command = PLASMON__V1__WORKER_COMMAND__INIT;
    Plasmon__V1__WorkerWelcome welcome = PLASMON__V1__WORKER_WELCOME__INIT;
    uint8_t body[256];
    const uint8_t *bytes;
    size_t length;

    PL_CHECK(worker != NULL);
    welcome.epoch             = machine->settings.epoch;
    welcome.session           = worker->peer.session;
    welcome.device            = device;
    welcome.host_device_count = head_core_device_count(machine->core);
    welcome.resumed_seq       = worker->peer.link.in_seq;
    welcome.node_session      = head_machine_node_session(machine, worker->host);
    command.welcome           = &welcome;
    PL_CHECK(plasmon__v1__worker_command__get_packed_size(&command) <= sizeof(body));
    length = plasmon__v1__worker_command__pack(&command, body);
    bytes  = frame_plain(machine, &worker->peer, 0, body, length, &length);
    machine->config.ops->worker_send(machine->config.user, device, bytes, length);
    wire_link_resend(&worker->peer.link, worker->peer.link.out_acked, resend_one, &resend);
}

static bool ack_due(const struct wire_link *link, bool all)
{
    return all ? wire_link_owes_ack(link) : wire_link_owes_many(link);
}

void head_machine_acks(struct head_machine *machine, bool all, uint64_t credit_step)
{
    const struct head_machine_ops *ops = machine->config.ops;
    struct pl_list *pos;
    const uint8_t *bytes;
    size_t length;

    pl_list_for_each(pos, &machine->clients) {
        struct head_machine_client *client =
            pl_container_of(pos, struct head_machine_client, link);
        uint64_t session = client->peer.session;
        uint64_t credit  = head_core_client_credit(machine->core, session);

        /*
         * Tasks that failed early were reported before they ended: their credit comes back with
         * nothing else to say.
         */
        if (client->peer.connected && (ack_due(&client->peer.link, all) ||
                                       credit >= client->peer.credit_told + credit_step)) {
            bytes = frame_plain(machine, &client->peer, credit, NULL, 0, &length);
            ops->client_send(machine->config.user, session, bytes, length);
        }
    }
    pl_list_for_each(pos, &machine->workers) {
        struct head_machine_worker *worker =
            pl_container_of(pos, struct head_machine_worker, link);

        if (worker->peer.connected && ack_due(&worker->peer.link, all)) {
            bytes = frame_plain(machine, &worker->peer, 0, NULL, 0, &length);
            ops->worker_send(machine->config.user, worker->device, bytes, length);
        }
    }
}

uint32_t head_machine_ask_workers(struct head_machine *machine, const uint8_t *body,
                                  size_t length)
{
    struct pl_list *pos;
    uint32_t asked = 0;

    pl_list_for_each(pos, &machine->workers) {
        struct head_machine_worker *worker =
            pl_container_of(pos, struct head_machine_worker, link);
        const uint8_t *bytes;
        size_t frame_bytes;

        if (worker->peer.connected) {
            bytes = frame_plain(machine, &worker->peer, 0, body, length, &frame_bytes);
            machine->config.ops->worker_send(machine->config.user, worker->device, bytes,
                                             frame_bytes);
            asked++;
        }
    }
    return asked;
}

/* ---------------------------------------------------------------------------- for tests */

static void mix_kept(void *user, const uint8_t *bytes, size_t length)
{
    uint64_t *digest = user;

    *digest = digest_mix(*digest, head_crc32c(0, bytes, length));
}

static uint64_t mix_peer(uint64_t digest, const struct head_peer *peer)
{
    const struct wire_link *link = &peer->link;

    digest = digest_mix(digest, peer->session);
    digest = digest_mix(digest, link->in_seq);
    digest = digest_mix(digest, link->out_seq);
    digest = digest_mix(digest, link->out_acked);
    digest = digest_mix(digest, (uint64_t)peer->connected << 1 | peer->overflown);
    wire_link_resend(link, link->out_acked, mix_kept, &digest);
    return digest;
}

uint64_t head_machine_digest(const struct head_machine *machine)
{
    uint64_t digest =
        digest_mix(digest_mix(machine->digest, machine->session_last), machine->now_ms);
    const struct pl_list *pos;

    pl_list_for_each(pos, &machine->clients) {
        digest =
            mix_peer(digest, &pl_container_of(pos, struct head_machine_client, link)->peer);
    }
    pl_list_for_each(pos, &machine->workers) {
        const struct head_machine_worker *worker =
            pl_container_of(pos, struct head_machine_worker, link);

        digest = digest_mix(digest, (uint64_t)worker->incarnation << 32 | worker->device);
        digest = mix_peer(digest, &worker->peer);
    }
    return digest;
}
