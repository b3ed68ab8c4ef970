/*
 * transfer: moving bytes between devices of a host. Two routes, both enqueued on streams and done
 * without the host's help:
 *
 *   local, peer   one copy into our memory from memory that is mapped here, ours or a peer's
 *                 (transfer/peer.c)
 *   host          device -> receiver's staging slab -> device, in chunks, each half on its own device (transfer/host.c)
 *
 * What went which way is counted at the copy call itself, so that a figure cannot say "peer" of
 * bytes that went through the host.
 *
 * Threads: owner only (the worker's lock).
 */
#ifndef TRANSFER_TRANSFER_H
#define TRANSFER_TRANSFER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/box.h"
#include "device/device.h"
#include "store/timeline.h"

/* Same numbers as RouteStats.route on the wire. */
enum transfer_route {
    TRANSFER_LOCAL  = 0,
    TRANSFER_PEER   = 1,
    TRANSFER_HOST   = 2, /* counted by the receiving half */
    TRANSFER_NCCL   = 3,
    TRANSFER_INLINE = 4, /* puts and reads inside messages */
    TRANSFER_LANE   = 5, /* puts and gets through clients' lanes (store/lane.h) */
    /* puts and gets of memory that clients share with us (store/host_buffer.h) */
    TRANSFER_HOST_BUFFER = 6,
    TRANSFER_BULK        = 7, /* puts and gets of clients on other hosts (bulk_client.h) */
    TRANSFER_ROUTES      = 8,
};

struct transfer_counters {
    uint64_t copies[TRANSFER_ROUTES];
    uint64_t bytes[TRANSFER_ROUTES];
};
static inline void transfer_count(struct transfer_counters *counters,
                                  enum transfer_route route, uint64_t bytes)
{
    counters->copies[route]++;
    counters->bytes[route] += bytes;
}

/*
 * Enqueue: `box` from a buffer that holds src_frame to one that holds dst_frame. peer: src is
 * another device's memory.
 */
plasmon_status_t transfer_copy(struct device_stream *stream, const struct pl_box *box,
                               uint32_t element_bytes, struct device_ptr dst,
                               const struct pl_box *dst_frame, struct device_ptr src,
                               const struct pl_box *src_frame, bool peer,
                               struct transfer_counters *counters) PL_MUST_CHECK;

/* A receiver's ring: its slab and its words. Both are registered with the device of who uses them. */
struct transfer_ring {
    struct store_timeline *timeline; /* the receiver's */
    uint8_t *slab;                   /* STORE_STAGE_SLOTS * STORE_STAGE_SLOT_BYTES */
};
static inline uint64_t transfer_chunks(uint64_t bytes)
{
    return (bytes + STORE_STAGE_SLOT_BYTES - 1) / STORE_STAGE_SLOT_BYTES;
}
/*
 * Enqueue the sender's half: chunks first .. first + transfer_chunks(bytes) - 1. with_bytes false:
 * only the words.
 */
plasmon_status_t transfer_stage_send(struct device_stream *stream,
                                     const struct transfer_ring *ring, uint64_t first,
                                     struct device_ptr src, uint64_t bytes,
                                     bool with_bytes) PL_MUST_CHECK;
/* Enqueue the receiver's half. */
plasmon_status_t transfer_stage_recv(struct device_stream *stream,
                                     const struct transfer_ring *ring, uint64_t first,
                                     struct device_ptr dst, uint64_t bytes, bool with_bytes,
                                     struct transfer_counters *counters) PL_MUST_CHECK;

#endif
