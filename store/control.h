/*
 * The store's control socket: fixed-size messages with descriptors, over SOCK_SEQPACKET Unix
 * sockets (base/fd.h). Workers speak it on a socketpair that the store made; clients of the host on
 * a socket in a 0700 folder (SO_PEERCRED must be the same user), or on a socketpair in the embedded
 * default; the embedded head on a socketpair too.
 *
 *   worker -> store   CHUNK_ADD (+fd), READY, FATAL, NEW_HEAD_FD, HOST_BUFFER_READY, HOST_BUFFER_GONE;
 *                     to a new store: HANDBACK, KEPT (+fd) .., HANDBACK_END, then the above
 *   store  -> worker  BEGIN (a spare one), then SETUP .. SETUP(DONE), CHUNK (of a peer or
 *                     re-mapped own: +fd), CHUNKS_KEPT, PINS_ADD (+fd: page of a new client),
 *                     PINS_REMOVE, PEER_UP, HEAD_FD (+fd), LANE (+fd), HOST_BUFFER (+fd),
 *                     HOST_BUFFER_DROP, SPILL (+fd), ERROR
 *   client -> store   CLIENT_HELLO, GET_CHUNK, GET_LANE, GET_HOST_BUFFER, HOST_BUFFER_DROP,
 *                     NEW_HEAD_FD (embedded only)
 *   store  -> client  CLIENT_SETUP .. CLIENT_SETUP(DONE), CHUNK (+fd; rw if the chunk is client-writable), LANE (+2 fds),
 *                     HOST_BUFFER (+fd), ERROR, HEAD_FD (+fd; embedded only, the first one unasked
 *                     right after start)
 *   store  -> head    ADD_CONNECTION (+fd; embedded only): one end of a stream socketpair to be served
 *
 * `version` is STORE_CONTROL_VERSION in every message; a message is exactly sizeof(struct
 * store_control) long. A client that sends anything else gets ERROR (status and text) and is
 * closed; a worker that does is fenced. Unknown types from the store are to be ignored by workers
 * and clients. End of file: the other side is gone; a worker or head exits then.
 *
 * SET-UP. All SETUP messages come first, one or more a `part`, in the order of enum
 * store_setup_part, each with
 *
 *   host_device  the receiver's own (clients: 0)      total        host devices
 *   count        descriptors in this message          part         what they are
 *   bytes        size of the memory behind each of them (to map; 0 for eventfds)
 *   reader       PINS: the number of the receiver's page; READERS: the number of the first page in
 *                this message, the others follow on
 *   kind, ordinal, arena_bytes   of the receiver's device (each device's are in its table too)
 *
 * After READERS and before DONE the store sends one CHUNK for every chunk that exists: own ones
 * after a restart, then the peers'. So at DONE a worker has everything. A client's set-up is
 * TIMELINES and TABLES (both read-only), PINS (its own page, read-write), DONE; the list of chunks
 * is in the tables, descriptors come by GET_CHUNK. DONE to a client has in `offset` the number of
 * the host's memory (store_host.memory) and in `reader` that of its page.
 *
 * A client whose store died says both in its CLIENT_HELLO to the next one (otherwise `offset` is
 * 0). If that has the same memory, and the page is one that the process had, page, lanes and host
 * buffers are the client's as before, and DONE is all of its set-up.
 *
 * CHUNKS. A worker makes a chunk and sends CHUNK_ADD (chunk_id, offset, bytes, client_writable,
 * fd). The store keeps the descriptor, sends it to the other workers, and answers CHUNKS_KEPT: it
 * keeps all of the worker's chunks below chunk_id. Only then does the worker list the chunk in its
 * table and put something there: what is in a chunk that nobody else has a descriptor of dies with
 * its worker. A store that took over says CHUNKS_KEPT to all, once every one has been told of the
 * others' chunks. If a worker dies in between, the replacement, which gets the chunk as CHUNK with
 * its own host_device, lists it; or nobody has it, and its number and place are given out again.
 * chunk_id is its index in table->chunks. CHUNK carries the same fields, host_device says whose.
 *
 * LANES (store/lane.h). GET_LANE names a host_device; the answer is LANE with bytes, the slab's
 * descriptor and the doorbell of the device's worker, which got the slab before, in a LANE of its
 * own. A restarted worker gets all of them before DONE. The other workers get it, too, host_device
 * says whose, and keep the descriptor: a store and that worker may die at the same time, and the
 * client goes on with the lane that it has. ERROR EAGAIN: the device's lanes are all in use; ask
 * again later.
 *
 * HOST BUFFERS (store/host_buffer.h). GET_HOST_BUFFER names `bytes`, and in chunk_id a number of
 * the client's own for the question. Every worker gets HOST_BUFFER with `offset` (the buffer's
 * number), `bytes` and the descriptor, and answers HOST_BUFFER_READY with `offset`, the status of
 * registering it and in `bytes` how much is registered, from the beginning: with status 0 and fewer
 * than all, more is to come. One that gets a buffer again (from a store that took over) says so of
 * the one it has. The client gets HOST_BUFFER likewise (with its chunk_id) when all have, or ERROR:
 * ELIMIT (the host's limit), EAGAIN (there will be room when what was dropped is gone), or what a
 * worker said. HOST_BUFFER_DROP with `offset`, from a client and to the workers, ends it; a worker
 * says HOST_BUFFER_GONE when it has let go. A restarted worker gets all that there are before DONE.
 *
 * SPILL (+fd): a part of what is spilled to files (store/spill_index.h; chunk_id says which), which
 * the worker keeps for the next store and does not look at. One under a known number replaces the
 * old one.
 *
 * SPARES (spares.c). A worker that was started ahead gets nothing until its turn comes; then BEGIN
 * with its incarnation in `reader`, and the rest as any other.
 *
 * HANDBACK (store/handback.h). A worker whose store died connects to the next one's handback socket
 * and says HANDBACK (host_device, total; offset: bytes of device memory that it may use; reader:
 * its incarnation), then KEPT once for each descriptor that it has of the dead store's: `part` is
 * an enum store_kept, host_device says whose, chunk_id, client_writable, offset, bytes and reader
 * are those of the message that it came with. After HANDBACK_END the connection is its control
 * socket. The store answers with CHUNKs, HOST_BUFFERs and SPILLs that the worker may not know yet.
 *
 * PINS_ADD: a page `reader` (+fd read-only, bytes) is in use from now on; a page under a known
 * number replaces the old one. PINS_ADD carries in `offset` the reader epoch that it begins;
 * SETUP's PINS message carries the current one. The store raises reader_epoch in every timeline
 * before the new reader can pin. So a writer that, after DOOMED or CONSUMED, finds reader_epoch of
 * its own timeline above the last epoch it was told does not know all pages yet and must take the
 * slot for pinned. PINS_REMOVE: the reader is gone and its page was cleared; unmap it. PEER_UP: the
 * worker of host_device said READY (again). READY: text may name the device. FATAL: status and text
 * say why the worker is about to exit; they go into WorkerDown. ERROR to a client echoes
 * host_device and chunk_id of the request that failed. The connection stays, but for status
 * EVERSION, EMALFORMED, EAUTH, and ELIMIT in answer to CLIENT_HELLO, after which the store closes
 * it.
 */
