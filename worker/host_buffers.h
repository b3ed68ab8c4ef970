/*
 * Host buffers (store/host_buffer.h), the worker's side: mapped and registered when the store hands
 * them over, looked up by number when a launch names one, dropped when the store says so and the
 * device has nothing to do.
 *
 *   handed over -> [registering, the store hears how far] -> [ready] -> drop -> [dropping] -> gone
 *                       \-> [failed], and the store knows why; what was registered stays so until it is dropped
 *
 * REGISTERING takes up to half a second a GiB (the pages are made and locked), so a thread of its
 * own does it, beside launches; it does not wait for streams, and goes piece by piece (device.h),
 * so it holds nobody up for long. A client names a buffer when all workers have it, and the head
 * that for spilling as far as all workers have it; a worker that follows a dead one may be sent
 * launches that name bytes which it has not registered yet: they wait at the front of the queue.
 * UNREGISTERING waits for every stream of the device, so it happens when nothing is enqueued
 * (worker_host_buffers_idle), and a device that always has something to do keeps what was freed.
 *
 * Threads: owner only (the worker's lock); the thread inside touches nothing but its buffer, and `progress`.
 */
#ifndef WORKER_HOST_BUFFERS_H
#define WORKER_HOST_BUFFERS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/list.h"
#include "base/lock.h"
#include "base/map.h"
#include "device/device.h"
#include "worker/shared.h"

struct worker_host_buffers {
    /* Constant after init. */
    struct device *device;
    struct worker_shared *shared;
    int wake_fd; /* an eventfd that is raised when one is registered */

    struct pl_map by_id; /* id -> struct worker_host_buffer */
    struct pl_list drops;
    bool started; /* the thread runs */
    pthread_t thread;

    struct pl_mutex lock; /* rank PL_RANK_KERNELS */
    struct pl_cond changed;
    /* Guarded by `lock`. */
    struct pl_list jobs; /* to be registered, oldest first */
    struct pl_list over; /* registered, or not; the store does not know yet */
    bool stop;

    _Atomic uint32_t over_count; /* of `over`: spares the lock when there is nothing */
    _Atomic bool progress;       /* one is registered further than the store was told */
};

plasmon_status_t worker_host_buffers_init(struct worker_host_buffers *buffers,
                                          struct device *device,
                                          struct worker_shared *shared,
                                          int wake_fd) PL_MUST_CHECK;
/* After the streams. Waits for the thread. */
void worker_host_buffers_finish(struct worker_host_buffers *buffers);
/* What the store handed over, or wants dropped. Not OK: this process must end. */
plasmon_status_t worker_host_buffers_take(struct worker_host_buffers *buffers,
                                          struct pl_err *err) PL_MUST_CHECK;
/* Tell the store what the thread is through with, and how far it is. ECLOSED: it is gone. */
plasmon_status_t
worker_host_buffers_tell(struct worker_host_buffers *buffers) PL_MUST_CHECK;
/* Is there something that waits for the device to be idle? */
static inline bool worker_host_buffers_waiting(const struct worker_host_buffers *buffers)
{
    return !pl_list_empty(&buffers->drops);
}
/* Nothing is enqueued: let go of what is to be dropped, and tell the store. */
plasmon_status_t
worker_host_buffers_idle(struct worker_host_buffers *buffers) PL_MUST_CHECK;
/*
 * Are these bytes of it still to be registered? Not if that failed, as far as the thread's answers
 * were taken (worker_host_buffers_tell).
 */
bool worker_host_buffers_locking(const struct worker_host_buffers *buffers, uint64_t id,
                                 uint64_t offset, uint64_t bytes);
/* Where these bytes are; NULL, and err says why: ENOENT, ERANGE, or how registering failed. */
void *worker_host_buffers_at(const struct worker_host_buffers *buffers, uint64_t id,
                             uint64_t offset, uint64_t bytes, struct pl_err *err);

#endif
