/*
 * Memory of a CPU device.
 *
 * A chunk is a memfd: it lives as long as anyone, in any process, holds a descriptor or has it
 * mapped. A range is address space that faults when touched (PROT_NONE); mapping a chunk replaces a
 * part of it, unmapping puts the fault back, so the address space is never free for others in
 * between.
 *
 * ACCOUNTING. The device pretends to have bytes_max. What counts is memory of this device that this
 * process knows to be alive: a chunk it made, until it is unmapped here again (or for good, if it
 * never was mapped here), and a chunk of this device that it maps, whoever made it (a worker that
 * takes over its predecessor's memory). The inode of the memfd says whether two descriptors are one
 * chunk. Memory that is only mapped is never refused: it exists already.
 */
#include "device/cpu/cpu_int.h"

#include "base/alloc.h"
#include "base/fd.h"
#include "base/log.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

struct range {
    struct pl_list link;
    uint64_t base;
    uint64_t bytes;
};

static void *host(uint64_t address)
{
    return (void *)(uintptr_t)address;
}

/* Reserve at `where`, replacing what is there; NULL: anywhere. */
static void *reserve(void *where, uint64_t bytes)
{
    return mmap(where, bytes, PROT_NONE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE |
                    (where != NULL ? MAP_FIXED : 0),
                -1, 0);
}

/* ------------------------------------------------------------------------------- ranges */

/* The mapping holds the guards, and slack to align: what is left over at both ends is given back. */
static plasmon_status_t range_map(uint64_t bytes, uint64_t guard_bytes, uint64_t *out_base)
{
    uint64_t outer = bytes + 2 * guard_bytes;
    uint64_t slack = DEVICE_CPU_GRANULARITY;
    void *ptr      = reserve(NULL, outer + slack);
    uint64_t start;
    uint64_t aligned;

    if (ptr == MAP_FAILED) {
        return pl_status_from_errno(errno);
    }
    start   = (uint64_t)(uintptr_t)ptr;
    aligned = pl_round_up(start, DEVICE_CPU_GRANULARITY);
    if (aligned > start) {
        (void)munmap(ptr, aligned - start); /* our own mapping, whole pages: cannot fail */
    }
    if (start + slack > aligned) {
        (void)munmap(host(aligned + outer), start + slack - aligned); /* likewise */
    }
    *out_base = aligned + guard_bytes;
    return PLASMON_OK;
}

plasmon_status_t device_cpu_range_reserve(struct device *device, uint64_t bytes,
                                          struct device_ptr *out_base)
{
    struct device_cpu *cpu = device_cpu_of(device);
    struct range *range    = PL_NEW(struct range);
    plasmon_status_t status;

    if (range == NULL) {
        return PLASMON_ENOMEM;
    }
    status = range_map(bytes, cpu->guard_bytes, &range->base);
    if (status != PLASMON_OK) {
        pl_free(range);
        return status;
    }
    range->bytes = bytes;

    pl_mutex_lock(&cpu->lock);
    pl_list_add_tail(&cpu->ranges, &range->link);
    pl_mutex_unlock(&cpu->lock);
    *out_base = (struct device_ptr){.addr = range->base};
    return PLASMON_OK;
}

static void range_free(struct device_cpu *cpu, struct range *range)
{
    if (munmap(host(range->base - cpu->guard_bytes), range->bytes + 2 * cpu->guard_bytes) !=
        0) {
        pl_error("device", "cannot unmap a range of %llu bytes: %s",
                 (unsigned long long)range->bytes, strerror(errno));
    }
    pl_list_remove(&range->link);
    pl_free(range);
}

/* The range that holds [start, start + bytes), or NULL. */
static struct range *range_find_locked(struct device_cpu *cpu, uint64_t start,
                                       uint64_t bytes)
{
    struct pl_list *pos;

    pl_mutex_assert_held(&cpu->lock);
    pl_list_for_each(pos, &cpu->ranges) {
        struct range *range = pl_container_of(pos, struct range, link);

        if (start >= range->base && bytes <= range->bytes &&
            start - range->base <= range->bytes - bytes) {
            return range;
        }
    }
    return NULL;
}

void device_cpu_range_release(struct device *device, struct device_ptr base, uint64_t bytes)
{
    struct device_cpu *cpu = device_cpu_of(device);
    struct range *range;

    pl_mutex_lock(&cpu->lock);
    range = range_find_locked(cpu, base.addr, bytes);
    PL_CHECK(range != NULL && range->base == base.addr && range->bytes == bytes);
    range_free(cpu, range);
    pl_mutex_unlock(&cpu->lock);
}

/* --------------------------------------------------------------------------- accounting */

static plasmon_status_t chunk_add_locked(struct device_cpu *cpu, uint64_t inode,
                                         uint64_t bytes,
                                         struct device_cpu_chunk **out_chunk)
{
    struct device_cpu_chunk *chunk = PL_NEW(struct device_cpu_chunk);

    pl_mutex_assert_held(&cpu->lock);
    if (chunk == NULL || pl_map_set(&cpu->chunk_of_inode, inode, chunk) != PLASMON_OK) {
        pl_free(chunk);
        return PLASMON_ENOMEM;
    }
    chunk->inode = inode;
    chunk->bytes = bytes;
    cpu->bytes_used += bytes;
    *out_chunk = chunk;
    return PLASMON_OK;
}

static void chunk_remove_locked(struct device_cpu *cpu, struct device_cpu_chunk *chunk)
{
    pl_mutex_assert_held(&cpu->lock);
    assert(cpu->bytes_used >= chunk->bytes);
    cpu->bytes_used -= chunk->bytes;
    (void)pl_map_remove(&cpu->chunk_of_inode, chunk->inode);
    pl_free(chunk);
}

