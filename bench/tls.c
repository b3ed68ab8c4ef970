/*
 * `plasmon bench tls`: what mutual TLS costs tasks.
 *
 * Two clusters at once over TCP on loopback, each a head and a store with a CPU device, with the
 * same token: one in the clear, one with certificates that are made for this. Rounds are taken in
 * turns, first the one, then the other first, so what else the machine does is in both; each figure
 * is the median of the rounds, and the ratio the median of the ratios of two rounds beside each
 * other. Processor time is that of whole processes, gRPC and kernel included: the head's, the
 * worker's and this one's.
 */
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "bench/daemons.h"
#include "trust/trust.h"

#define TASKS_DEFAULT 20000u
#define GETS_DEFAULT  500u
#define ROUNDS        9u
#define WARM_UP       500u
#define SYNC_PART     20u /* of the tasks of a round so few are waited for one by one */
#define SOME_TASKS    64u
#define OBJECT_BYTES  (64u << 10)
#define TOKEN         "of this benchmark"
#define DAY_S         86400

struct tls_options {
    uint32_t tasks;
    uint32_t gets;
    const char *json;
};

#define OPTION(field) offsetof(struct tls_options, field)
static const struct cli_option options[] = {
    {"--tasks", "N", CLI_COUNT, OPTION(tasks), "tasks of a round [20000]"},
    {"--gets", "N", CLI_COUNT, OPTION(gets), "gets of 64 KiB by messages of a round [500]"},
    {"--json", "FILE", CLI_OUTPUT, OPTION(json), "write the results as JSON"},
};

static int run_tls(int argc, char **argv);
const struct cli_command bench_tls = {
    .name    = "bench tls",
    .summary = "tasks with mutual TLS and in the clear: rates, and processor time of each",
    .usage   = "[options]",
    .text    = "Starts clusters of its own on ports of 127.0.0.1, with certificates and a "
               "token made for\n"
               "this. See docs/security.md.",
    .options = options,
    .option_count = PL_COUNT(options),
    .run          = run_tls,
};

/* What is measured in a round. Of all but the rates more is worse. */
enum what {
    SYNC,
    SOME,
    ASYNC,
    SYNC_CPU_HEAD,
    SYNC_CPU_WORKER,
    SYNC_CPU_CLIENT,
    CPU_HEAD,
    CPU_WORKER,
    CPU_CLIENT,
    CPU_ALL,
    GETS,
    WHATS
};
static const struct {
    const char *name, *unit, *note;
} whats[WHATS] = {
    [SYNC]            = {"tasks_sync", "us", "one task and its answer"},
    [SOME]            = {"tasks_64_in_flight", "1/s", "waited for in batches"},
    [ASYNC]           = {"tasks_async", "1/s", "many tasks in flight"},
    [SYNC_CPU_HEAD]   = {"head_cpu_per_task_sync", "us", "one in flight"},
    [SYNC_CPU_WORKER] = {"worker_cpu_per_task_sync", "us", "one in flight"},
    [SYNC_CPU_CLIENT] = {"client_cpu_per_task_sync", "us", "one in flight"},
    [CPU_HEAD]        = {"head_cpu_per_task", "us", "many in flight"},
    [CPU_WORKER]      = {"worker_cpu_per_task", "us", "many in flight"},
    [CPU_CLIENT]      = {"client_cpu_per_task", "us", "many in flight"},
    [CPU_ALL]         = {"cpu_per_task", "us", "many in flight: the three together"},
    [GETS]            = {"gets_by_messages", "1/s", "64 KiB each, one at a time"},
};

enum who { HEAD, WORKER, CLIENT, WHOS };

/* One of the two. */
struct side {
    const char *name;
    char address[64];
    char files[3][128]; /* ca, certificate, key of the client; "": in the clear */
    pid_t head, store, worker;
    struct bench_cluster cluster;
    struct plasmon_ref *object;
    double rounds[WHATS][ROUNDS];
};

struct tls {
    const struct tls_options *given;
    struct bench_report report;
    const char *folder;
    char ca[96]; /* the folder of the certificates */
    struct side plain, secret;
    struct plasmon_ref **refs;
    uint8_t *bytes; /* OBJECT_BYTES of one object, and as many for what comes back */
};

