/*
 * The shapes of `plasmon bench transfer`: what is moved, checked and timed.
 *
 *   new       every object is made on device 0 and read by a task on device 1, so it moves once; 8
 *             in flight (--in-flight)
 *   latency   one object, one reader: from the call to its end
 *   many      one object, read by a task on every other device at once
 *   both ways new objects between the first two devices
 *   all       new objects from each device to each other one
 *
 * A task that reads is the least that makes an object move; its own time is part of the figures.
 */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "bench/transfer.h"

#define ROUNDS         5u
#define SAMPLES_MAX    200u
#define SETTLE_BYTES   (UINT64_C(64) << 20)
#define SETTLE_NS      UINT64_C(60000000000)
#define SETTLE_COPY_NS UINT64_C(1000000000)
#define SETTLE_REST_NS UINT64_C(1500000000)
/* up to here bytes are compared here; above, checksums of both devices */
#define COMPARE_MAX (64u << 20)

/* ------------------------------------------------------------------ objects and readers */

static struct plasmon_ref *make(struct transfer *transfer, uint64_t bytes, double start,
                                uint32_t device)
{
    const struct plasmon_shape shape = bench_shape(PLASMON_F32, 1, (int64_t)(bytes / 4), 0);
    const plasmon_scalar_t scalars[2] = {{.f = start}, {.f = 1}};

    return bench_must_make(&transfer->cluster, "arange", &shape, scalars, 2, (int)device);
}

static bool by_peer(const struct transfer *transfer)
{
    return strcmp(transfer->route, "peer") == 0;
}

static uint64_t objects_that_fit(const struct transfer *transfer, uint64_t bytes)
{
    return pl_min_u64(transfer->cluster.info[0].bytes_total / 4, 32ull << 30) / bytes;
}

uint32_t transfer_objects(const struct transfer *transfer, uint64_t bytes)
{
    return (uint32_t)pl_max_u64(
        1, pl_min_u64(TRANSFER_OBJECTS_MAX, objects_that_fit(transfer, bytes)));
}

/* -------------------------------------------------------------------- right before fast */

static struct plasmon_ref *on_device(struct transfer *transfer, const char *function,
                                     struct plasmon_ref *in, int device)
{
    const struct plasmon_arg args[2] = {{.mode = PLASMON_OUT},
                                        {.mode = PLASMON_IN, .ref = in}};
    struct plasmon_call call         = PLASMON_CALL_INIT;
    struct plasmon_ref *out;

    call.function  = function;
    call.args      = args;
    call.arg_count = 2;
    call.device    = device;
    bench_must(&transfer->cluster,
               plasmon_submit(transfer->cluster.client, &call, &out, NULL), function);
    return out;
}

static uint64_t checksum_on(struct transfer *transfer, struct plasmon_ref *ref, int device)
{
    struct plasmon_ref *sum = on_device(transfer, "checksum", ref, device);
    uint64_t value;

    bench_must(
        &transfer->cluster,
        plasmon_get(transfer->cluster.client, sum, &value, sizeof(value), PLASMON_FOREVER),
        "getting a checksum");
    bench_must_release(&transfer->cluster, &sum, 1);
    return value;
}

static void check_bytes(struct transfer *transfer, struct plasmon_ref *ref, uint64_t bytes)
{
    struct plasmon_ref *copy = on_device(transfer, "copy", ref, (int)transfer->to);
    float *got               = bench_must_alloc(bytes);

    bench_must(&transfer->cluster,
               plasmon_get(transfer->cluster.client, copy, got, bytes, PLASMON_FOREVER),
               "getting");
    for (uint64_t i = 0; i < bytes / 4; i++) {
        float want = (float)(3.0 + (double)i);

        if (memcmp(&got[i], &want, sizeof(want)) != 0) {
            bench_die("route %s, %llu bytes: element %llu is %g and not %g",
                      transfer->route, (unsigned long long)bytes, (unsigned long long)i,
                      (double)got[i], (double)want);
        }
    }
    pl_free(got);
    bench_must_release(&transfer->cluster, &copy, 1);
}

