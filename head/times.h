/*
 * How long things took, for people: histograms of a head's process. They belong to the machine,
 * which outlives its core, and to no journal: a head that is started again begins anew.
 *
 * THE TIME is that of the input that the core is at, read once for each, so that a task of a frame
 * costs no look at the clock. While a journal is replayed there is none, and what began then is not
 * counted: it did not begin when it was replayed. Nothing of what the core does depends on it.
 *
 * TRANSFERS and the waits in queues are counted by workers, as they see them end; what one reports
 * is what it has counted in all. What is more than its last report is added here, so that the
 * counts grow only, though workers come and go.
 */
#ifndef HEAD_TIMES_H
#define HEAD_TIMES_H

#include "base/histogram.h"
#include "base/map.h"
#include "head/rates.h"
#include "wire/wire.h"

/* What workers count. */
struct head_worker_times {
    struct pl_histogram transfers[HEAD_RATE_ROUTES];
    struct pl_histogram queue; /* functions, from when they came until they were enqueued */
    /* that the front of a queue stood still, by cause */
    struct pl_histogram fronts[WIRE_WAIT_WHYS];
};

struct head_times {
    uint64_t now_ns; /* 0: there is none */
    /* of clients: from the frame that submitted them until they were over */
    struct pl_histogram tasks;
    struct pl_histogram waits;   /* .. until they were sent to their worker */
    struct pl_histogram workers; /* from when one was lost until the next one was there */
    struct head_worker_times worked; /* of all workers, so far */
    /* device + 1 -> struct head_worker_times: what its worker has told */
    struct pl_map reported;
};

void head_times_init(struct head_times *times);
void head_times_finish(struct head_times *times);

/* When what begins now begins; 0: it is not timed. */
static inline uint64_t head_times_now(const struct head_times *times)
{
    return times != NULL ? times->now_ns : 0;
}

/* What began then (not 0) is over. */
static inline void head_times_add(struct pl_histogram *histogram,
                                  const struct head_times *times, uint64_t begun_ns)
{
    if (times->now_ns >= begun_ns) {
        pl_histogram_add(histogram, times->now_ns - begun_ns);
    }
}

/* What a worker reports of its transfers. */
void head_times_take(struct head_times *times, uint32_t device,
                     const Plasmon__V1__WorkerStats *stats);
/* Those that have something, in the arena. */
plasmon_status_t head_times_tell(const struct head_times *times, struct wire_arena *arena,
                                 Plasmon__V1__StatusReply *out) PL_MUST_CHECK;

#endif
