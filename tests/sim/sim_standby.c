/*
 * A head that stands still, another one that takes its place, and the first one, which goes on.
 *
 * While it stands still nothing is read from its connections and nothing of what it holds leaves;
 * its journal goes on storing what was sent, and the answers lie. Peers see nothing of all that. It
 * may go on before anybody minds. Else the one that stands by takes the journal over: from then on
 * nothing is stored for the first one (the term, head/journal_commit.c). Peers leave it for the
 * other one each in its own time, so for a while some are connected to the one and some to the
 * other.
 *
 * When the first one goes on, it hears what had been stored for it, and what it held for that
 * leaves, to whom it still has. It reads what lay in its connections, and decides by that, for it
 * knows no better; but what follows from it waits for the journal, which refuses. Then it ends.
 *
 * So nobody ever acts on what a head says that is not the one: what is checked everywhere else
 * (sequences, results, a second machine made from the journal) would notice. Seeded bug:
 * journal.any_term (the journal does not refuse).
 */
#include "tests/sim/sim.h"

#include <string.h>

#include "base/alloc.h"
#include "base/fault.h"

enum {
    STOP_SHORT_MAX_NS = 20000000,
    LEAVE_SOON_NS     = 300000,
    LEAVE_MAX_NS      = 40000000,
    REFUSED_MAX_NS    = 20000,
};
#define LEASE_NS        UINT64_C(100000000)
#define LEASE_SLACK_NS  UINT64_C(60000000)
#define WAKE_MAX_NS     UINT64_C(60000000)
#define OTHER_WRITER_NS UINT64_C(30000000) /* the bug: for so long there are two */

/* -------------------------------------------------------------------------- connections */

enum { PEERS_MAX = SIM_DEVICES_MAX + SIM_CLIENTS_MAX + SIM_HOSTS_MAX };

struct peer {
    struct sim_pipe *to_head;
    struct sim_node *node;
    struct sim_worker *worker;
    struct sim_client *client;
};

static uint32_t peers_of(struct sim *sim, struct peer *out)
{
    uint32_t n = 0;

    for (uint32_t i = 0; sim->config.stores && i < sim_hosts(sim); i++) {
        out[n++] = (struct peer){.to_head = &sim->nodes[i].to_head, .node = &sim->nodes[i]};
    }
    for (uint32_t i = 0; i < sim->config.devices; i++) {
        out[n++] =
            (struct peer){.to_head = &sim->workers[i].to_head, .worker = &sim->workers[i]};
    }
    for (uint32_t i = 0; i < sim->config.clients; i++) {
        out[n++] =
            (struct peer){.to_head = &sim->clients[i].to_head, .client = &sim->clients[i]};
    }
    return n;
}

static void peer_break(const struct peer *peer)
{
    if (peer->node != NULL) {
        sim_node_break(peer->node);
    } else if (peer->worker != NULL) {
        sim_worker_break(peer->worker);
    } else {
        sim_client_break(peer->client);
    }
}

/* It hears nothing of its head any more, and looks for one. */
static void leaves(void *user, uint64_t index, void *data)
{
    const uint64_t *life = data;
    struct sim *sim      = user;
    struct peer peers[PEERS_MAX];

    if (index < peers_of(sim, peers) && peers[index].to_head->old &&
        peers[index].to_head->life == *life) {
        peer_break(&peers[index]);
    }
}

static void leave_later(struct sim *sim, uint32_t index, const struct sim_pipe *pipe)
{
    uint64_t *life = sim_alloc(sizeof(*life));

    *life = pipe->life;
    sim_after(sim, sim_below(sim, sim_chance(sim, 400) ? LEAVE_SOON_NS : LEAVE_MAX_NS),
              leaves, sim, index, life);
}

/* -------------------------------------------------------- the one that goes on too late */

