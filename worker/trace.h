/*
 * Recording when launches run on the device, for a timeline.
 *
 * Off, nothing is done and nothing is allocated. On, each launch with work takes two events from a
 * pool, one before its work and one behind it; the pool is as large as a device can have launches
 * (WORKER_DEPTH), so it is never empty for long, and a launch that finds it empty is not recorded
 * but counted. When the launch is over the events give its times, and the span waits for the next
 * frame to the head; no more than a bounded number wait, the rest is counted as dropped.
 *
 * CLOCKS. A CPU device's events carry the host's clock. A GPU's only tell the time between two of
 * them. So once a second a *base* is taken: an event on a stream of its own, bracketed by two
 * readings of the host's clock. A span's times are its base's host time plus what the GPU says has
 * passed since. The error is half the bracket (a few microseconds; the largest is told with the
 * spans) and what the two clocks drift in a second. Taking a base anew also keeps the difference
 * short, which CUDA gives as a float of milliseconds.
 *
 * Threads: owner only (the worker's lock).
 */
#ifndef WORKER_TRACE_H
#define WORKER_TRACE_H

#include "device/device.h"
#include "worker/core.h"

#define WORKER_TRACE_SPANS_MAX 16384u /* waiting to be told */
#define WORKER_TRACE_FRAME     2048u  /* spans in a frame */

struct worker_trace_base;

struct worker_trace {
    struct device *device;
    struct device_stream *clock; /* of bases; NULL: the device has the host's clock */
    uint32_t run_streams;
    bool on;
    uint64_t real_ns;   /* CLOCK_REALTIME - CLOCK_MONOTONIC, when it was switched on */
    struct pl_vec idle; /* struct worker_trace_span *: not in use */
    uint32_t made;      /* spans made so far */
    struct worker_trace_base *base; /* a reference */
    uint64_t base_due_ns;
    struct pl_vec over; /* struct worker_trace_over: not told yet, from over_first on */
    size_t over_first;
    uint64_t dropped;
    uint64_t error_ns;
};

plasmon_status_t worker_trace_init(struct worker_trace *trace, struct device *device,
                                   uint32_t run_streams) PL_MUST_CHECK;
void worker_trace_finish(struct worker_trace *trace);
void worker_trace_switch(struct worker_trace *trace, bool on);
/* Take a base if one is due. Costs a comparison when off or not due. */
void worker_trace_tick(struct worker_trace *trace, uint64_t now_ns);

/* As in worker_ops. */
void *worker_trace_begin(struct worker_trace *trace, struct device_stream *stream);
void worker_trace_end(void *span, struct device_stream *stream);
void worker_trace_done(struct worker_trace *trace, void *span,
                       const struct worker_span *facts);

bool worker_trace_pending(const struct worker_trace *trace);
/* The next spans as a message in the arena, which are told then; NULL: no memory. */
Plasmon__V1__SpanBatch *worker_trace_batch(struct worker_trace *trace,
                                           struct wire_arena *arena);

#endif
