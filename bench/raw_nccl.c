/*
 * NCCL without Plasmon, as Plasmon uses it: a process a device, communicators that do not block,
 * from one device to one other, with as many channels as a pair has; one stream a device for what
 * it sends and one for what it receives, which all of them fill in one order. What the nccl route
 * is held against. Or all of them are in one communicator, a team, and reduce. On CPU devices it is
 * the stand-in, whose figures mean nothing but that the command works.
 *
 * The processes meet by words in shared memory; each has a deadline for all it waits for. A figure
 * is the time of the slowest.
 */
#include <sched.h>
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
#define BUDGET_NS   UINT64_C(400000000) /* of one figure; of the stand-in, a tenth */
#define REPEATS_MAX 200u
#define SERIES      5u /* their median is the figure, as of what it is the yardstick of */
/* Transfers move other bytes each time, as they do between objects: a device's caches hold some of 16 MiB. */
#define SPAN_BYTES     (UINT64_C(4) << 30)
#define SPAN_BYTES_CPU (UINT64_C(16) << 20)
#define SIDES_MAX      16u
#define SPINS          10000u /* before a process that waits lets others run */

enum shape { ONE, MANY, BOTH_WAYS, ALL, TOGETHER };

struct figure {
    uint32_t figure; /* where it stands in the results of a size */
    enum shape shape;
    bool each; /* one is waited for before the next */
    uint32_t sides_min;
};
static const struct figure of_pairs[] = {
    {BENCH_RAW_NCCL, ONE, false, 2},      {BENCH_RAW_NCCL_LATENCY, ONE, true, 2},
    {BENCH_RAW_NCCL_MANY, MANY, true, 3}, {BENCH_RAW_NCCL_DUPLEX, BOTH_WAYS, false, 2},
    {BENCH_RAW_NCCL_ALL, ALL, false, 3},
};
static const struct figure of_team[] = {{0, TOGETHER, false, 2}, {1, TOGETHER, true, 2}};

/* What is measured. */
struct plan {
    bool cuda;
    bool team;
    uint32_t devices;
    uint32_t size_count;
    const uint64_t *size;
    const struct figure *figures;
    size_t figure_count;
    size_t stride; /* results of a size */
};

struct meeting {
    _Atomic uint32_t arrived[SIDES_MAX]; /* meetings so far */
    _Atomic uint64_t took_ns[SIDES_MAX]; /* the last series */
    _Atomic bool failed;
    uint8_t id[DEVICE_COMM_ID_BYTES]; /* of the pair that is being opened */
};

struct side {
    const struct plan *config;
    struct meeting *meeting;
    uint32_t rank;
    uint32_t count; /* of all */
    struct device *device;
    struct device_stream *stream[2];        /* sends, receives */
    struct device_comm *comm[2][SIDES_MAX]; /* to, from */
    struct device_comm *team;
    struct device_ptr memory[2]; /* what is sent, what comes */
    uint64_t span;               /* of each */
    uint64_t moves[2];           /* so far */
};

/* All are here. */
static plasmon_status_t meet(struct side *side, struct pl_err *err)
{
    struct meeting *meeting = side->meeting;
    uint32_t mine           = atomic_fetch_add(&meeting->arrived[side->rank], 1) + 1;
    uint64_t until_ns       = pl_now_ns() + DEADLINE_NS;
    uint32_t looks          = 0;

    for (uint32_t i = 0; i < side->count; i++) {
        while (atomic_load(&meeting->arrived[i]) < mine) {
            if (atomic_load(&meeting->failed) || pl_now_ns() > until_ns) {
                return pl_err_set(err, PLASMON_ETIMEDOUT, "process %u does not come", i);
            }
            pl_cpu_relax();
            if (++looks > SPINS) {
                (void)sched_yield();
            }
        }
    }
    return PLASMON_OK;
}

static plasmon_status_t comm_wait(struct device_comm *comm, struct pl_err *err)
{
    uint64_t until_ns         = pl_now_ns() + DEADLINE_NS;
    const struct timespec nap = {.tv_nsec = 200000};
    plasmon_status_t status;

    while ((status = device_comm_poll(comm, err)) == PLASMON_EAGAIN) {
        if (pl_now_ns() > until_ns) {
            return pl_err_set(err, PLASMON_ETIMEDOUT, "no communicator after a minute");
        }
        (void)nanosleep(&nap, NULL); /* cut short is as good */
    }
    return status;
}

