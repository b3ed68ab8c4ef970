/*
 * Tasks that must not go on: over their time limit, cancelled by force, or killing their worker.
 * They fail by name; everything else on the device runs, and what was sealed keeps its bytes.
 */
#include <signal.h>
#include <stdlib.h>

#include "tests/integration/cluster.h"

#define COUNT   (1 << 16)
#define FOREVER 3600000000ll /* an hour of spinning: never, for a test */

/* Spins on a device with a limit; x is INOUT. */
static struct plasmon_ref *spin(struct plasmon_client *client, struct plasmon_ref *x,
                                int64_t us, uint32_t limit_ms, int retries, int device)
{
    struct plasmon_arg arg   = {.mode = PLASMON_INOUT, .ref = x};
    plasmon_scalar_t scalar  = {.i = us};
    struct plasmon_call call = PLASMON_CALL_INIT;
    struct plasmon_ref *task;

    call.function      = "spin";
    call.args          = &arg;
    call.arg_count     = 1;
    call.scalars       = &scalar;
    call.scalar_count  = 1;
    call.device        = device;
    call.label         = "endless";
    call.retries       = retries;
    call.time_limit_ms = limit_ms;
    CLUSTER_OK(plasmon_submit(client, &call, NULL, &task));
    return task;
}

static void expect_ends(struct plasmon_client *client, struct plasmon_ref *ref,
                        plasmon_status_t status)
{
    CLUSTER_OK(plasmon_wait(client, &ref, 1, 1, CLUSTER_WAIT_MS, NULL, NULL));
    ASSERT_STATUS(plasmon_state(client, ref), status);
}

TEST(a_task_over_its_limit_ends_and_nothing_else_does)
{
    struct plasmon_client *client = cluster_start(2);
    struct plasmon_ref *kept      = cluster_put(client, COUNT, 5, 0);
    struct plasmon_ref *x         = cluster_put(client, COUNT, 0, 0);
    struct plasmon_ref *other     = cluster_fill(client, COUNT, 1, 0);
    struct plasmon_ref *neighbour = cluster_fill(client, COUNT, 2, 1);
    struct plasmon_ref *task, *after;
    pid_t old, old_neighbour;

    CLUSTER_OK(plasmon_wait(client, &other, 1, 1, CLUSTER_WAIT_MS, NULL, NULL));
    old           = cluster_worker(client, 0);
    old_neighbour = cluster_worker(client, 1);
    task          = spin(client, x, FOREVER, 300, -1, 0);
    after         = cluster_copy(client, x, 0); /* needs what it makes */
    for (int i = 0; i < 40; i++) {              /* in place, beside it: each exactly once */
        CLUSTER_OK(cluster_axpy(client, other, kept, 1, 0));
        CLUSTER_OK(cluster_axpy(client, neighbour, kept, 1, 1));
    }
    expect_ends(client, task, PLASMON_ETIMELIMIT);
    ASSERT_CONTAINS(plasmon_error(client), "endless");
    ASSERT_CONTAINS(plasmon_error(client), "spin");
    ASSERT_CONTAINS(plasmon_error(client), "300 ms");
    ASSERT_CONTAINS(plasmon_error(client), "device 0");
    expect_ends(client, after, PLASMON_EDEPENDENCY);
    ASSERT_CONTAINS(plasmon_error(client), "300 ms");

    cluster_expect_ramp(client, other, COUNT, 1 + 40 * 5, 40);
    cluster_expect_ramp(client, neighbour, COUNT, 2 + 40 * 5, 40);
    cluster_expect_ramp(client, kept, COUNT, 5, 1);
    ASSERT_TRUE(cluster_worker(client, 0) != old);
    ASSERT_EQ(cluster_worker(client, 1), old_neighbour);
    plasmon_finish(client);
    cluster_expect_gone(CLUSTER_GONE_MS);
}

