/*
 * Memory outlives its worker, on a GPU, through the whole system: objects of at least 32 GiB (less
 * where the device is smaller), views, replicas on a peer if there is one; the worker is killed,
 * and then lost to an illegal access in a kernel; every byte is compared by a checksum that the GPU
 * computes before and after, and a sample by value.
 */
#include <stdlib.h>
#include <string.h>

#include "plasmon/plasmon.h"
#include "tests/harness/test.h"
#include "tests/integration/cluster.h"

enum { OBJECTS_MAX = 34, SAMPLE = 1024, WAIT_MS = 120000 };

struct survive {
    struct plasmon_client *px;
    uint32_t objects;
    uint32_t devices;
    struct plasmon_ref *object[OBJECTS_MAX];
    struct plasmon_ref *replica_user;
    uint64_t sum[OBJECTS_MAX];
    float sample[OBJECTS_MAX][SAMPLE];
};

#define PX_OK(px, call)                                                                 \
    do {                                                                                \
        plasmon_status_t s_ = (call);                                                   \
        if (s_ != PLASMON_OK) {                                                         \
            test_fail(__FILE__, __LINE__, "%s: %s: %s", #call, plasmon_status_name(s_), \
                      plasmon_error(px));                                               \
        }                                                                               \
    } while (0)

static struct plasmon_ref *checksum(struct survive *s, struct plasmon_ref *ref, int device)
{
    struct plasmon_arg args[2] = {{.mode = PLASMON_OUT}, {.mode = PLASMON_IN, .ref = ref}};
    struct plasmon_call call   = PLASMON_CALL_INIT;
    struct plasmon_ref *sum;

    call.function  = "checksum";
    call.args      = args;
    call.arg_count = 2;
    call.device    = device;
    PX_OK(s->px, plasmon_submit(s->px, &call, &sum, NULL));
    return sum;
}

static uint64_t checksum_value(struct survive *s, struct plasmon_ref *ref)
{
    struct plasmon_ref *sum = checksum(s, ref, PLASMON_ANYWHERE);
    uint64_t value          = 0;

    PX_OK(s->px, plasmon_get(s->px, sum, &value, sizeof(value), WAIT_MS));
    PX_OK(s->px, plasmon_release(s->px, sum));
    return value;
}

static void sample(struct survive *s, struct plasmon_ref *ref, float out[SAMPLE])
{
    int64_t start = 12345, count = SAMPLE, step = 65537;
    struct plasmon_ref *view;

    PX_OK(s->px, plasmon_view(s->px, ref, &start, &count, &step, &view));
    PX_OK(s->px, plasmon_get(s->px, view, out, SAMPLE * sizeof(float), WAIT_MS));
    PX_OK(s->px, plasmon_release(s->px, view));
}

static void make(struct survive *s)
{
    const struct plasmon_shape shape = {PLASMON_F32, 1, {1 << 28}}; /* 1 GiB */
    struct plasmon_options options   = PLASMON_OPTIONS_INIT;
    struct plasmon_device_info infos[16];
    uint64_t bytes;

    cluster_tag();
    PX_OK(NULL, plasmon_init(&options, &s->px));
    PX_OK(s->px, plasmon_devices(s->px, infos, 16, &s->devices));
    if (infos[0].kind != 2) {
        test_skip("no GPU");
    }
    bytes      = infos[0].bytes_total;
    s->objects = bytes > (40ull << 30) ? 33 : (uint32_t)(bytes / 2 >> 30);
    for (uint32_t i = 0; i < s->objects; i++) {
        struct plasmon_arg arg      = {.mode = PLASMON_OUT, .shape = &shape};
        plasmon_scalar_t scalars[5] = {{.i = (int64_t)test_seed()},
                                       {.i = (int64_t)i << 28},
                                       {.i = 0},
                                       {.f = 0.0},
                                       {.f = 1.0}};
        struct plasmon_call call    = PLASMON_CALL_INIT;

        call.function     = "random_uniform";
        call.args         = &arg;
        call.arg_count    = 1;
        call.scalars      = scalars;
        call.scalar_count = 5;
        call.device       = 0;
        PX_OK(s->px, plasmon_submit(s->px, &call, &s->object[i], NULL));
    }
    for (uint32_t i = 0; i < s->objects; i++) {
        s->sum[i] = checksum_value(s, s->object[i]);
        if (i < 4) {
            sample(s, s->object[i], s->sample[i]);
        }
    }
    if (s->devices > 1) {
        /* Makes a replica of object 0 on device 1. */
        s->replica_user = checksum(s, s->object[0], 1);
        PX_OK(s->px, plasmon_wait(s->px, &s->replica_user, 1, 1, WAIT_MS, NULL, NULL));
    }
}

