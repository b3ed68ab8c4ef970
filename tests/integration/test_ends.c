/*
 * Each daemon of a cluster that has worked ends by SIGTERM with status 0, and has lost no memory:
 * what the leak sanitizer (in the asan build) would report is in a daemon's log, and is its exit
 * status.
 */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "tests/integration/started.h"

#define DEVICES     2
#define COUNT       4096
#define LARGE       6 /* of 2 MiB, where there is room for four */
#define LARGE_COUNT (1 << 19)

static pid_t head, store;

static void cluster_begin(void)
{
    char path[256];

    test_expect_log(); /* workers that end are news */
    started_begin();
    (void)snprintf(path, sizeof(path), "%s/plasmon-%u", cluster_folder(),
                   (unsigned)getuid());
    ASSERT_EQ(mkdir(path, 0700), 0);
    ASSERT_EQ(setenv("PLASMON_LEAKS", "1", 1), 0);
    head  = STARTED_DAEMON("head.log", "plasmon-head", "--listen", started_address());
    store = STARTED_DAEMON("store.log", "plasmon-store", "--head", started_address(),
                           "--cpu-devices", "2", "--gpus", "none", "--device-memory", "8M",
                           "--spill-memory", "16M", "--bulk-address", "127.0.0.1",
                           "--bulk-plain", "--drain-deadline", "0");
}

static struct plasmon_client *join(void)
{
    struct plasmon_client *client;

    CLUSTER_OK(started_try_join(started_address(), NULL, &client));
    cluster_watch(client);
    started_wait_devices(client, DEVICES);
    return client;
}

/* Copies between devices, memory that is spilled, a task that fails, and what is let go of all that. */
static void work(struct plasmon_client *client)
{
    struct plasmon_ref *large[LARGE];

    for (int device = 0; device < DEVICES; device++) {
        struct plasmon_ref *x = cluster_put(client, COUNT, 1, device);
        struct plasmon_ref *y = cluster_fill(client, COUNT, 3, 1 - device);

        CLUSTER_OK(cluster_axpy(client, y, x, 2, 1 - device));
        cluster_expect_ramp(client, y, COUNT, 5, 2);
        CLUSTER_OK(plasmon_release(client, x));
    }
    for (int i = 0; i < LARGE; i++) {
        large[i] = cluster_fill(client, LARGE_COUNT, i, 0);
    }
    for (int i = 0; i < LARGE; i++) {
        cluster_expect_all(client, large[i], LARGE_COUNT, (float)i);
        CLUSTER_OK(plasmon_release(client, large[i]));
    }
    (void)cluster_axpy(client, cluster_fill(client, 3, 1, 0), cluster_fill(client, 4, 1, 0),
                       1, 0); /* shapes that do not match */
}

/* None of what sanitizers say. */
static void expect_clean(const char *log)
{
    static const char *const words[] = {"LeakSanitizer", "AddressSanitizer",
                                        "runtime error"};
    static char text[1 << 20];

    started_log(log, text, sizeof(text));
    for (unsigned i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        const char *found = strstr(text, words[i]);

        if (found != NULL) {
            test_fail(__FILE__, __LINE__, "%s: %.2000s", log, found);
        }
    }
}

/* Its store says how it ended. */
static void worker_end(int device)
{
    uint64_t deadline_ns = pl_now_ns() + CLUSTER_WAIT_MS * 1000000ull;
    pid_t pid            = cluster_find("plasmon-worker", device);
    static char log[1 << 20];
    char wanted[64];

    ASSERT_EQ(kill(pid, SIGTERM), 0);
    (void)snprintf(wanted, sizeof(wanted), "worker of device %d is down: ", device);
    do {
        ASSERT_TRUE(pl_now_ns() < deadline_ns);
        (void)poll(NULL, 0, 10); /* nothing tells of a new line: look */
        started_log("store.log", log, sizeof(log));
    } while (strstr(log, wanted) == NULL);
    expect_clean("store.log");
    (void)snprintf(wanted, sizeof(wanted), "worker of device %d is down: exit status 0",
                   device);
    ASSERT_CONTAINS(log, wanted);
}

TEST(every_daemon_ends_by_sigterm_with_nothing_lost)
{
    struct plasmon_client *client;

    test_set_timeout(180);
    cluster_begin();
    client = join();
    work(client);
    for (int device = 0; device < DEVICES; device++) {
        worker_end(device);
    }
    plasmon_finish(client);

    ASSERT_EQ(kill(store, SIGTERM), 0);
    ASSERT_EQ(started_wait(store), 0);
    ASSERT_EQ(kill(head, SIGTERM), 0);
    ASSERT_EQ(started_wait(head), 0);
    expect_clean("store.log");
    expect_clean("head.log");
}

/* Which would look for a head for half a minute if this one had not said that none will come. */
TEST(a_head_that_is_told_to_end_tells_its_clients)
{
    struct plasmon_client *client;
    struct plasmon_ref *x;
    float values[3];
    uint64_t deadline_ns;

    cluster_begin();
    client = join();
    x      = cluster_fill(client, 3, 1, 0);
    ASSERT_EQ(kill(head, SIGTERM), 0);
    ASSERT_EQ(started_wait(head), 0);
    deadline_ns = pl_now_ns() + 20ull * 1000000000;
    while (plasmon_get(client, x, values, sizeof(values), 100) != PLASMON_EHEADLOST) {
        ASSERT_TRUE(pl_now_ns() < deadline_ns);
        (void)poll(NULL, 0, 10); /* what it said is on its way */
    }
    ASSERT_CONTAINS(plasmon_error(client), "had no journal");
    plasmon_finish(client);
    ASSERT_EQ(kill(store, SIGTERM), 0);
    ASSERT_EQ(started_wait(store), 0);
}

TEST_MAIN()
