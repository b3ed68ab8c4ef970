/*
 * The client's end of a stream.
 *
 * The call waits for a connection as long as it takes (wait-for-ready), which keeps the core from
 * failing it while a server restarts; how long is allowed is the connect timer's business, since a
 * deadline of the call would bound the whole stream. When the server's first metadata came it has
 * accepted the stream.
 *
 * What does not connect soon over TCP is looked at once: is it that one side does not trust the
 * other? That does not pass by waiting.
 */
#include "rpc/grpc_int.h"

#include <string.h>

#include "base/alloc.h"

#define CLIENT_DOUBT_MS    300u /* then a connection that can be is there, as a rule */
#define CLIENT_MISTRUST_MS 500u

static void client_first(struct rpc_tag *tag, bool ok)
{
    struct rpc_stream_grpc *stream =
        pl_container_of(tag, struct rpc_stream_grpc, first_tag);

    rpc_timer_disarm(stream->base.loop, &stream->connect);
    pl_mutex_lock(&stream->lock);
    if (ok) { /* if not, the status says why */
        rpc_shm_answer_locked(stream, &stream->initial);
    }
    rpc_stream_batch_done_unlock(stream);
}

static void client_ended(struct rpc_tag *tag, bool ok)
{
    struct rpc_stream_grpc *stream = pl_container_of(tag, struct rpc_stream_grpc, end_tag);
    char *why                      = rpc_text_of_slice(stream->details);
    plasmon_status_t status;

    (void)ok; /* a status always comes */
    rpc_timer_disarm(stream->base.loop, &stream->connect);
    rpc_stream_shm_all(stream);
    pl_mutex_lock(&stream->lock);
    /* It waited for a connection, so there was one, also if no metadata came by it: it broke. */
    status = rpc_status_of_call(stream->code, &stream->trailing, true);
    rpc_stream_over_locked(stream, status, why != NULL ? why : "");
    rpc_stream_batch_done_unlock(stream);
    pl_free(why);
}

static void client_last(struct rpc_tag *tag, bool ok)
{
    struct rpc_stream_grpc *stream = pl_container_of(tag, struct rpc_stream_grpc, last_tag);

    (void)ok; /* if the half-close could not be sent, the status says why */
    pl_mutex_lock(&stream->lock);
    rpc_stream_batch_done_unlock(stream);
}

static void client_connect_timeout(struct rpc_timer *timer)
{
    struct rpc_stream_grpc *stream =
        pl_container_of(timer, struct rpc_stream_grpc, connect);
    uint32_t rest = stream->connect_timeout_ms - stream->doubt_ms;
    struct pl_err err;

    if (rpc_channel_mistrust(stream->channel, CLIENT_MISTRUST_MS, &err) != PLASMON_OK) {
        rpc_stream_close(&stream->base, err.status, err.text);
        return;
    }
    if (rest > 0 && !stream->doubted) {
        stream->doubted = true;
        rpc_timer_arm(stream->base.loop, timer, rest);
        return;
    }
    rpc_channel_explain(stream->channel, &err, stream->connect_timeout_ms);
    rpc_stream_close(&stream->base, PLASMON_ECONNECT, err.text);
}

void rpc_stream_client_half_close_locked(struct rpc_stream_grpc *stream)
{
    grpc_op op = {.op = GRPC_OP_SEND_CLOSE_FROM_CLIENT};

    rpc_stream_batch_locked(stream, &op, 1, &stream->last_tag);
}

void rpc_stream_client_finish(struct rpc_stream_grpc *stream)
{
    rpc_timer_disarm(stream->base.loop, &stream->connect);
    grpc_metadata_array_destroy(&stream->initial);
    grpc_metadata_array_destroy(&stream->trailing);
    grpc_slice_unref(stream->details);
}

static void client_start_locked(struct rpc_stream_grpc *stream)
{
    grpc_op first[2] = {rpc_channel_stream_metadata_op(stream->channel),
                        {.op = GRPC_OP_RECV_INITIAL_METADATA}};
    grpc_op end      = {.op = GRPC_OP_RECV_STATUS_ON_CLIENT};

    first[1].data.recv_initial_metadata.recv_initial_metadata = &stream->initial;
    end.data.recv_status_on_client.trailing_metadata          = &stream->trailing;
    end.data.recv_status_on_client.status                     = &stream->code;
    end.data.recv_status_on_client.status_details             = &stream->details;

    stream->open = true;
    rpc_stream_batch_locked(stream, first, 2, &stream->first_tag);
    rpc_stream_batch_locked(stream, &end, 1, &stream->end_tag);
    rpc_stream_receive_locked(stream);
}

plasmon_status_t rpc_stream_open(struct rpc_channel *channel, const char *path,
                                 uint32_t connect_timeout_ms,
                                 const struct rpc_stream_ops *ops, void *user,
                                 struct rpc_stream **out_stream)
{
    struct rpc_stream_grpc *stream = PL_NEW(struct rpc_stream_grpc);
    plasmon_status_t status;

    if (stream == NULL) {
        return PLASMON_ENOMEM;
    }
    status = rpc_stream_grpc_init(stream, channel->loop, false, channel->message_bytes_max);
    if (status != PLASMON_OK) {
        pl_free(stream);
        return status;
    }

    stream->channel            = channel;
    stream->base.peer          = pl_strdup(channel->target);
    stream->first_tag.fn       = client_first;
    stream->end_tag.fn         = client_ended;
    stream->last_tag.fn        = client_last;
    stream->details            = grpc_empty_slice();
    stream->connect_timeout_ms = connect_timeout_ms;
    grpc_metadata_array_init(&stream->initial);
    grpc_metadata_array_init(&stream->trailing);
    rpc_timer_init(&stream->connect, client_connect_timeout);
    rpc_stream_set_user(&stream->base, ops, user);
    stream->doubt_ms = channel->tcp && connect_timeout_ms > CLIENT_DOUBT_MS
                           ? CLIENT_DOUBT_MS
                           : connect_timeout_ms;
    rpc_channel_refresh(channel);
    stream->call = rpc_channel_call(channel, rpc_loop_queue(channel->loop), path,
                                    gpr_inf_future(GPR_CLOCK_MONOTONIC));

    *out_stream = &stream->base; /* before a callback can run */
    pl_mutex_lock(&stream->lock);
    rpc_timer_arm(channel->loop, &stream->connect, stream->doubt_ms);
    client_start_locked(stream);
    pl_mutex_unlock(&stream->lock);
    return PLASMON_OK;
}
