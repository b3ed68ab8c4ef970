/*
 * Devices come and go: a worker says hello, is replaced by another incarnation, or will not come back.
 *
 * A WORKER COMES BACK. Its timeline and table outlived it (store/timeline.h). It tells up to which seq it had enqueued and which of
 * those did not complete. The head closes the completed ones, sends the others again under their old numbers - other devices
 * may be waiting for exactly those - and sends SKIP for those that had begun to overwrite an input in place: that input is gone, so the task
 * fails with ECONSUMED. Of those that had not begun the worker knows it, where its device tells (worker/begun.c). What has failed already (condemned, cancelled by force, an input failed) comes as SKIP, too.
 *
 * WHOSE FAULT. A worker that dies had many launches on its device, and one of them may be why. What comes again is done one at a time
 * (worker/queue.c), so if the worker dies then, the earliest unfinished one was it, and that attempt is counted; so is the only
 * unfinished one of a first death. (What had not begun was it not.) Otherwise nobody is blamed: innocents are repeated without being counted, and the guilty one
 * shows itself when it does it again. A worker that we had fenced died by our will.
 *
 * A DEVICE IS GONE. What was to run there fails, and so does what lay only there; its number is not given out again. A hello of its worker that comes
 * late is refused, and a store that comes back does not bring it back: only one that joins anew does, under another number.
 */
#include "base/fault.h"
#include "head/core_int.h"

#include <stdlib.h>
#include <string.h>

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

/* There was such a device, and its number is not given out again: only a store that joins anew brings another one. */
static const struct head_device *device_gone_before(struct head_core *core,
                                                    const char *host, uint32_t host_device)
{
    for (size_t i = core->devices.count; i > 0; i--) {
        const struct head_device *device = head_device_at(core, (uint32_t)i - 1);

        if (device->gone && device->host_device == host_device &&
            strcmp(device->host, host) == 0) {
            return device;
        }
    }
    return NULL;
}

/* Of an announced device, or of one whose worker came without. NULL: there are as many as a buffer's id can name. */
static struct head_device *device_create(struct head_core *core, const char *host,
                                         const char *node, uint32_t host_device)
{
    struct head_device *device;
    struct head_device **place;

    if (core->devices.count >= WIRE_DEVICES_MAX) {
        return NULL;
    }
    device = head_alloc(sizeof(*device));
    place  = pl_vec_push(&core->devices);
    PL_CHECK(place != NULL);
    *place               = device;
    device->index        = (uint32_t)core->devices.count - 1;
    device->host         = head_strdup(host);
    device->node         = head_strdup(node);
    device->name         = head_strdup("");
    device->bulk_address = head_strdup("");
    device->host_device  = host_device;
    device->down_ms      = core->now_ms;
    device->pairs        = PL_VEC_INIT(Plasmon__V1__PairStats);
    device->generations  = PL_VEC_INIT(uint32_t);
    device->resting      = PL_VEC_INIT(uint32_t);
    device->early        = PL_VEC_INIT(struct head_bytes);
    device->out_free     = PL_VEC_INIT(uint64_t);
    device->out_retire   = PL_VEC_INIT(uint64_t);
    pl_list_init(&device->ending);
    device->out_cancel        = PL_VEC_INIT(uint64_t);
    device->out_force         = PL_VEC_INIT(uint64_t);
    device->out_graph_free    = PL_VEC_INIT(uint64_t);
    device->seq_oldest        = 1;
    device->maps              = core->maps;
    device->out_function_free = PL_VEC_INIT(uint32_t);
    pl_map_init(&device->told);
    pl_list_init(&device->buffers);
    pl_list_init(&device->recent);
    return device;
}

struct head_device *head_device_restore(struct head_core *core, const char *host,
                                        const char *node, uint32_t host_device)
{
    return device_create(core, host, node, host_device);
}

/* Its first worker says what it is. */
static void device_join(struct head_device *device, const Plasmon__V1__WorkerHello *hello)
{
    pl_free(device->name);
    device->name         = head_strdup(hello->name);
    device->kind         = hello->kind;
    device->ordinal      = hello->ordinal;
    device->bytes_total  = hello->bytes_total;
    device->peer_capable = hello->peer_capable;
    device->joined       = true;
    if (device->expected_ms != 0) { /* what it has of that time is of nobody */
        device->expected_ms = 0;
        device->fencing     = false;
        pl_free(device->death);
        device->death = NULL;
    }
    pl_info("head", "device %u joined: %s on %s", device->index, device->name,
            device->node);
    if (hello->enqueued > 0) {
        /* It served a head that we do not know of: its launches mean nothing here. */
        device->seq_last = device->seq_sent = hello->enqueued;
        device->seq_oldest                  = hello->enqueued + 1;
    }
}

