/*
 * The waiting room: connections that have not yet said what a peer begins with.
 *
 * WHY  A connection that the core takes over costs it two tenths of a millisecond and 17 KiB, on
 * the thread that serves everybody, whatever becomes of it. Whoever says nothing, dribbles, or
 * begins well and asks for nothing should not get so far. So accept4() (accept.c) leaves it here,
 * where it costs a descriptor and a line of a table, until its first request has arrived: the
 * preface of HTTP/2, its SETTINGS, and the whole first frame of HEADERS; where TLS is spoken, the
 * whole first record of it. Who has not said that after wait_ms is hung up on; who begins otherwise
 * at once. When the room is full the one that was here for longest gives way: newcomers who speak
 * get in beside any number of strangers who do not.
 *
 * THE GREETING  A peer of gRPC makes no call before it has heard the server's SETTINGS. So the room
 * says some that change nothing, when it has the peer's. The core says its own later, which is as
 * good: they may come at any time. But the peer acknowledges both, the first time before the core
 * has said anything. Version 1.51 of the core takes that well, later ones end the connection. With
 * any core but those that are known to take it (greets()) nobody is greeted, and who has said
 * SETTINGS is the core's.
 *
 * BACK TO THE CORE  It takes a connection only as the answer of accept4() at the listener by which
 * it came, and calls that only when the kernel says that somebody is there. So for one that is
 * ready the room connects to the listener itself, and hangs up: a knock. accept4() looks here
 * first, before it asks the kernel. No knock is lost: the room puts the connection into `ready`
 * before it knocks, and accept4() looks into `ready` before it finds that nobody is there; so
 * either it finds the connection, or the knock comes after it looked, and the kernel wakes the core
 * once more. A knock that finds the listener's queue full may as well not be: whoever is in that
 * queue makes the core call accept4(). One knock is under way at a time (`knocked`, which accept4()
 * clears before it looks), and while somebody is ready it is repeated every KNOCK_MS, which is for
 * a knock that was thrown away on its way (a firewall).
 *
 * A listener at which nobody can knock (its own host does not reach its address) is found out when
 * its first connection comes, and has no room: its connections go to the core as they are.
 *
 * WHO OWNS A DESCRIPTOR  `guests` is by descriptor. One that is WAITING or READY is the room's, and
 * only somebody with the lock closes it or gives it away, after its state was changed. An event of
 * the room's thread may be about a descriptor that was closed meanwhile and is another guest's by
 * now: what is looked at is what is there, so that does no harm.
 *
 * Threads: any may call; the room has one of its own, while there is a server that listens. Nothing
 * here waits but that thread.
 */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/thread.h"
#include "rpc/grpc_int.h"

#define LISTENERS      32u
#define EVENTS         64
#define KNOCK_MS       100
#define STEP_MS        50  /* no need to hang up to the millisecond */
#define REACH_MS       100 /* a knock at our own address: it takes some 30 us */
#define NS_PER_MS      UINT64_C(1000000)
#define PREFACE        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
#define PREFACE_BYTES  (sizeof(PREFACE) - 1)
#define FRAME_HEADER   9u
#define FRAME_HEADERS  1
#define FRAME_SETTINGS 4
#define SAID_MAX       1024u /* before HEADERS: 91 bytes of gRPC, as few of others */
#define TLS_HEADER     5u
#define TLS_HANDSHAKE  0x16
#define TLS_MAJOR      3
/* of a record of TLS, and of a frame before settings were exchanged */
#define LENGTH_MAX (1u << 14)

enum guest_state { NOBODY = 0, WAITING, READY };

struct guest {
    /* of `waiting`, in the order in which they came, or of its listener's `ready` */
    struct pl_list link;
    uint64_t since_ns;
    unsigned listener;
    enum guest_state state;
    bool greeted;
};

struct room_listener {
    uint64_t inode; /* the socket's: a descriptor may be another one's later */
    unsigned guests;
    bool known;
    bool reached; /* somebody can knock there */
    bool knocked;
    struct pl_list ready; /* struct guest, oldest first */
    struct sockaddr_storage address;
    socklen_t address_bytes;
};

static struct {
    pthread_mutex_t lock; /* guards all of it; nothing else is locked inside */
    unsigned servers;
    uint64_t wait_ns;
    unsigned guests_max;
    unsigned waiting_count;
    unsigned ready_count;
    struct pl_list waiting;
    struct room_listener listeners[LISTENERS];
    pthread_t thread;
    int epoll;
    int wake; /* an eventfd: somebody waits, or the end */
} room = {.lock = PTHREAD_MUTEX_INITIALIZER, .epoll = -1, .wake = -1};
static struct guest guests[RPC_DESCRIPTORS_MAX]; /* by descriptor; the lock's, too */
/* over the beginning and the end, outside of the lock */
static pthread_mutex_t life = PTHREAD_MUTEX_INITIALIZER;

