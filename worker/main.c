/*
 * plasmon-worker: serves one device. This file sets it up from its parts; each of them has its own.
 *
 *   shared.c    what the store hands over          uplink.c     the connection to the head
 *   memory.c    where arenas are mapped            executor.c   the device's side of a launch
 *   core.c      what to do when                    daemon.c     the running process
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/numa.h"
#include "plasmon/version.h"
#include "store/spawn.h"
#include "worker/daemon.h"
#include "worker/where.h"

/* Compiled CUDA text of all programs of this user: some ten thousand kernels. */
#define CACHE_BYTES_MAX (UINT64_C(512) << 20)

/*
 * How many bytes of work before somebody who waits is told: about 40 us of a GPU at 3 TB/s, 100 us
 * of a CPU. A signal takes 2.6 us of a GPU's stream (limits), so that is 6%. Bytes that come over a
 * link count eightfold (enqueue.c).
 */
/* 20 us of a link; what a mark costs is not seen beside that */
#define MARK_BYTES        (UINT64_C(1) << 20)
#define SIGNAL_BYTES_CUDA (UINT64_C(128) << 20)
#define SIGNAL_BYTES_CPU  (UINT64_C(1) << 20)
#define LARGE_COPY_BYTES  (UINT64_C(32) << 20) /* streams.c says why */

enum { BULK_RETRY_MS = 250 };

/* ------------------------------------------------------------------------------- set-up */

/*
 * On a CPU stream's thread, before the stream's word can say that the launch is over: whatever
 * becomes of this process, its successor knows that what was to be made is not right.
 */
static void launch_failed(void *user, uint64_t seq)
{
    const struct worker_daemon *daemon = user;

    store_timeline_mark(daemon->shared.timelines[daemon->shared.host_device], seq, true);
}

static void device_opened(void *user, enum device_open_step step)
{
    struct worker_daemon *daemon = user;

    worker_phases_note(&daemon->phases, step == DEVICE_OPENED_CONTEXT
                                            ? STORE_PHASE_CONTEXT
                                            : STORE_PHASE_LIBRARIES);
}

/*
 * Somebody waits for what the worker before us left undone, or the whole host. cuBLAS takes longer
 * to start than all the rest, and not everybody needs it; a first worker and a spare have the time.
 */
static bool in_haste(const struct worker_options *options)
{
    return options->spare == NULL ? options->in_haste || options->incarnation > 1
                                  : strcmp(options->spare, "next") == 0;
}

/* All of the device that needs nothing of the store. */
static plasmon_status_t device_start(struct worker_daemon *daemon, struct pl_err *err)
{
    struct device_config config = {.bytes_max     = daemon->options.device_memory,
                                   .cpu_threads   = 1,
                                   .launch_failed = launch_failed,
                                   .cublas_later  = in_haste(&daemon->options),
                                   .opened        = device_opened,
                                   .user          = daemon};
    struct device_info info;
    plasmon_status_t status =
        device_probe(daemon->options.kind, daemon->options.ordinal, &info, err);

    if (status != PLASMON_OK) {
        return status;
    }
    worker_phases_note(&daemon->phases, STORE_PHASE_DRIVER);
    if (info.kind == DEVICE_CUDA) { /* before anything is touched: pages stay there */
        char text[PL_NUMA_TEXT_BYTES];

        (void)pl_numa_bind(pl_numa_root(), info.numa_node,
                           text); /* said, and done without */
        pl_info("worker", "GPU %u at %s: %s", info.ordinal, info.pci, text);
    }
    status = device_open(daemon->options.kind, daemon->options.ordinal, &config,
                         &daemon->device, err);
    if (status == PLASMON_OK) {
        /* Two looks at the clock a call: only where somebody measures. */
        daemon->driver_time = getenv("PLASMON_DRIVER_TIME") != NULL;
        device_driver_time_enable(daemon->driver_time);
        status = kernel_context_create(daemon->device, &daemon->kernels, err);
    }
    if (status == PLASMON_OK) {
        worker_phases_note(&daemon->phases, STORE_PHASE_CODE);
    }
    return status;
}

