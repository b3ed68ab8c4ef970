/*
 * The nccl route: pairs. A pair is a communicator (device.h) that carries the transfers from one
 * device to one other; this is one device's part of all pairs that it sends or receives by.
 *
 *   launch's stream    waits for `over`                                     (and, receiving, moves the words of its staging ring)
 *   lane stream        send or receive, then writes `done`                  one stream for sends, one for receives
 *   watcher's thread   sees `done`; if the pair is whole, writes `over`
 *
 * The operation is put on its lane when the launch is enqueued, with its input complete, so lanes
 * hold nothing but operations of pairs, in the order of launches. Between it and the launch's
 * stream stands the watcher, because an operation that is aborted ends as if all were well: what it
 * wrote is believed only when the pair is not broken then.
 *
 * A PAIR BREAKS when somebody says so (transfer_pair_break): from then on nothing comes by it any
 * more. Its operations are ended (transfer_pair_abort) by the pair's own thread, and not before the
 * mark of whoever they write to: those of an aborted one tell the other side that all is there.
 * Transfers that were under way go by the host route (transfer_pair_stage), on streams of their
 * own, each when its operation has ended and all before it is over (lane.h); their launches notice
 * a delay. Halves that failed are enqueued without bytes: they hold their place until the pair is
 * broken. When none of its operations is left, that is told (ENDED), and its memory may be freed
 * (transfer_pair_free): with nothing on the device, because the driver waits for that, and makes
 * others wait. Then it is QUIET, and may be opened anew.
 *
 * A SEND IS OVER when the other half is (transfer_pair_sent): NCCL says it earlier, when the bytes
 * lie in a buffer of the receiver that would be lost with it.
 *
 * A TEAM is a communicator of several devices, by which all of them reduce arrays together. Its
 * operations have a lane of their own. When it breaks, each device does what did not come to an end
 * by itself (`stage`), from the members' memory that all of them can read and nobody has written:
 * so nobody has to hear from the others what they got, and an operation is over where it ended
 * before the mark.
 *
 * Threads: the functions are the worker's, under its lock. One thread watches; a pair has a thread
 * for the calls that block.
 */
#ifndef TRANSFER_PAIR_H
#define TRANSFER_PAIR_H

#include "transfer/transfer.h"

/*
 * Operations on a lane at a time. A communicator's queue that is full (some hundred of them) blocks
 * whoever enqueues. The last of so many, or of as many as have so many bytes, ends later than it
 * takes to hear of the first and to enqueue the next: 4 of 16 MiB take 280 us. More are no use, and
 * a little slower, for each has streams that wait for it, among which the device looks.
 */
#define TRANSFER_PAIR_DEPTH     8u
#define TRANSFER_PAIR_DEPTH_MIN 4u /* whatever bytes they have */
#define TRANSFER_PAIR_BYTES     (UINT64_C(64) << 20)

/* In whose order operations go. */
enum transfer_lane_index {
    TRANSFER_LANE_SENDS,
    TRANSFER_LANE_RECEIVES,
    TRANSFER_LANE_TEAMS,
    TRANSFER_LANES,
};

struct transfer_pair_key {
    uint32_t peer; /* device of the cluster */
    bool receives; /* we do; of a team: its id comes from another one */
    uint64_t epoch;
    uint32_t team; /* 0: a pair with `peer`; else the number of the team */
};
static inline uint32_t transfer_lane_of(const struct transfer_pair_key *key)
{
    return key->team != 0  ? TRANSFER_LANE_TEAMS
           : key->receives ? TRANSFER_LANE_RECEIVES
                           : TRANSFER_LANE_SENDS;
}

/* Our half of a transfer, or our part of what a team does. */
struct transfer_half {
    struct transfer_pair_key key;
    uint32_t host_device; /* of the peer; UINT32_MAX: on another host */
    uint64_t seq;
    /* of the receiver's ring: for the host route; of a team: the number that its parts share */
    uint64_t first_chunk;
    struct device_ptr ptr; /* of a team: of the result */
    uint64_t bytes;
    bool with_bytes;          /* false: our half failed */
    struct device_ptr member; /* of a team: what we give */
    uint32_t collective;      /* enum device_collective */
    uint32_t dtype;
    uint32_t op; /* enum device_reduce */
    /* becomes `seq` in the launch's stream behind all that it waits for; NULL: none does */
    uint64_t *word;
};