void transfer_check(struct transfer *transfer, uint64_t bytes)
{
    struct plasmon_ref *ref = make(transfer, bytes, 3, transfer->from);

    if (bytes <= COMPARE_MAX) {
        check_bytes(transfer, ref, bytes);
    } else {
        uint64_t here  = checksum_on(transfer, ref, (int)transfer->from),
                 there = checksum_on(transfer, ref, (int)transfer->to);

        if (here != there) {
            bench_die("route %s, %llu bytes: other bytes arrived than were sent",
                      transfer->route, (unsigned long long)bytes);
        }
    }
    bench_must_release(&transfer->cluster, &ref, 1);
}

/* --------------------------------------------------- one receiver, or all of one object */

double transfer_move_new(struct transfer *transfer, struct plasmon_ref **refs,
                         uint32_t count, uint64_t bytes)
{
    struct plasmon_ref *tasks[TRANSFER_OBJECTS_MAX];
    uint64_t began;
    double seconds;

    for (uint32_t i = 0; i < count; i++) {
        refs[i] = make(transfer, bytes, i, transfer->from);
    }
    bench_must_wait(&transfer->cluster, refs, count);
    began = pl_now_ns();
    for (uint32_t i = 0; i < count; i++) {
        if (i >= transfer->in_flight) {
            bench_must_wait(&transfer->cluster, &tasks[i - transfer->in_flight], 1);
        }
        tasks[i] = bench_must_touch(&transfer->cluster, refs[i], (int)transfer->to);
    }
    bench_must_wait(&transfer->cluster, tasks, count);
    seconds = (double)(pl_now_ns() - began) * 1e-9;
    bench_must_release(&transfer->cluster, tasks, count);
    bench_must_release(&transfer->cluster, refs, count);
    return seconds;
}

/* One object to these devices. */
static double move_one(struct transfer *transfer, const uint32_t *to, uint32_t count,
                       uint64_t bytes)
{
    struct plasmon_ref *tasks[PL_COUNT(transfer->cluster.info)];
    struct plasmon_ref *ref = make(transfer, bytes, 1, transfer->from);
    uint64_t began;
    double seconds;

    bench_must_wait(&transfer->cluster, &ref, 1);
    began = pl_now_ns();
    for (uint32_t i = 0; i < count; i++) {
        tasks[i] = bench_must_touch(&transfer->cluster, ref, (int)to[i]);
    }
    bench_must_wait(&transfer->cluster, tasks, count);
    seconds = (double)(pl_now_ns() - began) * 1e-9;
    bench_must_release(&transfer->cluster, tasks, count);
    bench_must_release(&transfer->cluster, &ref, 1);
    return seconds;
}

static void add(struct transfer *transfer, const char *shape, uint64_t bytes, double value,
                double p99, const char *unit, double limit, const char *limit_name,
                const char *note)
{
    struct bench_row row = {.x          = (double)bytes,
                            .value      = value,
                            .p99        = p99,
                            .unit       = unit,
                            .limit      = limit > 0 ? limit : 0,
                            .limit_name = limit_name};

    (void)snprintf(row.name, sizeof(row.name), "%s", shape);
    (void)snprintf(row.series, sizeof(row.series), "%s", transfer->route);
    (void)snprintf(row.note, sizeof(row.note), "%s", note);
    bench_report_add(&transfer->report, &row);
}

/* What a route is held against, in each shape. */
struct yardstick {
    const char *route;
    enum bench_raw_figure in_a_row, latency, many, duplex, all;
    const char *in_a_row_name, *one_name, *many_name, *together_name;
};
static const struct yardstick yardsticks[] = {
    {"peer", BENCH_RAW_PEER, BENCH_RAW_PEER_LATENCY, BENCH_RAW_PEER_MANY,
     BENCH_RAW_PEER_DUPLEX, BENCH_RAW_PEER_ALL, "raw copies in a row", "one raw copy",
     "raw copies to all at once", "raw copies running together"},
    {"host", BENCH_RAW_HOST, BENCH_RAW_HOST_LATENCY, BENCH_RAW_HOST_MANY,
     BENCH_RAW_HOST_DUPLEX, BENCH_RAW_HOST_ALL, "raw copies in a row", "one raw copy",
     "raw copies to all at once", "raw copies running together"},
    {"nccl", BENCH_RAW_NCCL, BENCH_RAW_NCCL_LATENCY, BENCH_RAW_NCCL_MANY,
     BENCH_RAW_NCCL_DUPLEX, BENCH_RAW_NCCL_ALL, "raw NCCL in a row", "raw NCCL, one",
     "raw NCCL to all at once", "raw NCCL, all at once"},
};
/* Between hosts. There are no yardsticks of more than two. */
static const struct yardstick tcp = {NULL,
                                     BENCH_RAW_TCP,
                                     BENCH_RAW_TCP_LATENCY,
                                     BENCH_RAW_FIGURES,
                                     BENCH_RAW_FIGURES,
                                     BENCH_RAW_FIGURES,
                                     "raw copies in a row",
                                     "raw TCP, one",
                                     "",
                                     ""};

