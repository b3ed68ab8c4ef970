/* Daemons of a benchmark: started, killed, and what they cost. */
#include "bench/daemons.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { FOLDER_MAX = 64, LISTEN_NS = 60 };

static char folder[FOLDER_MAX];

/* Files, sockets, and folders with such in them. */
static void remove_tree(const char *path, int depth)
{
    DIR *dir = opendir(path);
    const struct dirent *entry;
    char inside[512];

    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 ||
            snprintf(inside, sizeof(inside), "%s/%s", path, entry->d_name) >=
                (int)sizeof(inside)) {
            continue;
        }
        if (unlink(inside) != 0 && errno == EISDIR && depth > 0) {
            remove_tree(inside, depth - 1);
        }
    }
    if (dir != NULL) {
        (void)closedir(dir);
    }
    (void)rmdir(path);
}

static void remove_folder(void)
{
    remove_tree(folder, 4);
}

const char *bench_must_folder(void)
{
    const char *under = getenv("TMPDIR");

    if (snprintf(folder, sizeof(folder), "%s/plasmon-bench-XXXXXX",
                 under != NULL && under[0] != '\0' ? under : "/tmp") >=
        (int)sizeof(folder)) {
        bench_die("$TMPDIR is too long for the paths of sockets; use a shorter one");
    }
    if (mkdtemp(folder) == NULL) {
        bench_die("cannot make the folder %s: %s", folder, strerror(errno));
    }
    (void)atexit(remove_folder);
    return folder;
}

/*
 * In the child, which has our memory until it runs the program: only system calls. (A fork would run gRPC's handlers, and copy the page tables of a
 * cluster's memory.)
 */
static _Noreturn void become(const char *const *argv, int log, pid_t parent)
{
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent || dup2(log, STDOUT_FILENO) < 0 ||
        dup2(log, STDERR_FILENO) < 0) {
        _exit(127);
    }
    (void)execv(argv[0], (char *const *)(uintptr_t)argv);
    _exit(127);
}

pid_t bench_must_daemon(const char *log, const char *const *argv)
{
    pid_t parent = getpid();
    char path[FOLDER_MAX + 64];
    pid_t pid;
    int fd;

    (void)snprintf(path, sizeof(path), "%s/%s", folder, log);
    fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd < 0) {
        bench_die("cannot write %s: %s", path, strerror(errno));
    }
    pid = vfork();
    if (pid == 0) {
        become(argv, fd, parent);
    }
    (void)close(fd);
    if (pid < 0) {
        bench_die("cannot start %s: %s", argv[0], strerror(errno));
    }
    return pid;
}

void bench_daemon_kill(pid_t pid)
{
    (void)kill(pid, SIGKILL);
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR) {
    }
}

uint64_t bench_daemon_cpu_ns(pid_t pid)
{
    struct timespec now;
    clockid_t clock;

    if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &now) != 0) {
        bench_die("process %d has ended; its log is in %s", (int)pid, folder);
    }
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static bool listens(const char *path)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    int fd                = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool there;

    if (fd < 0) {
        bench_die("cannot make a socket: %s", strerror(errno));
    }
    (void)snprintf(to.sun_path, sizeof(to.sun_path), "%s", path);
    there = connect(fd, (const struct sockaddr *)&to, sizeof(to)) == 0;
    (void)close(fd);
    return there;
}

void bench_must_listen(pid_t pid, const char *socket_path)
{
    uint64_t deadline_ns = pl_now_ns() + LISTEN_NS * UINT64_C(1000000000);

    while (!listens(socket_path)) {
        if (waitpid(pid, NULL, WNOHANG) == pid || pl_now_ns() > deadline_ns) {
            char command[FOLDER_MAX + 32];

            /* The logs go with the folder: show them first. */
            (void)snprintf(command, sizeof(command), "cat %s/*.log >&2", folder);
            (void)!system(command);
            bench_die("nobody listens at %s; the log is above", socket_path);
        }
        (void)poll(NULL, 0, 1); /* nothing tells of it: ask */
    }
}
