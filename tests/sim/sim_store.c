/*
 * What the store of a host does about its workers: it starts them, sees them stop, end and fall
 * silent, kills, reaps, and starts the next incarnation. The decisions are the real ones
 * (store/worker_proc.h); simulated are processes and the time that everything takes.
 *
 * A process that is STOPPED does nothing, but what it put on its device goes on. It may go on by
 * itself before anybody minds, or between the moment that it was given up and its end. Between the
 * SIGKILL and the reaping the device still works for it.
 *
 * NOBODY WRITES WHO IS FENCED. At every write of a device (sim_store_writes) the worker that
 * enqueued it must be the one that the store has running there, or has killed and not yet reaped:
 * once another incarnation has the memory, no write of its predecessor may come.
 *
 * NOBODY IS FENCED FOR NOTHING. A worker is fenced for its lease only when the store has seen its
 * beat stand still for so long; time in which the store itself stood still does not count.
 */
#include "tests/sim/sim.h"

#include "base/alloc.h"

enum {
    SEEN_MAX_NS     = 1000000, /* until the store sees that a worker stopped, or ended */
    KILL_MAX_NS     = 100000,
    KILL_SLOW_NS    = 3000000,
    SPAWN_MAX_NS    = 400000,
    CONTINUE_MAX_NS = 800000000,
    GROWTH_MAX_NS   = 60000,
    GROWTH_DEATH_MAX_NS = 300000,
};
#define AWAY_MAX_NS  UINT64_C(4000000000)
#define LEASE_NS     UINT64_C(400000000)
#define LEASE_MAX_NS (2 * LEASE_NS) /* seen to stand still for so long, nobody runs */

static void act(struct sim_worker *worker, enum store_proc_event event);

/* ------------------------------------------------------------------------------- writes */

void sim_store_writes(struct sim_worker *worker, const struct sim_op *op)
{
    if (op->incarnation != worker->incarnation) {
        sim_fail(
            worker->sim,
            "device %u: incarnation %u writes to memory that incarnation %u has by now",
            worker->host_device, op->incarnation, worker->incarnation);
    }
    if (worker->process.doomed) {
        sim_cover(worker->sim, SIM_CELL_KILL_WORK);
    } else if (worker->process.stopped) {
        sim_cover(worker->sim, SIM_CELL_STOP_WORK);
    }
}

/* -------------------------------------------------------------------------- the process */

/* What this store knows or does about this incarnation means nothing to another store. */
static uint64_t key(const struct sim_worker *worker)
{
    return sim_node_of(worker)->life << 32 | worker->process.proc.incarnation;
}

static bool of_this_store(const struct sim_worker *worker, uint64_t arg)
{
    return sim_node_of(worker)->alive && !worker->gone && key(worker) == arg;
}

static void exited(void *user, uint64_t arg, void *data)
{
    struct sim_worker *worker = user;

    (void)data;
    if (of_this_store(worker, arg)) {
        act(worker, STORE_PROC_EXITED);
    }
}

void sim_store_exited(struct sim_worker *worker)
{
    worker->process.doomed = false;
    sim_after(worker->sim, sim_below(worker->sim, SEEN_MAX_NS), exited, worker, key(worker),
              NULL);
}

static void killed(void *user, uint64_t arg, void *data)
{
    struct sim_worker *worker = user;
    struct sim *sim           = worker->sim;
    uint64_t *at;

    (void)data;
    if (!worker->alive || worker->incarnation != arg) {
        return; /* it died by itself, and that is known or will be */
    }
    at = pl_vec_push(&sim->crash_times);
    PL_CHECK(at != NULL);
    *at = sim->now_ns;
    sim->fence_count++;
    sim_worker_end(worker);
    sim_store_exited(worker);
}

static void spawned(void *user, uint64_t arg, void *data)
{
    struct sim_worker *worker = user;

    (void)data;
    if (!of_this_store(worker, arg)) {
        return;
    }
    if (worker->alive) {
        sim_worker_supplant(worker);
    }
    worker->process.doomed        = false;
    worker->process.seen_still_ns = 0;
    sim_worker_spawn(worker);
    PL_CHECK(worker->incarnation == worker->process.proc.incarnation);
    act(worker, STORE_PROC_READY);
}

