/*
 * Node streams: what the stores tell. Which devices a host brings (they get their numbers here, and welcomes wait for them), where its
 * control socket is, and which of its workers died. A death is kept and repeated by the store until it is acknowledged; a repeat changes
 * nothing.
 */
#include "head/serve.h"

#include <string.h>

#include "base/alloc.h"
#include "base/log.h"

void serve_node_free(struct serve_node *node)
{
    pl_list_remove(&node->link);
    pl_free(node->host);
    pl_free(node->name);
    pl_free(node->store_socket);
    pl_free(node);
}

const char *serve_store_socket(const struct serve *serve, const char *host)
{
    struct pl_list *pos;

    pl_list_for_each(pos, &serve->nodes) {
        const struct serve_node *node = pl_container_of(pos, struct serve_node, link);

        if (node->host != NULL && strcmp(node->host, host) == 0) {
            return node->store_socket;
        }
    }
    return "";
}

bool serve_host_known(const struct serve *serve, const char *host)
{
    struct pl_list *pos;

    pl_list_for_each(pos, &serve->nodes) {
        const struct serve_node *node = pl_container_of(pos, struct serve_node, link);

        if (node->host != NULL && strcmp(node->host, host) == 0) {
            return true;
        }
    }
    return false;
}

bool serve_devices_ready(const struct serve *serve)
{
    bool none_announced = head_core_device_count(serve->core) == 0;

    /* A private cluster has at least one, which is on its way. */
    return head_core_all_joined(serve->core) && !(serve->config.embedded && none_announced);
}

static void node_send(struct serve_node *node, Plasmon__V1__NodeCommand *command,
                      bool numbered)
{
    Plasmon__V1__Header header = PLASMON__V1__HEADER__INIT;
    uint8_t *buffer;
    size_t length;

    header.protocol = WIRE_PROTOCOL;
    header.epoch    = node->serve->epoch;
    header.session  = node->session;
    header.seq      = numbered ? ++node->out_seq : 0;
    header.ack      = node->in_seq;
    command->header = &header;
    length          = plasmon__v1__node_command__get_packed_size(command);
    buffer          = rpc_buffer_create(length);
    if (buffer == NULL) {
        return; /* the store repeats what is not acknowledged */
    }
    (void)plasmon__v1__node_command__pack(command, buffer);
    if (rpc_stream_send(node->stream, buffer, length) != PLASMON_OK) {
        pl_warn("head", "node %s cannot be reached", node->name != NULL ? node->name : "?");
    }
}

void serve_node_fence(struct serve *serve, uint32_t device)
{
    const struct serve_worker *worker = serve_worker_of(serve, device);
    struct pl_list *pos;

    pl_list_for_each(pos, &serve->nodes) {
        struct serve_node *node          = pl_container_of(pos, struct serve_node, link);
        Plasmon__V1__NodeCommand command = PLASMON__V1__NODE_COMMAND__INIT;
        uint32_t fence                   = worker != NULL ? worker->host_device : 0;

        if (worker != NULL && node->host != NULL && strcmp(node->host, worker->host) == 0) {
            command.fence   = &fence;
            command.n_fence = 1;
            node_send(node, &command, true);
        }
    }
}

static plasmon_status_t node_hello(struct serve_node *node,
                                   const Plasmon__V1__NodeHello *hello, struct pl_err *err)
{
    Plasmon__V1__NodeCommand command = PLASMON__V1__NODE_COMMAND__INIT;
    Plasmon__V1__NodeWelcome welcome = PLASMON__V1__NODE_WELCOME__INIT;
    struct serve *serve              = node->serve;
    plasmon_status_t status =
        head_core_node_up(serve->core, hello->host, hello->node, hello->devices, err);
    struct pl_list *pos, *tmp;

    if (status != PLASMON_OK) {
        return status;
    }
    pl_list_for_each_safe(pos, tmp, &serve->nodes) {
        struct serve_node *old = pl_container_of(pos, struct serve_node, link);

        if (old != node && old->host != NULL && strcmp(old->host, hello->host) == 0) {
            rpc_stream_set_user(old->stream, &serve_orphan_ops, NULL);
            rpc_stream_close(old->stream, PLASMON_ECLOSED,
                             "the store came back over another connection");
            serve_node_free(old);
        }
    }
    node->host         = pl_strdup(hello->host);
    node->name         = pl_strdup(hello->node);
    node->store_socket = pl_strdup(hello->store_socket);
    PL_CHECK(node->host != NULL && node->name != NULL && node->store_socket != NULL);
    node->session   = (uint64_t)(uintptr_t)node;
    welcome.epoch   = serve->epoch;
    welcome.cluster = (char *)"plasmon";
    command.welcome = &welcome;
    node_send(node, &command, false);
    pl_info("head", "node %s brings %u devices", node->name, hello->devices);
    serve_workers_tick(serve, serve_now_ms());
    serve_clients_tick(serve, serve_now_ms());
    return PLASMON_OK;
}

