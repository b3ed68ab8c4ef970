/*
 * The ways of a client's bytes: mapped, staged through a lane, and by messages. Each moves the same
 * bytes, of any size and shape; the staged one goes on when the worker is replaced in the middle,
 * and ends when the store is gone.
 */
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/base.h"
#include "base/clock.h"
#include "tests/integration/cluster.h"

#define MIB (UINT64_C(1) << 20)

static struct plasmon_client *start(const char *path, uint32_t devices)
{
    struct plasmon_client *client;

    cluster_tag();
    ASSERT_EQ(setenv("PLASMON_CLIENT_PATH", path, 1), 0);
    client = cluster_start_sized(devices, 1024 * MIB);
    test_set_timeout(150);
    return client;
}

/* Bytes in which no two pieces of a transfer are alike. */
static uint8_t *bytes_make(uint64_t count, uint64_t seed)
{
    uint64_t words = count / 8 + 1;
    uint64_t *data = malloc(words * 8);

    ASSERT_NOT_NULL(data);
    for (uint64_t i = 0; i < words; i++) {
        data[i] = (i + seed) * UINT64_C(0x9e3779b97f4a7c15);
    }
    return (uint8_t *)data;
}

static void expect_same(const uint8_t *got, const uint8_t *want, uint64_t count)
{
    if (memcmp(got, want, count) != 0) {
        uint64_t i = 0;

        while (got[i] == want[i]) {
            i++;
        }
        test_fail(__FILE__, __LINE__, "of %llu bytes, number %llu is %u and should be %u",
                  (unsigned long long)count, (unsigned long long)i, got[i], want[i]);
    }
}

static struct plasmon_ref *put_bytes(struct plasmon_client *client, const uint8_t *data,
                                     uint64_t count)
{
    struct plasmon_shape shape = cluster_vector(PLASMON_U8, (int64_t)count);
    struct plasmon_ref *ref;

    CLUSTER_OK(plasmon_put(client, data, &shape, NULL, &ref));
    return ref;
}

static void round_trip(struct plasmon_client *client, uint64_t count, uint64_t seed)
{
    uint8_t *data           = bytes_make(count, seed);
    uint8_t *back           = calloc(1, count);
    struct plasmon_ref *ref = put_bytes(client, data, count);

    ASSERT_NOT_NULL(back);
    CLUSTER_OK(plasmon_get(client, ref, back, count, PLASMON_FOREVER));
    expect_same(back, data, count);
    CLUSTER_OK(plasmon_release(client, ref));
    free(back);
    free(data);
}

static const uint64_t sizes[] = {1,
                                 7,
                                 4095,
                                 256 * 1024,
                                 256 * 1024 + 1,
                                 1000003,
                                 2 * MIB - 1,
                                 2 * MIB,
                                 2 * MIB + 1,
                                 5 * MIB + 11,
                                 8 * MIB + 3,
                                 16 * MIB + 4097,
                                 33 * MIB + 1,
                                 200 * MIB - 13};

/* Bytes that went through lanes, as the workers count them; they tell every now and then. */
static void expect_lane(struct plasmon_client *client, uint64_t least)
{
    uint64_t deadline_ns = pl_now_ns() + CLUSTER_WAIT_MS * UINT64_C(1000000);
    uint64_t bytes       = 0;

    do {
        const char *found, *number;
        char *text;

        CLUSTER_OK(plasmon_status_json(client, &text));
        found  = strstr(text, "{\"route\":\"lane\"");
        number = found != NULL ? strstr(found, "\"bytes\":") : NULL;
        bytes  = number != NULL ? strtoull(number + strlen("\"bytes\":"), NULL, 10) : 0;
        free(text);
    } while (bytes < least && pl_now_ns() < deadline_ns);
    if (bytes < least) {
        test_fail(__FILE__, __LINE__, "%llu bytes went through lanes, not %llu",
                  (unsigned long long)bytes, (unsigned long long)least);
    }
}

