/*
 * A COPY with a function: its pieces are not copied one beside the other but are the function's
 * arguments, read where they lie, here or in the mapped memory of other devices of the host; its
 * operand is what the function writes. So one launch joins arrays of many devices without a place
 * for them to come to (docs/collectives.md).
 *
 * To everybody but the device it is a copy. Its sources were waited for and are kept as those of
 * any other, it writes nothing that it reads, and it can be done again. So only functions of the
 * catalogue are taken, which write their first argument alone, and such as need neither scratch nor
 * a plan.
 */
#include "worker/core_int.h"

#include <string.h>

bool worker_launch_combines(const struct worker_launch *launch)
{
    return launch->kind == PLASMON__V1__LAUNCH_KIND__LAUNCH_COPY &&
           launch->function_id != 0;
}

/* The piece as the function sees it; the address is the place in its buffer. */
static void aim(struct kernel_arg *arg, const struct worker_piece *piece, uint32_t dtype)
{
    int64_t first = 0;
    int64_t stride[PL_DIM_MAX];

    memset(arg, 0, sizeof(*arg));
    pl_box_strides(&piece->src_frame, stride);
    for (uint32_t i = 0; i < piece->box.ndim; i++) {
        arg->dim[i]    = piece->box.count[i];
        arg->stride[i] = stride[i];
        first += (piece->box.start[i] - piece->src_frame.start[i]) * stride[i];
    }
    arg->mode      = KERNEL_IN;
    arg->dtype     = dtype;
    arg->ndim      = piece->box.ndim;
    arg->data.addr = (uint64_t)first * pl_dtype_bytes(dtype);
}

/* NULL: no memory. */
static struct kernel_arg *arguments(struct worker_core *core,
                                    const struct worker_launch *launch)
{
    struct kernel_arg *args;

    pl_vec_clear(&core->args);
    args = pl_vec_push_n(&core->args, launch->piece_count + 1);
    if (args == NULL) {
        return NULL;
    }
    args[0]      = launch->operands[0].arg;
    args[0].mode = KERNEL_OUT;
    for (uint32_t i = 0; i < launch->piece_count; i++) {
        aim(&args[i + 1], &launch->pieces[i], args[0].dtype);
    }
    return args;
}

static plasmon_status_t check_shapes(struct worker_core *core,
                                     const struct worker_launch *launch,
                                     const struct kernel_arg *args, struct pl_err *err)
{
    struct kernel_arg_shape *shapes;

    pl_vec_clear(&core->shapes);
    shapes = pl_vec_push_n(&core->shapes, launch->piece_count + 1);
    if (shapes == NULL) {
        return pl_err_set(err, PLASMON_ENOMEM, "no memory to check %u arguments",
                          launch->piece_count + 1);
    }
    for (uint32_t i = 0; i <= launch->piece_count; i++) {
        shapes[i] = (struct kernel_arg_shape){
            .mode  = args[i].mode,
            .given = true,
            .shape = {.dtype = args[i].dtype, .ndim = args[i].ndim},
        };
        memcpy(shapes[i].shape.dim, args[i].dim, sizeof(args[i].dim));
    }
    return kernel_check(launch->function, shapes, launch->piece_count + 1, launch->scalars,
                        launch->scalar_count, err);
}

static uint64_t scratch_needed(const struct worker_core *core,
                               const struct worker_launch *launch,
                               const struct kernel_arg *args)
{
    const struct worker_ops *ops = core->config.ops;

    return (ops->own_scratch != NULL ? ops->own_scratch : ops->scratch_bytes)(
        core->config.user, launch->function, args, launch->piece_count + 1, launch->scalars,
        launch->scalar_count);
}

plasmon_status_t worker_combine_check(struct worker_core *core,
                                      struct worker_launch *launch, struct pl_err *err)
{
    const struct kernel_arg *args = arguments(core, launch);
    plasmon_status_t status;

    if (args == NULL) {
        return pl_err_set(err, PLASMON_ENOMEM, "no memory for %u arguments",
                          launch->piece_count + 1);
    }
    launch->function = kernel_by_id(launch->function_id);
    if (launch->function == NULL) {
        return pl_err_set(err, PLASMON_ENOFUNCTION,
                          "this worker has no function with id %08x", launch->function_id);
    }
    status = check_shapes(core, launch, args, err);
    if (status == PLASMON_OK && scratch_needed(core, launch, args) != 0) {
        status = pl_err_set(err, PLASMON_ENOTSUP,
                            "%s needs memory of its own for sources that lie so, and "
                            "cannot read them where they are",
                            launch->function->name);
    }
    return status;
}

