/*
 * `plasmon bench hostile`: how fast an honest client is beside peers that are up to no good.
 *
 * A cluster of its own (a head, a store with a CPU device), a client of this process, and a process
 * that is one enemy at a time. Rounds without the enemy, with the enemy at the head, and with the
 * same enemy at a listener behind which there is nothing are taken in turns, so what else the
 * machine does is in all of them. The last kind is what the enemy costs the machine and not the
 * head: on few processors the enemy's own work is a part of what is missing. What an enemy does a
 * second is bounded (RATE): the question is what it costs the head to deal with it, not who gets
 * more of the processor. The results of tasks are right at the end, or it fails.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "bench/daemons.h"
#include "bench/hostile.h"

#define TASKS_DEFAULT  1000u
#define BURST_DEFAULT  50000u
#define ROUNDS_DEFAULT 7u
#define ROUNDS_MAX     99u
#define TOKEN          "of this benchmark"
#define TARGET         0.8
#define CPU_NS         UINT64_C(2000000000)
/* 500 connections, at 17 KiB each (docs/security.md), eight times over */
#define MEMORY_MIB 64

struct hostile_options {
    uint32_t tasks;
    uint32_t burst;
    uint32_t rounds;
    const char *only;
    const char *json;
};

#define OPTION(field) offsetof(struct hostile_options, field)
static const struct cli_option options[] = {
    {"--tasks", "N", CLI_COUNT, OPTION(tasks), "tasks of a round, each waited for [1000]"},
    {"--burst", "N", CLI_COUNT, OPTION(burst), "tasks of a round, many in flight [50000]"},
    {"--rounds", "N", CLI_COUNT, OPTION(rounds),
     "rounds of each kind, in turns; more where other work disturbs [7]"},
    {"--only", "LIST", CLI_TEXT, OPTION(only),
     "enemies: flood,silent,dribble,rubbish,mute,foreign,giant,half [all]"},
    {"--json", "FILE", CLI_OUTPUT, OPTION(json), "write the results as JSON"},
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
    char address[HOSTILE_ADDRESS_BYTES]; /* of the head, .. */
    char closes[HOSTILE_ADDRESS_BYTES];  /* .. of who hangs up, .. */
    char refuses[HOSTILE_ADDRESS_BYTES]; /* .. and of who refuses each call */
    struct hostile_party party;
    struct bench_cluster cluster;
    pid_t head;
    struct plasmon_ref **refs;
};

/* ------------------------------------------------------------------------------ enemies */

static const struct enemy {
    const char *name;
    void *(*run)(void *user);
    bool calls; /* it does not only connect */
    const char *note;
} enemies[] = {
    {"flood", hostile_flood, false, "1000 connections a second, closed at once"},
    {"silent", hostile_silent, false, "500 connections that say nothing"},
    {"dribble", hostile_dribble, false, "500 connections, each a byte every half second"},
    {"rubbish", hostile_rubbish, false,
     "500 connections a second, each with 4 KiB of noise"},
    {"mute", hostile_mute, false,
     "500 connections a second that begin well and make no call"},
    {"foreign", hostile_foreign, true,
     "200 sessions a second with others' tokens and numbers"},
    {"giant", hostile_giant, true, "200 sessions a second that send lists over the limits"},
    {"half", hostile_half, true, "200 sessions a second, half-closed before a word"},
};
#define ENEMIES "flood,silent,dribble,rubbish,mute,foreign,giant,half"

/* ----------------------------------------------------------------------- the honest one */

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

/* ------------------------------------------------------------------------------- rounds */

enum beside { ALONE, NOBODY, HEAD, BESIDES }; /* whom the enemy is against */

/* Of the rounds, one right behind the other, that whose ratio to `than` is in the middle. */
static unsigned middle_of(double rounds[BESIDES][ROUNDS_MAX], unsigned count,
                          enum beside than)
{
    double ratios[ROUNDS_MAX], middle;
    unsigned round = 0;

    for (unsigned i = 0; i < count; i++) {
        ratios[i] = rounds[HEAD][i] / rounds[than][i];
    }
    middle = bench_percentile(ratios, count, 0.5); /* which sorts them */
    while (round < count - 1 && rounds[HEAD][round] / rounds[than][round] != middle) {
        round++;
    }
    return round;
}

