/*
 * Inside of the head's state machine. Reading order:
 *
 *   object.h    what exists, and where
 *     object.c    buffers, instances, tiles, fragments, arrays
 *     loose.c     which of them may perhaps be dropped
 *     hazard.c    uses of buffers, and the edges that follow from them
 *     label.c     labels of values, for people
 *     move.c      bringing a box to a device: common buffer, replica, gather, host route;
 *                 move_source.c from where, move_launch.c by which launches
 *   device.h    devices and their workers
 *     device.c    slots, launch numbers, windows, outboxes, starvation
 *     worker.c    workers join, and are lost; worker_back.c: what one that comes back goes on with
 *     report.c    what they report
 *     gone.c      devices that will not come back
 *   condemn.c   launches that must not go on, and fencing
 *   drain.c     what lies only on a node that is to leave is moved; drain_left.c: whose it is
 *   spill.h     what does not fit on a device lies in host memory and files: spill.c, spill_host.c,
 *               spill_places.c, spill_holes.c, spill_store.c, write_back.c, lookahead.c
 *     bulk.c      where workers take objects of other hosts
 *     rates.c     how fast transfers between devices are, measured; times.c: how long things took, for people
 *     comm.c      room for communicators, of pairs and teams together
 *     pair.c      pairs: which transfers go by NCCL, and what when that breaks
 *     team.c      the same for sets of devices, and what they do together
 *   task.h      tasks and launches
 *     launch.c    what a worker is told of a launch
 *     task.c      the life of a task: numbered, sent, finished, failed onwards
 *     group.c     several launches that are one task for the client
 *     memory.c    what tasks in flight cost
 *   lineage.h   how what exists was made
 *     lineage.c   records of calls, and how many bytes they may have
 *     shadow.c    versions that are kept of what is updated in place
 *     loss.c      what a loss took
 *     spared.c    .. and what it did not touch
 *     roots.c     what calls hold of what cannot be made again
 *     rebuild.c   .. is made again: by which calls; rerun.c runs one
 *     expect.c    .. by a host that is the last: devices are waited for
 *   run.h       calls that are still to become launches
 *     run.c       a call becomes a launch
 *     submit.c    a client's task becomes a call
 *     priority.c  in which order the tasks of a frame do so
 *     reduce.c    partial results and how they are folded
 *     place.c     placement policies
 *     dealt.c     arrays that are dealt over the devices, where a queue says little
 *     index.c     one task a point of an index space
 *     host_copy.c put from and get into memory of the client's host collective.h all-reduce and the
 *     like: collective.c members and results, collective_ways.c who does what, collective_step.c by
 *     which launches, collective_hosts.c between hosts
 *     graph.h     recorded graphs: graph_record.c, graph_plan.c, graph_components.c, graph_nodes.c,
 *                 graph_launch.c
 *   second.h    values that are to be in two places: second.c, second_safe.c, second_place.c
 *   space.h     namespaces and their quotas: space.c; namespaces.c reads their file
 *   client.h    sessions, and what they ask for besides tasks
 *     client.c    sessions, refs, what clients are told
 *     name.c      published names
 *     found.c     who looked up what is yet to be made
 *     wait.c      answers that are owed when tasks are done
 *     put.c       bytes in
 *     read.c      where bytes are, and bytes out
 *     function.c  functions that clients define
 *     trace.c     who records a timeline, and spans on their way
 *   moved.c     what workers moved, also those that were replaced
 *   memory_report.c  who holds what memory, for people
 *   list.c      tasks and objects, a page at a time, for people
 *   core.c      create, tick, flush, status; check.c its invariants
 *
 * Allocation in here does not fail half-way: a head that cannot allocate cannot keep its promises,
 * so head_alloc() stops it (PL_CHECK) and the journal, the stores and the workers carry the state.
 */
#ifndef HEAD_CORE_INT_H
#define HEAD_CORE_INT_H

#include "head/client.h"
#include "head/device.h"
#include "head/label.h"
#include "head/lineage.h"
#include "head/comm.h"
#include "head/pair.h"
#include "head/places.h"
#include "head/team.h"
#include "head/rates.h"
#include "head/reach.h"
#include "head/times.h"
#include "head/run.h"
#include "head/second.h"
#include "head/space.h"
#include "head/spill.h"

enum {
    HEAD_WINDOW_DEFAULT = 8192,    /* launches at a worker; a quarter of its ring */
    HEAD_SLOTS_MAX      = 1 << 18, /* entries of an object table (STORE_TABLE_SLOTS) */
    /* freed slots rest that long before they are given out again */
    HEAD_SLOTS_RESTING_MIN = 4096,
    HEAD_BODY_BYTES_MAX    = 1 << 20, /* a frame is sent when it grows past this */
    /*
     * A client cuts its frames before that (client/frame.h): small operations, and a put, which is
     * looked at by itself.
     */
    HEAD_TOGETHER_BYTES   = (128 << 10) + (1 << 20),
    HEAD_FOLD_MAX         = 64,     /* partials one fold takes */
    HEAD_STAGE_SLOT_BYTES = 8 << 20 /* STORE_STAGE_SLOT_BYTES */
};