static void count_traffic(struct worker_core *core, struct worker_launch *launch)
{
    for (uint32_t i = 0; i < launch->piece_count; i++) {
        const struct worker_piece *piece = &launch->pieces[i];
        uint32_t device                  = wire_buffer_device(piece->src);

        if (worker_host_device_of(core, device) != core->config.host_device) {
            worker_traffic_count(core, launch, device, WORKER_ROUTE_PEER,
                                 (uint64_t)pl_box_elements(&piece->box) *
                                     pl_dtype_bytes(launch->operands[0].arg.dtype));
        }
    }
}

plasmon_status_t worker_combine_enqueue(struct worker_core *core,
                                        struct worker_launch *launch, uint32_t stream,
                                        struct pl_err *err)
{
    const struct worker_operand *to = &launch->operands[0];
    struct kernel_arg *args         = arguments(core, launch);
    struct worker_source *sources;
    plasmon_status_t status = PLASMON_OK;

    pl_vec_clear(&core->sources);
    sources = pl_vec_push_n(&core->sources, launch->piece_count + 1);
    if (args == NULL || sources == NULL) {
        return PLASMON_ENOMEM;
    }
    sources[0] = (struct worker_source){
        .host_device = core->config.host_device, .offset = to->offset, .bytes = to->bytes};
    for (uint32_t i = 0; status == PLASMON_OK && i < launch->piece_count; i++) {
        status = worker_piece_source(core, &launch->pieces[i], to->arg.dtype,
                                     &sources[i + 1], err);
    }
    if (status == PLASMON_OK) {
        status =
            core->config.ops->combine(core->config.user, stream, launch->function, args,
                                      sources, launch->piece_count + 1, launch->scalars,
                                      launch->scalar_count, launch->seq, err);
    }
    if (status == PLASMON_OK) {
        count_traffic(core, launch);
    }
    return status;
}

/* -------------------------------------------------------------------------------- teams */

const struct worker_piece *worker_joint_member(const struct worker_core *core,
                                               const struct worker_launch *launch)
{
    for (uint32_t i = 0; i < launch->piece_count; i++) {
        uint32_t device = wire_buffer_device(launch->pieces[i].src);

        if (worker_host_device_of(core, device) == core->config.host_device) {
            return &launch->pieces[i];
        }
    }
    return NULL;
}

static struct worker_launch *running_find(struct worker_core *core, uint64_t seq)
{
    for (uint32_t i = 0; i < core->stream_count; i++) {
        struct worker_launch *launch = core->streams[i].running.first;

        for (; launch != NULL; launch = launch->next) {
            if (launch->seq == seq) {
                return launch;
            }
        }
    }
    return NULL;
}

/*
 * The members of other devices, which a team does not read, may not be right yet. All of these have
 * smaller numbers, and are published.
 */
static plasmon_status_t wait_for_members(struct worker_core *core,
                                         const struct worker_launch *launch)
{
    plasmon_status_t status = PLASMON_OK;

    for (uint32_t i = 0; status == PLASMON_OK && i < launch->after_count; i++) {
        uint32_t device = worker_host_device_of(core, wire_point_device(launch->after[i]));
        uint64_t *word, value;

        if (device != core->config.host_device && device < core->config.host_device_count &&
            core->config.timelines[device] != NULL &&
            store_timeline_point(core->config.timelines[device],
                                 wire_point_seq(launch->after[i]), &word,
                                 &value) == STORE_POINT_ENQUEUED) {
            status = core->config.ops->wait(core->config.user, WORKER_STREAM_ALONE, device,
                                            word, value);
        }
    }
    return status;
}

void worker_core_alone(struct worker_core *core, uint64_t seq)
{
    struct worker_launch *launch = running_find(core, seq);
    struct pl_err err            = {.status = PLASMON_OK};
    plasmon_status_t status;

    if (launch == NULL || launch->failure != PLASMON_OK) {
        return; /* its stream waits all the same, and goes on */
    }
    status = wait_for_members(core, launch);
    if (status == PLASMON_OK) {
        status = worker_combine_enqueue(core, launch, WORKER_STREAM_ALONE, &err);
    }
    if (status != PLASMON_OK) {
        worker_core_failed(core, seq, status,
                           err.text[0] != '\0' ? err.text : pl_status_text(status));
    }
}
