/*
 * A report as one JSON object: for scripts that compare runs. Numbers that were not measured are
 * absent, never 0.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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
    put_number(out, "target", row->target < 0 ? -row->target : row->target);
    if (row->target != 0 && row->ratio > 0) {
        pl_str_append(out, ",\"target_is\":\"at %s\",\"met\":%s",
                      row->target < 0 ? "least" : "most",
                      bench_row_met(row) ? "true" : "false");
    }
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

static bool write_text(const char *path, const char *text)
{
    FILE *file = fopen(path, "we");
    bool ok    = file != NULL && fputs(text, file) >= 0;

    if (file != NULL && fclose(file) != 0) {
        ok = false;
    }
    return ok;
}

/* By a file beside it, unless what is there is a pipe or a terminal. */
static bool replace_text(const char *path, const char *text)
{
    char beside[4096];
    struct stat stat_now;
    int saved, length = snprintf(beside, sizeof(beside), "%s.part", path);

    if ((stat(path, &stat_now) == 0 && !S_ISREG(stat_now.st_mode)) ||
        length >= (int)sizeof(beside)) {
        return write_text(path, text);
    }
    if (write_text(beside, text) && rename(beside, path) == 0) {
        return true;
    }
    saved = errno;
    (void)unlink(beside); /* it may not be there */
    errno = saved;
    return false;
}

bool bench_write_text(const struct pl_str *text, const char *path)
{
    if (text->failed || !replace_text(path, pl_str_text(text))) {
        fprintf(stderr, "plasmon bench: cannot write %s: %s\n", path, strerror(errno));
        return false;
    }
    return true;
}

bool bench_report_write_json(const struct bench_report *report, const char *path)
{
    struct pl_str out;
    bool ok;

    if (path == NULL) {
        return true;
    }
    pl_str_init(&out);
    put_report(&out, report);
    ok = bench_write_text(&out, path);
    pl_str_finish(&out);
    return ok;
}
