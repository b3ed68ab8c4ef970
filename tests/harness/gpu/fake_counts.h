/* Reading what the driver without a GPU counts (fake_cuda.h), from outside the processes that call it. */
#ifndef TESTS_HARNESS_GPU_FAKE_COUNTS_H
#define TESTS_HARNESS_GPU_FAKE_COUNTS_H

#include <fcntl.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/harness/gpu/fake_cuda.h"
#include "tests/harness/test.h"

/* Made when it is not there. Owned: fake_counts_close(). */
static inline const struct fake_cuda_calls *fake_counts_open(const char *path)
{
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    void *at;

    ASSERT_TRUE(fd >= 0);
    ASSERT_EQ(ftruncate(fd, sizeof(struct fake_cuda_calls)), 0);
    at = mmap(NULL, sizeof(struct fake_cuda_calls), PROT_READ, MAP_SHARED, fd, 0);
    ASSERT_TRUE(at != MAP_FAILED);
    ASSERT_EQ(close(fd), 0);
    return at;
}

static inline void fake_counts_close(const struct fake_cuda_calls *calls)
{
    ASSERT_EQ(munmap((void *)(uintptr_t)calls, sizeof(*calls)), 0);
}

/* NULL: nobody has counted there yet, or nothing is called so. */
static inline const uint64_t *fake_counts_find(const struct fake_cuda_calls *calls,
                                               const char *name)
{
    for (size_t i = 0; i < FAKE_CUDA_CALLS_MAX; i++) {
        if (strcmp(calls->functions[i].name, name) == 0) {
            return &calls->functions[i].count;
        }
    }
    return NULL;
}

/* How often so far: a call's name, or one of those that fake_calls.h adds. */
static inline uint64_t fake_counts_of(const struct fake_cuda_calls *calls, const char *name)
{
    const uint64_t *count = fake_counts_find(calls, name);

    if (count == NULL) {
        test_fail(__FILE__, __LINE__, "the driver counts no %s", name);
    }
    return __atomic_load_n(count, __ATOMIC_RELAXED);
}

#endif
