/*
 * A CPU device: the parts of a GPU made of what an operating system has.
 *
 *   memory chunk   a memfd, sealed against resizing        device.c   open, info, failures of launches
 *   address range  a PROT_NONE mapping; chunks go over it  memory.c   chunks, ranges, accounting
 *   stream         a thread and a queue                    queue.c    the queue: one producer, one consumer
 *   timeline       a 64-bit word and a futex               stream.c   streams, and enqueuing on them
 *   event          a time stamp taken by the thread        ops.h      operations; run.c does them, event.c has events
 *                                                          futex.c    waiting for words and for progress
 *   graph          a list of operations                    graph.c    recording, and running such a list
 *   communicator   a socket                                comm.c     a stand-in for NCCL
 */
#ifndef DEVICE_CPU_INT_H
#define DEVICE_CPU_INT_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/list.h"
#include "base/lock.h"
#include "base/map.h"
#include "device/device_int.h"

/* ordinals; a CPU device is a pretence, so the number is our choice */
#define DEVICE_CPU_MAX         64u
#define DEVICE_CPU_GRANULARITY 0x10000ul /* 64 KiB: a multiple of every page size */

/* ------------------------------------------------------------------------------ waiting */

/*
 * How far a stream is, for whoever waits for it: other streams (join) and host threads (sync).
 * Counted references, because a join may be looked at after the stream it waited for has ended.
 */
struct device_cpu_progress {
    _Atomic uint32_t refs;
    /* threads in device_cpu_progress_wait(); checked after each step of `completed` */
    _Atomic uint32_t waiters;
    _Atomic uint64_t completed; /* operations; a futex on the low half */
};

struct device_cpu_progress *device_cpu_progress_create(void) PL_MUST_CHECK;
void device_cpu_progress_hold(struct device_cpu_progress *progress);
void device_cpu_progress_release(struct device_cpu_progress *progress);
void device_cpu_progress_advance(struct device_cpu_progress *progress, uint64_t completed);
void device_cpu_progress_wait(struct device_cpu_progress *progress, uint64_t target,
                              uint64_t spin_ns);

/* Until *word >= value. Any process may write it; see futex.c for who must wake. */
void device_cpu_word_wait(uint64_t *word, uint64_t value, uint64_t spin_ns);
void device_cpu_word_signal(uint64_t *word, uint64_t value);

/* A thread of this process sleeps while *futex == expected; spurious returns are possible. */
void device_cpu_sleep(_Atomic uint32_t *futex, uint32_t expected);
void device_cpu_wake(_Atomic uint32_t *futex);

/* -------------------------------------------------------------------------------- queue */

struct device_cpu_op {
    uint32_t bytes; /* of the whole record, header included; a multiple of 16 */
    uint32_t kind;
    uint64_t reserved; /* keeps the payload aligned to 16 */
};

struct device_cpu_segment;

struct device_cpu_queue {
    /* Producer's. */
    _Alignas(64) struct device_cpu_segment *tail;
    size_t tail_used;
    uint64_t pushed; /* operations, published or about to be */
    struct device_cpu_segment *spare;
    unsigned spare_count;
    unsigned segment_count; /* all there are, spare ones included */

    /* Consumer's. */
    _Alignas(64) struct device_cpu_segment *head;
    size_t head_used;
    uint64_t popped;
    /* a copy of `published`, not re-read while there is work left */
    uint64_t published_seen;

    /* Shared. */
    _Alignas(64) _Atomic uint64_t published; /* operations whose record is complete */
    _Atomic uint32_t sleeping;               /* 1: the consumer sleeps or is about to */
    _Atomic bool stopping;
    /* consumer -> producer, a stack */
    _Alignas(64) _Atomic(struct device_cpu_segment *) used_up;
};

plasmon_status_t device_cpu_queue_init(struct device_cpu_queue *queue) PL_MUST_CHECK;
void device_cpu_queue_finish(struct device_cpu_queue *queue);
/*
 * Producer: room for an operation with that much payload. ENOMEM or ELIMIT; else *out_payload, to
 * be filled, then push.
 */
plasmon_status_t device_cpu_queue_reserve(struct device_cpu_queue *queue, uint32_t kind,
                                          size_t payload_bytes,
                                          void **out_payload) PL_MUST_CHECK;
