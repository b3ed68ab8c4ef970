/*
 * Bytes in and out: puts (in the message, or through shared memory), reads (the slow path) and locations (the fast one).
 *
 * An answer that must wait for tasks is a head_wait; each of those tasks holds a pointer to it and calls head_wait_ended(). Its reader
 * is protected by a snapshot: the hold of a Locate is a ref of the client, a Read keeps the bytes by the use of its launch.
 */
#include "head/core_int.h"

#include <string.h>

enum wait_kind { WAIT_PUT_READY, WAIT_LOCATED, WAIT_DATA };

struct head_wait {
    enum wait_kind kind;
    uint64_t session;
    uint64_t request;         /* the client's number */
    uint32_t remaining;       /* tasks that have not ended, +1 while it is being set up */
    uint64_t total;           /* DATA: bytes of the whole value */
    struct pl_shape shape;    /* DATA; LOCATED: of a compact value, else no dtype */
    uint64_t buffer;          /* PUT_READY; LOCATED: the one that holds all of it, or 0 */
    struct pl_box frame;      /* LOCATED: of that one */
    uint64_t own_request;     /* DATA: key in core->requests */
    struct head_array *array; /* LOCATED, PUT_READY: held */
    struct pl_box box;
    bool
        arrived; /* DATA: the bytes came; they are passed on when every task behind them has ended well */
    uint8_t *bytes;
    size_t bytes_length;
    plasmon_status_t bytes_status;
    char *bytes_text;
    struct head_failure *failure;
};

static struct head_client *wait_client(struct head_core *core, const struct head_wait *wait)
{
    return pl_map_get(&core->sessions, wait->session);
}

static Plasmon__V1__Shape *put_shape(struct head_core *core, const struct pl_shape *shape)
{
    Plasmon__V1__Shape *out = wire_arena_alloc(&core->arena, sizeof(*out));
    uint64_t *dims          = wire_arena_alloc(&core->arena, PL_DIM_MAX * sizeof(uint64_t));

    PL_CHECK(out != NULL && dims != NULL);
    plasmon__v1__shape__init(out);
    wire_shape_put(shape, out, dims);
    return out;
}

/* ------------------------------------------------------------------------------------------ answers */

static void send_put_ready(struct head_core *core, struct head_client *client,
                           uint64_t request, uint64_t buffer, plasmon_status_t status,
                           const char *text)
{
    Plasmon__V1__PutReady ready = PLASMON__V1__PUT_READY__INIT;

    ready.request = request;
    ready.buffer  = buffer;
    ready.status  = status;
    ready.text    = (char *)text;
    head_bytes_message(&client->out, 7, &ready.base);
    head_client_dirty(core, client);
}

static void send_data(struct head_core *core, struct head_client *client,
                      const struct head_wait *wait, const ProtobufCBinaryData *bytes,
                      plasmon_status_t status, const char *text)
{
    Plasmon__V1__Data data = PLASMON__V1__DATA__INIT;

    wire_arena_reset(&core->arena);
    data.request = wait->request;
    data.status  = status;
    data.text    = (char *)text;
    data.total   = wait->total;
    if (bytes != NULL) {
        data.bytes = *bytes;
        data.shape = put_shape(core, &wait->shape);
    }
    head_bytes_message(&client->out, 6, &data.base);
    head_client_dirty(core, client);
    head_client_spill(core, client);
}

static void add_location(struct head_core *core, struct pl_vec *out, uint64_t buffer,
                         const struct pl_box *box, const struct pl_box *frame)
{
    Plasmon__V1__Location *location = wire_arena_alloc(&core->arena, sizeof(*location));
    Plasmon__V1__Location **place   = pl_vec_push(out);

    PL_CHECK(location != NULL && place != NULL);
    plasmon__v1__location__init(location);
    *place           = location;
    location->buffer = buffer;
    location->box    = wire_arena_alloc(&core->arena, 2 * PL_DIM_MAX * sizeof(int64_t));
    location->frame  = wire_arena_alloc(&core->arena, 2 * PL_DIM_MAX * sizeof(int64_t));
    PL_CHECK(location->box != NULL && location->frame != NULL);
    location->n_box   = wire_box_put(box, location->box);
    location->n_frame = wire_box_put(frame, location->frame);
}

