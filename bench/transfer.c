/*
 * `plasmon bench transfer`: objects from device to device, by the peer and by the host route. Three shapes:
 *
 *   new      every object is made on device 0 and read by a task on device 1, so it moves once; 8 in flight (--in-flight)
 *   many     one object, read by a task on every other device at once
 *   latency  one object, one reader: from the call to its end
 *
 * Beside each stands what the same bytes take without Plasmon (raw_copy.c), in the same run. A route is a property of a
 * cluster, so there is one cluster a route; the head's counters must say that the bytes went that way.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "bench/bench.h"

#define IN_FLIGHT   8u /* by default */
#define OBJECTS_MAX 256u
#define ROUNDS      5u
#define COMPARE_MAX \
    (64u << 20) /* up to here bytes are compared here; above, checksums of both devices */

struct transfer_options {
    const char *sizes;
    const char *routes;
    bool large;
    const char *gpus;
    uint32_t cpu_devices;
    uint32_t in_flight;
    const char *json;
    const char *plot;
};

#define OPTION(field) offsetof(struct transfer_options, field)
static const struct cli_option options[] = {
    {"--sizes", "LIST", CLI_TEXT, OPTION(sizes),
     "bytes, with K, M or G [4,4K,150000,1M,16M,100M,1G]; what does not fit is left out"},
    {"--routes", "LIST", CLI_TEXT, OPTION(routes), "peer, host or both [peer,host]"},
    {"--large", NULL, CLI_FLAG, OPTION(large), "10 GiB too"},
    {"--gpus", "N", CLI_TEXT, OPTION(gpus), "GPUs: a number or none [all]"},
    {"--cpu-devices", "N", CLI_COUNT, OPTION(cpu_devices),
     "CPU devices where there is no GPU [2]"},
    {"--in-flight", "N", CLI_COUNT, OPTION(in_flight), "new objects moving at a time [8]"},
    {"--json", "FILE", CLI_TEXT, OPTION(json), "write the results as JSON"},
    {"--plot", "FILE.svg", CLI_TEXT, OPTION(plot), "draw bytes per second over sizes"},
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

struct transfer {
    struct bench_cluster cluster;
    struct bench_report report;
    struct bench_raw_copy raw;
    double result[BENCH_SIZES_MAX * BENCH_RAW_FIGURES];
    const char *route;
    uint32_t in_flight;
};

/* ------------------------------------------------------------------------------------------------ objects and readers */

static struct plasmon_ref *make(struct transfer *transfer, uint64_t bytes, double start)
{
    const struct plasmon_shape shape = bench_shape(PLASMON_F32, 1, (int64_t)(bytes / 4), 0);
    const plasmon_scalar_t scalars[2] = {{.f = start}, {.f = 1}};

    return bench_must_make(&transfer->cluster, "arange", &shape, scalars, 2, 0);
}

/* Objects that fit into a quarter of a device, so that nothing is ever moved out of the way. */
static uint32_t objects_of(const struct transfer *transfer, uint64_t bytes)
{
    uint64_t room = transfer->cluster.info[0].bytes_total / 4;
    uint64_t fit  = pl_min_u64(room, 8ull << 30) / bytes;

    return (uint32_t)pl_max_u64(1, pl_min_u64(OBJECTS_MAX, fit));
}

/* ------------------------------------------------------------------------------------------------ right before fast */

static struct plasmon_ref *on_device(struct transfer *transfer, const char *function,
                                     struct plasmon_ref *in, int device)
{
    const struct plasmon_arg args[2] = {{.mode = PLASMON_OUT},
                                        {.mode = PLASMON_IN, .ref = in}};
    struct plasmon_call call         = PLASMON_CALL_INIT;
    struct plasmon_ref *out;

    call.function  = function;
    call.args      = args;
    call.arg_count = 2;
    call.device    = device;
    bench_must(&transfer->cluster,
               plasmon_submit(transfer->cluster.client, &call, &out, NULL), function);
    return out;
}

static uint64_t checksum_on(struct transfer *transfer, struct plasmon_ref *ref, int device)
{
    struct plasmon_ref *sum = on_device(transfer, "checksum", ref, device);
    uint64_t value;

    bench_must(
        &transfer->cluster,
        plasmon_get(transfer->cluster.client, sum, &value, sizeof(value), PLASMON_FOREVER),
        "getting a checksum");
    bench_must_release(&transfer->cluster, &sum, 1);
    return value;
}

static void check_bytes(struct transfer *transfer, struct plasmon_ref *ref, uint64_t bytes)
{
    struct plasmon_ref *copy = on_device(transfer, "copy", ref, 1);
    float *got               = bench_must_alloc(bytes);

    bench_must(&transfer->cluster,
               plasmon_get(transfer->cluster.client, copy, got, bytes, PLASMON_FOREVER),
               "getting");
    for (uint64_t i = 0; i < bytes / 4; i++) {
        float want = (float)(3.0 + (double)i);

        if (memcmp(&got[i], &want, sizeof(want)) != 0) {
            bench_die("route %s, %llu bytes: element %llu is %g and not %g",
                      transfer->route, (unsigned long long)bytes, (unsigned long long)i,
                      (double)got[i], (double)want);
        }
    }
    pl_free(got);
    bench_must_release(&transfer->cluster, &copy, 1);
}

static void check(struct transfer *transfer, uint64_t bytes)
{
    struct plasmon_ref *ref = make(transfer, bytes, 3);

    if (bytes <= COMPARE_MAX) {
        check_bytes(transfer, ref, bytes);
    } else {
        uint64_t here  = checksum_on(transfer, ref, 0),
                 there = checksum_on(transfer, ref, 1);

        if (here != there) {
            bench_die("route %s, %llu bytes: other bytes arrived than were sent",
                      transfer->route, (unsigned long long)bytes);
        }
    }
    bench_must_release(&transfer->cluster, &ref, 1);
}

/* ------------------------------------------------------------------------------------------------ the three shapes */

/* Seconds for `count` new objects, in_flight of them moving at any time. */
static double move_new(struct transfer *transfer, struct plasmon_ref **refs, uint32_t count,
                       uint64_t bytes)
{
    struct plasmon_ref *tasks[OBJECTS_MAX];
    uint64_t began;
    double seconds;

    for (uint32_t i = 0; i < count; i++) {
        refs[i] = make(transfer, bytes, i);
    }
    bench_must_wait(&transfer->cluster, refs, count);
    began = pl_now_ns();
    for (uint32_t i = 0; i < count; i++) {
        if (i >= transfer->in_flight) {
            bench_must_wait(&transfer->cluster, &tasks[i - transfer->in_flight], 1);
        }
        tasks[i] = bench_must_touch(&transfer->cluster, refs[i], 1);
    }
    bench_must_wait(&transfer->cluster, tasks, count);
    seconds = (double)(pl_now_ns() - began) * 1e-9;
    bench_must_release(&transfer->cluster, tasks, count);
    bench_must_release(&transfer->cluster, refs, count);
    return seconds;
}

/* One object to the devices 1 .. last. */
static double move_one(struct transfer *transfer, uint32_t last, uint64_t bytes)
{
    struct plasmon_ref *tasks[PL_COUNT(transfer->cluster.info)];
    struct plasmon_ref *ref = make(transfer, bytes, 1);
    uint64_t began;
    double seconds;

    bench_must_wait(&transfer->cluster, &ref, 1);
    began = pl_now_ns();
    for (uint32_t i = 1; i <= last; i++) {
        tasks[i - 1] = bench_must_touch(&transfer->cluster, ref, (int)i);
    }
    bench_must_wait(&transfer->cluster, tasks, last);
    seconds = (double)(pl_now_ns() - began) * 1e-9;
    bench_must_release(&transfer->cluster, tasks, last);
    bench_must_release(&transfer->cluster, &ref, 1);
    return seconds;
}

static void add(struct transfer *transfer, const char *shape, uint64_t bytes, double value,
                double p99, const char *unit, double limit, const char *limit_name,
                const char *note)
{
    struct bench_row row = {.x          = (double)bytes,
                            .value      = value,
                            .p99        = p99,
                            .unit       = unit,
                            .limit      = limit > 0 ? limit : 0,
                            .limit_name = limit_name};

    (void)snprintf(row.name, sizeof(row.name), "%s", shape);
    (void)snprintf(row.series, sizeof(row.series), "%s, %s", transfer->route, shape);
    (void)snprintf(row.note, sizeof(row.note), "%s", note);
    bench_report_add(&transfer->report, &row);
}

static void measure_new(struct transfer *transfer, uint64_t bytes, double raw_seconds)
{
    uint32_t count            = objects_of(transfer, bytes);
    struct plasmon_ref **refs = bench_must_alloc(count * sizeof(struct plasmon_ref *));
    double seconds[ROUNDS], gigabytes = (double)bytes * 1e-9;
    char note[64];

    (void)move_new(transfer, refs, count, bytes);
    for (size_t i = 0; i < ROUNDS; i++) {
        seconds[i] = move_new(transfer, refs, count, bytes);
    }
    (void)snprintf(note, sizeof(note), "%u objects", count);
    add(transfer, "new object each time", bytes,
        gigabytes * count / bench_percentile(seconds, ROUNDS, 0.5), 0, "GB/s",
        gigabytes / raw_seconds, "raw copies in a row", note);
    pl_free(refs);
}

static void measure_one(struct transfer *transfer, uint64_t bytes, const double *result)
{
    bool peer        = strcmp(transfer->route, "peer") == 0;
    uint32_t last    = transfer->cluster.devices - 1;
    uint32_t samples = bytes <= (1u << 20) ? 200 : bytes <= (100u << 20) ? 20 : ROUNDS;
    double seconds[200], p99;

    for (uint32_t i = 0; i < samples; i++) {
        seconds[i] = move_one(transfer, 1, bytes);
    }
    p99 = samples >= 100 ? bench_percentile(seconds, samples, 0.99) * 1e6 : 0;
    add(transfer, "single latency", bytes, bench_percentile(seconds, samples, 0.5) * 1e6,
        p99, "us", result[peer ? BENCH_RAW_PEER_LATENCY : BENCH_RAW_HOST_LATENCY] * 1e6,
        "one raw copy", "from the call to its end");
    if (last < 2) {
        return;
    }
    for (uint32_t i = 0; i < samples; i++) {
        seconds[i] = move_one(transfer, last, bytes);
    }
    add(transfer, "one to all devices", bytes,
        (double)bytes * last * 1e-9 / bench_percentile(seconds, samples, 0.5), 0, "GB/s",
        peer ? (double)bytes * last * 1e-9 / result[BENCH_RAW_PEER_MANY] : 0,
        "raw copies to all at once", "bytes that arrived, all devices");
}

/* ------------------------------------------------------------------------------------------------ routes */

static void check_route(struct transfer *transfer)
{
    struct bench_status status;
    bool peer = strcmp(transfer->route, "peer") == 0;

    bench_must_status(&transfer->cluster, &status);
    if ((peer ? status.peer_copies : status.host_copies) == 0 ||
        (peer ? status.host_copies : status.peer_copies) > 0) {
        bench_report_remark(
            &transfer->report,
            "route %s: the head counted %llu peer and %llu host copies: the "
            "figures are not of this route alone",
            transfer->route, (unsigned long long)status.peer_copies,
            (unsigned long long)status.host_copies);
    }
}

static void measure_route(struct transfer *transfer,
                          const struct bench_cluster_config *config)
{
    bool peer = strcmp(transfer->route, "peer") == 0;

    bench_must_start(&transfer->cluster, config);
    if (transfer->cluster.devices < 2) {
        bench_die("a transfer needs two devices; the cluster has one");
    }
    for (uint32_t i = 0; i < transfer->raw.size_count; i++) {
        const double *result = &transfer->result[i * BENCH_RAW_FIGURES];
        uint64_t bytes       = transfer->raw.size[i];
        char size[32];

        if (bytes > transfer->cluster.info[0].bytes_total / 4) {
            bench_report_remark(&transfer->report,
                                "route %s: %s is more than a quarter of a device",
                                transfer->route, pl_format_bytes(bytes, size));
            continue;
        }
        check(transfer, bytes);
        measure_new(transfer, bytes, result[peer ? BENCH_RAW_PEER : BENCH_RAW_HOST]);
        measure_one(transfer, bytes, result);
    }
    check_route(transfer);
    bench_cluster_finish(&transfer->cluster);
}

/* ------------------------------------------------------------------------------------------------ the command */

/* "4,4K,1M": false when it is something else. */
static bool parse_sizes(const char *text, struct bench_raw_copy *out)
{
    while (*text != '\0') {
        char *end;
        unsigned long long number = strtoull(text, &end, 10);

        if (end == text || *text == '-' || out->size_count == BENCH_SIZES_MAX) {
            return false;
        }
        switch (*end) {
        case 'K':
            number <<= 10, end++;
            break;
        case 'M':
            number <<= 20, end++;
            break;
        case 'G':
            number <<= 30, end++;
            break;
        default:
            break;
        }
        if (number < 4 || number % 4 != 0 || (*end != ',' && *end != '\0')) {
            return false;
        }
        out->size[out->size_count++] = number;
        text                         = *end == ',' ? end + 1 : end;
    }
    return out->size_count > 0;
}

/* A yardstick that does not fit needs no room: drop those sizes at once. */
static void drop_sizes(struct transfer *transfer, uint64_t bytes_max)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < transfer->raw.size_count; i++) {
        char size[32];

        if (transfer->raw.size[i] <= bytes_max) {
            transfer->raw.size[kept++] = transfer->raw.size[i];
        } else {
            bench_report_remark(&transfer->report, "%s: too large for this machine",
                                pl_format_bytes(transfer->raw.size[i], size));
        }
    }
    transfer->raw.size_count = kept;
}

