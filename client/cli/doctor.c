/*
 * `plasmon doctor`: can Plasmon run here, with which devices, and if not, why not. Looks, changes nothing.
 *
 * Libraries are looked for as the workers would: by name, at run time. GPUs are asked by a short-lived `plasmon-worker --probe`, so
 * that a driver that hangs or crashes takes only that along.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "client/cli/cli.h"
#include "client/spawn.h"

extern char **environ;

static int run(int argc, char **argv);
const struct cli_command cli_doctor = {
    .name    = "doctor",
    .summary = "can Plasmon run here, with which devices, and if not, why not",
    .usage   = "",
    .text = "Exit status 1 when something that is needed is missing. GPUs are not: without "
            "them there are CPU devices.",
    .run  = run,
};

static bool all_good;

static void tell(bool good, bool needed, const char *what, const char *format, ...)
    PL_PRINTF(4, 5);
static void tell(bool good, bool needed, const char *what, const char *format, ...)
{
    va_list args;

    printf("  %-4s %-18s ", good ? "ok" : needed ? "BAD" : "-", what);
    va_start(args, format);
    (void)vprintf(format, args);
    va_end(args);
    printf("\n");
    if (!good && needed) {
        all_good = false;
    }
}

/* ------------------------------------------------------------------------------------------------ system */

static void look_at_kernel(void)
{
    struct utsname name;
    int pidfd = pl_pidfd_open(getpid());
    int memfd = memfd_create("plasmon-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    (void)uname(&name);
    tell(pidfd >= 0, true, "kernel", "%s %s%s", name.sysname, name.release,
         pidfd >= 0 ? "" : ": pidfd_open is missing, Linux 5.9 or newer is needed");
    tell(memfd >= 0, true, "shared memory", "%s",
         memfd >= 0 ? "memfd with seals" : strerror(errno));
    pl_fd_close(&pidfd);
    pl_fd_close(&memfd);
    errno = 0;
    (void)syscall(SYS_close_range, ~0u, ~0u, 0u);
    tell(errno != ENOSYS, true, "close_range", "%s",
         errno != ENOSYS ? "there" : "Linux 5.9 or newer is needed");
}

static void look_at_limits(void)
{
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    struct rlimit fd = {0};
    char text[32], hint[SPAWN_HINT_BYTES];

    (void)getrlimit(RLIMIT_NOFILE, &fd);
    tell(fd.rlim_max >= 4096, false, "open files", "limit %llu, may be raised to %llu%s",
         (unsigned long long)fd.rlim_cur, (unsigned long long)fd.rlim_max,
         fd.rlim_max >= 4096
             ? ""
             : "; more than 4096 are wanted for many devices: raise `ulimit -Hn`");
    (void)spawn_limit_hint(hint);
    tell(hint[0] == '\0', true, "file sizes", "%s",
         hint[0] == '\0' ? "no limit" : hint + strlen("; "));
    tell(true, false, "memory", "%s, %ld processors",
         pl_format_bytes((uint64_t)pages * (uint64_t)page, text),
         sysconf(_SC_NPROCESSORS_ONLN));
}

static void look_at_folder(void)
{
    struct pl_err err = {0};
    char dir[80];
    plasmon_status_t status = cli_node_dir(false, dir, &err);

    tell(status == PLASMON_OK || status == PLASMON_ENOENT, true, "runtime folder", "%s%s",
         status == PLASMON_OK || status == PLASMON_ENOENT ? dir : err.text,
         status == PLASMON_ENOENT ? " (not made yet)" : "");
}

/* ------------------------------------------------------------------------------------------------ programs, libraries */

static bool look_at_program(const char *name, char *out_path, size_t path_bytes)
{
    struct pl_err err       = {0};
    plasmon_status_t status = spawn_find(name, NULL, out_path, path_bytes, &err);

    tell(status == PLASMON_OK, true, name, "%s",
         status == PLASMON_OK ? out_path : err.text);
    return status == PLASMON_OK;
}

static void look_at_library(const char *what, const char *const *names, const char *without)
{
    char tried[256] = "";

    for (size_t i = 0; names[i] != NULL; i++) {
        void *library = dlopen(names[i], RTLD_LAZY | RTLD_LOCAL);

        if (library != NULL) {
            tell(true, false, what, "%s", names[i]);
            (void)dlclose(library);
            return;
        }
        (void)snprintf(tried + strlen(tried), sizeof(tried) - strlen(tried), "%s%s",
                       i > 0 ? ", " : "", names[i]);
    }
    tell(false, false, what, "not found (%s): %s", tried, without);
}

static void look_at_libraries(void)
{
    static const char *const driver[] = {"libcuda.so.1", NULL};
    static const char *const nvrtc[]  = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so",
                                         NULL};
    static const char *const blas[] = {"libcublas.so.13", "libcublas.so.12", "libcublas.so",
                                       NULL};
    static const char *const fft[]  = {"libcufft.so.12", "libcufft.so.11", "libcufft.so",
                                       NULL};
    static const char *const solver[] = {"libcusolver.so.12", "libcusolver.so.11",
                                         "libcusolver.so", NULL};
    static const char *const nccl[]   = {"libnccl.so.2", "libnccl.so", NULL};

    look_at_library("CUDA driver", driver,
                    "GPUs cannot be used; install the NVIDIA driver");
    look_at_library(
        "cuBLAS", blas,
        "gemm cannot run on GPUs; install the CUDA toolkit or add it to LD_LIBRARY_PATH");
    look_at_library(
        "cuFFT", fft,
        "fft, ifft, rfft and irfft cannot run on GPUs; install the CUDA toolkit "
        "or add it to LD_LIBRARY_PATH");
    look_at_library("cuSOLVER", solver,
                    "qr, inverse and determinant cannot run on GPUs; install the CUDA "
                    "toolkit or add it to LD_LIBRARY_PATH");
    look_at_library("NVRTC", nvrtc, "functions given as CUDA source cannot be compiled");
    look_at_library("NCCL", nccl, "the nccl route is not there");
}

