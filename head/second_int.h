/*
 * Inside of second copies.
 *
 *   second.c        who wants one, and when it is looked at
 *   second_safe.c   how safe a value is
 *   second_place.c  where a copy goes, and by which launches
 */
#ifndef HEAD_SECOND_INT_H
#define HEAD_SECOND_INT_H

#include "head/core_int.h"

/* ---- second_safe.c */
struct head_counted {
    const struct head_buffer *but;    /* not this one, .. */
    const struct head_device *device; /* .. none there, .. */
    const char *host;                 /* .. none there; NULL each: none is left out */
    bool settled;                     /* not what is on its way */
};
/* user: a struct head_counted. Is it a copy? */
bool head_second_counts(const struct head_buffer *buffer, const void *user);
bool head_second_covered(const struct head_tile *tile, const struct pl_box *box,
                         const struct head_counted *counted);
enum head_safety head_second_safety_of(const struct head_tile *tile,
                                       const struct pl_box *box,
                                       const struct head_counted *counted);
/* Of all that clients show of it. */
enum head_safety head_second_safety_shown(const struct head_tile *tile, bool settled);
/* Somebody who may ask for it wants it twice. (What calls and shadows alone hold will go.) */
bool head_second_wanted(const struct head_tile *tile);

/* ---- second_place.c */
/* A part of what is wanted twice. */
struct head_second_part {
    struct head_array *array;
    struct head_tile *tile;
    struct pl_box box;
    uint64_t bytes;
};
uint64_t head_second_bytes(const struct head_array *array, const struct pl_box *box);
/*
 * Some copy is begun if that makes it safer; so many full devices may be looked at in vain. false:
 * it stays as it is.
 */
bool head_second_part_make(struct head_core *core, const struct head_second_part *part,
                           uint32_t *io_looks);

#endif
