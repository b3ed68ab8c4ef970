/*
 * A client's bytes to a GPU and back, through lanes: sizes from a byte to 2 GiB, views, several
 * clients at once, a worker that is killed in the middle, and what it all reaches beside memcpy and
 * bare pinned copies (printed, not asserted: bench/tasks_paths.c measures).
 *
 * The bare copies run in a child that ends before the first cluster starts: neither a driver nor
 * gRPC survives a fork.
 */
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "base/clock.h"
#include "device/device.h"
#include "tests/integration/cluster.h"

#define MIB     (UINT64_C(1) << 20)
#define WAIT_MS 120000u

static void px_ok(struct plasmon_client *px, plasmon_status_t status, const char *what,
                  int line)
{
    if (status != PLASMON_OK) {
        test_fail(__FILE__, line, "%s: %s: %s", what, plasmon_status_name(status),
                  plasmon_error(px));
    }
}
#define PX_OK(px, call) px_ok(px, call, #call, __LINE__)

static uint64_t gpu_bytes; /* of device 0 */

static struct plasmon_client *start(const char *path)
{
    struct plasmon_options options = PLASMON_OPTIONS_INIT;
    struct plasmon_device_info infos[16];
    struct plasmon_client *px;
    uint32_t count;

    cluster_tag();
    test_set_timeout(300);
    ASSERT_EQ(setenv("PLASMON_CLIENT_PATH", path, 1), 0);
    PX_OK(NULL, plasmon_init(&options, &px));
    PX_OK(px, plasmon_devices(px, infos, 16, &count));
    if (count == 0 || infos[0].kind != 2) {
        plasmon_finish(px);
        test_skip("no GPU");
    }
    gpu_bytes = infos[0].bytes_total;
    return px;
}

/* Bytes in which no two pieces of a transfer are alike; count is rounded up to words. */
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
    uint64_t i = 0, wrong = 0;

    if (memcmp(got, want, count) == 0) {
        return;
    }
    while (got[i] == want[i]) {
        i++;
    }
    for (uint64_t k = i; k < count; k++) {
        wrong += got[k] != want[k];
    }
    test_fail(__FILE__, __LINE__,
              "of %llu bytes %llu are wrong; the first is number %llu: %u and should be %u",
              (unsigned long long)count, (unsigned long long)wrong, (unsigned long long)i,
              got[i], want[i]);
}

static void round_trip(struct plasmon_client *px, uint64_t count, uint64_t seed,
                       double *out_put, double *out_get)
{
    struct plasmon_shape shape = {PLASMON_U8, 1, {(int64_t)count}};
    uint8_t *data              = bytes_make(count, seed);
    uint8_t *back              = malloc(count);
    struct plasmon_ref *ref;
    uint64_t began;

    ASSERT_NOT_NULL(back);
    memset(back, 0xa5,
           count); /* not 0: that would be calloc(), whose pages are not there yet */
    began = pl_now_ns();
    PX_OK(px, plasmon_put(px, data, &shape, NULL, &ref));
    PX_OK(px, plasmon_wait(px, &ref, 1, 1, WAIT_MS, NULL, NULL));
    *out_put = (double)count / (double)(pl_now_ns() - began);
    began    = pl_now_ns();
    PX_OK(px, plasmon_get(px, ref, back, count, WAIT_MS));
    *out_get = (double)count / (double)(pl_now_ns() - began);
    expect_same(back, data, count);
    PX_OK(px, plasmon_release(px, ref));
    free(back);
    free(data);
}

/* -------------------------------------------------------------------------------- sizes */

static const uint64_t sizes[] = {1,           8,           1000,           4096,
                                 65537,       256 * 1024,  256 * 1024 + 1, MIB,
                                 2 * MIB + 1, 7 * MIB - 3, 16 * MIB,       64 * MIB + 12345,
                                 256 * MIB,   1024 * MIB,  2048 * MIB};

