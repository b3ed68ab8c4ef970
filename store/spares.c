/*
 * Spare workers: for each device a process that was started ahead and waits. When the device's worker ends, it is next: what takes long and
 * needs nothing of that worker - the program, the driver, its libraries, and if the operator can spare the memory a context with all kernels
 * loaded - is behind it then.
 *
 * WHY IT IS SAFE. A spare has a control socket and nothing else of ours: no timeline, no table, no chunk, no number. It gets all that when
 * its turn has come, by BEGIN and the set-up that every worker gets, and that is after the one before was reaped, as for any worker. The record for
 * the store after us (worker_pid) names it from then on. If we die before, it finds the end of its socket and ends.
 *
 * WHEN. A second after the device's worker is up, so that it does not take from those who wait for that one. One that ends by itself is not
 * started again for a minute. Embedded clusters have none: they are small, and gone soon.
 *
 * Threads: the loop's.
 */
#include "store/daemon_int.h"

#include <signal.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "device/device.h"

#define AFTER_READY_NS UINT64_C(1000000000)
#define AFTER_END_NS   UINT64_C(60000000000)

/* "process" or "context"; NULL: the device has none. */
static const char *wanted(const struct store_daemon *daemon,
                          const struct store_worker *worker)
{
    const char *which = daemon->options->spare_workers;
    bool gpu          = daemon->host.devices[worker->host_device].kind == DEVICE_CUDA;

    if (daemon->options->embedded || which == NULL || strcmp(which, "none") == 0) {
        return NULL;
    }
    return strcmp(which, "auto") != 0 ? which : gpu ? "process" : NULL;
}

void spares_init(struct store_worker *worker)
{
    worker->spare = (struct store_spare){.child  = {.pidfd = -1, .source = {.fd = -1}},
                                         .link   = {.fd = -1},
                                         .due_ns = UINT64_MAX};
}

void spares_finish(struct store_daemon *daemon, struct store_worker *worker)
{
    struct store_spare *spare = &worker->spare;

    if (spare->link.fd >= 0) {
        store_link_finish(&spare->link);
    }
    daemon_unwatch(daemon, &spare->child.source);
    pl_fd_close(&spare->child.pidfd);
}

void spares_end(struct store_worker *worker, int signal)
{
    worker->spare.due_ns = UINT64_MAX;
    daemon_child_signal(&worker->spare.child, signal);
}

void spares_plan(struct store_daemon *daemon, struct store_worker *worker)
{
    if (wanted(daemon, worker) != NULL && worker->spare.child.pid == 0) {
        worker->spare.due_ns = pl_now_ns() + AFTER_READY_NS;
    }
}

/* By itself: it found that its device cannot be used, say, or somebody killed it. */
static void spare_ended(struct store_daemon *daemon, struct store_source *source,
                        uint32_t events)
{
    struct store_worker *worker =
        pl_container_of(source, struct store_worker, spare.child.source);
    int wait_status;

    (void)events;
    if (!daemon_child_reap(daemon, &worker->spare.child, &wait_status)) {
        return;
    }
    store_link_finish(&worker->spare.link);
    if (!daemon->stopping && worker->proc.state != STORE_PROC_QUARANTINED) {
        pl_info("store", "the spare worker of device %u ended", worker->host_device);
        worker->spare.due_ns = pl_now_ns() + AFTER_END_NS;
    }
}

static void spare_start(struct store_daemon *daemon, struct store_worker *worker)
{
    struct store_spare *spare = &worker->spare;
    struct pl_err err;

    if (workers_process_start(daemon, worker, wanted(daemon, worker), &spare->child,
                              &spare->link, &err) != PLASMON_OK) {
        pl_info("store", "no spare worker for device %u: %s", worker->host_device,
                err.text);
        spare->due_ns = pl_now_ns() + AFTER_END_NS;
        return;
    }
    daemon_watch(daemon, &spare->child.source, spare->child.pidfd, EPOLLIN, spare_ended);
    pl_info("store", "spare worker of device %u started: pid %d", worker->host_device,
            (int)spare->child.pid);
}

void spares_tick(struct store_daemon *daemon, struct store_worker *worker, uint64_t now_ns)
{
    if (now_ns < worker->spare.due_ns) {
        return;
    }
    worker->spare.due_ns = UINT64_MAX;
    if (!daemon->stopping && worker->proc.state == STORE_PROC_RUNNING &&
        worker->spare.child.pid == 0) {
        spare_start(daemon, worker);
    }
}

bool spares_take(struct store_daemon *daemon, struct store_worker *worker)
{
    struct store_spare *spare  = &worker->spare;
    struct store_control begin = {.type        = STORE_CONTROL_BEGIN,
                                  .host_device = worker->host_device,
                                  .reader      = worker->proc.incarnation};

    spare->due_ns = UINT64_MAX;
    if (spare->child.pid == 0) {
        return false;
    }
    if (pl_pid_stopped(spare->child.pid) ||
        store_link_send(&spare->link, &begin, NULL, 0) != PLASMON_OK) {
        daemon_child_signal(&spare->child, SIGKILL); /* its end is seen later */
        return false;
    }
    daemon_unwatch(daemon, &spare->child.source);
    worker->child.pid     = spare->child.pid;
    worker->child.pidfd   = spare->child.pidfd;
    worker->child.adopted = false;
    worker->link          = spare->link;
    spares_init(worker);
    return true;
}
