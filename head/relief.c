/*
 * Relief: the oldest launch of the cluster finds no memory, for what is free lies in pieces, or is
 * less than was planned. Before it is told to fail, what nobody uses leaves its device.
 *
 * A spill is a launch, and one that is numbered now comes behind the launch that is in need. So
 * here a buffer is copied to host memory beside the launches, by an order to the worker (Relief in
 * plasmon.proto), with a place that it is given at once. One buffer after the other, until the
 * launch has its memory or nothing is left:
 *
 *   what      the buffer of a value that is there, that no unfinished launch uses and nobody looks
 *             at: the least recently used one of at least the bytes that are wanted, for that makes
 *             a hole by itself; where there is none, those of a row that makes one: the worker is
 *             asked which lie side by side (worker/window.c), for no launch; and where one of these
 *             stays, the largest of all. What may be dropped is dropped,
 *             by the rule of the plan (head_spill_may_drop), for new values take the room that it
 *             leaves. Or one that only its spill uses, which was sent: then that launch has nothing
 *             to do any more
 *   where     host memory that is free, or that a file, or a copy that is not needed, leaves to it.
 *             It holds its place until the worker answers
 *   then      the values have their instances in the copy, and the buffer goes like one that was
 *             spilled, unless somebody has named it meanwhile: then the copy is one ahead of need.
 *             If a launch that was planned meanwhile overwrites it in place, the copy is forgotten
 *
 * IT WAITS FOR NOBODY but the worker, which copies as soon as it hears of it, and the store, which
 * waits for nobody (spill_places.c). So a launch that is bound meanwhile gets its place, if later;
 * and each step takes a buffer off the device, on which nothing is made while the front stays: so
 * it ends.
 *
 * The worker says that the launch needs nothing any more (EAGAIN), and whoever starves next says so
 * itself. A worker that has died takes the order with it.
 *
 * Seeded bug: spill.relief_misplaced (a wrong place).
 */
#include "head/spill_int.h"

#include <string.h>

#define FIELD_RELIEF 23

/* Buffers: it may be asked again whenever the input ran dry, while a place is to come. */
enum { LOOK_MAX = 4096, ROW_BYTES_MAX = 64 * sizeof(uint64_t) };

/* What its memory is for. */
static enum head_spill_for purpose_of(const struct head_task *task)
{
    return task->spilled != NULL ? HEAD_SPILL_FOR_RETURN : HEAD_SPILL_FOR_NEW;
}

/* ---------------------------------------------------------------------- what is dropped */

/* Nothing holds it but what is in it: it is free as soon as that goes. */
static bool is_idle(const struct head_buffer *buffer)
{
    const struct pl_list *pos;
    uint32_t instances = 0;

    pl_list_for_each(pos, &buffer->instances) {
        instances++;
    }
    return instances > 0 && buffer->refs == instances;
}

uint64_t head_relief_drop(struct head_core *core, const struct head_task *task)
{
    struct head_device *device = task->device;
    struct pl_list *pos, *tmp;
    uint64_t freed = 0;

    pl_list_for_each_safe(pos, tmp, &device->loose) {
        struct head_buffer *buffer = pl_container_of(pos, struct head_buffer, loose_link);
        struct pl_box frame        = buffer->frame;

        if (freed >= device->starved_bytes) {
            break;
        }
        if (is_idle(buffer) && head_spill_may_drop(core, buffer, purpose_of(task))) {
            freed += buffer->bytes;
            head_buffer_forget(core, buffer, &frame, UINT64_MAX); /* may free it */
        }
    }
    return freed;
}

/* ---------------------------------------------------------------------- which is copied */

static bool has_failed(const struct head_buffer *buffer)
{
    const struct pl_list *pos;

    pl_list_for_each(pos, &buffer->instances) {
        if (pl_container_of(pos, struct head_instance, buffer_link)->tile->failure !=
            NULL) {
            return true;
        }
    }
    return false;
}

/* The one launch that uses it, if that does just this, and was sent. */
static struct head_task *spill_of(const struct head_buffer *buffer)
{
    struct head_task *task;

    if (buffer->uses != 1 || pl_list_empty(&buffer->readers)) {
        return NULL;
    }
    task = pl_list_first(&buffer->readers, struct head_use, link)->task;
    return task->kind == PLASMON__V1__LAUNCH_KIND__LAUNCH_GET_HOST && task->bound &&
                   task->failure == NULL && !task->cancelled &&
                   task->device == buffer->device && task->seq <= task->device->seq_sent
               ? task
               : NULL;
}

