/* The store's side of its session with the head: see node_session.h. */
#include "store/node_session.h"

#include "base/fault.h"
#include "base/log.h"

#define DOWNS_KEPT_MAX   256u
#define FRAME_DOWNS_MAX  64u
#define FRAME_SPILLS_MAX 64u

struct kept_down {
    struct store_uplink_down down;
    uint64_t sent_seq; /* in this connection; 0: not sent yet */
};

struct kept_result {
    struct store_spill_result result;
    uint64_t sent_seq; /* in this connection; 0: not sent yet */
};

void store_node_session_init(struct store_node_session *session,
                             const struct store_node_session_ops *ops, void *user,
                             uint64_t joined)
{
    *session = (struct store_node_session){.ops     = ops,
                                           .user    = user,
                                           .joined  = joined,
                                           .downs   = PL_VEC_INIT(struct kept_down),
                                           .results = PL_VEC_INIT(struct kept_result)};
}

void store_node_session_finish(struct store_node_session *session)
{
    pl_vec_finish(&session->downs);
    pl_vec_finish(&session->results);
}

static struct kept_down *down_at(const struct store_node_session *session, size_t i)
{
    return pl_vec_at(&session->downs, i);
}

static struct kept_result *result_at(const struct store_node_session *session, size_t i)
{
    return pl_vec_at(&session->results, i);
}

/* ---------------------------------------------------------------------------------- out */

static void send_frame(struct store_node_session *session, Plasmon__V1__NodeFrame *frame,
                       uint64_t seq)
{
    Plasmon__V1__Header header = PLASMON__V1__HEADER__INIT;
    size_t length;
    uint8_t *bytes;

    header.protocol   = WIRE_PROTOCOL;
    header.epoch      = session->epoch;
    header.session    = session->session;
    header.seq        = seq;
    header.ack        = session->in_seq;
    frame->header     = &header;
    session->in_acked = session->in_seq;

    length = plasmon__v1__node_frame__get_packed_size(frame);
    bytes  = session->ops->buffer(length);
    if (bytes == NULL) {
        return; /* a lost frame: the head asks by hanging up, and deaths are kept */
    }
    (void)plasmon__v1__node_frame__pack(frame, bytes);
    session->ops->send(session->user, bytes, length);
}

void store_node_session_begin(struct store_node_session *session)
{
    Plasmon__V1__NodeFrame frame  = PLASMON__V1__NODE_FRAME__INIT;
    Plasmon__V1__NodeHello hello  = PLASMON__V1__NODE_HELLO__INIT;
    struct store_node_offer offer = {0};

    session->welcomed = false;
    session->epoch = session->session = 0;
    session->out_seq = session->in_seq = session->in_acked = 0;
    for (size_t i = 0; i < session->downs.count; i++) {
        down_at(session, i)->sent_seq = 0;
    }
    for (size_t i = 0; i < session->results.count; i++) {
        result_at(session, i)->sent_seq = 0;
    }
    session->ops->offer(session->user, &offer);
    hello.host         = (char *)(uintptr_t)session->host;
    hello.node         = (char *)(uintptr_t)session->name;
    hello.store_socket = (char *)(uintptr_t)session->store_socket;
    hello.devices      = session->devices;
    hello.memory =
        session->memory + (session->joined != 0 && pl_bug("store.memory_forgotten"));
    hello.spill_memory     = offer.memory_bytes;
    hello.spill_files      = offer.file_bytes;
    hello.spill_life       = offer.life;
    hello.spill_slab       = offer.slab;
    hello.spill_write_back = offer.ahead.write_back;
    hello.spill_on_demand  = offer.ahead.on_demand;
    frame.hello            = &hello;
    send_frame(session, &frame, 0);
}

void store_node_session_broke(struct store_node_session *session)
{
    session->welcomed = false;
}

void store_node_session_beat(struct store_node_session *session)
{
    Plasmon__V1__NodeFrame frame = PLASMON__V1__NODE_FRAME__INIT;

    frame.beat = ++session->beat;
    send_frame(session, &frame, 0);
}

