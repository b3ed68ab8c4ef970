/*
 * Record and replay: a step is recorded once and launched a thousand times, each by one small message.
 *
 * Heat spreads along a rod, from array a to array b and back. The step is recorded once, from a to
 * b; every other launch binds the two the other way round. What is made and let go of in the
 * recording is a temporary: memory of the graph. For the second half the strength, a scalar of the
 * recorded calls, is another. The same steps are then submitted one by one, and the bits compared.
 */
#include <plasmon/plasmon.h>
#include <string.h>

#include "example.h"

enum {
    CELLS       = 512,
    STEPS       = 1000,
    CALL_SPREAD = 3 /* number of the call in the recording whose scalar is the strength */
};
#define EARLY 0.25
#define LATE  0.125

static struct plasmon_ref *part(struct plasmon_client *px, struct plasmon_ref *ref,
                                int64_t start)
{
    const int64_t count = CELLS - 2;
    struct plasmon_ref *view;

    example_need(px, plasmon_view(px, ref, &start, &count, NULL, &view), "view");
    return view;
}

/* to := from, and then, but at the ends, += strength * (left - 2 self + right). */
static void step(struct plasmon_client *px, struct plasmon_ref *from,
                 struct plasmon_ref *to, double strength)
{
    struct plasmon_ref *left   = part(px, from, 0);
    struct plasmon_ref *self   = part(px, from, 1);
    struct plasmon_ref *right  = part(px, from, 2);
    struct plasmon_ref *inside = part(px, to, 1);
    struct plasmon_ref *flow;

    example_submit(px, "add",
                   EXAMPLE_ARGS(example_out(NULL), example_in(left), example_in(right)),
                   EXAMPLE_NONE, PLASMON_ANYWHERE, &flow);
    example_submit(px, "axpy", EXAMPLE_ARGS(example_inout(flow), example_in(self)),
                   EXAMPLE_SCALARS({.f = -2.0}), PLASMON_ANYWHERE, NULL);
    example_submit(px, "copy", EXAMPLE_ARGS(example_out(to), example_in(from)),
                   EXAMPLE_NONE, PLASMON_ANYWHERE, NULL);
    example_submit(px, "axpy", EXAMPLE_ARGS(example_inout(inside), example_in(flow)),
                   EXAMPLE_SCALARS({.f = strength}), PLASMON_ANYWHERE,
                   NULL); /* CALL_SPREAD */
    example_release(px, left);
    example_release(px, self);
    example_release(px, right);
    example_release(px, inside);
    example_release(px, flow); /* in a recording: a temporary of each launch */
}

static struct plasmon_ref *rod(struct plasmon_client *px)
{
    const struct plasmon_shape shape   = {PLASMON_F32, 1, {CELLS}};
    struct plasmon_put_options options = PLASMON_PUT_INIT;
    float cells[CELLS]                 = {0};
    struct plasmon_ref *ref;

    cells[CELLS / 2]  = 1000;
    options.donatable = 1; /* it is written in place: a launch finds it where it was */
    example_need(px, plasmon_put(px, cells, &shape, &options, &ref), "put");
    return ref;
}

static double replayed(struct plasmon_client *px, struct plasmon_ref *a,
                       struct plasmon_ref *b, float *out)
{
    const struct plasmon_graph_binding turn[] = {{a, b}, {b, a}};
    const struct plasmon_graph_scalar late    = {.call = CALL_SPREAD, .value = {.f = LATE}};
    struct plasmon_graph *graph;
    double begin;

    example_need(px, plasmon_graph_begin(px, &graph), "begin to record");
    step(px, a, b, EARLY);
    example_need(px, plasmon_graph_end(px, graph), "end the recording");
    begin = example_seconds();
    for (int i = 0; i < STEPS; i++) {
        example_need(px,
                     plasmon_graph_launch(px, graph, turn, i % 2 == 1 ? 2 : 0, &late,
                                          i >= STEPS / 2 ? 1 : 0, NULL),
                     "launch");
    }
    example_need(px, plasmon_get(px, a, out, CELLS * sizeof(float), PLASMON_FOREVER),
                 "get");
    example_need(px, plasmon_graph_release(px, graph), "release the graph");
    return example_seconds() - begin;
}

static double submitted(struct plasmon_client *px, struct plasmon_ref *a,
                        struct plasmon_ref *b, float *out)
{
    double begin = example_seconds();

    for (int i = 0; i < STEPS; i++) {
        step(px, i % 2 == 0 ? a : b, i % 2 == 0 ? b : a, i < STEPS / 2 ? EARLY : LATE);
    }
    example_need(px, plasmon_get(px, a, out, CELLS * sizeof(float), PLASMON_FOREVER),
                 "get");
    return example_seconds() - begin;
}

int main(void)
{
    struct plasmon_client *px;
    float by_graph[CELLS], by_call[CELLS];
    double graph_seconds, call_seconds;

    example_need(NULL, plasmon_init(NULL, &px), "start");
    graph_seconds = replayed(px, rod(px), rod(px), by_graph);
    call_seconds  = submitted(px, rod(px), rod(px), by_call);
    plasmon_finish(px);

    printf("%d steps of 4 calls: launched %.1f us each, submitted %.1f us each\n", STEPS,
           graph_seconds / STEPS * 1e6, call_seconds / STEPS * 1e6);
    printf("middle of the rod: %.6f\n", (double)by_graph[CELLS / 2]);
    if (memcmp(by_graph, by_call, sizeof(by_graph)) != 0) {
        example_die("the two differ");
    }
    printf("the same bits\n");
    return 0;
}
