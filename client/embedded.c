#include "client/embedded.h"

#include <fcntl.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "client/error.h"
#include "client/spawn.h"

#define LOG_BYTES               (64u << 10)
#define ARGS_MAX                48
#define LAST_WORDS_BYTES        255
#define FIRST_WORDS_BYTES       128 /* both and what is before them fit into struct pl_err */
#define EMBEDDED_SPILL_DIRS_MAX 8u  /* as plasmon-store takes them */

void embedded_init(struct embedded *embedded)
{
    *embedded = (struct embedded){.pidfd = -1, .log_fd = -1};
}

#define EXPLAIN_MS 2000u /* a cluster that cannot start ends within that */

/* ---------------------------------------------------------------------------- arguments */

struct arguments {
    char *argv[ARGS_MAX + 1];
    char text[8192];
    size_t used;
    unsigned count;
};

static void add(struct arguments *arguments, const char *format, ...) PL_PRINTF(2, 3);
static void add(struct arguments *arguments, const char *format, ...)
{
    size_t room = sizeof(arguments->text) - arguments->used;
    va_list args;
    int length;

    va_start(args, format);
    length = vsnprintf(arguments->text + arguments->used, room, format, args);
    va_end(args);
    PL_CHECK(length >= 0 && (size_t)length < room && arguments->count < ARGS_MAX);
    arguments->argv[arguments->count++] = arguments->text + arguments->used;
    arguments->used += (size_t)length + 1;
}

static bool listed(const char *text, const char *const *names, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(text, names[i]) == 0) {
            return true;
        }
    }
    return false;
}

static unsigned commas(const char *text)
{
    unsigned count = 0;

    for (; *text != '\0'; text++) {
        count += *text == ',';
    }
    return count;
}

/* Wrong options fail here, with their name, and not in a daemon's log. */
static plasmon_status_t check_options(const struct plasmon_options *options,
                                      struct pl_err *err)
{
    static const char *const transfers[] = {"auto", "peer", "host", "nccl"};
    static const char *const policies[]  = {"auto", "locality", "round-robin", "pinned"};
    char *end;

    if (options->transfer != NULL &&
        !listed(options->transfer, transfers, PL_COUNT(transfers))) {
        return pl_err_set(err, PLASMON_EINVAL,
                          "options.transfer is \"%.64s\"; it is auto, peer, host or nccl",
                          options->transfer);
    }
    if (options->policy != NULL && !listed(options->policy, policies, PL_COUNT(policies))) {
        return pl_err_set(
            err, PLASMON_EINVAL,
            "options.policy is \"%.64s\"; it is auto, locality, round-robin or pinned",
            options->policy);
    }
    if (options->gpus != NULL && strcmp(options->gpus, "auto") != 0 &&
        strcmp(options->gpus, "none") != 0 &&
        (strtoul(options->gpus, &end, 10) > STORE_HOST_DEVICE_MAX || *end != '\0' ||
         end == options->gpus)) {
        return pl_err_set(
            err, PLASMON_EINVAL,
            "options.gpus is \"%.64s\"; it is auto, none or a number up to %u",
            options->gpus, STORE_HOST_DEVICE_MAX);
    }
    if (options->library_dir != NULL && strlen(options->library_dir) >= 4096) {
        return pl_err_set(err, PLASMON_EINVAL, "options.library_dir is too long");
    }
    if (options->spill_dirs != NULL &&
        (strlen(options->spill_dirs) >= 2048 ||
         commas(options->spill_dirs) >= EMBEDDED_SPILL_DIRS_MAX)) {
        return pl_err_set(err, PLASMON_EINVAL,
                          "options.spill_dirs has at most %u directories and 2047 bytes",
                          EMBEDDED_SPILL_DIRS_MAX);
    }
    if (options->spill_dirs != NULL && options->spill_memory == PLASMON_NO_SPILL &&
        strcmp(options->spill_dirs, "none") != 0) {
        return pl_err_set(
            err, PLASMON_EINVAL,
            "options.spill_dirs is \"%.200s\" and options.spill_memory "
            "PLASMON_NO_SPILL: what goes to files passes through that memory; "
            "give some, or no directories",
            options->spill_dirs);
    }
    if (options->write_back > 100 && options->write_back != PLASMON_NO_WRITE_BACK) {
        return pl_err_set(err, PLASMON_EINVAL,
                          "options.write_back is %u; it is a percentage, or "
                          "PLASMON_NO_WRITE_BACK",
                          options->write_back);
    }
    if (options->cpu_devices > STORE_HOST_DEVICE_MAX) {
        return pl_err_set(err, PLASMON_EINVAL, "options.cpu_devices is %u; the limit is %u",
                          options->cpu_devices, STORE_HOST_DEVICE_MAX);
    }
    return PLASMON_OK;
}

