/*
 * A store that died, and the one that comes after it.
 *
 * What a store keeps are descriptors, and its workers have them all: each was handed those of every
 * device of the host, to map them. So when a store dies its workers go on; they wait for another
 * one at a socket with a name that follows from the head's address and the node's name, and hand
 * back what they have. The new store builds the same host from it, sends each worker what it may
 * have missed, replaces workers that died meanwhile, and tells the head that it is the store of
 * before (its session is in device 0's timeline).
 *
 * ONE WORKER IS ENOUGH. Everything but a table, a page of pins and the chunks of CPU devices is
 * handed to all workers writable; of those it is opened anew for writing, which one user may
 * (base/fd.c). So a worker that dies while there is no store costs no more than it costs otherwise.
 *
 * NOBODY WRITES TWICE. A worker that does not hand back within STORE_HANDBACK_ALL_MS is killed and
 * waited for before another one gets its memory: its pid and start time are in its timeline.
 *
 * CLIENTS of the host lose their control socket, and with it new chunks, lanes and host buffers;
 * what they have mapped stays, and their pins count until their process ends: a page has its
 * owner's pid, which the new store watches. A client that connects to the new store says which page
 * it has, and goes on with it (store/control.h).
 *
 * What comes in is from processes of our user, and checked all the same.
 *
 * Threads: owner only (the store's loop, before it begins).
 */
#ifndef STORE_HANDBACK_H
#define STORE_HANDBACK_H

#include "store/control.h"
#include "store/host.h"

#define STORE_HANDBACK_FIRST_MS  3000u /* for the first worker, where a store has died */
#define STORE_HANDBACK_ALL_MS    3000u /* for the others, from then on */
#define STORE_HANDBACK_ITEMS_MAX (64u * 1024u)

struct store_handback_worker {
    bool done; /* HANDBACK_END came */
    uint32_t incarnation;
    uint64_t memory_bytes;
};

struct store_handback {
    uint32_t total; /* devices; 0: nobody came */
    struct store_handback_worker workers[STORE_HOST_DEVICE_MAX];
    struct pl_vec items; /* struct store_handback_item */
};

void store_handback_init(struct store_handback *handback);
void store_handback_finish(struct store_handback *handback); /* closes what was not used */
/* A worker begins. EMALFORMED, EEXIST, EVERSION: err says why it is not believed. */
plasmon_status_t store_handback_begin(struct store_handback *handback,
                                      const struct store_control *message,
                                      struct pl_err *err) PL_MUST_CHECK;
/* KEPT or HANDBACK_END of the worker of `device`. Takes fd, also on failure. */
plasmon_status_t store_handback_message(struct store_handback *handback, uint32_t device,
                                        const struct store_control *message, int fd,
                                        struct pl_err *err) PL_MUST_CHECK;
/*
 * Are all done? What one gave that ended before it was through stays, but it counts as one that did
 * not come.
 */
bool store_handback_complete(const struct store_handback *handback);
/*
 * The host that they describe, into an empty one. Everything is used up. Not OK: something is
 * missing or contradicts itself, and `host` is empty again.
 */
plasmon_status_t store_handback_build(struct store_handback *handback,
                                      struct store_host *host,
                                      struct pl_err *err) PL_MUST_CHECK;

#endif
