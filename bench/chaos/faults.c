/*
 * Faults: which kinds there are, when one may be, and how it begins. A fault is begun here and
 * looked at every millisecond in mend.c.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fd.h"
#include "bench/chaos/chaos.h"

#define MS         UINT64_C(1000000)
#define WINDOW_NS  (60000 * MS)
#define DEATHS_MAX 8 /* in a minute; the store gives a device up at more than 10 */
#define SETTLED_NS \
    (4000 * MS) /* a worker that dies sooner may be replaced later (store/worker_proc.h) */
#define APART_NS       (3000 * MS) /* Redis stores on disk once a second */
#define FILL_MIN_BYTES (UINT64_C(8) << 20)
#define SLOW_CPU_MS    1000                  /* of kinds without a target */
#define SLOW_GPU_MS    3000                  /* a host is there again after 2.6 s */
#define SLOW_STALL_MS  5000                  /* it has a deadline of more than 1 s first */
#define SPILL_BYTES    (UINT64_C(128) << 20) /* what cluster.c gives: memory and files */

/* -------------------------------------------------------------------------------- kinds */

static const struct {
    const char *name;
    double target_ms[2]; /* CPU, GPU; 0: none */
    int cost;            /* enum chaos_cost; -1: nothing */
    bool on_device;      /* the device's worker ends */
    bool counts;         /* and the store counts that against it */
} kinds[CHAOS_KINDS] = {
    [CHAOS_WORKER_KILL]    = {"worker-kill", {200, 1500}, CHAOS_COST_BEGUN, true, true},
    [CHAOS_WORKER_STOP]    = {"worker-stop", {200, 1500}, CHAOS_COST_BEGUN, true, true},
    [CHAOS_ILLEGAL]        = {"illegal", {200, 1500}, CHAOS_COST_BEGUN, true, true},
    [CHAOS_ENDLESS]        = {"endless", {200, 1500}, CHAOS_COST_BEGUN, true, false},
    [CHAOS_STORE_KILL]     = {"store-kill", {0, 0}, CHAOS_COST_BEGUN, false, false},
    [CHAOS_HOST_KILL]      = {"host-kill", {0, 0}, CHAOS_COST_HOST, false, false},
    [CHAOS_HEAD_KILL]      = {"head-kill", {2000, 2000}, -1, false, false},
    [CHAOS_HEAD_STOP]      = {"head-stop", {2000, 2000}, -1, false, false},
    [CHAOS_JOURNAL_KILL]   = {"journal-kill", {0, 0}, -1, false, false},
    [CHAOS_CLIENT_KILL]    = {"client-kill", {0, 0}, -1, false, false},
    [CHAOS_CLIENT_STOP]    = {"client-stop", {0, 0}, -1, false, false},
    [CHAOS_FILL]           = {"fill", {0, 0}, CHAOS_COST_ROOM, false, false},
    [CHAOS_PARTITION]      = {"partition", {0, 0}, -1, false, false},
    [CHAOS_HOLD]           = {"hold", {0, 0}, -1, false, false},
    [CHAOS_TRANSFER_STALL] = {"transfer-stall", {0, 0}, -1, false, false},
    [CHAOS_TRANSFER_CUT]   = {"transfer-cut", {0, 0}, -1, false, false},
    [CHAOS_TRANSFER]       = {"transfer", {0, 0}, -1, false, false},
    [CHAOS_NOTHING]        = {"nothing", {0, 0}, -1, false, false},
};

const char *chaos_kind_name(enum chaos_kind kind)
{
    return kinds[kind].name;
}

int chaos_kind_cost(enum chaos_kind kind)
{
    return kinds[kind].cost;
}

double chaos_kind_target(enum chaos_kind kind, bool gpu)
{
    return kinds[kind].target_ms[gpu];
}

double chaos_kind_slow(enum chaos_kind kind, bool gpu)
{
    double target = chaos_kind_target(kind, gpu);

    return target > 0                     ? target
           : kind == CHAOS_TRANSFER_STALL ? SLOW_STALL_MS
           : gpu                          ? SLOW_GPU_MS
                                          : SLOW_CPU_MS;
}

/* --------------------------------------------------------------------------- may it be? */

