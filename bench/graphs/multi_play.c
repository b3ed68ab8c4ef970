/*
 * A graph for several devices on Plasmon: arrays are one object each, parts of them are views,
 * steps name parts. The first steps make the inputs where the person would have put them, so that
 * an array begins spread out; from then on the policy places the steps, or, to compare with, each
 * is asked for on the person's device.
 */
#include <stdio.h>
#include <unistd.h>

#include "base/alloc.h"
#include "bench/graphs/multi.h"
#include "bench/graphs/play.h"

#define TIME_LIMIT_S  240u /* of the child: a cluster that hangs ends with it */
#define IN_FLIGHT_MAX 256u
#define TRACED_RUNS   4u /* the first is dear: events for timestamps are made */

struct play {
    const struct graphs_multi *config;
    const struct graphs_graph *graph;
    struct bench_cluster cluster;
    struct plasmon_ref **whole;  /* an array each; scratch has none */
    struct plasmon_ref ***parts; /* an array each: its views; NULL for whole arrays */
    struct plasmon_graph *recorded;
    bool pinned;        /* runs under way: each step on the person's device */
    uint32_t in_flight; /* runs of a sample, all enqueued before the first is waited for */
};

/* ------------------------------------------------------------------------------- arrays */

/* Zeros, made on device 0: what steps write is elsewhere from then on. */
static struct plasmon_ref *make_zeros(struct play *play, const struct graphs_array *array)
{
    bool real = array->shape.dtype == PLASMON_F32 || array->shape.dtype == PLASMON_F64;
    const plasmon_scalar_t zero = {.i = 0}; /* of f too: all bits are 0 */

    return bench_must_make(&play->cluster, real ? "fill" : "fill_int", &array->shape, &zero,
                           1, play->cluster.info[0].index);
}

static struct plasmon_ref *make_view(struct play *play, uint32_t number, uint32_t part)
{
    const struct graphs_array *array = graphs_array_at(play->graph, number);
    int64_t start[PLASMON_DIM_MAX]   = {0}, count[PLASMON_DIM_MAX];
    struct plasmon_ref *view;

    for (uint32_t i = 0; i < array->shape.ndim; i++) {
        count[i] = array->shape.dim[i];
    }
    count[0] /= array->parts;
    start[0] = count[0] * part;
    bench_must(
        &play->cluster,
        plasmon_view(play->cluster.client, play->whole[number], start, count, NULL, &view),
        "a view");
    return view;
}

static void make_arrays(struct play *play)
{
    size_t arrays = play->graph->arrays.count;

    play->whole = bench_must_alloc(arrays * sizeof(*play->whole));
    play->parts = bench_must_alloc(arrays * sizeof(*play->parts));
    for (uint32_t i = 0; i < arrays; i++) {
        const struct graphs_array *array = graphs_array_at(play->graph, i);

        if (array->role == GRAPHS_SCRATCH) {
            continue;
        }
        play->whole[i] = array->role == GRAPHS_INPUT
                             ? graphs_play_put(&play->cluster, array, PLASMON_ANYWHERE)
                             : make_zeros(play, array);
        if (array->parts > 1) {
            play->parts[i] = bench_must_alloc(array->parts * sizeof(**play->parts));
            for (uint32_t part = 0; part < array->parts; part++) {
                play->parts[i][part] = make_view(play, i, part);
            }
        }
    }
}

static void finish_arrays(struct play *play)
{
    for (uint32_t i = 0; i < play->graph->arrays.count; i++) {
        pl_free(play->parts[i]); /* the views end with the session */
    }
    pl_free(play->parts);
    pl_free(play->whole);
}

/* ------------------------------------------------------------------------------ one run */

