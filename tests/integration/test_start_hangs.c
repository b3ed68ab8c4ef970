/*
 * Workers that hang while they start, or in their main loop: each step of a start (store/phases.h)
 * is a fault point, so the first worker of each device hangs in another one. All are ended after
 * the lease of a start, told with the step that was done last, and replaced.
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/str.h"
#include "tests/integration/started.h"

#define COUNT 1024

/* In the order of a start. The last one has said that it is ready: its lease is that of its main loop. */
static const char *const steps[] = {"exec", "set-up", "memory", "ready", "welcome"};

static char said[1 << 16];
static pid_t store;

/*
 * A store with so many devices; leases of a start and of a main loop in milliseconds. A client that
 * knows `known` of the devices: all, or it does not wait for more.
 */
static struct plasmon_client *start(const char *faults, unsigned devices, const char *lease,
                                    unsigned known)
{
    struct plasmon_options options = PLASMON_OPTIONS_INIT;
    struct plasmon_client *client;
    char target[160], count[16];

    test_expect_log();
    test_set_timeout(240);
    started_begin();
    (void)snprintf(target, sizeof(target), "unix:%s/h.sock", cluster_folder());
    (void)snprintf(count, sizeof(count), "%u", devices);
    (void)STARTED_DAEMON("head.log", "plasmon-head", "--listen", target);
    ASSERT_EQ(setenv("PLASMON_FAULT", faults, 1), 0);
    store =
        STARTED_DAEMON("store.log", "plasmon-store", "--head", target, "--gpus", "none",
                       "--cpu-devices", count, "--device-memory", "16M", "--socket-dir",
                       cluster_folder(), "--bulk-address", "none", "--worker-start-lease",
                       lease, "--worker-lease", lease, "--drain-deadline", "0");
    ASSERT_EQ(unsetenv("PLASMON_FAULT"), 0);
    if (known == devices) {
        return started_join_knowing(target, known);
    }
    (void)started_wait_log("head.log", NULL, "device 0 joined");
    options.address = target;
    CLUSTER_OK(plasmon_init(&options, &client)); /* by default it waits for 20 s */
    return client;
}

/*
 * The device's worker was fenced, and why was said. On a machine that is very busy, a start may
 * come no further for so long in another step, before it comes to the one in which it hangs; so
 * which it was is not looked at here.
 */
static void expect_fenced(unsigned device)
{
    const char *found;
    char text[64];

    (void)snprintf(text, sizeof(text), "warn store: worker of device %u (pid ", device);
    found = strstr(said, text);
    ASSERT_NOT_NULL(found);
    found = strstr(found, ") is fenced: ");
    ASSERT_NOT_NULL(found);
    if (strncmp(found + 13, "its main loop made no progress for ", 35) != 0) {
        ASSERT_EQ(strncmp(found + 13, "its start came no further for ", 30), 0);
        ASSERT_CONTAINS(found, " ms; done is ");
    }
}

TEST(a_worker_that_hangs_in_any_step_of_its_start_is_replaced)
{
    struct pl_str faults = {.text = NULL};
    struct plasmon_client *client;

    for (unsigned i = 0; i < PL_COUNT(steps); i++) {
        pl_str_append(&faults, "%sworker%u.1/worker.start.%s=hang", i > 0 ? "," : "", i,
                      steps[i]);
    }
    ASSERT_TRUE(!faults.failed);
    client = start(faults.text, PL_COUNT(steps), "5000", PL_COUNT(steps));
    pl_str_finish(&faults);
    for (unsigned i = 0; i < PL_COUNT(steps); i++) {
        struct plasmon_ref *ref = cluster_fill(client, COUNT, (float)i, (int)i);

        cluster_expect_all(client, ref, COUNT, (float)i);
        CLUSTER_OK(plasmon_release(client, ref));
    }
    plasmon_finish(client);
    ASSERT_EQ(kill(store, SIGTERM), 0);
    ASSERT_EQ(started_wait(store), 0);
    started_log("store.log", said, sizeof(said));
    for (unsigned i = 0; i < PL_COUNT(steps); i++) {
        expect_fenced(i);
    }
}

/* For longer than a client waits for the head: who comes has the others meanwhile. */
TEST(a_session_begins_without_a_device_whose_start_hangs)
{
    struct plasmon_client *client =
        start("worker1.1/worker.start.memory=hang", 2, "120000", 1);
    struct plasmon_ref *ref = cluster_fill(client, COUNT, 3, 0);
    uint32_t count          = 0;

    cluster_expect_all(client, ref, COUNT, 3);
    CLUSTER_OK(plasmon_devices(client, NULL, 0, &count));
    ASSERT_EQ(count, 1);
    plasmon_finish(client);
    ASSERT_EQ(kill(store, SIGTERM), 0);
    ASSERT_EQ(started_wait(store), 0);
}

TEST_MAIN()