static plasmon_status_t core_start(struct worker_daemon *daemon, struct pl_err *err)
{
    const struct device_info *info   = device_get_info(daemon->device);
    struct worker_core_config config = {
        .ops               = &worker_executor_ops,
        .user              = &daemon->executor,
        .host_device       = daemon->shared.host_device,
        .host_device_count = daemon->shared.host_device_count,
        .run_streams       = daemon->executor.run_streams,
        .urgent_streams    = WORKER_URGENT_STREAMS,
        .low_streams       = WORKER_LOW_STREAMS,
        .mark_bytes        = MARK_BYTES,
        .large_copy_bytes  = LARGE_COPY_BYTES,
        .signal_bytes   = info->kind == DEVICE_CUDA ? SIGNAL_BYTES_CUDA : SIGNAL_BYTES_CPU,
        .words_cheap    = info->kind == DEVICE_CPU,
        .lone           = daemon->shared.host_device_count == 1,
        .timelines      = daemon->shared.timelines,
        .tables         = daemon->shared.tables,
        .readers        = daemon->shared.readers,
        .readers_end    = &daemon->shared.readers_end,
        .reader_epoch   = &daemon->shared.reader_epoch,
        .host_device_of = daemon->host_device_of,
        .device_max     = WORKER_DEVICES_MAX,
        .device_bytes   = daemon->options.device_memory != 0 ? daemon->options.device_memory
                                                             : info->bytes_total,
    };
    uint64_t enqueued;
    plasmon_status_t status = worker_core_create(&config, &daemon->core);

    if (status != PLASMON_OK) {
        return pl_err_set(err, status, "no memory for the launch queue");
    }
    /* What others send us lies there until our device has it. Before anybody pins it. */
    pl_numa_prefer(daemon->shared.slabs[daemon->shared.host_device],
                   daemon->shared.slab_bytes, info->numa_node);
    daemon->executor.core = daemon->core;
    worker_memory_set_core(daemon->memory, daemon->core);
    status = worker_memory_take_chunks(daemon->memory, err);
    if (status != PLASMON_OK) {
        return status;
    }

    wire_ranges_init(&daemon->unfinished);
    wire_ranges_init(&daemon->untouched);
    status = worker_core_recover(daemon->core, &enqueued, &daemon->unfinished,
                                 &daemon->untouched);
    if (status == PLASMON_OK) {
        worker_phases_note(&daemon->phases, STORE_PHASE_MEMORY);
        status = worker_lanes_take(&daemon->executor.lanes, err);
        if (status == PLASMON_OK) {
            status = worker_host_buffers_take(&daemon->executor.host_buffers, err);
        }
        if (status != PLASMON_OK) {
            return status;
        }
    }
    if (status != PLASMON_OK) {
        return pl_err_set(err, status, "what the last worker left does not make sense: %s",
                          pl_status_text(status));
    }
    worker_phases_note(&daemon->phases, STORE_PHASE_BUFFERS);
    daemon->hello.enqueued = enqueued;
    return PLASMON_OK;
}

/* Until the process ends. NULL: no memory. */
static Plasmon__V1__Range **ranges_say(const struct wire_ranges *ranges, size_t *out_count)
{
    size_t count              = ranges->items.count;
    Plasmon__V1__Range *rows  = count > 0 ? PL_NEW_N(Plasmon__V1__Range, count) : NULL;
    Plasmon__V1__Range **list = PL_NEW_N(Plasmon__V1__Range *, count + 1);

    if ((rows == NULL && count > 0) || list == NULL) {
        pl_free(rows);
        pl_free(list);
        return NULL;
    }
    for (size_t i = 0; i < count; i++) {
        const struct wire_range *range = pl_vec_at(&ranges->items, i);

        plasmon__v1__range__init(&rows[i]);
        rows[i].first = range->first;
        rows[i].count = range->count;
        list[i]       = &rows[i];
    }
    *out_count = count;
    return list;
}

/*
 * Whoever has something mapped keeps its slot, whatever becomes of the head: the next one must not
 * give that out, or what it puts there would wait for him. What he pins from now on is few; more
 * than a message takes is not told.
 */
