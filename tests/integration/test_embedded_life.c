/*
 * A private cluster leaves nothing behind, however its client ends: no process two seconds later,
 * no name at any time.
 *
 * The client is a forked process, so that the test can look on from outside. It says "up" through a
 * pipe once its cluster has done some work.
 */
#include <pthread.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/integration/cluster.h"

struct life {
    pid_t client;
    int up;   /* the client writes one byte when its cluster works */
    int hold; /* the client reads from the other end until the test closes this one */
};

typedef void (*life_fn)(int up_fd, int hold_fd);

static void say_up(int up_fd)
{
    ASSERT_EQ(write(up_fd, "x", 1), 1);
}

static void wait_hold(int hold_fd)
{
    char byte;

    (void)!read(hold_fd, &byte, 1);
}

/* Fork a client in a process group of its own. */
static struct life life_start(life_fn fn)
{
    int up[2], hold[2];
    struct life life;

    cluster_tag();
    ASSERT_EQ(pipe(up), 0);
    ASSERT_EQ(pipe(hold), 0);
    life.client = fork();
    ASSERT_TRUE(life.client >= 0);
    if (life.client == 0) {
        (void)setpgid(0, 0);
        (void)close(up[0]);
        (void)close(hold[1]);
        fn(up[1], hold[0]);
        _exit(0);
    }
    (void)setpgid(life.client, life.client);
    (void)close(up[1]);
    (void)close(hold[0]);
    life.up   = up[0];
    life.hold = hold[1];
    return life;
}

static void life_wait_up(const struct life *life)
{
    char byte;

    if (read(life->up, &byte, 1) != 1) {
        test_fail(__FILE__, __LINE__, "the client ended before its cluster worked");
    }
    ASSERT_EQ(cluster_count("plasmon-store"), 1);
    ASSERT_EQ(cluster_count("plasmon-head"), 1);
    ASSERT_TRUE(cluster_count("plasmon-worker") >= 1);
}

static void life_reap(const struct life *life)
{
    int status;

    ASSERT_EQ(waitpid(life->client, &status, 0), life->client);
}

static struct plasmon_client *work(int up_fd)
{
    struct plasmon_client *client = cluster_start(2);
    struct plasmon_ref *a         = cluster_put(client, 1 << 20, 0, 0);
    struct plasmon_ref *b         = cluster_copy(client, a, 1);

    cluster_expect_ramp(client, b, 1 << 20, 0, 1);
    say_up(up_fd);
    return client;
}

static void work_and_hold(int up_fd, int hold_fd)
{
    (void)work(up_fd);
    wait_hold(hold_fd);
    _exit(0);
}

static void work_and_finish(int up_fd, int hold_fd)
{
    struct plasmon_client *client = work(up_fd);

    wait_hold(hold_fd);
    plasmon_finish(client);
}

TEST(finish_leaves_nothing)
{
    struct life life = life_start(work_and_finish);

    life_wait_up(&life);
    cluster_expect_nameless();
    (void)close(life.hold);
    life_reap(&life);
    cluster_expect_gone(CLUSTER_GONE_MS);
}

TEST(an_exit_without_finish_leaves_nothing)
{
    struct life life = life_start(work_and_hold);

    life_wait_up(&life);
    (void)close(life.hold);
    life_reap(&life);
    cluster_expect_gone(CLUSTER_GONE_MS);
}

TEST(a_killed_client_leaves_nothing)
{
    struct life life = life_start(work_and_hold);

    life_wait_up(&life);
    ASSERT_EQ(kill(life.client, SIGKILL), 0);
    cluster_expect_gone(CLUSTER_GONE_MS);
    life_reap(&life);
}

TEST(a_killed_process_group_leaves_nothing)
{
    struct life life = life_start(work_and_hold);

    life_wait_up(&life);
    ASSERT_EQ(kill(-life.client, SIGKILL), 0);
    cluster_expect_gone(CLUSTER_GONE_MS);
    life_reap(&life);
}

TEST(client_and_store_killed_together_leave_nothing)
{
    struct life life = life_start(work_and_hold);
    pid_t store;

    life_wait_up(&life);
    store = cluster_find("plasmon-store", -1);
    ASSERT_EQ(kill(store, SIGKILL), 0);
    ASSERT_EQ(kill(life.client, SIGKILL), 0);
    cluster_expect_gone(CLUSTER_GONE_MS);
    life_reap(&life);
}

TEST(client_and_store_killed_the_other_way_round_leave_nothing)
{
    struct life life = life_start(work_and_hold);
    pid_t store;

    life_wait_up(&life);
    store = cluster_find("plasmon-store", -1);
    ASSERT_EQ(kill(life.client, SIGKILL), 0);
    (void)kill(store, SIGKILL); /* it may be gone already */
    cluster_expect_gone(CLUSTER_GONE_MS);
    life_reap(&life);
}

