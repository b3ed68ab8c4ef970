#include "base/histogram.h"

#include <assert.h>

uint64_t pl_histogram_count(const struct pl_histogram *histogram)
{
    uint64_t count = 0;

    for (uint32_t i = 0; i < PL_HISTOGRAM_BUCKETS; i++) {
        count += histogram->counts[i];
    }
    return count;
}

uint64_t pl_histogram_quantile_ns(const struct pl_histogram *histogram, double q)
{
    uint64_t count = pl_histogram_count(histogram);
    double rank = q * (double)count, before = 0;

    assert(q >= 0 && q <= 1);
    if (count == 0) {
        return 0;
    }
    for (uint32_t i = 0; i < PL_HISTOGRAM_BOUNDS; i++) {
        double here = (double)histogram->counts[i];

        if (here > 0 && before + here >= rank) {
            double low  = i == 0 ? 0 : (double)pl_histogram_bound_ns(i - 1);
            double high = (double)pl_histogram_bound_ns(i);

            return (uint64_t)(low + (high - low) * (rank - before) / here);
        }
        before += here;
    }
    return pl_histogram_bound_ns(PL_HISTOGRAM_BOUNDS - 1);
}
