/*
 * Inside of the head's state machine. Reading order:
 *
 *   object.c    buffers, instances, tiles, fragments: what exists and where
 *   hazard.c    uses of buffers, and the edges that follow from them
 *   device.c    slots, launch numbers, windows, outboxes, starvation
 *   worker.c    devices join, come back, and go
 *   memory.c    what tasks in flight cost
 *   condemn.c   launches that must not go on, and fencing
 *   task.c      the life of a task: numbered, encoded, sent, finished, failed onwards
 *   move.c      bringing a box to a device: common buffer, replica, gather, host route
 *   submit.c    a client's task becomes a launch
 *   priority.c  in which order the tasks of a frame do so
 *   reduce.c    partial results and how they are folded
 *   place.c     placement policies
 *   function.c  functions that clients define
 *   group.c     several launches that are one task for the client
 *   graph.h     recorded graphs: graph_record.c, graph_plan.c, graph_nodes.c, graph_launch.c
 *   index.c     one task a point of an index space
 *   data.c      put, read, locate
 *   trace.c     who records a timeline, and spans on their way
 *   client.c    sessions, refs, names, what clients are told
 *   core.c      create, tick, flush, status, check
 *
 * Allocation in here does not fail half-way: a head that cannot allocate cannot keep its promises, so head_alloc() stops it
 * (PL_CHECK) and the journal, the stores and the workers carry the state.
 */
#ifndef HEAD_CORE_INT_H
#define HEAD_CORE_INT_H

#include "base/alloc.h"
#include "base/fault.h"
#include "base/list.h"
#include "base/log.h"
#include "base/map.h"
#include "base/vec.h"
#include "head/core.h"

enum {
    HEAD_WINDOW_DEFAULT = 8192,    /* launches at a worker; a quarter of its ring */
    HEAD_SLOTS_MAX      = 1 << 18, /* entries of an object table (STORE_TABLE_SLOTS) */
    HEAD_SLOTS_RESTING_MIN =
        4096, /* freed slots rest that long before they are given out again */
    HEAD_BODY_BYTES_MAX   = 1 << 20, /* a frame is sent when it grows past this */
    HEAD_FOLD_MAX         = 64,      /* partials one fold takes */
    HEAD_STAGE_SLOT_BYTES = 8 << 20  /* STORE_STAGE_SLOT_BYTES */
};

struct head_bytes {
    uint8_t *data;
    size_t length;
    size_t capacity;
};

/* Why something failed; shared by everything that failed because of it. */
struct head_failure {
    uint32_t refs;
    plasmon_status_t status;
    uint64_t first_task;
    uint64_t first_client;
    char *text;
};

struct head_device {
    uint32_t index;
    bool
        joined; /* its worker has said hello; before that it is only a number that its store announced */
    bool connected;
    bool gone; /* will not come back */
    bool peer_capable;
    uint32_t kind;
    uint32_t ordinal;
    uint32_t host_device;
    uint32_t incarnation;
    uint32_t restarts;
    char *host;
    char *node;
    char *name;
    char *bulk_address; /* "": takes no objects of other hosts */
    uint8_t bulk_secret[WIRE_BULK_SECRET_BYTES];
    char *death; /* why its last worker died; NULL: none did */
    uint64_t bytes_total;
    uint64_t bytes_planned; /* of all buffers that exist for us */

    /* Slots of its object table. */
    uint32_t slot_next;
    struct pl_vec generations; /* uint32_t a slot */
    struct pl_vec resting;     /* uint32_t, FIFO from resting_first */
    size_t resting_first;

    /* Launches: unfinished ones are by_seq[seq & mask]; NULL once finished. */
    uint64_t seq_last;   /* last number given out */
    uint64_t seq_sent;   /* last number put into the outbox */
    uint64_t seq_oldest; /* every launch before it is finished */
    struct head_task **by_seq;
    uint64_t by_seq_mask;
    uint64_t unfinished;
    uint64_t load_ns; /* estimated work of the unfinished ones */

    uint64_t starved_seq; /* 0: not */
    uint64_t starved_bytes;
    uint64_t starved_hole;
    uint64_t stage_next; /* next chunk number of its staging ring */
    uint32_t maps;       /* mapped arrays in the cluster; 0 spares the search for them */

