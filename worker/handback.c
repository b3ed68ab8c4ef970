#include "worker/handback.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"

#define SEND_S 2 /* a store that does not read for so long is no store */

struct worker_kept {
    struct store_control message; /* KEPT */
    int fd;
};

void worker_handback_init(struct worker_handback *handback)
{
    *handback      = (struct worker_handback){.socket_path = NULL};
    handback->kept = PL_VEC_INIT(struct worker_kept);
}

static struct worker_kept *kept_at(struct worker_handback *handback, size_t i)
{
    return pl_vec_at(&handback->kept, i);
}

void worker_handback_finish(struct worker_handback *handback)
{
    for (size_t i = 0; i < handback->kept.count; i++) {
        pl_fd_close(&kept_at(handback, i)->fd);
    }
    pl_vec_finish(&handback->kept);
}

/* ------------------------------------------------------------------------- what is kept */

/*
 * A chunk under a known number: told again, in the place of one that died with a worker and was
 * never used, or it could not be sent.
 */
void worker_handback_forget_chunk(struct worker_handback *handback,
                                  const struct store_control *message)
{
    for (size_t i = handback->kept.count; i-- > 0;) {
        struct worker_kept *kept = kept_at(handback, i);

        if (kept->message.part == STORE_KEPT_CHUNK &&
            kept->message.host_device == message->host_device &&
            kept->message.chunk_id == message->chunk_id) {
            pl_fd_close(&kept->fd);
            pl_vec_remove_unordered(&handback->kept, i);
        }
    }
}

/* The same thing, said again or gone: pages and host buffers are replaced and dropped. */
static void forget(struct worker_handback *handback, enum store_kept part, uint32_t reader,
                   uint64_t number)
{
    for (size_t i = handback->kept.count; i-- > 0;) {
        struct worker_kept *kept = kept_at(handback, i);

        if (kept->message.part == (uint32_t)part &&
            (part == STORE_KEPT_PINS    ? kept->message.reader == reader
             : part == STORE_KEPT_SPILL ? kept->message.chunk_id == number
                                        : kept->message.offset == number)) {
            pl_fd_close(&kept->fd);
            pl_vec_remove_unordered(&handback->kept, i);
        }
    }
}

static void keep(struct worker_handback *handback, const struct store_control *message,
                 enum store_kept part, uint32_t host_device, uint32_t reader, int fd)
{
    struct worker_kept *kept;
    int copy = fcntl(fd, F_DUPFD_CLOEXEC, 3);

    if (part == STORE_KEPT_PINS) {
        forget(handback, part, reader, 0);
    }
    kept = copy >= 0 ? pl_vec_push(&handback->kept) : NULL;
    if (kept == NULL) {
        pl_fd_close(&copy);
        if (!handback->incomplete) {
            pl_warn("worker",
                    "a descriptor cannot be kept (%s): if this host's store dies, this "
                    "worker ends with it; raise the limit of open files",
                    strerror(errno));
        }
        handback->incomplete = true;
        return;
    }
    *kept = (struct worker_kept){.message = {.version         = STORE_CONTROL_VERSION,
                                             .type            = STORE_CONTROL_KEPT,
                                             .count           = 1,
                                             .part            = (uint32_t)part,
                                             .host_device     = host_device,
                                             .chunk_id        = message->chunk_id,
                                             .client_writable = message->client_writable,
                                             .offset          = message->offset,
                                             .bytes           = message->bytes,
                                             .reader          = reader},
                                 .fd      = copy};
}

static void note_setup(struct worker_handback *handback,
                       const struct store_control *message, const int *fds,
                       unsigned fd_count)
{
    static const enum store_kept parts[] = {[STORE_PART_TIMELINES] = STORE_KEPT_TIMELINE,
                                            [STORE_PART_TABLES]    = STORE_KEPT_TABLE,
                                            [STORE_PART_DOORBELLS] = STORE_KEPT_DOORBELL,
                                            [STORE_PART_STAGES]    = STORE_KEPT_STAGE,
                                            [STORE_PART_PINS]      = STORE_KEPT_PINS,
                                            [STORE_PART_READERS]   = STORE_KEPT_PINS};

    for (unsigned i = 0; i < fd_count && message->part < PL_COUNT(parts); i++) {
        keep(handback, message, parts[message->part], i, message->reader + i, fds[i]);
    }
}