/* The head wants to know whether anybody is here: not at the next tick, now. */
static void send_answer(struct store_node_session *session, uint64_t ask)
{
    Plasmon__V1__NodeFrame frame = PLASMON__V1__NODE_FRAME__INIT;

    frame.answer = ask;
    send_frame(session, &frame, 0);
}

bool store_node_session_owes_ack(const struct store_node_session *session)
{
    return session->in_seq != session->in_acked;
}

bool store_node_session_leave(struct store_node_session *session, uint32_t deadline_ms)
{
    Plasmon__V1__NodeFrame frame = PLASMON__V1__NODE_FRAME__INIT;
    Plasmon__V1__NodeLeave leave = PLASMON__V1__NODE_LEAVE__INIT;

    if (session->welcomed) {
        leave.deadline_ms = deadline_ms;
        frame.leave       = &leave;
        send_frame(session, &frame, ++session->out_seq);
    }
    return session->welcomed;
}

static void send_downs(struct store_node_session *session)
{
    Plasmon__V1__NodeFrame frame = PLASMON__V1__NODE_FRAME__INIT;
    Plasmon__V1__WorkerDown down[FRAME_DOWNS_MAX];
    Plasmon__V1__WorkerDown *list[FRAME_DOWNS_MAX];

    for (size_t i = 0; i < session->downs.count && frame.n_down < FRAME_DOWNS_MAX; i++) {
        struct kept_down *kept        = down_at(session, i);
        Plasmon__V1__WorkerDown *next = &down[frame.n_down];

        if (kept->sent_seq != 0) {
            continue;
        }
        plasmon__v1__worker_down__init(next);
        next->host_device    = kept->down.host_device;
        next->incarnation    = kept->down.incarnation;
        next->wait_status    = kept->down.wait_status;
        next->text           = kept->down.text;
        next->quarantined    = kept->down.quarantined;
        next->status         = kept->down.status;
        list[frame.n_down++] = next;
        kept->sent_seq       = session->out_seq + 1;
    }
    if (frame.n_down > 0) {
        frame.down = list;
        send_frame(session, &frame, ++session->out_seq);
    }
}

static void send_spilled(struct store_node_session *session)
{
    Plasmon__V1__NodeFrame frame = PLASMON__V1__NODE_FRAME__INIT;
    Plasmon__V1__SpillDone done[FRAME_SPILLS_MAX];
    Plasmon__V1__SpillDone *list[FRAME_SPILLS_MAX];
    struct store_spill_result fresh;

    while (session->ops->spilled(session->user, &fresh)) {
        struct kept_result *kept = pl_vec_push(&session->results);

        PL_CHECK(kept != NULL);
        *kept = (struct kept_result){.result = fresh};
    }
    for (size_t i = 0; i < session->results.count && frame.n_spill_done < FRAME_SPILLS_MAX;
         i++) {
        struct kept_result *kept     = result_at(session, i);
        Plasmon__V1__SpillDone *next = &done[frame.n_spill_done];

        if (kept->sent_seq != 0) {
            continue;
        }
        plasmon__v1__spill_done__init(next);
        next->id                   = kept->result.id;
        next->status               = kept->result.status;
        next->host_buffer          = kept->result.host_buffer;
        next->bytes                = kept->result.bytes;
        next->text                 = kept->result.text;
        list[frame.n_spill_done++] = next;
        kept->sent_seq             = session->out_seq + 1;
    }
    if (frame.n_spill_done > 0) {
        frame.spill_done = list;
        send_frame(session, &frame, ++session->out_seq);
    }
}

void store_node_session_send_owed(struct store_node_session *session)
{
    if (session->welcomed) {
        send_downs(session);
        send_spilled(session);
    }
}

/* ----------------------------------------------------------------------- kept, and over */

void store_node_session_down(struct store_node_session *session,
                             const struct store_uplink_down *down)
{
    struct kept_down *kept = pl_vec_push(&session->downs);

    if (kept == NULL) {
        pl_error("store", "out of memory: the head is not told that a worker is down");
        return;
    }
    *kept = (struct kept_down){.down = *down};
}

/*
 * The head has everything up to `ack`; quarantines are kept for the next head. Not more than a
 * bounded number is kept at all.
 */
