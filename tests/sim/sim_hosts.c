/*
 * Hosts that are lost as a whole, as one sees it from outside: with their stores nobody says that
 * they are. The head hears nothing, gives them up when their lease is over, and that is final:
 * their devices' numbers mean nobody any more.
 *
 *   DIES   store and workers at once. Nothing comes back
 *   ANEW   .. but a store of that host with new memory: before the lease is over, which ends the
 *          wait, or after
 *   CUT    everybody there lives and goes on. When the network is back they are told that they are
 *          nobody; the same memory joins anew, under other numbers, and lets go of what it had
 *   and one that was drained ends with its store, which is no loss.
 *
 * GHOSTS. What one host knows of another one's devices goes by their numbers. In here a number
 * leads to a timeline; when the device is given up, to one that nobody has and where everything is
 * over, while the device itself goes on with its own. What was under way between the two goes
 * nowhere: a chunk for it is dropped, one from it is not taken.
 * Its workers hear that they were given up one after the other. One that has joined anew lets go of
 * what it had and waits for nobody; another one that has not heard yet may still copy from there,
 * and what it makes of that nobody takes; what it has enqueued to send to a device of its host
 * still goes into that one's ring, which has not begun anew before all have heard
 * (worker/siblings.h, the real thing).
 *
 * NOBODY IS GIVEN UP FOR NOTHING: the head must have heard nothing of the host for a lease, or
 * another store of it, or have been told to drain it.
 */
#include "tests/sim/sim.h"

#include <string.h>

#include "base/alloc.h"

enum {
    HEAR_MAX_NS = 300000,
    STOPPED_NS  = 10000000,
    TICK_NS     = 25000000, /* the head looks at its clock so often */
    SOON_MAX_NS = 900000000,
};
#define LEASE_NS    UINT64_C(10000000000)
#define CUT_MIN_NS  UINT64_C(9000000000)
#define CUT_MAX_NS  UINT64_C(14500000000)
#define ANEW_MAX_NS UINT64_C(13000000000)

uint32_t sim_ghosts(const struct sim *sim)
{
    return sim->config.stores && sim->config.second_host ? SIM_GHOSTS_MAX : 0;
}

struct sim_worker *sim_worker_at(struct sim *sim, const char *host, uint32_t local)
{
    for (uint32_t i = 0; i < sim->config.devices; i++) {
        struct sim_worker *worker = &sim->workers[i];

        if (worker->local == local && strcmp(sim_node_of(worker)->name, host) == 0) {
            return worker;
        }
    }
    return NULL;
}

/* ----------------------------------------------------------------- the head gives it up */

static void check_right(struct sim_node *node, const char *why)
{
    struct sim *sim = node->sim;
    bool silent =
        node->silent_ns != 0 && sim->now_ns - node->silent_ns + TICK_NS >= LEASE_NS;
    bool replaced = node->memory != SIM_MEMORY + node->index &&
                    strstr(why, "another store of its host") != NULL;

    if (node->index == 0 || !(silent || replaced || sim->drain_begun)) {
        sim_fail(sim, "host %s is given up: %s", node->name, why);
    }
}

void sim_device_forgotten(struct sim *sim, uint32_t number, const char *why)
{
    struct sim_worker *worker = &sim->workers[sim->owner_of[number]];

    if (worker->gone && !sim_node_of(worker)->gone) {
        return; /* its store has said so */
    }
    check_right(sim_node_of(worker), why);
    if (sim->drain_begun) { /* its store may only be away: with nothing there, that is enough */
        (void)sim_head_drain_over(sim, &sim->drained);
    }
    sim_journal_given_up(sim, number);
}

static void count_gone(struct sim_node *node)
{
    node->sim->gone_count += node->counted ? 0 : node->count;
    node->counted = true;
}

void sim_host_given_up(struct sim *sim, const char *host, const char *why)
{
    struct sim_node *node =
        strcmp(host, sim->nodes[0].name) == 0 ? &sim->nodes[0] : &sim->nodes[1];

    check_right(node, why);
    sim_trace(sim, "%s is given up: %s", host, why);
    node->give_ups++;
    count_gone(node);
    sim_cover(sim, sim->drain_begun                          ? SIM_CELL_HOST_LEFT
                   : node->gone                              ? SIM_CELL_HOST_DIED
                   : strstr(why, "another store") != NULL    ? SIM_CELL_HOST_REPLACED
                   : sim->config.host_fault == SIM_HOST_ANEW ? SIM_CELL_HOST_CAME_ANEW
                                                             : SIM_CELL_HOST_CAME_BACK);
}

/* ---------------------------------------------------------------- everybody hears of it */

static void streams_turn(struct sim_worker *worker, const struct sim_worker *gone,
                         struct sim_worker *ghost)
{
    for (uint32_t i = 0; i < SIM_STREAMS; i++) {
        struct pl_list *pos;

        pl_list_for_each(pos, &worker->streams[i].ops) {
            struct sim_op *op = pl_container_of(pos, struct sim_op, link);

            if ((op->kind == SIM_OP_SEND || op->kind == SIM_OP_RECV) && op->src == gone) {
                op->src = ghost;
            }
        }
    }
}

