/*
 * A graph on a GPU without Plasmon, as CUDA programs do it: through the driver's own calls, with
 * all memory, streams, events and parameters made before anything is timed.
 *
 *   serial   launch, synchronise, launch, synchronise
 *   events   the streams and waits that the graph's author wrote down; an event only where somebody waits
 *   graph    the same, captured once and launched
 *
 * COLD  In serial all inputs are copied first, and all outputs last. In the other two an input is
 *       copied in the stream of its first reader, just before it, and readers in other streams wait
 *       for that; an output is copied in the stream of its last writer, just behind it: kernels
 *       that have their inputs run while others' are on the way, and while outputs leave. All of it
 *       is page-locked memory.
 */
#include "bench/graphs/bare.h"

#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "bench/graphs/nvrtc.h"

#ifndef PLASMON_HAVE_CUDA

plasmon_status_t graphs_bare_cuda(const struct graphs_run *run, double *result,
                                  struct pl_err *err)
{
    (void)run;
    (void)result;
    return pl_err_set(err, PLASMON_ENOTSUP, "this build has no CUDA");
}

#else

#include "bench/graphs/bare_cuda.h"

#define TIME_LIMIT_S 240u

plasmon_status_t graphs_bare_fail(plasmon_status_t status, const char *what,
                                  struct pl_err *err)
{
    return status == PLASMON_OK
               ? status
               : pl_err_set(err, status, "%s: %s", what, device_cuda_last_error());
}

/* ------------------------------------------------------- set-up; the process ends after */

static plasmon_status_t open_context(struct bare *bare, struct pl_err *err)
{
    CUdevice device;
    CUcontext context;
    plasmon_status_t status;

    if (device_cuda_driver_load(err) == 0) {
        return err->status;
    }
    status = CU(cuDeviceGet(&device, 0));
    if (status == PLASMON_OK) {
        status = CU(cuDevicePrimaryCtxRetain(&context, device));
    }
    if (status == PLASMON_OK) {
        status = CU(cuCtxSetCurrent(context));
    }
    for (uint32_t i = 0; i < bare->graph->streams && status == PLASMON_OK; i++) {
        status =
            CU(cuStreamCreateWithPriority(&bare->stream[i], CU_STREAM_NON_BLOCKING, 0));
        if (status == PLASMON_OK) {
            status = CU(cuEventCreate(&bare->join[i], CU_EVENT_DISABLE_TIMING));
        }
    }
    if (status == PLASMON_OK) {
        status = CU(cuEventCreate(&bare->fork, CU_EVENT_DISABLE_TIMING));
    }
    return graphs_bare_fail(status, "opening the GPU", err);
}

static plasmon_status_t compile(struct bare *bare, struct pl_err *err)
{
    int major = 0, minor = 0;
    void *image = NULL;
    size_t bytes;
    plasmon_status_t status =
        CU(cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 0));

    if (status == PLASMON_OK) {
        status = CU(
            cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0));
    }
    if (status != PLASMON_OK) {
        return graphs_bare_fail(status, "asking the GPU", err);
    }
    status = graphs_nvrtc(bare->graph->definition->cuda_text(),
                          (unsigned)(10 * major + minor), &image, &bytes, err);
    if (status == PLASMON_OK) {
        status =
            graphs_bare_fail(CU(cuModuleLoadDataEx(&bare->module, image, 0, NULL, NULL)),
                             "loading the kernels", err);
    }
    pl_free(image);
    return status;
}

static uint32_t last_writer(const struct graphs_graph *graph, uint32_t array)
{
    uint32_t last = 0;

    for (uint32_t i = 0; i < graph->steps.count; i++) {
        const struct graphs_step *step = graphs_step_at(graph, i);

        for (uint32_t k = 0; k < step->param_count; k++) {
            if (step->param[k].kind == GRAPHS_TENSOR && step->param[k].array == array &&
                step->param[k].mode != PLASMON_IN) {
                last = i;
            }
        }
    }
    return last;
}

