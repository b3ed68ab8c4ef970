/*
 * One stream over gRPC, client's or server's: what both have in common.
 *
 * SENDING  One message is in flight; the others wait in a queue. A send starts in the calling
 * thread, so that a message on a quiet stream is in the kernel before rpc_stream_send() returns. A
 * send is complete when the core has buffered it, not when the peer has read it: holding back is
 * the business of the credits in the frames.
 *
 * RECEIVING  One receive is outstanding, posted again after its message was handled: a slow handler
 * holds the peer back. To post it makes gRPC tell the peer that it may send as much again, by a
 * system call that wakes it, so it comes after idle has sent what the message was for, when that
 * can be (rpc_loop_late()).
 *
 * LIFE OF A STREAM
 *
 *   open -> close() -> [flush] -> last operation -> over -> all batches back -> closed() -> freed
 *
 * `over` is when the core has told how the call ended, which may come at any time. `batches` counts
 * what is in flight in the core, and each callback of the user counts as one; whoever brings it to
 * zero while `over` frees the stream. All tags come out on the loop's thread, so that is where it
 * happens, and `closed` is the last callback.
 */
#include "rpc/grpc_int.h"

#include <assert.h>
#include <stdio.h>

#include "base/alloc.h"

static struct rpc_stream_grpc *stream_grpc_of(struct rpc_stream *stream)
{
    assert(stream->impl == &rpc_stream_grpc_impl);
    return pl_container_of(stream, struct rpc_stream_grpc, base);
}

void rpc_stream_batch_locked(struct rpc_stream_grpc *stream, const grpc_op *ops,
                             size_t count, struct rpc_tag *tag)
{
    grpc_call_error error;

    pl_mutex_assert_held(&stream->lock);
    error = grpc_call_start_batch(stream->call, ops, count, tag, NULL);
    PL_CHECK(error == GRPC_CALL_OK);
    stream->batches++;
    rpc_loop_ring(stream->base.loop);
}

void rpc_stream_receive_locked(struct rpc_stream_grpc *stream)
{
    grpc_op op = {.op = GRPC_OP_RECV_MESSAGE};

    op.data.recv_message.recv_message = &stream->received;
    rpc_stream_batch_locked(stream, &op, 1, &stream->recv_tag);
}

/* ------------------------------------------------------------------------------ sending */

/* Takes bytes. */
static void stream_send_locked(struct rpc_stream_grpc *stream, grpc_byte_buffer *bytes)
{
    grpc_op op = {.op = GRPC_OP_SEND_MESSAGE};

    op.data.send_message.send_message = bytes;
    stream->sending                   = true;
    rpc_stream_batch_locked(stream, &op, 1, &stream->send_tag);
    grpc_byte_buffer_destroy(bytes); /* the shell: the operation took what is in it */
}

/* ---- through shared memory (shm.c) */

/* Has this message gone? false: it waits for room in the ring, or for the write in flight. */
static bool stream_put_locked(struct rpc_stream_grpc *stream, struct rpc_buffer *next)
{
    struct rpc_ring_out *out = &stream->shm->out;
    bool large               = next->length > RPC_RING_MESSAGE_MAX;

    if ((large && stream->sending) ||
        !rpc_ring_put(out, large ? NULL : next->bytes, (uint32_t)next->length)) {
        return false;
    }
    (void)rpc_queue_pop(&stream->queue);
    if (large) {
        stream_send_locked(stream, rpc_bytes_of_buffer(next));
    } else {
        rpc_buffer_destroy(next->bytes);
    }
    return true;
}

/* What is queued, through shared memory. */
static void stream_kick_shm_locked(struct rpc_stream_grpc *stream)
{
    struct rpc_buffer *next;
    bool any = false;

    while ((next = stream->queue.first) != NULL &&
           (stream_put_locked(stream, next) ||
            (!stream->sending && rpc_shm_idle_locked(stream->shm) &&
             stream_put_locked(stream, next)))) {
        any = true;
    }
    if (any) {
        rpc_shm_put_locked(stream->shm);
    }
}

static void stream_signal_locked(struct rpc_stream_grpc *stream)
{
    if (stream->shm_declined && !stream->sending) {
        stream->shm_declined = false;
        stream_send_locked(stream, rpc_shm_leave());
    }
    if (stream->shm != NULL && stream->shm->signals != 0 && !stream->sending) {
        stream_send_locked(stream, rpc_shm_signal_locked(stream->shm));
    }
}

