/*
 * Spare workers (store/spares.c): the next one of a dead worker is the one that was started ahead,
 * and finds everything; one that cannot be used is passed over; with the store that kept them they
 * end.
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "base/fd.h"
#include "tests/integration/started.h"

#define COUNT (1 << 20)

static pid_t await_pid(size_t *io_from, const char *text)
{
    return (pid_t)strtol(started_wait_log("store.log", io_from, text), NULL, 10);
}

static void await_end(pid_t pid)
{
    for (unsigned ms = 0; ms < CLUSTER_WAIT_MS; ms += 20) {
        if (kill(pid, 0) != 0) {
            return;
        }
        (void)usleep(20000);
    }
    test_fail(__FILE__, __LINE__, "process %d goes on", (int)pid);
}

TEST(a_spare_goes_on_with_what_the_dead_worker_left)
{
    static const char spare[]  = "spare worker of device 0 started: pid ";
    static const char second[] = "worker of device 0 started: incarnation 2, pid ";
    static const char third[]  = "worker of device 0 started: incarnation 3, pid ";
    struct plasmon_client *client;
    struct plasmon_ref *made, *more;
    const char *how;
    char target[160];
    size_t from = 0;
    pid_t store, next, worker;

    test_expect_log();
    test_set_timeout(200);
    started_begin();
    (void)snprintf(target, sizeof(target), "unix:%s/h.sock", cluster_folder());
    (void)STARTED_DAEMON("head.log", "plasmon-head", "--listen", target);
    /*
     * One that was passed over ends when the worker in its place is up, as on a busy machine: that
     * is no end by itself, after which there is none for long.
     */
    ASSERT_EQ(setenv("PLASMON_BUG", "store.spare_ends_late", 1), 0);
    store = STARTED_DAEMON("store.log", "plasmon-store", "--head", target, "--gpus", "none",
                           "--cpu-devices", "1", "--device-memory", "64M", "--socket-dir",
                           cluster_folder(), "--bulk-address", "none", "--store-lease",
                           "1000", "--spare-workers", "context");
    ASSERT_EQ(unsetenv("PLASMON_BUG"), 0);
    client = started_join_knowing(target, 1);
    made   = cluster_fill(client, COUNT, 3, 0);
    cluster_expect_all(client, made, COUNT, 3);

    worker = await_pid(&from, "worker of device 0 started: incarnation 1, pid ");
    next   = await_pid(&from, spare);
    cluster_kill(worker);
    how = started_wait_log("store.log", &from, second);
    ASSERT_EQ(strtol(how, NULL, 10), next); /* it is the one */
    ASSERT_CONTAINS(how, "the spare one");
    more = cluster_copy(client, made, 0);
    cluster_expect_all(client, more, COUNT, 3);

    /* The next spare is stopped, so it is passed over and ended, and another process serves. */
    worker = next;
    next   = await_pid(&from, spare);
    ASSERT_EQ(kill(next, SIGSTOP), 0);
    while (!pl_pid_stopped(next)) { /* the signal waits for a processor */
        (void)usleep(5000);
    }
    cluster_kill(worker);
    worker = await_pid(&from, third);
    ASSERT_TRUE(worker != next);
    await_end(next);
    cluster_expect_all(client, cluster_copy(client, more, 0), COUNT, 3);
    plasmon_finish(client);

    next = await_pid(&from, spare);
    ASSERT_EQ(kill(store, SIGKILL), 0);
    ASSERT_EQ(started_wait(store), 128 + SIGKILL);
    await_end(next);
    await_end(worker); /* its lease of a second is over */
}

TEST_MAIN()
