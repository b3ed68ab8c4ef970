/* Where a second copy goes (second.c has the order), and the launches that make one. */
#include "head/second_int.h"
#include "head/spill_int.h"

uint64_t head_second_bytes(const struct head_array *array, const struct pl_box *box)
{
    return head_spill_rounded((uint64_t)pl_box_elements(box) *
                              pl_dtype_bytes(array->shape.dtype));
}

static bool reachable(const struct head_core *core, const struct head_second_part *part,
                      const struct head_device *to)
{
    const struct pl_list *pos;

    pl_list_for_each(pos, &part->tile->instances) {
        const struct head_instance *instance =
            pl_container_of(pos, const struct head_instance, tile_link);

        if (pl_box_intersects(&instance->box, &part->box) &&
            (!head_move_possible(instance->buffer->device, to) ||
             head_reach_apart(core, instance->buffer->device, to))) {
            return false;
        }
    }
    return true;
}

/*
 * Is all of it elsewhere, as a copy here helps only then? Elsewhere: on other hosts (apart), on
 * other devices.
 */
static bool helps(const struct head_second_part *part, const struct head_device *device,
                  bool apart)
{
    const struct head_counted others = {.device = device,
                                        .host   = apart ? device->host : NULL};

    return !device->gone && !device->draining &&
           head_second_covered(part->tile, &part->box, &others);
}

static bool may_get_it(const struct head_core *core, const struct head_second_part *part,
                       const struct head_device *device, bool apart)
{
    return device->joined && device->expected_ms == 0 && helps(part, device, apart) &&
           reachable(core, part, device);
}

/* One that has it; then the one with the most room. */
static struct head_device *device_with_room(struct head_core *core,
                                            const struct head_second_part *part, bool apart)
{
    struct head_device *best = NULL;
    uint64_t best_room       = 0;

    for (uint32_t i = 0; i < core->devices.count; i++) {
        struct head_device *device = head_device_at(core, i);
        uint64_t room;

        if (!may_get_it(core, part, device, apart)) {
            continue;
        }
        if (head_move_common(part->array, &part->box, device, false) != NULL) {
            return device;
        }
        room = head_spill_free(core, device);
        if (room >= part->bytes && room > best_room) {
            best      = device;
            best_room = room;
        }
    }
    return best;
}

/*
 * One where there is room when something is dropped or spilled. That takes time, so at *io_looks
 * devices at most it is looked for in vain, beginning where the last search ended. NULL: none was
 * found.
 */
static struct head_device *device_made_room(struct head_core *core,
                                            const struct head_second_part *part, bool apart,
                                            uint32_t *io_looks)
{
    uint32_t count = (uint32_t)core->devices.count, first = core->seconds.full_next;

    for (uint32_t i = 0; i < count; i++) {
        uint32_t index             = (first + i) % count;
        struct head_device *device = head_device_at(core, index);

        if (*io_looks == 0) {
            break;
        }
        if (!may_get_it(core, part, device, apart)) {
            continue;
        }
        core->seconds.full_next = index; /* if there is room it has some for the next one */
        if (head_spill_obtainable(core, device, part->bytes) >= part->bytes) {
            return device;
        }
        core->seconds.full_next = (index + 1) % count;
        (*io_looks)--;
    }
    return NULL;
}

static struct head_device *device_for(struct head_core *core,
                                      const struct head_second_part *part, bool apart,
                                      uint32_t *io_looks)
{
    struct head_device *device = device_with_room(core, part, apart);

    return device != NULL ? device : device_made_room(core, part, apart, io_looks);
}

/* Room as it is is known at once; what would come free is counted copy by copy. */
static bool host_has_room(struct head_spill_host *spill, uint64_t bytes)
{
    return spill->slab != HEAD_SLAB_FAILED && bytes <= spill->config.memory_bytes &&
           (head_spill_room_free(spill, bytes) ||
            bytes <= head_spill_host_room(spill, bytes, bytes));
}

