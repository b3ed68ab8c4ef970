/*
 * What the client knows of its refs and tasks: handles, roots, and who will still write what.
 *
 *   slot    behind a handle (struct plasmon_ref *): which part of which root it shows. A handle is
 *           not a pointer but a slot number, a generation and the client's tag, so that a second
 *           release and a ref of another client are found out and never touch freed memory.
 *   root    one array, or one task (a future without bytes). Lives as long as a handle shows it.
 *   task    one submitted call, until the head says how it ended. Knows what it writes. A foreign
 *           one stands for all that others were yet to write into what was looked up.
 *   write   this task will write this box of this root. In the root's list while it matters for the
 *           present version.
 *
 * READINESS
 *
 * A ref names the present version. It is failed if a failure covers a part of what it shows; else
 * pending while a write in the root's list touches it; else ready. A later task that overwrites a
 * box (OUT, every element) takes that box out of the older writes and failures: the present version
 * does not depend on them. An INOUT depends on all that it touches, so it takes over for older
 * writes inside its box: a chain of a million INOUTs is one write.
 *
 * Boxes are hulls: two interleaved strided views count as overlapping, here as in the head.
 *
 * Threads: everything under the client's lock.
 */
#ifndef CLIENT_REFS_H
#define CLIENT_REFS_H

#include <stdbool.h>

#include "base/box.h"
#include "base/list.h"
#include "base/lock.h"
#include "base/map.h"
#include "client/parts.h"
#include "base/vec.h"
#include "kernels/kernels.h"
#include "plasmon/plasmon.h"

struct refs;
struct host_use;

/* How a task failed; shared by all that it made fail. */
struct failure {
    uint32_t held_count;
    plasmon_status_t status;
    uint64_t task;
    bool foreign;         /* the task is */
    char *text;           /* never NULL; begins with the task's name .. */
    uint32_t name_length; /* .. of this length */
};

/*
 * A snapshot of a view keeps the coordinates of what it was taken from: that is how the head tells
 * where its bytes are.
 */
struct root_base {
    struct pl_shape shape;
    struct pl_view view; /* what of it the root is */
};

/* By a recording that was thrown away: the head knows of no such ref. */
#define ROOT_NEVER_RECORDED UINT64_MAX

struct root {
    uint64_t id;
    struct pl_shape shape;
    struct root_base *base; /* NULL: its own coordinates */
    bool is_task; /* a future: id is the task's, no bytes, nothing to release at the head */
    /* the graph whose recording makes it, while that goes on; 0: none; or ROOT_NEVER_RECORDED */
    uint64_t recording;
    bool is_snapshot; /* its release may let an INOUT work in place: it is sent at once */
    uint32_t handle_count; /* slots that show it */
    struct parts writes;   /* struct write.part, in submission order */
    struct pl_list watches;
    struct parts failures; /* struct root_failure.part, the newest first */
    uint64_t version;      /* counts the tasks that were submitted to write it */
    uint8_t *value; /* its bytes in this version, when they are few and known; else NULL */
    struct pl_list all; /* in refs->roots, or refs->roots_free */
};

struct root_failure {
    struct part part; /* in root->failures */
    struct failure *failure;
};

enum write_effect {
    WRITE_ADDS,       /* one of several: put chunks, REDUCE, a strided OUT */
    WRITE_OVERWRITES, /* every element of its box, whatever was there */
    WRITE_UPDATES,    /* INOUT: depends on all that it touches */
};

struct write {
    struct part part;   /* in root->writes */
    struct root *root;  /* NULL: it no longer matters to anyone */
    struct write *next; /* of the same task */
    struct task *task;
    enum write_effect effect;
};

/* What a task is, where that is no constant text; shared by the launches of a graph. */
struct task_text {
    uint32_t held_count;
    char text[160];
};

struct task {
    uint64_t id;
    /* "put", "snapshot", or the function's name; constant text, or in .. */
    const char *what;
    struct task_text *text; /* .. this: held; NULL: none */
    char *label;            /* NULL: none */
    struct write *writes;
    struct write first; /* most tasks write one thing: no second allocation */
    bool first_used;
    struct host_use *host_use; /* of client/host.h: ends with the task; NULL: none */
    /*
     * it stands for what another client is to write: not ours to wait for at the end, or to cancel
     */
    bool foreign;
    struct task *next_free;
};

