/*
 * Ways to copy between devices without Plasmon. Each enqueues and returns.
 *
 * NOBODY WAITS FOR EVER. One thread enqueues everything, and what is enqueued waits only for what
 * was enqueued before it: halves of a chunk one after the other, pieces of a chain device by
 * device. Halves that go out have a stream of their own, so that a device sends and receives at the
 * same time.
 */
#include "bench/raw_copy.h"

/* --------------------------------------------------------------------------------- peer */

static plasmon_status_t pull(struct raw *raw, uint32_t to, enum raw_stream stream,
                             uint32_t from, uint64_t at, uint64_t bytes)
{
    struct raw_device *it = &raw->device[to];

    return device_copy(it->stream[stream], DEVICE_COPY_DEVICE_TO_DEVICE,
                       it->memory.addr + raw->offset + at,
                       it->source[from].addr + raw->bytes + raw->offset + at, bytes);
}

plasmon_status_t raw_peer(struct raw *raw, uint32_t to, uint64_t bytes)
{
    return pull(raw, to, RAW_IN, 0, 0, bytes);
}

plasmon_status_t raw_peer_all(struct raw *raw, uint32_t to, uint64_t bytes)
{
    plasmon_status_t status = PLASMON_OK;

    for (uint32_t i = 1; i < raw->count && status == PLASMON_OK; i++) {
        status = pull(raw, to, RAW_IN, (to + i) % raw->count, 0, bytes);
    }
    return status;
}

plasmon_status_t raw_peer_duplex(struct raw *raw, uint32_t to, uint64_t bytes)
{
    return pull(raw, to, RAW_IN, 1 - to, 0, bytes);
}

/* The next value of the word that belongs to `of`, written by `by` of the same device. */
static plasmon_status_t write_word(struct raw *raw, uint32_t device, enum raw_stream of,
                                   enum raw_stream by)
{
    struct raw_ring *ring = &raw->device[device].ring;

    return device_signal(raw->device[device].stream[by], ring->word[of],
                         ++ring->written[of]);
}

/* What came to the one before lies where things come to, not where they go from. */
static plasmon_status_t pass_on(struct raw *raw, uint32_t to, uint64_t at, uint64_t bytes)
{
    struct raw_device *it = &raw->device[to];

    return device_copy(it->stream[RAW_IN], DEVICE_COPY_DEVICE_TO_DEVICE,
                       it->memory.addr + raw->offset + at,
                       it->source[to - 1].addr + raw->offset + at, bytes);
}

plasmon_status_t raw_peer_chain(struct raw *raw, uint32_t to, uint64_t bytes)
{
    const struct raw_ring *before = &raw->device[to - 1].ring;
    uint64_t pieces               = (bytes + RAW_PIECE_BYTES - 1) / RAW_PIECE_BYTES;
    plasmon_status_t status       = PLASMON_OK;

    for (uint64_t i = 0; i < pieces && status == PLASMON_OK; i++) {
        uint64_t at     = i * RAW_PIECE_BYTES;
        uint64_t length = pl_min_u64(RAW_PIECE_BYTES, bytes - at);

        if (to == 1) {
            status = pull(raw, to, RAW_IN, 0, at, length);
        } else {
            status = device_wait(raw->device[to].stream[RAW_IN], before->word[RAW_IN],
                                 before->written[RAW_IN] - pieces + i + 1);
            if (status == PLASMON_OK) {
                status = pass_on(raw, to, at, length);
            }
        }
        if (status == PLASMON_OK) {
            status = write_word(raw, to, RAW_IN, RAW_IN);
        }
    }
    return status;
}

plasmon_status_t raw_peer_word(struct raw *raw, uint32_t to, uint64_t bytes)
{
    plasmon_status_t status = pull(raw, to, RAW_IN, 0, 0, bytes);

    return status == PLASMON_OK ? write_word(raw, to, RAW_IN, RAW_IN) : status;
}

plasmon_status_t raw_peer_word_turns(struct raw *raw, uint32_t to, uint64_t bytes)
{
    enum raw_stream stream  = raw->turn++ % 2 == 0 ? RAW_IN : RAW_SECOND;
    plasmon_status_t status = pull(raw, to, stream, 0, 0, bytes);

    return status == PLASMON_OK ? write_word(raw, to, stream, stream) : status;
}

