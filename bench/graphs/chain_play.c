/* The chains on Plasmon: one object, one task after the other that updates it in place. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "bench/graphs/chain.h"
#include "bench/graphs/text.h"

#define ROUNDS       5u
#define TIME_LIMIT_S 120u /* of the child: a cluster that hangs ends with it */

struct play {
    const struct graphs_chain *config;
    struct bench_cluster cluster;
    struct plasmon_ref *x;
    struct plasmon_ref *ones;
    struct plasmon_graph *recorded;
    int64_t cycles;
    float links; /* that x counted so far */
};

/* ------------------------------------------------------------------------------- a link */

void graphs_chain_register(struct bench_cluster *cluster)
{
    struct plasmon_source_options options = PLASMON_SOURCE_OPTIONS_INIT;

    options.c_text = graphs_text_chain_cpu();
    bench_must(
        cluster,
        plasmon_function_source(cluster->client, "chain_link", graphs_text_chain_cu(),
                                "chain_link(inout f32[n] x, i64 n, i64 cycles)", &options),
        "chain_link");
    bench_must(cluster,
               plasmon_function_wait(cluster->client, "chain_link", PLASMON_FOREVER),
               "chain_link");
}

static struct plasmon_ref *filled(struct bench_cluster *cluster, double with)
{
    const struct plasmon_shape shape =
        bench_shape(PLASMON_F32, 1, GRAPHS_CHAIN_ELEMENTS, 0);
    const plasmon_scalar_t value = {.f = with};

    return bench_must_make(cluster, "fill", &shape, &value, 1, cluster->info[0].index);
}

struct plasmon_ref *graphs_chain_zeros(struct bench_cluster *cluster)
{
    return filled(cluster, 0);
}

void graphs_chain_submit(struct bench_cluster *cluster, struct plasmon_ref *x,
                         int64_t cycles, int device)
{
    const struct plasmon_arg arg      = {.mode = PLASMON_INOUT, .ref = x};
    const plasmon_scalar_t scalars[2] = {{.i = GRAPHS_CHAIN_ELEMENTS}, {.i = cycles}};
    struct plasmon_call call          = PLASMON_CALL_INIT;

    call.function     = "chain_link";
    call.args         = &arg;
    call.arg_count    = 1;
    call.scalars      = scalars;
    call.scalar_count = 2;
    call.device       = device;
    call.grid[0]      = 1;
    call.block[0]     = 256;
    bench_must(cluster, plasmon_submit(cluster->client, &call, NULL, NULL), "a link");
}

/* ------------------------------------------------------------------------------- chains */

static void submit(struct play *play, int device)
{
    graphs_chain_submit(&play->cluster, play->x, play->cycles, device);
}

static void run_plain(struct play *play)
{
    for (uint32_t i = 0; i < play->config->links; i++) {
        submit(play, play->cluster.info[0].index);
    }
    bench_must_wait(&play->cluster, &play->x, 1);
    play->links += (float)play->config->links;
}

/* x = x + ones, by the catalogue's function. */
static void run_catalogue(struct play *play)
{
    const struct plasmon_arg args[] = {{.mode = PLASMON_INOUT, .ref = play->x},
                                       {.mode = PLASMON_IN, .ref = play->ones}};
    struct plasmon_call call        = PLASMON_CALL_INIT;

    call.function  = "add_into";
    call.args      = args;
    call.arg_count = PL_COUNT(args);
    call.device    = play->cluster.info[0].index;
    for (uint32_t i = 0; i < play->config->links; i++) {
        bench_must(&play->cluster, plasmon_submit(play->cluster.client, &call, NULL, NULL),
                   "a link");
    }
    bench_must_wait(&play->cluster, &play->x, 1);
    play->links += (float)play->config->links;
}

static void record(struct play *play)
{
    bench_must(&play->cluster, plasmon_graph_begin(play->cluster.client, &play->recorded),
               "recording");
    for (uint32_t i = 0; i < GRAPHS_CHAIN_RECORDED; i++) {
        submit(play, play->cluster.info[0].index);
    }
    bench_must(&play->cluster, plasmon_graph_end(play->cluster.client, play->recorded),
               "recording");
}

static void run_replay(struct play *play)
{
    for (uint32_t i = 0; i < play->config->links / GRAPHS_CHAIN_RECORDED; i++) {
        bench_must(&play->cluster,
                   plasmon_graph_launch(play->cluster.client, play->recorded, NULL, 0, NULL,
                                        0, NULL),
                   "launching a recorded chain");
    }
    bench_must_wait(&play->cluster, &play->x, 1);
    play->links += (float)play->config->links;
}

