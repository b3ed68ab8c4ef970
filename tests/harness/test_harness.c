/*
 * The harness, seen from outside: each way in which a test can end is told, and none of them hides
 * another.
 */
#include "test.h"

#include "base/fd.h"
#include "base/str.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
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

TEST(the_first_failure_is_told_when_a_fork_of_the_test_fails_first)
{
    expect("fails_in_a_fork_and_then_itself", 1, "\nnot ok 1 fails_in_a_fork",
           "\"in a fork\"");
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

TEST(a_helper_that_needs_less_time_takes_none_away)
{
    expect("needs_less_time_than_it_has", 0, "\nok 1 needs_less_time_than_it_has\n", "");
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

/* Each ends as it does by itself, and what comes after it is told none the less. */
TEST(tests_that_share_a_process_do_until_one_ends_it)
{
    struct outcome outcome = run_samples("--shared", "--seed", "77", NULL);
    const char *text       = pl_str_text(&outcome.text);

    ASSERT_CONTAINS(text, "# first: 0 before\nok ");
    ASSERT_CONTAINS(text, "# second: 1 before\nok ");
    ASSERT_CONTAINS(text, "# alone: 0 before\nok ");
    ASSERT_CONTAINS(text, "\nok 1 passes\nnot ok 2 fails\n");
    ASSERT_CONTAINS(text, "1 + 1 is 2, 3 is 3");
    ASSERT_CONTAINS(text, "\nnot ok 3 crashes\n");
    ASSERT_CONTAINS(text, "signal 9");
    ASSERT_CONTAINS(text, "called exit()");
    ASSERT_CONTAINS(text, "timed out");
    ASSERT_CONTAINS(text, "\nok 6 skips # SKIP there is no unicorn here\n");
    ASSERT_CONTAINS(text, "sample: something is odd");
    ASSERT_CONTAINS(text, "\nok 8 warns_as_expected\n");
    ASSERT_CONTAINS(text, "\nok 9 informs\n");
    ASSERT_EQ(outcome.exit_status, 1);
    pl_str_finish(&outcome.text);
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
    ASSERT_CONTAINS(text, "\n1..21\n");
    ASSERT_CONTAINS(text, "\nok 1 passes\n");
    ASSERT_CONTAINS(text, "\nnot ok 3 crashes\n");
    ASSERT_CONTAINS(text, "\nnot ok 5 hangs\n");
    ASSERT_CONTAINS(text, "\nok 13 leaves_a_process\n");
    ASSERT_CONTAINS(text, "\nok 14 leaves_a_daemon\n");
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

static pid_t left_behind(const char *text)
{
    const char *left = strstr(text, "# left ");

    ASSERT_NOT_NULL(left);
    return (pid_t)strtol(left + strlen("# left "), NULL, 10);
}

static void expect_ended(const char *sample, int exit_status)
{
    struct outcome outcome = run_samples("--only", sample, NULL);

    ASSERT_EQ(outcome.exit_status, exit_status);
    ASSERT_EQ(kill(left_behind(pl_str_text(&outcome.text)), 0), -1);
    ASSERT_EQ(errno, ESRCH);
    pl_str_finish(&outcome.text);
}

TEST(a_process_that_a_test_left_is_ended)
{
    expect_ended("leaves_a_process", 0);
}

TEST(a_daemon_that_a_test_left_is_ended_whether_it_passed_failed_or_hung)
{
    expect_ended("leaves_a_daemon", 0);
    expect_ended("leaves_a_daemon_and_fails", 1);
    expect_ended("leaves_a_daemon_and_hangs", 1);
}

/* Start it with its output in a pipe; reading goes on until it has said which daemon it left. */
static pid_t start_and_read_left(const char *const *argv, pid_t *out_left)
{
    struct pl_str text = {0};
    char buffer[512];
    int ends[2];
    pid_t pid;

    ASSERT_EQ(pipe(ends), 0);
    (void)fflush(stdout);
    pid = fork();
    ASSERT_TRUE(pid >= 0);
    if (pid == 0) {
        (void)dup2(ends[1], STDOUT_FILENO);
        (void)close(ends[0]);
        (void)execv(argv[0], (char *const *)(uintptr_t)argv);
        _exit(127);
    }
    (void)close(ends[1]);
    while (strstr(pl_str_text(&text), "# left ") == NULL ||
           strchr(strstr(pl_str_text(&text), "# left "), '\n') == NULL) {
        ssize_t got = read(ends[0], buffer, sizeof(buffer));

        ASSERT_TRUE(got > 0);
        pl_str_append(&text, "%.*s", (int)got, buffer);
    }
    (void)close(ends[0]);
    *out_left = left_behind(pl_str_text(&text));
    pl_str_finish(&text);
    return pid;
}

static void expect_ended_with(pid_t runner, pid_t left)
{
    struct pollfd poller = {.fd = pl_pidfd_open(left), .events = POLLIN};

    ASSERT_EQ(kill(runner, SIGKILL), 0);
    ASSERT_EQ(waitpid(runner, NULL, 0), runner);
    if (poller.fd >= 0) { /* it is not gone already */
        ASSERT_EQ(poll(&poller, 1, 20000), 1);
        (void)close(poller.fd);
    }
}

TEST(a_daemon_is_ended_when_its_runner_is_killed)
{
    const char *const argv[] = {SAMPLES_PATH, "--only", "leaves_a_daemon_and_waits", NULL};
    pid_t left, runner;

    ASSERT_EQ(setenv("SAMPLES_WAIT", "1", 1), 0);
    runner = start_and_read_left(argv, &left);
    expect_ended_with(runner, left);
}

TEST(a_daemon_of_a_script_is_ended_with_it_and_when_it_is_killed)
{
    static const char leave[] = "setsid sleep 1000 & echo \"# left $!\"";
    static const char wait[]  = "setsid sleep 1000 & echo \"# left $!\"; sleep 1000";
    const char *const ends[]  = {REAPED_PATH, "/bin/sh", "-c", leave, NULL};
    const char *const waits[] = {REAPED_PATH, "/bin/sh", "-c", wait, NULL};
    struct pollfd poller      = {.events = POLLIN};
    pid_t left;
    pid_t runner = start_and_read_left(ends, &left);
    int status;

    poller.fd = pl_pidfd_open(left);
    ASSERT_EQ(waitpid(runner, &status, 0), runner);
    ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    if (poller.fd >= 0) {
        ASSERT_EQ(poll(&poller, 1, 0), 1); /* before the runner's end */
        (void)close(poller.fd);
    }

    runner = start_and_read_left(waits, &left);
    expect_ended_with(runner, left);
}

TEST_MAIN()
