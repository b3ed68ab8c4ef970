/* Set-up messages. They say what the host has; they decide nothing. */
#include "store/setup.h"

#include <assert.h>

#include "base/fd.h"

static_assert(STORE_HOST_DEVICE_MAX <= PL_FD_MAX_PER_MESSAGE,
              "one message a part is enough");

/* The descriptor of device `i` that goes into a part. */
typedef int (*part_fd_fn)(const struct store_host *host, uint32_t i, uint32_t receiver);

static int timeline_rw(const struct store_host *host, uint32_t i, uint32_t receiver)
{
    (void)receiver;
    return host->devices[i].timeline_fd;
}

static int timeline_ro(const struct store_host *host, uint32_t i, uint32_t receiver)
{
    (void)receiver;
    return host->devices[i].timeline_fd_ro;
}

/* Read-write for its own worker only: a table has one writer. */
static int table_of(const struct store_host *host, uint32_t i, uint32_t receiver)
{
    return i == receiver ? host->devices[i].table_fd : host->devices[i].table_fd_ro;
}

static int table_ro(const struct store_host *host, uint32_t i, uint32_t receiver)
{
    (void)receiver;
    return host->devices[i].table_fd_ro;
}

static int doorbell(const struct store_host *host, uint32_t i, uint32_t receiver)
{
    (void)receiver;
    return host->devices[i].doorbell_fd;
}

static int stage(const struct store_host *host, uint32_t i, uint32_t receiver)
{
    (void)receiver;
    return host->devices[i].stage_fd;
}

struct setup {
    const struct store_host *host;
    struct store_link *link;
    struct store_control base; /* what all messages have in common */
    uint32_t receiver;         /* host device, or STORE_HOST_DEVICE_MAX for clients */
};

static plasmon_status_t setup_part(const struct setup *setup, enum store_setup_part part,
                                   uint64_t bytes, part_fd_fn fd_of)
{
    struct store_control message = setup->base;
    int fds[STORE_HOST_DEVICE_MAX];

    for (uint32_t i = 0; i < setup->host->device_count; i++) {
        fds[i] = fd_of(setup->host, i, setup->receiver);
    }
    message.part  = part;
    message.bytes = bytes;
    return store_link_send(setup->link, &message, fds, setup->host->device_count);
}

static plasmon_status_t setup_pins(const struct setup *setup, uint32_t reader)
{
    struct store_control message = setup->base;

    message.part   = STORE_PART_PINS;
    message.bytes  = store_host_pins_bytes();
    message.offset = setup->host->reader_epoch;
    message.reader = reader;
    return store_link_send(setup->link, &message, &setup->host->readers[reader].fd, 1);
}

/* Pages of the others, a message for each run of numbers. */
static plasmon_status_t setup_readers(const struct setup *setup)
{
    plasmon_status_t status = PLASMON_OK;

    for (uint32_t i = 0; i < STORE_READER_MAX && status == PLASMON_OK;) {
        struct store_control message = setup->base;
        int fds[PL_FD_MAX_PER_MESSAGE];
        uint32_t count = 0;

        while (i + count < STORE_READER_MAX && count < PL_FD_MAX_PER_MESSAGE &&
               i + count != setup->receiver && setup->host->pages[i + count] != NULL) {
            fds[count] = setup->host->readers[i + count].fd_ro;
            count++;
        }
        if (count == 0) {
            i++;
            continue;
        }
        message.part   = STORE_PART_READERS;
        message.bytes  = store_host_pins_bytes();
        message.reader = i;
        status         = store_link_send(setup->link, &message, fds, count);
        i += count;
    }
    return status;
}

plasmon_status_t store_setup_chunk(const struct store_host *host, uint32_t device,
                                   const struct store_host_chunk *chunk, bool read_only,
                                   struct store_link *link)
{
    struct store_control message = {
        .type            = STORE_CONTROL_CHUNK,
        .host_device     = device,
        .total           = host->device_count,
        .chunk_id        = chunk->id,
        .client_writable = chunk->client_writable,
        .offset          = chunk->offset,
        .bytes           = chunk->bytes,
        .kind            = host->devices[device].kind,
        .ordinal         = host->devices[device].ordinal,
        .arena_bytes     = host->devices[device].arena_bytes,
    };
    int fd = read_only && chunk->fd_ro >= 0 ? chunk->fd_ro : chunk->fd;

    return store_link_send(link, &message, &fd, 1);
}

static plasmon_status_t setup_chunks_of(const struct setup *setup, uint32_t device)
{
    const struct pl_vec *chunks = &setup->host->devices[device].chunks;
    plasmon_status_t status     = PLASMON_OK;

    for (size_t i = 0; i < chunks->count && status == PLASMON_OK; i++) {
        status = store_setup_chunk(setup->host, device, pl_vec_at(chunks, i),
                                   device != setup->receiver, setup->link);
    }
    return status;
}

static plasmon_status_t setup_chunks(const struct setup *setup, uint32_t own)
{
    plasmon_status_t status = setup_chunks_of(setup, own);

    for (uint32_t i = 0; i < setup->host->device_count && status == PLASMON_OK; i++) {
        if (i != own) {
            status = setup_chunks_of(setup, i);
        }
    }
    return status;
}

plasmon_status_t store_setup_lane(const struct store_host *host, uint32_t device,
                                  const struct store_host_lane *lane, bool for_client,
                                  struct store_link *link)
{
    const struct store_host_device *owner = &host->devices[device];
    struct store_control message          = {.type        = STORE_CONTROL_LANE,
                                             .host_device = device,
                                             .total       = host->device_count,
                                             .count       = for_client ? 2 : 1,
                                             .bytes       = STORE_LANE_BYTES,
                                             .kind        = owner->kind,
                                             .ordinal     = owner->ordinal};
    int fds[2]                            = {lane->fd, owner->doorbell_fd};

