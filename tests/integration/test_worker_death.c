/*
 * Memory outlives the worker that made it: workers are killed with SIGKILL, sealed objects keep
 * their bytes, tasks that ran run again, and only what a task was overwriting in place is lost, by
 * name.
 */
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "base/clock.h"
#include "tests/integration/cluster.h"

#define COUNT (1 << 20) /* 4 MiB of floats */

/* Kill the worker of a device, and wait for the one that takes its place. */
static void replace_worker(struct plasmon_client *client, int device)
{
    pid_t old = cluster_worker(client, device);

    cluster_kill(old);
    ASSERT_TRUE(cluster_worker(client, device) != old);
}

/* Until the task is done or (what is asked for) surely running: it spins much longer than this. */
static void expect_running(struct plasmon_client *client, struct plasmon_ref *task)
{
    ASSERT_STATUS(plasmon_wait(client, &task, 1, 1, 200, NULL, NULL), PLASMON_ETIMEDOUT);
}

/* c = a b, of ones and `value`, on a device. */
static struct plasmon_ref *multiply(struct plasmon_client *client, int64_t n, double value,
                                    int device)
{
    struct plasmon_shape shape    = {.dtype = PLASMON_F32, .ndim = 2, .dim = {n, n}};
    struct plasmon_arg out        = {.mode = PLASMON_OUT, .shape = &shape};
    struct plasmon_ref *inputs[2] = {NULL, NULL}, *product;
    struct plasmon_call call      = PLASMON_CALL_INIT;

    for (int i = 0; i < 2; i++) {
        plasmon_scalar_t scalar = {.f = i == 0 ? 1 : value};

        call.function     = "fill";
        call.args         = &out;
        call.arg_count    = 1;
        call.scalars      = &scalar;
        call.scalar_count = 1;
        call.device       = device;
        CLUSTER_OK(plasmon_submit(client, &call, &inputs[i], NULL));
    }
    {
        struct plasmon_arg args[]  = {{.mode = PLASMON_OUT},
                                      {.mode = PLASMON_IN, .ref = inputs[0]},
                                      {.mode = PLASMON_IN, .ref = inputs[1]}};
        plasmon_scalar_t scalars[] = {{.f = 1}, {.i = 0}, {.i = 0}};

        call.function     = "gemm";
        call.args         = args;
        call.arg_count    = 3;
        call.scalars      = scalars;
        call.scalar_count = 3;
        CLUSTER_OK(plasmon_submit(client, &call, &product, NULL));
    }
    /* it cannot be computed again from refs that we hold */
    CLUSTER_OK(plasmon_release(client, inputs[0]));
    CLUSTER_OK(plasmon_release(client, inputs[1]));
    return product;
}

TEST(sealed_objects_survive_their_workers_death_five_times)
{
    struct plasmon_client *client = cluster_start(2);
    struct plasmon_ref *put       = cluster_put(client, COUNT, 0, 0);
    struct plasmon_ref *filled    = cluster_fill(client, COUNT, 7, 0);
    struct plasmon_ref *product   = multiply(client, 128, 3, 0);
    struct plasmon_ref *small     = cluster_put(client, 3, 100, 0);
    struct plasmon_ref *elsewhere = cluster_put(client, COUNT, 5, 1);
    struct plasmon_ref *shared    = cluster_put(client, COUNT, 9, 0);
    /* leaves a replica of `shared` on device 1 */
    struct plasmon_ref *copied = cluster_copy(client, shared, 1);
    struct plasmon_ref *view;
    int64_t start = 10, count = 1000, step = 7;
    struct plasmon_ref *all[7];

    CLUSTER_OK(plasmon_view(client, put, &start, &count, &step, &view));
    memcpy(all,
           (struct plasmon_ref *[]){put, filled, product, small, elsewhere, shared, copied},
           sizeof(all));
    CLUSTER_OK(plasmon_wait(client, all, 7, 7, CLUSTER_WAIT_MS, NULL, NULL));

    for (int round = 0; round < 5; round++) {
        replace_worker(client, 0);
        cluster_expect_ramp(client, put, COUNT, 0, 1);
        cluster_expect_ramp(client, view, count, 10, 7);
        cluster_expect_all(client, filled, COUNT, 7);
        cluster_expect_all(client, product, 128 * 128, 128 * 3);
        cluster_expect_ramp(client, small, 3, 100, 1);
        cluster_expect_ramp(client, elsewhere, COUNT, 5, 1);
        cluster_expect_ramp(client, shared, COUNT, 9, 1);
        cluster_expect_ramp(client, copied, COUNT, 9, 1);
    }
    plasmon_finish(client);
    cluster_expect_gone(CLUSTER_GONE_MS);
}

