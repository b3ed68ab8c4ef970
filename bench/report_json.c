/* A report as one JSON object: for scripts that compare runs. Numbers that were not measured are absent, never 0. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "bench/bench.h"

static void put_text(struct pl_str *out, const char *name, const char *text)
{
    if (text != NULL && text[0] != '\0') {
        pl_str_append(out, ",\"%s\":", name);
        pl_str_append_json(out, text);
    }
}

static void put_number(struct pl_str *out, const char *name, double value)
{
    if (value != 0) {
        pl_str_append(out, ",\"%s\":%.9g", name, value);
    }
}

static void put_row(struct pl_str *out, const struct bench_row *row)
{
    pl_str_append(out, "{\"name\":");
    pl_str_append_json(out, row->name);
    put_text(out, "series", row->series);
    put_number(out, "x", row->x);
    put_number(out, "value", row->value);
    put_number(out, "p99", row->p99);
    put_text(out, "unit", row->unit);
    put_number(out, "limit", row->limit);
    put_text(out, "limit_is", row->limit > 0 ? row->limit_name : NULL);
    put_number(out, "ratio", row->ratio);
    put_text(out, "reference", row->reference);
    put_text(out, "note", row->note);
    pl_str_append(out, "}");
}

static void put_report(struct pl_str *out, const struct bench_report *report)
{
    struct pl_str machine;

    pl_str_init(&machine);
    bench_machine_describe(&machine);
    pl_str_append(out, "{\"title\":");
    pl_str_append_json(out, report->title);
    put_text(out, "machine", pl_str_text(&machine));
    put_text(out, "reference_is", report->reference_title);
    pl_str_append(out, ",\n\"rows\":[");
    for (size_t i = 0; i < report->rows.count; i++) {
        pl_str_append(out, "%s\n", i > 0 ? "," : "");
        put_row(out, pl_vec_at(&report->rows, i));
    }
    pl_str_append(out, "],\n\"remarks\":[");
    for (size_t i = 0; i < report->remarks.count; i++) {
        pl_str_append(out, "%s\n", i > 0 ? "," : "");
        pl_str_append_json(out, pl_vec_at(&report->remarks, i));
    }
    pl_str_append(out, "]}\n");
    pl_str_finish(&machine);
}

bool bench_report_write_json(const struct bench_report *report, const char *path)
{
    struct pl_str out;
    FILE *file;
    bool ok;

    if (path == NULL) {
        return true;
    }
    pl_str_init(&out);
    put_report(&out, report);
    file = fopen(path, "we");
    ok   = file != NULL && !out.failed && fputs(pl_str_text(&out), file) >= 0;
    if (file != NULL && fclose(file) != 0) {
        ok = false;
    }
    if (!ok) {
        fprintf(stderr, "plasmon bench: cannot write %s: %s\n", path, strerror(errno));
    }
    pl_str_finish(&out);
    return ok;
}
