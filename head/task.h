/*
 * Tasks from the launch that they begin as to their end: task.c has the life, launch.c what a
 * worker is told, group.c those that are one task for their client.
 */
#ifndef HEAD_TASK_H
#define HEAD_TASK_H

#include "head/object.h"

struct head_client;
struct head_group;
struct head_plan;
struct head_wait;

struct head_waiting {
    struct head_wait *wait;
    /* the answer is not about what this task makes: its failure is none of it */
    bool indifferent;
};

/* A launch of two or three arguments is encoded in so few bytes, and needs no memory of its own then. */
enum { HEAD_LAUNCH_SMALL = 160 };

struct head_task {
    uint32_t refs;              /* unfinished; dependents lists of others */
    uint32_t kind;              /* LaunchKind */
    struct head_client *client; /* NULL: the head's own, or the client is gone */
    uint64_t id;                /* of the client; 0: the head's own */
    struct head_device *device;
    uint64_t seq;
    uint64_t order;
    uint64_t since_ms; /* it has its number */
    uint64_t begun_ns; /* a client's, since then, of head_times; 0: it is not timed */
    uint32_t function;
    uint64_t cost_ns;       /* estimate, part of device->load_ns */
    uint64_t counted_bytes; /* part of core->memory.bytes */
    uint8_t attempts;
    uint8_t attempts_max;
    bool consumes; /* overwrites something in place: cannot run twice */
    /* its worker is done with it; producers on other devices may not have reported yet */
    bool ended;
    bool finished;
    bool resolved;
    bool cancelled;
    bool forced;   /* cancelled by force */
    bool unwanted; /* its client has ended, and nobody needs what it makes (orphan.c) */
    /*
     * its worker says that a device it reads from is gone, and we have not heard of that yet
     * (loss.c)
     */
    bool stranded;
    /* given up before it began: what it was to write over is as it was (spared.c) */
    bool spared;
    /* held: what it ends with if what it reads from ends well; NULL: well, too */
    struct head_failure *unmade;
    uint32_t time_limit_ms;
    uint64_t request; /* READ, ALLOC: whom to answer */
    uint64_t pair;    /* OPEN, CLOSE, SEND, RECV: epoch of the pair; 0: none */
    uint64_t length;  /* OPEN, CLOSE: 1: it receives */
    uint32_t team;    /* OPEN, CLOSE, COPY: its number; 0: none */
    /* RECV by a pair: of its SEND, which is to hear when this is over .. */
    uint64_t twin_seq;
    bool told_sent; /* .. and has */
    /* SEND, RECV: its devices were told that its bytes cannot come (reach.c) */
    bool given_up;
    uint32_t peer;
    uint64_t chunk; /* SEND, RECV: its first one in the receiver's ring */
    struct head_failure *failure;
    /* held: the call that this is a launch of, if it may be run again */
    struct head_record *record;
    struct head_root *roots; /* owned: what it holds of what it reads (roots.c) */
    /* held: what it is a part of for the client; NULL: a task of its own */
    struct head_group *group;
    struct pl_list group_link;  /* group->tasks, until it is resolved */
    struct head_plan *plan;     /* held: GRAPH */
    struct pl_list order_link;  /* core->unfinished */
    struct pl_list client_link; /* client->unfinished; itself without a client */
    /*
     * what it writes (GET_HOST) or reads (PUT_HOST) in host memory: one of `uses`; NULL: nothing of
     * ours
     */
    struct head_buffer *spilled;
    bool bound;     /* that has a place, which it holds */
    bool ahead;     /* GET_HOST: before there is need (write_back.c) */
    uint8_t excess; /* enum head_excess: it makes a value that the plan has no room for */
    /* head_spill_host.queue; ahead, and bound: head_spill_host.ahead; excess: head_spill_host.excess */
    struct pl_list spill_link;
    /* struct head_task *, owned references: they read what this makes */
    struct pl_vec dependents;
    uint32_t producers_open; /* unfinished tasks in whose dependents this is */
    struct pl_vec outputs;   /* struct head_tile *, owned references */
    struct pl_vec waits;     /* struct head_waiting */
    char *label;
    uint8_t *bytes; /* the encoded Launch: in `small`, or owned */
    uint32_t bytes_length;
    uint32_t use_count;
    uint8_t small[HEAD_LAUNCH_SMALL];
    struct head_use uses[];
};