TEST(the_new_worker_computes_with_the_old_ones_objects)
{
    struct plasmon_client *client = cluster_start(2);
    struct plasmon_ref *x         = cluster_put(client, COUNT, 0, 0);
    struct plasmon_ref *y         = cluster_fill(client, COUNT, 1, 0);

    CLUSTER_OK(plasmon_wait(client, &y, 1, 1, CLUSTER_WAIT_MS, NULL, NULL));
    for (int round = 0; round < 5; round++) {
        replace_worker(client, round % 2);
        CLUSTER_OK(cluster_axpy(client, y, x, 1, 0));
        cluster_expect_ramp(client, y, COUNT, 1, (float)round + 1);
        cluster_expect_ramp(client, cluster_copy(client, x, 1), COUNT, 0,
                            1); /* across, too */
    }
    plasmon_finish(client);
}

TEST(a_task_that_ran_runs_again)
{
    struct plasmon_client *client = cluster_start(2);
    /* may not be overwritten in place */
    struct plasmon_ref *x = cluster_put(client, COUNT, 0, 0);
    struct plasmon_ref *task, *after;

    cluster_spin(client, x, 1000000, 0, &task);
    after = cluster_copy(client, x, 0);
    expect_running(client, task);
    replace_worker(client, 0);
    cluster_expect_ramp(client, x, COUNT, 0, 1);
    cluster_expect_ramp(client, after, COUNT, 0, 1);
    CLUSTER_OK(plasmon_state(client, task));
    plasmon_finish(client);
}

/*
 * It has overwritten its input when it dies with its worker: the head makes the input again, and
 * runs it and what reads it again.
 */
TEST(what_was_overwritten_in_place_is_made_again)
{
    /* the head inherits it */
    bool on                       = setenv("PLASMON_LINEAGE_BYTES", "67108864", 1) == 0;
    struct plasmon_client *client = cluster_start(2);
    struct plasmon_ref *put       = cluster_put(client, COUNT, 1, 0);
    struct plasmon_ref *x         = cluster_copy(client, put, 0);
    struct plasmon_ref *task, *after;

    ASSERT_TRUE(on);
    CLUSTER_OK(cluster_axpy(client, x, put, 1, 0)); /* in place: the copy is overwritten */
    CLUSTER_OK(plasmon_wait(client, &x, 1, 1, CLUSTER_WAIT_MS, NULL, NULL));
    cluster_spin(client, x, 1000000, 0, &task);
    after = cluster_copy(client, x, 1);
    expect_running(client, task);
    replace_worker(client, 0);
    cluster_expect_ramp(client, after, COUNT, 2, 2);
    cluster_expect_ramp(client, x, COUNT, 2, 2);
    CLUSTER_OK(plasmon_state(client, task));
    cluster_expect_ramp(client, put, COUNT, 1, 1);
    plasmon_finish(client);
}

