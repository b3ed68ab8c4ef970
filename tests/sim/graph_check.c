/*
 * Every answer of a played program against the model, in the order of submission; and which cells
 * of the coverage table were really executed.
 *
 * WHAT MAY FAIL
 *   - a task with a failed input, and test_fail: they must fail
 *   - a task that was asked to be cancelled: ECANCELLED
 *   - one whose kernel takes longer than its limit: ETIMELIMIT. Nobody else may, and one that does
 *     not end must fail, in this way or another
 *   - after a fence, what a crash may cost, but nobody runs out of retries, and not ECONSUMED what
 *     lay behind a launch over its limit
 *   - after a crash (sim_losses.c says of which launches): ECONSUMED a task whose input a begun
 *     launch of the dead worker had written over; EWORKER one that had begun; EAGAIN a read whose
 *     bytes were on their way; EDEPENDENCY one whose first failure is such a task, or one of the
 *     head's own copies and folds, if one of those had begun
 *   - after a way between hosts was cut for longer than the head waits (sim_ways.c): whatever says
 *     that no bytes came by it, and what cannot be made again because something was overwritten
 *   - on a device with little memory: EDEVMEM, ELOST, EDEPENDENCY; EWORKER if it died before it
 *     told one of these. Which tasks depend on a copy of the head that found no room cannot be told
 *     from outside; but what is answered as done must be right in any case.
 * Everything else is an error, and so is a task that ends well on a failed input, and a value that
 * was made and is nowhere at the end because somebody else found no memory (check_kept).
 */
#include "tests/sim/graph.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"

struct check {
    struct graph *graph;
    struct sim *sim;
    struct graph_coverage *coverage;
    struct graph_array arrays[GRAPH_REFS_MAX];
    struct graph_array published[GRAPH_STEPS_MAX];
    bool launch_may_fail; /* the launch of a graph whose steps come just now */
};

/* ---------------------------------------------------------------------------- comparing */

static bool same_value(const uint8_t *a, const uint8_t *b, uint32_t dtype)
{
    if (dtype == PL_F32) {
        float x, y;

        memcpy(&x, a, sizeof(x));
        memcpy(&y, b, sizeof(y));
        return memcmp(a, b, 4) == 0 || (x != x && y != y);
    }
    if (dtype == PL_F64) {
        double x, y;

        memcpy(&x, a, sizeof(x));
        memcpy(&y, b, sizeof(y));
        return memcmp(a, b, 8) == 0 || (x != x && y != y);
    }
    return memcmp(a, b, pl_dtype_bytes(dtype)) == 0;
}

static void compare(struct check *check, uint32_t index, const struct graph_arg *arg,
                    const struct sim_answer *answer)
{
    const struct graph_array *array = &check->arrays[arg->ref];
    uint32_t bytes                  = pl_dtype_bytes(array->shape.dtype);
    uint64_t length;
    uint8_t *want = graph_array_show(array, &arg->root, &length);

    if (answer->length != length) {
        sim_fail(check->sim, "step %u gives %zu bytes, not %llu", index, answer->length,
                 (unsigned long long)length);
    }
    for (uint64_t i = 0; !check->sim->failed && i < length; i += bytes) {
        if (!same_value(want + i, answer->data + i, array->shape.dtype)) {
            struct pl_str text;

            pl_str_init(&text);
            for (uint32_t b = bytes; b-- > 0;) {
                pl_str_append(&text, "%02x", answer->data[i + b]);
            }
            pl_str_append(&text, ", not ");
            for (uint32_t b = bytes; b-- > 0;) {
                pl_str_append(&text, "%02x", want[i + b]);
            }
            sim_fail(check->sim, "step %u: element %llu of r%u (%s) is %s", index,
                     (unsigned long long)(i / bytes), arg->ref,
                     pl_dtype_name(array->shape.dtype), pl_str_text(&text));
            pl_str_finish(&text);
        }
    }
    pl_free(want);
}

static bool crashed_meanwhile(const struct sim *sim, const struct sim_answer *answer)
{
    for (size_t i = 0; i < sim->crash_times.count; i++) {
        uint64_t at = *(uint64_t *)pl_vec_at(&sim->crash_times, i);

        if (answer->asked_ns <= at && at <= answer->answered_ns) {
            return true;
        }
    }
    return false;
}

/* What crashes may have cost the launch behind an answer. Reads are launches of the head's own. */
static uint32_t losses_of(const struct check *check, const struct graph_step *step,
                          const struct sim_answer *answer)
{
    const struct sim *sim = check->sim;
    bool task = answer->kind != SIM_ANSWER_DATA && answer->kind != SIM_ANSWER_MAPPING;

    return sim_losses_of(sim,
                         task ? sim_task_key(&sim->clients[step->client], answer->id) : 0);
}

/*
 * ... and the task that an answer names as the first that failed, whichever client's. A task that
 * names itself, or none, failed because of a launch of the head's own.
 */
