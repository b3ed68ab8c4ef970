/*
 * The public calls: check the arguments, find the implementation, pass on. No state of its own but
 * the switch for driver times.
 *
 * Misuse by our own code (a call of the other kind of device, streams of two devices joined) is
 * asserted; what depends on the machine or on a peer gives a status.
 */
#include "device/device.h"

#include "base/clock.h"
#include "base/fault.h"
#include "device/device_int.h"

#include <assert.h>

_Atomic bool device_driver_time_on;
uint64_t device_driver_time_clock_ns;
_Thread_local uint64_t device_driver_time_total_ns;

static const struct device_ops *ops_of_kind(enum device_kind kind, struct pl_err *err)
{
    switch (kind) {
    case DEVICE_CPU:
        return &device_cpu_ops;
    case DEVICE_CUDA:
#ifdef PLASMON_HAVE_CUDA
        return &device_cuda_ops;
#else
        (void)pl_err_set(err, PLASMON_ENOTSUP,
                         "this build has no CUDA: it was made without nvcc, or with "
                         "PLASMON_CUDA=OFF");
        return NULL;
#endif
    }
    (void)pl_err_set(err, PLASMON_EINVAL, "device kind %d does not exist", (int)kind);
    return NULL;
}

uint32_t device_count(enum device_kind kind, struct pl_err *why)
{
    const struct device_ops *ops = ops_of_kind(kind, why);

    return ops != NULL ? ops->count(why) : 0;
}

void device_preload(enum device_kind kind)
{
    const struct device_ops *ops = ops_of_kind(kind, NULL);

    if (ops != NULL && ops->count(NULL) > 0 && ops->preload != NULL) {
        ops->preload();
    }
}

/* The ops of that kind when the ordinal exists; otherwise NULL and why. */
static const struct device_ops *ops_of_ordinal(enum device_kind kind, uint32_t ordinal,
                                               struct pl_err *err)
{
    const struct device_ops *ops = ops_of_kind(kind, err);
    uint32_t count;

    if (ops == NULL) {
        return NULL;
    }
    count = ops->count(err);
    if (count == 0) {
        return NULL; /* err says what is missing */
    }
    if (kind == DEVICE_CUDA && device_slice_taken() >= 0 &&
        ordinal == (uint32_t)device_slice_taken()) {
        return ops; /* whatever its number: the one that this process is for */
    }
    if (ordinal >= count) {
        (void)pl_err_set(err, PLASMON_ENOENT, "%s device %u does not exist: there are %u",
                         kind == DEVICE_CPU ? "CPU" : "CUDA", ordinal, count);
        return NULL;
    }
    return ops;
}

plasmon_status_t device_probe(enum device_kind kind, uint32_t ordinal,
                              struct device_info *out_info, struct pl_err *err)
{
    struct pl_err why            = {.status = PLASMON_ENOTSUP};
    const struct device_ops *ops = ops_of_ordinal(kind, ordinal, &why);

    if (ops == NULL) {
        return pl_err_set(err, why.status, "%s", why.text);
    }
    return ops->probe(ordinal, out_info, err);
}

plasmon_status_t device_open(enum device_kind kind, uint32_t ordinal,
                             const struct device_config *config, struct device **out_device,
                             struct pl_err *err)
{
    static const struct device_config defaults;
    struct pl_err why            = {.status = PLASMON_ENOTSUP};
    const struct device_ops *ops = ops_of_ordinal(kind, ordinal, &why);

    if (ops == NULL) {
        return pl_err_set(err, why.status, "%s", why.text);
    }
    return ops->open(ordinal, config != NULL ? config : &defaults, out_device, err);
}

void device_close(struct device *device)
{
    if (device != NULL) {
        device->ops->close(device);
    }
}

const struct device_info *device_get_info(const struct device *device)
{
    return &device->info;
}

/* ------------------------------------------------------------------------------- memory */

static bool granular(const struct device *device, uint64_t value)
{
    return value % device->info.chunk_granularity == 0;
}

plasmon_status_t device_range_reserve(struct device *device, uint64_t bytes,
                                      struct device_ptr *out_base)
{
    if (bytes == 0 || !granular(device, bytes)) {
        return PLASMON_EINVAL;
    }
    if (pl_fault_point("device.range")) {
        return PLASMON_ENOMEM;
    }
    return device->ops->range_reserve(device, bytes, out_base);
}

