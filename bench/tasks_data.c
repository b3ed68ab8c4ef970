/*
 * Gets and puts: small ones by the call, large ones by the byte; checked against what was put
 * before they are timed.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fd.h"
#include "bench/bench.h"

#define ROUNDS 3u

static struct plasmon_ref *put(struct bench_cluster *cluster, const void *data,
                               const struct plasmon_shape *shape)
{
    struct plasmon_ref *ref;

    bench_must(cluster, plasmon_put(cluster->client, data, shape, NULL, &ref), "putting");
    return ref;
}

/* -------------------------------------------------------------------------------- small */

static void small_gets(struct bench_tasks_run *run)
{
    struct bench_row row             = {.name      = "single_client_get_calls",
                                        .unit      = "1/s",
                                        .reference = "10400 1/s",
                                        .note      = "8 bytes that the client itself put"};
    const struct plasmon_shape shape = bench_shape(PLASMON_F64, 0, 0, 0);
    const double put_value           = 42.5;
    struct plasmon_ref *ref          = put(&run->cluster, &put_value, &shape);
    uint64_t began                   = pl_now_ns();

    for (uint32_t i = 0; i < run->tasks; i++) {
        double got = 0;

        bench_must(
            &run->cluster,
            plasmon_get(run->cluster.client, ref, &got, sizeof(got), PLASMON_FOREVER),
            "getting");
        if (got != put_value) {
            bench_die("a get gave %g and not %g", got, put_value);
        }
    }
    row.value = run->tasks * 1e9 / (double)(pl_now_ns() - began);
    bench_report_add(&run->report, &row);
    bench_must_release(&run->cluster, &ref, 1);
}

/* Results of tasks, last one first, so that none is read ahead: a round trip each. */
static void single_gets(struct bench_tasks_run *run)
{
    struct bench_row row             = {.name      = "single_client_get_calls_round_trip",
                                        .unit      = "1/s",
                                        .reference = "10400 1/s",
                                        .note      = "8 bytes of a finished task, each got once"};
    const struct plasmon_shape shape = bench_shape(PLASMON_F64, 0, 0, 0);
    uint32_t count                   = run->tasks / 4;
    struct plasmon_ref **refs        = bench_must_alloc(count * sizeof(*refs));
    uint64_t began;

    for (uint32_t i = 0; i < count; i++) {
        plasmon_scalar_t value = {.f = i};

        refs[i] =
            bench_must_make(&run->cluster, "fill", &shape, &value, 1, PLASMON_ANYWHERE);
    }
    bench_must_wait(&run->cluster, refs, count);
    began = pl_now_ns();
    for (uint32_t i = count; i > 0; i--) {
        double got = -1;

        bench_must(&run->cluster,
                   plasmon_get(run->cluster.client, refs[i - 1], &got, sizeof(got),
                               PLASMON_FOREVER),
                   "getting");
        if (got != i - 1) {
            bench_die("result number %u came as %g", i - 1, got);
        }
    }
    row.value = count * 1e9 / (double)(pl_now_ns() - began);
    bench_report_add(&run->report, &row);
    bench_must_release(&run->cluster, refs, count);
    pl_free(refs);
}

static void small_puts(struct bench_tasks_run *run)
{
    struct bench_row row             = {.name      = "single_client_put_calls",
                                        .unit      = "1/s",
                                        .reference = "5200 1/s",
                                        .note      = "8 bytes; all are there at the end"};
    const struct plasmon_shape shape = bench_shape(PLASMON_F64, 0, 0, 0);
    struct plasmon_ref **refs        = bench_must_alloc(run->tasks * sizeof(*refs));
    uint64_t began                   = pl_now_ns();
    double value;

    for (uint32_t i = 0; i < run->tasks; i++) {
        value   = i;
        refs[i] = put(&run->cluster, &value, &shape);
    }
    bench_must_wait(&run->cluster, refs, run->tasks);
    row.value = run->tasks * 1e9 / (double)(pl_now_ns() - began);

    for (uint32_t i = 0; i < run->tasks; i += run->tasks / 50 + 1) {
        bench_must(&run->cluster,
                   plasmon_get(run->cluster.client, refs[i], &value, sizeof(value),
                               PLASMON_FOREVER),
                   "getting");
        if (value != i) {
            bench_die("put number %u came back as %g", i, value);
        }
    }
    bench_report_add(&run->report, &row);
    bench_must_release(&run->cluster, refs, run->tasks);
    pl_free(refs);
}

/* -------------------------------------------------------------------------------- large */

struct large {
    struct bench_tasks_run *run;
    uint8_t *src, *dst; /* touched */
    uint64_t bytes;
    struct plasmon_shape shape;
    double put_seconds[ROUNDS], get_seconds[ROUNDS], map_seconds[ROUNDS];
    double first_put_seconds; /* into memory that nobody has touched before */
    bool mappable;
};

