/*
 * `plasmon doctor`: can Plasmon run here, with which devices, and if not, why not; and of a cluster
 * (--address, --cluster), who waits for what. Looks, changes nothing.
 *
 * Libraries are looked for as the workers would: by name, at run time. GPUs are asked by a
 * short-lived `plasmon-worker --probe`, so that a driver that hangs or crashes takes only that
 * along.
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
#include "base/numa.h"
#include "base/ram.h"
#include "client/cli/cli.h"
#include "client/spawn.h"

extern char **environ;

struct doctor {
    bool json;
    bool of_cluster;
    struct cli_cluster cluster;
};

static const struct cli_option options[] = {
    {"--cluster", NULL, CLI_FLAG, offsetof(struct doctor, of_cluster),
     "who waits for what in a running cluster (--address says so, too)"},
    {"--json", NULL, CLI_FLAG, offsetof(struct doctor, json),
     "of a cluster: one JSON object"},
    CLI_CLUSTER_OPTIONS(struct doctor),
};

static int run(int argc, char **argv);
const struct cli_command cli_doctor = {
    .name    = "doctor",
    .summary = "can Plasmon run here, and if not, why not; who waits for what in a cluster",
    .usage   = "[options]",
    .text = "Without options: of this machine. Exit status 1 when something that is needed "
            "is missing. GPUs are\n"
            "not: without them there are CPU devices.\n"
            "With --address or --cluster: of a cluster. The oldest tasks, what each waits "
            "for in the end, for\n"
            "how long, and what to do about it; what each device is at; clients that do "
            "not read, and nodes\n"
            "that do not answer, are away, gone or drained; and how bytes go from one "
            "device to another, and\n"
            "why.\n",
    .options      = options,
    .option_count = PL_COUNT(options),
    .run          = run,
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

/* ------------------------------------------------------------------------------- system */

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
    struct pl_ram ram = pl_ram();
    struct rlimit fd  = {0};
    char text[32], unused[32], hint[SPAWN_HINT_BYTES];

    (void)getrlimit(RLIMIT_NOFILE, &fd);
    tell(fd.rlim_max >= 4096, false, "open files", "limit %llu, may be raised to %llu%s",
         (unsigned long long)fd.rlim_cur, (unsigned long long)fd.rlim_max,
         fd.rlim_max >= 4096
             ? ""
             : "; more than 4096 are wanted for many devices: raise `ulimit -Hn`");
    (void)spawn_limit_hint(hint);
    tell(hint[0] == '\0', true, "file sizes", "%s",
         hint[0] == '\0' ? "no limit" : hint + strlen("; "));
    tell(true, false, "memory", "%s for this process, %s of it free; %ld processors",
         pl_format_bytes(ram.total, text), pl_format_bytes(ram.available, unused),
         sysconf(_SC_NPROCESSORS_ONLN));
}

static void look_at_folder(void)
{
    struct pl_err err = {0};
    char dir[PL_RUNTIME_FOLDER_BYTES];
    plasmon_status_t status = cli_node_dir(false, dir, &err);

    tell(status == PLASMON_OK || status == PLASMON_ENOENT, true, "runtime folder", "%s%s",
         status == PLASMON_OK || status == PLASMON_ENOENT ? dir : err.text,
         status == PLASMON_ENOENT ? " (not made yet)" : "");
}

/* ------------------------------------------------------------------ programs, libraries */

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
        void *library = dlopen(names[i], RTLD_LAZY | RTLD_LOCAL | RTLD_NODELETE);

        if (library != NULL) {
            tell(true, false, what, "%s", names[i]);
            /* it stays: what it allocated when it was loaded it never frees */
            (void)dlclose(library);
            return;
        }
        (void)snprintf(tried + strlen(tried), sizeof(tried) - strlen(tried), "%s%s",
                       i > 0 ? ", " : "", names[i]);
    }
    tell(false, false, what, "not found (%s): %s", tried, without);
}

/* As workers look for it: the one that is named, or the usual ones. */
static void look_at_nccl(void)
{
    static const char *const usual[] = {"libnccl.so.2",
                                        "/usr/local/cuda/lib64/libnccl.so.2",
                                        "/usr/local/cuda/lib/libnccl.so.2", NULL};
    const char *named                = getenv("PLASMON_NCCL_LIBRARY");
    const char *const only[]         = {named, NULL};

    look_at_library("NCCL", named != NULL && named[0] != '\0' ? only : usual,
                    "between hosts GPUs' objects go over TCP alone, and collectives by "
                    "copies; install libnccl2 (2.18 or newer), or name it in "
                    "PLASMON_NCCL_LIBRARY");
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
    look_at_nccl();
}

