/*
 * A whole cluster in one thread: one head, some workers of one or two hosts, some clients. Time is a number, every delay is drawn
 * from the seed, and a run with the same seed is the same run.
 *
 *   sim_queue.c    events in virtual time, random numbers, what a failed run says
 *   sim_link.c     connections: bytes in order, delays, everything in flight lost when they break; frames with headers
 *   sim_net.c      cuts: nothing gets through to or from the head, and nobody is told
 *   sim_memory.c   arenas: fresh memory is noise, freed memory is poison, a use of either is an error at once
 *   sim_sealed.c   what is sealed stays sealed
 *   sim_stream.c   in-order streams of a simulated device
 *   sim_ops.c      struct worker_ops on top of them
 *   sim_pairs.c    pairs: communicators, and what looks after them
 *   sim_worker.c   a worker process: core, link; crash and restart
 *   sim_reports.c  what it reports
 *   sim_store.c    the store's part of its life: stopped, fenced, reaped, started again
 *   sim_node.c     the store process: its session with the head, its death, and the one after it
 *   sim_hosts.c    hosts that die as a whole, are cut off until they are given up, and come back
 *   sim_rpc.c      the real libplasmon in the place of a client (in test_clients_sim alone)
 *   sim_limits.c   launches that do not end, and what ending them may cost
 *   sim_begun.c    what a worker says of launches that had not begun when it died
 *   sim_head.c     the head process: the machine, and what it puts out
 *   sim_journal.c  its journal: batches on their way, crashes, and what is left
 *   sim_standby.c  a head that stands still, and the one that takes its place
 *   sim_spill.c    the store's memory and files for what devices have no room for
 *   sim_client.c   a client: sending, answers, reconnecting
 *   sim_calls.c    what it asks for: frames made by hand
 *   sim_mapping.c  its mappings
 *   sim_cluster.c  making, running, breaking and checking the whole
 *
 * The cores, the wire with its checks, the links, tables and timelines are the real ones. What is simulated is what a driver, a
 * kernel of the operating system and a network do.
 *
 * Threads: one. One simulation at a time in a process (the allocator is watched at link time).
 */
#ifndef TESTS_SIM_SIM_H
#define TESTS_SIM_SIM_H

#include "base/box.h"
#include "base/list.h"
#include "base/map.h"
#include "base/str.h"
#include "base/vec.h"
#include "head/core.h"
#include "head/machine.h"
#include "kernels/kernels.h"
#include "store/node_session.h"
#include "store/table.h"
#include "store/timeline.h"
#include "store/worker_proc.h"
#include "transfer/lane.h"
#include "wire/wire.h"
#include "worker/core.h"

enum {
    SIM_MEMORY      = 0x6d656d, /* which memory the host has: the only one it ever has */
    SIM_ENDLESS_US  = 60000000, /* of a kernel that does not end */
    SIM_DEVICES_MAX = 4,
    SIM_HOSTS_MAX   = 2,
    SIM_GHOSTS_MAX  = 4,  /* devices that a head has given up, with their host */
    SIM_NUMBERS_MAX = 16, /* of devices, of one head */
    SIM_CLIENTS_MAX = 3,
    SIM_ARGS_MAX    = 8,
    SIM_STAGE_BYTES_MAX = 1 << 16, /* the largest transfer of the host route here */
    SIM_STREAMS         = STORE_STREAM_MAX +
                  6, /* and the lanes': sends, receives, teams; the same another way */
};

struct sim;
struct sim_event;
struct sim_worker;
struct sim_client;
struct sim_comm;

/* ------------------------------------------------------------------------------------------------ time */

/* data is owned by the event: freed after fn, or when the simulation ends. */
typedef void (*sim_fn)(void *user, uint64_t arg, void *data);

void sim_after(struct sim *sim, uint64_t delay_ns, sim_fn fn, void *user, uint64_t arg,
               void *data);
uint64_t sim_random(struct sim *sim);
uint64_t sim_below(struct sim *sim, uint64_t bound);                /* 0 .. bound - 1 */
uint64_t sim_between(struct sim *sim, uint64_t low, uint64_t high); /* both included */
bool sim_chance(struct sim *sim, uint64_t permille);

/* The first failure stays; the run ends at the next step. */
void sim_fail(struct sim *sim, const char *format, ...) PL_PRINTF(2, 3);
/* Time passes from event to event: one that does nothing, so that the clock stands there once. */
void sim_look_at(struct sim *sim, uint64_t delay_ns);
/* With PLASMON_SIM_TRACE set: a line on stdout, for reading what a seed does. */
void sim_trace(struct sim *sim, const char *format, ...) PL_PRINTF(2, 3);
void *sim_alloc(size_t bytes); /* zeroed; a test that runs out of memory stops */

/* ------------------------------------------------------------------------------------------------ links */

struct sim_bytes {
    size_t length;
    uint8_t data[];
};

struct sim_pipe {
    struct sim *sim;
    void (*deliver)(void *user, const uint8_t *data, size_t length);
    void *user;
    uint64_t life; /* a break starts a new one; what is in flight of an older one is lost */
    uint64_t last_ns;
    bool up;
    bool old;              /* to a head whose place another one has taken */
    bool unread;           /* .. and which stands still: one of the holds */
    uint32_t holds;        /* reasons why nothing is delivered now */
    struct pl_vec waiting; /* struct sim_bytes *: arrived meanwhile; owned */
};
void sim_pipe_init(struct sim_pipe *pipe, struct sim *sim,
                   void (*deliver)(void *user, const uint8_t *data, size_t length),
                   void *user);
void sim_pipe_open(struct sim_pipe *pipe);
void sim_pipe_break(struct sim_pipe *pipe);
void sim_pipe_send(struct sim_pipe *pipe, const uint8_t *data, size_t length);
void sim_pipe_hold(struct sim_pipe *pipe); /* counted */
void sim_pipe_release(struct sim_pipe *pipe);
void sim_pipe_finish(struct sim_pipe *pipe);

/* Header + body as one message, from pl_alloc. */
uint8_t *sim_frame(const Plasmon__V1__Header *header, const uint8_t *body,
                   size_t body_length, size_t *out_length);
/* Number it, keep it, send it if the pipe is up. */
void sim_link_send(struct sim *sim, struct wire_link *link, struct sim_pipe *pipe,
                   uint64_t session, uint64_t credit, const uint8_t *body,
                   size_t body_length);
/* Outside of the sequence: hello, welcome, an ack. */
void sim_link_send_plain(struct sim *sim, struct wire_link *link, struct sim_pipe *pipe,
                         uint64_t session, uint64_t credit, const uint8_t *body,
                         size_t body_length);

/* ------------------------------------------------------------------------------------------------ cuts */