struct ref_slot {
    struct root *root;    /* NULL: free */
    struct pl_view *view; /* NULL: the whole */
    uint32_t generation;
    uint32_t next_free;
};

/* Somebody who waits for a part of a root: plasmon_wait(), or plasmon_on_ready(). */
struct waiter {
    struct pl_cond cond;
    uint32_t resolved;
    uint32_t need;
};
struct watch {
    struct pl_list link; /* in root->watches, then (callbacks) in refs->callbacks */
    struct root *root;
    bool whole;
    struct pl_box hull;
    plasmon_status_t status; /* PLASMON_INPROGRESS until it is decided */
    /* of a waiter's watch, once decided so; held until watch_stop() */
    struct failure *failure;
    struct waiter *waiter; /* or */
    plasmon_ready_fn fn;
    void *user;
};

/* ids are drawn in blocks, one for tasks and one for refs, so that ranges of each merge */
#define REFS_BLOCK     1024u
#define REFS_TAG_BITS  12
#define REFS_GEN_BITS  24
#define REFS_SLOT_BITS 28

struct task_block {
    uint64_t first;
    uint32_t live; /* tasks in it that have not ended */
    struct task *task[REFS_BLOCK];
};

struct refs {
    uint32_t tag; /* of the client, in each handle */

    uint64_t id_next; /* of the next block */
    uint64_t task_next, task_end;
    uint64_t ref_next, ref_end;

    struct pl_vec slot_chunks; /* struct ref_slot * of REFS_BLOCK each */
    uint32_t slot_free;        /* index + 1 */
    uint32_t slot_count;

    struct pl_map blocks;          /* first id -> struct task_block */
    struct task_block *block_last; /* the one that was asked for last */
    struct task *tasks_free;
    uint32_t tasks_free_count;
    struct pl_list roots;
    struct pl_list roots_free;
    uint32_t roots_free_count;
    uint64_t tasks_live;     /* without foreign ones */
    uint64_t value_bytes;    /* of all roots' values */
    uint64_t resolved_count; /* tasks that ended, for ready_fd */

    /* watches with fn that are decided: called without the lock */
    struct pl_list callbacks;
    struct failure *recent[64]; /* so that "first failing task" can be told with its text */
    uint32_t recent_next;
};

void refs_init(struct refs *refs, uint32_t tag);
void refs_finish(struct refs *refs);

/* --- ids */
uint64_t refs_draw_task(struct refs *refs);
uint64_t refs_draw_ref(struct refs *refs);
/* The first of `count` ids in a row. */
uint64_t refs_draw_tasks(struct refs *refs, uint32_t count);

/* --- handles. err texts say what is wrong: ERELEASED, EFOREIGN, EINVAL (NULL) */
plasmon_status_t refs_find(struct refs *refs, struct plasmon_ref *handle,
                           struct ref_slot **out_slot, struct pl_err *err) PL_MUST_CHECK;
/* A new handle of `root` (counted). view is copied; NULL: the whole. NULL: out of memory. */
struct plasmon_ref *refs_open(struct refs *refs, struct root *root,
                              const struct pl_view *view) PL_MUST_CHECK;
/* true: it was the root's last, and *out_root_id, unless 0, must be released at the head. */
bool refs_close(struct refs *refs, struct plasmon_ref *handle, struct ref_slot *slot,
                uint64_t *out_root_id, bool *out_at_once);
struct pl_view slot_view(const struct ref_slot *slot);
struct pl_shape slot_shape(const struct ref_slot *slot);
/* What to ask root_state() for: the view's hull in *storage, or NULL for the whole. */
const struct pl_box *slot_box(const struct ref_slot *slot, struct pl_box *storage);

/* --- roots. A root without a handle is not yet alive: give it one or root_drop() it. */
struct root *root_create(struct refs *refs, uint64_t id, const struct pl_shape *shape)
    PL_MUST_CHECK; /* shape NULL: a task */
void root_drop(struct refs *refs, struct root *root);
/* It was made before its shape was known, as a task. */
void root_shape_set(struct root *root, const struct pl_shape *shape);
/* It has failed so, until something overwrites it. */
plasmon_status_t root_begin_failed(struct root *root,
                                   struct failure *failure) PL_MUST_CHECK;
