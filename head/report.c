/*
 * What workers report: launches that are done, failed, starved or condemned, bytes that were read,
 * spans, figures.
 */
#include "head/core_int.h"

#include <string.h>

#include "base/str.h"

enum { EXPECT_AHEAD = 3 /* launches */ };
enum { VALUES_LOOKED = 4096 /* for one error: tens of microseconds */ };

/* Its client asked that it be run again then (lineage.h). */
static bool may_fail_again(struct head_task *task)
{
    if (task->failure != NULL || task->record == NULL ||
        task->record->function_retries == 0) {
        return false;
    }
    task->record->function_retries--;
    return true;
}

/* Why what lies on the device does not make room; "": no reason but that it is in use. */
static const char *why_nothing_leaves(struct head_core *core,
                                      const struct head_device *device,
                                      const Plasmon__V1__LaunchFailure *report)
{
    const struct head_spill_host *spill =
        report->status == PLASMON_EDEVMEM ? head_spill_host_of(core, device->host) : NULL;
    const char *why = spill == NULL                     ? NULL
                      : spill->slab == HEAD_SLAB_FAILED ? spill->slab_why
                      : spill->files_full               ? spill->files_why
                                                        : NULL;

    return why != NULL ? why : "";
}

/* Nothing that is unfinished is to make its memory. */
static bool is_there(const struct head_buffer *buffer)
{
    const struct pl_list *pos;

    pl_list_for_each(pos, &buffer->writers) {
        if (!pl_container_of(pos, struct head_use, link)->in_place) {
            return false;
        }
    }
    return buffer->spilled == NULL;
}

/*
 * What has the memory that a launch lacks, as far as labels say it; "; of what is there: .." or
 * nothing. Of the namespace of who is told alone, who may be confined to it.
 */
static void say_values(const struct head_core *core, const struct head_device *device,
                       const struct head_space *space, struct pl_str *out)
{
    struct head_labels_seen seen = {.core = core};
    const struct pl_list *pos;
    uint32_t looks = VALUES_LOOKED;

    pl_list_for_each(pos, &device->buffers) {
        const struct head_buffer *buffer =
            pl_container_of(pos, struct head_buffer, device_link);
        const struct head_tile *tile =
            pl_list_empty(&buffer->instances)
                ? NULL
                : pl_list_first(&buffer->instances, struct head_instance, buffer_link)
                      ->tile;

        if (looks-- == 0) {
            break;
        }
        if (tile != NULL && tile->label != 0 && tile->space == space && is_there(buffer)) {
            head_labels_see(&seen, tile, buffer->bytes);
        }
    }
    if (seen.count > 0) {
        pl_str_append(out, "; of what is there: ");
        head_labels_say(&seen, out);
    }
}

/*
 * Of who is told how it ended; NULL: nobody is. The memory of a put through a lane or shared memory
 * is asked for by the head's own launch.
 */
static const struct head_space *space_of(const struct head_task *task)
{
    return task->client != NULL ? task->client->space
           : task->outputs.count > 0
               ? (*(struct head_tile **)pl_vec_at(&task->outputs, 0))->space
               : NULL;
}

/* A copy of the head's own into memory that another one was to make. */
static bool fills(const struct head_use *use, const struct head_task *maker)
{
    return use->task != maker && use->in_place &&
           use->task->kind == PLASMON__V1__LAUNCH_KIND__LAUNCH_COPY;
}

/*
 * There is no memory for what it was to make. So the other copies that are to fill it fail for that
 * reason, too, before their worker says of them that something is not there, which would be a loss.
 */
static void fail_fillers(struct head_core *core, const struct head_task *task,
                         struct head_failure *failure)
{
    struct pl_vec fillers = PL_VEC_INIT(struct head_task *);

    for (uint32_t i = 0; i < task->use_count; i++) {
        const struct head_use *made = &task->uses[i];
        const struct pl_list *pos;

        if (!made->write || made->in_place || made->buffer->device != task->device) {
            continue;
        }
        pl_list_for_each(pos, &made->buffer->writers) {
            const struct head_use *use = pl_container_of(pos, struct head_use, link);

            if (fills(use, task)) {
                struct head_task **place = pl_vec_push(&fillers);

                PL_CHECK(place != NULL);
                *place = use->task;
            }
        }
    }
    for (size_t i = 0; i < fillers.count; i++) {
        head_task_doom(core, *(struct head_task **)pl_vec_at(&fillers, i), failure);
    }
    pl_vec_finish(&fillers);
}

