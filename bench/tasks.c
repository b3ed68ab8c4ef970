/*
 * `plasmon bench tasks`: the control plane. What one task costs alone, in a stream of others, and
 * to each part: the client, the head, the worker. Names as in Ray's microbenchmark, so that the two
 * can stand side by side; where ours does something else under the same name, the note says so.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "bench/bench.h"

#define TASKS_DEFAULT  20000u
#define SCALE_DEFAULT  1000000u
#define OBJECT_DEFAULT (1024u) /* MiB */
#define WARM_UP        500u
#define LATE_TASKS     500u
#define THREADS        4u
#define ROUNDS         5u

struct tasks_options {
    uint32_t tasks;
    uint32_t object_mib;
    uint32_t scale_tasks;
    bool scale;
    const char *gpus;
    uint32_t cpu_devices;
    const char *json;
    const char *plot;
};

#define OPTION(field) offsetof(struct tasks_options, field)
static const struct cli_option options[] = {
    {"--tasks", "N", CLI_COUNT, OPTION(tasks), "tasks of each kind [20000]"},
    {"--object-mib", "N", CLI_COUNT, OPTION(object_mib),
     "size of the large object, at most a quarter of the device [1024]"},
    {"--scale", NULL, CLI_FLAG, OPTION(scale), "also queue a great many tasks at once"},
    {"--scale-tasks", "N", CLI_COUNT, OPTION(scale_tasks), "how many [1000000]"},
    {"--gpus", "N", CLI_TEXT, OPTION(gpus),
     "GPUs of a private cluster: a number or none [1]"},
    {"--cpu-devices", "N", CLI_COUNT, OPTION(cpu_devices),
     "CPU devices of a private cluster [1 where there is no GPU]"},
    {"--json", "FILE", CLI_OUTPUT, OPTION(json), "write the results as JSON"},
    {"--plot", "FILE.svg", CLI_OUTPUT, OPTION(plot),
     "draw tasks per second over tasks in flight"},
};

static int run_tasks(int argc, char **argv);
const struct cli_command bench_tasks = {
    .name    = "bench tasks",
    .summary = "round trips, rates, gets and puts; beside them a bare message round trip",
    .usage   = "[options]",
    .text    = "Uses the cluster of PLASMON_ADDRESS, or a private one. Results are checked "
               "before\n"
               "they are timed. Figures in the last column but one are what Ray publishes "
               "about itself.",
    .options = options,
    .option_count = PL_COUNT(options),
    .run          = run_tasks,
};

/* -------------------------------------------------------------------------------- rates */

static struct plasmon_ref *noop(struct bench_cluster *cluster)
{
    return bench_must_task(cluster, "noop", NULL, 0, NULL, 0, PLASMON_ANYWHERE);
}

/* `count` tasks with up to `depth` of them not waited for. Seconds. Any thread. */
static double rate_run(struct bench_cluster *cluster, struct plasmon_ref **refs,
                       uint32_t count, uint32_t depth)
{
    uint64_t began = pl_now_ns();

    for (uint32_t done = 0; done < count; done += depth) {
        uint32_t now = count - done < depth ? count - done : depth;

        for (uint32_t i = 0; i < now; i++) {
            refs[i] = noop(cluster);
        }
        bench_must_wait(cluster, refs, now);
        bench_must_release(cluster, refs, now);
    }
    return (double)(pl_now_ns() - began) * 1e-9;
}

/* ------------------------------------------------------------------- one task at a time */

