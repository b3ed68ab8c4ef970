/*
 * A random program. It is complete before anything runs, so a seed names it, whatever the cluster does.
 *
 * Arrays of one program belong to a family (dimensions and mostly one dtype), so that views of one
 * fit views of another. A task picks its first argument and a view of it; the view's shape is the
 * shape of the call, and other arguments are views of that shape, found in other arrays or in parts
 * of the same one that do not meet what the call writes.
 */
#include "tests/sim/graph_int.h"

#include <string.h>

#include "base/alloc.h"

enum { REACH_WAIT_MS = 30000 }; /* longer than any lease, and any worker is away */

/* -------------------------------------------------------------------------------- steps */

static struct graph_step *step_add(struct graph *graph, enum graph_step_kind kind,
                                   uint32_t client)
{
    struct graph_step *step = &graph->steps[graph->step_count];

    PL_CHECK(graph->step_count < GRAPH_STEPS_MAX);
    graph->step_count++;
    step->kind   = kind;
    step->client = client;
    step->flush  = graph_chance(graph, 300);
    if (graph_chance(graph, 250)) {
        step->pause_ns = graph_draw(graph, graph_chance(graph, 200) ? 3000000 : 60000);
    }
    return step;
}

/*
 * Sometimes a limit that is enough, or a kernel that does not end: then something must end it, a
 * limit or a cancel.
 */
static void make_limit(struct graph *graph, struct graph_step *step, uint32_t index)
{
    struct graph_step *cancel;
    bool limited = graph_chance(graph, 150);

    if (strcmp(step->function, "test_fail") == 0) {
        return;
    }
    step->time_limit_ms = limited ? (uint32_t)graph_between(graph, 5, 25) : 0;
    step->endless       = graph_chance(graph, limited ? 250 : 15);
    if (step->endless) {
        step->lasts_us = SIM_ENDLESS_US;
    } else if (limited && graph_chance(graph, 400)) {
        /* a little too long: it ends on its way out */
        step->lasts_us =
            step->time_limit_ms * 1000 + (uint32_t)graph_between(graph, 500, 9000);
    } else if (!limited && graph_chance(graph, graph->lasting_permille)) {
        step->lasts_us = (uint32_t)graph_between(graph, 200, 4000);
    }
    if ((step->endless && !limited) ||
        graph_chance(graph, step->lasts_us != 0 ? 400 : 40)) {
        cancel           = step_add(graph, GRAPH_CANCEL, step->client);
        cancel->target   = index;
        cancel->force    = true;
        cancel->flush    = true;
        cancel->pause_ns = graph_draw(graph, graph_chance(graph, 500) ? 50000 : 2000000);
    }
}

static void make_run(struct graph *graph, uint32_t client)
{
    uint32_t refs_before    = graph->ref_count;
    uint32_t steps_before   = graph->step_count;
    struct graph_step *step = step_add(graph, GRAPH_RUN, client);

    if (graph_make_call(graph, step)) {
        if (graph->limits) {
            make_limit(graph, step, steps_before);
        }
        return;
    }
    memset(step, 0, sizeof(*step)); /* nothing fits: no such step */
    graph->step_count = steps_before;
    graph->ref_count  = refs_before;
}

/* ---------------------------------------------------------------------- the other steps */

