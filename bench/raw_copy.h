/*
 * Raw copies between devices: what their parts share. raw_copy.c has set-up and figures,
 * raw_copy_ways.c the ways to copy.
 *
 * Threads: the main thread of the child that measures.
 */
#ifndef BENCH_RAW_COPY_H
#define BENCH_RAW_COPY_H

#include "bench/bench.h"
#include "device/device.h"

#define RAW_SLOTS       16u
#define RAW_SLOT_BYTES  (8u << 20)
#define RAW_DEVICES_MAX 16u

/* Streams of a device: copies in; halves that go out; and what some ways have beside the first. */
enum raw_stream { RAW_IN, RAW_OUT, RAW_SECOND, RAW_WORDS, RAW_STREAMS };

/* Of a receiver, on the host route. Chunk c is in slot c % RAW_SLOTS; words only grow. */
struct raw_ring {
    uint8_t *slab;              /* RAW_SLOTS slots, then a page of words */
    uint64_t *ready[RAW_SLOTS]; /* c + 1: chunk c is in this slot */
    uint64_t *taken;            /* c + 1: chunk c is out of it */
    /* of its device's streams, for ways that write one after a copy */
    uint64_t *word[RAW_STREAMS];
    uint64_t chunks;               /* that went through so far */
    uint64_t written[RAW_STREAMS]; /* of word */
};
struct raw_device {
    struct device *device;
    struct device_stream *stream[RAW_STREAMS];
    struct device_ptr memory; /* of its own: `bytes` that come, and `bytes` that go */
    /* the memory of each other one, mapped here; 0: not possible */
    struct device_ptr source[RAW_DEVICES_MAX];
    int fd;
    struct raw_ring ring;
};
struct raw {
    struct raw_device device[RAW_DEVICES_MAX];
    uint32_t count;
    uint64_t budget_ns; /* of a figure */
    uint64_t bytes;     /* half of what is mapped of a device */
    uint64_t offset;    /* of the next copy, in all memories */
    uint64_t turn;      /* copies so far, of ways that take turns */
};

/* Enqueue one copy to device `to`; what it leaves to wait for is in the streams of `to`. */
typedef plasmon_status_t (*raw_copy_fn)(struct raw *raw, uint32_t to, uint64_t bytes);

/* ---- raw_copy_ways.c: by peer copies */
plasmon_status_t raw_peer(struct raw *raw, uint32_t to,
                          uint64_t bytes); /* from the first */
/* From each other one, beginning with the next, so that no source serves two at a time. */
plasmon_status_t raw_peer_all(struct raw *raw, uint32_t to, uint64_t bytes);
/* Between the first two, each from the other. */
plasmon_status_t raw_peer_duplex(struct raw *raw, uint32_t to, uint64_t bytes);
/*
 * From the one before, in pieces of RAW_PIECE_BYTES, each behind the word that says that it came
 * there: for 1, 2, .. in this order.
 */
#define RAW_PIECE_BYTES (16u << 20)
plasmon_status_t raw_peer_chain(struct raw *raw, uint32_t to, uint64_t bytes);
/*
 * From the first, with a word that says that it is over: in the same stream; in two streams by
 * turns; written by another stream.
 */
plasmon_status_t raw_peer_word(struct raw *raw, uint32_t to, uint64_t bytes);
plasmon_status_t raw_peer_word_turns(struct raw *raw, uint32_t to, uint64_t bytes);
plasmon_status_t raw_peer_word_beside(struct raw *raw, uint32_t to, uint64_t bytes);
/* From the first, in two halves on two streams. */
plasmon_status_t raw_peer_halves(struct raw *raw, uint32_t to, uint64_t bytes);
/* ---- and by the host route, both halves at once */
plasmon_status_t raw_host(struct raw *raw, uint32_t to, uint64_t bytes);
plasmon_status_t raw_host_all(struct raw *raw, uint32_t to, uint64_t bytes);
plasmon_status_t raw_host_duplex(struct raw *raw, uint32_t to, uint64_t bytes);

#endif
