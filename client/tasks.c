/*
 * Tasks that have not ended, what they will write, and how failures spread. See refs.h for the rules.
 *
 * A resolved task costs: one look-up in its block, one unlink a write, one free-list push. Nothing
 * is searched, and no text is made unless it failed.
 */
#include "client/refs.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "client/host.h"

#define TASKS_FREE_MAX 16384u

/* ------------------------------------------------------------------------------- blocks */

static uint64_t block_first(uint64_t id)
{
    /* ids start at 1, blocks follow each other */
    return (id - 1) / REFS_BLOCK * REFS_BLOCK + 1;
}

static struct task_block *block_find(struct refs *refs, uint64_t id)
{
    uint64_t first = block_first(id);

    if (refs->block_last == NULL || refs->block_last->first != first) {
        struct task_block *block = pl_map_get(&refs->blocks, first);

        if (block == NULL) {
            return NULL;
        }
        refs->block_last = block;
    }
    return refs->block_last;
}

static struct task_block *block_get(struct refs *refs, uint64_t id)
{
    struct task_block *block = block_find(refs, id);

    if (block != NULL) {
        return block;
    }
    block = PL_NEW(struct task_block);
    if (block == NULL) {
        return NULL;
    }
    block->first = block_first(id);
    if (pl_map_set(&refs->blocks, block->first, block) != PLASMON_OK) {
        pl_free(block);
        return NULL;
    }
    return block;
}

static void block_remove(struct refs *refs, struct task_block *block)
{
    (void)pl_map_remove(&refs->blocks, block->first);
    if (refs->block_last == block) {
        refs->block_last = NULL;
    }
    pl_free(block);
}

/* A block goes when nothing in it lives, unless ids of it are still to be given out. */
static void block_reap(struct refs *refs, struct task_block *block)
{
    bool drawing =
        block->first + REFS_BLOCK == refs->task_end && refs->task_next != refs->task_end;

    if (block->live == 0 && !drawing) {
        block_remove(refs, block);
    }
}

/* What is left of the present block is not given out any more. */
uint64_t refs_draw_tasks(struct refs *refs, uint32_t count)
{
    uint64_t left = refs->task_end - refs->task_next;
    struct task_block *last;
    uint64_t first;

    if (left < count) {
        last            = left == 0 ? NULL : block_find(refs, refs->task_next);
        refs->task_next = refs->id_next;
        refs->id_next += (count + (uint64_t)REFS_BLOCK - 1) / REFS_BLOCK * REFS_BLOCK;
        refs->task_end = refs->id_next;
        if (last != NULL) {
            block_reap(refs, last);
        }
    }
    first = refs->task_next;
    refs->task_next += count;
    return first;
}

/* -------------------------------------------------------------------------------- tasks */

/* Behind `where`, a write of the same root or its list. */
static void write_attach(struct root *root, struct write *write, struct pl_list *where)
{
    parts_add(&root->writes, &root->shape, &write->part, where);
}

static void write_detach(struct write *write)
{
    struct root *root = write->root;

    if (root == NULL) {
        return;
    }
    write->root = NULL;
    parts_remove(&root->writes, &write->part);
}

struct task_text *task_text_hold(struct task_text *text)
{
    text->held_count++;
    return text;
}

void task_text_release(struct task_text *text)
{
    if (text != NULL && --text->held_count == 0) {
        pl_free(text);
    }
}

static void task_free(struct refs *refs, struct task *task)
{
    for (struct write *write = task->writes, *next; write != NULL; write = next) {
        next = write->next;
        if (write != &task->first) {
            pl_free(write);
        }
    }
    pl_free(task->label);
    task_text_release(task->text);
    host_use_end(task->host_use);

    if (refs->tasks_free_count < TASKS_FREE_MAX) {
        task->next_free  = refs->tasks_free;
        refs->tasks_free = task;
        refs->tasks_free_count++;
    } else {
        pl_free(task);
    }
}

