/*
 * Host memory of this client (plasmon_host_alloc): which there is, and which of it copies on their way use.
 *
 *   host_memory.c   allocating, freeing, and what is in use
 *   host_copy.c     plasmon_put_async, plasmon_get_async
 *   host_relay.c    gets into it where no device of this host can write it: a thread that does plasmon_get()
 *
 * A buffer is shared with the store and the workers of this host (`id` is its number there,
 * `memory` that of the memory of that store, which another one may have taken over), or, where
 * there are none, ordinary memory (0): then the same calls do the same by the ordinary ways. So
 * they do when that memory is gone, with the store and all its workers.
 *
 * IN USE. A copy reads (put) or writes (get) a range until its task ends; as long as that is so
 * nothing may be freed, a range that is written may be named by no other copy, and one that is read
 * by no get. This is checked in the call, so no order of copies can mix bytes.
 *
 * Threads: everything under the client's lock.
 */
#ifndef CLIENT_HOST_H
#define CLIENT_HOST_H

#include <pthread.h>
#include <stdbool.h>

#include "base/list.h"
#include "base/lock.h"
#include "base/str.h"
#include "base/vec.h"
#include "plasmon/plasmon.h"

#define HOST_USES_MAX 4096u /* copies on their way, a buffer */

struct host_buffer {
    struct pl_list link; /* host_memory.buffers */
    uint64_t id;
    uint64_t memory;
    uint8_t *data;
    uint64_t bytes; /* that were asked for */
    uint64_t map_bytes;
    struct pl_list uses; /* struct host_use.link */
    uint32_t use_count;
};

struct host_use {
    struct pl_list link;
    struct host_buffer *buffer;
    uint64_t begin, end; /* in the buffer */
    bool writes;
};

struct host_memory {
    struct pl_list buffers;
    uint64_t told; /* HeadFrame.host_copies; 0: nothing yet */

    /* The relay; host_relay.c. */
    struct pl_list jobs;
    struct pl_cond changed;
    pthread_t thread;
    bool started;
    bool stop;
};

plasmon_status_t host_memory_init(struct host_memory *memory) PL_MUST_CHECK;
/* The session has ended. */
void host_memory_finish(struct plasmon_client *client);
/* In a forked child: the mappings go. */
void host_memory_abandon(struct host_memory *memory);

/* The buffer that [data, data + bytes) lies in. NULL: it does not lie in one; err says what to do. */
struct host_buffer *host_find_locked(struct plasmon_client *client, const void *data,
                                     uint64_t bytes, struct pl_err *err);
/* A copy begins. EBUSY: another one is at these bytes; ELIMIT: HOST_USES_MAX. */
plasmon_status_t host_use_begin_locked(struct host_buffer *buffer, const void *data,
                                       uint64_t bytes, bool writes,
                                       struct host_use **out_use,
                                       struct pl_err *err) PL_MUST_CHECK;
void host_use_end(struct host_use *use); /* NULL is fine */
/*
 * Do devices of this host copy from and to it? Not when all are gone, or the host is drained. What
 * is sent under the same lock comes before the answer that says so.
 */
bool host_copies_locked(const struct plasmon_client *client);
/*
 * The memory whose buffers devices of this host (device >= 0: this one) copy from and to themselves
 * now; 0: none. A buffer of another one goes the ordinary ways. Without the lock.
 */
uint64_t host_direct(struct plasmon_client *client, int device);

/*
 * host_relay.c: get what `snapshot` shows into the range of `use`, then end task `id`, which only
 * we know. Takes both; not on failure.
 */
plasmon_status_t host_relay_locked(struct plasmon_client *client,
                                   struct plasmon_ref *snapshot, struct host_use *use,
                                   uint64_t id) PL_MUST_CHECK;
void host_relay_finish(struct plasmon_client *client);

#endif
