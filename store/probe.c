/* Probing: see probe.h. */
#include "store/probe.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "store/spawn.h"

#define PROBE_TIMEOUT_NS \
    (60ull * 1000000000u) /* a driver that is not loaded yet takes seconds a GPU */
#define PROBE_TEXT_MAX 16384u

plasmon_status_t store_probe_parse(char *text, struct store_probe *out_probe,
                                   struct pl_err *err)
{
    char *line;

    out_probe->count = 0;
    while ((line = strsep(&text, "\n")) != NULL) {
        struct store_probe_device *device = &out_probe->devices[out_probe->count];
        int name_at                       = 0;

        if (*line == '\0' || strncmp(line, "numa ", 5) == 0) { /* that is for doctor */
            continue;
        }
        if (out_probe->count == STORE_HOST_DEVICE_MAX) {
            return pl_err_set(err, PLASMON_ELIMIT, "more than %u GPUs",
                              STORE_HOST_DEVICE_MAX);
        }
        if (sscanf(line, "cuda %" SCNu32 " %" SCNu64 " %n", &device->ordinal,
                   &device->bytes, &name_at) != 2 ||
            device->bytes == 0 || device->bytes > 1ull << 46) {
            return pl_err_set(err, PLASMON_EMALFORMED,
                              "plasmon-worker --probe said \"%.80s\"", line);
        }
        (void)snprintf(device->name, sizeof(device->name), "%s", line + name_at);
        out_probe->count++;
    }
    return PLASMON_OK;
}

/* Everything up to the end of file. */
static plasmon_status_t pipe_read(int fd, char *text, size_t text_bytes, struct pl_err *err)
{
    uint64_t deadline_ns = pl_now_ns() + PROBE_TIMEOUT_NS;
    size_t length        = 0;

    for (;;) {
        struct pollfd waiting = {.fd = fd, .events = POLLIN};
        uint64_t now_ns       = pl_now_ns();
        ssize_t got;

        if (now_ns >= deadline_ns || length + 1 >= text_bytes) {
            return pl_err_set(err, PLASMON_ETIMEDOUT,
                              "plasmon-worker --probe did not end in time");
        }
        if (poll(&waiting, 1, (int)((deadline_ns - now_ns) / 1000000u) + 1) <= 0) {
            continue;
        }
        got = read(fd, text + length, text_bytes - 1 - length);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            text[length] = '\0';
            return PLASMON_OK;
        }
        length += (size_t)got;
    }
}

static plasmon_status_t probe_child(const char *path, int out_fd, pid_t *out_pid,
                                    int *out_pidfd, struct pl_err *err)
{
    char *argv[] = {(char *)(uintptr_t)path, (char *)(uintptr_t) "--probe", NULL};
    struct store_spawn spawn = {.path = path, .argv = argv, .stdout_fd = out_fd};

    return store_spawn(&spawn, out_pid, out_pidfd, err);
}

plasmon_status_t store_probe_run(struct store_probe *out_probe, struct pl_err *err)
{
    char path[4096];
    char text[PROBE_TEXT_MAX];
    plasmon_status_t status = store_program_path("plasmon-worker", path, sizeof(path));
    int ends[2];
    pid_t pid;
    int pidfd;

    out_probe->count = 0;
    if (status != PLASMON_OK) {
        return pl_err_set(err, status, "cannot tell where plasmon-worker is");
    }
    if (pipe2(ends, O_CLOEXEC) != 0) {
        return pl_err_set(err, pl_status_from_errno(errno), "pipe: %s", strerror(errno));
    }
    status = probe_child(path, ends[1], &pid, &pidfd, err);
    pl_fd_close(&ends[1]);
    if (status != PLASMON_OK) {
        pl_fd_close(&ends[0]);
        return status;
    }

    status = pipe_read(ends[0], text, sizeof(text), err);
    pl_fd_close(&ends[0]);
    /* It has said everything or said it too slowly. */
    if (pl_pidfd_kill_wait(pidfd, 10000) != PLASMON_OK && status == PLASMON_OK) {
        status =
            pl_err_set(err, PLASMON_ETIMEDOUT, "plasmon-worker --probe cannot be reaped");
    }
    pl_fd_close(&pidfd);
    return status == PLASMON_OK ? store_probe_parse(text, out_probe, err) : status;
}
