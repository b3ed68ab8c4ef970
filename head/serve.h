/*
 * The head as a process: gRPC around the machine (machine.h). One loop, one thread: every callback
 * of every stream runs on it, so nothing here is locked. What outlives a connection is in the
 * machine; what is here lives as long as its stream.
 *
 *   serve.c          making it, the idle step (flush, acknowledgements, commit), ticks
 *   serve_gate.c     what is put out waits for the journal
 *   serve_checkpoint.c  cutting the journal down
 *   serve_recover.c  beginning: from nothing, or from a journal
 *   serve_clients.c  Session streams
 *   serve_workers.c  Work streams
 *   serve_nodes.c    Node streams
 *   serve_status.c   Status and Functions, and the figures that metrics.h tells
 *   serve_list.c     List
 *   serve_drain.c    Drain, and stores that leave
 *   main.c           options, signals, the control socket of the embedded default
 */
#ifndef HEAD_SERVE_H
#define HEAD_SERVE_H

#include "base/list.h"
#include "base/map.h"
#include "head/journal.h"
#include "head/machine.h"
#include "head/namespaces.h"
#include "rpc/rpc.h"
#include "wire/wire.h"

enum {
    SERVE_KEPT_BYTES_MAX        = 1 << 30, /* unacknowledged bytes to one worker */
    SERVE_CLIENT_KEPT_BYTES_MAX = 256
                                  << 20, /* to one client: 16 gets by messages at a time */
    SERVE_LOG_BYTES_MAX = 32 << 20,      /* replayed in a second */
    SERVE_TICK_MS       = 100,
    SERVE_TICK_IDLE_MS  = 1000,  /* with a journal */
    SERVE_GRACE_MS      = 60000, /* after a restart, before leases run */
    /* tasks; less credit than this waits for a frame or a tick to carry it */
    SERVE_CREDIT_STEP = 4096,
    /* how long a client's welcome waits for devices that are starting */
    SERVE_DEVICES_WAIT_MS      = 30000,
    SERVE_MORE_DEVICES_WAIT_MS = 8000, /* and where there is one already */
    /* between questions for what transfers did, while there is work */
    SERVE_RATES_MS = 1000,
    /* how long it may store nothing before people are told */
    SERVE_JOURNAL_SILENT_MS = 1000,
    SERVE_STATS_WAIT_MS     = 500, /* how long a status waits for figures of the workers */
    /* and for a sign of life of the stores: one that is only busy gives it */
    SERVE_NODES_WAIT_MS = 1000,
    SERVE_LOOKS = 1024, /* at refs, for `plasmon memory`, before others have their turn */
    SERVE_HELLO_MS      = 10000, /* how long a stream may be there without its hello */
    SERVE_NODE_LEASE_MS = 10000,
    SERVE_STORE_WAIT_MS = 10000, /* how long a worker's hello waits for that of its store */
};

/* A first frame that has to wait; bytes NULL: none does. */
struct serve_hello {
    uint8_t *bytes;
    size_t length;
    uint64_t since_ms;
};

struct serve_client {
    struct serve *serve;
    struct rpc_stream *stream;
    uint64_t session;  /* 0: has not said hello, or that one waits */
    uint64_t since_ms; /* it is there */
    bool ended;        /* close it when what was sent is out */
    struct pl_list link;
    struct pl_list late;      /* frames that wait for a checkpoint (serve_checkpoint.c) */
    struct serve_hello hello; /* waits for devices */
};

struct serve_worker {
    struct serve *serve;
    struct rpc_stream *stream;
    struct pl_list link;
    uint32_t device;          /* UINT32_MAX: has not said hello, or that one waits */
    uint64_t since_ms;        /* it is there */
    struct serve_hello hello; /* waits for that of its store, which gives the numbers */
};

struct serve_node {
    struct serve *serve;
    struct rpc_stream *stream;
    struct pl_list link;
    char *host;        /* NULL: has not said hello */
    uint64_t since_ms; /* it is there */
    char *name;
    uint64_t in_seq; /* of this connection */
    uint64_t out_seq;
    uint64_t session;
    bool left_told; /* it was told that it may leave */
};

struct serve_status {
    struct rpc_unary *call; /* NULL: for serve_config.metrics */
    uint64_t request;
    uint64_t deadline_ms;
    uint32_t missing;
    bool detail;
    bool waits;
    char *host;          /* of the caller, who wants to know its store; ours */
    char *label;         /* holders: of those with this alone; ours */
    bool holders;        /* they are wanted, too .. */
    bool holders_waited; /* .. and nothing else is missing .. */
    bool holders_looked; /* .. and serve.holders began after it asked */
    const char *only;    /* the namespace that the caller is confined to; NULL: none */
    uint8_t *list;       /* a ListRequest for nodes, which is what is asked for; ours */
    size_t list_length;
    struct pl_list link;
};

