/* The parts of `plasmon bench graphs`: each measures in children, adds rows to the table, and saves it. */
#ifndef BENCH_GRAPHS_MEASURE_H
#define BENCH_GRAPHS_MEASURE_H

#include "bench/graphs/table.h"

struct graphs_measure {
    struct graphs_table *table;
    bool cuda;
    uint32_t modes; /* bits, of bare.h */
    uint32_t samples, in_flight, devices, devices_min;
    uint64_t budget_ns; /* of one figure */
    uint64_t began_ns;
    const char *policies; /* a list: those of multi that are wanted */
    const char *traces;   /* a folder for timelines of multi; NULL: none */
    uint32_t steps,
        step; /* for who watches: how many pieces of work there are, and which is under way */
};

/* How many figures a part has, of so many devices; budgets are divided by them. */
uint32_t graphs_measure_six_figures(const struct graphs_measure *measure);
uint32_t graphs_measure_multi_figures(const struct graphs_measure *measure);

/* false: a child failed; a remark says how. */
bool graphs_measure_six(struct graphs_measure *measure,
                        const struct graphs_definition *definition, enum graphs_size size);
bool graphs_measure_multi(struct graphs_measure *measure,
                          const struct graphs_definition *definition,
                          enum graphs_size size);
bool graphs_measure_chain(struct graphs_measure *measure);

#endif