/* ------------------------------------------------------------------------ the processes */

static void must_trust(plasmon_status_t status, const struct pl_err *err)
{
    if (status != PLASMON_OK) {
        bench_die("no certificates: %s", err->text);
    }
}

static void make_certificates(struct tls *tls)
{
    struct trust_request host    = {.name   = "host",
                                    .roles  = TRUST_ROLE_HEAD | TRUST_ROLE_HOST,
                                    .hosts  = {"127.0.0.1"},
                                    .ends_s = DAY_S};
    struct trust_request program = {
        .name = "program", .roles = TRUST_ROLE_CLIENT, .ends_s = DAY_S};
    struct pl_err err = {0};

    (void)snprintf(tls->ca, sizeof(tls->ca), "%s/ca", tls->folder);
    must_trust(trust_authority_create(tls->ca, "bench", TRUST_EC_P256, DAY_S, &err), &err);
    must_trust(trust_issue(tls->ca, &host, &err), &err);
    must_trust(trust_issue(tls->ca, &program, &err), &err);
    (void)snprintf(tls->secret.files[0], sizeof(tls->secret.files[0]), "%s/ca.crt",
                   tls->ca);
    (void)snprintf(tls->secret.files[1], sizeof(tls->secret.files[1]), "%s/program.crt",
                   tls->ca);
    (void)snprintf(tls->secret.files[2], sizeof(tls->secret.files[2]), "%s/program.key",
                   tls->ca);
}

/* One that nobody has now: the head says so if somebody is quicker. */
static unsigned free_port(void)
{
    struct sockaddr_in own = {.sin_family      = AF_INET,
                              .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes        = sizeof(own);
    int fd                 = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0 || bind(fd, (struct sockaddr *)&own, sizeof(own)) != 0 ||
        getsockname(fd, (struct sockaddr *)&own, &bytes) != 0) {
        bench_die("no free port of 127.0.0.1");
    }
    (void)close(fd);
    return ntohs(own.sin_port);
}

/* A program's arguments, and behind them those of TLS if this side has it. */
static void with_files(const struct tls *tls, const struct side *side, const char **argv,
                       size_t count, char files[3][128])
{
    static const char *const names[] = {"--tls-ca", "--tls-cert", "--tls-key"};
    static const char *const ends[]  = {"ca.crt", "host.crt", "host.key"};

    for (size_t i = 0; side->files[0][0] != '\0' && i < PL_COUNT(names); i++) {
        (void)snprintf(files[i], sizeof(files[i]), "%s/%s", tls->ca, ends[i]);
        argv[count++] = names[i];
        argv[count++] = files[i];
    }
    argv[count] = NULL;
}

static void start_head(struct tls *tls, struct side *side)
{
    char path[256], socket[128], log[32], files[3][128];
    const char *argv[16] = {path,   "--listen", side->address, "--listen",
                            socket, "--log",    "error"};

    bench_must_find("plasmon-head", path);
    (void)snprintf(side->address, sizeof(side->address), "127.0.0.1:%u", free_port());
    (void)snprintf(socket, sizeof(socket), "unix:%s/%s", tls->folder, side->name);
    (void)snprintf(log, sizeof(log), "head-%s.log", side->name);
    with_files(tls, side, argv, 7, files);
    side->head = bench_must_daemon(log, argv);
    bench_must_listen(side->head, socket + strlen("unix:"));
}

static void start_store(struct tls *tls, struct side *side)
{
    char path[256], sockets[96], log[32], files[3][128];
    const char *argv[24] = {path,    "--head",          side->address, "--socket-dir",
                            sockets, "--gpus",          "none",        "--cpu-devices",
                            "1",     "--device-memory", "128M"};

    bench_must_find("plasmon-store", path);
    (void)snprintf(sockets, sizeof(sockets), "%s/%s.d", tls->folder, side->name);
    (void)snprintf(log, sizeof(log), "store-%s.log", side->name);
    if (mkdir(sockets, 0700) != 0) {
        bench_die("cannot make the folder %s", sockets);
    }
    with_files(tls, side, argv, 11, files);
    side->store = bench_must_daemon(log, argv);
}

