/*
 * A store process and its session with the head. What it says and keeps is the real thing
 * (store/node_session.h); so is what the head makes of it (head_machine). Simulated are the
 * connection, the head's side of the stream (head/serve_nodes.c), and the death of a store:
 *
 *   its workers go on, and nobody watches them; whoever dies is not replaced the next store waits
 *   for them to hand back what they have. Who does not come in time - dead, or standing still - is
 *   ended first which memory of the host it is, by which the head knows it, and its predecessor's
 *   session are in memory, which lives as long as the host
 *
 * What the dead store had not told dies with it: the head hears of a death from the next incarnation's hello.
 */
#include "tests/sim/sim.h"

#include <string.h>

#include "base/alloc.h"

enum {
    CONNECT_MAX_NS = 300000,
    NOTICE_MAX_NS  = 200000,
    LOOK_AGAIN_NS  = 1000000, /* a head that stands still */
};
#define DOWN_MAX_NS   UINT64_C(2000000000)
#define HANDBACK_NS   UINT64_C(3000000000) /* store/handback.h */
#define HANDED_MAX_NS 60000000             /* when all come */

/* ------------------------------------------------------------ what the session asks for */

static uint8_t *session_buffer(size_t length)
{
    return sim_alloc(length + 1);
}

static void session_send(void *user, uint8_t *bytes, size_t length)
{
    struct sim_node *node = user;

    sim_pipe_send(&node->to_head, bytes, length);
    pl_free(bytes);
}

static uint64_t *session_kept(const struct sim_node *node)
{
    return &node->sim->workers[node->first].timeline->store_session;
}

static void session_joined(void *user, uint64_t session, bool known, const char *cluster)
{
    struct sim_node *node = user;

    (void)cluster;
    if (!known && node->give_ups == 0) {
        sim_fail(node->sim, "the head does not know its store any more");
    }
    *session_kept(node) = session;
    node->away_ns       = 0;
}

static void session_event(void *user, enum store_uplink_event event, uint32_t host_device,
                          uint32_t incarnation)
{
    struct sim_node *node = user;

    if (event != STORE_UPLINK_FENCE) {
        sim_fail(node->sim, "the head gives its store the order %d", (int)event);
        return;
    }
    sim_store_fence(&node->sim->workers[node->first + host_device], incarnation);
}

static void session_offer(void *user, struct store_node_offer *out)
{
    (void)user;
    *out = (struct store_node_offer){0};
}

static void session_spill(void *user, const struct store_spill_op *op)
{
    struct sim_node *node = user;

    sim_fail(node->sim, "a store that offers no room is asked for some (%u)", op->kind);
}

static bool session_spilled(void *user, struct store_spill_result *out)
{
    (void)user;
    (void)out;
    return false;
}

static const struct store_node_session_ops session_ops = {.buffer  = session_buffer,
                                                          .send    = session_send,
                                                          .event   = session_event,
                                                          .joined  = session_joined,
                                                          .offer   = session_offer,
                                                          .spill   = session_spill,
                                                          .spilled = session_spilled};

static void session_begin(struct sim_node *node)
{
    store_node_session_init(&node->session, &session_ops, node, *session_kept(node));
    node->session.host         = node->name;
    node->session.name         = node->name;
    node->session.store_socket = "";
    node->session.devices      = node->count;
    node->session.memory       = node->memory;
}

void sim_node_down(struct sim_node *node, uint32_t local, uint32_t incarnation)
{
    struct store_uplink_down down = {
        .host_device = local, .incarnation = incarnation, .text = "it is dead"};

    if (node->alive) {
        store_node_session_down(&node->session, &down);
        store_node_session_send_owed(&node->session);
    }
}

/* ----------------------------------------------------------------------- its connection */

static void node_connect(void *user, uint64_t arg, void *data)
{
    struct sim_node *node = user;

    (void)data;
    if (node->alive && arg == node->life && !node->to_head.up) {
        sim_pipe_open(&node->to_head);
        store_node_session_begin(&node->session);
    }
}

static void connect_later(struct sim_node *node)
{
    sim_after(node->sim, sim_below(node->sim, CONNECT_MAX_NS), node_connect, node,
              node->life, NULL);
}

static void node_deliver(void *user, const uint8_t *data, size_t length)
{
    struct sim_node *node             = user;
    struct sim *sim                   = node->sim;
    Plasmon__V1__NodeCommand *command = NULL;
    struct pl_err err                 = {0};

    wire_arena_reset(&sim->arena);
    if (wire_decode_node_command(&sim->arena, data, length, &command, &err) != PLASMON_OK) {
        sim_fail(sim, "the store cannot decode a command: %s", err.text);
    } else if (!store_node_session_take(&node->session, command)) {
        sim_fail(sim, "the store sees a gap in what the head sends");
    } else if (store_node_session_owes_ack(&node->session)) {
        store_node_session_beat(&node->session);
    }
}

static void node_lost(void *user, uint64_t arg, void *data)
{
    struct sim_node *node = user;

    (void)data;
    if (arg == node->to_head.life && node->sim->head_process.stopped) {
        sim_after(node->sim, LOOK_AGAIN_NS, node_lost, node, arg, NULL);
    } else if (arg == node->to_head.life && !sim_head_down(node->sim) &&
               !sim_cut_hides(&node->cut)) {
        sim_head_node_silent(node);
    }
}