static void due(void *user, uint64_t arg, void *data)
{
    struct sim_worker *worker = user;

    (void)data;
    if (sim_node_of(worker)->alive && !worker->gone && worker->process.proc.due_ns == arg) {
        act(worker, STORE_PROC_TICK);
    }
}

static void perform(struct sim_worker *worker, unsigned actions, uint32_t incarnation)
{
    struct sim *sim          = worker->sim;
    struct sim_process *mine = &worker->process;
    uint64_t delay = sim_below(sim, sim_chance(sim, 300) ? KILL_SLOW_NS : KILL_MAX_NS);

    if ((actions & STORE_PROC_REPORT) != 0) {
        sim_node_down(sim_node_of(worker), worker->local, incarnation);
    }
    if ((actions & STORE_PROC_KILL) != 0) {
        mine->doomed = true;
        sim_after(sim, delay, killed, worker, incarnation, NULL);
    }
    if ((actions & STORE_PROC_SPAWN) != 0) {
        sim_after(sim, sim_between(sim, 1000, SPAWN_MAX_NS), spawned, worker, key(worker),
                  NULL);
    }
    if (mine->proc.state == STORE_PROC_QUARANTINED) {
        sim_fail(sim, "device %u is quarantined", worker->host_device);
    } else if (mine->proc.due_ns != UINT64_MAX) {
        sim_after(sim, mine->proc.due_ns - pl_min_u64(mine->proc.due_ns, sim->now_ns), due,
                  worker, mine->proc.due_ns, NULL);
    }
}

static void act(struct sim_worker *worker, enum store_proc_event event)
{
    /* before a restart counts it up */
    uint32_t incarnation = worker->process.proc.incarnation;
    unsigned actions = store_proc_step(&worker->process.proc, event, worker->sim->now_ns);

    perform(worker, actions, incarnation);
}

void sim_store_fence(struct sim_worker *worker, uint32_t incarnation)
{
    if (worker->process.proc.incarnation == incarnation) {
        act(worker, STORE_PROC_END);
    }
}

/* It hands back what it has, if it runs; nobody can ask it otherwise. */
void sim_store_adopt(struct sim_worker *worker)
{
    struct sim *sim          = worker->sim;
    struct sim_process *mine = &worker->process;
    bool came                = worker->alive && !mine->stopped && !mine->doomed;
    uint32_t incarnation     = worker->timeline->incarnation;
    unsigned actions;

    sim_cover(sim, came            ? SIM_CELL_STORE_ADOPTED
                   : worker->alive ? SIM_CELL_STORE_UNSEEN
                                   : SIM_CELL_STORE_FOUND_DEAD);
    store_proc_init(&mine->proc);
    mine->seen_still_ns = 0;
    mine->seen_ns       = sim->now_ns;
    actions             = store_proc_adopt(&mine->proc, incarnation, came, sim->now_ns);
    perform(worker, actions, incarnation);
    if (came) {
        sim_growth_handed_back(worker);
    }
    if (!worker->alive) {
        sim_store_exited(worker); /* there is nobody to kill, which is seen at once */
    }
}

void sim_store_init(struct sim_worker *worker)
{
    store_proc_init(&worker->process.proc);
    if (worker->sim->config.stores) {
        unsigned actions =
            store_proc_step(&worker->process.proc, STORE_PROC_START, worker->sim->now_ns);

        PL_CHECK(actions == STORE_PROC_SPAWN); /* which sim_worker_start() does */
        (void)store_proc_step(&worker->process.proc, STORE_PROC_READY, worker->sim->now_ns);
        /* counted on here where another store comes */
        worker->process.proc.incarnation = worker->incarnation + 1;
    }
}

/* -------------------------------------------------------------------------------- beats */

