#include "pool.h"

#include "alloc.h"
#include "expect.h"
#include "fault.h"

#include <assert.h>
#include <string.h>

void *pl_pool_get(struct pl_pool *pool)
{
    void *ptr = pool->first;

    if (ptr == NULL) {
        return pl_alloc(pool->bytes);
    }
    if (pl_fault_point("alloc")) {
        return NULL;
    }
    memcpy(&pool->first, ptr, sizeof(pool->first));
    pool->count--;
    pl_expect(pool->first, pool->bytes); /* it was put back long ago */
    memset(ptr, 0, pool->bytes);
    return ptr;
}

void pl_pool_put(struct pl_pool *pool, void *ptr)
{
    assert(pool->bytes >= sizeof(pool->first));

    if (!PL_POOL_KEEPS || ptr == NULL || pool->count == pool->count_max) {
        pl_free(ptr);
        return;
    }
    memcpy(ptr, &pool->first, sizeof(pool->first));
    pool->first = ptr;
    pool->count++;
}

void pl_pool_finish(struct pl_pool *pool)
{
    while (pool->first != NULL) {
        void *ptr = pool->first;

        memcpy(&pool->first, ptr, sizeof(pool->first));
        pl_free(ptr);
    }
    pool->count = 0;
}
