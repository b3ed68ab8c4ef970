/*
 * NCCL without Plasmon: two processes, a communicator that does not block with as many channels as a pair has, and sends in a row, or one at a
 * time. What the nccl route is held against. On CPU devices it is the stand-in, whose figures mean nothing but that the command works.
 *
 * The receiver measures. The two meet by words in shared memory; each has a deadline for all it waits for.
 */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "bench/bench.h"
#include "device/device.h"

#define DEADLINE_NS UINT64_C(60000000000)
#define BUDGET_NS   UINT64_C(400000000) /* of one figure */
#define REPEATS_MAX 200u

struct meeting {
    _Atomic uint32_t arrived[2]; /* meetings so far */
    _Atomic uint32_t repeats;    /* the receiver decides */
    _Atomic bool failed;
    uint8_t id[DEVICE_COMM_ID_BYTES];
};

struct side {
    const struct bench_raw_copy *config;
    struct meeting *meeting;
    uint32_t rank;
    struct device *device;
    struct device_stream *stream;
    struct device_comm *comm;
    struct device_ptr memory;
};

/* Both are here. */
static plasmon_status_t meet(struct side *side, struct pl_err *err)
{
    struct meeting *meeting = side->meeting;
    uint32_t mine           = atomic_fetch_add(&meeting->arrived[side->rank], 1) + 1;
    uint64_t until_ns       = pl_now_ns() + DEADLINE_NS;

    while (atomic_load(&meeting->arrived[1 - side->rank]) < mine) {
        if (atomic_load(&meeting->failed) || pl_now_ns() > until_ns) {
            return pl_err_set(err, PLASMON_ETIMEDOUT, "the other process does not come");
        }
        pl_cpu_relax();
    }
    return PLASMON_OK;
}

static plasmon_status_t comm_open(struct side *side, struct pl_err *err)
{
    const struct device_comm_config config = {.rank = side->rank};
    uint64_t until_ns                      = pl_now_ns() + DEADLINE_NS;
    const struct timespec nap              = {.tv_nsec = 200000};
    plasmon_status_t status                = PLASMON_OK;

    if (side->rank == 0) {
        status = device_comm_id(side->device, &config, side->meeting->id, err);
    }
    if (status == PLASMON_OK) {
        status = meet(side, err);
    }
    if (status == PLASMON_OK) {
        status = device_comm_open(side->device, &config, side->meeting->id, side->stream,
                                  &side->comm, err);
    }
    if (status != PLASMON_OK) {
        return status;
    }
    while ((status = device_comm_poll(side->comm, err)) == PLASMON_EAGAIN) {
        if (pl_now_ns() > until_ns) {
            return pl_err_set(err, PLASMON_ETIMEDOUT, "no communicator after a minute");
        }
        (void)nanosleep(&nap, NULL); /* cut short is as good */
    }
    return status;
}

static plasmon_status_t side_open(struct side *side, struct pl_err *err)
{
    struct device_config config = {.bytes_max = UINT64_C(8) << 30};
    uint64_t bytes              = 0;
    plasmon_status_t status;
    int fd = -1;

    for (uint32_t i = 0; i < side->config->size_count; i++) {
        bytes = pl_max_u64(bytes, side->config->size[i]);
    }
    status = device_open(side->config->cuda ? DEVICE_CUDA : DEVICE_CPU, side->rank, &config,
                         &side->device, err);
    if (status != PLASMON_OK || device_comm_version(side->device, err) == 0) {
        return status != PLASMON_OK ? status : PLASMON_ENOLIB;
    }
    bytes  = pl_round_up(bytes, device_get_info(side->device)->chunk_granularity);
    status = device_stream_create(side->device, 0, &side->stream);
    if (status == PLASMON_OK) {
        status = device_range_reserve(side->device, bytes, &side->memory);
    }
    if (status == PLASMON_OK) {
        status = device_chunk_create(side->device, bytes, &fd);
    }
    if (status == PLASMON_OK) {
        status = device_chunk_map(side->device, fd, bytes, side->rank, true, side->memory);
    }
    return status == PLASMON_OK
               ? comm_open(side, err)
               : pl_err_set(err, status, "memory of a device: %s", pl_status_text(status));
}

