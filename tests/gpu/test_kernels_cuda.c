/*
 * The CUDA variants on the trials of the CPU tests: against the references, against the CPU
 * variants to the bit where the catalogue promises it, and against themselves. Skipped where there
 * is no GPU.
 */
#include "kernels/cuda_plans.h"
#include "tests/unit/kernels/cases.h"
#include "tests/unit/kernels/runner.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/harness/alone.h"
#include "tests/harness/test.h"

static void open_gpu(struct runner *runner)
{
    static struct device *kept; /* and never closed: the next test finds the context */
    struct device_config config = {.bytes_max = 1u << 20};
    struct pl_err why           = {0};

    if (device_count(DEVICE_CUDA, &why) == 0) {
        test_skip("no GPU: %s", why.text);
    }
    if (kept == NULL && device_open(DEVICE_CUDA, 0, &config, &kept, &why) != PLASMON_OK) {
        test_fail(__FILE__, __LINE__, "device_open: %s", why.text);
    }
    runner_open(runner, DEVICE_CUDA);
}

/* ------------------------------------------------------------------------ all functions */

static void run_and_verify(const struct kernel_case *kase, struct trial *trial, void *user)
{
    if ((kase->flags & CASE_FAILS) != 0) {
        return;
    }
    runner_run(user, trial);
    trial_verify(trial, "the GPU");
}

TEST(results_agree_with_references_on_random_views)
{
    struct runner runner;

    test_set_timeout(300);
    open_gpu(&runner);
    kernel_cases_each(25, test_seed(), run_and_verify, &runner);
    runner_close(&runner);
}

/* The roots as they are now become what a second run is compared with; the inputs are put back. */
static void keep_results(struct trial *trial, char *kept[TRIAL_ARRAYS_MAX])
{
    for (uint32_t i = 0; i < trial->count; i++) {
        struct trial_array *array = &trial->array[i];

        kept[i] = malloc(array->root_bytes);
        ASSERT_NOT_NULL(kept[i]);
        memcpy(kept[i], array->root, array->root_bytes);
        memcpy(array->root, array->before, array->root_bytes);
    }
}

static void compare_results(const struct trial *trial, char *kept[TRIAL_ARRAYS_MAX],
                            const char *what)
{
    for (uint32_t i = 0; i < trial->count; i++) {
        if (trial->array[i].arg.mode != KERNEL_SCRATCH &&
            memcmp(kept[i], trial->array[i].root, trial->array[i].root_bytes) != 0) {
            test_fail(__FILE__, __LINE__, "%s %s: argument %u has other bits %s",
                      trial->function->name, pl_dtype_name(trial->dtype), i, what);
        }
        free(kept[i]);
    }
}

static void run_on_both(const struct kernel_case *kase, struct trial *trial, void *user)
{
    char *kept[TRIAL_ARRAYS_MAX];
    struct pl_err err = {0};

    /*
     * Integers have the same bits always. Complex numbers need not: a GPU fuses multiplications
     * with additions.
     */
    if ((kase->flags & CASE_FAILS) != 0 || trial_is_complex(trial->dtype) ||
        ((kase->flags & CASE_SAME_BITS) == 0 && trial_is_float(trial->dtype))) {
        return;
    }
    ASSERT_OK(trial_run_cpu(trial, &err));
    keep_results(trial, kept);
    runner_run(user, trial);
    compare_results(trial, kept, "than on the CPU");
}

TEST(what_is_promised_to_the_bit_is_the_same_on_cpu_and_gpu)
{
    struct runner runner;

    test_set_timeout(300);
    open_gpu(&runner);
    kernel_cases_each(10, test_seed() + 1, run_on_both, &runner);
    runner_close(&runner);
}