void device_range_release(struct device *device, struct device_ptr base, uint64_t bytes)
{
    assert(bytes > 0 && granular(device, bytes));
    device->ops->range_release(device, base, bytes);
}

plasmon_status_t device_chunk_create(struct device *device, uint64_t bytes, int *out_fd)
{
    if (bytes == 0 || !granular(device, bytes)) {
        return PLASMON_EINVAL;
    }
    if (pl_fault_point("device.chunk")) {
        return PLASMON_EDEVMEM;
    }
    return device->ops->chunk_create(device, bytes, out_fd);
}

plasmon_status_t device_chunk_map(struct device *device, int fd, uint64_t bytes,
                                  uint32_t owner_ordinal, bool writable,
                                  struct device_ptr where)
{
    if (fd < 0 || bytes == 0 || !granular(device, bytes) || !granular(device, where.addr)) {
        return PLASMON_EINVAL;
    }
    if (pl_fault_point("device.map")) {
        return PLASMON_EDEVICE;
    }
    return device->ops->chunk_map(device, fd, bytes, owner_ordinal, writable, where);
}

void device_chunk_unmap(struct device *device, struct device_ptr where, uint64_t bytes)
{
    assert(bytes > 0 && granular(device, bytes));
    device->ops->chunk_unmap(device, where, bytes);
}

bool device_can_peer(struct device *device, uint32_t peer_ordinal)
{
    return peer_ordinal == device->info.ordinal ||
           device->ops->can_peer(device, peer_ordinal);
}

/* out_done: so much of it is registered. */
static plasmon_status_t pieces_register(struct device *device, void *ptr, uint64_t bytes,
                                        device_host_piece_fn piece, void *user,
                                        uint64_t *out_done)
{
    plasmon_status_t status = PLASMON_OK;
    uint64_t done           = 0;

    while (status == PLASMON_OK && done < bytes) {
        uint64_t run = device_host_run(done, bytes - done);

        status = pl_fault_point("device.host_piece")
                     ? PLASMON_ENOMEM
                     : device->ops->host_register(device, ptr, done, run);
        if (status == PLASMON_OK) {
            done += run;
            piece(user, done);
        }
    }
    *out_done = done;
    return status;
}

plasmon_status_t device_host_register_told(struct device *device, void *ptr, uint64_t bytes,
                                           device_host_piece_fn piece, void *user)
{
    uint64_t done;

    if (ptr == NULL || bytes == 0) {
        return PLASMON_EINVAL;
    }
    return pieces_register(device, ptr, bytes, piece, user, &done);
}

static void piece_untold(void *user, uint64_t bytes)
{
    (void)user;
    (void)bytes;
}

plasmon_status_t device_host_register(struct device *device, void *ptr, uint64_t bytes)
{
    uint64_t done = 0;
    plasmon_status_t status;

    if (ptr == NULL || bytes == 0) {
        return PLASMON_EINVAL;
    }
    status = pieces_register(device, ptr, bytes, piece_untold, NULL, &done);
    if (status != PLASMON_OK && done > 0) {
        device->ops->host_unregister(device, ptr);
    }
    return status;
}

void device_host_unregister(struct device *device, void *ptr)
{
    device->ops->host_unregister(device, ptr);
}

plasmon_status_t device_host_address(struct device *device, const void *ptr, uint64_t bytes,
                                     struct device_ptr *out_address)
{
    return device->ops->host_address(device, ptr, bytes, out_address);
}

void *device_ptr_host(struct device *device, struct device_ptr ptr)
{
    return device->ops->ptr_host(ptr);
}

/* ------------------------------------------------------------------------------ streams */

plasmon_status_t device_stream_create(struct device *device, unsigned flags,
                                      struct device_stream **out_stream)
{
    assert((flags & ~(unsigned)(DEVICE_STREAM_HIGH_PRIORITY | DEVICE_STREAM_LOW_PRIORITY |
                                DEVICE_STREAM_KEEPS | DEVICE_STREAM_COPIES)) == 0);
    assert((flags & DEVICE_STREAM_HIGH_PRIORITY) == 0 ||
           (flags & DEVICE_STREAM_LOW_PRIORITY) == 0);
    return device->ops->stream_create(device, flags, out_stream);
}

void device_stream_destroy(struct device_stream *stream)
{
    if (stream != NULL) {
        stream->device->ops->stream_destroy(stream);
    }
}

