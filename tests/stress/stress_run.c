/*
 * Clusters of all kinds, one after another, and threads that play graphs on
 * each.
 *
 * The test's own thread is the watchdog: it starts the others, then looks
 * whether anything gets done. Steps are short, so 20 seconds without one that
 * ended is a wait that never ends, and the report says who waits: each thread's
 * last steps, the head's status, the workers' processes. One more thread kills
 * workers, at most so often that their device is not given up.
 */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/clock.h"
#include "tests/integration/cluster.h"
#include "tests/stress/stress.h"

#define STUCK_NS         20000000000ull
#define REPORT_NS        5000000000ull /* how long the head may take to say its status then */
#define KILLS_PER_DEVICE 6 /* of one cluster; the store gives up at 10 in a minute */
#define SCARCE_BYTES     (128ull << 20) /* see stress_large.c */
#define LOOK_MS          20
#define WORKERS_SAY_MS   2000

/* ------------------------------------------------------------------------------------------------ reports */

static void print_steps(struct stress_thread *thread, uint32_t most)
{
    uint32_t count = atomic_load(&thread->log_count);
    uint32_t first = count > most ? count - most : 0;

    printf("# thread %u, graph %016llx, %u steps done; the last ones submitted:\n",
           thread->index, (unsigned long long)thread->graph, atomic_load(&thread->steps));
    for (uint32_t i = first; i < count; i++) {
        printf("#   %u: %s\n", i, thread->log[i % STRESS_LOG_LINES]);
    }
}

static void *ask_status(void *user)
{
    struct stress_run *run = user;
    char *text             = NULL;

    if (plasmon_status_json(run->client, &text) == PLASMON_OK) {
        printf("# %s\n", text);
        free(text);
    }
    if (plasmon_doctor(run->client, 0, &text) == PLASMON_OK) {
        printf("%s", text);
        free(text);
    }
    return NULL;
}

/* What /proc says of a thread, on one line. */
static void print_thread(pid_t pid, const char *thread, const char *file)
{
    char path[64 + NAME_MAX], text[512];
    size_t bytes = 0;
    FILE *in;

    (void)snprintf(path, sizeof(path), "/proc/%d/task/%s/%s", (int)pid, thread, file);
    in = fopen(path, "re");
    if (in != NULL) {
        bytes = fread(text, 1, sizeof(text) - 1, in);
        (void)fclose(in);
    }
    text[bytes] = '\0';
    for (size_t i = 0; i < bytes; i++) {
        text[i] = text[i] == '\n' ? ' ' : text[i];
    }
    printf(" %s", text);
}

/* Where each thread of a worker is: by /proc, and, if its main loop stands still, by its own stacks on stderr. */
static void ask_threads(pid_t pid)
{
    char path[64];
    struct dirent *entry;
    DIR *threads;

    (void)snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
    threads = opendir(path);
    while (threads != NULL && (entry = readdir(threads)) != NULL) {
        if (entry->d_name[0] != '.') {
            printf("#   thread %s:", entry->d_name);
            print_thread(pid, entry->d_name, "comm");
            print_thread(pid, entry->d_name, "wchan");
            print_thread(pid, entry->d_name, "syscall");
            print_thread(pid, entry->d_name, "stack");
            printf("\n");
            (void)tgkill(pid, (pid_t)strtol(entry->d_name, NULL, 10), SIGUSR1);
        }
    }
    if (threads != NULL) {
        (void)closedir(threads);
    }
}

/* Each worker says on stderr what its queue and its streams wait for
 * (start_cluster() turned its log on). */
static void ask_workers(void)
{
    pid_t pids[STRESS_DEVICES_MAX * 2];
    unsigned count = cluster_list("plasmon-worker", pids, PL_COUNT(pids));

    for (unsigned i = 0; i < count && i < PL_COUNT(pids); i++) {
        printf("# worker %d\n", (int)pids[i]);
        (void)kill(pids[i], SIGUSR1); /* it may be dead; then the status says so */
        ask_threads(pids[i]);
    }
}

static void print_cluster(struct stress_run *run)
{
    printf("# cluster %u: %s, %llu workers killed; --seed %llu\n", run->cluster, run->about,
           (unsigned long long)atomic_load(&run->deaths_begun),
           (unsigned long long)run->profile->seed);
}

/* The status comes from a thread of its own: it may be the head that is stuck.
 */
