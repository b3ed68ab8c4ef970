/*
 * What the implementations of a device share: the ops table, and the structs that every device,
 * stream, event and module begins with. An implementation embeds the base as its first member and
 * gets its own struct back with a downcast that asserts the table: `assert(device->ops ==
 * &device_cpu_ops)`.
 */
#ifndef DEVICE_DEVICE_INT_H
#define DEVICE_DEVICE_INT_H

#include <stdatomic.h>

#include "base/base.h"
#include "device/copy_plan.h"
#include "device/device.h"

/* All are set except where it says "may be NULL". Arguments were checked by device.c. */
struct device_ops {
    enum device_kind kind;

    uint32_t (*count)(struct pl_err *why);
    void (*preload)(void); /* may be NULL */
    plasmon_status_t (*probe)(uint32_t ordinal, struct device_info *out_info,
                              struct pl_err *err);
    plasmon_status_t (*open)(uint32_t ordinal, const struct device_config *config,
                             struct device **out_device, struct pl_err *err);
    void (*close)(struct device *device);

    plasmon_status_t (*range_reserve)(struct device *device, uint64_t bytes,
                                      struct device_ptr *out_base);
    void (*range_release)(struct device *device, struct device_ptr base, uint64_t bytes);
    plasmon_status_t (*chunk_create)(struct device *device, uint64_t bytes, int *out_fd);
    plasmon_status_t (*chunk_map)(struct device *device, int fd, uint64_t bytes,
                                  uint32_t owner_ordinal, bool writable,
                                  struct device_ptr where);
    void (*chunk_unmap)(struct device *device, struct device_ptr where, uint64_t bytes);
    bool (*can_peer)(struct device *device, uint32_t peer_ordinal);
    /* The next piece of what begins at ptr (offset 0: the first one); host_unregister ends all of them. */
    plasmon_status_t (*host_register)(struct device *device, void *ptr, uint64_t offset,
                                      uint64_t bytes);
    void (*host_unregister)(struct device *device, void *ptr);
    plasmon_status_t (*host_address)(struct device *device, const void *ptr, uint64_t bytes,
                                     struct device_ptr *out_address);
    void *(*ptr_host)(struct device_ptr ptr);

    plasmon_status_t (*stream_create)(struct device *device, unsigned flags,
                                      struct device_stream **out_stream);
    void (*stream_destroy)(struct device_stream *stream);
    void (*stream_flush)(struct device_stream *stream); /* NULL: nothing is kept */
    plasmon_status_t (*stream_sync)(struct device_stream *stream, struct pl_err *err);
    plasmon_status_t (*health)(struct device *device, struct pl_err *err);

    plasmon_status_t (*copy)(struct device_stream *stream, enum device_copy_kind kind,
                             uint64_t dst, uint64_t src, uint64_t bytes);
    plasmon_status_t (*copy_planned)(struct device_stream *stream,
                                     const struct device_copy_plan *plan,
                                     struct device_ptr dst, struct device_ptr src);
    plasmon_status_t (*fill8)(struct device_stream *stream, struct device_ptr dst,
                              uint8_t value, uint64_t bytes);
    plasmon_status_t (*signal)(struct device_stream *stream, uint64_t *word,
                               uint64_t value);
    plasmon_status_t (*wait)(struct device_stream *stream, uint64_t *word, uint64_t value);
    plasmon_status_t (*words)(struct device_stream *stream,
                              const struct device_word_step *steps,
                              uint32_t count); /* NULL: they go in one by one */
    plasmon_status_t (*notify)(struct device_stream *stream, int eventfd);
    /* All or, where there are none of other devices, none. */
    void (*engines_open)(struct device *device, uint32_t ordinal);
    enum device_engines (*engines_state)(struct device *device, uint32_t ordinal);
    plasmon_status_t (*source)(struct device_stream *stream, uint32_t ordinal);
    bool (*words_late)(const struct device_stream *stream);
    plasmon_status_t (*settle)(struct device_stream *stream);
    uint32_t (*engines)(const struct device_stream *stream);
    plasmon_status_t (*join)(struct device_stream *stream, struct device_stream *other);

    plasmon_status_t (*event_create)(struct device *device, bool timed,
                                     struct device_event **out_event);
    void (*event_destroy)(struct device_event *event);
    plasmon_status_t (*event_record)(struct device_event *event,
                                     struct device_stream *stream);
    plasmon_status_t (*event_elapsed_ns)(struct device_event *begin,
                                         struct device_event *end, uint64_t *out_ns);
    bool (*event_done)(struct device_event *event);
    plasmon_status_t (*event_behind)(struct device_stream *stream,
                                     struct device_event *event);
    bool (*event_host_ns)(struct device_event *event,
                          uint64_t *out_ns); /* NULL: a clock of its own */

    bool (*launch_failure)(struct device *device, uint64_t *out_tag,
                           struct pl_err *out_err);

    /* CPU devices only; may be NULL. */
    plasmon_status_t (*cpu_launch)(struct device_stream *stream, device_cpu_fn fn,
                                   const void *args, size_t args_bytes, uint64_t tag);

