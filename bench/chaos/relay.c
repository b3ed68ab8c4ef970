/* See relay.h. One thread and poll(): each connection is two sockets and two buffers, one a direction. */
#include "bench/chaos/relay.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fd.h"

enum { PAIRS_MAX = 128, BUFFER_BYTES = 64 << 10, FIXED = 2 };

/* From fd[side] to fd[!side]. */
struct lane {
    size_t filled, sent;
    bool ended; /* nothing more comes from fd[side] */
    uint8_t bytes[BUFFER_BYTES];
};
struct pair {
    int fd[2];
    struct lane lane[2]; /* by the side that it comes from */
};
struct chaos_relay {
    struct sockaddr_un to;
    char from[108];
    int listener;
    int wake; /* eventfd: the mode changed */
    int done; /* eventfd: and holds */
    pthread_t thread;
    _Atomic int mode;
    _Atomic bool stop;

    /* The thread's. */
    struct pair *pairs[PAIRS_MAX];
    size_t count;
};

static bool address_of(const char *path, struct sockaddr_un *out)
{
    *out = (struct sockaddr_un){.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof(out->sun_path)) {
        errno = ENAMETOOLONG;
        return false;
    }
    memcpy(out->sun_path, path, strlen(path));
    return true;
}

/* -------------------------------------------------------------------------- connections */

static void pair_end(struct pair *pair)
{
    pl_fd_close(&pair->fd[0]);
    pl_fd_close(&pair->fd[1]);
    pl_free(pair);
}

static void end_all(struct chaos_relay *relay)
{
    while (relay->count > 0) {
        pair_end(relay->pairs[--relay->count]);
    }
}

