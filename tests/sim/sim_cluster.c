/*
 * The whole cluster: made, run, broken and checked.
 *
 * Faults come at steps: before each event a worker may crash or a connection break, with a chance
 * and up to a number that the configuration gives. When no event is left but something is still
 * awaited, only time passes: the head is ticked, up to the length of a lease and more. What then is
 * still awaited waits for ever, and that is a failure.
 */
#include "tests/sim/sim.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

enum {
    STEPS_MAX    = 600000,
    TICK_NS      = 20000000,
    IDLE_TICKS   = 1000, /* 20 s of virtual time: a lease is half of that */
    SEALED_EVERY = 64,   /* steps between looks at sealed bytes */
    CUT_DEATH_NS = 4000000,
};

#define WAYS_STUCK_NS UINT64_C(300000000000)

struct sim_worker *sim_worker_of(struct sim *sim, uint32_t device)
{
    for (uint32_t i = 0; i < sim->config.devices; i++) {
        if (sim->workers[i].device == device) {
            return &sim->workers[i];
        }
    }
    return NULL;
}

uint64_t sim_task_key(const struct sim_client *client, uint64_t task)
{
    return task << 4 | (client->index + 1);
}

void sim_cover(struct sim *sim, enum sim_cell cell)
{
    sim->met[cell]++;
}

/* -------------------------------------------------------------------------------- steps */

/* NULL: none is. */
static struct sim_node *node_to_hit(struct sim *sim)
{
    if (!sim->config.stores || !sim_nodes_settled(sim) || !sim_chance(sim, 250)) {
        return NULL;
    }
    return &sim->nodes[sim_hosts(sim) > 1 ? sim_below(sim, sim_hosts(sim)) : 0];
}

static void maybe_break(struct sim *sim)
{
    struct sim_node *node;
    uint32_t which;

    if (sim->break_count >= sim->config.breaks_max ||
        sim_below(sim, 1000000) >= sim->config.break_millionth) {
        return;
    }
    sim->break_count++;
    node = node_to_hit(sim);
    if (node != NULL) {
        sim_node_break(node);
        return;
    }
    which = (uint32_t)sim_below(sim, sim->config.devices + sim->config.clients);
    if (which < sim->config.devices) {
        sim_worker_break(&sim->workers[which]);
    } else {
        sim_client_break(&sim->clients[which - sim->config.devices]);
    }
}

void sim_crash_one(struct sim *sim, struct sim_worker *worker)
{
    uint64_t *at = pl_vec_push(&sim->crash_times);

    PL_CHECK(at != NULL);
    *at = sim->now_ns;
    sim->crash_count++;
    sim_worker_crash(worker, "crash");
}

static void crash_behind_cut(void *user, uint64_t arg, void *data)
{
    struct sim_worker *worker = user;

    (void)arg;
    (void)data;
    if (worker->cut.on && worker->sim->crash_count < worker->sim->config.crashes_max) {
        sim_crash_one(worker->sim, worker);
    }
}

/* It says hello once more, dies, and the next one says hello, all of it before anybody hears of any of it. */
static bool cut_and_crash(struct sim_worker *worker)
{
    struct sim *sim = worker->sim;

    if (!sim_cut_begin(&worker->cut, CUT_DEATH_NS)) {
        return false;
    }
    sim_worker_break(worker);
    sim_after(sim, sim_between(sim, 100000, 1000000), crash_behind_cut, worker, 0, NULL);
    return true;
}

static bool cut_worker(struct sim_worker *worker)
{
    return worker->sim->crash_count < worker->sim->config.crashes_max &&
                   sim_chance(worker->sim, 400)
               ? cut_and_crash(worker)
               : sim_cut_begin(&worker->cut, 0);
}

static void maybe_cut(struct sim *sim)
{
    struct sim_node *node;
    uint32_t which;

    if (sim->cut_count >= sim->config.cuts_max ||
        sim_below(sim, 1000000) >= sim->config.cut_millionth) {
        return;
    }
    node = node_to_hit(sim);
    if (node != NULL) {
        sim->cut_count += sim_cut_begin(&node->cut, 0);
        return;
    }
    which = (uint32_t)sim_below(sim, sim->config.devices + sim->config.clients);
    sim->cut_count +=
        which < sim->config.devices
            ? cut_worker(&sim->workers[which])
            : sim_cut_begin(&sim->clients[which - sim->config.devices].cut, 0);
}

