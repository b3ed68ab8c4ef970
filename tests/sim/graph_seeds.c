#include "tests/sim/seeds.h"

struct graphs {
    const struct graph_profile *profile;
    struct graph_coverage *sum;
};

static bool run_graph(uint64_t seed, void *user)
{
    const struct graphs *graphs = user;

    return graph_run(seed, graphs->profile, graphs->sum, true);
}

uint64_t seeds_run_graphs(uint64_t by_default, const struct graph_profile *profile,
                          struct graph_coverage *sum)
{
    struct graphs graphs = {.profile = profile, .sum = sum};

    return seeds_run(by_default, run_graph, &graphs);
}
