/*
 * `plasmon bench transfer`: objects from device to device, by the peer and by the host route, in
 * the shapes of transfer_shapes.c.
 *
 * Beside each stands what the same bytes take without Plasmon (raw_copy.c), in the same run. A
 * route is a property of a cluster, so there is one cluster a route; the head's counters must say
 * that the bytes went that way.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/ram.h"
#include "bench/transfer.h"

#define IN_FLIGHT    8u /* by default */
#define CROSSING_MAX 4096u

struct transfer_options {
    const char *sizes;
    const char *routes;
    bool large;
    const char *gpus;
    uint32_t cpu_devices;
    uint32_t in_flight;
    uint32_t crossing;
    const char *json;
    const char *plot;
};

#define OPTION(field) offsetof(struct transfer_options, field)
static const struct cli_option options[] = {
    {"--sizes", "LIST", CLI_TEXT, OPTION(sizes),
     "bytes, with K, M or G [4,4K,150000,1M,16M,100M,1G]; what does not fit is left out"},
    {"--routes", "LIST", CLI_TEXT, OPTION(routes), "of peer, host and nccl [peer,host]"},
    {"--large", NULL, CLI_FLAG, OPTION(large), "10 GiB too"},
    {"--gpus", "N", CLI_TEXT, OPTION(gpus),
     "GPUs: a number, all or none [all, if there are two]"},
    {"--cpu-devices", "N", CLI_COUNT, OPTION(cpu_devices),
     "CPU devices where there is no GPU [2]"},
    {"--in-flight", "N", CLI_COUNT, OPTION(in_flight), "new objects moving at a time [8]"},
    {"--crossing", "N", CLI_COUNT, OPTION(crossing),
     "objects of a series both ways and all to all, up to 4096 that fit [256; GPUs: 1024]"},
    {"--json", "FILE", CLI_OUTPUT, OPTION(json), "write the results as JSON"},
    {"--plot", "FILE.svg", CLI_OUTPUT, OPTION(plot), "draw bytes per second over sizes"},
};

static int run_transfer(int argc, char **argv);
const struct cli_command bench_transfer = {
    .name         = "bench transfer",
    .summary      = "objects between devices, by each route; beside them raw copies",
    .usage        = "[options]",
    .text         = "Always in private clusters on this machine: one for each route.",
    .options      = options,
    .option_count = PL_COUNT(options),
    .run          = run_transfer,
};

/* ------------------------------------------------------------------------------- routes */

static void check_route(struct transfer *transfer)
{
    struct bench_status status;

    bench_must_status(&transfer->cluster, &status);
    if (!bench_all_by(&status, transfer->route)) {
        bench_report_remark(
            &transfer->report,
            "route %s: the head counted %llu peer, %llu host and %llu NCCL copies: the "
            "figures are not of this route alone",
            transfer->route, (unsigned long long)status.peer_copies,
            (unsigned long long)status.host_copies, (unsigned long long)status.nccl_copies);
    }
}

/* A device has an object, what it becomes there, and others on their way. */
static uint64_t size_max(uint64_t device_bytes)
{
    return device_bytes / 4;
}

static void measure_route(struct transfer *transfer,
                          const struct bench_cluster_config *config)
{
    bench_must_start(&transfer->cluster, config);
    if (transfer->cluster.devices < 2) {
        bench_die("a transfer needs two devices; the cluster has one");
    }
    transfer_settle(transfer);
    for (uint32_t i = 0; i < transfer->raw.size_count; i++) {
        const double *raw = &transfer->result[i * BENCH_RAW_FIGURES];
        uint64_t bytes    = transfer->raw.size[i];
        uint64_t fits     = size_max(transfer->cluster.info[0].bytes_total);
        char size[32], most[32];

        if (bytes > fits) {
            bench_report_remark(
                &transfer->report,
                "route %s: %s is left out: a quarter of a device, here %s, is "
                "the most that fits",
                transfer->route, pl_format_bytes(bytes, size), pl_format_bytes(fits, most));
            continue;
        }
        transfer_check(transfer, bytes);
        transfer_measure_new(transfer, bytes, raw);
        transfer_measure_latency(transfer, bytes, raw);
        transfer_measure_duplex(transfer, bytes, raw);
        if (transfer->cluster.devices > 2) {
            transfer_measure_many(transfer, bytes, raw);
            transfer_measure_all(transfer, bytes, raw);
        }
        if (strcmp(transfer->route, "peer") == 0) {
            transfer_show_words(transfer, bytes, raw);
        }
    }
    check_route(transfer);
    bench_cluster_finish(&transfer->cluster);
}

