/*
 * Inside of the worker's core: its data, and what its files offer each other.
 *
 *   core.c      create, destroy, commands, figures          launch.c    a launch, copied out of its message
 *   queue.c     the front of the queue: may it go?          streams.c   where it goes, waits, signals
 *   run_check.c is it what its function takes?              buffers.c   memory and table entries of its operands
 *   before.c    what a wait for another device stands for
 *   enqueue.c   the device work of each kind of launch
 *   complete.c  what is done: seal, report, free            recover.c   rebuilding after a restart
 *   pace.c      which functions take long
 *   graph.c, graph_bind.c, graph_replay.c    recorded graphs: nodes, memory; fitted to a launch; recordings
 *   starve.c    no memory for the front
 *   reuse.c     memory that is used again before the host has seen that it is free
 *   condemn.c   launches that must not go on            begun.c     what has begun, for whoever comes after a death
 *   describe.c  who waits for what, for people          waits.c     the same, as facts for the head
 *   traffic.c   transfers by pair of devices            siblings.c  lives of the host's devices
 *   pairs.c     communicators with other devices: opened, used, broken and closed in order
 *
 * LIFE OF A LAUNCH
 *
 *   command -> [queued] -> front: points known, checked, memory in hand, overwritten buffers unpinned
 *           -> published -> waits, work -> [in the FIFO of its stream] -> word >= seq -> sealed, reported -> freed
 */
#ifndef WORKER_CORE_INT_H
#define WORKER_CORE_INT_H

#include "worker/core.h"

#include <stdatomic.h>

#include "base/alloc.h"
#include "base/expect.h"
#include "base/histogram.h"
#include "base/map.h"
#include "base/vec.h"

/*
 * Copies in (COPY, PUT), bytes that leave (SEND, READ), and host-route receives: streams of their
 * own, behind the run streams.
 */
enum worker_stream_role {
    WORKER_STREAM_COPY,
    WORKER_STREAM_SEND,
    WORKER_STREAM_RECV,
    WORKER_STREAM_COPY_2, /* so that the word of one copy is written while the next one moves bytes */
    WORKER_STREAM_SEND_2, /* so that a transfer to one device need not wait for another one's answers */
    WORKER_STREAM_SEND_3,
    WORKER_STREAM_ROLES,
};
static_assert((int)WORKER_STREAM_ROLES == (int)WORKER_ROLE_STREAMS,
              "who makes the streams counts the same");

/*
 * A long batch signals in between, so that completions flow. Measured: a signal after every kernel
 * of a 2 us chain costs 90%, after every 16th 4% (limits.md).
 */
#define WORKER_SIGNAL_EVERY 32u
/*
 * Of these a launch of a recorded graph stands for so many: it lasts as long as some, and somebody
 * may wait for just this one.
 */
#define WORKER_SIGNAL_GRAPH 4u
/* So many functions that take long are remembered, as a power of two (pace.c). */
#define WORKER_LONG_WORKS_BITS 6
struct worker_long_work {
    const void *work;  /* a function, or a recorded graph; NULL: none */
    uint64_t noted_ns; /* last; */
    uint32_t times;    /* in a row it was seen to take long */
};

/*
 * So many graphs that are gone may wait for a quiet device with what was recorded of them. A
 * program that records graphs and lets go of them all the time, and never leaves the device alone,
 * has it run empty once in as many.
 */
#define WORKER_GRAPHS_GONE 64u

/* Launch structs come from free lists by size: 256 bytes << class; larger ones from the heap. */
#define WORKER_SIZE_CLASSES 9u

struct worker_operand {
    uint32_t slot;
    uint32_t generation;
    bool fresh;
    bool writes;        /* its content is new when the launch is done, and is sealed then */
    bool client_writes; /* in memory that clients may map writable */
    bool replica;
    bool placed;     /* offset is right */
    bool allocated;  /* by this launch: given back if it fails before it is enqueued */
    bool consumed;   /* the table says CONSUMED because of this launch */
    bool was_sealed; /* before that */
    uint64_t bytes;  /* of the whole buffer */
    uint64_t offset;
    struct pl_box frame;
    struct kernel_arg arg; /* data.addr: byte offset inside the buffer */
};

/*
 * Of a graph's node: it is operand number `operand` - 1 of the launch, and shows this view of it;
 * 0: it lies in the graph's memory, here.
 */
struct worker_node_operand {
    uint32_t operand;
    uint64_t offset;
    struct pl_view view;
};

struct worker_piece {
    uint32_t operand;
    uint64_t src;
    struct pl_box src_frame;
    struct pl_box box;
};

struct worker_graph;

/* A scalar that one launch of a graph changes. */
struct worker_set {
    uint32_t node;
    uint32_t position;
    union kernel_scalar value;
};

