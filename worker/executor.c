#include "worker/executor.h"

#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/fd.h"
#include "base/log.h"

/*
 * Streams are for overlap, not for safety (docs/ordering.md). Four keep a GPU busy with the graphs of bench/; a CPU device's
 * streams are threads, and its kernels compete for the same cores.
 */
#define RUN_STREAMS_CUDA 4u
#define RUN_STREAMS_CPU  2u

static uint32_t run_streams_of(enum device_kind kind)
{
    return kind == DEVICE_CUDA ? RUN_STREAMS_CUDA : RUN_STREAMS_CPU;
}

/* A call that may only fail when the device is lost: who runs us must know, whatever the core makes of it. */
plasmon_status_t worker_executor_must(struct worker_executor *executor,
                                      plasmon_status_t status)
{
    if (status != PLASMON_OK && executor->broken == PLASMON_OK) {
        executor->broken = status;
    }
    return status;
}

static struct store_timeline *own_timeline(const struct worker_executor *executor)
{
    return executor->shared->timelines[executor->shared->host_device];
}

/* ------------------------------------------------------------------------------------------------ order */

static plasmon_status_t op_grow(void *user, uint32_t pool, uint64_t bytes)
{
    struct worker_executor *executor = user;

    return worker_memory_grow(executor->memory, pool, bytes);
}

static plasmon_status_t op_wait(void *user, uint32_t stream, uint32_t host_device,
                                uint64_t *word, uint64_t value)
{
    struct worker_executor *executor = user;

    (void)host_device;
    return worker_executor_must(executor, device_wait(stream == WORKER_STREAM_ALONE
                                                          ? executor->alone
                                                          : executor->streams[stream],
                                                      word, value));
}

static plasmon_status_t op_join(void *user, uint32_t stream, uint32_t other)
{
    struct worker_executor *executor = user;

    return worker_executor_must(
        executor, device_stream_join(executor->streams[stream], executor->streams[other]));
}

static plasmon_status_t op_mark(void *user, uint32_t stream, uint32_t slot)
{
    struct worker_executor *executor = user;
    struct device_event **event      = &executor->marks[stream][slot];
    plasmon_status_t status =
        *event != NULL ? PLASMON_OK : device_event_create(executor->device, event);

    return status == PLASMON_OK ? device_event_record(*event, executor->streams[stream])
                                : status; /* the core joins instead */
}

static plasmon_status_t op_join_mark(void *user, uint32_t stream, uint32_t other,
                                     uint32_t slot)
{
    struct worker_executor *executor = user;

    return worker_executor_must(
        executor,
        device_stream_behind(executor->streams[stream], executor->marks[other][slot]));
}

static plasmon_status_t op_signal(void *user, uint32_t stream, uint64_t seq)
{
    struct worker_executor *executor = user;
    plasmon_status_t status;

    status = pl_fault_point("worker.signal")
                 ? PLASMON_EDEVICE
                 : device_signal(executor->streams[stream],
                                 &own_timeline(executor)->stream[stream].value, seq);
    if (status == PLASMON_OK && !device_get_info(executor->device)->notify_stalls) {
        status = device_notify(executor->streams[stream], executor->notify_fd);
    }
    return worker_executor_must(executor, status);
}

static plasmon_status_t op_begin(void *user, uint32_t stream, uint64_t seq)
{
    struct worker_executor *executor = user;

    return worker_executor_must(
        executor, device_signal(executor->streams[stream],
                                &own_timeline(executor)->begun[stream].value, seq));
}

static void op_wake(void *user, uint64_t *word)
{
    (void)user;
    device_word_wake(word);
}

/*
 * Only those that wait for us. The fence pairs with the one in main.c (waits_publish): either we see that they wait, or they see
 * what we published.
 */
static bool op_written(void *user, uint32_t slot)
{
    struct worker_executor *executor = user;

    return worker_lanes_write(&executor->lanes, slot) ||
           worker_bulk_clients_hold(&executor->bulk.clients, slot);
}

static uint64_t op_now(void *user)
{
    (void)user;
    return pl_now_ns();
}

