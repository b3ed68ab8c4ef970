/*
 * CHUNKS LIE SIDE BY SIDE, in the address space of whoever maps them, and are never taken away:
 * those that results go to from the start of the arena upwards, those that clients may write from
 * its end downwards. So what is free in two neighbours is one hole, a block may span chunks, and
 * nobody who maps one ever loses it. (docs/lifetimes.md says why not the other way round.)
 *
 * CHUNK SIZES. Measured (limits.md): mapping on a peer costs 0.05 ms up to 64 MiB and 8.3 ms from 1
 * GiB on, whatever the size. So: 64 MiB until there are 2 GiB of them, so that small programs take
 * little and peers map at once; 1 GiB from then on, which keeps the number of descriptors low and
 * costs a peer 8 ms in the background; more if a block wants more. A device that is nearly full
 * gives smaller ones, down to what is missing.
 *
 * Order when growing: make, map, hand the descriptor to the store, and when it says that it keeps
 * it (CHUNKS_KEPT) list in the table and hand to the arena. So what the table lists the next worker
 * is given, wherever this one dies, and nothing is allocated in memory that would die with us: a
 * store that is dead reads nothing, and what waits for it in its socket is gone. One chunk at a
 * time is on its way; without a store it stays there, and goes with all that is handed back to the
 * next one. A store that does not read is sent it when it does.
 */
#include "worker/memory.h"

#include <pthread.h>
#include <poll.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/thread.h"

#define CHUNK_SMALL_BYTES (UINT64_C(64) << 20)
#define CHUNK_LARGE_BYTES (UINT64_C(1) << 30)
/* reserved in small ones before large ones come */
#define CHUNK_SMALL_TOTAL (UINT64_C(2) << 30)
/* A peer listed the chunk before we were told of it: its message is on the way. */
#define CHUNK_WAIT_NS (UINT64_C(2) * 1000 * 1000 * 1000)

enum chunk_state { CHUNK_UNMAPPED, CHUNK_MAPPING, CHUNK_MAPPED, CHUNK_REFUSED };

struct peer_chunk {
    uint64_t offset;
    uint64_t bytes;
    uint32_t ordinal;
    int fd;
    enum chunk_state state;
};

struct peer_arena {
    struct device_ptr base;
    bool reserved;
    struct pl_vec chunks; /* struct peer_chunk */
};

struct worker_memory {
    struct device *device;
    struct worker_shared *shared;
    struct worker_core *core;
    struct device_ptr base;
    uint64_t arena_bytes;
    uint64_t low_end;    /* chunks of pool 0 are below it */
    uint64_t high_start; /* chunks of pool 1 begin here */
    uint64_t bytes_max;  /* 0: no limit but the device's */
    uint64_t bytes_used; /* in our chunks, those of earlier incarnations included */
    bool growing; /* a chunk is mapped, and the store has not said that it keeps it */
    struct store_control grown; /* that chunk */
    int grown_fd; /* its descriptor, until it is sent: a store that does not read; -1: it was */
    bool peer_capable;

    struct pl_mutex lock; /* rank PL_RANK_STORE: taken under the worker's lock */
    struct pl_cond changed;
    pthread_t mapper;

    /* Guarded by `lock`. */
    bool stop;
    struct peer_arena peers[STORE_HOST_DEVICE_MAX];
};

/* ------------------------------------------------------------------------ peers' chunks */

/* The chunk in which this offset lies. */
static struct peer_chunk *chunk_find_locked(struct worker_memory *memory,
                                            uint32_t host_device, uint64_t offset)
{
    struct pl_vec *chunks = &memory->peers[host_device].chunks;

    for (size_t i = 0; i < chunks->count; i++) {
        struct peer_chunk *chunk = pl_vec_at(chunks, i);

        if (offset >= chunk->offset && offset - chunk->offset < chunk->bytes) {
            return chunk;
        }
    }
    return NULL;
}

