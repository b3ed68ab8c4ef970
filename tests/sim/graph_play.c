/*
 * Submits a program while the cluster runs. The client waits for nothing that a real one would not
 * wait for: the answer of a PutOpen before it writes, of a mapping before it ends it, of a
 * publication before somebody else looks the name up.
 *
 * At the end every live ref is read, everything is let go, and nothing may be left anywhere.
 */
#include "tests/sim/graph.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"

static bool answered(void *user)
{
    return ((const struct sim_answer *)user)->answered;
}

static bool wait_for(struct sim *sim, struct sim_client *client, struct sim_answer *answer)
{
    sim_client_flush(client);
    return sim_run_until(sim, answered, answer);
}

static bool all_answered(void *user)
{
    const struct sim *sim = user;

    for (uint32_t i = 0; i < sim->config.clients; i++) {
        if (sim->clients[i].waiting > 0) {
            return false;
        }
    }
    return true;
}

#define DRAIN_WAIT_NS UINT64_C(3000000000)

struct until {
    const struct sim *sim;
    uint64_t at_ns;
};

static bool time_came(void *user)
{
    const struct until *until = user;

    return until->sim->now_ns >= until->at_ns || until->sim->events.count == 0;
}

/* ---------------------------------------------------------------------------- arguments */

static void wire_arg(const struct graph *graph, const struct graph_arg *arg,
                     struct sim_arg *out)
{
    const struct graph_ref *ref = &graph->refs[arg->ref];

    *out = (struct sim_arg){.mode      = arg->mode,
                            .ref       = ref->id,
                            .reduce_op = arg->reduce_op,
                            .viewed    = arg->kind != GRAPH_WHOLE,
                            .view      = arg->view,
                            .shaped    = arg->fresh,
                            .shape     = ref->root};
}

static struct sim_task new_task(struct sim_client *client, uint32_t kind, uint32_t place)
{
    return (struct sim_task){.id = sim_client_id(client), .kind = kind, .place = place};
}

/* Who else has a stake in what the argument touches, at this moment. */
static void note_holders(struct graph *graph, uint32_t upto, struct graph_arg *arg)
{
    struct pl_box hull = pl_view_hull(&arg->root);

    for (uint32_t i = 0; i < upto; i++) {
        const struct graph_step *step = &graph->steps[i];

        if (!step->played) {
            continue;
        }
        for (uint32_t a = 0; a < step->arg_count; a++) {
            const struct graph_arg *other = &step->args[a];
            struct pl_box box             = pl_view_hull(&other->root);

            if (other->ref != arg->ref || !pl_box_intersects(&hull, &box)) {
                continue;
            }
            arg->by_snapshot |=
                (step->kind == GRAPH_SNAPSHOT || step->kind == GRAPH_LOOKUP) &&
                graph->refs[step->target].id != 0;
            arg->by_mapping |= step->kind == GRAPH_MAP && step->hold != 0;
            arg->by_reader |= step->kind == GRAPH_RUN && other->mode == KERNEL_IN &&
                              step->answers[0] != NULL && !step->answers[0]->answered;
        }
    }
}

/* -------------------------------------------------------------------------------- steps */

/* The steps before it, back to the first of its launch, share its task. */
static void play_launch(struct graph *graph, struct graph_step *last, uint32_t index,
                        struct sim_client *client)
{
    struct sim_task task = new_task(client, PLASMON__V1__TASK_KIND__TASK_GRAPH_END, 0);
    struct sim_answer *answer;

    task.graph = last->recorded;
    if (last->launch == 0) {
        sim_client_record(client, &task);
        task.id = sim_client_id(client);
    }
    task.kind = PLASMON__V1__TASK_KIND__TASK_GRAPH_LAUNCH;
    answer    = sim_client_task(client, &task);
    for (uint32_t i = index + 1; i-- > 0 && graph->steps[i].recorded == last->recorded &&
                                 graph->steps[i].launch == last->launch;) {
        graph->steps[i].task       = task.id;
        graph->steps[i].answers[0] = answer;
    }
    if (last->last_launch) {
        sim_client_graph_release(client, last->recorded);
    }
}