struct sim_cut_ops {
    void (*peer_gives_up)(
        void *user); /* its end of the connection breaks; it makes another */
    void (*head_gives_up)(void *user); /* the head takes it for lost */
    void (*head_notices)(void *user);  /* that the peer had given up, some time from now */
    /* What a process said that is dead by now; NULL: nobody would know. */
    void (*late)(void *user, const uint8_t *bytes, size_t length);
};
/* Between the head and one peer. Belongs to the host of the peer's process, not to the process. */
struct sim_cut {
    struct sim *sim;
    struct sim_pipe *to_head;
    struct sim_pipe *from_head;
    const struct sim_cut_ops *ops;
    void *user;
    bool on;
    bool peer_gave_up;
    bool unnoticed; /* the peer's end broke, and the head could not see it */
    bool believed;  /* the head takes the peer's last connection for a living one */
    uint64_t serial;
    uint64_t life_before; /* of to_head, when it began */
    uint64_t head_closed; /* of to_head: the connection that the head has given up */
    struct pl_vec late;   /* struct sim_bytes *; owned */
};
void sim_cut_init(struct sim_cut *cut, struct sim *sim, struct sim_pipe *to_head,
                  struct sim_pipe *from_head, const struct sim_cut_ops *ops, void *user);
void sim_cut_finish(struct sim_cut *cut);
bool sim_cut_begin(struct sim_cut *cut,
                   uint64_t at_least_ns); /* false: it is cut already */
bool sim_cut_hides(struct sim_cut *cut); /* the head cannot see that the peer's end broke */
void sim_cut_died(struct sim_cut *cut);  /* the process, before its connection breaks */

/* ------------------------------------------------------------------------------------------------ what was met */

/* Interleavings that a run is to prove it has met. */
#define SIM_CELLS(XX)                                                                     \
    XX(CUT_NOBODY, "a cut that only made things late")                                    \
    XX(CUT_PEER, "a cut that only the peer gave up in")                                   \
    XX(CUT_HEAD, "a cut that only the head gave up in")                                   \
    XX(CUT_BOTH, "a cut that both sides gave up in")                                      \
    XX(CUT_DEATH, "a worker that died behind a cut")                                      \
    XX(HALF_OPEN, "a hello over a connection for whose predecessor the head still holds") \
    XX(LATE_HELLO, "a hello of a dead incarnation, refused")                              \
    XX(LATE_DOWN, "news of a death that its successor had overtaken")                     \
    XX(STOP_CONT, "a stopped worker that went on within its lease")                       \
    XX(STOP_SIGNAL, "a stopped worker, fenced because it was seen to stop")               \
    XX(STOP_LEASE, "a stopped worker, fenced when its lease was over")                    \
    XX(STOP_WORK, "a device that wrote for a stopped worker")                             \
    XX(KILL_WORK, "a device that wrote for a worker between its end and the reaping")     \
    XX(KILL_CONT, "a worker that went on after it was given up, before it ended")         \
    XX(PAUSE, "a whole host that stood still for longer than a lease")                    \
    XX(CLIENT_RESUMED, "a session that went on over another connection")                  \
    XX(CLIENT_RESENT, "a frame that was sent again over another connection")              \
    XX(CLIENT_REFUSED, "a frame that could not be sent at once")                          \
    XX(CLIENT_WAITING, "a connection that broke while a program waited in a call")        \
    XX(CLIENT_KILLED, "a client killed while tasks of it were unfinished")                \
    XX(CLIENT_EXPIRED, "a session whose lease was over, and whose client came back")      \
    XX(CLIENT_NAMES, "a name that was found when its publisher was dead")                 \
    XX(CLIENT_NEW_HEAD, "a session that went on with a head made from its journal")       \
    XX(STORE_RESUMED, "a store that the head took for who it was")                        \
    XX(STORE_ADOPTED, "a worker that a later store took over")                            \
    XX(STORE_UNSEEN, "a worker that stood still, and was ended by a later store")         \
    XX(STORE_FOUND_DEAD, "a worker that died while there was no store")                   \
    XX(STORE_TOLD_TWICE, "a death that the head was told again")                          \
    XX(GROWTH_ALONE, "a device that wanted more memory while there was no store")         \
    XX(GROWTH_HANDED, "new memory that was handed to the next store")                     \
    XX(GROWTH_LOST, "new memory that went with its worker")                               \
    XX(HEAD_WENT_ON, "a head that stood still, and went on before another one came")      \
    XX(HEAD_TAKEN_OVER, "a head whose place another one took while it stood still")       \
    XX(HEAD_OLD_READS, "something that was said to a head that is not the one any more")  \
    XX(HEAD_REFUSED, "a head that went on too late, and was refused by its journal")      \
    XX(HOST_DIED, "a host that died, and was given up when its lease was over")           \
    XX(HOST_REPLACED, "a host that came anew before it was given up")                     \
    XX(HOST_CAME_ANEW, "a host that came anew after it was given up")                     \
    XX(HOST_CAME_BACK, "a host that came back with what it had, and was given up")        \
    XX(HOST_REFUSED, "a worker that was given up with its host, and hears of it")         \
    XX(HOST_FORGOT, "a device that let go of what a head before had there")               \
    XX(HOST_LEFT, "a host that was drained, and ended with its store")
enum sim_cell {
#define XX(name, text) SIM_CELL_##name,
    SIM_CELLS(XX)
#undef XX
        SIM_CELL_COUNT,
};
void sim_cover(struct sim *sim, enum sim_cell cell);

/* ------------------------------------------------------------------------------------------------ devices */

enum sim_op_kind {
    SIM_OP_WAIT,
    SIM_OP_JOIN,
    SIM_OP_COPY,
    SIM_OP_SEND,
    SIM_OP_RECV,
    SIM_OP_PUT,
    SIM_OP_READ,
    SIM_OP_RUN,
    SIM_OP_IDENTITY,
    SIM_OP_SIGNAL,
    SIM_OP_MEET,
};

/* Memory that an op touches; the block must live on, unfreed, until the op is done. */
struct sim_touch {
    struct sim_worker *owner;
    uint64_t offset;
    uint64_t serial; /* of the block */
};

struct sim_op {
    enum sim_op_kind kind;
    struct pl_list link;
    uint64_t serial;      /* it went into its device as number so many; 0: it has not */
    uint32_t incarnation; /* of the worker that enqueued it */
    struct sim_touch touches[SIM_ARGS_MAX + 66]; /* a fold takes 65 arguments */
    uint32_t touch_count;
    /* WAIT, JOIN, SIGNAL */
    uint64_t *word;
    uint64_t value;
    uint32_t other;
    /* COPY, SEND, RECV, PUT, READ */
    struct pl_box box;
    struct pl_box dst_frame;
    struct pl_box src_frame;
    uint32_t element_bytes;
    struct sim_worker *src;
    uint64_t dst_offset;
    uint64_t src_offset;
    uint64_t bytes;
    uint64_t first_chunk;
    bool nowhere; /* SEND, RECV of a launch that failed: the words move, the bytes do not */
    uint64_t request;
    struct sim_comm *comm; /* MEET */
    bool receives;
    uint32_t rank;         /* of a team */
    uint32_t reduction;    /* of a team: as enum plasmon_reduce; 0: a pair */
    uint64_t index;        /* of its communicator's on this side */
    uint8_t *data;         /* owned */
    struct sim_host *host; /* PUT, READ: instead of data and request */
    uint64_t host_offset;
    /* RUN, IDENTITY */
    const struct kernel_function *function;
    struct kernel_arg *args; /* owned */
    uint32_t arg_count;
    union kernel_scalar scalars[KERNEL_SCALARS_MAX];
    uint32_t scalar_count;
    uint64_t scratch_offset;
    uint64_t scratch_bytes;
    uint64_t tag;
};

