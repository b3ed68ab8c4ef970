/*
 * `plasmon doctor` of a cluster: each cause of a standstill is made on CPU devices, and found in
 * the text with what to do about it. Asked again and again until it says so, or a deadline of a
 * minute is over: what it tells depends on how far the others have come.
 */
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fd.h"
#include "tests/integration/started.h"

enum { DEADLINE_S = 60, COUNT = 1024, LARGE = 10 << 20 /* floats: 40 MiB */ };

#define LONG_US 300000000 /* longer than any test; what runs so long is ended */

static bool says_all(const char *text, const char *const *wanted)
{
    for (size_t i = 0; wanted[i] != NULL; i++) {
        if (strstr(text, wanted[i]) == NULL) {
            return false;
        }
    }
    return true;
}

static void expect(struct plasmon_client *client, const char *const *wanted)
{
    uint64_t deadline_ns = pl_now_ns() + (uint64_t)DEADLINE_S * 1000000000u;
    char *text;

    for (;;) {
        CLUSTER_OK(plasmon_doctor(client, 0, &text));
        if (says_all(text, wanted)) {
            free(text);
            return;
        }
        if (pl_now_ns() >= deadline_ns) {
            printf("%s", text);
            for (size_t i = 0; wanted[i] != NULL; i++) {
                ASSERT_CONTAINS(text, wanted[i]);
            }
        }
        free(text);
        (void)poll(NULL, 0, 50);
    }
}
#define EXPECT(client, ...) expect(client, (const char *const[]){__VA_ARGS__, NULL})

static void end_by_force(struct plasmon_client *client, struct plasmon_ref *task)
{
    CLUSTER_OK(plasmon_cancel_force(client, task));
    CLUSTER_OK(plasmon_wait(client, &task, 1, 1, CLUSTER_WAIT_MS, NULL, NULL));
}

TEST(a_kernel_that_does_not_end_is_named_by_who_waits_for_it)
{
    struct plasmon_client *client = cluster_start(2);
    struct plasmon_ref *x         = cluster_fill(client, COUNT, 1, 1);
    struct plasmon_ref *task, *after;
    char *json;

    test_set_timeout(120);
    CLUSTER_OK(plasmon_wait(client, &x, 1, 1, CLUSTER_WAIT_MS, NULL, NULL));
    cluster_spin(client, x, LONG_US, 1, &task);
    after = cluster_copy(client, x, 0);
    CLUSTER_OK(plasmon_flush(client));
    EXPECT(client, "copy on device 0 has waited", "spin 'spinning' on device 1, which runs",
           "plasmon_cancel_force()", "routes between devices",
           "0 to 1; 1 to 0: peer, because:");
    CLUSTER_OK(plasmon_doctor(client, 1, &json));
    ASSERT_CONTAINS(json, "\"cause\":\"runs\"");
    ASSERT_CONTAINS(json, "\"function\":\"spin\"");
    ASSERT_CONTAINS(json, "\"route\":\"peer\"");
    free(json);
    end_by_force(client, task);
    CLUSTER_OK(plasmon_wait(client, &after, 1, 1, CLUSTER_WAIT_MS, NULL, NULL));
    EXPECT(client, "none is unfinished", "nothing to do", "all answer");
    plasmon_finish(client);
}

TEST(a_function_of_ones_own_that_waits_has_its_name)
{
    struct plasmon_client *client         = cluster_start(1);
    struct plasmon_ref *x                 = cluster_fill(client, COUNT, 1, 0);
    struct plasmon_source_options options = PLASMON_SOURCE_OPTIONS_INIT;
    struct plasmon_arg arg                = {.mode = PLASMON_INOUT, .ref = x};
    struct plasmon_call call              = PLASMON_CALL_INIT;
    struct plasmon_ref *task;

    test_set_timeout(120);
    options.c_text = "void halve(float *x) { x[0] *= 0.5f; }";
    CLUSTER_OK(
        plasmon_function_source(client, "halve", NULL, "halve(inout f32[n] x)", &options));
    CLUSTER_OK(plasmon_function_wait(client, "halve", CLUSTER_WAIT_MS));
    cluster_spin(client, x, LONG_US, 0, &task);
    call.function  = "halve";
    call.args      = &arg;
    call.arg_count = 1;
    call.label     = "mine";
    CLUSTER_OK(plasmon_submit(client, &call, NULL, NULL));
    CLUSTER_OK(plasmon_flush(client));
    EXPECT(client, " halve 'mine' on device 0 has waited");
    end_by_force(client, task);
    plasmon_finish(client);
}

