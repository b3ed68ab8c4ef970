/*
 * Host memory: what is put from it and got into it goes without a word in between, is right
 * whatever dies, and cannot be mixed up or freed while a copy is at it.
 */
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "base/clock.h"
#include "tests/integration/started.h"

#define COUNT (1 << 20) /* 4 MiB of floats */
#define BYTES ((size_t)COUNT * sizeof(float))

/* Sooner or later: devices let go of what was freed when they have nothing to do. */
static float *alloc(struct plasmon_client *client, size_t bytes)
{
    uint64_t deadline_ns    = pl_now_ns() + CLUSTER_WAIT_MS * UINT64_C(1000000);
    plasmon_status_t status = PLASMON_ELIMIT;
    void *data              = NULL;

    while (status == PLASMON_ELIMIT && pl_now_ns() < deadline_ns) {
        status = plasmon_host_alloc(client, bytes, &data);
    }
    CLUSTER_OK(status);
    ASSERT_NOT_NULL(data);
    return data;
}

static void ramp(float *data, size_t count, float first)
{
    for (size_t i = 0; i < count; i++) {
        data[i] = first + (float)i;
    }
}

static void expect_ramp(const float *data, size_t count, float first, float step)
{
    for (size_t i = 0; i < count; i++) {
        if (data[i] != first + step * (float)i) {
            test_fail(__FILE__, __LINE__, "element %zu is %g and not %g", i,
                      (double)data[i], (double)(first + step * (float)i));
        }
    }
}

static struct plasmon_ref *put(struct plasmon_client *client, const float *data,
                               size_t count, int device)
{
    struct plasmon_shape shape         = cluster_vector(PLASMON_F32, (int64_t)count);
    struct plasmon_put_options options = PLASMON_PUT_INIT;
    struct plasmon_ref *ref;

    options.device = device;
    CLUSTER_OK(plasmon_put_async(client, data, &shape, &options, &ref));
    return ref;
}

static struct plasmon_ref *get(struct plasmon_client *client, struct plasmon_ref *ref,
                               float *data, size_t count)
{
    struct plasmon_ref *task;

    CLUSTER_OK(plasmon_get_async(client, ref, data, count * sizeof(float), &task));
    return task;
}

static void wait_for(struct plasmon_client *client, struct plasmon_ref *ref)
{
    CLUSTER_OK(plasmon_wait(client, &ref, 1, 1, CLUSTER_WAIT_MS, NULL, NULL));
    CLUSTER_OK(plasmon_state(client, ref));
}

#define HOST_ROUTE "\"route\":\"host-buffer\""

/* How many copies went from and to host memory directly, by the status: `least`, sooner or later. */
static long long direct_copies(struct plasmon_client *client, long long least)
{
    uint64_t deadline_ns = pl_now_ns() + CLUSTER_WAIT_MS * UINT64_C(1000000);
    long long copies;

    do {
        copies = started_status(client, HOST_ROUTE, "copies");
    } while (copies < least && pl_now_ns() < deadline_ns);
    return copies;
}

/* ------------------------------------------------------------------------------- copies */

/* y += 2 x, with x and y put, and y got: one wait. */
static void expect_axpy(struct plasmon_client *client, int device)
{
    float *in = alloc(client, 2 * BYTES), *out = alloc(client, BYTES);
    struct plasmon_ref *x, *y, *got;

    ramp(in, COUNT, 1);
    ramp(in + COUNT, COUNT, 5);
    x = put(client, in, COUNT, device);
    y = put(client, in + COUNT, COUNT, device);
    CLUSTER_OK(cluster_axpy(client, y, x, 2, device));
    got = get(client, y, out, COUNT);
    wait_for(client, got);
    expect_ramp(out, COUNT, 7, 3);
    CLUSTER_OK(plasmon_state(client, x)); /* behind it: their memory is ours again */
    CLUSTER_OK(plasmon_host_free(client, in));
    CLUSTER_OK(plasmon_host_free(client, out));
}

TEST(a_put_a_call_and_a_get_need_one_wait)
{
    struct plasmon_client *client = cluster_start(2);

    expect_axpy(client, 0);
    expect_axpy(client, 1);
    expect_axpy(client, PLASMON_ANYWHERE);
    ASSERT_EQ(direct_copies(client, 9), 9);
    plasmon_finish(client);
    cluster_expect_gone(CLUSTER_GONE_MS);
}