/* Host memory of a client, for one copy; its number on the wire is its address. Lives as long as the simulation. */
struct sim_host {
    bool over; /* the client was told that the copy is over: nobody may touch it any more */
    bool slab; /* not of a client: what is spilled lies in it, here and there */
    uint64_t bytes;
    uint8_t data[];
};

struct sim_stream {
    struct sim_worker *worker;
    uint32_t index;
    uint64_t begun_ns; /* when it last wrote that a launch with a limit begins */
    struct pl_list ops;
    uint64_t enqueued;
    uint64_t completed;
    uint64_t kept; /* the last so many have not gone in (device_launch_soon()) */
    uint64_t marks[WORKER_MARKS]; /* what was enqueued when it was made */
    bool running;
};

/* A block that the arena handed out. */
struct sim_block {
    uint64_t offset;
    uint64_t bytes;
    uint64_t serial;
    bool untouched; /* something else still lies there, until the first op touches it */
};
struct sim_chunk {
    uint64_t offset;
    uint64_t bytes;
    uint32_t pool;
};
/* A chunk on its way to the store (sim_growth.c). */
enum sim_growth_state { SIM_GROWTH_NONE, SIM_GROWTH_SENT, SIM_GROWTH_KEPT };
struct sim_growth {
    enum sim_growth_state state;
    struct sim_chunk chunk;
    uint64_t number;     /* counts them */
    uint64_t store_life; /* whom it was sent to */
    bool early;          /* used already: the bug worker.chunk_early */
    bool acknowledged;   /* while the process was stopped */
};
/* An entry of the table, as it was when it was sealed (sim_sealed.c). */
struct sim_sealed {
    uint32_t generation;
    uint64_t seq;
    uint64_t offset;
    uint64_t bytes;
    uint64_t hash;
    uint32_t seals;  /* so often, so far */
    uint32_t takers; /* launches that took it to write it, since then */
    bool sealed;
};

/* A buffer that a launch is to make. */
struct sim_fresh {
    uint64_t seq;
    uint32_t slot;
    uint32_t generation;
};

/* Of an incarnation: launches that must not go on (sim_limits.c). */
struct sim_limits {
    uint64_t tick_due_ns; /* the worker wants to look at the clock then */
    uint32_t condemned_count;
    uint64_t condemned; /* the last one that was told */
    plasmon_status_t status;
    uint64_t fence_asked_ns; /* 0: not asked */
    uint32_t orders_lost;
    struct pl_map limit_ms; /* of launches with one */
    struct pl_map
        behind; /* seqs in the stream of a launch over its limit, when it was ended */
    bool fenced;
};

/* What the store of its host knows and does about a worker (sim_store.c). */
struct sim_process {
    struct store_proc proc;
    bool stopped;
    bool doomed;            /* killed, and not reaped yet */
    bool connect_due;       /* it would have connected meanwhile */
    uint64_t seen_ns;       /* the store last looked at its beat */
    uint64_t seen_still_ns; /* for so long the store has seen it stand still */
    uint64_t due_scheduled_ns;
};

/* What half `number` of a lane moves, as it was when the half was enqueued: it may be staged much later. */
struct sim_half_touch {
    uint64_t number;
    struct sim_touch touch;
};
/* A worker's part of all pairs. Goes with its process. */
struct sim_pairs {
    struct pl_list all; /* struct sim_pair */
    struct transfer_lane lanes[TRANSFER_LANES];
    uint64_t done[TRANSFER_LANES]; /* words, as in transfer/pair_int.h */
    uint64_t staged[TRANSFER_LANES];
    uint64_t over[TRANSFER_LANES];
    uint64_t passed;
    struct pl_vec news;       /* struct transfer_pair_news */
    struct pl_vec touches[2]; /* struct sim_half_touch: of the lanes' halves */
    uint64_t serial;
    bool look_pending;
    bool news_pending;
};

struct sim_worker {
    struct sim *sim;
    uint32_t host_device; /* here: of all */
    uint32_t local;       /* as its host counts them */
    uint32_t device;      /* the head's index; UINT32_MAX before it told */
    bool alive;
    bool gone;     /* for good */
    bool blank;    /* its memory is new, and no head has heard of it */
    bool forgets;  /* it lets go of everything just now */
    bool given_up; /* the head has taken its host for lost, and it has not joined anew */
    uint64_t life; /* events of an earlier one are void */
    uint32_t incarnation;
    uint32_t crashes;
    struct worker_core *core;

    /* Outlives the process. */
    struct store_table *table;
    struct store_timeline *timeline;
    struct store_pins *pins;
    uint8_t *arena;
    uint64_t arena_bytes;
    uint64_t chunk_bytes; /* sum of chunks */
    uint64_t pool_bytes[STORE_ARENA_POOLS];
    struct pl_vec
        chunks; /* struct sim_chunk: those that the store, or a peer for it, keeps */
    struct sim_growth growth;
    uint8_t *slab;        /* STORE_STAGE_SLOTS * SIM_STAGE_BYTES_MAX */
    struct pl_vec sealed; /* struct sim_sealed, a slot */
    struct pl_map takers; /* sim_sealed.c: slot and seq -> what a launch writes there */
    struct pl_map
        leavers; /* slot + 1 -> the last generation that the head gave up there, + 1 */

    struct store_arena *book; /* the core's allocator, as seen at link time */
    struct pl_vec blocks;     /* struct sim_block */
    struct pl_vec
        leaving; /* struct sim_block: given back in stream order, and still read */
    struct pl_vec blocks_before; /* of the incarnation that died */
    bool recovered_memory;       /* the core has taken its blocks from the table */
    uint64_t block_serial;
    uint64_t recovered; /* what the hello says of earlier incarnations */
    struct wire_ranges recovered_open;
    struct wire_ranges recovered_untouched;
    struct pl_map begun; /* sim_begun.c: seq -> what has happened, whichever incarnation */
    bool begins_cheap;
    uint32_t slots_used; /* slots below it were named by launches */

    struct sim_stream streams[SIM_STREAMS];
    uint64_t op_serial;
    struct pl_vec fresh; /* struct sim_fresh */