static struct peer_chunk *chunk_next_locked(struct worker_memory *memory,
                                            uint32_t *out_host_device)
{
    for (uint32_t i = 0; i < memory->shared->host_device_count; i++) {
        struct pl_vec *chunks = &memory->peers[i].chunks;

        for (size_t k = 0; k < chunks->count; k++) {
            struct peer_chunk *chunk = pl_vec_at(chunks, k);

            if (chunk->state == CHUNK_UNMAPPED) {
                *out_host_device = i;
                return chunk;
            }
        }
    }
    return NULL;
}

/* Drops the lock while it maps; the chunk may have moved when this returns. */
static void chunk_map_locked(struct worker_memory *memory, uint32_t host_device,
                             struct peer_chunk *chunk)
{
    struct peer_arena *arena = &memory->peers[host_device];
    struct peer_chunk copy   = *chunk;
    plasmon_status_t status  = PLASMON_OK;

    chunk->state = CHUNK_MAPPING;
    if (!arena->reserved) {
        status = device_range_reserve(
            memory->device, memory->shared->tables[host_device]->arena_bytes, &arena->base);
        arena->reserved = status == PLASMON_OK;
    }
    if (status == PLASMON_OK) {
        struct device_ptr where = device_ptr_add(arena->base, copy.offset);

        pl_mutex_unlock(&memory->lock);
        status = device_chunk_map(memory->device, copy.fd, copy.bytes, copy.ordinal, false,
                                  where);
        pl_mutex_lock(&memory->lock);
    }
    if (status != PLASMON_OK) {
        pl_warn("worker", "chunk at %llu of device %u of this host cannot be mapped: %s",
                (unsigned long long)copy.offset, host_device, pl_status_text(status));
    }

    chunk = chunk_find_locked(memory, host_device, copy.offset);
    /* chunks are never taken away */
    PL_CHECK(chunk != NULL && chunk->state == CHUNK_MAPPING);
    chunk->state = status == PLASMON_OK ? CHUNK_MAPPED : CHUNK_REFUSED;
    pl_fd_close(&chunk->fd);
    pl_cond_broadcast(&memory->changed);
}

static void *mapper_run(void *user)
{
    struct worker_memory *memory = user;

    pl_mutex_lock(&memory->lock);
    while (!memory->stop) {
        uint32_t host_device;
        struct peer_chunk *chunk = chunk_next_locked(memory, &host_device);

        if (chunk != NULL) {
            chunk_map_locked(memory, host_device, chunk);
        } else {
            pl_cond_wait(&memory->changed, &memory->lock);
        }
    }
    pl_mutex_unlock(&memory->lock);
    return NULL;
}

/* Takes fd. */
static plasmon_status_t peer_chunk_add(struct worker_memory *memory,
                                       const struct store_control *message, int fd)
{
    const struct device_info *info = device_get_info(memory->device);
    struct peer_chunk *chunk;

    if (message->kind != (uint32_t)info->kind ||
        (message->ordinal != info->ordinal &&
         !device_can_peer(memory->device, message->ordinal))) {
        pl_fd_close(&fd); /* its bytes come by the host route */
        return PLASMON_OK;
    }

    pl_mutex_lock(&memory->lock);
    if (chunk_find_locked(memory, message->host_device, message->offset) != NULL) {
        pl_mutex_unlock(&memory->lock);
        pl_fd_close(&fd); /* told twice */
        return PLASMON_OK;
    }
    chunk = pl_vec_push(&memory->peers[message->host_device].chunks);
    if (chunk != NULL) {
        *chunk = (struct peer_chunk){.offset  = message->offset,
                                     .bytes   = message->bytes,
                                     .ordinal = message->ordinal,
                                     .fd      = fd,
                                     .state   = CHUNK_UNMAPPED};
        pl_cond_broadcast(&memory->changed);
    }
    pl_mutex_unlock(&memory->lock);
    if (chunk == NULL) {
        pl_fd_close(&fd);
        return PLASMON_ENOMEM;
    }
    return PLASMON_OK;
}