    /* Its worker is to be ended (condemn.c), or was replaced (worker.c). */
    bool fencing; /* the store was asked to kill it */
    uint64_t fence_ms;
    uint64_t barrier;             /* while this launch is not done ... */
    struct wire_ranges untouched; /* ... these have not begun */
    uint64_t
        alone_until; /* launches up to here are done one at a time, for they come again */
    plasmon_status_t death_status; /* what the dead one said of its device, or OK */

    struct head_bytes out;           /* WorkerCommand fields, encoded */
    uint32_t out_launches;           /* launches in it: a frame may carry WIRE_TASKS_MAX */
    struct pl_vec out_free;          /* uint64_t buffers */
    struct pl_vec out_graph_free;    /* uint64_t graphs */
    struct pl_vec out_function_free; /* uint32_t ids */
    struct pl_map
        told; /* ids of defined functions that its worker was told, and must be told again when it begins anew */
    uint32_t runs;                  /* WIRE_RUNS_*: what of clients it runs */
    struct pl_vec out_cancel;       /* uint64_t seqs */
    struct pl_vec out_force;        /* uint64_t seqs */
    Plasmon__V1__WorkerStats stats; /* last report; routes apart */
    Plasmon__V1__RouteStats routes[8];
    struct pl_list buffers; /* head_buffer.device_link, least recently used first */
};

/* One allocation. refs: instances in it, and uses by unfinished tasks. Freed at zero, by buffer_release alone. */
struct head_buffer {
    uint64_t id;
    struct head_device *device;
    struct pl_box frame;
    uint32_t dtype;
    uint64_t bytes;
    uint32_t refs;
    bool donatable;
    bool
        replica; /* every byte in it exists elsewhere: may be dropped under memory pressure */
    struct pl_list device_link;
    struct pl_list instances; /* head_instance.buffer_link */
    struct pl_list readers;   /* head_use.link: unfinished tasks that read */
    struct pl_list writers;   /* head_use.link: unfinished tasks that write */
};

/* `box` of `tile` lies, right, in `buffer` (once the buffer's pending writers of that box are done). */
struct head_instance {
    struct head_tile *tile;
    struct head_buffer *buffer;
    struct pl_box box;
    struct pl_list tile_link;
    struct pl_list buffer_link;
};

/* Content. refs: fragments that show it, and the unfinished task that makes it. */
struct head_tile {
    uint32_t refs;
    uint64_t order; /* of the task that makes it */
    struct pl_box box;
    struct head_failure *failure; /* it will never be right */
    struct pl_list instances;     /* head_instance.tile_link */
    struct pl_list fragments;     /* head_fragment.tile_link */
};

struct head_fragment {
    struct head_array *array;
    struct head_tile *tile;
    struct pl_box box; /* what of the tile this array shows */
    struct pl_list array_link;
    struct pl_list tile_link;
};

/* A REDUCE result that is not folded in yet. */
struct head_partial {
    struct pl_box box;
    struct head_tile *tile;
};

/* A version: disjoint fragments that cover `extent`. refs: refs of clients, names, requests in progress. */
struct head_array {
    uint32_t refs;
    struct pl_shape shape; /* of the root coordinates */
    struct pl_box extent; /* what of it exists (a snapshot of a view keeps only its hull) */
    struct pl_list fragments;
    uint32_t fragment_count;
    struct pl_vec partials; /* struct head_partial */
    uint32_t partial_op;
    uint64_t put_offset; /* next byte of a put in pieces; UINT64_MAX: none going on */
    bool mapped; /* a client looks at its buffers: nothing in them is written in place */
};

/* A client's name for what a view shows of an array. */
struct head_ref {
    struct head_array *array;
    bool based; /* base is not the whole */
    struct pl_view base;
};

struct head_use {
    struct head_task *task;
    struct head_buffer *buffer;
    struct pl_box box;
    bool write;
    struct pl_list link;
};

struct head_function;
struct head_wait; /* data.c: an answer that is owed when tasks are done */
struct head_waiting {
    struct head_wait *wait;
    bool
        indifferent; /* the answer is not about what this task makes: its failure is none of it */
};

