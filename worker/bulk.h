/* Transfers with devices of other hosts. Threads: the worker's lock. */
#ifndef WORKER_BULK_H
#define WORKER_BULK_H

#include "transfer/bulk.h"
#include "worker/bulk_clients.h"
#include "worker/options.h"
#include "worker/shared.h"

struct worker_bulk {
    struct transfer_bulk *channel; /* NULL: this worker takes no part */
    struct transfer_bulk_endpoint endpoint;
    struct worker_bulk_clients clients;
    bool tls;
};

void worker_bulk_init(struct worker_bulk *bulk);
/*
 * bulk_address: numeric address of an interface; NULL or "none": no part. bulk_ports: "FIRST-LAST"
 * or NULL for any. After a failure it may be tried again.
 */
plasmon_status_t worker_bulk_start(struct worker_bulk *bulk, struct device *device,
                                   struct worker_memory *memory, struct worker_lanes *lanes,
                                   const struct worker_options *options,
                                   struct pl_err *err) PL_MUST_CHECK;
void worker_bulk_finish(struct worker_bulk *bulk);

/* What the head calls us, and which head: clients may come. */
void worker_bulk_identify(struct worker_bulk *bulk, uint64_t epoch, uint32_t device);
/* Our ring has begun (siblings.c): other devices may come. */
void worker_bulk_begin(struct worker_bulk *bulk, uint32_t device);
/* From the head. */
plasmon_status_t worker_bulk_peer(struct worker_bulk *bulk, uint32_t device,
                                  const char *address, const uint8_t *secret) PL_MUST_CHECK;
plasmon_status_t worker_bulk_gone(struct worker_bulk *bulk, uint32_t device) PL_MUST_CHECK;
void worker_bulk_rest(struct worker_bulk *bulk); /* nothing is on our device */
plasmon_status_t worker_bulk_give_up(struct worker_bulk *bulk, uint32_t device,
                                     bool receives, uint64_t first,
                                     uint64_t count) PL_MUST_CHECK;

/* As transfer_bulk_next_stats(). */
bool worker_bulk_stats(const struct worker_bulk *bulk, size_t *io_index, uint32_t *out_peer,
                       struct transfer_bulk_stats *out);

/* What the first of these would make; see transfer_bulk_prepare(). */
plasmon_status_t worker_bulk_prepare(struct worker_bulk *bulk, uint32_t to) PL_MUST_CHECK;
/* Enqueue our half of a transfer to device `to`. */
plasmon_status_t worker_bulk_send(struct worker_bulk *bulk, struct device_stream *stream,
                                  uint32_t to, uint64_t first_chunk, struct device_ptr src,
                                  uint64_t bytes, bool with_bytes) PL_MUST_CHECK;
/* Enqueue our half of a transfer from device `from`. */
plasmon_status_t worker_bulk_recv(struct worker_bulk *bulk, struct device_stream *stream,
                                  uint32_t from, uint64_t first_chunk,
                                  struct device_ptr dst, uint64_t bytes, bool with_bytes,
                                  struct transfer_counters *counters) PL_MUST_CHECK;
/* Our half of a transfer from device `from` is enqueued: if that one is gone, the words move without it. */
plasmon_status_t worker_bulk_expect(struct worker_bulk *bulk, uint32_t from,
                                    uint64_t first_chunk, uint64_t bytes) PL_MUST_CHECK;

#endif