static void compare(struct survive *s)
{
    for (uint32_t i = 0; i < s->objects; i++) {
        uint64_t now = checksum_value(s, s->object[i]);

        if (now != s->sum[i]) {
            test_fail(__FILE__, __LINE__, "object %u changed: checksum %llx, was %llx", i,
                      (unsigned long long)now, (unsigned long long)s->sum[i]);
        }
        if (i < 4) {
            float again[SAMPLE];

            sample(s, s->object[i], again);
            ASSERT_TRUE(memcmp(again, s->sample[i], sizeof(again)) == 0);
        }
    }
}

TEST(objects_survive_a_killed_worker)
{
    static struct survive s;

    test_set_timeout(230);
    test_expect_log();
    make(&s);
    cluster_kill(cluster_worker(s.px, 0));
    compare(&s);
    printf("# %u GiB survived SIGKILL of their worker\n", s.objects);
    plasmon_finish(s.px);
}

TEST(objects_survive_an_illegal_access)
{
    static struct survive s;
    const struct plasmon_shape shape = {PLASMON_F32, 1, {16}};
    struct plasmon_arg arg           = {.mode = PLASMON_OUT, .shape = &shape};
    struct plasmon_call call         = PLASMON_CALL_INIT;
    struct plasmon_ref *bad;
    plasmon_status_t status;
    float out[16];

    test_set_timeout(230);
    test_expect_log();
    make(&s);
    call.function  = "test_illegal";
    call.args      = &arg;
    call.arg_count = 1;
    call.device    = 0;
    call.retries   = 0;
    PX_OK(s.px, plasmon_submit(s.px, &call, &bad, NULL));
    status = plasmon_get(s.px, bad, out, sizeof(out), WAIT_MS);
    printf("# the call that faults: %s: %s\n", plasmon_status_name(status),
           plasmon_error(s.px));
    ASSERT_EQ(status, PLASMON_EDEVICE);
    ASSERT_NOT_NULL(strstr(plasmon_error(s.px), "test_illegal"));
    ASSERT_NOT_NULL(strstr(plasmon_error(s.px), "CUDA_ERROR_ILLEGAL_ADDRESS"));
    compare(&s);
    printf("# %u GiB survived an illegal access\n", s.objects);
    plasmon_finish(s.px);
}

/* In place at the moment of death: that version is gone and says so; nothing else is. */
TEST(a_donation_in_flight_fails_with_a_status_of_its_own)
{
    static struct survive s;
    struct plasmon_arg arg;
    plasmon_scalar_t micros  = {.i = 30000000};
    struct plasmon_call call = PLASMON_CALL_INIT;
    struct plasmon_ref *task;
    plasmon_status_t status;

    test_set_timeout(230);
    test_expect_log();
    (void)setenv("PLASMON_LINEAGE_BYTES", "0", 1); /* or it is made again */
    make(&s);
    arg               = (struct plasmon_arg){.mode = PLASMON_INOUT, .ref = s.object[1]};
    call.function     = "spin";
    call.args         = &arg;
    call.arg_count    = 1;
    call.scalars      = &micros;
    call.scalar_count = 1;
    call.device       = 0;
    PX_OK(s.px, plasmon_submit(s.px, &call, NULL, &task));
    ASSERT_EQ(plasmon_wait(s.px, &task, 1, 1, 1500, NULL, NULL),
              PLASMON_ETIMEDOUT); /* it is spinning now */
    cluster_kill(cluster_worker(s.px, 0));
    (void)plasmon_wait(s.px, &task, 1, 1, WAIT_MS, NULL, NULL);
    status = plasmon_state(s.px, task);
    printf("# the donation: %s: %s\n", plasmon_status_name(status), plasmon_error(s.px));
    ASSERT_EQ(status, PLASMON_ECONSUMED);
    s.object[1] = s.object[0];
    s.sum[1]    = s.sum[0];
    memcpy(s.sample[1], s.sample[0], sizeof(s.sample[0]));
    compare(&s);
    plasmon_finish(s.px);
}

