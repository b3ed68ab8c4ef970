/*
 * rpc: gRPC C core behind a small face. Bidirectional streams of messages and unary calls; one
 * completion queue and one thread a loop, so that all callbacks of a loop are serial. No policy:
 * what a message means is wire/'s business.
 *
 * TLS is for TCP: Unix sockets and given descriptors stay within a host, and what guards them is
 * who may open them.
 *
 * Within a host, and one network namespace, the messages of streams go through shared memory that
 * the two sides find for themselves (rpc/shm.c); PLASMON_SHM=0 in the environment of either: by
 * gRPC, as between hosts.
 *
 * rpc/loopback.c implements the same rpc_stream face inside one process without gRPC, for the
 * thread sanitizer.
 *
 * Threads: callbacks run on the loop's thread. rpc_stream_send, rpc_loop_post and rpc_stream_close:
 * any thread.
 */
#ifndef RPC_RPC_H
#define RPC_RPC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/base.h"
#include "base/str.h"
#include "trust/trust.h"

/* -------------------------------------------------------------------------------- loops */

struct rpc_loop;
plasmon_status_t rpc_loop_create(struct rpc_loop **out_loop) PL_MUST_CHECK;
/* Either run it in the calling thread until rpc_loop_stop(), or give it a thread of its own. */
void rpc_loop_run(struct rpc_loop *loop);
plasmon_status_t rpc_loop_start(struct rpc_loop *loop,
                                const char *thread_name) PL_MUST_CHECK;
void rpc_loop_stop(struct rpc_loop *loop); /* any thread; returns at once */
/* joins; everything made on it must have been destroyed */
void rpc_loop_destroy(struct rpc_loop *loop);
/* Run fn on the loop's thread soon. Any thread. */
void rpc_loop_post(struct rpc_loop *loop, void (*fn)(void *user), void *user);
/* Called on the loop's thread about every interval_ms while the loop runs. */
void rpc_loop_set_tick(struct rpc_loop *loop, uint32_t interval_ms,
                       void (*tick)(void *user), void *user);
/*
 * Called when the queue of events ran dry, and within a long burst now and then: the moment to send
 * what was batched up.
 */
void rpc_loop_set_idle(struct rpc_loop *loop, void (*idle)(void *user), void *user);
/*
 * Asked while the loop's thread has nothing to do and has not yet fallen asleep: are many things
 * under way, so that what comes may as well come together (base/linger.h)? Without it: no.
 */
void rpc_loop_set_many(struct rpc_loop *loop, bool (*many)(void *user), void *user);

/* ------------------------------------------------------------------------------ streams */

struct rpc_stream;
struct rpc_stream_ops {
    /* One whole message. bytes are lent until return. */
    void (*message)(void *user, struct rpc_stream *stream, const uint8_t *bytes,
                    size_t length);
    /* The write that was in flight is done and nothing is queued: send the next batch now. */
    void (*writable)(void *user, struct rpc_stream *stream);
    /* Last callback. The stream is freed after it returns. status OK: the other side ended it. */
    void (*closed)(void *user, struct rpc_stream *stream, plasmon_status_t status,
                   const char *why);
};
/* Memory for a message, to be filled by the caller and taken by rpc_stream_send (no copy). */
uint8_t *rpc_buffer_create(size_t length) PL_MUST_CHECK;
void rpc_buffer_destroy(uint8_t *buffer); /* one that was not sent */
/*
 * Takes `buffer`, even on failure. Queued behind what is there. EAGAIN: more than
 * RPC_QUEUE_BYTES_MAX are queued; ECLOSED; ELIMIT: longer than this side's message_bytes_max.
 */
#define RPC_QUEUE_BYTES_MAX (64u << 20)
plasmon_status_t rpc_stream_send(struct rpc_stream *stream, uint8_t *buffer,
                                 size_t length) PL_MUST_CHECK;
/*
 * Nothing is queued, and what was sent is with the kernel, or taken by the other side, but for a
 * message; where many things are under way, some time ago, so that what comes now is gathered.
 * false: `writable` follows when that is so.
 */
bool rpc_stream_idle(struct rpc_stream *stream);
/* Do its messages go through shared memory both ways? Loop's thread. */
bool rpc_stream_by_memory(const struct rpc_stream *stream);
/*
 * Ends the stream: `closed` follows, with the same status and why, and no other callback once this
 * was called on the loop's thread. What is queued is still sent (for at most 2 s), except by a
 * client that closes with a status other than OK: that cancels. On a server `status`/`why` reach
 * the client as its close reason; a server sees only OK or ECLOSED.
 */
void rpc_stream_close(struct rpc_stream *stream, plasmon_status_t status, const char *why);
/* The peer's bearer token as it came in the metadata, or "". Server side, valid from `accept` on. */
const char *rpc_stream_token(struct rpc_stream *stream);
/*
 * Which of the server's tokens that was: rpc_server_config.tokens[index]; RPC_TOKEN_CLUSTER;
 * RPC_TOKEN_NONE: none is needed.
 */
#define RPC_TOKEN_CLUSTER (-1)
#define RPC_TOKEN_NONE    (-2)
int rpc_stream_token_index(struct rpc_stream *stream);
/* Whom the peer's certificate names; NULL: it came without TLS, over a socket of this host. Server side. */
const struct trust_identity *rpc_stream_identity(struct rpc_stream *stream);
const char *
rpc_stream_peer(struct rpc_stream *stream); /* "unix:", "ipv4:127.0.0.1:4711", "fd:" */
void rpc_stream_set_user(struct rpc_stream *stream, const struct rpc_stream_ops *ops,
                         void *user);