/* ------------------------------------------------------------------------ what was said */

static atomic_uchar tls_ports[UINT16_MAX + 1]; /* how many servers speak TLS at each */

void rpc_room_tls(int port, bool speaks)
{
    (void)atomic_fetch_add(&tls_ports[(uint16_t)port], speaks ? 1 : -1);
}

static bool speaks_tls(int fd)
{
    struct sockaddr_storage ours;
    socklen_t bytes = sizeof(ours);
    uint16_t port   = 0;

    if (getsockname(fd, (struct sockaddr *)&ours, &bytes) != 0) {
        return false;
    }
    if (ours.ss_family == AF_INET) {
        port = ((const struct sockaddr_in *)&ours)->sin_port;
    } else if (ours.ss_family == AF_INET6) {
        port = ((const struct sockaddr_in6 *)&ours)->sin6_port;
    }
    return atomic_load(&tls_ports[ntohs(port)]) > 0;
}

/* Of what is there `got` bytes were looked at. */
struct said {
    const uint8_t *bytes;
    size_t got;
    size_t there;
};

static enum rpc_beginning beginning_of_tls(const struct said *said)
{
    size_t length;

    if (said->bytes[0] != TLS_HANDSHAKE || (said->got > 1 && said->bytes[1] != TLS_MAJOR)) {
        return RPC_BEGINS_AS_NOBODY;
    }
    if (said->got < TLS_HEADER) {
        return RPC_BEGINS_SLOWLY;
    }
    length = (size_t)said->bytes[3] << 8 | said->bytes[4];
    if (length == 0 || length > LENGTH_MAX) {
        return RPC_BEGINS_AS_NOBODY;
    }
    return said->there < TLS_HEADER + length ? RPC_BEGINS_SLOWLY : RPC_BEGINS_WELL;
}

/* Behind the preface. SETTINGS come first, then anything; the first HEADERS are a request. */
static enum rpc_beginning beginning_of_frames(const struct said *said)
{
    enum rpc_beginning begins = RPC_BEGINS_SLOWLY;

    for (size_t at = PREFACE_BYTES; at + FRAME_HEADER <= said->got;) {
        const uint8_t *frame = said->bytes + at;
        size_t length        = (size_t)frame[0] << 16 | (size_t)frame[1] << 8 | frame[2];

        if (length > LENGTH_MAX || (at == PREFACE_BYTES && frame[3] != FRAME_SETTINGS)) {
            return RPC_BEGINS_AS_NOBODY;
        }
        at += FRAME_HEADER + length;
        if (said->there < at) {
            return begins;
        }
        if (frame[3] == FRAME_HEADERS) {
            return RPC_BEGINS_WELL;
        }
        begins = RPC_BEGINS_AND_LISTENS;
    }
    return said->got == SAID_MAX ? RPC_BEGINS_AS_NOBODY : begins;
}

static enum rpc_beginning beginning_of_http(const struct said *said)
{
    if (said->bytes[0] == TLS_HANDSHAKE) {
        return RPC_BEGINS_AS_TLS;
    }
    if (memcmp(said->bytes, PREFACE, pl_min_u64(said->got, PREFACE_BYTES)) != 0) {
        return RPC_BEGINS_AS_NOBODY;
    }
    return beginning_of_frames(said);
}

enum rpc_beginning rpc_beginning(int fd)
{
    uint8_t begins[SAID_MAX];
    ssize_t got       = recv(fd, begins, sizeof(begins), MSG_PEEK | MSG_DONTWAIT);
    int there         = 0;
    struct pollfd end = {.fd = fd, .events = POLLRDHUP};
    struct said said  = {.bytes = begins};

    if (got < 0) {
        return errno == EAGAIN || errno == EINTR ? RPC_BEGINS_SLOWLY : RPC_BEGINS_AS_NOBODY;
    }
    if (got == 0 || poll(&end, 1, 0) != 0 || ioctl(fd, FIONREAD, &there) != 0) {
        /* it has gone again: the core ends the calls of one that does not write any more */
        return RPC_BEGINS_AS_NOBODY;
    }
    said.got   = (size_t)got;
    said.there = (size_t)there;
    return speaks_tls(fd) ? beginning_of_tls(&said) : beginning_of_http(&said);
}

/*
 * What it takes well to hear SETTINGS acknowledged that it has not said: the core's own version,
 * which is not gRPC's.
 */
