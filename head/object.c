/*
 * What exists, and where.
 *
 *   array --fragments--> tile --instances--> buffer --> device
 *
 * An array is a version: disjoint fragments that cover its extent. A fragment shows a box of a
 * tile; a tile is content that one task makes and nobody changes. An instance says: this box of
 * that tile lies in this buffer. So writing never changes a tile; it makes a new one and points
 * fragments of one array to it, and a snapshot is a copy of the fragment list.
 *
 * INVARIANTS (head_core_check)
 *
 *   (1) The fragments of an array are disjoint and cover its extent; each lies in its tile's box.
 *   (2) An instance's box lies in its tile's box and in its buffer's frame.
 *   (3) Instances of different tiles in one buffer have disjoint boxes: a byte has one meaning.
 *   (4) A buffer's refs are its instances and the uses of unfinished tasks; a tile's are its
 *       fragments and, while its task is unfinished, one more. Whoever drops the last one frees it,
 *       through buffer_release and tile_release alone.
 *
 * A tile whose last fragment went has no meaning any more; its instances go with it, and with them
 * the buffers, unless a task still uses them.
 */
#include "head/core_int.h"

#include "base/fault.h"
#include "base/pool.h"
#include "base/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A task that is done takes some of these along, and the next one makes as many. */
#define SPARE_MAX 16384u
static _Thread_local struct pl_pool instance_pool =
    PL_POOL_INIT(struct head_instance, SPARE_MAX);
static _Thread_local struct pl_pool tile_pool = PL_POOL_INIT(struct head_tile, SPARE_MAX);
static _Thread_local struct pl_pool fragment_pool =
    PL_POOL_INIT(struct head_fragment, SPARE_MAX);

/* ----------------------------------------------------------------------------- failures */

struct head_failure *head_failure_create(plasmon_status_t status, uint64_t first_task,
                                         uint64_t first_client, const char *format, ...)
{
    struct head_failure *failure = head_alloc(sizeof(*failure));
    char text[1024];
    va_list args;

    va_start(args, format);
    (void)vsnprintf(text, sizeof(text), format, args); /* a cut text is still a text .. */
    va_end(args);
    pl_text_mend(text); /* .. for others, too */

    failure->refs         = 1;
    failure->status       = status;
    failure->first_task   = first_task;
    failure->first_client = first_client;
    failure->text         = head_strdup(text);
    return failure;
}

const char *head_failure_cause(const struct head_failure *failure)
{
    static const char marker[] = "the first failure: ";
    const char *at             = strstr(failure->text, marker);

    return at != NULL ? at + sizeof(marker) - 1 : failure->text;
}

struct head_failure *head_failure_hold(struct head_failure *failure)
{
    failure->refs++;
    return failure;
}

void head_failure_release(struct head_failure *failure)
{
    if (failure == NULL || --failure->refs > 0) {
        return;
    }
    pl_free(failure->text);
    pl_free(failure);
}

/* ------------------------------------------------------------------------------ buffers */

struct head_buffer *head_buffer_restore(struct head_core *core, struct head_device *device,
                                        uint64_t id, const struct pl_box *frame,
                                        uint32_t dtype)
{
    struct head_buffer *buffer = head_alloc(sizeof(*buffer));

    buffer->id        = id;
    buffer->device    = device;
    buffer->frame     = *frame;
    buffer->dtype     = dtype;
    buffer->bytes     = (uint64_t)pl_box_elements(frame) * pl_dtype_bytes(dtype);
    buffer->refs      = 1;
    buffer->donatable = true;
    pl_list_init(&buffer->instances);
    pl_list_init(&buffer->readers);
    pl_list_init(&buffer->writers);
    pl_list_init(&buffer->device_link);
    pl_list_init(&buffer->ending_link);
    pl_list_init(&buffer->recent_link);
    pl_list_init(&buffer->loose_link);
    pl_list_init(&buffer->row_link);
    pl_list_add_tail(&device->buffers, &buffer->device_link);
    pl_list_add_tail(&device->recent, &buffer->recent_link);
    device->bytes_planned += buffer->bytes;
    device->bytes_live += head_spill_rounded(buffer->bytes);
    core->counts.buffers++;
    core->object_bytes += buffer->bytes;
    return buffer;
}