static plasmon_status_t held_fill(const struct worker_daemon *daemon,
                                  Plasmon__V1__WorkerHello *hello)
{
    const struct worker_shared *shared = &daemon->shared;
    uint64_t *bits                     = PL_NEW_N(uint64_t, STORE_TABLE_SLOTS / 64);
    size_t count                       = 0;

    if (bits == NULL) {
        return PLASMON_ENOMEM;
    }
    for (uint32_t i = 0; i < shared->readers_end; i++) {
        if (shared->readers[i] != NULL) {
            store_pins_held(shared->readers[i], shared->host_device, bits);
        }
    }
    for (uint32_t i = 0; i < STORE_TABLE_SLOTS / 64; i++) {
        count += (size_t)__builtin_popcountll(bits[i]);
    }
    count       = pl_min_u64(count, WIRE_RANGES_MAX);
    hello->held = PL_NEW_N(uint32_t, count + 1); /* as long as the process */
    if (hello->held == NULL) {
        pl_free(bits);
        return PLASMON_ENOMEM;
    }
    for (uint32_t slot = 0; hello->n_held < count; slot++) {
        if ((bits[slot / 64] & UINT64_C(1) << slot % 64) != 0) {
            hello->held[hello->n_held++] = slot;
        }
    }
    pl_free(bits);
    return PLASMON_OK;
}

static plasmon_status_t hello_fill(struct worker_daemon *daemon)
{
    const struct device_info *info  = device_get_info(daemon->device);
    Plasmon__V1__WorkerHello *hello = &daemon->hello;
    plasmon_status_t status         = pl_host_id(daemon->host_id);

    if (status != PLASMON_OK) {
        return status;
    }

    hello->unfinished = ranges_say(&daemon->unfinished, &hello->n_unfinished);
    hello->untouched  = ranges_say(&daemon->untouched, &hello->n_untouched);
    if (hello->unfinished == NULL || hello->untouched == NULL ||
        held_fill(daemon, hello) != PLASMON_OK) {
        return PLASMON_ENOMEM; /* the process ends */
    }
    hello->host         = daemon->host_id;
    hello->node         = (char *)(uintptr_t)daemon->options.node;
    hello->host_device  = daemon->shared.host_device;
    hello->kind         = (uint32_t)info->kind;
    hello->ordinal      = info->ordinal;
    hello->name         = (char *)(uintptr_t)info->name;
    hello->bytes_total  = daemon->options.device_memory != 0 ? daemon->options.device_memory
                                                             : info->bytes_total;
    hello->incarnation  = daemon->options.incarnation;
    hello->memory       = daemon->shared.timelines[daemon->shared.host_device]->memory;
    hello->runs         = kernel_code_runs(info->kind, &daemon->executor.functions.policy);
    hello->peer_capable = worker_memory_peer_capable(daemon->memory);
    if (daemon->executor.bulk.channel != NULL) {
        hello->bulk_address     = daemon->executor.bulk.endpoint.address;
        hello->bulk_secret.data = daemon->executor.bulk.endpoint.secret;
        hello->bulk_secret.len  = sizeof(daemon->executor.bulk.endpoint.secret);
        hello->bulk_tls         = daemon->executor.bulk.tls;
    }
    hello->comm_version = device_comm_version(daemon->device, &daemon->comm_missing);
    hello->comm_plain   = daemon->options.tls_cert == NULL;
    if (hello->comm_version == 0) {
        hello->comm_missing = daemon->comm_missing.text;
    }
    return PLASMON_OK;
}

