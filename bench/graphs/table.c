/*
 * Rows of figures, the table that people read, and JSON.
 *
 * TARGETS  Many runs in flight, inputs on the device: submitted each time, 1.05 of hand-tuned
 *          streams and events for the middle and large sizes, 1.25 for the small one, whose kernels
 *          take microseconds; recorded, 1.05 of the CUDA graph. Inputs from page-locked host memory
 *          and outputs to it: 1.10 of the same; from ordinary memory, none, it is there to show the
 *          difference. One run at a time pays the round trip to the head, which is held against the
 *          transport's (latency.c), so it has none. For several devices the same: 95 % of the speed
 *          by hand, of runs in flight on both sides. Nor has anything on CPU devices, where there
 *          is no yardstick.
 */
#include "bench/graphs/table.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define TARGET_SMALL  1.25
#define TARGET_LARGE  1.05 /* middle too */
#define TARGET_REPLAY 1.05
#define TARGET_COLD   1.10

static const char *const contestant_names[GRAPHS_CONTESTANTS] = {
    "serial", "events", "graph", "plain", "replay"};

const char *graphs_size_name(enum graphs_size size)
{
    static const char *const names[GRAPHS_SIZES] = {"tiny", "small", "middle", "large"};

    return names[size];
}

const char *graphs_mode_name(uint32_t mode)
{
    static const char *const names[GRAPHS_MODES] = {"resident", "cold", "pageable",
                                                    "single"};

    return names[mode];
}

/* -------------------------------------------------------------------------------- a row */

double graphs_row_seconds(const struct graphs_row *row, uint32_t mode,
                          enum graphs_contestant contestant)
{
    return row->result[mode * GRAPHS_CONTESTANTS + contestant];
}

enum graphs_contestant graphs_row_yardstick(const struct graphs_row *row, uint32_t mode,
                                            enum graphs_contestant contestant)
{
    enum graphs_contestant to = contestant == GRAPHS_REPLAY ? GRAPHS_GRAPH : GRAPHS_EVENTS;

    return graphs_row_seconds(row, mode, to) > 0 ? to : GRAPHS_SERIAL;
}

double graphs_row_target(const struct graphs_row *row, uint32_t mode,
                         enum graphs_contestant contestant)
{
    if (contestant < GRAPHS_PLAIN || mode == GRAPHS_SINGLE || mode == GRAPHS_PAGEABLE ||
        row->size == GRAPHS_TINY ||
        graphs_row_yardstick(row, mode, contestant) == GRAPHS_SERIAL) {
        return 0;
    }
    return mode == GRAPHS_COLD           ? TARGET_COLD
           : contestant == GRAPHS_REPLAY ? TARGET_REPLAY
           : row->size == GRAPHS_SMALL   ? TARGET_SMALL
                                         : TARGET_LARGE;
}

static double traffic_seconds(const struct graphs_row *row)
{
    return (double)row->traffic / row->result[GRAPHS_BANDWIDTH];
}

/* Serial time over what no schedule beats; 0: not measured. */
static double row_room(const struct graphs_row *row)
{
    double serial = graphs_row_seconds(row, GRAPHS_RESIDENT, GRAPHS_SERIAL);

    if (serial <= 0) {
        serial = graphs_row_seconds(row, GRAPHS_SINGLE, GRAPHS_SERIAL); /* the same */
    }
    return serial > 0 && row->result[GRAPHS_PATH] > 0
               ? serial / fmax(row->result[GRAPHS_PATH], traffic_seconds(row))
               : 0;
}

static bool has_mode(const struct graphs_row *row, uint32_t mode)
{
    return graphs_row_seconds(row, mode, GRAPHS_SERIAL) > 0 ||
           graphs_row_seconds(row, mode, GRAPHS_PLAIN) > 0;
}

/* --------------------------------------------------------------------------------- life */

void graphs_table_init(struct graphs_table *table, uint64_t seed, const char *json)
{
    *table      = (struct graphs_table){.seed = seed, .json = json};
    table->rows = PL_VEC_INIT(struct graphs_row);
    bench_report_init(&table->report, "Plasmon: task graphs");
    table->report.x_title = "N";
    bench_report_init(&table->more,
                      "Plasmon: several devices, and what a dependency and a launch cost");
    table->more.x_title = "devices";
    bench_report_remark(&table->report,
                        "inputs from --seed %llu; medians of at least %u samples",
                        (unsigned long long)seed, GRAPHS_SAMPLES_MIN);
}

