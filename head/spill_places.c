/*
 * Places in the slab, and the launches that need one.
 *
 * THE SLAB is one host buffer (store/host_buffer.h) that every worker of the host registers, piece
 * by piece: asked for when something is spilled for the first time, and used as far as all have it.
 * When no place is left there, the store is asked for more, which ends with more or with less for
 * good. A spilled buffer needs no place in it while it is only planned. A launch that writes or
 * reads one gets its place when it is next: it is BOUND, and only then sent. Launches are bound in
 * the order of their numbers, whatever device they are on, and hold their place until they are
 * over.
 *
 * NOTHING HANGS. Let L be the oldest launch that is not bound. The places that are held are those
 * of launches with smaller numbers, which wait for nobody behind them and end. What nobody holds
 * can leave: what is in a file already at once, the rest when the store has written it, which ends;
 * and what may not leave is moved together. So when all before L is over, all of the slab but what
 * must stay is one hole. head_spill_copy() has seen to it, when L was planned, that this is enough:
 * what was spilled and not forgotten then is never more than slab and files hold. It is not if a
 * disk turned out to be full in the meantime, or the slab could not be made: then L is taken back
 * if it is a spill (spill_undo.c), and fails with the store's words if it is a restore. The value
 * stays where it is.
 *
 * Seeded bugs: spill.wrong_offset, spill.ahead_misplaced (the same of what is copied ahead of
 * need), spill.place_held (a place is given away while a launch holds it).
 */
#include "head/spill_int.h"

#include <stdio.h>

enum {
    FILES_AGAIN_MS = 10000, /* more than STORE_SPILL_AGAIN_NS: the store tries, too */
    LOOK_MAX       = 512    /* copies, for some to leave, while others are on their way */
};

/* ----------------------------------------------------------------------------- the slab */

/* What is free behind a place, or before all of them (the list). */
static void hole_look(struct head_spill_host *spill, struct pl_list *after)
{
    struct pl_list *next = after->next;
    bool first           = after == &spill->ranges;
    struct head_spilled *spilled =
        first ? NULL : pl_container_of(after, struct head_spilled, range_link);
    uint64_t from          = first ? 0 : spilled->offset + spilled->span;
    uint64_t until         = next == &spill->ranges
                                 ? spill->slab_bytes
                                 : pl_container_of(next, struct head_spilled, range_link)->offset;
    struct head_hole *hole = first ? &spill->hole : &spilled->hole;

    hole->after = after;
    head_hole_set(&spill->holes, hole, from, until > from ? until - from : 0);
}

void head_spill_place_changed(struct head_spill_host *spill, struct head_spilled *spilled)
{
    hole_look(spill, &spilled->range_link);
}

void head_spill_slab_changed(struct head_spill_host *spill)
{
    hole_look(spill, spill->ranges.prev);
}

void head_spill_places_loaded(struct head_spill_host *spill)
{
    struct pl_list *pos;

    pl_list_for_each(pos, &spill->ranges) {
        hole_look(spill, pos->prev);
    }
    head_spill_slab_changed(spill);
}

void head_spill_places_check(const struct head_spill_host *spill)
{
    const struct head_hole *hole = &spill->hole;
    const struct pl_list *pos;
    uint64_t end = 0;

    pl_list_for_each(pos, &spill->ranges) {
        const struct head_spilled *spilled =
            pl_container_of(pos, const struct head_spilled, range_link);

        PL_CHECK(spilled->placed && spilled->offset >= end);
        PL_CHECK(hole->bytes == spilled->offset - end);
        PL_CHECK(hole->bytes == 0 || hole->offset == end);
        end  = spilled->offset + spilled->span;
        hole = &spilled->hole;
    }
    PL_CHECK(end <= spill->slab_bytes && hole->bytes == spill->slab_bytes - end);
}

static void place_give(struct head_spill_host *spill, struct head_spilled *spilled,
                       struct pl_list *after, uint64_t offset)
{
    spilled->offset = offset;
    spilled->span   = spilled->bytes;
    spilled->placed = true;
    pl_list_add_after(after, &spilled->range_link);
    pl_list_add_tail(&spill->recent, &spilled->recent_link);
    hole_look(spill, after);
    hole_look(spill, &spilled->range_link);
}

