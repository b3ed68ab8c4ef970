/*
 * `plasmon bench graphs`: task graphs of the GrCUDA suite on Plasmon, beside the same kernels launched by hand.
 *
 *   six     on one device, hand-tuned streams and CUDA graphs beside them
 *   multi   five of them on 1, 2, 4, ... devices, and every policy of placement on the most
 *   chain   what one dependency costs, on one device and between two
 *
 * For each graph and size the inputs and the fp64 results are made once, here; then two children measure, one after the other: the
 * yardsticks without Plasmon, and Plasmon. This process touches neither a device nor gRPC. A child that fails costs its figures
 * and the exit status, and the rest goes on.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/graphs/chain.h"
#include "bench/graphs/multi.h"
#include "bench/graphs/table.h"

#define RUNS            30u
#define DROP            3u
#define BUDGET_MS       6000u /* of one figure: fewer runs when they take longer */
#define BUDGET_QUICK_MS 1500u

struct graphs_options {
    const char *part;
    const char *graph;
    const char *sizes;
    bool quick, resident;
    uint32_t devices;
    uint32_t runs;
    uint32_t in_flight;
    const char *seed;
    const char *gpus;
    const char *json;
    const char *plot;
    const char *plot_devices;
};

#define OPTION(field) offsetof(struct graphs_options, field)
static const struct cli_option options[] = {
    {"--part", "LIST", CLI_TEXT, OPTION(part),
     "of six, multi, chain [all; six,chain with --quick]"},
    {"--graph", "LIST", CLI_TEXT, OPTION(graph),
     "of vec, bs, img, ml, hits, dl, cg, mul [all]"},
    {"--devices", "N", CLI_COUNT, OPTION(devices),
     "the most that multi uses, up to 8 [all; 2 CPU devices]"},
    {"--sizes", "LIST", CLI_TEXT, OPTION(sizes),
     "tiny, small, middle, large [small,middle,large; tiny without a GPU]"},
    {"--quick", NULL, CLI_FLAG, OPTION(quick),
     "small and middle sizes, a second and a half for each figure: minutes in all"},
    {"--resident", NULL, CLI_FLAG, OPTION(resident),
     "leave out the runs that copy their inputs from host memory"},
    {"--runs", "N", CLI_COUNT, OPTION(runs),
     "of each, the first 3 dropped; fewer when they take seconds [30]"},
    {"--in-flight", "N", CLI_COUNT, OPTION(in_flight),
     "runs enqueued before the first is waited for, for throughput [100; 4 without a GPU]"},
    {"--seed", "N", CLI_TEXT, OPTION(seed), "of the inputs [from the clock]"},
    {"--gpus", "N", CLI_TEXT, OPTION(gpus),
     "none: on a CPU device, although there is a GPU"},
    {"--json", "FILE", CLI_TEXT, OPTION(json), "write the results as JSON"},
    {"--plot", "FILE.svg", CLI_TEXT, OPTION(plot),
     "draw six: the speed beside hand-tuned streams"},
    {"--plot-devices", "FILE.svg", CLI_TEXT, OPTION(plot_devices),
     "draw multi: times over devices"},
};

static int run_graphs(int argc, char **argv);
const struct cli_command bench_graphs = {
    .name = "bench graphs",
    .summary =
        "six task graphs; beside them the same kernels by hand, in streams and CUDA graphs",
    .usage = "[options]",
    .text =
        "serial: one stream, a synchronisation after each kernel. events: hand-tuned "
        "streams and\nevents. graph: those captured as a CUDA graph. plain: Plasmon, "
        "submitted each time. replay:\nPlasmon, recorded once. All run the same kernels, "
        "whose results are checked against fp64\nfirst; medians. resident: many runs in "
        "flight, time a run. cold: the same, but each run's\ninputs come from host memory. "
        "single: one run from its first call to its results.",
    .options      = options,
    .option_count = PL_COUNT(options),
    .run          = run_graphs,
};

static const struct graphs_definition *const six[] = {
    &graphs_vec, &graphs_bs, &graphs_img, &graphs_ml, &graphs_hits, &graphs_dl};
