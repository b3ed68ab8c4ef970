/*
 * Workers that hang while they start, or in their main loop: each step of a start (store/phases.h) is a fault point, so the first worker of each
 * device hangs in another one. All are ended after the lease of a start, told with the step that was done last, and replaced; what was submitted
 * meanwhile is done. A device whose workers all hang is given up, and who asks for it hears why.
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "tests/integration/started.h"

#define COUNT 1024

/* In the order of a start. The lease of one that is ready is that of its main loop. */
static const char *const steps[] = {"exec",    "set-up", "memory",
                                    "buffers", "ready",  "welcome"};

static char said[1 << 16];
static pid_t store;

/* A store with so many devices; leases of a start and of a main loop in milliseconds. */
static struct plasmon_client *start(const char *faults, unsigned devices, const char *lease)
{
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
    return started_join_knowing(target, devices);
}

static void expect_log(const char *text)
{
    started_log("store.log", said, sizeof(said));
    ASSERT_CONTAINS(said, text);
}

TEST(a_worker_that_hangs_in_any_step_of_its_start_is_replaced)
{
    char faults[PL_COUNT(steps) * 48] = "";
    struct plasmon_client *client;

    for (unsigned i = 0; i < PL_COUNT(steps); i++) {
        char one[48];

        (void)snprintf(one, sizeof(one), "%sworker%u.1/worker.start.%s=hang",
                       i > 0 ? "," : "", i, steps[i]);
        strcat(faults, one);
    }
    client = start(faults, PL_COUNT(steps), "3000");
    for (unsigned i = 0; i < PL_COUNT(steps); i++) {
        struct plasmon_ref *ref = cluster_fill(client, COUNT, (float)i, (int)i);

        cluster_expect_all(client, ref, COUNT, (float)i);
        CLUSTER_OK(plasmon_release(client, ref));
    }
    plasmon_finish(client);
    ASSERT_EQ(kill(store, SIGTERM), 0);
    ASSERT_EQ(started_wait(store), 0);
    expect_log(
        "its start came no further for 3000 ms; done is nothing that needs the store");
    expect_log("its start came no further for 3000 ms; done is set-up");
    expect_log("its start came no further for 3000 ms; done is memory");
    expect_log("its start came no further for 3000 ms; done is buffers");
    expect_log("its start came no further for 3000 ms; done is ready"); /* told it not */
    expect_log("its main loop made no progress for 3000 ms");           /* welcome */
}

TEST_MAIN()