/* Begins on the second device, so that the first link crosses too. */
static void run_hops(struct play *play)
{
    for (uint32_t i = 0; i < play->config->hops; i++) {
        submit(play, play->cluster.info[1 - i % 2].index);
    }
    bench_must_wait(&play->cluster, &play->x, 1);
    play->links += (float)play->config->hops;
}

/* -------------------------------------------------------------------- right before fast */

/* Counts begin anew: fp32 is exact up to 16 million. */
static void reset(struct play *play)
{
    play->x     = graphs_chain_zeros(&play->cluster);
    play->links = 0;
}

static void check(struct play *play)
{
    float got[GRAPHS_CHAIN_ELEMENTS];

    bench_must(
        &play->cluster,
        plasmon_get(play->cluster.client, play->x, got, sizeof(got), PLASMON_FOREVER),
        "getting a count");
    for (size_t i = 0; i < GRAPHS_CHAIN_ELEMENTS; i++) {
        if (got[i] < play->links || got[i] > play->links) {
            bench_die("a chain counted %g of %g links", (double)got[i],
                      (double)play->links);
        }
    }
}

static double measure(struct play *play, void (*run)(struct play *play), uint32_t links,
                      double *out_head, double *out_worker)
{
    struct bench_status before, after;
    double seconds[ROUNDS], tasks = (double)links * ROUNDS;

    run(play);
    check(play);
    bench_must_status(&play->cluster, &before);
    for (uint32_t i = 0; i < ROUNDS; i++) {
        uint64_t began = pl_now_ns();

        run(play);
        seconds[i] = (double)(pl_now_ns() - began) * 1e-9;
    }
    bench_must_status(&play->cluster, &after);
    *out_head   = (double)(after.core_ns - before.core_ns) * 1e-9 / tasks;
    *out_worker = (double)(after.worker_cpu_ns - before.worker_cpu_ns) * 1e-9 / tasks;
    return bench_percentile(seconds, ROUNDS, 0.5) / links;
}

static void start(struct play *play)
{
    struct bench_cluster_config config = {.is_private  = true,
                                          .driver_time = play->config->costs};
    char gpus[12];

    (void)alarm(TIME_LIMIT_S);
    (void)snprintf(gpus, sizeof(gpus), "%u", play->config->devices);
    config.gpus        = play->config->cuda ? gpus : "none";
    config.cpu_devices = play->config->cuda ? 0 : play->config->devices;
    bench_must_start(&play->cluster, &config);
    graphs_chain_register(&play->cluster);
}

static plasmon_status_t play_run(const void *user, double *result, size_t count,
                                 struct pl_err *err)
{
    const struct graphs_chain *config = user;
    struct play play                  = {.config = config, .cycles = GRAPHS_CHAIN_CYCLES};
    double plain, replay, cost[4]; /* head, worker; the same for replay */

    (void)err; /* bench_must... says what failed, and ends the child */
    for (size_t i = 0; i < count; i++) {
        result[i] = -1;
    }
    start(&play);
    reset(&play);
    plain = measure(&play, run_plain, config->links, &cost[0], &cost[1]);
    reset(&play);
    record(&play);
    replay = measure(&play, run_replay, config->links, &cost[2], &cost[3]);
    if (config->costs) {
        memcpy(&result[GRAPHS_CHAIN_HEAD], cost, sizeof(cost));
    } else {
        result[GRAPHS_CHAIN_PLAIN]  = plain;
        result[GRAPHS_CHAIN_REPLAY] = replay;
        reset(&play);
        play.ones = filled(&play.cluster, 1);
        result[GRAPHS_CHAIN_CATALOGUE] =
            measure(&play, run_catalogue, config->links, &cost[0], &cost[1]);
    }
    if (!config->costs && play.cluster.devices > 1) {
        play.cycles = 0;
        reset(&play);
        result[GRAPHS_CHAIN_EDGE] =
            measure(&play, run_hops, config->hops, &cost[0], &cost[1]);
    }
    bench_cluster_finish(&play.cluster);
    return PLASMON_OK;
}

/* --------------------------------------------------------------------------------- rows */

/*
 * Targets, on GPUs. A link that is submitted costs what a kernel costs where kernels take
 * microseconds; recorded ones what a CUDA graph costs; the edge at most 10 us more than what one
 * process with events pays. CPU times are those of the design.
 */
