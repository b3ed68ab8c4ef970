/*
 * Bytes out: where they are (the fast path: the client maps them), and the bytes themselves (the slow one).
 */
#include "head/wait.h"

#include <string.h>

/* ------------------------------------------------------------------------------- locate */

struct head_array *head_read_compact(struct head_core *core, struct head_array *array,
                                     const struct pl_view *view, uint32_t place,
                                     struct head_failure **out_failure)
{
    struct pl_shape shape    = pl_view_shape(view, array->shape.dtype);
    struct head_array *dense = head_array_create(core, array->space, &shape);
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
        .function     = pl_hash_name("copy"),
        .labels_apart = true,
        .args         = args,
        .arg_count    = 2,
        .place        = place,
        .drained_too  = place != 0,
        .retries      = core->config.retries,
    };

    args[0].label = head_array_label(core, array, &args[1].hull);
    if (!head_run_start(core, &run, out_failure)) {
        head_array_release(core, dense);
        return NULL;
    }
    return dense;
}

/*
 * For the copies of what a fragment shows: those that fail with something else (head_move_joint),
 * or the others. How many there are.
 */
static unsigned locate_fragment(struct head_wait *wait,
                                const struct head_fragment *fragment, bool joint)
{
    struct pl_list *it;
    struct pl_box part;
    unsigned count = 0;

    pl_list_for_each(it, &fragment->tile->instances) {
        const struct head_instance *instance =
            pl_container_of(it, struct head_instance, tile_link);

        if (instance->buffer->spilled == NULL &&
            head_move_joint(instance->buffer) == joint &&
            pl_box_intersection(&instance->box, &fragment->box, &part)) {
            head_wait_to_map(wait, instance->buffer, &part);
            count++;
        }
    }
    return count;
}

/* Answered now, or when the last of those that it waits for has ended. */
static void locate_places(struct head_wait *wait, struct head_array *hold)
{
    struct pl_list *pos;

    pl_list_for_each(pos, &hold->fragments) {
        const struct head_fragment *fragment =
            pl_container_of(pos, struct head_fragment, array_link);

        if (locate_fragment(wait, fragment, false) == 0) {
            (void)locate_fragment(wait, fragment, true); /* better than nothing */
        }
    }
}

/*
 * To read from: a device that holds all of the box, wherever others have less to do, and rather one
 * whose worker is there and that stays; else as for a task.
 */
static struct head_device *reading_device(struct head_core *core, struct head_array *array,
                                          const struct pl_box *box,
                                          struct head_failure **out_failure)
{
    struct head_want want      = {.array = array,
                                  .box   = *box,
                                  .bytes = (uint64_t)pl_box_elements(box) *
                                           pl_dtype_bytes(array->shape.dtype)};
    struct head_device *second = NULL;
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

            if (device->gone || head_device_is_home(device) ||
                head_move_common(array, box, device, false) == NULL) {
                continue;
            }
            if (device->connected && !device->draining) {
                return device;
            }
            second = device;
        }
        break; /* who holds all of it holds this part */
    }
    if (second == NULL) {
        return head_place(core, &want, 1, 0, out_failure);
    }
    if (second->draining) { /* it may end while it is read: put together where it stays */
        struct head_device *placed = head_place(core, &want, 1, 0, out_failure);

        if (placed != NULL) {
            return placed;
        }
        head_failure_release(*out_failure);
        *out_failure = NULL;
    }
    return second;
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
    head_wait_to_map(wait, buffer, &wait->box);
    wait->buffer = buffer->id;
    wait->frame  = buffer->frame;
    head_buffer_release(core, buffer);
}

/*
 * What the ref shows now, held under the client's name for it. compact and strided: its elements,
 * in an array of their own.
 */
static struct head_array *locate_hold(struct head_core *core, struct head_array *array,
                                      const struct pl_view *view, bool compacted,
                                      struct head_failure **out_failure)
{
    struct pl_box hull = pl_view_hull(view);
    struct head_array *hold, *dense;

