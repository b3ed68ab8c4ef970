/*
 * A random program. It is complete before anything runs, so a seed names it, whatever the cluster does.
 *
 * Arrays of one program belong to a family (dimensions and mostly one dtype), so that views of one fit views of another. A task picks
 * its first argument and a view of it; the view's shape is the shape of the call, and other arguments are views of that shape,
 * found in other arrays or in parts of the same one that do not meet what the call writes.
 */
#include "tests/sim/graph.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "tests/harness/test.h"

static uint64_t draw(struct graph *graph, uint64_t bound)
{
    return test_random(&graph->random) % bound;
}

static bool chance(struct graph *graph, uint64_t permille)
{
    return draw(graph, 1000) < permille;
}

static uint64_t between(struct graph *graph, uint64_t low, uint64_t high)
{
    return low + draw(graph, high - low + 1);
}

/* ------------------------------------------------------------------------------------------ refs */

static const int64_t dim_max[PL_DIM_MAX + 1] = {0, 120, 13, 7, 5};

static struct pl_shape random_shape(struct graph *graph, uint32_t ndim, uint32_t dtype)
{
    struct pl_shape shape = {.dtype = dtype, .ndim = ndim};

    for (uint32_t d = 0; d < ndim; d++) {
        shape.dim[d] = (int64_t)between(graph, ndim == 1 ? 4 : 2, (uint64_t)dim_max[ndim]);
    }
    return shape;
}

