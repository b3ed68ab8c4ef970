/*
 * `plasmon bench graphs`: task graphs of the GrCUDA suite on Plasmon, beside the same kernels
 * launched by hand.
 *
 *   six     on one device, hand-tuned streams and CUDA graphs beside them
 *   multi   five of them on 1, 2, 4, ... devices, and every policy of placement on the most
 *   chain   what one dependency costs, on one device and between two; what one launch costs that
 *           somebody waits for; what each step between a CUDA graph by hand and a replay costs
 *           (steps.c)
 *
 * This file says what is to be measured and what comes of it; measure.c does it. The exit status
 * tells whether every result was right and every figure is there; with --strict also whether the
 * targets were met, which depends on the machine.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bench/graphs/measure.h"

#define SAMPLES         30u
#define FIGURE_MS       500u /* fewer samples when they take longer */
#define FIGURE_QUICK_MS 250u
#define BUDGET_MAX      86400u /* seconds */

struct graphs_options {
    const char *part;
    const char *only;
    const char *sizes;
    const char *modes;
    const char *policies;
    bool quick, strict;
    uint32_t devices, devices_min;
    uint32_t samples;
    uint32_t budget;
    uint32_t in_flight;
    const char *seed;
    const char *gpus;
    const char *json;
    const char *plot;
    const char *traces;
};

#define OPTION(field) offsetof(struct graphs_options, field)
static const struct cli_option options[] = {
    {"--part", "LIST", CLI_TEXT, OPTION(part),
     "of six, multi, chain [all; six,chain with --quick]"},
    {"--only", "LIST", CLI_TEXT, OPTION(only),
     "of vec, bs, img, ml, hits, dl, cg, mul [all]"},
    {"--sizes", "LIST", CLI_TEXT, OPTION(sizes),
     "tiny, small, middle, large; multi takes the largest [small,middle,large; tiny "
     "without "
     "a GPU]"},
    {"--modes", "LIST", CLI_TEXT, OPTION(modes),
     "of six: resident, cold, pageable, single [resident,cold,single; all without a GPU]"},
    {"--devices", "N", CLI_COUNT, OPTION(devices),
     "the most that multi uses, up to 8 [all; 2 CPU devices]"},
    {"--devices-min", "N", CLI_COUNT, OPTION(devices_min),
     "the fewest; from there on twice as many each time [1]"},
    {"--policies", "LIST", CLI_TEXT, OPTION(policies),
     "of multi: auto, locality, round-robin [all]"},
    {"--quick", NULL, CLI_FLAG, OPTION(quick),
     "small and middle sizes, half the budget: about a minute and a half"},
    {"--budget", "SECONDS", CLI_COUNT, OPTION(budget),
     "of repetitions, divided among all figures; what else takes time comes on top [half a "
     "second each]"},
    {"--runs", "N", CLI_COUNT, OPTION(samples),
     "samples of each figure, up to 3 dropped; fewer when the budget is spent, never less "
     "than 3 [30]"},
    {"--in-flight", "N", CLI_COUNT, OPTION(in_flight),
     "the most runs that are enqueued before the first is waited for [100; 4 without a "
     "GPU]"},
    {"--strict", NULL, CLI_FLAG, OPTION(strict), "fail when a target is missed"},
    {"--seed", "N", CLI_TEXT, OPTION(seed), "of the inputs [from the clock]"},
    {"--gpus", "N", CLI_TEXT, OPTION(gpus),
     "none: on a CPU device, although there is a GPU"},
    {"--json", "FILE", CLI_OUTPUT, OPTION(json),
     "write the results as JSON, after each graph what there is so far"},
    {"--plot", "FILE.svg", CLI_OUTPUT, OPTION(plot), "draw all of it on one page"},
    {"--traces", "FOLDER", CLI_TEXT, OPTION(traces),
     "of each figure of multi on Plasmon, record some more runs with their timeline, and "
     "write it there (GRAPH-DEVICES-POLICY.json, opens in Perfetto); it is made if need "
     "be"},
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
        "flight, time a run. cold: the same, but each run's\ninputs come from page-locked "
        "host memory, and its "
        "outputs go there; pageable: ordinary memory\non Plasmon's side. "
        "single: one run from its first call to its results. Of several devices: one run "
        "at a "
        "time, and many\nin flight, by hand too.",
    .options      = options,
    .option_count = PL_COUNT(options),
    .run          = run_graphs,
};

