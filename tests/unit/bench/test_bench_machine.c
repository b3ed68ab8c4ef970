/* How many GPUs a benchmark may use. */
#include "bench/bench.h"
#include "tests/harness/test.h"

TEST(gpus_that_are_hidden_do_not_count)
{
    ASSERT_EQ(bench_visible_gpus(4, NULL), 4);
    ASSERT_EQ(bench_visible_gpus(4, ""), 0);
    ASSERT_EQ(bench_visible_gpus(4, "2"), 1);
    ASSERT_EQ(bench_visible_gpus(4, "3,1"), 2);
    ASSERT_EQ(bench_visible_gpus(4, "0,1,2,3"), 4);
    ASSERT_EQ(bench_visible_gpus(2, "GPU-1b2c,GPU-3d4e"), 2);
    ASSERT_EQ(bench_visible_gpus(0, "0"), 0);
}

TEST(the_first_entry_that_is_no_gpu_ends_the_list)
{
    ASSERT_EQ(bench_visible_gpus(4, "-1"), 0);
    ASSERT_EQ(bench_visible_gpus(4, "0,-1,1"), 1);
    ASSERT_EQ(bench_visible_gpus(4, "0,4,1"), 1);
    ASSERT_EQ(bench_visible_gpus(4, "1,,2"), 1);
    ASSERT_EQ(bench_visible_gpus(4, "1x,2"), 0);
    ASSERT_EQ(bench_visible_gpus(4, "NoDevFiles"), 0);
}

TEST_MAIN()
