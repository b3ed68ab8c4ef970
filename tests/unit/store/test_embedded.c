/*
 * The embedded default: however the client, the head or the store ends, everything is gone within
 * two seconds and nothing has a name.
 *
 * This process is the subreaper of all it starts, so "everything is gone" is waitpid() saying that
 * there is no child left.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "cluster.h"
#include "tests/harness/test.h"

static struct cluster cluster;
static pid_t client_pid;
static int go[2]; /* the client acts when it can read a byte here */

/* In the client's process: start the store as the library does. Returns our end of the control socket. */
static int store_launch(int log)
{
    int pair[2];
    int pidfd = pl_pidfd_open(getpid());
    char client_fd[16];
    char client_pidfd[16];
    pid_t store;

    PL_CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0);
    (void)snprintf(client_fd, sizeof(client_fd), "%d", pair[1]);
    (void)snprintf(client_pidfd, sizeof(client_pidfd), "%d", pidfd);
    store = fork();
    PL_CHECK(store >= 0);
    if (store == 0) {
        (void)dup2(log, 2);
        (void)fcntl(pair[1], F_SETFD, 0);
        (void)fcntl(pidfd, F_SETFD, 0);
        (void)execl(BARE_STORE_PATH, "plasmon-store", "--embedded", "--client-fd",
                    client_fd, "--client-pidfd", client_pidfd, "--cpu-devices", "2",
                    "--gpus", "none", "--device-memory", "64M", (char *)NULL);
        _exit(127);
    }
    (void)close(pair[1]);
    (void)close(pidfd);
    return pair[0];
}

/* What a client does: gets its stream to the head, says hello, then `act`. */
static void client_run(int log, void (*act)(int control))
{
    struct store_control message;
    struct client client;
    char text[5] = "";
    int control  = store_launch(log);
    int head     = -1;

    PL_CHECK(client_receive(control, &message, &head));
    PL_CHECK(message.type == STORE_CONTROL_HEAD_FD);
    (void)fcntl(head, F_SETFL, 0);
    PL_CHECK(read(head, text, 4) == 4 && strcmp(text, "head") == 0);
    client_hello(&client, control);
    PL_CHECK(client.reader == 2);
    PL_CHECK(read(go[0], text, 1) == 1);
    act(control);
}

