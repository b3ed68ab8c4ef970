/*
 * Node streams: what the stores tell. Which devices a host brings (they get their numbers here, and welcomes wait for them), where its
 * control socket is, and which of its workers died. A death is kept and repeated by the store until it is acknowledged; a repeat changes
 * nothing.
 *
 * A HOST HAS ONE STORE, the memory of its devices. It is known by host and control socket, and its session outlives its connection:
 *
 *   hello -> connected -> (broken -> hello with that session -> connected ...) -> given up
 *
 * It is given up when it stays away for longer than the lease, or when another store of the host says hello meanwhile: its devices are
 * gone then, with what lay there, and a store that comes later joins as a fresh one. A second store beside a connected one is refused.
 */
#include "head/serve.h"

#include <stdio.h>
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

static struct serve_node *node_of(const struct serve *serve, const char *host)
{
    struct pl_list *pos;

    pl_list_for_each(pos, &serve->nodes) {
        struct serve_node *node = pl_container_of(pos, struct serve_node, link);

        if (node->host != NULL && strcmp(node->host, host) == 0) {
            return node;
        }
    }
    return NULL;
}

const char *serve_store_socket(const struct serve *serve, const char *host)
{
    const struct serve_node *node = node_of(serve, host);

    return node != NULL ? node->store_socket : "";
}

bool serve_host_known(const struct serve *serve, const char *host)
{
    return node_of(serve, host) != NULL;
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

    if (node->stream == NULL) {
        return; /* it is away: what it has to know it asks for when it comes back */
    }
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
        uint32_t incarnation             = worker != NULL ? worker->incarnation : 0;

        if (worker != NULL && node->host != NULL && strcmp(node->host, worker->host) == 0) {
            command.fence               = &fence;
            command.n_fence             = 1;
            command.fence_incarnation   = &incarnation;
            command.n_fence_incarnation = 1;
            node_send(node, &command, true);
        }
    }
}

void serve_node_tell_left(struct serve_node *node, const struct head_drain_report *report)
{
    Plasmon__V1__NodeCommand command = PLASMON__V1__NODE_COMMAND__INIT;
    Plasmon__V1__NodeLeft left       = PLASMON__V1__NODE_LEFT__INIT;

    left.objects_left = report->objects_left;
    left.bytes_left   = report->bytes_left;
    left.text         = (char *)(uintptr_t)report->why;
    command.left      = &left;
    node_send(node, &command, true);
}

static const struct rpc_stream_ops node_ops;

/* It will not come back: neither do its devices, nor their workers. */
static void node_give_up(struct serve_node *node, const char *why)
{
    struct serve *serve = node->serve;
    char text[512];

    (void)snprintf(text, sizeof(text), "node %.200s left the cluster: %.200s", node->name,
                   why);
    pl_warn("head", "%s", text);
    serve_workers_drop(serve, node->host, text);
    head_core_node_gone(serve->core, node->host, text);
    if (node->stream != NULL) {
        rpc_stream_set_user(node->stream, &serve_orphan_ops, NULL);
        rpc_stream_close(node->stream, PLASMON_ECLOSED, text);
    }
    serve_node_free(node);
}

/* Nothing is lost with it. */
static bool drained(const struct serve_node *node)
{
    struct head_drain_report report;
    struct pl_err err = {.status = PLASMON_OK};

    return node->host != NULL &&
           head_core_drain_report(node->serve->core, node->host, &report, &err) ==
               PLASMON_OK &&
           report.done;
}

void serve_nodes_tick(struct serve *serve, uint64_t now_ms)
{
    struct pl_list *pos, *tmp;

    pl_list_for_each_safe(pos, tmp, &serve->nodes) {
        struct serve_node *node = pl_container_of(pos, struct serve_node, link);
        char why[96];

        if (node->stream == NULL && (node->leaving || drained(node))) {
            node_give_up(node, "its store was ended");
        } else if (node->stream == NULL &&
                   now_ms - node->lost_ms >= serve->config.node_lease_ms) {
            (void)snprintf(why, sizeof(why), "its store did not come back within %u ms",
                           serve->config.node_lease_ms);
            node_give_up(node, why);
        }
    }
}

