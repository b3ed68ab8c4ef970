/*
 * The workers of the host: their processes and what they say.
 *
 * ORDER AT A DEATH. A worker's last messages may be in its socket when its pidfd says that it is
 * gone: a chunk that it made is known only from there. So: reap, read the socket to its end, close
 * it, clear the page of pins (its kernels have ended with it), free what it had doomed, tell the
 * head, start the next one. Until it was reaped nothing of its memory is given to another.
 */
#include "store/daemon_int.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/text.h"
#include "store/lanes.h"
#include "store/setup.h"
#include "store/spawn.h"

#define ADOPTED_LOOK_NS UINT64_C(50000000)

static const char STOPPED[] = "it was stopped, but its kernels were not";

static void worker_act(struct store_daemon *daemon, struct store_worker *worker,
                       enum store_proc_event event, int wait_status);

static struct store_phases *phases_of(struct store_daemon *daemon,
                                      const struct store_worker *worker)
{
    return &daemon->host.devices[worker->host_device].timeline->phases;
}

/* That it ends is known, from whatever says so first. */
static void worker_noticed(struct store_daemon *daemon, struct store_worker *worker)
{
    if (!worker->noticed) {
        worker->noticed = true;
        store_phase_note(phases_of(daemon, worker), STORE_PHASE_NOTICED, pl_now_ns());
    }
}

static struct store_worker *worker_of_control(struct store_source *source)
{
    return pl_container_of(source, struct store_worker, control);
}

/* Keep the first reason: what follows is a consequence. */
static void worker_note(struct store_worker *worker, const char *text)
{
    if (worker->last_words[0] == '\0') {
        (void)snprintf(worker->last_words, sizeof(worker->last_words), "%.255s", text);
    }
}

static void worker_fence_by(struct store_daemon *daemon, struct store_worker *worker,
                            enum store_proc_event event, const char *why)
{
    if (worker->proc.state != STORE_PROC_RUNNING) {
        return;
    }
    pl_warn("store", "worker of device %u (pid %d) is fenced: %s", worker->host_device,
            (int)worker->child.pid, why);
    worker_note(worker, why);
    worker_noticed(daemon, worker);
    worker_act(daemon, worker, event, 0);
}

static void worker_fence(struct store_daemon *daemon, struct store_worker *worker,
                         const char *why)
{
    worker_fence_by(daemon, worker, STORE_PROC_FENCE, why);
}

void workers_sent(struct store_daemon *daemon, struct store_worker *worker,
                  plasmon_status_t status)
{
    if (status == PLASMON_OK) {
        status = daemon_link_flush(daemon, &worker->link, &worker->control);
    }
    if (status == PLASMON_ELIMIT) {
        worker_fence(daemon, worker, "it does not read its control socket");
    }
    /* Otherwise it is dying, and its pidfd will say so. */
}

/* ----------------------------------------------------------------------------- messages */

/* What it may use: the others have it, too. */
static void worker_tell_kept(struct store_daemon *daemon, struct store_worker *worker)
{
    struct store_control kept = {
        .type        = STORE_CONTROL_CHUNKS_KEPT,
        .host_device = worker->host_device,
        .total       = daemon->host.device_count,
        .chunk_id    = store_host_chunks_kept(&daemon->host, worker->host_device)};

    if (worker->link.fd >= 0) {
        workers_sent(daemon, worker, store_link_send(&worker->link, &kept, NULL, 0));
    }
}

static void worker_chunk_added(struct store_daemon *daemon, struct store_worker *worker,
                               const struct store_control *message, int fd)
{
    struct store_chunk chunk = {.offset          = message->offset,
                                .bytes           = message->bytes,
                                .client_writable = message->client_writable,
                                .id              = message->chunk_id};
    const struct store_host_chunk *kept;
    struct pl_err err;

    if (store_host_add_chunk(&daemon->host, worker->host_device, &chunk, fd, &err) !=
        PLASMON_OK) {
        worker_fence(daemon, worker, err.text);
        return;
    }
    pl_debug("store", "device %u has chunk %u: %llu bytes at %llu", worker->host_device,
             chunk.id, (unsigned long long)chunk.bytes, (unsigned long long)chunk.offset);

    kept = store_host_chunk_find(&daemon->host, worker->host_device, chunk.id);
    for (uint32_t i = 0; i < daemon->host.device_count; i++) {
        struct store_worker *peer = &daemon->workers[i];

        if (peer != worker && peer->link.fd >= 0) {
            workers_sent(daemon, peer,
                         store_setup_chunk(&daemon->host, worker->host_device, kept, true,
                                           &peer->link));
        }
    }
    worker_tell_kept(daemon, worker);
}

