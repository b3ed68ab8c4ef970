/*
 * What `plasmon nodes` lists: the stores that the machine knows, then those that left lately, a
 * page at a time.
 */
#include "head/machine_int.h"

#include <string.h>

enum {
    ROWS_MAX  = 256,
    LOOKS_MAX = 262144, /* devices, over all rows of a page: a few milliseconds */
};

struct page {
    const struct head_machine *machine;
    const Plasmon__V1__ListRequest *request;
    const struct head_asked *asked;
    bool confined;
    uint64_t rows_max;
    uint64_t position; /* of what is looked at, in the list of all */
    struct wire_arena *arena;
    Plasmon__V1__ListReply *out;
};

static Plasmon__V1__NodeRow *row_add(struct page *page, char *name, char *host)
{
    Plasmon__V1__NodeRow *row = wire_arena_alloc(page->arena, sizeof(*row));

    if (row != NULL) {
        plasmon__v1__node_row__init(row);
        row->name                              = name;
        row->host                              = host;
        page->out->nodes[page->out->n_nodes++] = row;
    }
    return row;
}

static plasmon_status_t node_add(struct page *page, const struct head_machine_node *node)
{
    const struct head_machine *machine = page->machine;
    Plasmon__V1__NodeRow *row          = row_add(page, node->name, node->host);
    char *drain =
        page->confined ? NULL : head_machine_drain_text(machine, node, page->arena);

    if (row == NULL) {
        return PLASMON_ENOMEM;
    }
    row->connected = node->connected;
    row->leaving   = node->leaving;
    row->away_ms =
        node->connected ? 0 : machine->now_ms - pl_min_u64(machine->now_ms, node->lost_ms);
    row->lease_ms  = machine->settings.node_lease_ms;
    row->silent_ms = head_machine_node_silent_ms(node, page->asked);
    row->drain     = drain != NULL ? drain : row->drain;
    head_core_list_node(machine->core, node->host, row);
    return PLASMON_OK;
}

static plasmon_status_t gone_add(struct page *page, const struct head_machine_gone *gone)
{
    Plasmon__V1__NodeRow *row = row_add(page, gone->name, gone->host);

    if (row == NULL) {
        return PLASMON_ENOMEM;
    }
    row->gone    = true;
    row->why     = gone->why;
    row->away_ms = page->machine->now_ms - pl_min_u64(page->machine->now_ms, gone->gone_ms);
    row->devices = (uint32_t)gone->devices;
    row->devices_gone = row->devices;
    return PLASMON_OK;
}

/* Is it on this page? *out_full: it is the first one of the next. */
static bool on_page(struct page *page, const char *name, bool *out_full)
{
    const Plasmon__V1__ListRequest *request = page->request;
    uint64_t first                          = request->from != NULL ? request->from->a : 0;

    *out_full = false;
    if (page->position++ < first ||
        (request->label[0] != '\0' && strstr(name, request->label) == NULL)) {
        return false;
    }
    *out_full = page->out->n_nodes == page->rows_max;
    return true;
}

static plasmon_status_t page_end(struct page *page)
{
    page->out->next = wire_arena_alloc(page->arena, sizeof(*page->out->next));
    if (page->out->next == NULL) {
        return PLASMON_ENOMEM;
    }
    plasmon__v1__list_place__init(page->out->next);
    page->out->next->a = page->position - 1;
    return PLASMON_OK;
}

plasmon_status_t head_machine_list_nodes(const struct head_machine *machine,
                                         const Plasmon__V1__ListRequest *request,
                                         const struct head_asked *asked, bool confined,
                                         struct wire_arena *arena,
                                         Plasmon__V1__ListReply *out)
{
    uint64_t devices = head_core_device_count(machine->core) + 1u;
    uint64_t wanted  = request->rows_max != 0 ? request->rows_max : ROWS_MAX;
    struct page page = {
        .machine  = machine,
        .request  = request,
        .asked    = asked,
        .confined = confined,
        .rows_max = pl_min_u64(wanted, pl_min_u64(ROWS_MAX, LOOKS_MAX / devices + 1)),
        .arena    = arena,
        .out      = out};
    plasmon_status_t status = PLASMON_OK;
    struct pl_list *pos;
    bool full = false;

    out->nodes = wire_arena_alloc(arena, ROWS_MAX * sizeof(*out->nodes));
    if (out->nodes == NULL) {
        return PLASMON_ENOMEM;
    }
    pl_list_for_each(pos, &machine->nodes) {
        const struct head_machine_node *node =
            pl_container_of(pos, struct head_machine_node, link);

        if (status == PLASMON_OK && !full && on_page(&page, node->name, &full) && !full) {
            status = node_add(&page, node);
        }
    }
    pl_list_for_each(pos, &machine->gone) {
        const struct head_machine_gone *gone =
            pl_container_of(pos, struct head_machine_gone, link);

        if (status == PLASMON_OK && !full && on_page(&page, gone->name, &full) && !full) {
            status = gone_add(&page, gone);
        }
    }
    return status == PLASMON_OK && full ? page_end(&page) : status;
}