struct head_memory {
    uint64_t bytes;        /* of the blocks of unfinished tasks */
    uint64_t most;         /* unfinished tasks at a time, so far */
    uint64_t bytes_a_task; /* then */
};

/* A node that is drained. */
struct head_drain {
    char *host;
    uint64_t until_ms;
    uint64_t looked_ms;
    uint64_t hear_until_ms; /* clients that have not answered by then are not waited for */
    struct head_drain_report report; /* of the last look */
    /* .. too: struct head_tile * of what is left -> enum head_drain_why + 1 */
    struct pl_map why;
    /* when it was last asked for; texts are ours */
    struct head_drain_left left[HEAD_DRAIN_LEFT_MAX];
    uint32_t left_all;
    bool left_over;         /* report.over, then */
    uint64_t left_until_ms; /* it is not looked for again before; 0: it never was */
    struct pl_list link;
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
    struct pl_vec hosts;   /* char *, owned: names of all hosts that there ever were */
    struct pl_vec devices; /* struct head_device * */
    bool numbers_told;     /* of devices, to anybody: they are final */
    struct pl_list clients;
    struct pl_map sessions; /* session -> head_client */
    struct pl_list spaces;  /* head_space.link */
    bool namespaces_closed; /* there are only those that are configured */
    struct pl_list dirty_clients;
    struct pl_list unfinished; /* head_task.order_link, in order */
    uint32_t maps;             /* mapped arrays: */
    struct pl_list mapped;     /* head_array.mapped_link */
    uint64_t counted_last;     /* head_buffer.counted */
    /* struct head_task *, owned references: ended, and so are all their producers */
    struct pl_vec ready;
    /* struct head_device *: had nothing to do, and its first launch is in its outbox */
    struct pl_vec idle;
    bool finishing;
    struct pl_map requests;        /* request -> head_wait (reads) */
    struct pl_list names;          /* head_name.link, by number */
    struct pl_map names_by_hash;   /* name.c */
    struct pl_map names_by_number; /* number -> head_name */
    uint64_t name_last;
    struct pl_list found;          /* head_found.link: is yet to be made (found.c) */
    struct pl_map awaited;         /* head_tile -> the first head_awaited of it */
    struct pl_list plans;          /* head_plan.link */
    uint64_t step_last;            /* number of the last segment of a plan, for workers */
    uint64_t components_started;   /* since this process began */
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
    uint64_t tasks_again;  /* since this head runs */
    struct pl_list drains; /* head_drain.link */
    struct head_memory memory;
    struct head_core_counts counts;
    uint64_t object_bytes;
    struct pl_list spill_hosts; /* head_spill_host.link */
    struct head_lookahead lookahead;
    uint32_t cut_finely; /* so many large pieces are, next (move_launch.c) */
    uint64_t plan;       /* number of the call that is being planned: head_buffer.kept */
    uint64_t in_turns;   /* plan of a call whose reads do not fit at once */
    struct pl_map ways;  /* from and to -> head_way */
    struct pl_list hosts_apart; /* head_hosts_apart.link (reach.c) */
    struct pl_map pairs;        /* src and dst -> head_pair */
    bool pairs_gone;            /* of devices that are gone, perhaps */
    uint64_t pair_uses;         /* of teams, too */
    struct pl_map teams;        /* number -> head_team */
    struct head_lineage lineage;
    struct head_labels labels; /* of tiles */
    struct pl_list shadows;    /* head_shadow.link */
    struct head_seconds seconds;
    /* of searches for room and places: what must not grow with how much there is */
    uint64_t steps;
};

/* ---- drain.c */
void head_drain_tick(struct head_core *core);
void head_drain_forget(struct head_core *core, const char *host); /* it has left */
void head_drains_finish(struct head_core *core);
enum { HEAD_DRAIN_LOOK_MS = 100 };
/* Is all of the box settled on devices that stay? */
bool head_drain_elsewhere(const struct head_tile *tile, const struct pl_box *box);
/*
 * What a client of a node that is drained puts from its host memory, which devices of that node
 * alone can read: where it goes on to. NULL: *out_failure, nothing is to be put there; without one,
 * nobody takes it now, but somebody may when he is back, and it stays until then.
 */
struct head_device *head_drain_onward(struct head_core *core,
                                      const struct head_device *from, uint64_t bytes,
                                      struct head_failure **out_failure);
/* It was put: it goes on to `to`, behind the launch that puts it. */
void head_drain_go_on(struct head_core *core, struct head_array *array,
                      struct head_device *to);

/* ---- drain_left.c */
void head_drain_left_find(struct head_core *core, struct head_drain *drain);
void head_drain_left_forget(struct head_drain *drain);

#endif
