/*
 * A graph on Plasmon, through the public calls alone: kernels become functions from their texts and
 * signatures, arrays become refs, steps become tasks. No stream, no event, no order: what may run
 * at the same time follows from the signatures.
 *
 *   plain    every run submits every step again, into the same refs, and waits for the outputs
 *   replay   the steps are recorded once, and a run is one launch
 *
 * COLD  A run puts every input anew, from memory of plasmon_host_alloc(), and gets every output
 *       into such memory; what a run puts, computes and gets is enqueued without waiting for
 *       anything.
 * PAGEABLE  The same from and to ordinary memory: plasmon_put() and plasmon_get(), which waits.
 *
 * Runs in a child of the benchmark, on one device of a cluster of its own (or of PLASMON_ADDRESS).
 */
#include "bench/graphs/bare.h"

#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "bench/graphs/play.h"
#include "bench/graphs/table.h"

#define IN_FLIGHT_MAX 256u
#define TIME_LIMIT_S  240u /* of the child: a cluster that hangs ends with it */

/* ---------------------------------------------------------------------------- functions */

void graphs_play_register(struct bench_cluster *cluster,
                          const struct graphs_definition *definition)
{
    struct plasmon_source_options options = PLASMON_SOURCE_OPTIONS_INIT;

    options.c_text = definition->c_text();
    for (uint32_t i = 0; i < definition->kernel_count; i++) {
        const struct graphs_kernel *kernel = &definition->kernels[i];

        bench_must(cluster,
                   plasmon_function_source(cluster->client, kernel->name,
                                           definition->cuda_text(), kernel->signature,
                                           &options),
                   kernel->name);
    }
    for (uint32_t i = 0; i < definition->kernel_count; i++) {
        const char *name = definition->kernels[i].name;

        bench_must(cluster, plasmon_function_wait(cluster->client, name, PLASMON_FOREVER),
                   name);
    }
}

/* ------------------------------------------------------------------------------- arrays */

struct plasmon_ref *graphs_play_put(struct bench_cluster *cluster,
                                    const struct graphs_array *array, int device)
{
    struct plasmon_put_options options = PLASMON_PUT_INIT;
    void *zeros = array->data == NULL ? bench_must_alloc(array->bytes) : NULL;
    struct plasmon_ref *ref;

    options.device    = device;
    options.donatable = array->role == GRAPHS_STATE; /* nobody wants the zeros again */
    bench_must(cluster,
               plasmon_put(cluster->client, array->data != NULL ? array->data : zeros,
                           &array->shape, &options, &ref),
               "putting an input");
    pl_free(zeros);
    return ref;
}

/* ----------------------------------------------------------------------------- one step */

/* Submits a step. refs: one an array; a NULL that the step writes is made. */
static void play_step(struct bench_cluster *cluster, const struct graphs_graph *graph,
                      uint32_t number, struct plasmon_ref **refs, int device)
{
    const struct graphs_step *step = graphs_step_at(graph, number);
    plasmon_scalar_t scalars[GRAPHS_PARAMS_MAX];
    struct plasmon_arg args[GRAPHS_PARAMS_MAX];
    struct plasmon_ref *made[GRAPHS_PARAMS_MAX];
    uint32_t made_array[GRAPHS_PARAMS_MAX], made_count = 0;
    struct plasmon_call call = PLASMON_CALL_INIT;

    for (uint32_t i = 0; i < step->param_count; i++) {
        const struct graphs_param *param = &step->param[i];
        const struct graphs_array *array;

        if (param->kind != GRAPHS_TENSOR) {
            scalars[call.scalar_count++] = param->value;
            continue;
        }
        array                  = graphs_array_at(graph, param->array);
        args[call.arg_count++] = (struct plasmon_arg){
            .mode  = param->mode,
            .ref   = param->mode == PLASMON_SCRATCH ? NULL : refs[param->array],
            .shape = &array->shape};
        if (param->mode == PLASMON_OUT && refs[param->array] == NULL) {
            made_array[made_count++] = param->array;
        } else if (param->mode != PLASMON_SCRATCH) {
            args[call.arg_count - 1].shape = NULL;
        }
    }
    call.function     = graph->definition->kernels[step->kernel].name;
    call.args         = args;
    call.scalars      = scalars;
    call.device       = device;
    call.shared_bytes = step->launch.shared_bytes;
    memcpy(call.grid, step->launch.grid, sizeof(call.grid));
    memcpy(call.block, step->launch.block, sizeof(call.block));
    bench_must(cluster, plasmon_submit(cluster->client, &call, made, NULL), call.function);
    for (uint32_t i = 0; i < made_count; i++) {
        refs[made_array[i]] = made[i];
    }
}

/* ------------------------------------------------------------------------------ one run */

