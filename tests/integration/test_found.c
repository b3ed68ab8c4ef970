/*
 * Values that one client publishes before they are made, and another one looks up: plasmon_state(),
 * plasmon_wait() and plasmon_on_ready() tell it what becomes of them. A worker that is stopped
 * makes nothing, for as long as is needed; its store is stopped, too, or it would replace it.
 */
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>

#include "tests/harness/ready_calls.h"
#include "tests/integration/started.h"

#define LONG_US 600000000 /* it is cancelled */
#define COUNT   16

static struct plasmon_client *writer, *reader;
static pid_t store, worker; /* of device 0 */

/* On the library's thread, which wakes who waits before. */
static void wait_called(struct ready_calls *calls)
{
    for (unsigned ms = 0; ms < CLUSTER_WAIT_MS && atomic_load(&calls->count) == 0; ms++) {
        (void)poll(NULL, 0, 1); /* nothing else tells of it */
    }
    ASSERT_EQ(calls->count, 1);
}

static void begin(void)
{
    started_begin();
    started_cluster(2);
    writer = started_join_knowing(started_address(), 2);
    reader = started_join_knowing(started_address(), 2);
    store  = cluster_find("plasmon-store", -1);
    worker = cluster_worker(writer, 0);
}

static void end(void)
{
    plasmon_finish(reader);
    plasmon_finish(writer);
}

static void go_on(void)
{
    ASSERT_EQ(kill(worker, SIGCONT), 0);
    ASSERT_EQ(kill(store, SIGCONT), 0);
}

/* A vector of twos that is not made until then. */
static void publish_late(void)
{
    struct plasmon_ref *x    = cluster_fill(writer, COUNT, 1, 0);
    struct plasmon_ref *ones = cluster_fill(writer, COUNT, 1, 0);

    cluster_expect_all(writer, x, COUNT, 1);
    cluster_expect_all(writer, ones, COUNT, 1);
    ASSERT_EQ(kill(store, SIGSTOP), 0);
    ASSERT_EQ(kill(worker, SIGSTOP), 0);
    CLUSTER_OK(cluster_axpy(writer, x, ones, 1, 0));
    CLUSTER_OK(plasmon_publish(writer, "late", x));
}

static struct plasmon_ref *look_up(const char *name)
{
    struct plasmon_ref *ref;

    CLUSTER_OK(plasmon_lookup(reader, name, &ref));
    return ref;
}

static void wait_for(struct plasmon_client *client, struct plasmon_ref *ref)
{
    CLUSTER_OK(plasmon_wait(client, &ref, 1, 1, CLUSTER_WAIT_MS, NULL, NULL));
}

TEST(what_is_made_later_is_pending_and_then_ready)
{
    struct plasmon_ref *found;
    struct ready_calls calls = {0};
    int ready                = 9;
    uint32_t count           = 9;

    begin();
    publish_late();
    found = look_up("late");
    ASSERT_STATUS(plasmon_state(reader, found), PLASMON_INPROGRESS);
    CLUSTER_OK(plasmon_on_ready(reader, found, ready_call, &calls));
    ASSERT_STATUS(plasmon_wait(reader, &found, 1, 1, 50, &ready, &count),
                  PLASMON_ETIMEDOUT);
    ASSERT_EQ(ready, 0);
    ASSERT_EQ(count, 0);
    ASSERT_EQ(calls.count, 0);
    ASSERT_STATUS(plasmon_cancel(reader, found), PLASMON_EFOREIGN);

    go_on();
    wait_for(reader, found);
    CLUSTER_OK(plasmon_state(reader, found));
    wait_called(&calls);
    ASSERT_EQ(calls.status, PLASMON_OK);
    cluster_expect_all(reader, found, COUNT, 2);
    end();
    ASSERT_EQ(calls.count, 1);
}

TEST(what_is_there_is_ready_at_once)
{
    struct plasmon_ref *x;

    begin();
    x = cluster_fill(writer, COUNT, 3, 0);
    wait_for(writer, x);
    CLUSTER_OK(plasmon_publish(writer, "made", x));
    CLUSTER_OK(plasmon_state(reader, look_up("made")));
    cluster_expect_all(reader, look_up("made"), COUNT, 3);
    end();
}

