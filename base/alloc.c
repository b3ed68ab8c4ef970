#include "alloc.h"

#include "clock.h"
#include "fault.h"

#include <stdlib.h>
#include <string.h>

/* What malloc and calloc promise on x86-64 and AArch64; larger alignments go another way. */
#define NATURAL_ALIGNMENT 16

/* Of this thread, the last one: what it could not go on without is what it says when it ends. */
static _Thread_local struct {
    size_t bytes;
    uint64_t ns; /* 0: none has failed */
} refused;

static void *found(void *ptr, size_t bytes)
{
    if (ptr == NULL) {
        refused.bytes = bytes;
        refused.ns    = pl_now_ns();
    }
    return ptr;
}

size_t pl_alloc_refused(uint64_t within_ns)
{
    return refused.ns != 0 && pl_now_ns() - refused.ns <= within_ns ? refused.bytes : 0;
}

void *pl_alloc(size_t bytes)
{
    bytes = bytes > 0 ? bytes : 1;
    return found(pl_fault_point("alloc") ? NULL : calloc(1, bytes), bytes);
}

void *pl_alloc_aligned(size_t alignment, size_t bytes)
{
    size_t rounded;
    void *ptr;

    if (alignment <= NATURAL_ALIGNMENT) {
        return pl_alloc(bytes);
    }
    if (pl_fault_point("alloc") || bytes > SIZE_MAX - alignment) {
        return found(NULL, bytes);
    }

    /* aligned_alloc() wants a multiple of the alignment. */
    rounded = pl_round_up(pl_max_u64(bytes, 1), alignment);
    ptr     = found(aligned_alloc(alignment, rounded), rounded);
    if (ptr != NULL) {
        memset(ptr, 0, rounded);
    }
    return ptr;
}

void *pl_alloc_array(size_t count, size_t bytes)
{
    size_t total;

    if (__builtin_mul_overflow(count, bytes, &total)) {
        return NULL;
    }
    return pl_alloc(total);
}

void *pl_realloc(void *old, size_t old_bytes, size_t new_bytes)
{
    char *ptr;

    new_bytes = new_bytes > 0 ? new_bytes : 1;
    ptr       = found(pl_fault_point("alloc") ? NULL : realloc(old, new_bytes), new_bytes);
    if (ptr != NULL && new_bytes > old_bytes) {
        memset(ptr + old_bytes, 0, new_bytes - old_bytes);
    }
    return ptr;
}

char *pl_strdup(const char *text)
{
    size_t bytes = strlen(text) + 1;
    char *copy   = pl_alloc(bytes);

    if (copy != NULL) {
        memcpy(copy, text, bytes);
    }
    return copy;
}

void pl_free(void *ptr)
{
    free(ptr);
}