void graphs_table_finish(struct graphs_table *table)
{
    pl_vec_finish(&table->rows);
    bench_report_finish(&table->report);
    bench_report_finish(&table->more);
}

void graphs_table_remark(struct graphs_table *table, const char *format, ...)
{
    char text[160];
    va_list args;

    va_start(args, format);
    (void)vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    bench_report_remark(&table->report, "%s", text);
}

/* ------------------------------------------------------------------------ rows for JSON */

/* Named "vec.small.resident", of series "plain", beside its yardstick. */
static void add_figure(struct graphs_table *table, const struct graphs_row *row,
                       uint32_t mode, enum graphs_contestant contestant)
{
    static const char *const limits[] = {"one kernel after the other",
                                         "hand-tuned streams and events",
                                         "the same as a CUDA graph"};
    double seconds                    = graphs_row_seconds(row, mode, contestant);
    enum graphs_contestant to         = graphs_row_yardstick(row, mode, contestant);
    double limit                      = graphs_row_seconds(row, mode, to);
    struct bench_row it               = {.x          = (double)row->definition->size[row->size],
                                         .value      = seconds * 1e6,
                                         .unit       = "us",
                                         .limit      = limit > 0 ? limit * 1e6 : 0,
                                         .limit_name = limits[to],
                                         .target     = graphs_row_target(row, mode, contestant)};

    if (seconds <= 0) {
        return;
    }
    (void)snprintf(it.name, sizeof(it.name), "%s.%s.%s", row->definition->option,
                   graphs_size_name(row->size), graphs_mode_name(mode));
    (void)snprintf(it.series, sizeof(it.series), "%s", contestant_names[contestant]);
    (void)snprintf(it.note, sizeof(it.note), "%.0f samples",
                   row->result[GRAPHS_SECONDS + mode * GRAPHS_CONTESTANTS + contestant]);
    bench_report_add(&table->report, &it);
}

static void add_room(struct graphs_table *table, const struct graphs_row *row)
{
    struct bench_row it = {
        .x = (double)row->definition->size[row->size], .value = row_room(row), .unit = "x"};

    if (it.value <= 0) {
        return;
    }
    (void)snprintf(it.name, sizeof(it.name), "%s.%s.room", row->definition->option,
                   graphs_size_name(row->size));
    (void)snprintf(it.note, sizeof(it.note),
                   "critical path %.1f us; %.3f GB at %.0f GB/s: %.1f us",
                   row->result[GRAPHS_PATH] * 1e6, (double)row->traffic * 1e-9,
                   row->result[GRAPHS_BANDWIDTH] * 1e-9, traffic_seconds(row) * 1e6);
    bench_report_add(&table->report, &it);
}

static void add_wall(struct graphs_table *table, const struct graphs_row *row)
{
    struct bench_row it = {.x     = (double)row->definition->size[row->size],
                           .value = row->prepare_s + row->by_hand_s + row->plasmon_s,
                           .unit  = "s"};

    (void)snprintf(it.name, sizeof(it.name), "%s.%s.wall", row->definition->option,
                   graphs_size_name(row->size));
    (void)snprintf(it.note, sizeof(it.note),
                   "inputs and fp64 %.1f, by hand %.1f, Plasmon %.1f", row->prepare_s,
                   row->by_hand_s, row->plasmon_s);
    bench_report_add(&table->report, &it);
}

void graphs_table_add(struct graphs_table *table, const struct graphs_row *row)
{
    struct graphs_row *added = pl_vec_push(&table->rows);

    if (added == NULL) {
        bench_die("out of host memory");
    }
    *added = *row;
    for (uint32_t mode = 0; mode < GRAPHS_MODES; mode++) {
        for (int i = 0; i < GRAPHS_CONTESTANTS; i++) {
            add_figure(table, row, mode, (enum graphs_contestant)i);
        }
    }
    add_room(table, row);
    add_wall(table, row);
}

bool graphs_table_save(const struct graphs_table *table)
{
    struct bench_report all;
    bool ok;

    if (table->json == NULL) {
        return true;
    }
    bench_report_init(&all, table->report.title);
    bench_report_append(&all, &table->report);
    bench_report_append(&all, &table->more);
    ok = bench_report_write_json(&all, table->json);
    bench_report_finish(&all);
    return ok;
}

void graphs_table_targets(const struct graphs_table *table, uint32_t *out_count,
                          uint32_t *out_met)
{
    uint32_t count, met;

    bench_report_targets(&table->report, out_count, out_met);
    bench_report_targets(&table->more, &count, &met);
    *out_count += count;
    *out_met += met;
}

