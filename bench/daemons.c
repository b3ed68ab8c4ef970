/* Daemons of a benchmark: started, killed, and what they cost. */
#include "bench/daemons.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "client/spawn.h"

enum {
    UNDER_MAX = 40, /* leaves 107 - 63 bytes for the names of sockets */
    LISTEN_S  = 60,
    OPEN_MAX  = 16, /* descriptors that removing a folder takes */
};

static char folder[BENCH_FOLDER_BYTES];

/* ------------------------------------------------------------------------------ folders */

void bench_must_make_folder(char out[BENCH_FOLDER_BYTES])
{
    const char *under = getenv("TMPDIR");

    if (under == NULL || under[0] == '\0' || strlen(under) > UNDER_MAX) {
        under = "/tmp";
    }
    (void)snprintf(out, BENCH_FOLDER_BYTES, "%.*s/plasmon-bench-XXXXXX", UNDER_MAX, under);
    if (mkdtemp(out) == NULL) {
        bench_die("cannot make the folder %s: %s; set TMPDIR to one that can be written",
                  out, strerror(errno));
    }
}

static int remove_entry(const char *path, const struct stat *about, int kind,
                        struct FTW *where)
{
    (void)about;
    (void)kind;
    (void)where;
    (void)remove(path); /* what stays does not matter */
    return 0;
}

void bench_remove_folder(const char *path)
{
    (void)nftw(path, remove_entry, OPEN_MAX, FTW_DEPTH | FTW_PHYS);
}

static void remove_own_folder(void)
{
    bench_remove_folder(folder);
}

const char *bench_must_folder(void)
{
    bench_must_make_folder(folder);
    (void)atexit(remove_own_folder);
    return folder;
}

/* ---------------------------------------------------------------------------- processes */

/*
 * In the child, which has our memory until it runs the program: only system calls. (A fork would
 * run gRPC's handlers, and copy the page tables of a cluster's memory.)
 */
static _Noreturn void become(const char *const *argv, int log, int pass, int pass_as,
                             pid_t parent)
{
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)setsid();
    /* 0: it is outside of our process namespace. */
    if ((getppid() != parent && getppid() != 0) || dup2(log, STDOUT_FILENO) < 0 ||
        dup2(log, STDERR_FILENO) < 0 || (pass >= 0 && dup2(pass, pass_as) < 0)) {
        _exit(127);
    }
    (void)execv(argv[0], (char *const *)(uintptr_t)argv);
    _exit(127);
}

pid_t bench_must_run(const char *log, const char *const *argv, int pass, int pass_as)
{
    pid_t parent = getpid();
    int fd       = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    pid_t pid;

    if (fd < 0) {
        bench_die("cannot write %s: %s", log, strerror(errno));
    }
    pid = vfork();
    if (pid == 0) {
        become(argv, fd, pass, pass_as, parent);
    }
    (void)close(fd);
    if (pid < 0) {
        bench_die("cannot start %s: %s", argv[0], strerror(errno));
    }
    return pid;
}

pid_t bench_must_daemon(const char *log, const char *const *argv)
{
    char path[BENCH_FOLDER_BYTES + 64];

    (void)snprintf(path, sizeof(path), "%s/%s", folder, log);
    return bench_must_run(path, argv, -1, -1);
}

void bench_must_find(const char *name, char out[256])
{
    struct pl_err err = {0};

    if (spawn_find(name, NULL, out, 256, &err) != PLASMON_OK) {
        bench_die("%s", err.text);
    }
}

/* A client of a head without devices is told so: ask until the store has said what it has. */
void bench_must_wait_devices(void)
{
    struct plasmon_options to_join = PLASMON_OPTIONS_INIT;
    uint64_t deadline_ns           = pl_now_ns() + LISTEN_S * UINT64_C(1000000000);
    uint32_t count                 = 0;

    while (count == 0) {
        struct plasmon_device_info info;
        struct plasmon_client *client;

        if (pl_now_ns() > deadline_ns || plasmon_init(&to_join, &client) != PLASMON_OK ||
            plasmon_devices(client, &info, 1, &count) != PLASMON_OK) {
            bench_die("a cluster of this benchmark does not start: %s",
                      plasmon_error(NULL));
        }
        plasmon_finish(client);
    }
}