static int compare_devices(const void *a, const void *b)
{
    const struct head_device *x = *(struct head_device *const *)a;
    const struct head_device *y = *(struct head_device *const *)b;
    int order                   = strcmp(x->node, y->node);

    if (order == 0) {
        order = strcmp(x->host, y->host);
    }
    return order != 0
               ? order
               : (x->host_device > y->host_device) - (x->host_device < y->host_device);
}

plasmon_status_t head_core_node_up(struct head_core *core, const char *host,
                                   const char *node, uint32_t devices, bool again,
                                   struct pl_err *err)
{
    bool *known      = head_alloc(devices + 1);
    uint32_t missing = devices;

    for (uint32_t i = 0; i < core->devices.count; i++) {
        const struct head_device *device = head_device_at(core, i);

        if ((!device->gone || again) && device->host_device < devices &&
            strcmp(device->host, host) == 0 && !known[device->host_device]) {
            known[device->host_device] = true;
            missing--;
        }
    }
    if (core->devices.count + missing > WIRE_DEVICES_MAX) {
        pl_free(known);
        return pl_err_set(
            err, PLASMON_ELIMIT,
            "%u more devices on %s: a cluster can number %u, and has given out "
            "%zu; start it anew",
            missing, node, (unsigned)WIRE_DEVICES_MAX, core->devices.count);
    }
    for (uint32_t i = 0; i < devices; i++) {
        if (!known[i]) {
            (void)device_create(core, host, node, i); /* there is room */
        }
    }
    pl_free(known);
    if (!core->numbers_told) {
        qsort(core->devices.items, core->devices.count, sizeof(struct head_device *),
              compare_devices);
        for (uint32_t i = 0; i < core->devices.count; i++) {
            head_device_at(core, i)->index = i;
        }
    }
    head_expect_announced(core, host, devices);
    return PLASMON_OK;
}

void head_device_destroy(struct head_device *device)
{
    pl_free(device->host);
    pl_free(device->node);
    pl_free(device->name);
    pl_free(device->death);
    pl_free(device->bulk_address);
    pl_free(device->comm_missing);
    pl_free(device->by_seq);
    head_device_forget_output(device);
    pl_vec_finish(&device->early);
    pl_free(device->out.data);
    pl_vec_finish(&device->pairs);
    pl_vec_finish(&device->generations);
    pl_vec_finish(&device->resting);
    pl_vec_finish(&device->out_free);
    pl_vec_finish(&device->out_retire);
    pl_vec_finish(&device->out_cancel);
    pl_vec_finish(&device->out_graph_free);
    pl_vec_finish(&device->out_force);
    pl_vec_finish(&device->out_function_free);
    pl_map_finish(&device->told);
    pl_free(device);
}

/* Is it in these ranges? Asked in increasing seq, with a cursor that starts at 0. */
static bool in_ranges(Plasmon__V1__Range *const *ranges, size_t count, size_t *io_cursor,
                      uint64_t seq)
{
    while (*io_cursor < count &&
           ranges[*io_cursor]->first + ranges[*io_cursor]->count <= seq) {
        (*io_cursor)++;
    }
    return *io_cursor < count && ranges[*io_cursor]->first <= seq;
}

/* The timeline shows that it had not begun, at any worker of the device (worker/begun.c): its input is as it was. */
static bool untouched(const Plasmon__V1__WorkerHello *hello, size_t *io_cursor,
                      uint64_t seq)
{
    return in_ranges(hello->untouched, hello->n_untouched, io_cursor, seq) &&
           !pl_bug("head.untouched_forgotten");
}

/* Forget launches that the previous incarnation completed. */
static void settle(struct head_core *core, struct head_device *device,
                   const Plasmon__V1__WorkerHello *hello)
{
    size_t cursor = 0;

    for (uint64_t seq = device->seq_oldest;
         seq <= hello->enqueued && seq <= device->seq_last; seq++) {
        struct head_task *task = head_device_task(device, seq);
        bool unfinished = in_ranges(hello->unfinished, hello->n_unfinished, &cursor, seq);

        if (task == NULL) {
            /* Finished for us (a failure that was reported), open for the worker: nobody may wait for it for ever. */
            continue;
        }
        if (!unfinished && !task->ended) {
            head_task_ended(core, task);
        }
    }
}

