/*
 * Copies between objects and memory of a client's host (store/host_buffer.h): put from it, get into
 * it. Each is one launch on a device of that host, numbered like every other one, so a put, the
 * tasks that read it and a get of their result need no word from anybody in between: the device
 * does them one after the other.
 *
 * The head knows the memory by its number alone. Whether there is such memory, and enough of it,
 * the worker finds out, which has it mapped; what of it is in use is the client's own business.
 * That is why such a launch, once sent, is resolved only when it is over (task.c): the client may
 * use the memory again then.
 *
 * A get has all that it reads in one buffer, side by side, so that it is one copy. What does not
 * lie so is copied together on the device first; what lies on other hosts is brought to one of the
 * client's.
 *
 * WHEN NOT. Clients are told when all devices of their host are gone, or it is drained: from then on
 * they put and get by ways that need no device of that host. They answer, so that it is known when
 * nothing more can come (drain.c). What they had sent before is done on a node that is drained, for
 * nobody else reaches that memory: what is put goes on to a node that stays at once, and what is got
 * leaves nothing behind but a replica.
 */
#include "head/core_int.h"

#include <string.h>

enum { FIELD_HOST_COPIES = 22 };

/* ------------------------------------------------------------------- who may have them done */

/* As far as anybody knows: a host whose devices have not joined yet is about to have some. */
static bool host_copies(const struct head_core *core, const char *host)
{
    bool away = false;

    for (uint32_t i = 0; i < core->devices.count; i++) {
        const struct head_device *device = head_device_at(core, i);

        if (strcmp(device->host, host) != 0) {
            continue;
        }
        if (device->gone || device->draining) {
            away = true;
        } else if (device->joined) {
            return true;
        }
    }
    return !away;
}

/* Odd: its host's devices copy; 0: so they always did. */
static bool told(const struct head_client *client)
{
    return client->host_copies == 0 || client->host_copies % 2 == 1;
}

void head_host_copies_begin(struct head_core *core, struct head_client *client)
{
    client->host_copies       = host_copies(core, client->host) ? 0 : 2;
    client->host_copies_heard = client->host_copies; /* it comes with the welcome */
}

void head_host_copies_tell(struct head_core *core, const char *host)
{
    bool copies = host_copies(core, host);
    struct pl_list *pos;

    pl_list_for_each(pos, &core->clients) {
        struct head_client *client = pl_container_of(pos, struct head_client, link);

        if (told(client) == copies || strcmp(client->host, host) != 0) {
            continue;
        }
        client->host_copies += client->host_copies == 0 ? 2 : 1;
        head_bytes_varint(&client->out, FIELD_HOST_COPIES << 3);
        head_bytes_varint(&client->out, client->host_copies);
        head_client_dirty(core, client);
    }
}

bool head_host_copies_heard(const struct head_core *core, const char *host)
{
    struct pl_list *pos;

    pl_list_for_each(pos, &core->clients) {
        const struct head_client *client = pl_container_of(pos, struct head_client, link);

        if (client->host_copies_heard != client->host_copies &&
            strcmp(client->host, host) == 0) {
            return false;
        }
    }
    return true;
}

/* A get, on record until its bytes are where they belong. */
static struct head_record *get_record(struct head_core *core, const struct head_run *run,
                                      const Plasmon__V1__Task *task)
{
    struct head_record *record =
        head_record_create(core, run, PLASMON__V1__LAUNCH_KIND__LAUNCH_GET_HOST);

    if (record != NULL) {
        record->host_buffer = task->host_buffer;
        record->read_offset = task->host_offset;
    }
    return record;
}

static struct head_launch launch_of(struct head_core *core, struct head_client *client,
                                    const Plasmon__V1__Task *task, uint32_t kind)
{
    return (struct head_launch){
        .kind        = kind,
        .client      = client,
        .id          = task->id,
        .label       = task->label,
        .host_buffer = task->host_buffer,
        .offset      = task->host_offset,
        .submit_ns   = task->submit_ns != 0 ? task->submit_ns
                       : core->tracing != 0 ? core->trace_ns
                                            : 0,
        .retries_max = task->retries == 0 ? core->config.retries : task->retries - 1,
    };
}

