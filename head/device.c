/*
 * Devices as the head sees them: slots of the object table, launch numbers, what has been sent, what comes back.
 *
 * NUMBERS. Every launch on a device gets the next seq, without gaps, when it is created; that is also the order in which the worker
 * enqueues. At most `window` launches are sent and unfinished; the rest waits here, encoded. So whatever happens to a launch
 * (cancelled, failed before it was sent), its number is used: a launch with nothing to do is sent as SKIP.
 *
 * A WORKER COMES BACK. Its timeline and table outlived it (store/timeline.h). It tells up to which seq it had enqueued and which of
 * those did not complete. The head closes the completed ones, sends the others again under their old numbers - other devices
 * may be waiting for exactly those - and sends SKIP for those that overwrote an input in place: that input is gone, so the task
 * fails with ECONSUMED. The earliest unfinished launches may be what killed the worker, so their attempts are counted.
 *
 * NO MEMORY. A worker whose next launch finds no memory says Starved and stays there. Then, in this order: replicas on that device
 * that nothing uses are dropped; frees on their way may do; tasks before it may finish and free something. Only when the
 * launch is the oldest unfinished one of the whole cluster - nothing is left that could free memory for it - it is told to fail.
 * (The oldest is never waiting for another launch, so there is always one that either runs or fails: nothing hangs.)
 */
#include "head/core_int.h"

#include <stdlib.h>
#include <string.h>

enum {
    FIELD_WELCOME  = 2,
    FIELD_LAUNCHES = 3,
    FIELD_FREE     = 4,
    FIELD_CANCEL   = 5,
    FIELD_STARVE   = 6
};

struct head_device *head_device_at(struct head_core *core, uint32_t index)
{
    return index < core->devices.count
               ? *(struct head_device **)pl_vec_at(&core->devices, index)
               : NULL;
}

/* ---------------------------------------------------------------------------------------------- slots */

