/*
 * The running worker: what the rpc loop's thread and the main thread do together. main.c sets it up.
 *
 * Both threads do the same step under one lock: enqueue what can be enqueued, take what is
 * complete. The rpc thread does it after each command, the main thread when the device, another
 * worker's doorbell or the store woke it.
 */
#ifndef WORKER_DAEMON_H
#define WORKER_DAEMON_H

#include "base/host.h"
#include "base/lock.h"
#include "base/numa.h"
#include "worker/executor.h"
#include "worker/options.h"
#include "worker/phases.h"
#include "worker/siblings.h"
#include "worker/uplink.h"

#define WORKER_EXIT_DEVICE_LOST 70
#define WORKER_EXIT_HEAD_LOST   71
#define WORKER_EXIT_LEAKS       72     /* worker_daemon_ask_leaks() */
#define WORKER_DEVICES_MAX      65536u /* of a cluster */

struct worker_daemon {
    /* Constant after set-up; what they hold is guarded by `lock`. */
    struct worker_options options;
    struct worker_shared shared;
    struct device *device;          /* a spare has it before its turn, or not */
    struct kernel_context *kernels; /* the device's; the executor's later */
    struct worker_memory *memory;
    struct worker_executor executor;
    struct worker_core *core;
    struct worker_uplink *uplink;
    struct wire_ranges unfinished;
    struct wire_ranges untouched;
    struct pl_err comm_missing; /* what its hello says of that */
    Plasmon__V1__WorkerHello hello;
    char host_id[PL_HOST_ID_BYTES];
    struct worker_phases phases;
    struct pl_numa_place numa; /* of a GPU */
    bool numa_final;           /* its slab has been pinned, so pages stay where they are */
    bool driver_time;          /* driver_ns is counted; if not, that time is in cpu_ns */

    struct pl_mutex lock; /* rank PL_RANK_WORKER */

    /* Guarded by `lock`. */
    struct worker_siblings siblings;
    uint32_t device_index;
    bool ring_begun;    /* ours, and others may be told of it */
    bool devices_known; /* host_device_of is final */
    /* launches were on the device when the connection's thread last took some; its alone */
    bool many;
    uint32_t *host_device_of;
    uint64_t limit_due_ns;    /* worker_core_tick() wants to be called then */
    uint64_t sleeps_until_ns; /* the main thread; 0: it does not sleep */
    uint64_t cpu_ns;          /* of both threads, inside steps, our own code */
    uint64_t driver_ns;       /* of both threads, inside steps, in the driver */
};

extern const struct worker_uplink_ops worker_daemon_uplink_ops;

/* Where the core's reports go: into the next frame. */
struct worker_reports worker_daemon_reports(struct worker_daemon *daemon);
/* A signal handler: what the worker waits for goes into its log soon. */
void worker_daemon_ask_describe(int signal_number);
/*
 * Another: the main loop, which comes by twice a second, looks for memory that was lost
 * (base/leak.h) and ends the process.
 */
void worker_daemon_ask_leaks(int signal_number);
/* Tell the store why, and end the process. */
_Noreturn void worker_daemon_end(struct worker_daemon *daemon, int code,
                                 plasmon_status_t status, const char *why);
/* The main thread, from set-up on. */
_Noreturn void worker_daemon_run(struct worker_daemon *daemon);

#endif
