/*
 * What a dependency costs: a chain of short kernels on one device, and a chain that goes back and
 * forth between two.
 */
#ifndef BENCH_GRAPHS_CHAIN_H
#define BENCH_GRAPHS_CHAIN_H

#include "bench/bench.h"

#define GRAPHS_CHAIN_ELEMENTS 1024 /* 4 KiB */
#define GRAPHS_CHAIN_CYCLES   3500 /* about 2 us on an H200 */

struct graphs_chain {
    bool cuda;
    uint32_t devices;
    uint32_t links; /* of the chain on one device; a multiple of GRAPHS_CHAIN_RECORDED */
    uint32_t hops;  /* of the one between two; even */
    /* CPU times instead of times: telling the driver's apart costs the worker some */
    bool costs;
};
#define GRAPHS_CHAIN_RECORDED 100u /* links in a recorded graph, a CUDA graph */

/* Seconds a link, unless it says otherwise; negative: not measured. */
enum graphs_chain_figure {
    GRAPHS_CHAIN_LAUNCHES,    /* by hand: one launch after the other */
    GRAPHS_CHAIN_GRAPH,       /* by hand: CUDA graphs of 100 */
    GRAPHS_CHAIN_GRAPH_EARLY, /* by hand: the same, each link begins early */
    GRAPHS_CHAIN_PUSH,        /* by hand, two GPUs: copied by the one that has it */
    GRAPHS_CHAIN_PULL,        /* by hand, two GPUs: copied by the one that wants it */
    GRAPHS_CHAIN_PULL_KERNEL, /* by hand, two GPUs: the same, by a kernel */
    GRAPHS_CHAIN_PLAIN,       /* Plasmon */
    GRAPHS_CHAIN_REPLAY,      /* Plasmon, recorded graphs of 100 */
    GRAPHS_CHAIN_EDGE,        /* Plasmon, two devices */
    GRAPHS_CHAIN_CATALOGUE,   /* Plasmon: of add_into */
    GRAPHS_CHAIN_HEAD,        /* Plasmon: the head's own CPU time a task, plain */
    GRAPHS_CHAIN_WORKER,      /* the worker's, without the driver's calls */
    GRAPHS_CHAIN_HEAD_REPLAY, /* the same for replay */
    GRAPHS_CHAIN_WORKER_REPLAY,
    GRAPHS_CHAIN_FIGURES
};

/* A link of a chain, for who launches them in other ways; all exit on failure. */
void graphs_chain_register(struct bench_cluster *cluster); /* compiled when it returns */
struct plasmon_ref *graphs_chain_zeros(struct bench_cluster *cluster); /* on device 0 */
void graphs_chain_submit(struct bench_cluster *cluster, struct plasmon_ref *x,
                         int64_t cycles, int device);

/* Fits bench_run_raw(): config is a struct graphs_chain, and it sets the figures by hand. */
plasmon_status_t graphs_chain_bare_run(const void *config, double *result, size_t count,
                                       struct pl_err *err);
/* Both, one after the other, as rows. false: one failed; a remark says how. */
bool graphs_chain_measure(const struct graphs_chain *chain, struct bench_report *report);

#endif
