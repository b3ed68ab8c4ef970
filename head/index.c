/*
 * Index launch: one message, one task a point of an index space.
 *
 * The tasks are exactly those that the client would have submitted one by one, in row-major order
 * of the space: each is made from the message (its id, its views, its scalars, its device) and goes
 * the way of every task (submit.c). So there is nothing here that could differ from the loop.
 *
 * A new output is one array, of which each instance writes a view. It begins as a failed tile:
 * whatever no instance writes was never made, and who reads it is told so.
 */
#include "head/core_int.h"

#include <string.h>

enum { SPREAD_BLOCK = 1, SPREAD_ROUND_ROBIN = 2 };

/* The message that one instance would have been. Pointers are into the arrays of struct expansion. */
struct instance {
    Plasmon__V1__Task task;
    Plasmon__V1__Arg *arg;
    Plasmon__V1__Arg **args;
    int64_t *view; /* 3 * PL_DIM_MAX an argument */
    uint64_t *scalars;
};

static bool is_new(const Plasmon__V1__Arg *arg)
{
    return arg->mode == PLASMON__V1__MODE__MODE_OUT && arg->shape != NULL;
}

/* The arrays that the instances write views of. */
static plasmon_status_t outputs_create(struct head_core *core, struct head_client *client,
                                       const Plasmon__V1__Task *task, struct pl_err *err)
{
    for (size_t i = 0; i < task->n_args; i++) {
        const Plasmon__V1__Arg *arg = task->args[i];
        struct head_failure *failure;
        struct head_array *array;
        struct head_tile *tile;
        struct pl_shape shape;
        plasmon_status_t status;

        if (!is_new(arg)) {
            continue;
        }
        status = wire_shape_get(arg->shape, &shape, err);
        if (status != PLASMON_OK) {
            return status;
        }
        failure       = head_failure_create(PLASMON_EINVAL, task->id, client->id,
                                            "no instance of the index launch wrote this part "
                                                  "of the array: let the views cover all of it");
        array         = head_array_create(core, client->space, &shape);
        tile          = head_tile_create(core, &array->extent);
        tile->failure = failure;
        head_tile_label_set(core, tile, task->label);
        head_array_set(core, array, &array->extent, tile);
        head_tile_release(core, tile);
        status = head_client_ref_add(core, client, arg->ref, array, NULL, err);
        if (status != PLASMON_OK) {
            return status;
        }
    }
    return PLASMON_OK;
}

/* ---------------------------------------------------------------------------- one point */

static void point_of(const Plasmon__V1__Index *index, uint64_t number,
                     uint64_t out_point[WIRE_INDEX_DIM_MAX])
{
    for (size_t k = index->n_count; k-- > 0;) {
        out_point[k] = number % index->count[k];
        number /= index->count[k];
    }
}

static void arg_at(const Plasmon__V1__Arg *base, const Plasmon__V1__Index *index,
                   const uint64_t *point, Plasmon__V1__Arg *out, int64_t *view)
{
    *out              = *base;
    out->n_index_step = 0;
    out->index_step   = NULL;
    if (is_new(base)) {
        out->shape = NULL; /* it exists now */
    }
    if (base->n_view == 0) {
        return;
    }
    memcpy(view, base->view, base->n_view * sizeof(int64_t));
    for (size_t i = 0; i < base->n_index_step; i++) {
        view[i / index->n_count * 3] +=
            base->index_step[i] * (int64_t)point[i % index->n_count];
    }
    out->view = view;
}

static uint64_t scalar_at(const Plasmon__V1__Task *task, size_t number,
                          const uint64_t *point)
{
    const Plasmon__V1__Index *index = task->index;
    const uint64_t *steps           = index->scalar_step + number * index->n_count;
    uint64_t bits                   = task->scalars[number];

    for (size_t k = 0; k < index->n_count; k++) {
        if ((index->float_scalars >> number & 1) != 0) {
            double value, step;

            memcpy(&value, &bits, sizeof(value));
            memcpy(&step, &steps[k], sizeof(step));
            value += step * (double)point[k];
            memcpy(&bits, &value, sizeof(bits));
        } else {
            bits += steps[k] * point[k];
        }
    }
    return bits;
}

/* One that is drained takes nothing new, and nobody has named it. */
static bool usable(const struct head_device *device)
{
    return device->joined && !device->gone && !device->draining;
}

/* Devices that are there, in order; number i of them. */
static uint32_t usable_device(const struct head_core *core, uint64_t i)
{
    for (uint32_t index = 0; index < core->devices.count; index++) {
        const struct head_device *device = head_device_at(core, index);

        if (usable(device) && i-- == 0) {
            return index;
        }
    }
    return 0;
}

static uint32_t place_of(const struct head_core *core, const Plasmon__V1__Task *task,
                         uint64_t number, uint64_t total, uint64_t devices)
{
    if (devices == 0) {
        return task->place;
    }
    switch (task->index->spread) {
    case SPREAD_BLOCK:
        return usable_device(core, number * devices / total) + 1;
    case SPREAD_ROUND_ROBIN:
        return usable_device(core, number % devices) + 1;
    default:
        return task->place;
    }
}

static void instance_fill(const struct head_core *core, const Plasmon__V1__Task *task,
                          uint64_t number, uint64_t total, uint64_t devices,
                          struct instance *out)
{
    uint64_t point[WIRE_INDEX_DIM_MAX];

    point_of(task->index, number, point);
    out->task         = *task;
    out->task.index   = NULL;
    out->task.id      = task->id + number;
    out->task.args    = out->args;
    out->task.scalars = out->scalars;
    out->task.place   = place_of(core, task, number, total, devices);
    for (size_t i = 0; i < task->n_args; i++) {
        arg_at(task->args[i], task->index, point, &out->arg[i],
               out->view + i * 3 * PL_DIM_MAX);
        out->args[i] = &out->arg[i];
    }
    for (size_t i = 0; i < task->n_scalars; i++) {
        out->scalars[i] =
            task->index->n_scalar_step == 0 ? task->scalars[i] : scalar_at(task, i, point);
    }
}

plasmon_status_t head_index_submit(struct head_core *core, struct head_client *client,
                                   const Plasmon__V1__Task *task, struct pl_err *err)
{
    uint64_t total = 1, devices = 0;
    struct instance instance;
    plasmon_status_t status;

    for (size_t k = 0; k < task->index->n_count; k++) {
        total *= task->index->count[k];
    }
    for (uint32_t i = 0; i < core->devices.count; i++) {
        devices += usable(head_device_at(core, i));
    }
    status = outputs_create(core, client, task, err);
    if (status != PLASMON_OK) {
        return status;
    }

    instance.arg     = head_alloc((task->n_args + 1) * sizeof(*instance.arg));
    instance.args    = head_alloc((task->n_args + 1) * sizeof(*instance.args));
    instance.view    = head_alloc((task->n_args + 1) * 3 * PL_DIM_MAX * sizeof(int64_t));
    instance.scalars = head_alloc((task->n_scalars + 1) * sizeof(uint64_t));
    client->ops_taken += total - 1; /* whoever took the message counted one */
    for (uint64_t i = 0; status == PLASMON_OK && i < total; i++) {
        instance_fill(core, task, i, total, devices, &instance);
        status = head_submit(core, client, &instance.task, err);
    }
    pl_free(instance.arg);
    pl_free(instance.args);
    pl_free(instance.view);
    pl_free(instance.scalars);
    return status;
}
