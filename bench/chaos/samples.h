/*
 * What processes use, over time: a series a process and quantity, and the line through each (least
 * squares, without the first third, in which caches fill). A series is flat when the line grows by
 * no more than a tolerance over the time that it spans, or by no more than three times what the
 * scatter of its samples lets one know of that growth.
 */
#ifndef BENCH_CHAOS_SAMPLES_H
#define BENCH_CHAOS_SAMPLES_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/vec.h"

enum sample_what {
    SAMPLE_MEMORY, /* resident and its own: bytes; shared memory is in the segments */
    SAMPLE_FDS,
    SAMPLE_THREADS,
    SAMPLE_SEGMENTS, /* descriptors of shared memory */
    SAMPLE_DEVICE_USED,
    SAMPLE_DEVICE_RESERVED,
    SAMPLE_PAIRS,    /* communicators with other devices */
    SAMPLE_GPU_USED, /* as the driver has it: communicators, contexts and code too */
    SAMPLE_WHATS
};

struct sample_point {
    double at_s, value;
};
struct sample_series {
    char who[24]; /* "worker 1" */
    enum sample_what what;
    struct pl_vec points; /* struct sample_point */
};
struct samples {
    struct pl_vec series; /* struct sample_series * */
};

struct sample_line {
    bool known; /* there were enough samples */
    double mean;
    double growth; /* over the time that the line spans */
    double seconds;
    double error;     /* standard error of the growth */
    double tolerance; /* of the growth */
    bool flat;
};

void samples_init(struct samples *samples);
void samples_finish(struct samples *samples);
/* Exits when there is no memory. */
void samples_add(struct samples *samples, const char *who, enum sample_what what,
                 double at_s, double value);
/* Memory, descriptors, threads and segments of a process. One that has ended adds nothing. */
void samples_add_process(struct samples *samples, const char *who, pid_t pid, double at_s);
struct sample_line samples_line(const struct sample_series *series);

const char *sample_name(enum sample_what what);
bool sample_is_bytes(enum sample_what what);

#endif