static void play_run(struct graph *graph, struct graph_step *step, uint32_t index,
                     struct sim_client *client)
{
    struct sim_task task = new_task(client, PLASMON__V1__TASK_KIND__TASK_RUN, step->place);

    task.function     = step->function;
    task.arg_count    = step->arg_count;
    task.scalar_count = step->scalar_count;
    memcpy(task.scalars, step->scalars, sizeof(step->scalars));
    for (uint32_t i = 0; i < step->arg_count; i++) {
        if (step->args[i].mode == KERNEL_SCRATCH) {
            graph->refs[step->args[i].ref].id = 0; /* it has a shape and no ref */
        } else if (step->args[i].fresh) {
            graph->refs[step->args[i].ref].id = sim_client_id(client);
        } else {
            note_holders(graph, index, &step->args[i]);
        }
        wire_arg(graph, &step->args[i], &task.args[i]);
    }
    step->task         = task.id;
    task.time_limit_ms = step->time_limit_ms;
    if (step->lasts_us != 0) {
        PL_CHECK(pl_map_set(&client->sim->lasting, sim_task_key(client, task.id),
                            (void *)(uintptr_t)step->lasts_us) == PLASMON_OK);
    }
    if (step->recorded == 0) {
        step->answers[0] = sim_client_task(client, &task);
        return;
    }
    if (step->launch == 0) {
        task.graph = step->recorded;
        sim_client_record(client, &task);
    }
    if (step->last) {
        play_launch(graph, step, index, client);
    }
}

/* Do devices of its host copy from and to its memory? */
static bool host_copies(const struct sim_client *client)
{
    return client->copies_told == 0 || client->copies_told % 2 == 1;
}

static void play_put(struct graph *graph, struct graph_step *step,
                     struct sim_client *client)
{
    struct graph_ref *ref = &graph->refs[step->args[0].ref];
    uint64_t bytes        = pl_shape_bytes(&ref->root);
    uint64_t piece        = bytes / step->pieces;
    uint64_t done         = 0;

    ref->id = sim_client_id(client);
    if (step->pieces == 1 && (step - graph->steps) % 2 == 0 && host_copies(client)) {
        struct sim_task task =
            new_task(client, PLASMON__V1__TASK_KIND__TASK_PUT_HOST, step->place);

        wire_arg(graph, &step->args[0], &task.args[0]);
        task.arg_count   = 1;
        task.donatable   = step->donatable;
        task.host        = sim_host_create(client->sim, step->data, bytes);
        step->task       = task.id;
        step->answers[0] = sim_client_task(client, &task);
        return;
    }
    for (uint32_t i = 0; i < step->pieces; i++) {
        struct sim_task task =
            new_task(client, PLASMON__V1__TASK_KIND__TASK_PUT, step->place);

        wire_arg(graph, &step->args[0], &task.args[0]);
        task.arg_count   = 1;
        task.put_offset  = done;
        task.data        = step->data + done;
        task.data_length = i + 1 == step->pieces ? bytes - done : piece;
        task.donatable   = step->donatable;
        done += task.data_length;
        step->task       = task.id;
        step->answers[i] = sim_client_task(client, &task);
    }
}

static void play_put_shared(struct graph *graph, struct graph_step *step,
                            struct sim_client *client)
{
    struct graph_ref *ref = &graph->refs[step->args[0].ref];

    ref->id = sim_client_id(client);
    step->answers[0] =
        sim_client_put_open(client, ref->id, &ref->root, step->place, step->donatable);
    if (!wait_for(client->sim, client, step->answers[0])) {
        return;
    }
    if (step->answers[0]->status != PLASMON_OK) {
        sim_client_put_seal(client, ref->id, true);
        return;
    }
    sim_client_put_write(client, step->answers[0], step->data, pl_shape_bytes(&ref->root));
    sim_client_put_seal(client, ref->id, false);
}