/* Where the head has it: the view in the head's coordinates, and the shape that these are of. */
void slot_place(const struct ref_slot *slot, struct pl_shape *out_shape,
                struct pl_view *out_view);
/* `copy` shows what `from` shows of `box` now: it waits for the same tasks and has the same failures. */
plasmon_status_t root_inherit(struct root *copy, const struct root *from,
                              const struct pl_box *box) PL_MUST_CHECK;
/*
 * Keep a copy of its bytes (all of them), which are right for its present version, until it is
 * written or goes. Large ones, and more than VALUES_BYTES_MAX in all, are not kept.
 */
#define VALUE_BYTES_MAX  1024u
#define VALUES_BYTES_MAX (16u << 20)
void root_keep_value(struct refs *refs, struct root *root, const void *bytes);
/* OK ready, INPROGRESS, or *out_failure's status (out may be NULL; borrowed). box NULL: the whole. */
plasmon_status_t root_state(const struct root *root, const struct pl_box *box,
                            struct failure **out_failure);
/* The newest task that has yet to write into the box; NULL: none. */
const struct task *root_writer(const struct root *root, const struct pl_box *box);
/*
 * Is it pending or failed by a foreign task? That is said of all of it alike: who reads a part asks
 * the head, which knows more.
 */
bool root_foreign(const struct root *root, const struct pl_box *box);

/* --- tasks: create, say what it writes and whose it is, then commit (cannot fail) or abandon */
struct task_text *task_text_hold(struct task_text *text);
void task_text_release(struct task_text *text); /* NULL: nothing */
struct task *task_create(struct refs *refs, uint64_t id, const char *what,
                         const char *label) PL_MUST_CHECK;
/* box NULL: the whole. */
plasmon_status_t task_writes(struct task *task, struct root *root, const struct pl_box *box,
                             enum write_effect effect) PL_MUST_CHECK;
void task_commit(struct refs *refs, struct task *task);
void task_abandon(struct refs *refs, struct task *task);
/*
 * The head's word: the task ended. failure NULL: well. Unknown ids are ignored (told twice after a
 * resume).
 */
void refs_resolve(struct refs *refs, uint64_t task_id, struct failure *failure);
/* All of [first, first + count) ended well. Costs what is live of it, however long it claims to be. */
void refs_resolve_range(struct refs *refs, uint64_t first, uint64_t count);
/* Every task that has not ended fails so: the session is dead. */
void refs_fail_all(struct refs *refs, plasmon_status_t status, const char *text);

/* Never NULL: without memory it is a constant that says so. */
struct failure *failure_create(plasmon_status_t status, uint64_t task,
                               const char *text) PL_MUST_CHECK;
struct failure *failure_hold(struct failure *failure);
void failure_release(struct failure *failure);
/*
 * Text for a task's end: "task 12 'label' (gemm) failed: ..."; with the first failing task, where
 * that is another.
 */
struct failure *refs_describe_failure(struct refs *refs, uint64_t task_id,
                                      plasmon_status_t status, const char *text,
                                      uint64_t first_task);

/* --- watches (watch.c) */
/* Wait for it; if it is decided already it is not linked and its status says so. */
void watch_start(struct watch *watch, struct root *root, const struct pl_box *box);
void watch_stop(struct watch *watch); /* fine if decided; its failure goes */

/* --- between refs.c, tasks.c and watch.c */
/* A write of `box` (NULL: of all of it) was decided: only who waits for a part of that can know more now. */
void root_watches_check(struct refs *refs, struct root *root, const struct pl_box *box);
void root_new_version(struct refs *refs,
                      struct root *root); /* a task that writes it was submitted */
/* One more; box NULL: of all of it. false: out of memory. */
bool root_failure_add(struct root *root, const struct pl_box *box,
                      struct failure *failure) PL_MUST_CHECK;
void root_failures_drop(struct root *root); /* all of them */
/* What has failed with `old` has failed with that. */
void root_failures_replace(struct root *root, const struct failure *old,
                           struct failure *failure);
/* One that meets the box (NULL: any); of few, the newest. NULL: none. */
struct root_failure *root_failure_at(const struct root *root, const struct pl_box *box);
void tasks_finish(struct refs *refs);
void root_watches_release(struct refs *refs,
                          struct root *root); /* the root ends: ERELEASED to who waits */

#endif