struct worker_launch {
    struct worker_launch *next; /* in the queue, a stream's FIFO, or a free list */
    uint64_t seq;
    uint32_t kind; /* Plasmon__V1__LaunchKind */
    uint32_t function_id;
    const struct kernel_function *function;
    /* of a defined function; what was chosen, once it is enqueued */
    struct kernel_launch_shape shape;
    uint8_t size_class;
    bool checked;      /* the function exists and takes these arguments */
    bool memory;       /* every fresh buffer and the scratch are in hand */
    bool starved;      /* the head was told */
    bool overwrites;   /* what was there before, in place */
    bool without_work; /* nothing for the device to do but the word */
    bool waits;        /* for what is not in its stream; once enqueued */
    bool signalled;    /* the word is written right behind it */
    bool signals;      /* what enqueued it wrote the word as well */
    bool forced;       /* its client ends it by force */
    bool stream_chosen;
    bool by_sources;  /* the devices that its pieces come from may copy them (streams.c) */
    bool heavy;       /* takes the whole device for long, behind others (streams.c) */
    bool behind_mark; /* it waits for one (marks.c) */
    bool scratch_shared;    /* the stream's: another launch may take it over (reuse.c) */
    uint32_t time_limit_ms; /* 0: none */
    void *span;             /* what records it; NULL: nothing */
    uint64_t submit_ns;
    uint64_t placed_ns;
    int32_t priority;
    plasmon_status_t failure; /* OK: none */
    char *failure_text;       /* owned; NULL: the status says it all */

    uint32_t operand_count;
    uint32_t scalar_count;
    uint32_t after_count;
    uint32_t after_known; /* points [0 .. after_known) are enqueued or done */
    uint32_t piece_count;
    uint32_t peer;
    uint64_t offset;
    uint64_t length;
    uint64_t request;
    uint64_t host_buffer;
    uint64_t client;
    uint64_t task;
    /* epoch of the pair: OPEN, CLOSE, SEND, RECV; of the team: COPY, too; 0: none */
    uint64_t comm;
    uint32_t team; /* its number; 0: none */
    uint32_t ranks;
    uint64_t order; /* what the parts of one team's work share */
    /* SEND, RECV, COPY: enqueued by it, and not by the host route, or alone */
    bool by_pair;
    uint64_t scratch_offset;
    uint64_t scratch_wanted;
    uint64_t scratch_bytes;  /* in hand: none or all */
    uint64_t scratch_before; /* shared: the launch that had it last */
    uint32_t stream;         /* once stream_chosen */
    uint64_t run_operations; /* of its function; of a graph's node too; once checked */
    uint64_t put;            /* as of its stream, when it went in */
    uint64_t data_bytes;

    uint64_t queued_ns;       /* when it came; 0: there is no clock */
    struct worker_pair *pair; /* traffic.c: NULL: moves nothing */
    uint64_t pair_bytes;
    uint64_t moving_ns;
    /* it is at the front, with all there, and has not got on since; 0: not */
    uint64_t front_ns;
    uint64_t front_moved;
    bool late;

    struct worker_graph *graph; /* GRAPH: counted in its launches */
    bool graph_memory; /* the graph's memory is new; scratch is what it had before */
    uint32_t set_count;

    /* All in the same allocation. */
    struct worker_operand *operands;
    struct worker_node_operand *node_operands; /* of a node, for each; NULL otherwise */
    struct worker_piece *pieces;
    union kernel_scalar *scalars;
    uint64_t *after;
    struct worker_set *set;
    uint8_t *data;
    char *label;
};

/* When its turn has come, nothing of the next one is in a cache (base/expect.h). NULL: nobody is next. */
static inline void worker_launch_expect(const struct worker_launch *launch)
{
    pl_expect(launch, sizeof(struct worker_launch) + sizeof(struct worker_operand));
}

struct worker_fifo {
    struct worker_launch *first;
    struct worker_launch *last;
    uint32_t count;
};

struct worker_stream {
    struct worker_fifo running; /* enqueued, not yet seen complete */
    uint64_t last;              /* last seq that went in */
    uint64_t put;               /* operations that went in, ever; ... */
    uint64_t over;              /* ... and those of launches that were seen complete */
    /* last seq in here that may wait for another device, itself or through a join */
    uint64_t hazard;
    /* the same, of those that may wait for one with a time limit, or have one */
    uint64_t bounded;
    uint64_t heavy;       /* the last seq in here of a launch that is */
    uint32_t peer;        /* of the last SEND in here, which is not after `hazard` */
    uint32_t unsignalled; /* launches since the last signal; a graph counts for several */
    uint64_t unsignalled_bytes; /* what they work on; over a link: counted as more */
    uint64_t signalled;        /* a write of the word up to this seq went in, or was made */
    uint64_t signalled_before; /* the one before that */
    bool woken;                /* the core stored the word since the last wake */
    /* nothing of what comes next begins before the word of the stream ... */
    uint64_t held_by;
    /* ... held_from shows this launch; 0: nothing that is not there (begun.c) */
    uint32_t held_from;
    bool held_up; /* a wait for another device went in since a begin was told (begun.c) */
    uint32_t limited;    /* enqueued launches with a time limit */
    uint64_t watched;    /* the last one that was seen to have begun ... */
    uint64_t watched_ns; /* ... at this time */
    uint64_t moved_ns;   /* a transfer was last seen done */
    /* anything was, or the first launch of what is in here went in (pace.c) */
    uint64_t paced_ns;
    /* marks.c: the launch that each is behind; a ring, growing */
    uint64_t marks[WORKER_MARKS];
    /* ... and the write of the stream's word up to this one */
    uint64_t mark_words[WORKER_MARKS];
    bool mark_pipeline[WORKER_MARKS]; /* ... and who waits for it is marked, too */
    uint32_t mark_count;
    /* everything in stream i up to this seq is before what comes here next */
    uint64_t joined[STORE_STREAM_MAX];
    /* ... and so is the write of stream i's word up to this one */
    uint64_t joined_word[STORE_STREAM_MAX];
};

