/* The yardsticks: a graph on a device without Plasmon. What the files that play it share. */
#ifndef BENCH_GRAPHS_BARE_H
#define BENCH_GRAPHS_BARE_H

#include "bench/graphs/graph.h"

enum graphs_contestant {
    GRAPHS_SERIAL,
    GRAPHS_EVENTS,
    GRAPHS_GRAPH,
    GRAPHS_PLAIN,  /* Plasmon, submitted each time */
    GRAPHS_REPLAY, /* Plasmon, recorded once */
    GRAPHS_CONTESTANTS
};
enum graphs_mode {
    GRAPHS_RESIDENT, /* inputs are on the device; many runs in flight: throughput */
    GRAPHS_COLD,     /* inputs are copied from host memory in each run; a few in flight */
    GRAPHS_SINGLE,   /* resident, one run from its first call to its results: latency */
    GRAPHS_MODES
};
/* result[mode * GRAPHS_CONTESTANTS + contestant]: seconds a run, the median; negative: not measured */
#define GRAPHS_RESULTS (GRAPHS_MODES * GRAPHS_CONTESTANTS)

struct graphs_run {
    const struct graphs_graph *graph;
    bool cuda;
    bool cold; /* measure that mode too */
    uint32_t
        in_flight; /* runs that are enqueued before the first is waited for, resident */
    uint32_t runs, drop;
    uint32_t budget_ms; /* of one figure */
};

static inline bool graphs_mode_wanted(const struct graphs_run *run, uint32_t mode)
{
    return mode != GRAPHS_COLD || run->cold;
}
/* Serial runs, and those of a CPU, are one after the other in any mode. */
static inline uint32_t graphs_in_flight(const struct graphs_run *run, uint32_t mode)
{
    uint32_t cold =
        run->in_flight < 4 ? run->in_flight : 4; /* each has inputs of its own */

    return mode == GRAPHS_RESIDENT ? run->in_flight : mode == GRAPHS_COLD ? cold : 1;
}

/* Both fit bench_run_raw(): config is a struct graphs_run. */
plasmon_status_t graphs_bare_run(const void *config, double *result, size_t count,
                                 struct pl_err *err);
plasmon_status_t graphs_play_run(const void *config, double *result, size_t count,
                                 struct pl_err *err);

/*
 * Calls once(user) run->runs times - fewer when they take long, five at least - and gives the median of those after the first
 * run->drop. once() returns when the results are there.
 */
plasmon_status_t graphs_time(const struct graphs_run *run,
                             plasmon_status_t (*once)(void *user, struct pl_err *err),
                             void *user, double *out_seconds, struct pl_err *err);

/* What a device has to do, for bare.c. Each opens the device, checks, measures; the process ends after. */
plasmon_status_t graphs_bare_cuda(const struct graphs_run *run, double *result,
                                  struct pl_err *err);
plasmon_status_t graphs_bare_cpu(const struct graphs_run *run, double *result,
                                 struct pl_err *err);

#endif
