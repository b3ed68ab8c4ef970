/*
 * The memory of a host. Nothing here is touched before it is used: tables and slabs are sparse
 * memfds, so an idle device costs the pages that hold its headers.
 */
#include "store/host.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>

#include "base/fd.h"
#include "device/device.h"
#include "store/host_buffers.h"
#include "store/lanes.h"

#define PAGE_BYTES 4096u

uint64_t store_host_timeline_bytes(void)
{
    return pl_round_up(sizeof(struct store_timeline), PAGE_BYTES);
}

uint64_t store_host_table_bytes(void)
{
    return pl_round_up(sizeof(struct store_table), PAGE_BYTES);
}

uint64_t store_host_pins_bytes(void)
{
    return pl_round_up(sizeof(struct store_pins), PAGE_BYTES);
}

void store_host_init(struct store_host *host)
{
    memset(host, 0, sizeof(*host));
    host->buffers     = PL_VEC_INIT(struct store_host_buffer *);
    host->spill_parts = PL_VEC_INIT(struct store_spill_part);
    for (uint32_t i = 0; i < STORE_READER_MAX; i++) {
        host->readers[i] = (struct store_host_reader){.fd = -1, .fd_ro = -1};
    }
}

/*
 * A memfd, a read-only descriptor of it (if wanted), and its mapping (if wanted). Outputs are set
 * as far as it came.
 */
static plasmon_status_t memory_create(const char *name, uint64_t bytes, int *out_fd,
                                      int *out_fd_ro, void **out_ptr)
{
    plasmon_status_t status = pl_memfd_create(name, bytes, out_fd);

    if (status == PLASMON_OK && out_fd_ro != NULL) {
        status = pl_fd_reopen_readonly(*out_fd, out_fd_ro);
    }
    if (status == PLASMON_OK && out_ptr != NULL) {
        status = pl_fd_map(*out_fd, bytes, 1, out_ptr);
    }
    return status;
}

static plasmon_status_t reader_open(struct store_host *host, uint32_t number, uint64_t pid)
{
    struct store_host_reader *reader = &host->readers[number];
    void *page                       = NULL;
    plasmon_status_t status = memory_create("plasmon-pins", store_host_pins_bytes(),
                                            &reader->fd, &reader->fd_ro, &page);

    if (status != PLASMON_OK) {
        pl_fd_close(&reader->fd);
        pl_fd_close(&reader->fd_ro);
        return status;
    }
    host->pages[number] = page;
    store_pins_init(page, pid);
    return PLASMON_OK;
}

static void reader_close(struct store_host *host, uint32_t number)
{
    struct store_host_reader *reader = &host->readers[number];

    pl_fd_unmap(host->pages[number], store_host_pins_bytes());
    host->pages[number] = NULL;
    pl_fd_close(&reader->fd);
    pl_fd_close(&reader->fd_ro);
}

static void chunk_close(struct store_host_chunk *chunk)
{
    pl_fd_close(&chunk->fd);
    pl_fd_close(&chunk->fd_ro);
}

static void device_close_all(struct store_host_device *device)
{
    for (size_t i = 0; i < device->chunks.count; i++) {
        chunk_close(pl_vec_at(&device->chunks, i));
    }
    pl_vec_finish(&device->chunks);
    store_lanes_finish(device);
    pl_fd_unmap(device->timeline, store_host_timeline_bytes());
    pl_fd_unmap(device->table, store_host_table_bytes());
    device->timeline = NULL;
    device->table    = NULL;
    pl_fd_close(&device->timeline_fd);
    pl_fd_close(&device->timeline_fd_ro);
    pl_fd_close(&device->table_fd);
    pl_fd_close(&device->table_fd_ro);
    pl_fd_close(&device->stage_fd);
    pl_fd_close(&device->doorbell_fd);
}

void store_host_finish(struct store_host *host)
{
    for (uint32_t i = 0; i < host->device_count; i++) {
        device_close_all(&host->devices[i]);
    }
    host->device_count = 0;
    host->memory       = 0;
    store_host_buffers_finish(host);
    store_host_drop_spill_parts(host);
    pl_vec_finish(&host->spill_parts);
    for (uint32_t i = 0; i < STORE_READER_MAX; i++) {
        reader_close(host, i);
    }
}