/* On one stream of the device all of this waits behind the endless task, and must run once, after its end. */
TEST(what_waits_behind_it_runs_even_in_place)
{
    enum { STEPS = 100 };
    struct plasmon_client *client = cluster_start(1);
    struct plasmon_ref *one       = cluster_put(client, COUNT, 0, 0);
    struct plasmon_ref *x         = cluster_put(client, COUNT, 0, 0);
    struct plasmon_ref *y[4], *task;

    for (int i = 0; i < 4; i++) {
        y[i] = cluster_fill(client, COUNT, i, 0);
    }
    CLUSTER_OK(plasmon_wait(client, y, 4, 4, CLUSTER_WAIT_MS, NULL, NULL));
    task = spin(client, x, FOREVER, 200, -1, 0);
    for (int step = 0; step < STEPS; step++) {
        for (int i = 0; i < 4; i++) {
            CLUSTER_OK(cluster_axpy(client, y[i], one, 1, 0));
        }
    }
    expect_ends(client, task, PLASMON_ETIMELIMIT);
    for (int i = 0; i < 4; i++) {
        cluster_expect_ramp(client, y[i], COUNT, (float)i, STEPS);
    }
    plasmon_finish(client);
}

/*
 * The clock runs while a task runs, not while it waits: two of 0.6 s with a limit of a second, one
 * after the other.
 */
TEST(waiting_for_its_turn_does_not_count)
{
    struct plasmon_client *client = cluster_start(1);
    struct plasmon_ref *x         = cluster_put(client, 16, 0, 0);
    struct plasmon_ref *tasks[4];

    for (int i = 0; i < 4; i++) {
        tasks[i] = spin(client, x, 600000, 5000, -1, 0);
    }
    /* begins 2.4 s after it was enqueued */
    tasks[0] = spin(client, x, 600000, 2000, -1, 0);
    CLUSTER_OK(plasmon_wait(client, tasks, 4, 4, CLUSTER_WAIT_MS, NULL, NULL));
    for (int i = 0; i < 4; i++) {
        CLUSTER_OK(plasmon_state(client, tasks[i]));
    }
    plasmon_finish(client);
}

TEST(many_limits_in_a_minute_do_not_quarantine_the_device)
{
    struct plasmon_client *client = cluster_start(1);
    struct plasmon_ref *kept      = cluster_put(client, COUNT, 3, 0);

    for (int i = 0; i < 14; i++) {
        struct plasmon_ref *x = cluster_fill(client, 16, 0, 0);

        expect_ends(client, spin(client, x, FOREVER, 20, -1, 0), PLASMON_ETIMELIMIT);
        CLUSTER_OK(plasmon_release(client, x));
    }
    cluster_expect_ramp(client, kept, COUNT, 3, 1);
    plasmon_finish(client);
}

TEST(a_running_task_is_ended_by_force)
{
    struct plasmon_client *client = cluster_start(1);
    struct plasmon_ref *x         = cluster_put(client, COUNT, 0, 0);
    struct plasmon_ref *y         = cluster_fill(client, COUNT, 1, 0);
    struct plasmon_ref *task;

    CLUSTER_OK(plasmon_wait(client, &y, 1, 1, CLUSTER_WAIT_MS, NULL, NULL));
    task = spin(client, x, FOREVER, 0, -1, 0);
    ASSERT_STATUS(plasmon_wait(client, &task, 1, 1, 300, NULL, NULL), PLASMON_ETIMEDOUT);
    CLUSTER_OK(plasmon_cancel(client, task)); /* asks; it runs all the same */
    ASSERT_STATUS(plasmon_wait(client, &task, 1, 1, 300, NULL, NULL), PLASMON_ETIMEDOUT);
    CLUSTER_OK(plasmon_cancel_force(client, task));
    expect_ends(client, task, PLASMON_ECANCELLED);
    ASSERT_CONTAINS(plasmon_error(client), "by force");
    cluster_expect_all(client, y, COUNT, 1);
    cluster_expect_all(client, cluster_fill(client, COUNT, 4, 0), COUNT, 4);
    plasmon_finish(client);
}

