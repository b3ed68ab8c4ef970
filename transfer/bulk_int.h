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
#include "transfer/bulk_tls.h"

#define BULK_MAGIC   0x6b6c626d736c7031ull /* "1plsmblk" */
#define BULK_VERSION 2u
/*
 * A transfer is stuck when nothing is heard of it for GRACE and four times what the bytes that are owed should take, by what the connection
 * was measured to do. Whoever receives says every ALIVE that it gets on (bytes come, or its device has not made room yet), so slow is not stuck.
 */
#define BULK_GRACE_NS UINT64_C(1000000000)
#define BULK_ALIVE_NS UINT64_C(200000000)
#define BULK_RATE_GUESS \
    UINT64_C(100000000) /* bytes a second, before anything was measured */
#define BULK_RATE_MIN      UINT64_C(1000000)
#define BULK_HANDSHAKE_NS  UINT64_C(2000000000) /* all of it */
#define BULK_CONNECT_MS    1000
#define BULK_RETRY_MIN_MS  5
#define BULK_RETRY_MAX_MS  500
#define BULK_SOCKET_BYTES  (8 << 20)
#define BULK_CHUNKS_AHEAD  (1u << 20) /* a number further ahead of the ring is nonsense */
#define BULK_HANDSHAKE_MAX 64u        /* connections that have not said who they are */
#define BULK_RELAY_MAX     16u        /* connections that are passed on for others */

/* All little-endian, as every machine that CUDA runs on. */
struct bulk_hello {
    uint64_t magic;
    uint32_t version;
    uint32_t from; /* device of the cluster */
    uint32_t to;   /* another one's than whom we speak to: pass it on */
    uint32_t reserved;
    uint8_t secret[TRANSFER_BULK_SECRET_BYTES]; /* of whom we speak to */
};
static_assert(sizeof(struct bulk_hello) == 40, "wire format");
/* Answer to the hello, also when it is refused. */
struct bulk_welcome {
    uint64_t magic;
    uint32_t version;
    int32_t status; /* plasmon_status_t; not OK: the connection ends */
};
static_assert(sizeof(struct bulk_welcome) == 16, "wire format");
struct bulk_frame {
    uint64_t chunk; /* of the receiver's ring */
    uint32_t bytes; /* 0: only the word */
    uint32_t reserved;
};
static_assert(sizeof(struct bulk_frame) == 16, "wire format");
/* One for each frame in order, and BULK_ALIVE in between. */
struct bulk_answer {
    uint64_t chunk;
};
#define BULK_ALIVE UINT64_MAX

/* One chunk that is to be sent. */
struct bulk_item {
    uint64_t chunk; /* of the receiver's ring */
    uint64_t own;   /* of ours: the device writes own + 1 into ready[own % SLOTS] */
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
    uint8_t *slab; /* NULL: not started */
    struct bulk_words *words;
    uint64_t own_next; /* worker's lock */
    pthread_t thread;
    int wake_fd; /* eventfd */

    struct pl_mutex lock; /* rank PL_RANK_LEAF */
    struct transfer_bulk_endpoint endpoint;
    uint32_t endpoint_version;
    struct pl_vec items; /* struct bulk_item, FIFO from items_first */
    size_t items_first;
    bool gone;
    struct transfer_bulk_stats stats;
};

/* A connection, from either side. Every wait on it ends when stop_fd becomes readable. */
struct bulk_link {
    int fd; /* -1: none */
    int stop_fd;
    void *tls; /* bulk_tls.c; NULL: plain */
    short
        tls_wants; /* what poll() must wait for before it gets on, whatever was asked for */
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
    bool ended;         /* bulk->lock: its thread does nothing more */
    uint64_t spoken_ns; /* its thread's: the last answer went then */
};

/* Where another device listens, for whoever looks for a way round. */
struct bulk_place {
    uint32_t peer;
    struct transfer_bulk_endpoint endpoint;
};

struct bulk_fill {
    uint64_t first;
    uint64_t count;
};