/* Waits for the message that announces a chunk, which a peer has already allocated from. */
static plasmon_status_t chunk_await(struct worker_memory *memory, uint64_t deadline_ns)
{
    struct pollfd poll_fd = {.fd = memory->shared->control_fd, .events = POLLIN};
    struct pl_err err;
    plasmon_status_t status;

    if (pl_now_ns() >= deadline_ns && memory->shared->control_fd >= 0) {
        return PLASMON_EUNREACHABLE; /* without a store it comes when there is one */
    }
    (void)poll(&poll_fd, 1, 10); /* whatever it says, the next line looks */
    status = worker_shared_receive(memory->shared, &err);
    if (status == PLASMON_EAGAIN) {
        return PLASMON_OK;
    }
    return status == PLASMON_OK ? worker_memory_take_chunks(memory, &err) : status;
}

/* The chunk around `at`, mapped. It may be a moment until we are told of it. */
static plasmon_status_t chunk_ready_locked(struct worker_memory *memory,
                                           uint32_t host_device, uint64_t at,
                                           uint64_t deadline_ns, uint64_t *out_end)
{
    plasmon_status_t status = PLASMON_OK;
    struct peer_chunk *chunk;

    while ((chunk = chunk_find_locked(memory, host_device, at)) == NULL &&
           status == PLASMON_OK) {
        pl_mutex_unlock(&memory->lock);
        status = chunk_await(memory, deadline_ns);
        pl_mutex_lock(&memory->lock);
    }
    if (chunk != NULL && chunk->state == CHUNK_UNMAPPED) {
        chunk_map_locked(memory, host_device, chunk);
    }
    while ((chunk = chunk_find_locked(memory, host_device, at)) != NULL &&
           chunk->state == CHUNK_MAPPING) {
        pl_cond_wait(&memory->changed, &memory->lock);
    }
    if (chunk == NULL || chunk->state != CHUNK_MAPPED) {
        return PLASMON_EUNREACHABLE;
    }
    *out_end = chunk->offset + chunk->bytes;
    return PLASMON_OK;
}

plasmon_status_t worker_memory_peer(struct worker_memory *memory, uint32_t host_device,
                                    uint64_t offset, uint64_t bytes,
                                    struct device_ptr *out_ptr)
{
    uint64_t deadline_ns    = pl_now_ns() + CHUNK_WAIT_NS;
    plasmon_status_t status = PLASMON_OK;
    uint64_t at             = offset;

    pl_mutex_lock(&memory->lock);
    do {
        status = chunk_ready_locked(memory, host_device, at, deadline_ns, &at);
    } while (status == PLASMON_OK && at < offset + bytes);
    if (status == PLASMON_OK) {
        *out_ptr = device_ptr_add(memory->peers[host_device].base, offset);
    }
    pl_mutex_unlock(&memory->lock);
    return status;
}

/* ----------------------------------------------------------------------- our own chunks */

struct device_ptr worker_memory_own(const struct worker_memory *memory, uint64_t offset)
{
    return device_ptr_add(memory->base, offset);
}

static plasmon_status_t chunk_list(struct worker_memory *memory,
                                   const struct store_control *message)
{
    struct store_table *table = memory->shared->tables[memory->shared->host_device];
    struct store_chunk chunk  = {.offset          = message->offset,
                                 .bytes           = message->bytes,
                                 .client_writable = message->client_writable,
                                 .id              = message->chunk_id};
    uint32_t count            = table->chunk_count;

    if (message->chunk_id < count) {
        return PLASMON_OK; /* listed before the worker died */
    }
    return message->chunk_id == count ? store_table_add_chunk(table, &chunk)
                                      : PLASMON_EMALFORMED;
}

static plasmon_status_t chunk_map_own(struct worker_memory *memory,
                                      const struct store_control *message, int fd)
{
    const struct device_info *info = device_get_info(memory->device);

    if (message->offset > memory->arena_bytes ||
        message->bytes > memory->arena_bytes - message->offset) {
        return PLASMON_EMALFORMED;
    }
    return device_chunk_map(memory->device, fd, message->bytes, info->ordinal, true,
                            device_ptr_add(memory->base, message->offset));
}

