/*
 * get: bytes of a ref to host memory.
 *
 *   1. Few bytes that were put or got before are kept with the ref, until it is written: done.
 *   2. Ask the head where the bytes are; it answers when they are right, and holds this version for us.
 *   3. Every place is on this host: pin, copy (where it is mapped) or fetch through a lane, unpin.
 *      Nothing goes through a socket. Or it is elsewhere and large: fetch it from the worker that
 *      has it (bulk.h). What a lane or a worker cannot fetch in a few long runs (strided views,
 *      above all) the head has copied together first.
 *      Then make sure that it was still held (held_value_sure).
 *   4. Otherwise ask for the bytes, a MiB at a time, a few in flight.
 *
 * Between 2 and 3 the head may move a buffer (a device under pressure): the pin then fails, and we ask again.
 */
#include "client/data.h"

#include <poll.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fault.h"
#include "base/log.h"

#define LOCATE_TRIES 3
#define AWAY_NS      UINT64_C(3000000000) /* for a worker that is being replaced */
#define AWAY_LOOK_MS 20
#define AHEAD_NS     20000000u /* for values that nobody asked for yet */
/*
 * A place is fetched through a lane in this many runs, or in runs of at least this many bytes; else
 * copied together first.
 */
#define RUNS_MAX      16
#define RUN_BYTES_MIN (1u << 20)

/* ------------------------------------------------------------------------ shared memory */

struct fetch {
    struct plasmon_client *client;
    const struct place *place;
    enum data_path path;
    uint32_t host_device;
    uint8_t *to;
    uint64_t deadline_ns;
    plasmon_status_t status;
    struct pl_err *err;
};

static void fetch_run(void *user, uint64_t dst_offset, uint64_t src_offset, uint64_t bytes)
{
    struct fetch *fetch = user;

    if (fetch->status != PLASMON_OK) {
        return;
    }
    fetch->status =
        fetch->path == DATA_BULK
            ? data_bulk_get(fetch->client, fetch->place, src_offset, fetch->to + dst_offset,
                            bytes, fetch->deadline_ns, fetch->err)
            : data_lane_get(fetch->client, fetch->host_device, fetch->place->buffer,
                            src_offset, fetch->to + dst_offset, bytes, fetch->deadline_ns,
                            fetch->err);
}

/* Few enough runs, of elements that are neighbours in the buffer and in the value? */
static bool runs_are_long(const struct pl_box *part, const struct pl_box *hull,
                          const struct pl_box *frame, uint32_t element_bytes)
{
    int64_t elements = 1, runs;

    for (uint32_t d = part->ndim; d > 0; d--) {
        elements *= part->count[d - 1];
        if (part->count[d - 1] != hull->count[d - 1] ||
            part->count[d - 1] != frame->count[d - 1]) {
            break;
        }
    }
    runs = pl_box_elements(part) / elements;
    return runs <= RUNS_MAX || (uint64_t)elements * element_bytes >= RUN_BYTES_MIN;
}

/* EAGAIN: not in this form. */
static plasmon_status_t fetch_place(struct plasmon_client *client,
                                    const struct held_value *value,
                                    const struct place *place, void *data,
                                    uint64_t deadline_ns, struct pl_err *err)
{
    uint32_t element_bytes = pl_dtype_bytes(value->shape.dtype);
    struct pl_box hull     = pl_view_hull(&value->shown), part;
    struct fetch fetch     = {.client      = client,
                              .place       = place,
                              .to          = data,
                              .deadline_ns = deadline_ns,
                              .err         = err};

    if (!pl_box_intersection(&place->box, &hull, &part)) {
        return PLASMON_OK;
    }
    if (!pl_view_dense(&value->shown) ||
        !runs_are_long(&part, &hull, &place->frame, element_bytes)) {
        return pl_err_set(err, PLASMON_EAGAIN, "it is to be copied together first");
    }
    fetch.path =
        data_path_to(client, wire_buffer_device(place->buffer), &fetch.host_device);
    pl_box_runs(&part, &hull, &place->frame, element_bytes, fetch_run, &fetch);
    return fetch.status;
}