static void op_ring_doorbells(void *user)
{
    struct worker_executor *executor = user;
    struct worker_shared *shared     = executor->shared;
    uint64_t one                     = 1;

    worker_shared_fence();
    for (uint32_t i = 0; i < shared->host_device_count; i++) {
        uint64_t waits_for =
            __atomic_load_n(&shared->timelines[i]->waits_for, __ATOMIC_RELAXED);

        if (i != shared->host_device &&
            (waits_for & UINT64_C(1) << shared->host_device) != 0 &&
            write(shared->doorbells[i], &one, sizeof(one)) != (ssize_t)sizeof(one)) {
            pl_debug("worker", "doorbell of device %u of this host is full",
                     i); /* it rings */
        }
    }
}

/* ------------------------------------------------------------------------------------------------ moving */

static plasmon_status_t op_copy(void *user, uint32_t stream, const struct pl_box *box,
                                uint32_t element_bytes, uint64_t dst_offset,
                                const struct pl_box *dst_frame, uint32_t src_host_device,
                                uint64_t src_offset, const struct pl_box *src_frame)
{
    struct worker_executor *executor = user;
    bool peer                        = src_host_device != executor->shared->host_device;
    struct device_ptr src            = worker_memory_own(executor->memory, src_offset);
    uint64_t bytes                   = (uint64_t)pl_box_elements(src_frame) * element_bytes;

    if (peer) {
        plasmon_status_t status =
            worker_memory_peer(executor->memory, src_host_device, src_offset, bytes, &src);

        if (status != PLASMON_OK) {
            return status;
        }
    }
    return transfer_copy(executor->streams[stream], box, element_bytes,
                         worker_memory_own(executor->memory, dst_offset), dst_frame, src,
                         src_frame, peer, &executor->counters);
}

/* Registered when first used: 128 MiB of pinned host memory a receiver are not for those who never take this route. */
plasmon_status_t worker_executor_ring(struct worker_executor *executor, uint32_t receiver,
                                      struct transfer_ring *out_ring)
{
    struct worker_shared *shared = executor->shared;
    plasmon_status_t status;

    if (!executor->ring_ready[receiver]) {
        status = device_host_register(executor->device, shared->slabs[receiver],
                                      shared->slab_bytes);
        if (status != PLASMON_OK) {
            return status;
        }
        executor->ring_ready[receiver] = true;
    }
    *out_ring = (struct transfer_ring){.timeline = shared->timelines[receiver],
                                       .slab     = shared->slabs[receiver]};
    return PLASMON_OK;
}

static plasmon_status_t op_stage_send(void *user, uint32_t stream, uint32_t to,
                                      uint64_t first_chunk, uint64_t offset, uint64_t bytes)
{
    struct worker_executor *executor = user;
    bool with_bytes                  = offset != WORKER_NOWHERE;
    struct transfer_ring ring;
    plasmon_status_t status = worker_executor_ring(executor, to, &ring);

    if (status == PLASMON_OK) {
        status = transfer_stage_send(
            executor->streams[stream], &ring, first_chunk,
            worker_memory_own(executor->memory, with_bytes ? offset : 0), bytes,
            with_bytes);
    }
    return worker_executor_must(executor, status); /* the other half would wait for ever */
}

static plasmon_status_t op_stage_recv(void *user, uint32_t stream, uint32_t from,
                                      uint64_t first_chunk, uint64_t offset, uint64_t bytes)
{
    struct worker_executor *executor = user;
    bool with_bytes                  = offset != WORKER_NOWHERE;
    struct transfer_ring ring;
    plasmon_status_t status =
        worker_executor_ring(executor, executor->shared->host_device, &ring);

    (void)from;
    if (status == PLASMON_OK) {
        status = transfer_stage_recv(
            executor->streams[stream], &ring, first_chunk,
            worker_memory_own(executor->memory, with_bytes ? offset : 0), bytes, with_bytes,
            &executor->counters);
    }
    return worker_executor_must(executor, status);
}

static plasmon_status_t op_bulk_peer(void *user, uint32_t device, const char *address,
                                     const uint8_t *secret)
{
    struct worker_executor *executor = user;

    return worker_bulk_peer(&executor->bulk, device, address, secret);
}

static plasmon_status_t op_bulk_gone(void *user, uint32_t device)
{
    struct worker_executor *executor = user;

    return worker_bulk_gone(&executor->bulk, device);
}

static plasmon_status_t op_bulk_send(void *user, uint32_t stream, uint32_t to,
                                     uint64_t first_chunk, uint64_t offset, uint64_t bytes)
{
    struct worker_executor *executor = user;
    bool with_bytes                  = offset != WORKER_NOWHERE;

    return worker_executor_must(
        executor,
        worker_bulk_send(&executor->bulk, executor->streams[stream], to, first_chunk,
                         worker_memory_own(executor->memory, with_bytes ? offset : 0),
                         bytes, with_bytes));
}