static void worker_ready(struct store_daemon *daemon, struct store_worker *worker,
                         const char *name)
{
    struct pl_str took;

    pl_str_init(&took);
    worker_act(daemon, worker, STORE_PROC_READY, 0);
    store_phases_describe(phases_of(daemon, worker), STORE_PHASE_NOTICED, STORE_PHASE_READY,
                          &took);
    pl_info("store", "worker of device %u is ready: incarnation %u, pid %d%s%s%s%s",
            worker->host_device, worker->proc.incarnation, (int)worker->child.pid,
            name[0] != '\0' ? ", " : "", name, took.length > 0 ? "; milliseconds: " : "",
            pl_str_text(&took));
    pl_str_finish(&took);
    spares_plan(daemon, worker);
    for (uint32_t i = 0; i < daemon->host.device_count; i++) {
        struct store_worker *peer = &daemon->workers[i];
        struct store_control up   = {.type        = STORE_CONTROL_PEER_UP,
                                     .host_device = worker->host_device,
                                     .total       = daemon->host.device_count};

        if (peer != worker && peer->link.fd >= 0) {
            workers_sent(daemon, peer, store_link_send(&peer->link, &up, NULL, 0));
        }
    }
}

static void worker_message(struct store_daemon *daemon, struct store_worker *worker,
                           const struct store_control *message, int fd)
{
    switch (message->type) {
    case STORE_CONTROL_CHUNK_ADD:
        worker_chunk_added(daemon, worker, message, fd);
        return;
    case STORE_CONTROL_READY:
        worker_ready(daemon, worker, message->text);
        break;
    case STORE_CONTROL_FATAL:
        worker_noticed(daemon, worker);
        worker_note(worker, message->text);
        worker->last_status = (plasmon_status_t)message->status;
        spares_hurry(daemon, worker);
        break;
    case STORE_CONTROL_PREPARED:
        break; /* of one that was taken before it had said so */
    case STORE_CONTROL_NEW_HEAD_FD:
        if (daemon->options->embedded && worker->proc.state == STORE_PROC_RUNNING) {
            workers_sent(daemon, worker, embedded_send_head_fd(daemon, &worker->link));
        }
        break;
    case STORE_CONTROL_HOST_BUFFER_READY:
        store_host_buffers_said(&daemon->host, worker->host_device, message->offset,
                                message->bytes, (plasmon_status_t)message->status);
        host_buffers_answer(daemon);
        break;
    case STORE_CONTROL_HOST_BUFFER_GONE:
        store_host_buffers_gone(&daemon->host, worker->host_device, message->offset);
        break;
    default: {
        char why[96];

        (void)snprintf(why, sizeof(why), "it sent a control message of type %u",
                       message->type);
        worker_fence(daemon, worker, why);
        break;
    }
    }
    pl_fd_close(&fd);
}

/* Read all there is. false: end of file, or no longer to be listened to. */
static bool worker_read(struct store_daemon *daemon, struct store_worker *worker)
{
    for (;;) {
        struct store_control message;
        struct pl_err err;
        int fd;
        plasmon_status_t status = store_link_receive(&worker->link, &message, &fd, &err);

        if (status == PLASMON_OK) {
            worker_message(daemon, worker, &message, fd);
        } else if (status == PLASMON_EMALFORMED || status == PLASMON_EVERSION ||
                   status == PLASMON_ELIMIT) {
            worker_fence(daemon, worker, err.text);
            return false;
        } else {
            return status == PLASMON_EAGAIN;
        }
    }
}