    /* The connection. */
    bool connected; /* welcomed */
    uint64_t session;
    struct wire_link link;
    struct sim_pipe to_head;
    struct sim_pipe from_head;
    struct wire_ranges done;
    struct pl_vec failed;    /* struct sim_report */
    struct pl_vec starved;   /* struct sim_report */
    struct pl_vec condemned; /* struct sim_report */
    struct pl_vec
        uses; /* sim_losses.c: of the launches that were sent since the last crash */
    struct pl_vec data;         /* struct sim_read_back */
    struct pl_vec pair_reports; /* struct sim_pair_report */
    struct sim_pairs pairs;
    struct sim_limits limits;
    struct sim_cut cut;
    struct sim_process process;
    uint32_t greeted; /* the last incarnation whose hello the head took */
    bool kick_pending;
    bool flush_pending;
    bool wake_pending;
    bool doorbell_pending;
    bool poll_pending;
    uint64_t
        locks_until_ns; /* host memory is page-locked then, by a worker that follows a dead one */
    uint64_t launches_run;
    uint64_t starvations;
};

/* ------------------------------------------------------------------------------------------------ clients */

struct sim_arg {
    uint32_t mode;
    uint64_t ref;
    bool viewed;
    struct pl_view view; /* in coordinates of what the ref shows */
    bool shaped;
    struct pl_shape shape;
    uint32_t reduce_op;
};
struct sim_task {
    uint64_t id;
    uint32_t kind; /* TaskKind */
    const char *function;
    struct sim_arg args[SIM_ARGS_MAX];
    uint32_t arg_count;
    union kernel_scalar scalars[KERNEL_SCALARS_MAX];
    uint32_t scalar_count;
    const uint8_t *data;
    size_t data_length;
    uint64_t put_offset;
    uint32_t place; /* 0: anywhere; device index + 1 */
    uint32_t retries;
    uint32_t time_limit_ms;
    bool donatable;
    uint64_t graph;        /* recorded in it; or which one ends, or is launched */
    struct sim_host *host; /* PUT_HOST, GET_HOST */
    /* COLLECTIVE: the first arguments are its members. */
    uint32_t collective; /* CollectiveKind */
    uint32_t way;        /* enum plasmon_collective_way */
    uint32_t reduction;
    uint32_t root;
    uint32_t results;
    uint32_t places[SIM_ARGS_MAX];
};

enum sim_answer_kind {
    SIM_ANSWER_TASK,
    SIM_ANSWER_DATA,
    SIM_ANSWER_MAPPING,
    SIM_ANSWER_PUT,
    SIM_ANSWER_REPLY,
};
/* Something that the head owes an answer for. */
struct sim_answer {
    enum sim_answer_kind kind;
    uint64_t id; /* task or request */
    bool answered;
    plasmon_status_t status;
    char text[160];
    uint64_t first_task;
    uint8_t *data; /* DATA, MAPPING, TASK that gets: owned */
    size_t length;
    struct sim_host *host; /* TASK: of a copy from (data NULL) or to host memory */
    uint64_t buffer;       /* PUT */
    uint64_t asked_ns;
    uint64_t answered_ns;
    /* MAPPING: what was seen at the first look must stay. */
    struct pl_view view; /* root coordinates */
    struct pl_shape shape;
    struct pl_vec pins;    /* struct sim_pin */
    struct pl_vec pending; /* struct sim_pin: located, and not sealed at the first look */
    uint32_t tries;
    bool mapped;
};
struct sim_pin {
    struct sim_worker *worker;
    uint32_t slot;
    uint32_t generation;
    uint32_t pin;
    uint64_t offset;
    struct pl_box box;
    struct pl_box frame;
};

/* An encoded frame that waits for credit, or for the connection. */
struct sim_body {
    struct pl_list link;
    uint64_t ops;
    bool bye;
    size_t length;
    uint8_t data[];
};

/* The real libplasmon in the place of a client (sim_rpc.c). */
struct sim_library {
    void (*message)(struct sim_client *place, const uint8_t *data, size_t length);
    /* Its connection has ended. */
    void (*closed)(struct sim_client *place, plasmon_status_t status, const char *why);
};

struct sim_client {
    struct sim *sim;
    uint32_t index;
    const struct sim_library *library; /* NULL: frames are made by hand */
    void *library_user;                /* its connection; NULL: there is none */
    uint64_t seq_sent;                 /* the last frame of the session, so far */
    uint64_t lost_ns; /* when the head was told that the connection is gone; 0: it is not */
    uint32_t head_crashes; /* of the head that welcomed it last */
    bool dead;             /* crashed: it does nothing any more */
    bool said_bye;
    bool welcomed;
    bool connected;
    uint64_t life;
    uint64_t session;
    uint64_t id;
    uint64_t id_last; /* of refs, tasks and requests */
    struct wire_link link;
    struct sim_pipe to_head;
    struct sim_pipe from_head;
    struct sim_cut cut;
    uint64_t credit;
    uint64_t ops_sent;
    struct pl_list outbox; /* struct sim_body: encoded, not yet numbered */
    struct store_pins *pins;
    /* The frame that is being built. */
    struct wire_arena arena;
    struct pl_vec tasks; /* Plasmon__V1__Task * */
    Plasmon__V1__ClientFrame frame;
    struct pl_vec ranges;
    struct pl_vec locates;
    struct pl_vec reads;
    struct pl_vec cancels;
    struct pl_vec cancels_force;
    struct pl_vec graph_releases; /* uint64_t */
    struct pl_vec opens;
    struct pl_vec seals;
    struct pl_vec publishes;
    struct pl_vec lookups;
    uint32_t tail;         /* which kind of op the frame ends with; 0: tasks only */
    struct pl_map answers; /* id -> struct sim_answer */
    uint64_t waiting;      /* unanswered */
};

uint64_t sim_client_id(struct sim_client *client);
/* All of these are batched until sim_client_flush(). The answer stays until the simulation ends. */
/* Host memory with these bytes (NULL: noise) for one copy. */
struct sim_host *sim_host_create(struct sim *sim, const uint8_t *data, uint64_t bytes);
struct sim_answer *sim_client_task(struct sim_client *client, const struct sim_task *task);
/* A task of which nothing is told: recorded, or the end of a recording. */
void sim_client_record(struct sim_client *client, const struct sim_task *task);
void sim_client_graph_release(struct sim_client *client, uint64_t graph);
struct sim_answer *sim_client_read(struct sim_client *client, uint64_t ref,
                                   const struct pl_view *view, uint64_t bytes);
/*
 * Locate, pin, look. view: in the coordinates of what the ref shows, NULL for all of it; root: the same in the coordinates of the
 * array, with its shape. The answer is MAPPING; bytes are compared again by sim_client_unmap().
 */
struct sim_answer *sim_client_map(struct sim_client *client, uint64_t ref,
                                  const struct pl_view *view, const struct pl_view *root,
                                  const struct pl_shape *shape, uint64_t hold_ref);
void sim_client_unmap(struct sim_client *client, struct sim_answer *mapping,
                      uint64_t hold_ref);
struct sim_answer *sim_client_put_open(struct sim_client *client, uint64_t ref,
                                       const struct pl_shape *shape, uint32_t place,
                                       bool donatable);
/* After the answer of put_open: write through the shared memory, then seal. */
void sim_client_put_write(struct sim_client *client, const struct sim_answer *open,
                          const uint8_t *data, uint64_t bytes);
void sim_client_put_seal(struct sim_client *client, uint64_t ref, bool abandon);
struct sim_answer *sim_client_publish(struct sim_client *client, const char *name,
                                      uint64_t ref);
