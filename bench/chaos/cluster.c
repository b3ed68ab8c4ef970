/*
 * The processes of a cluster: all of them children of ours, which the kernel kills with us; a
 * worker is its store's child and ends when that was gone for its lease. Logs are in the folder.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "bench/chaos/chaos.h"
#include "client/spawn.h"

#define UP_NS           60000000000ull
#define END_NS          60000000000ull
#define ARGS_MAX        32
#define LOG_INFO_LEVEL  2    /* of plasmon_set_log() */
#define BOARD_FD        3    /* in a player */
#define LEASE_S         "60" /* what is away is on its way, on a slow machine too */
#define JOURNAL_LEASE_S "1"  /* of a head beside which another one stands by */
#define REPLACED        4    /* a head's exit status: another one goes on */
#define NAP_NS          2000000

static void nap(void)
{
    const struct timespec pause = {.tv_nsec = NAP_NS};

    (void)nanosleep(&pause, NULL);
}

static void path_in(const struct chaos_cluster *cluster, const char *name,
                    char out[CHAOS_PATH_BYTES])
{
    (void)snprintf(out, CHAOS_PATH_BYTES, "%s/%s", cluster->dir, name);
}

static void log_line(void *user, int level, const char *module, const char *text)
{
    FILE *file      = user;
    uint64_t now_ms = pl_realtime_ns() / 1000000;

    (void)level;
    fprintf(file, "%llu.%03llu %s: %s\n", (unsigned long long)(now_ms / 1000),
            (unsigned long long)(now_ms % 1000), module, text);
    (void)fflush(file);
}

void chaos_log_to(FILE *file)
{
    plasmon_set_log(log_line, file, LOG_INFO_LEVEL);
}

/* ----------------------------------------------------------------------------- starting */

/* argv[0] is the program's path; its output goes to the log. fd: becomes BOARD_FD there; -1: none. */
static pid_t must_run(const struct chaos_cluster *cluster, const char *const *argv,
                      const char *log, int fd)
{
    char path[CHAOS_PATH_BYTES];

    path_in(cluster, log, path);
    return bench_must_run(path, argv, fd, BOARD_FD);
}

static const char *must_find(const char *name, char out[4096])
{
    struct pl_err err = {0};

    if (spawn_find(name, NULL, out, 4096, &err) != PLASMON_OK) {
        bench_die("%s", err.text);
    }
    return out;
}

static void must_listen(const struct chaos_cluster *cluster, const char *name, pid_t pid)
{
    char path[CHAOS_PATH_BYTES];

    path_in(cluster, name, path);
    if (!bench_daemon_listens(pid, path)) {
        bench_die("nobody listens at %s; the logs beside it say why", path);
    }
}

/* In $PATH. */
static bool find_redis(char out[4096])
{
    const char *list = getenv("PATH");

    while (list != NULL && *list != '\0') {
        int length = (int)strcspn(list, ":");

        (void)snprintf(out, 4096, "%.*s/redis-server", length, list);
        if (length > 0 && access(out, X_OK) == 0) {
            return true;
        }
        list += length + (list[length] == ':');
    }
    return false;
}

bool chaos_has_redis(void)
{
    char path[4096];

    return find_redis(path);
}

void chaos_start_redis(struct chaos_cluster *cluster)
{
    char path[4096], at[CHAOS_PATH_BYTES];
    const char *argv[] = {
        path,         "--port", "0", "--unixsocket", at,    "--dir",
        cluster->dir, "--save", "",  "--appendonly", "yes", "--appendfsync",
        "everysec",   NULL};

    if (!find_redis(path)) {
        bench_die("redis-server is gone from $PATH");
    }
    path_in(cluster, "redis.sock", at);
    cluster->redis = must_run(cluster, argv, "redis.log", -1);
}

