/*
 * A CUDA device.
 *
 *   driver.c   the driver's functions, errors, times        copy.c     copies of boxes, copy_box.cu
 *   device.c   open, info, health                           blas.c     cuBLAS
 *   memory.c   ranges, chunks, registered host memory       module.c   GPU code and launches
 *   stream.c   streams, copies, timelines, events          graph.c    recorded work
 *   comm.c     NCCL                                        items.c    changing recorded work in parts
 *   chain.c    kernels of a stream, as graphs               far.c      copies by the engines of other devices
 *
 * CONTEXTS. All work is in the device's primary context, so that NCCL, cuBLAS and user libraries
 * see the same one. Each public function begins with device_cuda_enter(), which makes it current in
 * the calling thread if it is not (asking costs a read of the driver's thread-local; a copy of ours
 * would be wrong after a library changed it). It stays current: a process has one device by
 * default, and whoever uses several enters again anyway. A stream whose copies another device makes
 * (far.c) has device_cuda_here() in its place.
 */
#ifndef DEVICE_CUDA_INT_H
#define DEVICE_CUDA_INT_H

#include "base/list.h"
#include "base/lock.h"
#include "base/vec.h"
#include "device/cuda/driver.h"

#include <assert.h>

/* timelines, staging memory and lanes of every device of a host; STORE_HOST_BUFFERS_MAX */
#define DEVICE_CUDA_HOST_RANGES_MAX 1536
#define DEVICE_CUDA_COPY_WIDTHS     5   /* words of 1, 2, 4, 8 and 16 bytes */
#define DEVICE_CUDA_FAR_MAX         64u /* devices of a host */
/* streams that another device makes copies for at once: a worker has two for copies */
#define DEVICE_CUDA_FAR_LANES 2u

struct device_cuda_host_range {
    uintptr_t host;
    uint64_t bytes;
    CUdeviceptr device;
    bool owned; /* we registered it; else another device of this process had */
};

struct device_cuda_blas; /* blas.c */
struct device_cuda_far;  /* far.c */

/* What a stream has in one context. */
struct device_cuda_lane {
    CUcontext context;
    uint32_t ordinal;            /* of the device that it is on */
    struct device_cuda_far *far; /* whose it is; NULL: this device's own */
    CUstream stream;
    CUstream aside; /* where its large copies run (copy.c); NULL: in it */
    /* of one in another context: home is behind all that `stream` holds (far.c) */
    bool home_behind;
    CUevent join_event; /* for joins of this stream with others */
};

struct device_cuda {
    struct device base;

    /* Constant after open. */
    CUdevice device;
    CUcontext context;
    CUstream idle_stream; /* no user's work: set-up, and a place to ask for errors */
    int priority_high;    /* CUDA's numbers: a smaller one goes first */
    int priority_normal;
    int priority_low;
    uint64_t pitch_max;
    struct device_module *copy_module;
    CUfunction copy_functions[DEVICE_CUDA_COPY_WIDTHS]; /* [i]: words of 1 << i bytes */
    struct device_cuda_blas *blas; /* started, or to be; NULL: blas_error says why */
    void (*launch_failed)(void *user, uint64_t tag); /* may be NULL */
    void *launch_failed_user;
    struct pl_err blas_error;

    /* rank PL_RANK_DEVICE; no driver call that may wait is made under it */
    struct pl_mutex lock;

    /* Guarded by `lock`. */
    struct pl_list streams;
    struct device_cuda_host_range host_ranges[DEVICE_CUDA_HOST_RANGES_MAX];
    unsigned host_range_count;
    struct pl_err lost;      /* first sticky error */
    CUdeviceptr comm_memory; /* comm.c's, made when first needed; 0: none */
    struct pl_list failures; /* chain.c's, oldest first */
    struct device_cuda_far *far[DEVICE_CUDA_FAR_MAX]; /* by ordinal */
    uint64_t *links;    /* far.c's words, for a stream each; NULL: none yet */
    uint32_t way_count; /* that are taken */

    /*
     * Held over calls of the driver; rank PL_RANK_CHAINS. Guards `maps`, and that what is in there
     * is open to those that are far and ready.
     */
    struct pl_mutex maps_lock;
    struct pl_vec maps; /* struct device_cuda_map, memory.c */

    _Atomic bool failed; /* there are failures */
    /* rank PL_RANK_CHAINS; guards `keeps`, and what is in their chains */
    struct pl_mutex keeps_lock;
    struct pl_list keeps;
};

