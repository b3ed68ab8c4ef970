/*
 * What this process shares with the devices of its host: their object tables, their chunks, a page of pins. All of it comes as
 * descriptors from plasmon-store over its control socket (store/control.h), when it is first needed.
 *
 * Memory of CPU devices is host memory and can be mapped: results read-only, chunks for puts writable. Mappings stay until the
 * end (chunks.h), and a pin keeps what is in them. To other devices there are lanes (lane.h).
 *
 * Threads: any; `lock` guards the socket and the lists. Pinned bytes are used without it.
 */
#ifndef CLIENT_SHARED_H
#define CLIENT_SHARED_H

#include <stdbool.h>

#include "base/lock.h"
#include "client/chunks.h"
#include "client/lane.h"
#include "store/control.h"
#include "store/table.h"
#include "store/timeline.h"

struct shared {
    struct pl_mutex lock; /* rank PL_RANK_STORE */

    /* Guarded by `lock`. */
    int control_fd; /* -1: none */
    int head_fd;    /* private cluster: a socket to the head that nobody took yet; -1 */
    bool ready;     /* set-up is complete */
    uint32_t device_count;
    const struct store_table *tables[STORE_HOST_DEVICE_MAX];
    uint64_t table_bytes;
    struct store_pins *pins;
    uint64_t pins_bytes;
    struct chunks *chunks[STORE_HOST_DEVICE_MAX]; /* NULL: nothing was asked for yet */
    struct lane *lanes[STORE_HOST_DEVICE_MAX];    /* NULL: none yet; stays until the end */
    uint32_t buffer_request; /* number of the last question for a host buffer */
    struct {
        uint64_t bytes; /* asked for */
        uint64_t id;    /* the answer, when buffer_data is not NULL */
    } buffer;
    void *buffer_data;
    uint64_t lane_refused_ns; /* when the store last had none for us; 0: never */
};

struct shared_pin {
    struct store_entry entry;
    const void *data; /* the buffer's first byte */
    uint32_t pin;
};

plasmon_status_t shared_init(struct shared *shared) PL_MUST_CHECK;
void shared_finish(struct shared *shared);
/* In a forked child: drop descriptors and mappings without a word. */
void shared_abandon(struct shared *shared);
/* The socket of a private cluster's store; taken. */
void shared_adopt(struct shared *shared, int control_fd);

/* Connect (path: when there is no socket yet) and map tables and pins, once. EUNREACHABLE: there is no store here. err says why. */
plasmon_status_t shared_ensure(struct shared *shared, const char *path,
                               struct pl_err *err) PL_MUST_CHECK;
/* A socket to the private cluster's head: the one that came, or a new one when `ask`. The caller's. */
plasmon_status_t shared_take_head_fd(struct shared *shared, bool ask, uint64_t deadline_ns,
                                     int *out_fd, struct pl_err *err) PL_MUST_CHECK;

/* The lane to a device, made when first asked for. EAGAIN: the store has none left just now. */
plasmon_status_t shared_lane(struct shared *shared, uint32_t host_device,
                             struct lane **out_lane, struct pl_err *err) PL_MUST_CHECK;
/*
 * A host buffer (store/host_buffer.h), mapped. The store answers when all workers have it registered. ELIMIT: the host's limit; what a worker
 * said; ETIMEDOUT.
 */
plasmon_status_t shared_buffer_take(struct shared *shared, uint64_t bytes,
                                    uint64_t deadline_ns, uint64_t *out_id, void **out_data,
                                    struct pl_err *err) PL_MUST_CHECK;
/* The caller has unmapped it. */
void shared_buffer_drop(struct shared *shared, uint64_t id);
/* The store has gone, and with it the workers. Any thread. */
bool shared_store_gone(struct shared *shared);

/*
 * Pin a sealed buffer of any device, without mapping it: data is NULL. Otherwise as shared_pin().
 */
plasmon_status_t shared_hold(struct shared *shared, uint32_t host_device, uint32_t slot,
                             uint32_t generation, uint64_t deadline_ns,
                             struct shared_pin *out_pin, struct pl_err *err) PL_MUST_CHECK;
/*
 * May device number `host_device` of the store that we are connected to be the cluster's device `index`? No: its worker says that it is
 * another, for the store of this host has been replaced since. When nobody said, what follows finds out.
 */
bool shared_serves(struct shared *shared, uint32_t host_device, uint32_t index);
/*
 * Pin a sealed buffer of a CPU device; data is mapped. Waits while it is not sealed yet. ELOST: gone, ask the head again.
 * ETIMEDOUT, EUNREACHABLE, ELIMIT (STORE_PIN_MAX mappings).
 */
plasmon_status_t shared_pin(struct shared *shared, uint32_t host_device, uint32_t slot,
                            uint32_t generation, uint64_t deadline_ns,
                            struct shared_pin *out_pin, struct pl_err *err) PL_MUST_CHECK;
void shared_unpin(struct shared *shared, const struct shared_pin *pin);
/* Where to write a buffer that a put opened: it is in a client-writable chunk and not sealed. */
plasmon_status_t shared_writable(struct shared *shared, uint32_t host_device, uint32_t slot,
                                 uint32_t generation, uint64_t bytes, uint64_t deadline_ns,
                                 void **out_data, struct pl_err *err) PL_MUST_CHECK;

#endif
