/*
 * `plasmon bench hostile`: how fast an honest client is beside peers that are up to no good.
 *
 * A cluster of its own (a head, a store with a CPU device), a client of this process, and a thread that is one enemy at a time. Rounds with and
 * without the enemy are taken in turns, so what else the machine does is in both. What an enemy does a second is bounded (RATE): the
 * question is what it costs the head to deal with it, not who gets more of the processor. The results of tasks are right at the end, or it fails.
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/alloc.h"
#include "bench/daemons.h"
#include "client/spawn.h"

#define TASKS_DEFAULT 1000u
#define BURST_DEFAULT 50000u
#define ROUNDS        5u
#define RATE          1000u /* connections, or bytes that dribble, a second */
#define SILENT        500u
#define STEP_MS       10
#define TARGET        0.8

struct hostile_options {
    uint32_t tasks;
    uint32_t burst;
    const char *json;
};

#define OPTION(field) offsetof(struct hostile_options, field)
static const struct cli_option options[] = {
    {"--tasks", "N", CLI_COUNT, OPTION(tasks), "tasks of a round, each waited for [1000]"},
    {"--burst", "N", CLI_COUNT, OPTION(burst), "tasks of a round, many in flight [50000]"},
    {"--json", "FILE", CLI_TEXT, OPTION(json), "write the results as JSON"},
};

static int run_hostile(int argc, char **argv);
const struct cli_command bench_hostile = {
    .name         = "bench hostile",
    .summary      = "an honest client beside floods, dribbled bytes and rubbish",
    .usage        = "[options]",
    .text         = "Starts a cluster of its own, which nobody else can reach. See "
                    "docs/security.md.",
    .options      = options,
    .option_count = PL_COUNT(options),
    .run          = run_hostile,
};

struct hostile {
    const struct hostile_options *given;
    struct bench_report report;
    const char *folder;
    char address[96];
    struct bench_cluster cluster;
    struct plasmon_ref **refs;
    atomic_bool stop; /* the enemy ends */
};

/* ------------------------------------------------------------------------------------------------ enemies */

static int connect_head(const struct hostile *hostile)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    int fd                = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    (void)snprintf(to.sun_path, sizeof(to.sun_path), "%s",
                   hostile->address + strlen("unix:"));
    if (fd >= 0 && connect(fd, (const struct sockaddr *)&to, sizeof(to)) != 0) {
        (void)close(fd);
        fd = -1; /* its queue is full: as well */
    }
    return fd;
}

/* Says one byte of what a client begins with (all of it: 24), from `at` on. false: it was hung up on. */
static bool say_byte(int fd, unsigned at)
{
    static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    char answer[64];

    if (at < sizeof(preface) - 1 && send(fd, preface + at, 1, MSG_NOSIGNAL) < 0 &&
        errno != EAGAIN) {
        return false;
    }
    return recv(fd, answer, sizeof(answer), MSG_DONTWAIT) != 0;
}

static void pause_step(void)
{
    (void)poll(NULL, 0, STEP_MS);
}

/* Connections that come and go. */
static void *flood(void *user)
{
    struct hostile *hostile = user;

    while (!atomic_load(&hostile->stop)) {
        for (unsigned i = 0; i < RATE * STEP_MS / 1000; i++) {
            int fd = connect_head(hostile);

            if (fd >= 0) {
                (void)close(fd);
            }
        }
        pause_step();
    }
    return NULL;
}

/* Connections that stay; bytes: each says one now and then. */
static void stay(struct hostile *hostile, bool bytes)
{
    static int fds[SILENT];
    static unsigned said[SILENT];
    unsigned next = 0;

    for (unsigned i = 0; i < SILENT; i++) {
        fds[i]  = -1;
        said[i] = 0;
    }
    while (!atomic_load(&hostile->stop)) {
        for (unsigned i = 0; i < RATE * STEP_MS / 1000; i++, next = (next + 1) % SILENT) {
            if (fds[next] < 0) {
                fds[next]  = connect_head(hostile);
                said[next] = 0;
            } else if (bytes && !say_byte(fds[next], said[next]++)) {
                (void)close(fds[next]);
                fds[next] = -1;
            }
        }
        pause_step();
    }
    for (unsigned i = 0; i < SILENT; i++) {
        if (fds[i] >= 0) {
            (void)close(fds[i]);
        }
    }
}