static plasmon_status_t copy_place(struct plasmon_client *client,
                                   const struct held_value *value,
                                   const struct place *place, void *data,
                                   uint64_t deadline_ns, struct pl_err *err)
{
    struct shared_pin pin;
    uint32_t host_device;
    plasmon_status_t status;

    if (data_path_to(client, wire_buffer_device(place->buffer), &host_device) ==
        DATA_BULK) { /* its worker pins it, piece by piece */
        return fetch_place(client, value, place, data, deadline_ns, err);
    }
    status = data_pin(client, place, false, deadline_ns, &pin, err);
    if (status != PLASMON_OK) {
        return status;
    }
    if (pin.data == NULL) {
        status = fetch_place(client, value, place, data, deadline_ns, err);
    } else {
        copy_view_out(data, &value->shown, &place->box, pin.data, &place->frame,
                      pl_dtype_bytes(value->shape.dtype));
    }
    shared_unpin(&pin);
    return status;
}

/*
 * From every place. EUNREACHABLE: not all are on this host. ELOST: one has moved. EAGAIN: they must
 * be copied together.
 */
static plasmon_status_t copy_places(struct plasmon_client *client,
                                    const struct held_value *value, void *data,
                                    uint64_t deadline_ns, struct pl_err *err)
{
    plasmon_status_t status = PLASMON_OK;

    for (size_t i = 0; i < value->request.places.count && status == PLASMON_OK; i++) {
        status = copy_place(client, value, pl_vec_at(&value->request.places, i), data,
                            deadline_ns, err);
    }
    return status;
}

/*
 * Do the places show all of the view? They are disjoint boxes, so their parts of the hull must add
 * up to it.
 */
static bool places_cover(const struct held_value *value)
{
    struct pl_box hull = pl_view_hull(&value->shown), part;
    int64_t covered    = 0;

    for (size_t i = 0; i < value->request.places.count; i++) {
        const struct place *place = pl_vec_at(&value->request.places, i);

        if (pl_box_intersection(&place->box, &hull, &part)) {
            covered += pl_box_elements(&part);
        }
    }
    return covered >= pl_box_elements(&hull);
}

/* One round. EAGAIN: in another form. */
static plasmon_status_t get_placed(struct plasmon_client *client, struct held_value *value,
                                   struct ahead_values *ahead, enum data_form form,
                                   void *data, uint64_t deadline_ns, bool *out_failed)
{
    struct held_value *values[DATA_VALUES_MAX] = {value};
    uint32_t count                             = 1;
    struct pl_err err                          = {0};
    plasmon_status_t status;

    for (uint32_t i = 0; !ahead->asked && i < ahead->count; i++) {
        values[count++] = &ahead->values[i];
    }
    ahead->asked = true;
    pl_mutex_lock(&client->lock);
    status = held_values_locate_locked(client, values, count, form, deadline_ns);
    pl_mutex_unlock(&client->lock);
    *out_failed = status != PLASMON_OK && status != PLASMON_EAGAIN;
    if (status != PLASMON_OK) {
        return status;
    }
    (void)pl_fault_point("client.get_located"); /* cannot fail; the process can stop */
    status = places_cover(value) ? copy_places(client, value, data, deadline_ns, &err)
                                 : PLASMON_EUNREACHABLE;
    if (status == PLASMON_OK) {
        status      = held_value_sure(client, value, deadline_ns);
        *out_failed = status != PLASMON_OK;
    }
    pl_mutex_lock(&client->lock);
    held_value_drop_locked(client, value);
    pl_mutex_unlock(&client->lock);
    if (status != PLASMON_OK) {
        pl_debug("client", "ref %llu: %s", (unsigned long long)value->root_id, err.text);
    }
    return status;
}

/*
 * EUNREACHABLE: get it by messages. A worker that is away gives no bytes in any way until the next
 * one is there, which is a matter of a second: so it is waited for, rather than that all that is
 * missing goes through the head.
 */
static plasmon_status_t get_shared(struct plasmon_client *client, struct held_value *value,
                                   struct ahead_values *ahead, void *data,
                                   uint64_t deadline_ns)
{
    enum data_form form     = DATA_PLACES;
    uint64_t away_until_ns  = pl_min_u64(deadline_ns, pl_now_ns() + AWAY_NS);
    plasmon_status_t status = PLASMON_ELOST;
    bool failed             = false;

    for (int i = 0; i < LOCATE_TRIES && status == PLASMON_ELOST;) {
        status = get_placed(client, value, ahead, form, data, deadline_ns, &failed);
        if (status == PLASMON_EAGAIN && form == DATA_PLACES) {
            form   = DATA_COMPACT;
            status = get_placed(client, value, ahead, form, data, deadline_ns, &failed);
        }
        if (status == PLASMON_EWORKER && value->bulk && !failed &&
            pl_now_ns() < away_until_ns) {
            (void)poll(NULL, 0, AWAY_LOOK_MS);
            status = PLASMON_ELOST;
        } else {
            i++;
        }
    }
    return status == PLASMON_OK || failed ? status : PLASMON_EUNREACHABLE;
}

