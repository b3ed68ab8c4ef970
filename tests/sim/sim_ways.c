/*
 * Ways between hosts that are cut: both live, the head talks to both, and no byte of a transfer
 * gets from one to the other (nor through a third machine, which there is none). Each direction is
 * cut by itself, for less or for more than the head's patience (head/reach.c), and heals by itself.
 *
 * THE SENDER is what transfer/bulk_out.c is to each receiver: an attempt is made when bytes are
 * ready to go, and again and again until one gets through; it is made for all that was enqueued
 * when it began. How long nothing got on is told as of the last attempt that failed, once a second.
 * A receiver that is dead or stands still is not reached either; one that comes in its place has
 * another address, and the time begins anew.
 *
 * GIVEN UP. Chunks that the head gave up go nowhere: the sender's half is over when its stream
 * comes to it; the receiver's slot is marked as full with rubbish, once it is free, and what comes
 * all the same is dropped. The process knows that, and nobody else: with it, it is forgotten.
 *
 * NOTHING IS GIVEN UP TOO EARLY. What a sender is to give up must have been enqueued before an
 * attempt that failed, after the head's whole patience (checked here, of what this process has
 * enqueued).
 */
#include "tests/sim/sim.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"

enum {
    FIRST_MAX_NS   = 60000000,
    ATTEMPT_MAX_NS = 1000000000, /* refused at once, or nobody answers */
    PAUSE_MIN_NS   = 25000000,
    REPORT_NS      = 1000000000,
    STOPPED_NS     = 10000000,
    HEAL_MAX_NS    = 40000,
};

bool sim_ways(const struct sim *sim)
{
    return sim->config.reach_wait_ms != 0;
}

static bool apart(const struct sim_worker *a, const struct sim_worker *b)
{
    return sim_ways(a->sim) && b->host_device < a->sim->config.devices &&
           sim_node_of(a) != sim_node_of(b);
}

static bool runs(const struct sim_worker *worker)
{
    return worker->alive && !worker->process.stopped;
}

static struct sim_way *way_of(const struct sim_worker *from, const struct sim_worker *to)
{
    return &from->sim->ways[sim_node_of(from)->index][sim_node_of(to)->index];
}

static struct sim_reach *reach_of(struct sim_worker *from, const struct sim_worker *to)
{
    return &from->reach[to->host_device];
}

/* Nobody is there for good: whoever looks for it is told otherwise. */
static bool over(const struct sim_worker *from, const struct sim_worker *to)
{
    return from->given_up || to->gone || to->given_up;
}

static bool closed(const struct sim_worker *from, const struct sim_worker *to)
{
    return way_of(from, to)->cut || !runs(to) || from->reach[to->host_device].news;
}

/* ----------------------------------------------------------------------------- given up */

static bool among(const struct pl_vec *ranges, uint32_t peer, uint64_t chunk)
{
    for (size_t i = 0; i < ranges->count; i++) {
        const struct sim_chunks *range = pl_vec_at(ranges, i);

        if ((peer == UINT32_MAX || range->peer == peer) && chunk >= range->first &&
            chunk - range->first < range->count) {
            return true;
        }
    }
    return false;
}

static bool sent_nowhere(const struct sim_worker *from, const struct sim_worker *to,
                         uint64_t chunk)
{
    return among(&from->sends_given_up, to->device, chunk);
}

bool sim_ways_dropped(const struct sim_worker *from, const struct sim_worker *to,
                      uint64_t chunk)
{
    if (!apart(from, to)) {
        return false;
    }
    if (sent_nowhere(from, to, chunk)) {
        return true;
    }
    if (among(&to->receives_given_up, UINT32_MAX, chunk) ||
        (to->table->ring_begun != 0 &&
         to->timeline->stage_ready[chunk % STORE_STAGE_SLOTS].value > chunk)) {
        sim_cover(from->sim, SIM_CELL_WAY_DROPPED);
        return true;
    }
    return false;
}

