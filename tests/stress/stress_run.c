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
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/clock.h"
#include "tests/integration/cluster.h"
#include "tests/stress/stress_test.h"

#define STUCK_NS         20000000000ull
#define REPORT_NS        5000000000ull /* how long the head may take to say its status then */
#define KILLS_PER_DEVICE 6 /* of one cluster; the store gives up at 10 in a minute */
#define SCARCE_BYTES     (128ull << 20) /* see stress_large.c */
#define LOOK_MS          20
#define WORKERS_SAY_MS   2000

/* ------------------------------------------------------------------------------ reports */

static void *ask_status(void *user)
{
    struct stress_run *run = user;
    char *text             = NULL;

    if (plasmon_status_json(run->ground.client, &text) == PLASMON_OK) {
        printf("# %s\n", text);
        free(text);
    }
    if (plasmon_doctor(run->ground.client, 0, &text) == PLASMON_OK) {
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

/*
 * Where each thread of a worker is: by /proc, and, if its main loop stands still, by its own stacks
 * on stderr.
 */
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
    for (uint32_t i = 0; i < run->player_count; i++) {
        stress_print_steps(&run->player[i].thread, 12);
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

/* ------------------------------------------------------------------------------ threads */

static struct stress_player *player_of(struct stress_thread *thread)
{
    return pl_container_of(thread, struct stress_player, thread);
}

static void begins(struct stress_thread *thread)
{
    struct stress_player *player = player_of(thread);

    player->deaths_before = atomic_load(&player->run->deaths_ended);
}

/* May this read have failed so? */
static bool excuse(struct stress_thread *thread, plasmon_status_t status, bool consumable,
                   uint64_t bytes)
{
    struct stress_player *player = player_of(thread);

    (void)bytes;
    return (status == PLASMON_ECONSUMED || status == PLASMON_EDEPENDENCY) && consumable &&
           atomic_load(&player->run->deaths_begun) > player->deaths_before;
}

static __attribute__((noreturn)) void failed(struct stress_thread *thread, const char *text)
{
    print_cluster(player_of(thread)->run);
    stress_print_steps(thread, STRESS_LOG_LINES);
    test_fail(__FILE__, __LINE__, "%s", text);
}

static const struct stress_hooks hooks = {.begin  = begins,
                                          .excuse = excuse,
                                          .fail   = failed};

/* Take one of the graphs that are left. */
static bool may_begin(struct stress_run *run)
{
    uint64_t left = atomic_load(&run->graphs_left);

    if (pl_now_ns() >= run->deadline_ns) {
        return false;
    }
    while (left > 0) {
        if (atomic_compare_exchange_weak(&run->graphs_left, &left, left - 1)) {
            return true;
        }
    }
    return false;
}

static void *player_main(void *user)
{
    struct stress_player *player = user;

    while (may_begin(player->run)) {
        stress_graph_play(&player->thread);
    }
    atomic_store(&player->done, true);
    return NULL;
}

/* --------------------------------------------------------------------- workers that die */

static bool threads_done(const struct stress_run *run)
{
    for (uint32_t i = 0; i < run->player_count; i++) {
        if (!atomic_load(&run->player[i].done)) {
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
        uint32_t device = (uint32_t)(test_random(&random) % run->ground.devices);
        uint64_t pause_ns =
            (30 + test_random(&random) % 500) * 1000000u * (run->profile->gpu ? 4 : 1);
        uint64_t until_ns = pl_now_ns() + pause_ns;

        /* Its moment is any moment: this waits for time to pass, not for something
     * to happen. */
        while (!threads_done(run) && pl_now_ns() < until_ns) {
            (void)poll(NULL, 0, 5);
        }
        if (!threads_done(run) && killed[device]++ < KILLS_PER_DEVICE) {
            pid_t worker = cluster_worker(run->ground.client, (int)device);

            atomic_fetch_add(&run->deaths_begun, 1);
            cluster_kill(worker);
            atomic_fetch_add(&run->deaths_ended, 1);
        }
    }
    return NULL;
}

/* ---------------------------------------------------------------------------- a cluster */

static bool can_compile(struct stress_run *run)
{
    plasmon_status_t status = stress_source_probe(&run->ground);

    if (status == PLASMON_ENOTSUP || status == PLASMON_EPERM || status == PLASMON_ENOLIB) {
        printf("# no source functions: %s\n", plasmon_error(run->ground.client));
        return false;
    }
    CLUSTER_OK(status);
    return true;
}

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
        run->ground.scarce    = test_random(random) % 4 == 0;
        options.device_memory = run->ground.scarce ? SCARCE_BYTES : 0;
    }
    run->player_count = 1 + (uint32_t)(test_random(random) % 3);
    ASSERT_EQ(setenv("PLASMON_RUN_STREAMS", stream, 1), 0);
    ASSERT_EQ(setenv("PLASMON_LOG", "warn", 0), 0);
    CLUSTER_OK(plasmon_init(&options, &run->ground.client));
    CLUSTER_OK(plasmon_devices(run->ground.client, NULL, 0, &run->ground.devices));
    if (run->ground.devices != devices || devices > STRESS_DEVICES_MAX) {
        test_fail(__FILE__, __LINE__, "the cluster has %u devices, not %u",
                  run->ground.devices, devices);
    }
    run->ground.sources_known = 0;
    /* A C compiler takes a while, and each restarted worker runs it again. */
    run->ground.sources =
        (run->profile->gpu || test_random(random) % 3 == 0) && can_compile(run);
    (void)snprintf(run->about, sizeof(run->about),
                   "%u %s devices%s, %s run streams, transfer %s, %u threads",
                   run->ground.devices, run->profile->gpu ? "GPU" : "CPU",
                   run->ground.scarce ? " with little memory" : "", stream,
                   options.transfer, run->player_count);
}

static void start_players(struct stress_run *run, uint64_t *random)
{
    for (uint32_t i = 0; i < run->player_count; i++) {
        struct stress_player *player = &run->player[i];

        *player = (struct stress_player){.run = run};
        ASSERT_TRUE(
            stress_thread_init(&player->thread, &run->ground, i, test_random(random)));
    }
    for (uint32_t i = 0; i < run->player_count; i++) {
        ASSERT_EQ(pthread_create(&run->player[i].id, NULL, player_main, &run->player[i]),
                  0);
    }
}

static void join_players(struct stress_run *run)
{
    for (uint32_t i = 0; i < run->player_count; i++) {
        struct stress_player *player = &run->player[i];

        ASSERT_EQ(pthread_join(player->id, NULL), 0);
        run->graphs += atomic_load(&player->thread.graphs);
        run->steps += atomic_load(&player->thread.steps);
        stress_thread_finish(&player->thread);
    }
}

static uint32_t steps_done(const struct stress_run *run)
{
    uint32_t steps = 0;

    for (uint32_t i = 0; i < run->player_count; i++) {
        const struct stress_thread *thread = &run->player[i].thread;

        steps += atomic_load(&thread->steps) + atomic_load(&thread->graphs);
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

    CLUSTER_OK(plasmon_status_json(run->ground.client, &text));
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

/*
 * A cluster that came up is used, however long that took: beside others a GPU's workers take longer
 * to start than they play.
 */
static uint64_t deadline_of(uint64_t now_ns, uint64_t end_ns, uint64_t cluster_ns)
{
    return pl_min_u64(pl_max_u64(end_ns, now_ns + 1000000000u), now_ns + cluster_ns);
}

static void play_cluster(struct stress_run *run, uint64_t *random, uint64_t end_ns)
{
    const uint64_t cluster_ns = (run->profile->gpu ? 6000u : 1500u) * 1000000ull;
    pthread_t killer;

    start_cluster(run, random);
    run->deadline_ns = deadline_of(pl_now_ns(), end_ns, cluster_ns);
    start_players(run, random);
    if (run->profile->kills) {
        ASSERT_EQ(pthread_create(&killer, NULL, killer_main, run), 0);
    }
    watch(run);
    join_players(run);
    if (run->profile->kills) {
        ASSERT_EQ(pthread_join(killer, NULL), 0);
    }
    check_restarts(run);
    stress_cover_cluster(run);
    plasmon_finish(run->ground.client);
    cluster_expect_gone(CLUSTER_WAIT_MS);
}

static struct stress_run *run_create(const struct stress_profile *profile)
{
    struct stress_run *run = calloc(1, sizeof(*run));

    ASSERT_NOT_NULL(run);
    run->profile = profile;
    run->player  = calloc(STRESS_THREADS_MAX, sizeof(*run->player));
    ASSERT_NOT_NULL(run->player);
    stress_ground_init(&run->ground, &hooks, NULL, 0); /* clients come with clusters */
    run->ground.gpu         = profile->gpu;
    run->ground.large_bytes = profile->large_bytes;
    return run;
}

static void run_destroy(struct stress_run *run)
{
    stress_ground_finish(&run->ground);
    free(run->player);
    free(run);
}

void stress_play(const struct stress_profile *profile)
{
    struct stress_run *run = run_create(profile);
    uint64_t random        = profile->seed;
    uint64_t began_ns      = pl_now_ns();
    uint64_t end_ns =
        profile->seconds > 0 ? began_ns + profile->seconds * 1000000000ull : UINT64_MAX;
    uint64_t deaths = 0;

    printf("# --seed %llu\n", (unsigned long long)profile->seed);
    atomic_store(&run->graphs_left, profile->graphs > 0 ? profile->graphs : UINT64_MAX);
    while (pl_now_ns() < end_ns && atomic_load(&run->graphs_left) > 0) {
        atomic_store(&run->deaths_begun, 0);
        atomic_store(&run->deaths_ended, 0);
        play_cluster(run, &random, end_ns);
        deaths += atomic_load(&run->deaths_begun);
        run->cluster++;
        test_set_timeout(profile->seconds + 120); /* cluster_tag() set its own */
    }
    printf("# %llu graphs, %llu steps on %u clusters, %llu workers killed; %llu "
           "elements "
           "compared, %llu reads excused\n",
           (unsigned long long)run->graphs, (unsigned long long)run->steps, run->cluster,
           (unsigned long long)deaths,
           (unsigned long long)atomic_load(&run->ground.compared),
           (unsigned long long)atomic_load(&run->ground.excused));
    stress_cover_end(run, deaths);
    ASSERT_TRUE(run->graphs > 0);
    ASSERT_TRUE(!profile->kills || deaths > 0 || profile->graphs > 0);
    run_destroy(run);
}
