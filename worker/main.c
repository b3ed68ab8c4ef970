/*
 * plasmon-worker: serves one device. This file puts the parts together; each of them has its own.
 *
 *   shared.c    what the store hands over          uplink.c     the connection to the head
 *   memory.c    where arenas are mapped            executor.c   the device's side of a launch
 *   core.c      what to do when
 *
 * THREADS. The rpc loop's thread takes commands; the main thread waits for the device, for other workers' doorbells and for the store.
 * Both do the same step under one lock: enqueue what can be enqueued, take what is complete, send what is to be told. The
 * mapper thread (memory.c) touches only its own state; a CPU device's streams are threads too.
 *
 * ENDS. Nothing in this process needs to be saved: objects are in memory that the store keeps, what is done is in timelines. So every
 * end is _exit():  0 the store is gone or the head said stop;  70 the device is lost;  71 the head does not know us any more, or says
 * what cannot be. The store starts another one after 70 and 71.
 */
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/fd.h"
#include "base/host.h"
#include "base/lock.h"
#include "base/log.h"
#include "worker/executor.h"
#include "worker/options.h"
#include "worker/uplink.h"

#define EXIT_DEVICE_LOST 70
#define EXIT_HEAD_LOST   71
#define DEVICES_MAX      65536u
#define HEALTH_PERIOD_MS 100
#define PIN_POLL_MS      1
/* Where a worker says in its table which device of the cluster it is, and of which head's cluster. */
#define TABLE_DEVICE 0 /* index in table->reserved: device + 1 */
#define TABLE_EPOCH  1

struct daemon {
    struct worker_options options;
    struct worker_shared shared;
    struct device *device;
    struct worker_memory *memory;
    struct worker_executor executor;
    struct pl_mutex
        lock; /* rank PL_RANK_WORKER; guards everything here but what is constant */
    struct worker_core *core;
    struct worker_uplink *uplink;
    uint64_t epoch;
    uint32_t device_index;
    bool devices_known; /* host_device_of is final */
    uint32_t *host_device_of;
    uint64_t cpu_ns;    /* of both threads, inside steps */
    uint64_t driver_ns; /* of that, inside the driver */

    struct wire_ranges unfinished;
    Plasmon__V1__WorkerHello hello;
    char host_id[PL_HOST_ID_BYTES];
};

/* ------------------------------------------------------------------------------------------------ ends */

_Noreturn static void end(struct daemon *daemon, int code, plasmon_status_t status,
                          const char *why)
{
    struct store_control message = {.type = STORE_CONTROL_FATAL, .status = (int32_t)status};

    pl_error("worker", "device %u of this host: %s; ending with status %d",
             daemon->shared.host_device, why, code);
    (void)snprintf(message.text, sizeof(message.text), "%s", why);
    if (worker_shared_send(&daemon->shared, &message, -1) != PLASMON_OK) {
        pl_debug("worker", "the store does not hear it");
    }
    _exit(code);
}

static void on_terminate(int signal_number)
{
    (void)signal_number;
    _exit(0);
}

/* The device cannot come back from this. What ran in it is told to the store, whose word the head hears. */
static void health_check(struct daemon *daemon)
{
    struct pl_err err = {.status = PLASMON_OK};
    struct pl_str text;

    if (worker_executor_health(&daemon->executor, &err) == PLASMON_OK) {
        return;
    }
    pl_str_init(&text);
    pl_str_append(&text, "%s; running were: ", err.text);
    worker_core_describe_running(daemon->core, &text);
    end(daemon, EXIT_DEVICE_LOST, err.status, pl_str_text(&text));
}

/* ------------------------------------------------------------------------------------------------ devices of the host */