static const struct graphs_definition *const multi[] = {&graphs_multi_vec, &graphs_multi_bs,
                                                        &graphs_multi_ml, &graphs_multi_cg,
                                                        &graphs_multi_mul};

struct benchmark {
    struct graphs_options given;
    bool cuda;
    uint64_t seed;
    struct graphs_table table;
    struct bench_report more; /* multi and chain */
};

/* ------------------------------------------------------------------------------------------------ lists */

static bool list_has(const char *list, const char *name)
{
    size_t length = strlen(name);

    for (const char *at = list; at != NULL; at = strchr(at, ',')) {
        at += *at == ',';
        if (strncmp(at, name, length) == 0 && (at[length] == ',' || at[length] == '\0')) {
            return true;
        }
    }
    return false;
}

/* Is each word of `list` one of `all`? */
static bool list_is_of(const char *list, const char *all)
{
    char word[16];

    for (const char *at = list; at != NULL; at = strchr(at, ',')) {
        size_t length;

        at += *at == ',';
        length = strcspn(at, ",");
        if (length == 0 || length >= sizeof(word)) {
            return false;
        }
        memcpy(word, at, length);
        word[length] = '\0';
        if (!list_has(all, word)) {
            return false;
        }
    }
    return true;
}

static uint32_t budget_ms(const struct graphs_options *given)
{
    return given->quick ? BUDGET_QUICK_MS : BUDGET_MS;
}

/* ------------------------------------------------------------------------------------------------ six */

static uint32_t in_flight(const struct benchmark *bench)
{
    return bench->given.in_flight != 0 ? bench->given.in_flight : bench->cuda ? 100 : 4;
}

static bool measure_six(struct benchmark *bench, const struct graphs_definition *definition,
                        enum graphs_size size)
{
    struct graphs_row row = {.definition = definition, .size = size};
    struct graphs_graph graph;
    struct graphs_run run = {.graph     = &graph,
                             .cuda      = bench->cuda,
                             .cold      = !bench->given.resident,
                             .runs      = bench->given.runs,
                             .drop      = DROP,
                             .in_flight = in_flight(bench),
                             .budget_ms = budget_ms(&bench->given)};
    double played[GRAPHS_RESULTS];
    struct pl_err bare_err = {0}, play_err = {0};
    bool bare_ok, play_ok;

    bench_say("%s %s: inputs and fp64 results", definition->title, graphs_size_name(size));
    graphs_graph_build(&graph, definition, definition->size[size], bench->seed);
    bench_say("%s %s: by hand", definition->title, graphs_size_name(size));
    bare_ok = bench_run_raw(graphs_bare_run, &run, row.seconds, GRAPHS_RESULTS,
                            &bare_err) == PLASMON_OK;
    bench_say("%s %s: Plasmon", definition->title, graphs_size_name(size));
    play_ok = bench_run_raw(graphs_play_run, &run, played, GRAPHS_RESULTS, &play_err) ==
              PLASMON_OK;
    for (size_t i = 0; i < GRAPHS_RESULTS; i++) {
        if (i % GRAPHS_CONTESTANTS >= GRAPHS_PLAIN) {
            row.seconds[i] = play_ok ? played[i] : -1;
        } else if (!bare_ok) {
            row.seconds[i] = -1;
        }
    }
    graphs_table_add(&bench->table, &row);
    if (!bare_ok) {
        graphs_table_remark(&bench->table, "%s %s by hand: %s", definition->title,
                            graphs_size_name(size), bare_err.text);
    }
    if (!play_ok) {
        graphs_table_remark(&bench->table, "%s %s on Plasmon: %s", definition->title,
                            graphs_size_name(size), play_err.text);
    }
    graphs_graph_finish(&graph);
    return bare_ok && play_ok;
}

/* ------------------------------------------------------------------------------------------------ multi */