/* ----------------------------------------------------------------------------- messages */

/* A get by messages: chunk i of the value is in flight while next_sent - READS_IN_FLIGHT <= i < next_sent. */
struct read_pipe {
    struct request requests[READS_IN_FLIGHT];
    struct pl_cond cond;
    uint64_t root_id;
    const struct pl_view *view; /* NULL: the whole */
    uint8_t *data;
    uint64_t bytes;
};

static plasmon_status_t read_send_locked(struct plasmon_client *client,
                                         struct read_pipe *pipe, uint64_t chunk)
{
    struct request *request         = &pipe->requests[chunk % READS_IN_FLIGHT];
    Plasmon__V1__ClientFrame fields = PLASMON__V1__CLIENT_FRAME__INIT;
    Plasmon__V1__Read read = PLASMON__V1__READ__INIT, *list[] = {&read};
    uint64_t offset = chunk * READ_CHUNK_BYTES;
    int64_t numbers[3 * PL_DIM_MAX];
    plasmon_status_t status;

    request_init(request, &pipe->cond);
    status = request_open_locked(client, request);
    if (status != PLASMON_OK) {
        return status;
    }
    request->data       = pipe->data + offset;
    request->data_bytes = pl_min_u64(READ_CHUNK_BYTES, pipe->bytes - offset);
    read.request        = request->number;
    read.ref            = pipe->root_id;
    read.offset         = offset;
    read.length         = request->data_bytes;
    if (pipe->view != NULL) {
        read.n_view = wire_view_put(pipe->view, numbers);
        read.view   = numbers;
    }
    fields.n_read = 1;
    fields.read   = list;
    return request_send_locked(client, request, FRAME_READ, &fields);
}

static plasmon_status_t read_all_locked(struct plasmon_client *client,
                                        struct read_pipe *pipe, uint64_t deadline_ns)
{
    uint64_t chunks = (pipe->bytes + READ_CHUNK_BYTES - 1) / READ_CHUNK_BYTES, sent = 0;
    plasmon_status_t status = PLASMON_OK;

    for (uint64_t done = 0; done < chunks && status == PLASMON_OK; done++) {
        while (sent < chunks && sent < done + READS_IN_FLIGHT && status == PLASMON_OK) {
            status = read_send_locked(client, pipe, sent);
            sent++;
        }
        if (status == PLASMON_OK) {
            status = request_wait_locked(client, &pipe->requests[done % READS_IN_FLIGHT],
                                         deadline_ns);
            request_close_locked(client, &pipe->requests[done % READS_IN_FLIGHT]);
            (void)pl_fault_point("client.get_piece"); /* cannot fail; the process can end */
        }
    }
    for (unsigned i = 0; i < READS_IN_FLIGHT;
         i++) { /* after a failure: nobody may write to the caller's memory */
        request_close_locked(client, &pipe->requests[i]);
    }
    return status;
}

static plasmon_status_t get_once_by_messages(struct plasmon_client *client,
                                             uint64_t root_id, const struct pl_view *view,
                                             void *data, uint64_t bytes,
                                             uint64_t deadline_ns)
{
    struct read_pipe pipe = {
        .root_id = root_id, .view = view, .data = data, .bytes = bytes};
    plasmon_status_t status = pl_cond_init(&pipe.cond);

    if (status != PLASMON_OK) {
        return error_set(status, "%s", pl_status_text(status));
    }
    pl_mutex_lock(&client->lock);
    status = read_all_locked(client, &pipe, deadline_ns);
    pl_mutex_unlock(&client->lock);
    pl_cond_finish(&pipe.cond);
    return status;
}

/*
 * EAGAIN: its worker died between reading the bytes and sending them, and the head has let go of
 * what was read. It is asked anew. A submit of another thread may have come between; then this get
 * is one that was called after it.
 */