static bool with(const struct chaos_fault *others, uint32_t count, enum chaos_kind kind)
{
    for (uint32_t i = 0; i < count; i++) {
        if (others[i].active && others[i].kind == kind) {
            return true;
        }
    }
    return false;
}

static bool any(const struct chaos_fault *others, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (others[i].active) {
            return true;
        }
    }
    return false;
}

static bool on_device(const struct chaos_fault *others, uint32_t count, uint32_t device)
{
    for (uint32_t i = 0; i < count; i++) {
        if (others[i].active && kinds[others[i].kind].on_device &&
            others[i].device == device) {
            return true;
        }
    }
    return false;
}

/*
 * Somebody must be left who has the host's memory: a host whose store and workers died is lost,
 * which is what host-kill is for. So while the store is down the worker of one device at least is
 * left alone.
 */
static bool worker_is_left(const struct chaos *chaos, const struct chaos_fault *others,
                           uint32_t count, uint32_t more)
{
    uint32_t hit = more;

    for (uint32_t i = 0; i < count; i++) {
        /* at most one on each */
        hit += others[i].active && kinds[others[i].kind].on_device;
    }
    return hit < chaos->cluster.devices;
}

/* Of the device's worker, in so long a time before now. */
static uint32_t recent_deaths(const struct chaos *chaos, uint32_t device,
                              uint64_t within_ns)
{
    uint64_t now_ns = pl_now_ns();
    uint32_t recent = 0;

    for (uint32_t i = 0; i < chaos->deaths[device] && i < PL_COUNT(chaos->death_ns[0]);
         i++) {
        recent += now_ns - chaos->death_ns[device][i] < within_ns;
    }
    return recent;
}

static void note_death(struct chaos *chaos, uint32_t device)
{
    uint32_t at = chaos->deaths[device]++ % PL_COUNT(chaos->death_ns[0]);

    chaos->death_ns[device][at] = pl_now_ns();
}

/* A device whose worker has settled and may die once more; one that misbehaves kills two. */
static bool draw_device(struct chaos *chaos, enum chaos_kind kind,
                        const struct chaos_fault *others, uint32_t count,
                        uint32_t *out_device)
{
    uint32_t deaths = kinds[kind].counts ? 1 + (kind == CHAOS_ILLEGAL) : 0;
    uint32_t first  = (uint32_t)chaos_draw(chaos, chaos->cluster.devices);

    for (uint32_t i = 0; i < chaos->cluster.devices; i++) {
        uint32_t device = (first + i) % chaos->cluster.devices;

        if (!on_device(others, count, device) &&
            chaos_worker(&chaos->cluster, device) > 0 &&
            recent_deaths(chaos, device, SETTLED_NS) == 0 &&
            recent_deaths(chaos, device, WINDOW_NS) + deaths <= DEATHS_MAX) {
            *out_device = device;
            return true;
        }
    }
    return false;
}

static bool draw_client(struct chaos *chaos, const struct chaos_fault *others,
                        uint32_t count, uint32_t *out_client)
{
    *out_client = (uint32_t)chaos_draw(chaos, chaos->cluster.config.clients);
    return chaos->cluster.player[*out_client] > 0 &&
           !with(others, count, CHAOS_CLIENT_KILL) &&
           !with(others, count, CHAOS_CLIENT_STOP);
}

bool chaos_fault_may(struct chaos *chaos, enum chaos_kind kind,
                     const struct chaos_fault *others, uint32_t count,
                     struct chaos_fault *out_fault)
{
    uint64_t now_ns = pl_now_ns();

