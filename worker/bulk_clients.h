/*
 * What clients of other hosts may do with this device's buffers, and how their bytes get there
 * (transfer/bulk_client.h).
 *
 *   who    a ticket of the head for that buffer, whose time is not over by our clock (wire/ticket.h)
 *   what   a put writes a buffer that was opened for a client and is not sealed; a get reads one
 *          that is sealed
 *   how    on a CPU device where the buffer lies; on others through slots of lanes of our own
 *          (lanes.h), which the main thread serves like those of clients on this host: 4 slots of 2
 *          MiB for each connection, and nobody waits for another's
 *
 * A piece is under a pin of the object table while it is under way, in a page that is ours alone:
 * the same order of writes and reads as with readers of other processes (store/table.h) keeps the
 * main thread from freeing it, without a lock between the two. A worker that dies takes its page
 * and its connections with it.
 *
 * Threads: those of the connections, but for what says otherwise.
 */
#ifndef WORKER_BULK_CLIENTS_H
#define WORKER_BULK_CLIENTS_H

#include <stdatomic.h>

#include "base/lock.h"
#include "transfer/bulk_client.h"
#include "worker/lanes.h"

struct worker_bulk_clients {
    /* Constant after init. */
    struct device *device;
    const struct store_table *table;
    const struct worker_memory *memory;
    struct worker_lanes *lanes;
    int doorbell;          /* the main thread's */
    const uint8_t *secret; /* WIRE_BULK_SECRET_BYTES; right once `epoch` is not 0 */
    bool direct;           /* the host reaches the device's memory */
    struct store_pins *pins;

    /* of the head that calls us `index`; 0: none yet. Release; pairs with a request's acquire */
    _Atomic uint64_t epoch;
    _Atomic uint32_t index;
    _Atomic uint64_t transfers;
    _Atomic uint64_t bytes;

    struct pl_mutex lock; /* rank PL_RANK_LEAF */
    struct pl_vec places; /* struct place: slots of lanes; guarded by `lock` */
    bool making;          /* somebody makes some; guarded by `lock` */
    struct pl_cond made;
};

extern const struct transfer_bulk_access_ops worker_bulk_clients_ops;

/* Main thread. secret: filled in before worker_bulk_clients_identify(). */
plasmon_status_t worker_bulk_clients_init(struct worker_bulk_clients *clients,
                                          struct device *device,
                                          const struct worker_memory *memory,
                                          struct worker_lanes *lanes, bool staged,
                                          const uint8_t *secret) PL_MUST_CHECK;
/* Main thread; no connection is left. Lanes are worker_lanes_finish()'s. */
void worker_bulk_clients_finish(struct worker_bulk_clients *clients);
/* Main thread: what the head calls us, from now on. */
void worker_bulk_clients_identify(struct worker_bulk_clients *clients, uint64_t epoch,
                                  uint32_t index);
/*
 * Main thread: is a piece of this slot of the table under way? After the table said that it may not
 * be used any more.
 */
bool worker_bulk_clients_hold(const struct worker_bulk_clients *clients, uint32_t slot);

#endif
