/*
 * Sending without a copy: bytes that nobody changes until the other side has answered them are lent
 * to the system, which puts their pages themselves into the socket's queue (vmsplice into a pipe of
 * the connection's own, splice from there). That saves a third of the sender's processor time for
 * objects, which no cache holds, and the memory's bandwidth for one copy.
 *
 * WHY NOBODY GETS WRONG BYTES. A page that is in the queue is read when it goes out, so its owner
 * must not change it before. A chunk of the bulk channel stays as it is until it is answered
 * (bulk_out.c), which the receiver does when it has read all of it. When a connection ends with
 * something still in its queue the system goes on sending it, and by then the chunk may have been
 * answered on the next connection, and changed. But the receiver has ended the old connection by
 * then, and waited for its thread (bulk_in.c): nobody reads what still comes there.
 *
 * A connection that has no pipe, or memory that cannot be lent, is no failure: bytes are copied, as
 * always. TLS makes a copy of its own.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fd.h"
#include "transfer/bulk_link.h"

#define PIPE_BYTES (1 << 20) /* where the system allows it; else what it gives by default */
#define LEND_BYTES (64u << 10) /* fewer are copied sooner */

struct bulk_splice {
    int out, in;
    size_t held; /* in the pipe: the first of what is sent next */
    bool off;    /* it did not work: copy */
};

void bulk_splice_end(struct bulk_link *link)
{
    if (link->splice != NULL) {
        pl_fd_close(&link->splice->out);
        pl_fd_close(&link->splice->in);
        pl_free(link->splice);
        link->splice = NULL;
    }
}

static struct bulk_splice *splice_of(struct bulk_link *link)
{
    struct bulk_splice *it = link->splice;
    int fds[2]             = {-1, -1};

    if (it == NULL && (it = PL_NEW(struct bulk_splice)) != NULL) {
        it->off = pipe2(fds, O_CLOEXEC | O_NONBLOCK) != 0;
        it->out = fds[0];
        it->in  = fds[1];
        if (!it->off) {
            (void)fcntl(it->in, F_SETPIPE_SZ, PIPE_BYTES); /* fewer at a time without */
        }
        link->splice = it;
    }
    return it;
}

static void fill(struct bulk_splice *it, const void *data, size_t bytes)
{
    struct iovec some = {.iov_base = (void *)(uintptr_t)data,
                         .iov_len  = pl_min_u64(bytes, PIPE_BYTES)};
    ssize_t held;

    do {
        held = vmsplice(it->in, &some, 1, SPLICE_F_NONBLOCK);
    } while (held < 0 && errno == EINTR);
    it->held = held > 0 ? (size_t)held : 0;
    it->off  = held <= 0;
}

plasmon_status_t bulk_link_try_lend(struct bulk_link *link, const void *data, size_t bytes,
                                    size_t *out_done)
{
    struct bulk_splice *it = link->tls == NULL ? splice_of(link) : NULL;
    ssize_t moved;

    if (it != NULL && it->held == 0 && !it->off && bytes >= LEND_BYTES) {
        fill(it, data, bytes);
    }
    if (it == NULL || it->held == 0) {
        return bulk_link_try_write(link, data, bytes, out_done);
    }
    /* MORE: there is more than the pipe holds, so that a packet may wait for it. */
    moved = splice(it->out, NULL, link->fd, NULL, it->held,
                   SPLICE_F_NONBLOCK | (bytes > it->held ? SPLICE_F_MORE : 0));
    it->held -= moved > 0 ? (size_t)moved : 0;
    return bulk_link_result(moved, out_done);
}