TEST(everybody_killed_but_one_worker_leaves_nothing)
{
    struct life life = life_start(work_and_hold);
    pid_t store, head;

    life_wait_up(&life);
    store = cluster_find("plasmon-store", -1);
    head  = cluster_find("plasmon-head", -1);
    ASSERT_EQ(kill(store, SIGKILL), 0);
    (void)kill(head, SIGKILL); /* it watches the store */
    ASSERT_EQ(kill(life.client, SIGKILL), 0);
    cluster_expect_gone(CLUSTER_GONE_MS);
    life_reap(&life);
}

static void work_and_fork(int up_fd, int hold_fd)
{
    int ready[2];
    char byte;
    struct plasmon_client *client = cluster_start(1);

    ASSERT_EQ(pipe(ready), 0);
    if (fork() == 0) {
        /* The child has every descriptor of the client that is not closed on exec, and lives on. */
        (void)!write(ready[1], "x", 1);
        wait_hold(hold_fd);
        _exit(0);
    }
    ASSERT_EQ(read(ready[0], &byte, 1), 1);
    cluster_expect_all(client, cluster_fill(client, 10, 1, PLASMON_ANYWHERE), 10, 1);
    say_up(up_fd);
    wait_hold(hold_fd);
    _exit(0);
}

TEST(a_forked_child_that_lives_on_does_not_keep_the_cluster)
{
    struct life life = life_start(work_and_fork);

    life_wait_up(&life);
    ASSERT_EQ(kill(life.client, SIGKILL), 0); /* not the group */
    cluster_expect_gone(CLUSTER_GONE_MS);
    ASSERT_EQ(kill(-life.client, 0), 0); /* the child is there still */
    (void)close(life.hold);
    life_reap(&life);
}

static void *init_in_thread(void *user)
{
    *(struct plasmon_client **)user = cluster_start(1);
    return NULL;
}

static void init_in_thread_that_ends(int up_fd, int hold_fd)
{
    struct plasmon_client *client = NULL;
    pthread_t thread;

    ASSERT_EQ(pthread_create(&thread, NULL, init_in_thread, &client), 0);
    ASSERT_EQ(pthread_join(thread, NULL), 0);
    say_up(up_fd);
    wait_hold(hold_fd);
    for (int i = 0; i < 10; i++) {
        cluster_expect_all(client, cluster_fill(client, 1000, i, PLASMON_ANYWHERE), 1000,
                           (float)i);
    }
    plasmon_finish(client);
}

TEST(a_cluster_outlives_the_thread_that_started_it)
{
    struct life life = life_start(init_in_thread_that_ends);
    int status;

    life_wait_up(&life);
    ASSERT_EQ(poll(NULL, 0, 300), 0); /* a cluster tied to the thread would be ending now */
    ASSERT_EQ(cluster_count("plasmon-store"), 1);
    (void)close(life.hold);
    ASSERT_EQ(waitpid(life.client, &status, 0), life.client);
    ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    cluster_expect_gone(CLUSTER_GONE_MS);
}

static void work_and_go_on(int up_fd, int hold_fd)
{
    struct plasmon_client *client = cluster_start(2);
    struct plasmon_ref *a         = cluster_put(client, 1 << 20, 0, 0);
    struct plasmon_ref *b         = cluster_copy(client, a, 1);

    cluster_expect_ramp(client, b, 1 << 20, 0, 1);
    say_up(up_fd);
    wait_hold(hold_fd);
    cluster_expect_ramp(client, a, 1 << 20, 0, 1);
    b = cluster_copy(client, b, 0);
    cluster_expect_ramp(client, b, 1 << 20, 0, 1);
    plasmon_finish(client);
}

/* At a breakpoint, say. What is silent for so long loses its connection, and has a lease from then on. */
TEST(a_client_that_is_stopped_for_half_a_minute_goes_on_with_what_it_had)
{
    struct life life = life_start(work_and_go_on);
    int status;

    test_set_timeout(120);
    test_expect_log(); /* that it is connected again */
    life_wait_up(&life);
    ASSERT_EQ(kill(life.client, SIGSTOP), 0);
    ASSERT_EQ(poll(NULL, 0, 30000), 0);
    ASSERT_EQ(kill(life.client, SIGCONT), 0);
    (void)close(life.hold);
    ASSERT_EQ(waitpid(life.client, &status, 0), life.client);
    ASSERT_EQ(status, 0);
    cluster_expect_gone(CLUSTER_GONE_MS);
}