void device_stream_flush(struct device_stream *stream)
{
    if (stream->device->ops->stream_flush != NULL) {
        stream->device->ops->stream_flush(stream);
    }
}

plasmon_status_t device_stream_sync(struct device_stream *stream, struct pl_err *err)
{
    return stream->device->ops->stream_sync(stream, err);
}

plasmon_status_t device_health(struct device *device, struct pl_err *err)
{
    return device->ops->health(device, err);
}

plasmon_status_t device_copy(struct device_stream *stream, enum device_copy_kind kind,
                             uint64_t dst, uint64_t src, uint64_t bytes)
{
    return bytes > 0 ? stream->device->ops->copy(stream, kind, dst, src, bytes)
                     : PLASMON_OK;
}

plasmon_status_t device_copy_box(struct device_stream *stream, const struct pl_box *box,
                                 uint32_t element_bytes, struct device_ptr dst,
                                 const struct pl_box *dst_frame, struct device_ptr src,
                                 const struct pl_box *src_frame)
{
    struct device_copy_plan plan;

    device_copy_plan_init(&plan, box, element_bytes, dst_frame, src_frame);
    if (plan.loop_count == 0) {
        return stream->device->ops->copy(stream, DEVICE_COPY_DEVICE_TO_DEVICE,
                                         dst.addr + plan.dst_offset,
                                         src.addr + plan.src_offset, plan.run_bytes);
    }
    return stream->device->ops->copy_planned(stream, &plan, dst, src);
}

plasmon_status_t device_fill8(struct device_stream *stream, struct device_ptr dst,
                              uint8_t value, uint64_t bytes)
{
    return bytes > 0 ? stream->device->ops->fill8(stream, dst, value, bytes) : PLASMON_OK;
}

plasmon_status_t device_signal(struct device_stream *stream, uint64_t *word, uint64_t value)
{
    assert((uintptr_t)word % sizeof(*word) == 0);
    return stream->device->ops->signal(stream, word, value);
}

plasmon_status_t device_wait(struct device_stream *stream, uint64_t *word, uint64_t value)
{
    assert((uintptr_t)word % sizeof(*word) == 0);
    return stream->device->ops->wait(stream, word, value);
}

plasmon_status_t device_words(struct device_stream *stream,
                              const struct device_word_step *steps, uint32_t count)
{
    plasmon_status_t status = PLASMON_OK;

    assert(count <= DEVICE_WORDS_MAX);
    if (stream->device->ops->words != NULL && count > 1) {
        return stream->device->ops->words(stream, steps, count);
    }
    for (uint32_t i = 0; i < count && status == PLASMON_OK; i++) {
        status = steps[i].waits ? device_wait(stream, steps[i].word, steps[i].value)
                                : device_signal(stream, steps[i].word, steps[i].value);
    }
    return status;
}

plasmon_status_t device_notify(struct device_stream *stream, int eventfd)
{
    return stream->device->ops->notify(stream, eventfd);
}

void device_engines_open(struct device *device, uint32_t ordinal)
{
    if (device->ops->engines_open != NULL && ordinal != device->info.ordinal) {
        device->ops->engines_open(device, ordinal);
    }
}

enum device_engines device_engines_state(struct device *device, uint32_t ordinal)
{
    return device->ops->engines_state != NULL && ordinal != device->info.ordinal
               ? device->ops->engines_state(device, ordinal)
               : DEVICE_ENGINES_REFUSED;
}

plasmon_status_t device_stream_source(struct device_stream *stream, uint32_t ordinal)
{
    return stream->device->ops->source != NULL
               ? stream->device->ops->source(stream, ordinal)
               : PLASMON_OK;
}

bool device_stream_words_late(const struct device_stream *stream)
{
    return stream->device->ops->words_late != NULL &&
           stream->device->ops->words_late(stream);
}

plasmon_status_t device_stream_settle(struct device_stream *stream)
{
    return stream->device->ops->settle != NULL ? stream->device->ops->settle(stream)
                                               : PLASMON_OK;
}

uint32_t device_stream_engines(const struct device_stream *stream)
{
    return stream->device->ops->engines != NULL ? stream->device->ops->engines(stream)
                                                : stream->device->info.ordinal;
}

plasmon_status_t device_stream_join(struct device_stream *stream,
                                    struct device_stream *other)
{
    assert(stream->device == other->device);
    return stream != other ? stream->device->ops->join(stream, other) : PLASMON_OK;
}