static bool greets(void)
{
    return strncmp(grpc_version_string(), "29.", 3) == 0; /* gRPC 1.51 */
}

/* SETTINGS without any. To somebody who has not been hung up on yet, and whose buffer is empty. */
static bool greet(int fd)
{
    static const uint8_t settings[FRAME_HEADER] = {[3] = FRAME_SETTINGS};

    return send(fd, settings, sizeof(settings), MSG_NOSIGNAL | MSG_DONTWAIT) ==
           (ssize_t)sizeof(settings);
}

/* An answer that is no TLS says at once what is wrong. What is not read would take it back. */
void rpc_refuse_tls(int fd)
{
    uint8_t hello[TLS_HEADER + LENGTH_MAX]; /* more than one record comes from nobody */

    (void)!recv(fd, hello, sizeof(hello), MSG_DONTWAIT); /* it may have gone */
    (void)greet(fd);                                     /* the same */
}

/* ---------------------------------------------------------------------------- listeners */

/* Does not wait: the queue of the other side is the kernel's. -1: it was refused; errno says why. */
static int knock_at(const struct sockaddr_storage *address, socklen_t bytes)
{
    const struct linger at_once = {.l_onoff = 1, .l_linger = 0}; /* leaves no trace of it */
    int fd = socket(address->ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd >= 0) {
        (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
        if (connect(fd, (const struct sockaddr *)address, bytes) != 0 &&
            errno != EINPROGRESS) {
            pl_fd_close(&fd);
        }
    }
    return fd;
}

static void knock(const struct sockaddr_storage *address, socklen_t bytes)
{
    int fd = knock_at(address, bytes);

    pl_fd_close(&fd);
}

/* Once for each listener, when its first connection comes. */
static bool listener_is_reached(const struct room_listener *listener)
{
    int fd           = knock_at(&listener->address, listener->address_bytes);
    struct pollfd at = {.fd = fd, .events = POLLOUT};
    int error        = 0;
    socklen_t bytes  = sizeof(error);
    bool reached     = fd >= 0
                           ? poll(&at, 1, REACH_MS) == 1 &&
                             getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &bytes) == 0 &&
                             error == 0
                           : errno == EAGAIN; /* so many others are there */

    pl_fd_close(&fd);
    return reached;
}

/*
 * Slots of others are taken when no fresh one is left and they have no guests. LISTENERS: there is
 * none, or no room for this one.
 */
static unsigned listener_find_locked(int fd)
{
    unsigned slot = LISTENERS, fresh = LISTENERS;
    struct room_listener *listener;
    struct stat about;

    if (fstat(fd, &about) != 0) {
        return LISTENERS;
    }
    for (unsigned i = 0; i < LISTENERS; i++) {
        if (room.listeners[i].known && room.listeners[i].inode == about.st_ino) {
            return room.listeners[i].reached ? i : LISTENERS;
        }
        if (!room.listeners[i].known && fresh == LISTENERS) {
            fresh = i;
        }
        if (room.listeners[i].guests == 0) {
            slot = i;
        }
    }
    slot = fresh != LISTENERS ? fresh : slot;
    if (slot == LISTENERS) {
        return LISTENERS;
    }
    listener  = &room.listeners[slot];
    *listener = (struct room_listener){
        .inode = about.st_ino, .known = true, .address_bytes = sizeof(listener->address)};
    pl_list_init(&listener->ready);
    listener->reached = getsockname(fd, (struct sockaddr *)&listener->address,
                                    &listener->address_bytes) == 0 &&
                        listener_is_reached(listener);
    return listener->reached ? slot : LISTENERS;
}

/* ------------------------------------------------------------------------------- guests */

static struct guest *guest_oldest_locked(void)
{
    return pl_list_first(&room.waiting, struct guest, link);
}

static int guest_fd(const struct guest *guest)
{
    return (int)(guest - guests);
}

/* It is nobody's here any more; its descriptor is the caller's. */
static int guest_leave_locked(struct guest *guest)
{
    pl_list_remove(&guest->link);
    if (guest->state == READY) {
        room.ready_count--;
    } else {
        room.waiting_count--;
    }
    guest->state = NOBODY;
    room.listeners[guest->listener].guests--;
    return guest_fd(guest);
}

static void guest_hang_up_locked(struct guest *guest)
{
    int fd = guest_leave_locked(guest);

    pl_fd_close(&fd);
}