struct head_buffer *head_buffer_create(struct head_core *core, struct head_device *device,
                                       const struct pl_box *frame, uint32_t dtype)
{
    uint64_t id = device->spill != NULL ? 0 : head_device_slot_take(core, device);

    return id == 0 && device->spill == NULL
               ? NULL
               : head_buffer_restore(core, device, id, frame, dtype);
}

/* What the worker does not know of it, counted or (sign -1) not any more. */
static void replica_count(const struct head_buffer *buffer, int64_t sign)
{
    if (buffer->told && buffer->told_replica != buffer->replica) {
        buffer->device->replica_off +=
            (buffer->replica ? sign : -sign) * (int64_t)buffer->bytes;
    }
}

void head_buffer_replica_set(struct head_buffer *buffer, bool replica)
{
    replica_count(buffer, -1);
    if (buffer->replica != replica) {
        buffer->replica = replica;
        head_buffer_seconds_loosen(buffer);
    }
    replica_count(buffer, 1);
    if (replica) {
        head_buffer_loosen(buffer);
    }
}

void head_buffer_tell(struct head_buffer *buffer)
{
    replica_count(buffer, -1);
    buffer->told         = true;
    buffer->told_replica = buffer->replica;
}

void head_buffer_hold(struct head_buffer *buffer)
{
    buffer->refs++;
}

void head_buffer_release(struct head_core *core, struct head_buffer *buffer)
{
    struct head_device *device = buffer->device;
    uint64_t *freed;

    PL_CHECK(buffer->refs > 0);
    if (--buffer->refs > 0) {
        if (pl_bug("head.free_early") && pl_list_empty(&buffer->instances) &&
            buffer->spilled == NULL) {
            freed = pl_vec_push(&device->out_free);
            PL_CHECK(freed != NULL);
            *freed = buffer->id;
        }
        if (pl_list_empty(&buffer->instances)) {
            head_buffer_ending(buffer);
        }
        return;
    }

    PL_CHECK(pl_list_empty(&buffer->instances));
    PL_CHECK(pl_list_empty(&buffer->readers) && pl_list_empty(&buffer->writers));
    replica_count(buffer, -1);
    if (buffer->spilled != NULL) {
        head_spill_freed(core, buffer);
    } else if (!device->gone) {
        freed = pl_vec_push(&device->out_free);
        PL_CHECK(freed != NULL);
        *freed = buffer->id;
        head_device_slot_rest(device, buffer->id);
    }
    device->bytes_planned -= buffer->bytes;
    if (!buffer->leaving) {
        device->bytes_live -= head_spill_rounded(buffer->bytes);
    }
    pl_list_remove(&buffer->recent_link);
    pl_list_remove(&buffer->loose_link);
    pl_list_remove(&buffer->row_link);
    core->object_bytes -= buffer->bytes;
    core->counts.buffers--;
    pl_list_remove(&buffer->device_link);
    pl_list_remove(&buffer->ending_link);
    head_written_forget(buffer);
    pl_free(buffer);
}

/* ---------------------------------------------------------------------------- instances */

void head_instance_add(struct head_core *core, struct head_tile *tile,
                       struct head_buffer *buffer, const struct pl_box *box)
{
    struct head_instance *instance = head_pool_get(&instance_pool);

    PL_CHECK(pl_box_contains(&tile->box, box));
    PL_CHECK(pl_box_contains(&buffer->frame, box));
    instance->tile   = tile;
    instance->buffer = buffer;
    instance->box    = *box;
    pl_list_init(&instance->tile_link);
    pl_list_init(&instance->buffer_link);
    pl_list_add_tail(&tile->instances, &instance->tile_link);
    pl_list_add_tail(&buffer->instances, &instance->buffer_link);
    head_places_instance_add(instance);
    head_buffer_hold(buffer);
    tile->spilled += head_device_is_home(buffer->device);
    if (tile->spilled > 0 || tile->second != NULL) {
        head_tile_loosen(tile);
    }
    core->counts.instances++;
}

void head_instance_remove(struct head_core *core, struct head_instance *instance)
{
    struct head_buffer *buffer = instance->buffer;

    pl_list_remove(&instance->tile_link);
    pl_list_remove(&instance->buffer_link);
    head_places_instance_remove(instance);
    instance->tile->spilled -= head_device_is_home(buffer->device);
    if (instance->tile->second != NULL) {
        head_second_look(core, instance->tile);
        head_tile_loosen(instance->tile);
    }
    if (!pl_list_empty(&buffer->instances)) {
        head_buffer_loosen(buffer); /* what is left in it may be elsewhere, too */
    }
    pl_pool_put(&instance_pool, instance);
    core->counts.instances--;
    head_buffer_release(core, buffer);
}

