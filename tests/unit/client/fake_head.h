/*
 * A head without a cluster, in the test's process: real gRPC over a Unix socket, the real wire. It
 * takes frames, writes down what came, and does what the test says: grants credit, ends tasks,
 * answers, drops the connection.
 *
 * Threads: the fake has a loop of its own; everything here may be called from the test's thread.
 */
#ifndef TESTS_UNIT_CLIENT_FAKE_HEAD_H
#define TESTS_UNIT_CLIENT_FAKE_HEAD_H

#include <stdbool.h>

#include "plasmon/plasmon.h"
#include "wire/wire.h"

struct fake_head;

struct fake_head_config {
    uint64_t credit;          /* 0: a million tasks in flight */
    bool end_tasks;           /* every task is done as soon as it came */
    uint64_t device_bytes;    /* of the one device; 0: 1 GiB */
    bool device_late;         /* it was announced, and has not come */
    const char *device_host;  /* NULL: another host, so that nothing can be mapped */
    const char *store_socket; /* NULL: none */
    const uint8_t *value; /* what every Read reads from; NULL: they fail, once tasks end */
    const char *token;    /* NULL: none is needed */
    uint64_t hellos_lost; /* it breaks the stream in place of the first so many answers */
    uint64_t statuses_lost; /* it is gone for the first so many questions for its status */
    /* Called for each frame, on the fake's thread, before anything else is done with it. NULL: none. */
    void (*frame)(void *user, struct fake_head *head,
                  const Plasmon__V1__ClientFrame *frame);
    void *user;
};

/* What came so far. */
struct fake_head_seen {
    uint64_t hellos, frames, tasks, releases, release_ranges, locates, reads, cancels,
        put_opens, put_seals, publishes, lookups, byes;
    uint64_t tasks_largest; /* of one frame */
    uint64_t last_task;
    uint64_t resumed; /* hellos that resumed */
};

struct fake_head *fake_head_start(const struct fake_head_config *config);
void fake_head_stop(struct fake_head *head);
const char *fake_head_address(const struct fake_head *head);
/* A client of it, or the test fails. */
struct plasmon_client *fake_head_client(struct fake_head *head);
struct fake_head_seen fake_head_seen(struct fake_head *head);
/* Until `check` says yes; the test fails after ten seconds. */
void fake_head_wait(struct fake_head *head,
                    bool (*check)(const struct fake_head_seen *seen, uint64_t value),
                    uint64_t value);
bool seen_tasks(const struct fake_head_seen *seen,
                uint64_t value); /* at least so many tasks */
bool seen_releases(const struct fake_head_seen *seen, uint64_t value); /* refs */
bool seen_cancels(const struct fake_head_seen *seen, uint64_t value);
bool seen_byes(const struct fake_head_seen *seen, uint64_t value);

/* Send a frame; header and its seq are filled in. */
void fake_head_send(struct fake_head *head, Plasmon__V1__HeadFrame *frame);
void fake_head_done(struct fake_head *head, uint64_t first, uint64_t count);
void fake_head_fail(struct fake_head *head, uint64_t task, plasmon_status_t status,
                    const char *text, uint64_t first_task);
void fake_head_grant(struct fake_head *head, uint64_t credit);
/* Break the stream; the session stays known, or is forgotten. */
void fake_head_drop(struct fake_head *head, bool forget);

#endif
