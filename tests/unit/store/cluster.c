/* See cluster.h. Everything waits on conditions with a deadline of ten seconds. */
#include "cluster.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "store/table.h"
#include "tests/harness/test.h"

#define DEADLINE_NS (10ull * 1000000000u)

void cluster_folder(struct cluster *cluster)
{
    const char *base = getenv("TMPDIR");
    char path[192];

    memset(cluster, 0, sizeof(*cluster));
    (void)snprintf(cluster->folder, sizeof(cluster->folder), "%s/plasmon-test-XXXXXX",
                   base != NULL ? base : "/tmp");
    ASSERT_NOT_NULL(mkdtemp(cluster->folder));
    (void)snprintf(path, sizeof(path), "%s/plasmon-worker", cluster->folder);
    ASSERT_EQ(symlink(FAKE_WORKER_PATH, path), 0);
    (void)snprintf(path, sizeof(path), "%s/plasmon-head", cluster->folder);
    ASSERT_EQ(symlink(FAKE_HEAD_PATH, path), 0);
    ASSERT_EQ(setenv("PLASMON_BIN_DIR", cluster->folder, 1), 0);
}

void cluster_folder_remove(struct cluster *cluster)
{
    char path[192];

    (void)snprintf(path, sizeof(path), "%s/plasmon-worker", cluster->folder);
    ASSERT_EQ(unlink(path), 0);
    (void)snprintf(path, sizeof(path), "%s/plasmon-head", cluster->folder);
    ASSERT_EQ(unlink(path), 0);
    (void)snprintf(path, sizeof(path), "%s/sockets", cluster->folder);
    (void)rmdir(path);                    /* embedded clusters have none */
    ASSERT_EQ(rmdir(cluster->folder), 0); /* nothing else was left in it */
}

const char *cluster_wait_from(struct cluster *cluster, size_t from, const char *part)
{
    static char line[1024];
    uint64_t deadline = pl_now_ns() + DEADLINE_NS;

    for (;;) {
        const char *found     = strstr(cluster->text + from, part);
        struct pollfd waiting = {.fd = cluster->log, .events = POLLIN};
        ssize_t got;

        if (found != NULL && strchr(found, '\n') != NULL) {
            (void)snprintf(line, sizeof(line), "%.*s", (int)strcspn(found, "\n"), found);
            return line;
        }
        if (pl_now_ns() > deadline || cluster->length + 1 >= sizeof(cluster->text)) {
            test_fail(__FILE__, __LINE__, "never said \"%s\"; it said:\n%s", part,
                      cluster->text);
        }
        if (poll(&waiting, 1, 100) <= 0) {
            continue;
        }
        got = read(cluster->log, cluster->text + cluster->length,
                   sizeof(cluster->text) - 1 - cluster->length);
        if (got <= 0) {
            test_fail(__FILE__, __LINE__, "ended without saying \"%s\"; it said:\n%s", part,
                      cluster->text);
        }
        cluster->length += (size_t)got;
    }
}

const char *cluster_wait(struct cluster *cluster, const char *part)
{
    return cluster_wait_from(cluster, 0, part);
}

void cluster_start(struct cluster *cluster, unsigned devices, const char *mode)
{
    char count[16];
    char sockets[192];
    int ends[2];

    cluster_folder(cluster);
    (void)snprintf(count, sizeof(count), "%u", devices);
    (void)snprintf(sockets, sizeof(sockets), "%s/sockets", cluster->folder);
    ASSERT_EQ(setenv("FAKE_WORKER", mode != NULL ? mode : "", 1), 0);
    ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
    cluster->pid = fork();
    ASSERT_TRUE(cluster->pid >= 0);
    if (cluster->pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* a failed test leaves nothing behind */
        (void)dup2(ends[1], 2);
        (void)execl(BARE_STORE_PATH, "plasmon-store", "--head", "unix:/nowhere",
                    "--cpu-devices", count, "--gpus", "none", "--device-memory", "64M",
                    "--worker-lease", "1000", "--worker-start-lease",
                    mode != NULL && strcmp(mode, "mute") == 0 ? "400" : "60000",
                    "--socket-dir", sockets, "--node", "testnode", (char *)NULL);
        _exit(127);
    }
    (void)close(ends[1]);
    cluster->log = ends[0];
    (void)snprintf(cluster->socket, sizeof(cluster->socket), "%.80s/store-%d.sock", sockets,
                   (int)cluster->pid);
    for (unsigned i = 0; i < devices && mode == NULL; i++) {
        char ready[64];

        (void)snprintf(ready, sizeof(ready), "worker of device %u is ready", i);
        (void)cluster_wait(cluster, ready);
    }
}

