/*
 * memcpy() for large blocks, wherever they lie.
 *
 * A load waits for an earlier store when the low 12 bits of their addresses meet, because at first
 * the processor compares no more than those. So memcpy() has a third of its speed when the
 * destination lies a little ahead of the source modulo 4096, which is no rare case: what malloc()
 * returns for a large block begins 16 bytes into a page, and buffers of devices begin with one.
 * Then the bytes go through a block that stays in the cache and lies half a page away from both.
 */
#ifndef BASE_COPY_H
#define BASE_COPY_H

#include <stddef.h>

void pl_copy(void *dst, const void *src, size_t bytes);

#endif