/* Which device of the cluster is which of this host: each worker says so in its table once its head told it. */
static void devices_refresh(struct daemon *daemon)
{
    uint32_t known = 0;

    if (daemon->devices_known || daemon->epoch == 0) {
        return;
    }
    for (uint32_t i = 0; i < daemon->shared.host_device_count; i++) {
        const uint64_t *said = daemon->shared.tables[i]->reserved;
        /* Acquire: pairs with the release in device_announce(). */
        uint64_t epoch  = __atomic_load_n(&said[TABLE_EPOCH], __ATOMIC_ACQUIRE);
        uint64_t device = __atomic_load_n(&said[TABLE_DEVICE], __ATOMIC_RELAXED);

        if (epoch == daemon->epoch && device != 0 && device <= DEVICES_MAX) {
            daemon->host_device_of[device - 1] = i;
            known++;
        }
    }
    if (known == daemon->shared.host_device_count) {
        for (uint32_t i = 0; i < DEVICES_MAX; i++) {
            if (daemon->host_device_of[i] == WORKER_DEVICE_PENDING) {
                daemon->host_device_of[i] = UINT32_MAX;
            }
        }
        daemon->devices_known = true;
    }
}

static void device_announce(struct daemon *daemon)
{
    uint64_t *said = daemon->shared.tables[daemon->shared.host_device]->reserved;

    __atomic_store_n(&said[TABLE_DEVICE], daemon->device_index + 1ull, __ATOMIC_RELAXED);
    __atomic_store_n(&said[TABLE_EPOCH], daemon->epoch, __ATOMIC_RELEASE);
    worker_executor_ops.ring_doorbells(&daemon->executor);
}

/* ------------------------------------------------------------------------------------------------ the step */

/* True when the front waits for other workers; they see it before we look again (executor.c, op_ring_doorbells). */
static bool waits_publish(struct daemon *daemon)
{
    struct store_timeline *timeline = daemon->shared.timelines[daemon->shared.host_device];
    uint64_t waits_for              = worker_core_waits_for(daemon->core);

    if (timeline->waits_for == waits_for) {
        return false;
    }
    __atomic_store_n(&timeline->waits_for, waits_for, __ATOMIC_RELAXED);
    worker_shared_fence();
    return waits_for != 0;
}

static void step_locked(struct daemon *daemon)
{
    do {
        devices_refresh(daemon);
        worker_core_advance(daemon->core);
        worker_core_complete(daemon->core);
    } while (waits_publish(daemon));
}

struct meter {
    uint64_t cpu_ns;
    uint64_t driver_ns;
};

static struct meter meter_start(void)
{
    return (struct meter){.cpu_ns = pl_thread_cpu_ns(), .driver_ns = device_driver_ns()};
}

static void meter_stop(struct daemon *daemon, struct meter started)
{
    uint64_t cpu_ns    = pl_thread_cpu_ns() - started.cpu_ns;
    uint64_t driver_ns = device_driver_ns() - started.driver_ns;

    daemon->driver_ns += driver_ns;
    daemon->cpu_ns += cpu_ns > driver_ns ? cpu_ns - driver_ns : 0;
}

/* ------------------------------------------------------------------------------------------------ the head */

/* Another head than the one that our memory knows: it knows nothing of what lies here. */
static void forget_all(struct daemon *daemon)
{
    struct store_timeline *timeline = daemon->shared.timelines[daemon->shared.host_device];

    pl_info("worker", "a new head: what lay in device %u of this host is given up",
            daemon->shared.host_device);
    worker_core_forget(daemon->core);
    for (uint32_t i = 0; i < STORE_STAGE_SLOTS; i++) { /* its chunk numbers start at 0 */
        __atomic_store_n(&timeline->stage_ready[i].value, 0, __ATOMIC_RELEASE);
    }
    __atomic_store_n(&timeline->stage_taken.value, 0, __ATOMIC_RELEASE);
}

static plasmon_status_t on_welcome(void *user, const Plasmon__V1__WorkerWelcome *welcome,
                                   struct pl_err *err)
{
    struct daemon *daemon = user;
    uint64_t said =
        daemon->shared.tables[daemon->shared.host_device]->reserved[TABLE_EPOCH];

    if (welcome->device >= DEVICES_MAX || welcome->epoch == 0) {
        return pl_err_set(err, PLASMON_EMALFORMED,
                          "the head calls us device %u, epoch %llu", welcome->device,
                          (unsigned long long)welcome->epoch);
    }
    if (said != 0 && said != welcome->epoch) {
        forget_all(daemon);
    }
    daemon->epoch        = welcome->epoch;
    daemon->device_index = welcome->device;
    device_announce(daemon);
    devices_refresh(daemon);
    pl_info("worker", "device %u of this host is device %u of the cluster",
            daemon->shared.host_device, welcome->device);
    return PLASMON_OK;
}