struct head_task {
    uint32_t refs;              /* unfinished; dependents lists of others */
    uint32_t kind;              /* LaunchKind */
    struct head_client *client; /* NULL: the head's own, or the client is gone */
    uint64_t id;                /* of the client; 0: the head's own */
    struct head_device *device;
    uint64_t seq;
    uint64_t order;
    uint32_t function;
    uint64_t cost_ns;       /* estimate, part of device->load_ns */
    uint64_t counted_bytes; /* part of core->memory.bytes */
    uint8_t attempts;
    uint8_t attempts_max;
    bool consumes; /* overwrites something in place: cannot run twice */
    bool
        ended; /* its worker is done with it; producers on other devices may not have reported yet */
    bool finished;
    bool resolved;
    bool cancelled;
    bool forced; /* cancelled by force */
    uint32_t time_limit_ms;
    uint64_t request; /* READ, ALLOC: whom to answer */
    struct head_failure *failure;
    struct head_group
        *group; /* held: what it is a part of for the client; NULL: a task of its own */
    struct pl_list group_link; /* group->tasks, until it is resolved */
    struct head_plan *plan;    /* held: GRAPH */
    struct pl_list order_link; /* core->unfinished */
    struct pl_vec
        dependents; /* struct head_task *, owned references: they read what this makes */
    uint32_t producers_open; /* unfinished tasks in whose dependents this is */
    struct pl_vec outputs;   /* struct head_tile *, owned references */
    struct pl_vec waits;     /* struct head_waiting */
    char *label;
    uint8_t *bytes; /* the encoded Launch */
    uint32_t bytes_length;
    uint32_t use_count;
    struct head_use uses[];
};

struct head_client {
    uint64_t session;
    uint64_t id;
    char *name_space;
    char *label;
    char *host;
    bool lost;
    bool closing;
    bool tracing; /* it is sent spans */
    uint64_t lost_ms;
    uint64_t ops_taken;
    uint64_t tasks_open;
    struct pl_map refs;      /* id -> head_ref */
    struct pl_map tasks;     /* id -> head_task, unfinished */
    struct pl_map graphs;    /* id -> head_graph */
    struct pl_map groups;    /* id -> head_group, not resolved */
    struct pl_map functions; /* the client's number -> head_function */
    /* Outbox. */
    struct wire_ranges done;
    struct pl_vec failed;  /* struct head_failed */
    struct head_bytes out; /* other HeadFrame fields, encoded */
    struct pl_list link;
    bool dirty;
    struct pl_list dirty_link;
};

struct head_failed {
    uint64_t task;
    struct head_failure *failure;
};

/* A session that stops recording, once it was told all that is over; trace.c. */
struct head_trace_wait {
    uint64_t session;
    uint64_t request; /* of the client */
    uint64_t number;  /* towards the workers */
    uint32_t missing; /* workers that have not answered */
    uint64_t since_ms;
};

struct head_name {
    char *key; /* namespace, NUL, name: key_length bytes */
    size_t key_length;
    struct head_ref ref;
    struct pl_list link;
};

struct head_policy;

struct head_memory {
    uint64_t bytes;        /* of the blocks of unfinished tasks */
    uint64_t most;         /* unfinished tasks at a time, so far */
    uint64_t bytes_a_task; /* then */
};

struct head_core {
    struct head_config config;
    const struct head_policy *policy;
    uint64_t epoch;
    uint64_t now_ms;
    uint64_t started_ms;
    uint64_t order_last;
    uint64_t request_last;
    uint32_t round_robin;
    struct pl_vec devices; /* struct head_device * */
    bool numbers_told;     /* of devices, to anybody: they are final */
    struct pl_list clients;
    struct pl_map sessions; /* session -> head_client */
    struct pl_list dirty_clients;
    struct pl_list unfinished; /* head_task.order_link, in order */
    uint32_t maps;             /* mapped arrays */
    struct pl_vec
        ready; /* struct head_task *, owned references: ended, and so are all their producers */
    bool finishing;
    struct pl_map requests; /* request -> head_wait (reads) */
    struct pl_list names;
    struct pl_list plans;          /* head_plan.link */
    uint64_t step_last;            /* number of the last segment of a plan, for workers */
    struct wire_arena arena;       /* for building messages; reset for each */
    uint32_t tracing;              /* clients that record */
    uint64_t trace_ns;             /* the time, while somebody records */
    uint64_t trace_last;           /* number of the last question to the workers */
    struct pl_vec trace_waits;     /* struct head_trace_wait */
    struct pl_list functions;      /* head_function.link */
    struct pl_map functions_by_id; /* id -> head_function */
    uint32_t function_last;
    uint32_t functions_retired; /* of no session, and not yet freed */
    uint64_t tasks_done, tasks_failed, tasks_queued;
    struct head_memory memory;
    struct head_core_counts counts;
    uint64_t object_bytes;
};

