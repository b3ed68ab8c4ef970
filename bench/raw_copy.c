/*
 * Copies without Plasmon: the ceilings of the routes. Same memory (exported chunks), same copy
 * calls, same 16 pinned slots of 8 MiB a receiver on the host route, but nobody to ask and nothing
 * to decide: one thread that enqueues and then waits.
 */
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/alloc.h"
#include "bench/raw_copy.h"

#define WORDS_BYTES   4096u
#define WORD_APART    8u /* a cache line */
#define LARGE         (UINT64_C(1) << 20)
#define BUDGET_NS     400000000ull /* of one figure */
#define BUDGET_NS_CPU 50000000ull
#define REPEATS_MAX   200u
/* Copies in a row go over this much, as new objects do: no cache holds the next one. */
#define SPAN_BYTES     (4ull << 30)
#define SPAN_BYTES_CPU (64ull << 20)

/* ------------------------------------------------------- set-up; the process ends after */

static plasmon_status_t map_source(struct raw *raw, struct raw_device *to, uint32_t index)
{
    struct raw_device *from = &raw->device[index];
    plasmon_status_t status;

    if (!device_can_peer(to->device, device_get_info(from->device)->ordinal)) {
        return PLASMON_OK;
    }
    status = device_range_reserve(to->device, 2 * raw->bytes, &to->source[index]);
    if (status != PLASMON_OK) {
        return status;
    }
    return device_chunk_map(to->device, from->fd, 2 * raw->bytes,
                            device_get_info(from->device)->ordinal, false,
                            to->source[index]);
}

/* Each device's memory at each other one. */
static plasmon_status_t map_sources(struct raw *raw)
{
    plasmon_status_t status = PLASMON_OK;

    for (uint32_t to = 0; to < raw->count; to++) {
        for (uint32_t from = 0; from < raw->count && status == PLASMON_OK; from++) {
            if (from != to) {
                status = map_source(raw, &raw->device[to], from);
            }
        }
    }
    return status;
}

static plasmon_status_t streams_create(struct raw_device *it)
{
    plasmon_status_t status = PLASMON_OK;

    for (uint32_t i = 0; i < RAW_STREAMS && status == PLASMON_OK; i++) {
        status = device_stream_create(it->device, 0, &it->stream[i]);
    }
    return status;
}

static plasmon_status_t memory_create(struct raw *raw, struct raw_device *it, uint8_t fill)
{
    plasmon_status_t status = device_range_reserve(it->device, 2 * raw->bytes, &it->memory);

    if (status == PLASMON_OK) {
        status = device_chunk_create(it->device, 2 * raw->bytes, &it->fd);
    }
    if (status == PLASMON_OK) {
        status = device_chunk_map(it->device, it->fd, 2 * raw->bytes,
                                  device_get_info(it->device)->ordinal, true, it->memory);
    }
    return status ==
                   PLASMON_OK /* Touch it: pages of a CPU device come with the first write. */
               ? device_fill8(it->stream[RAW_IN], it->memory, fill, 2 * raw->bytes)
               : status;
}

static plasmon_status_t open_device(struct raw *raw, uint32_t index, bool cuda,
                                    struct pl_err *err)
{
    const struct device_config config = {.bytes_max = cuda ? 0 : 4 * raw->bytes};
    struct raw_device *it             = &raw->device[index];
    plasmon_status_t status =
        device_open(cuda ? DEVICE_CUDA : DEVICE_CPU, index, &config, &it->device, err);

    if (status != PLASMON_OK) {
        return status;
    }
    status = streams_create(it);
    if (status == PLASMON_OK) {
        status = memory_create(raw, it, (uint8_t)(index + 1));
    }
    for (uint32_t i = 0; i < raw->count && status == PLASMON_OK; i++) {
        status = device_host_register(it->device, raw->device[i].ring.slab,
                                      RAW_SLOTS * RAW_SLOT_BYTES + WORDS_BYTES);
    }
    if (status == PLASMON_OK) {
        status = device_stream_sync(it->stream[RAW_IN], err);
    }
    return status == PLASMON_OK
               ? status
               : pl_err_set(err, status, "cannot set up device %u for raw copies", index);
}

