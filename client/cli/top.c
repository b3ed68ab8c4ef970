/*
 * `plasmon top`: what a cluster does now. The status again and again: what has grown since the last
 * one is a rate. Plain text, from the top of the terminal each time; into a file or a pipe one
 * after the other.
 */
#include <inttypes.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "client/cli/list.h"
#include "client/client_int.h"
#include "wire/metrics.h"
#include "client/doctor.h"
#include "kernels/kernels.h"

#define OLDEST_TOLD 5

struct top {
    struct cli_cluster cluster;
    const char *interval;
    uint32_t count;
};

static const struct cli_option options[] = {
    {"--interval", "S", CLI_TEXT, offsetof(struct top, interval),
     "seconds between two looks, 0.1 to 3600 [2]"},
    {"--count", "N", CLI_COUNT, offsetof(struct top, count),
     "end after so many [until ^C; 1 if the output is no terminal]"},
    CLI_CLUSTER_OPTIONS(struct top),
};

static int run(int argc, char **argv);
const struct cli_command cli_top = {
    .name    = "top",
    .summary = "what the cluster does now, again and again",
    .usage   = "[options]",
    .text = "Rates are of the time since the look before, so the first has none. head: CPU "
            "time of its own\n"
            "code; workers: of all of them, driver calls apart where they are counted "
            "(PLASMON_DRIVER_TIME).\n",
    .options      = options,
    .option_count = PL_COUNT(options),
    .run          = run,
};

/* What rates are made of; the look before lies in an arena that is gone. */
struct sample {
    uint64_t at_ns;
    uint64_t epoch;
    uint64_t tasks_done, tasks_failed;
    uint64_t core_ns, worker_ns;
    uint64_t route_bytes[8];
    /* uint64_t, by place in the list of devices, which only grows */
    struct pl_vec launches;
};

static void sample_take(const Plasmon__V1__StatusReply *reply, struct sample *out)
{
    out->at_ns        = pl_now_ns();
    out->epoch        = reply->epoch;
    out->tasks_done   = reply->tasks_done;
    out->tasks_failed = reply->tasks_failed;
    out->core_ns      = reply->core_ns;
    out->worker_ns    = reply->worker_cpu_ns;
    for (size_t i = 0; i < PL_COUNT(out->route_bytes); i++) {
        out->route_bytes[i] = 0;
    }
    for (size_t i = 0; i < reply->n_routes; i++) {
        if (reply->routes[i]->route < PL_COUNT(out->route_bytes)) {
            out->route_bytes[reply->routes[i]->route] = reply->routes[i]->bytes;
        }
    }
    pl_vec_clear(&out->launches);
    for (size_t i = 0; i < reply->n_devices; i++) {
        uint64_t *launches = pl_vec_push(&out->launches);

        if (launches != NULL) {
            *launches = reply->devices[i]->launches;
        }
    }
}

/* A second; 0 for the first look, for another head, and for what counts anew. */
static double rate(const struct sample *before, const struct sample *now, uint64_t was,
                   uint64_t is)
{
    return before->at_ns == 0 || before->epoch != now->epoch || is < was ||
                   now->at_ns <= before->at_ns
               ? 0.0
               : (double)(is - was) * 1e9 / (double)(now->at_ns - before->at_ns);
}

static double launch_rate(const struct sample *before, const struct sample *now,
                          size_t index)
{
    if (index >= before->launches.count || index >= now->launches.count) {
        return 0.0;
    }
    return rate(before, now, *(uint64_t *)pl_vec_at(&before->launches, index),
                *(uint64_t *)pl_vec_at(&now->launches, index));
}

/* What is first of a stream of the device, for the longest time. */
static void say_running(const Plasmon__V1__StatusReply *reply, uint32_t device,
                        struct pl_str *out)
{
    const Plasmon__V1__LaunchWait *longest = NULL;
    char age[32];

    for (size_t i = 0; reply->waits != NULL && i < reply->waits->n_launches; i++) {
        const Plasmon__V1__LaunchWait *launch = reply->waits->launches[i];

        if (launch->device == device && launch->stream != 0 &&
            (longest == NULL || launch->since_ms > longest->since_ms)) {
            longest = launch;
        }
    }
    if (longest != NULL) {
        pl_str_append(out, " %s%s%s, %s", longest->function,
                      longest->label[0] != '\0' ? " " : "", longest->label,
                      list_age(longest->since_ms, age));
    }
}

static void say_devices(const Plasmon__V1__StatusReply *reply, const struct sample *before,
                        const struct sample *now, struct pl_str *out)
{
    char used[32], total[32];

    pl_str_append(out, "\n  %-4s %-5s %-16s %-8s %10s %10s %8s %12s %s\n", "#", "kind",
                  "node", "state", "used", "of", "queued", "launches/s", "runs");
    for (size_t i = 0; i < reply->n_devices; i++) {
        const Plasmon__V1__Device *device = reply->devices[i];

        pl_str_append(out, "  %-4u %-5s %-16.16s %-8s %10s %10s %8" PRIu64 " %12.0f",
                      device->index,
                      device->kind == 1   ? "cpu"
                      : device->kind == 2 ? "cuda"
                                          : "?",
                      device->node, status_device_state(device),
                      pl_format_bytes(device->bytes_used, used),
                      pl_format_bytes(device->bytes_total, total), device->queued,
                      launch_rate(before, now, i));
        say_running(reply, device->index, out);
        pl_str_append(out, "\n");
    }
}

