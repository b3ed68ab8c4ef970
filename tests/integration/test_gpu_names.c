/*
 * Which GPUs a machine's store takes: by number and by name, with gaps, MIG devices, and in each
 * compute mode. With real processes and a driver that has no GPU (tests/harness/gpu/fake_cuda.h),
 * which takes CUDA_VISIBLE_DEVICES as the driver does.
 */
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/harness/gpu/fake_counts.h"
#include "tests/integration/started.h"

#define GPU_NAME(x) x x x x "-" x x "-" x x "-" x x "-" x x x x x x

/* Three GPUs, in these modes (a digit each), or three MIG devices; visible NULL: not set. */
static void machine(const char *visible, const char *modes, bool mig)
{
    cluster_tag();
    test_expect_log();
    ASSERT_EQ(setenv("FAKE_CUDA_DEVICES", "3", 1), 0);
    ASSERT_EQ(setenv("FAKE_CUDA_MIG", mig ? "1" : "0", 1), 0);
    ASSERT_EQ(setenv("FAKE_CUDA_MODES", modes, 1), 0);
    ASSERT_EQ(setenv("FAKE_CUDA_FOLDER", cluster_folder(), 1), 0);
    ASSERT_EQ(unsetenv("CUDA_VISIBLE_DEVICES"), 0);
    if (visible != NULL) {
        ASSERT_EQ(setenv("CUDA_VISIBLE_DEVICES", visible, 1), 0);
    }
}

static struct plasmon_client *start(const char *gpus)
{
    struct plasmon_options options = PLASMON_OPTIONS_INIT;
    struct plasmon_client *client;

    options.gpus = gpus;
    CLUSTER_OK(plasmon_init(&options, &client));
    cluster_watch(client);
    return client;
}

/* These GPUs, in this order. */
static void expect_devices(struct plasmon_client *client, uint32_t wanted,
                           const char *const *names)
{
    struct plasmon_device_info infos[4];
    uint32_t count = 0;

    CLUSTER_OK(plasmon_devices(client, infos, 4, &count));
    ASSERT_EQ(count, wanted);
    for (uint32_t i = 0; i < wanted; i++) {
        ASSERT_EQ(infos[i].kind, 2);
        ASSERT_STR(infos[i].name, names[i]);
    }
}

/*
 * What lies on one device, read on another, and its bytes; the route that it went by is in the
 * status, with all copies so far. (Kernels of this driver do nothing.)
 */
static void move(struct plasmon_client *client, const char *route, unsigned copies)
{
    struct plasmon_ref *here = cluster_put(client, 1 << 20, 5, 0);
    struct plasmon_ref *read = cluster_copy(client, here, 1);
    char wanted[64];
    char *text;

    CLUSTER_OK(plasmon_wait(client, &read, 1, 1, CLUSTER_WAIT_MS, NULL, NULL));
    cluster_expect_ramp(client, here, 1 << 20, 5, 1);
    CLUSTER_OK(plasmon_status_json(client, &text));
    (void)snprintf(wanted, sizeof(wanted), "\"route\":\"%s\",\"copies\":%u", route, copies);
    for (char *from = text, *to = text; (*to = *from) != '\0';
         from++) { /* without spaces and new lines */
        to += *from != ' ' && *from != '\n';
    }
    ASSERT_CONTAINS(text, wanted);
    free(text);
    CLUSTER_OK(plasmon_release(client, here));
    CLUSTER_OK(plasmon_release(client, read));
}

static void finish(struct plasmon_client *client)
{
    char path[300];

    plasmon_finish(client);
    for (int gpu = 0; gpu < 3; gpu++) { /* who was alone on which */
        (void)snprintf(path, sizeof(path), "%s/gpu%d", cluster_folder(), gpu);
        (void)unlink(path);
    }
    cluster_expect_gone(CLUSTER_WAIT_MS);
}

TEST(gpus_are_taken_by_number_and_by_name)
{
    struct plasmon_client *client;

    machine("2,GPU-" GPU_NAME("40"), "", false);
    client = start("auto");
    expect_devices(client, 2, (const char *const[]){"fake 2", "fake 0"});
    move(client, "peer", 1);
    finish(client);
}