static void maybe_crash(struct sim *sim)
{
    if (sim->crash_count >= sim->config.crashes_max ||
        sim_below(sim, 1000000) >= sim->config.crash_millionth) {
        return;
    }
    sim_crash_one(sim, &sim->workers[sim_below(sim, sim->config.devices)]);
}

static void maybe_crash_head(struct sim *sim)
{
    if (sim->head_process.crashes < sim->config.head_crashes_max &&
        !sim->head_process.stopped && sim_nodes_settled(sim) &&
        sim_below(sim, 1000000) < sim->config.head_crash_millionth) {
        sim_head_crash(sim);
    }
}

static void second_host_goes(struct sim *sim)
{
    if (sim->config.stores &&
        (sim->drain_begun || sim->config.host_fault != SIM_HOST_DEVICES)) {
        sim_host_lose(sim);
        return;
    }
    sim->gone_count = sim->config.gone_max;
    for (uint32_t i = (sim->config.devices + 1) / 2; i < sim->config.devices; i++) {
        sim_worker_gone(&sim->workers[i]);
    }
}

/* Its time may come at once, or never. */
static void drain(struct sim *sim)
{
    if (!sim->drain_begun && !sim_head_down(sim)) {
        sim->drain_begun = true;
        sim_head_drain(sim, sim_chance(sim, 900) ? 3600000 : sim_below(sim, 1000));
    }
}

static void drain_look(struct sim *sim)
{
    if (sim->drain_begun && sim->gone_count == 0 && !sim->host_lost &&
        sim_head_drain_over(sim, &sim->drained)) {
        second_host_goes(sim);
    }
}

/* Would no device, or host, that is lost now take along what is to be in two places? */
static bool may_lose(const struct sim *sim)
{
    return !sim->config.patient || (!sim_head_down(sim) && sim_head_knows_gone(sim) &&
                                    head_core_twice(sim->head, sim->config.second_host));
}

/* One device at least of the clients' host stays. */
static void maybe_lose(struct sim *sim)
{
    uint32_t first = sim->config.second_host ? (sim->config.devices + 1) / 2 : 1;
    struct sim_worker *worker;

    if (sim->gone_count >= sim->config.gone_max || sim->host_lost ||
        sim_below(sim, 1000000) >= sim->config.gone_millionth || !may_lose(sim)) {
        return;
    }
    if (sim->config.drains) {
        drain(sim);
        return;
    }
    worker = &sim->workers[1 + sim_below(sim, sim->config.devices - 1)];
    if (sim->config.second_host && worker->host_device >= first) {
        second_host_goes(sim);
        return;
    }
    sim->gone_count++;
    sim_worker_gone(worker);
}

static void tick(struct sim *sim)
{
    uint64_t now_ms = sim->now_ns / 1000000 + 1;

    if (now_ms != sim->tick_ns / 1000000 + 1) {
        sim->tick_ns = sim->now_ns;
        sim_head_tick(sim);
        drain_look(sim);
    }
}

static void fail_stuck(struct sim *sim, const char *how)
{
    struct pl_str text;

    pl_str_init(&text);
    sim_describe(sim, &text);
    sim_fail(sim, "%s, and something is still awaited:\n%s", how, pl_str_text(&text));
    pl_str_finish(&text);
}

bool sim_step(struct sim *sim)
{
    struct sim_event event;

    if (sim->failed || !sim_queue_pop(sim, &event)) {
        return false;
    }
    sim->now_ns = event.at_ns;
    event.fn(event.user, event.arg, event.data);
    pl_free(event.data);

    sim->steps++;
    tick(sim);
    maybe_break(sim);
    maybe_cut(sim);
    sim_ways_maybe_cut(sim);
    sim_store_maybe_stop(sim);
    maybe_crash(sim);
    maybe_crash_head(sim);
    sim_head_maybe_stop(sim);
    maybe_lose(sim);
    if (sim->config.check_every != 0 &&
        (sim->trace || sim->steps % sim->config.check_every == 0)) {
        head_core_check(sim->head);
    }
    if (sim->steps % SEALED_EVERY == 0) {
        for (uint32_t i = 0; i < sim->config.devices; i++) {
            if (!sim->workers[i].gone) {
                sim_sealed_check(&sim->workers[i]);
            }
            sim_limits_check(&sim->workers[i]);
        }
    }
    if (sim->steps > STEPS_MAX) {
        fail_stuck(sim, "there is no end");
    }
    if (sim->ways_ns != 0 && sim->now_ns > sim->ways_ns + WAYS_STUCK_NS) {
        fail_stuck(sim, "all ways are there again, and there is no end");
    }
    return !sim->failed;
}