static plasmon_status_t on_command(void *user, const Plasmon__V1__WorkerCommand *command,
                                   struct pl_err *err)
{
    struct daemon *daemon = user;
    struct meter meter    = meter_start();
    plasmon_status_t status;

    if (command->stop) {
        pl_info("worker", "the head said stop");
        _exit(0);
    }
    status = worker_core_command(daemon->core, command, err);
    if (status == PLASMON_OK) {
        step_locked(daemon);
    }
    meter_stop(daemon, meter);
    return status;
}

static void on_want_fd(void *user)
{
    struct daemon *daemon        = user;
    struct store_control message = {.type = STORE_CONTROL_NEW_HEAD_FD};

    if (worker_shared_send(&daemon->shared, &message, -1) != PLASMON_OK) {
        _exit(0); /* the store is gone */
    }
}

static void on_lost(void *user, plasmon_status_t status, const char *why)
{
    end(user, EXIT_HEAD_LOST, status, why);
}

static void on_stats(void *user, Plasmon__V1__WorkerStats *out)
{
    struct daemon *daemon = user;

    worker_core_stats(daemon->core, out);
    out->cpu_ns    = daemon->cpu_ns;
    out->driver_ns = daemon->driver_ns;
}

static size_t on_routes(void *user, Plasmon__V1__RouteStats *out, size_t max)
{
    const struct daemon *daemon = user;
    size_t count                = pl_min_u64(max, TRANSFER_ROUTES);

    for (size_t i = 0; i < count; i++) {
        out[i].route  = (uint32_t)i;
        out[i].copies = daemon->executor.counters.copies[i];
        out[i].bytes  = daemon->executor.counters.bytes[i];
    }
    return count;
}

static uint64_t on_received(void *user)
{
    const struct daemon *daemon = user;

    return worker_core_received(daemon->core);
}

static const struct worker_uplink_ops uplink_ops = {
    .welcome  = on_welcome,
    .command  = on_command,
    .want_fd  = on_want_fd,
    .lost     = on_lost,
    .stats    = on_stats,
    .routes   = on_routes,
    .received = on_received,
};

/* Reports of the core go into the next frame. */
static void report_done(void *user, uint64_t first, uint64_t count)
{
    worker_uplink_done(((struct daemon *)user)->uplink, first, count);
}

static void report_failed(void *user, uint64_t seq, plasmon_status_t status,
                          const char *text)
{
    worker_uplink_failed(((struct daemon *)user)->uplink, seq, status, text);
}

static void report_starved(void *user, uint64_t seq, uint64_t bytes, uint64_t largest_hole)
{
    worker_uplink_starved(((struct daemon *)user)->uplink, seq, bytes, largest_hole);
}

static void report_data(void *user, uint64_t request, const uint8_t *bytes, uint64_t length)
{
    worker_uplink_data(((struct daemon *)user)->uplink, request, bytes, length);
}

/* ------------------------------------------------------------------------------------------------ the main thread */

/* Everything that the store has sent. */
static void control_take(struct daemon *daemon)
{
    struct pl_err err;
    plasmon_status_t status;

    while ((status = worker_shared_receive(&daemon->shared, &err)) == PLASMON_OK) {
    }
    if (status == PLASMON_ECLOSED) {
        _exit(0); /* the store is gone, and with it this host's part of the cluster */
    }
    if (status == PLASMON_EAGAIN) {
        status = worker_memory_take_chunks(daemon->memory, &err);
    }
    if (status != PLASMON_OK) {
        end(daemon, EXIT_HEAD_LOST, status, err.text);
    }
    if (daemon->shared.head_fd >= 0) {
        worker_uplink_new_fd(daemon->uplink, daemon->shared.head_fd);
        daemon->shared.head_fd = -1;
    }
}

static void counter_drain(int fd)
{
    uint64_t count;

    if (read(fd, &count, sizeof(count)) < 0 && errno != EAGAIN) {
        pl_warn("worker", "eventfd: %s", strerror(errno));
    }
}