struct sim_answer *sim_client_lookup(struct sim_client *client, const char *name,
                                     uint64_t new_ref);
void sim_client_release(struct sim_client *client, uint64_t ref);
void sim_client_cancel(struct sim_client *client, uint64_t task, bool force);
void sim_client_flush(struct sim_client *client);
void sim_client_bye(struct sim_client *client);
void sim_client_crash(struct sim_client *client);
void sim_client_break(
    struct sim_client *client); /* the connection; it comes back by itself */

/* sim_calls.c, sim_client.c and sim_mapping.c */
void sim_client_pump(struct sim_client *client); /* what there is credit for */
void sim_frame_clear(struct sim_client *client);
struct sim_answer *sim_client_answer(struct sim_client *client, uint64_t id,
                                     enum sim_answer_kind kind, plasmon_status_t status,
                                     const char *text);
void sim_client_located(struct sim_client *client, const Plasmon__V1__Located *located);
/* For sim_cluster.c. */
bool sim_queue_pop(struct sim *sim, struct sim_event *out);
void sim_client_start(struct sim_client *client, struct sim *sim, uint32_t index);
void sim_client_finish(struct sim_client *client);

/* ------------------------------------------------------------------------------------------------ workers, head */

struct sim_report {
    uint64_t seq;
    uint64_t bytes;
    uint64_t hole;
    plasmon_status_t status;
    char *text; /* owned */
    bool fence; /* of a condemned launch */
};
struct sim_read_back {
    uint64_t request;
    uint8_t *data; /* owned */
    size_t length;
};

struct sim_pair_report {
    struct worker_pair_report report;
    uint8_t id[WIRE_PAIR_ID_BYTES];
    char text[200];
};

void sim_worker_init(struct sim_worker *worker, struct sim *sim, uint32_t host_device);
void sim_worker_finish(struct sim_worker *worker);
void sim_worker_start(struct sim_worker *worker);
void sim_worker_crash(struct sim_worker *worker, const char *why); /* and restart, later */
void sim_worker_gone(
    struct sim_worker *worker); /* it crashes, and nobody takes its place */
const char *sim_worker_host(const struct sim_worker *worker);
void sim_worker_end(
    struct sim_worker *worker); /* the process, and all that it had on the device */
/* Another one takes its place, which is a mistake as long as the device works for it. */
void sim_worker_supplant(struct sim_worker *worker);
void sim_worker_spawn(struct sim_worker *worker); /* the next incarnation, now */
void sim_worker_stop(struct sim_worker *worker);  /* SIGSTOP: its device goes on */
void sim_worker_continue(struct sim_worker *worker);

/* sim_growth.c: worker_ops.grow, and what becomes of the chunk: its worker dies or goes on; another store takes over. */
plasmon_status_t sim_growth_begin(struct sim_worker *worker, uint32_t pool, uint64_t bytes);
void sim_growth_died(struct sim_worker *worker);
void sim_growth_continued(struct sim_worker *worker);
void sim_growth_handed_back(struct sim_worker *worker);

/* The store process of a host (sim_node.c), with config.stores. */
struct sim_node {
    struct sim *sim;
    uint32_t index;
    const char *name;
    uint32_t first; /* of its devices .. */
    uint32_t count; /* .. so many */
    uint64_t memory;
    bool alive;
    uint64_t life; /* a death begins a new one */
    uint64_t
        away_ns; /* when it died, if the next one has not been welcomed since; else 0 */
    bool beats_watched; /* a look at the beats is due */
    bool paused;        /* the store stands still, with all its workers */
    struct store_node_session session;
    struct sim_pipe to_head;
    struct sim_pipe from_head;
    struct sim_cut cut;
    /* sim_hosts.c */
    bool gone;          /* it is dead, and nobody comes in its place */
    bool counted;       /* among those that are gone */
    uint64_t silent_ns; /* the head was told that its connection is gone; 0: it has one */
    uint32_t give_ups;  /* by heads */
    /* The head's side of the connection. */
    uint64_t head_session; /* 0: no hello has come over it */
    uint64_t head_out_seq;
    uint64_t head_in_seq;
    uint32_t
        told[SIM_DEVICES_MAX]; /* the last incarnation that the head heard to be dead */
};
/* Of the host where this device is. */
struct sim_node *sim_node_of(const struct sim_worker *worker);
uint32_t sim_hosts(const struct sim *sim);
void sim_node_init(struct sim_node *node, struct sim *sim, uint32_t index);
void sim_node_start(struct sim_node *node);
/* Another one, with nothing of what was there before. */
void sim_node_begin_anew(struct sim_node *node);
void sim_node_end(struct sim_node *node); /* and nobody comes in its place */
void sim_node_finish(struct sim_node *node);
/* May it, the head or their connection break? */
bool sim_node_settled(const struct sim_node *node);
bool sim_nodes_settled(const struct sim *sim);
void sim_node_break(struct sim_node *node); /* the connection; it comes back by itself */
void sim_node_die(struct sim_node *node);
/* The store has found a worker dead. */
void sim_node_down(struct sim_node *node, uint32_t local, uint32_t incarnation);

/* sim_hosts.c */
struct sim_worker *sim_worker_at(struct sim *sim, const char *host, uint32_t local);
/* The second host meets its fate, if that is a matter of hosts. */
void sim_host_lose(struct sim *sim);
/* The head says that a host is gone: is it right? */
void sim_host_given_up(struct sim *sim, const char *host, const char *why);
/* Or that a device is. */
void sim_device_forgotten(struct sim *sim, uint32_t number, const char *why);
/* Everybody else is told that. */
void sim_device_given_up(struct sim *sim, uint32_t number);
/* How many there may be. */
uint32_t sim_ghosts(const struct sim *sim);
/* A hello was refused, because of that. */
bool sim_worker_refused(struct sim_worker *worker, const struct pl_err *err);
void sim_hosts_finish(struct sim *sim);
/* Nothing is left in the memory of the device. */
void sim_worker_blank(struct sim_worker *worker);

/* sim_store.c */
void sim_store_fence(struct sim_worker *worker,
                     uint32_t incarnation);      /* the head's order */
void sim_store_adopt(struct sim_worker *worker); /* by the store after the one that died */
void sim_store_look_again(struct sim_node *node);
void sim_store_init(struct sim_worker *worker);
void sim_store_exited(struct sim_worker *worker); /* it died by itself */
void sim_store_maybe_stop(struct sim *sim);       /* a worker, or a whole host */
void sim_store_growth(struct sim_worker *worker); /* it was sent a chunk: may die of it */
void sim_crash_one(struct sim *sim, struct sim_worker *worker); /* counted */
/* Something of what the worker enqueued is about to be written: may it be? */
void sim_store_writes(struct sim_worker *worker, const struct sim_op *op);
void sim_worker_break(struct sim_worker *worker);
void sim_worker_wake(struct sim_worker *worker); /* completions */
/* Is host memory page-locked? In one that follows a dead one, not at once; it is woken then. */
bool sim_worker_locked(struct sim_worker *worker);
void sim_worker_doorbell(
    struct sim_worker *worker); /* something that it waits for may be there */