/* A chunk that is mapped here. */
struct device_cuda_map {
    CUdeviceptr where;
    uint64_t bytes;
    uint32_t owner;  /* ordinal of the device that it is on */
    uint64_t opened; /* bit i: to device i, by who opens that (far.c) */
};
static_assert(DEVICE_CUDA_FAR_MAX <= 64, "a bit each");

struct device_cuda_stream {
    struct device_stream base;
    struct pl_list link;
    struct device_cuda_lane home; /* constant */
    struct device_cuda_lane *at;  /* where what comes next goes: home, or far.c's */
    uint64_t *way;      /* far.c's word of this stream; NULL: it needed none yet */
    CUdeviceptr way_at; /* where devices find it */
    uint64_t way_value; /* written there last, or to be */
    struct device_cuda_graph *graph; /* whose branch it is; NULL: of none. Constant */
    CUdeviceptr workspace;           /* cuBLAS's, made when first needed; 0: none */
    struct device_cuda_keep *keep;   /* chain.c; NULL: launches go in at once. Constant */
    /* of a branch: what it captured last that the next launch may begin beside; NULL: nothing */
    CUgraphNode last_early;
    bool last_small; /* device_cuda_small() of that */
};

static inline struct device_cuda *device_cuda_of(struct device *device)
{
    PL_CHECK(device->ops == &device_cuda_ops);
    return (struct device_cuda *)(void *)device;
}
static inline struct device_cuda_stream *device_cuda_stream_of(struct device_stream *stream)
{
    PL_CHECK(stream->device->ops == &device_cuda_ops);
    return (struct device_cuda_stream *)(void *)stream;
}

/* device.c */
/*
 * The driver's handle of the device that the rest of Plasmon knows by this ordinal
 * (device_slice_take()). ENOENT: it is another process's.
 */
plasmon_status_t device_cuda_handle(uint32_t ordinal, CUdevice *out_device) PL_MUST_CHECK;
plasmon_status_t device_cuda_enter(struct device_cuda *cuda) PL_MUST_CHECK;
/* Of this process, on whichever device. */
plasmon_status_t device_cuda_enter_context(struct device_cuda *cuda,
                                           CUcontext context) PL_MUST_CHECK;
void device_cuda_lost(
    struct device_cuda *cuda,
    const char *text); /* the context is gone: remember the first reason */
plasmon_status_t device_cuda_attribute(CUdevice device, CUdevice_attribute attribute,
                                       int *out_value);

/* Which nodes of a CUDA graph each item became (items.c). */
struct device_cuda_items {
    struct pl_vec items; /* struct device_cuda_item, by number */
    struct pl_vec nodes; /* items.c's */
};

/* graph.c, items.c */
struct device_cuda_exec {
    struct device_exec base;
    CUgraphExec exec;
    /*
     * what it was made from, which is what nodes are named by; NULL: it cannot be changed in parts
     */
    CUgraph graph;
    struct device_cuda_items items;
    uint64_t early_pattern; /* of the recording that it was made from */
};

struct device_cuda_graph {
    struct device_graph base;
    struct pl_vec events;           /* CUevent, by mark; made when first needed */
    struct device_cuda_items items; /* while it records */
    uint32_t item;                  /* the one at hand; UINT32_MAX: none */
    uint64_t early_pattern;         /* a number for which of its launches may begin early */
    size_t nodes_before;            /* in the CUDA graph when the item began */
    struct device_cuda_exec *change; /* while that is changed: else NULL */
    uint32_t changed;                /* launches of the item so far */
    plasmon_status_t change_status;
};

static inline struct device_cuda_graph *device_cuda_graph_of(struct device_graph *graph)
{
    PL_CHECK(graph->device->ops == &device_cuda_ops);
    return (struct device_cuda_graph *)(void *)graph;
}
static inline struct device_cuda_exec *device_cuda_exec_of(struct device_exec *exec)
{
    PL_CHECK(exec->device->ops == &device_cuda_ops);
    return (struct device_cuda_exec *)(void *)exec;
}

/* items.c */
void device_cuda_items_init(struct device_cuda_items *items);
void device_cuda_items_finish(struct device_cuda_items *items);
/* The recording is complete: nothing more belongs to the last item. */
plasmon_status_t device_cuda_items_end(struct device_cuda_graph *graph);
plasmon_status_t device_cuda_graph_item(struct device_graph *graph, uint32_t item);
plasmon_status_t device_cuda_graph_change_begin(struct device_graph *graph,
                                                struct device_exec *exec,
                                                struct pl_err *err);
