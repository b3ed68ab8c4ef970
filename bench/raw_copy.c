/*
 * Copies without Plasmon: the ceilings of the routes. Same memory (exported chunks), same copy calls, same 16 pinned slots of
 * 8 MiB on the host route, but nobody to ask and nothing to decide: one thread that enqueues and then waits.
 *
 * On the host route the two halves pass slots to each other on the devices, as the real one does; the words are
 * two counters that only grow: `ready`, chunks that arrived in their slot, and `taken`, chunks that left it.
 */
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/alloc.h"
#include "bench/bench.h"
#include "device/device.h"

#define SLOTS       16u
#define SLOT_BYTES  (8u << 20)
#define DEVICES_MAX 16u
#define BUDGET_NS   400000000ull /* of one figure */
#define REPEATS_MAX 200u
/* Copies in a row go over this much, as new objects do: no cache holds the next one. */
#define SPAN_BYTES     (4ull << 30)
#define SPAN_BYTES_CPU (256ull << 20)

struct raw_device {
    struct device *device;
    struct device_stream *stream;
    struct device_ptr memory; /* of its own: `bytes` that come, and `bytes` that go */
    struct device_ptr source
        [DEVICES_MAX]; /* the memory of each other one, mapped here; 0: not possible */
    int fd;
};
struct raw {
    struct raw_device device[DEVICES_MAX];
    uint32_t count;
    uint64_t bytes; /* half of what is mapped of a device */
    uint8_t *slab;
    uint64_t *ready, *taken; /* words of the host route */
    uint64_t chunks;         /* that went through so far */
    uint64_t offset;         /* of the next copy, in all memories */
};

/* ------------------------------------------------------------------------------------------------ set-up; the process ends after */

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
    status = device_stream_create(it->device, 0, &it->stream);
    if (status == PLASMON_OK) {
        status = device_range_reserve(it->device, 2 * raw->bytes, &it->memory);
    }
    if (status == PLASMON_OK) {
        status = device_chunk_create(it->device, 2 * raw->bytes, &it->fd);
    }
    if (status == PLASMON_OK) {
        status = device_chunk_map(it->device, it->fd, 2 * raw->bytes,
                                  device_get_info(it->device)->ordinal, true, it->memory);
    }
    if (status == PLASMON_OK) {
        /* Touch it: pages of a CPU device come with the first write. */
        status = device_fill8(it->stream, it->memory, (uint8_t)(index + 1), 2 * raw->bytes);
    }
    if (status == PLASMON_OK) {
        status = device_host_register(it->device, raw->slab, SLOTS * SLOT_BYTES + 4096);
    }
    if (status == PLASMON_OK) {
        status = device_stream_sync(it->stream, err);
    }
    return status == PLASMON_OK
               ? status
               : pl_err_set(err, status, "cannot set up device %u for raw copies", index);
}

static plasmon_status_t open_all(struct raw *raw, const struct bench_raw_copy *config,
                                 struct pl_err *err)
{
    uint64_t words_at       = (uint64_t)SLOTS * SLOT_BYTES;
    plasmon_status_t status = PLASMON_OK;