/*
 * Its spill may have been planned for what comes back, into the room that new values leave to that:
 * then a new value that got the memory would be one too many, and nothing could come back any more.
 */
static bool may_be_taken(struct head_buffer *buffer, const struct head_task *spill,
                         enum head_spill_for purpose)
{
    return spill != NULL ? pl_list_empty(&buffer->instances) && buffer->refs == 1 &&
                               (purpose == HEAD_SPILL_FOR_RETURN ||
                                head_spill_room_free(spill->spilled->device->spill, 0))
                         : buffer->uses == 0 && head_spill_lies_still(buffer) &&
                               !has_failed(buffer) && !head_spill_droppable(buffer);
}

/*
 * The least recently used of those that are enough, rather one that is on its way already; else the
 * largest.
 */
static struct head_buffer *victim(struct head_core *core, const struct head_device *device,
                                  enum head_spill_for purpose, bool *out_enough)
{
    struct head_buffer *best = NULL;
    bool best_spilled = false, best_enough = false;
    uint32_t looked = 0;
    struct pl_list *pos;

    pl_list_for_each(pos, &device->recent) {
        struct head_buffer *buffer = pl_container_of(pos, struct head_buffer, recent_link);
        const struct head_task *spill = spill_of(buffer);
        bool enough                   = buffer->bytes >= device->starved_bytes;

        if (looked++ == LOOK_MAX) {
            break;
        }
        core->steps++;
        if ((best_enough && !enough) || (best_enough && (best_spilled || spill == NULL)) ||
            !may_be_taken(buffer, spill, purpose)) {
            continue;
        }
        if (best == NULL || (enough && !best_enough) ||
            (enough ? spill != NULL : buffer->bytes > best->bytes) ||
            (buffer->bytes == best->bytes && spill != NULL && !best_spilled)) {
            best         = buffer;
            best_spilled = spill != NULL;
            best_enough  = enough;
        }
    }
    *out_enough = best_enough;
    return best;
}

static void row_forget(struct head_device *device)
{
    while (!pl_list_empty(&device->relief_row)) {
        pl_list_remove(device->relief_row.next);
    }
}

/*
 * The next of those that make a hole together; what of them may be dropped has gone, *out_dropped
 * if there was such. NULL: none is left, or one of them stays, and then the others would go for
 * nothing.
 */
static struct head_buffer *row_victim(struct head_core *core, struct head_device *device,
                                      const struct head_task *task, bool *out_dropped)
{
    enum head_spill_for purpose = purpose_of(task);
    struct head_buffer *next    = NULL;
    struct pl_list *pos, *tmp;
    bool stays = device->relief_asked != task->seq;

    pl_list_for_each(pos, &device->relief_row) {
        struct head_buffer *buffer = pl_container_of(pos, struct head_buffer, row_link);

        if (!is_idle(buffer) || !head_spill_may_drop(core, buffer, purpose)) {
            next  = buffer;
            stays = stays || !may_be_taken(buffer, spill_of(buffer), purpose);
        }
    }
    if (stays) {
        row_forget(device);
        return NULL;
    }
    pl_list_for_each_safe(pos, tmp, &device->relief_row) {
        struct head_buffer *buffer = pl_container_of(pos, struct head_buffer, row_link);
        struct pl_box frame        = buffer->frame;

        if (is_idle(buffer) && head_spill_may_drop(core, buffer, purpose)) {
            head_buffer_forget(core, buffer, &frame, UINT64_MAX); /* may free it */
            *out_dropped = true;
        }
    }
    return next;
}

/* ------------------------------------------------------------------------------- orders */

void head_relief_tell(struct head_device *device)
{
    const struct head_relief *relief = &device->relief;
    Plasmon__V1__Relief order;

    if (relief->request == 0) {
        return;
    }
    plasmon__v1__relief__init(&order);
    order.seq     = relief->seq;
    order.request = relief->request;
    if (relief->buffer != NULL) {
        order.buffer      = relief->buffer->id;
        order.host_buffer = relief->host_buffer;
        order.offset      = relief->copy->spilled->offset;
        if (pl_bug("spill.relief_misplaced")) {
            order.offset -= pl_min_u64(order.offset, relief->copy->spilled->bytes);
        }
        order.launch = relief->launch;
    }
    head_bytes_message(&device->out, FIELD_RELIEF, &order.base);
}

