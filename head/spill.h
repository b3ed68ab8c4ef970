/*
 * Memory in plan order, and what lies in host memory and in files because devices are full.
 * docs/memory.md has the argument.
 *
 *   spill.c         the plan: making room on a device before a launch is numbered, spilling, bringing back
 *   lookahead.c     what the tasks of a frame are about to read, so that it does not go
 *   write_back.c    copying to host memory before there is need
 *   spill_host.c    a host: how much it takes, and which buffers have a copy there
 *   spill_places.c  its slab: where in it they lie, and the launches that need them there;
 *                   spill_holes.c what is free
 *   spill_store.c   what its store is asked to do, and answers
 *   spill_undo.c    taking back a spill that finds no place
 *   relief.c        for a launch that finds no memory: dropping, and copying to host memory beside
 *                   the launches
 *   excess.c        holding, or refusing, what makes a value that there is no room for
 *
 * A spilled buffer is a head_buffer like any other, with instances and uses, on a device that is
 * none: `home` of its host's head_spill_host. So hazards order a spill before the restores that
 * read it, and it goes when nobody needs it, by the rules that there are (object.c, hazard.c). What
 * differs is in head_spilled: where its bytes are.
 */
#ifndef HEAD_SPILL_H
#define HEAD_SPILL_H

#include "head/core.h"
#include "head/device.h"
#include "head/object.h"
#include "head/spill_holes.h"

struct head_launch;
struct head_run;

enum head_slab_state { HEAD_SLAB_NONE, HEAD_SLAB_ASKED, HEAD_SLAB_READY, HEAD_SLAB_FAILED };

/*
 * Where a spilled buffer is:
 *
 *   nowhere -> in the slab (its spill is bound) -> filled (the spill is done) -> also in a file
 *           -> in the file only -> both again ...
 *
 * `placed` and `file` are independent: a copy in a file stays right, for the bytes never change.
 */
struct head_spilled {
    struct head_buffer *buffer;
    uint64_t bytes;  /* that it takes in the slab */
    bool placed;     /* it has these bytes of the slab, from .. */
    uint64_t offset; /* .. here on */
    /* what is taken from there on: `bytes`, and while it is moved down, where it was, too */
    uint64_t span;
    bool filled;                /* the spill is done: the bytes are there, or in the file */
    uint32_t pins;              /* bound launches that are not over */
    uint64_t file;              /* its number at the store; 0: none */
    bool busy;                  /* the store writes it, reads it or moves it */
    struct pl_list range_link;  /* head_spill_host.ranges */
    struct head_hole hole;      /* placed: what is free behind it */
    struct pl_list recent_link; /* head_spill_host.recent */
};

/* What the store was asked and has not answered. */
struct head_spill_request {
    struct head_spill_op op;
    struct head_buffer *buffer; /* held; NULL: SLAB, FORGET */
    struct pl_list link;
};

