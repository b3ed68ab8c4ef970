/*
 * The picture's parts: what the files that draw it share. All append to an SVG's text; pixels from
 * the upper left corner.
 */
#ifndef BENCH_GRAPHS_TABLE_PLOT_H
#define BENCH_GRAPHS_TABLE_PLOT_H

#include "bench/graphs/table.h"

#define PLOT_WIDTH 1400.0
#define PLOT_LEFT  60.0
#define PLOT_RIGHT 30.0

#define PLOT_GREY   "#bdbdbd" /* one kernel after the other; other policies */
#define PLOT_ORANGE "#d55e00" /* Plasmon, submitted */
#define PLOT_GREEN  "#009e73" /* Plasmon, recorded */
#define PLOT_BLUE   "#56b4e9"
#define PLOT_RED    "#cc0000"
#define PLOT_TARGET "#e4f1e4" /* where a bar may end */

void plot_text(struct pl_str *out, double x, double y, const char *more, const char *text);
void plot_box(struct pl_str *out, double x, double y, double width, double height,
              const char *colour);
void plot_line(struct pl_str *out, double x1, double y1, double x2, double y2,
               const char *more);

/* Upright bars of speed beside by hand, which is a line at 1. */
struct plot_scale {
    double left, width, base; /* base: y of 0 */
    double pixels;            /* of a speed of 1 */
    double most;              /* taller bars are cut, and have a gap */
};
/* The line, the floor, and the range from `least`, which is a target, to 1; 0: no target. */
void plot_ground(struct pl_str *out, const struct plot_scale *scale, double least);
/* Its figure stands in it, or above where it is low; a bar that misses its target has a red end. */
void plot_bar(struct pl_str *out, const struct plot_scale *scale, double x, double width,
              double speed, const char *colour, bool missed);
/* "134 us", "42.4 ms" */
void plot_format_time(double seconds, char out[32]);
/* A box and what it stands for; returns where the next may begin. */
double plot_legend(struct pl_str *out, double x, double y, const char *colour,
                   const char *text);

/* table_plot_more.c: from y = top on; return where they end, `top` when there is nothing to draw. */
double plot_devices(struct pl_str *out, const struct graphs_table *table, double top);
double plot_costs(struct pl_str *out, const struct graphs_table *table, double top);

#endif
