/*
 * Memory by descriptor. An object's memory has no name that could be left behind: it lives as long
 * as somebody has it mapped or holds a descriptor. Size seals make a mapping safe against SIGBUS,
 * because nobody, however confused, can shrink the file under it; F_SEAL_SEAL stops whoever is
 * handed the descriptor from adding seals of its own.
 *
 * A read-only descriptor protects against mistakes of its holder, not against malice: one OS user
 * can open it for writing through /proc. The OS user is the boundary of trust.
 */
#include "fd.h"

#include "fault.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* since Linux 5.14; glibc 2.35 has it */
#endif

plasmon_status_t pl_memfd_create(const char *name, size_t bytes, int *out_fd)
{
    plasmon_status_t status;
    int fd;

    if (bytes == 0 || bytes > INT64_MAX) {
        return PLASMON_EINVAL;
    }
    if (pl_fault_point("fd.memfd")) {
        return PLASMON_ENOMEM;
    }

    fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0) {
        return pl_status_from_errno(errno);
    }
    if (ftruncate(fd, (off_t)bytes) != 0 ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
        status = pl_status_from_errno(errno);
        pl_fd_close(&fd);
        return status;
    }

    *out_fd = fd;
    return PLASMON_OK;
}

static plasmon_status_t reopen(int fd, int flags, int *out_fd)
{
    char path[64];
    int copy;

    if (pl_fault_point("fd.reopen")) {
        return PLASMON_ELIMIT;
    }
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    copy = open(path, flags | O_CLOEXEC);
    if (copy < 0) {
        return pl_status_from_errno(errno);
    }
    *out_fd = copy;
    return PLASMON_OK;
}

plasmon_status_t pl_fd_reopen_readonly(int fd, int *out_fd)
{
    return reopen(fd, O_RDONLY, out_fd);
}

plasmon_status_t pl_fd_reopen_writable(int fd, int *out_fd)
{
    return reopen(fd, O_RDWR, out_fd);
}

void pl_fd_raise(int fd)
{
    uint64_t one = 1;

    (void)!write(fd, &one, sizeof(one)); /* EAGAIN: it is full, so it is raised */
}

bool pl_fd_lower(int fd)
{
    uint64_t count;

    return read(fd, &count, sizeof(count)) == (ssize_t)sizeof(count);
}

bool pl_fd_holds(int fd, uint64_t bytes)
{
    struct stat about;

    return fstat(fd, &about) == 0 && S_ISREG(about.st_mode) && about.st_size >= 0 &&
           (uint64_t)about.st_size >= bytes;
}

bool pl_fd_keeps(int fd, uint64_t bytes)
{
    int seals = fcntl(fd, F_GET_SEALS);

    return seals >= 0 && (seals & F_SEAL_SHRINK) != 0 && pl_fd_holds(fd, bytes);
}

plasmon_status_t pl_fd_map(int fd, size_t bytes, int writable, void **out_ptr)
{
    void *ptr;

    if (pl_fault_point("fd.map")) {
        return PLASMON_ENOMEM;
    }
    ptr =
        mmap(NULL, bytes, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, fd, 0);
    if (ptr == MAP_FAILED) {
        return pl_status_from_errno(errno);
    }
    *out_ptr = ptr;
    return PLASMON_OK;
}

void pl_fd_make_pages(void *ptr, size_t bytes)
{
    (void)madvise(ptr, bytes, MADV_POPULATE_WRITE);
}

void pl_fd_unmap(void *ptr, size_t bytes)
{
    if (ptr != NULL) {
        int error = munmap(ptr, bytes);

        PL_CHECK(error == 0); /* else addresses are not what we think they are */
    }
}

void pl_fd_close(int *io_fd)
{
    if (*io_fd >= 0) {
        (void)close(*io_fd); /* Linux releases the descriptor whatever it answers */
        *io_fd = -1;
    }
}

bool pl_fd_none_left(int error)
{
    return error == EMFILE || error == ENFILE || error == ENOMEM;
}

/* Room for one SCM_RIGHTS message, aligned as cmsghdr wants it. */
union control {
    struct cmsghdr align;
    char bytes[CMSG_SPACE(PL_FD_MAX_PER_MESSAGE * sizeof(int))];
};

