/*
 * `plasmon bench remote`: puts and gets of a program on one host and a device on another, over the
 * bulk channel and, for comparison, in messages through the head. Beside each stands the same over
 * raw TCP (raw_tcp.c), measured in turns with it.
 *
 *   other host     plasmon bench remote --serve 10.0.0.2:7200
 *   this one       PLASMON_ADDRESS=10.0.0.1:7070 plasmon bench remote --raw 10.0.0.2:7200
 *
 * With --between A,B also objects that tasks make on device A and read on device B, of different
 * hosts (remote_between.c), and with --tls the same beside it in a second cluster, which encrypts.
 *
 * On one machine too, with a cluster whose workers listen (--bulk-address 127.0.0.1): then both
 * sides share its cores, and raw TCP is that of the loopback. TLS is what the cluster uses and
 * PLASMON_TLS_* allow; the yardstick is in the clear either way.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "bench/raw_tcp.h"
#include "bench/remote.h"

#define OPTION(field) offsetof(struct remote_options, field)
static const struct cli_option options[] = {
    {"--sizes", "LIST", CLI_TEXT, OPTION(sizes), "bytes, with K, M or G [1M,16M,256M]"},
    {"--device", "N", CLI_COUNT, OPTION(device), "put there and get from there [0]"},
    {"--paths", "WHICH", CLI_TEXT, OPTION(paths),
     "of a program's puts and gets: bulk, messages, both or none [both]"},
    {"--between", "A,B", CLI_TEXT, OPTION(between),
     "objects from device A to device B too; --raw is on B's host then, and this on A's"},
    {"--tls", "ADDRESS:PORT", CLI_TEXT, OPTION(tls),
     "with --between: the same in a second cluster on these hosts, which encrypts"},
    {"--raw", "ADDRESS:PORT", CLI_TEXT, OPTION(raw),
     "where --serve runs, on that device's host [a process of its own on this machine]"},
    {"--serve", "ADDRESS:PORT", CLI_TEXT, OPTION(serve),
     "be the other end of raw TCP, until ended"},
    {"--rounds", "N", CLI_COUNT, OPTION(rounds), "of which the median counts [7]"},
    {"--json", "FILE", CLI_OUTPUT, OPTION(json), "write the results as JSON"},
};

static int run_remote(int argc, char **argv);
const struct cli_command bench_remote = {
    .name         = "bench remote",
    .summary      = "puts and gets from another host; beside them raw TCP",
    .usage        = "[options]",
    .text         = "Of the cluster that PLASMON_ADDRESS names. See docs/measurements.md.",
    .options      = options,
    .option_count = PL_COUNT(options),
    .run          = run_remote,
};

/* ---------------------------------------------------------------------------- measuring */

static void round_trip(struct remote *remote, uint64_t bytes, double *out_put,
                       double *out_get)
{
    struct bench_cluster *cluster    = &remote->cluster;
    const struct plasmon_shape shape = bench_shape(PLASMON_U8, 1, (int64_t)bytes, 0);
    struct plasmon_put_options where = PLASMON_PUT_INIT;
    struct plasmon_ref *ref;
    uint64_t began;

    where.device = (int)remote->given->device;
    /* so that an old copy is not mistaken for the new one */
    remote->src[bytes / 2] ^= 0x55;
    remote->dst[bytes / 2] = 0;
    began                  = pl_now_ns();
    bench_must(cluster, plasmon_put(cluster->client, remote->src, &shape, &where, &ref),
               "putting");
    bench_must_wait(cluster, &ref, 1);
    *out_put = (double)(pl_now_ns() - began) * 1e-9;
    began    = pl_now_ns();
    bench_must(cluster,
               plasmon_get(cluster->client, ref, remote->dst, bytes, PLASMON_FOREVER),
               "getting");
    *out_get = (double)(pl_now_ns() - began) * 1e-9;
    if (memcmp(remote->src, remote->dst, bytes) != 0) {
        bench_die("a get of %llu bytes gave other bytes than were put",
                  (unsigned long long)bytes);
    }
    bench_must_release(cluster, &ref, 1);
}

