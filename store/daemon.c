/*
 * The loop. One event at a time is taken from epoll, so a handler may close and free whatever it
 * likes: nothing that was taken earlier can still point to it.
 *
 * THE END, however it comes about (a signal, the head, the client or, embedded, the head gone):
 * children get SIGTERM, half a second later SIGKILL, and when all are reaped the loop ends. What a
 * child holds beyond that (a process that cannot be reaped) does not keep the store for more than
 * ten seconds.
 */
#include "store/bulk_address.h"
#include "store/daemon_int.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/ram.h"
#include "device/device.h"
#include "store/probe.h"

/* ------------------------------------------------------------------------------ sources */

void daemon_watch(struct store_daemon *daemon, struct store_source *source, int fd,
                  uint32_t events,
                  void (*ready)(struct store_daemon *, struct store_source *, uint32_t))
{
    struct epoll_event event = {.events = events, .data.ptr = source};

    *source = (struct store_source){.fd = fd, .events = events, .ready = ready};
    PL_CHECK(epoll_ctl(daemon->epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0);
}

static void watch_change(struct store_daemon *daemon, struct store_source *source,
                         uint32_t events)
{
    struct epoll_event event = {.events = events, .data.ptr = source};

    if (source->fd >= 0 && source->events != events) {
        source->events = events;
        PL_CHECK(epoll_ctl(daemon->epoll_fd, EPOLL_CTL_MOD, source->fd, &event) == 0);
    }
}

void daemon_unwatch(struct store_daemon *daemon, struct store_source *source)
{
    if (source->fd >= 0) {
        PL_CHECK(epoll_ctl(daemon->epoll_fd, EPOLL_CTL_DEL, source->fd, NULL) == 0);
        source->fd = -1;
    }
}

plasmon_status_t daemon_link_flush(struct store_daemon *daemon, struct store_link *link,
                                   struct store_source *source)
{
    plasmon_status_t status = store_link_flush(link);

    if (status == PLASMON_OK) {
        watch_change(daemon, source, EPOLLIN | (store_link_pending(link) ? EPOLLOUT : 0u));
    }
    return status;
}

/* ----------------------------------------------------------------------------- children */

bool daemon_child_reap(struct store_daemon *daemon, struct store_child *child,
                       int *out_status)
{
    pid_t reaped = child->adopted ? -1 : waitpid(child->pid, out_status, WNOHANG);

    /* Its pidfd is readable when it has ended. */
    if (reaped == 0) {
        return false;
    }
    if (child->adopted) {
        *out_status    = STORE_STATUS_UNKNOWN; /* whoever inherited it reads that */
        child->adopted = false;
    } else if (reaped < 0) {
        *out_status = 0; /* cannot happen: nobody else waits for it */
    }
    daemon_unwatch(daemon, &child->source);
    pl_fd_close(&child->pidfd);
    child->pid = 0;
    return true;
}

void daemon_child_signal(const struct store_child *child, int signal)
{
    if (child->pid != 0 && child->adopted) {
        (void)syscall(SYS_pidfd_send_signal, child->pidfd, signal, NULL, 0);
    } else if (child->pid != 0) {
        (void)kill(child->pid,
                   signal); /* ours and not reaped: the pid cannot be another's */
    }
}

/* ------------------------------------------------------------------------------ the end */

void daemon_stop(struct store_daemon *daemon, int exit_status, const char *why)
{
    if (daemon->stopping) {
        return;
    }
    pl_info("store", "ending: %s", why);
    daemon->stopping    = true;
    daemon->exit_status = exit_status;
    daemon->stop_due_ns = pl_now_ns() + STORE_TERM_TIMEOUT_NS;
    if (daemon->uplink != NULL) {
        daemon->uplink->ending(daemon->uplink->user);
    }
    workers_shutdown(daemon);
    daemon_child_signal(&daemon->head, SIGTERM);
}

/*
 * SIGTERM: what lies only here is moved first, if the head can be asked. SIGINT, or a second
 * signal: at once.
 */
static void terminate(struct store_daemon *daemon, uint32_t signal)
{
    const struct store_uplink *uplink = daemon->uplink;
    uint32_t deadline_ms              = daemon->options->drain_deadline_ms;

    if (signal == SIGTERM && daemon->leave_due_ns == 0 && !daemon->stopping &&
        !daemon->options->embedded && deadline_ms > 0 && uplink != NULL &&
        uplink->leave != NULL && uplink->leave(uplink->user, deadline_ms)) {
        pl_info("store",
                "SIGTERM: leaving when what lies only here is elsewhere, within "
                "%u ms; a second signal ends it at once",
                deadline_ms);
        daemon->leave_due_ns =
            pl_now_ns() + deadline_ms * UINT64_C(1000000) + STORE_LEAVE_GRACE_NS;
        return;
    }
    daemon_stop(daemon, 0, signal == SIGINT ? "SIGINT" : "SIGTERM");
}

static bool children_alive(const struct store_daemon *daemon)
{
    return workers_alive(daemon) || daemon->head.pid != 0;
}

/* false: nothing to wait for any more. */
static bool stop_continue(struct store_daemon *daemon, uint64_t now_ns)
{
    if (!children_alive(daemon)) {
        return false;
    }
    if (now_ns < daemon->stop_due_ns) {
        return true;
    }
    if (daemon->killed) {
        pl_error("store", "a child cannot be reaped: leaving it behind");
        return false;
    }
    daemon->killed      = true;
    daemon->stop_due_ns = now_ns + STORE_KILL_TIMEOUT_NS;
    workers_signal(daemon, SIGKILL);
    daemon_child_signal(&daemon->head, SIGKILL);
    return true;
}

/* ------------------------------------------------------------------------------- events */

static void signals_ready(struct store_daemon *daemon, struct store_source *source,
                          uint32_t events)
{
    struct signalfd_siginfo info;

    (void)events;
    while (read(source->fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
        if (info.ssi_signo == SIGCHLD) {
            workers_check_stopped(daemon); /* deaths come by pidfd */
        } else {
            terminate(daemon, info.ssi_signo);
        }
    }
}

static const char *left_text(uint32_t how)
{
    switch (how) {
    case STORE_LEFT_LOSES:
        return "not all of it could be moved elsewhere, and that is lost";
    case STORE_LEFT_ALONE:
        return "no head answers that knows what lies here";
    default:
        return "it was drained";
    }
}

static void uplink_ready(struct store_daemon *daemon, struct store_source *source,
                         uint32_t events)
{
    const struct store_uplink *uplink = daemon->uplink;
    enum store_uplink_event event;
    uint32_t host_device, incarnation;
    uint64_t count;

    (void)events;
    (void)!read(source->fd, &count,
                sizeof(count)); /* only the wake-up; next() has the content */
    while ((event = uplink->next(uplink->user, &host_device, &incarnation)) !=
           STORE_UPLINK_NONE) {
        if (event == STORE_UPLINK_FENCE) {
            workers_fence(daemon, host_device, incarnation, "the head wants it fenced");
        } else if (event == STORE_UPLINK_STOP) {
            daemon_stop(daemon, 0, "the head says so");
        } else if (event == STORE_UPLINK_LEFT) {
            daemon_stop(daemon, 0, left_text(host_device));
        } else if (event == STORE_UPLINK_REFUSED) {
            pl_error("store", "%s", uplink->refusal(uplink->user));
            daemon_stop(daemon, 1, "the head refuses this store");
        } else if (event == STORE_UPLINK_SLAB) {
            host_buffers_spill(daemon);
        } else if (!daemon->stopping) {
            int fd;

            if (embedded_connect(daemon, &fd) == PLASMON_OK) {
                uplink->give_fd(uplink->user, fd);
            }
        }
    }
}

static plasmon_status_t signals_open(struct store_daemon *daemon)
{
    sigset_t wanted;

    sigemptyset(&wanted);
    sigaddset(&wanted, SIGTERM);
    sigaddset(&wanted, SIGINT);
    sigaddset(&wanted, SIGCHLD);
    /* Blocked before any thread was started (main). */
    daemon->signal_fd = signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK);
    if (daemon->signal_fd < 0) {
        return pl_status_from_errno(errno);
    }
    daemon_watch(daemon, &daemon->signals, daemon->signal_fd, EPOLLIN, signals_ready);
    return PLASMON_OK;
}

static int timeout_ms(uint64_t due_ns, uint64_t now_ns)
{
    uint64_t left_ns;

    if (due_ns == UINT64_MAX) {
        return -1;
    }
    left_ns = due_ns > now_ns ? due_ns - now_ns : 0;
    return (int)pl_min_u64((left_ns + 999999u) / 1000000u, 60000u);
}

static void daemon_loop(struct store_daemon *daemon)
{
    for (;;) {
        uint64_t now_ns = pl_now_ns();
        uint64_t due_ns = daemon->stopping ? daemon->stop_due_ns : workers_due(daemon);
        struct epoll_event event;
        int count;

        if (daemon->stopping && !stop_continue(daemon, now_ns)) {
            return;
        }
        if (!daemon->stopping && daemon->leave_due_ns != 0) {
            if (now_ns >= daemon->leave_due_ns) {
                daemon_stop(daemon, 0, "the head did not drain it in time");
                continue;
            }
            due_ns = pl_min_u64(due_ns, daemon->leave_due_ns);
        }
        count = epoll_wait(daemon->epoll_fd, &event, 1, timeout_ms(due_ns, now_ns));
        if (count > 0) {
            struct store_source *source = event.data.ptr;

            source->ready(daemon, source, event.events);
        }
        workers_tick(daemon, pl_now_ns());
    }
}

/* -------------------------------------------------------------------------------- start */

/*
 * Address space for a GPU: all its memory, in whole GiB, because chunks are laid side by side and
 * never move.
 */
static uint64_t arena_bytes_of(uint64_t memory_bytes)
{
    return pl_round_up(memory_bytes, 1ull << 30);
}

static plasmon_status_t gpus_add(struct store_daemon *daemon, uint32_t *out_count,
                                 struct pl_err *err)
{
    const struct store_options *options = daemon->options;
    struct store_probe probe            = {.count = 0};
    uint32_t wanted                     = options->gpus;
    plasmon_status_t status             = PLASMON_OK;

    *out_count = 0;
    if (wanted == 0) {
        return PLASMON_OK;
    }
    status = store_probe_run(&probe, err);
    if (status != PLASMON_OK && wanted == STORE_AUTO) {
        pl_warn("store", "looking for GPUs failed: %s; going on without", err->text);
        return PLASMON_OK;
    }
    if (status != PLASMON_OK) {
        return status;
    }
    if (wanted != STORE_AUTO && wanted > probe.count) {
        return pl_err_set(
            err, PLASMON_EINVAL,
            "--gpus %u, but the driver shows %u; `plasmon doctor` says why, and "
            "--cpu-devices goes without a GPU",
            wanted, probe.count);
    }
    for (uint32_t i = 0; i < pl_min_u64(wanted, probe.count) && status == PLASMON_OK; i++) {
        const struct store_probe_device *found = &probe.devices[i];

        status     = store_host_add_device(&daemon->host, DEVICE_CUDA, found->ordinal,
                                           options->device_memory, arena_bytes_of(found->bytes),
                                           err);
        *out_count = i + 1;
        pl_info("store", "device %u: GPU %u, %s", i, found->ordinal, found->name);
    }
    return status;
}

/* Default memory of a CPU device: its share of a quarter of the RAM, at least 64 MiB, in whole chunks. */
static uint64_t cpu_memory_default(uint32_t count)
{
    return pl_max_u64(pl_ram().total / 4 / count, 64u << 20) & ~((2ull << 20) - 1);
}

/* No start of a worker would go better than the first. */
static plasmon_status_t address_space_check(uint64_t bytes, struct pl_err *err)
{
    uint64_t wanted = arena_bytes_of(bytes);
    char asked[32], allowed[32];
    struct rlimit limit;

    if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
        limit.rlim_cur > wanted) {
        return PLASMON_OK;
    }
    return pl_err_set(
        err, PLASMON_ELIMIT,
        "the worker of a CPU device needs %s of address space for its memory "
        "alone, and no process may have more than %s here (`ulimit -v`): raise "
        "that, or give less --device-memory",
        pl_format_bytes(wanted, asked), pl_format_bytes(limit.rlim_cur, allowed));
}