static void all_sizes(const char *path, uint64_t largest)
{
    struct plasmon_client *px = start(path);
    double put, get, again_put, again_get;

    for (size_t i = 0;
         i < PL_COUNT(sizes) && sizes[i] <= pl_min_u64(largest, gpu_bytes / 4); i++) {
        round_trip(px, sizes[i], i, &put, &get);
        round_trip(px, sizes[i], i + 100, &again_put, &again_get);
        printf("# %s, %llu bytes: put %.3f, then %.3f GB/s; get %.3f, then %.3f GB/s\n",
               path, (unsigned long long)sizes[i], put, again_put, get, again_get);
    }
    plasmon_finish(px);
}

TEST(bytes_come_back_as_they_were_through_a_lane)
{
    all_sizes("staged", UINT64_MAX);
}

TEST(auto_is_the_lane)
{
    struct plasmon_client *px = start("auto");
    double put, get;
    char *text;

    round_trip(px, 64 * MIB, 1, &put, &get);
    for (int i = 0; i < 100; i++) { /* the workers tell every now and then */
        bool told;

        PX_OK(px, plasmon_status_json(px, &text));
        told = strstr(text, "\"route\":\"lane\"") != NULL;
        free(text);
        if (told) {
            plasmon_finish(px);
            return;
        }
        (void)poll(NULL, 0, 100);
    }
    test_fail(__FILE__, __LINE__, "no bytes went through a lane");
}

TEST(bytes_come_back_as_they_were_by_messages)
{
    all_sizes("messages", 64 * MIB + 12345);
}

/* ------------------------------------------------------------------- a bare pinned copy */

#define SLAB (64 * MIB)

