/*
 * Receiving in place: on a CPU device the bytes of another host go from the socket to where they
 * belong, and not through a slot of the ring.
 *
 * A receive's half is put on its stream as
 *
 *   begin    says that the memory of chunks first .. first + count - 1 may be written from now on
 *   chunk c  waits for ready[c], and copies it out of its slot if it lies there
 *   end      says that it may not any more
 *
 * and a connection's thread that has a chunk to read asks first (bulk_place_find). If the place is
 * open it reads there, and moves the words itself: `taken`, then `ready`. If not, for the half has
 * not begun, the chunk goes into its slot as on any device.
 *
 * WHO MOVES `taken`. One at a time, in the order of chunks: the thread reads chunk c in place only
 * when taken is c, and the stream does nothing about a chunk that was taken. Between the two words
 * the slot's next chunk may come, by another connection, and say ready first; so a thread raises
 * `ready` and never sets it back. Chunks before c that lie in slots are the stream's; the thread
 * waits for it to copy them, and only when all of them are ready and their half is the one that is
 * open: so it waits for copies that run, and for nobody's bytes.
 *
 * WHO WRITES THE PLACE. Only the connection of the device that the half names, of which there is
 * one at a time, and it says ready after its last write. The end comes when all chunks are ready.
 * So nobody writes the memory any more when the half is over.
 *
 * AFTER A CRASH `taken` tells which chunks are in place, as it does when the stream has copied
 * them: it is moved before the chunk is answered.
 *
 * The streams may run what was put on them after the channel is gone. So what they and the channel
 * share is held by both.
 */
#include <stdatomic.h>
#include <string.h>

#include "base/alloc.h"
#include "transfer/bulk_int.h"

struct bulk_place_board {
    atomic_uint holds;

    struct pl_mutex lock; /* rank PL_RANK_LEAF */
    uint32_t peer;
    uint64_t first;
    uint64_t count; /* 0: no place is open */
    uint8_t *data;
    uint64_t bytes;
};

plasmon_status_t bulk_place_create(struct bulk_place_board **out_board)
{
    struct bulk_place_board *board = PL_NEW(struct bulk_place_board);

    if (board == NULL || pl_mutex_init(&board->lock, PL_RANK_LEAF) != PLASMON_OK) {
        pl_free(board);
        return PLASMON_ENOMEM;
    }
    atomic_init(&board->holds, 1);
    *out_board = board;
    return PLASMON_OK;
}

void bulk_place_release(struct bulk_place_board *board)
{
    if (board != NULL && atomic_fetch_sub(&board->holds, 1) == 1) {
        pl_mutex_finish(&board->lock);
        pl_free(board);
    }
}

/* -------------------------------------------------------------------- the stream's part */

struct place_begin {
    struct bulk_place_board *board;
    uint32_t peer;
    uint64_t first;
    uint8_t *data;
    uint64_t bytes;
};

static plasmon_status_t run_begin(void *args, struct pl_err *err)
{
    const struct place_begin *begin = args;
    struct bulk_place_board *board  = begin->board;

    (void)err;
    pl_mutex_lock(&board->lock);
    board->peer  = begin->peer;
    board->first = begin->first;
    board->count = transfer_chunks(begin->bytes);
    board->data  = begin->data;
    board->bytes = begin->bytes;
    pl_mutex_unlock(&board->lock);
    return PLASMON_OK;
}

struct place_chunk {
    struct transfer_ring ring;
    uint64_t chunk;
    uint8_t *data;
    uint64_t bytes;
};

static plasmon_status_t run_chunk(void *args, struct pl_err *err)
{
    const struct place_chunk *it = args;
    uint64_t *taken              = &it->ring.timeline->stage_taken.value;

    (void)err;
    /* Acquire: pairs with the thread's write after it read the chunk in place. */
    if (__atomic_load_n(taken, __ATOMIC_ACQUIRE) > it->chunk) {
        return PLASMON_OK;
    }
    memcpy(it->data,
           it->ring.slab + it->chunk % STORE_STAGE_SLOTS * (uint64_t)STORE_STAGE_SLOT_BYTES,
           it->bytes);
    /* Release: the slot was read, the bytes are in place. */
    __atomic_store_n(taken, it->chunk + 1, __ATOMIC_RELEASE);
    device_word_wake(taken);
    return PLASMON_OK;
}

