/* Yardsticks of the nccl route: processes that meet, with the stand-in of NCCL. */
#include "bench/bench.h"
#include "tests/harness/test.h"

static double result[BENCH_RAW_FIGURES];

static void measure(uint32_t devices)
{
    const struct bench_raw_copy config = {
        .devices = devices, .size_count = 1, .size = {4096}};

    bench_must_run_raw(bench_raw_nccl_run, &config, result, BENCH_RAW_FIGURES);
    ASSERT_TRUE(result[BENCH_RAW_NCCL] > 0);
    ASSERT_TRUE(result[BENCH_RAW_NCCL_LATENCY] > 0);
    ASSERT_TRUE(result[BENCH_RAW_NCCL_DUPLEX] > 0);
}

TEST(three_processes_have_a_figure_for_each_shape)
{
    measure(3);
    ASSERT_TRUE(result[BENCH_RAW_NCCL_MANY] > 0);
    ASSERT_TRUE(result[BENCH_RAW_NCCL_ALL] > 0);
}

TEST(two_have_none_for_what_needs_three)
{
    measure(2);
    ASSERT_TRUE(result[BENCH_RAW_NCCL_MANY] < 0);
    ASSERT_TRUE(result[BENCH_RAW_NCCL_ALL] < 0);
}

TEST(a_team_reduces_in_a_row_and_one_at_a_time)
{
    const struct bench_raw_all_reduce config = {
        .cpu = true, .devices = 3, .size_count = 2, .size = {4096, 64}};
    double seconds[4] = {0};

    bench_must_run_raw(bench_raw_team_run, &config, seconds, PL_COUNT(seconds));
    for (size_t i = 0; i < PL_COUNT(seconds); i++) {
        ASSERT_TRUE(seconds[i] > 0 && seconds[i] < 60);
    }
}

TEST_MAIN()