/* A word of another device, and what to wait for. */
struct worker_wait {
    bool needed; /* nothing else stands for it (before.c) */
    uint32_t host_device;
    uint64_t *word;
    uint64_t value;
};

/* The launch that is being ended (condemn.c). Nothing is enqueued meanwhile. */
struct worker_condemning {
    uint64_t seq; /* 0: none */
    uint32_t stream;
    plasmon_status_t status;
    uint64_t since_ns;
    bool fence_asked;
};

/* What was first in a place when the main loop came by, and since when. */
struct worker_watched {
    uint64_t seq; /* 0: nothing */
    uint64_t since_ns;
};

/* The front of the queue stands still. */
struct worker_spell {
    uint64_t seq; /* 0: it does not */
    Plasmon__V1__WaitWhy why;
    uint64_t since_ns;
};

enum worker_pair_state {
    WORKER_PAIR_NONE, /* nothing is known of this epoch but, perhaps, its id */
    WORKER_PAIR_OPENING,
    WORKER_PAIR_OPEN,
    WORKER_PAIR_ENDING, /* broken, and something of it may be on the device */
    WORKER_PAIR_ENDED,  /* nothing is; it is to be freed when nothing else is */
    WORKER_PAIR_FREEING,
    WORKER_PAIR_CLOSING,
    WORKER_PAIR_CLOSED,
};
/* All pairs with one device in one direction, or all communicators of one team; there is one at a time. */
struct worker_comm {
    struct worker_pair_key key; /* the epoch: of the one that there is, or was last */
    enum worker_pair_state state;
    /* ENDING: it is to be aborted when the head says that the others have marked it */
    bool held;
    uint64_t id_epoch; /* whose id this is */
    uint8_t id[WIRE_PAIR_ID_BYTES];
    uint64_t broken; /* every epoch up to this one is */
    /* of that epoch a half of ours failed: none behind it goes by the pair */
    uint64_t doubted;
    uint64_t staged; /* ... and what was to go by those goes by the host route */
    uint64_t bytes;  /* of device memory, when it was opened */
    /* when it ended, of those that are to be freed; 0: there is no clock */
    uint64_t ended_ns;
    /*
     * 0, or of receives: when this one is done, the head is told that it is decided what came by
     * `staged`
     */
    uint64_t decided_after;
};

/* A launch that was found right, for those that are like it (run_check.c). */
enum { WORKER_CHECKED = 16, WORKER_CHECKED_ARGS = 8, WORKER_CHECKED_SCALARS = 8 };
struct worker_checked {
    const struct kernel_function *function; /* NULL: none */
    uint32_t function_id;
    uint32_t arg_count;
    uint32_t scalar_count;
    uint64_t scratch;
    uint64_t run_operations;
    union kernel_scalar scalars[WORKER_CHECKED_SCALARS];
    struct kernel_arg args[WORKER_CHECKED_ARGS];
};

/*
 * Operands that several launches of a command share (wire/unpack.c) are read once, and copied from
 * the first of those launches.
 */
enum { WORKER_SHARED_LISTS = 16 };
struct worker_shared_list {
    const void *list; /* in the command's message; NULL: none */
    const struct worker_launch *launch;
};

struct worker_core {
    struct worker_core_config config;
    struct store_table *table;       /* ours */
    struct store_timeline *timeline; /* ours */
    struct store_arena *arena;
    uint32_t stream_count;
    uint32_t noop_id;

    struct worker_fifo queue; /* in order of seq */
    struct worker_stream streams[STORE_STREAM_MAX];
    uint64_t received;
    uint64_t recovered;            /* enqueued by an earlier incarnation up to here */
    struct wire_ranges unfinished; /* of those, which must come again ... */
    size_t unfinished_next;        /* ... from this range on, */
    uint64_t unfinished_offset;    /* this far into it */
    bool published;                /* something, since the doorbells rang */
    bool advancing;

    /* Memory. */
    /* a slot: launches that marked it and are not done; top bit: one ended well */
    uint16_t *writers;
    /* a ring position: bit 0: somebody took over its stream already; others: condemn.c */
    uint8_t *followed;
    struct pl_vec doomed; /* uint32_t slots that wait for a reader */
    /* struct worker_interrupted: until their launches have come again */
    struct pl_vec interrupted;
    /* counts returns of memory, so that a starved front tries again only after one */
    uint64_t freed_count;
    uint64_t starved_at;    /* freed_count when the front found no memory */
    uint32_t running_count; /* enqueued, not seen complete: all streams */
    bool waits_running;     /* the front waits until fewer are, or fewer operations */
    struct worker_condemning condemned;
    uint32_t forced;   /* running launches that are to be condemned one after the other */
    bool waits_memory; /* the front does */
    uint64_t relief;   /* request of the one that is under way (starve.c); 0: none is .. */
    uint64_t relief_launch; /* .. and the launch that it stands for; 0: for none */
    bool growing;           /* a chunk is on its way: ops->grow said EAGAIN */
    bool waits_chunk;       /* the front does, for that one */
    bool waits_host;        /* the front does: for host memory to be page-locked */
    bool waits_unpin;       /* the front does */
    uint64_t waits_for;     /* the front does: bit i, for host device i */
    uint64_t gone; /* bit i: host device i will not come back, and its waiters were woken */
    /*
     * the front does: for a function to be loaded, a pair to be opened, a graph to be recorded
     * beside pairs, recordings to be destroyed
     */
    bool waits_quiet;
    uint32_t holds;                    /* worker_core_hold() */
    uint32_t last_stream;              /* where the last launch went */
    enum worker_stream_role copied_in; /* .. and the last large copy from another device, */
    uint32_t copied_from;              /* which it was (streams.c) */
    uint64_t bytes_replica;

