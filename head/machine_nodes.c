/*
 * Stores, and leases.
 *
 * A HOST HAS ONE STORE, the memory of its devices. It is known by host and by a number that was
 * drawn when that memory was made (store/host.h), so by something that lives exactly as long as
 * what it stands for: through broken connections, welcomes that were lost, and the death of the
 * process that had it, if another one took it over. Its session outlives its connection:
 *
 *   hello -> connected -> (broken -> hello with that memory -> connected ...) -> given up
 *
 * It is given up when it stays away for longer than the lease, or when a store with another memory
 * says hello for the host meanwhile: its devices are gone then, with what lay there, and a store
 * that comes later joins as a fresh one. A second store beside a connected one is refused, and so
 * is a worker that has another memory than the one registered: it is left over from a store that is
 * gone, or its own store has not said hello yet, for which it waits (serve_workers.c).
 */
#include <stdio.h>
#include <string.h>

#include "head/machine_int.h"

static struct head_machine_node *node_of(const struct head_machine *machine,
                                         const char *host)
{
    struct pl_list *pos;

    pl_list_for_each(pos, &machine->nodes) {
        struct head_machine_node *node =
            pl_container_of(pos, struct head_machine_node, link);

        if (strcmp(node->host, host) == 0) {
            return node;
        }
    }
    return NULL;
}

bool head_machine_host_known(const struct head_machine *machine, const char *host)
{
    return node_of(machine, host) != NULL;
}

bool head_machine_memory_known(const struct head_machine *machine, const char *host,
                               uint64_t memory)
{
    const struct head_machine_node *node = node_of(machine, host);

    return node != NULL && node->memory == memory;
}

const char *head_machine_store_socket(const struct head_machine *machine, const char *host)
{
    const struct head_machine_node *node = node_of(machine, host);

    return node != NULL ? node->store_socket : "";
}

uint64_t head_machine_node_session(const struct head_machine *machine, const char *host)
{
    const struct head_machine_node *node = node_of(machine, host);

    return node != NULL ? node->session : 0;
}

bool head_machine_node_leaving(const struct head_machine *machine, const char *host)
{
    const struct head_machine_node *node = node_of(machine, host);

    return node != NULL && node->leaving;
}

uint64_t head_machine_node_silent_ms(const struct head_machine_node *node,
                                     const struct head_asked *asked)
{
    if (!node->connected || node->answered >= asked->request) {
        return 0;
    }
    return pl_max_u64(asked->now_ms - pl_min_u64(asked->now_ms, node->heard_ms), 1);
}

bool head_machine_node_heard(struct head_machine *machine, const char *host,
                             uint64_t answered, uint64_t now_ms)
{
    struct head_machine_node *node = node_of(machine, host);
    bool first                     = node != NULL && answered > node->answered;

    if (node != NULL) {
        node->answered = pl_max_u64(node->answered, answered);
        node->heard_ms = now_ms;
    }
    return first;
}

static void node_free(struct head_machine_node *node)
{
    pl_list_remove(&node->link);
    pl_free(node->host);
    pl_free(node->name);
    pl_free(node->store_socket);
    pl_free(node);
}

/* ---------------------------------------------------------------------- nodes that left */

static void gone_free(struct head_machine_gone *gone)
{
    pl_list_remove(&gone->link);
    pl_free(gone->host);
    pl_free(gone->name);
    pl_free(gone->why);
    pl_free(gone);
}

void head_machine_gone_add(struct head_machine *machine, struct head_machine_gone *gone)
{
    pl_list_init(&gone->link);
    pl_list_add_tail(&machine->gone, &gone->link);
}

/*
 * Another store of that host is one that came back, to people. NULL: those alone that left too long
 * ago, or are too many.
 */
static void gone_forget(struct head_machine *machine, const char *host)
{
    struct pl_list *pos, *tmp;
    uint32_t count = 0;

    pl_list_for_each_safe(pos, tmp, &machine->gone) {
        struct head_machine_gone *gone =
            pl_container_of(pos, struct head_machine_gone, link);

        if (++count > HEAD_MACHINE_GONE_MAX ||
            machine->now_ms - pl_min_u64(machine->now_ms, gone->gone_ms) >=
                HEAD_MACHINE_GONE_MS ||
            (host != NULL && strcmp(gone->host, host) == 0)) {
            gone_free(gone);
        }
    }
}

