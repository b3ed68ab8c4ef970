/*
 * Reading ahead: a program that gets many small results gets them one after the other, mostly in the order in which it made them, and each
 * get would cost a round trip. So a get that continues such a series asks for those that come next as well, as far as
 * they are ready: none at first, then one, three, and so on up to AHEAD_MAX, until the series breaks off. Their bytes are kept with their refs
 * (root_keep_value()), where the next gets find them.
 *
 * What is asked for in vain costs the head a look-up and this process a copy of at most VALUE_BYTES_MAX.
 */
#include "base/alloc.h"
#include "client/data.h"

#define AHEAD_MAX (DATA_VALUES_MAX - 1)
/* The next of a series lies at most so many refs further on, and so many are looked at for one that can be read ahead. */
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
    if (ahead->values == NULL || ahead->refs == NULL) {
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
}
