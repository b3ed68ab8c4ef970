/*
 * What is measured, in which order. For each graph and size the inputs and the fp64 results are
 * made once, here; then children measure, one after the other: the yardsticks without Plasmon, and
 * Plasmon. This process touches neither a device nor gRPC. A child that fails costs its figures,
 * and the rest goes on.
 */
#include "bench/graphs/measure.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "bench/graphs/chain.h"
#include "bench/graphs/latency.h"
#include "bench/graphs/multi.h"
#include "bench/graphs/steps.h"

#define DROP 3u
/* of the speed by hand, of runs in flight: alone, one pays the round trip (table.c, TARGETS) */
#define MULTI_TARGET 0.95

static const char *const policies[] = {"auto", "locality", "round-robin"};

/* "[3 of 18, 41 s] HITS middle: by hand" */
static void progress(const struct graphs_measure *measure, const char *format, ...)
    PL_PRINTF(2, 3);
static void progress(const struct graphs_measure *measure, const char *format, ...)
{
    char text[160];
    va_list args;

    va_start(args, format);
    (void)vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    bench_say("[%u of %u, %.0f s] %s", measure->step, measure->steps,
              (double)(pl_now_ns() - measure->began_ns) * 1e-9, text);
}

/* Seconds since *at_ns, which becomes now. */
static double lap(uint64_t *at_ns)
{
    uint64_t now_ns = pl_now_ns();
    double seconds  = (double)(now_ns - *at_ns) * 1e-9;

    *at_ns = now_ns;
    return seconds;
}

static struct graphs_run new_run(const struct graphs_measure *measure,
                                 const struct graphs_graph *graph)
{
    return (struct graphs_run){.graph     = graph,
                               .cuda      = measure->cuda,
                               .modes     = measure->modes,
                               .samples   = measure->samples,
                               .drop      = DROP,
                               .in_flight = measure->in_flight,
                               .budget_ns = measure->budget_ns};
}

/* ---------------------------------------------------------------------------------- six */

uint32_t graphs_measure_six_figures(const struct graphs_measure *measure)
{
    uint32_t contestants = measure->cuda ? GRAPHS_CONTESTANTS : 3; /* one by hand on CPUs */

    return contestants * (uint32_t)__builtin_popcount(measure->modes);
}

/* The yardsticks' figures into the row, and what Plasmon's runs must know of them. */
static bool measure_by_hand(struct graphs_measure *measure, struct graphs_run *run,
                            struct graphs_row *row)
{
    struct pl_err err = {0};

    if (bench_run_raw(graphs_bare_run, run, row->result, GRAPHS_RESULTS, &err) !=
        PLASMON_OK) {
        for (size_t i = 0; i < GRAPHS_RESULTS; i++) {
            row->result[i] = -1;
        }
        graphs_table_remark(measure->table, "%s %s by hand: %s", row->definition->title,
                            graphs_size_name(row->size), err.text);
        return false;
    }
    for (uint32_t mode = 0; mode < GRAPHS_MODES; mode++) {
        double seconds            = graphs_row_seconds(row, mode, GRAPHS_SERIAL);
        run->serial_seconds[mode] = seconds > 0 ? seconds : 0;
    }
    return true;
}

static bool measure_plasmon(struct graphs_measure *measure, const struct graphs_run *run,
                            struct graphs_row *row)
{
    double played[GRAPHS_RESULTS];
    struct pl_err err = {0};

    if (bench_run_raw(graphs_play_run, run, played, GRAPHS_RESULTS, &err) != PLASMON_OK) {
        graphs_table_remark(measure->table, "%s %s on Plasmon: %s", row->definition->title,
                            graphs_size_name(row->size), err.text);
        return false;
    }
    for (size_t i = 0; i < GRAPHS_PATH; i++) {
        if (i % GRAPHS_CONTESTANTS >= GRAPHS_PLAIN) {
            row->result[i] = played[i];
        }
    }
    return true;
}