void sim_worker_advance(struct sim_worker *worker);
void sim_worker_flush_soon(struct sim_worker *worker);
void sim_reports_clear(struct sim_worker *worker);
void sim_worker_hello(struct sim_worker *worker);
void sim_worker_describe(const struct sim_worker *worker, struct pl_str *out);
extern const struct worker_ops sim_worker_ops;

void sim_pairs_init(struct sim_worker *worker);
void sim_pairs_finish(struct sim_worker *worker);
void sim_pairs_crash(struct sim_worker *worker);
/* A word has changed, or something else that its watcher looks at. */
void sim_pairs_look_soon(struct sim_worker *worker);
/* Is it one that its pairs' watcher looks at? */
bool sim_pairs_word(const struct sim_worker *worker, const uint64_t *word);
void sim_pairs_stage_next(struct sim_worker *worker);
void sim_pairs_describe(const struct sim_worker *worker, struct pl_str *out);
bool sim_meet_ready(struct sim_op *op);
void sim_meet_do(struct sim_worker *worker, const struct sim_op *op);
plasmon_status_t sim_pair_op_open(void *user, const struct worker_pair_key *key,
                                  const struct worker_pair_shape *shape, const uint8_t *id);
void sim_pair_op_close(void *user, const struct worker_pair_key *key);
void sim_pair_op_break(void *user, const struct worker_pair_key *key);
void sim_pair_op_abort(void *user, const struct worker_pair_key *key);
void sim_pair_op_free(void *user, const struct worker_pair_key *key);
bool sim_pair_op_room(void *user, uint32_t lane);
bool sim_pair_op_settled(void *user, uint32_t lane);
plasmon_status_t sim_pair_op_move(void *user, uint32_t stream,
                                  const struct worker_half *half);
plasmon_status_t sim_pair_op_stage(void *user, const struct worker_pair_key *key,
                                   uint64_t *out_first);
void sim_pair_op_sent(void *user, uint64_t seq);

void sim_limits_init(struct sim_worker *worker);
void sim_limits_forget(struct sim_worker *worker); /* a new incarnation */
void sim_limits_finish(struct sim_worker *worker);
void sim_limits_note(struct sim_worker *worker, const Plasmon__V1__Launch *launch);
/* What the worker's loop does about time, whenever it was awake. */
void sim_limits_tick(struct sim_worker *worker);
/* How long the op takes if its task has a time of its own; 0: it has none. */
uint64_t sim_limits_duration(const struct sim_worker *worker, const struct sim_op *op);
void sim_limits_condemned(struct sim_worker *worker,
                          const struct worker_condemned *condemned);
/* The head's order, on its way to the store. */
void sim_limits_order(struct sim_worker *worker, uint32_t incarnation);
/* An order to fence may have died with it: time passes until the next head gives it again. */
void sim_limits_head_crashed(struct sim *sim);
void sim_limits_check(struct sim_worker *worker);
/* Did this launch lie behind one that was ended for its limit, so that it may come again whatever it does? After the crash. */
bool sim_limits_sheltered(const struct sim_worker *worker, uint64_t seq);

void sim_begun_note(struct sim_worker *worker, const Plasmon__V1__Launch *launch);
void sim_begun_started(struct sim_worker *worker, const struct sim_op *op);
void sim_begun_reached(struct sim_worker *worker, uint64_t seq);
/* false: its device would have told, and did not. */
bool sim_begun_perhaps(const struct sim_worker *worker, uint64_t seq);
void sim_begun_check(struct sim_worker *worker); /* what a new incarnation says */

void sim_streams_init(struct sim_worker *worker);
void sim_streams_drop(struct sim_worker *worker,
                      bool half); /* half: some running ops have their effect */
struct sim_op *sim_op_add(struct sim_worker *worker, uint32_t stream,
                          enum sim_op_kind kind);
void sim_op_start(struct sim_worker *worker, uint32_t stream);
/* The next op of `stream` comes behind what is in `other` now. */
void sim_op_join(struct sim_worker *worker, uint32_t stream, uint32_t other);
/* The op that was added last is kept, and so are those before it that were, until another kind is added, or too many are. */
void sim_op_keep(struct sim_worker *worker, uint32_t stream);
void sim_stream_flush(struct sim_worker *worker, uint32_t stream);
void sim_op_touch(struct sim_op *op, struct sim_worker *owner, uint64_t offset);
void sim_streams_kick(struct sim *sim); /* a word changed */
/* The same, from inside of a look at the streams. */
void sim_streams_kick_soon(struct sim_worker *worker);
/* One half of the host route. touch NULL: only the words. */
void sim_stage(struct sim_worker *worker, uint32_t stream, enum sim_op_kind kind,
               uint32_t other, uint64_t first_chunk, const struct sim_touch *touch,
               uint64_t bytes);
/* The memory that lies there now. */
struct sim_touch sim_touch_of(struct sim_worker *owner, uint64_t offset);
void sim_op_do(struct sim_stream *stream, struct sim_op *op); /* sim_ops.c: the effect */
bool sim_op_ready(struct sim_stream *stream, struct sim_op *op);
/* x = what a reduction starts from. Also for references: the pointer is a host address. */
plasmon_status_t sim_fill_identity(const struct kernel_arg *arg);
void sim_op_describe(const struct sim_op *op, struct pl_str *out);

/* Memory of a worker's core is watched between these two. */
void sim_memory_enter(struct sim_worker *worker);
void sim_memory_leave(void);
struct sim_worker *sim_memory_watched(void); /* NULL: none */
const struct sim_block *sim_memory_find(const struct sim_worker *worker, uint64_t offset);
/* An op has its effect now: may it still touch what it was enqueued for? What it is the first to touch becomes noise. */
bool sim_memory_touch(struct sim_worker *worker, uint64_t offset, uint64_t serial);
void sim_memory_noise(struct sim *sim, uint8_t *bytes, uint64_t length);
void sim_memory_forget(struct sim_worker *worker);    /* a crash: its book is gone */
void sim_memory_recovered(struct sim_worker *worker); /* poisons what nobody took back */

void sim_sealed_init(struct sim_worker *worker);
void sim_sealed_finish(struct sim_worker *worker);
/* What the head tells a worker: before the worker hears it. */
void sim_sealed_note(struct sim_worker *worker, const Plasmon__V1__WorkerCommand *command);
void sim_sealed_check(struct sim_worker *worker);
void sim_sealed_check_idle(struct sim_worker *worker); /* when nothing is under way */
/* The launch failed: what it alone should have made must not be sealed. */
void sim_sealed_check_failed(struct sim_worker *worker, uint64_t seq);

