/*
 * The core's ops over a real device: streams, kernels, copies, staging. Decides nothing; translates
 * offsets in arenas to addresses and calls the driver. Everything here returns without waiting for
 * the device.
 *
 * Threads: owner only (the worker's lock).
 */
#ifndef WORKER_EXECUTOR_H
#define WORKER_EXECUTOR_H

#include "transfer/transfer.h"
#include "worker/bulk.h"
#include "worker/check.h"
#include "worker/core.h"
#include "worker/functions.h"
#include "worker/host_buffers.h"
#include "worker/inline.h"
#include "worker/lanes.h"
#include "worker/memory.h"
#include "worker/pair_device.h"
#include "worker/shared.h"
#include "worker/sources.h"
#include "worker/trace.h"

/* Where reports go: the connection to the head. */
struct worker_reports {
    void *user;
    void (*done)(void *user, uint64_t first, uint64_t count);
    void (*failed)(void *user, uint64_t seq, plasmon_status_t status, const char *text);
    void (*starved)(void *user, uint64_t seq, uint64_t bytes, uint64_t largest_hole);
    void (*condemned)(void *user, const struct worker_condemned *condemned);
    void (*data)(void *user, uint64_t request, const uint8_t *bytes, uint64_t length);
    void (*refused)(void *user, uint64_t request, plasmon_status_t status,
                    const uint64_t *buffers, size_t count);
    void (*function)(void *user, uint32_t id, plasmon_status_t status, const char *text);
    void (*pair)(void *user, const struct worker_pair_report *report);
    void (*stuck)(void *user, const char *text); /* any thread: the process must end */
};

/*
 * For functions of high priority. On a CPU device it is a thread like the others, but one that no
 * other work is queued in.
 */
#define WORKER_URGENT_STREAMS 1u
#define WORKER_LOW_STREAMS    1u

struct worker_executor {
    /* Constant after init. */
    struct device *device;
    struct kernel_context *kernels;
    struct worker_shared *shared;
    struct worker_memory *memory;
    const struct worker_reports *reports;
    uint32_t run_streams;
    uint32_t stream_count;
    struct device_stream *streams[STORE_STREAM_MAX];
    struct device_event *marks[STORE_STREAM_MAX][WORKER_MARKS]; /* NULL: not used yet */
    int notify_fd; /* an eventfd: a stream passed a signal */
    int bell_fd;   /* likewise: who looks at words has to begin with it (watch.h) */

    struct worker_core *core;
    /* branches are streams WORKER_BRANCH .. while it records */
    struct device_graph *recording;
    struct worker_inline puts;
    struct worker_inline reads;
    struct worker_lanes lanes;
    struct worker_host_buffers host_buffers;
    struct worker_bulk bulk;
    struct worker_sources sources;
    struct device_stream *alone;  /* WORKER_STREAM_ALONE, in worker_core_alone() */
    struct transfer_pairs *pairs; /* NULL: this device takes part in none */
    struct worker_functions functions;
    struct worker_check check;
    struct transfer_counters counters;
    uint64_t written[STORE_HOST_DEVICE_MAX]; /* bytes that came from there by its engines */
    struct worker_trace trace;
    bool unwatched; /* nobody looks at words, and somebody must when there is work */
    bool ring_ready[STORE_HOST_DEVICE_MAX]; /* that device's slab is registered with ours */
    plasmon_status_t broken;                /* the device refused what it must not refuse */
};

extern const struct worker_ops worker_executor_ops;

/*
 * kernels: those of the device; worker_executor_finish() destroys them. run_streams 0: as many as
 * suit the kind of device. A restarted worker must have as many: words belong to streams.
 */
plasmon_status_t worker_executor_init(struct worker_executor *executor,
                                      struct device *device, struct kernel_context *kernels,
                                      struct worker_shared *shared,
                                      struct worker_memory *memory, uint32_t run_streams,
                                      const struct worker_reports *reports,
                                      struct pl_err *err) PL_MUST_CHECK;
void worker_executor_finish(struct worker_executor *executor); /* waits for the streams */
/*
 * For its other files. Behind what is in the stream: somebody looks at the words, where nobody does
 * all the time.
 */
plasmon_status_t worker_executor_notify(struct worker_executor *executor, uint32_t stream);
/* A call that may only fail when the device is lost; and the ring of a receiver of this host. */
plasmon_status_t worker_executor_must(struct worker_executor *executor,
                                      plasmon_status_t status);
plasmon_status_t worker_executor_ring(struct worker_executor *executor, uint32_t receiver,
                                      struct transfer_ring *out_ring);
/* First error that the device cannot come back from, or OK. */
plasmon_status_t worker_executor_health(struct worker_executor *executor,
                                        struct pl_err *err);

#endif