static uint32_t first_losses(const struct check *check, const struct sim_answer *answer)
{
    const struct sim *sim = check->sim;
    uint32_t losses       = 0;

    if (answer->first_task == 0 || answer->first_task == answer->id) {
        return sim_losses_of(sim, 0);
    }
    for (uint32_t i = 0; i < sim->config.clients; i++) {
        losses |= sim_losses_of(sim, sim_task_key(&sim->clients[i], answer->first_task));
    }
    return losses;
}

/* Does it need what lies in there already? A strided OUT keeps what lies between. */
static bool reads(const struct graph_arg *arg)
{
    return arg->mode == KERNEL_IN || arg->mode == KERNEL_INOUT ||
           (arg->mode == KERNEL_OUT && !pl_view_dense(&arg->root));
}

/*
 * What was put is there until a call that reads it is over; a read is asked again where it is by
 * then. At the end nobody has written over what it is to find.
 */
static bool arg_cut_off(const struct graph_array *array, const struct graph_arg *arg,
                        bool call, bool at_end)
{
    struct pl_box hull = pl_view_hull(&arg->root);

    return call     ? graph_array_cut(array, &hull)
           : at_end ? graph_array_losable(array, &hull)
                    : graph_array_rooted(array, &hull);
}

/* Does it need, or is it, what the head cannot make again? */
static bool cut_off(const struct check *check, const struct graph_step *step)
{
    bool at_end = step >= &check->graph->steps[check->graph->end];

    if (check->sim->config.lineage_bytes < 1 << 20 || step->kind == GRAPH_PUT ||
        step->kind == GRAPH_PUT_SHARED || step->recorded != 0) {
        return true;
    }
    for (uint32_t i = 0; i < step->arg_count; i++) {
        const struct graph_array *array = &check->arrays[step->args[i].ref];

        if (reads(&step->args[i]) && array->exists &&
            arg_cut_off(array, &step->args[i], step->kind == GRAPH_RUN, at_end)) {
            return true;
        }
    }
    return false;
}

/* known: graph_array_failed, say. */
static bool has_input(const struct check *check, const struct graph_step *step,
                      bool (*known)(const struct graph_array *array,
                                    const struct pl_box *box))
{
    for (uint32_t i = 0; i < step->arg_count; i++) {
        struct pl_box hull = pl_view_hull(&step->args[i].root);

        if (reads(&step->args[i]) && known(&check->arrays[step->args[i].ref], &hull)) {
            return true;
        }
    }
    return false;
}

/* Is what it makes lost for good when it is lost some time later? */
static bool is_rooted(const struct check *check, const struct graph_step *step)
{
    return cut_off(check, step) || has_input(check, step, graph_array_rooted);
}

/* A device, or a host, was lost for good. Who named a device may have named that one. */
static bool explained_by_loss(const struct check *check, const struct graph_step *step,
                              const struct sim_answer *answer)
{
    if (check->sim->drain_begun && (check->sim->drained || check->sim->gone_count == 0)) {
        /*
         * Nothing is lost; but the host takes nothing new: EINVAL is for a piece behind a first one
         * that was refused.
         */
        return step->place != 0 &&
               (answer->status == PLASMON_EWORKER ||
                (answer->status == PLASMON_EINVAL && step->kind == GRAPH_PUT));
    }
    if (check->sim->gone_count == 0) {
        return false;
    }
    switch (answer->status) {
    case PLASMON_ELOST:
    case PLASMON_ENOTREBUILDABLE:
    case PLASMON_ECONSUMED:
    case PLASMON_EDEPENDENCY:
        return cut_off(check, step) || step->cancel_asked; /* which nobody starts again */
    case PLASMON_EWORKER:
        if (strncmp(answer->text, "internal read", 13) == 0) {
            /* its own launch: it must have been asked for elsewhere */
            return strstr(answer->text, "cannot be run again") != NULL;
        }
        return cut_off(check, step) || step->cancel_asked || step->place != 0;
    case PLASMON_EINVAL: /* a piece behind a first one that was refused */
        return step->kind == GRAPH_PUT;
    case PLASMON_EUNREACHABLE: /* it had not heard that no device copies to its memory */
        return strcmp(check->sim->clients[step->client].host, "simhost") != 0 &&
               strstr(answer->text, "no device of the client's host") != NULL;
    default:
        return false;
    }
}

/*
 * A launch on a device that lives was sent to write over a version, and given up because something
 * else that it reads was lost with a worker. That version was made, by calls that could be run
 * again, of a put whose bytes they wrote over (docs/lineage.md, what cannot be made again): the
 * failure is of no launch that the loss touched.
 */
static bool put_was_consumed(const struct check *check, const struct graph_step *step,
                             const struct sim_answer *answer)
{
    return check->sim->crash_times.count > 0 && cut_off(check, step) &&
           strstr(answer->text, "overwritten in place; it was put") != NULL;
}

/* What could be read before all ways were there again can be read then. */
static bool explained_by_way(const struct check *check, const struct graph_step *step,
                             const struct sim_answer *answer)
{
    const struct graph *graph = check->graph;

    for (uint32_t i = graph->end;
         step >= &graph->steps[graph->end_again] && i < graph->end_again; i++) {
        if (graph->steps[i].args[0].ref == step->args[0].ref &&
            graph->steps[i].answers[0]->status == PLASMON_OK) {
            return false;
        }
    }
    return sim_ways_explain(check->sim, answer->text);
}