struct task *task_create(struct refs *refs, uint64_t id, const char *what,
                         const char *label)
{
    struct task *task = refs->tasks_free;
    char *label_copy  = NULL;

    if (block_get(refs, id) == NULL) {
        return NULL;
    }
    if (label != NULL && label[0] != '\0') {
        label_copy = pl_strdup(label);
        if (label_copy == NULL) {
            return NULL;
        }
    }
    if (task != NULL) {
        refs->tasks_free = task->next_free;
        refs->tasks_free_count--;
    } else {
        task = PL_NEW(struct task);
        if (task == NULL) {
            pl_free(label_copy);
            return NULL;
        }
    }

    task->id         = id;
    task->what       = what;
    task->text       = NULL;
    task->label      = label_copy;
    task->writes     = NULL;
    task->first_used = false;
    task->host_use   = NULL;
    task->foreign    = false;
    return task;
}

/* box NULL: the whole. */
static struct write *task_new_write(struct task *task, const struct pl_box *box)
{
    struct write *write = &task->first;

    if (task->first_used) {
        write = PL_NEW(struct write);
        if (write == NULL) {
            return NULL;
        }
    }
    task->first_used = true;
    write->task      = task;
    write->root      = NULL;
    part_init(&write->part, box);
    return write;
}

plasmon_status_t task_writes(struct task *task, struct root *root, const struct pl_box *box,
                             enum write_effect effect)
{
    struct write *write = task_new_write(task, box), **end = &task->writes;

    if (write == NULL) {
        return PLASMON_ENOMEM;
    }
    write->root   = root;
    write->effect = effect;
    write->next   = NULL;
    while (*end != NULL) {
        end = &(*end)->next;
    }
    *end = write;
    return PLASMON_OK;
}

void task_abandon(struct refs *refs, struct task *task)
{
    task_free(refs, task); /* its writes are in no list yet */
}

static bool covered(const struct part *part, const struct part *by)
{
    return by->whole || (!part->whole && pl_box_contains(&by->box, &part->box));
}

/*
 * What is left of an older write beside `box`: it goes on as one write a piece. Out of memory: it
 * stays whole, which is safe.
 */
static void write_cut(struct write *write, const struct pl_box *from,
                      const struct pl_box *box)
{
    struct pl_box pieces[2 * PL_DIM_MAX];
    unsigned count = pl_box_subtract(from, box, pieces);

    if (count == 0) {
        write_detach(write);
        return;
    }
    for (unsigned i = 1; i < count; i++) {
        struct write *more = task_new_write(write->task, &pieces[i]);

        if (more == NULL) {
            return;
        }
        more->root   = write->root;
        more->effect = write->effect;
        more->next   = write->next;
        write->next  = more;
        write_attach(write->root, more, &write->part.link);
    }
    parts_move(&write->root->writes, &write->root->shape, &write->part, &pieces[0]);
}

static void supersede_write(void *user, struct part *part)
{
    const struct write *newer = user;
    struct write *older       = pl_container_of(part, struct write, part);

    if (covered(part, &newer->part)) {
        write_detach(older);
    } else if (newer->effect == WRITE_OVERWRITES) {
        struct pl_box box = part_box(part, &newer->root->shape);

        if (pl_box_intersects(&box, &newer->part.box)) {
            write_cut(older, &box, &newer->part.box);
        }
    }
}

static const struct pl_box *box_of(const struct write *write)
{
    return write->part.whole ? NULL : &write->part.box;
}

/* `newer` was submitted: older writes that the present version no longer depends on leave the list. */
static void supersede_writes(struct root *root, struct write *newer)
{
    parts_each(&root->writes, &root->shape, box_of(newer), supersede_write, newer);
}

/* ------------------------------------------------------------ what of a root has failed */

bool root_failure_add(struct root *root, const struct pl_box *box, struct failure *failure)
{
    struct root_failure *failed = PL_NEW(struct root_failure);

    if (failed == NULL) {
        return false;
    }
    failed->failure = failure_hold(failure);
    part_init(&failed->part, box);
    parts_add(&root->failures, &root->shape, &failed->part, &root->failures.list);
    return true;
}

