/*
 * The runner: a list of tests, and a forked process for each; or, if told to share, for as many as
 * it takes (alone.h).
 *
 * The runner has one thread and touches nothing of the code under test, so fork is safe. It waits
 * for two things: the child's pidfd (it has ended) and an eventfd (the test moved its own
 * deadline). A child past its deadline is killed with its process group; the same happens after a
 * test that ended on its own. What else the test started, daemons that are in no group of its own,
 * the reaper ends (reaper.h), also if the runner itself is killed.
 *
 * Exit status: 0 all passed (some may be skipped), 1 some failed, 2 usage, 77 all were skipped.
 */
#include "test_int.h"

#include "alone.h"
#include "reaper.h"

#include "base/clock.h"
#include "base/fd.h"
#include "base/vec.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define EXIT_USAGE       2
#define END_NS           UINT64_C(30000000000)
#define EXIT_ALL_SKIPPED 77 /* what CTest's SKIP_RETURN_CODE says; GNU's convention */

struct test {
    const char *name;
    const char *file;
    int line;
    test_fn fn;
};

struct runner {
    const char *only; /* NULL: all */
    int list;
    int no_fork;
    int shared;
    uint64_t seed;
    struct test_report *report; /* shared with the child */
    int wake_fd;
    unsigned passed, failed, skipped;

    /* The process that tests share; 0: there is none. */
    pid_t child;
    int child_pidfd;
    int next_fd; /* a pipe: where to find its next test; closed: there is none */
};

/* Filled by constructors before main(), so it may hold no more than a zero-initialised object can. */
static struct pl_vec tests;
static struct pl_vec alone; /* const char * */

void test_register(const char *name, const char *file, int line, test_fn fn)
{
    struct test *test;

    if (tests.item_bytes == 0) {
        tests = PL_VEC_INIT(struct test);
    }
    test = pl_vec_push(&tests);
    if (test == NULL) {
        abort();
    }
    *test = (struct test){.name = name, .file = file, .line = line, .fn = fn};
}

void test_set_alone(const char *name)
{
    const char **place;

    if (alone.item_bytes == 0) {
        alone = PL_VEC_INIT(const char *);
    }
    place = pl_vec_push(&alone);
    if (place == NULL) {
        abort();
    }
    *place = name;
}

static int is_alone(const struct test *test)
{
    for (size_t i = 0; i < alone.count; i++) {
        if (strcmp(*(const char **)pl_vec_at(&alone, i), test->name) == 0) {
            return 1;
        }
    }
    return 0;
}

static int usage(const char *program)
{
    fprintf(stderr,
            "usage: %s [--list] [--only NAME] [--no-fork | --shared] [--seed NUMBER]\n",
            program);
    return EXIT_USAGE;
}

static int parse_seed(const char *text, uint64_t *out_seed)
{
    char *end;

    errno     = 0;
    *out_seed = strtoull(text, &end, 0);
    return errno == 0 && end != text && *end == '\0';
}

static int parse(struct runner *runner, int argc, char **argv)
{
    const char *seed = getenv("PLASMON_TEST_SEED");

    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--list") == 0) {
            runner->list = 1;
        } else if (strcmp(argv[i], "--no-fork") == 0) {
            runner->no_fork = 1;
        } else if (strcmp(argv[i], "--shared") == 0) {
            runner->shared = 1;
        } else if (strcmp(argv[i], "--only") == 0 && i + 1 < argc) {
            runner->only = argv[++i];
        } else if (strcmp(argv[i], "--seed") == 0 && i + 1 < argc) {
            seed = argv[++i];
        } else {
            return 0;
        }
    }
    if (seed == NULL) {
        struct timespec now;

        (void)clock_gettime(CLOCK_REALTIME, &now); /* cannot fail */
        runner->seed = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
        return 1;
    }
    return parse_seed(seed, &runner->seed);
}