static void take(struct chaos_relay *relay)
{
    int in            = accept4(relay->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    int out           = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct pair *pair = PL_NEW(struct pair);

    if (in < 0 || out < 0 || pair == NULL || relay->count == PAIRS_MAX ||
        atomic_load(&relay->mode) == CHAOS_RELAY_DROP ||
        connect(out, (const struct sockaddr *)&relay->to, sizeof(relay->to)) != 0) {
        pl_fd_close(&in); /* who came tries again */
        pl_fd_close(&out);
        pl_free(pair);
        return;
    }
    pair->fd[0]                  = in;
    pair->fd[1]                  = out;
    relay->pairs[relay->count++] = pair;
}

/* What came from a side, on to the other. false: the connection is broken. */
static bool lane_move(struct pair *pair, int side)
{
    struct lane *lane = &pair->lane[side];
    ssize_t moved;

    if (lane->filled == 0 && !lane->ended) {
        moved = recv(pair->fd[side], lane->bytes, sizeof(lane->bytes), 0);
        if (moved < 0) {
            return errno == EAGAIN || errno == EINTR;
        }
        lane->ended  = moved == 0;
        lane->filled = (size_t)moved;
        lane->sent   = 0;
        if (lane->ended) {
            (void)shutdown(pair->fd[!side], SHUT_WR); /* it may be gone, too */
        }
    }
    if (lane->sent < lane->filled) {
        moved = send(pair->fd[!side], lane->bytes + lane->sent, lane->filled - lane->sent,
                     MSG_NOSIGNAL);
        if (moved < 0) {
            return errno == EAGAIN || errno == EINTR;
        }
        lane->sent += (size_t)moved;
        if (lane->sent == lane->filled) {
            lane->filled = lane->sent = 0;
        }
    }
    return true;
}

static short events_of(const struct pair *pair, int side)
{
    const struct lane *in = &pair->lane[side], *out = &pair->lane[!side];

    return (short)((in->filled == 0 && !in->ended ? POLLIN : 0) |
                   (out->filled > 0 ? POLLOUT : 0));
}

/* false: it is over. */
static bool pair_step(struct pair *pair, const struct pollfd polls[2])
{
    if ((polls[0].revents | polls[1].revents) & POLLERR) {
        return false;
    }
    for (int side = 0; side < 2; side++) {
        if ((polls[side].revents & (POLLIN | POLLHUP) || polls[!side].revents & POLLOUT) &&
            !lane_move(pair, side)) {
            return false;
        }
        if (polls[side].revents & POLLHUP && pair->lane[side].ended &&
            pair->lane[side].filled == 0) {
            return false; /* nobody is there to send to, and all that came has gone on */
        }
    }
    return !(pair->lane[0].ended && pair->lane[0].filled == 0 && pair->lane[1].ended &&
             pair->lane[1].filled == 0);
}

/* --------------------------------------------------------------------------- the thread */

static void obey(struct chaos_relay *relay)
{
    uint64_t count;

    if (read(relay->wake, &count, sizeof(count)) != (ssize_t)sizeof(count)) {
        return; /* nobody called */
    }
    if (atomic_load(&relay->mode) == CHAOS_RELAY_DROP) {
        end_all(relay);
    }
    count = 1;
    (void)!write(relay->done, &count, sizeof(count)); /* an eventfd takes a 1 */
}

static void *relay_main(void *user)
{
    struct chaos_relay *relay = user;

    while (!atomic_load(&relay->stop)) {
        struct pollfd polls[FIXED + 2 * PAIRS_MAX];
        bool held      = atomic_load(&relay->mode) == CHAOS_RELAY_HOLD;
        size_t watched = relay->count;

        polls[0] = (struct pollfd){.fd = relay->wake, .events = POLLIN};
        polls[1] = (struct pollfd){.fd = relay->listener, .events = POLLIN};
        for (size_t i = 0; i < watched; i++) {
            for (int side = 0; side < 2; side++) {
                polls[FIXED + 2 * i + (size_t)side] =
                    (struct pollfd){.fd     = held ? -1 : relay->pairs[i]->fd[side],
                                    .events = events_of(relay->pairs[i], side)};
            }
        }
        (void)poll(polls, FIXED + 2 * watched, -1); /* looks at all below in any case */
        for (size_t i = watched; i-- > 0;) {
            if (!held && !pair_step(relay->pairs[i], &polls[FIXED + 2 * i])) {
                pair_end(relay->pairs[i]);
                relay->pairs[i] = relay->pairs[--relay->count];
            }
        }
        if (polls[1].revents != 0) {
            take(relay);
        }
        if (polls[0].revents != 0) {
            obey(relay);
        }
    }
    end_all(relay);
    return NULL;
}

/* ---------------------------------------------------------------------------- its owner */

static void relay_free(struct chaos_relay *relay)
{
    int saved = errno;

    pl_fd_close(&relay->listener);
    pl_fd_close(&relay->wake);
    pl_fd_close(&relay->done);
    pl_free(relay);
    errno = saved;
}

struct chaos_relay *chaos_relay_create(const char *from, const char *to)
{
    struct chaos_relay *relay = PL_NEW(struct chaos_relay);
    struct sockaddr_un at;

    if (relay == NULL) {
        errno = ENOMEM;
        return NULL;
    }
    relay->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    relay->wake     = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    relay->done     = eventfd(0, EFD_CLOEXEC);
    if (relay->listener < 0 || relay->wake < 0 || relay->done < 0 ||
        !address_of(from, &at) || !address_of(to, &relay->to) ||
        bind(relay->listener, (const struct sockaddr *)&at, sizeof(at)) != 0 ||
        listen(relay->listener, PAIRS_MAX) != 0) {
        relay_free(relay);
        return NULL;
    }
    (void)snprintf(relay->from, sizeof(relay->from), "%s", from);
    errno = pthread_create(&relay->thread, NULL, relay_main, relay);
    if (errno != 0) {
        (void)unlink(from);
        relay_free(relay);
        return NULL;
    }
    return relay;
}

static void call(struct chaos_relay *relay)
{
    uint64_t one = 1;

    (void)!write(relay->wake, &one, sizeof(one)); /* an eventfd takes a 1 */
}

void chaos_relay_set(struct chaos_relay *relay, enum chaos_relay_mode mode)
{
    uint64_t count;

    atomic_store(&relay->mode, mode);
    call(relay);
    while (read(relay->done, &count, sizeof(count)) < 0 && errno == EINTR) {
    }
}

void chaos_relay_destroy(struct chaos_relay *relay)
{
    if (relay == NULL) {
        return;
    }
    atomic_store(&relay->stop, true);
    call(relay);
    (void)pthread_join(relay->thread, NULL); /* cannot fail: it is ours, and once */
    (void)unlink(relay->from);
    relay_free(relay);
}
