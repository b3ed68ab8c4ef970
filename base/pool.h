/*
 * Memory of one size that comes and goes all the time. What is put back is given out again before
 * the allocator is asked: a pair of calls of the allocator costs some 200 instructions once more
 * pieces are out than it keeps at hand itself, and this a tenth of that.
 *
 * At most `count_max` pieces are kept; more go back to the allocator. With the address sanitizer
 * none is, so that it sees who uses what has been freed.
 *
 * Threads: a pool belongs to one; memory may be put back into another pool of the same size.
 */
#ifndef BASE_POOL_H
#define BASE_POOL_H

#include "base.h"

#if defined(__SANITIZE_ADDRESS__)
#define PL_POOL_KEEPS 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define PL_POOL_KEEPS 0
#endif
#endif
#ifndef PL_POOL_KEEPS
#define PL_POOL_KEEPS 1
#endif

struct pl_pool {
    size_t bytes; /* of a piece, a pointer at least */
    uint32_t count_max;
    uint32_t count;
    void *first; /* each begins with the address of the next */
};
#define PL_POOL_INIT(type, max)                   \
    {                                             \
        .bytes = sizeof(type), .count_max = (max) \
    }

/* Zeroed; NULL: no memory (fault point "alloc"). The caller's until pl_pool_put(); pl_free() will do, too. */
void *pl_pool_get(struct pl_pool *pool) PL_MUST_CHECK;
void pl_pool_put(struct pl_pool *pool, void *ptr);
/* What is kept goes back to the allocator. */
void pl_pool_finish(struct pl_pool *pool);

#endif
