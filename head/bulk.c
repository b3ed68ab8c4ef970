/*
 * Who may send objects to whom between hosts. A worker says where it listens and what lets others in; every worker of another host is
 * told before the first launch that names it, as commands go out in order. A device that is gone stays told: who waits for
 * its half of a transfer must not wait on.
 */
#include "head/core_int.h"

#include <string.h>

#define FIELD_BULK_PEERS 13

static void tell(struct head_device *to, const struct head_device *device)
{
    Plasmon__V1__BulkPeer peer;

    plasmon__v1__bulk_peer__init(&peer);
    peer.device = device->index;
    peer.gone   = device->gone;
    if (!device->gone) {
        peer.address     = device->bulk_address;
        peer.secret.data = (uint8_t *)(uintptr_t)device->bulk_secret;
        peer.secret.len  = sizeof(device->bulk_secret);
    }
    head_bytes_message(&to->out, FIELD_BULK_PEERS, &peer.base);
}

/* It listens somewhere, or did until it was gone; and `to` is elsewhere. */
static bool concerns(const struct head_device *to, const struct head_device *device)
{
    return to != device && to->bulk_address[0] != '\0' && device->bulk_address[0] != '\0' &&
           strcmp(to->host, device->host) != 0;
}

void head_bulk_tell(struct head_core *core, const struct head_device *device)
{
    for (uint32_t i = 0; i < core->devices.count; i++) {
        struct head_device *to = head_device_at(core, i);

        if (to->joined && !to->gone && concerns(to, device)) {
            tell(to, device);
        }
    }
}

void head_bulk_tell_all(struct head_core *core, struct head_device *device)
{
    for (uint32_t i = 0; i < core->devices.count; i++) {
        const struct head_device *other = head_device_at(core, i);

        if (other->joined && concerns(device, other)) {
            tell(device, other);
        }
    }
}

void head_bulk_take(struct head_core *core, struct head_device *device,
                    const Plasmon__V1__WorkerHello *hello)
{
    bool same =
        strcmp(device->bulk_address, hello->bulk_address) == 0 &&
        (hello->bulk_secret.len == 0 || memcmp(device->bulk_secret, hello->bulk_secret.data,
                                               sizeof(device->bulk_secret)) == 0);

    if (same) {
        return;
    }
    pl_free(device->bulk_address);
    device->bulk_address = head_strdup(hello->bulk_address);
    if (hello->bulk_secret.len == sizeof(device->bulk_secret)) {
        memcpy(device->bulk_secret, hello->bulk_secret.data, sizeof(device->bulk_secret));
    }
    head_bulk_tell(core, device);
}
