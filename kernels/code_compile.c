/*
 * Running the system's compiler on C text, for code_cpu.c: in three steps, from and into memory
 * without names.
 *
 * ONCE A HOST. What is kept on disk is compiled by whoever has its turn (code_cache.h), and the
 * others wait and take it from there: the workers of a host are told of a function at the same
 * time, and would all be at the same text.
 *
 * APART. A worker may be killed while it compiles, and its successor would begin again. So with
 * policy->compile_program (the worker's own file) the three steps are done by a process of their
 * own, which has the turn and puts the library where it is kept, whether the worker lives or not:
 * kernel_code_compile_main(). It gets
 *
 *   0 the source   3 the turn   4 the library   5 what to answer: a status and a text   6 the compiler's words
 *
 * and ends by itself, for each step has its time. Without a program, or if it cannot be started,
 * all of it is done here.
 */
#include "kernels/code_compile.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "kernels/code_cache.h"

#define COMPILE_MS_MAX 120000 /* a text of 1 MiB takes seconds */
#define APART_MS_MAX   (4 * COMPILE_MS_MAX)
/* fits into a message to the client with what stands around it */
#define LOG_BYTES_MAX 3500
#define FD_FIRST      100 /* above what the child's descriptors are put on */

const char *const code_compile_options[CODE_COMPILE_OPTIONS] = {
    "-O3", "-march=native", "-fPIC", "-fvisibility=hidden",
    "-Werror=implicit-function-declaration"};

plasmon_status_t code_memory_create(const char *name, int *out_fd, struct pl_err *err)
{
    int low = memfd_create(name, MFD_CLOEXEC);

    *out_fd = low < 0 ? -1 : fcntl(low, F_DUPFD_CLOEXEC, FD_FIRST);
    pl_fd_close(&low);
    return *out_fd >= 0 ? PLASMON_OK
                        : pl_err_set(err, pl_status_from_errno(errno), "memfd_create: %s",
                                     strerror(errno));
}

/* stdin, stdout, stderr, and more that the child sees as 3 and so on. -1: /dev/null, or nothing. */
#define STEP_FDS 7
struct step {
    const char *args[20];
    int fds[STEP_FDS];
    char *const *env; /* NULL: only PATH */
};

static int step_actions(posix_spawn_file_actions_t *actions, const struct step *step)
{
    int error = 0;

    for (int i = 0; i < STEP_FDS && error == 0; i++) {
        if (step->fds[i] >= 0) {
            error = posix_spawn_file_actions_adddup2(actions, step->fds[i], i);
        } else if (i < 3) {
            error = posix_spawn_file_actions_addopen(actions, i, "/dev/null", O_RDWR, 0);
        }
    }
    return error;
}

static int step_spawn(const struct step *step, pid_t *out_pid)
{
    char path[4096];
    char *env[]      = {path, (char *)(uintptr_t) "LC_ALL=C", NULL};
    const char *home = getenv("PATH");
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none;
    int error;

    (void)snprintf(path, sizeof(path), "PATH=%s", home != NULL ? home : "/usr/bin:/bin");
    (void)sigemptyset(&none);
    error = posix_spawn_file_actions_init(&actions);
    if (error != 0) {
        return error;
    }
    error = posix_spawnattr_init(&attributes);
    if (error == 0) {
        error = step_actions(&actions, step);
        if (error == 0) {
            error = posix_spawnattr_setsigmask(&attributes, &none);
        }
        if (error == 0) {
            error = posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
        }
        if (error == 0) {
            error = posix_spawnp(out_pid, step->args[0], &actions, &attributes,
                                 (char *const *)(uintptr_t)step->args,
                                 step->env != NULL ? step->env : env);
        }
        (void)posix_spawnattr_destroy(&attributes);
    }
    (void)posix_spawn_file_actions_destroy(&actions);
    return error;
}

