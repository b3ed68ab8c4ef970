#include "tests/harness/test.h"

#include "base/fault.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

/* Which of the next `count` passes fail, as bits. */
static unsigned passes(const char *name, unsigned count)
{
    unsigned failed = 0;

    for (unsigned i = 0; i < count; i++) {
        failed |= (unsigned)pl_fault_point(name) << i;
    }
    return failed;
}

TEST(the_nth_pass_fails_once)
{
    for (unsigned nth = 0; nth < 6; nth++) {
        pl_fault_arm("here", nth);
        ASSERT_EQ(passes("here", 8), 1u << nth);
        ASSERT_EQ(pl_fault_disarm(), 1);
    }
}

TEST(a_point_that_was_not_reached_did_not_fire)
{
    pl_fault_arm("here", 3);
    ASSERT_EQ(passes("here", 3), 0);
    ASSERT_EQ(passes("elsewhere", 8), 0);
    ASSERT_EQ(pl_fault_disarm(), 0);
    ASSERT_EQ(passes("here", 8), 0);
    ASSERT_EQ(pl_fault_disarm(), 0);
}

TEST(arming_again_starts_over)
{
    pl_fault_arm("here", 0);
    ASSERT_EQ(passes("here", 2), 1);
    pl_fault_arm("here", 1);
    ASSERT_EQ(passes("here", 4), 2);
    ASSERT_EQ(pl_fault_disarm(), 1);
}

TEST(the_environment_arms_several)
{
    ASSERT_EQ(setenv("PLASMON_FAULT", "store.spawn:2,copy,head.journal:0", 1), 0);
    ASSERT_EQ(setenv("PLASMON_BUG", "head.skip_war,worker.early", 1), 0);
    pl_fault_from_env("test");
    ASSERT_EQ(passes("store.spawn", 5), 1u << 2);
    ASSERT_EQ(passes("copy", 5), 1);
    ASSERT_EQ(passes("head.journal", 5), 1);
    ASSERT_EQ(pl_fault_disarm(), 1);
    ASSERT_EQ(pl_bug("head.skip_war"), 1);
    ASSERT_EQ(pl_bug("worker.early"), 1);
    ASSERT_EQ(pl_bug("head.skip"), 0);
}

TEST(an_empty_environment_arms_nothing)
{
    ASSERT_EQ(setenv("PLASMON_FAULT", ",,", 1), 0);
    ASSERT_EQ(unsetenv("PLASMON_BUG"), 0);
    pl_fault_from_env("test");
    ASSERT_EQ(passes("", 3), 0);
    ASSERT_EQ(pl_bug(""), 0);
}

/* How a child ends that passes "copy" three times, with `armed` in its environment. */
static int end_of_child(const char *armed)
{
    int status = 0;
    pid_t pid  = fork();

    if (pid == 0) {
        (void)setenv("PLASMON_FAULT", armed, 1);
        pl_fault_from_env("worker0.1");
        _exit((int)passes("copy", 3));
    }
    ASSERT_TRUE(pid > 0);
    ASSERT_EQ(waitpid(pid, &status, WUNTRACED), pid);
    if (WIFSTOPPED(status)) {
        ASSERT_EQ(kill(pid, SIGCONT), 0);
        ASSERT_EQ(waitpid(pid, &status, 0), pid);
        return 1000 + WEXITSTATUS(status);
    }
    return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

TEST(a_point_can_be_of_one_process_and_its_end)
{
    test_expect_log();
    ASSERT_EQ(end_of_child("copy:1=kill"), -SIGKILL);
    ASSERT_EQ(end_of_child("copy:2=stop"), 1000); /* continued, it does not fail */
    ASSERT_EQ(end_of_child("copy:3=kill"), 0);
    ASSERT_EQ(end_of_child("worker0.1/copy:1=kill"), -SIGKILL);
    ASSERT_EQ(end_of_child("worker0.2/copy:1=kill,worker1.1/copy=kill,store/copy"), 0);
    ASSERT_EQ(end_of_child("worker0.1/copy:2"), 1 << 2);
}

TEST(a_seeded_bug_is_there_only_while_armed)
{
    ASSERT_EQ(pl_bug("x"), 0);
    pl_bug_arm("x");
    ASSERT_EQ(pl_bug("x"), 1);
    ASSERT_EQ(pl_bug("x"), 1);
    ASSERT_EQ(pl_bug("y"), 0);
    pl_bug_arm(NULL);
    ASSERT_EQ(pl_bug("x"), 0);
}

#define THREADS 4
#define PASSES  20000

static _Atomic unsigned fired_count;

static void *pass_many(void *unused)
{
    (void)unused;
    for (int i = 0; i < PASSES; i++) {
        atomic_fetch_add(&fired_count, (unsigned)pl_fault_point("shared"));
    }
    return NULL;
}

TEST(of_many_threads_exactly_one_pass_fails)
{
    pthread_t threads[THREADS];

    pl_fault_arm("shared", THREADS * PASSES / 2);
    for (int i = 0; i < THREADS; i++) {
        ASSERT_EQ(pthread_create(&threads[i], NULL, pass_many, NULL), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        ASSERT_EQ(pthread_join(threads[i], NULL), 0);
    }
    ASSERT_EQ(atomic_load(&fired_count), 1);
    ASSERT_EQ(pl_fault_disarm(), 1);
}

TEST_MAIN()