static void say_routes(const struct sample *before, const struct sample *now,
                       struct pl_str *out)
{
    bool any = false;
    char bytes[32];

    for (uint32_t i = 0; i < PL_COUNT(now->route_bytes); i++) {
        double moved = rate(before, now, before->route_bytes[i], now->route_bytes[i]);

        if (moved >= 1.0) {
            pl_str_append(out, "%s %s %s/s", any ? "," : "  moves:", wire_route_name(i),
                          pl_format_bytes((uint64_t)moved, bytes));
            any = true;
        }
    }
    pl_str_append(out, "%s", any ? "\n" : "");
}

static void say(const Plasmon__V1__StatusReply *reply, const struct sample *before,
                const struct sample *now, struct pl_str *out)
{
    char bytes[32], up[32];

    pl_str_append(
        out, "plasmon %s, up %s: nodes %" PRIu64 ", devices %zu, clients %" PRIu64 "\n",
        reply->version, list_age(reply->uptime_ms, up), reply->nodes,
        status_devices_there(reply), reply->clients);
    pl_str_append(out,
                  "  tasks: %" PRIu64 " unfinished, %.0f done/s, %.0f failed/s; %" PRIu64
                  " objects, %s\n",
                  reply->tasks_queued,
                  rate(before, now, before->tasks_done, now->tasks_done),
                  rate(before, now, before->tasks_failed, now->tasks_failed),
                  reply->objects, pl_format_bytes(reply->object_bytes, bytes));
    pl_str_append(out, "  CPU: head %.0f %%, workers %.0f %%\n",
                  rate(before, now, before->core_ns, now->core_ns) / 1e7,
                  rate(before, now, before->worker_ns, now->worker_ns) / 1e7);
    say_routes(before, now, out);
    say_devices(reply, before, now, out);
    if (reply->waits != NULL && reply->tasks_queued > 0) {
        pl_str_append(out, "\n");
        doctor_say_oldest(reply, OLDEST_TOLD, true, out);
    }
}

/* false: it is printed why not. */
static bool look(struct plasmon_client *client, bool terminal, bool first,
                 struct sample *before, struct sample *now)
{
    Plasmon__V1__StatusReply *reply;
    struct wire_arena arena;
    struct pl_str text;

    if (client_status(client, CLIENT_STATUS_WAITS, &arena, &reply) != PLASMON_OK) {
        (void)cli_fail(&cli_top, "%s", plasmon_error(client));
        return false;
    }
    pl_str_init(&text);
    sample_take(reply, now);
    say(reply, before, now, &text);
    printf("%s%s", terminal ? "\033[H\033[J" : first ? "" : "\n", pl_str_text(&text));
    (void)fflush(stdout);
    pl_str_finish(&text);
    wire_arena_finish(&arena);
    return true;
}

static int watch(struct plasmon_client *client, double seconds, uint32_t count,
                 bool terminal)
{
    const struct timespec pause = {.tv_sec = (time_t)seconds,
                                   .tv_nsec =
                                       (long)((seconds - (double)(time_t)seconds) * 1e9)};
    struct sample samples[2]    = {{.launches = PL_VEC_INIT(uint64_t)},
                                   {.launches = PL_VEC_INIT(uint64_t)}};
    bool good                   = true;

    for (uint32_t i = 0; good && (count == 0 || i < count); i++) {
        if (i > 0) {
            (void)nanosleep(&pause, NULL);
        }
        good = look(client, terminal, i == 0, &samples[(i + 1) % 2], &samples[i % 2]);
    }
    pl_vec_finish(&samples[0].launches);
    pl_vec_finish(&samples[1].launches);
    return good ? CLI_OK : CLI_FAIL;
}

static int run(int argc, char **argv)
{
    struct top top           = {.interval = "2", .count = UINT32_MAX};
    struct cli_parsed parsed = cli_parse(&cli_top, argc, argv, &top);
    bool terminal            = isatty(STDOUT_FILENO) == 1;
    struct plasmon_client *client;
    double seconds;
    char rest;
    int result;

    if (parsed.exit >= 0) {
        return parsed.exit;
    }
    if (sscanf(top.interval, "%lf%c", &seconds, &rest) != 1 ||
        !(seconds >= 0.1 && seconds <= 3600)) {
        return cli_usage(&cli_top, "--interval wants 0.1 to 3600 seconds and not \"%s\"",
                         top.interval);
    }
    if (top.count == 0) {
        return cli_usage(&cli_top, "--count wants 1 or more: without it, until ^C");
    }
    if (top.count == UINT32_MAX) {
        top.count = terminal ? 0 : 1;
    }
    client = cli_ask(&cli_top, &top.cluster);
    if (client == NULL) {
        return CLI_FAIL;
    }
    result = watch(client, seconds, top.count, terminal);
    plasmon_finish(client);
    return result;
}
