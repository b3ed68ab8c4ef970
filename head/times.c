#include "head/times.h"

#include "base/alloc.h"
#include "head/core_int.h"

void head_times_init(struct head_times *times)
{
    *times = (struct head_times){.now_ns = 0};
    pl_map_init(&times->reported);
}

void head_times_finish(struct head_times *times)
{
    size_t i = 0;
    uint64_t device;
    void *reported;

    while (pl_map_next(&times->reported, &i, &device, &reported)) {
        pl_free(reported);
    }
    pl_map_finish(&times->reported);
}

/* ---------------------------------------------------------------------------------------- transfers */

static struct pl_histogram *reported_by(struct head_times *times, uint32_t device)
{
    struct pl_histogram *reported = pl_map_get(&times->reported, device + UINT64_C(1));

    if (reported == NULL) {
        reported = head_alloc(HEAD_RATE_ROUTES * sizeof(*reported));
        PL_CHECK(pl_map_set(&times->reported, device + UINT64_C(1), reported) ==
                 PLASMON_OK);
    }
    return reported;
}

/* Another worker than the one that reported last has counted less in some bucket, or as good as: it began anew. */
static bool is_fewer(const struct pl_histogram *last, const Plasmon__V1__Histogram *now)
{
    for (uint32_t i = 0; i < PL_HISTOGRAM_BUCKETS; i++) {
        if ((i < now->n_counts ? now->counts[i] : 0) < last->counts[i]) {
            return true;
        }
    }
    return now->sum_ns < last->sum_ns;
}

static void take(struct pl_histogram *all, struct pl_histogram *last,
                 const Plasmon__V1__Histogram *now)
{
    if (is_fewer(last, now)) {
        *last = (struct pl_histogram){.sum_ns = 0};
    }
    for (uint32_t i = 0; i < PL_HISTOGRAM_BUCKETS && i < now->n_counts; i++) {
        all->counts[i] += now->counts[i] - last->counts[i];
        last->counts[i] = now->counts[i];
    }
    all->sum_ns += now->sum_ns - last->sum_ns;
    last->sum_ns = now->sum_ns;
}

void head_times_take(struct head_times *times, uint32_t device,
                     const Plasmon__V1__WorkerStats *stats)
{
    for (size_t i = 0; i < stats->n_transfers; i++) {
        const Plasmon__V1__Histogram *now = stats->transfers[i];

        if (now->route < HEAD_RATE_ROUTES) {
            take(&times->transfers[now->route], &reported_by(times, device)[now->route],
                 now);
        }
    }
}

/* ---------------------------------------------------------------------------------------- for people */

static plasmon_status_t tell(const struct pl_histogram *histogram, Plasmon__V1__TimeOf of,
                             uint32_t route, struct wire_arena *arena,
                             Plasmon__V1__StatusReply *out)
{
    Plasmon__V1__Histogram *one;

    if (pl_histogram_count(histogram) == 0) {
        return PLASMON_OK;
    }
    one = wire_histogram(histogram, arena);
    if (one == NULL) {
        return PLASMON_ENOMEM;
    }
    one->of                              = of;
    one->route                           = route;
    out->histograms[out->n_histograms++] = one;
    return PLASMON_OK;
}

plasmon_status_t head_times_tell(const struct head_times *times, struct wire_arena *arena,
                                 Plasmon__V1__StatusReply *out)
{
    plasmon_status_t status;

    out->histograms =
        wire_arena_alloc(arena, (3 + HEAD_RATE_ROUTES) * sizeof(*out->histograms));
    if (out->histograms == NULL) {
        return PLASMON_ENOMEM;
    }
    status = tell(&times->tasks, PLASMON__V1__TIME_OF__TIME_TASK, 0, arena, out);
    if (status == PLASMON_OK) {
        status = tell(&times->waits, PLASMON__V1__TIME_OF__TIME_WAIT, 0, arena, out);
    }
    if (status == PLASMON_OK) {
        status = tell(&times->workers, PLASMON__V1__TIME_OF__TIME_WORKER, 0, arena, out);
    }
    for (uint32_t i = 0; status == PLASMON_OK && i < HEAD_RATE_ROUTES; i++) {
        status =
            tell(&times->transfers[i], PLASMON__V1__TIME_OF__TIME_TRANSFER, i, arena, out);
    }
    return status;
}
