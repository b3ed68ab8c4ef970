/*
 * Who waits, besides what the core knows: clients that do not read what they are sent, stores that
 * are away or drained, and workers that did not answer in time. For `plasmon doctor`. Nothing of it
 * changes what the machine puts out.
 */
#include "head/machine_int.h"

#include <stdio.h>
#include <string.h>

void head_machine_peers_watch(struct head_machine *machine)
{
    struct pl_list *pos;

    pl_list_for_each(pos, &machine->clients) {
        struct head_peer *peer =
            &pl_container_of(pos, struct head_machine_client, link)->peer;

        if (peer->link.kept_bytes == 0 || peer->link.out_acked != peer->acked) {
            peer->acked    = peer->link.out_acked;
            peer->acked_ms = machine->now_ms;
        }
    }
}

static Plasmon__V1__PeerWait *peer_add(struct wire_arena *arena, Plasmon__V1__Waits *out)
{
    Plasmon__V1__PeerWait *peer = wire_arena_alloc(arena, sizeof(*peer));

    if (peer != NULL) {
        plasmon__v1__peer_wait__init(peer);
        out->peers[out->n_peers++] = peer;
    }
    return peer;
}

static plasmon_status_t client_tell(const struct head_machine *machine,
                                    const struct head_machine_client *client,
                                    struct wire_arena *arena, Plasmon__V1__Waits *out)
{
    const struct head_peer *peer = &client->peer;
    Plasmon__V1__PeerWait *told;

    if (client->ended || peer->link.kept_bytes == 0 || peer->acked_ms == 0) {
        return PLASMON_OK;
    }
    told = peer_add(arena, out);
    if (told == NULL) {
        return PLASMON_ENOMEM;
    }
    head_core_client_name(machine->core, peer->session, &told->client, &told->name);
    told->connected = peer->connected;
    told->silent_ms = machine->now_ms - pl_min_u64(machine->now_ms, peer->acked_ms);
    told->bytes     = peer->link.kept_bytes;
    return PLASMON_OK;
}

/* Of a node that is drained; NULL: it is not, or no memory. */
char *head_machine_drain_text(const struct head_machine *machine,
                              const struct head_machine_node *node,
                              struct wire_arena *arena)
{
    struct head_drain_report report;
    struct pl_err err = {.status = PLASMON_OK};
    char *text;

    if (head_core_drain_report(machine->core, node->host, &report, &err) != PLASMON_OK) {
        return NULL;
    }
    text = wire_arena_alloc(arena, 512);
    if (text != NULL) {
        (void)snprintf(text, 512,
                       "%llu objects are elsewhere, %llu are not yet (%llu on their way), "
                       "%llu tasks run there%s%s",
                       (unsigned long long)report.objects_safe,
                       (unsigned long long)report.objects_left,
                       (unsigned long long)report.objects_moving,
                       (unsigned long long)report.tasks_left,
                       report.why[0] != '\0' ? ": " : "", report.why);
    }
    return text;
}

static plasmon_status_t node_tell(const struct head_machine *machine,
                                  const struct head_machine_node *node,
                                  const struct head_asked *asked, const char *host,
                                  struct wire_arena *arena, Plasmon__V1__Waits *out)
{
    uint64_t silent_ms = head_machine_node_silent_ms(node, asked);
    char *drain        = head_machine_drain_text(machine, node, arena);
    Plasmon__V1__PeerWait *told;

    if (node->connected && drain == NULL && silent_ms == 0) {
        return PLASMON_OK;
    }
    told = peer_add(arena, out);
    if (told == NULL) {
        return PLASMON_ENOMEM;
    }
    told->name      = node->name;
    told->connected = node->connected;
    told->mute      = silent_ms != 0;
    told->silent_ms = node->connected
                          ? silent_ms
                          : machine->now_ms - pl_min_u64(machine->now_ms, node->lost_ms);
    told->lease_ms  = machine->settings.node_lease_ms;
    told->drain     = drain != NULL ? drain : told->drain;
    if (strcmp(node->host, host) == 0) {
        told->store_socket = node->store_socket;
    }
    return PLASMON_OK;
}

static plasmon_status_t gone_tell(const struct head_machine *machine,
                                  const struct head_machine_gone *gone,
                                  struct wire_arena *arena, Plasmon__V1__Waits *out)
{
    Plasmon__V1__PeerWait *told = peer_add(arena, out);

    if (told == NULL) {
        return PLASMON_ENOMEM;
    }
    told->name      = gone->name;
    told->gone      = true;
    told->why       = gone->why;
    told->silent_ms = machine->now_ms - pl_min_u64(machine->now_ms, gone->gone_ms);
    return PLASMON_OK;
}

static size_t list_count(const struct pl_list *list)
{
    size_t count = 0;

    for (const struct pl_list *pos = list->next; pos != list; pos = pos->next) {
        count++;
    }
    return count;
}

static plasmon_status_t silent_tell(const struct head_machine *machine, uint64_t request,
                                    struct wire_arena *arena, Plasmon__V1__Waits *out)
{
    struct pl_list *pos;

    out->silent =
        wire_arena_alloc(arena, (list_count(&machine->workers) + 1) * sizeof(*out->silent));
    if (out->silent == NULL) {
        return PLASMON_ENOMEM;
    }
    pl_list_for_each(pos, &machine->workers) {
        const struct head_machine_worker *worker =
            pl_container_of(pos, struct head_machine_worker, link);

        if (worker->peer.connected && worker->answered < request) {
            out->silent[out->n_silent++] = worker->device;
        }
    }
    return PLASMON_OK;
}

plasmon_status_t head_machine_waits(const struct head_machine *machine,
                                    struct wire_arena *arena,
                                    const struct head_asked *asked, const char *host,
                                    Plasmon__V1__Waits *out)
{
    size_t peers = list_count(&machine->clients) + list_count(&machine->nodes) +
                   list_count(&machine->gone);
    plasmon_status_t status = silent_tell(machine, asked->request, arena, out);
    struct pl_list *pos;

    out->peers = wire_arena_alloc(arena, (peers + 1) * sizeof(*out->peers));
    if (out->peers == NULL) {
        return PLASMON_ENOMEM;
    }
    pl_list_for_each(pos, &machine->clients) {
        if (status == PLASMON_OK) {
            status =
                client_tell(machine, pl_container_of(pos, struct head_machine_client, link),
                            arena, out);
        }
    }
    pl_list_for_each(pos, &machine->nodes) {
        if (status == PLASMON_OK) {
            status =
                node_tell(machine, pl_container_of(pos, struct head_machine_node, link),
                          asked, host, arena, out);
        }
    }
    pl_list_for_each(pos, &machine->gone) {
        if (status == PLASMON_OK) {
            status = gone_tell(
                machine, pl_container_of(pos, struct head_machine_gone, link), arena, out);
        }
    }
    return status == PLASMON_OK ? head_core_waits(machine->core, arena, out) : status;
}
