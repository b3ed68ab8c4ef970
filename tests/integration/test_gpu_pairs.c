/*
 * A worker of a GPU dies beside NCCL's pairs: the other one lives on, with all that it has. Real
 * processes, a driver and an NCCL without a GPU (tests/harness/gpu): what NCCL frees when a
 * communicator ends waits there, as on a GPU, until nothing is on the device, and copies to memory
 * of the host wait for that.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"
#include "base/clock.h"
#include "base/fault.h"
#include "tests/integration/cluster.h"

#define COUNT (3 << 18) /* 3 MiB of floats: more than the fake NCCL keeps for a receiver */
enum { ROUNDS = 3, OBJECTS = 8, GRAPHS = 20 };

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

/* Until the doctor's text has, or has no more, such a line. */
static void doctor_await(struct plasmon_client *client, const char *line, bool there)
{
    uint64_t until_ns = pl_now_ns() + CLUSTER_WAIT_MS * UINT64_C(1000000);
    const char *found = there ? NULL : line;
    char *text;

    while ((found != NULL) != there) {
        const struct timespec nap = {.tv_nsec = 50000000};

        ASSERT_TRUE(pl_now_ns() < until_ns);
        (void)nanosleep(&nap, NULL);
        CLUSTER_OK(plasmon_doctor(client, 0, &text));
        found = strstr(text, line) != NULL ? line : NULL;
        if (found != NULL && there) {
            ASSERT_CONTAINS(text, "freed when nothing is on the device");
        }
        free(text);
    }
}

/*
 * No kernel begins, so something stays on the device, and what is left of the pairs with the worker
 * that died cannot be freed.
 */
TEST(the_doctor_shows_what_is_left_of_broken_pairs)
{
    struct plasmon_ref *put[OBJECTS], *copied[OBJECTS];
    struct plasmon_client *client;
    char gate[256];
    FILE *file;

    pl_fault_arm("any", 0);
    if (!pl_fault_point("any")) {
        test_skip("this build has no fault points");
    }
    (void)pl_fault_disarm();
    test_expect_log();
    cluster_tag();
    (void)snprintf(gate, sizeof(gate), "%s/gate", cluster_folder());
    ASSERT_EQ(setenv("FAKE_CUDA_GATE", gate, 1), 0);
    ASSERT_EQ(setenv("PLASMON_FAULT", "worker1.1/pair.move:3=kill", 1), 0);
    client = start();
    for (int i = 0; i < OBJECTS; i++) {
        put[i] = cluster_put(client, COUNT, (float)i, i % 2);
    }
    file = fopen(gate, "w");
    ASSERT_NOT_NULL(file);
    ASSERT_EQ(fclose(file), 0);
    for (int i = 0; i < OBJECTS; i++) {
        copied[i] = cluster_copy(client, put[i], 1 - i % 2);
    }
    doctor_await(client, "\nLeft of broken pairs and teams", true);

    ASSERT_EQ(unlink(gate), 0);
    for (int i = 0; i < OBJECTS; i++) {
        cluster_expect_ramp(client, copied[i], COUNT, (float)i, 1);
    }
    doctor_await(client, "\nLeft of broken pairs and teams", false);
    ASSERT_EQ(restarts_of(client, 0), 0);
    plasmon_finish(client);
    cluster_expect_gone(CLUSTER_GONE_MS);
}

static void axpy_both(struct plasmon_client *client, struct plasmon_ref *const *y,
                      struct plasmon_ref *const *x)
{
    for (int device = 0; device < 2; device++) {
        CLUSTER_OK(cluster_axpy(client, y[device], x[device], 2, device));
        CLUSTER_OK(cluster_axpy(client, y[device], x[device], 1, device));
    }
}

/*
 * Destroying what was recorded waits, in this driver, until nothing is on the device. Where that is
 * done beside halves of transfers, both devices soon wait for halves that the other one has not put
 * in.
 */
TEST(recorded_graphs_come_and_go_beside_pairs)
{
    struct plasmon_client *client = start();
    struct plasmon_ref *x[2], *y[2], *put[GRAPHS][2], *copied[GRAPHS][2];
    struct plasmon_graph *graph;

    for (int i = 0; i < 2; i++) {
        x[i] = cluster_put(client, 1024, 1, i);
        y[i] = cluster_put(client, 1024, 2, i);
    }
    for (int i = 0; i < 2 * GRAPHS; i++) {
        put[i / 2][i % 2] = cluster_put(client, COUNT, (float)i, i % 2);
    }
    for (int round = 0; round < GRAPHS; round++) {
        CLUSTER_OK(plasmon_graph_begin(client, &graph));
        axpy_both(client, y, x);
        CLUSTER_OK(plasmon_graph_end(client, graph));
        CLUSTER_OK(plasmon_graph_launch(client, graph, NULL, 0, NULL, 0, NULL));
        for (int i = 0; i < 2; i++) {
            copied[round][i] = cluster_copy(client, put[round][i], 1 - i);
        }
        CLUSTER_OK(plasmon_graph_release(client, graph));
    }
    for (int i = 0; i < 2 * GRAPHS; i++) {
        cluster_expect_ramp(client, copied[i / 2][i % 2], COUNT, (float)i, 1);
        CLUSTER_OK(plasmon_release(client, copied[i / 2][i % 2]));
        CLUSTER_OK(plasmon_release(client, put[i / 2][i % 2]));
    }
    ASSERT_EQ(restarts_of(client, 0) + restarts_of(client, 1), 0);
    plasmon_finish(client);
    cluster_expect_gone(CLUSTER_GONE_MS);
}

/*
 * What is freed at once waits for streams that wait for what the main thread enqueues behind it:
 * that has to be found.
 */
TEST(that_finds_memory_that_is_freed_beside_other_work)
{
    ASSERT_EQ(setenv("PLASMON_BUG", "transfer.free_at_once", 1), 0);
    ASSERT_TRUE(play("worker1.1/pair.move:3=kill") > 0);
}

TEST_MAIN()