/* ---- core.c */
void *head_alloc(size_t bytes);
char *head_strdup(const char *text);
void head_bytes_append(struct head_bytes *bytes, const void *data, size_t length);
void head_bytes_varint(struct head_bytes *bytes, uint64_t value);
/* field `number`, length-delimited */
void head_bytes_field(struct head_bytes *bytes, uint32_t number, const void *data,
                      size_t length);
void head_bytes_message(struct head_bytes *bytes, uint32_t number,
                        const ProtobufCMessage *message);

/* ---- object.c */
struct head_failure *head_failure_create(plasmon_status_t status, uint64_t first_task,
                                         uint64_t first_client, const char *format, ...)
    PL_PRINTF(4, 5);
struct head_failure *head_failure_hold(struct head_failure *failure);
void head_failure_release(struct head_failure *failure);
struct head_buffer *head_buffer_create(struct head_core *core, struct head_device *device,
                                       const struct pl_box *frame, uint32_t dtype);
void head_buffer_hold(struct head_buffer *buffer);
void head_buffer_release(struct head_core *core, struct head_buffer *buffer);
struct head_tile *head_tile_create(struct head_core *core,
                                   const struct pl_box *box); /* refs 1, the caller's */
void head_tile_release(struct head_core *core, struct head_tile *tile);
void head_instance_add(struct head_core *core, struct head_tile *tile,
                       struct head_buffer *buffer, const struct pl_box *box);
void head_instance_remove(struct head_core *core, struct head_instance *instance);
/* Something else is about to be written over `box` of the buffer: no tile whose task has an order before `before` may be found there any more. */
void head_buffer_forget(struct head_core *core, struct head_buffer *buffer,
                        const struct pl_box *box, uint64_t before);
/* Is every element of `box` of the tile in this buffer (NULL: in some buffer)? */
bool head_tile_covered(const struct head_tile *tile, const struct head_buffer *buffer,
                       const struct pl_box *box);
/* From now on, until it is released, no buffer that it lies in is written in place. */
void head_array_map(struct head_core *core, struct head_array *array);
bool head_buffer_mapped(const struct head_buffer *buffer);
/* Does a fragment of another array show any of `box` of the tile? */
bool head_tile_held_elsewhere(const struct head_tile *tile, const struct head_array *array,
                              const struct pl_box *box);
struct head_array *
head_array_create(struct head_core *core,
                  const struct pl_shape *shape); /* refs 1, no fragments */
void head_array_release(struct head_core *core, struct head_array *array);
/* From now on `box` of the array is `tile` (which takes a reference of its own). */
void head_array_set(struct head_core *core, struct head_array *array,
                    const struct pl_box *box, struct head_tile *tile);
struct head_array *head_array_snapshot(struct head_core *core, struct head_array *array,
                                       const struct pl_box *box);
struct head_failure *
head_array_failure(struct head_array *array,
                   const struct pl_box *box); /* borrowed; NULL: none */

/* ---- hazard.c */
/*
 * The launch points that a use must wait for go into after (uint64_t, duplicates removed by the caller); tasks whose results it reads
 * get into producers (struct head_task *). reads: it needs the content. write: it changes it.
 */
void head_hazard_collect(struct head_buffer *buffer, const struct pl_box *box, bool reads,
                         bool write, struct pl_vec *after, struct pl_vec *producers);
void head_use_add(struct head_use *use, struct head_task *task, struct head_buffer *buffer,
                  const struct pl_box *box, bool write);
void head_use_remove(struct head_core *core, struct head_use *use);

/* ---- device.c */
struct head_device *head_device_at(struct head_core *core, uint32_t index);
uint64_t
head_device_slot_take(struct head_core *core,
                      struct head_device *device); /* a buffer id; 0: the table is full */
void head_device_slot_rest(struct head_device *device, uint64_t buffer);
void head_device_number(struct head_core *core, struct head_device *device,
                        struct head_task *task);                             /* gives seq */
