/* Devices of a simulated cluster (sim.h), and the process of a worker. */
#ifndef TESTS_SIM_SIM_DEVICE_H
#define TESTS_SIM_SIM_DEVICE_H

#include "base/box.h"
#include "head/core.h"
#include "kernels/kernels.h"
#include "store/table.h"
#include "store/worker_proc.h"
#include "tests/sim/sim_base.h"
#include "transfer/lane.h"
#include "worker/core.h"

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
    SIM_OP_SETTLE,
    SIM_OP_MEET,
};

/* Memory that an op touches; the block must live on, unfreed, until the op is done. */
struct sim_touch {
    struct sim_worker *owner;
    uint64_t offset;
    uint64_t serial; /* of the block */
    uint32_t device; /* which one the owner was */
};

struct sim_op {
    enum sim_op_kind kind;
    struct pl_list link;
    uint64_t serial; /* it went into its device as number so many; 0: it has not */
    const struct sim_worker *by; /* of whom it is */
    uint32_t stream;
    uint64_t number;      /* in it */
    bool late;            /* SIGNAL: the stream goes on before that is written */
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
    uint64_t enqueued_ns; /* SEND */
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

/*
 * Host memory of a client, for one copy; its number on the wire is its address. Lives as long as
 * the simulation.
 */
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
    struct pl_list words; /* signals that the stream has gone past, and that are to come */
    uint64_t enqueued;
    uint64_t passed;    /* so many it has gone past */
    uint64_t completed; /* so many are over, and all before them */
    bool leaves;        /* other devices copy what comes from them */
    /* the device whose engines copy what goes in: another one's, and words are late */
    uint32_t from;
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
    /* the last launch in each stream of its device that touches it */
    uint64_t used[STORE_STREAM_MAX];
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
    bool open; /* .. by who began anew, and somebody is to write there again */
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
    /* seqs in the stream of a launch over its limit, when it was ended */
    struct pl_map behind;
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

/*
 * What half `number` of a lane moves, as it was when the half was enqueued: it may be staged, or
 * done alone, much later.
 */
struct sim_half_touch {
    uint64_t number;
    uint64_t seq; /* of its launch */
    struct sim_touch touch;
    struct sim_touch member; /* of a team: what this device gives */
};
/* A worker's part of all pairs. Goes with its process. */
struct sim_pairs {
    struct pl_list all; /* struct sim_pair */
    struct transfer_lane lanes[TRANSFER_LANES];
    uint64_t done[TRANSFER_LANES]; /* words, as in transfer/pair_int.h */
    uint64_t staged[TRANSFER_LANES];
    uint64_t over[TRANSFER_LANES];
    uint64_t passed;
    struct pl_vec news;                    /* struct transfer_pair_news */
    struct pl_vec touches[TRANSFER_LANES]; /* struct sim_half_touch: of the lanes' halves */
    uint64_t serial;
    bool look_pending;
    bool news_pending;
};

/* Chunks that were given up (sim_ways.c). */
struct sim_chunks {
    uint32_t peer;
    uint64_t first;
    uint64_t count;
};
/* What a worker knows of its way to one receiver. Goes with its process. */
struct sim_reach {
    bool trying; /* it makes attempts */
    bool news;   /* it was told of another receiver, and its thread has not heard of it */
    uint32_t incarnation; /* of the receiver, as it was told */
    uint64_t since_ns;    /* nothing got on; 0: all is well */
    uint64_t tried_ns;    /* when the attempt began .. */
    uint64_t tried_last;  /* .. and the last chunk that was enqueued then */
    uint64_t ms;          /* as of the last attempt that failed, and so the two below */
    uint64_t last;
    uint64_t attempted_ns;
    uint64_t told_ns; /* the last one by which the head may give up something began then */
};
/* From one host to another. */
struct sim_way {
    bool cut;
    uint64_t serial;
    uint64_t cut_ns;     /* since then, if it is .. */
    uint64_t longest_ns; /* .. and for so long it was, at most */
    uint64_t given_up_before;
};

struct sim_worker {
    struct sim *sim;
    uint32_t host_device; /* here: of all */
    uint32_t local;       /* as its host counts them */
    uint32_t device;      /* the head's index; UINT32_MAX before it told */
    bool alive;
    bool gone;       /* for good */
    bool blank;      /* its memory is new, and no head has heard of it */
    bool forgets;    /* it lets go of everything just now */
    bool given_up;   /* the head has taken its host for lost, and it has not joined anew */
    bool ring_begun; /* this process knows that its ring has (worker/siblings.h) */
    bool forgot;     /* it let go of what it had, and its ring has not begun since */
    uint64_t node_session;
    uint32_t host_device_of[SIM_NUMBERS_MAX]; /* as this process knows them */
    uint64_t life;                            /* events of an earlier one are void */
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
    /* struct sim_chunk: those that the store, or a peer for it, keeps */
    struct pl_vec chunks;
    struct sim_growth growth;
    uint8_t *slab;        /* STORE_STAGE_SLOTS * SIM_STAGE_BYTES_MAX */
    struct pl_vec sealed; /* struct sim_sealed, a slot */
    struct pl_map takers; /* sim_sealed.c: slot and seq -> what a launch writes there */
    /* slot + 1 -> the last generation that the head gave up there, + 1 */
    struct pl_map leavers;

    struct store_arena *book; /* the core's allocator, as seen at link time */
    struct pl_vec blocks;     /* struct sim_block */
    /* struct sim_block: given back in stream order, and still read */
    struct pl_vec leaving;
    struct pl_vec blocks_before; /* of the incarnation that died */
    bool recovered_memory;       /* the core has taken its blocks from the table */
    uint64_t block_serial;
    uint64_t recovered; /* what the hello says of earlier incarnations */
    struct wire_ranges recovered_open;
    struct wire_ranges recovered_untouched;
    struct pl_map begun; /* sim_begun.c: seq -> what has happened, whichever incarnation */
    bool words_cheap;
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
    /* sim_losses.c: of the launches that were sent since the last crash */
    struct pl_vec uses;
    struct pl_vec data;         /* struct sim_read_back */
    struct pl_vec pair_reports; /* struct sim_pair_report */
    struct sim_reach reach[SIM_DEVICES_MAX];
    struct pl_vec sends_given_up;    /* struct sim_chunks */
    struct pl_vec receives_given_up; /* struct sim_chunks: not marked as full yet */
    bool report_pending;             /* of what was reached */
    bool stats_due;
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
    /* host memory is page-locked then, by a worker that follows a dead one */
    uint64_t locks_until_ns;
    uint64_t launches_run;
    uint64_t starvations;
};

#endif
