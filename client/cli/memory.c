/*
 * `plasmon memory`: the memory of each device, what of it lies in host memory and files, and who
 * holds it; for people, or (--json) for scripts.
 */
#include <stdio.h>

#include "client/cli/cli.h"
#include "client/client_int.h"
#include "client/json.h"

struct memory {
    struct cli_asks asks; /* first: CLI_ASKS_OPTIONS */
    const char *label;
};

static const struct cli_option options[] = {
    {"--label", "TEXT", CLI_TEXT, offsetof(struct memory, label),
     "only holders with this in the label of their value or client, or their name"},
    CLI_ASKS_OPTIONS,
};

static int run(int argc, char **argv);
const struct cli_command cli_memory = {
    .name    = "memory",
    .summary = "who holds the memory of devices, host memory and files",
    .usage   = "[options]",
    .text =
        "used: given out by the device's arena; replicas: copies that may be dropped, "
        "part of it;\n"
        "hole: the largest block that could be had without growing; reserved: in chunks.\n"
        "holders: what each ref or published name shows in each place, largest first;\n"
        "refs that show the same bytes each count them. label: of the put or call that "
        "wrote "
        "the\nvalue; with a +, most of it. The head looks at them while it "
        "works:\neach that is there all the time is told once, as it was when it was "
        "looked at.\nSee docs/memory.md.\n",
    .options      = options,
    .option_count = PL_COUNT(options),
    .run          = run,
};

const char *cli_memory_state(uint32_t state)
{
    static const char *const names[] = {"used", "replica", "host memory", "file"};

    return state < PL_COUNT(names) ? names[state] : "?";
}

const char *cli_label(const char *label, bool more, char out[CLI_LABEL_COLUMN + 1])
{
    (void)snprintf(out, CLI_LABEL_COLUMN + 1, "%.*s%s", CLI_LABEL_COLUMN - (more ? 2 : 0),
                   label[0] != '\0' ? label : "-", more ? " +" : "");
    return out;
}

/* What it may still give out, chunks that are still to be made included. */
static uint64_t bytes_free(const Plasmon__V1__Device *device)
{
    return device->bytes_total - pl_min_u64(device->bytes_total, device->bytes_used);
}

static void print_devices(const Plasmon__V1__StatusReply *reply)
{
    printf("  %-6s %-16s %10s %10s %10s %10s %10s %10s %10s %10s\n", "device", "node",
           "memory", "used", "pinned", "replicas", "scratch", "free", "hole", "reserved");
    for (size_t i = 0; i < reply->n_devices; i++) {
        const Plasmon__V1__Device *device = reply->devices[i];
        char total[32], used[32], pinned[32], replica[32], scratch[32], unused[32];
        char hole[32], reserved[32];

        if (device->state == PLASMON__V1__DEVICE_STATE__DEVICE_STATE_GONE) {
            continue;
        }
        printf("  %-6u %-16.16s %10s %10s %10s %10s %10s %10s %10s %10s\n", device->index,
               device->node, pl_format_bytes(device->bytes_total, total),
               pl_format_bytes(device->bytes_used, used),
               pl_format_bytes(device->bytes_pinned, pinned),
               pl_format_bytes(device->bytes_replica, replica),
               pl_format_bytes(device->bytes_scratch, scratch),
               pl_format_bytes(bytes_free(device), unused),
               pl_format_bytes(device->largest_hole, hole),
               pl_format_bytes(device->bytes_reserved, reserved));
    }
}

static void print_moved(const char *what, uint64_t count, uint64_t bytes)
{
    char text[32];

    printf("  %s %llu (%s)", what, (unsigned long long)count, pl_format_bytes(bytes, text));
}

static void print_hosts(const Plasmon__V1__StatusReply *reply)
{
    for (size_t i = 0; i < reply->n_spill_hosts; i++) {
        const Plasmon__V1__SpillHost *host = reply->spill_hosts[i];
        char used[32], bytes[32], file_used[32], file_bytes[32];

        printf("\n  node %s: %s of %s of host memory, %s of %s of files\n ", host->node,
               pl_format_bytes(host->memory_used, used),
               pl_format_bytes(host->memory_bytes, bytes),
               pl_format_bytes(host->file_used, file_used),
               pl_format_bytes(host->file_bytes, file_bytes));
        print_moved("spilled", host->spills, host->spill_bytes);
        print_moved("restored", host->restores, host->restore_bytes);
        print_moved("copied ahead", host->write_backs, host->write_back_bytes);
        print_moved("written", host->writes, host->write_bytes);
        print_moved("read", host->reads, host->read_bytes);
        printf("\n");
    }
}

