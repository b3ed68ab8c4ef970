/*
 * Shadows: versions of arrays that are updated in place, kept so that a loss need not go back to
 * the beginning.
 *
 * x = f(x) on a ref that nobody else holds overwrites what it read, so a chain of updates has no
 * version but the last one. When that is lost, the chain is made again from where it began
 * (rebuild.c), as far as there is a record of that: a put has none. With config.shadow_bytes a
 * version is kept
 *
 *   - when so many bytes of a box have been overwritten in place since the last one that was kept, and
 *   - before the first update of what cannot be made again: a put, a result of a recorded graph or
 *     of a collective,
 *
 * and the one before it goes: one version for each box that tasks update (two while the newer one
 * is being copied).
 *
 * WHERE. A copy on another host, else on another device, with room as it is. Its array is `apart`:
 * what it shows may be overwritten in place wherever that is not the only place
 * (head_tile_held_elsewhere), once it has been copied, which the edges between the launches see to.
 * Where there is no other device with room the old version itself is kept: the task gets a copy to
 * work on. That helps against a worker that dies, though not against a device that does.
 *
 * A SHADOW IS AN ARRAY like any other, of nobody's account: tasks that are run again find its bytes
 * as they find all others. Nobody but this file holds it, and it is the first thing to go: when a
 * device needs room, when its own bytes are lost (they are not made again for it), with the array.
 *
 * Boxes of one array's shadows do not meet. All orders are those of inputs, so a head that replays
 * a journal, from a checkpoint too, has the same shadows.
 */
#include "head/core_int.h"

/* Nothing is on its way to where the version is kept. */
static bool arrived(const struct head_array *kept)
{
    struct pl_list *pos, *it;

    pl_list_for_each(pos, &kept->fragments) {
        const struct head_fragment *fragment =
            pl_container_of(pos, struct head_fragment, array_link);

        pl_list_for_each(it, &fragment->tile->instances) {
            if (!pl_list_empty(&pl_container_of(it, struct head_instance, tile_link)
                                    ->buffer->writers)) {
                return false;
            }
        }
    }
    return true;
}

static void release(struct head_core *core, struct head_array **io_array)
{
    if (*io_array != NULL) {
        head_array_release(core, *io_array);
        *io_array = NULL;
    }
}

static void shadow_free(struct head_core *core, struct head_shadow *shadow)
{
    pl_list_remove(&shadow->array_link);
    pl_list_remove(&shadow->link);
    release(core, &shadow->older);
    release(core, &shadow->kept);
    pl_free(shadow);
}

struct head_shadow *head_shadow_add(struct head_core *core, struct head_array *array,
                                    const struct pl_box *box)
{
    struct head_shadow *shadow = head_alloc(sizeof(*shadow));

    shadow->owner = array;
    shadow->box   = *box;
    pl_list_add_tail(&array->shadows, &shadow->array_link);
    pl_list_add_tail(&core->shadows, &shadow->link);
    return shadow;
}

static struct head_shadow *shadow_of(struct head_core *core, struct head_array *array,
                                     const struct pl_box *box)
{
    struct pl_list *pos, *tmp;

    pl_list_for_each_safe(pos, tmp, &array->shadows) {
        struct head_shadow *shadow = pl_container_of(pos, struct head_shadow, array_link);

        if (pl_box_equal(&shadow->box, box)) {
            return shadow;
        }
        if (pl_box_intersects(&shadow->box, box)) {
            shadow_free(core, shadow);
        }
    }
    return head_shadow_add(core, array, box);
}

static void keep_whole(struct head_core *core, struct head_shadow *shadow)
{
    if (shadow->older != NULL && !head_array_whole(shadow->older)) {
        release(core, &shadow->older);
    }
    if (shadow->kept != NULL && !head_array_whole(shadow->kept)) {
        release(core, &shadow->kept);
        shadow->kept  = shadow->older;
        shadow->older = NULL;
    }
}

/* Is there a part of it that no record says how to make? */
static bool cut_off(const struct head_array *array, const struct pl_box *box)
{
    const struct head_fragment *fragment = head_array_meet(array, box);

    while (fragment != NULL && fragment->tile->record != NULL) {
        fragment = fragment->met;
    }
    return fragment != NULL;
}

/*
 * Where it is out of danger: on another host than the first copy, else on another device; where the
 * most room is.
 */
static struct head_device *second_home(struct head_core *core,
                                       const struct head_buffer *first)
{
    struct head_device *best = NULL;
    uint64_t best_room       = 0;
    bool best_away           = false;

    for (uint32_t i = 0; i < core->devices.count; i++) {
        struct head_device *device = head_device_at(core, i);
        uint64_t room              = head_spill_free(core, device);
        bool away                  = head_device_apart(device, first->device);

        if (device == first->device || device->gone || !device->joined ||
            device->draining || room < head_spill_rounded(first->bytes) ||
            !head_move_possible(first->device, device) ||
            head_reach_apart(core, first->device, device)) {
            continue;
        }
        if (best == NULL || away > best_away || (away == best_away && room > best_room)) {
            best      = device;
            best_room = room;
            best_away = away;
        }
    }
    return best;
}

/* A copy of it elsewhere is under way. */
static bool put_apart(struct head_core *core, struct head_array *version,
                      const struct head_buffer *original)
{
    struct head_device *home     = second_home(core, original);
    struct head_failure *failure = NULL;
    struct head_buffer *copy     = NULL;

    if (home != NULL) {
        copy = head_move_read(core, version, &version->extent, home, false, &failure);
    }
    if (copy == NULL) {
        head_failure_release(failure);
        return false;
    }
    head_buffer_replica_set(copy, false);
    head_buffer_release(core, copy);
    version->apart = true;
    return true;
}

