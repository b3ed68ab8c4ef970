/*
 * What a store says to the head, and what it owes it: hello, numbers, deaths of workers, results of
 * spilling. Decisions only: no socket, no thread, no clock. node.c does the rest.
 *
 * Each connection counts its frames from 1. What the head must know is kept until it has
 * acknowledged the frame that carried it, and goes out again on the next connection otherwise. A
 * death names device and incarnation, so telling it twice does no harm; a quarantine is told on
 * every connection, because a new head does not know of it. At most DOWNS_KEPT_MAX deaths are kept.
 *
 * A hello names the memory of our devices (store/host.h), by which the head knows us: from the
 * first hello on, whether we heard its answer or not, and whichever process of the host has that
 * memory by then. A head that welcomes us with another session than the last one does not know us
 * any more - it was started anew, or has given us up - and has told our workers the same, each of
 * which ends, is started again and drops what lay there (worker/daemon.c). So nothing is to be done
 * here but to forget what the last one had asked for.
 *
 * Seeded bugs: store.memory_forgotten (a store that was welcomed names another memory).
 *
 * Threads: owner only.
 */
#ifndef STORE_NODE_SESSION_H
#define STORE_NODE_SESSION_H

#include "base/vec.h"
#include "store/daemon.h"
#include "store/spill.h"
#include "wire/wire.h"

/* What the head is told of our part in spilling, at every hello. All 0: none. */
struct store_node_offer {
    uint64_t memory_bytes;
    uint64_t file_bytes;
    uint64_t life;
    uint64_t slab;
    struct store_spill_ahead ahead;
};

struct store_node_session_ops {
    uint8_t *(*buffer)(size_t length);
    /* Takes the bytes. If they go nowhere the connection ends. */
    void (*send)(void *user, uint8_t *bytes, size_t length);
    void (*event)(void *user, enum store_uplink_event event, uint32_t host_device,
                  uint32_t incarnation);
    /* Welcomed; known: as who it was before. */
    void (*joined)(void *user, uint64_t session, bool known, const char *cluster);
    void (*offer)(void *user, struct store_node_offer *out);
    void (*spill)(void *user, const struct store_spill_op *op);
    bool (*spilled)(void *user, struct store_spill_result *out); /* the next result */
};

struct store_node_session {
    /* Constant. Texts are lent. */
    const struct store_node_session_ops *ops;
    void *user;
    const char *host;
    const char *name;
    const char *store_socket;
    uint32_t devices;
    uint64_t memory; /* which one it is */

    uint64_t joined; /* session of the last welcome; 0: there was none */
    bool welcomed;   /* this connection */
    bool journal;    /* of the last welcome: another head may go on where that one ends */
    uint64_t epoch;
    uint64_t session;
    uint64_t out_seq;
    uint64_t in_seq;
    uint64_t in_acked;
    uint64_t beat;
    /* of store_uplink_down and the frame that carried it, oldest first */
    struct pl_vec downs;
    struct pl_vec results; /* likewise of store_spill_result */
};

/* joined: what the head called the store before us; 0: there was none. */
void store_node_session_init(struct store_node_session *session,
                             const struct store_node_session_ops *ops, void *user,
                             uint64_t joined);
void store_node_session_finish(struct store_node_session *session);
/* A connection has been opened: says hello. */
void store_node_session_begin(struct store_node_session *session);
void store_node_session_broke(struct store_node_session *session);
/* A frame of the head, checked by wire. false: the connection makes no sense any more. */
bool store_node_session_take(struct store_node_session *session,
                             const Plasmon__V1__NodeCommand *command);
void store_node_session_down(struct store_node_session *session,
                             const struct store_uplink_down *down);
/* What this connection has not carried yet. */
void store_node_session_send_owed(struct store_node_session *session);
bool store_node_session_owes_ack(const struct store_node_session *session);
void store_node_session_beat(struct store_node_session *session);
/* Have the head move what lies only here. false: it cannot be asked on this connection, or not yet. */
bool store_node_session_leave(struct store_node_session *session, uint32_t deadline_ms);

#endif
