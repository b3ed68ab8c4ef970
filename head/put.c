/*
 * Bytes in: a put whose bytes come in messages (pieces in order, each a launch), and one through
 * shared memory (opened: the buffer is made and its client told; sealed: it has written).
 */
#include "head/wait.h"

/*
 * Over a quota: the ref exists, failed, so that whoever uses it is told why. What has failed is not
 * charged.
 */
static plasmon_status_t put_refused(struct head_core *core, struct head_client *client,
                                    const struct head_put *put, plasmon_status_t status,
                                    const struct pl_err *err)
{
    struct pl_box box        = pl_box_of_shape(&put->shape);
    struct head_array *array = head_array_create(core, client->space, &put->shape);
    struct head_tile *tile   = head_tile_create(core, &box);
    plasmon_status_t added;

    tile->failure = head_failure_create(status, 0, client->id, "%s", err->text);
    head_tile_label_set(core, tile, put->label);
    head_array_set(core, array, &box, tile);
    added = head_client_ref_add(core, client, put->ref, array, NULL, NULL);
    head_tile_release(core, tile);
    return added == PLASMON_OK ? status : added;
}

plasmon_status_t head_put_array(struct head_core *core, struct head_client *client,
                                const struct head_put *put, struct head_buffer **out_buffer,
                                struct head_tile **out_tile, struct head_array **out_array,
                                struct pl_err *err)
{
    struct pl_box box            = pl_box_of_shape(&put->shape);
    struct head_want want        = {.host        = put->host,
                                    .drained_too = put->host != NULL && put->place == 0,
                                    .box         = box,
                                    .bytes       = pl_shape_bytes(&put->shape)};
    struct head_failure *failure = NULL;
    struct head_array *array;
    struct head_tile *tile;
    struct head_device *device;
    struct head_buffer *buffer = NULL;
    bool excess                = false;
    plasmon_status_t status;

    status = head_space_admit_task(client->space, err);
    if (status == PLASMON_OK) {
        status = head_space_admit_bytes(client->space, want.bytes, err);
    }
    if (status != PLASMON_OK) {
        return put_refused(core, client, put, status, err);
    }
    array = head_array_create(core, client->space, &put->shape);
    tile  = head_tile_create(core, &box);
    head_tile_label_set(core, tile, put->label);
    head_array_set(core, array, &box, tile);
    status = head_client_ref_add(core, client, put->ref, array, NULL, err);
    if (status != PLASMON_OK) {
        head_tile_release(core, tile);
        return status;
    }

    device = head_place(core, &want, 1, put->place, &failure);
    if (device != NULL) {
        head_spill_plan_begin(core);
        excess = head_spill_room_excess(core, device, head_spill_rounded(want.bytes));
        buffer = head_buffer_create(core, device, &box, put->shape.dtype);
        if (buffer == NULL) {
            failure =
                head_failure_create(PLASMON_ELIMIT, 0, 0,
                                    "the object table of device %u is full (%d objects); "
                                    "release some refs",
                                    device->index, HEAD_SLOTS_MAX);
        }
    }
    if (buffer == NULL) {
        tile->failure = failure; /* the ref exists, failed */
        head_tile_release(core, tile);
        return pl_err_set(err, failure->status, "%s", failure->text);
    }
    buffer->donatable = put->donatable;
    buffer->excess    = excess;
    head_instance_add(core, tile, buffer, &box);
    head_buffer_release(core, buffer); /* the instance holds it */
    *out_buffer = buffer;
    *out_tile   = tile;
    *out_array  = array;
    return PLASMON_OK;
}

plasmon_status_t head_put_admit_second(struct head_core *core, struct head_array *array,
                                       struct head_tile *tile, bool replica,
                                       struct pl_err *err)
{
    plasmon_status_t status = replica ? head_second_admit(core, array, err) : PLASMON_OK;

    array->put_replica = replica;
    if (status != PLASMON_OK) {
        /* the ref exists, failed */
        tile->failure = head_failure_create(status, 0, 0, "%s", err->text);
        head_tile_empty(core, tile);
        head_tile_release(core, tile);
    }
    return status;
}

/* The next piece is of it. A put that has failed is over: the rest of its pieces fail as it did. */
static plasmon_status_t put_more(struct head_client *client, const Plasmon__V1__Task *task,
                                 struct head_array **out_array, struct pl_err *err)
{
    const struct head_failure *failure;
    struct head_ref *ref;
    plasmon_status_t status = head_client_ref_get(client, task->args[0]->ref, 0, &ref, err);

    if (status != PLASMON_OK) {
        return status;
    }
    failure = head_array_failure(ref->array, &ref->array->extent);
    if (failure != NULL) {
        ref->array->put_offset = UINT64_MAX;
        return pl_err_set(err, failure->status, "%s", failure->text);
    }
    if (ref->array->put_offset != task->put_offset) {
        return pl_err_set(
            err, PLASMON_EINVAL,
            "put of ref %llu: a piece at %llu came, but the next one starts at %lld",
            (unsigned long long)task->args[0]->ref, (unsigned long long)task->put_offset,
            (long long)ref->array->put_offset);
    }
    *out_array = ref->array;
    return PLASMON_OK;
}

