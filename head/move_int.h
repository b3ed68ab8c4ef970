/*
 * Inside of what brings a box to a device. Reading order: move.c (what is there, and what has to be brought), move_source.c (from which buffer), move_launch.c (by
 * which launches).
 */
#ifndef HEAD_MOVE_INT_H
#define HEAD_MOVE_INT_H

#include "head/core_int.h"

/*
 * Of a large piece at most so many parts, and none below an eighth of config.chain_bytes (32 MiB). With n parts the last of k receivers has
 * its bytes after (n + k - 1) / n of one copy, and a part costs a copy about 2 us: 1 GiB for three devices is soonest there in some 50
 * parts, and for one alone each is a loss.
 */
#define HEAD_MOVE_PARTS 32u
/*
 * Between hosts large begins at a quarter of that (64 MiB), and parts at 8 MiB, one chunk of the ring: 1 ms at 100 Gbit/s, which is some times what
 * begins a part.
 */
#define HEAD_MOVE_HOSTS_FRACTION 4u

/* ---- move.c */
uint64_t head_move_box_bytes(const struct pl_box *box, uint32_t dtype);
/* So many of the receiver's ring a transfer between halves takes. */
uint64_t head_move_chunks(uint64_t bytes);
/* Is some of it still being written? */
bool head_move_box_pending(const struct head_buffer *buffer, const struct pl_box *box);
/* Does the box of it lie in C order, side by side? */
bool head_move_box_dense(const struct pl_box *frame, const struct pl_box *box);
/* In two halves: by a pair or by the host route. Otherwise the consumer copies. */
bool head_move_in_halves(const struct head_core *core, const struct head_device *from,
                         const struct head_device *to);

/* ---- move_source.c */
/* The instance from which some of the box is best brought to `to`; NULL: there is none that can be. */
struct head_instance *head_move_source(struct head_core *core, struct head_tile *tile,
                                       const struct pl_box *box,
                                       const struct head_device *to);

/* ---- move_launch.c */
/* Cuts what is large and others may want from here, and what comes to its source from another host in parts: in such parts. */
void head_move_cut(struct head_core *core, const struct head_buffer *dst,
                   struct pl_vec *io_pieces);
/*
 * Fill `box` of dst. fresh: this launch makes dst, and its use covers all of it. axis: the pieces lie one behind the other along it, and a
 * function joins them; NULL: they are copied.
 */
void head_move_start_copy(struct head_core *core, struct head_buffer *dst,
                          const struct pl_box *box, bool fresh,
                          const struct head_piece *pieces, size_t piece_count,
                          const uint64_t *axis);
/*
 * Fill dst from pieces. Small ones that a function joins, and what is there already, go in one launch. What else is still being made goes piece by piece: a launch
 * fails as a whole, and who reads another part of dst must not fail because of a part that it does not read. Parts go one by one too.
 */
void head_move_start_copies(struct head_core *core, struct head_buffer *dst,
                            struct pl_vec *pieces);
/* SENDs and RECVs of all of dst, whole or cut. */
void head_move_start_pairs(struct head_core *core, struct head_buffer *src,
                           struct head_buffer *dst);

#endif
