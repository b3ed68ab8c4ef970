/* See process.h. */
#include "store/process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Chunks of all devices, peers' sockets and clients: thousands of descriptors. */
static void files_raise(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &limit); /* otherwise we run with what there is */
    }
}

/*
 * A library user's program may have any descriptors open without close-on-exec; holding its pipes
 * would keep its readers waiting.
 */
static void files_close_inherited(const struct store_options *options)
{
    unsigned keep[2] = {UINT32_MAX, UINT32_MAX};
    unsigned from    = 3;

    if (options->client_fd >= 0) {
        keep[0] = (unsigned)options->client_fd;
    }
    if (options->client_pidfd >= 0) {
        keep[1] = (unsigned)options->client_pidfd;
    }
    if (keep[0] > keep[1]) {
        unsigned swap = keep[0];

        keep[0] = keep[1];
        keep[1] = swap;
    }
    for (unsigned i = 0; i < 2; i++) {
        if (keep[i] >= from && keep[i] != UINT32_MAX) {
            if (keep[i] > from) {
                (void)syscall(SYS_close_range, from, keep[i] - 1, 0);
            }
            (void)fcntl((int)keep[i], F_SETFD, FD_CLOEXEC);
            from = keep[i] + 1;
        }
    }
    (void)syscall(SYS_close_range, from, UINT32_MAX, 0);
}

/*
 * Before any thread is started: all of them inherit the mask, and the loop reads these signals from
 * a descriptor.
 */
static void signals_block(void)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGCHLD);
    (void)sigprocmask(SIG_BLOCK, &set, NULL);
    (void)signal(SIGCHLD, SIG_DFL); /* ignored, children would be reaped behind our back */
    (void)signal(SIGPIPE, SIG_IGN);
}

void store_process_prepare(const struct store_options *options)
{
    if (options->embedded) {
        files_close_inherited(options);
        (void)setsid(); /* ^C in the client's terminal is for the client; we end with it */
    }
    files_raise();
    signals_block();
}