static void cluster_launch(void (*act)(int control))
{
    int ends[2];

    cluster_folder(&cluster);
    ASSERT_EQ(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
    ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
    ASSERT_EQ(pipe2(go, O_CLOEXEC), 0);
    client_pid = fork();
    ASSERT_TRUE(client_pid >= 0);
    if (client_pid == 0) {
        client_run(ends[1], act);
        _exit(0);
    }
    (void)close(ends[1]);
    cluster.log = ends[0];
    (void)cluster_wait(&cluster, "device 0 is ready");
    (void)cluster_wait(&cluster, "device 1 is ready");
    (void)cluster_wait(&cluster, "fake 0: reader 2 came");
    ASSERT_EQ(write(go[1], "g", 1), 1);
}

static void expect_nothing_left(uint64_t begin_ns)
{
    uint64_t patience_ns = test_patience_ms(2000) * 1000000ull;
    char rest[4096];

    while (read(cluster.log, rest, sizeof(rest)) > 0) { /* until nobody can write to it */
    }
    for (;;) {
        int status;
        /* ends: nobody holds the log's pipe any more */
        pid_t pid = waitpid(-1, &status, 0);

        if (pid < 0) {
            ASSERT_EQ(errno, ECHILD);
            break;
        }
    }
    ASSERT_TRUE(pl_now_ns() - begin_ns < patience_ns);
    cluster_folder_remove(&cluster); /* fails if anything was put there */
}

static pid_t store_pid(void)
{
    char path[64];
    char text[256];
    int parent;
    int fd;
    ssize_t length;
    const char *found;

    (void)snprintf(path, sizeof(path), "/proc/%d/stat",
                   (int)cluster_worker_pid(&cluster, 0, 1));
    fd = open(path, O_RDONLY);
    ASSERT_TRUE(fd >= 0);
    length = read(fd, text, sizeof(text) - 1);
    ASSERT_TRUE(length > 0);
    text[length] = '\0';
    (void)close(fd);
    found = strrchr(text, ')');
    ASSERT_NOT_NULL(found);
    ASSERT_EQ(sscanf(found, ") %*c %d", &parent), 1);
    return parent;
}

static void wait_for_ever(int control)
{
    (void)control;
    for (;;) {
        (void)pause();
    }
}

static void ask_again_then_wait(int control)
{
    struct store_control ask = {.version = STORE_CONTROL_VERSION,
                                .type    = STORE_CONTROL_NEW_HEAD_FD};
    struct store_control message;
    char text[5] = "";
    int head     = -1;

    client_send(control, &ask);
    PL_CHECK(client_receive(control, &message, &head));
    PL_CHECK(message.type == STORE_CONTROL_HEAD_FD);
    (void)fcntl(head, F_SETFL, 0);
    PL_CHECK(read(head, text, 4) == 4 && strcmp(text, "head") == 0);
    PL_CHECK(raise(SIGKILL) == 0);
}

/* Closes when it is told to, by SIGUSR1, which is blocked in the test and so from its first moment here. */
static void close_then_wait(int control)
{
    sigset_t told;
    int number;

    sigemptyset(&told);
    sigaddset(&told, SIGUSR1);
    PL_CHECK(sigwait(&told, &number) == 0);
    (void)close(control);
    wait_for_ever(control);
}

static void return_at_once(int control)
{
    (void)control;
}

TEST(a_killed_client_takes_everything_with_it)
{
    uint64_t begin;

    cluster_launch(wait_for_ever);
    begin = pl_now_ns();
    ASSERT_EQ(kill(client_pid, SIGKILL), 0);
    expect_nothing_left(begin);
}

TEST(a_client_that_exits_takes_everything_with_it)
{
    cluster_launch(return_at_once);
    expect_nothing_left(pl_now_ns());
}

TEST(a_client_that_hangs_up_but_lives_on_ends_the_cluster)
{
    sigset_t told;
    uint64_t begin;
    pid_t store;

    sigemptyset(&told);
    sigaddset(&told, SIGUSR1);
    ASSERT_EQ(sigprocmask(SIG_BLOCK, &told, NULL), 0);
    cluster_launch(close_then_wait);
    store = store_pid(); /* while there is a worker to tell it */
    begin = pl_now_ns();
    ASSERT_EQ(kill(client_pid, SIGUSR1), 0);
    (void)cluster_wait(&cluster, "ending: the client closed its socket");
    ASSERT_EQ(waitpid(store, NULL, WNOHANG), -1); /* its child, not ours yet */
    ASSERT_EQ(kill(client_pid, SIGKILL), 0);
    expect_nothing_left(begin);
}

TEST(a_client_gets_another_connection_when_it_asks)
{
    cluster_launch(ask_again_then_wait);
    expect_nothing_left(pl_now_ns());
}

TEST(head_and_workers_end_when_the_store_is_killed)
{
    uint64_t begin;

    cluster_launch(wait_for_ever);
    begin = pl_now_ns();
    ASSERT_EQ(kill(store_pid(), SIGKILL), 0);
    ASSERT_EQ(kill(client_pid, SIGKILL), 0);
    expect_nothing_left(begin);
}

TEST(the_cluster_ends_when_its_head_is_gone)
{
    char part[64];
    uint64_t begin;
    pid_t store;
    char path[64];
    char children[512] = "";
    int fd;
    char *at;

    cluster_launch(wait_for_ever);
    store = store_pid();
    (void)snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)store, (int)store);
    fd = open(path, O_RDONLY);
    if (fd < 0) {
        ASSERT_EQ(kill(client_pid, SIGKILL), 0);
        test_skip("no /proc/PID/task/TID/children");
    }
    (void)!read(fd, children, sizeof(children) - 1);
    (void)close(fd);
    begin = pl_now_ns();
    ASSERT_EQ(kill((pid_t)strtol(children, &at, 10), SIGKILL), 0); /* the head came first */
    (void)snprintf(part, sizeof(part), "ending: the head");
    (void)cluster_wait(&cluster, part);
    ASSERT_EQ(kill(client_pid, SIGKILL), 0);
    expect_nothing_left(begin);
}

TEST(a_killed_worker_is_replaced_with_a_connection_of_its_own)
{
    uint64_t begin;

    cluster_launch(wait_for_ever);
    ASSERT_EQ(kill(cluster_worker_pid(&cluster, 1, 1), SIGKILL), 0);
    (void)cluster_wait(&cluster, "device 1 is ready: incarnation 2");
    begin = pl_now_ns();
    ASSERT_EQ(kill(client_pid, SIGKILL), 0);
    expect_nothing_left(begin);
}

TEST(a_stubborn_worker_does_not_survive_its_client)
{
    uint64_t begin;

    ASSERT_EQ(setenv("FAKE_WORKER", "stubborn", 1), 0);
    cluster_launch(wait_for_ever);
    begin = pl_now_ns();
    ASSERT_EQ(kill(client_pid, SIGKILL), 0);
    expect_nothing_left(begin);
}

TEST_MAIN()
