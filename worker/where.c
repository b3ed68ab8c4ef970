/*
 * Where a worker's threads are. The handler makes calls that are safe in one, or made safe:
 * backtrace() allocates only the first time it is called, which is at the start;
 * backtrace_symbols_fd() allocates nothing.
 */
#include "worker/where.h"

#include <dirent.h>
#include <errno.h>
#include <execinfo.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

#define STANDS_STILL_NS UINT64_C(2000000000) /* the loop comes by twice a second */
enum { FRAMES_MAX = 48 };

static pthread_t main_thread;
static _Atomic uint64_t came_by_ns; /* 0: not started */

void worker_where_start(void)
{
    void *frames[2];

    main_thread = pthread_self();
    (void)backtrace(frames, 2); /* loads what it needs */
    atomic_store(&came_by_ns, pl_now_ns());
}

void worker_where_beat(void)
{
    atomic_store_explicit(&came_by_ns, pl_now_ns(), memory_order_relaxed);
}

void worker_where_join(void)
{
    sigset_t asked;

    (void)sigemptyset(&asked);
    (void)sigaddset(&asked, SIGUSR1); /* cannot fail, nor can the next one */
    (void)pthread_sigmask(SIG_UNBLOCK, &asked, NULL);
}

bool worker_where_tell(void)
{
    uint64_t came_ns = atomic_load(&came_by_ns);
    int saved        = errno;
    void *frames[FRAMES_MAX];
    char text[96];
    int count, length;

    if (came_ns == 0 || pl_now_ns() - came_ns < STANDS_STILL_NS) {
        return false;
    }
    length = snprintf(text, sizeof(text), "worker %d: %s thread %d is in\n", (int)getpid(),
                      pthread_equal(pthread_self(), main_thread) ? "the main" : "a",
                      (int)gettid());
    count  = backtrace(frames, FRAMES_MAX);
    if (length > 0 && write(STDERR_FILENO, text, (size_t)length) == length) {
        backtrace_symbols_fd(frames, count, STDERR_FILENO);
    }
    errno = saved;
    return true;
}

void worker_where_ask_all(void)
{
    const struct timespec moment = {.tv_nsec = 10000000};
    pid_t own                    = gettid();
    DIR *threads                 = opendir("/proc/self/task");
    struct dirent *entry;

    if (threads == NULL) {
        return;
    }
    while ((entry = readdir(threads)) != NULL) {
        /* one after the other: stacks are not mixed up */
        pid_t tid = (pid_t)strtol(entry->d_name, NULL, 10);

        if (tid > 0 && tid != own && tgkill(getpid(), tid, SIGUSR1) == 0) {
            (void)nanosleep(&moment, NULL); /* cut short: then less is seen */
        }
    }
    (void)closedir(threads);
}
