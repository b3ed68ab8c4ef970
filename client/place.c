/*
 * Where a value's bytes are, and which way this process reaches them.
 *
 *   mapped     memory of a CPU device of this host: pinned in its table and used where it lies
 *   staged     memory of any device of this host: through a lane (lane.h), with the buffer pinned
 *              all the same
 *   bulk       a device of another host: straight to and from its worker (bulk.h), when that is
 *              more than a few bytes
 *   messages   whatever else: the head has the bytes sent
 *
 * PLASMON_CLIENT_PATH allows one of them alone (for tests and measurements); a device that cannot
 * be reached so is reached by messages.
 */
#include "client/data.h"

#include <string.h>

#include "base/alloc.h"
#include "base/log.h"

#define SEALED_TIMEOUT_NS 2000000000ull
#define DEVICES_STALE_NS  2000000000ull
#define LOOK_NS           500000000ull /* how often to look for a store that is gone */
/* for one that never was ours: twice as long each time */
#define LOOK_MAX_NS 30000000000ull
#define LOOK_MS     1000u /* and for how long */
#define SMALL_BYTES 4096u
#define KIND_CPU    1u /* enum device_kind */

/* -------------------------------------------------------------------------------- paths */

plasmon_status_t data_path_parse(const char *text, enum data_path *out_path)
{
    static const struct {
        const char *name;
        enum data_path path;
    } names[] = {{"auto", DATA_AUTO},
                 {"mapped", DATA_MAPPED},
                 {"staged", DATA_STAGED},
                 {"bulk", DATA_BULK},
                 {"messages", DATA_MESSAGES}};

    *out_path = DATA_AUTO;
    for (size_t i = 0; text != NULL && i < PL_COUNT(names); i++) {
        if (strcmp(text, names[i].name) == 0) {
            *out_path = names[i].path;
            return PLASMON_OK;
        }
    }
    return text == NULL
               ? PLASMON_OK
               : error_set(PLASMON_EINVAL,
                           "PLASMON_CLIENT_PATH is '%s'; it is auto, mapped, staged, "
                           "bulk or messages",
                           text);
}

static enum data_path path_of(const struct plasmon_client *client,
                              const struct client_device *device)
{
    if (device == NULL || client->path == DATA_MESSAGES) {
        return DATA_MESSAGES;
    }
    if (client->path == DATA_BULK || (client->path == DATA_AUTO && !device->same_host)) {
        return device->bulk != PLASMON__V1__BULK_ACCESS__BULK_ACCESS_NONE ? DATA_BULK
                                                                          : DATA_MESSAGES;
    }
    if (!device->same_host) {
        return DATA_MESSAGES;
    }
    if (client->path == DATA_STAGED) {
        return DATA_STAGED;
    }
    if (device->kind == KIND_CPU) {
        return DATA_MAPPED;
    }
    return client->path == DATA_MAPPED ? DATA_MESSAGES : DATA_STAGED;
}

/* false: the device is not known, or our store is not the one that it belongs to. */
static bool path_now(struct plasmon_client *client, uint32_t index,
                     enum data_path *out_path, uint32_t *out_host_device)
{
    const struct client_device *device;

    pl_mutex_lock(&client->lock);
    device           = client_device_locked(client, index);
    *out_path        = path_of(client, device);
    *out_host_device = device != NULL ? device->host_device : UINT32_MAX;
    pl_mutex_unlock(&client->lock);
    return device != NULL && (*out_path == DATA_MESSAGES || *out_path == DATA_BULK ||
                              shared_serves(&client->shared, *out_host_device, index));
}

enum data_path data_path_to(struct plasmon_client *client, uint32_t index,
                            uint32_t *out_host_device)
{
    enum data_path path;

    if (path_now(client, index, &path, out_host_device) ||
        (data_look_again(client) && path_now(client, index, &path, out_host_device))) {
        return path;
    }
    return DATA_MESSAGES;
}

/*
 * Any device that is reached in this way (AUTO: in any that is of this host alone); device >= 0: is
 * it that one?
 */