static void play_snapshot(struct graph *graph, struct graph_step *step,
                          struct sim_client *client)
{
    struct sim_task task = new_task(client, PLASMON__V1__TASK_KIND__TASK_SNAPSHOT, 0);

    graph->refs[step->target].id = sim_client_id(client);
    wire_arg(graph, &step->args[0], &task.args[0]);
    task.args[1] =
        (struct sim_arg){.mode = KERNEL_OUT, .ref = graph->refs[step->target].id};
    task.arg_count   = 2;
    step->task       = task.id;
    step->answers[0] = sim_client_task(client, &task);
}

static uint64_t view_bytes(const struct graph *graph, const struct graph_arg *arg)
{
    struct pl_shape shape = pl_view_shape(&arg->view, graph->refs[arg->ref].dtype);

    return pl_shape_bytes(&shape);
}

static void play_read(struct graph *graph, struct graph_step *step,
                      struct sim_client *client)
{
    const struct graph_arg *arg = &step->args[0];

    if ((step - graph->steps) % 2 == 0 && host_copies(client)) { /* into host memory */
        struct sim_task task = new_task(client, PLASMON__V1__TASK_KIND__TASK_GET_HOST, 0);

        wire_arg(graph, arg, &task.args[0]);
        task.args[0].mode = KERNEL_IN;
        task.arg_count    = 1;
        task.host         = sim_host_create(client->sim, NULL, view_bytes(graph, arg));
        step->task        = task.id;
        step->answers[0]  = sim_client_task(client, &task);
        return;
    }
    step->answers[0] = sim_client_read(client, graph->refs[arg->ref].id,
                                       arg->kind == GRAPH_WHOLE ? NULL : &arg->view,
                                       view_bytes(graph, arg));
}

static void play_map(struct graph *graph, struct graph_step *step,
                     struct sim_client *client)
{
    const struct graph_arg *arg = &step->args[0];
    const struct graph_ref *ref = &graph->refs[arg->ref];

    step->hold = sim_client_id(client);
    step->answers[0] =
        sim_client_map(client, ref->id, arg->kind == GRAPH_WHOLE ? NULL : &arg->view,
                       &arg->root, &ref->root, step->hold);
}

static void play_unmap(struct graph *graph, struct graph_step *step,
                       struct sim_client *client)
{
    struct graph_step *map = &graph->steps[step->target];

    if (wait_for(client->sim, client, map->answers[0])) {
        sim_client_unmap(client, map->answers[0], map->hold);
        map->hold = 0;
    }
}

static void play_names(struct graph *graph, struct graph_step *step,
                       struct sim_client *client)
{
    char name[32];
    uint32_t publish =
        step->kind == GRAPH_PUBLISH ? (uint32_t)(step - graph->steps) : step->other;

    (void)snprintf(name, sizeof(name), "name %u", publish);
    switch (step->kind) {
    case GRAPH_PUBLISH:
        step->answers[0] =
            sim_client_publish(client, name, graph->refs[step->args[0].ref].id);
        break;
    case GRAPH_LOOKUP:
        graph->refs[step->target].id = sim_client_id(client);
        step->answers[0] = sim_client_lookup(client, name, graph->refs[step->target].id,
                                             &step->answers[1]);
        break;
    default:
        step->answers[0] = sim_client_publish(client, name, 0);
        break;
    }
    (void)wait_for(client->sim, client, step->answers[0]);
    if (!client->sim->failed && step->answers[0]->status != PLASMON_OK) {
        sim_fail(client->sim, "step %u: %s", (uint32_t)(step - graph->steps),
                 step->answers[0]->text);
    }
}