static void guest_ready_locked(struct guest *guest)
{
    struct room_listener *listener = &room.listeners[guest->listener];

    (void)epoll_ctl(room.epoll, EPOLL_CTL_DEL, guest_fd(guest), NULL);
    pl_list_remove(&guest->link);
    pl_list_add_tail(&listener->ready, &guest->link);
    guest->state    = READY;
    guest->since_ns = pl_now_ns();
    room.waiting_count--;
    room.ready_count++;
}

/* Or, where nobody is greeted, it is the core's. */
static void guest_greet_locked(struct guest *guest)
{
    if (!greets()) {
        guest_ready_locked(guest);
        return;
    }
    guest->greeted = true;
    if (!greet(guest_fd(guest))) {
        guest_hang_up_locked(guest);
    }
}

bool rpc_room_take(int listener_fd, int fd)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP | EPOLLET, .data.fd = fd};
    struct guest *guest      = &guests[fd];
    bool taken               = false;
    unsigned listener;

    (void)pthread_mutex_lock(&room.lock);
    listener = room.servers > 0 ? listener_find_locked(listener_fd) : LISTENERS;
    if (listener < LISTENERS) {
        if (room.waiting_count >= room.guests_max) {
            guest_hang_up_locked(guest_oldest_locked());
        }
        if (room.waiting_count == 0) {
            pl_fd_raise(room.wake);
        }
        *guest =
            (struct guest){.since_ns = pl_now_ns(), .listener = listener, .state = WAITING};
        pl_list_add_tail(&room.waiting, &guest->link);
        room.listeners[listener].guests++;
        room.waiting_count++;
        taken = epoll_ctl(room.epoll, EPOLL_CTL_ADD, fd, &event) == 0;
        if (!taken) {
            (void)guest_leave_locked(guest);
        }
    }
    (void)pthread_mutex_unlock(&room.lock);
    return taken;
}

int rpc_room_give(int listener_fd)
{
    int fd = -1;
    struct stat about;

    (void)pthread_mutex_lock(&room.lock);
    if (room.waiting_count + room.ready_count > 0 && fstat(listener_fd, &about) == 0) {
        for (unsigned i = 0; i < LISTENERS; i++) {
            struct room_listener *listener = &room.listeners[i];

            if (listener->guests > 0 && listener->inode == about.st_ino) {
                struct guest *guest = pl_list_first(&listener->ready, struct guest, link);

                listener->knocked = false;
                fd                = guest != NULL ? guest_leave_locked(guest) : -1;
            }
        }
    }
    (void)pthread_mutex_unlock(&room.lock);
    return fd;
}

bool rpc_room_give_way(void)
{
    struct guest *guest;

    (void)pthread_mutex_lock(&room.lock);
    guest = room.waiting_count > 0 ? guest_oldest_locked() : NULL;
    if (guest != NULL) {
        guest_hang_up_locked(guest);
    }
    (void)pthread_mutex_unlock(&room.lock);
    return guest != NULL;
}

/* --------------------------------------------------------------------------- the thread */

/* At one listener where somebody is ready and nobody has knocked. false: there is none. */
static bool knock_next(void)
{
    struct room_listener *found = NULL;
    struct sockaddr_storage address;
    socklen_t bytes = 0;

    (void)pthread_mutex_lock(&room.lock);
    for (unsigned i = 0; i < LISTENERS && found == NULL; i++) {
        struct room_listener *listener = &room.listeners[i];

        if (listener->guests > 0 && !listener->knocked &&
            !pl_list_empty(&listener->ready)) {
            found             = listener;
            listener->knocked = true;
            address           = listener->address;
            bytes             = listener->address_bytes;
        }
    }
    (void)pthread_mutex_unlock(&room.lock);
    if (found != NULL) {
        knock(&address, bytes);
    }
    return found != NULL;
}

static void look_at_locked(int fd)
{
    struct guest *guest = &guests[fd];

    if (guest->state != WAITING) {
        return;
    }
    switch (rpc_beginning(fd)) {
    case RPC_BEGINS_WELL:
        guest_ready_locked(guest);
        break;
    case RPC_BEGINS_AND_LISTENS:
        if (!guest->greeted) {
            guest_greet_locked(guest);
        }
        break;
    case RPC_BEGINS_AS_TLS:
        rpc_refuse_tls(fd);
        guest_hang_up_locked(guest);
        break;
    case RPC_BEGINS_AS_NOBODY:
        guest_hang_up_locked(guest);
        break;
    case RPC_BEGINS_SLOWLY:
        break;
    }
}

