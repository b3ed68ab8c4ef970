/* Calls of a random program: each kind picks a function, and arguments that fit it. */
#include "tests/sim/graph_int.h"

static double small_number(struct graph *graph)
{
    return (double)((int64_t)graph_draw(graph, 17) - 8) * 0.3;
}

/* First argument: through a view of some array, or (OUT only) a new one. Gives the shape of the call. */
static bool add_first(struct graph *graph, struct graph_step *step, uint32_t mode,
                      struct pl_shape *out_shape)
{
    struct graph_arg arg;
    struct pl_view view;
    bool nested;
    uint32_t ref;

    if (!graph_pick_ref(graph, step->client, &ref)) {
        return false;
    }
    if (mode == KERNEL_OUT && graph_has_room(graph) && graph_chance(graph, 250)) {
        *out_shape =
            graph_random_shape(graph, graph->refs[ref].shape.ndim, graph->refs[ref].dtype);
        graph_add_fresh(graph, step, out_shape);
        return true;
    }
    view = graph_any_view(graph, &graph->refs[ref], &nested);
    if (!graph_arg_make(graph, ref, mode, &view, nested, &arg)) {
        return false;
    }
    graph_arg_commit(graph, step, &arg);
    *out_shape = pl_view_shape(&view, graph->refs[ref].dtype);
    return true;
}

static bool make_source(struct graph *graph, struct graph_step *step)
{
    struct pl_shape shape;

    if (!add_first(graph, step, KERNEL_OUT, &shape)) {
        return false;
    }
    switch (graph_draw(graph, 3)) {
    case 0:
        step->function     = "fill";
        step->scalars[0].f = small_number(graph);
        step->scalar_count = 1;
        return true;
    case 1:
        step->function     = "arange";
        step->scalars[0].f = small_number(graph);
        step->scalars[1].f = small_number(graph);
        step->scalar_count = 2;
        return true;
    default:
        step->function     = "random_uniform";
        step->scalars[0].i = (int64_t)graph_draw(graph, 1000);
        step->scalars[1].i = (int64_t)graph_draw(graph, 1000);
        step->scalars[2].i = graph_chance(graph, 500) ? 0 : 100;
        step->scalars[3].f = -4.0;
        step->scalars[4].f = 4.0;
        step->scalar_count = 5;
        return true;
    }
}

static bool make_map(struct graph *graph, struct graph_step *step)
{
    static const char *const binary[] = {"add", "subtract", "minimum", "maximum"};
    struct pl_shape shape;

    if (!add_first(graph, step, KERNEL_OUT, &shape)) {
        return false;
    }
    switch (graph_draw(graph, 4)) {
    case 0:
        step->function = "copy";
        return graph_add_like(graph, step, KERNEL_IN, &shape, 0);
    case 1:
        step->function     = graph_chance(graph, 500) ? "multiply_scalar" : "add_scalar";
        step->scalars[0].f = small_number(graph);
        step->scalar_count = 1;
        return graph_add_like(graph, step, KERNEL_IN, &shape, 0);
    case 2:
        step->function = "cast";
        return graph_add_like(graph, step, KERNEL_IN, &shape, shape.dtype);
    default:
        step->function = binary[graph_draw(graph, PL_COUNT(binary))];
        return graph_add_like(graph, step, KERNEL_IN, &shape, 0) &&
               graph_add_like(graph, step, KERNEL_IN, &shape, 0);
    }
}

