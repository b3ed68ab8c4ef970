/* Daemons started from inside somebody's program leave no trace in it. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "client/spawn.h"
#include "tests/harness/test.h"

static volatile sig_atomic_t child_signals;

static void count_child(int number)
{
    (void)number;
    child_signals++;
}

static void wait_end(int pidfd)
{
    struct pollfd poller = {.fd = pidfd, .events = POLLIN};

    ASSERT_EQ(poll(&poller, 1, 10000), 1);
}

/* Run a shell line with one pipe as descriptor 3; what it wrote. */
static void run_shell(const char *line, char *out, size_t out_bytes)
{
    char *argv[]      = {(char *)"sh", (char *)"-c", (char *)line, NULL};
    struct pl_err err = {0};
    int pair[2], pidfd;
    size_t length = 0;

    ASSERT_EQ(pipe2(pair, O_CLOEXEC), 0);
    ASSERT_OK(spawn_daemon("/bin/sh", argv, &pair[1], 1, -1, &pidfd, &err));
    ASSERT_EQ(close(pair[1]), 0);
    for (;;) {
        ssize_t got = read(pair[0], out + length, out_bytes - 1 - length);

        if (got <= 0) {
            break; /* end of file: nobody else has our end of the pipe */
        }
        length += (size_t)got;
    }
    out[length] = '\0';
    wait_end(pidfd);
    ASSERT_EQ(close(pair[0]), 0);
    ASSERT_EQ(close(pidfd), 0);
}

TEST(descriptors_arrive_at_their_numbers_and_no_others)
{
    /* not close-on-exec, as careless programs have them */
    int leak = open("/dev/null", O_RDONLY);
    char out[512];

    ASSERT_TRUE(leak >= 0);
    run_shell("echo hello >&3; for fd in 0 1 2 3 4 5 6 7 8 9; do [ -e /proc/$$/fd/$fd ] && "
              "printf "
              "\"$fd \" >&3; done",
              out, sizeof(out));
    ASSERT_CONTAINS(out, "hello");
    ASSERT_STR(strchr(out, '\n') + 1, "0 1 2 3 ");
    ASSERT_EQ(close(leak), 0);
}

TEST(the_program_sees_no_child)
{
    struct sigaction action = {.sa_handler = count_child};
    char out[64];

    ASSERT_EQ(sigaction(SIGCHLD, &action, NULL), 0);
    run_shell("echo x >&3", out, sizeof(out));
    ASSERT_EQ(child_signals, 0);
    ASSERT_EQ(waitpid(-1, NULL, WNOHANG | __WALL), -1);
    ASSERT_EQ(errno, ECHILD);
}

TEST(a_daemon_starts_with_clean_signals_in_its_own_session)
{
    sigset_t blocked;
    char out[512], sid[32];

    ASSERT_TRUE(signal(SIGTERM, SIG_IGN) != SIG_ERR);
    (void)sigemptyset(&blocked);
    (void)sigaddset(&blocked, SIGUSR1);
    ASSERT_EQ(sigprocmask(SIG_BLOCK, &blocked, NULL), 0);
    /* Builtins only: the shell blocks signals while it starts a program, and would be seen doing so. */
    run_shell(
        "while read -r line; do case $line in SigBlk*|SigIgn*) echo \"$line\" >&3;; esac; "
        "done < /proc/$$/status; read -r stat < /proc/$$/stat; set -- $stat; echo $6 >&3",
        out, sizeof(out));
    ASSERT_CONTAINS(out, "SigBlk:\t0000000000000000");
    ASSERT_CONTAINS(out, "SigIgn:\t0000000001000000"); /* SIGXFSZ, on purpose */
    (void)snprintf(sid, sizeof(sid), "\n%d\n", (int)getsid(0));
    ASSERT_TRUE(strstr(out, sid) == NULL);
    ASSERT_EQ(sigprocmask(SIG_BLOCK, NULL, &blocked), 0);
    ASSERT_EQ(sigismember(&blocked, SIGUSR1), 1); /* ours is as it was */
}

TEST(a_missing_program_is_named)
{
    char *argv[]      = {(char *)"nothing", NULL};
    struct pl_err err = {0};
    int pidfd         = -1;

    ASSERT_STATUS(spawn_daemon("/nonexistent/program", argv, NULL, 0, -1, &pidfd, &err),
                  PLASMON_ENOENT);
    ASSERT_CONTAINS(err.text, "/nonexistent/program");
    ASSERT_EQ(pidfd, -1);
}

TEST(a_search_says_where_it_looked)
{
    struct pl_err err = {0};
    char path[4096];

    ASSERT_STATUS(spawn_find("plasmon-nothing", "/nonexistent", path, sizeof(path), &err),
                  PLASMON_ENOENT);
    ASSERT_CONTAINS(err.text, "/nonexistent/plasmon-nothing");
    ASSERT_EQ(setenv("PLASMON_BIN_DIR", "/bin", 1), 0);
    ASSERT_OK(spawn_find("sh", NULL, path, sizeof(path), &err));
    ASSERT_STR(path, "/bin/sh");
}

TEST_MAIN()