/*
 * On a node that is drained it must not stay: *out_to, or NULL, when nobody takes it yet. If nobody
 * ever will the put has failed.
 */
static plasmon_status_t admit_drained(struct head_core *core,
                                      const struct head_device *device,
                                      struct head_tile *tile, const struct pl_shape *shape,
                                      struct head_device **out_to, struct pl_err *err)
{
    struct head_failure *failure = NULL;

    if (!device->draining) {
        return PLASMON_OK;
    }
    *out_to = head_drain_onward(core, device, pl_shape_bytes(shape), &failure);
    if (failure == NULL) {
        return PLASMON_OK;
    }
    tile->failure = failure; /* the ref exists, failed */
    head_tile_empty(core, tile);
    return pl_err_set(err, failure->status, "%s", failure->text);
}

plasmon_status_t head_host_put(struct head_core *core, struct head_client *client,
                               const Plasmon__V1__Task *task, struct pl_err *err)
{
    struct head_buffer *buffer;
    struct head_tile *tile;
    struct head_array *array;
    struct head_operand operand;
    struct head_launch launch;
    struct head_device *to  = NULL;
    struct head_put put     = {.ref       = task->args[0]->ref,
                               .place     = task->place,
                               .host      = client->host,
                               .donatable = task->put_donatable,
                               .label     = task->label};
    plasmon_status_t status = wire_shape_get(task->args[0]->shape, &put.shape, err);

    if (status == PLASMON_OK) {
        status = head_put_array(core, client, &put, &buffer, &tile, &array, err);
    }
    if (status != PLASMON_OK) {
        return status;
    }
    status = admit_drained(core, buffer->device, tile, &put.shape, &to, err);
    if (status != PLASMON_OK) {
        head_tile_release(core, tile);
        return status;
    }
    status = head_put_admit_second(core, array, tile, task->put_replica, err);
    if (status != PLASMON_OK) {
        return status;
    }
    array->put_offset = UINT64_MAX; /* all of it comes at once */
    operand           = head_operand_whole(buffer, true, true);
    launch = launch_of(core, client, task, PLASMON__V1__LAUNCH_KIND__LAUNCH_PUT_HOST);
    launch.device        = buffer->device;
    launch.operands      = &operand;
    launch.operand_count = 1;
    head_task_makes(core, head_task_start(core, &launch), tile);
    head_tile_release(core, tile);
    if (to != NULL) {
        head_drain_go_on(core, array, to);
    }
    head_second_want(core, array);
    return PLASMON_OK;
}

/* ---------------------------------------------------------------------------------- get */

static bool on_host(const struct head_device *device, const struct head_client *client)
{
    return !device->gone && device->joined && strcmp(device->host, client->host) == 0;
}

/* A device of the client's host: one that holds all of the box, else as for a task. */
static struct head_device *device_for(struct head_core *core,
                                      const struct head_client *client,
                                      struct head_array *array, const struct pl_box *box,
                                      struct head_failure **out_failure)
{
    struct head_want want = {.array = array,
                             .box   = *box,
                             .bytes = (uint64_t)pl_box_elements(box) *
                                      pl_dtype_bytes(array->shape.dtype),
                             .host        = client->host,
                             .drained_too = true};

    for (uint32_t i = 0; i < core->devices.count; i++) {
        struct head_device *device = head_device_at(core, i);

        if (on_host(device, client) &&
            head_move_common(array, box, device, false) != NULL) {
            return device;
        }
    }
    return head_place(core, &want, 1, 0, out_failure);
}

/*
 * The buffer in which the view lies side by side; held for the caller. io_view: in the coordinates
 * of that buffer's frame.
 */
static struct head_buffer *buffer_for(struct head_core *core, struct head_device *device,
                                      struct head_array *array, struct pl_view *io_view,
                                      struct head_failure **out_failure)
{
    struct head_array *dense = NULL;
    struct head_buffer *buffer;
    struct pl_box hull = pl_view_hull(io_view);

