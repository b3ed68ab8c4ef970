/*
 * Whose it is that a node which is being drained still has: the names and refs that show it, the
 * largest first, for people.
 *
 * What the last look found (drain.c) says which tiles those are; who shows them is only looked for
 * when it is asked, because all refs are walked.
 */
#include "head/core_int.h"

#include <string.h>

enum { LEFT_LOOKS_PER_MS = 1000 };

/* Elements of the box that are left; *io_why of the part that is furthest from leaving. */
static uint64_t tile_left(const struct head_drain *drain, const struct head_tile *tile,
                          const struct pl_box *box, enum head_drain_why *io_why)
{
    uintptr_t why = (uintptr_t)pl_map_get(&drain->why, (uint64_t)(uintptr_t)tile);
    struct pl_list *pos;

    if (why == 0) {
        return 0;
    }
    pl_list_for_each(pos, &tile->instances) {
        const struct head_instance *instance =
            pl_container_of(pos, struct head_instance, tile_link);
        struct pl_box part;

        if (strcmp(instance->buffer->device->host, drain->host) == 0 &&
            pl_box_intersection(&instance->box, box, &part) &&
            !head_drain_elsewhere(tile, &part)) {
            if (why - 1 > (uintptr_t)*io_why) {
                *io_why = (enum head_drain_why)(why - 1);
            }
            return (uint64_t)pl_box_elements(&part); /* other copies there show the same */
        }
    }
    return 0;
}

static uint64_t array_left(const struct head_drain *drain, const struct head_array *array,
                           enum head_drain_why *out_why)
{
    uint64_t elements = 0;
    struct pl_list *pos;

    *out_why = HEAD_DRAIN_LATER;
    pl_list_for_each(pos, &array->fragments) {
        const struct head_fragment *fragment =
            pl_container_of(pos, struct head_fragment, array_link);

        elements += tile_left(drain, fragment->tile, &fragment->box, out_why);
    }
    for (size_t i = 0; i < array->partials.count; i++) {
        const struct head_partial *partial = pl_vec_at(&array->partials, i);

        elements += tile_left(drain, partial->tile, &partial->box, out_why);
    }
    return elements * pl_dtype_bytes(array->shape.dtype);
}

/* Larger, then older. */
static bool ahead_of(const struct head_drain_left *a, const struct head_drain_left *b)
{
    return a->bytes != b->bytes     ? a->bytes > b->bytes
           : a->client != b->client ? a->client < b->client
                                    : a->ref < b->ref;
}

static void left_add(struct head_drain_left *out, uint32_t count,
                     const struct head_drain_left *left)
{
    uint32_t i = (uint32_t)pl_min_u64(count, HEAD_DRAIN_LEFT_MAX);

    while (i > 0 && ahead_of(left, &out[i - 1])) {
        if (i < HEAD_DRAIN_LEFT_MAX) {
            out[i] = out[i - 1];
        }
        i--;
    }
    if (i < HEAD_DRAIN_LEFT_MAX) {
        out[i] = *left;
    }
}

void head_drain_left_forget(struct head_drain *drain)
{
    for (uint32_t i = 0; i < drain->left_all && i < HEAD_DRAIN_LEFT_MAX; i++) {
        pl_free((char *)(uintptr_t)drain->left[i].name);
        pl_free((char *)(uintptr_t)drain->left[i].label);
    }
    drain->left_all = 0;
}

/* A name or a client may go before it is asked again. */
static void left_keep(struct head_drain *drain)
{
    for (uint32_t i = 0; i < drain->left_all && i < HEAD_DRAIN_LEFT_MAX; i++) {
        drain->left[i].name  = head_strdup(drain->left[i].name);
        drain->left[i].label = head_strdup(drain->left[i].label);
    }
}

/* However often it is asked, a tenth of our time at most goes into it. */
void head_drain_left_find(struct head_core *core, struct head_drain *drain)
{
    struct head_drain_left *out = drain->left;
    struct head_drain_left left;
    struct pl_list *pos;
    uint32_t count  = 0;
    uint64_t looked = 0;
    uint64_t key;
    void *value;

    head_drain_left_forget(drain);

    pl_list_for_each(pos, &core->names) {
        const struct head_name *name = pl_container_of(pos, struct head_name, link);

        left       = (struct head_drain_left){.name  = name->key + strlen(name->key) + 1,
                                              .label = ""};
        left.bytes = array_left(drain, name->ref.array, &left.why);
        if (left.bytes > 0) {
            left_add(out, count++, &left);
        }
    }
    pl_list_for_each(pos, &core->clients) {
        const struct head_client *client = pl_container_of(pos, struct head_client, link);

        for (size_t i = 0; pl_map_next(&client->refs, &i, &key, &value);) {
            left = (struct head_drain_left){
                .name = "", .client = client->id, .label = client->label, .ref = key};
            left.bytes = array_left(drain, ((struct head_ref *)value)->array, &left.why);
            looked++;
            if (left.bytes > 0) {
                left_add(out, count++, &left);
            }
        }
    }
    drain->left_all = count;
    left_keep(drain);
    drain->left_over     = drain->report.over;
    drain->left_until_ms = core->now_ms + HEAD_DRAIN_LOOK_MS + looked / LEFT_LOOKS_PER_MS;
}
