/*
 * Reading ahead: a program that gets many small results gets them one after the other, mostly in
 * the order in which it made them, and each get would cost a round trip. So a get that continues
 * such a series asks for those that come next as well, as far as they are ready: none at first,
 * then one, three, and so on up to AHEAD_MAX, until the series breaks off. Their bytes are kept
 * with their refs (root_keep_value()), where the next gets find them.
 *
 * What is asked for in vain costs the head a look-up and this process a copy of at most VALUE_BYTES_MAX.
 */
#include "base/alloc.h"
#include "client/data.h"

#define AHEAD_MAX (DATA_VALUES_MAX - 1)
/*
 * The next of a series lies at most so many refs further on, and so many are looked at for one that
 * can be read ahead.
 */
#define STRIDE_MAX 16u

static bool is_small(const struct root *root)
{
    return !root->is_task && root->base == NULL &&
           pl_shape_bytes(&root->shape) <= VALUE_BYTES_MAX;
}

static bool is_wanted(const struct root *root)
{
    return is_small(root) && root->value == NULL && root->handle_count > 0 &&
           root_state(root, NULL, NULL) == PLASMON_OK;
}

static void add_locked(struct plasmon_client *client, struct root *root,
                       struct ahead_values *ahead)
{
    struct pl_err unused    = {0};
    struct plasmon_ref *ref = refs_open(&client->refs, root, NULL);
    struct ref_slot *slot;

    if (ref != NULL && refs_find(&client->refs, ref, &slot, &unused) == PLASMON_OK) {
        held_value_of_slot(slot, &ahead->values[ahead->count]);
        ahead->refs[ahead->count++] = ref;
    }
}

static void choose_locked(struct plasmon_client *client, const struct root *root,
                          uint32_t window, struct ahead_values *ahead)
{
    uint32_t looked = 0;

    ahead->values = PL_NEW_N(struct held_value, window);
    ahead->refs   = PL_NEW_N(struct plasmon_ref *, window);
    ahead->bytes  = pl_alloc((size_t)window * VALUE_BYTES_MAX);
    ahead->got    = PL_NEW_N(bool, window);
    if (ahead->values == NULL || ahead->refs == NULL || ahead->bytes == NULL ||
        ahead->got == NULL) {
        return; /* then the next get asks for itself */
    }
    for (struct pl_list *at = root->all.next;
         at != &client->refs.roots && ahead->count < window && looked < window * STRIDE_MAX;
         at = at->next) {
        struct root *next = pl_container_of(at, struct root, all);

        looked++;
        if (is_wanted(next)) {
            add_locked(client, next, ahead);
        }
    }
}

void ahead_plan_locked(struct plasmon_client *client, const struct root *root, bool got,
                       struct ahead_values *out)
{
    struct ahead *ahead = &client->ahead;
    bool continues;

    *out = (struct ahead_values){.count = 0};
    if (!is_small(root)) {
        return;
    }
    continues      = root->id > ahead->last_id && root->id - ahead->last_id <= STRIDE_MAX;
    ahead->last_id = root->id;
    if (got) {
        return; /* the window stays: it was right so far */
    }
    ahead->window = continues ? (uint32_t)pl_min_u64(2 * ahead->window + 1, AHEAD_MAX) : 0;
    if (ahead->window > 0) {
        choose_locked(client, root, ahead->window, out);
    }
}

/* ----------------------------------------------------------------------- through a lane */

struct batch {
    uint32_t host_device; /* of all */
    uint32_t count;
    uint32_t index[AHEAD_MAX]; /* in ahead->values */
    struct shared_pin pins[AHEAD_MAX];
    uint64_t buffers[AHEAD_MAX];
    uint64_t bytes[AHEAD_MAX];
    void *data[AHEAD_MAX];
};

/* A value that fills a buffer of a staged device, the same as the others'. */
static void batch_add(struct plasmon_client *client, struct ahead_values *ahead,
                      uint32_t index, uint64_t deadline_ns, struct batch *batch)
{
    struct held_value *value  = &ahead->values[index];
    struct pl_box whole       = pl_box_of_shape(&value->shape);
    struct shared_pin *pin    = &batch->pins[batch->count];
    struct pl_err unused      = {0};
    const struct place *place = NULL;
    uint32_t host_device;

    if (value->hold != 0 && value->request.places.count == 1) {
        place = pl_vec_at(&value->request.places, 0);
    }
    if (place == NULL || !pl_box_equal(&place->box, &whole) ||
        !pl_box_equal(&place->frame, &whole) ||
        data_path_to(client, wire_buffer_device(place->buffer), &host_device) !=
            DATA_STAGED ||
        (batch->count > 0 && host_device != batch->host_device) ||
        data_pin(client, place, false, deadline_ns, pin, &unused) != PLASMON_OK) {
        return;
    }
    batch->host_device           = host_device;
    batch->index[batch->count]   = index;
    batch->buffers[batch->count] = place->buffer;
    batch->bytes[batch->count]   = value->bytes;
    batch->data[batch->count++]  = ahead->bytes + (size_t)index * VALUE_BYTES_MAX;
}

void ahead_fetch(struct plasmon_client *client, struct ahead_values *ahead,
                 uint64_t deadline_ns)
{
    struct batch batch   = {.count = 0};
    struct pl_err unused = {0};
    bool good;

    for (uint32_t i = 0; i < ahead->count; i++) {
        batch_add(client, ahead, i, deadline_ns, &batch);
    }
    if (batch.count == 0) {
        return;
    }
    good = data_lane_get_many(client, batch.host_device, batch.buffers, batch.bytes,
                              batch.data, batch.count, deadline_ns, &unused) == PLASMON_OK;
    for (uint32_t i = 0; i < batch.count; i++) {
        shared_unpin(&batch.pins[i]);
        ahead->got[batch.index[i]] = good;
    }
}

void ahead_finish(struct plasmon_client *client, struct ahead_values *ahead)
{
    struct pl_err unused = {0};
    struct ref_slot *slot;

    if (ahead->count == 0) {
        goto out;
    }
    pl_mutex_lock(&client->lock);
    for (uint32_t i = 0; i < ahead->count; i++) {
        if (refs_find(&client->refs, ahead->refs[i], &slot, &unused) == PLASMON_OK) {
            client_close_ref_locked(client, ahead->refs[i], slot);
        }
    }
    pl_mutex_unlock(&client->lock);
out:
    pl_free(ahead->values);
    pl_free(ahead->refs);
    pl_free(ahead->bytes);
    pl_free(ahead->got);
}