static bool ring_create(struct raw_ring *ring)
{
    uint64_t words_at = (uint64_t)RAW_SLOTS * RAW_SLOT_BYTES;
    void *slab        = mmap(NULL, words_at + WORDS_BYTES, PROT_READ | PROT_WRITE,
                             MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    uint64_t *word;

    if (slab == MAP_FAILED) {
        return false;
    }
    ring->slab = slab;
    word       = (uint64_t *)(void *)(ring->slab + words_at);
    for (uint32_t i = 0; i < RAW_SLOTS; i++, word += WORD_APART) {
        ring->ready[i] = word;
    }
    for (uint32_t i = 0; i < RAW_STREAMS; i++, word += WORD_APART) {
        ring->word[i] = word;
    }
    ring->taken = word;
    return true;
}

static plasmon_status_t open_all(struct raw *raw, const struct bench_raw_copy *config,
                                 struct pl_err *err)
{
    plasmon_status_t status = PLASMON_OK;

    raw->count     = (uint32_t)pl_min_u64(config->devices, RAW_DEVICES_MAX);
    raw->budget_ns = config->cuda ? BUDGET_NS : BUDGET_NS_CPU;
    for (uint32_t i = 0; i < config->size_count; i++) {
        raw->bytes = pl_max_u64(raw->bytes, config->size[i]);
    }
    raw->bytes = pl_round_up(
        pl_max_u64(raw->bytes, config->cuda ? SPAN_BYTES : SPAN_BYTES_CPU), 32u << 20);
    for (uint32_t i = 0; i < raw->count; i++) {
        if (!ring_create(&raw->device[i].ring)) {
            return pl_err_set(err, PLASMON_ENOMEM, "out of host memory for the slots");
        }
    }
    for (uint32_t i = 0; i < raw->count && status == PLASMON_OK; i++) {
        status = open_device(raw, i, config->cuda, err);
    }
    if (status == PLASMON_OK) {
        status = map_sources(raw);
        return status == PLASMON_OK
                   ? status
                   : pl_err_set(err, status,
                                "cannot map the devices' memory in each other");
    }
    return status;
}

/* ------------------------------------------------------------------------------ figures */

static plasmon_status_t streams_sync(struct raw_device *it, struct pl_err *err)
{
    plasmon_status_t status = PLASMON_OK;

    for (uint32_t i = 0; i < RAW_STREAMS && status == PLASMON_OK; i++) {
        status = device_stream_sync(it->stream[i], err);
    }
    return status;
}

/* Seconds for `repeats` copies to each of the receivers first .. last, all done. */
static plasmon_status_t time_copies(struct raw *raw, raw_copy_fn copy, uint32_t first,
                                    uint32_t last, uint64_t bytes, uint32_t repeats,
                                    double *out_seconds, struct pl_err *err)
{
    uint64_t stride         = pl_round_up(bytes, 4096);
    plasmon_status_t status = PLASMON_OK;
    uint64_t began          = pl_now_ns();

    for (uint32_t r = 0; r < repeats; r++) {
        raw->offset = r % (raw->bytes / stride) * stride;
        for (uint32_t to = first; to <= last && status == PLASMON_OK; to++) {
            status = copy(raw, to, bytes);
        }
    }
    for (uint32_t to = first; to <= last && status == PLASMON_OK; to++) {
        status = streams_sync(&raw->device[to], err);
    }
    *out_seconds = (double)(pl_now_ns() - began) * 1e-9;
    return status;
}

/* As many in a row as the budget allows: seconds each (each round, with several receivers). */
static plasmon_status_t measure_rate(struct raw *raw, raw_copy_fn copy, uint32_t first,
                                     uint32_t last, uint64_t bytes, double *out,
                                     struct pl_err *err)
{
    plasmon_status_t status = time_copies(raw, copy, first, last, bytes, 1, out, err);
    uint32_t repeats;

    if (status != PLASMON_OK) {
        return status;
    }
    repeats = (uint32_t)pl_max_u64(
        8, pl_min_u64(REPEATS_MAX, (uint64_t)((double)raw->budget_ns * 1e-9 / *out)));
    status = time_copies(raw, copy, first, last, bytes, repeats, out, err);
    *out /= repeats;
    return status;
}

/* The median of single ones. */
static plasmon_status_t measure_latency(struct raw *raw, raw_copy_fn copy, uint32_t last,
                                        uint64_t bytes, double *out, struct pl_err *err)
{
    double sample[REPEATS_MAX];
    uint64_t began          = pl_now_ns();
    plasmon_status_t status = PLASMON_OK;
    uint32_t count          = 0;

    while (status == PLASMON_OK && count < REPEATS_MAX &&
           (count < 3 || pl_now_ns() - began < raw->budget_ns)) {
        status = time_copies(raw, copy, 1, last, bytes, 1, &sample[count++], err);
    }
    *out = bench_percentile(sample, count, 0.5);
    return status;
}

/* The first and the last byte that arrived are the first device's. */
static plasmon_status_t check_arrival(struct raw *raw, uint32_t to, uint64_t bytes,
                                      struct pl_err *err)
{
    struct raw_device *it        = &raw->device[to];
    struct device_stream *stream = it->stream[RAW_IN];
    uint64_t last                = it->memory.addr + raw->offset + bytes - 1;
    const uint8_t *slab          = it->ring.slab;
    uint64_t host                = (uint64_t)(uintptr_t)slab;
    plasmon_status_t status      = device_copy(stream, DEVICE_COPY_DEVICE_TO_HOST, host,
                                               it->memory.addr + raw->offset, 1);

    if (status == PLASMON_OK) {
        status = device_copy(stream, DEVICE_COPY_DEVICE_TO_HOST, host + 1, last, 1);
    }
    if (status == PLASMON_OK) {
        status = device_stream_sync(stream, err);
    }
    if (status == PLASMON_OK && (slab[0] != 1 || slab[1] != 1)) {
        return pl_err_set(err, PLASMON_EDEVICE, "a raw copy did not arrive");
    }
    if (status == PLASMON_OK) { /* so that the next way has something to overwrite */
        status = device_fill8(stream, it->memory, (uint8_t)(to + 1), raw->bytes);
    }
    return status == PLASMON_OK ? device_stream_sync(stream, err) : status;
}

static bool peers_reach_each_other(const struct raw *raw)
{
    for (uint32_t to = 0; to < raw->count; to++) {
        for (uint32_t from = 0; from < raw->count; from++) {
            if (from != to && raw->device[to].source[from].addr == 0) {
                return false;
            }
        }
    }
    return true;
}

/*
 * What is measured of each size. Copies in a row or one at a time; to the devices first .. last, of
 * which 0 means the last there is.
 */
static const struct measure {
    enum bench_raw_figure figure;
    raw_copy_fn copy;
    bool peer;
    bool latency;
    uint32_t first, last;
    bool checked; /* the last copy to the last of them was of the first device's bytes */
    uint64_t bytes_min; /* smaller ones say nothing */
} measures[] = {
    {BENCH_RAW_PEER_DUPLEX, raw_peer_duplex, true, false, 0, 1, true, 0},
    {BENCH_RAW_PEER_ALL, raw_peer_all, true, false, 0, 0, false, 0},
    {BENCH_RAW_PEER, raw_peer, true, false, 1, 1, true, 0},
    {BENCH_RAW_PEER_LATENCY, raw_peer, true, true, 1, 1, true, 0},
    {BENCH_RAW_PEER_MANY, raw_peer, true, true, 1, 0, true, 0},
    {BENCH_RAW_PEER_CHAIN, raw_peer_chain, true, true, 1, 0, true, 4 * RAW_PIECE_BYTES},
    {BENCH_RAW_PEER_WORD, raw_peer_word, true, false, 1, 1, true, LARGE},
    {BENCH_RAW_PEER_WORD_TURNS, raw_peer_word_turns, true, false, 1, 1, true, LARGE},
    {BENCH_RAW_PEER_WORD_BESIDE, raw_peer_word_beside, true, false, 1, 1, true, LARGE},
    {BENCH_RAW_PEER_HALVES, raw_peer_halves, true, true, 1, 1, true, LARGE},
    {BENCH_RAW_HOST, raw_host, false, false, 1, 1, true, 0},
    {BENCH_RAW_HOST_LATENCY, raw_host, false, true, 1, 1, true, 0},
    {BENCH_RAW_HOST_MANY, raw_host, false, true, 1, 0, true, 0},
    {BENCH_RAW_HOST_DUPLEX, raw_host_duplex, false, false, 0, 1, true, 0},
    {BENCH_RAW_HOST_ALL, raw_host_all, false, false, 0, 0, false, 0},
};

static plasmon_status_t measure_one(struct raw *raw, const struct measure *it,
                                    uint64_t bytes, double *out, struct pl_err *err)
{
    uint32_t last = it->last == 0 ? raw->count - 1 : it->last;
    plasmon_status_t status =
        it->latency ? measure_latency(raw, it->copy, last, bytes, out, err)
                    : measure_rate(raw, it->copy, it->first, last, bytes, out, err);

    return status == PLASMON_OK && it->checked ? check_arrival(raw, last, bytes, err)
                                               : status;
}

static plasmon_status_t measure_size(struct raw *raw, uint64_t bytes, double *result,
                                     struct pl_err *err)
{
    bool peers              = peers_reach_each_other(raw);
    plasmon_status_t status = PLASMON_OK;

    for (size_t i = 0; i < BENCH_RAW_FIGURES; i++) {
        result[i] = -1;
    }
    for (size_t i = 0; i < PL_COUNT(measures) && status == PLASMON_OK; i++) {
        if (bytes >= measures[i].bytes_min && (peers || !measures[i].peer)) {
            status =
                measure_one(raw, &measures[i], bytes, &result[measures[i].figure], err);
        }
    }
    return status;
}

plasmon_status_t bench_raw_copy_run(const void *user, double *result, size_t count,
                                    struct pl_err *err)
{
    const struct bench_raw_copy *config = user;
    struct raw *raw                     = PL_NEW(struct raw);
    plasmon_status_t status;

    if (raw == NULL || config->devices < 2 ||
        count < (size_t)config->size_count * BENCH_RAW_FIGURES) {
        return pl_err_set(err, PLASMON_EINVAL, "raw copies need two devices and room");
    }
    status = open_all(raw, config, err);
    for (uint32_t i = 0; i < config->size_count && status == PLASMON_OK; i++) {
        status = measure_size(raw, config->size[i], &result[i * BENCH_RAW_FIGURES], err);
    }
    return status;
}
