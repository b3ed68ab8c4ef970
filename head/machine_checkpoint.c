/*
 * The whole machine as bytes: settings, links with what is kept in them, stores, and the core (checkpoint.h).
 *
 *   "PC", version, 0, length, CRC-32C, then: settings; counters; clients; workers; stores; core
 */
#include <string.h>

#include "head/checkpoint.h"
#include "head/machine_int.h"

enum { SETTINGS = 12 };

/* ------------------------------------------------------------------------------- saving */

static void save_one(void *user, const uint8_t *bytes, size_t length)
{
    head_save_bytes(user, bytes, length);
}

static void save_peer(struct head_bytes *out, const struct head_peer *peer)
{
    const struct wire_link *link = &peer->link;

    head_bytes_varint(out, peer->session);
    head_bytes_varint(out, peer->connected);
    head_bytes_varint(out, link->in_seq);
    head_bytes_varint(out, link->out_acked);
    head_bytes_varint(out, link->out_seq - link->out_acked); /* so many are kept */
    wire_link_resend(link, link->out_acked, save_one, out);
}

static void save_settings(const struct head_machine *machine, struct head_bytes *out)
{
    const struct head_settings *settings = &machine->settings;
    const uint64_t numbers[SETTINGS]     = {
            settings->epoch,        settings->transfer,      settings->window,
            settings->retries,      settings->credit,        settings->lease_ms,
            settings->chain_bytes,  settings->node_lease_ms, settings->lineage_bytes,
            settings->shadow_bytes, settings->nccl_bytes,    settings->reach_wait_ms};

    for (size_t i = 0; i < SETTINGS; i++) {
        head_bytes_varint(out, numbers[i]);
    }
    head_save_text(out, settings->policy);
    head_bytes_varint(out, machine->now_ms);
    head_bytes_varint(out, machine->session_last);
    head_bytes_varint(out, machine->digest);
}

static uint64_t list_count(const struct pl_list *list)
{
    const struct pl_list *pos;
    uint64_t count = 0;

    pl_list_for_each(pos, list) {
        count++;
    }
    return count;
}

static void save_peers(const struct head_machine *machine, struct head_bytes *out)
{
    const struct pl_list *pos;

    head_bytes_varint(out, list_count(&machine->clients));
    pl_list_for_each(pos, &machine->clients) {
        save_peer(out, &pl_container_of(pos, struct head_machine_client, link)->peer);
    }
    head_bytes_varint(out, list_count(&machine->workers));
    pl_list_for_each(pos, &machine->workers) {
        const struct head_machine_worker *worker =
            pl_container_of(pos, struct head_machine_worker, link);

        head_bytes_varint(out, worker->device);
        head_bytes_varint(out, worker->host_device);
        head_bytes_varint(out, worker->incarnation);
        head_save_text(out, worker->host);
        save_peer(out, &worker->peer);
    }
    head_bytes_varint(out, list_count(&machine->nodes));
    pl_list_for_each(pos, &machine->nodes) {
        const struct head_machine_node *node =
            pl_container_of(pos, struct head_machine_node, link);

        head_save_text(out, node->host);
        head_save_text(out, node->name);
        head_save_text(out, node->store_socket);
        head_bytes_varint(out, node->memory);
        head_bytes_varint(out, node->session);
        head_bytes_varint(out, (uint64_t)node->connected | (uint64_t)node->leaving << 1);
        head_bytes_varint(out, node->lost_ms);
    }
    head_bytes_varint(out, list_count(&machine->gone));
    pl_list_for_each(pos, &machine->gone) {
        const struct head_machine_gone *gone =
            pl_container_of(pos, struct head_machine_gone, link);

        head_save_text(out, gone->host);
        head_save_text(out, gone->name);
        head_save_text(out, gone->why);
        head_bytes_varint(out, gone->devices);
        head_bytes_varint(out, gone->gone_ms);
    }
}

