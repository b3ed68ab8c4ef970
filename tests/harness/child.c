/*
 * The inside of a test: the assertions, the log, the time-out, the seed.
 *
 * A failed assertion ends the process at once, from whatever thread, without unwinding: the other
 * threads of the test still use what would be torn down. A test that passes ends by exit(), so that
 * leak reports and coverage are written.
 */
#include "test_int.h"

#include "base/clock.h"
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define DEFAULT_TIMEOUT_S 30

static struct test_child_config child;
static _Atomic int log_expected;
static _Atomic int log_odd_count; /* warnings and errors that nobody expected */
static _Atomic int log_odd_claimed;
/* written by the thread that claimed it, read after the test */
static char log_odd_first[256];

static void child_log(void *user, enum pl_log_level level, const char *module,
                      const char *text)
{
    static const char *const names[] = {"error", "warn", "info", "debug", "trace"};

    (void)user;
    printf("# %s %s: %s\n", names[level], module, text);
    if (level > PL_LOG_WARN || atomic_load(&log_expected)) {
        return;
    }
    if (!atomic_exchange(&log_odd_claimed, 1)) {
        (void)snprintf(log_odd_first, sizeof(log_odd_first), "%s: %s", module, text);
    }
    atomic_fetch_add(&log_odd_count, 1);
}

static void log_start(void)
{
    const char *wanted      = getenv("PLASMON_LOG");
    enum pl_log_level level = PL_LOG_WARN;

    if (wanted != NULL && pl_log_level_parse(wanted, &level) != PLASMON_OK) {
        test_fail(__FILE__, __LINE__, "PLASMON_LOG=%s is no log level", wanted);
    }
    pl_log_set_level(level > PL_LOG_WARN ? level : PL_LOG_WARN);
    pl_log_set_sink(child_log, NULL);
}

_Noreturn static void child_end(enum test_result result, int exit_status)
{
    atomic_store(&child.report->result, (int)result);
    (void)fflush(stdout);
    _exit(exit_status);
}

void test_fail(const char *file, int line, const char *format, ...)
{
    char *text = child.report->text;
    va_list arguments;
    int claimed = 0;
    int used;

    if (!atomic_compare_exchange_strong(&child.report->claimed, &claimed, (int)getpid())) {
        while (claimed == (int)getpid()) {
            (void)pause(); /* another thread is on its way to _exit() */
        }
        _exit(1); /* a forked child failed before, and has told why */
    }
    used = snprintf(text, TEST_TEXT_BYTES, "%s:%d: ", file, line);
    if (used > 0 && used < TEST_TEXT_BYTES) {
        va_start(arguments, format);
        (void)vsnprintf(text + used, (size_t)(TEST_TEXT_BYTES - used), format, arguments);
        va_end(arguments);
    }
    if (!child.in_fork) {
        printf("# %s\n", child.report->text);
        printf("# repeat with --seed %llu\n", (unsigned long long)child.seed);
    }
    child_end(TEST_FAILED, 1);
}

void test_skip(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    (void)vsnprintf(child.report->text, sizeof(child.report->text), format, arguments);
    va_end(arguments);
    child_end(TEST_SKIPPED, 0);
}

void test_set_timeout(unsigned seconds)
{
    uint64_t one = 1;

    atomic_store(&child.report->deadline_ns, pl_now_ns() + seconds * 1000000000ull);
    if (child.wake_fd >= 0 && write(child.wake_fd, &one, sizeof(one)) != sizeof(one)) {
        test_fail(__FILE__, __LINE__, "cannot tell the runner about a new time-out");
    }
}

void test_need_timeout(unsigned seconds)
{
    if (atomic_load(&child.report->deadline_ns) < pl_now_ns() + seconds * 1000000000ull) {
        test_set_timeout(seconds);
    }
}

void test_expect_log(void)
{
    atomic_store(&log_expected, 1);
}

unsigned test_patience_ms(unsigned ms)
{
    double load     = 0;
    unsigned queued = 0;
    double processors, share;
    FILE *file = fopen("/proc/loadavg", "re");

    if (file == NULL || fscanf(file, "%lf %*f %*f %u/", &load, &queued) != 2) {
        load = 0;
    }
    if (file != NULL) {
        (void)fclose(file); /* read only */
    }
    processors = (double)sysconf(_SC_NPROCESSORS_ONLN);
    share      = (load > queued ? load : queued) / (processors > 1 ? processors : 1);
    return share > 1 ? (unsigned)(ms * (1 + share)) : ms;
}

uint64_t test_seed(void)
{
    return child.seed;
}

uint64_t test_random(uint64_t *io_state)
{
    uint64_t z = (*io_state += 0x9e3779b97f4a7c15u);

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

void test_child_run(const struct test_child_config *config, test_fn fn)
{
    int odd;

    child = *config;
    atomic_store(&log_expected, 0);
    atomic_store(&log_odd_count, 0);
    atomic_store(&log_odd_claimed, 0);
    test_set_timeout(DEFAULT_TIMEOUT_S);
    log_start();

    fn();

    odd = atomic_load(&log_odd_count);
    if (odd > 0) {
        test_fail(__FILE__, __LINE__,
                  "%d unexpected warnings or errors in the log; first: %s", odd,
                  log_odd_first);
    }
    atomic_store(&child.report->result, TEST_PASSED);
}
