#include "client/chunks.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

#include "base/alloc.h"
#include "base/fault.h"
#include "base/fd.h"

struct chunks {
    const struct store_table *table; /* written by another process */
    uint8_t *base;
    uint64_t bytes;
    /* As it was when it was mapped, whatever the table says later; bytes 0: it is not mapped. */
    struct store_chunk mapped[STORE_CHUNK_MAX];
};

plasmon_status_t chunks_create(const struct store_table *table, struct chunks **out_chunks,
                               struct pl_err *err)
{
    struct chunks *chunks = PL_NEW(struct chunks);
    void *base;

    if (chunks == NULL) {
        return pl_err_set(err, PLASMON_ENOMEM, "out of host memory");
    }
    chunks->table = table;
    chunks->bytes = table->arena_bytes;
    base = mmap(NULL, chunks->bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                -1, 0);
    if (base == MAP_FAILED) {
        (void)pl_err_set(err, PLASMON_EUNREACHABLE,
                         "no %llu bytes of address space for a device's memory: %s",
                         (unsigned long long)chunks->bytes, strerror(errno));
        pl_free(chunks);
        return PLASMON_EUNREACHABLE;
    }
    chunks->base = base;
    *out_chunks  = chunks;
    return PLASMON_OK;
}

void chunks_destroy(struct chunks *chunks)
{
    if (chunks != NULL) {
        pl_fd_unmap(chunks->base, chunks->bytes);
        pl_free(chunks);
    }
}

static bool chunk_mapped(const struct chunks *chunks, uint32_t id)
{
    return chunks->mapped[id].bytes != 0;
}

/* A copy of what is mapped, or what the table lists, under this number. */
static bool chunk_listed(const struct chunks *chunks, uint32_t id, struct store_chunk *out)
{
    /* acquire: pairs with the release in store_table_add_chunk(); the chunks up to count are right */
    uint32_t count =
        atomic_load_explicit(&chunks->table->chunk_count, memory_order_acquire);

    if (id >= pl_min_u64(count, STORE_CHUNK_MAX)) {
        return false;
    }
    *out = chunk_mapped(chunks, id) ? chunks->mapped[id] : chunks->table->chunks[id];
    return out->offset <= chunks->bytes && out->bytes <= chunks->bytes - out->offset;
}

/* Mapped over another one it would take away what somebody reads. */
static bool chunk_meets(const struct chunks *chunks, const struct store_chunk *chunk)
{
    for (uint32_t id = 0; id < STORE_CHUNK_MAX; id++) {
        const struct store_chunk *other = &chunks->mapped[id];

        if (other->offset < chunk->offset + chunk->bytes &&
            chunk->offset < other->offset + other->bytes) {
            return true;
        }
    }
    return false;
}

plasmon_status_t chunks_map(struct chunks *chunks, const struct store_control *message,
                            int fd, struct pl_err *err)
{
    bool writable = message->client_writable != 0;
    struct store_chunk listed;
    void *where;

    if (!chunk_listed(chunks, message->chunk_id, &listed) || listed.bytes == 0 ||
        listed.offset != message->offset || listed.bytes != message->bytes ||
        (listed.client_writable != 0) != writable) {
        return pl_err_set(err, PLASMON_EMALFORMED, "the store's chunk is not the table's");
    }
    if (chunk_mapped(chunks, message->chunk_id)) {
        return PLASMON_OK; /* told twice */
    }
    if (chunk_meets(chunks, &listed)) {
        return pl_err_set(err, PLASMON_EMALFORMED,
                          "a chunk of the table lies over another one");
    }
    where = chunks->base + listed.offset;
    if (pl_fault_point("fd.map") ||
        mmap(where, listed.bytes, writable ? PROT_READ | PROT_WRITE : PROT_READ,
             MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
        return pl_err_set(err, PLASMON_ENOMEM, "cannot map a chunk of %llu bytes: %s",
                          (unsigned long long)listed.bytes, strerror(errno));
    }
    chunks->mapped[message->chunk_id] = listed;
    return PLASMON_OK;
}

/* Number of the chunk in which this offset lies. */
static bool chunk_at(const struct chunks *chunks, uint64_t offset, uint32_t *out_id,
                     struct store_chunk *out)
{
    for (uint32_t id = 0; chunk_listed(chunks, id, out); id++) {
        if (offset >= out->offset && offset - out->offset < out->bytes) {
            *out_id = id;
            return true;
        }
    }
    return false;
}

plasmon_status_t chunks_locate(const struct chunks *chunks, uint64_t offset, uint64_t bytes,
                               bool must_write, void **out_data, uint32_t *out_id,
                               struct pl_err *err)
{
    uint64_t at = offset;
    struct store_chunk chunk;

    if (offset > chunks->bytes || bytes > chunks->bytes - offset) {
        return pl_err_set(err, PLASMON_EUNREACHABLE,
                          "the buffer lies outside of its device's memory");
    }
    do {
        if (!chunk_at(chunks, at, out_id, &chunk)) {
            return pl_err_set(err, PLASMON_EUNREACHABLE,
                              "the buffer lies in no chunk of its device");
        }
        if (must_write && chunk.client_writable == 0) {
            return pl_err_set(err, PLASMON_EUNREACHABLE,
                              "the buffer lies in a chunk that clients may not write");
        }
        if (!chunk_mapped(chunks, *out_id)) {
            return PLASMON_EAGAIN;
        }
        at = chunk.offset + chunk.bytes;
    } while (at < offset + bytes);
    *out_data = chunks->base + offset;
    return PLASMON_OK;
}
