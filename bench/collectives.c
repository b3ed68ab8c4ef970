/*
 * `plasmon bench collectives`: all-reduce (sum of f32) over all devices, new results and in place, by size; beside it a ring by hand on threads,
 * one a device: memcpy of a neighbour's segment and an addition, with a barrier between steps. Bytes per second are those of NCCL's tests: a
 * member's bytes over the time (algorithm bandwidth).
 *
 * Each size is checked on every device before it is timed: members of device i are all i + 1.
 */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "bench/bench.h"

#define ROUNDS      5u
#define DEVICES_MAX 64u

struct collectives_options {
    const char *sizes;
    const char *gpus;
    uint32_t cpu_devices;
    const char *json;
    const char *plot;
};

#define OPTION(field) offsetof(struct collectives_options, field)
static const struct cli_option options[] = {
    {"--sizes", "LIST", CLI_TEXT, OPTION(sizes),
     "bytes of a member, with K, M or G [4,4K,64K,1M,16M,64M]"},
    {"--gpus", "N", CLI_TEXT, OPTION(gpus), "GPUs: a number or none [all]"},
    {"--cpu-devices", "N", CLI_COUNT, OPTION(cpu_devices),
     "CPU devices where there is no GPU [2]"},
    {"--json", "FILE", CLI_TEXT, OPTION(json), "write the results as JSON"},
    {"--plot", "FILE.svg", CLI_TEXT, OPTION(plot), "draw bytes per second over sizes"},
};

static int run_collectives(int argc, char **argv);
const struct cli_command bench_collectives = {
    .name    = "bench collectives",
    .summary = "all-reduce over all devices; beside it a ring by hand on CPU threads",
    .usage   = "[options]",
    .text = "Uses the cluster of PLASMON_ADDRESS, or a private one; the ring runs on this "
            "machine. With GPUs there is no yardstick yet: compare with nccl-tests.",
    .options      = options,
    .option_count = PL_COUNT(options),
    .run          = run_collectives,
};

/* ------------------------------------------------------------------------------------------------ by hand */

struct ring {
    uint32_t count;
    uint64_t elements;
    float *data[DEVICES_MAX];
    float *landing[DEVICES_MAX]; /* a segment, rounded up */
    pthread_barrier_t barrier;
};
struct ring_member {
    struct ring *ring;
    uint32_t index;
};

static uint64_t segment_at(const struct ring *ring, uint32_t segment)
{
    return ring->elements * segment / ring->count;
}

/* Step s: take the segment that the left neighbour has finished, and add to it or keep it. */
static void ring_step(struct ring *ring, uint32_t me, uint32_t step, bool adds)
{
    uint32_t left    = (me + ring->count - 1) % ring->count;
    uint32_t segment = (me + 2 * ring->count - step - (adds ? 1 : 0)) % ring->count;
    uint64_t first   = segment_at(ring, segment);
    uint64_t n       = segment_at(ring, segment + 1) - first;
    float *to        = ring->data[me] + first;

    (void)pthread_barrier_wait(&ring->barrier);
    if (!adds) {
        memcpy(to, ring->data[left] + first, n * sizeof(float));
        return;
    }
    memcpy(ring->landing[me], ring->data[left] + first, n * sizeof(float));
    for (uint64_t i = 0; i < n; i++) {
        to[i] += ring->landing[me][i];
    }
}

static void *ring_run(void *user)
{
    const struct ring_member *member = user;

    for (uint32_t step = 0; step + 1 < member->ring->count; step++) {
        ring_step(member->ring, member->index, step, true);
    }
    for (uint32_t step = 0; step + 1 < member->ring->count; step++) {
        ring_step(member->ring, member->index, step, false);
    }
    (void)pthread_barrier_wait(&member->ring->barrier);
    return NULL;
}