void head_spill_place_leave(struct head_spilled *spilled)
{
    struct head_spill_host *spill = spilled->buffer->device->spill;
    struct pl_list *before        = spilled->range_link.prev;

    spilled->placed = false;
    head_hole_set(&spill->holes, &spilled->hole, 0, 0);
    pl_list_remove(&spilled->range_link);
    pl_list_remove(&spilled->recent_link);
    hole_look(spill, before);
}

/* The smallest hole that will do; NULL: none will. */
static const struct head_hole *place_find(struct head_spill_host *spill, uint64_t bytes)
{
    return head_hole_find(&spill->holes, bytes, &spill->core->steps);
}

bool head_spill_place_free(struct head_spill_host *spill, uint64_t bytes)
{
    if (spill->home.bytes_live + bytes > spill->config.memory_bytes ||
        !head_spill_room_free(spill, bytes)) {
        return false;
    }
    if (spill->slab == HEAD_SLAB_READY && place_find(spill, bytes) == NULL) {
        (void)head_spill_slab_grow(spill); /* it will be there for the next one */
        return false;
    }
    return true;
}

static bool files_possible(const struct head_spill_host *spill, uint64_t bytes)
{
    return !spill->files_full &&
           bytes <= spill->config.file_bytes -
                        pl_min_u64(spill->config.file_bytes, spill->file_bytes);
}

static bool may_leave(const struct head_spilled *spilled)
{
    return spilled->filled && !spilled->busy &&
           (spilled->pins == 0 || pl_bug("spill.place_held"));
}

/*
 * Let so much leave that `bytes` may come, least recently used first. What is in a file leaves at
 * once, and so does what is on a device, too, if nothing is about to read it here: a file would
 * cost more than copying it again. The rest is written, and leaves when that is done; not while
 * more of the slab is on its way.
 */
static bool let_leave(struct head_spill_host *spill, uint64_t bytes, bool growing)
{
    uint64_t looks = growing || spill->bound > 0 || !pl_list_empty(&spill->requests)
                         ? LOOK_MAX
                         : UINT64_MAX;
    struct pl_list *pos, *tmp;
    uint64_t leaving = 0;
    bool left        = false;

    pl_list_for_each(pos, &spill->requests) { /* these are leaving already */
        const struct head_spill_request *request =
            pl_container_of(pos, struct head_spill_request, link);

        leaving +=
            request->op.kind == HEAD_SPILL_WRITE ? request->buffer->spilled->bytes : 0;
    }
    pl_list_for_each_safe(pos, tmp, &spill->recent) {
        struct head_spilled *spilled =
            pl_container_of(pos, struct head_spilled, recent_link);
        uint64_t size = spilled->bytes;

        if (leaving >= bytes || looks-- == 0) {
            break;
        }
        spill->core->steps++;
        if (!may_leave(spilled)) {
            continue;
        }
        if (spilled->file != 0) {
            leaving += spilled->bytes;
            head_spill_place_leave(spilled);
            left = true;
        } else if (spilled->buffer->uses == 0 &&
                   head_spill_copy_drop(spill->core, spilled->buffer)) {
            leaving += size;
            left = true;
        } else if (!growing && files_possible(spill, spilled->bytes)) {
            leaving += spilled->bytes;
            spill->file_bytes += spilled->bytes;
            head_spill_ask(spill, HEAD_SPILL_WRITE, spilled->buffer, spill->op_last + 1);
        }
    }
    return left;
}

void head_spill_place_take(struct head_spill_host *spill, struct head_spilled *spilled)
{
    const struct head_hole *hole = place_find(spill, spilled->bytes);

    PL_CHECK(hole != NULL);
    place_give(spill, spilled, hole->after, hole->offset);
}

