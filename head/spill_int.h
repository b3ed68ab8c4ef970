/*
 * Between the parts of spilling: spill.c (the plan), spill_host.c (hosts, and which buffers have a
 * copy there), spill_places.c (places in the slab), spill_store.c (what the store is asked),
 * spill_undo.c, write_back.c, relief.c. Nobody else includes it.
 */
#ifndef HEAD_SPILL_INT_H
#define HEAD_SPILL_INT_H

#include "head/core_int.h"

/* ---- spill.c */
/*
 * May it go without a launch? What is a replica, or has failed, at once. Otherwise a copy in host
 * memory becomes the only one, for which there must be room as if it went there now
 * (head_spill_reserve); or that copy goes itself for the room, and then it may not.
 */
bool head_spill_may_drop(struct head_core *core, struct head_buffer *buffer,
                         enum head_spill_for purpose);

/* ---- spill_host.c */
void head_spill_host_create(struct head_core *core, const char *host,
                            const struct head_spill_config *config);

/*
 * All that is in it is on devices, too: it is spilled no more, and goes with the last launch that
 * uses it. false: some of it is not.
 */
bool head_spill_copy_drop(struct head_core *core, struct head_buffer *copy);
/* May so much more lie there, without that anything makes way for it? */
bool head_spill_room_free(const struct head_spill_host *spill, uint64_t bytes);
/*
 * Is twice the largest free for what comes back, or taken by what is on devices, too? Or nothing
 * there that is to come back.
 */
bool head_spill_room_kept(struct head_spill_host *spill);
/* There is none: have it made. */
void head_spill_slab_want(struct head_spill_host *spill);
/*
 * No place is left in what can be used of it: have the store say when there is more. false: that is
 * all of it.
 */
bool head_spill_slab_grow(struct head_spill_host *spill);

/* ---- spill_places.c */
/* Is there room for so much in the slab as it is? */
bool head_spill_place_free(struct head_spill_host *spill, uint64_t bytes);
/* It gives its place back. */
void head_spill_place_leave(struct head_spilled *spilled);
/* It takes another part of the slab than before. */
void head_spill_place_changed(struct head_spill_host *spill, struct head_spilled *spilled);
/* More of the slab can be used, or less. */
void head_spill_slab_changed(struct head_spill_host *spill);
void head_spill_places_check(const struct head_spill_host *spill);

/*
 * For what is not in the queue (relief.c): is there a place for so much? What may leave does; what
 * comes by itself is to be waited for.
 */
enum head_place { HEAD_PLACE_NONE, HEAD_PLACE_COMES, HEAD_PLACE_FREE };
enum head_place head_spill_place_make(struct head_spill_host *spill, uint64_t bytes);
void head_spill_place_take(struct head_spill_host *spill, struct head_spilled *spilled);

/* ---- relief.c */
void head_relief_cancel_host(struct head_core *core, const struct head_spill_host *spill);
/* Orders that hold a place there. */
uint64_t head_relief_count(const struct head_core *core,
                           const struct head_spill_host *spill);

/* ---- excess.c */
void head_excess_host_gone(struct head_spill_host *spill);

/* ---- spill_undo.c */
/*
 * A spill that was not sent finds no place: its values stay where they are, and it has nothing to
 * do. Who reads the copy on a device that cannot read there fails.
 */
void head_spill_undo(struct head_core *core, struct head_task *spill,
                     struct head_failure *failure);

/* ---- spill_store.c */
/* buffer NULL: SLAB, and FORGET of `file`. */
void head_spill_ask(struct head_spill_host *spill, enum head_spill_kind kind,
                    struct head_buffer *buffer, uint64_t file);
/* No launch of the host is left: its devices are gone. Nothing that was asked for is waited for any more. */
void head_spill_requests_drop(struct head_core *core, struct head_spill_host *spill);

#endif
