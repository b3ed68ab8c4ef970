/*
 * What plasmon.h promises, call by call, against a private cluster of two CPU devices.
 */
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/integration/cluster.h"

#define LONG_US 1000000 /* longer than any look at a task that is still to be pending */
#define QUEUED  300     /* launches; a worker gives its device 256 at a time */

TEST(wait_counts_k_of_n)
{
    struct plasmon_client *client = cluster_start(1);
    struct plasmon_ref *refs[4], *task;
    uint32_t count = 99;
    int ready[4];

    for (int i = 0; i < 4; i++) {
        refs[i] = cluster_fill(client, 10, i, PLASMON_ANYWHERE);
    }
    CLUSTER_OK(plasmon_wait(client, refs, 4, 4, CLUSTER_WAIT_MS, NULL, NULL));
    cluster_spin(client, refs[3], LONG_US, PLASMON_ANYWHERE, &task);
    CLUSTER_OK(plasmon_wait(client, refs, 4, 3, CLUSTER_WAIT_MS, ready, &count));
    ASSERT_EQ(count, 3);
    ASSERT_TRUE(ready[0] == 1 && ready[1] == 1 && ready[2] == 1 && ready[3] == 0);
    ASSERT_STATUS(plasmon_wait(client, refs, 4, 4, 50, ready, &count), PLASMON_ETIMEDOUT);
    ASSERT_EQ(count, 3); /* set all the same */
    ASSERT_STATUS(plasmon_state(client, task), PLASMON_INPROGRESS);
    CLUSTER_OK(plasmon_wait(client, refs, 4, 4, CLUSTER_WAIT_MS, ready, &count));
    ASSERT_EQ(count, 4);
    CLUSTER_OK(plasmon_state(client, task));
    ASSERT_STATUS(plasmon_wait(client, refs, 4, 5, 0, NULL, NULL), PLASMON_EINVAL);
    CLUSTER_OK(plasmon_wait(client, refs, 4, 0, 0, NULL, &count));
    plasmon_finish(client);
}

TEST(get_with_a_timeout_ends_in_time_and_can_be_repeated)
{
    struct plasmon_client *client = cluster_start(1);
    struct plasmon_ref *x         = cluster_put(client, 10, 0, PLASMON_ANYWHERE);
    struct plasmon_mapping *mapping;
    float out[10];

    cluster_spin(client, x, LONG_US, PLASMON_ANYWHERE, NULL);
    ASSERT_STATUS(plasmon_get(client, x, out, sizeof(out), 0), PLASMON_ETIMEDOUT);
    ASSERT_STATUS(plasmon_get(client, x, out, sizeof(out), 50), PLASMON_ETIMEDOUT);
    ASSERT_STATUS(plasmon_map(client, x, 50, &mapping), PLASMON_ETIMEDOUT);
    cluster_expect_ramp(client, x, 10, 0, 1);
    ASSERT_STATUS(plasmon_get(client, x, out, sizeof(out) - 1, 1000), PLASMON_ESHAPE);
    plasmon_finish(client);
}

struct heard {
    atomic_int count;
    atomic_int status;
};

static void hear(void *user, plasmon_status_t status)
{
    struct heard *heard = user;

    atomic_store(&heard->status, (int)status);
    atomic_fetch_add(&heard->count, 1);
}