static plasmon_status_t make_array(struct bare *bare, uint32_t number, struct pl_err *err)
{
    const struct graphs_array *array = graphs_array_at(bare->graph, number);
    struct bare_array *it            = &bare->array[number];
    plasmon_status_t status          = CU(cuMemAlloc(&it->memory, array->bytes));

    if (status == PLASMON_OK) {
        status = CU(cuEventCreate(&it->copied, CU_EVENT_DISABLE_TIMING));
    }
    if (status == PLASMON_OK) { /* what nobody writes is no number */
        status = CU(cuMemsetD8Async(it->memory, array->role == GRAPHS_STATE ? 0 : 0xff,
                                    array->bytes, bare->stream[0]));
    }
    if (status == PLASMON_OK && array->data != NULL) {
        status =
            CU(cuMemHostRegister(array->data, array->bytes, CU_MEMHOSTREGISTER_PORTABLE));
        if (status == PLASMON_OK) {
            status = CU(
                cuMemcpyHtoDAsync(it->memory, array->data, array->bytes, bare->stream[0]));
        }
    }
    if (status == PLASMON_OK && array->role == GRAPHS_OUTPUT) {
        status = CU(cuMemHostAlloc(&it->out, array->bytes, CU_MEMHOSTALLOC_PORTABLE));
        it->last_writer = last_writer(bare->graph, number);
    }
    return graphs_bare_fail(status, "memory for an array", err);
}

static plasmon_status_t make_step(struct bare *bare, uint32_t number, struct pl_err *err)
{
    const struct graphs_step *step = graphs_step_at(bare->graph, number);
    struct bare_step *it           = &bare->step[number];
    plasmon_status_t status        = CU(cuModuleGetFunction(
               &it->function, bare->module, bare->graph->definition->kernels[step->kernel].name));

    for (uint32_t i = 0; i < step->param_count; i++) {
        const struct graphs_param *param = &step->param[i];

        it->value[i] = graphs_param_value(
            bare->graph, param,
            param->kind == GRAPHS_TENSOR ? bare->array[param->array].memory : 0);
        it->params[i] = &it->value[i];
    }
    for (uint32_t i = 0; i < step->after_count && status == PLASMON_OK; i++) {
        struct bare_step *other = &bare->step[step->after[i]];

        if (other->done == NULL) {
            status = CU(cuEventCreate(&other->done, CU_EVENT_DISABLE_TIMING));
        }
    }
    return graphs_bare_fail(status, "a kernel", err);
}

static plasmon_status_t set_up(struct bare *bare, struct pl_err *err)
{
    size_t arrays = bare->graph->arrays.count, steps = bare->graph->steps.count;
    plasmon_status_t status;

    bare->array = bench_must_alloc(arrays * sizeof(*bare->array));
    bare->step  = bench_must_alloc(steps * sizeof(*bare->step));
    bare->got   = graphs_must_map(graphs_output_bytes(bare->graph));
    status      = open_context(bare, err);
    if (status == PLASMON_OK) {
        status = compile(bare, err);
    }
    for (uint32_t i = 0; i < arrays && status == PLASMON_OK; i++) {
        status = make_array(bare, i, err);
    }
    for (uint32_t i = 0; i < steps && status == PLASMON_OK; i++) {
        status = make_step(bare, i, err);
    }
    return status == PLASMON_OK
               ? graphs_bare_fail(CU(cuStreamSynchronize(bare->stream[0])), "set-up", err)
               : status;
}

/* ------------------------------------------------------------------------------ one run */

plasmon_status_t graphs_bare_launch(struct bare *bare, uint32_t number, CUstream stream)
{
    const struct graphs_launch *shape = &graphs_step_at(bare->graph, number)->launch;
    struct bare_step *it              = &bare->step[number];

    return CU(cuLaunchKernel(it->function, shape->grid[0], shape->grid[1], shape->grid[2],
                             shape->block[0], shape->block[1], shape->block[2],
                             shape->shared_bytes, stream, it->params, NULL));
}

static plasmon_status_t copy_in(struct bare *bare, uint32_t number, CUstream stream)
{
    const struct graphs_array *array = graphs_array_at(bare->graph, number);

    return CU(
        cuMemcpyHtoDAsync(bare->array[number].memory, array->data, array->bytes, stream));
}