/* The one that would leave first is written; it stays where it is, too. */
static void files_try(struct head_spill_host *spill)
{
    uint64_t room =
        spill->config.file_bytes - pl_min_u64(spill->config.file_bytes, spill->file_bytes);
    const struct pl_list *pos;

    spill->files_tried_ms = spill->core->now_ms;
    pl_list_for_each(pos, &spill->recent) {
        struct head_spilled *spilled =
            pl_container_of(pos, struct head_spilled, recent_link);

        if (may_leave(spilled) && spilled->file == 0 && spilled->bytes <= room) {
            spill->file_bytes += spilled->bytes;
            head_spill_ask(spill, HEAD_SPILL_WRITE, spilled->buffer, spill->op_last + 1);
            spill->files_try       = spill->op_last;
            spill->files_try_bytes = spilled->bytes;
            return;
        }
    }
}

void head_spill_tick(struct head_core *core)
{
    const struct pl_list *pos;

    pl_list_for_each(pos, &core->spill_hosts) {
        struct head_spill_host *spill = pl_container_of(pos, struct head_spill_host, link);

        if (spill->files_full && spill->files_try == 0 && spill->slab == HEAD_SLAB_READY &&
            core->now_ms - spill->files_tried_ms >= FILES_AGAIN_MS) {
            files_try(spill);
        }
    }
}

/* Move the first one down that has a gap before it. false: there is none that may be moved. */
static bool move_together(struct head_spill_host *spill)
{
    struct pl_list *pos;
    uint64_t end = 0;

    pl_list_for_each(pos, &spill->ranges) {
        struct head_spilled *spilled =
            pl_container_of(pos, struct head_spilled, range_link);

        spill->core->steps++;
        if (spilled->offset > end && may_leave(spilled)) {
            head_spill_ask(spill, HEAD_SPILL_MOVE, spilled->buffer, end);
            /* nobody else gets any of it meanwhile */
            spilled->span += spilled->offset - end;
            spilled->offset = end;
            hole_look(spill, pos->prev);
            hole_look(spill, pos);
            return true;
        }
        end = spilled->offset + spilled->span;
    }
    return false;
}

/* So much is free in sum. */
static bool is_in_pieces(const struct head_spill_host *spill, uint64_t bytes)
{
    return bytes <=
           spill->slab_bytes - pl_min_u64(head_spill_memory_used(spill), spill->slab_bytes);
}

enum head_place head_spill_place_make(struct head_spill_host *spill, uint64_t bytes)
{
    if (spill->slab == HEAD_SLAB_FAILED || bytes > spill->config.memory_bytes) {
        return HEAD_PLACE_NONE;
    }
    if (spill->slab == HEAD_SLAB_NONE) {
        head_spill_slab_want(spill);
    }
    if (spill->slab != HEAD_SLAB_READY) {
        return HEAD_PLACE_COMES;
    }
    while (place_find(spill, bytes) == NULL) {
        bool growing = head_spill_slab_grow(spill);

        if (!let_leave(spill, bytes, growing)) {
            return growing || !pl_list_empty(&spill->requests) ||
                           (is_in_pieces(spill, bytes) && move_together(spill))
                       ? HEAD_PLACE_COMES
                       : HEAD_PLACE_NONE;
        }
    }
    return HEAD_PLACE_FREE;
}

/* ----------------------------------------------------------------------------- launches */

static bool copies(const struct head_task *task)
{
    return task->kind == PLASMON__V1__LAUNCH_KIND__LAUNCH_GET_HOST ||
           task->kind == PLASMON__V1__LAUNCH_KIND__LAUNCH_PUT_HOST;
}

void head_spill_queue(struct head_task *task)
{
    struct head_spill_host *spill = task->spilled->device->spill;

    pl_list_add_tail(&spill->queue, &task->spill_link);
    if (task->ahead) {
        spill->write_backs++;
        spill->write_back_bytes += task->spilled->bytes;
    } else if (task->kind == PLASMON__V1__LAUNCH_KIND__LAUNCH_GET_HOST) {
        spill->spills++;
        spill->spill_bytes += task->spilled->bytes;
    } else {
        spill->restores++;
        spill->restore_bytes += task->spilled->bytes;
    }
}