bool head_shadow_keep(struct head_core *core, struct head_array *array,
                      const struct pl_box *box, const struct head_buffer *original,
                      bool in_place_only)
{
    uint64_t bytes = (uint64_t)pl_box_elements(box) * pl_dtype_bytes(array->shape.dtype);
    struct head_shadow *shadow;
    struct head_array *version;
    bool apart;

    if (core->config.shadow_bytes == 0 || core->config.lineage_bytes == 0) {
        return true;
    }
    shadow = shadow_of(core, array, box);
    keep_whole(core, shadow);
    shadow->bytes += bytes;
    if (shadow->older != NULL && arrived(shadow->kept)) {
        release(core, &shadow->older);
    }
    if (shadow->bytes < core->config.shadow_bytes &&
        (shadow->kept != NULL || !cut_off(array, box))) {
        return true;
    }
    version = head_array_snapshot(core, NULL, array, box);
    apart   = put_apart(core, version, original);
    if (!apart && in_place_only) {
        head_array_release(core, version);
        return true;
    }
    release(core, &shadow->older);
    shadow->older = shadow->kept;
    shadow->kept  = version;
    shadow->bytes = 0;
    core->lineage.shadows++;
    if (!apart) {
        release(core, &shadow->older);
    }
    pl_list_remove(&shadow->link);
    pl_list_add_tail(&core->shadows, &shadow->link);
    pl_list_remove(&shadow->array_link);
    pl_list_add_tail(&array->shadows, &shadow->array_link);
    return apart;
}

void head_shadow_begin(struct head_core *core, struct head_array *array,
                       const struct pl_box *box)
{
    struct pl_list *pos, *tmp;

    pl_list_for_each_safe(pos, tmp, &array->shadows) {
        struct head_shadow *shadow = pl_container_of(pos, struct head_shadow, array_link);

        if (pl_box_intersects(&shadow->box, box)) {
            shadow_free(core, shadow);
        }
    }
}

void head_shadow_array_gone(struct head_core *core, struct head_array *array)
{
    while (!pl_list_empty(&array->shadows)) {
        shadow_free(core, pl_list_first(&array->shadows, struct head_shadow, array_link));
    }
}

/* What its going makes free there, at the most. */
static uint64_t bytes_on(const struct head_array *kept, const struct head_device *device)
{
    uint64_t bytes = 0;
    struct pl_list *pos, *it;

    if (kept == NULL) {
        return 0;
    }
    pl_list_for_each(pos, &kept->fragments) {
        const struct head_fragment *fragment =
            pl_container_of(pos, struct head_fragment, array_link);

        pl_list_for_each(it, &fragment->tile->instances) {
            const struct head_buffer *buffer =
                pl_container_of(it, struct head_instance, tile_link)->buffer;

            bytes += buffer->device == device ? head_spill_rounded(buffer->bytes) : 0;
        }
    }
    return bytes;
}

uint64_t head_shadow_bytes(const struct head_core *core, const struct head_device *device)
{
    const struct pl_list *pos;
    uint64_t bytes = 0;

    pl_list_for_each(pos, &core->shadows) {
        const struct head_shadow *shadow = pl_container_of(pos, struct head_shadow, link);

        bytes += bytes_on(shadow->kept, device) + bytes_on(shadow->older, device);
    }
    return bytes;
}

void head_shadow_give_way(struct head_core *core, const struct head_device *device,
                          uint64_t bytes)
{
    struct pl_list *pos, *tmp;
    uint64_t freed = 0;

    pl_list_for_each_safe(pos, tmp, &core->shadows) {
        struct head_shadow *shadow = pl_container_of(pos, struct head_shadow, link);
        uint64_t here = bytes_on(shadow->kept, device) + bytes_on(shadow->older, device);

        if (freed >= bytes) {
            return;
        }
        if (here > 0) {
            freed += here;
            release(core, &shadow->older);
            release(core, &shadow->kept);
        }
    }
}

void head_shadow_lost(struct head_core *core)
{
    struct pl_list *pos;

    pl_list_for_each(pos, &core->shadows) {
        keep_whole(core, pl_container_of(pos, struct head_shadow, link));
    }
}

/* One that lacks some of the box. */
static struct head_fragment *lacking(const struct head_tile *tile, const struct pl_box *box)
{
    struct pl_list *pos;

    pl_list_for_each(pos, &tile->fragments) {
        struct head_fragment *fragment =
            pl_container_of(pos, struct head_fragment, tile_link);
        struct pl_box part;

        if ((fragment->array->apart || fragment->array->root != NULL) &&
            pl_box_intersection(&fragment->box, box, &part) &&
            !head_tile_covered(tile, NULL, &part)) {
            return fragment;
        }
    }
    return NULL;
}

void head_shadow_fail(struct head_core *core, struct head_tile *tile,
                      const struct pl_box *box, struct head_failure *failure)
{
    struct head_fragment *fragment;

    while ((fragment = lacking(tile, box)) != NULL) {
        struct pl_box gone      = fragment->box;
        struct head_tile *never = head_tile_create(core, &gone);

        never->failure = head_failure_hold(failure);
        head_tile_label_set(core, never, head_tile_label(core, tile));
        head_array_set(core, fragment->array, &gone, never);
        head_tile_release(core, never);
    }
}