static bool any_device_locked(const struct plasmon_client *client, int device,
                              enum data_path path)
{
    for (size_t i = 0; i < client->devices.count; i++) {
        const struct client_device *at = pl_vec_at(&client->devices, i);
        enum data_path its             = path_of(client, at);

        bool right =
            path == DATA_AUTO ? its != DATA_MESSAGES && its != DATA_BULK : its == path;

        if (right && (device == PLASMON_ANYWHERE || at->index == (uint32_t)device)) {
            return true;
        }
    }
    return false;
}

/*
 * Devices join while we run, and nothing tells of it: look again when there was nothing to map, but
 * not all the time.
 */
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
    if (due && client_refresh_devices(client, client->unary_ms) != PLASMON_OK) {
        pl_debug("client", "the list of devices could not be had: %s",
                 plasmon_error(client));
    }
}

bool data_look_again(struct plasmon_client *client)
{
    uint64_t now_ns   = pl_now_ns();
    struct pl_err err = {0};
    char path[sizeof(client->store_socket)];
    bool due, ours;

    if (client->embedded.active || client_on_loop_thread(client)) {
        return false; /* a private cluster ends with its store */
    }
    pl_mutex_lock(&client->lock);
    due = now_ns >= client->look_at_ns;
    if (due) {
        client->look_at_ns = UINT64_MAX; /* one at a time */
    }
    pl_mutex_unlock(&client->lock);
    if (!due) {
        return false;
    }
    if (client_refresh_devices(client, LOOK_MS) != PLASMON_OK) {
        pl_debug("client", "the list of devices could not be had: %s",
                 plasmon_error(client));
    }
    pl_mutex_lock(&client->lock);
    memcpy(path, client->store_socket, sizeof(path));
    pl_mutex_unlock(&client->lock);
    if (shared_renew(&client->shared, path, &err) != PLASMON_OK) {
        pl_debug("client", "no shared memory with the devices of this host: %s", err.text);
    }
    ours   = shared_device_count(&client->shared) > 0;
    now_ns = pl_now_ns();
    pl_mutex_lock(&client->lock);
    client->look_wait_ns = ours || client->look_wait_ns == 0
                               ? LOOK_NS
                               : pl_min_u64(2 * client->look_wait_ns, LOOK_MAX_NS);
    client->look_at_ns   = now_ns + client->look_wait_ns;
    pl_mutex_unlock(&client->lock);
    return true;
}

bool data_known(struct plasmon_client *client, int device, enum data_path path)
{
    bool present;

    pl_mutex_lock(&client->lock);
    present = any_device_locked(client, device, path);
    pl_mutex_unlock(&client->lock);
    return present;
}

bool data_reachable(struct plasmon_client *client, int device)
{
    struct pl_err err = {0};
    char path[sizeof(client->store_socket)];
    bool present;

    pl_mutex_lock(&client->lock);
    present = any_device_locked(client, device, DATA_AUTO);
    memcpy(path, client->store_socket, sizeof(path));
    pl_mutex_unlock(&client->lock);

    if (!present) {
        refresh_now_and_then(client);
        pl_mutex_lock(&client->lock);
        present = any_device_locked(client, device, DATA_AUTO);
        pl_mutex_unlock(&client->lock);
    }
    if (!present) {
        return false;
    }
    if (shared_ensure(&client->shared, path, &err) == PLASMON_OK) {
        return true;
    }
    pl_debug("client", "no shared memory with the devices of this host: %s", err.text);
    return data_look_again(client) && shared_device_count(&client->shared) > 0;
}

bool data_bulk(struct plasmon_client *client, int device, uint64_t bytes)
{
    bool worth = bytes > PUT_INLINE_BYTES || client->path == DATA_BULK;

    return worth && data_known(client, device, DATA_BULK);
}

struct shared_key data_key(uint32_t host_device, uint64_t buffer)
{
    return (struct shared_key){.host_device = host_device,
                               .device      = wire_buffer_device(buffer),
                               .slot        = wire_buffer_slot(buffer),
                               .generation  = wire_buffer_generation(buffer)};
}

