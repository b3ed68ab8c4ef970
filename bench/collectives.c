/*
 * `plasmon bench collectives`: all-reduce (sum of f32) over all devices, by size and by way
 * (plasmon_collective_options.way): one at a time, with new results and in place, and many in a
 * row, each on the results of the one before. Beside it, in the same run, on GPUs bare NCCL
 * (raw_all_reduce.c), and beside what goes by NCCL the same in a process a device, as Plasmon has
 * it (raw_nccl.c); on CPU devices a ring by hand on threads, one a device: memcpy of a neighbour's
 * segment and an addition, with a barrier between steps. Bytes per second are those of NCCL's
 * tests: a member's bytes over the time (algorithm bandwidth).
 *
 * Each size is checked on every device before it is timed: members of device i are all i + 1.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "bench/bench.h"

#define ROUNDS      5u
#define DEVICES_MAX 64u
#define ROW_NS      UINT64_C(200000000) /* of a series in a row .. */
#define ROW_MAX     100u                /* .. and all-reduces in it */

struct collectives_options {
    const char *sizes;
    const char *ways;
    const char *gpus;
    uint32_t cpu_devices;
    const char *json;
    const char *plot;
};

#define OPTION(field) offsetof(struct collectives_options, field)
static const struct cli_option options[] = {
    {"--sizes", "LIST", CLI_TEXT, OPTION(sizes),
     "bytes of a member, with K, M or G [4,4K,64K,1M,16M,64M; GPUs: 4K to 1G]"},
    {"--ways", "LIST", CLI_TEXT, OPTION(ways),
     "auto, direct, copies, nccl, fastest [all but the last; CPU devices: auto]"},
    {"--gpus", "N", CLI_TEXT, OPTION(gpus), "GPUs: a number or none [all]"},
    {"--cpu-devices", "N", CLI_COUNT, OPTION(cpu_devices),
     "CPU devices where there is no GPU [2]"},
    {"--json", "FILE", CLI_OUTPUT, OPTION(json), "write the results as JSON"},
    {"--plot", "FILE.svg", CLI_OUTPUT, OPTION(plot), "draw bytes per second over sizes"},
};

static int run_collectives(int argc, char **argv);
const struct cli_command bench_collectives = {
    .name    = "bench collectives",
    .summary = "all-reduce over all devices; beside it NCCL, or a ring by hand on threads",
    .usage   = "[options]",
    .text =
        "Uses the cluster of PLASMON_ADDRESS, or a private one; NCCL (without multicast) "
        "and the ring run on this machine, before it.",
    .options      = options,
    .option_count = PL_COUNT(options),
    .run          = run_collectives,
};

/* ------------------------------------------------------------------------------ by hand */

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

/* --------------------------------------------------------------------------- by Plasmon */

static const char *const way_names[] = {[PLASMON_WAY_AUTO]    = "auto",
                                        [PLASMON_WAY_DIRECT]  = "direct",
                                        [PLASMON_WAY_COPIES]  = "copies",
                                        [PLASMON_WAY_NCCL]    = "nccl",
                                        [PLASMON_WAY_FASTEST] = "fastest"};

struct collectives {
    struct bench_cluster cluster;
    struct bench_report report;
    bool ways[PL_COUNT(way_names)];
};

