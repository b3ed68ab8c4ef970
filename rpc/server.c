/*
 * Servers: requests posted in advance, dispatch, and the way down.
 *
 * SLOTS  The core hands out a call only to a request that was posted for its method. Each method
 * has SERVER_SLOTS of them, and a slot is posted again before its call is handled. One more set
 * takes the calls of unknown methods: without it such a call would hang until its client gives up;
 * so it is refused at once.
 *
 * DOWN  shutdown_and_notify stops the listening; our streams end with ECLOSED and a text; after a
 * second what is left is cancelled. When the core, every slot and every call are done, the server
 * can be freed.
 */
#include "rpc/grpc_int.h"

#include <assert.h>
#include <fcntl.h>
#include <grpc/grpc_posix.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/thread.h"

#define SERVER_SLOTS       16u
#define SERVER_PATIENCE_MS 1000u

struct server_slot {
    struct rpc_tag tag;
    struct rpc_server *server;
    struct rpc_server_method *method; /* NULL: unknown methods */
    grpc_call *call;
    grpc_metadata_array metadata;
    grpc_call_details details; /* unknown methods */
    gpr_timespec deadline;
    grpc_byte_buffer *payload; /* unary */
};

/* Who came over a descriptor cannot come again. */
static uint32_t server_idle_ms(const struct rpc_server *server)
{
    return server->by_descriptor ? INT32_MAX : RPC_CONNECTION_IDLE_MS;
}

static grpc_server *server_create_core(const struct rpc_server *server)
{
    struct {
        const char *name;
        int value;
    } const args[] = {
        {"grpc.so_reuseport", 0},
        {"grpc.keepalive_time_ms", 10000},
        {"grpc.keepalive_timeout_ms", 5000},
        {"grpc.keepalive_permit_without_calls", 1},
        {"grpc.http2.max_pings_without_data", 0},
        {"grpc.http2.min_ping_interval_without_data_ms",
         5000}, /* else our own clients' pings are too many */
        {"grpc.server_handshake_timeout_ms", (int)server->handshake_ms},
        {"grpc.max_connection_idle_ms", (int)server_idle_ms(server)},
        {"grpc.enable_channelz", 0},
        {"grpc.max_channel_trace_event_memory_per_node", 0},
        {"grpc.per_message_compression", 0},
        {"grpc.max_concurrent_streams", (int)pl_min_u64(server->streams_max, INT32_MAX)},
        {"grpc.max_receive_message_length",
         (int)pl_min_u64(server->message_bytes_max, INT32_MAX)},
        {"grpc.max_send_message_length", -1},
    };
    grpc_arg list[PL_COUNT(args)];
    grpc_channel_args channel_args = {.num_args = PL_COUNT(list), .args = list};

    for (size_t i = 0; i < PL_COUNT(args); i++) {
        list[i].type          = GRPC_ARG_INTEGER;
        list[i].key           = (char *)(uintptr_t)args[i].name;
        list[i].value.integer = args[i].value;
    }
    return grpc_server_create(&channel_args, NULL);
}

bool rpc_server_token_find(const struct rpc_server *server, const char *token,
                           int *out_index)
{
    bool before =
        server->token_before[0] != '\0' && rpc_token_equal(server->token_before, token);
    bool found =
        server->token[0] != '\0' && (rpc_token_equal(server->token, token) || before);

    *out_index = found ? RPC_TOKEN_CLUSTER : RPC_TOKEN_NONE;
    for (int i = 0; server->tokens != NULL && server->tokens[i] != NULL; i++) {
        if (rpc_token_equal(server->tokens[i], token) && !found) {
            found      = true;
            *out_index = i;
        }
    }
    return found || server->token[0] == '\0';
}

static plasmon_status_t server_check_roles(const struct rpc_server_method *method,
                                           const struct trust_identity *identity,
                                           struct pl_err *err)
{
    char has[TRUST_ROLES_BYTES], wants[TRUST_ROLES_BYTES];

