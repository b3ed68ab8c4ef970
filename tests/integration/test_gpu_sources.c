/*
 * Objects between GPUs are copied by the engines of the device that they come from, once much has
 * come from there (device/cuda/far.c): who copies is counted, and the bytes are the same. Real
 * processes, and a driver without a GPU (tests/harness/gpu), which refuses what a device has no
 * access to.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "base/clock.h"
#include "tests/harness/gpu/fake_counts.h"
#include "tests/integration/started.h"

#define COUNT (8 << 20) /* 32 MiB of floats */
enum { DEVICES = 3, OBJECTS = 2, ROUNDS = 9 };

static const struct fake_cuda_calls *calls;
static char path[256];
static int devices; /* up to DEVICES */

static void prepare(const char *sources, int gpus)
{
    devices = gpus;
    ASSERT_EQ(setenv("PLASMON_SOURCE_ENGINES", sources, 1), 0);
    cluster_tag();
    (void)snprintf(path, sizeof(path), "%s/calls", cluster_folder());
    calls = fake_counts_open(path);
    ASSERT_EQ(setenv("FAKE_CUDA_CALLS", path, 1), 0);
    ASSERT_EQ(setenv("FAKE_CUDA_DEVICES", "3", 1), 0);
}

static struct plasmon_client *start(const char *sources, int gpus)
{
    struct plasmon_options options = PLASMON_OPTIONS_INIT;
    struct plasmon_client *client;

    prepare(sources, gpus);
    options.gpus          = gpus == 2 ? "2" : "3";
    options.device_memory = UINT64_C(512) << 20;
    options.transfer      = "peer";
    CLUSTER_OK(plasmon_init(&options, &client));
    cluster_watch(client);
    return client;
}

static void end(struct plasmon_client *client)
{
    plasmon_finish(client);
    fake_counts_close(calls);
    ASSERT_EQ(unlink(path), 0);
    cluster_expect_gone(CLUSTER_GONE_MS);
}

/* Everybody's to everybody else, at once; the worker of device `victim` dies after so many microseconds. */
static void move_and_kill(struct plasmon_client *client, float first, int victim,
                          useconds_t after_us)
{
    struct plasmon_ref *put[DEVICES * OBJECTS], *copied[DEVICES * OBJECTS];

    for (int i = 0; i < devices * OBJECTS; i++) {
        put[i] = cluster_put(client, COUNT, first + (float)i, i % devices);
    }
    for (int i = 0; i < devices * OBJECTS; i++) {
        copied[i] =
            cluster_copy(client, put[i], (i + 1 + i / devices % (devices - 1)) % devices);
    }
    if (victim >= 0) {
        (void)usleep(after_us);
        cluster_kill(cluster_worker(client, victim));
    }
    for (int i = 0; i < devices * OBJECTS; i++) {
        cluster_expect_ramp(client, copied[i], COUNT, first + (float)i, 1);
        CLUSTER_OK(plasmon_release(client, put[i]));
        CLUSTER_OK(plasmon_release(client, copied[i]));
    }
}

static void move(struct plasmon_client *client, float first)
{
    move_and_kill(client, first, -1, 0);
}

/* Each device's contexts: its own worker's, and one of each other worker. */
static void await_contexts(struct plasmon_client *client, uint64_t before)
{
    uint64_t until_ns = pl_now_ns() + CLUSTER_WAIT_MS * UINT64_C(1000000);

    for (int i = 1; fake_counts_of(calls, "cuDevicePrimaryCtxRetain") <
                    before + (uint64_t)(devices * (devices - 1));
         i++) {
        ASSERT_TRUE(pl_now_ns() < until_ns);
        move(client, (float)(100 * i));
    }
}

TEST(the_devices_that_objects_come_from_copy_them)
{
    uint64_t until_ns = pl_now_ns() + CLUSTER_WAIT_MS * UINT64_C(1000000), before, far;
    struct plasmon_client *client;

    client = start("1", 2);
    before = fake_counts_of(calls, "cuDevicePrimaryCtxRetain");

    await_contexts(client, before);
    do { /* some may still be opened */
        ASSERT_TRUE(pl_now_ns() < until_ns);
        far = fake_counts_of(calls, "far");
        move(client, 1);
        far = fake_counts_of(calls, "far") - far;
    } while (far < 2 * OBJECTS);
    ASSERT_EQ(far, 2 * OBJECTS); /* what goes to and from the host is not theirs */
    end(client);
}