static void fence_silent(struct sim_worker *worker)
{
    struct sim *sim = worker->sim;

    if (worker->process.seen_still_ns + LEASE_NS / 4 < LEASE_NS) {
        sim_fail(sim,
                 "device %u is fenced for its lease, and the store has seen it stand still "
                 "for %llu ms only",
                 worker->host_device,
                 (unsigned long long)worker->process.seen_still_ns / 1000000);
    }
    sim_cover(sim, SIM_CELL_STOP_LEASE);
    act(worker, STORE_PROC_FENCE);
}

/* One look at a worker: a main loop that runs has gone round since the last one. */
static void look(struct sim_worker *worker)
{
    struct sim *sim          = worker->sim;
    struct sim_process *mine = &worker->process;
    bool over;
    /* A start is one event here, which nobody stops in the middle. */
    const struct store_proc_leases leases = {.start_ns = UINT64_MAX, .run_ns = LEASE_NS};

    if (worker->alive && !mine->stopped) {
        worker->timeline->beat++;
    }
    mine->seen_still_ns =
        mine->stopped
            ? mine->seen_still_ns + pl_min_u64(sim->now_ns - mine->seen_ns, LEASE_NS / 8)
            : 0;
    mine->seen_ns = sim->now_ns;
    over = store_proc_beat(&mine->proc, worker->timeline->beat, sim->now_ns, &leases);
    if (over && worker->alive) {
        fence_silent(worker);
    } else if (worker->alive && mine->proc.state == STORE_PROC_RUNNING &&
               mine->seen_still_ns > LEASE_MAX_NS) {
        sim_fail(sim, "device %u stands still, and nobody fences it", worker->host_device);
    }
}

static void looked(void *user, uint64_t arg, void *data);

void sim_store_look_again(struct sim_node *node)
{
    if (!node->beats_watched) {
        node->beats_watched = true;
        sim_after(node->sim, LEASE_NS / 8, looked, node, 0, NULL);
    }
}

/* As long as somebody stands still; what runs needs no looking at. */
static void looked(void *user, uint64_t arg, void *data)
{
    struct sim_node *node = user;
    bool some             = false;

    (void)arg;
    (void)data;
    node->beats_watched = false;
    if (node->paused || !node->alive) {
        return; /* it goes on when the store does, or another one */
    }
    for (uint32_t i = node->first; i < node->first + node->count; i++) {
        look(&node->sim->workers[i]);
        some |= node->sim->workers[i].process.stopped;
    }
    if (some) {
        sim_store_look_again(node);
    }
}

/* ----------------------------------------------------------------------- standing still */

static void goes_on(void *user, uint64_t arg, void *data)
{
    struct sim_worker *worker = user;

    (void)data;
    if (!worker->process.stopped || worker->incarnation != arg) {
        return;
    }
    sim_cover(worker->sim,
              worker->process.doomed ? SIM_CELL_KILL_CONT : SIM_CELL_STOP_CONT);
    sim_worker_continue(worker);
}

static void seen(void *user, uint64_t arg, void *data)
{
    struct sim_worker *worker = user;

    (void)data;
    if (worker->process.stopped && of_this_store(worker, arg) &&
        worker->process.proc.state == STORE_PROC_RUNNING) {
        sim_cover(worker->sim, SIM_CELL_STOP_SIGNAL);
        act(worker, STORE_PROC_FENCE);
    }
}

/*
 * Somebody stops it, and perhaps the store is told; it may be continued before anything comes of
 * that, or in the middle.
 */
static void stop_one(struct sim_worker *worker)
{
    struct sim *sim = worker->sim;
    bool told       = sim_chance(sim, 500);

    sim_worker_stop(worker);
    worker->timeline->beat++; /* it ran until now, which the store sees at its next look */
    worker->process.seen_still_ns = 0;
    worker->process.seen_ns       = sim->now_ns;
    if (told) {
        sim_after(sim, sim_below(sim, SEEN_MAX_NS), seen, worker, key(worker), NULL);
    }
    if (sim_chance(sim, 700)) {
        sim_after(sim, sim_below(sim, told ? 2 * SEEN_MAX_NS : CONTINUE_MAX_NS), goes_on,
                  worker, worker->incarnation, NULL);
    }
    sim_store_look_again(sim_node_of(worker));
}

