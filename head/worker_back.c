/*
 * A worker comes back. Its timeline and table outlived it (store/timeline.h). It tells up to which
 * seq it had enqueued and which of those did not complete. The head closes the completed ones,
 * sends the others again under their old numbers - other devices may be waiting for exactly those -
 * and sends SKIP for those that had begun to overwrite an input in place: that input is gone, so
 * the task fails with ECONSUMED. Of those that had not begun the worker knows it, where its device
 * tells (worker/begun.c). What has failed already (condemned, cancelled by force, an input failed)
 * comes as SKIP, too, and so does a function that nobody needs any more (orphan.c). What was sent and
 * not enqueued has not been sent, and so was no cancel of it (head_task_unsent()).
 *
 * WHOSE FAULT. A worker that dies had many launches on its device, and one of them may be why. What
 * comes again is done one at a time (worker/queue.c), so if the worker dies then, the earliest
 * unfinished one was it, and that attempt is counted; so is the only unfinished one of a first
 * death. (What had not begun was it not.) Otherwise nobody is blamed: innocents are repeated
 * without being counted, and the guilty one shows itself when it does it again. A worker that we
 * had fenced died by our will.
 */
#include "base/fault.h"
#include "head/core_int.h"

#include <stdio.h>
#include <stdlib.h>

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

/* How far the dead worker came, of what it was sent. */
static uint64_t enqueued_last(const struct head_device *device,
                              const Plasmon__V1__WorkerHello *hello)
{
    return pl_min_u64(hello->enqueued, device->seq_last);
}