/* What it is held against: seconds of one; 0: nothing. */
struct yardstick {
    const char *name;
    double in_a_row;
    double one;
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

/* Its smallest or largest element, found where it is. */
static float extreme(struct collectives *c, struct plasmon_ref *ref, const char *function)
{
    const struct plasmon_arg args[]   = {{.mode = PLASMON_OUT},
                                         {.mode = PLASMON_IN, .ref = ref}};
    const plasmon_scalar_t over_all[] = {{.i = -1}, {.i = 0}};
    struct plasmon_call call          = PLASMON_CALL_INIT;
    struct plasmon_ref *out;
    float value;

    call.function     = function;
    call.args         = args;
    call.arg_count    = 2;
    call.scalars      = over_all;
    call.scalar_count = 2;
    bench_must(&c->cluster, plasmon_submit(c->cluster.client, &call, &out, NULL), function);
    bench_must(&c->cluster,
               plasmon_get(c->cluster.client, out, &value, sizeof(value), PLASMON_FOREVER),
               "getting an extreme");
    bench_must_release(&c->cluster, &out, 1);
    return value;
}

/* All elements are what they should be if the smallest and the largest are. */
static void check(struct collectives *c, struct plasmon_ref **refs)
{
    const uint32_t n = c->cluster.devices;
    const float want = (float)(n * (n + 1)) / 2;

    for (uint32_t i = 0; i < n; i++) {
        float low = extreme(c, refs[i], "min"), high = extreme(c, refs[i], "max");

        if (low != want || high != want) {
            bench_die("result %u is between %g and %g, and should be %g", i, (double)low,
                      (double)high, (double)want);
        }
    }
}

/* `count` all-reduces on the members, or one into new results. */
static double all_reduce(struct collectives *c, uint64_t elements, uint32_t way,
                         bool in_place, uint32_t count, bool checked)
{
    struct plasmon_collective_options given = PLASMON_COLLECTIVE_INIT;
    struct plasmon_ref *members[DEVICES_MAX], *out[DEVICES_MAX];
    struct plasmon_ref **results = in_place ? members : out;
    uint32_t n                   = c->cluster.devices;
    uint64_t began;

    make_members(c, elements, members);
    given.into = in_place ? members : NULL;
    given.way  = way;
    began      = pl_now_ns();
    for (uint32_t i = 0; i < count; i++) {
        bench_must(&c->cluster,
                   plasmon_all_reduce(c->cluster.client, PLASMON_REDUCE_SUM, members, n,
                                      &given, in_place ? NULL : out, NULL),
                   "all-reduce");
    }
    bench_must_wait(&c->cluster, results, n);
    began = pl_now_ns() - began;
    if (checked) {
        check(c, results);
    }
    bench_must_release(&c->cluster, members, n);
    if (!in_place) {
        bench_must_release(&c->cluster, out, n);
    }
    return (double)began * 1e-9 / count;
}

static double all_reduce_median(struct collectives *c, uint64_t elements, uint32_t way,
                                bool in_place, uint32_t count)
{
    double seconds[ROUNDS];

    for (uint32_t i = 0; i < ROUNDS; i++) {
        seconds[i] = all_reduce(c, elements, way, in_place, count, false);
    }
    return bench_percentile(seconds, ROUNDS, 0.5);
}

static void add(struct collectives *c, uint64_t elements, const char *way, const char *how,
                double seconds, const char *limit_name, double limit_seconds)
{
    const double bytes   = (double)(elements * sizeof(float));
    struct bench_row row = {
        .name = "all_reduce", .x = bytes, .unit = "GB/s", .value = bytes * 1e-9 / seconds};

    if (limit_seconds > 0) {
        row.limit      = bytes * 1e-9 / limit_seconds;
        row.limit_name = limit_name;
    }
    (void)snprintf(row.series, sizeof(row.series), "%u devices, %s, %s", c->cluster.devices,
                   way, how);
    bench_report_add(&c->report, &row);
}

static void measure(struct collectives *c, uint64_t bytes, uint32_t way,
                    const struct yardstick *than)
{
    uint64_t elements = pl_max_u64(bytes / sizeof(float), 1);
    double seconds    = 0;
    uint32_t count;

    for (int in_place = 0; in_place <= 1; in_place++) {
        (void)all_reduce(c, elements, way, in_place != 0, 1, true);
        seconds = all_reduce_median(c, elements, way, in_place != 0, 1);
        add(c, elements, way_names[way], in_place != 0 ? "in place" : "new results",
            seconds, than->name, than->one);
    }
    count = (uint32_t)pl_min_u64(
        pl_max_u64((uint64_t)((double)ROW_NS / (seconds * 1e9 + 1)), 2), ROW_MAX);
    add(c, elements, way_names[way], "in a row",
        all_reduce_median(c, elements, way, true, count), than->name, than->in_a_row);
}

/*
 * Bare NCCL, in one process, and in a process a device as teams are; each seconds in a row and of
 * one, a size. NULL: not measured.
 */
struct bare {
    const double *nccl;
    const double *team;
};

static void show_bare_team(struct collectives *c, uint64_t bytes, const double *team,
                           const struct yardstick *than)
{
    uint64_t elements = pl_max_u64(bytes / sizeof(float), 1);

    add(c, elements, "bare NCCL in processes", "new results", team[1], than->name,
        than->one);
    add(c, elements, "bare NCCL in processes", "in a row", team[0], than->name,
        than->in_a_row);
}

static void measure_all(struct collectives *c, const uint64_t *sizes, uint32_t count,
                        const struct bare *bare)
{
    bool cpu = c->cluster.info[0].kind == 1;
    char text[32];

    if (c->cluster.devices < 2) {
        bench_die("a collective needs two devices; the cluster has one");
    }
    for (uint32_t i = 0; i < count; i++) {
        struct yardstick than = {.name = "a ring by hand, on threads"};

        if (sizes[i] > c->cluster.info[0].bytes_total / 8) {
            bench_report_remark(&c->report, "%s is more than an eighth of a device",
                                pl_format_bytes(sizes[i], text));
            continue;
        }
        if (bare->nccl != NULL) {
            than = (struct yardstick){.name     = "NCCL, without multicast",
                                      .in_a_row = bare->nccl[2 * i],
                                      .one      = bare->nccl[2 * i + 1]};
        } else if (cpu) {
            than.one = than.in_a_row =
                ring_median(c->cluster.devices, pl_max_u64(sizes[i] / sizeof(float), 1));
        }
        if (bare->team != NULL) {
            show_bare_team(c, sizes[i], &bare->team[2 * i], &than);
        }
        for (uint32_t way = 0; way < PL_COUNT(c->ways); way++) {
            if (c->ways[way] && way == PLASMON_WAY_NCCL && bare->team != NULL) {
                const struct yardstick team = {.name     = "NCCL in processes",
                                               .in_a_row = bare->team[2 * i],
                                               .one      = bare->team[2 * i + 1]};

                measure(c, sizes[i], way, &team);
            } else if (c->ways[way]) {
                measure(c, sizes[i], way, &than);
            }
        }
    }
}

/*
 * Before the cluster is there, and by a process of its own. NULL: not possible here, and the report
 * says why.
 */
static const double *measure_bare(struct collectives *c, bench_raw_fn measure_it,
                                  uint32_t gpus, const uint64_t *sizes, uint32_t count,
                                  double *result)
{
    struct bench_raw_all_reduce config = {.devices = gpus, .size_count = count};
    struct pl_err err                  = {0};

    memcpy(config.size, sizes, count * sizeof(*sizes));
    if (bench_run_raw(measure_it, &config, result, 2 * (size_t)count, &err) != PLASMON_OK) {
        bench_report_remark(&c->report, "no yardstick: %s", err.text);
        return NULL;
    }
    return result;
}

static bool ways_parse(const char *text, bool *out)
{
    while (*text != '\0') {
        size_t length = strcspn(text, ",");
        uint32_t way  = 0;

        while (way < PL_COUNT(way_names) && (strlen(way_names[way]) != length ||
                                             memcmp(way_names[way], text, length) != 0)) {
            way++;
        }
        if (way == PL_COUNT(way_names)) {
            return false;
        }
        out[way] = true;
        text += length + (text[length] == ',');
    }
    return true;
}

/* How many GPUs the private cluster gets; 0: it has CPU devices. */
static uint32_t choose_devices(const struct collectives_options *given,
                               struct bench_cluster_config *out)
{
    uint32_t gpus        = bench_machine_gpus();
    unsigned long wanted = given->gpus == NULL || strcmp(given->gpus, "all") == 0
                               ? gpus
                               : strtoul(given->gpus, NULL, 10); /* none: 0 */