static void worker_control_ready(struct store_daemon *daemon, struct store_source *source,
                                 uint32_t events)
{
    struct store_worker *worker = worker_of_control(source);

    if ((events & EPOLLOUT) != 0) {
        workers_sent(daemon, worker, PLASMON_OK);
    }
    if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0 && !worker_read(daemon, worker)) {
        daemon_unwatch(daemon, source);
        worker_noticed(daemon, worker);
        /*
         * It is ending, or cannot be told anything any more. Either way it must be gone soon;
         * SIGKILL changes nothing about how a process that ends already ended.
         */
        worker_act(daemon, worker, STORE_PROC_FENCE, 0);
    }
}

/* --------------------------------------------------------------------------------- life */

static void worker_child_ready(struct store_daemon *daemon, struct store_source *source,
                               uint32_t events)
{
    struct store_worker *worker =
        pl_container_of(source, struct store_worker, child.source);
    int wait_status;

    (void)events;
    if (daemon_child_reap(daemon, &worker->child, &wait_status)) {
        worker_act(daemon, worker, STORE_PROC_EXITED, wait_status);
    }
}

/* Whom the store after us has to end if it does not come by itself. */
static void worker_record(struct store_timeline *timeline, pid_t pid)
{
    uint64_t started = 0;

    (void)!pl_pid_started(pid, &started); /* 0: it has ended already */
    timeline->worker_started = started;
    __atomic_store_n(&timeline->worker_pid, (uint64_t)pid, __ATOMIC_RELEASE);
}

static plasmon_status_t worker_spawn(struct store_daemon *daemon,
                                     struct store_worker *worker, struct pl_err *err)
{
    plasmon_status_t status = PLASMON_OK;
    bool spare;

    worker->last_words[0] = '\0';
    worker->last_status   = PLASMON_OK;
    worker->noticed       = false;
    store_phases_begin(phases_of(daemon, worker), pl_now_ns());
    /* Before it starts, so that whoever sees its work sees its number. */
    __atomic_store_n(&daemon->host.devices[worker->host_device].timeline->incarnation,
                     worker->proc.incarnation, __ATOMIC_RELEASE);
    __atomic_store_n(&daemon->host.devices[worker->host_device].timeline->beat, 0,
                     __ATOMIC_RELEASE);

    spare = spares_take(daemon, worker);
    if (!spare) {
        status =
            workers_process_start(daemon, worker, NULL, &worker->child, &worker->link, err);
    }
    if (status != PLASMON_OK) {
        return status;
    }

    worker_record(daemon->host.devices[worker->host_device].timeline, worker->child.pid);
    daemon_watch(daemon, &worker->child.source, worker->child.pidfd, EPOLLIN,
                 worker_child_ready);
    daemon_watch(daemon, &worker->control, worker->link.fd, EPOLLIN, worker_control_ready);
    pl_info("store", "worker of device %u started: incarnation %u, pid %d%s",
            worker->host_device, worker->proc.incarnation, (int)worker->child.pid,
            spare ? ", the spare one" : "");
    store_host_buffers_handed(&daemon->host, worker->host_device);
    workers_sent(daemon, worker,
                 store_setup_worker(&daemon->host, worker->host_device, &worker->link));
    return PLASMON_OK;
}

/* The process was reaped: take its last messages, then undo what it held. */
static void worker_bury(struct store_daemon *daemon, struct store_worker *worker)
{
    uint32_t freed;

    if (worker->link.fd >= 0) {
        (void)worker_read(daemon, worker);
        daemon_unwatch(daemon, &worker->control);
        store_link_finish(&worker->link);
    }
    if (daemon->stopping) {
        return; /* there will be no reader of what is left */
    }
    store_host_buffers_down(&daemon->host, worker->host_device);
    host_buffers_answer(daemon); /* nobody else is waited for, perhaps */
    freed = store_host_device_down(&daemon->host, worker->host_device);
    if (freed > 0) {
        pl_info("store", "device %u: %u buffers that the dead worker had given up are free",
                worker->host_device, freed);
    }
}

