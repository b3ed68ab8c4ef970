/* `plasmon status`: what the head says about the cluster, for people or (--json) for scripts. */
#include <stdio.h>
#include <string.h>

#include "client/cli/cli.h"
#include "client/client_int.h"
#include "wire/metrics.h"

static const struct cli_option options[] = {
    CLI_ASKS_OPTIONS,
};

static int run(int argc, char **argv);
const struct cli_command cli_status = {
    .name         = "status",
    .summary      = "devices, objects and tasks of a cluster",
    .usage        = "[options]",
    .options      = options,
    .option_count = PL_COUNT(options),
    .run          = run,
};

static void print_uptime(uint64_t ms)
{
    uint64_t seconds = ms / 1000;

    if (seconds >= 86400) {
        printf("%llu d %llu h", (unsigned long long)(seconds / 86400),
               (unsigned long long)(seconds / 3600 % 24));
    } else if (seconds >= 3600) {
        printf("%llu h %llu min", (unsigned long long)(seconds / 3600),
               (unsigned long long)(seconds / 60 % 60));
    } else {
        printf("%llu min %llu s", (unsigned long long)(seconds / 60),
               (unsigned long long)(seconds % 60));
    }
}

static void print_devices(const Plasmon__V1__StatusReply *reply)
{
    char used[32], total[32];

    printf("\n  %-4s %-5s %-16s %-28s %-8s %10s %10s %9s %7s %s\n", "#", "kind", "node",
           "name", "state", "used", "of", "launches", "queued", "restarts");
    for (size_t i = 0; i < reply->n_devices; i++) {
        const Plasmon__V1__Device *device = reply->devices[i];
        bool gone = device->state == PLASMON__V1__DEVICE_STATE__DEVICE_STATE_GONE;

        printf("  %-4u %-5s %-16.16s %-28.28s %-8s %10s %10s %9llu %7llu %u\n",
               device->index,
               device->kind == 1   ? "cpu"
               : device->kind == 2 ? "cuda"
                                   : "?",
               device->node, device->name, status_device_state(device),
               gone ? "-" : pl_format_bytes(device->bytes_used, used),
               gone ? "-" : pl_format_bytes(device->bytes_total, total),
               (unsigned long long)device->launches, (unsigned long long)device->queued,
               device->restarts);
    }
}

static void print_routes(const Plasmon__V1__StatusReply *reply)
{
    char bytes[32];
    bool any = false;

    for (size_t i = 0; i < reply->n_routes; i++) {
        const Plasmon__V1__RouteStats *route = reply->routes[i];

        if (route->copies > 0) {
            printf("%s %s %llu copies, %s",
                   any ? "," : "\n  moved:", wire_route_name(route->route),
                   (unsigned long long)route->copies, pl_format_bytes(route->bytes, bytes));
            any = true;
        }
    }
    if (any) {
        printf("\n");
    }
}

static const char *duration(uint64_t ns, char out[32])
{
    double us = (double)ns / 1000;

    if (us < 1000) {
        (void)snprintf(out, 32, "%.0f us", us);
    } else if (us < 1e6) {
        (void)snprintf(out, 32, "%.1f ms", us / 1000);
    } else {
        (void)snprintf(out, 32, "%.1f s", us / 1e6);
    }
    return out;
}

/* Half of all, and 99 of 100, took no longer; to a bucket's width, for its bounds double. */
static void print_times(const Plasmon__V1__StatusReply *reply)
{
    static const char *const names[] = {
        "tasks",     "tasks until sent to a worker", "workers replaced",
        "transfers", "launches in a worker's queue", "a queue stood still:"};

    if (reply->n_histograms > 0) {
        printf("\n  %-32s %10s %9s %9s\n", "how long", "count", "p50", "p99");
    }
    for (size_t i = 0; i < reply->n_histograms; i++) {
        const Plasmon__V1__Histogram *one = reply->histograms[i];
        struct pl_histogram times;
        char name[64], half[32], most[32];

        if ((unsigned)one->of >= PL_COUNT(names)) {
            continue; /* of a later release */
        }
        wire_histogram_read(one, &times);
        (void)snprintf(
            name, sizeof(name), "%s%s%s", names[one->of],
            one->of == PLASMON__V1__TIME_OF__TIME_TRANSFER ? " by "
            : one->of == PLASMON__V1__TIME_OF__TIME_FRONT  ? " "
                                                           : "",
            one->of == PLASMON__V1__TIME_OF__TIME_TRANSFER ? wire_route_name(one->route)
            : one->of == PLASMON__V1__TIME_OF__TIME_FRONT  ? wire_wait_name(one->why)
                                                           : "");
        printf("  %-32s %10llu %9s %9s\n", name,
               (unsigned long long)pl_histogram_count(&times),
               duration(pl_histogram_quantile_ns(&times, 0.5), half),
               duration(pl_histogram_quantile_ns(&times, 0.99), most));
    }
}

