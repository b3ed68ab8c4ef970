/*
 * A machine that lacks something: a library, a driver, a permission, room on a disk. Each is said
 * by name, with what to do.
 */
#include <link.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "tests/integration/started.h"

#define NOBODY 65534

static plasmon_status_t try_start(const char *gpus, uint32_t timeout_ms)
{
    struct plasmon_options options = PLASMON_OPTIONS_INIT;
    struct plasmon_client *client;

    options.gpus               = gpus;
    options.cpu_devices        = 1;
    options.device_memory      = 16 << 20;
    options.connect_timeout_ms = timeout_ms;
    return plasmon_init(&options, &client);
}

/* ---------------------------------------------------------------------------- libraries */

TEST(gpus_that_are_not_there_are_told_with_what_to_do)
{
    if (access("/proc/driver/nvidia/gpus", F_OK) == 0) {
        test_skip("this machine has a GPU");
    }
    cluster_tag();
    ASSERT_STATUS(try_start("1", 20000), PLASMON_ECLOSED);
    ASSERT_CONTAINS(plasmon_error(NULL), "the driver shows 0");
    ASSERT_CONTAINS(plasmon_error(NULL), "plasmon doctor");
    cluster_expect_gone(CLUSTER_GONE_MS);
}

TEST(a_library_that_cannot_be_loaded_is_named)
{
    char folder[256], path[320];
    FILE *file;

    cluster_tag();
    (void)snprintf(folder, sizeof(folder), "%s/lib", cluster_folder());
    ASSERT_EQ(mkdir(folder, 0700), 0);
    (void)snprintf(path, sizeof(path), "%s/libm.so.6", folder);
    file = fopen(path, "we"); /* empty: no library */
    ASSERT_TRUE(file != NULL && fclose(file) == 0);
    ASSERT_EQ(setenv("LD_LIBRARY_PATH", folder, 1), 0);
    ASSERT_TRUE(try_start("none", 10000) < 0);
    ASSERT_EQ(unsetenv("LD_LIBRARY_PATH"), 0);
    ASSERT_CONTAINS(plasmon_error(NULL), "libm.so.6");
    cluster_remove();
}

/* What libplasmon, which this test is linked to, has loaded under a name that begins so. */
static int find_library(struct dl_phdr_info *info, size_t bytes, void *user)
{
    const char **io_name = user;
    const char *name     = strrchr(info->dlpi_name, '/');

    (void)bytes;
    if (name != NULL && strncmp(name + 1, *io_name, strlen(*io_name)) == 0) {
        *io_name = info->dlpi_name;
        return 1;
    }
    return 0;
}

/* libplasmon is there and what it needs is not: its gRPC, which is installed along with it. */
TEST(a_companion_of_libplasmon_that_is_missing_is_named_by_the_loader_and_by_doctor)
{
    const char *library = "libplasmon.so", *companion = "libgrpc.so";
    char folder[256], path[600], libraries[1100], said[16384];
    FILE *file;

    if (dl_iterate_phdr(find_library, &library) == 0 ||
        dl_iterate_phdr(find_library, &companion) == 0) {
        test_skip("gRPC is no library of its own here");
    }
    started_begin();
    (void)snprintf(folder, sizeof(folder), "%s/lib", cluster_folder());
    ASSERT_EQ(mkdir(folder, 0700), 0);
    (void)snprintf(path, sizeof(path), "%s/%s", folder, strrchr(companion, '/') + 1);
    file = fopen(path, "we"); /* half an installation: empty */
    ASSERT_TRUE(file != NULL && fclose(file) == 0);
    (void)snprintf(libraries, sizeof(libraries), "%s:%.*s", folder,
                   (int)(strrchr(library, '/') - library), library);
    ASSERT_EQ(setenv("LD_LIBRARY_PATH", libraries, 1), 0);

    ASSERT_EQ(STARTED_RUN(said, sizeof(said), "../tests/integration/plasmon_lane_program"),
              127);
    ASSERT_CONTAINS(said, path);
    (void)STARTED_RUN(said, sizeof(said), "plasmon", "doctor");
    ASSERT_CONTAINS(said, path);
    ASSERT_CONTAINS(said, "programs that are linked to it do not start");
    ASSERT_CONTAINS(said, "LD_LIBRARY_PATH");
    ASSERT_EQ(unsetenv("LD_LIBRARY_PATH"), 0);
}