plasmon_status_t store_host_add_spill_part(struct store_host *host, uint32_t which, int fd)
{
    struct store_spill_part *part = pl_vec_push(&host->spill_parts);

    if (part == NULL) {
        pl_fd_close(&fd);
        return PLASMON_ENOMEM;
    }
    *part = (struct store_spill_part){.which = which, .fd = fd};
    return PLASMON_OK;
}

void store_host_drop_spill_parts(struct store_host *host)
{
    for (size_t i = 0; i < host->spill_parts.count; i++) {
        pl_fd_close(&((struct store_spill_part *)pl_vec_at(&host->spill_parts, i))->fd);
    }
    pl_vec_clear(&host->spill_parts);
}

static void device_reset(struct store_host_device *device)
{
    *device        = (struct store_host_device){.timeline_fd    = -1,
                                                .timeline_fd_ro = -1,
                                                .table_fd       = -1,
                                                .table_fd_ro    = -1,
                                                .stage_fd       = -1,
                                                .doorbell_fd    = -1};
    device->chunks = PL_VEC_INIT(struct store_host_chunk);
}

static plasmon_status_t memory_draw(uint64_t *io_memory)
{
    while (*io_memory == 0) {
        if (getrandom(io_memory, sizeof(*io_memory), 0) != (ssize_t)sizeof(*io_memory)) {
            return pl_status_from_errno(errno);
        }
    }
    return PLASMON_OK;
}

static plasmon_status_t device_open_all(struct store_host_device *device, uint32_t number,
                                        uint64_t memory)
{
    plasmon_status_t status;
    void *timeline = NULL;
    void *table    = NULL;

    status           = memory_create("plasmon-timeline", store_host_timeline_bytes(),
                                     &device->timeline_fd, &device->timeline_fd_ro, &timeline);
    device->timeline = timeline;
    if (status == PLASMON_OK) {
        status = memory_create("plasmon-table", store_host_table_bytes(), &device->table_fd,
                               &device->table_fd_ro, &table);
        device->table = table;
    }
    if (status == PLASMON_OK) {
        status = memory_create("plasmon-stage", STORE_STAGE_BYTES, &device->stage_fd, NULL,
                               NULL);
    }
    if (status == PLASMON_OK) {
        device->doorbell_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        status = device->doorbell_fd < 0 ? pl_status_from_errno(errno) : PLASMON_OK;
    }
    if (status != PLASMON_OK) {
        return status;
    }

    store_timeline_init(device->timeline, number);
    device->timeline->memory = memory;
    store_table_init(device->table, number, device->kind, device->ordinal,
                     device->arena_bytes);
    return PLASMON_OK;
}

plasmon_status_t store_host_add_device(struct store_host *host, uint32_t kind,
                                       uint32_t ordinal, uint64_t memory_bytes,
                                       uint64_t arena_bytes, struct pl_err *err)
{
    uint32_t number                  = host->device_count;
    struct store_host_device *device = &host->devices[number];
    plasmon_status_t status;

    if (number >= STORE_HOST_DEVICE_MAX) {
        return pl_err_set(err, PLASMON_ELIMIT, "more than %u devices on one host",
                          STORE_HOST_DEVICE_MAX);
    }
    device_reset(device);
    device->kind         = kind;
    device->ordinal      = ordinal;
    device->memory_bytes = memory_bytes;
    device->arena_bytes  = arena_bytes;

    status = memory_draw(&host->memory);
    if (status == PLASMON_OK) {
        status = device_open_all(device, number, host->memory);
    }
    if (status == PLASMON_OK) {
        status = reader_open(host, number, 0);
    }
    if (status != PLASMON_OK) {
        device_close_all(device);
        return pl_err_set(err, status, "shared memory for device %u: %s", number,
                          pl_status_text(status));
    }
    host->device_count = number + 1;
    return PLASMON_OK;
}

/* -------------------------------------------------------------- what another store left */

/* Takes fd. *out_fd is writable, *out_fd_ro not. */
static plasmon_status_t memory_keep(int fd, uint64_t bytes, int *out_fd, int *out_fd_ro,
                                    void **out_ptr)
{
    plasmon_status_t status = PLASMON_EMALFORMED;

    if (pl_fd_holds(fd, bytes)) {
        status = pl_fd_reopen_writable(fd, out_fd);
    }
    pl_fd_close(&fd);
    if (status == PLASMON_OK && out_fd_ro != NULL) {
        status = pl_fd_reopen_readonly(*out_fd, out_fd_ro);
    }
    if (status == PLASMON_OK && out_ptr != NULL) {
        status = pl_fd_map(*out_fd, bytes, 1, out_ptr);
    }
    return status;
}

