/*
 * How fast transfers are, measured: bandwidth and latency from one device to another on one route,
 * from what workers report of transfers that are over (PairStats). Used by `auto` to choose a route
 * (pair.c), which cannot change a result.
 *
 * A SAMPLE is the difference of two reports of a worker: so many bytes and transfers more, in so
 * much time in which some were under way. It says something of bandwidth when its transfers were
 * large, of latency when they were small. A worker's time begins when a transfer is enqueued, so it
 * may hold waiting for what makes the bytes; no sample is too good. Therefore the average follows
 * better figures by half at once and worse ones by a sixteenth: it is an upper envelope that
 * decays, and a network that became slow is known after some dozens of samples. By the bulk channel
 * chunks may lie in the receiver's ring before its half begins, so a receiver's time would be too
 * good: there only the sender's figure counts, what its connection did while it was busy.
 *
 * Under HEAD_RATE_SAMPLES samples a figure counts for nothing, and round figures for the kind of
 * way take its place.
 *
 * A function of the inputs of the head, like everything of the core: whole numbers, no clock.
 */
#ifndef HEAD_RATES_H
#define HEAD_RATES_H

#include "head/checkpoint.h"
#include "head/device.h"

#define HEAD_RATE_SAMPLES 3u /* before a figure is used */
/* As RouteStats.route. */
enum { HEAD_ROUTE_PEER = 1, HEAD_ROUTE_HOST = 2, HEAD_ROUTE_NCCL = 3, HEAD_RATE_ROUTES };

struct head_rate {
    uint64_t bytes_per_s;
    uint64_t latency_ns;
    uint32_t rate_samples;
    uint32_t latency_samples;
    uint64_t connection; /* of the sender's last report: what its connection does */
    /* Of the receiver's report that was looked at last. */
    uint64_t bytes;
    uint64_t transfers;
    uint64_t busy_ns;
};

/* From one device to one other. */
struct head_way {
    uint32_t from;
    uint32_t to;
    struct head_rate rates[HEAD_RATE_ROUTES];
    uint32_t chosen; /* between hosts: host or nccl; 0: neither was measured enough yet */
    uint32_t other_after; /* transfers by it since the other one was tried */
    uint64_t other_bytes; /* and their bytes */
    uint64_t explored;    /* transfers that went the other way to measure it */
    /* owned: bytes are ready, and this is why none goes (reach.c); NULL: all is well */
    char *unreached;
    bool alone; /* .. and between other devices of the two hosts some do */
};

/* What one worker reports of one pair. */
void head_rates_take(struct head_core *core, const Plasmon__V1__PairStats *pair);
/* NULL: nothing was measured. */
const struct head_way *head_rates_way(const struct head_core *core, uint32_t from,
                                      uint32_t to);
/* The same; made when there is none. */
struct head_way *head_rates_way_of(struct head_core *core, uint32_t from, uint32_t to);
/*
 * How long so many bytes will take, by the route that they would go. An hour, and no byte sooner,
 * where nothing gets through now.
 */
uint64_t head_rates_ns(const struct head_core *core, const struct head_device *from,
                       const struct head_device *to, uint64_t bytes);
/*
 * Between hosts, as far as anything was measured: by the way's own figure, else by the best one of
 * the ways from `from` to other hosts, which go over the same network. 0: nothing was.
 */
uint64_t head_rates_known_ns(struct head_core *core, const struct head_device *from,
                             const struct head_device *to, uint64_t bytes);
/*
 * Between hosts, where both could be: may a transfer that begins now go by NCCL? No: it is measured
 * to be slower than the host route, or the host route is to be measured again. Changes what it
 * counts: once for each transfer.
 */
bool head_rates_nccl(struct head_core *core, const struct head_device *from,
                     const struct head_device *to, uint64_t bytes);
/* For people (route.c): by which route a large transfer goes now (as RouteStats.route), and why. */
enum { HEAD_WHY_BYTES = 512 };
uint32_t head_route_plan(struct head_core *core, const struct head_device *from,
                         const struct head_device *to, char why[HEAD_WHY_BYTES]);
/* Why no pair can be made of the two, perhaps in text; NULL: one can. */
const char *head_pair_missing(const struct head_device *from, const struct head_device *to,
                              char text[HEAD_WHY_BYTES]);
/* For people: each way that was measured, in order. In the arena. */
plasmon_status_t head_rates_status(struct head_core *core, struct wire_arena *arena,
                                   Plasmon__V1__StatusReply *out) PL_MUST_CHECK;
/* Into a checkpoint, and out of one: what is read is checked. */
void head_rates_save(const struct head_core *core, struct head_bytes *out);
void head_rates_load(struct head_core *core, struct head_reader *in);
void head_rates_destroy(struct head_core *core);

#endif
