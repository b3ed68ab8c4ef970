/* The harness, seen from outside: each way in which a test can end is told, and none of them hides another. */
#include "test.h"

#include "base/clock.h"
#include "base/str.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

struct outcome {
    int exit_status;
    struct pl_str text; /* stdout and stderr */
};

/* Run the samples with these arguments, NULL last. */
static struct outcome run_samples(const char *first, ...)
{
    const char *arguments[8] = {SAMPLES_PATH, first};
    struct outcome outcome   = {0};
    va_list rest;
    char buffer[4096];
    ssize_t got;
    int ends[2];
    int status;
    pid_t pid;

    va_start(rest, first);
    for (int i = 2; arguments[i - 1] != NULL; i++) {
        ASSERT_TRUE(i < (int)PL_COUNT(arguments));
        arguments[i] = va_arg(rest, const char *);
    }
    va_end(rest);

    ASSERT_EQ(pipe(ends), 0);
    (void)fflush(stdout);
    pid = fork();
    ASSERT_TRUE(pid >= 0);
    if (pid == 0) {
        (void)dup2(ends[1], STDOUT_FILENO);
        (void)dup2(ends[1], STDERR_FILENO);
        (void)close(ends[0]);
        (void)close(ends[1]);
        (void)execv(SAMPLES_PATH, (char *const *)(uintptr_t)arguments);
        _exit(127);
    }
    (void)close(ends[1]);
    while ((got = read(ends[0], buffer, sizeof(buffer))) > 0) {
        pl_str_append(&outcome.text, "%.*s", (int)got, buffer);
    }
    (void)close(ends[0]);
    ASSERT_EQ(waitpid(pid, &status, 0), pid);
    ASSERT_TRUE(WIFEXITED(status));
    outcome.exit_status = WEXITSTATUS(status);
    return outcome;
}

static void expect(const char *only, int exit_status, const char *line, const char *reason)
{
    struct outcome outcome = run_samples("--only", only, "--seed", "77", NULL);
    const char *text       = pl_str_text(&outcome.text);

    ASSERT_CONTAINS(text, "TAP version 13\n1..1\n");
    ASSERT_CONTAINS(text, line);
    ASSERT_CONTAINS(text, reason);
    ASSERT_EQ(outcome.exit_status, exit_status);
    if (exit_status == 1) {
        ASSERT_CONTAINS(text, "samples.c:");
        ASSERT_CONTAINS(text, "--seed 77");
    }
    pl_str_finish(&outcome.text);
}

TEST(a_passing_test_is_ok)
{
    expect("passes", 0, "\nok 1 passes\n", "");
}

TEST(a_failed_assertion_tells_both_values)
{
    expect("fails", 1, "\nnot ok 1 fails\n", "1 + 1 is 2, 3 is 3");
}

TEST(a_failure_in_a_thread_is_the_tests_failure)
{
    expect("fails_in_a_thread", 1, "\nnot ok 1 fails_in_a_thread\n", "\"in a thread\"");
}

TEST(a_crash_is_told_by_its_signal)
{
    expect("crashes", 1, "\nnot ok 1 crashes\n", "signal 9");
}

TEST(leaving_by_exit_is_no_success)
{
    expect("leaves_by_exit", 1, "\nnot ok 1 leaves_by_exit\n", "called exit()");
}

TEST(a_test_past_its_time_is_ended)
{
    expect("hangs", 1, "\nnot ok 1 hangs\n", "timed out");
}

TEST(a_skipped_test_says_why_and_is_not_passed)
{
    expect("skips", 77, "\nok 1 skips # SKIP there is no unicorn here\n", "");
}

TEST(an_unexpected_warning_fails_the_test)
{
    expect("warns", 1, "\nnot ok 1 warns\n", "sample: something is odd");
}

TEST(expected_warnings_and_information_do_not_fail_it)
{
    expect("warns_as_expected", 0, "\nok 1 warns_as_expected\n",
           "# error sample: something is wrong");
    expect("informs", 0, "\nok 1 informs\n", "");
}

TEST(the_seed_comes_from_the_command_line)
{
    expect("prints_its_seed", 0, "\nok 1 prints_its_seed\n", "seed is 77\n");
}

TEST(the_seed_comes_from_the_environment)
{
    struct outcome outcome;

    ASSERT_EQ(setenv("PLASMON_TEST_SEED", "0x10", 1), 0);
    outcome = run_samples("--only", "prints_its_seed", NULL);
    ASSERT_CONTAINS(pl_str_text(&outcome.text), "seed is 16\n");
    pl_str_finish(&outcome.text);
}

TEST(one_failure_does_not_stop_the_others)
{
    struct outcome outcome = run_samples(NULL);
    const char *text       = pl_str_text(&outcome.text);

    ASSERT_EQ(outcome.exit_status, 1);
    ASSERT_CONTAINS(text, "\n1..12\n");
    ASSERT_CONTAINS(text, "\nok 1 passes\n");
    ASSERT_CONTAINS(text, "\nnot ok 3 crashes\n");
    ASSERT_CONTAINS(text, "\nnot ok 5 hangs\n");
    ASSERT_CONTAINS(text, "\nok 12 leaves_a_process\n");
    pl_str_finish(&outcome.text);
}

TEST(without_fork_the_first_failure_ends_the_run)
{
    struct outcome outcome = run_samples("--no-fork", NULL);

    ASSERT_EQ(outcome.exit_status, 1);
    ASSERT_CONTAINS(pl_str_text(&outcome.text), "\nok 1 passes\n");
    ASSERT_CONTAINS(pl_str_text(&outcome.text), "1 + 1 is 2");
    ASSERT_NULL(strstr(pl_str_text(&outcome.text), "crashes"));
    pl_str_finish(&outcome.text);
}

TEST(names_are_listed_and_wrong_usage_is_refused)
{
    struct outcome outcome = run_samples("--list", NULL);

    ASSERT_EQ(outcome.exit_status, 0);
    ASSERT_EQ(strncmp(pl_str_text(&outcome.text), "passes\nfails\n", 13), 0);
    pl_str_finish(&outcome.text);

    outcome = run_samples("--only", "no_such_test", NULL);
    ASSERT_EQ(outcome.exit_status, 2);
    pl_str_finish(&outcome.text);
    outcome = run_samples("--seed", "12x", NULL);
    ASSERT_EQ(outcome.exit_status, 2);
    pl_str_finish(&outcome.text);
    outcome = run_samples("--sed", NULL);
    ASSERT_EQ(outcome.exit_status, 2);
    pl_str_finish(&outcome.text);
}

/* Nobody else reaps it, so this process does, as its adoptive parent. */
TEST(a_process_that_a_test_left_is_ended)
{
    struct outcome outcome;
    const char *left;
    pid_t pid;
    int status;

    ASSERT_EQ(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
    outcome = run_samples("--only", "leaves_a_process", NULL);
    left    = strstr(pl_str_text(&outcome.text), "# left ");
    ASSERT_NOT_NULL(left);
    pid = (pid_t)strtol(left + strlen("# left "), NULL, 10);
    ASSERT_EQ(waitpid(pid, &status, 0), pid);
    ASSERT_TRUE(WIFSIGNALED(status));
    ASSERT_EQ(WTERMSIG(status), SIGKILL);
    pl_str_finish(&outcome.text);
}

TEST_MAIN()
