/*
 * A worker of a GPU dies beside NCCL's pairs: the other one lives on, with all that it has. Real processes, a driver and an NCCL without a GPU
 * (tests/harness/gpu): what NCCL frees when a communicator ends waits there, as on a GPU, until nothing is on the device, and copies to memory of
 * the host wait for that.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/fault.h"
#include "tests/integration/cluster.h"

#define COUNT (3 << 18) /* 3 MiB of floats: more than the fake NCCL keeps for a receiver */
enum { ROUNDS = 3, OBJECTS = 8 };

static struct plasmon_client *start(void)
{
    struct plasmon_options options = PLASMON_OPTIONS_INIT;
    struct plasmon_client *client;

    cluster_tag();
    ASSERT_EQ(setenv("FAKE_CUDA_DEVICES", "2", 1), 0);
    options.gpus          = "2";
    options.device_memory = UINT64_C(512) << 20;
    options.transfer      = "nccl";
    CLUSTER_OK(plasmon_init(&options, &client));
    cluster_watch(client);
    return client;
}

static unsigned restarts_of(struct plasmon_client *client, int device)
{
    const char *at;
    unsigned restarts;
    char *text;

    CLUSTER_OK(plasmon_status_json(client, &text));
    at = text;
    for (int i = 0; i <= device; i++) {
        at = strstr(at + 1, "\"restarts\":");
        ASSERT_NOT_NULL(at);
    }
    restarts = (unsigned)atoi(at + strlen("\"restarts\":"));
    free(text);
    return restarts;
}

/* Both ways at once, and copies of a client's between them. */
static void move(struct plasmon_client *client, float first)
{
    struct plasmon_ref *put[OBJECTS], *copied[OBJECTS];

    for (int i = 0; i < OBJECTS; i++) {
        put[i] = cluster_put(client, COUNT, first + (float)i, i % 2);
    }
    for (int i = 0; i < OBJECTS; i++) {
        copied[i] = cluster_copy(client, put[i], 1 - i % 2);
    }
    for (int i = 0; i < OBJECTS; i++) {
        cluster_expect_ramp(client, put[i], COUNT, first + (float)i, 1);
    }
    for (int i = 0; i < OBJECTS; i++) {
        cluster_expect_ramp(client, copied[i], COUNT, first + (float)i, 1);
        CLUSTER_OK(plasmon_release(client, put[i]));
        CLUSTER_OK(plasmon_release(client, copied[i]));
    }
}

/* How often the other one's worker was started again. */
static unsigned play(const char *armed)
{
    struct plasmon_client *client;
    unsigned restarts;

    pl_fault_arm("any", 0);
    if (!pl_fault_point("any")) {
        test_skip("this build has no fault points");
    }
    (void)pl_fault_disarm();
    test_expect_log();
    ASSERT_EQ(setenv("PLASMON_FAULT", armed, 1), 0);
    client = start();
    for (int i = 0; i < ROUNDS; i++) {
        move(client, (float)(100 * i));
    }
    ASSERT_EQ(restarts_of(client, 1), 1);
    restarts = restarts_of(client, 0);
    plasmon_finish(client);
    cluster_expect_gone(CLUSTER_GONE_MS);
    return restarts;
}

TEST(who_sends_and_receives_by_pairs_outlives_the_other_side)
{
    ASSERT_EQ(play("worker1.1/pair.move:0=kill"), 0);
    ASSERT_EQ(play("worker1.1/pair.move:3=kill"), 0);
}

/* What is freed at once waits for streams that wait for what the main thread enqueues behind it: that has to be found. */
TEST(that_finds_memory_that_is_freed_beside_other_work)
{
    ASSERT_EQ(setenv("PLASMON_BUG", "transfer.free_at_once", 1), 0);
    ASSERT_TRUE(play("worker1.1/pair.move:3=kill") > 0);
}

TEST_MAIN()