void worker_handback_note(struct worker_handback *handback,
                          const struct store_control *message, const int *fds,
                          unsigned fd_count)
{
    if (handback->socket_path == NULL) {
        return;
    }
    switch (message->type) {
    case STORE_CONTROL_SETUP:
        note_setup(handback, message, fds, fd_count);
        break;
    case STORE_CONTROL_CHUNK:
    case STORE_CONTROL_CHUNK_ADD:
        if (fd_count == 1) {
            worker_handback_forget_chunk(handback, message);
            keep(handback, message, STORE_KEPT_CHUNK, message->host_device, 0, fds[0]);
        }
        break;
    case STORE_CONTROL_LANE:
        if (fd_count == 1) {
            keep(handback, message, STORE_KEPT_LANE, message->host_device, 0, fds[0]);
        }
        break;
    case STORE_CONTROL_HOST_BUFFER:
        if (fd_count == 1) {
            forget(handback, STORE_KEPT_BUFFER, 0, message->offset);
            keep(handback, message, STORE_KEPT_BUFFER, 0, message->reader, fds[0]);
        }
        break;
    case STORE_CONTROL_SPILL:
        if (fd_count == 1) {
            forget(handback, STORE_KEPT_SPILL, 0, message->chunk_id);
            keep(handback, message, STORE_KEPT_SPILL, 0, 0, fds[0]);
        }
        break;
    case STORE_CONTROL_HOST_BUFFER_DROP:
        forget(handback, STORE_KEPT_BUFFER, 0, message->offset);
        break;
    case STORE_CONTROL_PINS_ADD:
        if (fd_count == 1) {
            keep(handback, message, STORE_KEPT_PINS, 0, message->reader, fds[0]);
        }
        break;
    case STORE_CONTROL_PINS_REMOVE:
        forget(handback, STORE_KEPT_PINS, message->reader, 0);
        break;
    default:
        break;
    }
}

/* ------------------------------------------------------------------------- handing back */

static plasmon_status_t store_connect(const char *path, int *out_fd)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct timeval patience    = {.tv_sec = SEND_S};
    int fd;

    if (strlen(path) >= sizeof(address.sun_path)) {
        return PLASMON_ELIMIT;
    }
    memcpy(address.sun_path, path, strlen(path) + 1);
    fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return pl_status_from_errno(errno);
    }
    if (setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience)) != 0 ||
        connect(fd, (const struct sockaddr *)&address, sizeof(address)) != 0) {
        plasmon_status_t status = pl_status_from_errno(errno);

        pl_fd_close(&fd);
        return status;
    }
    *out_fd = fd;
    return PLASMON_OK;
}

static plasmon_status_t say(int fd, const struct store_control *message,
                            const int *descriptor)
{
    return pl_fd_send(fd, message, sizeof(*message), descriptor,
                      descriptor != NULL ? 1 : 0);
}

static plasmon_status_t hand_all(struct worker_handback *handback, uint32_t host_device,
                                 uint32_t total, int fd)
{
    struct store_control begin = {.version     = STORE_CONTROL_VERSION,
                                  .type        = STORE_CONTROL_HANDBACK,
                                  .host_device = host_device,
                                  .total       = total,
                                  .offset      = handback->device_memory,
                                  .reader      = handback->incarnation};
    struct store_control end   = {.version     = STORE_CONTROL_VERSION,
                                  .type        = STORE_CONTROL_HANDBACK_END,
                                  .host_device = host_device};
    plasmon_status_t status    = say(fd, &begin, NULL);

    for (size_t i = 0; i < handback->kept.count && status == PLASMON_OK; i++) {
        status = say(fd, &kept_at(handback, i)->message, &kept_at(handback, i)->fd);
    }
    return status == PLASMON_OK ? say(fd, &end, NULL) : status;
}

plasmon_status_t worker_handback_try(struct worker_handback *handback, uint32_t host_device,
                                     uint32_t total, int *out_fd)
{
    uint64_t now_ns = pl_now_ns();
    plasmon_status_t status;
    int fd = -1;

    if (handback->socket_path == NULL || handback->incomplete) {
        return PLASMON_ECLOSED;
    }
    if (handback->orphaned_ns == 0) {
        handback->orphaned_ns = now_ns;
        pl_warn("worker",
                "device %u of this host: its store is gone; going on, and waiting "
                "%u ms for another one",
                host_device, handback->lease_ms);
    } else if (now_ns - handback->tried_ns < WORKER_HANDBACK_TRY_MS * UINT64_C(1000000)) {
        return PLASMON_EAGAIN;
    } else if (now_ns - handback->orphaned_ns >= handback->lease_ms * UINT64_C(1000000)) {
        return PLASMON_ECLOSED;
    }
    handback->tried_ns = now_ns;
    status             = store_connect(handback->socket_path, &fd);
    if (status == PLASMON_OK) {
        status = hand_all(handback, host_device, total, fd);
    }
    if (status != PLASMON_OK) {
        pl_fd_close(&fd);
        return PLASMON_EAGAIN; /* there will be another one, or the lease ends */
    }
    pl_info("worker", "device %u of this host has a store again", host_device);
    handback->orphaned_ns = 0;
    *out_fd               = fd;
    return PLASMON_OK;
}