void device_cpu_queue_push(struct device_cpu_queue *queue);
/* the consumer ends once it is empty */
void device_cpu_queue_stop(struct device_cpu_queue *queue);
/* Consumer: the next operation, waiting for one; NULL: stopped. Valid until the next call. */
struct device_cpu_op *device_cpu_queue_pop(struct device_cpu_queue *queue,
                                           uint64_t spin_ns);

/* ------------------------------------------------------------------------------- device */

struct device_cpu_failure {
    struct pl_list link;
    uint64_t tag;
    struct pl_err err;
};

/* Memory of this device that this process made or maps. */
struct device_cpu_chunk {
    uint64_t inode;
    uint64_t bytes;
    unsigned mapped_count; /* 0: made, not mapped here yet */
};

struct device_cpu {
    struct device base;

    /* Constant after open. */
    uint64_t bytes_max;
    uint64_t guard_bytes;                     /* on both sides of each range */
    uint64_t spin_ns;                         /* how long a thread polls before it sleeps */
    void (*failed)(void *user, uint64_t tag); /* may be NULL */
    void *failed_user;

    struct pl_mutex lock; /* rank PL_RANK_DEVICE */

    /* Guarded by `lock`. */
    struct pl_list streams;
    struct pl_list failures; /* struct device_cpu_failure, oldest first */
    struct pl_list ranges;
    struct pl_map chunk_of_inode;
    struct pl_map chunk_of_address; /* where it is mapped; peers' memory is not in it */
    uint64_t bytes_used;            /* sum of the chunks in chunk_of_inode */
    unsigned stream_names;          /* how many threads were named so far */
    struct pl_list comm_ids;        /* comm.c: made here, and not used yet */
};

struct device_cpu_recording;

struct device_cpu_stream {
    struct device_stream base;
    /* a graph's branch: here, and no thread; NULL otherwise */
    struct device_cpu_recording **recording;
    struct pl_list link;
    bool low; /* of low priority; constant */
    pthread_t thread;
    struct device_cpu_progress *progress;
    struct pl_err failure; /* first since the last sync; guarded by the device's lock */
    struct device_cpu_queue queue;
};

static inline struct device_cpu *device_cpu_of(struct device *device)
{
    PL_CHECK(device->ops == &device_cpu_ops);
    return (struct device_cpu *)(void *)device;
}

static inline struct device_cpu_stream *device_cpu_stream_of(struct device_stream *stream)
{
    PL_CHECK(stream->device->ops == &device_cpu_ops);
    return (struct device_cpu_stream *)(void *)stream;
}

/* memory.c */
plasmon_status_t device_cpu_range_reserve(struct device *device, uint64_t bytes,
                                          struct device_ptr *out_base);
void device_cpu_range_release(struct device *device, struct device_ptr base,
                              uint64_t bytes);
plasmon_status_t device_cpu_chunk_create(struct device *device, uint64_t bytes,
                                         int *out_fd);
plasmon_status_t device_cpu_chunk_map(struct device *device, int fd, uint64_t bytes,
                                      uint32_t owner_ordinal, bool writable,
                                      struct device_ptr where);
void device_cpu_chunk_unmap(struct device *device, struct device_ptr where, uint64_t bytes);
void device_cpu_memory_finish(struct device_cpu *cpu);

/* stream.c */
plasmon_status_t device_cpu_stream_create(struct device *device, unsigned flags,
                                          struct device_stream **out_stream);
void device_cpu_stream_destroy(struct device_stream *stream);
plasmon_status_t device_cpu_stream_sync(struct device_stream *stream, struct pl_err *err);
plasmon_status_t device_cpu_copy(struct device_stream *stream, enum device_copy_kind kind,
                                 uint64_t dst, uint64_t src, uint64_t bytes);
plasmon_status_t device_cpu_copy_planned(struct device_stream *stream,
                                         const struct device_copy_plan *plan,
                                         struct device_ptr dst, struct device_ptr src);
plasmon_status_t device_cpu_fill8(struct device_stream *stream, struct device_ptr dst,
                                  uint8_t value, uint64_t bytes);
plasmon_status_t device_cpu_signal(struct device_stream *stream, uint64_t *word,
                                   uint64_t value);
plasmon_status_t device_cpu_wait(struct device_stream *stream, uint64_t *word,
                                 uint64_t value);
plasmon_status_t device_cpu_notify(struct device_stream *stream, int eventfd);
plasmon_status_t device_cpu_join(struct device_stream *stream, struct device_stream *other);
/* Until the stream of that progress has done `target` of its operations. */
plasmon_status_t device_cpu_behind(struct device_stream *stream,
                                   struct device_cpu_progress *progress, uint64_t target);