void rpc_stream_kick_locked(struct rpc_stream_grpc *stream)
{
    struct rpc_buffer *next;

    if (!stream->open || stream->over || stream->ending == RPC_ENDING_STARTED) {
        return;
    }
    stream_signal_locked(stream); /* SWITCH before what is large */
    if (stream->shm != NULL && stream->shm->out_open) {
        stream_kick_shm_locked(stream);
        stream_signal_locked(stream); /* the bell */
        if (stream->queue.first != NULL) {
            return;
        }
    }
    if (stream->sending) {
        return;
    }

    next = rpc_queue_pop(&stream->queue);
    if (next != NULL) {
        stream_send_locked(stream, rpc_bytes_of_buffer(next));
    } else if (stream->ending == RPC_ENDING_FLUSH) {
        stream->ending = RPC_ENDING_STARTED;
        if (stream->server) {
            rpc_stream_server_send_status_locked(stream);
        } else {
            rpc_stream_client_half_close_locked(stream);
        }
    }
}

static plasmon_status_t stream_grpc_send(struct rpc_stream *base, uint8_t *bytes,
                                         size_t length)
{
    struct rpc_stream_grpc *stream = stream_grpc_of(base);
    struct rpc_buffer *buffer      = rpc_buffer_of(bytes);
    plasmon_status_t status        = PLASMON_OK;

    pl_mutex_lock(&stream->lock);
    if (stream->over || stream->ending != RPC_ENDING_NOT) {
        status = PLASMON_ECLOSED;
    } else if (length > stream->message_bytes_max) {
        status = PLASMON_ELIMIT;
    } else if (stream->queue.bytes > RPC_QUEUE_BYTES_MAX) {
        status = PLASMON_EAGAIN;
    } else {
        rpc_queue_push(&stream->queue, buffer);
        rpc_stream_kick_locked(stream);
    }
    pl_mutex_unlock(&stream->lock);

    if (status != PLASMON_OK) {
        rpc_buffer_destroy(bytes);
    }
    return status;
}

/* false: `writable` follows when it is. */
static bool stream_idle_locked(struct rpc_stream_grpc *stream)
{
    return !stream->sending && stream->queue.first == NULL &&
           (stream->shm == NULL || rpc_shm_idle_locked(stream->shm));
}

static bool stream_grpc_idle(struct rpc_stream *base)
{
    struct rpc_stream_grpc *stream = stream_grpc_of(base);
    bool idle;

    pl_mutex_lock(&stream->lock);
    idle = stream_idle_locked(stream);
    pl_mutex_unlock(&stream->lock);
    return idle;
}

/* What waits for its turn has it, or the user. */
static void stream_turn_locked(struct rpc_stream_grpc *stream)
{
    rpc_stream_kick_locked(stream);
    if (stream->ending == RPC_ENDING_NOT && !stream->over &&
        stream->base.ops->writable != NULL && stream_idle_locked(stream)) {
        pl_mutex_unlock(&stream->lock);
        stream->base.ops->writable(stream->base.user, &stream->base);
        pl_mutex_lock(&stream->lock);
    }
}

static void stream_sent(struct rpc_tag *tag, bool ok)
{
    struct rpc_stream_grpc *stream = pl_container_of(tag, struct rpc_stream_grpc, send_tag);

    pl_mutex_lock(&stream->lock);
    stream->sending = false;
    if (ok) {
        stream_turn_locked(stream);
    } else {
        rpc_queue_drop(&stream->queue); /* the call is dead; how it died is on its way */
    }
    rpc_stream_batch_done_unlock(stream);
}

void rpc_stream_shm_room(struct rpc_stream_grpc *stream)
{
    pl_mutex_lock(&stream->lock);
    stream->batches++;
    __atomic_store_n(&stream->shm->due, false, __ATOMIC_RELAXED);
    stream_turn_locked(stream);
    rpc_stream_batch_done_unlock(stream);
}

/* End our direction behind what is queued. */
static void stream_end_locked(struct rpc_stream_grpc *stream)
{
    stream->ending = RPC_ENDING_FLUSH;
    rpc_timer_arm(stream->base.loop, &stream->linger, RPC_LINGER_MS);
    rpc_stream_kick_locked(stream);
}

/* ---------------------------------------------------------------------------- receiving */

static bool stream_wants(struct rpc_stream_grpc *stream)
{
    bool wants;

    pl_mutex_lock(&stream->lock);
    wants = !stream->closed_here;
    pl_mutex_unlock(&stream->lock);
    return wants;
}

static void stream_deliver(struct rpc_stream_grpc *stream, const uint8_t *bytes,
                           size_t length)
{
    char why[96];

    if (!stream_wants(stream)) {
        return;
    }
    if (length > stream->message_bytes_max) {
        (void)snprintf(why, sizeof(why), "message of %zu bytes; the limit is %zu", length,
                       stream->message_bytes_max);
        rpc_stream_close(&stream->base, PLASMON_ELIMIT, why);
    } else {
        stream->base.ops->message(stream->base.user, &stream->base, bytes, length);
    }
}