/* It could still be served by what runs before it, so it waits and does not fail. */
TEST(a_device_that_is_full_of_what_a_mapping_holds_is_said_to_be)
{
    struct plasmon_client *client = cluster_start_sized(1, 64 << 20);
    struct plasmon_ref *x         = cluster_fill(client, COUNT, 1, 0);
    struct plasmon_ref *large     = cluster_fill(client, LARGE, 2, 0);
    struct plasmon_mapping *mapping;
    struct plasmon_ref *task, *more;

    test_set_timeout(120);
    CLUSTER_OK(plasmon_wait(client, (struct plasmon_ref *[]){x, large}, 2, 2,
                            CLUSTER_WAIT_MS, NULL, NULL));
    CLUSTER_OK(plasmon_map(client, large, CLUSTER_WAIT_MS, &mapping));
    CLUSTER_OK(plasmon_release(client, large));
    cluster_spin(client, x, LONG_US, 0, &task);
    CLUSTER_OK(cluster_try_fill(client, LARGE, 3, 0, &more));
    CLUSTER_OK(plasmon_flush(client));
    EXPECT(client, "fill on device 0 waits for device memory", "of new device memory",
           "in use are 40.0 MiB", "end mappings");
    plasmon_unmap(mapping);
    CLUSTER_OK(plasmon_wait(client, &more, 1, 1, CLUSTER_WAIT_MS, NULL, NULL));
    CLUSTER_OK(plasmon_state(client, more));
    end_by_force(client, task);
    plasmon_finish(client);
}

/* Its store would end it and start another one; it is stopped first, so that it does not. */
TEST(a_worker_that_is_stopped_does_not_answer)
{
    struct plasmon_client *client = cluster_start(1);
    pid_t worker                  = cluster_worker(client, 0);
    pid_t store                   = cluster_find("plasmon-store", -1);
    struct plasmon_ref *x;

    test_set_timeout(120);
    ASSERT_EQ(kill(store, SIGSTOP), 0);
    ASSERT_EQ(kill(worker, SIGSTOP), 0);
    x = cluster_fill(client, COUNT, 1, 0);
    CLUSTER_OK(plasmon_flush(client));
    EXPECT(client, "fill on device 0 is on a device whose worker does not answer",
           "its worker does not answer: stopped", "--worker-lease");
    ASSERT_EQ(kill(worker, SIGCONT), 0);
    ASSERT_EQ(kill(store, SIGCONT), 0);
    cluster_expect_all(client, x, COUNT, 1);
    plasmon_finish(client);
}

/* Nobody starts another one: its store is stopped. */
TEST(a_device_without_a_worker_is_said_to_have_none_and_since_when)
{
    struct plasmon_client *client = cluster_start(1);
    pid_t worker                  = cluster_worker(client, 0);
    pid_t store                   = cluster_find("plasmon-store", -1);
    struct plasmon_ref *x;

    test_set_timeout(120);
    ASSERT_EQ(kill(store, SIGSTOP), 0);
    ASSERT_EQ(kill(worker, SIGKILL), 0);
    x = cluster_fill(client, COUNT, 1, 0);
    CLUSTER_OK(plasmon_flush(client));
    EXPECT(client, "fill on device 0 has no worker now, for ",
           "its store starts another one", "  0 down, has no worker, for ");
    ASSERT_EQ(kill(store, SIGCONT), 0);
    cluster_expect_all(client, x, COUNT, 1);
    plasmon_finish(client);
}