static void gone_remember(struct head_machine *machine,
                          const struct head_machine_node *node, const char *why)
{
    struct head_machine_gone *gone = head_alloc(sizeof(*gone));
    Plasmon__V1__NodeRow row       = PLASMON__V1__NODE_ROW__INIT;

    head_core_list_node(machine->core, node->host, &row);
    gone->host    = head_strdup(node->host);
    gone->name    = head_strdup(node->name);
    gone->why     = head_strdup(why);
    gone->devices = row.devices - row.devices_gone;
    gone->gone_ms = machine->now_ms;
    pl_list_init(&gone->link);
    pl_list_add_head(&machine->gone, &gone->link);
    gone_forget(machine, NULL);
}

/* ---------------------------------------------------------------------------- giving up */

/* It will not come back: neither do its devices, nor their workers. */
static void node_give_up(struct head_machine *machine, struct head_machine_node *node,
                         const char *why)
{
    struct pl_list *pos, *tmp;
    char text[512];

    (void)snprintf(text, sizeof(text), "node %.200s left the cluster: %.200s", node->name,
                   why);
    pl_warn("head", "%s", text);
    gone_remember(machine, node, why);
    pl_list_for_each_safe(pos, tmp, &machine->workers) {
        struct head_machine_worker *worker =
            pl_container_of(pos, struct head_machine_worker, link);

        if (strcmp(worker->host, node->host) == 0) {
            head_machine_worker_forget(machine, worker, text);
        }
    }
    head_core_node_gone(machine->core, node->host, text);
    machine->config.ops->node_gone(machine->config.user, node->host, text);
    node_free(node);
}

/* -------------------------------------------------------------------------------- hello */

static struct head_machine_node *node_create(struct head_machine *machine,
                                             const Plasmon__V1__NodeHello *hello)
{
    struct head_machine_node *node = head_alloc(sizeof(*node));

    gone_forget(machine, hello->host);
    node->host         = head_strdup(hello->host);
    node->name         = head_strdup(hello->node);
    node->store_socket = head_strdup(hello->store_socket);
    node->memory       = hello->memory;
    node->session      = head_machine_session_new(machine);
    pl_list_init(&node->link);
    pl_list_add_tail(&machine->nodes, &node->link);
    pl_info("head", "node %s brings %u devices", node->name, hello->devices);
    return node;
}

plasmon_status_t head_machine_node_up(struct head_machine *machine,
                                      struct head_string bytes, struct head_outcome *out,
                                      struct pl_err *err)
{
    const Plasmon__V1__NodeHello *hello;
    struct head_machine_node *node;
    Plasmon__V1__NodeFrame *frame;
    plasmon_status_t status;

    wire_arena_reset(&machine->arena);
    status =
        wire_decode_node_frame(&machine->arena, bytes.bytes, bytes.length, &frame, err);
    if (status == PLASMON_OK && frame->hello == NULL) {
        status = pl_err_set(err, PLASMON_EMALFORMED,
                            "the first frame of a store must carry a hello");
    }
    if (status != PLASMON_OK) {
        return status;
    }
    hello = frame->hello;
    node  = node_of(machine, hello->host);
    /* The same store, or one that took over what a dead one of this host kept. */
    out->resumed = node != NULL && hello->memory == node->memory;
    if (node != NULL && !out->resumed &&
        strcmp(node->store_socket, hello->store_socket) != 0 && node->connected) {
        return pl_err_set(
            err, PLASMON_EEXIST,
            "this host has a store in this cluster already: node %.100s, socket "
            "%.200s; the one with socket %.200s must not join beside it. End the "
            "first with `plasmon stop`, or start this one in a cluster of its own "
            "(another --head)",
            node->name, node->store_socket, hello->store_socket);
    }
    if (node != NULL && !out->resumed) {
        node_give_up(machine, node, "another store of its host took its place");
        node = NULL;
    }
    if (node == NULL) {
        node = node_create(machine, hello);
    } else {
        pl_info("head", "node %s is back", node->name);
        pl_free(node->store_socket);
        node->store_socket = head_strdup(hello->store_socket);
    }
    node->connected = true;
    out->session    = node->session;
    return head_core_node_up(machine->core, hello->host, hello->node, hello->devices,
                             out->resumed, err);
}

