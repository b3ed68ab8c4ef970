/*
 * ENDS. Nothing in this process needs to be saved: objects are in memory that the store keeps, what
 * is done is in timelines. So every end is _exit(): 0 the store is gone, and no other came
 * (handback.h), or the head said stop; 70 the device is lost; 71 the head does not know us any
 * more, or says what cannot be. The store starts another one after 70 and 71. Since _exit() skips
 * what a sanitizer looks for at the end, tests ask for it (PLASMON_LEAKS).
 */
#include "worker/daemon.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/fd.h"
#include "base/leak.h"
#include "base/log.h"
#include "worker/watch.h"
#include "worker/where.h"

#define PIN_POLL_MS 1
#define BEAT_MS     500 /* a fraction of the store's STORE_WORKER_LEASE_MS */

/* --------------------------------------------------------------------------------- ends */

void worker_daemon_end(struct worker_daemon *daemon, int code, plasmon_status_t status,
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

/* The device cannot come back from this. What ran in it is told to the store, whose word the head hears. */
static void health_check(struct worker_daemon *daemon)
{
    struct pl_err err = {.status = PLASMON_OK};
    struct pl_str text;

    if (worker_executor_health(&daemon->executor, &err) == PLASMON_OK) {
        return;
    }
    pl_str_init(&text);
    pl_str_append(&text, "%s; running were: ", err.text);
    worker_core_describe_running(daemon->core, &text);
    worker_daemon_end(daemon, WORKER_EXIT_DEVICE_LOST, err.status, pl_str_text(&text));
}

/* ------------------------------------------------------------------ devices of the host */

/* Others of this host, and of other hosts, may send to us from now on. */
static void ring_begin(struct worker_daemon *daemon)
{
    if (daemon->ring_begun || !worker_siblings_ring_begin(&daemon->siblings)) {
        return;
    }
    daemon->ring_begun = true;
    worker_bulk_begin(&daemon->executor.bulk, daemon->device_index);
    worker_executor_ops.ring_doorbells(&daemon->executor);
}

/*
 * Which device of the cluster is which of this host: each worker says so in its table once its head
 * told it.
 */
static void devices_refresh(struct worker_daemon *daemon)
{
    uint32_t known = 0;

    if (daemon->devices_known || daemon->siblings.epoch == 0) {
        return;
    }
    ring_begin(daemon);
    for (uint32_t i = 0; daemon->ring_begun && i < daemon->shared.host_device_count; i++) {
        uint64_t device = worker_siblings_number(&daemon->siblings, i);

        if (device != 0 && device <= WORKER_DEVICES_MAX) {
            daemon->host_device_of[device - 1] = i;
            known++;
        } else if (worker_siblings_released(&daemon->siblings, i)) {
            known++; /* it will not come any more */
        }
    }
    if (known == daemon->shared.host_device_count) {
        for (uint32_t i = 0; i < WORKER_DEVICES_MAX; i++) {
            if (daemon->host_device_of[i] == WORKER_DEVICE_PENDING) {
                daemon->host_device_of[i] = UINT32_MAX;
            }
        }
        daemon->devices_known = true;
    }
}

static void device_announce(struct worker_daemon *daemon)
{
    worker_siblings_announce(&daemon->siblings, daemon->device_index);
    daemon->host_device_of[daemon->device_index] = daemon->shared.host_device;
    worker_executor_ops.ring_doorbells(&daemon->executor);
}

/* ----------------------------------------------------------------------------- the step */

/*
 * True when the front waits for other workers; they see it before we look again (executor.c,
 * op_ring_doorbells).
 */
static bool waits_publish(struct worker_daemon *daemon)
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

/* Launches that run too long. The main thread sleeps no longer than until the next look is due. */
static void limits_look(struct worker_daemon *daemon)
{
    uint64_t due_ns = worker_core_tick(daemon->core, pl_now_ns());

    daemon->limit_due_ns = due_ns;
    if (due_ns < daemon->sleeps_until_ns) {
        pl_fd_raise(daemon->executor.notify_fd);
    }
}

/* What has been registered: launches may name it, and the store is told. */
static void host_buffers_take_over(struct worker_daemon *daemon)
{
    if (worker_host_buffers_tell(&daemon->executor.host_buffers) != PLASMON_OK) {
        _exit(0); /* the store is gone */
    }
}

/* Let go of what the store wants dropped once nothing is on the device. */
static void host_buffers_look(struct worker_daemon *daemon)
{
    struct worker_host_buffers *buffers = &daemon->executor.host_buffers;

    if (worker_host_buffers_waiting(buffers) && worker_core_idle(daemon->core) &&
        !worker_lanes_busy(&daemon->executor.lanes) &&
        worker_host_buffers_idle(buffers) != PLASMON_OK) {
        _exit(0); /* the store is gone */
    }
}

/* What the start cost, in the log of a worker that follows a dead one. */
static void phases_look(struct worker_daemon *daemon)
{
    struct pl_str text;

    if (daemon->phases.over) {
        return;
    }
    if (worker_core_launches(daemon->core) == 0) {
        worker_phases_wait(&daemon->phases, worker_core_waits_for(daemon->core) != 0);
        return;
    }
    pl_str_init(&text);
    if (worker_phases_end(&daemon->phases, daemon->executor.functions.awaited_ns, &text) &&
        daemon->options.incarnation > 1) {
        pl_info("worker", "device %u of this host goes on; milliseconds: %s",
                daemon->shared.host_device, pl_str_text(&text));
    }
    pl_str_finish(&text);
}

static void step_locked(struct worker_daemon *daemon)
{
    host_buffers_take_over(daemon);
    do {
        devices_refresh(daemon);
        worker_core_advance(daemon->core);
        worker_core_complete(daemon->core);
    } while (waits_publish(daemon));
    phases_look(daemon);
    limits_look(daemon);
    if (daemon->executor.functions.unload_count > 0 && worker_core_idle(daemon->core)) {
        worker_functions_idle(&daemon->executor.functions);
    }
    host_buffers_look(daemon);
}

struct meter {
    uint64_t cpu_ns;
    uint64_t driver_ns;
};

static struct meter meter_start(void)
{
    return (struct meter){.cpu_ns = pl_thread_cpu_ns(), .driver_ns = device_driver_ns()};
}

static void meter_stop(struct worker_daemon *daemon, struct meter started)
{
    uint64_t cpu_ns    = pl_thread_cpu_ns() - started.cpu_ns;
    uint64_t driver_ns = device_driver_ns() - started.driver_ns;

    daemon->driver_ns += driver_ns;
    daemon->cpu_ns += cpu_ns > driver_ns ? cpu_ns - driver_ns : 0;
}

/* ----------------------------------------------------------------------------- the head */

/*
 * Another head than the one that our memory knows, or one that has given this device up and now
 * calls it another: it knows nothing of what lies here.
 */
static void forget_all(struct worker_daemon *daemon)
{
    pl_info("worker",
            "the head does not know this device: what lay in device %u of this host is "
            "given up",
            daemon->shared.host_device);
    worker_core_forget(daemon->core);
    worker_functions_forget(&daemon->executor.functions);
    worker_siblings_forget(&daemon->siblings);
}

static plasmon_status_t on_welcome(void *user, const Plasmon__V1__WorkerWelcome *welcome,
                                   struct pl_err *err)
{
    struct worker_daemon *daemon   = user;
    const struct store_table *said = daemon->shared.tables[daemon->shared.host_device];

    if (welcome->device >= WORKER_DEVICES_MAX || welcome->epoch == 0) {
        return pl_err_set(err, PLASMON_EMALFORMED,
                          "the head calls us device %u, epoch %llu", welcome->device,
                          (unsigned long long)welcome->epoch);
    }
    if (said->epoch != 0 &&
        (said->epoch != welcome->epoch || said->device != welcome->device + 1ull)) {
        forget_all(daemon);
    }
    worker_phases_note(&daemon->phases, STORE_PHASE_WELCOME);
    daemon->siblings.epoch        = welcome->epoch;
    daemon->siblings.node_session = welcome->node_session;
    daemon->device_index          = welcome->device;
    worker_bulk_identify(&daemon->executor.bulk, welcome->epoch, welcome->device);
    device_announce(daemon);
    devices_refresh(daemon);
    pl_info("worker", "device %u of this host is device %u of the cluster",
            daemon->shared.host_device, welcome->device);
    return PLASMON_OK;
}

/*
 * The main thread rests with nothing in flight; now something is, and on this device it has to look
 * by itself. Launches with work have rung its bell before they went in (op_stir() in executor.c);
 * this is for what has none, and waits.
 */
static void watch_on_locked(struct worker_daemon *daemon)
{
    if (daemon->executor.unwatched && !worker_core_idle(daemon->core)) {
        daemon->executor.unwatched = false;
        pl_fd_raise(daemon->executor.notify_fd);
    }
}

static plasmon_status_t functions_define(struct worker_daemon *daemon,
                                         const Plasmon__V1__WorkerCommand *command,
                                         struct pl_err *err)
{
    plasmon_status_t status = PLASMON_OK;

    for (size_t i = 0; status == PLASMON_OK && i < command->n_functions; i++) {
        status = worker_functions_define(&daemon->executor.functions, command->functions[i],
                                         err);
    }
    return status;
}

static plasmon_status_t on_command(void *user, const Plasmon__V1__WorkerCommand *command,
                                   struct pl_err *err)
{
    struct worker_daemon *daemon = user;
    struct meter meter           = meter_start();
    plasmon_status_t status;

    if (command->stop) {
        pl_info("worker", "the head said stop");
        _exit(0);
    }
    status = functions_define(daemon, command, err);
    if (status == PLASMON_OK) {
        status = worker_core_command(daemon->core, command, err);
    }
    if (status == PLASMON_OK) {
        for (size_t i = 0; i < command->n_function_free; i++) {
            worker_functions_free(&daemon->executor.functions, command->function_free[i]);
        }
        step_locked(daemon);
        watch_on_locked(daemon);
        daemon->many = worker_core_many(daemon->core);
    }
    meter_stop(daemon, meter);
    return status;
}

/*
 * The main thread may have gone to sleep before the work came that it has to look after: a pin
 * goes, and a device is lost, without a word.
 */
static void on_tick(void *user)
{
    struct worker_daemon *daemon = user;

    if (!worker_core_idle(daemon->core) || worker_lanes_busy(&daemon->executor.lanes)) {
        health_check(daemon);
        worker_core_look_for_gone(daemon->core);
    } else {
        worker_bulk_rest(&daemon->executor.bulk);
    }
    worker_sources_tick(&daemon->executor.sources); /* others wait for what it shows */
    if (!daemon->devices_known) {
        /* others may wait for us to see what we do not wait for */
        devices_refresh(daemon);
        if (daemon->devices_known) {
            pl_fd_raise(daemon->executor.notify_fd);
        }
    }
    if (worker_core_wants_poll(daemon->core)) {
        /* from now on it looks every millisecond */
        pl_fd_raise(daemon->executor.notify_fd);
    }
}

static void on_want_fd(void *user)
{
    struct worker_daemon *daemon = user;
    struct store_control message = {.type = STORE_CONTROL_NEW_HEAD_FD};

    if (worker_shared_send(&daemon->shared, &message, -1) != PLASMON_OK) {
        _exit(0); /* the store is gone */
    }
}

static void on_lost(void *user, plasmon_status_t status, const char *why)
{
    worker_daemon_end(user, WORKER_EXIT_HEAD_LOST, status, why);
}

static void on_stats(void *user, Plasmon__V1__WorkerStats *out)
{
    struct worker_daemon *daemon = user;

    worker_core_stats(daemon->core, out);
    out->cpu_ns         = daemon->cpu_ns;
    out->driver_ns      = daemon->driver_ns;
    out->driver_counted = daemon->driver_time;
}

static size_t on_routes(void *user, Plasmon__V1__RouteStats *out, size_t max)
{
    const struct worker_daemon *daemon = user;
    size_t count                       = pl_min_u64(max, TRANSFER_ROUTES);

    for (size_t i = 0; i < count; i++) {
        out[i].route  = (uint32_t)i;
        out[i].copies = daemon->executor.counters.copies[i];
        out[i].bytes  = daemon->executor.counters.bytes[i];
    }
    if (count > TRANSFER_BULK) { /* its threads count for themselves */
        out[TRANSFER_BULK].copies = atomic_load(&daemon->executor.bulk.clients.transfers);
        out[TRANSFER_BULK].bytes  = atomic_load(&daemon->executor.bulk.clients.bytes);
    }
    return count;
}

static Plasmon__V1__PairStats *pair_add(struct wire_arena *arena,
                                        Plasmon__V1__WorkerStats *out, uint32_t from,
                                        uint32_t route)
{
    Plasmon__V1__PairStats *stats = wire_arena_alloc(arena, sizeof(*stats));

    if (stats != NULL) {
        plasmon__v1__pair_stats__init(stats);
        stats->from                = from;
        stats->route               = route;
        out->pairs[out->n_pairs++] = stats;
    }
    return stats;
}

static bool pairs_came(struct worker_daemon *daemon, struct wire_arena *arena,
                       Plasmon__V1__WorkerStats *out)
{
    struct worker_pair pair;

    for (size_t i = 0; worker_core_pair_next(daemon->core, &i, &pair);) {
        Plasmon__V1__PairStats *stats = pair_add(arena, out, pair.peer, pair.route);

        if (stats == NULL) {
            return false;
        }
        stats->transfers       = pair.transfers;
        stats->bytes           = pair.bytes;
        stats->busy_ns         = pair.busy_ns;
        stats->in_flight       = pair.in_flight;
        stats->in_flight_bytes = pair.bytes_in_flight;
        stats->stalls          = pair.stalls;
        if (pair.route == TRANSFER_PEER) {
            uint32_t from = daemon->host_device_of[pair.peer];

            stats->written_bytes =
                from < STORE_HOST_DEVICE_MAX ? daemon->executor.written[from] : 0;
        }
    }
    return true;
}

/* How the connections to other hosts do. */
static bool pairs_sent(struct worker_daemon *daemon, struct wire_arena *arena,
                       Plasmon__V1__WorkerStats *out)
{
    struct transfer_bulk_stats sent;
    uint32_t peer;

    for (size_t i = 0; worker_bulk_stats(&daemon->executor.bulk, &i, &peer, &sent);) {
        Plasmon__V1__PairStats *stats = pair_add(arena, out, 0, TRANSFER_HOST);

        if (stats == NULL) {
            return false;
        }
        stats->sent    = true;
        stats->to      = peer;
        stats->stalls  = sent.stalls;
        stats->retries = sent.retries;
        stats->relays  = sent.relays;
        stats->rate    = sent.rate;
        if (sent.unreached_why[0] != '\0') {
            stats->unreached_ms   = sent.unreached_ms;
            stats->unreached_last = sent.unreached_last;
            stats->unreached_why  = wire_arena_text(arena, sent.unreached_why);
            if (stats->unreached_why == NULL) {
                return false;
            }
        }
    }
    return true;
}

/* A GPU's worker and its pinned memory: are they where it is? */
static void numa_fill(struct worker_daemon *daemon, struct wire_arena *arena,
                      Plasmon__V1__WorkerStats *out)
{
    const struct device_info *info = device_get_info(daemon->device);
    uint32_t self                  = daemon->shared.host_device;

    if (info->kind != DEVICE_CUDA) {
        return;
    }
    if (!daemon->numa_final) {
        pl_numa_look(pl_numa_root(), info->numa_node, daemon->shared.slabs[self],
                     daemon->shared.slab_bytes, &daemon->numa);
        daemon->numa_final = daemon->executor.ring_ready[self] && daemon->numa.pages > 0;
    }
    out->numa = wire_arena_alloc(arena, sizeof(*out->numa));
    if (out->numa != NULL) { /* else the figures without it */
        plasmon__v1__numa_place__init(out->numa);
        out->numa->node       = (uint32_t)(daemon->numa.node + 1);
        out->numa->nodes      = daemon->numa.nodes;
        out->numa->processors = daemon->numa.processors;
        out->numa->near       = daemon->numa.near;
        out->numa->pages      = daemon->numa.pages;
        out->numa->pages_near = daemon->numa.pages_near;
    }
}

static Plasmon__V1__Engines engines_of(enum store_engines state)
{
    return state == STORE_ENGINES_OPENS     ? PLASMON__V1__ENGINES__ENGINES_OPENING
           : state == STORE_ENGINES_OPENED  ? PLASMON__V1__ENGINES__ENGINES_SOURCES
           : state == STORE_ENGINES_REFUSES ? PLASMON__V1__ENGINES__ENGINES_REFUSED
                                            : PLASMON__V1__ENGINES__ENGINES_OWN;
}

static void on_waits(void *user, struct wire_arena *arena, Plasmon__V1__WorkerStats *out)
{
    struct worker_daemon *daemon = user;

    worker_core_waits(daemon->core, arena, pl_now_ns(), out);
    numa_fill(daemon, arena, out);
    out->engines = engines_of(worker_sources_stand(&daemon->executor.sources));
}

static void on_pairs(void *user, struct wire_arena *arena, Plasmon__V1__WorkerStats *out)
{
    struct worker_daemon *daemon = user;
    struct worker_pair pair;
    struct transfer_bulk_stats sent;
    size_t count = 0;
    uint32_t peer;

    for (size_t i = 0; worker_core_pair_next(daemon->core, &i, &pair);) {
        count++;
    }
    for (size_t i = 0; worker_bulk_stats(&daemon->executor.bulk, &i, &peer, &sent);) {
        count++;
    }
    out->pairs = wire_arena_alloc(arena, (count + 1) * sizeof(*out->pairs));
    if (out->pairs == NULL || !pairs_came(daemon, arena, out) ||
        !pairs_sent(daemon, arena, out)) {
        out->n_pairs = 0; /* the rest is told */
    }
    worker_core_transfer_times(daemon->core, arena, out);
    worker_core_queue_times(daemon->core, arena, out);
}

static uint64_t on_received(void *user)
{
    const struct worker_daemon *daemon = user;

    return worker_core_received(daemon->core);
}

static void on_trace(void *user, bool on)
{
    struct worker_daemon *daemon = user;

    worker_core_complete(daemon->core); /* what is over by now belongs to the old state */
    worker_trace_switch(&daemon->executor.trace, on);
}

static bool on_spans_pending(void *user)
{
    const struct worker_daemon *daemon = user;

    return worker_trace_pending(&daemon->executor.trace);
}

static Plasmon__V1__SpanBatch *on_spans(void *user, struct wire_arena *arena)
{
    struct worker_daemon *daemon = user;

    return worker_trace_batch(&daemon->executor.trace, arena);
}

static bool on_many(void *user)
{
    const struct worker_daemon *daemon = user;

    return daemon->many;
}

const struct worker_uplink_ops worker_daemon_uplink_ops = {
    .welcome       = on_welcome,
    .command       = on_command,
    .many          = on_many,
    .tick          = on_tick,
    .want_fd       = on_want_fd,
    .lost          = on_lost,
    .stats         = on_stats,
    .routes        = on_routes,
    .pairs         = on_pairs,
    .waits         = on_waits,
    .received      = on_received,
    .trace         = on_trace,
    .spans_pending = on_spans_pending,
    .spans         = on_spans,
};

/* Reports of the core go into the next frame. */
static void report_done(void *user, uint64_t first, uint64_t count)
{
    worker_uplink_done(((struct worker_daemon *)user)->uplink, first, count);
}

static void report_failed(void *user, uint64_t seq, plasmon_status_t status,
                          const char *text)
{
    worker_uplink_failed(((struct worker_daemon *)user)->uplink, seq, status, text);
}

static void report_starved(void *user, uint64_t seq, uint64_t bytes, uint64_t largest_hole)
{
    worker_uplink_starved(((struct worker_daemon *)user)->uplink, seq, bytes, largest_hole);
}

static void report_condemned(void *user, const struct worker_condemned *condemned)
{
    worker_uplink_condemned(((struct worker_daemon *)user)->uplink, condemned);
}

static void report_data(void *user, uint64_t request, const uint8_t *bytes, uint64_t length)
{
    worker_uplink_data(((struct worker_daemon *)user)->uplink, request, bytes, length);
}

static void report_refused(void *user, uint64_t request, plasmon_status_t status,
                           const uint64_t *buffers, size_t count)
{
    worker_uplink_refused(((struct worker_daemon *)user)->uplink, request, status, buffers,
                          count);
}

static void report_function(void *user, uint32_t id, plasmon_status_t status,
                            const char *text)
{
    worker_uplink_function(((struct worker_daemon *)user)->uplink, id, status, text);
}

static void report_pair(void *user, const struct worker_pair_report *report)
{
    worker_uplink_pair(((struct worker_daemon *)user)->uplink, report);
}

/*
 * The main thread may be stuck as well: nothing is cleaned up, and nothing needs to be. If it is,
 * it says where.
 */
static void stuck(void *user, const char *text)
{
    worker_where_ask_all();
    worker_daemon_end(user, WORKER_EXIT_DEVICE_LOST, PLASMON_EDEVICE, text);
}

struct worker_reports worker_daemon_reports(struct worker_daemon *daemon)
{
    return (struct worker_reports){.user      = daemon,
                                   .done      = report_done,
                                   .failed    = report_failed,
                                   .starved   = report_starved,
                                   .condemned = report_condemned,
                                   .data      = report_data,
                                   .refused   = report_refused,
                                   .function  = report_function,
                                   .pair      = report_pair,
                                   .stuck     = stuck};
}

/* ---------------------------------------------------------------------- the main thread */

/* Everything that the store has sent. */
static void control_take(struct worker_daemon *daemon)
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
    if (status == PLASMON_OK) {
        status = worker_lanes_take(&daemon->executor.lanes, &err);
    }
    if (status == PLASMON_OK) {
        status = worker_host_buffers_take(&daemon->executor.host_buffers, &err);
    }
    if (status != PLASMON_OK) {
        worker_daemon_end(daemon, WORKER_EXIT_HEAD_LOST, status, err.text);
    }
    if (daemon->shared.head_fd >= 0) {
        worker_uplink_new_fd(daemon->uplink, daemon->shared.head_fd);
        daemon->shared.head_fd = -1;
    }
}

