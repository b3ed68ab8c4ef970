/*
 * Bytes between this program and workers of other hosts, over their bulk channel
 * (transfer/bulk_link.h): not through the head, and not in messages. The head says where the worker
 * listens and gives a ticket for the buffer (Located, PutReady); this is the rest.
 *
 * A transfer is one request over one connection, which is kept for the next one for a few seconds.
 * When a connection breaks, or nothing is heard of it for its deadline, the transfer goes on over
 * another one where it was: what the worker said is on the device, or what came in order, is not
 * moved again. A worker that cannot be reached at all - a firewall, most often - is left alone for
 * a while, and its device is reached by messages; a line of the log says so.
 *
 * TLS: with the certificate that the program shows the head. A program that has one speaks to no
 * worker in the clear.
 *
 * Threads: any. A connection is one transfer's at a time.
 */
#ifndef CLIENT_BULK_H
#define CLIENT_BULK_H

#include <stdbool.h>

#include "base/lock.h"
#include "base/str.h"
#include "base/vec.h"
#include "client/session.h"
#include "transfer/bulk_link.h"

struct bulk_links {
    struct bulk_tls *tls; /* constant from the first transfer on; NULL: in the clear */

    struct pl_mutex lock; /* rank PL_RANK_LEAF */

    /* Guarded by `lock`. */
    struct pl_vec idle;   /* struct bulk_idle: connections between transfers */
    struct pl_vec barred; /* struct bulk_bar: devices that were not reached */
};

/* What moves. hope: says why there is none any more; NULL: always. */
struct bulk_transfer {
    uint32_t device; /* of the cluster */
    const struct bulk_grant *grant;
    uint64_t offset; /* in the buffer */
    uint64_t bytes;
    uint64_t deadline_ns; /* UINT64_MAX: any time */
    plasmon_status_t (*hope)(void *user, struct pl_err *err);
    void *user;
};

plasmon_status_t bulk_links_init(struct bulk_links *links) PL_MUST_CHECK;
/* Before the first transfer: by TLS, with what is in the source's files. It outlives the links. */
plasmon_status_t bulk_links_trust(struct bulk_links *links, struct trust_source *source,
                                  struct pl_err *err) PL_MUST_CHECK;
void bulk_links_finish(struct bulk_links *links);
/* In a forked child: drop descriptors without a word. */
void bulk_links_abandon(struct bulk_links *links);
/* A connection that was welcomed and is between transfers: for the next one to this address. Taken. */
void bulk_links_keep(struct bulk_links *links, const char *address, struct bulk_link *link);
/* May this device be tried? tls: its worker speaks TLS. Says in the log, now and then, why it may not. */
bool bulk_links_allow(struct bulk_links *links, uint32_t device, bool tls);

/*
 * EUNREACHABLE: it cannot be, for now; ELOST: the buffer, or the worker, is not what the grant was
 * for: ask the head again. ETIMEDOUT: the caller's deadline. Nothing is written to `data` after the
 * return.
 */
plasmon_status_t bulk_put(struct bulk_links *links, const struct bulk_transfer *transfer,
                          const void *data, struct pl_err *err) PL_MUST_CHECK;
plasmon_status_t bulk_get(struct bulk_links *links, const struct bulk_transfer *transfer,
                          void *data, struct pl_err *err) PL_MUST_CHECK;

#endif
