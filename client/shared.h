/*
 * What this process shares with the devices of its host: their object tables, their chunks, a page
 * of pins. All of it comes as descriptors from plasmon-store over its control socket
 * (store/control.h), when it is first needed.
 *
 * Memory of CPU devices is host memory and can be mapped: results read-only, chunks for puts
 * writable. Mappings stay until the end (chunks.h), and a pin keeps what is in them. To other
 * devices there are lanes (lane.h).
 *
 * ANOTHER STORE. A store that dies leaves us with all that is mapped, which goes on to work; only
 * what is new needs a store. The next one (shared_renew) has one of two things. The memory of the
 * one before, and with it our page of pins: nothing changes but the socket. Or another memory (its
 * workers died, too): then what came from the old one stays until the last pin in it goes, and from
 * now on everything is the new one's. `struct shared_memory` is the memory of one store; who uses
 * something of it holds it.
 *
 * A STORE THAT DOES NOT ANSWER is asked once, and then left alone for a while (a second, and twice
 * as long each time, up to SHARED_REST_NS_MAX): what needs it fails at once meanwhile, with who it
 * is and since when, and goes another way (messages) where there is one. What it says later counts
 * as an answer, and ends that. So does its end, which the connection tells that it did not answer
 * on: it is kept for that (its process may be one of another pid namespace, and have no number
 * here). The next store is not held to account for it. One that was asked whether the memory goes on,
 * and has not said so yet, may have put our page of pins to that connection, and clears it when it
 * ends: so who asks again waits at the same one for the answer.
 *
 * Threads: any; `lock` guards the socket and the lists. Pinned bytes are used without it.
 */
#ifndef CLIENT_SHARED_H
#define CLIENT_SHARED_H

#include <stdbool.h>

#include "base/list.h"
#include "base/lock.h"
#include "client/chunks.h"
#include "client/lane.h"
#include "store/control.h"
#include "store/table.h"
#include "store/timeline.h"

#define SHARED_REST_NS_MAX 30000000000ull /* of a store that does not answer */

/* The memory of a host, as a store has given it. */
struct shared_memory {
    struct shared *shared;
    struct pl_list link; /* shared->memories */
    /* who uses something of it, and `present`; the last one ends it */
    _Atomic uint32_t users;

    /* Constant when it is set up. */
    uint64_t number; /* that the store has drawn for it; 0: none was told */
    uint32_t reader; /* whose page of pins is ours */
    uint32_t device_count;
    const struct store_table *tables[STORE_HOST_DEVICE_MAX];
    uint64_t table_bytes;
    struct store_pins *pins;
    uint64_t pins_bytes;

    /* Guarded by the lock of its `shared`. */
    struct chunks *chunks[STORE_HOST_DEVICE_MAX]; /* NULL: nothing was asked for yet */
    struct lane *lanes[STORE_HOST_DEVICE_MAX];    /* NULL: none yet; stays until the end */
};

struct shared {
    struct pl_mutex lock; /* rank PL_RANK_STORE */

    /* Guarded by `lock`. */
    int control_fd; /* -1: none */
    int head_fd;    /* private cluster: a socket to the head that nobody took yet; -1 */
    int asked_fd; /* over which a store was asked for `present`, and did not answer yet; -1 */
    struct pl_list memories;       /* all that there are */
    struct shared_memory *present; /* NULL: nothing is set up yet */
    struct shared_memory *coming;  /* while a set-up comes; else NULL */
    uint32_t buffer_request;       /* number of the last question for a host buffer */
    struct {
        uint64_t bytes; /* asked for */
        uint64_t id;    /* the answer, when buffer_data is not NULL */
    } buffer;
    void *buffer_data;
    uint64_t lane_refused_ns; /* when the store last had none for us; 0: never */
    struct {
        /* how long it is left alone since it did not answer; 0: it has answered since */
        uint64_t rest_ns;
        uint64_t until_ns; /* the end of that */
        int witness;       /* the connection on which it did not answer; -1: none */
        pid_t pid;         /* 0: not known */
        bool stopped;      /* it was, then */
        bool owes;         /* it was asked since it last said anything */
    } silent;
};

/* A buffer, as the head names it. */
struct shared_key {
    uint32_t host_device; /* number of its device for the store */
    uint32_t device;      /* and for the cluster */
    uint32_t slot;
    uint32_t generation;
};

struct shared_pin {
    struct store_entry entry;
    const void *data;             /* the buffer's first byte */
    struct shared_memory *memory; /* in which it lies; held */
    uint32_t pin;
};