    return store_link_send(link, &message, fds, message.count);
}

/* Those of other devices, too: to be handed back, when this store dies and their workers do. */
static plasmon_status_t setup_lanes(const struct setup *setup)
{
    plasmon_status_t status = PLASMON_OK;

    for (uint32_t d = 0; d < setup->host->device_count; d++) {
        const struct store_host_device *device = &setup->host->devices[d];

        for (uint32_t i = 0; i < device->lane_count && status == PLASMON_OK; i++) {
            status =
                store_setup_lane(setup->host, d, &device->lanes[i], false, setup->link);
        }
    }
    return status;
}

plasmon_status_t store_setup_host_buffer(const struct store_host *host,
                                         const struct store_host_buffer *buffer,
                                         uint32_t request, struct store_link *link)
{
    struct store_control message = {.type     = STORE_CONTROL_HOST_BUFFER,
                                    .total    = host->device_count,
                                    .count    = 1,
                                    .chunk_id = request,
                                    .reader   = buffer->reader,
                                    .offset   = buffer->id,
                                    .bytes    = buffer->bytes};

    return store_link_send(link, &message, &buffer->fd, 1);
}

static plasmon_status_t setup_host_buffers(const struct setup *setup)
{
    const struct store_host_buffer *buffer;
    plasmon_status_t status = PLASMON_OK;

    for (size_t i = 0;
         status == PLASMON_OK && (buffer = store_host_buffers_at(setup->host, i)) != NULL;
         i++) {
        if (buffer->fd >= 0) { /* otherwise it is dropped */
            status = store_setup_host_buffer(setup->host, buffer, 0, setup->link);
        }
    }
    return status;
}

plasmon_status_t store_setup_spill(const struct store_host *host, struct store_link *link)
{
    plasmon_status_t status = PLASMON_OK;

    for (size_t i = 0; i < host->spill_parts.count && status == PLASMON_OK; i++) {
        const struct store_spill_part *part = pl_vec_at(&host->spill_parts, i);
        struct store_control message        = {.type     = STORE_CONTROL_SPILL,
                                               .total    = host->device_count,
                                               .count    = 1,
                                               .chunk_id = part->which};

        status = store_link_send(link, &message, &part->fd, 1);
    }
    return status;
}

static plasmon_status_t setup_done(const struct setup *setup)
{
    struct store_control message = setup->base;

    message.part = STORE_PART_DONE;
    return store_link_send(setup->link, &message, NULL, 0);
}

plasmon_status_t store_setup_worker(const struct store_host *host, uint32_t device,
                                    struct store_link *link)
{
    const struct store_host_device *own = &host->devices[device];
    struct setup setup                  = {
                         .host     = host,
                         .link     = link,
                         .receiver = device,
                         .base     = {.type        = STORE_CONTROL_SETUP,
                                      .host_device = device,
                                      .total       = host->device_count,
                                      .kind        = own->kind,
                                      .ordinal     = own->ordinal,
                                      .arena_bytes = own->arena_bytes},
    };
    plasmon_status_t status =
        setup_part(&setup, STORE_PART_TIMELINES, store_host_timeline_bytes(), timeline_rw);

    if (status == PLASMON_OK) {
        status = setup_part(&setup, STORE_PART_TABLES, store_host_table_bytes(), table_of);
    }
    if (status == PLASMON_OK) {
        status = setup_part(&setup, STORE_PART_DOORBELLS, 0, doorbell);
    }
    if (status == PLASMON_OK) {
        status = setup_part(&setup, STORE_PART_STAGES, STORE_STAGE_BYTES, stage);
    }
    if (status == PLASMON_OK) {
        status = setup_pins(&setup, device);
    }
    if (status == PLASMON_OK) {
        status = setup_readers(&setup);
    }
    if (status == PLASMON_OK) {
        status = setup_chunks(&setup, device);
    }
    if (status == PLASMON_OK) {
        status = setup_lanes(&setup);
    }
    if (status == PLASMON_OK) {
        status = setup_host_buffers(&setup);
    }
    if (status == PLASMON_OK) {
        status = store_setup_spill(host, link);
    }
    return status == PLASMON_OK ? setup_done(&setup) : status;
}

plasmon_status_t store_setup_client(const struct store_host *host, uint32_t reader,
                                    bool known, struct store_link *link)
{
    struct setup setup = {
        .host     = host,
        .link     = link,
        .receiver = STORE_HOST_DEVICE_MAX, /* owns no table */
        .base     = {.type = STORE_CONTROL_CLIENT_SETUP, .total = host->device_count},
    };
    plasmon_status_t status = PLASMON_OK;

    if (!known) {
        status = setup_part(&setup, STORE_PART_TIMELINES, store_host_timeline_bytes(),
                            timeline_ro);
    }
    if (status == PLASMON_OK && !known) {
        status = setup_part(&setup, STORE_PART_TABLES, store_host_table_bytes(), table_ro);
    }
    if (status == PLASMON_OK && !known) {
        status = setup_pins(&setup, reader);
    }
    setup.base.offset = host->memory;
    setup.base.reader = reader;
    return status == PLASMON_OK ? setup_done(&setup) : status;
}

plasmon_status_t store_setup_reader(const struct store_host *host, uint32_t reader,
                                    struct store_link *link)
{
    struct store_control message = {
        .type   = STORE_CONTROL_PINS_ADD,
        .total  = host->device_count,
        .reader = reader,
        .offset = host->reader_epoch,
        .bytes  = store_host_pins_bytes(),
    };

    return store_link_send(link, &message, &host->readers[reader].fd_ro, 1);
}