static plasmon_status_t uplink_start(struct worker_daemon *daemon, struct pl_err *err)
{
    static char token[TRUST_TOKEN_BYTES_MAX + 1]; /* as long as the process */
    struct worker_uplink_config config = {.ops    = &worker_daemon_uplink_ops,
                                          .user   = daemon,
                                          .lock   = &daemon->lock,
                                          .target = daemon->options.head,
                                          .fd     = daemon->options.head_fd,
                                          .token  = token,
                                          .hello  = &daemon->hello};
    struct store_control ready         = {.type = STORE_CONTROL_READY};
    struct trust_files files           = {.ca   = daemon->options.tls_ca,
                                          .cert = daemon->options.tls_cert,
                                          .key  = daemon->options.tls_key};
    plasmon_status_t status            = trust_token_take(token, err);

    if (status != PLASMON_OK) {
        return status;
    }
    status = hello_fill(daemon);
    if (status == PLASMON_OK && trust_files_given(&files)) {
        status = trust_source_create(&files, TRUST_ROLE_HOST, &config.trust, err);
        if (status != PLASMON_OK) {
            return status;
        }
    }

    if (status == PLASMON_OK) {
        worker_phases_note(&daemon->phases, STORE_PHASE_READY);
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

/* What of clients this worker runs, as the operator said. */
static void functions_allow(struct worker_daemon *daemon)
{
    static char cache_dir[4096];
    struct kernel_code_policy *policy = &daemon->executor.functions.policy;

    daemon->executor.check.on = daemon->options.check_functions;
    policy->c_text            = daemon->options.allow_source;
    policy->library_dir       = daemon->options.library_dir;
    policy->cache_dir         = kernel_code_cache_dir(cache_dir, sizeof(cache_dir));
    policy->cache_bytes_max   = CACHE_BYTES_MAX;
    policy->compile_program   = "/proc/self/exe";
}

/* What the store says meanwhile is kept for later; it ends whoever does not read it. */
static plasmon_status_t store_hear(struct worker_daemon *daemon, int timeout_ms,
                                   struct pl_err *err)
{
    struct pollfd poll_fd = {.fd = daemon->shared.control_fd, .events = POLLIN};
    plasmon_status_t status;

    (void)poll(&poll_fd, 1, timeout_ms); /* a signal: it is early */
    do {
        status = worker_shared_receive(&daemon->shared, err);
    } while (status == PLASMON_OK);
    return status == PLASMON_EAGAIN ? PLASMON_OK : status;
}

/*
 * A device that has served has objects. Without a port or an address its worker is of no use, but
 * neither is the next one, and after so many starts that fail the device would be given up with all
 * that lies there. So it waits. On a device that nobody has served yet there is nothing to lose, and
 * an option that cannot be right is to be heard of at once.
 */
static plasmon_status_t bulk_start(struct worker_daemon *daemon, struct pl_err *err)
{
    const struct worker_shared *shared = &daemon->shared;
    bool served                        = shared->tables[shared->host_device]->device != 0;
    uint64_t from_ns                   = pl_now_ns();
    bool waited                        = false;
    plasmon_status_t status;

    for (;;) {
        status = worker_bulk_start(&daemon->executor.bulk, daemon->device, daemon->memory,
                                   &daemon->executor.lanes, &daemon->options, err);
        if (status == PLASMON_OK || !served) {
            break;
        }
        if (!waited) {
            pl_warn("worker",
                    "device %u of this host: %s; it has objects, so its worker waits and "
                    "tries again",
                    shared->host_device, err->text);
        }
        waited = true;
        worker_phases_beat(&daemon->phases);
        status = store_hear(daemon, BULK_RETRY_MS, err);
        if (status != PLASMON_OK) {
            return status;
        }
    }
    if (waited) {
        pl_info("worker", "device %u of this host listens on %s after %llu ms",
                shared->host_device, daemon->executor.bulk.endpoint.address,
                (unsigned long long)((pl_now_ns() - from_ns) / 1000000));
        /* NCCL's interface is the one with that address, which may have been away. */
        worker_pairs_environment(daemon->options.bulk_address, shared->host_device);
    }
    return status;
}

static plasmon_status_t daemon_start(struct worker_daemon *daemon,
                                     const struct worker_reports *reports,
                                     struct pl_err *err)
{
    plasmon_status_t status = PLASMON_OK;

    daemon->host_device_of = PL_NEW_N(uint32_t, WORKER_DEVICES_MAX);
    if (daemon->host_device_of == NULL) {
        return pl_err_set(err, PLASMON_ENOMEM, "no memory");
    }
    for (uint32_t i = 0; i < WORKER_DEVICES_MAX; i++) {
        daemon->host_device_of[i] = WORKER_DEVICE_PENDING;
    }
    plasmon__v1__worker_hello__init(&daemon->hello);

    if (daemon->kernels == NULL) {
        status = device_start(daemon, err);
    }
    if (status == PLASMON_OK) {
        status = worker_shared_receive_setup(&daemon->shared, err);
    }
    if (status == PLASMON_OK) {
        worker_phases_share(&daemon->phases,
                            daemon->shared.timelines[daemon->shared.host_device]);
        worker_phases_note(&daemon->phases, STORE_PHASE_SET_UP);
        daemon->siblings = (struct worker_siblings){
            .tables    = daemon->shared.tables,
            .timelines = daemon->shared.timelines,
            .count     = daemon->shared.host_device_count,
            .own       = daemon->shared.host_device,
        };
        status = worker_memory_create(daemon->device, &daemon->shared,
                                      daemon->options.device_memory, &daemon->memory, err);
    }
    if (status == PLASMON_OK) {
        status = worker_executor_init(&daemon->executor, daemon->device, daemon->kernels,
                                      &daemon->shared, daemon->memory,
                                      daemon->options.run_streams, reports, err);
    }
    if (status == PLASMON_OK) {
        worker_phases_note(&daemon->phases, STORE_PHASE_STREAMS);
    }
    if (status == PLASMON_OK) {
        status = bulk_start(daemon, err);
    }
    if (status == PLASMON_OK) {
        status = worker_pairs_start(&daemon->executor, daemon->options.bulk_address, err);
    }
    if (status == PLASMON_OK) {
        functions_allow(daemon);
        status = core_start(daemon, err);
    }
    return status;
}

/* Which worker of the host, and which life of it; or that it is nobody's yet. */
static void faults_arm(const struct worker_options *options, bool spare)
{
    char who[32];

    if (spare) {
        (void)snprintf(who, sizeof(who), "spare%u", (unsigned)options->host_device);
    } else {
        (void)snprintf(who, sizeof(who), "worker%u.%u", (unsigned)options->host_device,
                       (unsigned)options->incarnation);
    }
    pl_fault_from_env(who);
}

/*
 * Do ahead what can be done without the store's memory, then wait until it is our turn. A device
 * that cannot be opened beside its worker (a GPU in the exclusive mode, or without memory for
 * another context) is opened then.
 */
static plasmon_status_t spare_wait(struct worker_daemon *daemon, struct pl_err *err)
{
    struct store_control prepared = {.type = STORE_CONTROL_PREPARED};
    bool context                  = strcmp(daemon->options.spare, "process") != 0;
    plasmon_status_t status;
    struct pl_err why;

    device_preload(daemon->options.kind);
    if (context && device_start(daemon, &why) != PLASMON_OK) {
        pl_info("worker", "a spare of device %u has no context yet: %s",
                daemon->options.host_device, why.text);
        if (daemon->device != NULL) {
            device_close(daemon->device);
            daemon->device = NULL;
        }
    }
    status = worker_shared_send(&daemon->shared, &prepared, -1);
    if (status == PLASMON_OK) {
        status =
            worker_shared_await_begin(&daemon->shared, &daemon->options.incarnation, err);
    }
    if (status == PLASMON_OK) {
        daemon->shared.handback.incarnation = daemon->options.incarnation;
    }
    if (status == PLASMON_OK && daemon->device != NULL) {
        status = device_health(daemon->device, err); /* an error of the GPU itself, say */
    }
    return status;
}

static int serve(const struct worker_options *options)
{
    static struct worker_daemon daemon; /* the process's one; large */
    static struct worker_reports reports;
    struct pl_err err = {.status = PLASMON_OK};
    plasmon_status_t status;

    faults_arm(options, options->spare != NULL);
    worker_phases_note(&daemon.phases, STORE_PHASE_RUNNING);
    daemon.options = *options;
    reports        = worker_daemon_reports(&daemon);
    worker_shared_init(&daemon.shared, options->control_fd);
    daemon.shared.host_device            = options->host_device;
    daemon.shared.handback.socket_path   = options->handback_socket;
    daemon.shared.handback.lease_ms      = options->store_lease_ms;
    daemon.shared.handback.incarnation   = options->incarnation;
    daemon.shared.handback.device_memory = options->device_memory;
    status                               = pl_mutex_init(&daemon.lock, PL_RANK_WORKER);
    worker_pairs_environment(options->bulk_address, options->host_device);
    if (status == PLASMON_OK && options->spare != NULL) {
        status = spare_wait(&daemon, &err);
        faults_arm(&daemon.options, false);
    }
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
        worker_daemon_end(&daemon, WORKER_EXIT_DEVICE_LOST, status, err.text);
    }
    worker_daemon_run(&daemon);
}

/* slice: of a slice that was taken, whose ordinal is first. */
static int probe_here(bool slice, uint32_t first, uint32_t named)
{
    struct pl_err why = {.status = PLASMON_OK};
    uint32_t count    = device_count(DEVICE_CUDA, &why);

    if (count == 0 && (why.status == PLASMON_ENOLIB || why.status == PLASMON_ENOTSUP)) {
        pl_info("worker", "no GPU: %s", why.text); /* many machines are like that */
    } else if (count == 0) {
        pl_warn("worker", "no GPU can be used: %s", why.text);
    } else if (count < named) {
        pl_warn("worker",
                "CUDA_VISIBLE_DEVICES names %u devices, and the driver shows %u: it knows "
                "no more of \"%s\", or one twice; `nvidia-smi -L` has their numbers and "
                "names",
                named, count, getenv("CUDA_VISIBLE_DEVICES"));
    }
    count = slice ? (uint32_t)pl_min_u64(count, 1) : count;
    for (uint32_t i = first; i < first + count; i++) {
        struct device_info info;
        struct pl_err err;

        if (device_probe(DEVICE_CUDA, i, &info, &err) == PLASMON_OK) {
            printf("cuda %u %llu %s\nnuma %u %d %s\n", i,
                   (unsigned long long)info.bytes_total, info.name, i, info.numa_node,
                   info.pci);
        } else {
            pl_warn("worker", "GPU %u cannot be used: %s", i, err.text);
        }
    }
    if (count == 1 && getenv("CUDA_VISIBLE_DEVICES") == NULL) {
        struct device_info info;
        struct pl_err err;

        if (device_probe(DEVICE_CUDA, 0, &info, &err) == PLASMON_OK &&
            strstr(info.name, "MIG") != NULL) {
            pl_info("worker",
                    "GPU 0 is a MIG device, and CUDA shows no other: to use several, name "
                    "them in CUDA_VISIBLE_DEVICES=MIG-..,MIG-.. (`nvidia-smi -L`)");
        }
    }
    return 0;
}

/*
 * In a process of its own, for the driver shows one alone to each. Its lines come before those of
 * the next.
 */
static void probe_slice(uint32_t ordinal)
{
    struct pl_err err = {.status = PLASMON_OK};
    int status        = 1;
    pid_t child;

    (void)fflush(stdout);
    child = fork();
    if (child == 0) {
        if (device_slice_take(ordinal, &err) == PLASMON_OK) {
            status = probe_here(true, ordinal, 1);
        } else {
            pl_warn("worker", "GPU %u cannot be used: %s", ordinal, err.text);
        }
        (void)fflush(stdout);
        _exit(status);
    }
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0) {
        pl_warn("worker", "GPU %u cannot be looked at: %s", ordinal,
                child < 0 ? strerror(errno) : "whoever did ended early");
    }
}

