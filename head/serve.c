/*
 * The head as a process: what comes in becomes inputs of the machine, and after every burst of
 * input comes one flush, so that a burst of tasks leaves as one frame a worker and its completions
 * as one frame a client. Acknowledgements ride on those frames; what none of them carried goes out
 * alone. Then the burst goes to the journal, if there is one.
 */
#include "head/serve.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/linger.h"
#include "base/log.h"

uint64_t serve_now_ms(const struct serve *serve)
{
    return pl_now_ns() / 1000000 + serve->time_offset_ms;
}

plasmon_status_t serve_input(struct serve *serve, const struct head_input *input,
                             struct head_outcome *out, struct pl_err *err)
{
    return head_machine_input(serve->machine, input, out, err);
}

plasmon_status_t serve_confined(const struct serve *serve, int token_index,
                                const struct trust_identity *identity, const char **out,
                                struct pl_err *err)
{
    const char *by_token =
        token_index >= 0 ? head_namespaces_token_name(serve->config.namespaces, token_index)
                         : NULL;
    const char *by_certificate =
        identity != NULL && identity->name_space[0] != '\0' ? identity->name_space : NULL;

    if (by_token != NULL && by_certificate != NULL &&
        strcmp(by_token, by_certificate) != 0) {
        return pl_err_set(err, PLASMON_EAUTH,
                          "the token is of namespace '%s' and the certificate of '%s': use "
                          "two that belong "
                          "together",
                          by_token, by_certificate);
    }
    *out = by_token != NULL ? by_token : by_certificate;
    return PLASMON_OK;
}

void serve_hello_keep(struct serve *serve, struct serve_hello *hello, const uint8_t *bytes,
                      size_t length)
{
    hello->bytes = pl_alloc(length);
    PL_CHECK(hello->bytes != NULL);
    memcpy(hello->bytes, bytes, length);
    hello->length   = length;
    hello->since_ms = serve_now_ms(serve);
}

bool serve_hello_late(const struct serve *serve, uint64_t since_ms, uint64_t now_ms,
                      struct pl_err *err)
{
    uint32_t most_ms =
        serve->config.hello_wait_ms != 0 ? serve->config.hello_wait_ms : SERVE_HELLO_MS;

    if (now_ms - since_ms < most_ms) {
        return false;
    }
    (void)pl_err_set(err, PLASMON_ETIMEDOUT,
                     "no hello came within %u ms: a stream begins with one (--hello-wait)",
                     most_ms);
    return true;
}

/* ------------------------------------------------------------------- ops of the machine */

static void op_client_send(void *user, uint64_t session, const uint8_t *bytes,
                           size_t length)
{
    struct serve_client *client = serve_client_of(user, session);

    if (client != NULL) {
        serve_send_copy(user, client->stream, bytes, length);
    }
}

static void op_worker_send(void *user, uint32_t device, const uint8_t *bytes, size_t length)
{
    struct serve_worker *worker = serve_worker_of(user, device);

    if (worker != NULL) {
        serve_send_copy(user, worker->stream, bytes, length);
    }
}

static void op_fence(void *user, const char *host, uint32_t host_device,
                     uint32_t incarnation)
{
    serve_node_fence(user, host, host_device, incarnation);
}

static void op_session_ended(void *user, uint64_t session)
{
    struct serve_client *client = serve_client_of(user, session);

    if (client != NULL) {
        client->ended = true;
    }
}

static void op_worker_gone(void *user, uint32_t device, const char *why)
{
    serve_worker_drop(user, device, why);
}

static void op_node_gone(void *user, const char *host, const char *why)
{
    serve_node_drop(user, host, why);
}

static uint64_t op_random64(void *user)
{
    uint64_t value = 0;

    (void)user;
    PL_CHECK(getrandom(&value, sizeof(value), 0) == (ssize_t)sizeof(value));
    return value;
}

static uint64_t op_cpu_ns(void *user)
{
    (void)user;
    return pl_thread_cpu_ns();
}

static uint64_t op_now_ns(void *user)
{
    (void)user;
    return pl_now_ns();
}

static void op_spill(void *user, const char *host, const struct head_spill_op *op)
{
    serve_node_spill(user, host, op);
}