/*
 * Likewise, but what was given up was a transfer, and so a call or a fold is made again that it was
 * for: what it had read may have been written over since, by itself or by who was to come after it,
 * and be a put, or have been made without lineage.
 */
static bool overwritten_for_want_of_a_way(const struct check *check,
                                          const struct graph_step *step,
                                          const struct sim_answer *answer)
{
    return sim_ways_given_up(check->sim) && cut_off(check, step) &&
           (answer->status == PLASMON_EDEPENDENCY || answer->status == PLASMON_ECONSUMED) &&
           strstr(answer->text, "overwritten in place") != NULL;
}

/* A put that is to be in two places, when there are no two; and the pieces behind its first one. */
static bool refused_twice(const struct check *check, const struct graph_step *step,
                          const struct sim_answer *answer)
{
    const struct sim *sim = check->sim;
    uint32_t left         = 0;

    for (uint32_t i = 0; i < sim->config.devices; i++) {
        left += !sim->workers[i].gone;
    }
    /*
     * A host may have been given up, or be drained, or be out of reach, whatever is left of it; and
     * there may be no room.
     */
    return sim->config.replicas &&
           (left < 2 || sim->config.device_bytes != 0 ||
            (sim->config.second_host &&
             (sim->config.stores || sim->drain_begun || sim->way_cuts > 0))) &&
           (step->kind == GRAPH_PUT || step->kind == GRAPH_PUT_SHARED) &&
           (answer->status == PLASMON_EDEVMEM || step->pieces > 1);
}

/* Does something that is not in the program explain this failure? */
static bool explained(const struct check *check, const struct graph_step *step,
                      const struct sim_answer *answer)
{
    const struct sim *sim = check->sim;
    bool scarce           = sim->config.device_bytes != 0;
    uint32_t losses       = losses_of(check, step, answer);

    if (explained_by_loss(check, step, answer)) {
        return true;
    }
    if (strstr(answer->text, "no bytes went from device") != NULL) {
        check->coverage->unreached++;
        return explained_by_way(check, step, answer);
    }
    if (overwritten_for_want_of_a_way(check, step, answer)) {
        return true;
    }
    switch (answer->status) {
    case PLASMON_EINVAL:
        return refused_twice(check, step, answer);
    case PLASMON_ECANCELLED:
        return step->cancel_asked;
    case PLASMON_EUNREACHABLE: /* from memory of one host, onto a device of the other */
        return sim->config.second_host &&
               ((step->kind == GRAPH_PUT && step->place != 0) || step->kind == GRAPH_MAP);
    case PLASMON_ETIMELIMIT:
        return step->time_limit_ms != 0 && step->lasts_us > step->time_limit_ms * 1000;
    case PLASMON_ECONSUMED:
        return (losses & SIM_LOSS_CONSUMED) != 0 &&
               (cut_off(check, step) || step->cancel_asked);
    case PLASMON_EWORKER:
        return (losses & SIM_LOSS_BEGUN) != 0 || (scarce && /* what it had failed of, too */
                                                  crashed_meanwhile(sim, answer));
    case PLASMON_EAGAIN: /* libplasmon reads again */
        return answer->kind == SIM_ANSWER_DATA && crashed_meanwhile(sim, answer);
    case PLASMON_EDEVMEM:
        check->coverage->no_room++;
        return scarce || refused_twice(check, step, answer);
    case PLASMON_ELOST: /* a part of an array for which there was no room, or a second copy */
        return scarce || refused_twice(check, step, answer);
    case PLASMON_EDEPENDENCY:
        return scarce ||
               ((first_losses(check, answer) != 0 ||
                 (sim->config.shadow_bytes != 0 &&
                  losses != 0 /* more lies in pieces */)) &&
                cut_off(check, step)) ||
               (first_losses(check, answer) & SIM_LOSS_BEGUN) != 0 ||
               put_was_consumed(check, step, answer);
    default:
        return false;
    }
}

/* ----------------------------------------------------------------------------- coverage */

enum { HELD_BY_NONE, HELD_BY_SNAPSHOT, HELD_BY_MAPPING, HELD_BY_READER };
enum { FAILED_NONE, FAILED_INPUT, FAILED_CANCELLED, FAILED_CRASH };
enum { MODE_ROW_IN, MODE_ROW_OUT, MODE_ROW_INOUT, MODE_ROW_REDUCE, MODE_ROW_SCRATCH };

static uint32_t mode_row(uint32_t mode)
{
    switch (mode) {
    case KERNEL_IN:
        return MODE_ROW_IN;
    case KERNEL_OUT:
        return MODE_ROW_OUT;
    case KERNEL_INOUT:
        return MODE_ROW_INOUT;
    case KERNEL_REDUCE:
        return MODE_ROW_REDUCE;
    default:
        return MODE_ROW_SCRATCH;
    }
}

