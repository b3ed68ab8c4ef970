/*
 * What a launch that is given up was to write over, and never will.
 *
 * A launch that updates in place consumes the version that it reads when it is planned: from then
 * on no buffer is known to have it (run.c). If the launch is given up for a loss that is not its
 * own - something else that it reads is to be made again - before it has begun, its bytes are where
 * they were. So they are found there again, or a value that nobody can make again, a put say, would
 * be lost by a death that did not touch it.
 *
 *   note        a function is given up, and it was not sent; or its worker is being judged, who
 *               died: then what that one had begun is taken out again (head_spared_spoil). It
 *               becomes a SKIP, which names no memory but what it was to make
 *   give back   when a call is to be run again that reads the version, and it is nowhere (rebuild.c)
 *
 * THEY ARE RIGHT THERE if nobody else has written them, or will:
 *
 *   before it   whoever was to write there and is unfinished, is well: then the next launch depends
 *               on that one, as this one did. Who was given up too has spoiled the buffer, or never
 *               made what this one was to read. (That value is lost, but its call may have been run
 *               twice, and then the value of the other run is looked for, which never was here.)
 *   after it    whoever writes there has been given up before it began, like this one. (It waits
 *               for this one, or it would not come after it.)
 *
 * AS IF IT HAD NOT BEEN PLANNED. Its use of the buffer, and those of the ones after it, count as
 * reads from now on, which nobody's success depends on; and the writers before it, which it had
 * taken over from (hazard.c), are in the list again.
 *
 * Seeded bug: head.spared_begun (worker_back.c: what had begun is given back, too).
 */
#include "head/core_int.h"

/* A version that is in a buffer which the launch was to write. */
struct spared {
    struct head_task *task; /* held */
    struct head_tile *tile; /* kept; held, too, if it was given back */
    struct pl_box box;
    uint32_t use;
    bool back;
    size_t next; /* of the same tile: number + 1; 0: none */
};

static bool in_place(const struct head_record_arg *arg, const struct head_use *use)
{
    return use->in_place && arg->input_count > 0;
}

static void add(struct head_core *core, struct head_task *task, uint32_t number,
                const struct head_record_input *input)
{
    struct head_lineage *lineage = &core->lineage;
    struct spared *spared        = pl_vec_push(&lineage->spared);
    uint64_t key                 = (uint64_t)(uintptr_t)input->tile;

    PL_CHECK(spared != NULL);
    *spared = (struct spared){
        .task = task,
        .tile = input->tile,
        .box  = head_record_box(task->record, &task->record->args[number], input),
        .use  = number,
        .next = (size_t)(uintptr_t)pl_map_get(&lineage->spared_of, key),
    };
    task->refs++;
    head_tile_keep(core, input->tile);
    PL_CHECK(pl_map_set(&lineage->spared_of, key,
                        (void *)(uintptr_t)lineage->spared.count) == PLASMON_OK);
}

void head_spared_note(struct head_core *core, struct head_task *task)
{
    const struct head_record *record = task->record;

    if (task->kind != PLASMON__V1__LAUNCH_KIND__LAUNCH_RUN || record == NULL ||
        task->ended || (task->seq <= task->device->seq_sent && !task->device->judged)) {
        return;
    }
    task->spared = true;
    for (uint32_t a = 0; a < record->arg_count; a++) {
        const struct head_record_arg *arg = &record->args[a];

        for (uint32_t i = 0; in_place(arg, &task->uses[a]) && i < arg->input_count; i++) {
            add(core, task, a, &record->inputs[arg->input_first + i]);
        }
    }
}

void head_spared_spoil(struct head_core *core, struct head_task *task)
{
    task->spared = false;
    for (uint32_t i = 0; i < task->use_count; i++) {
        struct head_buffer *buffer = task->uses[i].buffer;

        if (buffer == NULL || !task->uses[i].write) {
            continue;
        }
        if (buffer->spoiled_at != core->lineage.losses) {
            buffer->spoiled_at = core->lineage.losses;
            buffer->spoiled_by = task->order;
        }
        buffer->spoiled_by = pl_min_u64(buffer->spoiled_by, task->order);
    }
}