static plasmon_status_t cpus_add(struct store_daemon *daemon, uint32_t count,
                                 struct pl_err *err)
{
    uint64_t bytes          = daemon->options->device_memory;
    plasmon_status_t status = PLASMON_OK;

    if (count > 0 && bytes == 0) {
        bytes = cpu_memory_default(count);
    }
    if (count > 0 && bytes > pl_ram().total) {
        char asked[32], there[32];

        return pl_err_set(err, PLASMON_EINVAL,
                          "--device-memory is %s for each CPU device, and this machine has "
                          "%s of RAM; without the option they share a quarter of it",
                          pl_format_bytes(bytes, asked),
                          pl_format_bytes(pl_ram().total, there));
    }
    if (count > 0) {
        status = address_space_check(bytes, err);
    }
    for (uint32_t i = 0; i < count && status == PLASMON_OK; i++) {
        status = store_host_add_device(&daemon->host, DEVICE_CPU, i, bytes,
                                       arena_bytes_of(bytes), err);
    }
    return status;
}

static plasmon_status_t devices_add(struct store_daemon *daemon, struct pl_err *err)
{
    uint32_t cpus = daemon->options->cpu_devices;
    uint32_t gpus;
    plasmon_status_t status = gpus_add(daemon, &gpus, err);

    if (status != PLASMON_OK) {
        return status;
    }
    if (cpus == STORE_AUTO) {
        cpus = gpus > 0 ? 0 : 2;
    }
    if (daemon->options->embedded && gpus > 0) {
        /* a private cluster has one worker a GPU; CPU devices are for where there is none */
        cpus = 0;
    }
    if (cpus + gpus == 0) {
        return pl_err_set(err, PLASMON_EINVAL, "no device to serve: give --cpu-devices");
    }
    status = store_bulk_check_ports(daemon->options, cpus + gpus, err);
    return status == PLASMON_OK ? cpus_add(daemon, cpus, err) : status;
}