TEST(a_name_that_is_not_there_ends_the_list_and_too_few_are_an_error)
{
    struct plasmon_options options = PLASMON_OPTIONS_INIT;
    struct plasmon_client *client;

    machine("1,GPU-77777777,0", "", false);
    client = start("auto");
    expect_devices(client, 1, (const char *const[]){"fake 1"});
    plasmon_finish(client);

    options.gpus = "2";
    ASSERT_TRUE(plasmon_init(&options, &client) != PLASMON_OK);
    ASSERT_CONTAINS(plasmon_error(NULL), "--gpus 2, but the driver shows 1");
    ASSERT_CONTAINS(plasmon_error(NULL), "plasmon doctor");
    cluster_expect_gone(CLUSTER_WAIT_MS);
}

/* Each worker sees its own alone: nothing is mapped, and bytes go through the host. */
TEST(mig_devices_have_a_worker_each)
{
    struct plasmon_client *client;

    machine("MIG-" GPU_NAME("42") ",MIG-" GPU_NAME("40"), "", true);
    client = start("auto");
    expect_devices(client, 2,
                   (const char *const[]){"fake 2 MIG 1g.10gb", "fake 0 MIG 1g.10gb"});
    move(client, "host", 1);
    cluster_kill(cluster_find("plasmon-worker", 1));
    move(client, "host", 2); /* with that of the dead one */
    finish(client);
}

TEST(a_mig_device_that_is_not_there_is_left_out)
{
    struct plasmon_client *client;

    machine("MIG-77777777,MIG-" GPU_NAME("41"), "", true);
    client = start("auto");
    expect_devices(client, 1, (const char *const[]){"fake 1 MIG 1g.10gb"});
    finish(client);
}

TEST(a_gpu_that_nobody_may_use_is_left_out)
{
    struct plasmon_client *client;

    machine(NULL, "020", false);
    client = start("auto");
    expect_devices(client, 2, (const char *const[]){"fake 0", "fake 2"});
    move(client, "peer", 1);
    finish(client);
}

/* The next worker comes when the driver has let go of the one before. */
TEST(gpus_for_one_process_each_have_their_worker_also_the_next_one)
{
    struct plasmon_client *client;

    machine(NULL, "333", false);
    client = start("2");
    expect_devices(client, 2, (const char *const[]){"fake 0", "fake 1"});
    cluster_kill(cluster_find("plasmon-worker", 0));
    move(client, "peer", 1);
    finish(client);
}

/*
 * One of three is another program's, which does not end: the others serve, nobody waits for it
 * long, and what is wrong is said.
 */
TEST(a_gpu_that_another_program_keeps_is_left_out)
{
    char path[300], text[8192];
    struct plasmon_client *client;
    char *said;
    int fd;

    machine(NULL, "030", false);
    (void)snprintf(path, sizeof(path), "%s/gpu1", cluster_folder());
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    ASSERT_TRUE(fd >= 0 && flock(fd, LOCK_EX) == 0);
    started_begin();
    ASSERT_EQ(STARTED_RUN(text, sizeof(text), "plasmon", "start", "--head", "--gpus", "3",
                          "--device-memory", "16M"),
              0);
    ASSERT_CONTAINS(text, "2 devices of this machine are ready");
    ASSERT_CONTAINS(text, "1 is not; device 1: exit status ");
    ASSERT_CONTAINS(text, "EXCLUSIVE_PROCESS, and another process has it");
    ASSERT_CONTAINS(text, "`nvidia-smi` names that");
    client = started_join();
    expect_devices(client, 2, (const char *const[]){"fake 0", "fake 2"});
    CLUSTER_OK(plasmon_doctor(client, 0, &said));
    ASSERT_CONTAINS(said, "1 gone, nothing to do, given up: exit status ");
    free(said);
    plasmon_finish(client);
    ASSERT_EQ(STARTED_RUN(NULL, 0, "plasmon", "stop"), 0);
    ASSERT_EQ(close(fd), 0);
}

/* Until the driver has refused somebody a GPU. */
static void wait_refused(const struct fake_cuda_calls *calls)
{
    const uint64_t *count = NULL;

    while (count == NULL || __atomic_load_n(count, __ATOMIC_RELAXED) == 0) {
        (void)poll(NULL, 0, 5); /* nothing tells of it: the test's time-out ends this */
        count = fake_counts_find(calls, "refused");
    }
}

