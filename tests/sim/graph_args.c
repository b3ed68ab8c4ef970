/*
 * Arguments of random programs: refs, views of them, and views that fit together.
 *
 * Views are made dimension by dimension, always inside the array. One argument decides the shape of
 * a call; the others are views of just that shape, in other arrays or in parts of the same one that
 * do not meet what the call writes.
 */
#include "tests/sim/graph_int.h"

#include <string.h>

#include "tests/harness/test.h"

uint64_t graph_draw(struct graph *graph, uint64_t bound)
{
    return test_random(&graph->random) % bound;
}

bool graph_chance(struct graph *graph, uint64_t permille)
{
    return graph_draw(graph, 1000) < permille;
}

uint64_t graph_between(struct graph *graph, uint64_t low, uint64_t high)
{
    return low + graph_draw(graph, high - low + 1);
}

/* --------------------------------------------------------------------------------- refs */

static const int64_t dim_max[PL_DIM_MAX + 1] = {0, 120, 13, 7, 5};

struct pl_shape graph_random_shape(struct graph *graph, uint32_t ndim, uint32_t dtype)
{
    struct pl_shape shape = {.dtype = dtype, .ndim = ndim};

    for (uint32_t d = 0; d < ndim; d++) {
        shape.dim[d] =
            (int64_t)graph_between(graph, ndim == 1 ? 4 : 2, (uint64_t)dim_max[ndim]);
    }
    return shape;
}

uint32_t graph_ref_add(struct graph *graph, uint32_t client, const struct pl_shape *root,
                       const struct pl_view *base)
{
    struct graph_ref *ref = &graph->refs[graph->ref_count];

    PL_CHECK(graph->ref_count < GRAPH_REFS_MAX);
    *ref       = (struct graph_ref){.client  = client,
                                    .dtype   = root->dtype,
                                    .root    = *root,
                                    .base    = base != NULL ? *base : pl_view_whole(root),
                                    .made_by = graph->step_count};
    ref->shape = pl_view_shape(&ref->base, root->dtype);
    return graph->ref_count++;
}

bool graph_has_room(const struct graph *graph)
{
    return graph->ref_count + 4 < GRAPH_REFS_MAX;
}

/* -------------------------------------------------------------------------------- views */

static struct pl_view dense_view(struct graph *graph, const struct pl_shape *shape)
{
    struct pl_view view = {.ndim = shape->ndim};

    for (uint32_t d = 0; d < shape->ndim; d++) {
        view.count[d] = (int64_t)graph_between(graph, 1, (uint64_t)shape->dim[d]);
        view.start[d] =
            (int64_t)graph_draw(graph, (uint64_t)(shape->dim[d] - view.count[d] + 1));
        view.step[d] = 1;
    }
    return view;
}

static struct pl_view strided_view(struct graph *graph, const struct pl_shape *shape)
{
    struct pl_view view = {.ndim = shape->ndim};

    for (uint32_t d = 0; d < shape->ndim; d++) {
        int64_t most;

        view.step[d]  = (int64_t)graph_between(graph, 1, 3);
        most          = (shape->dim[d] - 1) / view.step[d] + 1;
        view.count[d] = (int64_t)graph_between(graph, most > 1 ? 2 : 1, (uint64_t)most);
        view.start[d] = (int64_t)graph_draw(
            graph, (uint64_t)(shape->dim[d] - (view.count[d] - 1) * view.step[d]));
    }
    return view;
}

static bool is_whole(const struct pl_view *view, const struct pl_shape *shape)
{
    struct pl_view whole = pl_view_whole(shape);

    for (uint32_t d = 0; d < shape->ndim; d++) {
        if (view->start[d] != 0 || view->count[d] != whole.count[d]) {
            return false;
        }
    }
    return true;
}

static bool to_root(const struct graph_ref *ref, const struct pl_view *view,
                    struct pl_view *out)
{
    struct pl_err err = {0};

    return pl_view_compose(&ref->base, view, out, &err) == PLASMON_OK;
}

/*
 * What the view is, whatever it was meant to be. One that overlaps the last access is dense or
 * strided, too: counted as either.
 */
static enum graph_view_kind classify(const struct graph_ref *ref,
                                     const struct pl_view *view, const struct pl_view *root,
                                     bool nested, bool overlap)
{
    struct pl_box hull = pl_view_hull(root);

    if (is_whole(view, &ref->shape)) {
        return GRAPH_WHOLE;
    }
    if (nested) {
        return GRAPH_NESTED;
    }
    if (overlap && ref->accessed && pl_box_intersects(&hull, &ref->last) &&
        !pl_box_equal(&hull, &ref->last)) {
        return GRAPH_OVERLAPPING;
    }
    return pl_view_dense(view) ? GRAPH_DENSE : GRAPH_STRIDED;
}

/* A view of the ref, of some kind. */
struct pl_view graph_any_view(struct graph *graph, const struct graph_ref *ref,
                              bool *out_nested)
{
    struct pl_view outer, inner, view;
    struct pl_shape shown;
    struct pl_err err = {0};

    *out_nested = false;
    switch (ref->shape.ndim == 0 ? 0 : graph_draw(graph, 4)) {
    case 0:
        return pl_view_whole(&ref->shape);
    case 1:
        return dense_view(graph, &ref->shape);
    case 2:
        return strided_view(graph, &ref->shape);
    default:
        outer = graph_chance(graph, 500) ? dense_view(graph, &ref->shape)
                                         : strided_view(graph, &ref->shape);
        shown = pl_view_shape(&outer, ref->dtype);
        inner = graph_chance(graph, 500) ? dense_view(graph, &shown)
                                         : strided_view(graph, &shown);
        PL_CHECK(pl_view_compose(&outer, &inner, &view, &err) == PLASMON_OK);
        *out_nested = true;
        return view;
    }
}