struct play {
    const struct graphs_run *run;
    const struct graphs_graph *graph;
    struct bench_cluster cluster;
    int device;
    uint32_t mode;
    uint32_t in_flight;
    void **host_in;            /* cold: an array each, inputs */
    void **host_out;           /* cold and pageable: an array each and run, outputs */
    struct plasmon_ref **gets; /* cold: of the runs in flight .. */
    uint32_t get_count;
    struct plasmon_ref **refs;      /* an array each; NULL: not made yet */
    struct plasmon_ref **outputs;   /* of these, what a run waits for */
    void *got;                      /* room for one of them */
    struct plasmon_graph *recorded; /* replay */
    /* what it was recorded with; NULL: a temporary of its own */
    struct plasmon_ref **recorded_refs;
    struct plasmon_graph_binding *bindings;
};

static bool is_input(const struct play *play, uint32_t array)
{
    return graphs_array_at(play->graph, array)->role == GRAPHS_INPUT;
}

static struct plasmon_ref *put_input(struct play *play, uint32_t number)
{
    const struct graphs_array *array   = graphs_array_at(play->graph, number);
    struct plasmon_put_options options = PLASMON_PUT_INIT;
    struct plasmon_ref *ref;

    if (play->mode != GRAPHS_COLD) {
        return graphs_play_put(&play->cluster, array, play->device);
    }
    options.device = play->device;
    bench_must(&play->cluster,
               plasmon_put_async(play->cluster.client, play->host_in[number], &array->shape,
                                 &options, &ref),
               "putting an input");
    return ref;
}

static void put_inputs(struct play *play, struct plasmon_ref **refs)
{
    for (uint32_t i = 0; i < play->graph->arrays.count; i++) {
        if (is_input(play, i)) {
            if (refs[i] != NULL) {
                bench_must_release(&play->cluster, &refs[i], 1);
            }
            refs[i] = put_input(play, i);
        }
    }
}

/* Where run number `run` has its copy of an output; NULL: it is none. */
static void **host_out(struct play *play, uint32_t run, uint32_t array)
{
    return &play->host_out[run * play->graph->arrays.count + array];
}

static void get_outputs(struct play *play, uint32_t run, struct plasmon_ref *const *refs)
{
    for (uint32_t i = 0; i < play->graph->arrays.count; i++) {
        void *out      = *host_out(play, run, i);
        uint64_t bytes = graphs_array_at(play->graph, i)->bytes;

        if (out != NULL && play->mode == GRAPHS_COLD) {
            bench_must(&play->cluster,
                       plasmon_get_async(play->cluster.client, refs[i], out, bytes,
                                         &play->gets[play->get_count++]),
                       "getting an output");
        } else if (out != NULL) {
            bench_must(
                &play->cluster,
                plasmon_get(play->cluster.client, refs[i], out, bytes, PLASMON_FOREVER),
                "getting an output");
        }
    }
}

static void wait_for_gets(struct play *play)
{
    bench_must_wait(&play->cluster, play->gets, play->get_count);
    bench_must_release(&play->cluster, play->gets, play->get_count);
    play->get_count = 0;
}

static void wait_for_outputs(struct play *play, struct plasmon_ref *const *refs)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < play->graph->arrays.count; i++) {
        if (graphs_array_at(play->graph, i)->role == GRAPHS_OUTPUT) {
            play->outputs[count++] = refs[i];
        }
    }
    bench_must_wait(&play->cluster, play->outputs, count);
}

static plasmon_status_t once_plain(void *user, struct pl_err *err)
{
    struct play *play = user;

    (void)err; /* bench_must... says what failed, and ends the child */
    for (uint32_t run = 0; run < play->in_flight; run++) {
        if (graphs_mode_cold(play->mode)) {
            put_inputs(play, play->refs);
        }
        for (uint32_t i = 0; i < play->graph->steps.count; i++) {
            play_step(&play->cluster, play->graph, i, play->refs, play->device);
        }
        if (graphs_mode_cold(play->mode)) {
            get_outputs(play, run, play->refs);
        }
    }
    if (play->mode == GRAPHS_COLD) {
        wait_for_gets(play);
    } else {
        wait_for_outputs(play, play->refs);
    }
    return PLASMON_OK;
}

static struct plasmon_ref *launch_recorded(struct play *play)
{
    struct plasmon_ref *task;
    uint32_t count = 0;

    if (graphs_mode_cold(play->mode)) {
        put_inputs(play, play->refs);
        for (uint32_t i = 0; i < play->graph->arrays.count; i++) {
            if (is_input(play, i)) {
                play->bindings[count++] = (struct plasmon_graph_binding){
                    .recorded = play->recorded_refs[i], .ref = play->refs[i]};
            }
        }
    }
    bench_must(&play->cluster,
               plasmon_graph_launch(play->cluster.client, play->recorded, play->bindings,
                                    count, NULL, 0, &task),
               "launching a recorded graph");
    return task;
}

