/*
 * Mappings of a client: a Locate with a hold, whose buffers are pinned in the client's page, looked
 * at, and looked at again when the mapping ends. In between nothing may have changed.
 */
#include "tests/sim/sim.h"

#include <string.h>

#include "base/alloc.h"

enum {
    MAPPING_RETRY_NS  = 20000,
    MAPPING_TRIES_MAX = 5000,
};

/* Copy out what the mapping shows, dense, from wherever its boxes lie. */
static void mapping_look(const struct sim_answer *mapping, uint8_t *out)
{
    struct pl_box hull    = pl_view_hull(&mapping->view);
    uint32_t element      = pl_dtype_bytes(mapping->shape.dtype);
    struct pl_shape dense = pl_view_shape(&mapping->view, mapping->shape.dtype);
    uint64_t hull_bytes   = (uint64_t)pl_box_elements(&hull) * element;
    uint8_t *whole        = sim_alloc(hull_bytes);
    int64_t count         = pl_shape_elements(&dense);

    for (size_t i = 0; i < mapping->pins.count; i++) {
        const struct sim_pin *pin = pl_vec_at(&mapping->pins, i);

        pl_box_copy_host(&pin->box, whole, &hull, pin->worker->arena + pin->offset,
                         &pin->frame, element);
    }
    for (int64_t i = 0; i < count; i++) {
        int64_t at[PL_DIM_MAX];
        int64_t rest = i;

        for (uint32_t d = hull.ndim; d-- > 0;) {
            at[d] = mapping->view.start[d] +
                    (rest % mapping->view.count[d]) * mapping->view.step[d];
            rest /= mapping->view.count[d];
        }
        memcpy(out + (uint64_t)i * element,
               whole + (uint64_t)pl_box_offset(&hull, at) * element, element);
    }
    pl_free(whole);
}

static bool pin_parse(struct sim_client *client, const Plasmon__V1__Location *location,
                      struct sim_pin *out)
{
    struct pl_err err = {0};

    *out = (struct sim_pin){
        .worker     = sim_worker_of(client->sim, wire_buffer_device(location->buffer)),
        .slot       = wire_buffer_slot(location->buffer),
        .generation = wire_buffer_generation(location->buffer)};
    if (out->worker == NULL ||
        wire_box_get(location->n_box, location->box, &out->box, &err) != PLASMON_OK ||
        wire_box_get(location->n_frame, location->frame, &out->frame, &err) != PLASMON_OK) {
        sim_fail(client->sim, "client %u: a location makes no sense: %s", client->index,
                 err.text);
        return false;
    }
    return true;
}

static void mapping_unpin(struct sim_client *client, struct sim_answer *mapping)
{
    for (size_t i = 0; i < mapping->pins.count; i++) {
        store_table_unpin(client->pins,
                          ((struct sim_pin *)pl_vec_at(&mapping->pins, i))->pin);
    }
    pl_vec_clear(&mapping->pins);
}

/* All pins or none. EAGAIN: somebody writes another part of one of the buffers just now. */
static plasmon_status_t mapping_pin(struct sim_client *client, struct sim_answer *answer)
{
    for (size_t i = 0; i < answer->pending.count; i++) {
        struct sim_pin pin = *(struct sim_pin *)pl_vec_at(&answer->pending, i);
        struct store_entry entry;
        plasmon_status_t status = store_table_pin(
            pin.worker->table, pin.slot, pin.generation, client->pins, &entry, &pin.pin);
        struct sim_pin *place;

        if (status != PLASMON_OK) {
            mapping_unpin(client, answer);
            return status;
        }
        pin.offset = entry.offset;
        place      = pl_vec_push(&answer->pins);
        PL_CHECK(place != NULL);
        *place = pin;
    }
    return PLASMON_OK;
}

static void mapping_try(void *user, uint64_t arg, void *data)
{
    struct sim_client *client = user;
    struct sim_answer *answer = pl_map_get(&client->answers, arg);
    struct pl_shape shown;
    plasmon_status_t status;

    (void)data;
    if (client->dead) {
        return;
    }
    status = mapping_pin(client, answer);
    if (status == PLASMON_EAGAIN && ++answer->tries < MAPPING_TRIES_MAX) {
        sim_after(client->sim, MAPPING_RETRY_NS, mapping_try, client, arg, NULL);
        return;
    }
    (void)sim_client_answer(client, arg, SIM_ANSWER_MAPPING, status, "the table says no");
    if (status == PLASMON_OK) {
        shown          = pl_view_shape(&answer->view, answer->shape.dtype);
        answer->mapped = true;
        answer->length = pl_shape_bytes(&shown);
        answer->data   = sim_alloc(answer->length + 1);
        mapping_look(answer, answer->data);
    }
}

void sim_client_located(struct sim_client *client, const Plasmon__V1__Located *located)
{
    struct sim_answer *answer = pl_map_get(&client->answers, located->request);
    int64_t covered           = 0;
    struct pl_box hull;

    if (located->status != PLASMON_OK || answer == NULL || answer->answered ||
        answer->pending.count > 0) {
        (void)sim_client_answer(client, located->request, SIM_ANSWER_MAPPING,
                                (plasmon_status_t)located->status, located->text);
        return;
    }
    for (size_t i = 0; i < located->n_locations; i++) {
        struct sim_pin *pin = pl_vec_push(&answer->pending);

        PL_CHECK(pin != NULL);
        if (!pin_parse(client, located->locations[i], pin)) {
            return;
        }
        covered += pl_box_elements(&pin->box);
        if (sim_ghosts(client->sim) > 0 && sim_node_of(pin->worker)->index != 0) {
            (void)sim_client_answer(client, located->request, SIM_ANSWER_MAPPING,
                                    PLASMON_EUNREACHABLE, "it lies on another host");
            return;
        }
    }
    hull = pl_view_hull(&answer->view);
    if (covered != pl_box_elements(&hull)) {
        sim_fail(client->sim, "client %u: locations cover %lld of %lld elements",
                 client->index, (long long)covered, (long long)pl_box_elements(&hull));
        return;
    }
    mapping_try(client, answer->id, NULL);
}

void sim_client_unmap(struct sim_client *client, struct sim_answer *mapping,
                      uint64_t hold_ref)
{
    if (mapping->mapped) {
        uint8_t *again = sim_alloc(mapping->length + 1);

        mapping_look(mapping, again);
        if (memcmp(again, mapping->data, mapping->length) != 0) {
            sim_fail(client->sim, "client %u: bytes changed under mapping %llu",
                     client->index, (unsigned long long)mapping->id);
        }
        pl_free(again);
        mapping->mapped = false;
    }
    mapping_unpin(client, mapping);
    sim_client_release(client, hold_ref);
}
