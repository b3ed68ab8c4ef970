/*
 * Spans that the head has sent, kept until they are asked for: the newest up to a bound, the rest
 * is counted. Names are kept once each, for as long as the client lives, because spans that were
 * handed out point to them.
 *
 * Threads: the client's lock.
 */
#ifndef CLIENT_TRACE_H
#define CLIENT_TRACE_H

#include <stdbool.h>
#include <stdio.h>

#include "base/map.h"
#include "base/vec.h"
#include "plasmon/plasmon.h"
#include "wire/wire.h"

struct trace_device {
    uint32_t run_streams; /* 0: nothing came from it */
    uint64_t error_ns;
};

struct trace {
    bool on;
    size_t spans_max;
    struct plasmon_span *spans; /* a ring; NULL: never switched on */
    size_t first;
    size_t count;
    size_t capacity;
    uint64_t dropped;
    struct pl_vec devices; /* struct trace_device */
    struct pl_map names;   /* hash -> char * */
};

void trace_init(struct trace *trace);
void trace_finish(struct trace *trace);
void trace_take(struct trace *trace, const Plasmon__V1__SpanBatch *batch);
static inline const struct plasmon_span *trace_at(const struct trace *trace, size_t index)
{
    return &trace->spans[(trace->first + index) % trace->capacity];
}

/* What a drawing needs: spans in the order of their begin, and names of devices. */
struct trace_view {
    const struct plasmon_span *spans;
    size_t count;
    uint64_t begin_ns; /* of the first submit, or begin */
    uint64_t end_ns;
    uint64_t dropped;
    const struct plasmon_device_info *devices;
    const struct trace_device *device_facts;
    size_t device_count;
};
/* Chrome's trace event format, which Perfetto reads. */
void trace_write_json(const struct trace_view *view, FILE *out);
/* One SVG picture. */
void trace_write_svg(const struct trace_view *view, FILE *out);
const char *trace_kind_name(uint32_t kind);
/* As worker/core.h numbers them. */
const char *trace_stream_name(const struct trace_view *view, uint32_t device,
                              uint32_t stream, char out[32]);

#endif