int cluster_end(struct cluster *cluster)
{
    uint64_t deadline = pl_now_ns() + DEADLINE_NS;
    char rest[4096];
    int status;

    ASSERT_EQ(kill(cluster->pid, SIGTERM), 0);
    while (read(cluster->log, rest, sizeof(rest)) > 0) {
        /* until every process has closed it */
        ASSERT_TRUE(pl_now_ns() < deadline);
    }
    ASSERT_EQ(waitpid(cluster->pid, &status, 0), cluster->pid);
    (void)close(cluster->log);
    ASSERT_TRUE(access(cluster->socket, F_OK) != 0);
    cluster_folder_remove(cluster);
    return status;
}

pid_t cluster_worker_pid(struct cluster *cluster, unsigned device, unsigned incarnation)
{
    char part[96];
    int pid;

    (void)snprintf(part, sizeof(part), "worker of device %u started: incarnation %u, pid ",
                   device, incarnation);
    ASSERT_EQ(sscanf(cluster_wait(cluster, part) + strlen(part), "%d", &pid), 1);
    return pid;
}

/* ------------------------------------------------------------------------------ clients */

int client_connect(const struct cluster *cluster)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd                     = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    ASSERT_TRUE(fd >= 0);
    memcpy(address.sun_path, cluster->socket, sizeof(address.sun_path));
    ASSERT_EQ(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    return fd;
}

void client_send(int fd, const struct store_control *message)
{
    ASSERT_OK(pl_fd_send(fd, message, sizeof(*message), NULL, 0));
}

bool client_receive(int fd, struct store_control *out_message, int *out_fd)
{
    struct pollfd waiting = {.fd = fd, .events = POLLIN};
    size_t length         = sizeof(*out_message);
    unsigned count        = PL_FD_MAX_PER_MESSAGE;
    int fds[PL_FD_MAX_PER_MESSAGE];
    plasmon_status_t status;

    ASSERT_TRUE(poll(&waiting, 1, 10000) == 1);
    status = pl_fd_recv(fd, out_message, &length, fds, &count);
    if (status != PLASMON_OK) {
        return false; /* end of file, or reset: it hung up while we were talking */
    }
    ASSERT_EQ(length, sizeof(*out_message));
    ASSERT_EQ(out_message->version, STORE_CONTROL_VERSION);
    ASSERT_EQ(out_message->count, count);
    for (unsigned i = 0; i < count; i++) {
        if (i == 0 && out_fd != NULL) {
            *out_fd = fds[0];
        } else {
            (void)close(fds[i]);
        }
    }
    return true;
}

void client_hello(struct client *client, int fd)
{
    struct store_control hello = {.version = STORE_CONTROL_VERSION,
                                  .type    = STORE_CONTROL_CLIENT_HELLO};

    memset(client, 0, sizeof(*client));
    client->fd = fd;
    client_send(fd, &hello);
    for (;;) {
        struct store_control message;
        void *ptr = NULL;
        int first = -1;

        ASSERT_TRUE(client_receive(fd, &message, &first));
        ASSERT_EQ(message.type, STORE_CONTROL_CLIENT_SETUP);
        if (message.part == STORE_PART_DONE) {
            break;
        }
        if (message.part == STORE_PART_TABLES) {
            ASSERT_TRUE(pl_fd_map(first, message.bytes, 1, &ptr) != PLASMON_OK);
            ASSERT_OK(pl_fd_map(first, message.bytes, 0, &ptr));
            client->table = ptr;
        } else if (message.part == STORE_PART_PINS) {
            ASSERT_OK(pl_fd_map(first, message.bytes, 1, &ptr));
            client->pins   = ptr;
            client->reader = message.reader;
        }
        (void)close(first);
    }
    ASSERT_NOT_NULL(client->table);
    ASSERT_NOT_NULL(client->pins);
}