static void order_give(struct head_core *core, struct head_device *device,
                       struct head_buffer *buffer, struct head_buffer *copy,
                       const struct head_task *spill)
{
    struct head_relief *relief = &device->relief;

    *relief = (struct head_relief){.request = ++core->request_last,
                                   .seq     = device->starved_seq,
                                   .order   = core->order_last,
                                   .buffer  = buffer,
                                   .copy    = copy};
    if (buffer != NULL) {
        relief->launch      = spill != NULL ? spill->seq : 0;
        relief->host_buffer = copy->device->spill->slab_buffer;
        head_buffer_hold(buffer);
        copy->spilled->pins++;
        copy->device->spill->bound++;
    }
    head_relief_tell(device);
}

/*
 * A copy of the buffer with a place; NULL: there is no room. *out_comes: there will be, or not;
 * that is to be waited for.
 */
static struct head_buffer *copy_place(struct head_core *core,
                                      const struct head_buffer *buffer,
                                      enum head_spill_for purpose, bool *out_comes)
{
    struct head_spill_host *spill = head_spill_host_of(core, buffer->device->host);
    uint64_t bytes                = head_spill_rounded(buffer->bytes);
    enum head_place place         = head_spill_reserve(core, spill, bytes, purpose)
                                        ? head_spill_place_make(spill, bytes)
                                        : HEAD_PLACE_NONE;
    struct head_buffer *copy      = NULL;

    *out_comes = place == HEAD_PLACE_COMES;
    if (place == HEAD_PLACE_FREE) {
        copy = head_spill_copy(core, spill, buffer, purpose);
    }
    if (copy != NULL) {
        head_spill_place_take(spill, copy->spilled);
    }
    return copy;
}

/* The worker says which lie side by side. */
static void row_ask(struct head_core *core, struct head_device *device,
                    const struct head_task *task)
{
    device->relief_asked = task->seq;
    row_forget(device);
    order_give(core, device, NULL, NULL, NULL);
}

bool head_relief(struct head_core *core, const struct head_task *task)
{
    struct head_device *device = task->device;
    struct head_buffer *buffer = NULL, *copy = NULL;
    struct head_task *spill = NULL;
    bool comes = false, enough = true, dropped = false;

    if (device->starved_bytes > device->bytes_total) {
        return false;
    }
    if (device->relief_refused != task->seq &&
        head_spill_host_of(core, device->host) != NULL) {
        buffer = row_victim(core, device, task, &dropped);
        if (buffer == NULL && !dropped) {
            buffer = victim(core, device, purpose_of(task), &enough);
        }
    }
    if (buffer != NULL ? !enough && device->relief_asked != task->seq : dropped) {
        row_ask(core, device, task);
        return true;
    }
    if (buffer != NULL && (spill = spill_of(buffer)) != NULL) {
        copy = spill->spilled;
        head_buffer_hold(copy);
    } else if (buffer != NULL) {
        copy = copy_place(core, buffer, purpose_of(task), &comes);
    }
    if (comes) {
        return true;
    }
    if (head_relief_drop(core, task) == 0 && copy == NULL) {
        return false;
    }
    order_give(core, device, copy != NULL ? buffer : NULL, copy, spill);
    return true;
}

/* ------------------------------------------------------------------------------ answers */

/*
 * Has a launch been planned since that writes in it, where it lies? The copy may have been made
 * before or after that.
 */
static bool is_overwritten(const struct head_relief *relief)
{
    const struct pl_list *pos;

    pl_list_for_each(pos, &relief->buffer->writers) {
        if (pl_container_of(pos, struct head_use, link)->task->order > relief->order) {
            return true;
        }
    }
    pl_list_for_each(pos, &relief->buffer->instances) {
        if (pl_container_of(pos, struct head_instance, buffer_link)->tile->order >
            relief->order) {
            return true;
        }
    }
    return false;
}

static void copy_fill(struct head_core *core, const struct head_relief *relief)
{
    struct head_spill_host *spill = relief->copy->device->spill;
    const struct pl_list *pos;

    relief->copy->spilled->filled = true;
    pl_list_for_each(pos, &relief->buffer->instances) {
        const struct head_instance *instance =
            pl_container_of(pos, struct head_instance, buffer_link);

        head_instance_add(core, instance->tile, relief->copy, &instance->box);
    }
    head_buffer_seconds_loosen(relief->copy);
    spill->spills++;
    spill->spill_bytes += relief->copy->spilled->bytes;
}

/*
 * The launch that was to do it has nothing to do any more, at its worker neither, and does not name
 * the buffer.
 */
static void spill_over(struct head_core *core, const struct head_relief *relief,
                       struct head_device *device)
{
    struct head_task *spill = head_device_task(device, relief->launch);

