/*
 * How the main thread learns that the device got on.
 *
 * A CPU device writes to a descriptor, which costs its stream nothing. A GPU could do so by a host
 * function, but that holds up the stream until a thread of the driver has run: tens of microseconds
 * after each batch, in which the next copy of a series does not start. So on a GPU the words
 * themselves are looked at: without a pause at first, for short work is what latency is made of,
 * then at intervals that grow with the time since the last change, so that long work costs little
 * CPU. With many launches on the device the next change is nobody's alone: it is looked for after a
 * pause, so that a report is of several and the thread that enqueues is let in. With nothing in
 * flight it rests, until a descriptor is readable; where threads linger (base/linger.h) it does not
 * fall asleep at once.
 *
 * THE BELL is the last descriptor. Whoever is about to put something into a device at rest rings it
 * first, and the thread begins to look at words: without asking anybody, for the one who rang holds
 * the lock, and while the device is being told. So it is awake when short work is over.
 *
 * WORK THAT COMES AGAIN takes about as long as the last time. So the lengths of the last long waits
 * are kept, and near each of them it is looked more often: a graph of milliseconds that is replayed
 * is noticed some 10 us after its end, for a few looks more.
 *
 * What waits on a device or on another device is not concerned: it watches the same words by itself.
 */
#ifndef WORKER_WATCH_H
#define WORKER_WATCH_H

#include <poll.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/linger.h"
#include "store/timeline.h"

#define WORKER_WATCH_FDS 4
#define WORKER_WATCH_CONTROL \
    0 /* of these: the socket to the store; the others are eventfds */
#define WORKER_WATCH_NOTIFY 2
#define WORKER_WATCH_BELL   3

struct worker_watch {
    const struct store_timeline *timeline;
    uint32_t stream_count;
    bool by_words; /* look at words; false: a descriptor tells */
    struct pollfd fds[WORKER_WATCH_FDS];
    uint64_t seen[STORE_STREAM_MAX];
    /* when a word was last seen to change, or there was something else to do */
    uint64_t changed_ns;
    uint64_t polled_ns;     /* when descriptors were last looked at because of that */
    struct pl_recent waits; /* for words, */
    struct pl_recent rests; /* and for something to do */
};

void worker_watch_init(struct worker_watch *watch, const struct store_timeline *timeline,
                       uint32_t stream_count, bool by_words,
                       const int fds[WORKER_WATCH_FDS]);
/* All launches are over, and no word will change until there are more: what they are now is no news. */
void worker_watch_rest(struct worker_watch *watch);
/*
 * Until a descriptor but the bell is readable (watch->fds says which), a word has changed since the
 * last call, or `timeout_ms` are over (-1: never; after the bell in any case a while). One thread.
 */
enum worker_watched {
    WORKER_WATCHED_NOTHING, /* no word will change */
    WORKER_WATCHED_FEW,     /* launches are in flight */
    WORKER_WATCHED_MANY,
};
void worker_watch_wait(struct worker_watch *watch, enum worker_watched what,
                       int timeout_ms);

/*
 * A bit for each descriptor that was readable then; of the eventfds the count is taken. The socket is
 * not read: another thread may have closed it since, and its number may be anybody's.
 */
uint32_t worker_watch_take(const struct worker_watch *watch);

/* Pause before the next look, after so long without a change; 0: none. */
uint64_t worker_watch_pause_ns(const struct worker_watch *watch, uint64_t unchanged_ns);

#endif
