/*
 * The log: one level and one sink a process. pl_log() formats on the stack and calls the sink in
 * the caller's thread; it takes no lock and allocates nothing, so it may be called with any lock
 * held and when memory is gone.
 *
 * The sink is set before other threads log and then stays. The level may change at any time.
 */
#include "log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "alloc.h"
#include "text.h"

#define LOG_TEXT_BYTES 2048 /* longer lines end in "..." */

static const char *const level_names[] = {"error", "warn", "info", "debug", "trace"};

static pl_log_fn log_sink;
static void *log_user;
static _Atomic int log_level = PL_LOG_INFO; /* relaxed: it guards no data */

void pl_log_set_sink(pl_log_fn sink, void *user)
{
    log_sink = sink;
    log_user = user;
}

void pl_log_set_level(enum pl_log_level level)
{
    atomic_store_explicit(&log_level, (int)level, memory_order_relaxed);
}

enum pl_log_level pl_log_get_level(void)
{
    return (enum pl_log_level)atomic_load_explicit(&log_level, memory_order_relaxed);
}

plasmon_status_t pl_log_level_parse(const char *text, enum pl_log_level *out_level)
{
    for (size_t i = 0; i < PL_COUNT(level_names); i++) {
        if (strcmp(text, level_names[i]) == 0) {
            *out_level = (enum pl_log_level)i;
            return PLASMON_OK;
        }
    }
    return PLASMON_EINVAL;
}

int pl_log_enabled(enum pl_log_level level)
{
    return log_sink != NULL &&
           (int)level <= atomic_load_explicit(&log_level, memory_order_relaxed);
}

void pl_log(enum pl_log_level level, const char *module, const char *format, ...)
{
    char text[LOG_TEXT_BYTES];
    va_list arguments;
    int length;

    if (!pl_log_enabled(level)) {
        return;
    }

    va_start(arguments, format);
    length = vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    if (length >= (int)sizeof(text)) {
        memcpy(text + sizeof(text) - 4, "...", 4);
    }

    log_sink(log_user, level, module, text);
}

void pl_log_stderr(void *user, enum pl_log_level level, const char *module,
                   const char *text)
{
    char line[LOG_TEXT_BYTES + 128], clean[LOG_TEXT_BYTES];
    char date[32];
    struct timespec now;
    struct tm utc;
    int length;

    (void)user;
    (void)clock_gettime(CLOCK_REALTIME, &now); /* a constant id: cannot fail */
    (void)gmtime_r(&now.tv_sec, &utc); /* UTC, so that lines of several hosts line up */
    (void)strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%S", &utc);

    pl_text_clean(
        text, clean,
        sizeof(
            clean)); /* texts have parts that others chose: what a compiler said of their source, say */
    length = snprintf(line, sizeof(line), "%s.%03ld %s %s: %s\n", date,
                      now.tv_nsec / 1000000, level_names[level], module, clean);
    if (length >= (int)sizeof(line)) {
        length           = (int)sizeof(line) - 1;
        line[length - 1] = '\n';
    }

    /*
     * One write a line, so that threads and processes do not mix. A log that cannot be written is
     * nobody's error.
     */
    if (write(STDERR_FILENO, line, (size_t)length) < 0) {
        return;
    }
}

void pl_check_failed(const char *condition, const char *file, int line)
{
    size_t refused = pl_alloc_refused(UINT64_C(100000000));

    /* The process ends here, so it is said even where the program has set no sink. */
    if (log_sink == NULL) {
        log_sink = pl_log_stderr;
    }
    if (refused > 0) { /* who checks for memory cannot go on without */
        pl_log(PL_LOG_ERROR, "base",
               "%s:%d: out of host memory: none for %zu bytes (%s): raise what limits this "
               "process (ulimit -v, its cgroup), or have less run beside it",
               file, line, refused, condition);
    } else {
        pl_log(PL_LOG_ERROR, "base", "%s:%d: broken invariant: %s", file, line, condition);
    }
    abort();
}