struct transfer_bulk {
    struct transfer_bulk_config config;
    struct bulk_tls *tls; /* NULL: plain */
    uint8_t secret[TRANSFER_BULK_SECRET_BYTES];
    atomic_uint device; /* of the cluster */
    int listen_fd;
    int stop_fd; /* readable from the stop on */
    atomic_bool stop;
    pthread_t acceptor;
    pthread_t filler;
    struct pl_map outs; /* peer + 1 -> struct bulk_out *; worker's lock */

    struct pl_mutex lock; /* rank PL_RANK_LEAF */
    struct pl_cond changed;
    struct pl_vec ins;    /* struct bulk_in *; added and removed by the acceptor alone */
    struct pl_map gone;   /* device + 1 -> itself */
    struct pl_vec fills;  /* struct bulk_fill, FIFO */
    uint64_t refused_ns;  /* when the log last told of a connection that was refused */
    struct pl_vec places; /* struct bulk_place: peers that are not gone */
};

static inline uint64_t bulk_deadline_ns(uint64_t bytes, uint64_t rate)
{
    return BULK_GRACE_NS + 4 * (bytes * UINT64_C(1000) / pl_max_u64(rate / 1000000, 1));
}

/* ---- bulk_net.c: sockets. All give up when stop_fd becomes readable (ECLOSED). */
plasmon_status_t bulk_listen(const struct transfer_bulk_config *config, int *out_fd,
                             char *out_address, struct pl_err *err);
plasmon_status_t bulk_connect(const char *address, int stop_fd, int *out_fd,
                              struct pl_err *err);
/* Are both on one machine, by their addresses? */
bool bulk_same_place(const char *address, const char *other);

/* ---- bulk_link.c: bytes over a connection. ECONNECT: it is closed. */
/* Some bytes, without waiting; EAGAIN: not now. */
plasmon_status_t bulk_link_try_read(struct bulk_link *link, void *data, size_t bytes,
                                    size_t *out_done);
plasmon_status_t bulk_link_try_write(struct bulk_link *link, const void *data, size_t bytes,
                                     size_t *out_done);
/* All of them. ETIMEDOUT: not one for silence_ns (0: any time), or not all until until_ns (0: any time). */
plasmon_status_t bulk_link_read(struct bulk_link *link, void *data, size_t bytes,
                                uint64_t silence_ns, uint64_t until_ns);
plasmon_status_t bulk_link_write(struct bulk_link *link, const void *data, size_t bytes,
                                 uint64_t silence_ns, uint64_t until_ns);
/* Until it can be read or written, or milliseconds are over (EAGAIN; -1: any time). */
plasmon_status_t bulk_link_wait(const struct bulk_link *link, short events, int timeout_ms);
void bulk_link_close(struct bulk_link *link);
/* As `from` to `to`, which listens at the endpoint or (a relay) can be reached from there. */
plasmon_status_t bulk_link_introduce(struct bulk_link *link, struct bulk_tls *tls,
                                     uint32_t from, uint32_t to,
                                     const struct transfer_bulk_endpoint *endpoint,
                                     struct pl_err *err);

/* ---- bulk_relay.c */
/* Another way to `to`, which listens at `address`: the next one after *io_last. false: there is none. */
bool bulk_relay_find(struct transfer_bulk *bulk, uint32_t to, const char *address,
                     uint32_t *io_last, struct transfer_bulk_endpoint *out);
/* It said hello for another device: connect there, and pass bytes both ways until one side ends it. */
void bulk_relay_run(struct bulk_in *in, const struct bulk_hello *hello);

/* ---- bulk_in.c */
void *bulk_accept_run(void *bulk);
void *bulk_fill_run(void *bulk);
void bulk_in_end_locked(struct transfer_bulk *bulk, uint32_t from);
plasmon_status_t bulk_in_welcome(struct bulk_in *in, plasmon_status_t status);

/* ---- bulk_out.c */
plasmon_status_t bulk_out_create(struct transfer_bulk *bulk, uint32_t peer,
                                 struct bulk_out **out_out);
plasmon_status_t bulk_out_start(struct bulk_out *out);
void bulk_out_destroy(struct bulk_out *out);
/* Pause between looks at a word: short at first. */
void bulk_pause(uint32_t *io_looks);

#endif
