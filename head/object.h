/*
 * What exists, and where.
 *
 *   ref -> array (a version) -> fragments -> tiles (content) -> instances -> buffers (memory of one device)
 *
 * A write gives an array new fragments of new tiles; other versions go on showing the old ones.
 * Content is found in a buffer through an instance, and buffers know who reads and writes them:
 * from that come the edges between launches (hazard.c).
 */
#ifndef HEAD_OBJECT_H
#define HEAD_OBJECT_H

#include "base/spans.h"
#include "head/bytes.h"

struct head_core;
struct head_device;
struct head_rebuilt;
struct head_record;
struct head_second;
struct head_space;
struct head_task;

/* Why something failed; shared by everything that failed because of it. */
struct head_failure {
    uint32_t refs;
    /* of something that may be made again: whoever it meets may run again (loss.c) */
    bool loss;
    plasmon_status_t status;
    uint64_t first_task;
    uint64_t first_client;
    char *text;
};

/*
 * One allocation. refs: instances in it, and uses by unfinished tasks. Freed at zero, by
 * buffer_release alone. Retired (retire.c) when nothing but launches of its device that were sent
 * can reach it.
 */
struct head_buffer {
    uint64_t id;
    struct head_device *device;
    struct pl_box frame;
    uint32_t dtype;
    uint64_t bytes;
    uint32_t refs;
    uint32_t uses;         /* of these, uses */
    uint32_t uses_foreign; /* of these, of tasks of other devices */
    uint64_t seq_last;     /* of a launch of its device that uses it */
    bool ends;             /* to be retired when that one has been sent */
    bool retired;          /* its worker was told */
    bool leaving;          /* nothing that gets a number from now on will name it */
    uint64_t kept;         /* of head_core.plan: it is not spilled while that is planned */
    uint64_t counted;      /* of head_core.counted_last: its bytes are in that sum */
    /*
     * number of a loss; of those who were to write it and were given up in that one, having begun
     * ..
     */
    uint64_t spoiled_at;
    uint64_t spoiled_by; /* .. the first one's order (spared.c) */
    /* it lies in host memory or a file (spill.h); NULL: on its device */
    struct head_spilled *spilled;
    bool donatable;
    /*
     * every byte in it exists elsewhere: may be dropped under memory pressure. By
     * head_buffer_replica_set()
     */
    bool replica;
    bool excess;       /* the plan had no room for it: so who makes it is held (excess.c) */
    bool told;         /* its worker was told to make it, .. */
    bool told_replica; /* .. and counts it as a replica for as long as it is there */
    struct pl_list device_link;
    struct pl_list recent_link; /* head_device.recent */
    struct pl_list ending_link; /* head_device.ending: perhaps to be retired */
    struct pl_list loose_link;  /* head_device.loose: perhaps to be dropped */
    struct pl_list row_link;    /* head_device.relief_row */
    struct pl_list instances;   /* head_instance.buffer_link */
    struct pl_list readers;     /* head_use.link: unfinished tasks that read */
    struct pl_list writers;     /* head_use.link: unfinished tasks that write */
    /* these three lists by place, while they are long (places.h) */
    struct head_places *places;
    uint32_t placed_count; /* in these lists */
    /* over what some of these wrote; the newest first (hazard.c) */
    struct head_written *written;
};

/* What a task that has ended well wrote, while one before it is still unfinished that wrote there, too. */
struct head_written {
    struct head_written *next;
    struct pl_box box;
    uint64_t order; /* of the task */
};

/* `box` of `tile` lies, right, in `buffer` (once the buffer's pending writers of that box are done). */
struct head_instance {
    struct head_tile *tile;
    struct head_buffer *buffer;
    struct pl_box box;
    struct pl_list tile_link;
    struct pl_list buffer_link;
    struct head_placed *placed; /* places.c; NULL: there are few in the buffer */
};

/*
 * Content. refs: fragments that show it, and the unfinished task that makes it. Without refs it has
 * no bytes, and exists only as far as lineage (lineage.h) needs its name.
 */