static plasmon_status_t op_bulk_recv(void *user, uint32_t stream, uint32_t from,
                                     uint64_t first_chunk, uint64_t offset, uint64_t bytes)
{
    struct worker_executor *executor = user;
    bool with_bytes                  = offset != WORKER_NOWHERE;
    struct transfer_ring ring; /* the channel's too; made reachable for our device */
    plasmon_status_t status =
        worker_executor_ring(executor, executor->shared->host_device, &ring);

    if (status == PLASMON_OK) {
        status =
            worker_bulk_recv(&executor->bulk, executor->streams[stream], from, first_chunk,
                             worker_memory_own(executor->memory, with_bytes ? offset : 0),
                             bytes, with_bytes, &executor->counters);
    }
    return worker_executor_must(executor, status);
}

static plasmon_status_t op_bulk_expect(void *user, uint32_t from, uint64_t first_chunk,
                                       uint64_t bytes)
{
    struct worker_executor *executor = user;

    return worker_executor_must(
        executor, worker_bulk_expect(&executor->bulk, from, first_chunk, bytes));
}

static plasmon_status_t op_put(void *user, uint32_t stream, uint64_t dst_offset,
                               const uint8_t *bytes, uint64_t length)
{
    struct worker_executor *executor = user;

    transfer_count(&executor->counters, TRANSFER_INLINE, length);
    return worker_inline_put(&executor->puts, executor->streams[stream],
                             worker_memory_own(executor->memory, dst_offset), bytes,
                             length);
}

static plasmon_status_t op_read(void *user, uint32_t stream, uint64_t src_offset,
                                uint64_t length, uint64_t request)
{
    struct worker_executor *executor = user;

    transfer_count(&executor->counters, TRANSFER_INLINE, length);
    return worker_inline_read(&executor->reads, executor->streams[stream],
                              worker_memory_own(executor->memory, src_offset), length,
                              request);
}

/*
 * Unlike a lane's copies these are launches: they go into the device's streams in the one order. The pages are locked, so the call that
 * enqueues does not wait.
 */
static plasmon_status_t host_copy(struct worker_executor *executor, uint32_t stream,
                                  bool put, uint64_t device_offset, uint64_t host_buffer,
                                  uint64_t host_offset, uint64_t length, struct pl_err *err)
{
    uint64_t device = worker_memory_own(executor->memory, device_offset).addr;
    uint64_t host   = (uint64_t)(uintptr_t)worker_host_buffers_at(
          &executor->host_buffers, host_buffer, host_offset, length, err);
    plasmon_status_t status;

    if (host == 0) {
        return err->status;
    }
    status = device_copy(executor->streams[stream],
                         put ? DEVICE_COPY_HOST_TO_DEVICE : DEVICE_COPY_DEVICE_TO_HOST,
                         put ? device : host, put ? host : device, length);
    if (status == PLASMON_OK) {
        transfer_count(&executor->counters, TRANSFER_HOST_BUFFER, length);
    }
    return status;
}

static plasmon_status_t op_put_host(void *user, uint32_t stream, uint64_t dst_offset,
                                    uint64_t host_buffer, uint64_t host_offset,
                                    uint64_t length, struct pl_err *err)
{
    return host_copy(user, stream, true, dst_offset, host_buffer, host_offset, length, err);
}

static plasmon_status_t op_get_host(void *user, uint32_t stream, uint64_t src_offset,
                                    uint64_t host_buffer, uint64_t host_offset,
                                    uint64_t length, struct pl_err *err)
{
    return host_copy(user, stream, false, src_offset, host_buffer, host_offset, length,
                     err);
}

/* ------------------------------------------------------------------------------------------------ functions */

/* A stream of ours, or a branch of what is being recorded. */
static struct device_stream *stream_at(const struct worker_executor *executor,
                                       uint32_t stream)
{
    return stream >= WORKER_BRANCH
               ? device_graph_branch(executor->recording, stream - WORKER_BRANCH)
               : executor->streams[stream];
}

/* Arguments with addresses instead of offsets. A local array for all but the widest calls. */
#define ARGS_ON_STACK 16u