static void move_two(struct plasmon_client *client, const int *from, const int *to)
{
    struct plasmon_ref *put[2], *copied[2];

    for (int i = 0; i < 2; i++) {
        put[i]    = cluster_put(client, COUNT, 1, from[i]);
        copied[i] = cluster_copy(client, put[i], to[i]);
    }
    for (int i = 0; i < 2; i++) {
        cluster_expect_ramp(client, copied[i], COUNT, 1, 1);
        CLUSTER_OK(plasmon_release(client, put[i]));
        CLUSTER_OK(plasmon_release(client, copied[i]));
    }
}

/*
 * So much is copied to it that it opens what it needs, and no more: so it does not notice by a copy
 * that it has.
 */
TEST(a_device_that_copies_no_more_keeps_nobody_from_it)
{
    const int others[] = {1, 2}, each_other[] = {2, 1}, first[] = {0, 0};
    struct plasmon_client *client = start("1", DEVICES);
    uint64_t until_ns             = pl_now_ns() + CLUSTER_WAIT_MS * UINT64_C(1000000);

    move_two(client, others, first);
    while (fake_counts_of(calls, "far") == 0) {
        ASSERT_TRUE(pl_now_ns() < until_ns);
        move_two(client, others, each_other);
    }
    end(client);
}

/* At any moment: when they open, while others copy for them, and when nobody does. */
TEST(workers_that_die_while_others_copy_for_them_lose_nothing)
{
    struct plasmon_client *client = start("1", DEVICES);
    uint64_t draw                 = test_seed();

    test_set_timeout(300);
    for (int i = 0; i < ROUNDS; i++) {
        draw = draw * UINT64_C(6364136223846793005) + 1442695040888963407;
        move(client, (float)(10 * i));
        move_and_kill(client, (float)(10 * i), i % DEVICES,
                      (useconds_t)(draw >> 40) % 30000);
    }
    ASSERT_TRUE(fake_counts_of(calls, "far") > 0);
    end(client);
}

TEST(none_does_who_must_not)
{
    struct plasmon_client *client = start("0", DEVICES);

    for (int i = 0; i < 4; i++) {
        move(client, (float)i);
    }
    ASSERT_EQ(fake_counts_of(calls, "far"), 0);
    started_wait_status(client, "\"engines\":\"refused\"");
    end(client);
}

/* Of the peer route as a whole, which comes first. */
static long long shown(const char *key)
{
    static char text[8192];
    char quoted[48];
    const char *at;

    ASSERT_EQ(STARTED_RUN(text, sizeof(text), "plasmon", "transfers", "--json"), 0);
    (void)snprintf(quoted, sizeof(quoted), "\"%s\":", key);
    at = strstr(text, "\"route\":\"peer\"");
    at = at != NULL ? strstr(at, quoted) : NULL;
    return at != NULL ? strtoll(at + strlen(quoted), NULL, 10) : -1;
}

TEST(what_sources_wrote_is_shown)
{
    uint64_t bytes = COUNT * sizeof(float), before;
    struct plasmon_client *client;
    char said[4096];

    prepare("1", DEVICES);
    started_begin();
    if (STARTED_RUN(said, sizeof(said), "plasmon", "start", "--head", "--gpus", "3",
                    "--device-memory", "512M") != 0) {
        test_fail(__FILE__, __LINE__, "plasmon start: %s", said);
    }
    client = started_join_knowing(started_address(), DEVICES);
    before = fake_counts_of(calls, "cuDevicePrimaryCtxRetain");
    started_wait_status(client, "\"engines\":\"own\"");
    move(client, 1);
    ASSERT_EQ(shown("written_bytes"), (long long)(fake_counts_of(calls, "far") * bytes));
    await_contexts(client, before);
    do {
        move(client, 1);
    } while (fake_counts_of(calls, "far") == 0);
    ASSERT_EQ(shown("written_bytes"), (long long)(fake_counts_of(calls, "far") * bytes));
    ASSERT_TRUE(shown("written_bytes") < shown("bytes"));
    started_wait_status(client, "\"engines\":\"sources\"");
    plasmon_finish(client);
    ASSERT_EQ(STARTED_RUN(said, sizeof(said), "plasmon", "stop"), 0);
    fake_counts_close(calls);
    ASSERT_EQ(unlink(path), 0);
}

TEST_MAIN()