static void large_map(struct large *large, struct plasmon_ref *ref, size_t round)
{
    struct bench_cluster *cluster = &large->run->cluster;
    struct plasmon_mapping *mapping;
    uint64_t began          = pl_now_ns();
    plasmon_status_t status = plasmon_map(cluster->client, ref, PLASMON_FOREVER, &mapping);

    large->map_seconds[round] = (double)(pl_now_ns() - began) * 1e-9;
    large->mappable           = status == PLASMON_OK;
    if (status == PLASMON_EUNREACHABLE) {
        return;
    }
    bench_must(cluster, status, "mapping");
    if (memcmp(plasmon_mapping_data(mapping), large->src, large->bytes) != 0) {
        bench_die("a mapping shows other bytes than were put");
    }
    plasmon_unmap(mapping);
}

static void large_round(struct large *large, size_t round)
{
    struct bench_cluster *cluster = &large->run->cluster;
    struct plasmon_ref *ref;
    uint64_t began;

    memset(large->dst, 0, large->bytes);
    large->src[round] ^= 0x55; /* so that an old copy is not mistaken for the new one */
    began = pl_now_ns();
    ref   = put(cluster, large->src, &large->shape);
    bench_must_wait(cluster, &ref, 1);
    large->put_seconds[round] = (double)(pl_now_ns() - began) * 1e-9;

    began = pl_now_ns();
    bench_must(cluster,
               plasmon_get(cluster->client, ref, large->dst, large->bytes, PLASMON_FOREVER),
               "getting");
    large->get_seconds[round] = (double)(pl_now_ns() - began) * 1e-9;
    if (memcmp(large->src, large->dst, large->bytes) != 0) {
        bench_die("a get of %llu bytes gave other bytes than were put",
                  (unsigned long long)large->bytes);
    }
    large_map(large, ref, round);
    bench_must_release(cluster, &ref, 1);
}

/* What the same costs with a page fault a page. */
static double new_memory_seconds(const void *src, uint64_t bytes)
{
    uint64_t began;
    void *memory;
    int fd;

    if (pl_memfd_create("bench", bytes, &fd) != PLASMON_OK ||
        pl_fd_map(fd, bytes, 1, &memory) != PLASMON_OK) {
        bench_die("no shared memory of %llu bytes", (unsigned long long)bytes);
    }
    began = pl_now_ns();
    memcpy(memory, src, bytes);
    began = pl_now_ns() - began;
    pl_fd_unmap(memory, bytes);
    pl_fd_close(&fd);
    return (double)began * 1e-9;
}

static void large_report(struct large *large)
{
    double gigabytes = (double)large->bytes * 1e-9;
    double limit = gigabytes / bench_memcpy_seconds(large->dst, large->src, large->bytes);
    struct bench_row p = {.name       = "single_client_put_gigabytes",
                          .x          = 0,
                          .unit       = "GB/s",
                          .limit      = limit,
                          .limit_name = "memcpy of the same bytes",
                          .reference  = "20 GB/s"};
    struct bench_row g = p, f = p, m = {.name = "single_client_map", .unit = "us"};
    char size[32];

    (void)pl_format_bytes(large->bytes, size);
    p.value = gigabytes / bench_percentile(large->put_seconds, ROUNDS, 0.5);
    (void)snprintf(p.note, sizeof(p.note), "%s into touched memory, until it is there",
                   size);
    (void)snprintf(f.name, sizeof(f.name), "single_client_put_gigabytes_first");
    (void)snprintf(f.note, sizeof(f.note), "%s into memory that is new", size);
    f.value      = gigabytes / large->first_put_seconds;
    f.limit      = gigabytes / new_memory_seconds(large->src, large->bytes);
    f.limit_name = "memcpy to new shared memory";
    f.reference  = NULL;
    (void)snprintf(g.name, sizeof(g.name), "single_client_get_gigabytes");
    g.value     = gigabytes / bench_percentile(large->get_seconds, ROUNDS, 0.5);
    g.reference = NULL;
    (void)snprintf(g.note, sizeof(g.note), "%s into touched memory", size);
    bench_report_add(&large->run->report, &p);
    bench_report_add(&large->run->report, &f);
    bench_report_add(&large->run->report, &g);
    if (!large->mappable) {
        bench_report_remark(&large->run->report,
                            "single_client_map: the device's memory cannot be mapped here");
        return;
    }
    m.value = bench_percentile(large->map_seconds, ROUNDS, 0.5) * 1e6;
    (void)snprintf(m.note, sizeof(m.note), "%s without a copy", size);
    bench_report_add(&large->run->report, &m);
}

void bench_tasks_data(struct bench_tasks_run *run)
{
    struct large large = {.run = run};

    small_gets(run);
    single_gets(run);
    small_puts(run);

    large.bytes = pl_min_u64(run->object_bytes, run->cluster.info[0].bytes_total / 4) &
                  ~(uint64_t)4095;
    large.src   = bench_must_alloc(large.bytes);
    large.dst   = bench_must_alloc(large.bytes);
    large.shape = bench_shape(PLASMON_U8, 1, (int64_t)large.bytes, 0);
    for (uint64_t i = 0; i < large.bytes; i++) {
        large.src[i] = (uint8_t)((i * 2654435761u) >> 24);
    }
    large_round(&large, 0);
    large.first_put_seconds = large.put_seconds[0];
    for (size_t i = 0; i < ROUNDS; i++) {
        large_round(&large, i);
    }
    large_report(&large);
    pl_free(large.src);
    pl_free(large.dst);
}
