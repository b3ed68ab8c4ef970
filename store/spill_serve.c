/*
 * The daemon's part of spilling across stores: what workers handed back of the store before us goes
 * to spill.c, and what we have goes to our workers, who keep it for the store after us. Nothing of
 * that in a private cluster, which ends with its store.
 */
#include "store/daemon_int.h"

#include <fcntl.h>

#include "base/fd.h"
#include "base/log.h"
#include "store/host_buffers.h"
#include "store/spill.h"

/* Bit i: device i has a worker that came back. */
static uint64_t came(const struct store_daemon *daemon)
{
    uint64_t workers = 0;

    for (uint32_t i = 0; daemon->adopted != NULL && i < daemon->host.device_count; i++) {
        workers |= (uint64_t)(daemon->adopted[i].link.fd >= 0) << i;
    }
    return workers;
}

/*
 * What lies in the slab is ours at once. How much of it may be used our workers know: some may
 * still be registering it, may have found that there is no more, or may not have heard of it. So
 * all are asked, as for one that is new, and say where they are.
 */
static void slab_take(struct store_daemon *daemon, uint64_t number)
{
    struct store_host_buffer *buffer = store_host_buffers_find(&daemon->host, number);
    plasmon_status_t status =
        store_spill_slab_found(daemon->uplink->spill, buffer->fd, number);

    if (status != PLASMON_OK) {
        pl_warn("store", "the host memory that the store before spilled to: %s",
                pl_status_text(status));
    }
    store_host_buffers_ask(buffer, came(daemon)); /* sent when they are taken over */
}

static void adopt(struct store_daemon *daemon)
{
    struct store_spill *spill = daemon->uplink->spill;
    struct store_spill_slab slabs[STORE_HOST_BUFFERS_MAX];
    const struct store_host_buffer *buffer;
    uint64_t number   = 0;
    size_t slab_count = 0;
    char memory[32], files[32];

    for (size_t i = 0; (buffer = store_host_buffers_at(&daemon->host, i)) != NULL; i++) {
        if (buffer->reader == STORE_HOST_BUFFER_SPILL && buffer->fd >= 0 &&
            slab_count < PL_COUNT(slabs)) {
            slabs[slab_count++] =
                (struct store_spill_slab){.id = buffer->id, .bytes = buffer->bytes};
        }
    }
    if (store_spill_adopt(spill, daemon->host.memory, daemon->host.spill_parts.items,
                          daemon->host.spill_parts.count, slabs, slab_count,
                          &number) != PLASMON_OK) {
        return;
    }
    if (number != 0) {
        slab_take(daemon, number);
    }
    pl_info("store",
            "took over what the store before spilled: %s of host memory, %s in files",
            pl_format_bytes(number != 0 ? store_spill_memory_bytes(spill) : 0, memory),
            pl_format_bytes(store_spill_files_used(spill), files));
}

void spill_take_over(struct store_daemon *daemon)
{
    struct store_spill *spill = daemon->uplink->spill;
    struct store_spill_part parts[STORE_SPILL_PARTS_MAX];
    uint32_t count;

    if (spill != NULL && daemon->host.spill_parts.count > 0) {
        adopt(daemon);
    }
    store_host_drop_spill_parts(&daemon->host);
    if (spill == NULL || daemon->options->embedded) {
        return;
    }
    store_spill_set_memory(spill, daemon->host.memory);
    count = store_spill_parts(spill, parts);
    for (uint32_t i = 0; i < count; i++) {
        int fd = fcntl(parts[i].fd, F_DUPFD_CLOEXEC, 3);

        if (fd < 0 ||
            store_host_add_spill_part(&daemon->host, parts[i].which, fd) != PLASMON_OK) {
            pl_warn("store", "what is spilled cannot be kept for the next store; raise the "
                             "limit of open files");
            store_host_drop_spill_parts(&daemon->host);
            return;
        }
    }
}