/* The compiler's exit status; -1: it was killed, or took too long. */
static int step_wait(pid_t pid, int timeout_ms)
{
    int pidfd           = pl_pidfd_open(pid);
    struct pollfd ended = {.fd = pidfd, .events = POLLIN};
    int status          = 0;
    int ready           = pidfd < 0 ? 1 : 0;

    while (pidfd >= 0 && (ready = poll(&ended, 1, timeout_ms)) < 0 && errno == EINTR) {
    }
    if (ready == 0) {
        (void)kill(pid, SIGKILL); /* ours, and not reaped */
    }
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    pl_fd_close(&pidfd);
    return ready > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static plasmon_status_t step_run(const struct step *step, const char *what,
                                 struct pl_err *err)
{
    pid_t pid;
    int error = step_spawn(step, &pid);
    int code;

    if (error != 0) {
        return pl_err_set(
            err, PLASMON_ENOLIB,
            "cannot start the C compiler %s: %s; install one where the worker "
            "runs, or name it in PLASMON_CC",
            step->args[0], strerror(error));
    }
    code = step_wait(pid, COMPILE_MS_MAX);
    if (code == 0) {
        return PLASMON_OK;
    }
    return pl_err_set(err, PLASMON_ECOMPILE,
                      code < 0 ? "%s: %s was killed, or took over two minutes"
                               : "%s: %s refused it",
                      what, step->args[0]);
}

static void log_read(int fd, struct pl_str *log)
{
    char text[LOG_BYTES_MAX + 1];
    ssize_t length = pread(fd, text, LOG_BYTES_MAX, 0);

    if (length > 0) {
        text[length] = '\0';
        pl_str_append(log, "%s", text);
    }
}

struct files {
    int source;
    int assembly;
    int object;
    int library;
    int log;
};

/* What is between the steps. */
static plasmon_status_t files_create_between(struct files *files, struct pl_err *err)
{
    plasmon_status_t status = code_memory_create("plasmon-assembly", &files->assembly, err);

    return status == PLASMON_OK ? code_memory_create("plasmon-object", &files->object, err)
                                : status;
}

static plasmon_status_t files_create(struct files *files, const struct pl_str *source,
                                     struct pl_err *err)
{
    plasmon_status_t status = code_memory_create("plasmon-source", &files->source, err);

    if (status == PLASMON_OK) {
        status = code_memory_create("plasmon-library", &files->library, err);
    }
    if (status == PLASMON_OK) {
        status = code_memory_create("plasmon-log", &files->log, err);
    }
    if (status == PLASMON_OK &&
        (write(files->source, source->text, source->length) != (ssize_t)source->length ||
         lseek(files->source, 0, SEEK_SET) != 0)) {
        status = pl_err_set(err, PLASMON_EIO, "the source text: %s", strerror(errno));
    }
    return status;
}

static void files_close(struct files *files)
{
    pl_fd_close(&files->source);
    pl_fd_close(&files->assembly);
    pl_fd_close(&files->object);
    pl_fd_close(&files->library);
    pl_fd_close(&files->log);
}

const char *code_compiler_name(void)
{
    const char *named = getenv("PLASMON_CC");

    return named != NULL && named[0] != '\0' ? named : "cc";
}

static plasmon_status_t compile(const struct files *files, const char *name,
                                struct pl_err *err)
{
    const char *cc            = code_compiler_name();
    const struct step steps[] = {
        {.args = {cc, code_compile_options[0], code_compile_options[1],
                  code_compile_options[2], code_compile_options[3], code_compile_options[4],
                  "-S", "-x", "c", "-", "-o", "-", NULL},
         .fds  = {files->source, files->assembly, files->log, -1, -1, -1, -1}},
        {.args = {cc, "-c", "-x", "assembler", "/proc/self/fd/3", "-o", "/proc/self/fd/4",
                  NULL},
         .fds  = {-1, files->log, files->log, files->assembly, files->object, -1, -1}},
        {.args = {cc, "-shared", "-fno-use-linker-plugin", "/proc/self/fd/3", "-lm", "-o",
                  "/proc/self/fd/4", NULL},
         .fds  = {-1, files->log, files->log, files->object, files->library, -1, -1}},
    };
    plasmon_status_t status = PLASMON_OK;

    for (size_t i = 0; status == PLASMON_OK && i < PL_COUNT(steps); i++) {
        status = step_run(&steps[i], name, err);
    }
    return status;
}

/* ------------------------------------------------------------------------------ keeping */

static void library_keep(int library, const char *dir, uint64_t bytes_max,
                         const uint8_t key[PL_SHA256_BYTES])
{
    struct stat at;
    void *image;

    if (fstat(library, &at) != 0 || at.st_size <= 0) {
        return;
    }
    image = mmap(NULL, (size_t)at.st_size, PROT_READ, MAP_SHARED, library, 0);
    if (image != MAP_FAILED) {
        code_cache_store(dir, bytes_max, key, CODE_TRAMPOLINE, image, (size_t)at.st_size);
        (void)munmap(image, (size_t)at.st_size);
    }
}

static plasmon_status_t compile_here(struct files *files,
                                     const struct code_compile_job *job, struct pl_err *err)
{
    plasmon_status_t status = files_create_between(files, err);

    if (status == PLASMON_OK) {
        status = compile(files, job->name, err);
    }
    if (status == PLASMON_OK && job->key != NULL) {
        library_keep(files->library, job->policy->cache_dir, job->policy->cache_bytes_max,
                     job->key);
    }
    return status;
}

/* -------------------------------------------------------------------------------- apart */

/* What the process says at its end. */
struct answer {
    int32_t status;
    char text[1024];
};

enum { APART_SOURCE, APART_TURN = 3, APART_LIBRARY, APART_ANSWER, APART_LOG };

/* false: it could not be started. Otherwise *out_status and err are its answer, and the turn was its. */
static bool compile_apart(const struct files *files, const struct code_compile_job *job,
                          int turn, plasmon_status_t *out_status, struct pl_err *err)
{
    char hex[2 * PL_SHA256_BYTES + 1], bytes[24];
    struct answer answer = {.status = PLASMON_EIO};
    struct step step     = {
            .args = {job->policy->compile_program, CODE_COMPILE_WORD, job->name,
                     job->policy->cache_dir, bytes, hex, NULL},
            .fds  = {files->source, -1, STDERR_FILENO, turn, files->library, -1, files->log},
            .env  = environ};
    struct pl_err unused = {.status = PLASMON_OK};
    pid_t pid;

    pl_sha256_hex(job->key, hex);
    (void)snprintf(bytes, sizeof(bytes), "%llu",
                   (unsigned long long)job->policy->cache_bytes_max);
    if (code_memory_create("plasmon-answer", &step.fds[APART_ANSWER], &unused) !=
        PLASMON_OK) {
        return false;
    }
    if (step_spawn(&step, &pid) != 0) {
        pl_fd_close(&step.fds[APART_ANSWER]);
        return false;
    }
    if (step_wait(pid, APART_MS_MAX) < 0 ||
        pread(step.fds[APART_ANSWER], &answer, sizeof(answer), 0) !=
            (ssize_t)sizeof(answer)) {
        *out_status = pl_err_set(err, PLASMON_ECOMPILE,
                                 "%s: the process that compiled it was killed", job->name);
    } else if (answer.status != PLASMON_OK) {
        answer.text[sizeof(answer.text) - 1] = '\0';
        *out_status = pl_err_set(err, (plasmon_status_t)answer.status, "%s", answer.text);
    } else {
        *out_status = PLASMON_OK;
    }
    pl_fd_close(&step.fds[APART_ANSWER]);
    return true;
}

static bool key_parse(const char *hex, uint8_t key[PL_SHA256_BYTES])
{
    bool good = strlen(hex) == 2 * (size_t)PL_SHA256_BYTES;

    for (unsigned i = 0; good && i < PL_SHA256_BYTES; i++) {
        good = sscanf(hex + 2 * (size_t)i, "%2hhx", &key[i]) == 1;
    }
    return good;
}

/* Out of the way of what the compiler's own are put on. */
static bool fd_take(int low, int *out_fd)
{
    *out_fd = fcntl(low, F_DUPFD_CLOEXEC, FD_FIRST);
    pl_fd_close(&low);
    return *out_fd >= 0;
}

int kernel_code_compile_main(int argc, char **argv)
{
    struct files files = {-1, -1, -1, -1, -1};
    struct kernel_code_policy policy;
    uint8_t key[PL_SHA256_BYTES];
    struct code_compile_job job = {.policy = &policy, .key = key};
    struct pl_err err           = {.status = PLASMON_OK};
    struct answer answer        = {.status = PLASMON_OK};
    int turn, answers;

    if (argc != 6 || strcmp(argv[1], CODE_COMPILE_WORD) != 0 || !key_parse(argv[5], key) ||
        !fd_take(APART_SOURCE, &files.source) || !fd_take(APART_TURN, &turn) ||
        !fd_take(APART_LIBRARY, &files.library) || !fd_take(APART_ANSWER, &answers) ||
        !fd_take(APART_LOG, &files.log)) {
        return EXIT_FAILURE;
    }
    (void)prctl(PR_SET_NAME, "plasmon-compile"); /* for who looks at processes */
    job.name      = argv[2];
    policy        = (struct kernel_code_policy){.cache_dir       = argv[3],
                                                .cache_bytes_max = strtoull(argv[4], NULL, 10)};
    answer.status = compile_here(&files, &job, &err);
    (void)snprintf(answer.text, sizeof(answer.text), "%s", err.text);
    code_cache_turn_end(policy.cache_dir, key, &turn);
    return pwrite(answers, &answer, sizeof(answer), 0) == (ssize_t)sizeof(answer)
               ? EXIT_SUCCESS
               : EXIT_FAILURE;
}

/* --------------------------------------------------------------------------------- both */

plasmon_status_t code_compile(const struct pl_str *source,
                              const struct code_compile_job *job, int turn,
                              int *out_library, struct pl_str *log, struct pl_err *err)
{
    struct files files      = {-1, -1, -1, -1, -1};
    plasmon_status_t status = files_create(&files, source, err);

    if (status == PLASMON_OK && (turn < 0 || job->policy->compile_program == NULL ||
                                 !compile_apart(&files, job, turn, &status, err))) {
        status = compile_here(&files, job, err);
        if (turn >= 0) {
            code_cache_turn_end(job->policy->cache_dir, job->key, &turn);
        }
    }
    pl_fd_close(&turn);
    if (status == PLASMON_OK) {
        *out_library  = files.library;
        files.library = -1;
    } else if (files.log >= 0) {
        log_read(files.log, log);
    }
    files_close(&files);
    return status;
}