static plasmon_status_t once_replay(void *user, struct pl_err *err)
{
    struct play *play = user;
    struct plasmon_ref *tasks[IN_FLIGHT_MAX];

    (void)err;
    for (uint32_t run = 0; run < play->in_flight; run++) {
        tasks[run] = launch_recorded(play);
        if (graphs_mode_cold(play->mode)) {
            get_outputs(play, run, play->recorded_refs);
        }
    }
    if (play->mode == GRAPHS_COLD) {
        wait_for_gets(play);
    }
    bench_must_wait(&play->cluster, tasks, play->in_flight);
    bench_must_release(&play->cluster, tasks, play->in_flight);
    return PLASMON_OK;
}

/* ---------------------------------------------------------------------------- recording */

/*
 * Inputs and state are the plain runs' refs; what lies between belongs to each launch; outputs are
 * new and kept.
 */
static void record(struct play *play)
{
    size_t arrays = play->graph->arrays.count;

    play->recorded_refs = bench_must_alloc(arrays * sizeof(*play->recorded_refs));
    for (uint32_t i = 0; i < arrays; i++) {
        enum graphs_role role = graphs_array_at(play->graph, i)->role;

        if (role == GRAPHS_INPUT) { /* of its own: plain's are put anew in cold runs */
            play->recorded_refs[i] = graphs_play_put(
                &play->cluster, graphs_array_at(play->graph, i), play->device);
        } else if (role == GRAPHS_STATE) {
            play->recorded_refs[i] = play->refs[i];
        }
    }
    bench_must(&play->cluster, plasmon_graph_begin(play->cluster.client, &play->recorded),
               "recording");
    for (uint32_t i = 0; i < play->graph->steps.count; i++) {
        play_step(&play->cluster, play->graph, i, play->recorded_refs, play->device);
    }
    for (uint32_t i = 0; i < arrays; i++) {
        if (graphs_array_at(play->graph, i)->role == GRAPHS_TEMP) {
            bench_must_release(&play->cluster, &play->recorded_refs[i], 1);
        }
    }
    bench_must(&play->cluster, plasmon_graph_end(play->cluster.client, play->recorded),
               "recording");
}

/* -------------------------------------------------------------------------- host memory */

static void *host_alloc(struct play *play, uint64_t bytes)
{
    void *data;

    bench_must(&play->cluster, plasmon_host_alloc(play->cluster.client, bytes, &data),
               "host memory");
    return data;
}

static void host_free(struct play *play, void *data)
{
    bench_must(&play->cluster, plasmon_host_free(play->cluster.client, data),
               "freeing host memory");
}

/* What the last mode, or contestant, brought out must not pass for what the next one does. */
static void forget_outputs(struct play *play)
{
    for (uint32_t run = 0; run < GRAPHS_COLD_MAX; run++) {
        for (uint32_t i = 0; i < play->graph->arrays.count; i++) {
            void *out = *host_out(play, run, i);

            if (out != NULL) {
                memset(out, 0xff, graphs_array_at(play->graph, i)->bytes); /* no number */
            }
        }
    }
}

/* For the mode under way: none, page-locked or ordinary. */
static void make_host_memory(struct play *play)
{
    bool locked = play->mode == GRAPHS_COLD;

    for (uint32_t i = 0; graphs_mode_cold(play->mode) && i < play->graph->arrays.count;
         i++) {
        const struct graphs_array *array = graphs_array_at(play->graph, i);

        if (array->role == GRAPHS_INPUT && locked) {
            play->host_in[i] = host_alloc(play, array->bytes);
            memcpy(play->host_in[i], array->data, array->bytes);
        }
        for (uint32_t run = 0; array->role == GRAPHS_OUTPUT && run < play->in_flight;
             run++) {
            *host_out(play, run, i) =
                locked ? host_alloc(play, array->bytes) : graphs_must_map(array->bytes);
        }
    }
    forget_outputs(play);
}

static void free_host_memory(struct play *play)
{
    for (uint32_t i = 0; i < play->graph->arrays.count; i++) {
        if (play->host_in[i] != NULL) {
            host_free(play, play->host_in[i]);
            play->host_in[i] = NULL;
        }
        for (uint32_t run = 0; run < GRAPHS_COLD_MAX; run++) {
            void **out = host_out(play, run, i);

            if (*out != NULL && play->mode == GRAPHS_COLD) {
                host_free(play, *out);
            } else if (*out != NULL) {
                graphs_unmap(*out, graphs_array_at(play->graph, i)->bytes);
            }
            *out = NULL;
        }
    }
}

/* -------------------------------------------------------------------- right before fast */

