/*
 * Logging: one line an event, lowercase, no full stop, to one sink a process (stderr by default in
 * the daemons; nowhere in the client library until the user gives a callback).
 */
#ifndef BASE_LOG_H
#define BASE_LOG_H

#include "base.h"

enum pl_log_level {
    PL_LOG_ERROR, /* cannot do it */
    PL_LOG_WARN,  /* odd, goes on */
    PL_LOG_INFO,  /* a life event: start, join, lose a node */
    PL_LOG_DEBUG, /* per object */
    PL_LOG_TRACE, /* per message */
};

typedef void (*pl_log_fn)(void *user, enum pl_log_level level, const char *module,
                          const char *text);

/* NULL: drop everything. Threads: call before others log. */
void pl_log_set_sink(pl_log_fn sink, void *user);
/* A sink for daemons: "2026-11-21T04:30:00.123 warn store: text" on stderr. */
void pl_log_stderr(void *user, enum pl_log_level level, const char *module,
                   const char *text);
void pl_log_set_level(enum pl_log_level level);
enum pl_log_level pl_log_get_level(void);
/* "error" .. "trace"; from PLASMON_LOG. */
plasmon_status_t pl_log_level_parse(const char *text, enum pl_log_level *out_level);
int pl_log_enabled(enum pl_log_level level);
void pl_log(enum pl_log_level level, const char *module, const char *format, ...)
    PL_PRINTF(3, 4);

#define pl_error(module, ...) pl_log(PL_LOG_ERROR, module, __VA_ARGS__)
#define pl_warn(module, ...)  pl_log(PL_LOG_WARN, module, __VA_ARGS__)
#define pl_info(module, ...)  pl_log(PL_LOG_INFO, module, __VA_ARGS__)
#define pl_debug(module, ...)                          \
    do {                                               \
        if (pl_log_enabled(PL_LOG_DEBUG)) {            \
            pl_log(PL_LOG_DEBUG, module, __VA_ARGS__); \
        }                                              \
    } while (0)
#define pl_trace(module, ...)                          \
    do {                                               \
        if (pl_log_enabled(PL_LOG_TRACE)) {            \
            pl_log(PL_LOG_TRACE, module, __VA_ARGS__); \
        }                                              \
    } while (0)

#endif