struct head_spill_host {
    struct head_core *core;
    struct head_device home; /* host, node and buffers alone mean something */
    struct head_spill_config config;
    /* made when something is to go there first, of config.memory_bytes */
    enum head_slab_state slab;
    uint64_t slab_bytes;     /* READY: so much of it can be used, from its beginning .. */
    bool slab_growing;       /* .. and the store was asked for more */
    uint64_t slab_buffer;    /* its number at the workers */
    char *slab_why;          /* FAILED: the store's text */
    struct pl_list ranges;   /* head_spilled.range_link, by offset */
    struct head_holes holes; /* between them, .. */
    struct head_hole hole;   /* .. and before the first */
    /* head_spilled.recent_link: in the slab, least recently bound first */
    struct pl_list recent;
    struct pl_map sizes; /* bytes -> how many copies take so many, as (uintptr_t) .. */
    uint64_t largest;    /* .. and the most that one takes */
    uint64_t bound;      /* launches that hold their place */
    uint64_t file_bytes; /* of all copies in files */
    /*
     * a write found no room: nothing is planned beyond what is there until one finds some
     * (head_spill_tick)
     */
    bool files_full;
    uint64_t files_tried_ms;  /* .. of which one was tried last; not in a checkpoint */
    uint64_t files_try;       /* the op of the one that is tried now; 0: none is .. */
    uint64_t files_try_bytes; /* .. and its bytes, of file_bytes; 0 without one */
    char *files_why;
    struct pl_list queue;  /* head_task.spill_link: launches that are not bound, by order */
    struct pl_list ahead;  /* head_task.spill_link: write-backs that are not over .. */
    uint64_t ahead_bound;  /* .. so many */
    struct pl_list excess; /* head_task.spill_link: unfinished, beyond the plan, by order */
    struct pl_list requests; /* head_spill_request.link, oldest first */
    uint64_t op_last;
    uint64_t spills, spill_bytes; /* launches that were numbered, so far */
    uint64_t restores, restore_bytes;
    uint64_t write_backs, write_back_bytes; /* of these, .. */
    uint64_t cancels;                       /* .. were not needed before they were over */
    uint64_t undone;           /* spills that found no place; not in a checkpoint */
    uint64_t relieved;         /* copies beside the launches (relief.c); likewise, .. */
    uint64_t relieved_spills;  /* .. of which so many stood for a spill .. */
    uint64_t relieved_in_vain; /* .. and besides, what was ordered, and of no use */
    /* .. and restores that failed because the values then had no direct way to them; likewise */
    uint64_t stranded;
    uint64_t writes, write_bytes; /* files that were written, and read */
    uint64_t reads, read_bytes;
    struct pl_list link; /* core->spill_hosts */
};

/* What the room on a device is for that something leaves for the host. */
enum head_spill_for {
    HEAD_SPILL_FOR_NEW, /* something that was not there before: .. */
    HEAD_SPILL_FOR_RETURN /* .. one that comes back from the host, where its place is free then */
};

/* Why a buffer is copied to its host. */
enum head_spill_reason {
    HEAD_SPILL_ROOM,  /* it goes from its device then */
    HEAD_SPILL_AHEAD, /* it is about to (write_back.c) */
    HEAD_SPILL_SECOND /* there are to be two (second.c) */
};

/* As the arena of a worker rounds a block (store_arena_rounded): what a buffer costs its device. */
uint64_t head_spill_rounded(uint64_t bytes);
static inline bool head_device_is_home(const struct head_device *device)
{
    return device->spill != NULL;
}

/* ---- spill.c */
/* A call is about to be planned: what was kept apart for the last one may go. */
void head_spill_plan_begin(struct head_core *core);
/*
 * What the box shows is about to be used: what of it is on devices stays there until the next
 * head_spill_plan_begin().
 */
void head_spill_keep(struct head_core *core, struct head_array *array,
                     const struct pl_box *box);
void head_spill_keep_buffer(struct head_core *core, struct head_buffer *buffer);
/*
 * So many bytes are about to be made on the device: drop and spill what was not used for the
 * longest time until they fit, in the order of the plan. false: not all of it could go; the launch
 * is planned all the same and waits for memory at its worker.
 */
bool head_spill_room(struct head_core *core, struct head_device *device, uint64_t bytes);
/*
 * The same for new values. true: host memory has no room for more of them either, and who makes
 * them is to be held (excess.c).
 */
bool head_spill_room_excess(struct head_core *core, struct head_device *device,
                            uint64_t bytes);
/* All that is planned to be there has room. */
bool head_spill_within(const struct head_device *device);
/*
 * For what must find room (drain.c). free: so much could be made now, on a device whose host takes
 * nothing without the part that spilling keeps; obtainable: and so much if what may be dropped were
 * dropped and what may be spilled were spilled: as far as it is enough, and of what would be
 * spilled only what was not used for the longest time; enough UINT64_MAX: all of it. obtain: does
 * that, replicas and what has a copy in host memory first, then what was not used for the longest
 * time, until so much is free. false: it is not; what went stays where it went.
 */
uint64_t head_spill_free(struct head_core *core, const struct head_device *device);
uint64_t head_spill_obtainable(struct head_core *core, struct head_device *device,
                               uint64_t enough);
bool head_spill_obtain(struct head_core *core, struct head_device *device, uint64_t bytes);
/*
 * Whatever of the box lies in host memory only, or there and on nodes that are drained, is brought
 * to `device`, or to one that it can come from. false: *out_failure.
 */
