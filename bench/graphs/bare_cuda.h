/* What the files that play a graph on a GPU without Plasmon share (bare_cuda.c). */
#ifndef BENCH_GRAPHS_BARE_CUDA_H
#define BENCH_GRAPHS_BARE_CUDA_H

#include "bench/graphs/bare.h"
#include "device/cuda/driver.h"

#define CU(call) DEVICE_CU(NULL, call)

struct bare_array {
    CUdeviceptr memory;
    CUevent copied;       /* cold: for readers in other streams */
    uint32_t copy_stream; /* of this run */
    bool has_copy;        /* in this run */
    void *out;            /* outputs: page-locked memory, where a cold run copies it .. */
    uint32_t last_writer; /* .. behind this step */
};
struct bare_step {
    CUfunction function;
    CUevent done; /* NULL: nobody waits for it */
    union graphs_value value[GRAPHS_PARAMS_MAX];
    void *params[GRAPHS_PARAMS_MAX];
};
struct bare {
    struct graphs_run run; /* with the serial times, once they are known */
    const struct graphs_graph *graph;
    uint32_t mode, in_flight;
    CUstream stream[GRAPHS_STREAMS];
    CUevent fork, join[GRAPHS_STREAMS];
    CUmodule module;
    struct bare_array *array;
    struct bare_step *step;
    CUgraphExec exec; /* captured for the mode under way */
    bool cold;
    void *got; /* room for an output */
};

plasmon_status_t graphs_bare_fail(plasmon_status_t status, const char *what,
                                  struct pl_err *err);
plasmon_status_t graphs_bare_launch(struct bare *bare, uint32_t number, CUstream stream);
/*
 * bare_cuda_room.c: the critical path and the bandwidth into `result`. Arrays have content; what it
 * is does not matter.
 */
plasmon_status_t graphs_bare_room(struct bare *bare, double *result, struct pl_err *err);

#endif