/* Both: beside the enemy and without it; and what of that is the head's doing. */
static void add_rows(struct hostile *hostile, const struct enemy *enemy, const char *what,
                     double rounds[BESIDES][ROUNDS_MAX])
{
    static const char *const suffix[BESIDES] = {[ALONE] = "", [NOBODY] = "_of_head"};

    for (enum beside than = ALONE; than <= NOBODY; than++) {
        unsigned round       = middle_of(rounds, hostile->given->rounds, than);
        struct bench_row row = {
            .unit       = "1/s",
            .value      = rounds[HEAD][round],
            .limit      = rounds[than][round],
            .limit_name = than == ALONE  ? "without the enemy"
                          : enemy->calls ? "beside it at a gRPC server that refuses"
                                         : "beside it at who hangs up",
            .target     = -TARGET};

        (void)snprintf(row.name, sizeof(row.name), "tasks_%s_beside_%s%s", what,
                       enemy->name, suffix[than]);
        (void)snprintf(row.note, sizeof(row.note), "%s", enemy->note);
        bench_report_add(&hostile->report, &row);
    }
}

static void enemy_begin(struct hostile *hostile, const struct enemy *enemy,
                        enum beside against)
{
    const char *nobody = enemy->calls ? hostile->refuses : hostile->closes;

    hostile_begin(&hostile->party, enemy->run, against == HEAD ? hostile->address : nobody);
}

static void add_share(struct hostile *hostile, const char *whose, const struct enemy *enemy,
                      uint64_t cpu_ns, uint64_t wall_ns)
{
    struct bench_row row = {.unit = "%", .value = 100.0 * (double)cpu_ns / (double)wall_ns};

    (void)snprintf(row.name, sizeof(row.name), "%s_cpu_%s", whose, enemy->name);
    (void)snprintf(row.note, sizeof(row.note), "of one processor, without the client");
    bench_report_add(&hostile->report, &row);
}

static void add_memory(struct hostile *hostile, const struct enemy *enemy, uint64_t before,
                       uint64_t most)
{
    struct bench_row row = {.unit       = "MiB",
                            .value      = (double)most / (1 << 20),
                            .limit      = (double)before / (1 << 20) + MEMORY_MIB,
                            .limit_name = "the most that it may have",
                            .target     = 1};

    (void)snprintf(row.name, sizeof(row.name), "head_memory_%s", enemy->name);
    (void)snprintf(row.note, sizeof(row.note), "%.1f MiB before",
                   (double)before / (1 << 20));
    bench_report_add(&hostile->report, &row);
}

/*
 * What of a processor, and how much more memory, the head needs for the enemy alone, and the enemy
 * itself: whatever else the machine does, it is the same.
 */
static void add_cpu(struct hostile *hostile, const struct enemy *enemy)
{
    uint64_t began_ns, took_ns, head_ns, enemy_ns;
    uint64_t before = bench_daemon_memory(hostile->head), most = before;

    enemy_begin(hostile, enemy, HEAD);
    began_ns = pl_now_ns();
    head_ns  = bench_daemon_cpu_ns(hostile->head);
    enemy_ns = bench_daemon_cpu_ns(hostile->party.pid);
    while (pl_now_ns() - began_ns < CPU_NS) {
        hostile_pause();
        most = pl_max_u64(most, bench_daemon_memory(hostile->head));
    }
    head_ns  = bench_daemon_cpu_ns(hostile->head) - head_ns;
    enemy_ns = bench_daemon_cpu_ns(hostile->party.pid) - enemy_ns;
    took_ns  = pl_now_ns() - began_ns;
    hostile_end(&hostile->party);
    add_share(hostile, "head", enemy, head_ns, took_ns);
    add_share(hostile, "enemy", enemy, enemy_ns, took_ns);
    add_memory(hostile, enemy, before, most);
}