/* Unfinished for the dead worker, and still to be done. */
static bool open_task(const struct head_task *task)
{
    return task != NULL && !task->ended &&
           task->kind != PLASMON__V1__LAUNCH_KIND__LAUNCH_SKIP;
}

/* What an unfinished launch of the dead worker may have overwritten. One that it was to skip has not: whom that one would have harmed
 * before it was to be skipped was told at that death. */
struct overwritten {
    const struct head_buffer *buffer;
    struct pl_box box;
    uint64_t seq;
    bool copy;
    bool combines;
};

static int compare_overwritten(const void *a, const void *b)
{
    uintptr_t x = (uintptr_t)((const struct overwritten *)a)->buffer;
    uintptr_t y = (uintptr_t)((const struct overwritten *)b)->buffer;

    return x < y ? -1 : x > y;
}

/* A copy by the function that reduces members where they lie, or one that a team does: into new memory, and so in a stream beside those of copies (worker/streams.c). */
static bool combines(const struct head_task *task)
{
    return task->kind == PLASMON__V1__LAUNCH_KIND__LAUNCH_COPY &&
           (task->function == pl_hash_name("combine") || task->team != 0);
}

static void collect_overwritten(struct head_device *device,
                                const Plasmon__V1__WorkerHello *hello, struct pl_vec *out)
{
    size_t cursor = 0;

    for (uint64_t seq = device->seq_oldest;
         seq <= hello->enqueued && seq <= device->seq_last; seq++) {
        const struct head_task *task = head_device_task(device, seq);

        if (!open_task(task) || untouched(hello, &cursor, seq)) {
            continue;
        }
        for (uint32_t i = 0; i < task->use_count; i++) {
            struct overwritten *place;

            if (!task->uses[i].write) {
                continue;
            }
            place = pl_vec_push(out);
            PL_CHECK(place != NULL);
            *place = (struct overwritten){.buffer = task->uses[i].buffer,
                                          .box    = task->uses[i].box,
                                          .seq    = seq,
                                          .copy   = task->kind ==
                                                  PLASMON__V1__LAUNCH_KIND__LAUNCH_COPY,
                                          .combines = combines(task)};
        }
    }
    if (out->count > 1) {
        qsort(out->items, out->count, sizeof(struct overwritten), compare_overwritten);
    }
}

static bool is_run(const struct head_task *task)
{
    return task->kind == PLASMON__V1__LAUNCH_KIND__LAUNCH_RUN ||
           task->kind == PLASMON__V1__LAUNCH_KIND__LAUNCH_GRAPH;
}

/*
 * A copy in place has not begun while a function that reads the bytes is unfinished: the two are never in one stream, and who overwrites waits
 * for the other stream's word (worker/streams.c).
 */
static bool had_to_wait(const struct overwritten *later, const struct head_task *task)
{
    return later->copy && (is_run(task) || (combines(task) && !later->combines));
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
            if (items[at].seq > task->seq && !had_to_wait(&items[at], task) &&
                pl_box_intersects(&items[at].box, &use->box)) {
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
        head_launch_skip(core, task);
    }
    head_failure_release(failure);
}

/* The task that killed the worker, if there can be no doubt. */
static struct head_task *guilty(struct head_device *device, uint64_t enqueued)
{
    struct head_task *first = NULL;

    for (uint64_t seq = device->seq_oldest; seq <= enqueued && seq <= device->seq_last;
         seq++) {
        struct head_task *task = head_device_task(device, seq);

        if (!open_task(task)) {
            continue;
        }
        if (first != NULL) {
            return first->seq <= device->alone_until ? first : NULL;
        }
        first = task;
    }
    return first;
}

/* Its call may be run again, with inputs that are made again (rebuild.c). */
static void give_up_consumed(struct head_core *core, struct head_device *device,
                             struct head_task *task)
{
    struct head_failure *failure;
    char what[160];

    head_task_describe(task, what);
    failure = head_failure_create(
        PLASMON_ECONSUMED, task->id, task->client != NULL ? task->client->id : 0,
        "%s: the worker of device %u died (%s) while its input was "
        "overwritten in place, which therefore cannot be read "
        "again; keep a snapshot of the input, or make it anew and "
        "submit again",
        what, device->index,
        device->death != NULL ? device->death : "no word from its store");
    failure->loss = true;
    give_up(core, task, failure);
}

static void give_up_guilty(struct head_core *core, struct head_device *device,
                           struct head_task *task)
{
    bool device_error = device->death_status == PLASMON_EDEVICE;
    char what[160];