    /* reuse.c */
    uint64_t *last_use;    /* a slot: the last launch that uses it; what has become of it */
    uint16_t *used_by;     /* a slot: bit i: a launch that uses it went to stream i */
    struct pl_vec retired; /* struct retired, oldest first, from retired_first on */
    size_t retired_first;
    struct pl_vec reused;    /* struct reused */
    struct pl_vec rests;     /* struct rest */
    struct pl_vec heirs;     /* struct recovered */
    struct pl_vec scratches; /* struct scratch */
    /* the front's memory is right once launches of stream i up to this one are over */
    uint64_t behind[STORE_STREAM_MAX];

    struct worker_checked checked[WORKER_CHECKED]; /* by function */
    /* of the command that is being taken, by address */
    struct worker_shared_list lists[WORKER_SHARED_LISTS];

    /*
     * before.c: by stream, host device and word, what that word shows before the next launch
     * begins; NULL: one device
     */
    uint64_t *before;
    struct pl_vec waits;   /* struct worker_wait: of the launch being enqueued */
    struct pl_vec args;    /* struct kernel_arg */
    struct pl_vec shapes;  /* struct kernel_arg_shape */
    struct pl_vec sources; /* struct worker_source */
    struct worker_launch *spare[WORKER_SIZE_CLASSES];
    uint64_t launch_count;
    struct pl_map graphs; /* id -> struct worker_graph */
    /* with those that were freed and have launches or recordings left */
    uint32_t graph_count;
    struct worker_graph *graphs_gone; /* whose recordings wait for the device to be quiet */
    uint32_t graphs_gone_count; /* above WORKER_GRAPHS_GONE the front waits for that, too */
    struct pl_map pairs;        /* of peer and route -> struct worker_pair */
    uint32_t transfers_running;
    uint64_t put_in_a_row;  /* operations of launches, in this advance */
    struct pl_map comms;    /* peer and direction -> struct worker_comm */
    uint32_t comms_to_free; /* ENDED */
    uint32_t comms_freeing;
    bool waits_pair; /* the front does: for its pair, or for its input to be complete */
    struct worker_watched watched_front;
    struct worker_watched watched[STORE_STREAM_MAX];
    struct pl_histogram transfer_times[WORKER_ROUTE_NCCL + 1]; /* of pairs, by route */

    /* pace.c */
    struct worker_long_work long_works[1u << WORKER_LONG_WORKS_BITS];
    uint32_t long_work_count;

    /* queue_times.c */
    uint64_t command_ns; /* when the command came that is being taken */
    uint64_t looked_ns;  /* the clock, in this advance; 0: nobody looked yet */
    struct worker_spell spell;
    struct pl_histogram queue_times;                 /* of functions */
    struct pl_histogram front_times[WIRE_WAIT_WHYS]; /* of spells, by cause */
};

/* The clock of worker_core_tick(); 0: there is none. */
static inline uint64_t worker_now(const struct worker_core *core)
{
    return core->config.ops->now != NULL ? core->config.ops->now(core->config.user) : 0;
}

/* queue_times.c. Called when a command comes; when the front goes; and when an advance is over. */
void worker_queue_times_command(struct worker_core *core);
void worker_queue_times_goes(struct worker_core *core, const struct worker_launch *launch);
void worker_queue_times_stands(struct worker_core *core);

/* waits.c: what the front waits for. */
Plasmon__V1__WaitWhy worker_waits_why(const struct worker_core *core,
                                      const struct worker_launch *launch);

/* combine.c: a COPY whose pieces a function reads where they are */
bool worker_launch_combines(const struct worker_launch *launch);
plasmon_status_t worker_combine_check(struct worker_core *core,
                                      struct worker_launch *launch, struct pl_err *err);
plasmon_status_t worker_combine_enqueue(struct worker_core *core,
                                        struct worker_launch *launch, uint32_t stream,
                                        struct pl_err *err);

/* launch.c */
/* A node: operands as a GraphNode has them, nothing but a function. */
plasmon_status_t worker_node_create(struct worker_core *core,
                                    const Plasmon__V1__Launch *message,
                                    struct worker_launch **out_launch, struct pl_err *err);
