/* Between shared.c and shared_control.c: what the store sends, and asking it. Everything under shared->lock. */
#ifndef CLIENT_SHARED_INT_H
#define CLIENT_SHARED_INT_H

#include "client/shared.h"

struct shared_chunk {
    uint64_t offset; /* in the arena */
    uint64_t bytes;
    void *data;
};

static inline uint64_t shared_chunk_key(uint32_t host_device, uint32_t id, bool writable)
{
    return ((uint64_t)host_device << 33 | (uint64_t)id << 1 | (writable ? 1u : 0u)) + 1;
}

plasmon_status_t shared_control_connect(const char *path, int *out_fd,
                                        struct pl_err *err) PL_MUST_CHECK;
plasmon_status_t shared_control_send(struct shared *shared, struct store_control message,
                                     struct pl_err *err) PL_MUST_CHECK;
/* Take one message, whatever it is, into `shared`. */
plasmon_status_t shared_control_step(struct shared *shared, uint64_t deadline_ns,
                                     struct pl_err *err) PL_MUST_CHECK;

#endif