static void forget_downs(struct store_node_session *session, uint64_t ack)
{
    struct pl_vec *downs = &session->downs;
    size_t excess = downs->count > DOWNS_KEPT_MAX ? downs->count - DOWNS_KEPT_MAX : 0;
    size_t used   = 0;

    for (size_t i = 0; i < downs->count; i++) {
        struct kept_down *kept = down_at(session, i);
        bool acked             = kept->sent_seq != 0 && kept->sent_seq <= ack;

        if (!kept->down.quarantined && (acked || i < excess)) {
            continue;
        }
        *down_at(session, used++) = *kept;
    }
    while (downs->count > used) {
        pl_vec_pop(downs);
    }
}

static void forget_spilled(struct store_node_session *session, uint64_t ack)
{
    size_t used = 0;

    for (size_t i = 0; i < session->results.count; i++) {
        const struct kept_result *kept = result_at(session, i);

        if (kept->sent_seq == 0 || kept->sent_seq > ack) {
            *result_at(session, used++) = *kept;
        }
    }
    session->results.count = used;
}

/* ----------------------------------------------------------------------------------- in */

static void take_welcome(struct store_node_session *session,
                         const Plasmon__V1__NodeCommand *command)
{
    uint64_t number = command->header->session;
    bool known      = session->joined == 0 || session->joined == number;

    session->welcomed = true;
    session->epoch    = command->welcome->epoch;
    session->session  = number;
    session->joined   = number;
    session->journal  = command->welcome->journal;
    if (!known) {
        pl_vec_clear(&session->results);
    }
    session->ops->joined(session->user, number, known, command->welcome->cluster);
}

/* false: the connection makes no sense any more. */
static bool take_number(struct store_node_session *session,
                        const Plasmon__V1__Header *header, bool *out_repeat)
{
    *out_repeat = false;
    if (header->seq == 0) {
        return true;
    }
    *out_repeat = header->seq <= session->in_seq;
    if (header->seq > session->in_seq + 1) {
        return false;
    }
    session->in_seq = pl_max_u64(session->in_seq, header->seq);
    return true;
}

static void take_spill(struct store_node_session *session, const Plasmon__V1__SpillOp *op)
{
    const struct store_spill_op asked = {.id          = op->id,
                                         .kind        = op->kind,
                                         .host_buffer = op->host_buffer,
                                         .offset      = op->offset,
                                         .bytes       = op->bytes,
                                         .file        = op->file};

    session->ops->spill(session->user, &asked);
}

static void take_orders(struct store_node_session *session,
                        const Plasmon__V1__NodeCommand *command)
{
    for (size_t i = 0; i < command->n_fence; i++) {
        session->ops->event(
            session->user, STORE_UPLINK_FENCE, command->fence[i],
            command->n_fence_incarnation == 0 ? 0 : command->fence_incarnation[i]);
    }
    for (size_t i = 0; i < command->n_spill; i++) {
        take_spill(session, command->spill[i]);
    }
    if (command->left != NULL) {
        if (command->left->objects_left > 0) {
            pl_warn("store", "%llu objects that lie only here are lost with this node: %s",
                    (unsigned long long)command->left->objects_left, command->left->text);
        }
        session->ops->event(
            session->user, STORE_UPLINK_LEFT,
            command->left->objects_left > 0 ? STORE_LEFT_LOSES : STORE_LEFT_DRAINED, 0);
    }
    if (command->stop) {
        session->ops->event(session->user, STORE_UPLINK_STOP, 0, 0);
    }
}

bool store_node_session_take(struct store_node_session *session,
                             const Plasmon__V1__NodeCommand *command)
{
    bool repeat;

    if (!take_number(session, command->header, &repeat)) {
        return false;
    }
    if (command->welcome != NULL) {
        take_welcome(session, command);
    }
    forget_downs(session, command->header->ack);
    forget_spilled(session, command->header->ack);
    if (!repeat) {
        take_orders(session, command);
    }
    if (command->ask != 0 && session->welcomed) {
        send_answer(session, command->ask);
    }
    store_node_session_send_owed(session);
    return true;
}