/* -------------------------------------------------------------------------- the command */

/*
 * Of CPU devices, which have a quarter of the memory between them: what does not fit there needs no
 * yardstick, which would take as much again.
 */
static void drop_sizes(struct transfer *transfer, uint32_t devices)
{
    uint64_t device_bytes = pl_ram().total / 4 / devices;
    uint32_t kept         = 0;

    for (uint32_t i = 0; i < transfer->raw.size_count; i++) {
        char size[32], fits[32], memory[32], needed[32];

        if (transfer->raw.size[i] <= size_max(device_bytes)) {
            transfer->raw.size[kept++] = transfer->raw.size[i];
        } else {
            bench_report_remark(
                &transfer->report,
                "%s is left out: %s at most fit %u CPU devices with a quarter of %s of "
                "memory "
                "(a device has four objects at once); it needs %s, or GPUs",
                pl_format_bytes(transfer->raw.size[i], size),
                pl_format_bytes(size_max(device_bytes), fits), devices,
                pl_format_bytes(pl_ram().total, memory),
                pl_format_bytes(transfer->raw.size[i] * 16 * devices, needed));
        }
    }
    transfer->raw.size_count = kept;
}

/* What --gpus says was looked at. */
static uint32_t wanted_gpus(const char *given)
{
    if (given == NULL || strcmp(given, "all") == 0) {
        return bench_machine_gpus();
    }
    return (uint32_t)strtoul(given, NULL, 10); /* none: 0 */
}

/* Whoever names GPUs wants no figures of something else. -1, or what to exit with. */
static int check_gpus(const char *given)
{
    uint32_t there = bench_machine_gpus();
    unsigned long count;
    char *end;

    if (given == NULL || strcmp(given, "none") == 0) {
        return -1;
    }
    count = strtoul(given, &end, 10);
    if (strcmp(given, "all") == 0) {
        count = there;
    } else if (!isdigit((unsigned char)given[0]) || *end != '\0' || count < 2) {
        return cli_usage(&bench_transfer,
                         "--gpus is a number from 2 on, all or none, and not \"%s\"",
                         given);
    }
    if (count < 2 || count > there) {
        return cli_fail(&bench_transfer,
                        "--gpus %s: the machine has %u, and a transfer needs two; "
                        "`plasmon doctor` says why, and --gpus none goes without",
                        given, there);
    }
    return -1;
}

/* How many devices the cluster will have; the raw copies use as many. */
static void plan_devices(struct transfer *transfer, const struct transfer_options *given,
                         struct bench_cluster_config *out_config)
{
    uint32_t gpus = wanted_gpus(given->gpus);

    transfer->raw.cuda = gpus >= 2;
    if (transfer->raw.cuda) {
        out_config->gpus = given->gpus != NULL && isdigit((unsigned char)given->gpus[0])
                               ? given->gpus
                               : "auto";
        transfer->raw.devices = gpus;
        return;
    }
    out_config->gpus        = "none";
    out_config->cpu_devices = given->cpu_devices > 0 ? given->cpu_devices : 2;
    transfer->raw.devices   = out_config->cpu_devices;
    drop_sizes(transfer, out_config->cpu_devices);
}