/*
 * How long the main thread may sleep: a pin may go at any moment, a launch may be over its limit,
 * and the store wants to see that we are alive. Everything else wakes us, or is seen by the tick.
 */
static int wait_ms_locked(struct worker_daemon *daemon)
{
    uint64_t now_ns = pl_now_ns();
    uint64_t ms     = worker_core_wants_poll(daemon->core) ? PIN_POLL_MS : BEAT_MS;

    if (daemon->shared.control_fd < 0 || worker_memory_unsent(daemon->memory)) {
        ms = pl_min_u64(ms, WORKER_HANDBACK_TRY_MS);
    }
    if (daemon->limit_due_ns <= now_ns) {
        ms = 0;
    } else if (daemon->limit_due_ns - now_ns < ms * 1000000) {
        ms = (daemon->limit_due_ns - now_ns + 999999) / 1000000;
    }
    daemon->sleeps_until_ns = now_ns + ms * 1000000;
    return (int)ms;
}

/* The store fences a worker whose beat stands still. */
static void beat(struct worker_daemon *daemon)
{
    struct store_timeline *timeline = daemon->shared.timelines[daemon->shared.host_device];

    (void)pl_fault_point("worker.loop"); /* for =hang */
    __atomic_store_n(&timeline->beat, timeline->beat + 1, __ATOMIC_RELEASE);
    worker_where_beat();
}