static struct kernel_arg *args_translate(const struct worker_executor *executor,
                                         const struct kernel_arg *args, uint32_t count,
                                         struct kernel_arg *small)
{
    struct kernel_arg *translated =
        count <= ARGS_ON_STACK ? small : PL_NEW_N(struct kernel_arg, count);

    for (uint32_t i = 0; translated != NULL && i < count; i++) {
        translated[i]      = args[i];
        translated[i].data = worker_memory_own(executor->memory, args[i].data.addr);
    }
    return translated;
}

/* What the function itself wants; what checks want comes behind it. */
static uint64_t own_scratch_bytes(const struct worker_executor *executor,
                                  const struct kernel_function *function,
                                  const struct kernel_arg *args, uint32_t arg_count,
                                  const union kernel_scalar *scalars, uint32_t scalar_count)
{
    return function->defined ? 0
                             : kernel_scratch_bytes(executor->kernels, function, args,
                                                    arg_count, scalars, scalar_count);
}

static uint64_t op_scratch_bytes(void *user, const struct kernel_function *function,
                                 const struct kernel_arg *args, uint32_t arg_count,
                                 const union kernel_scalar *scalars, uint32_t scalar_count)
{
    struct worker_executor *executor = user;
    uint64_t bytes =
        own_scratch_bytes(executor, function, args, arg_count, scalars, scalar_count);

    return executor->check.on ? pl_round_up(bytes, 256) +
                                    worker_check_scratch(&executor->check, args, arg_count)
                              : bytes;
}

/* A function and all it needs, to be put into a stream once or twice. */
struct run {
    struct worker_executor *executor;
    struct device_stream *stream;
    const struct kernel_function *function;
    const struct kernel_arg *args; /* with addresses */
    uint32_t arg_count;
    const union kernel_scalar *scalars;
    uint32_t scalar_count;
    struct device_ptr scratch;
    uint64_t scratch_bytes;
    struct kernel_launch_shape *io_shape; /* of a defined function */
    uint64_t tag;
};

static plasmon_status_t run_once(void *user, struct pl_err *err)
{
    const struct run *run = user;

    if (run->function->defined) {
        return kernel_code_run(kernel_code_of(run->function), run->stream, run->args,
                               run->arg_count, run->scalars, run->scalar_count,
                               run->io_shape, run->tag, err);
    }
    return kernel_run(run->executor->kernels, run->stream, run->function, run->args,
                      run->arg_count, run->scalars, run->scalar_count, run->scratch,
                      run->scratch_bytes, run->tag, err);
}

static plasmon_status_t run_checked(struct run *run, uint32_t stream, struct pl_err *err)
{
    uint64_t own =
        pl_round_up(own_scratch_bytes(run->executor, run->function, run->args,
                                      run->arg_count, run->scalars, run->scalar_count),
                    256);

    run->scratch_bytes = own;
    return worker_check_run(&run->executor->check, stream, run->stream, run->function,
                            run->args, run->arg_count, device_ptr_add(run->scratch, own),
                            run->tag, run_once, run, err);
}

/* run->args are offsets until here. */
static plasmon_status_t run_put(struct run *run, uint32_t stream, uint64_t scratch_offset,
                                struct pl_err *err)
{
    struct kernel_arg small[ARGS_ON_STACK];
    struct kernel_arg *translated =
        args_translate(run->executor, run->args, run->arg_count, small);
    plasmon_status_t status;

    if (translated == NULL) {
        return pl_err_set(err, PLASMON_ENOMEM, "no memory for %u arguments",
                          run->arg_count);
    }
    run->args    = translated;
    run->stream  = stream_at(run->executor, stream);
    run->scratch = worker_memory_own(run->executor->memory, scratch_offset);
    status = run->executor->check.on ? run_checked(run, stream, err) : run_once(run, err);
    if (translated != small) {
        pl_free(translated);
    }
    return status;
}

static plasmon_status_t op_run(void *user, uint32_t stream,
                               const struct kernel_function *function,
                               const struct kernel_arg *args, uint32_t arg_count,
                               const union kernel_scalar *scalars, uint32_t scalar_count,
                               uint64_t scratch_offset, uint64_t scratch_bytes,
                               uint64_t tag, struct pl_err *err)
{
    struct run run = {.executor      = user,
                      .function      = function,
                      .args          = args,
                      .arg_count     = arg_count,
                      .scalars       = scalars,
                      .scalar_count  = scalar_count,
                      .scratch_bytes = scratch_bytes,
                      .tag           = tag};

    return run_put(&run, stream, scratch_offset, err);
}