/* Device + 1 (of the host) where the task ran, or would have run; 0: nobody can say. */
static uint8_t ran_on(const struct check *check, const struct graph_step *step)
{
    struct sim *sim = check->sim;
    void *place =
        pl_map_get(&sim->ran_on, sim_task_key(&sim->clients[step->client], step->task));

    if (place != NULL) {
        return (uint8_t)(uintptr_t)place;
    }
    if (step->place != 0 && sim_worker_of(sim, step->place - 1) != NULL) {
        return (uint8_t)(sim_worker_of(sim, step->place - 1)->host_device + 1);
    }
    return 0;
}

static void count_cells(struct check *check, const struct graph_step *step,
                        const struct graph_arg *arg, uint32_t relation, uint32_t failure)
{
    uint64_t(*cell)[GRAPH_FAILURES] =
        check->coverage->cell[mode_row(arg->mode)][arg->kind][relation];

    if (!arg->by_snapshot && !arg->by_mapping && !arg->by_reader) {
        cell[HELD_BY_NONE][failure]++;
    }
    cell[HELD_BY_SNAPSHOT][failure] += arg->by_snapshot;
    cell[HELD_BY_MAPPING][failure] += arg->by_mapping;
    cell[HELD_BY_READER][failure] += arg->by_reader;
    (void)step;
}

static void cover(struct check *check, const struct graph_step *step, bool failed_input)
{
    const struct sim *sim           = check->sim;
    const struct sim_answer *answer = step->answers[0];
    uint8_t home                    = ran_on(check, step);
    bool crash                      = crashed_meanwhile(sim, answer);

    for (uint32_t i = 0; home != 0 && i < step->arg_count; i++) {
        const struct graph_arg *arg     = &step->args[i];
        const struct graph_array *array = &check->arrays[arg->ref];
        struct pl_box hull              = pl_view_hull(&arg->root);
        uint32_t relation =
            array->exists && !arg->fresh && graph_array_elsewhere(array, &hull, home);

        if (failed_input) {
            count_cells(check, step, arg, relation, FAILED_INPUT);
        } else if (answer->status == PLASMON_ECANCELLED) {
            count_cells(check, step, arg, relation, FAILED_CANCELLED);
        } else if (answer->status == PLASMON_OK) {
            count_cells(check, step, arg, relation, FAILED_NONE);
        }
        if (crash) {
            count_cells(check, step, arg, relation, FAILED_CRASH);
        }
    }
}

static const char *const mode_names[]     = {"in", "out", "inout", "reduce", "scratch"};
static const char *const kind_names[]     = {"whole", "dense", "strided", "overlapping",
                                             "nested"};
static const char *const relation_names[] = {"same device", "other device"};
static const char *const holder_names[]   = {"nobody", "snapshot", "mapping", "reader"};
static const char *const failure_names[]  = {"none", "failed input", "cancelled",
                                             "worker crash"};

/*
 * SCRATCH is fresh memory of its task: always whole, where the task runs, and nobody else has a
 * stake in it. It is written on the way to a failure as on the way to success, so all failures can
 * be met.
 */
static bool infeasible(uint32_t mode, uint32_t kind, uint32_t relation, uint32_t holder)
{
    return mode == MODE_ROW_SCRATCH &&
           (kind != GRAPH_WHOLE || relation != 0 || holder != HELD_BY_NONE);
}

uint32_t graph_coverage_missing(const struct graph_coverage *coverage, struct pl_str *out)
{
    uint32_t missing = 0;

    for (uint32_t m = 0; m < GRAPH_MODES; m++) {
        for (uint32_t i = 0;
             i < GRAPH_VIEW_KINDS * GRAPH_RELATIONS * GRAPH_HOLDERS * GRAPH_FAILURES; i++) {
            uint32_t f = i % GRAPH_FAILURES;
            uint32_t h = i / GRAPH_FAILURES % GRAPH_HOLDERS;
            uint32_t r = i / GRAPH_FAILURES / GRAPH_HOLDERS % GRAPH_RELATIONS;
            uint32_t k = i / GRAPH_FAILURES / GRAPH_HOLDERS / GRAPH_RELATIONS;

            if (!infeasible(m, k, r, h) && coverage->cell[m][k][r][h][f] == 0) {
                missing++;
                pl_str_append(out, "%s, %s, %s, held by %s, failure: %s\n", mode_names[m],
                              kind_names[k], relation_names[r], holder_names[h],
                              failure_names[f]);
            }
        }
    }
    return missing;
}

void graph_coverage_print(const struct graph_coverage *coverage)
{
    printf("# %llu graphs: %llu tasks (%llu done, %llu failed), %llu reads, %llu launches, "
           "%llu crashes, %llu broken connections, %llu starvations, %llu tasks replayed, "
           "%llu components of graphs launched by themselves\n",
           (unsigned long long)coverage->graphs, (unsigned long long)coverage->tasks,
           (unsigned long long)coverage->tasks_done,
           (unsigned long long)coverage->tasks_failed, (unsigned long long)coverage->reads,
           (unsigned long long)coverage->launches, (unsigned long long)coverage->crashes,
           (unsigned long long)coverage->breaks, (unsigned long long)coverage->starvations,
           (unsigned long long)coverage->replayed,
           (unsigned long long)coverage->components);
    printf("# executed arguments: none / failed input / cancelled / worker crash\n");
    for (uint32_t m = 0; m < GRAPH_MODES; m++) {
        for (uint32_t k = 0; k < GRAPH_VIEW_KINDS; k++) {
            for (uint32_t r = 0; r < GRAPH_RELATIONS; r++) {
                if (infeasible(m, k, r, HELD_BY_NONE)) {
                    continue;
                }
                printf("# %-7s %-11s %-12s", mode_names[m], kind_names[k],
                       relation_names[r]);
                for (uint32_t h = 0; h < GRAPH_HOLDERS; h++) {
                    const uint64_t *cell = coverage->cell[m][k][r][h];

                    printf("  %s %llu/%llu/%llu/%llu", holder_names[h],
                           (unsigned long long)cell[0], (unsigned long long)cell[1],
                           (unsigned long long)cell[2], (unsigned long long)cell[3]);
                }
                printf("\n");
            }
        }
    }
}