/* GB/s both ways, in a child: it opens the device alone. */
static void bare_child(int fd)
{
    struct device_config config = {.bytes_max = 0};
    struct pl_err err           = {0};
    struct device_ptr memory;
    struct device_stream *stream;
    struct device *device;
    double rate[2] = {0, 0};
    uint8_t *slab;
    int chunk;

    slab = mmap(NULL, SLAB, PROT_READ | PROT_WRITE,
                MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (slab == MAP_FAILED ||
        device_open(DEVICE_CUDA, 0, &config, &device, &err) != PLASMON_OK ||
        device_stream_create(device, 0, &stream) != PLASMON_OK ||
        device_range_reserve(device, SLAB, &memory) != PLASMON_OK ||
        device_chunk_create(device, SLAB, &chunk) != PLASMON_OK ||
        device_chunk_map(device, chunk, SLAB, 0, true, memory) != PLASMON_OK ||
        device_host_register(device, slab, SLAB) != PLASMON_OK) {
        _exit(1);
    }
    for (int way = 0; way < 2; way++) {
        uint64_t began = 0;

        for (int i = 0; i < 18; i++) { /* two to warm up */
            if (i == 2) {
                (void)device_stream_sync(stream, &err);
                began = pl_now_ns();
            }
            (void)(way == 0 ? device_copy(stream, DEVICE_COPY_HOST_TO_DEVICE, memory.addr,
                                          (uint64_t)(uintptr_t)slab, SLAB)
                            : device_copy(stream, DEVICE_COPY_DEVICE_TO_HOST,
                                          (uint64_t)(uintptr_t)slab, memory.addr, SLAB));
        }
        if (device_stream_sync(stream, &err) != PLASMON_OK) {
            _exit(1);
        }
        rate[way] = 16.0 * (double)SLAB / (double)(pl_now_ns() - began);
    }
    _exit(write(fd, rate, sizeof(rate)) == (ssize_t)sizeof(rate) ? 0 : 1);
}

TEST(a_gibibyte_beside_a_bare_pinned_copy)
{
    double bare[2] = {0, 0}, put, get, best_put = 0, best_get = 0;
    struct plasmon_client *px;
    uint8_t *from, *to;
    uint64_t began;
    int fds[2], status;
    pid_t pid;

    ASSERT_EQ(pipe(fds), 0);
    pid = fork();
    ASSERT_TRUE(pid >= 0);
    if (pid == 0) {
        bare_child(fds[1]);
    }
    (void)close(fds[1]);
    if (read(fds[0], bare, sizeof(bare)) != (ssize_t)sizeof(bare)) {
        (void)waitpid(pid, &status, 0);
        test_skip("no GPU");
    }
    ASSERT_EQ(waitpid(pid, &status, 0), pid);

    px    = start("staged");
    from  = bytes_make(1024 * MIB, 7);
    to    = bytes_make(1024 * MIB, 8);
    began = pl_now_ns();
    memcpy(to, from, 1024 * MIB);
    expect_same(&to[512 * MIB], &from[512 * MIB], 1); /* or nothing would be copied */
    printf("# memcpy, one thread: %.2f GB/s\n",
           1024.0 * (double)MIB / (double)(pl_now_ns() - began));
    free(from);
    free(to);
    for (int i = 0; i < 4; i++) {
        round_trip(px, 1024 * MIB, (uint64_t)i, &put, &get);
        best_put = put > best_put ? put : best_put;
        best_get = get > best_get ? get : best_get;
    }
    printf("# 1 GiB: put %.2f GB/s beside %.2f bare, get %.2f GB/s beside %.2f bare\n",
           best_put, bare[0], best_get, bare[1]);
    plasmon_finish(px);
}

/* -------------------------------------------------------------------------------- views */

#define ROWS    1000
#define COLUMNS 5000

static void expect_view(struct plasmon_client *px, struct plasmon_ref *matrix,
                        const int64_t start_at[2], const int64_t count[2],
                        const int64_t step[2])
{
    size_t elements = (size_t)(count[0] * count[1]);
    float *got      = calloc(elements, sizeof(float));
    struct plasmon_ref *view;

    ASSERT_NOT_NULL(got);
    PX_OK(px, plasmon_view(px, matrix, start_at, count, step, &view));
    PX_OK(px, plasmon_get(px, view, got, elements * sizeof(float), WAIT_MS));
    for (int64_t r = 0; r < count[0]; r++) {
        for (int64_t c = 0; c < count[1]; c++) {
            float want =
                (float)((start_at[0] + r * step[0]) * COLUMNS + start_at[1] + c * step[1]);

            if (got[r * count[1] + c] != want) {
                test_fail(__FILE__, __LINE__,
                          "start %lld,%lld step %lld,%lld: element [%lld,%lld] is %g and "
                          "should be %g",
                          (long long)start_at[0], (long long)start_at[1],
                          (long long)step[0], (long long)step[1], (long long)r,
                          (long long)c, (double)got[r * count[1] + c], (double)want);
            }
        }
    }
    PX_OK(px, plasmon_release(px, view));
    free(got);
}

TEST(views_come_back_dense)
{
    static const int64_t views[][3][2] = {
        {{0, 0}, {ROWS, COLUMNS}, {1, 1}},
        {{3, 0}, {100, COLUMNS}, {1, 1}},
        {{0, 5}, {ROWS, 17}, {1, 1}},
        {{1, 2}, {ROWS / 3, COLUMNS / 7}, {3, 7}},
        {{7, 0}, {ROWS / 10, COLUMNS}, {10, 1}},
        {{999, 4999}, {1, 1}, {1, 1}},
    };
    struct plasmon_client *px  = start("staged");
    struct plasmon_shape shape = {PLASMON_F32, 2, {ROWS, COLUMNS}};
    float *data                = malloc(sizeof(float) * ROWS * COLUMNS);
    struct plasmon_ref *matrix;

    ASSERT_NOT_NULL(data);
    for (int i = 0; i < ROWS * COLUMNS; i++) {
        data[i] = (float)i;
    }
    PX_OK(px, plasmon_put(px, data, &shape, NULL, &matrix));
    for (size_t i = 0; i < PL_COUNT(views); i++) {
        expect_view(px, matrix, views[i][0], views[i][1], views[i][2]);
    }
    free(data);
    plasmon_finish(px);
}

/* ------------------------------------------------------------------------- small values */

TEST(many_small_results_come_one_after_the_other)
{
    struct plasmon_client *px  = start("staged");
    struct plasmon_shape shape = {PLASMON_F64, 0, {0}};
    enum { COUNT = 2000 };
    static struct plasmon_ref *refs[COUNT];
    uint64_t began;

    for (int i = 0; i < COUNT; i++) {
        plasmon_scalar_t value   = {.f = i};
        struct plasmon_arg out   = {.mode = PLASMON_OUT, .shape = &shape};
        struct plasmon_call call = PLASMON_CALL_INIT;

        call.function     = "fill";
        call.args         = &out;
        call.arg_count    = 1;
        call.scalars      = &value;
        call.scalar_count = 1;
        PX_OK(px, plasmon_submit(px, &call, &refs[i], NULL));
    }
    PX_OK(px, plasmon_wait(px, refs, COUNT, COUNT, WAIT_MS, NULL, NULL));
    for (int backwards = 1; backwards >= 0;
         backwards--) { /* the first half backwards: nothing is read ahead */
        began = pl_now_ns();
        for (int i = 0; i < COUNT / 2; i++) {
            int at     = backwards ? COUNT / 2 - 1 - i : COUNT / 2 + i;
            double got = -1;

            PX_OK(px, plasmon_get(px, refs[at], &got, sizeof(got), WAIT_MS));
            if (got != at) {
                test_fail(__FILE__, __LINE__, "result %d is %g", at, got);
            }
        }
        printf("# gets of 8 bytes%s: %.0f a second\n", backwards ? ", backwards" : "",
               COUNT / 2 * 1e9 / (double)(pl_now_ns() - began));
    }
    plasmon_finish(px);
}

/* ------------------------------------------------------------------- several, and death */

struct user {
    struct plasmon_client *px;
    uint64_t seed;
    unsigned rounds;
    pthread_t thread;
};

static void *user_run(void *arg)
{
    struct user *user = arg;
    double put, get;

    for (unsigned i = 0; i < user->rounds; i++) {
        round_trip(user->px, 40 * MIB + user->seed * 4099 + i, user->seed * 1000 + i, &put,
                   &get);
    }
    return NULL;
}

TEST(threads_share_a_lane)
{
    struct plasmon_client *px = start("staged");
    struct user users[4];

    for (size_t i = 0; i < PL_COUNT(users); i++) {
        users[i] = (struct user){.px = px, .seed = i + 1, .rounds = 5};
        ASSERT_EQ(pthread_create(&users[i].thread, NULL, user_run, &users[i]), 0);
    }
    for (size_t i = 0; i < PL_COUNT(users); i++) {
        ASSERT_EQ(pthread_join(users[i].thread, NULL), 0);
    }
    plasmon_finish(px);
}

TEST(a_transfer_goes_on_when_the_worker_is_killed)
{
    struct plasmon_client *px = start("staged");
    struct user user          = {.px = px, .seed = 3, .rounds = 40};

    test_expect_log();
    ASSERT_EQ(pthread_create(&user.thread, NULL, user_run, &user), 0);
    for (int i = 0; i < 3; i++) {
        pid_t worker = cluster_worker(px, 0);

        (void)poll(NULL, 0, 37 * (i + 1)); /* somewhere in a transfer */
        cluster_kill(worker);
        while (cluster_worker(px, 0) == worker) {
            (void)poll(NULL, 0, 10);
        }
    }
    ASSERT_EQ(pthread_join(user.thread, NULL), 0);
    plasmon_finish(px);
}

/* -------------------------------------------------------------------------- host memory */

static uint8_t *host_alloc(struct plasmon_client *px, uint64_t count)
{
    void *data;

    PX_OK(px, plasmon_host_alloc(px, count, &data));
    return data;
}

/* Put and got without a word in between; GB/s of both together. */
static double host_round_trip(struct plasmon_client *px, uint8_t *in, uint8_t *out,
                              uint64_t count, uint64_t seed)
{
    struct plasmon_shape shape = {PLASMON_U8, 1, {(int64_t)count}};
    uint8_t *data              = bytes_make(count, seed);
    struct plasmon_ref *ref, *got;
    uint64_t began, ns;

    memcpy(in, data, count);
    memset(out, 0, count);
    began = pl_now_ns();
    PX_OK(px, plasmon_put_async(px, in, &shape, NULL, &ref));
    PX_OK(px, plasmon_get_async(px, ref, out, count, &got));
    PX_OK(px, plasmon_wait(px, &got, 1, 1, WAIT_MS, NULL, NULL));
    ns = pl_now_ns() - began;
    PX_OK(px, plasmon_state(px, got));
    expect_same(out, data, count);
    PX_OK(px, plasmon_release(px, ref));
    PX_OK(px, plasmon_release(px, got));
    free(data);
    return 2 * (double)count / (double)ns;
}

TEST(host_memory_goes_to_a_gpu_and_back_by_itself)
{
    struct plasmon_client *px = start("auto");
    uint8_t *in, *out;
    double best = 0;

    in  = host_alloc(px, 1024 * MIB);
    out = host_alloc(px, 1024 * MIB);
    for (unsigned i = 0; i < PL_COUNT(sizes) && sizes[i] <= 1024 * MIB; i++) {
        (void)host_round_trip(px, in, out, sizes[i], i);
        (void)host_round_trip(px, in + sizes[i] % 64, out + sizes[i] % 61, sizes[i] / 2 + 1,
                              i); /* not on a page */
    }
    for (unsigned i = 0; i < 4; i++) {
        double rate = host_round_trip(px, in, out, 1024 * MIB, i);

        best = rate > best ? rate : best;
    }
    printf("# 1 GiB of host memory in and out: %.2f GB/s\n", best);
    PX_OK(px, plasmon_host_free(px, in));
    PX_OK(px, plasmon_host_free(px, out));
    plasmon_finish(px);
}

/* Unregistering waits for streams; it may hold up nobody. */
TEST(host_memory_comes_and_goes_while_the_gpu_is_busy)
{
    struct plasmon_client *px = start("auto");
    struct plasmon_ref *x     = cluster_fill(px, 1000, 1, 0);

    for (int i = 0; i < 8; i++) {
        uint8_t *in, *out;

        cluster_spin(px, x, 300000, 0, NULL);
        in  = host_alloc(px, 64 * MIB);
        out = host_alloc(px, 64 * MIB);
        (void)host_round_trip(px, in, out, 64 * MIB, (uint64_t)i);
        PX_OK(px, plasmon_host_free(px, in));
        PX_OK(px, plasmon_host_free(px, out));
    }
    plasmon_finish(px);
}

TEST(copies_of_host_memory_are_done_again_when_the_worker_is_killed)
{
    struct plasmon_client *px  = start("auto");
    uint64_t count             = 512 * MIB;
    struct plasmon_shape shape = {PLASMON_F32, 1, {(int64_t)(count / 4)}};
    uint8_t *in = host_alloc(px, count), *out = host_alloc(px, count);
    uint8_t *data = bytes_make(count, 11);

    test_expect_log();
    memcpy(in, data, count);
    for (int round = 0; round < 5; round++) {
        pid_t worker = cluster_worker(px, 0);
        struct plasmon_ref *ref, *copy, *got;

        memset(out, 0, count);
        PX_OK(px, plasmon_put_async(px, in, &shape, NULL, &ref));
        copy = cluster_copy(px, ref, 0);
        PX_OK(px, plasmon_get_async(px, copy, out, count, &got));
        PX_OK(px, plasmon_flush(px));
        (void)poll(NULL, 0, 5 * round); /* somewhere in the copies */
        cluster_kill(worker);
        PX_OK(px, plasmon_wait(px, &got, 1, 1, WAIT_MS, NULL, NULL));
        PX_OK(px, plasmon_state(px, got));
        expect_same(out, data, count);
        PX_OK(px, plasmon_release(px, ref));
        PX_OK(px, plasmon_release(px, copy));
        PX_OK(px, plasmon_release(px, got));
    }
    free(data);
    plasmon_finish(px);
}

TEST_MAIN()
