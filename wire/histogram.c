/* Histograms as messages: counts up to the last that is not 0. */
#include "wire/wire.h"

#include <string.h>

#include "wire/wire_int.h"

plasmon_status_t check_histogram(const Plasmon__V1__Histogram *histogram,
                                 struct pl_err *err)
{
    if ((unsigned)histogram->of > PLASMON__V1__TIME_OF__TIME_FRONT) {
        return pl_err_set(err, PLASMON_EMALFORMED, "a histogram of times of kind %d",
                          (int)histogram->of);
    }
    if ((unsigned)histogram->why >= WIRE_WAIT_WHYS) {
        return pl_err_set(err, PLASMON_EMALFORMED, "a histogram of waits of kind %d",
                          (int)histogram->why);
    }
    return check_count(histogram->n_counts, PL_HISTOGRAM_BUCKETS, "counts", err);
}

Plasmon__V1__Histogram *wire_histogram(const struct pl_histogram *histogram,
                                       struct wire_arena *arena)
{
    Plasmon__V1__Histogram *out = wire_arena_alloc(arena, sizeof(*out));

    if (out == NULL) {
        return NULL;
    }
    plasmon__v1__histogram__init(out);
    out->sum_ns = histogram->sum_ns;
    out->counts = wire_arena_alloc(arena, sizeof(histogram->counts));
    if (out->counts == NULL) {
        return NULL;
    }
    memcpy(out->counts, histogram->counts, sizeof(histogram->counts));
    out->n_counts = PL_HISTOGRAM_BUCKETS;
    while (out->n_counts > 0 && out->counts[out->n_counts - 1] == 0) {
        out->n_counts--;
    }
    return out;
}

void wire_histogram_read(const Plasmon__V1__Histogram *message, struct pl_histogram *out)
{
    *out = (struct pl_histogram){.sum_ns = message->sum_ns};
    memcpy(out->counts, message->counts,
           pl_min_u64(message->n_counts, PL_HISTOGRAM_BUCKETS) * sizeof(out->counts[0]));
}