plasmon_status_t store_host_keep_reader(struct store_host *host, uint32_t number, int fd)
{
    struct store_host_reader *reader = &host->readers[number];
    plasmon_status_t status;
    void *page = NULL;

    PL_CHECK(number < STORE_READER_MAX);
    if (host->pages[number] != NULL) {
        pl_fd_close(&fd);
        return PLASMON_EEXIST;
    }
    status = memory_keep(fd, store_host_pins_bytes(), &reader->fd, &reader->fd_ro, &page);
    host->pages[number] = page;
    if (status == PLASMON_OK && host->pages[number]->magic != STORE_PINS_MAGIC) {
        status = PLASMON_EVERSION;
    }
    if (status != PLASMON_OK) {
        reader_close(host, number);
    }
    return status;
}

/* memory: of the devices before it; 0: there are none. */
static plasmon_status_t device_keep_all(struct store_host_device *device, uint32_t number,
                                        uint64_t memory, struct store_host_kept *kept)
{
    plasmon_status_t status;
    void *timeline = NULL, *table = NULL;

    status = memory_keep(kept->timeline, store_host_timeline_bytes(), &device->timeline_fd,
                         &device->timeline_fd_ro, &timeline);
    kept->timeline   = -1;
    device->timeline = timeline;
    if (status == PLASMON_OK) {
        status      = memory_keep(kept->table, store_host_table_bytes(), &device->table_fd,
                                  &device->table_fd_ro, &table);
        kept->table = -1;
        device->table = table;
    }
    if (status == PLASMON_OK) {
        status = memory_keep(kept->stage, STORE_STAGE_BYTES, &device->stage_fd, NULL, NULL);
        kept->stage = -1;
    }
    if (status != PLASMON_OK) {
        return status;
    }
    device->doorbell_fd = kept->doorbell;
    kept->doorbell      = -1;
    if (device->timeline->magic != STORE_TIMELINE_MAGIC ||
        device->table->magic != STORE_TABLE_MAGIC) {
        return PLASMON_EVERSION;
    }
    if (device->doorbell_fd < 0 || device->table->host_device != number ||
        device->timeline->host_device != number || device->timeline->memory == 0 ||
        (memory != 0 && device->timeline->memory != memory)) {
        return PLASMON_EMALFORMED;
    }
    device->kind        = device->table->kind;
    device->ordinal     = device->table->ordinal;
    device->arena_bytes = device->table->arena_bytes;
    return PLASMON_OK;
}

plasmon_status_t store_host_keep_device(struct store_host *host,
                                        struct store_host_kept *kept, uint64_t memory_bytes,
                                        struct pl_err *err)
{
    uint32_t number                  = host->device_count;
    struct store_host_device *device = &host->devices[number];
    plasmon_status_t status;

    PL_CHECK(number < STORE_HOST_DEVICE_MAX);
    device_reset(device);
    device->memory_bytes = memory_bytes;
    status               = device_keep_all(device, number, host->memory, kept);
    if (status == PLASMON_OK) {
        host->memory       = device->timeline->memory;
        host->reader_epoch = pl_max_u64(host->reader_epoch, device->timeline->reader_epoch);
        status             = store_host_keep_reader(host, number, kept->pins);
        kept->pins         = -1;
    }
    if (status != PLASMON_OK) {
        device_close_all(device);
        pl_fd_close(&kept->timeline);
        pl_fd_close(&kept->table);
        pl_fd_close(&kept->stage);
        pl_fd_close(&kept->doorbell);
        pl_fd_close(&kept->pins);
        return pl_err_set(err, status, "memory of device %u as the workers have it: %s",
                          number, pl_status_text(status));
    }
    host->device_count = number + 1;
    return PLASMON_OK;
}

/* ------------------------------------------------------------------------------- chunks */

static plasmon_status_t chunk_check(const struct store_host *host, uint32_t device,
                                    const struct store_chunk *chunk, int fd,
                                    struct pl_err *err)
{
    const struct store_host_device *owner = &host->devices[device];

