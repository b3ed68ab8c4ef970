/* Allocation. Zeroed, with the fault point "alloc"; pl_free takes NULL. */
#ifndef BASE_ALLOC_H
#define BASE_ALLOC_H

#include "base.h"

void *pl_alloc(size_t bytes) PL_MUST_CHECK;
void *pl_alloc_aligned(size_t alignment, size_t bytes) PL_MUST_CHECK;
/* Grow an array; the new part is zeroed. NULL: `old` is untouched. */
void *pl_realloc(void *old, size_t old_bytes, size_t new_bytes) PL_MUST_CHECK;
char *pl_strdup(const char *text) PL_MUST_CHECK;
void pl_free(void *ptr);
/* How many bytes this thread was refused last, if that was within so long; 0: none. */
size_t pl_alloc_refused(uint64_t within_ns);

#define PL_NEW(type)          ((type *)pl_alloc_aligned(_Alignof(type), sizeof(type)))
#define PL_NEW_N(type, count) ((type *)pl_alloc_array((count), sizeof(type)))
void *pl_alloc_array(size_t count, size_t bytes) PL_MUST_CHECK; /* NULL on overflow too */

#endif
