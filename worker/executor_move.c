/* The executor's copies: between chunks, through staging rings and the bulk channel, and with host memory. */
#include "worker/executor_int.h"

plasmon_status_t worker_op_copy(void *user, uint32_t stream, const struct pl_box *box,
                                uint32_t element_bytes, uint64_t dst_offset,
                                const struct pl_box *dst_frame, uint32_t src_host_device,
                                uint64_t src_offset, const struct pl_box *src_frame,
                                uint64_t seq)
{
    struct worker_executor *executor = user;
    bool peer                        = src_host_device != executor->shared->host_device;
    struct device_ptr src            = worker_memory_own(executor->memory, src_offset);
    uint64_t bytes                   = (uint64_t)pl_box_elements(src_frame) * element_bytes;
    plasmon_status_t status;

    (void)seq; /* what is put in here does not fail later */
    if (peer) {
        status =
            worker_memory_peer(executor->memory, src_host_device, src_offset, bytes, &src);

        if (status != PLASMON_OK) {
            return status;
        }
    }
    status = transfer_copy(executor->streams[stream], box, element_bytes,
                           worker_memory_own(executor->memory, dst_offset), dst_frame, src,
                           src_frame, peer, &executor->counters);
    if (status == PLASMON_OK && peer &&
        device_stream_engines(executor->streams[stream]) !=
            device_get_info(executor->device)->ordinal) {
        executor->written[src_host_device] +=
            (uint64_t)pl_box_elements(box) * element_bytes;
    }
    return status;
}

/*
 * Registered when first used: 128 MiB of pinned host memory a receiver are not for those who never
 * take this route.
 */
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

plasmon_status_t worker_op_stage_send(void *user, uint32_t stream, uint32_t to,
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

plasmon_status_t worker_op_stage_recv(void *user, uint32_t stream, uint32_t from,
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

plasmon_status_t worker_op_bulk_peer(void *user, uint32_t device, const char *address,
                                     const uint8_t *secret)
{
    struct worker_executor *executor = user;

    return worker_bulk_peer(&executor->bulk, device, address, secret);
}

plasmon_status_t worker_op_bulk_gone(void *user, uint32_t device)
{
    struct worker_executor *executor = user;

    return worker_bulk_gone(&executor->bulk, device);
}

plasmon_status_t worker_op_bulk_give_up(void *user, uint32_t device, bool receives,
                                        uint64_t first, uint64_t count)
{
    struct worker_executor *executor = user;

    return worker_bulk_give_up(&executor->bulk, device, receives, first, count);
}

plasmon_status_t worker_op_bulk_send(void *user, uint32_t stream, uint32_t to,
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

plasmon_status_t worker_op_bulk_recv(void *user, uint32_t stream, uint32_t from,
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

plasmon_status_t worker_op_bulk_expect(void *user, uint32_t from, uint64_t first_chunk,
                                       uint64_t bytes)
{
    struct worker_executor *executor = user;

    return worker_executor_must(
        executor, worker_bulk_expect(&executor->bulk, from, first_chunk, bytes));
}

plasmon_status_t worker_op_put(void *user, uint32_t stream, uint64_t dst_offset,
                               const uint8_t *bytes, uint64_t length)
{
    struct worker_executor *executor = user;

    transfer_count(&executor->counters, TRANSFER_INLINE, length);
    return worker_inline_put(&executor->puts, executor->streams[stream],
                             worker_memory_own(executor->memory, dst_offset), bytes,
                             length);
}

plasmon_status_t worker_op_read(void *user, uint32_t stream, uint64_t src_offset,
                                uint64_t length, uint64_t request)
{
    struct worker_executor *executor = user;

    transfer_count(&executor->counters, TRANSFER_INLINE, length);
    return worker_inline_read(&executor->reads, executor->streams[stream],
                              worker_memory_own(executor->memory, src_offset), length,
                              request);
}

/*
 * Unlike a lane's copies these are launches: they go into the device's streams in the one order.
 * The pages are locked, so the call that enqueues does not wait.
 */
static plasmon_status_t host_copy(struct worker_executor *executor, uint32_t stream,
                                  bool put, uint64_t device_offset, uint64_t host_buffer,
                                  uint64_t host_offset, uint64_t length, struct pl_err *err)
{
    uint64_t device = worker_memory_own(executor->memory, device_offset).addr;
    uint64_t host   = (uint64_t)(uintptr_t)worker_host_buffers_at(
          &executor->host_buffers, host_buffer, host_offset, length, err);
    plasmon_status_t status = PLASMON_OK;
    uint64_t run;

    if (host == 0) {
        return err->status;
    }
    for (uint64_t at = 0; status == PLASMON_OK && at < length; at += run) {
        run    = device_host_run(host_offset + at, length - at);
        status = device_copy(executor->streams[stream],
                             put ? DEVICE_COPY_HOST_TO_DEVICE : DEVICE_COPY_DEVICE_TO_HOST,
                             (put ? device : host) + at, (put ? host : device) + at, run);
    }
    if (status == PLASMON_OK) {
        transfer_count(&executor->counters, TRANSFER_HOST_BUFFER, length);
    }
    return status;
}

plasmon_status_t worker_op_put_host(void *user, uint32_t stream, uint64_t dst_offset,
                                    uint64_t host_buffer, uint64_t host_offset,
                                    uint64_t length, struct pl_err *err)
{
    return host_copy(user, stream, true, dst_offset, host_buffer, host_offset, length, err);
}

plasmon_status_t worker_op_get_host(void *user, uint32_t stream, uint64_t src_offset,
                                    uint64_t host_buffer, uint64_t host_offset,
                                    uint64_t length, struct pl_err *err)
{
    return host_copy(user, stream, false, src_offset, host_buffer, host_offset, length,
                     err);
}

bool worker_op_host_ready(void *user, uint64_t host_buffer, uint64_t host_offset,
                          uint64_t length)
{
    const struct worker_executor *executor = user;

    return !worker_host_buffers_locking(&executor->host_buffers, host_buffer, host_offset,
                                        length);
}
