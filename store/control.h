/*
 * The store's control socket: fixed-size messages with descriptors, over SOCK_SEQPACKET Unix sockets (base/fd.h). Workers speak it
 * on a socketpair that the store made; clients of the host on a socket in a 0700 folder (SO_PEERCRED must be the same user), or
 * on a socketpair in the embedded default.
 *
 *   worker -> store   HELLO (nothing), CHUNK_ADD (+fd), READY, FATAL
 *   store  -> worker  SETUP (+ timeline fds of all host devices, own table rw, tables ro of others, own pins, all pin pages ro,
 *                     stage slab fds, eventfds), CHUNK (of a peer or re-mapped own: +fd), PINS_ADD (+fd: page of a new client),
 *                     PEER_UP
 *   client -> store   CLIENT_HELLO, GET_CHUNK
 *   store  -> client  CLIENT_SETUP (+ table fds ro, pins fd), CHUNK (+fd; rw if the chunk is client-writable)
 *
 * Descriptors that do not fit into one message follow in further ones with the same type and a higher `part`.
 */
#ifndef STORE_CONTROL_H
#define STORE_CONTROL_H

#include <stdint.h>

#include "base/base.h"

#define STORE_CONTROL_VERSION 1u

enum store_control_type {
    STORE_CONTROL_SETUP = 1,
    STORE_CONTROL_CHUNK_ADD = 2,
    STORE_CONTROL_CHUNK = 3,
    STORE_CONTROL_READY = 4,
    STORE_CONTROL_FATAL = 5,
    STORE_CONTROL_PINS_ADD = 6,
    STORE_CONTROL_CLIENT_HELLO = 7,
    STORE_CONTROL_CLIENT_SETUP = 8,
    STORE_CONTROL_GET_CHUNK = 9,
    STORE_CONTROL_ERROR = 10,
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
    uint32_t reader;      /* number of the pin page */
    uint32_t kind;
    uint32_t ordinal;
    uint64_t arena_bytes;
    char text[256];
};

enum store_setup_part {
    STORE_PART_TIMELINES = 0, /* one a host device, read-write */
    STORE_PART_TABLES = 1,    /* one a host device; own read-write, others read-only */
    STORE_PART_DOORBELLS = 2, /* one eventfd a host device */
    STORE_PART_STAGES = 3,    /* one staging slab a host device */
    STORE_PART_PINS = 4,      /* own page read-write */
    STORE_PART_READERS = 5,   /* pages of the other readers, read-only; `reader` is the first's number */
    STORE_PART_DONE = 6,      /* nothing more: set-up is complete */
};

#endif