plasmon_status_t device_cuda_graph_change_end(struct device_graph *graph);
/* A launch on a branch: recorded, or put in the place of one that was. */
plasmon_status_t device_cuda_graph_launch(struct device_cuda_stream *stream,
                                          CUfunction function,
                                          const struct device_launch_shape *shape,
                                          void **params);

/* graph.c */
/* Throw away what the branches captured; they are ready for another begin. */
void device_cuda_graph_abandon(struct device_graph *graph);
plasmon_status_t device_cuda_graph_create(struct device *device, uint32_t branches,
                                          struct device_graph **out_graph,
                                          struct pl_err *err);
void device_cuda_graph_destroy(struct device_graph *graph);
plasmon_status_t device_cuda_graph_begin(struct device_graph *graph, struct pl_err *err);
plasmon_status_t device_cuda_graph_mark(struct device_graph *graph, uint32_t branch,
                                        uint32_t mark);
plasmon_status_t device_cuda_graph_after(struct device_graph *graph, uint32_t branch,
                                         uint32_t mark);
plasmon_status_t device_cuda_graph_end(struct device_graph *graph, bool keep,
                                       struct device_exec **io_exec, struct pl_err *err);
plasmon_status_t device_cuda_exec_launch(struct device_stream *stream,
                                         struct device_exec *exec, uint64_t tag);
void device_cuda_exec_destroy(struct device_exec *exec);

/* far.c */
plasmon_status_t device_cuda_far_init(struct device_cuda *cuda);
void device_cuda_far_finish(struct device_cuda *cuda); /* when there are no streams */
/*
 * Of context `in`, which is current; with nothing beside its stream. cuda: whose loss an error may
 * mean; NULL: nobody's.
 */
plasmon_status_t device_cuda_lane_create(struct device_cuda *cuda, CUcontext in,
                                         uint32_t ordinal, int priority,
                                         struct device_cuda_lane *out);
void device_cuda_lane_destroy(struct device_cuda *cuda,
                              const struct device_cuda_lane *lane);
/*
 * For what any context can do: words, events of its own, engines' copies. Its context is current
 * then, and *out_on the stream there. It is home from now on if that device is lost, or may not
 * reach all that is mapped.
 */
plasmon_status_t device_cuda_here(struct device_cuda_stream *stream, CUstream *out_on);
/*
 * For what says that all the stream holds is over: words, events. The device's own context is
 * current then.
 */
plasmon_status_t device_cuda_tail(struct device_cuda_stream *stream, CUstream *out_on);
void device_cuda_far_home(struct device_cuda_stream *stream);
/* Of one that is away: its word has this value when what it holds is over. */
plasmon_status_t device_cuda_far_mark(struct device_cuda_stream *stream,
                                      uint64_t *out_value);
/* `stream` comes behind what `other` holds, which is in another context. */
plasmon_status_t device_cuda_far_join(struct device_cuda_stream *stream,
                                      struct device_cuda_stream *other);
void device_cuda_far_leave(struct device_cuda_stream *stream); /* it ends */
void device_cuda_engines_open(struct device *device, uint32_t ordinal);
enum device_engines device_cuda_engines_state(struct device *device, uint32_t ordinal);
plasmon_status_t device_cuda_source(struct device_stream *stream, uint32_t ordinal);
bool device_cuda_words_late(const struct device_stream *stream);
plasmon_status_t device_cuda_settle(struct device_stream *stream);
uint32_t device_cuda_engines(const struct device_stream *stream);
/* The first answer of a stream there that is neither done nor running. Under `lock`. */
CUresult device_cuda_far_query_locked(struct device_cuda *cuda);
/* This map is new: whoever is far may reach it. Under maps_lock. */
void device_cuda_far_open_map(struct device_cuda *cuda, const struct device_cuda_map *map);

/* chain.c */
plasmon_status_t device_cuda_keep_create(struct device_cuda_stream *stream);
/* what it keeps is dropped */
void device_cuda_keep_destroy(struct device_cuda_stream *stream);
void device_cuda_chains_forget(struct device_cuda *cuda); /* before code is unloaded */
void device_cuda_stream_flush(struct device_stream *stream);
plasmon_status_t device_cuda_launch_soon(struct device_stream *stream, void *function,
                                         const struct device_launch_shape *shape,
                                         const struct device_params *params, uint64_t tag);
bool device_cuda_launch_failure(struct device *device, uint64_t *out_tag,
                                struct pl_err *out_err);