TEST(on_ready_and_ready_fd_tell_once_what_became_ready)
{
    struct plasmon_client *client = cluster_start(1);
    struct plasmon_ref *x         = cluster_put(client, 10, 0, PLASMON_ANYWHERE);
    struct heard later = {0}, now = {0};
    struct pollfd poller = {.events = POLLIN};
    uint64_t number;

    CLUSTER_OK(plasmon_wait(client, &x, 1, 1, CLUSTER_WAIT_MS, NULL, NULL));
    CLUSTER_OK(plasmon_on_ready(client, x, hear, &now));
    ASSERT_EQ(atomic_load(&now.count), 1); /* in the call */
    ASSERT_EQ(atomic_load(&now.status), PLASMON_OK);

    CLUSTER_OK(plasmon_ready_fd(client, &poller.fd));
    (void)!read(poller.fd, &number, sizeof(number));
    cluster_spin(client, x, 300000, PLASMON_ANYWHERE, NULL);
    CLUSTER_OK(plasmon_on_ready(client, x, hear, &later));
    ASSERT_EQ(atomic_load(&later.count), 0);
    ASSERT_EQ(poll(&poller, 1, (int)CLUSTER_WAIT_MS), 1);
    ASSERT_EQ(read(poller.fd, &number, sizeof(number)), (ssize_t)sizeof(number));
    CLUSTER_OK(plasmon_wait(client, &x, 1, 1, CLUSTER_WAIT_MS, NULL, NULL));
    plasmon_finish(client); /* after it no callback runs */
    ASSERT_EQ(atomic_load(&later.count), 1);
    ASSERT_EQ(atomic_load(&later.status), PLASMON_OK);
    ASSERT_EQ(atomic_load(&now.count), 1);
}

/*
 * More than a device has at a time, all behind one that is busy for so long. What is last of them
 * is cancelled: true if that came in time.
 */
static bool cancel_behind(struct plasmon_client *client, int64_t busy_us)
{
    struct plasmon_ref *busy = cluster_put(client, 10, 0, PLASMON_ANYWHERE), *task;
    struct plasmon_ref *blocked, *after;
    plasmon_status_t status;
    float out[10];

    cluster_spin(client, busy, busy_us, PLASMON_ANYWHERE, &task);
    for (int i = 0; i < QUEUED; i++) {
        cluster_spin(client, busy, 0, PLASMON_ANYWHERE, NULL);
    }
    blocked = cluster_copy(client, busy, PLASMON_ANYWHERE);
    after   = cluster_copy(client, blocked, PLASMON_ANYWHERE);
    CLUSTER_OK(plasmon_cancel(client, blocked));
    status = plasmon_get(client, blocked, out, sizeof(out), CLUSTER_WAIT_MS);
    if (status == PLASMON_OK) {
        CLUSTER_OK(plasmon_state(client, task)); /* it was late */
    } else {
        ASSERT_EQ(status, PLASMON_ECANCELLED);
        ASSERT_STATUS(plasmon_get(client, after, out, sizeof(out), CLUSTER_WAIT_MS),
                      PLASMON_EDEPENDENCY);
    }
    cluster_expect_ramp(client, busy, 10, 0, 1);
    CLUSTER_OK(plasmon_cancel(client, busy)); /* too late is no error */
    cluster_expect_ramp(client, busy, 10, 0, 1);
    CLUSTER_OK(plasmon_release(client, busy));
    CLUSTER_OK(plasmon_release(client, task));
    CLUSTER_OK(plasmon_release(client, blocked));
    CLUSTER_OK(plasmon_release(client, after));
    return status != PLASMON_OK;
}

TEST(a_cancelled_task_does_not_run_and_what_depends_on_it_fails)
{
    struct plasmon_client *client = cluster_start(1);
    int64_t busy_us               = LONG_US / 4;

    while (!cancel_behind(client, busy_us)) { /* on a busy machine */
        busy_us *= 2;
        ASSERT_TRUE(busy_us <= 16 * LONG_US);
    }
    plasmon_finish(client);
}

TEST(a_snapshot_keeps_what_a_write_changes)
{
    struct plasmon_client *client = cluster_start(2);
    struct plasmon_ref *x         = cluster_put(client, 1000, 0, 0);
    struct plasmon_ref *y         = cluster_copy(client, x, 1), *old;

    CLUSTER_OK(plasmon_snapshot(client, y, &old));
    CLUSTER_OK(cluster_axpy(client, y, x, 1, PLASMON_ANYWHERE));
    cluster_expect_ramp(client, y, 1000, 0, 2);
    cluster_expect_ramp(client, old, 1000, 0, 1);
    ASSERT_STATUS(cluster_axpy(client, y, y, 1, PLASMON_ANYWHERE),
                  PLASMON_EINVAL); /* in two arguments, one of them written */
    plasmon_finish(client);
}

