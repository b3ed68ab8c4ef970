/*
 * What workers moved, as they report it: by route, and from device to device; and the time that
 * they spent. A worker counts from its own start on, so what it had counted when it was replaced is
 * kept beside what the next one counts: a sum never goes down while the head lives. It is not in a
 * checkpoint: a new head begins with what the workers that it finds have counted.
 */
#include "head/core_int.h"

#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------------------- taking */

void head_moved_take(struct head_core *core, struct head_device *device,
                     const Plasmon__V1__WorkerStats *stats)
{
    memset(device->routes, 0, sizeof(device->routes));
    for (size_t i = 0; i < stats->n_routes && i < PL_COUNT(device->routes); i++) {
        device->routes[i] = *stats->routes[i];
    }
    device->stats.n_routes = pl_min_u64(stats->n_routes, PL_COUNT(device->routes));
    pl_vec_clear(&device->pairs);
    for (size_t i = 0; i < stats->n_pairs; i++) {
        Plasmon__V1__PairStats *pair = pl_vec_push(&device->pairs);

        PL_CHECK(pair != NULL);
        *pair                                   = *stats->pairs[i];
        *(pair->sent ? &pair->from : &pair->to) = device->index;
        head_rates_take(core, pair);
        head_reach_take(core, pair);
        pair->unreached_why = NULL; /* borrowed */
    }
}

/* What is under way is so at a worker that lives, and only there. */
static void pair_add(Plasmon__V1__PairStats *sum, const Plasmon__V1__PairStats *pair,
                     bool alive)
{
    sum->transfers += pair->transfers;
    sum->bytes += pair->bytes;
    sum->busy_ns += pair->busy_ns;
    sum->stalls += pair->stalls;
    sum->retries += pair->retries;
    sum->relays += pair->relays;
    sum->written_bytes += pair->written_bytes;
    if (alive) {
        sum->in_flight += pair->in_flight;
        sum->in_flight_bytes += pair->in_flight_bytes;
    }
}

/* At most one for each route and other device. */
static Plasmon__V1__PairStats *past_pair(struct head_past *past,
                                         const Plasmon__V1__PairStats *like)
{
    Plasmon__V1__PairStats *pair;

    for (size_t i = 0; i < past->pairs.count; i++) {
        pair = pl_vec_at(&past->pairs, i);
        if (pair->route == like->route && pair->from == like->from &&
            pair->to == like->to) {
            return pair;
        }
    }
    pair = pl_vec_push(&past->pairs);
    PL_CHECK(pair != NULL);
    plasmon__v1__pair_stats__init(pair);
    pair->route = like->route;
    pair->from  = like->from;
    pair->to    = like->to;
    return pair;
}

void head_moved_replaced(struct head_device *device)
{
    struct head_past *past = &device->past;

    for (size_t i = 0; i < device->stats.n_routes; i++) {
        const Plasmon__V1__RouteStats *route = &device->routes[i];

        if (route->route < HEAD_PAST_ROUTES) {
            past->copies[route->route] += route->copies;
            past->bytes[route->route] += route->bytes;
        }
    }
    for (size_t i = 0; i < device->pairs.count; i++) {
        const Plasmon__V1__PairStats *pair = pl_vec_at(&device->pairs, i);

        pair_add(past_pair(past, pair), pair, false);
    }
    past->cpu_ns += device->stats.cpu_ns;
    past->driver_ns += device->stats.driver_ns;
    device->stats.cpu_ns = device->stats.driver_ns = 0;
    device->stats.n_routes                         = 0;
    pl_vec_clear(&device->pairs);
}

/* ------------------------------------------------------------------------------ telling */

