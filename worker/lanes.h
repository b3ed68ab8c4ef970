/*
 * Lanes of clients (store/lane.h), the device's side: requests come in, copies go to two streams
 * that nothing else uses, one a direction. A lane is mapped and registered when the store says that
 * it is there, and stays until the process ends.
 *
 * WHAT A REQUEST MAY TOUCH  A put: a buffer that is being written and was made for a client. A get:
 * any buffer of that generation; that its bytes are right is the matter of the client, which pinned
 * it when it was sealed. Everything in a request is checked, for it is in memory that a client
 * writes.
 *
 * A buffer that is freed while a put's copy into it is on its way (its client died) keeps its
 * memory until the copy is over: worker_lanes_write().
 *
 * Lanes of our own are for clients of other hosts, whose bytes threads of this process bring
 * (bulk_clients.h): the same in all but where they come from. They are lent by any thread.
 *
 * Threads: owner only (the worker's lock), unless it says otherwise.
 */
#ifndef WORKER_LANES_H
#define WORKER_LANES_H

#include "base/lock.h"
#include "device/device.h"
#include "store/lane.h"
#include "transfer/transfer.h"
#include "worker/memory.h"
#include "worker/shared.h"

struct worker_lanes {
    struct device *device;
    struct worker_shared *shared;
    struct worker_memory *memory;
    struct transfer_counters *counters;
    struct device_stream *in;  /* puts; NULL until there is a lane */
    struct device_stream *out; /* gets */
    struct pl_vec lanes;       /* struct worker_lane * */
    uint32_t running;          /* requests on the device */
    plasmon_status_t broken;   /* the device refused a copy */

    struct pl_mutex lent_lock; /* rank PL_RANK_LEAF */
    struct pl_vec lent;        /* struct store_lane *, that came since; guarded by it */
};

plasmon_status_t worker_lanes_init(struct worker_lanes *lanes, struct device *device,
                                   struct worker_shared *shared,
                                   struct worker_memory *memory,
                                   struct transfer_counters *counters) PL_MUST_CHECK;
void worker_lanes_finish(struct worker_lanes *lanes); /* waits for the streams */
/*
 * Make the streams now and not with the first lane: on a GPU, where streams that wait may hold up
 * what makes others.
 */
plasmon_status_t worker_lanes_open(struct worker_lanes *lanes) PL_MUST_CHECK;
/* Map what the store sent. */
plasmon_status_t worker_lanes_take(struct worker_lanes *lanes,
                                   struct pl_err *err) PL_MUST_CHECK;
/* A lane of our own: STORE_LANE_BYTES, mapped and registered with the device; taken. Threads: any. */
void worker_lanes_lend(struct worker_lanes *lanes, struct store_lane *lane);
/* Enqueue what was asked. After a ring of the doorbell, and after taking lanes. */
void worker_lanes_serve(struct worker_lanes *lanes);
/* Is a copy into this slot of the table on its way? */
bool worker_lanes_write(struct worker_lanes *lanes, uint32_t buffer_slot);
bool worker_lanes_busy(struct worker_lanes *lanes); /* anything on the device */
plasmon_status_t worker_lanes_health(const struct worker_lanes *lanes);

#endif