/* A sum over an axis, into a new array. */
static bool make_sum(struct graph *graph, struct graph_step *step)
{
    struct graph_arg input;
    struct pl_shape out;
    struct pl_view view;
    bool nested;
    uint32_t ref, axis, kept = 0;

    if (!graph_has_room(graph) || !graph_pick_ref(graph, step->client, &ref)) {
        return false;
    }
    view = graph_any_view(graph, &graph->refs[ref], &nested);
    if (!graph_arg_make(graph, ref, KERNEL_IN, &view, nested, &input)) {
        return false;
    }
    axis = (uint32_t)graph_draw(graph, view.ndim);
    out  = (struct pl_shape){.dtype = graph->refs[ref].dtype};
    for (uint32_t d = 0; d < view.ndim; d++) {
        if (d != axis) {
            out.dim[kept++] = view.count[d];
        }
    }
    out.ndim           = kept;
    step->function     = graph_chance(graph, 600) ? "sum" : "max";
    step->scalars[0].i = axis;
    step->scalars[1].i = 0;
    step->scalar_count = 2;
    graph_add_fresh(graph, step, &out);
    graph_arg_commit(graph, step, &input);
    return true;
}

static bool make_update(struct graph *graph, struct graph_step *step)
{
    struct pl_shape shape;

    if (!add_first(graph, step, KERNEL_INOUT, &shape)) {
        return false;
    }
    if (graph_chance(graph, 500)) {
        step->function     = "axpy";
        step->scalars[0].f = small_number(graph);
        step->scalar_count = 1;
    } else {
        step->function = "add_into";
    }
    return graph_add_like(graph, step, KERNEL_IN, &shape, 0);
}

/* In place, by way of working memory of the task's own. */
static bool make_sort(struct graph *graph, struct graph_step *step)
{
    struct pl_shape shape;

    step->function = "sort_into";
    if (!graph_has_room(graph) || !add_first(graph, step, KERNEL_INOUT, &shape)) {
        return false;
    }
    graph_add_scratch(graph, step, &shape);
    return true;
}

static bool make_reduce(struct graph *graph, struct graph_step *step)
{
    struct pl_shape shape;
    uint32_t op = KERNEL_SUM;

    if (!add_first(graph, step, KERNEL_REDUCE, &shape)) {
        return false;
    }
    switch (graph_draw(graph, 4)) {
    case 0:
        step->function     = "axpy";
        step->scalars[0].f = small_number(graph);
        step->scalar_count = 1;
        break;
    case 1:
        step->function = "add_into";
        break;
    default:
        step->function = "accumulate";
        op             = (uint32_t)graph_between(graph, KERNEL_SUM, KERNEL_MAX);
        break;
    }
    step->args[0].reduce_op = op;
    return graph_add_like(graph, step, KERNEL_IN, &shape, 0);
}

static bool make_touch(struct graph *graph, struct graph_step *step)
{
    struct pl_shape shape;
    uint64_t more = graph_draw(graph, 3);

    step->function = "touch";
    if (!add_first(graph, step, KERNEL_IN, &shape)) {
        return false;
    }
    for (uint64_t i = 0; i < more; i++) {
        (void)graph_add_like(graph, step, KERNEL_IN, &shape, 0);
    }
    return true;
}

static bool make_failing(struct graph *graph, struct graph_step *step)
{
    struct pl_shape shape;

    step->function     = "test_fail";
    step->scalars[0].i = 7;
    step->scalar_count = 1;
    return add_first(graph, step, KERNEL_OUT, &shape);
}

typedef bool (*make_fn)(struct graph *graph, struct graph_step *step);

bool graph_make_call(struct graph *graph, struct graph_step *step)
{
    static const struct {
        make_fn fn;
        uint32_t weight;
    } makers[]    = {{make_source, 14}, {make_map, 26}, {make_sum, 6},   {make_update, 26},
                     {make_reduce, 20}, {make_sort, 6}, {make_touch, 6}, {make_failing, 3}};
    uint64_t roll = graph_draw(graph, 107);
    uint32_t i    = 0;

    while (roll >= makers[i].weight && i + 1 < PL_COUNT(makers)) {
        roll -= makers[i].weight;
        i++;
    }
    if (graph->replays && makers[i].fn == make_failing) {
        i = 0; /* a launch fails as a whole, which the model does not know */
    }
    step->place = graph_chance(graph, 650)
                      ? (uint32_t)graph_between(graph, 1, graph->config.devices)
                      : 0;
    return makers[i].fn(graph, step);
}
