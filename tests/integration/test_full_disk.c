/*
 * Disks and limits that are full: whoever needs the room says which file and why, and leaves
 * nothing half done or running; who only wanted to keep a log or a cache goes on without.
 */
#include <poll.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "tests/harness/small_disk.h"
#include "tests/integration/started.h"

static char disk[128];

/* A small disk in the private folder. */
static void disk_mount(const char *name, const char *limits)
{
    started_begin();
    (void)snprintf(disk, sizeof(disk), "%s/%s", cluster_folder(), name);
    ASSERT_EQ(mkdir(disk, 0700), 0);
    small_disk_mount(disk, limits);
}

/* The folder that `plasmon start` uses: records, sockets, logs. */
static void disk_mount_runtime(const char *limits)
{
    char name[32];

    (void)snprintf(name, sizeof(name), "plasmon-%u", (unsigned)getuid());
    disk_mount(name, limits);
}

static void expect_told(const char *said, const char *file)
{
    ASSERT_CONTAINS(said, file);
    ASSERT_CONTAINS(said, "No space left on device");
}

/* ----------------------------------------------------------------------- runtime folder */

TEST(a_start_without_room_for_its_record_names_the_file_and_leaves_nothing_running)
{
    char said[8192], record[160];

    disk_mount_runtime("size=64k");
    small_disk_fill(disk);
    ASSERT_EQ(STARTED_RUN(said, sizeof(said), "plasmon", "start", "--head", "--cpu-devices",
                          "1", "--gpus", "none", "--device-memory", "64M"),
              1);
    (void)snprintf(record, sizeof(record), "%s/node", disk);
    expect_told(said, record);
    ASSERT_EQ(cluster_count(""), 0);
}

TEST(a_socket_folder_without_room_is_named)
{
    char said[8192], sub[160];

    disk_mount("full", "nr_inodes=1");
    (void)snprintf(sub, sizeof(sub), "%s/sub", disk);
    ASSERT_EQ(STARTED_RUN(said, sizeof(said), "plasmon-store", "--head",
                          "unix:/nowhere/head", "--socket-dir", sub, "--cpu-devices", "1",
                          "--gpus", "none"),
              1);
    expect_told(said, sub);
    ASSERT_EQ(cluster_count(""), 0);
}

TEST(a_cluster_whose_log_disk_fills_up_goes_on_and_can_be_stopped)
{
    struct plasmon_client *client;
    char said[8192];

    disk_mount_runtime("size=256k");
    ASSERT_EQ(setenv("PLASMON_LOG", "trace", 1), 0);
    started_cluster(2);
    ASSERT_EQ(unsetenv("PLASMON_LOG"), 0);
    small_disk_fill(disk);
    client = started_join();
    for (int i = 0; i < 200; i++) {
        struct plasmon_ref *ref = cluster_fill(client, 100, i, i % 2);

        cluster_expect_all(client, ref, 100, (float)i);
        CLUSTER_OK(plasmon_release(client, ref));
    }
    plasmon_finish(client);
    ASSERT_EQ(STARTED_RUN(said, sizeof(said), "plasmon", "stop"), 0);
    ASSERT_EQ(cluster_count(""), 0);
}

/* ------------------------------------------------------------------------------ results */

static void expect_bench_told(const char *option, const char *name)
{
    char said[16384], path[192];

    (void)snprintf(path, sizeof(path), "%s/%s", disk, name);
    ASSERT_TRUE(STARTED_RUN(said, sizeof(said), "plasmon", "bench", "tasks", "--tasks",
                            "100", "--object-mib", "1", "--gpus", "none", option,
                            path) != 0);
    expect_told(said, path);
}

TEST(a_benchmark_without_room_for_its_results_names_the_file)
{
    disk_mount("full", "size=16k");
    small_disk_fill(disk);
    expect_bench_told("--json", "bench.json");
    expect_bench_told("--plot", "bench.svg");
}

TEST(a_timeline_without_room_names_the_file)
{
    char said[8192], path[192];

    disk_mount("full", "size=16k");
    started_cluster(1);
    small_disk_fill(disk);
    (void)snprintf(path, sizeof(path), "%s/timeline.json", disk);
    ASSERT_EQ(STARTED_RUN(said, sizeof(said), "plasmon", "timeline", "--seconds", "0.1",
                          "--address", started_address(), "--out", path),
              1);
    expect_told(said, path);
}

TEST(a_timeline_that_a_program_writes_tells_its_status)
{
    struct plasmon_client *client;
    char path[192];

    disk_mount("full", "size=16k");
    small_disk_fill(disk);
    client = cluster_start(1);
    CLUSTER_OK(plasmon_timeline_start(client, NULL));
    cluster_expect_all(client, cluster_fill(client, 10, 1, PLASMON_ANYWHERE), 10, 1);
    CLUSTER_OK(plasmon_timeline_stop(client));
    (void)snprintf(path, sizeof(path), "%s/timeline.svg", disk);
    ASSERT_STATUS(plasmon_timeline_write(client, NULL, path), PLASMON_ENOSPC);
    expect_told(plasmon_error(client), path);
    plasmon_finish(client);
}

TEST(a_matrix_larger_than_the_disk_names_the_file)
{
    char said[8192], a[192], b[192], c[192];

    disk_mount("full", "size=96k");
    (void)snprintf(a, sizeof(a), "%s/a.npy", cluster_folder());
    (void)snprintf(b, sizeof(b), "%s/b.npy", cluster_folder());
    (void)snprintf(c, sizeof(c), "%s/c.npy", disk);
    ASSERT_TRUE(STARTED_RUN(said, sizeof(said), "../examples/03_matmul", "--block", "64",
                            "--random", "128x64x128", a, b, c) != 0);
    expect_told(said, c);
}

/* ------------------------------------------------------------------------ shared memory */

/*
 * Memory by descriptor has no disk, but RLIMIT_FSIZE bounds it. What is over it is an error of the
 * call; no daemon, and no program that uses the library, is killed by SIGXFSZ.
 */
static void limit_files(rlim_t bytes)
{
    const struct rlimit limit = {.rlim_cur = bytes, .rlim_max = bytes};

    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

TEST(shared_memory_over_the_limit_of_files_is_told_with_what_to_do)
{
    struct plasmon_options options = PLASMON_OPTIONS_INIT;
    struct plasmon_client *client;

    cluster_tag();
    limit_files(1 << 20);
    options.gpus        = "none";
    options.cpu_devices = 1;
    ASSERT_STATUS(plasmon_init(&options, &client), PLASMON_ECLOSED);
    ASSERT_CONTAINS(plasmon_error(NULL), "shared memory");
    ASSERT_CONTAINS(plasmon_error(NULL), "ulimit -f");
    cluster_expect_gone(CLUSTER_GONE_MS);
}

TEST(a_start_over_the_limit_of_files_is_told_with_what_to_do)
{
    char said[8192];

    started_begin();
    limit_files(1 << 20);
    ASSERT_EQ(STARTED_RUN(said, sizeof(said), "plasmon", "start", "--head", "--cpu-devices",
                          "1", "--gpus", "none"),
              1);
    ASSERT_CONTAINS(said, "shared memory");
    ASSERT_CONTAINS(said, "ulimit -f");
    ASSERT_EQ(cluster_count(""), 0);
}

TEST_MAIN()