static uint32_t ref_add(struct graph *graph, uint32_t client, const struct pl_shape *root,
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

static bool room_for_refs(const struct graph *graph)
{
    return graph->ref_count + 4 < GRAPH_REFS_MAX;
}

static struct graph_step *step_add(struct graph *graph, enum graph_step_kind kind,
                                   uint32_t client)
{
    struct graph_step *step = &graph->steps[graph->step_count];

    PL_CHECK(graph->step_count < GRAPH_STEPS_MAX);
    graph->step_count++;
    step->kind   = kind;
    step->client = client;
    step->flush  = chance(graph, 300);
    if (chance(graph, 250)) {
        step->pause_ns = draw(graph, chance(graph, 200) ? 3000000 : 60000);
    }
    return step;
}

/* ------------------------------------------------------------------------------------------ views */

static struct pl_view dense_view(struct graph *graph, const struct pl_shape *shape)
{
    struct pl_view view = {.ndim = shape->ndim};

    for (uint32_t d = 0; d < shape->ndim; d++) {
        view.count[d] = (int64_t)between(graph, 1, (uint64_t)shape->dim[d]);
        view.start[d] = (int64_t)draw(graph, (uint64_t)(shape->dim[d] - view.count[d] + 1));
        view.step[d]  = 1;
    }
    return view;
}

static struct pl_view strided_view(struct graph *graph, const struct pl_shape *shape)
{
    struct pl_view view = {.ndim = shape->ndim};

    for (uint32_t d = 0; d < shape->ndim; d++) {
        int64_t most;

        view.step[d]  = (int64_t)between(graph, 1, 3);
        most          = (shape->dim[d] - 1) / view.step[d] + 1;
        view.count[d] = (int64_t)between(graph, most > 1 ? 2 : 1, (uint64_t)most);
        view.start[d] = (int64_t)draw(
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

/* What the view is, whatever it was meant to be. One that overlaps the last access is dense or strided, too: counted as either. */
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
static struct pl_view any_view(struct graph *graph, const struct graph_ref *ref,
                               bool *out_nested)
{
    struct pl_view outer, inner, view;
    struct pl_shape shown;
    struct pl_err err = {0};

    *out_nested = false;
    switch (ref->shape.ndim == 0 ? 0 : draw(graph, 4)) {
    case 0:
        return pl_view_whole(&ref->shape);
    case 1:
        return dense_view(graph, &ref->shape);
    case 2:
        return strided_view(graph, &ref->shape);
    default:
        outer = chance(graph, 500) ? dense_view(graph, &ref->shape)
                                   : strided_view(graph, &ref->shape);
        shown = pl_view_shape(&outer, ref->dtype);
        inner =
            chance(graph, 500) ? dense_view(graph, &shown) : strided_view(graph, &shown);
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
        out->step[d]  = (int64_t)between(graph, 1, (uint64_t)most);
        out->start[d] = (int64_t)draw(
            graph, (uint64_t)(ref->shape.dim[d] - (count - 1) * out->step[d]));
    }
    return true;
}

/* ------------------------------------------------------------------------------------------ arguments */

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

static void arg_commit(struct graph *graph, struct graph_step *step,
                       const struct graph_arg *arg)
{
    PL_CHECK(step->arg_count < SIM_ARGS_MAX);
    step->args[step->arg_count++]  = *arg;
    graph->refs[arg->ref].accessed = true;
    graph->refs[arg->ref].last     = pl_view_hull(&arg->root);
}

static bool arg_make(struct graph *graph, uint32_t ref, uint32_t mode,
                     const struct pl_view *view, bool nested, struct graph_arg *out)
{
    *out = (struct graph_arg){.mode = mode, .ref = ref, .view = *view};
    if (!to_root(&graph->refs[ref], view, &out->root)) {
        return false;
    }
    out->kind = classify(&graph->refs[ref], view, &out->root, nested, chance(graph, 350));
    return true;
}

static bool usable(const struct graph *graph, uint32_t ref, uint32_t client)
{
    return !graph->refs[ref].released && graph->refs[ref].client == client;
}

static bool pick_ref(struct graph *graph, uint32_t client, uint32_t *out_ref)
{
    for (int i = 0; i < 30 && graph->ref_count > 0; i++) {
        uint32_t ref = (uint32_t)draw(graph, graph->ref_count);

        if (usable(graph, ref, client) && graph->refs[ref].shape.ndim > 0) {
            *out_ref = ref;
            return true;
        }
    }
    return false;
}

/* An argument of that shape and dtype; dtype 0: not `not_dtype`. */
static bool add_like(struct graph *graph, struct graph_step *step, uint32_t mode,
                     const struct pl_shape *shape, uint32_t not_dtype)
{
    for (int i = 0; i < 24; i++) {
        uint32_t ref = (uint32_t)draw(graph, graph->ref_count);
        struct graph_arg arg;
        struct pl_view view;

        if (!usable(graph, ref, step->client) ||
            (not_dtype != 0 ? graph->refs[ref].dtype == not_dtype
                            : graph->refs[ref].dtype != shape->dtype) ||
            !view_of_shape(graph, &graph->refs[ref], shape, &view) ||
            !arg_make(graph, ref, mode, &view, chance(graph, 250), &arg) ||
            meets_others(step, &arg)) {
            continue;
        }
        arg_commit(graph, step, &arg);
        return true;
    }
    return false;
}

static void add_fresh(struct graph *graph, struct graph_step *step,
                      const struct pl_shape *shape)
{
    struct pl_view view  = pl_view_whole(shape);
    uint32_t ref         = ref_add(graph, step->client, shape, NULL);
    struct graph_arg arg = {
        .mode = KERNEL_OUT, .ref = ref, .fresh = true, .view = view, .root = view};

    graph->refs[ref].made_by = graph->step_count - 1;
    arg_commit(graph, step, &arg);
}

/* ------------------------------------------------------------------------------------------ calls */

static double small_number(struct graph *graph)
{
    return (double)((int64_t)draw(graph, 17) - 8) * 0.3;
}

/* First argument: through a view of some array, or (OUT only) a new one. Gives the shape of the call. */
static bool add_first(struct graph *graph, struct graph_step *step, uint32_t mode,
                      struct pl_shape *out_shape)
{
    struct graph_arg arg;
    struct pl_view view;
    bool nested;
    uint32_t ref;

    if (!pick_ref(graph, step->client, &ref)) {
        return false;
    }
    if (mode == KERNEL_OUT && room_for_refs(graph) && chance(graph, 250)) {
        *out_shape =
            random_shape(graph, graph->refs[ref].shape.ndim, graph->refs[ref].dtype);
        add_fresh(graph, step, out_shape);
        return true;
    }
    view = any_view(graph, &graph->refs[ref], &nested);
    if (!arg_make(graph, ref, mode, &view, nested, &arg)) {
        return false;
    }
    arg_commit(graph, step, &arg);
    *out_shape = pl_view_shape(&view, graph->refs[ref].dtype);
    return true;
}

static bool make_source(struct graph *graph, struct graph_step *step)
{
    struct pl_shape shape;

    if (!add_first(graph, step, KERNEL_OUT, &shape)) {
        return false;
    }
    switch (draw(graph, 3)) {
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
        step->scalars[0].i = (int64_t)draw(graph, 1000);
        step->scalars[1].i = (int64_t)draw(graph, 1000);
        step->scalars[2].i = chance(graph, 500) ? 0 : 100;
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
    switch (draw(graph, 4)) {
    case 0:
        step->function = "copy";
        return add_like(graph, step, KERNEL_IN, &shape, 0);
    case 1:
        step->function     = chance(graph, 500) ? "multiply_scalar" : "add_scalar";
        step->scalars[0].f = small_number(graph);
        step->scalar_count = 1;
        return add_like(graph, step, KERNEL_IN, &shape, 0);
    case 2:
        step->function = "cast";
        return add_like(graph, step, KERNEL_IN, &shape, shape.dtype);
    default:
        step->function = binary[draw(graph, PL_COUNT(binary))];
        return add_like(graph, step, KERNEL_IN, &shape, 0) &&
               add_like(graph, step, KERNEL_IN, &shape, 0);
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

    if (!room_for_refs(graph) || !pick_ref(graph, step->client, &ref)) {
        return false;
    }
    view = any_view(graph, &graph->refs[ref], &nested);
    if (!arg_make(graph, ref, KERNEL_IN, &view, nested, &input)) {
        return false;
    }
    axis = (uint32_t)draw(graph, view.ndim);
    out  = (struct pl_shape){.dtype = graph->refs[ref].dtype};
    for (uint32_t d = 0; d < view.ndim; d++) {
        if (d != axis) {
            out.dim[kept++] = view.count[d];
        }
    }
    out.ndim           = kept;
    step->function     = chance(graph, 600) ? "sum" : "max";
    step->scalars[0].i = axis;
    step->scalars[1].i = 0;
    step->scalar_count = 2;
    add_fresh(graph, step, &out);
    arg_commit(graph, step, &input);
    return true;
}

static bool make_update(struct graph *graph, struct graph_step *step)
{
    struct pl_shape shape;

    if (!add_first(graph, step, KERNEL_INOUT, &shape)) {
        return false;
    }
    if (chance(graph, 500)) {
        step->function     = "axpy";
        step->scalars[0].f = small_number(graph);
        step->scalar_count = 1;
    } else {
        step->function = "add_into";
    }
    return add_like(graph, step, KERNEL_IN, &shape, 0);
}

static bool make_reduce(struct graph *graph, struct graph_step *step)
{
    struct pl_shape shape;
    uint32_t op = KERNEL_SUM;

    if (!add_first(graph, step, KERNEL_REDUCE, &shape)) {
        return false;
    }
    switch (draw(graph, 4)) {
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
        op             = (uint32_t)between(graph, KERNEL_SUM, KERNEL_MAX);
        break;
    }
    step->args[0].reduce_op = op;
    return add_like(graph, step, KERNEL_IN, &shape, 0);
}

static bool make_touch(struct graph *graph, struct graph_step *step)
{
    struct pl_shape shape;
    uint64_t more = draw(graph, 3);

    step->function = "touch";
    if (!add_first(graph, step, KERNEL_IN, &shape)) {
        return false;
    }
    for (uint64_t i = 0; i < more; i++) {
        (void)add_like(graph, step, KERNEL_IN, &shape, 0);
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

static void make_run(struct graph *graph, uint32_t client)
{
    static const struct {
        make_fn fn;
        uint32_t weight;
    } makers[] = {{make_source, 14}, {make_map, 26},  {make_sum, 6},    {make_update, 26},
                  {make_reduce, 20}, {make_touch, 6}, {make_failing, 3}};
    uint32_t refs_before    = graph->ref_count;
    uint32_t steps_before   = graph->step_count;
    struct graph_step *step = step_add(graph, GRAPH_RUN, client);
    uint64_t roll           = draw(graph, 101);
    uint32_t i              = 0;

    while (roll >= makers[i].weight && i + 1 < PL_COUNT(makers)) {
        roll -= makers[i].weight;
        i++;
    }
    step->place =
        chance(graph, 650) ? (uint32_t)between(graph, 1, graph->config.devices) : 0;
    if (makers[i].fn(graph, step)) {
        return;
    }
    memset(step, 0, sizeof(*step)); /* nothing fits: no such step */
    graph->step_count = steps_before;
    graph->ref_count  = refs_before;
}

/* ------------------------------------------------------------------------------------------ the other steps */

static void random_bytes(struct graph *graph, const struct pl_shape *shape, uint8_t *out)
{
    int64_t count = pl_shape_elements(shape);

    for (int64_t i = 0; i < count; i++) {
        int64_t value = (int64_t)draw(graph, 41) - 20;
        float f       = (float)value * 0.37f; /* sums depend on their order */
        double d      = (double)value * 0.37;
        int32_t n     = (int32_t)value;

        switch (shape->dtype) {
        case PL_F32:
            memcpy(out + i * 4, &f, 4);
            break;
        case PL_F64:
            memcpy(out + i * 8, &d, 8);
            break;
        case PL_I32:
            memcpy(out + i * 4, &n, 4);
            break;
        default:
            memcpy(out + i * 8, &value, 8);
            break;
        }
    }
}

static void make_put(struct graph *graph, uint32_t client, uint32_t ndim, uint32_t dtype)
{
    struct pl_shape shape = random_shape(graph, ndim, dtype);
    struct graph_step *step;

    if (!room_for_refs(graph)) {
        return;
    }
    step       = step_add(graph, chance(graph, 250) ? GRAPH_PUT_SHARED : GRAPH_PUT, client);
    step->data = sim_alloc(pl_shape_bytes(&shape));
    random_bytes(graph, &shape, step->data);
    step->pieces    = (uint32_t)between(graph, 1, GRAPH_PUT_MAX);
    step->donatable = chance(graph, 500);
    step->place =
        chance(graph, 650) ? (uint32_t)between(graph, 1, graph->config.devices) : 0;
    add_fresh(graph, step, &shape);
}

static bool set_source(struct graph *graph, struct graph_step *step)
{
    struct graph_arg arg;
    struct pl_view view;
    bool nested;
    uint32_t ref;

    if (!pick_ref(graph, step->client, &ref)) {
        return false;
    }
    view = any_view(graph, &graph->refs[ref], &nested);
    if (!arg_make(graph, ref, KERNEL_IN, &view, nested, &arg)) {
        return false;
    }
    step->args[step->arg_count++] = arg;
    return true;
}

static void make_with_source(struct graph *graph, uint32_t client,
                             enum graph_step_kind kind)
{
    struct graph_step *step = step_add(graph, kind, client);

    if (!set_source(graph, step)) {
        graph->step_count--;
        memset(step, 0, sizeof(*step));
        return;
    }
    if (kind == GRAPH_SNAPSHOT) {
        step->target = ref_add(graph, client, &graph->refs[step->args[0].ref].root,
                               &step->args[0].root);
        graph->refs[step->target].made_by = graph->step_count - 1;
    }
}

static void make_unmaps(struct graph *graph, uint64_t permille)
{
    uint32_t count = graph->step_count;

    for (uint32_t i = 0; i < count; i++) {
        if (graph->steps[i].kind == GRAPH_MAP && graph->steps[i].target == 0 &&
            chance(graph, permille)) {
            struct graph_step *step = step_add(graph, GRAPH_UNMAP, graph->steps[i].client);

            step->target           = i;
            graph->steps[i].target = graph->step_count; /* it is unmapped: by step - 1 */
        }
    }
}

static void make_release(struct graph *graph, uint32_t client)
{
    struct graph_step *step;
    uint32_t ref;

    if (!pick_ref(graph, client, &ref)) {
        return;
    }
    step                      = step_add(graph, GRAPH_RELEASE, client);
    step->target              = ref;
    graph->refs[ref].released = true;
}

static void make_cancel(struct graph *graph, uint32_t client)
{
    for (uint32_t i = graph->step_count; i-- > 0 && i + 6 > graph->step_count;) {
        if (graph->steps[i].kind == GRAPH_RUN && graph->steps[i].client == client &&
            chance(graph, 500)) {
            struct graph_step *step = step_add(graph, GRAPH_CANCEL, client);

            step->target   = i;
            step->flush    = true;
            step->pause_ns = 0;
            return;
        }
    }
}

static void make_shared(struct graph *graph, uint32_t client)
{
    uint32_t other = (client + 1) % graph->config.clients;
    struct graph_step *step, *look;
    uint32_t publish, ref;

    if (!room_for_refs(graph) || !pick_ref(graph, client, &ref)) {
        return;
    }
    publish         = graph->step_count;
    step            = step_add(graph, GRAPH_PUBLISH, client);
    step->args[0]   = (struct graph_arg){.mode = KERNEL_IN,
                                         .ref  = ref,
                                         .view = pl_view_whole(&graph->refs[ref].shape),
                                         .root = graph->refs[ref].base};
    step->arg_count = 1;
    look            = step_add(graph, GRAPH_LOOKUP, other);
    look->other     = publish;
    look->target    = ref_add(graph, other, &graph->refs[ref].root, &graph->refs[ref].base);
    graph->refs[look->target].made_by = graph->step_count - 1;
    step                              = step_add(graph, GRAPH_UNPUBLISH, client);
    step->other                       = publish;
}

/* ------------------------------------------------------------------------------------------ the whole */

static void draw_config(struct graph *graph, const struct graph_profile *profile)
{
    static const char *const policies[] = {"auto", "locality", "round-robin"};
    struct sim_config *config           = &graph->config;

    config->seed    = graph->seed * 0x9e3779b97f4a7c15u + 1;
    config->devices = (uint32_t)between(graph, profile->devices_min, profile->devices_max);
    config->clients = 1 + chance(graph, 300);
    config->run_streams   = (uint32_t)between(graph, 1, 4);
    config->policy        = policies[draw(graph, 3)];
    config->transfer      = chance(graph, 350) ? HEAD_TRANSFER_HOST : HEAD_TRANSFER_AUTO;
    config->peer_capable  = chance(graph, 800);
    config->retries       = 20;
    config->check_every   = profile->check_every;
    config->window        = chance(graph, 200) ? (uint32_t)between(graph, 1, 12) : 0;
    config->credit        = chance(graph, 200) ? between(graph, 16, 64) : 0;
    graph->says_bye       = chance(graph, 200);
    graph->client_crashes = chance(graph, profile->client_crash_permille);
    if (graph->client_crashes) {
        config->clients     = (uint32_t)between(graph, 2, SIM_CLIENTS_MAX);
        graph->crash_client = (uint32_t)draw(graph, config->clients);
    }
    graph->cancel_weight  = chance(graph, 350) ? 45 : 5;
    graph->map_weight     = chance(graph, 350) ? 25 : 4;
    graph->unmap_permille = chance(graph, 500) ? 150 : 15;
    if (graph->cancel_weight > 5 && chance(graph, 700)) {
        config->window =
            (uint32_t)between(graph, 1, 4); /* so that there is time to cancel */
    }
    if (chance(graph, profile->scarce_permille)) {
        config->device_bytes = between(graph, 3, 10) * 4096;
    }
    if (chance(graph, profile->crash_permille)) {
        config->crashes_max = (uint32_t)between(
            graph, 1, profile->crashes_most != 0 ? profile->crashes_most : 3);
        config->crash_millionth = 4000;
    }
    if (chance(graph, profile->break_permille)) {
        config->breaks_max = (uint32_t)between(
            graph, 1, profile->breaks_most != 0 ? profile->breaks_most : 4);
        config->break_millionth = 4000;
    }
}

/* Several partial results of one part of an array, now and then more than one fold takes. */
static void make_burst(struct graph *graph, uint32_t client)
{
    uint64_t count = chance(graph, 60) ? between(graph, 63, 70) : between(graph, 2, 6);
    uint32_t op =
        chance(graph, 500) ? KERNEL_SUM : (uint32_t)between(graph, KERNEL_SUM, KERNEL_MAX);
    struct graph_arg arg;
    struct pl_shape shape;
    struct pl_view view;
    bool nested;
    uint32_t ref;

    if (graph->step_count + count + 64 > GRAPH_STEPS_MAX ||
        !pick_ref(graph, client, &ref)) {
        return;
    }
    view  = any_view(graph, &graph->refs[ref], &nested);
    shape = pl_view_shape(&view, graph->refs[ref].dtype);
    for (uint64_t i = 0; i < count; i++) {
        struct graph_step *step = step_add(graph, GRAPH_RUN, client);

        step->pause_ns = 0;
        step->function = "accumulate";
        step->place =
            chance(graph, 650) ? (uint32_t)between(graph, 1, graph->config.devices) : 0;
        if (arg_make(graph, ref, KERNEL_REDUCE, &view, nested, &arg)) {
            arg.reduce_op = op;
            arg_commit(graph, step, &arg);
        }
        if (step->arg_count == 0 || !add_like(graph, step, KERNEL_IN, &shape, 0)) {
            memset(step, 0, sizeof(*step));
            graph->step_count--;
            return;
        }
    }
}

static void make_step(struct graph *graph, uint32_t ndim, uint32_t dtype)
{
    uint32_t client = chance(graph, graph->client_crashes ? 300 : 800)
                          ? 0
                          : (uint32_t)draw(graph, graph->config.clients);
    uint32_t total  = 94 + graph->cancel_weight + graph->map_weight;
    uint64_t roll   = draw(graph, total);

    if (roll < 67) {
        make_run(graph, client);
    } else if (roll < 70) {
        make_burst(graph, client);
    } else if (roll < 73) {
        make_put(graph, client, ndim, dtype);
    } else if (roll < 81) {
        if (room_for_refs(graph)) {
            make_with_source(graph, client, GRAPH_SNAPSHOT);
        }
    } else if (roll < 86) {
        make_with_source(graph, client, GRAPH_READ);
    } else if (roll < 90) {
        make_release(graph, client);
    } else if (roll < 94) {
        if (graph->config.clients > 1 && !graph->client_crashes) {
            make_shared(graph, client);
        }
    } else if (roll < 94 + graph->cancel_weight) {
        make_cancel(graph, client);
    } else {
        make_with_source(graph, client, GRAPH_MAP);
    }
    make_unmaps(graph, graph->unmap_permille);
}

struct graph *graph_make(uint64_t seed, const struct graph_profile *profile)
{
    static const uint32_t dtypes[] = {PL_F32, PL_F64, PL_I32, PL_I64};
    struct graph *graph            = sim_alloc(sizeof(*graph));
    uint32_t ndim, dtype, wanted;

    graph->seed   = seed;
    graph->random = seed;
    graph->steps  = sim_alloc(GRAPH_STEPS_MAX * sizeof(*graph->steps));
    draw_config(graph, profile);
    ndim   = (uint32_t)between(graph, 1, 4);
    dtype  = dtypes[draw(graph, PL_COUNT(dtypes))];
    wanted = (uint32_t)between(graph, profile->steps_min, profile->steps_max);
    for (uint32_t c = 0; c < graph->config.clients; c++) {
        for (uint32_t i = 0; i < (c == 0 ? 4u : 2u); i++) {
            make_put(graph, c, ndim,
                     i == 3 ? dtypes[draw(graph, PL_COUNT(dtypes))] : dtype);
        }
    }
    while (graph->step_count < wanted && graph->step_count + 140 < GRAPH_STEPS_MAX) {
        make_step(graph, ndim, dtype);
        wanted -= graph->ref_count + 4 >= GRAPH_REFS_MAX && wanted > 0;
    }
    make_unmaps(graph, 1000);
    graph->crash_step = (uint32_t)draw(graph, graph->step_count);
    return graph;
}

void graph_destroy(struct graph *graph)
{
    if (graph == NULL) {
        return;
    }
    for (uint32_t i = 0; i < GRAPH_STEPS_MAX; i++) {
        pl_free(graph->steps[i].data);
    }
    pl_free(graph->steps);
    pl_free(graph);
}

/* ------------------------------------------------------------------------------------------ for people */

static void describe_arg(const struct graph_arg *arg, struct pl_str *out)
{
    static const char *const kinds[] = {"whole", "dense", "strided", "overlapping",
                                        "nested"};
    static const char *const modes[] = {"?", "in", "out", "inout", "reduce"};

    pl_str_append(out, " %s%s r%u", arg->mode <= 4 ? modes[arg->mode] : "scratch",
                  arg->fresh ? " new" : "", arg->ref);
    if (arg->kind != GRAPH_WHOLE) {
        pl_str_append(out, " %s[", kinds[arg->kind]);
        for (uint32_t d = 0; d < arg->root.ndim; d++) {
            pl_str_append(out, "%s%lld+%lldx%lld", d == 0 ? "" : ", ",
                          (long long)arg->root.start[d], (long long)arg->root.count[d],
                          (long long)arg->root.step[d]);
        }
        pl_str_append(out, "]");
    }
    if (arg->mode == KERNEL_REDUCE) {
        pl_str_append(out, " op %u", arg->reduce_op);
    }
}

void graph_describe(const struct graph *graph, uint32_t first, struct pl_str *out)
{
    static const char *const names[] = {"run",    "put",     "put shared", "snapshot",
                                        "read",   "map",     "unmap",      "release",
                                        "cancel", "publish", "lookup",     "unpublish"};
    const struct sim_config *config  = &graph->config;

    pl_str_append(
        out,
        "seed %llu: %u devices, %u clients, %u streams, policy %s, transfer %d, peer "
        "%d, window %u, credit %llu, memory %llu, crashes %u, breaks %u",
        (unsigned long long)graph->seed, config->devices, config->clients,
        config->run_streams, config->policy, (int)config->transfer, config->peer_capable,
        config->window, (unsigned long long)config->credit,
        (unsigned long long)config->device_bytes, config->crashes_max, config->breaks_max);
    if (graph->client_crashes) {
        pl_str_append(out, ", client %u dies before step %u", graph->crash_client,
                      graph->crash_step);
    }
    pl_str_append(out, "\n");
    for (uint32_t i = first; i < graph->step_count; i++) {
        const struct graph_step *step = &graph->steps[i];
        char shape[128];

        pl_str_append(out, "%3u c%u %s %s", i, step->client, names[step->kind],
                      step->function != NULL ? step->function : "");
        for (uint32_t a = 0; a < step->arg_count; a++) {
            describe_arg(&step->args[a], out);
            if (step->args[a].fresh) {
                pl_str_append(out, " %s",
                              pl_shape_format(&graph->refs[step->args[a].ref].root, shape));
            }
        }
        if (step->kind == GRAPH_SNAPSHOT || step->kind == GRAPH_LOOKUP ||
            step->kind == GRAPH_RELEASE) {
            pl_str_append(out, " -> r%u", step->target);
        } else if (step->kind == GRAPH_CANCEL || step->kind == GRAPH_UNMAP) {
            pl_str_append(out, " step %u", step->target);
        }
        if (step->place != 0) {
            pl_str_append(out, " on %u", step->place - 1);
        }
        if (step->donatable) {
            pl_str_append(out, " donatable");
        }
        if (step->task != 0) {
            pl_str_append(out, "  (task %llu%s%s)", (unsigned long long)step->task,
                          step->answers[0] != NULL && step->answers[0]->answered ? ": "
                                                                                 : "",
                          step->answers[0] != NULL && step->answers[0]->answered
                              ? pl_status_name(step->answers[0]->status)
                              : "");
        }
        pl_str_append(out, "\n");
    }
}