static void node_down(struct serve_node *node, const Plasmon__V1__WorkerDown *down)
{
    struct pl_list *pos;

    pl_list_for_each(pos, &node->serve->workers) {
        const struct serve_worker *worker = pl_container_of(pos, struct serve_worker, link);

        /* A newer incarnation may have said hello before the news of its predecessor's death came. */
        if (worker->device != UINT32_MAX && worker->host_device == down->host_device &&
            strcmp(worker->host, node->host) == 0 &&
            worker->incarnation > down->incarnation) {
            return;
        }
    }
    head_core_worker_down(node->serve->core, node->host, down->host_device,
                          down->quarantined, down->text);
    serve_clients_tick(node->serve, serve_now_ms());
}

static void node_message(void *user, struct rpc_stream *stream, const uint8_t *bytes,
                         size_t length)
{
    struct serve_node *node = user;
    struct serve *serve     = node->serve;
    Plasmon__V1__NodeFrame *frame;
    struct pl_err err = {0};

    wire_arena_reset(&serve->arena);
    if (wire_decode_node_frame(&serve->arena, bytes, length, &frame, &err) != PLASMON_OK) {
        pl_warn("head", "a store is refused: %s", err.text);
        rpc_stream_close(stream, err.status, err.text);
        return;
    }
    if (frame->hello != NULL) {
        if (node->host != NULL) {
            rpc_stream_close(stream, PLASMON_EMALFORMED, "a second hello on one stream");
            return;
        }
        if (node_hello(node, frame->hello, &err) != PLASMON_OK) {
            pl_warn("head", "a store is refused: %s", err.text);
            rpc_stream_close(stream, err.status, err.text);
        }
        return;
    }
    if (node->host == NULL) {
        rpc_stream_close(stream, PLASMON_EMALFORMED,
                         "the first frame of a store must carry a hello");
        return;
    }
    if (frame->header->seq != 0 && frame->header->seq <= node->in_seq) {
        return;
    }
    node->in_seq = pl_max_u64(node->in_seq, frame->header->seq);
    for (size_t i = 0; i < frame->n_down; i++) {
        node_down(node, frame->down[i]);
    }
    if (frame->header->seq != 0) {
        Plasmon__V1__NodeCommand ack = PLASMON__V1__NODE_COMMAND__INIT;

        node_send(node, &ack, false);
    }
}

static void node_closed(void *user, struct rpc_stream *stream, plasmon_status_t status,
                        const char *why)
{
    struct serve_node *node = user;

    (void)stream;
    (void)status;
    pl_debug("head", "node %s: %s", node->name != NULL ? node->name : "?", why);
    serve_node_free(node);
}

static const struct rpc_stream_ops node_ops = {
    .message = node_message,
    .closed  = node_closed,
};

plasmon_status_t serve_node_accept(void *user, struct rpc_stream *stream,
                                   struct pl_err *err)
{
    struct serve *serve     = user;
    struct serve_node *node = PL_NEW(struct serve_node);

    if (node == NULL) {
        return pl_err_set(err, PLASMON_ENOMEM, "the head is out of memory");
    }
    node->serve  = serve;
    node->stream = stream;
    pl_list_init(&node->link);
    pl_list_add_tail(&serve->nodes, &node->link);
    rpc_stream_set_user(stream, &node_ops, node);
    return PLASMON_OK;
}
