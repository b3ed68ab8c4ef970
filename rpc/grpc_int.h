/*
 * Inside rpc/, for the files that speak to gRPC C core. Its rules that shape this code:
 *
 *   - The thread in grpc_completion_queue_next() is also the one that does the I/O, so a loop's
 *     thread is always in there.
 *   - A call takes one batch at a time from one thread at a time (so: a lock a call), and at most
 *     one send and one receive may be outstanding.
 *   - What an operation fills in belongs to the core until its tag came out of the queue.
 *   - Status says nothing about the other tags of the call: a call is freed when all its batches are back.
 */
#ifndef RPC_GRPC_INT_H
#define RPC_GRPC_INT_H

#include "rpc/ring.h"
#include "rpc/rpc_int.h"

#include <grpc/byte_buffer.h>
#include <grpc/byte_buffer_reader.h>
#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#include <grpc/slice.h>
#include <grpc/status.h>
#include <grpc/support/alloc.h>
#include <grpc/support/log.h>
#include <grpc/support/time.h>

/* What goes through a completion queue. Embedded in what it belongs to. */
struct rpc_tag {
    void (*fn)(struct rpc_tag *tag, bool ok);
};

/* The streams of a loop that have shared memory. Its thread. */
struct rpc_shms {
    struct pl_list list; /* struct rpc_shm, whose turn it is first */
    unsigned count;      /* a server's, also those that do not have it yet */
    unsigned row;        /* messages since gRPC was looked at */
    unsigned others;     /* events that gRPC may have before it is a ring's turn */
    int epoll;           /* of their sockets; -1: there was none yet */
};

struct rpc_loop_grpc {
    struct rpc_loop base;
    struct rpc_shms shms;
    grpc_completion_queue *queue;
    grpc_channel *lame; /* its call exists only to put the wake tag into the queue */
    grpc_call *wake_call;
    struct rpc_tag wake_tag;
    int bell;     /* eventfd */
    bool pausing; /* atomic; until the bell rings */
};
grpc_completion_queue *rpc_loop_queue(struct rpc_loop *loop);
struct rpc_shms *rpc_loop_shms(struct rpc_loop *loop);
/* Something was put into the queue: who pauses looks now. Any thread. */
void rpc_loop_ring(struct rpc_loop *loop);

gpr_timespec rpc_deadline_ns(uint64_t deadline_ns);
gpr_timespec rpc_deadline_ms(uint32_t after_ms);

/* The descriptor by which gRPC waits for what comes over its sockets; -1: it is not known. */
int rpc_events_fd(void);
/* Start and end of gRPC, which find it. */
void rpc_events_init(void);
void rpc_events_finish(void);
bool rpc_events_inherited(void);

/* ------------------------------------------------------------------ status and metadata */

grpc_status_code rpc_status_to_grpc(plasmon_status_t status);
/* Our own number travels beside gRPC's: trailing metadata "plasmon-status". */
#define RPC_STATUS_KEY "plasmon-status"
plasmon_status_t rpc_status_of_call(grpc_status_code code,
                                    const grpc_metadata_array *trailing, bool connected);
/* Batch op that ends a server's call. `storage` and the slice in it must live until the batch was started. */
struct rpc_status_storage {
    grpc_metadata metadata;
    grpc_slice details;
    char number[16];
};
grpc_op rpc_status_op(struct rpc_status_storage *storage, plasmon_status_t status,
                      const char *why);
void rpc_status_storage_finish(struct rpc_status_storage *storage);

char *rpc_text_of_slice(grpc_slice slice); /* a copy, pl_free */
/* A copy, pl_free; NULL: there is no such key (or no memory). */
char *rpc_text_of_metadata(const grpc_metadata_array *metadata, const char *key);
/* The bearer token in `metadata`, a copy; NULL: none. false: no memory for it. */
bool rpc_token_of_metadata(const grpc_metadata_array *metadata, char **out_token);
/* Takes as long for a wrong token as for a right one of its length. */
bool rpc_token_equal(const char *want, const char *got);

/* -------------------------------------------------------------------------------- bytes */

/* A byte buffer that owns `buffer`. */
grpc_byte_buffer *rpc_bytes_of_buffer(struct rpc_buffer *buffer);
/* A received message as one piece. */
struct rpc_received {
    grpc_byte_buffer_reader reader;
    grpc_slice whole; /* when it came in several pieces */
    bool copied;
    const uint8_t *bytes;
    size_t length;
};
bool rpc_received_open(struct rpc_received *received, grpc_byte_buffer *buffer);
void rpc_received_close(struct rpc_received *received);

/* -------------------------------------------------------------------- streams over gRPC */

