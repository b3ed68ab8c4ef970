/* Not a test: tests that each end in one way, for test_harness.c to look at from outside. */
#include "alone.h"
#include "test.h"

#include "base/log.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

_Noreturn static void hang(void)
{
    for (;;) {
        (void)pause();
    }
}

TEST(passes)
{
    ASSERT_TRUE(1 + 1 == 2);
}

TEST(fails)
{
    ASSERT_EQ(1 + 1, 3);
}

TEST(crashes)
{
    (void)raise(SIGKILL); /* one that no sanitizer catches */
}

TEST(leaves_by_exit)
{
    exit(0);
}

TEST(hangs)
{
    test_set_timeout(0);
    hang();
}

TEST(skips)
{
    test_skip("there is no %s here", "unicorn");
}

TEST(warns)
{
    pl_warn("sample", "something is odd");
}

TEST(warns_as_expected)
{
    test_expect_log();
    pl_warn("sample", "something is odd");
    pl_error("sample", "something is wrong");
}

TEST(informs)
{
    pl_info("sample", "all is well");
}

TEST(prints_its_seed)
{
    printf("# seed is %llu\n", (unsigned long long)test_seed());
}

static void *fail_in_thread(void *unused)
{
    (void)unused;
    ASSERT_STR("in a thread", "elsewhere");
    return NULL;
}

TEST(fails_in_a_thread)
{
    pthread_t thread;

    ASSERT_EQ(pthread_create(&thread, NULL, fail_in_thread, NULL), 0);
    (void)pthread_join(thread, NULL);
}

TEST(fails_in_a_fork_and_then_itself)
{
    pid_t pid = fork();
    int status;

    if (pid == 0) {
        ASSERT_STR("in a fork", "elsewhere");
    }
    ASSERT_EQ(waitpid(pid, &status, 0), pid);
    ASSERT_EQ(status, 0);
}

/* Leaves a process behind, and tells its id. */
TEST(leaves_a_process)
{
    pid_t pid = fork();

    if (pid == 0) {
        hang();
    }
    printf("# left %d\n", pid);
}

/* A daemon: in no group, session or tree of the test's. Its id is told. */
static void leave_a_daemon(void)
{
    int ends[2];
    pid_t daemon_pid;

    ASSERT_EQ(pipe(ends), 0);
    if (fork() == 0) {
        (void)setsid();
        daemon_pid = fork();
        if (daemon_pid == 0) {
            hang();
        }
        _exit(write(ends[1], &daemon_pid, sizeof(daemon_pid)) != sizeof(daemon_pid));
    }
    ASSERT_EQ(read(ends[0], &daemon_pid, sizeof(daemon_pid)), sizeof(daemon_pid));
    printf("# left %d\n", daemon_pid);
    (void)fflush(stdout);
}

TEST(leaves_a_daemon)
{
    leave_a_daemon();
}

TEST(leaves_a_daemon_and_fails)
{
    leave_a_daemon();
    ASSERT_TRUE(false);
}

TEST(leaves_a_daemon_and_hangs)
{
    leave_a_daemon();
    test_set_timeout(0);
    hang();
}

TEST(leaves_a_daemon_and_waits)
{
    if (getenv("SAMPLES_WAIT") == NULL) {
        test_skip("nobody kills its runner");
    }
    leave_a_daemon();
    hang();
}

TEST(needs_less_time_than_it_has)
{
    test_need_timeout(1000);
    test_need_timeout(0);
    (void)poll(NULL, 0, 200); /* whose time is over is ended meanwhile */
}

static int tests_before;

TEST(counts_first)
{
    printf("# first: %d before\n", tests_before++);
}

TEST(counts_second)
{
    printf("# second: %d before\n", tests_before++);
}

TEST_ALONE(counts_alone)
{
    printf("# alone: %d before\n", tests_before++);
}

TEST_MAIN()