plasmon_status_t data_pin(struct plasmon_client *client, const struct place *place,
                          bool must_map, uint64_t deadline_ns, struct shared_pin *out_pin,
                          struct pl_err *err)
{
    uint32_t index       = wire_buffer_device(place->buffer);
    uint64_t limit_ns    = pl_min_u64(deadline_ns, pl_now_ns() + SEALED_TIMEOUT_NS);
    uint32_t host_device = 0;
    enum data_path path  = data_path_to(client, index, &host_device);
    struct shared_key key;
    bool expected;
    plasmon_status_t status;

    if (path == DATA_MESSAGES || path == DATA_BULK || (must_map && path != DATA_MAPPED)) {
        return pl_err_set(err, PLASMON_EUNREACHABLE,
                          "it lies on device %u, whose memory this process cannot %s",
                          index, must_map ? "map: use plasmon_get()" : "reach");
    }
    key = data_key(host_device, place->buffer);
    do {
        status = (path == DATA_MAPPED ? shared_pin : shared_hold)(&client->shared, &key,
                                                                  limit_ns, out_pin, err);
    } while (status == PLASMON_ECLOSED && data_look_again(client));
    if (status != PLASMON_OK) {
        return status;
    }
    expected = out_pin->entry.ndim == place->frame.ndim;
    for (uint32_t i = 0; expected && i < place->frame.ndim; i++) {
        expected = out_pin->entry.dim[i] == place->frame.count[i];
    }
    if (!expected) {
        shared_unpin(out_pin);
        return pl_err_set(err, PLASMON_EMALFORMED,
                          "the head and the table of device %u disagree about a buffer",
                          index);
    }
    return PLASMON_OK;
}

/* -------------------------------------------------------------------------------- lanes */

plasmon_status_t data_hope(struct plasmon_client *client, struct pl_err *err)
{
    plasmon_status_t status = PLASMON_OK;

    pl_mutex_lock(&client->lock);
    if (client->session.state == SESSION_DEAD) {
        status = pl_err_set(err, PLASMON_ECLOSED, "%s", client->session.dead_text);
    }
    pl_mutex_unlock(&client->lock);
    return status;
}

static plasmon_status_t session_hope(void *user, struct pl_err *err)
{
    return data_hope(user, err);
}

/* A lane, and in whose memory it is: held. */
struct lane_use {
    struct plasmon_client *client;
    struct lane *lane;
    struct shared_memory *memory;
};

/*
 * A transfer waits for its worker, however often that is replaced, as long as somebody can replace
 * it: the store, or the one that has its memory after it. While there is none its worker may go on;
 * messages go the same way then, and know when to give up.
 */
static plasmon_status_t hope(void *user, struct pl_err *err)
{
    const struct lane_use *use = user;
    plasmon_status_t status    = session_hope(use->client, err);

    if (status == PLASMON_OK && !shared_memory_lives(&use->client->shared, use->memory) &&
        !(data_look_again(use->client) &&
          shared_memory_lives(&use->client->shared, use->memory))) {
        status = pl_err_set(err, PLASMON_ECLOSED, "plasmon-store of this host is gone");
    }
    return status;
}

/* EUNREACHABLE: there is none just now, or never; use messages. */
static plasmon_status_t lane_begin(struct plasmon_client *client, uint32_t host_device,
                                   uint64_t buffer, struct lane_use *use,
                                   struct pl_err *err)
{
    plasmon_status_t status;

    use->client = client;
    do {
        status = shared_lane(&client->shared, host_device, wire_buffer_device(buffer),
                             &use->lane, &use->memory, err);
    } while (status == PLASMON_ECLOSED && data_look_again(client));
    return status == PLASMON_OK ? PLASMON_OK : PLASMON_EUNREACHABLE;
}

static struct lane_transfer transfer_of(struct lane_use *use, uint64_t buffer,
                                        uint64_t offset, uint64_t bytes,
                                        uint64_t deadline_ns)
{
    return (struct lane_transfer){.buffer_slot = wire_buffer_slot(buffer),
                                  .generation  = wire_buffer_generation(buffer),
                                  .offset      = offset,
                                  .bytes       = bytes,
                                  .deadline_ns = deadline_ns,
                                  .hope        = hope,
                                  .user        = use};
}