static const struct {
    const char *name, *note;
    enum graphs_chain_figure figure;
    int limit;       /* figure of the yardstick; -1: none */
    double limit_us; /* or so much */
    const char *limit_name;
    double target;
    bool beyond; /* only what it takes more than copied by the receiver, in one process */
} rows[] = {
    {"chain.launches", "dependent kernels of about 2 us, one stream", GRAPHS_CHAIN_LAUNCHES,
     -1, 0, NULL, 0, false},
    {"chain.graph", "the same as CUDA graphs of 100", GRAPHS_CHAIN_GRAPH, -1, 0, NULL, 0,
     false},
    {"chain.graph/early", "the same with programmatic edges", GRAPHS_CHAIN_GRAPH_EARLY,
     GRAPHS_CHAIN_GRAPH, 0, "CUDA graphs", 0, false},
    {"chain.plain", "10,000 kernels, each submitted", GRAPHS_CHAIN_PLAIN,
     GRAPHS_CHAIN_LAUNCHES, 0, "bare launches", 1.25, false},
    {"chain.replay", "recorded 100 at a time", GRAPHS_CHAIN_REPLAY, GRAPHS_CHAIN_GRAPH, 0,
     "CUDA graphs", 1.05, false},
    {"chain.catalogue", "10,000 sums of 4 KiB by add_into, each submitted",
     GRAPHS_CHAIN_CATALOGUE, GRAPHS_CHAIN_LAUNCHES, 0, "bare launches of 2 us", 0, false},
    {"edge.push", "4 KiB to the other GPU and a kernel there", GRAPHS_CHAIN_PUSH, -1, 0,
     NULL, 0, false},
    {"edge.pull", "the same, copied by the receiver", GRAPHS_CHAIN_PULL, -1, 0, NULL, 0,
     false},
    {"edge.kernel", "the same, by a kernel of the receiver", GRAPHS_CHAIN_PULL_KERNEL, -1,
     0, NULL, 0, false},
    {"edge.plain", "4 KiB between two devices, all enqueued ahead", GRAPHS_CHAIN_EDGE,
     GRAPHS_CHAIN_PULL, 0, "one process, events", 0, false},
    {"edge.more", "4 KiB between two devices, beyond one process with events",
     GRAPHS_CHAIN_EDGE, -1, 10, "at most so much more", 1, true},
    {"head_cpu.plain", "own code, a task of the chain", GRAPHS_CHAIN_HEAD, -1, 2,
     "the design's limit", 1, false},
    {"worker_cpu.plain", "without the driver's calls", GRAPHS_CHAIN_WORKER, -1, 1,
     "the design's limit", 1, false},
    {"head_cpu.replay", "", GRAPHS_CHAIN_HEAD_REPLAY, -1, 2, "the design's limit", 1,
     false},
    {"worker_cpu.replay", "", GRAPHS_CHAIN_WORKER_REPLAY, -1, 1, "the design's limit", 1,
     false},
};

/* In a child; a remark says how it failed. */
static bool run_child(bench_raw_fn run, const struct graphs_chain *chain, const char *who,
                      double result[GRAPHS_CHAIN_FIGURES], struct bench_report *report)
{
    struct pl_err err = {0};

    bench_say("chain: %s", who);
    if (bench_run_raw(run, chain, result, GRAPHS_CHAIN_FIGURES, &err) == PLASMON_OK) {
        return true;
    }
    for (size_t i = 0; i < GRAPHS_CHAIN_FIGURES; i++) {
        result[i] = -1;
    }
    bench_report_remark(report, "chain, %s: %s", who, err.text);
    return false;
}

bool graphs_chain_measure(const struct graphs_chain *chain, struct bench_report *report)
{
    double bare[GRAPHS_CHAIN_FIGURES], played[GRAPHS_CHAIN_FIGURES];
    double costs[GRAPHS_CHAIN_FIGURES];
    struct graphs_chain with_costs = *chain;
    bool ok = run_child(graphs_chain_bare_run, chain, "by hand", bare, report);

    with_costs.costs = true;
    ok &= run_child(play_run, chain, "Plasmon", played, report);
    ok &= run_child(play_run, &with_costs, "Plasmon, CPU times", costs, report);
    for (size_t i = 0; i < PL_COUNT(rows); i++) {
        const double *from = rows[i].figure < GRAPHS_CHAIN_PLAIN  ? bare
                             : rows[i].figure < GRAPHS_CHAIN_HEAD ? played
                                                                  : costs;
        double value       = from[rows[i].figure];
        double limit_us = rows[i].limit >= 0 ? bare[rows[i].limit] * 1e6 : rows[i].limit_us;
        double off      = rows[i].beyond ? bare[GRAPHS_CHAIN_PULL] : 0;
        struct bench_row row = {.value      = (value - off) * 1e6,
                                .unit       = "us",
                                .limit      = limit_us > 0 ? limit_us : 0,
                                .limit_name = rows[i].limit_name,
                                .target     = chain->cuda ? rows[i].target : 0};

        if (value > 0 && off >= 0) {
            (void)snprintf(row.name, sizeof(row.name), "%s", rows[i].name);
            (void)snprintf(row.note, sizeof(row.note), "%s", rows[i].note);
            bench_report_add(report, &row);
        }
    }
    return ok;
}
