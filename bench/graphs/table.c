/* Rows of figures, the table that people read, and JSON. */
#include "bench/graphs/table.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char *const contestant_names[GRAPHS_CONTESTANTS] = {
    "serial", "events", "graph", "plain", "replay"};
static const char *const mode_names[GRAPHS_MODES] = {"resident", "cold", "single"};

const char *graphs_size_name(enum graphs_size size)
{
    static const char *const names[GRAPHS_SIZES] = {"tiny", "small", "middle", "large"};

    return names[size];
}

void graphs_table_init(struct graphs_table *table, uint64_t seed)
{
    *table      = (struct graphs_table){.seed = seed};
    table->rows = PL_VEC_INIT(struct graphs_row);
    bench_report_init(&table->report, "Plasmon: task graphs");
    table->report.x_title = "N";
    bench_report_remark(&table->report, "inputs from --seed %llu",
                        (unsigned long long)seed);
}

void graphs_table_finish(struct graphs_table *table)
{
    pl_vec_finish(&table->rows);
    bench_report_finish(&table->report);
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

/* One report row a figure: named "vec.small.resident", of series "plain", beside hand-tuned events or, on CPUs, the plain loop. */
void graphs_table_add(struct graphs_table *table, const struct graphs_row *row)
{
    struct graphs_row *added = pl_vec_push(&table->rows);

    if (added == NULL) {
        bench_die("out of host memory");
    }
    *added = *row;
    for (size_t i = 0; i < GRAPHS_RESULTS; i++) {
        const double *mode  = &row->seconds[i / GRAPHS_CONTESTANTS * GRAPHS_CONTESTANTS];
        bool has_events     = mode[GRAPHS_EVENTS] > 0;
        double limit        = has_events ? mode[GRAPHS_EVENTS] : mode[GRAPHS_SERIAL];
        struct bench_row it = {.x          = (double)row->definition->size[row->size],
                               .value      = row->seconds[i] * 1e6,
                               .unit       = "us",
                               .limit      = limit > 0 ? limit * 1e6 : 0,
                               .limit_name = has_events ? "hand-tuned streams and events"
                                                        : "one kernel after the other"};

        if (row->seconds[i] > 0) {
            (void)snprintf(it.name, sizeof(it.name), "%s.%s.%s", row->definition->option,
                           graphs_size_name(row->size), mode_names[i / GRAPHS_CONTESTANTS]);
            (void)snprintf(it.series, sizeof(it.series), "%s",
                           contestant_names[i % GRAPHS_CONTESTANTS]);
            bench_report_add(&table->report, &it);
        }
    }
}

void graphs_table_merge(struct graphs_table *table, const struct bench_report *other)
{
    for (size_t i = 0; i < other->rows.count; i++) {
        struct bench_row *added = pl_vec_push(&table->report.rows);

        if (added == NULL) {
            bench_die("out of host memory");
        }
        *added = *(const struct bench_row *)pl_vec_at(&other->rows, i);
    }
    for (size_t i = 0; i < other->remarks.count; i++) {
        bench_report_remark(&table->report, "%s",
                            (const char *)pl_vec_at(&other->remarks, i));
    }
}

/* ------------------------------------------------------------------------------------------------ terminal */

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
        printf(" %8.2f", of / to);
    } else {
        printf(" %8s", "-");
    }
}

static void print_row(const struct graphs_row *row, size_t mode)
{
    const double *seconds = &row->seconds[mode * GRAPHS_CONTESTANTS];

    printf("%-5s %-7s %-8s", row->definition->title, graphs_size_name(row->size),
           mode_names[mode]);
    for (size_t i = 0; i < GRAPHS_CONTESTANTS; i++) {
        print_us(seconds[i]);
    }
    print_ratio(seconds[GRAPHS_PLAIN], seconds[GRAPHS_EVENTS]);
    print_ratio(seconds[GRAPHS_REPLAY], seconds[GRAPHS_EVENTS]);
    print_ratio(seconds[GRAPHS_PLAIN], seconds[GRAPHS_GRAPH]);
    print_ratio(seconds[GRAPHS_REPLAY], seconds[GRAPHS_GRAPH]);
    print_ratio(seconds[GRAPHS_SERIAL], seconds[GRAPHS_PLAIN]);
    print_ratio(seconds[GRAPHS_SERIAL], seconds[GRAPHS_REPLAY]);
    print_ratio(row->definition->published, 1);
    putchar('\n');
}

void graphs_table_print(const struct graphs_table *table)
{
    struct pl_str machine;

    pl_str_init(&machine);
    bench_machine_describe(&machine);
    printf("%s\n%s\n\n", table->report.title, pl_str_text(&machine));
    pl_str_finish(&machine);
    printf("%-21s  %-47s   %-16s  %-16s  %-25s\n", "", "us, median: by hand | Plasmon",
           "time / events", "time / graph", "serial / time");
    printf("%-5s %-7s %-8s %9s %9s %9s %9s %9s %8s %8s %8s %8s %8s %8s %8s\n", "graph",
           "size", "inputs", "serial", "events", "graph", "plain", "replay", "plain",
           "replay", "plain", "replay", "plain", "replay", "GrCUDA");
    for (size_t mode = 0; mode < GRAPHS_MODES; mode++) {
        for (size_t i = 0; i < table->rows.count; i++) {
            const struct graphs_row *row = pl_vec_at(&table->rows, i);
            const double *seconds        = &row->seconds[mode * GRAPHS_CONTESTANTS];

            if (seconds[GRAPHS_SERIAL] > 0 || seconds[GRAPHS_PLAIN] > 0) {
                print_row(row, mode);
            }
        }
    }
    printf("\n- GrCUDA: its published speed over serial on a P100, sizes of 16 GB\n");
    for (size_t i = 0; i < table->report.remarks.count; i++) {
        printf("- %s\n", (const char *)pl_vec_at(&table->report.remarks, i));
    }
    (void)fflush(stdout);
}

bool graphs_table_write_json(const struct graphs_table *table, const char *path)
{
    return bench_report_write_json(&table->report, path);
}
