/*
 * A private cluster with real daemons: bytes and tasks go round, and nothing is left behind however
 * the client ends.
 *
 * The test makes itself the reaper of orphans (PR_SET_CHILD_SUBREAPER), so that every daemon that
 * outlives its parent becomes its child: "all gone" is then waitpid() saying that there is none.
 */
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "tests/unit/client/calls.h"

static struct plasmon_client *start(uint32_t devices)
{
    struct plasmon_options options = PLASMON_OPTIONS_INIT;
    struct plasmon_client *client;

    test_set_timeout(60);
    options.bin_dir     = PROGRAMS_DIR;
    options.gpus        = "none";
    options.cpu_devices = devices;
    CALL_OK(plasmon_init(&options, &client));
    return client;
}

/* Wait until no process of ours, adopted ones too, is left. */
static void expect_all_gone(void)
{
    uint64_t deadline_ns        = pl_now_ns() + 10000000000ull;
    const struct timespec pause = {.tv_nsec = 1000000}; /* waitpid() has no time-out */

    for (;;) {
        pid_t pid = waitpid(-1, NULL, WNOHANG | __WALL);

        if (pid < 0 && errno == ECHILD) {
            return;
        }
        if (pl_now_ns() > deadline_ns) {
            test_fail(__FILE__, __LINE__, "processes are left behind");
        }
        if (pid == 0) {
            (void)nanosleep(&pause, NULL);
        }
    }
}

static unsigned count_descriptors(void)
{
    DIR *dir       = opendir("/proc/self/fd");
    unsigned count = 0;

    ASSERT_NOT_NULL(dir);
    while (readdir(dir) != NULL) {
        count++;
    }
    ASSERT_EQ(closedir(dir), 0);
    return count;
}

TEST(puts_calls_views_and_gets_agree)
{
    struct plasmon_client *client = start(2);
    float data[100], out[100];
    struct plasmon_ref *x, *y, *part;
    int64_t first = 1, count = 20, step = 3;

    for (int i = 0; i < 100; i++) {
        data[i] = (float)i;
    }
    CALL_OK(plasmon_put(client, data, &call_vector, NULL, &x));
    CALL_OK(plasmon_put(client, data, &call_vector, NULL, &y));
    CALL_OK(call_axpy(client, y, x, NULL)); /* y = y + 2 x */
    CALL_OK(plasmon_get(client, y, out, sizeof(out), 10000));
    ASSERT_TRUE(out[1] == 3 && out[99] == 297);
    CALL_OK(plasmon_view(client, y, &first, &count, &step, &part));
    CALL_OK(plasmon_get(client, part, out, sizeof(out), 10000));
    ASSERT_TRUE(out[0] == 3 && out[1] == 12 && out[19] == 174);
    CALL_OK(plasmon_get(client, x, out, sizeof(out), 10000));
    ASSERT_TRUE(out[99] == 99); /* only read */
    plasmon_finish(client);
}

TEST(a_snapshot_keeps_what_a_write_changes)
{
    struct plasmon_client *client = start(1);
    struct plasmon_ref *x         = call_fill(client, NULL, NULL),
                       *y         = call_fill(client, NULL, NULL), *old, *part;
    float out[100];

    CALL_OK(plasmon_snapshot(client, x, &old));
    CALL_OK(plasmon_snapshot(client, call_part(client, x, 50, 50), &part));
    CALL_OK(call_axpy(client, x, y, NULL));
    CALL_OK(plasmon_get(client, x, out, sizeof(out), 10000));
    ASSERT_TRUE(out[0] == 3);
    CALL_OK(plasmon_get(client, old, out, sizeof(out), 10000));
    ASSERT_TRUE(out[0] == 1);
    CALL_OK(plasmon_get(client, part, out, sizeof(out), 10000));
    ASSERT_TRUE(out[0] == 1 && out[49] == 1);
    plasmon_finish(client);
}

