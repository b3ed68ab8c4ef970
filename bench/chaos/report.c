/* What a run of chaos comes to: a table, JSON and a picture of how long it took to recover. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "bench/chaos/chaos.h"

struct chaos_times chaos_times_of(const struct chaos *chaos, enum chaos_kind kind,
                                  bool (*take)(const struct chaos_sample *sample, int what,
                                               double *out_ms),
                                  int what)
{
    const struct pl_vec *samples = &chaos->tally.samples;
    struct chaos_times out       = {0};
    double *ms                   = PL_NEW_N(double, samples->count + 1);

    if (ms == NULL) {
        bench_die("out of host memory");
    }
    for (size_t i = 0; i < samples->count; i++) {
        const struct chaos_sample *sample = pl_vec_at(samples, i);

        if (sample->kind == kind && sample->alone) {
            out.count += take(sample, what, &ms[out.count]);
        }
    }
    out.p50 = bench_percentile(ms, out.count, 0.5);
    out.p99 = bench_percentile(ms, out.count, 0.99);
    pl_free(ms);
    return out;
}

/* Recovery times of a kind. */
struct recovery {
    uint64_t count;
    double p50, p99, target;
    bool met;
};

static bool take_recovery(const struct chaos_sample *sample, int what, double *out_ms)
{
    (void)what;
    *out_ms = sample->recover_ms;
    return true;
}

static struct recovery recovery_of(const struct chaos *chaos, enum chaos_kind kind)
{
    struct chaos_times times = chaos_times_of(chaos, kind, take_recovery, 0);
    double target            = chaos_kind_target(kind, chaos->cluster.board->gpu);

    return (struct recovery){.count  = times.count,
                             .p50    = times.p50,
                             .p99    = times.p99,
                             .target = target,
                             .met    = target == 0 || times.p50 <= target};
}

struct chaos_verdict chaos_judge(const struct chaos *chaos)
{
    const struct chaos_board *board = chaos->cluster.board;
    struct chaos_verdict verdict    = {
           .lost_bytes = CHAOS_SUM(board, lost_bytes),
           .wrong      = CHAOS_SUM(board, wrong) + chaos->tally.wrong,
           .unresolved = CHAOS_SUM(board, unresolved) + chaos->tally.hung,
    };

    for (uint32_t i = 0; i < CHAOS_KINDS; i++) {
        verdict.late = verdict.late || !recovery_of(chaos, (enum chaos_kind)i).met;
    }
    verdict.good = verdict.lost_bytes == 0 && verdict.wrong == 0 && verdict.unresolved == 0;
    return verdict;
}

static double seconds_of(const struct chaos *chaos)
{
    return (double)(chaos->ended_ns - chaos->began_ns) * 1e-9;
}

/* --------------------------------------------------------------------------------- text */

static void print_kind(const struct chaos *chaos, enum chaos_kind kind)
{
    struct recovery recovery = recovery_of(chaos, kind);
    char target[32] = "-", times[48] = "-";

    if (chaos->without[kind] != NULL) {
        printf("  %-14s left out: %s\n", chaos_kind_name(kind), chaos->without[kind]);
        return;
    }
    if ((chaos->kinds >> kind & 1) == 0) {
        return;
    }
    if (recovery.target > 0) {
        (void)snprintf(target, sizeof(target), "%.0f%s", recovery.target,
                       recovery.count == 0 ? ""
                       : recovery.met      ? " met"
                                           : " MISSED");
    }
    if (recovery.count > 0) {
        (void)snprintf(times, sizeof(times), "%10.1f %10.1f", recovery.p50, recovery.p99);
    }
    printf("  %-14s %8llu %8llu %21s   %s\n", chaos_kind_name(kind),
           (unsigned long long)chaos->tally.injected[kind],
           (unsigned long long)chaos->tally.survived[kind], times, target);
}

