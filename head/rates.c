/*
 * EXPLORING. What is not used is not measured: a route that was slow once would stay so for ever.
 * So between hosts, where there are two, after EXPLORE_TRANSFERS transfers by one of them, whose
 * bytes are EXPLORE_TRANSFERS times those of the next, that one goes by the other: at most one
 * transfer, and one byte, in so many. Nothing is tried that is not possible anyhow, and a pair that
 * is closed is opened by its own rule alone (pair.c).
 *
 * CHANGING. The other route is taken when its estimate is better by a tenth, so that two that are
 * alike do not take turns.
 *
 * Within a host there is nothing to choose: one copy by the device that wants the bytes is never
 * slower than the same bytes through host memory, and takes no part of anybody else. Those ways are
 * measured for placement alone.
 */
#include "head/rates.h"

#include <stdlib.h>

#include "head/core_int.h"

#define EXPLORE_TRANSFERS 64u
/* a transfer of so much says something of bandwidth */
#define LARGE_BYTES (UINT64_C(1) << 20)
#define SMALL_BYTES (UINT64_C(1) << 16) /* and one of so little of latency */
#define BUSY_NS_MIN 1000u

/* Where nothing was measured: bytes a second, and what a copy costs before its first byte. */
#define PEER_GUESS       UINT64_C(350000000000)
#define HOST_ROUTE_GUESS UINT64_C(50000000000)
#define CPU_GUESS        UINT64_C(8000000000)
#define NETWORK_GUESS    UINT64_C(2000000000)
#define LATENCY_GUESS    UINT64_C(10000)
#define NETWORK_LATENCY  UINT64_C(100000)
#define UNREACHED_NS     UINT64_C(3600000000000)

static uint64_t key_of(uint32_t from, uint32_t to)
{
    return ((uint64_t)from << 32 | to) + 1;
}

const struct head_way *head_rates_way(const struct head_core *core, uint32_t from,
                                      uint32_t to)
{
    return pl_map_get(&core->ways, key_of(from, to));
}

struct head_way *head_rates_way_of(struct head_core *core, uint32_t from, uint32_t to)
{
    struct head_way *way = pl_map_get(&core->ways, key_of(from, to));

    if (way == NULL) {
        way       = head_alloc(sizeof(*way));
        way->from = from;
        way->to   = to;
        PL_CHECK(pl_map_set(&core->ways, key_of(from, to), way) == PLASMON_OK);
    }
    return way;
}

void head_rates_destroy(struct head_core *core)
{
    size_t i = 0;
    uint64_t key;
    void *value;

    head_reach_destroy(core);
    while (pl_map_next(&core->ways, &i, &key, &value)) {
        struct head_way *way = value;

        pl_free(way->unreached);
        pl_free(way);
    }
    pl_map_finish(&core->ways);
}

/* ------------------------------------------------------------------------------ samples */

/* Towards a better figure by half, towards a worse one by a sixteenth. */
static uint64_t follow(uint64_t old, uint64_t sample, bool better)
{
    uint64_t apart = old > sample ? old - sample : sample - old;
    uint64_t step  = apart / (better ? 2 : 16);

    return sample > old ? old + step : old - step;
}

static void rate_sample(struct head_rate *rate, uint64_t bytes_per_s)
{
    rate->bytes_per_s = rate->rate_samples == 0 ? bytes_per_s
                                                : follow(rate->bytes_per_s, bytes_per_s,
                                                         bytes_per_s > rate->bytes_per_s);
    rate->rate_samples += rate->rate_samples < UINT32_MAX;
}

static void latency_sample(struct head_rate *rate, uint64_t ns)
{
    rate->latency_ns = rate->latency_samples == 0
                           ? ns
                           : follow(rate->latency_ns, ns, ns < rate->latency_ns);
    rate->latency_samples += rate->latency_samples < UINT32_MAX;
}

/* bytes in ns (not 0), as bytes a second. */
static uint64_t per_second(uint64_t bytes, uint64_t ns)
{
    return bytes > UINT64_MAX / 1000000000 ? bytes / pl_max_u64(ns / 1000000000, 1)
                                           : bytes * 1000000000 / ns;
}

