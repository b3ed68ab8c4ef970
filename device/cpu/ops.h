/*
 * What streams of a CPU device do: each kind of operation has a payload struct, which stream.c or
 * event.c fills while enqueuing it and run.c reads. It is copied into the queue, or held by a
 * reference (the progress of another stream, the mark of an event), so callers may free their own
 * things at once.
 */
#ifndef DEVICE_CPU_OPS_H
#define DEVICE_CPU_OPS_H

#include "device/cpu/cpu_int.h"

#include <assert.h>

enum device_cpu_op_kind {
    DEVICE_CPU_OP_COPY,
    DEVICE_CPU_OP_COPY_PLANNED,
    DEVICE_CPU_OP_FILL,
    DEVICE_CPU_OP_SIGNAL,
    DEVICE_CPU_OP_WAIT,
    DEVICE_CPU_OP_NOTIFY,
    DEVICE_CPU_OP_JOIN,
    DEVICE_CPU_OP_RECORD,
    DEVICE_CPU_OP_LAUNCH,
    DEVICE_CPU_OP_GRAPH,
};

struct device_cpu_op_copy {
    uint64_t dst;
    uint64_t src;
    uint64_t bytes;
};
struct device_cpu_op_copy_planned {
    struct device_copy_plan plan;
    uint64_t dst;
    uint64_t src;
};
struct device_cpu_op_fill {
    uint64_t dst;
    uint64_t bytes;
    uint8_t value;
};
struct device_cpu_op_word {
    uint64_t *word;
    uint64_t value;
};
struct device_cpu_op_notify {
    int eventfd;
};
struct device_cpu_op_join {
    struct device_cpu_progress *progress; /* owned reference */
    uint64_t target;
};
struct device_cpu_op_record {
    struct device_cpu_mark *mark; /* owned reference */
    uint64_t number;
};
struct device_cpu_op_launch {
    device_cpu_fn fn;
    uint64_t tag;
    void *large_args; /* owned; NULL: they lie behind this struct */
    uint64_t reserved;
};
static_assert(sizeof(struct device_cpu_op_launch) % 16 == 0,
              "arguments behind it are aligned to 16");

struct device_cpu_op_graph {
    struct device_cpu_recording *recording; /* owned reference */
    uint64_t tag;
};

/*
 * What an event and the stream that reaches it share. The stream may reach it after the event was
 * destroyed.
 */
struct device_cpu_mark {
    _Atomic uint32_t refs;
    _Atomic uint64_t reached; /* number of the last record() that was reached */
    _Atomic uint64_t time_ns; /* stored before `reached` */
};

/* event.c */
void device_cpu_mark_release(struct device_cpu_mark *mark);

/* stream.c. The queue's reserve, with room for a payload of a type. The address is written to *out_op. */
plasmon_status_t device_cpu_enqueue_begin(struct device_cpu_stream *stream,
                                          enum device_cpu_op_kind kind,
                                          size_t payload_bytes, void *out_op) PL_MUST_CHECK;
void device_cpu_enqueue_end(struct device_cpu_stream *stream);

/* run.c, on the stream's thread. */
void device_cpu_run(struct device_cpu_stream *stream, struct device_cpu_op *op,
                    uint64_t spin_ns);

#endif