plasmon_status_t head_moved_status(const struct head_core *core, struct wire_arena *arena,
                                   Plasmon__V1__StatusReply *out)
{
    Plasmon__V1__RouteStats *sums =
        wire_arena_alloc(arena, HEAD_PAST_ROUTES * sizeof(*sums));

    out->routes = wire_arena_alloc(arena, HEAD_PAST_ROUTES * sizeof(*out->routes));
    if (sums == NULL || out->routes == NULL) {
        return PLASMON_ENOMEM;
    }
    for (uint32_t i = 0; i < HEAD_PAST_ROUTES; i++) {
        plasmon__v1__route_stats__init(&sums[i]);
        sums[i].route = i;
    }
    for (uint32_t i = 0; i < core->devices.count; i++) {
        const struct head_device *device = head_device_at(core, i);

        out->worker_cpu_ns += device->stats.cpu_ns + device->past.cpu_ns;
        out->worker_driver_ns += device->stats.driver_ns + device->past.driver_ns;
        out->worker_driver_counted = (i == 0 || out->worker_driver_counted) &&
                                     (device->gone || device->stats.driver_counted);
        for (size_t r = 0; r < device->stats.n_routes; r++) {
            uint32_t route = device->routes[r].route;

            if (route < HEAD_PAST_ROUTES) {
                sums[route].copies += device->routes[r].copies;
                sums[route].bytes += device->routes[r].bytes;
            }
        }
        for (uint32_t route = 0; route < HEAD_PAST_ROUTES; route++) {
            sums[route].copies += device->past.copies[route];
            sums[route].bytes += device->past.bytes[route];
        }
    }
    for (uint32_t i = 0; i < HEAD_PAST_ROUTES; i++) {
        if (sums[i].copies > 0) {
            out->routes[out->n_routes++] = &sums[i];
        }
    }
    return PLASMON_OK;
}

/* Of one pair and route: what its receiver counted, and what its sender did. */
static Plasmon__V1__PairStats *pair_sum(struct pl_map *sums, struct wire_arena *arena,
                                        const Plasmon__V1__PairStats *pair, bool alive)
{
    uint64_t key = ((uint64_t)pair->from << 32 | (uint64_t)pair->to << 8 | pair->route) + 1;
    Plasmon__V1__PairStats *sum = pl_map_get(sums, key);

    if (sum == NULL) {
        sum = wire_arena_alloc(arena, sizeof(*sum));
        if (sum == NULL || pl_map_set(sums, key, sum) != PLASMON_OK) {
            return NULL;
        }
        plasmon__v1__pair_stats__init(sum);
        sum->from  = pair->from;
        sum->to    = pair->to;
        sum->route = pair->route;
    }
    pair_add(sum, pair, alive);
    return sum;
}

static bool pairs_sum(struct pl_map *sums, struct wire_arena *arena,
                      const struct pl_vec *pairs, bool alive)
{
    for (size_t i = 0; i < pairs->count; i++) {
        if (pair_sum(sums, arena, pl_vec_at(pairs, i), alive) == NULL) {
            return false;
        }
    }
    return true;
}

static int compare_pairs(const void *a, const void *b)
{
    const Plasmon__V1__PairStats *x = *(Plasmon__V1__PairStats *const *)a;
    const Plasmon__V1__PairStats *y = *(Plasmon__V1__PairStats *const *)b;
    int order                       = (x->route > y->route) - (x->route < y->route);

    if (order == 0) {
        order = (x->from > y->from) - (x->from < y->from);
    }
    return order != 0 ? order : (x->to > y->to) - (x->to < y->to);
}

plasmon_status_t head_core_status_pairs(struct head_core *core, struct wire_arena *arena,
                                        Plasmon__V1__StatusReply *out)
{
    plasmon_status_t status = PLASMON_OK;
    struct pl_map sums;
    size_t count = 0;
    uint64_t key;
    void *sum;

    pl_map_init(&sums);
    for (uint32_t i = 0; i < core->devices.count; i++) {
        const struct head_device *device = head_device_at(core, i);

        if (!pairs_sum(&sums, arena, &device->pairs, device->connected) ||
            !pairs_sum(&sums, arena, &device->past.pairs, false)) {
            status = PLASMON_ENOMEM;
            break;
        }
    }
    for (size_t i = 0; pl_map_next(&sums, &i, &key, &sum);) {
        count++;
    }
    out->pairs = wire_arena_alloc(arena, (count + 1) * sizeof(*out->pairs));
    if (out->pairs == NULL) {
        status = PLASMON_ENOMEM;
    }
    for (size_t i = 0; status == PLASMON_OK && pl_map_next(&sums, &i, &key, &sum);) {
        out->pairs[out->n_pairs++] = sum;
    }
    pl_map_finish(&sums);
    if (out->n_pairs > 1) {
        qsort(out->pairs, out->n_pairs, sizeof(Plasmon__V1__PairStats *), compare_pairs);
    }
    return status == PLASMON_OK ? head_rates_status(core, arena, out) : status;
}