static const char *plural(uint64_t count)
{
    return count == 1 ? "" : "s";
}

/* "3 of 8", or "3" where there is no quota. */
static const char *of_quota(uint64_t used, uint64_t quota, bool bytes, char out[64])
{
    char have[32], may[32];

    if (bytes) {
        (void)pl_format_bytes(used, have);
        (void)pl_format_bytes(quota, may);
    } else {
        (void)snprintf(have, sizeof(have), "%llu", (unsigned long long)used);
        (void)snprintf(may, sizeof(may), "%llu", (unsigned long long)quota);
    }
    (void)snprintf(out, 64, quota != 0 ? "%.28s of %.28s" : "%.28s", have, may);
    return out;
}

/* Nobody uses more than one as a rule, and then nobody wants to know. */
static void print_namespaces(const Plasmon__V1__StatusReply *reply)
{
    char bytes[64], tasks[64], sessions[64];

    if (reply->n_namespaces < 2 &&
        (reply->n_namespaces == 0 || strcmp(reply->namespaces[0]->name, "default") == 0)) {
        return;
    }
    printf("\n  %-20s %-24s %-20s %-16s %s\n", "namespace", "used", "tasks", "sessions",
           "refused");
    for (size_t i = 0; i < reply->n_namespaces; i++) {
        const Plasmon__V1__NamespaceStats *space = reply->namespaces[i];

        printf("  %-20s %-24s %-20s %-16s %llu\n", space->name,
               of_quota(space->bytes, space->bytes_quota, true, bytes),
               of_quota(space->tasks, space->tasks_quota, false, tasks),
               of_quota(space->sessions, space->sessions_quota, false, sessions),
               (unsigned long long)space->refused);
    }
}

static void print_reply(const Plasmon__V1__StatusReply *reply)
{
    size_t there = status_devices_there(reply);
    char bytes[32], gone[48] = "";

    if (there < reply->n_devices) {
        (void)snprintf(gone, sizeof(gone), " (%zu gone)", reply->n_devices - there);
    }
    printf("plasmon %s, epoch %016llx, up ", reply->version,
           (unsigned long long)reply->epoch);
    print_uptime(reply->uptime_ms);
    printf("\n  %llu node%s, %zu device%s%s, %llu client%s; policy %s, transfer %s\n",
           (unsigned long long)reply->nodes, plural(reply->nodes), there, plural(there),
           gone, (unsigned long long)reply->clients, plural(reply->clients), reply->policy,
           reply->transfer);
    printf("  %llu objects, %s; tasks: %llu queued, %llu done, %llu failed\n",
           (unsigned long long)reply->objects, pl_format_bytes(reply->object_bytes, bytes),
           (unsigned long long)reply->tasks_queued, (unsigned long long)reply->tasks_done,
           (unsigned long long)reply->tasks_failed);
    if (reply->n_devices > 0) {
        print_devices(reply);
    }
    if (there == 0) {
        printf(
            "\n  no device is up, or about to be: `plasmon nodes` has the nodes that left; "
            "`plasmon start --head` on the head's machine, or `plasmon start --address "
            "HOST:PORT` on others, starts a store\n");
    }
    print_routes(reply);
    print_times(reply);
    print_namespaces(reply);
}

static void print_json(const Plasmon__V1__StatusReply *reply)
{
    struct pl_str text;

    pl_str_init(&text);
    status_json(reply, &text);
    printf("%s\n", pl_str_text(&text));
    pl_str_finish(&text);
}

static int run(int argc, char **argv)
{
    return cli_show_status(&cli_status, argc, argv, print_reply, print_json);
}