/* Threads are made outside of the time only as far as the first barrier holds them. */
static double ring_seconds(struct ring *ring)
{
    struct ring_member members[DEVICES_MAX];
    pthread_t threads[DEVICES_MAX];
    uint64_t began;

    for (uint32_t i = 0; i < ring->count; i++) {
        for (uint64_t k = 0; k < ring->elements; k++) {
            ring->data[i][k] = (float)(i + 1);
        }
    }
    for (uint32_t i = 1; i < ring->count; i++) {
        members[i] = (struct ring_member){ring, i};
        if (pthread_create(&threads[i], NULL, ring_run, &members[i]) != 0) {
            bench_die("no thread for the ring");
        }
    }
    members[0] = (struct ring_member){ring, 0};
    began      = pl_now_ns();
    (void)ring_run(&members[0]);
    began = pl_now_ns() - began;
    for (uint32_t i = 1; i < ring->count; i++) {
        (void)pthread_join(threads[i], NULL);
    }
    return (double)began * 1e-9;
}

static double ring_median(uint32_t count, uint64_t elements)
{
    struct ring ring = {.count = count, .elements = elements};
    float want       = (float)(count * (count + 1)) / 2;
    double seconds[ROUNDS];

    if (pthread_barrier_init(&ring.barrier, NULL, count) != 0) {
        bench_die("no barrier for the ring");
    }
    for (uint32_t i = 0; i < count; i++) {
        ring.data[i]    = bench_must_alloc(elements * sizeof(float));
        ring.landing[i] = bench_must_alloc((elements / count + 1) * sizeof(float));
    }
    for (uint32_t i = 0; i < ROUNDS; i++) {
        seconds[i] = ring_seconds(&ring);
    }
    for (uint32_t i = 0; i < count; i++) {
        for (uint64_t k = 0; k < elements; k++) {
            if (ring.data[i][k] != want) {
                bench_die("the ring by hand is wrong at %llu", (unsigned long long)k);
            }
        }
        pl_free(ring.data[i]);
        pl_free(ring.landing[i]);
    }
    (void)pthread_barrier_destroy(&ring.barrier);
    return bench_percentile(seconds, ROUNDS, 0.5);
}

/* ------------------------------------------------------------------------------------------------ by Plasmon */

struct collectives {
    struct bench_cluster cluster;
    struct bench_report report;
};

static void make_members(struct collectives *c, uint64_t elements, struct plasmon_ref **out)
{
    const struct plasmon_shape shape = bench_shape(PLASMON_F32, 1, (int64_t)elements, 1);

    for (uint32_t i = 0; i < c->cluster.devices; i++) {
        const plasmon_scalar_t value = {.f = i + 1};

        out[i] = bench_must_make(&c->cluster, "fill", &shape, &value, 1,
                                 c->cluster.info[i].index);
    }
    bench_must_wait(&c->cluster, out, c->cluster.devices);
}

static void check(struct collectives *c, struct plasmon_ref **refs, uint64_t elements)
{
    uint32_t n = c->cluster.devices;
    float want = (float)(n * (n + 1)) / 2;
    float *got = bench_must_alloc(elements * sizeof(float));

    for (uint32_t i = 0; i < n; i++) {
        bench_must(&c->cluster,
                   plasmon_get(c->cluster.client, refs[i], got, elements * sizeof(float),
                               PLASMON_FOREVER),
                   "getting a result");
        for (uint64_t k = 0; k < elements; k++) {
            if (got[k] != want) {
                bench_die("result %u is %g at %llu, and should be %g", i, (double)got[k],
                          (unsigned long long)k, (double)want);
            }
        }
    }
    pl_free(got);
}

static double all_reduce(struct collectives *c, uint64_t elements, bool in_place,
                         bool checked)
{
    struct plasmon_collective_options given = PLASMON_COLLECTIVE_INIT;
    struct plasmon_ref *members[DEVICES_MAX], *out[DEVICES_MAX];
    uint32_t n = c->cluster.devices;
    uint64_t began;

    make_members(c, elements, members);
    given.into = in_place ? members : NULL;
    began      = pl_now_ns();
    bench_must(&c->cluster,
               plasmon_all_reduce(c->cluster.client, PLASMON_REDUCE_SUM, members, n, &given,
                                  in_place ? NULL : out, NULL),
               "all-reduce");
    bench_must_wait(&c->cluster, in_place ? members : out, n);
    began = pl_now_ns() - began;
    if (checked) {
        check(c, in_place ? members : out, elements);
    }
    bench_must_release(&c->cluster, members, n);
    if (!in_place) {
        bench_must_release(&c->cluster, out, n);
    }
    return (double)began * 1e-9;
}