/* All that are started write to one log, one after another. */
static pid_t start_head(struct chaos_cluster *cluster, bool stands_by)
{
    char path[4096], journal[CHAOS_PATH_BYTES + 32], lineage[32];
    const char *argv[ARGS_MAX] = {must_find("plasmon-head", path),
                                  "--listen",
                                  cluster->address,
                                  "--lineage-bytes",
                                  lineage,
                                  "--node-lease",
                                  LEASE_S};
    uint32_t count             = 7;

    (void)snprintf(lineage, sizeof(lineage), "%llu",
                   (unsigned long long)cluster->config.lineage_mib << 20);
    (void)snprintf(journal, sizeof(journal),
                   "unix:%s/redis.sock?prefix=chaos:", cluster->dir);
    if (cluster->config.journal) {
        argv[count++] = "--journal";
        argv[count++] = journal;
    }
    if (cluster->config.standby) {
        argv[count++] = "--journal-lease";
        argv[count++] = JOURNAL_LEASE_S;
    }
    if (stands_by) {
        argv[count++] = "--standby";
    }
    if (cluster->config.transfer != NULL) {
        argv[count++] = "--transfer";
        argv[count++] = cluster->config.transfer;
    }
    if (cluster->config.nccl_bytes != NULL) {
        argv[count++] = "--nccl-bytes";
        argv[count++] = cluster->config.nccl_bytes;
    }
    return must_run(cluster, argv, "head.log", -1);
}

void chaos_start_head(struct chaos_cluster *cluster)
{
    cluster->head = start_head(cluster, false);
}

void chaos_follow_head(struct chaos_cluster *cluster)
{
    if (cluster->standby <= 0) {
        chaos_start_head(cluster);
        return;
    }
    cluster->head    = cluster->standby;
    cluster->standby = start_head(cluster, true);
}

void chaos_start_store(struct chaos_cluster *cluster)
{
    char path[4096], sockets[CHAOS_PATH_BYTES], spill[CHAOS_PATH_BYTES + 8], count[16];
    const char *argv[] = {must_find("plasmon-store", path),
                          "--head",
                          cluster->relayed,
                          "--gpus",
                          cluster->config.gpus,
                          "--cpu-devices",
                          count,
                          "--device-memory",
                          cluster->config.device_memory,
                          "--spill-memory",
                          "64M",
                          "--spill-dir",
                          spill,
                          "--socket-dir",
                          sockets,
                          "--bulk-address",
                          "none",
                          "--worker-lease",
                          "5000",
                          "--store-lease",
                          LEASE_S "000",
                          "--drain-deadline",
                          "0",
                          "--spare-workers",
                          cluster->config.spares != NULL ? cluster->config.spares : "none",
                          "--allow-source",
                          NULL};

    path_in(cluster, "sockets", sockets);
    (void)snprintf(spill, sizeof(spill), "%s/spill:64M", cluster->dir);
    (void)snprintf(count, sizeof(count), "%u", cluster->config.cpu_devices);
    cluster->store = must_run(cluster, argv, "store.log", -1);
}

void chaos_start_player(struct chaos_cluster *cluster, uint32_t slot)
{
    char number[16], log[32];
    const char *argv[] = {"/proc/self/exe", "bench", "chaos", "--play", number, NULL};

    (void)snprintf(number, sizeof(number), "%u", slot);
    (void)snprintf(log, sizeof(log), "client%u.log", slot);
    cluster->board->slot[slot].seed =
        cluster->board->slot[slot].seed * 6364136223846793005u + 1442695040888963407u;
    cluster->player[slot] = must_run(cluster, argv, log, cluster->board_fd);
}

/* ---------------------------------------------------------------------------- the whole */

bool chaos_complete(struct chaos_config *config)
{
    static char all[16];
    uint32_t gpus = bench_machine_gpus();
    char *end;

    if (config->gpus == NULL) {
        (void)snprintf(all, sizeof(all), "%u",
                       gpus < STRESS_DEVICES_MAX ? gpus : (uint32_t)STRESS_DEVICES_MAX);
        config->gpus = gpus > 0 ? all : "none";
    }
    if (config->clients == 0 || config->clients > CHAOS_CLIENTS_MAX ||
        config->cpu_devices == 0 || config->cpu_devices > STRESS_DEVICES_MAX) {
        return false;
    }
    if (strcmp(config->gpus, "none") != 0) {
        unsigned long asked = strtoul(config->gpus, &end, 10);

        if (asked == 0 || asked > STRESS_DEVICES_MAX || *end != '\0') {
            return false;
        }
        config->cpu_devices = 0; /* one kind is enough */
    }
    if (config->device_memory == NULL) {
        config->device_memory = config->cpu_devices == 0 ? "2G" : "128M";
    }
    return true;
}

bool chaos_take_seed(const char *text, uint64_t *out_seed)
{
    char *end;

    if (text == NULL) {
        *out_seed = pl_realtime_ns() / 1000 % 1000000007;
        return true;
    }
    *out_seed = strtoull(text, &end, 10);
    return *text >= '0' && *text <= '9' && *end == '\0';
}