static struct plasmon_ref *filled(struct survive *s, double value)
{
    const struct plasmon_shape shape = {PLASMON_F32, 1, {SAMPLE}};
    struct plasmon_arg arg           = {.mode = PLASMON_OUT, .shape = &shape};
    plasmon_scalar_t scalar          = {.f = value};
    struct plasmon_call call         = PLASMON_CALL_INIT;
    struct plasmon_ref *ref;

    call.function     = "fill";
    call.args         = &arg;
    call.arg_count    = 1;
    call.scalars      = &scalar;
    call.scalar_count = 1;
    call.device       = 0;
    PX_OK(s->px, plasmon_submit(s->px, &call, &ref, NULL));
    return ref;
}

/* y += x */
static void add(struct survive *s, struct plasmon_ref *y, struct plasmon_ref *x)
{
    struct plasmon_arg args[2] = {{.mode = PLASMON_INOUT, .ref = y},
                                  {.mode = PLASMON_IN, .ref = x}};
    plasmon_scalar_t one       = {.f = 1};
    struct plasmon_call call   = PLASMON_CALL_INIT;

    call.function     = "axpy";
    call.args         = args;
    call.arg_count    = 2;
    call.scalars      = &one;
    call.scalar_count = 1;
    call.device       = 0;
    PX_OK(s->px, plasmon_submit(s->px, &call, NULL, NULL));
}

/*
 * Behind a kernel that spins, and can be repeated, lie updates in place: on its own stream, behind
 * its word, and on another one, which joins. They had not begun, so after the death they run as if
 * nothing had been.
 */
TEST(updates_in_place_that_had_not_begun_survive)
{
    static struct survive s;
    struct plasmon_options options = PLASMON_OPTIONS_INIT;
    struct plasmon_device_info infos[16];
    struct plasmon_ref *gate, *before, *chain, *joined, *other, *task;
    struct plasmon_arg arg;
    plasmon_scalar_t micros  = {.i = 8000000};
    struct plasmon_call call = PLASMON_CALL_INIT;
    float out[SAMPLE];

    test_set_timeout(230);
    test_expect_log();
    cluster_tag();
    PX_OK(NULL, plasmon_init(&options, &s.px));
    PX_OK(s.px, plasmon_devices(s.px, infos, 16, &s.devices));
    if (infos[0].kind != 2) {
        test_skip("no GPU");
    }
    gate   = filled(&s, 1);
    chain  = filled(&s, 10);
    joined = filled(&s, 100);
    other  = filled(&s, 1000);
    PX_OK(s.px, plasmon_wait(s.px, (struct plasmon_ref *[]){gate, chain, joined, other}, 4,
                             4, WAIT_MS, NULL, NULL));
    PX_OK(s.px, plasmon_snapshot(s.px, gate, &before)); /* so that it is not donated */
    arg               = (struct plasmon_arg){.mode = PLASMON_INOUT, .ref = gate};
    call.function     = "spin";
    call.args         = &arg;
    call.arg_count    = 1;
    call.scalars      = &micros;
    call.scalar_count = 1;
    call.device       = 0;
    call.retries      = 5;
    PX_OK(s.px, plasmon_submit(s.px, &call, NULL, &task));
    ASSERT_EQ(plasmon_wait(s.px, &task, 1, 1, 1500, NULL, NULL), PLASMON_ETIMEDOUT);
    add(&s, chain, gate);
    add(&s, joined,
        other); /* runs beside the kernel, and is known to be over before its stream waits */
    PX_OK(s.px, plasmon_wait(s.px, &joined, 1, 1, WAIT_MS, NULL, NULL));
    add(&s, joined, gate);
    PX_OK(s.px, plasmon_flush(s.px));
    ASSERT_EQ(plasmon_wait(s.px, &task, 1, 1, 500, NULL, NULL), PLASMON_ETIMEDOUT);
    cluster_kill(cluster_worker(s.px, 0));
    PX_OK(s.px, plasmon_get(s.px, chain, out, sizeof(out), WAIT_MS));
    ASSERT_TRUE(out[0] == 11 && out[SAMPLE - 1] == 11);
    PX_OK(s.px, plasmon_get(s.px, joined, out, sizeof(out), WAIT_MS));
    ASSERT_TRUE(out[0] == 1101 && out[SAMPLE - 1] == 1101);
    plasmon_finish(s.px);
}

TEST_MAIN()
