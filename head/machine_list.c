/* What `plasmon nodes` lists: the stores that the machine knows, a page at a time. */
#include "head/machine_int.h"

#include <string.h>

enum {
    ROWS_MAX  = 256,
    LOOKS_MAX = 262144, /* devices, over all rows of a page: a few milliseconds */
};

static plasmon_status_t node_add(const struct head_machine *machine,
                                 const struct head_machine_node *node, bool confined,
                                 struct wire_arena *arena, Plasmon__V1__ListReply *out)
{
    Plasmon__V1__NodeRow *row = wire_arena_alloc(arena, sizeof(*row));
    char *drain = confined ? NULL : head_machine_drain_text(machine, node, arena);

    if (row == NULL) {
        return PLASMON_ENOMEM;
    }
    plasmon__v1__node_row__init(row);
    row->name      = node->name;
    row->host      = node->host;
    row->connected = node->connected;
    row->leaving   = node->leaving;
    row->away_ms =
        node->connected ? 0 : machine->now_ms - pl_min_u64(machine->now_ms, node->lost_ms);
    row->lease_ms = machine->settings.node_lease_ms;
    row->drain    = drain != NULL ? drain : row->drain;
    head_core_list_node(machine->core, node->host, row);
    out->nodes[out->n_nodes++] = row;
    return PLASMON_OK;
}

static bool node_wanted(const struct head_machine_node *node,
                        const Plasmon__V1__ListRequest *request)
{
    return request->label[0] == '\0' || strstr(node->name, request->label) != NULL;
}

plasmon_status_t head_machine_list_nodes(const struct head_machine *machine,
                                         const Plasmon__V1__ListRequest *request,
                                         bool confined, struct wire_arena *arena,
                                         Plasmon__V1__ListReply *out)
{
    uint64_t devices  = head_core_device_count(machine->core) + 1u;
    uint64_t asked    = request->rows_max != 0 ? request->rows_max : ROWS_MAX;
    uint64_t rows_max = pl_min_u64(asked, pl_min_u64(ROWS_MAX, LOOKS_MAX / devices + 1));
    uint64_t first = request->from != NULL ? request->from->a : 0, position = 0;
    plasmon_status_t status = PLASMON_OK;
    struct pl_list *pos;

    out->nodes = wire_arena_alloc(arena, ROWS_MAX * sizeof(*out->nodes));
    if (out->nodes == NULL) {
        return PLASMON_ENOMEM;
    }
    pl_list_for_each(pos, &machine->nodes) {
        const struct head_machine_node *node =
            pl_container_of(pos, struct head_machine_node, link);

        if (position++ < first || !node_wanted(node, request)) {
            continue;
        }
        if (status == PLASMON_OK && out->n_nodes == rows_max) {
            out->next = wire_arena_alloc(arena, sizeof(*out->next));
            if (out->next == NULL) {
                return PLASMON_ENOMEM;
            }
            plasmon__v1__list_place__init(out->next);
            out->next->a = position - 1;
            return PLASMON_OK;
        }
        if (status == PLASMON_OK) {
            status = node_add(machine, node, confined, arena, out);
        }
    }
    return status;
}