TEST(views_of_views_show_and_write_their_part)
{
    struct plasmon_client *client = cluster_start(2);
    struct plasmon_shape shape    = {.dtype = PLASMON_I32, .ndim = 2, .dim = {20, 30}};
    struct plasmon_ref *root, *block, *sparse, *ones;
    int32_t data[20][30], out[20][30], part[3][4];
    struct plasmon_arg args[2];
    struct plasmon_call call = PLASMON_CALL_INIT;
    plasmon_scalar_t scale   = {.f = 1000};
    struct plasmon_shape seen;

    for (int i = 0; i < 600; i++) {
        data[i / 30][i % 30] = i;
    }
    CLUSTER_OK(plasmon_put(client, data, &shape, NULL, &root));
    CLUSTER_OK(
        plasmon_view(client, root, (int64_t[]){2, 3}, (int64_t[]){10, 20}, NULL, &block));
    CLUSTER_OK(plasmon_view(client, block, (int64_t[]){1, 2}, (int64_t[]){3, 4},
                            (int64_t[]){3, 5}, &sparse));
    CLUSTER_OK(plasmon_shape_of(client, sparse, &seen));
    ASSERT_TRUE(seen.dtype == PLASMON_I32 && seen.ndim == 2 && seen.dim[0] == 3 &&
                seen.dim[1] == 4);
    CLUSTER_OK(plasmon_get(client, sparse, part, sizeof(part), CLUSTER_WAIT_MS));
    for (int i = 0; i < 3; i++) {
        for (int j = 0; j < 4; j++) {
            ASSERT_EQ(part[i][j], data[3 + 3 * i][5 + 5 * j]);
            part[i][j] = 1;
        }
    }

    /* Write through the sparse view on whatever device: its elements change and no others. */
    shape.dim[0] = 3;
    shape.dim[1] = 4;
    CLUSTER_OK(plasmon_put(client, part, &shape, NULL, &ones));
    args[0]           = (struct plasmon_arg){.mode = PLASMON_INOUT, .ref = sparse};
    args[1]           = (struct plasmon_arg){.mode = PLASMON_IN, .ref = ones};
    call.function     = "axpy";
    call.args         = args;
    call.arg_count    = 2;
    call.scalars      = &scale;
    call.scalar_count = 1;
    CLUSTER_OK(plasmon_submit(client, &call, NULL, NULL));
    CLUSTER_OK(plasmon_get(client, root, out, sizeof(out), CLUSTER_WAIT_MS));
    for (int i = 0; i < 20; i++) {
        for (int j = 0; j < 30; j++) {
            int hit = i >= 3 && i <= 9 && (i - 3) % 3 == 0 && j >= 5 && j <= 20 &&
                      (j - 5) % 5 == 0;

            ASSERT_EQ(out[i][j], data[i][j] + (hit ? 1000 : 0));
        }
    }
    plasmon_finish(client);
}

TEST(a_view_with_steps_meets_whatever_is_between_its_elements)
{
    struct plasmon_client *client = cluster_start(1);
    struct plasmon_ref *all       = cluster_fill(client, 8, 1, 0), *even, *odd, *half, *mid;

    CLUSTER_OK(
        plasmon_view(client, all, (int64_t[]){0}, (int64_t[]){4}, (int64_t[]){2}, &even));
    CLUSTER_OK(
        plasmon_view(client, all, (int64_t[]){1}, (int64_t[]){4}, (int64_t[]){2}, &odd));
    CLUSTER_OK(plasmon_view(client, all, (int64_t[]){0}, (int64_t[]){4}, NULL, &half));
    CLUSTER_OK(plasmon_view(client, all, (int64_t[]){2}, (int64_t[]){4}, NULL, &mid));
    ASSERT_STATUS(cluster_axpy(client, even, odd, 1, 0), PLASMON_EINVAL);
    ASSERT_CONTAINS(plasmon_error(client), "counts as the box that it spans");
    ASSERT_STATUS(cluster_axpy(client, half, mid, 1, 0), PLASMON_EINVAL);
    ASSERT_TRUE(strstr(plasmon_error(client), "counts as") == NULL);
    CLUSTER_OK(plasmon_snapshot(client, odd, &odd));
    CLUSTER_OK(cluster_axpy(client, even, odd, 1, 0));
    plasmon_finish(client);
}