    if (identity == NULL || method->roles == 0 || (identity->roles & method->roles) != 0) {
        return PLASMON_OK;
    }
    return pl_err_set(
        err, PLASMON_EAUTH,
        "the certificate of '%s' (--tls-cert, PLASMON_TLS_CERT) is for %s, and "
        "%s is for %s: `plasmon cert issue DIR NAME --role ..` makes one that is",
        identity->name, trust_roles_text(identity->roles, has), method->path,
        trust_roles_text(method->roles, wants));
}

static plasmon_status_t server_refuse_token(const char *token, struct pl_err *err)
{
    return pl_err_set(
        err, PLASMON_EAUTH,
        token[0] == '\0'
            ? "no token was given, and this cluster wants one: put it into a "
              "file and name that by --token-file or PLASMON_TOKEN_FILE, or "
              "set PLASMON_TOKEN"
            : "the token that was given (--token-file, PLASMON_TOKEN_FILE or "
              "PLASMON_TOKEN) is not one of this cluster: it is another "
              "cluster's, or was changed: ask its operator for the present one");
}

plasmon_status_t rpc_server_check(const struct rpc_server_method *method, grpc_call *call,
                                  const char *token, int *out_token_index,
                                  struct trust_identity **out_identity, struct pl_err *err)
{
    plasmon_status_t status;

    *out_identity    = NULL;
    *out_token_index = RPC_TOKEN_NONE;
    if (method->open_to_all) {
        return PLASMON_OK;
    }
    status = rpc_tls_identity(call, out_identity, err);
    if (status == PLASMON_OK) {
        status = server_check_roles(method, *out_identity, err);
    }
    if (status != PLASMON_OK) {
        return status;
    }
    if (!rpc_server_token_find(method->server, token != NULL ? token : "",
                               out_token_index)) {
        return server_refuse_token(token != NULL ? token : "", err);
    }
    if (method->whole_cluster &&
        (*out_token_index >= 0 ||
         (*out_identity != NULL && (*out_identity)->name_space[0] != '\0'))) {
        return pl_err_set(
            err, PLASMON_EAUTH,
            "%s is for those of the whole cluster, and this token or certificate "
            "is one namespace's: give the cluster's (--token-file, --tls-cert)",
            method->path);
    }
    return PLASMON_OK;
}

/* ----------------------------------------------------------------------------- refusing */

struct server_refusal {
    struct rpc_tag tag;
    grpc_call *call;
};

static void server_refused(struct rpc_tag *tag, bool ok)
{
    struct server_refusal *refusal = pl_container_of(tag, struct server_refusal, tag);

    (void)ok;
    grpc_call_unref(refusal->call);
    pl_free(refusal);
}

void rpc_server_refuse(struct rpc_server *server, grpc_call *call, grpc_status_code code,
                       plasmon_status_t status, const char *why)
{
    struct server_refusal *refusal = PL_NEW(struct server_refusal);
    struct rpc_status_storage storage;
    grpc_op ops[2] = {{.op = GRPC_OP_SEND_INITIAL_METADATA},
                      rpc_status_op(&storage, status, why)};
    grpc_call_error error;

    (void)server;
    if (refusal == NULL) {
        grpc_call_unref(call); /* cancels it */
    } else {
        refusal->tag.fn                            = server_refused;
        refusal->call                              = call;
        ops[1].data.send_status_from_server.status = code;
        error = grpc_call_start_batch(call, ops, 2, &refusal->tag, NULL);
        PL_CHECK(error == GRPC_CALL_OK);
    }
    rpc_status_storage_finish(&storage);
}

/* -------------------------------------------------------------------------------- slots */

