/*
 * A graph on several GPUs without Plasmon: one process, two streams a device, events, copies
 * between peers. Steps are where the person put them (graphs_place); what has to be copied and
 * waited for is in a list (multi_plan.h) that a run plays.
 */
#include "bench/graphs/multi.h"

#include <unistd.h>

#include "base/alloc.h"
#include "bench/graphs/multi_plan.h"
#include "bench/graphs/nvrtc.h"

#ifdef PLASMON_HAVE_CUDA

#include "device/cuda/driver.h"

#define CU(call)     DEVICE_CU(NULL, call)
#define TIME_LIMIT_S 240u

struct multi_device {
    CUcontext context;
    CUmodule module;
    CUstream stream[GRAPHS_LANES];
    CUfunction *function; /* a kernel each */
    CUdeviceptr *memory;  /* an array each */
};
struct multi {
    const struct graphs_multi *config;
    const struct graphs_graph *graph;
    struct multi_device device[GRAPHS_DEVICES_MAX];
    uint32_t devices;
    uint32_t in_flight; /* runs of a sample */
    uint32_t current;   /* the device whose context is current, or GRAPHS_NONE */
    struct graphs_plan plan;
};

static plasmon_status_t fail(plasmon_status_t status, const char *what, struct pl_err *err)
{
    return status == PLASMON_OK
               ? status
               : pl_err_set(err, status, "%s: %s", what, device_cuda_last_error());
}

/* ------------------------------------------------------- set-up; the process ends after */

static plasmon_status_t open_device(struct multi *multi, uint32_t index, const void *image)
{
    const struct graphs_definition *definition = multi->graph->definition;
    struct multi_device *it                    = &multi->device[index];
    plasmon_status_t status = CU(cuDevicePrimaryCtxRetain(&it->context, (CUdevice)index));

    if (status == PLASMON_OK) {
        status = CU(cuCtxSetCurrent(it->context));
    }
    if (status == PLASMON_OK) {
        status = CU(cuModuleLoadDataEx(&it->module, image, 0, NULL, NULL));
    }
    for (uint32_t i = 0; i < GRAPHS_LANES && status == PLASMON_OK; i++) {
        status = CU(cuStreamCreateWithPriority(&it->stream[i], CU_STREAM_NON_BLOCKING, 0));
    }
    it->function = bench_must_alloc(definition->kernel_count * sizeof(CUfunction));
    it->memory   = bench_must_alloc(multi->graph->arrays.count * sizeof(CUdeviceptr));
    for (uint32_t i = 0; i < definition->kernel_count && status == PLASMON_OK; i++) {
        status = CU(
            cuModuleGetFunction(&it->function[i], it->module, definition->kernels[i].name));
    }
    for (uint32_t i = 0; i < multi->graph->arrays.count && status == PLASMON_OK; i++) {
        const struct graphs_array *array = graphs_array_at(multi->graph, i);

        status = CU(cuMemAlloc(&it->memory[i], array->bytes));
        if (status == PLASMON_OK) {
            status =
                CU(cuMemsetD8Async(it->memory[i], array->role == GRAPHS_STATE ? 0 : 0xff,
                                   array->bytes, it->stream[0]));
        }
        if (status == PLASMON_OK && array->data != NULL) {
            status = CU(
                cuMemcpyHtoDAsync(it->memory[i], array->data, array->bytes, it->stream[0]));
        }
    }
    return status == PLASMON_OK ? CU(cuStreamSynchronize(it->stream[0])) : status;
}

/* Copies go straight from device to device; where a pair cannot, the driver goes through the host. */
static plasmon_status_t open_peers(struct multi *multi)
{
    plasmon_status_t status = PLASMON_OK;

    for (uint32_t i = 0; i < multi->devices && status == PLASMON_OK; i++) {
        status = CU(cuCtxSetCurrent(multi->device[i].context));
        for (uint32_t j = 0; j < multi->devices && status == PLASMON_OK; j++) {
            int possible = 0;

            if (i != j) {
                status = CU(cuDeviceCanAccessPeer(&possible, (CUdevice)i, (CUdevice)j));
            }
            if (status == PLASMON_OK && possible) {
                status = CU(cuCtxEnablePeerAccess(multi->device[j].context, 0));
            }
        }
    }
    return status;
}