/* Where the bytes of a piece go; the tile is held until head_tile_release(). */
struct put_place {
    struct head_array *array;
    struct head_buffer *buffer;
    struct head_tile *tile;
};

static plasmon_status_t piece_admitted(struct head_client *client,
                                       const Plasmon__V1__Task *task, struct pl_err *err)
{
    return head_space_admit_message(client->space, task->data.len, "a piece of a put", err);
}

/* The first piece makes the array. */
static plasmon_status_t place_first(struct head_core *core, struct head_client *client,
                                    const Plasmon__V1__Task *task, struct put_place *out,
                                    struct pl_err *err)
{
    struct head_put put = {.ref       = task->args[0]->ref,
                           .place     = task->place,
                           .donatable = task->put_donatable,
                           .label     = task->label};
    plasmon_status_t status;

    if (task->args[0]->shape == NULL) {
        return pl_err_set(err, PLASMON_EINVAL, "a put needs a shape");
    }
    status = wire_shape_get(task->args[0]->shape, &put.shape, err);
    if (status != PLASMON_OK) {
        return status;
    }
    status = piece_admitted(client, task, err);
    if (status != PLASMON_OK) {
        return put_refused(core, client, &put, status, err);
    }
    status = head_put_array(core, client, &put, &out->buffer, &out->tile, &out->array, err);
    return status != PLASMON_OK
               ? status
               : head_put_admit_second(core, out->array, out->tile, task->put_replica, err);
}

/* A piece that is not taken fails the whole put. */
static void put_fail(struct head_core *core, const struct head_client *client,
                     const Plasmon__V1__Task *task, const struct put_place *place,
                     const struct pl_err *err)
{
    struct head_failure *failure =
        head_failure_create(err->status, task->id, client->id, "%s", err->text);

    head_tile_fail(core, place->tile, failure);
    head_failure_release(failure);
    place->array->put_offset = UINT64_MAX;
}

static plasmon_status_t place_next(struct head_core *core, struct head_client *client,
                                   const Plasmon__V1__Task *task, struct put_place *out,
                                   struct pl_err *err)
{
    plasmon_status_t status = put_more(client, task, &out->array, err);

    if (status != PLASMON_OK) {
        return status;
    }
    out->tile =
        pl_list_first(&out->array->fragments, struct head_fragment, array_link)->tile;
    out->tile->refs++;
    status = piece_admitted(client, task, err);
    if (status == PLASMON_OK && pl_list_empty(&out->tile->instances)) {
        status =
            pl_err_set(err, PLASMON_ELOST, "put of ref %llu: its first pieces were lost",
                       (unsigned long long)task->args[0]->ref);
    }
    if (status != PLASMON_OK) {
        put_fail(core, client, task, out, err);
        head_tile_release(core, out->tile);
        return status;
    }
    out->buffer =
        pl_list_first(&out->tile->instances, struct head_instance, tile_link)->buffer;
    return PLASMON_OK;
}

static plasmon_status_t put_fit(struct head_core *core, const struct head_client *client,
                                const Plasmon__V1__Task *task,
                                const struct put_place *place, struct pl_err *err)
{
    uint64_t total = pl_shape_bytes(&place->array->shape);
    plasmon_status_t status;

    if (task->data.len != 0 && task->put_offset + task->data.len <= total) {
        return PLASMON_OK;
    }
    status =
        pl_err_set(err, PLASMON_ESHAPE,
                   "put of ref %llu: piece of %zu bytes at %llu of a value of %llu bytes",
                   (unsigned long long)task->args[0]->ref, task->data.len,
                   (unsigned long long)task->put_offset, (unsigned long long)total);
    put_fail(core, client, task, place, err);
    return status;
}

/* Of a buffer that is being put: NULL if that is over. */
static struct head_task *piece_before(const struct head_buffer *buffer)
{
    return pl_list_empty(&buffer->writers)
               ? NULL
               : pl_container_of(buffer->writers.prev, struct head_use, link)->task;
}

/*
 * Each piece counts as a writer of all of the buffer, so readers depend on the last one, and that
 * on those before it.
 */
static void put_launch(struct head_core *core, struct head_client *client,
                       const Plasmon__V1__Task *task, const struct put_place *place)
{
    struct head_operand operand =
        head_operand_whole(place->buffer, task->put_offset == 0, true);
    struct head_launch launch = {.kind          = PLASMON__V1__LAUNCH_KIND__LAUNCH_PUT,
                                 .device        = place->buffer->device,
                                 .client        = client,
                                 .id            = task->id,
                                 .label         = task->label,
                                 .operands      = &operand,
                                 .operand_count = 1,
                                 .data          = task->data.data,
                                 .data_length   = task->data.len,
                                 .offset        = task->put_offset,
                                 .beside        = piece_before(place->buffer),
                                 .retries_max   = core->config.retries};

    head_task_makes(core, head_task_start(core, &launch), place->tile);
}

