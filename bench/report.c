/* Rows of results, and the table that people read. Columns that no row fills are left out. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "bench/bench.h"

#define COLUMNS      11
#define CELL_BYTES   128
#define REMARK_BYTES 200

void bench_report_init(struct bench_report *report, const char *title)
{
    *report         = (struct bench_report){.title = title};
    report->rows    = PL_VEC_INIT(struct bench_row);
    report->remarks = (struct pl_vec){.items = NULL, .item_bytes = REMARK_BYTES};
}

void bench_report_finish(struct bench_report *report)
{
    pl_vec_finish(&report->rows);
    pl_vec_finish(&report->remarks);
}

void bench_report_add(struct bench_report *report, const struct bench_row *row)
{
    struct bench_row *added = pl_vec_push(&report->rows);

    if (added == NULL) {
        bench_die("out of host memory");
    }
    *added = *row;
    if (added->ratio == 0 && added->limit > 0) {
        added->ratio = added->value / added->limit;
    }
    bench_say("%s %s %.4g %s", row->name, row->series, row->value, row->unit);
}

void bench_report_remark(struct bench_report *report, const char *format, ...)
{
    char *remark = pl_vec_push(&report->remarks);
    va_list args;

    if (remark == NULL) {
        bench_die("out of host memory");
    }
    va_start(args, format);
    (void)vsnprintf(remark, REMARK_BYTES, format, args);
    va_end(args);
}

bool bench_row_met(const struct bench_row *row)
{
    return row->target < 0 ? row->ratio >= -row->target : row->ratio <= row->target;
}

void bench_report_targets(const struct bench_report *report, uint32_t *out_count,
                          uint32_t *out_met)
{
    *out_count = *out_met = 0;
    for (size_t i = 0; i < report->rows.count; i++) {
        const struct bench_row *row = pl_vec_at(&report->rows, i);

        if (row->target != 0 && row->ratio > 0) {
            ++*out_count;
            *out_met += bench_row_met(row);
        }
    }
}

void bench_report_append(struct bench_report *report, const struct bench_report *from)
{
    for (size_t i = 0; i < from->rows.count; i++) {
        struct bench_row *added = pl_vec_push(&report->rows);

        if (added == NULL) {
            bench_die("out of host memory");
        }
        *added = *(const struct bench_row *)pl_vec_at(&from->rows, i);
    }
    for (size_t i = 0; i < from->remarks.count; i++) {
        bench_report_remark(report, "%s", (const char *)pl_vec_at(&from->remarks, i));
    }
}

/* -------------------------------------------------------------------------------- table */

/* Four digits, grouped by an SI letter from a million on: 12.34, 1234, 12340, 1.234 M. */
static void print_number(char out[CELL_BYTES], double value)
{
    double size = fabs(value);

    if (value == 0) {
        out[0] = '\0';
    } else if (size >= 1e6) {
        (void)snprintf(out, CELL_BYTES, "%.3f M", value / 1e6);
    } else if (size >= 1000) {
        (void)snprintf(out, CELL_BYTES, "%.0f", value);
    } else if (size >= 100) {
        (void)snprintf(out, CELL_BYTES, "%.1f", value);
    } else if (size >= 0.001) {
        (void)snprintf(out, CELL_BYTES, "%.*f",
                       size >= 10    ? 2
                       : size >= 0.1 ? 3
                                     : 5,
                       value);
    } else {
        (void)snprintf(out, CELL_BYTES, "%.2e", value);
    }
}

static void copy_text(char out[CELL_BYTES], const char *text)
{
    (void)snprintf(out, CELL_BYTES, "%s", text != NULL ? text : "");
}

static void fill_cells(const struct bench_report *report, const struct bench_row *row,
                       char cell[COLUMNS][CELL_BYTES])
{
    copy_text(cell[0], row->name);
    copy_text(cell[1], row->series);
    cell[2][0] = '\0';
    if (report->x_title != NULL && row->x > 0) {
        if (strcmp(report->x_title, "size") == 0) {
            (void)pl_format_bytes((uint64_t)row->x, cell[2]);
        } else {
            (void)snprintf(cell[2], CELL_BYTES, "%.0f", row->x);
        }
    }
    print_number(cell[3], row->value);
    print_number(cell[4], row->p99);
    copy_text(cell[5], row->unit);
    print_number(cell[6], row->limit);
    print_number(cell[7], row->ratio);
    cell[8][0] = '\0';
    if (row->target != 0 && row->ratio > 0) {
        (void)snprintf(cell[8], CELL_BYTES, "%s %.2f %s",
                       row->target < 0 ? ">=" : "<=", fabs(row->target),
                       bench_row_met(row) ? "met" : "MISSED");
    }
    copy_text(cell[9], report->reference_title != NULL ? row->reference : NULL);
    if (row->limit > 0 && row->limit_name != NULL) {
        (void)snprintf(cell[10], CELL_BYTES, "%s%s%.80s", row->limit_name,
                       row->note[0] != '\0' ? "; " : "", row->note);
    } else {
        copy_text(cell[10], row->note);
    }
}

static bool is_number_column(size_t column)
{
    return column >= 2 && column <= 7 && column != 5;
}

static void print_line(char cell[COLUMNS][CELL_BYTES], const size_t width[COLUMNS])
{
    for (size_t i = 0; i < COLUMNS; i++) {
        if (width[i] == 0) {
            continue;
        }
        printf(is_number_column(i) ? "%*s  " : "%-*s  ", (int)width[i], cell[i]);
    }
    putchar('\n');
}

static void print_rule(const size_t width[COLUMNS])
{
    for (size_t i = 0; i < COLUMNS; i++) {
        for (size_t j = 0; width[i] > 0 && j < width[i] + 2; j++) {
            putchar('-');
        }
    }
    putchar('\n');
}

void bench_report_print(const struct bench_report *report)
{
    char head[COLUMNS][CELL_BYTES] = {"benchmark",
                                      "series",
                                      "",
                                      "median",
                                      "p99",
                                      "unit",
                                      "yardstick",
                                      "ratio",
                                      "target",
                                      "",
                                      "yardstick is; notes"};
    char cell[COLUMNS][CELL_BYTES];
    size_t width[COLUMNS] = {0};
    struct pl_str machine;

    copy_text(head[2], report->x_title);
    copy_text(head[9], report->reference_title);
    for (size_t i = 0; i < report->rows.count; i++) {
        fill_cells(report, pl_vec_at(&report->rows, i), cell);
        for (size_t j = 0; j < COLUMNS; j++) {
            width[j] = (size_t)pl_max_u64(width[j], strlen(cell[j]));
        }
    }
    for (size_t j = 0; j < COLUMNS; j++) {
        width[j] = width[j] == 0 ? 0 : (size_t)pl_max_u64(width[j], strlen(head[j]));
    }

    pl_str_init(&machine);
    bench_machine_describe(&machine);
    printf("%s\n%s\n\n", report->title, pl_str_text(&machine));
    pl_str_finish(&machine);
    print_line(head, width);
    print_rule(width);
    for (size_t i = 0; i < report->rows.count; i++) {
        fill_cells(report, pl_vec_at(&report->rows, i), cell);
        print_line(cell, width);
    }
    for (size_t i = 0; i < report->remarks.count; i++) {
        printf("%s- %s\n", i == 0 ? "\n" : "",
               (const char *)pl_vec_at(&report->remarks, i));
    }
    (void)fflush(stdout);
}
