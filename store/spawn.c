/*
 * Starting programs. Every descriptor of the store is close-on-exec; the wanted ones are first
 * copied to high numbers, so that putting one in its place cannot overwrite another that is still
 * needed.
 */
#include "store/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fault.h"
#include "base/fd.h"

extern char **environ;

#define FD_HIGH (STORE_SPAWN_FD_FIRST + STORE_SPAWN_FDS_MAX)

static bool same_name(const char *a, const char *b)
{
    size_t length = strcspn(a, "=");

    return strncmp(a, b, length + 1) == 0;
}

/* Ours with `add` in place of what has the same name. The strings are borrowed. */
static char **environ_join(const char *const *add)
{
    size_t ours = 0;
    size_t more = 0;
    size_t used = 0;
    char **joined;

    while (environ[ours] != NULL) {
        ours++;
    }
    while (add != NULL && add[more] != NULL) {
        more++;
    }
    joined = PL_NEW_N(char *, ours + more + 1);
    if (joined == NULL) {
        return NULL;
    }
    for (size_t i = 0; i < ours; i++) {
        bool replaced = false;

        for (size_t k = 0; k < more; k++) {
            replaced |= same_name(add[k], environ[i]);
        }
        if (!replaced) {
            joined[used++] = environ[i];
        }
    }
    for (size_t k = 0; k < more; k++) {
        joined[used++] = (char *)(uintptr_t)add[k];
    }
    return joined;
}

static int actions_fill(posix_spawn_file_actions_t *actions,
                        const struct store_spawn *spawn, const int *high)
{
    int error = posix_spawn_file_actions_addopen(actions, 0, "/dev/null", O_RDONLY, 0);

    for (unsigned i = 0; i < spawn->fd_count && error == 0; i++) {
        error = posix_spawn_file_actions_adddup2(actions, high[i],
                                                 STORE_SPAWN_FD_FIRST + (int)i);
    }
    if (error == 0 && spawn->stdout_fd >= 0) {
        error = posix_spawn_file_actions_adddup2(actions, spawn->stdout_fd, 1);
    }
    return error;
}

static int attributes_fill(posix_spawnattr_t *attributes)
{
    sigset_t none;
    sigset_t all;
    int error;

    sigemptyset(&none);
    sigfillset(&all);
    error = posix_spawnattr_setsigmask(attributes, &none);
    if (error == 0) {
        error = posix_spawnattr_setsigdefault(attributes, &all);
    }
    if (error == 0) {
        error = posix_spawnattr_setflags(attributes,
                                         POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    }
    return error;
}

/* errno of posix_spawn, or 0. */
static int spawn_process(const struct store_spawn *spawn, char **env, const int *high,
                         pid_t *out_pid)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    int error;

    error = posix_spawn_file_actions_init(&actions);
    if (error != 0) {
        return error;
    }
    error = posix_spawnattr_init(&attributes);
    if (error != 0) {
        goto finish_actions;
    }

    error = actions_fill(&actions, spawn, high);
    if (error == 0) {
        error = attributes_fill(&attributes);
    }
    if (error == 0) {
        error = posix_spawn(out_pid, spawn->path, &actions, &attributes, spawn->argv, env);
    }

    (void)posix_spawnattr_destroy(&attributes);
finish_actions:
    (void)posix_spawn_file_actions_destroy(&actions);
    return error;
}

plasmon_status_t store_spawn(const struct store_spawn *spawn, pid_t *out_pid,
                             int *out_pidfd, struct pl_err *err)
{
    int high[STORE_SPAWN_FDS_MAX] = {-1, -1, -1, -1};
    int error                     = 0;
    char **env                    = NULL;

    PL_CHECK(spawn->fd_count <= STORE_SPAWN_FDS_MAX);
    if (pl_fault_point("store.spawn")) {
        return pl_err_set(err, PLASMON_EAGAIN, "cannot start %s: fault point", spawn->path);
    }

    for (unsigned i = 0; i < spawn->fd_count && error == 0; i++) {
        high[i] = fcntl(spawn->fds[i], F_DUPFD_CLOEXEC, FD_HIGH);
        error   = high[i] < 0 ? errno : 0;
    }
    if (error == 0) {
        env   = environ_join(spawn->environ_add);
        error = env == NULL ? ENOMEM : spawn_process(spawn, env, high, out_pid);
    }
    pl_free(env);
    for (unsigned i = 0; i < spawn->fd_count; i++) {
        pl_fd_close(&high[i]);
    }
    if (error != 0) {
        return pl_err_set(err, pl_status_from_errno(error), "cannot start %s: %s",
                          spawn->path, strerror(error));
    }

    /* Our child and not reaped: the pid cannot have been reused. */
    *out_pidfd = pl_pidfd_open(*out_pid);
    if (*out_pidfd < 0) {
        error = errno;
        (void)kill(*out_pid, SIGKILL); /* cannot be watched, so must not be */
        (void)waitpid(*out_pid, NULL, 0);
        return pl_err_set(err, pl_status_from_errno(error), "pidfd_open: %s",
                          strerror(error));
    }
    return PLASMON_OK;
}

plasmon_status_t store_program_path(const char *name, char *out, size_t out_bytes)
{
    const char *folder = getenv("PLASMON_BIN_DIR");
    char self[4096];
    int length;

    if (folder == NULL || *folder == '\0') {
        ssize_t got = readlink("/proc/self/exe", self, sizeof(self) - 1);
        char *slash;

        if (got <= 0) {
            return pl_status_from_errno(errno);
        }
        self[got] = '\0';
        slash     = strrchr(self, '/');
        if (slash == NULL) {
            return PLASMON_ENOENT;
        }
        *slash = '\0';
        folder = self;
    }
    length = snprintf(out, out_bytes, "%s/%s", folder, name);
    return length > 0 && (size_t)length < out_bytes ? PLASMON_OK : PLASMON_ELIMIT;
}
