/*
 * grpc.health.v1 by hand: two methods, and messages so small that their bytes can be written down.
 *
 *   HealthCheckRequest   { string service = 1; }
 *   HealthCheckResponse  { enum status = 1; }    1 SERVING, 3 SERVICE_UNKNOWN
 *
 * Open to everyone: those who ask (Kubernetes, load balancers) have no token, and the answer says
 * only that we are here.
 */
#include "rpc/grpc_int.h"

#include <string.h>

#include "base/alloc.h"

enum health {
    HEALTH_SERVING         = 1,
    HEALTH_SERVICE_UNKNOWN = 3,
};

/* The service named in a request; false: the bytes are no such message. "" and 0 for the whole server. */
static bool health_parse(const uint8_t *bytes, size_t length, const char **out_name,
                         size_t *out_length)
{
    *out_name   = "";
    *out_length = 0;
    if (length == 0) {
        return true;
    }
    if (length < 2 || bytes[0] != 0x0a || bytes[1] >= 0x80 ||
        length != (size_t)bytes[1] + 2) {
        return false; /* names of 128 bytes and more are none of ours either */
    }
    *out_name   = (const char *)bytes + 2;
    *out_length = bytes[1];
    return true;
}

/* "plasmon.v1.Plasmon" is known when one of our paths begins with "/plasmon.v1.Plasmon/". */
static enum health health_of(const struct rpc_server *server, const char *name,
                             size_t length)
{
    if (length == 0) {
        return HEALTH_SERVING;
    }
    for (size_t i = 0; i < server->method_count; i++) {
        const char *path = server->methods[i].path;

        if (strlen(path) > length + 2 && memcmp(path + 1, name, length) == 0 &&
            path[length + 1] == '/') {
            return HEALTH_SERVING;
        }
    }
    return HEALTH_SERVICE_UNKNOWN;
}

static uint8_t *health_response(enum health health)
{
    uint8_t *buffer = rpc_buffer_create(2);

    if (buffer != NULL) {
        buffer[0] = 0x08;
        buffer[1] = (uint8_t)health;
    }
    return buffer;
}

static void health_check(void *user, struct rpc_unary *call, const uint8_t *bytes,
                         size_t length)
{
    const char *name;
    uint8_t *answer;
    size_t bytes_of_name;

    if (!health_parse(bytes, length, &name, &bytes_of_name)) {
        rpc_unary_fail(call, PLASMON_EINVAL, "not a HealthCheckRequest");
        return;
    }
    if (health_of(user, name, bytes_of_name) != HEALTH_SERVING) {
        rpc_unary_fail(call, PLASMON_ENOENT, "unknown service");
        return;
    }
    answer = health_response(HEALTH_SERVING);
    if (answer == NULL) {
        rpc_unary_fail(call, PLASMON_ENOMEM, "out of host memory");
        return;
    }
    rpc_unary_reply(call, answer, 2);
}

/* Watch says once what it knows; it changes only by our going away, which the end of the stream tells. */
static void health_watch_message(void *user, struct rpc_stream *stream,
                                 const uint8_t *bytes, size_t length)
{
    const char *name;
    uint8_t *answer;
    size_t bytes_of_name;

    if (!health_parse(bytes, length, &name, &bytes_of_name)) {
        rpc_stream_close(stream, PLASMON_EINVAL, "not a HealthCheckRequest");
        return;
    }
    answer = health_response(health_of(user, name, bytes_of_name));
    if (answer == NULL || rpc_stream_send(stream, answer, 2) != PLASMON_OK) {
        rpc_stream_close(stream, PLASMON_ENOMEM, "out of host memory");
    }
}

static void health_watch_closed(void *user, struct rpc_stream *stream,
                                plasmon_status_t status, const char *why)
{
    (void)user;
    (void)stream;
    (void)status;
    (void)why;
}

static plasmon_status_t health_watch(void *user, struct rpc_stream *stream,
                                     struct pl_err *err)
{
    static const struct rpc_stream_ops ops = {
        .message = health_watch_message,
        .closed  = health_watch_closed,
    };

    (void)err;
    rpc_stream_set_user(stream, &ops, user);
    return PLASMON_OK;
}

void rpc_health_methods(struct rpc_server_method out[RPC_HEALTH_METHODS],
                        struct rpc_server *server)
{
    out[0] = (struct rpc_server_method){
        .server      = server,
        .path        = "/grpc.health.v1.Health/Check",
        .unary       = health_check,
        .user        = server,
        .open_to_all = true,
    };
    out[1] = (struct rpc_server_method){
        .server      = server,
        .path        = "/grpc.health.v1.Health/Watch",
        .accept      = health_watch,
        .user        = server,
        .open_to_all = true,
    };
}
