/*
 * `plasmon bench soak`: the load of chaos for long, without faults. One client stays, the others
 * come and go; what each process and each device uses is sampled, and must not grow. In the end
 * nothing may be left in the cluster when its clients have gone.
 */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "bench/chaos/chaos.h"
#include "bench/chaos/gpu_memory.h"
#include "bench/chaos/samples.h"
#include "bench/chaos/soak_team.h"

#define MS       UINT64_C(1000000)
#define SAMPLES  240 /* of a run, about */
#define TICK_NS  5000000
#define STUCK_NS (90000 * MS)
#define LEFT_NS  (60000 * MS)
/* functions: what a client that stays has called stays loaded, and is no leak */
#define SOURCES     4
#define GRAPHS_MAX  6 /* of a client that goes */
#define CLIENTS_MAX ((uint32_t)CHAOS_CLIENTS_MAX)

struct soak_options {
    uint32_t seconds, clients, cpu_devices, lineage_mib;
    const char *seed, *gpus, *device_memory, *transfer, *nccl_bytes, *json, *plot,
        *plot_devices;
    bool no_sources;
};

#define OPTION(field) offsetof(struct soak_options, field)
static const struct cli_option options[] = {
    {"--seconds", "N", CLI_COUNT, OPTION(seconds), "for how long [600]"},
    {"--seed", "N", CLI_TEXT, OPTION(seed), "of the programs [the clock]"},
    {"--clients", "N", CLI_COUNT, OPTION(clients),
     "processes that play programs; the first one stays [3]"},
    {"--gpus", "N|none", CLI_TEXT, OPTION(gpus), "GPUs [all of this machine, up to 8]"},
    {"--cpu-devices", "N", CLI_COUNT, OPTION(cpu_devices), "without GPUs [2]"},
    {"--device-memory", "BYTES", CLI_TEXT, OPTION(device_memory),
     "of each device; suffix K, M, G [128M; of a GPU 2G]"},
    {"--transfer", "ROUTE", CLI_TEXT, OPTION(transfer), "auto, peer, host or nccl [auto]"},
    {"--nccl-bytes", "BYTES", CLI_TEXT, OPTION(nccl_bytes),
     "plasmon-head --nccl-bytes; with 1 communicators come and go all the time [its own]"},
    {"--lineage-mib", "MIB", CLI_COUNT, OPTION(lineage_mib),
     "plasmon-head --lineage-bytes; 0: none [16]"},
    {"--no-sources", NULL, CLI_FLAG, OPTION(no_sources), "no functions in source text"},
    {"--json", "FILE", CLI_OUTPUT, OPTION(json), "write the samples and lines as JSON"},
    {"--plot", "FILE", CLI_OUTPUT, OPTION(plot), "draw the memory of processes as SVG"},
    {"--plot-devices", "FILE", CLI_OUTPUT, OPTION(plot_devices),
     "draw the memory of devices as SVG"},
};

static int run(int argc, char **argv);
const struct cli_command bench_soak = {
    .name    = "bench soak",
    .summary = "a mixed load for long: does anything grow?",
    .usage   = "[options]",
    .text =
        "On a cluster of its own. Exit status 1: something grows, is left, or was wrong.",
    .options      = options,
    .option_count = PL_COUNT(options),
    .run          = run,
};

struct soak {
    struct chaos_cluster cluster;
    struct samples samples;
    struct soak_team team;
    uint64_t seed, random, began_ns;
    uint64_t came;                         /* clients */
    uint64_t opened[STRESS_DEVICES_MAX];   /* communicators of each device */
    uint64_t replaced[STRESS_DEVICES_MAX]; /* workers of each device */
    char text[CHAOS_TEXT_BYTES];
};

static volatile sig_atomic_t interrupted;

static void interrupt(int signal)
{
    (void)signal;
    interrupted = 1;
}

static bool fail(struct soak *soak, const char *text)
{
    (void)snprintf(soak->text, sizeof(soak->text), "%.*s", CHAOS_TEXT_BYTES - 1, text);
    return false;
}

