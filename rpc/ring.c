#include "rpc/ring.h"

#include <string.h>

#include "base/base.h"

/*
 * Before each message, 8 bytes: its length, or that it goes elsewhere. Messages begin at multiples
 * of 8, so that one of these never lies across the end.
 */
#define HEAD_BYTES 8u
#define ELSEWHERE  UINT64_MAX

static uint32_t bytes_of(uint32_t length)
{
    return HEAD_BYTES + (length + 7u) / 8u * 8u;
}

static uint32_t place_of(uint64_t position)
{
    return (uint32_t)(position & (RPC_RING_BYTES - 1));
}

/* ------------------------------------------------------------------------------- sender */

static void copy_in(struct rpc_ring *ring, uint64_t position, const uint8_t *bytes,
                    uint32_t length)
{
    uint32_t place = place_of(position);
    uint32_t first = RPC_RING_BYTES - place < length ? RPC_RING_BYTES - place : length;

    memcpy(ring->bytes + place, bytes, first);
    memcpy(ring->bytes, bytes + first, length - first);
}

bool rpc_ring_put(struct rpc_ring_out *out, const uint8_t *bytes, uint32_t length)
{
    struct rpc_ring *ring = out->ring;
    uint64_t head         = bytes != NULL ? length : ELSEWHERE;
    uint32_t needed       = bytes_of(bytes != NULL ? length : 0);
    uint64_t used         = out->written - __atomic_load_n(&ring->read, __ATOMIC_SEQ_CST);

    if (used > RPC_RING_BYTES || RPC_RING_BYTES - used < needed) {
        return false;
    }
    copy_in(ring, out->written, (const uint8_t *)&head, HEAD_BYTES);
    if (bytes != NULL) {
        copy_in(ring, out->written + HEAD_BYTES, bytes, length);
    }
    __atomic_store_n(&out->last, out->written, __ATOMIC_RELAXED);
    __atomic_store_n(&out->written, out->written + needed, __ATOMIC_RELAXED);
    __atomic_store_n(&ring->written, out->written, __ATOMIC_SEQ_CST);
    return true;
}

bool rpc_ring_caught_up(const struct rpc_ring_out *out, bool half)
{
    uint64_t read = __atomic_load_n(&out->ring->read, __ATOMIC_SEQ_CST);

    return read >= __atomic_load_n(&out->last, __ATOMIC_RELAXED) ||
           (half &&
            __atomic_load_n(&out->written, __ATOMIC_RELAXED) - read <= RPC_RING_BYTES / 2);
}

void rpc_ring_want(struct rpc_ring_out *out)
{
    __atomic_store_n(&out->ring->waits, 1, __ATOMIC_SEQ_CST);
}

enum rpc_rest rpc_ring_rouse(struct rpc_ring_out *out)
{
    uint32_t *reader = &out->ring->reader;
    uint32_t rest;

    if (__atomic_load_n(reader, __ATOMIC_SEQ_CST) == RPC_REST_AWAKE) {
        return RPC_REST_AWAKE;
    }
    rest = __atomic_exchange_n(reader, RPC_REST_AWAKE, __ATOMIC_SEQ_CST);
    return rest == RPC_REST_PAUSES || rest == RPC_REST_AWAKE ? (enum rpc_rest)rest
                                                             : RPC_REST_SLEEPS;
}

/* ------------------------------------------------------------------------------- reader */

enum rpc_ring_first rpc_ring_first(const struct rpc_ring_in *in, uint32_t *out_length)
{
    const struct rpc_ring *ring = in->ring;
    uint64_t used = __atomic_load_n(&ring->written, __ATOMIC_SEQ_CST) - in->read;
    uint64_t head;

    *out_length = 0;
    if (used == 0) {
        return RPC_RING_EMPTY;
    }
    if (used > RPC_RING_BYTES || used < HEAD_BYTES) {
        return RPC_RING_BROKEN;
    }
    head =
        __atomic_load_n((const uint64_t *)(const void *)(ring->bytes + place_of(in->read)),
                        __ATOMIC_RELAXED);
    if (head == ELSEWHERE) {
        return RPC_RING_ELSEWHERE;
    }
    if (head > RPC_RING_MESSAGE_MAX || bytes_of((uint32_t)head) > used) {
        return RPC_RING_BROKEN;
    }
    *out_length = (uint32_t)head;
    return RPC_RING_MESSAGE;
}

bool rpc_ring_take(struct rpc_ring_in *in, uint8_t *out, uint32_t length)
{
    struct rpc_ring *ring = in->ring;
    uint32_t place        = place_of(in->read + HEAD_BYTES);
    uint32_t first = RPC_RING_BYTES - place < length ? RPC_RING_BYTES - place : length;

    if (length > 0) {
        memcpy(out, ring->bytes + place, first);
        memcpy(out + first, ring->bytes, length - first);
    }
    in->read += bytes_of(length);
    __atomic_store_n(&ring->read, in->read, __ATOMIC_SEQ_CST);
    return __atomic_load_n(&ring->waits, __ATOMIC_SEQ_CST) != 0 &&
           __atomic_exchange_n(&ring->waits, 0, __ATOMIC_SEQ_CST) != 0;
}

uint64_t rpc_ring_end(const struct rpc_ring_in *in)
{
    uint64_t used = __atomic_load_n(&in->ring->written, __ATOMIC_SEQ_CST) - in->read;

    return in->read + pl_min_u64(used, RPC_RING_BYTES);
}

bool rpc_ring_reader_awake(const struct rpc_ring_in *in)
{
    return __atomic_load_n(&in->ring->reader, __ATOMIC_SEQ_CST) == RPC_REST_AWAKE;
}

void rpc_ring_rest(struct rpc_ring_in *in, enum rpc_rest rest)
{
    __atomic_store_n(&in->ring->reader, (uint32_t)rest, __ATOMIC_SEQ_CST);
}
