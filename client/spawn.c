/*
 * See spawn.h. The functions that run in the children share the caller's memory and may only make
 * system calls; all that they need is prepared before.
 */
#include "client/spawn.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "plasmon/plasmon.h"

#define STACK_BYTES (64u << 10)
#define FD_FIRST    3

extern char **environ;

struct spawn {
    const char *path;
    char *const *argv;
    char *const *envp;
    const int *fds;
    unsigned fd_count;
    int null_fd;
    int stderr_fd;
    uint8_t *daemon_stack;
    sigset_t signals_empty;
    /* Out. */
    int pidfd;
    int error; /* errno of what failed */
};

/*
 * What runs in the children is not instrumented: their frames end with exec, not with a return, so
 * in the memory that they share with us the address sanitizer would go on seeing them, and take the
 * next child's stack, at the same address, for theirs.
 */
#define IN_CHILD __attribute__((no_sanitize("address")))

/* Descriptors to their numbers: first out of the way, so that none is overwritten before it was copied. */
IN_CHILD static int place_descriptors(const struct spawn *spawn)
{
    int moved[SPAWN_FDS_MAX + 2], count = 0;
    int wanted[SPAWN_FDS_MAX + 2] = {spawn->null_fd, spawn->stderr_fd};
    int highest                   = FD_FIRST + SPAWN_FDS_MAX;

    for (unsigned i = 0; i < spawn->fd_count; i++) {
        wanted[2 + i] = spawn->fds[i];
    }
    for (unsigned i = 0; i < 2 + spawn->fd_count; i++) {
        moved[i] = fcntl(wanted[i], F_DUPFD, highest + 1);
        if (moved[i] < 0) {
            return errno;
        }
        count++;
    }
    if (dup2(moved[0], 0) < 0 || dup2(moved[0], 1) < 0 || dup2(moved[1], 2) < 0) {
        return errno;
    }
    for (int i = 2; i < count; i++) {
        if (dup2(moved[i], FD_FIRST + i - 2) < 0) {
            return errno;
        }
    }
    if (syscall(SYS_close_range, (unsigned)(FD_FIRST + (int)spawn->fd_count), ~0u, 0u) !=
        0) {
        return errno;
    }
    return 0;
}

/*
 * What the program ignores would stay ignored over exec. But a file that would grow over
 * RLIMIT_FSIZE, and memory by descriptor is one, is to be an error that is told, and no death by
 * SIGXFSZ. The bare system call, because a sanitizer's sigaction() keeps books in the memory that
 * we share with the program. All zero is SIG_DFL without flags or mask on every architecture.
 */
IN_CHILD static void default_signals(void)
{
    const uint64_t action[8] = {0};
    const uint64_t ignore[8] = {(uint64_t)(uintptr_t)SIG_IGN};

    for (int number = 1; number < NSIG; number++) {
        (void)syscall(SYS_rt_sigaction, number, number == SIGXFSZ ? ignore : action, NULL,
                      (size_t)8); /* KILL and STOP say no */
    }
}

/* The daemon, until it is somebody else's program. Its descriptor table and signal handlers are its own. */
IN_CHILD static int run_daemon(void *user)
{
    struct spawn *spawn = user;

    (void)setsid();
    default_signals();
    (void)sigprocmask(SIG_SETMASK, &spawn->signals_empty, NULL);
    spawn->error = place_descriptors(spawn);
    if (spawn->error == 0) {
        (void)execve(spawn->path, spawn->argv, spawn->envp);
        spawn->error = errno;
    }
    return 127; /* the end of the process */
}

/* The helper shares our descriptor table, so that the pidfd arrives in it. */
IN_CHILD static int run_helper(void *user)
{
    struct spawn *spawn = user;
    int pidfd           = -1;
    pid_t pid;

    pid = clone(run_daemon, spawn->daemon_stack + STACK_BYTES,
                CLONE_VM | CLONE_VFORK | CLONE_PIDFD, spawn, &pidfd);
    if (pid < 0) {
        spawn->error = errno;
    } else {
        spawn->pidfd = pidfd;
    }
    return 0;
}