    head_task_describe(task, what);
    give_up(core, task,
            head_failure_create(
                device_error ? PLASMON_EDEVICE : PLASMON_EWORKER, task->id,
                task->client != NULL ? task->client->id : 0,
                "%s: the worker of device %u died %u times while it ran, the last time: "
                "%s; %s",
                what, device->index, task->attempts,
                device->death != NULL ? device->death : "no word from its store",
                device_error ? "correct the function"
                             : "give the call more retries if that was not its own doing"));
}

/* The next launch of the same call counts on. */
static void blame(struct head_task *task)
{
    task->attempts++;
    if (task->record != NULL) {
        task->record->attempts = task->attempts;
    }
}

/* The worker was replaced: of what it had enqueued, decide what can run again. */
static void judge(struct head_core *core, struct head_device *device,
                  const Plasmon__V1__WorkerHello *hello)
{
    struct pl_vec overwritten        = PL_VEC_INIT(struct overwritten);
    uint64_t enqueued                = hello->enqueued;
    bool fenced                      = head_device_fenced(device);
    const struct head_task *to_blame = fenced ? NULL : guilty(device, enqueued);
    size_t cursor                    = 0;

    collect_overwritten(device, hello, &overwritten);
    for (uint64_t seq = device->seq_oldest; seq <= enqueued && seq <= device->seq_last;
         seq++) {
        struct head_task *task = head_device_task(device, seq);
        bool as_it_was         = untouched(hello, &cursor, seq);
        bool over;

        if (!open_task(task)) {
            continue;
        }
        if (task->failure != NULL) {
            if (!is_half(task)) {
                head_launch_skip(core, task);
            }
            continue;
        }
        if (task == to_blame && !as_it_was) {
            blame(task);
        }
        over = task == to_blame && !as_it_was && task->attempts > task->attempts_max;
        if (!pl_bug("head.run_again") && !(over && task->record != NULL) &&
            ((task->consumes && !as_it_was) || input_overwritten(task, &overwritten) ||
             pl_bug("head.give_up_early"))) {
            give_up_consumed(core, device, task);
        } else if (over) {
            give_up_guilty(core, device, task);
        }
    }
    device->alone_until = enqueued;
    pl_vec_finish(&overwritten);
}

/*
 * Frees that the dead worker was sent may not have reached it. Every slot that we know to be empty is freed again, and what was before in one
 * that was given out since; a worker ignores those that it does not have, and takes what is older with one that it is told.
 */
static uint64_t freed_of(const struct head_device *device, uint32_t slot, bool alive)
{
    uint32_t generation = *(uint32_t *)pl_vec_at(&device->generations, slot);

    if (alive && generation == 1) {
        return 0; /* its first; or one of 16 million, behind a generation that nobody remembers */
    }
    return wire_buffer(device->index, slot, alive ? generation - 1 : generation);
}

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
        uint64_t buffer = freed_of(device, slot, alive[slot] != 0);
        uint64_t *freed;

        if (buffer == 0) {
            continue;
        }
        freed = pl_vec_push(&device->out_free);
        PL_CHECK(freed != NULL);
        *freed = buffer;
    }
    pl_free(alive);
}