static void pass_time(struct sim *sim)
{
    sim->now_ns += TICK_NS;
    tick(sim);
}

bool sim_run_until(struct sim *sim, bool (*done)(void *user), void *user)
{
    uint64_t burst = 0; /* events since time passed: a tick alone makes one, a flush */
    uint32_t idle  = 0;

    while (!sim->failed && !done(user)) {
        if (sim->events.count > 0) {
            (void)sim_step(sim);
            burst++;
            continue;
        }
        idle  = burst > 1 ? 0 : idle + 1;
        burst = 0;
        if (idle > IDLE_TICKS) {
            fail_stuck(sim, "nothing happens any more");
        }
        pass_time(sim);
    }
    return !sim->failed;
}

void sim_settle(struct sim *sim)
{
    while (!sim->failed && sim->events.count > 0) {
        (void)sim_step(sim);
    }
}

/* ------------------------------------------------------------------------------- checks */

void sim_check(struct sim *sim)
{
    head_core_check(sim->head);
    for (uint32_t i = 0; i < sim->config.devices; i++) {
        struct sim_worker *worker = &sim->workers[i];

        if (worker->gone) {
            continue;
        }
        if (worker->alive && worker_core_idle(worker->core)) {
            sim_sealed_check_idle(worker);
        } else {
            sim_sealed_check(worker);
        }
    }
}

void sim_check_empty(struct sim *sim)
{
    struct head_core_counts counts;

    head_core_check(sim->head);
    head_core_count(sim->head, &counts);
    if (counts.refs + counts.arrays + counts.fragments + counts.tiles + counts.instances +
            counts.buffers + counts.tasks !=
        0) {
        sim_fail(
            sim,
            "every ref is released, and the head still has %llu refs, %llu arrays, %llu "
            "fragments, %llu tiles, %llu instances, %llu buffers, %llu tasks",
            (unsigned long long)counts.refs, (unsigned long long)counts.arrays,
            (unsigned long long)counts.fragments, (unsigned long long)counts.tiles,
            (unsigned long long)counts.instances, (unsigned long long)counts.buffers,
            (unsigned long long)counts.tasks);
    }
    for (uint32_t i = 0; i < sim->config.devices; i++) {
        struct sim_worker *worker        = &sim->workers[i];
        Plasmon__V1__WorkerStats figures = PLASMON__V1__WORKER_STATS__INIT;

        if (worker->core == NULL) {
            continue;
        }
        worker_core_stats(worker->core, &figures);
        if (worker->blocks.count != 0 || figures.bytes_used != 0 ||
            figures.bytes_replica != 0) {
            sim_fail(
                sim,
                "every ref is released, and device %u still has %zu blocks, %llu bytes, "
                "%llu of replicas",
                i, worker->blocks.count, (unsigned long long)figures.bytes_used,
                (unsigned long long)figures.bytes_replica);
        }
        if (!worker_core_idle(worker->core)) {
            sim_fail(sim, "device %u is not idle at the end", i);
        }
    }
}

void sim_describe(struct sim *sim, struct pl_str *out)
{
    struct head_core_counts counts;

    head_core_count(sim->head, &counts);
    pl_str_append(out, "at %llu ns, step %llu, head: %llu tasks, %s\n",
                  (unsigned long long)sim->now_ns, (unsigned long long)sim->steps,
                  (unsigned long long)counts.tasks,
                  head_core_idle(sim->head) ? "idle" : "busy");
    for (uint32_t i = 0; i < sim->config.devices; i++) {
        sim_worker_describe(&sim->workers[i], out);
    }
    for (uint32_t i = 0; i < sim->config.clients; i++) {
        const struct sim_client *client = &sim->clients[i];

        pl_str_append(
            out, "client %u: %s, waits for %llu answers, sent %llu ops of %llu\n", i,
            client->dead        ? "dead"
            : client->connected ? "connected"
                                : "not connected",
            (unsigned long long)client->waiting, (unsigned long long)client->ops_sent,
            (unsigned long long)client->credit);
    }
}

/* --------------------------------------------------------------------------------- life */