static void all_sizes(const char *path, uint64_t largest)
{
    struct plasmon_client *client = start(path, 1);
    uint64_t moved                = 0;

    for (size_t i = 0; i < PL_COUNT(sizes) && sizes[i] <= largest; i++) {
        round_trip(client, sizes[i], i);
        moved += sizes[i] > 256 * 1024 ? 2 * sizes[i] : 0; /* smaller puts go in messages */
    }
    expect_lane(client, strcmp(path, "staged") == 0 ? moved : 0);
    plasmon_finish(client);
    cluster_expect_gone(CLUSTER_GONE_MS);
}

TEST(bytes_come_back_as_they_were_through_a_lane)
{
    all_sizes("staged", UINT64_MAX);
}

TEST(bytes_come_back_as_they_were_through_mapped_memory)
{
    all_sizes("mapped", UINT64_MAX);
}

TEST(bytes_come_back_as_they_were_by_messages)
{
    all_sizes("messages", 16 * MIB + 4097);
}

TEST(an_unknown_path_is_refused_by_name)
{
    struct plasmon_options options = PLASMON_OPTIONS_INIT;
    struct plasmon_client *client;

    cluster_tag();
    ASSERT_EQ(setenv("PLASMON_CLIENT_PATH", "express", 1), 0);
    options.gpus = "none";
    ASSERT_STATUS(plasmon_init(&options, &client), PLASMON_EINVAL);
    ASSERT_CONTAINS(plasmon_error(NULL), "express");
}

/* -------------------------------------------------------------------------------- views */

#define ROWS    400
#define COLUMNS 3000

/* float [r, c] = r * COLUMNS + c */
static struct plasmon_ref *put_matrix(struct plasmon_client *client, int device)
{
    struct plasmon_shape shape = {.dtype = PLASMON_F32, .ndim = 2, .dim = {ROWS, COLUMNS}};
    struct plasmon_put_options options = PLASMON_PUT_INIT;
    float *data                        = malloc(sizeof(float) * ROWS * COLUMNS);
    struct plasmon_ref *ref;

    ASSERT_NOT_NULL(data);
    for (int i = 0; i < ROWS * COLUMNS; i++) {
        data[i] = (float)i;
    }
    options.device = device;
    CLUSTER_OK(plasmon_put(client, data, &shape, &options, &ref));
    free(data);
    return ref;
}

static void expect_view(struct plasmon_client *client, struct plasmon_ref *matrix,
                        const int64_t start_at[2], const int64_t count[2],
                        const int64_t step[2], float added)
{
    size_t elements = (size_t)(count[0] * count[1]);
    float *got      = calloc(elements, sizeof(float));
    struct plasmon_ref *view;

    ASSERT_NOT_NULL(got);
    CLUSTER_OK(plasmon_view(client, matrix, start_at, count, step, &view));
    CLUSTER_OK(plasmon_get(client, view, got, elements * sizeof(float), PLASMON_FOREVER));
    for (int64_t r = 0; r < count[0]; r++) {
        for (int64_t c = 0; c < count[1]; c++) {
            float want =
                (float)((start_at[0] + r * step[0]) * COLUMNS + start_at[1] + c * step[1]) +
                added;

            if (got[r * count[1] + c] != want) {
                test_fail(__FILE__, __LINE__, "element [%lld,%lld] is %g and should be %g",
                          (long long)r, (long long)c, (double)got[r * count[1] + c],
                          (double)want);
            }
        }
    }
    CLUSTER_OK(plasmon_release(client, view));
    free(got);
}

static void expect_views(struct plasmon_client *client, struct plasmon_ref *matrix,
                         float added)
{
    static const int64_t views[][3][2] = {
        {{0, 0}, {ROWS, COLUMNS}, {1, 1}},         /* all */
        {{3, 0}, {100, COLUMNS}, {1, 1}},          /* rows */
        {{0, 5}, {ROWS, 17}, {1, 1}},              /* columns */
        {{10, 20}, {4, 2000}, {1, 1}},             /* a few long runs */
        {{1, 2}, {ROWS / 3, COLUMNS / 7}, {3, 7}}, /* strides */
        {{7, 0}, {ROWS / 10, COLUMNS}, {10, 1}},
        {{399, 2999}, {1, 1}, {1, 1}}, /* an element */
    };

    for (size_t i = 0; i < PL_COUNT(views); i++) {
        expect_view(client, matrix, views[i][0], views[i][1], views[i][2], added);
    }
}