plasmon_status_t data_lane_put(struct plasmon_client *client, uint32_t host_device,
                               uint64_t buffer, const void *data, uint64_t bytes,
                               struct pl_err *err)
{
    struct lane_transfer transfer;
    struct lane_use use;
    plasmon_status_t status = lane_begin(client, host_device, buffer, &use, err);

    if (status == PLASMON_OK) {
        transfer = transfer_of(&use, buffer, 0, bytes, UINT64_MAX);
        status   = lane_put(use.lane, &transfer, data, err);
        shared_memory_release(use.memory);
    }
    return status;
}

plasmon_status_t data_lane_get(struct plasmon_client *client, uint32_t host_device,
                               uint64_t buffer, uint64_t offset, void *data, uint64_t bytes,
                               uint64_t deadline_ns, struct pl_err *err)
{
    struct lane_transfer transfer;
    struct lane_use use;
    plasmon_status_t status = lane_begin(client, host_device, buffer, &use, err);

    if (status == PLASMON_OK) {
        transfer = transfer_of(&use, buffer, offset, bytes, deadline_ns);
        status   = lane_get(use.lane, &transfer, data, err);
        shared_memory_release(use.memory);
    }
    return status;
}

plasmon_status_t data_lane_get_many(struct plasmon_client *client, uint32_t host_device,
                                    const uint64_t *buffers, const uint64_t *bytes,
                                    void *const *data, uint32_t count, uint64_t deadline_ns,
                                    struct pl_err *err)
{
    struct lane_transfer transfers[DATA_VALUES_MAX];
    struct lane_use use;
    plasmon_status_t status = lane_begin(client, host_device, buffers[0], &use, err);

    PL_CHECK(count <= DATA_VALUES_MAX);
    if (status != PLASMON_OK) {
        return status;
    }
    for (uint32_t i = 0; i < count; i++) {
        transfers[i] = transfer_of(&use, buffers[i], 0, bytes[i], deadline_ns);
    }
    status = lane_get_many(use.lane, transfers, data, count, err);
    shared_memory_release(use.memory);
    return status;
}

/* -------------------------------------------------------------------------- other hosts */

/* EUNREACHABLE: not over the bulk channel. EWORKER: not just now. */
static plasmon_status_t grant_check(struct plasmon_client *client, uint32_t device,
                                    const struct bulk_grant *grant, struct pl_err *err)
{
    if (grant->address[0] == '\0') {
        return pl_err_set(err, PLASMON_EWORKER,
                          "the worker of device %u is away: it took bytes of other hosts",
                          device);
    }
    return bulk_links_allow(&client->bulk, device, grant->tls)
               ? PLASMON_OK
               : pl_err_set(err, PLASMON_EUNREACHABLE,
                            "the worker of device %u was not reached", device);
}

static struct bulk_transfer bulk_of(struct plasmon_client *client, uint32_t device,
                                    const struct bulk_grant *grant, uint64_t bytes)
{
    return (struct bulk_transfer){.device      = device,
                                  .grant       = grant,
                                  .bytes       = bytes,
                                  .deadline_ns = UINT64_MAX,
                                  .hope        = session_hope,
                                  .user        = client};
}

plasmon_status_t data_bulk_put(struct plasmon_client *client, uint64_t buffer,
                               const struct bulk_grant *grant, const void *data,
                               uint64_t bytes, struct pl_err *err)
{
    uint32_t device               = wire_buffer_device(buffer);
    struct bulk_transfer transfer = bulk_of(client, device, grant, bytes);
    plasmon_status_t status       = grant_check(client, device, grant, err);

    return status == PLASMON_OK ? bulk_put(&client->bulk, &transfer, data, err) : status;
}

