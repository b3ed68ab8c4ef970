/*
 * Devices as the head sees them: slots of the object table, launch numbers, what has been sent. How
 * a device joins, comes back and goes is in worker.c.
 *
 * NUMBERS. Every launch on a device gets the next seq, without gaps, when it is created; that is
 * also the order in which the worker enqueues. At most `window` launches are sent and unfinished;
 * the rest waits here, encoded. So whatever happens to a launch (cancelled, failed before it was
 * sent), its number is used: a launch with nothing to do is sent as SKIP.
 *
 * A WORKER THAT SAYS HELLO has no session yet, so what it must be told cannot go out although it
 * may be more than one frame takes: whoever serves it makes the session from what
 * head_core_worker_up() says. Full outboxes wait in `early` until the next head_core_flush().
 *
 * NO MEMORY. A worker whose next launch finds no memory says Starved and stays there. Then, in this
 * order: what nothing uses on that device and may be dropped is (relief.c); frees on their way may
 * do; tasks before it may finish and free something. Only when the launch is the oldest unfinished
 * one of the whole cluster - nothing is left that could free memory for it - what nobody uses is
 * copied to host memory beside the launches, and goes (relief.c); and when there is nothing more of
 * that, it is told to fail. (The oldest is never waiting for another launch, so there is always one
 * that either runs or fails: nothing hangs. But a SEND by a pair is over when its RECV is, and a
 * part of what a team does waits for the others; those of one number are the oldest together.)
 */
#include "head/core_int.h"

#include <string.h>

enum {
    FIELD_LAUNCHES     = 3,
    FIELD_FREE         = 4,
    FIELD_CANCEL       = 5,
    FIELD_STARVE       = 6,
    FIELD_GRAPHS       = 9,
    FIELD_GRAPH_FREE   = 10,
    FIELD_RETIRE       = 16,
    FIELD_CANCEL_FORCE = 20
};

struct head_device *head_device_at(const struct head_core *core, uint32_t index)
{
    return index < core->devices.count
               ? *(struct head_device **)pl_vec_at(&core->devices, index)
               : NULL;
}

/* -------------------------------------------------------------------------------- slots */

/*
 * Each head begins elsewhere, and with each number of a device: who was told by another one where
 * something lies must not find what we put there (a process that was stopped in between, say).
 */
uint32_t head_device_generation_none(const struct head_core *core,
                                     const struct head_device *device)
{
    uint32_t random = (uint32_t)(core->epoch >> 32);

    return random == 0 ? 0 : (random + device->index * 0x9e3779b9u) >> 10;
}

static void slot_push(const struct head_core *core, struct head_device *device)
{
    uint32_t *generation = pl_vec_push(&device->generations);

    PL_CHECK(generation != NULL);
    *generation = head_device_generation_none(core, device);
    device->slot_next++;
}

uint64_t head_device_slot_take(struct head_core *core, struct head_device *device)
{
    uint32_t slot;
    uint32_t *generation;

    if (device->resting.count - device->resting_first > HEAD_SLOTS_RESTING_MIN ||
        (device->slot_next >= HEAD_SLOTS_MAX &&
         device->resting.count > device->resting_first)) {
        slot = *(uint32_t *)pl_vec_at(&device->resting, device->resting_first++);
        if (device->resting_first > 65536) {
            size_t left = device->resting.count - device->resting_first;

            memmove(device->resting.items,
                    (uint32_t *)device->resting.items + device->resting_first,
                    left * sizeof(uint32_t));
            device->resting.count = left;
            device->resting_first = 0;
        }
    } else if (device->slot_next < HEAD_SLOTS_MAX) {
        slot = device->slot_next;
        slot_push(core, device);
    } else {
        return 0;
    }

    generation  = pl_vec_at(&device->generations, slot);
    *generation = (*generation + 1) & 0xffffffu;
    if (*generation == 0) {
        *generation = 1; /* 0 is never valid, so that a buffer id is never 0 */
    }
    return wire_buffer(device->index, slot, *generation);
}

void head_device_slots_held(const struct head_core *core, struct head_device *device,
                            const uint32_t *slots, size_t count)
{
    for (size_t i = 0; i < count && slots[i] < HEAD_SLOTS_MAX; i++) {
        while (device->slot_next < slots[i]) { /* what lies between them can be given out */
            head_device_slot_rest(device, wire_buffer(device->index, device->slot_next, 0));
            slot_push(core, device);
        }
        if (device->slot_next == slots[i]) { /* else it is out: who comes there waits */
            slot_push(core, device);
        }
    }
}

void head_device_slot_rest(struct head_device *device, uint64_t buffer)
{
    uint32_t *slot = pl_vec_push(&device->resting);

    PL_CHECK(slot != NULL);
    *slot = wire_buffer_slot(buffer);
}