TEST(thousands_of_queued_tasks_are_cancelled_in_one_message)
{
    enum { TASKS = 5000 };
    struct plasmon_client *client = cluster_start(1);
    struct plasmon_ref *x         = cluster_put(client, 16, 0, 0);
    struct plasmon_ref *first     = spin(client, x, 1000000, 0, -1, 0);
    static struct plasmon_ref *tasks[TASKS];
    struct plasmon_arg arg   = {.mode = PLASMON_INOUT, .ref = x};
    plasmon_scalar_t scalar  = {.i = 100000}; /* all of them: minutes */
    struct plasmon_call call = PLASMON_CALL_INIT;
    int cancelled            = 0;

    call.function     = "spin";
    call.args         = &arg;
    call.arg_count    = 1;
    call.scalars      = &scalar;
    call.scalar_count = 1;
    for (int i = 0; i < TASKS; i++) {
        CLUSTER_OK(plasmon_submit(client, &call, NULL, &tasks[i]));
    }
    CLUSTER_OK(plasmon_cancel_many(client, tasks + 1, TASKS - 1));
    /*
     * Those on the device run, a few hundred at most. The others fail at once, not when it would be
     * their turn.
     */
    CLUSTER_OK(plasmon_wait(client, &tasks[TASKS - 1], 1, 1, CLUSTER_WAIT_MS, NULL, NULL));
    for (int i = 1; i < TASKS; i++) {
        cancelled += plasmon_state(client, tasks[i]) < 0;
    }
    ASSERT_TRUE(cancelled > TASKS - 1000);
    ASSERT_TRUE(plasmon_state(client, tasks[TASKS - 1]) < 0);
    CLUSTER_OK(plasmon_release(client, first));
    plasmon_finish(client);
}

/* Killed twice while it ran; the worker's other work was not blamed, and is done. */
TEST(a_task_that_kills_its_worker_is_blamed_and_the_others_are_not)
{
    struct plasmon_client *client = cluster_start(1);
    struct plasmon_ref *x         = cluster_put(client, COUNT, 0, 0);
    struct plasmon_ref *others[20], *task;

    task = spin(client, x, FOREVER, 0, 0, 0); /* no retries */
    for (int i = 0; i < 20; i++) {            /* behind and beside it */
        struct plasmon_arg args[] = {{.mode = PLASMON_OUT}, {.mode = PLASMON_IN, .ref = x}};
        plasmon_scalar_t scalar   = {.f = i};
        struct plasmon_shape shape = cluster_vector(PLASMON_F32, COUNT);
        struct plasmon_call call   = PLASMON_CALL_INIT;

        args[0].shape     = &shape;
        call.function     = "fill";
        call.args         = args;
        call.arg_count    = 1;
        call.scalars      = &scalar;
        call.scalar_count = 1;
        call.retries      = 0;
        CLUSTER_OK(plasmon_submit(client, &call, &others[i], NULL));
    }
    for (int death = 0; death < 2; death++) {
        ASSERT_STATUS(plasmon_wait(client, &task, 1, 1, 300, NULL, NULL),
                      PLASMON_ETIMEDOUT);
        cluster_kill(cluster_worker(client, 0));
        if (plasmon_wait(client, &task, 1, 1, 500, NULL, NULL) == PLASMON_OK) {
            break; /* the first death could be only its doing */
        }
    }
    expect_ends(client, task, PLASMON_EWORKER);
    ASSERT_CONTAINS(plasmon_error(client), "endless");
    for (int i = 0; i < 20; i++) {
        cluster_expect_all(client, others[i], COUNT, (float)i);
    }
    plasmon_finish(client);
}

TEST(a_stopped_worker_is_replaced_and_nothing_is_lost)
{
    struct plasmon_client *client = cluster_start(1);
    struct plasmon_ref *x         = cluster_put(client, COUNT, 1, 0);
    struct plasmon_ref *y         = cluster_fill(client, COUNT, 1, 0);
    pid_t old;

    CLUSTER_OK(plasmon_wait(client, &y, 1, 1, CLUSTER_WAIT_MS, NULL, NULL));
    old = cluster_worker(client, 0);
    ASSERT_EQ(kill(old, SIGSTOP), 0);
    for (int i = 0; i < 10; i++) {
        cluster_expect_ramp(client, cluster_copy(client, x, 0), COUNT, 1, 1);
    }
    cluster_expect_all(client, y, COUNT, 1);
    ASSERT_TRUE(cluster_worker(client, 0) != old);
    plasmon_finish(client);
}

TEST_MAIN()