static const struct yardstick *yardstick_of(const struct transfer *transfer)
{
    for (size_t i = 0; i < PL_COUNT(yardsticks); i++) {
        if (strcmp(transfer->route, yardsticks[i].route) == 0) {
            return &yardsticks[i];
        }
    }
    return &tcp;
}

/* Seconds; negative: not measured. */
static double raw_of(const double *raw, enum bench_raw_figure figure)
{
    return figure < BENCH_RAW_FIGURES ? raw[figure] : -1;
}

void transfer_measure_new(struct transfer *transfer, uint64_t bytes, const double *raw)
{
    uint32_t count            = transfer_objects(transfer, bytes);
    struct plasmon_ref **refs = bench_must_alloc(count * sizeof(struct plasmon_ref *));
    double seconds[ROUNDS], gigabytes = (double)bytes * 1e-9;
    char note[64];

    (void)transfer_move_new(transfer, refs, count, bytes);
    for (size_t i = 0; i < ROUNDS; i++) {
        seconds[i] = transfer_move_new(transfer, refs, count, bytes);
    }
    (void)snprintf(note, sizeof(note), "%u objects", count);
    add(transfer, TRANSFER_NEW, bytes,
        gigabytes * count / bench_percentile(seconds, ROUNDS, 0.5), 0, "GB/s",
        gigabytes / raw[yardstick_of(transfer)->in_a_row],
        yardstick_of(transfer)->in_a_row_name, note);
    pl_free(refs);
}

static uint32_t samples_of(uint64_t bytes)
{
    return bytes <= (1u << 20) ? SAMPLES_MAX : 20;
}

void transfer_measure_latency(struct transfer *transfer, uint64_t bytes, const double *raw)
{
    uint32_t samples = samples_of(bytes);
    double seconds[SAMPLES_MAX], p50, p99;

    for (uint32_t i = 0; i < samples; i++) {
        seconds[i] = move_one(transfer, &transfer->to, 1, bytes);
    }
    p50 = bench_percentile(seconds, samples, 0.5);
    p99 = samples >= 100 ? bench_percentile(seconds, samples, 0.99) : 0;
    add(transfer, "single latency", bytes, p50 * 1e6, p99 * 1e6, "us",
        raw[yardstick_of(transfer)->latency] * 1e6, yardstick_of(transfer)->one_name,
        "from the call to its end");
    transfer->one = p50;
}

void transfer_measure_many(struct transfer *transfer, uint64_t bytes, const double *raw)
{
    uint32_t count = transfer->cluster.devices - 1, samples = samples_of(bytes);
    uint32_t to[PL_COUNT(transfer->cluster.info)];
    const struct yardstick *by = yardstick_of(transfer);
    double seconds[SAMPLES_MAX], one, all, many = raw_of(raw, by->many);
    bool chain = by_peer(transfer) && raw[BENCH_RAW_PEER_CHAIN] > 0 &&
                 raw[BENCH_RAW_PEER_CHAIN] < many;
    char note[96];

    for (uint32_t i = 0; i < count; i++) {
        to[i] = i + 1;
    }
    for (uint32_t i = 0; i < samples; i++) {
        seconds[i] = move_one(transfer, to, count, bytes);
    }
    one  = raw[by->latency];
    all  = bench_percentile(seconds, samples, 0.5);
    many = chain ? raw[BENCH_RAW_PEER_CHAIN] : many;
    (void)snprintf(note, sizeof(note),
                   "takes %.2f of one raw copy, %.2f of one by this route; by hand %.2f",
                   all / one, all / transfer->one, many > 0 ? many / one : 0);
    add(transfer, "one to all devices", bytes, (double)bytes * count * 1e-9 / all, 0,
        "GB/s", many > 0 ? (double)bytes * count * 1e-9 / many : 0,
        chain ? "raw chain of 16 MiB pieces" : by->many_name, note);
}