void sim_head_start(struct sim *sim);
void sim_head_finish(struct sim *sim);
void sim_head_tick(struct sim *sim);
void sim_head_flush_soon(struct sim *sim);
/* Bytes that arrive at the head; `user` of a pipe is the worker or the client. */
void sim_head_from_client(void *user, const uint8_t *data, size_t length);
void sim_head_from_worker(void *user, const uint8_t *data, size_t length);
void sim_head_client_lost(struct sim_client *client);
void sim_head_worker_lost(struct sim_worker *worker);
/* At once, of a connection that says nothing any more. */
void sim_head_client_silent(struct sim_client *client);
void sim_head_client_forget(
    struct sim_client *client); /* the process is dead, its place is free */
void sim_head_worker_silent(struct sim_worker *worker);
void sim_head_node_silent(struct sim_node *node);
void sim_head_from_node(void *user, const uint8_t *data, size_t length);
/* A hello that was on its way for too long. */
void sim_head_late_hello(struct sim_worker *worker, const uint8_t *data, size_t length);
void sim_head_worker_down(struct sim_worker *worker, uint32_t incarnation);
/* Its store gives it up. */
/* The second host is to leave. */
void sim_head_drain(struct sim *sim, uint64_t deadline_ms);
/* false: it may not go yet. */
bool sim_head_drain_over(struct sim *sim, bool *out_done);
void sim_head_worker_gone(struct sim_worker *worker);

/* What is to leave the head when a batch is stored. */
struct sim_held {
    uint64_t batch;
    struct sim_pipe *pipe; /* NULL: an order to fence, or something for the store */
    uint64_t life;         /* of the pipe; for the store: spill_hellos */
    struct sim_worker *fence;
    bool gives_up; /* .. or that a device is gone: `incarnation` is its number */
    uint32_t incarnation;
    size_t length;
    uint8_t *data; /* owned */
};
struct sim_batch {
    bool checkpoint; /* it stands for all before it */
    uint8_t *bytes;  /* owned */
    size_t length;
};

struct sim_head {
    struct head_machine *machine;
    uint64_t
        sessions[SIM_CLIENTS_MAX]; /* of the clients, as far as they said hello; 0: none */
    bool flush_pending;
    /* With a journal (sim_journal.c). */
    uint64_t life;    /* a crash begins a new one */
    bool stopped;     /* it stands still (sim_standby.c) */
    uint64_t unheard; /* batches that were stored meanwhile */
    uint32_t stops;
    uint64_t down_until_ns; /* who connects before is refused */
    struct pl_vec batches;  /* struct sim_batch: all of them; the first `stored` ones are */
    uint64_t stored;
    uint64_t last_store_ns;
    struct pl_vec held; /* struct sim_held, in order */
    uint32_t crashes;
    uint64_t replayed; /* inputs */
    bool replaying;    /* what is put out goes nowhere */
    uint64_t checkpoints;
    /* Of these, with things that only some programs have. */
    uint64_t checkpoints_spilled, checkpoints_graphs, checkpoints_lineage,
        checkpoints_pairs;
};

/* One whose place another one has taken. */
struct sim_old_head {
    struct head_machine *machine; /* NULL: there is none */
    uint64_t serial;
    bool speaks; /* what is put out just now is its */
    struct pl_vec held;
    uint64_t stored; /* of its batches, before the other one came */
    uint64_t sessions[SIM_CLIENTS_MAX];
};

/* sim_standby.c */
void sim_head_maybe_stop(struct sim *sim);
void sim_old_head_put(struct sim *sim, const struct sim_pipe *to_head,
                      struct sim_pipe *from_head, const uint8_t *data, size_t length);
/* What arrives there over a pipe that is `old`. */
void sim_old_head_worker(struct sim_worker *worker, const uint8_t *data, size_t length);
void sim_old_head_client(struct sim_client *client, const uint8_t *data, size_t length);
void sim_old_head_node(struct sim_node *node);
void sim_old_head_finish(struct sim *sim);

/* sim_journal.c */
/* Nobody listens there, or nobody who runs. */
bool sim_head_down(const struct sim *sim);
/* It leaves the head: data is freed. */
void sim_held_leave(struct sim *sim, struct sim_held *held);
void sim_held_drop(struct pl_vec *held, size_t from);
/* It goes on, and hears what was stored meanwhile. */
void sim_journal_heard(struct sim *sim);
/*
 * Its machine is somebody else's by now, or was destroyed: another one is made from what was stored. broken: with the process all
 * connections ended.
 */
void sim_head_replace(struct sim *sim, bool broken);
/* It leaves the head, when all that it says of what was taken over is stored. Takes data (NULL: fence). */
void sim_journal_put(struct sim *sim, struct sim_pipe *pipe, const uint8_t *data,
                     size_t length);
void sim_journal_fence(struct sim *sim, struct sim_worker *worker, uint32_t incarnation);
void sim_journal_given_up(struct sim *sim, uint32_t number);
void sim_journal_spill(struct sim *sim, const struct head_spill_op *op);
void sim_journal_flushed(struct sim *sim); /* the input ran dry: store it */
/* The process is killed; another one has the journal. */
void sim_head_crash(struct sim *sim);
/* A second machine, made from all records, is the same as this one. */
bool sim_journal_quiet(const struct sim *sim); /* a checkpoint can be made */
/* All that was is in it, and stored; false: none can be made now. */
bool sim_journal_checkpoint(struct sim *sim);
void sim_journal_check(struct sim *sim);
void sim_journal_finish(struct sim *sim);
/* sim_head.c */
void sim_head_machine(struct sim *sim,
                      struct head_machine **out_machine); /* that has not begun */
void sim_head_begin(struct sim *sim);
void sim_head_spill_up(struct sim *sim);
void sim_head_spill_done(struct sim *sim, uint64_t id, plasmon_status_t status,
                         uint64_t host_buffer, uint64_t bytes, const char *text);

/* ------------------------------------------------------------------------------------------------ the whole */

/* What becomes of the second host, where hosts have stores. */
enum sim_host_fault {
    SIM_HOST_DEVICES, /* its store gives up its devices */
    SIM_HOST_DIES,    /* with its store, and nobody says a word */
    SIM_HOST_ANEW,    /* .. and another store of it comes, with new memory */
    SIM_HOST_CUT,     /* it runs on, and the head hears nothing for longer than a lease */
    SIM_HOST_FAULTS,
};