bool head_spill_bring(struct head_core *core, struct head_array *array,
                      const struct pl_box *box, struct head_device *device,
                      struct head_failure **out_failure);
/* Is some of the box on no device, but in host memory? */
bool head_spill_missing(struct head_array *array, const struct pl_box *box);
/* The same two of what a tile has of an array, for that device. */
bool head_spill_part_missing(const struct head_tile *tile, const struct pl_box *box,
                             const struct head_device *to);
bool head_spill_part_bring(struct head_core *core, const struct head_tile *tile,
                           const struct pl_box *box, struct head_device *device,
                           struct head_failure **out_failure);
/*
 * Has the device room for all buffers that the box is in, at one time, and for the one that it is
 * gathered in? If not, it is brought part by part (head_move_read).
 */
bool head_spill_at_once(struct head_core *core, struct head_array *array,
                        const struct pl_box *box, struct head_device *device);
/* Some of the box is in memory of a host that has no device, and nowhere else. NULL: none is. */
struct head_failure *head_spill_stranded(struct head_array *array,
                                         const struct pl_box *box);
/*
 * Room for all that the run makes and brings, then bring what is spilled. false: it can never fit,
 * or a copy is lost; *out_failure. excess: as head_spill_room_excess() says.
 */
bool head_spill_for_run(struct head_core *core, const struct head_run *run,
                        struct head_device *device, bool *out_excess,
                        struct head_failure **out_failure);
/*
 * A launch copies the buffer to host memory, where its values are from now on in plan order, too.
 * ahead: a write-back. false: there is no room there.
 */
bool head_spill_out(struct head_core *core, struct head_buffer *buffer,
                    enum head_spill_reason reason, enum head_spill_for purpose);
/* Would a copy of it fail only with what is in it? And it is not about to go. */
bool head_spill_copyable(struct head_buffer *buffer);
/* Nothing holds it but launches and the values in it, and nobody looks at it or puts it by other means. */
bool head_spill_lies_still(struct head_buffer *buffer);
/*
 * It goes, and other buffers with the same values may be the only ones then: not to be dropped as
 * replicas any more.
 */
void head_spill_keep_others(struct head_buffer *buffer);
/* Instances of it can be had without a launch: they lie in memory of the host, too, or are a replica. */
bool head_spill_droppable(const struct head_buffer *buffer);

/*
 * As head_buffer_forget(), for what is wrong there because of `failure`: a value that is nowhere
 * else has failed, too.
 */
void head_spill_forget(struct head_core *core, struct head_buffer *buffer,
                       const struct pl_box *box, uint64_t before,
                       struct head_failure *failure);

/* ---- spill_host.c */
struct head_spill_host *head_spill_host_of(struct head_core *core, const char *host);
/* A copy of the buffer, nowhere yet. NULL: there will be no room for it. Refs 1, the caller's. */
struct head_buffer *head_spill_copy(struct head_core *core, struct head_spill_host *spill,
                                    const struct head_buffer *buffer,
                                    enum head_spill_for purpose);
/*
 * May so much more lie there, besides what does? Copies of what is on a device, too, go for it.
 * bytes 0: is it no more than there should be, so that what has a copy there may go from its
 * device? false: there are too few to go.
 */
bool head_spill_reserve(struct head_core *core, struct head_spill_host *spill,
                        uint64_t bytes, enum head_spill_for purpose);
/* Of a checkpoint: it takes so much. */
void head_spill_size_add(struct head_spill_host *spill, uint64_t bytes);
/*
 * About so much more can be copied there, in pieces of at most `largest`, with copies dropped that
 * lie on a device, too. An estimate: the next copy may take less, never more than head_spill_copy()
 * gives. Not counted beyond `enough`.
 */
uint64_t head_spill_host_room(struct head_spill_host *spill, uint64_t largest,
                              uint64_t enough);
/* Nothing needs it any more: head_buffer_release() frees it. */
void head_spill_freed(struct head_core *core, struct head_buffer *buffer);
/* The host is gone, and what lay in its memory. */
void head_spill_host_gone(struct head_core *core, const char *host, const char *text);
void head_spill_hosts_finish(struct head_core *core);
void head_spill_check(const struct head_core *core);