static void measure(struct collectives *c, uint64_t bytes, double ring)
{
    uint64_t elements = pl_max_u64(bytes / sizeof(float), 1);
    double gigabytes  = (double)(elements * sizeof(float)) * 1e-9;

    for (int in_place = 0; in_place <= 1; in_place++) {
        struct bench_row row = {.name = "all_reduce", .x = (double)bytes, .unit = "GB/s"};
        double seconds[ROUNDS];

        (void)all_reduce(c, elements, in_place != 0, true);
        for (uint32_t i = 0; i < ROUNDS; i++) {
            seconds[i] = all_reduce(c, elements, in_place != 0, false);
        }
        row.value = gigabytes / bench_percentile(seconds, ROUNDS, 0.5);
        if (ring > 0) {
            row.limit      = gigabytes / ring;
            row.limit_name = "a ring by hand, on threads";
        }
        (void)snprintf(row.series, sizeof(row.series), "%u devices, %s", c->cluster.devices,
                       in_place != 0 ? "in place" : "new results");
        bench_report_add(&c->report, &row);
    }
}

static void measure_all(struct collectives *c, const uint64_t *sizes, uint32_t count)
{
    bool cpu = c->cluster.info[0].kind == 1;
    char text[32];

    if (c->cluster.devices < 2) {
        bench_die("a collective needs two devices; the cluster has one");
    }
    for (uint32_t i = 0; i < count; i++) {
        if (sizes[i] > c->cluster.info[0].bytes_total / 8) {
            bench_report_remark(&c->report, "%s is more than an eighth of a device",
                                pl_format_bytes(sizes[i], text));
            continue;
        }
        measure(
            c, sizes[i],
            cpu ? ring_median(c->cluster.devices, pl_max_u64(sizes[i] / sizeof(float), 1))
                : 0);
    }
    if (!cpu) {
        bench_report_remark(&c->report, "no yardstick on GPUs: compare with nccl-tests");
    }
}

static int run_collectives(int argc, char **argv)
{
    static const struct bench_plot plot = {.title      = "All-reduce of f32",
                                           .x_label    = "bytes of a member",
                                           .y_label    = "GB/s",
                                           .x_is_bytes = true};
    struct collectives_options given    = {.sizes = "4,4K,64K,1M,16M,64M"};
    struct cli_parsed parsed            = cli_parse(&bench_collectives, argc, argv, &given);
    struct bench_cluster_config config  = {0};
    struct collectives *c;
    uint64_t sizes[BENCH_SIZES_MAX];
    uint32_t count;
    bool ok;

    if (parsed.exit >= 0) {
        return parsed.exit;
    }
    count = bench_parse_sizes(given.sizes, sizes);
    if (count == 0) {
        return cli_usage(&bench_collectives, "--sizes is a list such as 4,64K,16M");
    }
    config.gpus = bench_machine_gpus() >= 2 ? given.gpus : "none";
    if (config.gpus != NULL && strcmp(config.gpus, "none") == 0) {
        config.cpu_devices = given.cpu_devices > 0 ? given.cpu_devices : 2;
    }
    c = bench_must_alloc(sizeof(*c));
    bench_report_init(&c->report, "Plasmon: collectives");
    c->report.x_title = "bytes";
    bench_must_start(&c->cluster, &config);
    measure_all(c, sizes, count);
    bench_cluster_finish(&c->cluster);

    bench_report_print(&c->report);
    ok = bench_report_write_json(&c->report, given.json);
    ok &= bench_plot_write(&plot, &c->report, "GB/s", given.plot);
    bench_report_finish(&c->report);
    pl_free(c);
    return ok ? CLI_OK : CLI_FAIL;
}