struct sim_config {
    uint64_t seed;
    uint32_t devices;
    uint32_t clients;
    uint32_t run_streams;
    uint32_t queues;       /* of a device, which its streams share; 0: each has its own */
    uint64_t device_bytes; /* 0: plenty */
    enum head_transfer transfer;
    const char *policy;
    uint64_t chain_bytes;   /* as of the head's; 0: nothing here is so large */
    uint64_t lineage_bytes; /* as of the head's */
    uint64_t shadow_bytes;
    uint64_t nccl_bytes;
    bool peer_capable;
    uint64_t credit; /* 0: plenty */
    uint32_t window; /* 0: the default */
    uint32_t retries;
    /* Faults: how many at most, and the chance a step, in millionths. */
    uint32_t crashes_max;
    uint32_t crash_millionth;
    uint32_t breaks_max;
    uint32_t break_millionth;
    bool library; /* clients are processes with the real libplasmon, which a test makes */
    uint32_t cut_lease_permille; /* of the cuts last longer than the lease of a session */
    bool journal;                /* the head writes one, and may crash */
    uint32_t head_crashes_max;
    uint32_t head_crash_millionth;
    uint32_t head_stops_max; /* it stands still, and another one takes its place */
    uint64_t spill_memory;   /* of the host; 0: nothing is spilled */
    uint64_t slab_piece; /* so much more of it can be used at a time; 0: all at once .. */
    bool slab_short;     /* .. and there is no more after the second time */
    uint32_t write_back; /* percent of a device; 0: nothing is copied ahead of need */
    bool on_demand;      /* nothing is brought back before its turn */
    uint64_t spill_files;
    uint32_t spill_full_permille; /* of the writes find no room */
    uint32_t
        spill_deaths_max; /* the store is killed at something that it was asked, and another one goes on */
    uint32_t pair_trouble_millionth; /* a communicator fails, an operation */
    uint32_t gone_max;               /* devices that do not come back */
    uint32_t gone_millionth;
    bool
        second_host; /* the upper half of the devices; when one of these does not come back, none does */
    enum sim_host_fault host_fault; /* with second_host and stores */
    bool
        drains; /* with second_host: it is drained first, and goes when nothing lies there alone, or it took too long */
    bool limits; /* some tasks do not end, or have a limit, or are cancelled by force */
    uint32_t cuts_max; /* of the network between the head and somebody */
    uint32_t cut_millionth;
    bool
        stores; /* they start, watch and fence their workers; else a crash is all there is */
    uint32_t store_deaths_max;
    bool
        store_early; /* it may be in trouble before it has been welcomed for the first time */
    uint32_t stops_max; /* of workers and whole hosts that stand still */
    uint32_t stop_millionth;
    uint32_t check_every; /* steps between checks of the head's invariants; 0: never */
};

struct sim_event {
    uint64_t at_ns;
    uint64_t serial;
    sim_fn fn;
    void *user;
    uint64_t arg;
    void *data;
};

struct sim {
    struct sim_config config;
    uint64_t random;
    uint64_t now_ns;
    uint64_t tick_ns; /* when the head last heard the time */
    uint64_t steps;
    uint64_t event_serial;
    struct pl_vec events; /* struct sim_event, a heap */

    struct head_core *head;
    struct wire_arena head_arena;
    struct sim_head head_process; /* `head` is the core in there */
    struct sim_old_head old_head;

    struct sim_worker workers[SIM_DEVICES_MAX];
    struct sim_node nodes[SIM_HOSTS_MAX];
    struct sim_worker
        ghosts[SIM_GHOSTS_MAX]; /* what others see of devices that were given up */
    uint32_t ghost_count;
    bool host_lost;                     /* it has met its fate */
    uint32_t owner_of[SIM_NUMBERS_MAX]; /* of a number, the last one */
    struct sim_client clients[SIM_CLIENTS_MAX];
    struct store_timeline *timelines[SIM_DEVICES_MAX + SIM_GHOSTS_MAX];
    struct store_table *tables[SIM_DEVICES_MAX + SIM_GHOSTS_MAX];
    struct store_pins *readers[STORE_READER_MAX];
    uint32_t host_device_of[SIM_NUMBERS_MAX];
    struct wire_arena
        arena; /* of whoever decodes just now on the workers' and clients' side */

    uint32_t crash_count;
    uint64_t combined; /* functions that read where their arguments lie */
    uint64_t together; /* reductions that teams have done */
    uint64_t alone;    /* parts of such that a device has done by itself */
    uint32_t gone_count;
    bool drain_begun; /* of the second host .. */
    bool drained;     /* .. and it went with nothing that was not elsewhere */
    uint32_t break_count;
    uint32_t fence_count;
    uint32_t cut_count;
    uint32_t stop_count;
    uint32_t store_death_count;
    uint64_t met[SIM_CELL_COUNT];
    uint32_t sends_at_once;    /* at most, by one device, to different ones */
    struct pl_vec crash_times; /* uint64_t; of fences too */
    struct pl_map lasting;     /* task key -> microseconds that its kernel takes */
    struct pl_map losses;      /* sim_losses.c: task -> what crashes may have cost it */
    uint32_t own_losses;       /* the same, of the head's own launches */
    struct pl_vec hosts;       /* struct sim_host * */
    struct pl_map files;       /* number -> struct sim_file: of spilled buffers */
    uint64_t spill_op_last;
    struct pl_map spill_answers; /* id -> struct sim_spill_answer, of all that was done */
    uint64_t spill_free_ns;      /* the store's thread is busy until then */
    uint64_t spill_life; /* of the store: what an earlier one was about to do is not done */
    uint64_t spill_down_until_ns;
    uint64_t spill_hellos;       /* to heads: what was said before is not for this store */
    bool spill_joined;           /* the last one was of this store, to this head */
    uint64_t spill_move;         /* store_spill_index.move */
    struct sim_host *spill_slab; /* NULL: none was made */
    uint32_t spill_deaths;
    bool spill_goes_on; /* the store is another one: the next thing may have any number */
    uint64_t slab_moves;
    struct pl_vec comms;  /* struct sim_comm *; they stay, for an end may be named late */
    struct pl_map ran_on; /* client task -> device + 1 of its launch, both clients' */

    bool trace;
    bool failed;
    char failure[4096];
};

plasmon_status_t sim_create(const struct sim_config *config, struct sim **out_sim);
void sim_destroy(struct sim *sim);
/* One event. false: none was left but the passing of time. */
bool sim_step(struct sim *sim);
/* Until done(user), or a failure, or a deadlock (which is a failure). */
bool sim_run_until(struct sim *sim, bool (*done)(void *user), void *user);
/* Until nothing happens any more. */
void sim_settle(struct sim *sim);
void sim_check(struct sim *sim);       /* invariants, now */
void sim_check_empty(struct sim *sim); /* every ref was released: nothing may be left */
struct sim_worker *sim_worker_of(struct sim *sim,
                                 uint32_t device); /* by the head's index */
/* What crashes so far may have cost this task (by its key; 0: one of the head's own launches). */
enum { SIM_LOSS_BEGUN = 1, SIM_LOSS_CONSUMED = 2 };
uint32_t sim_losses_of(const struct sim *sim, uint64_t task);
void sim_losses_init(struct sim_worker *worker);
void sim_losses_note(struct sim_worker *worker, const Plasmon__V1__Launch *launch);
void sim_losses_crash(struct sim_worker *worker); /* its streams have stopped */
uint64_t sim_losses_task(const struct sim_worker *worker, uint64_t seq); /* its key, or 0 */
/* Key of ran_on and losses. */
uint64_t sim_task_key(const struct sim_client *client, uint64_t task);
/* sim_spill.c: the store is asked */
void sim_spill_op(struct sim *sim, const struct head_spill_op *op);
void sim_spill_look_again(struct sim *sim); /* the head went on */
void sim_spill_finish(struct sim *sim);
/* Who waits for what. */
void sim_describe(struct sim *sim, struct pl_str *out);

#endif