static plasmon_status_t open_all(struct multi *multi, struct pl_err *err)
{
    int major = 0, minor = 0;
    void *image = NULL;
    size_t bytes;
    plasmon_status_t status;

    if (device_cuda_driver_load(err) < multi->devices) {
        return pl_err_set(err, PLASMON_ENOTSUP, "there are no %u GPUs here",
                          multi->devices);
    }
    status =
        CU(cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 0));
    if (status == PLASMON_OK) {
        status = CU(
            cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0));
    }
    if (status != PLASMON_OK) {
        return fail(status, "asking the GPU", err);
    }
    status = graphs_nvrtc(multi->graph->definition->cuda_text(),
                          (unsigned)(10 * major + minor), &image, &bytes, err);
    if (status != PLASMON_OK) {
        return status;
    }
    for (uint32_t i = 0; i < multi->devices && status == PLASMON_OK; i++) {
        status = open_device(multi, i, image);
    }
    if (status == PLASMON_OK) {
        status = open_peers(multi);
    }
    pl_free(image);
    return fail(status, "opening the GPUs", err);
}

/* Whose event an operation of the list that runs in flight play is waited for: of whichever half. */
static void await_both_halves(struct graphs_plan *plan)
{
    uint32_t half = (uint32_t)plan->flight.count / 2;

    for (uint32_t i = 0; i < half; i++) {
        struct graphs_operation *a = pl_vec_at(&plan->flight, i);
        struct graphs_operation *b = pl_vec_at(&plan->flight, half + i);

        a->is_awaited = b->is_awaited = a->is_awaited || b->is_awaited;
    }
}

