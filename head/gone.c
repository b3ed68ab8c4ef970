/*
 * A device is gone, alone or with its host: what was to run there fails, and so does what lay only
 * there. Its number is not given out again.
 */
#include "base/fault.h"
#include "base/text.h"
#include "head/core_int.h"

#include <string.h>

/* One of the others may be the only one now, and is not to be dropped for want of memory. */
static void keep_copies(struct head_tile *tile)
{
    struct pl_list *pos;

    pl_list_for_each(pos, &tile->instances) {
        head_buffer_replica_set(
            pl_container_of(pos, struct head_instance, tile_link)->buffer, false);
    }
}

static struct head_failure *lost_where(const struct head_buffer *buffer, const char *text)
{
    return buffer->spilled != NULL
               ? head_failure_create(PLASMON_ELOST, 0, 0,
                                     "the only copy was spilled on %s, which is gone: %s",
                                     buffer->device->node, text)
               : head_failure_create(
                     PLASMON_ELOST, 0, 0,
                     "the only copy was on device %u on %s, which is gone: %s",
                     buffer->device->index, buffer->device->node, text);
}

/* Nobody misses what no array shows any more; but who is to make it may be about to write there. */
static bool part_lost(const struct head_tile *tile, const struct pl_box *box)
{
    return tile->makers > 0 ? !head_tile_covered(tile, NULL, box) : head_tile_missing(tile);
}

void head_buffer_lose(struct head_core *core, struct head_buffer *buffer, const char *text)
{
    while (!pl_list_empty(&buffer->instances)) {
        struct head_instance *instance =
            pl_list_first(&buffer->instances, struct head_instance, buffer_link);
        struct head_tile *tile = instance->tile;
        struct pl_box box      = instance->box;

        head_instance_remove(core, instance);
        if (tile->failure == NULL && part_lost(tile, &box)) {
            struct head_failure *failure = lost_where(buffer, text);

            failure->loss = true;
            head_tile_lose(core, tile, failure);
            head_failure_release(failure);
        }
        keep_copies(tile);
    }
}

void head_device_gone(struct head_core *core, struct head_device *device, const char *text)
{
    struct head_failure *lost;
    struct pl_list *pos, *tmp;

    device->gone        = true;
    device->expected_ms = 0;
    head_device_down(core, device);
    pl_free(device->death);
    device->death = head_strdup(text);
    pl_text_mend(device->death);
    pl_warn("head", "device %u on %s is gone: %s", device->index, device->node, text);
    head_relief_cancel(core, device);
    head_bulk_tell(core, device);
    head_reach_gone(core, device);

    /* Whatever was to run there fails; it is closed in order, so that readers find their failure. */
    for (uint64_t seq = device->seq_oldest; seq <= device->seq_last; seq++) {
        struct head_task *task = head_device_task(device, seq);
        struct head_failure *failure;
        char what[160];

        if (task == NULL) {
            continue;
        }
        head_task_describe(task, what);
        failure = head_failure_create(
            PLASMON_EWORKER, task->id, task->client != NULL ? task->client->id : 0,
            "%s: device %u on %s is gone: %s", what, device->index, device->node, text);
        failure->loss = true;
        head_task_finish(core, task, failure);
        head_failure_release(failure);
    }

    lost       = head_failure_create(PLASMON_ELOST, 0, 0, "device %u on %s is gone: %s",
                                     device->index, device->node, text);
    lost->loss = true;
    head_loss_readers(core, device, lost);
    head_failure_release(lost);

    /*
     * And so is what lay there: tiles that have no other instance are lost. Launches of other
     * devices may still use a buffer.
     */
    pl_list_for_each_safe(pos, tmp, &device->buffers) {
        struct head_buffer *buffer = pl_container_of(pos, struct head_buffer, device_link);

        head_buffer_hold(buffer);
        head_buffer_lose(core, buffer, text);
        head_buffer_release(core, buffer);
    }
    pl_vec_clear(&device->out_free);
    pl_vec_clear(&device->out_retire);
    head_pairs_gone(core, device);
    head_teams_gone(core, device);
    head_functions_look_again(core);
    head_host_copies_tell(core, device->host);
}

void head_core_node_gone(struct head_core *core, const char *host, const char *text)
{
    struct pl_vec lost = PL_VEC_INIT(struct head_device *); /* that took work */

    for (uint32_t i = 0; i < core->devices.count; i++) {
        struct head_device *device = head_device_at(core, i);

        if (device->gone || strcmp(device->host, host) != 0 || pl_bug("head.keep_lost")) {
            continue;
        }
        if (device->joined && !device->draining) {
            struct head_device **place = pl_vec_push(&lost);

            PL_CHECK(place != NULL);
            *place = device;
        }
        head_device_gone(core, device, text);
    }
    head_spill_host_gone(core, host, text);
    head_drain_forget(core, host);
    head_expect(core, &lost);
    pl_vec_finish(&lost);
    head_rebuild(core); /* when all of it is gone: not on another device of the same host */
}