/* Nothing is brought back before its turn: not while a launch before it is unfinished. */
static bool too_early(const struct head_task *task)
{
    return task->kind == PLASMON__V1__LAUNCH_KIND__LAUNCH_PUT_HOST &&
           task->spilled->device->spill->config.on_demand &&
           task->device->seq_oldest < task->seq;
}

bool head_spill_waiting(const struct head_task *task)
{
    return task->spilled != NULL && copies(task) &&
           (!task->bound || task->spilled->spilled->busy || too_early(task));
}

static void place_say(const struct head_spill_host *spill, char out_text[256])
{
    unsigned long long writes = 0, others = 0;
    const struct pl_list *pos;
    char used[32], memory[32];

    pl_list_for_each(pos, &spill->requests) {
        bool write = pl_container_of(pos, struct head_spill_request, link)->op.kind ==
                     HEAD_SPILL_WRITE;

        writes += write;
        others += !write;
    }
    (void)snprintf(out_text, 256,
                   "%s of %s are taken; %llu copies there are under way, the store writes "
                   "%llu values to files and has %llu more to do",
                   pl_format_bytes(head_spill_memory_used(spill), used),
                   pl_format_bytes(spill->config.memory_bytes, memory),
                   (unsigned long long)spill->bound, writes, others);
}

Plasmon__V1__TaskHold head_spill_hold(const struct head_task *task,
                                      const struct head_task **out_first,
                                      char out_text[256])
{
    const struct head_spill_host *spill;
    char memory[32], made[32];

    *out_first  = NULL;
    out_text[0] = '\0';
    if (!head_spill_waiting(task)) {
        return PLASMON__V1__TASK_HOLD__HOLD_NONE;
    }
    spill = task->spilled->device->spill;
    if (task->bound) {
        return task->spilled->spilled->busy ? PLASMON__V1__TASK_HOLD__HOLD_FILE
                                            : PLASMON__V1__TASK_HOLD__HOLD_TURN;
    }
    if (spill->slab != HEAD_SLAB_READY) {
        (void)snprintf(out_text, 256, "%s are to be made",
                       pl_format_bytes(spill->config.memory_bytes, memory));
        return PLASMON__V1__TASK_HOLD__HOLD_SLAB;
    }
    if (spill->slab_growing) {
        (void)snprintf(out_text, 256, "%s of %s are made",
                       pl_format_bytes(spill->slab_bytes, made),
                       pl_format_bytes(spill->config.memory_bytes, memory));
        return PLASMON__V1__TASK_HOLD__HOLD_SLAB;
    }
    if (!pl_list_empty(&spill->queue)) {
        const struct head_task *first =
            pl_list_first(&spill->queue, struct head_task, spill_link);

        if (first != task) {
            *out_first = first;
            return PLASMON__V1__TASK_HOLD__HOLD_QUEUE;
        }
    }
    if (task->spilled->spilled->busy) {
        return PLASMON__V1__TASK_HOLD__HOLD_FILE;
    }
    place_say(spill, out_text);
    return PLASMON__V1__TASK_HOLD__HOLD_PLACE;
}

static void bind(struct head_spill_host *spill, struct head_task *task)
{
    struct head_spilled *spilled = task->spilled->spilled;
    uint64_t offset              = spilled->offset;

    if ((pl_bug("spill.wrong_offset") &&
         task->kind == PLASMON__V1__LAUNCH_KIND__LAUNCH_PUT_HOST) ||
        (pl_bug("spill.ahead_misplaced") && task->ahead)) {
        offset = offset >= spilled->bytes ? offset - spilled->bytes : 0;
    }
    head_launch_place(spill->core, task, spill->slab_buffer, offset);
    task->bound = true;
    spilled->pins++;
    spill->bound++;
    pl_list_remove(&task->spill_link);
    pl_list_remove(&spilled->recent_link);
    pl_list_add_tail(&spill->recent, &spilled->recent_link);
    if (task->ahead) {
        pl_list_add_tail(&spill->ahead, &task->spill_link);
        spill->ahead_bound++;
    }
}