    plasmon_status_t (*graph_create)(struct device *device, uint32_t branches,
                                     struct device_graph **out_graph, struct pl_err *err);
    void (*graph_destroy)(struct device_graph *graph);
    plasmon_status_t (*graph_begin)(struct device_graph *graph, struct pl_err *err);
    plasmon_status_t (*graph_mark)(struct device_graph *graph, uint32_t branch,
                                   uint32_t mark);
    plasmon_status_t (*graph_after)(struct device_graph *graph, uint32_t branch,
                                    uint32_t mark);
    plasmon_status_t (*graph_end)(struct device_graph *graph, bool keep,
                                  struct device_exec **io_exec, struct pl_err *err);
    /* All three or none. */
    plasmon_status_t (*graph_item)(struct device_graph *graph, uint32_t item);
    plasmon_status_t (*graph_change_begin)(struct device_graph *graph,
                                           struct device_exec *exec, struct pl_err *err);
    plasmon_status_t (*graph_change_end)(struct device_graph *graph);
    plasmon_status_t (*exec_launch)(struct device_stream *stream, struct device_exec *exec,
                                    uint64_t tag);
    void (*exec_destroy)(struct device_exec *exec);

    uint32_t (*comm_version)(struct device *device, struct pl_err *why);
    plasmon_status_t (*comm_id)(struct device *device,
                                const struct device_comm_config *config, uint8_t *out_id,
                                struct pl_err *err);
    plasmon_status_t (*comm_open)(struct device *device,
                                  const struct device_comm_config *config,
                                  const uint8_t *id, struct device_stream *stream,
                                  struct device_comm **out_comm, struct pl_err *err);
    plasmon_status_t (*comm_poll)(struct device_comm *comm, struct pl_err *err);
    plasmon_status_t (*comm_move)(struct device_comm *comm, struct device_stream *stream,
                                  struct device_ptr ptr, uint64_t bytes,
                                  struct pl_err *err);
    plasmon_status_t (*comm_join)(struct device_comm *comm, struct device_stream *stream,
                                  const struct device_comm_collective *reduction,
                                  struct pl_err *err);
    plasmon_status_t (*comm_check)(struct device_comm *comm, struct pl_err *err);
    void (*comm_close)(struct device_comm *comm);
    void (*comm_cut)(struct device_comm *comm);
    void (*comm_abort)(struct device_comm *comm);

    /* CUDA devices only; may be NULL. */
    plasmon_status_t (*module_load)(struct device *device, const void *image,
                                    size_t image_bytes, struct device_module **out_module,
                                    struct pl_err *err);
    void (*module_unload)(struct device_module *module);
    plasmon_status_t (*module_function)(struct device_module *module, const char *name,
                                        void **out_function, struct pl_err *err);
    plasmon_status_t (*function_limits)(struct device_module *module, void *function,
                                        struct device_function_limits *out_limits,
                                        struct pl_err *err);
    plasmon_status_t (*function_block)(struct device_module *module, void *function,
                                       uint32_t shared_bytes, uint32_t *out_block,
                                       struct pl_err *err);
    plasmon_status_t (*launch)(struct device_stream *stream, void *function,
                               const struct device_launch_shape *shape, void **params);
    plasmon_status_t (*launch_soon)(struct device_stream *stream, void *function,
                                    const struct device_launch_shape *shape,
                                    const struct device_params *params, uint64_t tag);
    plasmon_status_t (*enter)(struct device *device);    /* NULL: nothing to do */
    bool (*cublas_pending)(const struct device *device); /* may be NULL, like the next */
    void (*cublas_start)(struct device *device);
    void *(*cublas)(struct device *device, struct pl_err *why);
    void *(*cublas_on)(struct device_stream *stream, struct pl_err *why);
    void *(*cublas_symbol)(struct device *device, const char *name);
    void *(*native_stream)(struct device_stream *stream);
};

extern const struct device_ops device_cpu_ops;
#ifdef PLASMON_HAVE_CUDA
extern const struct device_ops device_cuda_ops;
#endif

struct device {
    const struct device_ops *ops;
    struct device_info info; /* constant after open */
};
struct device_stream {
    struct device *device;
    bool records;                   /* a graph's branch; constant */
    struct device_graph *branch_of; /* that graph, on GPUs; constant */
};
struct device_event {
    struct device *device;
    bool timed; /* constant */
};
struct device_module {
    struct device *device;
};
struct device_graph {
    struct device *device;
    uint32_t branch_count;
    struct device_stream *branches[DEVICE_BRANCH_MAX];
    bool recording;
    /* where launches of what is recorded write their tag; 0: nowhere */
    struct device_ptr tag_at;
    bool tagged; /* something in the recording looks there */
};
struct device_exec {
    struct device *device;
    struct device_ptr tag_at; /* 0: nothing in it looks */
};
struct device_comm {
    struct device *device;
    uint32_t rank;
    uint32_t ranks;
    uint64_t bytes; /* of device memory; constant once it is open */
};

/* Time in the driver: off, it costs one load a call. Relaxed: it guards no data. */
extern _Atomic bool device_driver_time_on;
extern uint64_t device_driver_time_clock_ns; /* a read of the clock takes so long */
extern _Thread_local uint64_t device_driver_time_total_ns;

/* Of device_slice_take(); -1: none. */
int device_slice_taken(void);

#endif
