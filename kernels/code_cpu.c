/*
 * C text for CPU devices, compiled by the system's compiler: PLASMON_CC, or cc.
 *
 * KEPT ON DISK (code_cache.c), by source, compiler and processor (code_c_key.c): compiling takes a tenth of a second and more, each
 * worker has its own, and one that follows a dead one needs them before it goes on.
 *
 * NOTHING ELSE IS LEFT BEHIND. Source, assembly, object and library are memory without names (memfd), which the compiler's three steps
 * read and write as /proc/self/fd/N; none of them makes temporary files then. However the worker or the compiler dies,
 * there is no file to remove.
 *
 * THE TRAMPOLINE behind the text calls the entry point with its parameters, each read from its address. The compiler
 * knows the definition there, so it checks their number, and converts them as it does in any call: the text may declare `const float *x`
 * or `double a` as it likes. Names in the text are hidden, so that one that libc has too (step, index) is still the text's. The entry point answers nothing (void), or an int, 0 for well.
 */
#include "kernels/code_int.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fd.h"
#include "base/log.h"
#include "kernels/code_cache.h"

#define COMPILE_MS_MAX 120000 /* a text of 1 MiB takes seconds */
#define LOG_BYTES_MAX \
    3500 /* fits into a message to the client with what stands around it */
#define TRAMPOLINE "plasmon_entry_"
#define FD_FIRST   100 /* above what the child's descriptors are put on */

/* ------------------------------------------------------------------------------------------------ text */

static const char prelude[] =
    "struct plasmon_launch_shape { unsigned int grid[3]; unsigned int block[3];"
    " unsigned int shared_bytes; };\n"
    "static _Thread_local const struct plasmon_launch_shape *plasmon_shape"
    " __attribute__((unused));\n";

static const char *c_type(uint32_t dtype)
{
    static const char *const types[] = {
        [PL_BOOL] = "_Bool",       [PL_I8] = "signed char",     [PL_U8] = "unsigned char",
        [PL_I16] = "short",        [PL_U16] = "unsigned short", [PL_I32] = "int",
        [PL_U32] = "unsigned int", [PL_I64] = "long",           [PL_U64] = "unsigned long",
        [PL_F32] = "float",        [PL_F64] = "double",
    };

    return types[dtype]; /* of scalars: the parser lets no others through */
}

/* "text" as the body of a C string. */
static void append_quoted(struct pl_str *out, const char *text)
{
    for (; *text != '\0'; text++) {
        pl_str_append(out, *text == '"' || *text == '\\' ? "\\%c" : "%c", *text);
    }
}

static void append_call(struct pl_str *out, const struct kernel_signature *signature,
                        const char *entry)
{
    uint32_t value = 0;

    pl_str_append(out, "%s(", entry);
    for (uint32_t i = 0; i < signature->slot_count; i++) {
        const struct kernel_slot *slot = &signature->slots[i];
        const char *separator          = value == 0 ? "" : ", ";

        if (slot->kind != KERNEL_SLOT_TENSOR) {
            pl_str_append(out, "%s*(const %s *)p[%u]", separator, c_type(slot->dtype),
                          value++);
            continue;
        }
        pl_str_append(out, "%s*(void *const *)p[%u]", separator, value++);
        for (uint32_t d = 0; slot->strided && d < slot->ndim; d++) {
            pl_str_append(out, ", *(const long *)p[%u]", value++);
        }
    }
    pl_str_append(out, ")");
}

static void append_source(struct pl_str *out, const struct kernel_signature *signature,
                          const struct kernel_definition *definition)
{
    const char *entry = code_entry_name(definition);

    pl_str_append(out, "%s#line 1 \"", prelude);
    append_quoted(out, definition->name);
    pl_str_append(out, "\"\n%s\n#line 1 \"the call of ", definition->c_text);
    append_quoted(out, entry);
    pl_str_append(out, " by its signature\"\n"
                       "__attribute__((visibility(\"default\"))) int " TRAMPOLINE
                       "(void *const *p, const struct plasmon_launch_shape *shape)\n"
                       "{ (void)p; plasmon_shape = shape; return __builtin_choose_expr("
                       "__builtin_types_compatible_p(__typeof__(");
    append_call(out, signature, entry);
    pl_str_append(out, "), void), (");
    append_call(out, signature, entry);
    pl_str_append(out, ", 0), ");
    append_call(out, signature, entry);
    pl_str_append(out, "); }\n");
}

