/*
 * One end of a control socket: messages go out at once if the socket takes them, otherwise into a
 * bounded queue. So a peer that does not read costs the store a bounded amount of memory and no
 * time.
 *
 * Threads: owner only.
 */
#ifndef STORE_LINK_H
#define STORE_LINK_H

#include <stdbool.h>

#include "base/str.h"
#include "base/vec.h"
#include "store/control.h"

/* CHUNK messages of a full host: STORE_CHUNK_MAX times a few devices */
#define STORE_LINK_QUEUE_MAX 32768u

struct store_link {
    int fd; /* -1: closed */
    uint32_t queue_max;
    struct pl_vec queue; /* struct store_queued; from `sent` on */
    size_t sent;
};

/* Takes fd and makes it non-blocking. */
void store_link_init(struct store_link *link, int fd, uint32_t queue_max);
void store_link_finish(struct store_link *link); /* drops what is queued */
/*
 * Descriptors are borrowed (copied when queued). ELIMIT: the queue is full; ECLOSED and others: the
 * peer is gone.
 */
plasmon_status_t store_link_send(struct store_link *link, struct store_control *message,
                                 const int *fds, unsigned fd_count) PL_MUST_CHECK;
/* Send what is queued, as far as the socket takes it. */
plasmon_status_t store_link_flush(struct store_link *link) PL_MUST_CHECK;
/* wants to know when it is writable */
bool store_link_pending(const struct store_link *link);
/*
 * One message. EAGAIN: none there. Else err says why: ECLOSED: end of file; EMALFORMED, EVERSION:
 * not one of ours; ELIMIT: no descriptor is left for the one that came with it, and the message is
 * lost. At most one descriptor comes in on any message of ours; *out_fd is the caller's, or -1.
 */
plasmon_status_t store_link_receive(struct store_link *link,
                                    struct store_control *out_message, int *out_fd,
                                    struct pl_err *err) PL_MUST_CHECK;

#endif
