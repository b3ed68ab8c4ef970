/*
 * Node streams: what the stores tell. Which devices a host brings (they get their numbers here, and
 * welcomes wait for them), where its control socket is, and which of its workers died. A death is
 * kept and repeated by the store until it is acknowledged; a repeat changes nothing. What a store
 * is and when it is given up: machine_nodes.c.
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
    pl_free(node);
}

static struct serve_node *node_of(struct serve *serve, const char *host)
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
    header.epoch    = head_machine_epoch(node->serve->machine);
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
    serve_send(node->serve, node->stream, buffer, length);
}

/*
 * It carries no state, and acknowledges nothing: so it waits for no journal, and a store is not
 * taken for a silent one because Redis is.
 */
uint32_t serve_nodes_ask(struct serve *serve, uint64_t request)
{
    Plasmon__V1__NodeCommand command = PLASMON__V1__NODE_COMMAND__INIT;
    Plasmon__V1__Header header       = PLASMON__V1__HEADER__INIT;
    uint32_t count                   = 0;
    struct pl_list *pos;

    header.protocol = WIRE_PROTOCOL;
    header.epoch    = head_machine_epoch(serve->machine);
    command.header  = &header;
    command.ask     = request;
    pl_list_for_each(pos, &serve->nodes) {
        struct serve_node *node = pl_container_of(pos, struct serve_node, link);
        size_t length;
        uint8_t *buffer;

        if (node->host == NULL) {
            continue;
        }
        header.session = node->session;
        length         = plasmon__v1__node_command__get_packed_size(&command);
        buffer         = rpc_buffer_create(length);
        count++;
        if (buffer != NULL) {
            (void)plasmon__v1__node_command__pack(&command, buffer);
            /* One that reads nothing has its queue full: then it does not answer. */
            (void)!rpc_stream_send(node->stream, buffer, length);
        }
    }
    return count;
}

