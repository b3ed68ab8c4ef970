/*
 * What a loss took, noted while an input is taken: a device is gone, or a worker died while it
 * wrote over what it had read. It is looked at when all of it is known, before the next input
 * (rebuild.c).
 *
 *   tiles      of which bytes are gone (head_tile_lose)
 *   launches   that will not do what they were to do: those of a gone device, those that cannot be
 *              repeated, and whatever reads from these (task.c dooms along the same edges). Their
 *              calls are run again as new launches; the old ones go on with their numbers, because
 *              others wait for those, and what they do means nothing (head_loss_task)
 *
 * Who waited for such a launch - its client, its group, answers that it was to bring - is taken
 * from it and kept with the record of its call, for the next launch. So nobody is told of a loss
 * that is mended.
 */
#include "head/rebuild_int.h"

static bool is_mover(const struct head_task *task)
{
    return task->kind == PLASMON__V1__LAUNCH_KIND__LAUNCH_COPY ||
           task->kind == PLASMON__V1__LAUNCH_KIND__LAUNCH_SEND ||
           task->kind == PLASMON__V1__LAUNCH_KIND__LAUNCH_RECV || task->spilled != NULL;
}

/* Its client's memory may be touched until it is over. */
static bool must_end_first(const struct head_task *task)
{
    return task->kind == PLASMON__V1__LAUNCH_KIND__LAUNCH_GET_HOST &&
           task->spilled == NULL && task->seq <= task->device->seq_sent;
}

static struct head_again *again_of(struct head_core *core, struct head_record *record)
{
    struct head_record **place;

    if (record->again == NULL) {
        record->again        = head_alloc(sizeof(*record->again));
        record->again->waits = PL_VEC_INIT(struct head_wait *);
        head_record_hold(record);
        place = pl_vec_push(&core->lineage.again);
        PL_CHECK(place != NULL);
        *place = record;
    }
    return record->again;
}

static void wait_later(struct pl_vec *waits, struct head_wait *wait)
{
    struct head_wait **place = pl_vec_push(waits);

    PL_CHECK(place != NULL);
    *place = wait;
}

/* If it was this launch itself that something happened to. */
static void take_cause(struct head_again *again, struct head_failure *failure)
{
    if (again->cause == NULL && failure->status != PLASMON_EDEPENDENCY) {
        again->cause = head_failure_hold(failure);
    }
}

/* Looking anew helps if there is another way, and not for ever: it takes its failure then. */
static bool looked_enough(struct head_wait *wait, const struct head_failure *failure)
{
    if (failure->status != PLASMON_EUNREACHABLE) {
        return false;
    }
    if (wait->apart == HEAD_APART_MAX) {
        return true;
    }
    wait->apart++;
    return false;
}

/*
 * Answers that the launch was to bring: of a READ with the next one; where things are is looked up
 * anew when all is under way.
 */
static void take_waits(struct head_core *core, struct head_task *task,
                       struct head_failure *failure)
{
    struct head_waiting *waits = task->waits.items;
    size_t left                = 0;

    for (size_t i = 0; i < task->waits.count; i++) {
        struct head_wait *wait = waits[i].wait;

        if (looked_enough(wait, failure)) {
            waits[left++] = waits[i];
        } else if (wait->kind == HEAD_WAIT_DATA && task->record != NULL) {
            wait_later(&again_of(core, task->record)->waits, wait);
            take_cause(task->record->again, failure);
        } else {
            wait->moved = true;
            wait_later(&core->lineage.waits, wait);
        }
    }
    task->waits.count = left;
}

/* From here on nobody is told of this launch. */
static void take_client(struct head_core *core, struct head_task *task,
                        struct head_failure *failure)
{
    struct head_again *again;
    bool asked = !task->resolved && task->record != NULL &&
                 (task->group != NULL || (task->client != NULL && task->id != 0));

    task->resolved = true;
    if (!asked) {
        return;
    }
    again        = again_of(core, task->record);
    again->group = task->group;
    if (task->group != NULL) {
        pl_list_remove(&task->group_link);
    } else {
        again->client = task->client;
        (void)pl_map_remove(&task->client->tasks, task->id); /* put in by its start */
        head_client_task_over(task->client);
    }
    again->id   = task->id;
    task->group = NULL;
    take_cause(again, failure);
}