static void worker_report(struct store_daemon *daemon, struct store_worker *worker,
                          uint32_t incarnation, int wait_status)
{
    struct store_uplink_down down = {
        .host_device = worker->host_device,
        .incarnation = incarnation,
        .wait_status = wait_status != STORE_STATUS_UNKNOWN ? wait_status : 0,
        .quarantined = worker->proc.state == STORE_PROC_QUARANTINED,
        .status      = worker->last_status,
    };
    char end[64];

    if (worker->child.pid != 0) {
        (void)snprintf(end, sizeof(end), "could not be reaped");
    } else if (wait_status == STORE_STATUS_UNKNOWN) {
        (void)snprintf(end, sizeof(end), "ended, under another store");
    } else if (WIFSIGNALED(wait_status)) {
        (void)snprintf(end, sizeof(end), "killed by signal %d", WTERMSIG(wait_status));
    } else {
        (void)snprintf(end, sizeof(end), "exit status %d", WEXITSTATUS(wait_status));
    }
    (void)snprintf(down.text, sizeof(down.text), "%s%s%.255s", end,
                   worker->last_words[0] != '\0' ? ": " : "", worker->last_words);
    pl_text_mend(down.text); /* cut as it may be */
    if (down.quarantined) {
        size_t length = strlen(down.text);

        static_assert(sizeof(down.text) >= sizeof(end) + 255 + 80, "both fit");
        (void)snprintf(down.text + length, sizeof(down.text) - length,
                       "; the device is quarantined: %s", worker->proc.why);
        store_timeline_release(daemon->host.devices[worker->host_device].timeline);
        workers_ring(daemon, UINT64_MAX);
    }
    pl_warn("store", "worker of device %u is down: %s", worker->host_device, down.text);
    if (daemon->uplink != NULL) {
        daemon->uplink->worker_down(daemon->uplink->user, &down);
    }
}

/* An event happened to a worker: decide, and do it. */
static void worker_act(struct store_daemon *daemon, struct store_worker *worker,
                       enum store_proc_event event, int wait_status)
{
    uint32_t incarnation = worker->proc.incarnation; /* before a restart counts it up */
    unsigned actions;

    if (event == STORE_PROC_EXITED) {
        worker_noticed(daemon, worker);
        worker_bury(daemon, worker);
        store_phase_note(phases_of(daemon, worker), STORE_PHASE_ENDED, pl_now_ns());
    }
    actions = store_proc_step(&worker->proc, event, pl_now_ns());
    if (worker->proc.state == STORE_PROC_QUARANTINED) {
        spares_end(worker, SIGKILL);
        store_lanes_close(&daemon->host, worker->host_device);
        store_host_buffers_silent(&daemon->host, worker->host_device);
        host_buffers_answer(daemon);
    }
    if ((actions & STORE_PROC_REPORT) != 0) {
        worker_report(daemon, worker, incarnation, wait_status);
    }
    if ((actions & STORE_PROC_KILL) != 0) {
        daemon_child_signal(&worker->child, SIGKILL);
        spares_hurry(daemon, worker);
    }
    if ((actions & STORE_PROC_TERM) != 0) {
        daemon_child_signal(&worker->child, SIGTERM);
    }
    if ((actions & STORE_PROC_SPAWN) != 0) {
        struct pl_err err;

        if (worker_spawn(daemon, worker, &err) != PLASMON_OK) {
            worker_note(worker, err.text);
            pl_error("store", "device %u: %s", worker->host_device, err.text);
            worker_act(daemon, worker, STORE_PROC_SPAWN_FAILED, 127 << 8);
        }
    }
}

/* --------------------------------------------------------------------- of another store */

/*
 * What it cannot know yet: chunks that others made while it had no store, what the last store had
 * not told all, and what is ours. It ignores what it has.
 */
