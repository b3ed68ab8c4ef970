/*
 * Growable array of one type, without macros that hide control flow:
 *
 *   struct pl_vec vec = PL_VEC_INIT(struct thing);
 *   struct thing *thing = pl_vec_push(&vec);       // zeroed; NULL when out of memory
 *   pl_vec_at(&vec, i)                             // void *, checked by assert
 */
#ifndef BASE_VEC_H
#define BASE_VEC_H

#include "base.h"

struct pl_vec {
    void *items;
    size_t count;
    size_t capacity;
    size_t item_bytes;
};
#define PL_VEC_INIT(type) ((struct pl_vec){.items = NULL, .item_bytes = sizeof(type)})

void *pl_vec_push(struct pl_vec *vec) PL_MUST_CHECK;
void *pl_vec_push_n(struct pl_vec *vec, size_t count) PL_MUST_CHECK;
void *pl_vec_at(const struct pl_vec *vec, size_t index);
void pl_vec_pop(struct pl_vec *vec);
void pl_vec_remove_unordered(struct pl_vec *vec,
                             size_t index); /* the last item takes its place */
void pl_vec_clear(struct pl_vec *vec);      /* keeps the memory */
void pl_vec_finish(struct pl_vec *vec);

#endif
