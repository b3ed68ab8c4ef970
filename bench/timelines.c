/*
 * `plasmon bench timelines`: ways for one GPU to wait for another GPU of another process, without a
 * host between them. Words in host memory are what Plasmon uses (store/timeline.h); the others
 * stand beside them, and events within one process, which no way across processes can be expected
 * to beat, are the yardstick.
 *
 * A way that does not run on this machine is a remark. Words that arrived wrong are a failure of
 * the program when Plasmon's own way let them through, and a remark without figures when another
 * one did.
 */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "bench/bench.h"
#include "bench/timelines.h"

struct timelines_options {
    const char *gpus;
    const char *json;
    const char *plot;
};

#define OPTION(field) offsetof(struct timelines_options, field)
static const struct cli_option options[] = {
    {"--gpus", "none", CLI_TEXT, OPTION(gpus),
     "measure CPU devices although there are GPUs"},
    {"--json", "FILE", CLI_OUTPUT, OPTION(json), "write the results as JSON"},
    {"--plot", "FILE.svg", CLI_OUTPUT, OPTION(plot),
     "draw the latency over the bytes pulled"},
};

static int run_timelines(int argc, char **argv);
const struct cli_command bench_timelines = {
    .name    = "bench timelines",
    .summary = "one GPU waits for another across processes: words and events",
    .usage   = "[options]",
    .text =
        "Starts no cluster: two processes with a device each (the same GPU when there is "
        "one), and one process with both for the yardstick. Takes under a minute.",
    .options      = options,
    .option_count = PL_COUNT(options),
    .run          = run_timelines,
};

static const char *const way_names[TIMELINES_WAYS] = {
    "host words", "device words", "interprocess events", "events in one process"};

struct timelines {
    struct bench_report report;
    struct timelines_figures figures[TIMELINES_WAYS];
    bool measured[TIMELINES_WAYS];
    uint32_t ordinal[2];
    bool wrong; /* Plasmon's own way */
};

/* --------------------------------------------------------------------------------- rows */

static void add_row(struct timelines *run, enum timelines_way way, const char *name,
                    double x, double value, double limit, const char *unit)
{
    struct bench_row row = {.x = x, .value = value, .limit = limit, .unit = unit};

    (void)snprintf(row.name, sizeof(row.name), "%s", name);
    (void)snprintf(row.series, sizeof(row.series), "%s", way_names[way]);
    if (value > 0) {
        bench_report_add(&run->report, &row);
    }
}

static void add_chain(struct timelines *run, enum timelines_way way)
{
    const struct timelines_figures *figures = &run->figures[way];
    struct bench_row row                    = {.unit = "us/kernel"};

    for (size_t early = 0; early < 2; early++) {
        const char *how = early != 0 ? "chain of 2 us kernels, enqueued early"
                                     : "chain of 2 us kernels, enqueued as they run";

        for (size_t i = 0; i < TIMELINES_INTERVALS; i++) {
            row.value      = early != 0 ? figures->chain[i] : figures->flow[i];
            row.limit      = early != 0 ? figures->chain_bare : figures->flow_bare;
            row.limit_name = "kernels alone";
            (void)snprintf(row.name, sizeof(row.name), "%s", how);
            (void)snprintf(row.series, sizeof(row.series), "%s", way_names[way]);
            (void)snprintf(row.note, sizeof(row.note), "a signal after %s",
                           timelines_interval[i] == 1 ? "each" : "every 16th");
            bench_report_add(&run->report, &row);
        }
    }
}

/* Beside what events of one process take for the same, when that was measured. */
static void add_edges(struct timelines *run, enum timelines_way way)
{
    const struct timelines_figures *figures = &run->figures[way];
    struct bench_row row                    = {.unit = "us"};
    const struct timelines_figures *plain   = NULL;

    if (way != TIMELINES_ONE_PROCESS && run->measured[TIMELINES_ONE_PROCESS]) {
        plain          = &run->figures[TIMELINES_ONE_PROCESS];
        row.limit_name = way_names[TIMELINES_ONE_PROCESS];
    }
    (void)snprintf(row.series, sizeof(row.series), "%s", way_names[way]);
    (void)snprintf(row.name, sizeof(row.name), "edge: signal and wait");
    (void)snprintf(row.note, sizeof(row.note), "half a round");
    row.value = figures->edge;
    row.limit = plain != NULL ? plain->edge : 0;
    bench_report_add(&run->report, &row);

    for (size_t i = 0; i < TIMELINES_SIZES; i++) {
        (void)snprintf(row.name, sizeof(row.name), "edge: kernel, signal, wait, pull");
        (void)snprintf(row.note, sizeof(row.note), "%llu of %llu words wrong",
                       (unsigned long long)figures->words_wrong,
                       (unsigned long long)figures->words_checked);
        row.x     = (double)timelines_size[i];
        row.value = figures->edge_data[i];
        row.limit = plain != NULL ? plain->edge_data[i] : 0;
        bench_report_add(&run->report, &row);
    }
}