TEST(large_objects_go_through_shared_memory)
{
    enum { BYTES = 24 << 20 };
    struct plasmon_shape shape    = {.dtype = PLASMON_U8, .ndim = 1, .dim = {BYTES}};
    struct plasmon_client *client = start(1);
    struct plasmon_mapping *mapping;
    struct plasmon_ref *ref;
    uint8_t *in = malloc(BYTES), *out = malloc(BYTES);

    ASSERT_TRUE(in != NULL && out != NULL);
    for (size_t i = 0; i < BYTES; i++) {
        in[i] = (uint8_t)(i * 7 + i / 4096);
    }
    for (int round = 0; round < 3; round++) { /* the second and third reuse memory */
        CALL_OK(plasmon_put(client, in, &shape, NULL, &ref));
        CALL_OK(plasmon_map(client, ref, 10000,
                            &mapping)); /* only shared memory can be mapped */
        ASSERT_EQ(plasmon_mapping_strides(mapping)[0], 1);
        ASSERT_TRUE(memcmp(plasmon_mapping_data(mapping), in, BYTES) == 0);
        plasmon_unmap(mapping);
        CALL_OK(plasmon_get(client, ref, out, BYTES, 10000));
        ASSERT_TRUE(memcmp(in, out, BYTES) == 0);
        CALL_OK(plasmon_release(client, ref));
        in[round]++;
    }
    free(in);
    free(out);
    plasmon_finish(client);
}

TEST(a_mapping_keeps_its_bytes_while_the_ref_is_written)
{
    struct plasmon_client *client = start(1);
    struct plasmon_ref *x         = call_fill(client, NULL, NULL),
                       *y         = call_fill(client, NULL, NULL);
    struct plasmon_mapping *mapping;
    const float *mapped;
    float out[100];

    CALL_OK(plasmon_map(client, x, 10000, &mapping));
    mapped = plasmon_mapping_data(mapping);
    ASSERT_TRUE(mapped[0] == 1);
    for (int i = 0; i < 10; i++) {
        CALL_OK(call_axpy(client, x, y, NULL));
    }
    CALL_OK(plasmon_get(client, x, out, sizeof(out), 10000));
    ASSERT_TRUE(out[0] == 21);
    ASSERT_TRUE(mapped[0] == 1 && mapped[99] == 1);
    plasmon_unmap(mapping);
    plasmon_finish(client);
}

TEST(two_private_clusters_are_strangers)
{
    struct plasmon_client *a = start(1), *b = start(1);
    struct plasmon_ref *x = call_fill(a, NULL, NULL), *found;
    float out[100];

    CALL_OK(plasmon_publish(a, "x", x));
    ASSERT_STATUS(plasmon_lookup(b, "x", &found), PLASMON_ENOENT);
    ASSERT_STATUS(plasmon_get(b, x, out, sizeof(out), 1000), PLASMON_EFOREIGN);
    plasmon_finish(a);
    found = call_fill(b, NULL, NULL);
    CALL_OK(plasmon_get(b, found, out, sizeof(out), 10000));
    plasmon_finish(b);
}

TEST(nothing_is_left_after_finish)
{
    unsigned before;

    ASSERT_EQ(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
    plasmon_finish(start(1)); /* what gRPC opens once for the process stays */
    expect_all_gone();
    before = count_descriptors();
    for (int i = 0; i < 3; i++) {
        plasmon_finish(start(2));
        expect_all_gone();
    }
    ASSERT_TRUE(count_descriptors() <= before);
}

TEST(a_killed_client_takes_its_cluster_along)
{
    int ready[2];
    char byte;
    pid_t pid;

    test_set_timeout(60);
    ASSERT_EQ(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
    ASSERT_EQ(pipe(ready), 0);
    pid = fork();
    ASSERT_TRUE(pid >= 0);
    if (pid == 0) {
        struct plasmon_client *client = start(2);

        (void)call_fill(client, NULL, NULL);
        (void)!write(ready[1], "x", 1);
        for (;;) {
            (void)pause();
        }
    }
    ASSERT_EQ(read(ready[0], &byte, 1), 1);
    ASSERT_EQ(kill(pid, SIGKILL), 0);
    expect_all_gone();
}

TEST(a_forgotten_finish_leaves_nothing_either)
{
    int status;
    pid_t pid;

    test_set_timeout(60);
    ASSERT_EQ(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
    pid = fork();
    ASSERT_TRUE(pid >= 0);
    if (pid == 0) {
        (void)call_fill(start(1), NULL, NULL);
        exit(0);
    }
    ASSERT_EQ(waitpid(pid, &status, 0), pid);
    ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    expect_all_gone();
}

TEST_MAIN()