static bool slot_post(struct server_slot *slot)
{
    grpc_completion_queue *queue = rpc_loop_queue(slot->server->loop);
    grpc_call_error error;

    slot->call    = NULL;
    slot->payload = NULL;
    grpc_metadata_array_init(&slot->metadata);
    if (slot->method == NULL) {
        grpc_call_details_init(&slot->details);
        error = grpc_server_request_call(slot->server->server, &slot->call, &slot->details,
                                         &slot->metadata, queue, queue, &slot->tag);
    } else {
        error = grpc_server_request_registered_call(
            slot->server->server, slot->method->handle, &slot->call, &slot->deadline,
            &slot->metadata, slot->method->unary != NULL ? &slot->payload : NULL, queue,
            queue, &slot->tag);
    }
    return error == GRPC_CALL_OK;
}

static void slot_free(struct server_slot *slot)
{
    grpc_metadata_array_destroy(&slot->metadata);
    if (slot->method == NULL) {
        grpc_call_details_destroy(&slot->details);
    }
    slot->server->slot_count--;
    pl_free(slot);
}

static void slot_refuse_unknown(struct server_slot *taken)
{
    char *path = rpc_text_of_slice(taken->details.method);
    char why[160];

    (void)snprintf(why, sizeof(why), "there is no method %.100s here",
                   path != NULL ? path : "?");
    rpc_server_refuse(taken->server, taken->call, GRPC_STATUS_UNIMPLEMENTED,
                      PLASMON_ENOTSUP, why);
    pl_free(path);
    grpc_call_details_destroy(&taken->details);
}

static void slot_called(struct rpc_tag *tag, bool ok)
{
    struct server_slot *slot = pl_container_of(tag, struct server_slot, tag);
    /* so that the slot can be posted before its call is handled */
    struct server_slot taken = *slot;

    if (!ok) { /* shutting down */
        slot_free(slot);
        return;
    }
    if (!slot_post(slot)) {
        slot_free(slot);
    }

    if (taken.method == NULL) {
        slot_refuse_unknown(&taken);
    } else if (taken.method->unary != NULL) {
        rpc_server_accept_unary(taken.method, taken.call, &taken.metadata, taken.payload);
        grpc_byte_buffer_destroy(taken.payload);
    } else {
        rpc_server_accept_stream(taken.method, taken.call, &taken.metadata);
    }
    grpc_metadata_array_destroy(&taken.metadata);
}

static plasmon_status_t server_post_slots(struct rpc_server *server,
                                          struct rpc_server_method *method)
{
    for (unsigned i = 0; i < SERVER_SLOTS; i++) {
        struct server_slot *slot = PL_NEW(struct server_slot);

        if (slot == NULL) {
            return PLASMON_ENOMEM;
        }
        slot->tag.fn = slot_called;
        slot->server = server;
        slot->method = method;
        server->slot_count++;
        if (!slot_post(slot)) {
            slot_free(slot);
            return PLASMON_EINTERNAL;
        }
    }
    return PLASMON_OK;
}

/* ------------------------------------------------------------------------------- way up */

static plasmon_status_t server_set_methods(struct rpc_server *server,
                                           const struct rpc_server_config *config)
{
    server->methods =
        PL_NEW_N(struct rpc_server_method, config->method_count + RPC_HEALTH_METHODS);
    if (server->methods == NULL) {
        return PLASMON_ENOMEM;
    }

    for (size_t i = 0; i < config->method_count; i++) {
        struct rpc_server_method *method = &server->methods[i];

        assert((config->methods[i].accept == NULL) != (config->methods[i].unary == NULL));
        *method = (struct rpc_server_method){
            .server        = server,
            .path_copy     = pl_strdup(config->methods[i].path),
            .accept        = config->methods[i].accept,
            .unary         = config->methods[i].unary,
            .user          = config->user,
            .roles         = config->methods[i].roles,
            .whole_cluster = config->methods[i].whole_cluster,
        };
        if (method->path_copy == NULL) {
            return PLASMON_ENOMEM;
        }
        method->path = method->path_copy;
        server->method_count++;
    }
    rpc_health_methods(server->methods + server->method_count, server);
    server->method_count += RPC_HEALTH_METHODS;
    return PLASMON_OK;
}

