/*
 * The memory of a device as a whole: blocks larger than a chunk after it was full of small ones,
 * and many more buffers in flight than it can hold. Built twice: for a CPU device of 256 MiB, and
 * (MEMORY_OF_A_GPU) for the first GPU, whose size the test follows; that one skips without a GPU.
 */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "tests/integration/cluster.h"

#define WAIT_MS 240000u

#ifdef MEMORY_OF_A_GPU
#define GPUS "1"
#define KIND 2u
#else
#define GPUS "none"
#define KIND 1u
#endif

static uint64_t device_bytes;

static void px_ok(struct plasmon_client *px, plasmon_status_t status, const char *what,
                  int line)
{
    if (status != PLASMON_OK) {
        test_fail(__FILE__, line, "%s: %s: %s", what, plasmon_status_name(status),
                  plasmon_error(px));
    }
}
#define PX_OK(px, call) px_ok(px, call, #call, __LINE__)

static struct plasmon_client *start(void)
{
    struct plasmon_options options = PLASMON_OPTIONS_INIT;
    struct plasmon_device_info infos[16];
    struct plasmon_client *px;
    uint32_t count;

    cluster_tag();
    test_set_timeout(600);
    options.gpus          = GPUS;
    options.cpu_devices   = 1;
    options.device_memory = UINT64_C(256) << 20;
    /* what happens when there is none: else test_spill.c */
    options.spill_memory = PLASMON_NO_SPILL;
    if (plasmon_init(&options, &px) != PLASMON_OK) {
        test_skip("no device: %s", plasmon_error(NULL));
    }
    PX_OK(px, plasmon_devices(px, infos, 16, &count));
    if (count == 0 || infos[0].kind != KIND) {
        plasmon_finish(px);
        test_skip("no GPU");
    }
    device_bytes = infos[0].bytes_total;
    printf("# %s, %.1f MiB\n", infos[0].name, (double)device_bytes / (double)(1u << 20));
    return px;
}

/* A vector of about `bytes` with one value. */
static struct plasmon_ref *filled(struct plasmon_client *px, uint64_t bytes, double value)
{
    struct plasmon_call call   = PLASMON_CALL_INIT;
    plasmon_scalar_t scalar    = {.f = value};
    struct plasmon_shape shape = {PLASMON_F32, 1, {(int64_t)(bytes / 4)}};
    struct plasmon_arg arg     = {.mode = PLASMON_OUT, .shape = &shape};
    struct plasmon_ref *made;

    call.function     = "fill";
    call.args         = &arg;
    call.arg_count    = 1;
    call.scalars      = &scalar;
    call.scalar_count = 1;
    PX_OK(px, plasmon_submit(px, &call, &made, NULL));
    return made;
}

/* y = x + value */
static struct plasmon_ref *added(struct plasmon_client *px, struct plasmon_ref *x,
                                 double value)
{
    struct plasmon_call call   = PLASMON_CALL_INIT;
    plasmon_scalar_t scalar    = {.f = value};
    struct plasmon_arg args[2] = {{.mode = PLASMON_OUT}, {.mode = PLASMON_IN, .ref = x}};
    struct plasmon_ref *made;

    call.function     = "add_scalar";
    call.args         = args;
    call.arg_count    = 2;
    call.scalars      = &scalar;
    call.scalar_count = 1;
    PX_OK(px, plasmon_submit(px, &call, &made, NULL));
    return made;
}

/* The smallest and the largest element. */
static void expect_all(struct plasmon_client *px, struct plasmon_ref *x, float want)
{
    static const char *const names[2] = {"min", "max"};

    for (int i = 0; i < 2; i++) {
        struct plasmon_call call   = PLASMON_CALL_INIT;
        plasmon_scalar_t scalar[2] = {{.i = -1}, {.i = 0}};
        struct plasmon_arg args[2] = {{.mode = PLASMON_OUT},
                                      {.mode = PLASMON_IN, .ref = x}};
        struct plasmon_ref *made;
        float got = 0;

        call.function     = names[i];
        call.args         = args;
        call.arg_count    = 2;
        call.scalars      = scalar;
        call.scalar_count = 2;
        PX_OK(px, plasmon_submit(px, &call, &made, NULL));
        PX_OK(px, plasmon_get(px, made, &got, sizeof(got), WAIT_MS));
        PX_OK(px, plasmon_release(px, made));
        if (got != want) {
            test_fail(__FILE__, __LINE__, "the %s is %g and should be %g", names[i],
                      (double)got, (double)want);
        }
    }
}

/*
 * The case that failed: middle-size buffers until the device is nearly full, all given up, then one
 * of half its memory.
 */
TEST(a_block_larger_than_a_chunk_fits_where_small_ones_were)
{
    enum { COUNT = 120 };
    struct plasmon_client *px = start();
    struct plasmon_ref *small[COUNT], *large;
    uint64_t bytes = device_bytes / 100 * 85 / COUNT;

    for (int i = 0; i < COUNT; i++) {
        small[i] = filled(px, bytes, i);
    }
    PX_OK(px, plasmon_wait(px, small, COUNT, COUNT, WAIT_MS, NULL, NULL));
    expect_all(px, small[COUNT / 2], (float)(COUNT / 2));
    for (int i = 0; i < COUNT; i++) {
        PX_OK(px, plasmon_release(px, small[i]));
    }
    large = filled(px, device_bytes / 2, 0.5);
    expect_all(px, large, 0.5f); /* written and read across every border there is */
    plasmon_finish(px);
}

