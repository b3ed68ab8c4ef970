/*
 * Timelines: what is done on a device, readable by every process of the host without a message.
 *
 * A device's launches are numbered densely (seq 1, 2, 3 ..., by the head). Each launch is enqueued
 * on one of a few in-order streams. A stream's word says: every launch of mine up to this seq is
 * complete. So "launch n of device d is done" is
 *
 *     entry = ring[n % RING]          which stream n went to (release-stored when it was enqueued)
 *     word[entry.stream] >= n         written by the device itself, after its work
 *
 * The memory belongs to plasmon-store and outlives workers: a restarted worker reads from it what
 * had completed, enqueues the rest again under the same numbers on the same streams, and nobody who
 * waits notices more than a delay.
 *
 * BEGUN. The device writes the seq of a launch into `begun` of its stream when everything that the
 * launch waits for is done, and its work comes next. Not of every launch: of one that must not run
 * for ever, whose word comes right behind it, and of those that overwrite something in place
 * (worker/begun.c). So whoever watches knows when it began; and after a death, as long as `begun`
 * is below a launch whose begin is told, that launch and all behind it in its stream have touched
 * nothing. `known` says which launches these are, and what else the host knew of each when it
 * enqueued it. `held` says of a launch which other one's word it comes behind. Both are the
 * worker's alone, who is dead when they are read.
 *
 * BEFORE. Of its latest launches a device says which other words of its own were written before
 * they could begin (the worker's streams wait for each other). Who waits for such a launch need not
 * wait for those words as well (worker/before.c). What is said holds in every incarnation: it names
 * earlier launches of the device, and what is done over goes one after the other.
 *
 * BEAT. The worker counts it up, with each step of its start and then in its main loop; the store
 * fences a worker whose beat stands still.
 *
 * The host route's staging ring (transfer/host.c) has its words here too: both halves of a transfer
 * wait for each other's.
 *
 * All words are plain 64-bit integers because a GPU writes them; the host reads them with acquire.
 */
#ifndef STORE_TIMELINE_H
#define STORE_TIMELINE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/base.h"
#include "store/phases.h"

#define STORE_TIMELINE_MAGIC 0x706c736d746c3039ull /* "plsmtl09" */
#define STORE_STREAM_MAX     16u
#define STORE_RING           65536u /* launches; the head keeps fewer than half of it outstanding */
/* launches; more than are on a device, for of those that are done nobody asks */
#define STORE_BEFORE 1024u
#define STORE_BEFORE_TAG(seq) \
    ((uint32_t)((seq) / STORE_BEFORE) << 16) /* of whom it is said */
#define STORE_STAGE_SLOTS      16u /* host route: slots of the receiver's staging slab */
#define STORE_STAGE_SLOT_BYTES (8u << 20)
#define STORE_HOST_DEVICE_MAX  64u
#define STORE_LOADING_MAX      2u  /* threads of a worker that load libraries */
#define STORE_SUSPECTS         32u /* libraries; of more the one that ended fewest goes */

#define STORE_RING_SEQ_SHIFT 8u
/* it failed: its word says that it is over, not that it is right */
#define STORE_RING_FAILED 0x80u

/* What the host knows of a published launch. */
enum store_known {
    /* this incarnation may have given its work to the device */
    STORE_KNOWN_ENQUEUED = 1u << 0,
    STORE_KNOWN_TELLS    = 1u << 1, /* `begun` of its stream is written before its work */
    STORE_KNOWN_SIGNALS  = 1u << 2, /* its word is written before anything behind it */
    STORE_KNOWN_BEGUN    = 1u << 3, /* in an earlier incarnation it may have begun */
};

struct store_word {
    _Alignas(64) uint64_t value;
};

/* Libraries of clients that were being loaded when a worker died (worker/suspects.h). By the worker. */
struct store_suspects {
    uint64_t loading[STORE_LOADING_MAX]; /* now, one a thread: which one; 0: none */
    struct {
        uint64_t library;
        uint64_t deaths;
    } of[STORE_SUSPECTS];
};