/* Into the same table of figures. Without NCCL there is no route to measure either. */
static void measure_raw_nccl(struct transfer *transfer)
{
    static double result[BENCH_SIZES_MAX * BENCH_RAW_FIGURES];
    struct pl_err err = {0};

    bench_say("raw NCCL");
    if (bench_run_raw(bench_raw_nccl_run, &transfer->raw, result,
                      (size_t)transfer->raw.size_count * BENCH_RAW_FIGURES,
                      &err) != PLASMON_OK) {
        bench_die("route nccl: %s", err.text);
    }
    for (uint32_t i = 0; i < transfer->raw.size_count; i++) {
        for (uint32_t k = BENCH_RAW_NCCL; k <= BENCH_RAW_NCCL_ALL; k++) {
            transfer->result[i * BENCH_RAW_FIGURES + k] = result[i * BENCH_RAW_FIGURES + k];
        }
    }
}

static void measure_routes(struct transfer *transfer, const struct transfer_options *given,
                           struct bench_cluster_config *config)
{
    static const char *const routes[] = {"peer", "host", "nccl"};

    bench_say("raw copies");
    bench_must_run_raw(bench_raw_copy_run, &transfer->raw, transfer->result,
                       (size_t)transfer->raw.size_count * BENCH_RAW_FIGURES);
    if (cli_list_has(given->routes, "nccl")) {
        measure_raw_nccl(transfer);
    }
    for (size_t i = 0; i < PL_COUNT(routes); i++) {
        if (cli_list_has(given->routes, routes[i])) {
            bench_say("route %s", routes[i]);
            transfer->route  = routes[i];
            config->transfer = routes[i];
            measure_route(transfer, config);
        }
    }
}

static int run_transfer(int argc, char **argv)
{
    static const struct bench_plot plot = {.title      = "Objects from device to device",
                                           .x_label    = "size of an object",
                                           .y_label    = "moved a second",
                                           .x_is_bytes = true,
                                           .rows       = TRANSFER_NEW};
    struct transfer_options given       = {.sizes  = "4,4K,150000,1M,16M,100M,1G",
                                           .routes = "peer,host"};
    struct cli_parsed parsed            = cli_parse(&bench_transfer, argc, argv, &given);
    struct bench_cluster_config config  = {0};
    struct transfer transfer            = {0};
    bool ok;

    if (parsed.exit < 0) {
        parsed.exit = check_gpus(given.gpus);
    }
    if (parsed.exit >= 0) {
        return parsed.exit;
    }
    transfer.raw.size_count = bench_parse_sizes(given.sizes, transfer.raw.size);
    if (transfer.raw.size_count == 0) {
        return cli_usage(
            &bench_transfer,
            "--sizes is a list of multiples of 4 with K, M or G, and not \"%s\"",
            given.sizes);
    }
    if (!cli_list_is_of(given.routes, "peer,host,nccl")) {
        return cli_usage(&bench_transfer,
                         "--routes is of peer, host and nccl, and not \"%s\"",
                         given.routes);
    }
    if (given.large && transfer.raw.size_count < BENCH_SIZES_MAX) {
        transfer.raw.size[transfer.raw.size_count++] = 10ull << 30;
    }
    transfer.to        = 1;
    transfer.in_flight = given.in_flight > 0 ? given.in_flight : IN_FLIGHT;
    bench_report_init(&transfer.report, "Plasmon: transfers between devices");
    transfer.report.x_title = "size";
    plan_devices(&transfer, &given, &config);
    transfer.crossing = given.crossing > 0
                            ? (uint32_t)pl_min_u64(given.crossing, CROSSING_MAX)
                        : transfer.raw.cuda ? TRANSFER_CROSSING_GPUS
                                            : TRANSFER_CROSSING;
    if (transfer.raw.size_count == 0 || transfer.raw.devices < 2) {
        return cli_fail(&bench_transfer, "it needs two devices and a size that fits");
    }
    bench_report_remark(
        &transfer.report,
        "new objects: %u in flight; both ways and all to all: all of them, as of "
        "the bare loops, which have all of their up to 200 in the device's queue",
        transfer.in_flight);
    measure_routes(&transfer, &given, &config);

    bench_report_print(&transfer.report);
    ok = bench_report_write_json(&transfer.report, given.json);
    ok &= bench_plot_write(&plot, &transfer.report, "GB/s", given.plot);
    bench_report_finish(&transfer.report);
    return ok ? CLI_OK : CLI_FAIL;
}
