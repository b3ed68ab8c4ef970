/*
 * Memory that is looked at soon. Where thousands of things are in flight nothing of the next one is
 * in a cache when its turn comes; so its lines begin to come from memory while the one before is
 * worked at. It is advice: any address will do, and NULL.
 */
#ifndef BASE_EXPECT_H
#define BASE_EXPECT_H

#include <stddef.h>

#define PL_LINE_BYTES 64

static inline void pl_expect(const void *at, size_t bytes)
{
    for (size_t i = 0; at != NULL && i < bytes; i += PL_LINE_BYTES) {
        __builtin_prefetch((const char *)at + i, 1);
    }
}

#endif