struct store_timeline {
    uint64_t magic;
    uint32_t host_device;
    uint32_t incarnation; /* of the worker; written by the store before it starts one */
    uint64_t enqueued; /* every launch up to here is in the ring; release by the worker */
    /* by the store: counts the pages of pins that came (control.h, PINS_ADD) */
    uint64_t reader_epoch;
    /*
     * bit i: our next launch waits until host device i publishes; by the worker, read by publishers
     */
    uint64_t waits_for;
    /* by the worker, from 1 when it has its memory; 0: not yet. Reset by the store */
    uint64_t beat;
    /* by the store: its worker will not come back, and nobody waits for it */
    uint64_t released;
    /* By the store, for the store that comes after it (store/handback.h). */
    uint64_t worker_pid; /* of the worker that was started last, and when; 0: none yet */
    uint64_t worker_started; /* pl_pid_started() */
    uint64_t memory; /* which memory of this host it is part of (store/host.h); not 0 */
    /* device 0's: what the head calls this host's store; 0: nothing yet */
    uint64_t store_session;
    struct store_phases phases;                 /* of the worker's start */
    struct store_word stream[STORE_STREAM_MAX]; /* written by the device */
    struct store_word begun[STORE_STREAM_MAX];  /* written by the device */
    /* chunk number + 1 that lies in the slot; by the sender's device */
    struct store_word stage_ready[STORE_STAGE_SLOTS];
    struct store_word stage_taken; /* chunks taken out, in order; by this device */
    /* seq << STORE_RING_SEQ_SHIFT | STORE_RING_FAILED | stream */
    uint64_t ring[STORE_RING];
    uint8_t known[STORE_RING]; /* enum store_known, of the launch that the ring names */
    /* the same: how far back the launch is that holds it; 0: none */
    uint16_t held[STORE_RING];
    /*
     * by seq: STORE_BEFORE_TAG, and how far back the launch is that stream i's word shows first; 0:
     * not known
     */
    uint32_t before[STORE_BEFORE][STORE_STREAM_MAX];
    struct store_suspects suspects;
};

enum store_point_state {
    STORE_POINT_UNKNOWN,  /* not enqueued yet */
    STORE_POINT_ENQUEUED, /* will complete by itself: a stream may wait for it */
    STORE_POINT_DONE,
};

void store_timeline_init(struct store_timeline *timeline,
                         uint32_t host_device); /* by the store, on zeroed memory */
/* By the worker, in increasing seq. Nothing is known of it. */
void store_timeline_publish(struct store_timeline *timeline, uint64_t seq, uint32_t stream);
/*
 * By the worker, of a published launch: it failed, or (failed false) it is about to be done again.
 * Outlives the worker, so that its successor does not take for right what was never made.
 */
void store_timeline_mark(struct store_timeline *timeline, uint64_t seq, bool failed);
bool store_timeline_failed(struct store_timeline *timeline,
                           uint64_t seq); /* by the worker */
/* By the worker, of a published launch: learn, and take back (mask: what stays). */
void store_timeline_know(struct store_timeline *timeline, uint64_t seq, uint8_t what);
void store_timeline_unknow(struct store_timeline *timeline, uint64_t seq, uint8_t mask);
uint8_t store_timeline_known(const struct store_timeline *timeline, uint64_t seq);
/*
 * By the worker, of a launch that is about to be enqueued: its stream comes to it only when the
 * word of launch `by`, an earlier one of this device, shows that one done; 0: nothing of the kind
 * is known. Who is too far back for the ring to name counts as none.
 */
void store_timeline_hold(struct store_timeline *timeline, uint64_t seq, uint64_t by);
/* A launch holds it that is not done. */
bool store_timeline_held(struct store_timeline *timeline, uint64_t seq);
/*
 * By the worker, of each published launch, when all that it waits for on its device is in its
 * stream: the word of stream i shows words[i] (an earlier launch; 0: not known) before it begins.
 * Of each, for what was said of one that long ago had its place must not be taken for its own.
 */
void store_timeline_say_before(struct store_timeline *timeline, uint64_t seq,
                               const uint64_t words[STORE_STREAM_MAX]);
/*
 * By anyone who waits for it: io_words[i] grows to what its device said; not yet, or too many
 * launches ago: to nothing.
 */
void store_timeline_before(const struct store_timeline *timeline, uint64_t seq,
                           uint64_t io_words[STORE_STREAM_MAX]);
/*
 * By the store, of a device that was given up: whatever anybody waits for is over, now and from now
 * on. What it was to make is not there; the head has failed it before anybody could read it.
 */
void store_timeline_release(struct store_timeline *timeline);
bool store_timeline_is_released(const struct store_timeline *timeline);
static inline uint32_t store_ring_stream(uint64_t entry)
{
    return (uint32_t)entry & 0x7fu;
}
/* By anyone. *out_word, *out_value: what a stream must wait for when ENQUEUED. out pointers may be NULL. */
enum store_point_state store_timeline_point(struct store_timeline *timeline, uint64_t seq,
                                            uint64_t **out_word, uint64_t *out_value);
static inline bool store_timeline_done(struct store_timeline *timeline, uint64_t seq)
{
    return store_timeline_point(timeline, seq, NULL, NULL) == STORE_POINT_DONE;
}

#endif
