/*
 * The socket at which workers of a dead store wait for the next one: see handback.h.
 *
 * A store listens at it all its life; that is also the mark by which the next one knows that there
 * was one. Nobody answers: it has died, and its workers are waited for before anything else is
 * done. Somebody answers: it lives, and what comes of that the head decides.
 *
 * WHO LIVES. Nobody is waited for who is dead. Beside the socket is a file of marks: each worker is
 * born with a descriptor of it, whose lock (of the open file description, so that it needs nothing
 * but to live) is on the byte of its device. The system lets go of the lock when the last who has
 * the descriptor ends, and the next store sees it. The file stays when a store dies; without it, or
 * where a file system knows no such locks, everybody is waited for until the time is over.
 *
 * WHOSE TIME. It is theirs: while this process stands still (it is stopped, or gets no processor)
 * it hears nobody, and what they said meanwhile lies in their sockets.
 *
 * WHAT IS LACKING. No memory or no descriptor left: that is no reason to give up what the workers
 * have, who have it still. The store ends and says what it lacks, and leaves workers, socket and
 * marks to the one that is started next.
 */
#include "store/daemon_int.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"

#define CALLERS_MAX 128u /* connections that are listened to at a time */
#define KILL_MS     10000u
#define LOOK_MS     20u  /* how often the marks are looked at: nothing tells of them */
#define STILL_MS    500u /* a look that takes longer: we stood still */

/* Somebody who has connected while we wait for workers. */
struct caller {
    struct store_link link; /* fd -1: none */
    pid_t pid;
    uint32_t device; /* UINT32_MAX: it has not said yet */
};

struct collection {
    struct store_daemon *daemon;
    int marks_fd; /* -1: there are none */
    struct store_handback handback;
    struct caller callers[CALLERS_MAX];
    struct pl_err lacks; /* status OK: nothing so far */
};

/* Another time it may be there. */
static bool is_lack(plasmon_status_t status)
{
    return status == PLASMON_ENOMEM || status == PLASMON_ELIMIT ||
           status == PLASMON_EAGAIN || status == PLASMON_ENOSPC;
}

/* --------------------------------------------------------------------------- the socket */

static plasmon_status_t socket_open(struct store_daemon *daemon,
                                    const struct sockaddr_un *address, struct pl_err *err)
{
    daemon->handback_fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (daemon->handback_fd >= 0) {
        (void)unlink(address->sun_path); /* a dead store's */
    }
    if (daemon->handback_fd < 0 ||
        bind(daemon->handback_fd, (const struct sockaddr *)address, sizeof(*address)) !=
            0 ||
        listen(daemon->handback_fd, (int)CALLERS_MAX) != 0) {
        int error = errno;

        pl_fd_close(&daemon->handback_fd);
        return pl_err_set(err, pl_status_from_errno(error), "cannot listen on %s: %s",
                          address->sun_path, strerror(error));
    }
    memcpy(daemon->handback_path, address->sun_path, sizeof(daemon->handback_path));
    return PLASMON_OK;
}

/* ---------------------------------------------------------------------------- who lives */

static struct flock mark_of(uint32_t host_device, short type)
{
    return (struct flock){
        .l_type = type, .l_whence = SEEK_SET, .l_start = (off_t)host_device, .l_len = 1};
}

/* Of the dead store; -1: it had none. */
static int marks_open(const char *path)
{
    return open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
}

static void marks_name(struct store_daemon *daemon)
{
    int length = snprintf(daemon->marks_path, sizeof(daemon->marks_path), "%.*s.marks",
                          (int)strlen(daemon->handback_path) - (int)strlen(".sock"),
                          daemon->handback_path);

    if (length <= 0 || (size_t)length >= sizeof(daemon->marks_path)) {
        daemon->marks_path[0] = '\0';
    }
}

