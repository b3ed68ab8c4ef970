/*
 * The cuBLAS of a GPU that is none (fake_cuda.h): its products take no time and do nothing. That it
 * was created is counted in the last place of struct fake_cuda_calls, because on a GPU it is what
 * takes longest of all that a worker does.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cublas_v2.h>

#include "tests/harness/gpu/fake_cuda.h"

#define EXPORT __attribute__((visibility("default")))

static void count_create(void)
{
    const char *path              = getenv("FAKE_CUDA_CALLS");
    int fd                        = path != NULL ? open(path, O_RDWR | O_CLOEXEC) : -1;
    struct fake_cuda_calls *calls = MAP_FAILED;

    if (fd >= 0) {
        calls = mmap(NULL, sizeof(*calls), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        (void)close(fd);
    }
    if (calls != MAP_FAILED) {
        (void)snprintf(calls->functions[FAKE_CUDA_CALLS_MAX - 1].name,
                       sizeof(calls->functions[0].name), "cublasCreate");
        (void)__atomic_fetch_add(&calls->functions[FAKE_CUDA_CALLS_MAX - 1].count, 1,
                                 __ATOMIC_RELAXED);
        (void)munmap(calls, sizeof(*calls));
    }
}

EXPORT cublasStatus_t cublasCreate_v2(cublasHandle_t *out)
{
    static char handle;

    count_create();
    *out = (cublasHandle_t)(void *)&handle;
    return CUBLAS_STATUS_SUCCESS;
}

EXPORT cublasStatus_t cublasDestroy_v2(cublasHandle_t handle)
{
    (void)handle;
    return CUBLAS_STATUS_SUCCESS;
}

EXPORT cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream)
{
    (void)handle;
    (void)stream;
    return CUBLAS_STATUS_SUCCESS;
}

EXPORT cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t handle, void *workspace,
                                            size_t bytes)
{
    (void)handle;
    (void)workspace;
    (void)bytes;
    return CUBLAS_STATUS_SUCCESS;
}

EXPORT cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode)
{
    (void)handle;
    (void)mode;
    return CUBLAS_STATUS_SUCCESS;
}

EXPORT cublasStatus_t cublasSgemm_v2(cublasHandle_t handle, cublasOperation_t ta,
                                     cublasOperation_t tb, int m, int n, int k,
                                     const float *alpha, const float *a, int lda,
                                     const float *b, int ldb, const float *beta, float *c,
                                     int ldc)
{
    (void)handle, (void)ta, (void)tb, (void)m, (void)n, (void)k, (void)alpha, (void)a;
    (void)lda, (void)b, (void)ldb, (void)beta, (void)c, (void)ldc;
    return CUBLAS_STATUS_SUCCESS;
}

EXPORT cublasStatus_t cublasDgemm_v2(cublasHandle_t handle, cublasOperation_t ta,
                                     cublasOperation_t tb, int m, int n, int k,
                                     const double *alpha, const double *a, int lda,
                                     const double *b, int ldb, const double *beta,
                                     double *c, int ldc)
{
    (void)handle, (void)ta, (void)tb, (void)m, (void)n, (void)k, (void)alpha, (void)a;
    (void)lda, (void)b, (void)ldb, (void)beta, (void)c, (void)ldc;
    return CUBLAS_STATUS_SUCCESS;
}

EXPORT cublasStatus_t cublasGemmStridedBatchedEx(
    cublasHandle_t handle, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k,
    const void *alpha, const void *a, cudaDataType type_a, int lda, long long stride_a,
    const void *b, cudaDataType type_b, int ldb, long long stride_b, const void *beta,
    void *c, cudaDataType type_c, int ldc, long long stride_c, int batch,
    cublasComputeType_t compute, cublasGemmAlgo_t algorithm)
{
    (void)handle, (void)ta, (void)tb, (void)m, (void)n, (void)k, (void)alpha, (void)a;
    (void)type_a, (void)lda, (void)stride_a, (void)b, (void)type_b, (void)ldb;
    (void)stride_b, (void)beta, (void)c, (void)type_c, (void)ldc, (void)stride_c;
    (void)batch, (void)compute, (void)algorithm;
    return CUBLAS_STATUS_SUCCESS;
}
