/*
 * What was lost is made again: the calls that made it are run again, on devices that are there.
 * loss.c has noted what is lost; then
 *
 * head_rebuild():
 *
 *   1. want the calls that somebody waits for, and those that made what an array, a name or a
 *      partial result still shows
 *   2. close a call needs what it read. What of it is nowhere needs its own call again, and so on
 *      back to what is there: puts,
 *               replicas, versions that were kept, and what a launch was to overwrite that was
 *               given up before (spared.c)
 *   3. hold each of these calls gets arrays of its own that show what it read: as in the first run,
 *      nothing is written in place that
 *               a call of this list still needs
 *   4. run      in the order of their serials, which is that of the program (rerun.c)
 *
 * WHAT TAKES THE RESULT. A tile of which nothing is left, or nothing of what is shown, gets the new
 * bytes itself: arrays, views, snapshots and records that point to it find them there. A stand-in,
 * seen by the calls of this list alone, takes the result instead
 *
 *   - of a tile whose shown parts are all there: the missing one was overwritten in place. It keeps
 *     its instances
 *   - of a tile that nobody shows and that an unfinished launch is still to make, in memory which a
 *     later launch, now lost, was to overwrite. That launch has lost nothing and goes on; its call
 *     is run a second time beside it
 *
 * An output that nobody lacks (a sibling that survived) goes into memory that is freed with the
 * launch: a survivor is never written.
 *
 * WHO LOST NOTHING IS NOT GIVEN UP. Nothing here dooms a launch; what cannot be made again fails
 * only who needs it.
 *
 * ENDS. Serials fall along "read", so step 2 has no cycle. A record is run again at most
 * HEAD_RUNS_AGAIN_MAX times; then it counts as cut off. What is cut off fails, and what reads it
 * fails after it (EDEPENDENCY), so every future is resolved.
 *
 * Everything here is in the order of serials and of lists: the same inputs give the same launches.
 *
 * Seeded bugs: head.rebuild_in_place (run.c: a version that somebody else has is written over),
 * head.rebuild_retired (what was told to be memory for others is read), head.lineage_free_early
 * (lineage.c).
 */
#include "head/rebuild_int.h"

#include <stdlib.h>

/* --------------------------------------------------------------- what must be run again */

/*
 * Memory that was given up because nobody was going to look there again: its worker may use it for
 * something else already, and the plan counts on that. (Not only what is retired: what leaves is
 * retired once its last launch is sent, whatever we find here.)
 */
static void drop_leaving(struct head_core *core, struct head_tile *tile)
{
    struct pl_list *pos, *tmp;

    if (head_tile_shown(tile) || pl_bug("head.rebuild_retired")) {
        return;
    }
    pl_list_for_each_safe(pos, tmp, &tile->instances) {
        struct head_instance *instance =
            pl_container_of(pos, struct head_instance, tile_link);

        if (instance->buffer->leaving) {
            head_instance_remove(core, instance);
        }
    }
}

/* Why it cannot be made again. loss: what happened to it, if that is known. */
static struct head_failure *never(const struct head_core *core,
                                  const struct head_tile *tile,
                                  const struct head_failure *loss)
{
    const char *text =
        loss != NULL ? loss->text : "a version that was overwritten in place";
    uint64_t task   = loss != NULL ? loss->first_task : 0;
    uint64_t client = loss != NULL ? loss->first_client : 0;

    if (tile->record != NULL) {
        return head_failure_create(PLASMON_ENOTREBUILDABLE, task, client,
                                   "%s; it was made again %u time%s, which is the limit",
                                   text, tile->record->runs,
                                   tile->record->runs == 1 ? "" : "s");
    }
    if (core->config.lineage_bytes == 0 &&
        (tile->cut == HEAD_CUT_OLD || tile->cut == HEAD_CUT_OFF)) {
        return head_failure_create(loss != NULL ? loss->status : PLASMON_ECONSUMED, task,
                                   client,
                                   "%s; with --lineage-bytes the head would know how to "
                                   "make it again",
                                   text);
    }
    switch (tile->cut) {
    case HEAD_CUT_OLD:
        return head_failure_create(
            PLASMON_ENOTREBUILDABLE, task, client,
            "%s; how it was made is not known any more: give the head more --lineage-bytes",
            text);
    case HEAD_CUT_GRAPH:
        return head_failure_create(PLASMON_ENOTREBUILDABLE, task, client,
                                   "%s; it was made inside of a recorded graph, which is "
                                   "not run again in parts",
                                   text);
    case HEAD_CUT_COLLECTIVE:
        return head_failure_create(PLASMON_ENOTREBUILDABLE, task, client,
                                   "%s; it was made by a collective, which is not run "
                                   "again",
                                   text);
    default:
        return head_failure_create(
            loss != NULL ? loss->status : PLASMON_ECONSUMED, task, client,
            "%s; it was put, and only its client can put it again", text);
    }
}