static void print_all(struct stress_run *run)
{
    pthread_t asker;
    struct timespec until;

    print_cluster(run);
    for (uint32_t i = 0; i < run->thread_count; i++) {
        print_steps(&run->thread[i], 12);
    }
    ask_workers();
    (void)fflush(stdout);
    if (pthread_create(&asker, NULL, ask_status, run) == 0) {
        (void)clock_gettime(CLOCK_REALTIME, &until); /* cannot fail */
        until.tv_sec += (time_t)(REPORT_NS / 1000000000u);
        if (pthread_timedjoin_np(asker, NULL, &until) != 0) {
            printf("# the head does not say its status\n");
        }
        (void)poll(NULL, 0, WORKERS_SAY_MS); /* they look for the question twice a second */
    }
    (void)fflush(stdout);
}

void stress_fail(struct stress_thread *thread, const char *format, ...)
{
    char text[STRESS_TEXT_BYTES];
    va_list args;

    va_start(args, format);
    (void)vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    print_cluster(thread->run);
    print_steps(thread, STRESS_LOG_LINES);
    test_fail(__FILE__, __LINE__, "%s", text);
}

/* ------------------------------------------------------------------------------------------------ threads */

void stress_log_step(struct stress_thread *thread, const struct stress_step *step)
{
    uint32_t count = atomic_load(&thread->log_count);

    stress_describe(step, thread->log[count % STRESS_LOG_LINES]);
    stress_cover_step(thread->run, step);
    atomic_store(&thread->log_count, count + 1);
}

static void begin_graph(struct stress_thread *thread)
{
    thread->graph         = test_random(&thread->random);
    thread->random        = thread->graph;
    thread->deaths_before = atomic_load(&thread->run->deaths_ended);
    thread->fresh_count   = 0;
    thread->quiet         = stress_chance(thread, 40);
    thread->consumable    = 0;
    atomic_store(&thread->log_count, 0);
}

static void play_graph(struct stress_thread *thread)
{
    uint32_t steps;

    begin_graph(thread);
    steps = 20 + (uint32_t)stress_draw(thread, 120);
    for (uint32_t i = 0; i < steps; i++) {
        struct stress_step step;

        stress_step_make(thread, &step);
        stress_log_step(thread, &step);
        stress_step_play(thread, &step);
        stress_step_apply(thread, &step);
        atomic_fetch_add(&thread->steps, 1);
    }
    stress_graph_end(thread);
    atomic_fetch_add(&thread->graphs, 1);
}

/* Take one of the graphs that are left. */
static bool may_begin(struct stress_run *run)
{
    uint64_t left = atomic_load(&run->graphs_left);

    if (atomic_load(&run->stop) || pl_now_ns() >= run->deadline_ns) {
        return false;
    }
    while (left > 0) {
        if (atomic_compare_exchange_weak(&run->graphs_left, &left, left - 1)) {
            return true;
        }
    }
    return false;
}

static void *thread_main(void *user)
{
    struct stress_thread *thread = user;

    while (may_begin(thread->run)) {
        play_graph(thread);
    }
    atomic_store(&thread->done, true);
    return NULL;
}

/* ------------------------------------------------------------------------------------------------ workers that die */

static bool threads_done(const struct stress_run *run)
{
    for (uint32_t i = 0; i < run->thread_count; i++) {
        if (!atomic_load(&run->thread[i].done)) {
            return false;
        }
    }
    return true;
}

static void *killer_main(void *user)
{
    struct stress_run *run              = user;
    uint32_t killed[STRESS_DEVICES_MAX] = {0};
    uint64_t random = run->profile->seed ^ run->cluster * 0x2545f4914f6cdd1dull;

    while (!threads_done(run) && pl_now_ns() < run->deadline_ns) {
        uint32_t device = (uint32_t)(test_random(&random) % run->devices);
        uint64_t pause_ns =
            (30 + test_random(&random) % 500) * 1000000u * (run->profile->gpu ? 4 : 1);
        uint64_t until_ns = pl_now_ns() + pause_ns;

        /* Its moment is any moment: this waits for time to pass, not for something
     * to happen. */
        while (!threads_done(run) && pl_now_ns() < until_ns) {
            (void)poll(NULL, 0, 5);
        }
        if (!threads_done(run) && killed[device]++ < KILLS_PER_DEVICE) {
            pid_t worker = cluster_worker(run->client, (int)device);

            atomic_fetch_add(&run->deaths_begun, 1);
            cluster_kill(worker);
            atomic_fetch_add(&run->deaths_ended, 1);
        }
    }
    return NULL;
}

