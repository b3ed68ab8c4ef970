/* Inside of the bulk channel: frames, and the parts of transfer_bulk. */
#ifndef TRANSFER_BULK_INT_H
#define TRANSFER_BULK_INT_H

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/lock.h"
#include "base/map.h"
#include "base/vec.h"
#include "transfer/bulk.h"

#define BULK_CHUNKS_AHEAD  (1u << 20) /* a number further ahead of the ring is nonsense */
#define BULK_HANDSHAKE_MAX 64u        /* connections that have not said who they are */
#define BULK_LINGER_MS     500u /* what is over is closed so much later, at the earliest */
#define BULK_LINGERING_MAX 256u /* .. unless there are so many connections */
#define BULK_RELAY_MAX     16u  /* connections that are passed on for others */
#define BULK_CLIENTS_MAX   32u  /* connections of clients */

/* Chunks that will not come. */
struct bulk_fill {
    uint64_t first;
    uint64_t count;
};

/* One chunk that is to be sent. */
struct bulk_item {
    uint64_t chunk;      /* of the receiver's ring */
    uint64_t own;        /* of ours: the device writes own + 1 into ready[own % SLOTS] */
    const uint8_t *data; /* in our slot; on a CPU device where it belongs */
    uint32_t bytes;
};

/* Words that the device waits for and writes; in memory that is registered with it. */
struct bulk_words {
    struct store_word ready[TRANSFER_BULK_OUT_SLOTS];
    struct store_word sent; /* slots up to here are free again; by the thread */
};

/* To one device. */
struct bulk_out {
    struct transfer_bulk *bulk;
    uint32_t peer;
    uint8_t *slab; /* NULL: not started, or let go of since it is gone */
    bool sent_to;  /* it was started once */
    struct bulk_words *words;
    uint64_t own_next; /* worker's lock */
    pthread_t thread;
    int wake_fd;     /* eventfd */
    atomic_bool end; /* the thread's */
    /* it has seen that the peer is gone, and calls nothing that takes long */
    atomic_bool drained;

    struct pl_mutex lock; /* rank PL_RANK_LEAF */
    struct transfer_bulk_endpoint endpoint;
    uint32_t endpoint_version;
    struct pl_vec items; /* struct bulk_item, FIFO from items_first */
    size_t items_first;
    bool gone;
    struct pl_vec given_up; /* struct bulk_fill: not to be sent any more */
    struct transfer_bulk_stats stats;
};

/* From one connection. */
struct bulk_in {
    struct transfer_bulk *bulk;
    struct bulk_link link;
    pthread_t thread;
    atomic_bool closed; /* end, even in the middle of a wait */
    uint32_t from;
    bool registered;    /* bulk->lock: the one of its device */
    bool relay;         /* bulk->lock: it is passed on */
    bool client;        /* bulk->lock: it is a client's, which had a ticket */
    bool ended;         /* bulk->lock: its thread does nothing more */
    uint64_t ended_ns;  /* bulk->lock: since then */
    uint64_t spoken_ns; /* its thread's: the last answer went then */
    /* its thread's: what the other side speaks, if that is not ours; else 0 */
    uint32_t version;
    struct pl_err why; /* its thread's: why it was refused, if there is more to say */
};

/* Where another device listens, for whoever looks for a way round. */
struct bulk_place {
    uint32_t peer;
    struct transfer_bulk_endpoint endpoint;
};

#define BULK_NOBODY UINT32_MAX

struct transfer_bulk {
    struct transfer_bulk_config config;
    struct bulk_tls *tls; /* NULL: plain */
    uint8_t secret[TRANSFER_BULK_SECRET_BYTES];
    atomic_uint device; /* of the cluster; BULK_NOBODY: not yet */
    int listen_fd;
    int stop_fd; /* readable from the stop on */
    atomic_bool stop;
    pthread_t acceptor;
    pthread_t filler;
    struct pl_map outs;             /* peer + 1 -> struct bulk_out *; worker's lock */
    struct bulk_place_board *board; /* ours until the end */

