/*
 * The gate: what leaves the head leaves after the journal has what it follows from.
 *
 * Inputs are collected in a batch, and each thing that is put out meanwhile - a frame, an
 * acknowledgement, an order to fence, the end of a stream - gets the number of that batch. When the
 * input ran dry, the batch goes to the journal, and the next one is begun. When the journal says
 * that a batch is stored, everything with its number or a lower one leaves, in the order in which
 * it was put out.
 *
 * A stream that ends takes what is held for it along: numbered frames are kept in the machine, and
 * are sent again.
 *
 * Without a journal nothing is held.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "head/serve.h"

struct serve_held {
    struct pl_list link;
    uint64_t batch;
    /* NULL: its stream has ended, or it is an answer to a call */
    struct rpc_stream *stream;
    struct rpc_unary *call;
    uint8_t *buffer; /* NULL: the stream is closed */
    size_t length;
    plasmon_status_t status;
    char *why; /* owned */
};

void serve_gate_init(struct serve *serve)
{
    pl_list_init(&serve->gate.held);
    serve->gate.open = 1;
}

/* -------------------------------------------------------------------------- what leaves */

/* Takes the buffer. */
static void put_on_wire(struct rpc_stream *stream, uint8_t *buffer, size_t length)
{
    if (rpc_stream_send(stream, buffer, length) == PLASMON_EAGAIN) {
        rpc_stream_close(stream, PLASMON_ELIMIT,
                         "the other side does not read: more is queued for it than fits; "
                         "it may reconnect and resume");
    }
}

static void held_free(struct serve_held *held)
{
    pl_list_remove(&held->link);
    pl_free(held->why);
    pl_free(held);
}

static void leave(struct serve_held *held)
{
    if (held->call != NULL) {
        rpc_unary_reply(held->call, held->buffer, held->length);
    } else if (held->stream == NULL) {
        rpc_buffer_destroy(held->buffer);
    } else if (held->buffer != NULL) {
        put_on_wire(held->stream, held->buffer, held->length);
    } else {
        rpc_stream_close(held->stream, held->status, held->why);
    }
    held_free(held);
}

static void release(struct serve *serve)
{
    struct serve_held *held;

    while ((held = pl_list_first(&serve->gate.held, struct serve_held, link)) != NULL &&
           held->batch <= serve->gate.stored) {
        leave(held);
    }
}

/* Calls and streams are gone, or are about to be. */
void serve_gate_finish(struct serve *serve)
{
    struct serve_held *held;

    while ((held = pl_list_first(&serve->gate.held, struct serve_held, link)) != NULL) {
        rpc_buffer_destroy(held->buffer);
        held_free(held);
    }
}

void serve_gate_forget(struct serve *serve, struct rpc_stream *stream)
{
    struct pl_list *pos, *tmp;

    pl_list_for_each_safe(pos, tmp, &serve->gate.held) {
        struct serve_held *held = pl_container_of(pos, struct serve_held, link);

        if (held->stream == stream) {
            rpc_buffer_destroy(held->buffer);
            held_free(held);
        }
    }
}

/* ------------------------------------------------------------------------- what is held */

static bool through(const struct serve *serve)
{
    return serve->config.journal == NULL;
}

static struct serve_held *hold(struct serve *serve)
{
    struct serve_held *held = PL_NEW(struct serve_held);

    PL_CHECK(held != NULL);
    held->batch = serve->gate.open;
    pl_list_init(&held->link);
    pl_list_add_tail(&serve->gate.held, &held->link);
    return held;
}

void serve_send(struct serve *serve, struct rpc_stream *stream, uint8_t *buffer,
                size_t length)
{
    struct serve_held *held;

    if (through(serve)) {
        put_on_wire(stream, buffer, length);
        return;
    }
    held         = hold(serve);
    held->stream = stream;
    held->buffer = buffer;
    held->length = length;
}

void serve_send_copy(struct serve *serve, struct rpc_stream *stream, const uint8_t *bytes,
                     size_t length)
{
    uint8_t *buffer = rpc_buffer_create(length);

    PL_CHECK(buffer != NULL);
    memcpy(buffer, bytes, length);
    serve_send(serve, stream, buffer, length);
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
    (void)status;
    (void)why;
    serve_gate_forget(user, stream);
}

static const struct rpc_stream_ops orphan_ops = {.message = orphan_message,
                                                 .closed  = orphan_closed};

void serve_close(struct serve *serve, struct rpc_stream *stream, plasmon_status_t status,
                 const char *why)
{
    struct serve_held *held;

    rpc_stream_set_user(stream, &orphan_ops, serve);
    if (through(serve)) {
        rpc_stream_close(stream, status, why);
        return;
    }
    held         = hold(serve);
    held->stream = stream;
    held->status = status;
    held->why    = pl_strdup(why);
    PL_CHECK(held->why != NULL);
}

void serve_replace(struct serve *serve, struct rpc_stream *stream, const char *why)
{
    serve_gate_forget(serve, stream);
    rpc_stream_set_user(stream, &orphan_ops, serve);
    rpc_stream_close(stream, PLASMON_ECLOSED, why);
}

void serve_unary_reply(struct serve *serve, struct rpc_unary *call, uint8_t *buffer,
                       size_t length)
{
    struct serve_held *held;

    if (through(serve)) {
        rpc_unary_reply(call, buffer, length);
        return;
    }
    held         = hold(serve);
    held->call   = call;
    held->buffer = buffer;
    held->length = length;
}

/* -------------------------------------------------------------------------- the journal */

void serve_stored(struct serve *serve)
{
    struct serve_gate *gate = &serve->gate;
    uint64_t stored         = head_journal_stored(serve->config.journal);

    if (stored > gate->stored) {
        gate->stored     = stored;
        gate->waiting_ms = stored + 1 < gate->open ? serve_now_ms(serve) : 0;
    }
    release(serve);
}

void serve_gate_tell(const struct serve *serve, Plasmon__V1__Waits *out)
{
    const struct serve_gate *gate = &serve->gate;
    uint64_t now_ms               = serve_now_ms(serve);

    if (gate->waiting_ms == 0) {
        return;
    }
    out->journal_ms = pl_max_u64(now_ms - pl_min_u64(now_ms, gate->waiting_ms), 1);
    for (const struct pl_list *pos = gate->held.next; pos != &gate->held; pos = pos->next) {
        out->journal_held++;
    }
}

void serve_gate_commit(struct serve *serve)
{
    struct serve_gate *gate = &serve->gate;
    const uint8_t *bytes;
    size_t length;

    if (through(serve)) {
        return;
    }
    if (head_machine_batch_take(serve->machine, &bytes, &length)) {
        gate->open++;
        if (gate->waiting_ms == 0) {
            gate->waiting_ms = serve_now_ms(serve);
        }
        head_journal_append(serve->config.journal, bytes, length);
        serve_stored(serve); /* it may be already */
        serve_log_grew(serve, length);
        serve_checkpoint_look(serve);
        return;
    }
    /* Nothing happened since the last batch: what was put out follows from that one. */
    for (struct pl_list *pos = gate->held.prev; pos != &gate->held; pos = pos->prev) {
        struct serve_held *held = pl_container_of(pos, struct serve_held, link);

        if (held->batch < gate->open) {
            break;
        }
        held->batch = gate->open - 1;
    }
    release(serve);
    if (serve->checkpoint.holding) {
        serve_checkpoint_look(serve);
    }
}