/* ------------------------------------------------------------------------------------------------ a cluster */

static void start_cluster(struct stress_run *run, uint64_t *random)
{
    static const char *const routes[]  = {"auto", "peer", "host", "nccl"};
    static const char *const streams[] = {"1", "2", "4"};
    struct plasmon_options options     = PLASMON_OPTIONS_INIT;
    const char *stream                 = streams[test_random(random) % PL_COUNT(streams)];
    uint32_t devices                   = 1u << test_random(random) % 3;

    cluster_tag();
    devices          = (uint32_t)pl_min_u64(devices, run->profile->devices_max);
    devices          = run->profile->devices > 0 ? run->profile->devices : devices;
    options.transfer = routes[test_random(random) % PL_COUNT(routes)];
    if (run->profile->transfer != NULL) {
        options.transfer = run->profile->transfer;
    }
    if (run->profile->gpu) {
        static char count[8];

        (void)snprintf(count, sizeof(count), "%u", devices);
        options.gpus = count;
    } else {
        options.gpus          = "none";
        options.cpu_devices   = devices;
        run->scarce           = test_random(random) % 4 == 0;
        options.device_memory = run->scarce ? SCARCE_BYTES : 0;
    }
    run->thread_count = 1 + (uint32_t)(test_random(random) % 3);
    ASSERT_EQ(setenv("PLASMON_RUN_STREAMS", stream, 1), 0);
    ASSERT_EQ(setenv("PLASMON_LOG", "warn", 0), 0);
    CLUSTER_OK(plasmon_init(&options, &run->client));
    CLUSTER_OK(plasmon_devices(run->client, NULL, 0, &run->devices));
    if (run->devices != devices || devices > STRESS_DEVICES_MAX) {
        test_fail(__FILE__, __LINE__, "the cluster has %u devices, not %u", run->devices,
                  devices);
    }
    run->kills         = run->profile->kills;
    run->sources_known = 0;
    /* A C compiler takes a while, and each restarted worker runs it again. */
    run->sources =
        (run->profile->gpu || test_random(random) % 3 == 0) && stress_source_probe(run);
    (void)snprintf(run->about, sizeof(run->about),
                   "%u %s devices%s, %s run streams, transfer %s, %u threads", run->devices,
                   run->profile->gpu ? "GPU" : "CPU",
                   run->scarce ? " with little memory" : "", stream, options.transfer,
                   run->thread_count);
}

static void start_threads(struct stress_run *run, uint64_t *random)
{
    for (uint32_t i = 0; i < run->thread_count; i++) {
        struct stress_thread *thread = &run->thread[i];
        uint64_t *scratch = thread->scratch, *want = thread->want;

        memset(thread, 0, sizeof(*thread));
        thread->scratch = scratch;
        thread->want    = want;
        thread->run     = run;
        thread->index   = i;
        thread->random  = test_random(random);
    }
    for (uint32_t i = 0; i < run->thread_count; i++) {
        ASSERT_EQ(pthread_create(&run->thread[i].id, NULL, thread_main, &run->thread[i]),
                  0);
    }
}

static uint32_t steps_done(const struct stress_run *run)
{
    uint32_t steps = 0;

    for (uint32_t i = 0; i < run->thread_count; i++) {
        steps += atomic_load(&run->thread[i].steps) + atomic_load(&run->thread[i].graphs);
    }
    return steps;
}

/* Until all threads are done; or fails. */
static void watch(struct stress_run *run)
{
    uint32_t seen     = steps_done(run);
    uint64_t moved_ns = pl_now_ns();

    while (!threads_done(run)) {
        uint32_t now = steps_done(run);

        (void)poll(NULL, 0, LOOK_MS);
        if (now != seen) {
            seen     = now;
            moved_ns = pl_now_ns();
        } else if (pl_now_ns() - moved_ns > STUCK_NS) {
            print_all(run);
            test_fail(__FILE__, __LINE__, "no step ended for %llu s",
                      (unsigned long long)(STUCK_NS / 1000000000u));
        }
    }
}

