/*
 * base: what every other module stands on, and no policy. This header gathers the small things:
 * checked attributes, container_of, min/max, rounding. The rest has a header each:
 *
 *   log.h     levels, module names, one sink a process       alloc.h  zeroed allocation with a fault point
 *   fault.h   named places where the world can say no        lock.h   ranked mutexes, condition variables
 *   clock.h   monotonic time                                 list.h   intrusive lists
 *   map.h     u64 -> pointer, open addressing                vec.h    growable arrays
 *   box.h     shapes, boxes, views: the geometry             fd.h     memfd, pidfd, descriptors over sockets
 *   str.h     growable text; error text with a cause         copy.h   memcpy for large blocks
 */
#ifndef BASE_BASE_H
#define BASE_BASE_H

#include <stddef.h>
#include <stdint.h>

#include "plasmon/status.h"

#define PL_MUST_CHECK       __attribute__((warn_unused_result))
#define PL_PRINTF(fmt, var) __attribute__((format(printf, fmt, var)))

#define pl_container_of(ptr, type, member) \
    ((type *)(void *)((char *)(ptr)-offsetof(type, member)))
#define PL_COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* Stays on in release builds: a broken invariant that could corrupt data. Logs and aborts. */
#define PL_CHECK(condition)                                  \
    do {                                                     \
        if (!(condition)) {                                  \
            pl_check_failed(#condition, __FILE__, __LINE__); \
        }                                                    \
    } while (0)
_Noreturn void pl_check_failed(const char *condition, const char *file, int line);

static inline uint64_t pl_min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}
static inline uint64_t pl_max_u64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}
/* `alignment` is a power of two. */
static inline uint64_t pl_round_up(uint64_t value, uint64_t alignment)
{
    return (value + alignment - 1) & ~(alignment - 1);
}

/* In a loop that looks at memory until another thread or device changes it. */
static inline void pl_cpu_relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* FNV-1a, 32 bits: names of functions on the wire. */
static inline uint32_t pl_hash_name(const char *name)
{
    uint32_t hash = 2166136261u;

    for (; *name != '\0'; name++) {
        hash = (hash ^ (uint8_t)*name) * 16777619u;
    }
    return hash;
}

/* "ENOMEM" and "out of host memory"; never NULL, also for numbers from a newer peer. */
const char *pl_status_name(plasmon_status_t status);
const char *pl_status_text(plasmon_status_t status);
/* errno -> status (ENOENT, EACCES, ENOSPC, EADDRINUSE, ...; otherwise EIO). */
plasmon_status_t pl_status_from_errno(int error);

#endif
