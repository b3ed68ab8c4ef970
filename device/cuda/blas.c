/*
 * cuBLAS of a device: found at run time, created and called once at open, because both block while
 * a stream waits.
 *
 * LATER. That is the longest part of opening a device: with modules loaded eagerly (driver.c) it is
 * all kernels of cuBLAS, two seconds of an H200 and 460 MiB of it. Who cannot wait for it has that
 * done by device_cuda_blas_start(), at a moment when nothing is enqueued; until then it is pending,
 * and the handle NULL.
 *
 * WORKSPACES. Two streams must not use one workspace at the same time, and cublasSetStream()
 * forgets the one that was set. So each stream has its own, made when cuBLAS is first used on it
 * (cuMemAlloc does not wait for streams) and freed with the stream, and device_cuda_blas_on() sets
 * both, stream first.
 *
 * A missing cuBLAS is no error of the device: blas_error says what to install, to whoever asks for
 * the handle.
 */
#include "device/cuda/cuda_int.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"

#include <cublas_v2.h>

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORKSPACE_BYTES (32u << 20) /* what cuBLAS itself takes on Hopper */
#define WARM_SIZE       64          /* rows and columns of the first product */

#define BLAS_FUNCTIONS(XX)                   \
    XX(create, cublasCreate_v2)              \
    XX(destroy, cublasDestroy_v2)            \
    XX(set_stream, cublasSetStream_v2)       \
    XX(set_workspace, cublasSetWorkspace_v2) \
    XX(set_math_mode, cublasSetMathMode)     \
    XX(sgemm, cublasSgemm_v2)                \
    XX(dgemm, cublasDgemm_v2)                \
    XX(gemm_ex, cublasGemmStridedBatchedEx)

struct device_cuda_blas {
    void *library;
    bool pending; /* not looked for, or found at most */
    cublasHandle_t handle;
    CUdeviceptr workspace; /* of the idle stream */
#define XX(member, symbol) __typeof__(symbol) *member;
    BLAS_FUNCTIONS(XX)
#undef XX
};

static const char *const versions[] = {
    "13", "12"}; /* newest first; a newer one may refuse an older driver */

/* ------------------------------------------------------------------------------ loading */

#define REMEDY ": it is too old, or not whole; install cuBLAS 12 or newer"