/* Place and strides of a view in a buffer that holds operand->frame. */
void worker_operand_aim(struct worker_operand *operand, size_t n_view, const int64_t *view);
uint64_t worker_operand_bytes_shown(const struct worker_operand *operand);
plasmon_status_t worker_launch_create(struct worker_core *core,
                                      const Plasmon__V1__Launch *message,
                                      struct worker_launch **out_launch,
                                      struct pl_err *err);
void worker_launch_destroy(struct worker_core *core, struct worker_launch *launch);
void worker_launch_fail(struct worker_launch *launch, plasmon_status_t status,
                        const char *format, ...)
    PL_PRINTF(3, 4); /* the first failure stays */
/* The command that the launches came in is taken: its message goes. */
void worker_launch_lists_forget(struct worker_core *core);
static inline bool worker_launch_is_function(const struct worker_launch *launch)
{
    return launch->kind == PLASMON__V1__LAUNCH_KIND__LAUNCH_RUN ||
           launch->kind == PLASMON__V1__LAUNCH_KIND__LAUNCH_GRAPH;
}
static inline bool worker_launch_is_half(const struct worker_launch *launch)
{
    return launch->kind == PLASMON__V1__LAUNCH_KIND__LAUNCH_SEND ||
           launch->kind == PLASMON__V1__LAUNCH_KIND__LAUNCH_RECV;
}
const char *worker_launch_name(const struct worker_launch *launch); /* function or kind */
void worker_launch_describe(const struct worker_launch *launch, struct pl_str *out);
/* combine.c: the piece that is this device's own; NULL: there is none. */
const struct worker_piece *worker_joint_member(const struct worker_core *core,
                                               const struct worker_launch *launch);
void worker_launch_facts(const struct worker_core *core, const struct worker_launch *launch,
                         uint32_t stream, struct worker_span *out);
void worker_fifo_push(struct worker_fifo *fifo, struct worker_launch *launch);
struct worker_launch *worker_fifo_pop(struct worker_fifo *fifo);

/* buffers.c */
/* A buffer that a launch was writing in place when the worker before us died. */
struct worker_interrupted {
    uint64_t seq;
    uint32_t slot;
    bool right; /* what others wrote there before is */
};

enum worker_buffers_result { WORKER_BUFFERS_READY, WORKER_BUFFERS_WAIT };
/*
 * Place: find or allocate every operand. Consume: mark what is overwritten, see that nobody reads
 * it. Both may say WAIT; a failure is READY, with launch->failure set. Undo: as if neither had
 * been. Make anyway: what a failed launch should have made. Done: seal or not, return the scratch.
 */
/* The table's entry of a buffer of this host that can be read or written, or NULL. */
const struct store_entry *worker_buffer_find(const struct worker_core *core,
                                             uint32_t host_device, uint32_t slot,
                                             uint32_t generation);
enum worker_buffers_result worker_buffers_place(struct worker_core *core,
                                                struct worker_launch *launch);
enum worker_buffers_result worker_buffers_consume(struct worker_core *core,
                                                  struct worker_launch *launch);
void worker_buffers_undo(struct worker_core *core, struct worker_launch *launch);
enum worker_buffers_result worker_buffers_make_anyway(struct worker_core *core,
                                                      struct worker_launch *launch);
void worker_buffers_enqueued(struct worker_core *core, struct worker_launch *launch);
void worker_buffers_done(struct worker_core *core, struct worker_launch *launch);
plasmon_status_t worker_buffers_interrupted(struct worker_core *core, uint32_t slot);
void worker_buffers_free(struct worker_core *core, uint64_t buffer);
void worker_buffers_free_all(struct worker_core *core);
void worker_buffers_free_doomed(struct worker_core *core);

/* starve.c */
void worker_front_starves(struct worker_core *core,
                          struct worker_launch *launch); /* waits, and is told once */
/*
 * window.c: buffers, by their places, that leave a hole for so many bytes when they have gone, as
 * few bytes as possible; uint64_t, without a device. EDEVMEM: there are none.
 */
plasmon_status_t worker_window_find(const struct worker_core *core, uint64_t bytes,
                                    struct pl_vec *out_buffers) PL_MUST_CHECK;
plasmon_status_t worker_front_relieve(struct worker_core *core,
                                      const Plasmon__V1__Relief *relief,
                                      struct pl_err *err) PL_MUST_CHECK;
void worker_front_starved(struct worker_core *core,
                          struct worker_launch *launch); /* fails for want of memory */
/* What it needs, what there is, and who has the rest. */
void worker_front_memory_say(const struct worker_core *core,
                             const struct worker_launch *launch, struct pl_str *out);

/* What an entry's state is, and does anybody hold the slot? After RETIRED, DOOMED or CONSUMED. */
static inline uint32_t worker_entry_state(const struct store_entry *entry)
{
    return atomic_load_explicit(&entry->state, memory_order_acquire);
}
/* Slots from here on were never used. A table has room for 32 MiB of them: who looks at all stops here. */
static inline uint32_t worker_slot_end(const struct worker_core *core)
{
    uint32_t end = atomic_load_explicit(&core->table->slot_high, memory_order_acquire);

    return end < STORE_TABLE_SLOTS ? end : STORE_TABLE_SLOTS;
}
bool worker_slot_pinned(const struct worker_core *core, uint32_t slot);
/* Memory that something enqueued may have used: a starved front may try again. */
void worker_arena_return(struct worker_core *core, uint64_t offset);