struct transfer_pairs_config {
    struct device *device;
    const char *address; /* numeric, of the interface for other hosts; NULL: loopback */
    struct store_timeline *timeline; /* ours */
    struct transfer_counters *counters;
    int notify_fd;     /* raised when there is news */
    uint64_t stall_ns; /* a transfer may take that long and a second a GB; 0: 2 s */
    uint64_t stuck_ns; /* an end, or a worker that has news to collect; 0: 10 s */
    /*
     * Enqueue a half by the host route; of a team, our part without the others. Not under any lock
     * of ours.
     */
    plasmon_status_t (*stage)(void *user, struct device_stream *stream,
                              const struct transfer_half *half);
    /*
     * A call that ends or frees a communicator does not return, or nobody collects news: the
     * process must end. On the watcher's thread, each time that so long is over again.
     */
    void (*stuck)(void *user, const char *text);
    void *user;
};

enum transfer_pair_event {
    TRANSFER_PAIR_MADE,   /* id: for the receiver */
    TRANSFER_PAIR_OPENED, /* or not: status, text; then it is quiet */
    TRANSFER_PAIR_CLOSED,
    TRANSFER_PAIR_ENDED, /* broken, and nothing of it is on the device: transfer_pair_free() */
    TRANSFER_PAIR_QUIET,   /* broken, and nothing is left of it */
    TRANSFER_PAIR_STALLED, /* first_chunk: that transfer takes too long */
    TRANSFER_PAIR_TROUBLE, /* text: it should be broken */
    TRANSFER_PAIR_TURN,    /* transfer_pairs_stage_next() has something to do */
};
struct transfer_pair_news {
    enum transfer_pair_event event;
    struct transfer_pair_key key;
    plasmon_status_t status;
    uint64_t bytes;
    uint64_t first_chunk;
    uint8_t id[DEVICE_COMM_ID_BYTES];
    char text[200];
};

struct transfer_pairs;

/* Cheap: threads, streams and words are made with the first pair. */
plasmon_status_t transfer_pairs_create(const struct transfer_pairs_config *config,
                                       struct transfer_pairs **out_pairs) PL_MUST_CHECK;
/* Pairs that are not closed are aborted. The launches' streams must have ended. */
void transfer_pairs_destroy(struct transfer_pairs *pairs);
bool transfer_pairs_news(struct transfer_pairs *pairs, struct transfer_pair_news *out_news);

/* What a communicator is to be. */
struct transfer_pair_shape {
    uint32_t rank;
    uint32_t ranks; /* 0: a pair */
    bool remote;
};

/*
 * Begin to open: OPENED comes. The sender (id NULL) makes the id first: MADE comes. Nothing may be
 * on the device. A receiver gives up after `timeout_ms`; a sender waits for whoever comes, until it
 * is broken.
 */
plasmon_status_t transfer_pair_open(struct transfer_pairs *pairs,
                                    const struct transfer_pair_key *key,
                                    const struct transfer_pair_shape *shape,
                                    const uint8_t *id, uint32_t timeout_ms) PL_MUST_CHECK;
/* CLOSED comes. Nothing of it is under way on any side, and nothing on the device. */
void transfer_pair_close(struct transfer_pairs *pairs, const struct transfer_pair_key *key);
/*
 * Mark it: what ends from now on is not believed. Of one that is being closed: the call waits for
 * its other side as long as that takes, but now that may never come, so it has `stuck_ns` from here
 * on.
 */
void transfer_pair_break(struct transfer_pairs *pairs, const struct transfer_pair_key *key);
/* Of one that is marked: ends its operations. ENDED comes; QUIET, if it was not open. */
void transfer_pair_abort(struct transfer_pairs *pairs, const struct transfer_pair_key *key);
/* Of one that has ENDED. Nothing may be on the device, nor be enqueued before QUIET comes. */
void transfer_pair_free(struct transfer_pairs *pairs, const struct transfer_pair_key *key);
/* Can one more operation go on that lane? If not, notify_fd is raised when it can. */
bool transfer_pair_room(struct transfer_pairs *pairs, uint32_t lane);
/* Enqueue our half: on the pair's lane, and what waits for it on the launch's stream. */
plasmon_status_t transfer_pair_move(struct transfer_pairs *pairs,
                                    struct device_stream *stream,
                                    const struct transfer_half *half) PL_MUST_CHECK;
/*
 * It is broken, and the other side knows, or will be told: what did not come by it goes by the host route.
 * @param out_first  the first launch that does; 0: none.
 */
plasmon_status_t transfer_pair_stage(struct transfer_pairs *pairs,
                                     const struct transfer_pair_key *key,
                                     uint64_t *out_first) PL_MUST_CHECK;
/* After news: what of that waited for its turn, and has it now. */
plasmon_status_t transfer_pairs_stage_next(struct transfer_pairs *pairs) PL_MUST_CHECK;
/*
 * Nothing of that lane has yet to have such a turn. Until then no half may be enqueued: it would
 * come before.
 */
bool transfer_pairs_settled(struct transfer_pairs *pairs, uint32_t lane);
/* The other half of launch seq, a SEND of ours, is over. */
void transfer_pair_sent(struct transfer_pairs *pairs, uint64_t seq);

#endif