/* The memory for spilling is made by the store, which is stopped. */
TEST(a_spill_that_waits_for_the_store_is_what_who_needs_its_room_waits_for)
{
    struct plasmon_options options = PLASMON_OPTIONS_INIT;
    struct plasmon_client *client;
    struct plasmon_ref *first, *second;
    pid_t store;

    test_set_timeout(120);
    cluster_tag();
    options.gpus          = "none";
    options.cpu_devices   = 1;
    options.device_memory = 64 << 20;
    options.spill_memory  = 64 << 20;
    CLUSTER_OK(plasmon_init(&options, &client));
    first = cluster_fill(client, LARGE, 1, 0);
    CLUSTER_OK(plasmon_wait(client, &first, 1, 1, CLUSTER_WAIT_MS, NULL, NULL));
    store = cluster_find("plasmon-store", -1);
    ASSERT_EQ(kill(store, SIGSTOP), 0);
    second = cluster_fill(client, LARGE, 2, 0);
    CLUSTER_OK(plasmon_flush(client));
    EXPECT(client, "fill on device 0 has waited ", "spill of 40.0 MiB to host memory of ",
           "which waits until its host's store has made the memory for spilling, for ",
           "64.0 MiB are to be made", "spills and restores, the oldest\n  not sent: ");
    ASSERT_EQ(kill(store, SIGCONT), 0);
    CLUSTER_OK(plasmon_wait(client, &second, 1, 1, CLUSTER_WAIT_MS, NULL, NULL));
    CLUSTER_OK(plasmon_state(client, second));
    plasmon_finish(client);
}

/* What `plasmon COMMAND` says of the cluster: both texts are in there. */
static void expect_listed(const char *command, const char *option, const char *value,
                          const char *one, const char *other)
{
    char text[16384];

    ASSERT_EQ(STARTED_RUN(text, sizeof(text), "plasmon", command, "--address",
                          started_address(), option, value),
              0);
    ASSERT_CONTAINS(text, one);
    ASSERT_CONTAINS(text, other);
}

/* A task runs on device 0, and one of device 1 waits for it. */
static void expect_lists(void)
{
    struct plasmon_client *client = started_join();
    struct plasmon_ref *x         = cluster_fill(client, COUNT, 1, 0), *task;

    CLUSTER_OK(plasmon_wait(client, &x, 1, 1, CLUSTER_WAIT_MS, NULL, NULL));
    cluster_spin(client, x, LONG_US, 0, &task);
    (void)cluster_copy(client, x, 1);
    CLUSTER_OK(plasmon_flush(client));
    EXPECT(client, "spin 'spinning' on device 0 runs");
    expect_listed("tasks", "--state", "running", "spinning", "spin ");
    expect_listed("tasks", "--device", "1", "copy ", " 0:2");
    expect_listed("tasks", "--json", NULL, "\"function\":\"spin\"", "\"more\":false}");
    expect_listed("objects", "--state", "pending", "; written by 0:", "device 0");
    expect_listed("objects", "--json", NULL, "\"state\":\"pending\"", "\"more\":false}");
    expect_listed("nodes", NULL, NULL, " up ", "2 of 2");
    expect_listed("top", NULL, NULL, "clients 1", "spin spinning, ");
    end_by_force(client, task);
    plasmon_finish(client);
}

TEST(the_command_line_says_the_same_and_a_node_that_is_away_is_named)
{
    char text[16384];

    started_cluster(2);
    test_set_timeout(180);
    ASSERT_EQ(STARTED_RUN(text, sizeof(text), "plasmon", "doctor", "--address",
                          started_address()),
              0);
    ASSERT_CONTAINS(text, "none is unfinished");
    ASSERT_CONTAINS(text, "0 to 1; 1 to 0: peer, because: one host");
    ASSERT_EQ(STARTED_RUN(text, sizeof(text), "plasmon", "doctor", "--json", "--address",
                          started_address()),
              0);
    ASSERT_CONTAINS(text, "{\"tasks\":[],\"devices\":[{\"index\":0");
    ASSERT_EQ(STARTED_RUN(text, sizeof(text), "plasmon", "doctor", "--json"), 2);
    ASSERT_CONTAINS(text, "--cluster");
    expect_lists();
    {
        struct plasmon_client *client = started_join();

        cluster_kill(cluster_find("plasmon-store", -1));
        EXPECT(client, "is away for", "--node-lease");
        plasmon_finish(client);
    }
    (void)STARTED_RUN(NULL, 0, "plasmon", "stop");
}