static plasmon_status_t copy_out(struct bare *bare, uint32_t number, CUstream stream)
{
    const struct bare_array *it = &bare->array[number];

    return CU(cuMemcpyDtoHAsync(it->out, it->memory,
                                graphs_array_at(bare->graph, number)->bytes, stream));
}

static plasmon_status_t once_serial(void *user, struct pl_err *err)
{
    struct bare *bare       = user;
    plasmon_status_t status = PLASMON_OK;

    for (uint32_t i = 0; i < bare->graph->arrays.count && status == PLASMON_OK; i++) {
        if (bare->cold && graphs_array_at(bare->graph, i)->role == GRAPHS_INPUT) {
            status = copy_in(bare, i, bare->stream[0]);
        }
    }
    for (uint32_t i = 0; i < bare->graph->steps.count && status == PLASMON_OK; i++) {
        status = graphs_bare_launch(bare, i, bare->stream[0]);
        if (status == PLASMON_OK) {
            status = CU(cuStreamSynchronize(bare->stream[0]));
        }
    }
    for (uint32_t i = 0; i < bare->graph->arrays.count && status == PLASMON_OK; i++) {
        if (bare->cold && bare->array[i].out != NULL) {
            status = copy_out(bare, i, bare->stream[0]);
        }
    }
    if (status == PLASMON_OK && bare->cold) {
        status = CU(cuStreamSynchronize(bare->stream[0]));
    }
    return graphs_bare_fail(status, "a run", err);
}

/*
 * Cold: the inputs of a step are on their way in its stream, or its stream waits for the one that
 * has them.
 */
static plasmon_status_t copy_inputs(struct bare *bare, const struct graphs_step *step)
{
    CUstream stream         = bare->stream[step->stream];
    plasmon_status_t status = PLASMON_OK;

    for (uint32_t i = 0; i < step->param_count && status == PLASMON_OK; i++) {
        uint32_t number       = step->param[i].array;
        struct bare_array *it = &bare->array[number];

        if (step->param[i].kind != GRAPHS_TENSOR ||
            graphs_array_at(bare->graph, number)->role != GRAPHS_INPUT) {
            continue;
        }
        if (!it->has_copy) {
            it->has_copy    = true;
            it->copy_stream = step->stream;
            status          = copy_in(bare, number, stream);
            if (status == PLASMON_OK) {
                status = CU(cuEventRecord(it->copied, stream));
            }
        } else if (it->copy_stream != step->stream) {
            status = CU(cuStreamWaitEvent(stream, it->copied, 0));
        }
    }
    return status;
}

/* Cold: the outputs that the step was the last to write. */
static plasmon_status_t copy_outputs(struct bare *bare, uint32_t number)
{
    const struct graphs_step *step = graphs_step_at(bare->graph, number);
    plasmon_status_t status        = PLASMON_OK;

    for (uint32_t i = 0; i < step->param_count && status == PLASMON_OK; i++) {
        const struct graphs_param *param = &step->param[i];

        if (param->kind == GRAPHS_TENSOR && param->mode != PLASMON_IN &&
            bare->array[param->array].out != NULL &&
            bare->array[param->array].last_writer == number) {
            status = copy_out(bare, param->array, bare->stream[step->stream]);
        }
    }
    return status;
}

static plasmon_status_t enqueue_step(struct bare *bare, uint32_t number)
{
    const struct graphs_step *step = graphs_step_at(bare->graph, number);
    struct bare_step *it           = &bare->step[number];
    CUstream stream                = bare->stream[step->stream];
    plasmon_status_t status        = PLASMON_OK;

    if (bare->cold) {
        status = copy_inputs(bare, step);
    }
    for (uint32_t i = 0; i < step->after_count && status == PLASMON_OK; i++) {
        status = CU(cuStreamWaitEvent(stream, bare->step[step->after[i]].done, 0));
    }
    if (status == PLASMON_OK) {
        status = graphs_bare_launch(bare, number, stream);
    }
    if (status == PLASMON_OK && it->done != NULL) {
        status = CU(cuEventRecord(it->done, stream));
    }
    return status == PLASMON_OK && bare->cold ? copy_outputs(bare, number) : status;
}

