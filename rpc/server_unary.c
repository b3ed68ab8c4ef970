/*
 * Unary calls on a server: one message in, one answer, now or later, from any thread. A call is
 * freed when the core has said how it ended and the answer's batch is back; both come out on the
 * loop's thread.
 */
#include "rpc/grpc_int.h"

#include <assert.h>
#include <stdatomic.h>

#include "base/alloc.h"

struct rpc_unary {
    struct rpc_server *server;
    grpc_call *call;
    char *token;
    int token_index;
    struct trust_identity *identity; /* NULL: none */
    struct pl_list link;             /* in server->unaries */
    struct rpc_tag end_tag;
    struct rpc_tag answer_tag;
    int cancelled;
    _Atomic bool answered;
    unsigned batches; /* loop's thread: still to come back, the answer's from the start */
};

struct rpc_unary *rpc_unary_of_link(struct pl_list *link)
{
    return pl_container_of(link, struct rpc_unary, link);
}

int rpc_unary_token_index(struct rpc_unary *call)
{
    return call->token_index;
}

const struct trust_identity *rpc_unary_identity(struct rpc_unary *call)
{
    return call->identity;
}

static void unary_batch_done(struct rpc_unary *call)
{
    if (--call->batches > 0) {
        return;
    }
    pl_list_remove(&call->link);
    call->server->unary_count--;
    grpc_call_unref(call->call);
    pl_free(call->token);
    pl_free(call->identity);
    pl_free(call);
}

static void unary_ended(struct rpc_tag *tag, bool ok)
{
    (void)ok;
    unary_batch_done(pl_container_of(tag, struct rpc_unary, end_tag));
}

static void unary_answered(struct rpc_tag *tag, bool ok)
{
    (void)ok; /* a client that has gone away needs no answer */
    unary_batch_done(pl_container_of(tag, struct rpc_unary, answer_tag));
}

static void unary_answer(struct rpc_unary *call, grpc_byte_buffer *bytes,
                         plasmon_status_t status, const char *why)
{
    struct rpc_status_storage storage;
    grpc_op ops[3] = {{.op = GRPC_OP_SEND_INITIAL_METADATA},
                      rpc_status_op(&storage, status, why)};
    size_t count   = 2;
    grpc_call_error error;
    bool again = atomic_exchange(&call->answered, true);

    assert(!again);
    (void)again;
    if (bytes != NULL) {
        ops[count].op                               = GRPC_OP_SEND_MESSAGE;
        ops[count++].data.send_message.send_message = bytes;
    }
    error = grpc_call_start_batch(call->call, ops, count, &call->answer_tag, NULL);
    PL_CHECK(error == GRPC_CALL_OK);
    rpc_status_storage_finish(&storage);
}

void rpc_unary_reply(struct rpc_unary *call, uint8_t *buffer, size_t length)
{
    struct rpc_buffer *answer = rpc_buffer_of(buffer);
    grpc_byte_buffer *bytes;

    answer->length = length;
    bytes          = rpc_bytes_of_buffer(answer);
    unary_answer(call, bytes, PLASMON_OK, "");
    grpc_byte_buffer_destroy(bytes);
}

void rpc_unary_fail(struct rpc_unary *call, plasmon_status_t status, const char *why)
{
    assert(status != PLASMON_OK);
    unary_answer(call, NULL, status, why != NULL ? why : "");
}

void rpc_unary_abandon(struct rpc_unary *call)
{
    if (!atomic_load(&call->answered)) {
        unary_answer(call, NULL, PLASMON_ECLOSED, "the server is shutting down");
    }
}

static void unary_dispatch(struct rpc_server_method *method, struct rpc_unary *call,
                           grpc_byte_buffer *payload)
{
    struct pl_err err       = {0};
    plasmon_status_t status = rpc_server_check(method, call->call, call->token,
                                               &call->token_index, &call->identity, &err);
    struct rpc_received received;

    if (status != PLASMON_OK) {
        rpc_unary_fail(call, status, err.text);
        return;
    }
    if (method->server->closing) {
        rpc_unary_fail(call, PLASMON_ECLOSED, "the server is shutting down");
        return;
    }
    if (method->server->unary_count > RPC_UNARIES_MAX && !method->open_to_all) {
        rpc_unary_fail(call, PLASMON_ELIMIT,
                       "too many calls wait for their answer here: try again later");
        return;
    }
    if (payload == NULL || !rpc_received_open(&received, payload)) {
        rpc_unary_fail(call, PLASMON_EMALFORMED, "the call carries no message");
        return;
    }
    method->unary(method->user, call, received.bytes, received.length);
    rpc_received_close(&received);
}

void rpc_server_accept_unary(struct rpc_server_method *method, grpc_call *core,
                             const grpc_metadata_array *metadata, grpc_byte_buffer *payload)
{
    struct rpc_unary *call = PL_NEW(struct rpc_unary);
    grpc_op end            = {.op = GRPC_OP_RECV_CLOSE_ON_SERVER};
    grpc_call_error error;

    if (call == NULL || !rpc_token_of_metadata(metadata, &call->token)) {
        pl_free(call);
        rpc_server_refuse(method->server, core, GRPC_STATUS_RESOURCE_EXHAUSTED,
                          PLASMON_ENOMEM, "the server is out of memory");
        return;
    }

    call->server        = method->server;
    call->call          = core;
    call->end_tag.fn    = unary_ended;
    call->answer_tag.fn = unary_answered;
    call->batches       = 2;
    pl_list_init(&call->link);
    pl_list_add_tail(&method->server->unaries, &call->link);
    method->server->unary_count++;

    end.data.recv_close_on_server.cancelled = &call->cancelled;
    error = grpc_call_start_batch(core, &end, 1, &call->end_tag, NULL);
    PL_CHECK(error == GRPC_CALL_OK);
    unary_dispatch(method, call, payload);
}