static void must_make_board(struct chaos_cluster *cluster)
{
    void *memory = NULL;
    int low      = -1;

    /* Not BOARD_FD, where it is to be in players. */
    if (pl_memfd_create("plasmon-chaos", sizeof(struct chaos_board), &low) != PLASMON_OK ||
        (cluster->board_fd = fcntl(low, F_DUPFD_CLOEXEC, 10)) < 0 ||
        pl_fd_map(cluster->board_fd, sizeof(struct chaos_board), true, &memory) !=
            PLASMON_OK) {
        bench_die("no shared memory: %s", strerror(errno));
    }
    pl_fd_close(&low);
    cluster->board               = memory;
    cluster->board->devices      = cluster->devices;
    cluster->board->source_count = STRESS_SOURCES;
    cluster->board->gpu          = strcmp(cluster->config.gpus, "none") != 0;
    cluster->board->large_bytes  = cluster->board->gpu ? UINT64_C(256) << 20 : 16u << 20;
    (void)snprintf(cluster->board->address, sizeof(cluster->board->address), "%s",
                   cluster->address);
}

/* A client that knows all devices: one that came before them does not. */
static void must_join(struct chaos_cluster *cluster)
{
    struct plasmon_options options = PLASMON_OPTIONS_INIT;
    uint64_t began_ns              = pl_now_ns();
    struct chaos_late late         = {0};

    options.address            = cluster->address;
    options.label              = "chaos";
    options.connect_timeout_ms = 60000;
    for (;;) {
        uint32_t count = 0;

        if (plasmon_init(&options, &cluster->client) != PLASMON_OK) {
            bench_die("joining the cluster: %s", plasmon_error(NULL));
        }
        if (plasmon_devices(cluster->client, NULL, 0, &count) == PLASMON_OK &&
            count >= cluster->devices && chaos_watch_devices(cluster)) {
            return;
        }
        if (pl_now_ns() - began_ns > UP_NS) {
            bench_die("%u of %u devices came up; %s/store.log may say why", count,
                      cluster->devices, cluster->dir);
        }
        if (chaos_late(&late, began_ns, pl_now_ns())) {
            chaos_say(cluster, "%u of %u devices are up; %s/store.log may say why", count,
                      cluster->devices, cluster->dir);
        }
        plasmon_finish(cluster->client);
        nap();
    }
}

void chaos_must_start(struct chaos_cluster *cluster, const struct chaos_config *config)
{
    FILE *log;
    char from[CHAOS_PATH_BYTES], to[CHAOS_PATH_BYTES], path[CHAOS_PATH_BYTES];

    *cluster = (struct chaos_cluster){
        .config = *config, .board_fd = -1, .started_ns = pl_now_ns()};
    cluster->devices = strcmp(config->gpus, "none") != 0
                           ? (uint32_t)strtoul(config->gpus, NULL, 10)
                           : config->cpu_devices;
    bench_must_make_folder(cluster->dir);
    path_in(cluster, "spill", path);
    if (mkdir(path, 0700) != 0) {
        bench_die("cannot make %s: %s", path, strerror(errno));
    }
    (void)snprintf(cluster->address, sizeof(cluster->address), "unix:%s/head.sock",
                   cluster->dir);
    (void)snprintf(cluster->relayed, sizeof(cluster->relayed), "unix:%s/relay.sock",
                   cluster->dir);
    path_in(cluster, "chaos.log", path);
    log = fopen(path, "we");
    if (log == NULL) {
        bench_die("cannot write %s: %s", path, strerror(errno));
    }
    chaos_log_to(log); /* until this process ends */
    must_make_board(cluster);
    if (config->journal) {
        chaos_start_redis(cluster);
        must_listen(cluster, "redis.sock", cluster->redis);
    }
    chaos_start_head(cluster);
    must_listen(cluster, "head.sock", cluster->head);
    path_in(cluster, "relay.sock", from);
    path_in(cluster, "head.sock", to);
    cluster->relay = chaos_relay_create(from, to);
    if (cluster->relay == NULL) {
        bench_die("cannot listen at %s: %s", from, strerror(errno));
    }
    chaos_start_store(cluster);
    must_join(cluster);
    if (config->standby) { /* the other one has the lease */
        cluster->standby = start_head(cluster, true);
    }
    chaos_say(cluster, "%u devices are up; logs are in %s", cluster->devices, cluster->dir);
}

/* ------------------------------------------------------------------------------- ending */

