/*
 * Hosts of a cluster: how their devices are numbered, that each has one store, and what happens
 * when a store or the head goes.
 */
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "base/clock.h"
#include "tests/integration/one_way.h"
#include "tests/integration/started.h"

/* ------------------------------------------------------------------------------ numbers */

static void expect_numbers(struct plasmon_client *client, unsigned devices)
{
    char object[32];

    for (unsigned i = 0; i < devices; i++) {
        (void)snprintf(object, sizeof(object), "{\"index\":%u,", i);
        ASSERT_EQ(started_status(client, object, "host_device"), i);
    }
}

TEST(a_private_cluster_numbers_its_devices_in_the_hosts_order)
{
    for (int round = 0; round < 3; round++) {
        struct plasmon_client *client = cluster_start_sized(6, 16 << 20);

        expect_numbers(client, 6);
        plasmon_finish(client);
    }
}

TEST(a_started_cluster_numbers_its_devices_in_the_hosts_order)
{
    struct plasmon_client *client;

    started_cluster(6);
    client = started_join();
    expect_numbers(client, 6);
    plasmon_finish(client);
}

/* --------------------------------------------------------------------------- what works */

static void expect_works(struct plasmon_client *client)
{
    cluster_expect_ramp(client, cluster_put(client, 1000, 1, PLASMON_ANYWHERE), 1000, 1, 1);
    cluster_expect_all(client, cluster_fill(client, 1000, 3, PLASMON_ANYWHERE), 1000, 3);
}

static void expect_failure(struct plasmon_client *client, struct plasmon_ref *ref,
                           plasmon_status_t status, const char *part)
{
    CLUSTER_OK(plasmon_wait(client, &ref, 1, 1, CLUSTER_WAIT_MS, NULL, NULL));
    ASSERT_STATUS(plasmon_state(client, ref), status);
    ASSERT_CONTAINS(plasmon_error(client), part);
}

/* A program of README, as somebody types it. */
static void expect_program_works(const char *to)
{
    char said[1024];

    ASSERT_EQ(setenv("PLASMON_ADDRESS", to, 1), 0);
    if (STARTED_RUN(said, sizeof(said), "../examples/01_hello") != 0) {
        test_fail(__FILE__, __LINE__, "01_hello: %s", said);
    }
    ASSERT_CONTAINS(said, "19 22");
    ASSERT_EQ(unsetenv("PLASMON_ADDRESS"), 0);
}

/* --------------------------------------------------------------------- one store a host */

static const char *folder_in(const char *name)
{
    static char path[128];

    (void)snprintf(path, sizeof(path), "%s/%s", cluster_folder(), name);
    return path;
}

TEST(a_second_store_of_a_host_is_refused_and_ends_with_the_reason)
{
    struct plasmon_client *client;
    char said[8192];

    started_cluster(1);
    client = started_join();
    ASSERT_EQ(STARTED_RUN(said, sizeof(said), "plasmon-store", "--head", started_address(),
                          "--socket-dir", folder_in("second"), "--cpu-devices", "1",
                          "--gpus", "none", "--device-memory", "16M"),
              1);
    ASSERT_CONTAINS(said, "has a store in this cluster already");
    ASSERT_CONTAINS(said, "plasmon stop");
    ASSERT_CONTAINS(said, folder_in("plasmon-")); /* the first one's socket */
    ASSERT_EQ(cluster_count("plasmon-worker"), 1);
    expect_works(client);
    plasmon_finish(client);
}

TEST(plasmon_start_tells_of_a_second_store_and_leaves_nothing)
{
    const char *second = folder_in("second");
    struct plasmon_client *client;
    char said[8192];

    started_cluster(1);
    second = folder_in("second");
    ASSERT_EQ(mkdir(second, 0700), 0);
    ASSERT_EQ(setenv("XDG_RUNTIME_DIR", second, 1), 0);
    ASSERT_TRUE(STARTED_RUN(said, sizeof(said), "plasmon", "start", "--address",
                            started_address(), "--cpu-devices", "1", "--gpus",
                            "none") != 0);
    ASSERT_CONTAINS(said, "has a store in this cluster already");
    ASSERT_EQ(setenv("XDG_RUNTIME_DIR", cluster_folder(), 1), 0);
    ASSERT_EQ(cluster_count("plasmon-store"), 1);
    client = started_join();
    expect_works(client);
    plasmon_finish(client);
}

