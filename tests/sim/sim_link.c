/*
 * Connections. A pipe delivers bytes in order with random delays; when it breaks, what is in flight
 * is lost, always from the end, as with a stream of gRPC. Frames get their header here and their
 * copy in the link, as in the daemons.
 *
 * A pipe that is HELD delivers nothing: the network is cut (sim_net.c), or who should read does not
 * run (sim_store.c). What arrives meanwhile waits, and comes in order when nobody holds it any
 * more; a break loses it.
 */
#include "tests/sim/sim.h"

#include <string.h>

#include "base/alloc.h"

enum {
    DELAY_MIN_NS   = 500,
    DELAY_MAX_NS   = 40000,
    DELAY_LONG_NS  = 2000000, /* now and then: the peer was not scheduled */
    KEPT_BYTES_MAX = 64 << 20,
};

void sim_pipe_init(struct sim_pipe *pipe, struct sim *sim,
                   void (*deliver)(void *user, const uint8_t *data, size_t length),
                   void *user)
{
    *pipe = (struct sim_pipe){.sim     = sim,
                              .deliver = deliver,
                              .user    = user,
                              .waiting = PL_VEC_INIT(struct sim_bytes *)};
}

static void pipe_forget(struct sim_pipe *pipe)
{
    for (size_t i = 0; i < pipe->waiting.count; i++) {
        pl_free(*(struct sim_bytes **)pl_vec_at(&pipe->waiting, i));
    }
    pl_vec_clear(&pipe->waiting);
}

void sim_pipe_finish(struct sim_pipe *pipe)
{
    pipe_forget(pipe);
    pl_vec_finish(&pipe->waiting);
}

/* Whoever stood still at the other end is not who is there next. */
static void pipe_leave(struct sim_pipe *pipe)
{
    if (pipe->unread) {
        pipe->unread = false;
        sim_pipe_release(pipe);
    }
    pipe->old = false;
}

void sim_pipe_open(struct sim_pipe *pipe)
{
    pipe_forget(pipe);
    pipe_leave(pipe);
    pipe->life++;
    pipe->up = true;
}

void sim_pipe_break(struct sim_pipe *pipe)
{
    pipe_forget(pipe);
    pipe_leave(pipe);
    pipe->life++;
    pipe->up = false;
}

static struct sim_bytes *bytes_copy(const uint8_t *data, size_t length)
{
    struct sim_bytes *bytes = sim_alloc(sizeof(*bytes) + length);

    bytes->length = length;
    memcpy(bytes->data, data, length);
    return bytes;
}

static void pipe_deliver(void *user, uint64_t arg, void *data)
{
    struct sim_pipe *pipe         = user;
    const struct sim_bytes *bytes = data;
    struct sim_bytes **place;

    if (arg != pipe->life) {
        return;
    }
    if (pipe->holds == 0 && pipe->waiting.count == 0) {
        pipe->deliver(pipe->user, bytes->data, bytes->length);
        return;
    }
    place = pl_vec_push(&pipe->waiting); /* behind what waits already */
    PL_CHECK(place != NULL);
    *place = bytes_copy(bytes->data, bytes->length);
}

static void pipe_drain(void *user, uint64_t arg, void *data)
{
    struct sim_pipe *pipe = user;
    struct pl_vec waiting = pipe->waiting;

    (void)data;
    if (pipe->holds > 0 || arg != pipe->life) {
        return;
    }
    pipe->waiting = PL_VEC_INIT(struct sim_bytes *);
    for (size_t i = 0; i < waiting.count; i++) {
        struct sim_bytes *bytes = *(struct sim_bytes **)pl_vec_at(&waiting, i);

        if (arg == pipe->life) { /* taking one may break it */
            pipe->deliver(pipe->user, bytes->data, bytes->length);
        }
        pl_free(bytes);
    }
    pl_vec_finish(&waiting);
}

void sim_pipe_hold(struct sim_pipe *pipe)
{
    pipe->holds++;
}

void sim_pipe_release(struct sim_pipe *pipe)
{
    PL_CHECK(pipe->holds > 0);
    pipe->holds--;
    if (pipe->holds == 0 && pipe->waiting.count > 0) {
        sim_after(pipe->sim, sim_between(pipe->sim, DELAY_MIN_NS, DELAY_MAX_NS), pipe_drain,
                  pipe, pipe->life, NULL);
    }
}

void sim_pipe_send(struct sim_pipe *pipe, const uint8_t *data, size_t length)
{
    struct sim *sim         = pipe->sim;
    struct sim_bytes *bytes = bytes_copy(data, length);
    uint64_t delay          = sim_between(sim, DELAY_MIN_NS, DELAY_MAX_NS);
    uint64_t at;

    if (sim_chance(sim, 5)) {
        delay += sim_below(sim, DELAY_LONG_NS);
    }
    at            = pl_max_u64(sim->now_ns + delay, pipe->last_ns + 1);
    pipe->last_ns = at;
    if (!pipe->up) {
        pl_free(bytes);
        return;
    }
    sim_after(sim, at - sim->now_ns, pipe_deliver, pipe, pipe->life, bytes);
}

static size_t varint_put(uint8_t *out, uint64_t value)
{
    size_t n = 0;

    for (; value >= 0x80; value >>= 7) {
        out[n++] = (uint8_t)(value | 0x80);
    }
    out[n++] = (uint8_t)value;
    return n;
}

uint8_t *sim_frame(const Plasmon__V1__Header *header, const uint8_t *body,
                   size_t body_length, size_t *out_length)
{
    size_t header_length = plasmon__v1__header__get_packed_size(header);
    uint8_t *out         = sim_alloc(header_length + body_length + 16);
    size_t used          = 0;

    out[used++] = 1 << 3 | 2; /* field 1, length-delimited */
    used += varint_put(out + used, header_length);
    used += plasmon__v1__header__pack(header, out + used);
    if (body_length > 0) {
        memcpy(out + used, body, body_length);
    }
    *out_length = used + body_length;
    return out;
}

static void send_numbered(struct sim *sim, struct wire_link *link, struct sim_pipe *pipe,
                          uint64_t session, uint64_t credit, uint64_t seq,
                          const uint8_t *body, size_t body_length)
{
    Plasmon__V1__Header header = PLASMON__V1__HEADER__INIT;
    uint8_t *bytes;
    size_t length;

    header.protocol = WIRE_PROTOCOL;
    header.epoch    = SIM_EPOCH;
    header.session  = session;
    header.seq      = seq;
    header.ack      = wire_link_ack(link);
    header.credit   = credit;
    bytes           = sim_frame(&header, body, body_length, &length);
    if (seq != 0 && wire_link_sent(link, seq, bytes, length) != PLASMON_OK) {
        sim_fail(sim, "a link keeps more than it may: acks do not flow");
    }
    sim_pipe_send(pipe, bytes, length);
    pl_free(bytes);
}

void sim_link_send(struct sim *sim, struct wire_link *link, struct sim_pipe *pipe,
                   uint64_t session, uint64_t credit, const uint8_t *body,
                   size_t body_length)
{
    send_numbered(sim, link, pipe, session, credit, wire_link_next_seq(link), body,
                  body_length);
}

void sim_link_send_plain(struct sim *sim, struct wire_link *link, struct sim_pipe *pipe,
                         uint64_t session, uint64_t credit, const uint8_t *body,
                         size_t body_length)
{
    send_numbered(sim, link, pipe, session, credit, 0, body, body_length);
}