void head_device_forget(struct head_device *device, struct head_task *task); /* finished */
struct head_task *head_device_task(struct head_device *device,
                                   uint64_t seq); /* unfinished, or NULL */
void head_device_send(struct head_core *core, struct head_device *device,
                      const struct head_task *task); /* into the outbox */
void head_device_pump(struct head_core *core,
                      struct head_device *device); /* outbox up to the window */
void head_device_flush(struct head_core *core, struct head_device *device);
void head_device_starved(struct head_core *core, struct head_device *device, uint64_t seq,
                         uint64_t bytes, uint64_t hole);
void head_device_relieve(struct head_core *core); /* answers starved devices */

/* ---- condemn.c */
void head_device_condemned(struct head_core *core, struct head_device *device,
                           const Plasmon__V1__Condemned *report);
void head_device_fence_again(struct head_core *core); /* time went by */
/* Another incarnation is here: had we asked for the end of the last one? */
bool head_device_fenced(struct head_device *device, const Plasmon__V1__WorkerHello *hello);
/* It had been enqueued at the incarnation that was fenced, and had not begun. */
bool head_device_untouched(const struct head_device *device, uint64_t seq);

/* ---- worker.c */
void head_device_gone(struct head_core *core, struct head_device *device, const char *text);
void head_device_destroy(struct head_device *device);
/* An encoded GraphPart, ahead of the launches that follow. */
void head_device_tell(struct head_core *core, struct head_device *device,
                      const struct head_bytes *part);

/* ---- memory.c */
void head_memory_count(struct head_core *core,
                       struct head_task *task); /* again, when its blocks have changed */
void head_memory_forget(struct head_core *core, const struct head_task *task);
void head_memory_note(struct head_core *core); /* when the input ran dry */

/* ---- task.c */
/* What a launch is made of, before it has a number. */
struct head_operand {
    uint32_t mode;
    struct head_buffer *buffer;
    bool fresh;
    bool consume;
    bool reads; /* the launch needs what is in there */
    bool writes;
    struct pl_box box;   /* what it touches: its hazard */
    struct pl_view view; /* what the function sees */
    uint32_t reduce_op;
    bool client_writes;
};
/* All of a buffer, read or written. */
struct head_operand head_operand_whole(struct head_buffer *buffer, bool fresh, bool writes);
struct head_piece {
    struct head_buffer *src;
    struct pl_box box;
    uint32_t operand;
};
struct head_launch {
    uint32_t kind;
    struct head_device *device;
    struct head_client *client;
    uint64_t id;
    uint32_t function;
    const uint32_t *launch_shape; /* WIRE_LAUNCH_SHAPE_COUNT numbers; NULL: none given */
    const char *label;
    const struct head_operand *operands;
    size_t operand_count;
    const struct head_piece *pieces;
    size_t piece_count;
    const uint64_t *scalars;
    size_t scalar_count;
    const uint8_t *data;
    size_t data_length;
    uint64_t offset;
    uint64_t length;
    uint32_t peer;
    uint64_t request;
    uint64_t order;         /* 0: the next one */
    struct head_task *twin; /* RECV: its SEND, whose failure is its own */
    uint32_t retries_max;
    struct head_group *group;
    struct head_plan *plan; /* GRAPH, with the number of the segment at the worker .. */
    uint64_t graph;
    Plasmon__V1__GraphScalar *const *set; /* .. and the scalars that differ */
    size_t set_count;
    uint32_t time_limit_ms;
    uint64_t submit_ns; /* when its client submitted it, if a timeline is recorded */
    int32_t priority;
};
/* What a launch says about a function apart from its operands: the same for a launch and for a node of a graph. */
void head_launch_settings(const struct head_launch *launch, Plasmon__V1__Launch *out);
int64_t *head_wire_box(struct wire_arena *arena, const struct pl_box *box, size_t *out_n);
int64_t *head_wire_view(struct wire_arena *arena, const struct pl_view *view,
                        size_t *out_n);
/* Number it, find its edges, encode it, queue it. The task is owned by the core until it finishes. */
struct head_task *head_task_start(struct head_core *core, const struct head_launch *launch);
void head_task_makes(struct head_core *core, struct head_task *task,
                     struct head_tile *tile); /* if the task fails, so does the tile */