TEST(without_lineage_what_was_overwritten_in_place_is_lost_by_name_and_nothing_else)
{
    bool off = setenv("PLASMON_LINEAGE_BYTES", "0", 1) == 0; /* the head inherits it */
    struct plasmon_client *client = cluster_start(2);
    struct plasmon_ref *put       = cluster_put(client, COUNT, 1, 0);
    struct plasmon_ref *x         = cluster_copy(client, put, 0);
    struct plasmon_ref *other     = cluster_fill(client, COUNT, 4, 0);
    struct plasmon_ref *task, *after;
    float out[4];
    plasmon_status_t status;

    ASSERT_TRUE(off);
    CLUSTER_OK(plasmon_wait(client, (struct plasmon_ref *[]){x, other}, 2, 2,
                            CLUSTER_WAIT_MS, NULL, NULL));
    cluster_spin(client, x, 2000000, 0, &task);
    after = cluster_copy(client, x, 1);
    expect_running(client, task);
    cluster_kill(cluster_worker(client, 0));

    status = plasmon_wait(client, (struct plasmon_ref *[]){x, after}, 2, 2, CLUSTER_WAIT_MS,
                          NULL, NULL);
    ASSERT_STATUS(status, PLASMON_OK);
    ASSERT_STATUS(plasmon_state(client, x), PLASMON_ECONSUMED);
    ASSERT_CONTAINS(plasmon_error(client), "spin");
    ASSERT_CONTAINS(plasmon_error(client), "spinning"); /* its label */
    ASSERT_CONTAINS(plasmon_error(client), "killed by signal 9");
    ASSERT_STATUS(plasmon_get(client, x, out, COUNT * sizeof(float), 1000),
                  PLASMON_ECONSUMED);
    ASSERT_TRUE(plasmon_state(client, after) < 0);
    ASSERT_CONTAINS(plasmon_error(client), "spinning");
    cluster_expect_all(client, other, COUNT, 4);
    cluster_expect_ramp(client, put, COUNT, 1, 1);
    CLUSTER_OK(cluster_axpy(client, other, put, 1, 0)); /* in place, on the new worker */
    cluster_expect_ramp(client, other, COUNT, 5, 1);
    plasmon_finish(client);
}

/*
 * A chain of updates in place on one ref. The first link has ended; the second is on the device,
 * and waits there for what the other device makes, with the others behind it. They had not begun,
 * so the death of their worker costs nothing.
 */
TEST(updates_in_place_that_had_not_begun_survive_their_workers_death)
{
    enum { LINKS = 5, DEATHS = 2 };
    struct plasmon_client *client = cluster_start(2);
    struct plasmon_ref *ones      = cluster_fill(client, COUNT, 1, 0);
    struct plasmon_ref *x         = cluster_fill(client, COUNT, 1, 0);
    struct plasmon_ref *late      = cluster_fill(client, COUNT, 100, 1);
    struct plasmon_ref *gate;

    CLUSTER_OK(cluster_axpy(client, x, ones, 1, 0));
    CLUSTER_OK(plasmon_wait(client, (struct plasmon_ref *[]){x, late}, 2, 2,
                            CLUSTER_WAIT_MS, NULL, NULL));
    cluster_spin(client, late, 5000000, 1, &gate);
    expect_running(client, gate);
    CLUSTER_OK(cluster_axpy(client, x, late, 1, 0));
    for (int link = 2; link < LINKS; link++) {
        CLUSTER_OK(cluster_axpy(client, x, ones, 1, 0));
    }
    CLUSTER_OK(plasmon_flush(client));
    for (int death = 0; death < DEATHS; death++) {
        replace_worker(client, 0);
    }
    if (plasmon_state(client, gate) == PLASMON_INPROGRESS) {
        cluster_expect_all(client, x, COUNT, LINKS + 100);
        cluster_expect_all(client, ones, COUNT, 1);
    } else {
        printf("# the gate opened before the last worker died: on a machine as slow as "
               "this nothing can be told\n");
    }
    plasmon_finish(client);
}

TEST(a_task_gives_up_after_its_retries)
{
    struct plasmon_client *client = cluster_start(1);
    struct plasmon_ref *x         = cluster_put(client, 10, 0, 0);
    struct plasmon_arg arg        = {.mode = PLASMON_INOUT, .ref = x};
    plasmon_scalar_t scalar       = {.i = 2000000};
    struct plasmon_call call      = PLASMON_CALL_INIT;
    struct plasmon_ref *task;

    call.function     = "spin";
    call.args         = &arg;
    call.arg_count    = 1;
    call.scalars      = &scalar;
    call.scalar_count = 1;
    call.retries      = 0;
    call.label        = "only once";
    CLUSTER_OK(plasmon_submit(client, &call, NULL, &task));
    expect_running(client, task);
    cluster_kill(cluster_worker(client, 0));
    CLUSTER_OK(plasmon_wait(client, &task, 1, 1, CLUSTER_WAIT_MS, NULL, NULL));
    ASSERT_STATUS(plasmon_state(client, task), PLASMON_EWORKER);
    ASSERT_CONTAINS(plasmon_error(client), "only once");
    cluster_expect_all(client, cluster_fill(client, 10, 2, 0), 10, 2);
    plasmon_finish(client);
}