static void submit(struct play *play, uint32_t number, bool hinted)
{
    const struct graphs_step *step = graphs_step_at(play->graph, number);
    struct plasmon_shape scratch[GRAPHS_PARAMS_MAX];
    plasmon_scalar_t scalars[GRAPHS_PARAMS_MAX];
    struct plasmon_arg args[GRAPHS_PARAMS_MAX];
    struct plasmon_call call = PLASMON_CALL_INIT;

    for (uint32_t i = 0; i < step->param_count; i++) {
        const struct graphs_param *param = &step->param[i];
        struct plasmon_arg *arg          = &args[call.arg_count];

        if (param->kind != GRAPHS_TENSOR) {
            scalars[call.scalar_count++] = param->value;
            continue;
        }
        *arg = (struct plasmon_arg){.mode = param->mode};
        if (param->mode == PLASMON_SCRATCH) {
            scratch[i] = graphs_array_at(play->graph, param->array)->shape;
            scratch[i].dim[0] /=
                param->is_part ? graphs_array_at(play->graph, param->array)->parts : 1;
            arg->shape = &scratch[i];
        } else {
            arg->ref = param->is_part ? play->parts[param->array][param->part]
                                      : play->whole[param->array];
        }
        call.arg_count++;
    }
    call.function     = play->graph->definition->kernels[step->kernel].name;
    call.args         = args;
    call.scalars      = scalars;
    call.shared_bytes = step->launch.shared_bytes;
    memcpy(call.grid, step->launch.grid, sizeof(call.grid));
    memcpy(call.block, step->launch.block, sizeof(call.block));
    if (hinted) {
        uint32_t device = graphs_device_of(play->graph, step->place, play->cluster.devices);

        call.device = play->cluster.info[device].index;
    }
    bench_must(&play->cluster, plasmon_submit(play->cluster.client, &call, NULL, NULL),
               call.function);
}

static void submit_run(struct play *play)
{
    for (uint32_t i = play->graph->init_steps; i < play->graph->steps.count; i++) {
        submit(play, i, play->pinned);
    }
}

static void wait_for_outputs(struct play *play)
{
    for (uint32_t i = 0; i < play->graph->arrays.count; i++) {
        if (graphs_array_at(play->graph, i)->role == GRAPHS_OUTPUT) {
            bench_must_wait(&play->cluster, &play->whole[i], 1);
        }
    }
}

static plasmon_status_t once_plain(void *user, struct pl_err *err)
{
    struct play *play = user;

    (void)err; /* bench_must... says what failed, and ends the child */
    for (uint32_t run = 0; run < play->in_flight; run++) {
        submit_run(play);
    }
    wait_for_outputs(play);
    return PLASMON_OK;
}

static plasmon_status_t once_replay(void *user, struct pl_err *err)
{
    struct play *play = user;
    struct plasmon_ref *tasks[IN_FLIGHT_MAX];

    (void)err;
    for (uint32_t run = 0; run < play->in_flight; run++) {
        bench_must(&play->cluster,
                   plasmon_graph_launch(play->cluster.client, play->recorded, NULL, 0, NULL,
                                        0, &tasks[run]),
                   "launching a recorded graph");
    }
    bench_must_wait(&play->cluster, tasks, play->in_flight);
    bench_must_release(&play->cluster, tasks, play->in_flight);
    return PLASMON_OK;
}

static void record(struct play *play)
{
    bench_must(&play->cluster, plasmon_graph_begin(play->cluster.client, &play->recorded),
               "recording");
    submit_run(play);
    bench_must(&play->cluster, plasmon_graph_end(play->cluster.client, play->recorded),
               "recording");
}

/* -------------------------------------------------------------------- right before fast */

static void check(struct play *play, const char *how)
{
    for (size_t i = 0; i < play->graph->expects.count; i++) {
        const struct graphs_expect *expect = pl_vec_at(&play->graph->expects, i);
        uint64_t bytes    = graphs_array_at(play->graph, expect->array)->bytes;
        void *got         = graphs_must_map(bytes);
        struct pl_err err = {0};

        bench_must(&play->cluster,
                   plasmon_get(play->cluster.client, play->whole[expect->array], got, bytes,
                               PLASMON_FOREVER),
                   "getting a result");
        if (!graphs_compare(play->graph, expect, got, &err)) {
            bench_die("plasmon on %u devices, %s, %s: %s", play->cluster.devices,
                      play->config->policy, how, err.text);
        }
        graphs_unmap(got, bytes);
    }
}

static void start(struct play *play)
{
    struct bench_cluster_config config = {.policy     = play->config->policy,
                                          .is_private = true};
    char gpus[12];

    (void)alarm(TIME_LIMIT_S);
    (void)snprintf(gpus, sizeof(gpus), "%u", play->config->devices);
    config.gpus        = play->config->run.cuda ? gpus : "none";
    config.cpu_devices = play->config->run.cuda ? 0 : play->config->devices;
    bench_must_start(&play->cluster, &config);
    graphs_play_register(&play->cluster, play->graph->definition);
    make_arrays(play);
    for (uint32_t i = 0; i < play->graph->init_steps; i++) {
        submit(play, i, true);
    }
}