void head_task_release(struct head_task *task);
/* Its worker is done with it. It finishes now, or when the last task finishes whose result it read. */
void head_task_ended(struct head_core *core, struct head_task *task);
/* It ended: failure NULL is success. */
void head_task_finish(struct head_core *core, struct head_task *task,
                      struct head_failure *failure);
/* It will fail, whatever its launch does: tell the client, and everybody who reads what it makes. */
void head_task_doom(struct head_core *core, struct head_task *task,
                    struct head_failure *failure);
void head_task_skip(struct head_core *core,
                    struct head_task *task); /* its launch only signals */
/* A client asks that it not run. Unsent: it fails at once. Sent: the worker decides; by force: it fails, even if it runs. */
void head_task_cancel(struct head_core *core, struct head_task *task, bool force);
void head_task_describe(const struct head_task *task, char out[160]);

/* ---- move.c */
/* A buffer on `device` in which the whole box of the array is to be found, copying if need be. exact: its frame is the box. NULL: *out_failure. */
struct head_buffer *head_move_read(struct head_core *core, struct head_array *array,
                                   const struct pl_box *box, struct head_device *device,
                                   bool exact, struct head_failure **out_failure);
/* A buffer on `device` that already holds the whole box of the array; NULL. exclusive: nobody else may need that part of it. */
struct head_buffer *head_move_common(struct head_array *array, const struct pl_box *box,
                                     struct head_device *device, bool exclusive);
/*
 * The pieces (struct head_piece, appended; their sources are held for the caller in io_held, struct head_buffer *) that fill operand number
 * `operand`, a fresh buffer whose frame is the box. false: no route; *out_failure.
 */
bool head_move_pieces(struct head_core *core, struct head_array *array,
                      const struct pl_box *box, struct head_buffer *dst, uint32_t operand,
                      struct pl_vec *io_pieces, struct pl_vec *io_held,
                      struct head_failure **out_failure);
/* ---- bulk.c */
/* Where the worker that says hello takes objects of other hosts. */
void head_bulk_take(struct head_core *core, struct head_device *device,
                    const Plasmon__V1__WorkerHello *hello);
/* Of all workers on other hosts, the gone ones too: what a new worker must know. */
void head_bulk_tell_all(struct head_core *core, struct head_device *device);
/* To all workers on other hosts: where this one listens now, or that it is gone. */
void head_bulk_tell(struct head_core *core, const struct head_device *device);
bool head_move_possible(const struct head_device *from, const struct head_device *to);

/* ---- submit.c, reduce.c, place.c */
/* One argument of a call, resolved: a view of an array. */
struct head_arg {
    uint32_t mode;
    struct head_array *array; /* NULL: SCRATCH */
    struct pl_view view;      /* SCRATCH: of its own shape */
    struct pl_box hull;
    uint32_t dtype;
    uint32_t reduce_op;
    bool dense; /* the function takes it only without gaps */
    /* Filled while the call is being placed and started. */
    struct head_buffer *buffer; /* held */
    bool in_place;
};
struct head_run {
    struct head_client *client; /* NULL: the head's own */
    uint64_t id;
    uint32_t function;
    struct head_function *defined; /* by the client; NULL: built in, or not known */
    bool shaped;
    uint32_t launch_shape[WIRE_LAUNCH_SHAPE_COUNT]; /* when shaped */
    const char *label;
    struct head_arg *args;
    size_t arg_count;
    const uint64_t *scalars;
    size_t scalar_count;
    uint32_t place; /* device index + 1; 0: anywhere */
    uint32_t retries;
    struct head_group *group;           /* it is a part of this */
    const struct head_segment *segment; /* not a function but these nodes */
    Plasmon__V1__GraphScalar *const *set;
    size_t set_count;
    uint32_t time_limit_ms;
    uint64_t submit_ns;
    int32_t priority;
};
/* Do the elements of the view lie side by side, in C order, in a buffer that holds `frame`? */
bool head_view_without_gaps(const struct pl_view *view, const struct pl_box *frame);
/* What a client's task says apart from its arguments. Label and scalars are lent by the task. */
struct head_run head_run_of_task(struct head_core *core, struct head_client *client,
                                 const Plasmon__V1__Task *task);