/* One placement on so many devices, beside `by_hand` seconds (negative: not measured). */
static bool measure_policy(struct benchmark *bench, const struct graphs_multi *config,
                           double by_hand)
{
    const struct graphs_definition *definition = config->run.graph->definition;
    const char *policy                         = config->policy;
    double result[GRAPHS_MULTI_RESULTS];
    struct pl_err err = {0};

    bench_say("%s on %u devices: Plasmon, %s", definition->title, config->devices, policy);
    if (bench_run_raw(graphs_multi_play_run, config, result, GRAPHS_MULTI_RESULTS, &err) !=
        PLASMON_OK) {
        bench_report_remark(&bench->more, "%s on %u devices, %s: %s", definition->title,
                            config->devices, policy, err.text);
        return false;
    }
    for (size_t i = 0; i < GRAPHS_MULTI_RESULTS; i++) {
        struct bench_row row = {.x          = config->devices,
                                .value      = result[i] * 1e3,
                                .unit       = "ms",
                                .limit      = by_hand > 0 ? by_hand * 1e3 : 0,
                                .limit_name = "by hand"};

        if (result[i] <= 0) {
            continue;
        }
        (void)snprintf(row.name, sizeof(row.name), "multi.%s.%s%s", definition->option,
                       policy, i == 1 ? ".replay" : "");
        if (i == 0 && strcmp(policy, "auto") == 0) { /* a line of the picture */
            (void)snprintf(row.series, sizeof(row.series), "%s", definition->title);
        }
        (void)snprintf(row.note, sizeof(row.note), "%zu kernels a run",
                       config->run.graph->steps.count - config->run.graph->init_steps);
        bench_report_add(&bench->more, &row);
    }
    return true;
}

static bool measure_multi(struct benchmark *bench, const struct graphs_graph *graph,
                          uint32_t devices, bool all_policies)
{
    static const char *const policies[]  = {"auto", "pinned", "locality", "round-robin"};
    struct graphs_multi config           = {.run     = {.graph     = graph,
                                                        .cuda      = bench->cuda,
                                                        .runs      = bench->given.runs,
                                                        .drop      = DROP,
                                                        .budget_ms = budget_ms(&bench->given)},
                                            .devices = devices};
    double by_hand[GRAPHS_MULTI_RESULTS] = {-1, -1};
    struct pl_err err                    = {0};
    bool ok;

    bench_say("%s on %u devices: by hand", graph->definition->title, devices);
    ok = bench_run_raw(graphs_multi_bare_run, &config, by_hand, GRAPHS_MULTI_RESULTS,
                       &err) == PLASMON_OK;
    if (!ok) {
        by_hand[0] = -1;
        bench_report_remark(&bench->more, "%s on %u devices by hand: %s",
                            graph->definition->title, devices, err.text);
    }
    for (size_t i = 0; i < (all_policies ? PL_COUNT(policies) : 1); i++) {
        config.policy = policies[i];
        config.replay = i == 0;
        ok &= measure_policy(bench, &config, by_hand[0]);
    }
    return ok;
}

static bool run_multi(struct benchmark *bench)
{
    enum graphs_size size = !bench->cuda         ? GRAPHS_TINY
                            : bench->given.quick ? GRAPHS_SMALL
                                                 : GRAPHS_LARGE;
    bool ok               = true;

    for (size_t i = 0; i < PL_COUNT(multi); i++) {
        struct graphs_graph graph;

        if (!list_has(bench->given.graph, multi[i]->option)) {
            continue;
        }
        bench_say("%s for several devices: fp64 results", multi[i]->title);
        graphs_graph_build(&graph, multi[i], multi[i]->size[size], bench->seed);
        for (uint32_t devices = 1; devices <= bench->given.devices; devices *= 2) {
            ok &= measure_multi(bench, &graph, devices,
                                devices > 1 && 2 * devices > bench->given.devices);
        }
        graphs_graph_finish(&graph);
    }
    return ok;
}

/* ------------------------------------------------------------------------------------------------ the command */

