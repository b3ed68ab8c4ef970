/*
 * Pinned copies without Plasmon: what a client's bytes could at most do between host and device.
 * The same copy calls as a lane uses, from and to as many slots of the same size, and nothing else
 * to do; one direction at a time.
 */
#include <sys/mman.h>

#include "bench/bench.h"
#include "device/device.h"
#include "store/lane.h"

#define SLAB_BYTES ((uint64_t)STORE_LANE_SLOTS * STORE_LANE_SLOT_BYTES)
#define TURNS      16u
#define REPEATS    5u

struct pinned {
    struct device *device;
    struct device_stream *stream;
    struct device_ptr memory; /* SLAB_BYTES */
    uint8_t *slab;
};

static plasmon_status_t set_up(struct pinned *pinned, bool cuda, struct pl_err *err)
{
    const struct device_config config = {.bytes_max = cuda ? 0 : 4 * SLAB_BYTES};
    plasmon_status_t status =
        device_open(cuda ? DEVICE_CUDA : DEVICE_CPU, 0, &config, &pinned->device, err);
    int fd = -1;

    if (status != PLASMON_OK) {
        return status;
    }
    pinned->slab = mmap(NULL, SLAB_BYTES, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (pinned->slab == MAP_FAILED) {
        return pl_err_set(err, PLASMON_ENOMEM, "out of host memory for the slots");
    }
    status = device_stream_create(pinned->device, 0, &pinned->stream);
    if (status == PLASMON_OK) {
        status = device_range_reserve(pinned->device, SLAB_BYTES, &pinned->memory);
    }
    if (status == PLASMON_OK) {
        status = device_chunk_create(pinned->device, SLAB_BYTES, &fd);
    }
    if (status == PLASMON_OK) {
        status = device_chunk_map(pinned->device, fd, SLAB_BYTES, 0, true, pinned->memory);
    }
    if (status == PLASMON_OK) { /* pages of a CPU device come with the first write */
        status = device_fill8(pinned->stream, pinned->memory, 1, SLAB_BYTES);
    }
    if (status == PLASMON_OK) {
        status = device_host_register(pinned->device, pinned->slab, SLAB_BYTES);
    }
    if (status == PLASMON_OK) {
        status = device_stream_sync(pinned->stream, err);
    }
    return status == PLASMON_OK
               ? status
               : pl_err_set(err, status, "cannot set up a device for pinned copies");
}

static plasmon_status_t copy_all(struct pinned *pinned, bool in, struct pl_err *err)
{
    plasmon_status_t status = PLASMON_OK;

    for (unsigned i = 0; i < TURNS * STORE_LANE_SLOTS && status == PLASMON_OK; i++) {
        uint64_t offset = (uint64_t)(i % STORE_LANE_SLOTS) * STORE_LANE_SLOT_BYTES;
        uint64_t host   = (uint64_t)(uintptr_t)(pinned->slab + offset);
        uint64_t there  = pinned->memory.addr + offset;

        status = in ? device_copy(pinned->stream, DEVICE_COPY_HOST_TO_DEVICE, there, host,
                                  STORE_LANE_SLOT_BYTES)
                    : device_copy(pinned->stream, DEVICE_COPY_DEVICE_TO_HOST, host, there,
                                  STORE_LANE_SLOT_BYTES);
    }
    return status == PLASMON_OK ? device_stream_sync(pinned->stream, err) : status;
}

plasmon_status_t bench_raw_pinned_run(const void *config, double *result, size_t count,
                                      struct pl_err *err)
{
    const bool *cuda        = config;
    struct pinned pinned    = {.slab = NULL};
    plasmon_status_t status = set_up(&pinned, *cuda, err);

    for (size_t way = 0; way < 2 && way < count && status == PLASMON_OK; way++) {
        double seconds[REPEATS];

        status = copy_all(&pinned, way == 0, err); /* warm */
        for (size_t i = 0; i < REPEATS && status == PLASMON_OK; i++) {
            uint64_t began = pl_now_ns();

            status     = copy_all(&pinned, way == 0, err);
            seconds[i] = (double)(pl_now_ns() - began) * 1e-9;
        }
        result[way] =
            (double)(TURNS * SLAB_BYTES) * 1e-9 / bench_percentile(seconds, REPEATS, 0.5);
    }
    return status;
}
