/*
 * Memory of the fake driver: pages of the host, whose chunks are files, so that other processes map
 * them as they map a GPU's.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "tests/harness/gpu/fake_calls.h"
#include "tests/harness/gpu/fake_nccl.h"

#define EXPORT      __attribute__((visibility("default")))
#define GRANULARITY (UINT64_C(2) << 20)

static pthread_rwlock_t host_memory = PTHREAD_RWLOCK_INITIALIZER;

void fake_memory_enter(void)
{
    (void)pthread_rwlock_rdlock(&host_memory);
}

void fake_memory_leave(void)
{
    (void)pthread_rwlock_unlock(&host_memory);
}

static bool busy(void)
{
    bool found = false;

    fake_lock();
    for (struct fake_stream *stream = fake_streams(); stream != NULL;
         stream                     = stream->next) {
        found |= stream->ops.count > 0 || stream->busy_until_ns != 0;
    }
    fake_unlock();
    return found;
}

void fake_quiet(void)
{
    while (busy()) {
        (void)usleep(100);
    }
}

EXPORT void fake_host_free(void)
{
    (void)pthread_rwlock_wrlock(&host_memory);
    fake_quiet();
    (void)pthread_rwlock_unlock(&host_memory);
}

static CUresult memory_result(const void *at)
{
    return at != MAP_FAILED ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult fake_cuMemGetAllocationGranularity(size_t *out,
                                            const CUmemAllocationProp *properties,
                                            CUmemAllocationGranularity_flags flags)
{
    COUNT(cuMemGetAllocationGranularity);
    (void)properties;
    (void)flags;
    *out = GRANULARITY;
    return CUDA_SUCCESS;
}

CUresult fake_cuMemAddressReserve(CUdeviceptr *out, size_t bytes, size_t alignment,
                                  CUdeviceptr wish, unsigned long long flags)
{
    void *at =
        mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    COUNT(cuMemAddressReserve);
    (void)alignment;
    (void)wish;
    (void)flags;
    *out = (CUdeviceptr)(uintptr_t)at;
    return memory_result(at);
}

CUresult fake_cuMemAddressFree(CUdeviceptr at, size_t bytes)
{
    COUNT(cuMemAddressFree);
    (void)munmap(fake_pointer(at), bytes);
    return CUDA_SUCCESS;
}

/* A handle is a descriptor and 1: none is 0. */
CUresult fake_cuMemCreate(CUmemGenericAllocationHandle *out, size_t bytes,
                          const CUmemAllocationProp *properties, unsigned long long flags)
{
    int fd = memfd_create("fake-gpu", MFD_CLOEXEC);

    COUNT(cuMemCreate);
    (void)properties;
    (void)flags;
    if (fd < 0 || ftruncate(fd, (off_t)bytes) != 0) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *out = (unsigned)fd + 1ull;
    return CUDA_SUCCESS;
}

CUresult fake_cuMemRelease(CUmemGenericAllocationHandle handle)
{
    COUNT(cuMemRelease);
    (void)close((int)(handle - 1));
    return CUDA_SUCCESS;
}

/* What is mapped, and which devices may use it: bit i is device i. */
static struct mapped {
    CUdeviceptr at;
    uint64_t bytes;
    uint64_t readers, writers;
    struct mapped *next;
} * mapped;

static struct mapped *mapped_find(CUdeviceptr at)
{
    struct mapped *one = mapped;

    while (one != NULL && (at < one->at || at - one->at >= one->bytes)) {
        one = one->next;
    }
    return one;
}

static void mapped_add(CUdeviceptr at, uint64_t bytes)
{
    struct mapped *one = calloc(1, sizeof(*one));

    if (one == NULL) {
        abort();
    }
    one->at    = at;
    one->bytes = bytes;
    fake_lock();
    one->next = mapped;
    mapped    = one;
    fake_unlock();
}

static void mapped_drop(CUdeviceptr at)
{
    fake_lock();
    for (struct mapped **link = &mapped; *link != NULL; link = &(*link)->next) {
        if ((*link)->at == at) {
            struct mapped *one = *link;

            *link = one->next;
            free(one);
            break;
        }
    }
    fake_unlock();
}

CUresult fake_cuMemMap(CUdeviceptr where, size_t bytes, size_t offset,
                       CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    COUNT(cuMemMap);
    (void)flags;
    mapped_add(where, bytes);
    return memory_result(mmap(fake_pointer(where), bytes, PROT_NONE, MAP_SHARED | MAP_FIXED,
                              (int)(handle - 1), (off_t)offset));
}

CUresult fake_cuMemUnmap(CUdeviceptr where, size_t bytes)
{
    COUNT(cuMemUnmap);
    mapped_drop(where);
    return memory_result(mmap(fake_pointer(where), bytes, PROT_NONE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1,
                              0));
}

bool fake_memory_open(CUdeviceptr at, uint64_t bytes, int device, bool writes)
{
    const CUdeviceptr end    = at + bytes;
    const struct mapped *one = NULL;
    bool open                = true;

    fake_lock();
    while (open && at < end && (one = mapped_find(at)) != NULL) {
        /* one map after the other */
        open = ((writes ? one->writers : one->readers) >> device & 1) != 0;
        at   = one->at + one->bytes;
    }
    fake_unlock();
    return open;
}

