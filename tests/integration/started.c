#include "tests/integration/started.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "base/clock.h"
#include "base/fd.h"

#define DAEMONS_MAX 16

static char address[128];
static pid_t owner; /* the process of the test that began; 0: none */
static pid_t daemons[DAEMONS_MAX];
static unsigned daemon_count;
static uid_t run_as; /* 0: as we are */

/* ----------------------------------------------------------------------------- programs */

/*
 * In the child: become the program. Only calls that are allowed between fork() and exec() in a
 * program with threads.
 */
static _Noreturn void become(const char *path, const char *const *argv, int out)
{
    if (run_as != 0 && (setresgid(run_as, run_as, run_as) != 0 ||
                        setresuid(run_as, run_as, run_as) != 0)) {
        _exit(126);
    }
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* a change of user takes it away */
    (void)dup2(out, 1);
    (void)dup2(out, 2);
    (void)execv(path, (char *const *)(uintptr_t)argv);
    _exit(127);
}

static pid_t start(const char *const *argv, int out)
{
    const char *dir = getenv("PLASMON_BIN_DIR");
    bool own        = argv[0][0] == '/';
    char path[512];
    pid_t pid;

    ASSERT_TRUE(own || dir != NULL);
    (void)snprintf(path, sizeof(path), "%s%s%s", own ? "" : dir, own ? "" : "/", argv[0]);
    pid = fork();
    ASSERT_TRUE(pid >= 0);
    if (pid == 0) {
        become(path, argv, out);
    }
    return pid;
}

int started_run_as(uid_t user, const char *const *argv, char *out, size_t out_bytes)
{
    int status;

    run_as = user;
    status = started_run(argv, out, out_bytes);
    run_as = 0;
    return status;
}