/* Instances that meet the box are no more what is there; what is left of each is. */
static void forget(struct head_core *core, struct head_buffer *buffer,
                   const struct pl_box *box, uint64_t before,
                   struct head_instance *const *found, size_t found_count)
{
    if (pl_bug("head.stale_replica")) {
        return;
    }
    head_buffer_hold(buffer);
    for (size_t at = 0; at < found_count; at++) {
        struct head_instance *instance = found[at];
        struct pl_box rest[2 * PL_DIM_MAX];
        unsigned count;

        if (instance->tile->order >= before) {
            continue;
        }
        count = pl_box_subtract(&instance->box, box, rest);
        for (unsigned i = 0; i < count; i++) {
            head_instance_add(core, instance->tile, buffer, &rest[i]);
        }
        head_instance_remove(core, instance);
    }
    head_buffer_release(core, buffer);
}

void head_buffer_forget(struct head_core *core, struct head_buffer *buffer,
                        const struct pl_box *box, uint64_t before)
{
    size_t count;
    struct head_instance *const *found = head_places_instances(buffer, box, &count);

    forget(core, buffer, box, before, found, count);
}

void head_tile_rely_on_others(const struct head_tile *tile,
                              const struct head_buffer *buffer)
{
    struct pl_list *pos;

    pl_list_for_each(pos, &tile->instances) {
        struct head_buffer *other =
            pl_container_of(pos, struct head_instance, tile_link)->buffer;

        if (other != buffer) {
            head_buffer_replica_set(other, false);
        }
    }
}

/* A shadow, or what a call reads, relies on them now (head_tile_held_elsewhere). */
static void keep_others(const struct head_tile *tile, const struct head_buffer *buffer)
{
    struct pl_list *pos;

    pl_list_for_each(pos, &tile->fragments) {
        const struct head_array *array =
            pl_container_of(pos, struct head_fragment, tile_link)->array;

        if (array->root != NULL || array->apart) {
            head_tile_rely_on_others(tile, buffer);
            return;
        }
    }
}

void head_buffer_overwrite(struct head_core *core, struct head_buffer *buffer,
                           const struct pl_box *box)
{
    struct head_instance *const *found;
    size_t count;

    found = head_places_instances(buffer, box, &count);
    for (size_t i = 0; i < count; i++) {
        keep_others(found[i]->tile, buffer);
    }
    forget(core, buffer, box, UINT64_MAX, found, count);
    head_buffer_replica_set(buffer, false);
}

bool head_tile_covered_by(const struct head_tile *tile,
                          bool (*counts)(const struct head_buffer *buffer,
                                         const void *user),
                          const void *user, const struct pl_box *box)
{
    struct pl_list *pos;

    pl_list_for_each(pos, &tile->instances) {
        const struct head_instance *instance =
            pl_container_of(pos, struct head_instance, tile_link);
        struct pl_box rest[2 * PL_DIM_MAX];
        unsigned count;

        if (!counts(instance->buffer, user) || !pl_box_intersects(&instance->box, box)) {
            continue;
        }
        if (pl_box_contains(&instance->box, box)) {
            return true;
        }
        /* Any instance will do: what it leaves over must be covered whichever is taken first. */
        count = pl_box_subtract(box, &instance->box, rest);
        for (unsigned i = 0; i < count; i++) {
            if (!head_tile_covered_by(tile, counts, user, &rest[i])) {
                return false;
            }
        }
        return true;
    }
    return false;
}

static bool is_wanted(const struct head_buffer *buffer, const void *user)
{
    return user == NULL || buffer == user;
}

bool head_tile_covered(const struct head_tile *tile, const struct head_buffer *buffer,
                       const struct pl_box *box)
{
    return head_tile_covered_by(tile, is_wanted, buffer, box);
}

bool head_tile_shown(const struct head_tile *tile)
{
    return tile->refs > tile->makers;
}