TEST(a_put_and_a_get_that_wait_go_the_same_way)
{
    struct plasmon_shape shape = cluster_vector(PLASMON_F32, COUNT);
    struct plasmon_ref *x, *busy, *task;
    struct plasmon_client *client;
    float *memory;

    ASSERT_EQ(setenv("PLASMON_CLIENT_PATH", "staged", 1), 0); /* as if to a GPU */
    client = cluster_start(1);
    memory = alloc(client, 2 * BYTES);
    ramp(memory, COUNT, 9);
    CLUSTER_OK(plasmon_put(client, memory, &shape, NULL, &x));
    memset(memory, 0, BYTES); /* it has been read */
    CLUSTER_OK(plasmon_get(client, x, memory + COUNT, BYTES, PLASMON_FOREVER));
    expect_ramp(memory + COUNT, COUNT, 9, 1);
    ASSERT_EQ(direct_copies(client, 2), 2);
    /* as it can be given up */
    CLUSTER_OK(plasmon_get(client, x, memory, BYTES, CLUSTER_WAIT_MS));
    expect_ramp(memory, COUNT, 9, 1);
    ASSERT_EQ(direct_copies(client, 2), 2);

    cluster_spin(client, x, 500000, 0, &busy);
    task = get(client, x, memory, COUNT);
    ASSERT_STATUS(plasmon_put(client, memory, &shape, NULL, &busy), PLASMON_EBUSY);
    ASSERT_STATUS(plasmon_get(client, x, memory + 1, BYTES, PLASMON_FOREVER),
                  PLASMON_EBUSY);
    wait_for(client, task);
    CLUSTER_OK(plasmon_host_free(client, memory));
    plasmon_finish(client);
}

TEST(many_copies_are_on_their_way_at_once)
{
    enum { PIECES = 32, PIECE = COUNT / PIECES };
    struct plasmon_client *client = cluster_start(2);
    float *in = alloc(client, BYTES), *out = alloc(client, BYTES);
    struct plasmon_ref *got[PIECES];

    ramp(in, COUNT, 0);
    for (int i = 0; i < PIECES; i++) {
        struct plasmon_ref *x = put(client, in + i * PIECE, PIECE, i % 2);
        /* over to the other device */
        struct plasmon_ref *y = cluster_copy(client, x, (i + 1) % 2);

        got[i] = get(client, y, out + (PIECES - 1 - i) * PIECE, PIECE);
        CLUSTER_OK(plasmon_release(client, x));
        CLUSTER_OK(plasmon_release(client, y));
    }
    CLUSTER_OK(plasmon_wait(client, got, PIECES, PIECES, CLUSTER_WAIT_MS, NULL, NULL));
    for (int i = 0; i < PIECES; i++) {
        CLUSTER_OK(plasmon_state(client, got[i]));
        expect_ramp(out + (PIECES - 1 - i) * PIECE, PIECE, (float)(i * PIECE), 1);
    }
    plasmon_finish(client);
}

TEST(a_get_shows_what_was_submitted_before_it_and_parts_in_c_order)
{
    struct plasmon_client *client = cluster_start(2);
    struct plasmon_shape shape    = {.dtype = PLASMON_F32, .ndim = 2, .dim = {64, 100}};
    int64_t rows[] = {8, 0}, few[] = {16, 100};                      /* side by side */
    int64_t block[] = {10, 20}, sizes[] = {30, 40};                  /* in runs of 40 */
    int64_t start[] = {1, 3}, counts[] = {20, 10}, steps[] = {3, 9}; /* one by one */
    float *in = alloc(client, 6400 * 4), *out = alloc(client, 4 * 6400 * 4);
    struct plasmon_ref *x, *views[3], *got[4];

    ramp(in, 6400, 0);
    CLUSTER_OK(plasmon_put_async(client, in, &shape, NULL, &x));
    CLUSTER_OK(plasmon_view(client, x, rows, few, NULL, &views[0]));
    CLUSTER_OK(plasmon_view(client, x, block, sizes, NULL, &views[1]));
    CLUSTER_OK(plasmon_view(client, x, start, counts, steps, &views[2]));
    for (int i = 0; i < 3; i++) {
        got[i] = get(client, views[i], out + i * 6400, 6400);
    }
    cluster_spin(client, x, 1000, 0, NULL); /* a new version */
    got[3] = get(client, views[0], out + 3 * 6400, 6400);
    CLUSTER_OK(plasmon_wait(client, got, 4, 4, CLUSTER_WAIT_MS, NULL, NULL));
    for (int i = 0; i < 4; i++) {
        CLUSTER_OK(plasmon_state(client, got[i]));
    }
    expect_ramp(out, 1600, 800, 1);
    for (int i = 0; i < 30; i++) {
        expect_ramp(out + 6400 + i * 40, 40, (float)((10 + i) * 100 + 20), 1);
    }
    for (int i = 0; i < 20; i++) {
        expect_ramp(out + 2 * 6400 + i * 10, 10, (float)((1 + 3 * i) * 100 + 3), 9);
    }
    plasmon_finish(client);
}

