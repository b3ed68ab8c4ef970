/*
 * Hazards: which launches a new one must wait for.
 *
 * They are kept where memory is, in buffers, not in names: each buffer lists the unfinished tasks
 * that read it and those that write it, with the box they touch. Whatever names, views of views or
 * snapshots led to the buffer, two uses of it conflict when their boxes meet and one of them
 * writes:
 *
 *   read  waits for the writers it meets            (read after write; it depends on their success too)
 *   write waits for the writers and readers it meets (write after write, write after read)
 *
 * Two readers never wait for each other. Uses are added in the order of submission, so the edges
 * are those of sequential execution, and they only ever point back: the graph has no cycle.
 *
 * A writer takes over: uses that lie inside its box are dropped from the lists when it is added,
 * because whoever meets them from now on also meets the writer, which waits for them. That keeps
 * the lists as short as the frontier of the graph. (Such a use still counts for the buffer's life:
 * head_use_remove drops its reference when its task ends.)
 *
 * A writer that has ended well may leave an older one behind that has not finished: its worker is
 * through with that one, too, but of a task that the older one read from nothing was heard yet
 * (head_task_finish). What the newer one wrote is noted until no writer is left; or who reads that
 * would fail with the older one.
 */
#include "head/places.h"

#include "head/core_int.h"

static void collect_points(const struct head_buffer *buffer, bool write,
                           const struct pl_box *box, struct pl_vec *after)
{
    size_t found;
    struct head_use *const *uses = head_places_uses(buffer, write, box, &found);

    for (size_t i = 0; i < found; i++) {
        uint64_t *point = pl_vec_push(after);

        PL_CHECK(point != NULL);
        *point = wire_point(uses[i]->task->device->index, uses[i]->task->seq);
    }
}

/*
 * Whose success a reader of `box` depends on: the last writer of each part of it. Newest first;
 * what a newer one wrote, finished or not, an older one that fails cannot spoil.
 */
static void collect_producers(const struct head_buffer *buffer, const struct pl_box *box,
                              struct pl_vec *producers)
{
    static _Thread_local struct pl_vec open = {.item_bytes = sizeof(struct pl_box)};
    const struct head_written *written      = buffer->written;
    struct head_use *const *writers;
    struct pl_box *first;
    size_t count;

    writers = head_places_uses(buffer, true, box, &count);
    if (count == 0) {
        return;
    }
    pl_vec_clear(&open);
    first = pl_vec_push(&open);
    PL_CHECK(first != NULL);
    *first = *box;
    for (size_t i = count; i > 0 && open.count > 0; i--) {
        const struct head_use *use = writers[i - 1];
        struct head_task **producer;

        for (; written != NULL && written->order > use->task->order;
             written = written->next) {
            (void)pl_boxes_take_out(&open, &written->box);
        }
        if (!pl_boxes_take_out(&open, &use->box)) {
            continue;
        }
        producer = pl_vec_push(producers);
        PL_CHECK(producer != NULL);
        *producer = use->task;
    }
}

void head_hazard_collect(struct head_buffer *buffer, const struct pl_box *box, bool reads,
                         bool write, struct pl_vec *after, struct pl_vec *producers)
{
    if (!(pl_bug("head.skip_raw") && reads && !write)) {
        collect_points(buffer, true, box, after);
        if (reads) {
            collect_producers(buffer, box, producers);
        }
    }
    if (write && !pl_bug("head.skip_war")) {
        collect_points(buffer, false, box, after);
    }
}

static void supersede(const struct head_buffer *buffer, bool write,
                      const struct pl_box *box)
{
    size_t found;
    struct head_use *const *uses = head_places_uses(buffer, write, box, &found);

    for (size_t i = 0; i < found; i++) {
        if (pl_box_contains(box, &uses[i]->box)) {
            head_use_unlink(uses[i]);
        }
    }
}

void head_use_link(struct head_use *use, struct pl_list *behind)
{
    pl_list_add_after(behind, &use->link);
    head_places_use_add(use);
}

void head_use_unlink(struct head_use *use)
{
    if (pl_list_linked(&use->link)) {
        pl_list_remove(&use->link);
        head_places_use_remove(use);
    }
}

void head_use_add(struct head_use *use, struct head_task *task, struct head_buffer *buffer,
                  const struct pl_box *box, bool write)
{
    use->task   = task;
    use->buffer = buffer;
    use->box    = *box;
    use->write  = write;
    pl_list_init(&use->link);
    use->placed = NULL;
    head_buffer_hold(buffer);
    if (buffer->uses++ == 0) {
        buffer->device->bytes_in_use += head_spill_rounded(buffer->bytes);
    }
    buffer->uses_foreign += task->device != buffer->device;
    /*
     * Recently named goes to the back: eviction takes from the front (spill.c). In the order of the
     * plan, not of time.
     */
    pl_list_remove(&buffer->recent_link);
    pl_list_add_tail(&buffer->device->recent, &buffer->recent_link);
    if (pl_list_linked(&buffer->loose_link)) {
        pl_list_remove(&buffer->loose_link);
        pl_list_add_tail(&buffer->device->loose, &buffer->loose_link);
    }

    if (write) {
        supersede(buffer, false, box);
        supersede(buffer, true, box);
        head_use_link(use, buffer->writers.prev);
    } else {
        head_use_link(use, buffer->readers.prev);
    }
}

/* Is an older writer of any of it left? */
static bool older_writes(const struct head_use *use)
{
    size_t found;
    struct head_use *const *writers =
        head_places_uses(use->buffer, true, &use->box, &found);

    return found > 0 && writers[0]->task->order < use->task->order;
}

void head_use_wrote(const struct head_use *use)
{
    struct head_written **place = &use->buffer->written;
    struct head_written *written;

    if (!use->write || !older_writes(use)) {
        return;
    }
    while (*place != NULL && (*place)->order > use->task->order) {
        place = &(*place)->next;
    }
    written        = head_alloc(sizeof(*written));
    written->next  = *place;
    written->box   = use->box;
    written->order = use->task->order;
    *place         = written;
}

void head_written_forget(struct head_buffer *buffer)
{
    struct head_written *written;

    while ((written = buffer->written) != NULL) {
        buffer->written = written->next;
        pl_free(written);
    }
}

void head_use_remove(struct head_core *core, struct head_use *use)
{
    struct head_buffer *buffer = use->buffer;

    head_use_unlink(use);
    if (use->write) {
        head_buffer_copies_loosen(core, buffer, &use->box);
    }
    if (pl_list_empty(&buffer->writers)) {
        head_written_forget(buffer);
        if (use->write) {
            head_buffer_seconds_loosen(buffer);
            head_seconds_arrived(core, buffer);
        }
    }
    use->buffer = NULL;
    if (--buffer->uses == 0) {
        buffer->device->bytes_in_use -= head_spill_rounded(buffer->bytes);
    }
    buffer->uses_foreign -= use->task->device != buffer->device;
    head_buffer_release(core, buffer);
}