bool head_tile_missing(const struct head_tile *tile)
{
    uint32_t fragments = 0;
    struct pl_list *pos;

    pl_list_for_each(pos, &tile->fragments) {
        const struct head_fragment *fragment =
            pl_container_of(pos, struct head_fragment, tile_link);

        fragments++;
        if (!head_tile_covered(tile, NULL, &fragment->box)) {
            return true;
        }
    }
    return tile->refs > tile->makers + fragments /* a partial result */
           && !head_tile_covered(tile, NULL, &tile->box);
}

/* -------------------------------------------------------------------------------- tiles */

void head_tile_fail(struct head_core *core, struct head_tile *tile,
                    struct head_failure *failure)
{
    if (tile->failure == NULL) {
        tile->failure = head_failure_hold(failure);
        head_tile_loosen(tile);
        head_found_settle(core, tile);
    }
}

struct head_tile *head_tile_create(struct head_core *core, const struct pl_box *box)
{
    struct head_tile *tile = head_pool_get(&tile_pool);

    tile->refs = 1;
    tile->box  = *box;
    pl_list_init(&tile->instances);
    pl_list_init(&tile->fragments);
    pl_list_init(&tile->space_link);
    core->counts.tiles++;
    return tile;
}

void head_tile_free(struct head_core *core, struct head_tile *tile)
{
    if (tile->label != 0) {
        head_tile_label_drop(core, tile);
    }
    pl_pool_put(&tile_pool, tile);
}

bool head_tile_unreachable(const struct head_tile *tile)
{
    return tile->refs == tile->makers;
}

/* Whoever makes it is at it, and nobody will look: so will nobody at the buffers that it is made in. */
static void tile_ending(const struct head_tile *tile)
{
    struct pl_list *pos;

    if (!head_tile_unreachable(tile)) {
        return;
    }
    pl_list_for_each(pos, &tile->instances) {
        head_buffer_ending(pl_container_of(pos, struct head_instance, tile_link)->buffer);
    }
}

void head_tile_release(struct head_core *core, struct head_tile *tile)
{
    PL_CHECK(tile->refs > 0);
    if (--tile->refs > 0) {
        tile_ending(tile);
        return;
    }

    PL_CHECK(pl_list_empty(&tile->fragments));
    if (tile->second != NULL) {
        head_second_end(core, tile);
    }
    head_tile_empty(core, tile);
    core->counts.tiles--;
    (void)head_lineage_tile_left(core, tile); /* as a descriptor, or it is gone */
}

void head_tile_empty(struct head_core *core, struct head_tile *tile)
{
    while (!pl_list_empty(&tile->instances)) {
        head_instance_remove(
            core, pl_list_first(&tile->instances, struct head_instance, tile_link));
    }
}

void head_tile_hold(struct head_core *core, struct head_tile *tile)
{
    if (tile->refs++ == 0) {
        head_lineage_tile_back(core, tile);
        core->counts.tiles++;
    }
}

struct beyond {
    const struct head_buffer *buffer;
    const struct head_device *device; /* NULL: on any */
};

/* What may fail with the value of something else is no copy to rely on. */
static bool is_beyond(const struct head_buffer *buffer, const void *user)
{
    const struct beyond *beyond = user;

    return buffer != beyond->buffer && buffer->device != beyond->device &&
           !head_move_joint(buffer);
}

/* Does it mind that this part of the tile is written over there? */
static bool minds(const struct head_array *array, const struct head_tile *tile,
                  const struct pl_box *box, const struct head_buffer *buffer)
{
    struct beyond beyond = {.buffer = buffer, .device = array->root};

    if (buffer == NULL) {
        return array->space != NULL;
    }
    if (array->root == NULL && !array->apart) {
        return true;
    }
    if (array->root != NULL && pl_bug("head.roots_donated")) {
        return false;
    }
    return buffer->device != array->root &&
           !head_tile_covered_by(tile, is_beyond, &beyond, box);
}

bool head_tile_held_elsewhere(const struct head_tile *tile, const struct head_array *array,
                              const struct pl_box *box, const struct head_buffer *buffer)
{
    struct pl_list *pos;

    if (pl_bug("head.skip_hold")) {
        return false;
    }
    pl_list_for_each(pos, &tile->fragments) {
        const struct head_fragment *fragment =
            pl_container_of(pos, struct head_fragment, tile_link);
        const struct head_array *other = fragment->array;

        if (other == array || !pl_box_intersects(&fragment->box, box)) {
            continue;
        }
        if (minds(other, tile, box, buffer)) {
            return true;
        }
    }
    return false;
}