/* What a program prints, with what it logs; its exit status, 128 + a signal, or -1: it could not be run. */
static int run_and_read(char *const *argv, char *out, size_t out_bytes)
{
    posix_spawn_file_actions_t actions;
    size_t length = 0;
    int pair[2], status = -1;
    pid_t pid;
    bool started;

    if (pipe2(pair, O_CLOEXEC) != 0) {
        return -1;
    }
    (void)posix_spawn_file_actions_init(&actions);
    (void)posix_spawn_file_actions_adddup2(&actions, pair[1], STDOUT_FILENO);
    (void)posix_spawn_file_actions_adddup2(&actions, pair[1], STDERR_FILENO);
    started = posix_spawn(&pid, argv[0], &actions, NULL, argv, environ) == 0;
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
    if (!started || waitpid(pid, &status, 0) != pid) {
        return -1;
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* A line of a worker's log, without its time: "warn worker: TEXT". */
static const char *log_text(const char *line)
{
    const char *text = strstr(line, " worker: ");

    return text != NULL ? text + strlen(" worker: ") : line;
}

/* Of a GPU: a store that is started from here has the processors that we have. */
static void look_at_node(const char *pci, int node)
{
    struct pl_numa_place place;
    struct pl_str said;
    bool good;

    pl_str_init(&said);
    pl_numa_look(pl_numa_root(), node, NULL, 0, &place);
    good = pl_numa_say(&place, "this process", &said);
    tell(good, false, "  NUMA node", "%s: %s", pci, pl_str_text(&said));
    pl_str_finish(&said);
}

static void look_at_devices(const char *worker)
{
    char *const argv[] = {(char *)(uintptr_t)worker, (char *)"--probe", NULL};
    char text[8192], *rest = text, *line, name[96], size[32], pci[24];
    unsigned long long bytes;
    unsigned ordinal, count = 0, said = 0;
    int status, node;

    (void)setenv("PLASMON_LOG", "info", 1); /* without a GPU it says why */
    status = run_and_read(argv, text, sizeof(text));
    if (status != 0) {
        tell(false, true, "GPUs", "`%s --probe` failed with status %d: %s", worker, status,
             text);
        return;
    }
    while ((line = strsep(&rest, "\n")) != NULL) {
        if (sscanf(line, "cuda %u %llu %95[^\n]", &ordinal, &bytes, name) == 3) {
            tell(true, false, "GPU", "%u: %s, %s", ordinal, name,
                 pl_format_bytes(bytes, size));
            count++;
        } else if (sscanf(line, "numa %u %d %23s", &ordinal, &node, pci) == 3) {
            look_at_node(pci, node);
        } else if (line[0] != '\0') {
            tell(false, false, "GPUs", "%s", log_text(line));
            said++;
        }
    }
    if (count == 0) {
        tell(false, false, "GPUs", "%sCPU devices will be used",
             said == 0 ? "none that the driver shows: " : "none: ");
    }
}

/*
 * In a process of its own: libraries that are loaded here would run code here. "" in `why`: it can
 * be loaded.
 */
static bool try_load(const char *name, char *why, size_t why_bytes)
{
    ssize_t got = -1;
    int pair[2];
    pid_t pid;

    if (pipe2(pair, O_CLOEXEC) != 0) {
        return false;
    }
    pid = fork();
    if (pid == 0) {
        const char *text = dlopen(name, RTLD_NOW | RTLD_LOCAL) != NULL ? "" : dlerror();

        _exit(write(pair[1], text, strlen(text) + 1) < 0);
    }
    pl_fd_close(&pair[1]);
    if (pid > 0) {
        got = read(pair[0], why, why_bytes - 1);
        (void)waitpid(pid, NULL, 0);
    }
    pl_fd_close(&pair[0]);
    why[got > 0 ? got : 0] = '\0';
    return got > 0;
}

/* Programs that are linked to it need it, and what it needs, when they start. (`plasmon` has it inside.) */
static void look_at_libplasmon(void)
{
    static const char name[] = "libplasmon.so.0";
    char why[1024];

    if (!try_load(name, why, sizeof(why))) {
        tell(false, false, "libplasmon", "%s cannot be loaded", name);
    } else if (why[0] == '\0') {
        tell(true, false, "libplasmon", "%s", name);
    } else {
        tell(false, false, "libplasmon",
             "%s: programs that are linked to it do not start; install it with what is "
             "in lib/plasmon, then `ldconfig` or LD_LIBRARY_PATH",
             why);
    }
}

static int run_cluster(const struct doctor *doctor)
{
    struct plasmon_client *client = cli_ask(&cli_doctor, &doctor->cluster);
    plasmon_status_t status;
    char *text;

    if (client == NULL) {
        return CLI_FAIL;
    }
    status = plasmon_doctor(client, doctor->json, &text);
    if (status == PLASMON_OK) {
        printf("%s%s", text, doctor->json ? "\n" : "");
        free(text);
    } else {
        (void)cli_fail(&cli_doctor, "%s", plasmon_error(client));
    }
    plasmon_finish(client);
    return status == PLASMON_OK ? CLI_OK : CLI_FAIL;
}

static int run(int argc, char **argv)
{
    struct doctor doctor     = {.json = false};
    struct cli_parsed parsed = cli_parse(&cli_doctor, argc, argv, &doctor);
    char head[4096], store[4096], worker[4096];

    if (parsed.exit >= 0) {
        return parsed.exit;
    }
    if (doctor.of_cluster || doctor.cluster.address != NULL) {
        return run_cluster(&doctor);
    }
    if (doctor.json) {
        return cli_usage(&cli_doctor,
                         "--json is of a cluster: give --address or --cluster");
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
    printf("\nlibraries, loaded when they are needed\n");
    look_at_libplasmon();
    look_at_libraries();
    printf("\n%s\n",
           all_good ? "Plasmon can run here."
                    : "Something that is needed is missing: see the lines marked BAD.");
    return all_good ? CLI_OK : CLI_FAIL;
}