enum rpc_ending {
    RPC_ENDING_NOT,
    RPC_ENDING_FLUSH, /* rpc_stream_close() was called: when the queue is empty, the last operation starts */
    RPC_ENDING_STARTED, /* it has, or the call was cancelled */
};

struct rpc_stream_grpc {
    struct rpc_stream base;
    bool server;
    size_t message_bytes_max;
    grpc_call *call;

    /* rank PL_RANK_RPC; guards starting batches, and the rest of this block */
    struct pl_mutex lock;
    struct rpc_queue queue;
    bool open; /* initial metadata are on their way: messages may be sent */
    bool sending;
    enum rpc_ending ending;
    bool over;        /* the core told how the call ended */
    unsigned batches; /* in flight, and one more while a callback runs */
    bool closed_here; /* by rpc_stream_close(), which then said: */
    plasmon_status_t status;
    char *why; /* owned; NULL: "" */

    /* client: initial metadata both ways; server: initial metadata sent */
    struct rpc_tag first_tag;
    struct rpc_tag end_tag; /* client: status; server: closed */
    struct rpc_tag recv_tag;
    struct rpc_tag send_tag;
    struct rpc_tag last_tag; /* client: half-close; server: status sent */
    grpc_byte_buffer *received;
    struct rpc_late again; /* the next receive; counts as a batch while it is to come */
    struct rpc_timer linger;
    struct rpc_shm *shm; /* owned; NULL: none, or not yet */
    bool shm_declined;   /* client: LEAVE is to be sent, and there is no memory for `shm` */

    /* Client only. */
    struct rpc_channel *channel;
    struct rpc_timer connect;
    uint32_t connect_timeout_ms;
    uint32_t doubt_ms; /* of these, until the first look at why it takes so long */
    bool doubted;
    grpc_metadata_array initial;
    grpc_metadata_array trailing;
    grpc_status_code code;
    grpc_slice details;

    /* Server only. */
    int cancelled;
    /* counted apart: who has no token cannot take the streams of others */
    bool open_to_all;
    struct rpc_server *owner;
    struct pl_list link; /* in owner->streams */
};

extern const struct rpc_stream_impl rpc_stream_grpc_impl;
plasmon_status_t rpc_stream_grpc_init(struct rpc_stream_grpc *stream, struct rpc_loop *loop,
                                      bool server, size_t message_bytes_max) PL_MUST_CHECK;
/*
 * Start a batch of the stream's call; counts it. The core refuses only what is against its rules:
 * that stops the program.
 */
void rpc_stream_batch_locked(struct rpc_stream_grpc *stream, const grpc_op *ops,
                             size_t count, struct rpc_tag *tag);
void rpc_stream_receive_locked(struct rpc_stream_grpc *stream);
/* Send the next message, or end, if it is time. */
void rpc_stream_kick_locked(struct rpc_stream_grpc *stream);
/* The core told how the call ended (unless closed here, with `status` and `why`): nothing more is sent. */
void rpc_stream_over_locked(struct rpc_stream_grpc *stream, plasmon_status_t status,
                            const char *why);
/* One batch is back: frees the stream, after `closed`, if it was the last. Unlocks. */
void rpc_stream_batch_done_unlock(struct rpc_stream_grpc *stream);
/* The last operation of each kind of stream, and what only it has to free. */
void rpc_stream_client_half_close_locked(struct rpc_stream_grpc *stream);
void rpc_stream_client_finish(struct rpc_stream_grpc *stream);
void rpc_stream_server_send_status_locked(struct rpc_stream_grpc *stream);
void rpc_stream_server_finish(struct rpc_stream_grpc *stream);

/* From look(), on the loop's thread: the ring holds a message, or room for what waits. */
void rpc_stream_shm_message(struct rpc_stream_grpc *stream);
void rpc_stream_shm_room(struct rpc_stream_grpc *stream);
/*
 * All messages that are in the ring now, before one that gRPC brought and before the end. Loop's
 * thread.
 */
void rpc_stream_shm_all(struct rpc_stream_grpc *stream);

/* -------------------------------------------------------------------------------- shm.c */

/* Of a loop's servers, for each has a descriptor and 256 KiB of memory; others go by gRPC. */
#define RPC_SHMS_MAX         64u
#define RPC_SHM_SECRET_BYTES 33u /* with its 0 */
enum rpc_shm_signal { RPC_SHM_COME, RPC_SHM_SWITCH, RPC_SHM_BELL, RPC_SHM_LEAVE };

