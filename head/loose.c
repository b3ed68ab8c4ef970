/*
 * What may perhaps be dropped, so that nobody who wants room looks at all that lies somewhere.
 *
 * head_device.loose has every buffer of a device, and every copy in memory of a host, that may go
 * without a launch (head_spill_droppable, head_spill_copy_droppable), and some that may not.
 * Whoever looks there takes out what he finds may not. It comes back with what could change that:
 * an instance of its tile more or less, a replica that is none any more, a writer that is done, a
 * tile that has failed or is nobody's, a drain. So all that is looked at in vain was changed since
 * it was last, and a search costs no more than the changes before it.
 *
 * INVARIANT (head_core_check, head_spill_check): what may go is there.
 */
#include "head/core_int.h"

void head_buffer_loosen(struct head_buffer *buffer)
{
    if (!pl_list_linked(&buffer->loose_link)) {
        pl_list_add_tail(&buffer->device->loose, &buffer->loose_link);
    }
}

void head_tile_loosen(const struct head_tile *tile)
{
    const struct pl_list *pos;

    pl_list_for_each(pos, &tile->instances) {
        head_buffer_loosen(pl_container_of(pos, struct head_instance, tile_link)->buffer);
    }
}

void head_buffer_seconds_loosen(const struct head_buffer *buffer)
{
    const struct pl_list *pos;

    pl_list_for_each(pos, &buffer->instances) {
        const struct head_tile *tile =
            pl_container_of(pos, const struct head_instance, buffer_link)->tile;

        if (tile->second != NULL) {
            head_tile_loosen(tile);
        }
    }
}

void head_buffer_copies_loosen(const struct head_core *core,
                               const struct head_buffer *buffer, const struct pl_box *box)
{
    struct head_instance *const *found;
    size_t count;

    if (pl_list_empty(&core->spill_hosts)) {
        return;
    }
    found = head_places_instances(buffer, box, &count);
    for (size_t i = 0; i < count; i++) {
        if (found[i]->tile->spilled > 0) {
            head_tile_loosen(found[i]->tile);
        }
    }
}

static void device_loosen(const struct head_device *device)
{
    const struct pl_list *pos;

    pl_list_for_each(pos, &device->recent) {
        head_buffer_loosen(pl_container_of(pos, struct head_buffer, recent_link));
    }
}

void head_buffers_loosen(struct head_core *core)
{
    const struct pl_list *pos;

    for (uint32_t i = 0; i < core->devices.count; i++) {
        device_loosen(head_device_at(core, i));
    }
    pl_list_for_each(pos, &core->spill_hosts) {
        device_loosen(&pl_container_of(pos, const struct head_spill_host, link)->home);
    }
}
