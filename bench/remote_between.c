/*
 * Objects between devices of two hosts, by the bulk channel: that is one connection a direction, so
 * one stream is what it is measured beside.
 *
 * Three contestants move the same number of bytes in each round, one after the other: new objects,
 * 8 of them in flight; one stream as iperf3 sends it; and the same objects by hand (raw_tcp.c). The
 * ratio is the median of those of the rounds, so that what else the machine does counts for all of
 * them alike.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "bench/raw_tcp.h"
#include "bench/remote.h"

#define LATENCY_ROUNDS       20u
#define LATENCY_ROUNDS_LARGE 5u /* as Plasmon's own, above LARGE_BYTES */
#define LARGE_BYTES          (UINT64_C(100) << 20)

struct between {
    struct remote *remote;
    struct transfer transfer;
};

static double by_hand(struct remote *remote, uint32_t count, uint64_t bytes)
{
    double seconds = 0;

    for (uint32_t i = 0; i < count; i++) {
        seconds += bench_must_raw_tcp(remote->raw_fd, true, remote->src, bytes);
    }
    return seconds;
}

static void measure_new(struct between *between, uint64_t bytes)
{
    struct remote *remote     = between->remote;
    struct transfer *transfer = &between->transfer;
    uint32_t rounds           = remote->given->rounds;
    uint32_t count            = transfer_objects(transfer, bytes);
    double gigabytes          = (double)bytes * count * 1e-9;
    struct plasmon_ref **refs = bench_must_alloc(count * sizeof(struct plasmon_ref *));
    double ours[REMOTE_ROUNDS_MAX], stream[REMOTE_ROUNDS_MAX], hand[REMOTE_ROUNDS_MAX];
    double ratio[REMOTE_ROUNDS_MAX];
    struct bench_row row = {
        .x = (double)bytes, .unit = "GB/s", .limit_name = "one TCP stream, as iperf3"};

    (void)transfer_move_new(transfer, refs, count, bytes);
    for (uint32_t i = 0; i < rounds; i++) {
        ours[i]   = transfer_move_new(transfer, refs, count, bytes);
        stream[i] = bench_must_raw_tcp_stream(remote->raw_fd, bytes * count);
        hand[i]   = by_hand(remote, count, bytes);
        ratio[i]  = stream[i] / ours[i];
    }
    row.value  = gigabytes / bench_percentile(ours, rounds, 0.5);
    row.limit  = gigabytes / bench_percentile(stream, rounds, 0.5);
    row.ratio  = bench_percentile(ratio, rounds, 0.5);
    row.target = remote->tls || bytes < (UINT64_C(16) << 20) ? 0 : -0.9;
    (void)snprintf(row.name, sizeof(row.name), TRANSFER_NEW);
    (void)snprintf(row.series, sizeof(row.series), "%s", transfer->route);
    (void)snprintf(row.note, sizeof(row.note),
                   "%u objects; ratio: median of pairs; by hand, a MiB a call: %.2f GB/s",
                   count, gigabytes / bench_percentile(hand, rounds, 0.5));
    bench_report_add(&transfer->report, &row);
    pl_free(refs);
}

/* One object by hand, for the shapes that take their yardstick ready made. */
static void measure_raw(struct remote *remote, uint64_t bytes, double *raw)
{
    uint32_t rounds = bytes > LARGE_BYTES ? LATENCY_ROUNDS_LARGE : LATENCY_ROUNDS;
    double each[LATENCY_ROUNDS];

    for (uint32_t i = 0; i < rounds; i++) {
        each[i] = bench_must_raw_tcp(remote->raw_fd, true, remote->src, bytes);
    }
    raw[BENCH_RAW_TCP_LATENCY] = bench_percentile(each, rounds, 0.5);
}

static void must_be_apart(const struct bench_cluster *cluster, uint32_t from, uint32_t to)
{
    const char *node = bench_must_device(cluster, from, "--between")->node;

    if (strcmp(node, bench_must_device(cluster, to, "--between")->node) == 0) {
        bench_die("--between %u,%u: both devices are on %s", from, to, node);
    }
}

void bench_remote_between(struct remote *remote, uint32_t from, uint32_t to,
                          const uint64_t *sizes, uint32_t count)
{
    const struct bench_cluster_config config = {.gpus = NULL};
    struct between between                   = {.remote   = remote,
                                                .transfer = {.route     = remote->tls ? "tcp tls" : "tcp",
                                                             .in_flight = 8,
                                                             .crossing  = TRANSFER_CROSSING,
                                                             .from      = from,
                                                             .to        = to}};
    struct transfer *transfer                = &between.transfer;
    double raw[BENCH_RAW_FIGURES]            = {0};

    bench_say("objects from device %u to device %u", from, to);
    (void)unsetenv("PLASMON_CLIENT_PATH");
    bench_must_start(&transfer->cluster, &config);
    must_be_apart(&transfer->cluster, from, to);
    bench_report_init(&transfer->report, "");
    for (uint32_t i = 0; i < count; i++) {
        transfer_check(transfer, sizes[i]);
        measure_new(&between, sizes[i]);
        measure_raw(remote, sizes[i], raw);
        transfer_measure_latency(transfer, sizes[i], raw);
        transfer_measure_duplex(transfer, sizes[i], raw);
    }
    bench_report_append(&remote->report, &transfer->report);
    bench_report_finish(&transfer->report);
    bench_cluster_finish(&transfer->cluster);
}