static void *silent(void *user)
{
    stay(user, false);
    return NULL;
}

static void *dribble(void *user)
{
    stay(user, true);
    return NULL;
}

/* What is no HTTP/2, all at once. */
static void *rubbish(void *user)
{
    struct hostile *hostile = user;
    uint8_t bytes[4096];
    uint32_t state = 1;

    while (!atomic_load(&hostile->stop)) {
        for (unsigned i = 0; i < RATE * STEP_MS / 1000 / 2; i++) {
            int fd = connect_head(hostile);

            for (size_t at = 0; at < sizeof(bytes); at++) {
                state     = state * 1664525u + 1013904223u;
                bytes[at] = (uint8_t)(state >> 24);
            }
            if (fd >= 0) {
                (void)!send(fd, bytes, sizeof(bytes), MSG_NOSIGNAL); /* it may be cut off */
                (void)close(fd);
            }
        }
        pause_step();
    }
    return NULL;
}

static const struct enemy {
    const char *name;
    void *(*run)(void *user);
    const char *note;
} enemies[] = {
    {"flood", flood, "1000 connections a second, closed at once"},
    {"silent", silent, "500 connections that say nothing"},
    {"dribble", dribble, "500 connections, each a byte every half second"},
    {"rubbish", rubbish, "500 connections a second, each with 4 KiB of noise"},
};

/* ------------------------------------------------------------------------------------------------ the honest one */

static double run_tasks(struct hostile *hostile, uint32_t count, uint32_t depth)
{
    uint64_t began = pl_now_ns();

    for (uint32_t done = 0; done < count; done += depth) {
        for (uint32_t i = 0; i < depth; i++) {
            hostile->refs[i] = bench_must_task(&hostile->cluster, "noop", NULL, 0, NULL, 0,
                                               PLASMON_ANYWHERE);
        }
        bench_must_wait(&hostile->cluster, hostile->refs, depth);
        bench_must_release(&hostile->cluster, hostile->refs, depth);
    }
    return count / ((double)(pl_now_ns() - began) * 1e-9);
}

static void check_result(struct hostile *hostile)
{
    const struct plasmon_shape shape = bench_shape(PLASMON_F32, 1, 1000, 0);
    const plasmon_scalar_t value     = {.f = 3};
    struct plasmon_ref *ref =
        bench_must_make(&hostile->cluster, "fill", &shape, &value, 1, PLASMON_ANYWHERE);
    float got[1000];

    bench_must(&hostile->cluster,
               plasmon_get(hostile->cluster.client, ref, got, sizeof(got), PLASMON_FOREVER),
               "getting a result beside an enemy");
    for (size_t i = 0; i < PL_COUNT(got); i++) {
        if (got[i] != 3) {
            bench_die("a wrong result beside an enemy: %g", (double)got[i]);
        }
    }
    bench_must_release(&hostile->cluster, &ref, 1);
}

static void add_row(struct hostile *hostile, const struct enemy *enemy, const char *what,
                    double beside, double alone)
{
    struct bench_row row = {.unit       = "1/s",
                            .value      = beside,
                            .limit      = alone,
                            .limit_name = "without the enemy",
                            .target     = -TARGET};

    (void)snprintf(row.name, sizeof(row.name), "tasks_%s_beside_%s", what, enemy->name);
    (void)snprintf(row.note, sizeof(row.note), "%s", enemy->note);
    bench_report_add(&hostile->report, &row);
}

static void measure(struct hostile *hostile, const struct enemy *enemy)
{
    double sync[2][ROUNDS], burst[2][ROUNDS];
    const struct hostile_options *given = hostile->given;

    for (unsigned round = 0; round < 2 * ROUNDS; round++) {
        bool beside = round % 2 != 0;
        pthread_t thread;

        atomic_store(&hostile->stop, false);
        if (beside && pthread_create(&thread, NULL, enemy->run, hostile) != 0) {
            bench_die("no thread for an enemy");
        }
        sync[beside][round / 2]  = run_tasks(hostile, given->tasks, 1);
        burst[beside][round / 2] = run_tasks(hostile, given->burst, given->burst);
        check_result(hostile);
        atomic_store(&hostile->stop, true);
        if (beside) {
            (void)pthread_join(thread, NULL);
        }
    }
    add_row(hostile, enemy, "sync", bench_percentile(sync[1], ROUNDS, 0.5),
            bench_percentile(sync[0], ROUNDS, 0.5));
    add_row(hostile, enemy, "async", bench_percentile(burst[1], ROUNDS, 0.5),
            bench_percentile(burst[0], ROUNDS, 0.5));
}

