/* Descriptors that come back: see handback.h. The socket is handback_serve.c's. */
#include "store/handback.h"

#include "base/fd.h"
#include "device/device.h"
#include "store/host_buffers.h"
#include "store/lanes.h"

struct store_handback_item {
    struct store_control what;
    uint32_t from; /* the worker that gave it */
    int fd;        /* -1: used */
};

void store_handback_init(struct store_handback *handback)
{
    *handback       = (struct store_handback){.total = 0};
    handback->items = PL_VEC_INIT(struct store_handback_item);
}

static struct store_handback_item *item_at(const struct store_handback *handback, size_t i)
{
    return pl_vec_at(&handback->items, i);
}

void store_handback_finish(struct store_handback *handback)
{
    for (size_t i = 0; i < handback->items.count; i++) {
        pl_fd_close(&item_at(handback, i)->fd);
    }
    pl_vec_finish(&handback->items);
}

/* ------------------------------------------------------------------------ what they say */

plasmon_status_t store_handback_begin(struct store_handback *handback,
                                      const struct store_control *message,
                                      struct pl_err *err)
{
    uint32_t device = message->host_device;

    if (message->type != STORE_CONTROL_HANDBACK || message->total == 0 ||
        message->total > STORE_HOST_DEVICE_MAX || device >= message->total) {
        return pl_err_set(err, PLASMON_EMALFORMED,
                          "a handback of device %u of %u, in a message of type %u", device,
                          message->total, message->type);
    }
    if (handback->total != 0 && handback->total != message->total) {
        return pl_err_set(err, PLASMON_EMALFORMED,
                          "device %u says that this host has %u devices, another one %u",
                          device, message->total, handback->total);
    }
    if (handback->workers[device].done) {
        return pl_err_set(err, PLASMON_EEXIST, "device %u was handed back already", device);
    }
    handback->total           = message->total;
    handback->workers[device] = (struct store_handback_worker){
        .incarnation = message->reader, .memory_bytes = message->offset};
    return PLASMON_OK;
}

/* Would building with it go out of bounds? */
static bool item_makes_sense(const struct store_handback *handback,
                             const struct store_control *message)
{
    switch ((enum store_kept)message->part) {
    case STORE_KEPT_TIMELINE:
    case STORE_KEPT_TABLE:
    case STORE_KEPT_DOORBELL:
    case STORE_KEPT_STAGE:
    case STORE_KEPT_CHUNK: /* store_host_add_chunk() looks at the rest */
    case STORE_KEPT_LANE:
        return message->host_device < handback->total;
    case STORE_KEPT_PINS:
        return message->reader < STORE_READER_MAX;
    case STORE_KEPT_BUFFER:
        return message->offset != 0 && message->bytes != 0 &&
               (message->reader < STORE_READER_MAX ||
                message->reader == STORE_HOST_BUFFER_SPILL);
    case STORE_KEPT_SPILL:
        return message->chunk_id < STORE_SPILL_PARTS_MAX;
    case STORE_KEPT_COUNT:
        break;
    }
    return false;
}

plasmon_status_t store_handback_message(struct store_handback *handback, uint32_t device,
                                        const struct store_control *message, int fd,
                                        struct pl_err *err)
{
    struct store_handback_item *item;

    if (message->type == STORE_CONTROL_HANDBACK_END && fd < 0) {
        handback->workers[device].done = true;
        return PLASMON_OK;
    }
    if (message->type != STORE_CONTROL_KEPT || fd < 0 ||
        !item_makes_sense(handback, message)) {
        pl_fd_close(&fd);
        return pl_err_set(err, PLASMON_EMALFORMED,
                          "device %u hands back a message of type %u, part %u", device,
                          message->type, message->part);
    }
    if (handback->items.count >= STORE_HANDBACK_ITEMS_MAX) {
        pl_fd_close(&fd);
        return pl_err_set(err, PLASMON_EMALFORMED,
                          "device %u hands back more than %u things", device,
                          STORE_HANDBACK_ITEMS_MAX);
    }
    item = pl_vec_push(&handback->items);
    if (item == NULL) {
        pl_fd_close(&fd);
        return pl_err_set(err, PLASMON_ENOMEM, "out of host memory");
    }
    *item = (struct store_handback_item){.what = *message, .from = device, .fd = fd};
    return PLASMON_OK;
}

bool store_handback_complete(const struct store_handback *handback)
{
    for (uint32_t i = 0; i < handback->total; i++) {
        if (!handback->workers[i].done) {
            return false;
        }
    }
    return handback->total > 0;
}

/* ----------------------------------------------------------------------------- building */

/* Takes the descriptor of a device's part: its owner's where there is one. -1: nobody has it. */
static int part_take(struct store_handback *handback, enum store_kept part, uint32_t number)
{
    struct store_handback_item *found = NULL;
    int fd                            = -1;

    for (size_t i = 0; i < handback->items.count; i++) {
        struct store_handback_item *item = item_at(handback, i);
        uint32_t whose =
            part == STORE_KEPT_PINS ? item->what.reader : item->what.host_device;

        if (item->fd >= 0 && item->what.part == (uint32_t)part && whose == number &&
            (found == NULL || item->from == number)) {
            found = item;
        }
    }
    if (found != NULL) {
        fd        = found->fd;
        found->fd = -1;
    }
    return fd;
}