static void worker_catch_up(struct store_daemon *daemon, struct store_worker *worker)
{
    for (uint32_t i = 0; i < daemon->host.device_count; i++) {
        const struct pl_vec *chunks = &daemon->host.devices[i].chunks;

        for (size_t k = 0; i != worker->host_device && k < chunks->count; k++) {
            workers_sent(daemon, worker,
                         store_setup_chunk(&daemon->host, i, pl_vec_at(chunks, k), true,
                                           &worker->link));
        }
    }
    host_buffers_catch_up(daemon, worker);
    workers_sent(daemon, worker, store_setup_spill(&daemon->host, &worker->link));
}

/* One that did not come may still write to its device's memory: it is ended first. */
static plasmon_status_t worker_fence_unseen(const struct store_timeline *timeline)
{
    int pidfd = timeline->worker_pid != 0 ? pl_pidfd_open((pid_t)timeline->worker_pid) : -1;
    plasmon_status_t status = PLASMON_OK;
    uint64_t started;

    if (timeline->worker_pid != 0 && pidfd < 0 && pl_fd_none_left(errno)) {
        return PLASMON_ELIMIT; /* it may live */
    }
    if (pidfd >= 0 && pl_pid_started((pid_t)timeline->worker_pid, &started) == PLASMON_OK &&
        started == timeline->worker_started) {
        status = pl_pidfd_kill_wait(pidfd, STORE_PROC_REAP_TIMEOUT_NS / 1000000);
    }
    pl_fd_close(&pidfd);
    return status;
}

static void worker_adopt(struct store_daemon *daemon, struct store_worker *worker,
                         struct store_adopted *adopted)
{
    const struct store_timeline *timeline =
        daemon->host.devices[worker->host_device].timeline;
    bool came;

    worker->child.pidfd = adopted->pidfd;
    adopted->pidfd      = -1;
    came                = adopted->link.fd >= 0 && worker->child.pidfd >= 0;
    if ((store_proc_adopt(&worker->proc,
                          came ? adopted->incarnation : timeline->incarnation, came,
                          pl_now_ns()) &
         STORE_PROC_KILL) != 0) {
        worker_note(worker, "it was gone when this store took over");
        if (worker_fence_unseen(timeline) == PLASMON_OK) {
            worker_act(daemon, worker, STORE_PROC_EXITED, STORE_STATUS_UNKNOWN);
        } /* else it is quarantined in the end */
        return;
    }
    worker->child.pid     = adopted->pid;
    worker->child.adopted = true;
    worker->link          = adopted->link;
    adopted->link         = (struct store_link){.fd = -1};
    daemon_watch(daemon, &worker->child.source, worker->child.pidfd, EPOLLIN,
                 worker_child_ready);
    daemon_watch(daemon, &worker->control, worker->link.fd, EPOLLIN, worker_control_ready);
    pl_info("store", "worker of device %u is taken over: incarnation %u, pid %d",
            worker->host_device, worker->proc.incarnation, (int)worker->child.pid);
    worker_catch_up(daemon, worker);
    spares_plan(daemon, worker);
}

/* -------------------------------------------------------------------------- all of them */

plasmon_status_t workers_start(struct store_daemon *daemon, struct pl_err *err)
{
    plasmon_status_t status = store_program_path("plasmon-worker", daemon->worker_path,
                                                 sizeof(daemon->worker_path));

    if (status != PLASMON_OK) {
        return pl_err_set(err, status, "cannot tell where plasmon-worker is");
    }
    daemon->workers = PL_NEW_N(struct store_worker, daemon->host.device_count);
    if (daemon->workers == NULL) {
        return pl_err_set(err, PLASMON_ENOMEM, "out of host memory");
    }
    for (uint32_t i = 0; i < daemon->host.device_count; i++) {
        struct store_worker *worker = &daemon->workers[i];

        worker->host_device  = i;
        worker->child.pidfd  = -1;
        worker->child.source = (struct store_source){.fd = -1};
        worker->control      = (struct store_source){.fd = -1};
        worker->link         = (struct store_link){.fd = -1};
        spares_init(worker);
        store_proc_init(&worker->proc);
    }
    for (uint32_t i = 0; i < daemon->host.device_count; i++) {
        if (daemon->adopted == NULL) {
            worker_act(daemon, &daemon->workers[i], STORE_PROC_START, 0);
        } else {
            worker_adopt(daemon, &daemon->workers[i], &daemon->adopted[i]);
        }
    }
    for (uint32_t i = 0; daemon->adopted != NULL && i < daemon->host.device_count; i++) {
        worker_tell_kept(daemon, &daemon->workers[i]);
    }
    return PLASMON_OK;
}