/* A graph over two devices goes on while their workers die again and again. */
TEST(a_chain_comes_out_right_while_workers_die)
{
    enum { ROUNDS = 5, STEPS = 40, N = 4096 };
    struct plasmon_client *client = cluster_start(2);
    struct plasmon_ref *one       = cluster_put(client, N, 0, 0);
    struct plasmon_ref *x         = cluster_put(client, N, 1, 0);
    struct plasmon_call call      = PLASMON_CALL_INIT;

    call.function  = "add";
    call.arg_count = 3;
    call.retries   = 20;
    for (int round = 0; round < ROUNDS; round++) {
        pid_t victim = cluster_worker(client, round % 2);

        for (int step = 0; step < STEPS; step++) {
            struct plasmon_arg args[] = {{.mode = PLASMON_OUT},
                                         {.mode = PLASMON_IN, .ref = x},
                                         {.mode = PLASMON_IN, .ref = one}};
            struct plasmon_ref *next;

            call.args   = args;
            call.device = step % 2;
            CLUSTER_OK(plasmon_submit(client, &call, &next, NULL));
            CLUSTER_OK(plasmon_release(client, x)); /* only tasks hold it now */
            x = next;
            if (step == STEPS / 2) {
                CLUSTER_OK(plasmon_flush(client));
                cluster_kill(victim);
            }
        }
    }
    cluster_expect_ramp(client, x, N, 1, 1 + ROUNDS * STEPS);
    plasmon_finish(client);
    cluster_expect_gone(CLUSTER_GONE_MS);
}

TEST(a_worker_killed_while_it_recovers_is_replaced_again)
{
    struct plasmon_client *client = cluster_start(1);
    struct plasmon_ref *x         = cluster_put(client, COUNT, 0, 0);

    for (int round = 0; round < 5; round++) {
        cluster_kill(cluster_worker(client, 0)); /* the next one as soon as it is there */
    }
    cluster_expect_ramp(client, x, COUNT, 0, 1);
    cluster_expect_ramp(client, cluster_copy(client, x, 0), COUNT, 0, 1);
    plasmon_finish(client);
    cluster_expect_gone(CLUSTER_GONE_MS);
}

TEST(a_mapping_outlives_the_worker)
{
    struct plasmon_client *client = cluster_start(1);
    struct plasmon_ref *x         = cluster_put(client, COUNT, 0, 0);
    struct plasmon_mapping *mapping;
    const float *data;

    CLUSTER_OK(plasmon_map(client, x, CLUSTER_WAIT_MS, &mapping));
    data = plasmon_mapping_data(mapping);
    CLUSTER_OK(plasmon_release(client, x)); /* only the mapping holds it */
    replace_worker(client, 0);
    for (int i = 0; i < 4; i++) { /* would be put where the mapping is, if that were free */
        cluster_expect_all(client, cluster_fill(client, COUNT, -1, 0), COUNT, -1);
    }
    for (int i = 0; i < COUNT; i++) {
        ASSERT_TRUE(data[i] == (float)i);
    }
    plasmon_unmap(mapping);
    plasmon_finish(client);
}

/* ----------------------------------------------------------------------------- failures */

/* A task that makes `count` floats, and fails while it runs. */
static struct plasmon_ref *fail(struct plasmon_client *client, int64_t count)
{
    struct plasmon_shape shape = cluster_vector(PLASMON_F32, count);
    struct plasmon_arg arg     = {.mode = PLASMON_OUT, .shape = &shape};
    plasmon_scalar_t scalar    = {.i = 7};
    struct plasmon_call call   = PLASMON_CALL_INIT;
    struct plasmon_ref *made;

    call.function     = "test_fail";
    call.args         = &arg;
    call.arg_count    = 1;
    call.scalars      = &scalar;
    call.scalar_count = 1;
    call.device       = 0;
    CLUSTER_OK(plasmon_submit(client, &call, &made, NULL));
    return made;
}

static unsigned restarts_of_device_0(struct plasmon_client *client)
{
    const char *found;
    unsigned restarts;
    char *text;

    CLUSTER_OK(plasmon_status_json(client, &text));
    found = strstr(text, "\"restarts\":");
    ASSERT_NOT_NULL(found);
    restarts = (unsigned)atoi(found + strlen("\"restarts\":"));
    free(text);
    return restarts;
}