static void tick(void)
{
    const struct timespec pause = {.tv_nsec = TICK_NS};

    (void)nanosleep(&pause, NULL);
}

/* --------------------------------------------------------------------------------- load */

static void start_client(struct soak *soak, uint32_t slot)
{
    soak->cluster.board->slot[slot].graphs_max =
        slot == 0 ? 0 : 1 + (uint32_t)(stress_random(&soak->random) % GRAPHS_MAX);
    chaos_start_player(&soak->cluster, slot);
    soak->came++;
}

/* Who has gone is followed by another one, until it is `over`. false: something went wrong. */
static bool look_after_clients(struct soak *soak, bool over, uint32_t *out_running)
{
    struct chaos_cluster *cluster = &soak->cluster;
    const char *who               = chaos_who_ended(cluster);

    *out_running = 0;
    if (who != NULL) {
        return fail(soak, who);
    }
    for (uint32_t i = 0; i < cluster->config.clients; i++) {
        int status = 0;

        if (atomic_load(&cluster->board->slot[i].failed)) {
            return fail(soak, cluster->board->slot[i].text);
        }
        if (cluster->player[i] > 0 && chaos_has_ended(cluster->player[i], &status)) {
            cluster->player[i] = 0;
            if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
                return fail(soak, "a client ended badly; its log says why");
            }
        }
        if (cluster->player[i] == 0 && !over) {
            start_client(soak, i);
        }
        *out_running += cluster->player[i] != 0;
    }
    return true;
}

/* ------------------------------------------------------------------------------ samples */

static void sample_devices(struct soak *soak, double at_s)
{
    static const struct {
        const char *key;
        enum sample_what what;
    } keys[] = {{"bytes_used", SAMPLE_DEVICE_USED},
                {"bytes_reserved", SAMPLE_DEVICE_RESERVED},
                {"communicators", SAMPLE_PAIRS}};
    char *json, of[48], who[24];

    if (plasmon_status_json(soak->cluster.client, &json) != PLASMON_OK) {
        return;
    }
    for (uint32_t i = 0; i < soak->cluster.devices; i++) {
        (void)snprintf(of, sizeof(of), "{\"index\":%d,", soak->cluster.device[i].number);
        (void)snprintf(who, sizeof(who), "device %u", i);
        for (size_t k = 0; k < PL_COUNT(keys); k++) {
            samples_add(&soak->samples, who, keys[k].what, at_s,
                        (double)chaos_json_number(json, of, keys[k].key));
        }
        soak->opened[i]   = chaos_json_number(json, of, "communicators_opened");
        soak->replaced[i] = chaos_json_number(json, of, "restarts");
    }
    free(json);
}

/* All that this machine has, whoever uses them. */
static void sample_gpus(struct soak *soak, double at_s)
{
    uint64_t bytes;
    char who[24];

    for (uint32_t i = 0; i < gpu_memory_count(); i++) {
        (void)snprintf(who, sizeof(who), "GPU %u", i);
        if (gpu_memory_used(i, &bytes)) {
            samples_add(&soak->samples, who, SAMPLE_GPU_USED, at_s, (double)bytes);
        }
    }
}

static void sample(struct soak *soak)
{
    double at_s                   = (double)(pl_now_ns() - soak->began_ns) * 1e-9;
    struct chaos_cluster *cluster = &soak->cluster;
    char who[24];

    samples_add_process(&soak->samples, "head", cluster->head, at_s);
    samples_add_process(&soak->samples, "store", cluster->store, at_s);
    for (uint32_t i = 0; i < cluster->devices; i++) {
        (void)snprintf(who, sizeof(who), "worker %u", i);
        samples_add_process(&soak->samples, who, chaos_worker(cluster, i), at_s);
    }
    samples_add_process(&soak->samples, "client that stays", cluster->player[0], at_s);
    sample_devices(soak, at_s);
    if (soak->cluster.board->gpu) {
        sample_gpus(soak, at_s);
    }
}

/* ------------------------------------------------------------------------------ the run */