TEST(two_clusters_on_one_host_do_not_meet)
{
    struct plasmon_client *first, *second;
    struct plasmon_ref *unused;
    char said[4096], to[160];

    started_cluster(1);
    first = started_join();
    ASSERT_EQ(mkdir(folder_in("second"), 0700), 0);
    ASSERT_EQ(setenv("XDG_RUNTIME_DIR", folder_in("second"), 1), 0);
    if (STARTED_RUN(said, sizeof(said), "plasmon", "start", "--head", "--cpu-devices", "2",
                    "--gpus", "none", "--device-memory", "16M") != 0) {
        test_fail(__FILE__, __LINE__, "plasmon start: %s", said);
    }
    (void)snprintf(to, sizeof(to), "unix:%s/plasmon-%u/head.sock", folder_in("second"),
                   (unsigned)getuid());
    CLUSTER_OK(started_try_join(to, NULL, &second));
    ASSERT_EQ(started_status(first, "", "nodes"), 1);
    ASSERT_EQ(started_status(second, "", "nodes"), 1);
    CLUSTER_OK(
        plasmon_publish(first, "name", cluster_fill(first, 10, 1, PLASMON_ANYWHERE)));
    ASSERT_STATUS(plasmon_lookup(second, "name", &unused), PLASMON_ENOENT);
    expect_works(first);
    expect_works(second);
    plasmon_finish(second);
    ASSERT_EQ(STARTED_RUN(said, sizeof(said), "plasmon", "stop"), 0);
    ASSERT_EQ(setenv("XDG_RUNTIME_DIR", cluster_folder(), 1), 0);
    expect_works(first);
    plasmon_finish(first);
}

/* ------------------------------------------------------------------------ the head goes */

static void wait_head(const char *socket_path)
{
    uint64_t deadline_ns = pl_now_ns() + CLUSTER_WAIT_MS * 1000000ull;
    struct plasmon_client *client;

    ASSERT_TRUE(strncmp(socket_path, "unix:", 5) == 0);
    while (started_try_join(socket_path, NULL, &client) != PLASMON_OK) {
        ASSERT_TRUE(pl_now_ns() < deadline_ns);
    }
    plasmon_finish(client);
}

TEST(a_head_that_was_killed_and_started_again_gets_the_hosts_back_and_old_clients_are_told)
{
    struct plasmon_client *old, *fresh;
    struct plasmon_ref *kept, *spinning, *task;
    char said[8192];

    test_set_timeout(90);
    test_expect_log();
    started_cluster(2);
    old      = started_join();
    kept     = cluster_put(old, 1000, 1, 0);
    spinning = cluster_put(old, 10, 1, 1);
    cluster_spin(old, spinning, 30000000, 1, &task); /* until its worker ends */
    cluster_expect_ramp(old, kept, 1000, 1, 1);

    cluster_kill(cluster_find("plasmon-head", -1));
    (void)STARTED_DAEMON("head.log", "plasmon-head", "--listen", started_address());
    expect_failure(old, task, PLASMON_EHEADLOST, "started anew");
    ASSERT_STATUS(plasmon_get(old, kept, said, sizeof(said), CLUSTER_WAIT_MS),
                  PLASMON_EHEADLOST);
    plasmon_finish(old);

    wait_head(started_address());
    fresh = started_join();
    started_wait_status(fresh, "\"nodes\":1");
    started_wait_status(fresh, "\"index\":1,");
    plasmon_finish(fresh);
    fresh = started_join(); /* when all devices have joined */
    expect_numbers(fresh, 2);
    ASSERT_EQ(started_status(fresh, "", "objects"), 0);
    ASSERT_EQ(started_status(fresh, "{\"index\":0,", "bytes_used"), 0);
    ASSERT_EQ(started_status(fresh, "{\"index\":1,", "bytes_used"), 0);
    expect_works(fresh);
    plasmon_finish(fresh);
    expect_program_works(started_address());
    ASSERT_EQ(STARTED_RUN(said, sizeof(said), "plasmon", "status"), 0);
    ASSERT_CONTAINS(said, "1 node, 2 devices");
}