/* reuse.c */
#define WORKER_ANY_STREAM UINT32_MAX
bool worker_reuse_create(struct worker_core *core); /* false: no memory */
void worker_reuse_destroy(struct worker_core *core);
/* A launch came; the head retires a buffer; a launch was enqueued. */
void worker_reuse_note(struct worker_core *core, const struct worker_launch *launch);
/* Nobody has used what is in the slot from now on. */
void worker_reuse_new(struct worker_core *core, uint32_t slot);
/* As an operand, or as the source of a piece that lies here. */
bool worker_launch_uses(const struct worker_core *core, const struct worker_launch *launch,
                        uint32_t slot, uint32_t generation);
void worker_reuse_retire(struct worker_core *core, uint64_t buffer);
void worker_reuse_enqueued(struct worker_core *core, const struct worker_launch *launch);
void worker_reuse_tidy(struct worker_core *core); /* something was freed */
/*
 * Give the bytes of the oldest retired buffer back to the arena. stream: only if nothing but
 * launches of this stream must be over before. false: there is none.
 */
bool worker_reuse_more(struct worker_core *core, uint32_t stream);
/* Is nothing that is still read or written there? */
bool worker_reuse_clear(const struct worker_core *core, uint64_t offset, uint64_t bytes);
/* Memory for the front: what must be over before it is added to core->behind. */
void worker_reuse_behind(struct worker_core *core, uint64_t offset, uint64_t bytes);
void worker_reuse_done(struct worker_core *core); /* words moved */
/* An entry goes: was its memory given away? Then nothing of it is to be freed. */
bool worker_reuse_given(struct worker_core *core, uint32_t slot);
/* Has the arena its bytes again, so that they may be somebody else's? */
bool worker_reuse_is_given(const struct worker_core *core, uint32_t slot);
/* Adds rests, and scratch of streams. */
void worker_reuse_account(const struct worker_core *core,
                          struct worker_account *io_account);
/* A RETIRED or DOOMED entry of an earlier incarnation, after all others: what of it nothing else lies in. */
plasmon_status_t worker_reuse_recover(struct worker_core *core, uint32_t slot);
/* Scratch that an earlier launch of the stream leaves behind. false: there is none of that size. */
bool worker_scratch_take(struct worker_core *core, struct worker_launch *launch,
                         uint32_t stream);
void worker_scratch_undo(struct worker_core *core, struct worker_launch *launch);
void worker_scratch_lend(struct worker_core *core, struct worker_launch *launch,
                         uint32_t stream); /* it was enqueued */
void worker_scratch_done(struct worker_core *core, const struct worker_launch *launch);

/*
 * marks.c: before a function that takes long, behind what was just enqueued if others will want
 * one, and the first one behind a launch.
 */
void worker_mark_before_work(struct worker_core *core, uint32_t stream);
void worker_mark_enqueued(struct worker_core *core, const struct worker_launch *launch,
                          uint32_t stream);
/* word: behind the write of its word, too. */
bool worker_mark_find(const struct worker_core *core, uint32_t stream, uint64_t seq,
                      bool word, uint32_t *out_slot);
/*
 * Who overwrites what it reads should wait for it and for nothing behind it: so its word is written
 * before its mark.
 */
bool worker_mark_wants_word(const struct worker_core *core,
                            const struct worker_launch *launch);

/* streams.c */
uint32_t worker_host_device_of(const struct worker_core *core,
                               uint32_t device); /* UINT32_MAX: another host */
uint64_t worker_stream_word(const struct worker_core *core, uint32_t stream);
bool worker_stream_idle(const struct worker_core *core, uint32_t stream);
bool worker_streams_quiet(const struct worker_core *core); /* everything enqueued is over */
/* it is; if not, the front waits for that */
bool worker_front_quiet(struct worker_core *core);
uint32_t worker_stream_choose(struct worker_core *core,
                              struct worker_launch *launch); /* once; then the same */
uint64_t worker_piece_bytes(const struct worker_launch *launch,
                            const struct worker_piece *piece);
/*
 * Whose engines copy a piece of it (NULL: there is none): before the waits of the launch for the
 * first one, and before each, so many bytes.
 */
plasmon_status_t worker_stream_source(struct worker_core *core,
                                      const struct worker_launch *launch,
                                      const struct worker_piece *piece, uint64_t bytes,
                                      uint32_t stream);
bool worker_stream_words_late(const struct worker_core *core, uint32_t stream);
/* Enqueue waits and joins for everything in `after`. True: nothing was needed. */
bool worker_stream_order(struct worker_core *core, struct worker_launch *launch,
                         uint32_t stream);
/* So many operations go in. */
static inline void worker_stream_put(struct worker_core *core, uint32_t stream,
                                     uint64_t operations)
{
    core->streams[stream].put += operations;
}
void worker_stream_signal(struct worker_core *core, uint32_t stream);
void worker_stream_signalled(struct worker_stream *stream); /* up to its last launch */
/* The write of its word behind the last launch went in with that. */
void worker_stream_written(struct worker_core *core, uint32_t stream);
/* Before work that may wait for another device by itself: the words of all streams are written. */
void worker_stream_before_hazard(struct worker_core *core, uint32_t stream, uint64_t seq);
/*
 * Before so much work (bytes, as signal_bytes): if it takes long, the word of what lies before it
 * is written.
 */