plasmon_status_t data_bulk_get(struct plasmon_client *client, const struct place *place,
                               uint64_t offset, void *data, uint64_t bytes,
                               uint64_t deadline_ns, struct pl_err *err)
{
    uint32_t device               = wire_buffer_device(place->buffer);
    struct bulk_transfer transfer = bulk_of(client, device, &place->bulk, bytes);
    plasmon_status_t status       = grant_check(client, device, &place->bulk, err);

    transfer.offset      = offset;
    transfer.deadline_ns = deadline_ns;
    return status == PLASMON_OK ? bulk_get(&client->bulk, &transfer, data, err) : status;
}

/* ------------------------------------------------------------------------ a value, held */

void held_value_of_slot(const struct ref_slot *slot, struct held_value *value)
{
    struct pl_shape shape = slot_shape(slot);

    value->root_id = slot->root->id;
    value->version = slot->root->version;
    value->bytes   = pl_shape_bytes(&shape);
    value->whole   = slot->view == NULL;
    value->asked   = slot_view(slot);
    value->hold    = 0;
    slot_place(slot, &value->shape, &value->view);
}

plasmon_status_t held_value_begin_locked(struct plasmon_client *client,
                                         struct plasmon_ref *ref, size_t capacity,
                                         struct held_value *value,
                                         struct ref_slot **out_slot)
{
    struct pl_err err = {0};
    struct ref_slot *slot;
    struct pl_shape shape;
    char text[128];
    plasmon_status_t status;

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
        return error_from(&err, status);
    }
    /* The slot may go away while somebody waits: take what is needed of it first. */
    held_value_of_slot(slot, value);
    *out_slot = slot;
    return PLASMON_OK;
}

plasmon_status_t held_value_begin(struct plasmon_client *client, struct plasmon_ref *ref,
                                  size_t capacity, uint64_t deadline_ns,
                                  struct held_value *value)
{
    struct ref_slot *slot;
    struct pl_box box;
    plasmon_status_t status;

    pl_mutex_lock(&client->lock);
    status = held_value_begin_locked(client, ref, capacity, value, &slot);
    if (status == PLASMON_OK && !root_foreign(slot->root, slot_box(slot, &box))) {
        status =
            client_wait_ref_locked(client, slot->root, slot_box(slot, &box), deadline_ns);
    }
    pl_mutex_unlock(&client->lock);
    return status;
}

/* What of the answer's array the value is. */
static plasmon_status_t shown_in(struct held_value *value, enum data_form form)
{
    const struct pl_shape *there = &value->request.shape;
    struct pl_shape compact      = pl_view_shape(&value->view, value->shape.dtype);

    if (form == DATA_COMPACT) {
        value->shown = pl_view_whole(&compact);
        return pl_shape_equal(there, &compact)
                   ? PLASMON_OK
                   : error_set(PLASMON_EMALFORMED,
                               "the head's answer: it has another shape");
    }
    value->shown = value->view;
    return pl_shape_equal(there, &value->shape)
               ? PLASMON_OK
               : error_set(
                     PLASMON_EAGAIN, /* a published view: only the publisher knows of what */
                     "the object is a part of an array that is not known here");
}

/* With `locate` filled in, `value` holds, unless what comes next fails. */
static plasmon_status_t locate_open_locked(struct plasmon_client *client,
                                           struct held_value *value, enum data_form form,
                                           Plasmon__V1__Locate *locate,
                                           int64_t numbers[3 * PL_DIM_MAX])
{
    plasmon_status_t status = pl_cond_init(&value->cond);

    if (status != PLASMON_OK) {
        return error_set(status, "%s", pl_status_text(status));
    }
    request_init(&value->request, &value->cond);
    status = request_open_locked(client, &value->request);
    if (status != PLASMON_OK) {
        request_close_locked(client, &value->request);
        pl_cond_finish(&value->cond);
        return status;
    }
    value->hold = refs_draw_ref(&client->refs);
    plasmon__v1__locate__init(locate);
    locate->request  = value->request.number;
    locate->ref      = value->root_id;
    locate->hold_ref = value->hold;
    locate->gather   = form == DATA_GATHERED;
    locate->compact  = form == DATA_COMPACT;
    locate->bulk     = value->bulk;
    if (!value->whole) {
        locate->n_view = wire_view_put(&value->asked, numbers);
        locate->view   = numbers;
    }
    return PLASMON_OK;
}

