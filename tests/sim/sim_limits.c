/*
 * Launches that must not go on: kernels that do not end, limits, cancels by force, and the fences
 * that end them. What is simulated is the worker's clock and the store that kills; what is checked,
 * against what really happened on the simulated device:
 *
 *   - a launch is condemned for its limit not before the limit is over, counted from the moment
 *     that it began, and not much later
 *   - the head orders a fence of no incarnation that has not asked for it, and until the asked-for
 *     death comes, though orders get lost
 *
 * A kernel that does not end ends after a minute, so that a mistake is a wrong answer and not a run
 * without end.
 */
#include "tests/sim/sim.h"

#include "base/alloc.h"

enum {
    LATE_NS         = 12000000, /* two looks, five ms apart, and a little */
    ORDER_MAX_NS    = 200000,
    ORDER_SLOW_NS   = 4000000,
    ORDERS_LOST_MAX = 2,
};
#define ORDER_AGAIN_NS (2100 * UINT64_C(1000000))  /* head/condemn.c: after two seconds */
#define FENCE_MAX_NS   (10 * UINT64_C(1000000000)) /* several orders, two seconds apart */

static void map_put(struct pl_map *map, uint64_t key, uint64_t value)
{
    PL_CHECK(pl_map_set(map, key, (void *)(uintptr_t)value) == PLASMON_OK);
}

static uint64_t map_at(const struct pl_map *map, uint64_t key)
{
    return (uint64_t)(uintptr_t)pl_map_get(map, key);
}

/* ----------------------------------------------------------- what happens on the device */

void sim_limits_note(struct sim_worker *worker, const Plasmon__V1__Launch *launch)
{
    if (launch->time_limit_ms != 0) {
        map_put(&worker->limits.limit_ms, launch->seq, launch->time_limit_ms);
    }
}

uint64_t sim_limits_duration(const struct sim_worker *worker, const struct sim_op *op)
{
    uint64_t task = op->kind == SIM_OP_RUN ? sim_losses_task(worker, op->tag) : 0;

    return task != 0 ? map_at(&worker->sim->lasting, task) * 1000 : 0;
}

/* --------------------------------------------------------------------------- the worker */

static void ticked(void *user, uint64_t arg, void *data)
{
    struct sim_worker *worker = user;

    (void)data;
    if (arg == worker->life && worker->alive &&
        worker->sim->now_ns >= worker->limits.tick_due_ns) {
        worker->limits.tick_due_ns = UINT64_MAX;
        sim_worker_wake(worker); /* its loop, which ends in a tick */
    }
}

void sim_limits_tick(struct sim_worker *worker)
{
    struct sim *sim = worker->sim;
    uint64_t due_ns;

    sim_memory_enter(worker);
    due_ns = worker_core_tick(worker->core, sim->now_ns);
    sim_memory_leave();
    due_ns = pl_max_u64(due_ns, sim->now_ns + 1);
    if (due_ns < worker->limits.tick_due_ns) {
        worker->limits.tick_due_ns = due_ns;
        sim_after(sim, due_ns - sim->now_ns, ticked, worker, worker->life, NULL);
    }
}

/* Told for the first time that a launch is over its limit. */
static void check_clock(struct sim_worker *worker, uint64_t seq)
{
    struct sim *sim   = worker->sim;
    uint64_t limit_ns = map_at(&worker->limits.limit_ms, seq) * 1000000;

    for (uint32_t i = 0; i < STORE_STREAM_MAX; i++) {
        uint64_t ran_ns = sim->now_ns - worker->streams[i].begun_ns;

        if (worker->timeline->begun[i].value != seq) {
            continue;
        }
        if (ran_ns < limit_ns || (worker->limits.condemned_count == 0 &&
                                  sim->stop_count == 0 && ran_ns > limit_ns + LATE_NS)) {
            sim_fail(sim,
                     "device %u: launch %llu is condemned after %llu us, and its limit is "
                     "%llu us",
                     worker->host_device, (unsigned long long)seq,
                     (unsigned long long)ran_ns / 1000,
                     (unsigned long long)limit_ns / 1000);
        }
        return;
    }
    sim_fail(sim, "device %u: launch %llu is over its limit and has not begun",
             worker->host_device, (unsigned long long)seq);
}

void sim_limits_condemned(struct sim_worker *worker,
                          const struct worker_condemned *condemned)
{
    struct sim_limits *limits = &worker->limits;

    if (!condemned->fence) {
        if (condemned->status == PLASMON_ETIMELIMIT) {
            check_clock(worker, condemned->seq);
        }
        limits->condemned_count++;
        limits->condemned = condemned->seq;
        limits->status    = condemned->status;
        return;
    }
    sim_trace(worker->sim, "device %u asks to be fenced", worker->host_device);
    limits->fence_asked_ns = worker->sim->now_ns;
    limits->condemned      = condemned->seq;
}

/* ---------------------------------------------------------------------------- the store */

