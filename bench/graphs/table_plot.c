/*
 * The picture: is Plasmon as fast as what a person writes by hand? Every bar is a speed beside its
 * yardstick, which is the line at 1; the shaded range below it is what the targets allow. Six
 * graphs in a panel for each size and mode; then several devices, then what a dependency and a
 * launch cost (table_plot_more.c).
 */
#include "bench/graphs/table_plot.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define HEAD         120.0
#define GAP          24.0
#define PANEL        215.0 /* with its labels */
#define SPEED_PIXELS 100.0
#define SPEED_MAX    1.35
#define GRAPHS_SHOWN 6

/* -------------------------------------------------------------------------------- parts */

void plot_text(struct pl_str *out, double x, double y, const char *more, const char *text)
{
    pl_str_append(out, "<text x=\"%.1f\" y=\"%.1f\" %s>", x, y, more);
    for (; *text != '\0'; text++) {
        if (*text == '&' || *text == '<') {
            pl_str_append(out, *text == '&' ? "&amp;" : "&lt;");
        } else {
            pl_str_append(out, "%c", *text);
        }
    }
    pl_str_append(out, "</text>\n");
}

void plot_box(struct pl_str *out, double x, double y, double width, double height,
              const char *colour)
{
    pl_str_append(
        out, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"%s\"/>\n",
        x, y, width, height, colour);
}

void plot_line(struct pl_str *out, double x1, double y1, double x2, double y2,
               const char *more)
{
    pl_str_append(out, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" %s/>\n", x1,
                  y1, x2, y2, more);
}

void plot_ground(struct pl_str *out, const struct plot_scale *scale, double least)
{
    double one = scale->base - scale->pixels, end = scale->left + scale->width;

    if (least > 0) {
        plot_box(out, scale->left, one, scale->width, (1 - least) * scale->pixels,
                 PLOT_TARGET);
    }
    plot_line(out, scale->left, scale->base, end, scale->base, "stroke=\"#333\"");
    plot_line(out, scale->left, one, end, one, "stroke=\"#333\" stroke-dasharray=\"6 4\"");
    plot_text(out, scale->left - 6, one + 4, "text-anchor=\"end\" font-size=\"12\"", "1");
    plot_text(out, scale->left - 6, scale->base + 4, "text-anchor=\"end\" font-size=\"12\"",
              "0");
}

void plot_bar(struct pl_str *out, const struct plot_scale *scale, double x, double width,
              double speed, const char *colour, bool missed)
{
    double height  = scale->pixels * fmin(speed, scale->most);
    bool is_inside = height > 24;
    char text[32], more[96];

    plot_box(out, x, scale->base - height, width - 2, height, colour);
    if (missed) {
        plot_box(out, x, scale->base - height, width - 2, 4, PLOT_RED);
    }
    if (speed > scale->most) {
        plot_box(out, x, scale->base - height + 24, width - 2, 3, "#fff");
    }
    (void)snprintf(text, sizeof(text), speed < 0.095 ? "%.3f" : "%.2f", speed);
    (void)snprintf(more, sizeof(more),
                   "text-anchor=\"middle\" font-size=\"%.1f\" fill=\"%s\"",
                   fmin(11, width * 0.42),
                   !is_inside || strcmp(colour, PLOT_GREY) == 0 ? "#222" : "#fff");
    plot_text(out, x + width / 2 - 1, scale->base - height + (is_inside ? 16 : -3), more,
              text);
}

void plot_format_time(double seconds, char out[32])
{
    bool in_ms   = seconds >= 1e-3;
    double shown = seconds * (in_ms ? 1e3 : 1e6);

    (void)snprintf(out, 32, "%.*f %s",
                   shown < 10    ? 2
                   : shown < 100 ? 1
                                 : 0,
                   shown, in_ms ? "ms" : "us");
}