#ifndef STORE_CONTROL_H
#define STORE_CONTROL_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/base.h"
#include "base/str.h"

#define STORE_CONTROL_VERSION 2u

enum store_control_type {
    STORE_CONTROL_SETUP        = 1,
    STORE_CONTROL_CHUNK_ADD    = 2,
    STORE_CONTROL_CHUNK        = 3,
    STORE_CONTROL_READY        = 4,
    STORE_CONTROL_FATAL        = 5,
    STORE_CONTROL_PINS_ADD     = 6,
    STORE_CONTROL_CLIENT_HELLO = 7,
    STORE_CONTROL_CLIENT_SETUP = 8,
    STORE_CONTROL_GET_CHUNK    = 9,
    STORE_CONTROL_ERROR        = 10,
    STORE_CONTROL_HEAD_FD = 11, /* a fresh stream socket whose other end the head serves */
    STORE_CONTROL_ADD_CONNECTION = 12, /* to the embedded head */
    /* asks for a HEAD_FD: the connection to the head broke */
    STORE_CONTROL_NEW_HEAD_FD       = 13,
    STORE_CONTROL_PEER_UP           = 14,
    STORE_CONTROL_PINS_REMOVE       = 15,
    STORE_CONTROL_GET_LANE          = 16,
    STORE_CONTROL_LANE              = 17,
    STORE_CONTROL_GET_HOST_BUFFER   = 18,
    STORE_CONTROL_HOST_BUFFER       = 19,
    STORE_CONTROL_HOST_BUFFER_READY = 20,
    STORE_CONTROL_HOST_BUFFER_DROP  = 21,
    STORE_CONTROL_HOST_BUFFER_GONE  = 22,
    STORE_CONTROL_HANDBACK          = 23,
    STORE_CONTROL_KEPT              = 24,
    STORE_CONTROL_HANDBACK_END      = 25,
    STORE_CONTROL_BEGIN             = 26, /* to a spare */
    STORE_CONTROL_SPILL             = 27,
    STORE_CONTROL_PREPARED          = 28, /* by a spare: it waits for BEGIN */
    STORE_CONTROL_CHUNKS_KEPT       = 29,
};

