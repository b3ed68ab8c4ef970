/*
 * Where gRPC waits for its sockets is one epoll descriptor, which it makes when it starts and tells
 * nobody. It is the one that is there afterwards and was not before; or the last one, if none is
 * new, for gRPC ends some time after it was told to, or not at all. Where several are new another
 * thread made one in the meantime: it stays unknown, and loops pause without it (loop_grpc.c).
 */
#include "rpc/grpc_int.h"

#include <dirent.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EPOLL_NAME "anon_inode:[eventpoll]"
#define EPOLLS_MAX 64u

struct epolls {
    int fds[EPOLLS_MAX];
    unsigned count;
};

static pthread_mutex_t events_lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned events_users; /* guarded */
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
    if (events_users++ > 0) {
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

void rpc_events_finish(void)
{
    (void)pthread_mutex_lock(&events_lock);
    if (--events_users == 0) {
        __atomic_store_n(&events_fd, -1, __ATOMIC_RELAXED);
    }
    grpc_shutdown();
    (void)pthread_mutex_unlock(&events_lock);
}
