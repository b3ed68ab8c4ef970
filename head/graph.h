/*
 * Recorded graphs inside the head.
 *
 *   graph_record.c   a client's recording: tasks, and slots, which are the arrays they name
 *   graph_plan.c     where each task runs, and how runs of tasks on one device become segments
 *   graph_components.c  what of a segment has nothing to do with the rest of it, and when that is
 *                       launched by itself
 *   graph_nodes.c    a segment as its worker is told: operands, branches, memory for temporaries
 *   graph_launch.c   one launch: slots become arrays, segments become launches
 *
 * SLOTS. An external slot is a ref that existed before; a launch may put another ref in its place.
 * An output is made inside and kept. A temporary is made inside and was released: when one segment
 * alone uses it, it is only memory of that segment; else it is an array of the graph's own, kept
 * between launches so that it stays where it is.
 *
 * STEPS. A plan is a list of steps in an order that respects every dependence of the recording. A
 * step is a segment, or one task by itself (those with a REDUCE argument, whose partial results are
 * folded by the rules of reduce.c). A segment is started like any task with several arguments
 * (head_run_start), so numbers, edges, copies, failures and restarts are those of tasks.
 *
 * COMPONENTS. A segment whose tasks fall into several groups that have nothing to do with each
 * other is told to its worker twice: as a whole, and component by component. A launch of the graph
 * starts the whole, or each component, which then waits for its own inputs only
 * (graph_components.c). To worker and head a component is a segment like any other.
 *
 * A PLAN HOLDS for the devices it was made for. When one of them is gone, the next launch makes
 * another. What a plan cannot express (a ref that is a snapshot of a view) is launched task by
 * task, as if it had been submitted so.
 */
#ifndef HEAD_GRAPH_H
#define HEAD_GRAPH_H

#include "head/core_int.h"

enum {
    GRAPH_SEGMENT_OPERANDS_MAX = 16384, /* a segment that touches more is cut */
    GRAPH_PART_NODES           = 1024,  /* nodes in one message */
    GRAPH_ALIGNMENT            = 256,   /* of temporaries: what device allocations have */
    GRAPH_COMPONENTS_MAX       = 32,    /* of a segment: those of more are put together */
    GRAPH_LABEL_BYTES          = 48,
};

enum graph_slot_kind { GRAPH_EXTERNAL, GRAPH_OUTPUT, GRAPH_TEMPORARY };

struct graph_slot {
    enum graph_slot_kind kind;
    uint64_t ref; /* 0: SCRATCH */
    struct pl_shape shape;
    bool written;
    struct head_array *array; /* TEMPORARY that several steps use: held */
    /* The plan. */
    uint32_t step; /* the only one that uses it; GRAPH_STEPS: several do */
    uint64_t offset;
};
#define GRAPH_STEP_NONE UINT32_MAX
#define GRAPH_TASK_NONE UINT32_MAX
#define GRAPH_STEPS     (UINT32_MAX - 1)

struct graph_arg {
    uint32_t mode;
    uint32_t slot;
    uint32_t reduce_op;
    bool dense;          /* the function takes no gaps */
    struct pl_view view; /* in the slot's coordinates */
    struct pl_box hull;
};

struct graph_task {
    struct head_run run; /* without arguments; label and scalars are ours */
    struct graph_arg *args;
    uint32_t arg_count;
    /* The plan. */
    struct head_device *device;
    struct pl_vec deps;   /* uint32_t: earlier tasks, ascending, each once */
    struct pl_vec inputs; /* uint32_t: of these, those whose results it reads */
    /* first task of another step that reads its results; GRAPH_STEP_NONE: none */
    uint32_t wanted_by;
    uint32_t step;
    uint32_t node; /* in its segment */
    uint32_t branch;
    uint32_t component;      /* of its segment, if that has any .. */
    uint32_t component_node; /* .. and which node of it */
};

struct head_graph {
    uint64_t id; /* of the client */
    bool ended;
    struct pl_vec tasks;          /* struct graph_task */
    struct pl_vec slots;          /* struct graph_slot */
    struct pl_map by_ref;         /* ref -> index + 1, as a pointer */
    struct pl_vec named;          /* uint32_t: external slots and outputs */
    struct head_failure *failure; /* the recording cannot be launched */
    struct head_plan *plan;       /* NULL: none yet */
};