/* ---- write_back.c */
/*
 * When the input ran dry: copy what was not used for long, if the lanes are free; give up what is
 * not needed.
 */
void head_write_back(struct head_core *core);
/* A launch is about to write in it, in place: a write-back of it that has not begun is given up. */
void head_write_back_overwritten(struct head_core *core, struct head_buffer *buffer);

/* ---- relief.c */
/*
 * A launch is starved: what nothing uses there and may be dropped goes, until about as much came
 * free as it wants. Returns the bytes of that.
 */
uint64_t head_relief_drop(struct head_core *core, const struct head_task *task);
/*
 * The oldest launch of the cluster is starved: have something that nobody uses leave its device.
 * true: that is to be waited for.
 */
bool head_relief(struct head_core *core, const struct head_task *task);
void head_relief_answered(struct head_core *core, struct head_device *device,
                          const Plasmon__V1__WorkerData *data);
void head_relief_tell(struct head_device *device); /* (again), what it was ordered */
/* Its worker will not do it any more. */
void head_relief_cancel(struct head_core *core, struct head_device *device);

/* ---- excess.c */
enum head_excess { HEAD_EXCESS_NONE, HEAD_EXCESS_HELD, HEAD_EXCESS_SENT };
/* It makes a value that there is no room for, and got its number. */
void head_excess_queue(struct head_core *core, struct head_task *task);
/* It may not be sent yet. */
bool head_excess_held(const struct head_task *task);
void head_excess_over(struct head_task *task);
/* When the input ran dry: the next one may be sent, or is refused. */
void head_excess_decide(struct head_core *core);

/* ---- memory_report.c */
/* StatusReply.spill_hosts. */
uint64_t head_spill_memory_used(const struct head_spill_host *spill);
plasmon_status_t head_spill_status(struct head_core *core, struct wire_arena *arena,
                                   Plasmon__V1__StatusReply *out) PL_MUST_CHECK;

/* ---- lookahead.c */
/* Arguments of the tasks of a frame that are still to be planned. All zero: there are none. */
struct head_lookahead {
    const struct head_client *client;
    /* count of them, in the order of the tasks; the first `passed` are over */
    struct head_next *nexts;
    size_t count;
    size_t passed;
    struct pl_map unborn; /* ref -> struct head_next: there is no such ref yet */
};
/* These are about to be planned, in this order. Lent until head_lookahead_end(). */
void head_lookahead_begin(struct head_core *core, struct head_client *client,
                          Plasmon__V1__Task *const *tasks, size_t count);
/* Task `number` of them is next: what it reads is kept by its own plan. */
void head_lookahead_pass(struct head_core *core, size_t number);
void head_lookahead_end(struct head_core *core);
/* A ref came into being: perhaps a later task of the frame names it. */
void head_lookahead_born(struct head_core *core, const struct head_client *client,
                         uint64_t id, const struct head_ref *ref);
/* Is anything known of what comes next? */
bool head_lookahead_some(const struct head_core *core);
/* The first task that reads any of what is in the buffer; SIZE_MAX: none that is known. */
size_t head_lookahead_next(const struct head_buffer *buffer);

/* ---- spill_places.c */
/* Those of a checkpoint are there. */
void head_spill_places_loaded(struct head_spill_host *spill);
/* A launch that reads or writes a spilled buffer got its number. */
void head_spill_queue(struct head_task *task);
/* Not yet: its bytes have no place, or are on their way from a file. */
bool head_spill_waiting(const struct head_task *task);
/*
 * Why it may not be sent, for people. first: of those that are to get a place on that host, the one
 * whose turn it is, if that is another one. text: with the figures; "" if there is nothing to say.
 */
Plasmon__V1__TaskHold head_spill_hold(const struct head_task *task,
                                      const struct head_task **out_first,
                                      char out_text[256]);
void head_spill_task_over(struct head_core *core, struct head_task *task);
/*
 * Give places to the launches that are next, and have files written to make them. Before launches
 * are sent.
 */
void head_spill_bind(struct head_core *core);
/*
 * Time passes. A disk that was full may have got room by others, of which nobody tells us: every 10
 * s one value that lies in host memory is written to a file, which costs nothing if it cannot be,
 * and if it can be files count again.
 */
void head_spill_tick(struct head_core *core);

#endif