static void take_outputs(struct head_core *core, struct head_task *task,
                         struct head_failure *failure)
{
    for (size_t i = 0; i < task->outputs.count; i++) {
        struct head_tile *tile = *(struct head_tile **)pl_vec_at(&task->outputs, i);

        head_tile_lose(core, tile, failure);
        head_tile_empty(core, tile);
        tile->makers--;
        head_tile_release(core, tile);
    }
    pl_vec_clear(&task->outputs);
}

/* Part of a collective, which has no record and fails as a whole: its client is to hear that. */
static bool fails_as_part(const struct head_task *task)
{
    return task->group != NULL && task->group->whole;
}

static bool may_run_again(struct head_task *task, const struct head_failure *failure)
{
    struct head_record *record = task->record;
    bool apart                 = failure->status == PLASMON_EUNREACHABLE;

    if (record == NULL || record->runs >= HEAD_RUNS_AGAIN_MAX ||
        (apart && record->apart == HEAD_APART_MAX)) {
        return false;
    }
    record->apart = (uint8_t)(record->apart + apart);
    return true;
}

bool head_loss_task(struct head_core *core, struct head_task *task,
                    struct head_failure *failure)
{
    if (!head_lineage_on(core) && is_mover(task)) {
        take_waits(core, task,
                   failure); /* it makes nothing: where things are, others may know */
        return false;
    }
    if (task->cancelled || fails_as_part(task) ||
        (!is_mover(task) && !may_run_again(task, failure))) {
        return false;
    }
    take_outputs(core, task, failure);
    if (!must_end_first(task)) {
        take_waits(core, task, failure);
        take_client(core, task, failure);
    }
    return true;
}

void head_loss_final(struct head_core *core, struct head_task *task,
                     struct head_failure *failure)
{
    const struct head_record *record = task->record;

    if (record == NULL || task->resolved || (task->id == 0 && task->group == NULL)) {
        return;
    }
    for (uint32_t a = 0; a < record->arg_count; a++) {
        struct head_tile *tile = record->args[a].output;

        if (tile != NULL) {
            head_tile_fail(core, tile, failure);
        }
    }
}

void head_loss_task_over(struct head_core *core, struct head_task *task)
{
    take_waits(core, task, task->failure);
    take_client(core, task, task->failure);
}

/* Not its own memory, that is. */
static bool reads_from(const struct head_task *task, const struct head_device *device)
{
    for (uint32_t i = 0; i < task->use_count; i++) {
        const struct head_use *use = &task->uses[i];

        if (use->buffer != NULL && !use->write && use->buffer->device != task->device &&
            (device == NULL ? !use->buffer->device->gone : use->buffer->device == device)) {
            return true;
        }
    }
    return false;
}

bool head_loss_strand(struct head_task *task)
{
    if (task->failure != NULL || !reads_from(task, NULL)) {
        return false;
    }
    task->stranded = true;
    return true;
}

void head_loss_readers(struct head_core *core, struct head_device *device,
                       struct head_failure *failure)
{
    struct pl_vec stranded = PL_VEC_INIT(struct head_task *);
    struct pl_list *pos, *tmp;

    pl_list_for_each_safe(pos, tmp, &core->unfinished) {
        struct head_task *task = pl_container_of(pos, struct head_task, order_link);
        struct head_task **place;

        if (task->device == device || !reads_from(task, device) ||
            (!head_lineage_on(core) && !task->stranded)) {
            continue; /* without lineage it may be found there, and otherwise its worker says so */
        }
        head_task_doom(core, task, failure);
        if (task->stranded) {
            place = pl_vec_push(&stranded);
            PL_CHECK(place != NULL);
            *place = task;
            task->refs++;
        }
    }
    for (size_t i = 0; i < stranded.count; i++) {
        struct head_task *task = *(struct head_task **)pl_vec_at(&stranded, i);

        if (!task->finished) {
            head_task_finish(core, task, failure);
        }
        head_task_release(task);
    }
    pl_vec_finish(&stranded);
}

void head_tile_lose(struct head_core *core, struct head_tile *tile,
                    struct head_failure *failure)
{
    struct head_loss *loss;

    if (!head_lineage_on(core) || !failure->loss) {
        head_tile_fail(core, tile, failure);
        return;
    }
    loss = pl_vec_push(&core->lineage.lost);
    PL_CHECK(loss != NULL);
    tile->lost    = true;
    loss->tile    = tile;
    loss->failure = head_failure_hold(failure);
    head_tile_keep(core, tile);
}