/* ------------------------------------------------------------------------------------------------ the compiler */

/* Memory without a name, at a number that is in nobody's way. */
static plasmon_status_t memory_create(const char *name, int *out_fd, struct pl_err *err)
{
    int low = memfd_create(name, MFD_CLOEXEC);

    *out_fd = low < 0 ? -1 : fcntl(low, F_DUPFD_CLOEXEC, FD_FIRST);
    pl_fd_close(&low);
    return *out_fd >= 0 ? PLASMON_OK
                        : pl_err_set(err, pl_status_from_errno(errno), "memfd_create: %s",
                                     strerror(errno));
}

/* stdin, stdout, stderr, and two more that the child sees as 3 and 4. -1: /dev/null, or nothing. */
struct step {
    const char *args[20];
    int fds[5];
};

static int step_actions(posix_spawn_file_actions_t *actions, const struct step *step)
{
    int error = 0;

    for (int i = 0; i < 5 && error == 0; i++) {
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
                                 (char *const *)(uintptr_t)step->args, env);
        }
        (void)posix_spawnattr_destroy(&attributes);
    }
    (void)posix_spawn_file_actions_destroy(&actions);
    return error;
}

/* The compiler's exit status; -1: it was killed, or took too long. */
static int step_wait(pid_t pid)
{
    int pidfd           = pl_pidfd_open(pid);
    struct pollfd ended = {.fd = pidfd, .events = POLLIN};
    int status          = 0;
    int ready           = pidfd < 0 ? 1 : 0;

    while (pidfd >= 0 && (ready = poll(&ended, 1, COMPILE_MS_MAX)) < 0 && errno == EINTR) {
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
    code = step_wait(pid);
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

static plasmon_status_t files_create(struct files *files, const struct pl_str *source,
                                     struct pl_err *err)
{
    plasmon_status_t status = memory_create("plasmon-source", &files->source, err);

    if (status == PLASMON_OK) {
        status = memory_create("plasmon-assembly", &files->assembly, err);
    }
    if (status == PLASMON_OK) {
        status = memory_create("plasmon-object", &files->object, err);
    }
    if (status == PLASMON_OK) {
        status = memory_create("plasmon-library", &files->library, err);
    }
    if (status == PLASMON_OK) {
        status = memory_create("plasmon-log", &files->log, err);
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

static const char *compiler_name(void)
{
    const char *named = getenv("PLASMON_CC");

    return named != NULL && named[0] != '\0' ? named : "cc";
}

/* How the text is compiled; the other steps have no choice. */
static const char *const options[] = {"-O3", "-march=native", "-fPIC",
                                      "-fvisibility=hidden",
                                      "-Werror=implicit-function-declaration"};

static plasmon_status_t compile(const struct files *files, const char *name,
                                struct pl_err *err)
{
    const char *cc            = compiler_name();
    const struct step steps[] = {
        {.args = {cc, options[0], options[1], options[2], options[3], options[4], "-S",
                  "-x", "c", "-", "-o", "-", NULL},
         .fds  = {files->source, files->assembly, files->log, -1, -1}},
        {.args = {cc, "-c", "-x", "assembler", "/proc/self/fd/3", "-o", "/proc/self/fd/4",
                  NULL},
         .fds  = {-1, files->log, files->log, files->assembly, files->object}},
        {.args = {cc, "-shared", "-fno-use-linker-plugin", "/proc/self/fd/3", "-lm", "-o",
                  "/proc/self/fd/4", NULL},
         .fds  = {-1, files->log, files->log, files->object, files->library}},
    };
    plasmon_status_t status = PLASMON_OK;

    for (size_t i = 0; status == PLASMON_OK && i < PL_COUNT(steps); i++) {
        status = step_run(&steps[i], name, err);
    }
    return status;
}

/* ------------------------------------------------------------------------------------------------ loading */

static plasmon_status_t open_library(struct kernel_code *code, const char *name,
                                     struct pl_err *err)
{
    char path[64];

    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", code->fd);
    code->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (code->library == NULL) {
        return pl_err_set(err, PLASMON_ECOMPILE, "%s: cannot load what was compiled: %s",
                          name, dlerror());
    }
    *(void **)&code->c_entry = dlsym(code->library, TRAMPOLINE);
    return code->c_entry != NULL
               ? PLASMON_OK
               : pl_err_set(err, PLASMON_EINTERNAL, "%s: " TRAMPOLINE " is missing", name);
}

static void close_library(struct kernel_code *code)
{
    if (code->library != NULL) {
        (void)dlclose(code->library); /* nothing more to do with it */
        code->library = NULL;
    }
    pl_fd_close(&code->fd);
}

/* false: it is not there, or of no use here, and is compiled. */
static bool library_load(struct kernel_code *code, const char *name, const char *dir,
                         const uint8_t key[PL_SHA256_BYTES])
{
    struct pl_err err = {.status = PLASMON_OK};
    struct code_cached cached;
    bool good;

    if (!code_cache_load(dir, key, &cached)) {
        return false;
    }
    good =
        memory_create("plasmon-library", &code->fd, &err) == PLASMON_OK &&
        write(code->fd, cached.image, cached.image_bytes) == (ssize_t)cached.image_bytes &&
        open_library(code, name, &err) == PLASMON_OK;
    if (!good) {
        pl_info("kernels", "%s is compiled again: %s", name, err.text);
        close_library(code);
    }
    pl_free(cached.symbol);
    pl_free(cached.image);
    return good;
}

static void library_store(const struct kernel_code *code,
                          const struct kernel_code_policy *policy,
                          const uint8_t key[PL_SHA256_BYTES])
{
    struct stat at;
    void *image;

    if (fstat(code->fd, &at) != 0 || at.st_size <= 0) {
        return;
    }
    image = mmap(NULL, (size_t)at.st_size, PROT_READ, MAP_SHARED, code->fd, 0);
    if (image != MAP_FAILED) {
        code_cache_store(policy->cache_dir, policy->cache_bytes_max, key, TRAMPOLINE, image,
                         (size_t)at.st_size);
        (void)munmap(image, (size_t)at.st_size);
    }
}

static plasmon_status_t library_build(struct kernel_code *code,
                                      const struct kernel_definition *definition,
                                      const struct pl_str *source, struct pl_str *log,
                                      struct pl_err *err)
{
    struct files files      = {-1, -1, -1, -1, -1};
    plasmon_status_t status = files_create(&files, source, err);

    if (status == PLASMON_OK) {
        status = compile(&files, definition->name, err);
        if (status != PLASMON_OK) {
            log_read(files.log, log);
        }
    }
    if (status == PLASMON_OK) {
        code->fd      = files.library;
        files.library = -1;
        status        = open_library(code, definition->name, err);
    }
    files_close(&files);
    return status;
}

plasmon_status_t code_build_c(struct kernel_code *code,
                              const struct kernel_definition *definition,
                              const struct kernel_code_policy *policy, struct pl_str *log,
                              struct pl_err *err)
{
    uint8_t key[PL_SHA256_BYTES];
    struct pl_str source;
    plasmon_status_t status = PLASMON_OK;
    bool kept;

    pl_str_init(&source);
    append_source(&source, code->signature, definition);
    if (source.failed) {
        pl_str_finish(&source);
        return pl_err_set(err, PLASMON_ENOMEM, "no memory for the source text");
    }
    kept = policy->cache_dir != NULL &&
           code_c_key(definition->c_text, source.text, compiler_name(), options,
                      PL_COUNT(options), key);
    if (!kept || !library_load(code, definition->name, policy->cache_dir, key)) {
        status = library_build(code, definition, &source, log, err);
        if (status == PLASMON_OK && kept) {
            library_store(code, policy, key);
        }
    }
    pl_str_finish(&source);
    return status;
}