static const char *const names[GRAPHS_MULTI_FIGURES] = {
    "plain", "plain, in flight", "replay", "replay, in flight", "pinned"};

static bool is_replay(enum graphs_multi_figure figure)
{
    return figure == GRAPHS_MULTI_REPLAY || figure == GRAPHS_MULTI_REPLAY_FLIGHT;
}

/* Some runs more, after those that are timed: a launch has two timestamps now. */
static plasmon_status_t trace(struct play *play, enum graphs_multi_figure figure,
                              plasmon_status_t (*once)(void *user, struct pl_err *err),
                              struct pl_err *err)
{
    const struct graphs_multi *config = play->config;
    char path[512];
    int length = snprintf(path, sizeof(path), "%s/%s-%u-%s%s%s.json", config->traces,
                          play->graph->definition->option, config->devices,
                          figure == GRAPHS_MULTI_PINNED ? "pinned" : config->policy,
                          is_replay(figure) ? "-replay" : "",
                          graphs_multi_is_flight(figure) ? "-flight" : "");

    if (length < 0 || (size_t)length >= sizeof(path)) {
        return pl_err_set(err, PLASMON_EINVAL, "--traces: the folder's name is too long");
    }
    bench_must(&play->cluster, plasmon_timeline_start(play->cluster.client, NULL),
               "recording a timeline");
    play->in_flight = graphs_multi_is_flight(figure) ? TRACED_RUNS : 1;
    for (uint32_t i = 0; i < TRACED_RUNS / play->in_flight; i++) {
        (void)once(play, err); /* bench_must... ends the child */
    }
    bench_must(&play->cluster, plasmon_timeline_stop(play->cluster.client),
               "recording a timeline");
    bench_must(&play->cluster, plasmon_timeline_write(play->cluster.client, path, NULL),
               path);
    return PLASMON_OK;
}

/* Once to see that it is right, then often. */
static plasmon_status_t measure(struct play *play, enum graphs_multi_figure figure,
                                double *result, struct pl_err *err)
{
    plasmon_status_t status;
    plasmon_status_t (*once)(void *user, struct pl_err *err) =
        is_replay(figure) ? once_replay : once_plain;

    if (figure == GRAPHS_MULTI_REPLAY) {
        record(play);
    }
    play->pinned    = figure == GRAPHS_MULTI_PINNED;
    play->in_flight = graphs_multi_in_flight(play->config, figure);
    (void)once(play, err); /* bench_must... ends the child */
    check(play, names[figure]);
    status = graphs_multi_time(play->config, once, play, figure, result, err);
    return status == PLASMON_OK && play->config->traces != NULL
               ? trace(play, figure, once, err)
               : status;
}

plasmon_status_t graphs_multi_play_run(const void *user, double *result, size_t count,
                                       struct pl_err *err)
{
    const struct graphs_multi *config = user;
    struct play play                  = {.config = config, .graph = config->run.graph};
    plasmon_status_t status;

    if (count != GRAPHS_MULTI_RESULTS) {
        return pl_err_set(err, PLASMON_EINVAL, "no room for the figures");
    }
    for (size_t i = 0; i < count; i++) {
        result[i] = -1;
    }
    start(&play);
    status = measure(&play, GRAPHS_MULTI_PLAIN, result, err);
    if (status == PLASMON_OK && config->flight) {
        status = measure(&play, GRAPHS_MULTI_PLAIN_FLIGHT, result, err);
    }
    if (status == PLASMON_OK && config->replay) {
        status = measure(&play, GRAPHS_MULTI_REPLAY, result, err);
    }
    if (status == PLASMON_OK && config->replay && config->flight) {
        status = measure(&play, GRAPHS_MULTI_REPLAY_FLIGHT, result, err);
    }
    if (status == PLASMON_OK && config->pinned) { /* last: it moves what lies elsewhere */
        status = measure(&play, GRAPHS_MULTI_PINNED, result, err);
    }
    bench_cluster_finish(&play.cluster);
    finish_arrays(&play);
    return status;
}
