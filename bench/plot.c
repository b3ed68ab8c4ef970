/*
 * A report's lines as an SVG picture: log-log, because sizes and rates span many decades, but for
 * axes that the plot wants linear. Solid lines with dots are what was measured, dashed lines of the
 * same colour their yardsticks (grey: one for all). No script, no fonts to fetch: any browser shows
 * it.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "bench/bench.h"

#define WIDTH        1000
#define HEIGHT       620
#define LEFT         120
#define RIGHT        280 /* the legend stands there */
#define TOP          60
#define BOTTOM       80
#define LETTER       7.7 /* how wide one of the legend is, or less */
#define SERIES_MAX   8
#define LIMIT_COLOUR "#666" /* of a yardstick of all series */

enum scale { SCALE_DECADES, SCALE_BYTES, SCALE_LINEAR, SCALE_RATES /* decades of GB/s */ };

struct axis {
    double low, high; /* as axis_place() */
    double from, to;  /* pixels */
    enum scale scale;
};
struct picture {
    const struct bench_plot *plot;
    const struct bench_report *report;
    const char *unit;
    struct axis x, y;
    const char *series[SERIES_MAX];
    size_t series_count;
    struct pl_str out;
};

static const char *const colours[SERIES_MAX] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                                "#56b4e9", "#8c6d00", "#7b3fa0", "#444444"};

static double axis_place(const struct axis *axis, double value)
{
    switch (axis->scale) {
    case SCALE_BYTES:
        return log2(value);
    case SCALE_LINEAR:
        return value;
    case SCALE_DECADES:
    case SCALE_RATES:
        break;
    }
    return log10(value);
}

static double axis_at(const struct axis *axis, double value)
{
    double part = (axis_place(axis, value) - axis->low) / (axis->high - axis->low);

    return axis->from + part * (axis->to - axis->from);
}

/* ------------------------------------------------------------------------ what is in it */

static const struct bench_row *row_at(const struct picture *picture, size_t index)
{
    const struct bench_row *row = pl_vec_at(&picture->report->rows, index);

    return row->series[0] != '\0' && strcmp(row->unit, picture->unit) == 0 &&
                   (row->x > 0 || picture->plot->x_is_linear) &&
                   (row->value > 0 || picture->plot->y_is_linear) &&
                   (picture->plot->rows == NULL ||
                    strcmp(row->name, picture->plot->rows) == 0)
               ? row
               : NULL;
}

static void add_series(struct picture *picture, const char *name)
{
    for (size_t i = 0; i < picture->series_count; i++) {
        if (strcmp(picture->series[i], name) == 0) {
            return;
        }
    }
    if (picture->series_count < SERIES_MAX) {
        picture->series[picture->series_count++] = name;
    }
}

static void widen(struct axis *axis, double value)
{
    axis->low  = fmin(axis->low, axis_place(axis, value));
    axis->high = fmax(axis->high, axis_place(axis, value));
}

/* Between lines of a linear axis: 1, 2 or 5 times a power of ten, so that there are at most ten of them. */
static double linear_step(double high)
{
    double step = pow(10, floor(log10(fmax(high, 1e-9) / 10)));

    for (unsigned i = 0; high / step > 10; i++) {
        step *= i % 3 == 1 ? 2.5 : 2;
    }
    return step;
}

/* To whole decades, or to 0 and the next line. */
static void round_out(struct axis *axis)
{
    if (axis->scale == SCALE_LINEAR) {
        double step = linear_step(axis->high);

        axis->low  = 0;
        axis->high = ceil(axis->high / step + 1e-9) * step;
        return;
    }
    axis->low  = floor(axis->low);
    axis->high = ceil(axis->high + 1e-9);
    if (axis->high <= axis->low) {
        axis->high = axis->low + 1;
    }
}