/* ------------------------------------------------------------------------------------------------ the cluster */

static void must_find(const char *name, char out[256])
{
    struct pl_err err = {0};

    if (spawn_find(name, NULL, out, 256, &err) != PLASMON_OK) {
        bench_die("%s", err.text);
    }
}

static void wait_device(void)
{
    struct plasmon_options to_join = PLASMON_OPTIONS_INIT;
    uint64_t deadline_ns           = pl_now_ns() + UINT64_C(60000000000);
    uint32_t count                 = 0;

    while (count == 0) { /* a client of a head without devices is told so: ask */
        struct plasmon_device_info info;
        struct plasmon_client *client;

        if (pl_now_ns() > deadline_ns || plasmon_init(&to_join, &client) != PLASMON_OK ||
            plasmon_devices(client, &info, 1, &count) != PLASMON_OK) {
            bench_die("the cluster of this benchmark does not start: %s",
                      plasmon_error(NULL));
        }
        plasmon_finish(client);
    }
}

static void start_cluster(struct hostile *hostile)
{
    char head[256], store[256], sockets[96];
    const char *head_argv[]  = {head, "--listen", hostile->address, "--hello-wait",
                                "1",  "--log",    "error",          NULL};
    const char *store_argv[] = {
        store,   "--head",          hostile->address, "--socket-dir",
        sockets, "--gpus",          "none",           "--cpu-devices",
        "1",     "--device-memory", "128M",           NULL};
    pid_t pid;

    (void)snprintf(hostile->address, sizeof(hostile->address), "unix:%s/head",
                   hostile->folder);
    (void)snprintf(sockets, sizeof(sockets), "%s/store.d", hostile->folder);
    must_find("plasmon-head", head);
    must_find("plasmon-store", store);
    pid = bench_must_daemon("head.log", head_argv);
    bench_must_listen(pid, hostile->address + strlen("unix:"));
    if (mkdir(sockets, 0700) != 0 || setenv("PLASMON_ADDRESS", hostile->address, 1) != 0) {
        bench_die("cannot make the folder %s", sockets);
    }
    (void)bench_must_daemon("store.log", store_argv);
    wait_device();
    bench_must_start(&hostile->cluster, &(struct bench_cluster_config){0});
}

static int run_hostile(int argc, char **argv)
{
    struct hostile_options given = {.tasks = TASKS_DEFAULT, .burst = BURST_DEFAULT};
    struct cli_parsed parsed     = cli_parse(&bench_hostile, argc, argv, &given);
    static struct hostile hostile;
    bool written;

    if (parsed.exit >= 0) {
        return parsed.exit;
    }
    if (given.tasks < 1 || given.burst < 1) {
        return cli_usage(&bench_hostile, "--tasks and --burst are at least 1");
    }
    hostile.given  = &given;
    hostile.folder = bench_must_folder();
    hostile.refs   = bench_must_alloc(given.burst * sizeof(struct plasmon_ref *));
    bench_report_init(&hostile.report, "An honest client beside an enemy");
    start_cluster(&hostile);
    (void)run_tasks(&hostile, given.tasks, 1); /* warm */
    (void)run_tasks(&hostile, given.burst, given.burst);
    for (size_t i = 0; i < PL_COUNT(enemies); i++) {
        measure(&hostile, &enemies[i]);
    }
    bench_report_print(&hostile.report);
    written = bench_report_write_json(&hostile.report, given.json);
    bench_cluster_finish(&hostile.cluster);
    bench_report_finish(&hostile.report);
    pl_free(hostile.refs);
    return written ? CLI_OK : CLI_FAIL;
}