/* ------------------------------------------------------------------------------- arrays */

static uint64_t bytes_of(const struct head_array *array, const struct pl_box *box)
{
    return (uint64_t)pl_box_elements(box) * pl_dtype_bytes(array->shape.dtype);
}

/*
 * Of as many fragments the list is looked through; more are found by where they are. (Arrays in 16
 * or 32 parts are usual; an index launch may make 65536.)
 */
#define FRAGMENTS_FEW 40u

static void span_add(struct head_array *array, struct head_fragment *fragment)
{
    struct pl_span_at at = pl_span_of_box(&array->shape, &fragment->box);

    PL_CHECK(pl_spans_add(array->spans, &fragment->span, &at));
}

static void spans_make(struct head_array *array)
{
    struct pl_list *pos;

    array->spans = head_alloc(sizeof(*array->spans));
    pl_spans_init(array->spans);
    pl_list_for_each(pos, &array->fragments) {
        span_add(array, pl_container_of(pos, struct head_fragment, array_link));
    }
}

static void spans_drop(struct head_array *array)
{
    struct pl_list *pos;

    if (array->spans == NULL) {
        return;
    }
    pl_list_for_each(pos, &array->fragments) {
        pl_spans_remove(array->spans,
                        &pl_container_of(pos, struct head_fragment, array_link)->span);
    }
    pl_spans_finish(array->spans);
    pl_free(array->spans);
    array->spans = NULL;
}

/* Fragments that were found, on their way into order. */
struct meeting {
    const struct pl_box *box;
    struct pl_vec *found; /* struct head_fragment * */
};

static bool meeting_take(void *user, struct pl_span *span)
{
    const struct meeting *meeting  = user;
    struct head_fragment *fragment = pl_container_of(span, struct head_fragment, span);
    struct head_fragment **place;

    if (pl_box_intersects(&fragment->box, meeting->box)) {
        place = pl_vec_push(meeting->found);
        PL_CHECK(place != NULL);
        *place = fragment;
    }
    return false;
}

static int compare_numbers(const void *a, const void *b)
{
    uint64_t x = (*(struct head_fragment *const *)a)->number;
    uint64_t y = (*(struct head_fragment *const *)b)->number;

    return (x > y) - (x < y);
}

static struct head_fragment *meet_in_spans(const struct head_array *array,
                                           const struct pl_box *box)
{
    static _Thread_local struct pl_vec found = {.item_bytes =
                                                    sizeof(struct head_fragment *)};
    struct meeting meeting                   = {.box = box, .found = &found};
    struct pl_span_at at                     = pl_span_of_box(&array->shape, box);
    struct head_fragment **items;

    pl_vec_clear(&found);
    (void)pl_spans_meet(array->spans, &at, meeting_take, &meeting);
    if (found.count == 0) {
        return NULL;
    }
    items = found.items;
    qsort(items, found.count, sizeof(struct head_fragment *), compare_numbers);
    for (size_t i = 0; i < found.count; i++) {
        items[i]->met = i + 1 < found.count ? items[i + 1] : NULL;
    }
    return items[0];
}

struct head_fragment *head_array_meet(const struct head_array *array,
                                      const struct pl_box *box)
{
    struct head_fragment *first = NULL, **end = &first;
    struct pl_list *pos;

    if (array->spans != NULL) {
        return meet_in_spans(array, box);
    }
    pl_list_for_each(pos, &array->fragments) {
        struct head_fragment *fragment =
            pl_container_of(pos, struct head_fragment, array_link);

        if (pl_box_intersects(&fragment->box, box)) {
            *end = fragment;
            end  = &fragment->met;
        }
    }
    *end = NULL;
    return first;
}

static void fragment_add(struct head_core *core, struct head_array *array,
                         const struct pl_box *box, struct head_tile *tile)
{
    struct head_fragment *fragment = head_pool_get(&fragment_pool);

    PL_CHECK(pl_box_contains(&tile->box, box));
    fragment->array  = array;
    fragment->tile   = tile;
    fragment->box    = *box;
    fragment->number = ++array->fragment_last;
    pl_list_init(&fragment->array_link);
    pl_list_init(&fragment->tile_link);
    pl_list_init(&fragment->span.link);
    pl_list_add_tail(&array->fragments, &fragment->array_link);
    pl_list_add_tail(&tile->fragments, &fragment->tile_link);
    head_tile_hold(core, tile);
    head_space_show(array, tile, bytes_of(array, box));
    array->fragment_count++;
    core->counts.fragments++;
    if (array->spans != NULL) {
        span_add(array, fragment);
    } else if (array->fragment_count > FRAGMENTS_FEW) {
        spans_make(array);
    }
}