void workers_finish(struct store_daemon *daemon)
{
    for (uint32_t i = 0; daemon->workers != NULL && i < daemon->host.device_count; i++) {
        struct store_worker *worker = &daemon->workers[i];

        if (worker->link.fd >= 0) {
            daemon_unwatch(daemon, &worker->control);
            store_link_finish(&worker->link);
        }
        daemon_unwatch(daemon, &worker->child.source);
        pl_fd_close(&worker->child.pidfd);
        spares_finish(daemon, worker);
    }
    pl_free(daemon->workers);
    daemon->workers = NULL;
}

static struct store_proc_leases leases_of(const struct store_daemon *daemon)
{
    return (struct store_proc_leases){
        .start_ns = daemon->options->start_lease_ms * UINT64_C(1000000),
        .run_ns   = daemon->options->worker_lease_ms * UINT64_C(1000000)};
}

/* Does its main loop still go round, or its start come along? */
static void worker_check_beat(struct store_daemon *daemon, struct store_worker *worker,
                              uint64_t now_ns)
{
    uint64_t beat = __atomic_load_n(
        &daemon->host.devices[worker->host_device].timeline->beat, __ATOMIC_ACQUIRE);
    struct store_proc_leases leases = leases_of(daemon);
    const char *last                = store_phases_last(phases_of(daemon, worker));
    char why[160];

    if (!store_proc_beat(&worker->proc, beat, now_ns, &leases)) {
        return;
    }
    if (worker->proc.ready) {
        (void)snprintf(why, sizeof(why), "its main loop made no progress for %u ms",
                       daemon->options->worker_lease_ms);
        worker_fence(daemon, worker, why);
        return;
    }
    (void)snprintf(why, sizeof(why), "its start came no further for %u ms; done is %s",
                   daemon->options->start_lease_ms,
                   last != NULL ? last : "nothing that needs the store");
    worker_fence_by(daemon, worker, STORE_PROC_HUNG, why);
}

/*
 * The kernel tells a parent of a child that was stopped, and nobody of another process: these are
 * looked at.
 */
static void check_adopted(struct store_daemon *daemon, uint64_t now_ns)
{
    daemon->adopted_due_ns = UINT64_MAX;
    for (uint32_t i = 0; i < daemon->host.device_count; i++) {
        struct store_worker *worker = &daemon->workers[i];

        if (worker->child.pid == 0 || !worker->child.adopted) {
            continue;
        }
        daemon->adopted_due_ns = now_ns + ADOPTED_LOOK_NS;
        if (worker->proc.state == STORE_PROC_RUNNING && pl_pid_stopped(worker->child.pid)) {
            worker_fence(daemon, worker, STOPPED);
        }
    }
}

void workers_tick(struct store_daemon *daemon, uint64_t now_ns)
{
    struct store_proc_leases leases;

    if (daemon->workers == NULL) {
        return;
    }
    if (now_ns >= daemon->adopted_due_ns && !daemon->stopping) {
        check_adopted(daemon, now_ns);
    }
    for (uint32_t i = 0; i < daemon->host.device_count; i++) {
        if (daemon->workers[i].proc.due_ns <= now_ns) {
            worker_act(daemon, &daemon->workers[i], STORE_PROC_TICK, 0);
        }
        spares_tick(daemon, &daemon->workers[i], now_ns);
    }
    if (now_ns < daemon->beats_due_ns || daemon->stopping) {
        return;
    }
    leases               = leases_of(daemon);
    daemon->beats_due_ns = now_ns + pl_min_u64(leases.start_ns, leases.run_ns) / 8;
    for (uint32_t i = 0; i < daemon->host.device_count; i++) {
        worker_check_beat(daemon, &daemon->workers[i], now_ns);
    }
}

