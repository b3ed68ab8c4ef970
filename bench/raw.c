/*
 * Yardsticks in a child of their own: it opens the devices alone, says its figures through a pipe,
 * and leaves nothing behind.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/bench.h"

struct answer {
    plasmon_status_t status;
    char text[480];
};

static bool write_all(int fd, const void *bytes, size_t length)
{
    const uint8_t *at = bytes;

    while (length > 0) {
        ssize_t written = write(fd, at, length);

        if (written < 0 && errno != EINTR) {
            return false;
        }
        at += written > 0 ? written : 0;
        length -= written > 0 ? (size_t)written : 0;
    }
    return true;
}

static bool read_all(int fd, void *bytes, size_t length)
{
    uint8_t *at = bytes;

    while (length > 0) {
        ssize_t got = read(fd, at, length);

        if (got == 0 || (got < 0 && errno != EINTR)) {
            return false;
        }
        at += got > 0 ? got : 0;
        length -= got > 0 ? (size_t)got : 0;
    }
    return true;
}

static _Noreturn void child(int fd, pid_t parent, bench_raw_fn measure, const void *config,
                            double *result, size_t count)
{
    struct answer answer = {0};
    struct pl_err err    = {0};
    bool told;

    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent) {
        _exit(1);
    }
    answer.status = measure(config, result, count, &err);
    memcpy(answer.text, err.text, sizeof(answer.text));
    told = write_all(fd, &answer, sizeof(answer)) &&
           write_all(fd, result, count * sizeof(*result));
    _exit(told ? 0 : 1);
}

plasmon_status_t bench_run_raw(bench_raw_fn measure, const void *config, double *result,
                               size_t count, struct pl_err *err)
{
    struct answer answer = {0};
    pid_t parent         = getpid(), pid;
    int fds[2], status;
    bool told;

    if (pipe2(fds, O_CLOEXEC) != 0 || (pid = fork()) < 0) {
        bench_die("cannot start a process: %s", strerror(errno));
    }
    if (pid == 0) {
        (void)close(fds[0]);
        child(fds[1], parent, measure, config, result, count);
    }
    (void)close(fds[1]);
    told = read_all(fds[0], &answer, sizeof(answer)) &&
           read_all(fds[0], result, count * sizeof(*result));
    (void)close(fds[0]);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    if (!told && WIFSIGNALED(status)) {
        return pl_err_set(err, PLASMON_EDEVICE,
                          "the process that measures died of signal %d", WTERMSIG(status));
    }
    if (!told) {
        return pl_err_set(err, PLASMON_EDEVICE, "the process that measures gave up");
    }
    return answer.status == PLASMON_OK ? PLASMON_OK
                                       : pl_err_set(err, answer.status, "%s", answer.text);
}

void bench_must_run_raw(bench_raw_fn measure, const void *config, double *result,
                        size_t count)
{
    struct pl_err err = {0};

    if (bench_run_raw(measure, config, result, count, &err) != PLASMON_OK) {
        bench_die("measuring the bare machine: %s", err.text);
    }
}
