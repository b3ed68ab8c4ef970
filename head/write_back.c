/*
 * Write-back: what has not been used for a while is copied to host memory before there is need, so
 * that a launch which needs its room only drops it, and waits for no copy.
 *
 * WHEN. More of a device than its mark (`--write-back`, percent) is taken by what can not be
 * dropped, and nobody else wants the lanes between devices and host memory: on the host no spill or
 * restore is unfinished and its store is at nothing; on the device there are at most QUEUE_MAX
 * launches unfinished, and none of them copies to or from a host. What is planned further ahead
 * than that has its spills where it needs them, and one more at its end helps nobody. Looked at
 * when the input ran dry, so also whenever launches are over.
 *
 * WHAT. The sealed value that no launch named for the longest time, in the order of the plan, and
 * that lies still: nobody writes, maps or puts it. Into memory of the slab that is free now: no
 * file is written for it, and no copy dropped. At most OPEN_MAX of a device at a time.
 *
 * A write-back is a spill that takes nothing away: the same launch, into a copy with the same
 * instances, but the buffer keeps its own, and its place in the order of use. From then on
 * head_spill_droppable() says that it may go, which is all that the plan needs to know; if it goes
 * before the copy is done, the launch's use keeps it, as in any spill.
 *
 * WHAT CANCELS IT. Nobody needs the value any more, or a launch overwrites it in place: the copy
 * goes, and the launch with it unless it has begun. Who overwrites waits at most for one that has.
 * A copy that is not needed goes as soon as somebody needs its place (spill_host.c,
 * spill_places.c).
 */
#include "head/spill_int.h"

#include <string.h>

enum {
    /* so that the lane has the next one when one is over; what comes then waits for two */
    OPEN_MAX  = 2,
    QUEUE_MAX = 64,  /* launches of the device */
    LOOK_MAX  = 1024 /* buffers at a time, from the least recently used on */
};

/* ------------------------------------------------------------------- what is not needed */

static void cancel(struct head_core *core, struct head_task *task)
{
    if (!task->cancelled) {
        task->spilled->device->spill->cancels++;
        head_task_cancel(core, task, false);
    }
}

void head_write_back_overwritten(struct head_core *core, struct head_buffer *buffer)
{
    struct pl_list *pos;

    if (!head_places_copied_ahead(buffer)) {
        return;
    }
    pl_list_for_each(pos, &buffer->readers) {
        struct head_task *task   = pl_container_of(pos, struct head_use, link)->task;
        struct head_buffer *copy = task->spilled;

        if (!task->ahead || copy->uses != 1) {
            continue;
        }
        head_buffer_hold(copy);
        if (pl_list_empty(&copy->instances) || head_spill_copy_drop(core, copy)) {
            cancel(core, task); /* nothing is in it, nor will be */
        }
        head_buffer_release(core, copy);
        return; /* there is one of a buffer */
    }
}

/* Of copies that something has let go of. (No worker has them, so that is all that becomes of these.) */
static void cancel_unneeded(struct head_core *core, struct head_spill_host *spill)
{
    while (!pl_list_empty(&spill->home.ending)) {
        const struct head_buffer *copy =
            pl_list_first(&spill->home.ending, struct head_buffer, ending_link);
        const struct head_use *use = pl_list_first(&copy->writers, struct head_use, link);

        pl_list_remove(spill->home.ending.next);
        core->steps++;
        /*
         * uses: a restore that reads what it is to bring may be on its way, though the value has
         * been overwritten since.
         */
        if (pl_list_empty(&copy->instances) && copy->uses == 1 && use != NULL &&
            use->task->ahead) {
            cancel(core, use->task);
        }
    }
}

/* -------------------------------------------------------------------------------- lanes */

static bool copies_to_or_from_host(const struct head_task *task)
{
    return task->kind == PLASMON__V1__LAUNCH_KIND__LAUNCH_PUT_HOST ||
           task->kind == PLASMON__V1__LAUNCH_KIND__LAUNCH_GET_HOST ||
           task->kind == PLASMON__V1__LAUNCH_KIND__LAUNCH_SEND ||
           task->kind == PLASMON__V1__LAUNCH_KIND__LAUNCH_RECV;
}

