/* The face of a stream: dispatch to gRPC or the loopback, and what both keep alike. */
#include "rpc/rpc_int.h"

plasmon_status_t rpc_stream_send(struct rpc_stream *stream, uint8_t *buffer, size_t length)
{
    /* the caller may have asked for more than it filled */
    rpc_buffer_of(buffer)->length = length;
    return stream->impl->send(stream, buffer, length);
}

bool rpc_stream_idle(struct rpc_stream *stream)
{
    return stream->impl->idle(stream);
}

bool rpc_stream_by_memory(const struct rpc_stream *stream)
{
    return stream->impl->by_memory(stream);
}

void rpc_stream_close(struct rpc_stream *stream, plasmon_status_t status, const char *why)
{
    stream->impl->close(stream, status, why != NULL ? why : "");
}

const char *rpc_stream_token(struct rpc_stream *stream)
{
    return stream->token != NULL ? stream->token : "";
}

int rpc_stream_token_index(struct rpc_stream *stream)
{
    return stream->token_index;
}

const struct trust_identity *rpc_stream_identity(struct rpc_stream *stream)
{
    return stream->identity;
}

const char *rpc_stream_peer(struct rpc_stream *stream)
{
    return stream->peer != NULL ? stream->peer : "";
}

void rpc_stream_set_user(struct rpc_stream *stream, const struct rpc_stream_ops *ops,
                         void *user)
{
    stream->ops  = ops;
    stream->user = user;
}