TEST(doctor_says_why_there_is_no_gpu)
{
    char said[16384];

    if (access("/proc/driver/nvidia/gpus", F_OK) == 0) {
        test_skip("this machine has a GPU");
    }
    started_begin();
    (void)STARTED_RUN(said, sizeof(said), "plasmon", "doctor");
    if (strstr(said, "this build has no CUDA") == NULL) {
        ASSERT_CONTAINS(said, "no NVIDIA driver can be loaded: libcuda.so.1");
    }
    ASSERT_CONTAINS(said, "CPU devices will be used");
}

TEST(doctor_looks_for_the_nccl_that_workers_would_load)
{
    char said[16384];

    started_begin();
    ASSERT_EQ(setenv("PLASMON_NCCL_LIBRARY", "/nowhere/libnccl.so.2", 1), 0);
    (void)STARTED_RUN(said, sizeof(said), "plasmon", "doctor");
    ASSERT_CONTAINS(said, "not found (/nowhere/libnccl.so.2)");
    ASSERT_CONTAINS(said, "install libnccl2");
    ASSERT_EQ(setenv("PLASMON_NCCL_LIBRARY", "libm.so.6", 1), 0); /* any that is there */
    (void)STARTED_RUN(said, sizeof(said), "plasmon", "doctor");
    ASSERT_CONTAINS(said, "NCCL               libm.so.6");
    ASSERT_EQ(unsetenv("PLASMON_NCCL_LIBRARY"), 0);
}

/* -------------------------------------------------------------------------- permissions */

/* As somebody who is not root, which the tests often are. */
static int run_unprivileged(const char *const *argv, char *out, size_t out_bytes)
{
    int status;

    if (getuid() != 0) {
        return started_run(argv, out, out_bytes);
    }
    ASSERT_EQ(chmod(cluster_folder(), 0755), 0);
    status = started_run_as(NOBODY, argv, out, out_bytes);
    if (status == 126 || status == 127) {
        test_skip("another user may not run %s", argv[0]);
    }
    return status;
}

TEST(a_socket_folder_without_permission_is_named_with_the_cause)
{
    char said[8192], closed[128], sub[160];

    started_begin();
    (void)snprintf(closed, sizeof(closed), "%s/closed", cluster_folder());
    (void)snprintf(sub, sizeof(sub), "%s/sub", closed);
    ASSERT_EQ(mkdir(closed, 0500),
              0); /* neither ours to write nor, for root, another user's */
    {
        const char *const argv[] = {"plasmon-store",
                                    "--head",
                                    "unix:/nowhere/head",
                                    "--socket-dir",
                                    sub,
                                    "--cpu-devices",
                                    "1",
                                    "--gpus",
                                    "none",
                                    NULL};

        ASSERT_EQ(run_unprivileged(argv, said, sizeof(said)), 1);
    }
    ASSERT_CONTAINS(said, sub);
    ASSERT_CONTAINS(said, "ermission denied");
    ASSERT_EQ(cluster_count(""), 0);
}

TEST(a_runtime_folder_of_somebody_else_is_refused)
{
    static const char *const start[] = {"plasmon", "start",  "--head", "--cpu-devices",
                                        "1",       "--gpus", "none",   NULL};
    char said[4096], folder[128];

    if (getuid() != 0) {
        test_skip("only root can make a folder that is somebody else's");
    }
    started_begin();
    ASSERT_EQ(chmod(cluster_folder(), 0777), 0);
    (void)snprintf(folder, sizeof(folder), "%s/plasmon-%u", cluster_folder(), NOBODY);
    ASSERT_EQ(mkdir(folder, 0700), 0);
    {
        int status = started_run_as(NOBODY, start, said, sizeof(said));

        if (status == 126 || status == 127) {
            test_skip("another user may not run plasmon");
        }
        ASSERT_EQ(status, 1);
    }
    ASSERT_CONTAINS(said, folder);
    ASSERT_CONTAINS(said, "not a folder of ours");
    ASSERT_EQ(cluster_count(""), 0);
}