plasmon_status_t pl_fd_send(int socket, const void *bytes, size_t length, const int *fds,
                            unsigned fd_count)
{
    union control control = {0};
    struct iovec part     = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = length};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    ssize_t sent;

    if (length == 0) { /* it would read as the end of the connection */
        return PLASMON_EINVAL;
    }
    if (fd_count > PL_FD_MAX_PER_MESSAGE) {
        return PLASMON_ELIMIT;
    }

    if (fd_count > 0) {
        struct cmsghdr *header;

        message.msg_control    = control.bytes;
        message.msg_controllen = CMSG_SPACE(fd_count * sizeof(int));
        header                 = CMSG_FIRSTHDR(&message);
        header->cmsg_level     = SOL_SOCKET;
        header->cmsg_type      = SCM_RIGHTS;
        header->cmsg_len       = CMSG_LEN(fd_count * sizeof(int));
        memcpy(CMSG_DATA(header), fds, fd_count * sizeof(int));
    }

    do {
        sent = sendmsg(socket, &message, MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    if (sent < 0) {
        return pl_status_from_errno(errno);
    }
    /* seqpacket sends all or nothing */
    return (size_t)sent == length ? PLASMON_OK : PLASMON_EIO;
}

/*
 * Take the descriptors out of a received message; those beyond `max` are closed. Returns how many
 * there were.
 */
static unsigned control_take(struct msghdr *message, int *out_fds, unsigned max)
{
    unsigned total = 0;

    for (struct cmsghdr *header = CMSG_FIRSTHDR(message); header != NULL;
         header                 = CMSG_NXTHDR(message, header)) {
        size_t count;

        if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) {
            continue;
        }
        count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count; i++) {
            int fd;

            memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof(fd));
            if (total < max) {
                out_fds[total] = fd;
            } else {
                pl_fd_close(&fd);
            }
            total++;
        }
    }
    return total;
}

plasmon_status_t pl_fd_recv(int socket, void *bytes, size_t *io_bytes, int *out_fds,
                            unsigned *io_fd_count)
{
    union control control;
    struct iovec part     = {.iov_base = bytes, .iov_len = *io_bytes};
    struct msghdr message = {.msg_iov        = &part,
                             .msg_iovlen     = 1,
                             .msg_control    = control.bytes,
                             .msg_controllen = sizeof(control.bytes)};
    unsigned fd_max       = *io_fd_count;
    unsigned fd_count;
    ssize_t received;

    *io_fd_count = 0;
    do {
        received = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
    } while (received < 0 && errno == EINTR);
    if (received < 0) {
        return pl_status_from_errno(errno);
    }
    if (received == 0) {
        *io_bytes = 0;
        (void)control_take(&message, out_fds,
                           0); /* an empty message from a hostile peer may carry some */
        return PLASMON_ECLOSED;
    }

    fd_count = control_take(&message, out_fds, fd_max);
    if ((message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0 || fd_count > fd_max) {
        for (unsigned i = 0; i < fd_count && i < fd_max; i++) {
            pl_fd_close(&out_fds[i]);
        }
        /* Cut although there was room for more: the kernel could make no further descriptor here. */
        return (message.msg_flags & MSG_CTRUNC) != 0 && fd_count < PL_FD_MAX_PER_MESSAGE
                   ? PLASMON_ELIMIT
                   : PLASMON_EMALFORMED;
    }

    *io_bytes    = (size_t)received;
    *io_fd_count = fd_count;
    return PLASMON_OK;
}

bool pl_unix_listens(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    bool listens;
    int fd;

    if (strlen(path) >= sizeof(address.sun_path)) {
        return false;
    }
    memcpy(address.sun_path, path, strlen(path));
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    listens =
        fd >= 0 && connect(fd, (const struct sockaddr *)&address, sizeof(address)) == 0;
    pl_fd_close(&fd);
    return listens;
}

pid_t pl_unix_owner(const char *path, int type)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct ucred peer          = {0};
    socklen_t bytes            = sizeof(peer);
    int fd;

    if (strlen(path) >= sizeof(address.sun_path)) {
        return 0;
    }
    memcpy(address.sun_path, path, strlen(path));
    /* its queue may be full */
    fd = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || connect(fd, (const struct sockaddr *)&address, sizeof(address)) != 0 ||
        getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) != 0) {
        peer.pid = 0;
    }
    pl_fd_close(&fd);
    return peer.pid;
}