/* What was taken over stays as it was, whatever the options say now. */
static void say_what_stays(const struct store_daemon *daemon)
{
    const struct store_options *options = daemon->options;
    uint32_t gpus = 0, cpus = 0;
    bool other = false;

    for (uint32_t i = 0; i < daemon->host.device_count; i++) {
        const struct store_host_device *device = &daemon->host.devices[i];

        gpus += device->kind == DEVICE_CUDA;
        cpus += device->kind == DEVICE_CPU;
        other |=
            options->device_memory != 0 && device->memory_bytes != options->device_memory;
    }
    other |= options->gpus != STORE_AUTO && options->gpus != gpus;
    other |= options->cpu_devices != STORE_AUTO && options->cpu_devices != cpus;
    if (other) {
        pl_warn("store",
                "goes on with the %u GPUs and %u CPU devices that it took over, and their "
                "memory: what --gpus, --cpu-devices and --device-memory say now counts "
                "after a SIGTERM to this store, or `plasmon stop`",
                gpus, cpus);
    }
}

static plasmon_status_t uplink_start(struct store_daemon *daemon, struct pl_err *err)
{
    plasmon_status_t status;

    spill_take_over(daemon);
    daemon_watch(daemon, &daemon->uplink_events, daemon->uplink->event_fd, EPOLLIN,
                 uplink_ready);
    status = daemon->uplink->start(daemon->uplink->user, daemon->node, daemon->socket_path,
                                   daemon->host.device_count, daemon->host.memory,
                                   &daemon->host.devices[0].timeline->store_session);
    return status == PLASMON_OK
               ? status
               : pl_err_set(err, status, "cannot start the link to the head");
}

