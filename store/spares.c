/*
 * Spare workers: for each device a process that was started ahead and waits. When the device's
 * worker ends, it is next: what takes long and needs nothing of that worker - the program, the
 * driver, its libraries, and if the operator can spare the memory a context with all kernels loaded
 * - is behind it then.
 *
 * IN A HURRY. Where no spare is kept, one is started when it is known that a GPU's worker ends: a
 * process with a big context takes some tenths of a second to be reaped, and so long the next one
 * makes its own context. It starts no cuBLAS, which would take longer than that
 * (device/cuda/blas.c).
 *
 * WHY IT IS SAFE. A spare has a control socket and nothing else of ours: no timeline, no table, no
 * chunk, no number. It gets all that when its turn has come, by BEGIN and the set-up that every
 * worker gets, and that is after the one before was reaped, as for any worker. The record for the
 * store after us (worker_pid) names it from then on. If we die before, it finds the end of its
 * socket and ends.
 *
 * WHEN. A second after the device's worker is up, so that it does not take from those who wait for
 * that one. One that ends by itself is not started again for a minute. One that is stopped, or has
 * not said for the length of a start's lease that it waits, is not taken. Embedded clusters keep
 * none: they are small, and gone soon.
 *
 * Threads: the loop's.
 */
#include "store/daemon_int.h"

#include <signal.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/clock.h"
#include "base/fault.h"
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

static void spare_later(struct store_daemon *daemon, struct store_worker *worker)
{
    if (wanted(daemon, worker) != NULL) {
        worker->spare.due_ns = pl_now_ns() + AFTER_END_NS;
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
    if (pl_bug("store.spare_ends_late") && !worker->proc.ready) {
        return; /* as if the system took so long */
    }
    if (!daemon_child_reap(daemon, &worker->spare.child, &wait_status)) {
        return;
    }
    store_link_finish(&worker->spare.link);
    if (daemon->stopping || worker->proc.state == STORE_PROC_QUARANTINED) {
        return;
    }
    pl_info("store", "the spare worker of device %u ended", worker->host_device);
    if (!worker->spare.passed_over) {
        spare_later(daemon, worker);
    } else if (worker->proc.state == STORE_PROC_RUNNING && worker->proc.ready) {
        spares_plan(daemon, worker); /* when that was up, this one was still here */
    }
}

/* How far it goes before its turn: as --spare of a worker. */
static void spare_start(struct store_daemon *daemon, struct store_worker *worker,
                        const char *how)
{
    struct store_spare *spare = &worker->spare;
    struct pl_err err;

    if (workers_process_start(daemon, worker, how, &spare->child, &spare->link, &err) !=
        PLASMON_OK) {
        pl_info("store", "no spare worker for device %u: %s", worker->host_device,
                err.text);
        spare_later(daemon, worker);
        return;
    }
    spare->started_ns  = pl_now_ns();
    spare->passed_over = false;
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
        spare_start(daemon, worker, wanted(daemon, worker));
    }
}

void spares_hurry(struct store_daemon *daemon, struct store_worker *worker)
{
    if (daemon->host.devices[worker->host_device].kind == DEVICE_CUDA &&
        !daemon->stopping && store_proc_alive(&worker->proc) &&
        worker->spare.child.pid == 0) {
        worker->spare.due_ns = UINT64_MAX;
        spare_start(daemon, worker, "next");
    }
}

/* It has said that it waits; or it may be on its way still. */
static bool spare_comes_along(const struct store_daemon *daemon, struct store_spare *spare)
{
    struct store_control message;
    struct pl_err err;
    int fd;

    if (pl_pid_stopped(spare->child.pid)) {
        return false;
    }
    while (store_link_receive(&spare->link, &message, &fd, &err) == PLASMON_OK) {
        pl_fd_close(&fd);
        if (message.type == STORE_CONTROL_PREPARED) {
            return true;
        }
    }
    return pl_now_ns() - spare->started_ns <
           daemon->options->start_lease_ms * UINT64_C(1000000);
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
    if (!spare_comes_along(daemon, spare) ||
        store_link_send(&spare->link, &begin, NULL, 0) != PLASMON_OK) {
        daemon_child_signal(&spare->child, SIGKILL); /* its end is seen later */
        spare->passed_over = true;
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
