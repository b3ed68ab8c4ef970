/*
 * What the store keeps for a host: for each device its timeline, object table, staging slab,
 * doorbell and the descriptors of its chunks; for each reader its page of pins. All of it is memfds
 * and descriptors, so it stands when workers die and is gone when the last process is.
 *
 * Readers are numbered: the workers first (their host device number), then clients. A worker keeps
 * its page over restarts (it is cleared in between); a client's page is made for it and thrown away
 * with it.
 *
 * Threads: owner only (the store's loop). Other processes write what they are given write access to.
 */
#ifndef STORE_HOST_H
#define STORE_HOST_H

#include <stdbool.h>

#include "base/str.h"
#include "base/vec.h"
#include "store/lane.h"
#include "store/spill_index.h"
#include "store/table.h"
#include "store/timeline.h"

struct store_host_chunk {
    uint32_t id;
    bool client_writable;
    uint64_t offset;
    uint64_t bytes;
    int fd;    /* as the worker made it */
    int fd_ro; /* CPU: read-only; CUDA: -1, access is set when mapping */
};

#define STORE_LANE_FREE UINT32_MAX
struct store_host_lane {
    struct store_lane *shared; /* its mailboxes */
    int fd;
    uint32_t reader; /* whose; STORE_LANE_FREE */
};

struct store_host_device {
    uint32_t kind; /* enum device_kind */
    uint32_t ordinal;
    uint64_t memory_bytes; /* what the worker may use; 0: all there is */
    uint64_t arena_bytes;  /* of address space */
    struct store_timeline *timeline;
    struct store_table *table;
    int timeline_fd;
    int timeline_fd_ro;
    int table_fd;
    int table_fd_ro;
    int stage_fd;
    int doorbell_fd;
    struct pl_vec chunks; /* struct store_host_chunk */
    struct store_host_lane lanes[STORE_LANES_MAX];
    uint32_t lane_count;
    bool lanes_closed; /* the device is given up */
};

struct store_host_reader {
    int fd; /* -1: no such reader */
    int fd_ro;
};

struct store_host {
    uint32_t device_count;
    /*
     * What tells this memory from any other that a host of this name had or will have: drawn at
     * random with the first device, in every timeline, and so handed to the store that takes it
     * over. 0: there are no devices.
     */
    uint64_t memory;
    struct store_host_device devices[STORE_HOST_DEVICE_MAX];
    struct store_host_reader readers[STORE_READER_MAX];
    struct store_pins *pages[STORE_READER_MAX]; /* NULL: none */
    uint64_t reader_epoch; /* pages made for clients; in every timeline too */
    struct pl_vec buffers; /* struct store_host_buffer *; host_buffers.h */
    /* of all of them, those too that some worker has not let go of yet */
    uint64_t buffer_bytes;
    uint64_t buffer_bytes_max;
    /* struct store_spill_part: what workers keep of what is spilled */
    struct pl_vec spill_parts;
};

#define STORE_STAGE_BYTES ((uint64_t)STORE_STAGE_SLOTS * STORE_STAGE_SLOT_BYTES)
/* Sizes of the memory behind the descriptors. */
uint64_t store_host_timeline_bytes(void);
uint64_t store_host_table_bytes(void);
uint64_t store_host_pins_bytes(void);

void store_host_init(struct store_host *host);
void store_host_finish(struct store_host *host);
/* ELIMIT: STORE_HOST_DEVICE_MAX. Its reader page is made too. All devices come before the first client. */
plasmon_status_t store_host_add_device(struct store_host *host, uint32_t kind,
                                       uint32_t ordinal, uint64_t memory_bytes,
                                       uint64_t arena_bytes,
                                       struct pl_err *err) PL_MUST_CHECK;
/*
 * A device of a store that died, from its descriptors; the next number. Takes all of them, also on
 * failure. A read-only table or page of pins is opened anew for writing. EVERSION, EMALFORMED: it
 * is not what it should be, or of another memory than the devices before it.
 */
struct store_host_kept {
    int timeline;
    int table;
    int stage;
    int doorbell;
    int pins; /* of its worker */
};
plasmon_status_t store_host_keep_device(struct store_host *host,
                                        struct store_host_kept *kept, uint64_t memory_bytes,
                                        struct pl_err *err) PL_MUST_CHECK;
/* A client's page, likewise. EEXIST: there is one of this number. */
plasmon_status_t store_host_keep_reader(struct store_host *host, uint32_t reader,
                                        int fd) PL_MUST_CHECK;
/* Takes fd, also on failure. EMALFORMED: outside the arena, known id, or smaller than it says. */
plasmon_status_t store_host_add_chunk(struct store_host *host, uint32_t device,
                                      const struct store_chunk *chunk, int fd,
                                      struct pl_err *err) PL_MUST_CHECK;
/* All chunks of the device below this number are here. */
uint32_t store_host_chunks_kept(const struct store_host *host, uint32_t device);
const struct store_host_chunk *store_host_chunk_find(const struct store_host *host,
                                                     uint32_t device,
                                                     uint32_t id); /* NULL: none */
/* Takes fd, also on failure. */
plasmon_status_t store_host_add_spill_part(struct store_host *host, uint32_t which,
                                           int fd) PL_MUST_CHECK;
void store_host_drop_spill_parts(struct store_host *host);
/* A page for a client. ELIMIT: STORE_READER_MAX. */
plasmon_status_t store_host_add_reader(struct store_host *host, uint64_t pid,
                                       uint32_t *out_reader) PL_MUST_CHECK;
void store_host_remove_reader(
    struct store_host *host,
    uint32_t reader); /* clears it first: whoever has it mapped sees no pins */
/* The worker of this device is gone: clear its page and free what it had doomed. Returns how many entries. */
uint32_t store_host_device_down(struct store_host *host, uint32_t device);

#endif
