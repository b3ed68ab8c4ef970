/*
 * The lower half of the picture: graphs on several devices, and what a dependency and a launch
 * cost. Both from the rows of table->more.
 */
#include "bench/graphs/table_plot.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define SPEED_PIXELS 120.0
#define SPEED_MAX    1.3
#define DEVICES_MAX  8u
#define GROUPS       5
#define LINE         34.0 /* of a cost */
#define LINE_LEFT    430.0
#define LINE_PIXELS  300.0 /* of the yardstick */
#define LINE_MOST    2.2

static const struct bench_row *find(const struct graphs_table *table, const char *name,
                                    double x)
{
    for (size_t i = 0; i < table->more.rows.count; i++) {
        const struct bench_row *row = pl_vec_at(&table->more.rows, i);

        if (strcmp(row->name, name) == 0 && (x <= 0 || fabs(row->x - x) < 0.5)) {
            return row;
        }
    }
    return NULL;
}

/* ---------------------------------------------------------------------- several devices */

static const char *const graphs[GROUPS]       = {"vec", "bs", "ml", "cg", "mul"};
static const char *const graph_titles[GROUPS] = {"VEC", "B&S", "ML", "CG", "MUL"};
static const struct {
    const char *policy, *colour, *text;
} placements[] = {
    {"auto", PLOT_ORANGE, "Plasmon places, submitted"},
    {"auto.replay", PLOT_GREEN, "recorded"},
    {"auto.flight", "#b35900", "submitted, runs in flight"},
    {"auto.replay.flight", "#1f6b3a", "recorded, runs in flight"},
    {"pinned", PLOT_BLUE, "placed by hand"},
    {"locality", "#8c6d00", "by locality alone"},
    {"round-robin", PLOT_GREY, "round robin"},
};

static uint32_t count_bars(const struct graphs_table *table, const char *graph)
{
    char prefix[32];
    uint32_t count = 0;
    int length     = snprintf(prefix, sizeof(prefix), "multi.%s.", graph);

    for (size_t i = 0; i < table->more.rows.count; i++) {
        const struct bench_row *row = pl_vec_at(&table->more.rows, i);

        count += strncmp(row->name, prefix, (size_t)length) == 0 && row->ratio > 0;
    }
    return count;
}

static void put_device_count(struct pl_str *out, const struct plot_scale *scale, double x,
                             double devices)
{
    char text[16];

    (void)snprintf(text, sizeof(text), "%.0f", devices);
    plot_text(out, x, scale->base + 13,
              "text-anchor=\"middle\" font-size=\"10\" fill=\"#444\"", text);
}

static void put_graph(struct pl_str *out, const struct graphs_table *table,
                      const struct plot_scale *scale, size_t number, double x, double width)
{
    double bar    = fmin(30, width / (count_bars(table, graphs[number]) + 1));
    char text[96] = "", time[32];

    plot_text(out, x, scale->base + 30, "font-weight=\"bold\"", graph_titles[number]);
    for (size_t i = 0; i < PL_COUNT(placements); i++) {
        for (uint32_t devices = 1; devices <= DEVICES_MAX; devices *= 2) {
            char name[64];
            const struct bench_row *row;

            (void)snprintf(name, sizeof(name), "multi.%s.%s", graphs[number],
                           placements[i].policy);
            row = find(table, name, devices);
            if (row == NULL || row->ratio <= 0) {
                continue;
            }
            plot_bar(out, scale, x, bar, row->ratio, placements[i].colour,
                     row->target != 0 && !bench_row_met(row));
            put_device_count(out, scale, x + bar / 2 - 1, row->x);
            x += bar;
            if (i == 0) {
                size_t used = strlen(text);

                plot_format_time(row->limit * 1e-3, time);
                (void)snprintf(text + used, sizeof(text) - used, "%s%s",
                               used > 0 ? ", " : "by hand ", time);
            }
        }
    }
    plot_text(out, x - bar * count_bars(table, graphs[number]), scale->base + 46,
              "font-size=\"11\" fill=\"#666\"", text);
}