/*
 * SIGUSR1: somebody wants to know what we wait for. The loop comes by at least every BEAT_MS, or
 * whoever gets the signal says where it is.
 */
static volatile sig_atomic_t describe_asked;

void worker_daemon_ask_describe(int signal_number)
{
    (void)signal_number;
    describe_asked = 1;
    (void)worker_where_tell(); /* false: the loop comes by and answers */
}

static void describe_locked(struct worker_daemon *daemon)
{
    struct pl_str text;
    char *rest, *line;

    if (describe_asked == 0) {
        return;
    }
    describe_asked = 0;
    pl_str_init(&text);
    worker_core_describe(daemon->core, &text);
    rest = text.text;
    while (rest != NULL && (line = strsep(&rest, "\n")) != NULL) {
        pl_warn("worker", "device %u of this host: %s", daemon->shared.host_device, line);
    }
    pl_str_finish(&text);
}

static volatile sig_atomic_t leaks_asked;

void worker_daemon_ask_leaks(int signal_number)
{
    (void)signal_number;
    leaks_asked = 1;
}

static void leaks_tell(void)
{
    if (leaks_asked != 0) {
        _exit(pl_leaks() ? WORKER_EXIT_LEAKS : 0);
    }
}

static void wake_up_locked(struct worker_daemon *daemon, const struct worker_watch *watch)
{
    uint32_t ready = worker_watch_take(watch);
    bool lanes     = (ready & ~(1u << WORKER_WATCH_NOTIFY | 1u << WORKER_WATCH_BELL)) != 0;

    if ((ready & 1u << WORKER_WATCH_CONTROL) != 0 || daemon->shared.control_fd < 0 ||
        worker_memory_unsent(daemon->memory)) {
        control_take(daemon); /* also looks for another store, and sends to this one */
    }
    if (lanes) { /* a client rang, or its lane came after it had rung */
        worker_lanes_serve(&daemon->executor.lanes);
    }
}