/* A view of the ref with just this shape. */
static bool view_of_shape(struct graph *graph, const struct graph_ref *ref,
                          const struct pl_shape *shape, struct pl_view *out)
{
    if (ref->shape.ndim != shape->ndim) {
        return false;
    }
    out->ndim = shape->ndim;
    for (uint32_t d = 0; d < shape->ndim; d++) {
        int64_t count = shape->dim[d];
        int64_t most  = 1;

        if (count > ref->shape.dim[d]) {
            return false;
        }
        if (count > 1) {
            most = (ref->shape.dim[d] - 1) / (count - 1);
            most = most > 3 ? 3 : most;
        }
        out->count[d] = count;
        out->step[d]  = (int64_t)graph_between(graph, 1, (uint64_t)most);
        out->start[d] = (int64_t)graph_draw(
            graph, (uint64_t)(ref->shape.dim[d] - (count - 1) * out->step[d]));
    }
    return true;
}

/* ---------------------------------------------------------------------------- arguments */

static bool writes(uint32_t mode)
{
    return mode == KERNEL_OUT || mode == KERNEL_INOUT;
}

/* The head refuses a call whose arguments meet when one of them is written. */
static bool meets_others(const struct graph_step *step, const struct graph_arg *arg)
{
    struct pl_box hull = pl_view_hull(&arg->root);

    for (uint32_t i = 0; i < step->arg_count; i++) {
        const struct graph_arg *other = &step->args[i];
        struct pl_box box             = pl_view_hull(&other->root);

        if (other->ref == arg->ref && arg->mode != KERNEL_REDUCE &&
            other->mode != KERNEL_REDUCE && (writes(arg->mode) || writes(other->mode)) &&
            pl_box_intersects(&hull, &box)) {
            return true;
        }
    }
    return false;
}

void graph_arg_commit(struct graph *graph, struct graph_step *step,
                      const struct graph_arg *arg)
{
    PL_CHECK(step->arg_count < SIM_ARGS_MAX);
    step->args[step->arg_count++]  = *arg;
    graph->refs[arg->ref].accessed = true;
    graph->refs[arg->ref].last     = pl_view_hull(&arg->root);
}

bool graph_arg_make(struct graph *graph, uint32_t ref, uint32_t mode,
                    const struct pl_view *view, bool nested, struct graph_arg *out)
{
    *out = (struct graph_arg){.mode = mode, .ref = ref, .view = *view};
    if (!to_root(&graph->refs[ref], view, &out->root)) {
        return false;
    }
    out->kind =
        classify(&graph->refs[ref], view, &out->root, nested, graph_chance(graph, 350));
    return true;
}

static bool usable(const struct graph *graph, uint32_t ref, uint32_t client)
{
    return !graph->refs[ref].released && graph->refs[ref].client == client;
}

bool graph_pick_ref(struct graph *graph, uint32_t client, uint32_t *out_ref)
{
    for (int i = 0; i < 30 && graph->ref_count > 0; i++) {
        uint32_t ref = (uint32_t)graph_draw(graph, graph->ref_count);

        if (usable(graph, ref, client) && graph->refs[ref].shape.ndim > 0) {
            *out_ref = ref;
            return true;
        }
    }
    return false;
}

/* An argument of that shape and dtype; dtype 0: not `not_dtype`. */
bool graph_add_like(struct graph *graph, struct graph_step *step, uint32_t mode,
                    const struct pl_shape *shape, uint32_t not_dtype)
{
    for (int i = 0; i < 24; i++) {
        uint32_t ref = (uint32_t)graph_draw(graph, graph->ref_count);
        struct graph_arg arg;
        struct pl_view view;

        if (!usable(graph, ref, step->client) ||
            (not_dtype != 0 ? graph->refs[ref].dtype == not_dtype
                            : graph->refs[ref].dtype != shape->dtype) ||
            !view_of_shape(graph, &graph->refs[ref], shape, &view) ||
            !graph_arg_make(graph, ref, mode, &view, graph_chance(graph, 250), &arg) ||
            meets_others(step, &arg)) {
            continue;
        }
        graph_arg_commit(graph, step, &arg);
        return true;
    }
    return false;
}

void graph_add_fresh(struct graph *graph, struct graph_step *step,
                     const struct pl_shape *shape)
{
    struct pl_view view  = pl_view_whole(shape);
    uint32_t ref         = graph_ref_add(graph, step->client, shape, NULL);
    struct graph_arg arg = {
        .mode = KERNEL_OUT, .ref = ref, .fresh = true, .view = view, .root = view};

    graph->refs[ref].made_by = graph->step_count - 1;
    graph_arg_commit(graph, step, &arg);
}

void graph_add_scratch(struct graph *graph, struct graph_step *step,
                       const struct pl_shape *shape)
{
    struct graph_arg *arg;

    graph_add_fresh(graph, step, shape);
    arg                            = &step->args[step->arg_count - 1];
    arg->mode                      = KERNEL_SCRATCH;
    graph->refs[arg->ref].released = true; /* it never was a ref: nobody else can name it */
}
