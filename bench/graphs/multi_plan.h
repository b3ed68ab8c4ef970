/*
 * What a person would have written down for a graph on several devices: operations in queues (two a
 * device), copies between devices, and who waits for whom. Worked out once; the code that plays it
 * knows nothing of dependencies.
 *
 * CELLS  An array of several parts has a cell a part, others have one. A cell is valid on the
 *        device that wrote it and on those that it was copied to since. Every device has memory for
 *        all of an array, at the same offset.
 *
 * ORDER  An operation waits for the last writer of each cell that it reads, and for the last writer
 *        and all readers since of each that it writes, on its own device; operations of one queue
 *        are in order anyway, and of those of another queue the latest is enough. A copy is in the
 *        queue of the step that wants it.
 *
 * A run that begins when everything is done knows nothing of the last one but which cells are valid
 * where. That settles after the first run: constants have been copied to where they are used.
 *
 * IN FLIGHT  A run that is enqueued behind another one waits for operations of that, too: two runs
 * stand in one list, and the second
 *        half of it is what every later run does (graphs_plan_wait()). Older runs need not be
 *        named: whatever the one before waited for, or is behind in a queue, is over before it.
 */
#ifndef BENCH_GRAPHS_MULTI_PLAN_H
#define BENCH_GRAPHS_MULTI_PLAN_H

#include "bench/graphs/graph.h"

#define GRAPHS_DEVICES_MAX 8u
/* queues a device: the end of one kernel beside the beginning of the next */
#define GRAPHS_LANES      2u
#define GRAPHS_QUEUES_MAX (GRAPHS_DEVICES_MAX * GRAPHS_LANES)
#define GRAPHS_NONE       UINT32_MAX

struct graphs_operation {
    bool is_copy;
    uint32_t queue;         /* device * GRAPHS_LANES + lane */
    uint32_t step;          /* a launch */
    uint32_t array, from;   /* a copy: from that device */
    uint64_t offset, bytes; /* a copy */
    /* the latest operation of that queue that this waits for, or GRAPHS_NONE */
    uint32_t wait[GRAPHS_QUEUES_MAX];
    bool is_awaited;
    void *done; /* for who plays: an event */
};
struct graphs_cell {
    bool valid[GRAPHS_DEVICES_MAX];
    uint32_t writer[GRAPHS_DEVICES_MAX]; /* operation of this list that wrote it there */
    /* since: the last of each queue */
    uint32_t reader[GRAPHS_DEVICES_MAX][GRAPHS_QUEUES_MAX];
};
struct graphs_plan {
    const struct graphs_graph *graph;
    uint32_t devices;
    struct graphs_cell *cells;
    uint32_t *first_cell;             /* an array each */
    struct pl_vec init, first, again; /* struct graphs_operation: lists */
    struct pl_vec flight; /* two runs of `again`, the second enqueued behind the first */
};

void graphs_plan_make(struct graphs_plan *plan, const struct graphs_graph *graph,
                      uint32_t devices);
void graphs_plan_finish(struct graphs_plan *plan);
/*
 * Of runs in flight, number 0 and so on: the operation of queue `queue` that `operation`, of the
 * second half of `flight`, waits for in run number `run`, as an index into flight: runs of even
 * number are its first half, those of odd number its second, in turns. Or GRAPHS_NONE.
 */
uint32_t graphs_plan_wait(const struct graphs_plan *plan,
                          const struct graphs_operation *operation, uint32_t queue,
                          uint32_t run);
/* A device where the cell is valid. */
uint32_t graphs_plan_source(const struct graphs_plan *plan, uint32_t cell);

#endif