struct graph_operand {
    uint32_t slot;
    uint32_t mode; /* of all that the segment does with it */
    bool common;   /* of a component: each of its segment's reads this box */
    /* task that writes of it last: what it makes has its label; GRAPH_TASK_NONE: none does */
    uint32_t writer;
    struct pl_box hull;
    /* owned. INOUT: of it, what is not overwritten before it is read, disjoint; NULL: all */
    struct pl_box *kept;
    uint32_t kept_count;
};

struct head_segment {
    struct head_plan *plan;
    struct head_device *device;
    uint64_t id;            /* at the worker; 0: one task by itself, tasks[0] */
    struct pl_vec tasks;    /* uint32_t, in order */
    struct pl_vec waits;    /* uint32_t: steps of others that its first task needed */
    struct pl_vec operands; /* struct graph_operand, disjoint where they are of one slot */
    struct pl_vec parts;    /* struct head_bytes: encoded GraphParts */
    /* struct head_segment *, owned, without waits and components; empty: it is one */
    struct pl_vec components;
    uint64_t bytes; /* temporaries */
    uint32_t branches;
    uint64_t cost_ns;
    uint32_t wanted_by; /* the first that is, of its tasks' */
    uint32_t retries;
    uint32_t time_limit_ms;        /* of all its tasks together; 0: one has none */
    int32_t priority;              /* the highest of its tasks' */
    char label[GRAPH_LABEL_BYTES]; /* of its launches: which calls it is */
};

struct head_plan {
    uint32_t refs; /* its graph; unfinished launches */
    struct pl_list link;
    struct pl_vec steps;  /* struct head_segment *, owned */
    struct pl_vec shared; /* uint32_t: temporaries that several steps use */
};

static inline struct graph_task *graph_task_at(const struct head_graph *graph, uint32_t i)
{
    return pl_vec_at(&graph->tasks, i);
}
static inline struct graph_slot *graph_slot_at(const struct head_graph *graph, uint32_t i)
{
    return pl_vec_at(&graph->slots, i);
}
static inline struct head_segment *graph_step_at(const struct head_plan *plan, uint32_t i)
{
    return *(struct head_segment **)pl_vec_at(&plan->steps, i);
}

static inline struct head_segment *graph_component_at(const struct head_segment *segment,
                                                      uint32_t i)
{
    return *(struct head_segment **)pl_vec_at(&segment->components, i);
}

static inline bool graph_writes(uint32_t mode)
{
    return mode == PLASMON__V1__MODE__MODE_OUT || mode == PLASMON__V1__MODE__MODE_INOUT ||
           mode == PLASMON__V1__MODE__MODE_REDUCE;
}

/* graph_record.c */
struct head_graph *graph_create(struct head_client *client, uint64_t id);
uint32_t graph_slot_add(struct head_graph *graph, uint64_t ref, enum graph_slot_kind kind,
                        const struct pl_shape *shape);
/* All slots are there: which of them a launch looks up. */
void graph_named_collect(struct head_graph *graph);

/* graph_plan.c. NULL: *out_failure. Its segments are told to their workers. */
struct head_plan *graph_plan_create(struct head_core *core, struct head_client *client,
                                    struct head_graph *graph,
                                    struct head_failure **out_failure);
/*
 * The plan that it had, of a checkpoint: its workers know it. Each task has the device that it had
 * then; the steps have numbers from first_step on, all up to core->step_last, or the numbers were
 * made up.
 */
struct head_plan *graph_plan_restore(struct head_core *core, struct head_graph *graph,
                                     uint64_t first_step);
uint64_t graph_plan_first_step(const struct head_core *core, const struct head_plan *plan);
/* all its devices are there, and stay */
bool graph_plan_holds(const struct head_plan *plan);
void graph_arrays_release(struct head_core *core, struct head_graph *graph);
/* Without an id and tasks. */
struct head_segment *graph_segment_create(struct head_plan *plan,
                                          struct head_device *device);
/* Takes the task in: its retries, time limit, priority and cost are the segment's, too. */
void graph_segment_add(const struct head_graph *graph, struct head_segment *segment,
                       uint32_t task);

/* graph_components.c. The step is cut; all its tasks know their edges. */
void graph_components_build(struct head_core *core, struct head_graph *graph,
                            struct head_segment *step);
/*
 * Is the segment to be launched component by component? arrays: by slot, what this launch has.
 * Follows from what the head knows alone, so a head that reads its journal decides the same.
 */
bool graph_components_pay(const struct head_core *core, const struct head_segment *segment,
                          struct head_array *const *arrays);

/* graph_nodes.c. Operands, branches, memory for temporaries, and the messages that tell its worker. */
void graph_segment_build(struct head_core *core, struct head_graph *graph,
                         struct head_segment *segment);

#endif