static void fragment_remove(struct head_core *core, struct head_fragment *fragment)
{
    struct head_tile *tile   = fragment->tile;
    struct head_array *array = fragment->array;

    if (array->spans != NULL) {
        pl_spans_remove(array->spans, &fragment->span);
    }
    pl_list_remove(&fragment->array_link);
    pl_list_remove(&fragment->tile_link);
    array->fragment_count--;
    if (array->fragment_count < FRAGMENTS_FEW / 2) {
        spans_drop(array);
    }
    head_space_hide(array, tile, bytes_of(array, &fragment->box));
    pl_pool_put(&fragment_pool, fragment);
    core->counts.fragments--;
    head_tile_release(core, tile);
}

struct head_array *head_array_create(struct head_core *core, struct head_space *space,
                                     const struct pl_shape *shape)
{
    struct head_array *array = head_alloc(sizeof(*array));

    array->refs       = 1;
    array->space      = space != NULL ? head_space_hold(space) : NULL;
    array->shape      = *shape;
    array->extent     = pl_box_of_shape(shape);
    array->partials   = PL_VEC_INIT(struct head_partial);
    array->since_ms   = core->now_ms;
    array->put_offset = UINT64_MAX;
    pl_list_init(&array->fragments);
    pl_list_init(&array->nexts);
    pl_list_init(&array->mapped_link);
    pl_list_init(&array->shadows);
    core->counts.arrays++;
    return array;
}

static void count_maps(struct head_core *core, uint32_t by)
{
    for (uint32_t i = 0; i < core->devices.count; i++) {
        head_device_at(core, i)->maps += by;
    }
    core->maps += by;
}

void head_array_map(struct head_core *core, struct head_array *array)
{
    array->mapped = true;
    pl_list_add_tail(&core->mapped, &array->mapped_link);
    count_maps(core, 1);
}

/*
 * A client pins whole buffers (store/table.h), and a writer in place waits for that pin, whatever
 * boxes the two are about: it would wait for as long as the client looks, and everything behind it
 * too. So a mapped buffer is not written in place at all.
 */
bool head_buffer_mapped(const struct head_buffer *buffer)
{
    struct pl_list *pos, *it;

    if (buffer->device->maps == 0) {
        return false;
    }
    pl_list_for_each(pos, &buffer->instances) {
        const struct head_instance *instance =
            pl_container_of(pos, struct head_instance, buffer_link);

        pl_list_for_each(it, &instance->tile->fragments) {
            const struct head_fragment *fragment =
                pl_container_of(it, struct head_fragment, tile_link);

            if (fragment->array->mapped) {
                return true;
            }
        }
    }
    return false;
}

void head_array_release(struct head_core *core, struct head_array *array)
{
    PL_CHECK(array->refs > 0);
    if (--array->refs > 0) {
        return;
    }
    if (array->mapped) {
        pl_list_remove(&array->mapped_link);
        count_maps(core, UINT32_MAX); /* minus one */
    }
    head_shadow_array_gone(core, array);

    for (size_t i = 0; i < array->partials.count; i++) {
        const struct head_partial *partial = pl_vec_at(&array->partials, i);

        head_space_hide(array, partial->tile, bytes_of(array, &partial->box));
        head_tile_release(core, partial->tile);
    }
    pl_vec_finish(&array->partials);
    while (!pl_list_empty(&array->nexts)) { /* they still name it, and will find nothing */
        pl_list_remove(array->nexts.next);
    }
    while (!pl_list_empty(&array->fragments)) {
        fragment_remove(core,
                        pl_list_first(&array->fragments, struct head_fragment, array_link));
    }
    spans_drop(array);
    if (array->space != NULL) {
        head_space_release(array->space);
    }
    pl_free(array->dealt);
    pl_free(array);
    core->counts.arrays--;
}

/*
 * All that the box meets is one fragment of that box, the last one: it shows another tile from now
 * on, and nothing else changes.
 */