struct head_tile {
    uint32_t refs;
    uint32_t makers;            /* of these, unfinished tasks that make it */
    uint32_t kept;              /* inputs of records that it is */
    uint32_t cut;               /* enum head_cut: why it has no record */
    bool lost;                  /* bytes of it, by the loss that is being looked at */
    bool awaited;               /* by clients that looked it up (found.c) */
    uint32_t label;             /* of what wrote it (label.h); 0: none */
    uint64_t order;             /* of the task that makes it */
    struct head_record *record; /* how it was made; NULL: nobody can make it again */
    /* while it is being looked at whether it must be (rebuild.c) */
    struct head_rebuilt *rebuilt;
    struct pl_box box;
    /* it is to be in two places (second.c); NULL: it need not be */
    struct head_second *second;
    struct head_failure *failure; /* it will never be right */
    struct pl_list instances;     /* head_instance.tile_link .. */
    uint32_t spilled;             /* .. of which so many are in memory of hosts */
    struct pl_list fragments;     /* head_fragment.tile_link */
    /* space.c */
    struct head_space *space; /* that arrays which show it are in; NULL: none does */
    struct pl_list space_link;
    uint32_t showing; /* fragments and partial results */
    uint64_t shown;   /* bytes of these */
    uint64_t bytes;   /* of all of it */
    uint64_t charged;
};

struct head_fragment {
    struct head_array *array;
    struct head_tile *tile;
    struct pl_box box; /* what of the tile this array shows */
    struct pl_list array_link;
    struct pl_list tile_link;
    struct pl_span span;       /* in array->spans */
    uint64_t number;           /* rises along the array's list */
    struct head_fragment *met; /* of head_array_meet(): the next one */
};

/* A REDUCE result that is not folded in yet. */
struct head_partial {
    struct pl_box box;
    struct head_tile *tile;
};

/* A version: disjoint fragments that cover `extent`. refs: refs of clients, names, requests in progress. */
struct head_array {
    uint32_t refs;
    struct head_space *space; /* held; NULL: the head's own, of nobody's account */
    struct pl_shape shape;    /* of the root coordinates */
    struct pl_box extent; /* what of it exists (a snapshot of a view keeps only its hull) */
    struct pl_list fragments;
    uint32_t fragment_count;
    uint64_t fragment_last;   /* number of the newest one */
    struct pl_spans *spans;   /* the fragments by place, while there are many; NULL: few */
    struct head_dealt *dealt; /* owned: what was counted of it (dealt.c); NULL: nothing */
    struct pl_vec partials;   /* struct head_partial */
    uint32_t partial_op;
    uint64_t since_ms;   /* it exists in this process */
    uint64_t put_offset; /* next byte of a put in pieces; UINT64_MAX: none going on */
    bool put_replica;    /* then: a second copy is to be made of it (second.c) */
    /* head_next.link: of the frame that is being planned (lookahead.c) */
    struct pl_list nexts;
    bool mapped; /* a client looks at its buffers: nothing in them is written in place */
    struct pl_list mapped_link; /* head_core.mapped */
    /* a shadow with copies of its own: what it shows may be written in place elsewhere */
    bool apart;
    struct pl_list shadows; /* head_shadow.array_link */
    /* an unfinished call on it holds this (roots.c); NULL: none */
    const struct head_device *root;
};

/* What tasks update in place, and the version of it that is kept (shadow.c). */
struct head_shadow {
    struct head_array *owner;
    struct pl_box box;
    uint64_t bytes;           /* overwritten since */
    struct head_array *kept;  /* owned; NULL: none */
    struct head_array *older; /* owned: the one before, while kept is being copied; NULL */
    struct pl_list array_link;
    struct pl_list link; /* head_core.shadows. In both: what was kept longest ago first */
};

/* A client's name for what a view shows of an array. */
struct head_ref {
    struct head_array *array;
    bool based; /* base is not the whole */
    struct pl_view base;
};