static void plan(struct head_rebuild *rebuild, struct head_record *record)
{
    struct head_record **open;
    struct head_rerun *rerun;

    if (record->planned) {
        return;
    }
    record->planned = true;
    head_record_hold(record);
    rerun = pl_vec_push(&rebuild->reruns);
    open  = pl_vec_push(&rebuild->open);
    PL_CHECK(rerun != NULL && open != NULL);
    rerun->record = record;
    *open         = record;
}

/* Bytes of it are wanted that are nowhere. */
static void need(struct head_rebuild *rebuild, struct head_tile *tile,
                 const struct head_failure *loss)
{
    struct head_core *core = rebuild->core;
    struct head_failure *failure;
    struct head_rebuilt *rebuilt;
    struct head_rebuilt **place;
    bool own;

    if (tile->rebuilt != NULL || tile->failure != NULL) {
        return;
    }
    own     = head_tile_missing(tile) || (!head_tile_shown(tile) && tile->makers == 0);
    rebuilt = head_alloc(sizeof(*rebuilt));
    place   = pl_vec_push(&rebuild->tiles);
    PL_CHECK(place != NULL);
    *place        = rebuilt;
    rebuilt->tile = tile;
    tile->rebuilt = rebuilt;
    head_tile_keep(core, tile);
    if (!own) {
        rebuilt->stand_in = head_tile_create(core, &tile->box);
    }
    if (tile->record == NULL || tile->record->runs >= HEAD_RUNS_AGAIN_MAX) {
        failure = never(core, tile, loss);
        head_tile_fail(core, own ? tile : rebuilt->stand_in, failure);
        head_failure_release(failure);
        head_tile_loosen(tile);
        rebuild->never += head_tile_shown(tile) && own;
        return;
    }
    if (own) {
        head_tile_empty(core, tile);
    }
    plan(rebuild, tile->record);
}

/* It does not fail with the value of something else, made later than this one, say (move.c). */
static bool stands_alone(const struct head_buffer *buffer, const void *user)
{
    (void)user;
    return !head_move_joint(buffer) || pl_bug("head.joint_is_there");
}

bool head_rebuild_covers(const struct head_tile *tile, const struct pl_box *box)
{
    return head_tile_covered_by(tile, stands_alone, NULL, box);
}

/* Perhaps where a launch that is no more was to overwrite it. */
static bool is_there(struct head_core *core, struct head_tile *tile,
                     const struct pl_box *box)
{
    return head_rebuild_covers(tile, box) ||
           (head_spared_give_back(core, tile) && head_rebuild_covers(tile, box));
}

static void close_over(struct head_rebuild *rebuild)
{
    while (rebuild->open.count > 0) {
        const struct head_record *record =
            *(struct head_record **)pl_vec_at(&rebuild->open, rebuild->open.count - 1);

        pl_vec_pop(&rebuild->open);
        for (uint32_t a = 0; a < record->arg_count; a++) {
            const struct head_record_arg *arg = &record->args[a];

            for (uint32_t i = 0; i < arg->input_count; i++) {
                const struct head_record_input *input =
                    &record->inputs[arg->input_first + i];
                struct pl_box box = head_record_box(record, arg, input);

                drop_leaving(rebuild->core, input->tile);
                if (!is_there(rebuild->core, input->tile, &box)) {
                    need(rebuild, input->tile, NULL);
                }
            }
        }
    }
}