/* Everybody takes part in the meetings, so that they are counted alike. */
static plasmon_status_t pair_open(struct side *side, uint32_t from, uint32_t to,
                                  struct pl_err *err)
{
    const struct device_comm_config config = {.rank = side->rank == to};
    bool mine                              = side->rank == from || side->rank == to;
    struct device_comm **at = &side->comm[config.rank][side->rank == to ? from : to];
    plasmon_status_t status = meet(side, err); /* the one before has read its id */

    if (status == PLASMON_OK && side->rank == from) {
        status = device_comm_id(side->device, &config, side->meeting->id, err);
    }
    if (status == PLASMON_OK) {
        status = meet(side, err);
    }
    if (status == PLASMON_OK && mine) {
        status = device_comm_open(side->device, &config, side->meeting->id,
                                  side->stream[config.rank], at, err);
    }
    return status == PLASMON_OK && mine ? comm_wait(*at, err) : status;
}

static plasmon_status_t team_open(struct side *side, struct pl_err *err)
{
    const struct device_comm_config config = {.rank = side->rank, .ranks = side->count};
    plasmon_status_t status                = PLASMON_OK;

    if (side->rank == 0) {
        status = device_comm_id(side->device, &config, side->meeting->id, err);
    }
    if (status == PLASMON_OK) {
        status = meet(side, err);
    }
    if (status == PLASMON_OK) {
        status = device_comm_open(side->device, &config, side->meeting->id, side->stream[0],
                                  &side->team, err);
    }
    return status == PLASMON_OK ? comm_wait(side->team, err) : status;
}

static plasmon_status_t pairs_open(struct side *side, struct pl_err *err)
{
    plasmon_status_t status = PLASMON_OK;

    for (uint32_t from = 0; from < side->count; from++) {
        for (uint32_t to = 0; to < side->count && status == PLASMON_OK; to++) {
            status = from != to ? pair_open(side, from, to, err) : PLASMON_OK;
        }
    }
    return status;
}

static plasmon_status_t side_open(struct side *side, struct pl_err *err)
{
    struct device_config config = {.bytes_max = 0};
    uint64_t bytes              = 0;
    plasmon_status_t status;
    int fd = -1;

    for (uint32_t i = 0; i < side->config->size_count; i++) {
        bytes = pl_max_u64(bytes, side->config->size[i]);
    }
    bytes = pl_round_up(bytes, 256);
    if (!side->config->team) {
        bytes = pl_max_u64(bytes, side->config->cuda ? SPAN_BYTES : SPAN_BYTES_CPU);
    }
    side->span       = bytes;
    config.bytes_max = 2 * bytes + (UINT64_C(1) << 30);
    status = device_open(side->config->cuda ? DEVICE_CUDA : DEVICE_CPU, side->rank, &config,
                         &side->device, err);
    if (status != PLASMON_OK || device_comm_version(side->device, err) == 0) {
        return status != PLASMON_OK ? status : PLASMON_ENOLIB;
    }
    for (uint32_t i = 0; status == PLASMON_OK && i < 2; i++) {
        status = device_stream_create(side->device, 0, &side->stream[i]);
    }
    if (status == PLASMON_OK) {
        uint64_t all =
            pl_round_up(2 * bytes, device_get_info(side->device)->chunk_granularity);

        status = device_range_reserve(side->device, all, &side->memory[0]);
        if (status == PLASMON_OK) {
            status = device_chunk_create(side->device, all, &fd);
        }
        if (status == PLASMON_OK) {
            status =
                device_chunk_map(side->device, fd, all, side->rank, true, side->memory[0]);
        }
    }
    side->memory[1] = device_ptr_add(side->memory[0], bytes);
    return status == PLASMON_OK
               ? side->config->team ? team_open(side, err) : pairs_open(side, err)
               : pl_err_set(err, status, "memory of a device: %s", pl_status_text(status));
}

/* ------------------------------------------------------------------------------- shapes */

