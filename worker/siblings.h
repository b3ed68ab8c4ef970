/*
 * The other devices of our host: which numbers they have in the cluster, and when a staging ring
 * begins anew (siblings.c). All of it lies in the tables that the store keeps.
 */
#ifndef WORKER_SIBLINGS_H
#define WORKER_SIBLINGS_H

#include "store/table.h"
#include "store/timeline.h"

/* Threads: the worker's lock. */
struct worker_siblings {
    struct store_table *const *tables; /* of all devices of the host, ours too */
    struct store_timeline *const *timelines;
    uint32_t count;
    uint32_t own;
    uint64_t epoch; /* 0: we were not welcomed */
    uint64_t node_session;
};

/*
 * What another head, or the same one before it gave our host up, knows as this device is over:
 * before worker_siblings_announce().
 */
void worker_siblings_forget(const struct worker_siblings *siblings);
/* The head calls us `device`. */
void worker_siblings_announce(const struct worker_siblings *siblings, uint32_t device);
/* May our ring be used? Begins it, once nobody of this host can write into it for what was before. */
bool worker_siblings_ring_begin(const struct worker_siblings *siblings);
/*
 * The number in the cluster, + 1; 0: its worker has not been welcomed as we were, or its ring has
 * not begun.
 */
uint64_t worker_siblings_number(const struct worker_siblings *siblings,
                                uint32_t host_device);
/* Its worker will not come any more. */
bool worker_siblings_released(const struct worker_siblings *siblings, uint32_t host_device);

#endif
