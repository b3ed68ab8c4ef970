/* What plasmon-store keeps for a host with two CPU devices, and its side of a worker's set-up. */
#ifndef TESTS_UNIT_WORKER_HOST_H
#define TESTS_UNIT_WORKER_HOST_H

#include "store/control.h"
#include "store/table.h"
#include "store/timeline.h"

#define HOST_WORKERS     2u
#define HOST_ARENA_BYTES (UINT64_C(1) << 32)
#define HOST_MEMORY      UINT64_C(0x6d656d) /* which memory it is */

struct host_memory {
    int fd;
    uint64_t bytes;
};

struct host {
    struct host_memory timeline_fds[HOST_WORKERS];
    struct host_memory table_fds[HOST_WORKERS];
    struct host_memory slab_fds[HOST_WORKERS];
    struct host_memory pins_fds[HOST_WORKERS];
    int doorbells[HOST_WORKERS];
    struct store_timeline *timelines[HOST_WORKERS];
    struct store_table *tables[HOST_WORKERS];
};

void host_create(struct host *host);
void host_destroy(struct host *host);
/* All SETUP messages for worker `self`; or those before the chunks, and the one after them. */
void host_setup_send(const struct host *host, int socket, uint32_t self);
void host_setup_send_parts(const struct host *host, int socket, uint32_t self);
void host_setup_send_done(int socket, uint32_t self);

#endif
