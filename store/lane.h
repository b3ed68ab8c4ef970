/*
 * Lanes: how a client's bytes reach a device whose memory it cannot map. A lane is a slab of shared
 * memory for one client and one device: STORE_LANE_SLOTS slots of STORE_LANE_SLOT_BYTES, which the
 * device's worker has registered (pinned), and behind which lies a mailbox each. plasmon-store
 * makes it, keeps it, and gives it to the next client when its last one is gone.
 *
 *   client   fills in the request of a slot (and, for a put, the slot), asked := done + 1, rings
 *            the worker's doorbell
 *   worker   checks the request and enqueues, on a stream that is for lanes alone: the copy between
 *            slot and device, done := asked; a request that it refuses gets its status, and done :=
 *            asked from the host
 *   client   sees done == asked: a put's slot is free again, a get's slot holds the bytes
 *
 * WHO WAITS FOR WHOM  The device waits for nobody: a copy is enqueued once its bytes are there. So
 * a client that stops holds up only itself. A client waits for `done`, and looks meanwhile whether
 * `closed` says that no worker will come.
 *
 * A WORKER DIES  Slots, mailboxes and words are the store's. What was asked and is not done is
 * found so by the next worker, which copies it (again): the slot is as it was, because its client
 * changes it only after done.
 *
 * A CLIENT DIES  What it had asked for is done all the same, into a slot that nobody reads, or from
 * a slot that nobody fills. The lane is another client's when the store has seen the first one's
 * end, and every slot is quiet (asked == done).
 *
 * A slot's words only grow, over all its clients.
 */
#ifndef STORE_LANE_H
#define STORE_LANE_H

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/base.h"

#define STORE_LANE_MAGIC 0x706c736c616e3031ull /* "plslan01" */
#define STORE_LANE_SLOTS 16u
/*
 * Large enough that what a piece costs its worker (about 10 us) is little beside the 40 us that a
 * bus of 50 GB/s needs for it; small enough that a few of them in flight fit into a cache.
 */
#define STORE_LANE_SLOT_BYTES (2u << 20)
#define STORE_LANES_MAX       16u /* a device: 512 MiB of pinned memory */

enum store_lane_kind {
    STORE_LANE_PUT = 1, /* slot -> buffer, which a PutOpen made and nobody sealed yet */
    STORE_LANE_GET = 2, /* buffer, which the client has pinned -> slot */
};

struct store_lane_slot {
    /* By the client. Everything before `asked`, which is released. */
    _Alignas(64) uint64_t asked;
    uint32_t kind; /* enum store_lane_kind */
    uint32_t buffer_slot;
    uint32_t generation;
    uint32_t reserved;
    uint64_t offset; /* in the buffer */
    uint64_t bytes;
    /* By the device, or by the worker (status; done of what it refuses). */
    _Alignas(64) uint64_t done;
    int32_t status; /* plasmon_status_t; right when done == asked */
};
static_assert(sizeof(struct store_lane_slot) == 128, "shared between processes");

struct store_lane {
    uint64_t magic;
    /*
     * By the store: the device is given up; by the worker: this cannot be pinned. Nothing will be
     * done any more, or not before the store opens it for its next client.
     */
    uint64_t closed;
    uint64_t reader; /* by the store: whose it is, for the store that comes after it */
    struct store_lane_slot slot[STORE_LANE_SLOTS];
};

/* The slots' bytes follow the mailboxes, on a page of their own. */
#define STORE_LANE_DATA ((uint64_t)4096)
#define STORE_LANE_BYTES \
    (STORE_LANE_DATA + (uint64_t)STORE_LANE_SLOTS * STORE_LANE_SLOT_BYTES)
static_assert(sizeof(struct store_lane) <= STORE_LANE_DATA,
              "mailboxes fit before the data");

static inline uint8_t *store_lane_data(struct store_lane *lane, uint32_t slot)
{
    return (uint8_t *)lane + STORE_LANE_DATA + (uint64_t)slot * STORE_LANE_SLOT_BYTES;
}
/* Acquire: pairs with the device's write behind its copy, or the release of the worker. */
static inline uint64_t store_lane_done(const struct store_lane *lane, uint32_t slot)
{
    return __atomic_load_n(&lane->slot[slot].done, __ATOMIC_ACQUIRE);
}
/* Acquire: pairs with the client's release: the request before it is right. */
static inline uint64_t store_lane_asked(const struct store_lane *lane, uint32_t slot)
{
    return __atomic_load_n(&lane->slot[slot].asked, __ATOMIC_ACQUIRE);
}
/* Nothing of this slot is on its way. */
static inline bool store_lane_quiet(const struct store_lane *lane, uint32_t slot)
{
    return store_lane_asked(lane, slot) == store_lane_done(lane, slot);
}

#endif
