/*
 * A timeline as one SVG picture: a band a device, a lane a stream, time from left to right.
 *
 * Functions have colours, those with most time first; what has none of its own is grey. Transfers
 * are hatched, in one colour a kind. A launch is at least half a pixel wide, and neighbours of one
 * colour that would be narrower than a pixel apart are drawn as one piece, so a picture of a
 * million launches is still one of a few thousand pieces. The share of time in which a device
 * computes is beside its name.
 */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "client/trace.h"

enum {
    WIDTH      = 1480,
    LEFT       = 250,
    RIGHT      = 30,
    TOP        = 70,
    LANE       = 24,
    BAR        = 18,
    BAND_GAP   = 22,
    LEGEND_ROW = 22,
    COLOURS    = 12,
    KINDS      = 6,
    LANES_MAX  = 64, /* of a device */
};

/* Told apart by most people; transfers have the last ones to themselves. */
static const char *const palette[COLOURS]    = {"#3b7dd8", "#e08a2b", "#4aa564", "#c0504d",
                                                "#8064a2", "#2fa7a7", "#b5a132", "#d46fa8",
                                                "#6d8f3f", "#7f6a56", "#5b6fb5", "#a85f2b"};
static const char *const kind_colours[KINDS] = {"#9aa3ad", "#46607a", "#7a4646",
                                                "#467a56", "#6b5b7a", "#7a6f46"};

struct colour {
    const char *function;
    uint64_t ns;
};

struct plot {
    const struct trace_view *view;
    FILE *out;
    struct pl_vec functions; /* struct colour, most time first */
    bool kinds[KINDS];       /* there are transfers of this kind */
    double scale;            /* pixels a nanosecond */
};

/* ------------------------------------------------------------------------------ helpers */

static void escape(FILE *out, const char *text, size_t max)
{
    for (size_t i = 0; text[i] != '\0' && i < max; i++) {
        switch (text[i]) {
        case '<':
            (void)fputs("&lt;", out);
            break;
        case '>':
            (void)fputs("&gt;", out);
            break;
        case '&':
            (void)fputs("&amp;", out);
            break;
        case '"':
            (void)fputs("&quot;", out);
            break;
        default:
            (void)fputc((unsigned char)text[i] < ' ' ? ' ' : text[i], out);
            break;
        }
    }
}

static void format_ns(double ns, char out[32])
{
    const char *unit = "ns";
    double value     = ns;

    if (ns == 0) {
        (void)snprintf(out, 32, "0");
        return;
    }
    if (ns >= 1e9) {
        value = ns / 1e9;
        unit  = "s";
    } else if (ns >= 1e6) {
        value = ns / 1e6;
        unit  = "ms";
    } else if (ns >= 1e3) {
        value = ns / 1e3;
        unit  = "us";
    }
    (void)snprintf(out, 32, "%.4g %s", value, unit);
}

static double x_of(const struct plot *plot, uint64_t ns)
{
    return LEFT + (double)(ns - plot->view->begin_ns) * plot->scale;
}

/* ------------------------------------------------------------------------------ colours */

static int compare_colours(const void *a, const void *b)
{
    const struct colour *x = a;
    const struct colour *y = b;

    return x->ns != y->ns ? (x->ns < y->ns) - (x->ns > y->ns)
                          : strcmp(x->function, y->function);
}

/* Names are kept once, so pointers tell them apart. */
static void functions_collect(struct plot *plot)
{
    for (size_t i = 0; i < plot->view->count; i++) {
        const struct plasmon_span *span = &plot->view->spans[i];
        struct colour *found            = NULL;

        if (span->kind != PLASMON_SPAN_RUN) {
            plot->kinds[span->kind % KINDS] = true;
            continue;
        }
        for (size_t k = 0; k < plot->functions.count && found == NULL; k++) {
            struct colour *colour = pl_vec_at(&plot->functions, k);

            found = colour->function == span->function ? colour : NULL;
        }
        if (found == NULL) {
            found = pl_vec_push(&plot->functions);
            if (found == NULL) {
                continue; /* grey */
            }
            *found = (struct colour){.function = span->function};
        }
        found->ns += span->end_ns - span->begin_ns;
    }
    if (plot->functions.count > 1) {
        qsort(plot->functions.items, plot->functions.count, sizeof(struct colour),
              compare_colours);
    }
}