static plasmon_status_t refuse_second(const struct serve_node *there,
                                      const Plasmon__V1__NodeHello *hello,
                                      struct pl_err *err)
{
    return pl_err_set(
        err, PLASMON_EEXIST,
        "this host has a store in this cluster already: node %.100s, socket "
        "%.200s; the one with socket %.200s must not join beside it. End the "
        "first with `plasmon stop`, or start this one in a cluster of its own "
        "(another --head)",
        there->name, there->store_socket, hello->store_socket);
}

/* The store came back over another connection: it goes on as it was. */
static struct serve_node *node_resume(struct serve_node *known, struct serve_node *fresh)
{
    if (known->stream != NULL) {
        rpc_stream_set_user(known->stream, &serve_orphan_ops, NULL);
        rpc_stream_close(known->stream, PLASMON_ECLOSED,
                         "the store came back over another connection");
    }
    known->stream = fresh->stream;
    known->in_seq = known->out_seq = 0; /* of a connection */
    fresh->stream                  = NULL;
    rpc_stream_set_user(known->stream, &node_ops, known);
    serve_node_free(fresh);
    pl_info("head", "node %s is back", known->name);
    return known;
}

/* Whose hello is it? A node that joins takes the stream of `fresh`, which may be freed by that. */
static plasmon_status_t node_identify(struct serve_node *fresh,
                                      const Plasmon__V1__NodeHello *hello,
                                      struct serve_node **out_node, struct pl_err *err)
{
    struct serve_node *known = node_of(fresh->serve, hello->host);

    /* The same store, or one that took over what a dead one of this host kept. */
    if (known != NULL && hello->resume_session == known->session) {
        *out_node = node_resume(known, fresh);
        pl_free(known->store_socket);
        known->store_socket = pl_strdup(hello->store_socket);
        PL_CHECK(known->store_socket != NULL);
        return PLASMON_OK;
    }
    if (known != NULL && strcmp(known->store_socket, hello->store_socket) != 0 &&
        known->stream != NULL) {
        return refuse_second(known, hello, err);
    }
    if (known != NULL) {
        node_give_up(known, "another store of its host took its place");
    }
    fresh->host         = pl_strdup(hello->host);
    fresh->name         = pl_strdup(hello->node);
    fresh->store_socket = pl_strdup(hello->store_socket);
    PL_CHECK(fresh->host != NULL && fresh->name != NULL && fresh->store_socket != NULL);
    fresh->session = serve_session_new(fresh->serve);
    pl_info("head", "node %s brings %u devices", fresh->name, hello->devices);
    *out_node = fresh;
    return PLASMON_OK;
}

static plasmon_status_t node_hello(struct serve_node *fresh,
                                   const Plasmon__V1__NodeHello *hello, struct pl_err *err)
{
    Plasmon__V1__NodeCommand command = PLASMON__V1__NODE_COMMAND__INIT;
    Plasmon__V1__NodeWelcome welcome = PLASMON__V1__NODE_WELCOME__INIT;
    struct serve *serve              = fresh->serve;
    struct serve_node *node          = NULL;
    plasmon_status_t status          = node_identify(fresh, hello, &node, err);

    if (status == PLASMON_OK) {
        status =
            head_core_node_up(serve->core, hello->host, hello->node, hello->devices, err);
    }
    if (status != PLASMON_OK) {
        return status;
    }
    welcome.epoch   = serve->epoch;
    welcome.cluster = (char *)"plasmon";
    command.welcome = &welcome;
    node_send(node, &command, false);
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
    if (down->quarantined) {
        serve_worker_drop(node->serve, node->host, down->host_device, down->text);
    }
    head_core_worker_down(node->serve->core, node->host, down->host_device,
                          down->quarantined, (plasmon_status_t)down->status, down->text);
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
    if (frame->leave != NULL) {
        serve_node_leave(node, frame->leave->deadline_ms);
    }
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
    node->stream = NULL;
    if (node->host == NULL) {
        serve_node_free(node);
        return;
    }
    node->lost_ms = serve_now_ms();
    pl_info("head", "node %s lost its connection: %s", node->name, why);
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
