/*
 * accept4() of a process that serves, in front of libc's: connections never take the last
 * descriptors, and who is nobody costs next to nothing.
 *
 * WHY  When accept4() fails for want of descriptors the core (1.51, and later ones) never listens
 * at that address again: one flood of connections would make a head deaf for good. The core has no
 * limit of connections, and hands TLS only to those that it has accepted itself. But its call goes
 * through the dynamic linker, which finds this function first.
 *
 * HOW  The kernel gives out the lowest free number. So a connection whose number is accept_fd_max
 * or more says that so many descriptors are in use: it is closed at once, and the next one is
 * looked at. Descriptors below stay as they were, above there are RPC_DESCRIPTORS_SPARE for
 * everything else that the process opens. If that uses these up, too, nobody is there to be
 * accepted, and the listener goes on with the next who comes.
 *
 * NOBODY  A connection that the core takes over costs it two tenths of a millisecond, whatever
 * becomes of it. One that has been closed again, or begins otherwise than a peer does, is closed
 * here, for a hundredth of that; one that has not made a call yet waits in a room of its own
 * (room.c), where the one that is there for longest gives way when no descriptor is left for
 * others.
 *
 * Only in programs that make a server, which call rpc_accept_guard(): others that link this folder
 * and accept something of their own (workers, for the bulk channel) have this function in front of
 * libc's as well, and it does for them what that one does.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "rpc/rpc_int.h"

static _Atomic int accept_fd_max = INT32_MAX;
static _Atomic uint64_t accept_refused; /* connections */
static _Atomic uint64_t accept_said_ns;

unsigned rpc_accept_guard(void)
{
    struct rlimit limit;
    rlim_t most;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) {
        limit = (struct rlimit){.rlim_cur = 1024, .rlim_max = 1024}; /* it cannot fail */
    }
    most = limit.rlim_max < RPC_DESCRIPTORS_MAX ? limit.rlim_max : RPC_DESCRIPTORS_MAX;
    if (limit.rlim_cur < most) {
        limit.rlim_cur = most;
        (void)setrlimit(RLIMIT_NOFILE, &limit); /* refused: fewer connections */
        (void)getrlimit(RLIMIT_NOFILE, &limit);
    }
    most = limit.rlim_cur < RPC_DESCRIPTORS_MAX ? limit.rlim_cur : RPC_DESCRIPTORS_MAX;
    most -= pl_min_u64(most / 2, RPC_DESCRIPTORS_SPARE);
    atomic_store(&accept_fd_max, (int)most);
    return (unsigned)most;
}

/* In the log once a second: whoever knocks all the time must not fill it. */
static void say_refused(const char *why)
{
    uint64_t now_ns  = pl_now_ns();
    uint64_t said_ns = atomic_load(&accept_said_ns);
    uint64_t count   = atomic_fetch_add(&accept_refused, 1) + 1;

    if (now_ns - said_ns >= UINT64_C(1000000000) &&
        atomic_compare_exchange_strong(&accept_said_ns, &said_ns, now_ns)) {
        pl_warn(
            "rpc",
            "a connection is refused: %s (%llu so far); what is connected goes on. More "
            "descriptors (ulimit -n, LimitNOFILE=) are more connections, at most %u",
            why, (unsigned long long)count, RPC_DESCRIPTORS_MAX);
    }
}

/* The lowest number there is, now that somebody has given way; or `fd` as it is. */
static int renumber(int fd)
{
    int low = fcntl(fd, F_DUPFD_CLOEXEC, 0);

    if (low >= 0 && low < fd) {
        (void)close(fd);
        return low;
    }
    if (low >= 0) {
        (void)close(low);
    }
    return fd;
}

/* Of one that just came: is it for the core? Otherwise it is closed, or waits. */
static bool is_welcome(int listener, int fd)
{
    enum rpc_beginning begins = rpc_beginning(fd);

    if (begins != RPC_BEGINS_AS_NOBODY && fd >= atomic_load(&accept_fd_max)) {
        say_refused("so many descriptors are in use");
        begins = RPC_BEGINS_AS_NOBODY;
    }
    if (begins == RPC_BEGINS_AS_TLS) {
        rpc_refuse_tls(fd);
    }
    if (begins == RPC_BEGINS_AS_NOBODY || begins == RPC_BEGINS_AS_TLS) {
        (void)close(fd);
        return false;
    }
    return begins == RPC_BEGINS_WELL || !rpc_room_take(listener, fd);
}

/* One that waited, as accept4() gives it: it was made with the same flags. */
static int give(int listener, struct sockaddr *address, socklen_t *length)
{
    int fd;

    while ((fd = rpc_room_give(listener)) >= 0 && address != NULL &&
           getpeername(fd, address, length) != 0) {
        (void)close(fd); /* it has gone meanwhile */
    }
    return fd;
}

/* Declared by sys/socket.h. Exported, so that the core finds it. */
__attribute__((visibility("default"))) int accept4(int listener, struct sockaddr *address,
                                                   socklen_t *length, int flags)
{
    socklen_t capacity = length != NULL ? *length : 0;
    bool guarded       = atomic_load(&accept_fd_max) != INT32_MAX;

    for (;;) {
        int fd = guarded ? give(listener, address, length) : -1;

        if (fd >= 0) {
            return fd;
        }
        fd = (int)syscall(SYS_accept4, listener, address, length, flags);
        if (fd < 0 && (errno == EMFILE || errno == ENFILE)) {
            if (guarded && rpc_room_give_way()) {
                continue;
            }
            say_refused("no descriptor is left");
            errno = EAGAIN;
            return -1;
        }
        if (fd < 0 || !guarded) {
            return fd;
        }
        if (fd >= atomic_load(&accept_fd_max) && rpc_room_give_way()) {
            fd = renumber(fd);
        }
        if (is_welcome(listener, fd)) {
            return fd;
        }
        if (length != NULL) {
            *length = capacity;
        }
    }
}