static void print_holders(const Plasmon__V1__StatusReply *reply)
{
    printf("\n  %10s %-12s %-6s %-16s %-24s %-9s %s\n", "bytes", "state", "device", "node",
           "holder", "ref", "label");
    for (size_t i = 0; i < reply->n_holders; i++) {
        const Plasmon__V1__MemoryHolder *holder = reply->holders[i];
        char bytes[32], device[16] = "-", ref[32] = "published";
        char label[CLI_LABEL_COLUMN + 1];

        if (holder->device != 0) {
            (void)snprintf(device, sizeof(device), "%u", holder->device - 1);
        }
        if (holder->client != 0) {
            (void)snprintf(ref, sizeof(ref), "%llu", (unsigned long long)holder->ref);
        }
        printf("  %10s %-12s %-6s %-16.16s %-24.24s %-9s %s\n",
               pl_format_bytes(holder->bytes, bytes), cli_memory_state(holder->state),
               device, holder->node, holder->label, ref,
               cli_label(holder->value_label, holder->more_labels, label));
    }
    if (reply->holders_left > 0) {
        printf("  and %llu smaller ones\n", (unsigned long long)reply->holders_left);
    }
}

static void json_devices(const Plasmon__V1__StatusReply *reply, struct pl_str *out)
{
    for (size_t i = 0; i < reply->n_devices; i++) {
        const Plasmon__V1__Device *device = reply->devices[i];

        if (device->state == PLASMON__V1__DEVICE_STATE__DEVICE_STATE_GONE) {
            continue;
        }
        json_next(out);
        pl_str_append(out, "{");
        json_number(out, "device", device->index);
        json_text(out, "node", device->node);
        json_number(out, "bytes", device->bytes_total);
        json_number(out, "used", device->bytes_used);
        json_number(out, "pinned", device->bytes_pinned);
        json_number(out, "replicas", device->bytes_replica);
        json_number(out, "scratch", device->bytes_scratch);
        json_number(out, "free", bytes_free(device));
        json_number(out, "largest_hole", device->largest_hole);
        json_number(out, "reserved", device->bytes_reserved);
        pl_str_append(out, "}");
    }
}

static void json_hosts(const Plasmon__V1__StatusReply *reply, struct pl_str *out)
{
    for (size_t i = 0; i < reply->n_spill_hosts; i++) {
        json_next(out);
        status_spill_json(reply->spill_hosts[i], out);
    }
}

static void json_holders(const Plasmon__V1__StatusReply *reply, struct pl_str *out)
{
    for (size_t i = 0; i < reply->n_holders; i++) {
        const Plasmon__V1__MemoryHolder *holder = reply->holders[i];

        json_next(out);
        pl_str_append(out, "{");
        json_number(out, "bytes", holder->bytes);
        json_text(out, "state", cli_memory_state(holder->state));
        json_text(out, "node", holder->node);
        if (holder->device != 0) {
            json_number(out, "device", holder->device - 1);
        }
        json_text(out, "holder", holder->label);
        json_text(out, "label", holder->value_label);
        json_flag(out, "more_labels", holder->more_labels);
        json_text(out, holder->client != 0 ? "client_label" : "name", holder->label);
        if (holder->client != 0) {
            json_id(out, "client", holder->client);
            json_number(out, "ref", holder->ref);
        }
        pl_str_append(out, "}");
    }
}

static void print_text(const Plasmon__V1__StatusReply *reply)
{
    print_devices(reply);
    print_hosts(reply);
    print_holders(reply);
}

static void print_json(const Plasmon__V1__StatusReply *reply)
{
    struct pl_str out;

    pl_str_init(&out);
    pl_str_append(&out, "{");
    json_open(&out, "devices", '[');
    json_devices(reply, &out);
    pl_str_append(&out, "]");
    json_open(&out, "spill", '[');
    json_hosts(reply, &out);
    pl_str_append(&out, "]");
    json_open(&out, "holders", '[');
    json_holders(reply, &out);
    pl_str_append(&out, "]");
    json_number(&out, "holders_left", reply->holders_left);
    printf("%s}\n", pl_str_text(&out));
    pl_str_finish(&out);
}

static int run(int argc, char **argv)
{
    struct memory memory     = {.label = ""};
    struct cli_parsed parsed = cli_parse(&cli_memory, argc, argv, &memory);

    return parsed.exit >= 0 ? parsed.exit
                            : cli_show_asked(&cli_memory, &memory.asks, memory.label,
                                             print_text, print_json);
}