uint64_t workers_due(const struct store_daemon *daemon)
{
    uint64_t due_ns = pl_min_u64(daemon->beats_due_ns, daemon->adopted_due_ns);

    for (uint32_t i = 0; daemon->workers != NULL && i < daemon->host.device_count; i++) {
        due_ns = pl_min_u64(due_ns, daemon->workers[i].proc.due_ns);
        due_ns = pl_min_u64(due_ns, daemon->workers[i].spare.due_ns);
    }
    return due_ns;
}

void workers_fence(struct store_daemon *daemon, uint32_t host_device, uint32_t incarnation,
                   const char *why)
{
    if (host_device < daemon->host.device_count &&
        (incarnation == 0 ||
         incarnation == daemon->workers[host_device].proc.incarnation)) {
        worker_fence_by(daemon, &daemon->workers[host_device], STORE_PROC_END, why);
    }
}

void workers_check_stopped(struct store_daemon *daemon)
{
    for (uint32_t i = 0; i < daemon->host.device_count; i++) {
        struct store_worker *worker = &daemon->workers[i];
        siginfo_t info              = {0};

        if (worker->child.pid != 0 &&
            waitid(P_PID, (id_t)worker->child.pid, &info, WSTOPPED | WNOHANG) == 0 &&
            info.si_pid == worker->child.pid) {
            worker_fence(daemon, worker, STOPPED);
        }
    }
}

void workers_shutdown(struct store_daemon *daemon)
{
    for (uint32_t i = 0; daemon->workers != NULL && i < daemon->host.device_count; i++) {
        worker_act(daemon, &daemon->workers[i], STORE_PROC_SHUTDOWN, 0);
        spares_end(&daemon->workers[i], SIGTERM);
    }
}

void workers_signal(struct store_daemon *daemon, int signal)
{
    for (uint32_t i = 0; daemon->workers != NULL && i < daemon->host.device_count; i++) {
        daemon_child_signal(&daemon->workers[i].child, signal);
        spares_end(&daemon->workers[i], signal);
    }
}

bool workers_alive(const struct store_daemon *daemon)
{
    for (uint32_t i = 0; daemon->workers != NULL && i < daemon->host.device_count; i++) {
        if (daemon->workers[i].child.pid != 0 || daemon->workers[i].spare.child.pid != 0) {
            return true;
        }
    }
    return false;
}

void workers_tell_reader(struct store_daemon *daemon, uint32_t reader, bool came)
{
    for (uint32_t i = 0; daemon->workers != NULL && i < daemon->host.device_count; i++) {
        struct store_worker *worker = &daemon->workers[i];
        struct store_control gone   = {.type   = STORE_CONTROL_PINS_REMOVE,
                                       .total  = daemon->host.device_count,
                                       .reader = reader};

        if (worker->link.fd < 0) {
            continue; /* it is told at its next start */
        }
        workers_sent(daemon, worker,
                     came ? store_setup_reader(&daemon->host, reader, &worker->link)
                          : store_link_send(&worker->link, &gone, NULL, 0));
    }
}

void workers_tell_lane(struct store_daemon *daemon, uint32_t host_device,
                       const struct store_host_lane *lane)
{
    for (uint32_t i = 0; i < daemon->host.device_count; i++) {
        struct store_worker *worker = &daemon->workers[i];

        if (worker->link.fd >= 0) { /* otherwise it is told at its next start */
            workers_sent(
                daemon, worker,
                store_setup_lane(&daemon->host, host_device, lane, false, &worker->link));
        }
    }
}

void workers_ring(struct store_daemon *daemon, uint64_t devices)
{
    uint64_t one = 1;

    for (uint32_t i = 0; i < daemon->host.device_count; i++) {
        if ((devices & UINT64_C(1) << i) != 0 &&
            write(daemon->host.devices[i].doorbell_fd, &one, sizeof(one)) < 0) {
            pl_debug("store", "doorbell of device %u is full", i); /* it rings */
        }
    }
}
