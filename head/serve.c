/*
 * The head as a process: what the core puts out becomes frames, and after every burst of input comes one flush, so that a burst of tasks
 * leaves as one frame a worker and its completions as one frame a client. Acknowledgements ride on those frames; what none of them
 * carried goes out alone.
 */
#include "head/serve.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"

uint64_t serve_now_ms(void)
{
    return pl_now_ns() / 1000000;
}

uint64_t serve_session_new(struct serve *serve)
{
    return serve->epoch ^ ++serve->session_last << 1; /* the epoch is random, and odd */
}

plasmon_status_t serve_session_unknown(const struct serve *serve, uint64_t its_epoch,
                                       const char *whose, struct pl_err *err)
{
    return its_epoch != 0 && its_epoch != serve->epoch
               ? pl_err_set(err, PLASMON_EHEADLOST,
                            "the head was started anew (epoch %016llx, before it was "
                            "%016llx) and does not know %s: what was in the cluster is "
                            "lost; begin again",
                            (unsigned long long)serve->epoch, (unsigned long long)its_epoch,
                            whose)
               : pl_err_set(err, PLASMON_EHEADLOST,
                            "the head has given up %s, which was away for longer than its "
                            "lease: what it had is lost; begin again",
                            whose);
}

/* ------------------------------------------------------------------------------------------ ops of the core */

static void op_client_frame(void *user, uint64_t session, const uint8_t *body,
                            size_t length)
{
    struct serve *serve         = user;
    struct serve_client *client = serve_client_of(serve, session);

    if (client != NULL) {
        serve_peer_send(serve, &client->peer, head_core_client_credit(serve->core, session),
                        body, length, true);
    }
}

static void op_worker_command(void *user, uint32_t device, const uint8_t *body,
                              size_t length)
{
    struct serve *serve         = user;
    struct serve_worker *worker = serve_worker_of(serve, device);

    if (worker != NULL) {
        serve_peer_send(serve, &worker->peer, 0, body, length, true);
    }
}

static void op_fence(void *user, uint32_t device)
{
    serve_node_fence(user, device);
}

static void op_session_ended(void *user, uint64_t session)
{
    struct serve_client *client = serve_client_of(user, session);

    if (client != NULL) {
        client->peer.ended = true;
    }
}

static uint64_t op_random64(void *user)
{
    uint64_t value = 0;

    (void)user;
    PL_CHECK(getrandom(&value, sizeof(value), 0) == (ssize_t)sizeof(value));
    return value;
}

static const struct head_ops head_ops = {
    .client_frame   = op_client_frame,
    .worker_command = op_worker_command,
    .fence          = op_fence,
    .session_ended  = op_session_ended,
    .random64       = op_random64,
};

/* ------------------------------------------------------------------------------------------ idle and ticks */

static bool ack_due(const struct wire_link *link, bool all)
{
    return all ? wire_link_owes_ack(link) : wire_link_owes_many(link);
}

/*
 * Acknowledgements and credit that no frame back has carried. At the end of a burst only what many are owed: one alone would double
 * the messages of a client that waits for each task, and rides on the task's end anyhow. At a tick, all.
 */
static void acks(struct serve *serve, bool all)
{
    const uint64_t credit_step = all ? 1 : SERVE_CREDIT_STEP;

    struct pl_list *pos, *tmp;

    pl_list_for_each_safe(pos, tmp, &serve->clients) {
        struct serve_client *client = pl_container_of(pos, struct serve_client, link);

        if (client->peer.ended) {
            if (client->peer.stream == NULL) {
                serve_client_free(client);
            } else {
                client->peer.ended = false;
                serve_peer_close(&client->peer, PLASMON_OK, "bye");
            }
            continue;
        }
        if (client->peer.stream != NULL && client->peer.session != 0) {
            uint64_t credit = head_core_client_credit(serve->core, client->peer.session);

            /* Tasks that failed early were reported before they ended: their credit comes back with nothing else to say. */
            if (ack_due(&client->peer.link, all) ||
                credit >= client->peer.credit_told + credit_step) {
                serve_peer_send(serve, &client->peer, credit, NULL, 0, false);
            }
        }
    }
    pl_list_for_each(pos, &serve->workers) {
        struct serve_worker *worker = pl_container_of(pos, struct serve_worker, link);

        if (worker->peer.stream != NULL && ack_due(&worker->peer.link, all)) {
            serve_peer_send(serve, &worker->peer, 0, NULL, 0, false);
        }
    }
}

