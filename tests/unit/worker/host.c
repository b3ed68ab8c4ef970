#include "tests/unit/worker/host.h"

#include <sys/eventfd.h>

#include "base/fd.h"
#include "tests/harness/test.h"

static void memory_create(struct host_memory *memory, uint64_t bytes, void **out_ptr)
{
    memory->bytes = pl_round_up(bytes, 4096);
    ASSERT_OK(pl_memfd_create("test", memory->bytes, &memory->fd));
    if (out_ptr != NULL) {
        ASSERT_OK(pl_fd_map(memory->fd, memory->bytes, 1, out_ptr));
    }
}

void host_create(struct host *host)
{
    for (uint32_t i = 0; i < HOST_WORKERS; i++) {
        void *pins;

        memory_create(&host->timeline_fds[i], sizeof(struct store_timeline),
                      (void **)&host->timelines[i]);
        memory_create(&host->table_fds[i], sizeof(struct store_table),
                      (void **)&host->tables[i]);
        memory_create(&host->slab_fds[i],
                      (uint64_t)STORE_STAGE_SLOTS * STORE_STAGE_SLOT_BYTES, NULL);
        memory_create(&host->pins_fds[i], sizeof(struct store_pins), &pins);
        host->doorbells[i] = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
        store_timeline_init(host->timelines[i], i);
        host->timelines[i]->memory = HOST_MEMORY;
        store_table_init(host->tables[i], i, 1, i, HOST_ARENA_BYTES);
        store_pins_init(pins, i + 1);
        pl_fd_unmap(pins, host->pins_fds[i].bytes);
    }
}

void host_destroy(struct host *host)
{
    for (uint32_t i = 0; i < HOST_WORKERS; i++) {
        pl_fd_unmap(host->timelines[i], host->timeline_fds[i].bytes);
        pl_fd_unmap(host->tables[i], host->table_fds[i].bytes);
        pl_fd_close(&host->timeline_fds[i].fd);
        pl_fd_close(&host->table_fds[i].fd);
        pl_fd_close(&host->slab_fds[i].fd);
        pl_fd_close(&host->pins_fds[i].fd);
        pl_fd_close(&host->doorbells[i]);
    }
}

static void setup_send(int socket, uint32_t self, uint32_t part, uint64_t bytes,
                       const int *fds, uint32_t count)
{
    struct store_control message = {.version     = STORE_CONTROL_VERSION,
                                    .type        = STORE_CONTROL_SETUP,
                                    .host_device = self,
                                    .part        = part,
                                    .count       = count,
                                    .total       = HOST_WORKERS,
                                    .bytes       = bytes,
                                    .reader      = self};

    ASSERT_OK(pl_fd_send(socket, &message, sizeof(message), fds, count));
}

static void memories_send(int socket, uint32_t self, uint32_t part,
                          const struct host_memory *memories)
{
    int fds[HOST_WORKERS];

    for (uint32_t i = 0; i < HOST_WORKERS; i++) {
        fds[i] = memories[i].fd;
    }
    setup_send(socket, self, part, memories[0].bytes, fds, HOST_WORKERS);
}

void host_setup_send_parts(const struct host *host, int socket, uint32_t self)
{
    memories_send(socket, self, STORE_PART_TIMELINES, host->timeline_fds);
    memories_send(socket, self, STORE_PART_TABLES, host->table_fds);
    setup_send(socket, self, STORE_PART_DOORBELLS, 0, host->doorbells, HOST_WORKERS);
    memories_send(socket, self, STORE_PART_STAGES, host->slab_fds);
    setup_send(socket, self, STORE_PART_PINS, host->pins_fds[self].bytes,
               &host->pins_fds[self].fd, 1);
}

void host_setup_send_done(int socket, uint32_t self)
{
    setup_send(socket, self, STORE_PART_DONE, 0, NULL, 0);
}

void host_setup_send(const struct host *host, int socket, uint32_t self)
{
    host_setup_send_parts(host, socket, self);
    host_setup_send_done(socket, self);
}