static void old_end(struct sim *sim)
{
    struct sim_old_head *old = &sim->old_head;
    struct peer peers[PEERS_MAX];
    uint32_t count = peers_of(sim, peers);

    old->speaks = true; /* as it ends, it lets go of everything, and says so */
    head_machine_destroy(old->machine);
    sim_held_drop(&old->held, 0);
    pl_vec_finish(&old->held);
    *old = (struct sim_old_head){.serial = old->serial + 1,
                                 .held   = PL_VEC_INIT(struct sim_held)};
    for (uint32_t i = 0; i < count; i++) {
        if (peers[i].to_head->old) {
            peer_break(&peers[i]);
        }
    }
}

static void refused(void *user, uint64_t serial, void *data)
{
    struct sim *sim = user;

    (void)data;
    if (serial == sim->old_head.serial && sim->old_head.machine != NULL) {
        sim_trace(sim, "the head that had stood still is refused, and ends");
        sim_cover(sim, SIM_CELL_HEAD_REFUSED);
        old_end(sim);
    }
}

static void old_goes_on(void *user, uint64_t serial, void *data)
{
    struct sim *sim          = user;
    struct sim_old_head *old = &sim->old_head;
    struct peer peers[PEERS_MAX];
    uint32_t count = peers_of(sim, peers);

    (void)data;
    if (serial != old->serial || old->machine == NULL) {
        return;
    }
    sim_trace(sim, "the head that had stood still goes on");
    for (size_t i = 0; i < old->held.count; i++) {
        struct sim_held *held = pl_vec_at(&old->held, i);

        if (held->batch <= old->stored) {
            sim_held_leave(sim, held);
            held->data = NULL;
        }
    }
    sim_held_drop(&old->held, 0);
    for (uint32_t i = 0; i < count; i++) {
        if (peers[i].to_head->old) {
            sim_pipe_release(peers[i].to_head);
            peers[i].to_head->unread = false;
        }
    }
    sim_after(sim,
              pl_bug("journal.any_term") ? OTHER_WRITER_NS : sim_below(sim, REFUSED_MAX_NS),
              refused, sim, serial, NULL);
}

/* What it has read, it has taken over: it cannot know. What follows from that waits for its journal. */
static void old_take(struct sim *sim, const struct head_input *input)
{
    struct sim_old_head *old    = &sim->old_head;
    struct head_outcome outcome = {0};
    struct pl_err err           = {0};

    sim_cover(sim, SIM_CELL_HEAD_OLD_READS);
    old->speaks = true;
    (void)!head_machine_input(old->machine, input, &outcome,
                              &err); /* it may end a session, for itself */
    head_machine_flush(old->machine);
    head_machine_acks(old->machine, true, 1);
    old->speaks = false;
}

void sim_old_head_put(struct sim *sim, const struct sim_pipe *to_head,
                      struct sim_pipe *from_head, const uint8_t *data, size_t length)
{
    (void)sim;
    if (to_head->old && pl_bug("journal.any_term")) {
        sim_pipe_send(from_head, data, length);
    }
}

void sim_old_head_worker(struct sim_worker *worker, const uint8_t *data, size_t length)
{
    struct sim *sim               = worker->sim;
    const struct head_input input = {.type    = HEAD_INPUT_WORKER_FRAME,
                                     .numbers = {worker->device},
                                     .strings = {{data, length}}};

    if (sim->old_head.machine == NULL) {
        sim_worker_break(worker);
    } else {
        old_take(sim, &input);
    }
}

void sim_old_head_client(struct sim_client *client, const uint8_t *data, size_t length)
{
    struct sim *sim               = client->sim;
    const struct head_input input = {.type    = HEAD_INPUT_CLIENT_FRAME,
                                     .numbers = {sim->old_head.sessions[client->index]},
                                     .strings = {{data, length}}};

    if (sim->old_head.machine == NULL) {
        sim_client_break(client);
    } else if (input.numbers[0] != 0) {
        old_take(sim, &input);
    }
}

