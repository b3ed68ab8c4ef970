/*
 * The worker's connection to the head: one stream of WorkerFrames and WorkerCommands, numbered and
 * kept by a wire_link, so that a broken connection is resumed where it broke. Reports are gathered
 * and go out one frame at a time: while one is on its way the next grows, so the frames get larger
 * as the load does.
 *
 *   connect -> WorkerHello -> Welcome -> up -> (broken: again, with resume_session)
 *
 * A head that does not know our session any more (EHEADLOST, or a Welcome with another one) has
 * lost what we reported: `lost` is called, and the process ends and is started again, for a fresh
 * start tells everything anew.
 *
 * Threads: callbacks come on the loop's thread, without the lock; they take it. All functions are
 * called with it held, but for create.
 */
#ifndef WORKER_UPLINK_H
#define WORKER_UPLINK_H

#include "base/lock.h"
#include "rpc/rpc.h"
#include "wire/wire.h"
#include "worker/core.h"

struct worker_uplink;

struct worker_uplink_ops {
    /* First Welcome: what we are. Before any command. Not OK: the worker ends. */
    plasmon_status_t (*welcome)(void *user, const Plasmon__V1__WorkerWelcome *welcome,
                                struct pl_err *err);
    /* One command, in order, once. Not OK: the worker ends. */
    plasmon_status_t (*command)(void *user, const Plasmon__V1__WorkerCommand *command,
                                struct pl_err *err);
    /* For rpc_loop_set_many(); without the lock. */
    bool (*many)(void *user);
    /* About every 50 ms. */
    void (*tick)(void *user);
    /* The connection broke: a fresh descriptor is wanted (only when made with a descriptor). */
    void (*want_fd)(void *user);
    /* No way on: end the process. Does not return. */
    void (*lost)(void *user, plasmon_status_t status, const char *why);
    void (*stats)(void *user, Plasmon__V1__WorkerStats *out); /* but for routes */
    /* Fills at most `max`; returns how many. */
    size_t (*routes)(void *user, Plasmon__V1__RouteStats *out, size_t max);
    /* Fills out->pairs. */
    void (*pairs)(void *user, struct wire_arena *arena, Plasmon__V1__WorkerStats *out);
    void (*waits)(void *user, struct wire_arena *arena, Plasmon__V1__WorkerStats *out);
    uint64_t (*received)(void *user); /* last launch taken over */
    void (*trace)(void *user, bool on);
    bool (*spans_pending)(void *user);
    Plasmon__V1__SpanBatch *(*spans)(void *user,
                                     struct wire_arena *arena); /* NULL: no memory */
};

struct worker_uplink_config {
    const struct worker_uplink_ops *ops;
    void *user;
    struct pl_mutex *lock;
    const char *target;         /* NULL: by descriptors */
    int fd;                     /* taken; -1: none */
    const char *token;          /* NULL or "": none */
    struct trust_source *trust; /* NULL: in the clear; lent for good */
    /* All of it but token, resume and received; what it points to is lent for good. */
    const Plasmon__V1__WorkerHello *hello;
};

/* Starts the loop's thread and connects. It lasts as long as the process. */
plasmon_status_t worker_uplink_create(const struct worker_uplink_config *config,
                                      struct worker_uplink **out_uplink) PL_MUST_CHECK;
void worker_uplink_new_fd(struct worker_uplink *uplink, int fd); /* taken */

void worker_uplink_done(struct worker_uplink *uplink, uint64_t first, uint64_t count);
void worker_uplink_failed(struct worker_uplink *uplink, uint64_t seq,
                          plasmon_status_t status, const char *text);
void worker_uplink_starved(struct worker_uplink *uplink, uint64_t seq, uint64_t bytes,
                           uint64_t largest_hole);
void worker_uplink_condemned(struct worker_uplink *uplink,
                             const struct worker_condemned *condemned);
void worker_uplink_data(struct worker_uplink *uplink, uint64_t request,
                        const uint8_t *bytes, uint64_t length);
void worker_uplink_refused(struct worker_uplink *uplink, uint64_t request,
                           plasmon_status_t status, const uint64_t *buffers, size_t count);
void worker_uplink_pair(struct worker_uplink *uplink,
                        const struct worker_pair_report *report);
void worker_uplink_function(struct worker_uplink *uplink, uint32_t id,
                            plasmon_status_t status, const char *text);
/* Send what was gathered, unless a frame is on its way (then it goes when that is out). */
void worker_uplink_flush(struct worker_uplink *uplink);

#endif