plasmon_status_t head_core_worker_up(struct head_core *core,
                                     const Plasmon__V1__WorkerHello *hello,
                                     uint32_t *out_device, struct pl_err *err)
{
    struct head_device *device = device_find(core, hello->host, hello->host_device);
    const struct head_device *before =
        device == NULL ? device_gone_before(core, hello->host, hello->host_device) : NULL;
    bool restarted = false;

    if (hello->kind != 1 && hello->kind != 2) {
        return pl_err_set(err, PLASMON_EMALFORMED,
                          "worker hello: device kind %u is neither 1 (CPU) nor 2 (CUDA)",
                          hello->kind);
    }
    if (device != NULL && hello->incarnation < device->incarnation &&
        !pl_bug("head.serve_the_dead")) {
        return pl_err_set(err, PLASMON_EEXIST,
                          "worker hello: incarnation %u of device %u is over, %u serves "
                          "it; stop this worker",
                          hello->incarnation, device->index, device->incarnation);
    }
    if (before != NULL) {
        return pl_err_set(err, PLASMON_EHEADLOST,
                          "worker hello: device %u on %s has been given up (%s) and is not "
                          "taken back: end this worker; a store that joins anew brings the "
                          "device back under another number",
                          before->index, before->node,
                          before->death != NULL ? before->death : "its node left");
    }
    if (device != NULL && device->expected_ms != 0 && !head_expect_fits(device, hello)) {
        head_expect_replaced(core, device);
        device = NULL;
    }
    if (device == NULL) {
        device = device_create(core, hello->host, hello->node, hello->host_device);
        if (device == NULL) {
            head_rebuild(core); /* without it */
            return pl_err_set(err, PLASMON_ELIMIT,
                              "worker hello: the cluster has had %u devices",
                              (unsigned)WIRE_DEVICES_MAX);
        }
    }
    core->numbers_told = true;
    if (!device->joined || device->expected_ms != 0) {
        device_join(device, hello);
    } else {
        restarted = hello->incarnation != device->incarnation;
        if (restarted) {
            device->restarts++;
            pl_info("head", "device %u is back: incarnation %u", device->index,
                    hello->incarnation);
        }
    }
    device->incarnation  = hello->incarnation;
    device->runs         = hello->runs;
    device->comm_version = hello->comm_version;
    device->comm_plain   = hello->comm_plain;
    pl_free(device->comm_missing);
    device->comm_missing = head_strdup(hello->comm_missing);
    device->connected    = true;
    head_device_arriving(core, device, true);
    head_bulk_take(core, device, hello);

    if (restarted) {
        device->starved_seq = 0;
        settle(core, device, hello);
        judge(core, device, hello);
    }
    if (restarted || hello->resume_session == 0) {
        /* Nothing that was sent before counts: the one it was meant for died, or never got so far as to know its session. */
        head_device_forget_output(device);
        pl_vec_clear(&device->out_graph_free);
        pl_vec_clear(&device->out_retire);
        free_again(device);
        head_functions_tell_again(core, device);
        head_plans_tell(core, device); /* before the launches that need them */
        head_bulk_tell_all(core, device);
        head_pairs_restarted(core, device);
        head_teams_restarted(core, device);
        /* Unfinished launches go out again, oldest first, under their numbers. */
        for (uint64_t seq = pl_max_u64(device->seq_oldest, hello->received + 1);
             seq <= hello->enqueued && seq <= device->seq_last; seq++) {
            struct head_task *task = head_device_task(device, seq);

            if (task != NULL && !task->ended) {
                core->tasks_again += restarted;
                head_device_send(core, device, task);
            }
        }
    }
    head_trace_joined(core, device);
    device->seq_sent =
        pl_min_u64(pl_max_u64(hello->received, hello->enqueued), device->seq_last);
    head_expect_joined(core, device);
    head_rebuild(core); /* what was given up above, if that can be */
    head_device_pump(core, device);
    head_functions_look_again(core);
    *out_device = device->index;
    return PLASMON_OK;
}

static void device_down(const struct head_core *core, struct head_device *device)
{
    if (device->connected) {
        device->connected = false;
        device->down_ms   = core->now_ms;
    }
}

void head_core_worker_lost(struct head_core *core, uint32_t index)
{
    struct head_device *device = head_device_at(core, index);

    if (device != NULL) {
        device_down(core, device);
    }
}

/* One of the others may be the only one now, and is not to be dropped for want of memory. */
static void keep_copies(struct head_tile *tile)
{
    struct pl_list *pos;

    pl_list_for_each(pos, &tile->instances) {
        pl_container_of(pos, struct head_instance, tile_link)->buffer->replica = false;
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
    device_down(core, device);
    pl_free(device->death);
    device->death = head_strdup(text);
    pl_warn("head", "device %u on %s is gone: %s", device->index, device->node, text);
    head_bulk_tell(core, device);

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

    /* And so is what lay there: tiles that have no other instance are lost. Launches of other devices may still use a buffer. */
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
}

void head_core_node_gone(struct head_core *core, const char *host, const char *text)
{
    struct pl_vec lost = PL_VEC_INIT(struct head_device *); /* that took work */

    for (uint32_t i = 0; i < core->devices.count; i++) {
        struct head_device *device = head_device_at(core, i);

        if (device->gone || strcmp(device->host, host) != 0) {
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

void head_core_worker_down(struct head_core *core, const char *host, uint32_t host_device,
                           bool final, plasmon_status_t status, const char *text)
{
    struct head_device *device = device_find(core, host, host_device);

    if (device == NULL) {
        return;
    }
    if (final) {
        head_device_gone(core, device, text);
        head_rebuild(core);
    } else {
        device_down(core, device);
        pl_free(device->death);
        device->death        = head_strdup(text);
        device->death_status = status;
        pl_warn("head", "worker of device %u died: %s", device->index, text);
    }
}