static plasmon_status_t enqueue_all(struct bare *bare)
{
    plasmon_status_t status = PLASMON_OK;

    for (uint32_t i = 0; i < bare->graph->arrays.count; i++) {
        bare->array[i].has_copy = false;
    }
    for (uint32_t i = 0; i < bare->graph->steps.count && status == PLASMON_OK; i++) {
        status = enqueue_step(bare, i);
    }
    return status;
}

/* What follows in any stream comes after all of the runs before: they share their arrays. */
static plasmon_status_t fence(struct bare *bare)
{
    plasmon_status_t status = PLASMON_OK;

    for (uint32_t i = 1; i < bare->graph->streams && status == PLASMON_OK; i++) {
        status = CU(cuEventRecord(bare->join[i], bare->stream[i]));
        if (status == PLASMON_OK) {
            status = CU(cuStreamWaitEvent(bare->stream[0], bare->join[i], 0));
        }
    }
    if (status == PLASMON_OK) {
        status = CU(cuEventRecord(bare->fork, bare->stream[0]));
    }
    for (uint32_t i = 1; i < bare->graph->streams && status == PLASMON_OK; i++) {
        status = CU(cuStreamWaitEvent(bare->stream[i], bare->fork, 0));
    }
    return status;
}

static plasmon_status_t once_events(void *user, struct pl_err *err)
{
    struct bare *bare       = user;
    plasmon_status_t status = enqueue_all(bare);

    for (uint32_t run = 1; run < bare->in_flight && status == PLASMON_OK; run++) {
        status = fence(bare);
        if (status == PLASMON_OK) {
            status = enqueue_all(bare);
        }
    }
    for (uint32_t i = 0; i < bare->graph->streams && status == PLASMON_OK; i++) {
        status = CU(cuStreamSynchronize(bare->stream[i]));
    }
    return graphs_bare_fail(status, "a run", err);
}

static plasmon_status_t once_graph(void *user, struct pl_err *err)
{
    struct bare *bare       = user;
    plasmon_status_t status = CU(cuGraphLaunch(bare->exec, bare->stream[0]));

    for (uint32_t run = 1; run < bare->in_flight && status == PLASMON_OK; run++) {
        status = CU(cuGraphLaunch(bare->exec, bare->stream[0]));
    }
    if (status == PLASMON_OK) {
        status = CU(cuStreamSynchronize(bare->stream[0]));
    }
    return graphs_bare_fail(status, "a run", err);
}

/* All streams hang off the first, and end in it. */
static plasmon_status_t capture(struct bare *bare, struct pl_err *err)
{
    CUgraph graph = NULL;
    plasmon_status_t status =
        CU(cuStreamBeginCapture(bare->stream[0], CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));

    if (status == PLASMON_OK) {
        status = CU(cuEventRecord(bare->fork, bare->stream[0]));
    }
    for (uint32_t i = 1; i < bare->graph->streams && status == PLASMON_OK; i++) {
        status = CU(cuStreamWaitEvent(bare->stream[i], bare->fork, 0));
    }
    if (status == PLASMON_OK) {
        status = enqueue_all(bare);
    }
    for (uint32_t i = 1; i < bare->graph->streams && status == PLASMON_OK; i++) {
        status = CU(cuEventRecord(bare->join[i], bare->stream[i]));
        if (status == PLASMON_OK) {
            status = CU(cuStreamWaitEvent(bare->stream[0], bare->join[i], 0));
        }
    }
    if (status == PLASMON_OK) {
        status = CU(cuStreamEndCapture(bare->stream[0], &graph));
    }
    if (status == PLASMON_OK) {
        status = CU(cuGraphInstantiate(&bare->exec, graph, 0));
    }
    if (status == PLASMON_OK) {
        status = CU(cuGraphDestroy(graph));
    }
    return graphs_bare_fail(status, "capturing the graph", err);
}

/* -------------------------------------------------------------------- right before fast */

