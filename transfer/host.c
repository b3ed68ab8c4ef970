/*
 * The host route: through the receiver's staging slab, a ring of STORE_STAGE_SLOTS slots in shared
 * host memory.
 *
 * Chunks that go to one receiver are numbered by the head, 0, 1, 2 .., whoever sends them. Chunk c
 * uses slot c % SLOTS.
 *
 *   sender     wait   stage_taken >= c + 1 - SLOTS     the chunk that was in the slot is out
 *              copy   device -> slot
 *              write  stage_ready[slot] = c + 1
 *   receiver   wait   stage_ready[slot] >= c + 1
 *              copy   slot -> device
 *              write  stage_taken = c + 1              in order: the receiver has one stream for this
 *
 * Each half enqueues all of this at once; the two devices then pass chunks to each other with up to
 * SLOTS in flight, so both directions of the bus are busy at the same time and no host thread takes
 * part. (8 MiB chunks: 54 of 55 GB/s, limits.md.)
 *
 * AFTER A CRASH a half comes again under the same chunk numbers, while the other one may be
 * anywhere. What the words show as done is left out. A chunk that is ready must not be written
 * again: its receiver may take it at any moment, and then the slot is somebody else's. A chunk that
 * was taken cannot be had again, and need not be: taken is written after the copy, and the
 * receiver's buffer outlived the worker. A chunk between the two is done again, which nobody can
 * tell.
 */
#include "transfer/transfer.h"

#include "base/fault.h"

static uint64_t word_load(uint64_t *word)
{
    return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

static uint64_t chunk_bytes(uint64_t index, uint64_t bytes)
{
    return pl_min_u64(bytes - index * STORE_STAGE_SLOT_BYTES, STORE_STAGE_SLOT_BYTES);
}

static uint64_t slot_address(const struct transfer_ring *ring, uint64_t chunk)
{
    return (uint64_t)(uintptr_t)ring->slab +
           chunk % STORE_STAGE_SLOTS * (uint64_t)STORE_STAGE_SLOT_BYTES;
}

static plasmon_status_t chunk_send(struct device_stream *stream,
                                   const struct transfer_ring *ring, uint64_t chunk,
                                   struct device_ptr src, uint64_t bytes)
{
    uint64_t *ready         = &ring->timeline->stage_ready[chunk % STORE_STAGE_SLOTS].value;
    plasmon_status_t status = PLASMON_OK;

    if (pl_fault_point("transfer.stage_send")) {
        return PLASMON_EDEVICE;
    }
    if (word_load(ready) > chunk || word_load(&ring->timeline->stage_taken.value) > chunk) {
        return PLASMON_OK; /* delivered before a crash, or by a pair */
    }
    if (chunk + 1 > STORE_STAGE_SLOTS) {
        status = device_wait(stream, &ring->timeline->stage_taken.value,
                             chunk + 1 - STORE_STAGE_SLOTS);
    }
    if (status == PLASMON_OK && bytes != 0) {
        status = device_copy(stream, DEVICE_COPY_DEVICE_TO_HOST, slot_address(ring, chunk),
                             src.addr, bytes);
    }
    if (status == PLASMON_OK) {
        status = device_signal(stream, ready, chunk + 1);
    }
    return status;
}

static plasmon_status_t chunk_recv(struct device_stream *stream,
                                   const struct transfer_ring *ring, uint64_t chunk,
                                   struct device_ptr dst, uint64_t bytes)
{
    uint64_t *taken = &ring->timeline->stage_taken.value;
    plasmon_status_t status;

    if (pl_fault_point("transfer.stage_recv")) {
        return PLASMON_EDEVICE;
    }
    if (word_load(taken) > chunk) {
        return PLASMON_OK; /* taken out before a crash */
    }
    status = device_wait(
        stream, &ring->timeline->stage_ready[chunk % STORE_STAGE_SLOTS].value, chunk + 1);
    if (status == PLASMON_OK && bytes != 0) {
        status = device_copy(stream, DEVICE_COPY_HOST_TO_DEVICE, dst.addr,
                             slot_address(ring, chunk), bytes);
    }
    if (status == PLASMON_OK) {
        status = device_signal(stream, taken, chunk + 1);
    }
    return status;
}

plasmon_status_t transfer_stage_send(struct device_stream *stream,
                                     const struct transfer_ring *ring, uint64_t first,
                                     struct device_ptr src, uint64_t bytes, bool with_bytes)
{
    plasmon_status_t status = PLASMON_OK;

    for (uint64_t i = 0; status == PLASMON_OK && i < transfer_chunks(bytes); i++) {
        status = chunk_send(stream, ring, first + i,
                            device_ptr_add(src, i * STORE_STAGE_SLOT_BYTES),
                            with_bytes ? chunk_bytes(i, bytes) : 0);
    }
    return status;
}

plasmon_status_t transfer_stage_recv(struct device_stream *stream,
                                     const struct transfer_ring *ring, uint64_t first,
                                     struct device_ptr dst, uint64_t bytes, bool with_bytes,
                                     struct transfer_counters *counters)
{
    plasmon_status_t status = PLASMON_OK;

    for (uint64_t i = 0; status == PLASMON_OK && i < transfer_chunks(bytes); i++) {
        status = chunk_recv(stream, ring, first + i,
                            device_ptr_add(dst, i * STORE_STAGE_SLOT_BYTES),
                            with_bytes ? chunk_bytes(i, bytes) : 0);
    }
    if (status == PLASMON_OK && with_bytes) {
        transfer_count(counters, TRANSFER_HOST, bytes);
    }
    return status;
}
