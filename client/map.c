/*
 * map: the bytes of a ref where they are. The head holds the version, a pin holds the buffer; both
 * end with plasmon_unmap(). A value in several buffers is gathered into one first; a view that
 * somebody else published is copied out of its array.
 */
#include "base/alloc.h"
#include "base/fault.h"
#include "client/data.h"

struct plasmon_mapping {
    struct plasmon_client *client;
    uint64_t hold;
    struct shared_pin pin;
    const void *data;
    int64_t stride[PL_DIM_MAX];
};

/* The one place that has all of the view, or NULL. */
static const struct place *single_place(const struct held_value *value)
{
    struct pl_box hull = pl_view_hull(&value->shown);

    for (size_t i = 0; i < value->request.places.count; i++) {
        const struct place *place = pl_vec_at(&value->request.places, i);

        if (pl_box_contains(&place->box, &hull)) {
            return place;
        }
    }
    return NULL;
}

static plasmon_status_t map_place(struct plasmon_client *client, struct held_value *value,
                                  uint64_t deadline_ns, struct plasmon_mapping *mapping)
{
    const struct place *place = single_place(value);
    uint32_t element_bytes    = pl_dtype_bytes(value->shape.dtype);
    struct pl_err err         = {0};
    plasmon_status_t status;

    if (place == NULL) {
        return error_set(PLASMON_EAGAIN, "the object lies in several buffers");
    }
    status = data_pin(client, place, true, deadline_ns, &mapping->pin, &err);
    if (status == PLASMON_ECLOSED && !client->embedded.active) {
        /* The store is gone; the cluster is not (docs/failure.md). */
        status = pl_err_set(
            &err, PLASMON_EUNREACHABLE,
            "plasmon-store of this host has died, and what was made since cannot be mapped "
            "before another one is started: use plasmon_get()");
    }
    if (status != PLASMON_OK) {
        return error_from(&err, status);
    }
    status = held_value_sure(client, value, deadline_ns);
    if (status != PLASMON_OK) {
        shared_unpin(&mapping->pin);
        return status;
    }

    pl_box_strides(&place->frame, mapping->stride);
    for (uint32_t i = 0; i < value->shown.ndim; i++) {
        mapping->stride[i] *= value->shown.step[i];
    }
    mapping->data =
        (const uint8_t *)mapping->pin.data +
        pl_box_offset(&place->frame, value->shown.start) * (int64_t)element_bytes;
    return PLASMON_OK;
}

/* One round: locate, pin. On success the mapping owns hold and pin. */
static plasmon_status_t map_once(struct plasmon_client *client, struct held_value *value,
                                 enum data_form form, uint64_t deadline_ns,
                                 struct plasmon_mapping *mapping)
{
    plasmon_status_t status;

    pl_mutex_lock(&client->lock);
    status = held_value_locate_locked(client, value, form, deadline_ns);
    pl_mutex_unlock(&client->lock);
    if (status != PLASMON_OK) {
        return status;
    }
    (void)pl_fault_point("client.map_located"); /* cannot fail; the process can stop */

    status = map_place(client, value, deadline_ns, mapping);
    pl_mutex_lock(&client->lock);
    if (status == PLASMON_OK) {
        mapping->hold = value->hold;
        value->hold   = 0; /* stays with the mapping */
        request_close_locked(client, &value->request);
        pl_cond_finish(&value->cond);
    } else {
        held_value_drop_locked(client, value);
    }
    pl_mutex_unlock(&client->lock);
    return status;
}

plasmon_status_t plasmon_map(struct plasmon_client *client, struct plasmon_ref *ref,
                             uint32_t timeout_ms, struct plasmon_mapping **out_mapping)
{
    uint64_t deadline_ns    = client_deadline(timeout_ms);
    struct held_value value = {.hold = 0};
    struct plasmon_mapping *mapping;
    plasmon_status_t status = client_enter(client);

    if (status != PLASMON_OK) {
        return status;
    }
    if (out_mapping == NULL) {
        return error_set(PLASMON_EINVAL, "out_mapping is NULL");
    }
    status = held_value_begin(client, ref, SIZE_MAX, deadline_ns, &value);
    if (status != PLASMON_OK) {
        return status;
    }
    if (!data_reachable(client, PLASMON_ANYWHERE)) {
        return error_set(
            PLASMON_EUNREACHABLE,
            "no device of this host has memory that can be mapped: use plasmon_get()");
    }
    mapping = PL_NEW(struct plasmon_mapping);
    if (mapping == NULL) {
        return error_set(PLASMON_ENOMEM, "out of host memory");
    }
    mapping->client = client;
    if (timeout_ms == 0) {
        deadline_ns = UINT64_MAX; /* as in plasmon_get() */
    }

    /* in several pieces, a part of what is not known here, or it moved: try the next form */
    status = PLASMON_EAGAIN;
    for (int form = DATA_PLACES;
         form <= DATA_COMPACT && (status == PLASMON_EAGAIN || status == PLASMON_ELOST);
         form++) {
        status = map_once(client, &value, (enum data_form)form, deadline_ns, mapping);
    }
    if (status != PLASMON_OK) {
        pl_free(mapping);
        return status == PLASMON_EAGAIN
                   ? error_set(PLASMON_EUNREACHABLE, "the object could not be gathered")
                   : status;
    }
    *out_mapping = mapping;
    return PLASMON_OK;
}

const void *plasmon_mapping_data(const struct plasmon_mapping *mapping)
{
    return mapping->data;
}

const int64_t *plasmon_mapping_strides(const struct plasmon_mapping *mapping)
{
    return mapping->stride;
}

void plasmon_unmap(struct plasmon_mapping *mapping)
{
    struct plasmon_client *client;

    if (mapping == NULL) {
        return;
    }
    client = mapping->client;
    if (client_enter(client) == PLASMON_OK) {
        /* in a forked child the pin and the hold are the parent's */
        shared_unpin(&mapping->pin);
        pl_mutex_lock(&client->lock);
        session_release_locked(client, mapping->hold, 0, RELEASE_AT_ONCE);
        pl_mutex_unlock(&client->lock);
    }
    pl_free(mapping);
}
