/* Graphs for several devices: who plays them, and under which policy. */
#ifndef BENCH_GRAPHS_MULTI_H
#define BENCH_GRAPHS_MULTI_H

#include "bench/graphs/bare.h"

struct graphs_multi {
    struct graphs_run run;
    uint32_t devices;
    const char *policy; /* of Plasmon's placement */
    bool replay;        /* measure that too */
    bool flight;        /* and runs in flight of each but pinned */
    bool pinned;        /* and each step on the device that the person chose */
    const char *traces; /* a folder for timelines of some runs of each figure; NULL: none */
    double by_hand;     /* seconds of one run alone; 0: not known */
};
/*
 * result[figure]: seconds a run, the median, or negative; result[GRAPHS_MULTI_FIGURES + figure]: of how many.
 *
 * One run at a time begins when the one before has ended and somebody knows it. Runs in flight are
 * all enqueued before the first is waited for, as many for all contestants
 * (graphs_multi_in_flight()), and are in the same order in the same memory.
 */
enum graphs_multi_figure {
    GRAPHS_MULTI_PLAIN, /* Plasmon: submitted each time. By hand: this and the next */
    GRAPHS_MULTI_PLAIN_FLIGHT,
    GRAPHS_MULTI_REPLAY,
    GRAPHS_MULTI_REPLAY_FLIGHT,
    GRAPHS_MULTI_PINNED,
    GRAPHS_MULTI_FIGURES
};
static inline bool graphs_multi_is_flight(enum graphs_multi_figure figure)
{
    return figure == GRAPHS_MULTI_PLAIN_FLIGHT || figure == GRAPHS_MULTI_REPLAY_FLIGHT;
}
/* Runs in one sample of a figure; the same for everybody, by hand and on Plasmon. */
static inline uint32_t graphs_multi_in_flight(const struct graphs_multi *config,
                                              enum graphs_multi_figure figure)
{
    struct graphs_run run = config->run;

    run.serial_seconds[GRAPHS_RESIDENT] = config->by_hand;
    return graphs_multi_is_flight(figure) ? graphs_in_flight(&run, GRAPHS_RESIDENT) : 1;
}
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