struct store_control {
    uint32_t version;
    uint32_t type;
    uint32_t host_device; /* whose chunk, table .. */
    uint32_t part;        /* SETUP: what the descriptors are, see enum store_setup_part */
    uint32_t count;       /* descriptors in this message */
    uint32_t total;       /* host devices */
    uint32_t chunk_id;
    uint32_t client_writable;
    uint64_t offset;
    uint64_t bytes;
    int32_t status;
    uint32_t reader; /* number of the pin page */
    uint32_t kind;
    uint32_t ordinal;
    uint64_t arena_bytes;
    char text[256];
};
static_assert(sizeof(struct store_control) == 328, "both sides must agree");

enum store_setup_part {
    STORE_PART_TIMELINES = 0, /* one a host device, read-write (clients: read-only) */
    STORE_PART_TABLES    = 1, /* one a host device; own read-write, others read-only */
    STORE_PART_DOORBELLS = 2, /* one eventfd a host device */
    STORE_PART_STAGES    = 3, /* one staging slab a host device, read-write */
    STORE_PART_PINS      = 4, /* own page, read-write */
    /* pages of the other readers, read-only; `reader` is the first's number */
    STORE_PART_READERS = 5,
    STORE_PART_DONE    = 6, /* nothing more: set-up is complete */
};

/*
 * Of what was received into zeroed memory: `bytes` of it; cut: more than fits was sent
 * (pl_fd_recv() says EMALFORMED). Another version is told before another size, for another version
 * may have one.
 * @return PLASMON_OK, EVERSION (the text has both versions), EMALFORMED.
 */
plasmon_status_t store_control_check(const struct store_control *message, size_t bytes,
                                     bool cut, struct pl_err *err);

enum store_kept {
    STORE_KEPT_TIMELINE = 0,
    STORE_KEPT_TABLE    = 1, /* its owner's is writable */
    STORE_KEPT_DOORBELL = 2,
    STORE_KEPT_STAGE    = 3,
    STORE_KEPT_PINS     = 4, /* `reader`'s page; its owner's is writable */
    STORE_KEPT_CHUNK    = 5,
    STORE_KEPT_LANE     = 6,
    STORE_KEPT_BUFFER   = 7, /* host buffer; offset: its number */
    STORE_KEPT_SPILL    = 8, /* chunk_id: which part (spill_index.h) */
    STORE_KEPT_COUNT    = 9
};

#endif
