/*
 * Gets and puts by each way that a client's bytes can take (docs/transfers.md), for each kind of
 * device, checked before they are timed. Each way needs a client of its own, so a private cluster
 * is started for each.
 *
 * Yardsticks: memcpy on as many threads as the client uses; through a lane, the slower of that and
 * of pinned copies.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "bench/bench.h"
#include "client/parallel.h"

#define ROUNDS 5u

struct way {
    struct bench_tasks_run *run;
    struct bench_cluster cluster;
    const char *path;
    uint8_t *src, *dst; /* touched; object_bytes */
};

static double copy_rate(const struct way *way, uint64_t bytes)
{
    double seconds[ROUNDS];

    for (size_t i = 0; i < ROUNDS; i++) {
        uint64_t began = pl_now_ns();

        parallel_copy(way->dst, way->src, bytes);
        seconds[i] = (double)(pl_now_ns() - began) * 1e-9;
    }
    return (double)bytes * 1e-9 / bench_percentile(seconds, ROUNDS, 0.5);
}

static void round_trip(struct way *way, int device, uint64_t bytes, double *out_put,
                       double *out_get)
{
    struct bench_cluster *cluster      = &way->cluster;
    const struct plasmon_shape shape   = bench_shape(PLASMON_U8, 1, (int64_t)bytes, 0);
    struct plasmon_put_options options = PLASMON_PUT_INIT;
    struct plasmon_ref *ref;
    uint64_t began;

    options.device = device;
    way->src[bytes / 2] ^= 0x55; /* so that an old copy is not mistaken for the new one */
    memset(way->dst, 0, bytes);
    began = pl_now_ns();
    bench_must(cluster, plasmon_put(cluster->client, way->src, &shape, &options, &ref),
               "putting");
    bench_must_wait(cluster, &ref, 1);
    *out_put = (double)(pl_now_ns() - began) * 1e-9;
    began    = pl_now_ns();
    bench_must(cluster, plasmon_get(cluster->client, ref, way->dst, bytes, PLASMON_FOREVER),
               "getting");
    *out_get = (double)(pl_now_ns() - began) * 1e-9;
    if (memcmp(way->src, way->dst, bytes) != 0) {
        bench_die("a get of %llu bytes, %s, gave other bytes than were put",
                  (unsigned long long)bytes, way->path);
    }
    bench_must_release(cluster, &ref, 1);
}

static void add_row(struct way *way, const struct plasmon_device_info *info, bool put,
                    uint64_t bytes, double *seconds)
{
    bool cuda            = info->kind == 2;
    bool staged          = strcmp(way->path, "staged") == 0;
    double pinned        = cuda ? way->run->pinned[put ? 0 : 1] : 0,
           copied        = copy_rate(way, bytes);
    struct bench_row row = {.x          = (double)bytes,
                            .unit       = "GB/s",
                            .limit      = copied,
                            .limit_name = "memcpy on as many threads"};

    if (staged && pinned > 0 && pinned < copied) {
        row.limit      = pinned;
        row.limit_name = "pinned copies of the same slots";
    }
    (void)snprintf(row.name, sizeof(row.name), "%s_by_path", put ? "put" : "get");
    (void)snprintf(row.series, sizeof(row.series), "%s, %s", cuda ? "CUDA" : "CPU",
                   way->path);
    row.value = (double)bytes * 1e-9 / bench_percentile(seconds, ROUNDS, 0.5);
    bench_report_add(&way->run->report, &row);
}

static void measure_size(struct way *way, const struct plasmon_device_info *info,
                         uint64_t bytes)
{
    double put_seconds[ROUNDS], get_seconds[ROUNDS], unused[2];

    round_trip(way, info->index, bytes, &unused[0], &unused[1]); /* maps, pins */
    for (size_t i = 0; i < ROUNDS; i++) {
        round_trip(way, info->index, bytes, &put_seconds[i], &get_seconds[i]);
    }
    add_row(way, info, true, bytes, put_seconds);
    add_row(way, info, false, bytes, get_seconds);
}

static void measure_way(struct way *way)
{
    uint64_t largest = strcmp(way->path, "messages") == 0
                           ? pl_min_u64(way->run->object_bytes, 64u << 20)
                           : way->run->object_bytes;
    int kinds        = 0; /* a bit each that was measured */

    for (uint32_t i = 0; i < way->cluster.devices; i++) {
        const struct plasmon_device_info *info = &way->cluster.info[i];

        if ((kinds & 1 << info->kind) != 0 ||
            (info->kind == 2 && strcmp(way->path, "mapped") == 0)) {
            continue;
        }
        kinds |= 1 << info->kind;
        for (uint64_t bytes = 1u << 20; bytes < largest; bytes *= 16) {
            measure_size(way, info, bytes);
        }
        measure_size(way, info, pl_min_u64(largest, info->bytes_total / 4));
    }
}

void bench_tasks_paths(struct bench_tasks_run *run,
                       const struct bench_cluster_config *config)
{
    static const char *const paths[] = {"mapped", "staged", "messages"};
    struct way way                   = {.run = run,
                                        .src = bench_must_alloc(run->object_bytes),
                                        .dst = bench_must_alloc(run->object_bytes)};

    for (uint64_t i = 0; i < run->object_bytes; i++) {
        way.src[i] = (uint8_t)((i * 2654435761u) >> 24);
    }
    for (size_t i = 0; i < PL_COUNT(paths); i++) {
        way.path = paths[i];
        if (setenv("PLASMON_CLIENT_PATH", way.path, 1) != 0) {
            bench_die("out of memory");
        }
        bench_must_start(&way.cluster, config);
        measure_way(&way);
        bench_cluster_finish(&way.cluster);
    }
    (void)unsetenv("PLASMON_CLIENT_PATH");
    pl_free(way.src);
    pl_free(way.dst);
}