static plasmon_status_t server_register(struct rpc_server *server, struct pl_err *err)
{
    grpc_server_register_completion_queue(server->server, rpc_loop_queue(server->loop),
                                          NULL);
    for (size_t i = 0; i < server->method_count; i++) {
        struct rpc_server_method *method = &server->methods[i];

        method->handle = grpc_server_register_method(
            server->server, method->path, NULL,
            method->unary != NULL ? GRPC_SRM_PAYLOAD_READ_INITIAL_BYTE_BUFFER
                                  : GRPC_SRM_PAYLOAD_NONE,
            0);
        if (method->handle == NULL) {
            return pl_err_set(err, PLASMON_EINVAL, "method %s is there twice",
                              method->path);
        }
    }
    return PLASMON_OK;
}

static plasmon_status_t server_listen(struct rpc_server *server,
                                      const char *const *addresses, struct pl_err *err)
{
    size_t count = 0;

    while (addresses != NULL && addresses[count] != NULL) {
        count++;
    }
    server->addresses = PL_NEW_N(struct rpc_address, count + 1);
    if (server->addresses == NULL) {
        return pl_err_set(err, PLASMON_ENOMEM, "out of host memory");
    }
    while (server->address_count < count) {
        size_t i = server->address_count++;
        plasmon_status_t status =
            rpc_address_listen(&server->addresses[i], server, addresses[i], err);

        if (status != PLASMON_OK) {
            return status;
        }
    }
    return PLASMON_OK;
}

static void server_shut_down(struct rpc_tag *tag, bool ok)
{
    struct rpc_server *server = pl_container_of(tag, struct rpc_server, shutdown_tag);

    (void)ok;
    server->shut_down = true;
}

static void server_impatient(struct rpc_timer *timer)
{
    struct rpc_server *server = pl_container_of(timer, struct rpc_server, patience);

    server->impatient = true;
    grpc_server_cancel_all_calls(server->server);
}

/* Strangers are to cost little: before anybody can come. */
static plasmon_status_t server_receive(struct rpc_server *server, struct pl_err *err)
{
    unsigned connections = rpc_accept_guard();
    plasmon_status_t status;

    if (server->by_descriptor) {
        return PLASMON_OK;
    }
    status = rpc_room_open(server->handshake_ms,
                           (unsigned)pl_min_u64(connections / 4 + 1, RPC_STRANGERS_MAX));
    if (status != PLASMON_OK) {
        return pl_err_set(err, status, "for those who do not say who they are: %s",
                          status == PLASMON_EAGAIN ? PL_THREAD_NONE_LEFT
                                                   : pl_status_text(status));
    }
    server->receives = true;
    return PLASMON_OK;
}

plasmon_status_t rpc_server_create(struct rpc_loop *loop,
                                   const struct rpc_server_config *config,
                                   struct rpc_server **out_server, struct pl_err *err)
{
    struct rpc_server *server = PL_NEW(struct rpc_server);
    plasmon_status_t status   = PLASMON_ENOMEM;

    if (server == NULL) {
        return pl_err_set(err, PLASMON_ENOMEM, "out of host memory");
    }

    server->loop              = loop;
    server->tokens            = config->tokens;
    server->tls               = config->tls;
    server->message_bytes_max = config->message_bytes_max != 0 ? config->message_bytes_max
                                                               : RPC_MESSAGE_BYTES_DEFAULT;
    server->streams_max =
        config->streams_max != 0 ? config->streams_max : RPC_STREAMS_DEFAULT;
    server->handshake_ms =
        config->handshake_ms != 0 ? config->handshake_ms : RPC_HANDSHAKE_MS;
    server->by_descriptor   = config->addresses == NULL || config->addresses[0] == NULL;
    server->shutdown_tag.fn = server_shut_down;
    rpc_timer_init(&server->patience, server_impatient);
    pl_list_init(&server->streams);
    pl_list_init(&server->unaries);
    server->token = pl_strdup(config->token != NULL ? config->token : "");
    server->token_before =
        pl_strdup(config->token_before != NULL ? config->token_before : "");
    if (server->token == NULL || server->token_before == NULL ||
        server_set_methods(server, config) != PLASMON_OK) {
        status = pl_err_set(err, PLASMON_ENOMEM, "out of host memory");
        goto err_destroy;
    }