/* Outputs and what lies between are no numbers; cold: the inputs too. */
static plasmon_status_t forget(struct bare *bare)
{
    plasmon_status_t status = PLASMON_OK;

    for (uint32_t i = 0; i < bare->graph->arrays.count && status == PLASMON_OK; i++) {
        const struct graphs_array *array = graphs_array_at(bare->graph, i);

        if (array->role != GRAPHS_STATE && (bare->cold || array->role != GRAPHS_INPUT)) {
            status = CU(cuMemsetD8Async(bare->array[i].memory, 0xff, array->bytes,
                                        bare->stream[0]));
        }
    }
    return status == PLASMON_OK ? CU(cuStreamSynchronize(bare->stream[0])) : status;
}

static plasmon_status_t check_output(struct bare *bare, const struct graphs_expect *expect,
                                     struct pl_err *err)
{
    uint64_t bytes          = graphs_array_at(bare->graph, expect->array)->bytes;
    const void *out         = bare->cold ? bare->array[expect->array].out : NULL;
    plasmon_status_t status = CU(cuMemcpyDtoHAsync(
        bare->got, bare->array[expect->array].memory, bytes, bare->stream[0]));

    if (status == PLASMON_OK) {
        status = CU(cuStreamSynchronize(bare->stream[0]));
    }
    status = graphs_bare_fail(status, "copying a result", err);
    if (status == PLASMON_OK &&
        !graphs_compare(bare->graph, expect, out != NULL ? out : bare->got, err)) {
        status = PLASMON_EDEVICE;
    }
    return status;
}

typedef plasmon_status_t (*once_fn)(void *user, struct pl_err *err);

static plasmon_status_t measure(struct bare *bare, enum graphs_contestant contestant,
                                once_fn once, double *result, struct pl_err *err)
{
    plasmon_status_t status = graphs_bare_fail(forget(bare), "clearing the results", err);
    struct graphs_timing timing;

    if (status == PLASMON_OK) {
        status = once(bare, err);
    }
    for (size_t i = 0; i < bare->graph->expects.count && status == PLASMON_OK; i++) {
        status = check_output(bare, pl_vec_at(&bare->graph->expects, i), err);
    }
    if (status == PLASMON_OK) {
        status = graphs_time(&bare->run, once, bare, &timing, err);
    }
    if (status == PLASMON_OK) {
        graphs_set(result, bare->mode, contestant, &timing,
                   contestant == GRAPHS_SERIAL ? 1 : bare->in_flight);
    }
    return status;
}

static plasmon_status_t measure_mode(struct bare *bare, uint32_t mode, double *result,
                                     struct pl_err *err)
{
    plasmon_status_t status;

    bare->mode = mode;
    bare->cold = graphs_mode_cold(mode);
    status     = measure(bare, GRAPHS_SERIAL, once_serial, result, err);
    if (status == PLASMON_OK) {
        bare->run.serial_seconds[mode] = result[mode * GRAPHS_CONTESTANTS + GRAPHS_SERIAL];
        bare->in_flight                = graphs_in_flight(&bare->run, mode);
        status = measure(bare, GRAPHS_EVENTS, once_events, result, err);
    }
    if (status == PLASMON_OK) {
        status = capture(bare, err);
    }
    if (status == PLASMON_OK) {
        status = measure(bare, GRAPHS_GRAPH, once_graph, result, err);
    }
    return status == PLASMON_OK ? CU(cuGraphExecDestroy(bare->exec)) : status;
}

plasmon_status_t graphs_bare_cuda(const struct graphs_run *run, double *result,
                                  struct pl_err *err)
{
    struct bare bare = {.run = *run, .graph = run->graph};
    plasmon_status_t status;

    (void)alarm(TIME_LIMIT_S); /* of this child, as of the others: nothing hangs */
    status = set_up(&bare, err);

    for (uint32_t mode = 0; mode < GRAPHS_MODES && status == PLASMON_OK; mode++) {
        if (graphs_mode_measured(run, mode)) {
            status = measure_mode(&bare, mode, result, err);
        }
    }
    return status == PLASMON_OK ? graphs_bare_room(&bare, result, err) : status;
}

#endif