/* It is mapped, and the store keeps it. */
static plasmon_status_t chunk_use(struct worker_memory *memory,
                                  const struct store_control *message)
{
    plasmon_status_t status = chunk_list(memory, message);

    if (status == PLASMON_OK) {
        status = worker_core_chunk_added(memory->core, message->client_writable,
                                         message->offset, message->bytes);
    }
    memory->bytes_used += message->bytes;
    if (message->client_writable != 0) {
        memory->high_start = pl_min_u64(memory->high_start, message->offset);
    } else {
        memory->low_end = pl_max_u64(memory->low_end, message->offset + message->bytes);
    }
    return status;
}

/* OK: it was sent, or will be when the store reads again. */
static plasmon_status_t grown_send(struct worker_memory *memory)
{
    plasmon_status_t status =
        worker_shared_send(memory->shared, &memory->grown, memory->grown_fd);

    if (status == PLASMON_EAGAIN) {
        return PLASMON_OK;
    }
    pl_fd_close(&memory->grown_fd); /* the mapping keeps the memory */
    return status;
}

/* Without waiting, which the first try has done. */
static plasmon_status_t grown_send_again(struct worker_memory *memory)
{
    struct pollfd poll_fd = {.fd = memory->shared->control_fd, .events = POLLOUT};

    if (memory->shared->control_fd >= 0 && poll(&poll_fd, 1, 0) <= 0) {
        return PLASMON_OK;
    }
    return grown_send(memory);
}

bool worker_memory_unsent(const struct worker_memory *memory)
{
    return memory->grown_fd >= 0;
}

/* The store keeps the chunk that is on its way, if there is one. */
static plasmon_status_t grown_take(struct worker_memory *memory, struct pl_err *err)
{
    plasmon_status_t status;

    if (worker_memory_unsent(memory)) {
        status = grown_send_again(memory);
        return status == PLASMON_OK
                   ? status
                   : pl_err_set(err, status, "chunk %u cannot be sent to the store: %s",
                                memory->grown.chunk_id, pl_status_text(status));
    }
    if (!memory->growing || memory->shared->chunks_kept <= memory->grown.chunk_id) {
        return PLASMON_OK;
    }
    memory->growing = false;
    status          = chunk_use(memory, &memory->grown);
    return status == PLASMON_OK
               ? status
               : pl_err_set(err, status, "chunk %u, which the store keeps: %s",
                            memory->grown.chunk_id, pl_status_text(status));
}

plasmon_status_t worker_memory_take_chunks(struct worker_memory *memory, struct pl_err *err)
{
    struct pl_vec *chunks   = &memory->shared->chunks;
    plasmon_status_t status = PLASMON_OK;

    for (size_t i = 0; i < chunks->count; i++) {
        struct worker_shared_chunk *chunk = pl_vec_at(chunks, i);
        bool own = chunk->message.host_device == memory->shared->host_device;

        if (status == PLASMON_OK && own) {
            status = chunk_map_own(memory, &chunk->message, chunk->fd);
            if (status == PLASMON_OK) {
                status = chunk_use(memory, &chunk->message);
            }
        } else if (status == PLASMON_OK &&
                   chunk->message.host_device < memory->shared->host_device_count) {
            status    = peer_chunk_add(memory, &chunk->message, chunk->fd);
            chunk->fd = -1;
        }
        pl_fd_close(&chunk->fd);
        if (status != PLASMON_OK) {
            (void)pl_err_set(err, status, "chunk %u of device %u of this host: %s",
                             chunk->message.chunk_id, chunk->message.host_device,
                             pl_status_text(status));
        }
    }
    pl_vec_clear(chunks);
    return status == PLASMON_OK ? grown_take(memory, err) : status;
}