static plasmon_status_t daemon_start(struct store_daemon *daemon, struct pl_err *err)
{
    plasmon_status_t status = signals_open(daemon);

    if (status != PLASMON_OK) {
        return pl_err_set(err, status, "signalfd: %s", pl_status_text(status));
    }
    if (daemon->options->embedded) {
        /* first: head and client start while we look for devices */
        status = embedded_start(daemon, err);
    }
    if (status == PLASMON_OK) {
        daemon->host.buffer_bytes_max = daemon->options->host_memory != 0
                                            ? daemon->options->host_memory
                                            : pl_ram().total / 4;
        status = daemon->options->embedded ? PLASMON_OK : handback_start(daemon, err);
    }
    if (status == PLASMON_OK && daemon->host.device_count == 0) {
        status = devices_add(daemon, err);
    } else if (status == PLASMON_OK) {
        say_what_stays(daemon);
    }
    if (status == PLASMON_OK && !daemon->options->embedded) {
        status = clients_adopt(daemon);
        if (status != PLASMON_OK) {
            (void)pl_err_set(err, status,
                             "clients of the store before cannot be watched: %s; give this "
                             "store more (ulimit -n, LimitNOFILE=, memory), and start this "
                             "store again",
                             pl_status_text(status));
        }
    }
    if (status == PLASMON_OK && !daemon->options->embedded) {
        status = clients_listen(daemon, err);
    }
    if (status == PLASMON_OK && daemon->uplink != NULL) {
        status = uplink_start(daemon, err); /* before the workers, who wait for our hello */
    }
    return status == PLASMON_OK ? workers_start(daemon, err) : status;
}