struct serve_config {
    const char *const *addresses; /* NULL-terminated; may be NULL */
    const char *token;
    const char *token_before;                 /* that is taken as well; "" or NULL: none */
    struct trust_source *trust;               /* NULL: TCP in the clear; lent */
    const struct head_namespaces *namespaces; /* none in it: any are taken; lent */
    const char *policy;
    enum head_transfer transfer;
    bool embedded;
    uint32_t window;
    uint64_t lineage_bytes; /* head/lineage.h */
    uint64_t shadow_bytes;  /* head/shadow.c */
    uint64_t nccl_bytes;    /* head/comm.h; 0: 4 GiB */
    uint32_t reach_wait_ms; /* head/reach.c; 0: HEAD_REACH_WAIT_MS */
    uint32_t node_lease_ms; /* a store that is away for longer is given up */
    uint32_t hello_wait_ms; /* how long a stream may be there without its hello; 0: 10 s */
    /* to whom serve_status_metrics() answers; NULL: nobody asks; lent */
    struct head_metrics *metrics;
    struct head_journal *journal; /* of serve_begin(); NULL: none */
    uint64_t log_bytes_max;       /* of the journal, between two checkpoints; 0: 32 MiB */
};

/* When the journal is cut down. */
struct serve_checkpoint {
    uint64_t log_bytes;  /* since the last one */
    uint64_t last_bytes; /* that one took */
    uint64_t count;
    bool holding; /* frames of clients wait */
    uint64_t hold_since_ms;
    uint64_t hold_next_ms; /* not before */
    uint64_t holds, held_ms;
    uint64_t said_ms;
};

/* What is put out, and waits until the batch of inputs that it follows from is stored. */
struct serve_gate {
    struct pl_list held; /* struct serve_held, in order */
    uint64_t open;       /* number of the batch that is being filled, from 1 */
    uint64_t stored;     /* batches up to here are */
    /* when something was last stored, or is waited for; 0: all is stored */
    uint64_t waiting_ms;
};

struct serve {
    struct serve_config config;
    struct rpc_loop *loop;
    struct rpc_server *server;
    struct head_machine *machine;
    struct head_core *core; /* the machine's: to be looked at */
    struct serve_gate gate;
    struct serve_checkpoint checkpoint;
    struct wire_arena arena; /* decoding of first frames, and answers; reset for each */
    struct pl_list clients;
    struct pl_list workers;
    struct pl_list nodes;
    struct pl_list statuses;
    uint64_t time_offset_ms; /* the machine's time goes on where another process left it */
    uint64_t ticked_ms;
    struct head_holders *holders; /* for who waits for them; NULL: nobody does */
    uint64_t stats_request;
    uint64_t rates_asked_ms;
    uint64_t rates_order; /* the last launch's number then */
    bool rates_busy;      /* and launches that were not done */
};

/* Listens; nobody is served before serve_begin() and the loop's run. */
plasmon_status_t serve_create(struct rpc_loop *loop, const struct serve_config *config,
                              struct serve **out_serve, struct pl_err *err) PL_MUST_CHECK;
/* journal NULL: a new cluster. Else it has the lease, and goes on where its records end, if there are any. */
plasmon_status_t serve_begin(struct serve *serve, struct head_journal *journal,
                             struct pl_err *err) PL_MUST_CHECK;
void serve_destroy(struct serve *serve); /* after the loop stopped */
/* As rpc_server_port(): which one port 0 of address number `index` became. */
int serve_port(const struct serve *serve, size_t index);
plasmon_status_t serve_add_fd(struct serve *serve, int fd) PL_MUST_CHECK; /* takes fd */
uint64_t serve_now_ms(const struct serve *serve);
/* A stream that came at since_ms should have said hello by now; the text says so. */
bool serve_hello_late(const struct serve *serve, uint64_t since_ms, uint64_t now_ms,
                      struct pl_err *err);
/* Something happened, as head_machine_input(). */
plasmon_status_t serve_input(struct serve *serve, const struct head_input *input,
                             struct head_outcome *out, struct pl_err *err) PL_MUST_CHECK;

/* ---- serve_recover.c */
/* A machine that has begun, or goes on. */
plasmon_status_t serve_recover(struct serve *serve,
                               const struct head_machine_config *config,
                               struct pl_err *err) PL_MUST_CHECK;
/* For the machine of a new cluster. */
void serve_settings(const struct serve *serve, struct head_settings *out);

/* ---- serve_checkpoint.c */
void serve_log_grew(struct serve *serve, size_t bytes);
/* After a commit: is one due, and possible? */
/* The state came from a journal: workers are yet to come back. */
void serve_checkpoint_begin(struct serve *serve);
void serve_checkpoint_look(struct serve *serve);
/* true: the frame waits. */
bool serve_late_keep(struct serve_client *client, const uint8_t *bytes, size_t length);
void serve_late_drop(struct serve_client *client);

/* ---- serve_gate.c */
void serve_gate_init(struct serve *serve);
void serve_gate_finish(struct serve *serve);
/*
 * Each takes place at once without a journal, and in their order when all before it is stored with
 * one. Takes the buffer.
 */
void serve_send(struct serve *serve, struct rpc_stream *stream, uint8_t *buffer,
                size_t length);