TEST(a_later_write_does_not_reach_an_earlier_get)
{
    struct plasmon_client *client = cluster_start(1);
    float *out                    = alloc(client, 2 * BYTES);
    struct plasmon_ref *x         = cluster_fill(client, COUNT, 1, 0);
    struct plasmon_ref *one       = cluster_fill(client, COUNT, 1, 0);
    struct plasmon_ref *got[2];

    for (int i = 0; i < 2; i++) {
        got[i] = get(client, x, out + i * COUNT, COUNT);
        CLUSTER_OK(cluster_axpy(client, x, one, 1, 0));
    }
    CLUSTER_OK(plasmon_wait(client, got, 2, 2, CLUSTER_WAIT_MS, NULL, NULL));
    expect_ramp(out, COUNT, 1, 0);
    expect_ramp(out + COUNT, COUNT, 2, 0);
    plasmon_finish(client);
}

struct heard {
    int fd[2];
};

static void on_got(void *user, plasmon_status_t status)
{
    struct heard *heard = user;
    int value           = status;

    (void)!write(heard->fd[1], &value, sizeof(value));
}

TEST(callbacks_and_the_descriptor_tell_of_copies)
{
    struct plasmon_client *client = cluster_start(1);
    float *out                    = alloc(client, BYTES);
    struct plasmon_ref *x         = cluster_fill(client, COUNT, 3, 0);
    struct heard heard;
    struct pollfd ready = {.events = POLLIN};
    struct plasmon_ref *task;
    int status = 1;

    ASSERT_EQ(pipe(heard.fd), 0);
    CLUSTER_OK(plasmon_ready_fd(client, &ready.fd));
    cluster_spin(client, x, 200000, 0, NULL);
    task = get(client, x, out, COUNT);
    CLUSTER_OK(plasmon_on_ready(client, task, on_got, &heard));
    CLUSTER_OK(plasmon_flush(client));
    ASSERT_EQ(read(heard.fd[0], &status, sizeof(status)), (ssize_t)sizeof(status));
    ASSERT_EQ(status, PLASMON_OK);
    ASSERT_EQ(poll(&ready, 1, (int)CLUSTER_WAIT_MS), 1);
    expect_ramp(out, COUNT, 3, 0);
    plasmon_finish(client);
    (void)close(heard.fd[0]);
    (void)close(heard.fd[1]);
}

/* ---------------------------------------------------------------------- what may not be */

TEST(memory_that_a_copy_is_at_is_neither_freed_nor_copied_over)
{
    struct plasmon_client *client = cluster_start(1);
    struct plasmon_shape shape    = cluster_vector(PLASMON_F32, 1000);
    float *memory                 = alloc(client, BYTES);
    struct plasmon_ref *x         = cluster_fill(client, 1000, 4, 0);
    struct plasmon_ref *task, *other, *y;

    cluster_spin(client, x, 1000000, 0, NULL);
    task = get(client, x, memory + 1000, 1000); /* behind that second */
    ASSERT_STATUS(plasmon_host_free(client, memory), PLASMON_EBUSY);
    ASSERT_STATUS(plasmon_put_async(client, memory + 1999, &shape, NULL, &y),
                  PLASMON_EBUSY);
    ASSERT_CONTAINS(plasmon_error(client), "a get of bytes 4000 to 8000");
    ASSERT_STATUS(plasmon_get_async(client, x, memory + 1, 4000, &other), PLASMON_EBUSY);
    y     = put(client, memory + 2000, 1000, 0); /* beside it */
    other = put(client, memory + 2000, 1000, 0); /* twice is no harm */
    wait_for(client, y);
    wait_for(client, other);
    wait_for(client, task);
    expect_ramp(memory + 1000, 1000, 4, 0);
    CLUSTER_OK(plasmon_host_free(client, memory));
    plasmon_finish(client);
}