static uint64_t arg_bytes(const struct kernel_arg *arg)
{
    uint64_t bytes = pl_dtype_bytes(arg->dtype);

    for (uint32_t i = 0; i < arg->ndim; i++) {
        bytes *= (uint64_t)arg->dim[i];
    }
    return bytes;
}

static plasmon_status_t source_address(struct worker_executor *executor,
                                       const struct worker_source *source,
                                       struct device_ptr *out)
{
    if (source->host_device == executor->shared->host_device) {
        *out = worker_memory_own(executor->memory, source->offset);
        return PLASMON_OK;
    }
    return worker_memory_peer(executor->memory, source->host_device, source->offset,
                              source->bytes, out);
}

static plasmon_status_t op_combine(void *user, uint32_t stream,
                                   const struct kernel_function *function,
                                   const struct kernel_arg *args,
                                   const struct worker_source *sources, uint32_t arg_count,
                                   const union kernel_scalar *scalars,
                                   uint32_t scalar_count, uint64_t tag, struct pl_err *err)
{
    struct worker_executor *executor = user;
    struct device_ptr none           = {0};
    struct kernel_arg *at            = PL_NEW_N(struct kernel_arg, arg_count);
    plasmon_status_t status          = at == NULL ? PLASMON_ENOMEM : PLASMON_OK;

    if (pl_fault_point("transfer.copy")) {
        status = PLASMON_EDEVICE;
    }
    for (uint32_t i = 0; status == PLASMON_OK && i < arg_count; i++) {
        struct device_ptr base;

        status = source_address(executor, &sources[i], &base);
        if (status == PLASMON_OK) {
            at[i]      = args[i];
            at[i].data = device_ptr_add(base, args[i].data.addr);
        }
    }
    if (status == PLASMON_OK) {
        status = kernel_run(
            executor->kernels,
            stream == WORKER_STREAM_ALONE ? executor->alone : executor->streams[stream],
            function, at, arg_count, scalars, scalar_count, none, 0, tag, err);
    }
    for (uint32_t i = 1; status == PLASMON_OK && i < arg_count; i++) {
        if (sources[i].host_device != executor->shared->host_device) {
            transfer_count(&executor->counters, TRANSFER_PEER, arg_bytes(&at[i]));
        }
    }
    pl_free(at);
    return status;
}

static plasmon_status_t op_prepare(void *user, const struct kernel_function *function,
                                   const struct kernel_arg *args, uint32_t arg_count,
                                   const union kernel_scalar *scalars,
                                   uint32_t scalar_count, bool keep, bool quiet,
                                   struct pl_err *err)
{
    struct worker_executor *executor = user;

    return worker_functions_prepare(&executor->functions, function, args, arg_count,
                                    scalars, scalar_count, keep, quiet, err);
}

static void op_prepared_release(void *user)
{
    const struct worker_executor *executor = user;

    kernel_release(executor->kernels);
}

static const struct kernel_function *op_function(void *user, uint32_t id, bool quiet,
                                                 struct pl_err *err)
{
    struct worker_executor *executor = user;

    return worker_functions_find(&executor->functions, id, quiet, err);
}

static const char *op_function_text(void *user, uint32_t id)
{
    const struct worker_executor *executor = user;

    return worker_functions_text(&executor->functions, id);
}

static plasmon_status_t op_run_defined(void *user, uint32_t stream,
                                       const struct kernel_function *function,
                                       const struct kernel_arg *args, uint32_t arg_count,
                                       const union kernel_scalar *scalars,
                                       uint32_t scalar_count, uint64_t scratch_offset,
                                       struct kernel_launch_shape *io_shape, uint64_t tag,
                                       struct pl_err *err)
{
    struct run run = {.executor     = user,
                      .function     = function,
                      .args         = args,
                      .arg_count    = arg_count,
                      .scalars      = scalars,
                      .scalar_count = scalar_count,
                      .io_shape     = io_shape,
                      .tag          = tag};

    return run_put(&run, stream, scratch_offset, err);
}

static plasmon_status_t op_fill_identity(void *user, uint32_t stream,
                                         const struct kernel_arg *arg, uint64_t tag)
{
    struct worker_executor *executor = user;
    struct kernel_arg translated     = *arg;

    translated.data = worker_memory_own(executor->memory, arg->data.addr);
    return kernel_fill_identity(executor->kernels, stream_at(executor, stream), &translated,
                                tag);
}