void head_rates_take(struct head_core *core, const Plasmon__V1__PairStats *pair)
{
    const struct head_device *from = head_device_at(core, pair->from);
    const struct head_device *to   = head_device_at(core, pair->to);
    uint64_t bytes     = pair->bytes - pl_min_u64(pair->bytes, pair->in_flight_bytes);
    uint64_t transfers = pair->transfers - pl_min_u64(pair->transfers, pair->in_flight);
    struct head_rate *rate;
    uint64_t more, more_bytes, ns;

    if (pair->route >= HEAD_RATE_ROUTES || from == to || from == NULL || to == NULL) {
        return;
    }
    rate = &head_rates_way_of(core, pair->from, pair->to)->rates[pair->route];
    if (pair->sent) { /* a connection's own figure */
        if (pair->rate != 0 && pair->rate != rate->connection) { /* measured anew */
            rate->connection = pair->rate;
            rate_sample(rate, pair->rate);
        }
        return;
    }
    if (pair->route == HEAD_ROUTE_HOST && head_device_apart(from, to)) {
        return; /* its chunks may have been in the ring before its half began */
    }
    if (bytes < rate->bytes || transfers < rate->transfers ||
        pair->busy_ns < rate->busy_ns) { /* another worker, which began anew */
        rate->bytes = rate->transfers = rate->busy_ns = 0;
    }
    more       = transfers - rate->transfers;
    more_bytes = bytes - rate->bytes;
    ns         = pair->busy_ns - rate->busy_ns;
    if (more == 0 || ns < BUSY_NS_MIN) {
        return; /* its time comes with the next report */
    }
    if (more_bytes / more >= LARGE_BYTES) {
        rate_sample(rate, per_second(more_bytes, ns));
    } else if (more_bytes / more <= SMALL_BYTES) {
        latency_sample(rate, ns / more);
    }
    rate->bytes     = bytes;
    rate->transfers = transfers;
    rate->busy_ns   = pair->busy_ns;
}

/* ---------------------------------------------------------------------------- estimates */

static bool measured(const struct head_rate *rate)
{
    return rate->rate_samples >= HEAD_RATE_SAMPLES;
}

/* bytes at so many a second, and before the first of them. */
static uint64_t takes_ns(uint64_t latency_ns, uint64_t bytes, uint64_t bytes_per_s)
{
    uint64_t per_us = pl_max_u64(bytes_per_s / 1000000, 1);

    return latency_ns + bytes / per_us * 1000 + bytes % per_us * 1000 / per_us;
}

static uint64_t rate_ns(const struct head_rate *rate, uint64_t latency_ns, uint64_t bytes)
{
    return takes_ns(rate->latency_samples >= HEAD_RATE_SAMPLES ? rate->latency_ns
                                                               : latency_ns,
                    bytes, rate->bytes_per_s);
}

static uint64_t guess_ns(const struct head_core *core, const struct head_device *from,
                         const struct head_device *to, uint64_t bytes)
{
    uint64_t rate = to->kind == 1                                 ? CPU_GUESS
                    : core->config.transfer == HEAD_TRANSFER_HOST ? HOST_ROUTE_GUESS
                                                                  : PEER_GUESS;

    if (head_device_apart(from, to)) {
        return takes_ns(NETWORK_LATENCY, bytes, pl_min_u64(rate, NETWORK_GUESS));
    }
    return takes_ns(LATENCY_GUESS, bytes, rate);
}

/* Nothing gets through now: longer than by any other way. */
static uint64_t apart_ns(uint64_t bytes)
{
    return takes_ns(UNREACHED_NS, bytes, NETWORK_GUESS);
}

/* By the best route of this way; UINT64_MAX: none was measured. */
static uint64_t measured_ns(const struct head_core *core, const struct head_device *from,
                            const struct head_device *to, uint64_t bytes)
{
    const struct head_way *way = head_rates_way(core, from->index, to->index);
    uint64_t latency_ns = head_device_apart(from, to) ? NETWORK_LATENCY : LATENCY_GUESS;
    uint64_t best_ns    = UINT64_MAX;

    for (uint32_t route = HEAD_ROUTE_PEER; way != NULL && route <= HEAD_ROUTE_NCCL;
         route++) {
        if (measured(&way->rates[route])) {
            best_ns = pl_min_u64(best_ns, rate_ns(&way->rates[route], latency_ns, bytes));
        }
    }
    return best_ns;
}

uint64_t head_rates_ns(const struct head_core *core, const struct head_device *from,
                       const struct head_device *to, uint64_t bytes)
{
    uint64_t best_ns = head_reach_apart(core, from, to)
                           ? apart_ns(bytes)
                           : measured_ns(core, from, to, bytes);

    return best_ns != UINT64_MAX ? best_ns : guess_ns(core, from, to, bytes);
}

uint64_t head_rates_known_ns(struct head_core *core, const struct head_device *from,
                             const struct head_device *to, uint64_t bytes)
{
    uint64_t best_ns = measured_ns(core, from, to, bytes), others_ns = UINT64_MAX;

    if (head_reach_apart(core, from, to)) {
        return apart_ns(bytes);
    }
    for (uint32_t i = 0; best_ns == UINT64_MAX && i < core->devices.count; i++) {
        const struct head_device *other = head_device_at(core, i);

        if (head_device_apart(from, other)) {
            others_ns = pl_min_u64(others_ns, measured_ns(core, from, other, bytes));
        }
    }
    best_ns = pl_min_u64(best_ns, others_ns);
    return best_ns != UINT64_MAX ? best_ns : 0;
}

