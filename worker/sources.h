/*
 * Who copies between the GPUs of a host: the one that the bytes come from, or the one that wants
 * them (device/cuda/far.c says what is better in which).
 *
 * FOR WHO COPIES MUCH, since it costs memory of GPUs and some seconds (docs/transfers.md), and where
 * that is a thirty-second of a GPU's memory at most: the head's plan for a full device leaves twice
 * as much aside (head/spill.c). And where there are four GPUs at most: of eight 56 contexts would be
 * opened, which the driver makes one after the other. Nor under NVIDIA's multi-process service, where
 * a context on another GPU ends with an error of that one's worker, and takes of the few that there
 * may be. Much: what it costs comes back late, at 3 to 5 % of what is copied.
 *
 * WHILE THE HOST RESTS. While a context is made what waits for other GPUs waits longer, all-reduces in
 * a row ten times. So who OPENS does so when nothing has been given to the GPUs of its host for a
 * moment, and they have nothing to do: one context at a time, so that who begins to work then waits
 * for one at most. Whoever has made so many copies that it pays even so does not wait for that.
 * PLASMON_SOURCE_ENGINES=0: for nobody; 1: soon, whatever it costs, and however many there are.
 *
 * ALL OR NONE. An engine that two processes use takes turns between them, for longer than a copy:
 * of two GPUs of which one reads by its own engine, and is read by its engine for the other's
 * process, each has half of its rate (H200s, 100 MiB both ways: 388 GB/s in place of 735). So a
 * worker has sources copy only while nobody on its host makes large copies by engines of its own.
 * Each shows in its table (struct store_table) how it stands:
 *
 *   IDLE     it has made few large copies, or none; few are fewer when another one OPENS or has
 *            OPENED, for what it reads is in that one's way
 *   OPENS    it makes them by its own engines, and opens what it needs to leave that, when it may
 *   OPENED   it can leave it, and does while nobody OPENS or REFUSES
 *   REFUSES  it cannot: a GPU has no room, or there are too many others, one is for one process, or
 *            is not visible here
 *
 * What is not large is read by one's own engines in any case. Where that is much (SMALL_BYTES in
 * WINDOW_NS), a worker shows until when it counts, a second from then, and that is like OPENS for
 * all.
 *
 * ONE AT A TIME. Work in an engine that waits for a word seems to keep it for a while from other
 * processes, whose work does not wait: where two workers shared one, a chain took 13 times as long
 * (docs/transfers.md). Of two GPUs nobody shares: each one's engine copies for the other one. Of more
 * several may want the same to write. So there each shows for which engine its last launch is that
 * another one's writes, or its own reads because it is not large (engine_used); and who finds that
 * somebody else has work in the one that it wants reads, and has all read for a tenth of a second, or
 * longer if that was not long ago. Large copies that were read by then do not count: their reader
 * writes from now on, too, and if each waited for the other to end that nobody would ever begin.
 *
 * Each decides by itself, for each copy, and a decision that is a moment old costs time and nothing
 * else. A device that is gone counts as IDLE; the next worker of one that died begins there.
 *
 * Threads: owner only (the worker's lock).
 */
#ifndef WORKER_SOURCES_H
#define WORKER_SOURCES_H

#include "device/device.h"
#include "worker/shared.h"

/*
 * Large copies. After so many it REFUSES, or OPENS if another one of the host does, or with
 * PLASMON_SOURCE_ENGINES=1.
 */
#define WORKER_SOURCES_SOON_BYTES (UINT64_C(64) << 20)
/* After so many it OPENS, and after so many does not wait until its host rests; of two GPUs, .. */
#define WORKER_SOURCES_PAIR_BYTES       (UINT64_C(16) << 30)
#define WORKER_SOURCES_PAIR_HURRY_BYTES (UINT64_C(256) << 30)
/* .. and of more, where several contexts are needed. */
#define WORKER_SOURCES_SEVERAL_BYTES       (UINT64_C(256) << 30)
#define WORKER_SOURCES_SEVERAL_HURRY_BYTES (UINT64_C(16) << 40)
/* It rests: for so long nothing was given to its GPUs, and they have nothing to do. */
#define WORKER_SOURCES_REST_NS UINT64_C(400000000)

struct worker_sources {
    struct device *device;
    const struct worker_shared *shared;
    bool wanted;
    bool always;
    bool several; /* more than two GPUs */
    uint64_t copied;
    uint64_t window_ns;      /* since then .. */
    uint64_t small;          /* .. so much was copied that is not large */
    uint64_t pause_ns;       /* so long all read the last time that an engine was shared */
    uint64_t rests_since_ns; /* the host, as it seems; with so many launches */
    uint64_t rests_launches;
    enum store_engines state; /* as our table shows it */
};

/* Do so many other devices of a host open what they need on such a one without being asked to? */
bool worker_sources_by_default(const struct device_info *info, uint32_t others);
void worker_sources_init(struct worker_sources *sources, struct device *device,
                         const struct worker_shared *shared);
/*
 * Ordinal of the device whose engines copy so many bytes of that device of the host, in a large
 * copy, for launch seq, which is published; our own device: so many that are not (0: it copies
 * nothing from others).
 */
uint32_t worker_sources_engines(struct worker_sources *sources, uint32_t host_device,
                                uint64_t bytes, uint64_t seq);
/*
 * Now and then: who has opened all is no longer one who OPENS, also when it copies nothing more; and
 * when the host rests it is a good time to open.
 */
void worker_sources_tick(struct worker_sources *sources);
/* As what it copies is copied now: what it could do counts only when all can. */
enum store_engines worker_sources_stand(const struct worker_sources *sources);

#endif
