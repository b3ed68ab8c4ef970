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

/* --------------------------------------------------------------------------- of workers */

static struct head_worker_times *reported_by(struct head_times *times, uint32_t device)
{
    struct head_worker_times *reported = pl_map_get(&times->reported, device + UINT64_C(1));

    if (reported == NULL) {
        reported = head_alloc(sizeof(*reported));
        PL_CHECK(pl_map_set(&times->reported, device + UINT64_C(1), reported) ==
                 PLASMON_OK);
    }
    return reported;
}

/*
 * Another worker than the one that reported last has counted less in some bucket, or as good as: it
 * began anew.
 */
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

/* NULL: it is of a kind that no worker has. */
static struct pl_histogram *kind_of(struct head_worker_times *times,
                                    const Plasmon__V1__Histogram *one)
{
    switch (one->of) {
    case PLASMON__V1__TIME_OF__TIME_TRANSFER:
        return one->route < HEAD_RATE_ROUTES ? &times->transfers[one->route] : NULL;
    case PLASMON__V1__TIME_OF__TIME_QUEUE:
        return &times->queue;
    case PLASMON__V1__TIME_OF__TIME_FRONT:
        return (unsigned)one->why < WIRE_WAIT_WHYS ? &times->fronts[one->why] : NULL;
    default:
        return NULL;
    }
}

static void take_all(struct head_times *times, uint32_t device,
                     Plasmon__V1__Histogram *const *told, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct pl_histogram *all = kind_of(&times->worked, told[i]);

        if (all != NULL) {
            take(all, kind_of(reported_by(times, device), told[i]), told[i]);
        }
    }
}

void head_times_take(struct head_times *times, uint32_t device,
                     const Plasmon__V1__WorkerStats *stats)
{
    take_all(times, device, stats->transfers, stats->n_transfers);
    take_all(times, device, stats->queue, stats->n_queue);
}

/* --------------------------------------------------------------------------- for people */

static plasmon_status_t tell(const struct pl_histogram *histogram, Plasmon__V1__TimeOf of,
                             uint32_t which, struct wire_arena *arena,
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
    one->of    = of;
    one->route = of == PLASMON__V1__TIME_OF__TIME_TRANSFER ? which : 0;
    one->why   = of == PLASMON__V1__TIME_OF__TIME_FRONT ? (Plasmon__V1__WaitWhy)which
                                                        : PLASMON__V1__WAIT_WHY__WAIT_NONE;
    out->histograms[out->n_histograms++] = one;
    return PLASMON_OK;
}

plasmon_status_t head_times_tell(const struct head_times *times, struct wire_arena *arena,
                                 Plasmon__V1__StatusReply *out)
{
    const struct {
        const struct pl_histogram *first;
        Plasmon__V1__TimeOf of;
        uint32_t count;
    } kinds[] = {
        {&times->tasks, PLASMON__V1__TIME_OF__TIME_TASK, 1},
        {&times->waits, PLASMON__V1__TIME_OF__TIME_WAIT, 1},
        {&times->worked.queue, PLASMON__V1__TIME_OF__TIME_QUEUE, 1},
        {times->worked.fronts, PLASMON__V1__TIME_OF__TIME_FRONT, WIRE_WAIT_WHYS},
        {&times->workers, PLASMON__V1__TIME_OF__TIME_WORKER, 1},
        {times->worked.transfers, PLASMON__V1__TIME_OF__TIME_TRANSFER, HEAD_RATE_ROUTES}};
    plasmon_status_t status = PLASMON_OK;
    uint32_t most           = 0;

    for (uint32_t k = 0; k < PL_COUNT(kinds); k++) {
        most += kinds[k].count;
    }
    out->histograms = wire_arena_alloc(arena, most * sizeof(*out->histograms));
    if (out->histograms == NULL) {
        return PLASMON_ENOMEM;
    }
    for (uint32_t k = 0; k < PL_COUNT(kinds); k++) {
        for (uint32_t i = 0; status == PLASMON_OK && i < kinds[k].count; i++) {
            status = tell(&kinds[k].first[i], kinds[k].of, i, arena, out);
        }
    }
    return status;
}