static void failure_forget(struct root *root, struct root_failure *failed)
{
    parts_remove(&root->failures, &failed->part);
    failure_release(failed->failure);
    pl_free(failed);
}

void root_failures_drop(struct root *root)
{
    struct pl_list *at, *next;

    pl_list_for_each_safe(at, next, &root->failures.list) {
        failure_forget(root, pl_container_of(at, struct root_failure, part.link));
    }
}

void root_failures_replace(struct root *root, const struct failure *old,
                           struct failure *failure)
{
    struct pl_list *at;

    pl_list_for_each(at, &root->failures.list) {
        struct root_failure *failed = pl_container_of(at, struct root_failure, part.link);

        if (failed->failure == old) {
            failure_release(failed->failure);
            failed->failure = failure_hold(failure);
        }
    }
}

struct root_failure *root_failure_at(const struct root *root, const struct pl_box *box)
{
    struct part *part = parts_find(&root->failures, &root->shape, box);

    return part != NULL ? pl_container_of(part, struct root_failure, part) : NULL;
}

struct superseding {
    struct root *root;
    const struct pl_box *box;
};

/* What is left of it beside the box has failed as before. */
static void supersede_failure(void *user, struct part *part)
{
    struct root_failure *failed  = pl_container_of(part, struct root_failure, part);
    const struct superseding *by = user;
    struct pl_box from           = part_box(part, &by->root->shape);
    struct pl_box pieces[2 * PL_DIM_MAX];
    unsigned count;

    if (!pl_box_intersects(&from, by->box)) {
        return;
    }
    count = pl_box_subtract(&from, by->box, pieces);
    for (unsigned k = 0; k < count; k++) {
        /* Out of memory: the state is told by the tasks that read it. */
        (void)!root_failure_add(by->root, &pieces[k], failed->failure);
    }
    failure_forget(by->root, failed);
}

/* The box (NULL: all of it) is written anew, or fails anew: older failures no longer speak for it. */
static void supersede_failures(struct root *root, const struct pl_box *box)
{
    struct superseding by = {.root = root, .box = box};

    if (box == NULL) {
        root_failures_drop(root);
    } else {
        parts_each(&root->failures, &root->shape, box, supersede_failure, &by);
    }
}

/* ---------------------------------------------------------------------------- submitted */

void task_commit(struct refs *refs, struct task *task)
{
    struct task_block *block = block_find(refs, task->id);

    assert(block != NULL);
    assert(block->task[task->id - block->first] == NULL);
    block->task[task->id - block->first] = task;
    block->live++;
    refs->tasks_live += !task->foreign;

    for (struct write *write = task->writes; write != NULL; write = write->next) {
        struct root *root = write->root;

        root_new_version(refs, root);
        if (write->effect != WRITE_ADDS) {
            supersede_writes(root, write);
        }
        if (write->effect == WRITE_OVERWRITES) {
            supersede_failures(root, box_of(write));
        }
        write_attach(root, write, root->writes.list.prev);
    }
}

/* ----------------------------------------------------------------------------- failures */

/* For when even the text of a failure cannot be made. Shared by all; never counted, never freed. */
#define HELD_FOREVER UINT32_MAX
static struct failure failure_no_memory = {
    .held_count = HELD_FOREVER,
    .status     = PLASMON_ENOMEM,
    .text       = (char *)"out of host memory while a failure was recorded",
};

static struct failure *failure_try(plasmon_status_t status, uint64_t task, const char *text)
{
    struct failure *failure = PL_NEW(struct failure);

    if (failure == NULL) {
        return NULL;
    }
    failure->text = pl_strdup(text);
    if (failure->text == NULL) {
        pl_free(failure);
        return NULL;
    }
    failure->held_count = 1;
    failure->status     = status;
    failure->task       = task;
    return failure;
}