/* Nothing, for who is neither. */
static plasmon_status_t move(struct side *side, uint32_t from, uint32_t to, uint64_t bytes,
                             struct pl_err *err)
{
    uint32_t receives = side->rank == to;
    uint64_t stride   = pl_round_up(bytes, 256), at;

    if (side->rank != from && side->rank != to) {
        return PLASMON_OK;
    }
    at = side->moves[receives]++ % (side->span / stride) * stride;
    return device_comm_move(side->comm[receives][receives ? from : to],
                            side->stream[receives],
                            device_ptr_add(side->memory[receives], at), bytes, err);
}

/* In rounds, as transfer_shapes.c has them: in each one every device receives from another one. */
static plasmon_status_t move_all(struct side *side, uint64_t bytes, struct pl_err *err)
{
    plasmon_status_t status = PLASMON_OK;

    for (uint32_t step = 1; step < side->count; step++) {
        for (uint32_t to = 0; to < side->count && status == PLASMON_OK; to++) {
            status = move(side, (to + step) % side->count, to, bytes, err);
        }
    }
    return status;
}

static plasmon_status_t reduce(struct side *side, uint64_t bytes, struct pl_err *err)
{
    const struct device_comm_collective how = {.kind     = DEVICE_ALL_REDUCE,
                                               .src      = side->memory[0],
                                               .dst      = side->memory[1],
                                               .elements = bytes / sizeof(float),
                                               .dtype    = PL_F32,
                                               .op       = DEVICE_REDUCE_SUM};

    return device_comm_join(side->team, side->stream[0], &how, err);
}

/* One turn. The same order for all, so that no two wait for each other. */
static plasmon_status_t turn(struct side *side, enum shape shape, uint64_t bytes,
                             struct pl_err *err)
{
    plasmon_status_t status = PLASMON_OK;

    switch (shape) {
    case ONE:
        return move(side, 0, 1, bytes, err);
    case MANY:
        for (uint32_t to = 1; to < side->count && status == PLASMON_OK; to++) {
            status = move(side, 0, to, bytes, err);
        }
        return status;
    case BOTH_WAYS:
        status = move(side, 0, 1, bytes, err);
        return status == PLASMON_OK ? move(side, 1, 0, bytes, err) : status;
    case ALL:
        return move_all(side, bytes, err);
    default:
        return reduce(side, bytes, err);
    }
}

static plasmon_status_t settle(struct side *side, struct pl_err *err)
{
    plasmon_status_t status = device_stream_sync(side->stream[0], err);

    return status == PLASMON_OK ? device_stream_sync(side->stream[1], err) : status;
}

/* Seconds a turn, of whoever takes longest. */
static plasmon_status_t series(struct side *side, const struct figure *figure,
                               uint64_t bytes, uint32_t repeats, double *out_seconds,
                               struct pl_err *err)
{
    plasmon_status_t status = meet(side, err);
    uint64_t began_ns = pl_now_ns(), slowest = 0;

    for (uint32_t i = 0; i < repeats && status == PLASMON_OK; i++) {
        status = turn(side, figure->shape, bytes, err);
        if (status == PLASMON_OK && figure->each) {
            status = settle(side, err);
        }
    }
    if (status == PLASMON_OK) {
        status = settle(side, err);
    }
    atomic_store(&side->meeting->took_ns[side->rank], pl_now_ns() - began_ns);
    if (status == PLASMON_OK) {
        status = meet(side, err);
    }
    for (uint32_t i = 0; i < side->count; i++) {
        slowest = pl_max_u64(slowest, atomic_load(&side->meeting->took_ns[i]));
    }
    *out_seconds = (double)slowest * 1e-9 / repeats;
    return status == PLASMON_OK ? meet(side, err) : status; /* all have read them */
}

static plasmon_status_t measure_figure(struct side *side, const struct figure *figure,
                                       uint64_t bytes, double *out, struct pl_err *err)
{
    double one              = 1, seconds[SERIES];
    plasmon_status_t status = series(side, figure, bytes, 3, &one, err);
    /* All have the same figure, and so the same number. */
    uint64_t budget  = side->config->cuda ? BUDGET_NS : BUDGET_NS / 10;
    uint64_t fit     = (uint64_t)((double)budget / SERIES / (one * 1e9 + 1));
    uint32_t repeats = (uint32_t)pl_min_u64(pl_max_u64(fit, 2), REPEATS_MAX);

    for (size_t i = 0; i < SERIES && status == PLASMON_OK; i++) {
        status = series(side, figure, bytes, repeats, &seconds[i], err);
    }
    if (status == PLASMON_OK) {
        *out = bench_percentile(seconds, SERIES, 0.5);
    }
    return status;
}