/* ------------------------------------------------------------------------------- server */

struct rpc_server;
struct rpc_unary; /* one unary call that waits for its answer */
struct rpc_method {
    const char *path; /* "/plasmon.v1.Plasmon/Session" */
    /*
     * Stream methods: a new stream; give it ops with rpc_stream_set_user() before returning. Not OK
     * refuses it.
     */
    plasmon_status_t (*accept)(void *user, struct rpc_stream *stream, struct pl_err *err);
    /* Unary methods: answer now or later with rpc_unary_reply/rpc_unary_fail. */
    void (*unary)(void *user, struct rpc_unary *call, const uint8_t *bytes, size_t length);
    uint32_t roles; /* TRUST_ROLE_: whose certificates are good for it; 0: any's */
    /* not for those who are confined to a namespace, by token or certificate */
    bool whole_cluster;
};
struct rpc_server_config {
    /* "unix:/path", "127.0.0.1:0", "[::]:4711"; NULL-terminated; may be NULL */
    const char *const *addresses;
    /* "" or NULL: none needed. Else every call but health must carry it .. */
    const char *token;
    /* .. or this one, which it was until now; "" or NULL: none. Only with a token */
    const char *token_before;
    /* .. or one of these, confined; NULL-terminated; NULL: none. Lent until destroyed */
    const char *const *tokens;
    /* NULL: TCP is in the clear. Lent until the server is destroyed */
    struct trust_source *tls;
    const struct rpc_method *methods;
    size_t method_count;
    void *user;
    size_t message_bytes_max; /* 0: 8 MiB */
    uint32_t streams_max;     /* 0: 4096 */
    uint32_t handshake_ms;    /* for TLS and the first frames of HTTP/2; 0: 10 s */
};
/* EADDRINUSE names the address. Serves grpc.health.v1 too; unknown methods get UNIMPLEMENTED at once. */
plasmon_status_t rpc_server_create(struct rpc_loop *loop,
                                   const struct rpc_server_config *config,
                                   struct rpc_server **out_server,
                                   struct pl_err *err) PL_MUST_CHECK;
/* The port that ":0" became, for address number `index`; 0 for unix. */
int rpc_server_port(const struct rpc_server *server, size_t index);
/* Serve one connected socket (takes fd). */
plasmon_status_t rpc_server_add_fd(struct rpc_server *server, int fd) PL_MUST_CHECK;
/*
 * Ends every stream with ECLOSED (after a second: cancels), waits, frees; unary calls that were not
 * answered are gone after it. On the loop's thread (rpc_loop_post it to a loop that was started),
 * or when no thread runs the loop.
 */
void rpc_server_destroy(struct rpc_server *server);
void rpc_unary_reply(struct rpc_unary *call, uint8_t *buffer,
                     size_t length); /* takes buffer */
void rpc_unary_fail(struct rpc_unary *call, plasmon_status_t status, const char *why);
int rpc_unary_token_index(struct rpc_unary *call);
const struct trust_identity *rpc_unary_identity(struct rpc_unary *call);

/* ------------------------------------------------------------------------------- client */

struct rpc_channel;
struct rpc_channel_config {
    const char *target;       /* "unix:/path", "host:port", "1.2.3.4:port,5.6.7.8:port" */
    int fd;                   /* used when target is NULL; taken */
    const char *token;        /* NULL: none */
    size_t message_bytes_max; /* 0: 8 MiB */
    struct trust_source *tls; /* NULL: in the clear. Lent until the channel is destroyed */
    bool by_socket;           /* its streams never go through shared memory */
};
plasmon_status_t rpc_channel_create(struct rpc_loop *loop,
                                    const struct rpc_channel_config *config,
                                    struct rpc_channel **out_channel) PL_MUST_CHECK;
void rpc_channel_destroy(
    struct rpc_channel
        *channel); /* after its streams closed; any thread, before its loop is destroyed */
/*
 * Connecting happens in the background (wait-for-ready up to connect_timeout_ms, then closed with
 * ECONNECT and the cause). When one side does not trust the other, waiting does not help: closed
 * with EAUTH and the cause, soon.
 */
plasmon_status_t rpc_stream_open(struct rpc_channel *channel, const char *path,
                                 uint32_t connect_timeout_ms,
                                 const struct rpc_stream_ops *ops, void *user,
                                 struct rpc_stream **out_stream) PL_MUST_CHECK;
/* Blocks the calling thread (not the loop's) up to timeout_ms. *out_bytes is the caller's (pl_free). */
plasmon_status_t rpc_unary_call(struct rpc_channel *channel, const char *path,
                                const uint8_t *bytes, size_t length, uint32_t timeout_ms,
                                uint8_t **out_bytes, size_t *out_length,
                                struct pl_err *err) PL_MUST_CHECK;

/* ----------------------------------------------------------------------------- loopback */

/* Two ends of one stream in this process; both loops may be the same. Same face, no gRPC. */
plasmon_status_t rpc_loopback_create(struct rpc_loop *loop_a, struct rpc_stream **out_a,
                                     struct rpc_loop *loop_b,
                                     struct rpc_stream **out_b) PL_MUST_CHECK;
/* A loop without gRPC for it. */
plasmon_status_t rpc_loopback_loop_create(struct rpc_loop **out_loop) PL_MUST_CHECK;

/* Once a process, before anything else; counted. */
void rpc_init(void);
void rpc_finish(void);
/*
 * This process, or one that it was forked from, is the child of one that gRPC was in use in: its
 * threads are not here, and its epoll descriptor is the parent's, too. rpc_init() would do nothing,
 * and a loop ends the process.
 */
bool rpc_inherited(void);

#endif