static plasmon_status_t get_by_messages(struct plasmon_client *client, uint64_t root_id,
                                        const struct pl_view *view, void *data,
                                        uint64_t bytes, uint64_t deadline_ns)
{
    plasmon_status_t status = PLASMON_EAGAIN;

    for (unsigned i = 0; i < READS_MAX && status == PLASMON_EAGAIN; i++) {
        status = get_once_by_messages(client, root_id, view, data, bytes, deadline_ns);
    }
    return status == PLASMON_EAGAIN
               ? error_set(PLASMON_EWORKER,
                           "%u workers died, one after the other, before "
                           "they had sent the bytes",
                           READS_MAX)
               : status;
}

/*
 * A value of many chunks must be of one version though another thread submits meanwhile: it is read
 * from a snapshot. (What that costs, a message, is nothing beside the bytes.)
 */
static plasmon_status_t get_large_by_messages(struct plasmon_client *client,
                                              struct plasmon_ref *ref, void *data,
                                              uint64_t bytes, uint64_t deadline_ns)
{
    struct plasmon_ref *snapshot;
    struct pl_err err = {0};
    struct ref_slot *slot;
    uint64_t id             = 0;
    plasmon_status_t status = plasmon_snapshot(client, ref, &snapshot);

    if (status != PLASMON_OK) {
        return status;
    }
    pl_mutex_lock(&client->lock);
    status = refs_find(&client->refs, snapshot, &slot, &err);
    if (status == PLASMON_OK) {
        id = slot->root->id;
        if (!root_foreign(slot->root, NULL)) {
            status = client_wait_ref_locked(client, slot->root, NULL, deadline_ns);
        }
    }
    pl_mutex_unlock(&client->lock);
    if (status == PLASMON_OK) {
        status = get_by_messages(client, id, NULL, data, bytes, deadline_ns);
    }
    (void)plasmon_release(client, snapshot); /* ours: it is there */
    return status;
}

/* ---------------------------------------------------------------------------------- get */

/* From the bytes that are kept with the root, if there are any. */
static bool get_kept_locked(const struct ref_slot *slot, void *data)
{
    const struct root *root = slot->root;
    struct pl_box all       = pl_box_of_shape(&root->shape);
    struct pl_view view     = slot_view(slot);

    if (root->value == NULL) {
        return false;
    }
    copy_view_out(data, &view, &all, root->value, &all, pl_dtype_bytes(root->shape.dtype));
    return true;
}

/* Few bytes are kept: the next get of this version costs no message. */
static void keep(struct plasmon_client *client, struct plasmon_ref *ref,
                 const struct held_value *value, const void *data)
{
    struct pl_err unused = {0};
    struct ref_slot *slot;

    if (!value->whole || value->bytes > VALUE_BYTES_MAX) {
        return;
    }
    pl_mutex_lock(&client->lock);
    if (refs_find(&client->refs, ref, &slot, &unused) == PLASMON_OK &&
        slot->root->id == value->root_id && slot->root->version == value->version) {
        root_keep_value(&client->refs, slot->root, data);
    }
    pl_mutex_unlock(&client->lock);
}

/* What a get says that has asked before the ref was decided is what waiting for it would have said. */
static plasmon_status_t explain(struct plasmon_client *client, struct plasmon_ref *ref,
                                plasmon_status_t status)
{
    struct pl_err unused = {0};
    struct ref_slot *slot;
    struct pl_box box;

    pl_mutex_lock(&client->lock);
    if (refs_find(&client->refs, ref, &slot, &unused) == PLASMON_OK) {
        status = client_tell_state_locked(client, slot->root, slot_box(slot, &box), status);
    }
    pl_mutex_unlock(&client->lock);
    return status;
}

/* The small values that came along: kept with their refs. */
static void take_ahead(struct plasmon_client *client, struct ahead_values *ahead)
{
    uint64_t deadline_ns = pl_now_ns() + AHEAD_NS;

    ahead_fetch(client, ahead, deadline_ns);
    for (uint32_t i = 0; i < ahead->count; i++) {
        struct held_value *value = &ahead->values[i];
        uint8_t *bytes           = ahead->bytes + (size_t)i * VALUE_BYTES_MAX;
        struct pl_err unused     = {0};
        bool good;

        if (value->hold == 0) {
            continue;
        }
        good = (ahead->got[i] ||
                (places_cover(value) &&
                 copy_places(client, value, bytes, deadline_ns, &unused) == PLASMON_OK)) &&
               held_value_fresh(value);
        pl_mutex_lock(&client->lock);
        held_value_drop_locked(client, value);
        pl_mutex_unlock(&client->lock);
        if (good) {
            keep(client, ahead->refs[i], value, bytes);
        }
    }
}