TEST(a_mapping_is_the_devices_memory_and_keeps_its_version)
{
    struct plasmon_client *client = cluster_start(1);
    struct plasmon_ref *x         = cluster_fill(client, 1000, 1, 0), *view;
    struct plasmon_mapping *first, *second, *part;
    int64_t start = 100, count = 10, step = 3;
    const float *data;

    CLUSTER_OK(plasmon_map(client, x, CLUSTER_WAIT_MS, &first));
    CLUSTER_OK(plasmon_map(client, x, CLUSTER_WAIT_MS, &second));
    /* no copy was made */
    ASSERT_TRUE(plasmon_mapping_data(first) == plasmon_mapping_data(second));
    CLUSTER_OK(plasmon_view(client, x, &start, &count, &step, &view));
    CLUSTER_OK(plasmon_map(client, view, CLUSTER_WAIT_MS, &part));
    ASSERT_TRUE((const float *)plasmon_mapping_data(part) ==
                (const float *)plasmon_mapping_data(first) + start);
    ASSERT_EQ(plasmon_mapping_strides(part)[0], step);
    data = plasmon_mapping_data(first);
    for (int i = 0; i < 5; i++) {
        CLUSTER_OK(cluster_axpy(client, x, cluster_fill(client, 1000, 1, 0), 1, 0));
    }
    cluster_expect_all(client, x, 1000, 6);
    CLUSTER_OK(plasmon_release(client, x));
    CLUSTER_OK(plasmon_release(client, view));
    for (int i = 0; i < 1000; i++) {
        ASSERT_TRUE(data[i] == 1);
    }
    plasmon_unmap(first);
    plasmon_unmap(second);
    plasmon_unmap(part);
    plasmon_finish(client);
}

TEST(a_released_ref_is_known_as_released)
{
    struct plasmon_client *client = cluster_start(1);
    struct plasmon_ref *x         = cluster_put(client, 10, 0, PLASMON_ANYWHERE);
    struct plasmon_ref *y         = cluster_copy(client, x, PLASMON_ANYWHERE);
    float out[10];

    CLUSTER_OK(plasmon_release(client, x)); /* the task that reads it still runs */
    ASSERT_STATUS(plasmon_release(client, x), PLASMON_ERELEASED);
    ASSERT_STATUS(plasmon_get(client, x, out, sizeof(out), 1000), PLASMON_ERELEASED);
    ASSERT_STATUS(cluster_axpy(client, y, x, 1, PLASMON_ANYWHERE), PLASMON_ERELEASED);
    CLUSTER_OK(plasmon_release(client, NULL));
    cluster_expect_ramp(client, y, 10, 0, 1);
    plasmon_finish(client);
}

TEST(a_published_version_stays_and_a_writer_gets_its_own)
{
    struct plasmon_client *client = cluster_start(2);
    struct plasmon_ref *x         = cluster_put(client, 100, 0, 0), *found, *again;
    struct plasmon_ref *ones      = cluster_fill(client, 100, 1, 0);

    CLUSTER_OK(plasmon_publish(client, "ramp", x));
    CLUSTER_OK(cluster_axpy(client, x, ones, 1, PLASMON_ANYWHERE));
    CLUSTER_OK(plasmon_lookup(client, "ramp", &found));
    CLUSTER_OK(cluster_axpy(client, found, ones, 10, PLASMON_ANYWHERE));
    CLUSTER_OK(plasmon_lookup(client, "ramp", &again));
    cluster_expect_ramp(client, x, 100, 1, 1);
    cluster_expect_ramp(client, found, 100, 10, 1);
    cluster_expect_ramp(client, again, 100, 0, 1);
    CLUSTER_OK(plasmon_publish(client, "ramp", NULL));
    ASSERT_STATUS(plasmon_lookup(client, "ramp", &found), PLASMON_ENOENT);
    ASSERT_CONTAINS(plasmon_error(client), "\"ramp\" in namespace \"default\"");
    ASSERT_CONTAINS(plasmon_error(client), "private cluster, which shares nothing");
    ASSERT_CONTAINS(plasmon_error(client), "set PLASMON_ADDRESS");
    ASSERT_STATUS(plasmon_wait(client, NULL, 2, 2, 0, NULL, NULL), PLASMON_EINVAL);
    ASSERT_STR(plasmon_error(client), "refs is NULL");
    ASSERT_STATUS(plasmon_wait(client, &again, 1, 3, 0, NULL, NULL), PLASMON_EINVAL);
    ASSERT_STR(plasmon_error(client), "need is 3, more than the 1 refs");
    cluster_expect_ramp(client, again, 100, 0, 1);
    plasmon_finish(client);
}

