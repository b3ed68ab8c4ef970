/* `plasmon nodes`: the hosts of a cluster, for people or (--json) for scripts. */
#include <inttypes.h>
#include <stdio.h>

#include "client/cli/list.h"
#include "client/client_int.h"

static const struct cli_option options[] = {
    {"--label", "TEXT", CLI_TEXT, LIST_AT(label), "only with this in their name"},
    CLI_ASKS_OPTIONS,
};

static int run(int argc, char **argv);
const struct cli_command cli_nodes = {
    .name    = "nodes",
    .summary = "hosts, their devices and memory; which are away or drained",
    .usage   = "[options]",
    .text = "devices: that are up, of those that the store announced. A node that is away "
            "is given up with its\n"
            "devices when its lease is over (--node-lease of the head), and then gone: "
            "those of the last hour\n"
            "are listed. silent: its store is connected, and did not answer within a "
            "second. host memory,\n"
            "files: used for what devices have no room for.\n",
    .options      = options,
    .option_count = PL_COUNT(options),
    .run          = run,
};

static const char *state_name(const Plasmon__V1__NodeRow *row)
{
    return row->gone               ? "gone"
           : !row->connected       ? "away"
           : row->silent_ms > 0    ? "silent"
           : row->leaving          ? "leaving"
           : row->drain[0] != '\0' ? "drained"
                                   : "up";
}

/* "1.0 GiB of 4.0 GiB" */
static const char *of_bytes(uint64_t used, uint64_t total, char out[80])
{
    char have[32], most[32];

    (void)snprintf(out, 80, "%s of %s", pl_format_bytes(used, have),
                   pl_format_bytes(total, most));
    return total == 0 && used == 0 ? "-" : out;
}

void list_node_text(const Plasmon__V1__NodeRow *row)
{
    char devices[48], memory[80], host[80], files[80], away[32], lease[32];

    (void)snprintf(devices, sizeof(devices), "%u of %" PRIu64, row->devices_up,
                   row->gone ? row->devices
                             : row->devices - pl_min_u64(row->devices, row->devices_gone));
    printf("  %-20.20s %-8s %-10s %-24s %-24s %-24s %8" PRIu64 " %11" PRIu64 " %8" PRIu64
           "\n",
           row->name, state_name(row), devices,
           of_bytes(row->bytes_used, row->bytes_total, memory),
           of_bytes(row->spill_memory_used, row->spill_memory, host),
           of_bytes(row->spill_files_used, row->spill_files, files), row->queued,
           row->launches, row->restarts);
    if (row->gone) {
        printf(
            "    gone for %s: %s; what lay there alone is lost, or made again. Start its "
            "store again on that machine (`plasmon start`, or its service)\n",
            list_age(row->away_ms, away), row->why);
        return;
    }
    if (row->silent_ms > 0) {
        printf("    its store has said nothing for %s, and did not answer just now: is it "
               "stopped, or its machine too busy? `plasmon doctor --cluster` there says "
               "more\n",
               list_age(row->silent_ms, away));
    }
    if (!row->connected) {
        printf("    away for %s; given up after %s\n", list_age(row->away_ms, away),
               list_age(row->lease_ms, lease));
    }
    if (row->devices_gone > 0) {
        printf("    %u of its devices are gone for good\n", row->devices_gone);
    }
    if (row->drain[0] != '\0') {
        printf("    drained: %s\n", row->drain);
    }
}

static void print_header(void)
{
    printf("  %-20s %-8s %-10s %-24s %-24s %-24s %8s %11s %8s\n", "node", "state",
           "devices", "device memory", "host memory", "files", "queued", "launches",
           "restarts");
}

void list_node_json(const Plasmon__V1__NodeRow *row, struct pl_str *out)
{
    json_next(out);
    pl_str_append(out, "{");
    json_text(out, "node", row->name);
    json_text(out, "host", row->host);
    json_text(out, "state", state_name(row));
    json_flag(out, "connected", row->connected);
    json_number(out, "away_ms", row->away_ms);
    json_number(out, "lease_ms", row->lease_ms);
    json_number(out, "silent_ms", row->silent_ms);
    json_text(out, "why", row->why);
    json_text(out, "drain", row->drain);
    json_number(out, "devices", row->devices);
    json_number(out, "devices_up", row->devices_up);
    json_number(out, "devices_gone", row->devices_gone);
    json_number(out, "bytes_total", row->bytes_total);
    json_number(out, "bytes_used", row->bytes_used);
    json_number(out, "queued", row->queued);
    json_number(out, "launches", row->launches);
    json_number(out, "restarts", row->restarts);
    json_open(out, "spill", '{');
    json_number(out, "memory_bytes", row->spill_memory);
    json_number(out, "memory_used", row->spill_memory_used);
    json_number(out, "file_bytes", row->spill_files);
    json_number(out, "file_used", row->spill_files_used);
    pl_str_append(out, "}}");
}

static int ask(const struct list *list, struct plasmon_client *client,
               struct wire_arena *arena)
{
    Plasmon__V1__ListRequest request = PLASMON__V1__LIST_REQUEST__INIT;
    Plasmon__V1__ListPlace from      = PLASMON__V1__LIST_PLACE__INIT;
    const Plasmon__V1__ListReply *reply;
    struct list_shown shown = {.json = list->asks.json};
    struct pl_str text;
    int result = list_filters(&cli_nodes, list, NULL, 0, &request);

    if (result != CLI_OK) {
        return result;
    }
    request.kind = PLASMON__V1__LIST_KIND__LIST_NODES;
    pl_str_init(&text);
    do {
        reply = list_page(&cli_nodes, client, &request, arena);
        if (reply != NULL) {
            list_begin(&shown, "nodes", print_header);
        }
        for (size_t i = 0; reply != NULL && i < reply->n_nodes; i++) {
            if (shown.json) {
                list_node_json(reply->nodes[i], &text);
                list_row_json(&shown, &text);
            } else {
                list_node_text(reply->nodes[i]);
                shown.some = true;
            }
        }
        if (reply != NULL && reply->next != NULL) {
            from.a       = reply->next->a;
            request.from = &from;
        }
    } while (reply != NULL && reply->next != NULL);
    if (shown.json && reply != NULL) {
        printf("]}\n");
    } else if (reply != NULL && !shown.some && list->label == NULL) {
        printf(
            "  none: no store has joined, or the last one left more than an hour ago. "
            "`plasmon start --head` on the head's machine starts one there, `plasmon start "
            "--address HOST:PORT` on others\n");
    }
    pl_str_finish(&text);
    return reply != NULL ? CLI_OK : CLI_FAIL;
}

static int run(int argc, char **argv)
{
    struct list list         = {.limit = 0};
    struct cli_parsed parsed = cli_parse(&cli_nodes, argc, argv, &list);

    return parsed.exit >= 0 ? parsed.exit : list_run(&cli_nodes, &list, ask);
}