/* When all clients have gone, what they had goes, too. */
static bool nothing_left(struct soak *soak)
{
    uint64_t deadline_ns = pl_now_ns() + LEFT_NS, objects = 1, queued = 1;
    char *json, text[128];

    while (objects > 0 || queued > 0) {
        if (pl_now_ns() > deadline_ns) {
            (void)snprintf(text, sizeof(text),
                           "without clients there are %llu objects and %llu tasks",
                           (unsigned long long)objects, (unsigned long long)queued);
            return fail(soak, text);
        }
        tick();
        if (plasmon_status_json(soak->cluster.client, &json) == PLASMON_OK) {
            objects = chaos_json_number(json, "", "objects");
            queued  = chaos_json_number(json, "", "tasks_queued");
            free(json);
        }
    }
    return true;
}

/* With one device there is nobody to reduce with. */
static bool reduce(struct soak *soak, uint64_t now_ns)
{
    char text[STRESS_TEXT_BYTES];

    return soak->team.devices < 2 || soak_team_turn(&soak->team, now_ns, text) ||
           fail(soak, text);
}

static void team_init(struct soak *soak)
{
    struct soak_team *team = &soak->team;

    team->client  = soak->cluster.client;
    team->devices = soak->cluster.devices;
    for (uint32_t i = 0; i < team->devices; i++) {
        team->number[i] = soak->cluster.device[i].number;
    }
}

/*
 * Nobody was killed, so no worker may have ended; and what a new one uses says nothing about the
 * one before.
 */
static bool nobody_replaced(struct soak *soak)
{
    char text[STRESS_TEXT_BYTES];

    for (uint32_t i = 0; i < soak->cluster.devices; i++) {
        if (soak->replaced[i] > 0) {
            (void)snprintf(text, sizeof(text),
                           "the worker of device %u was replaced %llu times without a "
                           "fault; store.log in %s says why",
                           i, (unsigned long long)soak->replaced[i], soak->cluster.dir);
            return fail(soak, text);
        }
    }
    return true;
}

static bool play(struct soak *soak, uint32_t seconds)
{
    struct chaos_board *board = soak->cluster.board;
    uint64_t every_ns         = seconds * UINT64_C(1000000000) / SAMPLES;
    uint64_t end_ns = soak->began_ns + seconds * UINT64_C(1000000000), next_ns = 0;
    uint64_t steps = 0, moved_ns = soak->began_ns;
    uint32_t running = 1;

    while (running > 0) {
        uint64_t now_ns = pl_now_ns(), now_steps = CHAOS_SUM(board, steps);
        bool over = now_ns >= end_ns || interrupted;

        moved_ns = now_steps != steps ? now_ns : moved_ns;
        steps    = now_steps;
        if (now_ns - moved_ns > STUCK_NS) {
            return fail(soak, "no client has done a step for 90 s");
        }
        if (over) {
            atomic_store(&board->stop, true);
        } else if (now_ns >= next_ns) {
            sample(soak);
            next_ns = now_ns + every_ns;
        }
        if (!look_after_clients(soak, over, &running) || !reduce(soak, now_ns)) {
            return false;
        }
        tick();
    }
    soak_team_end(&soak->team);
    return nothing_left(soak) && nobody_replaced(soak);
}

/* --------------------------------------------------------------------- what it comes to */

static const struct sample_series *series_at(const struct soak *soak, size_t index)
{
    return *(struct sample_series **)pl_vec_at(&soak->samples.series, index);
}

static void format(enum sample_what what, double value, char out[40])
{
    char text[32];

    if (!sample_is_bytes(what)) {
        (void)snprintf(out, 40, "%.1f", value);
        return;
    }
    (void)snprintf(out, 40, "%s%s", value < 0 ? "-" : "",
                   pl_format_bytes((uint64_t)(value < 0 ? -value : value), text));
}

