/*
 * Room: how many times faster than one kernel after the other a graph could be at best, if its
 * kernels stay as they are. No schedule beats
 *
 *   the critical path   kernels that wait for each other, at the speed that each has alone
 *   the traffic         what all kernels read and write, at the device's bandwidth
 *
 * so room is the serial time over the larger of the two. That is a bound, not a promise: kernels
 * that fill the device gain nothing from each other's company, and arithmetic is not counted.
 * Traffic counts each array of each kernel once: where an array stays in a cache for the next
 * kernel, the bandwidth is that of copies of the graph's size, which stay there as well.
 */
#include "bench/graphs/graph.h"

#include <math.h>

#include "base/alloc.h"

double graphs_critical_path(const struct graphs_graph *graph, const double *seconds)
{
    uint32_t count = (uint32_t)graph->steps.count;
    double *end = bench_must_alloc(count * sizeof(*end)), longest = 0;

    for (uint32_t i = graph->init_steps; i < count; i++) {
        for (uint32_t j = graph->init_steps; j < i; j++) {
            if (end[j] > end[i] &&
                graphs_steps_conflict(graphs_step_at(graph, j), graphs_step_at(graph, i))) {
                end[i] = end[j];
            }
        }
        end[i] += seconds[i];
        longest = fmax(longest, end[i]);
    }
    pl_free(end);
    return longest;
}

uint64_t graphs_traffic(const struct graphs_graph *graph)
{
    uint64_t bytes = 0;

    for (uint32_t i = graph->init_steps; i < graph->steps.count; i++) {
        const struct graphs_step *step = graphs_step_at(graph, i);

        for (uint32_t k = 0; k < step->param_count; k++) {
            const struct graphs_param *param = &step->param[k];

            if (param->kind == GRAPHS_TENSOR && param->mode != PLASMON_SCRATCH) {
                bytes += graphs_param_bytes(graph, param) *
                         (param->mode == PLASMON_INOUT ? 2 : 1);
            }
        }
    }
    return bytes;
}
