/*
 * NCCL's all-reduce without Plasmon: one process, one communicator a GPU (ncclCommInitAll), a
 * stream each, sums of f32 from one array into another; many in a row, and one at a time. What
 * `plasmon bench collectives` is held against.
 *
 * NCCL_NVLS_ENABLE is 0, as for Plasmon's own use of NCCL: multicast groups outlive a process that
 * is killed. All other settings are the environment's. What of NCCL's ABI is used is declared here,
 * so that a build needs none.
 */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "bench/bench.h"

#ifndef PLASMON_HAVE_CUDA

plasmon_status_t bench_raw_all_reduce_run(const void *config, double *result, size_t count,
                                          struct pl_err *err)
{
    (void)config;
    (void)result;
    (void)count;
    return pl_err_set(err, PLASMON_ENOTSUP, "this build has no CUDA");
}

#else

#include "device/cuda/driver.h"

#define CU(call)     DEVICE_CU(NULL, call)
#define GPUS_MAX     16u
#define BUDGET_NS    UINT64_C(300000000) /* of one figure */
#define REPEATS_MAX  200u
#define TIME_LIMIT_S 180u

typedef struct nccl_comm *nccl_comm_t;
enum { NCCL_SUCCESS = 0, NCCL_SUM = 0, NCCL_FLOAT32 = 7 };

struct nccl {
    int (*ncclCommInitAll)(nccl_comm_t *comms, int count, const int *devices);
    int (*ncclAllReduce)(const void *from, void *to, size_t count, int type, int op,
                         nccl_comm_t comm, CUstream stream);
    int (*ncclGroupStart)(void);
    int (*ncclGroupEnd)(void);
    const char *(*ncclGetErrorString)(int error);
};

struct gpu {
    CUcontext context;
    CUstream stream;
    CUdeviceptr from, to;
};
struct all_reduce {
    const struct bench_raw_all_reduce *config;
    struct nccl nccl;
    nccl_comm_t comm[GPUS_MAX];
    struct gpu gpu[GPUS_MAX];
};

static plasmon_status_t fail(plasmon_status_t status, const char *what, struct pl_err *err)
{
    return status == PLASMON_OK
               ? status
               : pl_err_set(err, status, "%s: %s", what, device_cuda_last_error());
}

static plasmon_status_t nccl_fail(const struct all_reduce *all, int error, const char *call,
                                  struct pl_err *err)
{
    return error == NCCL_SUCCESS ? PLASMON_OK
                                 : pl_err_set(err, PLASMON_EDEVICE, "%s: %s", call,
                                              all->nccl.ncclGetErrorString(error));
}

/* ------------------------------------------------------- set-up; the process ends after */