double plot_legend(struct pl_str *out, double x, double y, const char *colour,
                   const char *text)
{
    plot_box(out, x, y - 12, 14, 14, colour);
    plot_text(out, x + 20, y, "", text);
    return x + 42 + 7.7 * (double)strlen(text);
}

/* --------------------------------------------------------------------------- six graphs */

static const struct {
    enum graphs_contestant contestant;
    const char *colour;
} shown[] = {{GRAPHS_SERIAL, PLOT_GREY},
             {GRAPHS_PLAIN, PLOT_ORANGE},
             {GRAPHS_REPLAY, PLOT_GREEN}};

static bool has_panel(const struct graphs_table *table, enum graphs_size size,
                      uint32_t mode)
{
    for (size_t i = 0; i < table->rows.count; i++) {
        const struct graphs_row *row = pl_vec_at(&table->rows, i);

        if (row->size == size && (graphs_row_seconds(row, mode, GRAPHS_SERIAL) > 0 ||
                                  graphs_row_seconds(row, mode, GRAPHS_PLAIN) > 0)) {
            return true;
        }
    }
    return false;
}

static void put_group(struct pl_str *out, const struct plot_scale *scale,
                      const struct graphs_row *row, uint32_t mode, double x)
{
    const double width = scale->width / GRAPHS_SHOWN;
    const double bar   = width / ((double)PL_COUNT(shown) + 0.6);
    double line =
        graphs_row_seconds(row, mode, graphs_row_yardstick(row, mode, GRAPHS_PLAIN));
    char text[48] = "not measured", time[32];

    for (size_t i = 0; i < PL_COUNT(shown); i++) {
        enum graphs_contestant it = shown[i].contestant;
        double seconds            = graphs_row_seconds(row, mode, it);
        double yardstick =
            graphs_row_seconds(row, mode, graphs_row_yardstick(row, mode, it));

        if (seconds > 0 && yardstick > 0) {
            double target = graphs_row_target(row, mode, it);

            plot_bar(out, scale, x + bar * (0.3 + (double)i), bar, yardstick / seconds,
                     shown[i].colour, target > 0 && seconds > target * yardstick);
        }
    }
    plot_text(out, x + width / 2, scale->base + 16,
              "text-anchor=\"middle\" font-weight=\"bold\"", row->definition->title);
    if (line > 0) {
        plot_format_time(line, time);
        (void)snprintf(text, sizeof(text), "%s", time);
    }
    plot_text(out, x + width / 2, scale->base + 31,
              "text-anchor=\"middle\" font-size=\"11\" fill=\"#666\"", text);
}

static void put_panel(struct pl_str *out, const struct graphs_table *table,
                      enum graphs_size size, uint32_t mode, const struct plot_scale *scale)
{
    static const char *const names[GRAPHS_MODES] = {
        "inputs on the device, many runs in flight", "from and to page-locked host memory",
        "from and to ordinary host memory", "one run at a time"};
    double x = scale->left, target = 0;
    char text[96];

    for (size_t i = 0; i < table->rows.count; i++) {
        const struct graphs_row *row = pl_vec_at(&table->rows, i);

        if (row->size == size) {
            target = fmax(target, graphs_row_target(row, mode, GRAPHS_PLAIN));
        }
    }
    plot_ground(out, scale, target > 0 ? 1 / target : 0);
    for (size_t i = 0; i < table->rows.count; i++) {
        const struct graphs_row *row = pl_vec_at(&table->rows, i);

        if (row->size == size) {
            put_group(out, scale, row, mode, x);
            x += scale->width / GRAPHS_SHOWN;
        }
    }
    (void)snprintf(text, sizeof(text), "%s: %s", graphs_size_name(size), names[mode]);
    plot_text(out, scale->left, scale->base - SPEED_PIXELS * SPEED_MAX - 14,
              "font-size=\"14\" font-weight=\"bold\"", text);
}