struct failure *failure_create(plasmon_status_t status, uint64_t task, const char *text)
{
    struct failure *failure = failure_try(status, task, text);

    return failure != NULL ? failure : &failure_no_memory;
}

struct failure *failure_hold(struct failure *failure)
{
    if (failure->held_count != HELD_FOREVER) {
        failure->held_count++;
    }
    return failure;
}

void failure_release(struct failure *failure)
{
    if (failure == NULL || failure->held_count == HELD_FOREVER) {
        return;
    }
    assert(failure->held_count > 0);
    failure->held_count--;
    if (failure->held_count == 0) {
        pl_free(failure->text);
        pl_free(failure);
    }
}

static const struct failure *recent_find(const struct refs *refs, uint64_t task)
{
    for (size_t i = 0; i < PL_COUNT(refs->recent); i++) {
        if (refs->recent[i] != NULL && refs->recent[i]->task == task) {
            return refs->recent[i];
        }
    }
    return NULL;
}

static void recent_add(struct refs *refs, struct failure *failure)
{
    struct failure **place = &refs->recent[refs->recent_next++ % PL_COUNT(refs->recent)];

    failure_release(*place);
    *place = failure_hold(failure);
}

/*
 * What follows in a text that begins with this name, " on device 2 failed: .."; NULL: it begins
 * with something else.
 */
static const char *behind(const char *text, const char *name)
{
    size_t length = strlen(name);

    return text != NULL && strncmp(text, name, length) == 0 && text[length] == ' '
               ? text + length
               : NULL;
}

struct failure *refs_describe_failure(struct refs *refs, uint64_t task_id,
                                      plasmon_status_t status, const char *text,
                                      uint64_t first_task)
{
    struct task_block *block = block_find(refs, task_id);
    struct task *task        = block != NULL ? block->task[task_id - block->first] : NULL;
    const struct failure *first;
    struct failure *failure;
    uint32_t name_length;
    const char *rest;
    struct pl_str out;

    pl_str_init(&out);
    if (task != NULL && task->foreign) {
        pl_str_append(&out, "%s", task->what);
    } else {
        pl_str_append(&out, "task %llu", (unsigned long long)task_id);
    }
    if (task != NULL && task->label != NULL) {
        pl_str_append(&out, " '%s'", task->label);
    }
    rest = behind(text, pl_str_text(&out));
    if (task != NULL && !task->foreign) {
        pl_str_append(&out, " (%s)", task->what);
    }
    name_length = (uint32_t)out.length;
    if (rest != NULL) {
        pl_str_append(&out, "%s", rest);
    } else {
        pl_str_append(&out, " failed: %s",
                      text != NULL && text[0] != '\0' ? text : pl_status_text(status));
    }
    if (first_task != 0 && first_task != task_id) {
        first = recent_find(refs, first_task);
        if (first != NULL) {
            pl_str_append(&out, "; the first failing task is %.*s", (int)first->name_length,
                          first->text);
        } else {
            pl_str_append(&out, "; the first failing task is task %llu",
                          (unsigned long long)first_task);
        }
    }

    failure = failure_create(status, task_id, pl_str_text(&out));
    if (failure->held_count != HELD_FOREVER) {
        failure->name_length = name_length;
        failure->foreign     = task != NULL && task->foreign;
    }
    pl_str_finish(&out);
    recent_add(refs, failure);
    return failure;
}

static void root_fail(struct root *root, const struct write *write, struct failure *failure)
{
    supersede_failures(root, box_of(write));
    /* Out of memory: a get still fails, by the head's word. */
    (void)!root_failure_add(root, box_of(write), failure);
}