struct head_use {
    struct head_task *task;
    struct head_buffer *buffer;
    struct pl_box box;
    bool write;
    bool in_place; /* .. over something that was there */
    struct pl_list link;
    struct head_placed *placed; /* places.c; NULL: there are few, or it is in no list */
};

/* ---- retire.c */
/*
 * Will no launch that gets a number from now on name it? It stays so, unless a spill is taken back;
 * device->bytes_live is without it then.
 */
bool head_buffer_leaves(struct head_buffer *buffer);
/*
 * It is a replica, or none any more. What its worker counts it as is put right in the status
 * (head_device.replica_off).
 */
void head_buffer_replica_set(struct head_buffer *buffer, bool replica);
/* Its worker is told to make it, and what it is. */
void head_buffer_tell(struct head_buffer *buffer);
/* It was to leave, and holds values again (spill_undo.c). Not one that is retired. */
void head_buffer_stays(struct head_buffer *buffer);
/* Something that kept it is gone: look at it before the next flush. */
void head_buffer_ending(struct head_buffer *buffer);
void head_device_task_sent(const struct head_task *task);
void head_device_retire(struct head_device *device); /* before a flush */

/* ---- loose.c */
/* Perhaps it may be dropped now: it is looked at when room is wanted. */
void head_buffer_loosen(struct head_buffer *buffer);
/* So may what has it. */
void head_tile_loosen(const struct head_tile *tile);
/* It will never be right, for this reason (held); the first one stays. */
void head_tile_fail(struct head_core *core, struct head_tile *tile,
                    struct head_failure *failure);
/* .. and what has any of what is in the buffer and is to be in two places. */
void head_buffer_seconds_loosen(const struct head_buffer *buffer);
/* .. and copies in host memory of what is in this box of it, where one writer less is at work. */
void head_buffer_copies_loosen(const struct head_core *core,
                               const struct head_buffer *buffer, const struct pl_box *box);
/* A drain begins or ends, or a checkpoint was read: anything may. */
void head_buffers_loosen(struct head_core *core);

/* ---- object.c */
struct head_failure *head_failure_create(plasmon_status_t status, uint64_t first_task,
                                         uint64_t first_client, const char *format, ...)
    PL_PRINTF(4, 5);
struct head_failure *head_failure_hold(struct head_failure *failure);
/* Its text; of what failed because of another failure, that one's. */
const char *head_failure_cause(const struct head_failure *failure);
void head_failure_release(struct head_failure *failure);
struct head_buffer *head_buffer_create(struct head_core *core, struct head_device *device,
                                       const struct pl_box *frame, uint32_t dtype);
/* One of a checkpoint: with the id that it had. Refs 1, the caller's. */
struct head_buffer *head_buffer_restore(struct head_core *core, struct head_device *device,
                                        uint64_t id, const struct pl_box *frame,
                                        uint32_t dtype);
/* nobody but who makes it holds it */
bool head_tile_unreachable(const struct head_tile *tile);
void head_buffer_hold(struct head_buffer *buffer);
void head_buffer_release(struct head_core *core, struct head_buffer *buffer);
struct head_tile *head_tile_create(struct head_core *core,
                                   const struct pl_box *box); /* refs 1, the caller's */
void head_tile_hold(struct head_core *core, struct head_tile *tile);
void head_tile_release(struct head_core *core, struct head_tile *tile);
void head_tile_empty(struct head_core *core,
                     struct head_tile *tile); /* no buffer has it any more */
/* Its memory; lineage.c alone. */
void head_tile_free(struct head_core *core, struct head_tile *tile);
void head_instance_add(struct head_core *core, struct head_tile *tile,
                       struct head_buffer *buffer, const struct pl_box *box);
void head_instance_remove(struct head_core *core, struct head_instance *instance);
/*
 * Something else is about to be written over `box` of the buffer: no tile whose task has an order
 * before `before` may be found there any more.
 */
void head_buffer_forget(struct head_core *core, struct head_buffer *buffer,
                        const struct pl_box *box, uint64_t before);
/*
 * The same of all of it, which a launch overwrites in place: other copies that somebody still needs
 * are no replicas any more, nor is what is made there.
 */