void sim_old_head_node(struct sim_node *node)
{
    if (node->sim->old_head.machine == NULL) {
        sim_node_break(node);
    } /* else what it says is of deaths, and is kept until a head has stored it */
}

/* ----------------------------------------------------------------------- standing still */

static void taken_over(void *user, uint64_t life, void *data)
{
    struct sim *sim          = user;
    struct sim_head *head    = &sim->head_process;
    struct sim_old_head *old = &sim->old_head;
    struct peer peers[PEERS_MAX];
    uint32_t count = peers_of(sim, peers);

    (void)data;
    if (life != head->life || !head->stopped || sim->failed) {
        return;
    }
    sim_trace(sim, "another head takes over");
    sim_cover(sim, SIM_CELL_HEAD_TAKEN_OVER);
    if (old->machine != NULL) {
        old_end(sim); /* a third one: the first is killed */
    }
    sim_journal_check(sim);
    pl_vec_finish(&old->held); /* empty since the last one ended */
    old->machine = head->machine;
    old->held    = head->held;
    memcpy(old->sessions, head->sessions, sizeof(old->sessions));
    head->held    = PL_VEC_INIT(struct sim_held);
    head->stopped = false;
    head->stored += head->unheard;
    head->unheard = 0;
    sim_head_replace(sim, false);
    old->stored = head->stored;
    for (uint32_t i = 0; i < count; i++) {
        if (peers[i].to_head->up) {
            peers[i].to_head->old    = true;
            peers[i].to_head->unread = true;
            leave_later(sim, i, peers[i].to_head);
        } else {
            sim_pipe_release(peers[i].to_head);
        }
    }
    if (sim_chance(sim, 900)) {
        sim_after(sim, sim_below(sim, sim_chance(sim, 500) ? LEAVE_SOON_NS : WAKE_MAX_NS),
                  old_goes_on, sim, old->serial, NULL);
    } /* else never */
}

static void goes_on(void *user, uint64_t life, void *data)
{
    struct sim *sim       = user;
    struct sim_head *head = &sim->head_process;
    struct peer peers[PEERS_MAX];
    uint32_t count = peers_of(sim, peers);

    (void)data;
    if (life != head->life || !head->stopped) {
        return;
    }
    sim_trace(sim, "the head goes on");
    sim_cover(sim, SIM_CELL_HEAD_WENT_ON);
    head->stopped = false;
    for (uint32_t i = 0; i < count; i++) {
        sim_pipe_release(peers[i].to_head);
    }
    sim_journal_heard(sim);
    sim_spill_look_again(sim);
    head->flush_pending = false;
    sim_head_flush_soon(sim);
}

void sim_head_maybe_stop(struct sim *sim)
{
    struct sim_head *head = &sim->head_process;
    struct peer peers[PEERS_MAX];
    bool short_one;
    uint32_t count;

    if (head->stops >= sim->config.head_stops_max || sim_head_down(sim) ||
        !sim_nodes_settled(sim) ||
        sim_below(sim, 1000000) >= sim->config.head_crash_millionth) {
        return;
    }
    sim_trace(sim, "the head stands still");
    count     = peers_of(sim, peers);
    short_one = sim_chance(sim, 250);
    head->stops++;
    head->stopped = true;
    for (uint32_t i = 0; i < count; i++) {
        sim_pipe_hold(peers[i].to_head);
    }
    sim_after(sim,
              short_one ? sim_below(sim, STOP_SHORT_MAX_NS)
                        : LEASE_NS + sim_below(sim, LEASE_SLACK_NS),
              short_one ? goes_on : taken_over, sim, head->life, NULL);
}

void sim_old_head_finish(struct sim *sim)
{
    head_machine_destroy(sim->old_head.machine);
    sim_held_drop(&sim->old_head.held, 0);
    pl_vec_finish(&sim->old_head.held);
}