void sim_ways_fill(struct sim_worker *worker)
{
    struct store_timeline *timeline = worker->timeline;

    for (size_t i = 0;
         runs(worker) && worker->ring_begun && i < worker->receives_given_up.count;) {
        struct sim_chunks *range = pl_vec_at(&worker->receives_given_up, i);
        uint64_t slot            = range->first % STORE_STAGE_SLOTS;

        if (timeline->stage_taken.value + STORE_STAGE_SLOTS <= range->first) {
            i++;
            continue;
        }
        if (timeline->stage_taken.value <= range->first &&
            timeline->stage_ready[slot].value <= range->first) {
            sim_memory_noise(worker->sim, worker->slab + slot * SIM_STAGE_BYTES_MAX,
                             SIM_STAGE_BYTES_MAX);
            timeline->stage_ready[slot].value = range->first + 1;
            sim_streams_kick_soon(worker);
        }
        range->first++;
        range->count--;
        if (range->count == 0) {
            pl_vec_remove_unordered(&worker->receives_given_up, i);
        }
    }
}

/* Enqueued by this process, and not over. */
static const struct sim_op *send_of(const struct sim_worker *from, uint32_t peer,
                                    uint64_t chunk)
{
    for (uint32_t i = 0; i < SIM_STREAMS; i++) {
        struct pl_list *pos;

        pl_list_for_each(pos, &from->streams[i].ops) {
            const struct sim_op *op = pl_container_of(pos, struct sim_op, link);

            if (op->kind == SIM_OP_SEND && op->first_chunk == chunk &&
                op->src->device == peer) {
                return op;
            }
        }
    }
    return NULL;
}

static void healed(void *user, uint64_t which, void *data);

/* Now of all times, when one of the two may have heard of it and the other one not. */
static void maybe_heal(struct sim_worker *receiver)
{
    struct sim *sim = receiver->sim;
    uint32_t from   = sim_node_of(receiver)->index == 0;
    uint64_t *serial;

    if (!sim->ways[from][1 - from].cut || !sim_chance(sim, 200)) {
        return;
    }
    serial  = sim_alloc(sizeof(*serial));
    *serial = sim->ways[from][1 - from].serial;
    sim_after(sim, sim_below(sim, HEAL_MAX_NS), healed, sim,
              from * SIM_HOSTS_MAX + 1 - from, serial);
}

static void check_attempted(struct sim_worker *from, uint32_t peer, uint64_t chunk)
{
    const struct sim_op *op = send_of(from, peer, chunk);

    if (op == NULL) {
        sim_cover(from->sim, SIM_CELL_WAY_TOLD_BEFORE);
        return; /* it comes with or after the order */
    }
    sim_cover(from->sim, SIM_CELL_WAY_GIVEN_UP);
    if (op->src->host_device < from->sim->config.devices &&
        op->enqueued_ns > reach_of(from, op->src)->told_ns) {
        sim_fail(
            from->sim,
            "device %u is to give up chunk %llu for device %u: it was enqueued at %llu "
            "ns, and the last attempt of which the head could know that it came too "
            "late began at %llu ns",
            from->host_device, (unsigned long long)chunk, op->src->host_device,
            (unsigned long long)op->enqueued_ns,
            (unsigned long long)reach_of(from, op->src)->told_ns);
    }
}

plasmon_status_t sim_ways_op_give_up(void *user, uint32_t device, bool receives,
                                     uint64_t first, uint64_t count)
{
    struct sim_worker *worker = user;
    struct sim_chunks *range =
        pl_vec_push(receives ? &worker->receives_given_up : &worker->sends_given_up);

    PL_CHECK(range != NULL);
    *range = (struct sim_chunks){.peer = device, .first = first, .count = count};
    sim_trace(worker->sim, "device %u gives up chunk %llu %s device %u",
              worker->host_device, (unsigned long long)first, receives ? "from" : "to",
              device);
    if (receives) {
        maybe_heal(worker);
    }
    for (uint64_t chunk = first; !receives && chunk < first + count; chunk++) {
        check_attempted(worker, device, chunk);
    }
    sim_ways_fill(worker);
    sim_streams_kick_soon(worker);
    return PLASMON_OK;
}

/* The one there now is another one than before, elsewhere. */
plasmon_status_t sim_ways_op_peer(void *user, uint32_t device, const char *address,
                                  const uint8_t *secret)
{
    struct sim_worker *worker = user;
    uint32_t index            = worker->sim->host_device_of[device];

    (void)address;
    (void)secret;
    if (index < worker->sim->config.devices) {
        struct sim_reach *reach = &worker->reach[index];
        uint32_t incarnation    = worker->sim->workers[index].incarnation;

        if (reach->incarnation != incarnation) {
            reach->news        = reach->trying; /* it is still at the address before */
            reach->incarnation = incarnation;
        }
    }
    return PLASMON_OK;
}

