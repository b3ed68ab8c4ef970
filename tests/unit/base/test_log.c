#include "tests/harness/test.h"

#include "base/alloc.h"
#include "base/fault.h"
#include "base/log.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static struct {
    unsigned count;
    enum pl_log_level level;
    char module[32];
    char text[4096];
} last;

static void remember(void *user, enum pl_log_level level, const char *module,
                     const char *text)
{
    ASSERT_TRUE(user == &last);
    last.count++;
    last.level = level;
    (void)snprintf(last.module, sizeof(last.module), "%s", module);
    (void)snprintf(last.text, sizeof(last.text), "%s", text);
}

TEST(the_sink_gets_level_module_and_text)
{
    pl_log_set_sink(remember, &last);
    pl_warn("store", "spill of %d failed: %s", 7, "disk full");
    ASSERT_EQ(last.count, 1);
    ASSERT_EQ(last.level, PL_LOG_WARN);
    ASSERT_STR(last.module, "store");
    ASSERT_STR(last.text, "spill of 7 failed: disk full");
}

TEST(only_levels_that_are_enabled_arrive)
{
    pl_log_set_sink(remember, &last);
    pl_log_set_level(PL_LOG_WARN);
    pl_info("m", "no");
    pl_debug("m", "no");
    ASSERT_EQ(last.count, 0);
    pl_error("m", "yes");
    pl_warn("m", "yes");
    ASSERT_EQ(last.count, 2);
    pl_log_set_level(PL_LOG_TRACE);
    pl_trace("m", "yes");
    ASSERT_EQ(last.count, 3);
    ASSERT_EQ(last.level, PL_LOG_TRACE);
}

static int evaluated;

static int evaluate(void)
{
    return ++evaluated;
}

TEST(arguments_of_disabled_debug_lines_are_not_evaluated)
{
    pl_log_set_sink(remember, &last);
    pl_log_set_level(PL_LOG_INFO);
    pl_debug("m", "%d", evaluate());
    pl_trace("m", "%d", evaluate());
    ASSERT_EQ(evaluated, 0);
    pl_log_set_level(PL_LOG_DEBUG);
    pl_debug("m", "%d", evaluate());
    ASSERT_EQ(evaluated, 1);
}

TEST(without_a_sink_nothing_happens)
{
    pl_log_set_sink(NULL, NULL);
    ASSERT_TRUE(!pl_log_enabled(PL_LOG_ERROR));
    pl_error("m", "into the void");
}

TEST(long_lines_are_cut_visibly)
{
    pl_log_set_sink(remember, &last);
    pl_error("m", "%5000d", 1);
    ASSERT_TRUE(strlen(last.text) < 4000);
    ASSERT_STR(last.text + strlen(last.text) - 3, "...");
}

TEST(level_names_parse)
{
    static const char *const names[] = {"error", "warn", "info", "debug", "trace"};
    enum pl_log_level level;

    for (int i = 0; i < (int)PL_COUNT(names); i++) {
        ASSERT_OK(pl_log_level_parse(names[i], &level));
        ASSERT_EQ(level, i);
    }
    ASSERT_STATUS(pl_log_level_parse("loud", &level), PLASMON_EINVAL);
    ASSERT_STATUS(pl_log_level_parse("", &level), PLASMON_EINVAL);
}

/* What `fn` writes to stderr in a child, into text[512]; returns the child's wait status. */
static int run_and_read_stderr(void (*fn)(void), char text[512])
{
    size_t used = 0;
    ssize_t got;
    int ends[2];
    int status;
    pid_t pid;

    ASSERT_EQ(pipe(ends), 0);
    (void)fflush(stdout);
    pid = fork();
    ASSERT_TRUE(pid >= 0);
    if (pid == 0) {
        (void)dup2(ends[1], STDERR_FILENO);
        fn();
        _exit(0);
    }
    (void)close(ends[1]);
    while (used < 511 && (got = read(ends[0], text + used, 511 - used)) > 0) {
        used += (size_t)got;
    }
    text[used] = '\0';
    (void)close(ends[0]);
    ASSERT_EQ(waitpid(pid, &status, 0), pid);
    return status;
}

static void log_one_line(void)
{
    pl_log_set_sink(pl_log_stderr, NULL);
    pl_warn("store", "text %d", 5);
}

static void log_what_others_wrote(void)
{
    pl_log_set_sink(pl_log_stderr, NULL);
    pl_warn("m", "it said \"%s\"",
            "caf\xc3\xa9\n2026-11-22T00:00:00.000 error head: all is "
            "lost\x1b[2J\t\xc2\x9b\x7f~");
}

TEST(texts_of_others_begin_no_line_and_tell_a_terminal_nothing)
{
    char text[512];

    ASSERT_EQ(run_and_read_stderr(log_what_others_wrote, text), 0);
    ASSERT_CONTAINS(text, " warn m: it said \"caf\xc3\xa9\n    2026-11-22T00:00:00.000 "
                          "error head: all is lost?[2J\t??~\"\n");
}

static void log_a_long_one(void)
{
    static char line_ends[3000];

    memset(line_ends, '\n', sizeof(line_ends) - 1);
    pl_log_set_sink(pl_log_stderr, NULL);
    pl_warn("m", "%s", line_ends); /* they get longer, and the line does not */
}

TEST(a_text_of_line_ends_is_cut)
{
    char text[512];

    ASSERT_EQ(run_and_read_stderr(log_a_long_one, text), 0);
    ASSERT_CONTAINS(text, "warn m: \n    \n    \n");
}

TEST(daemon_lines_have_date_level_and_module)
{
    char text[512];
    unsigned n[7];
    int used = 0;

    ASSERT_EQ(run_and_read_stderr(log_one_line, text), 0);
    ASSERT_EQ(sscanf(text, "%4u-%2u-%2uT%2u:%2u:%2u.%3u%n", &n[0], &n[1], &n[2], &n[3],
                     &n[4], &n[5], &n[6], &used),
              7);
    ASSERT_EQ(used, 23);
    ASSERT_STR(text + used, " warn store: text 5\n");
}

static void break_an_invariant(void)
{
    pl_log_set_sink(NULL, NULL);
    PL_CHECK(1 + 1 == 3);
}

TEST(a_broken_invariant_is_said_and_aborts_even_without_a_sink)
{
    char text[512];
    int status = run_and_read_stderr(break_an_invariant, text);

    ASSERT_TRUE(WIFSIGNALED(status));
    ASSERT_EQ(WTERMSIG(status), SIGABRT);
    ASSERT_CONTAINS(text, "1 + 1 == 3");
    ASSERT_CONTAINS(text, "test_log.c");
}

static void go_on_without_memory(void)
{
    pl_log_set_sink(NULL, NULL);
    pl_fault_arm("alloc", 0);
    PL_CHECK(pl_alloc(77) != NULL);
}

TEST(who_cannot_go_on_without_memory_says_that_it_is_memory)
{
    char text[512];
    int status = run_and_read_stderr(go_on_without_memory, text);

    ASSERT_TRUE(WIFSIGNALED(status));
    ASSERT_EQ(WTERMSIG(status), SIGABRT);
    ASSERT_CONTAINS(text, "out of host memory: none for 77 bytes");
    ASSERT_CONTAINS(text, "ulimit -v");
    ASSERT_CONTAINS(text, "test_log.c");
}

TEST_MAIN()
