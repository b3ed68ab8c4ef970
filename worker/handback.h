/*
 * When the store dies. The worker goes on: it has its chunks, tables and timelines mapped and needs
 * no store for its work. It keeps a copy of each descriptor that it was handed, and hands all of
 * them to the next store, which has a socket with the same name as the last (store/handback.h).
 * Until then what it has to say to its store is not said; what matters of it the next one learns
 * from what is handed back. Without a next store within the lease it ends, as it does at once in a
 * private cluster.
 *
 * Threads: owner only (the worker's lock).
 */
#ifndef WORKER_HANDBACK_H
#define WORKER_HANDBACK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"
#include "base/vec.h"
#include "store/control.h"

#define WORKER_HANDBACK_TRY_MS 50u

struct worker_handback {
    const char *socket_path; /* NULL: none, the worker ends with its store */
    uint32_t lease_ms;
    uint32_t incarnation;
    uint64_t device_memory;
    bool incomplete;      /* a descriptor could not be copied: nothing can be handed back */
    struct pl_vec kept;   /* struct worker_kept */
    uint64_t orphaned_ns; /* when the store was found dead; 0: it lives */
    uint64_t tried_ns;
};

void worker_handback_init(struct worker_handback *handback);
void worker_handback_finish(struct worker_handback *handback);
/*
 * A message that came, or (CHUNK_ADD) went, with its descriptors, which are copied; or one that
 * says that something is gone.
 */
void worker_handback_note(struct worker_handback *handback,
                          const struct store_control *message, const int *fds,
                          unsigned fd_count);
/*
 * A CHUNK_ADD that was noted did not go, and nobody will use that chunk: the next store must not
 * hear of it.
 */
void worker_handback_forget_chunk(struct worker_handback *handback,
                                  const struct store_control *message);
/*
 * While there is no store. OK: *out_fd is the socket to the new one, which has everything. EAGAIN:
 * not yet, or it was tried a moment ago; ECLOSED: the lease is over.
 */
plasmon_status_t worker_handback_try(struct worker_handback *handback, uint32_t host_device,
                                     uint32_t total, int *out_fd) PL_MUST_CHECK;

#endif
