/*
 * What a worker serves its clients from: a table of buffers and the memory of a CPU device, in
 * which they lie one behind the other.
 */
#ifndef TESTS_FUZZ_DEVICE_H
#define TESTS_FUZZ_DEVICE_H

#include "worker/memory.h"

#define FUZZ_CHUNK_BYTES 65536u
#define FUZZ_GENERATION  10u /* of slot 1: one more, and so on */

/* Slots: one that a client may write, one that it may read; what comes behind is a task's. */
enum { FUZZ_OPENED = 1, FUZZ_SEALED = 2 };

struct fuzz_device {
    struct store_table *table; /* NULL: not begun */
    struct worker_shared shared;
    struct device *device;
    struct worker_memory *memory;
};

/* Once. Slots 1 .. slots, `stride` bytes apart, of so many bytes each. */
void fuzz_device_begin(struct fuzz_device *it, uint32_t slots, uint64_t stride,
                       uint32_t buffer_bytes);
/* Zeros, for ever. */
void *fuzz_pages(size_t bytes);

#endif