/* No worker died but those that were killed: a crash would be repaired, and its tasks done again. */
static void check_restarts(struct stress_run *run)
{
    static const char key[] = "\"restarts\":";
    uint64_t restarts       = 0;
    char *text;

    CLUSTER_OK(plasmon_status_json(run->client, &text));
    for (const char *at = strstr(text, key); at != NULL; at = strstr(at + 1, key)) {
        restarts += strtoull(at + strlen(key), NULL, 10);
    }
    free(text);
    if (restarts > atomic_load(&run->deaths_ended)) {
        print_cluster(run);
        test_fail(__FILE__, __LINE__,
                  "workers were started again %llu times, and %llu were killed",
                  (unsigned long long)restarts,
                  (unsigned long long)atomic_load(&run->deaths_ended));
    }
}

static void play_cluster(struct stress_run *run, uint64_t *random)
{
    pthread_t killer;

    start_cluster(run, random);
    start_threads(run, random);
    if (run->kills) {
        ASSERT_EQ(pthread_create(&killer, NULL, killer_main, run), 0);
    }
    watch(run);
    for (uint32_t i = 0; i < run->thread_count; i++) {
        ASSERT_EQ(pthread_join(run->thread[i].id, NULL), 0);
        run->graphs += atomic_load(&run->thread[i].graphs);
        run->steps += atomic_load(&run->thread[i].steps);
    }
    if (run->kills) {
        ASSERT_EQ(pthread_join(killer, NULL), 0);
    }
    check_restarts(run);
    stress_cover_cluster(run);
    plasmon_finish(run->client);
    cluster_expect_gone(CLUSTER_WAIT_MS);
}

static struct stress_run *run_create(const struct stress_profile *profile)
{
    struct stress_run *run = calloc(1, sizeof(*run));

    ASSERT_NOT_NULL(run);
    run->profile = profile;
    run->thread  = calloc(STRESS_THREADS_MAX, sizeof(*run->thread));
    ASSERT_NOT_NULL(run->thread);
    for (size_t i = 0; i < STRESS_THREADS_MAX; i++) {
        run->thread[i].scratch = calloc(STRESS_ELEMENTS_MAX, sizeof(uint64_t));
        run->thread[i].want    = calloc(STRESS_ELEMENTS_MAX, sizeof(uint64_t));
        ASSERT_TRUE(run->thread[i].scratch != NULL && run->thread[i].want != NULL);
    }
    ASSERT_EQ(pthread_mutex_init(&run->source_lock, NULL), 0);
    return run;
}

static void run_destroy(struct stress_run *run)
{
    for (size_t i = 0; i < STRESS_THREADS_MAX; i++) {
        free(run->thread[i].scratch);
        free(run->thread[i].want);
    }
    (void)pthread_mutex_destroy(&run->source_lock); /* nobody has it */
    free(run->thread);
    free(run);
}

void stress_play(const struct stress_profile *profile)
{
    const uint64_t cluster_ns = (profile->gpu ? 6000u : 1500u) * 1000000ull;
    struct stress_run *run    = run_create(profile);
    uint64_t random           = profile->seed;
    uint64_t began_ns         = pl_now_ns();
    uint64_t end_ns =
        profile->seconds > 0 ? began_ns + profile->seconds * 1000000000ull : UINT64_MAX;
    uint64_t deaths = 0;

    printf("# --seed %llu\n", (unsigned long long)profile->seed);
    atomic_store(&run->graphs_left, profile->graphs > 0 ? profile->graphs : UINT64_MAX);
    while (pl_now_ns() < end_ns && atomic_load(&run->graphs_left) > 0) {
        run->deadline_ns = pl_min_u64(end_ns, pl_now_ns() + cluster_ns);
        atomic_store(&run->deaths_begun, 0);
        atomic_store(&run->deaths_ended, 0);
        play_cluster(run, &random);
        deaths += atomic_load(&run->deaths_begun);
        run->cluster++;
        test_set_timeout(profile->seconds + 120); /* cluster_tag() set its own */
    }
    printf("# %llu graphs, %llu steps on %u clusters, %llu workers killed; %llu "
           "elements "
           "compared, %llu reads excused\n",
           (unsigned long long)run->graphs, (unsigned long long)run->steps, run->cluster,
           (unsigned long long)deaths, (unsigned long long)atomic_load(&run->compared),
           (unsigned long long)atomic_load(&run->excused));
    stress_cover_end(run, deaths);
    ASSERT_TRUE(run->graphs > 0);
    ASSERT_TRUE(!profile->kills || deaths > 0 || profile->graphs > 0);
    run_destroy(run);
}