static bool survey(struct picture *picture)
{
    const struct bench_plot *plot = picture->plot;

    picture->x = (struct axis){INFINITY, -INFINITY, LEFT, WIDTH - RIGHT,
                               plot->x_is_bytes    ? SCALE_BYTES
                               : plot->x_is_linear ? SCALE_LINEAR
                                                   : SCALE_DECADES};
    picture->y = (struct axis){INFINITY, -INFINITY, HEIGHT - BOTTOM, TOP,
                               plot->y_is_linear                    ? SCALE_LINEAR
                               : strcmp(picture->unit, "GB/s") == 0 ? SCALE_RATES
                                                                    : SCALE_DECADES};
    for (size_t i = 0; i < picture->report->rows.count; i++) {
        const struct bench_row *row = row_at(picture, i);

        if (row == NULL) {
            continue;
        }
        add_series(picture, row->series);
        widen(&picture->x, row->x);
        widen(&picture->y, row->value);
        if (row->limit > 0) {
            widen(&picture->y, row->limit);
        }
    }
    if (picture->series_count == 0) {
        return false;
    }
    round_out(&picture->y);
    if (picture->x.scale == SCALE_LINEAR) {
        picture->x.low = 0;
    }
    if (picture->x.high - picture->x.low < 0.1) { /* a little air */
        picture->x.low -= picture->x.scale == SCALE_LINEAR ? 0 : 1;
        picture->x.high += 1;
    }
    return true;
}

/* ------------------------------------------------------------------------------ drawing */

static void put_text(struct picture *picture, double x, double y, const char *more,
                     const char *text)
{
    pl_str_append(&picture->out, "<text x=\"%.1f\" y=\"%.1f\" %s>", x, y, more);
    for (; *text != '\0'; text++) {
        if (*text == '&' || *text == '<') {
            pl_str_append(&picture->out, *text == '&' ? "&amp;" : "&lt;");
        } else {
            pl_str_append(&picture->out, "%c", *text);
        }
    }
    pl_str_append(&picture->out, "</text>\n");
}

static void put_line(struct picture *picture, double x1, double y1, double x2, double y2,
                     const char *more)
{
    pl_str_append(&picture->out,
                  "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" %s/>\n", x1, y1,
                  x2, y2, more);
}

/* GB/s as what it is: "10 KB/s". */
static void format_rate(double value, char out[32])
{
    static const char *const units[] = {"B/s", "KB/s", "MB/s", "GB/s", "TB/s"};
    size_t unit                      = 0;

    for (value *= 1e9; value >= 999.5 && unit + 1 < PL_COUNT(units); unit++) {
        value /= 1000;
    }
    (void)snprintf(out, 32, "%.3g %s", value, units[unit]);
}

static void format_tick(double value, enum scale scale, char out[32])
{
    if (scale == SCALE_RATES) {
        format_rate(value, out);
    } else if (scale == SCALE_BYTES) {
        char *point;

        (void)pl_format_bytes((uint64_t)(value + 0.5), out);
        point = strstr(out, ".0 ");
        if (point != NULL) {
            memmove(point, point + 2, strlen(point + 2) + 1);
        }
    } else if (value >= 1e6) {
        (void)snprintf(out, 32, "%g M", value / 1e6);
    } else if (value > 0 && value < 0.99e-4) { /* %g would say 1e-05 */
        double power = floor(log10(value) + 1e-9);

        (void)snprintf(out, 32, "%ge%.0f", round(value / pow(10, power)), power);
    } else {
        (void)snprintf(out, 32, "%g", value);
    }
}

static void put_tick(struct picture *picture, const struct axis *axis, bool vertical,
                     double value)
{
    double pixel = axis_at(axis, value);
    char text[32];

    format_tick(value, axis->scale, text);
    if (vertical) {
        put_line(picture, LEFT, pixel, WIDTH - RIGHT, pixel, "stroke=\"#ddd\"");
        put_text(picture, LEFT - 8, pixel + 5, "text-anchor=\"end\"", text);
    } else {
        put_line(picture, pixel, TOP, pixel, HEIGHT - BOTTOM, "stroke=\"#ddd\"");
        put_text(picture, pixel, HEIGHT - BOTTOM + 20, "text-anchor=\"middle\"", text);
    }
}

static void put_linear_ticks(struct picture *picture, const struct axis *axis,
                             bool vertical)
{
    double step = linear_step(axis->high);

    for (unsigned i = 0; i * step <= axis->high * (1 + 1e-9); i++) {
        put_tick(picture, axis, vertical, i * step);
    }
}