static void play_step(struct graph *graph, uint32_t index, struct sim *sim)
{
    struct graph_step *step   = &graph->steps[index];
    struct sim_client *client = &sim->clients[step->client];

    switch (step->kind) {
    case GRAPH_RUN:
        play_run(graph, step, index, client);
        break;
    case GRAPH_PUT:
        play_put(graph, step, client);
        break;
    case GRAPH_PUT_SHARED:
        play_put_shared(graph, step, client);
        break;
    case GRAPH_SNAPSHOT:
        play_snapshot(graph, step, client);
        break;
    case GRAPH_READ:
        play_read(graph, step, client);
        break;
    case GRAPH_MAP:
        play_map(graph, step, client);
        break;
    case GRAPH_UNMAP:
        play_unmap(graph, step, client);
        break;
    case GRAPH_RELEASE:
        sim_client_release(client, graph->refs[step->target].id);
        graph->refs[step->target].id = 0;
        break;
    case GRAPH_CANCEL:
        graph->steps[step->target].cancel_asked = true;
        sim_client_cancel(client, graph->steps[step->target].task, step->force);
        break;
    case GRAPH_PUBLISH:
    case GRAPH_LOOKUP:
    case GRAPH_UNPUBLISH:
        play_names(graph, step, client);
        break;
    }
    step->played = true;
    if (step->flush) {
        sim_client_flush(client);
    }
}

/* Read every live ref as a whole; the reads become steps, for the check. */
static void read_everything(struct graph *graph, struct sim *sim)
{
    for (uint32_t i = 0; i < graph->ref_count; i++) {
        struct graph_step *step;

        if (graph->refs[i].id == 0 || graph->step_count >= GRAPH_STEPS_MAX ||
            sim->clients[graph->refs[i].client].dead) {
            continue;
        }
        step            = &graph->steps[graph->step_count++];
        step->kind      = GRAPH_READ;
        step->client    = graph->refs[i].client;
        step->args[0]   = (struct graph_arg){.mode = KERNEL_IN,
                                             .ref  = i,
                                             .view = pl_view_whole(&graph->refs[i].shape),
                                             .root = graph->refs[i].base};
        step->arg_count = 1;
        play_step(graph, graph->step_count - 1, sim);
    }
    for (uint32_t i = 0; i < sim->config.clients; i++) {
        sim_client_flush(&sim->clients[i]);
    }
}

static void release_everything(struct graph *graph, struct sim *sim)
{
    if (graph->says_bye) {
        for (uint32_t i = 0; i < sim->config.clients; i++) {
            sim_client_bye(&sim->clients[i]);
        }
        return;
    }
    for (uint32_t i = 0; i < graph->ref_count; i++) {
        if (graph->refs[i].id != 0) {
            sim_client_release(&sim->clients[graph->refs[i].client], graph->refs[i].id);
            graph->refs[i].id = 0;
        }
    }
    for (uint32_t i = 0; i < sim->config.clients; i++) {
        sim_client_flush(&sim->clients[i]);
    }
}

/* All ways are there from now on: what could be read can still be read. */
static void read_when_healed(struct graph *graph, struct sim *sim)
{
    sim_ways_heal(sim);
    graph->end_again = graph->step_count;
    read_everything(graph, sim);
    (void)sim_run_until(sim, all_answered, sim);
}

/* The host is gone, or will not go. */
static bool drain_over(void *user)
{
    const struct until *until = user;

    return until->sim->gone_count > 0 || until->sim->now_ns >= until->at_ns;
}

static bool at_rest(void *user)
{
    const struct sim *sim = user;
    struct head_core_counts counts;
    uint64_t sessions = 0;

    for (uint32_t i = 0; i < sim->config.devices; i++) {
        if (!sim->workers[i].connected && !sim->workers[i].gone) {
            return false;
        }
    }
    for (uint32_t i = 0; i < sim->config.clients; i++) {
        if (!sim->clients[i].dead &&
            (!sim->clients[i].connected || !pl_list_empty(&sim->clients[i].outbox))) {
            return false;
        }
        sessions += !sim->clients[i].dead && !sim->clients[i].said_bye;
    }
    head_core_count(sim->head, &counts); /* a dead client's session goes after its lease */
    return sim->events.count == 0 && head_core_idle(sim->head) &&
           counts.clients <= sessions;
}