/* Seconds a transfer. each: one is waited for before the next. */
static plasmon_status_t series(struct side *side, uint64_t bytes, uint32_t repeats,
                               bool each, double *out_seconds, struct pl_err *err)
{
    plasmon_status_t status = meet(side, err);
    uint64_t began_ns       = pl_now_ns();

    for (uint32_t i = 0; i < repeats && status == PLASMON_OK; i++) {
        status = device_comm_move(side->comm, side->stream, side->memory, bytes, err);
        if (status == PLASMON_OK && each) {
            status = device_stream_sync(side->stream, err);
        }
    }
    if (status == PLASMON_OK) {
        status = device_stream_sync(side->stream, err);
    }
    *out_seconds = (double)(pl_now_ns() - began_ns) * 1e-9 / repeats;
    return status;
}

static plasmon_status_t figure(struct side *side, uint64_t bytes, bool each, double *out,
                               struct pl_err *err)
{
    double one              = 0, again;
    plasmon_status_t status = series(side, bytes, 3, each, &one, err);

    if (side->rank == 1) {
        uint64_t fit = (uint64_t)((double)BUDGET_NS / 3 / (one * 1e9 + 1));

        atomic_store(&side->meeting->repeats,
                     (uint32_t)pl_min_u64(pl_max_u64(fit, 2), REPEATS_MAX));
    }
    if (status == PLASMON_OK) {
        status = meet(side, err);
    }
    *out = 1e9;
    for (int i = 0; i < 3 && status == PLASMON_OK; i++) {
        status =
            series(side, bytes, atomic_load(&side->meeting->repeats), each, &again, err);
        *out = again < *out ? again : *out;
    }
    return status;
}

static plasmon_status_t measure(struct side *side, double *result, struct pl_err *err)
{
    plasmon_status_t status = side_open(side, err);

    for (uint32_t i = 0; i < side->config->size_count && status == PLASMON_OK; i++) {
        double *of = &result[i * BENCH_RAW_FIGURES];

        status = figure(side, side->config->size[i], false, &of[BENCH_RAW_NCCL], err);
        if (status == PLASMON_OK) {
            status =
                figure(side, side->config->size[i], true, &of[BENCH_RAW_NCCL_LATENCY], err);
        }
    }
    if (status == PLASMON_OK) {
        status = meet(side, err); /* nobody goes while the other one still receives */
    } else {
        atomic_store(&side->meeting->failed, true);
    }
    return status;
}

plasmon_status_t bench_raw_nccl_run(const void *config, double *result, size_t count,
                                    struct pl_err *err)
{
    struct side side    = {.config = config, .rank = 1};
    struct pl_err other = {.status = PLASMON_OK};
    plasmon_status_t status;
    pid_t child;

    side.meeting = mmap(NULL, sizeof(*side.meeting), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (side.meeting == MAP_FAILED ||
        count < (size_t)side.config->size_count * BENCH_RAW_FIGURES) {
        return pl_err_set(err, PLASMON_ENOMEM, "no memory to meet in");
    }
    /* No multicast, and nobody listens outside of this machine. */
    (void)setenv("NCCL_NVLS_ENABLE", "0", 1);
    (void)setenv("NCCL_SOCKET_IFNAME", "=lo", 0);
    child = fork(); /* before either has a driver */
    if (child == 0) {
        side.rank = 0;
        status    = measure(&side, result, &other);
        if (status != PLASMON_OK) {
            bench_say("the sender of raw NCCL transfers: %s", other.text);
        }
        _exit(status == PLASMON_OK ? 0 : 1);
    }
    if (child < 0) {
        return pl_err_set(err, PLASMON_EAGAIN, "no second process");
    }
    status = measure(&side, result, err);
    (void)waitpid(child, NULL, 0); /* it ends by its own deadlines */
    return status;
}
