/*
 * The picture: a panel for each size and mode, a group of bars for each graph, a bar for each contestant. A bar is the speed beside
 * hand-tuned streams and events, which is the line at 1: what reaches the line costs nothing over doing it by hand.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "bench/graphs/table.h"

#define WIDTH        1000
#define LEFT         70
#define RIGHT        20
#define TOP          96
#define PANEL        210 /* with its labels */
#define BARS         130 /* the tallest bar of a panel */
#define SPEED_MAX    1.3 /* taller bars are cut; their figure stands above them */
#define GRAPHS_SHOWN 6

static const struct {
    enum graphs_contestant contestant;
    const char *colour, *name;
} shown[] = {
    {GRAPHS_SERIAL, "#bbbbbb", "one kernel after the other"},
    {GRAPHS_GRAPH, "#56b4e9", "CUDA graph, by hand"},
    {GRAPHS_PLAIN, "#d55e00", "Plasmon"},
    {GRAPHS_REPLAY, "#009e73", "Plasmon, recorded"},
};

static void put_text(struct pl_str *out, double x, double y, const char *more,
                     const char *text)
{
    pl_str_append(out, "<text x=\"%.1f\" y=\"%.1f\" %s>", x, y, more);
    for (; *text != '\0'; text++) {
        pl_str_append(out, *text == '&' ? "&amp;" : *text == '<' ? "&lt;" : "%c", *text);
    }
    pl_str_append(out, "</text>\n");
}

static void put_bar(struct pl_str *out, double x, double base, double width, double speed,
                    const char *colour)
{
    double height = BARS * fmin(speed, SPEED_MAX) / SPEED_MAX;
    char text[32];

    pl_str_append(
        out, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"%s\"/>\n",
        x, base - height, width - 2, height, colour);
    (void)snprintf(text, sizeof(text), "%.2f", speed);
    put_text(out, x + width / 2 - 1, base - height - 3,
             "text-anchor=\"middle\" font-size=\"10\"", text);
}

static void put_group(struct pl_str *out, const struct graphs_row *row,
                      const double *seconds, double x, double base)
{
    const double width = (WIDTH - LEFT - RIGHT) / (double)GRAPHS_SHOWN;
    const double bar   = width / (PL_COUNT(shown) + 1);
    bool has_events    = seconds[GRAPHS_EVENTS] > 0;
    double line        = has_events ? seconds[GRAPHS_EVENTS] : seconds[GRAPHS_SERIAL];
    char text[64];

    for (size_t i = 0; i < PL_COUNT(shown); i++) {
        if (seconds[shown[i].contestant] > 0 && line > 0) {
            put_bar(out, x + bar * (0.5 + (double)i), base, bar,
                    line / seconds[shown[i].contestant], shown[i].colour);
        }
    }
    put_text(out, x + width / 2, base + 16, "text-anchor=\"middle\" font-weight=\"bold\"",
             row->definition->title);
    (void)snprintf(text, sizeof(text), "1 = %.*f %s",
                   line < 1e-4   ? 1
                   : line < 1e-3 ? 0
                   : line < 0.1  ? 2
                                 : 0,
                   line * (line < 1e-3 ? 1e6 : 1e3), line < 1e-3 ? "us" : "ms");
    put_text(out, x + width / 2, base + 31,
             "text-anchor=\"middle\" font-size=\"11\" fill=\"#555\"",
             line > 0 ? text : "not measured");
}

/* false: nothing was measured for this panel. */
static bool put_panel(struct pl_str *out, const struct graphs_table *table,
                      enum graphs_size size, size_t mode, double top)
{
    const double width = (WIDTH - LEFT - RIGHT) / (double)GRAPHS_SHOWN,
                 base  = top + 20 + BARS;
    size_t groups      = 0;
    char text[96];

