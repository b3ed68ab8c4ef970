/*
 * get: bytes of a ref to host memory.
 *
 *   1. Wait until nothing more will be written to what the ref shows.
 *   2. Ask the head where the bytes are; it holds this version for us.
 *   3. Every place is in memory that this process can map: pin, copy, unpin. Nothing goes through a socket.
 *   4. Otherwise ask for the bytes, a MiB at a time, a few in flight.
 *
 * Between 2 and 3 the head may move a buffer (a device under pressure): the pin then fails, and we ask again.
 */
#include "client/data.h"

#include <string.h>

#include "base/alloc.h"
#include "base/log.h"

#define SEALED_TIMEOUT_NS 2000000000ull
#define LOCATE_TRIES      3
#define DEVICES_STALE_NS  2000000000ull

/* ------------------------------------------------------------------------------------------------ places */

/* Every device of this host that has memory which can be mapped; device >= 0: is it that one? */
static bool any_cpu_device_locked(const struct plasmon_client *client, int device)
{
    for (size_t i = 0; i < client->devices.count; i++) {
        const struct client_device *at = pl_vec_at(&client->devices, i);

        if (at->same_host && at->kind == 1 &&
            (device == PLASMON_ANYWHERE || at->index == (uint32_t)device)) {
            return true;
        }
    }
    return false;
}

/* Devices join while we run, and nothing tells of it: look again when there was nothing to map, but not all the time. */
static void refresh_now_and_then(struct plasmon_client *client)
{
    uint64_t now_ns = pl_now_ns();
    bool due;

    pl_mutex_lock(&client->lock);
    due =
        client->devices.count == 0 || now_ns - client->devices_asked_ns > DEVICES_STALE_NS;
    if (due) {
        client->devices_asked_ns = now_ns;
    }
    pl_mutex_unlock(&client->lock);
    if (due && client_refresh_devices(client) != PLASMON_OK) {
        pl_debug("client", "the list of devices could not be had: %s",
                 plasmon_error(client));
    }
}

bool data_reachable(struct plasmon_client *client, int device)
{
    struct pl_err err = {0};
    char path[sizeof(client->store_socket)];
    bool present;

    pl_mutex_lock(&client->lock);
    present = any_cpu_device_locked(client, device);
    memcpy(path, client->store_socket, sizeof(path));
    pl_mutex_unlock(&client->lock);

    if (!present) {
        refresh_now_and_then(client);
        pl_mutex_lock(&client->lock);
        present = any_cpu_device_locked(client, device);
        pl_mutex_unlock(&client->lock);
    }
    if (!present) {
        return false;
    }
    if (shared_ensure(&client->shared, path, &err) != PLASMON_OK) {
        pl_debug("client", "no shared memory with the devices of this host: %s", err.text);
        return false;
    }
    return true;
}

plasmon_status_t data_pin(struct plasmon_client *client, const struct place *place,
                          uint64_t deadline_ns, struct shared_pin *out_pin,
                          struct pl_err *err)
{
    uint32_t index    = wire_buffer_device(place->buffer);
    uint64_t limit_ns = pl_min_u64(deadline_ns, pl_now_ns() + SEALED_TIMEOUT_NS);
    const struct client_device *device;
    uint32_t host_device = 0;
    bool here, expected;
    plasmon_status_t status;

    pl_mutex_lock(&client->lock);
    device = client_device_locked(client, index);
    here   = device != NULL && device->same_host && device->kind == 1;
    if (here) {
        host_device = device->host_device;
    }
    pl_mutex_unlock(&client->lock);
    if (!here) {
        return pl_err_set(err, PLASMON_EUNREACHABLE,
                          "it lies on device %u, whose memory this process cannot map",
                          index);
    }

    status = shared_pin(&client->shared, host_device, wire_buffer_slot(place->buffer),
                        wire_buffer_generation(place->buffer), limit_ns, out_pin, err);
    if (status != PLASMON_OK) {
        return status;
    }
    expected = out_pin->entry.ndim == place->frame.ndim;
    for (uint32_t i = 0; expected && i < place->frame.ndim; i++) {
        expected = out_pin->entry.dim[i] == place->frame.count[i];
    }
    if (!expected) {
        shared_unpin(&client->shared, out_pin);
        return pl_err_set(err, PLASMON_EMALFORMED,
                          "the head and the table of device %u disagree about a buffer",
                          index);
    }
    return PLASMON_OK;
}