/*
 * The timeline shows that it had not begun, at any worker of the device (worker/begun.c): its input
 * is as it was.
 */
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
    uint64_t last = enqueued_last(device, hello);
    size_t cursor = 0;

    for (uint64_t seq = device->seq_oldest; seq <= last; seq++) {
        struct head_task *task = head_device_task(device, seq);
        bool unfinished = in_ranges(hello->unfinished, hello->n_unfinished, &cursor, seq);

        if (task == NULL) {
            /*
             * Finished for us (a failure that was reported), open for the worker: nobody may wait
             * for it for ever.
             */
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

/*
 * What an unfinished launch of the dead worker may have overwritten. One that it was to skip has
 * not: whom that one would have harmed before it was to be skipped was told at that death.
 */
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

/*
 * A copy by the function that reduces members where they lie, or one that a team does: into new
 * memory, and so in a stream beside those of copies (worker/streams.c).
 */
static bool combines(const struct head_task *task)
{
    return task->kind == PLASMON__V1__LAUNCH_KIND__LAUNCH_COPY &&
           (task->function == pl_hash_name("combine") || task->team != 0);
}

static void collect_overwritten(struct head_device *device,
                                const Plasmon__V1__WorkerHello *hello, struct pl_vec *out)
{
    uint64_t last = enqueued_last(device, hello);
    size_t cursor = 0;

    for (uint64_t seq = device->seq_oldest; seq <= last; seq++) {
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
 * A copy in place has not begun while a function that reads the bytes is unfinished: the two are
 * never in one stream, and who overwrites waits for the other stream's word (worker/streams.c).
 */
static bool had_to_wait(const struct overwritten *later, const struct head_task *task)
{
    return later->copy && (is_run(task) || (combines(task) && !later->combines));
}

/*
 * Did a later launch that had begun write over what this one reads? Then its bytes may be gone, and
 * it cannot run again.
 */
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
static struct head_task *guilty(struct head_device *device, uint64_t last)
{
    struct head_task *first = NULL;

    for (uint64_t seq = device->seq_oldest; seq <= last; seq++) {
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
    char what[160], how_often[32] = "once";

    head_task_describe(task, what);
    if (task->attempts != 1) {
        (void)snprintf(how_often, sizeof(how_often), "%u times", task->attempts);
    }
    give_up(core, task,
            head_failure_create(
                device_error ? PLASMON_EDEVICE : PLASMON_EWORKER, task->id,
                task->client != NULL ? task->client->id : 0,
                "%s: the worker of device %u died %s while it ran%s: %s; %s", what,
                device->index, how_often, task->attempts == 1 ? "" : ", the last time",
                device->death != NULL ? device->death : "no word from its store",
                device_error ? "correct the function"
                             : "give the call more retries if that was not its own doing"));
}

static void give_up_unwanted(struct head_core *core, struct head_task *task)
{
    char what[160];

    head_task_describe(task, what);
    task->cancelled = true; /* so it is not made again either */
    give_up(core, task,
            head_failure_create(PLASMON_ECANCELLED, task->id, 0,
                                "%s was given up with its worker: its client has ended",
                                what));
}

/* The next launch of the same call counts on. */
static void blame(struct head_task *task)
{
    task->attempts++;
    if (task->record != NULL) {
        task->record->attempts = task->attempts;
    }
}

/* Of what was given up by that: only what had not begun has left everything as it was. */
static void spoil_begun(struct head_core *core, struct head_device *device,
                        const Plasmon__V1__WorkerHello *hello)
{
    uint64_t last = enqueued_last(device, hello);
    size_t cursor = 0;

    for (uint64_t seq = device->seq_oldest; seq <= last && !pl_bug("head.spared_begun");
         seq++) {
        struct head_task *task = head_device_task(device, seq);

        if (!untouched(hello, &cursor, seq) && task != NULL && task->spared) {
            head_spared_spoil(core, task);
        }
    }
}

/* The worker was replaced: of what it had enqueued, decide what can run again. */
static void judge(struct head_core *core, struct head_device *device,
                  const Plasmon__V1__WorkerHello *hello)
{
    struct pl_vec overwritten        = PL_VEC_INIT(struct overwritten);
    uint64_t last                    = enqueued_last(device, hello);
    bool fenced                      = head_device_fenced(device);
    const struct head_task *to_blame = fenced ? NULL : guilty(device, last);
    size_t cursor                    = 0;

    collect_overwritten(device, hello, &overwritten);
    device->judged = true;
    for (uint64_t seq = device->seq_oldest; seq <= last; seq++) {
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
        if (task->unwanted && is_run(task)) {
            give_up_unwanted(core, task);
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
    device->judged = false;
    spoil_begun(core, device, hello);
    device->alone_until = last;
    pl_vec_finish(&overwritten);
}

void head_worker_back(struct head_core *core, struct head_device *device,
                      const Plasmon__V1__WorkerHello *hello)
{
    settle(core, device, hello);
    judge(core, device, hello);
}

/* --------------------------------------------------------------------------- told again */

/*
 * Frees that the dead worker was sent may not have reached it. Every slot that we know to be empty
 * is freed again, and what was before in one that was given out since; a worker ignores those that
 * it does not have, and takes what is older with one that it is told.
 */
static uint64_t freed_of(const struct head_core *core, const struct head_device *device,
                         uint32_t slot, bool alive)
{
    uint32_t generation = *(uint32_t *)pl_vec_at(&device->generations, slot);
    uint32_t none       = head_device_generation_none(core, device);

    if (generation == none || (alive && generation == none + 1)) {
        /* never given out; its first; or one of 16 million, behind a generation that nobody remembers */
        return 0;
    }
    return wire_buffer(device->index, slot, alive ? generation - 1 : generation);
}

static void free_again(const struct head_core *core, struct head_device *device)
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
        uint64_t buffer = freed_of(core, device, slot, alive[slot] != 0);
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

void head_worker_send_again(struct head_core *core, struct head_device *device,
                            const Plasmon__V1__WorkerHello *hello, bool restarted)
{
    uint64_t last = enqueued_last(device, hello);

    for (uint64_t seq = pl_max_u64(hello->received, last) + 1; seq <= device->seq_sent;
         seq++) {
        struct head_task *task = head_device_task(device, seq);

        if (open_task(task)) {
            head_task_unsent(core, task);
        }
    }
    /*
     * Nothing that was sent before counts: the one it was meant for died, or never got so far as to
     * know its session.
     */
    head_device_forget_output(device);
    pl_vec_clear(&device->out_graph_free);
    pl_vec_clear(&device->out_retire);
    free_again(core, device);
    head_functions_tell_again(core, device);
    head_plans_tell(core, device); /* before the launches that need them */
    head_bulk_tell_all(core, device);
    head_reach_tell_again(device);
    head_pairs_restarted(core, device);
    head_teams_restarted(core, device);
    /* Unfinished launches go out again, oldest first, under their numbers. */
    for (uint64_t seq = pl_max_u64(device->seq_oldest, hello->received + 1); seq <= last;
         seq++) {
        struct head_task *task = head_device_task(device, seq);

        if (task != NULL && !task->ended) {
            core->tasks_again += restarted;
            head_device_send(core, device, task);
        }
    }
    head_relief_tell(device);
}