static int runner_init(struct runner *runner)
{
    runner->report = mmap(NULL, sizeof(*runner->report), PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (runner->report == MAP_FAILED) {
        return 0;
    }
    runner->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return runner->wake_fd >= 0;
}

static void report_reset(struct test_report *report)
{
    atomic_store(&report->result, TEST_RUNNING);
    atomic_store(&report->claimed, 0);
    atomic_store(&report->deadline_ns, UINT64_MAX);
    report->text[0] = '\0';
}

/* Milliseconds until the deadline, as poll() wants them. */
static int poll_timeout(const struct test_report *report)
{
    uint64_t deadline_ns = atomic_load(&report->deadline_ns);
    uint64_t now_ns      = pl_now_ns();

    if (deadline_ns <= now_ns) {
        return 0;
    }
    return (int)pl_min_u64((deadline_ns - now_ns + 999999u) / 1000000u, 3600000u);
}

enum wait_end { TIME_OVER, CHILD_ENDED, TEST_ENDED };

/* TEST_ENDED: it has passed in a process that goes on; only if `shared`. */
static enum wait_end wait_for_end(const struct runner *runner, int pidfd, int shared)
{
    for (;;) {
        struct pollfd waiting[2] = {
            {.fd = pidfd, .events = POLLIN},
            {.fd = runner->wake_fd, .events = POLLIN},
        };
        uint64_t wakes;
        int ready = poll(waiting, PL_COUNT(waiting), poll_timeout(runner->report));

        if (ready < 0 && errno != EINTR) {
            return TIME_OVER;
        }
        if (waiting[0].revents != 0) {
            return CHILD_ENDED;
        }
        if (read(runner->wake_fd, &wakes, sizeof(wakes)) < 0) {
            if (pl_now_ns() >= atomic_load(&runner->report->deadline_ns)) {
                return TIME_OVER;
            }
        } else if (shared && atomic_load(&runner->report->result) == TEST_PASSED) {
            return TEST_ENDED;
        }
    }
}

/* Judge a process that has ended; fills in the text for what only the outside can see. */
static enum test_result judge(struct test_report *report, int timed_out, int wait_status)
{
    enum test_result result = (enum test_result)atomic_load(&report->result);

    if (timed_out) {
        (void)snprintf(report->text, sizeof(report->text), "timed out");
        return TEST_FAILED;
    }
    if (result == TEST_FAILED) {
        return TEST_FAILED;
    }
    if (WIFSIGNALED(wait_status)) {
        (void)snprintf(report->text, sizeof(report->text), "killed by signal %d (%s)",
                       WTERMSIG(wait_status), strsignal(WTERMSIG(wait_status)));
        return TEST_FAILED;
    }
    if (WEXITSTATUS(wait_status) != 0) {
        (void)snprintf(report->text, sizeof(report->text), "exit status %d%s",
                       WEXITSTATUS(wait_status),
                       result == TEST_PASSED
                           ? " after the test (a leak or another sanitizer report?)"
                           : "");
        return TEST_FAILED;
    }
    if (result == TEST_RUNNING) {
        (void)snprintf(report->text, sizeof(report->text), "the test called exit()");
        return TEST_FAILED;
    }
    return result;
}

/* next_fd: from where the next test comes; -1: there is one only. */
_Noreturn static void child_main(const struct runner *runner, const struct test *test,
                                 int next_fd)
{
    struct test_child_config config = {.report  = runner->report,
                                       .wake_fd = runner->wake_fd,
                                       .in_fork = 1,
                                       .seed    = runner->seed};

    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)setpgid(0, 0);
    test_child_run(&config, test->fn);
    while (next_fd >= 0) {
        uint64_t one = 1;

        (void)fflush(stdout);
        if (write(runner->wake_fd, &one, sizeof(one)) != sizeof(one) ||
            read(next_fd, &test, sizeof(test)) != (ssize_t)sizeof(test)) {
            break;
        }
        test_child_run(&config, test->fn);
    }
    exit(0);
}

/* Judge a child that has ended, or end it. */
static enum test_result child_take(const struct runner *runner, pid_t pid, int pidfd,
                                   int timed_out)
{
    int wait_status = 0;

    if (timed_out) {
        (void)kill(pid, SIGKILL);
    }
    /* The group, with what the test left running. Before the wait, so that the id is still taken. */
    (void)kill(-pid, SIGKILL);
    while (waitpid(pid, &wait_status, 0) < 0 && errno == EINTR) {
    }
    pl_fd_close(&pidfd);
    (void)reaper_clean();
    return judge(runner->report, timed_out, wait_status);
}

static enum test_result run_forked(struct runner *runner, const struct test *test)
{
    int pidfd;
    pid_t pid;

    (void)fflush(NULL); /* or the child prints it once more */
    pid = fork();
    if (pid == 0) {
        child_main(runner, test, -1);
    }
    if (pid < 0) {
        (void)snprintf(runner->report->text, TEST_TEXT_BYTES, "cannot fork: %s",
                       strerror(errno));
        return TEST_FAILED;
    }
    (void)setpgid(pid,
                  pid); /* both sides do it, so that the group exists whoever is first */
    pidfd = pl_pidfd_open(pid);
    return child_take(runner, pid, pidfd, wait_for_end(runner, pidfd, 0) == TIME_OVER);
}

/* ----------------------------------------------------------- a process that tests share */

static int shared_begin(struct runner *runner, const struct test *test)
{
    int ends[2];

    if (pipe2(ends, O_CLOEXEC) != 0) {
        return 0;
    }
    (void)fflush(NULL);
    runner->child = fork();
    if (runner->child == 0) {
        (void)close(ends[1]);
        child_main(runner, test, ends[0]);
    }
    (void)close(ends[0]);
    if (runner->child < 0) {
        runner->child = 0;
        (void)close(ends[1]);
        return 0;
    }
    (void)setpgid(runner->child, runner->child);
    runner->child_pidfd = pl_pidfd_open(runner->child);
    runner->next_fd     = ends[1];
    return 1;
}