plasmon_status_t held_value_begin(struct plasmon_client *client, struct plasmon_ref *ref,
                                  size_t capacity, uint64_t deadline_ns,
                                  struct held_value *value)
{
    struct pl_err err = {0};
    struct ref_slot *slot;
    struct pl_shape shape;
    struct pl_box box;
    char text[128];
    plasmon_status_t status;

    pl_mutex_lock(&client->lock);
    status = refs_find(&client->refs, ref, &slot, &err);
    if (status == PLASMON_OK && slot->root->is_task) {
        status = pl_err_set(&err, PLASMON_EINVAL, "the ref is a task's; it has no bytes");
    }
    if (status == PLASMON_OK) {
        shape        = slot_shape(slot);
        value->bytes = pl_shape_bytes(&shape);
        if (capacity < value->bytes) {
            status = pl_err_set(
                &err, PLASMON_ESHAPE, "%s has %llu bytes and there is room for %zu",
                pl_shape_format(&shape, text), (unsigned long long)value->bytes, capacity);
        }
    }
    if (status != PLASMON_OK) {
        (void)error_from(&err, status);
    } else { /* the slot may go away while we wait: take what is needed of it first */
        value->root_id = slot->root->id;
        value->whole   = slot->view == NULL;
        value->asked   = slot_view(slot);
        value->hold    = 0;
        slot_place(slot, &value->shape, &value->view);
        status =
            client_wait_ref_locked(client, slot->root, slot_box(slot, &box), deadline_ns);
    }
    pl_mutex_unlock(&client->lock);
    return status;
}

plasmon_status_t held_value_locate_locked(struct plasmon_client *client,
                                          struct held_value *value, bool gather,
                                          uint64_t deadline_ns)
{
    Plasmon__V1__ClientFrame fields = PLASMON__V1__CLIENT_FRAME__INIT;
    Plasmon__V1__Locate locate = PLASMON__V1__LOCATE__INIT, *list[] = {&locate};
    int64_t numbers[3 * PL_DIM_MAX];
    plasmon_status_t status = pl_cond_init(&value->cond);

    if (status != PLASMON_OK) {
        return error_set(status, "%s", pl_status_text(status));
    }
    request_init(&value->request, &value->cond);
    status = request_open_locked(client, &value->request);
    if (status != PLASMON_OK) {
        goto err_close;
    }

    value->hold     = refs_draw_ref(&client->refs);
    locate.request  = value->request.number;
    locate.ref      = value->root_id;
    locate.hold_ref = value->hold;
    locate.gather   = gather;
    if (!value->whole) {
        locate.n_view = wire_view_put(&value->asked, numbers);
        locate.view   = numbers;
    }
    fields.n_locate = 1;
    fields.locate   = list;
    status          = request_send_locked(client, &value->request, FRAME_LOCATE, &fields);
    if (status != PLASMON_OK) {
        value->hold = 0;
        goto err_close;
    }
    status = request_wait_locked(client, &value->request, deadline_ns);
    if (status == PLASMON_OK && !pl_shape_equal(&value->request.shape, &value->shape)) {
        /* A published view: only the publisher knows of what. The head can still send the bytes. */
        status = error_set(PLASMON_EUNREACHABLE,
                           "the object is a part of an array that is not known here");
    }
    if (status == PLASMON_OK) {
        return PLASMON_OK;
    }
    /* It may have been taken: perhaps only the answer came too late. */
    session_release_locked(client, value->hold, true);
    value->hold = 0;

err_close:
    request_close_locked(client, &value->request);
    pl_cond_finish(&value->cond);
    return status;
}

void held_value_drop_locked(struct plasmon_client *client, struct held_value *value)
{
    if (value->hold == 0) {
        return;
    }
    session_release_locked(
        client, value->hold,
        true); /* at once: an INOUT that follows may then work in place */
    value->hold = 0;
    request_close_locked(client, &value->request);
    pl_cond_finish(&value->cond);
}

/* ------------------------------------------------------------------------------------------------ shared memory */