int started_wait(pid_t pid)
{
    struct pollfd poller = {.fd = pl_pidfd_open(pid), .events = POLLIN};
    int status;

    ASSERT_TRUE(poller.fd >= 0);
    if (poll(&poller, 1, (int)CLUSTER_WAIT_MS) != 1) {
        test_fail(__FILE__, __LINE__, "pid %d goes on", (int)pid);
    }
    pl_fd_close(&poller.fd);
    ASSERT_EQ(waitpid(pid, &status, 0), pid);
    for (unsigned i = 0; i < daemon_count; i++) {
        daemons[i] = daemons[i] == pid ? 0 : daemons[i];
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int started_run(const char *const *argv, char *out, size_t out_bytes)
{
    int pipes[2];
    size_t used = 0;
    ssize_t got;
    char rest[512];
    pid_t pid;

    ASSERT_EQ(pipe2(pipes, O_CLOEXEC), 0);
    pid = start(argv, pipes[1]);
    pl_fd_close(&pipes[1]);
    do {
        bool room = out != NULL && used + 1 < out_bytes;

        got = room ? read(pipes[0], out + used, out_bytes - used - 1)
                   : read(pipes[0], rest, sizeof(rest));
        used += room && got > 0 ? (size_t)got : 0;
    } while (got > 0 || (got < 0 && errno == EINTR));
    if (out != NULL) {
        out[used] = '\0';
    }
    pl_fd_close(&pipes[0]);
    return started_wait(pid);
}

static void log_path(const char *log, char out[256])
{
    (void)snprintf(out, 256, "%s/%s", cluster_folder(), log);
}

pid_t started_daemon(const char *const *argv, const char *log)
{
    char path[256];
    int fd;

    ASSERT_TRUE(daemon_count < DAEMONS_MAX);
    log_path(log, path);
    fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    ASSERT_TRUE(fd >= 0);
    daemons[daemon_count] = start(argv, fd);
    pl_fd_close(&fd);
    return daemons[daemon_count++];
}

void started_log(const char *log, char *out, size_t out_bytes)
{
    char path[256];
    FILE *file;
    size_t got = 0;

    log_path(log, path);
    file = fopen(path, "re");
    if (file != NULL) {
        got = fread(out, 1, out_bytes - 1, file);
        (void)fclose(file);
    }
    out[got] = '\0';
}

const char *started_wait_log(const char *log, size_t *io_from, const char *text)
{
    static char said[1 << 20];
    size_t from = io_from != NULL ? *io_from : 0;

    for (unsigned ms = 0; ms < CLUSTER_WAIT_MS; ms += 20) {
        const char *found;

        started_log(log, said, sizeof(said));
        found = strlen(said) >= from ? strstr(said + from, text) : NULL;
        if (found != NULL && strchr(found, '\n') != NULL) {
            found += strlen(text);
            if (io_from != NULL) {
                *io_from = (size_t)(found - said);
            }
            return found;
        }
        (void)poll(NULL, 0, 20); /* nothing tells of it: ask */
    }
    test_fail(__FILE__, __LINE__, "no \"%s\" in %s: %s", text, log, said);
}

/* ----------------------------------------------------------------------------- clusters */

static void end_all(void)
{
    if (getpid() != owner) {
        return;
    }
    for (unsigned i = 0; i < daemon_count; i++) {
        if (daemons[i] != 0) {
            (void)kill(daemons[i], SIGKILL);
            (void)waitpid(daemons[i], NULL, 0);
        }
    }
    (void)STARTED_RUN(NULL, 0, "plasmon", "stop");
    cluster_remove();
}

void started_begin(void)
{
    if (owner == 0) {
        cluster_tag();
        owner = getpid();
        ASSERT_EQ(atexit(end_all), 0);
        (void)snprintf(address, sizeof(address), "unix:%s/plasmon-%u/head.sock",
                       cluster_folder(), (unsigned)getuid());
    }
}

void started_cluster(unsigned devices)
{
    started_cluster_with(devices, NULL, NULL);
}

void started_cluster_with(unsigned devices, const char *option, const char *value)
{
    char count[16], said[4096];

    started_begin();
    (void)snprintf(count, sizeof(count), "%u", devices);
    if (STARTED_RUN(said, sizeof(said), "plasmon", "start", "--head", "--cpu-devices",
                    count, "--gpus", "none", "--device-memory", "64M", option,
                    value) != 0) {
        test_fail(__FILE__, __LINE__, "plasmon start: %s", said);
    }
}

const char *started_address(void)
{
    return address;
}

plasmon_status_t started_try_join(const char *to, const char *token,
                                  struct plasmon_client **out_client)
{
    struct plasmon_options options = PLASMON_OPTIONS_INIT;

    options.address            = to;
    options.token              = token;
    options.connect_timeout_ms = 2 * CLUSTER_WAIT_MS;
    return plasmon_init(&options, out_client);
}

struct plasmon_client *started_join(void)
{
    struct plasmon_client *client;

    CLUSTER_OK(started_try_join(address, getenv("PLASMON_TOKEN"), &client));
    cluster_watch(client);
    return client;
}

struct plasmon_client *started_join_knowing(const char *to, uint32_t devices)
{
    struct plasmon_device_info infos[16];

    ASSERT_TRUE(devices <= PL_COUNT(infos));
    for (unsigned ms = 0; ms < CLUSTER_WAIT_MS; ms += 20) {
        struct plasmon_client *client;
        uint32_t count = 0;

        if (started_try_join(to, NULL, &client) == PLASMON_OK) {
            CLUSTER_OK(plasmon_devices(client, infos, devices, &count));
            if (count == devices) {
                return client;
            }
            plasmon_finish(client);
        }
        (void)poll(NULL, 0, 20);
    }
    test_fail(__FILE__, __LINE__, "no client has seen %u devices", (unsigned)devices);
}

/* ------------------------------------------------------------------------------- status */

long long started_status(struct plasmon_client *client, const char *in, const char *key)
{
    const char *object, *found;
    long long value = -1;
    char *text, want[64];

    CLUSTER_OK(plasmon_status_json(client, &text));
    (void)snprintf(want, sizeof(want), "\"%s\":", key);
    object = strstr(text, in);
    found  = object != NULL ? strstr(object, want) : NULL;
    if (found != NULL) {
        value = atoll(found + strlen(want));
    }
    free(text);
    return value;
}

void started_wait_status(struct plasmon_client *client, const char *text)
{
    uint64_t deadline_ns = pl_now_ns() + CLUSTER_WAIT_MS * 1000000ull;
    char *json           = NULL;

    do {
        free(json);
        CLUSTER_OK(plasmon_status_json(client, &json));
        if (strstr(json, text) != NULL) {
            free(json);
            return;
        }
        (void)poll(NULL, 0, 20); /* nothing tells of a new status: ask */
    } while (pl_now_ns() < deadline_ns);
    test_fail(__FILE__, __LINE__, "the status never has %s: %s", text, json);
}

static unsigned devices_up(struct plasmon_client *client)
{
    unsigned count = 0;
    char *json;

    CLUSTER_OK(plasmon_status_json(client, &json));
    for (const char *at = json; (at = strstr(at, "\"state\":\"up\"")) != NULL; at++) {
        count++;
    }
    free(json);
    return count;
}

void started_wait_devices(struct plasmon_client *client, unsigned devices)
{
    uint64_t deadline_ns = pl_now_ns() + CLUSTER_WAIT_MS * 1000000ull;

    while (devices_up(client) < devices) {
        ASSERT_TRUE(pl_now_ns() < deadline_ns);
        (void)poll(NULL, 0, 20); /* nothing tells of a new status: ask */
    }
}