static plasmon_status_t functions_load(struct device_cuda_blas *blas, struct pl_err *err)
{
    void *symbol;

#define XX(member, name)                                                          \
    symbol = dlsym(blas->library, #name);                                         \
    if (symbol == NULL) {                                                         \
        return pl_err_set(err, PLASMON_ENOLIB, "cuBLAS has no %s" REMEDY, #name); \
    }                                                                             \
    memcpy(&blas->member, &symbol, sizeof(symbol));
    BLAS_FUNCTIONS(XX)
#undef XX
    return PLASMON_OK;
}

/* dir NULL: where the loader looks. Its own dependency first, which the loader would not find beside it. */
static void *library_open(const char *dir, const char *version)
{
    char path[512];

    if (dir == NULL) {
        (void)snprintf(path, sizeof(path), "libcublas.so.%s", version);
        return dlopen(path, RTLD_NOW | RTLD_LOCAL);
    }
    (void)snprintf(path, sizeof(path), "%s/libcublasLt.so.%s", dir, version);
    if (dlopen(path, RTLD_NOW | RTLD_LOCAL) == NULL) {
        return NULL;
    }
    (void)snprintf(path, sizeof(path), "%s/libcublas.so.%s", dir, version);
    return dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

static void *library_find(const char *version)
{
    static const char *const variables[] = {"CUDA_HOME", "CUDA_PATH"};
    void *library                        = library_open(NULL, version);
    char dir[400];

    for (size_t i = 0; i < PL_COUNT(variables) && library == NULL; i++) {
        const char *root = getenv(variables[i]);

        if (root != NULL && strlen(root) + sizeof("/lib64") <= sizeof(dir)) {
            (void)snprintf(dir, sizeof(dir), "%s/lib64", root);
            library = library_open(dir, version);
        }
    }
    return library != NULL ? library : library_open("/usr/local/cuda/lib64", version);
}

/* -------------------------------------------------------------------------------- start */

static plasmon_status_t blas_status(cublasStatus_t result, const char *call,
                                    struct pl_err *err)
{
    if (result == CUBLAS_STATUS_SUCCESS) {
        return PLASMON_OK;
    }
    return pl_err_set(
        err, result == CUBLAS_STATUS_ALLOC_FAILED ? PLASMON_EDEVMEM : PLASMON_EDEVICE,
        "%s: cuBLAS error %d", call, (int)result);
}

static plasmon_status_t bind(struct device_cuda_blas *blas, CUstream stream,
                             CUdeviceptr workspace, struct pl_err *err)
{
    plasmon_status_t status =
        blas_status(blas->set_stream(blas->handle, stream), "cublasSetStream", err);

    if (status == PLASMON_OK) {
        status = blas_status(blas->set_workspace(blas->handle, (void *)(uintptr_t)workspace,
                                                 WORKSPACE_BYTES),
                             "cublasSetWorkspace", err);
    }
    return status;
}

/* One product of each kind on the idle stream, with operands of zeros. */
static plasmon_status_t warm_products(struct device_cuda *cuda,
                                      struct device_cuda_blas *blas, CUdeviceptr operands,
                                      struct pl_err *err)
{
    const size_t matrix = (size_t)WARM_SIZE * WARM_SIZE * sizeof(double);
    void *a             = (void *)(uintptr_t)operands;
    void *b             = (void *)(uintptr_t)(operands + matrix);
    void *c             = (void *)(uintptr_t)(operands + 2 * matrix);
    const double one    = 1;
    const double zero   = 0;
    const float onef    = 1;
    const float zerof   = 0;
    plasmon_status_t status =
        DEVICE_CU(cuda, cuMemsetD8Async(operands, 0, 3 * matrix, cuda->idle_stream));

    if (status != PLASMON_OK) {
        return pl_err_set(err, status, "%s", device_cuda_last_error());
    }
    status = blas_status(blas->dgemm(blas->handle, CUBLAS_OP_N, CUBLAS_OP_N, WARM_SIZE,
                                     WARM_SIZE, WARM_SIZE, &one, a, WARM_SIZE, b, WARM_SIZE,
                                     &zero, c, WARM_SIZE),
                         "cublasDgemm", err);
    if (status == PLASMON_OK) {
        status = blas_status(blas->sgemm(blas->handle, CUBLAS_OP_N, CUBLAS_OP_N, WARM_SIZE,
                                         WARM_SIZE, WARM_SIZE, &onef, a, WARM_SIZE, b,
                                         WARM_SIZE, &zerof, c, WARM_SIZE),
                             "cublasSgemm", err);
    }
    if (status == PLASMON_OK) { /* 16-bit floats, with sums in f32 */
        status = blas_status(blas->gemm_ex(blas->handle, CUBLAS_OP_N, CUBLAS_OP_N,
                                           WARM_SIZE, WARM_SIZE, WARM_SIZE, &onef, a,
                                           CUDA_R_16F, WARM_SIZE, 0, b, CUDA_R_16F,
                                           WARM_SIZE, 0, &zerof, c, CUDA_R_16F, WARM_SIZE,
                                           0, 1, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
                             "cublasGemmStridedBatchedEx", err);
    }
    if (status == PLASMON_OK &&
        DEVICE_CU(cuda, cuStreamSynchronize(cuda->idle_stream)) != PLASMON_OK) {
        status = pl_err_set(err, PLASMON_EDEVICE, "%s", device_cuda_last_error());
    }
    return status;
}

static plasmon_status_t warm(struct device_cuda *cuda, struct device_cuda_blas *blas,
                             struct pl_err *err)
{
    const size_t operand_bytes = 3u * WARM_SIZE * WARM_SIZE * sizeof(double);
    CUdeviceptr operands;
    plasmon_status_t status = DEVICE_CU(cuda, cuMemAlloc(&operands, operand_bytes));

    if (status != PLASMON_OK) {
        return pl_err_set(err, status, "%s", device_cuda_last_error());
    }
    status = bind(blas, cuda->idle_stream, blas->workspace, err);
    if (status == PLASMON_OK) {
        status = warm_products(cuda, blas, operands, err);
    }
    (void)DEVICE_CU(cuda, cuMemFree(operands)); /* logged; nothing else to do */
    return status;
}

/* With the library open and its functions found. */
static plasmon_status_t blas_start(struct device_cuda *cuda, struct device_cuda_blas *blas,
                                   struct pl_err *err)
{
    plasmon_status_t status;

    status = blas_status(blas->create(&blas->handle), "cublasCreate", err);
    if (status != PLASMON_OK) {
        return status;
    }
    /*
     * Halves are summed in 32 bits to the end: partial sums of a split product are not rounded to
     * 16 bits in between.
     */
    status = blas_status(
        blas->set_math_mode(
            blas->handle, (cublasMath_t)(CUBLAS_DEFAULT_MATH |
                                         CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION)),
        "cublasSetMathMode", err);
    if (status != PLASMON_OK) {
        goto err_destroy_handle;
    }
    status = DEVICE_CU(cuda, cuMemAlloc(&blas->workspace, WORKSPACE_BYTES));
    if (status != PLASMON_OK) {
        (void)pl_err_set(err, status, "%s", device_cuda_last_error());
        goto err_destroy_handle;
    }
    status = warm(cuda, blas, err);
    if (status != PLASMON_OK) {
        goto err_free_workspace;
    }
    return PLASMON_OK;

err_free_workspace:
    (void)DEVICE_CU(cuda, cuMemFree(blas->workspace)); /* the first error counts */
err_destroy_handle:
    (void)blas->destroy(blas->handle); /* likewise */
    return status;
}

static plasmon_status_t blas_open(struct device_cuda *cuda, const char *version,
                                  struct device_cuda_blas *blas, struct pl_err *err)
{
    plasmon_status_t status;

    blas->library = library_find(version);
    if (blas->library == NULL) {
        return pl_err_set(err, PLASMON_ENOLIB,
                          "libcublas.so.13 or .12 not found: install cuBLAS, or set "
                          "CUDA_HOME or LD_LIBRARY_PATH");
    }
    status = functions_load(blas, err);
    return status == PLASMON_OK ? blas_start(cuda, blas, err) : status;
}

void device_cuda_blas_preload(void)
{
    for (size_t i = 0; i < PL_COUNT(versions); i++) {
        if (library_find(versions[i]) != NULL) {
            return; /* most likely the one that will do */
        }
    }
}

void device_cuda_blas_init(struct device_cuda *cuda, bool later)
{
    struct device_cuda_blas *blas = PL_NEW(struct device_cuda_blas);

    cuda->blas = NULL;
    if (blas == NULL) {
        (void)pl_err_set(&cuda->blas_error, PLASMON_ENOMEM, "no memory for cuBLAS");
        return;
    }
    if (later) {
        blas->pending = true;
        cuda->blas    = blas;
        return;
    }
    for (size_t i = 0; i < PL_COUNT(versions); i++) {
        struct pl_err err = {.status = PLASMON_OK};

        *blas = (struct device_cuda_blas){.library = NULL};
        if (blas_open(cuda, versions[i], blas, &err) == PLASMON_OK) {
            cuda->blas = blas;
            return;
        }
        /*
         * A library that is there and fails says more than one that is not there. Libraries stay
         * open: see driver.c.
         */
        if (cuda->blas_error.status == PLASMON_OK || err.status != PLASMON_ENOLIB) {
            cuda->blas_error = err;
        }
    }
    pl_free(blas);
    pl_info("device", "CUDA device %u has no cuBLAS: %s", cuda->base.info.ordinal,
            cuda->blas_error.text);
}

bool device_cuda_blas_pending(const struct device *device)
{
    const struct device_cuda *cuda = (const struct device_cuda *)(const void *)device;

    return cuda->blas != NULL && cuda->blas->pending;
}

void device_cuda_blas_start(struct device *device)
{
    struct device_cuda *cuda = device_cuda_of(device);
    uint64_t began_ns        = pl_now_ns();

    pl_free(cuda->blas);
    cuda->blas = NULL;
    if (device_cuda_enter(cuda) != PLASMON_OK) {
        (void)pl_err_set(&cuda->blas_error, PLASMON_EDEVICE, "%s",
                         device_cuda_last_error());
        return;
    }
    device_cuda_blas_init(cuda, false);
    pl_info(
        "device", "CUDA device %u: cuBLAS was started when it was asked for, in %llu ms",
        cuda->base.info.ordinal, (unsigned long long)((pl_now_ns() - began_ns) / 1000000));
}

void device_cuda_blas_finish(struct device_cuda *cuda)
{
    if (cuda->blas == NULL) {
        return;
    }
    if (!cuda->blas->pending && device_cuda_enter(cuda) == PLASMON_OK) {
        (void)cuda->blas->destroy(cuda->blas->handle); /* fails only on a lost context */
        (void)DEVICE_CU(cuda, cuMemFree(cuda->blas->workspace)); /* logged */
    }
    pl_free(cuda->blas);
    cuda->blas = NULL;
}

/* ---------------------------------------------------------------------------------- use */

void *device_cuda_blas_handle(struct device *device, struct pl_err *why)
{
    struct device_cuda *cuda = device_cuda_of(device);

    if (cuda->blas == NULL) {
        (void)pl_err_set(why, cuda->blas_error.status, "%s", cuda->blas_error.text);
        return NULL;
    }
    if (cuda->blas->pending) {
        (void)pl_err_set(why, PLASMON_EAGAIN, "cuBLAS is not started yet");
        return NULL;
    }
    return cuda->blas->handle;
}

void *device_cuda_blas_on(struct device_stream *base, struct pl_err *why)
{
    struct device_cuda_stream *stream = device_cuda_stream_of(base);
    struct device_cuda *cuda          = device_cuda_of(base->device);
    plasmon_status_t status;

    if (device_cuda_blas_handle(base->device, why) == NULL) {
        return NULL;
    }
    status = device_cuda_enter(cuda);
    if (status == PLASMON_OK && stream->workspace == 0) {
        status = DEVICE_CU(cuda, cuMemAlloc(&stream->workspace, WORKSPACE_BYTES));
    }
    if (status != PLASMON_OK) {
        (void)pl_err_set(why, status, "%s", device_cuda_last_error());
        return NULL;
    }
    return bind(cuda->blas, device_cuda_stream_on(stream), stream->workspace, why) ==
                   PLASMON_OK
               ? cuda->blas->handle
               : NULL;
}

void *device_cuda_blas_symbol(struct device *device, const char *name)
{
    struct device_cuda *cuda = device_cuda_of(device);

    if (cuda->blas == NULL) {
        return NULL;
    }
    for (size_t i = 0; i < PL_COUNT(versions) && cuda->blas->library == NULL; i++) {
        cuda->blas->library = library_find(versions[i]); /* pending */
    }
    return cuda->blas->library != NULL ? dlsym(cuda->blas->library, name) : NULL;
}
