/*
 * The host buffers of a host (store/host_buffer.h): which there are, whose, which workers have yet
 * to say that they have one, and which have yet to let one go. Decides; the daemon sends.
 *
 *   make -> [asked] -> every worker has it -> [given] -> drop -> [dropping] -> every worker has let go -> freed
 *               \-> one cannot register it: [dropping], and its client is told why
 *
 * That for spilling is used as far as every worker has it, from its beginning: who made it hears of
 * each step, and where it ended early.
 *
 * Threads: owner only (the store's loop).
 */
#ifndef STORE_HOST_BUFFERS_H
#define STORE_HOST_BUFFERS_H

#include "base/str.h"
#include "store/host_buffer.h"
#include "store/host.h"

struct store_host_buffer {
    uint64_t id;
    uint64_t bytes;
    int fd; /* -1 once it is dropped: who has it mapped keeps it */
    uint32_t reader;
    uint32_t request; /* the client's number for its question */
    bool given;
    uint64_t asked;          /* bit i: the worker of device i has not answered yet */
    uint64_t holders;        /* bit i: it has, or may have, the memory mapped */
    uint64_t counted;        /* bit i: it was asked, and has not died since */
    uint64_t locked[64];     /* of these: bytes from the beginning that it has registered */
    uint64_t told;           /* of what is for spilling: so many may be used, as was said */
    plasmon_status_t failed; /* what the first worker that could not said */
    uint32_t failed_device;
};

/* For this reader; `workers`: bit i: device i has a worker, which will be told.
 * ELIMIT, EAGAIN (not yet: some is being dropped), EINVAL, ENOMEM: err says why. */
plasmon_status_t store_host_buffers_make(struct store_host *host, uint32_t reader,
                                         uint32_t request, uint64_t bytes, uint64_t workers,
                                         struct store_host_buffer **out_buffer,
                                         struct pl_err *err) PL_MUST_CHECK;
/* One that another store made, and that the worker of `device` has. Takes fd. */
plasmon_status_t store_host_buffers_keep(struct store_host *host, uint32_t device,
                                         uint64_t id, uint64_t bytes, uint32_t reader,
                                         int fd) PL_MUST_CHECK;
/*
 * One that was kept: these workers have yet to say that they have it, and it is not given to
 * anybody before.
 */
void store_host_buffers_ask(struct store_host_buffer *buffer, uint64_t workers);
/* NULL: none, or dropped. */
struct store_host_buffer *store_host_buffers_find(const struct store_host *host,
                                                  uint64_t id);
/* locked: bytes from the beginning. OK and fewer than all: there is more to come. */
void store_host_buffers_said(struct store_host *host, uint32_t device, uint64_t id,
                             uint64_t locked, plasmon_status_t status);
/*
 * One that every worker has answered for, and whose client does not know yet: given is set. Or what
 * is for spilling and not given yet, if every worker has more of it than was `told`, which is set.
 * NULL: none.
 */
struct store_host_buffer *store_host_buffers_decided(struct store_host *host);
/* Bytes from the beginning that every worker which was asked has. */
uint64_t store_host_buffers_usable(const struct store_host_buffer *buffer);
/* Nobody will name it any more. Its holders are to be told; without any it is gone when this returns. */
void store_host_buffers_drop(struct store_host *host, struct store_host_buffer *buffer);
/* A worker of this device is about to get all that there are, with its set-up. */
void store_host_buffers_handed(struct store_host *host, uint32_t device);
/* The worker let go of it. */
void store_host_buffers_gone(struct store_host *host, uint32_t device, uint64_t id);
/* The worker of the device will not answer any more, but may still have what it had: it cannot be reaped. */
void store_host_buffers_silent(struct store_host *host, uint32_t device);
/* The worker of the device is dead: it answers nothing and holds nothing. */
void store_host_buffers_down(struct store_host *host, uint32_t device);
/* The i-th, dropped ones (fd -1) too. NULL: no more. */
const struct store_host_buffer *store_host_buffers_at(const struct store_host *host,
                                                      size_t i);
void store_host_buffers_finish(struct store_host *host);

#endif