/* Powers of two for bytes, at most nine of them; else decades, with 2 and 5 between where there is room. */
static void put_ticks(struct picture *picture, const struct axis *axis, bool vertical)
{
    static const double between[] = {1, 2, 5};
    bool bytes                    = axis->scale == SCALE_BYTES;
    double step  = bytes ? fmax(2, 2 * ceil((axis->high - axis->low) / 2 / 8)) : 1;
    size_t parts = !bytes && axis->high - axis->low < 3 ? PL_COUNT(between) : 1;
    double first = bytes ? ceil(axis->low - 1e-9) : floor(axis->low);

    if (axis->scale == SCALE_LINEAR) {
        put_linear_ticks(picture, axis, vertical);
        return;
    }
    for (double at = first; at <= axis->high + 1e-9; at += step) {
        for (size_t i = 0; i < parts; i++) {
            double value = bytes ? exp2(at) : pow(10, at) * between[i];
            double where = axis_place(axis, value);

            if (where >= axis->low - 1e-9 && where <= axis->high + 1e-9) {
                put_tick(picture, axis, vertical, value);
            }
        }
    }
}

static void put_frame(struct picture *picture)
{
    double middle_x = (LEFT + WIDTH - RIGHT) / 2.0,
           middle_y = (TOP + HEIGHT - BOTTOM) / 2.0;
    struct pl_str machine;
    char turn[96];

    pl_str_append(&picture->out,
                  "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" "
                  "width=\"%d\" height=\"%d\" font-family=\"Helvetica, Arial, sans-serif\" "
                  "font-size=\"14\">\n<rect width=\"100%%\" height=\"100%%\" "
                  "fill=\"white\"/>\n",
                  WIDTH, HEIGHT, WIDTH, HEIGHT);
    put_text(picture, LEFT, TOP - 24, "font-size=\"20\" font-weight=\"bold\"",
             picture->plot->title);
    put_ticks(picture, &picture->x, false);
    put_ticks(picture, &picture->y, true);
    pl_str_append(&picture->out,
                  "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"none\" "
                  "stroke=\"#333\"/>\n",
                  LEFT, TOP, WIDTH - RIGHT - LEFT, HEIGHT - BOTTOM - TOP);
    put_text(picture, middle_x, HEIGHT - BOTTOM + 44,
             "text-anchor=\"middle\" font-size=\"16\"", picture->plot->x_label);
    (void)snprintf(
        turn, sizeof(turn),
        "text-anchor=\"middle\" font-size=\"16\" transform=\"rotate(-90 24 %.1f)\"",
        middle_y);
    put_text(picture, 24, middle_y, turn, picture->plot->y_label);
    pl_str_init(&machine);
    bench_machine_describe(&machine);
    put_text(picture, LEFT, HEIGHT - 10, "font-size=\"12\" fill=\"#666\"",
             pl_str_text(&machine));
    pl_str_finish(&machine);
}

/* One polyline through value (or limit) of the rows of a series. false: there was nothing to draw. */
static bool put_curve(struct picture *picture, size_t series, bool limit,
                      const char *colour)
{
    size_t points = 0;

    for (size_t i = 0; i < picture->report->rows.count; i++) {
        const struct bench_row *row = row_at(picture, i);

        if (row == NULL || strcmp(row->series, picture->series[series]) != 0 ||
            (limit && row->limit <= 0)) {
            continue;
        }
        pl_str_append(&picture->out, "%s%.1f,%.1f",
                      points++ == 0 ? "<polyline points=\"" : " ",
                      axis_at(&picture->x, row->x),
                      axis_at(&picture->y, limit ? row->limit : row->value));
    }
    if (points > 0) {
        pl_str_append(&picture->out,
                      "\" fill=\"none\" stroke=\"%s\" stroke-width=\"%s\" %s/>\n", colour,
                      limit ? "1.5" : "2.5", limit ? "stroke-dasharray=\"7 5\"" : "");
    }
    return points > 0;
}

static void put_dots(struct picture *picture, size_t series)
{
    for (size_t i = 0; i < picture->report->rows.count; i++) {
        const struct bench_row *row = row_at(picture, i);

        if (row != NULL && strcmp(row->series, picture->series[series]) == 0) {
            pl_str_append(&picture->out,
                          "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4\" fill=\"%s\"/>\n",
                          axis_at(&picture->x, row->x), axis_at(&picture->y, row->value),
                          colours[series]);
        }
    }
}