/* Another device makes its copies at the moment (far.c). */
static inline bool device_cuda_is_away(const struct device_cuda_stream *stream)
{
    return stream->at != &stream->home;
}
/*
 * To put something into it that this device does, or to look at it: behind what it keeps, and
 * behind what another device copies for it.
 */
static inline CUstream device_cuda_stream_on(struct device_cuda_stream *stream)
{
    if (stream->keep != NULL) {
        device_cuda_stream_flush(&stream->base);
    }
    if (device_cuda_is_away(stream)) {
        device_cuda_far_home(stream);
    }
    return stream->home.stream;
}

/* memory.c */
CUmemAllocationProp device_cuda_chunk_properties(CUdevice device);
plasmon_status_t device_cuda_range_reserve(struct device *device, uint64_t bytes,
                                           struct device_ptr *out_base);
void device_cuda_range_release(struct device *device, struct device_ptr base,
                               uint64_t bytes);
plasmon_status_t device_cuda_chunk_create(struct device *device, uint64_t bytes,
                                          int *out_fd);
plasmon_status_t device_cuda_chunk_map(struct device *device, int fd, uint64_t bytes,
                                       uint32_t owner_ordinal, bool writable,
                                       struct device_ptr where);
void device_cuda_chunk_unmap(struct device *device, struct device_ptr where,
                             uint64_t bytes);
bool device_cuda_can_peer(struct device *device, uint32_t peer_ordinal);
plasmon_status_t device_cuda_host_register(struct device *device, void *ptr,
                                           uint64_t offset, uint64_t bytes);
void device_cuda_host_unregister(struct device *device, void *ptr);
void device_cuda_host_finish(struct device_cuda *cuda); /* unregister what is left */
/* EINVAL: [ptr, ptr + bytes) is not inside registered memory. */
plasmon_status_t device_cuda_host_address(struct device_cuda *cuda, const void *ptr,
                                          uint64_t bytes, CUdeviceptr *out_address);

/* stream.c */
plasmon_status_t device_cuda_stream_create(struct device *device, unsigned flags,
                                           struct device_stream **out_stream);
void device_cuda_stream_destroy(struct device_stream *stream);
plasmon_status_t device_cuda_stream_sync(struct device_stream *stream, struct pl_err *err);
/*
 * What is put into `on` from now on comes behind what `other` holds now, by the join event of a
 * stream that nobody else uses meanwhile.
 */
plasmon_status_t device_cuda_go_behind(struct device_cuda_stream *stream, CUstream on,
                                       CUstream other);
plasmon_status_t device_cuda_copy(struct device_stream *stream, enum device_copy_kind kind,
                                  uint64_t dst, uint64_t src, uint64_t bytes);
plasmon_status_t device_cuda_fill8(struct device_stream *stream, struct device_ptr dst,
                                   uint8_t value, uint64_t bytes);
plasmon_status_t device_cuda_signal(struct device_stream *stream, uint64_t *word,
                                    uint64_t value);
plasmon_status_t device_cuda_wait(struct device_stream *stream, uint64_t *word,
                                  uint64_t value);
plasmon_status_t device_cuda_words(struct device_stream *stream,
                                   const struct device_word_step *steps, uint32_t count);
plasmon_status_t device_cuda_notify(struct device_stream *stream, int eventfd);
plasmon_status_t device_cuda_join(struct device_stream *stream,
                                  struct device_stream *other);
plasmon_status_t device_cuda_event_create(struct device *device, bool timed,
                                          struct device_event **out_event);
void device_cuda_event_destroy(struct device_event *event);
plasmon_status_t device_cuda_event_record(struct device_event *event,
                                          struct device_stream *stream);
plasmon_status_t device_cuda_event_elapsed_ns(struct device_event *begin,
                                              struct device_event *end, uint64_t *out_ns);
bool device_cuda_event_done(struct device_event *event);
plasmon_status_t device_cuda_event_behind(struct device_stream *stream,
                                          struct device_event *event);

/* copy.c */
plasmon_status_t device_cuda_copy_init(struct device_cuda *cuda, struct pl_err *err);
void device_cuda_copy_finish(struct device_cuda *cuda);
/* Without gaps, with the context current; more than 0 bytes. */
plasmon_status_t device_cuda_copy_run(struct device_stream *stream, uint64_t dst,
                                      uint64_t src, uint64_t bytes);
plasmon_status_t device_cuda_copy_planned(struct device_stream *stream,
                                          const struct device_copy_plan *plan,
                                          struct device_ptr dst, struct device_ptr src);