/* The result: of the last run in flight, if runs bring it out. */
static const void *result_of(struct play *play, struct plasmon_ref *ref, uint32_t array)
{
    if (graphs_mode_cold(play->mode) &&
        *host_out(play, play->in_flight - 1, array) != NULL) {
        return *host_out(play, play->in_flight - 1, array);
    }
    bench_must(&play->cluster,
               plasmon_get(play->cluster.client, ref, play->got,
                           graphs_array_at(play->graph, array)->bytes, PLASMON_FOREVER),
               "getting a result");
    return play->got;
}

static void check(struct play *play, struct plasmon_ref *const *refs, const char *how)
{
    for (size_t i = 0; i < play->graph->expects.count; i++) {
        const struct graphs_expect *expect = pl_vec_at(&play->graph->expects, i);
        struct pl_err err                  = {0};

        if (!graphs_compare(play->graph, expect,
                            result_of(play, refs[expect->array], expect->array), &err)) {
            bench_die("plasmon, %s, %s: %s", how, graphs_mode_name(play->mode), err.text);
        }
    }
}

static plasmon_status_t measure_mode(struct play *play, uint32_t mode, double *result,
                                     struct pl_err *err)
{
    struct graphs_timing timing;
    plasmon_status_t status;

    play->in_flight = graphs_in_flight(play->run, mode);
    play->mode      = mode;
    make_host_memory(play);
    status = once_plain(play, err);
    check(play, play->refs, "plain");
    if (status == PLASMON_OK) {
        status = graphs_time(play->run, once_plain, play, &timing, err);
    }
    if (status == PLASMON_OK) {
        graphs_set(result, mode, GRAPHS_PLAIN, &timing, play->in_flight);
        if (play->recorded == NULL) {
            record(play);
        }
        forget_outputs(play);
        status = once_replay(play, err);
        check(play, play->recorded_refs, "replay");
    }
    if (status == PLASMON_OK) {
        status = graphs_time(play->run, once_replay, play, &timing, err);
    }
    if (status == PLASMON_OK) {
        graphs_set(result, mode, GRAPHS_REPLAY, &timing, play->in_flight);
    }
    free_host_memory(play);
    return status;
}

/* --------------------------------------------------------------------------------- life */

static void start(struct play *play)
{
    const struct bench_cluster_config config = {.gpus = play->run->cuda ? "1" : "none",
                                                .cpu_devices = play->run->cuda ? 0 : 1};
    size_t arrays                            = play->graph->arrays.count;

    (void)alarm(TIME_LIMIT_S);
    bench_must_start(&play->cluster, &config);
    play->device   = play->cluster.info[0].index;
    play->refs     = bench_must_alloc(arrays * sizeof(*play->refs));
    play->outputs  = bench_must_alloc(arrays * sizeof(*play->outputs));
    play->bindings = bench_must_alloc(arrays * sizeof(*play->bindings));
    play->host_in  = bench_must_alloc(arrays * sizeof(*play->host_in));
    play->host_out = bench_must_alloc(GRAPHS_COLD_MAX * arrays * sizeof(*play->host_out));
    play->gets     = bench_must_alloc(GRAPHS_COLD_MAX * arrays * sizeof(*play->gets));
    play->got      = graphs_must_map(graphs_output_bytes(play->graph));
    graphs_play_register(&play->cluster, play->graph->definition);
    put_inputs(play, play->refs);
    for (uint32_t i = 0; i < arrays; i++) {
        const struct graphs_array *array = graphs_array_at(play->graph, i);

        if (array->role == GRAPHS_STATE) {
            play->refs[i] = graphs_play_put(&play->cluster, array, play->device);
        }
    }
}

plasmon_status_t graphs_play_run(const void *config, double *result, size_t count,
                                 struct pl_err *err)
{
    const struct graphs_run *run = config;
    struct play play             = {.run = run, .graph = run->graph};
    plasmon_status_t status      = PLASMON_OK;

    if (count != GRAPHS_RESULTS) {
        return pl_err_set(err, PLASMON_EINVAL, "no room for the figures");
    }
    for (size_t i = 0; i < count; i++) {
        result[i] = -1;
    }
    start(&play);
    for (uint32_t mode = 0; mode < GRAPHS_MODES && status == PLASMON_OK; mode++) {
        if (graphs_mode_wanted(run, mode)) {
            status = measure_mode(&play, mode, result, err);
        }
    }
    bench_cluster_finish(&play.cluster); /* its refs end with it */
    pl_free(play.refs);
    pl_free(play.outputs);
    pl_free(play.bindings);
    pl_free(play.recorded_refs);
    pl_free(play.host_in);
    pl_free(play.host_out);
    pl_free(play.gets);
    graphs_unmap(play.got, graphs_output_bytes(run->graph));
    return status;
}