static void work_with_busy_device(int up_fd, int hold_fd)
{
    struct plasmon_client *client = cluster_start(1);
    struct plasmon_ref *x         = cluster_fill(client, 10, 1, PLASMON_ANYWHERE);

    cluster_expect_all(client, x, 10, 1);
    cluster_spin(client, x, 30000000, PLASMON_ANYWHERE, NULL);
    cluster_spin(client, x, 30000000, PLASMON_ANYWHERE, NULL);
    CLUSTER_OK(plasmon_flush(client));
    ASSERT_STATUS(plasmon_wait(client, &x, 1, 1, 100, NULL, NULL), PLASMON_ETIMEDOUT);
    say_up(up_fd);
    wait_hold(hold_fd);
    plasmon_finish(client);
}

TEST(a_killed_client_does_not_leave_its_running_tasks)
{
    struct life life = life_start(work_with_busy_device);

    life_wait_up(&life);
    ASSERT_EQ(kill(life.client, SIGKILL), 0);
    cluster_expect_gone(CLUSTER_GONE_MS);
    life_reap(&life);
}

TEST(finish_waits_at_most_a_second_for_running_tasks)
{
    struct life life = life_start(work_with_busy_device);

    life_wait_up(&life);
    (void)close(life.hold);
    cluster_expect_gone(CLUSTER_GONE_MS + 1000);
    life_reap(&life);
}

static void only_start(int up_fd, int hold_fd)
{
    struct plasmon_options options = PLASMON_OPTIONS_INIT;
    struct plasmon_client *client;

    say_up(up_fd);
    options.gpus        = "none";
    options.cpu_devices = 2;
    (void)plasmon_init(&options, &client);
    wait_hold(hold_fd);
    _exit(0);
}

/* A client is killed at any moment of its start. */
static void kill_after(int ms)
{
    struct life life = life_start(only_start);
    char byte;

    ASSERT_EQ(read(life.up, &byte, 1), 1);
    ASSERT_EQ(poll(NULL, 0, ms), 0);
    ASSERT_EQ(kill(life.client, SIGKILL), 0);
    life_reap(&life);
    cluster_expect_gone(CLUSTER_GONE_MS);
    (void)close(life.up);
    (void)close(life.hold);
}

TEST(a_client_killed_while_it_starts_leaves_nothing)
{
    uint64_t state = test_seed();

    for (int i = 0; i < 10; i++) {
        kill_after((int)(test_random(&state) % 120));
    }
}

static void lose_a_daemon(int up_fd, int hold_fd, const char *says)
{
    struct plasmon_client *client = work(up_fd);
    struct plasmon_ref *ref;
    plasmon_status_t status;
    float out[10];

    wait_hold(hold_fd);
    status = cluster_try_fill(client, 10, 1, PLASMON_ANYWHERE, &ref);
    if (status == PLASMON_OK) { /* it was accepted before the loss was known */
        status = plasmon_get(client, ref, out, sizeof(out), CLUSTER_WAIT_MS);
    }
    ASSERT_STATUS(status, PLASMON_ECLOSED);
    ASSERT_CONTAINS(plasmon_error(client), says);
    plasmon_finish(client);
}

static void lose_the_store(int up_fd, int hold_fd)
{
    lose_a_daemon(up_fd, hold_fd, "");
}

static void lose_the_head(int up_fd, int hold_fd)
{
    lose_a_daemon(up_fd, hold_fd, "the head is gone (signal 9)");
}

TEST(a_killed_store_closes_the_cluster_for_its_client)
{
    struct life life = life_start(work_and_hold);
    pid_t store;

    life_wait_up(&life);
    store = cluster_find("plasmon-store", -1);
    cluster_kill(store);
    cluster_expect_gone(CLUSTER_GONE_MS);
    (void)close(life.hold);
    life_reap(&life);
}

TEST(calls_after_the_store_was_killed_answer_closed)
{
    struct life life = life_start(lose_the_store);
    int status;

    life_wait_up(&life);
    cluster_kill(cluster_find("plasmon-store", -1));
    (void)close(life.hold);
    ASSERT_EQ(waitpid(life.client, &status, 0), life.client);
    ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    cluster_expect_gone(CLUSTER_GONE_MS);
}

TEST(calls_after_the_head_was_killed_answer_closed_and_say_why)
{
    struct life life = life_start(lose_the_head);
    int status;

    life_wait_up(&life);
    cluster_kill(cluster_find("plasmon-head", -1));
    (void)close(life.hold);
    ASSERT_EQ(waitpid(life.client, &status, 0), life.client);
    ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    cluster_expect_gone(CLUSTER_GONE_MS);
}

TEST_MAIN()