TEST(wrong_calls_say_what_is_wrong)
{
    struct plasmon_client *client = cluster_start(1);
    struct plasmon_shape shape    = cluster_vector(PLASMON_F32, 1000);
    float *memory = alloc(client, 4000), ordinary[1000] = {0};
    struct plasmon_ref *x = cluster_fill(client, 1000, 4, 0), *ref, *task;
    void *none;

    ASSERT_STATUS(plasmon_host_alloc(client, 0, &none), PLASMON_EINVAL);
    ASSERT_STATUS(plasmon_host_alloc(client, 4096, NULL), PLASMON_EINVAL);
    ASSERT_STATUS(plasmon_put_async(client, ordinary, &shape, NULL, &ref), PLASMON_EINVAL);
    ASSERT_CONTAINS(plasmon_error(client), "plasmon_host_alloc");
    ASSERT_STATUS(plasmon_put_async(client, memory + 1, &shape, NULL, &ref),
                  PLASMON_ERANGE);
    ASSERT_STATUS(plasmon_put_async(client, memory, NULL, NULL, &ref), PLASMON_EINVAL);
    ASSERT_STATUS(plasmon_put_async(client, memory, &shape, NULL, NULL), PLASMON_EINVAL);
    ASSERT_STATUS(plasmon_get_async(client, x, memory, 3999, &task), PLASMON_ESHAPE);
    ASSERT_STATUS(plasmon_get_async(client, x, ordinary, 4000, &task), PLASMON_EINVAL);
    ASSERT_STATUS(plasmon_get_async(client, x, memory + 1, 4000, &task), PLASMON_ERANGE);
    ASSERT_STATUS(plasmon_get_async(client, x, memory, 4000, NULL), PLASMON_EINVAL);
    ASSERT_STATUS(plasmon_get_async(client, NULL, memory, 4000, &task), PLASMON_EINVAL);
    task = get(client, x, memory, 1000);
    ASSERT_STATUS(plasmon_get_async(client, task, memory, 4000, &ref), PLASMON_EINVAL);
    wait_for(client, task);
    CLUSTER_OK(plasmon_release(client, x));
    ASSERT_STATUS(plasmon_get_async(client, x, memory, 4000, &task), PLASMON_ERELEASED);
    ASSERT_STATUS(plasmon_host_free(client, memory + 4), PLASMON_EINVAL);
    CLUSTER_OK(plasmon_host_free(client, NULL));
    CLUSTER_OK(plasmon_host_free(client, memory));
    ASSERT_STATUS(plasmon_host_free(client, memory), PLASMON_EINVAL);
    plasmon_finish(client);
}

TEST(a_get_of_what_failed_fails_likewise)
{
    struct plasmon_client *client = cluster_start(1);
    float *memory                 = alloc(client, BYTES);
    struct plasmon_ref *x         = cluster_fill(client, COUNT, 4, 0);
    struct plasmon_ref *busy, *spun, *task, *late;

    cluster_spin(client, x, 300000, 0, &busy);
    cluster_spin(client, x, 1000, 0, &spun);
    task = get(client, x, memory, COUNT);
    CLUSTER_OK(plasmon_cancel_force(client, spun));
    ASSERT_STATUS(plasmon_wait(client, &task, 1, 1, CLUSTER_WAIT_MS, NULL, NULL),
                  PLASMON_OK);
    ASSERT_STATUS(plasmon_state(client, task), PLASMON_EDEPENDENCY);
    late = get(client, x, memory, COUNT);
    ASSERT_STATUS(plasmon_wait(client, &late, 1, 1, CLUSTER_WAIT_MS, NULL, NULL),
                  PLASMON_OK);
    ASSERT_STATUS(plasmon_state(client, late), PLASMON_EDEPENDENCY);
    CLUSTER_OK(plasmon_host_free(client, memory)); /* nothing is at it any more */
    plasmon_finish(client);
}

TEST(the_limit_says_what_is_in_use_and_freeing_helps)
{
    struct plasmon_options options = PLASMON_OPTIONS_INIT;
    struct plasmon_client *client;
    float *memory;
    void *more;

    cluster_tag();
    options.gpus        = "none";
    options.cpu_devices = 2;
    options.host_memory = 8 << 20;
    CLUSTER_OK(plasmon_init(&options, &client));
    memory = alloc(client, 6 << 20);
    ASSERT_STATUS(plasmon_host_alloc(client, 4 << 20, &more), PLASMON_ELIMIT);
    ASSERT_CONTAINS(plasmon_error(client), "--host-memory");
    CLUSTER_OK(plasmon_host_free(client, memory));
    memory = alloc(client, 8 << 20);
    CLUSTER_OK(plasmon_host_free(client, memory));
    plasmon_finish(client);
}

/* ------------------------------------------------------------------------------- deaths */