    if (fd < 0) {
        return pl_err_set(err, PLASMON_EMALFORMED, "chunk %u came without a descriptor",
                          chunk->id);
    }
    if (chunk->id >= STORE_CHUNK_MAX || chunk->bytes == 0 ||
        chunk->bytes > owner->arena_bytes ||
        chunk->offset > owner->arena_bytes - chunk->bytes) {
        return pl_err_set(err, PLASMON_EMALFORMED, "chunk %u lies outside the arena",
                          chunk->id);
    }
    if (store_host_chunk_find(host, device, chunk->id) != NULL) {
        return pl_err_set(err, PLASMON_EMALFORMED, "chunk %u is known already", chunk->id);
    }
    if (owner->kind == DEVICE_CPU && !pl_fd_holds(fd, chunk->bytes)) {
        return pl_err_set(err, PLASMON_EMALFORMED, "chunk %u is smaller than it says",
                          chunk->id);
    }
    return PLASMON_OK;
}

plasmon_status_t store_host_add_chunk(struct store_host *host, uint32_t device,
                                      const struct store_chunk *chunk, int fd,
                                      struct pl_err *err)
{
    struct store_host_chunk *kept;
    plasmon_status_t status;
    int fd_ro = -1;

    PL_CHECK(device < host->device_count);
    status = chunk_check(host, device, chunk, fd, err);
    if (status != PLASMON_OK) {
        goto err_close;
    }
    if (host->devices[device].kind == DEVICE_CPU) {
        status = pl_fd_reopen_readonly(fd, &fd_ro);
        if (status != PLASMON_OK) {
            (void)pl_err_set(err, status, "chunk %u: no read-only descriptor", chunk->id);
            goto err_close;
        }
    }
    kept = pl_vec_push(&host->devices[device].chunks);
    if (kept == NULL) {
        status = pl_err_set(err, PLASMON_ENOMEM, "out of host memory");
        goto err_close;
    }

    *kept = (struct store_host_chunk){
        .id              = chunk->id,
        .client_writable = chunk->client_writable != 0,
        .offset          = chunk->offset,
        .bytes           = chunk->bytes,
        .fd              = fd,
        .fd_ro           = fd_ro,
    };
    return PLASMON_OK;

err_close:
    pl_fd_close(&fd_ro);
    pl_fd_close(&fd);
    return status;
}

const struct store_host_chunk *store_host_chunk_find(const struct store_host *host,
                                                     uint32_t device, uint32_t id)
{
    const struct pl_vec *chunks = &host->devices[device].chunks;

    for (size_t i = 0; i < chunks->count; i++) {
        const struct store_host_chunk *chunk = pl_vec_at(chunks, i);

        if (chunk->id == id) {
            return chunk;
        }
    }
    return NULL;
}

uint32_t store_host_chunks_kept(const struct store_host *host, uint32_t device)
{
    uint32_t count = 0;

    while (store_host_chunk_find(host, device, count) != NULL) {
        count++;
    }
    return count;
}

/* From now on workers that have not heard of the new page take every slot for pinned. */
static void epoch_raise(struct store_host *host)
{
    host->reader_epoch++;
    for (uint32_t i = 0; i < host->device_count; i++) {
        __atomic_store_n(&host->devices[i].timeline->reader_epoch, host->reader_epoch,
                         __ATOMIC_SEQ_CST);
    }
}

plasmon_status_t store_host_add_reader(struct store_host *host, uint64_t pid,
                                       uint32_t *out_reader)
{
    for (uint32_t i = host->device_count; i < STORE_READER_MAX; i++) {
        if (host->pages[i] == NULL) {
            plasmon_status_t status = reader_open(host, i, pid);

            if (status == PLASMON_OK) {
                epoch_raise(host);
                *out_reader = i;
            }
            return status;
        }
    }
    return PLASMON_ELIMIT;
}

void store_host_remove_reader(struct store_host *host, uint32_t reader)
{
    PL_CHECK(reader >= host->device_count && host->pages[reader] != NULL);
    store_pins_init(host->pages[reader], 0);
    reader_close(host, reader);
}

uint32_t store_host_device_down(struct store_host *host, uint32_t device)
{
    store_pins_init(host->pages[device], 0);
    return store_table_sweep(host->devices[device].table, host->pages, STORE_READER_MAX);
}