plasmon_status_t root_inherit(struct root *copy, const struct root *from,
                              const struct pl_box *box)
{
    const struct root_failure *failed;
    const struct pl_list *at;

    pl_list_for_each(at, &from->writes.list) {
        struct write *write = pl_container_of(at, struct write, part.link), *more;

        if (!part_touches(&write->part, box)) {
            continue;
        }
        /* Of the whole copy, which has coordinates of its own. */
        more = task_new_write(write->task, NULL);
        if (more == NULL) {
            return PLASMON_ENOMEM; /* root_drop() undoes what was linked */
        }
        more->root   = copy;
        more->effect = WRITE_ADDS;
        more->next   = write->next;
        write->next  = more;
        write_attach(copy, more, copy->writes.list.prev);
    }
    failed = root_failure_at(from, box);
    if (failed != NULL && !root_failure_add(copy, NULL, failed->failure)) {
        return PLASMON_ENOMEM;
    }
    return PLASMON_OK;
}

/* ---------------------------------------------------------------------------- resolving */

static void task_end(struct refs *refs, struct task *task, struct failure *failure)
{
    for (struct write *write = task->writes; write != NULL; write = write->next) {
        struct root *root = write->root;

        if (root == NULL) {
            continue;
        }
        if (failure != NULL) {
            root_fail(root, write, failure);
        }
        write_detach(write);
        root_watches_check(refs, root, box_of(write));
    }
    refs->tasks_live -= !task->foreign;
    refs->resolved_count++;
    task_free(refs, task);
}

void refs_resolve(struct refs *refs, uint64_t task_id, struct failure *failure)
{
    struct task_block *block = task_id == 0 ? NULL : block_find(refs, task_id);
    struct task *task;

    if (block == NULL || block->task[task_id - block->first] == NULL) {
        return;
    }
    task                                = block->task[task_id - block->first];
    block->task[task_id - block->first] = NULL;
    block->live--;
    task_end(refs, task, failure);
    block_reap(refs, block);
}

static void resolve_in_block(struct refs *refs, struct task_block *block, uint64_t first,
                             uint64_t last)
{
    for (uint64_t id = first; id <= last && block->live > 0; id++) {
        struct task *task = block->task[id - block->first];

        if (task != NULL) {
            block->task[id - block->first] = NULL;
            block->live--;
            task_end(refs, task, NULL);
        }
    }
    block_reap(refs, block);
}

void refs_resolve_range(struct refs *refs, uint64_t first, uint64_t count)
{
    uint64_t last = pl_min_u64(first + (count - 1),
                               refs->id_next); /* a claim beyond it is about nothing */

    assert(first > 0 && count > 0);
    for (uint64_t at = first; at <= last; at = block_first(at) + REFS_BLOCK) {
        struct task_block *block = block_find(refs, at);

        if (block != NULL) {
            resolve_in_block(refs, block, at,
                             pl_min_u64(last, block->first + REFS_BLOCK - 1));
        }
    }
}

static struct task_block *any_block(struct refs *refs)
{
    size_t index = 0;
    uint64_t key;
    void *value;

    return pl_map_next(&refs->blocks, &index, &key, &value) ? value : NULL;
}

void refs_fail_all(struct refs *refs, plasmon_status_t status, const char *text)
{
    struct failure *failure = failure_create(status, 0, text);
    struct task_block *block;

    while ((block = any_block(refs)) != NULL) {
        for (uint32_t i = 0; i < REFS_BLOCK && block->live > 0; i++) {
            struct task *task = block->task[i];

            if (task != NULL) {
                block->task[i] = NULL;
                block->live--;
                task_end(refs, task, failure);
            }
        }
        block_remove(refs, block);
    }
    failure_release(failure);
}

void tasks_finish(struct refs *refs)
{
    refs_fail_all(refs, PLASMON_ECLOSED, "the client has ended");
    for (struct task *task = refs->tasks_free, *next; task != NULL; task = next) {
        next = task->next_free;
        pl_free(task);
    }
    refs->tasks_free = NULL;
    pl_map_finish(&refs->blocks);
    for (size_t i = 0; i < PL_COUNT(refs->recent); i++) {
        failure_release(refs->recent[i]);
    }
}