/* blas.c */
void device_cuda_blas_preload(void); /* it stays loaded */
/* Sets blas or blas_error. later: it is pending until device_cuda_blas_start(). */
void device_cuda_blas_init(struct device_cuda *cuda, bool later);
bool device_cuda_blas_pending(const struct device *device);
void device_cuda_blas_start(struct device *device);
void device_cuda_blas_finish(struct device_cuda *cuda);
void *device_cuda_blas_handle(struct device *device, struct pl_err *why);
void *device_cuda_blas_on(struct device_stream *stream, struct pl_err *why);
void *device_cuda_blas_symbol(struct device *device, const char *name);

/* comm.c */
uint32_t device_cuda_comm_version(struct device *device, struct pl_err *why);
plasmon_status_t device_cuda_comm_id(struct device *device,
                                     const struct device_comm_config *config,
                                     uint8_t *out_id, struct pl_err *err);
plasmon_status_t device_cuda_comm_open(struct device *device,
                                       const struct device_comm_config *config,
                                       const uint8_t *id, struct device_stream *stream,
                                       struct device_comm **out_comm, struct pl_err *err);
plasmon_status_t device_cuda_comm_poll(struct device_comm *comm, struct pl_err *err);
plasmon_status_t device_cuda_comm_move(struct device_comm *comm,
                                       struct device_stream *stream, struct device_ptr ptr,
                                       uint64_t bytes, struct pl_err *err);
plasmon_status_t device_cuda_comm_join(struct device_comm *comm,
                                       struct device_stream *stream,
                                       const struct device_comm_collective *reduction,
                                       struct pl_err *err);
plasmon_status_t device_cuda_comm_check(struct device_comm *comm, struct pl_err *err);
void device_cuda_comm_close(struct device_comm *comm);
void device_cuda_comm_cut(struct device_comm *comm);
void device_cuda_comm_abort(struct device_comm *comm);

/* module.c */
plasmon_status_t device_cuda_module_load(struct device *device, const void *image,
                                         size_t image_bytes,
                                         struct device_module **out_module,
                                         struct pl_err *err);
void device_cuda_module_unload(struct device_module *module);
plasmon_status_t device_cuda_module_function(struct device_module *module, const char *name,
                                             void **out_function, struct pl_err *err);
plasmon_status_t device_cuda_function_limits(struct device_module *module, void *function,
                                             struct device_function_limits *out_limits,
                                             struct pl_err *err);
plasmon_status_t device_cuda_function_block(struct device_module *module, void *function,
                                            uint32_t shared_bytes, uint32_t *out_block,
                                            struct pl_err *err);
plasmon_status_t device_cuda_launch(struct device_stream *stream, void *function,
                                    const struct device_launch_shape *shape, void **params);
/*
 * Does it leave most of the device to others while it waits? What is small may wait beside
 * anything: a large one does not let it begin before its last block has ended. What is large must
 * not wait beside what is small, for its blocks would take what room there is.
 */
static inline bool device_cuda_small(const struct device_launch_shape *shape)
{
    uint64_t threads = (uint64_t)shape->block[0] * shape->block[1] * shape->block[2];
    uint64_t blocks  = (uint64_t)shape->grid[1] * shape->grid[2];

    return blocks <= DEVICE_EARLY_THREADS_MAX &&
           shape->grid[0] * blocks * threads <= DEVICE_EARLY_THREADS_MAX;
}
/* Two that have DEVICE_EARLY_MARK and follow each other. */
static inline bool device_cuda_beside(bool first_small, bool then_small)
{
    return then_small || !first_small;
}
/* As the node of a graph. params is lent to it. */
static inline CUDA_KERNEL_NODE_PARAMS
device_cuda_kernel_node(CUfunction function, const struct device_launch_shape *shape,
                        void **params)
{
    return (CUDA_KERNEL_NODE_PARAMS){.func           = function,
                                     .gridDimX       = shape->grid[0],
                                     .gridDimY       = shape->grid[1],
                                     .gridDimZ       = shape->grid[2],
                                     .blockDimX      = shape->block[0],
                                     .blockDimY      = shape->block[1],
                                     .blockDimZ      = shape->block[2],
                                     .sharedMemBytes = shape->shared_bytes,
                                     .kernelParams   = params};
}
/*
 * early: it may begin before what is in front of it in the stream has ended; both must be kernels
 * with DEVICE_EARLY_MARK.
 */
plasmon_status_t device_cuda_launch_early(struct device_cuda *cuda, CUstream stream,
                                          CUfunction function,
                                          const struct device_launch_shape *shape,
                                          void **params, bool early);

#endif