bool graphs_measure_six(struct graphs_measure *measure,
                        const struct graphs_definition *definition, enum graphs_size size)
{
    struct graphs_row row = {.definition = definition, .size = size};
    uint64_t at_ns        = pl_now_ns();
    struct graphs_graph graph;
    struct graphs_run run;
    bool ok;

    measure->step++;
    progress(measure, "%s %s: inputs and fp64 results", definition->title,
             graphs_size_name(size));
    graphs_graph_build(&graph, definition, definition->size[size], measure->table->seed);
    run           = new_run(measure, &graph);
    row.traffic   = graphs_traffic(&graph);
    row.prepare_s = lap(&at_ns);
    progress(measure, "%s %s: by hand", definition->title, graphs_size_name(size));
    ok            = measure_by_hand(measure, &run, &row);
    row.by_hand_s = lap(&at_ns);
    progress(measure, "%s %s: Plasmon", definition->title, graphs_size_name(size));
    ok            = measure_plasmon(measure, &run, &row) && ok;
    row.plasmon_s = lap(&at_ns);
    graphs_table_add(measure->table, &row);
    graphs_graph_finish(&graph);
    return graphs_table_save(measure->table) && ok;
}

/* -------------------------------------------------------------------------------- multi */

uint32_t graphs_measure_multi_figures(const struct graphs_measure *measure)
{
    uint32_t figures = 0;

    for (uint32_t devices = measure->devices_min; devices <= measure->devices;
         devices *= 2) {
        figures += 6; /* by hand, plain, replay: one at a time and in flight */
    }
    return figures + (measure->devices > 1 ? 1 + (uint32_t)PL_COUNT(policies) - 1 : 0);
}

struct placement {
    const struct graphs_multi *config;
    const double *by_hand; /* figures; negative: not measured */
};

static void add_placement(struct graphs_measure *measure, const struct placement *placement,
                          const double *result, enum graphs_multi_figure figure)
{
    const struct graphs_multi *config          = placement->config;
    const struct graphs_definition *definition = config->run.graph->definition;
    bool is_auto                               = strcmp(config->policy, "auto") == 0;
    bool flight                                = graphs_multi_is_flight(figure);
    bool replay    = figure == GRAPHS_MULTI_REPLAY || figure == GRAPHS_MULTI_REPLAY_FLIGHT;
    double seconds = result[figure];
    double by_hand =
        placement->by_hand[flight ? GRAPHS_MULTI_PLAIN_FLIGHT : GRAPHS_MULTI_PLAIN];
    struct bench_row row = {.x          = config->devices,
                            .value      = seconds * 1e3,
                            .unit       = "ms",
                            .limit      = by_hand > 0 ? by_hand * 1e3 : 0,
                            .limit_name = flight ? "by hand, in flight; speed of it"
                                                 : "by hand; speed of it",
                            .ratio      = by_hand > 0 ? by_hand / seconds : 0};
    char runs[24]        = "";

    if (seconds <= 0) {
        return;
    }
    if (flight) {
        (void)snprintf(runs, sizeof(runs), " of %u runs",
                       graphs_multi_in_flight(config, figure));
    }
    (void)snprintf(row.name, sizeof(row.name), "multi.%s.%s%s%s", definition->option,
                   figure == GRAPHS_MULTI_PINNED ? "pinned" : config->policy,
                   replay ? ".replay" : "", flight ? ".flight" : "");
    (void)snprintf(row.note, sizeof(row.note), "%zu kernels, %.0f samples%s",
                   config->run.graph->steps.count - config->run.graph->init_steps,
                   result[GRAPHS_MULTI_FIGURES + figure], runs);
    if (is_auto && flight && config->run.cuda) {
        row.target = -MULTI_TARGET; /* the others show what a policy is worth */
    }
    bench_report_add(&measure->table->more, &row);
}