struct device *device_of_stream(struct device_stream *stream)
{
    return stream->device;
}

/* ------------------------------------------------------------------------------- events */

plasmon_status_t device_event_create(struct device *device, bool timed,
                                     struct device_event **out_event)
{
    plasmon_status_t status = device->ops->event_create(device, timed, out_event);

    if (status == PLASMON_OK) {
        (*out_event)->timed = timed;
    }
    return status;
}

void device_event_destroy(struct device_event *event)
{
    if (event != NULL) {
        event->device->ops->event_destroy(event);
    }
}

plasmon_status_t device_event_record(struct device_event *event,
                                     struct device_stream *stream)
{
    assert(event->device == stream->device);
    return event->device->ops->event_record(event, stream);
}

plasmon_status_t device_event_elapsed_ns(struct device_event *begin,
                                         struct device_event *end, uint64_t *out_ns)
{
    assert(begin->device == end->device);
    if (!begin->timed || !end->timed) {
        return PLASMON_EINVAL;
    }
    return begin->device->ops->event_elapsed_ns(begin, end, out_ns);
}

plasmon_status_t device_stream_behind(struct device_stream *stream,
                                      struct device_event *event)
{
    assert(event->device == stream->device);
    return event->device->ops->event_behind(stream, event);
}

bool device_event_done(struct device_event *event)
{
    return event->device->ops->event_done(event);
}

bool device_event_host_ns(struct device_event *event, uint64_t *out_ns)
{
    return event->device->ops->event_host_ns != NULL &&
           event->device->ops->event_host_ns(event, out_ns);
}

/* ----------------------------------------------------------------------------- launches */

plasmon_status_t device_cpu_launch(struct device_stream *stream, device_cpu_fn fn,
                                   const void *args, size_t args_bytes, uint64_t tag)
{
    assert(stream->device->ops->cpu_launch != NULL);
    assert(fn != NULL && (args != NULL || args_bytes == 0));
    return stream->device->ops->cpu_launch(stream, fn, args, args_bytes, tag);
}

uint32_t device_comm_version(struct device *device, struct pl_err *why)
{
    return device->ops->comm_version(device, why);
}

plasmon_status_t device_comm_id(struct device *device,
                                const struct device_comm_config *config, uint8_t *out_id,
                                struct pl_err *err)
{
    return device->ops->comm_id(device, config, out_id, err);
}

plasmon_status_t device_comm_open(struct device *device,
                                  const struct device_comm_config *config,
                                  const uint8_t *id, struct device_stream *stream,
                                  struct device_comm **out_comm, struct pl_err *err)
{
    assert(config->rank < (config->ranks != 0 ? config->ranks : 2) &&
           config->ranks <= DEVICE_COMM_RANKS_MAX && stream->device == device);
    return device->ops->comm_open(device, config, id, stream, out_comm, err);
}

plasmon_status_t device_comm_poll(struct device_comm *comm, struct pl_err *err)
{
    return comm->device->ops->comm_poll(comm, err);
}

uint64_t device_comm_bytes(const struct device_comm *comm)
{
    return comm->bytes;
}

plasmon_status_t device_comm_move(struct device_comm *comm, struct device_stream *stream,
                                  struct device_ptr ptr, uint64_t bytes, struct pl_err *err)
{
    assert(stream->device == comm->device && bytes > 0 && comm->ranks == 2);
    return comm->device->ops->comm_move(comm, stream, ptr, bytes, err);
}

plasmon_status_t device_comm_join(struct device_comm *comm, struct device_stream *stream,
                                  const struct device_comm_collective *reduction,
                                  struct pl_err *err)
{
    assert(stream->device == comm->device && reduction->elements > 0);
    return comm->device->ops->comm_join(comm, stream, reduction, err);
}

plasmon_status_t device_comm_check(struct device_comm *comm, struct pl_err *err)
{
    return comm->device->ops->comm_check(comm, err);
}

void device_comm_close(struct device_comm *comm)
{
    if (comm != NULL) {
        comm->device->ops->comm_close(comm);
    }
}

void device_comm_cut(struct device_comm *comm)
{
    if (comm != NULL) {
        comm->device->ops->comm_cut(comm);
    }
}

void device_comm_abort(struct device_comm *comm)
{
    if (comm != NULL) {
        comm->device->ops->comm_abort(comm);
    }
}