/* What a program reads that joins this side. */
static void must_be_for(const struct side *side)
{
    static const char *const names[] = {"PLASMON_TLS_CA", "PLASMON_TLS_CERT",
                                        "PLASMON_TLS_KEY"};
    bool good                        = setenv("PLASMON_ADDRESS", side->address, 1) == 0;

    for (size_t i = 0; i < PL_COUNT(names); i++) {
        good &= (side->files[i][0] != '\0' ? setenv(names[i], side->files[i], 1)
                                           : unsetenv(names[i])) == 0;
    }
    if (!good) {
        bench_die("out of host memory");
    }
}

static void start_side(struct tls *tls, struct side *side, const char *name)
{
    const struct plasmon_shape shape  = bench_shape(PLASMON_U8, 1, OBJECT_BYTES, 0);
    struct plasmon_put_options to_put = PLASMON_PUT_INIT;

    side->name = name;
    start_head(tls, side);
    start_store(tls, side);
    must_be_for(side);
    bench_must_wait_devices();
    bench_must_start(&side->cluster, &(struct bench_cluster_config){0});
    side->worker = bench_must_child(side->store);
    bench_must(
        &side->cluster,
        plasmon_put(side->cluster.client, tls->bytes, &shape, &to_put, &side->object),
        "putting");
    bench_must_wait(&side->cluster, &side->object, 1);
}

/* ------------------------------------------------------------------------------- rounds */

static double run_tasks(struct tls *tls, struct side *side, uint32_t count, uint32_t depth)
{
    uint64_t began = pl_now_ns();

    for (uint32_t done = 0; done < count; done += depth) {
        uint32_t now = (uint32_t)pl_min_u64(count - done, depth);

        for (uint32_t i = 0; i < now; i++) {
            tls->refs[i] =
                bench_must_task(&side->cluster, "noop", NULL, 0, NULL, 0, PLASMON_ANYWHERE);
        }
        bench_must_wait(&side->cluster, tls->refs, now);
        bench_must_release(&side->cluster, tls->refs, now);
    }
    return (double)(pl_now_ns() - began) * 1e-9;
}

/* The bytes are compared each time, in both. */
static double run_gets(struct tls *tls, struct side *side, uint32_t count)
{
    uint8_t *got   = tls->bytes + OBJECT_BYTES;
    uint64_t began = pl_now_ns();

    for (uint32_t i = 0; i < count; i++) {
        memset(got, 0, 64);
        bench_must(&side->cluster,
                   plasmon_get(side->cluster.client, side->object, got, OBJECT_BYTES,
                               PLASMON_FOREVER),
                   "getting");
        if (memcmp(tls->bytes, got, OBJECT_BYTES) != 0) {
            bench_die("a get gave other bytes than were put (%s)", side->name);
        }
    }
    return (double)(pl_now_ns() - began) * 1e-9;
}

static void look(const struct side *side, uint64_t out_ns[WHOS])
{
    out_ns[HEAD]   = bench_daemon_cpu_ns(side->head);
    out_ns[WORKER] = bench_daemon_cpu_ns(side->worker);
    out_ns[CLIENT] = bench_process_cpu_ns();
}

/* Of the tasks since `before`: microseconds of processor time for each, all three processes. */
static double take_cpu(struct side *side, const uint64_t before[WHOS], enum what first,
                       uint32_t round, uint32_t tasks)
{
    uint64_t after[WHOS];
    double all = 0;

    look(side, after);
    for (int i = 0; i < WHOS; i++) {
        double us = (double)(after[i] - before[i]) * 1e-3 / tasks;

        side->rounds[(int)first + i][round] = us;
        all += us;
    }
    return all;
}