    *out_fault = (struct chaos_fault){.kind = kind};
    if (with(others, count, kind) || with(others, count, CHAOS_HOST_KILL) ||
        with(others, count, CHAOS_NOTHING)) {
        return false;
    }
    switch (kind) {
    case CHAOS_HOST_KILL:
        return !any(others, count);
    case CHAOS_HEAD_KILL:
    case CHAOS_HEAD_STOP:
        return !with(others, count, CHAOS_HEAD_KILL) &&
               !with(others, count, CHAOS_HEAD_STOP) &&
               !with(others, count, CHAOS_JOURNAL_KILL) &&
               now_ns - chaos->journal_ns > APART_NS;
    case CHAOS_JOURNAL_KILL:
        return !with(others, count, CHAOS_HEAD_KILL) &&
               !with(others, count, CHAOS_HEAD_STOP) && now_ns - chaos->head_ns > APART_NS;
    case CHAOS_PARTITION:
    case CHAOS_HOLD:
        return !with(others, count, CHAOS_PARTITION) && !with(others, count, CHAOS_HOLD);
    case CHAOS_TRANSFER_STALL:
    case CHAOS_TRANSFER_CUT:
    case CHAOS_TRANSFER:
        return !with(others, count, CHAOS_TRANSFER_STALL) &&
               !with(others, count, CHAOS_TRANSFER_CUT) &&
               !with(others, count, CHAOS_TRANSFER) && chaos_hosts_find(&chaos->hosts);
    case CHAOS_CLIENT_KILL:
    case CHAOS_CLIENT_STOP:
        return draw_client(chaos, others, count, &out_fault->device);
    case CHAOS_FILL:
        out_fault->device = (uint32_t)chaos_draw(chaos, chaos->cluster.devices);
        return true;
    case CHAOS_STORE_KILL:
        return worker_is_left(chaos, others, count, 0);
    case CHAOS_NOTHING:
        return !any(others, count);
    default:
        return (!with(others, count, CHAOS_STORE_KILL) ||
                worker_is_left(chaos, others, count, 1)) &&
               draw_device(chaos, kind, others, count, &out_fault->device);
    }
}

/* -------------------------------------------------------------------------------- begin */

/* The device's worker ends by this signal: for SIGSTOP, its store sees to that. */
static void hit_worker(struct chaos *chaos, struct chaos_fault *fault, int signal)
{
    pid_t worker = chaos_worker(&chaos->cluster, fault->device);

    fault->incarnation = chaos_incarnation(&chaos->cluster, fault->device);
    fault->from_ns     = pl_now_ns();
    note_death(chaos, fault->device);
    if (worker > 0) {
        (void)kill(worker, signal); /* it may just have ended by itself: another fault */
    }
    chaos_probe(chaos, fault, chaos_number(chaos, fault->device));
}

static void kill_store(struct chaos_cluster *cluster)
{
    atomic_fetch_add(&cluster->board->store_kills, 1);
    chaos_kill(&cluster->store);
}

static void kill_host(struct chaos *chaos, struct chaos_fault *fault)
{
    pid_t workers[STRESS_DEVICES_MAX];

    for (uint32_t i = 0; i < chaos->cluster.devices; i++) {
        workers[i] = chaos_worker(&chaos->cluster, i);
    }
    kill_store(&chaos->cluster); /* first, or it would replace them */
    chaos_mark(fault, "the store is dead");
    for (uint32_t i = 0; i < chaos->cluster.devices; i++) {
        if (workers[i] > 0) {
            int fd = pl_pidfd_open(workers[i]);

            if (fd >= 0 && pl_pidfd_kill_wait(fd, 10000) != PLASMON_OK) {
                bench_die("worker %d does not end by SIGKILL", (int)workers[i]);
            }
            pl_fd_close(&fd);
        }
    }
    chaos_mark(fault, "its workers are");
}

static void fill_device(struct chaos *chaos, struct chaos_fault *fault)
{
    uint64_t total = chaos->cluster.device[fault->device].bytes_total;
    uint64_t bytes = pl_max_u64(FILL_MIN_BYTES, total / 16) / 4096 * 4096;

    fault->fill_count = (uint32_t)((total + SPILL_BYTES) / bytes) + 2;
    fault->fill       = PL_NEW_N(struct plasmon_ref *, fault->fill_count);
    if (fault->fill == NULL) {
        bench_die("out of host memory");
    }
    for (uint32_t i = 0; i < fault->fill_count; i++) {
        fault->fill[i] = chaos_fill(chaos, bytes, i, chaos_number(chaos, fault->device));
    }
}

/* Milliseconds from .. to, as a deadline. */
static uint64_t later(struct chaos *chaos, uint64_t from, uint64_t to)
{
    return pl_now_ns() + (from + chaos_draw(chaos, to - from)) * MS;
}