    if (!pl_view_dense(io_view)) {
        dense = head_read_compact(core, array, io_view, device->index + 1, out_failure);
        if (dense == NULL) {
            return NULL;
        }
        array    = dense;
        hull     = dense->extent;
        *io_view = pl_view_of_box(&hull);
    }
    buffer = head_move_read(core, array, &hull, device, false, out_failure);
    if (buffer != NULL && !head_view_without_gaps(io_view, &buffer->frame)) {
        head_buffer_release(core, buffer);
        buffer = head_move_read(core, array, &hull, device, true, out_failure);
    }
    if (dense != NULL) {
        head_array_release(core, dense); /* its buffer is held */
    }
    return buffer;
}

/* record: of what is got again; NULL: for the first time. launch: all but the operand. */
static bool get_start(struct head_core *core, const struct head_arg *arg,
                      struct head_launch *launch, struct head_record *record,
                      struct head_failure **out_failure)
{
    struct head_failure *failure = head_array_failure(arg->array, &arg->hull);
    struct pl_view view          = arg->view;
    struct head_device *device;
    struct head_buffer *buffer;
    struct head_operand operand;
    struct head_task *task;

    if (failure != NULL) {
        *out_failure = head_failure_create(
            PLASMON_EDEPENDENCY, failure->first_task, failure->first_client,
            "get %llu needs the result of a task that failed; the first failure: %s",
            (unsigned long long)launch->id, head_failure_cause(failure));
        return false;
    }
    device = device_for(core, launch->client, arg->array, &arg->hull, out_failure);
    buffer =
        device != NULL ? buffer_for(core, device, arg->array, &view, out_failure) : NULL;
    if (buffer == NULL) {
        return false;
    }
    operand               = (struct head_operand){.mode   = PLASMON__V1__MODE__MODE_IN,
                                                  .buffer = buffer,
                                                  .reads  = true,
                                                  .box    = pl_view_hull(&view),
                                                  .view   = view};
    launch->device        = buffer->device;
    launch->operands      = &operand;
    launch->operand_count = 1;
    task                  = head_task_start(core, launch);
    if (record != NULL) {
        head_record_started(record, task);
    }
    head_buffer_release(core, buffer); /* the launch uses it */
    return true;
}

bool head_host_get_again(struct head_core *core, const struct head_run *run,
                         struct head_failure **out_failure)
{
    struct head_launch launch = {
        .kind        = PLASMON__V1__LAUNCH_KIND__LAUNCH_GET_HOST,
        .client      = run->client,
        .id          = run->id,
        .label       = run->label,
        .host_buffer = run->record->host_buffer,
        .offset      = run->record->read_offset,
        .retries_max = run->retries,
    };

    return get_start(core, &run->args[0], &launch, run->record, out_failure);
}

plasmon_status_t head_host_get(struct head_core *core, struct head_client *client,
                               const Plasmon__V1__Task *task, struct pl_err *err)
{
    struct head_failure *failure = NULL;
    struct head_record *record;
    struct head_launch launch;
    struct head_run run;
    struct head_arg arg;
    bool started;
    plasmon_status_t status = head_arg_resolve(core, client, task->args[0], &arg, err);

    if (status != PLASMON_OK) {
        return status;
    }
    arg.mode = PLASMON__V1__MODE__MODE_IN;
    head_reduce_fold(core, arg.array);
    head_spill_plan_begin(core);
    launch = launch_of(core, client, task, PLASMON__V1__LAUNCH_KIND__LAUNCH_GET_HOST);
    run    = (struct head_run){
           .args = &arg, .arg_count = 1, .label = task->label, .retries = launch.retries_max};
    record  = get_record(core, &run, task);
    started = get_start(core, &arg, &launch, record, &failure);
    if (record != NULL) {
        head_record_release(core, record); /* its launch has it */
    }
    if (!started) {
        if (failure->first_task == 0) {
            failure->first_task   = task->id;
            failure->first_client = client->id;
        }
        head_client_failed(core, client, task->id, failure);
        core->tasks_failed++;
        head_failure_release(failure);
    }
    return PLASMON_OK;
}