static void sync_tasks(struct bench_tasks_run *run, double *out_trip_seconds)
{
    struct bench_row row  = {.name       = "single_client_tasks_sync",
                             .unit       = "us",
                             .limit_name = "2 lock-step stream round trips, p50",
                             .reference  = "1030 us"};
    struct bench_row echo = {
        .name = "stream_round_trip",
        .unit = "us",
        .note = "64 bytes through gRPC C core over a Unix socket, and back"};
    size_t count    = run->tasks / 4 + 100;
    double *seconds = bench_must_alloc(count * sizeof(*seconds));
    struct plasmon_ref *refs[WARM_UP];

    (void)rate_run(&run->cluster, refs, WARM_UP, 1);
    for (size_t i = 0; i < count; i++) {
        seconds[i] = rate_run(&run->cluster, refs, 1, 1);
    }
    row.value = bench_percentile(seconds, count, 0.5) * 1e6;
    row.p99   = bench_percentile(seconds, count, 0.99) * 1e6;

    bench_must_ping(run->echo, seconds, pl_min_u64(count, WARM_UP));
    bench_must_ping(run->echo, seconds, count);
    echo.value        = bench_percentile(seconds, count, 0.5) * 1e6;
    echo.p99          = bench_percentile(seconds, count, 0.99) * 1e6;
    row.limit         = 2 * echo.value;
    *out_trip_seconds = echo.value * 1e-6;
    bench_report_add(&run->report, &row);
    bench_report_add(&run->report, &echo);
    pl_free(seconds);
}

/*
 * The next task comes after milliseconds of something else, as in most programs: nobody's processor
 * may have gone to sleep.
 */
static void late_tasks(struct bench_tasks_run *run)
{
    struct bench_row row = {.name = "task_after_1_to_5_ms",
                            .unit = "us",
                            .note = "a noop when nothing was done for so long, drawn"};
    double seconds[LATE_TASKS];
    struct plasmon_ref *ref;
    unsigned drawn = 1;

    for (size_t i = 0; i < LATE_TASKS; i++) {
        struct timespec pause = {.tv_nsec = 1000000 + rand_r(&drawn) % 4000000};

        (void)nanosleep(&pause, NULL);
        seconds[i] = rate_run(&run->cluster, &ref, 1, 1);
    }
    row.value = bench_percentile(seconds, LATE_TASKS, 0.5) * 1e6;
    row.p99   = bench_percentile(seconds, LATE_TASKS, 0.99) * 1e6;
    bench_report_add(&run->report, &row);
}

/* ----------------------------------------------------------------- many tasks at a time */

/* What a task costs each process, from the counters that they keep. */
static void add_costs(struct bench_tasks_run *run, const struct bench_status *before,
                      const struct bench_status *after, uint64_t client_ns, double tasks)
{
    const struct {
        const char *name;
        uint64_t ns;
        const char *note;
    } costs[] = {
        {"head_cpu_per_task", after->core_ns - before->core_ns,
         "the head's own work: without gRPC and the kernel"},
        {"worker_cpu_per_task", after->worker_cpu_ns - before->worker_cpu_ns,
         after->driver_counted ? "without the driver's calls"
                               : "the driver's calls included"},
        {"worker_driver_per_task", after->worker_driver_ns - before->worker_driver_ns,
         "inside the driver's calls"},
        {"client_cpu_per_task", client_ns, "all threads of this process, gRPC included"},
    };

    for (size_t i = 0; i < PL_COUNT(costs); i++) {
        struct bench_row row = {.unit = "us", .value = (double)costs[i].ns * 1e-3 / tasks};

        if (costs[i].ns == 0) {
            bench_report_remark(&run->report,
                                "%s: none was counted (CPU devices have no "
                                "driver; a worker counts with PLASMON_DRIVER_TIME)",
                                costs[i].name);
            continue;
        }
        (void)snprintf(row.name, sizeof(row.name), "%s", costs[i].name);
        (void)snprintf(row.note, sizeof(row.note), "%s", costs[i].note);
        bench_report_add(&run->report, &row);
    }
}

