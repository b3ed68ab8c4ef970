/*
 * Clients of other hosts at the bulk channel: bytes straight between a program's memory and the
 * device that has, or gets, them.
 *
 *   put   socket -> piece of memory -> device, several pieces on their way; the client hears how many bytes are on the device
 *   get   device -> piece of memory -> socket, likewise
 *
 * A piece of memory is the buffer itself where the host can reach it (CPU devices), or pinned
 * memory that is this connection's alone. So what a client can hold up by being slow, or by being
 * silent, is its own connection. The thread of that connection is the only one that ever waits for
 * it: the worker's main thread and its streams see copies between two memories that are both there.
 *
 * A client that sends nothing, or takes nothing, for longer than the deadline loses its connection;
 * it comes again, and goes on where it was. A buffer is held (not freed, not written in place) from
 * a piece's begin to its end, which is between two such deadlines; what is between pieces is held
 * by nobody but the head, as long as the client's session is.
 *
 * WHO MAY DO WHAT is the worker's to say, with the ticket that each request carries:
 * transfer_bulk_access_ops. Threads: those functions are called by threads of connections, several
 * at a time, one for each access.
 */
#ifndef TRANSFER_BULK_CLIENT_H
#define TRANSFER_BULK_CLIENT_H

#include "transfer/bulk_link.h"

#define TRANSFER_ACCESS_SLOTS_MAX 4u

/* One request that was admitted. */
struct transfer_bulk_access {
    uint32_t slots; /* pieces that may be under way at a time */
};

struct transfer_bulk_access_ops {
    /* May it? EAUTH: not with this ticket; ERANGE: outside of the buffer; ELIMIT: not now; err says why. */
    plasmon_status_t (*open)(void *user, const struct bulk_request *request,
                             struct transfer_bulk_access **out_access, struct pl_err *err);
    /* Nothing of it is under way. So many of its bytes went; whole: that is all. */
    void (*close)(void *user, struct transfer_bulk_access *access, uint64_t bytes,
                  bool whole);
    /*
     * A piece in a slot: its memory, of `bytes`. A get's bytes are there when poll says so. EAGAIN:
     * the buffer is not in the state yet; ELOST: it is not there any more.
     */
    plasmon_status_t (*begin)(void *user, struct transfer_bulk_access *access,
                              uint32_t slot, uint64_t offset, uint32_t bytes,
                              void **out_memory);
    /* A put's piece: its bytes are in the memory. */
    void (*commit)(void *user, struct transfer_bulk_access *access, uint32_t slot);
    /* OK: the device is through with the piece; EAGAIN: not yet. */
    plasmon_status_t (*poll)(void *user, struct transfer_bulk_access *access,
                             uint32_t slot);
    /* The memory is not needed any more. After poll said OK, or before a put's commit. */
    void (*end)(void *user, struct transfer_bulk_access *access, uint32_t slot);
};

#endif
