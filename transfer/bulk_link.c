/* Bytes over a connection of the bulk channel: no wait without an end. */
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/fd.h"
#include "transfer/bulk_link.h"

void bulk_link_close(struct bulk_link *link)
{
    bulk_tls_end(link);
    bulk_splice_end(link);
    pl_fd_close(&link->fd);
}

plasmon_status_t bulk_link_wait(const struct bulk_link *link, short events, int timeout_ms)
{
    short own            = link->tls != NULL ? link->tls_wants : 0;
    struct pollfd fds[2] = {{.fd = link->fd, .events = (short)(events | own)},
                            {.fd = link->stop_fd, .events = POLLIN}};
    int count;

    do {
        count = poll(fds, 2, timeout_ms);
    } while (count < 0 && errno == EINTR);
    if (count == 0) {
        return PLASMON_EAGAIN;
    }
    return count < 0 || fds[1].revents != 0 ? PLASMON_ECLOSED : PLASMON_OK;
}

uint32_t bulk_link_wake_best(const struct bulk_link *link)
{
    int buffer      = 0;
    socklen_t bytes = sizeof(buffer);

    /*
     * Half of it holds bytes, as the system counts; and there should be room for as much again
     * while we get up.
     */
    if (getsockopt(link->fd, SOL_SOCKET, SO_RCVBUF, &buffer, &bytes) != 0 || buffer <= 0) {
        return 1;
    }
    return (uint32_t)pl_min_u64(BULK_WAKE_BYTES, (uint64_t)buffer / 4);
}

void bulk_link_wake_at(struct bulk_link *link, uint32_t bytes)
{
    int low = (int)bytes;

    /* 0 is a new connection's, which is the same as 1. Refused: we are woken more often. */
    if (pl_max_u64(link->wake_at, 1) != bytes) {
        (void)setsockopt(link->fd, SOL_SOCKET, SO_RCVLOWAT, &low, sizeof(low));
        link->wake_at = bytes;
    }
}

plasmon_status_t bulk_link_result(ssize_t done, size_t *out_done)
{
    *out_done = done > 0 ? (size_t)done : 0;
    if (done > 0) {
        return PLASMON_OK;
    }
    return done < 0 && (errno == EAGAIN || errno == EINTR) ? PLASMON_EAGAIN
                                                           : PLASMON_ECONNECT;
}

plasmon_status_t bulk_link_try_read(struct bulk_link *link, void *data, size_t bytes,
                                    size_t *out_done)
{
    return link->tls != NULL ? bulk_tls_read(link, data, bytes, out_done)
                             : bulk_link_result(recv(link->fd, data, bytes, 0), out_done);
}

plasmon_status_t bulk_link_try_write(struct bulk_link *link, const void *data, size_t bytes,
                                     size_t *out_done)
{
    return link->tls != NULL
               ? bulk_tls_write(link, data, bytes, out_done)
               : bulk_link_result(send(link->fd, data, bytes, MSG_NOSIGNAL), out_done);
}

/* How long poll() may wait; 0: no time is left. */
static int patience_ms(uint64_t silence_ns, uint64_t until_ns)
{
    uint64_t now_ns  = until_ns != 0 ? pl_now_ns() : 0;
    uint64_t left_ns = until_ns == 0       ? UINT64_MAX
                       : until_ns > now_ns ? until_ns - now_ns
                                           : 0;

    left_ns = pl_min_u64(left_ns, silence_ns != 0 ? silence_ns : UINT64_MAX);
    if (left_ns == UINT64_MAX) {
        return -1;
    }
    return (int)pl_min_u64((left_ns + 999999) / 1000000, INT_MAX);
}

static plasmon_status_t move_all(struct bulk_link *link, uint8_t *data, size_t bytes,
                                 uint64_t silence_ns, uint64_t until_ns, bool out)
{
    while (bytes > 0) {
        size_t done;
        int wait_ms             = 0;
        plasmon_status_t status = out ? bulk_link_try_write(link, data, bytes, &done)
                                      : bulk_link_try_read(link, data, bytes, &done);

        data += done;
        bytes -= done;
        if (status == PLASMON_EAGAIN) {
            wait_ms = patience_ms(silence_ns, until_ns);
            status  = wait_ms == 0 ? PLASMON_EAGAIN
                                   : bulk_link_wait(link, out ? POLLOUT : POLLIN, wait_ms);
        }
        if (status != PLASMON_OK) {
            return status == PLASMON_EAGAIN ? PLASMON_ETIMEDOUT : status;
        }
    }
    return PLASMON_OK;
}

plasmon_status_t bulk_link_read(struct bulk_link *link, void *data, size_t bytes,
                                uint64_t silence_ns, uint64_t until_ns)
{
    return move_all(link, data, bytes, silence_ns, until_ns, false);
}

plasmon_status_t bulk_link_write(struct bulk_link *link, const void *data, size_t bytes,
                                 uint64_t silence_ns, uint64_t until_ns)
{
    return move_all(link, (uint8_t *)(uintptr_t)data, bytes, silence_ns, until_ns, true);
}

plasmon_status_t bulk_link_introduce(struct bulk_link *link, struct bulk_tls *tls,
                                     uint32_t from, uint32_t to,
                                     const struct transfer_bulk_endpoint *endpoint,
                                     struct pl_err *err)
{
    struct bulk_hello hello = {
        .magic = BULK_MAGIC, .version = BULK_VERSION, .from = from, .to = to};
    uint64_t until_ns           = pl_now_ns() + BULK_HANDSHAKE_NS;
    struct bulk_welcome welcome = {.magic = 0};
    plasmon_status_t status;

    if (tls != NULL) {
        struct pl_err why = {.status = PLASMON_OK};

        status = bulk_tls_begin(link, tls, false, until_ns, &why);
        if (status != PLASMON_OK) {
            return pl_err_set(err, status,
                              "%s: %s; is it started with --tls-cert of the "
                              "same CA?",
                              endpoint->address, why.text);
        }
    }
    memcpy(hello.secret, endpoint->secret, sizeof(hello.secret));
    status = bulk_link_write(link, &hello, sizeof(hello), 0, until_ns);
    if (status == PLASMON_OK) {
        status = bulk_link_read(link, &welcome, sizeof(welcome), 0, until_ns);
    }
    if (status != PLASMON_OK) {
        return pl_err_set(err, status, "%s: %s while we said hello", endpoint->address,
                          pl_status_text(status));
    }
    if (welcome.magic != BULK_MAGIC || welcome.version != BULK_VERSION) {
        return pl_err_set(err, PLASMON_EVERSION,
                          "%s speaks version %u of the bulk channel, and we speak %u: "
                          "all programs of a cluster must be of one release",
                          endpoint->address,
                          welcome.magic == BULK_MAGIC ? welcome.version : 0, BULK_VERSION);
    }
    if (welcome.status != PLASMON_OK) {
        return pl_err_set(err, (plasmon_status_t)welcome.status, "%s refuses: %s",
                          endpoint->address,
                          pl_status_text((plasmon_status_t)welcome.status));
    }
    return PLASMON_OK;
}