/* What lies in the stream of the launch that is ended, behind it. */
static void note_behind(struct sim_worker *worker)
{
    struct sim_limits *limits = &worker->limits;

    for (uint32_t i = 0; i < STORE_STREAM_MAX; i++) {
        bool behind = false;
        struct pl_list *pos;

        pl_list_for_each(pos, &worker->streams[i].ops) {
            const struct sim_op *op = pl_container_of(pos, struct sim_op, link);

            if (behind && op->tag > limits->condemned) {
                map_put(&limits->behind, op->tag, 1);
            }
            behind |= op->kind == SIM_OP_RUN && op->tag == limits->condemned;
        }
    }
}

bool sim_limits_sheltered(const struct sim_worker *worker, uint64_t seq)
{
    return worker->limits.fenced && worker->limits.status == PLASMON_ETIMELIMIT &&
           !store_timeline_done(worker->timeline, worker->limits.condemned) &&
           map_at(&worker->limits.behind, seq) != 0;
}

static void order_arrives(void *user, uint64_t arg, void *data)
{
    struct sim_worker *worker = user;
    struct sim *sim           = worker->sim;
    uint64_t *at;

    (void)data;
    if (!worker->alive || worker->incarnation != arg) {
        return; /* that one is dead */
    }
    sim_trace(sim, "device %u is to be fenced", worker->host_device);
    if (worker->limits.fence_asked_ns == 0) {
        sim_fail(sim, "device %u is to be fenced and has not asked for it",
                 worker->host_device);
        return;
    }
    if (sim->config.stores && !sim_node_of(worker)->alive) {
        sim_look_at(sim, ORDER_AGAIN_NS);
        return; /* nobody is there to end it */
    }
    note_behind(worker);
    if (sim->config.stores) {
        worker->limits.fenced = true;
        sim_store_fence(worker, worker->incarnation);
        return;
    }
    at = pl_vec_push(&sim->crash_times);
    PL_CHECK(at != NULL);
    *at = sim->now_ns;
    sim->fence_count++;
    worker->limits.fenced = true;
    sim_worker_crash(worker, "fenced");
}

static void time_passes(void *user, uint64_t arg, void *data)
{
    (void)user;
    (void)arg;
    (void)data;
}

void sim_look_at(struct sim *sim, uint64_t delay_ns)
{
    sim_after(sim, delay_ns, time_passes, sim, 0, NULL);
}

void sim_limits_order(struct sim_worker *worker, uint32_t incarnation)
{
    struct sim *sim = worker->sim;

    if (worker->limits.orders_lost < ORDERS_LOST_MAX && sim_chance(sim, 150)) {
        worker->limits.orders_lost++; /* with a connection */
        sim_look_at(sim, ORDER_AGAIN_NS);
        return;
    }
    sim_after(sim, sim_below(sim, sim_chance(sim, 300) ? ORDER_SLOW_NS : ORDER_MAX_NS),
              order_arrives, worker, incarnation, NULL);
}

void sim_limits_head_crashed(struct sim *sim)
{
    for (uint32_t i = 0; i < sim->config.devices; i++) {
        if (sim->workers[i].alive && sim->workers[i].limits.fence_asked_ns != 0) {
            sim_look_at(sim, ORDER_AGAIN_NS);
        }
    }
}

static bool cut_off(const struct sim_worker *worker)
{
    return worker->cut.on || (worker->sim->config.stores && sim_node_of(worker)->cut.on);
}

void sim_limits_check(struct sim_worker *worker)
{
    /* A store that dies is away for up to five seconds. */
    uint64_t most_ns = FENCE_MAX_NS + worker->sim->store_death_count * FENCE_MAX_NS;
    uint64_t from_ns = worker->limits.fence_asked_ns;

    if (from_ns == 0 || !worker->alive || cut_off(worker)) {
        return;
    }
    /* Behind a cut nobody could hear it, and no step may have come to look here meanwhile. */
    from_ns = pl_max_u64(from_ns, worker->cut.healed_ns);
    if (worker->sim->config.stores) {
        from_ns = pl_max_u64(from_ns, sim_node_of(worker)->cut.healed_ns);
    }
    if (worker->sim->now_ns - from_ns > most_ns) {
        sim_fail(worker->sim, "device %u asked to be fenced %llu s ago",
                 worker->host_device, (unsigned long long)(most_ns / UINT64_C(1000000000)));
    }
}

/* --------------------------------------------------------------------------------- life */

void sim_limits_init(struct sim_worker *worker)
{
    worker->limits = (struct sim_limits){.tick_due_ns = UINT64_MAX};
    pl_map_init(&worker->limits.limit_ms);
    pl_map_init(&worker->limits.behind);
}

void sim_limits_finish(struct sim_worker *worker)
{
    pl_map_finish(&worker->limits.limit_ms);
    pl_map_finish(&worker->limits.behind);
}

void sim_limits_forget(struct sim_worker *worker)
{
    sim_limits_finish(worker);
    sim_limits_init(worker);
}