void head_buffer_overwrite(struct head_core *core, struct head_buffer *buffer,
                           const struct pl_box *box);
/* Without this buffer: what else it lies in is no replica any more, which could be dropped. */
void head_tile_rely_on_others(const struct head_tile *tile,
                              const struct head_buffer *buffer);
/* Is every element of `box` of the tile in buffers that count? */
bool head_tile_covered_by(const struct head_tile *tile,
                          bool (*counts)(const struct head_buffer *buffer,
                                         const void *user),
                          const void *user, const struct pl_box *box);
/* In this buffer (NULL: in some buffer)? */
bool head_tile_covered(const struct head_tile *tile, const struct head_buffer *buffer,
                       const struct pl_box *box);
/* Has anybody it but unfinished tasks that make it? */
bool head_tile_shown(const struct head_tile *tile);
/* Is any part of what somebody has of it nowhere? Who makes it does not count. */
bool head_tile_missing(const struct head_tile *tile);
/* From now on, until it is released, no buffer that it lies in is written in place. */
void head_array_map(struct head_core *core, struct head_array *array);
bool head_buffer_mapped(const struct head_buffer *buffer);
/*
 * Does another array show any of `box` of the tile, so that it must not be written over in
 * `buffer`? A shadow that lies apart does not mind where the tile has other copies. buffer NULL:
 * does one that is charged for it?
 */
bool head_tile_held_elsewhere(const struct head_tile *tile, const struct head_array *array,
                              const struct pl_box *box, const struct head_buffer *buffer);
struct head_array *
head_array_create(struct head_core *core, struct head_space *space,
                  const struct pl_shape *shape); /* refs 1, no fragments */
void head_array_release(struct head_core *core, struct head_array *array);
/* From now on `box` of the array is `tile` (which takes a reference of its own). */
void head_array_set(struct head_core *core, struct head_array *array,
                    const struct pl_box *box, struct head_tile *tile);
/* The box of the array as it is now, on the account of a space (NULL: nobody's). */
struct head_array *head_array_snapshot(struct head_core *core, struct head_space *space,
                                       const struct head_array *array,
                                       const struct pl_box *box);
/*
 * The fragments that meet the box: the first one, and from each the next by `met`, in the order of
 * the list. They stay so until the array changes, or this is asked of it again.
 */
struct head_fragment *head_array_meet(const struct head_array *array,
                                      const struct pl_box *box);
/* The first of these alone. */
struct head_fragment *head_array_meet_first(const struct head_array *array,
                                            const struct pl_box *box);
/* Each part of it is somewhere, and well. */
bool head_array_whole(const struct head_array *array);
struct head_failure *
head_array_failure(struct head_array *array,
                   const struct pl_box *box); /* borrowed; NULL: none */

/* ---- memory_report.c */
Plasmon__V1__MemoryState head_buffer_state(const struct head_buffer *buffer);

/* ---- shadow.c */
/*
 * A task is about to write over the box of the array in `original`, where it lies: a version is
 * kept if it is time. false: that one stays where it is, and the task needs other memory; never
 * with in_place_only.
 */
bool head_shadow_keep(struct head_core *core, struct head_array *array,
                      const struct pl_box *box, const struct head_buffer *original,
                      bool in_place_only);
struct head_shadow *head_shadow_add(struct head_core *core, struct head_array *array,
                                    const struct pl_box *box); /* one of a checkpoint */
/* The box is written without being read: what it was before is of no use for what comes. */
void head_shadow_begin(struct head_core *core, struct head_array *array,
                       const struct pl_box *box);
void head_shadow_array_gone(struct head_core *core, struct head_array *array);
/* What they take there, and would give back. */
uint64_t head_shadow_bytes(const struct head_core *core, const struct head_device *device);
/* About so many bytes are wanted on the device. */
void head_shadow_give_way(struct head_core *core, const struct head_device *device,
                          uint64_t bytes);