static void take_round(struct tls *tls, struct side *side, uint32_t round)
{
    uint32_t tasks = tls->given->tasks, trips = tasks / SYNC_PART + 1;
    uint64_t before[WHOS];

    look(side, before);
    side->rounds[SYNC][round] = run_tasks(tls, side, trips, 1) * 1e6 / trips;
    (void)take_cpu(side, before, SYNC_CPU_HEAD, round, trips);
    side->rounds[SOME][round] = tasks / run_tasks(tls, side, tasks, SOME_TASKS);
    look(side, before);
    side->rounds[ASYNC][round]   = tasks / run_tasks(tls, side, tasks, tasks);
    side->rounds[CPU_ALL][round] = take_cpu(side, before, CPU_HEAD, round, tasks);
    side->rounds[GETS][round]    = tls->given->gets / run_gets(tls, side, tls->given->gets);
}

static void add_rows(struct tls *tls)
{
    for (int i = 0; i < WHATS; i++) {
        double *with = tls->secret.rounds[i], *without = tls->plain.rounds[i];
        double ratios[ROUNDS];
        struct bench_row row = {.unit = whats[i].unit, .limit_name = "in the clear"};

        for (uint32_t round = 0; round < ROUNDS; round++) {
            ratios[round] = without[round] > 0 ? with[round] / without[round] : 0;
        }
        row.ratio = bench_percentile(ratios, ROUNDS, 0.5); /* which sorts them */
        row.value = bench_percentile(with, ROUNDS, 0.5);
        row.limit = bench_percentile(without, ROUNDS, 0.5);
        (void)snprintf(row.name, sizeof(row.name), "%s", whats[i].name);
        (void)snprintf(row.note, sizeof(row.note), "%s; ratios %.2f to %.2f", whats[i].note,
                       ratios[0], ratios[ROUNDS - 1]);
        bench_report_add(&tls->report, &row);
    }
}

static void measure(struct tls *tls)
{
    struct side *sides[2] = {&tls->plain, &tls->secret};

    for (uint32_t i = 0; i < 2; i++) {
        (void)run_tasks(tls, sides[i], WARM_UP, 1);
        (void)run_tasks(tls, sides[i], tls->given->tasks, tls->given->tasks);
        (void)run_gets(tls, sides[i], 10);
    }
    for (uint32_t round = 0; round < ROUNDS; round++) {
        for (uint32_t i = 0; i < 2; i++) {
            take_round(tls, sides[(i + round) % 2], round);
        }
    }
    add_rows(tls);
}

/* -------------------------------------------------------------------------- the command */

static int run_tls(int argc, char **argv)
{
    struct tls_options given = {.tasks = TASKS_DEFAULT, .gets = GETS_DEFAULT};
    struct cli_parsed parsed = cli_parse(&bench_tls, argc, argv, &given);
    static struct tls tls;
    bool ok;

    if (parsed.exit >= 0) {
        return parsed.exit;
    }
    if (given.tasks < 100 || given.gets < 1) {
        return cli_usage(&bench_tls, "--tasks is at least 100 and --gets at least 1");
    }
    tls.given  = &given;
    tls.folder = bench_must_folder();
    tls.refs   = bench_must_alloc(given.tasks * sizeof(struct plasmon_ref *));
    tls.bytes  = bench_must_alloc((size_t)2 * OBJECT_BYTES);
    for (size_t i = 0; i < OBJECT_BYTES; i++) {
        tls.bytes[i] = (uint8_t)(i * 7 + i / 251);
    }
    if (setenv("PLASMON_TOKEN", TOKEN, 1) != 0 ||
        setenv("PLASMON_CLIENT_PATH", "messages", 1) != 0) {
        bench_die("out of host memory");
    }
    make_certificates(&tls);
    start_side(&tls, &tls.plain, "plain");
    start_side(&tls, &tls.secret, "tls");
    bench_report_init(&tls.report, "Plasmon: mutual TLS beside none");
    measure(&tls);

    bench_report_print(&tls.report);
    ok = bench_report_write_json(&tls.report, given.json);
    bench_report_finish(&tls.report);
    bench_must_release(&tls.plain.cluster, &tls.plain.object, 1);
    bench_must_release(&tls.secret.cluster, &tls.secret.object, 1);
    bench_cluster_finish(&tls.plain.cluster);
    bench_cluster_finish(&tls.secret.cluster);
    pl_free(tls.refs);
    pl_free(tls.bytes);
    return ok ? CLI_OK : CLI_FAIL;
}
