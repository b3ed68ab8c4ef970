/* Inside of the nccl route: pairs, lanes, and who looks after them. */
#ifndef TRANSFER_PAIR_INT_H
#define TRANSFER_PAIR_INT_H

#include <pthread.h>

#include "base/list.h"
#include "base/lock.h"
#include "base/vec.h"
#include "transfer/lane.h"
#include "transfer/pair.h"

#define PAIR_STALL_NS    UINT64_C(2000000000)
#define PAIR_STUCK_NS    UINT64_C(10000000000) /* an abort takes half a second (limits.md) */
#define PAIR_TEXT_BYTES  200u
#define PAIR_WORDS_BYTES 4096u

/*
 * A pair. Constant but for what is behind `lock`. Its thread opens it, waits until it is to end,
 * and ends it.
 */
struct pair {
    struct pl_list link; /* pairs->pairs; by the worker's lock and pairs->lock */
    struct transfer_pairs *pairs;
    struct transfer_pair_shape shape;
    bool has_id;
    uint8_t id[DEVICE_COMM_ID_BYTES];
    uint32_t timeout_ms;
    pthread_t thread;

    /* pairs->lock */
    struct transfer_lane_pair on; /* what its halves know of it */
    struct device_comm *comm;     /* open, and not being ended */
    bool close_asked;
    bool abort_asked;
    bool free_asked;
    bool ended_told;
    bool quiet_told;
    bool thread_over;
    /* of its thread: it was asked for one of these, or all is to stop */
    struct pl_cond asked;
    /*
     * A call that ends or frees it is going on, or one that closes it, for which nobody may come
     * any more; 0: none.
     */
    uint64_t abort_since_ns;
};

/* All sends, all receives, or all that teams do. */
struct lane {
    struct transfer_lane on;      /* pairs->lock */
    struct device_stream *stream; /* of operations */
    /* of the words that say that they ended; NULL: the launches' */
    struct device_stream *told;
    struct device_event *mark;    /* the last operation */
    struct device_stream *staged; /* for the host route */
    bool room_wanted;             /* pairs->lock; somebody found none */
};

/* Registered with the device. All are the device's but `over`, which is the watcher's. */
struct pair_words {
    struct store_word done[TRANSFER_LANES];
    struct store_word staged[TRANSFER_LANES];
    struct store_word over[TRANSFER_LANES];
    /* receives whose launch's stream has moved the ring's words */
    struct store_word passed;
};

struct transfer_pairs {
    struct transfer_pairs_config config;
    bool started; /* worker's lock: lanes, words and the watcher are there */
    struct pair_words *words;
    struct lane lanes[TRANSFER_LANES];
    pthread_t watcher;

    struct pl_mutex lock;   /* rank PL_RANK_LEAF */
    struct pl_cond changed; /* of the watcher, and of who waits for threads to be over */
    bool watcher_sleeps;
    bool nudged; /* read without the lock, too */
    struct pl_list pairs;
    struct pl_vec news; /* struct transfer_pair_news */
    bool last_told;     /* that nothing but the end of the worker helps */
    uint64_t looked_ns; /* when the watcher last looked */
    /* when the worker last asked for news, or nothing was under way */
    uint64_t collected_ns;
    bool stop;
};

/* pair_thread.c */
void *pair_run(void *pair);
void pair_notify(const struct transfer_pairs *pairs);
/* Told when the worker asks; raises notify_fd. */
void pair_tell_locked(struct pair *pair, struct transfer_pair_news *news);

/* pair_watch.c */
void *pair_watch_run(void *pairs);
/*
 * There is something new on a lane, of which words will tell. Costs nothing while the watcher looks
 * anyway: this comes with every half.
 */
void pair_watch_wake_locked(struct transfer_pairs *pairs);
/* Something has changed of which no word tells. */
void pair_watch_nudge_locked(struct transfer_pairs *pairs);

#endif