bool device_launch_failure(struct device *device, uint64_t *out_tag, struct pl_err *out_err)
{
    return device->ops->launch_failure(device, out_tag, out_err);
}

/* ------------------------------------------------------------------------ recorded work */

plasmon_status_t device_graph_create(struct device *device, uint32_t branches,
                                     struct device_graph **out_graph, struct pl_err *err)
{
    if (branches == 0 || branches > DEVICE_BRANCH_MAX) {
        return pl_err_set(err, PLASMON_EINVAL, "a graph has 1 to %u branches, not %u",
                          DEVICE_BRANCH_MAX, branches);
    }
    return device->ops->graph_create(device, branches, out_graph, err);
}

void device_graph_destroy(struct device_graph *graph)
{
    if (graph != NULL) {
        assert(!graph->recording);
        graph->device->ops->graph_destroy(graph);
    }
}

struct device_stream *device_graph_branch(struct device_graph *graph, uint32_t branch)
{
    assert(branch < graph->branch_count);
    return graph->branches[branch];
}

bool device_stream_records(const struct device_stream *stream)
{
    return stream->records;
}

void device_graph_tag_at(struct device_graph *graph, struct device_ptr word)
{
    assert(!graph->recording);
    graph->tag_at = word;
}

struct device_ptr device_stream_tag(struct device_stream *stream)
{
    struct device_graph *graph = stream->branch_of;

    if (graph == NULL || graph->tag_at.addr == 0) {
        return (struct device_ptr){0};
    }
    graph->tagged = true;
    return graph->tag_at;
}

plasmon_status_t device_graph_begin(struct device_graph *graph, struct pl_err *err)
{
    plasmon_status_t status;

    assert(!graph->recording);
    graph->tagged    = false;
    status           = graph->device->ops->graph_begin(graph, err);
    graph->recording = status == PLASMON_OK;
    return status;
}

plasmon_status_t device_graph_mark(struct device_graph *graph, uint32_t branch,
                                   uint32_t mark)
{
    assert(graph->recording && branch < graph->branch_count);
    return graph->device->ops->graph_mark(graph, branch, mark);
}

plasmon_status_t device_graph_after(struct device_graph *graph, uint32_t branch,
                                    uint32_t mark)
{
    assert(graph->recording && branch < graph->branch_count);
    return graph->device->ops->graph_after(graph, branch, mark);
}

plasmon_status_t device_graph_end(struct device_graph *graph, bool keep,
                                  struct device_exec **io_exec, struct pl_err *err)
{
    assert(graph->recording);
    graph->recording = false;
    return graph->device->ops->graph_end(graph, keep, io_exec, err);
}

plasmon_status_t device_graph_item(struct device_graph *graph, uint32_t item)
{
    assert(graph->recording);
    return graph->device->ops->graph_item != NULL
               ? graph->device->ops->graph_item(graph, item)
               : PLASMON_OK;
}

plasmon_status_t device_graph_change_begin(struct device_graph *graph,
                                           struct device_exec *exec, struct pl_err *err)
{
    plasmon_status_t status;

    assert(!graph->recording && exec->device == graph->device);
    if (graph->device->ops->graph_change_begin == NULL) {
        return pl_err_set(err, PLASMON_ENOTSUP,
                          "recorded work of a CPU device is not changed in parts");
    }
    status           = graph->device->ops->graph_change_begin(graph, exec, err);
    graph->recording = status == PLASMON_OK;
    return status;
}

plasmon_status_t device_graph_change_end(struct device_graph *graph)
{
    assert(graph->recording);
    graph->recording = false;
    return graph->device->ops->graph_change_end(graph);
}

plasmon_status_t device_exec_launch(struct device_stream *stream, struct device_exec *exec,
                                    uint64_t tag)
{
    assert(stream->device == exec->device);
    return exec->device->ops->exec_launch(stream, exec, tag);
}

void device_exec_destroy(struct device_exec *exec)
{
    if (exec != NULL) {
        exec->device->ops->exec_destroy(exec);
    }
}

/* ----------------------------------------------------------------------------- GPU code */

plasmon_status_t device_module_load(struct device *device, const void *image,
                                    size_t image_bytes, struct device_module **out_module,
                                    struct pl_err *err)
{
    if (device->ops->module_load == NULL) {
        return pl_err_set(err, PLASMON_ENOTSUP, "a CPU device loads no GPU code");
    }
    if (image_bytes == 0) {
        return pl_err_set(err, PLASMON_EINVAL, "the GPU code to load is empty");
    }
    return device->ops->module_load(device, image, image_bytes, out_module, err);
}