/* ----------------------------------------------------------------------------- choosing */

bool head_rates_nccl(struct head_core *core, const struct head_device *from,
                     const struct head_device *to, uint64_t bytes)
{
    struct head_way *way = pl_map_get(&core->ways, key_of(from->index, to->index));
    uint64_t host_ns, nccl_ns;

    if (way == NULL || !head_device_apart(from, to) ||
        !measured(&way->rates[HEAD_ROUTE_HOST]) ||
        !measured(&way->rates[HEAD_ROUTE_NCCL])) {
        return true; /* as long as nobody knows better */
    }
    host_ns = rate_ns(&way->rates[HEAD_ROUTE_HOST], NETWORK_LATENCY, bytes);
    nccl_ns = rate_ns(&way->rates[HEAD_ROUTE_NCCL], NETWORK_LATENCY, bytes);
    if (way->chosen == 0) {
        way->chosen = nccl_ns <= host_ns ? HEAD_ROUTE_NCCL : HEAD_ROUTE_HOST;
    } else if ((way->chosen == HEAD_ROUTE_NCCL ? host_ns : nccl_ns) <
               (way->chosen == HEAD_ROUTE_NCCL ? nccl_ns : host_ns) / 10 * 9) {
        way->chosen = way->chosen == HEAD_ROUTE_NCCL ? HEAD_ROUTE_HOST : HEAD_ROUTE_NCCL;
        way->other_after = 0;
        way->other_bytes = 0;
    }
    if (way->other_after >= EXPLORE_TRANSFERS &&
        way->other_bytes / EXPLORE_TRANSFERS >= bytes) {
        way->other_after = 0;
        way->other_bytes = 0;
        way->explored++;
        return way->chosen != HEAD_ROUTE_NCCL;
    }
    way->other_after += way->other_after < UINT32_MAX;
    way->other_bytes += bytes;
    return way->chosen == HEAD_ROUTE_NCCL;
}

/* -------------------------------------------------------------------------- checkpoints */

enum { WAY_NUMBERS = 7, RATE_NUMBERS = 8 };

void head_rates_save(const struct head_core *core, struct head_bytes *out)
{
    uint64_t key;
    void *value;

    head_bytes_varint(out, core->ways.count);
    for (size_t i = 0; pl_map_next(&core->ways, &i, &key, &value);) {
        const struct head_way *way          = value;
        const uint64_t numbers[WAY_NUMBERS] = {
            way->from,        way->to,       way->chosen, way->other_after,
            way->other_bytes, way->explored, way->alone};

        for (size_t n = 0; n < WAY_NUMBERS; n++) {
            head_bytes_varint(out, numbers[n]);
        }
        head_save_text(out, way->unreached != NULL ? way->unreached : "");
        for (uint32_t route = 0; route < HEAD_RATE_ROUTES; route++) {
            const struct head_rate *rate         = &way->rates[route];
            const uint64_t figures[RATE_NUMBERS] = {
                rate->bytes_per_s,     rate->latency_ns, rate->rate_samples,
                rate->latency_samples, rate->connection, rate->bytes,
                rate->transfers,       rate->busy_ns};

            for (size_t n = 0; n < RATE_NUMBERS; n++) {
                head_bytes_varint(out, figures[n]);
            }
        }
    }
}

static void rate_load(struct head_reader *in, struct head_rate *rate)
{
    rate->bytes_per_s     = head_load_number(in);
    rate->latency_ns      = head_load_number(in);
    rate->rate_samples    = (uint32_t)head_load_below(in, UINT32_MAX);
    rate->latency_samples = (uint32_t)head_load_below(in, UINT32_MAX);
    rate->connection      = head_load_number(in);
    rate->bytes           = head_load_number(in);
    rate->transfers       = head_load_number(in);
    rate->busy_ns         = head_load_number(in);
}