plasmon_status_t shared_init(struct shared *shared) PL_MUST_CHECK;
void shared_finish(struct shared *shared); /* what is still pinned goes, too */
/* In a forked child: drop descriptors and mappings without a word. */
void shared_abandon(struct shared *shared);
/* The socket of a private cluster's store; taken. */
void shared_adopt(struct shared *shared, int control_fd);

/*
 * Connect (path: when there is no socket yet) and map tables and pins, once. EUNREACHABLE: there is
 * no store here. err says why.
 */
plasmon_status_t shared_ensure(struct shared *shared, const char *path,
                               struct pl_err *err) PL_MUST_CHECK;
/*
 * The same when that store may be gone: connect to the one that is at `path` now. OK also when ours
 * is there after all. Otherwise what was set up stays as it is.
 */
plasmon_status_t shared_renew(struct shared *shared, const char *path,
                              struct pl_err *err) PL_MUST_CHECK;
/* How many devices its store has; 0: nothing is set up. */
uint32_t shared_device_count(struct shared *shared);
/* A socket to the private cluster's head: the one that came, or a new one when `ask`. The caller's. */
plasmon_status_t shared_take_head_fd(struct shared *shared, bool ask, uint64_t deadline_ns,
                                     int *out_fd, struct pl_err *err) PL_MUST_CHECK;

/* The memory in which something lies, for as long as it is used. */
void shared_memory_release(struct shared_memory *memory); /* NULL is fine */
/* Is it the one that our store has, and is the store there? */
bool shared_memory_lives(struct shared *shared, const struct shared_memory *memory);

/*
 * The lane to a device, made when first asked for; its memory is held. EAGAIN: the store has none
 * left just now. ECLOSED: the store is gone, and was needed. EUNREACHABLE: no such device.
 */
plasmon_status_t shared_lane(struct shared *shared, uint32_t host_device, uint32_t device,
                             struct lane **out_lane, struct shared_memory **out_memory,
                             struct pl_err *err) PL_MUST_CHECK;
/*
 * A host buffer (store/host_buffer.h), mapped; *out_memory is the number of the memory that it
 * belongs to. The store answers when all workers have it registered. ELIMIT: the host's limit; what
 * a worker said; ETIMEDOUT; ECLOSED.
 */
plasmon_status_t shared_buffer_take(struct shared *shared, uint64_t bytes,
                                    uint64_t deadline_ns, uint64_t *out_id,
                                    uint64_t *out_memory, void **out_data,
                                    struct pl_err *err) PL_MUST_CHECK;
/* The caller has unmapped it. */
void shared_buffer_drop(struct shared *shared, uint64_t memory, uint64_t id);
/* Number of the memory that our store has; 0: none, or the store is gone. */
uint64_t shared_number(struct shared *shared);

/*
 * Pin a sealed buffer of any device, without mapping it: data is NULL. Otherwise as shared_pin().
 */
plasmon_status_t shared_hold(struct shared *shared, const struct shared_key *key,
                             uint64_t deadline_ns, struct shared_pin *out_pin,
                             struct pl_err *err) PL_MUST_CHECK;
/*
 * May device number `host_device` of the store that we are connected to be the cluster's device
 * `device`? No: its worker says that it is another, for the store of this host has been replaced
 * since. When nobody said, what follows finds out.
 */
bool shared_serves(struct shared *shared, uint32_t host_device, uint32_t device);
/*
 * Pin a sealed buffer of a CPU device; data is mapped. Waits while it is not sealed yet. ELOST:
 * gone, ask the head again. ETIMEDOUT, EUNREACHABLE, ELIMIT (STORE_PIN_MAX mappings); ECLOSED: the
 * store is gone, and its chunk was not mapped yet.
 */
plasmon_status_t shared_pin(struct shared *shared, const struct shared_key *key,
                            uint64_t deadline_ns, struct shared_pin *out_pin,
                            struct pl_err *err) PL_MUST_CHECK;
void shared_unpin(const struct shared_pin *pin);
/*
 * Where to write a buffer that a put opened: it is in a client-writable chunk and not sealed. It is
 * pinned until it is written, and before its seal is asked for, which waits for that.
 */
plasmon_status_t shared_writable(struct shared *shared, const struct shared_key *key,
                                 uint64_t bytes, uint64_t deadline_ns, void **out_data,
                                 struct shared_pin *out_pin,
                                 struct pl_err *err) PL_MUST_CHECK;

#endif
