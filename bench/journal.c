/*
 * `plasmon bench journal`: what a head that can be killed costs, and how soon it goes on.
 *
 * Two clusters at once, each a head and a store with a CPU device, the one with a journal in a
 * Redis of its own (appendfsync everysec) and the other without. Rounds are taken in turns, so what
 * else the machine does is in both. CPU is that of the whole processes, gRPC included. At the end
 * the head with the journal is killed while many objects exist, and started again.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "bench/daemons.h"

#define TASKS_DEFAULT   20000u
#define OBJECTS_DEFAULT 100000u
#define ROUNDS          7u
#define DEATHS          3u
#define WARM_UP         500u
#define OBJECTS_A_WAIT  5000u

struct journal_options {
    uint32_t tasks;
    uint32_t objects;
    const char *redis;
    const char *appendfsync;
    const char *json;
};

#define OPTION(field) offsetof(struct journal_options, field)
static const struct cli_option options[] = {
    {"--tasks", "N", CLI_COUNT, OPTION(tasks), "tasks of a round [20000]"},
    {"--objects", "N", CLI_COUNT, OPTION(objects),
     "objects that exist when the head is killed [100000]"},
    {"--redis", "FILE", CLI_TEXT, OPTION(redis),
     "redis-server, which is started [/usr/bin/redis-server]"},
    {"--appendfsync", "WHEN", CLI_TEXT, OPTION(appendfsync),
     "its setting: everysec, always or no [everysec]"},
    {"--json", "FILE", CLI_OUTPUT, OPTION(json), "write the results as JSON"},
};

static int run_journal(int argc, char **argv);
const struct cli_command bench_journal = {
    .name    = "bench journal",
    .summary = "tasks with a journal and without; a head that is killed and goes on",
    .usage   = "[options]",
    .text    = "Starts clusters and a Redis of its own, which nobody else can reach. See "
               "docs/journal.md.",
    .options = options,
    .option_count = PL_COUNT(options),
    .run          = run_journal,
};

/* One of the two. */
struct side {
    const char *name; /* "plain", "journal" */
    char address[96]; /* of the head */
    char url[128];    /* "": no journal */
    pid_t head, store;
    struct bench_cluster cluster;
    double seconds[ROUNDS];  /* a round of many */
    double cpu_us[ROUNDS];   /* of the head, a task of many */
    double sync_cpu[ROUNDS]; /* a task alone */
    double *trips;           /* seconds of single tasks */
};

struct journal {
    const struct journal_options *given;
    struct bench_report report;
    const char *folder;
    pid_t redis;
    char redis_socket[96];
    struct side plain, logged;
    uint32_t trips; /* of each side, so far */
    uint64_t redis_ns;
    struct plasmon_ref **refs;
};

/* ------------------------------------------------------------------------ the processes */

static void start_redis(struct journal *journal)
{
    const char *argv[] = {journal->given->redis,
                          "--port",
                          "0",
                          "--unixsocket",
                          journal->redis_socket,
                          "--dir",
                          journal->folder,
                          "--save",
                          "",
                          "--appendonly",
                          "yes",
                          "--appendfsync",
                          journal->given->appendfsync,
                          NULL};

    if (access(argv[0], X_OK) != 0) {
        bench_die("there is no %s; install Redis, or name it with --redis", argv[0]);
    }
    (void)snprintf(journal->redis_socket, sizeof(journal->redis_socket), "%s/redis",
                   journal->folder);
    journal->redis = bench_must_daemon("redis.log", argv);
    bench_must_listen(journal->redis, journal->redis_socket);
}

/* Whether it listens is not waited for: that belongs to what is measured when it is started again. */
static void start_head(struct side *side)
{
    char path[256], log[32];
    const char *argv[] = {path, "--listen", side->address, "--journal", side->url, NULL};

    bench_must_find("plasmon-head", path);
    if (side->url[0] == '\0') {
        argv[3] = NULL;
    }
    (void)snprintf(log, sizeof(log), "head-%s.log", side->name);
    side->head = bench_must_daemon(log, argv);
}

static void start_side(struct journal *journal, struct side *side, const char *name)
{
    char path[256], log[32], sockets[96];
    const char *argv[] = {path,    "--head",          side->address, "--socket-dir",
                          sockets, "--gpus",          "none",        "--cpu-devices",
                          "1",     "--device-memory", "512M",        NULL};

    side->name = name;
    (void)snprintf(side->address, sizeof(side->address), "unix:%s/%s", journal->folder,
                   name);
    start_head(side);
    bench_must_listen(side->head, side->address + strlen("unix:"));
    (void)snprintf(sockets, sizeof(sockets), "%s/%s.d", journal->folder, name);
    (void)snprintf(log, sizeof(log), "store-%s.log", name);
    if (mkdir(sockets, 0700) != 0) {
        bench_die("cannot make the folder %s", sockets);
    }
    bench_must_find("plasmon-store", path);
    side->store = bench_must_daemon(log, argv);
    if (setenv("PLASMON_ADDRESS", side->address, 1) != 0) {
        bench_die("no memory");
    }
    bench_must_wait_devices();
    bench_must_start(&side->cluster, &(struct bench_cluster_config){0});
}

