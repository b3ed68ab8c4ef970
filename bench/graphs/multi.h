/* Graphs for several devices: who plays them, and under which policy. */
#ifndef BENCH_GRAPHS_MULTI_H
#define BENCH_GRAPHS_MULTI_H

#include "bench/graphs/bare.h"

struct graphs_multi {
    struct graphs_run run;
    uint32_t devices;
    const char *policy; /* of Plasmon's placement */
    bool replay;        /* measure that too */
    bool pinned;        /* and each step on the device that the person chose */
    const char *traces; /* a folder for timelines of some runs of each figure; NULL: none */
};
/* result[figure]: seconds a run, the median, or negative; result[GRAPHS_MULTI_FIGURES + figure]: of how many. */
enum graphs_multi_figure {
    GRAPHS_MULTI_PLAIN, /* Plasmon: submitted each time. By hand: the only one */
    GRAPHS_MULTI_REPLAY,
    GRAPHS_MULTI_PINNED,
    GRAPHS_MULTI_FIGURES
};
#define GRAPHS_MULTI_RESULTS (2 * GRAPHS_MULTI_FIGURES)

/* Both fit bench_run_raw(): config is a struct graphs_multi. */
plasmon_status_t graphs_multi_bare_run(const void *config, double *result, size_t count,
                                       struct pl_err *err);
plasmon_status_t graphs_multi_play_run(const void *config, double *result, size_t count,
                                       struct pl_err *err);
/* graphs_time() of one figure. */
plasmon_status_t graphs_multi_time(const struct graphs_multi *config,
                                   plasmon_status_t (*once)(void *user, struct pl_err *err),
                                   void *user, enum graphs_multi_figure figure,
                                   double *result, struct pl_err *err);

#endif