TEST(views_come_back_dense_through_a_lane)
{
    struct plasmon_client *client = start("staged", 2);
    struct plasmon_ref *matrix    = put_matrix(client, 0);

    expect_views(client, matrix, 0);
    plasmon_finish(client);
    cluster_expect_gone(CLUSTER_GONE_MS);
}

static void shift_rows(struct plasmon_client *client, struct plasmon_ref *matrix,
                       int64_t first, int64_t rows, int device)
{
    struct plasmon_arg args[2] = {{.mode = PLASMON_INOUT}, {.mode = PLASMON_IN}};
    const plasmon_scalar_t one = {.f = 1};
    int64_t start_at[2] = {first, 0}, count[2] = {rows, COLUMNS};
    struct plasmon_call call   = PLASMON_CALL_INIT;
    struct plasmon_shape shape = {.dtype = PLASMON_F32, .ndim = 2, .dim = {rows, COLUMNS}};
    float *ones                = malloc(sizeof(float) * (size_t)(rows * COLUMNS));

    ASSERT_NOT_NULL(ones);
    for (int64_t i = 0; i < rows * COLUMNS; i++) {
        ones[i] = 1;
    }
    CLUSTER_OK(plasmon_put(client, ones, &shape, NULL, &args[1].ref));
    CLUSTER_OK(plasmon_view(client, matrix, start_at, count, NULL, &args[0].ref));
    call.function     = "axpy";
    call.args         = args;
    call.arg_count    = 2;
    call.scalars      = &one;
    call.scalar_count = 1;
    call.device       = device;
    CLUSTER_OK(plasmon_submit(client, &call, NULL, NULL));
    CLUSTER_OK(plasmon_release(client, args[0].ref));
    CLUSTER_OK(plasmon_release(client, args[1].ref));
    free(ones);
}

TEST(an_array_on_two_devices_comes_back_in_one_piece)
{
    struct plasmon_client *client = start("staged", 2);
    struct plasmon_ref *matrix    = put_matrix(client, 0);

    shift_rows(client, matrix, 0, ROWS / 2, 0);
    shift_rows(client, matrix, ROWS / 2, ROWS / 2, 1);
    expect_views(client, matrix, 1);
    plasmon_finish(client);
}

static void published_view(const char *path)
{
    struct plasmon_client *client = start(path, 1);
    struct plasmon_ref *matrix    = put_matrix(client, 0), *view, *found;
    int64_t start_at[2] = {10, 20}, count[2] = {30, 40}, step[2] = {2, 3};
    struct plasmon_mapping *mapping = NULL;
    float got[30][40];

    CLUSTER_OK(plasmon_view(client, matrix, start_at, count, step, &view));
    CLUSTER_OK(plasmon_publish(client, "part", view));
    CLUSTER_OK(plasmon_lookup(client, "part", &found));
    CLUSTER_OK(plasmon_get(client, found, got, sizeof(got), PLASMON_FOREVER));
    ASSERT_TRUE(got[0][0] == 10 * COLUMNS + 20 && got[29][39] == 68 * COLUMNS + 137);
    if (strcmp(path, "mapped") == 0) {
        const int64_t *stride;

        CLUSTER_OK(plasmon_map(client, found, PLASMON_FOREVER, &mapping));
        stride = plasmon_mapping_strides(mapping);
        for (int64_t r = 0; r < 30; r++) {
            for (int64_t c = 0; c < 40; c++) {
                const float *data = plasmon_mapping_data(mapping);

                ASSERT_TRUE(data[r * stride[0] + c * stride[1]] == got[r][c]);
            }
        }
        plasmon_unmap(mapping);
    }
    plasmon_finish(client);
}

TEST(a_name_published_from_a_view_can_be_had_through_a_lane)
{
    published_view("staged");
}

