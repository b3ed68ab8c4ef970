/*
 * Killing a process and knowing that it has ended. A pid may be reused by another process between
 * looking and killing; a pidfd is that process and no other. It becomes readable when the process
 * has ended, with all its threads, for anybody who holds it: so a worker that is not our child can
 * be fenced too.
 */
#include "fd.h"

#include "clock.h"
#include "fault.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef P_PIDFD
#define P_PIDFD 3 /* <linux/wait.h>, which clashes with <sys/wait.h> */
#endif

int pl_pidfd_open(pid_t pid)
{
    if (pl_fault_point("pidfd.open")) {
        errno = ENOSYS;
        return -1;
    }
    if (pl_fault_point("pidfd.none_left")) {
        errno = EMFILE;
        return -1;
    }
    return (int)syscall(SYS_pidfd_open, pid, 0); /* always close-on-exec */
}

plasmon_status_t pl_pidfd_check(struct pl_err *err)
{
    const char *call = "pidfd_open";
    int fd = pl_pidfd_open(getpid()), error = errno;

    if (fd >= 0) {
        call = "pidfd_send_signal";
        if (syscall(SYS_pidfd_send_signal, fd, 0, NULL, 0) == 0) {
            pl_fd_close(&fd);
            return PLASMON_OK;
        }
        error = errno;
        pl_fd_close(&fd);
    }
    return pl_err_set(
        err, PLASMON_ENOTSUP,
        "%s: %s: the kernel must be Linux 5.9 or later, and what filters "
        "system calls (an old container runtime, valgrind) must know the call",
        call, strerror(error));
}

/*
 * Field 22 of /proc/PID/stat, after the name, which may contain anything but is the last thing in
 * parentheses.
 */
/* What follows the name in /proc/PID/stat, which may have any byte in it. NULL: there is no such process. */
static const char *read_stat(pid_t pid, char text[1024])
{
    char path[64], *at;
    ssize_t length;
    int fd;

    (void)snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return NULL;
    }
    length = read(fd, text, 1023);
    (void)close(fd);
    if (length <= 0) {
        return NULL;
    }
    text[length] = '\0';
    at           = strrchr(text, ')');
    return at != NULL ? at + 1 : NULL;
}

plasmon_status_t pl_pid_started(pid_t pid, uint64_t *out_ticks)
{
    char text[1024];
    const char *stat = read_stat(pid, text);

    return stat != NULL && sscanf(stat,
                                  " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u "
                                  "%*d %*d %*d %*d %*d %*d %" SCNu64,
                                  out_ticks) == 1
               ? PLASMON_OK
               : PLASMON_ENOENT;
}

bool pl_pid_stopped(pid_t pid)
{
    char text[1024], state;
    const char *stat = read_stat(pid, text);

    return stat != NULL && sscanf(stat, " %c", &state) == 1 &&
           (state == 'T' || state == 't');
}

bool pl_pid_describe(pid_t pid, char *out, size_t out_bytes)
{
    bool stopped = pl_pid_stopped(pid);
    char path[64], name[32] = "", remedy[96] = "";
    FILE *file;

    (void)snprintf(path, sizeof(path), "/proc/%d/comm", (int)pid);
    file = fopen(path, "re");
    if (file != NULL) {
        if (fgets(name, sizeof(name), file) != NULL) {
            name[strcspn(name, "\n")] = '\0';
        }
        (void)fclose(file);
    }
    if (stopped) {
        (void)snprintf(
            remedy, sizeof(remedy),
            " is stopped (by SIGSTOP, or a debugger): `kill -CONT %d` lets it go on",
            (int)pid);
    }
    (void)snprintf(out, out_bytes, name[0] != '\0' ? "process %d (%s)%s" : "process %d%s%s",
                   (int)pid, name, remedy);
    return stopped;
}

/* Wait until `fd` is readable, over interruptions. */
static plasmon_status_t wait_readable(int fd, uint64_t timeout_ms)
{
    uint64_t deadline_ns = pl_now_ns() + pl_min_u64(timeout_ms, INT32_MAX) * 1000000u;

    for (;;) {
        struct pollfd waiting = {.fd = fd, .events = POLLIN};
        uint64_t now_ns       = pl_now_ns();
        uint64_t left_ns      = deadline_ns > now_ns ? deadline_ns - now_ns : 0;
        int ready             = poll(&waiting, 1, (int)((left_ns + 999999u) / 1000000u));

        if (ready > 0) {
            return PLASMON_OK;
        }
        if (ready == 0) {
            return PLASMON_ETIMEDOUT;
        }
        if (errno != EINTR) {
            return pl_status_from_errno(errno);
        }
    }
}

plasmon_status_t pl_pidfd_kill_wait(int pidfd, uint64_t timeout_ms)
{
    plasmon_status_t status;
    siginfo_t info;

    if (syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0) != 0 && errno != ESRCH) {
        return pl_status_from_errno(errno);
    }

    status = wait_readable(pidfd, timeout_ms);
    if (status != PLASMON_OK) {
        return status;
    }

    /* Our child: reap it. Not ours, or reaped already (ECHILD): it has ended all the same. */
    if (waitid((idtype_t)P_PIDFD, (id_t)pidfd, &info, WEXITED | WNOHANG) != 0 &&
        errno != ECHILD) {
        return pl_status_from_errno(errno);
    }
    return PLASMON_OK;
}