    raw->count = (uint32_t)pl_min_u64(config->devices, DEVICES_MAX);
    for (uint32_t i = 0; i < config->size_count; i++) {
        raw->bytes = pl_max_u64(raw->bytes, config->size[i]);
    }
    raw->bytes = pl_round_up(
        pl_max_u64(raw->bytes, config->cuda ? SPAN_BYTES : SPAN_BYTES_CPU), 32u << 20);
    raw->slab = mmap(NULL, words_at + 4096, PROT_READ | PROT_WRITE,
                     MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (raw->slab == MAP_FAILED) {
        return pl_err_set(err, PLASMON_ENOMEM, "out of host memory for the slots");
    }
    raw->ready = (uint64_t *)(void *)(raw->slab + words_at);
    raw->taken = raw->ready + 64;
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

/* ------------------------------------------------------------------------------------------------ one copy, enqueued */

typedef plasmon_status_t (*copy_fn)(struct raw *raw, uint32_t to, uint64_t bytes);

static plasmon_status_t pull(struct raw *raw, uint32_t to, uint32_t from, uint64_t bytes)
{
    struct raw_device *it = &raw->device[to];

    return device_copy(it->stream, DEVICE_COPY_DEVICE_TO_DEVICE,
                       it->memory.addr + raw->offset,
                       it->source[from].addr + raw->bytes + raw->offset, bytes);
}

/* From the first. */
static plasmon_status_t copy_peer(struct raw *raw, uint32_t to, uint64_t bytes)
{
    return pull(raw, to, 0, bytes);
}

/* From each other one, beginning with the next, so that no source serves two at a time. */
static plasmon_status_t copy_all(struct raw *raw, uint32_t to, uint64_t bytes)
{
    plasmon_status_t status = PLASMON_OK;

    for (uint32_t i = 1; i < raw->count && status == PLASMON_OK; i++) {
        status = pull(raw, to, (to + i) % raw->count, bytes);
    }
    return status;
}

/* Between the first two, each from the other. */
static plasmon_status_t copy_duplex(struct raw *raw, uint32_t to, uint64_t bytes)
{
    return pull(raw, to, 1 - to, bytes);
}

static plasmon_status_t send_chunk(struct raw *raw, uint64_t chunk, uint64_t offset,
                                   uint64_t bytes)
{
    struct raw_device *from = &raw->device[0];
    uint64_t slot           = (uint64_t)(uintptr_t)raw->slab + chunk % SLOTS * SLOT_BYTES;
    plasmon_status_t status = PLASMON_OK;

    if (chunk >= SLOTS) {
        status = device_wait(from->stream, raw->taken, chunk + 1 - SLOTS);
    }
    if (status == PLASMON_OK) {
        status = device_copy(from->stream, DEVICE_COPY_DEVICE_TO_HOST, slot,
                             from->memory.addr + raw->bytes + offset, bytes);
    }
    return status == PLASMON_OK ? device_signal(from->stream, raw->ready, chunk + 1)
                                : status;
}

static plasmon_status_t take_chunk(struct raw *raw, struct raw_device *it, uint64_t chunk,
                                   uint64_t offset, uint64_t bytes)
{
    uint64_t slot           = (uint64_t)(uintptr_t)raw->slab + chunk % SLOTS * SLOT_BYTES;
    plasmon_status_t status = device_wait(it->stream, raw->ready, chunk + 1);

    if (status == PLASMON_OK) {
        status = device_copy(it->stream, DEVICE_COPY_HOST_TO_DEVICE,
                             it->memory.addr + offset, slot, bytes);
    }
    return status == PLASMON_OK ? device_signal(it->stream, raw->taken, chunk + 1) : status;
}

static plasmon_status_t copy_host(struct raw *raw, uint32_t to, uint64_t bytes)
{
    plasmon_status_t status = PLASMON_OK;

    for (uint64_t offset = 0; offset < bytes && status == PLASMON_OK;
         offset += SLOT_BYTES) {
        uint64_t length = pl_min_u64(SLOT_BYTES, bytes - offset);

        status = send_chunk(raw, raw->chunks, raw->offset + offset, length);
        if (status == PLASMON_OK) {
            status = take_chunk(raw, &raw->device[to], raw->chunks, raw->offset + offset,
                                length);
        }
        raw->chunks++;
    }
    return status;
}

/* ------------------------------------------------------------------------------------------------ figures */

/* Seconds for `repeats` copies to each of the receivers first .. last, all done. */
static plasmon_status_t time_copies(struct raw *raw, copy_fn copy, uint32_t first,
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
        status = device_stream_sync(raw->device[to].stream, err);
    }
    *out_seconds = (double)(pl_now_ns() - began) * 1e-9;
    return status;
}

/* As many in a row as the budget allows: seconds each (each round, with several receivers). */
static plasmon_status_t measure_rate(struct raw *raw, copy_fn copy, uint32_t first,
                                     uint32_t last, uint64_t bytes, double *out,
                                     struct pl_err *err)
{
    plasmon_status_t status = time_copies(raw, copy, first, last, bytes, 1, out, err);
    uint32_t repeats;