static void worker_failed(struct head_core *core, struct head_device *device,
                          const Plasmon__V1__LaunchFailure *report)
{
    struct head_task *task = head_device_task(device, report->seq);
    struct head_failure *failure;
    const char *why;
    struct pl_str values;
    char what[160];

    if (task == NULL) {
        return; /* a repeat after a reconnect */
    }
    if (report->status == PLASMON_ELOST && head_loss_strand(task)) {
        return;
    }
    head_task_describe(task, what);
    pl_str_init(&values);
    if (report->status == PLASMON_EDEVMEM && space_of(task) != NULL) {
        say_values(core, device, space_of(task), &values);
    }
    why = why_nothing_leaves(core, device, report);
    failure =
        head_failure_create((plasmon_status_t)report->status, task->id,
                            task->client != NULL ? task->client->id : 0,
                            "%s failed: %s%s%s%s", what, report->text, pl_str_text(&values),
                            why[0] != '\0' ? "; nothing more can be spilled: " : "", why);
    pl_str_finish(&values);
    failure->loss = report->status == PLASMON_ELOST ||
                    report->status == PLASMON_EDEPENDENCY ||
                    (report->status == PLASMON_EFUNCTION && may_fail_again(task));
    if (report->status == PLASMON_EDEVMEM) {
        fail_fillers(core, task, failure);
    }
    if (report->status == PLASMON_EDEPENDENCY) {
        head_task_unmade(core, task, failure);
    } else {
        head_task_finish(core, task, failure);
    }
    head_failure_release(failure);
}

static void worker_stats(struct head_core *core, struct head_device *device,
                         const Plasmon__V1__WorkerStats *stats)
{
    device->stats         = *stats;
    device->stats.routes  = NULL;
    device->stats.pairs   = NULL;
    device->stats.n_pairs = 0;
    device->stats.waits   = NULL;
    device->stats.n_waits = 0;
    device->stats.numa    = NULL;
    device->stats.left    = NULL;
    if (core->config.times != NULL) {
        head_times_take(core->config.times, device->index, stats);
    }
    device->stats.transfers   = NULL;
    device->stats.n_transfers = 0;
    head_waits_take(device, stats);
    head_moved_take(core, device, stats);
}

/*
 * Of thousands of launches in flight few are in the processor's caches when they end, and each is
 * looked at in a dozen places, one after the other. So those that come next are on their way to it
 * while one is finished.
 */
static void done_expect(struct head_device *device, uint64_t seq, uint64_t end)
{
    if (seq + 2 * EXPECT_AHEAD < end) {
        head_task_expect(head_device_task(device, seq + 2 * EXPECT_AHEAD));
    }
    if (seq + EXPECT_AHEAD < end) {
        head_task_expect_lists(head_device_task(device, seq + EXPECT_AHEAD));
    }
    if (seq + 1 < end) {
        head_task_expect_made(head_device_task(device, seq + 1));
    }
}

plasmon_status_t head_core_worker_frame(struct head_core *core, uint32_t index,
                                        const Plasmon__V1__WorkerFrame *frame,
                                        struct pl_err *err)
{
    struct head_device *device = head_device_at(core, index);

    if (device == NULL) {
        return pl_err_set(err, PLASMON_EINTERNAL,
                          "frame of a worker that never said hello");
    }
    /* Failures first: a later completion of the same batch must find its input failed. */
    for (size_t i = 0; i < frame->n_failed; i++) {
        worker_failed(core, device, frame->failed[i]);
    }
    for (size_t i = 0; i < frame->n_functions; i++) {
        head_function_report(core, device, frame->functions[i]);
    }
    for (size_t i = 0; i < frame->n_data; i++) {
        head_read_arrived(core, frame->data[i]);
        head_relief_answered(core, device, frame->data[i]);
    }
    for (size_t i = 0; i < frame->n_done; i++) {
        uint64_t first = frame->done[i]->first;
        uint64_t count = frame->done[i]->count;

        if (first == 0 || count > device->seq_last ||
            first > device->seq_last - count + 1) {
            return pl_err_set(
                err, PLASMON_EMALFORMED,
                "worker of device %u: launches %llu + %llu done, but only %llu were sent",
                index, (unsigned long long)first, (unsigned long long)count,
                (unsigned long long)device->seq_last);
        }
        for (uint64_t seq = first; seq < first + count; seq++) {
            struct head_task *task = head_device_task(device, seq);

            done_expect(device, seq, first + count);
            if (task != NULL && !task->ended) {
                head_reach_came(core, task);
                head_task_ended(core, task);
            }
        }
    }
    for (size_t i = 0; i < frame->n_condemned; i++) {
        head_device_condemned(core, device, frame->condemned[i]);
    }
    for (size_t i = 0; i < frame->n_spans; i++) {
        head_trace_spans(core, device, frame->spans[i]);
    }
    for (size_t i = 0; i < frame->n_starved; i++) {
        head_device_starved(core, device, frame->starved[i]->seq, frame->starved[i]->bytes,
                            frame->starved[i]->largest_hole);
    }
    /* After what is done: a pair is quiet when all that came by it was told. */
    for (size_t i = 0; i < frame->n_pairs; i++) {
        if (frame->pairs[i]->team != 0) {
            head_team_report(core, device, frame->pairs[i]);
        } else {
            head_pair_report(core, device, frame->pairs[i]);
        }
    }
    if (frame->stats != NULL) {
        worker_stats(core, device, frame->stats);
    }
    head_rebuild(core);
    head_device_pump(core, device);
    return PLASMON_OK;
}