static enum test_result shared_take(struct runner *runner, int timed_out)
{
    enum test_result result =
        child_take(runner, runner->child, runner->child_pidfd, timed_out);

    pl_fd_close(&runner->next_fd);
    runner->child = 0;
    return result;
}

/* No test is left for it: it ends as one that has passed does, with reports of leaks. */
static void shared_end(struct runner *runner)
{
    if (runner->child == 0) {
        return;
    }
    pl_fd_close(&runner->next_fd);
    atomic_store(&runner->report->result, TEST_PASSED);
    atomic_store(&runner->report->deadline_ns, pl_now_ns() + END_NS);
    if (shared_take(runner, wait_for_end(runner, runner->child_pidfd, 0) == TIME_OVER) !=
        TEST_PASSED) {
        runner->failed++;
        printf("# the process that tests shared: %s\n", runner->report->text);
    }
}

static enum test_result run_shared(struct runner *runner, const struct test *test)
{
    enum wait_end end;

    if (runner->child == 0) {
        if (!shared_begin(runner, test)) {
            (void)snprintf(runner->report->text, TEST_TEXT_BYTES, "cannot fork: %s",
                           strerror(errno));
            return TEST_FAILED;
        }
    } else if (write(runner->next_fd, &test, sizeof(test)) != (ssize_t)sizeof(test)) {
        return shared_take(runner, 0); /* it died between two tests */
    }
    end = wait_for_end(runner, runner->child_pidfd, 1);
    return end == TEST_ENDED ? TEST_PASSED : shared_take(runner, end == TIME_OVER);
}

static enum test_result run_here(struct runner *runner, const struct test *test)
{
    struct test_child_config config = {
        .report = runner->report, .wake_fd = -1, .in_fork = 0, .seed = runner->seed};

    test_child_run(&config, test->fn);
    return (enum test_result)atomic_load(&runner->report->result);
}

static void run_one(struct runner *runner, const struct test *test, size_t number)
{
    enum test_result result;

    if (is_alone(test)) {
        shared_end(runner);
    }
    report_reset(runner->report);
    result = runner->no_fork                     ? run_here(runner, test)
             : runner->shared && !is_alone(test) ? run_shared(runner, test)
                                                 : run_forked(runner, test);

    if (result == TEST_PASSED) {
        runner->passed++;
        printf("ok %zu %s\n", number, test->name);
    } else if (result == TEST_SKIPPED) {
        runner->skipped++;
        printf("ok %zu %s # SKIP %s\n", number, test->name, runner->report->text);
    } else {
        runner->failed++;
        printf("not ok %zu %s\n", number, test->name);
        printf("# %s\n", runner->report->text);
        printf("# %s:%d; repeat with --only %s --seed %llu\n", test->file, test->line,
               test->name, (unsigned long long)runner->seed);
    }
    (void)fflush(stdout);
}

static size_t count_chosen(const struct runner *runner)
{
    size_t count = 0;

    for (size_t i = 0; i < tests.count; i++) {
        const struct test *test = pl_vec_at(&tests, i);

        count += runner->only == NULL || strcmp(runner->only, test->name) == 0;
    }
    return count;
}

static void run_chosen(struct runner *runner)
{
    size_t number = 0;

    for (size_t i = 0; i < tests.count; i++) {
        const struct test *test = pl_vec_at(&tests, i);

        if (runner->only != NULL && strcmp(runner->only, test->name) != 0) {
            continue;
        }
        if (runner->list) {
            printf("%s\n", test->name);
        } else {
            run_one(runner, test, ++number);
        }
    }
}

static int run(void *user)
{
    struct runner *runner = user;

    if (!runner_init(runner)) {
        fprintf(stderr, "cannot set up: %s\n", strerror(errno));
        return 1;
    }
    if (!runner->list) {
        printf("TAP version 13\n1..%zu\n", count_chosen(runner));
    }
    run_chosen(runner);
    shared_end(runner);

    (void)munmap(runner->report, sizeof(*runner->report));
    pl_fd_close(&runner->wake_fd);
    pl_vec_finish(&tests);
    pl_vec_finish(&alone);
    if (runner->failed > 0) {
        return 1;
    }
    return runner->skipped > 0 && runner->passed == 0 ? EXIT_ALL_SKIPPED : 0;
}

int test_main(int argc, char **argv)
{
    struct runner runner = {.wake_fd = -1};
    int status;

    if (!parse(&runner, argc, argv)) {
        return usage(argv[0]);
    }
    if (count_chosen(&runner) == 0) {
        fprintf(stderr, "%s: no such test\n", argv[0]);
        return EXIT_USAGE;
    }
    if (runner.no_fork || runner.list) {
        return run(&runner);
    }
    status = reaper_run(run, &runner);
    pl_vec_finish(&tests);
    pl_vec_finish(&alone);
    return status;
}