TEST(a_call_with_two_outputs_gives_both)
{
    struct plasmon_client *client = cluster_start(2);
    struct plasmon_shape shape    = {.dtype = PLASMON_F32, .ndim = 2, .dim = {2, 5}};
    const float rows[]            = {5, 1, 4, 2, 3, 0, 9, 0, 7, 8};
    struct plasmon_arg args[]     = {
            {.mode = PLASMON_OUT}, {.mode = PLASMON_OUT}, {.mode = PLASMON_IN}};
    plasmon_scalar_t scalars[] = {{.i = 2}, {.i = 100}};
    struct plasmon_call call   = PLASMON_CALL_INIT;
    struct plasmon_ref *outs[2];
    float values[4];
    int64_t indices[4];

    CLUSTER_OK(plasmon_put(client, rows, &shape, NULL, &args[2].ref));
    call.function     = "topk_min";
    call.args         = args;
    call.arg_count    = 3;
    call.scalars      = scalars;
    call.scalar_count = 2;
    CLUSTER_OK(plasmon_submit(client, &call, outs, NULL));
    CLUSTER_OK(plasmon_get(client, outs[0], values, sizeof(values), CLUSTER_WAIT_MS));
    CLUSTER_OK(plasmon_get(client, outs[1], indices, sizeof(indices), CLUSTER_WAIT_MS));
    ASSERT_TRUE(values[0] == 1 && values[1] == 2 && values[2] == 0 && values[3] == 0);
    ASSERT_TRUE(indices[0] == 101 && indices[1] == 103 && indices[2] == 100 &&
                indices[3] == 102);
    plasmon_finish(client);
}

TEST(a_call_takes_ten_thousand_inputs)
{
    enum { INPUTS = 10000 };
    struct plasmon_client *client = cluster_start(2);
    struct plasmon_arg *args      = calloc(INPUTS + 1, sizeof(*args));
    plasmon_scalar_t axis         = {.i = 0};
    struct plasmon_call call      = PLASMON_CALL_INIT;
    struct plasmon_ref *joined;

    ASSERT_NOT_NULL(args);
    args[0].mode = PLASMON_OUT;
    for (int i = 0; i < INPUTS; i++) {
        args[i + 1] = (struct plasmon_arg){
            .mode = PLASMON_IN, .ref = cluster_put(client, 1, (float)i, PLASMON_ANYWHERE)};
    }
    call.function     = "concatenate";
    call.args         = args;
    call.arg_count    = INPUTS + 1;
    call.scalars      = &axis;
    call.scalar_count = 1;
    CLUSTER_OK(plasmon_submit(client, &call, &joined, NULL));
    cluster_expect_ramp(client, joined, INPUTS, 0, 1);
    free(args);
    plasmon_finish(client);
}