/* For our workers. Those that were taken over have their marks in the file that there is, or none. */
static void marks_begin(struct store_daemon *daemon)
{
    int create = daemon->adopted == NULL ? O_CREAT : 0;
    int fd     = daemon->marks_path[0] != '\0'
                     ? open(daemon->marks_path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | create, 0600)
                     : -1;

    if (fd < 0) {
        daemon->marks_path[0] = '\0';
    }
    pl_fd_close(&fd);
}

/* With a worker that has none, a store after us would not wait for it. */
static void marks_give_up(struct store_daemon *daemon)
{
    pl_warn("store",
            "workers cannot be marked in %s: %s; a store that follows this one waits for "
            "those that are dead, too",
            daemon->marks_path, strerror(errno));
    (void)unlink(daemon->marks_path);
    daemon->marks_path[0] = '\0';
}

int handback_mark(struct store_daemon *daemon, uint32_t host_device)
{
    struct flock mark = mark_of(host_device, F_RDLCK); /* a spare has one, too */
    int fd;

    if (daemon->marks_path[0] == '\0') {
        return -1;
    }
    fd = marks_open(daemon->marks_path);
    if (fd < 0 || fcntl(fd, F_OFD_SETLK, &mark) != 0) {
        marks_give_up(daemon);
        pl_fd_close(&fd);
    }
    return fd;
}

/* Does one live whom we have not heard to the end? */
static bool some_live(const struct collection *collection)
{
    const struct store_handback *handback = &collection->handback;
    uint32_t total = handback->total != 0 ? handback->total : STORE_HOST_DEVICE_MAX;

    for (uint32_t i = 0; i < total; i++) {
        struct flock mark = mark_of(i, F_WRLCK);

        if (!handback->workers[i].done &&
            (collection->marks_fd < 0 ||
             fcntl(collection->marks_fd, F_OFD_GETLK, &mark) != 0 ||
             mark.l_type != F_UNLCK)) {
            return true;
        }
    }
    return false;
}

/* ---------------------------------------------------------------------------- who calls */

static void caller_drop(struct caller *caller, const char *why)
{
    if (why != NULL) {
        struct store_control answer = {.type   = STORE_CONTROL_ERROR,
                                       .status = PLASMON_EINVAL};

        pl_warn("store", "process %d is not taken over: %s", (int)caller->pid, why);
        (void)snprintf(answer.text, sizeof(answer.text), "%.255s", why);
        (void)!store_link_send(&caller->link, &answer, NULL, 0); /* it may be gone */
    }
    store_link_finish(&caller->link);
    caller->device = UINT32_MAX;
}

