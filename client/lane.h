/*
 * A client's lane to a device whose memory it cannot map (store/lane.h): bytes go through pinned
 * slots, which this side fills or empties while the device copies others.
 *
 * A transfer takes some slots of the lane, cuts its bytes into pieces, and works on the pieces with
 * one or more threads, each with slots of its own: so while a thread copies into one slot, the
 * device copies from its others. Several transfers share a lane; one that finds no slot waits for
 * another to end.
 *
 * A slot that is given back with something still on its way (its transfer was given up) is not
 * given out before that is over.
 *
 * Threads: any.
 */
#ifndef CLIENT_LANE_H
#define CLIENT_LANE_H

#include <stdbool.h>

#include "base/lock.h"
#include "base/str.h"
#include "store/lane.h"

struct lane {
    /* Constant. */
    struct store_lane *shared;
    int doorbell;

    struct pl_mutex lock; /* rank PL_RANK_LEAF */

    /* Guarded by `lock`. */
    uint32_t taken; /* a bit a slot */
    struct pl_cond freed;
};

/* One transfer: a range of a buffer of the lane's device. */
struct lane_transfer {
    uint32_t buffer_slot;
    uint32_t generation;
    uint64_t offset;
    uint64_t bytes;
    uint64_t deadline_ns; /* UINT64_MAX: none */
    /*
     * Asked now and then by any of the transfer's threads: is there still hope? Otherwise a status,
     * with its text.
     */
    plasmon_status_t (*hope)(void *user, struct pl_err *err);
    void *user;
};

/* Takes both descriptors, also on failure. */
plasmon_status_t lane_create(int slab_fd, int doorbell_fd, struct lane **out_lane,
                             struct pl_err *err) PL_MUST_CHECK;
void lane_destroy(struct lane *lane); /* NULL is fine; also in a forked child */

/*
 * OK: the bytes are in the buffer. ELOST: it is not (any more) one that may be written. ECLOSED:
 * the device was given up. What hope() said; ETIMEDOUT.
 */
plasmon_status_t lane_put(struct lane *lane, const struct lane_transfer *transfer,
                          const void *data, struct pl_err *err) PL_MUST_CHECK;
/* The same for bytes of a buffer that the caller pinned. */
plasmon_status_t lane_get(struct lane *lane, const struct lane_transfer *transfer,
                          void *data, struct pl_err *err) PL_MUST_CHECK;
/*
 * Several gets at once, each of at most STORE_LANE_SLOT_BYTES, as many in flight as there are
 * slots. deadline_ns, hope and user are the first one's. Not OK: any of them may be missing.
 */
plasmon_status_t lane_get_many(struct lane *lane, const struct lane_transfer *transfers,
                               void *const *data, uint32_t count,
                               struct pl_err *err) PL_MUST_CHECK;

#endif