/* What the worker may use is what it says; one that did not come may use what the others may. */
static uint64_t memory_of(const struct store_handback *handback, uint32_t device)
{
    uint64_t bytes = handback->workers[device].memory_bytes;

    for (uint32_t i = 0; bytes == 0 && i < handback->total; i++) {
        bytes = handback->workers[i].memory_bytes;
    }
    return bytes;
}

static plasmon_status_t build_devices(struct store_handback *handback,
                                      struct store_host *host, struct pl_err *err)
{
    plasmon_status_t status = PLASMON_OK;

    for (uint32_t i = 0; i < handback->total && status == PLASMON_OK; i++) {
        struct store_host_kept kept = {
            .timeline = part_take(handback, STORE_KEPT_TIMELINE, i),
            .table    = part_take(handback, STORE_KEPT_TABLE, i),
            .stage    = part_take(handback, STORE_KEPT_STAGE, i),
            .doorbell = part_take(handback, STORE_KEPT_DOORBELL, i),
            .pins     = part_take(handback, STORE_KEPT_PINS, i)};

        status = store_host_keep_device(host, &kept, memory_of(handback, i), err);
    }
    return status;
}

/* A peer has a CPU device's chunk for reading. On failure fd is closed. */
static plasmon_status_t chunk_writable(const struct store_host *host, uint32_t device,
                                       int *io_fd)
{
    plasmon_status_t status = PLASMON_OK;
    int fd                  = *io_fd;

    if (host->devices[device].kind == DEVICE_CPU) {
        status = pl_fd_reopen_writable(fd, io_fd);
        pl_fd_close(&fd);
    }
    return status;
}

/* Takes the item's descriptor. */
static plasmon_status_t build_item(struct store_host *host,
                                   struct store_handback_item *item, struct pl_err *err)
{
    const struct store_control *what = &item->what;
    plasmon_status_t status          = PLASMON_OK;
    int fd                           = item->fd;

    item->fd = -1;
    if (what->part == STORE_KEPT_CHUNK) {
        struct store_chunk chunk = {.offset          = what->offset,
                                    .bytes           = what->bytes,
                                    .client_writable = what->client_writable,
                                    .id              = what->chunk_id};

        if (store_host_chunk_find(host, what->host_device, what->chunk_id) == NULL) {
            status = chunk_writable(host, what->host_device, &fd);
            return status == PLASMON_OK
                       ? store_host_add_chunk(host, what->host_device, &chunk, fd, err)
                       : pl_err_set(err, status, "chunk %u of device %u: %s", chunk.id,
                                    what->host_device, pl_status_text(status));
        }
    } else if (what->part == STORE_KEPT_LANE) {
        if (!store_lanes_have(host, what->host_device, fd)) {
            status = store_lanes_keep(host, what->host_device, fd);
            fd     = -1;
        }
    } else if (what->part == STORE_KEPT_BUFFER) {
        status = store_host_buffers_keep(host, item->from, what->offset, what->bytes,
                                         what->reader, fd);
        fd     = -1;
    } else if (what->part == STORE_KEPT_SPILL) {
        status = store_host_add_spill_part(host, what->chunk_id, fd);
        fd     = -1;
    } else if (what->part == STORE_KEPT_PINS && host->pages[what->reader] == NULL) {
        status = store_host_keep_reader(host, what->reader, fd);
        fd     = -1;
    }
    pl_fd_close(&fd); /* somebody else's of the same */
    return status == PLASMON_OK
               ? status
               : pl_err_set(err, status, "part %u of device %u: %s", what->part,
                            what->host_device, pl_status_text(status));
}

/* Owners first: their descriptors can do more. */
static plasmon_status_t build_items(struct store_handback *handback,
                                    struct store_host *host, bool owners,
                                    struct pl_err *err)
{
    plasmon_status_t status = PLASMON_OK;

    for (size_t i = 0; i < handback->items.count && status == PLASMON_OK; i++) {
        struct store_handback_item *item = item_at(handback, i);
        bool own                         = item->from == item->what.host_device;

        if (item->fd >= 0 && own == owners) {
            status = build_item(host, item, err);
        }
    }
    return status;
}

plasmon_status_t store_handback_build(struct store_handback *handback,
                                      struct store_host *host, struct pl_err *err)
{
    plasmon_status_t status = build_devices(handback, host, err);

    if (status == PLASMON_OK) {
        status = build_items(handback, host, true, err);
    }
    if (status == PLASMON_OK) {
        status = build_items(handback, host, false, err);
    }
    if (status != PLASMON_OK) {
        uint64_t buffer_bytes_max = host->buffer_bytes_max;

        store_host_finish(host);
        store_host_init(host);
        host->buffer_bytes_max = buffer_bytes_max;
    }
    return status;
}