static void run_twice(const struct kernel_case *kase, struct trial *trial, void *user)
{
    char *kept[TRIAL_ARRAYS_MAX];

    if ((kase->flags & CASE_FAILS) != 0) {
        return;
    }
    runner_run(user, trial);
    keep_results(trial, kept);
    runner_run(user, trial);
    compare_results(trial, kept, "the second time");
}

TEST(the_same_call_gives_the_same_bits)
{
    struct runner runner;

    test_set_timeout(300);
    open_gpu(&runner);
    kernel_cases_each(6, test_seed() + 2, run_twice, &runner);
    runner_close(&runner);
}

/* -------------------------------------------------------------------------------- sizes */

/* Reductions that are cut into segments, both ways, and dots; exact in integers. */
static void reduce_large(struct runner *runner, const char *name, uint32_t dtype,
                         int64_t rows, int64_t columns, int64_t axis)
{
    int64_t dim[2] = {rows, columns};
    char *kept[TRIAL_ARRAYS_MAX];
    struct pl_err err = {0};
    struct trial trial;

    trial_begin(&trial, name, dtype, test_seed() + (uint64_t)(rows * 31 + axis));
    trial_out(&trial);
    if (strcmp(name, "dot") == 0) {
        (void)trial_array(&trial, KERNEL_IN, dtype, 1, &dim[1], -9, 9);
        (void)trial_array(&trial, KERNEL_IN, dtype, 1, &dim[1], -9, 9);
    } else {
        (void)trial_array(&trial, KERNEL_IN, dtype, 2, dim, -1000, 1000);
        trial_i64(&trial, axis);
        trial_i64(&trial, 0);
    }
    trial_prepare(&trial);
    ASSERT_OK(trial_run_cpu(&trial, &err));
    keep_results(&trial, kept);
    runner_run(runner, &trial);
    compare_results(&trial, kept, "than on the CPU");
    trial_end(&trial);
}

TEST(long_reductions_are_right_in_every_shape)
{
    static const char *const names[] = {"sum", "min", "argmax", "dot"};
    static const int64_t shapes[][3] = {
        {1, 500000, -1}, {1, 500000, 1}, {500000, 1, 0}, {3, 100000, 1}, {3, 100000, 0},
        {100000, 3, 0},  {700, 700, 0},  {700, 700, 1},  {2000, 100, 1}, {2000, 20, 1}};
    struct runner runner;

    test_set_timeout(300);
    open_gpu(&runner);
    for (size_t i = 0; i < PL_COUNT(names); i++) {
        for (size_t j = 0; j < PL_COUNT(shapes); j++) {
            reduce_large(&runner, names[i], PL_I32, shapes[j][0], shapes[j][1],
                         shapes[j][2]);
            reduce_large(&runner, names[i], PL_I64, shapes[j][0], shapes[j][1],
                         shapes[j][2]);
        }
    }
    runner_close(&runner);
}

TEST(transposes_of_every_width_go_through_tiles)
{
    static const uint32_t dtypes[] = {PL_U8, PL_F16, PL_F32, PL_F64, PL_C128};
    struct runner runner;

    test_set_timeout(300);
    open_gpu(&runner);
    for (size_t i = 0; i < PL_COUNT(dtypes); i++) {
        int64_t dim[3] = {3, 130, 77};
        char *kept[TRIAL_ARRAYS_MAX];
        struct pl_err err = {0};
        struct trial trial;

        trial_begin(&trial, "transpose", dtypes[i], test_seed() + i);
        trial.strided = false;
        trial_out(&trial);
        (void)trial_array(&trial, KERNEL_IN, dtypes[i], 3, dim, 0, 100);
        trial_prepare(&trial);
        ASSERT_OK(trial_run_cpu(&trial, &err));
        keep_results(&trial, kept);
        runner_run(&runner, &trial);
        compare_results(&trial, kept, "than on the CPU");
        trial_end(&trial);
    }
    runner_close(&runner);
}

/* ----------------------------------------------------------------------------- failures */