static void add_row(struct remote *remote, bool put, uint64_t bytes, double *seconds,
                    double *raw)
{
    bool bulk            = strcmp(remote->path, "bulk") == 0;
    uint32_t rounds      = remote->given->rounds;
    struct bench_row row = {
        .x = (double)bytes, .unit = "GB/s", .limit_name = "raw TCP, a MiB a call"};

    row.value = (double)bytes * 1e-9 / bench_percentile(seconds, rounds, 0.5);
    row.limit = (double)bytes * 1e-9 / bench_percentile(raw, rounds, 0.5);
    (void)snprintf(row.name, sizeof(row.name), "%s_%s%s", put ? "put" : "get", remote->path,
                   bulk && remote->tls ? "_tls" : "");
    (void)snprintf(row.series, sizeof(row.series), "%s", row.name);
    if (bulk && !remote->tls && bytes >= UINT64_C(16) << 20) {
        row.target = -0.9;
    }
    bench_report_add(&remote->report, &row);
}

static void measure_size(struct remote *remote, uint64_t bytes)
{
    double put[REMOTE_ROUNDS_MAX], get[REMOTE_ROUNDS_MAX], raw_put[REMOTE_ROUNDS_MAX],
        raw_get[REMOTE_ROUNDS_MAX];

    round_trip(remote, bytes, &put[0], &get[0]); /* memory of both sides is there */
    (void)bench_must_raw_tcp(remote->raw_fd, true, remote->src, bytes);
    for (uint32_t i = 0; i < remote->given->rounds; i++) {
        round_trip(remote, bytes, &put[i], &get[i]);
        raw_put[i] = bench_must_raw_tcp(remote->raw_fd, true, remote->src, bytes);
        raw_get[i] = bench_must_raw_tcp(remote->raw_fd, false, remote->dst, bytes);
    }
    add_row(remote, true, bytes, put, raw_put);
    add_row(remote, false, bytes, get, raw_get);
}

/* Each way needs a client of its own. */
static void measure_path(struct remote *remote, const char *path, const uint64_t *sizes,
                         uint32_t count)
{
    const struct bench_cluster_config config = {.gpus = NULL};

    bench_say("path %s", path);
    if (setenv("PLASMON_CLIENT_PATH", path, 1) != 0) {
        bench_die("no memory");
    }
    remote->path = path;
    bench_must_start(&remote->cluster, &config);
    (void)bench_must_device(&remote->cluster, remote->given->device, "--device");
    for (uint32_t i = 0; i < count; i++) {
        measure_size(remote, sizes[i]);
    }
    bench_cluster_finish(&remote->cluster);
}

/*
 * Objects between hosts, in the clear and then by the second cluster (--tls). The variables
 * PLASMON_TLS_* are for that one: a program that has certificates speaks to nobody in the clear.
 */
static void measure_between(struct remote *remote, uint32_t from, uint32_t to,
                            const uint64_t *sizes, uint32_t count)
{
    static const char *const names[] = {"PLASMON_TLS_CA", "PLASMON_TLS_CERT",
                                        "PLASMON_TLS_KEY"};
    char *values[PL_COUNT(names)];

    if (remote->given->tls == NULL) {
        bench_remote_between(remote, from, to, sizes, count);
        return;
    }
    for (size_t i = 0; i < PL_COUNT(names); i++) {
        const char *value = getenv(names[i]);

        values[i] = value != NULL ? strdup(value) : NULL;
        if (values[i] == NULL) {
            bench_die("--tls needs PLASMON_TLS_CA, PLASMON_TLS_CERT and PLASMON_TLS_KEY");
        }
        (void)unsetenv(names[i]); /* cannot fail with such names */
    }
    remote->tls = false;
    bench_remote_between(remote, from, to, sizes, count);
    remote->tls = true;
    for (size_t i = 0; i < PL_COUNT(names); i++) {
        if (setenv(names[i], values[i], 1) != 0 ||
            setenv("PLASMON_ADDRESS", remote->given->tls, 1) != 0) {
            bench_die("no memory");
        }
        free(values[i]);
    }
    bench_remote_between(remote, from, to, sizes, count);
}