static void daemon_init(struct store_daemon *daemon, const struct store_options *options,
                        const char *token, const struct store_uplink *uplink)
{
    static char name[256];

    memset(daemon, 0, sizeof(*daemon));
    daemon->options          = options;
    daemon->token            = token;
    daemon->uplink           = uplink;
    daemon->node             = options->node;
    daemon->signal_fd        = -1;
    daemon->listen_fd        = -1;
    daemon->spare_fd         = -1;
    daemon->handback_fd      = -1;
    daemon->handback.fd      = -1;
    daemon->head.pidfd       = -1;
    daemon->head_link.fd     = -1;
    daemon->signals.fd       = -1;
    daemon->listener.fd      = -1;
    daemon->client_gone.fd   = -1;
    daemon->uplink_events.fd = -1;
    daemon->head_control.fd  = -1;
    daemon->head.source.fd   = -1;
    pl_list_init(&daemon->clients);
    store_host_init(&daemon->host);
    if (daemon->node == NULL) {
        if (gethostname(name, sizeof(name) - 1) != 0 || name[0] == '\0') {
            (void)snprintf(name, sizeof(name), "node");
        }
        daemon->node = name;
    }
}

int store_daemon_run(const struct store_options *options, const char *token,
                     const struct store_uplink *uplink)
{
    static struct store_daemon daemon; /* large, and there is one */
    struct pl_err err;

    daemon_init(&daemon, options, token, uplink);
    daemon.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (daemon.epoll_fd < 0) {
        pl_error("store", "epoll_create1: %s", strerror(errno));
        return 1;
    }

    if (daemon_start(&daemon, &err) != PLASMON_OK) {
        pl_error("store", "%s", err.text);
        daemon_stop(&daemon, 1, "it could not start");
    } else {
        daemon.started = true;
    }
    daemon_loop(&daemon);

    daemon_unwatch(&daemon, &daemon.uplink_events);
    clients_finish(&daemon);
    handback_finish(&daemon);
    embedded_finish(&daemon);
    workers_finish(&daemon);
    store_host_finish(&daemon.host);
    pl_fd_close(&daemon.signal_fd);
    pl_fd_close(&daemon.epoll_fd);
    return daemon.exit_status;
}
