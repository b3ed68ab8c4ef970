/*
 * Buffers that are retired: told to their worker before they are free, so that it can use their
 * memory again in the order of its streams (worker/reuse.c) and need not wait until we have heard
 * that all is done.
 *
 * A buffer is retired when nothing but launches of its own device can reach it, and all of those
 * have been sent:
 *
 *   instances   none, or of tiles that nobody holds but the unfinished task that makes them: no
 *               view, name, snapshot or fold will ever lead here again
 *   uses        of its device's launches only, which its worker runs in order; another device's
 *               copy has no place in that order
 *   refs        no others: no request of ours is half done
 *
 * That cannot become untrue: a new use comes from an instance of a tile that somebody holds. So
 * nothing that is sent later names the buffer, and its `free` comes, as for any other, when the
 * last use has ended. (A spill that is taken back gives a buffer its values again, spill_undo.c:
 * that launch uses the buffer and was not sent, so the buffer is not retired.)
 *
 * Looked at when something that kept it went (`ending`), once a flush, and again when its last
 * launch is sent.
 *
 * Seeded bug: head.retire_foreign (another device may still read it).
 */
#include "head/core_int.h"

/* Nobody holds what is in it but those who make it, and no request of ours is half done. */
static bool unreachable(const struct head_buffer *buffer)
{
    struct pl_list *pos;
    uint32_t instances = 0;

    pl_list_for_each(pos, &buffer->instances) {
        const struct head_instance *instance =
            pl_container_of(pos, struct head_instance, buffer_link);

        if (!head_tile_unreachable(instance->tile)) {
            return false;
        }
        instances++;
    }
    return buffer->refs == buffer->uses + instances;
}

bool head_buffer_leaves(struct head_buffer *buffer)
{
    if (!buffer->leaving && unreachable(buffer)) {
        buffer->leaving = true;
        buffer->device->bytes_live -= head_spill_rounded(buffer->bytes);
    }
    return buffer->leaving;
}

void head_buffer_stays(struct head_buffer *buffer)
{
    PL_CHECK(!buffer->retired);
    if (buffer->leaving) {
        buffer->leaving = false;
        buffer->device->bytes_live += head_spill_rounded(buffer->bytes);
        head_buffer_loosen(buffer);
    }
}

void head_buffer_ending(struct head_buffer *buffer)
{
    /* perhaps somebody still holds it: it is looked at again */
    (void)head_buffer_leaves(buffer);
    if (!buffer->retired && !buffer->device->gone && pl_list_empty(&buffer->ending_link)) {
        pl_list_add_tail(&buffer->device->ending, &buffer->ending_link);
    }
}

void head_device_task_sent(const struct head_task *task)
{
    for (uint32_t i = 0; i < task->use_count; i++) {
        struct head_buffer *buffer = task->uses[i].buffer;

        if (buffer != NULL && buffer->ends && buffer->device == task->device) {
            head_buffer_ending(buffer);
        }
    }
}

static bool retirable(struct head_buffer *buffer)
{
    return head_buffer_leaves(buffer) &&
           (buffer->uses_foreign == 0 || pl_bug("head.retire_foreign"));
}

void head_device_retire(struct head_device *device)
{
    while (!pl_list_empty(&device->ending)) {
        struct head_buffer *buffer =
            pl_list_first(&device->ending, struct head_buffer, ending_link);
        uint64_t *place;

        pl_list_remove(&buffer->ending_link);
        if (!retirable(buffer)) {
            continue;
        }
        buffer->ends = buffer->seq_last > device->seq_sent;
        if (buffer->ends) {
            continue; /* head_device_task_sent() comes back */
        }
        buffer->retired = true;
        place           = pl_vec_push(&device->out_retire);
        PL_CHECK(place != NULL);
        *place = buffer->id;
    }
}