/* -------------------------------------------------------------------- what a task costs */

/* `count` tasks, up to `depth` of them not waited for; seconds. */
static double run_tasks(struct journal *journal, struct side *side, uint32_t count,
                        uint32_t depth)
{
    uint64_t began = pl_now_ns();

    for (uint32_t done = 0; done < count; done += depth) {
        for (uint32_t i = 0; i < depth; i++) {
            journal->refs[i] =
                bench_must_task(&side->cluster, "noop", NULL, 0, NULL, 0, PLASMON_ANYWHERE);
        }
        bench_must_wait(&side->cluster, journal->refs, depth);
        bench_must_release(&side->cluster, journal->refs, depth);
    }
    return (double)(pl_now_ns() - began) * 1e-9;
}

static void take_round(struct journal *journal, struct side *side, uint32_t round)
{
    uint32_t tasks = journal->given->tasks, trips = tasks / 20 + 1;
    uint64_t before = bench_daemon_cpu_ns(side->head), between, after;
    uint64_t redis  = bench_daemon_cpu_ns(journal->redis);

    side->seconds[round] = run_tasks(journal, side, tasks, tasks);
    between              = bench_daemon_cpu_ns(side->head);
    if (side == &journal->logged) {
        journal->redis_ns += bench_daemon_cpu_ns(journal->redis) - redis;
    }
    for (uint32_t i = 0; i < trips; i++) {
        side->trips[round * trips + i] = run_tasks(journal, side, 1, 1);
    }
    after                 = bench_daemon_cpu_ns(side->head);
    side->cpu_us[round]   = (double)(between - before) * 1e-3 / tasks;
    side->sync_cpu[round] = (double)(after - between) * 1e-3 / trips;
    journal->trips        = (round + 1) * trips;
}

static void add_row(struct journal *journal, const char *name, const char *unit,
                    double logged, double plain, const char *note)
{
    struct bench_row row = {.unit       = unit,
                            .value      = logged,
                            .limit      = plain,
                            .limit_name = "the same without a journal"};

    (void)snprintf(row.name, sizeof(row.name), "%s", name);
    (void)snprintf(row.note, sizeof(row.note), "%s", note);
    bench_report_add(&journal->report, &row);
}

static void add_costs(struct journal *journal)
{
    struct side *logged = &journal->logged, *plain = &journal->plain;
    double tasks   = journal->given->tasks;
    double with    = bench_percentile(logged->cpu_us, ROUNDS, 0.5);
    double without = bench_percentile(plain->cpu_us, ROUNDS, 0.5);

    add_row(journal, "tasks_sync_p50", "us",
            bench_percentile(logged->trips, journal->trips, 0.5) * 1e6,
            bench_percentile(plain->trips, journal->trips, 0.5) * 1e6,
            "one task and its answer");
    add_row(journal, "tasks_sync_p99", "us",
            bench_percentile(logged->trips, journal->trips, 0.99) * 1e6,
            bench_percentile(plain->trips, journal->trips, 0.99) * 1e6, "");
    add_row(journal, "tasks_async", "1/s",
            tasks / bench_percentile(logged->seconds, ROUNDS, 0.5),
            tasks / bench_percentile(plain->seconds, ROUNDS, 0.5), "many tasks in flight");
    add_row(journal, "head_process_cpu_per_task", "us", with, without,
            "many in flight; all threads, gRPC and kernel included");
    bench_report_add(&journal->report,
                     &(struct bench_row){.name       = "journal_cpu_per_task",
                                         .unit       = "us",
                                         .value      = with - without,
                                         .limit      = 1,
                                         .limit_name = "the target",
                                         .target     = 1,
                                         .note       = "the difference of the two before"});
    add_row(journal, "head_process_cpu_per_task_sync", "us",
            bench_percentile(logged->sync_cpu, ROUNDS, 0.5),
            bench_percentile(plain->sync_cpu, ROUNDS, 0.5), "one in flight");
    bench_report_add(
        &journal->report,
        &(struct bench_row){.name  = "redis_cpu_per_task",
                            .unit  = "us",
                            .value = (double)journal->redis_ns * 1e-3 / (tasks * ROUNDS),
                            .note  = "many in flight"});
}

static void measure_costs(struct journal *journal)
{
    struct side *sides[2] = {&journal->plain, &journal->logged};

    for (uint32_t i = 0; i < 2; i++) {
        size_t trips    = ROUNDS * (journal->given->tasks / 20 + 1);
        sides[i]->trips = bench_must_alloc(trips * sizeof(double));
        (void)run_tasks(journal, sides[i], WARM_UP, 1);
        (void)run_tasks(journal, sides[i], journal->given->tasks, journal->given->tasks);
    }
    for (uint32_t round = 0; round < ROUNDS; round++) {
        for (uint32_t i = 0; i < 2; i++) {
            take_round(journal, sides[(i + round) % 2], round);
        }
    }
    add_costs(journal);
    for (uint32_t i = 0; i < 2; i++) {
        pl_free(sides[i]->trips);
    }
}