/* One location for each part of a fragment that one instance serves. */
static void add_locations(struct head_core *core, struct pl_vec *out,
                          struct head_tile *tile, const struct pl_box *box,
                          const struct head_client *client)
{
    struct head_instance *best = NULL;
    struct pl_box part, rest[2 * PL_DIM_MAX];
    struct pl_list *pos;
    unsigned count;

    pl_list_for_each(pos, &tile->instances) {
        struct head_instance *instance =
            pl_container_of(pos, struct head_instance, tile_link);
        bool near = instance->buffer->device->kind == 1 &&
                    strcmp(instance->buffer->device->host, client->host) == 0;

        if (pl_box_intersects(&instance->box, box) && (best == NULL || near)) {
            best = instance;
        }
    }
    if (best == NULL) {
        return; /* lost: the failure of the tile says so */
    }
    PL_CHECK(pl_box_intersection(&best->box, box, &part));
    add_location(core, out, best->buffer->id, &part, &best->buffer->frame);
    count = pl_box_subtract(box, &part, rest);
    for (unsigned i = 0; i < count; i++) {
        add_locations(core, out, tile, &rest[i], client);
    }
}

static void send_located(struct head_core *core, struct head_client *client,
                         const struct head_wait *wait)
{
    Plasmon__V1__Located located = PLASMON__V1__LOCATED__INIT;
    struct pl_vec locations      = PL_VEC_INIT(Plasmon__V1__Location *);
    struct head_failure *failure =
        wait->failure != NULL ? wait->failure : head_array_failure(wait->array, &wait->box);
    struct pl_list *pos;

    wire_arena_reset(&core->arena);
    located.request = wait->request;
    if (failure != NULL) {
        located.status = failure->status;
        located.text   = failure->text;
    } else if (wait->buffer != 0 &&
               wait->shape.dtype != 0) { /* compact: the buffer is the value */
        struct pl_box whole = pl_box_of_shape(&wait->shape);

        add_location(core, &locations, wait->buffer, &whole, &whole);
    } else if (wait->buffer != 0) {
        add_location(core, &locations, wait->buffer, &wait->box, &wait->frame);
    } else {
        pl_list_for_each(pos, &wait->array->fragments) {
            const struct head_fragment *fragment =
                pl_container_of(pos, struct head_fragment, array_link);
            struct pl_box part;

            if (pl_box_intersection(&fragment->box, &wait->box, &part)) {
                add_locations(core, &locations, fragment->tile, &part, client);
            }
        }
    }
    if (failure == NULL) {
        located.locations   = locations.items;
        located.n_locations = locations.count;
        located.shape =
            put_shape(core, wait->shape.dtype != 0 ? &wait->shape : &wait->array->shape);
    }
    head_bytes_message(&client->out, 5, &located.base);
    head_client_dirty(core, client);
    head_client_spill(core, client);
    pl_vec_finish(&locations);
}

static void wait_free(struct head_core *core, struct head_wait *wait)
{
    if (wait->own_request != 0) {
        (void)pl_map_remove(&core->requests, wait->own_request); /* a READ that failed */
    }
    pl_free(wait->bytes);
    pl_free(wait->bytes_text);
    if (wait->array != NULL) {
        head_array_release(core, wait->array);
    }
    head_failure_release(wait->failure);
    pl_free(wait);
}

static void answer_data(struct head_core *core, struct head_client *client,
                        const struct head_wait *wait)
{
    ProtobufCBinaryData bytes = {.data = wait->bytes, .len = wait->bytes_length};

    if (wait->failure != NULL) {
        send_data(core, client, wait, NULL, wait->failure->status, wait->failure->text);
    } else if (wait->arrived) {
        send_data(core, client, wait, &bytes, wait->bytes_status, wait->bytes_text);
    } else {
        send_data(core, client, wait, NULL, PLASMON_EWORKER,
                  "the worker died after it had read the bytes and before it sent them; "
                  "read again");
    }
}

