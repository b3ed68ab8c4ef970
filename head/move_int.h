/*
 * Inside of what brings a box to a device. Reading order: move.c (what is there, and what has to be
 * brought), move_source.c (from which buffer), move_launch.c (by which launches).
 */
#ifndef HEAD_MOVE_INT_H
#define HEAD_MOVE_INT_H

#include "head/core_int.h"

/*
 * Into how many parts a large piece is cut (move_launch.c). With n parts the last of h more links
 * has its bytes after T + h T / n, T of one copy, and a part costs each copy c = 5 us more: that is
 * least for n = sqrt(h T / c), and with T of 397 GB/s for parts of sqrt(2 / h) * sqrt(bytes * 1
 * MiB): 32 of 32 MiB, if a GiB may go by two more.
 */
#define HEAD_MOVE_PARTS_MAX 128u
/*
 * .. if others have not asked for such pieces lately, and none below half of config.chain_bytes
 * (128 MiB): 32 parts are .95 of one copy's rate, these .98.
 */
#define HEAD_MOVE_PARTS_ALONE 8u
/*
 * Large begins at a quarter of config.chain_bytes (64 MiB): within a host three readers of one
 * source have that after 510 us, and along a chain in 8 parts after 260. Between hosts parts begin
 * at 8 MiB, one chunk of the ring: 1 ms at 100 Gbit/s, which is some times what begins a part.
 * There are at most so many.
 */
#define HEAD_MOVE_LARGE_FRACTION 4u
#define HEAD_MOVE_HOSTS_PARTS    32u

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
/*
 * Cuts what is large and others may want from here, and what comes to its source from another host
 * in parts: in such parts.
 */
void head_move_cut(struct head_core *core, const struct head_buffer *dst,
                   struct pl_vec *io_pieces);
/*
 * Fill `box` of dst. fresh: this launch makes dst, and its use covers all of it. axis: the pieces
 * lie one behind the other along it, and a function joins them; NULL: they are copied.
 */
void head_move_start_copy(struct head_core *core, struct head_buffer *dst,
                          const struct pl_box *box, bool fresh,
                          const struct head_piece *pieces, size_t piece_count,
                          const uint64_t *axis);
/*
 * Fill dst from pieces. Small ones that a function joins, and what is there already, go in one
 * launch. What else is still being made goes piece by piece: a launch fails as a whole, and who
 * reads another part of dst must not fail because of a part that it does not read. Parts go one by
 * one too.
 */
void head_move_start_copies(struct head_core *core, struct head_buffer *dst,
                            struct pl_vec *pieces);
/* The same when others follow, which are copied into dst then: these do not fill it. */
void head_move_start_some(struct head_core *core, struct head_buffer *dst,
                          struct pl_vec *pieces);
/* SENDs and RECVs of all of dst, whole or cut. */
void head_move_start_pairs(struct head_core *core, struct head_buffer *src,
                           struct head_buffer *dst);

#endif