TEST(what_fails_says_so_to_who_found_it)
{
    struct plasmon_ref *x, *spin, *found;
    struct ready_calls calls = {0};

    begin();
    x = cluster_fill(writer, COUNT, 1, 0);
    cluster_spin(writer, x, LONG_US, 0, &spin);
    CLUSTER_OK(plasmon_publish(writer, "never", x));
    found = look_up("never");
    CLUSTER_OK(plasmon_on_ready(reader, found, ready_call, &calls));
    ASSERT_STATUS(plasmon_state(reader, found), PLASMON_INPROGRESS);
    CLUSTER_OK(plasmon_cancel_force(writer, spin));
    wait_for(reader, found);
    ASSERT_STATUS(plasmon_state(reader, found), PLASMON_ECANCELLED);
    ASSERT_CONTAINS(plasmon_error(reader), "what was found under 'never' failed: task");
    ASSERT_CONTAINS(plasmon_error(reader), "'spinning'");
    wait_called(&calls);
    ASSERT_EQ(calls.status, PLASMON_ECANCELLED);

    found = look_up("never"); /* and who looks when it is over */
    wait_for(reader, found);
    ASSERT_STATUS(plasmon_state(reader, found), PLASMON_ECANCELLED);
    end();
}

static struct plasmon_ref *half(struct plasmon_client *client, struct plasmon_ref *ref,
                                int64_t start)
{
    const int64_t count = COUNT / 2;
    struct plasmon_ref *part;

    CLUSTER_OK(plasmon_view(client, ref, &start, &count, NULL, &part));
    return part;
}

/* What was found has failed as one; what there is of it can be read. */
TEST(a_part_that_is_good_is_there_though_another_has_failed)
{
    struct plasmon_mapping *mapping;
    struct plasmon_ref *x, *spin, *found;
    float out[COUNT];

    begin();
    x = cluster_fill(writer, COUNT, 1, 0);
    cluster_spin(writer, half(writer, x, COUNT / 2), LONG_US, 0, &spin);
    CLUSTER_OK(plasmon_publish(writer, "half", x));
    found = look_up("half");
    ASSERT_STATUS(plasmon_state(reader, found), PLASMON_INPROGRESS);
    CLUSTER_OK(plasmon_cancel_force(writer, spin));
    wait_for(reader, found);
    ASSERT_STATUS(plasmon_state(reader, half(reader, found, 0)), PLASMON_ECANCELLED);
    cluster_expect_all(reader, half(reader, found, 0), COUNT / 2, 1);
    CLUSTER_OK(plasmon_map(reader, half(reader, found, 0), CLUSTER_WAIT_MS, &mapping));
    plasmon_unmap(mapping);
    ASSERT_STATUS(plasmon_get(reader, found, out, sizeof(out), CLUSTER_WAIT_MS),
                  PLASMON_ECANCELLED);
    ASSERT_CONTAINS(plasmon_error(reader), "what was found under 'half' failed: task");
    ASSERT_STATUS(plasmon_get(reader, found, out, sizeof(out), 0), PLASMON_ECANCELLED);
    ASSERT_STATUS(plasmon_map(reader, found, CLUSTER_WAIT_MS, &mapping),
                  PLASMON_ECANCELLED);
    end();
}

TEST(it_comes_though_its_client_has_ended)
{
    struct plasmon_ref *found;

    begin();
    publish_late();
    found = look_up("late");
    plasmon_finish(writer);
    ASSERT_STATUS(plasmon_state(reader, found), PLASMON_INPROGRESS);
    go_on();
    wait_for(reader, found);
    cluster_expect_all(reader, found, COUNT, 2);
    plasmon_finish(reader);
}

TEST(a_worker_that_dies_meanwhile_makes_it_late)
{
    struct plasmon_ref *found;

    begin();
    test_expect_log();
    publish_late();
    found = look_up("late");
    cluster_kill(worker);
    ASSERT_EQ(kill(store, SIGCONT), 0);
    wait_for(reader, found);
    CLUSTER_OK(plasmon_state(reader, found));
    cluster_expect_all(reader, found, COUNT, 2);
    end();
}

TEST(calls_that_use_it_take_over)
{
    struct plasmon_ref *found, *ones, *sum;

    begin();
    publish_late();
    found = look_up("late");
    ones  = cluster_fill(reader, COUNT, 1, 1);
    sum   = cluster_copy(reader, found, 1);
    CLUSTER_OK(cluster_axpy(reader, found, ones, 5, 1)); /* a version of its own */
    ASSERT_STATUS(plasmon_state(reader, found), PLASMON_INPROGRESS);
    ASSERT_STATUS(plasmon_state(reader, sum), PLASMON_INPROGRESS);
    go_on();
    wait_for(reader, found);
    cluster_expect_all(reader, sum, COUNT, 2);
    cluster_expect_all(reader, found, COUNT, 7);
    cluster_expect_all(reader, look_up("late"), COUNT, 2);
    end();
}

TEST_MAIN()
