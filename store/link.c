/*
 * Control sockets: see link.h. What comes in is from another process and is checked before anybody
 * looks at it.
 */
#include "store/link.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"

struct store_queued {
    struct store_control message;
    unsigned fd_count;
    int fds[PL_FD_MAX_PER_MESSAGE];
};

void store_link_init(struct store_link *link, int fd, uint32_t queue_max)
{
    int flags = fcntl(fd, F_GETFL);

    *link       = (struct store_link){.fd = fd, .queue_max = queue_max};
    link->queue = PL_VEC_INIT(struct store_queued);
    if (flags >= 0) {
        (void)fcntl(fd, F_SETFL, flags | O_NONBLOCK); /* cannot fail on a socket */
    }
}

static void queued_close(struct store_queued *queued)
{
    for (unsigned i = 0; i < queued->fd_count; i++) {
        pl_fd_close(&queued->fds[i]);
    }
    queued->fd_count = 0;
}

void store_link_finish(struct store_link *link)
{
    for (size_t i = link->sent; i < link->queue.count; i++) {
        queued_close(pl_vec_at(&link->queue, i));
    }
    pl_vec_finish(&link->queue);
    link->sent = 0;
    pl_fd_close(&link->fd);
}

bool store_link_pending(const struct store_link *link)
{
    return link->queue.count > link->sent;
}

/*
 * What was sent goes from the front of the queue, once it is half of it: so a message is moved less
 * than once on average, and a peer that is never quite up to date has at most twice queue_max.
 */
static void link_compact(struct store_link *link)
{
    size_t waiting = link->queue.count - link->sent;

    if (link->sent < waiting || waiting == 0) {
        return;
    }
    memcpy(pl_vec_at(&link->queue, 0), pl_vec_at(&link->queue, link->sent),
           waiting * sizeof(struct store_queued)); /* no more than was sent: apart */
    link->queue.count = waiting;
    link->sent        = 0;
}

static plasmon_status_t link_enqueue(struct store_link *link,
                                     const struct store_control *message, const int *fds,
                                     unsigned fd_count)
{
    struct store_queued *queued;

    if (link->queue.count - link->sent >= link->queue_max) {
        return PLASMON_ELIMIT;
    }
    link_compact(link);
    queued = pl_vec_push(&link->queue);
    if (queued == NULL) {
        return PLASMON_ENOMEM;
    }
    queued->message = *message;
    for (unsigned i = 0; i < fd_count; i++) {
        queued->fds[i] = fcntl(fds[i], F_DUPFD_CLOEXEC, 3);
        if (queued->fds[i] < 0) {
            plasmon_status_t status = pl_status_from_errno(errno);

            queued_close(queued);
            pl_vec_pop(&link->queue);
            return status;
        }
        queued->fd_count = i + 1;
    }
    return PLASMON_OK;
}

plasmon_status_t store_link_send(struct store_link *link, struct store_control *message,
                                 const int *fds, unsigned fd_count)
{
    plasmon_status_t status;

    if (link->fd < 0) {
        return PLASMON_ECLOSED;
    }
    PL_CHECK(fd_count <= PL_FD_MAX_PER_MESSAGE);
    message->version = STORE_CONTROL_VERSION;
    message->count   = fd_count;
    if (store_link_pending(link)) {
        return link_enqueue(link, message, fds, fd_count); /* order is kept */
    }
    status = pl_fd_send(link->fd, message, sizeof(*message), fds, fd_count);
    if (status == PLASMON_EAGAIN) {
        return link_enqueue(link, message, fds, fd_count);
    }
    return status;
}

plasmon_status_t store_link_flush(struct store_link *link)
{
    while (store_link_pending(link)) {
        struct store_queued *queued = pl_vec_at(&link->queue, link->sent);
        plasmon_status_t status =
            pl_fd_send(link->fd, &queued->message, sizeof(queued->message), queued->fds,
                       queued->fd_count);

        if (status == PLASMON_EAGAIN) {
            return PLASMON_OK;
        }
        if (status != PLASMON_OK) {
            return status;
        }
        queued_close(queued);
        link->sent++;
    }
    pl_vec_clear(&link->queue);
    link->sent = 0;
    return PLASMON_OK;
}

plasmon_status_t store_link_receive(struct store_link *link,
                                    struct store_control *out_message, int *out_fd,
                                    struct pl_err *err)
{
    size_t length  = sizeof(*out_message);
    unsigned count = 1;
    plasmon_status_t status;

    *out_fd = -1;
    memset(out_message, 0, sizeof(*out_message));
    status = pl_fd_recv(link->fd, out_message, &length, out_fd, &count);
    if (status == PLASMON_EAGAIN) {
        return status;
    }
    if (status != PLASMON_OK && status != PLASMON_EMALFORMED) {
        return pl_err_set(err, status, "%s",
                          status == PLASMON_ELIMIT ? PL_FD_NONE_LEFT
                                                   : pl_status_text(status));
    }
    status = store_control_check(out_message, length, status != PLASMON_OK, err);
    if (status != PLASMON_OK) {
        pl_fd_close(out_fd);
        return status;
    }
    out_message->text[sizeof(out_message->text) - 1] = '\0';
    return PLASMON_OK;
}