static const struct graphs_definition *const six[] = {
    &graphs_vec, &graphs_bs, &graphs_img, &graphs_ml, &graphs_hits, &graphs_dl};
static const struct graphs_definition *const multi[] = {&graphs_multi_vec, &graphs_multi_bs,
                                                        &graphs_multi_ml, &graphs_multi_cg,
                                                        &graphs_multi_mul};

/* -------------------------------------------------------------------- what is asked for */

/*
 * The next graph and size of six that is wanted, from *at on, which moves past it. false: that was
 * the last.
 */
static bool next_six(const struct graphs_options *given, size_t *at,
                     const struct graphs_definition **out_definition,
                     enum graphs_size *out_size)
{
    while (cli_list_has(given->part, "six") && *at < PL_COUNT(six) * GRAPHS_SIZES) {
        size_t now = (*at)++;

        *out_definition = six[now / GRAPHS_SIZES];
        *out_size       = (enum graphs_size)(now % GRAPHS_SIZES);
        if (cli_list_has(given->only, (*out_definition)->option) &&
            cli_list_has(given->sizes, graphs_size_name(*out_size))) {
            return true;
        }
    }
    return false;
}

static bool next_multi(const struct graphs_options *given, size_t *at,
                       const struct graphs_definition **out_definition)
{
    while (cli_list_has(given->part, "multi") && *at < PL_COUNT(multi)) {
        *out_definition = multi[(*at)++];
        if (cli_list_has(given->only, (*out_definition)->option)) {
            return true;
        }
    }
    return false;
}

static enum graphs_size largest_size(const struct graphs_options *given)
{
    enum graphs_size largest = GRAPHS_TINY;

    for (int i = 0; i < GRAPHS_SIZES; i++) {
        if (cli_list_has(given->sizes, graphs_size_name((enum graphs_size)i))) {
            largest = (enum graphs_size)i;
        }
    }
    return largest;
}

/* How much there is to do, and what that leaves each figure of the time. */
static void plan(struct graphs_measure *measure, const struct graphs_options *given)
{
    const struct graphs_definition *definition;
    enum graphs_size size;
    uint32_t figures = 0;

    for (size_t at = 0; next_six(given, &at, &definition, &size); measure->steps++) {
        figures += graphs_measure_six_figures(measure);
    }
    for (size_t at = 0; next_multi(given, &at, &definition); measure->steps++) {
        figures += graphs_measure_multi_figures(measure);
    }
    measure->steps += cli_list_has(given->part, "chain");
    measure->budget_ns = (given->quick ? FIGURE_QUICK_MS : FIGURE_MS) * 1000000ull;
    if (given->budget > 0 && figures > 0) {
        measure->budget_ns = given->budget * 1000000000ull / figures;
    }
}

static bool run_parts(struct graphs_measure *measure, const struct graphs_options *given)
{
    const struct graphs_definition *definition;
    enum graphs_size size;
    bool ok = true;

    for (size_t at = 0; next_six(given, &at, &definition, &size);) {
        ok = graphs_measure_six(measure, definition, size) && ok;
    }
    for (size_t at = 0; next_multi(given, &at, &definition);) {
        ok = graphs_measure_multi(measure, definition, largest_size(given)) && ok;
    }
    if (cli_list_has(given->part, "chain")) {
        ok = graphs_measure_chain(measure) && ok;
    }
    return ok;
}

/* -------------------------------------------------------------------------- the command */

