/*
 * A spill that finds no place after all: a disk that was expected to have room is full of somebody
 * else's data, or the slab could not be made. The values stay on the device, and the launch that
 * wanted their room finds none; nobody loses what was there.
 *
 * THAT IS STILL POSSIBLE, because a spill is sent only when it has its place. So the buffer has not
 * been given back (its worker hears that it ends when the last launch that uses it has been sent),
 * nobody else was given its memory, and nothing behind the spill that reads the copy has been sent
 * either: places are given in the order of numbers (spill_places.c).
 *
 *   the values      are found in the buffer again: those in the copy that have not been released or
 *                   overwritten since, in plan order
 *   the spill       is a launch with nothing to do. It does not fail: what it was to copy is there
 *   each restore    copies from the buffer instead. It is on a device that has a direct way to this
 *                   one: while a spill may be taken back, restores land nowhere else (spill.c)
 *
 * A COPY THAT TAKES NOTHING AWAY (second.c) is given up in the same way, unless the buffer is to be
 * overwritten since: then what it was to keep of the old version, which a call alone holds, is
 * nowhere.
 *
 * In the plan the device now holds more than it has room for. What is planned from here on makes
 * room as ever. What was planned before waits at its worker, and a front that cannot get its memory
 * by any means fails (device.c): that is the launch the room was wanted for, or one behind it.
 */
#include "head/graph.h"
#include "head/spill_int.h"

/*
 * Has something else been planned in its place since? Only of a copy that takes nothing away
 * (second.c), or of a spill of values that came back to the buffer after it (has_left): who
 * overwrites the buffer in place waits for it, and is unfinished.
 */
static bool is_overwritten(const struct head_task *spill, const struct head_buffer *buffer)
{
    const struct pl_list *pos;

    pl_list_for_each(pos, &buffer->writers) {
        if (pl_container_of(pos, struct head_use, link)->task->order > spill->order) {
            return true;
        }
    }
    pl_list_for_each(pos, &buffer->instances) {
        const struct head_instance *instance =
            pl_container_of(pos, const struct head_instance, buffer_link);

        if (instance->tile->order > spill->order) {
            return true;
        }
    }
    return false;
}

static bool is_another(const struct head_buffer *buffer, const void *copy)
{
    return buffer != copy && !buffer->replica && !head_move_joint(buffer);
}

/*
 * A second copy was planned first, then the values were spilled: they are in what that one makes,
 * and who looked for them here would be free to write over them. (A restore from this copy reads
 * the buffer from now on, and holds it.)
 */
static bool has_left(const struct head_buffer *copy, const struct head_instance *instance)
{
    return pl_list_empty(&copy->readers) &&
           head_tile_covered_by(instance->tile, is_another, copy, &instance->box);
}

static void values_stay(struct head_core *core, struct head_buffer *copy,
                        struct head_buffer *buffer)
{
    struct pl_list *pos;
    bool stays = false;

    pl_list_for_each(pos, &copy->instances) {
        const struct head_instance *instance =
            pl_container_of(pos, struct head_instance, buffer_link);

        if (has_left(copy, instance)) {
            continue;
        }
        if (!head_tile_covered(instance->tile, buffer, &instance->box)) {
            head_instance_add(core, instance->tile, buffer, &instance->box);
        }
        stays = true;
    }
    if (stays) {
        head_buffer_replica_set(buffer, false); /* it was to be the copy that is one */
        head_buffer_stays(buffer);
    }
}

/* The copy is of no use to anybody: what it showed is in the buffer. */
static void copy_ends(struct head_core *core, struct head_buffer *copy)
{
    struct pl_box frame = copy->frame;

    head_buffer_forget(core, copy, &frame, UINT64_MAX);
}

/*
 * Does it hold exactly what the restore brings, so that it may go while the other one stays? One
 * that holds nothing may be about to get it back (values_stay).
 */
static bool is_second(const struct head_task *restore, const struct head_buffer *back,
                      const struct head_buffer *buffer)
{
    const struct pl_list *pos;

    pl_list_for_each(pos, &back->writers) {
        if (pl_container_of(pos, struct head_use, link)->task != restore) {
            return false;
        }
    }
    pl_list_for_each(pos, &back->instances) {
        const struct head_instance *instance =
            pl_container_of(pos, struct head_instance, buffer_link);

        if (!head_tile_covered(instance->tile, buffer, &instance->box)) {
            return false;
        }
    }
    return !pl_list_empty(&back->instances);
}

static void restore_copies(struct head_core *core, struct head_task *task,
                           struct head_buffer *copy, struct head_buffer *buffer)
{
    struct head_buffer *back = NULL;

    for (uint32_t i = 0; i < task->use_count; i++) {
        struct head_use *use = &task->uses[i];

        if (use->buffer == copy) {
            head_use_remove(core, use);
            head_use_add(use, task, buffer, &buffer->frame, false);
        } else {
            back = use->buffer;
        }
    }
    if (buffer->device == task->device) {
        buffer->seq_last = pl_max_u64(buffer->seq_last, task->seq);
    }
    PL_CHECK(back != NULL);
    head_buffer_replica_set(back, back->replica || is_second(task, back, buffer));
    pl_list_remove(&task->spill_link);
    task->spilled = NULL;
    head_launch_copy_from(core, task, buffer);
}

void head_spill_undo(struct head_core *core, struct head_task *spill,
                     struct head_failure *failure)
{
    struct head_buffer *copy   = spill->spilled;
    struct head_buffer *buffer = spill->uses[0].buffer;
    struct pl_box frame        = copy->frame;
    bool overwritten           = is_overwritten(spill, buffer);
    struct pl_list *pos, *tmp;

    PL_CHECK(!spill->bound && spill->seq > spill->device->seq_sent && !buffer->retired);
    head_buffer_hold(buffer);
    head_buffer_hold(copy);
    if (!overwritten) {
        values_stay(core, copy, buffer);
    }
    pl_list_for_each_safe(pos, tmp, &copy->readers) {
        struct head_task *task = pl_container_of(pos, struct head_use, link)->task;

        PL_CHECK(!task->bound);
        if (task->failure != NULL) {
            continue; /* it has nothing to do any more */
        }
        if (!overwritten && head_move_direct(core, buffer->device, task->device)) {
            restore_copies(core, task, copy, buffer);
        } else {
            copy->device->spill->stranded++;
            head_task_doom(core, task, failure);
        }
    }
    if (overwritten) {
        head_spill_forget(core, copy, &frame, UINT64_MAX, failure);
    } else {
        copy_ends(core, copy);
    }
    head_launch_skip(core, spill);
    copy->device->spill->undone++;
    head_buffer_release(core, copy);
    head_buffer_release(core, buffer);
}