/* COLOURS: it has none of its own. */
static size_t colour_of(const struct plot *plot, const char *function)
{
    for (size_t i = 0; i < plot->functions.count && i < COLOURS; i++) {
        const struct colour *colour = pl_vec_at(&plot->functions, i);

        if (colour->function == function) {
            return i;
        }
    }
    return COLOURS;
}

static void fill_of(const struct plot *plot, const struct plasmon_span *span, char out[24])
{
    size_t colour;

    if (span->kind != PLASMON_SPAN_RUN) {
        (void)snprintf(out, 24, "url(#k%u)", span->kind % KINDS);
        return;
    }
    colour = colour_of(plot, span->function);
    (void)snprintf(out, 24, "%s", colour < COLOURS ? palette[colour] : kind_colours[0]);
}

/* -------------------------------------------------------------------------------- lanes */

/* Which lane a stream has: its rank among the streams that were used. */
static unsigned lanes_of(const struct plot *plot, uint32_t device, int lane_of[LANES_MAX])
{
    unsigned count = 0;

    for (unsigned i = 0; i < LANES_MAX; i++) {
        lane_of[i] = -1;
    }
    for (size_t i = 0; i < plot->view->count; i++) {
        const struct plasmon_span *span = &plot->view->spans[i];

        if (span->device == device && span->stream < LANES_MAX) {
            lane_of[span->stream] = 0;
        }
    }
    for (unsigned i = 0; i < LANES_MAX; i++) {
        if (lane_of[i] >= 0) {
            lane_of[i] = (int)count++;
        }
    }
    return count;
}

/* A piece of a lane that is not drawn yet. */
struct piece {
    double from;
    double to;
    char fill[24];
    const struct plasmon_span *only; /* NULL: several launches */
};

static void piece_draw(const struct plot *plot, const struct piece *piece, double y)
{
    double width = piece->to - piece->from;

    if (piece->fill[0] == '\0') {
        return;
    }
    width = width < 0.5 ? 0.5 : width;
    (void)fprintf(plot->out,
                  "<rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%d\" fill=\"%s\"%s>",
                  piece->from, y, width, BAR, piece->fill,
                  width > 4 ? " stroke=\"#ffffff\" stroke-width=\"0.5\"" : "");
    if (piece->only != NULL) {
        char took[32];

        format_ns((double)(piece->only->end_ns - piece->only->begin_ns), took);
        (void)fputs("<title>", plot->out);
        escape(plot->out, piece->only->function, 64);
        (void)fprintf(plot->out, " ");
        escape(plot->out, piece->only->label, 64);
        (void)fprintf(plot->out, " %s, %llu bytes</title>", took,
                      (unsigned long long)piece->only->bytes);
    }
    (void)fputs("</rect>\n", plot->out);
    if (piece->only != NULL && width > 46 && piece->only->kind == PLASMON_SPAN_RUN) {
        const char *name =
            piece->only->label[0] != '\0' ? piece->only->label : piece->only->function;

        (void)fprintf(plot->out, "<text x=\"%.1f\" y=\"%.1f\" class=\"in\">",
                      piece->from + 4, y + 13);
        escape(plot->out, name, (size_t)(width / 6.5));
        (void)fputs("</text>\n", plot->out);
    }
}

static void lane_draw(const struct plot *plot, uint32_t device, uint32_t stream, double y)
{
    struct piece piece = {.fill = ""};

    for (size_t i = 0; i < plot->view->count; i++) {
        const struct plasmon_span *span = &plot->view->spans[i];
        struct piece next               = {.only = span};

        if (span->device != device || span->stream != stream) {
            continue;
        }
        next.from = x_of(plot, span->begin_ns);
        next.to   = x_of(plot, span->end_ns);
        fill_of(plot, span, next.fill);
        if (strcmp(next.fill, piece.fill) == 0 && next.from - piece.to < 0.3 &&
            (next.to - next.from < 1 || piece.to - piece.from < 1)) {
            piece.to   = next.to > piece.to ? next.to : piece.to;
            piece.only = NULL;
            continue;
        }
        piece_draw(plot, &piece, y);
        piece = next;
    }
    piece_draw(plot, &piece, y);
}