/* --------------------------------------------------------- everybody sends and receives */

/* One object from each of the first `devices` to each other one. */
struct exchange {
    struct plasmon_ref *ref;  /* on `from` */
    struct plasmon_ref *task; /* reads it on `to` */
    uint32_t from, to;
};

/*
 * In rounds: in each one every device reads from another source, and no source is read by two. Of
 * two: the transfer's.
 */
static uint32_t plan_exchange(const struct transfer *transfer, struct exchange *exchange,
                              uint32_t devices, uint32_t turns)
{
    const uint32_t two[2] = {transfer->from, transfer->to};
    uint32_t count        = 0;

    for (uint32_t turn = 0; turn < turns; turn++) {
        for (uint32_t step = 1; step < devices; step++) {
            for (uint32_t to = 0; to < devices; to++) {
                uint32_t from = (to + step) % devices;

                exchange[count++] =
                    (struct exchange){.from = devices == 2 ? two[from] : from,
                                      .to   = devices == 2 ? two[to] : to};
            }
        }
    }
    return count;
}

static void make_all(struct transfer *transfer, struct exchange *exchange, uint32_t count,
                     uint64_t bytes)
{
    for (uint32_t i = 0; i < count; i++) {
        exchange[i].ref = make(transfer, bytes, i, exchange[i].from);
    }
    for (uint32_t i = 0; i < count; i++) {
        bench_must_wait(&transfer->cluster, &exchange[i].ref, 1);
    }
}

static void check_all(struct transfer *transfer, struct exchange *exchange, uint32_t count,
                      uint64_t bytes)
{
    make_all(transfer, exchange, count, bytes);
    for (uint32_t i = 0; i < count; i++) {
        struct exchange *it = &exchange[i];

        if (checksum_on(transfer, it->ref, (int)it->from) !=
            checksum_on(transfer, it->ref, (int)it->to)) {
            bench_die("route %s, %llu bytes from device %u to device %u: other bytes "
                      "arrived than were sent",
                      transfer->route, (unsigned long long)bytes, it->from, it->to);
        }
        bench_must_release(&transfer->cluster, &it->ref, 1);
    }
}

static double move_all(struct transfer *transfer, struct exchange *exchange, uint32_t count,
                       uint64_t bytes)
{
    uint64_t began;
    double seconds;

    make_all(transfer, exchange, count, bytes);
    began = pl_now_ns();
    for (uint32_t i = 0; i < count; i++) {
        exchange[i].task =
            bench_must_touch(&transfer->cluster, exchange[i].ref, (int)exchange[i].to);
    }
    for (uint32_t i = 0; i < count; i++) {
        bench_must_wait(&transfer->cluster, &exchange[i].task, 1);
    }
    seconds = (double)(pl_now_ns() - began) * 1e-9;
    for (uint32_t i = 0; i < count; i++) {
        bench_must_release(&transfer->cluster, &exchange[i].task, 1);
        bench_must_release(&transfer->cluster, &exchange[i].ref, 1);
    }
    return seconds;
}

/* raw_seconds: of one turn. */
static void measure_exchange(struct transfer *transfer, const char *name, uint32_t devices,
                             uint64_t bytes, double raw_seconds)
{
    uint32_t pairs = devices * (devices - 1);
    uint32_t turns = (uint32_t)pl_max_u64(
        1, pl_min_u64(objects_that_fit(transfer, bytes) / 2, transfer->crossing) / pairs);
    uint32_t count            = pairs * turns;
    struct exchange *exchange = bench_must_alloc(count * sizeof(*exchange));
    double gigabytes          = (double)bytes * 1e-9, seconds[ROUNDS];
    char note[64];

    (void)plan_exchange(transfer, exchange, devices, 1);
    check_all(transfer, exchange, pairs, bytes);
    (void)plan_exchange(transfer, exchange, devices, turns);
    (void)move_all(transfer, exchange, count, bytes);
    for (size_t i = 0; i < ROUNDS; i++) {
        seconds[i] = move_all(transfer, exchange, count, bytes);
    }
    (void)snprintf(note, sizeof(note), "sum of all devices, %u objects", count);
    add(transfer, name, bytes, gigabytes * count / bench_percentile(seconds, ROUNDS, 0.5),
        0, "GB/s", raw_seconds > 0 ? gigabytes * pairs / raw_seconds : 0,
        yardstick_of(transfer)->together_name, note);
    pl_free(exchange);
}

