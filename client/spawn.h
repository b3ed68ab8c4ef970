/*
 * Starting a daemon from inside somebody's program, so that the program does not notice: no
 * SIGCHLD, no zombie, nothing that its wait() could find, none of its descriptors in the daemon.
 *
 * A helper process without an exit signal starts the daemon and ends at once; the daemon's parent
 * is then the system. Both are made like vfork() (CLONE_VM | CLONE_VFORK): it costs the same
 * however large the program is, and no handlers of pthread_atfork() run.
 */
#ifndef CLIENT_SPAWN_H
#define CLIENT_SPAWN_H

#include "base/str.h"

#define SPAWN_FDS_MAX 4

/*
 * path and argv as for execv(); fds become 3, 4, .. there (borrowed); stdin and stdout are
 * /dev/null, stderr is stderr_fd (-1: /dev/null). It gets a session of its own. *out_pidfd is the
 * caller's.
 */
plasmon_status_t spawn_daemon(const char *path, char *const argv[], const int *fds,
                              unsigned fd_count, int stderr_fd, int *out_pidfd,
                              struct pl_err *err) PL_MUST_CHECK;

/*
 * A limit of this process, which daemons inherit, that may be why one of them ends as it starts,
 * with what to do: "; ..." or "".
 */
#define SPAWN_HINT_BYTES 160
const char *spawn_limit_hint(char text[SPAWN_HINT_BYTES]);

/*
 * Find a program of Plasmon: bin_dir, $PLASMON_BIN_DIR, the folder of this library (and ../bin of
 * it), of the executable, $PATH. ENOENT lists where it looked. bin_dir may be NULL.
 */
plasmon_status_t spawn_find(const char *name, const char *bin_dir, char *out_path,
                            size_t out_bytes, struct pl_err *err) PL_MUST_CHECK;

#endif