/* The kernel has children by the thread that made them. */
pid_t bench_must_child(pid_t pid)
{
    char path[64], text[64];
    const struct dirent *thread;
    pid_t child = 0;
    DIR *threads;

    (void)snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
    threads = opendir(path);
    while (threads != NULL && child == 0 && (thread = readdir(threads)) != NULL) {
        FILE *file;

        (void)snprintf(path, sizeof(path), "/proc/%d/task/%.16s/children", (int)pid,
                       thread->d_name);
        file = fopen(path, "re");
        if (file != NULL && fgets(text, sizeof(text), file) != NULL) {
            child = (pid_t)strtol(text, NULL, 10);
        }
        if (file != NULL) {
            (void)fclose(file);
        }
    }
    if (threads != NULL) {
        (void)closedir(threads);
    }
    if (child == 0) {
        bench_die("process %d has started no other one", (int)pid);
    }
    return child;
}

void bench_daemon_kill(pid_t pid)
{
    (void)kill(pid, SIGKILL);
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR) {
    }
}

uint64_t bench_daemon_cpu_ns(pid_t pid)
{
    struct timespec now;
    clockid_t clock;

    if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &now) != 0) {
        bench_die("process %d has ended; its log is in %s", (int)pid, folder);
    }
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

double bench_status_number(pid_t pid, const char *key)
{
    char path[64], line[256];
    double value = -1;
    FILE *file;

    (void)snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
    file = fopen(path, "re");
    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        if (strncmp(line, key, strlen(key)) == 0 && line[strlen(key)] == ':') {
            value = strtod(line + strlen(key) + 1, NULL);
            break;
        }
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    return value;
}

uint64_t bench_daemon_memory(pid_t pid)
{
    double kib = bench_status_number(pid, "RssAnon");

    if (kib < 0) {
        bench_die("process %d has ended; its log is in %s", (int)pid, folder);
    }
    return (uint64_t)kib << 10;
}

/* ---------------------------------------------------------------------------- coming up */

bool bench_daemon_listens(pid_t pid, const char *socket_path)
{
    uint64_t deadline_ns = pl_now_ns() + LISTEN_S * UINT64_C(1000000000);

    while (!pl_unix_listens(socket_path)) {
        if (waitpid(pid, NULL, WNOHANG) == pid || pl_now_ns() > deadline_ns) {
            return false;
        }
        (void)poll(NULL, 0, 1); /* nothing tells of it: ask */
    }
    return true;
}

static void print_file(const char *path)
{
    FILE *file = fopen(path, "re");
    char text[4096];
    size_t got;

    while (file != NULL && (got = fread(text, 1, sizeof(text), file)) > 0) {
        (void)fwrite(text, 1, got, stderr);
    }
    if (file != NULL) {
        (void)fclose(file);
    }
}

static void print_logs(void)
{
    DIR *dir = opendir(folder);
    const struct dirent *entry;
    char path[BENCH_FOLDER_BYTES + sizeof(entry->d_name) + 1];

    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        const char *end = strrchr(entry->d_name, '.');

        if (end != NULL && strcmp(end, ".log") == 0) {
            (void)snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
            fprintf(stderr, "%s:\n", entry->d_name);
            print_file(path);
        }
    }
    if (dir != NULL) {
        (void)closedir(dir);
    }
}

void bench_must_listen(pid_t pid, const char *socket_path)
{
    if (!bench_daemon_listens(pid, socket_path)) {
        print_logs(); /* they go with the folder */
        bench_die("nobody listens at %s; the logs above say why", socket_path);
    }
}