static void measure(struct hostile *hostile, const struct enemy *enemy)
{
    double sync[BESIDES][ROUNDS_MAX], burst[BESIDES][ROUNDS_MAX];
    const struct hostile_options *given = hostile->given;

    for (unsigned round = 0; round < given->rounds; round++) {
        for (enum beside against = ALONE; against < BESIDES; against++) {
            if (against != ALONE) {
                enemy_begin(hostile, enemy, against);
            }
            sync[against][round]  = run_tasks(hostile, given->tasks, 1);
            burst[against][round] = run_tasks(hostile, given->burst, given->burst);
            check_result(hostile);
            if (against != ALONE) {
                hostile_end(&hostile->party);
            }
        }
    }
    add_rows(hostile, enemy, "sync", sync);
    add_rows(hostile, enemy, "async", burst);
    add_cpu(hostile, enemy);
}

/* -------------------------------------------------------------------------- the cluster */

/* Before there is anything of gRPC in this process. */
static void fork_others(struct hostile *hostile)
{
    const size_t bytes = HOSTILE_ADDRESS_BYTES;

    (void)snprintf(hostile->address, bytes, "unix:%s/head", hostile->folder);
    (void)snprintf(hostile->closes, bytes, "unix:%s/closes", hostile->folder);
    (void)snprintf(hostile->refuses, bytes, "unix:%s/refuses", hostile->folder);
    hostile_must_fork_party(&hostile->party, TOKEN);
    hostile_must_fork_nobody(hostile->closes, hostile->refuses);
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

    (void)snprintf(hostile->address, sizeof(hostile->address), "unix:%s/head",
                   hostile->folder);
    (void)snprintf(sockets, sizeof(sockets), "%s/store.d", hostile->folder);
    bench_must_find("plasmon-head", head);
    bench_must_find("plasmon-store", store);
    if (setenv("PLASMON_TOKEN", TOKEN, 1) != 0) {
        bench_die("out of host memory");
    }
    hostile->head = bench_must_daemon("head.log", head_argv);
    bench_must_listen(hostile->head, hostile->address + strlen("unix:"));
    if (mkdir(sockets, 0700) != 0 || setenv("PLASMON_ADDRESS", hostile->address, 1) != 0) {
        bench_die("cannot make the folder %s", sockets);
    }
    (void)bench_must_daemon("store.log", store_argv);
    bench_must_wait_devices();
    bench_must_start(&hostile->cluster, &(struct bench_cluster_config){0});
}

static int run_hostile(int argc, char **argv)
{
    struct hostile_options given = {.tasks  = TASKS_DEFAULT,
                                    .burst  = BURST_DEFAULT,
                                    .rounds = ROUNDS_DEFAULT,
                                    .only   = ENEMIES};
    struct cli_parsed parsed     = cli_parse(&bench_hostile, argc, argv, &given);
    static struct hostile hostile;
    bool written;

    if (parsed.exit >= 0) {
        return parsed.exit;
    }
    if (given.tasks < 1 || given.burst < 1 || given.rounds < 1 ||
        given.rounds > ROUNDS_MAX) {
        return cli_usage(&bench_hostile,
                         "--tasks and --burst are at least 1, --rounds 1 to %u",
                         ROUNDS_MAX);
    }
    if (!cli_list_is_of(given.only, ENEMIES)) {
        return cli_usage(&bench_hostile, "--only is a list of %s", ENEMIES);
    }
    hostile.given  = &given;
    hostile.folder = bench_must_folder();
    hostile.refs   = bench_must_alloc(given.burst * sizeof(struct plasmon_ref *));
    bench_report_init(&hostile.report, "An honest client beside an enemy");
    fork_others(&hostile);
    start_cluster(&hostile);
    (void)run_tasks(&hostile, given.tasks, 1); /* warm */
    (void)run_tasks(&hostile, given.burst, given.burst);
    for (size_t i = 0; i < PL_COUNT(enemies); i++) {
        if (cli_list_has(given.only, enemies[i].name)) {
            measure(&hostile, &enemies[i]);
        }
    }
    bench_report_print(&hostile.report);
    written = bench_report_write_json(&hostile.report, given.json);
    bench_cluster_finish(&hostile.cluster);
    bench_report_finish(&hostile.report);
    pl_free(hostile.refs);
    return written ? CLI_OK : CLI_FAIL;
}