static void collect(struct head_rebuild *rebuild)
{
    struct head_lineage *lineage = &rebuild->core->lineage;

    for (size_t i = 0; i < lineage->again.count; i++) {
        plan(rebuild, *(struct head_record **)pl_vec_at(&lineage->again, i));
    }
    for (size_t i = 0; i < lineage->lost.count; i++) {
        const struct head_loss *loss = pl_vec_at(&lineage->lost, i);

        if (head_tile_shown(loss->tile) && head_tile_missing(loss->tile)) {
            need(rebuild, loss->tile, loss->failure);
        }
    }
    close_over(rebuild);
}

/* ---------------------------------------------------------------------------- the whole */

static int compare_reruns(const void *a, const void *b)
{
    uint64_t x = ((const struct head_rerun *)a)->record->serial;
    uint64_t y = ((const struct head_rerun *)b)->record->serial;

    return x < y ? -1 : x > y;
}

static void forget_tiles(struct head_rebuild *rebuild)
{
    struct head_core *core = rebuild->core;

    for (size_t i = 0; i < rebuild->tiles.count; i++) {
        struct head_rebuilt *rebuilt =
            *(struct head_rebuilt **)pl_vec_at(&rebuild->tiles, i);

        if (rebuilt->stand_in != NULL) {
            head_tile_release(core, rebuilt->stand_in);
        }
        rebuilt->tile->rebuilt = NULL;
        head_tile_unkeep(core, rebuilt->tile);
        pl_free(rebuilt);
    }
    pl_vec_finish(&rebuild->tiles);
    for (size_t i = 0; i < core->lineage.lost.count; i++) {
        struct head_loss *loss = pl_vec_at(&core->lineage.lost, i);

        head_failure_release(loss->failure);
        loss->tile->lost = false;
        head_tile_unkeep(core, loss->tile);
    }
    pl_vec_clear(&core->lineage.lost);
}

void head_rebuild(struct head_core *core)
{
    struct head_lineage *lineage = &core->lineage;
    struct head_rebuild rebuild  = {
         .core   = core,
         .reruns = PL_VEC_INIT(struct head_rerun),
         .open   = PL_VEC_INIT(struct head_record *),
         .tiles  = PL_VEC_INIT(struct head_rebuilt *),
    };

    if (lineage->lost.count + lineage->again.count + lineage->waits.count == 0) {
        head_roots_release(core, &lineage->roots);
        head_spared_clear(core);
        return;
    }
    lineage->rebuilding = true;
    head_shadow_lost(core);
    head_roots_lost(core);
    collect(&rebuild);
    pl_vec_clear(&lineage->again);
    if (rebuild.reruns.count > 1) {
        qsort(rebuild.reruns.items, rebuild.reruns.count, sizeof(struct head_rerun),
              compare_reruns);
    }
    for (size_t i = 0; i < rebuild.reruns.count; i++) {
        head_rerun_hold(&rebuild, pl_vec_at(&rebuild.reruns, i));
    }
    lineage->rebuilt_never += rebuild.never;
    pl_info("head",
            "%zu tiles lost bytes: %zu tasks run again, %llu tiles cannot be made again",
            lineage->lost.count, rebuild.reruns.count, (unsigned long long)rebuild.never);
    for (size_t i = 0; i < rebuild.reruns.count; i++) {
        head_rerun_start(&rebuild, pl_vec_at(&rebuild.reruns, i));
    }
    forget_tiles(&rebuild);
    head_spared_clear(core);
    head_shadow_lost(core); /* whose bytes made way for what was made again */
    head_roots_lost(core);
    pl_vec_finish(&rebuild.reruns);
    pl_vec_finish(&rebuild.open);
    while (lineage->waits.count > 0) {
        struct head_wait *wait =
            *(struct head_wait **)pl_vec_at(&lineage->waits, lineage->waits.count - 1);

        pl_vec_pop(&lineage->waits);
        head_wait_ended(core, wait, NULL);
    }
    lineage->rebuilding = false;
    head_roots_release(core, &lineage->roots);
    head_lineage_bound(core);
}