/* How many devices the cluster will have; the raw copies use as many. */
static void plan_devices(struct transfer *transfer, const struct transfer_options *given,
                         struct bench_cluster_config *out_config)
{
    uint32_t gpus = bench_machine_gpus();

    if (given->gpus != NULL) {
        gpus = strcmp(given->gpus, "none") == 0
                   ? 0
                   : (uint32_t)pl_min_u64(gpus, strtoul(given->gpus, NULL, 10));
    }
    transfer->raw.cuda = gpus >= 2;
    if (transfer->raw.cuda) {
        out_config->gpus      = given->gpus != NULL ? given->gpus : "auto";
        transfer->raw.devices = gpus;
        return;
    }
    out_config->gpus        = "none";
    out_config->cpu_devices = given->cpu_devices > 0 ? given->cpu_devices : 2;
    transfer->raw.devices   = out_config->cpu_devices;
    drop_sizes(transfer, 1ull << 30);
}

static void measure_routes(struct transfer *transfer, const struct transfer_options *given,
                           struct bench_cluster_config *config)
{
    static const char *const routes[] = {"peer", "host"};

    bench_say("raw copies");
    bench_must_run_raw(bench_raw_copy_run, &transfer->raw, transfer->result,
                       (size_t)transfer->raw.size_count * BENCH_RAW_FIGURES);
    for (size_t i = 0; i < PL_COUNT(routes); i++) {
        if (given->routes == NULL || strstr(given->routes, routes[i]) != NULL) {
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
                                           .y_label    = "moved (GB/s)",
                                           .x_is_bytes = true};
    struct transfer_options given       = {.sizes = "4,4K,150000,1M,16M,100M,1G"};
    struct cli_parsed parsed            = cli_parse(&bench_transfer, argc, argv, &given);
    struct bench_cluster_config config  = {0};
    struct transfer transfer            = {0};
    bool ok;

    if (parsed.exit >= 0) {
        return parsed.exit;
    }
    if (!parse_sizes(given.sizes, &transfer.raw)) {
        return cli_usage(
            &bench_transfer,
            "--sizes is a list of multiples of 4 with K, M or G, and not \"%s\"",
            given.sizes);
    }
    if (given.routes != NULL && strstr(given.routes, "peer") == NULL &&
        strstr(given.routes, "host") == NULL) {
        return cli_usage(&bench_transfer, "--routes is peer, host or both, and not \"%s\"",
                         given.routes);
    }
    if (given.large && transfer.raw.size_count < BENCH_SIZES_MAX) {
        transfer.raw.size[transfer.raw.size_count++] = 10ull << 30;
    }
    transfer.in_flight = given.in_flight > 0 ? given.in_flight : IN_FLIGHT;
    bench_report_init(&transfer.report, "Plasmon: transfers between devices");
    transfer.report.x_title = "size";
    plan_devices(&transfer, &given, &config);
    if (transfer.raw.size_count == 0 || transfer.raw.devices < 2) {
        return cli_fail(&bench_transfer, "it needs two devices and a size that fits");
    }
    measure_routes(&transfer, &given, &config);

    bench_report_print(&transfer.report);
    ok = bench_report_write_json(&transfer.report, given.json);
    ok &= bench_plot_write(&plot, &transfer.report, "GB/s", given.plot);
    bench_report_finish(&transfer.report);
    return ok ? CLI_OK : CLI_FAIL;
}