/* Room first, then the memory: two threads must not both get the last of it. */
static plasmon_status_t chunk_create_locked(struct device_cpu *cpu, uint64_t bytes,
                                            int *out_fd)
{
    struct device_cpu_chunk *chunk;
    struct stat stat;
    plasmon_status_t status;
    int fd;

    if (bytes > cpu->bytes_max || cpu->bytes_used > cpu->bytes_max - bytes) {
        return PLASMON_EDEVMEM;
    }
    status = pl_memfd_create("plasmon-chunk", bytes, &fd);
    if (status != PLASMON_OK) {
        return status == PLASMON_ENOMEM || status == PLASMON_ENOSPC ? PLASMON_EDEVMEM
                                                                    : status;
    }
    if (fstat(fd, &stat) != 0) {
        status = pl_status_from_errno(errno);
    } else {
        status = chunk_add_locked(cpu, stat.st_ino, bytes, &chunk);
    }
    if (status != PLASMON_OK) {
        pl_fd_close(&fd);
        return status;
    }
    *out_fd = fd;
    return PLASMON_OK;
}

plasmon_status_t device_cpu_chunk_create(struct device *device, uint64_t bytes, int *out_fd)
{
    struct device_cpu *cpu = device_cpu_of(device);
    plasmon_status_t status;

    pl_mutex_lock(&cpu->lock);
    status = chunk_create_locked(cpu, bytes, out_fd);
    pl_mutex_unlock(&cpu->lock);
    return status;
}

/* ------------------------------------------------------------------------------ mapping */

/* Count a chunk of this device as mapped at `address`. */
static plasmon_status_t chunk_mapped_locked(struct device_cpu *cpu, uint64_t inode,
                                            uint64_t bytes, uint64_t address)
{
    struct device_cpu_chunk *chunk = pl_map_get(&cpu->chunk_of_inode, inode);
    plasmon_status_t status        = PLASMON_OK;
    bool added                     = chunk == NULL;

    if (added) {
        status = chunk_add_locked(cpu, inode, bytes, &chunk);
        if (status != PLASMON_OK) {
            return status;
        }
    }
    status = pl_map_set(&cpu->chunk_of_address, address, chunk);
    if (status != PLASMON_OK) {
        if (added) {
            chunk_remove_locked(cpu, chunk);
        }
        return status;
    }
    chunk->mapped_count++;
    return PLASMON_OK;
}

static void chunk_unmapped_locked(struct device_cpu *cpu, uint64_t address)
{
    struct device_cpu_chunk *chunk = pl_map_remove(&cpu->chunk_of_address, address);

    if (chunk == NULL) {
        return; /* a peer's */
    }
    assert(chunk->mapped_count > 0);
    chunk->mapped_count--;
    if (chunk->mapped_count == 0) {
        chunk_remove_locked(cpu, chunk);
    }
}

static plasmon_status_t chunk_map_locked(struct device_cpu *cpu, int fd, uint64_t bytes,
                                         bool owned, bool writable, uint64_t where)
{
    plasmon_status_t status = PLASMON_OK;
    struct stat stat;

    if (range_find_locked(cpu, where, bytes) == NULL) {
        return PLASMON_EINVAL;
    }
    if (fstat(fd, &stat) != 0) {
        return pl_status_from_errno(errno);
    }
    /* Touching memory behind the end of a file is SIGBUS; the size is sealed, so one look is enough. */
    if (stat.st_size < 0 || (uint64_t)stat.st_size < bytes) {
        return PLASMON_EINVAL;
    }
    if (owned) {
        status = chunk_mapped_locked(cpu, stat.st_ino, bytes, where);
        if (status != PLASMON_OK) {
            return status;
        }
    }
    if (mmap(host(where), bytes, writable ? PROT_READ | PROT_WRITE : PROT_READ,
             MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
        status = pl_status_from_errno(errno);
        if (owned) {
            chunk_unmapped_locked(cpu, where);
        }
    }
    return status;
}

plasmon_status_t device_cpu_chunk_map(struct device *device, int fd, uint64_t bytes,
                                      uint32_t owner_ordinal, bool writable,
                                      struct device_ptr where)
{
    struct device_cpu *cpu = device_cpu_of(device);
    bool owned             = owner_ordinal == device->info.ordinal;
    plasmon_status_t status;

    if (owner_ordinal >= DEVICE_CPU_MAX) {
        return PLASMON_EUNREACHABLE;
    }
    pl_mutex_lock(&cpu->lock);
    status = chunk_map_locked(cpu, fd, bytes, owned, writable, where.addr);
    pl_mutex_unlock(&cpu->lock);
    return status;
}

void device_cpu_chunk_unmap(struct device *device, struct device_ptr where, uint64_t bytes)
{
    struct device_cpu *cpu = device_cpu_of(device);

    pl_mutex_lock(&cpu->lock);
    PL_CHECK(range_find_locked(cpu, where.addr, bytes) != NULL);
    /* else stale bytes stay readable */
    PL_CHECK(reserve(host(where.addr), bytes) == host(where.addr));
    chunk_unmapped_locked(cpu, where.addr);
    pl_mutex_unlock(&cpu->lock);
}

void device_cpu_memory_finish(struct device_cpu *cpu)
{
    struct pl_list *pos;
    struct pl_list *next;
    size_t index = 0;
    uint64_t inode;
    void *chunk;

    pl_list_for_each_safe(pos, next, &cpu->ranges) {
        range_free(cpu, pl_container_of(pos, struct range, link));
    }
    while (pl_map_next(&cpu->chunk_of_inode, &index, &inode, &chunk)) {
        pl_free(chunk);
    }
    pl_map_finish(&cpu->chunk_of_inode);
    pl_map_finish(&cpu->chunk_of_address);
}