/* -------------------------------------------------------------------------- giving back */

/* In the order in which they were planned. */
static void link_again(struct head_buffer *buffer, struct head_use *use)
{
    struct pl_list *pos, *before = &buffer->writers;

    pl_list_for_each(pos, &buffer->writers) {
        if (pl_container_of(pos, struct head_use, link)->task->order > use->task->order) {
            break;
        }
        before = pos;
    }
    head_use_link(use, before);
}

static void becomes_read(struct head_core *core, struct head_buffer *buffer,
                         struct head_use *use)
{
    head_use_unlink(use);
    head_buffer_copies_loosen(core, buffer, &use->box);
    use->write = false;
    head_use_link(use, buffer->readers.prev);
}

/*
 * Each write of unfinished launches that meets the box. false, and nothing done: somebody has
 * written there, or will.
 */
static bool writes_undo(struct head_core *core, const struct spared *spared,
                        struct head_buffer *buffer, bool really)
{
    struct pl_list *pos;

    pl_list_for_each(pos, &core->unfinished) {
        struct head_task *task = pl_container_of(pos, struct head_task, order_link);

        for (uint32_t i = 0; i < task->use_count; i++) {
            struct head_use *use = &task->uses[i];

            if (use->buffer != buffer || !use->write ||
                !pl_box_intersects(&use->box, &spared->box)) {
                continue;
            }
            if (!really && (task->order < spared->task->order ? task->failure != NULL
                                                              : !task->spared)) {
                return false;
            }
            if (really && task->spared) {
                becomes_read(core, buffer, use);
            } else if (really && !pl_list_linked(&use->link)) {
                link_again(buffer, use);
            }
        }
    }
    return true;
}

static bool one_back(struct head_core *core, struct spared *spared)
{
    struct head_buffer *buffer = spared->task->uses[spared->use].buffer;

    if (spared->back || !spared->task->spared || buffer == NULL || buffer->device->gone ||
        buffer->retired ||
        (buffer->spoiled_at == core->lineage.losses &&
         buffer->spoiled_by < spared->task->order) ||
        !writes_undo(core, spared, buffer, false)) {
        return false;
    }
    (void)writes_undo(core, spared, buffer, true);
    head_tile_hold(core, spared->tile);
    head_instance_add(core, spared->tile, buffer, &spared->box);
    head_buffer_stays(buffer);
    head_buffer_replica_set(buffer, false);
    spared->back = true;
    core->lineage.given_back++;
    return true;
}

bool head_spared_give_back(struct head_core *core, struct head_tile *tile)
{
    struct head_lineage *lineage = &core->lineage;
    bool some                    = false;
    size_t at =
        (size_t)(uintptr_t)pl_map_get(&lineage->spared_of, (uint64_t)(uintptr_t)tile);

    if (tile->failure != NULL || tile->lost) {
        return false;
    }
    while (at != 0) {
        struct spared *spared = pl_vec_at(&lineage->spared, at - 1);

        some |= one_back(core, spared);
        at = spared->next;
    }
    return some;
}

void head_spared_clear(struct head_core *core)
{
    struct head_lineage *lineage = &core->lineage;

    lineage->losses++;
    if (lineage->spared.count == 0) {
        return;
    }
    for (size_t i = 0; i < lineage->spared.count; i++) {
        struct spared *spared = pl_vec_at(&lineage->spared, i);

        if (spared->back) {
            head_tile_release(core, spared->tile);
        }
        head_tile_unkeep(core, spared->tile);
        head_task_release(spared->task);
    }
    pl_vec_clear(&lineage->spared);
    pl_map_finish(&lineage->spared_of);
    pl_map_init(&lineage->spared_of);
}

void head_spared_init(struct head_core *core)
{
    core->lineage.losses = 1;
    core->lineage.spared = PL_VEC_INIT(struct spared);
    pl_map_init(&core->lineage.spared_of);
}

void head_spared_finish(struct head_core *core)
{
    pl_vec_finish(&core->lineage.spared);
    pl_map_finish(&core->lineage.spared_of);
}