/* Copy from every place. EUNREACHABLE: not all can be mapped. ELOST: one has moved. */
static plasmon_status_t copy_places(struct plasmon_client *client,
                                    const struct held_value *value, void *data,
                                    uint64_t deadline_ns, struct pl_err *err)
{
    uint32_t element_bytes = pl_dtype_bytes(value->shape.dtype);

    for (size_t i = 0; i < value->request.places.count; i++) {
        const struct place *place = pl_vec_at(&value->request.places, i);
        struct shared_pin pin;
        plasmon_status_t status = data_pin(client, place, deadline_ns, &pin, err);

        if (status != PLASMON_OK) {
            return status;
        }
        copy_view_out(data, &value->view, &place->box, pin.data, &place->frame,
                      element_bytes);
        shared_unpin(&client->shared, &pin);
    }
    return PLASMON_OK;
}

/* Do the places show all of the view? They are disjoint boxes, so their parts of the hull must add up to it. */
static bool places_cover(const struct held_value *value)
{
    struct pl_box hull = pl_view_hull(&value->view), part;
    int64_t covered    = 0;

    for (size_t i = 0; i < value->request.places.count; i++) {
        const struct place *place = pl_vec_at(&value->request.places, i);

        if (pl_box_intersection(&place->box, &hull, &part)) {
            covered += pl_box_elements(&part);
        }
    }
    return covered >= pl_box_elements(&hull);
}

static plasmon_status_t get_shared(struct plasmon_client *client, struct held_value *value,
                                   void *data, uint64_t deadline_ns)
{
    struct pl_err err       = {0};
    plasmon_status_t status = PLASMON_ELOST;

    for (int i = 0; i < LOCATE_TRIES && status == PLASMON_ELOST; i++) {
        pl_mutex_lock(&client->lock);
        status = held_value_locate_locked(client, value, false, deadline_ns);
        pl_mutex_unlock(&client->lock);
        if (status != PLASMON_OK) {
            return status;
        }
        status = places_cover(value) ? copy_places(client, value, data, deadline_ns, &err)
                                     : PLASMON_EUNREACHABLE;
        pl_mutex_lock(&client->lock);
        held_value_drop_locked(client, value);
        pl_mutex_unlock(&client->lock);
    }
    if (status != PLASMON_OK) {
        pl_debug("client", "ref %llu by messages: %s", (unsigned long long)value->root_id,
                 err.text);
        return PLASMON_EUNREACHABLE; /* get by messages instead */
    }
    return PLASMON_OK;
}

/* ------------------------------------------------------------------------------------------------ messages */

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
        }
    }
    for (unsigned i = 0; i < READS_IN_FLIGHT;
         i++) { /* after a failure: nobody may write to the caller's memory */
        request_close_locked(client, &pipe->requests[i]);
    }
    return status;
}

static plasmon_status_t get_by_messages(struct plasmon_client *client, uint64_t root_id,
                                        const struct pl_view *view, void *data,
                                        uint64_t bytes, uint64_t deadline_ns)
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
 * A value of many chunks must be of one version though another thread submits meanwhile: it is read from a snapshot. (What that
 * costs, a message, is nothing beside the bytes.)
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
        id     = slot->root->id;
        status = client_wait_ref_locked(client, slot->root, NULL, deadline_ns);
    }
    pl_mutex_unlock(&client->lock);
    if (status == PLASMON_OK) {
        status = get_by_messages(client, id, NULL, data, bytes, deadline_ns);
    }
    (void)plasmon_release(client, snapshot); /* ours: it is there */
    return status;
}

/* ------------------------------------------------------------------------------------------------ get */

plasmon_status_t plasmon_get(struct plasmon_client *client, struct plasmon_ref *ref,
                             void *data, size_t bytes, uint32_t timeout_ms)
{
    uint64_t deadline_ns    = client_deadline(timeout_ms);
    struct held_value value = {.hold = 0};
    plasmon_status_t status = client_enter(client);

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
    status = held_value_begin(client, ref, bytes, deadline_ns, &value);
    if (status != PLASMON_OK) {
        return status;
    }
    if (timeout_ms ==
        0) { /* polling meant not to wait for the task; moving the bytes takes its time */
        deadline_ns = UINT64_MAX;
    }

    if (data_reachable(client, PLASMON_ANYWHERE)) {
        status = get_shared(client, &value, data, deadline_ns);
        if (status != PLASMON_EUNREACHABLE) {
            return status;
        }
    }
    if (value.bytes > READ_CHUNK_BYTES) {
        return get_large_by_messages(client, ref, data, value.bytes, deadline_ns);
    }
    return get_by_messages(client, value.root_id, value.whole ? NULL : &value.asked, data,
                           value.bytes, deadline_ns);
}