    struct pl_mutex lock; /* rank PL_RANK_LEAF */
    struct pl_cond changed;
    struct pl_vec ins;    /* struct bulk_in *; added and removed by the acceptor alone */
    struct pl_map gone;   /* device + 1 -> itself */
    struct pl_vec fills;  /* struct bulk_fill, FIFO */
    uint64_t refused_ns;  /* when the log last told of a connection that was refused */
    struct pl_vec places; /* struct bulk_place: peers that are not gone */
};

/* ---- bulk_place.c: receiving in place, on CPU devices */
struct bulk_place_board;
plasmon_status_t bulk_place_create(struct bulk_place_board **out_board);
void bulk_place_release(struct bulk_place_board *board); /* NULL is nothing */
/* Enqueue the receiver's half of what `peer` sends, into host memory. */
plasmon_status_t bulk_place_recv(struct bulk_place_board *board,
                                 const struct transfer_ring *ring,
                                 struct device_stream *stream, uint32_t peer,
                                 uint64_t first, uint8_t *data, uint64_t bytes);
/*
 * Where the thread of the peer's connection may read that chunk; *out_data NULL: into its slot.
 * EAGAIN: ask again in a moment. EMALFORMED: a chunk of that number has another length.
 */
plasmon_status_t bulk_place_find(struct bulk_place_board *board,
                                 const struct transfer_ring *ring, uint32_t peer,
                                 uint64_t chunk, uint64_t bytes, uint8_t **out_data);
/* It has been read there. The chunk's word `ready` comes next. */
void bulk_place_filled(const struct transfer_ring *ring, uint64_t chunk);
/*
 * The chunk's word `ready`. It never goes back: behind bulk_place_filled() the slot's next chunk
 * may be there before us, and who waits for ours is content with its number.
 */
void bulk_slot_ready(const struct transfer_ring *ring, uint64_t chunk);

/* ---- bulk_relay.c */
/* Another way to `to`, which listens at `address`: the next one after *io_last. false: there is none. */
bool bulk_relay_find(struct transfer_bulk *bulk, uint32_t to, const char *address,
                     uint32_t *io_last, struct transfer_bulk_endpoint *out);
/* It said hello for another device: connect there, and pass bytes both ways until one side ends it. */
void bulk_relay_run(struct bulk_in *in, const struct bulk_hello *hello);
/* The same over a connection to there, of which nothing is said yet. */
void bulk_relay_through(struct bulk_in *in, const struct bulk_hello *hello,
                        const struct transfer_bulk_endpoint *endpoint,
                        struct bulk_link *out);

/* ---- bulk_client.c */
/* It said hello as a client: serve its requests. The first must have come by until_ns. What it ended with. */
plasmon_status_t bulk_client_run(struct bulk_in *in, uint64_t until_ns);

/* ---- bulk_in.c */
void *bulk_accept_run(void *bulk);
void *bulk_fill_run(void *bulk);
/* A connection, from its hello to its end, and with what status it ends. */
plasmon_status_t bulk_in_serve(struct bulk_in *in) PL_MUST_CHECK;
void bulk_in_end_locked(struct transfer_bulk *bulk, uint32_t from);
plasmon_status_t bulk_in_welcome(struct bulk_in *in, plasmon_status_t status);

/* ---- bulk_out.c */
plasmon_status_t bulk_out_create(struct transfer_bulk *bulk, uint32_t peer,
                                 struct bulk_out **out_out);
plasmon_status_t bulk_out_start(struct bulk_out *out);
void bulk_out_destroy(struct bulk_out *out);
/* If the peer is gone: let go of what bulk_out_start() made. Nothing is on our device. */
void bulk_out_rest(struct bulk_out *out);
/*
 * What is to be sent, over one connection (taken) that has said hello, until it ends: how it did.
 * Without a thread of its own (the fuzzer).
 */
plasmon_status_t bulk_out_serve(struct bulk_out *out,
                                const struct bulk_link *link) PL_MUST_CHECK;
/* Pause between looks at a word: short at first. */
void bulk_pause(uint32_t *io_looks);

#endif