void chaos_report_print(const struct chaos *chaos)
{
    const struct chaos_board *board = chaos->cluster.board;
    struct chaos_verdict verdict    = chaos_judge(chaos);
    struct pl_str machine;

    pl_str_init(&machine);
    bench_machine_describe(&machine);
    printf(
        "%s\nchaos: %u %s devices, %u clients, lineage %u MiB, %s; %.1f s, --seed %llu\n\n",
        pl_str_text(&machine), chaos->cluster.devices, board->gpu ? "GPU" : "CPU",
        chaos->cluster.config.clients, chaos->cluster.config.lineage_mib,
        chaos->cluster.config.standby   ? "a journal and a standby"
        : chaos->cluster.config.journal ? "a journal"
                                        : "no journal",
        seconds_of(chaos), (unsigned long long)chaos->seed);
    pl_str_finish(&machine);
    printf("  %-14s %8s %8s %10s %10s   %s\n", "fault", "injected", "survived", "p50 ms",
           "p99 ms", "target of p50, ms");
    for (uint32_t i = 0; i < CHAOS_KINDS; i++) {
        print_kind(chaos, (enum chaos_kind)i);
    }
    chaos_where_print(chaos);
    printf("\n  graphs %llu, steps %llu, elements compared %llu, reads that a fault cost "
           "%llu\n"
           "  tasks redone %llu, rebuilt by lineage %llu tasks and %llu bytes\n"
           "  bytes in files that were lost with a store %llu\n"
           "  sealed unconsumed bytes lost with a worker %llu\n  wrong results %llu\n"
           "  unresolved futures %llu\n",
           (unsigned long long)CHAOS_SUM(board, graphs),
           (unsigned long long)CHAOS_SUM(board, steps),
           (unsigned long long)CHAOS_SUM(board, compared),
           (unsigned long long)CHAOS_SUM(board, excused),
           (unsigned long long)chaos->tally.redone,
           (unsigned long long)chaos->tally.rebuilt_tasks,
           (unsigned long long)chaos->tally.rebuilt_bytes,
           (unsigned long long)CHAOS_SUM(board, spilled_bytes),
           (unsigned long long)verdict.lost_bytes, (unsigned long long)verdict.wrong,
           (unsigned long long)verdict.unresolved);
    if (chaos->tally.text[0] != '\0') {
        printf("  FAILED: %s\n", chaos->tally.text);
    }
    (void)fflush(stdout);
}

/* --------------------------------------------------------------------------------- JSON */

/* Each by itself: when it came, and what it took; of those that came alone. */
static void put_samples(struct pl_str *out, const struct chaos *chaos, enum chaos_kind kind)
{
    const struct pl_vec *samples = &chaos->tally.samples;
    const char *comma            = "";

    pl_str_append(out, ",\"recovery_at_s_ms\":[");
    for (size_t i = 0; i < samples->count; i++) {
        const struct chaos_sample *sample = pl_vec_at(samples, i);

        if (sample->kind == kind && sample->alone) {
            pl_str_append(out, "%s[%.3f,%.3f]", comma, sample->at_s, sample->recover_ms);
            comma = ",";
        }
    }
    pl_str_append(out, "]");
}

static void put_kind(struct pl_str *out, const struct chaos *chaos, enum chaos_kind kind)
{
    struct recovery recovery = recovery_of(chaos, kind);

    pl_str_append(out, "{\"kind\":\"%s\",\"injected\":%llu,\"survived\":%llu",
                  chaos_kind_name(kind), (unsigned long long)chaos->tally.injected[kind],
                  (unsigned long long)chaos->tally.survived[kind]);
    if (chaos->without[kind] != NULL) {
        pl_str_append(out, ",\"left_out\":");
        pl_str_append_json(out, chaos->without[kind]);
    }
    if (recovery.count > 0) {
        pl_str_append(out,
                      ",\"alone\":%llu,\"recovery_p50_ms\":%.3f,\"recovery_p99_ms\":%.3f",
                      (unsigned long long)recovery.count, recovery.p50, recovery.p99);
        put_samples(out, chaos, kind);
    }
    if (recovery.target > 0) {
        pl_str_append(out, ",\"target_ms\":%.0f", recovery.target);
        if (recovery.count > 0) {
            pl_str_append(out, ",\"met\":%s", recovery.met ? "true" : "false");
        }
    }
    chaos_where_put(out, chaos, kind);
    pl_str_append(out, "}");
}