/* All tasks have ended. */
static void wait_done(struct head_core *core, struct head_wait *wait)
{
    struct head_client *client = wait_client(core, wait);

    if (client != NULL) {
        plasmon_status_t status =
            wait->failure != NULL ? wait->failure->status : PLASMON_OK;
        const char *text = wait->failure != NULL ? wait->failure->text : "";

        switch (wait->kind) {
        case WAIT_PUT_READY:
            if (status != PLASMON_OK) {
                wait->array->put_offset =
                    UINT64_MAX; /* nothing will be put: it has failed */
            }
            send_put_ready(core, client, wait->request, wait->buffer, status, text);
            break;
        case WAIT_LOCATED:
            send_located(core, client, wait);
            break;
        case WAIT_DATA:
            answer_data(core, client, wait);
            break;
        }
    }
    wait_free(core, wait);
}

void head_wait_ended(struct head_core *core, struct head_wait *wait,
                     struct head_failure *failure)
{
    if (failure != NULL && wait->failure == NULL) {
        wait->failure = head_failure_hold(failure);
    }
    PL_CHECK(wait->remaining > 0);
    if (--wait->remaining == 0) {
        wait_done(core, wait);
    }
}

static struct head_wait *wait_create(struct head_client *client, enum wait_kind kind,
                                     uint64_t request)
{
    struct head_wait *wait = head_alloc(sizeof(*wait));

    wait->kind      = kind;
    wait->session   = client->session;
    wait->request   = request;
    wait->remaining = 1;
    return wait;
}

static void wait_for(struct head_wait *wait, struct head_task *task, bool indifferent)
{
    struct head_waiting *waiting = pl_vec_push(&task->waits);

    PL_CHECK(waiting != NULL);
    waiting->wait        = wait;
    waiting->indifferent = indifferent;
    wait->remaining++;
}

/* Wait for everything that still writes `box` of the buffer. */
static void wait_for_writers(struct head_wait *wait, struct head_buffer *buffer,
                             const struct pl_box *box, bool indifferent)
{
    struct pl_vec after     = PL_VEC_INIT(uint64_t);
    struct pl_vec producers = PL_VEC_INIT(struct head_task *);

    head_hazard_collect(buffer, box, true, false, &after, &producers);
    for (size_t i = 0; i < producers.count; i++) {
        wait_for(wait, *(struct head_task **)pl_vec_at(&producers, i), indifferent);
    }
    pl_vec_finish(&after);
    pl_vec_finish(&producers);
}

/*
 * What a client will pin: wait for those who write what it asked for, and for everybody else who writes elsewhere in the buffer, because
 * they would have to wait for the pin (no new ones come: head_buffer_mapped).
 */
static void wait_to_map(struct head_wait *wait, struct head_buffer *buffer,
                        const struct pl_box *box)
{
    wait_for_writers(wait, buffer, box, false);
    wait_for_writers(wait, buffer, &buffer->frame, true);
}

/* ---------------------------------------------------------------------------------------------- put */

/* A new array with one buffer on a device of its own choice. */
static plasmon_status_t put_array(struct head_core *core, struct head_client *client,
                                  uint64_t ref, const struct pl_shape *shape,
                                  uint32_t place, bool donatable,
                                  struct head_buffer **out_buffer,
                                  struct head_tile **out_tile,
                                  struct head_array **out_array, struct pl_err *err)
{
    struct pl_box box            = pl_box_of_shape(shape);
    struct head_want want        = {.box = box, .bytes = pl_shape_bytes(shape)};
    struct head_array *array     = head_array_create(core, shape);
    struct head_failure *failure = NULL;
    struct head_tile *tile       = head_tile_create(core, &box);
    struct head_device *device;
    struct head_buffer *buffer = NULL;
    plasmon_status_t status;

    head_array_set(core, array, &box, tile);
    status = head_client_ref_add(core, client, ref, array, NULL, err);
    if (status != PLASMON_OK) {
        head_tile_release(core, tile);
        return status;
    }

    device = head_place(core, &want, 1, place, &failure);
    if (device != NULL) {
        buffer = head_buffer_create(core, device, &box, shape->dtype);
        if (buffer == NULL) {
            failure =
                head_failure_create(PLASMON_ELIMIT, 0, 0,
                                    "the object table of device %u is full", device->index);
        }
    }
    if (buffer == NULL) {
        tile->failure = failure; /* the ref exists, failed */
        head_tile_release(core, tile);
        return pl_err_set(err, failure->status, "%s", failure->text);
    }
    buffer->donatable = donatable;
    head_instance_add(core, tile, buffer, &box);
    head_buffer_release(core, buffer); /* the instance holds it */
    *out_buffer = buffer;
    *out_tile   = tile;
    *out_array  = array;
    return PLASMON_OK;
}

