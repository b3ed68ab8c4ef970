/*
 * A call of a function, before it is a launch: arguments are views of arrays, and a device is still
 * to be chosen. Clients' tasks (submit.c), points of an index space (index.c), nodes of graphs
 * (graph.h) and the head's own copies and folds all become runs.
 */
#ifndef HEAD_RUN_H
#define HEAD_RUN_H

#include "head/task.h"

struct head_function;
struct head_segment;

/* ---- run.c */
/* One argument of a call, resolved: a view of an array. */
struct head_arg {
    uint32_t mode;
    struct head_array *array; /* NULL: SCRATCH */
    struct pl_view view;      /* SCRATCH: of its own shape */
    struct pl_box hull;
    uint32_t dtype;
    uint32_t reduce_op;
    bool dense;        /* the function takes it only without gaps */
    const char *label; /* of what is written; with labels_apart alone. NULL: none */
    /* INOUT of a segment: all that it needs of what was there, disjoint; NULL: the hull */
    const struct pl_box *kept;
    size_t kept_count;
    /* Filled while the call is being placed and started. */
    struct head_buffer *buffer; /* held */
    bool in_place;
    /* of a record that is run again: what takes the result; NULL: nobody */
    struct head_tile *again;
};

struct head_run {
    struct head_client *client; /* NULL: the head's own */
    uint64_t id;
    uint32_t function;
    struct head_function *defined; /* by the client; NULL: built in, or not known */
    bool shaped;
    /* each argument has a label: the launch is the head's own, or several calls */
    bool labels_apart;
    uint32_t launch_shape[WIRE_LAUNCH_SHAPE_COUNT]; /* when shaped */
    const char *label; /* of the launch, and of what it writes unless labels_apart */
    struct head_arg *args;
    size_t arg_count;
    const uint64_t *scalars;
    size_t scalar_count;
    uint32_t place;   /* device index + 1; 0: anywhere */
    bool drained_too; /* as in head_want: the head has chosen the place, and knows */
    uint32_t retries;
    uint32_t function_retries;          /* left */
    struct head_group *group;           /* it is a part of this */
    const struct head_segment *segment; /* not a function but these nodes */
    Plasmon__V1__GraphScalar *const *set;
    size_t set_count;
    uint32_t time_limit_ms;
    uint64_t submit_ns;
    int32_t priority;
    struct head_record *record; /* it is run again; NULL: for the first time */
    /* beside this launch of the same call, which is well; NULL: none */
    struct head_task *beside;
};
static inline bool head_mode_writes(uint32_t mode)
{
    return mode == PLASMON__V1__MODE__MODE_OUT || mode == PLASMON__V1__MODE__MODE_INOUT;
}

/* What an argument of a client's task is: its array and view. OUT with a shape makes the ref. */
plasmon_status_t head_arg_resolve(struct head_core *core, struct head_client *client,
                                  const Plasmon__V1__Arg *wire, struct head_arg *arg,
                                  struct pl_err *err);
/*
 * The boxes of what was there that an argument which reads needs, one after the other; NULL: that
 * was the last one.
 */
const struct pl_box *head_arg_kept(const struct head_arg *arg, size_t i);
/* Do the elements of the view lie side by side, in C order, in a buffer that holds `frame`? */
bool head_view_without_gaps(const struct pl_view *view, const struct pl_box *frame);
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

/* ---- host_copy.c: a get whose launch was lost, for the same client and into the same memory */
bool head_host_get_again(struct head_core *core, const struct head_run *run,
                         struct head_failure **out_failure);

/* ---- priority.c: tasks of one frame, in an order that has the same results */
void head_priority_order(Plasmon__V1__Task **tasks, size_t count);

/* ---- submit.c */
plasmon_status_t head_submit(struct head_core *core, struct head_client *client,
                             const Plasmon__V1__Task *task, struct pl_err *err);
/* What a client's task says apart from its arguments. Label and scalars are lent by the task. */
struct head_run head_run_of_task(struct head_core *core, struct head_client *client,
                                 const Plasmon__V1__Task *task);

/* ---- reduce.c */
void head_reduce_add(struct head_core *core, struct head_array *array,
                     const struct pl_box *box, struct head_tile *tile, uint32_t op);
void head_reduce_fold(struct head_core *core, struct head_array *array);

/* ---- place.c */
struct head_want {
    struct head_array *array;     /* input: box of it; NULL: fresh memory */
    const struct head_device *at; /* instead of array: it will have been made there .. */
    uint64_t at_bytes, at_whole;  /* .. as so much of an array of so many bytes */
    bool overwritten;             /* no input: what lies there is not read */
    struct pl_box box;
    uint64_t bytes;
    const char *host; /* only on devices of this host; NULL: anywhere */
    /* of the first: drained ones, too, for nobody else reaches memory of that host */
    bool drained_too;
    /* to be written: of the array of which it is a part; NULL: of none */
    const struct pl_shape *part_of;
};
struct head_policy;
const struct head_policy *head_policy_find(const char *name);
const char *head_policy_name(const struct head_policy *policy);
/* For a function that a client defined, only devices that run it. */
struct head_device *head_place_function(struct head_core *core,
                                        const struct head_function *function,
                                        const struct head_want *wants, size_t count,
                                        uint32_t hint, struct head_failure **out_failure);
/* How long a task on so many bytes takes there, by what memory does: all that is known of a function. */
uint64_t head_work_ns(const struct head_device *device, uint64_t bytes);
/* hint: device index + 1, or 0. NULL: *out_failure says why. */
struct head_device *head_place(struct head_core *core, const struct head_want *wants,
                               size_t count, uint32_t hint,
                               struct head_failure **out_failure);

/*
 * ---- dealt.c: of the array that an input is part of, does this device have no more than about its
 * share? How many parts like the input that is; 0: no.
 */
uint64_t head_dealt(const struct head_core *core, const struct head_want *want,
                    const struct head_device *device, uint32_t devices);

/* ---- index.c */
plasmon_status_t head_index_submit(struct head_core *core, struct head_client *client,
                                   const Plasmon__V1__Task *task, struct pl_err *err);

/* ---- collective.c */
plasmon_status_t head_collective(struct head_core *core, struct head_client *client,
                                 const Plasmon__V1__Task *task, struct pl_err *err);

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

#endif