static void lost_later(struct sim_node *node)
{
    sim_after(node->sim, sim_below(node->sim, NOTICE_MAX_NS), node_lost, node,
              node->to_head.life, NULL);
}

void sim_node_break(struct sim_node *node)
{
    if (!node->to_head.up) {
        return;
    }
    sim_pipe_break(&node->to_head);
    sim_pipe_break(&node->from_head);
    lost_later(node);
    if (node->alive) {
        store_node_session_broke(&node->session);
        connect_later(node);
    }
}

static void cut_peer_gives_up(void *user)
{
    sim_node_break(user);
}

static void cut_head_gives_up(void *user)
{
    sim_head_node_silent(user);
}

static void cut_head_notices(void *user)
{
    lost_later(user);
}

static const struct sim_cut_ops cut_ops = {.peer_gives_up = cut_peer_gives_up,
                                           .head_gives_up = cut_head_gives_up,
                                           .head_notices  = cut_head_notices};

/* -------------------------------------------------------------- death, and the next one */

static bool all_run(const struct sim_node *node)
{
    for (uint32_t i = node->first; i < node->first + node->count; i++) {
        const struct sim_worker *worker = &node->sim->workers[i];

        if (!worker->alive || worker->process.stopped) {
            return false;
        }
    }
    return true;
}

/* Whoever was to come has come. */
static void handed_back(void *user, uint64_t arg, void *data)
{
    struct sim_node *node = user;
    struct sim *sim       = node->sim;

    (void)data;
    if (arg != node->life || node->alive) {
        return; /* its host has died, too */
    }
    sim_trace(sim, "another store begins");
    node->alive = true;
    session_begin(node);
    for (uint32_t i = node->first; i < node->first + node->count; i++) {
        sim_store_adopt(&sim->workers[i]);
    }
    sim_store_look_again(node);
    connect_later(node);
}

static void started(void *user, uint64_t arg, void *data)
{
    struct sim_node *node = user;
    uint64_t wait_ns = all_run(node) ? sim_below(node->sim, HANDED_MAX_NS) : HANDBACK_NS;

    (void)data;
    sim_after(node->sim, wait_ns, handed_back, node, arg, NULL);
}

bool sim_node_settled(const struct sim_node *node)
{
    return node->sim->config.store_early || *session_kept(node) != 0;
}

bool sim_nodes_settled(const struct sim *sim)
{
    for (uint32_t i = 0; sim->config.stores && i < sim_hosts(sim); i++) {
        if (!sim->nodes[i].gone && !sim_node_settled(&sim->nodes[i])) {
            return false;
        }
    }
    return true;
}

void sim_node_end(struct sim_node *node)
{
    bool alive = node->alive;

    node->alive = false;
    node->life++;
    if (alive) {
        store_node_session_finish(&node->session);
    }
    sim_node_break(node);
}

void sim_node_die(struct sim_node *node)
{
    struct sim *sim = node->sim;

    if (!node->alive) {
        return;
    }
    sim_trace(sim, "the store of %s dies", node->name);
    node->away_ns = node->away_ns == 0 ? sim->now_ns : node->away_ns;
    sim_node_end(node);
    sim_after(sim, sim_below(sim, sim_chance(sim, 300) ? DOWN_MAX_NS : CONNECT_MAX_NS),
              started, node, node->life, NULL);
}

uint32_t sim_hosts(const struct sim *sim)
{
    return sim->config.second_host ? 2 : 1;
}

struct sim_node *sim_node_of(const struct sim_worker *worker)
{
    const struct sim_node *second = &worker->sim->nodes[1];
    bool there = sim_hosts(worker->sim) > 1 && worker->host_device >= second->first;

    return &worker->sim->nodes[there ? 1 : 0];
}

void sim_node_init(struct sim_node *node, struct sim *sim, uint32_t index)
{
    uint32_t half = (sim->config.devices + 1) / 2;

    *node = (struct sim_node){.sim    = sim,
                              .index  = index,
                              .name   = index == 0 ? "simhost" : "simhost2",
                              .first  = index == 0 ? 0 : half,
                              .count  = sim_hosts(sim) == 1 ? sim->config.devices
                                        : index == 0        ? half
                                                            : sim->config.devices - half,
                              .memory = SIM_MEMORY + index};
    sim_pipe_init(&node->to_head, sim, sim_head_from_node, node);
    sim_pipe_init(&node->from_head, sim, node_deliver, node);
    sim_cut_init(&node->cut, sim, &node->to_head, &node->from_head, &cut_ops, node);
}

void sim_node_start(struct sim_node *node)
{
    node->life  = 1;
    node->alive = true;
    session_begin(node);
    connect_later(node);
}

void sim_node_begin_anew(struct sim_node *node)
{
    node->alive   = true;
    node->away_ns = 0;
    session_begin(node);
    connect_later(node);
}

void sim_node_finish(struct sim_node *node)
{
    if (node->sim == NULL) {
        return;
    }
    if (node->alive) {
        store_node_session_finish(&node->session);
    }
    sim_pipe_finish(&node->to_head);
    sim_pipe_finish(&node->from_head);
    sim_cut_finish(&node->cut);
}