/* Of one stream; what brings it about, and then what is there; or nothing, when this side left. */
struct rpc_shm {
    struct rpc_stream_grpc *stream;
    struct pl_list link;      /* in its loop's list, once mapped */
    struct rpc_shms *counted; /* NULL: a client's */
    int listener;             /* a server's, until the client has come */
    int socket;               /* the client's connection */
    char secret[RPC_SHM_SECRET_BYTES];
    void *memory;          /* mapped; NULL: not yet */
    struct rpc_ring_in in; /* loop's thread */
    bool in_open;          /* loop's thread: its messages count */
    bool due; /* atomic: room() is to be called when the other side caught up */
    /* Guarded by the stream's lock. */
    struct rpc_ring_out out;
    uint64_t put_ns;  /* atomic: when the last message was put */
    bool out_open;    /* messages go there */
    unsigned signals; /* bits of rpc_shm_signal: to be sent by gRPC */
};
/* Loop's thread, or none runs it; NULL is fine. */
void rpc_shm_destroy(struct rpc_shm *shm);
/* Client, in the call's first metadata; false: not here. */
bool rpc_shm_ask(grpc_metadata *out);
/*
 * Server, to what was asked: its answer, whose value is the caller's. false: none. Loop's thread,
 * as all that follow here.
 */
bool rpc_shm_offer_locked(struct rpc_stream_grpc *stream,
                          const grpc_metadata_array *metadata, grpc_metadata *out);
/* Client, to what was offered. */
void rpc_shm_answer_locked(struct rpc_stream_grpc *stream,
                           const grpc_metadata_array *metadata);
/* LEAVE. The caller's. */
grpc_byte_buffer *rpc_shm_leave(void);
/* One of the signals that are due, which is not any more. The caller's. */
grpc_byte_buffer *rpc_shm_signal_locked(struct rpc_shm *shm);
/* false: it is a message. */
bool rpc_shm_signal_take(struct rpc_stream_grpc *stream, const uint8_t *bytes,
                         size_t length);
void rpc_shm_put_locked(struct rpc_shm *shm); /* messages were put: rouses */
/* After the ring has moved: kick the stream then, for it may be by a signal. Any thread. */
void rpc_shm_rouse_locked(struct rpc_shm *shm);
/*
 * Has the other side taken all but one message? And has it been some time since that was put, where
 * many things are under way? false: room() is called when that is so. Any thread.
 */
bool rpc_shm_idle_locked(struct rpc_shm *shm);
void rpc_shms_init(struct rpc_shms *all);
void rpc_shms_finish(struct rpc_shms *all);
/*
 * Handles one message, or one room. false: there is nothing, or it is time for gRPC. What is called
 * may free its stream.
 */
bool rpc_shms_look(struct rpc_shms *all);
/* The loop will rest. false: there is something, and it will not. */
bool rpc_shms_rest(struct rpc_shms *all, enum rpc_rest rest);
void rpc_shms_rise(struct rpc_shms *all);
void rpc_shms_pass(struct rpc_shms *all);  /* gRPC has nothing */
void rpc_shms_drain(struct rpc_shms *all); /* its epoll said that there is something */

/* ----------------------------------------------------------------------------- channels */

struct rpc_channel {
    struct rpc_loop *loop;
    char *target;             /* for error texts */
    char *uri;                /* the same, as the core calls it */
    bool tcp;                 /* there is a target, and it is no Unix socket */
    struct trust_source *tls; /* NULL: in the clear; only with tcp */
    size_t message_bytes_max;
    bool watched; /* not those over a descriptor: the core has no states for them */
    grpc_metadata metadata[2]; /* authorization, if has_token; rpc_shm_ask() */
    bool has_token;
    bool asks; /* its streams, for shared memory */
    struct rpc_tag watch_tag;
    struct pl_mutex lock;    /* rank PL_RANK_RPC; guards what follows */
    grpc_channel *channel;   /* replaced when there are new certificates */
    struct trust_pems *pems; /* held: what it was made with; NULL: in the clear */
    bool destroyed;          /* the watch, when it comes back, frees */
};
/* From now on with the certificates that are in the files now. Before a stream is opened. */
void rpc_channel_refresh(struct rpc_channel *channel);
/* EAUTH: one side does not trust the other, and why. OK: that is not it. Blocks, at most for timeout_ms. */
plasmon_status_t rpc_channel_mistrust(struct rpc_channel *channel, uint32_t timeout_ms,
                                      struct pl_err *err);
/* A call for `path`; below, the op that sends its first metadata. */
grpc_call *rpc_channel_call(struct rpc_channel *channel, grpc_completion_queue *queue,
                            const char *path, gpr_timespec deadline);
/* Of a stream, which waits for a connection. */
grpc_op rpc_channel_stream_metadata_op(struct rpc_channel *channel);
/*
 * Why is there no connection? Tells one that is silent from one that is not there, and asks the
 * core; blocks for some tenths of a second.
 */
void rpc_channel_explain(struct rpc_channel *channel, struct pl_err *err,
                         uint32_t waited_ms);