static void random_bytes(struct graph *graph, const struct pl_shape *shape, uint8_t *out)
{
    int64_t count = pl_shape_elements(shape);

    for (int64_t i = 0; i < count; i++) {
        int64_t value = (int64_t)graph_draw(graph, 41) - 20;
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
    struct pl_shape shape = graph_random_shape(graph, ndim, dtype);
    struct graph_step *step;

    if (!graph_has_room(graph)) {
        return;
    }
    if (graph->no_puts) { /* the same value wherever it is made */
        step               = step_add(graph, GRAPH_RUN, client);
        step->function     = "arange";
        step->scalar_count = 2;
        step->scalars[0].f = (double)graph_draw(graph, 9);
        step->scalars[1].f = (double)graph_between(graph, 1, 3);
        graph_add_fresh(graph, step, &shape);
        return;
    }
    step = step_add(graph, graph_chance(graph, 250) ? GRAPH_PUT_SHARED : GRAPH_PUT, client);
    step->data = sim_alloc(pl_shape_bytes(&shape));
    random_bytes(graph, &shape, step->data);
    step->pieces    = (uint32_t)graph_between(graph, 1, GRAPH_PUT_MAX);
    step->donatable = graph_chance(graph, 500);
    step->place     = graph_chance(graph, 650)
                          ? (uint32_t)graph_between(graph, 1, graph->config.devices)
                          : 0;
    graph_add_fresh(graph, step, &shape);
}

static bool set_source(struct graph *graph, struct graph_step *step)
{
    struct graph_arg arg;
    struct pl_view view;
    bool nested;
    uint32_t ref;

    if (!graph_pick_ref(graph, step->client, &ref)) {
        return false;
    }
    view = graph_any_view(graph, &graph->refs[ref], &nested);
    if (!graph_arg_make(graph, ref, KERNEL_IN, &view, nested, &arg)) {
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
        step->target = graph_ref_add(graph, client, &graph->refs[step->args[0].ref].root,
                                     &step->args[0].root);
        graph->refs[step->target].made_by = graph->step_count - 1;
    }
}

static void make_unmaps(struct graph *graph, uint64_t permille)
{
    uint32_t count = graph->step_count;

    for (uint32_t i = 0; i < count; i++) {
        if (graph->steps[i].kind == GRAPH_MAP && graph->steps[i].target == 0 &&
            graph_chance(graph, permille)) {
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

    if (!graph_pick_ref(graph, client, &ref)) {
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
            graph_chance(graph, 500)) {
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

    if (!graph_has_room(graph) || !graph_pick_ref(graph, client, &ref)) {
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
    look->target =
        graph_ref_add(graph, other, &graph->refs[ref].root, &graph->refs[ref].base);
    graph->refs[look->target].made_by = graph->step_count - 1;
    step                              = step_add(graph, GRAPH_UNPUBLISH, client);
    step->other                       = publish;
}

/* ---------------------------------------------------------------------------- the whole */

static void draw_config(struct graph *graph, const struct graph_profile *profile)
{
    bool scarce                         = false;
    static const char *const policies[] = {"auto", "locality", "round-robin", "pinned"};
    struct sim_config *config           = &graph->config;

    config->seed = graph->seed * 0x9e3779b97f4a7c15u + 1;
    config->devices =
        (uint32_t)graph_between(graph, profile->devices_min, profile->devices_max);
    config->clients     = 1 + graph_chance(graph, 300);
    config->run_streams = (uint32_t)graph_between(graph, 1, 4);
    config->policy      = policies[graph_draw(graph, 3)];
    config->transfer = graph_chance(graph, 350) ? HEAD_TRANSFER_HOST : HEAD_TRANSFER_AUTO;
    config->peer_capable  = graph_chance(graph, 800);
    config->chain_bytes   = graph_chance(graph, 400) ? graph_between(graph, 16, 512) : 0;
    config->lineage_bytes = graph_chance(graph, 700) ? 1 << 24 : 0;
    config->retries       = 20;
    config->check_every   = profile->check_every;
    config->window  = graph_chance(graph, 200) ? (uint32_t)graph_between(graph, 1, 12) : 0;
    config->credit  = graph_chance(graph, 200) ? graph_between(graph, 16, 64) : 0;
    graph->says_bye = graph_chance(graph, 200);
    graph->client_crashes = graph_chance(graph, profile->client_crash_permille);
    if (graph->client_crashes) {
        config->clients     = (uint32_t)graph_between(graph, 2, SIM_CLIENTS_MAX);
        graph->crash_client = (uint32_t)graph_draw(graph, config->clients);
    }
    graph->cancel_weight  = graph_chance(graph, 350) ? 45 : 5;
    graph->map_weight     = graph_chance(graph, 350) ? 25 : 4;
    graph->unmap_permille = graph_chance(graph, 500) ? 150 : 15;
    if (graph->cancel_weight > 5 && graph_chance(graph, 700)) {
        /* so that there is time to cancel */
        config->window = (uint32_t)graph_between(graph, 1, 4);
    }
    if (graph_chance(graph, profile->scarce_permille)) {
        config->device_bytes = graph_between(graph, 3, 10) * 4096;
        scarce               = true;
    }
    if (graph_chance(graph, profile->crash_permille)) {
        config->crashes_max = (uint32_t)graph_between(
            graph, 1, profile->crashes_most != 0 ? profile->crashes_most : 3);
        config->crash_millionth = 4000;
    }
    if (graph_chance(graph, profile->break_permille)) {
        config->breaks_max = (uint32_t)graph_between(
            graph, 1, profile->breaks_most != 0 ? profile->breaks_most : 4);
        config->break_millionth = 4000;
    }
    if (profile->spill_permille > 0 && graph_chance(graph, profile->spill_permille)) {
        config->device_bytes        = graph_between(graph, 3, 5) * 4096;
        config->spill_memory        = graph_between(graph, 3, 10) * 1024;
        config->spill_files         = graph_chance(graph, 700) ? UINT64_C(1) << 30 : 0;
        config->spill_full_permille = graph_chance(graph, 100) ? 100 : 0;
        scarce                      = true;
    }
    if (config->spill_memory > 0) {
        /* by no draw, so that other seeds make what they made before */
        config->write_back = graph->seed % 4 == 0 ? 0 : 25 * (uint32_t)(graph->seed % 4);
        config->on_demand  = graph->seed % 5 == 0;
        config->slab_piece = graph->seed % 3 == 1 ? 300 + graph->seed % 700 : 0;
        config->slab_short = graph->seed % 9 == 4;
    }
    if (config->spill_memory > 0 &&
        profile->spill_deaths_most >
            0) { /* likewise; and very little, so that the store has much to do */
        config->spill_deaths_max = profile->spill_deaths_most;
        config->device_bytes     = 2 * 4096;
        config->spill_memory     = 1536 + 512 * (graph->seed % 4);
    }
    if (config->spill_memory > 0 && profile->disk_full_permille > 0) { /* likewise */
        config->spill_full_permille = profile->disk_full_permille;
        config->spill_files         = UINT64_C(1) << 30;
        config->device_bytes        = 2 * 4096;
        config->spill_memory        = 1536 + 512 * (graph->seed % 4);
    }
    if (profile->gone_permille > 0 && config->devices > 1 &&
        graph_chance(graph, profile->gone_permille)) {
        config->gone_max       = (uint32_t)graph_between(graph, 1, config->devices - 1);
        config->gone_millionth = 4000;
        config->second_host    = graph_chance(graph, profile->host_permille);
        config->drains         = config->second_host && profile->drains;
        config->lineage_bytes  = graph_chance(graph, 900)   ? 1 << 24
                                 : graph_chance(graph, 500) ? graph_between(graph, 500, 8000)
                                                            : 0;
        graph->no_puts         = profile->no_puts;
        graph->names_none      = graph_chance(graph, 700) || config->drains;
    }
    if (profile->cut_permille > 0 && graph_chance(graph, profile->cut_permille)) {
        config->cuts_max      = (uint32_t)graph_between(graph, 1, profile->cuts_most);
        config->cut_millionth = 6000;
    }
    if (config->second_host && profile->host_faults) { /* by no draw */
        config->host_fault = (enum sim_host_fault)(graph->seed / 2 % SIM_HOST_FAULTS);
        config->drains     = graph->seed / 2 % 5 == 0;
        graph->names_none |= config->drains;
    }
    if (profile->stop_permille > 0 && (!config->second_host || profile->host_faults)) {
        /* no draw without */
        config->stores      = true;
        config->store_early = profile->store_early;
        if (graph_chance(graph, profile->stop_permille)) {
            config->stops_max      = (uint32_t)graph_between(graph, 1, profile->stops_most);
            config->stop_millionth = 6000;
            if (profile->store_deaths_most > 0) {
                config->store_deaths_max =
                    (uint32_t)graph_between(graph, 1, profile->store_deaths_most);
            }
        }
    }
    if (profile->way_cuts_most > 0 && config->devices > 1) { /* no draw without */
        config->second_host = true;
        config->reach_wait_ms =
            profile->reach_wait_ms != 0 ? profile->reach_wait_ms : REACH_WAIT_MS;
        config->way_cuts_max = (uint32_t)graph_between(graph, 1, profile->way_cuts_most);
        config->way_cut_millionth = 10000;
        config->ways_long         = profile->ways_long;
        graph->dawdles            = graph_chance(graph, 700);
    }
    if (profile->no_lineage) {
        config->lineage_bytes = 0;
    }
    config->replicas =
        config->devices > 1 &&
        (profile->replicas || (profile->some_replicas && graph->seed % 3 == 1));
    config->patient = config->replicas && profile->patient;
    if (profile->gates) {
        config->gate_points = 1 + (uint32_t)(graph->seed % 3);
    }
    /* By no draw, so that other seeds make what they made before. */
    config->places_few   = graph->seed % 4 == 1 ? 2 : 40;
    config->queues       = graph->seed % 5 < 2 ? 1 + (uint32_t)(graph->seed / 5 % 4) : 0;
    config->shadow_bytes = graph->seed % 8 == 5   ? 1
                           : graph->seed % 8 == 6 ? UINT64_C(16) << graph->seed / 8 % 8
                                                  : 0;
    graph->replays       = graph->seed % 3 == 0 && !scarce && !graph->client_crashes &&
                     config->crashes_max == 0 && config->gone_max == 0 &&
                     config->stops_max == 0;
    if (profile->replays_anyway && graph->seed % 3 == 0 && !graph->client_crashes) {
        graph->replays = true;
    }
    if (graph->replays) {
        graph->cancel_weight = 0;
    }
    if (profile->head_crash_permille > 0) { /* no draw without */
        config->journal = true;
        if (graph_chance(graph, profile->head_crash_permille)) {
            config->head_crashes_max     = (uint32_t)graph_between(graph, 1, 4);
            config->head_crash_millionth = 4000;
        }
        if (profile->head_stops_most > 0 && graph->seed % 2 == 0) { /* likewise */
            config->head_stops_max =
                1 + (uint32_t)(graph->seed / 2 % profile->head_stops_most);
            config->head_crash_millionth = 4000;
        }
    }
    if (profile->limit_permille > 0 && !graph->replays) { /* no draw without */
        graph->limits           = graph_chance(graph, profile->limit_permille);
        graph->lasting_permille = graph_chance(graph, 300) ? 250 : 15;
        config->limits          = graph->limits;
        if (graph->limits && config->crashes_max == 0) {
            config->retries = 1; /* nobody is charged, so that is enough */
        }
    }
    if (profile->pairs_permille > 0 &&
        (profile->pairs_of_hosts || !config->second_host || !config->stores) &&
        graph_chance(graph, profile->pairs_permille)) {
        config->transfer   = HEAD_TRANSFER_NCCL;
        config->nccl_bytes = graph->seed % 8 == 3; /* one communicator a device at a time */
        config->queues     = 0;                    /* NCCL's kernels wait for each other */
        config->pair_trouble_millionth = graph_chance(graph, 500) ? 10000 : 0;
        graph->hurries                 = graph_chance(graph, 700);
        config->policy                 = graph->hurries ? "round-robin" : config->policy;
    }
}

static bool can_repeat(const struct graph *graph, const struct graph_step *step,
                       uint32_t client)
{
    if (step->kind != GRAPH_RUN || step->client != client || step->recorded != 0) {
        return false;
    }
    for (uint32_t i = 0; i < step->arg_count; i++) {
        if (step->args[i].fresh || graph->refs[step->args[i].ref].released) {
            return false;
        }
    }
    return true;
}

/* Some of the client's last tasks once more, as a graph that is launched a few times. */
static void make_replays(struct graph *graph, uint32_t client)
{
    uint32_t found[8];
    uint32_t count    = 0;
    uint32_t launches = (uint32_t)graph_between(graph, 1, 4);

    for (uint32_t i = graph->step_count; i-- > 0 && count < PL_COUNT(found);) {
        if (can_repeat(graph, &graph->steps[i], client) && graph_chance(graph, 800)) {
            found[count++] = i;
        }
    }
    if (count == 0 || graph->step_count + launches * count + 140 > GRAPH_STEPS_MAX) {
        return;
    }
    graph->recordings++;
    for (uint32_t l = 0; l < launches; l++) {
        for (uint32_t k = count; k-- > 0;) {
            struct graph_step *step       = step_add(graph, GRAPH_RUN, client);
            const struct graph_step *from = &graph->steps[found[k]];

            step->function     = from->function;
            step->arg_count    = from->arg_count;
            step->scalar_count = from->scalar_count;
            step->place        = from->place;
            memcpy(step->args, from->args, sizeof(step->args));
            memcpy(step->scalars, from->scalars, sizeof(step->scalars));
            step->recorded    = graph->recordings;
            step->launch      = l;
            step->last        = k == 0;
            step->last_launch = l + 1 == launches;
        }
    }
}

/* Several partial results of one part of an array, now and then more than one fold takes. */
static void make_burst(struct graph *graph, uint32_t client)
{
    uint64_t count =
        graph_chance(graph, 60) ? graph_between(graph, 63, 70) : graph_between(graph, 2, 6);
    uint32_t op = graph_chance(graph, 500)
                      ? KERNEL_SUM
                      : (uint32_t)graph_between(graph, KERNEL_SUM, KERNEL_MAX);
    struct graph_arg arg;
    struct pl_shape shape;
    struct pl_view view;
    bool nested;
    uint32_t ref;

    if (graph->step_count + count + 64 > GRAPH_STEPS_MAX ||
        !graph_pick_ref(graph, client, &ref)) {
        return;
    }
    view  = graph_any_view(graph, &graph->refs[ref], &nested);
    shape = pl_view_shape(&view, graph->refs[ref].dtype);
    for (uint64_t i = 0; i < count; i++) {
        struct graph_step *step = step_add(graph, GRAPH_RUN, client);

        step->pause_ns = 0;
        step->function = "accumulate";
        step->place    = graph_chance(graph, 650)
                             ? (uint32_t)graph_between(graph, 1, graph->config.devices)
                             : 0;
        if (graph_arg_make(graph, ref, KERNEL_REDUCE, &view, nested, &arg)) {
            arg.reduce_op = op;
            graph_arg_commit(graph, step, &arg);
        }
        if (step->arg_count == 0 || !graph_add_like(graph, step, KERNEL_IN, &shape, 0)) {
            memset(step, 0, sizeof(*step));
            graph->step_count--;
            return;
        }
    }
}

static void make_step(struct graph *graph, uint32_t ndim, uint32_t dtype)
{
    uint32_t client = graph_chance(graph, graph->client_crashes ? 300 : 800)
                          ? 0
                          : (uint32_t)graph_draw(graph, graph->config.clients);
    uint32_t total  = 94 + graph->cancel_weight + graph->map_weight;
    uint64_t roll   = graph_draw(graph, total);

    if (roll < 67) {
        make_run(graph, client);
    } else if (roll < 70) {
        make_burst(graph, client);
    } else if (roll < 73) {
        make_put(graph, client, ndim, dtype);
    } else if (roll < 81) {
        if (graph_has_room(graph)) {
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
    if (graph->replays && graph_chance(graph, 120)) {
        make_replays(graph, client);
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
    ndim   = (uint32_t)graph_between(graph, 1, 4);
    dtype  = dtypes[graph_draw(graph, PL_COUNT(dtypes))];
    wanted = (uint32_t)graph_between(graph, profile->steps_min, profile->steps_max);
    for (uint32_t c = 0; c < graph->config.clients; c++) {
        for (uint32_t i = 0; i < (c == 0 ? 4u : 2u); i++) {
            make_put(graph, c, ndim,
                     i == 3 ? dtypes[graph_draw(graph, PL_COUNT(dtypes))] : dtype);
        }
    }
    while (graph->step_count < wanted && graph->step_count + 140 < GRAPH_STEPS_MAX) {
        make_step(graph, ndim, dtype);
        wanted -= graph->ref_count + 4 >= GRAPH_REFS_MAX && wanted > 0;
    }
    make_unmaps(graph, 1000);
    for (uint32_t i = 0; graph->names_none && i < graph->step_count; i++) {
        graph->steps[i].place = 0;
    }
    for (uint32_t i = 0; graph->dawdles && i < graph->step_count; i++) {
        graph->steps[i].pause_ns *= graph_chance(graph, 300) ? 1000 : 1;
    }
    graph->crash_step = (uint32_t)graph_draw(graph, graph->step_count);
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
