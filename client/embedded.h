/*
 * A private cluster: plasmon-store, which starts the head and the workers, and ends with this process.
 *
 * The store gets two descriptors: 3 is a pidfd of this process, 4 one end of a socketpair
 * (store/control.h). Over the other end come a socket to the head and everything that shared.c
 * needs; closing it ends the cluster.
 */
#ifndef CLIENT_EMBEDDED_H
#define CLIENT_EMBEDDED_H

#include <stdbool.h>

#include "base/str.h"
#include "client/shared.h"
#include "plasmon/plasmon.h"

struct embedded {
    bool active;
    int pidfd;  /* of the store; -1: none */
    int log_fd; /* what the daemons wrote to stderr: a memfd of bounded size; -1: none */
};

void embedded_init(struct embedded *embedded);
/* Start the store; its control socket goes to `shared`. ENOENT, EIO, ... */
plasmon_status_t embedded_start(struct embedded *embedded,
                                const struct plasmon_options *options,
                                struct shared *shared, struct pl_err *err) PL_MUST_CHECK;
/* A socket to the head. `again`: the last one broke. On failure err ends with what the daemons had to say. */
plasmon_status_t embedded_head_fd(struct embedded *embedded, struct shared *shared,
                                  bool again, uint32_t timeout_ms, int *out_fd,
                                  struct pl_err *err) PL_MUST_CHECK;
/*
 * The first session failed with this thread's error. If that is because the cluster ended: ECLOSED,
 * with its words in place of gRPC's. Else they follow what is said already.
 */
plasmon_status_t embedded_explain(const struct embedded *embedded, plasmon_status_t status);
/* Put the last lines that the daemons wrote onto the end of the text. */
void embedded_add_log(const struct embedded *embedded, struct pl_err *err);
/*
 * Of a cluster that did not start: before them the first line, which is the cause where all else is
 * what came of it.
 */
void embedded_add_start_log(const struct embedded *embedded, struct pl_err *err);
/* shared_finish() was called: wait for the store's end, kill it after timeout_ms. */
void embedded_finish(struct embedded *embedded, uint32_t timeout_ms);
/* In a forked child. */
void embedded_abandon(struct embedded *embedded);

#endif