static const char *limit_name(const struct picture *picture, size_t series)
{
    for (size_t i = 0; i < picture->report->rows.count; i++) {
        const struct bench_row *row = row_at(picture, i);

        if (row != NULL && row->limit > 0 && row->limit_name != NULL &&
            strcmp(row->series, picture->series[series]) == 0) {
            return row->limit_name;
        }
    }
    return "yardstick";
}

/* The limit of the row of a series at x; 0: none. */
static double limit_at(const struct picture *picture, size_t series, double x)
{
    for (size_t i = 0; i < picture->report->rows.count; i++) {
        const struct bench_row *row = row_at(picture, i);

        if (row != NULL && row->x == x &&
            strcmp(row->series, picture->series[series]) == 0) {
            return row->limit;
        }
    }
    return 0;
}

/* Is there one yardstick for all? */
static bool one_limit(const struct picture *picture)
{
    for (size_t i = 0; i < picture->report->rows.count; i++) {
        const struct bench_row *row = row_at(picture, i);

        for (size_t k = 0; row != NULL && k < picture->series_count; k++) {
            if (limit_at(picture, k, row->x) != row->limit ||
                strcmp(limit_name(picture, k), limit_name(picture, 0)) != 0) {
                return false;
            }
        }
    }
    return picture->series_count > 1;
}

/* A line of the legend at *io_y, and where the next one goes. */
static void put_legend(struct picture *picture, double *io_y, const char *colour,
                       bool limit, const char *text)
{
    const double x    = WIDTH - RIGHT + 14;
    const double room = RIGHT - 14 - 36 - 4;
    char more[96], style[128], press[64] = "";

    (void)snprintf(more, sizeof(more), "stroke=\"%s\" stroke-width=\"%s\" %s", colour,
                   limit ? "1.5" : "2.5", limit ? "stroke-dasharray=\"7 5\"" : "");
    put_line(picture, x, *io_y, x + 28, *io_y, more);
    if ((double)strlen(text) * LETTER > room) { /* pressed together rather than cut */
        (void)snprintf(press, sizeof(press),
                       " textLength=\"%.0f\" lengthAdjust=\"spacingAndGlyphs\"", room);
    }
    (void)snprintf(style, sizeof(style), "%s%s",
                   limit ? "fill=\"#555\" font-size=\"13\"" : "", press);
    put_text(picture, x + 36, *io_y + 5, style, text);
    *io_y += 22;
}

static void put_series(struct picture *picture)
{
    bool once = one_limit(picture);
    double y  = TOP + 10;

    for (size_t i = 0; i < picture->series_count; i++) {
        put_legend(picture, &y, colours[i], false, picture->series[i]);
        if (!once && put_curve(picture, i, true, colours[i])) {
            put_legend(picture, &y, colours[i], true, limit_name(picture, i));
        }
        (void)put_curve(picture, i, false,
                        colours[i]); /* a series has at least one point */
        put_dots(picture, i);
        y += 6;
    }
    if (once && put_curve(picture, 0, true, LIMIT_COLOUR)) {
        put_legend(picture, &y, LIMIT_COLOUR, true, limit_name(picture, 0));
    }
    pl_str_append(&picture->out, "</svg>\n");
}

bool bench_plot_write(const struct bench_plot *plot, const struct bench_report *report,
                      const char *unit, const char *path)
{
    struct picture picture = {.plot = plot, .report = report, .unit = unit};
    FILE *file;
    bool ok;

    if (path == NULL) {
        return true;
    }
    if (!survey(&picture)) {
        fprintf(stderr, "plasmon bench: there is nothing to draw in %s\n", path);
        return false;
    }
    pl_str_init(&picture.out);
    put_frame(&picture);
    put_series(&picture);
    file = fopen(path, "we");
    ok = file != NULL && !picture.out.failed && fputs(pl_str_text(&picture.out), file) >= 0;
    if (file != NULL && fclose(file) != 0) {
        ok = false;
    }
    if (!ok) {
        fprintf(stderr, "plasmon bench: cannot write %s: %s\n", path, strerror(errno));
    }
    pl_str_finish(&picture.out);
    return ok;
}