/* A store that is away hears of it later: the core repeats the order. */
void serve_node_fence(struct serve *serve, const char *host, uint32_t host_device,
                      uint32_t incarnation)
{
    struct serve_node *node          = node_of(serve, host);
    Plasmon__V1__NodeCommand command = PLASMON__V1__NODE_COMMAND__INIT;

    if (node != NULL) {
        command.fence               = &host_device;
        command.n_fence             = 1;
        command.fence_incarnation   = &incarnation;
        command.n_fence_incarnation = 1;
        node_send(node, &command, true);
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

void serve_node_spill(struct serve *serve, const char *host, const struct head_spill_op *op)
{
    struct serve_node *node          = node_of(serve, host);
    Plasmon__V1__NodeCommand command = PLASMON__V1__NODE_COMMAND__INIT;
    Plasmon__V1__SpillOp spill       = PLASMON__V1__SPILL_OP__INIT;
    Plasmon__V1__SpillOp *list       = &spill;

    if (node == NULL) {
        return; /* it is away, and asked when it is back */
    }
    spill.id          = op->id;
    spill.kind        = (uint32_t)op->kind;
    spill.host_buffer = op->host_buffer;
    spill.offset      = op->offset;
    spill.bytes       = op->bytes;
    spill.file        = op->file;
    command.spill     = &list;
    command.n_spill   = 1;
    node_send(node, &command, true);
}

static void node_close(struct serve_node *node, plasmon_status_t status, const char *why)
{
    serve_close(node->serve, node->stream, status, why);
    serve_node_free(node);
}

void serve_node_drop(struct serve *serve, const char *host, const char *why)
{
    struct serve_node *node = node_of(serve, host);

    if (node != NULL) {
        node_close(node, PLASMON_ECLOSED, why);
    }
}

static void refuse(struct serve_node *node, plasmon_status_t status, const char *text)
{
    pl_warn("head", "a store is refused: %s", text);
    node_close(node, status, text);
}

static void take_spill(struct serve_node *node, const Plasmon__V1__NodeHello *hello)
{
    struct head_input input = {
        .type    = HEAD_INPUT_SPILL_UP,
        .numbers = {hello->spill_memory, hello->spill_files, hello->spill_life,
                    hello->spill_slab, hello->spill_write_back,
                    hello->spill_on_demand != 0},
        .strings = {head_string(node->host)},
    };
    struct pl_err err;

    PL_CHECK(serve_input(node->serve, &input, NULL, &err) == PLASMON_OK);
}

static void node_spilled(struct serve_node *node, const Plasmon__V1__SpillDone *done)
{
    struct head_input input = {
        .type    = HEAD_INPUT_SPILL_DONE,
        .numbers = {done->id, (uint32_t)done->status, done->host_buffer, done->bytes},
        .strings = {head_string(node->host), head_string(done->text)},
    };
    struct pl_err err;

    PL_CHECK(serve_input(node->serve, &input, NULL, &err) == PLASMON_OK);
}

/* The node may be freed. */
static void take_hello(struct serve_node *node, const Plasmon__V1__NodeHello *hello,
                       const uint8_t *bytes, size_t length)
{
    Plasmon__V1__NodeCommand command = PLASMON__V1__NODE_COMMAND__INIT;
    Plasmon__V1__NodeWelcome welcome = PLASMON__V1__NODE_WELCOME__INIT;
    struct head_input input = {.type = HEAD_INPUT_NODE_UP, .strings = {{bytes, length}}};
    struct serve *serve     = node->serve;
    struct pl_err err       = {0};
    struct serve_node *older;
    struct head_outcome outcome;

    if (serve_input(serve, &input, &outcome, &err) != PLASMON_OK) {
        refuse(node, err.status, err.text);
        return;
    }
    older = node_of(serve, hello->host);
    if (older != NULL) {
        serve_replace(serve, older->stream, "the store came back over another connection");
        serve_node_free(older);
    }
    node->host    = pl_strdup(hello->host);
    node->name    = pl_strdup(hello->node);
    node->session = outcome.session;
    PL_CHECK(node->host != NULL && node->name != NULL);
    /* What was asked before it was here, nobody waits for. */
    (void)head_machine_node_heard(serve->machine, node->host, serve->stats_request,
                                  serve_now_ms(serve));
    welcome.epoch   = head_machine_epoch(serve->machine);
    welcome.cluster = (char *)"plasmon";
    welcome.journal = serve->config.journal != NULL;
    command.welcome = &welcome;
    node_send(node, &command, false);
    take_spill(node, hello);
    serve_workers_tick(serve, serve_now_ms(serve));
    serve_clients_tick(serve, serve_now_ms(serve));
}

static void node_down(struct serve_node *node, const Plasmon__V1__WorkerDown *down)
{
    struct head_input input = {
        .type    = HEAD_INPUT_WORKER_DOWN,
        .numbers = {down->host_device, down->incarnation, down->quarantined != 0,
                    (uint32_t)down->status},
        .strings = {head_string(node->host), head_string(down->text)},
    };
    struct pl_err err;

    PL_CHECK(serve_input(node->serve, &input, NULL, &err) == PLASMON_OK);
    serve_clients_tick(node->serve, serve_now_ms(node->serve));
}

/* A frame of a store that has said hello. */
static void node_frame(struct serve_node *node, const Plasmon__V1__NodeFrame *frame)
{
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
    for (size_t i = 0; i < frame->n_spill_done; i++) {
        node_spilled(node, frame->spill_done[i]);
    }
    if (frame->header->seq != 0) {
        Plasmon__V1__NodeCommand ack = PLASMON__V1__NODE_COMMAND__INIT;

        node_send(node, &ack, false);
    }
}

void serve_nodes_tick(struct serve *serve, uint64_t now_ms)
{
    struct pl_list *pos, *tmp;

    pl_list_for_each_safe(pos, tmp, &serve->nodes) {
        struct serve_node *node = pl_container_of(pos, struct serve_node, link);
        struct pl_err err       = {0};

        if (node->host == NULL && serve_hello_late(serve, node->since_ms, now_ms, &err)) {
            refuse(node, err.status, err.text);
        }
    }
}

static void node_message(void *user, struct rpc_stream *stream, const uint8_t *bytes,
                         size_t length)
{
    struct serve_node *node = user;
    struct serve *serve     = node->serve;
    Plasmon__V1__NodeFrame *frame;
    struct pl_err err = {0};

    (void)stream;
    wire_arena_reset(&serve->arena);
    if (wire_decode_node_frame(&serve->arena, bytes, length, &frame, &err) != PLASMON_OK) {
        refuse(node, err.status, err.text);
    } else if (frame->hello != NULL && node->host != NULL) {
        refuse(node, PLASMON_EMALFORMED, "a second hello on one stream");
    } else if (frame->hello != NULL) {
        take_hello(node, frame->hello, bytes, length);
    } else if (node->host == NULL) {
        refuse(node, PLASMON_EMALFORMED, "the first frame of a store must carry a hello");
    } else {
        uint64_t answer = frame->answer;
        bool first      = head_machine_node_heard(serve->machine, node->host, answer,
                                                  serve_now_ms(serve));

        node_frame(node, frame);
        if (first) { /* what is told now has the frame's memory */
            serve_status_stats(serve, answer);
        }
    }
}

static void node_closed(void *user, struct rpc_stream *stream, plasmon_status_t status,
                        const char *why)
{
    struct serve_node *node = user;
    struct serve *serve     = node->serve;
    struct pl_err err;

    (void)status;
    serve_gate_forget(serve, stream);
    if (node->host != NULL) {
        struct head_input input = {.type    = HEAD_INPUT_NODE_LOST,
                                   .numbers = {serve_now_ms(serve)},
                                   .strings = {head_string(node->host)}};

        pl_info("head", "node %s lost its connection: %s", node->name,
                why[0] != '\0' ? why : "its store has ended it");
        if (serve_input(serve, &input, NULL, &err) != PLASMON_OK) {
            pl_debug("head", "node %s: %s", node->name, err.text);
        }
    }
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
    node->serve    = serve;
    node->stream   = stream;
    node->since_ms = serve_now_ms(serve);
    pl_list_init(&node->link);
    pl_list_add_tail(&serve->nodes, &node->link);
    rpc_stream_set_user(stream, &node_ops, node);
    return PLASMON_OK;
}
