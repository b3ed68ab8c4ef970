/* What the calls (fake_calls.h) and fake_run.c (the device) have in common. */
#ifndef TESTS_HARNESS_GPU_FAKE_INT_H
#define TESTS_HARNESS_GPU_FAKE_INT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cuda.h>

#include "device/cuda/copy_box.h"

enum fake_op_kind {
    FAKE_COPY,
    FAKE_SET,
    FAKE_WRITE, /* a word */
    FAKE_WAIT,  /* for a word */
    FAKE_RECORD,
    FAKE_AFTER, /* an event's record */
    FAKE_KERNEL,
    FAKE_HOST,
    FAKE_POLL, /* until it says that it is over */
    FAKE_GRAPH,
};

struct fake_function {
    struct fake_function *next; /* of its module */
    bool counts;                /* chain_link */
    bool mixes;                 /* chain_mix */
    bool traps;                 /* store_nowhere */
    bool copies;                /* device_copy_box_1 .. 16 */
    uint32_t copy_width;        /* the number in that */
    bool waits;                 /* of code with DEVICE_EARLY_MARK */
};

/*
 * One record of an event. Who waits for the event waits for the record that was its last at the
 * time, whatever becomes of the event.
 */
struct fake_record {
    bool done;
    uint64_t done_ns;
    uint32_t refs; /* its event, its operation, those that wait */
};

struct fake_event {
    struct fake_record *last; /* NULL: it was not recorded yet */
    uint64_t capture;         /* the capture in which it was recorded last; 0: none */
    int device;               /* in whose context it was made */
};

struct fake_op {
    enum fake_op_kind kind;
    union {
        CUDA_MEMCPY3D copy;
        struct {
            CUdeviceptr at;
            uint64_t value; /* to write or fill with, or waited for */
            uint64_t bytes;
        } word;
        struct fake_record *record;
        struct {
            const struct fake_function *function;
            void *x; /* float, or uint32_t */
            int64_t n;
            uint32_t value;
            struct device_copy_box_args copy;
            bool early; /* it may begin before what is in front of it has ended */
        } kernel;
        struct {
            CUhostFn fn;
            void *user;
        } host;
        struct {
            bool (*fn)(void *user);
            void *user;
        } poll;
        struct fake_exec *exec;
    };
};

struct fake_ops {
    struct fake_op *items;
    size_t first, count, room; /* in use: first .. first + count */
};

struct fake_graph {
    struct fake_ops ops;
    uint64_t capture; /* its number while it is captured, else 0 */
};

struct fake_exec { /* or one launch of it */
    struct fake_ops ops;
};

struct fake_stream {
    struct fake_stream *next;
    struct fake_ops ops;
    uint64_t busy_until_ns; /* a kernel takes time */
    struct fake_graph *capture;
    CUgraphNode last; /* captured */
    int device; /* in whose context it was made: that copies and runs what is put in */
};

/* All of it is guarded by one lock, which each call takes. */
void fake_lock(void);
void fake_unlock(void);

/* With the lock. */
struct fake_stream *fake_streams(void);
bool fake_lost(void); /* a kernel has stored where nothing is: what follows is refused */
bool fake_stream_lost(const struct fake_stream *stream); /* likewise, or its device is */
CUresult fake_lost_error(void);                          /* what is answered then */
void fake_stream_add(struct fake_stream *stream);
void fake_stream_remove(struct fake_stream *stream);
/* Append; the device is told. Out of memory ends the process: it is a test's. */
void fake_enqueue(struct fake_stream *stream, const struct fake_op *op);
void fake_ops_push(struct fake_ops *ops, const struct fake_op *op);
void fake_ops_copy(struct fake_ops *out, const struct fake_ops *ops);
void fake_record_unref(struct fake_record *record); /* NULL: nothing */
void fake_exec_destroy(struct fake_exec *exec);

/* Without it. */
int fake_device_current(void); /* whose context the calling thread has */
/* it is not the first that the process had a context on */
bool fake_device_is_far(int device);
void fake_far_wait(int device); /* as FAKE_CUDA_SLOW says */
/* May that device read or write what is mapped there? What was never mapped is anybody's. */
bool fake_memory_open(CUdeviceptr at, uint64_t bytes, int device, bool writes);
/* A call that names memory of the host begins and ends; it waits for who frees some (fake_nccl.h). */
/* false: these bytes of the host begin in memory that was registered, and reach over its end. */
bool fake_memory_may_copy(const void *host, size_t bytes);
void fake_memory_enter(void);
void fake_memory_leave(void);
void fake_sync(struct fake_stream *stream);
void fake_quiet(void); /* until nothing is on the device */

#endif
