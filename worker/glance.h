/*
 * How the thread of the connection sees that short work is done, while it is awake anyway.
 *
 * On a GPU the main thread looks at the words (watch.h), but when nothing was in flight it sleeps. A launch that somebody waits for finds it
 * asleep, and waking a thread takes longer than a short kernel. The thread that took the launch has just been busy, and does not
 * sleep before it has looked for more for a while (base/linger.h): in between it glances at the words, and tells the head itself.
 * The main thread is woken when that has taken WAKE_NS, so that it is up by the time the glances end.
 *
 * Everything here is for one thread.
 */
#ifndef WORKER_GLANCE_H
#define WORKER_GLANCE_H

#include <stdbool.h>
#include <stdint.h>

#include "store/timeline.h"

enum worker_glanced {
    WORKER_GLANCE_OFF,
    WORKER_GLANCE_NOTHING,
    WORKER_GLANCE_CHANGED, /* a word has, since the last glance */
    WORKER_GLANCE_WAKE,    /* once: the main thread should look from now on */
};

struct worker_glance {
    const struct store_timeline *timeline;
    uint32_t stream_count;
    bool on;
    bool woken;
    uint64_t began_ns;
    uint64_t seen[STORE_STREAM_MAX];
};

void worker_glance_init(struct worker_glance *glance, const struct store_timeline *timeline,
                        uint32_t stream_count);
/* Words will change; those that have since the last glance are seen as a change by the next one. */
void worker_glance_begin(struct worker_glance *glance, uint64_t now_ns);
void worker_glance_end(struct worker_glance *glance);
enum worker_glanced worker_glance(struct worker_glance *glance, uint64_t now_ns);

#endif