void serve_send_copy(struct serve *serve, struct rpc_stream *stream, const uint8_t *bytes,
                     size_t length);
/* Nobody listens to the stream any more; the caller has let go of it. */
void serve_close(struct serve *serve, struct rpc_stream *stream, plasmon_status_t status,
                 const char *why);
/* The session, or whatever it was, goes on over another one: this stream ends at once. */
void serve_replace(struct serve *serve, struct rpc_stream *stream, const char *why);
void serve_unary_reply(struct serve *serve, struct rpc_unary *call, uint8_t *buffer,
                       size_t length);
void serve_gate_forget(struct serve *serve, struct rpc_stream *stream); /* it has ended */
/* The input ran dry: what was recorded is on its way to the journal. */
void serve_gate_commit(struct serve *serve);
/* What waits for the journal, and how long it has not got on. */
void serve_gate_tell(const struct serve *serve, Plasmon__V1__Waits *out);
/* The journal has stored more. On the loop's thread. */
void serve_stored(struct serve *serve);

/* ---- the four services */
plasmon_status_t serve_client_accept(void *user, struct rpc_stream *stream,
                                     struct pl_err *err);
plasmon_status_t serve_worker_accept(void *user, struct rpc_stream *stream,
                                     struct pl_err *err);
plasmon_status_t serve_node_accept(void *user, struct rpc_stream *stream,
                                   struct pl_err *err);
void serve_status_call(void *user, struct rpc_unary *call, const uint8_t *bytes,
                       size_t length);
/* Answer a unary call: now, or when what it says is stored. */
void serve_reply(struct serve *serve, struct rpc_unary *call,
                 const ProtobufCMessage *message, bool when_stored);
void serve_status_metrics(struct serve *serve); /* the listener for metrics wants one */
/* A ListRequest for nodes: answered when the stores have given a sign of life, or did not in time. */
void serve_status_nodes(struct serve *serve, struct rpc_unary *call, const char *only,
                        const uint8_t *bytes, size_t length);
void serve_list_nodes(struct serve *serve, const struct serve_status *status);
void serve_functions_call(void *user, struct rpc_unary *call, const uint8_t *bytes,
                          size_t length);
void serve_list_call(void *user, struct rpc_unary *call, const uint8_t *bytes,
                     size_t length);
void serve_status_stats(struct serve *serve,
                        uint64_t request); /* one worker or store answered */
void serve_status_tick(struct serve *serve, uint64_t now_ms);
void serve_status_free(struct serve_status *status); /* which is in no list */
void serve_holders_step(struct serve *serve);        /* everything else has had its turn */
void serve_holders_again(struct serve *serve);       /* the core is another one */
void serve_clients_tick(struct serve *serve, uint64_t now_ms); /* welcomes that waited */
void serve_clients_end(struct serve *serve);                   /* those that said bye */
/*
 * We end, and there is no journal that another head could go on from: none of them has anything to
 * wait for.
 */
void serve_clients_dismiss(struct serve *serve);
struct serve_client *serve_client_of(struct serve *serve, uint64_t session);
struct serve_worker *serve_worker_of(struct serve *serve, uint32_t device);
bool serve_devices_ready(const struct serve *serve);
/* Its device is gone: its connection ends with this text. */
void serve_worker_drop(struct serve *serve, uint32_t device, const char *why);
void serve_node_drop(struct serve *serve, const char *host, const char *why);
void serve_workers_tick(struct serve *serve, uint64_t now_ms); /* hellos that waited */
void serve_nodes_tick(struct serve *serve, uint64_t now_ms);   /* or did not come */
/* A first frame is put aside, and taken out again (the caller frees the bytes). */
void serve_hello_keep(struct serve *serve, struct serve_hello *hello, const uint8_t *bytes,
                      size_t length);
void serve_client_take(struct serve_client *client, const uint8_t *bytes,
                       size_t length); /* a frame of its session; it may be freed */
/*
 * Which namespace a caller's token and certificate confine him to. *out NULL: to none. EAUTH: they
 * name different ones. Lent by the two.
 */
plasmon_status_t serve_confined(const struct serve *serve, int token_index,
                                const struct trust_identity *identity, const char **out,
                                struct pl_err *err);
void serve_client_free(struct serve_client *client);
void serve_worker_free(struct serve_worker *worker);
void serve_node_free(struct serve_node *node);
void serve_node_fence(struct serve *serve, const char *host, uint32_t host_device,
                      uint32_t incarnation);
void serve_node_spill(struct serve *serve, const char *host,
                      const struct head_spill_op *op);
/* Ask every store that has joined for a sign of life; how many. */
uint32_t serve_nodes_ask(struct serve *serve, uint64_t request);
void serve_node_tell_left(struct serve_node *node, const struct head_drain_report *report);

/* serve_drain.c */
void serve_drain_call(void *user, struct rpc_unary *call, const uint8_t *bytes,
                      size_t length);
void serve_node_leave(struct serve_node *node, uint32_t deadline_ms);
void serve_drain_tick(struct serve *serve);

#endif