TEST(reduce_over_two_devices_is_the_sum)
{
    struct plasmon_client *client = cluster_start(2);
    struct plasmon_ref *total     = cluster_fill(client, 1000, 5, 0);
    struct plasmon_call call      = PLASMON_CALL_INIT;

    for (int i = 0; i < 4; i++) {
        struct plasmon_arg args[] = {
            {.mode = PLASMON_REDUCE, .ref = total, .reduce_op = PLASMON_REDUCE_SUM},
            {.mode = PLASMON_IN,
             .ref  = cluster_put(client, 1000, (float)(100 * i), i % 2)}};

        call.function  = "accumulate";
        call.args      = args;
        call.arg_count = 2;
        call.device    = i % 2;
        CLUSTER_OK(plasmon_submit(client, &call, NULL, NULL));
    }
    cluster_expect_ramp(client, total, 1000, 5 + 600, 4); /* integers: exact in any order */
    plasmon_finish(client);
}

TEST(a_forked_child_is_told_so)
{
    struct plasmon_client *client = cluster_start(1);
    struct plasmon_ref *x         = cluster_put(client, 10, 0, PLASMON_ANYWHERE);
    float out[10];
    int status;
    pid_t pid = fork();

    ASSERT_TRUE(pid >= 0);
    if (pid == 0) {
        struct plasmon_shape shape = cluster_vector(PLASMON_F32, 10);
        struct plasmon_ref *ref;
        bool good = plasmon_get(client, x, out, sizeof(out), 1000) == PLASMON_EFORKED &&
                    plasmon_put(client, out, &shape, NULL, &ref) == PLASMON_EFORKED &&
                    plasmon_flush(client) == PLASMON_EFORKED &&
                    plasmon_error(client)[0] != '\0';

        plasmon_abandon(client);
        _exit(good ? 0 : 1);
    }
    ASSERT_EQ(waitpid(pid, &status, 0), pid);
    ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    cluster_expect_ramp(client, x, 10, 0, 1); /* the parent's session goes on */
    plasmon_finish(client);
}

static void use_one_client(void)
{
    struct plasmon_client *client = cluster_start(1);
    struct plasmon_ref *x         = cluster_put(client, 10, 0, PLASMON_ANYWHERE);

    cluster_expect_ramp(client, x, 10, 0, 1);
    plasmon_finish(client);
}