static void async_tasks(struct bench_tasks_run *run, struct plasmon_ref **refs)
{
    struct bench_row row = {
        .name = "single_client_tasks_async", .unit = "1/s", .reference = "7700-8000 1/s"};
    struct bench_status before, after;
    double seconds[ROUNDS];
    uint64_t client_ns;

    bench_must_status(&run->cluster, &before);
    client_ns = bench_process_cpu_ns();
    for (size_t i = 0; i < ROUNDS; i++) {
        seconds[i] = rate_run(&run->cluster, refs, run->tasks, run->tasks);
    }
    client_ns = bench_process_cpu_ns() - client_ns;
    bench_must_status(&run->cluster, &after);
    row.value = run->tasks / bench_percentile(seconds, ROUNDS, 0.5);
    (void)snprintf(row.note, sizeof(row.note), "%u submitted, then all waited for",
                   run->tasks);
    bench_report_add(&run->report, &row);
    add_costs(run, &before, &after, client_ns, (double)run->tasks * ROUNDS);
    bench_report_add(&run->report, &(struct bench_row){.name  = "head_memory_per_task",
                                                       .unit  = "bytes",
                                                       .value = (double)after.task_bytes,
                                                       .limit = 1024,
                                                       .note = "when most were in flight"});
}

/* The line of the picture: how the rate grows with what is in flight. */
static void depth_tasks(struct bench_tasks_run *run, struct plasmon_ref **refs,
                        double trip_seconds)
{
    for (uint32_t depth = 1; depth <= run->tasks; depth *= 4) {
        uint32_t count       = depth < 16 ? run->tasks / 10 + depth : run->tasks;
        struct bench_row row = {.name       = "tasks_in_flight",
                                .series     = "tasks, waited for in batches",
                                .x          = depth,
                                .unit       = "1/s",
                                .limit      = depth / (2 * trip_seconds),
                                .limit_name = "a batch in 2 round trips"};

        row.value = count / rate_run(&run->cluster, refs, count, depth);
        bench_report_add(&run->report, &row);
    }
}

/* ------------------------------------------------------------- several threads, clients */

struct worker_thread {
    struct bench_cluster cluster; /* a client of its own, or a copy of the only one */
    struct plasmon_ref **refs;
    pthread_barrier_t *barrier;
    uint32_t tasks;
    pthread_t thread;
};

static void *thread_run(void *user)
{
    struct worker_thread *worker = user;

    (void)pthread_barrier_wait(worker->barrier);
    (void)rate_run(&worker->cluster, worker->refs, worker->tasks, worker->tasks);
    (void)pthread_barrier_wait(worker->barrier);
    return NULL;
}

/* Seconds that THREADS threads needed for `tasks` each. */
static double threads_run(struct bench_cluster *cluster, uint32_t tasks, bool own_clients)
{
    struct worker_thread workers[THREADS];
    pthread_barrier_t barrier;
    uint64_t began;
    double seconds;

    if (pthread_barrier_init(&barrier, NULL, THREADS + 1) != 0) {
        bench_die("cannot make a barrier");
    }
    for (size_t i = 0; i < THREADS; i++) {
        workers[i] =
            (struct worker_thread){.cluster = *cluster,
                                   .refs    = bench_must_alloc(tasks * sizeof(void *)),
                                   .barrier = &barrier,
                                   .tasks   = tasks};
        if (own_clients) {
            bench_must_start(&workers[i].cluster, &(struct bench_cluster_config){0});
        }
        if (pthread_create(&workers[i].thread, NULL, thread_run, &workers[i]) != 0) {
            bench_die("cannot start a thread");
        }
    }
    (void)pthread_barrier_wait(&barrier);
    began = pl_now_ns();
    (void)pthread_barrier_wait(&barrier);
    seconds = (double)(pl_now_ns() - began) * 1e-9;
    for (size_t i = 0; i < THREADS; i++) {
        (void)pthread_join(workers[i].thread, NULL);
        if (own_clients) {
            bench_cluster_finish(&workers[i].cluster);
        }
        pl_free(workers[i].refs);
    }
    (void)pthread_barrier_destroy(&barrier);
    return seconds;
}