double plot_devices(struct pl_str *out, const struct graphs_table *table, double top)
{
    const struct plot_scale scale = {.left   = PLOT_LEFT,
                                     .width  = PLOT_WIDTH - PLOT_LEFT - PLOT_RIGHT,
                                     .base   = top + 60 + SPEED_PIXELS * SPEED_MAX,
                                     .pixels = SPEED_PIXELS,
                                     .most   = SPEED_MAX};
    double x = PLOT_LEFT, target = 0;
    uint32_t groups = 0, group = 0;

    for (size_t i = 0; i < GROUPS; i++) {
        groups += count_bars(table, graphs[i]) > 0;
    }
    if (groups == 0) {
        return top;
    }
    for (size_t i = 0; i < table->more.rows.count; i++) {
        target = fmax(target,
                      -((const struct bench_row *)pl_vec_at(&table->more.rows, i))->target);
    }
    plot_text(out, PLOT_LEFT, top + 12, "font-size=\"16\" font-weight=\"bold\"",
              "Several devices: speed beside the same run by hand on as many (the number "
              "below a bar)");
    for (size_t i = 0; i < PL_COUNT(placements); i++) {
        x = plot_legend(out, x, top + 36, placements[i].colour, placements[i].text);
    }
    plot_ground(out, &scale, target);
    for (size_t i = 0; i < GROUPS; i++) {
        if (count_bars(table, graphs[i]) > 0) {
            put_graph(out, table, &scale, i, PLOT_LEFT + 8 + scale.width / groups * group,
                      scale.width / groups);
            group++;
        }
    }
    return scale.base + 76;
}

/* -------------------------------------------------------------------------------- costs */

static const struct {
    const char *name, *text, *colour;
} costs[] = {
    {"chain.plain", "a short kernel in a chain, submitted", PLOT_ORANGE},
    {"chain.replay", "a short kernel in a chain, recorded", PLOT_GREEN},
    {"edge.plain", "4 KiB from a kernel to one on another device", PLOT_ORANGE},
    {"latency.launch", "one launch, until its result is there", PLOT_ORANGE},
    {"latency.get", "one launch, until its 4 KiB are in host memory", PLOT_ORANGE},
    {"latency.replay", "one recorded launch, until it is done", PLOT_GREEN},
    {"head_cpu.plain", "the head's own CPU a task", PLOT_ORANGE},
    {"worker_cpu.plain", "the worker's own CPU a task", PLOT_ORANGE},
};

static void put_cost(struct pl_str *out, const struct bench_row *row, size_t number,
                     double y)
{
    double length = LINE_PIXELS * fmin(row->ratio, LINE_MOST);
    double right  = LINE_LEFT + fmax(length, LINE_PIXELS * fmax(1, row->target));
    char text[128];

    if (row->target > 0) {
        plot_box(out, LINE_LEFT, y - 4, LINE_PIXELS * row->target, LINE - 6, PLOT_TARGET);
    }
    plot_text(out, LINE_LEFT - 10, y + 14, "text-anchor=\"end\"", costs[number].text);
    plot_box(out, LINE_LEFT, y, length, LINE - 14, costs[number].colour);
    if (row->target > 0 && !bench_row_met(row)) {
        plot_box(out, LINE_LEFT + length - 4, y, 4, LINE - 14, PLOT_RED);
    }
    (void)snprintf(text, sizeof(text), "%.2f us; %s: %.2f us", row->value, row->limit_name,
                   row->limit);
    plot_text(out, right + 10, y + 14, "font-size=\"12\" fill=\"#333\"", text);
}

double plot_costs(struct pl_str *out, const struct graphs_table *table, double top)
{
    double y = top + 36;

    for (size_t i = 0; i < PL_COUNT(costs); i++) {
        const struct bench_row *row = find(table, costs[i].name, 0);

        if (row != NULL && row->ratio > 0) {
            put_cost(out, row, i, y);
            y += LINE;
        }
    }
    if (y <= top + 36) {
        return top;
    }
    plot_text(out, PLOT_LEFT, top + 12, "font-size=\"16\" font-weight=\"bold\"",
              "What a dependency and a launch cost: time over the yardstick's (dashed; "
              "shorter is better)");
    plot_line(out, LINE_LEFT + LINE_PIXELS, top + 28, LINE_LEFT + LINE_PIXELS, y - 6,
              "stroke=\"#333\" stroke-dasharray=\"6 4\"");
    return y + 16;
}