TEST(a_name_published_from_a_view_can_be_mapped)
{
    published_view("mapped");
}

/* ------------------------------------------------------------------------- small values */

static struct plasmon_ref *small_result(struct plasmon_client *client, double value,
                                        int device)
{
    return cluster_fill(client, 2, value, device);
}

static void expect_small(struct plasmon_client *client, struct plasmon_ref *ref,
                         float value)
{
    float got[2] = {0, 0};

    CLUSTER_OK(plasmon_get(client, ref, got, sizeof(got), PLASMON_FOREVER));
    if (got[0] != value || got[1] != value) {
        test_fail(__FILE__, __LINE__, "got %g, %g and not %g", (double)got[0],
                  (double)got[1], (double)value);
    }
}

/* In the order in which they were made: these are read ahead. And then what a later task makes of them. */
static void small_values(const char *path)
{
    struct plasmon_client *client = start(path, 2);
    struct plasmon_ref *refs[500];

    for (int i = 0; i < 500; i++) {
        refs[i] = small_result(client, i, i % 2);
    }
    CLUSTER_OK(plasmon_wait(client, refs, 500, 500, CLUSTER_WAIT_MS, NULL, NULL));
    for (int i = 0; i < 250; i++) {
        expect_small(client, refs[i], (float)i);
    }
    for (int i = 100; i < 400; i++) { /* some were got, some only read ahead, some not */
        CLUSTER_OK(cluster_axpy(client, refs[i], refs[0], 0, i % 2));
        CLUSTER_OK(cluster_axpy(client, refs[i], refs[1], 1000, i % 2));
    }
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 500; i++) {
            expect_small(client, refs[i], (float)(i < 100 || i >= 400 ? i : i + 1000));
        }
    }
    for (int i = 0; i < 500; i++) {
        CLUSTER_OK(plasmon_release(client, refs[i]));
    }
    plasmon_finish(client);
    cluster_expect_gone(CLUSTER_GONE_MS);
}

TEST(small_values_are_those_of_the_present_version_mapped)
{
    small_values("mapped");
}

TEST(small_values_are_those_of_the_present_version_staged)
{
    small_values("staged");
}

TEST(a_get_of_what_will_fail_says_why)
{
    struct plasmon_client *client = start("auto", 1);
    struct plasmon_ref *x         = cluster_fill(client, 2, 1, 0), *failed;
    float got[2];

    cluster_spin(client, x, 1500000, 0, NULL);
    for (
        unsigned i = 0; i < 300;
        i++) { /* more than a worker keeps on its device: what is there cannot be cancelled */
        cluster_spin(client, x, 0, 0, NULL);
    }
    failed = cluster_copy(client, x, 0);
    CLUSTER_OK(plasmon_cancel(client, failed));
    ASSERT_STATUS(plasmon_get(client, failed, got, sizeof(got), PLASMON_FOREVER),
                  PLASMON_ECANCELLED);
    ASSERT_CONTAINS(plasmon_error(client), "(copy)");
    cluster_spin(client, x, 1000000, 0, NULL);
    ASSERT_STATUS(plasmon_get(client, x, got, sizeof(got), 1), PLASMON_ETIMEDOUT);
    ASSERT_CONTAINS(plasmon_error(client), "pending");
    plasmon_finish(client);
}

/* --------------------------------------------------------------------- at the same time */

struct user {
    struct plasmon_client *client;
    uint64_t seed;
    uint64_t bytes;
    unsigned rounds;
    pthread_t thread;
};

static void *user_run(void *arg)
{
    struct user *user = arg;

    for (unsigned i = 0; i < user->rounds; i++) {
        round_trip(user->client, user->bytes + i, user->seed * 1000 + i);
    }
    return NULL;
}