static void fails_when_it_runs(const char *name)
{
    struct kernel_arg x       = {.mode = KERNEL_OUT, .dtype = PL_F32};
    union kernel_scalar code  = {.i = 42};
    struct device_ptr nothing = {0};
    struct pl_err err         = {0};
    struct pl_err health      = {0};
    struct runner runner;

    open_gpu(&runner);
    test_expect_log();
    x.data = runner.arena;
    ASSERT_OK(device_health(runner.device, &health));
    ASSERT_OK(kernel_run(runner.context, runner.stream, kernel_by_name(name), &x, 1, &code,
                         kernel_by_name(name)->param_count - 1, nothing, 0, 1, &err));
    ASSERT_TRUE(runner_wait(&runner, &err) != PLASMON_OK);
    ASSERT_TRUE(device_health(runner.device, &health) != PLASMON_OK);
    /* The context is lost: nothing is closed, the process ends. */
}

TEST_ALONE(a_trap_is_seen_as_a_lost_device)
{
    fails_when_it_runs("test_fail");
}

TEST_ALONE(an_illegal_access_is_seen_as_a_lost_device)
{
    fails_when_it_runs("test_illegal");
}

#define MARKS       128u
#define MARKS_BYTES 4096u

/* A matrix without a factor, launched as number 77, with `entry` in the place for that number. */
static uint64_t entry_after_a_failure(uint64_t entry)
{
    struct kernel_marks marks = {.count = MARKS, .bit = 0x80, .shift = 8};
    uint64_t *entries =
        mmap(NULL, MARKS_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int64_t dim[2]    = {100, 100};
    struct pl_err err = {0};
    struct runner runner;
    struct trial trial;

    ASSERT_TRUE(entries != MAP_FAILED);
    open_gpu(&runner);
    ASSERT_OK(device_host_register(runner.device, entries, MARKS_BYTES));
    ASSERT_OK(device_host_address(runner.device, entries, MARKS_BYTES, &marks.entries));
    kernel_context_set_marks(runner.context, &marks);
    entries[77] = entry;
    trial_begin(&trial, "cholesky", PL_F64, test_seed());
    trial_out(&trial);
    (void)trial_array(&trial, KERNEL_IN, PL_F64, 2, dim, 0, 0);
    for (int64_t i = 0; i < 100; i++) {
        trial_set(&trial, 1, i * 101, i == 70 ? -1 : 4);
    }
    trial_prepare(&trial);
    ASSERT_OK(runner_enqueue(&runner, &trial, &err));
    ASSERT_OK(runner_wait(&runner, &err));
    entry = entries[77];
    for (uint32_t i = 0; i < MARKS; i++) {
        ASSERT_TRUE(i == 77 || entries[i] == 0);
    }
    trial_end(&trial);
    device_host_unregister(runner.device, entries);
    runner_close(&runner);
    (void)munmap(entries, MARKS_BYTES);
    return entry;
}

TEST(what_fails_is_marked_where_it_outlives_the_process)
{
    ASSERT_EQ(entry_after_a_failure(77u << 8 | 3), 77u << 8 | 0x80 | 3);
    /* The place is another launch's by now: left alone. */
    ASSERT_EQ(entry_after_a_failure((77u + MARKS) << 8 | 3), (77u + MARKS) << 8 | 3);
}

TEST(a_matrix_that_has_no_factor_leaves_a_record_with_its_tag)
{
    int64_t dim[2]    = {100, 100};
    struct pl_err err = {0};
    struct runner runner;
    struct trial trial;
    uint64_t tag = 0;

    open_gpu(&runner);
    trial_begin(&trial, "cholesky", PL_F64, test_seed());
    trial_out(&trial);
    (void)trial_array(&trial, KERNEL_IN, PL_F64, 2, dim, 0, 0);
    for (int64_t i = 0; i < 100; i++) {
        trial_set(&trial, 1, i * 101, i == 70 ? -1 : 4);
    }
    trial_prepare(&trial);
    ASSERT_OK(runner_enqueue(&runner, &trial, &err));
    ASSERT_OK(runner_wait(&runner, &err));
    ASSERT_TRUE(kernel_failure(runner.context, &tag, &err));
    ASSERT_EQ(tag, 77); /* runner_enqueue()'s */
    ASSERT_STATUS(err.status, PLASMON_ESINGULAR);
    ASSERT_CONTAINS(err.text, "leading minor of order 71");
    ASSERT_TRUE(!kernel_failure(runner.context, &tag, &err));
    trial_end(&trial);
    runner_close(&runner);
}

TEST(a_matrix_without_an_inverse_leaves_a_record)
{
    int64_t dim[2]    = {100, 100};
    struct pl_err err = {0};
    struct runner runner;
    struct trial trial;
    uint64_t tag = 0;

    open_gpu(&runner);
    trial_begin(&trial, "inverse", PL_F64, test_seed());
    trial_out(&trial);
    (void)trial_array(&trial, KERNEL_IN, PL_F64, 2, dim, 0, 0);
    for (int64_t i = 0; i < 100; i++) {
        trial_set(&trial, 1, i * 101, i == 70 ? 0 : 4);
    }
    trial_prepare(&trial);
    ASSERT_OK(runner_enqueue(&runner, &trial, &err));
    ASSERT_OK(runner_wait(&runner, &err));
    ASSERT_TRUE(kernel_failure(runner.context, &tag, &err));
    ASSERT_EQ(tag, 77);
    ASSERT_STATUS(err.status, PLASMON_ESINGULAR);
    ASSERT_CONTAINS(err.text, "inverse: a is singular: pivot 71 is 0");
    trial_end(&trial);
    runner_close(&runner);
}

/* -------------------------------------------------------------------------------- plans */

/* ones -> n at 0, 0 elsewhere: whatever the plan, a wrong one shows. */
static void transform_ones(struct runner *runner, int64_t n)
{
    struct trial trial;

    trial_begin(&trial, "fft", PL_C128, test_seed());
    trial.strided = false;
    trial_out(&trial);
    (void)trial_array(&trial, KERNEL_IN, PL_C128, 1, &n, 0, 0);
    trial_i64(&trial, 1);
    trial_prepare(&trial);
    for (int64_t i = 0; i < n; i++) {
        trial_set(&trial, 1, i, 1);
        trial_want_z(&trial, 0, i, i == 0 ? (double)n : 0, 1e-12 * (double)n);
    }
    runner_run(runner, &trial);
    trial_verify(&trial, "the GPU");
    trial_end(&trial);
}

TEST(more_shapes_than_plans_are_kept_are_all_right)
{
    struct runner runner;

    test_set_timeout(300);
    open_gpu(&runner);
    for (int64_t round = 0; round < 2; round++) {
        for (int64_t n = 1; n <= CUDA_PLANS_MAX + 20; n++) {
            transform_ones(&runner, n);
        }
    }
    runner_close(&runner);
}

TEST(what_was_kept_stays_at_hand_until_it_is_released)
{
    struct kernel_arg args[2]         = {{.mode = KERNEL_OUT, .dtype = PL_C64, .ndim = 1},
                                         {.mode = KERNEL_IN, .dtype = PL_C64, .ndim = 1}};
    const struct kernel_function *fft = kernel_by_name("fft");
    union kernel_scalar axes          = {.i = 1};
    struct pl_err err                 = {0};
    struct runner runner;

    open_gpu(&runner);
    args[0].dim[0] = args[1].dim[0] = 1000;
    args[0].stride[0] = args[1].stride[0] = 1;
    ASSERT_STATUS(kernel_prepared(runner.context, fft, args, 2, &axes, true, &err),
                  PLASMON_EAGAIN);
    ASSERT_OK(kernel_prepare(runner.context, fft, args, 2, &axes, &err));
    ASSERT_OK(kernel_prepared(runner.context, fft, args, 2, &axes, true, &err));
    for (int64_t n = 1; n <= CUDA_PLANS_MAX + 5; n++) {
        transform_ones(&runner, n);
    }
    ASSERT_OK(kernel_prepared(runner.context, fft, args, 2, &axes, false, &err));
    kernel_release(runner.context);
    for (int64_t n = 1; n <= CUDA_PLANS_MAX + 5; n++) {
        transform_ones(&runner, n + 100);
    }
    ASSERT_STATUS(kernel_prepared(runner.context, fft, args, 2, &axes, false, &err),
                  PLASMON_EAGAIN);
    runner_close(&runner);
}

/*
 * Seven launches, the sweeps of one on all multiprocessors: more columns than warps, and more rows
 * than columns.
 */
TEST(singular_values_of_a_large_matrix_come_from_one_launch_of_all_blocks)
{
    int64_t dim[2] = {700, 500};
    struct runner runner;
    struct trial trial;

    test_set_timeout(300);
    open_gpu(&runner);
    trial_begin(&trial, "svd", PL_F64, test_seed());
    trial_out(&trial);
    trial_out(&trial);
    trial_out(&trial);
    (void)trial_array(&trial, KERNEL_IN, PL_F64, 2, dim, -1, 1);
    trial_prepare(&trial);
    trial.verify = kernel_verify_svd;
    runner_run(&runner, &trial);
    trial_verify(&trial, "the GPU");
    trial_end(&trial);
    runner_close(&runner);
}

TEST(what_is_not_finite_leaves_a_record_and_no_values)
{
    int64_t dim[2]    = {60, 40};
    struct pl_err err = {0};
    struct runner runner;
    struct trial trial;
    uint64_t tag = 0;

    open_gpu(&runner);
    trial_begin(&trial, "svd", PL_F32, test_seed());
    trial_out(&trial);
    trial_out(&trial);
    trial_out(&trial);
    (void)trial_array(&trial, KERNEL_IN, PL_F32, 2, dim, -1, 1);
    trial_prepare(&trial);
    trial_set(&trial, 3, 1234, (double)NAN);
    ASSERT_OK(runner_enqueue(&runner, &trial, &err));
    ASSERT_OK(runner_wait(&runner, &err));
    ASSERT_TRUE(kernel_failure(runner.context, &tag, &err));
    ASSERT_STATUS(err.status, PLASMON_EINVAL);
    ASSERT_CONTAINS(err.text,
                    "svd: element 1234 of a, counted by rows, is NaN or infinite");
    trial_end(&trial);
    runner_close(&runner);
}

TEST(spin_keeps_the_stream_busy_that_long)
{
    struct kernel_arg x       = {.mode = KERNEL_INOUT, .dtype = PL_F32};
    union kernel_scalar us    = {.i = 20000};
    struct device_ptr nothing = {0};
    struct device_event *event[2];
    struct pl_err err = {0};
    struct runner runner;
    uint64_t ns = 0;

    open_gpu(&runner);
    x.data = runner.arena;
    ASSERT_OK(device_event_create(runner.device, true, &event[0]));
    ASSERT_OK(device_event_create(runner.device, true, &event[1]));
    ASSERT_OK(device_event_record(event[0], runner.stream));
    ASSERT_OK(kernel_run(runner.context, runner.stream, kernel_by_name("spin"), &x, 1, &us,
                         1, nothing, 0, 1, &err));
    ASSERT_OK(device_event_record(event[1], runner.stream));
    ASSERT_OK(runner_wait(&runner, &err));
    ASSERT_OK(device_event_elapsed_ns(event[0], event[1], &ns));
    ASSERT_TRUE(ns >= 19000000 && ns < 200000000);
    device_event_destroy(event[0]);
    device_event_destroy(event[1]);
    runner_close(&runner);
}

TEST_MAIN()
