/* The yardsticks of a graph: which device, and how runs are timed. */
#include "bench/graphs/bare.h"

#include "base/alloc.h"

plasmon_status_t graphs_time(const struct graphs_run *run,
                             plasmon_status_t (*once)(void *user, struct pl_err *err),
                             void *user, struct graphs_timing *out_timing,
                             struct pl_err *err)
{
    double sample[GRAPHS_SAMPLES_MAX];
    uint32_t samples = (uint32_t)pl_min_u64(run->samples, GRAPHS_SAMPLES_MAX);
    uint32_t dropped = 0, count = 0;
    uint64_t first_ns = pl_now_ns();

    while (dropped + count < samples) {
        uint64_t began_ns       = pl_now_ns();
        plasmon_status_t status = once(user, err);
        uint64_t spent_ns       = pl_now_ns() - first_ns;

        if (status != PLASMON_OK) {
            return status;
        }
        if (dropped == 0 || (dropped < run->drop && spent_ns < run->budget_ns / 4)) {
            dropped++;
            continue;
        }
        sample[count++] = (double)(pl_now_ns() - began_ns) * 1e-9;
        if (count >= GRAPHS_SAMPLES_MIN && spent_ns > run->budget_ns) {
            break;
        }
    }
    *out_timing = (struct graphs_timing){bench_percentile(sample, count, 0.5), count};
    return PLASMON_OK;
}

void graphs_set(double *result, uint32_t mode, enum graphs_contestant contestant,
                const struct graphs_timing *timing, uint32_t in_flight)
{
    double *figure = &result[mode * GRAPHS_CONTESTANTS + contestant];

    figure[0]              = timing->seconds / in_flight;
    figure[GRAPHS_SECONDS] = timing->samples;
}

/* The yardsticks of cold are those of pageable, too: nobody by hand would copy from ordinary memory. */
static void set_pageable(const struct graphs_run *run, double *result)
{
    for (uint32_t i = 0; i < GRAPHS_CONTESTANTS; i++) {
        double *cold     = &result[GRAPHS_COLD * GRAPHS_CONTESTANTS + i];
        double *pageable = &result[GRAPHS_PAGEABLE * GRAPHS_CONTESTANTS + i];

        if (graphs_mode_wanted(run, GRAPHS_PAGEABLE)) {
            pageable[0]              = cold[0];
            pageable[GRAPHS_SECONDS] = cold[GRAPHS_SECONDS];
        }
        if (!graphs_mode_wanted(run, GRAPHS_COLD)) {
            cold[0]              = -1;
            cold[GRAPHS_SECONDS] = -1;
        }
    }
}

plasmon_status_t graphs_bare_run(const void *config, double *result, size_t count,
                                 struct pl_err *err)
{
    const struct graphs_run *run = config;
    plasmon_status_t status;

    if (count != GRAPHS_RESULTS) {
        return pl_err_set(err, PLASMON_EINVAL, "no room for the figures");
    }
    for (size_t i = 0; i < count; i++) {
        result[i] = -1;
    }
    status =
        run->cuda ? graphs_bare_cuda(run, result, err) : graphs_bare_cpu(run, result, err);
    set_pageable(run, result);
    return status;
}