    for (size_t i = 0; i < table->rows.count; i++) {
        const struct graphs_row *row = pl_vec_at(&table->rows, i);
        const double *seconds        = &row->seconds[mode * GRAPHS_CONTESTANTS];

        if (row->size == size &&
            (seconds[GRAPHS_SERIAL] > 0 || seconds[GRAPHS_PLAIN] > 0)) {
            put_group(out, row, seconds, LEFT + width * (double)groups++, base);
        }
    }
    if (groups == 0) {
        return false;
    }
    (void)snprintf(text, sizeof(text), "%s, inputs %s", graphs_size_name(size),
                   mode == GRAPHS_SINGLE ? "on the device, one run at a time"
                   : mode == GRAPHS_COLD ? "copied from host memory in each run"
                                         : "on the device");
    put_text(out, LEFT, top + 2, "font-size=\"15\" font-weight=\"bold\"", text);
    pl_str_append(out,
                  "<line x1=\"%d\" y1=\"%.1f\" x2=\"%d\" y2=\"%.1f\" stroke=\"#333\"/>\n"
                  "<line x1=\"%d\" y1=\"%.1f\" x2=\"%d\" y2=\"%.1f\" stroke=\"#333\" "
                  "stroke-dasharray=\"6 4\"/>\n",
                  LEFT, base, WIDTH - RIGHT, base, LEFT, base - BARS / SPEED_MAX,
                  WIDTH - RIGHT, base - BARS / SPEED_MAX);
    put_text(out, LEFT - 8, base - BARS / SPEED_MAX + 5, "text-anchor=\"end\"", "1");
    put_text(out, LEFT - 8, base + 5, "text-anchor=\"end\"", "0");
    return true;
}

/* On a CPU there are no streams by hand. */
static bool has_events_at_all(const struct graphs_table *table)
{
    for (size_t i = 0; i < table->rows.count; i++) {
        const struct graphs_row *row = pl_vec_at(&table->rows, i);

        if (row->seconds[GRAPHS_EVENTS] > 0) {
            return true;
        }
    }
    return false;
}

static void put_head(struct pl_str *out, bool has_events)
{
    struct pl_str machine;
    double x = LEFT;

    put_text(out, LEFT, 30, "font-size=\"20\" font-weight=\"bold\"",
             has_events ? "Six task graphs: speed beside hand-tuned streams and events"
                        : "Six task graphs: speed beside one kernel after the other");
    pl_str_init(&machine);
    bench_machine_describe(&machine);
    put_text(out, LEFT, 50, "font-size=\"12\" fill=\"#666\"", pl_str_text(&machine));
    pl_str_finish(&machine);
    for (size_t i = 0; i < PL_COUNT(shown); i++) {
        pl_str_append(
            out, "<rect x=\"%.1f\" y=\"62\" width=\"14\" height=\"14\" fill=\"%s\"/>\n", x,
            shown[i].colour);
        put_text(out, x + 20, 74, "", shown[i].name);
        x += 45 + 7.2 * (double)strlen(shown[i].name);
    }
    pl_str_append(out,
                  "<line x1=\"%.1f\" y1=\"69\" x2=\"%.1f\" y2=\"69\" stroke=\"#333\" "
                  "stroke-dasharray=\"6 4\"/>\n",
                  x, x + 26);
    put_text(out, x + 32, 74, "",
             has_events ? "1: streams and events, by hand" : "1: the first");
}

bool graphs_table_write_plot(const struct graphs_table *table, const char *path)
{
    struct pl_str body, out;
    double y = TOP + 10;
    FILE *file;
    bool ok;

    if (path == NULL) {
        return true;
    }
    pl_str_init(&body);
    pl_str_init(&out);
    put_head(&body, has_events_at_all(table));
    for (size_t mode = 0; mode < GRAPHS_MODES; mode++) {
        for (size_t size = 0; size < GRAPHS_SIZES; size++) {
            y += put_panel(&body, table, (enum graphs_size)size, mode, y) ? PANEL : 0;
        }
    }
    pl_str_append(
        &out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %.0f\" "
        "width=\"%d\" height=\"%.0f\" font-family=\"Helvetica, Arial, sans-serif\" "
        "font-size=\"14\">\n<rect width=\"100%%\" height=\"100%%\" "
        "fill=\"white\"/>\n%s</svg>\n",
        WIDTH, y, WIDTH, y, pl_str_text(&body));
    file = fopen(path, "we");
    ok = file != NULL && !body.failed && !out.failed && fputs(pl_str_text(&out), file) >= 0;
    if (file != NULL && fclose(file) != 0) {
        ok = false;
    }
    if (!ok) {
        fprintf(stderr, "plasmon bench: cannot write %s: %s\n", path, strerror(errno));
    }
    pl_str_finish(&body);
    pl_str_finish(&out);
    return ok;
}