    status = server_receive(server, err);
    if (status != PLASMON_OK) {
        goto err_destroy;
    }
    server->server = server_create_core(server);
    status         = server_register(server, err);
    if (status != PLASMON_OK) {
        goto err_destroy;
    }
    status = server_listen(server, config->addresses, err);
    if (status != PLASMON_OK) {
        goto err_destroy;
    }

    grpc_server_start(server->server);
    for (size_t i = 0; i <= server->method_count; i++) {
        status = server_post_slots(server,
                                   i < server->method_count ? &server->methods[i] : NULL);
        if (status != PLASMON_OK) {
            (void)pl_err_set(err, status, "cannot post requests");
            goto err_destroy;
        }
    }
    *out_server = server;
    return PLASMON_OK;

err_destroy:
    rpc_server_destroy(server);
    return status;
}

int rpc_server_port(const struct rpc_server *server, size_t index)
{
    return index < server->address_count ? server->addresses[index].port : 0;
}

plasmon_status_t rpc_server_add_fd(struct rpc_server *server, int fd)
{
    grpc_server_credentials *insecure;
    int flags = fcntl(fd, F_GETFL);

    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0 ||
        fcntl(fd, F_SETFD, FD_CLOEXEC) != 0) {
        pl_fd_close(&fd);
        return PLASMON_EINVAL;
    }
    insecure = grpc_insecure_server_credentials_create();
    grpc_server_add_channel_from_fd(server->server, fd, insecure);
    grpc_server_credentials_release(insecure);
    return PLASMON_OK;
}

/* ----------------------------------------------------------------------------- way down */

static bool server_done(void *user)
{
    struct rpc_server *server = user;

    return server->shut_down && server->slot_count == 0 &&
           pl_list_empty(&server->streams) && pl_list_empty(&server->unaries);
}

static void server_end_calls(struct rpc_server *server)
{
    struct pl_list *pos, *next;

    pl_list_for_each_safe(pos, next, &server->streams) {
        struct rpc_stream_grpc *stream = pl_container_of(pos, struct rpc_stream_grpc, link);

        rpc_stream_close(&stream->base, PLASMON_ECLOSED, "the server is shutting down");
    }
    pl_list_for_each_safe(pos, next, &server->unaries) {
        rpc_unary_abandon(rpc_unary_of_link(pos));
    }
}

void rpc_server_destroy(struct rpc_server *server)
{
    if (server == NULL) {
        return;
    }

    if (server->server != NULL) {
        server->closing = true;
        grpc_server_shutdown_and_notify(server->server, rpc_loop_queue(server->loop),
                                        &server->shutdown_tag);
        server_end_calls(server);
        rpc_timer_arm(server->loop, &server->patience, SERVER_PATIENCE_MS);
        rpc_loop_drive(server->loop, server_done, server);
        rpc_timer_disarm(server->loop, &server->patience);
        grpc_server_destroy(server->server);
    }
    if (server->receives) {
        rpc_room_close();
    }
    for (size_t i = 0; i < server->address_count; i++) {
        rpc_address_finish(&server->addresses[i]);
    }
    for (size_t i = 0; i < server->method_count; i++) {
        pl_free(server->methods[i].path_copy);
    }
    pl_free(server->addresses);
    pl_free(server->methods);
    pl_free(server->token);
    pl_free(server->token_before);
    pl_free(server);
}
