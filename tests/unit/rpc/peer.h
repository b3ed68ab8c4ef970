/*
 * What the tests of rpc/ share: a pair of ends (client and server, each on a loop with a thread)
 * over any transport, and a recorder of what an end hears. Waiting is on conditions with a
 * deadline.
 */
#ifndef TESTS_UNIT_RPC_PEER_H
#define TESTS_UNIT_RPC_PEER_H

#include "base/lock.h"
#include "rpc/rpc.h"

enum peer_transport {
    PEER_UNIX,
    PEER_GRPC, /* the same without shared memory */
    PEER_TCP,
    PEER_FD,
    PEER_LOOPBACK, /* with loops that have no gRPC */
    PEER_TRANSPORTS,
};

/* What one end of a stream heard. The fields below lock are guarded by it; changed is signalled with each. */
struct peer_end {
    struct rpc_stream *stream; /* NULL again once closed */
    /* Called for each message, on the loop's thread, after it was counted; may be NULL. */
    void (*on_message)(struct peer_end *end, const uint8_t *bytes, size_t length);
    void (*on_writable)(struct peer_end *end);
    void *user;

    struct pl_mutex lock;
    struct pl_cond changed;
    uint64_t messages;
    uint64_t bytes;
    uint64_t writable;
    uint64_t closed;       /* times */
    uint64_t after_closed; /* callbacks that came too late: must stay 0 */
    plasmon_status_t status;
    char why[512];
};
void peer_end_init(struct peer_end *end);
void peer_end_finish(struct peer_end *end);
/* Until *field (one of end's) is at least `value`; fails the test after `ms`. */
void peer_idle_wait(struct peer_end *end, unsigned ms); /* until rpc_stream_idle() */
void peer_end_wait(struct peer_end *end, const uint64_t *field, uint64_t value,
                   unsigned ms);
extern const struct rpc_stream_ops peer_ops; /* user: struct peer_end */
void peer_echo(struct peer_end *end, const uint8_t *bytes,
               size_t length); /* an on_message */
plasmon_status_t peer_send(struct peer_end *end, const void *bytes, size_t length);

/* Everything for one client and one server. */
struct peer_pair {
    enum peer_transport transport;
    struct rpc_loop *client_loop;
    struct rpc_loop *server_loop;
    struct rpc_server *server;
    struct rpc_channel *channel;
    char dir[64]; /* of the Unix socket; "" if none */
    char address[128];
    struct peer_end client;
    struct peer_end served;  /* the server's end of the first stream */
    plasmon_status_t refuse; /* accept() answers so */
    struct pl_mutex lock;
    struct pl_cond changed;
    uint64_t accepted; /* guarded by lock */
};
struct peer_options {
    const char *server_token;
    const char *client_token;
    size_t server_bytes_max;
    size_t client_bytes_max;
    void (*served_message)(struct peer_end *end, const uint8_t *bytes, size_t length);
    bool client_waits; /* its loop is started by the test */
};
/* Starts loops and server, and a channel. Fails the test if it cannot. */
void peer_pair_start(struct peer_pair *pair, enum peer_transport transport,
                     const struct peer_options *options);
/* Opens the client's stream of the pair, to path "/test.Test/Echo". */
void peer_pair_open(struct peer_pair *pair);
void peer_pair_stop(
    struct peer_pair
        *pair); /* in the order that programs use: streams, channel, server, loops */

/* A fresh folder in /tmp and its removal. */
void peer_dir_create(char out[64]);
void peer_dir_destroy(const char *dir);
/* Run fn on the loop's thread and wait for it. */
void peer_run_on(struct rpc_loop *loop, void (*fn)(void *user), void *user);

#endif