static enum worker_watched watched_of(const struct worker_core *core)
{
    return worker_core_idle(core)   ? WORKER_WATCHED_NOTHING
           : worker_core_many(core) ? WORKER_WATCHED_MANY
                                    : WORKER_WATCHED_FEW;
}

void worker_daemon_run(struct worker_daemon *daemon)
{
    uint32_t own    = daemon->shared.host_device;
    const int fds[] = {daemon->shared.control_fd, daemon->shared.doorbells[own],
                       daemon->executor.notify_fd, daemon->executor.bell_fd};
    bool by_words   = device_get_info(daemon->device)->notify_stalls;
    struct worker_watch watch;

    worker_watch_init(&watch, daemon->shared.timelines[own], daemon->executor.stream_count,
                      by_words, fds);
    pl_mutex_lock(&daemon->lock);
    worker_lanes_serve(&daemon->executor.lanes); /* what the last worker left undone */
    for (;;) {
        struct meter meter = meter_start();
        enum worker_watched watched;
        int timeout_ms;

        daemon->sleeps_until_ns = 0;
        beat(daemon);
        describe_locked(daemon);
        leaks_tell();
        wake_up_locked(daemon, &watch);
        step_locked(daemon);
        worker_trace_tick(&daemon->executor.trace, pl_now_ns());
        worker_uplink_flush(daemon->uplink);
        /* another store's, perhaps */
        watch.fds[WORKER_WATCH_CONTROL].fd = daemon->shared.control_fd;
        watched                            = watched_of(daemon->core);
        daemon->executor.unwatched         = by_words && watched == WORKER_WATCHED_NOTHING;
        if (daemon->executor.unwatched) {
            worker_watch_rest(&watch);
        }
        timeout_ms = wait_ms_locked(daemon);
        meter_stop(daemon, meter);
        pl_mutex_unlock(&daemon->lock);
        worker_watch_wait(&watch, watched, timeout_ms);
        pl_mutex_lock(&daemon->lock);
    }
}