/* ------------------------------------------------------------------------------------------------ recorded graphs */

static plasmon_status_t op_record_begin(void *user, void **io_recorder, uint32_t branches,
                                        uint64_t tag_offset, struct pl_err *err)
{
    struct worker_executor *executor = user;
    struct device_graph *graph       = *io_recorder;
    plasmon_status_t status          = PLASMON_OK;

    if (executor->check.on) {
        return pl_err_set(err, PLASMON_ENOTSUP, "its functions are checked");
    }
    if (graph == NULL) {
        status = device_graph_create(executor->device, branches, &graph, err);
    }
    if (status != PLASMON_OK) {
        return status;
    }
    *io_recorder = graph;
    device_graph_tag_at(graph, worker_memory_own(executor->memory, tag_offset));
    status              = device_graph_begin(graph, err);
    executor->recording = status == PLASMON_OK ? graph : NULL;
    return status;
}

static plasmon_status_t op_record_mark(void *user, uint32_t branch, uint32_t mark)
{
    struct worker_executor *executor = user;

    return device_graph_mark(executor->recording, branch, mark);
}

static plasmon_status_t op_record_after(void *user, uint32_t branch, uint32_t mark)
{
    struct worker_executor *executor = user;

    return device_graph_after(executor->recording, branch, mark);
}

static plasmon_status_t op_record_end(void *user, bool keep, void **io_exec,
                                      struct pl_err *err)
{
    struct worker_executor *executor = user;
    struct device_exec *exec         = *io_exec;
    plasmon_status_t status = device_graph_end(executor->recording, keep, &exec, err);

    executor->recording = NULL;
    *io_exec            = exec;
    return status;
}

static plasmon_status_t op_record_item(void *user, uint32_t item)
{
    struct worker_executor *executor = user;

    return device_graph_item(executor->recording, item);
}

static plasmon_status_t op_change_begin(void *user, void *recorder, void *exec,
                                        struct pl_err *err)
{
    struct worker_executor *executor = user;
    plasmon_status_t status          = device_graph_change_begin(recorder, exec, err);

    executor->recording = status == PLASMON_OK ? recorder : NULL;
    return status;
}

static plasmon_status_t op_change_end(void *user)
{
    struct worker_executor *executor = user;
    plasmon_status_t status          = device_graph_change_end(executor->recording);

    executor->recording = NULL;
    return status;
}

static plasmon_status_t op_replay(void *user, uint32_t stream, void *exec, uint64_t tag)
{
    struct worker_executor *executor = user;

    return device_exec_launch(executor->streams[stream], exec, tag);
}

static void op_record_drop(void *user, void *recorder, void *exec)
{
    (void)user;
    device_graph_destroy(recorder);
    device_exec_destroy(exec);
}

/* ------------------------------------------------------------------------------------------------ reports */

static void op_report_done(void *user, uint64_t first, uint64_t count)
{
    const struct worker_executor *executor = user;

    executor->reports->done(executor->reports->user, first, count);
}

static void op_report_failed(void *user, uint64_t seq, plasmon_status_t status,
                             const char *text)
{
    const struct worker_executor *executor = user;

    executor->reports->failed(executor->reports->user, seq, status, text);
}

static void op_report_function(void *user, uint32_t id, plasmon_status_t status,
                               const char *text)
{
    const struct worker_executor *executor = user;

    executor->reports->function(executor->reports->user, id, status, text);
}

static void op_report_starved(void *user, uint64_t seq, uint64_t bytes,
                              uint64_t largest_hole)
{
    const struct worker_executor *executor = user;

    executor->reports->starved(executor->reports->user, seq, bytes, largest_hole);
}

static void op_report_condemned(void *user, const struct worker_condemned *condemned)
{
    const struct worker_executor *executor = user;

    executor->reports->condemned(executor->reports->user, condemned);
}

static void *op_span_begin(void *user, uint32_t stream)
{
    struct worker_executor *executor = user;

    return executor->trace.on
               ? worker_trace_begin(&executor->trace, executor->streams[stream])
               : NULL;
}

static void op_span_end(void *user, uint32_t stream, void *span)
{
    const struct worker_executor *executor = user;

    worker_trace_end(span, executor->streams[stream]);
}

static void op_span_done(void *user, void *span, const struct worker_span *facts)
{
    struct worker_executor *executor = user;

    worker_trace_done(&executor->trace, span, facts);
}