static void begin_process(struct chaos *chaos, struct chaos_fault *fault)
{
    struct chaos_cluster *cluster = &chaos->cluster;

    switch (fault->kind) {
    case CHAOS_STORE_KILL:
        kill_store(cluster);
        fault->due_ns = later(chaos, 0, 1000);
        break;
    case CHAOS_HOST_KILL:
        kill_host(chaos, fault);
        fault->due_ns = pl_now_ns();
        break;
    case CHAOS_HEAD_KILL:
        chaos_kill(&cluster->head);
        chaos_mark(fault, "the head is dead");
        chaos_follow_head(cluster); /* at once, as whoever supervises it would */
        chaos_mark(fault, "the next one is started");
        chaos_probe(chaos, fault, PLASMON_ANYWHERE);
        break;
    case CHAOS_HEAD_STOP:
        (void)kill(cluster->head, SIGSTOP);
        fault->due_ns = later(chaos, 100, 2000);
        break;
    case CHAOS_JOURNAL_KILL:
        chaos_kill(&cluster->redis);
        fault->due_ns = later(chaos, 0, 500);
        break;
    case CHAOS_CLIENT_KILL:
        chaos_kill(&cluster->player[fault->device]);
        chaos_start_player(cluster, fault->device);
        break;
    case CHAOS_CLIENT_STOP:
        (void)kill(cluster->player[fault->device], SIGSTOP);
        fault->due_ns = later(chaos, 100, 2000);
        break;
    default:
        break;
    }
}

void chaos_fault_begin(struct chaos *chaos, struct chaos_fault *fault)
{
    struct chaos_board *board = chaos->cluster.board;

    if (kinds[fault->kind].cost >= 0) {
        atomic_fetch_add(&board->begun[kinds[fault->kind].cost], 1);
    }
    if (fault->kind == CHAOS_HEAD_KILL || fault->kind == CHAOS_HEAD_STOP) {
        chaos->head_ns = pl_now_ns();
    }
    if (fault->kind == CHAOS_CLIENT_KILL || fault->kind == CHAOS_CLIENT_STOP) {
        fault->steps_before = atomic_load(&board->slot[fault->device].ready);
    }
    chaos_slow_begin(chaos, fault);
    fault->active   = true;
    fault->began_ns = fault->from_ns = pl_now_ns();
    switch (fault->kind) {
    case CHAOS_WORKER_KILL:
        hit_worker(chaos, fault, SIGKILL);
        break;
    case CHAOS_WORKER_STOP:
        hit_worker(chaos, fault, SIGSTOP);
        break;
    case CHAOS_ILLEGAL:
        note_death(chaos, fault->device);
        note_death(chaos, fault->device);
        fault->incarnation = chaos_incarnation(&chaos->cluster, fault->device);
        fault->worker      = chaos_worker(&chaos->cluster, fault->device);
        chaos_misbehave(chaos, fault, "chaos_illegal");
        break;
    case CHAOS_ENDLESS:
        fault->incarnation = chaos_incarnation(&chaos->cluster, fault->device);
        fault->worker      = chaos_worker(&chaos->cluster, fault->device);
        chaos_misbehave(chaos, fault, "chaos_endless");
        break;
    case CHAOS_FILL:
        fill_device(chaos, fault);
        break;
    case CHAOS_NOTHING:
        chaos_probe(chaos, fault, PLASMON_ANYWHERE);
        break;
    case CHAOS_TRANSFER_STALL:
    case CHAOS_TRANSFER_CUT:
    case CHAOS_TRANSFER:
        if (fault->kind != CHAOS_TRANSFER && !chaos_hosts_silence(&chaos->hosts)) {
            bench_die("no filter for a connection: %s", strerror(errno));
        }
        chaos_hosts_move(&chaos->hosts);
        break;
    case CHAOS_PARTITION:
    case CHAOS_HOLD:
        chaos_relay_set(chaos->cluster.relay,
                        fault->kind == CHAOS_HOLD ? CHAOS_RELAY_HOLD : CHAOS_RELAY_DROP);
        fault->due_ns = later(chaos, 100, 2000);
        break;
    default:
        begin_process(chaos, fault);
        break;
    }
}