/* -------------------------------------------------------------------------- the command */

static bool one_of(const char *text, const char *a, const char *b)
{
    return strcmp(text, a) == 0 || strcmp(text, b) == 0;
}

/* Where the bytes of a slow network would take all day they are left out by the caller: sizes are given. */
static int run_remote(int argc, char **argv)
{
    struct remote_options given = {.sizes = "1M,16M,256M", .paths = "both", .rounds = 7};
    struct cli_parsed parsed    = cli_parse(&bench_remote, argc, argv, &given);
    struct remote remote        = {.given = &given};
    uint64_t sizes[BENCH_SIZES_MAX], largest = 0;
    const char *address = getenv("PLASMON_ADDRESS");
    uint32_t count, from = 0, to = 0;
    char own[64], rest;
    bool ok;

    if (parsed.exit >= 0) {
        return parsed.exit;
    }
    if (given.serve != NULL) {
        bench_raw_tcp_serve(given.serve);
    }
    count = bench_parse_sizes(given.sizes, sizes);
    if (count == 0 || given.rounds == 0 || given.rounds > REMOTE_ROUNDS_MAX) {
        return cli_usage(&bench_remote,
                         "--sizes is a list of multiples of 4 with K, M or G, and --rounds "
                         "at most %u",
                         REMOTE_ROUNDS_MAX);
    }
    if (!one_of(given.paths, "bulk", "messages") && !one_of(given.paths, "both", "none")) {
        return cli_usage(&bench_remote,
                         "--paths is bulk, messages, both or none, and not \"%s\"",
                         given.paths);
    }
    if (given.between != NULL &&
        (sscanf(given.between, "%9u,%9u%c", &from, &to, &rest) != 2 || from == to)) {
        return cli_usage(&bench_remote, "--between is two devices, A,B, and not \"%s\"",
                         given.between);
    }
    if (given.tls != NULL &&
        (given.between == NULL || !one_of(given.paths, "none", "none"))) {
        return cli_usage(&bench_remote, "--tls goes with --between and --paths none");
    }
    if (address == NULL || address[0] == '\0') {
        return cli_usage(&bench_remote, "PLASMON_ADDRESS must name a cluster");
    }
    if (given.raw == NULL) {
        bench_must_fork_raw_tcp(own);
        given.raw = own;
    }
    for (uint32_t i = 0; i < count; i++) {
        largest = pl_max_u64(largest, sizes[i]);
    }
    remote.tls    = getenv("PLASMON_TLS_CERT") != NULL;
    remote.src    = bench_must_alloc((size_t)largest);
    remote.dst    = bench_must_alloc((size_t)largest);
    remote.raw_fd = bench_must_connect_raw_tcp(given.raw);
    bench_report_init(&remote.report, "Plasmon: puts and gets from another host");
    remote.report.x_title = "size";
    if (one_of(given.paths, "bulk", "both")) {
        measure_path(&remote, "bulk", sizes, count);
    }
    if (one_of(given.paths, "messages", "both")) {
        measure_path(&remote, "messages", sizes, count);
    }
    if (given.between != NULL) {
        measure_between(&remote, from, to, sizes, count);
    }

    bench_report_print(&remote.report);
    ok = bench_report_write_json(&remote.report, given.json);
    bench_report_finish(&remote.report);
    pl_free(remote.src);
    pl_free(remote.dst);
    (void)close(remote.raw_fd);
    return ok ? CLI_OK : CLI_FAIL;
}