static const struct head_machine_ops machine_ops = {
    .client_send   = op_client_send,
    .worker_send   = op_worker_send,
    .fence         = op_fence,
    .session_ended = op_session_ended,
    .worker_gone   = op_worker_gone,
    .node_gone     = op_node_gone,
    .spill         = op_spill,
    .random64      = op_random64,
    .cpu_ns        = op_cpu_ns,
    .now_ns        = op_now_ns,
};

/* ----------------------------------------------------------------------- idle and ticks */

static void idle(void *user)
{
    struct serve *serve = user;

    /*
     * At the end of a burst only the acknowledgements that many frames are owed: one alone would
     * double the messages of a client that waits for each task, and rides on the task's end anyhow.
     * At a tick, all.
     */
    head_machine_flush(serve->machine);
    head_machine_acks(serve->machine, false, SERVE_CREDIT_STEP);
    serve_clients_end(serve);
    serve_gate_commit(serve);
    serve_holders_step(serve);
}

static bool many(void *user)
{
    const struct serve *serve = user;

    return head_core_under_way(serve->core, PL_LINGER_MANY);
}

/* While nothing is under way, time is told once a second: a journal grows by each record. */
static bool tick_due(const struct serve *serve, uint64_t now_ms)
{
    return serve->config.journal == NULL || !head_core_idle(serve->core) ||
           now_ms - serve->ticked_ms >= SERVE_TICK_IDLE_MS;
}

static void tick(void *user)
{
    struct serve *serve = user;
    uint64_t now_ms     = serve_now_ms(serve);

    if (tick_due(serve, now_ms)) {
        serve->ticked_ms = now_ms;
        head_machine_tick(serve->machine, now_ms);
    }
    serve_workers_tick(serve, now_ms);
    serve_clients_tick(serve, now_ms);
    serve_nodes_tick(serve, now_ms);
    serve_status_tick(serve, now_ms);
    serve_drain_tick(serve);
    head_machine_flush(serve->machine);
    head_machine_acks(serve->machine, true, 1);
    serve_clients_end(serve);
    serve_gate_commit(serve);
}

/* --------------------------------------------------------------------------------- life */

/* Who may call what: docs/security.md has it as a table. */
#define ANYBODY (TRUST_ROLE_HEAD | TRUST_ROLE_HOST | TRUST_ROLE_CLIENT)
#define HOSTS   (TRUST_ROLE_HEAD | TRUST_ROLE_HOST)
static const struct rpc_method methods[] = {
    {.path   = "/plasmon.v1.Plasmon/Session",
     .accept = serve_client_accept,
     .roles  = ANYBODY},
    {.path          = "/plasmon.v1.Plasmon/Work",
     .accept        = serve_worker_accept,
     .roles         = HOSTS,
     .whole_cluster = true},
    {.path          = "/plasmon.v1.Plasmon/Node",
     .accept        = serve_node_accept,
     .roles         = HOSTS,
     .whole_cluster = true},
    {.path = "/plasmon.v1.Plasmon/Status", .unary = serve_status_call, .roles = ANYBODY},
    {.path          = "/plasmon.v1.Plasmon/Drain",
     .unary         = serve_drain_call,
     .roles         = HOSTS,
     .whole_cluster = true},
    {.path  = "/plasmon.v1.Plasmon/Functions",
     .unary = serve_functions_call,
     .roles = ANYBODY},
    {.path = "/plasmon.v1.Plasmon/List", .unary = serve_list_call, .roles = ANYBODY},
};

/*
 * The head of a private cluster serves one process, and ends with it, which its store sees to: a
 * client that is away is stopped, by a shell or at a breakpoint, and comes back.
 */
#define LEASE_OF_OWN_CLIENT_MS (UINT64_C(1) << 62)

void serve_settings(const struct serve *serve, struct head_settings *out)
{
    *out = (struct head_settings){
        .epoch         = op_random64(NULL) | 1,
        .transfer      = serve->config.transfer,
        .window        = serve->config.window,
        .retries       = UINT32_MAX,
        .lease_ms      = serve->config.embedded ? LEASE_OF_OWN_CLIENT_MS : 0,
        .lineage_bytes = serve->config.lineage_bytes,
        .shadow_bytes  = serve->config.shadow_bytes,
        .nccl_bytes    = serve->config.nccl_bytes,
        .reach_wait_ms = serve->config.reach_wait_ms,
        .node_lease_ms = serve->config.node_lease_ms != 0 ? serve->config.node_lease_ms
                                                          : SERVE_NODE_LEASE_MS,
        .policy        = serve->config.policy,
    };
}