plasmon_status_t head_put(struct head_core *core, struct head_client *client,
                          const Plasmon__V1__Task *task, struct pl_err *err)
{
    struct put_place place = {.array = NULL};
    uint64_t end;
    bool last = false;
    plasmon_status_t status;

    if (task->n_args != 1 || task->args[0]->mode != PLASMON__V1__MODE__MODE_OUT) {
        return pl_err_set(err, PLASMON_EMALFORMED, "a put has one argument, OUT");
    }
    status = task->put_offset == 0 ? place_first(core, client, task, &place, err)
                                   : place_next(core, client, task, &place, err);
    if (status != PLASMON_OK) {
        return status;
    }
    status = put_fit(core, client, task, &place, err);
    if (status == PLASMON_OK) {
        end                     = task->put_offset + task->data.len;
        last                    = end == pl_shape_bytes(&place.array->shape);
        place.array->put_offset = last ? UINT64_MAX : end;
        put_launch(core, client, task, &place);
    }
    head_tile_release(core, place.tile);
    if (status == PLASMON_OK && last) {
        head_second_want(core, place.array);
    }
    return status;
}

plasmon_status_t head_put_open(struct head_core *core, struct head_client *client,
                               const Plasmon__V1__PutOpen *open, struct pl_err *err)
{
    struct head_array *array;
    struct head_buffer *buffer;
    struct head_tile *tile;
    struct head_operand operand;
    struct head_launch launch = {.kind = PLASMON__V1__LAUNCH_KIND__LAUNCH_ALLOC};
    struct head_task *started;
    struct head_wait *wait;
    struct head_put put = {.ref       = open->ref,
                           .place     = open->place,
                           .donatable = open->donatable,
                           .label     = open->label};
    struct pl_err why   = {0};
    plasmon_status_t status;

    if (open->shape == NULL) {
        return pl_err_set(err, PLASMON_EMALFORMED, "PutOpen needs a shape");
    }
    status = wire_shape_get(open->shape, &put.shape, &why);
    if (status == PLASMON_OK) {
        status = head_put_array(core, client, &put, &buffer, &tile, &array, &why);
    }
    if (status == PLASMON_OK) {
        status = head_put_admit_second(core, array, tile, open->replica, &why);
    }
    if (status != PLASMON_OK) {
        head_wait_put_ready(core, client, open->request, 0, false, status, why.text);
        return PLASMON_OK;
    }
    array->put_offset     = 0;
    operand               = head_operand_whole(buffer, true, true);
    operand.client_writes = true;
    launch.device         = buffer->device;
    launch.operands       = &operand;
    launch.operand_count  = 1;
    launch.label          = open->label;
    launch.retries_max    = core->config.retries;
    started               = head_task_start(core, &launch);
    head_task_makes(core, started, tile);
    head_tile_release(core, tile);

    wait         = head_wait_create(client, HEAD_WAIT_PUT_READY, open->request);
    wait->buffer = buffer->id;
    wait->bulk   = open->bulk;
    wait->array  = array;
    array->refs++;
    head_wait_for(wait, started, false);
    head_wait_ended(core, wait, NULL); /* set up */
    return PLASMON_OK;
}

plasmon_status_t head_put_seal(struct head_core *core, struct head_client *client,
                               const Plasmon__V1__PutSeal *seal, struct pl_err *err)
{
    struct head_ref *ref;
    plasmon_status_t status = head_client_ref_get(client, seal->ref, 0, &ref, err);
    struct head_failure *failure;
    struct head_tile *tile;
    struct head_buffer *buffer;
    struct head_operand operand;
    struct head_launch launch = {.kind = PLASMON__V1__LAUNCH_KIND__LAUNCH_SEAL};

    if (status != PLASMON_OK) {
        return status;
    }
    if (head_array_failure(ref->array, &ref->array->extent) != NULL) {
        ref->array->put_offset = UINT64_MAX;
        return PLASMON_OK; /* its failure and this crossed */
    }
    if (ref->array->put_offset != 0) {
        return pl_err_set(err, PLASMON_EINVAL,
                          "PutSeal of ref %llu, which is not being put",
                          (unsigned long long)seal->ref);
    }
    tile = pl_list_first(&ref->array->fragments, struct head_fragment, array_link)->tile;
    ref->array->put_offset = UINT64_MAX;
    if (seal->abandon) {
        failure = head_failure_create(PLASMON_ECANCELLED, 0, 0, "the put was abandoned");
        head_tile_fail(core, tile, failure);
        head_failure_release(failure);
        return PLASMON_OK;
    }
    if (tile->failure != NULL || pl_list_empty(&tile->instances)) {
        return PLASMON_OK; /* its reader will learn */
    }
    buffer  = pl_list_first(&tile->instances, struct head_instance, tile_link)->buffer;
    operand = head_operand_whole(buffer, false, true);
    launch.device        = buffer->device;
    launch.operands      = &operand;
    launch.operand_count = 1;
    launch.retries_max   = 250;
    head_task_makes(core, head_task_start(core, &launch), tile);
    head_second_want(core, ref->array);
    return PLASMON_OK;
}
