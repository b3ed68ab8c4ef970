/*
 * The server's end of a stream: from the call that the core hands out, over the checks (token, how
 * many), to the user's accept(). The end of the call (cancelled, disconnected, done) is asked for
 * at once, before anything else can happen.
 *
 * Until accept() has said yes nothing is sent, so that a refusal is one answer with its status;
 * what accept() itself sends waits in the queue.
 */
#include "rpc/grpc_int.h"

#include <assert.h>

#include "base/alloc.h"
#include "base/log.h"

#define SERVER_CANCELLED \
    "the client cancelled, its connection broke, or it sent too large a message"

static void server_first(struct rpc_tag *tag, bool ok)
{
    struct rpc_stream_grpc *stream =
        pl_container_of(tag, struct rpc_stream_grpc, first_tag);

    (void)ok; /* if they could not be sent, the end says so */
    pl_mutex_lock(&stream->lock);
    rpc_stream_batch_done_unlock(stream);
}

static void server_ended(struct rpc_tag *tag, bool ok)
{
    struct rpc_stream_grpc *stream = pl_container_of(tag, struct rpc_stream_grpc, end_tag);

    (void)ok; /* always */
    pl_mutex_lock(&stream->lock);
    if (stream->cancelled) {
        rpc_stream_over_locked(stream, PLASMON_ECLOSED, SERVER_CANCELLED);
    } else {
        rpc_stream_over_locked(stream, PLASMON_OK,
                               ""); /* the client ended it, and was answered */
    }
    rpc_stream_batch_done_unlock(stream);
}

static void server_last(struct rpc_tag *tag, bool ok)
{
    struct rpc_stream_grpc *stream = pl_container_of(tag, struct rpc_stream_grpc, last_tag);

    (void)ok; /* a status that cannot be sent has nobody to read it */
    pl_mutex_lock(&stream->lock);
    rpc_stream_batch_done_unlock(stream);
}

void rpc_stream_server_send_status_locked(struct rpc_stream_grpc *stream)
{
    struct rpc_status_storage storage;
    grpc_op op =
        rpc_status_op(&storage, stream->status, stream->why != NULL ? stream->why : "");

    rpc_stream_batch_locked(stream, &op, 1, &stream->last_tag);
    rpc_status_storage_finish(&storage);
}

static uint32_t *server_count_of(const struct rpc_stream_grpc *stream)
{
    return stream->open_to_all ? &stream->owner->health_count
                               : &stream->owner->stream_count;
}

void rpc_stream_server_finish(struct rpc_stream_grpc *stream)
{
    pl_list_remove(&stream->link);
    --*server_count_of(stream);
}

static void server_refuse_locked(struct rpc_stream_grpc *stream, plasmon_status_t status,
                                 const char *why)
{
    struct rpc_status_storage storage;
    grpc_op ops[2] = {{.op = GRPC_OP_SEND_INITIAL_METADATA},
                      rpc_status_op(&storage, status, why)};

    stream->base.ops    = NULL;
    stream->closed_here = true;
    stream->status      = status;
    stream->ending      = RPC_ENDING_STARTED;
    rpc_queue_drop(&stream->queue);
    rpc_stream_batch_locked(stream, ops, 2, &stream->last_tag);
    rpc_status_storage_finish(&storage);
}

static void server_start_locked(struct rpc_stream_grpc *stream,
                                const grpc_metadata_array *metadata)
{
    /* One entry at least, since a client that gets none takes the answer for a refusal. */
    grpc_metadata hello[2] = {{.key   = grpc_slice_from_static_string("plasmon"),
                               .value = grpc_slice_from_static_string("1")}};
    grpc_op op             = {.op = GRPC_OP_SEND_INITIAL_METADATA};
    bool offers = !stream->open_to_all && rpc_shm_offer_locked(stream, metadata, &hello[1]);

    op.data.send_initial_metadata.count    = offers ? 2 : 1;
    op.data.send_initial_metadata.metadata = hello;
    stream->open                           = true;
    rpc_stream_batch_locked(stream, &op, 1, &stream->first_tag);
    if (offers) {
        grpc_slice_unref(hello[1].value);
    }
    rpc_stream_receive_locked(stream);
    rpc_stream_kick_locked(stream);
}

/* The checks, then the user. */
static plasmon_status_t server_admit(struct rpc_stream_grpc *stream,
                                     struct rpc_server_method *method, struct pl_err *err)
{
    plasmon_status_t status =
        rpc_server_check(method, stream->call, stream->base.token,
                         &stream->base.token_index, &stream->base.identity, err);
    uint32_t max;

    if (status != PLASMON_OK) {
        return status;
    }
    if (stream->owner->closing) {
        return pl_err_set(err, PLASMON_ECLOSED, "the server is shutting down");
    }
    max = stream->open_to_all ? RPC_HEALTH_STREAMS_MAX : stream->owner->streams_max;
    if (*server_count_of(stream) > max) {
        return pl_err_set(err, PLASMON_ELIMIT, "the server has %u streams, its limit", max);
    }

    *err   = (struct pl_err){.status = PLASMON_OK};
    status = method->accept(method->user, &stream->base, err);
    assert(status != PLASMON_OK || stream->base.ops != NULL);
    return status;
}

static struct rpc_stream_grpc *server_stream_create(const struct rpc_server_method *method,
                                                    grpc_call *call,
                                                    const grpc_metadata_array *metadata)
{
    struct rpc_stream_grpc *stream = PL_NEW(struct rpc_stream_grpc);
    struct rpc_server *server      = method->server;
    char *peer;

    if (stream == NULL) {
        return NULL;
    }
    if (!rpc_token_of_metadata(metadata, &stream->base.token) ||
        rpc_stream_grpc_init(stream, server->loop, true, server->message_bytes_max) !=
            PLASMON_OK) {
        pl_free(stream->base.token);
        pl_free(stream);
        return NULL;
    }

    peer              = grpc_call_get_peer(call);
    stream->base.peer = pl_strdup(peer);
    gpr_free(peer);
    stream->call         = call;
    stream->first_tag.fn = server_first;
    stream->end_tag.fn   = server_ended;
    stream->last_tag.fn  = server_last;
    stream->owner        = server;
    stream->open_to_all  = method->open_to_all;
    pl_list_init(&stream->link);
    pl_list_add_tail(&server->streams, &stream->link);
    ++*server_count_of(stream);
    return stream;
}

void rpc_server_accept_stream(struct rpc_server_method *method, grpc_call *call,
                              const grpc_metadata_array *metadata)
{
    struct rpc_stream_grpc *stream = server_stream_create(method, call, metadata);
    grpc_op end                    = {.op = GRPC_OP_RECV_CLOSE_ON_SERVER};
    plasmon_status_t status;
    struct pl_err err;

    if (stream == NULL) {
        rpc_server_refuse(method->server, call, GRPC_STATUS_RESOURCE_EXHAUSTED,
                          PLASMON_ENOMEM, "the server is out of memory");
        return;
    }

    end.data.recv_close_on_server.cancelled = &stream->cancelled;
    pl_mutex_lock(&stream->lock);
    rpc_stream_batch_locked(stream, &end, 1, &stream->end_tag);
    pl_mutex_unlock(&stream->lock);

    status = server_admit(stream, method, &err);

    pl_mutex_lock(&stream->lock);
    if (status == PLASMON_OK) {
        server_start_locked(stream, metadata);
    } else {
        pl_debug("rpc", "refused %s from %s: %s", method->path,
                 rpc_stream_peer(&stream->base), err.text);
        server_refuse_locked(stream, status, err.text);
    }
    pl_mutex_unlock(&stream->lock);
}