/* false: something grows. */
static bool print(const struct soak *soak)
{
    const struct chaos_board *board = soak->cluster.board;
    struct pl_str machine;
    bool flat = true;

    pl_str_init(&machine);
    bench_machine_describe(&machine);
    printf("%s\nsoak: %u %s devices, %llu clients came, %llu graphs, %llu steps, %llu "
           "reductions; communicators opened: ",
           pl_str_text(&machine), soak->cluster.devices, board->gpu ? "GPU" : "CPU",
           (unsigned long long)soak->came, (unsigned long long)CHAOS_SUM(board, graphs),
           (unsigned long long)CHAOS_SUM(board, steps),
           (unsigned long long)soak->team.rounds);
    for (uint32_t i = 0; i < soak->cluster.devices; i++) {
        printf("%s%llu", i > 0 ? " and " : "", (unsigned long long)soak->opened[i]);
    }
    printf("; --seed %llu\n\n"
           "  %-18s %-23s %12s %12s %12s\n",
           (unsigned long long)soak->seed, "who", "what", "mean", "growth", "tolerance");
    pl_str_finish(&machine);
    for (size_t i = 0; i < soak->samples.series.count; i++) {
        const struct sample_series *series = series_at(soak, i);
        struct sample_line line            = samples_line(series);
        char mean[40], growth[40], tolerance[40];

        format(series->what, line.mean, mean);
        format(series->what, line.growth, growth);
        if (isfinite(line.tolerance)) {
            format(series->what, line.tolerance, tolerance);
        } else {
            (void)snprintf(tolerance, sizeof(tolerance), "too brief");
        }
        if (line.known) {
            printf("  %-18s %-23s %12s %12s %12s%s\n", series->who,
                   sample_name(series->what), mean, growth, tolerance,
                   line.flat ? "" : "   GROWS");
        }
        flat = flat && line.flat;
    }
    if (soak->text[0] != '\0') {
        printf("  FAILED: %s\n", soak->text);
    }
    (void)fflush(stdout);
    return flat;
}

static void put_series(struct pl_str *out, const struct sample_series *series)
{
    struct sample_line line = samples_line(series);

    pl_str_append(out,
                  "{\"who\":\"%s\",\"what\":\"%s\",\"mean\":%.9g,\"growth\":%.9g,"
                  "\"seconds\":%.3f,\"error\":%.9g,\"flat\":%s,\"tolerance\":",
                  series->who, sample_name(series->what), line.mean, line.growth,
                  line.seconds, line.error, line.flat ? "true" : "false");
    if (isfinite(line.tolerance)) {
        pl_str_append(out, "%.9g", line.tolerance);
    } else {
        pl_str_append(out, "null"); /* it was too brief to be judged */
    }
    pl_str_append(out, ",\"points\":[");
    for (size_t i = 0; i < series->points.count; i++) {
        const struct sample_point *point = pl_vec_at(&series->points, i);

        pl_str_append(out, "%s[%.3f,%.9g]", i > 0 ? "," : "", point->at_s, point->value);
    }
    pl_str_append(out, "]}");
}

static bool write_json(const struct soak *soak, const char *path)
{
    struct pl_str out;
    bool good;

    pl_str_init(&out);
    pl_str_append(&out, "{\"title\":\"soak\",\"seed\":%llu,\"clients\":%llu,\"text\":",
                  (unsigned long long)soak->seed, (unsigned long long)soak->came);
    pl_str_append_json(&out, soak->text);
    pl_str_append(&out, ",\n\"series\":[");
    for (size_t i = 0; i < soak->samples.series.count; i++) {
        pl_str_append(&out, "%s\n", i > 0 ? "," : "");
        put_series(&out, series_at(soak, i));
    }
    pl_str_append(&out, "]}\n");
    good = bench_write_text(&out, path);
    pl_str_finish(&out);
    return good;
}

/* One picture of what the table has of these, a bit a enum sample_what. */
struct picture {
    const char *title, *y_label;
    uint32_t whats;
};
static const struct picture of_processes = {"plasmon bench soak: memory of processes",
                                            "resident, its own, MiB", 1u << SAMPLE_MEMORY};
static const struct picture of_devices   = {
      "plasmon bench soak: memory of devices", "MiB",
      1u << SAMPLE_DEVICE_USED | 1u << SAMPLE_DEVICE_RESERVED | 1u << SAMPLE_GPU_USED};