static void flush(struct serve *serve)
{
    uint64_t began = pl_thread_cpu_ns();

    head_core_flush(serve->core);
    serve->core_ns += pl_thread_cpu_ns() - began;
}

static void idle(void *user)
{
    struct serve *serve = user;

    flush(serve);
    acks(serve, false);
}

static void tick(void *user)
{
    struct serve *serve = user;
    uint64_t now_ms     = serve_now_ms();

    head_core_tick(serve->core, now_ms);
    serve_nodes_tick(serve, now_ms);
    serve_workers_tick(serve, now_ms);
    serve_clients_tick(serve, now_ms);
    serve_status_tick(serve, now_ms);
    serve_drain_tick(serve);
    flush(serve);
    acks(serve, true);
}

/* -------------------------------------------------------------------------------------------------- life */

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
};

plasmon_status_t serve_create(struct rpc_loop *loop, const struct serve_config *config,
                              struct serve **out_serve, struct pl_err *err)
{
    struct serve *serve             = PL_NEW(struct serve);
    struct rpc_server_config server = {
        .addresses         = config->addresses,
        .token             = config->token,
        .tls               = config->trust,
        .methods           = methods,
        .method_count      = PL_COUNT(methods),
        .user              = serve,
        .message_bytes_max = WIRE_MESSAGE_BYTES_MAX,
    };
    struct head_config head = {
        .ops      = &head_ops,
        .user     = serve,
        .policy   = config->policy,
        .transfer = config->transfer,
        .window   = config->window,
        .retries  = UINT32_MAX,
    };
    plasmon_status_t status;

    if (serve == NULL) {
        return pl_err_set(err, PLASMON_ENOMEM, "out of host memory");
    }
    serve->config = *config;
    if (serve->config.node_lease_ms == 0) {
        serve->config.node_lease_ms = SERVE_NODE_LEASE_MS;
    }
    serve->loop  = loop;
    serve->epoch = op_random64(NULL) | 1;
    head.epoch   = serve->epoch;
    pl_list_init(&serve->clients);
    pl_list_init(&serve->workers);
    pl_list_init(&serve->nodes);
    pl_list_init(&serve->statuses);

    status = wire_arena_init(&serve->arena, WIRE_ARENA_BYTES_MAX);
    if (status != PLASMON_OK) {
        (void)pl_err_set(err, status, "out of host memory");
        goto err_free;
    }
    status = head_core_create(&head, &serve->core);
    if (status != PLASMON_OK) {
        (void)pl_err_set(err, status, "the head cannot start with policy '%s'",
                         config->policy);
        goto err_finish_arena;
    }
    head_core_tick(serve->core, serve_now_ms());
    status = rpc_server_create(loop, &server, &serve->server, err);
    if (status != PLASMON_OK) {
        goto err_destroy_core;
    }
    rpc_loop_set_tick(loop, SERVE_TICK_MS, tick, serve);
    rpc_loop_set_idle(loop, idle, serve);
    *out_serve = serve;
    return PLASMON_OK;

err_destroy_core:
    head_core_destroy(serve->core);
err_finish_arena:
    wire_arena_finish(&serve->arena);
err_free:
    pl_free(serve);
    return status;
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
    rpc_server_destroy(
        serve->server); /* closes every stream: their peers are freed or left without one */
    while (!pl_list_empty(&serve->statuses)) {
        struct serve_status *status =
            pl_list_first(&serve->statuses, struct serve_status, link);

        pl_list_remove(&status->link);
        pl_free(status);
    }
    head_core_destroy(serve->core);
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