static void report_all(struct timelines *run)
{
    for (int way = 0; way < TIMELINES_WAYS; way++) {
        if (run->measured[way]) {
            add_chain(run, (enum timelines_way)way);
        }
    }
    for (int way = 0; way < TIMELINES_WAYS; way++) {
        if (run->measured[way]) {
            add_row(run, (enum timelines_way)way, "enqueue a signal", 0,
                    run->figures[way].enqueue_signal, 0, "us");
            add_row(run, (enum timelines_way)way, "enqueue a wait", 0,
                    run->figures[way].enqueue_wait, 0, "us");
        }
    }
    for (int way = 0; way < TIMELINES_WAYS; way++) {
        if (run->measured[way]) {
            add_edges(run, (enum timelines_way)way);
        }
    }
}

/* ------------------------------------------------------------------------------ running */

static void run_way(struct timelines *run, enum timelines_way way, bool cuda,
                    struct timelines_page *page)
{
    const struct timelines_figures *figures = &page->figures;
    struct pl_err err                       = {0};
    plasmon_status_t status;

    bench_say("%s", way_names[way]);
    status = timelines_run_way(way, cuda, page, &err);
    if (status != PLASMON_OK && way == TIMELINES_HOST_WORDS) {
        bench_die("%s: %s", way_names[way], err.text);
    }
    if (status != PLASMON_OK) {
        bench_report_remark(&run->report, "%s: %.120s", way_names[way], err.text);
        return;
    }
    memcpy(run->ordinal, page->ordinal, sizeof(run->ordinal));
    if (figures->words_wrong > 0) {
        bench_report_remark(&run->report, "%s: %llu of %llu words arrived wrong",
                            way_names[way], (unsigned long long)figures->words_wrong,
                            (unsigned long long)figures->words_checked);
        run->wrong |= way == TIMELINES_HOST_WORDS;
        return;
    }
    run->figures[way]  = *figures;
    run->measured[way] = true;
}

static void run_ways(struct timelines *run, bool cuda)
{
    struct timelines_page *page = mmap(NULL, sizeof(*page), PROT_READ | PROT_WRITE,
                                       MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (page == MAP_FAILED) {
        bench_die("out of host memory");
    }
    run_way(run, TIMELINES_HOST_WORDS, cuda, page);
    if (cuda) {
        run_way(run, TIMELINES_DEVICE_WORDS, true, page);
        run_way(run, TIMELINES_EVENTS, true, page);
        run_way(run, TIMELINES_ONE_PROCESS, true, page);
        if (run->ordinal[0] == run->ordinal[1]) {
            bench_report_remark(
                &run->report, "both sides were on one GPU: processes take turns on it, so "
                              "an edge across processes holds a time slice");
        }
    } else {
        bench_report_remark(&run->report,
                            "CPU devices: words in host memory (futexes) are all there is");
    }
    (void)munmap(page, sizeof(*page)); /* it was mapped */
}

static int run_timelines(int argc, char **argv)
{
    static const struct bench_plot plot = {.title      = "One device waits for another",
                                           .x_label    = "bytes pulled",
                                           .y_label    = "half a round (us)",
                                           .x_is_bytes = true};
    struct timelines_options given      = {0};
    struct cli_parsed parsed            = cli_parse(&bench_timelines, argc, argv, &given);
    struct timelines run                = {0};
    bool cuda, ok;

    if (parsed.exit >= 0) {
        return parsed.exit;
    }
    if (given.gpus != NULL && strcmp(given.gpus, "none") != 0) {
        return cli_usage(&bench_timelines, "--gpus is none or not given, and not \"%s\"",
                         given.gpus);
    }
    cuda = given.gpus == NULL && bench_machine_gpus() > 0;
    bench_report_init(&run.report, "Plasmon: one device waits for another");
    run.report.x_title = "size";
    run_ways(&run, cuda);
    report_all(&run);

    bench_report_print(&run.report);
    ok = bench_report_write_json(&run.report, given.json);
    ok &= bench_plot_write(&plot, &run.report, "us", given.plot);
    bench_report_finish(&run.report);
    return ok && !run.wrong ? CLI_OK : CLI_FAIL;
}