    if (spill == NULL || spill->failure != NULL || spill->spilled != relief->copy) {
        return;
    }
    for (uint32_t i = 0; i < spill->use_count; i++) {
        struct head_use *use = &spill->uses[i];

        if (use->buffer == relief->buffer) {
            head_use_remove(core, use);
            head_use_add(use, spill, relief->copy, &relief->copy->frame, false);
        }
    }
    relief->copy->spilled->filled = true;
    head_buffer_seconds_loosen(relief->copy);
    head_launch_skip(core, spill);
}

static void order_over(struct head_core *core, struct head_device *device, bool copied)
{
    struct head_relief relief = device->relief;
    struct pl_box frame;
    bool goes;

    device->relief = (struct head_relief){.request = 0};
    if (relief.buffer == NULL) {
        return;
    }
    frame = relief.buffer->frame;
    relief.copy->spilled->pins--;
    relief.copy->device->spill->bound--;
    copied = copied && (relief.launch != 0 || !is_overwritten(&relief));
    *(copied ? &relief.copy->device->spill->relieved
             : &relief.copy->device->spill->relieved_in_vain) += 1;
    relief.copy->device->spill->relieved_spills += copied && relief.launch != 0;
    if (copied && relief.launch != 0) {
        spill_over(core, &relief, device);
    } else if (copied) {
        copy_fill(core, &relief);
    }
    head_buffer_release(core, relief.copy); /* what is in it holds it */
    goes = copied && relief.buffer->refs > 1;
    head_buffer_release(core, relief.buffer);
    if (goes && relief.buffer->uses == 0 && head_spill_lies_still(relief.buffer)) {
        head_buffer_forget(core, relief.buffer, &frame, UINT64_MAX);
    }
}

/* What it names is ours by slot and generation: whose device it is the worker does not know. */
static void row_take(struct head_device *device, const Plasmon__V1__WorkerData *data)
{
    struct pl_map generations; /* slot + 1 -> generation + 1, as a pointer */
    struct pl_list *pos;
    uint64_t id;

    row_forget(device);
    pl_map_init(&generations);
    for (size_t at = 0; at + sizeof(id) <= data->bytes.len && at < ROW_BYTES_MAX;
         at += sizeof(id)) {
        memcpy(&id, data->bytes.data + at, sizeof(id));
        PL_CHECK(pl_map_set(&generations, wire_buffer_slot(id) + UINT64_C(1),
                            (void *)((uintptr_t)wire_buffer_generation(id) + 1)) ==
                 PLASMON_OK);
    }
    pl_list_for_each(pos, &device->buffers) {
        struct head_buffer *buffer = pl_container_of(pos, struct head_buffer, device_link);
        uintptr_t generation =
            (uintptr_t)pl_map_get(&generations, wire_buffer_slot(buffer->id) + UINT64_C(1));

        if (generation == (uintptr_t)wire_buffer_generation(buffer->id) + 1) {
            pl_list_add_tail(&device->relief_row, &buffer->row_link);
        }
    }
    pl_map_finish(&generations);
}

void head_relief_answered(struct head_core *core, struct head_device *device,
                          const Plasmon__V1__WorkerData *data)
{
    uint64_t seq = device->relief.seq;
    bool asked   = device->relief.buffer == NULL;

    if (data->request != device->relief.request || data->request == 0) {
        return;
    }
    order_over(core, device, data->status == PLASMON_OK);
    if (asked && data->status == PLASMON_EDEVMEM && device->relief_asked == seq) {
        row_take(device, data);
    }
    if (data->status == PLASMON_EAGAIN && device->starved_seq == seq) {
        device->starved_seq = 0; /* it has its memory, or will say so again */
    } else if (data->status != PLASMON_OK && !asked) {
        device->relief_refused = seq;
    }
}

void head_relief_cancel(struct head_core *core, struct head_device *device)
{
    if (device->relief.request != 0 && device->relief.buffer == NULL) {
        device->relief_asked = 0; /* nobody has answered */
    }
    order_over(core, device, false);
}

void head_relief_cancel_host(struct head_core *core, const struct head_spill_host *spill)
{
    for (uint32_t i = 0; i < core->devices.count; i++) {
        struct head_device *device = head_device_at(core, i);

        if (device->relief.buffer != NULL && device->relief.copy->device->spill == spill) {
            head_relief_cancel(core, device);
        }
    }
}

uint64_t head_relief_count(const struct head_core *core,
                           const struct head_spill_host *spill)
{
    uint64_t count = 0;

    for (uint32_t i = 0; i < core->devices.count; i++) {
        const struct head_device *device = head_device_at(core, i);

        count +=
            device->relief.buffer != NULL && device->relief.copy->device->spill == spill;
    }
    return count;
}