static void parallel_tasks(struct bench_tasks_run *run)
{
    struct bench_row threads = {.name = "multi_thread_tasks_async",
                                .unit = "1/s",
                                .note = "4 threads of one client"};
    struct bench_row clients = {.name      = "multi_client_tasks_async",
                                .unit      = "1/s",
                                .reference = "21000-22000 1/s",
                                .note      = "4 clients in 4 threads"};
    uint32_t tasks           = run->tasks / 2;

    threads.value = THREADS * tasks / threads_run(&run->cluster, tasks, false);
    bench_report_add(&run->report, &threads);
    if (run->cluster.is_private) {
        bench_report_remark(
            &run->report, "multi_client_tasks_async: a private cluster has one client; use "
                          "`plasmon start` and PLASMON_ADDRESS");
        return;
    }
    clients.value = THREADS * tasks / threads_run(&run->cluster, tasks, true);
    bench_report_add(&run->report, &clients);
}

/* -------------------------------------------------------------------------- the command */

static void measure(struct bench_tasks_run *run)
{
    struct plasmon_ref **refs = bench_must_alloc(run->tasks * sizeof(struct plasmon_ref *));
    double trip_seconds;

    sync_tasks(run, &trip_seconds);
    late_tasks(run);
    async_tasks(run, refs);
    depth_tasks(run, refs, trip_seconds);
    parallel_tasks(run);
    bench_tasks_data(run);
    bench_tasks_scale(run);
    pl_free(refs);
}

static int run_tasks(int argc, char **argv)
{
    static const struct bench_plot plot = {.title   = "Tasks a second by tasks in flight",
                                           .x_label = "tasks in flight",
                                           .y_label = "noop tasks (1/s)"};
    struct tasks_options given          = {
                 .tasks = TASKS_DEFAULT, .object_mib = OBJECT_DEFAULT, .scale_tasks = SCALE_DEFAULT};
    struct cli_parsed parsed = cli_parse(&bench_tasks, argc, argv, &given);
    struct bench_tasks_run run;
    struct bench_cluster_config config;
    bool ok;

    if (parsed.exit >= 0) {
        return parsed.exit;
    }
    if (given.tasks < 100 || given.object_mib < 1) {
        return cli_usage(&bench_tasks,
                         "--tasks is at least 100 and --object-mib at least 1");
    }
    run                = (struct bench_tasks_run){.tasks        = given.tasks,
                                                  .scale_tasks  = given.scale ? given.scale_tasks : 0,
                                                  .object_bytes = (uint64_t)given.object_mib << 20};
    config.transfer    = NULL;
    config.driver_time = true;
    config.gpus = given.gpus != NULL ? given.gpus : bench_machine_gpus() > 0 ? "1" : "none";
    config.cpu_devices = given.cpu_devices; /* 0 is 1 without GPUs */

    if (bench_machine_gpus() > 0 && strcmp(config.gpus, "none") != 0) {
        const bool cuda = true;

        bench_must_run_raw(bench_raw_pinned_run, &cuda, run.pinned, PL_COUNT(run.pinned));
    }
    run.echo = bench_must_fork_echo();
    bench_must_start(&run.cluster, &config);
    bench_must_connect_echo(run.echo);
    bench_report_init(&run.report, "Plasmon: control plane");
    run.report.reference_title = "Ray (published, 64 cores)";
    run.report.x_title         = "count";
    measure(&run);
    bench_cluster_finish(&run.cluster);
    bench_echo_destroy(run.echo);
    bench_tasks_paths(&run, &config);

    bench_report_print(&run.report);
    ok = bench_report_write_json(&run.report, given.json);
    ok &= bench_plot_write(&plot, &run.report, "1/s", given.plot);
    bench_report_finish(&run.report);
    return ok ? CLI_OK : CLI_FAIL;
}