/*
 * Nothing that is under way will make room. A spill leaves its values on their device, and a
 * restore fails: its value stays in its file.
 */
static void give_up(struct head_spill_host *spill, struct head_task *task)
{
    const char *why = spill->slab == HEAD_SLAB_FAILED || spill->files_why == NULL
                          ? spill->slab_why
                          : spill->files_why;
    struct head_failure *failure;
    char want[32], memory[32];
    bool spills = task->kind == PLASMON__V1__LAUNCH_KIND__LAUNCH_GET_HOST;

    why = why != NULL ? why : "";
    pl_list_remove(&task->spill_link);
    failure = head_failure_create(
        PLASMON_EDEVMEM, 0, 0,
        "%s on device %u of %s: no room for %s in the host memory for spilling (%s)%s%s; "
        "release some refs, or give plasmon-store more --spill-memory or another "
        "--spill-dir",
        spills ? "spill" : "restore", task->device->index, spill->home.node,
        pl_format_bytes(task->spilled->spilled->bytes, want),
        pl_format_bytes(spill->config.memory_bytes, memory), why[0] != '\0' ? ": " : "",
        why);
    if (spills) { /* why, was said when the disk was full, or the slab not made */
        pl_debug("head", "%s; the value stays on its device", failure->text);
        head_spill_undo(spill->core, task, failure);
    } else {
        pl_warn("head", "%s", failure->text);
        head_task_doom(spill->core, task, failure);
    }
    head_failure_release(failure);
}

/* true: it is out of the queue. */
static bool bind_next(struct head_spill_host *spill, struct head_task *task)
{
    struct head_spilled *spilled = task->spilled->spilled;
    const struct head_hole *hole;

    if (!copies(task) || task->finished) { /* it is skipped */
        pl_list_remove(&task->spill_link);
        return true;
    }
    if (spill->slab == HEAD_SLAB_FAILED) {
        give_up(spill, task);
        return true;
    }
    if (spill->slab != HEAD_SLAB_READY || spilled->busy) {
        return false; /* the store will answer */
    }
    if (!spilled->placed) {
        while ((hole = place_find(spill, spilled->bytes)) == NULL) {
            bool growing = head_spill_slab_grow(spill);

            if (let_leave(spill, spilled->bytes, growing)) {
                continue;
            }
            if (growing || !pl_list_empty(&spill->requests) || spill->bound > 0 ||
                move_together(spill)) {
                return false; /* some of that will end */
            }
            give_up(spill, task);
            return true;
        }
        place_give(spill, spilled, hole->after, hole->offset);
        if (spilled->file != 0) {
            head_spill_ask(spill, HEAD_SPILL_READ, spilled->buffer, spilled->file);
        }
    }
    bind(spill, task);
    return true;
}

void head_spill_bind(struct head_core *core)
{
    struct pl_list *pos;

    pl_list_for_each(pos, &core->spill_hosts) {
        struct head_spill_host *spill = pl_container_of(pos, struct head_spill_host, link);

        if (spill->slab == HEAD_SLAB_NONE && !pl_list_empty(&spill->queue)) {
            head_spill_slab_want(spill); /* the store that was asked for it died with it */
        }
        while (
            !pl_list_empty(&spill->queue) &&
            bind_next(spill, pl_list_first(&spill->queue, struct head_task, spill_link))) {
        }
    }
}

void head_spill_task_over(struct head_core *core, struct head_task *task)
{
    struct head_spill_host *spill = task->spilled->device->spill;
    struct head_spilled *spilled  = task->spilled->spilled;

    (void)core;
    pl_list_remove(&task->spill_link);
    if (!task->bound) {
        return;
    }
    task->bound = false;
    spilled->pins--;
    spill->bound--;
    spill->ahead_bound -= task->ahead;
    if (task->kind == PLASMON__V1__LAUNCH_KIND__LAUNCH_GET_HOST && task->failure == NULL) {
        spilled->filled = true;
        head_buffer_seconds_loosen(task->spilled);
    }
}