void worker_stream_before_work(struct worker_core *core, const struct worker_launch *launch,
                               uint32_t stream, uint64_t work);
void worker_stream_flush(struct worker_core *core,
                         uint32_t stream); /* of launches; no word */
void worker_streams_flush(struct worker_core *core);
/* for what was published since they rang */
void worker_doorbells_ring(struct worker_core *core);

/* graph.c, graph_bind.c, graph_replay.c */
plasmon_status_t worker_graph_take(struct worker_core *core,
                                   const Plasmon__V1__GraphPart *part, struct pl_err *err);
void worker_graph_free(struct worker_core *core, uint64_t id);
void worker_graphs_finish(struct worker_core *core);
/*
 * What is left of graphs that are gone goes if nothing is on the device. false: so much is left
 * that the front should wait for that.
 */
bool worker_graphs_gone(struct worker_core *core);
/*
 * A launch names it: counted until worker_graph_drop(). EMALFORMED: there is no such graph, or it
 * has other operands.
 */
plasmon_status_t worker_graph_hold(struct worker_core *core, struct worker_launch *launch,
                                   uint64_t id, struct pl_err *err);
void worker_graph_drop(struct worker_core *core, struct worker_launch *launch);
/*
 * Its nodes fit these operands and scalars; how much memory is missing goes into scratch_wanted.
 * Otherwise the launch fails. false: a function is not loaded yet.
 */
bool worker_graph_check(struct worker_core *core, struct worker_launch *launch);
/*
 * The launch has its memory: it becomes the graph's, and what that had before is returned when the
 * launch is done. And back.
 */
void worker_graph_memory_swap(struct worker_launch *launch);
/* The last launch of the graph that was enqueued; 0: none. */
uint64_t worker_graph_last(const struct worker_graph *graph);
/* Memory of graphs that are not in use: true: some came back. */
bool worker_graphs_trim(struct worker_core *core);
/* account.c: of launches and recorded graphs; looks at the launches that are not over. */
uint64_t worker_account_scratch(const struct worker_core *core);
/*
 * Memory for what `launch` makes and a graph uses: where it was when the graph was recorded, if
 * that is free. `launch`: the graph's, or one that is still in the queue before it.
 */
bool worker_graph_memory_again(struct worker_core *core, const struct worker_launch *launch,
                               const struct worker_operand *operand, uint64_t *out_offset);
/* Its memory is in hand: will something be recorded or changed for it, and not just replayed? */
bool worker_graph_records(const struct worker_core *core,
                          const struct worker_launch *launch);
/* How many operations it puts into its stream. */
uint64_t worker_graph_operations(const struct worker_core *core,
                                 const struct worker_graph *graph);
plasmon_status_t worker_graph_enqueue(struct worker_core *core,
                                      struct worker_launch *launch, uint32_t stream,
                                      struct pl_err *err);

/* run_check.c */
/*
 * The function of a launch, or of a node, checked against its operands; *out_scratch is what it
 * needs. EAGAIN: it is not loaded, or what it needs is not prepared. keep: for a recorded graph.
 */
plasmon_status_t worker_run_check(struct worker_core *core, struct worker_launch *launch,
                                  bool keep, uint64_t *out_scratch, struct pl_err *err);
/*
 * The function and its arguments; what scratch it wants. Not right: the launch fails. Once a
 * launch. false: a function is not loaded yet; again later.
 */
bool worker_launch_check(struct worker_core *core, struct worker_launch *launch);
/* Ids may mean other functions from now on. */
void worker_checked_forget(struct worker_core *core);

/* enqueue.c */
plasmon_status_t worker_run_enqueue(struct worker_core *core, struct worker_launch *launch,
                                    uint32_t stream, struct pl_err *err);
/* The buffer that a piece is taken from, if it is on this host. */
plasmon_status_t worker_piece_source(const struct worker_core *core,
                                     const struct worker_piece *piece, uint32_t dtype,
                                     struct worker_source *out, struct pl_err *err);
/* How many operations its work puts into its stream, at most. It was checked. */
uint64_t worker_launch_operations(struct worker_core *core,
                                  const struct worker_launch *launch);
/* Publish, and put everything into its stream. */
void worker_launch_enqueue(struct worker_core *core, struct worker_launch *launch);

/* pace.c */
/* By what was seen its function, or recorded graph, takes long. */
bool worker_pace_is_long(const struct worker_core *core,
                         const struct worker_launch *launch);
/* A launch goes into the stream, which is empty. */
void worker_pace_begins(struct worker_core *core, uint32_t stream);
/* The words of all streams; what they cover is still in `running`. */
void worker_pace_done(struct worker_core *core, const uint64_t *words);

/* waits.c */
void worker_waits_look(struct worker_core *core, uint64_t now_ns);

/* before.c */
bool worker_before_create(struct worker_core *core);
void worker_before_destroy(struct worker_core *core);
/* What comes next in the stream comes behind all that is in the other one. */
void worker_before_joined(struct worker_core *core, uint32_t stream, uint32_t other);
/*
 * What comes next in the stream is to wait. false: it does. true: it has to, and it is known now
 * what that stands for.
 */
