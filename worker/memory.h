/*
 * Address space: where an offset in a device's arena is in this process.
 *
 * Our own arena grows by chunks, which the store says that it keeps before anything is put there.
 * Peers' chunks are mapped read-only by a thread in the background as they are announced, because
 * mapping a large one on another GPU takes 8 ms; a copy from one that is not mapped yet maps it
 * there and then.
 *
 * Threads: any with the worker's lock; the mapper thread is inside.
 */
#ifndef WORKER_MEMORY_H
#define WORKER_MEMORY_H

#include "device/device.h"
#include "worker/core.h"
#include "worker/shared.h"

struct worker_memory;

/* bytes_max: how much we may take of the device; 0: all there is. */
plasmon_status_t worker_memory_create(struct device *device, struct worker_shared *shared,
                                      uint64_t bytes_max, struct worker_memory **out_memory,
                                      struct pl_err *err) PL_MUST_CHECK;
void worker_memory_destroy(struct worker_memory *memory);
/* Where chunks of ours are reported from now on. */
void worker_memory_set_core(struct worker_memory *memory, struct worker_core *core);
/*
 * Take shared->chunks: map our own (after a restart), queue those of peers; and
 * shared->chunks_kept: use the one that was on its way, or send it, if it could not be sent.
 */
plasmon_status_t worker_memory_take_chunks(struct worker_memory *memory,
                                           struct pl_err *err) PL_MUST_CHECK;
/*
 * worker_ops.grow; never OK: EAGAIN until worker_memory_take_chunks() finds that the store keeps
 * the chunk.
 */
plasmon_status_t worker_memory_grow(struct worker_memory *memory, uint32_t pool,
                                    uint64_t bytes) PL_MUST_CHECK;
/* A chunk waits for a store that does not read: worker_memory_take_chunks() is to be called now and then. */
bool worker_memory_unsent(const struct worker_memory *memory);
struct device_ptr worker_memory_own(const struct worker_memory *memory, uint64_t offset);
/*
 * A peer's bytes, mapped, in all chunks that they lie in. EUNREACHABLE: no such chunk, or no way to
 * map it.
 */
plasmon_status_t worker_memory_peer(struct worker_memory *memory, uint32_t host_device,
                                    uint64_t offset, uint64_t bytes,
                                    struct device_ptr *out_ptr) PL_MUST_CHECK;
/* Can devices of our kind on this host all map each other's memory? */
bool worker_memory_peer_capable(const struct worker_memory *memory);

#endif