/* After the words were read: a launch that the words cover has left its failure and its bytes by now. */
static void op_collect(void *user)
{
    struct worker_executor *executor = user;
    struct pl_err err;
    uint64_t tag;

    while (kernel_failure(executor->kernels, &tag, &err)) {
        worker_core_failed(executor->core, tag, err.status, err.text);
    }
    worker_inline_collect(&executor->reads, executor->reports->data,
                          executor->reports->user);
    worker_check_collect(&executor->check);
    worker_functions_collect(&executor->functions);
    worker_pairs_collect(executor);
}

const struct worker_ops worker_executor_ops = {
    .grow             = op_grow,
    .wait             = op_wait,
    .join             = op_join,
    .mark             = op_mark,
    .join_mark        = op_join_mark,
    .copy             = op_copy,
    .stage_send       = op_stage_send,
    .stage_recv       = op_stage_recv,
    .bulk_peer        = op_bulk_peer,
    .bulk_gone        = op_bulk_gone,
    .bulk_send        = op_bulk_send,
    .bulk_recv        = op_bulk_recv,
    .bulk_expect      = op_bulk_expect,
    .pair_open        = worker_pair_op_open,
    .pair_close       = worker_pair_op_close,
    .pair_abort       = worker_pair_op_abort,
    .pair_settled     = worker_pair_op_settled,
    .pair_room        = worker_pair_op_room,
    .pair_move        = worker_pair_op_move,
    .pair_stage       = worker_pair_op_stage,
    .pair_sent        = worker_pair_op_sent,
    .report_pair      = worker_pair_op_report,
    .put              = op_put,
    .read             = op_read,
    .put_host         = op_put_host,
    .get_host         = op_get_host,
    .scratch_bytes    = op_scratch_bytes,
    .prepare          = op_prepare,
    .prepared_release = op_prepared_release,
    .run              = op_run,
    .combine          = op_combine,
    .function         = op_function,
    .function_text    = op_function_text,
    .run_defined      = op_run_defined,
    .fill_identity    = op_fill_identity,
    .begin            = op_begin,
    .span_begin       = op_span_begin,
    .span_end         = op_span_end,
    .span_done        = op_span_done,
    .signal           = op_signal,
    .collect          = op_collect,
    .wake             = op_wake,
    .written          = op_written,
    .now              = op_now,
    .ring_doorbells   = op_ring_doorbells,
    .report_done      = op_report_done,
    .report_failed    = op_report_failed,
    .report_starved   = op_report_starved,
    .report_condemned = op_report_condemned,
    .record_begin     = op_record_begin,
    .record_mark      = op_record_mark,
    .record_after     = op_record_after,
    .record_end       = op_record_end,
    .record_item      = op_record_item,
    .change_begin     = op_change_begin,
    .change_end       = op_change_end,
    .replay           = op_replay,
    .record_drop      = op_record_drop,
};

/* ------------------------------------------------------------------------------------------------ life */

static plasmon_status_t streams_create(struct worker_executor *executor)
{
    if (executor->run_streams == 0) {
        executor->run_streams = run_streams_of(device_get_info(executor->device)->kind);
    }
    for (uint32_t i = 0; i < executor->run_streams + WORKER_ROLE_STREAMS +
                                 WORKER_URGENT_STREAMS + WORKER_LOW_STREAMS;
         i++) {
        uint32_t low = executor->run_streams + WORKER_ROLE_STREAMS + WORKER_URGENT_STREAMS;
        unsigned flags = i < executor->run_streams ? 0
                         : i < low                 ? DEVICE_STREAM_HIGH_PRIORITY
                                                   : DEVICE_STREAM_LOW_PRIORITY;
        plasmon_status_t status =
            device_stream_create(executor->device, flags, &executor->streams[i]);

        if (status != PLASMON_OK) {
            return status;
        }
        executor->stream_count++;
    }
    return PLASMON_OK;
}

static plasmon_status_t timelines_register(struct worker_executor *executor)
{
    struct worker_shared *shared = executor->shared;
    plasmon_status_t status      = PLASMON_OK;

    for (uint32_t i = 0; status == PLASMON_OK && i < shared->host_device_count; i++) {
        status = device_host_register(executor->device, shared->timelines[i],
                                      shared->timeline_bytes);
    }
    return status;
}