bool chaos_has_ended(pid_t pid, int *out_status)
{
    return pid > 0 && waitpid(pid, out_status, WNOHANG) == pid;
}

void chaos_kill(pid_t *io_pid)
{
    int status;

    if (*io_pid > 0) {
        (void)kill(*io_pid, SIGKILL); /* it may have ended by itself */
        (void)waitpid(*io_pid, &status, 0);
        *io_pid = 0;
    }
}

static const char *ended_by(const char *name, int status, char text[CHAOS_ENDED_BYTES])
{
    (void)snprintf(text, CHAOS_ENDED_BYTES, "%s %s %d", name,
                   WIFSIGNALED(status) ? "was ended by signal"
                                       : "ended by itself with status",
                   WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    return text;
}

const char *chaos_ended(pid_t *io_pid, const char *name, char text[CHAOS_ENDED_BYTES])
{
    int status;

    if (!chaos_has_ended(*io_pid, &status)) {
        return NULL;
    }
    *io_pid = 0;
    return ended_by(name, status, text);
}

/* One that stood still, or had no Redis, for longer than its lease may find that the other one goes on. */
static const char *head_ended(struct chaos_cluster *cluster, char text[CHAOS_ENDED_BYTES])
{
    int status;

    if (!chaos_has_ended(cluster->head, &status)) {
        return NULL;
    }
    cluster->head = 0;
    if (cluster->standby > 0 && WIFEXITED(status) && WEXITSTATUS(status) == REPLACED) {
        chaos_say(cluster, "the head that stood by goes on");
        chaos_follow_head(cluster);
        return NULL;
    }
    return ended_by("plasmon-head", status, text);
}

const char *chaos_who_ended(struct chaos_cluster *cluster)
{
    static char text[CHAOS_ENDED_BYTES];
    const char *who = chaos_ended(&cluster->redis, "redis-server", text);

    who = who != NULL ? who : head_ended(cluster, text);
    who = who != NULL
              ? who
              : chaos_ended(&cluster->standby, "plasmon-head, which stood by,", text);
    return who != NULL ? who : chaos_ended(&cluster->store, "plasmon-store", text);
}

bool chaos_end_daemon(const struct chaos_cluster *cluster, pid_t *io_pid, const char *name)
{
    uint64_t began_ns      = pl_now_ns();
    struct chaos_late late = {0};
    int status             = 0;

    if (*io_pid <= 0) {
        return true;
    }
    (void)kill(*io_pid, SIGTERM);
    while (!chaos_has_ended(*io_pid, &status)) {
        if (pl_now_ns() - began_ns > END_NS) {
            fprintf(stderr, "plasmon bench: %s does not end by SIGTERM\n", name);
            chaos_kill(io_pid);
            return false;
        }
        if (chaos_late(&late, began_ns, pl_now_ns())) {
            chaos_say(cluster, "%s has not ended yet", name);
        }
        nap();
    }
    *io_pid = 0;
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        fprintf(stderr, "plasmon bench: %s ended by SIGTERM with %s %d\n", name,
                WIFEXITED(status) ? "status" : "signal",
                WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
        return false;
    }
    return true;
}

bool chaos_cluster_end(struct chaos_cluster *cluster, bool keep)
{
    bool good = true;

    for (uint32_t i = 0; i < CHAOS_CLIENTS_MAX; i++) {
        chaos_kill(&cluster->player[i]);
    }
    chaos_kill(&cluster->doctor);
    plasmon_finish(cluster->client);
    good = chaos_end_daemon(cluster, &cluster->store, "plasmon-store");
    good = chaos_end_daemon(cluster, &cluster->standby, "plasmon-head --standby") && good;
    good = chaos_end_daemon(cluster, &cluster->head, "plasmon-head") && good;
    for (uint32_t i = 0; i < cluster->devices; i++) {
        pid_t worker = chaos_worker(cluster, i);

        if (!good && worker > 0) {
            (void)kill(worker, SIGKILL); /* of a store that did not end it */
        }
    }
    (void)chaos_end_daemon(cluster, &cluster->redis,
                           "redis-server"); /* is not ours to judge */
    chaos_unwatch_devices(cluster);
    chaos_relay_destroy(cluster->relay);
    pl_fd_unmap(cluster->board, sizeof(struct chaos_board));
    pl_fd_close(&cluster->board_fd);
    if (keep) {
        fprintf(stderr, "plasmon bench: logs are in %s\n", cluster->dir);
    } else {
        bench_remove_folder(cluster->dir);
    }
    return good;
}
