/*
 * `plasmon bench transfer`: what its parts share. transfer.c is the command and its routes,
 * transfer_shapes.c what is moved and timed.
 *
 * Threads: the main thread only.
 */
#ifndef BENCH_TRANSFER_H
#define BENCH_TRANSFER_H

#include "bench/bench.h"

#define TRANSFER_OBJECTS_MAX 256u
#define TRANSFER_CROSSING    256u /* by default; on GPUs: */
/*
 * messages until the first copy begins are a thirtieth of the time of 256 objects of 16 MiB, and
 * bare loops have more, too
 */
#define TRANSFER_CROSSING_GPUS 1024u
#define TRANSFER_NEW           "new object each time" /* the rows of the picture */

struct transfer {
    struct bench_cluster cluster; /* of the route */
    struct bench_report report;
    struct bench_raw_copy raw;
    double result[BENCH_SIZES_MAX * BENCH_RAW_FIGURES];
    /* "peer", "host", "nccl"; any other: between hosts, beside raw TCP */
    const char *route;
    uint32_t in_flight;
    uint32_t crossing; /* objects of a series both ways and all to all, at most */
    uint32_t from, to; /* what moves between two devices does so between these */
    double one; /* seconds of one object from the call to its end; 0: not measured yet */
};

/* ---- transfer_shapes.c; `raw` are the figures of that size */
/* Do the right bytes arrive? Exits if not. */
void transfer_check(struct transfer *transfer, uint64_t bytes);
/* Objects that fit into a quarter of a device, so that nothing is ever moved out of the way. */
uint32_t transfer_objects(const struct transfer *transfer, uint64_t bytes);
/* Seconds for so many new objects, in_flight of them moving at any time. refs: room for them. */
double transfer_move_new(struct transfer *transfer, struct plasmon_ref **refs,
                         uint32_t count, uint64_t bytes);
/*
 * Who copies between GPUs of a host changes soon after the first large copies (worker/sources.h):
 * until that is done, if a size is large.
 */
void transfer_settle(struct transfer *transfer);
void transfer_measure_new(struct transfer *transfer, uint64_t bytes, const double *raw);
/* Sets `one`, which the next one uses, of the same size. */
void transfer_measure_latency(struct transfer *transfer, uint64_t bytes, const double *raw);
/* Three devices or more: one object of device 0 to all others. */
void transfer_measure_many(struct transfer *transfer, uint64_t bytes, const double *raw);
void transfer_measure_duplex(struct transfer *transfer, uint64_t bytes, const double *raw);
/* Three devices or more; also checks what arrives. */
void transfer_measure_all(struct transfer *transfer, uint64_t bytes, const double *raw);

/*
 * No measurement of ours: what words, a second stream and a split cost raw copies, to see where the
 * rest of a figure goes.
 */
void transfer_show_words(struct transfer *transfer, uint64_t bytes, const double *raw);

#endif
