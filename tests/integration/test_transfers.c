/*
 * Transfers between devices of one host while one side is killed or stopped in a named place of the route. The bytes arrive: a one-sided
 * copy needs nothing of the other side, halves of a staged one are done again by the next worker. Nobody else's worker ends, transfers of
 * another pair of devices go on, and the pair works again afterwards, both ways.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/fault.h"
#include "tests/integration/cluster.h"

#define COUNT   (5 << 20) /* 20 MiB of floats: three chunks of the staging ring */
#define DEVICES 4

struct end {
    int victim;
    const char *place;
};

static struct plasmon_client *start(const char *transfer)
{
    struct plasmon_options options = PLASMON_OPTIONS_INIT;
    struct plasmon_client *client;

    cluster_tag();
    options.gpus          = "none";
    options.cpu_devices   = DEVICES;
    options.device_memory = UINT64_C(512) << 20;
    options.transfer      = transfer;
    CLUSTER_OK(plasmon_init(&options, &client));
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

/* What was made on one device, copied on another; several at a time. */
static void move(struct plasmon_client *client, int from, int to, float first)
{
    struct plasmon_ref *put[3], *made[3], *copied[3];

    for (int i = 0; i < 3; i++) {
        put[i]    = cluster_put(client, COUNT, first + (float)i, from);
        made[i]   = cluster_copy(client, put[i], from);
        copied[i] = cluster_copy(client, made[i], to);
    }
    for (int i = 0; i < 3; i++) {
        cluster_expect_ramp(client, copied[i], COUNT, first + (float)i, 1);
        CLUSTER_OK(plasmon_release(client, put[i]));
        CLUSTER_OK(plasmon_release(client, made[i]));
        CLUSTER_OK(plasmon_release(client, copied[i]));
    }
}

static void one_end(const char *transfer, const struct end *end, const char *how)
{
    struct plasmon_ref *other, *others_copy;
    struct plasmon_client *client;
    char armed[80];

    (void)snprintf(armed, sizeof(armed), "worker%d.1/%s=%s", end->victim, end->place, how);
    ASSERT_EQ(setenv("PLASMON_FAULT", armed, 1), 0);
    client      = start(transfer);
    other       = cluster_put(client, COUNT, 7, 2);
    others_copy = cluster_copy(client, other, 3);
    move(client, 0, 1, 1);
    cluster_expect_ramp(client, others_copy, COUNT, 7, 1);
    move(client, 0, 1, 5);
    move(client, 1, 0, 6);
    for (int i = 0; i < DEVICES; i++) {
        ASSERT_EQ(restarts_of(client, i), i == end->victim ? 1 : 0);
    }
    plasmon_finish(client);
    cluster_expect_gone(CLUSTER_GONE_MS);
}

static void every_end(const char *transfer, const struct end *ends, size_t count)
{
    pl_fault_arm("any", 0);
    if (!pl_fault_point("any")) {
        test_skip("this build has no fault points");
    }
    (void)pl_fault_disarm();
    test_expect_log();
    for (size_t i = 0; i < count; i++) {
        one_end(transfer, &ends[i], "kill");
        one_end(transfer, &ends[i], "stop");
    }
}

TEST(a_peer_copy_arrives_whichever_side_ends_in_the_middle)
{
    static const struct end ends[] = {
        {1, "transfer.copy:1"}, /* the consumer enqueues it */
        {1, "device.copy:1"},   /* it runs */
        {0,
         "worker.signal:0"}, /* the producer enqueues the word that its object is there */
        {0, "worker.signal:2"},
    };

    every_end("peer", ends, PL_COUNT(ends));
}

TEST(a_staged_transfer_arrives_whichever_side_ends_in_the_middle)
{
    static const struct end ends[] = {
        {0, "transfer.stage_send:0"}, {0, "transfer.stage_send:4"}, {0, "device.copy:2"},
        {1, "transfer.stage_recv:0"}, {1, "transfer.stage_recv:5"}, {1, "device.copy:4"},
    };

    every_end("host", ends, PL_COUNT(ends));
}

TEST_MAIN()
