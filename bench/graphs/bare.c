/* The yardsticks of a graph: which device, and how runs are timed. */
#include "bench/graphs/bare.h"

#include "base/alloc.h"

#define RUNS_MIN 5u
#define RUNS_MAX 256u

plasmon_status_t graphs_time(const struct graphs_run *run,
                             plasmon_status_t (*once)(void *user, struct pl_err *err),
                             void *user, double *out_seconds, struct pl_err *err)
{
    double sample[RUNS_MAX];
    uint32_t runs = (uint32_t)pl_min_u64(run->runs, RUNS_MAX), count = 0;
    uint64_t first = pl_now_ns();

    for (uint32_t i = 0; i < runs; i++) {
        uint64_t began          = pl_now_ns();
        plasmon_status_t status = once(user, err);

        if (status != PLASMON_OK) {
            return status;
        }
        if (i >= run->drop) {
            sample[count++] = (double)(pl_now_ns() - began) * 1e-9;
        }
        if (count >= RUNS_MIN && pl_now_ns() - first > run->budget_ms * 1000000ull) {
            break;
        }
    }
    *out_seconds = bench_percentile(sample, count, 0.5);
    return PLASMON_OK;
}

plasmon_status_t graphs_bare_run(const void *config, double *result, size_t count,
                                 struct pl_err *err)
{
    const struct graphs_run *run = config;

    if (count != GRAPHS_RESULTS) {
        return pl_err_set(err, PLASMON_EINVAL, "no room for the figures");
    }
    for (size_t i = 0; i < count; i++) {
        result[i] = -1;
    }
    return run->cuda ? graphs_bare_cuda(run, result, err)
                     : graphs_bare_cpu(run, result, err);
}
