/* Inside of the bulk channel: frames, and the parts of transfer_bulk. */
#ifndef TRANSFER_BULK_INT_H
#define TRANSFER_BULK_INT_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/lock.h"
#include "base/map.h"
#include "base/vec.h"
#include "transfer/bulk.h"

#define BULK_MAGIC   0x6b6c626d736c7031ull /* "1plsmblk" */
#define BULK_VERSION 1u
/* Silence that long while something is owed means that the other side is stuck or gone: connect again. */
#define BULK_STALL_NS      UINT64_C(5000000000)
#define BULK_CONNECT_MS    2000
#define BULK_RETRY_MIN_MS  5
#define BULK_RETRY_MAX_MS  500
#define BULK_SOCKET_BYTES  (8 << 20)
#define BULK_CHUNKS_AHEAD  (1u << 20) /* a number further ahead of the ring is nonsense */
#define BULK_HANDSHAKE_MAX 64u        /* connections that have not said who they are */

/* All little-endian, as every machine that CUDA runs on. */
struct bulk_hello {
    uint64_t magic;
    uint32_t version;
    uint32_t from; /* device of the cluster */
    uint8_t secret[TRANSFER_BULK_SECRET_BYTES];
};
struct bulk_frame {
    uint64_t chunk; /* of the receiver's ring */
    uint32_t bytes; /* 0: only the word */
    uint32_t reserved;
};
/* Answer to the hello, then one for each frame in order. */
struct bulk_answer {
    uint64_t chunk; /* hello: BULK_MAGIC */
};

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
};

/* From one connection. */
struct bulk_in {
    struct transfer_bulk *bulk;
    int fd;
    pthread_t thread;
    atomic_bool closed; /* end, even in the middle of a wait */
    uint32_t from;
    bool registered; /* bulk->lock: the one of its device */
    bool ended;      /* bulk->lock: its thread does nothing more */
};

struct bulk_fill {
    uint64_t first;
    uint64_t count;
};

struct transfer_bulk {
    struct transfer_bulk_config config;
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
    struct pl_vec ins;   /* struct bulk_in *; added and removed by the acceptor alone */
    struct pl_map gone;  /* device + 1 -> itself */
    struct pl_vec fills; /* struct bulk_fill, FIFO */
};

/* ---- bulk_net.c: sockets. All give up when stop_fd becomes readable (ECLOSED). */
plasmon_status_t bulk_listen(const struct transfer_bulk_config *config, int *out_fd,
                             char *out_address, struct pl_err *err);
plasmon_status_t bulk_connect(const char *address, int stop_fd, int *out_fd,
                              struct pl_err *err);
plasmon_status_t bulk_read(int fd, int stop_fd, void *data, size_t bytes,
                           uint64_t stall_ns);
plasmon_status_t bulk_write(int fd, int stop_fd, const void *data, size_t bytes,
                            uint64_t stall_ns);

/* ---- bulk_in.c */
void *bulk_accept_run(void *bulk);
void *bulk_fill_run(void *bulk);
void bulk_in_end_locked(struct transfer_bulk *bulk, uint32_t from);

/* ---- bulk_out.c */
plasmon_status_t bulk_out_create(struct transfer_bulk *bulk, uint32_t peer,
                                 struct bulk_out **out_out);
plasmon_status_t bulk_out_start(struct bulk_out *out);
void bulk_out_destroy(struct bulk_out *out);
/* Pause between looks at a word: short at first. */
void bulk_pause(uint32_t *io_looks);

#endif