static bool shows_another(struct head_core *core, struct head_array *array,
                          const struct pl_box *box, struct head_tile *tile)
{
    struct head_fragment *fragment;
    struct head_tile *before;

    if (array->fragment_count != 1 || pl_bug("head.wrong_fragment")) {
        return false;
    }
    fragment = pl_list_first(&array->fragments, struct head_fragment, array_link);
    if (!pl_box_equal(&fragment->box, box)) {
        return false;
    }
    PL_CHECK(pl_box_contains(&tile->box, box));
    before = fragment->tile;
    pl_list_remove(&fragment->tile_link);
    head_space_hide(array, before, bytes_of(array, box));
    fragment->tile = tile;
    pl_list_add_tail(&tile->fragments, &fragment->tile_link);
    head_tile_hold(core, tile);
    head_space_show(array, tile, bytes_of(array, box));
    head_tile_release(core, before);
    return true;
}

void head_array_set(struct head_core *core, struct head_array *array,
                    const struct pl_box *box, struct head_tile *tile)
{
    struct head_fragment *meeting;
    struct pl_list *pos, *tmp;
    struct pl_list old;

    if (shows_another(core, array, box, tile)) {
        return;
    }
    /* The new fragments go to the tail of the list; the ones that `box` meets are taken off first. */
    pl_list_init(&old);
    for (meeting = head_array_meet(array, box); meeting != NULL; meeting = meeting->met) {
        if (array->spans != NULL) {
            pl_spans_remove(array->spans, &meeting->span);
        }
        pl_list_remove(&meeting->array_link);
        pl_list_add_tail(&old, &meeting->array_link);
    }

    pl_list_for_each_safe(pos, tmp, &old) {
        struct head_fragment *fragment =
            pl_container_of(pos, struct head_fragment, array_link);
        struct pl_box rest[2 * PL_DIM_MAX];
        unsigned count = pl_box_subtract(&fragment->box, box, rest);

        for (unsigned i = pl_bug("head.wrong_fragment") ? 1 : 0; i < count; i++) {
            fragment_add(core, array, &rest[i], fragment->tile);
        }
        fragment_remove(core, fragment);
    }
    fragment_add(core, array, box, tile);
}

struct head_array *head_array_snapshot(struct head_core *core, struct head_space *space,
                                       const struct head_array *array,
                                       const struct pl_box *box)
{
    struct head_array *copy = head_array_create(core, space, &array->shape);
    const struct head_fragment *fragment;

    copy->extent = *box;
    for (fragment = head_array_meet(array, box); fragment != NULL;
         fragment = fragment->met) {
        struct pl_box part;

        if (pl_box_intersection(&fragment->box, box, &part)) {
            fragment_add(core, copy, &part, fragment->tile);
        }
    }
    return copy;
}

bool head_array_whole(const struct head_array *array)
{
    struct pl_list *pos;

    pl_list_for_each(pos, &array->fragments) {
        const struct head_fragment *fragment =
            pl_container_of(pos, struct head_fragment, array_link);

        if (fragment->tile->failure != NULL ||
            !head_tile_covered(fragment->tile, NULL, &fragment->box)) {
            return false;
        }
    }
    return true;
}

/*
 * Of few fragments, the first that meets the box; failed: of those that have failed, which are
 * asked for that first, for hardly one has.
 */
static struct head_fragment *first_of_few(const struct head_array *array,
                                          const struct pl_box *box, bool failed)
{
    struct pl_list *pos;

    pl_list_for_each(pos, &array->fragments) {
        struct head_fragment *fragment =
            pl_container_of(pos, struct head_fragment, array_link);

        if ((!failed || fragment->tile->failure != NULL) &&
            pl_box_intersects(&fragment->box, box)) {
            return fragment;
        }
    }
    return NULL;
}

struct head_fragment *head_array_meet_first(const struct head_array *array,
                                            const struct pl_box *box)
{
    return array->spans != NULL ? meet_in_spans(array, box)
                                : first_of_few(array, box, false);
}

struct head_failure *head_array_failure(struct head_array *array, const struct pl_box *box)
{
    const struct head_fragment *fragment =
        array->spans != NULL ? meet_in_spans(array, box) : first_of_few(array, box, true);

    while (fragment != NULL && fragment->tile->failure == NULL) {
        fragment = fragment->met;
    }
    return fragment != NULL ? fragment->tile->failure : NULL;
}