static void fill_arguments(struct arguments *arguments,
                           const struct plasmon_options *options, const char *log)
{
    const char *gpus  = options->gpus != NULL ? options->gpus : "auto";
    const char *check = getenv("PLASMON_CHECK");

    add(arguments, "plasmon-store");
    add(arguments, "--embedded");
    add(arguments, "--client-pidfd=3");
    add(arguments, "--client-fd=4");
    add(arguments, "--gpus=%s", gpus);
    if (options->cpu_devices > 0) {
        add(arguments, "--cpu-devices=%u", options->cpu_devices);
    } else if (strcmp(gpus, "none") == 0 || strcmp(gpus, "0") == 0) {
        add(arguments, "--cpu-devices=1");
    }
    if (options->device_memory > 0) {
        add(arguments, "--device-memory=%llu", (unsigned long long)options->device_memory);
    }
    if (options->host_memory > 0) {
        add(arguments, "--host-memory=%llu", (unsigned long long)options->host_memory);
    }
    if (options->spill_memory > 0) {
        add(arguments, "--spill-memory=%llu",
            options->spill_memory == PLASMON_NO_SPILL
                ? 0ull
                : (unsigned long long)options->spill_memory);
    }
    for (const char *dir = options->spill_dirs; dir != NULL;) {
        size_t length = strcspn(dir, ",");

        add(arguments, "--spill-dir=%.*s", (int)length, dir);
        dir = dir[length] == ',' ? dir + length + 1 : NULL;
    }
    if (options->write_back != 0) {
        add(arguments, "--write-back=%u",
            options->write_back == PLASMON_NO_WRITE_BACK ? 0 : options->write_back);
    }
    if (options->no_prefetch != 0) {
        add(arguments, "--no-prefetch");
    }
    if (options->transfer != NULL) {
        add(arguments, "--head-arg=--transfer=%s", options->transfer);
    }
    if (options->policy != NULL) {
        add(arguments, "--head-arg=--policy=%s", options->policy);
    }
    add(arguments, "--allow-source"); /* it is all this user's */
    if (options->library_dir != NULL) {
        add(arguments, "--library-dir=%s", options->library_dir);
    }
    if (options->check_functions != 0 || (check != NULL && strcmp(check, "1") == 0)) {
        add(arguments, "--check-functions");
    }
    if (log == NULL) {
        add(arguments, "--log=warn"); /* nobody reads it unless something goes wrong */
    }
    arguments->argv[arguments->count] = NULL;
}

/* -------------------------------------------------------------------------------- start */

/* A place for stderr that cannot grow: what does not fit is lost, and nothing of it has a name. */
static int log_create(void)
{
    int fd = memfd_create("plasmon-log", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    if (fd < 0) {
        return -1;
    }
    if (ftruncate(fd, LOG_BYTES) != 0 ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK) != 0) {
        pl_fd_close(&fd);
    }
    return fd;
}

plasmon_status_t embedded_start(struct embedded *embedded,
                                const struct plasmon_options *options,
                                struct shared *shared, struct pl_err *err)
{
    /* set: the daemons write to our stderr, as asked */
    const char *log            = getenv("PLASMON_LOG");
    struct arguments arguments = {.used = 0};
    int pair[2], self, fds[2];
    char path[4096];
    plasmon_status_t status;

    status = check_options(options, err);
    if (status == PLASMON_OK) {
        status = spawn_find("plasmon-store", options->bin_dir, path, sizeof(path), err);
    }
    if (status != PLASMON_OK) {
        return status;
    }

    self = pl_pidfd_open(getpid());
    if (self < 0) {
        return pl_err_set(err, PLASMON_ENOTSUP,
                          "pidfd_open: %s (Linux 5.3 or newer is needed)", strerror(errno));
    }
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) {
        status =
            pl_err_set(err, pl_status_from_errno(errno), "socketpair: %s", strerror(errno));
        pl_fd_close(&self);
        return status;
    }

    fill_arguments(&arguments, options, log);
    embedded->log_fd = log == NULL ? log_create() : -1;
    fds[0]           = self;
    fds[1]           = pair[1];
    status =
        spawn_daemon(path, arguments.argv, fds, 2,
                     log != NULL ? STDERR_FILENO : embedded->log_fd, &embedded->pidfd, err);
    pl_fd_close(&self);
    pl_fd_close(&pair[1]);
    if (status != PLASMON_OK) {
        pl_fd_close(&pair[0]);
        return status;
    }
    embedded->active = true;
    shared_adopt(shared, pair[0]);
    return PLASMON_OK;
}

