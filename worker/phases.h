/*
 * The worker's part of store/phases.h: when each step of its start was over. Before the store's
 * set-up there is no timeline to write into, so the first ones are kept here until then.
 *
 * Each step also counts up the device's beat, by which the store sees that a start comes along, and
 * is a fault point: with PLASMON_FAULT=worker0.1/worker.start.memory=hang the first worker of host
 * device 0 hangs when its memory is mapped.
 *
 * Threads: the main thread until the uplink runs; from then on whoever holds the worker's lock.
 */
#ifndef WORKER_PHASES_H
#define WORKER_PHASES_H

#include <stdbool.h>

#include "store/phases.h"
#include "store/timeline.h"

struct worker_phases {
    struct store_phases early;
    struct store_timeline *timeline; /* NULL: not yet */
    bool over;                       /* something was enqueued */
    bool waited; /* at the last look the first launch waited for others */
};

void worker_phases_note(struct worker_phases *phases, enum store_phase phase);
/* The set-up came: what was noted so far goes there, too. */
void worker_phases_share(struct worker_phases *phases, struct store_timeline *timeline);
/* Its start comes along, though no step of it is over: it waits for something. After the set-up. */
void worker_phases_beat(const struct worker_phases *phases);
/* Nothing was enqueued yet: does the first launch wait for other devices now? */
void worker_phases_wait(struct worker_phases *phases, bool waits);
/*
 * Something was enqueued. The first time: true, and the line for the log is in *out. functions_ns:
 * when what clients defined was there for it; 0: it did not wait.
 */
bool worker_phases_end(struct worker_phases *phases, uint64_t functions_ns,
                       struct pl_str *out);

#endif
