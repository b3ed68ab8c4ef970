/*
 * Starting a program with a few descriptors. posix_spawn only: the store has threads (gRPC's), and
 * a forked copy of them must not run.
 */
#ifndef STORE_SPAWN_H
#define STORE_SPAWN_H

#include <sys/types.h>

#include "base/base.h"
#include "base/str.h"

#define STORE_SPAWN_FD_FIRST 3
#define STORE_SPAWN_FDS_MAX  4

struct store_spawn {
    const char *path;
    char *const *argv; /* NULL-terminated */
    /* "NAME=value", on top of our own; NULL-terminated; may be NULL */
    const char *const *environ_add;
    const int *fds; /* become 3, 4, .. in the child; borrowed */
    unsigned fd_count;
    int stdout_fd; /* -1: as ours */
};
/*
 * The child starts with no signal blocked and default actions, standard input from /dev/null, and
 * no other descriptor of ours.
 */
plasmon_status_t store_spawn(const struct store_spawn *spawn, pid_t *out_pid,
                             int *out_pidfd, struct pl_err *err) PL_MUST_CHECK;

/* "DIR/name", DIR being $PLASMON_BIN_DIR or the folder of our own executable. */
plasmon_status_t store_program_path(const char *name, char *out,
                                    size_t out_bytes) PL_MUST_CHECK;

#endif