/* The sender waits for what was taken. */
static void stream_rouse(struct rpc_stream_grpc *stream)
{
    pl_mutex_lock(&stream->lock);
    if (stream->shm->out_open) {
        rpc_shm_rouse_locked(stream->shm);
        rpc_stream_kick_locked(stream);
    }
    pl_mutex_unlock(&stream->lock);
}

/* The first message in the ring; false: that is none, or goes elsewhere. */
static bool stream_take(struct rpc_stream_grpc *stream)
{
    struct rpc_ring_in *in = &stream->shm->in;
    _Alignas(16) uint8_t bytes[RPC_RING_MESSAGE_MAX];
    uint32_t length;
    enum rpc_ring_first first = rpc_ring_first(in, &length);

    if (first == RPC_RING_BROKEN) {
        stream->shm->in_open = false;
        rpc_stream_close(&stream->base, PLASMON_EMALFORMED,
                         "what lies in its shared memory is no message");
    }
    if (first != RPC_RING_MESSAGE) {
        return false;
    }
    if (rpc_ring_take(in, bytes, length)) {
        stream_rouse(stream);
    }
    stream_deliver(stream, bytes, length);
    return true;
}

void rpc_stream_shm_message(struct rpc_stream_grpc *stream)
{
    pl_mutex_lock(&stream->lock);
    stream->batches++;
    pl_mutex_unlock(&stream->lock);
    (void)stream_take(stream);
    pl_mutex_lock(&stream->lock);
    rpc_stream_batch_done_unlock(stream);
}

void rpc_stream_shm_all(struct rpc_stream_grpc *stream)
{
    uint64_t end =
        stream->shm != NULL && stream->shm->in_open ? rpc_ring_end(&stream->shm->in) : 0;

    while (stream->shm != NULL && stream->shm->in_open && stream->shm->in.read < end &&
           stream_take(stream)) {
    }
}

/* A message by gRPC has its place in the ring. */
static bool stream_reached(struct rpc_stream_grpc *stream)
{
    uint32_t nothing;

    rpc_stream_shm_all(stream);
    if (stream->shm == NULL || !stream->shm->in_open) {
        return true;
    }
    if (rpc_ring_first(&stream->shm->in, &nothing) != RPC_RING_ELSEWHERE) {
        rpc_stream_close(&stream->base, PLASMON_EMALFORMED,
                         "a message that its shared memory does not know of");
        return false;
    }
    if (rpc_ring_take(&stream->shm->in, NULL, 0)) {
        stream_rouse(stream);
    }
    return true;
}

static void stream_message(struct rpc_stream_grpc *stream, grpc_byte_buffer *bytes)
{
    struct rpc_received received;

    if (!rpc_received_open(&received, bytes)) {
        rpc_stream_close(&stream->base, PLASMON_EMALFORMED,
                         "a message that cannot be read");
        return;
    }
    if (!rpc_shm_signal_take(stream, received.bytes, received.length) &&
        stream_reached(stream)) {
        stream_deliver(stream, received.bytes, received.length);
    }
    rpc_received_close(&received);
}

static void stream_receive_again(struct rpc_late *late)
{
    struct rpc_stream_grpc *stream = pl_container_of(late, struct rpc_stream_grpc, again);

    pl_mutex_lock(&stream->lock);
    if (!stream->over) {
        /* even when nobody wants more: the end must be seen */
        rpc_stream_receive_locked(stream);
    }
    rpc_stream_batch_done_unlock(stream);
}

/*
 * A client ended its direction: it hears no message any more, and cannot ring when it makes room in
 * its ring. So what waits for that is not sent.
 */
static void stream_heard_end_locked(struct rpc_stream_grpc *stream)
{
    if (stream->shm != NULL && stream->shm->out_open) {
        rpc_queue_drop(&stream->queue);
    }
    if (stream->ending == RPC_ENDING_NOT && !stream->over) {
        /* With OK; whether it was a cancellation comes with the end of the call. */
        stream_end_locked(stream);
    } else {
        rpc_stream_kick_locked(stream);
    }
}

static void stream_received(struct rpc_tag *tag, bool ok)
{
    struct rpc_stream_grpc *stream = pl_container_of(tag, struct rpc_stream_grpc, recv_tag);
    grpc_byte_buffer *bytes        = ok ? stream->received : NULL;

    stream->received = NULL;
    if (bytes == NULL) {
        rpc_stream_shm_all(stream);
        pl_mutex_lock(&stream->lock);
        /*
         * The end of the other direction. A client's status follows by itself; a server ends its
         * own direction.
         */
        if (stream->server && ok) {
            stream_heard_end_locked(stream);
        }
        rpc_stream_batch_done_unlock(stream);
        return;
    }
    stream_message(stream, bytes);
    grpc_byte_buffer_destroy(bytes);
    if (!rpc_loop_late(stream->base.loop, &stream->again)) {
        stream_receive_again(&stream->again);
    }
}

