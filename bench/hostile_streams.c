/*
 * Enemies that make calls: sessions with the tokens and numbers of others, sessions that are
 * welcome and then send lists over the limits, and sessions that are half-closed before a word is
 * said. All over one connection that stays, so what is measured is the calls.
 */
#include <string.h>

#include "base/alloc.h"
#include "bench/bench.h"
#include "bench/hostile.h"
#include "rpc/rpc.h"
#include "wire/wire.h"

#define UNDER_WAY      64u /* calls that are not over; no more begin */
#define CANCELS        100000u
#define CANCEL_FIELD   7u
#define CONNECT_MS     10000u
#define OTHERS_SESSION UINT64_C(0x1234567890abcdef)

enum kind { FOREIGN, GIANT, HALF };

struct caller {
    struct hostile_field *field;
    enum kind kind;
    struct rpc_loop *loop;
    struct rpc_channel *channel;  /* with the right token */
    struct rpc_channel *stranger; /* with another one */
    uint32_t made;
    atomic_uint under_way;
};

static uint8_t *giant; /* what is said of a frame by giant_make() */
static size_t giant_length;

static void must(plasmon_status_t status)
{
    if (status != PLASMON_OK) {
        bench_die("an enemy cannot begin: %s", pl_status_text(status));
    }
}

/* ------------------------------------------------------------------------- what it says */

static void say(struct rpc_stream *stream, const ProtobufCMessage *message)
{
    uint8_t *bytes;
    size_t length;

    if (wire_encode(message, rpc_buffer_create, &bytes, &length) == PLASMON_OK) {
        (void)!rpc_stream_send(stream, bytes, length); /* it may be over by now */
    }
}

static void say_hello(struct rpc_stream *stream, uint64_t session)
{
    Plasmon__V1__ClientFrame frame = PLASMON__V1__CLIENT_FRAME__INIT;
    Plasmon__V1__Header header     = PLASMON__V1__HEADER__INIT;
    Plasmon__V1__Hello hello       = PLASMON__V1__HELLO__INIT;

    header.protocol      = WIRE_PROTOCOL;
    hello.protocol_min   = WIRE_PROTOCOL;
    hello.protocol_max   = WIRE_PROTOCOL;
    hello.resume_session = session;
    frame.header         = &header;
    frame.hello          = &hello;
    say(stream, &frame.base);
}

/*
 * A header, and behind it more than a frame may have: a list of 100000 numbers, or a list that says
 * it is of 2 GiB. The bytes are made once, since what is measured is what they cost the other side.
 */
static void say_giant(struct rpc_stream *stream, const Plasmon__V1__Welcome *welcome,
                      bool claims)
{
    static const uint8_t claim[]   = {CANCEL_FIELD << 3 | 2, 0xff, 0xff, 0xff, 0xff, 0x07};
    Plasmon__V1__ClientFrame frame = PLASMON__V1__CLIENT_FRAME__INIT;
    Plasmon__V1__Header header     = PLASMON__V1__HEADER__INIT;
    const uint8_t *tail            = claims ? claim : giant;
    size_t tail_length             = claims ? sizeof(claim) : giant_length, length;
    uint8_t *bytes;

    header.protocol = WIRE_PROTOCOL;
    header.epoch    = welcome->epoch;
    header.session  = welcome->session;
    header.seq      = 1;
    frame.header    = &header;
    length          = protobuf_c_message_get_packed_size(&frame.base);
    bytes           = rpc_buffer_create(length + tail_length);
    if (bytes != NULL) {
        (void)protobuf_c_message_pack(&frame.base, bytes);
        memcpy(bytes + length, tail, tail_length);
        (void)!rpc_stream_send(stream, bytes, length + tail_length);
    }
}

static void giant_make(void)
{
    static uint64_t numbers[CANCELS];
    Plasmon__V1__ClientFrame frame = PLASMON__V1__CLIENT_FRAME__INIT;

    if (giant == NULL) {
        frame.n_cancel = CANCELS;
        frame.cancel   = numbers;
        must(wire_encode(&frame.base, rpc_buffer_create, &giant, &giant_length));
    }
}