/* ------------------------------------------------------------------ how soon it goes on */

static void make_objects(struct journal *journal, struct plasmon_ref **objects)
{
    const struct plasmon_shape shape = bench_shape(PLASMON_F32, 1, 16, 0);
    uint32_t count                   = journal->given->objects;

    for (uint32_t i = 0; i < count; i++) {
        const plasmon_scalar_t value = {.f = (double)(i % 1000)};

        objects[i] = bench_must_make(&journal->logged.cluster, "fill", &shape, &value, 1,
                                     PLASMON_ANYWHERE);
        if ((i + 1) % OBJECTS_A_WAIT == 0 || i + 1 == count) {
            uint32_t first = i / OBJECTS_A_WAIT * OBJECTS_A_WAIT;

            bench_must_wait(&journal->logged.cluster, objects + first, i + 1 - first);
        }
    }
}

static void check_object(struct journal *journal, struct plasmon_ref *ref, uint32_t index)
{
    float got[16];

    bench_must(
        &journal->logged.cluster,
        plasmon_get(journal->logged.cluster.client, ref, got, sizeof(got), PLASMON_FOREVER),
        "getting an object that was there before");
    for (size_t i = 0; i < PL_COUNT(got); i++) {
        if (got[i] != (float)(index % 1000)) {
            bench_die("object %u has %g in it after the head was killed", index,
                      (double)got[i]);
        }
    }
}

/* From the death of one head to the end of a task that the next one was given. */
static void measure_deaths(struct journal *journal)
{
    uint32_t count               = journal->given->objects;
    struct plasmon_ref **objects = bench_must_alloc(count * sizeof(struct plasmon_ref *));
    double seconds[DEATHS], cpu[DEATHS];
    struct bench_row row = {.name       = "head_killed_to_next_task",
                            .unit       = "s",
                            .limit      = 2,
                            .limit_name = "the target",
                            .target     = 1};

    make_objects(journal, objects);
    for (uint32_t i = 0; i < DEATHS; i++) {
        uint64_t began = pl_now_ns();

        bench_daemon_kill(journal->logged.head);
        start_head(&journal->logged);
        (void)run_tasks(journal, &journal->logged, 1, 1);
        seconds[i] = (double)(pl_now_ns() - began) * 1e-9;
        cpu[i]     = (double)bench_daemon_cpu_ns(journal->logged.head) * 1e-9;
        for (uint32_t j = 0; j < count; j += count / 100 + 1) {
            check_object(journal, objects[j], j);
        }
    }
    row.value = bench_percentile(seconds, DEATHS, 0.5);
    row.p99   = bench_percentile(seconds, DEATHS, 1);
    (void)snprintf(row.note, sizeof(row.note), "SIGKILL with %u objects, and a new process",
                   count);
    bench_report_add(&journal->report, &row);
    bench_report_add(&journal->report,
                     &(struct bench_row){.name  = "next_head_cpu",
                                         .unit  = "s",
                                         .value = bench_percentile(cpu, DEATHS, 0.5),
                                         .note  = "until then"});
    bench_must_release(&journal->logged.cluster, objects, count);
    pl_free(objects);
}

/* -------------------------------------------------------------------------- the command */

static int run_journal(int argc, char **argv)
{
    struct journal_options given = {.tasks       = TASKS_DEFAULT,
                                    .objects     = OBJECTS_DEFAULT,
                                    .redis       = "/usr/bin/redis-server",
                                    .appendfsync = "everysec"};
    struct cli_parsed parsed     = cli_parse(&bench_journal, argc, argv, &given);
    struct journal journal       = {.given = &given};
    bool ok;

    if (parsed.exit >= 0) {
        return parsed.exit;
    }
    if (given.tasks < 1000 || given.objects < 1) {
        return cli_usage(&bench_journal,
                         "--tasks is at least 1000 and --objects at least 1");
    }
    journal.folder = bench_must_folder();
    journal.refs   = bench_must_alloc(given.tasks * sizeof(struct plasmon_ref *));
    start_redis(&journal);
    (void)snprintf(journal.logged.url, sizeof(journal.logged.url),
                   "unix:%s?prefix=bench:", journal.redis_socket);
    start_side(&journal, &journal.plain, "plain");
    start_side(&journal, &journal.logged, "journal");
    bench_report_init(&journal.report, "Plasmon: a head with a journal");
    measure_costs(&journal);
    measure_deaths(&journal);

    bench_report_print(&journal.report);
    ok = bench_report_write_json(&journal.report, given.json);
    bench_report_finish(&journal.report);
    bench_cluster_finish(&journal.plain.cluster);
    bench_cluster_finish(&journal.logged.cluster);
    pl_free(journal.refs);
    return ok ? CLI_OK : CLI_FAIL;
}
