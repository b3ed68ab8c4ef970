/*
 * kernel_run() on a CPU device: the same functions, on a stream's thread, with arguments that were
 * copied on the way.
 */
#include "cases.h"
#include "runner.h"

#include <stdlib.h>
#include <string.h>

#include "tests/harness/test.h"

static void run_and_verify(const struct kernel_case *kase, struct trial *trial, void *user)
{
    if ((kase->flags & CASE_FAILS) != 0) {
        return;
    }
    runner_run(user, trial);
    trial_verify(trial, "a CPU device");
}

TEST(every_function_runs_on_a_stream)
{
    struct runner runner;

    test_set_timeout(120);
    runner_open(&runner, DEVICE_CPU);
    kernel_cases_each(6, test_seed(), run_and_verify, &runner);
    runner_close(&runner);
}

TEST(a_function_that_fails_is_reported_with_its_tag)
{
    struct kernel_arg x       = {.mode = KERNEL_OUT, .dtype = PL_F32};
    union kernel_scalar code  = {.i = 42};
    struct pl_err err         = {0};
    struct pl_err failure     = {0};
    struct device_ptr nothing = {0};
    uint64_t tag              = 0;
    struct runner runner;

    test_expect_log();
    runner_open(&runner, DEVICE_CPU);
    x.data = runner.arena;
    ASSERT_TRUE(!device_launch_failure(runner.device, &tag, &failure));
    ASSERT_OK(kernel_run(runner.context, runner.stream, kernel_by_name("test_fail"), &x, 1,
                         &code, 1, nothing, 0, 1234, &err));
    (void)device_stream_sync(runner.stream, &err); /* may or may not tell as well */
    ASSERT_TRUE(device_launch_failure(runner.device, &tag, &failure));
    ASSERT_EQ(tag, 1234);
    ASSERT_EQ(failure.status, PLASMON_EFUNCTION);
    ASSERT_CONTAINS(failure.text, "test_fail: failed as asked, code 42");
    runner_close(&runner);
}

TEST(identities_are_filled_in_strided_accumulators_only_where_they_are)
{
    struct runner runner;
    struct trial trial;
    struct kernel_arg arg;
    struct pl_err err = {0};
    union kernel_value one;
    int64_t dim[2] = {3, 5};

    runner_open(&runner, DEVICE_CPU);
    trial_begin(&trial, "accumulate", PL_I64, 1);
    trial.strided = true;
    (void)trial_array(&trial, KERNEL_REDUCE, PL_I64, 2, dim, 7, 7);
    (void)trial_array(&trial, KERNEL_IN, PL_I64, 2, dim, 7, 7);
    trial_prepare(&trial);
    memcpy(runner.staging, trial.array[0].root, trial.array[0].root_bytes);
    arg           = trial.array[0].arg;
    arg.reduce_op = KERNEL_PROD;
    arg.data      = device_ptr_add(runner.arena,
                                   arg.data.addr - (uint64_t)(uintptr_t)trial.array[0].root);
    ASSERT_OK(device_copy(runner.stream, DEVICE_COPY_HOST_TO_DEVICE, runner.arena.addr,
                          (uint64_t)(uintptr_t)runner.staging, trial.array[0].root_bytes));
    ASSERT_OK(kernel_fill_identity(runner.context, runner.stream, &arg, 5));
    ASSERT_OK(device_copy(runner.stream, DEVICE_COPY_DEVICE_TO_HOST,
                          (uint64_t)(uintptr_t)runner.staging, runner.arena.addr,
                          trial.array[0].root_bytes));
    ASSERT_OK(device_stream_sync(runner.stream, &err));
    memcpy(trial.array[0].root, runner.staging, trial.array[0].root_bytes);
    ASSERT_TRUE(kernel_identity(PL_I64, KERNEL_PROD, &one));
    for (int64_t i = 0; i < 15; i++) {
        trial_want_int(&trial, 0, i, one.i64);
    }
    trial_verify(&trial, "a CPU device");

    arg.dtype = PL_U8; /* has no reductions */
    ASSERT_STATUS(kernel_fill_identity(runner.context, runner.stream, &arg, 5),
                  PLASMON_EINVAL);
    trial_end(&trial);
    runner_close(&runner);
}

TEST(too_little_scratch_is_refused)
{
    struct pl_err err           = {0};
    union kernel_scalar s[3]    = {{.f = 1}, {.i = 0}, {.i = 0}};
    struct kernel_arg args[3]   = {0};
    struct device_ptr no_memory = {0};
    struct runner runner;

    runner_open(&runner, DEVICE_CPU);
    for (int i = 0; i < 3; i++) { /* no dimension is dense: a BLAS takes none of them */
        args[i] =
            (struct kernel_arg){.mode   = i == 0 ? KERNEL_OUT : KERNEL_IN,
                                .dtype  = PL_F64,
                                .ndim   = 2,
                                .dim    = {4, 4},
                                .stride = {16, 2},
                                .data   = device_ptr_add(runner.arena, (uint64_t)i * 4096)};
    }
    ASSERT_EQ(kernel_scratch_bytes(runner.context, kernel_by_name("gemm"), args, 3, s, 3),
              3 * 4 * 4 * 8);
    ASSERT_STATUS(kernel_run(runner.context, runner.stream, kernel_by_name("gemm"), args, 3,
                             s, 3, no_memory, 100, 0, &err),
                  PLASMON_EINTERNAL);
    ASSERT_CONTAINS(err.text, "gemm: got 100 bytes of scratch, needs 384");
    runner_close(&runner);
}

TEST_MAIN()