/* ---------------------------------------------------------------------------- its calls */

static void call_message(void *user, struct rpc_stream *stream, const uint8_t *bytes,
                         size_t length)
{
    struct caller *caller         = user;
    Plasmon__V1__HeadFrame *frame = plasmon__v1__head_frame__unpack(NULL, length, bytes);

    if (frame == NULL) {
        return;
    }
    if (frame->welcome != NULL && caller->kind == GIANT) {
        say_giant(stream, frame->welcome, caller->made++ % 2 == 0);
    }
    plasmon__v1__head_frame__free_unpacked(frame, NULL);
}

static void call_writable(void *user, struct rpc_stream *stream)
{
    (void)user;
    (void)stream;
}

static void call_closed(void *user, struct rpc_stream *stream, plasmon_status_t status,
                        const char *why)
{
    struct caller *caller = user;

    (void)stream;
    (void)status;
    (void)why;
    (void)atomic_fetch_sub(&caller->under_way, 1);
}

static const struct rpc_stream_ops call_ops = {.message  = call_message,
                                               .writable = call_writable,
                                               .closed   = call_closed};

/* On the loop's thread: a stream that ends in between is not freed under us. */
static void call(void *user)
{
    struct caller *caller = user;
    bool other            = caller->kind == FOREIGN && caller->made++ % 2 == 0;
    struct rpc_stream *stream;

    if (rpc_stream_open(other ? caller->stranger : caller->channel, HOSTILE_SESSION,
                        CONNECT_MS, &call_ops, caller, &stream) != PLASMON_OK) {
        (void)atomic_fetch_sub(&caller->under_way, 1);
        return;
    }
    if (caller->kind == HALF) {
        rpc_stream_close(stream, PLASMON_OK, "");
    } else {
        say_hello(stream, caller->kind == FOREIGN && !other ? OTHERS_SESSION : 0);
    }
}

static void channel_open(struct caller *caller, const char *token,
                         struct rpc_channel **out_channel)
{
    /* A size that honest ones do not have: the core lets channels of the same settings share a connection. */
    const struct rpc_channel_config config = {.target            = caller->field->address,
                                              .token             = token,
                                              .message_bytes_max = (8u << 20) + 1};

    must(rpc_channel_create(caller->loop, &config, out_channel));
}

static void *run(struct hostile_field *field, enum kind kind)
{
    struct caller *caller = PL_NEW(struct caller);

    must(caller != NULL ? PLASMON_OK : PLASMON_ENOMEM);
    caller->field = field;
    caller->kind  = kind;
    must(rpc_loop_create(&caller->loop));
    must(rpc_loop_start(caller->loop, "enemy"));
    giant_make();
    channel_open(caller, field->token, &caller->channel);
    channel_open(caller, "of somebody else", &caller->stranger);
    while (!atomic_load(&field->stop)) {
        for (unsigned i = 0; i < HOSTILE_STREAMS * HOSTILE_STEP_MS / 1000; i++) {
            if (atomic_load(&caller->under_way) < UNDER_WAY) {
                (void)atomic_fetch_add(&caller->under_way, 1);
                rpc_loop_post(caller->loop, call, caller);
            }
        }
        hostile_pause();
    }
    while (atomic_load(&caller->under_way) > 0) {
        hostile_pause();
    }
    rpc_channel_destroy(caller->stranger);
    rpc_channel_destroy(caller->channel);
    rpc_loop_stop(caller->loop);
    rpc_loop_destroy(caller->loop);
    pl_free(caller);
    return NULL;
}

void *hostile_foreign(void *user)
{
    return run(user, FOREIGN);
}

void *hostile_giant(void *user)
{
    return run(user, GIANT);
}

void *hostile_half(void *user)
{
    return run(user, HALF);
}
