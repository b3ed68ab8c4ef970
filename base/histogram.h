/*
 * How long things took: counts in buckets whose bounds double, from a microsecond to 67 s, and the
 * sum. Adding costs some nanoseconds and never fails.
 *
 * Plain numbers: whoever has one adds to it from one thread.
 */
#ifndef BASE_HISTOGRAM_H
#define BASE_HISTOGRAM_H

#include <stddef.h>
#include <stdint.h>

enum {
    PL_HISTOGRAM_BOUNDS  = 27,
    PL_HISTOGRAM_BUCKETS = PL_HISTOGRAM_BOUNDS + 1, /* the last one: beyond all bounds */
};

struct pl_histogram {
    uint64_t counts[PL_HISTOGRAM_BUCKETS];
    uint64_t sum_ns;
};

/* A time belongs to the first bucket whose bound is not below it. bucket < PL_HISTOGRAM_BOUNDS. */
static inline uint64_t pl_histogram_bound_ns(uint32_t bucket)
{
    return UINT64_C(1000) << bucket;
}

static inline uint32_t pl_histogram_bucket(uint64_t ns)
{
    uint64_t us     = (ns - (ns != 0)) / 1000; /* whole ones below it */
    uint32_t bucket = 63 - (uint32_t)__builtin_clzll(us << 1 | 1);

    return bucket < PL_HISTOGRAM_BOUNDS ? bucket : PL_HISTOGRAM_BOUNDS;
}

static inline void pl_histogram_add(struct pl_histogram *histogram, uint64_t ns)
{
    histogram->counts[pl_histogram_bucket(ns)]++;
    histogram->sum_ns += ns;
}

/* How many times there are. */
uint64_t pl_histogram_count(const struct pl_histogram *histogram);
/*
 * The time that `q` of all (0 to 1) do not exceed, in ns, as Prometheus' histogram_quantile() has
 * it: times are taken to be spread evenly over a bucket, and what is beyond the last bound is taken
 * to be there. 0: there are no times.
 */
uint64_t pl_histogram_quantile_ns(const struct pl_histogram *histogram, double q);

#endif