void head_rates_load(struct head_core *core, struct head_reader *in)
{
    size_t count = head_load_count(in);

    for (size_t i = 0; i < count && !in->bad; i++) {
        uint32_t from = (uint32_t)head_load_below(in, WIRE_DEVICES_MAX);
        uint32_t to   = (uint32_t)head_load_below(in, WIRE_DEVICES_MAX);
        struct head_way *way;
        char *unreached;
        bool alone;

        if (in->bad || from >= core->devices.count || to >= core->devices.count) {
            in->bad = true;
            return;
        }
        way              = head_rates_way_of(core, from, to);
        way->chosen      = (uint32_t)head_load_below(in, HEAD_ROUTE_NCCL);
        way->other_after = (uint32_t)head_load_below(in, UINT32_MAX);
        way->other_bytes = head_load_number(in);
        way->explored    = head_load_number(in);
        alone            = head_load_flag(in);
        unreached        = head_load_text(in);
        head_reach_restore(core, way, unreached, alone);
        pl_free(unreached);
        for (uint32_t route = 0; route < HEAD_RATE_ROUTES; route++) {
            rate_load(in, &way->rates[route]);
        }
    }
}

/* --------------------------------------------------------------------------- for people */

static int compare_ways(const void *a, const void *b)
{
    const struct head_way *x = *(struct head_way *const *)a;
    const struct head_way *y = *(struct head_way *const *)b;

    return x->from != y->from ? (x->from > y->from) - (x->from < y->from)
                              : (x->to > y->to) - (x->to < y->to);
}

static plasmon_status_t way_status(struct head_core *core, struct wire_arena *arena,
                                   const struct head_way *way,
                                   Plasmon__V1__RouteChoice *out)
{
    char why[HEAD_WHY_BYTES];

    plasmon__v1__route_choice__init(out);
    out->from  = way->from;
    out->to    = way->to;
    out->route = head_route_plan(core, head_device_at(core, way->from),
                                 head_device_at(core, way->to), why);
    out->why   = wire_arena_text(arena, why);
    if (out->why == NULL) {
        return PLASMON_ENOMEM;
    }
    out->explored = way->explored;
    out->rates    = wire_arena_alloc(arena, HEAD_RATE_ROUTES * sizeof(*out->rates));
    for (uint32_t route = 0; out->rates != NULL && route < HEAD_RATE_ROUTES; route++) {
        const struct head_rate *rate = &way->rates[route];
        Plasmon__V1__RouteRate *to;

        if (rate->rate_samples == 0 && rate->latency_samples == 0) {
            continue;
        }
        to = wire_arena_alloc(arena, sizeof(*to));
        if (to == NULL) {
            return PLASMON_ENOMEM;
        }
        plasmon__v1__route_rate__init(to);
        to->route                  = route;
        to->bytes_per_second       = rate->bytes_per_s;
        to->latency_ns             = rate->latency_ns;
        to->samples                = rate->rate_samples;
        to->latency_samples        = rate->latency_samples;
        out->rates[out->n_rates++] = to;
    }
    return out->rates != NULL ? PLASMON_OK : PLASMON_ENOMEM;
}

/*
 * One line has it for all devices of two hosts that are apart; but what is of two devices alone is
 * in a line of its own.
 */
static bool first_of_hosts(struct head_core *core, const struct head_way *way,
                           struct pl_map *told)
{
    void *hosts  = head_reach_hosts(core, head_device_at(core, way->from),
                                    head_device_at(core, way->to));
    uint64_t key = (uint64_t)(uintptr_t)hosts;

    if (hosts == NULL) {
        return true;
    }
    if (pl_map_get(told, key) != NULL) {
        return false;
    }
    PL_CHECK(pl_map_set(told, key, hosts) == PLASMON_OK);
    return true;
}

plasmon_status_t head_rates_status(struct head_core *core, struct wire_arena *arena,
                                   Plasmon__V1__StatusReply *out)
{
    size_t count = core->ways.count, at = 0;
    struct head_way **ways =
        wire_arena_alloc(arena, (count + 1) * sizeof(struct head_way *));
    plasmon_status_t status = PLASMON_OK;
    struct pl_map told; /* hosts -> themselves */
    uint64_t key;
    void *way;

    out->choices = wire_arena_alloc(arena, (count + 1) * sizeof(*out->choices));
    if (ways == NULL || out->choices == NULL) {
        return PLASMON_ENOMEM;
    }
    for (size_t i = 0; pl_map_next(&core->ways, &i, &key, &way);) {
        ways[at++] = way;
    }
    qsort(ways, at, sizeof(struct head_way *), compare_ways);
    pl_map_init(&told);
    for (size_t i = 0; i < at && status == PLASMON_OK; i++) {
        Plasmon__V1__RouteChoice *choice = wire_arena_alloc(arena, sizeof(*choice));

        status = choice == NULL ? PLASMON_ENOMEM : way_status(core, arena, ways[i], choice);
        if (status == PLASMON_OK &&
            (choice->n_rates > 0 ||
             (ways[i]->unreached != NULL && first_of_hosts(core, ways[i], &told)))) {
            out->choices[out->n_choices++] = choice;
        }
    }
    pl_map_finish(&told);
    return status;
}