static bool some_overflown(const struct head_machine *machine)
{
    const struct pl_list *pos;
    bool some = false;

    pl_list_for_each(pos, &machine->workers) {
        some |= pl_container_of(pos, struct head_machine_worker, link)->peer.overflown;
    }
    return some;
}

/* The core that wrote the checkpoint makes way for the one that is read from it. */
static void go_on_from(struct head_machine *machine, size_t core_at)
{
    struct head_reader in = {.at  = machine->saved.data + core_at,
                             .end = machine->saved.data + machine->saved.length};
    struct head_core_counts before, after;
    struct head_core *fresh;
    struct pl_err err;

    head_core_count(machine->core, &before);
    PL_CHECK(head_machine_core_create(machine, &fresh, &err) == PLASMON_OK);
    if (head_core_load(fresh, &in, &err) != PLASMON_OK) {
        pl_error("head", "a checkpoint cannot be read: %s", err.text);
    }
    PL_CHECK(!in.bad);
    head_core_count(fresh, &after);
    PL_CHECK(memcmp(&before, &after, sizeof(before)) == 0);
    head_core_figures_take(fresh, machine->core);
    machine->replacing = true;
    head_core_destroy(machine->core);
    machine->replacing = false;
    machine->core      = fresh;
}

const uint8_t *head_machine_checkpoint(struct head_machine *machine, size_t *out_length,
                                       const char **out_why)
{
    struct head_bytes *out = &machine->saved;
    size_t core_at;

    *out_why = some_overflown(machine) ? "a worker acknowledges nothing"
                                       : head_core_unquiet(machine->core);
    if (*out_why != NULL) {
        return NULL;
    }
    PL_CHECK(!machine->changed);
    head_blob_begin(out);
    save_settings(machine, out);
    save_peers(machine, out);
    core_at = out->length;
    head_core_save(machine->core, out);
    head_blob_end(out, HEAD_BLOB_CHECKPOINT);
    go_on_from(machine, core_at);
    *out_length = out->length;
    return out->data;
}

/* ------------------------------------------------------------------------------ loading */

static void load_peer(struct head_reader *in, struct head_peer *peer)
{
    uint64_t count;

    peer->session        = head_load_number(in);
    peer->connected      = head_load_flag(in);
    peer->link.in_seq    = head_load_number(in);
    peer->link.out_acked = head_load_below(in, UINT64_MAX >> 1);
    peer->link.out_seq   = peer->link.out_acked;
    count                = head_load_count(in);
    for (uint64_t i = 0; i < count && !in->bad; i++) {
        size_t length;
        const uint8_t *bytes = head_load_bytes(in, &length);
        uint64_t seq         = wire_link_next_seq(&peer->link);

        if (bytes == NULL ||
            wire_link_sent(&peer->link, seq, bytes, length) != PLASMON_OK) {
            in->bad = true;
        }
    }
}

static void load_client(struct head_machine *machine, struct head_reader *in)
{
    struct head_peer peer = {0};
    struct head_machine_client *client;

    wire_link_init(&peer.link, head_machine_client_kept_max(machine));
    load_peer(in, &peer);
    if (in->bad || peer.session == 0 ||
        head_machine_client_of(machine, peer.session) != NULL) {
        in->bad = true;
        wire_link_finish(&peer.link);
        return;
    }
    client       = head_machine_client_create(machine, peer.session);
    client->peer = peer;
}

static void load_worker(struct head_machine *machine, struct head_reader *in)
{
    uint32_t device      = (uint32_t)head_load_below(in, WIRE_DEVICES_MAX);
    uint32_t host_device = (uint32_t)head_load_below(in, UINT32_MAX);
    uint32_t incarnation = (uint32_t)head_load_below(in, UINT32_MAX);
    char *host           = head_load_text(in);
    struct head_machine_worker *worker =
        head_machine_worker_create(machine, device, host, host_device);

    worker->incarnation = incarnation;
    load_peer(in, &worker->peer);
    pl_free(host);
}