plasmon_status_t serve_create(struct rpc_loop *loop, const struct serve_config *config,
                              struct serve **out_serve, struct pl_err *err)
{
    struct serve *serve             = PL_NEW(struct serve);
    struct rpc_server_config server = {
        .addresses         = config->addresses,
        .token             = config->token,
        .token_before      = config->token_before,
        .tls               = config->trust,
        .tokens            = config->namespaces != NULL ? config->namespaces->tokens : NULL,
        .methods           = methods,
        .method_count      = PL_COUNT(methods),
        .user              = serve,
        .message_bytes_max = WIRE_MESSAGE_BYTES_MAX,
        .handshake_ms      = config->hello_wait_ms,
    };
    plasmon_status_t status;

    if (serve == NULL) {
        return pl_err_set(err, PLASMON_ENOMEM, "out of host memory");
    }
    serve->config = *config;
    serve->loop   = loop;
    pl_list_init(&serve->clients);
    pl_list_init(&serve->workers);
    pl_list_init(&serve->nodes);
    pl_list_init(&serve->statuses);
    serve_gate_init(serve);

    status = wire_arena_init(&serve->arena, WIRE_ARENA_BYTES_MAX);
    if (status != PLASMON_OK) {
        (void)pl_err_set(err, status, "out of host memory");
        goto err_free;
    }
    status = rpc_server_create(loop, &server, &serve->server, err);
    if (status != PLASMON_OK) {
        goto err_finish_arena;
    }
    *out_serve = serve;
    return PLASMON_OK;

err_finish_arena:
    wire_arena_finish(&serve->arena);
err_free:
    pl_free(serve);
    return status;
}

int serve_port(const struct serve *serve, size_t index)
{
    return rpc_server_port(serve->server, index);
}

plasmon_status_t serve_begin(struct serve *serve, struct head_journal *journal,
                             struct pl_err *err)
{
    struct head_machine_config machine = {
        .ops                   = &machine_ops,
        .user                  = serve,
        .record                = journal != NULL,
        .kept_bytes_max        = SERVE_KEPT_BYTES_MAX,
        .client_kept_bytes_max = SERVE_CLIENT_KEPT_BYTES_MAX,
    };
    plasmon_status_t status;

    serve->config.journal = journal;
    status                = serve_recover(serve, &machine, err);
    if (status != PLASMON_OK) {
        return status;
    }
    serve->core = head_machine_core(serve->machine);
    rpc_loop_set_tick(serve->loop, SERVE_TICK_MS, tick, serve);
    rpc_loop_set_idle(serve->loop, idle, serve);
    rpc_loop_set_many(serve->loop, many, serve);
    return PLASMON_OK;
}

plasmon_status_t serve_add_fd(struct serve *serve, int fd)
{
    return rpc_server_add_fd(serve->server, fd);
}

void serve_destroy(struct serve *serve)
{
    if (serve == NULL) {
        return;
    }
    if (serve->config.journal == NULL) {
        serve_clients_dismiss(serve);
    }
    rpc_server_destroy(serve->server); /* closes every stream, which frees who was there */
    serve_gate_finish(serve);
    while (!pl_list_empty(&serve->statuses)) {
        struct serve_status *status =
            pl_list_first(&serve->statuses, struct serve_status, link);

        pl_list_remove(&status->link);
        serve_status_free(status);
    }
    head_holders_destroy(serve->holders);
    head_machine_destroy(serve->machine);
    while (!pl_list_empty(&serve->clients)) {
        serve_client_free(pl_list_first(&serve->clients, struct serve_client, link));
    }
    while (!pl_list_empty(&serve->workers)) {
        serve_worker_free(pl_list_first(&serve->workers, struct serve_worker, link));
    }
    while (!pl_list_empty(&serve->nodes)) {
        serve_node_free(pl_list_first(&serve->nodes, struct serve_node, link));
    }
    wire_arena_finish(&serve->arena);
    pl_free(serve);
}