bool worker_before_waits(struct worker_core *core, uint32_t stream,
                         const struct worker_wait *wait);
/* Its joins are in the stream: others are told what they stand for. */
void worker_before_say(struct worker_core *core, const struct worker_launch *launch,
                       uint32_t stream);

/* begun.c */
/* What comes next in the stream may have to wait for long. */
void worker_begun_held_up(struct worker_core *core, uint32_t stream);
/* Does the device say when it begins? tell: behind all that it waits for, before its work. */
bool worker_begun_tells(const struct worker_core *core, const struct worker_launch *launch,
                        uint32_t stream);
plasmon_status_t worker_begun_tell(struct worker_core *core,
                                   const struct worker_launch *launch, uint32_t stream);
/* What comes next in the stream is behind what `joined_word` says of the other one now. */
void worker_begun_joined(struct worker_stream *mine, uint32_t other);
/* Whose word it comes behind in its stream is written down. Before it is ENQUEUED, after its joins. */
void worker_begun_hold(struct worker_core *core, const struct worker_launch *launch,
                       uint32_t stream);
/*
 * Of the unfinished launches: those that have not begun, in any incarnation. What was known of them
 * is taken back.
 */
plasmon_status_t worker_begun_recover(struct worker_core *core,
                                      struct wire_ranges *out_untouched);

/* condemn.c */
/* Its client ends it by force: condemned at the next look, if it runs. */
void worker_condemn_force(struct worker_core *core, uint64_t seq);
bool worker_condemn_frozen(const struct worker_core *core);
void worker_condemn_done(struct worker_core *core, const struct worker_launch *launch,
                         struct worker_stream *stream);

/* traffic.c */
void worker_traffic_count(struct worker_core *core, struct worker_launch *launch,
                          uint32_t peer, uint32_t route, uint64_t bytes);
void worker_traffic_done(struct worker_core *core, struct worker_launch *launch,
                         struct worker_stream *stream);
uint64_t worker_traffic_look(struct worker_core *core,
                             uint64_t now_ns); /* as worker_core_tick() */
void worker_traffic_finish(struct worker_core *core);
/* Has all that it comes after on devices of this host been seen done? */
bool worker_inputs_done(const struct worker_core *core, const struct worker_launch *launch);
/*
 * What this device makes of it, whose end wakes us: done, or on the lane that this part of a team
 * goes on (pairs.c).
 */
bool worker_own_inputs_done(const struct worker_core *core,
                            const struct worker_launch *launch);
bool worker_joint_ahead(const struct worker_core *core, const struct worker_launch *launch,
                        uint64_t seq);
/* pairs.c */
plasmon_status_t worker_pairs_take(struct worker_core *core,
                                   const Plasmon__V1__WorkerCommand *command,
                                   struct pl_err *err);
void worker_pairs_finish(struct worker_core *core);
/* is any opening, open or ending? */
bool worker_pairs_used(const struct worker_core *core);
bool worker_launch_is_pairs(const struct worker_launch *launch); /* OPEN or CLOSE */
/* COPY that a team may do */
bool worker_launch_is_joint(const struct worker_launch *launch);
/* A part that the others will not meet: somebody has to hear of that. */
void worker_joint_failed(struct worker_core *core, const struct worker_launch *launch);
plasmon_status_t worker_joint_enqueue(struct worker_core *core,
                                      struct worker_launch *launch, uint32_t stream,
                                      struct pl_err *err);
/*
 * No thread opens, closes, ends or frees a communicator: a kernel of NCCL's that no launch of ours
 * stands for may be on the device meanwhile.
 */
bool worker_pairs_still(const struct worker_core *core);
/* The front has to do with a pair: may it go as far as that is concerned? */
bool worker_pair_front(struct worker_core *core, struct worker_launch *launch);
/*
 * Begins to free what broken pairs have left, where nothing is on the device, and need be: before
 * an OPEN or CLOSE, and when the queue is empty. The front waits until it is done: false.
 */
bool worker_pairs_freed(struct worker_core *core);
/* What is left of those that broke. NULL: nothing, or no memory to tell it. */
Plasmon__V1__CommsLeft *worker_pairs_left(const struct worker_core *core,
                                          struct wire_arena *arena, uint64_t now_ns);
/* What half of a transfer, an OPEN or a CLOSE has to do with its pair; nothing of others. */
void worker_pair_describe(const struct worker_core *core,
                          const struct worker_launch *launch, struct pl_str *out);
/* A receive is done: somebody may wait for that. */
void worker_pair_received(struct worker_core *core, const struct worker_launch *launch);
/* Does this half go by its pair, and not by the host route? */
bool worker_pair_usable(struct worker_core *core, const struct worker_launch *launch);
plasmon_status_t worker_pair_enqueue(struct worker_core *core, struct worker_launch *launch,
                                     uint32_t stream, uint64_t offset);

/* recover.c */
/* Is this the launch that is due? Duplicates: *out_take is false. A gap: EMALFORMED. */
plasmon_status_t worker_recover_accept(struct worker_core *core, uint64_t seq,
                                       bool *out_take, struct pl_err *err);

#endif