/* What fails on a GPU is marked in our timeline by the device itself, before its word. */
static plasmon_status_t failures_mark(struct worker_executor *executor, struct pl_err *err)
{
    struct kernel_marks marks = {
        .count = STORE_RING, .bit = STORE_RING_FAILED, .shift = STORE_RING_SEQ_SHIFT};
    plasmon_status_t status = PLASMON_OK;

    if (device_get_info(executor->device)->kind == DEVICE_CUDA) {
        status = device_host_address(executor->device, own_timeline(executor)->ring,
                                     sizeof(own_timeline(executor)->ring), &marks.entries);
        if (status != PLASMON_OK) {
            return pl_err_set(err, status, "the device does not reach its own timeline");
        }
        kernel_context_set_marks(executor->kernels, &marks);
    }
    return PLASMON_OK;
}

plasmon_status_t worker_executor_init(struct worker_executor *executor,
                                      struct device *device, struct kernel_context *kernels,
                                      struct worker_shared *shared,
                                      struct worker_memory *memory, uint32_t run_streams,
                                      const struct worker_reports *reports,
                                      struct pl_err *err)
{
    plasmon_status_t status;

    memset(executor, 0, sizeof(*executor));
    executor->device      = device;
    executor->kernels     = kernels;
    executor->shared      = shared;
    executor->memory      = memory;
    executor->reports     = reports;
    executor->run_streams = run_streams;
    executor->check       = (struct worker_check){
              .device = device, .kernels = &executor->kernels, .core = &executor->core};
    worker_bulk_init(&executor->bulk);

    executor->notify_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (executor->notify_fd < 0) {
        return pl_err_set(err, PLASMON_ELIMIT, "no eventfd for completions");
    }
    status =
        worker_lanes_init(&executor->lanes, device, shared, memory, &executor->counters);
    if (status == PLASMON_OK) {
        status = worker_host_buffers_init(&executor->host_buffers, device, shared,
                                          executor->notify_fd);
    }
    if (status == PLASMON_OK) {
        status = timelines_register(executor);
    }
    if (status == PLASMON_OK) {
        status = streams_create(executor);
    }
    if (status == PLASMON_OK && device_get_info(device)->kind == DEVICE_CUDA) {
        status = worker_lanes_open(&executor->lanes);
    }
    if (status == PLASMON_OK) {
        status = worker_trace_init(&executor->trace, device, executor->run_streams);
    }
    if (status == PLASMON_OK) {
        status = worker_inline_init(&executor->puts, device);
    }
    if (status == PLASMON_OK) {
        status = worker_inline_init(&executor->reads, device);
    }
    if (status != PLASMON_OK) {
        return pl_err_set(err, status, "streams and timelines of the device: %s",
                          pl_status_text(status));
    }
    status = worker_functions_init(&executor->functions, device, &executor->core,
                                   &executor->kernels, executor->notify_fd,
                                   op_report_function, executor, err);
    return status == PLASMON_OK ? failures_mark(executor, err) : status;
}

void worker_executor_finish(struct worker_executor *executor)
{
    for (uint32_t i = 0; i < executor->stream_count; i++) {
        device_stream_destroy(executor->streams[i]);
        for (uint32_t slot = 0; slot < WORKER_MARKS; slot++) {
            device_event_destroy(executor->marks[i][slot]);
        }
    }
    transfer_pairs_destroy(executor->pairs);
    worker_bulk_finish(&executor->bulk);
    worker_lanes_finish(&executor->lanes);
    worker_host_buffers_finish(&executor->host_buffers);
    worker_trace_finish(&executor->trace);
    worker_check_finish(&executor->check);
    worker_functions_finish(&executor->functions);
    worker_inline_finish(&executor->puts);
    worker_inline_finish(&executor->reads);
    if (executor->kernels != NULL) {
        kernel_context_destroy(executor->kernels);
    }
    pl_fd_close(&executor->notify_fd);
}

plasmon_status_t worker_executor_health(struct worker_executor *executor,
                                        struct pl_err *err)
{
    plasmon_status_t status = device_health(executor->device, err);

    if (status == PLASMON_OK) {
        (void)worker_executor_must(executor, worker_lanes_health(&executor->lanes));
    }
    if (status == PLASMON_OK && executor->broken != PLASMON_OK) {
        status = pl_err_set(err, executor->broken, "the device refused a call: %s",
                            pl_status_text(executor->broken));
    }
    return status;
}