/* What goes with a host that is gone is dropped as in sim_hosts.c. */
plasmon_status_t sim_ways_op_gone(void *user, uint32_t device)
{
    (void)user;
    (void)device;
    return PLASMON_OK;
}

plasmon_status_t sim_ways_op_expect(void *user, uint32_t device, uint64_t first_chunk,
                                    uint64_t bytes)
{
    (void)user;
    (void)device;
    (void)first_chunk;
    (void)bytes;
    return PLASMON_OK;
}

/* ----------------------------------------------------------------------------- attempts */

static void attempt_begins(void *user, uint64_t life, void *data);

/* to: in data, as a number. */
static void attempt_after(struct sim_worker *from, const struct sim_worker *to,
                          uint64_t delay_ns, sim_fn fn)
{
    uint32_t *index = sim_alloc(sizeof(*index));

    *index = to->host_device;
    sim_after(from->sim, delay_ns, fn, from, from->life, index);
}

static void gets_on(struct sim_worker *from, const struct sim_worker *to)
{
    struct sim_reach *reach = reach_of(from, to);

    reach->since_ns = reach->ms = 0;
}

/* Bytes are ready to go, and were when it began. */
static bool waits_for(const struct sim_worker *from, const struct sim_worker *to,
                      uint64_t last)
{
    for (uint32_t i = 0; i < SIM_STREAMS; i++) {
        const struct sim_op *op = pl_list_first(&from->streams[i].ops, struct sim_op, link);

        if (op != NULL && op->kind == SIM_OP_SEND && op->serial != 0 &&
            !from->streams[i].running && op->src == to && op->first_chunk <= last &&
            !sent_nowhere(from, to, op->first_chunk)) {
            return true;
        }
    }
    return false;
}

static void report_due(void *user, uint64_t life, void *data)
{
    struct sim_worker *from = user;
    bool more               = false;

    (void)data;
    if (life != from->life || !from->alive) {
        return;
    }
    for (uint32_t i = 0; i < from->sim->config.devices; i++) {
        more |= from->reach[i].since_ns != 0 || from->reach[i].trying;
    }
    from->report_pending = more || !from->connected;
    from->stats_due      = true;
    sim_worker_flush_soon(from);
    if (from->report_pending) { /* and once more when all is well */
        sim_after(from->sim, REPORT_NS, report_due, from, life, NULL);
    }
}

static void attempt_ends(void *user, uint64_t life, void *data)
{
    struct sim_worker *from = user;
    struct sim *sim         = from->sim;
    uint32_t index          = *(uint32_t *)data;
    struct sim_worker *to   = &sim->workers[index];
    struct sim_reach *reach = &from->reach[index];
    uint64_t pause_ns;

    if (life != from->life || !from->alive) {
        return;
    }
    if (from->process.stopped) {
        attempt_after(from, to, STOPPED_NS, attempt_ends);
        return;
    }
    if (over(from, to) || !closed(from, to)) {
        gets_on(from, to);
        reach->trying = false;
        sim_streams_kick_soon(from);
        return;
    }
    reach->since_ns     = reach->since_ns == 0 ? sim->now_ns : reach->since_ns;
    reach->ms           = waits_for(from, to, reach->tried_last)
                              ? (sim->now_ns - reach->since_ns) / 1000000
                              : 0;
    reach->last         = reach->tried_last;
    reach->attempted_ns = reach->tried_ns;
    sim_trace(sim, "device %u does not reach device %u: %llu ms, up to chunk %llu",
              from->host_device, to->host_device, (unsigned long long)reach->ms,
              (unsigned long long)reach->last);
    if (!from->report_pending) {
        from->report_pending = true;
        sim_after(sim, sim_below(sim, REPORT_NS), report_due, from, life, NULL);
    }
    pause_ns = sim_between(sim, PAUSE_MIN_NS, ATTEMPT_MAX_NS);
    attempt_after(from, to, pause_ns, attempt_begins);
}