/* One policy on so many devices. */
static bool measure_policy(struct graphs_measure *measure,
                           const struct placement *placement)
{
    const struct graphs_multi *config = placement->config;
    const char *title                 = config->run.graph->definition->title;
    double result[GRAPHS_MULTI_RESULTS];
    struct pl_err err = {0};

    progress(measure, "%s on %u devices: Plasmon, %s", title, config->devices,
             config->policy);
    if (bench_run_raw(graphs_multi_play_run, config, result, GRAPHS_MULTI_RESULTS, &err) !=
        PLASMON_OK) {
        bench_report_remark(&measure->table->more, "%s on %u devices, %s: %s", title,
                            config->devices, config->policy, err.text);
        return false;
    }
    for (int i = 0; i < GRAPHS_MULTI_FIGURES; i++) {
        add_placement(measure, placement, result, (enum graphs_multi_figure)i);
    }
    return true;
}

static bool measure_devices(struct graphs_measure *measure,
                            const struct graphs_graph *graph, uint32_t devices)
{
    bool is_most = devices > 1 && 2 * devices > measure->devices;
    double by_hand[GRAPHS_MULTI_RESULTS];
    struct graphs_multi config = {
        .run = new_run(measure, graph), .devices = devices, .traces = measure->traces};
    struct placement placement = {.config = &config, .by_hand = by_hand};
    const char *title          = graph->definition->title;
    struct pl_err err          = {0};
    bool ok;

    for (size_t i = 0; i < GRAPHS_MULTI_RESULTS; i++) {
        by_hand[i] = -1;
    }
    progress(measure, "%s on %u devices: by hand", title, devices);
    ok = bench_run_raw(graphs_multi_bare_run, &config, by_hand, GRAPHS_MULTI_RESULTS,
                       &err) == PLASMON_OK;
    config.by_hand = ok ? by_hand[GRAPHS_MULTI_PLAIN] : 0;
    if (!ok) {
        for (size_t i = 0; i < GRAPHS_MULTI_RESULTS; i++) {
            by_hand[i] = -1;
        }
        bench_report_remark(&measure->table->more, "%s on %u devices by hand: %s", title,
                            devices, err.text);
    }
    for (size_t i = 0; i < (is_most ? PL_COUNT(policies) : 1); i++) {
        if (!cli_list_has(measure->policies, policies[i])) {
            continue;
        }
        config.policy = policies[i];
        config.replay = i == 0;
        config.flight = i == 0;
        config.pinned = i == 0 && is_most;
        ok            = measure_policy(measure, &placement) && ok;
    }
    return graphs_table_save(measure->table) && ok;
}

bool graphs_measure_multi(struct graphs_measure *measure,
                          const struct graphs_definition *definition, enum graphs_size size)
{
    struct bench_row wall = {.unit = "s", .note = "all of this graph's rows"};
    uint64_t at_ns        = pl_now_ns();
    struct graphs_graph graph;
    bool ok = true;

    measure->step++;
    progress(measure, "%s for several devices, %s: fp64 results", definition->title,
             graphs_size_name(size));
    graphs_graph_build(&graph, definition, definition->size[size], measure->table->seed);
    for (uint32_t devices = measure->devices_min; devices <= measure->devices;
         devices *= 2) {
        ok = measure_devices(measure, &graph, devices) && ok;
    }
    graphs_graph_finish(&graph);
    wall.value = lap(&at_ns);
    (void)snprintf(wall.name, sizeof(wall.name), "multi.%s.wall", definition->option);
    bench_report_add(&measure->table->more, &wall);
    return graphs_table_save(measure->table) && ok;
}

/* ------------------------------------------------------------------------------- chains */

bool graphs_measure_chain(struct graphs_measure *measure)
{
    const struct graphs_chain chain = {.cuda    = measure->cuda,
                                       .devices = measure->devices > 1 ? 2 : 1,
                                       .links   = measure->cuda ? 10000 : 1000,
                                       .hops    = 1000};
    bool ok;

    measure->step++;
    progress(measure, "a chain of kernels, an edge between devices");
    ok = graphs_chain_measure(&chain, &measure->table->more);
    progress(measure, "one launch at a time");
    ok = graphs_latency_measure(measure->cuda, &measure->table->more) && ok;
    progress(measure, "what a replay consists of");
    ok = graphs_steps_measure(measure->cuda, &measure->table->more) && ok;
    return graphs_table_save(measure->table) && ok;
}
