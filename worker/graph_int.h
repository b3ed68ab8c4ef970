/*
 * A recorded graph in the worker, for the three files that are about it: graph.c (what the head
 * told, its memory, its life), graph_bind.c (nodes fitted to the operands of a launch),
 * graph_replay.c (recordings, and putting one into a stream).
 */
#ifndef WORKER_GRAPH_INT_H
#define WORKER_GRAPH_INT_H

#include "worker/core_int.h"

#define WORKER_GRAPH_EXECS 4u
/* the last of its memory: which launch runs, for who reports a failure */
#define WORKER_GRAPH_TAG_BYTES 256u

struct graph_node {
    /* function, operands, scalars of the launch that was bound last */
    struct worker_launch *launch;
    uint32_t *after;
    uint32_t after_count;
    uint32_t branch;
    uint32_t mark; /* number + 1; 0: nobody of another branch waits for it */
    bool differs;  /* from what a recording has of it (graph_replay.c) */
};

/* Where an operand lies, and what it shows. */
struct graph_place {
    uint64_t offset;
    struct pl_box frame;
};

/* Something that was recorded, and what for. */
struct graph_exec {
    void *exec; /* NULL: free */
    /* it is as the rest says; else it must be recorded anew before it is launched */
    bool right;
    bool whole;       /* it cannot be changed in parts */
    uint64_t changed; /* nodes, since it was recorded, or another one in its stead */
    uint64_t memory_offset;
    uint64_t bytes;
    struct pl_vec places; /* struct graph_place, by operand */
    struct pl_vec set;    /* struct worker_set */
    uint64_t used;
};

struct worker_graph {
    uint64_t id;
    bool complete;
    bool freed;          /* by the head: goes with its last launch */
    bool one_by_one;     /* it could not be recorded */
    struct pl_vec nodes; /* struct graph_node */
    uint32_t operand_count;
    uint32_t branch_count;
    uint32_t mark_count;
    uint64_t temp_bytes;

    /* What the nodes were bound to last. */
    struct pl_vec frames; /* struct pl_box: of the operands; empty: nothing yet */
    /* struct worker_set: recorded values of scalars that are changed now */
    struct pl_vec undo;
    uint64_t branch_scratch[WORKER_BRANCH_MAX];
    uint64_t bytes; /* of all memory that it needs so */

    uint64_t memory_offset;
    uint64_t memory_bytes; /* in hand */
    uint32_t launches;     /* that name it and are not over */
    uint64_t last_seq;     /* enqueued last */

    void *recorder;
    struct graph_exec execs[WORKER_GRAPH_EXECS];
    uint64_t uses;
    struct worker_graph *next_gone; /* all that is left of it is what was recorded */
};

static inline struct graph_node *graph_node_at(const struct worker_graph *graph, size_t i)
{
    return pl_vec_at(&graph->nodes, i);
}

/* graph_replay.c */
void worker_graph_execs_init(struct worker_graph *graph);
/* Nothing is on the device. */
void worker_graph_execs_finish(struct worker_core *core, struct worker_graph *graph);

#endif
