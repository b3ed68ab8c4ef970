/*
 * Transfers between devices of one host while their workers are killed and stopped in named places
 * of the route. The bytes arrive: a one-sided copy needs nothing of the other side, halves of a
 * staged one are done again by the next worker. Nobody else's worker ends, transfers of another
 * pair of devices go on, and the pair works again afterwards, both ways. So do puts and gets of a
 * client that reaches no memory, which go in messages. (Between hosts: test_bulk_ends.sh, and with
 * clients of other hosts test_client_bulk.sh.)
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/fault.h"
#include "tests/integration/cluster.h"

#define COUNT   (5 << 20) /* 20 MiB of floats: three chunks of the staging ring */
#define DEVICES 4
enum { ROUNDS_MAX = 20 };

/*
 * Places where both sides end, in the order of devices 0 and 1, one cluster each: the first worker
 * of a device is killed there, the second is stopped. Whichever side comes to its place first: they
 * are not put in step.
 */
struct ends {
    const char *route; /* or "inline": the client's bytes go in messages */
    const char *place[2];
};

static struct plasmon_client *start(const char *transfer)
{
    struct plasmon_options options = PLASMON_OPTIONS_INIT;
    struct plasmon_client *client;

    cluster_tag();
    options.gpus          = "none";
    options.cpu_devices   = DEVICES;
    options.device_memory = UINT64_C(512) << 20;
    options.transfer      = strcmp(transfer, "inline") == 0 ? "auto" : transfer;
    ASSERT_EQ(setenv("PLASMON_CLIENT_PATH",
                     strcmp(transfer, "inline") == 0 ? "messages" : "auto", 1),
              0);
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

static bool all_have_ended(struct plasmon_client *client)
{
    return restarts_of(client, 0) == 2 && restarts_of(client, 1) == 2;
}

static void both_end(const struct ends *ends)
{
    struct plasmon_ref *other, *others_copy;
    struct plasmon_client *client;
    char armed[320];

    (void)snprintf(
        armed, sizeof(armed),
        "worker0.1/%s=kill,worker0.2/%s=stop,worker1.1/%s=kill,worker1.2/%s=stop",
        ends->place[0], ends->place[0], ends->place[1], ends->place[1]);
    ASSERT_EQ(setenv("PLASMON_FAULT", armed, 1), 0);
    client      = start(ends->route);
    other       = cluster_put(client, COUNT, 7, 2);
    others_copy = cluster_copy(client, other, 3);
    for (int i = 0; i < ROUNDS_MAX && !all_have_ended(client); i++) {
        move(client, 0, 1, (float)i);
    }
    ASSERT_TRUE(all_have_ended(client)); /* else a place has another name now */
    cluster_expect_ramp(client, others_copy, COUNT, 7, 1);
    move(client, 0, 1, 5);
    move(client, 1, 0, 6);
    ASSERT_TRUE(all_have_ended(client));
    ASSERT_EQ(restarts_of(client, 2) + restarts_of(client, 3), 0);
    plasmon_finish(client);
    cluster_expect_gone(CLUSTER_GONE_MS);
}

static void every_end(const struct ends *ends, size_t count)
{
    pl_fault_arm("any", 0);
    if (!pl_fault_point("any")) {
        test_skip("this build has no fault points");
    }
    (void)pl_fault_disarm();
    test_expect_log();
    for (size_t i = 0; i < count; i++) {
        both_end(&ends[i]);
    }
}

TEST(a_peer_copy_arrives_whichever_side_ends_in_the_middle)
{
    /*
     * The producer enqueues the word that its object is there; the consumer enqueues the copy, and
     * it runs.
     */
    static const struct ends ends[] = {
        {"peer", {"worker.signal:0", "transfer.copy:1"}},
        {"peer", {"worker.signal:2", "device.copy:1"}},
    };

    every_end(ends, PL_COUNT(ends));
}

TEST(a_staged_transfer_arrives_whichever_side_ends_in_the_middle)
{
    static const struct ends ends[] = {
        {"host", {"transfer.stage_send:0", "transfer.stage_recv:0"}},
        {"host", {"transfer.stage_send:4", "transfer.stage_recv:5"}},
        {"host", {"device.copy:2", "device.copy:4"}},
    };

    every_end(ends, PL_COUNT(ends));
}

/* The one puts on device 0 and gets from device 1: bytes come to a device, and have left it, and are told. */
TEST(bytes_in_messages_arrive_whichever_side_ends_in_the_middle)
{
    static const struct ends ends[] = {
        {"inline", {"inline.put:0", "inline.read:0"}},
        {"inline", {"inline.put:7", "inline.tell:5"}},
    };

    every_end(ends, PL_COUNT(ends));
}

/* By the stand-in of CPU devices, which stalls and fails as NCCL does. */
TEST(a_transfer_by_a_pair_arrives_whichever_side_ends_in_the_middle)
{
    static const struct ends ends[] = {
        {"nccl", {"pair.open:0", "pair.move:0"}},
        {"nccl", {"pair.move:1", "pair.open:0"}},
    };

    every_end(ends, PL_COUNT(ends));
}

TEST_MAIN()