CUresult fake_cuMemSetAccess(CUdeviceptr where, size_t bytes, const CUmemAccessDesc *opened,
                             size_t opened_count)
{
    const char *shut = getenv("FAKE_CUDA_SHUT");
    bool writable    = false;
    struct mapped *one;

    COUNT(cuMemSetAccess);
    if (opened_count > 0) {
        fake_far_wait(opened[0].location.id);
    }
    if (shut != NULL && opened_count > 0 && fake_device_is_far(opened[0].location.id) &&
        access(shut, F_OK) == 0) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    fake_lock();
    one = mapped_find(where);
    for (size_t i = 0; i < opened_count; i++) {
        uint64_t bit = UINT64_C(1) << opened[i].location.id;
        bool writes  = opened[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;

        writable |= writes;
        if (one != NULL) {
            one->readers |= bit;
            one->writers = writes ? one->writers | bit : one->writers & ~bit;
        }
    }
    fake_unlock();
    return mprotect(fake_pointer(where), bytes,
                    writable ? PROT_READ | PROT_WRITE : PROT_READ) == 0
               ? CUDA_SUCCESS
               : CUDA_ERROR_INVALID_VALUE;
}

CUresult fake_cuMemExportToShareableHandle(void *out, CUmemGenericAllocationHandle handle,
                                           CUmemAllocationHandleType type,
                                           unsigned long long flags)
{
    int fd = fcntl((int)(handle - 1), F_DUPFD_CLOEXEC, 0);

    COUNT(cuMemExportToShareableHandle);
    (void)type;
    (void)flags;
    memcpy(out, &fd, sizeof(fd));
    return fd >= 0 ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
}

CUresult fake_cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *out, void *fd,
                                             CUmemAllocationHandleType type)
{
    int own = fcntl((int)(uintptr_t)fd, F_DUPFD_CLOEXEC, 0);

    COUNT(cuMemImportFromShareableHandle);
    (void)type;
    *out = (unsigned)own + 1ull;
    return own >= 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult fake_cuMemAlloc(CUdeviceptr *out, size_t bytes)
{
    void *at = malloc(bytes);

    COUNT(cuMemAlloc);
    *out = (CUdeviceptr)(uintptr_t)at;
    return at != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult fake_cuMemFree(CUdeviceptr at)
{
    COUNT(cuMemFree);
    free(fake_pointer(at));
    return CUDA_SUCCESS;
}

CUresult fake_cuMemHostAlloc(void **out, size_t bytes, unsigned flags)
{
    COUNT(cuMemHostAlloc);
    (void)flags;
    *out = malloc(bytes);
    return *out != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult fake_cuMemGetInfo(size_t *out_free, size_t *out_total)
{
    COUNT(cuMemGetInfo);
    *out_free  = FAKE_DEVICE_BYTES / 2;
    *out_total = FAKE_DEVICE_BYTES;
    return CUDA_SUCCESS;
}

/* What is registered; copies may not reach over an end of it. */
static struct registered {
    uintptr_t at;
    size_t bytes;
    struct registered *next;
} * registered;

static void gate_wait(size_t bytes)
{
    static _Atomic unsigned large;
    const struct timespec pause = {.tv_nsec = 2000000};
    const char *gate            = getenv("FAKE_CUDA_LOCK_GATE");

    if (gate == NULL || bytes < UINT64_C(128) << 20 || atomic_fetch_add(&large, 1) == 0) {
        return;
    }
    while (access(gate, F_OK) == 0) {
        (void)nanosleep(&pause, NULL);
    }
}

CUresult fake_cuMemHostRegister(void *at, size_t bytes, unsigned flags)
{
    struct registered *one = malloc(sizeof(*one));

    COUNT(cuMemHostRegister);
    (void)flags;
    if (one == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    gate_wait(bytes);
    fake_memory_enter();
    fake_memory_leave();
    fake_lock();
    *one       = (struct registered){(uintptr_t)at, bytes, registered};
    registered = one;
    fake_unlock();
    return CUDA_SUCCESS;
}

CUresult fake_cuMemHostUnregister(void *at)
{
    CUresult result = CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;

    COUNT(cuMemHostUnregister);
    fake_memory_enter();
    fake_memory_leave();
    fake_lock();
    for (struct registered **link = &registered; *link != NULL; link = &(*link)->next) {
        if ((*link)->at == (uintptr_t)at) {
            struct registered *one = *link;

            *link = one->next;
            free(one);
            result = CUDA_SUCCESS;
            break;
        }
    }
    fake_unlock();
    return result;
}

bool fake_memory_may_copy(const void *host, size_t bytes)
{
    uintptr_t at = (uintptr_t)host;
    bool may     = true;

    fake_lock();
    for (const struct registered *one = registered; one != NULL; one = one->next) {
        bool begins = at >= one->at && at < one->at + one->bytes;

        may = may && (!begins || bytes <= one->bytes - (at - one->at));
    }
    fake_unlock();
    return may;
}

CUresult fake_cuMemHostGetDevicePointer(CUdeviceptr *out, void *at, unsigned flags)
{
    COUNT(cuMemHostGetDevicePointer);
    (void)flags;
    *out = (CUdeviceptr)(uintptr_t)at;
    return CUDA_SUCCESS;
}