/* Of its buffers the one from which a copy in memory of its host can be made now. */
static struct head_buffer *buffer_for_host(struct head_core *core,
                                           const struct head_second_part *part)
{
    const struct pl_list *pos;

    pl_list_for_each(pos, &part->tile->instances) {
        const struct head_instance *instance =
            pl_container_of(pos, const struct head_instance, tile_link);
        struct head_buffer *buffer = instance->buffer;
        struct head_spill_host *spill;

        if (buffer->spilled != NULL ||
            !head_second_counts(buffer, &(struct head_counted){.but = NULL}) ||
            !pl_box_contains(&instance->box, &part->box) || !head_spill_copyable(buffer)) {
            continue;
        }
        spill = head_spill_host_of(core, buffer->device->host);
        if (spill != NULL && host_has_room(spill, head_spill_rounded(buffer->bytes))) {
            return buffer;
        }
    }
    return NULL;
}

/* A worker that was announced will be one. */
static bool device_to_come(struct head_core *core, const struct head_second_part *part)
{
    for (uint32_t i = 0; i < core->devices.count; i++) {
        const struct head_device *device = head_device_at(core, i);

        if (!device->joined && helps(part, device, false)) {
            return true;
        }
    }
    return false;
}

plasmon_status_t head_second_admit(struct head_core *core, struct head_array *array,
                                   struct pl_err *err)
{
    const struct head_fragment *fragment =
        pl_list_first(&array->fragments, struct head_fragment, array_link);
    const struct head_second_part part = {.array = array,
                                          .tile  = fragment->tile,
                                          .box   = fragment->box,
                                          .bytes =
                                              head_second_bytes(array, &fragment->box)};
    uint32_t looks                     = UINT32_MAX;
    char bytes[32];

    head_spill_plan_begin(core);
    head_spill_keep(core, array, &fragment->box);
    /* Any place will do: first where it is known at once. */
    if (device_with_room(core, &part, false) != NULL ||
        buffer_for_host(core, &part) != NULL || device_to_come(core, &part) ||
        device_made_room(core, &part, false, &looks) != NULL) {
        return PLASMON_OK;
    }
    return pl_err_set(
        err, PLASMON_EDEVMEM,
        "a second copy was asked for (replica), and there is no place for its %s: no other "
        "device has room, and no host memory for spilling; add a host, release refs, give "
        "plasmon-store more --spill-memory, or put it without replica",
        pl_format_bytes(part.bytes, bytes));
}

/* ------------------------------------------------------------------------------- a copy */

static bool copy_to_device(struct head_core *core, const struct head_second_part *part,
                           bool apart, uint32_t *io_looks)
{
    struct head_device *device   = device_for(core, part, apart, io_looks);
    struct head_failure *failure = NULL;
    struct head_buffer *copy     = NULL;

    if (device == NULL) {
        return false;
    }
    if (head_move_common(part->array, &part->box, device, false) != NULL ||
        head_spill_obtain(core, device, part->bytes)) {
        copy = head_move_read(core, part->array, &part->box, device, false, &failure);
    }
    if (copy == NULL) {
        head_failure_release(failure);
        return false;
    }
    head_buffer_replica_set(copy, false);
    head_buffer_release(core, copy);
    return true;
}

static bool copy_to_host(struct head_core *core, const struct head_second_part *part)
{
    struct head_buffer *buffer = buffer_for_host(core, part);
    struct pl_list *before;

    if (buffer == NULL) {
        return false;
    }
    before = buffer->recent_link.prev;
    if (!head_spill_out(core, buffer, HEAD_SPILL_SECOND, HEAD_SPILL_FOR_NEW)) {
        return false;
    }
    pl_list_remove(&buffer->recent_link); /* nobody has used it */
    pl_list_add_after(before, &buffer->recent_link);
    return true;
}

bool head_second_part_make(struct head_core *core, const struct head_second_part *part,
                           uint32_t *io_looks)
{
    enum head_safety safe = head_second_safety_of(part->tile, &part->box,
                                                  &(struct head_counted){.settled = false});

    if (safe == HEAD_SAFE_APART || safe == HEAD_SAFE_NOT) {
        return false;
    }
    head_spill_plan_begin(core);
    head_spill_keep(core, part->array, &part->box);
    return copy_to_device(core, part, true, io_looks) ||
           (safe == HEAD_SAFE_ONE &&
            (copy_to_host(core, part) || copy_to_device(core, part, false, io_looks)));
}