/* Its word said that the launch was over; its worker died before it had told anybody that it had failed. */
TEST(a_failure_that_its_worker_did_not_live_to_tell_is_a_failure)
{
    struct plasmon_client *client;
    float bytes[100];

    /* A worker dies of the second failure that it takes from its device. */
    ASSERT_EQ(setenv("PLASMON_FAULT", "worker.die_of_failure:1", 1), 0);
    test_expect_log();
    client = cluster_start(1);
    for (int i = 0; i < 100 && restarts_of_device_0(client) == 0; i++) {
        struct plasmon_ref *failed = fail(client, 100);
        plasmon_status_t status =
            plasmon_get(client, failed, bytes, sizeof(bytes), CLUSTER_WAIT_MS);

        if (status != PLASMON_EFUNCTION) {
            /* of the one whose reason died with the worker */
            ASSERT_STATUS(status, PLASMON_EWORKER);
            ASSERT_CONTAINS(plasmon_error(client), "had failed when its worker died");
        }
        CLUSTER_OK(plasmon_release(client, failed));
    }
    if (restarts_of_device_0(client) == 0) {
        test_skip("this build has no fault points");
    }
    plasmon_finish(client);
    cluster_expect_gone(CLUSTER_GONE_MS);
}

/* ----------------------------------------------------------------------------- given up */

/* A task that reads y and keeps its device busy; it may be run again as often as need be. */
static struct plasmon_ref *spin_again(struct plasmon_client *client, struct plasmon_ref *y,
                                      int device)
{
    struct plasmon_arg arg   = {.mode = PLASMON_INOUT};
    plasmon_scalar_t scalar  = {.i = 60000000};
    struct plasmon_call call = PLASMON_CALL_INIT;
    struct plasmon_ref *task;

    CLUSTER_OK(plasmon_snapshot(client, y, &arg.ref)); /* so that y is not overwritten */
    call.function     = "spin";
    call.args         = &arg;
    call.arg_count    = 1;
    call.scalars      = &scalar;
    call.scalar_count = 1;
    call.device       = device;
    call.retries      = 200;
    CLUSTER_OK(plasmon_submit(client, &call, NULL, &task));
    CLUSTER_OK(plasmon_release(client, task));
    return arg.ref;
}

static struct plasmon_client *start_with_route(const char *route)
{
    struct plasmon_options options = PLASMON_OPTIONS_INIT;
    struct plasmon_client *client;

    options.gpus        = "none";
    options.cpu_devices = 2;
    options.transfer    = route;
    CLUSTER_OK(plasmon_init(&options, &client));
    return client;
}

static void expect_failed(struct plasmon_client *client, struct plasmon_ref *ref,
                          plasmon_status_t status)
{
    CLUSTER_OK(plasmon_wait(client, &ref, 1, 1, CLUSTER_WAIT_MS, NULL, NULL));
    if (plasmon_state(client, ref) != status) {
        test_fail(__FILE__, __LINE__, "status %d: %s", plasmon_state(client, ref),
                  plasmon_error(client));
    }
    ASSERT_CONTAINS(plasmon_error(client), "is gone");
}

static void script_write(const char *name, const char *text)
{
    char path[256];
    FILE *script;

    (void)snprintf(path, sizeof(path), "%s/%s", cluster_folder(), name);
    script = fopen(path, "we");
    ASSERT_NOT_NULL(script);
    (void)fputs(text, script);
    ASSERT_EQ(fclose(script), 0);
    ASSERT_EQ(chmod(path, 0700), 0);
}

/*
 * A folder of programs in which the starts of device 0's workers hang as soon as the file `dead` is
 * there: a device that does not come up again, with launches that nobody ever enqueues. (Three
 * starts that hang give it up; of those that end at once it takes eleven, with pauses.)
 */