static void put_report(struct pl_str *out, const struct chaos *chaos)
{
    const struct chaos_board *board = chaos->cluster.board;
    struct chaos_verdict verdict    = chaos_judge(chaos);
    struct pl_str machine;

    pl_str_init(&machine);
    bench_machine_describe(&machine);
    pl_str_append(out, "{\"title\":\"chaos\",\"machine\":");
    pl_str_append_json(out, pl_str_text(&machine));
    pl_str_finish(&machine);
    pl_str_append(
        out,
        ",\"seed\":%llu,\"seconds\":%.3f,\"devices\":%u,\"gpu\":%s,\"clients\":%u,"
        "\"journal\":%s,\"standby\":%s,\"lineage_mib\":%u,\n\"faults\":[",
        (unsigned long long)chaos->seed, seconds_of(chaos), chaos->cluster.devices,
        board->gpu ? "true" : "false", chaos->cluster.config.clients,
        chaos->cluster.config.journal ? "true" : "false",
        chaos->cluster.config.standby ? "true" : "false",
        chaos->cluster.config.lineage_mib);
    for (uint32_t i = 0; i < CHAOS_KINDS; i++) {
        pl_str_append(out, "%s\n", i > 0 ? "," : "");
        put_kind(out, chaos, (enum chaos_kind)i);
    }
    pl_str_append(out,
                  "],\n\"graphs\":%llu,\"steps\":%llu,\"compared\":%llu,\"excused\":%llu,"
                  "\"tasks_redone\":%llu,\"rebuilt_tasks\":%llu,\"rebuilt_bytes\":%llu,"
                  "\"spilled_bytes_lost\":%llu,\"lost_bytes\":%llu,\"wrong\":%llu,"
                  "\"unresolved\":%llu,\"text\":",
                  (unsigned long long)CHAOS_SUM(board, graphs),
                  (unsigned long long)CHAOS_SUM(board, steps),
                  (unsigned long long)CHAOS_SUM(board, compared),
                  (unsigned long long)CHAOS_SUM(board, excused),
                  (unsigned long long)chaos->tally.redone,
                  (unsigned long long)chaos->tally.rebuilt_tasks,
                  (unsigned long long)chaos->tally.rebuilt_bytes,
                  (unsigned long long)CHAOS_SUM(board, spilled_bytes),
                  (unsigned long long)verdict.lost_bytes, (unsigned long long)verdict.wrong,
                  (unsigned long long)verdict.unresolved);
    pl_str_append_json(out, chaos->tally.text);
    pl_str_append(out, "}\n");
}

/* -------------------------------------------------------------------------------- files */

/*
 * Every fault a dot: when it came, and how long it took; one line a kind that has a target, and the
 * target beside it.
 */
static bool draw(const struct chaos *chaos, const char *path)
{
    const struct bench_plot plot = {.title       = "plasmon bench chaos: recovery",
                                    .x_label     = "seconds since the start",
                                    .x_is_linear = true,
                                    .y_label     = "until the next task is enqueued, ms"};
    struct bench_report report;
    bool good;

    bench_report_init(&report, "chaos");
    for (size_t i = 0; i < chaos->tally.samples.count; i++) {
        const struct chaos_sample *sample = pl_vec_at(&chaos->tally.samples, i);
        struct bench_row *row             = pl_vec_push(&report.rows);

        if (row == NULL) {
            bench_die("out of host memory");
        }
        *row = (struct bench_row){
            .x          = sample->at_s,
            .value      = sample->recover_ms,
            .unit       = "ms",
            .limit_name = "target",
            .limit      = chaos_kind_target(sample->kind, chaos->cluster.board->gpu)};
        if (row->limit > 0) {
            (void)snprintf(row->series, sizeof(row->series), "%s",
                           chaos_kind_name(sample->kind));
        }
    }
    good = bench_plot_write(&plot, &report, "ms", path);
    bench_report_finish(&report);
    return good;
}

bool chaos_report_write(const struct chaos *chaos, const char *json, const char *plot)
{
    bool good = true;
    struct pl_str out;

    if (json != NULL) {
        pl_str_init(&out);
        put_report(&out, chaos);
        good = bench_write_text(&out, json);
        pl_str_finish(&out);
    }
    return (plot == NULL || draw(chaos, plot)) && good;
}