/* Share of the time in which some function runs; spans are in the order of their begin. */
static double busy_share(const struct plot *plot, uint32_t device)
{
    const struct trace_view *view = plot->view;
    uint64_t until = 0, busy = 0;

    for (size_t i = 0; i < view->count; i++) {
        const struct plasmon_span *span = &view->spans[i];

        if (span->device != device || span->kind != PLASMON_SPAN_RUN ||
            span->end_ns <= until) {
            continue;
        }
        busy += span->end_ns - pl_max_u64(span->begin_ns, until);
        until = span->end_ns;
    }
    return view->end_ns > view->begin_ns
               ? (double)busy / (double)(view->end_ns - view->begin_ns)
               : 0;
}

static double device_draw(const struct plot *plot, uint32_t device, double y)
{
    const struct plasmon_device_info *info = &plot->view->devices[device];
    int lane_of[LANES_MAX];
    unsigned lanes = lanes_of(plot, device, lane_of);

    if (lanes == 0) {
        return y;
    }
    (void)fprintf(
        plot->out,
        "<rect x=\"10\" y=\"%.1f\" width=\"%d\" height=\"%u\" fill=\"#f4f6f8\"/>\n"
        "<text x=\"18\" y=\"%.1f\" class=\"device\">device %u</text>\n"
        "<text x=\"18\" y=\"%.1f\" class=\"small\">",
        y - 4, WIDTH - 20, lanes * LANE + 8, y + 14, device, y + 30);
    escape(plot->out, info->name, 22);
    (void)fprintf(plot->out, "</text>\n<text x=\"18\" y=\"%.1f\" class=\"small\">", y + 45);
    if (lanes > 1) {
        (void)fprintf(plot->out, "computes %.0f%% of the time",
                      100 * busy_share(plot, device));
    }
    (void)fputs("</text>\n", plot->out);
    for (uint32_t stream = 0; stream < LANES_MAX; stream++) {
        double lane_y = y + lane_of[stream] * LANE;
        char name[32];

        if (lane_of[stream] < 0) {
            continue;
        }
        (void)fprintf(
            plot->out,
            "<text x=\"%d\" y=\"%.1f\" class=\"lane\">%s</text>\n"
            "<line x1=\"%d\" y1=\"%.1f\" x2=\"%d\" y2=\"%.1f\" stroke=\"#dde2e7\"/>\n",
            LEFT - 10, lane_y + 17, trace_stream_name(plot->view, device, stream, name),
            LEFT, lane_y + 22, WIDTH - RIGHT, lane_y + 22);
        lane_draw(plot, device, stream, lane_y + 3);
    }
    return y + lanes * LANE + BAND_GAP;
}

/* -------------------------------------------------------------------------------- frame */

static double lanes_height(const struct plot *plot)
{
    double height = 0;
    int lane_of[LANES_MAX];

    for (uint32_t i = 0; i < plot->view->device_count; i++) {
        unsigned lanes = lanes_of(plot, i, lane_of);

        height += lanes == 0 ? 0 : lanes * LANE + BAND_GAP;
    }
    return height;
}

/* 1, 2 or 5 times a power of ten, so that there are about ten of them. */
static double tick_step(double range)
{
    double step = 1;

    while (step * 10 <= range / 5) {
        step *= 10;
    }
    while (range / step > 12) {
        step *= range / (step * 2) <= 12 ? 2 : range / (step * 5) <= 12 ? 5 : 10;
    }
    return step;
}

static void axis_draw(const struct plot *plot, double height)
{
    double range = (double)(plot->view->end_ns - plot->view->begin_ns);
    double step  = tick_step(range);

    for (double at = 0; at <= range; at += step) {
        double x = LEFT + at * plot->scale;
        char text[32];

        format_ns(at, text);
        (void)fprintf(
            plot->out,
            "<line x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#c8ced4\" "
            "stroke-dasharray=\"2,3\"/>\n"
            "<text x=\"%.1f\" y=\"%d\" class=\"tick\">%s</text>\n",
            x, TOP - 8, x, TOP + height - BAND_GAP + 6, x, TOP - 14, text);
    }
}

static void patterns_draw(const struct plot *plot)
{
    (void)fputs("<defs>\n", plot->out);
    for (unsigned i = 1; i < KINDS; i++) {
        (void)fprintf(
            plot->out,
            "<pattern id=\"k%u\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" "
            "patternTransform=\"rotate(45)\"><rect width=\"6\" height=\"6\" "
            "fill=\"%s\"/><rect width=\"2.4\" height=\"6\" fill=\"#ffffff\" "
            "fill-opacity=\"0.55\"/></pattern>\n",
            i, kind_colours[i]);
    }
    (void)fputs("</defs>\n", plot->out);
}