/* The store is the first that runs again, and looks. */
static void pause_over(void *user, uint64_t arg, void *data)
{
    struct sim_node *node = user;
    struct sim *sim       = node->sim;

    (void)arg;
    (void)data;
    node->paused = false;
    looked(node, 0, NULL);
    for (uint32_t i = node->first; i < node->first + node->count; i++) {
        if (sim->workers[i].process.stopped) {
            sim_after(sim, 1, goes_on, &sim->workers[i], sim->workers[i].incarnation, NULL);
        }
    }
}

/* The machine is suspended, say. Its devices finish what they have. */
static void stop_all(struct sim_node *node)
{
    struct sim *sim = node->sim;

    for (uint32_t i = node->first; i < node->first + node->count; i++) {
        struct sim_worker *worker = &sim->workers[i];

        if (worker->alive && !worker->process.stopped) {
            sim_worker_stop(worker);
            worker->timeline->beat++;
            look(worker);
        }
    }
    node->paused = true;
    sim_cover(sim, SIM_CELL_PAUSE);
    sim_after(sim, sim_between(sim, LEASE_NS, 4 * LEASE_NS), pause_over, node, 0, NULL);
}

/* Each death may cost five seconds, and after ten the head gives up the host, as it should. */
static bool away_for_long(const struct sim_node *node)
{
    return node->away_ns != 0 && node->sim->now_ns - node->away_ns > AWAY_MAX_NS;
}

static void maybe_die(struct sim *sim)
{
    struct sim_node *node =
        &sim->nodes[sim_hosts(sim) > 1 ? sim_below(sim, sim_hosts(sim)) : 0];

    if (sim->store_death_count < sim->config.store_deaths_max && node->alive &&
        sim_node_settled(node) && !node->paused && !away_for_long(node) &&
        sim_below(sim, 1000000) < sim->config.stop_millionth) {
        sim->store_death_count++;
        sim_node_die(node);
    }
}

static void worker_dies_alone(void *user, uint64_t incarnation, void *data)
{
    struct sim_worker *worker = user;
    struct sim *sim           = worker->sim;

    (void)data;
    if (!sim_node_of(worker)->alive && worker->alive &&
        worker->incarnation == incarnation && sim->crash_count < sim->config.crashes_max) {
        sim_crash_one(sim, worker);
    }
}

/* Around the moment at which it reads the chunk; and then its worker, perhaps. */
static void dies_of_growth(void *user, uint64_t incarnation, void *data)
{
    struct sim_worker *worker = user;
    struct sim *sim           = worker->sim;
    struct sim_node *node     = sim_node_of(worker);

    (void)data;
    if (sim->store_death_count >= sim->config.store_deaths_max || !node->alive ||
        !sim_node_settled(node) || node->paused) {
        return;
    }
    sim->store_death_count++;
    sim_node_die(node);
    if (sim_chance(sim, 600)) {
        sim_after(sim, sim_below(sim, GROWTH_DEATH_MAX_NS), worker_dies_alone, worker,
                  incarnation, NULL);
    }
}

void sim_store_growth(struct sim_worker *worker)
{
    struct sim *sim = worker->sim;

    if (sim->store_death_count < sim->config.store_deaths_max && sim_chance(sim, 250)) {
        sim_after(sim, sim_below(sim, GROWTH_MAX_NS), dies_of_growth, worker,
                  worker->incarnation, NULL);
    }
}

void sim_store_maybe_stop(struct sim *sim)
{
    struct sim_worker *worker;

    if (!sim->config.stores) {
        return;
    }
    maybe_die(sim);

    if (sim->stop_count >= sim->config.stops_max || sim->nodes[0].paused ||
        sim->nodes[1].paused || sim_below(sim, 1000000) >= sim->config.stop_millionth) {
        return;
    }
    worker = &sim->workers[sim_below(sim, sim->config.devices)];
    if (!worker->alive || worker->process.stopped || worker->process.doomed) {
        return;
    }
    sim->stop_count++;
    if (sim_chance(sim, 150) && sim_node_of(worker)->alive) {
        stop_all(sim_node_of(worker));
    } else {
        stop_one(worker);
    }
}
