/*
 * The head as a process: gRPC around the state machine. One loop, one thread: every callback of every stream runs on it, so nothing
 * here is locked.
 *
 *   serve.c          making it, the idle step (flush, acks), ticks
 *   serve_link.c     frames: header + body, numbering, resending
 *   serve_clients.c  Session streams
 *   serve_workers.c  Work streams
 *   serve_nodes.c    Node streams
 *   serve_status.c   Status and Functions
 *   serve_drain.c    Drain, and stores that leave
 *   main.c           options, signals, the control socket of the embedded default
 */
#ifndef HEAD_SERVE_H
#define HEAD_SERVE_H

#include "base/list.h"
#include "base/map.h"
#include "head/core.h"
#include "rpc/rpc.h"
#include "wire/wire.h"

enum {
    SERVE_KEPT_BYTES_MAX = 1 << 30, /* unacknowledged bytes to one peer */
    SERVE_TICK_MS        = 100,
    SERVE_CREDIT_STEP =
        4096, /* tasks; less credit than this waits for a frame or a tick to carry it */
    SERVE_DEVICES_WAIT_MS =
        30000, /* how long a client's welcome waits for devices that are starting */
    SERVE_STATS_WAIT_MS = 500, /* how long a status waits for figures of the workers */
    SERVE_NODE_LEASE_MS = 10000,
    SERVE_STORE_WAIT_MS = 10000, /* how long a worker's hello waits for that of its store */
};

/* One end of a session, with a client or a worker. stream is NULL while the connection is broken. */
struct serve_peer {
    struct rpc_stream *stream;
    struct wire_link link;
    uint64_t session;
    bool ended; /* close it when what was sent is out */
    uint64_t credit_told;
};

/* A first frame that has to wait; bytes NULL: none does. */
struct serve_hello {
    uint8_t *bytes;
    size_t length;
    uint64_t since_ms;
};

struct serve_client {
    struct serve_peer peer;
    struct serve *serve;
    struct pl_list link;
    struct serve_hello hello; /* waits for devices */
};

struct serve_worker {
    struct serve_peer peer;
    struct serve *serve;
    struct pl_list link;
    uint32_t device; /* UINT32_MAX: has not said hello */
    uint32_t host_device;
    uint32_t incarnation;
    char *host;
    struct serve_hello hello; /* waits for that of its store, which gives the numbers */
};

struct serve_node {
    struct serve *serve;
    struct rpc_stream *stream; /* NULL: it is away since lost_ms */
    uint64_t lost_ms;
    struct pl_list link;
    char *host;
    char *name;
    char *store_socket;
    uint64_t in_seq;
    uint64_t out_seq;
    uint64_t session;
    bool leaving;   /* it said that it is about to end */
    bool left_told; /* it was told that it may */
};

struct serve_status {
    struct rpc_unary *call;
    uint64_t request;
    uint64_t deadline_ms;
    uint32_t missing;
    bool detail;
    struct pl_list link;
};

struct serve_config {
    const char *const *addresses; /* NULL-terminated; may be NULL */
    const char *token;
    struct trust_source *trust; /* NULL: TCP in the clear; lent */
    const char *policy;
    enum head_transfer transfer;
    bool embedded;
    uint32_t window;
    uint32_t node_lease_ms; /* a store that is away for longer is given up */
};

struct serve {
    struct serve_config config;
    struct rpc_loop *loop;
    struct rpc_server *server;
    struct head_core *core;
    struct wire_arena arena; /* decoding; reset for each message */
    struct pl_list clients;  /* serve_client, with or without a stream */
    struct pl_list workers;
    struct pl_list nodes;
    struct pl_list statuses;
    uint64_t epoch;
    uint64_t core_ns; /* CPU of this thread inside the core */
    uint64_t stats_request;
    uint64_t session_last;
};

plasmon_status_t serve_create(struct rpc_loop *loop, const struct serve_config *config,
                              struct serve **out_serve, struct pl_err *err) PL_MUST_CHECK;
void serve_destroy(struct serve *serve); /* after the loop stopped */
plasmon_status_t serve_add_fd(struct serve *serve, int fd) PL_MUST_CHECK; /* takes fd */
uint64_t serve_now_ms(void);
/* For a worker or a store; no other head ever drew the same. */
uint64_t serve_session_new(struct serve *serve);
/* Why a peer that says hello with a session is not known here. EHEADLOST */
plasmon_status_t serve_session_unknown(const struct serve *serve, uint64_t its_epoch,
                                       const char *whose, struct pl_err *err);

/* ---- serve_link.c */
/* Frame = header (field 1) + body. Numbered and kept when numbered is true. */
void serve_peer_send(struct serve *serve, struct serve_peer *peer, uint64_t credit,
                     const uint8_t *body, size_t length, bool numbered);
void serve_peer_resend(struct serve_peer *peer, uint64_t from);
void serve_peer_close(struct serve_peer *peer, plasmon_status_t status, const char *why);

/* For a stream whose peer has moved to another one: only its end is still to come. */
extern const struct rpc_stream_ops serve_orphan_ops;

/* ---- the four services */
plasmon_status_t serve_client_accept(void *user, struct rpc_stream *stream,
                                     struct pl_err *err);
plasmon_status_t serve_worker_accept(void *user, struct rpc_stream *stream,
                                     struct pl_err *err);
plasmon_status_t serve_node_accept(void *user, struct rpc_stream *stream,
                                   struct pl_err *err);
void serve_status_call(void *user, struct rpc_unary *call, const uint8_t *bytes,
                       size_t length);
/* Answer a unary call. */
void serve_reply(struct rpc_unary *call, const ProtobufCMessage *message);
void serve_functions_call(void *user, struct rpc_unary *call, const uint8_t *bytes,
                          size_t length);
void serve_status_stats(struct serve *serve, uint64_t request); /* one worker answered */
void serve_status_tick(struct serve *serve, uint64_t now_ms);
void serve_clients_tick(struct serve *serve, uint64_t now_ms); /* welcomes that waited */
struct serve_client *serve_client_of(struct serve *serve, uint64_t session);
struct serve_worker *serve_worker_of(struct serve *serve, uint32_t device);
bool serve_devices_ready(const struct serve *serve);
bool serve_host_known(const struct serve *serve,
                      const char *host);                     /* has its store said hello? */
void serve_nodes_tick(struct serve *serve, uint64_t now_ms); /* leases */
/* The worker's device is gone: its connection ends with this text, and its session is forgotten. Of one, or of all devices of the host. */
void serve_worker_drop(struct serve *serve, const char *host, uint32_t host_device,
                       const char *why);
void serve_workers_drop(struct serve *serve, const char *host, const char *why);
void serve_workers_tick(struct serve *serve, uint64_t now_ms); /* hellos that waited */
/* A first frame is put aside, and taken out again (the caller frees the bytes). */
void serve_hello_keep(struct serve_hello *hello, const uint8_t *bytes, size_t length);
const char *serve_store_socket(const struct serve *serve,
                               const char *host); /* "" when there is none */
void serve_client_free(struct serve_client *client);
void serve_worker_free(struct serve_worker *worker);
void serve_node_free(struct serve_node *node);
void serve_node_fence(struct serve *serve, uint32_t device);
void serve_node_tell_left(struct serve_node *node, const struct head_drain_report *report);

/* serve_drain.c */
void serve_drain_call(void *user, struct rpc_unary *call, const uint8_t *bytes,
                      size_t length);
void serve_node_leave(struct serve_node *node, uint32_t deadline_ms);
void serve_drain_tick(struct serve *serve);

#endif