/* -------------------------------------------------------------------------------- tasks */

static void arrays_prepare(struct check *check, const struct graph_step *step)
{
    for (uint32_t i = 0; i < step->arg_count; i++) {
        const struct graph_arg *arg = &step->args[i];
        struct graph_array *array   = &check->arrays[arg->ref];

        if (arg->fresh) {
            graph_array_init(array, &check->graph->refs[arg->ref].root);
        }
    }
    for (uint32_t i = 0; i < step->arg_count; i++) {
        const struct graph_arg *arg = &step->args[i];
        struct graph_array *array   = &check->arrays[arg->ref];

        if (array->partials.count > 0 &&
            (arg->mode != KERNEL_REDUCE || array->partial_op != arg->reduce_op)) {
            graph_array_fold(array);
        }
    }
}

/* became: of what it writes, GRAPH_RIGHT or GRAPH_DOUBTFUL. */
static void execute(struct check *check, const struct graph_step *step, uint32_t index,
                    uint8_t became)
{
    struct kernel_arg args[SIM_ARGS_MAX];
    struct pl_err err = {0};
    uint8_t home      = ran_on(check, step);
    bool cut          = is_rooted(check, step);

    for (uint32_t i = 0; i < step->arg_count; i++) {
        const struct graph_arg *arg = &step->args[i];
        struct graph_array *array   = &check->arrays[arg->ref];
        struct pl_box hull          = pl_view_hull(&arg->root);

        if (arg->mode == KERNEL_REDUCE) {
            struct graph_partial *partial =
                graph_array_partial(array, &arg->root, arg->reduce_op);

            args[i]      = graph_partial_arg(array, partial, &arg->root, arg->reduce_op);
            partial->cut = cut;
            partial->doubtful = became == GRAPH_DOUBTFUL;
            continue;
        }
        args[i] = graph_array_arg(array, &arg->root, arg->mode);
        if (arg->mode != KERNEL_IN) {
            graph_array_mark(array, &hull, array->failed, became);
            graph_array_mark(array, &hull, array->home, home);
            graph_array_mark(array, &hull, array->cut, cut ? GRAPH_CUT : GRAPH_MADE);
        }
    }
    if (kernel_run_cpu_now(kernel_by_name(step->function), args, step->arg_count,
                           step->scalars, step->scalar_count, &err) != PLASMON_OK) {
        sim_fail(check->sim, "step %u: the reference fails: %s", index, err.text);
    }
}

static void fail_outputs(struct check *check, const struct graph_step *step)
{
    for (uint32_t i = 0; i < step->arg_count; i++) {
        const struct graph_arg *arg = &step->args[i];
        struct graph_array *array   = &check->arrays[arg->ref];
        struct pl_box hull          = pl_view_hull(&arg->root);

        if (arg->mode == KERNEL_REDUCE) {
            graph_array_partial(array, &arg->root, arg->reduce_op)->failed = true;
        } else if (arg->mode != KERNEL_IN) {
            graph_array_mark(array, &hull, array->failed, GRAPH_FAILED);
        }
    }
}

static struct pl_box joined(const struct pl_box *a, const struct pl_box *b)
{
    struct pl_box hull = *a;

    for (uint32_t i = 0; i < a->ndim; i++) {
        int64_t end_a = a->start[i] + a->count[i];
        int64_t end_b = b->start[i] + b->count[i];

        hull.start[i] = a->start[i] < b->start[i] ? a->start[i] : b->start[i];
        hull.count[i] = (end_a > end_b ? end_a : end_b) - hull.start[i];
    }
    return hull;
}

/*
 * One argument after another, from `from` on: all that they touch of the array of the first, as far
 * as it meets.
 */
static struct pl_box touched_together(const struct check *check, uint32_t from,
                                      uint32_t until, const struct graph_arg *first)
{
    struct pl_box hull = pl_view_hull(&first->root);
    bool grew          = true;

    while (grew) {
        grew = false;
        for (uint32_t s = from; s <= until; s++) {
            const struct graph_step *step = &check->graph->steps[s];

            for (uint32_t i = 0; i < step->arg_count; i++) {
                struct pl_box other = pl_view_hull(&step->args[i].root);

                if (step->args[i].ref == first->ref && pl_box_intersects(&hull, &other) &&
                    !pl_box_contains(&hull, &other)) {
                    hull = joined(&hull, &other);
                    grew = true;
                }
            }
        }
    }
    return hull;
}