/* ------------------------------------------------------------------------------ numbers */

static void by_seq_grow(struct head_device *device)
{
    uint64_t old_size         = device->by_seq == NULL ? 0 : device->by_seq_mask + 1;
    uint64_t size             = old_size == 0 ? 1024 : old_size * 2;
    struct head_task **by_seq = head_alloc(size * sizeof(struct head_task *));

    for (uint64_t seq = device->seq_oldest; seq <= device->seq_last; seq++) {
        by_seq[seq & (size - 1)] = device->by_seq[seq & device->by_seq_mask];
    }
    pl_free(device->by_seq);
    device->by_seq      = by_seq;
    device->by_seq_mask = size - 1;
}

void head_device_number(struct head_core *core, struct head_device *device,
                        struct head_task *task)
{
    (void)core;
    if (device->by_seq == NULL ||
        device->seq_last + 1 - device->seq_oldest > device->by_seq_mask) {
        by_seq_grow(device);
    }
    task->seq                                       = ++device->seq_last;
    device->by_seq[task->seq & device->by_seq_mask] = task;
    device->unfinished++;
}

void head_device_forget(struct head_device *device, struct head_task *task)
{
    PL_CHECK(device->by_seq[task->seq & device->by_seq_mask] == task);
    device->by_seq[task->seq & device->by_seq_mask] = NULL;
    device->unfinished--;
    while (device->seq_oldest <= device->seq_last &&
           device->by_seq[device->seq_oldest & device->by_seq_mask] == NULL) {
        device->seq_oldest++;
    }
    if (device->starved_seq == task->seq) {
        device->starved_seq = 0;
    }
}

struct head_task *head_device_task(struct head_device *device, uint64_t seq)
{
    if (seq < device->seq_oldest || seq > device->seq_last) {
        return NULL;
    }
    return device->by_seq[seq & device->by_seq_mask];
}

/* ------------------------------------------------------------------------------- output */

void head_device_send(struct head_core *core, struct head_device *device,
                      const struct head_task *task)
{
    head_device_task_sent(task);
    if (wire_function_defined(task->function)) {
        head_function_tell_id(core, device, task->function);
    }
    head_bytes_field(&device->out, FIELD_LAUNCHES, task->bytes, task->bytes_length);
    if (++device->out_launches >= WIRE_TASKS_MAX ||
        device->out.length > HEAD_BODY_BYTES_MAX) {
        head_device_flush(core, device);
    }
}

void head_device_tell(struct head_core *core, struct head_device *device,
                      const struct head_bytes *part)
{
    head_bytes_field(&device->out, FIELD_GRAPHS, part->data, part->length);
    if (device->out.length > HEAD_BODY_BYTES_MAX) {
        head_device_flush(core, device);
    }
}

void head_device_pump(struct head_core *core, struct head_device *device)
{
    uint64_t sent = device->seq_sent;
    bool idle     = sent + 1 == device->seq_oldest;

    while (device->connected && device->seq_sent < device->seq_last &&
           device->seq_sent + 1 - device->seq_oldest < core->config.window) {
        struct head_task *task = head_device_task(device, device->seq_sent + 1);

        PL_CHECK(task != NULL); /* only a sent launch finishes */
        if (head_spill_waiting(task)) {
            break; /* head_spill_bind() finds it a place */
        }
        if (head_excess_held(task)) {
            break; /* until head_excess_decide() */
        }
        device->seq_sent++;
        if (task->begun_ns != 0 && task->seq > device->seq_timed) {
            head_times_add(&core->config.times->waits, core->config.times, task->begun_ns);
        }
        device->seq_timed = pl_max_u64(device->seq_timed, task->seq);
        head_device_send(core, device, task);
    }
    if (idle && device->seq_sent > sent) {
        struct head_device **place = pl_vec_push(&core->idle);

        PL_CHECK(place != NULL);
        *place = device;
    }
}

static void append_packed_fixed64(struct head_bytes *out, uint32_t field,
                                  const struct pl_vec *values)
{
    head_bytes_field(out, field, values->items, values->count * sizeof(uint64_t));
}

