/*
 * `plasmon memory`: the memory of each device, what of it lies in host memory and files, and who holds it; for people, or (--json) for scripts.
 */
#include <stdio.h>

#include "client/cli/cli.h"
#include "client/client_int.h"

static const struct cli_option options[] = {
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
        "refs that show the same bytes each count them. See docs/memory.md.\n",
    .options      = options,
    .option_count = PL_COUNT(options),
    .run          = run,
};

static const char *state_name(uint32_t state)
{
    static const char *const names[] = {"used", "replica", "host memory", "file"};

    return state < PL_COUNT(names) ? names[state] : "?";
}

static void print_devices(const Plasmon__V1__StatusReply *reply)
{
    printf("  %-6s %-16s %10s %10s %10s %10s %10s\n", "device", "node", "memory", "used",
           "replicas", "hole", "reserved");
    for (size_t i = 0; i < reply->n_devices; i++) {
        const Plasmon__V1__Device *device = reply->devices[i];
        char total[32], used[32], replica[32], hole[32], reserved[32];

        printf("  %-6u %-16.16s %10s %10s %10s %10s %10s\n", device->index, device->node,
               pl_format_bytes(device->bytes_total, total),
               pl_format_bytes(device->bytes_used, used),
               pl_format_bytes(device->bytes_replica, replica),
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
    printf("\n  %10s %-12s %-6s %-16s %-24s %s\n", "bytes", "state", "device", "node",
           "holder", "ref");
    for (size_t i = 0; i < reply->n_holders; i++) {
        const Plasmon__V1__MemoryHolder *holder = reply->holders[i];
        char bytes[32], device[16] = "-", ref[32] = "published";

        if (holder->device != 0) {
            (void)snprintf(device, sizeof(device), "%u", holder->device - 1);
        }
        if (holder->client != 0) {
            (void)snprintf(ref, sizeof(ref), "%llu", (unsigned long long)holder->ref);
        }
        printf("  %10s %-12s %-6s %-16.16s %-24.24s %s\n",
               pl_format_bytes(holder->bytes, bytes), state_name(holder->state), device,
               holder->node, holder->label, ref);
    }
    if (reply->holders_left > 0) {
        printf("  and %llu smaller ones\n", (unsigned long long)reply->holders_left);
    }
}

static void json_text(const char *text)
{
    struct pl_str quoted;

    pl_str_init(&quoted);
    pl_str_append_json(&quoted, text);
    printf("%s", pl_str_text(&quoted));
    pl_str_finish(&quoted);
}

static void json_devices(const Plasmon__V1__StatusReply *reply)
{
    printf("{\"devices\":[");
    for (size_t i = 0; i < reply->n_devices; i++) {
        const Plasmon__V1__Device *device = reply->devices[i];

        printf("%s{\"device\":%u,\"node\":", i > 0 ? "," : "", device->index);
        json_text(device->node);
        printf(",\"bytes\":%llu,\"used\":%llu,\"replicas\":%llu,\"largest_hole\":%llu,"
               "\"reserved\":%llu}",
               (unsigned long long)device->bytes_total,
               (unsigned long long)device->bytes_used,
               (unsigned long long)device->bytes_replica,
               (unsigned long long)device->largest_hole,
               (unsigned long long)device->bytes_reserved);
    }
}

static void json_hosts(const Plasmon__V1__StatusReply *reply)
{
    printf("],\"spill\":[");
    for (size_t i = 0; i < reply->n_spill_hosts; i++) {
        const Plasmon__V1__SpillHost *host = reply->spill_hosts[i];

        printf("%s{\"node\":", i > 0 ? "," : "");
        json_text(host->node);
        printf(",\"memory_bytes\":%llu,\"memory_used\":%llu,\"file_bytes\":%llu,"
               "\"file_used\":%llu,\"spills\":%llu,\"spill_bytes\":%llu,\"restores\":%llu,"
               "\"restore_bytes\":%llu,\"write_backs\":%llu,\"write_back_bytes\":%llu,"
               "\"write_back_cancels\":%llu,\"writes\":%llu,\"write_bytes\":%llu,"
               "\"reads\":%llu,\"read_bytes\":%llu}",
               (unsigned long long)host->memory_bytes,
               (unsigned long long)host->memory_used, (unsigned long long)host->file_bytes,
               (unsigned long long)host->file_used, (unsigned long long)host->spills,
               (unsigned long long)host->spill_bytes, (unsigned long long)host->restores,
               (unsigned long long)host->restore_bytes,
               (unsigned long long)host->write_backs,
               (unsigned long long)host->write_back_bytes,
               (unsigned long long)host->write_back_cancels,
               (unsigned long long)host->writes, (unsigned long long)host->write_bytes,
               (unsigned long long)host->reads, (unsigned long long)host->read_bytes);
    }
}

static void json_holders(const Plasmon__V1__StatusReply *reply)
{
    printf("],\"holders\":[");
    for (size_t i = 0; i < reply->n_holders; i++) {
        const Plasmon__V1__MemoryHolder *holder = reply->holders[i];

        printf("%s{\"bytes\":%llu,\"state\":\"%s\",\"node\":", i > 0 ? "," : "",
               (unsigned long long)holder->bytes, state_name(holder->state));
        json_text(holder->node);
        if (holder->device != 0) {
            printf(",\"device\":%u", holder->device - 1);
        }
        printf(",\"holder\":");
        json_text(holder->label);
        if (holder->client != 0) {
            printf(",\"client\":\"%016llx\",\"ref\":%llu",
                   (unsigned long long)holder->client, (unsigned long long)holder->ref);
        }
        printf("}");
    }
    printf("],\"holders_left\":%llu}\n", (unsigned long long)reply->holders_left);
}

static void print_text(const Plasmon__V1__StatusReply *reply)
{
    print_devices(reply);
    print_hosts(reply);
    print_holders(reply);
}

static void print_json(const Plasmon__V1__StatusReply *reply)
{
    json_devices(reply);
    json_hosts(reply);
    json_holders(reply);
}

static int run(int argc, char **argv)
{
    return cli_show_status(&cli_memory, argc, argv, print_text, print_json);
}