static bool run_parts(struct benchmark *bench)
{
    const struct graphs_options *given = &bench->given;
    bool ok                            = true;

    for (size_t i = 0; i < PL_COUNT(six) && list_has(given->part, "six"); i++) {
        for (size_t j = 0; j < GRAPHS_SIZES; j++) {
            if (list_has(given->graph, six[i]->option) &&
                list_has(given->sizes, graphs_size_name((enum graphs_size)j))) {
                ok &= measure_six(bench, six[i], (enum graphs_size)j);
            }
        }
    }
    if (list_has(given->part, "multi")) {
        ok &= run_multi(bench);
    }
    if (list_has(given->part, "chain")) {
        const struct graphs_chain chain = {.cuda    = bench->cuda,
                                           .devices = given->devices > 1 ? 2 : 1,
                                           .links   = bench->cuda ? 10000 : 1000,
                                           .hops    = 1000};

        ok &= graphs_chain_measure(&chain, &bench->more);
    }
    return ok;
}

static bool report(struct benchmark *bench)
{
    static const struct bench_plot plot = {.title   = "Task graphs on several devices",
                                           .x_label = "devices",
                                           .y_label = "a run (ms)"};
    bool ok                             = true;

    if (bench->table.rows.count > 0) {
        graphs_table_print(&bench->table);
        ok = graphs_table_write_plot(&bench->table, bench->given.plot);
    }
    if (bench->more.rows.count > 0 || bench->more.remarks.count > 0) {
        putchar('\n');
        bench_report_print(&bench->more);
    }
    if (list_has(bench->given.part, "multi")) {
        ok &= bench_plot_write(&plot, &bench->more, "ms", bench->given.plot_devices);
    }
    graphs_table_merge(&bench->table, &bench->more);
    return graphs_table_write_json(&bench->table, bench->given.json) && ok;
}

/* Defaults that depend on the machine, and what cannot be. Negative: fine. */
static int complete_options(struct graphs_options *given, bool cuda)
{
    uint32_t gpus = bench_machine_gpus();

    given->part    = given->part != NULL ? given->part
                     : given->quick      ? "six,chain"
                                         : "six,multi,chain";
    given->graph   = given->graph != NULL ? given->graph : "vec,bs,img,ml,hits,dl,cg,mul";
    given->sizes   = given->sizes != NULL ? given->sizes
                     : !cuda              ? "tiny"
                     : given->quick       ? "small,middle"
                                          : "small,middle,large";
    given->devices = given->devices > 0 ? given->devices : !cuda ? 2 : gpus > 8 ? 8 : gpus;
    if (!list_is_of(given->graph, "vec,bs,img,ml,hits,dl,cg,mul") ||
        !list_is_of(given->sizes, "tiny,small,middle,large") ||
        !list_is_of(given->part, "six,multi,chain")) {
        return cli_usage(&bench_graphs,
                         "--graph has names of vec,bs,img,ml,hits,dl,cg,mul; --sizes of "
                         "tiny,small,middle,large; --part of six,multi,chain");
    }
    if (given->runs <= DROP || given->runs > 256 || given->devices > 8 ||
        given->in_flight > 256) {
        return cli_usage(&bench_graphs,
                         "--runs is 4 to 256, --devices 1 to 8 and --in-flight 1 to 256");
    }
    return -1;
}

static int run_graphs(int argc, char **argv)
{
    struct benchmark bench   = {.given = {.runs = RUNS}};
    struct cli_parsed parsed = cli_parse(&bench_graphs, argc, argv, &bench.given);
    bool ok;
    int wrong;

    if (parsed.exit >= 0) {
        return parsed.exit;
    }
    bench.cuda = bench_machine_gpus() > 0 &&
                 (bench.given.gpus == NULL || strcmp(bench.given.gpus, "none") != 0);
    bench.seed =
        bench.given.seed != NULL ? strtoull(bench.given.seed, NULL, 10) : pl_now_ns();
    wrong = complete_options(&bench.given, bench.cuda);
    if (wrong >= 0) {
        return wrong;
    }
    graphs_table_init(&bench.table, bench.seed);
    bench_report_init(&bench.more, "Plasmon: several devices, and what a dependency costs");
    bench.more.x_title = "devices";
    ok                 = run_parts(&bench);
    ok &= report(&bench);
    graphs_table_finish(&bench.table);
    bench_report_finish(&bench.more);
    return ok ? CLI_OK : CLI_FAIL;
}
