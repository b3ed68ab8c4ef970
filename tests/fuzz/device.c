#include "tests/fuzz/device.h"

#include <sys/mman.h>

#include "base/fd.h"

void *fuzz_pages(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    PL_CHECK(memory != MAP_FAILED);
    return memory;
}

static struct store_table *table_make(uint32_t slots, uint64_t stride,
                                      uint32_t buffer_bytes)
{
    const struct pl_shape frame = {.dtype = PL_U8, .ndim = 1, .dim = {buffer_bytes}};
    struct store_table *table   = fuzz_pages(sizeof(*table));

    store_table_init(table, 0, DEVICE_CPU, 0, UINT64_C(1) << 30);
    for (uint32_t slot = FUZZ_OPENED; slot <= slots; slot++) {
        store_table_alloc(table, slot, FUZZ_GENERATION + slot, slot * stride, &frame,
                          slot == FUZZ_OPENED ? STORE_ENTRY_CLIENT_WRITES : 0, 1);
    }
    store_table_seal(table, FUZZ_SEALED);
    return table;
}

void fuzz_device_begin(struct fuzz_device *it, uint32_t slots, uint64_t stride,
                       uint32_t buffer_bytes)
{
    struct device_config config = {.bytes_max = FUZZ_CHUNK_BYTES};
    struct pl_err err;
    int fd;

    it->table = table_make(slots, stride, buffer_bytes);
    worker_shared_init(&it->shared, -1);
    it->shared.tables[0]         = it->table;
    it->shared.host_device_count = 1;
    PL_CHECK(device_open(DEVICE_CPU, 0, &config, &it->device, &err) == PLASMON_OK);
    PL_CHECK(worker_memory_create(it->device, &it->shared, 0, &it->memory, &err) ==
             PLASMON_OK);
    PL_CHECK(device_chunk_create(it->device, FUZZ_CHUNK_BYTES, &fd) == PLASMON_OK);
    PL_CHECK(device_chunk_map(it->device, fd, FUZZ_CHUNK_BYTES, 0, true,
                              worker_memory_own(it->memory, 0)) == PLASMON_OK);
    pl_fd_close(&fd);
}