/* ------------------------------------------------------------------------------- ending */

void rpc_stream_over_locked(struct rpc_stream_grpc *stream, plasmon_status_t status,
                            const char *why)
{
    pl_mutex_assert_held(&stream->lock);

    stream->over = true;
    rpc_queue_drop(&stream->queue);
    if (!stream->closed_here) {
        stream->status = status;
        stream->why    = pl_strdup(why);
    }
}

static void stream_close_locked(struct rpc_stream_grpc *stream, plasmon_status_t status,
                                const char *why)
{
    pl_mutex_assert_held(&stream->lock);

    if (stream->over || stream->ending != RPC_ENDING_NOT) {
        return;
    }

    stream->closed_here = true;
    stream->status      = status;
    stream->why         = pl_strdup(why);
    if (!stream->server && status != PLASMON_OK) {
        stream->ending = RPC_ENDING_STARTED;
        rpc_queue_drop(&stream->queue);
        (void)grpc_call_cancel_with_status(stream->call, rpc_status_to_grpc(status),
                                           "closed",
                                           NULL); /* fails only for a bad argument */
        return;
    }

    stream_end_locked(stream);
}

static void stream_grpc_close(struct rpc_stream *base, plasmon_status_t status,
                              const char *why)
{
    struct rpc_stream_grpc *stream = stream_grpc_of(base);

    pl_mutex_lock(&stream->lock);
    stream_close_locked(stream, status, why);
    pl_mutex_unlock(&stream->lock);
}

/* The peer does not take what is queued, or does not answer the end. */
static void stream_lingered(struct rpc_timer *timer)
{
    struct rpc_stream_grpc *stream = pl_container_of(timer, struct rpc_stream_grpc, linger);

    pl_mutex_lock(&stream->lock);
    stream->ending = RPC_ENDING_STARTED;
    pl_mutex_unlock(&stream->lock);
    (void)grpc_call_cancel(stream->call, NULL); /* fails only for a bad argument */
}

static void stream_free(struct rpc_stream_grpc *stream)
{
    rpc_timer_disarm(stream->base.loop, &stream->linger);
    rpc_shm_destroy(stream->shm);
    if (stream->server) {
        rpc_stream_server_finish(stream);
    } else {
        rpc_stream_client_finish(stream);
    }
    grpc_call_unref(stream->call);
    pl_mutex_finish(&stream->lock);
    pl_free(stream->why);
    pl_free(stream->base.token);
    pl_free(stream->base.identity);
    pl_free(stream->base.peer);
    pl_free(stream);
}

void rpc_stream_batch_done_unlock(struct rpc_stream_grpc *stream)
{
    bool last;

    pl_mutex_assert_held(&stream->lock);
    assert(stream->batches > 0);
    stream->batches--;
    last = stream->batches == 0 && stream->over;
    pl_mutex_unlock(&stream->lock);
    if (!last) {
        return;
    }

    if (stream->base.ops != NULL) { /* a server's stream that was refused has none */
        stream->base.ops->closed(stream->base.user, &stream->base, stream->status,
                                 stream->why != NULL ? stream->why : "");
    }
    stream_free(stream);
}

plasmon_status_t rpc_stream_grpc_init(struct rpc_stream_grpc *stream, struct rpc_loop *loop,
                                      bool server, size_t message_bytes_max)
{
    stream->base.impl         = &rpc_stream_grpc_impl;
    stream->base.loop         = loop;
    stream->server            = server;
    stream->message_bytes_max = message_bytes_max;
    stream->recv_tag.fn       = stream_received;
    stream->send_tag.fn       = stream_sent;
    stream->again.fn          = stream_receive_again;
    pl_list_init(&stream->again.link);
    rpc_timer_init(&stream->linger, stream_lingered);
    return pl_mutex_init(&stream->lock, PL_RANK_RPC);
}

static bool stream_grpc_by_memory(const struct rpc_stream *base)
{
    const struct rpc_shm *shm = pl_container_of(base, struct rpc_stream_grpc, base)->shm;

    return shm != NULL && shm->in_open && shm->out_open; /* both change on this thread */
}

const struct rpc_stream_impl rpc_stream_grpc_impl = {
    .send      = stream_grpc_send,
    .idle      = stream_grpc_idle,
    .by_memory = stream_grpc_by_memory,
    .close     = stream_grpc_close,
};