/* It calls a function that its client has not defined: why it fails; NULL: it does not. */
struct head_failure *head_run_unknown(const struct head_run *run);
/* Settings of the launch that a run becomes; the caller adds device, operands and pieces. */
struct head_launch head_launch_of_run(const struct head_run *run);
/* Start it on some device. false: nothing was started; *out_failure (owned) says why. */
bool head_run_start(struct head_core *core, struct head_run *run,
                    struct head_failure **out_failure);
/* What the run would have written is failed from now on. */
void head_run_fail(struct head_core *core, const struct head_run *run,
                   struct head_failure *failure);
/* ---- priority.c: tasks of one frame, in an order that has the same results */
void head_priority_order(Plasmon__V1__Task **tasks, size_t count);
/* ---- submit.c */
plasmon_status_t head_submit(struct head_core *core, struct head_client *client,
                             const Plasmon__V1__Task *task, struct pl_err *err);
void head_reduce_add(struct head_core *core, struct head_array *array,
                     const struct pl_box *box, struct head_tile *tile, uint32_t op);
void head_reduce_fold(struct head_core *core, struct head_array *array);
struct head_want {
    struct head_array *array;     /* input: box of it; NULL: fresh memory */
    const struct head_device *at; /* instead of array: it will have been made there */
    struct pl_box box;
    uint64_t bytes;
};
struct head_policy {
    const char *name;
    struct head_device *(*choose)(struct head_core *core,
                                  const struct head_function *function,
                                  const struct head_want *wants, size_t count);
};
const struct head_policy *head_policy_find(const char *name);
/* For a function that a client defined, only devices that run it. */
struct head_device *head_place_function(struct head_core *core,
                                        const struct head_function *function,
                                        const struct head_want *wants, size_t count,
                                        uint32_t hint, struct head_failure **out_failure);
/* hint: device index + 1, or 0. NULL: *out_failure says why. */
struct head_device *head_place(struct head_core *core, const struct head_want *wants,
                               size_t count, uint32_t hint,
                               struct head_failure **out_failure);

/* ---- function.c */
plasmon_status_t head_function_define(struct head_core *core, struct head_client *client,
                                      const Plasmon__V1__FunctionDefine *define,
                                      struct pl_err *err);
/* What a client calls by this number; NULL: it has defined nothing so. */
struct head_function *head_function_of(const struct head_client *client, uint32_t number);
uint32_t head_function_id(const struct head_function *function); /* for workers */
bool head_function_runs_on(const struct head_function *function,
                           const struct head_device *device);
/* Why no device of the cluster runs it; NULL: one does. */
struct head_failure *head_function_nowhere(struct head_core *core,
                                           const struct head_function *function);
/* Ahead of what follows; once a worker. */
void head_function_tell(struct head_core *core, struct head_device *device,
                        const struct head_function *function);
void head_function_tell_id(struct head_core *core, struct head_device *device, uint32_t id);
void head_functions_tell_again(struct head_core *core,
                               struct head_device *device); /* a worker began anew */
void head_functions_flush(struct head_device *device);      /* frees, into the outbox */
void head_function_wait(struct head_core *core, struct head_client *client,
                        const Plasmon__V1__FunctionWait *wire);
void head_function_report(struct head_core *core, struct head_device *device,
                          const Plasmon__V1__FunctionReport *report);
void head_functions_look_again(struct head_core *core); /* devices came or went */
void head_functions_release(struct head_core *core, struct head_client *client);
void head_functions_reap(struct head_core *core);
void head_functions_destroy(struct head_core *core);

/* ---- group.c */
/* Launches that are one task of a client. It is told when all of them are resolved; the first failure is the task's. */
struct head_group {
    uint32_t refs;              /* its tasks; whoever starts them */
    uint32_t open;              /* not resolved, and one while more may be started */
    struct head_client *client; /* NULL: gone */
    uint64_t id;
    struct head_failure *failure;
    struct pl_list tasks; /* head_task.group_link */
};
/* refs 1 and open 1, for the caller until head_group_close. */
struct head_group *head_group_create(struct head_client *client, uint64_t id);
void head_group_add(struct head_group *group, struct head_task *task);
/* One part was refused, or ended so. NULL: well. */
void head_group_resolved(struct head_core *core, struct head_group *group,
                         struct head_failure *failure);