static void use_breakable_workers(char dead[256])
{
    const char *real = getenv("PLASMON_BIN_DIR");
    char path[256], text[1024];

    ASSERT_NOT_NULL(real);
    (void)snprintf(dead, 256, "%s/dead", cluster_folder());
    (void)snprintf(path, sizeof(path), "%s/plasmon-head", cluster_folder());
    (void)snprintf(text, sizeof(text), "%s/plasmon-head", real);
    ASSERT_EQ(symlink(text, path), 0);
    (void)snprintf(text, sizeof(text),
                   "#!/bin/sh\nexec '%s/plasmon-store' \"$@\" --worker-start-lease 2500\n",
                   real);
    script_write("plasmon-store", text);
    (void)snprintf(
        text, sizeof(text),
        "#!/bin/sh\ncase \" $* \" in *' --host-device 0 '*) [ ! -e '%s' ] || exec "
        "sleep 1000 ;; esac\nexec '%s/plasmon-worker' \"$@\"\n",
        dead, real);
    script_write("plasmon-worker", text);
    ASSERT_EQ(setenv("PLASMON_BIN_DIR", cluster_folder(), 1), 0);
}

static void wait_gone(struct plasmon_client *client)
{
    uint64_t deadline_ns = pl_now_ns() + 90000000000ull;
    char *text           = NULL;

    do {
        free(text);
        (void)poll(NULL, 0, 50); /* nothing tells of it: ask */
        ASSERT_TRUE(pl_now_ns() < deadline_ns);
        CLUSTER_OK(plasmon_status_json(client, &text));
    } while (strstr(text, "\"state\":\"gone\"") == NULL);
    free(text);
}

TEST(a_device_that_is_given_up_keeps_nobody_waiting)
{
    struct plasmon_client *clients[2];
    struct plasmon_ref *y[2], *slow[2], *copied[2], *behind[2], *small[2], *late[2];
    char dead[256];
    FILE *file;

    test_set_timeout(150);
    test_expect_log();
    cluster_tag();
    use_breakable_workers(dead);
    for (int i = 0; i < 2; i++) { /* pulled by the peer, and staged: both at once */
        clients[i] = start_with_route(i == 0 ? "peer" : "host");
        y[i]       = cluster_put(clients[i], COUNT, 0, 0);
        small[i]   = cluster_put(clients[i], 10, 5, 1);
        cluster_expect_ramp(clients[i], y[i], COUNT, 0, 1);
        cluster_expect_ramp(clients[i], small[i], 10, 5, 1);
        slow[i]   = spin_again(clients[i], y[i], 0);
        copied[i] = cluster_copy(clients[i], slow[i], 1);  /* device 1 waits for device 0 */
        behind[i] = cluster_copy(clients[i], small[i], 1); /* and this for its turn */
        CLUSTER_OK(plasmon_flush(clients[i]));
    }
    ASSERT_TRUE((file = fopen(dead, "we")) != NULL && fclose(file) == 0);
    for (int i = 0; i < 2; i++) {
        cluster_kill(cluster_find("plasmon-worker", 0));
        late[i] = cluster_copy(clients[i], cluster_copy(clients[i], y[i], 0), 1);
        CLUSTER_OK(plasmon_flush(clients[i]));
    }
    for (int i = 0; i < 2; i++) {
        wait_gone(clients[i]);
    }
    for (int i = 0; i < 2; i++) {
        struct plasmon_arg arg   = {.mode = PLASMON_IN, .ref = small[i]};
        struct plasmon_call call = PLASMON_CALL_INIT;
        struct plasmon_ref *task;

        expect_failed(clients[i], slow[i], PLASMON_EWORKER);
        expect_failed(clients[i], copied[i], PLASMON_EDEPENDENCY);
        expect_failed(clients[i], late[i], PLASMON_EDEPENDENCY);
        cluster_expect_ramp(clients[i], behind[i], 10, 5, 1);
        cluster_expect_ramp(clients[i], cluster_put(clients[i], COUNT, 7, 1), COUNT, 7, 1);
        cluster_expect_all(clients[i], cluster_fill(clients[i], COUNT, 3, PLASMON_ANYWHERE),
                           COUNT, 3);
        call.function  = "touch";
        call.args      = &arg;
        call.arg_count = 1;
        call.device    = 0; /* which nobody has any more */
        CLUSTER_OK(plasmon_submit(clients[i], &call, NULL, &task));
        expect_failed(clients[i], task, PLASMON_EWORKER);
        plasmon_finish(clients[i]);
    }
    cluster_remove();
}

TEST_MAIN()