/* ------------------------------------------------------------------------ a second copy */

static void wait_used(struct plasmon_client *client, const char *device, long long bytes)
{
    uint64_t deadline_ns = pl_now_ns() + CLUSTER_WAIT_MS * UINT64_C(1000000);

    while (started_status(client, device, "bytes_used") != bytes) {
        ASSERT_TRUE(pl_now_ns() < deadline_ns);
        (void)poll(NULL, 0, 10); /* nothing tells of it: ask */
    }
}

enum { SMALL = 64, LARGE = 1 << 20 };

/*
 * What is put on device 0 and is to be in two places takes that many bytes there, and in the second
 * one. A small put goes in a frame, a large one through mapped memory, and one that is not waited
 * for out of the client's host memory.
 */
static void put_twice(struct plasmon_client *client, const char *second, const char *key)
{
    struct plasmon_put_options options = PLASMON_PUT_INIT;
    struct plasmon_ref *refs[3];
    uint64_t deadline_ns = pl_now_ns() + CLUSTER_WAIT_MS * UINT64_C(1000000);
    long long bytes      = 0;
    float *memory;

    CLUSTER_OK(plasmon_host_alloc(client, LARGE * sizeof(float), (void **)&memory));
    memset(memory, 0, LARGE * sizeof(float));
    options.replica = 1;
    options.device  = 0;
    for (int i = 0; i < 3; i++) {
        struct plasmon_shape shape = cluster_vector(PLASMON_F32, i == 0 ? SMALL : LARGE);

        CLUSTER_OK(i < 2 ? plasmon_put(client, memory, &shape, &options, &refs[i])
                         : plasmon_put_async(client, memory, &shape, &options, &refs[i]));
        CLUSTER_OK(plasmon_wait(client, &refs[i], 1, 1, CLUSTER_WAIT_MS, NULL, NULL));
        bytes += (long long)(i == 0 ? SMALL : LARGE) * (long long)sizeof(float);
        wait_used(client, "{\"index\":0,", bytes);
        while (started_status(client, second, key) != bytes) {
            ASSERT_TRUE(pl_now_ns() < deadline_ns);
            (void)poll(NULL, 0, 10); /* nothing tells of it: ask */
        }
    }
    ASSERT_EQ(started_status(client, "{\"index\":0,", "bytes_replica"), 0);
    ASSERT_EQ(started_status(client, "{\"index\":1,", "bytes_replica"), 0);
    for (int i = 0; i < 3; i++) {
        CLUSTER_OK(plasmon_release(client, refs[i]));
    }
    wait_used(client, "{\"index\":0,", 0);
    while (started_status(client, second, key) != 0) {
        ASSERT_TRUE(pl_now_ns() < deadline_ns);
        (void)poll(NULL, 0, 10);
    }
}

TEST(what_is_put_with_a_replica_is_in_memory_of_its_host_too_and_no_copy_is_one_that_may_go)
{
    struct plasmon_client *client;

    started_begin();
    started_cluster(2);
    client = started_join_knowing(started_address(), 2);
    put_twice(client, "\"spill\":", "memory_used");
    ASSERT_EQ(started_status(client, "{\"index\":1,", "bytes_used"), 0);
    plasmon_finish(client);
}

TEST(where_nothing_is_spilled_it_is_on_two_devices)
{
    struct plasmon_client *client;

    started_begin();
    started_cluster_with(2, "--spill-memory", "0");
    client = started_join_knowing(started_address(), 2);
    put_twice(client, "{\"index\":1,", "bytes_used");
    plasmon_finish(client);
}

