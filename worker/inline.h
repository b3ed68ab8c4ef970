/*
 * Bytes that travel inside messages: puts on their way to the device, reads on their way back. Each
 * lies in host memory that is registered with the device until its stream has passed it.
 *
 * Memory comes in slabs that are filled from the front and used again once the last of their bytes
 * was passed. How far a stream is says a word that the stream writes after each piece. The slabs
 * are as many as the launches that the head lets be outstanding need, and are kept.
 *
 * Threads: owner only (the worker's lock).
 */
#ifndef WORKER_INLINE_H
#define WORKER_INLINE_H

#include "base/list.h"
#include "device/device.h"

/* One of these a direction, used with one stream. */
struct worker_inline {
    struct device *device;
    uint64_t *word;       /* registered; tickets that the stream has passed */
    uint64_t ticket;      /* last one given out */
    struct pl_list slabs; /* oldest use first; the last one is being filled */
    struct pl_list reads; /* struct inline_read, oldest first */
};

plasmon_status_t worker_inline_init(struct worker_inline *in,
                                    struct device *device) PL_MUST_CHECK;
void worker_inline_finish(struct worker_inline *in); /* the stream is idle */
/* Enqueue: copy these bytes to the device. They are copied before this returns. */
plasmon_status_t worker_inline_put(struct worker_inline *in, struct device_stream *stream,
                                   struct device_ptr dst, const uint8_t *bytes,
                                   uint64_t length) PL_MUST_CHECK;
/* Enqueue: copy from the device; worker_inline_collect() gives them when they are there. */
plasmon_status_t worker_inline_read(struct worker_inline *in, struct device_stream *stream,
                                    struct device_ptr src, uint64_t length,
                                    uint64_t request) PL_MUST_CHECK;
/* Calls fn for each read that is complete, in order. Bytes are lent until it returns. */
void worker_inline_collect(struct worker_inline *in,
                           void (*fn)(void *user, uint64_t request, const uint8_t *bytes,
                                      uint64_t length),
                           void *user);

#endif