/* Bytes may have been lost: those that lack any go. */
void head_shadow_lost(struct head_core *core);
/*
 * Bytes of the tile that a shadow, or a root, alone had will never be there: that fails it, and not
 * what the tile still shows elsewhere.
 */
void head_shadow_fail(struct head_core *core, struct head_tile *tile,
                      const struct pl_box *box, struct head_failure *failure);

/* ---- gone.c */
/* Its bytes are gone: what is nowhere else has failed from now on. */
void head_buffer_lose(struct head_core *core, struct head_buffer *buffer, const char *text);

/* ---- hazard.c */
/*
 * The launch points that a use must wait for go into after (uint64_t, duplicates removed by the
 * caller); tasks whose results it reads get into producers (struct head_task *). reads: it needs
 * the content. write: it changes it.
 */
void head_hazard_collect(struct head_buffer *buffer, const struct pl_box *box, bool reads,
                         bool write, struct pl_vec *after, struct pl_vec *producers);
void head_use_add(struct head_use *use, struct head_task *task, struct head_buffer *buffer,
                  const struct pl_box *box, bool write);
/* Before it is removed: its task has ended well. */
void head_use_wrote(const struct head_use *use);
void head_use_remove(struct head_core *core, struct head_use *use);
/* Into the list of its buffer that `write` says, or out of it (it may be out: somebody took over). */
void head_use_link(struct head_use *use, struct pl_list *behind);
void head_use_unlink(struct head_use *use);
void head_written_forget(struct head_buffer *buffer);

/* ---- move.c */
/*
 * A buffer on `device` in which the whole box of the array is to be found, copying if need be.
 * exact: its frame is the box. NULL: *out_failure.
 */
struct head_buffer *head_move_read(struct head_core *core, struct head_array *array,
                                   const struct pl_box *box, struct head_device *device,
                                   bool exact, struct head_failure **out_failure);
/*
 * Would some of the box of the tile come from another host? false, too, if it is nowhere that it
 * could come from.
 */
bool head_move_from_afar(struct head_core *core, struct head_tile *tile,
                         const struct pl_box *box, const struct head_device *to);
/*
 * A buffer, there or on a device whose memory it has mapped, with all of the box side by side: a
 * launch of the device can read it where it is.
 */
struct head_buffer *head_move_reach(const struct head_core *core, struct head_array *array,
                                    const struct pl_box *box,
                                    const struct head_device *device);
/*
 * A buffer on `device` that already holds the whole box of the array; NULL. exclusive: nobody else
 * may need that part of it.
 */
struct head_buffer *head_move_common(struct head_array *array, const struct pl_box *box,
                                     struct head_device *device, bool exclusive);
/*
 * The pieces (struct head_piece, appended; their sources are held for the caller in io_held, struct
 * head_buffer *) that fill operand number `operand`, a fresh buffer whose frame is the box. false:
 * no route; *out_failure.
 */
bool head_move_pieces(struct head_core *core, struct head_array *array,
                      const struct pl_box *box, struct head_buffer *dst, uint32_t operand,
                      struct pl_vec *io_pieces, struct pl_vec *io_held,
                      struct head_failure **out_failure);
/*
 * It is being filled by one launch that fails with any of several others: only who reads all of it
 * may find it.
 */
bool head_move_joint(const struct head_buffer *buffer);
/* Pieces of so many bytes are large, and cut (move_source.c). */
uint64_t head_move_large_bytes(const struct head_core *core);
/* Into how many parts a large piece is cut that is passed on so many times within a host (move_launch.c). */
uint32_t head_move_parts(const struct head_core *core, uint64_t bytes,
                         const struct head_device *from, const struct head_device *to,
                         uint32_t links);
/*
 * Between hosts, of what is not large but more than this it matters who else is sent to: it goes as
 * a tree.
 */
uint64_t head_move_tree_bytes(const struct head_core *core);
/* Does a launch of `to` read memory of `from` itself, and needs no launch there? */
bool head_move_direct(const struct head_core *core, const struct head_device *from,
                      const struct head_device *to);
/* Is there a route? */
bool head_move_possible(const struct head_device *from, const struct head_device *to);

#endif