static int epoll_of(const int *fds, size_t count)
{
    int epoll_fd = epoll_create1(EPOLL_CLOEXEC);

    for (size_t i = 0; epoll_fd >= 0 && i < count; i++) {
        struct epoll_event event = {.events = EPOLLIN, .data.fd = fds[i]};

        if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fds[i], &event) != 0) {
            pl_fd_close(&epoll_fd);
        }
    }
    return epoll_fd;
}

static int wait_ms(struct daemon *daemon)
{
    int timeout;

    pl_mutex_lock(&daemon->lock);
    timeout = worker_core_wants_poll(daemon->core) ? PIN_POLL_MS
              : worker_core_idle(daemon->core)     ? -1
                                                   : HEALTH_PERIOD_MS;
    pl_mutex_unlock(&daemon->lock);
    return timeout;
}

_Noreturn static void main_loop(struct daemon *daemon)
{
    int doorbell = daemon->shared.doorbells[daemon->shared.host_device];
    int fds[]    = {daemon->shared.control_fd, doorbell, daemon->executor.notify_fd};
    int epoll_fd = epoll_of(fds, PL_COUNT(fds));
    struct epoll_event events[PL_COUNT(fds)];

    if (epoll_fd < 0) {
        end(daemon, EXIT_HEAD_LOST, PLASMON_ELIMIT, "no epoll descriptor");
    }
    for (;;) {
        int count = epoll_wait(epoll_fd, events, PL_COUNT(events), wait_ms(daemon));
        struct meter meter;

        pl_mutex_lock(&daemon->lock);
        meter = meter_start();
        for (int i = 0; i < count; i++) {
            if (events[i].data.fd == daemon->shared.control_fd) {
                control_take(daemon);
            } else {
                counter_drain(events[i].data.fd);
            }
        }
        step_locked(daemon);
        if (!worker_core_idle(daemon->core)) {
            health_check(daemon);
        }
        worker_uplink_flush(daemon->uplink);
        meter_stop(daemon, meter);
        pl_mutex_unlock(&daemon->lock);
    }
}

/* ------------------------------------------------------------------------------------------------ set-up */

/* Run on the cores beside the device: its doorbells and staging slabs are in that node's memory then. */
static void numa_bind(int node)
{
    char path[64], line[512];
    cpu_set_t cpus;
    FILE *file;

    if (node < 0) {
        return;
    }
    (void)snprintf(path, sizeof(path), "/sys/devices/system/node/node%d/cpulist", node);
    file = fopen(path, "re");
    if (file == NULL || fgets(line, sizeof(line), file) == NULL) {
        line[0] = '\0';
    }
    if (file != NULL) {
        (void)fclose(file); /* it was only read */
    }

    CPU_ZERO(&cpus);
    for (char *rest = line; *rest >= '0' && *rest <= '9';) { /* "0-15,32-47" */
        unsigned long first = strtoul(rest, &rest, 10);
        unsigned long last  = *rest == '-' ? strtoul(rest + 1, &rest, 10) : first;

        for (; first <= last && first < CPU_SETSIZE; first++) {
            CPU_SET(first, &cpus);
        }
        rest += *rest == ',';
    }
    if (CPU_COUNT(&cpus) == 0 || sched_setaffinity(0, sizeof(cpus), &cpus) != 0) {
        pl_debug("worker", "not bound to node %d", node); /* a container may forbid it */
    }
}

static plasmon_status_t device_start(struct daemon *daemon, struct pl_err *err)
{
    struct device_config config = {.bytes_max   = daemon->options.device_memory,
                                   .cpu_threads = 1};
    struct device_info info;
    plasmon_status_t status =
        device_probe(daemon->options.kind, daemon->options.ordinal, &info, err);

    if (status != PLASMON_OK) {
        return status;
    }
    numa_bind(info.numa_node);
    status = device_open(daemon->options.kind, daemon->options.ordinal, &config,
                         &daemon->device, err);
    if (status == PLASMON_OK) {
        device_driver_time_enable(true);
        status = worker_memory_create(daemon->device, &daemon->shared,
                                      daemon->options.device_memory, &daemon->memory, err);
    }
    return status;
}