    head_reduce_fold(core, array);
    hold = head_array_snapshot(core, array->space, array, &hull);
    if (!compacted || pl_view_dense(view) || head_array_failure(hold, &hull) != NULL) {
        return hold;
    }
    dense = head_read_compact(core, hold, view, 0, out_failure);
    if (dense == NULL) {
        return hold;
    }
    head_array_release(core, hold); /* the copy uses its buffers */
    return dense;
}

/* What is to be looked at must be on devices: of the client's host if it can be. */
static bool bring_back(struct head_core *core, struct head_array *hold,
                       const struct pl_box *box, const struct head_client *client,
                       struct head_failure **out_failure)
{
    struct head_want want = {.array = hold,
                             .box   = *box,
                             .bytes = (uint64_t)pl_box_elements(box) *
                                      pl_dtype_bytes(hold->shape.dtype),
                             .host = client->host};
    struct head_device *device;

    if (!head_spill_missing(hold, box)) {
        return true;
    }
    device = head_place(core, &want, 1, 0, out_failure);
    if (device == NULL) {
        head_failure_release(*out_failure);
        *out_failure = NULL;
        want.host    = NULL;
        device       = head_place(core, &want, 1, 0, out_failure);
    }
    if (device == NULL) {
        return false;
    }
    if (!head_spill_at_once(core, hold, box, device)) {
        struct head_buffer *whole =
            head_move_read(core, hold, box, device, false, out_failure);

        if (whole != NULL) {
            head_buffer_release(core, whole); /* what is in it holds it */
        }
        return whole != NULL;
    }
    head_spill_keep(core, hold, box);
    return head_spill_bring(core, hold, box, device, out_failure);
}

/* Of what is held; answered when nobody writes there any more. */
static void locate(struct head_core *core, struct head_wait *wait)
{
    if (wait->one && wait->failure == NULL &&
        head_array_failure(wait->array, &wait->box) == NULL) {
        locate_in_one(core, wait, wait->array, wait->compact);
    }
    if (!wait->compact) {
        locate_places(wait, wait->array);
    }
    head_wait_ended(core, wait, NULL); /* set up */
}

/* Is anything of the array still in that buffer? */
static bool buffer_shown(const struct head_array *array, uint64_t buffer)
{
    struct pl_list *pos, *it;

    pl_list_for_each(pos, &array->fragments) {
        const struct head_fragment *fragment =
            pl_container_of(pos, struct head_fragment, array_link);

        pl_list_for_each(it, &fragment->tile->instances) {
            if (pl_container_of(it, struct head_instance, tile_link)->buffer->id ==
                buffer) {
                return true;
            }
        }
    }
    return false;
}

plasmon_status_t head_read_locate(struct head_core *core, struct head_client *client,
                                  const Plasmon__V1__Locate *request, struct pl_err *err)
{
    struct head_wait *wait = head_wait_create(client, HEAD_WAIT_LOCATED, request->request);
    struct pl_err why      = {0};
    struct head_ref *ref;
    struct head_array *hold;
    struct pl_view view;
    plasmon_status_t status;

    status = head_client_ref_get(client, request->ref, request->client, &ref, &why);
    if (status == PLASMON_OK) {
        status = head_ref_view(ref, request->n_view, request->view, &view, &why);
    }
    if (status != PLASMON_OK) {
        wait->failure = head_failure_create(status, 0, 0, "%s", why.text);
        head_wait_ended(core, wait, NULL);
        return PLASMON_OK;
    }

    head_spill_plan_begin(core);
    hold = locate_hold(core, ref->array, &view, request->compact, &wait->failure);
    if (request->compact) {
        wait->shape = pl_view_shape(&view, hold->shape.dtype);
        if (!pl_view_dense(&view)) {
            view = pl_view_whole(&hold->shape);
        }
    }
    wait->bulk = request->bulk;
    wait->box  = pl_view_hull(&view);
    if (wait->failure == NULL &&
        !bring_back(core, hold, &wait->box, client, &wait->failure)) {
        wait->box = pl_view_hull(&view); /* told, with what is there */
    }
    head_array_map(core, hold);
    hold->refs++;
    wait->array = hold;
    status      = head_client_ref_add(core, client, request->hold_ref, hold, &view, err);
    if (status != PLASMON_OK) {
        head_wait_free(core, wait);
        return status;
    }

    wait->one     = request->gather || request->compact;
    wait->compact = request->compact;
    locate(core, wait);
    return PLASMON_OK;
}