static void attempt_begins(void *user, uint64_t life, void *data)
{
    struct sim_worker *from = user;
    struct sim *sim         = from->sim;
    uint32_t index          = *(uint32_t *)data;
    struct sim_worker *to   = &sim->workers[index];
    struct sim_reach *reach = &from->reach[index];

    if (life != from->life || !from->alive) {
        return;
    }
    if (from->process.stopped) {
        attempt_after(from, to, STOPPED_NS, attempt_begins);
        return;
    }
    if (reach->news) {
        reach->news = false;
        gets_on(from, to);
    }
    reach->tried_ns   = sim->now_ns;
    reach->tried_last = 0;
    for (uint32_t i = 0; i < SIM_STREAMS; i++) {
        struct pl_list *pos;

        pl_list_for_each(pos, &from->streams[i].ops) {
            const struct sim_op *op = pl_container_of(pos, struct sim_op, link);

            if (op->kind == SIM_OP_SEND && op->src == to) {
                reach->tried_last = pl_max_u64(reach->tried_last, op->first_chunk);
            }
        }
    }
    attempt_after(from, to, 1 + sim_below(sim, ATTEMPT_MAX_NS), attempt_ends);
}

bool sim_ways_hold(struct sim_worker *from, struct sim_worker *to, uint64_t chunk)
{
    struct sim_reach *reach;

    if (!apart(from, to) || over(from, to) || sent_nowhere(from, to, chunk) ||
        !closed(from, to)) {
        return false;
    }
    reach = reach_of(from, to);
    if (!reach->trying) {
        reach->trying      = true;
        reach->incarnation = to->incarnation;
        attempt_after(from, to, sim_below(from->sim, FIRST_MAX_NS), attempt_begins);
    }
    return true;
}

void sim_ways_moved(struct sim_worker *from, const struct sim_worker *to)
{
    if (apart(from, to)) {
        gets_on(from, to);
    }
}

/* ------------------------------------------------------------------------------ reports */

void sim_ways_report(struct sim_worker *worker, Plasmon__V1__WorkerStats *stats)
{
    struct sim *sim = worker->sim;
    Plasmon__V1__PairStats *pairs =
        wire_arena_alloc(&sim->arena, (sim->config.devices + 1) * sizeof(*pairs));
    Plasmon__V1__PairStats **places = wire_arena_alloc(
        &sim->arena, (sim->config.devices + 1) * sizeof(Plasmon__V1__PairStats *));

    PL_CHECK(pairs != NULL && places != NULL);
    stats->pairs = places;
    for (uint32_t i = 0; i < sim->config.devices; i++) {
        const struct sim_worker *to  = &sim->workers[i];
        struct sim_reach *reach      = &worker->reach[i];
        Plasmon__V1__PairStats *pair = &pairs[stats->n_pairs];

        if (!apart(worker, to) || to->device == UINT32_MAX || over(worker, to)) {
            continue;
        }
        plasmon__v1__pair_stats__init(pair); /* all is well */
        pair->route = WORKER_ROUTE_HOST;
        pair->sent  = true;
        pair->to    = to->device;
        if (reach->since_ns != 0) {
            pair->unreached_ms   = reach->ms;
            pair->unreached_last = reach->last;
            pair->unreached_why  = (char *)(uintptr_t) "sim:1: cut";
            if (reach->ms >= sim->config.reach_wait_ms) {
                reach->told_ns = reach->attempted_ns;
            }
        }
        places[stats->n_pairs++] = pair;
    }
}

void sim_ways_init(struct sim_worker *worker)
{
    memset(worker->reach, 0, sizeof(worker->reach));
    worker->report_pending = worker->stats_due = false;
    worker->sends_given_up                     = PL_VEC_INIT(struct sim_chunks);
    worker->receives_given_up                  = PL_VEC_INIT(struct sim_chunks);
}

void sim_ways_finish(struct sim_worker *worker)
{
    pl_vec_finish(&worker->sends_given_up);
    pl_vec_finish(&worker->receives_given_up);
}

void sim_ways_crash(struct sim_worker *worker)
{
    sim_ways_finish(worker);
    sim_ways_init(worker);
}

/* ----------------------------------------------------------------------- cut and healed */