/* How many more it may have now. */
static uint32_t lanes_free(struct head_device *device)
{
    uint32_t open = 0;

    if (!device->connected || device->gone || device->draining ||
        device->seq_last + 1 - device->seq_oldest > QUEUE_MAX) {
        return 0;
    }
    for (uint64_t seq = device->seq_oldest; seq <= device->seq_last; seq++) {
        const struct head_task *task = head_device_task(device, seq);

        if (task == NULL || !copies_to_or_from_host(task)) {
            continue;
        }
        if (!task->ahead) {
            return 0;
        }
        open++;
    }
    return open < OPEN_MAX ? OPEN_MAX - open : 0;
}

/* --------------------------------------------------------------------------- one device */

static bool may_be_copied(struct head_buffer *buffer)
{
    struct pl_list *pos;

    if (!head_spill_lies_still(buffer) || !pl_list_empty(&buffer->writers)) {
        return false;
    }
    pl_list_for_each(pos, &buffer->instances) {
        if (pl_container_of(pos, struct head_instance, buffer_link)->tile->failure !=
            NULL) {
            return false;
        }
    }
    return true;
}

/*
 * What is to be copied next; NULL: nothing, for what lies there that cannot be dropped is not above
 * the mark.
 */
static struct head_buffer *next_of(struct head_device *device, uint64_t mark)
{
    struct head_buffer *next = NULL;
    uint64_t clean           = 0;
    uint32_t looked          = 0;
    struct pl_list *pos;

    pl_list_for_each(pos, &device->recent) {
        struct head_buffer *buffer = pl_container_of(pos, struct head_buffer, recent_link);

        if (device->bytes_live - clean <= mark || looked++ == LOOK_MAX) {
            break;
        }
        if (head_buffer_leaves(buffer)) {
            continue;
        }
        if (head_spill_droppable(buffer)) {
            clean += head_spill_rounded(buffer->bytes);
        } else if (next == NULL && may_be_copied(buffer)) {
            next = buffer;
        }
    }
    return device->bytes_live - clean > mark ? next : NULL;
}

/* false: there is no room for it. */
static bool copy_out(struct head_core *core, struct head_spill_host *spill,
                     struct head_buffer *buffer)
{
    struct pl_list *before = buffer->recent_link.prev;

    if (!head_spill_place_free(spill, head_spill_rounded(buffer->bytes)) ||
        !head_spill_out(core, buffer, HEAD_SPILL_AHEAD, HEAD_SPILL_FOR_NEW)) {
        return false;
    }
    pl_list_remove(&buffer->recent_link); /* nobody has used it */
    pl_list_add_after(before, &buffer->recent_link);
    head_spill_bind(core);
    return true;
}

static void device_look(struct head_core *core, struct head_spill_host *spill,
                        struct head_device *device)
{
    uint64_t mark = device->bytes_total / 100 * spill->config.write_back +
                    device->bytes_total % 100 * spill->config.write_back / 100;
    uint32_t open;

    if (device->bytes_live <= mark) {
        return;
    }
    open = lanes_free(device);
    while (open-- > 0) {
        struct head_buffer *next = next_of(device, mark);

        if (next != NULL && spill->slab == HEAD_SLAB_NONE) {
            head_spill_slab_want(spill); /* it will be there for the next one */
        }
        if (next == NULL || spill->slab != HEAD_SLAB_READY ||
            !copy_out(core, spill, next)) {
            return;
        }
    }
}

static bool host_busy(const struct head_spill_host *spill)
{
    return !pl_list_empty(&spill->queue) || !pl_list_empty(&spill->requests) ||
           spill->bound > spill->ahead_bound;
}

void head_write_back(struct head_core *core)
{
    struct pl_list *pos;

    pl_list_for_each(pos, &core->spill_hosts) {
        struct head_spill_host *spill = pl_container_of(pos, struct head_spill_host, link);

        cancel_unneeded(core, spill);
        for (uint32_t i = 0; spill->config.write_back != 0 && i < core->devices.count;
             i++) {
            struct head_device *device = head_device_at(core, i);

            if (device->joined && strcmp(device->host, spill->home.host) == 0 &&
                !host_busy(spill)) {
                device_look(core, spill, device);
            }
        }
    }
}