TEST(copies_of_a_worker_that_dies_are_done_by_the_next)
{
    struct plasmon_client *client = cluster_start(2);
    float *in = alloc(client, BYTES), *out = alloc(client, BYTES);

    ramp(in, COUNT, 3);
    for (int round = 0; round < 5; round++) {
        pid_t worker          = cluster_worker(client, 0);
        struct plasmon_ref *x = put(client, in, COUNT, 0), *y, *spun, *task;

        memset(out, 0, BYTES);
        cluster_spin(client, x, 300000, 0, &spun);
        y    = cluster_copy(client, x, 0);
        task = get(client, y, out, COUNT);
        CLUSTER_OK(plasmon_flush(client));
        if (round % 2 == 0) { /* in the middle of the spinning, or anywhere */
            ASSERT_STATUS(plasmon_wait(client, &spun, 1, 1, 100, NULL, NULL),
                          PLASMON_ETIMEDOUT);
        }
        cluster_kill(worker);
        wait_for(client, task);
        expect_ramp(out, COUNT, 3, 1);
        CLUSTER_OK(plasmon_release(client, x));
        CLUSTER_OK(plasmon_release(client, y));
    }
    plasmon_finish(client);
}

TEST(a_forked_child_shares_the_bytes_and_nothing_else)
{
    struct plasmon_client *client = cluster_start(1);
    struct plasmon_shape shape    = cluster_vector(PLASMON_F32, 2000);
    float *memory                 = alloc(client, 8000);
    struct plasmon_ref *ref, *task;
    pid_t child;
    int status;

    ramp(memory, 2000, 1);
    ref   = put(client, memory, 2000, 0);
    child = fork();
    if (child == 0) {
        bool right =
            memory[1999] == 2000 &&
            plasmon_put_async(client, memory, &shape, NULL, &task) == PLASMON_EFORKED &&
            plasmon_get_async(client, ref, memory, 8000, &task) == PLASMON_EFORKED &&
            plasmon_host_free(client, memory) == PLASMON_EFORKED;

        plasmon_abandon(client);
        _exit(right ? 0 : 1);
    }
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_EQ(status, 0);
    wait_for(client, ref);
    memset(memory, 0, 8000);
    wait_for(client, get(client, ref, memory, 2000));
    expect_ramp(memory, 2000, 1, 1);
    plasmon_finish(client);
}

/* In a child that is killed with a get on its way. */
static void alloc_and_hang(int ready)
{
    struct plasmon_client *client = started_join();
    float *memory                 = alloc(client, 12 << 20);
    struct plasmon_ref *x         = cluster_fill(client, COUNT, 1, 0), *task;

    cluster_spin(client, x, 2000000, 0, NULL);
    task = get(client, x, memory, COUNT);
    CLUSTER_OK(plasmon_flush(client));
    (void)task;
    (void)!write(ready, "x", 1);
    for (;;) {
        (void)pause();
    }
}

TEST(memory_of_a_client_that_dies_is_the_hosts_again)
{
    struct plasmon_client *client;
    int pipes[2], status;
    pid_t child;
    char byte;

    started_cluster_with(1, "--host-memory", "16M");
    ASSERT_EQ(pipe(pipes), 0);
    child = fork();
    if (child == 0) {
        alloc_and_hang(pipes[1]);
    }
    ASSERT_EQ(read(pipes[0], &byte, 1), 1);
    ASSERT_EQ(kill(child, SIGKILL), 0);
    ASSERT_EQ(waitpid(child, &status, 0), child);
    client = started_join();
    CLUSTER_OK(plasmon_host_free(client, alloc(client, 16 << 20)));
    expect_axpy(client, 0);
    plasmon_finish(client);
}

/* ------------------------------------------------------------- without a device at hand */

TEST(without_shared_memory_the_same_calls_do_the_same)
{
    struct plasmon_client *client;
    struct plasmon_ref *x, *task;
    float *memory;

    ASSERT_EQ(setenv("PLASMON_CLIENT_PATH", "messages", 1), 0);
    client = cluster_start(2);
    expect_axpy(client, 0);
    expect_axpy(client, PLASMON_ANYWHERE);
    /* by messages, all of it */
    ASSERT_TRUE(started_status(client, HOST_ROUTE, "copies") <= 0);

    memory = alloc(client, BYTES);
    x      = cluster_fill(client, COUNT, 2, 0);
    cluster_spin(client, x, 500000, 0, NULL);
    task = get(client, x, memory, COUNT);
    ASSERT_STATUS(plasmon_state(client, task), PLASMON_INPROGRESS);
    ASSERT_STATUS(plasmon_host_free(client, memory), PLASMON_EBUSY);
    wait_for(client, task);
    expect_ramp(memory, COUNT, 2, 0);
    cluster_spin(client, x, 3000000, 0, NULL);
    task = get(client, x, memory, COUNT);
    plasmon_finish(client); /* with that on its way */
    cluster_expect_gone(CLUSTER_GONE_MS + 3000);
}

TEST_MAIN()