plasmon_status_t device_cpu_launch_enqueue(struct device_stream *stream, device_cpu_fn fn,
                                           const void *args, size_t args_bytes,
                                           uint64_t tag);
plasmon_status_t device_cpu_recording_enqueue(struct device_stream *stream,
                                              struct device_cpu_recording *recording,
                                              uint64_t tag); /* takes a reference */

/* event.c */
plasmon_status_t device_cpu_event_create(struct device *device, bool timed,
                                         struct device_event **out_event);
void device_cpu_event_destroy(struct device_event *event);
plasmon_status_t device_cpu_event_record(struct device_event *event,
                                         struct device_stream *stream);
plasmon_status_t device_cpu_event_elapsed_ns(struct device_event *begin,
                                             struct device_event *end, uint64_t *out_ns);
bool device_cpu_event_done(struct device_event *event);
plasmon_status_t device_cpu_event_behind(struct device_stream *stream,
                                         struct device_event *event);
bool device_cpu_event_host_ns(struct device_event *event, uint64_t *out_ns);

/*
 * run.c. Run a recorded operation in place, launches with this tag; false: a launch failed. Then
 * what it holds is let go of.
 */
bool device_cpu_op_run(struct device_cpu_stream *stream, const struct device_cpu_op *op,
                       uint64_t tag);
void device_cpu_op_drop(const struct device_cpu_op *op);

/* graph.c */
plasmon_status_t device_cpu_recording_reserve(struct device_cpu_recording *recording,
                                              uint32_t kind, size_t payload_bytes,
                                              void **out_payload) PL_MUST_CHECK;
void device_cpu_recording_hold(struct device_cpu_recording *recording);
void device_cpu_recording_release(struct device_cpu_recording *recording);
void device_cpu_recording_run(struct device_cpu_stream *stream,
                              const struct device_cpu_recording *recording, uint64_t tag);
plasmon_status_t device_cpu_graph_create(struct device *device, uint32_t branches,
                                         struct device_graph **out_graph,
                                         struct pl_err *err);
void device_cpu_graph_destroy(struct device_graph *graph);
plasmon_status_t device_cpu_graph_begin(struct device_graph *graph, struct pl_err *err);
plasmon_status_t device_cpu_graph_mark(struct device_graph *graph, uint32_t branch,
                                       uint32_t mark);
plasmon_status_t device_cpu_graph_after(struct device_graph *graph, uint32_t branch,
                                        uint32_t mark);
plasmon_status_t device_cpu_graph_end(struct device_graph *graph, bool keep,
                                      struct device_exec **io_exec, struct pl_err *err);
plasmon_status_t device_cpu_exec_launch(struct device_stream *stream,
                                        struct device_exec *exec, uint64_t tag);
void device_cpu_exec_destroy(struct device_exec *exec);

/* comm.c */
uint32_t device_cpu_comm_version(struct device *device, struct pl_err *why);
plasmon_status_t device_cpu_comm_id(struct device *device,
                                    const struct device_comm_config *config,
                                    uint8_t *out_id, struct pl_err *err);
plasmon_status_t device_cpu_comm_open(struct device *device,
                                      const struct device_comm_config *config,
                                      const uint8_t *id, struct device_stream *stream,
                                      struct device_comm **out_comm, struct pl_err *err);
plasmon_status_t device_cpu_comm_poll(struct device_comm *comm, struct pl_err *err);
plasmon_status_t device_cpu_comm_move(struct device_comm *comm,
                                      struct device_stream *stream, struct device_ptr ptr,
                                      uint64_t bytes, struct pl_err *err);
plasmon_status_t device_cpu_comm_join(struct device_comm *comm,
                                      struct device_stream *stream,
                                      const struct device_comm_collective *reduction,
                                      struct pl_err *err);
plasmon_status_t device_cpu_comm_check(struct device_comm *comm, struct pl_err *err);
void device_cpu_comm_close(struct device_comm *comm);
void device_cpu_comm_cut(struct device_comm *comm);
void device_cpu_comm_abort(struct device_comm *comm);
void device_cpu_comm_finish(struct device_cpu *cpu); /* ids that nobody used */

/* device.c: called by stream threads. */
void device_cpu_failure_add(struct device_cpu_stream *stream, uint64_t tag,
                            const struct pl_err *err);

#endif