/* Nothing is under way, or nothing more will happen. */
static bool is_quiet(void *user)
{
    const struct sim *sim = user;

    return sim->events.count == 0 || (!sim_head_down(sim) && sim_journal_quiet(sim));
}

/*
 * A head that goes on from a checkpoint of all that the program made, and from nothing else:
 * everything can be read once more. Without this most checkpoints would be made at the beginning,
 * when there is little.
 */
static void go_on_from_checkpoint(struct graph *graph, struct sim *sim)
{
    (void)sim_run_until(sim, is_quiet, sim);
    if (!sim->failed && sim_journal_checkpoint(sim)) {
        sim_head_crash(sim);
        read_everything(graph, sim);
        (void)sim_run_until(sim, all_answered, sim);
    }
}

/* The head looks a few times a second: a program is long over by then, unless it waits. */
static void wait_for_drain(struct sim *sim)
{
    struct until until = {.sim = sim, .at_ns = sim->now_ns + DRAIN_WAIT_NS};

    (void)sim_run_until(sim, drain_over, &until);
}

/* Who reads a value may find no room for that. Whether it is still somewhere, the head says. */
static void note_losses(struct graph *graph, struct sim *sim)
{
    for (uint32_t i = 0; i < graph->ref_count && !sim_head_down(sim); i++) {
        struct graph_ref *ref           = &graph->refs[i];
        const struct sim_client *client = &sim->clients[ref->client];

        const char *why = NULL;

        if (ref->id != 0 && !client->dead) {
            why = sim_head_lacks(client, ref->id);
        }
        ref->lacks = why != NULL;
        if (ref->lacks) {
            sim_trace(sim, "the head has not all of r%u: %s", i, why);
        }
    }
}

bool graph_play(struct graph *graph, struct sim *sim)
{
    uint32_t steps = graph->step_count;
    bool waited    = graph->seed % 2 == 0; /* not before the end */

    for (uint32_t i = 0; i < steps && !sim->failed; i++) {
        struct until until = {.sim = sim, .at_ns = sim->now_ns + graph->steps[i].pause_ns};

        if (graph->steps[i].pause_ns > 0 && !graph->hurries) {
            if (graph->limits) { /* the next event may be the end of what does not end */
                sim_look_at(sim, graph->steps[i].pause_ns);
            }
            (void)sim_run_until(sim, time_came, &until);
        }
        if (graph->client_crashes && i == graph->crash_step) {
            sim_client_crash(&sim->clients[graph->crash_client]);
        }
        if (!sim->clients[graph->steps[i].client].dead) {
            play_step(graph, i, sim);
        }
        if (sim->drain_begun && !waited) {
            waited = true;
            wait_for_drain(sim);
        }
    }
    if (sim->drain_begun) {
        wait_for_drain(sim);
    }
    graph->end = steps;
    read_everything(graph, sim);
    (void)sim_run_until(sim, all_answered, sim);
    graph->end_again = GRAPH_STEPS_MAX;
    if (sim_ways(sim) && !sim->failed) {
        read_when_healed(graph, sim);
    }
    if (sim->config.journal && !sim->failed) {
        go_on_from_checkpoint(graph, sim);
    }

    if (!sim->failed) {
        note_losses(graph, sim);
    }

    /* From here on nothing breaks any more: what is left must go. */
    sim->config.crashes_max = sim->config.breaks_max = sim->config.head_crashes_max = 0;
    sim->config.head_stops_max                                                      = 0;
    sim->config.gone_max = sim->config.cuts_max = sim->config.stops_max = 0;
    sim->config.store_deaths_max = sim->config.spill_deaths_max = 0;
    if (!sim->failed) {
        sim_check(sim);
    }
    release_everything(graph, sim);
    (void)sim_run_until(sim, at_rest, sim);
    if (!sim->failed) {
        sim_check_empty(sim);
        sim_journal_check(sim);
    }
    return !sim->failed;
}