TEST(a_runtime_folder_that_others_may_write_is_refused)
{
    char said[4096], folder[256];

    started_begin();
    (void)snprintf(folder, sizeof(folder), "%s/plasmon-%u", cluster_folder(),
                   (unsigned)getuid());
    ASSERT_EQ(mkdir(folder, 0777), 0);
    ASSERT_EQ(chmod(folder, 0777), 0);
    ASSERT_EQ(STARTED_RUN(said, sizeof(said), "plasmon", "start", "--head", "--cpu-devices",
                          "1", "--gpus", "none"),
              1);
    ASSERT_CONTAINS(said, folder);
    ASSERT_EQ(cluster_count(""), 0);
}

/* --------------------------------------------------------------------------- full disks */

TEST(results_that_find_no_room_are_an_error_that_names_the_file)
{
    static const char *const outputs[] = {"--json", "--plot"};
    char said[16384];

    started_begin();
    for (size_t i = 0; i < PL_COUNT(outputs); i++) {
        ASSERT_TRUE(STARTED_RUN(said, sizeof(said), "plasmon", "bench", "tasks", "--tasks",
                                "100", "--object-mib", "1", "--gpus", "none", outputs[i],
                                "/dev/full") != 0);
        ASSERT_CONTAINS(said, "/dev/full");
        ASSERT_CONTAINS(said, "No space left on device");
    }
}

TEST(a_matrix_that_finds_no_room_is_an_error_that_names_the_file)
{
    char said[4096], a[256], b[256];

    started_begin();
    (void)snprintf(a, sizeof(a), "%s/a.npy", cluster_folder());
    (void)snprintf(b, sizeof(b), "%s/b.npy", cluster_folder());
    ASSERT_TRUE(STARTED_RUN(said, sizeof(said), "../examples/03_matmul", "--random",
                            "64x64x64", a, b, "/dev/full") != 0);
    ASSERT_CONTAINS(said, "/dev/full");
}

/* At once, and not when each worker has been started ten times. */
TEST(a_limit_of_address_space_that_is_too_low_is_named)
{
    char said[4096];

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    test_skip("a sanitizer wants terabytes of address space");
#endif
    started_begin();
    ASSERT_TRUE(
        STARTED_RUN(said, sizeof(said), "/bin/sh", "-c",
                    "ulimit -v 2000000; exec \"$PLASMON_BIN_DIR/plasmon\" start --head "
                    "--gpus none --cpu-devices 1 --device-memory 2G") != 0);
    ASSERT_CONTAINS(said, "2.0 GiB of address space");
    ASSERT_CONTAINS(said, "ulimit -v");
    ASSERT_EQ(cluster_count(""), 0);
}

TEST(a_log_that_cannot_be_written_is_named)
{
    char said[4096], folder[256];

    started_begin();
    (void)snprintf(folder, sizeof(folder), "%s/plasmon-%u", cluster_folder(),
                   (unsigned)getuid());
    ASSERT_EQ(mkdir(folder, 0700), 0);
    (void)snprintf(folder + strlen(folder), sizeof(folder) - strlen(folder),
                   "/plasmon-head.log");
    ASSERT_EQ(symlink("/dev/full", folder), 0);
    ASSERT_TRUE(STARTED_RUN(said, sizeof(said), "plasmon", "start", "--head",
                            "--cpu-devices", "1", "--gpus", "none") != 0);
    ASSERT_CONTAINS(said, folder);
    ASSERT_EQ(cluster_count(""), 0);
}