/*
 * Of an array that it writes, a launch is told as one argument what its calls touch side by side.
 * So when it fails, what it only read there may count as failed, too.
 */
static void doubt_launch(struct check *check, const struct graph_step *last, uint32_t index)
{
    uint32_t from = index;

    while (from > 0 && check->graph->steps[from - 1].recorded == last->recorded &&
           check->graph->steps[from - 1].launch == last->launch) {
        from--;
    }
    for (uint32_t s = from; s <= index; s++) {
        const struct graph_step *step = &check->graph->steps[s];

        for (uint32_t i = 0; i < step->arg_count; i++) {
            struct graph_array *array = &check->arrays[step->args[i].ref];
            struct pl_box hull;

            if (step->args[i].mode == KERNEL_OUT || step->args[i].mode == KERNEL_INOUT) {
                hull = touched_together(check, from, index, &step->args[i]);
                graph_array_doubt(array, &hull);
            }
        }
    }
}

/* A launch that failed fails as one, and for the sake of any of its steps. */
static void check_recorded(struct check *check, const struct graph_step *step,
                           uint32_t index, bool failed_input)
{
    const struct sim_answer *answer = step->answers[0];
    const struct graph_step *before = step - 1;

    if (index == 0 || before->recorded != step->recorded ||
        before->launch != step->launch) {
        check->launch_may_fail = false;
    }
    check->launch_may_fail |= failed_input ||
                              has_input(check, step, graph_array_doubtful) ||
                              explained(check, step, answer);
    if (step->last && !check->launch_may_fail) {
        sim_fail(check->sim, "step %u: a launch should have ended well and failed: %s: %s",
                 index, pl_status_name(answer->status), answer->text);
    }
    if (failed_input) {
        fail_outputs(check, step);
    } else {
        execute(check, step, index, GRAPH_DOUBTFUL);
    }
    if (step->last) {
        doubt_launch(check, step, index);
    }
}

static void check_run(struct check *check, const struct graph_step *step, uint32_t index)
{
    const struct sim_answer *answer = step->answers[0];
    bool must_fail, failed_input;

    arrays_prepare(check, step);
    failed_input = has_input(check, step, graph_array_failed);
    must_fail    = failed_input || strcmp(step->function, "test_fail") == 0;
    check->coverage->tasks++;
    check->coverage->replayed += step->recorded != 0;
    cover(check, step, failed_input);
    if (answer->status == PLASMON_OK) {
        if (must_fail || step->endless) {
            sim_fail(check->sim, "step %u ended well and should have failed: %s", index,
                     failed_input    ? "an input failed"
                     : step->endless ? "its kernel does not end"
                                     : "it is test_fail");
        }
        check->coverage->tasks_done++;
        execute(check, step, index, GRAPH_RIGHT);
        return;
    }
    check->coverage->tasks_failed++;
    if (step->recorded != 0) {
        check_recorded(check, step, index, failed_input);
        return;
    }
    check->coverage->over_limit += answer->status == PLASMON_ETIMELIMIT;
    check->coverage->ended_by_force +=
        answer->status == PLASMON_ECANCELLED && step->endless;
    if (!must_fail && !has_input(check, step, graph_array_doubtful) &&
        !explained(check, step, answer)) {
        sim_fail(
            check->sim,
            "step %u (%s) should have ended well and failed: %s: %s; the first failure is "
            "task %llu's, losses: %u its own, %u the first's",
            index, step->function, pl_status_name(answer->status), answer->text,
            (unsigned long long)answer->first_task, losses_of(check, step, answer),
            first_losses(check, answer));
    }
    if (must_fail && !failed_input && answer->status != PLASMON_EFUNCTION &&
        !explained(check, step, answer)) {
        sim_fail(check->sim, "step %u is test_fail and failed with %s: %s", index,
                 pl_status_name(answer->status), answer->text);
    }
    fail_outputs(check, step);
}

/*
 * Only its client has the bytes. They are not lost as long as the device is there to which they
 * went, unless the client allows that they are written over; where that is full they may be brought
 * back to another one.
 */
static uint8_t put_marks(const struct check *check, const struct graph_step *step)
{
    struct sim *sim = check->sim;
    uint8_t home    = ran_on(check, step);

    if (sim->config.patient) {
        return GRAPH_PUT_TWICE;
    }
    if (step->kind == GRAPH_PUT_SHARED && step->answers[0]->status == PLASMON_OK) {
        home = (uint8_t)(sim->owner_of[wire_buffer_device(step->answers[0]->buffer)] + 1);
    }
    return step->donatable || home == 0 || sim->workers[home - 1].gone ||
                   sim->config.spill_memory != 0 ||
                   sim_node_of(&sim->workers[home - 1])->counted
               ? GRAPH_CUT
               : GRAPH_PUT_HERE;
}