TEST(where_there_is_no_second_place_the_put_says_so)
{
    struct plasmon_put_options options = PLASMON_PUT_INIT;
    struct plasmon_shape small         = cluster_vector(PLASMON_F32, SMALL), large;
    static float memory[LARGE];
    struct plasmon_client *client;
    struct plasmon_ref *ref;

    started_begin();
    started_cluster_with(1, "--spill-memory", "0");
    client          = started_join_knowing(started_address(), 1);
    options.replica = 1;
    CLUSTER_OK(plasmon_put(client, memory, &small, &options, &ref)); /* it does not wait */
    ASSERT_STATUS(plasmon_get(client, ref, memory, sizeof(memory), CLUSTER_WAIT_MS),
                  PLASMON_EDEVMEM);
    ASSERT_CONTAINS(plasmon_error(client), "--spill-memory");
    large = cluster_vector(PLASMON_F32, LARGE);
    ASSERT_STATUS(plasmon_put(client, memory, &large, &options, &ref), PLASMON_EDEVMEM);
    ASSERT_CONTAINS(plasmon_error(client), "a second copy was asked for");
    plasmon_finish(client);
}

/* ---------------------------------------------------------------------- what values are */

/* What a command of the cluster prints, which has to go well. */
static const char *said_by(const char *command, const char *option, const char *value)
{
    static char said[16384];

    ASSERT_EQ(STARTED_RUN(said, sizeof(said), "plasmon", command, "--address",
                          started_address(), option, value),
              0);
    return said;
}

static void expect_none(const char *said, const char *text)
{
    if (strstr(said, text) != NULL) {
        test_fail(__FILE__, __LINE__, "\"%s\" is in it: %s", text, said);
    }
}

/* f32[256] of one value, as a call or a put says it. */
static struct plasmon_ref *labelled(struct plasmon_client *client, bool put,
                                    const char *label)
{
    struct plasmon_shape shape         = cluster_vector(PLASMON_F32, 256);
    struct plasmon_put_options options = PLASMON_PUT_INIT;
    struct plasmon_call call           = PLASMON_CALL_INIT;
    struct plasmon_arg arg             = {.mode = PLASMON_OUT, .shape = &shape};
    plasmon_scalar_t one               = {.f = 1};
    struct plasmon_ref *ref;
    float data[256] = {0};

    options.label     = label;
    call.label        = label;
    call.function     = "fill";
    call.args         = &arg;
    call.arg_count    = 1;
    call.scalars      = &one;
    call.scalar_count = 1;
    if (put) {
        CLUSTER_OK(plasmon_put(client, data, &shape, &options, &ref));
    } else {
        CLUSTER_OK(plasmon_submit(client, &call, &ref, NULL));
    }
    CLUSTER_OK(plasmon_wait(client, &ref, 1, 1, CLUSTER_WAIT_MS, NULL, NULL));
    return ref;
}

TEST(objects_and_memory_tell_and_find_values_by_their_own_labels)
{
    struct plasmon_client *client;
    struct plasmon_ref *refs[3];
    const char *said;

    started_begin();
    started_cluster(1);
    client  = started_join_knowing(started_address(), 1);
    refs[0] = labelled(client, true, "weights epoch 3");
    refs[1] = labelled(client, false, "loss");
    refs[2] = labelled(client, true, NULL);
    CLUSTER_OK(plasmon_publish(client, "model", refs[0]));

    said = said_by("objects", "--limit", "0");
    ASSERT_CONTAINS(said, "client label or name");
    ASSERT_CONTAINS(said, " weights epoch 3 ");
    ASSERT_CONTAINS(said, " loss ");
    said = said_by("objects", "--label", "epoch 3");
    ASSERT_CONTAINS(said, " weights epoch 3 ");
    ASSERT_CONTAINS(said, "model");
    expect_none(said, "loss");
    said = said_by("objects", "--label", "test_hosts"); /* of the client */
    ASSERT_CONTAINS(said, " weights epoch 3 ");
    ASSERT_CONTAINS(said, " loss ");

    said = said_by("memory", "--label", "epoch 3");
    ASSERT_CONTAINS(said, " weights epoch 3\n");
    ASSERT_CONTAINS(said, "model");
    expect_none(said, "loss");
    said = said_by("memory", "--label", "nobody has this");
    expect_none(said, "weights epoch 3");
    for (size_t i = 0; i < 3; i++) {
        CLUSTER_OK(plasmon_release(client, refs[i]));
    }
    plasmon_finish(client);
}