static plasmon_status_t run_end(void *args, struct pl_err *err)
{
    struct bulk_place_board *board = *(struct bulk_place_board **)args;

    (void)err;
    pl_mutex_lock(&board->lock);
    board->count = 0;
    pl_mutex_unlock(&board->lock);
    bulk_place_release(board);
    return PLASMON_OK;
}

static plasmon_status_t chunks_enqueue(const struct transfer_ring *ring,
                                       struct device_stream *stream,
                                       const struct place_begin *begin)
{
    plasmon_status_t status = PLASMON_OK;

    for (uint64_t i = 0; status == PLASMON_OK && i < transfer_chunks(begin->bytes); i++) {
        uint64_t done         = i * STORE_STAGE_SLOT_BYTES;
        struct place_chunk it = {
            .ring  = *ring,
            .chunk = begin->first + i,
            .data  = begin->data + done,
            .bytes = pl_min_u64(begin->bytes - done, STORE_STAGE_SLOT_BYTES),
        };

        if (__atomic_load_n(&ring->timeline->stage_taken.value, __ATOMIC_ACQUIRE) >
            it.chunk) {
            continue; /* before a crash */
        }
        status = device_wait(
            stream, &ring->timeline->stage_ready[it.chunk % STORE_STAGE_SLOTS].value,
            it.chunk + 1);
        if (status == PLASMON_OK) {
            status = device_cpu_launch(stream, run_chunk, &it, sizeof(it), 0);
        }
    }
    return status;
}

plasmon_status_t bulk_place_recv(struct bulk_place_board *board,
                                 const struct transfer_ring *ring,
                                 struct device_stream *stream, uint32_t peer,
                                 uint64_t first, uint8_t *data, uint64_t bytes)
{
    struct place_begin begin = {
        .board = board, .peer = peer, .first = first, .data = data, .bytes = bytes};
    plasmon_status_t status;

    atomic_fetch_add(&board->holds, 1); /* the stream's, until the end */
    status = device_cpu_launch(stream, run_begin, &begin, sizeof(begin), 0);
    if (status == PLASMON_OK) {
        status = chunks_enqueue(ring, stream, &begin);
    }
    if (status == PLASMON_OK) {
        status = device_cpu_launch(stream, run_end, &board, sizeof(board), 0);
    }
    return status; /* a failure ends the process: the other half would wait for ever */
}

/* -------------------------------------------------------------------- the thread's part */

/* All from `taken` to it are in their slots, so that the stream is copying them. */
static bool all_ready(const struct transfer_ring *ring, uint64_t taken, uint64_t chunk)
{
    for (uint64_t c = taken; c < chunk; c++) {
        if (__atomic_load_n(&ring->timeline->stage_ready[c % STORE_STAGE_SLOTS].value,
                            __ATOMIC_ACQUIRE) <= c) {
            return false;
        }
    }
    return true;
}

plasmon_status_t bulk_place_find(struct bulk_place_board *board,
                                 const struct transfer_ring *ring, uint32_t peer,
                                 uint64_t chunk, uint64_t bytes, uint8_t **out_data)
{
    /* Acquire: pairs with the stream's writes, and with those of the threads of other connections. */
    uint64_t taken = __atomic_load_n(&ring->timeline->stage_taken.value, __ATOMIC_ACQUIRE);
    plasmon_status_t status = PLASMON_OK;
    uint64_t done;

    *out_data = NULL;
    pl_mutex_lock(&board->lock);
    if (board->count != 0 && board->peer == peer && chunk >= board->first &&
        chunk - board->first < board->count && taken >= board->first && bytes != 0) {
        done = (chunk - board->first) * STORE_STAGE_SLOT_BYTES;
        if (bytes != pl_min_u64(board->bytes - done, STORE_STAGE_SLOT_BYTES)) {
            status = PLASMON_EMALFORMED;
        } else if (taken == chunk) {
            *out_data = board->data + done;
        } else if (taken < chunk && all_ready(ring, taken, chunk)) {
            status = PLASMON_EAGAIN;
        }
    }
    pl_mutex_unlock(&board->lock);
    return status;
}

void bulk_place_filled(const struct transfer_ring *ring, uint64_t chunk)
{
    uint64_t *taken = &ring->timeline->stage_taken.value;

    /*
     * Release: the bytes are in place before the word; and before the chunk's ready, which the
     * stream waits for.
     */
    __atomic_store_n(taken, chunk + 1, __ATOMIC_RELEASE);
    device_word_wake(taken);
}