static void check_put(struct check *check, const struct graph_step *step, uint32_t index)
{
    struct graph_array *array = &check->arrays[step->args[0].ref];
    struct pl_box all = pl_box_of_shape(&check->graph->refs[step->args[0].ref].root);
    uint32_t answers  = step->kind == GRAPH_PUT ? step->pieces : 1;
    bool failed       = false;

    graph_array_init(array, &check->graph->refs[step->args[0].ref].root);
    memcpy(array->bytes, step->data, pl_shape_bytes(&array->shape));
    for (uint32_t i = 0; i < answers; i++) {
        const struct sim_answer *answer = step->answers[i];

        if (answer->status != PLASMON_OK) {
            failed = true;
            if (!explained(check, step, answer)) {
                sim_fail(check->sim, "step %u: a put failed: %s: %s", index,
                         pl_status_name(answer->status), answer->text);
            }
        }
    }
    graph_array_mark(array, &all, failed ? array->failed : array->home,
                     failed ? 1 : ran_on(check, step));
    graph_array_mark(array, &all, array->cut, put_marks(check, step));
}

/* READ and MAP. */
static void check_data(struct check *check, const struct graph_step *step, uint32_t index)
{
    const struct graph_arg *arg     = &step->args[0];
    const struct sim_answer *answer = step->answers[0];
    struct graph_array *array       = &check->arrays[arg->ref];
    struct pl_box hull              = pl_view_hull(&arg->root);
    bool failed;

    graph_array_fold(array);
    failed = graph_array_failed(array, &hull);
    check->coverage->reads++;
    if (answer->status == PLASMON_OK) {
        if (failed) {
            sim_fail(check->sim, "step %u gives bytes of a failed version", index);
        } else {
            compare(check, index, arg, answer);
        }
    } else if (!failed && !graph_array_doubtful(array, &hull) &&
               !explained(check, step, answer) &&
               !(step->kind == GRAPH_MAP &&
                 (answer->status == PLASMON_EAGAIN || answer->status == PLASMON_ELOST) &&
                 check->sim->crash_count + check->sim->fence_count +
                         check->sim->gone_count >
                     0)) {
        sim_fail(check->sim, "step %u should give bytes and failed: %s: %s", index,
                 pl_status_name(answer->status), answer->text);
    }
}

static void check_snapshot(struct check *check, const struct graph_step *step,
                           uint32_t index)
{
    struct graph_array *from = &check->arrays[step->args[0].ref];

    graph_array_fold(from);
    graph_array_copy(&check->arrays[step->target], from);
    if (step->answers[0]->status != PLASMON_OK) {
        sim_fail(check->sim, "step %u: a snapshot failed: %s", index,
                 step->answers[0]->text);
    }
}

/* Has something happened that the program does not know of, and that may cost it values? */
static bool anything_lost(const struct sim *sim)
{
    return sim->crash_count + sim->fence_count + sim->gone_count > 0 ||
           sim->config.device_bytes != 0 || sim->drain_begun || sim_ways_given_up(sim);
}

/*
 * Who let go of what it had found, or wrote over it, is told that it is over when that is lost and
 * nobody else wants it: it is not made again.
 */
static bool let_go(const struct graph *graph, const struct graph_step *look)
{
    for (const struct graph_step *step = look + 1; step < &graph->steps[graph->end];
         step++) {
        if (step->kind == GRAPH_RELEASE && step->target == look->target) {
            return true;
        }
        for (uint32_t i = 0; step->kind == GRAPH_RUN && i < step->arg_count; i++) {
            if (step->args[i].ref == look->target && step->args[i].mode != KERNEL_IN) {
                return true;
            }
        }
    }
    return false;
}

/* Who looks something up is told of its end what the client is told whose task makes it. */
static void check_lookup(struct check *check, const struct graph_step *step, uint32_t index)
{
    struct graph_array *array      = &check->arrays[step->target];
    struct pl_box hull             = pl_view_hull(&check->graph->refs[step->target].base);
    const struct sim_answer *found = step->answers[0], *made = step->answers[1];
    bool failed;

    graph_array_copy(array, &check->published[step->other]);
    failed = graph_array_failed(array, &hull);
    check->coverage->found_late += made->answered_ns > found->answered_ns;
    check->coverage->found_failed += made->status != PLASMON_OK;
    if (made->status == PLASMON_OK && failed &&
        !(anything_lost(check->sim) && let_go(check->graph, step))) {
        sim_fail(check->sim, "step %u is told that a failed version was made", index);
    } else if (made->status != PLASMON_OK && !failed &&
               !graph_array_doubtful(array, &hull) && !anything_lost(check->sim)) {
        sim_fail(check->sim, "step %u is told that a good version has failed: %s: %s",
                 index, pl_status_name(made->status), made->text);
    }
}

static void check_step(struct check *check, uint32_t index)
{
    const struct graph_step *step = &check->graph->steps[index];

    switch (step->kind) {
    case GRAPH_RUN:
        check_run(check, step, index);
        break;
    case GRAPH_PUT:
    case GRAPH_PUT_SHARED:
        check_put(check, step, index);
        break;
    case GRAPH_SNAPSHOT:
        check_snapshot(check, step, index);
        break;
    case GRAPH_READ:
    case GRAPH_MAP:
        check_data(check, step, index);
        break;
    case GRAPH_PUBLISH:
        graph_array_fold(&check->arrays[step->args[0].ref]);
        graph_array_copy(&check->published[index], &check->arrays[step->args[0].ref]);
        break;
    case GRAPH_LOOKUP:
        check_lookup(check, step, index);
        break;
    case GRAPH_RELEASE:
    case GRAPH_CANCEL:
    case GRAPH_UNMAP:
    case GRAPH_UNPUBLISH:
        break;
    }
}

