/*
 * Where gRPC waits for its sockets is one epoll descriptor, which it makes when it starts and tells
 * nobody. It is the one that is there afterwards and was not before; or the last one, if none is
 * new, for gRPC ends some time after it was told to, or not at all. Where several are new another
 * thread made one in the meantime: it stays unknown, and loops pause without it (loop_grpc.c).
 */
#include "rpc/grpc_int.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/thread.h"

#define EPOLL_NAME "anon_inode:[eventpoll]"
#define EPOLLS_MAX 64u

struct epolls {
    int fds[EPOLLS_MAX];
    unsigned count;
};

static pthread_mutex_t events_lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned events_users; /* guarded, and atomic for note_fork() */
static bool events_inherited; /* set in the child of a fork, before it has threads */
static int events_last = -1;  /* guarded; while there are no users, too */
static int events_fd   = -1;  /* atomic */

static void find_epolls(struct epolls *out)
{
    DIR *dir = opendir("/proc/self/fd");
    const struct dirent *entry;

    out->count = 0;
    while (dir != NULL && out->count < EPOLLS_MAX && (entry = readdir(dir)) != NULL) {
        char name[sizeof(EPOLL_NAME)] = "";

        if (readlinkat(dirfd(dir), entry->d_name, name, sizeof(name)) ==
                (ssize_t)strlen(EPOLL_NAME) &&
            memcmp(name, EPOLL_NAME, strlen(EPOLL_NAME)) == 0) {
            out->fds[out->count++] = atoi(entry->d_name);
        }
    }
    if (dir != NULL) {
        (void)closedir(dir);
    }
}

static bool has_epoll(const struct epolls *epolls, int fd)
{
    for (unsigned i = 0; i < epolls->count; i++) {
        if (epolls->fds[i] == fd) {
            return true;
        }
    }
    return false;
}

static int events_of(const struct epolls *before, const struct epolls *now, int last)
{
    int fd         = has_epoll(now, last) ? last : -1;
    unsigned count = 0;

    for (unsigned i = 0; i < now->count; i++) {
        if (!has_epoll(before, now->fds[i])) {
            fd = now->fds[i];
            count++;
        }
    }
    return count > 1 || now->count == EPOLLS_MAX ? -1 : fd;
}

int rpc_events_fd(void)
{
    return __atomic_load_n(&events_fd, __ATOMIC_RELAXED);
}

void rpc_events_init(void)
{
    struct epolls before, now;

    (void)pthread_mutex_lock(&events_lock);
    /* counted before gRPC begins and until it has ended: a fork meanwhile copies it, too */
    if (__atomic_fetch_add(&events_users, 1, __ATOMIC_RELAXED) > 0) {
        grpc_init();
    } else {
        find_epolls(&before);
        grpc_init();
        find_epolls(&now);
        events_last = events_of(&before, &now, events_last);
        __atomic_store_n(&events_fd, events_last, __ATOMIC_RELAXED);
    }
    (void)pthread_mutex_unlock(&events_lock);
}

/* ----------------------------------------------------------------------------- its end */

/* A copy of the eventfd that the epoll descriptor waits for, which wakes who waits there; -1: none. */
static int wakeup_of(int epoll)
{
    char line[128], path[64];
    int target, fd = -1;
    FILE *file = NULL;

    (void)snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", epoll);
    file = fopen(path, "re");
    while (file != NULL && fd < 0 && fgets(line, sizeof(line), file) != NULL) {
        char name[64] = "";

        if (sscanf(line, "tfd: %d", &target) == 1) {
            (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", target);
            if (readlink(path, name, sizeof(name) - 1) > 0 &&
                strcmp(name, "anon_inode:[eventfd]") == 0) {
                fd = fcntl(target, F_DUPFD_CLOEXEC, 0);
            }
        }
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    return fd;
}

struct rouser {
    pthread_t thread;
    int wakeup;
    bool done; /* atomic */
};

static void *rouse(void *user)
{
    static const struct timespec pause = {.tv_nsec = 2000000};
    struct rouser *rouser              = user;

    while (!__atomic_load_n(&rouser->done, __ATOMIC_ACQUIRE)) {
        (void)nanosleep(&pause, NULL);
        pl_fd_raise(rouser->wakeup);
    }
    return NULL;
}

/*
 * A thread of gRPC's that helped with a write which did not fit into its socket waits for sockets
 * 10 s at a time, also when the write is over, and the end of gRPC waits for it. So who waits there
 * is woken until all have gone.
 */
static void shut_down(int epoll)
{
    struct rouser rouser = {.wakeup = epoll >= 0 ? wakeup_of(epoll) : -1};
    bool rouses =
        rouser.wakeup >= 0 && pl_thread_start(&rouser.thread, rouse, &rouser) == 0;

    grpc_shutdown();
    if (rouses) {
        __atomic_store_n(&rouser.done, true, __ATOMIC_RELEASE);
        (void)pthread_join(rouser.thread, NULL);
        (void)pl_fd_lower(rouser.wakeup); /* gRPC may keep it for the next time */
    }
    pl_fd_close(&rouser.wakeup);
}

void rpc_events_finish(void)
{
    (void)pthread_mutex_lock(&events_lock);
    if (events_users > 1) {
        grpc_shutdown();
    } else {
        __atomic_store_n(&events_fd, -1, __ATOMIC_RELAXED);
        shut_down(events_last);
    }
    (void)__atomic_fetch_sub(&events_users, 1, __ATOMIC_RELAXED);
    (void)pthread_mutex_unlock(&events_lock);
}

/* ------------------------------------------------------------------------------- fork */

static void note_fork(void)
{
    if (__atomic_load_n(&events_users, __ATOMIC_RELAXED) > 0) {
        events_inherited = true;
    }
}

__attribute__((constructor)) static void watch_forks(void)
{
    (void)pthread_atfork(NULL, NULL,
                         note_fork); /* without memory: such a child is not warned */
}

bool rpc_events_inherited(void)
{
    return events_inherited;
}