void transfer_settle(struct transfer *transfer)
{
    uint32_t devices = transfer->cluster.devices, pairs = devices * (devices - 1);
    uint64_t until_ns = pl_now_ns() + SETTLE_NS, largest = 0;
    const struct timespec nap = {.tv_nsec = 50000000};
    struct exchange *exchange;
    struct bench_status status;

    for (uint32_t i = 0; i < transfer->raw.size_count; i++) {
        largest = pl_max_u64(largest, transfer->raw.size[i]);
    }
    if (!transfer->raw.cuda || !by_peer(transfer) || largest < SETTLE_BYTES / 2) {
        return;
    }
    exchange = bench_must_alloc(pairs * sizeof(*exchange));
    (void)plan_exchange(transfer, exchange, devices, 1);
    do { /* they open when they have copied much and may rest */
        uint64_t copy_until_ns = pl_now_ns() + SETTLE_COPY_NS;
        uint64_t rest_until_ns = copy_until_ns + SETTLE_REST_NS;

        do {
            (void)move_all(transfer, exchange, pairs, SETTLE_BYTES);
        } while (pl_now_ns() < copy_until_ns);
        do {
            (void)nanosleep(&nap, NULL); /* cut short is as good */
            bench_must_status(&transfer->cluster, &status);
        } while ((status.engines_opening && pl_now_ns() < until_ns) ||
                 (status.engines_own && pl_now_ns() < rest_until_ns));
    } while ((status.engines_own || status.engines_opening) && pl_now_ns() < until_ns);
    if (status.engines_sources) {
        bench_report_remark(&transfer->report,
                            "route %s: from 32 MiB on the GPU that bytes come from writes "
                            "them (docs/transfers.md, whose engines copy)",
                            transfer->route);
    }
    pl_free(exchange);
}

void transfer_measure_duplex(struct transfer *transfer, uint64_t bytes, const double *raw)
{
    measure_exchange(transfer, "two devices, both ways", 2, bytes,
                     raw_of(raw, yardstick_of(transfer)->duplex));
}

void transfer_measure_all(struct transfer *transfer, uint64_t bytes, const double *raw)
{
    measure_exchange(transfer, "all to all", transfer->cluster.devices, bytes,
                     raw_of(raw, yardstick_of(transfer)->all));
}

void transfer_show_words(struct transfer *transfer, uint64_t bytes, const double *raw)
{
    static const struct {
        const char *name;
        enum bench_raw_figure figure, limit;
        const char *note;
    } ways[] = {
        {"by hand: with a word each", BENCH_RAW_PEER_WORD, BENCH_RAW_PEER, "one stream"},
        {"by hand: words, two streams", BENCH_RAW_PEER_WORD_TURNS, BENCH_RAW_PEER,
         "by turns"},
        {"by hand: words beside", BENCH_RAW_PEER_WORD_BESIDE, BENCH_RAW_PEER,
         "written by another stream, behind an event"},
        {"by hand: one copy in two halves", BENCH_RAW_PEER_HALVES, BENCH_RAW_PEER_LATENCY,
         "on two streams"},
    };

    for (size_t i = 0; i < PL_COUNT(ways); i++) {
        if (raw[ways[i].figure] > 0 && raw[ways[i].limit] > 0) {
            add(transfer, ways[i].name, bytes, (double)bytes * 1e-9 / raw[ways[i].figure],
                0, "GB/s", (double)bytes * 1e-9 / raw[ways[i].limit],
                ways[i].limit == BENCH_RAW_PEER ? "raw copies in a row" : "one raw copy",
                ways[i].note);
        }
    }
}