/* Six threads want twelve slots each; a lane has sixteen. */
TEST(threads_that_find_no_slot_wait_for_one)
{
    struct plasmon_client *client = start("staged", 1);
    struct user users[6];

    for (size_t i = 0; i < PL_COUNT(users); i++) {
        users[i] = (struct user){
            .client = client, .seed = i + 1, .bytes = 9 * MIB + i * 77777, .rounds = 4};
        ASSERT_EQ(pthread_create(&users[i].thread, NULL, user_run, &users[i]), 0);
    }
    for (size_t i = 0; i < PL_COUNT(users); i++) {
        ASSERT_EQ(pthread_join(users[i].thread, NULL), 0);
    }
    plasmon_finish(client);
    cluster_expect_gone(CLUSTER_GONE_MS);
}

/* -------------------------------------------------------------------------------- death */

TEST(a_transfer_goes_on_when_its_worker_is_replaced_in_the_middle)
{
    struct plasmon_client *client = start("staged", 1);
    struct user users[2];
    uint64_t random = test_seed();

    test_expect_log();
    for (size_t i = 0; i < PL_COUNT(users); i++) {
        users[i] = (struct user){
            .client = client, .seed = i + 1, .bytes = 40 * MIB + i, .rounds = 12};
        ASSERT_EQ(pthread_create(&users[i].thread, NULL, user_run, &users[i]), 0);
    }
    for (int i = 0; i < 5; i++) {
        pid_t old = cluster_worker(client, 0);

        (void)poll(NULL, 0, (int)(test_random(&random) % 60)); /* somewhere in a transfer */
        cluster_kill(old);
        ASSERT_TRUE(cluster_worker(client, 0) != old);
    }
    for (size_t i = 0; i < PL_COUNT(users); i++) {
        ASSERT_EQ(pthread_join(users[i].thread, NULL), 0);
    }
    plasmon_finish(client);
    cluster_expect_gone(CLUSTER_GONE_MS);
}

static void *put_until_it_fails(void *arg)
{
    struct user *user          = arg;
    uint8_t *data              = bytes_make(user->bytes, 1);
    struct plasmon_shape shape = cluster_vector(PLASMON_U8, (int64_t)user->bytes);
    plasmon_status_t status    = PLASMON_OK;

    while (status == PLASMON_OK) {
        struct plasmon_ref *ref;

        status = plasmon_put(user->client, data, &shape, NULL, &ref);
        if (status == PLASMON_OK) {
            (void)plasmon_release(user->client, ref);
        }
    }
    user->seed = (uint64_t)-status;
    free(data);
    return NULL;
}

TEST(a_put_ends_when_the_store_is_killed_in_the_middle)
{
    struct plasmon_client *client = start("staged", 1);
    struct user user              = {.client = client, .bytes = 60 * MIB};

    test_expect_log();
    ASSERT_EQ(pthread_create(&user.thread, NULL, put_until_it_fails, &user), 0);
    (void)poll(NULL, 0, 200);
    cluster_kill(cluster_find("plasmon-store", -1));
    ASSERT_EQ(pthread_join(user.thread, NULL), 0);
    ASSERT_EQ(user.seed, -PLASMON_ECLOSED);
    plasmon_finish(client);
    cluster_expect_gone(CLUSTER_GONE_MS);
}

/* ------------------------------------------------------------------------------ failure */

TEST(a_put_that_finds_no_memory_fails_and_leaves_nothing_open)
{
    struct plasmon_client *client = start("staged", 1);
    uint8_t *data                 = bytes_make(600 * MIB, 1);
    struct plasmon_shape shape    = cluster_vector(PLASMON_U8, 600 * MIB);
    struct plasmon_ref *first, *second;

    CLUSTER_OK(plasmon_put(client, data, &shape, NULL, &first));
    ASSERT_STATUS(plasmon_put(client, data, &shape, NULL, &second), PLASMON_EDEVMEM);
    ASSERT_CONTAINS(plasmon_error(client), "put on device 0");
    ASSERT_TRUE(strstr(plasmon_error(client), "internal") == NULL); /* it was ours */
    CLUSTER_OK(plasmon_release(client, first));
    CLUSTER_OK(plasmon_put(client, data, &shape, NULL,
                           &second)); /* and its memory is free again */
    free(data);
    plasmon_finish(client);
}

TEST_MAIN()