/* For the store, which has no driver of its own. */
static int probe(void)
{
    uint32_t slices = device_slices();

    for (uint32_t i = 0; i < slices; i++) {
        probe_slice(i);
    }
    return slices > 0 ? 0 : probe_here(false, 0, device_visible_count());
}

/*
 * What the store gave us is not for compilers that we start: one that outlives us would hold the
 * mark that we live, and our sockets.
 */
static void descriptors_keep(void)
{
    for (int i = 0; i < STORE_SPAWN_FDS_MAX; i++) {
        (void)fcntl(STORE_SPAWN_FD_FIRST + i, F_SETFD, FD_CLOEXEC); /* EBADF: fewer */
    }
}

static void on_terminate(int signal_number)
{
    (void)signal_number;
    _exit(0);
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
    if (argc > 1 && strcmp(argv[1], CODE_COMPILE_WORD) == 0) {
        return kernel_code_compile_main(argc, argv);
    }
    if (worker_options_parse(argc, argv, &options, &err) != PLASMON_OK) {
        fprintf(stderr, "plasmon-worker: %s\n", err.text);
        return 2;
    }
    if (options.help) {
        worker_options_print_help(stdout);
        return 0;
    }
    if (options.version) {
        printf("plasmon-worker %s (protocol %u)\n", PLASMON_VERSION_STRING, WIRE_PROTOCOL);
        return 0;
    }

    descriptors_keep();
    if (options.probe) {
        return probe();
    }
    if (options.kind == DEVICE_CUDA &&
        device_slice_take(options.ordinal, &err) != PLASMON_OK) {
        fprintf(stderr, "plasmon-worker: %s\n", err.text);
        return 2;
    }
    /* Cannot fail for these. */
    (void)signal(SIGTERM,
                 getenv("PLASMON_LEAKS") != NULL ? worker_daemon_ask_leaks : on_terminate);
    worker_where_start();
    (void)signal(SIGUSR1, worker_daemon_ask_describe);
    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGXFSZ, SIG_IGN); /* memory over RLIMIT_FSIZE: an error that is told */
    return serve(&options);
}