    if (status != PLASMON_OK) {
        return status;
    }
    repeats = (uint32_t)pl_max_u64(
        8, pl_min_u64(REPEATS_MAX, (uint64_t)((double)BUDGET_NS * 1e-9 / *out)));
    status = time_copies(raw, copy, first, last, bytes, repeats, out, err);
    *out /= repeats;
    return status;
}

/* The median of single ones. */
static plasmon_status_t measure_latency(struct raw *raw, copy_fn copy, uint32_t last,
                                        uint64_t bytes, double *out, struct pl_err *err)
{
    double sample[REPEATS_MAX];
    uint64_t began          = pl_now_ns();
    plasmon_status_t status = PLASMON_OK;
    uint32_t count          = 0;

    while (status == PLASMON_OK && count < REPEATS_MAX &&
           (count < 3 || pl_now_ns() - began < BUDGET_NS)) {
        status = time_copies(raw, copy, 1, last, bytes, 1, &sample[count++], err);
    }
    *out = bench_percentile(sample, count, 0.5);
    return status;
}

/* The first and the last byte that arrived are the first device's. */
static plasmon_status_t check_arrival(struct raw *raw, uint64_t bytes, struct pl_err *err)
{
    struct raw_device *it = &raw->device[1];
    uint64_t last         = it->memory.addr + bytes - 1;
    uint64_t host         = (uint64_t)(uintptr_t)raw->slab;
    plasmon_status_t status =
        device_copy(it->stream, DEVICE_COPY_DEVICE_TO_HOST, host, it->memory.addr, 1);

    if (status == PLASMON_OK) {
        status = device_copy(it->stream, DEVICE_COPY_DEVICE_TO_HOST, host + 1, last, 1);
    }
    if (status == PLASMON_OK) {
        status = device_stream_sync(it->stream, err);
    }
    if (status == PLASMON_OK && (raw->slab[0] != 1 || raw->slab[1] != 1)) {
        return pl_err_set(err, PLASMON_EDEVICE, "a raw copy did not arrive");
    }
    if (status == PLASMON_OK) { /* so that the next route has something to overwrite */
        status = device_fill8(it->stream, it->memory, 2, bytes);
    }
    return status == PLASMON_OK ? device_stream_sync(it->stream, err) : status;
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

static plasmon_status_t measure_size(struct raw *raw, uint64_t bytes, double *result,
                                     struct pl_err *err)
{
    plasmon_status_t status = PLASMON_OK;

    for (size_t i = 0; i < BENCH_RAW_FIGURES; i++) {
        result[i] = -1;
    }
    if (peers_reach_each_other(raw)) {
        status = measure_rate(raw, copy_duplex, 0, 1, bytes, &result[BENCH_RAW_PEER_DUPLEX],
                              err);
        if (status == PLASMON_OK) {
            status = measure_rate(raw, copy_all, 0, raw->count - 1, bytes,
                                  &result[BENCH_RAW_PEER_ALL], err);
        }
        if (status == PLASMON_OK) { /* the last to arrive is the first device's */
            status =
                measure_rate(raw, copy_peer, 1, 1, bytes, &result[BENCH_RAW_PEER], err);
        }
        if (status == PLASMON_OK) {
            status = measure_latency(raw, copy_peer, 1, bytes,
                                     &result[BENCH_RAW_PEER_LATENCY], err);
        }
        if (status == PLASMON_OK) {
            status = measure_latency(raw, copy_peer, raw->count - 1, bytes,
                                     &result[BENCH_RAW_PEER_MANY], err);
        }
        if (status == PLASMON_OK) {
            status = check_arrival(raw, bytes, err);
        }
    }
    if (status == PLASMON_OK) {
        status = measure_rate(raw, copy_host, 1, 1, bytes, &result[BENCH_RAW_HOST], err);
    }
    if (status == PLASMON_OK) {
        status =
            measure_latency(raw, copy_host, 1, bytes, &result[BENCH_RAW_HOST_LATENCY], err);
    }
    return status == PLASMON_OK ? check_arrival(raw, bytes, err) : status;
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