bool head_locate_holds(struct head_core *core, struct head_wait *wait)
{
    if (wait->failure != NULL || head_array_failure(wait->array, &wait->box) != NULL ||
        (!wait->moved && (wait->buffer == 0 || buffer_shown(wait->array, wait->buffer)))) {
        return true;
    }
    wait->moved     = false;
    wait->buffer    = 0;
    wait->remaining = 1;
    head_spill_plan_begin(core);
    (void)bring_back(core, wait->array, &wait->box,
                     pl_map_get(&core->sessions, wait->session),
                     &wait->failure); /* if not, that is the answer */
    locate(core, wait);               /* may answer it, and free it */
    return false;
}

/* --------------------------------------------------------------------------------- read */

struct span {
    uint64_t offset;
    uint64_t length;
};

/* What is to be read, on record until it has been. */
static struct head_record *read_record(struct head_core *core, struct head_array *array,
                                       const struct pl_box *box, const struct span *span)
{
    struct head_arg arg = {.mode  = PLASMON__V1__MODE__MODE_IN,
                           .array = array,
                           .view  = pl_view_of_box(box),
                           .hull  = *box,
                           .dtype = array->shape.dtype};
    struct head_run run = {.args = &arg, .arg_count = 1, .retries = core->config.retries};
    struct head_record *record =
        head_record_create(core, &run, PLASMON__V1__LAUNCH_KIND__LAUNCH_READ);

    if (record != NULL) {
        record->read_offset = span->offset;
        record->read_length = span->length;
    }
    return record;
}

/* It is under way for its client, until it is answered. */
static void reads_count(struct head_core *core, struct head_wait *wait, uint64_t bytes)
{
    struct head_client *client = pl_map_get(&core->sessions, wait->session);

    if (client != NULL) {
        wait->read_bytes = bytes;
        client->reads_bytes += bytes;
    }
}

/* record: of what is read again; NULL: it is read for the first time. */
static bool read_start(struct head_core *core, struct head_array *array,
                       const struct pl_box *box, const struct span *span,
                       struct head_record *record, struct head_wait *wait,
                       struct head_failure **out_failure)
{
    bool first = record == NULL;
    struct head_task *task;
    struct head_device *device;
    struct head_buffer *buffer;
    struct head_operand operand;
    struct head_launch launch = {.kind = PLASMON__V1__LAUNCH_KIND__LAUNCH_READ};

    *out_failure = head_array_failure(array, box);
    if (*out_failure != NULL) {
        head_failure_hold(*out_failure);
        return false;
    }
    head_spill_plan_begin(core);
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
    launch.offset        = span->offset;
    launch.length        = span->length;
    launch.request       = ++core->request_last;
    launch.retries_max   = core->config.retries;
    wait->own_request    = launch.request;
    PL_CHECK(pl_map_set(&core->requests, launch.request, wait) == PLASMON_OK);
    if (first) {
        record = read_record(core, array, box, span);
    }
    task = head_task_start(core, &launch);
    if (record != NULL) {
        head_record_started(record, task);
    }
    if (first && record != NULL) {
        head_record_release(core, record); /* its launch has it */
    }
    if (first) {
        reads_count(core, wait, span->length);
    }
    head_wait_for(wait, task, false);
    head_buffer_release(core, buffer);
    return true;
}

bool head_read_again(struct head_core *core, struct head_record *record,
                     struct head_array *array, struct head_wait *wait,
                     struct head_failure **out_failure)
{
    struct span span = {.offset = record->read_offset, .length = record->read_length};

    /* What the old launch may still send is for nobody. */
    (void)pl_map_remove(&core->requests, wait->own_request);
    wait->own_request = 0;
    if (wait->arrived) {
        pl_free(wait->bytes);
        pl_free(wait->bytes_text);
        wait->bytes      = NULL;
        wait->bytes_text = NULL;
        wait->arrived    = false;
    }
    return read_start(core, array, &array->extent, &span, record, wait, out_failure);
}