static plasmon_status_t core_start(struct daemon *daemon, struct pl_err *err)
{
    const struct device_info *info   = device_get_info(daemon->device);
    struct worker_core_config config = {
        .ops               = &worker_executor_ops,
        .user              = &daemon->executor,
        .host_device       = daemon->shared.host_device,
        .host_device_count = daemon->shared.host_device_count,
        .run_streams       = daemon->executor.run_streams,
        .timelines         = daemon->shared.timelines,
        .tables            = daemon->shared.tables,
        .readers           = daemon->shared.readers,
        .reader_epoch      = &daemon->shared.reader_epoch,
        .host_device_of    = daemon->host_device_of,
        .device_max        = DEVICES_MAX,
        .device_bytes = daemon->options.device_memory != 0 ? daemon->options.device_memory
                                                           : info->bytes_total,
    };
    uint64_t enqueued;
    plasmon_status_t status = worker_core_create(&config, &daemon->core);

    if (status != PLASMON_OK) {
        return pl_err_set(err, status, "no memory for the launch queue");
    }
    daemon->executor.core = daemon->core;
    worker_memory_set_core(daemon->memory, daemon->core);
    status = worker_memory_take_chunks(daemon->memory, err);
    if (status != PLASMON_OK) {
        return status;
    }

    wire_ranges_init(&daemon->unfinished);
    status = worker_core_recover(daemon->core, &enqueued, &daemon->unfinished);
    if (status != PLASMON_OK) {
        return pl_err_set(err, status, "what the last worker left does not make sense: %s",
                          pl_status_text(status));
    }
    daemon->hello.enqueued = enqueued;
    return PLASMON_OK;
}

static plasmon_status_t hello_fill(struct daemon *daemon)
{
    const struct device_info *info  = device_get_info(daemon->device);
    Plasmon__V1__WorkerHello *hello = &daemon->hello;
    size_t count                    = daemon->unfinished.items.count;
    Plasmon__V1__Range *ranges      = PL_NEW_N(Plasmon__V1__Range, count + 1);

    hello->unfinished = PL_NEW_N(Plasmon__V1__Range *, count + 1);
    if (ranges == NULL || hello->unfinished == NULL) {
        return PLASMON_ENOMEM; /* the process ends */
    }
    for (size_t i = 0; i < count; i++) {
        const struct wire_range *range = pl_vec_at(&daemon->unfinished.items, i);

        plasmon__v1__range__init(&ranges[i]);
        ranges[i].first      = range->first;
        ranges[i].count      = range->count;
        hello->unfinished[i] = &ranges[i];
    }
    hello->n_unfinished = count;
    hello->host         = (char *)(uintptr_t)pl_host_id(daemon->host_id);
    hello->node         = (char *)(uintptr_t)daemon->options.node;
    hello->host_device  = daemon->shared.host_device;
    hello->kind         = (uint32_t)info->kind;
    hello->ordinal      = info->ordinal;
    hello->name         = (char *)(uintptr_t)info->name;
    hello->bytes_total  = daemon->options.device_memory != 0 ? daemon->options.device_memory
                                                             : info->bytes_total;
    hello->incarnation  = daemon->options.incarnation;
    hello->peer_capable = worker_memory_peer_capable(daemon->memory);
    return PLASMON_OK;
}

static plasmon_status_t uplink_start(struct daemon *daemon, struct pl_err *err)
{
    struct worker_uplink_config config = {.ops    = &uplink_ops,
                                          .user   = daemon,
                                          .lock   = &daemon->lock,
                                          .target = daemon->options.head,
                                          .fd     = daemon->options.head_fd,
                                          .token  = getenv("PLASMON_TOKEN"),
                                          .hello  = &daemon->hello};
    struct store_control ready         = {.type = STORE_CONTROL_READY};
    plasmon_status_t status            = hello_fill(daemon);

    if (status == PLASMON_OK) {
        (void)snprintf(ready.text, sizeof(ready.text), "%s", daemon->hello.name);
        status = worker_shared_send(&daemon->shared, &ready, -1);
    }
    if (status == PLASMON_OK) {
        rpc_init();
        status = worker_uplink_create(&config, &daemon->uplink);
    }
    return status == PLASMON_OK
               ? PLASMON_OK
               : pl_err_set(err, status, "the connection to the head cannot be set up: %s",
                            pl_status_text(status));
}