/*
 * The head looks for holders once for all who wait for the same label, and then for those who wait
 * for another.
 */
TEST(who_asks_for_other_labels_at_the_same_time_is_told_his_own)
{
    enum { ASKERS = 8 };
    static const char *const labels[] = {"weights", "loss"};
    struct plasmon_client *client;
    struct plasmon_ref *refs[2];
    char said[16384], log[16];
    pid_t askers[ASKERS];

    started_begin();
    started_cluster(1);
    client  = started_join_knowing(started_address(), 1);
    refs[0] = labelled(client, true, labels[0]);
    refs[1] = labelled(client, true, labels[1]);
    for (int i = 0; i < ASKERS; i++) {
        (void)snprintf(log, sizeof(log), "ask%d.log", i);
        askers[i] = STARTED_DAEMON(log, "plasmon", "memory", "--json", "--address",
                                   started_address(), "--label", labels[i % 2]);
    }
    for (int i = 0; i < ASKERS; i++) {
        ASSERT_EQ(started_wait(askers[i]), 0);
        (void)snprintf(log, sizeof(log), "ask%d.log", i);
        started_log(log, said, sizeof(said));
        ASSERT_CONTAINS(said, labels[i % 2]);
        expect_none(said, labels[1 - i % 2]);
    }
    CLUSTER_OK(plasmon_release(client, refs[0]));
    CLUSTER_OK(plasmon_release(client, refs[1]));
    plasmon_finish(client);
}

TEST(labels_of_values_are_keys_of_their_own_in_json)
{
    static const char *const commands[] = {"objects", "memory"};
    struct plasmon_client *client;
    struct plasmon_ref *ref;
    char said[16384];

    started_begin();
    started_cluster(1);
    client = started_join_knowing(started_address(), 1);
    ref    = labelled(client, true, "weights \"3\"");
    CLUSTER_OK(plasmon_publish(client, "model", ref));
    for (size_t i = 0; i < PL_COUNT(commands); i++) {
        ASSERT_EQ(STARTED_RUN(said, sizeof(said), "plasmon", commands[i], "--json",
                              "--address", started_address()),
                  0);
        ASSERT_CONTAINS(said, "\"label\":\"weights \\\"3\\\"\",\"more_labels\":false,"
                              "\"client_label\":\"test_hosts\"");
        ASSERT_CONTAINS(said, "\"label\":\"weights \\\"3\\\"\",\"more_labels\":false,"
                              "\"name\":\"model\"");
    }
    ASSERT_CONTAINS(said, "\"holder\":\"model\"");
    CLUSTER_OK(plasmon_release(client, ref));
    plasmon_finish(client);
}

/* ------------------------------------------------------------------------- a store goes */