void head_group_fail(struct head_group *group, struct head_failure *failure);
void head_group_close(struct head_core *core, struct head_group *group);
void head_group_release(struct head_group *group);
void head_group_cancel(struct head_core *core, struct head_group *group, bool force);
void head_groups_forget(struct head_client *client); /* it is gone */

/* ---- graph_record.c, graph_plan.c, graph_launch.c: graph.h has what they share */
plasmon_status_t head_graph_record(struct head_core *core, struct head_client *client,
                                   const Plasmon__V1__Task *task, struct pl_err *err);
plasmon_status_t head_graph_end(struct head_core *core, struct head_client *client,
                                const Plasmon__V1__Task *task, struct pl_err *err);
plasmon_status_t head_graph_launch(struct head_core *core, struct head_client *client,
                                   const Plasmon__V1__Task *task, struct pl_err *err);
void head_graph_release(struct head_core *core, struct head_client *client, uint64_t id);
void head_graphs_release(struct head_core *core, struct head_client *client);
void head_plan_release(struct head_core *core, struct head_plan *plan);
/* A worker of the device began anew: it knows no graph. */
void head_plans_tell(struct head_core *core, struct head_device *device);

/* ---- index.c */
plasmon_status_t head_index_submit(struct head_core *core, struct head_client *client,
                                   const Plasmon__V1__Task *task, struct pl_err *err);

/* ---- data.c */
plasmon_status_t head_data_put(struct head_core *core, struct head_client *client,
                               const Plasmon__V1__Task *task, struct pl_err *err);
plasmon_status_t head_data_put_open(struct head_core *core, struct head_client *client,
                                    const Plasmon__V1__PutOpen *open, struct pl_err *err);
plasmon_status_t head_data_put_seal(struct head_core *core, struct head_client *client,
                                    const Plasmon__V1__PutSeal *seal, struct pl_err *err);
plasmon_status_t head_data_locate(struct head_core *core, struct head_client *client,
                                  const Plasmon__V1__Locate *locate, struct pl_err *err);
plasmon_status_t head_data_read(struct head_core *core, struct head_client *client,
                                const Plasmon__V1__Read *read, struct pl_err *err);
void head_data_arrived(struct head_core *core, const Plasmon__V1__WorkerData *data);
void head_wait_ended(struct head_core *core, struct head_wait *wait,
                     struct head_failure *failure); /* one of its tasks */
void head_waits_destroy(struct head_core *core);

/* ---- trace.c */
void head_trace_switch(struct head_core *core, struct head_client *client,
                       const Plasmon__V1__Trace *trace);
void head_trace_joined(struct head_core *core, struct head_device *device);
void head_trace_spans(struct head_core *core, struct head_device *device,
                      Plasmon__V1__SpanBatch *batch);
void head_trace_tick(
    struct head_core *core); /* who waits for a worker that does not answer */
void head_trace_forget(struct head_core *core, struct head_client *client); /* it ended */
void head_reply(struct head_core *core, struct head_client *client, uint64_t request,
                plasmon_status_t status, const char *text);

/* ---- client.c */
struct head_ref *head_client_ref(struct head_client *client, uint64_t id);
plasmon_status_t head_client_ref_get(struct head_client *client, uint64_t id,
                                     uint64_t owner, struct head_ref **out_ref,
                                     struct pl_err *err);
/* Takes the array reference. EEXIST when the id is taken. */
plasmon_status_t head_client_ref_add(struct head_core *core, struct head_client *client,
                                     uint64_t id, struct head_array *array,
                                     const struct pl_view *base, struct pl_err *err);
/* What a view given by a client shows, in root coordinates. */
plasmon_status_t head_ref_view(const struct head_ref *ref, size_t n, const int64_t *numbers,
                               struct pl_view *out, struct pl_err *err);
void head_client_dirty(struct head_core *core, struct head_client *client);
void head_client_done(struct head_core *core, struct head_client *client, uint64_t task);
void head_client_failed(struct head_core *core, struct head_client *client, uint64_t task,
                        struct head_failure *failure);
/* Send what there is for the client if it is much: a frame has a largest size. After adding what may be long. */
void head_client_spill(struct head_core *core, struct head_client *client);
void head_client_flush(struct head_core *core, struct head_client *client);
void head_client_destroy(struct head_core *core, struct head_client *client);
void head_names_destroy(struct head_core *core);

#endif