/*
 * Little memory costs those that find none, and nobody else: what was made well, and a client still
 * shows, is somewhere, in whatever memory. But for what was to be added up when it is read: that
 * may find no room then.
 */
static void check_kept(struct check *check)
{
    const struct sim *sim     = check->sim;
    const struct graph *graph = check->graph;

    if (sim->crash_times.count > 0 || sim->gone_count > 0 || sim->drain_begun ||
        sim_ways_given_up(sim)) {
        return;
    }
    for (uint32_t i = 0; i < graph->ref_count; i++) {
        const struct graph_ref *ref     = &graph->refs[i];
        const struct graph_array *array = &check->arrays[i];
        struct pl_box all               = pl_box_of_shape(&ref->root);

        if (array->exists && ref->lacks && !array->folded &&
            !graph_array_failed(array, &all) && !graph_array_doubtful(array, &all)) {
            sim_fail(check->sim, "r%u was made, and the head has some of it nowhere", i);
        }
        check->coverage->kept += array->exists && !ref->lacks;
    }
}

bool graph_check(struct graph *graph, struct sim *sim, struct graph_coverage *coverage)
{
    struct check *check = sim_alloc(sizeof(*check));
    struct head_spill_counts spilled;
    struct head_lineage_counts lineage;

    check->graph    = graph;
    check->sim      = sim;
    check->coverage = coverage;
    for (uint32_t i = 0; i < graph->step_count && !sim->failed; i++) {
        if (!sim->clients[graph->steps[i].client].dead) {
            /* nobody was told how those ended */
            check_step(check, i);
        }
    }
    if (!sim->failed) {
        check_kept(check);
    }
    coverage->graphs++;
    coverage->crashes += sim->crash_count;
    coverage->breaks += sim->break_count;
    coverage->fences += sim->fence_count;
    coverage->gone += sim->gone_count;
    coverage->drained += sim->drained && sim->gone_count > 0;
    for (uint32_t i = 0; i < SIM_CELL_COUNT; i++) {
        coverage->met[i] += sim->met[i];
    }
    head_core_lineage(sim->head, &lineage);
    coverage->rebuilt += lineage.rebuilt_tasks;
    coverage->shadows += lineage.shadows;
    coverage->given_back += lineage.given_back;
    head_core_spill_count(sim->head, &spilled);
    coverage->components += head_core_components(sim->head);
    coverage->spills += spilled.spills;
    coverage->restores += spilled.restores;
    coverage->write_backs += spilled.write_backs;
    coverage->write_back_cancels += spilled.write_back_cancels;
    coverage->spill_deaths += sim->spill_deaths;
    coverage->spills_undone += spilled.undone;
    coverage->relieved += spilled.relieved;
    coverage->relieved_spills += spilled.relieved_spills;
    coverage->relieved_in_vain += spilled.relieved_in_vain;
    coverage->spills_stranded += spilled.stranded;
    coverage->file_writes += spilled.writes;
    coverage->file_reads += spilled.reads;
    coverage->slab_moves += sim->slab_moves;
    coverage->head_crashes += sim->head_process.crashes;
    coverage->inputs_replayed += sim->head_process.replayed;
    coverage->checkpoints += sim->head_process.checkpoints;
    coverage->checkpoints_spilled += sim->head_process.checkpoints_spilled;
    coverage->checkpoints_graphs += sim->head_process.checkpoints_graphs;
    coverage->checkpoints_lineage += sim->head_process.checkpoints_lineage;
    for (uint32_t i = 0; i < sim->config.devices; i++) {
        coverage->starvations += sim->workers[i].starvations;
        coverage->launches += sim->workers[i].launches_run;
    }
    for (uint32_t i = 0; i < GRAPH_REFS_MAX; i++) {
        graph_array_finish(&check->arrays[i]);
    }
    for (uint32_t i = 0; i < GRAPH_STEPS_MAX; i++) {
        graph_array_finish(&check->published[i]);
    }
    pl_free(check);
    return !sim->failed;
}

bool graph_run(uint64_t seed, const struct graph_profile *profile,
               struct graph_coverage *coverage, bool print)
{
    struct graph *graph = graph_make(seed, profile);
    struct sim *sim     = NULL;
    struct pl_str text;
    bool ok;

    ok = sim_create(&graph->config, &sim) == PLASMON_OK && graph_play(graph, sim) &&
         graph_check(graph, sim, coverage);
    if (!ok && print) {
        pl_str_init(&text);
        graph_describe(graph, 0, &text);
        printf("%s%s\n", pl_str_text(&text), sim->failure);
        pl_str_finish(&text);
        (void)fflush(stdout);
    }
    sim_destroy(sim);
    graph_destroy(graph);
    return ok;
}