/* What `plasmon-worker --probe` prints; false: it could not be run, or failed. */
static bool probe(const char *worker, char *out, size_t out_bytes)
{
    char *argv[] = {(char *)worker, (char *)"--probe", NULL};
    posix_spawn_file_actions_t actions;
    size_t length = 0;
    int pair[2], status = -1;
    pid_t pid;
    bool started;

    if (pipe2(pair, O_CLOEXEC) != 0) {
        return false;
    }
    (void)posix_spawn_file_actions_init(&actions);
    (void)posix_spawn_file_actions_adddup2(&actions, pair[1], STDOUT_FILENO);
    started = posix_spawn(&pid, worker, &actions, NULL, argv, environ) == 0;
    (void)posix_spawn_file_actions_destroy(&actions);
    pl_fd_close(&pair[1]);
    while (started && length + 1 < out_bytes) {
        ssize_t got = read(pair[0], out + length, out_bytes - 1 - length);

        if (got <= 0) {
            break;
        }
        length += (size_t)got;
    }
    out[length] = '\0';
    pl_fd_close(&pair[0]);
    return started && waitpid(pid, &status, 0) == pid && WIFEXITED(status) &&
           WEXITSTATUS(status) == 0;
}

static void look_at_devices(const char *worker)
{
    char text[8192], *rest = text, *line, name[96], size[32];
    unsigned long long bytes;
    unsigned ordinal, count = 0;

    if (!probe(worker, text, sizeof(text))) {
        tell(false, true, "GPUs", "`%s --probe` failed: run it to see why", worker);
        return;
    }
    while ((line = strsep(&rest, "\n")) != NULL) {
        if (sscanf(line, "cuda %u %llu %95[^\n]", &ordinal, &bytes, name) == 3) {
            tell(true, false, "GPU", "%u: %s, %s", ordinal, name,
                 pl_format_bytes(bytes, size));
            count++;
        }
    }
    if (count == 0) {
        tell(false, false, "GPUs", "none that the driver shows: CPU devices will be used");
    }
}

static int run(int argc, char **argv)
{
    struct cli_parsed parsed = cli_parse(&cli_doctor, argc, argv, NULL);
    char head[4096], store[4096], worker[4096];

    if (parsed.exit >= 0) {
        return parsed.exit;
    }
    all_good = true;
    printf("plasmon %s\n\nsystem\n", plasmon_version());
    look_at_kernel();
    look_at_limits();
    look_at_folder();
    printf("\nprograms\n");
    (void)look_at_program("plasmon-head", head, sizeof(head));
    (void)look_at_program("plasmon-store", store, sizeof(store));
    if (look_at_program("plasmon-worker", worker, sizeof(worker))) {
        printf("\ndevices\n");
        look_at_devices(worker);
    }
    printf("\nlibraries, loaded when the workers start\n");
    look_at_libraries();
    printf("\n%s\n",
           all_good ? "Plasmon can run here."
                    : "Something that is needed is missing: see the lines marked BAD.");
    return all_good ? CLI_OK : CLI_FAIL;
}