static void load_node(struct head_machine *machine, struct head_reader *in)
{
    struct head_machine_node *node = head_alloc(sizeof(*node));
    uint64_t flags;

    pl_list_init(&node->link);
    pl_list_add_tail(&machine->nodes, &node->link);
    node->host         = head_load_text(in);
    node->name         = head_load_text(in);
    node->store_socket = head_load_text(in);
    node->memory       = head_load_number(in);
    node->session      = head_load_number(in);
    in->bad |= node->memory == 0;
    flags           = head_load_below(in, 3);
    node->connected = (flags & 1) != 0;
    node->leaving   = (flags & 2) != 0;
    node->lost_ms   = head_load_number(in);
}

static void load_gone(struct head_machine *machine, struct head_reader *in)
{
    struct head_machine_gone *gone = head_alloc(sizeof(*gone));

    head_machine_gone_add(machine, gone);
    gone->host    = head_load_text(in);
    gone->name    = head_load_text(in);
    gone->why     = head_load_text(in);
    gone->devices = head_load_below(in, UINT32_MAX);
    gone->gone_ms = head_load_number(in);
}

static void load_all(struct head_machine *machine, struct head_reader *in,
                     void (*load)(struct head_machine *machine, struct head_reader *in))
{
    size_t count = head_load_count(in);

    for (size_t i = 0; i < count && !in->bad; i++) {
        load(machine, in);
    }
}

static plasmon_status_t load_settings(struct head_machine *machine, struct head_reader *in,
                                      struct pl_err *err)
{
    uint64_t numbers[SETTINGS];
    struct head_string policy;

    for (size_t i = 0; i < SETTINGS; i++) {
        numbers[i] = head_load_number(in);
    }
    policy.bytes          = head_load_bytes(in, &policy.length);
    machine->now_ms       = head_load_number(in);
    machine->session_last = head_load_number(in);
    machine->digest       = head_load_number(in);
    return in->bad ? pl_err_set(err, PLASMON_EMALFORMED, "journal: a cut checkpoint")
                   : head_machine_settle(machine, numbers, policy, err);
}

/* Every worker is of a device, every session is known on both sides. */
static bool fits(struct head_machine *machine)
{
    uint64_t sessions = 0;
    struct head_core_counts counts;
    struct pl_list *pos;

    head_core_count(machine->core, &counts);
    pl_list_for_each(pos, &machine->workers) {
        if (pl_container_of(pos, struct head_machine_worker, link)->device >=
            head_core_device_count(machine->core)) {
            return false;
        }
    }
    pl_list_for_each(pos, &machine->clients) {
        sessions++;
        if (!head_core_client_known(
                machine->core,
                pl_container_of(pos, struct head_machine_client, link)->peer.session)) {
            return false;
        }
    }
    return sessions == counts.clients;
}

plasmon_status_t head_machine_load(struct head_machine *machine, const uint8_t *bytes,
                                   size_t length, struct pl_err *err)
{
    struct head_input_reader content;
    struct head_reader in;
    plasmon_status_t status;

    PL_CHECK(machine->core == NULL);
    status = head_blob_open(bytes, length, HEAD_BLOB_CHECKPOINT, &content, err);
    if (status != PLASMON_OK) {
        return status;
    }
    in     = (struct head_reader){.at = content.at, .end = content.end};
    status = load_settings(machine, &in, err);
    if (status != PLASMON_OK) {
        return status;
    }
    load_all(machine, &in, load_client);
    load_all(machine, &in, load_worker);
    load_all(machine, &in, load_node);
    load_all(machine, &in, load_gone);
    if (in.bad) {
        return pl_err_set(err, PLASMON_EMALFORMED, "journal: a damaged checkpoint");
    }
    status = head_core_load(machine->core, &in, err);
    if (status == PLASMON_OK && !fits(machine)) {
        status = pl_err_set(err, PLASMON_EMALFORMED,
                            "journal: a checkpoint whose sessions do not fit its objects");
    }
    return status;
}