uint64_t head_device_slot_take(struct head_core *core, struct head_device *device)
{
    uint32_t slot;
    uint32_t *generation;

    (void)core;
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
        slot       = device->slot_next++;
        generation = pl_vec_push(&device->generations);
        PL_CHECK(generation != NULL);
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

void head_device_slot_rest(struct head_device *device, uint64_t buffer)
{
    uint32_t *slot = pl_vec_push(&device->resting);

    PL_CHECK(slot != NULL);
    *slot = wire_buffer_slot(buffer);
}

/* -------------------------------------------------------------------------------------------- numbers */

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

/* --------------------------------------------------------------------------------------------- output */

static void out_launch(struct head_core *core, struct head_device *device,
                       const struct head_task *task)
{
    head_bytes_field(&device->out, FIELD_LAUNCHES, task->bytes, task->bytes_length);
    if (++device->out_launches >= WIRE_TASKS_MAX ||
        device->out.length > HEAD_BODY_BYTES_MAX) {
        head_device_flush(core, device);
    }
}

void head_device_pump(struct head_core *core, struct head_device *device)
{
    while (device->connected && device->seq_sent < device->seq_last &&
           device->seq_sent + 1 - device->seq_oldest < core->config.window) {
        struct head_task *task = head_device_task(device, device->seq_sent + 1);

        PL_CHECK(task != NULL); /* only a sent launch finishes */
        device->seq_sent++;
        out_launch(core, device, task);
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
    for (size_t i = 0; i < device->out_cancel.count; i++) {
        head_bytes_varint(&device->out, FIELD_CANCEL << 3);
        head_bytes_varint(&device->out, *(uint64_t *)pl_vec_at(&device->out_cancel, i));
    }
    pl_vec_clear(&device->out_cancel);
    if (device->out.length == 0) {
        return;
    }
    core->config.ops->worker_command(core->config.user, device->index, device->out.data,
                                     device->out.length);
    device->out.length   = 0;
    device->out_launches = 0;
}

/* -------------------------------------------------------------------------------------------- starved */

/* Drop replicas of this device that nothing uses, oldest first, until about `bytes` came free. */
static uint64_t evict_replicas(struct head_core *core, struct head_device *device,
                               uint64_t bytes)
{
    struct pl_list *pos, *tmp;
    uint64_t freed = 0;

    pl_list_for_each_safe(pos, tmp, &device->buffers) {
        struct head_buffer *buffer = pl_container_of(pos, struct head_buffer, device_link);
        struct pl_box frame        = buffer->frame;
        struct pl_list *it;
        uint32_t instances = 0;

        if (freed >= bytes) {
            break;
        }
        pl_list_for_each(it, &buffer->instances) {
            instances++;
        }
        if (!buffer->replica || buffer->refs > instances) {
            continue;
        }
        freed += buffer->bytes;
        head_buffer_forget(core, buffer, &frame, UINT64_MAX); /* may free it */
    }
    return freed;
}

void head_device_starved(struct head_core *core, struct head_device *device, uint64_t seq,
                         uint64_t bytes, uint64_t hole)
{
    if (head_device_task(device, seq) == NULL) {
        return;
    }
    device->starved_seq   = seq;
    device->starved_bytes = bytes;
    device->starved_hole  = hole;
    if (evict_replicas(core, device, bytes) > 0) {
        pl_debug("head",
                 "device %u: dropped replicas for launch %llu, which wants %llu bytes",
                 device->index, (unsigned long long)seq, (unsigned long long)bytes);
    }
}

void head_device_relieve(struct head_core *core)
{
    const struct head_task *oldest =
        pl_list_first(&core->unfinished, struct head_task, order_link);

    if (oldest == NULL || oldest->device->starved_seq != oldest->seq) {
        return;
    }
    if (oldest->device->out_free.count > 0 || !oldest->device->connected) {
        return; /* memory is on its way: the worker tries again, and says so if it was not enough */
    }
    head_bytes_varint(&oldest->device->out, FIELD_STARVE << 3);
    head_bytes_varint(&oldest->device->out, oldest->seq);
    oldest->device->starved_seq = 0;
}

/* ------------------------------------------------------------------------------------ coming and going */

static struct head_device *device_find(struct head_core *core, const char *host,
                                       uint32_t host_device)
{
    for (uint32_t i = 0; i < core->devices.count; i++) {
        struct head_device *device = head_device_at(core, i);

        if (!device->gone && device->host_device == host_device &&
            strcmp(device->host, host) == 0) {
            return device;
        }
    }
    return NULL;
}

static struct head_device *device_create(struct head_core *core,
                                         const Plasmon__V1__WorkerHello *hello)
{
    struct head_device *device = head_alloc(sizeof(*device));
    struct head_device **place = pl_vec_push(&core->devices);

    PL_CHECK(place != NULL);
    *place               = device;
    device->index        = (uint32_t)core->devices.count - 1;
    device->host         = head_strdup(hello->host);
    device->node         = head_strdup(hello->node);
    device->name         = head_strdup(hello->name);
    device->kind         = hello->kind;
    device->ordinal      = hello->ordinal;
    device->host_device  = hello->host_device;
    device->bytes_total  = hello->bytes_total;
    device->peer_capable = hello->peer_capable;
    device->generations  = PL_VEC_INIT(uint32_t);
    device->resting      = PL_VEC_INIT(uint32_t);
    device->out_free     = PL_VEC_INIT(uint64_t);
    device->out_cancel   = PL_VEC_INIT(uint64_t);
    device->seq_oldest   = 1;
    device->maps         = core->maps;
    pl_list_init(&device->buffers);
    return device;
}

void head_device_destroy(struct head_device *device)
{
    pl_free(device->host);
    pl_free(device->node);
    pl_free(device->name);
    pl_free(device->death);
    pl_free(device->by_seq);
    pl_free(device->out.data);
    pl_vec_finish(&device->generations);
    pl_vec_finish(&device->resting);
    pl_vec_finish(&device->out_free);
    pl_vec_finish(&device->out_cancel);
    pl_free(device);
}

/* Forget launches that the previous incarnation completed; returns the first seq that has to be sent again. */
static void settle(struct head_core *core, struct head_device *device,
                   const Plasmon__V1__WorkerHello *hello)
{
    size_t range = 0;

    for (uint64_t seq = device->seq_oldest;
         seq <= hello->enqueued && seq <= device->seq_last; seq++) {
        struct head_task *task = head_device_task(device, seq);
        bool unfinished;

        while (range < hello->n_unfinished &&
               hello->unfinished[range]->first + hello->unfinished[range]->count <= seq) {
            range++;
        }
        unfinished = range < hello->n_unfinished && hello->unfinished[range]->first <= seq;
        if (task == NULL) {
            /* Finished for us (a failure that was reported), open for the worker: nobody may wait for it for ever. */
            continue;
        }
        if (!unfinished && !task->ended) {
            head_task_ended(core, task);
        }
    }
}

/* What an unfinished launch of the dead worker may have overwritten. */
struct overwritten {
    const struct head_buffer *buffer;
    struct pl_box box;
    uint64_t seq;
};

static int compare_overwritten(const void *a, const void *b)
{
    uintptr_t x = (uintptr_t)((const struct overwritten *)a)->buffer;
    uintptr_t y = (uintptr_t)((const struct overwritten *)b)->buffer;

    return x < y ? -1 : x > y;
}

static void collect_overwritten(struct head_device *device, uint64_t enqueued,
                                struct pl_vec *out)
{
    for (uint64_t seq = device->seq_oldest; seq <= enqueued && seq <= device->seq_last;
         seq++) {
        const struct head_task *task = head_device_task(device, seq);

        for (uint32_t i = 0; task != NULL && !task->ended && i < task->use_count; i++) {
            struct overwritten *place;

            if (!task->uses[i].write) {
                continue;
            }
            place = pl_vec_push(out);
            PL_CHECK(place != NULL);
            *place = (struct overwritten){
                .buffer = task->uses[i].buffer, .box = task->uses[i].box, .seq = seq};
        }
    }
    if (out->count > 1) {
        qsort(out->items, out->count, sizeof(struct overwritten), compare_overwritten);
    }
}

/* Did a later launch that had begun write over what this one reads? Then its bytes may be gone, and it cannot run again. */
static bool input_overwritten(const struct head_task *task,
                              const struct pl_vec *overwritten)
{
    for (uint32_t i = 0; i < task->use_count; i++) {
        const struct head_use *use      = &task->uses[i];
        struct overwritten key          = {.buffer = use->buffer};
        const struct overwritten *items = overwritten->items;
        const struct overwritten *found;
        size_t at;

        if (use->write || overwritten->count == 0) {
            continue;
        }
        found = bsearch(&key, items, overwritten->count, sizeof(key), compare_overwritten);
        if (found == NULL) {
            continue;
        }
        for (at = (size_t)(found - items); at > 0 && items[at - 1].buffer == use->buffer;
             at--) {
        }
        for (; at < overwritten->count && items[at].buffer == use->buffer; at++) {
            if (items[at].seq > task->seq && pl_box_intersects(&items[at].box, &use->box)) {
                return true;
            }
        }
    }
    return false;
}

static bool is_half(const struct head_task *task)
{
    return task->kind == PLASMON__V1__LAUNCH_KIND__LAUNCH_SEND ||
           task->kind == PLASMON__V1__LAUNCH_KIND__LAUNCH_RECV;
}

/* Half of a transfer is done again all the same, whatever it moves: the other half waits for it. */
static void give_up(struct head_core *core, struct head_task *task,
                    struct head_failure *failure)
{
    head_task_doom(core, task,
                   failure); /* first: it looks at what kind of launch this was */
    if (!is_half(task)) {
        head_task_skip(core, task);
    }
    head_failure_release(failure);
}

/* The worker was replaced: of what it had enqueued, decide what can run again. */
static void judge(struct head_core *core, struct head_device *device, uint64_t enqueued)
{
    struct pl_vec overwritten = PL_VEC_INIT(struct overwritten);
    bool first                = true;
    char what[160];

    collect_overwritten(device, enqueued, &overwritten);
    for (uint64_t seq = device->seq_oldest; seq <= enqueued && seq <= device->seq_last;
         seq++) {
        struct head_task *task = head_device_task(device, seq);
        uint64_t client = task != NULL && task->client != NULL ? task->client->id : 0;

        if (task == NULL || task->ended ||
            task->kind == PLASMON__V1__LAUNCH_KIND__LAUNCH_SKIP) {
            continue;
        }
        head_task_describe(task, what);
        if (!pl_bug("head.run_again") &&
            (task->consumes || input_overwritten(task, &overwritten))) {
            give_up(core, task,
                    head_failure_create(PLASMON_ECONSUMED, task->id, client,
                                        "%s: the worker of device %u died while its input "
                                        "was overwritten in place, which therefore "
                                        "cannot be read again; keep a snapshot of the "
                                        "input, or make it anew and submit again",
                                        what, device->index));
        } else if (first && ++task->attempts > task->attempts_max) {
            give_up(core, task,
                    head_failure_create(PLASMON_EWORKER, task->id, client,
                                        "%s: the worker of device %u died %u times while "
                                        "it ran, the last time: %s; give the "
                                        "call more retries if that was not its own doing",
                                        what, device->index, task->attempts,
                                        device->death != NULL ? device->death
                                                              : "no word from its store"));
        }
        first = false;
    }
    pl_vec_finish(&overwritten);
}

/*
 * Frees that the dead worker was sent may not have reached it. Every slot that we know to be empty is freed again; a worker
 * ignores those that it does not have.
 */
static void free_again(struct head_device *device)
{
    uint8_t *alive = head_alloc(device->slot_next + 1);
    struct pl_list *pos;

    pl_list_for_each(pos, &device->buffers) {
        const struct head_buffer *buffer =
            pl_container_of(pos, struct head_buffer, device_link);

        alive[wire_buffer_slot(buffer->id)] = 1;
    }
    pl_vec_clear(&device->out_free);
    for (uint32_t slot = 0; slot < device->slot_next; slot++) {
        uint64_t *freed;

        if (alive[slot]) {
            continue;
        }
        freed = pl_vec_push(&device->out_free);
        PL_CHECK(freed != NULL);
        *freed = wire_buffer(device->index, slot,
                             *(uint32_t *)pl_vec_at(&device->generations, slot));
    }
    pl_free(alive);
}

plasmon_status_t head_core_worker_up(struct head_core *core,
                                     const Plasmon__V1__WorkerHello *hello,
                                     uint32_t *out_device, struct pl_err *err)
{
    struct head_device *device = device_find(core, hello->host, hello->host_device);
    bool restarted;

    if (hello->kind != 1 && hello->kind != 2) {
        return pl_err_set(err, PLASMON_EMALFORMED,
                          "worker hello: device kind %u is neither 1 (CPU) nor 2 (CUDA)",
                          hello->kind);
    }
    if (device != NULL && hello->incarnation < device->incarnation) {
        return pl_err_set(err, PLASMON_EEXIST,
                          "worker hello: incarnation %u of device %u is over, %u serves "
                          "it; stop this worker",
                          hello->incarnation, device->index, device->incarnation);
    }
    if (device == NULL) {
        device = device_create(core, hello);
        pl_info("head", "device %u joined: %s on %s", device->index, device->name,
                device->node);
        restarted = false;
        if (hello->enqueued > 0) {
            /* It served a head that we do not know of: its launches mean nothing here. */
            device->seq_last = device->seq_sent = hello->enqueued;
            device->seq_oldest                  = hello->enqueued + 1;
        }
    } else {
        restarted = hello->incarnation != device->incarnation;
        if (restarted) {
            device->restarts++;
            pl_info("head", "device %u is back: incarnation %u", device->index,
                    hello->incarnation);
        }
    }
    device->incarnation = hello->incarnation;
    device->connected   = true;

    if (restarted) {
        device->starved_seq = 0;
        settle(core, device, hello);
        judge(core, device, hello->enqueued);
    }
    if (restarted || hello->resume_session == 0) {
        /* Nothing that was sent before counts: the one it was meant for died, or never got so far as to know its session. */
        device->out.length   = 0;
        device->out_launches = 0;
        free_again(device);
        /* Unfinished launches go out again, oldest first, under their numbers. */
        for (uint64_t seq = pl_max_u64(device->seq_oldest, hello->received + 1);
             seq <= hello->enqueued && seq <= device->seq_last; seq++) {
            struct head_task *task = head_device_task(device, seq);

            if (task != NULL && !task->ended) {
                out_launch(core, device, task);
            }
        }
    }
    device->seq_sent =
        pl_min_u64(pl_max_u64(hello->received, hello->enqueued), device->seq_last);
    head_device_pump(core, device);
    *out_device = device->index;
    return PLASMON_OK;
}

void head_core_worker_lost(struct head_core *core, uint32_t index)
{
    struct head_device *device = head_device_at(core, index);

    if (device != NULL) {
        device->connected = false;
    }
}

void head_device_gone(struct head_core *core, struct head_device *device, const char *text)
{
    device->gone      = true;
    device->connected = false;
    pl_warn("head", "device %u is gone: %s", device->index, text);

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
            "%s: device %u is gone: %s", what, device->index, text);
        head_task_finish(core, task, failure);
        head_failure_release(failure);
    }

    /* And so is what lay there: tiles that have no other instance are lost. */
    while (!pl_list_empty(&device->buffers)) {
        struct head_buffer *buffer =
            pl_list_first(&device->buffers, struct head_buffer, device_link);

        head_buffer_hold(buffer);
        while (!pl_list_empty(&buffer->instances)) {
            struct head_instance *instance =
                pl_list_first(&buffer->instances, struct head_instance, buffer_link);
            struct head_tile *tile = instance->tile;
            struct pl_box box      = instance->box;

            head_instance_remove(core, instance);
            if (tile->failure == NULL && !head_tile_covered(tile, NULL, &box)) {
                tile->failure =
                    head_failure_create(PLASMON_ELOST, 0, 0,
                                        "the only copy was on device %u, which is gone: %s",
                                        device->index, text);
            }
        }
        PL_CHECK(buffer->refs == 1);
        head_buffer_release(core, buffer);
    }
    pl_vec_clear(&device->out_free);
}

void head_core_worker_down(struct head_core *core, const char *host, uint32_t host_device,
                           bool final, const char *text)
{
    struct head_device *device = device_find(core, host, host_device);

    if (device == NULL) {
        return;
    }
    device->connected = false;
    pl_free(device->death);
    device->death = head_strdup(text);
    if (final) {
        head_device_gone(core, device, text);
    } else {
        pl_warn("head", "worker of device %u died: %s", device->index, text);
    }
}