static void legend_entry(const struct plot *plot, double *io_x, double *io_y,
                         const char *fill, const char *name, const char *what)
{
    double width = 30 + 7.2 * (double)(strlen(name) + strlen(what));

    if (*io_x + width > WIDTH - RIGHT) {
        *io_x = LEFT;
        *io_y += LEGEND_ROW;
    }
    (void)fprintf(plot->out,
                  "<rect x=\"%.1f\" y=\"%.1f\" width=\"14\" height=\"14\" fill=\"%s\"/>"
                  "<text x=\"%.1f\" y=\"%.1f\" class=\"key\">",
                  *io_x, *io_y, fill, *io_x + 19, *io_y + 12);
    escape(plot->out, name, 48);
    escape(plot->out, what, 48);
    (void)fputs("</text>\n", plot->out);
    *io_x += width;
}

static void legend_draw(const struct plot *plot, double y)
{
    static const char *const transfers[KINDS] = {
        "", "copy", "send (host route)", "receive (host route)", "put", "read"};
    double x = LEFT;

    for (size_t i = 0; i < plot->functions.count && i < COLOURS; i++) {
        const struct colour *colour = pl_vec_at(&plot->functions, i);
        char took[32], what[48];

        format_ns((double)colour->ns, took);
        (void)snprintf(what, sizeof(what), " %s", took);
        legend_entry(plot, &x, &y, palette[i], colour->function, what);
    }
    if (plot->functions.count > COLOURS) {
        legend_entry(plot, &x, &y, kind_colours[0], "other functions", "");
    }
    for (unsigned i = 1; i < KINDS; i++) {
        char fill[24];

        if (plot->kinds[i]) {
            (void)snprintf(fill, sizeof(fill), "url(#k%u)", i);
            legend_entry(plot, &x, &y, fill, transfers[i], "");
        }
    }
}

static void head_draw(const struct plot *plot, double height)
{
    const struct trace_view *view = plot->view;
    char took[32];

    format_ns((double)(view->end_ns - view->begin_ns), took);
    (void)fprintf(
        plot->out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%.0f\" "
        "viewBox=\"0 0 %d %.0f\" font-family=\"Helvetica, Arial, sans-serif\">\n"
        "<style>text{fill:#2b333b}.title{font-size:17px;font-weight:bold}"
        ".device{font-size:14px;font-weight:bold}.small{font-size:11px;fill:#66707a}"
        ".lane{font-size:12px;text-anchor:end}.tick{font-size:11px;text-anchor:middle;"
        "fill:#66707a}.in{font-size:11px;fill:#ffffff}.key{font-size:12px}</style>\n"
        "<rect width=\"%d\" height=\"%.0f\" fill=\"#ffffff\"/>\n"
        "<text x=\"18\" y=\"28\" class=\"title\">Timeline: %zu launches in %s</text>\n",
        WIDTH, height, WIDTH, height, WIDTH, height, view->count, took);
    if (view->dropped != 0) {
        (void)fprintf(plot->out,
                      "<text x=\"%d\" y=\"28\" class=\"small\" text-anchor=\"end\">%llu "
                      "launches were not recorded for want of room</text>\n",
                      WIDTH - RIGHT, (unsigned long long)view->dropped);
    }
}

void trace_write_svg(const struct trace_view *view, FILE *out)
{
    struct plot plot = {.view = view, .out = out, .functions = PL_VEC_INIT(struct colour)};
    double lanes = 0, y = TOP, range;

    functions_collect(&plot);
    range = (double)pl_max_u64(1, view->count == 0 ? 1 : view->end_ns - view->begin_ns);
    plot.scale = (WIDTH - LEFT - RIGHT) / range;
    lanes      = lanes_height(&plot);
    head_draw(&plot, TOP + lanes + 4 * LEGEND_ROW);
    if (view->count > 0) {
        patterns_draw(&plot);
        for (uint32_t i = 0; i < view->device_count; i++) {
            y = device_draw(&plot, i, y);
        }
        axis_draw(&plot, lanes);
        legend_draw(&plot, y);
    }
    (void)fputs("</svg>\n", out);
    pl_vec_finish(&plot.functions);
}
