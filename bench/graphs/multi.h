/* Graphs for several devices: who plays them, and under which policy. */
#ifndef BENCH_GRAPHS_MULTI_H
#define BENCH_GRAPHS_MULTI_H

#include "bench/graphs/bare.h"

struct graphs_multi {
    struct graphs_run run;
    uint32_t devices;
    const char *
        policy; /* of Plasmon's placement; pinned: each step on the device that the person chose */
    bool replay; /* measure that too */
};
/* All fit bench_run_raw(): config is a struct graphs_multi. */

/* By hand: result[0] is the median in seconds. */
plasmon_status_t graphs_multi_bare_run(const void *config, double *result, size_t count,
                                       struct pl_err *err);
/* Plasmon: result[0] submitted each time, result[1] recorded, or negative. */
plasmon_status_t graphs_multi_play_run(const void *config, double *result, size_t count,
                                       struct pl_err *err);
#define GRAPHS_MULTI_RESULTS 2

#endif