static bool all_up(void *user)
{
    struct sim *sim = user;

    for (uint32_t i = 0; i < sim->config.devices; i++) {
        if (!sim->workers[i].connected) {
            return false;
        }
    }
    for (uint32_t i = 0; i < sim->config.clients && !sim->config.library; i++) {
        if (!sim->clients[i].connected) {
            return false;
        }
    }
    return true;
}

plasmon_status_t sim_create(const struct sim_config *config, struct sim **out_sim)
{
    struct sim *sim = sim_alloc(sizeof(*sim));

    PL_CHECK(config->devices >= 1 && config->devices <= SIM_DEVICES_MAX);
    PL_CHECK(config->clients >= 1 && config->clients <= SIM_CLIENTS_MAX);
    sim->config      = *config;
    sim->random      = config->seed;
    sim->late_random = config->seed;
    sim->now_ns      = 1000000;
    sim->trace       = getenv("PLASMON_SIM_TRACE") != NULL;
    sim->events      = PL_VEC_INIT(struct sim_event);
    sim->crash_times = PL_VEC_INIT(uint64_t);
    sim->hosts       = PL_VEC_INIT(struct sim_host *);
    pl_map_init(&sim->files);
    pl_map_init(&sim->spill_answers);
    sim->comms = PL_VEC_INIT(struct sim_comm *);
    pl_map_init(&sim->ran_on);
    pl_map_init(&sim->losses);
    pl_map_init(&sim->lasting);
    PL_CHECK(wire_arena_init(&sim->arena, WIRE_ARENA_BYTES_MAX) == PLASMON_OK);
    for (uint32_t i = 0; i < SIM_NUMBERS_MAX; i++) {
        sim->host_device_of[i] = WORKER_DEVICE_PENDING;
    }
    for (uint32_t i = 0; i < SIM_HOSTS_MAX; i++) {
        sim_node_init(&sim->nodes[i], sim, i);
    }
    sim_head_start(sim);
    for (uint32_t i = 0; i < config->devices; i++) {
        sim_worker_init(&sim->workers[i], sim, i);
    }
    for (uint32_t i = 0; config->stores && i < sim_hosts(sim); i++) {
        sim_node_start(&sim->nodes[i]);
    }
    for (uint32_t i = 0; i < config->devices; i++) {
        sim_worker_start(&sim->workers[i]);
    }
    *out_sim = sim;
    /* Devices first, so that a client finds all of them. */
    sim->config.clients        = 0;
    sim->config.gone_max       = 0;
    sim->config.head_stops_max = 0; /* it holds what everybody says */
    (void)sim_run_until(sim, all_up, sim);
    sim->config.clients        = config->clients;
    sim->config.head_stops_max = config->head_stops_max;
    for (uint32_t i = 0; i < config->clients; i++) {
        sim_client_start(&sim->clients[i], sim, i);
    }
    (void)sim_run_until(sim, all_up, sim);
    /* nobody waits for those that go before they came */
    sim->config.gone_max = config->gone_max;
    return sim->failed ? PLASMON_EINTERNAL : PLASMON_OK;
}

void sim_destroy(struct sim *sim)
{
    struct sim_event event;

    if (sim == NULL) {
        return;
    }
    while (sim_queue_pop(sim, &event)) {
        pl_free(event.data);
    }
    for (uint32_t i = 0; i < SIM_CLIENTS_MAX; i++) {
        sim_client_finish(&sim->clients[i]);
    }
    for (uint32_t i = 0; i < SIM_HOSTS_MAX; i++) {
        sim_node_finish(&sim->nodes[i]);
    }
    sim_hosts_finish(sim);
    sim_head_finish(sim);
    for (uint32_t i = 0; i < SIM_DEVICES_MAX; i++) {
        sim_worker_finish(&sim->workers[i]);
    }
    pl_vec_finish(&sim->events);
    pl_vec_finish(&sim->crash_times);
    for (size_t i = 0; i < sim->hosts.count; i++) {
        pl_free(*(struct sim_host **)pl_vec_at(&sim->hosts, i));
    }
    pl_vec_finish(&sim->hosts);
    sim_spill_finish(sim);
    for (size_t i = 0; i < sim->comms.count; i++) {
        pl_free(*(struct sim_comm **)pl_vec_at(&sim->comms, i));
    }
    pl_vec_finish(&sim->comms);
    pl_map_finish(&sim->ran_on);
    pl_map_finish(&sim->losses);
    pl_map_finish(&sim->lasting);
    wire_arena_finish(&sim->arena);
    pl_free(sim);
}