void embedded_add_log(const struct embedded *embedded, struct pl_err *err)
{
    char text[LAST_WORDS_BYTES + 1], hint[SPAWN_HINT_BYTES], *words = text, *line;
    size_t length;
    off_t end;
    ssize_t got;

    if (embedded->log_fd < 0) {
        return;
    }
    /* shared with the daemons: where they are */
    end = lseek(embedded->log_fd, 0, SEEK_CUR);
    if (end <= 0) {
        return;
    }
    length = (size_t)pl_min_u64((uint64_t)end, sizeof(text) - 1);
    got    = pread(embedded->log_fd, text, length, end - (off_t)length);
    if (got <= 0) {
        return;
    }
    text[got] = '\0';
    while (got > 0 && text[got - 1] == '\n') {
        text[--got] = '\0';
    }
    line = (off_t)length < end ? strchr(text, '\n') : NULL;
    if (line != NULL) { /* not the end of a line whose beginning is not there */
        words = line + 1;
    }
    (void)snprintf(err->text + strlen(err->text), sizeof(err->text) - strlen(err->text),
                   "; its last words: %s%s", words, spawn_limit_hint(hint));
}

void embedded_add_start_log(const struct embedded *embedded, struct pl_err *err)
{
    char text[FIRST_WORDS_BYTES + 1];
    off_t end   = embedded->log_fd >= 0 ? lseek(embedded->log_fd, 0, SEEK_CUR) : 0;
    ssize_t got = end > LAST_WORDS_BYTES /* else all of it is last words */
                      ? pread(embedded->log_fd, text, sizeof(text) - 1, 0)
                      : 0;

    if (got > 0) {
        text[got]                 = '\0';
        text[strcspn(text, "\n")] = '\0';
        (void)snprintf(err->text + strlen(err->text), sizeof(err->text) - strlen(err->text),
                       "; its first words: %s", text);
    }
    embedded_add_log(embedded, err);
}

plasmon_status_t embedded_head_fd(struct embedded *embedded, struct shared *shared,
                                  bool again, uint32_t timeout_ms, int *out_fd,
                                  struct pl_err *err)
{
    plasmon_status_t status = shared_take_head_fd(
        shared, again, pl_now_ns() + timeout_ms * 1000000ull, out_fd, err);

    if (status != PLASMON_OK && !again) {
        struct pl_err cause = *err;

        (void)pl_err_set(err, status, "the private cluster did not start: %.200s",
                         cause.text);
        embedded_add_start_log(embedded, err);
    }
    return status;
}

/* ---------------------------------------------------------------------------------- end */

static bool wait_gone(int pidfd, uint32_t timeout_ms)
{
    struct pollfd poller = {.fd = pidfd, .events = POLLIN};
    uint64_t deadline_ns = pl_now_ns() + timeout_ms * 1000000ull;

    for (;;) {
        uint64_t now_ns = pl_now_ns();
        int left_ms =
            now_ns >= deadline_ns ? 0 : (int)((deadline_ns - now_ns) / 1000000 + 1);
        int ready = poll(&poller, 1, left_ms);

        if (ready > 0) {
            return true;
        }
        if (ready == 0 || errno != EINTR) {
            return false;
        }
    }
}

plasmon_status_t embedded_explain(const struct embedded *embedded, plasmon_status_t status)
{
    struct pl_err err = {0};

    if (embedded->pidfd < 0) {
        return status;
    }
    if (!wait_gone(embedded->pidfd, EXPLAIN_MS)) {
        (void)pl_err_set(&err, status, "%.200s", plasmon_error(NULL));
    } else {
        status =
            pl_err_set(&err, PLASMON_ECLOSED, "the private cluster ended as it started");
    }
    embedded_add_start_log(embedded, &err);
    return error_from(&err, status);
}

void embedded_finish(struct embedded *embedded, uint32_t timeout_ms)
{
    if (embedded->pidfd >= 0 && !wait_gone(embedded->pidfd, timeout_ms)) {
        pl_warn("client", "plasmon-store did not end within %u ms: killed", timeout_ms);
        (void)syscall(SYS_pidfd_send_signal, embedded->pidfd, SIGKILL, NULL, 0u);
        (void)wait_gone(embedded->pidfd, timeout_ms);
    }
    embedded_abandon(embedded);
}

void embedded_abandon(struct embedded *embedded)
{
    pl_fd_close(&embedded->pidfd);
    pl_fd_close(&embedded->log_fd);
    embedded->active = false;
}
