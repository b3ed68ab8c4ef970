/*
 * A ring of messages in memory that two processes share: one direction, one sender, one reader.
 *
 *   sender   copies a message behind the others, moves `written`, and wakes the reader's loop where
 *            that has gone to rest
 *   reader   copies the first message out, moves `read`, and wakes the sender's loop where somebody
 *            there waits for that
 *
 * REST  `reader` says what the reader's loop does. AWAKE: it looks into its rings before it rests.
 * PAUSES, SLEEPS: it must be woken, and by what. Who rests says so first and then looks once more;
 * who wants to wake moves `written` (or `read`) first and then looks whether somebody rests. All
 * these words are accessed in one order (SEQ_CST), so one of the two sees the other, and no message
 * is left lying. Who takes it upon itself to wake sets AWAKE with an exchange, so that one of many does it.
 * The same for `waits`.
 *
 * TRUST  The other side may write anything at any time. Each keeps its own position in memory of
 * its own, reads a word of the other's once, and checks it; a message is looked at only where it
 * was copied to. What a liar gets wrong is his own stream.
 *
 * Threads: sender's functions under a lock of the sender's, reader's on one thread. Both sides may
 * be in one process.
 */
#ifndef RPC_RING_H
#define RPC_RING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RPC_RING_BYTES       (UINT32_C(128) << 10) /* a power of two */
#define RPC_RING_MESSAGE_MAX (UINT32_C(16) << 10)

enum rpc_rest { RPC_REST_AWAKE, RPC_REST_PAUSES, RPC_REST_SLEEPS };

/* In shared memory; all zero is an empty ring whose reader is awake. */
struct rpc_ring {
    /* By the sender. */
    _Alignas(64) uint64_t written; /* bytes, ever */
    uint32_t waits; /* tell when `read` moves; reset by the reader, who does */
    /* By the reader. */
    _Alignas(64) uint64_t read; /* bytes, ever */
    uint32_t reader;            /* enum rpc_rest; AWAKE by the sender as well */
    _Alignas(64) uint8_t bytes[RPC_RING_BYTES];
};

/* ------------------------------------------------------------------------------- sender */

struct rpc_ring_out {
    struct rpc_ring *ring;
    /* Atomic: rpc_ring_caught_up() may be asked by any thread. */
    uint64_t written;
    uint64_t last; /* where the last message begins */
};
/*
 * A message of at most RPC_RING_MESSAGE_MAX bytes, NULL for one that goes elsewhere and has its
 * place in the order here. false: there is no room.
 */
bool rpc_ring_put(struct rpc_ring_out *out, const uint8_t *bytes, uint32_t length);
/* At most one message has not been taken; or, when asked for that, half of the ring at most. */
bool rpc_ring_caught_up(const struct rpc_ring_out *out, bool half);
/* The reader is to tell when it has taken something; look again after this. */
void rpc_ring_want(struct rpc_ring_out *out);
/*
 * After something that the other side's loop should see: what it must be woken from, by the caller;
 * AWAKE: nothing.
 */
enum rpc_rest rpc_ring_rouse(struct rpc_ring_out *out);

/* ------------------------------------------------------------------------------- reader */

struct rpc_ring_in {
    struct rpc_ring *ring;
    uint64_t read;
};
enum rpc_ring_first {
    RPC_RING_EMPTY,
    RPC_RING_MESSAGE,
    RPC_RING_ELSEWHERE,
    RPC_RING_BROKEN, /* no sender writes that */
};
/* *out_length: of a message. */
enum rpc_ring_first rpc_ring_first(const struct rpc_ring_in *in, uint32_t *out_length);
/*
 * Takes what rpc_ring_first() told, its bytes into `out`. true: the sender's loop is to be roused,
 * for somebody there waits.
 */
bool rpc_ring_take(struct rpc_ring_in *in, uint8_t *out, uint32_t length);
/*
 * Behind all that lies in it now: who takes as far as that is done at some time, however fast the
 * sender writes.
 */
uint64_t rpc_ring_end(const struct rpc_ring_in *in);
/* Any thread, for what it has done before this: will the reader's loop look before it rests? */
bool rpc_ring_reader_awake(const struct rpc_ring_in *in);
/* Look once more before resting. */
void rpc_ring_rest(struct rpc_ring_in *in, enum rpc_rest rest);

#endif