static plasmon_status_t put_more(struct head_core *core, struct head_client *client,
                                 const Plasmon__V1__Task *task,
                                 struct head_array **out_array, struct pl_err *err)
{
    struct head_ref *ref;
    plasmon_status_t status = head_client_ref_get(client, task->args[0]->ref, 0, &ref, err);

    (void)core;
    if (status != PLASMON_OK) {
        return status;
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

plasmon_status_t head_data_put(struct head_core *core, struct head_client *client,
                               const Plasmon__V1__Task *task, struct pl_err *err)
{
    struct head_array *array   = NULL;
    struct head_buffer *buffer = NULL;
    struct head_tile *tile     = NULL;
    struct head_operand operand;
    struct head_launch launch = {.kind = PLASMON__V1__LAUNCH_KIND__LAUNCH_PUT};
    struct head_task *started;
    uint64_t total, end;
    plasmon_status_t status;

    if (task->n_args != 1 || task->args[0]->mode != PLASMON__V1__MODE__MODE_OUT) {
        return pl_err_set(err, PLASMON_EMALFORMED, "a put has one argument, OUT");
    }
    if (task->put_offset == 0) {
        struct pl_shape shape;

        if (task->args[0]->shape == NULL) {
            return pl_err_set(err, PLASMON_EINVAL, "a put needs a shape");
        }
        status = wire_shape_get(task->args[0]->shape, &shape, err);
        if (status == PLASMON_OK) {
            status = put_array(core, client, task->args[0]->ref, &shape, task->place,
                               task->put_donatable, &buffer, &tile, &array, err);
        }
        if (status != PLASMON_OK) {
            return status;
        }
    } else {
        status = put_more(core, client, task, &array, err);
        if (status != PLASMON_OK) {
            return status;
        }
        tile = pl_list_first(&array->fragments, struct head_fragment, array_link)->tile;
        tile->refs++;
        if (pl_list_empty(&tile->instances)) {
            head_tile_release(core, tile);
            return pl_err_set(err, PLASMON_ELOST,
                              "put of ref %llu: its first pieces failed or were lost",
                              (unsigned long long)task->args[0]->ref);
        }
        buffer = pl_list_first(&tile->instances, struct head_instance, tile_link)->buffer;
    }

    total = pl_shape_bytes(&array->shape);
    end   = task->put_offset + task->data.len;
    if (task->data.len == 0 || end > total) {
        status = pl_err_set(
            err, PLASMON_ESHAPE,
            "put of ref %llu: piece of %zu bytes at %llu of a value of %llu bytes",
            (unsigned long long)task->args[0]->ref, task->data.len,
            (unsigned long long)task->put_offset, (unsigned long long)total);
        if (tile->failure == NULL) {
            tile->failure =
                head_failure_create(status, task->id, client->id, "%s", err->text);
        }
        array->put_offset = UINT64_MAX;
        head_tile_release(core, tile);
        return status;
    }
    array->put_offset    = end == total ? UINT64_MAX : end;
    operand              = head_operand_whole(buffer, task->put_offset == 0, true);
    launch.device        = buffer->device;
    launch.client        = client;
    launch.id            = task->id;
    launch.label         = task->label;
    launch.operands      = &operand;
    launch.operand_count = 1;
    launch.data          = task->data.data;
    launch.data_length   = task->data.len;
    launch.offset        = task->put_offset;
    launch.retries_max   = core->config.retries;
    started              = head_task_start(core, &launch);
    head_task_makes(core, started, tile);
    head_tile_release(core, tile);
    return PLASMON_OK;
}

plasmon_status_t head_data_put_open(struct head_core *core, struct head_client *client,
                                    const Plasmon__V1__PutOpen *open, struct pl_err *err)
{
    struct head_array *array;
    struct head_buffer *buffer;
    struct head_tile *tile;
    struct head_operand operand;
    struct head_launch launch = {.kind = PLASMON__V1__LAUNCH_KIND__LAUNCH_ALLOC};
    struct head_task *started;
    struct head_wait *wait;
    struct pl_shape shape;
    struct pl_err why = {0};
    plasmon_status_t status;

    if (open->shape == NULL) {
        return pl_err_set(err, PLASMON_EMALFORMED, "PutOpen needs a shape");
    }
    status = wire_shape_get(open->shape, &shape, &why);
    if (status == PLASMON_OK) {
        status = put_array(core, client, open->ref, &shape, open->place, open->donatable,
                           &buffer, &tile, &array, &why);
    }
    if (status != PLASMON_OK) {
        send_put_ready(core, client, open->request, 0, status, why.text);
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

    wait         = wait_create(client, WAIT_PUT_READY, open->request);
    wait->buffer = buffer->id;
    wait->array  = array;
    array->refs++;
    wait_for(wait, started, false);
    head_wait_ended(core, wait, NULL); /* set up */
    return PLASMON_OK;
}

plasmon_status_t head_data_put_seal(struct head_core *core, struct head_client *client,
                                    const Plasmon__V1__PutSeal *seal, struct pl_err *err)
{
    struct head_ref *ref;
    plasmon_status_t status = head_client_ref_get(client, seal->ref, 0, &ref, err);
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
        if (tile->failure == NULL) {
            tile->failure =
                head_failure_create(PLASMON_ECANCELLED, 0, 0, "the put was abandoned");
        }
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
    return PLASMON_OK;
}

/* ------------------------------------------------------------------------------------------- locate */

/* A strided view is copied together first: into an array of its own. */
static struct head_array *compact(struct head_core *core, struct head_array *array,
                                  const struct pl_view *view,
                                  struct head_failure **out_failure)
{
    struct pl_shape shape    = pl_view_shape(view, array->shape.dtype);
    struct head_array *dense = head_array_create(core, &shape);
    struct head_arg args[2]  = {
         {.mode  = PLASMON__V1__MODE__MODE_OUT,
          .array = dense,
          .view  = pl_view_whole(&shape),
          .hull  = pl_box_of_shape(&shape),
          .dtype = shape.dtype},
         {.mode  = PLASMON__V1__MODE__MODE_IN,
          .array = array,
          .view  = *view,
          .hull  = pl_view_hull(view),
          .dtype = shape.dtype},
    };
    struct head_run run = {
        .function  = pl_hash_name("copy"),
        .args      = args,
        .arg_count = 2,
        .retries   = core->config.retries,
    };

    if (!head_run_start(core, &run, out_failure)) {
        head_array_release(core, dense);
        return NULL;
    }
    return dense;
}

/* Answered now, or when the last of those that it waits for has ended. */
static void locate_places(struct head_wait *wait, struct head_array *hold)
{
    struct pl_list *pos, *it;
    struct pl_box part;

    pl_list_for_each(pos, &hold->fragments) {
        const struct head_fragment *fragment =
            pl_container_of(pos, struct head_fragment, array_link);

        pl_list_for_each(it, &fragment->tile->instances) {
            const struct head_instance *instance =
                pl_container_of(it, struct head_instance, tile_link);

            if (pl_box_intersection(&instance->box, &fragment->box, &part)) {
                wait_to_map(wait, instance->buffer, &part);
            }
        }
    }
}

/* To read from: a device that holds all of the box, wherever others have less to do; else as for a task. */
static struct head_device *reading_device(struct head_core *core, struct head_array *array,
                                          const struct pl_box *box,
                                          struct head_failure **out_failure)
{
    struct head_want want = {.array = array,
                             .box   = *box,
                             .bytes = (uint64_t)pl_box_elements(box) *
                                      pl_dtype_bytes(array->shape.dtype)};
    struct pl_list *pos, *it;

    pl_list_for_each(pos, &array->fragments) {
        const struct head_fragment *fragment =
            pl_container_of(pos, struct head_fragment, array_link);

        if (!pl_box_intersects(&fragment->box, box)) {
            continue;
        }
        pl_list_for_each(it, &fragment->tile->instances) {
            struct head_device *device =
                pl_container_of(it, struct head_instance, tile_link)->buffer->device;

            if (!device->gone && head_move_common(array, box, device, false) != NULL) {
                return device;
            }
        }
        break; /* who holds all of it holds this part */
    }
    return head_place(core, &want, 1, 0, out_failure);
}

/* The box in one buffer. exact: which holds nothing else. */
static void locate_in_one(struct head_core *core, struct head_wait *wait,
                          struct head_array *hold, bool exact)
{
    struct head_failure *cannot = NULL;
    struct head_device *device  = reading_device(core, hold, &wait->box, &cannot);
    struct head_buffer *buffer  = NULL;

    if (device != NULL) {
        buffer = head_move_read(core, hold, &wait->box, device, exact, &cannot);
    }
    if (buffer == NULL) {
        wait->failure = cannot;
        return;
    }
    wait_to_map(wait, buffer, &wait->box);
    wait->buffer = buffer->id;
    wait->frame  = buffer->frame;
    head_buffer_release(core, buffer);
}

/* What the ref shows now, held under the client's name for it. compact and strided: its elements, in an array of their own. */
static struct head_array *locate_hold(struct head_core *core, struct head_array *array,
                                      const struct pl_view *view, bool compacted,
                                      struct head_failure **out_failure)
{
    struct pl_box hull = pl_view_hull(view);
    struct head_array *hold, *dense;

    head_reduce_fold(core, array);
    hold = head_array_snapshot(core, array, &hull);
    if (!compacted || pl_view_dense(view) || head_array_failure(hold, &hull) != NULL) {
        return hold;
    }
    dense = compact(core, hold, view, out_failure);
    if (dense == NULL) {
        return hold;
    }
    head_array_release(core, hold); /* the copy uses its buffers */
    return dense;
}

plasmon_status_t head_data_locate(struct head_core *core, struct head_client *client,
                                  const Plasmon__V1__Locate *locate, struct pl_err *err)
{
    struct head_wait *wait = wait_create(client, WAIT_LOCATED, locate->request);
    struct pl_err why      = {0};
    struct head_ref *ref;
    struct head_array *hold;
    struct pl_view view;
    plasmon_status_t status;

    status = head_client_ref_get(client, locate->ref, locate->client, &ref, &why);
    if (status == PLASMON_OK) {
        status = head_ref_view(ref, locate->n_view, locate->view, &view, &why);
    }
    if (status != PLASMON_OK) {
        wait->failure = head_failure_create(status, 0, 0, "%s", why.text);
        head_wait_ended(core, wait, NULL);
        return PLASMON_OK;
    }

    hold = locate_hold(core, ref->array, &view, locate->compact, &wait->failure);
    if (locate->compact) {
        wait->shape = pl_view_shape(&view, hold->shape.dtype);
        if (!pl_view_dense(&view)) {
            view = pl_view_whole(&hold->shape);
        }
    }
    wait->box = pl_view_hull(&view);
    head_array_map(core, hold);
    hold->refs++;
    wait->array = hold;
    status      = head_client_ref_add(core, client, locate->hold_ref, hold, &view, err);
    if (status != PLASMON_OK) {
        wait_free(core, wait);
        return status;
    }

    if (wait->failure == NULL && head_array_failure(hold, &wait->box) == NULL &&
        (locate->gather || locate->compact)) {
        locate_in_one(core, wait, hold, locate->compact);
    }
    if (!locate->compact) {
        locate_places(wait, hold);
    }
    head_wait_ended(core, wait, NULL); /* set up */
    return PLASMON_OK;
}

/* --------------------------------------------------------------------------------------------- read */

static bool read_start(struct head_core *core, struct head_array *array,
                       const struct pl_box *box, const Plasmon__V1__Read *read,
                       struct head_wait *wait, struct head_failure **out_failure)
{
    struct head_device *device;
    struct head_buffer *buffer;
    struct head_operand operand;
    struct head_launch launch = {.kind = PLASMON__V1__LAUNCH_KIND__LAUNCH_READ};

    *out_failure = head_array_failure(array, box);
    if (*out_failure != NULL) {
        head_failure_hold(*out_failure);
        return false;
    }
    device = reading_device(core, array, box, out_failure);
    if (device == NULL) {
        return false;
    }
    buffer = head_move_read(core, array, box, device, true, out_failure);
    if (buffer == NULL) {
        return false;
    }
    operand              = head_operand_whole(buffer, false, false);
    launch.device        = device;
    launch.operands      = &operand;
    launch.operand_count = 1;
    launch.offset        = read->offset;
    launch.length        = read->length;
    launch.request       = ++core->request_last;
    launch.retries_max   = core->config.retries;
    wait->own_request    = launch.request;
    PL_CHECK(pl_map_set(&core->requests, launch.request, wait) == PLASMON_OK);
    wait_for(wait, head_task_start(core, &launch), false);
    head_buffer_release(core, buffer);
    return true;
}

plasmon_status_t head_data_read(struct head_core *core, struct head_client *client,
                                const Plasmon__V1__Read *read, struct pl_err *err)
{
    struct head_wait *wait       = wait_create(client, WAIT_DATA, read->request);
    struct head_failure *failure = NULL;
    struct head_array *array     = NULL;
    struct head_array *dense     = NULL;
    struct pl_err why            = {0};
    struct head_ref *ref;
    struct pl_view view;
    struct pl_box box;
    plasmon_status_t status;

    (void)err;
    status = head_client_ref_get(client, read->ref, read->client, &ref, &why);
    if (status == PLASMON_OK && ref->array->put_offset != UINT64_MAX) {
        status = pl_err_set(&why, PLASMON_EAGAIN, "ref %llu is still being put",
                            (unsigned long long)read->ref);
    }
    if (status == PLASMON_OK) {
        status = head_ref_view(ref, read->n_view, read->view, &view, &why);
    }
    if (status == PLASMON_OK) {
        array       = ref->array;
        wait->shape = pl_view_shape(&view, array->shape.dtype);
        wait->total = pl_shape_bytes(&wait->shape);
        if (read->length == 0 || read->length > WIRE_DATA_BYTES_MAX ||
            read->offset > wait->total || read->length > wait->total - read->offset) {
            status = pl_err_set(&why, PLASMON_ERANGE,
                                "read of %llu bytes at %llu of a value of %llu bytes (at "
                                "most %u bytes a read)",
                                (unsigned long long)read->length,
                                (unsigned long long)read->offset,
                                (unsigned long long)wait->total, WIRE_DATA_BYTES_MAX);
        }
    }
    if (status != PLASMON_OK) {
        wait->failure = head_failure_create(status, 0, 0, "%s", why.text);
        head_wait_ended(core, wait, NULL);
        return PLASMON_OK;
    }

    head_reduce_fold(core, array);
    box = pl_view_hull(&view);
    if (!pl_view_dense(&view)) {
        failure = head_array_failure(array, &box);
        if (failure != NULL) {
            head_failure_hold(failure);
        } else {
            dense = compact(core, array, &view, &failure);
        }
        if (dense != NULL) {
            array = dense;
            box   = dense->extent;
        }
    }
    if (failure != NULL || !read_start(core, array, &box, read, wait, &failure)) {
        wait->failure = failure;
    }
    if (dense != NULL) {
        head_array_release(core, dense); /* its buffer is in use by the read */
    }
    head_wait_ended(core, wait, NULL); /* set up */
    return PLASMON_OK;
}

/* A worker sends the bytes of a READ before it says that the READ is done. */
void head_data_arrived(struct head_core *core, const Plasmon__V1__WorkerData *data)
{
    struct head_wait *wait = pl_map_get(&core->requests, data->request);

    if (wait == NULL || wait->arrived) {
        return; /* sent again by a restarted worker */
    }
    wait->arrived      = true;
    wait->bytes_status = (plasmon_status_t)data->status;
    wait->bytes_text   = head_strdup(data->text);
    wait->bytes_length = data->bytes.len;
    wait->bytes        = head_alloc(data->bytes.len + 1);
    if (data->bytes.len > 0) {
        memcpy(wait->bytes, data->bytes.data, data->bytes.len);
    }
}

void head_waits_destroy(struct head_core *core)
{
    for (;;) {
        size_t index = 0;
        uint64_t key;
        void *value;

        if (!pl_map_next(&core->requests, &index, &key, &value)) {
            break;
        }
        wait_free(core, value);
    }
    pl_map_finish(&core->requests);
}