plasmon_status_t head_machine_node_change(struct head_machine *machine,
                                          const struct head_input *input,
                                          struct pl_err *err)
{
    char *host                     = head_string_copy(input->strings[0]);
    struct head_machine_node *node = node_of(machine, host);
    plasmon_status_t status        = PLASMON_OK;

    if (node == NULL) {
        status = pl_err_set(err, PLASMON_EHEADLOST, "the store is not known");
    } else if (input->type == HEAD_INPUT_NODE_LOST) {
        machine->now_ms = pl_max_u64(machine->now_ms, input->numbers[0]);
        node->connected = false;
        node->lost_ms   = machine->now_ms;
    } else {
        node->leaving = true;
        status        = head_core_drain(machine->core, host, input->numbers[0], err);
    }
    pl_free(host);
    return status;
}

/* --------------------------------------------------------------------------------- time */

/*
 * Nothing is lost with it, or it has said that it leaves and there is nothing to wait for. Else a
 * store whose connection breaks while it is drained comes back like any other.
 */
static bool may_go(const struct head_machine *machine, const struct head_machine_node *node)
{
    struct head_drain_report report;
    struct pl_err err = {.status = PLASMON_OK};

    return head_core_drain_report(machine->core, node->host, &report, &err) == PLASMON_OK &&
           (report.done || (node->leaving && report.over));
}

void head_machine_nodes_tick(struct head_machine *machine)
{
    struct pl_list *pos, *tmp;

    pl_list_for_each_safe(pos, tmp, &machine->nodes) {
        struct head_machine_node *node =
            pl_container_of(pos, struct head_machine_node, link);
        char why[96];

        if (node->connected) {
            continue;
        }
        if (may_go(machine, node)) {
            node_give_up(machine, node, "its store was ended");
        } else if (machine->now_ms >= node->lost_ms + machine->settings.node_lease_ms) {
            (void)snprintf(why, sizeof(why), "its store did not come back within %llu ms",
                           (unsigned long long)machine->settings.node_lease_ms);
            node_give_up(machine, node, why);
        }
    }
    gone_forget(machine, NULL);
}

void head_machine_restarted(struct head_machine *machine, uint64_t now_ms,
                            uint64_t grace_ms)
{
    struct pl_list *pos;

    machine->now_ms = pl_max_u64(machine->now_ms, now_ms);
    head_core_restarted(machine->core, machine->now_ms);
    pl_list_for_each(pos, &machine->clients) {
        struct head_machine_client *client =
            pl_container_of(pos, struct head_machine_client, link);

        client->peer.connected = false;
        head_core_client_lost(machine->core, client->peer.session,
                              machine->now_ms + grace_ms);
    }
    pl_list_for_each(pos, &machine->workers) {
        struct head_machine_worker *worker =
            pl_container_of(pos, struct head_machine_worker, link);

        worker->peer.connected = false;
        head_core_worker_lost(machine->core, worker->device);
    }
    pl_list_for_each(pos, &machine->nodes) {
        struct head_machine_node *node =
            pl_container_of(pos, struct head_machine_node, link);

        node->connected = false;
        node->lost_ms   = machine->now_ms + grace_ms;
    }
}

void head_machine_nodes_finish(struct head_machine *machine)
{
    while (!pl_list_empty(&machine->nodes)) {
        node_free(pl_list_first(&machine->nodes, struct head_machine_node, link));
    }
    while (!pl_list_empty(&machine->gone)) {
        gone_free(pl_list_first(&machine->gone, struct head_machine_gone, link));
    }
}
