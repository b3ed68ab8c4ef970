/*
 * The ceiling of a blocked product: the same gemm function, once, for the whole matrices, on one
 * device that is all its own.
 */
#include "base/alloc.h"
#include "bench/bench.h"
#include "kernels/kernels.h"

#define ROUNDS      3u
#define CUDA_ROUNDS 5u

struct raw_gemm {
    struct device *device;
    struct device_stream *stream;
    struct kernel_context *context;
    struct device_ptr memory;
    uint64_t bytes; /* of one matrix, rounded up to the granularity */
    bool cuda;
};

static plasmon_status_t open_device(struct raw_gemm *raw, uint32_t rows_max,
                                    struct pl_err *err)
{
    struct device_config config = {.cpu_threads = 1}; /* as a worker's */
    uint64_t bytes              = (uint64_t)rows_max * rows_max * 8;
    plasmon_status_t status;
    int fd;

    raw->bytes       = pl_round_up(bytes, 32u << 20);
    config.bytes_max = raw->cuda ? 0 : 4 * raw->bytes;
    status =
        device_open(raw->cuda ? DEVICE_CUDA : DEVICE_CPU, 0, &config, &raw->device, err);
    if (status == PLASMON_OK) {
        status = kernel_context_create(raw->device, &raw->context, err);
    }
    if (status == PLASMON_OK) {
        status = device_stream_create(raw->device, 0, &raw->stream);
    }
    if (status == PLASMON_OK) {
        status = device_range_reserve(raw->device, 4 * raw->bytes, &raw->memory);
    }
    if (status == PLASMON_OK) {
        status = device_chunk_create(raw->device, 4 * raw->bytes, &fd);
    }
    if (status == PLASMON_OK) {
        status = device_chunk_map(raw->device, fd, 4 * raw->bytes, 0, true, raw->memory);
    }
    return status;
}

static struct kernel_arg matrix(const struct raw_gemm *raw, uint32_t number, uint32_t mode,
                                uint32_t rows)
{
    return (struct kernel_arg){.mode   = mode,
                               .dtype  = PL_F64,
                               .ndim   = 2,
                               .dim    = {rows, rows},
                               .stride = {rows, 1},
                               .data   = device_ptr_add(raw->memory, number * raw->bytes)};
}

/* Enqueues; the fourth matrix is scratch. */
static plasmon_status_t run(struct raw_gemm *raw, const char *name,
                            const struct kernel_arg *args, uint32_t arg_count,
                            const union kernel_scalar *scalars, uint32_t scalar_count,
                            struct pl_err *err)
{
    const struct kernel_function *function = kernel_by_name(name);
    uint64_t scratch = kernel_scratch_bytes(raw->context, function, args, arg_count,
                                            scalars, scalar_count);

    if (scratch > raw->bytes) {
        return pl_err_set(err, PLASMON_EDEVMEM, "%s wants %llu bytes of scratch", name,
                          (unsigned long long)scratch);
    }
    return kernel_run(raw->context, raw->stream, function, args, arg_count, scalars,
                      scalar_count, device_ptr_add(raw->memory, 3 * raw->bytes), scratch, 1,
                      err);
}

static plasmon_status_t measure(struct raw_gemm *raw, uint32_t rows, double *out_seconds,
                                struct pl_err *err)
{
    const struct kernel_arg args[3]      = {matrix(raw, 0, KERNEL_OUT, rows),
                                            matrix(raw, 1, KERNEL_IN, rows),
                                            matrix(raw, 2, KERNEL_IN, rows)};
    const union kernel_scalar product[3] = {{.f = 1}, {.i = 0}, {.i = 0}};
    const union kernel_scalar random[5]  = {
         {.i = 1}, {.i = 0}, {.i = 0}, {.f = -1}, {.f = 1}};
    uint32_t rounds         = raw->cuda ? CUDA_ROUNDS : ROUNDS;
    plasmon_status_t status = PLASMON_OK;
    double seconds[CUDA_ROUNDS];

    for (uint32_t i = 1; i <= 2 && status == PLASMON_OK; i++) {
        const struct kernel_arg out = matrix(raw, i, KERNEL_OUT, rows);

        status = run(raw, "random_uniform", &out, 1, random, 5, err);
    }
    for (uint32_t i = 0; i <= rounds && status == PLASMON_OK;
         i++) { /* the first: warm-up */
        uint64_t began;

        status = device_stream_sync(raw->stream, err);
        began  = pl_now_ns();
        if (status == PLASMON_OK) {
            status = run(raw, "gemm", args, 3, product, 3, err);
        }
        if (status == PLASMON_OK) {
            status = device_stream_sync(raw->stream, err);
        }
        seconds[i > 0 ? i - 1 : 0] = (double)(pl_now_ns() - began) * 1e-9;
    }
    *out_seconds = bench_percentile(seconds, rounds, 0.5);
    return status;
}

plasmon_status_t bench_raw_gemm_run(const void *user, double *result, size_t count,
                                    struct pl_err *err)
{
    const struct bench_raw_gemm *config = user;
    struct raw_gemm raw                 = {.cuda = config->cuda};
    uint32_t rows_max                   = 1;
    plasmon_status_t status;

    if (count < config->size_count) {
        return pl_err_set(err, PLASMON_EINVAL, "no room for the figures");
    }
    for (uint32_t i = 0; i < config->size_count; i++) {
        rows_max = (uint32_t)pl_max_u64(rows_max, config->size[i]);
    }
    status = open_device(&raw, rows_max, err);
    if (status != PLASMON_OK) {
        return err->text[0] != '\0'
                   ? status /* device and kernels say why; the memory calls do not */
                   : pl_err_set(err, status, "no device memory for matrices of %u rows",
                                rows_max);
    }
    for (uint32_t i = 0; i < config->size_count && status == PLASMON_OK; i++) {
        status = measure(&raw, config->size[i], &result[i], err);
    }
    return status;
}