TEST(a_host_whose_store_was_killed_is_given_up_and_a_new_store_joins)
{
    struct plasmon_client *client;
    struct plasmon_ref *kept, *busy, *task, *made;
    float byte[1000];
    char to[160], *doctor;

    test_set_timeout(90);
    test_expect_log();
    started_begin();
    (void)snprintf(to, sizeof(to), "unix:%s/head.sock", cluster_folder());
    (void)STARTED_DAEMON("head.log", "plasmon-head", "--listen", to, "--node-lease", "0.5",
                         "--lineage-bytes", "16777216");
    (void)STARTED_DAEMON("store.log", "plasmon-store", "--head", to, "--socket-dir",
                         folder_in("first"), "--cpu-devices", "2", "--gpus", "none",
                         "--device-memory", "16M", "--node", "mine");
    wait_head(to);
    CLUSTER_OK(started_try_join(to, NULL, &client));
    started_wait_status(client, "\"index\":1,");
    started_wait_status(client, "\"state\":\"up\"");
    started_wait_status(client, "\"messages\":\"memory\"");
    plasmon_finish(client);
    CLUSTER_OK(started_try_join(to, NULL, &client));

    kept = cluster_put(client, 1000, 1, 0);
    busy = cluster_put(client, 10, 1, 1);
    cluster_expect_ramp(client, kept, 1000, 1, 1); /* both puts are done */
    cluster_expect_ramp(client, busy, 10, 1, 1);
    made = cluster_fill(client, 1000, 5, PLASMON_ANYWHERE);
    cluster_expect_all(client, made, 1000, 5);
    cluster_spin(client, busy, 30000000, 1, &task);
    cluster_kill(cluster_find("plasmon-store", -1));

    expect_failure(client, task, PLASMON_EWORKER, "mine");
    ASSERT_STATUS(plasmon_get(client, kept, byte, sizeof(byte), CLUSTER_WAIT_MS),
                  PLASMON_ELOST);
    ASSERT_CONTAINS(plasmon_error(client), "mine");
    started_wait_status(client, "\"state\":\"gone\"");
    cluster_expect_ended("plasmon-worker", CLUSTER_WAIT_MS); /* they end with their store */
    CLUSTER_OK(plasmon_doctor(client, 0, &doctor));
    ASSERT_CONTAINS(doctor, "waits for a device"); /* to make again what was made there */
    free(doctor);

    (void)STARTED_DAEMON("store2.log", "plasmon-store", "--head", to, "--socket-dir",
                         folder_in("second"), "--cpu-devices", "2", "--gpus", "none",
                         "--device-memory", "16M", "--node", "mine");
    started_wait_status(client, "\"index\":3,");
    started_wait_status(client, "\"state\":\"up\"");
    cluster_expect_all(client, made, 1000, 5);
    expect_works(client); /* the same client goes on, on the new devices */
    plasmon_finish(client);
}

/*
 * The store and both workers live on. Each worker hears by itself that it is nobody any more, and
 * has another number then.
 */
static void cut_off_for_too_long(const char *transfer)
{
    struct plasmon_client *client;
    struct plasmon_ref *here, *there;
    struct one_way *relay;
    char to[176], head[160], cut[160], by[176];

    test_set_timeout(90);
    test_expect_log();
    started_begin();
    (void)snprintf(head, sizeof(head), "%s/head.sock", cluster_folder());
    (void)snprintf(cut, sizeof(cut), "%s/cut.sock", cluster_folder());
    (void)snprintf(to, sizeof(to), "unix:%s", head);
    (void)snprintf(by, sizeof(by), "unix:%s", cut);
    (void)STARTED_DAEMON("head.log", "plasmon-head", "--listen", to, "--node-lease", "0.5",
                         "--transfer", transfer);
    wait_head(to);
    relay = one_way_create(cut, head, "no store says this");
    (void)STARTED_DAEMON("store.log", "plasmon-store", "--head", by, "--socket-dir",
                         folder_in("first"), "--cpu-devices", "2", "--gpus", "none",
                         "--device-memory", "16M", "--node", "mine");
    CLUSTER_OK(started_try_join(to, NULL, &client));
    started_wait_devices(client, 2);
    for (int i = 0; i < 2; i++) { /* both have a life before */
        here = cluster_fill(client, 1000, 5, i);
        cluster_expect_all(client, cluster_copy(client, here, 1 - i), 1000, 5);
    }

    one_way_destroy(relay);
    ASSERT_EQ(unlink(cut), 0);
    started_wait_status(client, "\"state\":\"gone\"");
    relay = one_way_create(cut, head, "no store says this");
    started_wait_devices(client, 2);
    for (int i = 0; i < 2; i++) { /* both ways */
        here  = cluster_fill(client, 1000, 7 + i, 2 + i);
        there = cluster_copy(client, here, 3 - i);
        cluster_expect_all(client, there, 1000, (float)(7 + i));
    }
    plasmon_finish(client);
    one_way_destroy(relay);
}

TEST(devices_of_a_host_that_was_cut_off_for_too_long_know_each_other_by_their_new_numbers)
{
    cut_off_for_too_long("peer");
}

/* Its staging rings begin anew. */
TEST(devices_of_a_host_that_was_cut_off_for_too_long_send_to_each_other_through_host_memory)
{
    cut_off_for_too_long("host");
}

TEST_MAIN()