static void caller_accept(struct collection *collection)
{
    int fd =
        accept4(collection->daemon->handback_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    struct ucred peer;
    socklen_t length = sizeof(peer);

    if (fd < 0 && is_lack(pl_status_from_errno(errno)) && errno != EAGAIN) {
        (void)pl_err_set(&collection->lacks, pl_status_from_errno(errno),
                         "who has it cannot be let in: %s", strerror(errno));
        return;
    }
    if (fd < 0 || getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0 ||
        peer.uid != geteuid()) {
        pl_fd_close(&fd);
        return;
    }
    for (uint32_t i = 0; i < CALLERS_MAX; i++) {
        struct caller *caller = &collection->callers[i];

        if (caller->link.fd < 0) {
            store_link_init(&caller->link, fd, STORE_LINK_QUEUE_MAX);
            caller->pid    = peer.pid;
            caller->device = UINT32_MAX;
            return;
        }
    }
    pl_fd_close(&fd);
}

static plasmon_status_t caller_message(struct collection *collection, struct caller *caller,
                                       const struct store_control *message, int fd,
                                       struct pl_err *err)
{
    if (caller->device != UINT32_MAX) {
        return store_handback_message(&collection->handback, caller->device, message, fd,
                                      err);
    }
    pl_fd_close(&fd);
    if (message->type != STORE_CONTROL_HANDBACK) {
        return pl_err_set(err, PLASMON_EMALFORMED, "its first message is of type %u",
                          message->type);
    }
    for (uint32_t i = 0; i < CALLERS_MAX; i++) {
        if (collection->callers[i].device == message->host_device) {
            return pl_err_set(err, PLASMON_EEXIST, "device %u is being handed back already",
                              message->host_device);
        }
    }
    if (store_handback_begin(&collection->handback, message, err) != PLASMON_OK) {
        return err->status;
    }
    caller->device = message->host_device;
    return PLASMON_OK;
}

static bool caller_done(const struct collection *collection, const struct caller *caller)
{
    return caller->device != UINT32_MAX &&
           collection->handback.workers[caller->device].done;
}

/* Up to its HANDBACK_END: what comes after is for its control link. */
static void caller_read(struct collection *collection, struct caller *caller)
{
    while (!caller_done(collection, caller)) {
        struct store_control message;
        struct pl_err err;
        int fd;
        plasmon_status_t status = store_link_receive(&caller->link, &message, &fd, &err);

        if (status == PLASMON_EAGAIN) {
            return;
        }
        if (status == PLASMON_OK) {
            status = caller_message(collection, caller, &message, fd, &err);
        } else if (status == PLASMON_ECLOSED) {
            caller_drop(caller, NULL);
            return;
        }
        if (is_lack(status)) {
            collection->lacks = err;
            return;
        }
        if (status != PLASMON_OK) {
            caller_drop(caller, err.text);
            return;
        }
    }
}

/* --------------------------------------------------------------------------- collecting */

/* Waits for the next thing to happen; false: nothing did. */
static bool collection_wait(struct collection *collection, uint64_t until_ns)
{
    struct pollfd fds[CALLERS_MAX + 1];
    uint64_t now_ns = pl_now_ns();
    uint64_t left   = until_ns > now_ns ? until_ns - now_ns : 0;

    fds[CALLERS_MAX] =
        (struct pollfd){.fd = collection->daemon->handback_fd, .events = POLLIN};
    for (uint32_t i = 0; i < CALLERS_MAX; i++) {
        const struct caller *caller = &collection->callers[i];

        fds[i] = (struct pollfd){
            .fd = caller_done(collection, caller) ? -1 : caller->link.fd, .events = POLLIN};
    }
    if (poll(fds, CALLERS_MAX + 1, (int)((left + 999999) / 1000000)) <= 0) {
        return false;
    }
    if (fds[CALLERS_MAX].revents != 0) {
        caller_accept(collection);
    }
    for (uint32_t i = 0; i < CALLERS_MAX; i++) {
        if (fds[i].fd >= 0 && fds[i].revents != 0 && collection->callers[i].link.fd >= 0) {
            caller_read(collection, &collection->callers[i]);
        }
    }
    return true;
}

/* So much of the time of one look is not to be counted. */
static uint64_t still_ns(uint64_t look_ns)
{
    if (look_ns < STILL_MS * UINT64_C(1000000)) {
        return 0;
    }
    pl_warn("store",
            "this process stood still for %llu ms: its workers have as much longer",
            (unsigned long long)(look_ns / 1000000));
    return look_ns;
}

static void collect(struct collection *collection)
{
    uint64_t now_ns   = pl_now_ns();
    uint64_t until_ns = now_ns + STORE_HANDBACK_FIRST_MS * UINT64_C(1000000);
    bool began        = false;
    bool alive        = true;

    while (!store_handback_complete(&collection->handback) && now_ns < until_ns &&
           collection->lacks.status == PLASMON_OK) {
        uint64_t before_ns = now_ns;
        uint64_t look_ns   = now_ns + (alive ? LOOK_MS * UINT64_C(1000000) : 0);

        /* What the dead have said is still to be read. */
        if (!collection_wait(collection, pl_min_u64(look_ns, until_ns)) && !alive) {
            pl_info("store", "nobody else of its workers lives");
            break;
        }
        alive  = some_live(collection);
        now_ns = pl_now_ns();
        until_ns += still_ns(now_ns - before_ns);
        if (!began && collection->handback.total > 0) {
            began    = true;
            until_ns = now_ns + STORE_HANDBACK_ALL_MS * UINT64_C(1000000);
        }
    }
}

/* Nobody has what they have any more. */
static void callers_kill(struct collection *collection)
{
    for (uint32_t i = 0; i < CALLERS_MAX; i++) {
        struct caller *caller = &collection->callers[i];
        int pidfd = caller->device != UINT32_MAX ? pl_pidfd_open(caller->pid) : -1;

        if (pidfd >= 0 && pl_pidfd_kill_wait(pidfd, KILL_MS) != PLASMON_OK) {
            pl_error("store", "worker %d cannot be ended", (int)caller->pid);
        }
        pl_fd_close(&pidfd);
        caller_drop(caller, NULL);
    }
}

/* They have it still, and wait for the next store. */
static void callers_leave(struct collection *collection)
{
    for (uint32_t i = 0; i < CALLERS_MAX; i++) {
        caller_drop(&collection->callers[i], NULL);
    }
}

/* To workers.c, which keeps them. Who lives is watched, or would be taken for dead. */
static plasmon_status_t callers_adopt(struct collection *collection, struct pl_err *err)
{
    struct store_daemon *daemon = collection->daemon;

    daemon->adopted = PL_NEW_N(struct store_adopted, daemon->host.device_count);
    if (daemon->adopted == NULL) {
        return pl_err_set(err, PLASMON_ENOMEM, "out of host memory");
    }
    for (uint32_t i = 0; i < daemon->host.device_count; i++) {
        daemon->adopted[i].link  = (struct store_link){.fd = -1};
        daemon->adopted[i].pidfd = -1;
    }
    for (uint32_t i = 0; i < CALLERS_MAX; i++) {
        struct caller *caller = &collection->callers[i];

        if (caller_done(collection, caller)) {
            int pidfd = pl_pidfd_open(caller->pid);

            if (pidfd < 0 && pl_fd_none_left(errno)) {
                return pl_err_set(err, PLASMON_ELIMIT,
                                  "the worker of device %u cannot be watched: %s",
                                  caller->device, strerror(errno));
            }
            daemon->adopted[caller->device] = (struct store_adopted){
                .link        = caller->link,
                .pid         = caller->pid,
                .pidfd       = pidfd,
                .incarnation = collection->handback.workers[caller->device].incarnation};
            caller->link   = (struct store_link){.fd = -1};
            caller->device = UINT32_MAX; /* it is not ours to end any more */
        } else if (caller->link.fd >= 0) {
            caller_drop(caller, "it did not hand back all that it has in time");
        }
    }
    return PLASMON_OK;
}

static plasmon_status_t take_over(struct store_daemon *daemon, struct pl_err *err)
{
    struct collection *collection = PL_NEW(struct collection);
    plasmon_status_t status       = PLASMON_OK;

    if (collection == NULL) {
        return pl_err_set(err, PLASMON_ENOMEM, "out of host memory");
    }
    collection->daemon = daemon;
    collection->marks_fd =
        daemon->marks_path[0] != '\0' ? marks_open(daemon->marks_path) : -1;
    store_handback_init(&collection->handback);
    for (uint32_t i = 0; i < CALLERS_MAX; i++) {
        collection->callers[i] = (struct caller){.link = {.fd = -1}, .device = UINT32_MAX};
    }
    pl_info("store", "the store of this node has died: waiting for its workers");
    collect(collection);
    if (collection->lacks.status != PLASMON_OK) {
        *err   = collection->lacks;
        status = err->status;
    } else if (collection->handback.total > 0) {
        status = store_handback_build(&collection->handback, &daemon->host, err);
        if (status == PLASMON_OK) {
            status = callers_adopt(collection, err);
        }
    }
    if (is_lack(status)) {
        const struct pl_err lacks = *err;

        (void)pl_err_set(err, status,
                         "what the store before kept cannot be taken over: %s; its workers "
                         "have it still, for as long as their --store-lease: give it more "
                         "(ulimit -n, LimitNOFILE=, memory), and start this store again",
                         lacks.text);
        callers_leave(collection);
    } else if (status == PLASMON_OK && collection->handback.total > 0) {
        pl_info("store", "took over the memory of %u devices", daemon->host.device_count);
    } else if (status == PLASMON_OK) {
        pl_info("store", "there are none: what it kept is gone");
    } else {
        pl_error("store", "what it kept cannot be taken over and is gone: %s", err->text);
        status = PLASMON_OK; /* as when nobody had come */
    }
    if (status == PLASMON_OK) {
        callers_kill(collection);
    }
    pl_fd_close(&collection->marks_fd);
    store_handback_finish(&collection->handback);
    pl_free(collection);
    return status;
}

/* ----------------------------------------------------------------------- for the daemon */

/* A worker that comes when it has been replaced already. */
static void late_ready(struct store_daemon *daemon, struct store_source *source,
                       uint32_t events)
{
    int fd = accept4(source->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

    (void)daemon;
    (void)events;
    pl_fd_close(&fd); /* it tries again until it is fenced, or gives up */
}

plasmon_status_t handback_start(struct store_daemon *daemon, struct pl_err *err)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char folder[sizeof(address.sun_path)];
    enum store_neighbour neighbour;
    plasmon_status_t status = clients_folder(daemon, folder, sizeof(folder), err);
    int length;

    if (status != PLASMON_OK) {
        return status;
    }
    static_assert(sizeof(address.sun_path) == sizeof(daemon->handback_path), "same limit");
    length =
        snprintf(address.sun_path, sizeof(address.sun_path), "%s/workers-%08x%08x.sock",
                 folder, pl_hash_name(daemon->options->head), pl_hash_name(daemon->node));
    if (length <= 0 || (size_t)length >= sizeof(address.sun_path)) {
        return pl_err_set(err, PLASMON_ELIMIT, "the socket folder's name is too long: %s",
                          folder);
    }
    neighbour = clients_look(&address);
    if (neighbour == STORE_NEIGHBOUR_UNKNOWN) {
        return pl_err_set(
            err, PLASMON_ELIMIT,
            "cannot look for the store before this one: no descriptor is left: "
            "raise the limit of open files (ulimit -n, LimitNOFILE=)");
    }
    if (neighbour == STORE_NEIGHBOUR_ALIVE) {
        return PLASMON_OK; /* its workers are not ours; the head says what is to be done */
    }
    daemon->follows = neighbour == STORE_NEIGHBOUR_DEAD;
    status          = socket_open(daemon, &address, err);
    marks_name(daemon);
    if (status == PLASMON_OK && daemon->follows) {
        status = take_over(daemon, err);
    }
    if (status == PLASMON_OK) {
        marks_begin(daemon);
    }
    if (status == PLASMON_OK) {
        daemon_watch(daemon, &daemon->handback, daemon->handback_fd, EPOLLIN, late_ready);
    }
    return status;
}

void handback_finish(struct store_daemon *daemon)
{
    if (daemon->handback_fd >= 0) {
        daemon_unwatch(daemon, &daemon->handback);
        pl_fd_close(&daemon->handback_fd);
    }
    if (daemon->handback_path[0] != '\0' && (daemon->started || !daemon->follows)) {
        (void)unlink(daemon->handback_path); /* else the next one is to find it */
        if (daemon->marks_path[0] != '\0') {
            (void)unlink(daemon->marks_path);
        }
    }
    for (uint32_t i = 0; daemon->adopted != NULL && i < daemon->host.device_count; i++) {
        store_link_finish(&daemon->adopted[i].link); /* those that nobody took */
        pl_fd_close(&daemon->adopted[i].pidfd);
    }
    pl_free(daemon->adopted);
    daemon->adopted = NULL;
}