/* Of the arena, and of what the device may use. */
static uint64_t bytes_left(const struct worker_memory *memory)
{
    uint64_t arena = memory->high_start - pl_min_u64(memory->low_end, memory->high_start);
    uint64_t limit = memory->bytes_max - pl_min_u64(memory->bytes_used, memory->bytes_max);

    return memory->bytes_max == 0 ? arena : pl_min_u64(arena, limit);
}

static plasmon_status_t grow_by(struct worker_memory *memory, uint32_t pool, uint64_t bytes)
{
    struct store_table *table    = memory->shared->tables[memory->shared->host_device];
    struct store_control message = {.type            = STORE_CONTROL_CHUNK_ADD,
                                    .chunk_id        = table->chunk_count,
                                    .client_writable = pool,
                                    .bytes           = bytes};
    plasmon_status_t status;

    if (bytes > bytes_left(memory) || table->chunk_count >= STORE_CHUNK_MAX) {
        return PLASMON_EDEVMEM;
    }
    message.offset = pool == 1 ? memory->high_start - bytes : memory->low_end;
    status         = device_chunk_create(memory->device, bytes, &memory->grown_fd);
    if (status != PLASMON_OK) {
        memory->grown_fd = -1;
        return status;
    }
    status = chunk_map_own(memory, &message, memory->grown_fd);
    if (status != PLASMON_OK) {
        pl_fd_close(&memory->grown_fd);
        return status;
    }
    memory->grown = message;
    status        = grown_send(memory);
    if (status == PLASMON_OK) {
        memory->growing = true;
    } else {
        device_chunk_unmap(memory->device, device_ptr_add(memory->base, message.offset),
                           bytes);
    }
    return status;
}

plasmon_status_t worker_memory_grow(struct worker_memory *memory, uint32_t pool,
                                    uint64_t bytes)
{
    uint64_t granularity = device_get_info(memory->device)->chunk_granularity;
    uint64_t needed      = pl_round_up(bytes, granularity);
    uint64_t left        = bytes_left(memory) / granularity * granularity;
    uint64_t usual =
        memory->bytes_used < CHUNK_SMALL_TOTAL ? CHUNK_SMALL_BYTES : CHUNK_LARGE_BYTES;
    uint64_t size;
    plasmon_status_t status;

    if (memory->growing) {
        return PLASMON_EAGAIN;
    }
    /*
     * The first chunk of this pool is asked for with room to align, because nobody knows where it
     * begins; a block as large as the device may lie well in what there is.
     */
    if (pool == 1 && left > 0 && needed > left &&
        needed - left < STORE_ARENA_ALIGNMENT + granularity) {
        needed = left;
    }
    size = pl_max_u64(usual, needed);
    while ((status = grow_by(memory, pool, size)) == PLASMON_EDEVMEM && size > needed) {
        size = pl_max_u64(pl_round_up(size / 2, granularity), needed);
    }
    if (status == PLASMON_OK) {
        pl_debug("worker", "arena grows by %llu bytes in pool %u", (unsigned long long)size,
                 pool);
    }
    return status == PLASMON_OK ? PLASMON_EAGAIN : status;
}

/* --------------------------------------------------------------------------------- life */

static bool peers_reachable(struct device *device, const struct worker_shared *shared)
{
    const struct device_info *info = device_get_info(device);

    for (uint32_t i = 0; i < shared->host_device_count; i++) {
        const struct store_table *table = shared->tables[i];

        if (table->kind == (uint32_t)info->kind && table->ordinal != info->ordinal &&
            !device_can_peer(device, table->ordinal)) {
            return false;
        }
    }
    return true;
}

plasmon_status_t worker_memory_create(struct device *device, struct worker_shared *shared,
                                      uint64_t bytes_max, struct worker_memory **out_memory,
                                      struct pl_err *err)
{
    struct worker_memory *memory = PL_NEW(struct worker_memory);
    plasmon_status_t status;