/* An event for each operation that somebody waits for. */
static plasmon_status_t make_events(struct multi *multi, struct pl_vec *list)
{
    plasmon_status_t status = PLASMON_OK;

    for (uint32_t i = 0; i < list->count && status == PLASMON_OK; i++) {
        struct graphs_operation *it = pl_vec_at(list, i);
        CUevent event               = NULL;

        if (it->is_awaited) {
            status = CU(cuCtxSetCurrent(multi->device[it->queue / GRAPHS_LANES].context));
            if (status == PLASMON_OK) {
                status = CU(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
            }
            it->done = event;
        }
    }
    return status;
}

/* ------------------------------------------------------------------------------ one run */

static plasmon_status_t launch(struct multi *multi,
                               const struct graphs_operation *operation, CUstream stream)
{
    const struct graphs_step *step    = graphs_step_at(multi->graph, operation->step);
    const struct graphs_launch *shape = &step->launch;
    const struct multi_device *device = &multi->device[operation->queue / GRAPHS_LANES];
    union graphs_value value[GRAPHS_PARAMS_MAX];
    void *params[GRAPHS_PARAMS_MAX];

    for (uint32_t i = 0; i < step->param_count; i++) {
        const struct graphs_param *param = &step->param[i];

        value[i] = graphs_param_value(
            multi->graph, param,
            param->kind == GRAPHS_TENSOR ? device->memory[param->array] : 0);
        params[i] = &value[i];
    }
    return CU(cuLaunchKernel(device->function[step->kernel], shape->grid[0], shape->grid[1],
                             shape->grid[2], shape->block[0], shape->block[1],
                             shape->block[2], shape->shared_bytes, stream, params, NULL));
}

static plasmon_status_t copy(struct multi *multi, const struct graphs_operation *operation,
                             CUstream stream)
{
    const struct multi_device *to   = &multi->device[operation->queue / GRAPHS_LANES];
    const struct multi_device *from = &multi->device[operation->from];

    return CU(cuMemcpyPeerAsync(to->memory[operation->array] + operation->offset,
                                to->context,
                                from->memory[operation->array] + operation->offset,
                                from->context, operation->bytes, stream));
}

/* The operation, and `done` behind it; wait: an operation of the list for each queue, or GRAPHS_NONE. */
static plasmon_status_t enqueue(struct multi *multi, const struct pl_vec *list,
                                const struct graphs_operation *operation,
                                const uint32_t *wait, void *done)
{
    uint32_t number                   = operation->queue / GRAPHS_LANES;
    const struct multi_device *device = &multi->device[number];
    CUstream stream                   = device->stream[operation->queue % GRAPHS_LANES];
    plasmon_status_t status           = PLASMON_OK;

    if (number != multi->current) {
        status         = CU(cuCtxSetCurrent(device->context));
        multi->current = number;
    }
    for (uint32_t q = 0; q < multi->devices * GRAPHS_LANES && status == PLASMON_OK; q++) {
        if (wait[q] != GRAPHS_NONE) {
            const struct graphs_operation *other = pl_vec_at(list, wait[q]);

            status = CU(cuStreamWaitEvent(stream, (CUevent)other->done, 0));
        }
    }
    if (status == PLASMON_OK) {
        status = operation->is_copy ? copy(multi, operation, stream)
                                    : launch(multi, operation, stream);
    }
    return status == PLASMON_OK && done != NULL ? CU(cuEventRecord((CUevent)done, stream))
                                                : status;
}

static plasmon_status_t wait_for_all(struct multi *multi)
{
    plasmon_status_t status = PLASMON_OK;

    multi->current = GRAPHS_NONE;
    for (uint32_t i = 0; i < multi->devices && status == PLASMON_OK; i++) {
        status = CU(cuCtxSetCurrent(multi->device[i].context));
        for (uint32_t j = 0; j < GRAPHS_LANES && status == PLASMON_OK; j++) {
            status = CU(cuStreamSynchronize(multi->device[i].stream[j]));
        }
    }
    return status;
}

static plasmon_status_t play(struct multi *multi, const struct pl_vec *list,
                             struct pl_err *err)
{
    plasmon_status_t status = PLASMON_OK;

    for (uint32_t i = 0; i < list->count && status == PLASMON_OK; i++) {
        const struct graphs_operation *operation = pl_vec_at(list, i);

        status = enqueue(multi, list, operation, operation->wait, operation->done);
    }
    if (status == PLASMON_OK) {
        status = wait_for_all(multi);
    }
    return fail(status, "a run on several GPUs", err);
}

/*
 * One run of those in flight: what the second half of the list says, with the events of the half
 * that the run's number means.
 */
static plasmon_status_t enqueue_run(struct multi *multi, uint32_t run)
{
    const struct pl_vec *list = &multi->plan.flight;
    uint32_t half             = (uint32_t)list->count / 2;
    plasmon_status_t status   = PLASMON_OK;

    for (uint32_t i = 0; i < half && status == PLASMON_OK; i++) {
        const struct graphs_operation *operation = pl_vec_at(list, half + i);
        const struct graphs_operation *turn      = pl_vec_at(list, i + run % 2 * half);
        uint32_t wait[GRAPHS_QUEUES_MAX];

        for (uint32_t q = 0; q < multi->devices * GRAPHS_LANES; q++) {
            wait[q] = graphs_plan_wait(&multi->plan, operation, q, run);
        }
        status = enqueue(multi, list, operation, wait, turn->done);
    }
    return status;
}

static plasmon_status_t once_by_hand(void *user, struct pl_err *err)
{
    struct multi *multi = user;

    return play(multi, &multi->plan.again, err);
}

static plasmon_status_t once_in_flight(void *user, struct pl_err *err)
{
    struct multi *multi     = user;
    plasmon_status_t status = PLASMON_OK;

    for (uint32_t run = 0; run < multi->in_flight && status == PLASMON_OK; run++) {
        status = enqueue_run(multi, run);
    }
    if (status == PLASMON_OK) {
        status = wait_for_all(multi);
    }
    return fail(status, "runs in flight on several GPUs", err);
}

/* -------------------------------------------------------------------- right before fast */

static plasmon_status_t check_output(struct multi *multi,
                                     const struct graphs_expect *expect, struct pl_err *err)
{
    const struct graphs_array *array = graphs_array_at(multi->graph, expect->array);
    uint64_t part                    = array->bytes / array->parts;
    uint8_t *got                     = graphs_must_map(array->bytes);
    plasmon_status_t status          = PLASMON_OK;

    for (uint32_t i = 0; i < array->parts && status == PLASMON_OK; i++) {
        uint32_t from =
            graphs_plan_source(&multi->plan, multi->plan.first_cell[expect->array] + i);
        struct multi_device *it = &multi->device[from];

        status = CU(cuCtxSetCurrent(it->context));
        if (status == PLASMON_OK) {
            status = CU(cuMemcpyDtoHAsync(
                got + part * i, it->memory[expect->array] + part * i, part, it->stream[0]));
        }
        if (status == PLASMON_OK) {
            status = CU(cuStreamSynchronize(it->stream[0]));
        }
    }
    status = fail(status, "copying a result", err);
    if (status == PLASMON_OK && !graphs_compare(multi->graph, expect, got, err)) {
        status = PLASMON_EDEVICE;
    }
    graphs_unmap(got, array->bytes);
    return status;
}

static plasmon_status_t check(struct multi *multi, struct pl_err *err)
{
    plasmon_status_t status = PLASMON_OK;

    for (size_t i = 0; i < multi->graph->expects.count && status == PLASMON_OK; i++) {
        status = check_output(multi, pl_vec_at(&multi->graph->expects, i), err);
    }
    return status;
}

static plasmon_status_t run_cuda(const struct graphs_multi *config, double *result,
                                 struct pl_err *err)
{
    struct graphs_multi timed = *config;
    struct multi multi        = {.config  = config,
                                 .graph   = config->run.graph,
                                 .current = GRAPHS_NONE,
                                 .devices =
                                     (uint32_t)pl_min_u64(config->devices, GRAPHS_DEVICES_MAX)};
    plasmon_status_t status;

    (void)alarm(TIME_LIMIT_S); /* of this child */
    status = open_all(&multi, err);
    graphs_plan_make(&multi.plan, multi.graph, multi.devices);
    if (status == PLASMON_OK) {
        status = make_events(&multi, &multi.plan.init);
    }
    if (status == PLASMON_OK) {
        status = make_events(&multi, &multi.plan.first);
    }
    if (status == PLASMON_OK) {
        status = make_events(&multi, &multi.plan.again);
    }
    if (status == PLASMON_OK) {
        await_both_halves(&multi.plan);
        status = make_events(&multi, &multi.plan.flight);
    }
    multi.current = GRAPHS_NONE; /* whichever was opened last */
    if (status == PLASMON_OK) {
        status = play(&multi, &multi.plan.init, err);
    }
    if (status == PLASMON_OK) {
        status = play(&multi, &multi.plan.first, err);
    }
    if (status == PLASMON_OK) {
        status = play(&multi, &multi.plan.again, err);
    }
    if (status == PLASMON_OK) {
        status = check(&multi, err);
    }
    if (status == PLASMON_OK) {
        status = graphs_multi_time(config, once_by_hand, &multi, GRAPHS_MULTI_PLAIN, result,
                                   err);
    }
    if (status == PLASMON_OK) {
        timed.by_hand   = result[GRAPHS_MULTI_PLAIN];
        multi.in_flight = graphs_multi_in_flight(&timed, GRAPHS_MULTI_PLAIN_FLIGHT);
        status          = graphs_multi_time(&timed, once_in_flight, &multi,
                                            GRAPHS_MULTI_PLAIN_FLIGHT, result, err);
    }
    if (status == PLASMON_OK) {
        status = check(&multi, err); /* what came of runs that overlapped */
    }
    return status;
}

#else

static plasmon_status_t run_cuda(const struct graphs_multi *config, double *result,
                                 struct pl_err *err)
{
    (void)config;
    (void)result;
    return pl_err_set(err, PLASMON_ENOTSUP, "this build has no CUDA");
}

#endif

plasmon_status_t graphs_multi_time(const struct graphs_multi *config,
                                   plasmon_status_t (*once)(void *user, struct pl_err *err),
                                   void *user, enum graphs_multi_figure figure,
                                   double *result, struct pl_err *err)
{
    struct graphs_timing timing;
    plasmon_status_t status = graphs_time(&config->run, once, user, &timing, err);

    if (status == PLASMON_OK) {
        result[figure] = timing.seconds / graphs_multi_in_flight(config, figure);
        result[GRAPHS_MULTI_FIGURES + figure] = timing.samples;
    }
    return status;
}

/* On CPUs there is one way by hand: one step after the other. */
plasmon_status_t graphs_multi_bare_run(const void *user, double *result, size_t count,
                                       struct pl_err *err)
{
    const struct graphs_multi *config = user;
    struct graphs_run run             = config->run;
    double figures[GRAPHS_RESULTS];
    plasmon_status_t status;

    if (count != GRAPHS_MULTI_RESULTS) {
        return pl_err_set(err, PLASMON_EINVAL, "no room for the figures");
    }
    for (size_t i = 0; i < count; i++) {
        result[i] = -1;
    }
    if (config->run.cuda) {
        return run_cuda(config, result, err);
    }
    run.modes = 1u << GRAPHS_SINGLE;
    status    = graphs_bare_run(&run, figures, GRAPHS_RESULTS, err);
    result[GRAPHS_MULTI_PLAIN] =
        figures[GRAPHS_SINGLE * GRAPHS_CONTESTANTS + GRAPHS_SERIAL];
    result[GRAPHS_MULTI_FIGURES + GRAPHS_MULTI_PLAIN] =
        figures[GRAPHS_SECONDS + GRAPHS_SINGLE * GRAPHS_CONTESTANTS + GRAPHS_SERIAL];
    result[GRAPHS_MULTI_PLAIN_FLIGHT] = result[GRAPHS_MULTI_PLAIN];
    result[GRAPHS_MULTI_FIGURES + GRAPHS_MULTI_PLAIN_FLIGHT] =
        result[GRAPHS_MULTI_FIGURES + GRAPHS_MULTI_PLAIN];
    return status;
}
