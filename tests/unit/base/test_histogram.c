/* Histograms of times. */
#include "base/histogram.h"
#include "tests/harness/test.h"

TEST(a_time_is_in_the_first_bucket_whose_bound_is_not_below_it)
{
    ASSERT_EQ(pl_histogram_bucket(0), 0);
    ASSERT_EQ(pl_histogram_bucket(1), 0);
    for (uint32_t i = 0; i < PL_HISTOGRAM_BOUNDS; i++) {
        uint64_t bound_ns = pl_histogram_bound_ns(i);

        ASSERT_EQ(pl_histogram_bucket(bound_ns), i);
        ASSERT_EQ(pl_histogram_bucket(bound_ns + 1), i + 1);
    }
    ASSERT_EQ(pl_histogram_bucket(UINT64_MAX), PL_HISTOGRAM_BOUNDS);
}

TEST(quantiles_lie_in_the_bucket_that_has_them)
{
    struct pl_histogram histogram = {{0}, 0};

    ASSERT_EQ(pl_histogram_quantile_ns(&histogram, 0.5), 0);
    for (unsigned i = 0; i < 98; i++) {
        pl_histogram_add(&histogram, 3000); /* of 2 to 4 us */
    }
    pl_histogram_add(&histogram, 900000000); /* of 0.52 to 1.05 s */
    pl_histogram_add(&histogram, UINT64_C(100000000000));
    ASSERT_EQ(pl_histogram_count(&histogram), 100);
    ASSERT_EQ(histogram.sum_ns, 98 * 3000 + UINT64_C(100900000000));
    ASSERT_TRUE(pl_histogram_quantile_ns(&histogram, 0.01) > 2000);
    ASSERT_TRUE(pl_histogram_quantile_ns(&histogram, 0.5) > 3000 &&
                pl_histogram_quantile_ns(&histogram, 0.5) < 3100);
    ASSERT_EQ(pl_histogram_quantile_ns(&histogram, 0.98), 4000);
    ASSERT_TRUE(pl_histogram_quantile_ns(&histogram, 0.99) > 524288000 &&
                pl_histogram_quantile_ns(&histogram, 0.99) <= 1048576000);
    ASSERT_EQ(pl_histogram_quantile_ns(&histogram, 1),
              pl_histogram_bound_ns(PL_HISTOGRAM_BOUNDS - 1));
}

TEST_MAIN()
