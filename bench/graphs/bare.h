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
    /*
     * each run copies its inputs from page-locked host memory and its outputs to it; a few in
     * flight
     */
    GRAPHS_COLD,
    GRAPHS_PAGEABLE, /* the same on Plasmon from and to ordinary memory; beside the same yardsticks as cold */
    GRAPHS_SINGLE, /* resident, one run from its first call to its results: latency */
    GRAPHS_MODES
};
/*
 * What a child measures. result[mode * GRAPHS_CONTESTANTS + contestant]: seconds a run, the median;
 * negative: not measured. result[GRAPHS_SECONDS + the same]: of how many samples. Then what room.c
 * wants: seconds of the critical path, bytes a second.
 */
#define GRAPHS_SECONDS   (GRAPHS_MODES * GRAPHS_CONTESTANTS)
#define GRAPHS_PATH      (2 * GRAPHS_SECONDS)
#define GRAPHS_BANDWIDTH (GRAPHS_PATH + 1)
#define GRAPHS_RESULTS   (GRAPHS_PATH + 2)

#define GRAPHS_SAMPLES_MIN 3u /* of a median, however little time there is */
#define GRAPHS_SAMPLES_MAX 256u

struct graphs_run {
    const struct graphs_graph *graph;
    bool cuda;
    uint32_t modes;     /* bits: 1 << GRAPHS_RESIDENT ... */
    uint32_t in_flight; /* the most runs that are enqueued before the first is waited for */
    uint32_t samples, drop;
    uint64_t budget_ns;                  /* of one figure */
    double serial_seconds[GRAPHS_MODES]; /* of one run; 0: not known */
};

#define GRAPHS_COLD_MAX 4u /* in flight: each has inputs of its own */

/* With host memory in each run. */
static inline bool graphs_mode_cold(uint32_t mode)
{
    return mode == GRAPHS_COLD || mode == GRAPHS_PAGEABLE;
}
static inline bool graphs_mode_wanted(const struct graphs_run *run, uint32_t mode)
{
    return (run->modes & 1u << mode) != 0;
}
/*
 * Runs in one sample. In flight together so many that a sample is an eighth of the budget, so that
 * medians of large graphs have samples too; at least two, where the second hides what a first call
 * costs. Serial runs, and those of a CPU, are one after the other in any mode.
 */
static inline uint32_t graphs_in_flight(const struct graphs_run *run, uint32_t mode)
{
    uint32_t most = mode == GRAPHS_SINGLE ? 1
                    : graphs_mode_cold(mode)
                        ? (uint32_t)pl_min_u64(run->in_flight, GRAPHS_COLD_MAX)
                        : run->in_flight;
    double fit    = run->serial_seconds[mode] > 0
                        ? (double)run->budget_ns * 1e-9 / 8 / run->serial_seconds[mode]
                        : GRAPHS_COLD_MAX;

    if (fit >= most) {
        return most;
    }
    return fit >= 2 ? (uint32_t)fit : (uint32_t)pl_min_u64(most, 2);
}

/* Both fit bench_run_raw(): config is a struct graphs_run. */
plasmon_status_t graphs_bare_run(const void *config, double *result, size_t count,
                                 struct pl_err *err);
plasmon_status_t graphs_play_run(const void *config, double *result, size_t count,
                                 struct pl_err *err);

struct graphs_timing {
    double seconds; /* of once(), the median */
    uint32_t samples;
};
/*
 * Calls once(user) run->samples times and gives the median of those after the first run->drop.
 * Where that takes more than the budget: fewer, GRAPHS_SAMPLES_MIN at least, and one dropped.
 * once() returns when the results are there.
 */
plasmon_status_t graphs_time(const struct graphs_run *run,
                             plasmon_status_t (*once)(void *user, struct pl_err *err),
                             void *user, struct graphs_timing *out_timing,
                             struct pl_err *err);
/* Writes a figure: `mode` and `contestant` say which, and once() was so many runs. */
void graphs_set(double *result, uint32_t mode, enum graphs_contestant contestant,
                const struct graphs_timing *timing, uint32_t in_flight);
/* What a device has to measure for the modes that are wanted. */
static inline bool graphs_mode_measured(const struct graphs_run *run, uint32_t mode)
{
    return mode == GRAPHS_COLD ? graphs_mode_wanted(run, GRAPHS_COLD) ||
                                     graphs_mode_wanted(run, GRAPHS_PAGEABLE)
                               : mode != GRAPHS_PAGEABLE && graphs_mode_wanted(run, mode);
}

/* What a device has to do, for bare.c. Each opens the device, checks, measures; the process ends after. */
plasmon_status_t graphs_bare_cuda(const struct graphs_run *run, double *result,
                                  struct pl_err *err);
plasmon_status_t graphs_bare_cpu(const struct graphs_run *run, double *result,
                                 struct pl_err *err);

#endif