/* ----------------------------------------------------------------------------- terminal */

static void print_us(double seconds)
{
    if (seconds > 0) {
        printf(" %9.*f", seconds < 1e-3 ? 1 : 0, seconds * 1e6);
    } else {
        printf(" %9s", "-");
    }
}

static void print_ratio(double of, double to)
{
    if (of > 0 && to > 0) {
        printf(" %6.2f", of / to);
    } else {
        printf(" %6s", "-");
    }
}

/* A contestant's time over its yardstick's, and whether that is what it should be. */
static void print_marked(const struct graphs_row *row, uint32_t mode,
                         enum graphs_contestant contestant)
{
    double of = graphs_row_seconds(row, mode, contestant);
    double to = graphs_row_seconds(row, mode, graphs_row_yardstick(row, mode, contestant));
    double target = graphs_row_target(row, mode, contestant);

    print_ratio(of, to);
    printf(" %-6s", target == 0 || of <= 0 ? "" : of / to <= target ? "met" : "MISSED");
}

static void print_row(const struct graphs_row *row, uint32_t mode, bool is_first)
{
    double serial = graphs_row_seconds(row, mode, GRAPHS_SERIAL);

    printf("%-5s %-7s %-8s", row->definition->title, graphs_size_name(row->size),
           graphs_mode_name(mode));
    for (int i = 0; i < GRAPHS_CONTESTANTS; i++) {
        print_us(graphs_row_seconds(row, mode, (enum graphs_contestant)i));
    }
    print_marked(row, mode, GRAPHS_PLAIN);
    print_marked(row, mode, GRAPHS_REPLAY);
    print_ratio(serial, graphs_row_seconds(row, mode, GRAPHS_PLAIN));
    print_ratio(serial, graphs_row_seconds(row, mode, GRAPHS_REPLAY));
    print_ratio(graphs_mode_cold(mode) ? 0 : row_room(row), 1);
    print_ratio(row->definition->published, 1);
    if (is_first) {
        printf(" %6.1f", row->prepare_s + row->by_hand_s + row->plasmon_s);
    }
    putchar('\n');
}

static void print_head(const struct graphs_table *table)
{
    struct pl_str machine;

    pl_str_init(&machine);
    bench_machine_describe(&machine);
    printf("%s\n%s\n\n", table->report.title, pl_str_text(&machine));
    pl_str_finish(&machine);
    printf("%-22s %-49s  %-13s %-13s  %-27s\n", "", "us a run, median: by hand | Plasmon",
           "plain", "replay", "speed over serial");
    printf("%-5s %-7s %-8s %9s %9s %9s %9s %9s  %-13s %-13s %6s %6s %6s %6s %6s\n", "graph",
           "size", "inputs", "serial", "events", "graph", "plain", "replay", "/ events",
           "/ graph", "plain", "replay", "room", "GrCUDA", "wall s");
}

/* All modes of a graph together: the sizes below each other. */
static void print_rows(const struct graphs_table *table)
{
    for (size_t i = 0; i < table->rows.count; i++) {
        const struct graphs_row *row = pl_vec_at(&table->rows, i);
        bool is_first                = true;

        for (uint32_t mode = 0; mode < GRAPHS_MODES; mode++) {
            if (has_mode(row, mode)) {
                print_row(row, mode, is_first);
                is_first = false;
            }
        }
    }
}

void graphs_table_print(const struct graphs_table *table)
{
    uint32_t count, met;

    if (table->rows.count > 0) {
        print_head(table);
        print_rows(table);
        printf("\n- room: the serial time over the larger of the critical path (kernels "
               "alone) and all kernels' bytes at\n  the measured bandwidth: no schedule of "
               "these kernels can be faster than that\n"
               "- GrCUDA: its published speed over serial on a P100, sizes of 16 GB\n"
               "- wall s: inputs and fp64 results, by hand, Plasmon, for all lines of a "
               "graph's size\n");
    }
    for (size_t i = 0; i < table->report.remarks.count; i++) {
        printf("- %s\n", (const char *)pl_vec_at(&table->report.remarks, i));
    }
    if (table->more.rows.count > 0 || table->more.remarks.count > 0) {
        putchar('\n');
        bench_report_print(&table->more);
    }
    graphs_table_targets(table, &count, &met);
    if (count > 0) {
        printf("\n%u of %u targets met\n", met, count);
    }
    (void)fflush(stdout);
}
