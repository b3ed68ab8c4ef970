#include "tests/harness/test.h"

#include "base/fault.h"
#include "base/fd.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* A child that lives until it is killed, or this process dies. */
static pid_t start_sleeper(void)
{
    pid_t pid;

    (void)fflush(stdout);
    pid = fork();
    ASSERT_TRUE(pid >= 0);
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;) {
            (void)pause();
        }
    }
    return pid;
}

static int gone(pid_t pid)
{
    return kill(pid, 0) != 0 && errno == ESRCH;
}

TEST(a_kernel_without_them_is_refused_with_what_it_takes)
{
    struct pl_err err = {0};

    ASSERT_OK(pl_pidfd_check(&err));
    pl_fault_arm("pidfd.open", 0);
    ASSERT_STATUS(pl_pidfd_check(&err), PLASMON_ENOTSUP);
    ASSERT_TRUE(pl_fault_disarm());
    ASSERT_CONTAINS(err.text, "pidfd_open");
    ASSERT_CONTAINS(err.text, "Linux 5.9");
}

TEST(a_child_is_killed_and_reaped)
{
    pid_t pid = start_sleeper();
    int pidfd = pl_pidfd_open(pid);

    ASSERT_TRUE(pidfd >= 0);
    ASSERT_OK(pl_pidfd_kill_wait(pidfd, 10000));
    ASSERT_TRUE(gone(pid));
    ASSERT_EQ(waitpid(pid, NULL, 0), -1);
    ASSERT_EQ(errno, ECHILD);
    ASSERT_OK(pl_pidfd_kill_wait(pidfd, 10000)); /* again: it has ended all the same */
    pl_fd_close(&pidfd);
}

TEST(a_child_that_had_ended_is_reaped)
{
    int pidfd;
    pid_t pid;

    (void)fflush(stdout);
    pid = fork();
    ASSERT_TRUE(pid >= 0);
    if (pid == 0) {
        _exit(3);
    }
    pidfd = pl_pidfd_open(pid);
    ASSERT_TRUE(pidfd >= 0);
    ASSERT_OK(pl_pidfd_kill_wait(pidfd, 10000));
    ASSERT_TRUE(gone(pid));
    pl_fd_close(&pidfd);
}

TEST(a_stopped_child_is_killed)
{
    pid_t pid = start_sleeper();
    int pidfd = pl_pidfd_open(pid);
    int status;

    ASSERT_EQ(kill(pid, SIGSTOP), 0);
    ASSERT_EQ(waitpid(pid, &status, WUNTRACED), pid);
    ASSERT_TRUE(WIFSTOPPED(status));
    ASSERT_OK(pl_pidfd_kill_wait(pidfd, 10000));
    ASSERT_TRUE(gone(pid));
    pl_fd_close(&pidfd);
}

/* The sleeper is a child of a helper process, which tells its pid and then never reaps it. */
TEST(a_process_that_is_not_our_child_is_killed_and_waited_for)
{
    pid_t helper, other;
    int ends[2];
    int pidfd;
    char state;
    char path[64];
    FILE *stat;

    ASSERT_EQ(pipe(ends), 0);
    (void)fflush(stdout);
    helper = fork();
    ASSERT_TRUE(helper >= 0);
    if (helper == 0) {
        pid_t pid = start_sleeper();

        if (write(ends[1], &pid, sizeof(pid)) != sizeof(pid)) {
            _exit(1);
        }
        for (;;) {
            (void)pause();
        }
    }
    ASSERT_EQ(read(ends[0], &other, sizeof(other)), sizeof(other));
    pidfd = pl_pidfd_open(other);
    ASSERT_TRUE(pidfd >= 0);
    ASSERT_OK(pl_pidfd_kill_wait(pidfd, 10000));

    /* It runs no more: what is left is its entry, which only its parent can remove. */
    (void)snprintf(path, sizeof(path), "/proc/%d/stat", other);
    stat = fopen(path, "r");
    ASSERT_NOT_NULL(stat);
    ASSERT_EQ(fscanf(stat, "%*d (%*[^)]) %c", &state), 1);
    ASSERT_EQ(state, 'Z');
    (void)fclose(stat);

    pl_fd_close(&pidfd);
    ASSERT_EQ(kill(helper, SIGKILL), 0);
    ASSERT_EQ(waitpid(helper, NULL, 0), helper);
    (void)close(ends[0]);
    (void)close(ends[1]);
}

TEST(what_is_no_process_cannot_be_opened_or_killed)
{
    int ends[2];

    ASSERT_EQ(pl_pidfd_open(-5), -1);
    ASSERT_EQ(pipe(ends), 0);
    ASSERT_STATUS(pl_pidfd_kill_wait(ends[0], 10),
                  PLASMON_EINVAL); /* a descriptor, but of something else */
    ASSERT_STATUS(pl_pidfd_kill_wait(-1, 10), PLASMON_EINVAL);
    (void)close(ends[0]);
    (void)close(ends[1]);
}

TEST_MAIN()