/* Defaults that depend on the machine, and what cannot be. Negative: fine. */
static int complete_options(struct graphs_options *given, bool cuda)
{
    uint32_t gpus = bench_machine_gpus();

    given->part  = given->part != NULL ? given->part
                   : given->quick      ? "six,chain"
                                       : "six,multi,chain";
    given->only  = given->only != NULL ? given->only : "vec,bs,img,ml,hits,dl,cg,mul";
    given->sizes = given->sizes != NULL ? given->sizes
                   : !cuda              ? "tiny"
                   : given->quick       ? "small,middle"
                                        : "small,middle,large";
    given->modes = given->modes != NULL ? given->modes
                   : cuda               ? "resident,cold,single"
                                        : "resident,cold,pageable,single";
    given->policies =
        given->policies != NULL ? given->policies : "auto,locality,round-robin";
    given->devices = given->devices > 0 ? given->devices : !cuda ? 2 : gpus > 8 ? 8 : gpus;
    if (!cli_list_is_of(given->only, "vec,bs,img,ml,hits,dl,cg,mul") ||
        !cli_list_is_of(given->sizes, "tiny,small,middle,large") ||
        !cli_list_is_of(given->modes, "resident,cold,pageable,single") ||
        !cli_list_is_of(given->policies, "auto,locality,round-robin") ||
        !cli_list_is_of(given->part, "six,multi,chain")) {
        return cli_usage(
            &bench_graphs,
            "--only has names of vec,bs,img,ml,hits,dl,cg,mul; --sizes of "
            "tiny,small,middle,large; --modes of resident,cold,pageable,single; "
            "--policies of auto,locality,round-robin; --part of six,multi,chain");
    }
    if (given->samples <= GRAPHS_SAMPLES_MIN || given->samples > GRAPHS_SAMPLES_MAX ||
        given->devices > 8 || given->devices_min > given->devices ||
        given->in_flight > 256 || given->budget > BUDGET_MAX) {
        return cli_usage(
            &bench_graphs,
            "--runs is 4 to 256, --devices 1 to 8 and not below --devices-min, "
            "--in-flight 1 to 256 and --budget at most a day");
    }
    return -1;
}

/* Before anything is measured: what cannot be written then is lost. */
static bool folder_ready(const char *folder)
{
    if ((mkdir(folder, 0777) != 0 && errno != EEXIST) || access(folder, W_OK | X_OK) != 0) {
        fprintf(
            stderr,
            "plasmon bench graphs: --traces %s: %s; give a folder that can be written, or "
            "one that can be made\n",
            folder, strerror(errno));
        return false;
    }
    return true;
}

static bool report(const struct graphs_table *table, const struct graphs_options *given,
                   double seconds)
{
    bool ok = graphs_table_save(table);
    uint32_t targets, met;

    ok = graphs_table_write_plot(table, given->plot) && ok;
    graphs_table_print(table);
    graphs_table_targets(table, &targets, &met);
    printf("%.0f s in all\n", seconds);
    return ok && (!given->strict || met == targets);
}

static int run_graphs(int argc, char **argv)
{
    struct graphs_options given   = {.samples = SAMPLES};
    struct cli_parsed parsed      = cli_parse(&bench_graphs, argc, argv, &given);
    struct graphs_measure measure = {.began_ns = pl_now_ns()};
    struct graphs_table table;
    int wrong;
    bool ok;

    if (parsed.exit >= 0) {
        return parsed.exit;
    }
    measure.cuda =
        bench_machine_gpus() > 0 && (given.gpus == NULL || strcmp(given.gpus, "none") != 0);
    wrong = complete_options(&given, measure.cuda);
    if (wrong >= 0) {
        return wrong;
    }
    if (given.traces != NULL && !folder_ready(given.traces)) {
        return CLI_FAIL;
    }
    for (uint32_t i = 0; i < GRAPHS_MODES; i++) {
        measure.modes |= (uint32_t)cli_list_has(given.modes, graphs_mode_name(i)) << i;
    }
    measure.table       = &table;
    measure.samples     = given.samples;
    measure.devices     = given.devices;
    measure.devices_min = given.devices_min > 0 ? given.devices_min : 1;
    measure.traces      = given.traces;
    measure.policies    = given.policies;
    measure.in_flight   = given.in_flight > 0 ? given.in_flight : measure.cuda ? 100 : 4;
    graphs_table_init(&table,
                      given.seed != NULL ? strtoull(given.seed, NULL, 10) : pl_now_ns(),
                      given.json);
    plan(&measure, &given);
    ok = run_parts(&measure, &given);
    ok = report(&table, &given, (double)(pl_now_ns() - measure.began_ns) * 1e-9) && ok;
    graphs_table_finish(&table);
    return ok ? CLI_OK : CLI_FAIL;
}