static plasmon_status_t run(struct spawn *spawn, struct pl_err *err)
{
    sigset_t all, before;
    uint8_t *stacks;
    pid_t helper;

    stacks = mmap(NULL, 2 * STACK_BYTES, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    if (stacks == MAP_FAILED) {
        return pl_err_set(err, PLASMON_ENOMEM, "out of host memory");
    }
    spawn->daemon_stack = stacks + STACK_BYTES;

    /* No handler of the program may run in the children: they share its memory. */
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    helper = clone(run_helper, stacks + STACK_BYTES, CLONE_VM | CLONE_VFORK | CLONE_FILES,
                   spawn);
    if (helper < 0) {
        spawn->error = errno;
    } else {
        while (waitpid(helper, NULL, __WALL) < 0 && errno == EINTR) {
        }
    }
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    (void)munmap(stacks, 2 * STACK_BYTES);

    if (spawn->error != 0) {
        pl_fd_close(&spawn->pidfd);
        return pl_err_set(err, pl_status_from_errno(spawn->error), "cannot start %s: %s",
                          spawn->path, strerror(spawn->error));
    }
    return PLASMON_OK;
}

plasmon_status_t spawn_daemon(const char *path, char *const argv[], const int *fds,
                              unsigned fd_count, int stderr_fd, int *out_pidfd,
                              struct pl_err *err)
{
    struct spawn spawn = {.path     = path,
                          .argv     = argv,
                          .envp     = environ,
                          .fds      = fds,
                          .fd_count = fd_count,
                          .pidfd    = -1};
    plasmon_status_t status;

    PL_CHECK(fd_count <= SPAWN_FDS_MAX);
    spawn.null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (spawn.null_fd < 0) {
        return pl_err_set(err, pl_status_from_errno(errno), "cannot open /dev/null: %s",
                          strerror(errno));
    }
    spawn.stderr_fd = stderr_fd >= 0 ? stderr_fd : spawn.null_fd;
    (void)sigemptyset(&spawn.signals_empty);

    status = run(&spawn, err);
    pl_fd_close(&spawn.null_fd);
    if (status == PLASMON_OK) {
        *out_pidfd = spawn.pidfd;
    }
    return status;
}

const char *spawn_limit_hint(char text[SPAWN_HINT_BYTES])
{
    struct rlimit files;
    char size[32];

    text[0] = '\0';
    if (getrlimit(RLIMIT_FSIZE, &files) == 0 && files.rlim_cur != RLIM_INFINITY) {
        (void)snprintf(text, SPAWN_HINT_BYTES,
                       "; files may have at most %s here, and so may shared memory: raise "
                       "`ulimit -f`",
                       pl_format_bytes(files.rlim_cur, size));
    }
    return text;
}

/* ------------------------------------------------------------------------------ finding */

struct search {
    const char *name;
    char *out;
    size_t out_bytes;
    struct pl_str looked; /* where, for people */
    bool in_path;         /* PATH is named as such, and not folder by folder */
};

static bool try_dir(struct search *search, const char *dir, const char *below)
{
    int length =
        snprintf(search->out, search->out_bytes, "%s%s/%s", dir, below, search->name);

    if (length <= 0 || (size_t)length >= search->out_bytes) {
        return false;
    }
    if (!search->in_path && strstr(pl_str_text(&search->looked), search->out) == NULL) {
        pl_str_append(&search->looked, "%s%s", search->looked.length > 0 ? ", " : "",
                      search->out);
    }
    return access(search->out, X_OK) == 0;
}

static void cut_name(char *path)
{
    char *slash = strrchr(path, '/');

    if (slash != NULL) {
        *slash = '\0';
    }
}

/*
 * Beside a file of ours: in its folder, and where `bin` is when it lies in lib or lib/ARCHITECTURE.
 * Cuts the name off.
 */
static bool try_beside(struct search *search, char *path)
{
    static const char *const below[] = {"", "/../bin", "/../../bin"};
    bool found                       = false;

    cut_name(path);
    for (size_t i = 0; i < PL_COUNT(below) && !found; i++) {
        found = try_dir(search, path, below[i]);
    }
    return found;
}

/* This library, or the program that it was linked into. */
static bool try_library(struct search *search)
{
    Dl_info info;
    bool found;
    char *path;

    if (dladdr((const void *)plasmon_version, &info) == 0 || info.dli_fname == NULL) {
        return false;
    }
    path = realpath(info.dli_fname, NULL);
    if (path == NULL) {
        return false;
    }
    found = try_beside(search, path);
    free(path);
    return found;
}

static bool try_executable(struct search *search)
{
    char path[4096];
    ssize_t length = readlink("/proc/self/exe", path, sizeof(path) - 1);

    if (length <= 0) {
        return false;
    }
    path[length] = '\0';
    return try_beside(search, path);
}

static bool try_path(struct search *search)
{
    const char *path = getenv("PATH");
    char dir[4096];

    pl_str_append(&search->looked, " and in PATH");
    search->in_path = true;
    while (path != NULL && *path != '\0') {
        size_t length = strcspn(path, ":");

        if (length > 0 && length < sizeof(dir)) {
            memcpy(dir, path, length);
            dir[length] = '\0';
            if (try_dir(search, dir, "")) {
                return true;
            }
        }
        path += length + (path[length] == ':' ? 1 : 0);
    }
    return false;
}

plasmon_status_t spawn_find(const char *name, const char *bin_dir, char *out_path,
                            size_t out_bytes, struct pl_err *err)
{
    struct search search    = {.name = name, .out = out_path, .out_bytes = out_bytes};
    const char *environment = getenv("PLASMON_BIN_DIR");
    bool found;

    pl_str_init(&search.looked);
    if (bin_dir != NULL && bin_dir[0] != '\0') {
        found = try_dir(&search, bin_dir, ""); /* asked for: nowhere else */
    } else if (environment != NULL && environment[0] != '\0') {
        found = try_dir(&search, environment, "");
    } else {
        found = try_library(&search) || try_executable(&search) || try_path(&search);
    }
    if (!found) {
        (void)pl_err_set(
            err, PLASMON_ENOENT,
            "%s was not found; set PLASMON_BIN_DIR to its folder. Looked for %.300s", name,
            pl_str_text(&search.looked));
    }
    pl_str_finish(&search.looked);
    return found ? PLASMON_OK : PLASMON_ENOENT;
}