static plasmon_status_t measure(struct side *side, double *result, struct pl_err *err)
{
    plasmon_status_t status = side_open(side, err);

    for (uint32_t i = 0; i < side->config->size_count; i++) {
        for (size_t k = 0; k < side->config->figure_count && status == PLASMON_OK; k++) {
            const struct figure *figure = &side->config->figures[k];

            if (figure->sides_min <= side->count) {
                status =
                    measure_figure(side, figure, side->config->size[i],
                                   &result[i * side->config->stride + figure->figure], err);
            }
        }
    }
    if (status == PLASMON_OK) {
        status = meet(side, err); /* nobody goes while another one still receives */
    } else {
        atomic_store(&side->meeting->failed, true);
    }
    return status;
}

static _Noreturn void other_side(struct side *side, uint32_t rank, double *result)
{
    struct pl_err err = {.status = PLASMON_OK};
    plasmon_status_t status;

    side->rank = rank;
    status     = measure(side, result, &err);
    if (status != PLASMON_OK) {
        bench_say("process %u of raw NCCL transfers: %s", rank, err.text);
    }
    _exit(status == PLASMON_OK ? 0 : 1);
}

static plasmon_status_t plan_run(const struct plan *plan, double *result, size_t count,
                                 struct pl_err *err)
{
    struct side side = {.config = plan};
    pid_t child[SIDES_MAX];
    plasmon_status_t status = PLASMON_OK;
    uint32_t children       = 0;

    side.count   = (uint32_t)pl_min_u64(side.config->devices, SIDES_MAX);
    side.meeting = mmap(NULL, sizeof(*side.meeting), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (side.meeting == MAP_FAILED || count < plan->size_count * plan->stride) {
        return pl_err_set(err, PLASMON_ENOMEM, "no memory to meet in");
    }
    for (size_t i = 0; i < count; i++) {
        result[i] = -1;
    }
    /* No multicast, and nobody listens outside of this machine. */
    (void)setenv("NCCL_NVLS_ENABLE", "0", 1);
    (void)setenv("NCCL_SOCKET_IFNAME", "=lo", 0);
    while (status == PLASMON_OK && children + 1 < side.count) {
        pid_t pid = fork(); /* before any has a driver */

        if (pid == 0) {
            other_side(&side, children + 1, result);
        }
        if (pid < 0) {
            atomic_store(&side.meeting->failed, true);
            status = pl_err_set(err, PLASMON_EAGAIN, "no process for each device");
        } else {
            child[children++] = pid;
        }
    }
    if (status == PLASMON_OK) {
        status = measure(&side, result, err);
    }
    for (uint32_t i = 0; i < children; i++) {
        (void)waitpid(child[i], NULL, 0); /* they end by their own deadlines */
    }
    return status;
}

plasmon_status_t bench_raw_nccl_run(const void *config, double *result, size_t count,
                                    struct pl_err *err)
{
    const struct bench_raw_copy *raw = config;
    const struct plan plan           = {.cuda         = raw->cuda,
                                        .devices      = raw->devices,
                                        .size_count   = raw->size_count,
                                        .size         = raw->size,
                                        .figures      = of_pairs,
                                        .figure_count = PL_COUNT(of_pairs),
                                        .stride       = BENCH_RAW_FIGURES};

    return plan_run(&plan, result, count, err);
}

plasmon_status_t bench_raw_team_run(const void *config, double *result, size_t count,
                                    struct pl_err *err)
{
    const struct bench_raw_all_reduce *raw = config;
    const struct plan plan                 = {.cuda         = !raw->cpu,
                                              .team         = true,
                                              .devices      = raw->devices,
                                              .size_count   = raw->size_count,
                                              .size         = raw->size,
                                              .figures      = of_team,
                                              .figure_count = PL_COUNT(of_team),
                                              .stride       = PL_COUNT(of_team)};

    return plan_run(&plan, result, count, err);
}
