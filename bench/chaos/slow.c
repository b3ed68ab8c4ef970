/*
 * What a recovery consisted of that took longer than it should: moments of the fault and of what
 * ended it, those of each device's worker from its timeline (store/phases.h), and what head and
 * store wrote in their logs meanwhile. All of it since the fault, on stderr, when it is over.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "bench/chaos/chaos.h"

#define TOLD_MAX  24 /* faults of a run */
#define LINES_MAX 48 /* of a log */
#define END_OF    UINT64_MAX
#define END_BYTES 4096
#define LOG_BYTES (UINT64_C(64) << 10)

static const char *const logs[CHAOS_LOGS] = {"head.log", "store.log"};

static uint64_t ms_since(const struct chaos_fault *fault, uint64_t at_ns)
{
    return (at_ns - pl_min_u64(fault->began_ns, at_ns)) / 1000000;
}

static void log_path(const struct chaos *chaos, const char *name,
                     char out[2 * CHAOS_PATH_BYTES])
{
    (void)snprintf(out, 2 * CHAOS_PATH_BYTES, "%s/%s", chaos->cluster.dir, name);
}

void chaos_slow_begin(const struct chaos *chaos, struct chaos_fault *fault)
{
    fault->mark_count = 0;
    for (int i = 0; i < CHAOS_LOGS; i++) {
        char path[2 * CHAOS_PATH_BYTES];
        off_t end = -1;
        int fd;

        log_path(chaos, logs[i], path);
        fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd >= 0) {
            end = lseek(fd, 0, SEEK_END);
        }
        fault->log_from[i] = end > 0 ? (uint64_t)end : 0;
        pl_fd_close(&fd);
    }
}

void chaos_mark(struct chaos_fault *fault, const char *what)
{
    if (fault->mark_count < CHAOS_MARKS) {
        fault->marks[fault->mark_count++] =
            (struct chaos_mark){.what = what, .at_ns = pl_now_ns()};
    }
}

/* In the order in which they were, whatever the order of the phases. */
static void append_phases(const struct chaos_fault *fault,
                          const struct store_phases *phases, struct pl_str *out)
{
    uint64_t before_ns = fault->began_ns;

    for (;;) {
        uint64_t next_ns = UINT64_MAX;
        int next         = -1;

        for (int i = 0; i < STORE_PHASES; i++) {
            uint64_t at_ns = store_phase_at(phases, (enum store_phase)i);

            if (at_ns > before_ns && at_ns < next_ns) {
                next    = i;
                next_ns = at_ns;
            }
        }
        if (next < 0) {
            return;
        }
        pl_str_append(out, ", %s %llu",
                      next == STORE_PHASE_STARTED
                          ? "started"
                          : store_phase_name((enum store_phase)next),
                      (unsigned long long)ms_since(fault, next_ns));
        before_ns = next_ns;
    }
}

static void tell_devices(const struct chaos *chaos, const struct chaos_fault *fault)
{
    for (uint32_t i = 0; i < chaos->cluster.devices; i++) {
        const struct store_timeline *timeline = chaos->cluster.device[i].timeline;
        struct pl_str text;

        if (timeline == NULL) {
            continue;
        }
        pl_str_init(&text);
        append_phases(fault, &timeline->phases, &text);
        if (text.length > 0) {
            (void)fprintf(stderr, "    device %u's worker, of each step the end:%s\n", i,
                          pl_str_text(&text) + 1);
        }
        pl_str_finish(&text);
    }
}

/* From there on; END_OF: the last of it. */
static void tell_log(const struct chaos *chaos, const char *name, uint64_t from)
{
    static char text[LOG_BYTES]; /* the main thread's */
    char path[2 * CHAOS_PATH_BYTES];
    char *line     = text, *next;
    uint32_t lines = 0;
    ssize_t got    = 0;
    int fd;

    log_path(chaos, name, path);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0 && from == END_OF) {
        off_t end = lseek(fd, 0, SEEK_END);

        from = end > (off_t)END_BYTES ? (uint64_t)end - END_BYTES : 0;
    }
    if (fd >= 0) {
        got = pread(fd, text, sizeof(text) - 1, (off_t)from);
    }
    pl_fd_close(&fd);
    text[got > 0 ? got : 0] = '\0';
    for (; (next = strchr(line, '\n')) != NULL; line = next + 1) {
        *next = '\0';
        if (lines++ < LINES_MAX) {
            (void)fprintf(stderr, "    %s: %s\n", name, line);
        }
    }
    if (lines > LINES_MAX) {
        (void)fprintf(stderr, "    %s: %u lines more\n", name, lines - LINES_MAX);
    }
}

void chaos_slow_tell(struct chaos *chaos, const struct chaos_fault *fault,
                     double recover_ms)
{
    double limit_ms = chaos_kind_slow(fault->kind, chaos->cluster.board->gpu);
    struct pl_str text;

    if (recover_ms <= limit_ms || ++chaos->tally.slow > TOLD_MAX) {
        return;
    }
    pl_str_init(&text);
    for (uint32_t i = 0; i < fault->mark_count; i++) {
        pl_str_append(&text, ", %s %llu", fault->marks[i].what,
                      (unsigned long long)ms_since(fault, fault->marks[i].at_ns));
    }
    chaos_say(&chaos->cluster,
              "%s took %.0f ms%s; what it consisted of, in ms since the fault%s%s",
              chaos_kind_name(fault->kind), recover_ms,
              fault->alone ? "" : ", beside another fault", text.length > 0 ? ": " : "",
              text.length > 0 ? pl_str_text(&text) + 2 : "");
    pl_str_finish(&text);
    tell_devices(chaos, fault);
    for (int i = 0; i < CHAOS_LOGS; i++) {
        tell_log(chaos, logs[i], fault->log_from[i]);
    }
}

void chaos_still_tell(struct chaos *chaos)
{
    const struct timespec while_they_write = {.tv_nsec = 250000000};

    atomic_fetch_add(&chaos->cluster.board->tell, 1);
    (void)nanosleep(&while_they_write, NULL);
    for (uint32_t i = 0; i < chaos->cluster.config.clients; i++) {
        char name[32];

        if (chaos->cluster.player[i] != 0) {
            (void)snprintf(name, sizeof(name), "client%u.log", i);
            tell_log(chaos, name, END_OF);
        }
    }
    for (int i = 0; i < CHAOS_LOGS; i++) {
        tell_log(chaos, logs[i], END_OF);
    }
}