plasmon_status_t raw_peer_word_beside(struct raw *raw, uint32_t to, uint64_t bytes)
{
    struct raw_device *it   = &raw->device[to];
    plasmon_status_t status = pull(raw, to, RAW_IN, 0, 0, bytes);

    if (status == PLASMON_OK) {
        status = device_stream_join(it->stream[RAW_WORDS], it->stream[RAW_IN]);
    }
    return status == PLASMON_OK ? write_word(raw, to, RAW_IN, RAW_WORDS) : status;
}

plasmon_status_t raw_peer_halves(struct raw *raw, uint32_t to, uint64_t bytes)
{
    uint64_t half           = bytes / 2 / 4096 * 4096;
    plasmon_status_t status = pull(raw, to, RAW_SECOND, 0, half, bytes - half);

    return status == PLASMON_OK && half > 0 ? pull(raw, to, RAW_IN, 0, 0, half) : status;
}

/* --------------------------------------------------------------------------------- host */

static uint64_t slot_of(const struct raw_ring *ring, uint64_t chunk)
{
    return (uint64_t)(uintptr_t)ring->slab + chunk % RAW_SLOTS * RAW_SLOT_BYTES;
}

static plasmon_status_t send_chunk(struct raw *raw, uint32_t from, struct raw_ring *ring,
                                   uint64_t at, uint64_t bytes)
{
    struct raw_device *it        = &raw->device[from];
    struct device_stream *stream = it->stream[RAW_OUT];
    uint64_t chunk               = ring->chunks;
    plasmon_status_t status      = PLASMON_OK;

    if (chunk >= RAW_SLOTS) {
        status = device_wait(stream, ring->taken, chunk + 1 - RAW_SLOTS);
    }
    if (status == PLASMON_OK) {
        status = device_copy(stream, DEVICE_COPY_DEVICE_TO_HOST, slot_of(ring, chunk),
                             it->memory.addr + raw->bytes + raw->offset + at, bytes);
    }
    return status == PLASMON_OK
               ? device_signal(stream, ring->ready[chunk % RAW_SLOTS], chunk + 1)
               : status;
}

static plasmon_status_t take_chunk(struct raw *raw, uint32_t to, uint64_t at,
                                   uint64_t bytes)
{
    struct raw_device *it        = &raw->device[to];
    struct raw_ring *ring        = &it->ring;
    struct device_stream *stream = it->stream[RAW_IN];
    uint64_t chunk               = ring->chunks++;
    plasmon_status_t status =
        device_wait(stream, ring->ready[chunk % RAW_SLOTS], chunk + 1);

    if (status == PLASMON_OK) {
        status =
            device_copy(stream, DEVICE_COPY_HOST_TO_DEVICE,
                        it->memory.addr + raw->offset + at, slot_of(ring, chunk), bytes);
    }
    return status == PLASMON_OK ? device_signal(stream, ring->taken, chunk + 1) : status;
}

static plasmon_status_t stage(struct raw *raw, uint32_t to, uint32_t from, uint64_t bytes)
{
    plasmon_status_t status = PLASMON_OK;

    for (uint64_t at = 0; at < bytes && status == PLASMON_OK; at += RAW_SLOT_BYTES) {
        uint64_t length = pl_min_u64(RAW_SLOT_BYTES, bytes - at);

        status = send_chunk(raw, from, &raw->device[to].ring, at, length);
        if (status == PLASMON_OK) {
            status = take_chunk(raw, to, at, length);
        }
    }
    return status;
}

plasmon_status_t raw_host(struct raw *raw, uint32_t to, uint64_t bytes)
{
    return stage(raw, to, 0, bytes);
}

plasmon_status_t raw_host_all(struct raw *raw, uint32_t to, uint64_t bytes)
{
    plasmon_status_t status = PLASMON_OK;

    for (uint32_t i = 1; i < raw->count && status == PLASMON_OK; i++) {
        status = stage(raw, to, (to + i) % raw->count, bytes);
    }
    return status;
}

plasmon_status_t raw_host_duplex(struct raw *raw, uint32_t to, uint64_t bytes)
{
    return stage(raw, to, 1 - to, bytes);
}