static plasmon_status_t daemon_start(struct daemon *daemon,
                                     const struct worker_reports *reports,
                                     struct pl_err *err)
{
    plasmon_status_t status;

    daemon->host_device_of = PL_NEW_N(uint32_t, DEVICES_MAX);
    if (daemon->host_device_of == NULL) {
        return pl_err_set(err, PLASMON_ENOMEM, "no memory");
    }
    for (uint32_t i = 0; i < DEVICES_MAX; i++) {
        daemon->host_device_of[i] = WORKER_DEVICE_PENDING;
    }
    plasmon__v1__worker_hello__init(&daemon->hello);

    status = worker_shared_receive_setup(&daemon->shared, err);
    if (status == PLASMON_OK) {
        status = device_start(daemon, err);
    }
    if (status == PLASMON_OK) {
        status = worker_executor_init(&daemon->executor, daemon->device, &daemon->shared,
                                      daemon->memory, reports, err);
    }
    if (status == PLASMON_OK) {
        status = core_start(daemon, err);
    }
    return status;
}

static int serve(const struct worker_options *options)
{
    static struct daemon daemon; /* the process's one; large */
    static const struct worker_reports reports = {.user    = &daemon,
                                                  .done    = report_done,
                                                  .failed  = report_failed,
                                                  .starved = report_starved,
                                                  .data    = report_data};
    struct pl_err err                          = {.status = PLASMON_OK};
    plasmon_status_t status;

    daemon.options = *options;
    worker_shared_init(&daemon.shared, options->control_fd);
    status = pl_mutex_init(&daemon.lock, PL_RANK_WORKER);
    if (status == PLASMON_OK) {
        status = daemon_start(&daemon, &reports, &err);
    }
    if (status == PLASMON_ECLOSED) {
        return 0; /* the store went while it set us up */
    }
    if (status == PLASMON_OK) {
        pl_mutex_lock(&daemon.lock); /* callbacks may come before daemon.uplink is set */
        status = uplink_start(&daemon, &err);
        pl_mutex_unlock(&daemon.lock);
    }
    if (status != PLASMON_OK) {
        end(&daemon, EXIT_DEVICE_LOST, status, err.text);
    }
    main_loop(&daemon);
}

/* For the store, which has no driver of its own. */
static int probe(void)
{
    uint32_t count = device_count(DEVICE_CUDA, NULL);

    for (uint32_t i = 0; i < count; i++) {
        struct device_info info;
        struct pl_err err;

        if (device_probe(DEVICE_CUDA, i, &info, &err) == PLASMON_OK) {
            printf("cuda %u %llu %s\n", i, (unsigned long long)info.bytes_total, info.name);
        } else {
            pl_warn("worker", "GPU %u cannot be used: %s", i, err.text);
        }
    }
    return 0;
}

int main(int argc, char **argv)
{
    struct worker_options options;
    enum pl_log_level level;
    const char *log = getenv("PLASMON_LOG");
    struct pl_err err;

    pl_log_set_sink(pl_log_stderr, NULL);
    if (log != NULL && pl_log_level_parse(log, &level) == PLASMON_OK) {
        pl_log_set_level(level);
    }
    pl_fault_from_env();
    if (worker_options_parse(argc, argv, &options, &err) != PLASMON_OK) {
        fprintf(stderr, "plasmon-worker: %s\n", err.text);
        return 2;
    }
    if (options.help) {
        worker_options_print_help(stdout);
        return 0;
    }
    if (options.version) {
        printf("plasmon-worker, protocol %u\n", WIRE_PROTOCOL);
        return 0;
    }

    /* Before the driver starts: with its default of 8 queues, 8 waiting streams would stop every kernel (limits.md). */
    (void)setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1); /* no memory: slower, not wrong */
    if (options.probe) {
        return probe();
    }
    (void)signal(SIGTERM, on_terminate); /* cannot fail for these two */
    (void)signal(SIGPIPE, SIG_IGN);
    return serve(&options);
}