/* (What a worker says that finds it so: test_cuda_absent.) */
TEST(a_gpu_that_another_program_has_for_itself_is_taken_when_that_has_ended)
{
    struct plasmon_client *client;
    const struct fake_cuda_calls *calls;
    char path[300], counts[300];
    pid_t other;
    int fd, status;

    machine("0", "300", false);
    (void)snprintf(counts, sizeof(counts), "%s/calls", cluster_folder());
    ASSERT_EQ(setenv("FAKE_CUDA_CALLS", counts, 1), 0);
    calls = fake_counts_open(counts);
    (void)snprintf(path, sizeof(path), "%s/gpu0", cluster_folder());
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    ASSERT_TRUE(fd >= 0 && flock(fd, LOCK_EX) == 0);
    other = fork();
    if (other == 0) {
        wait_refused(calls); /* the first worker */
        _exit(0);
    }
    ASSERT_TRUE(other > 0);
    ASSERT_EQ(close(fd), 0); /* that has it now */
    client = start("1");
    expect_devices(client, 1, (const char *const[]){"fake 0"});
    fake_counts_close(calls);
    ASSERT_EQ(unlink(counts), 0);
    finish(client);
    ASSERT_EQ(waitpid(other, &status, 0), other);
    ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* In the place of sysfs: FILE below ROOT, with the folders that it needs. */
static void sysfs_put(const char *root, const char *file, const char *text)
{
    char path[512];
    FILE *out;

    (void)snprintf(path, sizeof(path), "%s/%s", root, file);
    for (char *at = strchr(path + 1, '/'); at != NULL; at = strchr(at + 1, '/')) {
        *at = '\0';
        (void)mkdir(path, 0700); /* it is there, mostly */
        *at = '/';
    }
    out = fopen(path, "we");
    ASSERT_NOT_NULL(out);
    ASSERT_TRUE(fputs(text, out) >= 0 && fclose(out) == 0);
}

/* Containers may forbid to ask where a page is. */
static bool pages_are_told(void)
{
    static char byte = 1;
    void *page       = (void *)((uintptr_t)&byte & ~(uintptr_t)4095);
    int at           = -1;

    return syscall(SYS_move_pages, 0, 1ul, &page, NULL, &at, 0) == 0 && at >= 0;
}

/* GPU 0 is at a node that has all processors, GPU 1 at one that this machine does not have. */
TEST(doctor_says_which_worker_and_which_pinned_memory_is_far_from_its_gpu)
{
    struct plasmon_options options = PLASMON_OPTIONS_INIT;
    struct plasmon_client *client;
    char root[256], text[16384];
    char *said;

    machine(NULL, "", false);
    (void)snprintf(root, sizeof(root), "%s/sysfs", cluster_folder());
    sysfs_put(root, "devices/system/node/online", "0,57\n");
    sysfs_put(root, "devices/system/node/node0/cpulist", "0-1023\n");
    sysfs_put(root, "devices/system/node/node57/cpulist", "1022-1023\n");
    sysfs_put(root, "bus/pci/devices/ffff:00:00.0/numa_node", "0\n");
    sysfs_put(root, "bus/pci/devices/ffff:01:00.0/numa_node", "57\n");
    ASSERT_EQ(setenv("PLASMON_SYSFS", root, 1), 0);

    ASSERT_EQ(STARTED_RUN(text, sizeof(text), "plasmon", "doctor"), 0);
    ASSERT_CONTAINS(text, "ok     NUMA node        ffff:00:00.0: at node 0; ");
    ASSERT_CONTAINS(text, "-      NUMA node        ffff:01:00.0: at node 57; none of the ");

    options.gpus     = "2";
    options.transfer = "host"; /* memory is pinned for that */
    CLUSTER_OK(plasmon_init(&options, &client));
    cluster_watch(client);
    move(client, "host", 1);
    CLUSTER_OK(plasmon_doctor(client, 0, &said));
    ASSERT_CONTAINS(said, "  0: at node 0; ");
    ASSERT_CONTAINS(said, " processors of its worker are there");
    ASSERT_CONTAINS(said, "  1: at node 57; none of the ");
    if (pages_are_told()) {
        ASSERT_CONTAINS(said, "100 % of its pinned memory is not");
    }
    free(said);
    ASSERT_EQ(STARTED_RUN(NULL, 0, "/bin/rm", "-r", root), 0);
    finish(client);
}

/*
 * What the file of that name in a process's folder of /proc says, or the line of it that has both
 * texts; "": nothing.
 */
static void proc_line(pid_t pid, const char *name, const char *with, const char *and_with,
                      char *out, size_t out_bytes)
{
    char path[64], line[1024];
    FILE *file;

    out[0] = '\0';
    (void)snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
    file = fopen(path, "re");
    while (file != NULL && out[0] == '\0' && fgets(line, sizeof(line), file) != NULL) {
        if (strstr(line, with) != NULL && strstr(line, and_with) != NULL) {
            line[strcspn(line, "\n")] = '\0';
            (void)snprintf(out, out_bytes, "%s", line);
        }
    }
    if (file != NULL) {
        (void)fclose(file);
    }
}

static void expect_processor(struct plasmon_client *client, int device, int processor)
{
    char line[256], wanted[64];

    (void)snprintf(wanted, sizeof(wanted), "Cpus_allowed_list:\t%d", processor);
    proc_line(cluster_worker(client, device), "status", "Cpus_allowed_list:", "", line,
              sizeof(line));
    ASSERT_STR(line, wanted);
}

/* Each GPU is said to be at a node of one processor, the first and the last of ours. */
TEST(a_worker_runs_on_the_processors_of_its_gpus_node)
{
    struct plasmon_client *client;
    int first = -1, last = -1;
    char root[256], cpus[16];
    cpu_set_t ours;

    ASSERT_EQ(sched_getaffinity(0, sizeof(ours), &ours), 0);
    for (int i = 0; i < CPU_SETSIZE; i++) {
        first = first < 0 && CPU_ISSET((size_t)i, &ours) ? i : first;
        last  = CPU_ISSET((size_t)i, &ours) ? i : last;
    }
    if (first == last) {
        test_skip("there is one processor");
    }
    machine(NULL, "", false);
    (void)snprintf(root, sizeof(root), "%s/sysfs", cluster_folder());
    sysfs_put(root, "devices/system/node/online", "0,57\n");
    (void)snprintf(cpus, sizeof(cpus), "%d\n", first);
    sysfs_put(root, "devices/system/node/node0/cpulist", cpus);
    (void)snprintf(cpus, sizeof(cpus), "%d\n", last);
    sysfs_put(root, "devices/system/node/node57/cpulist", cpus);
    sysfs_put(root, "bus/pci/devices/ffff:00:00.0/numa_node", "0\n");
    sysfs_put(root, "bus/pci/devices/ffff:01:00.0/numa_node", "57\n");
    ASSERT_EQ(setenv("PLASMON_SYSFS", root, 1), 0);
    client = start("2");
    expect_processor(client, 0, first);
    expect_processor(client, 1, last);
    ASSERT_EQ(STARTED_RUN(NULL, 0, "/bin/rm", "-r", root), 0);
    finish(client);
}

/*
 * Its node has no processor of ours: so the worker as a whole is not bound, and what has that
 * node's policy is memory that it was said of.
 */
TEST(pinned_memory_is_wanted_from_its_gpus_node)
{
    struct plasmon_client *client;
    char root[256], line[1024];

    if (access("/proc/self/numa_maps", R_OK) != 0 || !pages_are_told()) {
        test_skip("nobody says where pages are here");
    }
    machine(NULL, "", false);
    (void)snprintf(root, sizeof(root), "%s/sysfs", cluster_folder());
    sysfs_put(root, "devices/system/node/online", "0\n");
    sysfs_put(root, "devices/system/node/node0/cpulist", "1022-1023\n");
    sysfs_put(root, "bus/pci/devices/ffff:00:00.0/numa_node", "0\n");
    ASSERT_EQ(setenv("PLASMON_SYSFS", root, 1), 0);
    client = start("1");
    proc_line(cluster_worker(client, 0), "numa_maps", " prefer", "memfd:", line,
              sizeof(line));
    ASSERT_CONTAINS(line, ":0 ");
    ASSERT_EQ(STARTED_RUN(NULL, 0, "/bin/rm", "-r", root), 0);
    finish(client);
}

TEST_MAIN()
