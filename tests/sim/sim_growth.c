/*
 * Chunks of device memory on their way from their worker to the store.
 *
 * A worker makes a chunk and sends it. The store keeps it, tells the other workers, and says so;
 * then the worker uses it. Both take their time, and worker and store may die before, between and
 * after. A chunk that nobody has but its worker goes with it, and what was there with the chunk:
 * its place is poisoned and given out again. One that a store has read is never lost, since the
 * other workers have it.
 *
 * Without a store it waits: it is among the things that its worker hands back to the next one.
 */
#include "tests/sim/sim.h"

#include <string.h>

#include "base/fault.h"

enum { SEND_MAX_NS = 30000, SEND_LONG_NS = 1000000 };

static bool store_alive(const struct sim_worker *worker)
{
    return !worker->sim->config.stores || sim_node_of(worker)->alive;
}

/* ----------------------------------------------------------------------- there and back */

static void use(struct sim_worker *worker)
{
    struct sim_growth *growth = &worker->growth;

    growth->state        = SIM_GROWTH_NONE;
    growth->acknowledged = false;
    if (growth->early) {
        growth->early = false;
    } else if (worker_core_chunk_added(worker->core, growth->chunk.pool,
                                       growth->chunk.offset,
                                       growth->chunk.bytes) != PLASMON_OK) {
        sim_fail(worker->sim, "device %u: a chunk was refused", worker->host_device);
    }
}

/* Is this about the chunk that is on its way now, and from a store that lives? */
static bool due(const struct sim_worker *worker, uint64_t number)
{
    const struct sim_growth *growth = &worker->growth;

    return growth->state != SIM_GROWTH_NONE && growth->number == number &&
           store_alive(worker) && growth->store_life == sim_node_of(worker)->life;
}

static void acknowledged(void *user, uint64_t number, void *data)
{
    struct sim_worker *worker = user;

    (void)data;
    if (!due(worker, number)) {
        return;
    }
    if (worker->process.stopped) {
        worker->growth.acknowledged = true;
        return;
    }
    use(worker);
    sim_worker_advance(worker);
}

static void keep(struct sim_worker *worker)
{
    struct sim_chunk *kept = pl_vec_push(&worker->chunks);

    PL_CHECK(kept != NULL);
    *kept                = worker->growth.chunk;
    worker->growth.state = SIM_GROWTH_KEPT;
}

static uint64_t delay(struct sim *sim)
{
    return sim_below(sim, sim_chance(sim, 50) ? SEND_LONG_NS : SEND_MAX_NS);
}

static void read_by_store(void *user, uint64_t number, void *data)
{
    struct sim_worker *worker = user;

    (void)data;
    if (due(worker, number) && worker->growth.state == SIM_GROWTH_SENT) {
        keep(worker);
        sim_after(worker->sim, delay(worker->sim), acknowledged, worker, number, NULL);
    }
}

static void send(struct sim_worker *worker)
{
    struct sim *sim = worker->sim;

    worker->growth.store_life = sim_node_of(worker)->life;
    if (store_alive(worker)) {
        sim_after(sim, delay(sim), read_by_store, worker, worker->growth.number, NULL);
        sim_store_growth(worker);
    } else {
        sim_cover(sim, SIM_CELL_GROWTH_ALONE);
    }
}

plasmon_status_t sim_growth_begin(struct sim_worker *worker, uint32_t pool, uint64_t bytes)
{
    struct sim *sim           = worker->sim;
    struct sim_growth *growth = &worker->growth;
    uint64_t limit            = sim->config.device_bytes;
    uint64_t chunk = pl_max_u64(pl_round_up(bytes, 4096), limit != 0 ? 4096 : 16384);

    if ((limit != 0 && worker->chunk_bytes + chunk > limit) ||
        worker->chunk_bytes + chunk > worker->arena_bytes) {
        return PLASMON_EDEVMEM;
    }
    if (growth->early) { /* the bug: it does not wait for this one either */
        growth->state = SIM_GROWTH_NONE;
        growth->early = false;
    }
    if (growth->state != SIM_GROWTH_NONE) {
        sim_fail(sim, "device %u: a second chunk is asked for before the first has come",
                 worker->host_device);
        return PLASMON_EAGAIN;
    }
    worker->chunk_bytes += chunk;
    worker->pool_bytes[pool] += chunk;
    growth->state  = SIM_GROWTH_SENT;
    growth->number = growth->number + 1;
    growth->chunk  = (struct sim_chunk){.offset = pool == 0 ? worker->pool_bytes[0] - chunk
                                                            : worker->arena_bytes -
                                                                 worker->pool_bytes[1],
                                        .bytes  = chunk,
                                        .pool   = pool};
    send(worker);
    if (pl_bug("worker.chunk_early")) {
        growth->early = true;
        return worker_core_chunk_added(worker->core, pool, growth->chunk.offset, chunk);
    }
    return PLASMON_EAGAIN;
}

/* ------------------------------------------------------------------------------- deaths */

void sim_growth_died(struct sim_worker *worker)
{
    struct sim *sim                = worker->sim;
    const struct sim_growth growth = worker->growth;

    if (growth.state == SIM_GROWTH_SENT && store_alive(worker) &&
        growth.store_life == sim_node_of(worker)->life) {
        keep(worker); /* a store reads what a dead worker still had to say */
    } else if (growth.state == SIM_GROWTH_SENT) {
        sim_trace(sim, "device %u: the chunk at %llu dies with its worker",
                  worker->host_device, (unsigned long long)growth.chunk.offset);
        sim_cover(sim, SIM_CELL_GROWTH_LOST);
        memset(worker->arena + growth.chunk.offset, 0xdd, growth.chunk.bytes);
        worker->chunk_bytes -= growth.chunk.bytes;
        worker->pool_bytes[growth.chunk.pool] -= growth.chunk.bytes;
    }
    worker->growth = (struct sim_growth){.number = growth.number};
}

void sim_growth_continued(struct sim_worker *worker)
{
    if (worker->growth.acknowledged) {
        use(worker);
    }
}

void sim_growth_handed_back(struct sim_worker *worker)
{
    struct sim_growth *growth = &worker->growth;

    if (growth->state == SIM_GROWTH_SENT) {
        keep(worker);
        sim_cover(worker->sim, SIM_CELL_GROWTH_HANDED);
    }
    if (growth->state == SIM_GROWTH_KEPT) {
        growth->store_life = sim_node_of(worker)->life;
        sim_after(worker->sim, delay(worker->sim), acknowledged, worker, growth->number,
                  NULL);
    }
}