static void heal(struct sim *sim, uint32_t from, uint32_t to)
{
    struct sim_way *way = &sim->ways[from][to];
    bool given_up       = sim->met[SIM_CELL_WAY_GIVEN_UP] > way->given_up_before;

    if (!way->cut) {
        return;
    }
    way->cut        = false;
    sim->ways_ns    = sim->now_ns;
    way->longest_ns = pl_max_u64(way->longest_ns, sim->now_ns - way->cut_ns);
    sim_trace(sim, "the way from host %u to host %u is there again", from, to);
    sim_cover(sim, given_up ? SIM_CELL_WAY_LONG : SIM_CELL_WAY_SHORT);
    for (uint32_t i = 0; i < sim->config.devices; i++) {
        for (uint32_t k = 0; k < sim->config.devices; k++) {
            struct sim_worker *sender   = &sim->workers[i];
            struct sim_worker *receiver = &sim->workers[k];

            /* They try at least once a second: it is found to be there before it is cut again. */
            if (sim_node_of(sender)->index == from && sim_node_of(receiver)->index == to) {
                gets_on(sender, receiver);
            }
        }
    }
    sim_streams_kick_soon(&sim->workers[0]);
}

static void healed(void *user, uint64_t which, void *data)
{
    struct sim *sim        = user;
    const uint64_t *serial = data;
    uint32_t from = (uint32_t)which / SIM_HOSTS_MAX, to = (uint32_t)which % SIM_HOSTS_MAX;

    if (sim->ways[from][to].serial == *serial) {
        heal(sim, from, to);
    }
}

static void cut(struct sim *sim, uint32_t from, uint32_t to, uint64_t length_ns)
{
    struct sim_way *way = &sim->ways[from][to];
    uint64_t *serial    = sim_alloc(sizeof(*serial));

    way->cut             = true;
    way->given_up_before = sim->met[SIM_CELL_WAY_GIVEN_UP];
    way->cut_ns          = sim->now_ns;
    *serial              = ++way->serial;
    sim->ways_ns         = sim->now_ns + length_ns;
    sim_trace(sim, "the way from host %u to host %u is cut for %llu ms", from, to,
              (unsigned long long)length_ns / 1000000);
    sim_after(sim, length_ns, healed, sim, from * SIM_HOSTS_MAX + to, serial);
}

void sim_ways_maybe_cut(struct sim *sim)
{
    uint64_t wait_ns = sim->config.reach_wait_ms * 1000000;
    uint64_t length_ns;
    uint32_t from;

    if (sim->way_cuts >= sim->config.way_cuts_max ||
        sim_below(sim, 1000000) >= sim->config.way_cut_millionth || sim->ways[0][1].cut ||
        sim->ways[1][0].cut) {
        return;
    }
    sim->way_cuts++;
    length_ns = sim->config.ways_long && sim_chance(sim, 700)
                    ? sim_between(sim, wait_ns, 3 * wait_ns)
                    : sim_between(sim, 1000000, wait_ns / 2);
    from      = (uint32_t)sim_below(sim, 2);
    cut(sim, from, 1 - from, length_ns);
    if (sim_chance(sim, 500)) {
        cut(sim, 1 - from, from,
            sim_chance(sim, 500) ? length_ns : sim_between(sim, 1000000, length_ns));
    }
}

void sim_ways_heal(struct sim *sim)
{
    sim->config.way_cuts_max = 0;
    heal(sim, 0, 1);
    heal(sim, 1, 0);
}

bool sim_ways_given_up(const struct sim *sim)
{
    return sim->met[SIM_CELL_WAY_GIVEN_UP] + sim->met[SIM_CELL_WAY_TOLD_BEFORE] > 0;
}

bool sim_ways_explain(const struct sim *sim, const char *text)
{
    const char *at = strstr(text, "no bytes went from device ");
    uint32_t from, to;
    char name[2][32];

    if (at == NULL ||
        sscanf(at, "no bytes went from device %u on %31s to device %u on %31s", &from,
               name[0], &to, name[1]) != 4) {
        return false;
    }
    return sim->ways[strcmp(name[0], sim->nodes[0].name) != 0]
                    [strcmp(name[1], sim->nodes[0].name) != 0]
                        .longest_ns >= sim->config.reach_wait_ms * 1000000;
}
