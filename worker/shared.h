/*
 * The memory that plasmon-store keeps for this host, as a worker sees it: timelines, tables, pages
 * of pins, staging slabs, doorbells; and the control socket over which all of it comes.
 *
 * Threads: owner only (the worker's lock).
 */
#ifndef WORKER_SHARED_H
#define WORKER_SHARED_H

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"
#include "base/vec.h"
#include "store/control.h"
#include "store/lane.h"
#include "store/table.h"
#include "store/timeline.h"
#include "worker/handback.h"

struct worker_shared {
    int control_fd; /* -1: the store is gone, and another may come */
    uint32_t host_device;
    uint32_t host_device_count;
    struct store_timeline *timelines[STORE_HOST_DEVICE_MAX];
    struct store_table *tables[STORE_HOST_DEVICE_MAX];
    int doorbells[STORE_HOST_DEVICE_MAX]; /* -1: none */
    void *slabs[STORE_HOST_DEVICE_MAX];
    uint64_t timeline_bytes;
    uint64_t slab_bytes;
    uint64_t pins_bytes;
    struct store_pins *readers[STORE_READER_MAX]; /* our own page too */
    /* from here on there are none: few of many, and each overwrite looks at all */
    uint32_t readers_end;
    uint64_t reader_epoch; /* readers[] is complete up to here */
    struct pl_vec chunks;  /* struct worker_shared_chunk: what came and was not taken yet */
    uint32_t chunks_kept; /* of ours the store keeps the first so many, as far as it said */
    struct pl_vec lanes;  /* int descriptors of STORE_LANE_BYTES, likewise */
    struct pl_vec buffers; /* struct worker_shared_buffer, likewise */
    int head_fd;           /* a fresh connection to the head; -1: none came */
    struct worker_handback handback;
};
struct worker_shared_chunk {
    struct store_control message;
    int fd;
};

/* A host buffer (store/host_buffer.h) that is handed over; or, fd -1, is to be dropped. */
struct worker_shared_buffer {
    uint64_t id;
    uint64_t bytes;
    int fd;
};

/*
 * What was stored before is seen by who looks after a fence of its own, or we see what they stored
 * before theirs.
 */
static inline void worker_shared_fence(void)
{
#ifdef __SANITIZE_THREAD__ /* gcc's knows no fences */
    static uint64_t word;

    (void)__atomic_exchange_n(&word, 1, __ATOMIC_SEQ_CST); /* its old value means nothing */
#else
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
}

void worker_shared_init(struct worker_shared *shared, int control_fd);
void worker_shared_finish(struct worker_shared *shared);
/* A spare waits for its turn. Blocks. ECLOSED: the store is gone. */
plasmon_status_t worker_shared_await_begin(struct worker_shared *shared,
                                           uint32_t *out_incarnation,
                                           struct pl_err *err) PL_MUST_CHECK;
/* Read until set-up is complete. Blocks. ECLOSED: the store is gone. */
plasmon_status_t worker_shared_receive_setup(struct worker_shared *shared,
                                             struct pl_err *err) PL_MUST_CHECK;
/*
 * One message, if there is one. EAGAIN: none, or there is no store for now; ECLOSED: the store is
 * gone for good.
 */
plasmon_status_t worker_shared_receive(struct worker_shared *shared,
                                       struct pl_err *err) PL_MUST_CHECK;
/*
 * `message` gets version and host_device. fd -1: none. OK while there is no store for now: the next
 * one learns of it otherwise.
 */
plasmon_status_t worker_shared_send(struct worker_shared *shared,
                                    struct store_control *message, int fd) PL_MUST_CHECK;

#endif