static void locate_close_locked(struct plasmon_client *client, struct held_value *value)
{
    value->hold = 0;
    request_close_locked(client, &value->request);
    pl_cond_finish(&value->cond);
}

/* What the answer says of the value. Not OK: it is not held any more. */
static plasmon_status_t locate_end_locked(struct plasmon_client *client,
                                          struct held_value *value, enum data_form form,
                                          uint64_t deadline_ns)
{
    plasmon_status_t status = request_wait_locked(client, &value->request, deadline_ns);

    if (status == PLASMON_ETIMEDOUT && !value->request.answered) {
        /* No task of this client writes it: that was waited for before. */
        (void)error_set(
            status,
            "the value is still pending: another client's task is yet to write it, it is "
            "on its way, or the head does not answer (`plasmon doctor --cluster`)");
    }
    if (status == PLASMON_OK) {
        status = shown_in(value, form);
    }
    if (status != PLASMON_OK) {
        /* it may have been taken: perhaps only the answer came too late */
        session_release_locked(client, value->hold, 0, RELEASE_AT_ONCE);
        locate_close_locked(client, value);
    }
    return status;
}

plasmon_status_t held_values_locate_locked(struct plasmon_client *client,
                                           struct held_value *const *values, uint32_t count,
                                           enum data_form form, uint64_t deadline_ns)
{
    Plasmon__V1__ClientFrame fields = PLASMON__V1__CLIENT_FRAME__INIT;
    Plasmon__V1__Locate locates[DATA_VALUES_MAX], *list[DATA_VALUES_MAX];
    int64_t numbers[3 * PL_DIM_MAX]; /* only the first may be a view */
    uint64_t asked_ns       = pl_now_ns();
    plasmon_status_t status = PLASMON_OK;

    PL_CHECK(count >= 1 && count <= DATA_VALUES_MAX);
    for (uint32_t i = 0; i < count && status == PLASMON_OK; i++) {
        values[i]->asked_ns = asked_ns;
        PL_CHECK(i == 0 || values[i]->whole);
        status = locate_open_locked(client, values[i], form, &locates[i], numbers);
        if (status == PLASMON_OK) {
            list[fields.n_locate++] = &locates[i];
        }
    }
    fields.locate = list;
    if (status == PLASMON_OK) {
        status = request_send_locked(client, &values[0]->request, FRAME_LOCATE, &fields);
    }
    if (status != PLASMON_OK) {
        for (size_t i = 0; i < fields.n_locate; i++) {
            locate_close_locked(client, values[i]);
        }
        return status;
    }

    status = locate_end_locked(client, values[0], form, deadline_ns);
    for (uint32_t i = 1; i < count; i++) { /* those that are answered by now */
        (void)locate_end_locked(client, values[i], form, 0);
    }
    return status;
}

plasmon_status_t held_value_locate_locked(struct plasmon_client *client,
                                          struct held_value *value, enum data_form form,
                                          uint64_t deadline_ns)
{
    return held_values_locate_locked(client, &value, 1, form, deadline_ns);
}

bool held_value_fresh(const struct held_value *value)
{
    return pl_now_ns() - value->asked_ns < SESSION_SURE_NS;
}

plasmon_status_t held_value_sure(struct plasmon_client *client,
                                 const struct held_value *value, uint64_t deadline_ns)
{
    plasmon_status_t status;

    if (held_value_fresh(value)) {
        return PLASMON_OK;
    }
    pl_mutex_lock(&client->lock);
    status = session_ask_locked(client, deadline_ns);
    pl_mutex_unlock(&client->lock);
    return status;
}

void held_value_drop_locked(struct plasmon_client *client, struct held_value *value)
{
    if (value->hold == 0) {
        return;
    }
    /*
     * At once: an INOUT that follows may then work in place. A little that it must copy is cheaper
     * than a message.
     */
    session_release_locked(client, value->hold, 0,
                           value->bytes > SMALL_BYTES ? RELEASE_AT_ONCE : RELEASE_LATER);
    value->hold = 0;
    request_close_locked(client, &value->request);
    pl_cond_finish(&value->cond);
}