TEST(a_child_that_was_forked_between_clients_has_its_own)
{
    int status;
    pid_t pid;

    use_one_client();
    pid = fork();
    ASSERT_TRUE(pid >= 0);
    if (pid == 0) {
        use_one_client();
        exit(0);
    }
    use_one_client(); /* beside the child */
    ASSERT_EQ(waitpid(pid, &status, 0), pid);
    ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

TEST(a_failure_names_the_first_task_that_failed)
{
    struct plasmon_client *client = cluster_start(2);
    struct plasmon_shape shape    = cluster_vector(PLASMON_F32, 10);
    struct plasmon_arg arg        = {.mode = PLASMON_OUT, .shape = &shape};
    plasmon_scalar_t code         = {.i = 42};
    struct plasmon_call call      = PLASMON_CALL_INIT;
    struct plasmon_ref *bad, *next;
    float out[10];

    call.function     = "test_fail";
    call.args         = &arg;
    call.arg_count    = 1;
    call.scalars      = &code;
    call.scalar_count = 1;
    call.label        = "the culprit";
    CLUSTER_OK(plasmon_submit(client, &call, &bad, NULL));
    next = cluster_copy(client, cluster_copy(client, bad, 1), 0);
    ASSERT_STATUS(plasmon_get(client, bad, out, sizeof(out), CLUSTER_WAIT_MS),
                  PLASMON_EFUNCTION);
    ASSERT_CONTAINS(plasmon_error(client), "test_fail");
    ASSERT_CONTAINS(plasmon_error(client), "42");
    ASSERT_STATUS(plasmon_get(client, next, out, sizeof(out), CLUSTER_WAIT_MS),
                  PLASMON_EDEPENDENCY);
    ASSERT_CONTAINS(plasmon_error(client), "the culprit");
    cluster_expect_all(client, cluster_fill(client, 10, 1, PLASMON_ANYWHERE), 10, 1);
    plasmon_finish(client);
}

static uint64_t launches_of(struct plasmon_client *client, int device)
{
    char *text, key[32];
    const char *found;
    uint64_t number;

    CLUSTER_OK(plasmon_status_json(client, &text));
    (void)snprintf(key, sizeof(key), "{\"index\":%d,", device);
    found = strstr(text, key);
    ASSERT_NOT_NULL(found);
    found = strstr(found, "\"launches\":");
    ASSERT_NOT_NULL(found);
    number = strtoull(found + strlen("\"launches\":"), NULL, 10);
    free(text);
    return number;
}

TEST(a_placement_hint_decides_and_devices_are_listed)
{
    struct plasmon_client *client = cluster_start(2);
    struct plasmon_device_info infos[4];
    uint32_t count = 0;
    uint64_t before[2];

    CLUSTER_OK(plasmon_devices(client, infos, 4, &count));
    ASSERT_EQ(count, 2);
    for (int i = 0; i < 2; i++) {
        ASSERT_EQ(infos[i].index, i);
        ASSERT_EQ(infos[i].kind, 1);
        ASSERT_TRUE(infos[i].name[0] != '\0' && infos[i].bytes_total > 0);
        ASSERT_EQ(infos[i].same_host, 1);
        before[i] = launches_of(client, i);
    }
    CLUSTER_OK(plasmon_devices(client, infos, 1, &count));
    ASSERT_EQ(count, 2);
    for (int i = 0; i < 20; i++) {
        cluster_expect_all(client, cluster_fill(client, 10, i, 1), 10, (float)i);
    }
    ASSERT_EQ(launches_of(client, 0), before[0]);
    ASSERT_TRUE(launches_of(client, 1) >= before[1] + 20);
    plasmon_finish(client);
}

struct submitter {
    struct plasmon_client *client;
    struct plasmon_ref *shared;
    int number;
};

static void *submit_many(void *user)
{
    struct submitter *submitter   = user;
    struct plasmon_client *client = submitter->client;
    struct plasmon_ref *ones      = cluster_fill(client, 100, 1, PLASMON_ANYWHERE);
    struct plasmon_ref *own =
        cluster_fill(client, 100, submitter->number, PLASMON_ANYWHERE);

    for (int i = 0; i < 200; i++) {
        CLUSTER_OK(cluster_axpy(client, own, ones, 1, PLASMON_ANYWHERE));
        CLUSTER_OK(cluster_axpy(client, submitter->shared, ones, 1, PLASMON_ANYWHERE));
    }
    cluster_expect_all(client, own, 100, (float)(submitter->number + 200));
    return NULL;
}

TEST(threads_submit_at_the_same_time)
{
    enum { THREADS = 4 };
    struct plasmon_client *client = cluster_start(2);
    struct plasmon_ref *shared    = cluster_fill(client, 100, 0, PLASMON_ANYWHERE);
    struct submitter submitters[THREADS];
    pthread_t threads[THREADS];

    for (int i = 0; i < THREADS; i++) {
        submitters[i] = (struct submitter){.client = client, .shared = shared, .number = i};
        ASSERT_EQ(pthread_create(&threads[i], NULL, submit_many, &submitters[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        ASSERT_EQ(pthread_join(threads[i], NULL), 0);
    }
    cluster_expect_all(client, shared, 100, THREADS * 200);
    plasmon_finish(client);
}

static void expect_status(struct plasmon_client *client, const char *part)
{
    char *text;

    CLUSTER_OK(plasmon_status_json(client, &text));
    ASSERT_CONTAINS(text, part);
    free(text);
}

TEST(the_status_tells_driver_time_apart_only_where_it_is_asked_to)
{
    struct plasmon_client *client;

    ASSERT_EQ(unsetenv("PLASMON_DRIVER_TIME"), 0);
    client = cluster_start(2);
    expect_status(client, "\"worker_driver_counted\":false");
    plasmon_finish(client);
    ASSERT_EQ(setenv("PLASMON_DRIVER_TIME", "1", 1), 0);
    client = cluster_start(2);
    expect_status(client, "\"worker_driver_counted\":true");
    plasmon_finish(client);
}

TEST_MAIN()