/* A row of panels for each mode, a panel for each size. */
static double put_six(struct pl_str *out, const struct graphs_table *table, double top)
{
    for (uint32_t mode = 0; mode < GRAPHS_MODES; mode++) {
        uint32_t panels = 0, panel = 0;

        for (int size = 0; size < GRAPHS_SIZES; size++) {
            panels += has_panel(table, (enum graphs_size)size, mode);
        }
        for (int size = 0; size < GRAPHS_SIZES; size++) {
            double space            = (PLOT_WIDTH - PLOT_LEFT - PLOT_RIGHT + GAP) / panels;
            struct plot_scale scale = {.left   = PLOT_LEFT + space * panel,
                                       .width  = space - GAP,
                                       .base   = top + PANEL - 50,
                                       .pixels = SPEED_PIXELS,
                                       .most   = SPEED_MAX};

            if (has_panel(table, (enum graphs_size)size, mode)) {
                put_panel(out, table, (enum graphs_size)size, mode, &scale);
                panel++;
            }
        }
        top += panels > 0 ? PANEL : 0;
    }
    return top;
}

/* ----------------------------------------------------------------------------- the page */

/* On a CPU there are no streams by hand. */
static bool has_events(const struct graphs_table *table)
{
    for (size_t i = 0; i < table->rows.count; i++) {
        for (uint32_t mode = 0; mode < GRAPHS_MODES; mode++) {
            if (graphs_row_seconds(pl_vec_at(&table->rows, i), mode, GRAPHS_EVENTS) > 0) {
                return true;
            }
        }
    }
    return false;
}

static void put_head(struct pl_str *out, const struct graphs_table *table)
{
    bool by_hand = has_events(table);
    struct pl_str machine;
    double x = PLOT_LEFT;

    plot_text(out, PLOT_LEFT, 34, "font-size=\"22\" font-weight=\"bold\"",
              by_hand ? "Is Plasmon as fast as CUDA by hand? Speed beside the same kernels "
                        "in hand-tuned streams"
                      : "Speed beside the same kernels one after the other");
    pl_str_init(&machine);
    bench_machine_describe(&machine);
    plot_text(out, PLOT_LEFT, 56, "font-size=\"12\" fill=\"#666\"", pl_str_text(&machine));
    pl_str_finish(&machine);
    x = plot_legend(out, x, 84, PLOT_ORANGE,
                    by_hand ? "Plasmon (1: streams and events)" : "Plasmon");
    x = plot_legend(out, x, 84, PLOT_GREEN,
                    by_hand ? "Plasmon, recorded (1: CUDA graph)" : "Plasmon, recorded");
    x = plot_legend(out, x, 84, PLOT_GREY, "one kernel after the other");
    if (by_hand) {
        x = plot_legend(out, x, 84, PLOT_TARGET, "target: bars end here or above");
        x = plot_legend(out, x, 84, PLOT_RED, "missed");
    }
    plot_text(
        out, PLOT_LEFT, 104, "font-size=\"12\" fill=\"#666\"",
        "Taller is faster; a bar with a gap is cut. Below each graph: the time of a run "
        "by hand.");
}

bool graphs_table_write_plot(const struct graphs_table *table, const char *path)
{
    struct pl_str body, out;
    double y = HEAD;
    FILE *file;
    bool ok;

    if (path == NULL) {
        return true;
    }
    pl_str_init(&body);
    pl_str_init(&out);
    put_head(&body, table);
    y = put_six(&body, table, y);
    y = plot_devices(&body, table, y);
    y = plot_costs(&body, table, y);
    pl_str_append(
        &out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" "
        "width=\"%.0f\" height=\"%.0f\" font-family=\"Helvetica, Arial, sans-serif\" "
        "font-size=\"14\">\n<rect width=\"100%%\" height=\"100%%\" "
        "fill=\"white\"/>\n%s</svg>\n",
        PLOT_WIDTH, y, PLOT_WIDTH, y, pl_str_text(&body));
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