static void hears(void *user, uint64_t life, void *data)
{
    struct sim_worker *worker = user;
    struct sim *sim           = worker->sim;
    uint64_t *at;

    (void)data;
    if (worker->life != life || !worker->alive) {
        return;
    }
    if (worker->process.stopped) {
        sim_after(sim, STOPPED_NS, hears, worker, life, NULL);
        return;
    }
    at = pl_vec_push(&sim->crash_times);
    PL_CHECK(at != NULL);
    *at = sim->now_ns;
    sim_cover(sim, SIM_CELL_HOST_REFUSED);
    sim_worker_crash(worker, "it is told that it was given up");
}

void sim_device_given_up(struct sim *sim, uint32_t number)
{
    struct sim_worker *gone = &sim->workers[sim->owner_of[number]];
    struct sim_worker *ghost;
    uint32_t index = sim->config.devices + sim->ghost_count;

    if (sim->ghost_count == SIM_GHOSTS_MAX) {
        sim_fail(sim, "device %u is given up, and four were before", number);
        return;
    }
    ghost  = &sim->ghosts[sim->ghost_count++];
    *ghost = (struct sim_worker){.sim         = sim,
                                 .host_device = index,
                                 .device      = number,
                                 .gone        = true,
                                 .timeline    = sim_alloc(sizeof(*ghost->timeline))};
    store_timeline_init(ghost->timeline, index);
    store_timeline_release(ghost->timeline);
    sim->timelines[index]       = ghost->timeline;
    sim->host_device_of[number] = index;
    sim_numbers_refresh(sim);
    gone->given_up = !gone->blank && gone->device == number;
    if (gone->given_up && gone->to_head.up && !gone->cut.on) { /* the head hangs up */
        sim_after(sim, sim_below(sim, HEAR_MAX_NS), hears, gone, gone->life, NULL);
    }
    for (uint32_t i = 0; i < sim->config.devices; i++) {
        struct sim_worker *worker = &sim->workers[i];

        if (sim_node_of(worker) != sim_node_of(gone)) {
            streams_turn(worker, gone, ghost);
        }
        sim_worker_doorbell(worker);
    }
    sim_streams_kick_soon(&sim->workers[0]);
}

bool sim_worker_refused(struct sim_worker *worker, const struct pl_err *err)
{
    if (err->status != PLASMON_EHEADLOST || sim_node_of(worker)->give_ups == 0) {
        return false;
    }
    sim_after(worker->sim, sim_below(worker->sim, HEAR_MAX_NS), hears, worker, worker->life,
              NULL);
    return true;
}

/* ------------------------------------------------------------------- what happens to it */

static void comes_anew(void *user, uint64_t life, void *data)
{
    struct sim_node *node = user;

    (void)data;
    if (node->life != life || node->alive) {
        return;
    }
    sim_trace(node->sim, "%s comes anew", node->name);
    node->memory += SIM_HOSTS_MAX;
    for (uint32_t i = node->first; i < node->first + node->count; i++) {
        sim_worker_blank(&node->sim->workers[i]);
    }
    sim_node_begin_anew(node);
    for (uint32_t i = node->first; i < node->first + node->count; i++) {
        sim_worker_start(&node->sim->workers[i]);
    }
}

static void end_all(struct sim_node *node, bool for_good)
{
    struct sim *sim = node->sim;

    node->gone = for_good;
    sim_node_end(node);
    for (uint32_t i = node->first; i < node->first + node->count; i++) {
        struct sim_worker *worker = &sim->workers[i];
        uint64_t *at              = pl_vec_push(&sim->crash_times);

        PL_CHECK(at != NULL);
        *at          = sim->now_ns;
        worker->gone = for_good;
        if (worker->alive) {
            sim_worker_end(worker);
        }
        worker->life++; /* nor does one that is being started */
        worker->blank          = true;
        worker->process.doomed = false;
    }
}

static void cut_off(struct sim_node *node)
{
    struct sim *sim = node->sim;
    uint64_t length = sim_between(sim, CUT_MIN_NS, CUT_MAX_NS);

    (void)sim_cut_begin(&node->cut, length); /* false: it is cut off already, for less */
    for (uint32_t i = node->first; i < node->first + node->count; i++) {
        (void)sim_cut_begin(&sim->workers[i].cut, length);
    }
}

void sim_host_lose(struct sim *sim)
{
    struct sim_node *node = &sim->nodes[1];
    bool anew             = sim->config.host_fault == SIM_HOST_ANEW && !sim->drain_begun;

    sim->host_lost = true;
    sim_trace(sim, "%s is lost: %d", node->name, (int)sim->config.host_fault);
    if (!sim->drain_begun && sim->config.host_fault == SIM_HOST_CUT) {
        cut_off(node);
        return;
    }
    count_gone(node);
    end_all(node, !anew);
    if (anew) {
        sim_after(sim,
                  sim_chance(sim, 400) ? 1 + sim_below(sim, SOON_MAX_NS)
                                       : sim_between(sim, CUT_MIN_NS, ANEW_MAX_NS),
                  comes_anew, node, node->life, NULL);
    }
}

void sim_hosts_finish(struct sim *sim)
{
    for (uint32_t i = 0; i < sim->ghost_count; i++) {
        pl_free(sim->ghosts[i].timeline);
    }
}