/* -------------------------------------------------------------------------- descriptors */

/*
 * A client that has memory mapped, from the byte that it is sent by `go` to that by `hold`; ends
 * with 0 if all was well. Before this process has one.
 */
static pid_t client_start(int go, int up, int hold)
{
    enum { BYTES = 1 << 20 };
    struct plasmon_shape shape = cluster_vector(PLASMON_U8, BYTES);
    static uint8_t from[BYTES], to[BYTES];
    struct plasmon_client *client;
    struct plasmon_ref *ref;
    char byte = 0;
    pid_t pid = fork();

    ASSERT_TRUE(pid >= 0);
    if (pid > 0) {
        return pid;
    }
    ASSERT_EQ(read(go, &byte, 1), 1);
    client = started_join();
    memset(from, (int)getpid(), BYTES);
    CLUSTER_OK(plasmon_put(client, from, &shape, NULL, &ref));
    CLUSTER_OK(plasmon_get(client, ref, to, BYTES, CLUSTER_WAIT_MS));
    ASSERT_EQ(memcmp(from, to, BYTES), 0);
    ASSERT_EQ(write(up, "x", 1), 1);
    (void)!read(hold, &byte, 1);
    plasmon_finish(client);
    _exit(0);
}

/* What a worker sends with a descriptor must come, or it is replaced; and that takes some, too. */
TEST(clients_do_not_take_the_descriptors_that_workers_need)
{
    enum { CLIENTS = 24 };
    struct plasmon_client *client;
    int go[2], up[2], hold[2], status;
    struct rlimit few;
    pid_t store, pids[CLIENTS];
    char path[256], byte;

    test_expect_log(); /* that some are refused */
    test_set_timeout(120);
    started_begin();
    (void)snprintf(path, sizeof(path), "%s/plasmon-%u", cluster_folder(),
                   (unsigned)getuid());
    ASSERT_EQ(mkdir(path, 0700), 0);
    (void)STARTED_DAEMON("head.log", "plasmon-head", "--listen", started_address());
    store =
        STARTED_DAEMON("store.log", "plasmon-store", "--head", started_address(),
                       "--cpu-devices", "1", "--gpus", "none", "--device-memory", "512M");
    ASSERT_EQ(pipe(go), 0);
    ASSERT_EQ(pipe(up), 0);
    ASSERT_EQ(pipe(hold), 0);
    for (int i = 0; i < CLIENTS; i++) {
        pids[i] = client_start(go[0], up[1], hold[0]);
    }
    client = started_join_knowing(started_address(), 1);
    started_wait_devices(client, 1);
    ASSERT_EQ(prlimit(store, RLIMIT_NOFILE, NULL, &few), 0);
    few.rlim_cur = few.rlim_max = 80; /* it has some thirty, and a client takes four */
    ASSERT_EQ(prlimit(store, RLIMIT_NOFILE, &few, NULL), 0);
    for (int i = 0; i < CLIENTS; i++) {
        ASSERT_EQ(write(go[1], "x", 1), 1);
    }
    for (int i = 0; i < CLIENTS; i++) {
        ASSERT_EQ(read(up[0], &byte, 1), 1);
    }
    /* the device grows, by memory that comes with descriptors: its worker is the first still */
    CLUSTER_OK(plasmon_flush(client));
    (void)cluster_fill(client, 300 << 18, 1, 0);
    cluster_expect_all(client, cluster_fill(client, 10, 2, 0), 10, 2);
    ASSERT_EQ(started_status(client, "", "restarts"), 0);
    for (int i = 0; i < CLIENTS; i++) {
        ASSERT_EQ(write(hold[1], "x", 1), 1);
    }
    for (int i = 0; i < CLIENTS; i++) {
        ASSERT_EQ(waitpid(pids[i], &status, 0), pids[i]);
        ASSERT_EQ(status, 0);
    }
    plasmon_finish(client);
}

TEST_MAIN()