/* ------------------------------------------------------------- reads that wait for room */

/*
 * What a client asks for is bounded by messages, what comes of it is a thousand times as much. So
 * reads begin while less than READS_BYTES_MAX of their bytes are under way to the client, which
 * counts what it has not acknowledged; the others wait in their order, each with a snapshot of what
 * it will read. They go on when the client says something, for an acknowledgement is in every
 * frame, and one that lives sends one within 100 ms. A client that takes nothing in gets no more.
 */
#define READS_BYTES_MAX ((uint64_t)64 << 20)

struct read_late {
    struct pl_list link; /* in client->reads_late */
    struct head_wait *wait;
    struct head_array *array; /* held */
    struct pl_box box;
    struct span span;
};

static bool reads_full(const struct head_core *core, const struct head_client *client)
{
    const struct head_ops *ops = core->config.ops;
    uint64_t owed =
        ops->client_owed != NULL ? ops->client_owed(core->config.user, client->session) : 0;

    return client->reads_bytes + owed >= READS_BYTES_MAX;
}

/* Takes the array. */
static void read_keep(struct head_client *client, struct head_wait *wait,
                      struct head_array *array, const struct pl_box *box,
                      const struct span *span)
{
    struct read_late *late = head_alloc(sizeof(*late));

    *late = (struct read_late){.wait = wait, .array = array, .box = *box, .span = *span};
    pl_list_init(&late->link);
    pl_list_add_tail(&client->reads_late, &late->link);
}

static void late_free(struct head_core *core, struct read_late *late)
{
    pl_list_remove(&late->link);
    head_array_release(core, late->array);
    pl_free(late);
}

void head_reads_resume(struct head_core *core, struct head_client *client)
{
    while (!pl_list_empty(&client->reads_late) && !reads_full(core, client)) {
        struct read_late *late = pl_list_first(&client->reads_late, struct read_late, link);
        struct head_wait *wait = late->wait;
        struct head_failure *failure = NULL;

        if (!read_start(core, late->array, &late->box, &late->span, NULL, wait, &failure)) {
            wait->failure = failure;
        }
        late_free(core, late); /* its buffer is in use by the read */
        head_wait_ended(core, wait, NULL);
    }
}

void head_reads_forget(struct head_core *core, struct head_client *client)
{
    while (!pl_list_empty(&client->reads_late)) {
        struct read_late *late = pl_list_first(&client->reads_late, struct read_late, link);

        head_wait_free(core, late->wait);
        late_free(core, late);
    }
}

plasmon_status_t head_read(struct head_core *core, struct head_client *client,
                           const Plasmon__V1__Read *read, struct pl_err *err)
{
    struct head_wait *wait       = head_wait_create(client, HEAD_WAIT_DATA, read->request);
    struct head_failure *failure = NULL;
    struct head_array *array     = NULL;
    struct head_array *dense     = NULL;
    struct pl_err why            = {0};
    struct span span             = {.offset = read->offset, .length = read->length};
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
    if (status == PLASMON_OK) {
        status = head_space_admit_message(client->space, read->length, "a read", &why);
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
            dense = head_read_compact(core, array, &view, 0, &failure);
        }
        if (dense != NULL) {
            array = dense;
            box   = dense->extent;
        }
    }
    if (failure == NULL &&
        (!pl_list_empty(&client->reads_late) || reads_full(core, client))) {
        read_keep(client, wait,
                  dense != NULL ? dense
                                : head_array_snapshot(core, array->space, array, &box),
                  &box, &span);
        return PLASMON_OK;
    }
    if (failure != NULL || !read_start(core, array, &box, &span, NULL, wait, &failure)) {
        wait->failure = failure;
    }
    if (dense != NULL) {
        head_array_release(core, dense); /* its buffer is in use by the read */
    }
    head_wait_ended(core, wait, NULL); /* set up */
    return PLASMON_OK;
}

/* A worker sends the bytes of a READ before it says that the READ is done. */
void head_read_arrived(struct head_core *core, const Plasmon__V1__WorkerData *data)
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