    if (gpus >= 2 && wanted >= 2) {
        out->gpus = given->gpus;
        return wanted < gpus ? (uint32_t)wanted : gpus;
    }
    out->gpus        = "none";
    out->cpu_devices = given->cpu_devices > 0 ? given->cpu_devices : 2;
    return 0;
}

static int run_collectives(int argc, char **argv)
{
    static const struct bench_plot plot = {.title      = "All-reduce of f32",
                                           .x_label    = "bytes of a member",
                                           .y_label    = "bytes a second",
                                           .x_is_bytes = true};
    struct collectives_options given    = {0};
    struct cli_parsed parsed            = cli_parse(&bench_collectives, argc, argv, &given);
    struct bench_cluster_config config  = {0};
    struct bare bare                    = {.nccl = NULL};
    double nccl[2 * BENCH_SIZES_MAX], team[2 * BENCH_SIZES_MAX];
    struct collectives *c;
    uint64_t sizes[BENCH_SIZES_MAX];
    uint32_t count, gpus;
    bool ok;

    if (parsed.exit >= 0) {
        return parsed.exit;
    }
    gpus = choose_devices(&given, &config);
    if (given.sizes == NULL) {
        given.sizes =
            gpus > 0 ? "4K,64K,256K,1M,4M,16M,64M,256M,1G" : "4,4K,64K,1M,16M,64M";
    }
    if (given.ways == NULL) {
        given.ways = gpus > 0 ? "auto,direct,copies,nccl" : "auto";
    }
    count = bench_parse_sizes(given.sizes, sizes);
    if (count == 0) {
        return cli_usage(&bench_collectives, "--sizes is a list such as 4,64K,16M");
    }
    c = bench_must_alloc(sizeof(*c));
    if (!ways_parse(given.ways, c->ways)) {
        return cli_usage(&bench_collectives,
                         "--ways is a list such as auto,direct,copies,nccl,fastest");
    }
    bench_report_init(&c->report, "Plasmon: collectives");
    c->report.x_title = "bytes";
    if (gpus > 0) {
        bare.nccl = measure_bare(c, bench_raw_all_reduce_run, gpus, sizes, count, nccl);
    }
    if (gpus > 0 && c->ways[PLASMON_WAY_NCCL]) {
        bare.team = measure_bare(c, bench_raw_team_run, gpus, sizes, count, team);
    }
    bench_must_start(&c->cluster, &config);
    measure_all(c, sizes, count, &bare);
    bench_cluster_finish(&c->cluster);

    bench_report_print(&c->report);
    ok = bench_report_write_json(&c->report, given.json);
    ok &= bench_plot_write(&plot, &c->report, "GB/s", given.plot);
    bench_report_finish(&c->report);
    pl_free(c);
    return ok ? CLI_OK : CLI_FAIL;
}