static plasmon_status_t nccl_load(struct nccl *nccl, struct pl_err *err)
{
    const char *named = getenv("PLASMON_NCCL_LIBRARY");
    void *library     = dlopen(named != NULL && named[0] != '\0' ? named : "libnccl.so.2",
                           RTLD_NOW | RTLD_LOCAL);
    void *symbol;

    if (library == NULL) {
        return pl_err_set(err, PLASMON_ENOLIB,
                          "NCCL is not there (%s); install libnccl2, or name it in "
                          "PLASMON_NCCL_LIBRARY",
                          dlerror());
    }
#define FIND(name)                                                                    \
    symbol = dlsym(library, #name);                                                   \
    if (symbol == NULL) {                                                             \
        return pl_err_set(err, PLASMON_ENOLIB, "this libnccl.so.2 has no %s", #name); \
    }                                                                                 \
    memcpy(&nccl->name, &symbol, sizeof(symbol));
    FIND(ncclCommInitAll)
    FIND(ncclAllReduce)
    FIND(ncclGroupStart)
    FIND(ncclGroupEnd)
    FIND(ncclGetErrorString)
#undef FIND
    return PLASMON_OK;
}

/* Each number is the GPU's index and 1. */
static plasmon_status_t open_gpu(struct gpu *gpu, uint32_t index, uint64_t bytes)
{
    float *values           = bench_must_alloc(bytes);
    plasmon_status_t status = CU(cuDevicePrimaryCtxRetain(&gpu->context, (CUdevice)index));

    for (uint64_t i = 0; i < bytes / sizeof(float); i++) {
        values[i] = (float)(index + 1);
    }
    if (status == PLASMON_OK) {
        status = CU(cuCtxSetCurrent(gpu->context));
    }
    if (status == PLASMON_OK) {
        status = CU(cuStreamCreateWithPriority(&gpu->stream, CU_STREAM_NON_BLOCKING, 0));
    }
    if (status == PLASMON_OK) {
        status = CU(cuMemAlloc(&gpu->from, bytes));
    }
    if (status == PLASMON_OK) {
        status = CU(cuMemAlloc(&gpu->to, bytes));
    }
    if (status == PLASMON_OK) {
        status = CU(cuMemcpyHtoDAsync(gpu->from, values, bytes, gpu->stream));
    }
    if (status == PLASMON_OK) {
        status = CU(cuStreamSynchronize(gpu->stream));
    }
    pl_free(values);
    return status;
}

static plasmon_status_t open_all(struct all_reduce *all, struct pl_err *err)
{
    plasmon_status_t status = nccl_load(&all->nccl, err);
    uint64_t bytes          = 0;
    int devices[GPUS_MAX];

    if (status != PLASMON_OK) {
        return status;
    }
    if (device_cuda_driver_load(err) < all->config->devices ||
        all->config->devices > GPUS_MAX) {
        return pl_err_set(err, PLASMON_ENOTSUP, "there are no %u GPUs here",
                          all->config->devices);
    }
    for (uint32_t i = 0; i < all->config->size_count; i++) {
        bytes = pl_max_u64(bytes, all->config->size[i]);
    }
    for (uint32_t i = 0; i < all->config->devices && status == PLASMON_OK; i++) {
        devices[i] = (int)i;
        status     = open_gpu(&all->gpu[i], i, pl_round_up(bytes, 256));
    }
    if (status != PLASMON_OK) {
        return fail(status, "opening a GPU", err);
    }
    return nccl_fail(
        all, all->nccl.ncclCommInitAll(all->comm, (int)all->config->devices, devices),
        "ncclCommInitAll", err);
}

/* ---------------------------------------------------------------------------- measuring */

static plasmon_status_t enqueue(struct all_reduce *all, uint64_t elements,
                                struct pl_err *err)
{
    int error = all->nccl.ncclGroupStart();

    for (uint32_t i = 0; i < all->config->devices && error == NCCL_SUCCESS; i++) {
        const struct gpu *gpu = &all->gpu[i];

        error = all->nccl.ncclAllReduce((const void *)(uintptr_t)gpu->from,
                                        (void *)(uintptr_t)gpu->to, elements, NCCL_FLOAT32,
                                        NCCL_SUM, all->comm[i], gpu->stream);
    }
    if (error == NCCL_SUCCESS) {
        error = all->nccl.ncclGroupEnd();
    }
    return nccl_fail(all, error, "ncclAllReduce", err);
}

static plasmon_status_t wait_all(const struct all_reduce *all, struct pl_err *err)
{
    plasmon_status_t status = PLASMON_OK;

    for (uint32_t i = 0; i < all->config->devices && status == PLASMON_OK; i++) {
        status = CU(cuCtxSetCurrent(all->gpu[i].context));
        if (status == PLASMON_OK) {
            status = CU(cuStreamSynchronize(all->gpu[i].stream));
        }
    }
    return fail(status, "waiting for an all-reduce", err);
}

/* Seconds of one. each: it is waited for before the next. */
static plasmon_status_t series(struct all_reduce *all, uint64_t elements, uint32_t repeats,
                               bool each, double *out, struct pl_err *err)
{
    plasmon_status_t status = PLASMON_OK;
    uint64_t began_ns       = pl_now_ns();

    for (uint32_t i = 0; i < repeats && status == PLASMON_OK; i++) {
        status = enqueue(all, elements, err);
        if (status == PLASMON_OK && (each || i + 1 == repeats)) {
            status = wait_all(all, err);
        }
    }
    *out = (double)(pl_now_ns() - began_ns) * 1e-9 / repeats;
    return status;
}

/* The best of three series, as for every bare figure. */
static plasmon_status_t figure(struct all_reduce *all, uint64_t elements, bool each,
                               double *out, struct pl_err *err)
{
    double one              = 0;
    plasmon_status_t status = series(all, elements, 3, each, &one, err);
    uint64_t fit            = (uint64_t)((double)BUDGET_NS / 3 / (one * 1e9 + 1));
    uint32_t repeats        = (uint32_t)pl_min_u64(pl_max_u64(fit, 2), REPEATS_MAX);

    *out = 1e9;
    for (int i = 0; i < 3 && status == PLASMON_OK; i++) {
        status = series(all, elements, repeats, each, &one, err);
        *out   = one < *out ? one : *out;
    }
    return status;
}

static plasmon_status_t check(const struct all_reduce *all, uint64_t elements,
                              struct pl_err *err)
{
    const uint32_t n    = all->config->devices;
    const float want    = (float)(n * (n + 1)) / 2;
    const uint64_t at[] = {0, elements / 2, elements - 1};

    for (uint32_t i = 0; i < n; i++) {
        for (size_t k = 0; k < PL_COUNT(at); k++) {
            float got               = 0;
            plasmon_status_t status = CU(cuCtxSetCurrent(all->gpu[i].context));

            if (status == PLASMON_OK) {
                status = CU(cuMemcpyDtoHAsync(&got, all->gpu[i].to + at[k] * sizeof(float),
                                              sizeof(got), all->gpu[i].stream));
            }
            if (status == PLASMON_OK) {
                status = CU(cuStreamSynchronize(all->gpu[i].stream));
            }
            if (status != PLASMON_OK) {
                return fail(status, "reading a result", err);
            }
            if (got != want) {
                return pl_err_set(err, PLASMON_EDEVICE,
                                  "NCCL's result on GPU %u is %g, and should be %g", i,
                                  (double)got, (double)want);
            }
        }
    }
    return PLASMON_OK;
}

plasmon_status_t bench_raw_all_reduce_run(const void *config, double *result, size_t count,
                                          struct pl_err *err)
{
    struct all_reduce *all = bench_must_alloc(sizeof(*all));
    plasmon_status_t status;

    all->config = config;
    if (count < 2 * (size_t)all->config->size_count) {
        return pl_err_set(err, PLASMON_EINVAL, "no room for the figures");
    }
    (void)alarm(TIME_LIMIT_S);                /* a communicator that hangs */
    (void)setenv("NCCL_NVLS_ENABLE", "0", 1); /* no memory: NCCL says so, too */
    (void)setenv("NCCL_SOCKET_IFNAME", "=lo", 0);
    status = open_all(all, err);
    for (uint32_t i = 0; i < all->config->size_count && status == PLASMON_OK; i++) {
        uint64_t elements = pl_max_u64(all->config->size[i] / sizeof(float), 1);

        status = figure(all, elements, false, &result[2 * i], err);
        if (status == PLASMON_OK) {
            status = check(all, elements, err);
        }
        if (status == PLASMON_OK) {
            status = figure(all, elements, true, &result[2 * i + 1], err);
        }
    }
    return status;
}

#endif