/* ------------------------------------------------------------------------------ servers */

/* What the core was given last for one address, so that it is told of new certificates only. */
struct rpc_tls_listener {
    struct trust_source *source; /* lent; NULL: in the clear */
    /* rank PL_RANK_RPC; guards pems, since the core asks on threads of its own */
    struct pl_mutex lock;
    struct trust_pems *pems; /* held */
};

struct rpc_address {
    char *text; /* owned */
    struct rpc_tls_listener tls;
    int port;    /* 0: unix */
    int lock_fd; /* unix path: held flock, -1 */
    char *lock_path;
};

struct rpc_server_method {
    struct rpc_server *server;
    const char *path; /* owned by path_copy */
    char *path_copy;
    plasmon_status_t (*accept)(void *user, struct rpc_stream *stream, struct pl_err *err);
    void (*unary)(void *user, struct rpc_unary *call, const uint8_t *bytes, size_t length);
    void *user;
    uint32_t roles;
    bool whole_cluster;
    bool open_to_all; /* health: no token needed */
    void *handle;     /* of the core */
};

struct rpc_server {
    struct rpc_loop *loop;
    grpc_server *server;
    char *token;               /* owned; "" : none needed */
    char *token_before;        /* owned; "" : none */
    const char *const *tokens; /* lent; NULL: no more */
    struct trust_source *tls;  /* lent; NULL: in the clear */
    size_t message_bytes_max;
    uint32_t streams_max;
    uint32_t handshake_ms;
    bool by_descriptor;                /* it listens nowhere: connections are given to it */
    bool receives;                     /* strangers wait in the room */
    struct rpc_server_method *methods; /* the user's, then health */
    size_t method_count;
    struct rpc_address *addresses;
    size_t address_count;

    /* Loop's thread. */
    struct pl_list streams;
    struct pl_list unaries;
    uint32_t stream_count;
    uint32_t health_count; /* streams that need no token */
    uint32_t unary_count;
    size_t slot_count; /* posted requests */
    bool shut_down;    /* the core is done with it */
    bool closing;
    bool impatient; /* waited long enough for calls to end well */
    struct rpc_tag shutdown_tag;
    struct rpc_timer patience;
};

/* Listen on `text`; EADDRINUSE, EPERM, ... with the address in err. */
plasmon_status_t rpc_address_listen(struct rpc_address *address, struct rpc_server *server,
                                    const char *text, struct pl_err *err) PL_MUST_CHECK;
void rpc_address_finish(struct rpc_address *address);

/*
 * Both take the call and what the core gave with it, and never fail outwardly: what cannot be
 * served is refused.
 */
void rpc_server_accept_stream(struct rpc_server_method *method, grpc_call *call,
                              const grpc_metadata_array *metadata);
void rpc_server_accept_unary(struct rpc_server_method *method, grpc_call *call,
                             const grpc_metadata_array *metadata,
                             grpc_byte_buffer *payload);
/*
 * May this call go on? By its token and the certificate behind its connection. EAUTH: why not, and
 * what to do. *out_identity is owned; NULL: there is none.
 */
plasmon_status_t rpc_server_check(const struct rpc_server_method *method, grpc_call *call,
                                  const char *token, int *out_token_index,
                                  struct trust_identity **out_identity, struct pl_err *err);
/* Which token it is; all are looked at, whichever it is. false: none of ours, and one is needed. */
bool rpc_server_token_find(const struct rpc_server *server, const char *token,
                           int *out_index);
/* ---- tls.c */
/* The listener must stay until the core's server is destroyed. */
grpc_server_credentials *rpc_tls_server_credentials(struct rpc_tls_listener *listener);
/* targets: of which one is asked for; NULL: the core looks at the one name itself. */
grpc_channel_credentials *rpc_tls_channel_credentials(const struct trust_pems *pems,
                                                      const char *targets);
/* Of the other side of a call. *out_identity NULL: not over TLS. EAUTH: its certificate cannot be read. */
plasmon_status_t rpc_tls_identity(grpc_call *call, struct trust_identity **out_identity,
                                  struct pl_err *err);
/* Ends a call that nobody else knows of. Takes it. */
void rpc_server_refuse(struct rpc_server *server, grpc_call *call, grpc_status_code code,
                       plasmon_status_t status, const char *why);
void rpc_unary_abandon(struct rpc_unary *call); /* by a server that goes away */
struct rpc_unary *rpc_unary_of_link(struct pl_list *link);

/* grpc.health.v1 */
#define RPC_HEALTH_METHODS 2
void rpc_health_methods(struct rpc_server_method out[RPC_HEALTH_METHODS],
                        struct rpc_server *server);

#endif
