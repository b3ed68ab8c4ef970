/*
 * One launch at a time, from its submission to its result: a kernel of a few microseconds on 4 KiB
 * that are on the device already.
 *
 *   launch   until the result is known to be there
 *   get      until the 4 KiB are in the caller's memory
 *   replay   a recorded graph of that one kernel, until it is done
 *
 * THE FLOOR  A task goes client -> head -> worker -> head -> client. Two lock-step round trips of a
 *            message through the same rpc/ to another process, measured right after, are what the
 *            transport alone costs (echo.c; `bench tasks` has the same yardstick).
 */
#include "bench/graphs/latency.h"

#include <stdio.h>
#include <unistd.h>

#include "base/alloc.h"
#include "bench/graphs/chain.h"

#define WARM_UP      200u
#define SAMPLES      2000u
#define TARGET       1.5  /* of two round trips */
#define TIME_LIMIT_S 120u /* of the child: a cluster that hangs ends with it */

enum figure { LAUNCH, GET, REPLAY, TRIP, FIGURES };
/* result[2 * figure]: the median in seconds; + 1: the 99th percentile */
#define RESULTS (2 * FIGURES)

struct latency {
    struct bench_cluster cluster;
    struct plasmon_ref *x;
    struct plasmon_graph *recorded;
    double *seconds;
};

static void once_launch(struct latency *it)
{
    graphs_chain_submit(&it->cluster, it->x, 0, it->cluster.info[0].index);
    bench_must_wait(&it->cluster, &it->x, 1);
}

static void once_get(struct latency *it)
{
    float got[GRAPHS_CHAIN_ELEMENTS];

    graphs_chain_submit(&it->cluster, it->x, 0, it->cluster.info[0].index);
    bench_must(&it->cluster,
               plasmon_get(it->cluster.client, it->x, got, sizeof(got), PLASMON_FOREVER),
               "getting a result");
}

static void once_replay(struct latency *it)
{
    struct plasmon_ref *task;

    bench_must(
        &it->cluster,
        plasmon_graph_launch(it->cluster.client, it->recorded, NULL, 0, NULL, 0, &task),
        "launching a recorded kernel");
    bench_must_wait(&it->cluster, &task, 1);
    bench_must_release(&it->cluster, &task, 1);
}

static void record(struct latency *it)
{
    bench_must(&it->cluster, plasmon_graph_begin(it->cluster.client, &it->recorded),
               "recording");
    graphs_chain_submit(&it->cluster, it->x, 0, it->cluster.info[0].index);
    bench_must(&it->cluster, plasmon_graph_end(it->cluster.client, it->recorded),
               "recording");
}

static void set(double *result, enum figure figure, double *seconds)
{
    result[2 * figure]     = bench_percentile(seconds, SAMPLES, 0.5);
    result[2 * figure + 1] = bench_percentile(seconds, SAMPLES, 0.99);
}

static void measure(struct latency *it, enum figure figure, void (*once)(struct latency *),
                    double *result)
{
    for (uint32_t i = 0; i < WARM_UP; i++) {
        once(it);
    }
    for (uint32_t i = 0; i < SAMPLES; i++) {
        uint64_t began_ns = pl_now_ns();

        once(it);
        it->seconds[i] = (double)(pl_now_ns() - began_ns) * 1e-9;
    }
    set(result, figure, it->seconds);
}

static void check(struct latency *it)
{
    const double launches = 3 * (WARM_UP + SAMPLES);
    float got[GRAPHS_CHAIN_ELEMENTS];

    bench_must(&it->cluster,
               plasmon_get(it->cluster.client, it->x, got, sizeof(got), PLASMON_FOREVER),
               "getting a count");
    for (size_t i = 0; i < GRAPHS_CHAIN_ELEMENTS; i++) {
        if ((double)got[i] < launches || (double)got[i] > launches) {
            bench_die("%g of %g launches one at a time were counted", (double)got[i],
                      launches);
        }
    }
}

static plasmon_status_t run_child(const void *config, double *result, size_t count,
                                  struct pl_err *err)
{
    const bool *cuda                          = config;
    const struct bench_cluster_config cluster = {
        .is_private = true, .gpus = *cuda ? "1" : "none", .cpu_devices = *cuda ? 0 : 1};
    struct bench_echo *echo = bench_must_fork_echo(); /* before anything of gRPC */
    struct latency it       = {.seconds = bench_must_alloc(SAMPLES * sizeof(double))};

    if (count != RESULTS) {
        return pl_err_set(err, PLASMON_EINVAL, "no room for the figures");
    }
    (void)alarm(TIME_LIMIT_S);
    bench_must_start(&it.cluster, &cluster);
    bench_must_connect_echo(echo);
    graphs_chain_register(&it.cluster);
    it.x = graphs_chain_zeros(&it.cluster);
    measure(&it, LAUNCH, once_launch, result);
    measure(&it, GET, once_get, result);
    record(&it);
    measure(&it, REPLAY, once_replay, result);
    check(&it);
    bench_must_ping(echo, it.seconds, WARM_UP);
    bench_must_ping(echo, it.seconds, SAMPLES);
    set(result, TRIP, it.seconds);
    bench_cluster_finish(&it.cluster);
    bench_echo_destroy(echo);
    pl_free(it.seconds);
    return PLASMON_OK;
}

bool graphs_latency_measure(bool cuda, struct bench_report *report)
{
    static const struct {
        const char *name, *note;
    } rows[FIGURES] = {
        {"latency.launch", "a kernel, until its result is there"},
        {"latency.get", "until its 4 KiB are in the caller's memory"},
        {"latency.replay", "a recorded graph of one kernel"},
        {"latency.floor", "two messages there and back through gRPC, lock-step"},
    };
    double result[RESULTS];
    struct pl_err err = {0};

    if (bench_run_raw(run_child, &cuda, result, RESULTS, &err) != PLASMON_OK) {
        bench_report_remark(report, "one launch at a time: %s", err.text);
        return false;
    }
    result[2 * TRIP] *= 2;
    result[2 * TRIP + 1] *= 2;
    for (int i = 0; i < FIGURES; i++) {
        struct bench_row row = {.value      = result[2 * i] * 1e6,
                                .p99        = result[2 * i + 1] * 1e6,
                                .unit       = "us",
                                .limit      = i == TRIP ? 0 : result[2 * TRIP] * 1e6,
                                .limit_name = "2 stream round trips, p50",
                                .target     = i == TRIP || !cuda ? 0 : TARGET};

        (void)snprintf(row.name, sizeof(row.name), "%s", rows[i].name);
        (void)snprintf(row.note, sizeof(row.note), "%s", rows[i].note);
        bench_report_add(report, &row);
    }
    return true;
}
