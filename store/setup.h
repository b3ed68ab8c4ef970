/*
 * What a worker or a client is told when it comes: descriptors of everything it may map, in the
 * order of control.h.
 */
#ifndef STORE_SETUP_H
#define STORE_SETUP_H

#include "store/host.h"
#include "store/host_buffers.h"
#include "store/link.h"

/* All SETUP and CHUNK messages of a worker, for its first start and every restart. */
plasmon_status_t store_setup_worker(const struct store_host *host, uint32_t device,
                                    struct store_link *link) PL_MUST_CHECK;
/*
 * All CLIENT_SETUP messages. known: the client has all that they would give it, so there is only
 * the last one.
 */
plasmon_status_t store_setup_client(const struct store_host *host, uint32_t reader,
                                    bool known, struct store_link *link) PL_MUST_CHECK;
/* One CHUNK. read_only: the receiver is neither the owner nor may write. */
plasmon_status_t store_setup_chunk(const struct store_host *host, uint32_t device,
                                   const struct store_host_chunk *chunk, bool read_only,
                                   struct store_link *link) PL_MUST_CHECK;
/* One LANE. For a worker the slab; for a client the slab and the doorbell. */
plasmon_status_t store_setup_lane(const struct store_host *host, uint32_t device,
                                  const struct store_host_lane *lane, bool for_client,
                                  struct store_link *link) PL_MUST_CHECK;
/* One HOST_BUFFER; request: the client's number for its question, else 0. */
plasmon_status_t store_setup_host_buffer(const struct store_host *host,
                                         const struct store_host_buffer *buffer,
                                         uint32_t request,
                                         struct store_link *link) PL_MUST_CHECK;
/* All SPILL messages. */
plasmon_status_t store_setup_spill(const struct store_host *host,
                                   struct store_link *link) PL_MUST_CHECK;
/* One PINS_ADD. */
plasmon_status_t store_setup_reader(const struct store_host *host, uint32_t reader,
                                    struct store_link *link) PL_MUST_CHECK;

#endif