    if (memory == NULL) {
        return pl_err_set(err, PLASMON_ENOMEM, "no memory");
    }
    memory->device      = device;
    memory->shared      = shared;
    memory->bytes_max   = bytes_max;
    memory->grown_fd    = -1;
    memory->arena_bytes = shared->tables[shared->host_device]->arena_bytes;
    memory->high_start  = memory->arena_bytes / device_get_info(device)->chunk_granularity *
                         device_get_info(device)->chunk_granularity;
    memory->peer_capable = peers_reachable(device, shared);
    for (uint32_t i = 0; i < STORE_HOST_DEVICE_MAX; i++) {
        memory->peers[i].chunks = PL_VEC_INIT(struct peer_chunk);
    }

    status = device_range_reserve(device, memory->arena_bytes, &memory->base);
    if (status != PLASMON_OK) {
        (void)pl_err_set(err, status, "%llu bytes of address space: %s",
                         (unsigned long long)memory->arena_bytes, pl_status_text(status));
        goto err_free;
    }
    status = pl_mutex_init(&memory->lock, PL_RANK_STORE);
    if (status != PLASMON_OK) {
        goto err_release_range;
    }
    status = pl_cond_init(&memory->changed);
    if (status != PLASMON_OK) {
        goto err_finish_lock;
    }
    if (pthread_create(&memory->mapper, NULL, mapper_run, memory) != 0) {
        status =
            pl_err_set(err, PLASMON_EAGAIN, "to map peers' memory: " PL_THREAD_NONE_LEFT);
        goto err_finish_cond;
    }
    *out_memory = memory;
    return PLASMON_OK;

err_finish_cond:
    pl_cond_finish(&memory->changed);
err_finish_lock:
    pl_mutex_finish(&memory->lock);
err_release_range:
    device_range_release(device, memory->base, memory->arena_bytes);
err_free:
    pl_free(memory);
    return status;
}

static void peer_finish(struct worker_memory *memory, uint32_t host_device)
{
    struct peer_arena *arena = &memory->peers[host_device];

    for (size_t i = 0; i < arena->chunks.count; i++) {
        struct peer_chunk *chunk = pl_vec_at(&arena->chunks, i);

        if (chunk->state == CHUNK_MAPPED) {
            device_chunk_unmap(memory->device, device_ptr_add(arena->base, chunk->offset),
                               chunk->bytes);
        }
        pl_fd_close(&chunk->fd);
    }
    pl_vec_finish(&arena->chunks);
    if (arena->reserved) {
        device_range_release(memory->device, arena->base,
                             memory->shared->tables[host_device]->arena_bytes);
    }
}

void worker_memory_destroy(struct worker_memory *memory)
{
    const struct store_table *table;

    if (memory == NULL) {
        return;
    }
    pl_mutex_lock(&memory->lock);
    memory->stop = true;
    pl_cond_broadcast(&memory->changed);
    pl_mutex_unlock(&memory->lock);
    (void)pthread_join(memory->mapper, NULL);

    for (uint32_t i = 0; i < memory->shared->host_device_count; i++) {
        peer_finish(memory, i);
    }
    table = memory->shared->tables[memory->shared->host_device];
    for (uint32_t i = 0; i < table->chunk_count; i++) {
        device_chunk_unmap(memory->device,
                           device_ptr_add(memory->base, table->chunks[i].offset),
                           table->chunks[i].bytes);
    }
    if (memory->growing) {
        device_chunk_unmap(memory->device,
                           device_ptr_add(memory->base, memory->grown.offset),
                           memory->grown.bytes);
    }
    pl_fd_close(&memory->grown_fd);
    device_range_release(memory->device, memory->base, memory->arena_bytes);
    pl_cond_finish(&memory->changed);
    pl_mutex_finish(&memory->lock);
    pl_free(memory);
}

void worker_memory_set_core(struct worker_memory *memory, struct worker_core *core)
{
    memory->core = core;
}

bool worker_memory_peer_capable(const struct worker_memory *memory)
{
    return memory->peer_capable;
}