void head_device_flush(struct head_core *core, struct head_device *device)
{
    if (!device->connected) {
        return; /* what is owed is sent again when it comes back */
    }
    if (device->out_free.count > 0) {
        append_packed_fixed64(&device->out, FIELD_FREE, &device->out_free);
        pl_vec_clear(&device->out_free);
    }
    if (device->out_retire.count > 0) {
        append_packed_fixed64(&device->out, FIELD_RETIRE, &device->out_retire);
        pl_vec_clear(&device->out_retire);
    }
    for (size_t i = 0; i < device->out_cancel.count; i++) {
        head_bytes_varint(&device->out, FIELD_CANCEL << 3);
        head_bytes_varint(&device->out, *(uint64_t *)pl_vec_at(&device->out_cancel, i));
    }
    pl_vec_clear(&device->out_cancel);
    for (size_t i = 0; i < device->out_graph_free.count; i++) {
        head_bytes_varint(&device->out, FIELD_GRAPH_FREE << 3);
        head_bytes_varint(&device->out, *(uint64_t *)pl_vec_at(&device->out_graph_free, i));
    }
    pl_vec_clear(&device->out_graph_free);
    for (size_t i = 0; i < device->out_force.count; i++) {
        head_bytes_varint(&device->out, FIELD_CANCEL_FORCE << 3);
        head_bytes_varint(&device->out, *(uint64_t *)pl_vec_at(&device->out_force, i));
    }
    pl_vec_clear(&device->out_force);
    head_functions_flush(device);
    if (device->out.length == 0) {
        return;
    }
    if (device->arriving) {
        struct head_bytes *full = pl_vec_push(&device->early);

        PL_CHECK(full != NULL);
        *full       = device->out;
        device->out = (struct head_bytes){.data = NULL};
    } else {
        core->config.ops->worker_command(core->config.user, device->index, device->out.data,
                                         device->out.length);
    }
    device->out.length   = 0;
    device->out_launches = 0;
}

void head_devices_begin(struct head_core *core)
{
    for (size_t i = 0; i < core->idle.count; i++) {
        head_device_flush(core, *(struct head_device **)pl_vec_at(&core->idle, i));
    }
    pl_vec_clear(&core->idle);
}

void head_devices_go(struct head_core *core)
{
    for (uint32_t i = 0; i < core->devices.count; i++) {
        head_device_pump(core, head_device_at(core, i));
        head_device_flush(core, head_device_at(core, i));
    }
}

static void early_clear(struct head_device *device)
{
    for (size_t i = 0; i < device->early.count; i++) {
        pl_free(((struct head_bytes *)pl_vec_at(&device->early, i))->data);
    }
    pl_vec_clear(&device->early);
}

void head_device_arriving(struct head_core *core, struct head_device *device, bool arriving)
{
    if (!arriving && !device->connected) {
        return; /* it left before it was welcomed */
    }
    device->arriving = arriving;
    for (size_t i = 0; !arriving && i < device->early.count; i++) {
        const struct head_bytes *full = pl_vec_at(&device->early, i);

        core->config.ops->worker_command(core->config.user, device->index, full->data,
                                         full->length);
    }
    if (!arriving) {
        early_clear(device);
    }
}

void head_device_forget_output(struct head_device *device)
{
    early_clear(device);
    device->out.length   = 0;
    device->out_launches = 0;
}

/* ------------------------------------------------------------------------------ starved */

void head_device_starved(struct head_core *core, struct head_device *device, uint64_t seq,
                         uint64_t bytes, uint64_t hole)
{
    const struct head_task *task = head_device_task(device, seq);

    if (task == NULL) {
        return;
    }
    device->starved_seq   = seq;
    device->starved_bytes = bytes;
    device->starved_hole  = hole;
    head_shadow_give_way(core, device, bytes);
    if (head_relief_drop(core, task) > 0) {
        pl_debug("head",
                 "device %u: dropped copies for launch %llu, which wants %llu bytes",
                 device->index, (unsigned long long)seq, (unsigned long long)bytes);
    }
}

/*
 * The oldest unfinished launch; or one of the same number, its other half or another part, if that
 * has no memory.
 */
static const struct head_task *oldest_starved(struct head_core *core)
{
    const struct head_task *oldest =
        pl_list_first(&core->unfinished, struct head_task, order_link);
    const struct pl_list *pos;

    pl_list_for_each(pos, &core->unfinished) {
        const struct head_task *task = pl_container_of(pos, struct head_task, order_link);

        if (task->order != oldest->order) {
            break;
        }
        if (task->device->starved_seq == task->seq) {
            return task;
        }
    }
    return NULL;
}

void head_device_relieve(struct head_core *core)
{
    const struct head_task *oldest = oldest_starved(core);

    if (oldest == NULL) {
        return;
    }
    if (!oldest->device->connected || oldest->device->relief.request != 0 ||
        head_relief(core, oldest)) {
        return;
    }
    if (oldest->device->out_free.count > 0) {
        return; /* memory is on its way: the worker tries again, and says so if it was not enough */
    }
    head_bytes_varint(&oldest->device->out, FIELD_STARVE << 3);
    head_bytes_varint(&oldest->device->out, oldest->seq);
    oldest->device->starved_seq = 0;
}