static void put_rows(struct bench_report *report, const struct sample_series *series,
                     bool named)
{
    for (size_t k = 0; k < series->points.count; k++) {
        const struct sample_point *point = pl_vec_at(&series->points, k);
        struct bench_row *row            = pl_vec_push(&report->rows);

        if (row == NULL) {
            bench_die("out of host memory");
        }
        *row = (struct bench_row){
            .x = point->at_s, .value = point->value / 1048576, .unit = "MiB"};
        (void)snprintf(row->series, sizeof(row->series), "%s%s%s", series->who,
                       named ? ": " : "", named ? sample_name(series->what) : "");
    }
}

static bool draw(const struct soak *soak, const struct picture *picture, const char *path)
{
    const struct bench_plot plot = {.title       = picture->title,
                                    .x_label     = "seconds",
                                    .x_is_linear = true,
                                    .y_is_linear = true,
                                    .y_label     = picture->y_label};
    struct bench_report report;
    bool good;

    bench_report_init(&report, "soak");
    for (size_t i = 0; i < soak->samples.series.count; i++) {
        const struct sample_series *series = series_at(soak, i);

        if (picture->whats >> series->what & 1) {
            put_rows(&report, series, picture == &of_devices);
        }
    }
    good = bench_plot_write(&plot, &report, "MiB", path);
    bench_report_finish(&report);
    return good;
}

/* -------------------------------------------------------------------------- the command */

static int soak_run(struct soak *soak, const struct soak_options *given)
{
    bool good, written = true;
    char why[256];
    char *text;

    soak->cluster.board->sources =
        !given->no_sources && chaos_prepare_functions(&soak->cluster, why);
    soak->cluster.board->source_count = SOURCES;
    for (uint32_t i = 0; i < soak->cluster.config.clients; i++) {
        soak->cluster.board->slot[i].seed = soak->seed + i;
    }
    team_init(soak);
    soak->began_ns = pl_now_ns();
    good           = play(soak, given->seconds);
    if (!good && plasmon_doctor(soak->cluster.client, 0, &text) == PLASMON_OK) {
        printf("%s\nwho waits for what:\n%s", soak->text, text);
        free(text);
    }
    good    = print(soak) && good;
    written = given->json == NULL || write_json(soak, given->json);
    written = (given->plot == NULL || draw(soak, &of_processes, given->plot)) && written;
    written =
        (given->plot_devices == NULL || draw(soak, &of_devices, given->plot_devices)) &&
        written;
    samples_finish(&soak->samples);
    return chaos_cluster_end(&soak->cluster, !good) && good && written ? CLI_OK : CLI_FAIL;
}

static int run(int argc, char **argv)
{
    static struct soak soak; /* too large for a stack */
    struct soak_options given = {
        .seconds = 600, .clients = 3, .cpu_devices = 2, .lineage_mib = 16};
    struct cli_parsed parsed = cli_parse(&bench_soak, argc, argv, &given);
    struct chaos_config config;

    if (parsed.exit >= 0) {
        return parsed.exit;
    }
    config = (struct chaos_config){.cpu_devices   = given.cpu_devices,
                                   .gpus          = given.gpus,
                                   .device_memory = given.device_memory,
                                   .transfer      = given.transfer,
                                   .nccl_bytes    = given.nccl_bytes,
                                   .clients       = given.clients,
                                   .lineage_mib   = given.lineage_mib,
                                   .journal       = false};
    if (!chaos_take_seed(given.seed, &soak.seed) || !chaos_complete(&config) ||
        given.seconds == 0) {
        return cli_usage(&bench_soak,
                         "--seed is a number, --seconds at least 1, --clients 1 to %u, "
                         "--cpu-devices 1 to %u, and --gpus none or 1 to %u",
                         CLIENTS_MAX, (unsigned)STRESS_DEVICES_MAX,
                         (unsigned)STRESS_DEVICES_MAX);
    }
    soak.random = soak.seed;
    samples_init(&soak.samples);
    (void)signal(SIGINT, interrupt);
    (void)signal(SIGTERM, interrupt);
    chaos_must_start(&soak.cluster, &config);
    return soak_run(&soak, &given);
}