/* Until the command's output has the text, or the test fails. */
static void expect_nodes(const char *wanted)
{
    uint64_t deadline_ns = pl_now_ns() + (uint64_t)DEADLINE_S * 1000000000u;
    char text[16384];

    do {
        ASSERT_EQ(STARTED_RUN(text, sizeof(text), "plasmon", "nodes", "--address",
                              started_address()),
                  0);
        if (strstr(text, wanted) != NULL) {
            return;
        }
        (void)poll(NULL, 0, 50);
    } while (pl_now_ns() < deadline_ns);
    ASSERT_CONTAINS(text, wanted);
}

TEST(a_store_that_is_stopped_is_named_at_once_with_its_process)
{
    char text[16384], who[128];
    pid_t store;

    test_set_timeout(120);
    started_cluster(1);
    store = cluster_find("plasmon-store", -1);
    ASSERT_EQ(
        STARTED_RUN(text, sizeof(text), "plasmon", "nodes", "--address", started_address()),
        0);
    ASSERT_CONTAINS(text, " up ");
    ASSERT_EQ(kill(store, SIGSTOP), 0);
    while (!pl_pid_stopped(store)) { /* the signal waits for a processor */
        (void)poll(NULL, 0, 5);
    }
    /* Long before its connection breaks: the first answer has it. */
    ASSERT_EQ(
        STARTED_RUN(text, sizeof(text), "plasmon", "nodes", "--address", started_address()),
        0);
    ASSERT_CONTAINS(text, " silent ");
    ASSERT_CONTAINS(text, "did not answer just now");
    (void)snprintf(who, sizeof(who),
                   "its store, process %d (plasmon-store) is stopped (by SIGSTOP, or a "
                   "debugger): `kill -CONT %d` lets it go on",
                   (int)store, (int)store);
    ASSERT_EQ(STARTED_RUN(text, sizeof(text), "plasmon", "doctor", "--address",
                          started_address()),
              0);
    ASSERT_CONTAINS(text, "does not answer");
    ASSERT_CONTAINS(text, who);
    ASSERT_TRUE(strstr(text, "all answer") == NULL);
    ASSERT_EQ(STARTED_RUN(text, sizeof(text), "plasmon", "doctor", "--json", "--address",
                          started_address()),
              0);
    ASSERT_CONTAINS(text, "\"answers\":false,\"gone\":false");
    ASSERT_EQ(kill(store, SIGCONT), 0);
    expect_nodes(" up ");
    (void)STARTED_RUN(NULL, 0, "plasmon", "stop");
}

TEST(a_node_that_left_stays_listed_with_what_to_do)
{
    char text[16384];

    test_set_timeout(120);
    started_cluster(1);
    cluster_kill(cluster_find("plasmon-store", -1));
    expect_nodes("gone for ");
    ASSERT_EQ(
        STARTED_RUN(text, sizeof(text), "plasmon", "nodes", "--address", started_address()),
        0);
    ASSERT_CONTAINS(text, " gone ");
    ASSERT_CONTAINS(text, "its store did not come back within");
    ASSERT_CONTAINS(text, "`plasmon start`");
    ASSERT_EQ(STARTED_RUN(text, sizeof(text), "plasmon", "nodes", "--json", "--address",
                          started_address()),
              0);
    ASSERT_CONTAINS(text, "\"state\":\"gone\"");
    ASSERT_CONTAINS(text, "\"why\":\"its store did not come back within");
    ASSERT_EQ(STARTED_RUN(text, sizeof(text), "plasmon", "doctor", "--address",
                          started_address()),
              0);
    ASSERT_CONTAINS(text, " is gone for ");
    ASSERT_EQ(STARTED_RUN(text, sizeof(text), "plasmon", "status", "--address",
                          started_address()),
              0);
    ASSERT_CONTAINS(text, "no device is up");
    (void)STARTED_RUN(NULL, 0, "plasmon", "stop");
}

TEST_MAIN()