/*
 * Five times as much in flight as the device has: each result is given up as soon as the next is
 * asked for.
 */
TEST(chains_in_flight_share_the_memory)
{
    enum { CHAINS = 10, LENGTH = 50 };
    struct plasmon_client *px = start();
    struct plasmon_ref *at[CHAINS];
    uint64_t bytes = device_bytes / 100;

    for (int c = 0; c < CHAINS; c++) {
        at[c] = filled(px, bytes, c);
    }
    for (int i = 0; i < LENGTH; i++) {
        for (int c = 0; c < CHAINS; c++) {
            struct plasmon_ref *next = added(px, at[c], 1.0);

            PX_OK(px, plasmon_release(px, at[c]));
            at[c] = next;
        }
    }
    for (int c = 0; c < CHAINS; c++) {
        expect_all(px, at[c], (float)(c + LENGTH));
    }
    plasmon_finish(px);
}

TEST(what_can_never_fit_says_who_has_the_memory)
{
    struct plasmon_client *px = start();
    struct plasmon_ref *kept  = filled(px, device_bytes / 2, 1.0);
    struct plasmon_ref *large = filled(px, device_bytes / 10 * 6, 2.0);

    PX_OK(px, plasmon_wait(px, &large, 1, 1, WAIT_MS, NULL, NULL));
    if (plasmon_state(px, large) != PLASMON_EDEVMEM) {
        test_fail(__FILE__, __LINE__, "it is %s: %s",
                  plasmon_status_name(plasmon_state(px, large)), plasmon_error(px));
    }
    ASSERT_CONTAINS(plasmon_error(px), "the largest hole is");
    ASSERT_CONTAINS(plasmon_error(px), "objects");
    expect_all(px, kept, 1.0f);
    plasmon_finish(px);
}

/*
 * Chunks are never taken away, and those of results are not for clients to write: a put still finds
 * its way into them.
 */
TEST(a_device_that_results_have_filled_takes_puts)
{
    enum { BLOCKS = 16 };
    struct plasmon_client *px = start();
    struct plasmon_ref *block[BLOCKS], *x;
    uint64_t bytes             = device_bytes / BLOCKS;
    struct plasmon_shape shape = {PLASMON_F32, 1, {(int64_t)(bytes * 4 / 4)}};
    float *data                = malloc(bytes * 4);

    ASSERT_TRUE(data != NULL);
    for (uint32_t i = 0; i < BLOCKS; i++) {
        block[i] = filled(px, bytes - (bytes / 64), i);
    }
    PX_OK(px, plasmon_wait(px, block, BLOCKS, BLOCKS, WAIT_MS, NULL, NULL));
    for (uint32_t i = 0; i < BLOCKS; i++) {
        PX_OK(px, plasmon_release(px, block[i]));
    }
    for (uint32_t round = 0; round < 3; round++) { /* more than fits at a time */
        for (uint64_t i = 0; i < bytes; i++) {
            data[i] = (float)(i % 4099 + round);
        }
        PX_OK(px, plasmon_put(px, data, &shape, NULL, &x));
        memset(data, 0, bytes * 4);
        PX_OK(px, plasmon_get(px, x, data, bytes * 4, WAIT_MS));
        for (uint64_t i = 0; i < bytes; i++) {
            ASSERT_EQ(data[i], (float)(i % 4099 + round));
        }
        PX_OK(px, plasmon_release(px, x));
    }
    free(data);
    plasmon_finish(px);
}

#ifndef MEMORY_OF_A_GPU
/* Arrays as large as the device, and such that are put on it when nothing else has been there. */
TEST(an_empty_device_takes_puts_that_fill_it)
{
    static const uint64_t less[] = {0, 64 << 10, (1 << 20) + 12345, 40 << 20};

    for (size_t i = 0; i < PL_COUNT(less); i++) {
        struct plasmon_client *px  = start();
        uint64_t bytes             = device_bytes - less[i];
        struct plasmon_shape shape = {PLASMON_U8, 1, {(int64_t)bytes}};
        uint8_t *data              = calloc(1, bytes);
        struct plasmon_ref *x;

        ASSERT_TRUE(data != NULL);
        data[bytes - 1] = 17;
        PX_OK(px, plasmon_put(px, data, &shape, NULL, &x));
        data[bytes - 1] = 0;
        PX_OK(px, plasmon_get(px, x, data, bytes, WAIT_MS));
        ASSERT_EQ(data[bytes - 1], 17);
        free(data);
        plasmon_finish(px);
    }
}

/* What is left of a chunk is used with the next one. */
TEST(puts_of_one_size_fill_a_device)
{
    enum { BYTES = 40 << 20, COUNT = 6 };
    struct plasmon_client *px  = start();
    struct plasmon_shape shape = {PLASMON_U8, 1, {BYTES}};
    uint8_t *data              = calloc(1, BYTES);
    struct plasmon_ref *x[COUNT];

    ASSERT_TRUE(data != NULL && device_bytes / BYTES == COUNT);
    for (uint32_t i = 0; i < COUNT; i++) {
        data[i] = 1;
        PX_OK(px, plasmon_put(px, data, &shape, NULL, &x[i]));
    }
    for (uint32_t i = 0; i < COUNT; i++) {
        PX_OK(px, plasmon_get(px, x[i], data, BYTES, WAIT_MS));
        ASSERT_EQ(data[i], 1);
        ASSERT_EQ(data[i + 1], 0);
    }
    free(data);
    plasmon_finish(px);
}
#endif

TEST_MAIN()