static plasmon_status_t get_value(struct plasmon_client *client, struct plasmon_ref *ref,
                                  struct held_value *value, struct ahead_values *ahead,
                                  void *data, uint64_t deadline_ns)
{
    bool near;
    plasmon_status_t status;

    near        = data_reachable(client, PLASMON_ANYWHERE);
    value->bulk = data_bulk(client, PLASMON_ANYWHERE, value->bytes);
    if (near || value->bulk) {
        status = get_shared(client, value, ahead, data, deadline_ns);
        take_ahead(client, ahead);
        if (status != PLASMON_EUNREACHABLE) {
            return status;
        }
    }
    if (value->bytes > READ_CHUNK_BYTES) {
        return get_large_by_messages(client, ref, data, value->bytes, deadline_ns);
    }
    return get_by_messages(client, value->root_id, value->whole ? NULL : &value->asked,
                           data, value->bytes, deadline_ns);
}

/* Either all is done (*out_got, or a failure), or `value` says what to ask the head for. */
static plasmon_status_t get_begin(struct plasmon_client *client, struct plasmon_ref *ref,
                                  void *data, size_t capacity, bool poll,
                                  struct held_value *value, struct ahead_values *ahead,
                                  bool *out_got)
{
    struct ref_slot *slot;
    struct pl_box box;
    plasmon_status_t status;

    *out_got = false;
    pl_mutex_lock(&client->lock);
    status = held_value_begin_locked(client, ref, capacity, value, &slot);
    if (status == PLASMON_OK) {
        status = root_state(slot->root, slot_box(slot, &box), NULL);
        if (status == PLASMON_OK) {
            *out_got = get_kept_locked(slot, data);
            ahead_plan_locked(client, slot->root, *out_got, ahead);
        } else if (status == PLASMON_INPROGRESS
                       ? !poll
                       : root_foreign(slot->root, slot_box(slot, &box))) {
            /* ask at once: the answer comes with the end of the task */
            status = PLASMON_OK;
        } else {
            status = client_wait_ref_locked(client, slot->root, slot_box(slot, &box), 0);
        }
    }
    pl_mutex_unlock(&client->lock);
    return status;
}

plasmon_status_t plasmon_get(struct plasmon_client *client, struct plasmon_ref *ref,
                             void *data, size_t bytes, uint32_t timeout_ms)
{
    uint64_t deadline_ns      = client_deadline(timeout_ms);
    struct held_value value   = {.hold = 0};
    struct ahead_values ahead = {.count = 0};
    plasmon_status_t status   = client_enter(client);
    bool got;

    if (status != PLASMON_OK) {
        return status;
    }
    if (data == NULL) {
        return error_set(PLASMON_EINVAL, "data is NULL");
    }
    if (client_on_loop_thread(client)) {
        return error_set(PLASMON_EINVAL,
                         "this call waits for the head and cannot be made in a callback");
    }
    status = get_begin(client, ref, data, bytes, timeout_ms == 0, &value, &ahead, &got);
    if (status != PLASMON_OK || got) {
        return status;
    }
    if (timeout_ms == 0) {
        /* polling meant not to wait for the task; moving the bytes takes its time */
        deadline_ns = UINT64_MAX;
    }
    /* Who may give up must not leave a copy behind that goes on. */
    status = timeout_ms == PLASMON_FOREVER && value.bytes > PUT_INLINE_BYTES
                 ? host_get(client, ref, data, value.bytes)
                 : PLASMON_EUNREACHABLE;
    if (status == PLASMON_EUNREACHABLE) {
        status = get_value(client, ref, &value, &ahead, data, deadline_ns);
    }
    ahead_finish(client, &ahead);
    if (status != PLASMON_OK) {
        return explain(client, ref, status);
    }
    keep(client, ref, &value, data);
    return PLASMON_OK;
}