void device_module_unload(struct device_module *module)
{
    if (module != NULL) {
        module->device->ops->module_unload(module);
    }
}

plasmon_status_t device_module_function(struct device_module *module, const char *name,
                                        void **out_function, struct pl_err *err)
{
    return module->device->ops->module_function(module, name, out_function, err);
}

plasmon_status_t device_function_limits(struct device_module *module, void *function,
                                        struct device_function_limits *out_limits,
                                        struct pl_err *err)
{
    return module->device->ops->function_limits(module, function, out_limits, err);
}

plasmon_status_t device_function_block(struct device_module *module, void *function,
                                       uint32_t shared_bytes, uint32_t *out_block,
                                       struct pl_err *err)
{
    return module->device->ops->function_block(module, function, shared_bytes, out_block,
                                               err);
}

plasmon_status_t device_launch(struct device_stream *stream, void *function,
                               const struct device_launch_shape *shape, void **params)
{
    assert(stream->device->ops->launch != NULL);
    return stream->device->ops->launch(stream, function, shape, params);
}

plasmon_status_t device_launch_soon(struct device_stream *stream, void *function,
                                    const struct device_launch_shape *shape,
                                    const struct device_params *params, uint64_t tag)
{
    assert(stream->device->ops->launch_soon != NULL && !shape->cooperative);
    assert(params->count <= DEVICE_SOON_PARAMS_MAX &&
           params->count * params->each <= DEVICE_SOON_BYTES_MAX);
    return stream->device->ops->launch_soon(stream, function, shape, params, tag);
}

plasmon_status_t device_enter(struct device *device)
{
    return device->ops->enter == NULL ? PLASMON_OK : device->ops->enter(device);
}

bool device_cublas_pending(const struct device *device)
{
    return device->ops->cublas_pending != NULL && device->ops->cublas_pending(device);
}

void device_cublas_start(struct device *device)
{
    if (device_cublas_pending(device)) {
        device->ops->cublas_start(device);
    }
}

void *device_cublas(struct device *device, struct pl_err *why)
{
    if (device->ops->cublas == NULL) {
        (void)pl_err_set(why, PLASMON_ENOTSUP, "a CPU device has no cuBLAS");
        return NULL;
    }
    return device->ops->cublas(device, why);
}

void *device_cublas_on(struct device_stream *stream, struct pl_err *why)
{
    if (stream->device->ops->cublas_on == NULL) {
        (void)pl_err_set(why, PLASMON_ENOTSUP, "a CPU device has no cuBLAS");
        return NULL;
    }
    return stream->device->ops->cublas_on(stream, why);
}

void *device_cublas_symbol(struct device *device, const char *name)
{
    return device->ops->cublas_symbol != NULL ? device->ops->cublas_symbol(device, name)
                                              : NULL;
}

void *device_native_stream(struct device_stream *stream)
{
    return stream->device->ops->native_stream != NULL
               ? stream->device->ops->native_stream(stream)
               : NULL;
}

/* -------------------------------------------------------------------------- driver time */

#define CLOCK_TRIES 16u
#define CLOCK_READS 64u

/*
 * A call has a read of the clock on either side. Half of each lies between the two moments that are
 * read, and counts as the driver's; the other halves come to one read, which nobody would make who
 * did not count.
 */
static uint64_t clock_read_ns(void)
{
    /* of a few: others may have had the processor meanwhile */
    uint64_t best_ns = UINT64_MAX;

    for (unsigned i = 0; i < CLOCK_TRIES; i++) {
        uint64_t began_ns = pl_now_ns();

        for (unsigned k = 0; k < CLOCK_READS; k++) {
            (void)pl_now_ns();
        }
        best_ns = pl_min_u64(best_ns, (pl_now_ns() - began_ns) / (CLOCK_READS + 1));
    }
    return best_ns;
}

void device_driver_time_enable(bool on)
{
    if (on && device_driver_time_clock_ns == 0) {
        device_driver_time_clock_ns = clock_read_ns();
    }
    atomic_store_explicit(&device_driver_time_on, on, memory_order_relaxed);
}

uint64_t device_driver_ns(void)
{
    return device_driver_time_total_ns;
}