/* Who did not speak in time; and who did, and whom nobody has taken: his listener is gone. */
static void hang_up_late_locked(uint64_t now_ns)
{
    struct guest *guest;

    while ((guest = guest_oldest_locked()) != NULL &&
           now_ns - guest->since_ns >= room.wait_ns) {
        guest_hang_up_locked(guest);
    }
    for (unsigned i = 0; room.ready_count > 0 && i < LISTENERS; i++) {
        while (room.listeners[i].guests > 0 &&
               (guest = pl_list_first(&room.listeners[i].ready, struct guest, link)) !=
                   NULL &&
               now_ns - guest->since_ns >= room.wait_ns) {
            guest_hang_up_locked(guest);
        }
    }
}

static int timeout_ms_locked(uint64_t now_ns)
{
    const struct guest *guest = guest_oldest_locked();
    uint64_t left_ns;

    if (room.ready_count > 0) {
        return KNOCK_MS;
    }
    if (guest == NULL) {
        return -1;
    }
    left_ns =
        guest->since_ns + room.wait_ns - pl_min_u64(now_ns, guest->since_ns + room.wait_ns);
    return (int)pl_max_u64(left_ns / NS_PER_MS, STEP_MS);
}

static void knock_again_locked(void)
{
    for (unsigned i = 0; room.ready_count > 0 && i < LISTENERS; i++) {
        room.listeners[i].knocked = false;
    }
}

static void *room_main(void *user)
{
    struct epoll_event events[EVENTS];
    int count = 0;

    (void)user;
    (void)pthread_mutex_lock(&room.lock);
    while (room.servers > 0) {
        uint64_t now_ns;
        int timeout_ms;

        for (int i = 0; i < count; i++) {
            if (events[i].data.fd != room.wake) {
                look_at_locked(events[i].data.fd);
            } else {
                (void)pl_fd_lower(room.wake);
            }
        }
        if (count == 0) {
            knock_again_locked();
        }
        now_ns = pl_now_ns(); /* not before anybody came */
        hang_up_late_locked(now_ns);
        timeout_ms = timeout_ms_locked(now_ns);
        (void)pthread_mutex_unlock(&room.lock);
        while (knock_next()) {
        }
        count = epoll_wait(room.epoll, events, EVENTS, timeout_ms);
        (void)pthread_mutex_lock(&room.lock);
    }
    (void)pthread_mutex_unlock(&room.lock);
    return NULL;
}

static plasmon_status_t room_start_locked(void)
{
    struct epoll_event event = {.events = EPOLLIN};
    int error;

    pl_list_init(&room.waiting);
    room.epoll    = epoll_create1(EPOLL_CLOEXEC);
    room.wake     = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    event.data.fd = room.wake;
    if (room.epoll < 0 || room.wake < 0 ||
        epoll_ctl(room.epoll, EPOLL_CTL_ADD, room.wake, &event) != 0) {
        error = errno;
    } else {
        room.servers = 1; /* it ends when there is none */
        error        = pl_thread_start(&room.thread, room_main, NULL);
    }
    if (error != 0) {
        room.servers = 0;
        pl_fd_close(&room.epoll);
        pl_fd_close(&room.wake);
        return pl_status_from_errno(error);
    }
    return PLASMON_OK;
}

plasmon_status_t rpc_room_open(uint32_t wait_ms, unsigned guests_max)
{
    plasmon_status_t status = PLASMON_OK;

    (void)pthread_mutex_lock(&life);
    (void)pthread_mutex_lock(&room.lock);
    room.wait_ns    = wait_ms * NS_PER_MS;
    room.guests_max = guests_max;
    if (room.servers > 0) {
        room.servers++;
    } else {
        status = room_start_locked();
    }
    (void)pthread_mutex_unlock(&room.lock);
    (void)pthread_mutex_unlock(&life);
    return status;
}

/* Its thread has ended. */
static void room_empty(void)
{
    (void)pthread_mutex_lock(&room.lock);
    for (unsigned fd = 0; fd < RPC_DESCRIPTORS_MAX; fd++) {
        if (guests[fd].state != NOBODY) {
            guest_hang_up_locked(&guests[fd]);
        }
    }
    pl_fd_close(&room.epoll);
    pl_fd_close(&room.wake);
    memset(room.listeners, 0, sizeof(room.listeners));
    (void)pthread_mutex_unlock(&room.lock);
}

void rpc_room_close(void)
{
    bool last;

    (void)pthread_mutex_lock(&life);
    (void)pthread_mutex_lock(&room.lock);
    last = --room.servers == 0;
    (void)pthread_mutex_unlock(&room.lock);
    if (last) {
        pl_fd_raise(room.wake);
        (void)pthread_join(room.thread, NULL);
        room_empty();
    }
    (void)pthread_mutex_unlock(&life);
}