/* ---- launch.c */
/* What a launch is made of, before it has a number. */
struct head_operand {
    uint32_t mode;
    struct head_buffer *buffer;
    bool fresh;
    bool consume;
    bool reads; /* the launch needs what is in there */
    bool writes;
    struct pl_box box; /* what it touches: its hazard */
    /* with `reads`: what it needs of the box, and fails with; NULL: all of it */
    const struct pl_box *kept;
    size_t kept_count;
    struct pl_view view; /* what the function sees */
    uint32_t reduce_op;
    bool client_writes;
};
/* All of a buffer, read or written. */
struct head_operand head_operand_whole(struct head_buffer *buffer, bool fresh, bool writes);
struct head_piece {
    struct head_buffer *src;
    struct pl_box box;
    /* the box comes so far from where it is in the source's coordinates */
    int64_t shift[PL_DIM_MAX];
    uint32_t operand;
    bool part; /* of a large piece: in a launch of its own */
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
    uint64_t host_buffer; /* PUT_HOST, GET_HOST */
    /* .. of our own instead: it gets a place later (spill.h) */
    struct head_buffer *spilled;
    bool ahead; /* a write-back */
    uint32_t peer;
    uint64_t pair;  /* OPEN, CLOSE, SEND, RECV: epoch of the pair; of the team: COPY, too */
    uint32_t team;  /* its number, and length is the device's rank; 0: none */
    uint32_t ranks; /* OPEN of a team */
    uint64_t request;
    uint64_t order;         /* 0: the next one */
    struct head_task *twin; /* RECV: its SEND, whose failure is its own */
    /* another launch of the same call: this one is right only if that is */
    struct head_task *beside;
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
/*
 * What a launch says about a function apart from its operands: the same for a launch and for a node
 * of a graph.
 */
void head_launch_settings(const struct head_launch *launch, Plasmon__V1__Launch *out);
int64_t *head_wire_box(struct wire_arena *arena, const struct pl_box *box, size_t *out_n);
int64_t *head_wire_view(struct wire_arena *arena, const struct pl_view *view,
                        size_t *out_n);
void head_launch_forget(struct head_task *task); /* its bytes are freed */
/* Into task->bytes, with the launches that it waits for. */
void head_launch_encode(struct head_core *core, struct head_task *task,
                        const struct head_launch *launch, const uint64_t *after,
                        size_t after_count);
/* PUT_HOST, GET_HOST: where in host memory. */
void head_launch_place(struct head_core *core, struct head_task *task, uint64_t host_buffer,
                       uint64_t offset);
/* A restore that was not sent: it copies all of that buffer instead. */
void head_launch_copy_from(struct head_core *core, struct head_task *task,
                           const struct head_buffer *buffer);
/* It will not be run: its launch only waits and signals. */
void head_launch_skip(struct head_core *core, struct head_task *task);

/* ---- task.c */
/* Number it, find its edges, encode it, queue it. The task is owned by the core until it finishes. */
struct head_task *head_task_start(struct head_core *core, const struct head_launch *launch);
void head_task_makes(struct head_core *core, struct head_task *task,
                     struct head_tile *tile); /* if the task fails, so does the tile */
void head_task_release(struct head_task *task);
/* Its worker is done with it. It finishes now, or when the last task finishes whose result it read. */
void head_task_ended(struct head_core *core, struct head_task *task);
/*
 * Its worker found memory missing that another launch was to make, on a device that is well. The
 * news why comes from there, perhaps later: it finishes with that, or with this failure when all
 * that it reads from has finished.
 */
void head_task_unmade(struct head_core *core, struct head_task *task,
                      struct head_failure *failure);
/* It ended: failure NULL is success. */
/* Of memory for one with so many uses. */
uint64_t head_task_bytes(uint32_t use_count);
/*
 * It is finished soon: what that looks at is on its way to the processor meanwhile; then, when that
 * is there, what it leads to. NULL: nothing is.
 */
void head_task_expect(const struct head_task *task);
void head_task_expect_lists(const struct head_task *task);
void head_task_expect_made(const struct head_task *task);
void head_task_finish(struct head_core *core, struct head_task *task,
                      struct head_failure *failure);
/* Those that became ready to finish while something else was done. */
void head_tasks_ready_finish(struct head_core *core);
/* It will fail, whatever its launch does: tell the client, and everybody who reads what it makes. */
void head_task_doom(struct head_core *core, struct head_task *task,
                    struct head_failure *failure);
/* A function, recorded graphs of them included: what may run for ever. */
bool head_task_is_function(const struct head_task *task);
/*
 * A client asks that it not run. Unsent: it fails at once. Sent: the worker decides; by force: it
 * fails, even if it runs.
 */
void head_task_cancel(struct head_core *core, struct head_task *task, bool force);
/*
 * It was sent to a worker that died before it enqueued it, and is to be sent again: what was asked
 * of that worker about it is asked of nobody now.
 */
void head_task_unsent(struct head_core *core, struct head_task *task);
void head_task_describe(const struct head_task *task, char out[160]);

/* ---- waits.c */
const char *head_task_kind(const struct head_task *task); /* "copy", for people */
/*
 * The points that it was sent to wait for and that are not done: the first few, in the arena, and
 * how many more. ENOMEM.
 */
plasmon_status_t head_task_after(struct head_core *core, struct wire_arena *arena,
                                 const struct head_task *task, uint64_t **out_points,
                                 size_t *out_count, uint32_t *out_more) PL_MUST_CHECK;

/* ---- memory.c */
void head_memory_count(struct head_core *core,
                       struct head_task *task); /* again, when its blocks have changed */
/* One output more, and no block. */
void head_memory_output(struct head_core *core, struct head_task *task);
void head_memory_forget(struct head_core *core, const struct head_task *task);
void head_memory_note(struct head_core *core); /* when the input ran dry */

/* ---- group.c */
/*
 * Launches that are one task of a client. It is told when all of them are resolved; the first
 * failure is the task's.
 */
struct head_group {
    uint32_t refs;              /* its tasks; whoever starts them */
    uint32_t open;              /* not resolved, and one while more may be started */
    struct head_client *client; /* NULL: gone */
    uint64_t id;
    uint64_t begun_ns; /* as of a task */
    bool whole;        /* when one part fails, so do all that are not resolved */
    struct head_failure *failure;
    struct pl_list tasks; /* head_task.group_link */
};
/* refs 1 and open 1, for the caller until head_group_close. */
struct head_group *head_group_create(const struct head_core *core,
                                     struct head_client *client, uint64_t id);
void head_group_add(struct head_group *group, struct head_task *task);
/* One part was refused, or ended so. NULL: well. */
void head_group_resolved(struct head_core *core, struct head_group *group,
                         struct head_failure *failure);
void head_group_fail(struct head_group *group, struct head_failure *failure);
/* The same, and all of its tasks that are not resolved fail too. */
void head_group_doom(struct head_core *core, struct head_group *group,
                     struct head_failure *failure);
void head_group_close(struct head_core *core, struct head_group *group);
void head_group_release(struct head_group *group);
void head_group_cancel(struct head_core *core, struct head_group *group, bool force);
void head_groups_forget(struct head_client *client); /* it is gone */

#endif
